/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks: what is checked before a body is read (Host, Origin, key, route, room), the dispatch
 * after that, and the log. */
#include "api/api.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "api/api_internal.h"
#include "api/parse.h"
#include "api/store.h"
#include "base/clock.h"
#include "base/log.h"

/* ---- opening ---- */

static sl_status copy(api *a, const char *z, const char **out, sl_err *err)
{
    char *p = NULL;
    *out = NULL;
    if (!z) return SL_OK;
    SL_TRY(mem_arena_str(&a->arena, z, strlen(z), &p, err));
    *out = p;
    return SL_OK;
}

static sl_status copy_list(api *a, const char *const *v, int n, const char *const **out,
                           sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&a->arena, (size_t)n + 1, sizeof(char *), &p, err));
    const char **list = p;
    for (int i = 0; i < n; i++)
        SL_TRY(copy(a, v[i], &list[i], err));
    *out = list;
    return SL_OK;
}

/* "*" or scheme://host[:port], as browsers write it. */
static bool is_origin(const char *s)
{
    const char *sep = strstr(s, "://");
    return strcmp(s, "*") == 0 || (sep && sep > s && sep[3] && !strpbrk(sep + 3, "/?# "));
}

sl_status api_opts_check(const struct api_opts *o, sl_err *err)
{
    const struct api_parse_opts po = {.tool_parser = o->tool_parser,
                                      .reasoning_parser = o->reasoning_parser};
    struct api_parse *p = NULL;
    sl_status st = api_parse_open(&po, &p, err);
    api_parse_close(p);
    if (st) return st;
    for (int i = -1; i < o->n_alias; i++) {
        const char *name = i < 0 ? o->name : o->alias[i];
        if (name && !*name) return SL_FAIL(err, REQUEST, "--alias: an empty name");
    }
    for (int i = 0; i < o->n_host; i++)
        if (!*o->host[i] || strpbrk(o->host[i], "/ "))
            return SL_FAIL(err, REQUEST, "--allow-host %.60s: a host name, without scheme and path",
                           o->host[i]);
    for (int i = 0; i < o->n_origin; i++)
        if (!is_origin(o->origin[i]))
            return SL_FAIL(err, REQUEST,
                           "--cors-origin %.60s: as browsers send it: scheme://host[:port], or *",
                           o->origin[i]);
    return SL_OK;
}

static sl_status open_all(api *a, const struct api_opts *o, sl_err *err)
{
    a->o = *o;
    sl_model_info_get(o->model, &a->mi);
    sl_engine_info_get(o->engine, &a->ei);
    SL_TRY(copy(a, o->name ? o->name : a->mi.name, &a->name, err));
    SL_TRY(copy_list(a, o->alias, o->n_alias, &a->o.alias, err));
    SL_TRY(copy(a, o->model_arg, &a->o.model_arg, err));
    SL_TRY(copy(a, o->key_file, &a->o.key_file, err));
    SL_TRY(copy(a, o->db_file, &a->o.db_file, err));
    SL_TRY(copy_list(a, o->host, o->n_host, &a->o.host, err));
    SL_TRY(copy_list(a, o->origin, o->n_origin, &a->o.origin, err));
    snprintf(a->fingerprint, sizeof a->fingerprint, "sluice-%.20s-%.16s-%.8s", sl_version(),
             a->ei.isa, a->ei.acts);
    a->started_s = (int64_t)time(NULL);
    net_random(a->seed, sizeof a->seed);
    SL_TRY(api_template_open(a, err));
    api_metrics_init(a);
    SL_TRY(api_routing_open(a, err));
    api_beat(a);
    SL_TRY(net_lock_open(&a->lock, err));
    SL_TRY(sl_grammar_cache_open(o->model, &a->gcache, err));
    SL_TRY(api_store_open(a, o->db_file, err));
    return api_key_load(a, err);
}

sl_status api_open(const struct api_opts *o, api **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    api *a = p;
    mem_arena_init(&a->arena, MEM_MISC, 0);
    sl_status st = open_all(a, o, err);
    if (st) {
        api_close(a);
        return st;
    }
    *out = a;
    return SL_OK;
}

void api_close(api *a)
{
    if (!a) return;
    api_store_usage(a);
    api_store_close(a);
    api_key_close(a);
    sl_grammar_cache_close(a->gcache);
    net_lock_close(a->lock);
    mem_arena_fini(&a->arena);
    mem_free(a);
}

void api_drain(api *a)
{
    net_count_add(&a->draining, 1);
}

int api_active(const api *a)
{
    return (int)net_count_get(&a->n_gen);
}

void api_beat(api *a)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t cpu = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, busy = cpu - a->beat_cpu_ns;
    if (a->beat_cpu_ns && (uint64_t)busy > net_count_get(&a->busy_ns))
        atomic_store_explicit(&a->busy_ns.v, (uint64_t)busy, memory_order_relaxed);
    a->beat_cpu_ns = cpu;
    atomic_store_explicit(&a->beat_ns.v, (uint64_t)clock_now_ns(), memory_order_relaxed);
}

void api_fail_all(api *a, const char *why)
{
    if (net_count_get(&a->failed)) return;
    snprintf(a->fail_text, sizeof a->fail_text, "the engine failed: %.150s", why);
    atomic_store_explicit(&a->failed.v, 1, memory_order_release);
}

/* ---- Host and Origin: a page of a stranger must not reach this server through a browser ---- */

static bool listed(const char *const *list, int n, const char *name, size_t len)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], "*") == 0 ||
            (strlen(list[i]) == len && !strncasecmp(list[i], name, len)))
            return true;
    return false;
}

/* An address is no danger: rebinding needs a name that its owner can turn. */
static bool is_address(const char *h, size_t n)
{
    if (n && h[0] == '[') return true;
    size_t dots = 0, i = 0;
    for (; i < n && (h[i] == '.' || (h[i] >= '0' && h[i] <= '9')); i++)
        dots += h[i] == '.';
    return n && i == n && dots == 3;
}

static size_t host_len(const char *h)
{
    if (h[0] == '[') {
        const char *e = strchr(h, ']');
        return e ? (size_t)(e - h) + 1 : strlen(h);
    }
    return strcspn(h, ":");
}

static bool host_ok(const api *a, const char *h)
{
    if (!h) return true; /* HTTP/1.0 */
    size_t n = host_len(h);
    return is_address(h, n) || (n == 9 && strncasecmp(h, "localhost", 9) == 0) ||
           listed(a->o.host, a->o.n_host, h, n);
}

/* A valid key, and no browser: a page of a stranger has no key. */
static bool is_let_in(api *a, struct net_req *r)
{
    return a->o.key_file && !net_req_header(r, "Origin") && api_key_check(a, r);
}

/* NULL, or the origin that the reply may name. *ok: false = refuse. */
static const char *origin_of(const api *a, const struct net_req *r, bool *ok)
{
    const char *o = net_req_header(r, "Origin"), *h = r->host;
    *ok = true;
    if (!o) return NULL;
    if (listed(a->o.origin, a->o.n_origin, o, strlen(o))) return o;
    const char *sep = strstr(o, "://");
    *ok = sep && h && strcasecmp(sep + 3, h) == 0;
    return NULL;
}

static void cors(struct net_req *r, const char *origin)
{
    const char *asked = net_req_header(r, "Access-Control-Request-Headers");
    net_reply_header(r, "Access-Control-Allow-Origin", origin);
    net_reply_header(r, "Vary", "Origin");
    net_reply_header(r, "Access-Control-Expose-Headers",
                     "x-request-id, request-id, retry-after, x-should-retry");
    if (strcmp(r->method, "OPTIONS") != 0) return;
    net_reply_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    /* those that SDKs add differ from one version to the next, and all do nothing here */
    net_reply_header(r, "Access-Control-Allow-Headers",
                     asked ? asked : "authorization, content-type");
    net_reply_header(r, "Access-Control-Max-Age", "600");
}

/* ---- before the body ---- */

/* A prompt that fits the context is at most about 64 bytes of JSON per token. */
static size_t body_max(const api *a, const struct api_route *t)
{
    size_t by_ctx = ((size_t)1 << 20) + (size_t)a->ei.n_ctx * 64;
    return BASE_MIN(t->body_max, by_ctx);
}

/* Is there room for one more that makes the model compute? If not, the reply is set. */
static void admit(api *a, struct net_req *r)
{
    const char *why;
    if (net_count_get(&a->failed))
        api_error(a, r, 503, "engine_dead", NULL, a->fail_text);
    else if (net_count_get(&a->draining))
        api_error(a, r, 503, "going_down", NULL, "the server is going down");
    else if (api_active(a) >= a->o.max_batch + a->o.max_queue)
        api_error(a, r, 429, "rate_limit_exceeded", NULL, "the server is at its capacity");
    else if ((why = api_key_admit(a, r, &r->retry_s)))
        api_error(a, r, 429, "rate_limit_exceeded", NULL, why);
    else
        r->counted = true;
}

#define BODIES_BYTES ((size_t)16 << 20) /* of all bodies together, or so many of the longest: */
#define BODIES_LONGEST 8
#define BODY_SHORT ((size_t)64 << 10) /* bodies up to this always have room */

static void unclaim(api *a, struct net_req *r)
{
    net_count_sub(&a->body_bytes, r->claimed);
    r->claimed = 0;
}

/* Bodies are held until their requests end, with what is made of them: all together are bounded.
 * What counts is what has come: a length that is only announced takes nothing from others. */
static void body(void *user, struct net_req *r, size_t n)
{
    api *a = user;
    if (r->claimed + n > BODY_SHORT &&
        net_count_get(&a->body_bytes) + n > BASE_MAX(BODIES_BYTES, BODIES_LONGEST * r->body_max)) {
        unclaim(a, r);
        api_error(a, r, 429, "rate_limit_exceeded", NULL,
                  "the server has as many bytes of requests in hand as it may");
        return;
    }
    r->claimed += n;
    net_count_add(&a->body_bytes, n);
}

static void begin(void *user, struct net_req *r)
{
    api *a = user;
    bool known = false, ok = true;
    sl_err err;
    sl_status st = api_route_path(r, &err);
    const struct api_route *t = api_route_find(r->method, r->path, &known);
    const char *origin = origin_of(a, r, &ok);
    if (t && ((t->flags & API_UI && a->o.no_ui) || (t->flags & API_METRICS && a->o.no_metrics)))
        t = NULL, known = false;
    r->route = t;
    r->body_max = 0;
    if (st) {
        api_error_of(a, r, &err);
        return;
    }
    if (origin) cors(r, origin);
    if (!host_ok(a, r->host) && !(t && t->flags & API_ANY_HOST) && !is_let_in(a, r)) {
        api_error(a, r, 403, "host_not_allowed", NULL,
                  "this server does not know that host name: --allow-host NAME makes it known");
        return;
    }
    if (!ok) {
        api_error(a, r, 403, "origin_not_allowed", NULL, "requests of that origin are not allowed");
        return;
    }
    if (origin && strcmp(r->method, "OPTIONS") == 0 && known) {
        net_reply(r, 204, NULL, NULL);
        return;
    }
    if (!(t && t->flags & API_OPEN) && !api_key_check(a, r)) {
        net_count_add(&a->metrics.n_auth_failed, 1);
        api_error(a, r, 401, "invalid_api_key", NULL,
                  "no valid API key: send it as Authorization: Bearer KEY (or x-api-key: KEY)");
        return;
    }
    if (!t) {
        if (known) {
            char allow[API_ALLOW];
            api_route_allow(r->path, allow);
            net_reply_header(r, "Allow", allow);
        }
        api_error(a, r, known ? 405 : 404, known ? "method_not_allowed" : "not_found", NULL,
                  known ? "that method is not for this path"
                        : "there is no such path; there are /v1/chat/completions, /v1/models and "
                          "others: see docs/api.md");
        return;
    }
    if (t->flags & API_ADMIN && !api_key_admin(a, r)) {
        api_error(a, r, 403, "not_an_admin", NULL,
                  "this key may not do that: it would need the word admin in the key file");
        return;
    }
    const char *coding = net_req_header(r, "Content-Encoding");
    if (coding && *coding && strcasecmp(coding, "identity") != 0) {
        net_reply_header(r, "Accept-Encoding", "identity");
        api_error(a, r, 415, "unsupported_content_encoding", NULL,
                  "the body has a Content-Encoding: send it as it is");
        return;
    }
    r->body_max = body_max(a, t);
    r->here = (t->flags & API_HERE) != 0;
    if (t->flags & API_GEN) admit(a, r);
}

/* ---- the request itself ---- */

void api_settle(api *a, struct net_req *r)
{
    const struct api_job *j = api_job_of(r);
    if (!r->counted) return;
    r->counted = false;
    api_key_done(a, r, j ? BASE_MAX(j->n_prompt_tok, j->n_seen_prompt) : 0,
                 j ? BASE_MAX(j->n_answer_tok, j->n_seen_tok) : 0);
}

static void handle(void *user, struct net_req *r)
{
    api *a = user;
    const struct api_route *t = r->route;
    sl_err err = {0};
    size_t n = strlen(a->mi.name);
    sl_status st = t->handle(a, r, &err);
    if (!r->ops) api_settle(a, r);
    if (!st) return;
    if (st == SL_NOTFOUND && strncmp(err.text, "model: ", 7) == 0)
        api_error(a, r, 404, "model_not_found", "model", err.text);
    else if (n && strncmp(err.text, a->mi.name, n) == 0 && strncmp(err.text + n, ": ", 2) == 0)
        api_error(a, r, api_error_http(&err), api_error_code(&err), t->prompt_field,
                  err.text + n + 2); /* the file's name is no client's business, nor a field */
    else
        api_error_of(a, r, &err);
}

static void refuse(void *user, struct net_req *r, int status, const char *code, const char *text)
{
    api_error(user, r, status, code, NULL, text);
}

static void done(void *user, struct net_req *r)
{
    api *a = user;
    api_settle(a, r);
    unclaim(a, r);
    api_log(a, r);
    if (r->status >= 100 && r->status < 600) net_count_add(&a->metrics.http[r->status / 100], 1);
}

#define USAGE_NS ((int64_t)5 * 1000000000)
#define TRIM_NS ((int64_t)60 * 1000000000)

static void tick(void *user)
{
    api *a = user;
    int64_t now = clock_now_ns();
    if (now - a->trim_ns >= TRIM_NS) {
        a->trim_ns = now;
        mem_trim();
    }
    if (now - a->usage_ns < USAGE_NS) return;
    a->usage_ns = now;
    api_store_usage(a);
}

void api_hooks(api *a, struct net_hooks *out)
{
    *out = (struct net_hooks){.user = a,
                              .begin = begin,
                              .body = body,
                              .handle = handle,
                              .refuse = refuse,
                              .done = done,
                              .tick = tick};
}

sl_status api_reload(api *a, sl_err *err)
{
    return api_key_load(a, err);
}
