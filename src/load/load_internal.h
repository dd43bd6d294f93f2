/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of one request, as its bytes come: server-sent events or one JSON body. */
#ifndef LOAD_LOAD_INTERNAL_H
#define LOAD_LOAD_INTERNAL_H

#include "load/load.h"

#define LOAD_LINE_MAX (4u << 20) /* bytes of one event, or of one answer without streaming */

struct load_stream {
    struct str buf;            /* bytes of the line, or of the body, under way */
    struct arena arena;        /* of one event */
    bool events, done;         /* text/event-stream; [DONE] seen */
    int n_piece, n_event;      /* pieces of answers; events with data, but for [DONE] */
    int n_in, n_out, n_cached; /* -1 = not reported */
    char error[96];            /* an error object inside the answer; "" */
};
void load_stream_init(struct load_stream *s, bool events);
void load_stream_fini(struct load_stream *s);
/* Bytes came. *pieces: answer pieces among them. Errors: LIMIT (a line over LOAD_LINE_MAX), FORMAT
 * (an event that is no JSON), NOMEM. */
sl_status load_stream_push(struct load_stream *s, const char *p, size_t n, int *pieces,
                           sl_err *err) BASE_MUST_USE;
/* The end: reads the body of an answer without streaming. Errors: FORMAT (a stream without [DONE],
 * a body that is no JSON). */
sl_status load_stream_end(struct load_stream *s, sl_err *err) BASE_MUST_USE;
/* "message" of an OpenAI error body into why; false when it is none. */
bool load_error_text(const char *p, size_t n, char *why, size_t n_why);

#endif
