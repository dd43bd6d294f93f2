/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a connection, as they come and go. */
#include "gate/pipe.h"

#include <string.h>
#include <unistd.h>

#include "net/local.h"

#define PIECE ((size_t)64 << 10) /* received at a time */
#define FILL ((size_t)1 << 20)
#define KEEP ((size_t)1 << 20) /* an empty buffer that is larger is given back */

static bool reserve(struct gate_bytes *b, size_t more)
{
    void *p = NULL;
    if (b->at == b->n) b->at = b->n = 0;
    if (b->at == b->n && b->cap > KEEP && more <= KEEP) {
        mem_free(b->p);
        *b = (struct gate_bytes){0};
    }
    if (more <= b->cap - b->n) return true;
    if (b->at) memmove(b->p, b->p + b->at, b->n - b->at);
    b->n -= b->at;
    b->at = 0;
    if (more <= b->cap - b->n) return true;
    size_t cap = BASE_MAX(2 * b->cap, b->n + more);
    if (mem_realloc(MEM_REQUEST, b->p, cap, &p, NULL)) return false;
    b->p = p;
    b->cap = cap;
    return true;
}

bool gate_pipe_put(struct gate_pipe *p, const struct str *s, size_t max)
{
    if (p->fd < 0) return true;
    if (s->failed || p->out.n - p->out.at + s->n > max || !reserve(&p->out, s->n)) return false;
    memcpy(p->out.p + p->out.n, s->p, s->n);
    p->out.n += s->n;
    return true;
}

bool gate_pipe_flush(struct gate_pipe *p)
{
    while (p->fd >= 0 && p->out.at < p->out.n) {
        size_t n = BASE_MIN(p->out.n - p->out.at, FILL);
        int sent = net_local_send(p->fd, p->out.p + p->out.at, (int)n);
        if (sent < 0) return false;
        if (sent == 0) return true;
        p->out.at += (size_t)sent;
    }
    return true;
}

int gate_pipe_fill(struct gate_pipe *p)
{
    for (size_t all = 0; all < FILL;) {
        if (!reserve(&p->in, PIECE)) return -1;
        int n = net_local_receive(p->fd, p->in.p + p->in.n, (int)PIECE);
        if (n <= 0) return n;
        p->in.n += (size_t)n;
        all += (size_t)n;
    }
    return 1;
}

sl_status gate_pipe_next(struct gate_pipe *p, uint32_t max, struct gate_frame *f, bool *any,
                         sl_err *err)
{
    size_t used = 0;
    *any = false;
    SL_TRY(gate_frame_next(p->in.p + p->in.at, p->in.n - p->in.at, max, f, &used, err));
    p->in.at += used;
    *any = used > 0;
    return SL_OK;
}

void gate_pipe_close(struct gate_pipe *p)
{
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    mem_free(p->in.p);
    mem_free(p->out.p);
    p->in = p->out = (struct gate_bytes){0};
}
