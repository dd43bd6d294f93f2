/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a front share: its links to hosts, and the calls that are under way there. */
#ifndef GATE_FRONT_INTERNAL_H
#define GATE_FRONT_INTERNAL_H

#include <stdatomic.h>

#include "base/ring.h"
#include "gate/gate.h"
#include "gate/pipe.h"
#include "net/crypt.h"
#include "os/os.h"
#include "os/word.h"

#define GATE_CALL_BITS 14 /* calls at a time */
#define GATE_CALL_MAX (1 << GATE_CALL_BITS)
#define GATE_OUT_MAX ((size_t)512 << 20) /* of requests that a host does not take */
#define GATE_REPLAY_MAX 2                /* times that a request goes on elsewhere */

/* A host, as a front has it. */
struct link {
    /* fixed after open */
    const char *path;
    /* under lock */
    struct gate_pipe pipe; /* its in: engine thread */
    bool greeted;          /* it is of use */
    bool gone;             /* the socket refused what was sent */
    const struct gate_print *print; /* of its last greeting; NULL = none yet */
    struct gate_state state;
    int n_call; /* that are there */
    int64_t n_tok; /* of their prompts, but what the host is thought to have */
    int64_t n_sent; /* tokens of all prompts so far */
    uint64_t *routed; /* [n_layer, n_expert] */
    /* engine thread */
    int64_t heard_ns, retry_ns;
    char why[240]; /* what was said last of it that is not of use; "" = nothing */
};

struct sample {
    bool over;
    int n_prompt, n_token; /* as in the last event */
    /* for a replay */
    int32_t *tok; /* [cap] its answer so far */
    int n_tok, cap;
    int n_echo; /* prompt tokens that were told */
    int n_cached;
    int64_t ttft_ns, queue_ns, prefill_ns; /* of its first token; 0 = it has none */
};

/* A request. Its last reference frees it: that of the table, until its last event; that of the
 * thread in sl_submit. */
struct call {
    /* fixed after submit */
    uint64_t id;
    int n; /* samples */
    void (*on_event)(void *user, const sl_event *ev);
    int (*on_kv)(void *user, const sl_kv_page *page); /* NULL, or its pages come too */
    void *user;
    int64_t t_submit_ns, deadline_ns; /* 0 = none */
    struct str body; /* of its SUBMIT, but for the tail; empty where there is no replay */
    /* any thread */
    atomic_int n_ref;
    struct os_word answer; /* 1: it is there */
    /* engine thread, until answer is set */
    sl_status st;
    sl_err err;
    bool answered;
    /* under lock */
    struct link *link; /* where it is; NULL = it waits for an engine */
    int n_tok;         /* of its prompt, but what is thought to be there */
    bool cancelled, resumed; /* resumed: each sample has a number of its own there */
    /* engine thread */
    struct link *home;              /* that it lost */
    const struct gate_print *print; /* of the engine that began it */
    int64_t t_resume_ns;
    int n_replay, n_left;
    struct sample sample[]; /* [n] */
};

/* Hashes of a prompt's beginnings (front_prefix.c). */
#define GATE_PREFIX_MAX 1024
struct gate_prefix {
    int n_ids, n;
    uint64_t hash[GATE_PREFIX_MAX]; /* [n] of one block, of two, ... */
};

struct front {
    /* fixed after open */
    sl_model_info mi;
    int n_link, epoll_fd;
    bool replay;
    const sl_engine *like; /* NULL, or whose prompts hosts compute */
    char *refusal;         /* as in gate_front_opts */
    /* any thread */
    struct os_event wake;
    struct ring free_slot;
    _Atomic uint64_t serial;
    _Atomic(struct call *) call[GATE_CALL_MAX]; /* set under lock; NULL = free */
    atomic_int n_pending;
    _Atomic uint64_t n_replay, n_restart; /* as in sl_stats */
    /* engine thread */
    int n_orphan; /* calls that wait for an engine */
    struct arena scratch; /* of one event */
    struct arena arena;   /* of paths and greetings */
    /* under lock */
    net_lock *lock;
    struct gate_hello *hello; /* of the host that greeted last; NULL = none yet */
    struct place *place;      /* which engine has computed what; NULL: it is not asked */
    struct link link[GATE_GROUP_MAX];
};

/* front.c */
void gate_call_unref(struct call *c);
/* Under lock, or the engine thread, which ends them. NULL = there is none. */
struct call *gate_call_find(struct front *f, uint64_t id);
/* The call is over: out of the table. Engine thread. */
void gate_call_end(struct front *f, struct call *c);
/* One of its samples, or all that are not over, end so; CANCELLED is a finish of its own. c may be
 * gone afterwards. Engine thread. */
void gate_sample_fail(struct front *f, struct call *c, int i, const sl_err *why);
void gate_call_fail(struct front *f, struct call *c, const sl_err *why);
/* CANCEL to where it is. Under lock. */
void gate_call_cancel(struct front *f, struct call *c);
/* The host with the fewest requests, or that has the fewest tokens of prompts to compute, with
 * those of one that begins so (NULL: of any); print: NULL, or of those that give the same bits.
 * NULL = none takes any. Under lock. */
struct link *gate_link_choose(struct front *f, const struct gate_print *print,
                              const struct gate_prefix *prefix);

/* front_prefix.c. Errors: NOMEM. */
sl_status gate_prefix_open(struct front *f, sl_err *err) BASE_MUST_USE;
void gate_prefix_close(struct front *f);
void gate_prefix_of(const struct front *f, const sl_request *q, struct gate_prefix *out);
/* Tokens of it that the host is thought to have; and it was sent there. Under lock. */
int gate_prefix_hit(struct front *f, const struct link *l, const struct gate_prefix *p);
void gate_prefix_sent(struct front *f, struct link *l, const struct gate_prefix *p);

/* front_replay.c: engine thread. */
/* What is told of a sample, for a replay, and as its client has to see it after one. False: it was
 * told before. *err: NOMEM. */
sl_status gate_replay_note(struct call *c, sl_event *ev, bool *again, sl_err *err) BASE_MUST_USE;
/* The host of c has ended: true, and c waits; false: it may not. */
bool gate_replay_wait(struct front *f, struct call *c);
/* Calls that wait go on, or end. */
void gate_replay_step(struct front *f);

/* front_link.c: connect, read and send all that there is to. Engine thread. */
void gate_links_step(struct front *f);
/* How long a wait may take: no longer than to the next try to connect. */
int gate_links_wait_ms(struct front *f, int timeout_ms);

#endif
