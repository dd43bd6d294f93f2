/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs next. A pure step function over requests and events: no clock, no thread, no tensor, no
 * token id; so that it can be simulated. Time is an argument.
 *
 * Each step is a ragged batch: one token of every sequence that decodes, then pieces of prompts.
 * When nobody decodes the prompts get the whole chunk; beside sequences that decode they get what
 * keeps the step within a small multiple of one that only decodes, by measured times
 * (sched/cost.h). When blocks run out the last in rank is preempted: it loses its blocks, waits
 * again, and later computes prompt and answer so far once more (bitwise the same values, by dev's
 * promise). The first in rank is never preempted, so it always finishes; then the next is the
 * first. See sched/README.md. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/kv.h"
#include "sched/cost.h"

#define SCHED_AGE_NS 5000000000      /* so much waiting is worth one level of priority */
#define SCHED_DRAFT_MAX 7            /* drafts of one row */
#define SCHED_SNAP_TOK 4096          /* tokens of a long path from snapshot to snapshot */
#define SCHED_OWNER_MAX KV_OWNER_MAX /* owners that are told apart at one time */

/* What the caller found for a request that is about to be admitted. */
struct sched_match {
    int after, after_tok; /* after >= 0: a running request that will have computed the first
                             after_tok tokens of this one: wait for it */
};

struct sched_opts {
    int n_req_max;  /* requests that exist: running and waiting; >= n_run_max */
    int n_run_max;  /* sequences that hold blocks */
    int n_chunk;    /* prompt tokens of one step */
    int n_ctx;      /* tokens of one sequence; at most the pool's */
    int n_row_max;  /* rows of logits in one step; > n_run_max */
    int n_sched;    /* schedulers alike whose steps are one, this one too; 0 = 1 */
    int n_lane;     /* lanes, whose steps are under way at the same time; 0 = 1 (lane.c) */
    int n_snap_tok; /* a snapshot of the state after every so many tokens; 0 = SCHED_SNAP_TOK */
    /* Fill the empty sequence with the blocks that a prefix tree has for request slot, fewer tokens
     * than are known (the last one's logits are wanted). NULL = no tree. */
    void (*match)(void *user, int slot, struct kv_seq *seq, struct sched_match *m);
    /* NULL, or asked of a request that was just admitted: how many of its first positions somebody
     * else will compute, fewer than are known; 0 = none. It is held with blocks for all of them
     * until sched_release; with windows with places for what the next position sees. Not with
     * states. */
    int (*away)(void *user, int slot);
    void *user;
};

/* Tokens of a step, at most. */
static inline int sched_tok_max(const struct sched_opts *o)
{
    return o->n_chunk + o->n_run_max;
}

enum sched_state { SCHED_FREE, SCHED_WAITING, SCHED_RUNNING };

struct sched_new {
    int n_prompt;                /* >= 1, <= n_ctx */
    int n_given;                 /* tokens of its answer that are known; with n_prompt <= n_ctx */
    int priority;                /* higher first */
    uint64_t owner;              /* fairness between these */
    int64_t now_ns, deadline_ns; /* 0 = no deadline */
    int fork_of;                 /* -1, or the slot of the sample whose prompt this one shares */
    bool all_rows;               /* logits of every prompt token are wanted */
};

/* A request. A slot number names it from sched_submit to sched_finish. */
struct sched_req {
    enum sched_state state;
    bool all_rows, fork; /* fork: after is the sample whose prompt it shares */
    bool held;           /* n_done positions have blocks, but from n_reused on nothing in them yet:
                            it gets no rows */
    uint64_t order;      /* arrival; lower is older */
    int64_t rank_ns;     /* arrival less the head start of its priority: lower is first */
    int64_t deadline_ns;
    int priority, owner; /* owner: index */
    int n_prompt;        /* tokens of the prompt */
    int n_known;         /* tokens known: prompt + answer so far */
    int n_done;          /* positions computed and stored, those of drafts too */
    int n_offer;         /* drafts that the next step may take */
    int n_draft;         /* drafts after the known tokens in the step under way */
    int seat;            /* index of its sequence; -1 while waiting */
    int item;            /* its row of the step, -1 = none yet */
    int lane;            /* of a running one */
    int n_flight;        /* with lanes, of n_done the positions of a step that is under way */
    uint64_t start;      /* number of its last admission, over all requests */
    int n_preempt;       /* times it lost its blocks */
    int n_reused;        /* positions taken over at the last admission */
    int branch;          /* here it leaves another path: a snapshot pays; 0 = nowhere */
    int after,
        after_tok; /* waits until slot after has computed after_tok tokens; -1 = for nobody */
    uint64_t after_order; /* of that request: slots are used again */
};

/* A seat: a sequence that holds blocks, and the place of its recurrent state. */
struct sched_seat {
    int req;         /* slot; -1 = none */
    int32_t restore; /* snapshot to copy to its state before the next step; -1 = none */
    struct kv_seq seq;
};

/* See owner.c. */
struct sched_owner {
    uint64_t id;
    uint64_t served; /* tokens computed, never less than that of the least served that waits */
    int n_live;      /* requests that exist */
    int n_run;       /* of them with a sequence */
    int64_t seen_ns; /* when a request of it last came */
    double used_ns;  /* time of the steps lately that was for it */
    double piece; /* tokens that its prompts have to compute: down at once, up slowly; 0 = none */
};

/* One row of a step. */
struct sched_item {
    int req, seat;
    uint64_t start;  /* of the request */
    int pos0, n_tok; /* positions [pos0, pos0 + n_tok) are computed */
    int n_draft;     /* the last so many of them are drafts; their logits are wanted too */
    bool sample;     /* they reach the last known token: its logits are wanted */
    bool all_rows;   /* logits of all of them are wanted */
    bool answer;     /* it continues an answer: outside of the budget */
    int32_t copy_src, copy_dst; /* -1, or a block to copy before the step */
    int32_t win_src, win_dst;   /* and, with windows, its place */
};

/* Copy a recurrent state. Places are numbered: that of seat i is i, in [0, n_run_max);
 * n_run_max is free for the caller's own use; snapshot k of the pool is SCHED_SNAP(s, k). */
struct sched_copy {
    int32_t src, dst;
};
#define SCHED_SNAP(s, k) ((s)->opts.n_run_max + 1 + (k))

struct sched_plan {
    struct sched_item *item; /* [n_run_max] rows that decode first, but for the first in rank */
    int n_item, n_tok;
    int n_decode;  /* tokens of rows that continue an answer, drafts among them */
    int n_draft;   /* drafts */
    int n_preempt; /* requests that lost their blocks in this step */
    int n_spent;   /* of the budget for prompts */
    /* models with a recurrent state: copies to make in this order, before the rows. A row from
     * position 0 begins with an empty state, whatever is in its place. */
    struct sched_copy *copy; /* [3 n_run_max] */
    int n_copy;
};

/* What others have beside a scheduler. */
struct sched_beside {
    int n_decode;       /* sequences that decode */
    int n_wait, n_with; /* prompts; schedulers that have any */
};

struct sched {
    /* fixed after init */
    struct sched_opts opts;
    /* engine thread */
    struct kv_pool *pool;    /* borrowed */
    struct sched_req *req;   /* [n_req_max] */
    struct sched_seat *seat; /* [n_run_max] */
    int *wait;               /* [n_req_max] slots that wait, by rank */
    int *active;             /* [n_run_max] slots that run, by rank */
    int n_wait, n_active;
    int lane;          /* whose step is planned */
    uint64_t n_start;  /* admissions so far */
    struct sched_owner *owner; /* [SCHED_OWNER_MAX] */
    int n_owner, n_owner_live; /* places that were ever used; owners that have requests */
    int64_t now_ns;            /* of the last arrival */
    double used_ns;            /* sum of the owners' */
    /* of this step */
    int due;              /* a newcomer to whom others may yield; -1 = none */
    bool light;           /* a prompt of an owner below its share runs */
    int n_heavy;          /* prompt tokens of the others so far */
    int limit[2], for_at; /* of an owner's prompt tokens for the sake of owner for_at; of its own */
    uint64_t n_order, n_step, n_preempt;
    uint64_t n_query_tok, n_hit_tok; /* tokens of admissions; of them found in the tree */
    struct sched_beside beside;      /* for the next step */
    bool measured;                   /* the last step only decoded, to measure that */
    int row_left;                    /* of this step, for requests that want all rows */
    struct sched_copy *later;        /* [2 n_run_max] decided since the last step, in order */
    int n_later;
    struct sched_plan plan;
    struct sched_cost cost;
};

/* The pool must be able to hold one sequence of n_ctx tokens, and with windows have as many places
 * as kv_win_init says (asserted). Errors: NOMEM. Memory: sched_fini. */
sl_status sched_init(struct sched *s, const struct sched_opts *opts, struct kv_pool *pool,
                     sl_err *err) BASE_MUST_USE;
void sched_fini(struct sched *s); /* gives all blocks back */

/* A new request in a free slot (asserted) that the caller chose. */
void sched_submit(struct sched *s, int slot, const struct sched_new *q);

/* Of several schedulers whose steps are one: what the others have, for the next sched_step. */
void sched_beside(struct sched *s, const struct sched_beside *b);
/* Decide the next step and take the blocks for it. The plan is borrowed until the next call; n_item
 * 0: nothing to do (no request). After the step was computed, the caller names each sampled row's
 * outcome with sched_accept or sched_finish. */
const struct sched_plan *sched_step(struct sched *s);
/* With lanes: the next step of one of them, of which no step is under way; the other lanes' may be.
 * Steps are computed in the order in which they were planned. A row of one that is under way is
 * dropped when its request was preempted or finished meanwhile: sched_is_live. */
const struct sched_plan *sched_step_lane(struct sched *s, int lane);
/* The step of that lane was computed; before its rows' outcomes are named. */
void sched_landed(struct sched *s, int lane);
bool sched_is_live(const struct sched *s, const struct sched_item *it);
/* How long the step took that was planned last. */
void sched_observe(struct sched *s, int64_t ns);
/* What was planned last: tokens of sequences that decode, and of prompts, with the sum of the
 * positions at which these begin. */
struct sched_planned {
    int n_decode, n_prompt;
    int64_t depth;
};
struct sched_planned sched_planned(const struct sched *s);
/* sched_observe, where what s has planned is a part of all that the step had. */
void sched_observe_all(struct sched *s, const struct sched_planned *all, int64_t ns);

/* Between steps: n guesses follow the known tokens of a running request. The next step takes as
 * many of them as there are blocks, rows and tokens left for when everything else is planned: none
 * where it preempted, where more than one token of the request is missing, and before the first
 * token of its answer; of models with a recurrent state not beyond a place for a snapshot. They are
 * forgotten after that step. */
void sched_draft(struct sched *s, int slot, int n);
/* A sampled row was computed: n_right of its drafts were right, and one more token is known; what
 * was stored of the other drafts is trimmed. The caller keeps n_known <= n_ctx. */
void sched_accept(struct sched *s, int slot, int n_right);
/* Does slot wait for the prompt of slot from, as another sample of it? */
bool sched_may_fork(const struct sched *s, int from, int slot);
/* The prompt of slot from was computed in this step: let slot, which waits for it, share its blocks
 * and run; its first token comes from the same logits. False: no sequence is free, it waits on. */
bool sched_fork(struct sched *s, int from, int slot);
/* The row of a running request was computed and is good: put its full blocks into the tree
 * (kv_cache_put) and, where it ends at a place for one, keep a snapshot of its state. */
void sched_put(struct sched *s, int slot, const struct kv_path *path);
/* Forget what a running request computed from position n on (drafts that were wrong); between
 * steps. A model with a recurrent state goes back to the deepest snapshot at or before n, one with
 * windows to where what the next position sees is there. Returns the position from which it is
 * computed again; -1, and nothing changed: there is no snapshot. */
int sched_rewind(struct sched *s, int slot, int n);
/* A request that is held: its first n positions are there, n_reused at least and no more than it
 * has blocks for. Returns the position from which it goes on: n, or with windows one before where
 * what it sees is there. Between steps. */
int sched_release(struct sched *s, int slot, int n);
/* The request is over (finished, failed, cancelled; running or waiting): its slot and its blocks
 * are free at once (blocks in the tree are kept). */
void sched_finish(struct sched *s, int slot);
/* A request whose deadline is not after now, -1 = none. */
int sched_expired(const struct sched *s, int64_t now_ns);

/* ---- what other rooms may see: they read no fields of struct sched ---- */
struct sched_totals {
    int n_run, n_wait;               /* requests that run and wait */
    int n_owner, n_owner_live;       /* as in struct sched */
    uint64_t n_preempt;              /* since init */
    uint64_t n_query_tok, n_hit_tok; /* as in struct sched */
};
struct sched_totals sched_totals_get(const struct sched *s);
/* What it has to do: sequences that decode, prompts that are there, and the tokens that prompts and
 * answers to be computed again lack. lane: of those that run in it, and of all that wait; -1: of
 * all. */
struct sched_load {
    int n_decode, n_prompt;
    int64_t n_left;
};
struct sched_load sched_load_get(const struct sched *s, int lane);
/* The request of a slot that was submitted and is not over. Borrowed until the next call that
 * changes s. */
const struct sched_req *sched_request(const struct sched *s, int slot);
/* Only one token of a running request is missing and it is not the first: the next row continues an
 * answer (or ends a prompt). */
bool sched_decodes(const struct sched_req *r);
/* The slot of the i-th in rank of the running requests; -1 = there are no more. */
int sched_running(const struct sched *s, int i);
/* The sequence at a place, in [0, n_run_max): sched_item.seat. */
const struct kv_seq *sched_seq(const struct sched *s, int seat);
/* A step that nobody planned (a warm-up) took so long: n_decode tokens of sequences that decode,
 * and a prompt of n_prompt from position 0. */
void sched_learn(struct sched *s, int n_decode, int n_prompt, int64_t ns);
/* How long a step that only decodes n_tok tokens is expected to take, to be compared with others;
 * asked in rising order (sched_cost_compare). 0 = not known. */
double sched_decode_ns(struct sched *s, int n_tok);

/* The invariants of sched/README.md; 0, or the number of the one that is broken. For tests and
 * debug builds. */
int sched_check(const struct sched *s);

#endif
