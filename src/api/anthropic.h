/* SPDX-License-Identifier: Apache-2.0 */
/* The Messages API of Anthropic on the core of chat: a request becomes a chat request
 * (anthropic_in.c), its answer becomes content blocks (anthropic.c).
 *
 * What has no meaning here is accepted where it changes nothing about the answer (cache marks,
 * signatures, server tools that the model is then not told of) and refused where it would (images,
 * PDF files). docs/api.md has the list. */
#ifndef API_ANTHROPIC_H
#define API_ANTHROPIC_H

#include "api/answer.h"

enum api_block { API_BLOCK_NONE, API_BLOCK_THINK, API_BLOCK_TEXT, API_BLOCK_CALL };

struct api_msg {
    struct api_gen g;
    struct api_prompt prompt;
    struct api_answer x;
    const struct json *body, *chat; /* as sent; and as a chat request */
    /* of the request */
    const int *tool_at; /* [n_tool], of the chat request: which of the body's tools it is */
    int n_tool;
    const char *format; /* the field that the answer's form came from, or NULL */
    bool marked;        /* a cache_control is there: cache_creation_input_tokens are told */
    bool hidden;        /* thinking.display omitted: blocks of thinking without their text */
    bool warm;          /* max_tokens 0: read the prompt, answer nothing */
    bool can_switch;    /* the template has a switch for thinking */
    /* the answer as it grows */
    enum api_block open;
    int n_block;        /* blocks that are done */
    struct str block;   /* text, thinking or arguments of the open one */
    struct str content; /* blocks that are done as JSON, commas between them */
    struct str *out;    /* where its stream events go; NULL = none */
    bool begun;
    int n_prompt, n_cached, n_token, stop; /* of the newest event; which stop string ended it */
};

/* ---- anthropic_in.c ---- */
/* Fill chat and what the request says from body. count: of count_tokens, where max_tokens may be
 * missing and messages longer than the context. Errors: REQUEST, the text begins with the field. */
sl_status api_msg_read(api *a, struct net_req *r, struct api_msg *p, bool count,
                       sl_err *err) BASE_MUST_USE;

/* ---- anthropic_blocks.c: content blocks as text ---- */
/* The cache_control of a block or tool, which sets *marked. */
sl_status api_msg_mark(const struct json *o, const char *path, bool *marked,
                       sl_err *err) BASE_MUST_USE;
/* The text of a block that a user, a system prompt or a tool's result may hold, onto out. Errors:
 * REQUEST (a block that is no text, with its path). */
sl_status api_msg_text(struct str *out, const struct json *block, const char *path,
                       sl_err *err) BASE_MUST_USE;
/* A text, or the texts of a list of such blocks with line ends between them. */
sl_status api_msg_texts(struct str *out, const struct json *content, const char *path, bool *marked,
                        sl_err *err) BASE_MUST_USE;

/* ---- anthropic_tools.c ---- */
/* "tools", "tool_choice" and "parallel_tool_calls" of the chat request. Errors: REQUEST. */
sl_status api_msg_put_tools(struct net_req *r, struct api_msg *p, struct json_w *w,
                            sl_err *err) BASE_MUST_USE;

/* ---- anthropic_out.c ---- */
/* The message object, or with open the beginning of one. */
void api_msg_put(struct json_w *w, const struct api_job *j, bool open);
/* "usage": of the newest event. delta: as the event message_delta has it, which is less. */
void api_msg_put_usage(struct json_w *w, const struct api_job *j, bool delta);
/* "stop_reason" and "stop_sequence". */
void api_msg_put_stop(struct json_w *w, const struct api_job *j);

#endif
