/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of chat or responses as a whole: text, reasoning, calls, logprobs, ids. */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/api_internal.h"
#include "api/parse.h"

#define API_CALL_MAX 128 /* of one answer; later ones are left out */

#define API_CALL_ID 96 /* bytes of a call's id; a longer one of the model's is replaced */

struct api_call {
    char id[API_CALL_ID]; /* the model's own, where its family gives one of plain characters */
    struct str name, args;
};

struct api_answer {
    struct api_parse *parse;
    struct str text, reason;
    struct api_lp lp;
    struct str logprobs; /* entries of chat's content list with commas between them; of a stream:
                            those that no event has told yet */
    struct str ids;
    struct api_call *call; /* [n_call] */
    int n_call, cap_call;
    int finish;
    bool begun;
    bool continues; /* text of the last message */
};

/* body: as chat has it. Errors: NOMEM; api_answer_fini is due all the same. */
sl_status api_answer_init(api *a, const struct json *body, bool prompt_thinks,
                          struct api_answer *out, sl_err *err) BASE_MUST_USE;
void api_answer_fini(struct api_answer *x);
/* Add to the whole: as an api_parse_sink with user = struct api_answer. */
extern const struct api_parse_sink api_answer_sink;
/* Reasoning tokens of the job; before the event's text is parsed. */
void api_answer_count(struct api_job *j, const struct api_answer *x, const struct api_event *ev);
/* Have the engine give control tokens in the form that parse takes, where the client sees none. */
void api_answer_special(const struct api_answer *x, sl_request *q);
/* Logprobs and ids of an event, onto the answer's. */
void api_answer_token(const struct api_job *j, struct api_answer *x, const struct api_event *ev);
/* "tool_calls": [...] */
void api_put_calls(struct json_w *w, const struct api_answer *x);
/* "stop", "length", "tool_calls" */
const char *api_answer_finish(const struct api_answer *x);

#endif
