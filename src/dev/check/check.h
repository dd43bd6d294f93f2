/* SPDX-License-Identifier: Apache-2.0 */
/* The device `check`: it computes as the CPU does, and behaves as a device far away may. For tests:
 * what works with it makes no use of the CPU being near. Room-internal.
 *
 * - Its addresses are its own: the host faults at them. An operator that is given another address
 *   where memory of the device is due, or a matrix of another device, is an assertion.
 * - Operators are queued and run late, in order: at a copy, at dev_sync, when the next step begins.
 *   A step's arrays are copied when it begins: later changes have no effect.
 * - When a step begins, all buffers into which the host has never copied become NaN; so do blocks
 *   of the cache that are given back.
 * - Options, between commas: fail=K: the K-th call (from 1: allocations, copies, opened things,
 *   steps, operators, waits) fails; lost=K: from the K-th on all do, and the device is lost;
 *   lacks=NAME: it has no such operator; mem=N: it says that it has N bytes of its own. */
#ifndef DEV_CHECK_CHECK_H
#define DEV_CHECK_CHECK_H

#include "dev/dev_internal.h"

/* Memory: n bytes at mem, which only the CPU device sees; their addresses here begin at base. */
struct check_buf {
    struct check_buf *next;
    uint8_t *base, *mem;
    size_t n;
    bool is_kept; /* the host has copied into it */
};
/* What of the CPU device a handle stands for. */
struct check_mat {
    struct dev_mat head;
    dev_mat *in;
};
struct check_act {
    struct dev_act head;
    dev_act *in;
};
struct check_kv {
    struct dev_kv head;
    dev_kv *in;
};

/* An operator that waits. */
struct check_call {
    enum dev_op_kind op;
    union {
#define X(name, params) struct params name;
        DEV_OP_LIST(X)
#undef X
    } u;
};
struct check_step {
    struct dev_step s; /* its arrays are in mem */
    uint8_t *mem;
    size_t n_mem;
    dev_kv *kv;  /* of the CPU device */
    bool is_new; /* it has not begun on the CPU device */
};

struct check {
    struct dev head;
    dev *in;            /* the CPU */
    struct arena arena; /* handles */
    struct check_buf *buf;
    struct check_step step;
    struct check_call *call;
    int n_call, n_call_max;
    uint64_t n_count, fail_at, lost_at; /* calls so far; 0 = never */
    uint64_t mem;                       /* bytes; 0 = the machine's */
    char lacks[24];                     /* operator; "" = none */
    bool lost;
    sl_err why; /* of the step under way; code OK: nothing failed */
};

static inline struct check *dev_check_of(const dev *d)
{
    return (struct check *)d;
}
/* Count a call: the one that is to fail says so. */
sl_status dev_check_count(struct check *c, const char *what, sl_err *err) BASE_MUST_USE;
/* The same address for the CPU device; n bytes from p on are in one buffer. */
void *dev_check_mem(const struct check *c, const void *p, size_t n);

/* ---- the queue (queue.c) ---- */
void dev_check_step_begin(dev *d, dev_kv *kv, const struct dev_step *s);
/* Run what waits. */
void dev_check_drain(struct check *c);
const char *dev_check_lacks(const dev *d, const struct dev_op *op);
/* Room for the steps and operators that p allows; more comes as it is needed. */
sl_status dev_check_queue_reserve(struct check *c, const struct dev_shapes *p,
                                  sl_err *err) BASE_MUST_USE;
void dev_check_queue_free(struct check *c);
#define X(name, params)                                                                            \
    void dev_check_##name(dev *d, const struct dev_step *b, const struct params *p);
DEV_OP_LIST(X)
#undef X

#endif
