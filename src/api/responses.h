/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of /v1/responses share. */
#ifndef API_RESPONSES_H
#define API_RESPONSES_H

#include "api/answer.h"
#include "api/store.h"
#include "api/unwrap.h"

enum api_item {
    API_ITEM_NONE,
    API_ITEM_REASON,
    API_ITEM_TEXT,
    API_ITEM_CALL,
    API_ITEM_CUSTOM,
    API_ITEM_SEARCH
};

/* A tool that the model may call, by the name that it is told. */
struct api_resp_tool {
    const char *flat;   /* that name */
    const char *name;   /* the client's */
    const char *ns;     /* its namespace, or NULL */
    const char *path;   /* where the request has it: "tools[2].tools[0]" */
    enum api_item item; /* of its calls; CUSTOM: free-form, SEARCH: for tools, by the client */
};

struct api_resp {
    struct api_gen g;
    struct api_prompt prompt;
    struct api_answer x;
    const struct json *body, *chat; /* as sent; and as a chat request */
    const struct json *in;          /* the input, references resolved */
    struct api_resp_tool *tool;     /* [n_tool], in the order of chat's tools */
    int n_tool;
    bool fold;          /* the template takes system messages in front only */
    struct str history; /* messages up to here, commas between them, no brackets */
    struct str input;   /* items up to here, in the same way; empty unless stored */
    bool store;
    /* the output as it grows */
    int64_t seq; /* of the next event */
    int n_item;  /* output items that are done */
    enum api_item open;
    char item_id[48], call_id[API_CALL_ID];
    struct str item, name;    /* text or arguments of the open one; name of its function */
    const char *ns;           /* namespace of its function, or NULL */
    struct api_unwrap unwrap; /* of a free-form call's arguments */
    struct str items;         /* done ones as JSON, commas between them */
    struct str logprobs;      /* of the open text */
    struct str *out;          /* where its stream events go; NULL = none */
    bool begun;
};

/* ---- responses_in.c ---- */
/* Fill in, chat, history, prompt and the tools from body. Errors: REQUEST (names the field),
 * NOTFOUND (previous_response_id), LIMIT, NOMEM. */
sl_status api_resp_read(api *a, struct net_req *r, struct api_resp *p, sl_err *err) BASE_MUST_USE;

/* ---- responses_history.c ---- */
/* A message onto a list without brackets; id: of the call it is the output of, or NULL. */
void api_resp_put_message(struct str *out, const char *role, const char *id,
                          const struct json *content);
/* Items as messages onto such a list. Errors: REQUEST, with the item's place. */
sl_status api_resp_put_items(struct net_req *r, struct str *out, const struct json *list,
                             sl_err *err) BASE_MUST_USE;
/* Is there a kind of item of that name (n bytes)? */
bool api_resp_is_item(const char *type, size_t n);

/* ---- responses_tools.c ---- */
/* The name by which the model calls a function of a namespace (NULL or "functions": none). */
sl_status api_resp_flat(struct arena *ar, const char *ns, const char *name, const char **out,
                        sl_err *err) BASE_MUST_USE;
/* The tool that the model means; NULL: none. */
const struct api_resp_tool *api_resp_tool_of(const struct api_resp *p, const char *name, size_t n);
/* "tools" and "tool_choice" of the chat request. Errors: REQUEST. */
sl_status api_resp_put_tools(struct net_req *r, struct api_resp *p, struct json_w *w,
                             sl_err *err) BASE_MUST_USE;
sl_status api_resp_put_choice(struct net_req *r, const struct api_resp *p, struct json_w *w,
                              sl_err *err) BASE_MUST_USE;
/* A text about one of chat's tools becomes one about the request's. */
void api_resp_blame(const struct api_resp *p, sl_err *err);

/* ---- responses_items.c ---- */
/* Items of input that api_resp_read took, onto a list without brackets, each with an id. */
void api_resp_put_input(struct str *out, const struct json *in);

/* ---- responses_out.c ---- */
void api_resp_put(struct json_w *w, struct api_job *j, const char *status);

/* ---- responses.c ---- */
/* Reply to NOTFOUND of the store; other statuses are given back. */
sl_status api_resp_not_found(api *a, struct net_req *r, sl_status st, sl_err *err) BASE_MUST_USE;

#endif
