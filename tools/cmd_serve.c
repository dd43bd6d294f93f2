/* SPDX-License-Identifier: Apache-2.0 */
/* sluice serve: an OpenAI server. This thread is the engine's; net threads do the rest. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "compute.h"
#include "serving.h"

#ifdef SL_SERVE
#include "api/api.h"
#include "base/log.h"
#include "gate/gate.h"
#include "net/local.h"
#include "os/os.h"
#include "trace.h"

#define PROBE_MS 60        /* of reading memory, for the metrics */
#define LOST_NS 2000000000 /* left to the readers of the last bytes when the engine failed */
#endif

struct serve_opts {
    struct opt_common common;
    const char *host, *key_file, *tls_cert, *tls_key, *db, *trace;
    const char *tool_parser, *reasoning_parser;
    struct opt_strs alias, served, allow_host, cors;
    struct sampling_opts sampling; /* -1: the model's own */
    int recommended;
    struct batch_opts batch;
    struct service_opts service;
    struct prefill_opts prefill;
    struct opt_strs attach;
    int port, interval_ms, metrics, ui, replay, unknown_fields, on_lost;
    int64_t timeout_ms;
    bool log_json;
};

// clang-format off
static const struct opt opts[] = {
    {"host",      0, OPT_STR,  offsetof(struct serve_opts, host),
     "ADDR", "127.0.0.1", 0, 0, "address to listen on (0.0.0.0: all of them)"},
    {"port",      0, OPT_INT,  offsetof(struct serve_opts, port),
     "N", "8080", 0, 65535, "port to listen on (0: a free one)"},
    {"alias",     0, OPT_STRS, offsetof(struct serve_opts, alias),
     "NAME[,NAME]", NULL, 0, 0, "what clients call the model (may be repeated)"},
    {"served-model-name", 0, OPT_STRS, offsetof(struct serve_opts, served),
     "NAME", NULL, 0, 0, "the same; vLLM's name of it"},
    {"api-key-file", 0, OPT_STR, offsetof(struct serve_opts, key_file),
     "FILE", NULL, 0, 0, "keys that clients must have, see docs/serving.md"},
    {"tls-cert",  0, OPT_STR,  offsetof(struct serve_opts, tls_cert),
     "FILE", NULL, 0, 0, "certificate chain, PEM"},
    {"tls-key",   0, OPT_STR,  offsetof(struct serve_opts, tls_key),
     "FILE", NULL, 0, 0, "its private key, PEM"},
    {"attach",    0, OPT_STRS, offsetof(struct serve_opts, attach),
     "unix:PATH", NULL, 0, 0, "an engine of sluice engine --listen computes (may be repeated)"},
    {"replay",    0, OPT_ENUM, offsetof(struct serve_opts, replay),
     "on|off", "on", 0, 0, "with --attach: what runs goes on when an engine that ended is back"},
    {"on-lost",   0, OPT_ENUM, offsetof(struct serve_opts, on_lost),
     "exit|reopen", "exit", 0, 0, "when a device is lost: end (1), or open it and load again"},
    OPT_ROWS_PREFILL(struct serve_opts),
    OPT_ROWS_BATCH(struct serve_opts),
    {"tool-parser", 0, OPT_STR, offsetof(struct serve_opts, tool_parser),
     "NAME", "auto", 0, 0, "how tool calls are found in answers"},
    {"reasoning-parser", 0, OPT_STR, offsetof(struct serve_opts, reasoning_parser),
     "NAME", "auto", 0, 0, "how reasoning is found in answers"},
    {"unknown-fields", 0, OPT_ENUM, offsetof(struct serve_opts, unknown_fields),
     "refuse|ignore", "refuse", 0, 0,
     "a request's field that no route knows: 400, or named in the header x-sluice-ignored"},
    {"stream-interval-ms", 0, OPT_INT, offsetof(struct serve_opts, interval_ms),
     "N", "32", 0, 1000, "tokens of a stream leave together within so long (0: each at once)"},
    {"timeout-ms", 0, OPT_I64, offsetof(struct serve_opts, timeout_ms),
     "N", "0", 0, 86400000, "limit of a request that gives none (0: none)"},
    OPT_ROWS_SERVICE(struct serve_opts),
    {"db",        0, OPT_STR,  offsetof(struct serve_opts, db),
     "FILE", NULL, 0, 0, "stored responses and usage by key (default: in memory)"},
    {"allow-host", 0, OPT_STRS, offsetof(struct serve_opts, allow_host),
     "NAME", NULL, 0, 0, "a name under which clients reach this server (may be repeated)"},
    {"cors-origin", 0, OPT_STRS, offsetof(struct serve_opts, cors),
     "ORIGIN", NULL, 0, 0, "pages of ORIGIN may call this server (may be repeated)"},
    {"temp",      0, OPT_REAL, offsetof(struct serve_opts, sampling.temp),
     "X", "-1", -1, 100, "temperature of requests that give none (-1: the model's own, else 1)"},
    {"top-k",     0, OPT_INT,  offsetof(struct serve_opts, sampling.top_k),
     "N", "-1", -1, 1 << 30, "likewise; 0: all tokens (-1: the model's own, else 0)"},
    {"top-p",     0, OPT_REAL, offsetof(struct serve_opts, sampling.top_p),
     "X", "-1", -1, 1, "likewise (-1: the model's own, else 1)"},
    {"min-p",     0, OPT_REAL, offsetof(struct serve_opts, sampling.min_p),
     "X", "-1", -1, 1, "likewise (-1: the model's own, else 0)"},
    {"repeat-penalty", 0, OPT_REAL, offsetof(struct serve_opts, sampling.repeat),
     "X", "-1", -1, 100, "likewise (-1: the model's own, else 1)"},
    {"presence-penalty", 0, OPT_REAL, offsetof(struct serve_opts, sampling.presence),
     "X", "0", -2, 2, "of requests that give none"},
    {"frequency-penalty", 0, OPT_REAL, offsetof(struct serve_opts, sampling.frequency),
     "X", "0", -2, 2, "of requests that give none"},
    {"generation-config", 0, OPT_ENUM, offsetof(struct serve_opts, recommended), "auto|off",
     "auto", 0, 0, "sample as the model's files recommend where requests and options are silent"},
    {"metrics",   0, OPT_ENUM, offsetof(struct serve_opts, metrics),
     "on|off", "on", 0, 0, "GET /metrics"},
    {"ui",        0, OPT_ENUM, offsetof(struct serve_opts, ui),
     "on|off", "on", 0, 0, "web page at /"},
    {"log-json",  0, OPT_FLAG, offsetof(struct serve_opts, log_json),
     NULL, NULL, 0, 0, "log as JSON lines on stderr, one per request"},
    {"trace",     0, OPT_STR,  offsetof(struct serve_opts, trace),
     "FILE", NULL, 0, 0, "write every step in Chrome's trace format"},
    OPT_ROWS_TEMPLATE(struct serve_opts),
    OPT_ROWS_RECORD(struct serve_opts),
    OPT_ROWS_EXPERTS(struct serve_opts),
    OPT_ROWS_MOVE(struct serve_opts),
    OPT_ROWS_DRAFT(struct serve_opts),
    OPT_ROWS_LAYOUT(struct serve_opts),
    OPT_ROWS_MOCK(struct serve_opts),
    OPT_ROWS_COMPUTE(struct serve_opts),
    {0},
};
// clang-format on

#ifdef SL_SERVE

/* What the signal handler and the watcher reach. */
static struct {
    struct api_door door;
    net_server *server;
    api *api;
    sl_engine *engine;
    _Atomic int n_term; /* signals to end; two cut short what runs, as one Ctrl-C does */
    _Atomic bool ctrl_c;
    _Atomic int n_hup; /* signals to write expert counts */
    struct trace *trace;
    net_quota *quota; /* what keys use of all servers of an engine; NULL = of this one */
    gate_prefill *prefill;
    int n_prompt; /* prompt tokens of the last step */
} live;

static void on_signal(int sig)
{
    if (sig != SIGHUP) {
        if (sig == SIGINT) atomic_store(&live.ctrl_c, true);
        if (atomic_fetch_add(&live.n_term, sig == SIGINT ? 2 : 1) == 0) api_drain(live.api);
        sl_wake(live.engine);
    } else {
        atomic_fetch_add(&live.n_hup, 1);
        net_server_signal(live.server, sig);
        sl_wake(live.engine);
    }
}

static void reload(void *user, int sig)
{
    sl_err err = {0};
    (void)user;
    (void)sig;
    if (api_reload(live.api, &err)) fprintf(stderr, "sluice: %s: the old keys stay\n", err.text);
}

static void take_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

static void announce(const struct serve_opts *o, int port)
{
    const char *colon = strchr(o->host, ':'); /* IPv6 */
    if (o->log_json)
        fprintf(stderr, "{\"event\":\"listening\",\"port\":%d}\n", port);
    else
        fprintf(stderr, "sluice: listening on %s://%s%s%s:%d\n", o->tls_cert ? "https" : "http",
                colon ? "[" : "", o->host, colon ? "]" : "", port);
    fflush(stderr);
}

static void on_step(void *user, const sl_step_record *r)
{
    (void)user;
    live.n_prompt = r->n_prompt;
    if (live.trace) trace_step(live.trace, r);
}

/* The device was lost and requests were told: go on with another start of it, unless it was lost
 * before it had computed anything. n_step: when that was last. */
static sl_status reopen(struct compute *c, uint64_t *n_step, sl_err *err)
{
    sl_stats s;
    sl_stats_get(c->e, &s);
    log_msg(LOG_WARN, "%s: opening it again", err->text);
    if (s.n_reopen && s.n_step == *n_step)
        return SL_FAIL(err, DEVICE, "the device was lost again before a request was computed");
    *n_step = s.n_step;
    SL_TRY(sl_reopen(c->e, err));
    return sl_warm(c->e, err);
}

/* Steps until a signal and the end of what ran then. */
static sl_status engine_loop(struct compute *c, const struct serve_opts *o, int64_t *deadline,
                             sl_err *err)
{
    uint64_t n_step = 0;
    for (;;) {
        int n_term = atomic_load(&live.n_term);
        api_beat(live.api);
        api_sample(live.api);
        if (atomic_exchange(&live.n_hup, 0)) serving_experts(c, &o->common);
        if (n_term) {
            int64_t now = clock_now_ns();
            if (!*deadline) *deadline = now + (int64_t)o->service.drain_s * 1000000000;
            if (!api_active(live.api) && !sl_pending(c->e)) return SL_OK;
            if (now > *deadline || n_term > 1) return SL_OK; /* what still runs is cut off */
        }
        sl_wait(c->e, n_term ? 10 : 500);
        api_beat(live.api);
        live.n_prompt = 0;
        sl_status st = sl_step(c->e, err);
        net_server_flush(live.server, live.n_prompt > 0);
        if (st == SL_DEVICE && o->on_lost == 1) st = reopen(c, &n_step, err);
        if (st) {
            api_fail_all(live.api, err->text);
            return st;
        }
    }
}

/* The model is done, the last bytes are on their way: leave their readers the rest of the drain. */
static void let_go(net_server *s, int64_t deadline)
{
    struct timespec ms = {.tv_nsec = 2000000};
    while (net_server_active(s) > 0 && clock_now_ns() < deadline && atomic_load(&live.n_term) < 2)
        nanosleep(&ms, NULL);
}

struct reading {
    const struct serve_opts *o;
    struct api_opts *ao;
};

/* Sampling of requests that say nothing: the options, else the model's files, else OpenAI's. */
static sl_status read_sampling(const struct compute *c, void *user, sl_err *err)
{
    const struct serve_opts *o = ((struct reading *)user)->o;
    struct api_opts *ao = ((struct reading *)user)->ao;
    const struct sampling_opts *x = &o->sampling;
    sl_sampling s = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = o->common.seed};
    int n = o->recommended == 0 ? sl_model_sampling(c->m, &s, &ao->max_tokens) : 0;
    if (n < 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "--generation-config off serves without what the model's files recommend");
    if (x->repeat > -1 && x->repeat < 0.01)
        return SL_FAIL(err, REQUEST, "--repeat-penalty %g: from 0.01 to 100, or -1", x->repeat);
    bool own = x->temp >= 0 || x->top_k >= 0 || x->top_p >= 0 || x->min_p >= 0 || x->repeat >= 0;
    if (x->temp >= 0) s.temperature = (float)x->temp;
    if (x->top_k >= 0) s.top_k = x->top_k;
    if (x->top_p >= 0) s.top_p = (float)x->top_p;
    if (x->min_p >= 0) s.min_p = (float)x->min_p;
    if (x->repeat >= 0) s.repeat_penalty = (float)x->repeat;
    if (x->presence != 0) s.presence_penalty = (float)x->presence;
    if (x->frequency != 0) s.frequency_penalty = (float)x->frequency;
    ao->sampling = s;
    if (n || own)
        log_msg(LOG_WARN,
                "requests that say nothing are sampled with temperature %g, top_k %d, top_p %g, "
                "min_p %g, repetition_penalty %g%s",
                (double)s.temperature, s.top_k, (double)s.top_p, (double)s.min_p,
                (double)s.repeat_penalty, n ? ", as the model's files recommend" : "");
    return SL_OK;
}

/* The names of the options, each of which may be several with commas between them. */
static sl_status read_names(const struct serve_opts *o, struct arena *a, struct api_opts *ao,
                            sl_err *err)
{
    const struct opt_strs *list[] = {&o->alias, &o->served};
    void *mem = NULL;
    size_t n = 0;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < list[l]->n; i++)
            for (const char *c = list[l]->v[i]; c; c = strchr(c + 1, ','))
                n++;
    SL_TRY(mem_arena_array(a, n + 1, sizeof(char *), &mem, err));
    const char **name = mem;
    n = 0;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < list[l]->n; i++) {
            char *copy = NULL;
            SL_TRY(mem_arena_str(a, list[l]->v[i], strlen(list[l]->v[i]), &copy, err));
            for (char *next; copy; copy = next) {
                size_t k = 0;
                next = strchr(copy, ',');
                if (next) *next++ = 0;
                while (k < n && strcmp(name[k], copy) != 0)
                    k++;
                if (k == n) name[n++] = copy;
            }
        }
    if (!n) return SL_OK;
    ao->name = name[0];
    ao->alias = name + 1;
    ao->n_alias = (int)n - 1;
    return SL_OK;
}

/* All but the model and the engine. */
static struct api_opts api_opts_of(const struct serve_opts *o)
{
    bool plain = !strpbrk(o->common.model, "/.");
    return (struct api_opts){.name = plain ? o->common.model : NULL,
                             .model_arg = o->common.model,
                             .key_file = o->key_file,
                             .db_file = o->db,
                             .host = o->allow_host.v,
                             .n_host = o->allow_host.n,
                             .origin = o->cors.v,
                             .n_origin = o->cors.n,
                             .no_prefix_cache = o->batch.prefix_cache == 1,
                             .max_queue = o->batch.max_queue,
                             .timeout_ms = o->timeout_ms,
                             .tool_parser = o->tool_parser,
                             .reasoning_parser = o->reasoning_parser,
                             .no_metrics = o->metrics == 1,
                             .no_ui = o->ui == 1,
                             .ignore_unknown = o->unknown_fields == 1,
                             .read_file = os_read_file,
                             .log_json = o->log_json,
                             .log_requests = o->common.verbose};
}

/* The team has every CPU: a thread beside it would only take one of them in turn. Of an engine that
 * is elsewhere and not there yet: as those are that nobody told how many threads to have. */
static bool takes_all_cpus(const struct compute *c)
{
    struct os_topology topo;
    if (os_topology_get(&topo, NULL)) return false;
    int n_thread = c->ei.n_thread ? c->ei.n_thread : os_within_quota(&topo, topo.n_core);
    return n_thread >= os_within_quota(&topo, topo.n_pu);
}

static sl_status open_port(const struct compute *c, const struct serve_opts *o, char *cert,
                           char *key, sl_err *err)
{
    struct net_opts no = {.host = o->host,
                          .port = o->port,
                          .share_port = o->attach.n > 0,
                          .tls_cert = cert,
                          .tls_key = key,
                          .push_here = takes_all_cpus(c),
                          .gather_ms = o->interval_ms};
    api_door_hooks(&live.door, &no.hooks);
    return net_server_open(&no, &live.server, err);
}

/* The routes. The engine is there. */
static sl_status open_api(struct compute *c, struct api_opts ao, sl_err *err)
{
    sl_probe_result probe;
    struct net_hooks hooks;
    sl_probe(c->e, PROBE_MS, &probe);
    ao.max_batch = c->ei.n_seq_max;
    ao.model = c->m;
    ao.engine = c->e;
    ao.read_gbps = probe.read_gbps;
    ao.quota = live.quota;
    SL_TRY(api_open(&ao, &live.api, err));
    live.engine = c->e;
    SL_TRY(sl_warm(c->e, err));
    api_hooks(live.api, &hooks);
    hooks.signal = reload;
    api_door_open(&live.door, &hooks);
    return SL_OK;
}

static sl_status serve(struct compute *c, const struct serve_opts *o, sl_err *err)
{
    bool active = false;
    int64_t deadline = 0;
    if (o->service.sandbox == 0) os_sandbox_calls(o->attach.n + o->prefill.at.n > 0, &active);
    take_signals();
    if (cmd_stop) return SL_FAIL(err, CANCELLED, "interrupted"); /* before they were taken */
    announce(o, net_server_port(live.server));
    sl_status st = engine_loop(c, o, &deadline, err);
    let_go(live.server, st ? clock_now_ns() + LOST_NS : deadline);
    return !st && atomic_load(&live.ctrl_c) ? SL_FAIL(err, CANCELLED, "interrupted") : st;
}

static sl_status sandbox(const struct serve_opts *o, struct arena *a, sl_err *err)
{
    const struct os_path path[] = {{serving_folder(a, o->key_file), OS_READ},
                                   {serving_folder(a, o->tls_cert), OS_READ},
                                   {serving_folder(a, o->tls_key), OS_READ},
                                   {serving_folder(a, o->db), OS_WRITE},
                                   {serving_folder(a, o->trace), OS_WRITE},
                                   {"/etc/hosts", OS_READ},
                                   {"/etc/host.conf", OS_READ},
                                   {"/etc/nsswitch.conf", OS_READ},
                                   {"/etc/resolv.conf", OS_READ},
                                   {"/etc/gai.conf", OS_READ},
                                   {"/etc/gnutls", OS_READ}};
    SL_TRY(serving_sandbox(&o->common, path, BASE_COUNT_OF(path), a, err));
    os_sandbox_drop(o->port > 0 && o->port < 1024);
    return SL_OK;
}

/* ---- engines elsewhere ---- */

extern const struct cmd cmd_engine;

/* Of the options that sluice engine has, too, those that a front needs for itself. */
static bool is_front_too(const char *name)
{
    static const char *const own[] = {"config",        "quiet", "verbose", "json",      "model",
                                      "chat-template", "drain", "sandbox", "max-queue", "seed",
                                      "mock",          "mock-type"};
    for (int i = 0; i < BASE_COUNT_OF(own); i++)
        if (strcmp(own[i], name) == 0) return true;
    return false;
}

static bool is_given(const struct cmd_ctx *x, const char *name)
{
    for (const struct opt *row = opts; row->name; row++)
        if (strcmp(row->name, name) == 0) return !opt_is_default(opts, name, x->opts);
    return false;
}

/* An option that was given although it is the engine's; NULL = none. */
static const char *first_of_engine(const struct cmd_ctx *x)
{
    for (const struct opt *row = cmd_engine.opts; row->name; row++)
        if (!is_front_too(row->name) && is_given(x, row->name)) return row->name;
    return is_given(x, "trace") ? "trace" : NULL; /* which is of steps */
}

/* The model without its weights, and an engine that may be there later. */
static sl_status open_front(struct compute *c, const struct serve_opts *o, sl_err *err)
{
    struct gate_front_opts fo = {.n_path = o->attach.n, .replay = o->replay == 0};
    sl_model_opts mo = {.pack_cache = SL_PACK_IGNORE,
                        .chat_template_file = o->common.chat_template};
    if (o->attach.n > GATE_GROUP_MAX)
        return SL_FAIL(err, REQUEST, "--attach: %d engines: at most %d", o->attach.n,
                       GATE_GROUP_MAX);
    for (int i = 0; i < o->attach.n; i++)
        SL_TRY(net_local_path(o->attach.v[i], &fo.path[i], err));
    const char *name = NULL;
    char mock[4096];
    SL_TRY(compute_model_name(&o->common, mock, sizeof mock, &name, err));
    SL_TRY(sl_model_open(name, &mo, &c->m, err));
    sl_model_info_get(c->m, &c->mi);
    fo.model = c->m;
    return gate_front_open(&fo, &c->e, err);
}

static void say_waiting(const struct serve_opts *o, int port)
{
    if (o->log_json)
        fprintf(stderr, "{\"event\":\"waiting\",\"port_503\":%d}\n", port);
    else
        fprintf(stderr, "sluice: waiting for an engine at %s: port %d answers 503\n",
                o->attach.v[0], port);
    fflush(stderr);
}

/* Until an engine is there. */
static sl_status attach(struct compute *c, const struct serve_opts *o, sl_err *err)
{
    signal(SIGHUP, SIG_IGN); /* keys are read when the engine is there */
    SL_TRY(sl_step(c->e, err));
    if (!sl_ready(c->e)) say_waiting(o, net_server_port(live.server));
    while (!sl_ready(c->e)) {
        if (cmd_stop) return SL_FAIL(err, CANCELLED, "interrupted");
        sl_wait(c->e, 100);
        SL_TRY(sl_step(c->e, err));
    }
    sl_engine_info_get(c->e, &c->ei);
    return SL_OK;
}

/* Servers of an engine count what keys use in a file beside its socket: the first in order, of
 * those that are given. */
static sl_status open_quota(const struct serve_opts *o, sl_err *err)
{
    char file[256];
    const char *first = NULL, *path = NULL;
    if (!o->attach.n || !o->key_file) return SL_OK;
    for (int i = 0; i < o->attach.n; i++) {
        SL_TRY(net_local_path(o->attach.v[i], &path, err));
        if (!first || strcmp(path, first) < 0) first = path;
    }
    snprintf(file, sizeof file, "%s.keys", first);
    return net_quota_open(file, &live.quota, err);
}

/* From model and engine to a port whose requests are answered. An engine elsewhere may come late:
 * the port is there before it. */
static sl_status open_all(struct compute *c, const struct serve_opts *o, struct api_opts *ao,
                          char *tls[2], sl_err *err)
{
    sl_engine_opts eo = serving_engine_opts(&o->batch);
    struct reading reading = {o, ao};
    const struct compute_look look = {read_sampling, &reading};
    eo.on_step = on_step;
    if (o->on_lost) eo.layout = NULL; /* it is for one rank */
    if (!o->attach.n) {
        SL_TRY(compute_open_looking(c, &o->common, &eo, &look, err));
        serving_ranks(c, &o->common);
        if (o->on_lost && sl_ranks(c->e, NULL, 0) > 1)
            return SL_FAIL(err, REQUEST,
                           "--on-lost reopen: not where ranks share the model (layout)");
        SL_TRY(serving_prefill(c, &o->prefill, &live.prefill, err));
        SL_TRY(open_api(c, *ao, err));
        return open_port(c, o, tls[0], tls[1], err);
    }
    SL_TRY(open_front(c, o, err));
    SL_TRY(read_sampling(c, &reading, err));
    SL_TRY(open_port(c, o, tls[0], tls[1], err));
    SL_TRY(attach(c, o, err));
    return open_api(c, *ao, err);
}

static int run(struct cmd_ctx *x)
{
    const struct serve_opts *o = x->opts;
    struct compute c = {0};
    sl_err err = {0};
    char *tls[2] = {NULL, NULL}; /* certificate, key */
    uint64_t n = 0;
    if (!o->tls_cert != !o->tls_key)
        return cmd_usage("--tls-cert and --tls-key: give both or none");
    if (o->attach.n && o->on_lost)
        return cmd_usage("--on-lost: not together with --attach: an engine that is lost is started "
                         "again by its supervisor");
    if (o->on_lost && o->common.draft_model)
        return cmd_usage("--on-lost reopen: not with --draft-model");
    if (!o->attach.n && o->replay) return cmd_usage("--replay off: only with --attach");
    const char *engines = o->attach.n ? first_of_engine(x) : NULL;
    if (engines)
        return cmd_usage("--%s: not together with --attach: it is the engine's, see sluice engine",
                         engines);
    int can = cmd_can_write("expert-stats", o->common.expert_stats);
    if (can != CMD_OK) return can;
    mem_steady();
    cmd_signals_server();
    struct api_opts ao = api_opts_of(o);
    if (read_names(o, &x->arena, &ao, &err)) return cmd_fail(&err);
    if (api_opts_check(&ao, &err)) return cmd_usage("%s", err.text);
    sl_status st = o->tls_cert ? os_read_once(o->tls_cert, 1 << 20, &tls[0], &n, &err) : SL_OK;
    if (!st && o->tls_key) st = os_read_once(o->tls_key, 1 << 20, &tls[1], &n, &err);
    if (!st && o->trace) st = trace_open(o->trace, &live.trace, &err);
    if (!st) st = open_quota(o, &err);
    if (!st && o->service.sandbox == 0) st = sandbox(o, &x->arena, &err);
    if (!st) st = open_all(&c, o, &ao, tls, &err);
    if (!st) st = serve(&c, o, &err);
    net_server_close(live.server);
    if (!st) st = record_check(c.record, &err);
    if (!st && !o->attach.n) st = compute_experts(&c, &o->common, &err);
    compute_close(&c);
    gate_prefill_close(live.prefill);
    trace_close(live.trace);
    api_close(live.api); /* after the engine: its last events still go there */
    net_quota_close(live.quota);
    mem_free(tls[0]);
    mem_free(tls[1]);
    return st ? cmd_fail(&err) : CMD_OK;
}

#else

static int run(struct cmd_ctx *x)
{
    (void)x;
    sl_err err = {0};
    (void)SL_FAIL(&err, UNSUPPORTED,
                  "serve: this build has no %s: install libmicrohttpd-dev and libgnutls28-dev and "
                  "build again",
#ifdef SL_HAVE_MHD
                  "GnuTLS"
#else
                  "libmicrohttpd"
#endif
    );
    return cmd_fail(&err);
}

#endif

const struct cmd cmd_serve = {
    .name = "serve",
    .summary = "an OpenAI server",
    .usage = "[-m MODEL] [--port N] [--attach unix:PATH] [options]",
    .about = "Serves a model over HTTP to many clients at once: chat, completions, responses, "
             "embeddings.\nSIGTERM ends it when what runs is over; SIGHUP reads the keys again,\n"
             "and writes the counts of --expert-stats.",
    .example = "sluice serve -m model.gguf --port 8080",
    .opts = opts,
    .opts_bytes = sizeof(struct serve_opts),
    .run = run,
};
