/* SPDX-License-Identifier: Apache-2.0 */
/* sluice engine: an engine without HTTP, for the fronts that attach to its socket. This thread is
 * the engine's; room gate has one more. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "compute.h"
#include "serving.h"

#ifdef SL_SERVE
#include "gate/gate.h"
#include "net/local.h"

#define PROBE_MS 60 /* of reading memory, for the fronts' metrics */
#endif

struct engine_opts {
    struct opt_common common;
    struct batch_opts batch;
    struct service_opts service;
    struct prefill_opts prefill;
    const char *listen;
};

// clang-format off
static const struct opt opts[] = {
    {"listen",    0, OPT_STR,  offsetof(struct engine_opts, listen),
     "unix:PATH", NULL, 0, 0, "socket for the fronts of this user"},
    OPT_ROWS_PREFILL(struct engine_opts),
    OPT_ROWS_BATCH(struct engine_opts),
    OPT_ROWS_SERVICE(struct engine_opts),
    OPT_ROWS_TEMPLATE(struct engine_opts),
    OPT_ROWS_RECORD(struct engine_opts),
    OPT_ROWS_EXPERTS(struct engine_opts),
    OPT_ROWS_MOVE(struct engine_opts),
    OPT_ROWS_DRAFT(struct engine_opts),
    OPT_ROWS_LAYOUT(struct engine_opts),
    OPT_ROWS_MOCK(struct engine_opts),
    OPT_ROWS_COMPUTE(struct engine_opts),
    {0},
};
// clang-format on

#ifdef SL_SERVE

/* What the signal handler reaches. */
static struct {
    gate_host *host;
    sl_engine *engine;
    _Atomic int n_term; /* signals to end; two cut short what runs, as one Ctrl-C does */
    _Atomic bool ctrl_c;
    _Atomic int n_hup; /* signals to write expert counts */
} live;

static void on_signal(int sig)
{
    if (sig == SIGHUP) {
        atomic_fetch_add(&live.n_hup, 1);
        sl_wake(live.engine);
        return;
    }
    if (sig == SIGINT) atomic_store(&live.ctrl_c, true);
    atomic_fetch_add(&live.n_term, sig == SIGINT ? 2 : 1);
    gate_host_drain(live.host);
    sl_wake(live.engine);
}

static void take_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

/* Steps until a signal and the end of what ran then. */
static sl_status engine_loop(struct compute *c, const struct engine_opts *o, sl_err *err)
{
    int64_t deadline = 0;
    for (;;) {
        int n_term = atomic_load(&live.n_term);
        if (atomic_exchange(&live.n_hup, 0)) serving_experts(c, &o->common);
        if (n_term) {
            int64_t now = clock_now_ns();
            if (!deadline) deadline = now + (int64_t)o->service.drain_s * 1000000000;
            if (!sl_pending(live.engine) || now > deadline || n_term > 1) return SL_OK;
        }
        sl_wait(live.engine, 500);
        sl_status st = sl_step(live.engine, err);
        gate_host_flush(live.host);
        if (st) return st;
    }
}

static sl_status host(struct compute *c, const char *path, const struct engine_opts *o,
                      sl_err *err)
{
    struct gate_host_opts ho = {.model = c->m, .engine = c->e, .path = path};
    bool active = false;
    sl_probe(c->e, PROBE_MS, &ho.probe);
    SL_TRY(sl_warm(c->e, err));
    SL_TRY(gate_host_open(&ho, &live.host, err));
    live.engine = c->e;
    if (o->service.sandbox == 0) os_sandbox_calls(o->prefill.at.n > 0, &active);
    take_signals();
    if (cmd_stop) { /* before they were taken */
        gate_host_stop(live.host);
        return SL_FAIL(err, CANCELLED, "interrupted");
    }
    fprintf(stderr, "sluice: listening on unix:%s\n", path);
    fflush(stderr);
    sl_status st = engine_loop(c, o, err);
    gate_host_stop(live.host);
    return !st && atomic_load(&live.ctrl_c) ? SL_FAIL(err, CANCELLED, "interrupted") : st;
}

static int run(struct cmd_ctx *x)
{
    const struct engine_opts *o = x->opts;
    struct compute c = {0};
    sl_err err = {0};
    const char *path = NULL;
    gate_prefill *prefill = NULL;
    if (!o->listen) return cmd_usage("missing option: --listen unix:PATH");
    if (net_local_path(o->listen, &path, &err)) return cmd_usage("--listen: %s", err.text);
    if (o->common.seed) return cmd_usage("--seed: seeds come with requests, see serve --seed");
    int can = cmd_can_write("expert-stats", o->common.expert_stats);
    if (can != CMD_OK) return can;
    mem_steady();
    cmd_signals_server();
    const struct os_path at = {serving_folder(&x->arena, path), OS_WRITE_SOCKETS};
    sl_engine_opts eo = serving_engine_opts(&o->batch);
    sl_status st = SL_OK;
    if (o->service.sandbox == 0) {
        st = serving_sandbox(&o->common, &at, 1, &x->arena, &err);
        os_sandbox_drop(false);
    }
    if (!st) st = compute_open(&c, &o->common, &eo, &err);
    if (!st) serving_ranks(&c, &o->common);
    if (!st) st = serving_prefill(&c, &o->prefill, &prefill, &err);
    if (!st) st = host(&c, path, o, &err);
    if (!st) st = record_check(c.record, &err);
    if (!st) st = compute_experts(&c, &o->common, &err);
    compute_close(&c);
    gate_prefill_close(prefill);
    gate_host_close(live.host); /* after the engine: its last events still go there */
    return st ? cmd_fail(&err) : CMD_OK;
}

#else

static int run(struct cmd_ctx *x)
{
    sl_err err = {0};
    (void)x;
    (void)SL_FAIL(&err, UNSUPPORTED,
                  "engine: this build has no server: install libmicrohttpd-dev and "
                  "libgnutls28-dev and build again");
    return cmd_fail(&err);
}

#endif

const struct cmd cmd_engine = {
    .name = "engine",
    .summary = "an engine for servers in other processes",
    .usage = "--listen unix:PATH [-m MODEL] [options]",
    .about = "Computes for the servers of this user (sluice serve --attach unix:PATH) that attach\n"
             "to the socket. It has no port. SIGTERM ends it when what runs is over; SIGHUP\n"
             "writes the counts of --expert-stats.",
    .example = "sluice engine -m model.gguf --listen unix:/run/sluice/g0.sock",
    .opts = opts,
    .opts_bytes = sizeof(struct engine_opts),
    .run = run,
};
