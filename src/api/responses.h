/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of /v1/responses share. */
#ifndef API_RESPONSES_H
#define API_RESPONSES_H

#include "api/answer.h"
#include "api/store.h"

enum api_item { API_ITEM_NONE, API_ITEM_REASON, API_ITEM_TEXT, API_ITEM_CALL };

struct api_resp {
    struct api_gen g;
    struct api_prompt prompt;
    struct api_answer x;
    const struct json *body, *chat; /* as sent; and as a chat request */
    struct str history;             /* messages up to here, commas between them, no brackets */
    struct str input;               /* items up to here, in the same way; empty unless stored */
    bool store;
    /* the output as it grows */
    int64_t seq; /* of the next event */
    int n_item;  /* output items that are done */
    enum api_item open;
    char item_id[48], call_id[48];
    struct str item, name;      /* text or arguments of the open one; name of its function */
    struct str items;           /* done ones as JSON, commas between them */
    struct str logprobs;        /* of the open text */
    struct str *out;            /* where its stream events go; NULL = none */
    bool begun;
};

/* ---- responses_in.c ---- */
/* Fill chat and history from body. */
sl_status api_resp_read(api *a, struct net_req *r, struct api_resp *p, sl_err *err) BASE_MUST_USE;

/* ---- responses_items.c ---- */
/* Items of input that api_resp_read took, onto a list without brackets, each with an id. */
void api_resp_put_input(struct str *out, const struct json *in);

/* ---- responses_out.c ---- */
void api_resp_put(struct json_w *w, struct api_job *j, const char *status);

/* ---- responses.c ---- */
/* Reply to NOTFOUND of the store; other statuses are given back. */
sl_status api_resp_not_found(api *a, struct net_req *r, sl_status st, sl_err *err) BASE_MUST_USE;

#endif
