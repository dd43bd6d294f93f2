/* SPDX-License-Identifier: Apache-2.0 */
/* Times of operators on the device's clock: while they are asked for, every operator leaves a stamp
 * in the log after it, and every submit begins with one. What lies between two stamps of a submit
 * was the operator's of the second. A log with stamps is another log, so those that were recorded
 * without them stay as they are. */
#include "dev/gpu/gpu.h"

#define FIRST DEV_N_OP /* of a submit: what came before is another's, or idle */

bool dev_gpu_times_on(const struct gpu *c)
{
    return c->head.timing == 2 && c->lim.has_clock;
}

void dev_gpu_stamp_first(struct gpu *c, struct gpu_entry *e)
{
    e->kind = GPU_STAMP;
    e->u.c.to = (uint64_t)c->n_stamp;
    c->stamp[c->n_stamp++] = FIRST;
}

void dev_gpu_op_done(dev *d, enum dev_op_kind op)
{
    struct gpu *c = dev_gpu_of(d);
    d->op[op].n_call++;
    if (!dev_gpu_times_on(c) || c->why.code) return;
    if (c->n_log == 0) return; /* it has left nothing to do, or what it left was waited for */
    dev_gpu_stamp(c);
    if (c->n_log && c->log[c->n_log - 1].kind == GPU_STAMP)
        c->stamp[c->log[c->n_log - 1].u.c.to] = (uint8_t)op;
}

/* All that was submitted is done. */
void dev_gpu_times_take(struct gpu *c)
{
    int n = c->n_stamp;
    c->n_stamp = 0;
    if (n < 2 || c->drv->times(c->g, n, c->stamp_ns)) return;
    for (int i = 1; i < n; i++)
        if (c->stamp[i] < DEV_N_OP)
            c->head.op[c->stamp[i]].ns += BASE_MAX(c->stamp_ns[i] - c->stamp_ns[i - 1], 0);
}
