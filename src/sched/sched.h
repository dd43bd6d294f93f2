/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs next. A pure step function over requests and events: no clock, no thread, no tensor, no
 * token id; so that it can be simulated.
 *
 * Each step is a ragged batch: one token of every sequence that decodes, oldest first, then chunks
 * of prompts, oldest first, within the budget. When blocks run out the youngest running request is
 * preempted: it loses its blocks, waits again at its old place, and later computes prompt and
 * answer so far once more (bitwise the same values, by dev's promise). The oldest request is never
 * preempted, so it always finishes; then the next is the oldest. See sched/README.md. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/kv.h"

struct sched_opts {
    int n_req_max; /* requests that exist: running and waiting; > = n_run_max */
    int n_run_max; /* sequences that hold blocks */
    int n_chunk;   /* prompt tokens of one step */
    int n_ctx;     /* tokens of one sequence; at most the pool's */
};

enum sched_state { SCHED_FREE, SCHED_WAITING, SCHED_RUNNING };

/* A request. A slot number names it from sched_submit to sched_finish. */
struct sched_req {
    enum sched_state state;
    uint64_t order; /* arrival; lower is older */
    int n_prompt;   /* tokens of the prompt */
    int n_known;    /* tokens known: prompt + answer so far */
    int n_done;     /* positions computed and stored */
    int run;        /* index of its sequence; -1 while waiting */
    int n_preempt;  /* times it lost its blocks */
    int reuse_run; /* offer: a parked sequence whose first reuse_tok tokens are this request's; -1 =
                      none */
    int reuse_tok;
    int n_reused; /* positions taken over at admission */
};

/* A sequence that holds blocks: of a running request, or parked (its request is over, its tokens
 * may serve another). */
struct sched_run {
    int req; /* slot; -1 = none */
    bool parked;
    uint64_t parked_at; /* step; lowest is evicted first */
    struct kv_seq seq;
};

/* One row of a step. */
struct sched_item {
    int req, run;
    int pos0, n_tok; /* positions [pos0, pos0 + n_tok) are computed */
    bool sample;     /* they reach the last known token: logits of the last one are wanted */
    int32_t copy_src, copy_dst; /* -1, or a block to copy before the step */
};

struct sched_plan {
    struct sched_item *item; /* [n_run_max] in order of age within decode and prompt rows */
    int n_item, n_tok;
    int n_decode;  /* tokens of rows that continue an answer */
    int n_preempt; /* requests that lost their blocks in this step */
};

struct sched {
    /* fixed after init */
    struct sched_opts opts;
    /* engine thread */
    struct kv_pool *pool;  /* borrowed */
    struct sched_req *req; /* [n_req_max] */
    struct sched_run *run; /* [n_run_max] */
    int *wait;             /* [n_req_max] slots that wait, oldest first */
    int *active;           /* [n_run_max] slots that run, oldest first */
    int n_wait, n_active;
    uint64_t n_order, n_step;
    struct sched_plan plan;
};

/* The pool must be able to hold one sequence of n_ctx tokens (asserted). Errors: NOMEM. Memory:
 * sched_fini. */
sl_status sched_init(struct sched *s, const struct sched_opts *opts, struct kv_pool *pool,
                     sl_err *err) BASE_MUST_USE;
void sched_fini(struct sched *s); /* gives all blocks back */

/* A new request of n_prompt >= 1 tokens, n_prompt <= n_ctx (asserted). Errors: BUSY when there is
 * no slot. */
sl_status sched_submit(struct sched *s, int n_prompt, int *slot, sl_err *err) BASE_MUST_USE;
/* Say that the first n_tok tokens of a waiting request equal those stored in a parked sequence.
 * Holds for the next step only: used when the request is admitted in it. */
void sched_offer(struct sched *s, int slot, int run, int n_tok);
/* The oldest waiting request, -1 = none. */
int sched_next_waiting(const struct sched *s);

/* Decide the next step and take the blocks for it. The plan is borrowed until the next call; n_item
 * 0: nothing to do (no request). After the step was computed, the caller names each sampled row's
 * outcome with sched_push or sched_finish. */
const struct sched_plan *sched_step(struct sched *s);

/* One more token of a request is known. The caller keeps n_known <= n_ctx. */
void sched_push(struct sched *s, int slot);
/* The request is over (finished, failed, cancelled; running or waiting): its slot is free at once.
 * park: keep the first n_park tokens' blocks until someone needs them (0 = give back now). */
void sched_finish(struct sched *s, int slot, int n_park);
/* Give back every parked sequence's blocks. */
void sched_unpark_all(struct sched *s);

/* The invariants of sched/README.md; 0, or the number of the one that is broken. For tests and
 * debug builds. */
int sched_check(const struct sched *s);

#endif
