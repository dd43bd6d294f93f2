/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenAI routes: JSON to include/sluice.h and back. Knows nothing below that header: it is
 * given a model and an engine, and hooks for a server of room net.
 *
 * Threads: the hooks run where net says. Nothing here steps the engine: that is the caller's engine
 * thread; events arrive on it and go through a ring per request to the net threads, so that no slow
 * reader ever delays a step.
 */
#ifndef API_API_H
#define API_API_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"
#include "net/quota.h"
#include "sluice.h"

typedef struct api api;

struct api_opts {
    sl_model *model;
    sl_engine *engine;
    const char *name;         /* what clients call the model; NULL = the model's own name */
    const char *const *alias; /* further names of the same */
    int n_alias;
    const char *model_arg;   /* another name for it: what -m was */
    const char *key_file;    /* NULL = no keys */
    net_quota *quota;        /* of several servers; NULL = of this one; outlives the api */
    const char *db_file;     /* responses and usage; NULL = in memory */
    const char *const *host; /* further names for the Host header ("*": any) */
    int n_host;
    const char *const *origin; /* origins that browsers may call from ("*": any) */
    int n_origin;
    int max_batch, max_queue;
    sl_sampling sampling; /* where a request says nothing; seed 0: each draws its own */
    int max_tokens;       /* likewise, of chat and responses; 0 = until the context is full */
    int64_t timeout_ms;   /* of a request that gives none; 0 = none */
    const char *tool_parser, *reasoning_parser; /* "auto", "none", or a family */
    bool no_prefix_cache;                       /* the engine keeps nothing for later requests */
    bool no_metrics, no_ui, log_json, log_requests;
    bool ignore_unknown; /* fields that no route knows: a header says so, instead of 400 */
    /* Reads a whole file: os_read_file. */
    sl_status (*read_file)(const char *path, uint64_t max, char **out, uint64_t *n, sl_err *err);
    double read_gbps; /* measured bandwidth of this machine for the metrics, 0 = unknown */
};

/* What can be said before a model is loaded: names of parsers, an empty name, an Origin that no
 * browser sends. Errors: REQUEST, with the name of the option; NOMEM. */
sl_status api_opts_check(const struct api_opts *o, sl_err *err) BASE_MUST_USE;

/* Errors: IO, FORMAT, REQUEST (key file: names the line), NOMEM. */
sl_status api_open(const struct api_opts *o, api **out, sl_err *err) BASE_MUST_USE;
void api_close(api *a); /* after the server was closed; NULL is legal */

/* Put the hooks of a into *out (not .signal). */
void api_hooks(api *a, struct net_hooks *out);

/* A server may have its port before there is an api, zeroed: until the door opens /health is 200,
 * and everything else 503 with Retry-After. It outlives the server. */
struct api_door {
    struct net_hooks to; /* fixed before open is set */
    atomic_bool open;
};
/* The hooks of the server, before it is opened. */
void api_door_hooks(struct api_door *d, struct net_hooks *out);
/* From now on requests go to these hooks (copied). Once. */
void api_door_open(struct api_door *d, const struct net_hooks *to);

/* From now on /ready is 503 and new work is refused; what runs goes on. Threads: any. */
void api_drain(api *a);
/* Generations that are not over. Threads: any. */
int api_active(const api *a);
/* The engine thread lives: call after every step and wait. A silence of 5 s while work is there
 * makes /health a 503; ten times the longest step of which it was computing, where that is longer:
 * a thread that was stopped once is no measure. */
void api_beat(api *a);
/* Between steps, as often as wanted: copies what only the engine's thread may read. */
void api_sample(api *a);
/* The engine failed for good: everything is refused with why. */
void api_fail_all(api *a, const char *why);
/* Read the key file again. Errors: IO, FORMAT (names the line), LIMIT, NOMEM: the old keys stay.
 * Threads: any. */
sl_status api_reload(api *a, sl_err *err) BASE_MUST_USE;

#endif
