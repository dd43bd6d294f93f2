/* SPDX-License-Identifier: Apache-2.0 */
/* An engine in one process, its clients' HTTP in others: a host has an engine and gives it to all
 * that connect to its socket, a front is an engine (sl_engine) whose requests hosts compute. Both
 * are processes of one user on one machine.
 *
 * A front's requests live as long as its connection: when it ends they are cancelled. When a host
 * ends, what fronts had there ends with an error; or, where they replay, waits until an engine
 * comes back that gives the same bits, and goes on with the token after the last that was told.
 */
#ifndef GATE_GATE_H
#define GATE_GATE_H

#include <stdbool.h>

#include "sluice.h"

/* ---- the engine's process ---- */

typedef struct gate_host gate_host;
struct gate_host_opts {
    sl_model *model;
    sl_engine *engine; /* outlives gate_host_stop, not gate_host_close */
    const char *path;  /* of the socket */
    sl_probe_result probe;
};
/* Listens; a thread of its own takes what comes. Errors: as net_local_listen; NOMEM. */
sl_status gate_host_open(const struct gate_host_opts *o, gate_host **out,
                         sl_err *err) SL_MUST_USE;
/* The engine thread: after every step and wait. Sends what the step told, and is a sign of life. */
void gate_host_flush(gate_host *h);
/* From now on fronts send nothing new; what runs goes on. Threads: any. */
void gate_host_drain(gate_host *h);
/* Every connection ends, and no event is sent any more; before the engine is closed. NULL is
 * legal, twice too. */
void gate_host_stop(gate_host *h);
void gate_host_close(gate_host *h); /* after the engine was closed */

/* ---- a front's process ---- */

#define GATE_GROUP_MAX 16
struct gate_front_opts {
    const sl_model *model; /* its vocabulary and template */
    const char *path[GATE_GROUP_MAX];
    int n_path;
    bool replay; /* what a host has that ends goes on in one that gives the same bits */
    const sl_engine *like; /* NULL, or for whom prompts are computed: of hosts whose cache is of
                              no use for it nothing is asked */
    char *refusal; /* with like: NULL, or room for 240 bytes: while they are "", why a host is of no
                      use goes there and not into the log */
};
/* An engine that is ready (sl_ready) when a host is there whose model has the same vocabulary.
 * sl_submit waits for that host's answer, which sl_step takes in: it is not for the thread that
 * steps. Errors: NOMEM, IO. */
sl_status gate_front_open(const struct gate_front_opts *o, sl_engine **out,
                          sl_err *err) SL_MUST_USE;

/* Engines that compute prompts for one of this process (sl_prefill_by): a front with a thread that
 * steps it. Waits a moment for those that are there. */
typedef struct gate_prefill gate_prefill;
struct gate_prefill_opts {
    const sl_model *model;
    sl_engine *engine; /* closed before gate_prefill_close */
    const char *path[GATE_GROUP_MAX];
    int n_path;
    int from_tok; /* of sl_prefill_by */
};
/* Errors: of gate_front_open and sl_prefill_by. */
sl_status gate_prefill_open(const struct gate_prefill_opts *o, gate_prefill **out,
                            sl_err *err) SL_MUST_USE;
void gate_prefill_close(gate_prefill *p); /* after the engine; NULL is legal */

#endif
