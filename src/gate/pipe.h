/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: bytes on their way out and in, as frames. Who owns it locks it. */
#ifndef GATE_PIPE_H
#define GATE_PIPE_H

#include "gate/frame.h"

struct gate_bytes {
    uint8_t *p; /* [cap]; what is there is [at, n) */
    size_t at, n, cap;
};

struct gate_pipe {
    int fd; /* -1 = closed */
    struct gate_bytes in, out;
};

/* All frames of s, or none: false when out would hold more than max bytes, or there is no memory.
 * Of a closed one they are forgotten. */
bool gate_pipe_put(struct gate_pipe *p, const struct str *s, size_t max);
/* Send what the socket takes now. False: the other end is gone. */
bool gate_pipe_flush(struct gate_pipe *p);
/* Receive what is there, up to a MiB: 1 = there may be more, 0 = that was all, -1 = no more comes:
 * the other end is gone, or there is no memory. Frames that came before that are there. */
int gate_pipe_fill(struct gate_pipe *p);
/* The next whole frame, until the next call of gate_pipe_fill. *any: there was one. max: of its
 * body. Errors: FORMAT. */
sl_status gate_pipe_next(struct gate_pipe *p, uint32_t max, struct gate_frame *f, bool *any,
                         sl_err *err) BASE_MUST_USE;
void gate_pipe_close(struct gate_pipe *p); /* twice is legal */

#endif
