/* SPDX-License-Identifier: Apache-2.0 */
/* The devices `check` and `sim`: they compute as the CPU does, and behave as a device far away may.
 * Room-internal.
 *
 * - Their addresses are their own: the host faults at them. An operator that is given another
 *   address where memory of the device is due, or a matrix of another device, is an assertion.
 * - Operators are queued and run late, in order. A step's arrays are copied when it begins: later
 *   changes have no effect.
 *
 * `check` is for tests: what works with it makes no use of the CPU being near. It runs calls
 * when it must: at a copy, at a wait, when the next step begins. Then all buffers into which the
 * host has never copied become NaN; so do blocks of the cache that are given back. `sim` stands for
 * an accelerator: it has a clock and no more memory than it says (clock.c). Its time is computed,
 * or kept by a thread that runs what is queued. Options: options.c. */
#ifndef DEV_CHECK_CHECK_H
#define DEV_CHECK_CHECK_H

#include "dev/dev_internal.h"
#include "os/word.h"
#include "par/par.h"

/* Memory: n bytes at mem, which only the CPU device sees; their addresses here begin at base. */
struct check_buf {
    struct check_buf *next;
    uint8_t *base, *mem;
    size_t n;
    bool is_kept; /* the host has copied into it, or other ranks may still read it */
};
/* What of the CPU device a handle stands for. */
struct check_mat {
    struct dev_mat head;
    dev_mat *in;
    /* of a room, where there is a clock: when what comes is there; when what reads it is done */
    int64_t ready_ns, free_ns;
};
struct check_act {
    struct dev_act head;
    dev_act *in;
};
struct check_kv {
    struct dev_kv head;
    dev_kv *in;
};

/* An operator that waits; op DEV_N_OP: the step begins. */
struct check_call {
    enum dev_op_kind op;
    int64_t at_ns, end_ns; /* when it was queued, and has run, where there is a clock */
    int64_t host_ns;       /* what comes from the host: when that has given all of it */
    struct check_mat *room[2]; /* that it fills, or reads */
    struct dev_spread spread;  /* of moe */
    struct dev_etp etp;
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
    dev_kv *kv;      /* of the CPU device */
    bool is_refused; /* there was no room for it */
};

/* What is to fail: 0 = nothing. Calls are allocations (all that takes memory at open) and submits
 * (copies, steps, operators, waits), each counted from 1. */
struct check_fault {
    uint64_t call, lost; /* of all calls: fails; from it on the device is lost */
    uint64_t alloc, lost_submit, slow_submit; /* of each kind; slow: takes CHECK_SLOW_NS longer */
    uint64_t hang_submit;                     /* it never ends */
};
#define CHECK_SLOW_NS 1000000000

/* The time of a device, and of the host beside it. */
struct check_clock {
    bool is_on, is_real;      /* sim's; real: launches end no earlier than they are due */
    double bw, ops, bus;      /* bytes a second of memory and of the way to the host;
                                 operations a second */
    double host_bw, host_ops; /* of the CPU, virtual; 0 = it takes no time */
    int64_t lat, hand;        /* ns of a launch; from device to host or back */
    int64_t cut;              /* of a wait, before the device is asked whether it still runs */
    int64_t dev_ns, host_ns;  /* virtual: what time it is there */
    int64_t bus_ns;           /* until when the way from the host is taken */
    int64_t slow_ns;          /* of the call under way, beside what it needs */
};

struct check {
    struct dev head;
    dev *in;            /* the CPU */
    struct arena arena; /* handles */
    struct check_buf *buf;
    struct check_step step;
    struct check_call *call; /* a ring of CHECK_CALLS */
    uint64_t n_queued, n_run;
    uint64_t n_call, n_alloc; /* so far */
    struct check_fault fault;
    struct check_clock clock;
    uint64_t mem, used; /* bytes of its own, 0 = the machine's; taken */
    char lacks[24];     /* operator; "" = none */
    bool lost;
    atomic_bool hangs;  /* release by what runs calls: pairs with acquire of what waits */
    bool is_dead;       /* a wait has found out: nothing is waited for any more */
    sl_err why;         /* of the step under way; code OK: nothing failed */
    atomic_bool failed; /* release, when why says what: pairs with acquire of what waits */
    /* A real clock has a thread, which alone runs calls: queued and run rise with the counts above.
     * What else is its own while calls wait: why, lost, the counts of calls, clock.dev_ns. */
    par_side *thread;
    struct os_word queued, run;
    atomic_bool stop; /* relaxed: published by queued */
};
#define CHECK_CALLS 4096

static inline struct check *dev_check_of(const dev *d)
{
    return (struct check *)d;
}
/* CHECK_RUN: a submit that runs from the queue; others the host waits for. */
enum check_kind { CHECK_ALLOC, CHECK_SUBMIT, CHECK_RUN };
/* Count a call: one that is to fail says so. Errors: DEVICE (lost), INTERNAL, NOMEM. */
sl_status dev_check_count(struct check *c, enum check_kind kind, const char *what,
                          sl_err *err) BASE_MUST_USE;
/* It hangs, and is lost with that. Errors: DEVICE. */
sl_status dev_check_dead(struct check *c, sl_err *err);
/* Take n bytes of the memory that the device says it has. Errors: NOMEM. */
sl_status dev_check_take(struct check *c, int64_t n, const char *what, sl_err *err) BASE_MUST_USE;
/* What stands after the ':' of its name. Errors: REQUEST: an option, named, and those there are.
 */
sl_status dev_check_options(struct check *c, const char *s, sl_err *err) BASE_MUST_USE;
/* The same address for the CPU device; n bytes from p on are in one buffer. */
void *dev_check_mem(const struct check *c, const void *p, size_t n);

/* ---- time (clock.c): nothing happens where it is not on ---- */
/* A call has been computed, at that cost: it ends when it is due. */
void dev_check_clock_ran(struct check *c, struct check_call *q, const struct dev_cost *cost);
/* The host, waiting since from_ns, learns that q has run. */
void dev_check_clock_wait(struct check *c, const struct check_call *q, int64_t from_ns);
/* A wait that never ends is cut: that long has passed. */
void dev_check_clock_cut(struct check *c);
/* It copies to or from the device. */
void dev_check_clock_copy(struct check *c, int64_t n_bytes);
/* It gives what a send that is queued brings. */
void dev_check_clock_give(struct check *c, struct check_call *q);
int64_t dev_check_now_ns(const dev *d);
/* It has computed. */
void dev_check_host_ran(dev *d, const struct dev_cost *cost);
/* What its options say of it, and of the CPU beside it. */
void dev_check_figures(const dev *d, struct dev_figures *out);
int64_t dev_check_now(const struct check *c); /* the host's time */

/* ---- the queue (queue.c) ---- */
void dev_check_step_begin(dev *d, dev_kv *kv, const struct dev_step *s);
/* Run what waits, or wait until the thread has. */
void dev_check_drain(struct check *c);
uint64_t dev_check_mark(dev *d);
/* Errors: as dev_check_failed. */
sl_status dev_check_wait_mark(dev *d, uint64_t mark, sl_err *err) BASE_MUST_USE;
/* Errors: what of the step failed so far. */
sl_status dev_check_failed(struct check *c, sl_err *err) BASE_MUST_USE;
const char *dev_check_lacks(const dev *d, const struct dev_op *op);
/* Room for the steps that p allows; more comes as it is needed. Errors: NOMEM. */
sl_status dev_check_queue_reserve(struct check *c, const struct dev_shapes *p,
                                  sl_err *err) BASE_MUST_USE;
/* Errors: NOMEM, IO (no thread). */
sl_status dev_check_queue_open(struct check *c, sl_err *err) BASE_MUST_USE;
void dev_check_queue_free(struct check *c);
#define X(name, params)                                                                            \
    void dev_check_##name(dev *d, const struct dev_step *b, const struct params *p);
DEV_OP_LIST(X)
#undef X

#endif
