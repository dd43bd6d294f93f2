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

/* A host, as a front has it. */
struct link {
    /* fixed after open */
    const char *path;
    /* under lock */
    struct gate_pipe pipe; /* its in: engine thread */
    bool greeted;          /* it is of use */
    bool gone;             /* the socket refused what was sent */
    struct gate_state state;
    int n_call; /* that are there */
    uint64_t *routed; /* [n_layer, n_expert] */
    /* engine thread */
    int64_t heard_ns, retry_ns;
    char why[240]; /* what was said last of it that is not of use; "" = nothing */
};

struct sample {
    bool over;
    int n_prompt, n_token; /* as in the last event */
};

/* A request. Its last reference frees it: that of the table, until its last event; that of the
 * thread in sl_submit. */
struct call {
    /* fixed after submit */
    uint64_t id;
    int n; /* samples */
    void (*on_event)(void *user, const sl_event *ev);
    void *user;
    int64_t t_submit_ns;
    /* any thread */
    atomic_int n_ref;
    struct os_word answer; /* 1: it is there */
    /* engine thread, until answer is set */
    sl_status st;
    sl_err err;
    bool answered;
    /* under lock */
    struct link *link;
    /* engine thread */
    int n_left;
    struct sample sample[]; /* [n] */
};

struct front {
    /* fixed after open */
    sl_model_info mi;
    int n_link, epoll_fd;
    /* any thread */
    struct os_event wake;
    struct ring free_slot;
    _Atomic uint64_t serial;
    atomic_int n_pending;
    /* engine thread */
    struct arena scratch; /* of one event */
    struct arena arena;   /* of paths and greetings */
    /* under lock */
    net_lock *lock;
    struct gate_hello *hello; /* of the host that greeted last; NULL = none yet */
    struct call *call[GATE_CALL_MAX];
    struct link link[GATE_GROUP_MAX];
};

/* front.c */
void gate_call_unref(struct call *c);
/* Under lock, or the engine thread for calls that it will not hand out: NULL = there is none. */
struct call *gate_call_find(struct front *f, uint64_t id);
/* The call is over: out of the table. Engine thread. */
void gate_call_end(struct front *f, struct call *c);
/* Its samples that are not over end so. Engine thread. */
void gate_call_fail(struct front *f, struct call *c, const sl_err *why);

/* front_link.c: connect, read and send all that there is to. Engine thread. */
void gate_links_step(struct front *f);
/* How long a wait may take: no longer than to the next try to connect. */
int gate_links_wait_ms(struct front *f, int timeout_ms);

#endif
