/* SPDX-License-Identifier: Apache-2.0 */
/* The generator: one thread, one poll loop. A request in flight is a slot; a slot's stream tells
 * pieces from the rest; what it saw goes into the level's sums when it ends. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "load/load_internal.h"
#include "net/client.h"
#include "text/json.h"

#define IN_FLIGHT_MAX 16384

/* Samples of one kind. */
struct samples {
    float *v;
    int64_t n, cap;
};

struct load_run {
    /* fixed after open */
    struct load_target t;
    char url[1024];
    struct arena arena;
    const struct json *extra;
    int (*tick)(void *user, int64_t done, int64_t total);
    void *user;
    net_client *client;
    /* of the level under way */
    int64_t t0, t_last_end, t_first_start, item_at, n_started, n_done, t_tick;
    struct samples ttft, tpot, itl, latency;
    int64_t pieces_out, pieces_n; /* sums of out - 1 and pieces - 1 */
    struct load_result res;
    int64_t n_answer;      /* requests that got an HTTP status */
    struct load_rec *only; /* load_one: where its record goes */
    sl_status failed;
    sl_err err;
};

struct slot {
    load_run *r;
    struct load_stream s;
    struct load_rec rec;
    int64_t t_piece, t_event; /* of the last piece, and of the last event with data */
    bool bad;
};

sl_status load_url(const struct load_target *t, char *buf, size_t n, sl_err *err)
{
    const char *u = t->url, *path;
    if (strncmp(u, "http://", 7) && strncmp(u, "https://", 8))
        return SL_FAIL(err, REQUEST, "--url %.100s: begins with neither http:// nor https://", u);
    path = strchr(u + 8, '/');
    size_t len = strlen(u);
    while (len && u[len - 1] == '/')
        len--;
    const char *tail = t->chat ? "/v1/chat/completions" : "/v1/completions";
    if (path && len > (size_t)(path - u)) { /* an address with a path: a bare /v1 is completed */
        tail = !strcmp(path, "/v1") || !strcmp(path, "/v1/") ? tail + 3 : "";
    }
    if (snprintf(buf, n, "%.*s%s", (int)len, u, tail) >= (int)n)
        return SL_FAIL(err, LIMIT, "--url is longer than %d bytes", (int)n - 1);
    return SL_OK;
}

static void add(load_run *r, struct samples *s, double v)
{
    if (s->n == s->cap) {
        int64_t cap = s->cap ? s->cap * 2 : 1024;
        sl_err err;
        sl_status st =
            mem_realloc(MEM_REQUEST, s->v, (size_t)cap * sizeof *s->v, (void **)&s->v, &err);
        if (st) {
            if (!r->failed) r->err = err;
            r->failed = st;
            return;
        }
        s->cap = cap;
    }
    s->v[s->n++] = (float)v;
}

sl_status load_open(const struct load_target *t, int (*tick)(void *, int64_t, int64_t), void *user,
                    load_run **out, sl_err *err)
{
    load_run *r;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof *r, (void **)&r, err));
    r->t = *t;
    r->tick = tick;
    r->user = user;
    mem_arena_init(&r->arena, MEM_REQUEST, 0);
    sl_status st = load_url(t, r->url, sizeof r->url, err);
    if (!st && t->extra) {
        st = text_json_parse(&r->arena, "--extra-args", t->extra, strlen(t->extra), &r->extra, err);
        if (!st && r->extra->kind != JSON_OBJECT_K)
            st = SL_FAIL(err, REQUEST, "--extra-args is no JSON object");
        static const char *const fixed[] = {"stream", "messages", "prompt"};
        for (int i = 0; !st && i < BASE_COUNT_OF(fixed); i++)
            if (text_json_get(r->extra, fixed[i]))
                st = SL_FAIL(err, REQUEST, "--extra-args: %s has options of its own", fixed[i]);
        if (st) st = SL_REQUEST;
    }
    if (!st) st = net_client_open(t->insecure, &r->client, err);
    if (st) {
        load_close(r);
        return st;
    }
    *out = r;
    return SL_OK;
}

void load_close(load_run *r)
{
    if (!r) return;
    net_client_close(r->client);
    mem_free(r->ttft.v);
    mem_free(r->tpot.v);
    mem_free(r->itl.v);
    mem_free(r->latency.v);
    mem_arena_fini(&r->arena);
    mem_free(r);
}

static void put_prompt(struct json_w *w, const struct load_target *t, const struct load_item *it)
{
    if (!t->chat) {
        text_jw_key(w, "prompt");
        text_jw_str(w, it->prompt, it->n_prompt);
        return;
    }
    text_jw_key(w, "messages");
    text_jw_arr(w);
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, "user");
    text_jw_key(w, "content");
    text_jw_str(w, it->prompt, it->n_prompt);
    text_jw_obj_end(w);
    text_jw_arr_end(w);
}

/* Is that member ours to write? What --extra-args has stands in its place. */
static bool ours(const load_run *r, struct json_w *w, const char *key)
{
    if (r->extra && text_json_get(r->extra, key)) return false;
    text_jw_key(w, key);
    return true;
}

/* The request's body, as the members of one object. */
static sl_status put_body(const load_run *r, const struct load_item *it, struct str *s, sl_err *err)
{
    struct json_w w;
    const struct load_target *t = &r->t;
    if (it->messages && !t->chat)
        return SL_FAIL(err, REQUEST, "the dataset has messages: they need --api chat");
    if (it->ids && t->chat)
        return SL_FAIL(err, REQUEST, "the dataset has token ids: they need --api completions");
    text_jw_init(&w, s);
    text_jw_obj(&w);
    if (ours(r, &w, "model")) text_jw_strz(&w, t->model);
    if (!it->messages && !it->ids) put_prompt(&w, t, it);
    if (it->max_tokens > 0) {
        if (ours(r, &w, "max_tokens")) text_jw_int(&w, it->max_tokens);
        if (t->ignore_eos) {
            if (ours(r, &w, "min_tokens")) text_jw_int(&w, it->max_tokens);
            if (ours(r, &w, "ignore_eos")) text_jw_bool(&w, true);
        }
    }
    if (ours(r, &w, "temperature")) text_jw_real(&w, t->temperature, 9);
    if (t->stream) {
        text_jw_key(&w, "stream");
        text_jw_bool(&w, true);
        if (ours(r, &w, "stream_options")) {
            text_jw_obj(&w);
            text_jw_key(&w, "include_usage");
            text_jw_bool(&w, true);
            text_jw_obj_end(&w);
        }
    }
    for (const struct json *c = r->extra ? r->extra->child : NULL; c; c = c->next) {
        text_jw_key(&w, c->key);
        text_jw_node(&w, c);
    }
    if (it->messages || it->ids) { /* JSON text as it is */
        str_puts(s, it->messages ? ",\"messages\":" : ",\"prompt\":");
        str_puts(s, it->messages ? it->messages : it->ids);
    }
    text_jw_obj_end(&w);
    return str_status(s, err);
}

static void fail(struct slot *k, const char *why)
{
    if (k->bad) return;
    k->bad = true;
    snprintf(k->rec.why, sizeof k->rec.why, "%.95s", why);
}

static int on_data(void *user, int http, const char *p, size_t n)
{
    struct slot *k = user;
    sl_err err;
    int pieces = 0;
    k->rec.http = http;
    if (http / 100 != 2) { /* an error body: read whole at the end */
        if (k->s.buf.n < 1u << 16) str_put(&k->s.buf, p, n);
        return 0;
    }
    int n_event = k->s.n_event;
    if (load_stream_push(&k->s, p, n, &pieces, &err)) {
        fail(k, err.text);
        return 1;
    }
    if (k->s.n_event == n_event) return 0;
    int64_t now = k->t_event = clock_now_ns() - k->r->t0;
    if (!pieces) return 0;
    if (!k->rec.t_first)
        k->rec.t_first = now;
    else
        add(k->r, &k->r->itl, (double)(now - k->t_piece) * 1e-6);
    for (int i = 1; i < pieces; i++)
        add(k->r, &k->r->itl, 0);
    k->t_piece = now;
    return 0;
}

/* An ended request's figures into the level's. */
static void account(struct slot *k)
{
    load_run *r = k->r;
    struct load_rec *c = &k->rec;
    struct load_result *s = &r->res;
    s->n++;
    r->n_done++;
    r->n_answer += c->http != 0;
    if (c->t_end > r->t_last_end) r->t_last_end = c->t_end;
    if (!c->ok) {
        if (!s->why[0]) memcpy(s->why, c->why, sizeof s->why);
        return;
    }
    s->n_ok++;
    s->n_in += c->n_in;
    s->n_out += c->n_out;
    s->n_cached += c->n_cached;
    double latency = (double)(c->t_end - c->t_start) * 1e-6;
    double ttft = (double)(c->t_first - c->t_start) * 1e-6;
    add(r, &r->latency, latency);
    add(r, &r->ttft, ttft);
    if (c->n_out > 1) add(r, &r->tpot, (latency - ttft) / (c->n_out - 1));
    if (c->n_piece > 1) {
        r->pieces_out += c->n_out - 1;
        r->pieces_n += c->n_piece - 1;
    }
}

static void on_done(void *user, int http, const char *error)
{
    struct slot *k = user;
    struct load_rec *c = &k->rec;
    sl_err err;
    c->t_end = clock_now_ns() - k->r->t0;
    c->http = http;
    char text[sizeof c->why];
    if (http && http / 100 != 2) {
        if (!load_error_text(str_c(&k->s.buf), k->s.buf.n, text, sizeof text))
            snprintf(text, sizeof text, "no reason given");
        char why[128];
        snprintf(why, sizeof why, "HTTP %d: %s", http, text);
        fail(k, why);
    }
    if (error) fail(k, error);
    if (!k->bad && load_stream_end(&k->s, &err)) fail(k, err.text);
    if (k->s.error[0]) fail(k, k->s.error);
    c->n_piece = k->s.n_piece;
    c->n_in = BASE_MAX(k->s.n_in, 0);
    c->n_cached = k->s.n_cached;
    c->n_out = k->s.n_out >= 0 ? k->s.n_out : k->s.n_piece;
    c->ok = !k->bad;
    if (c->ok && k->t_event) c->t_end = k->t_event;
    if (!c->t_first) c->t_first = c->t_end;
    if (k->r->only)
        *k->r->only = *c;
    else
        account(k);
    load_stream_fini(&k->s);
    mem_free(k);
}

static sl_status start(load_run *r, const struct load_item *it, sl_err *err)
{
    struct slot *k = NULL;
    struct str body;
    str_init(&body, MEM_REQUEST, 0);
    sl_status st = put_body(r, it, &body, err);
    if (!st) st = mem_alloc_array(MEM_REQUEST, 1, sizeof *k, (void **)&k, err);
    if (!st) {
        k->r = r;
        load_stream_init(&k->s, r->t.stream);
        k->rec.t_start = clock_now_ns() - r->t0;
        struct net_post p = {.url = r->url,
                             .key = r->t.key,
                             .body = body.p,
                             .n_body = body.n,
                             .timeout_ms = r->t.timeout_ms,
                             .on_data = on_data,
                             .on_done = on_done,
                             .user = k};
        st = net_client_post(r->client, &p, err);
        if (st) {
            load_stream_fini(&k->s);
            mem_free(k);
        }
    }
    str_fini(&body);
    return st;
}

static int64_t gap_ns(const struct load_level *l, int64_t i)
{
    double u = rng_uniform(l->seed, 11, (uint64_t)i);
    return (int64_t)(-log1p(-u) / l->rate * 1e9);
}

/* The request that comes next. */
struct due {
    struct load_item it;
    bool have;       /* it was taken from the source and is not yet started */
    int64_t at_ns;   /* when it is due, from the level's start, where the level has times */
    int64_t wait_ns; /* until then; -1 = until another one ends */
};

/* Start what is due. */
static sl_status start_due(load_run *r, const struct load_level *l, const struct load_source *s,
                           struct due *d, sl_err *err)
{
    d->wait_ns = -1;
    while (!l->number || r->n_started < l->number) {
        int64_t now = clock_now_ns() - r->t0;
        if (l->duration_s > 0 && (double)now * 1e-9 >= l->duration_s) return SL_OK;
        if (!d->have) {
            if (!s->next(s->user, r->item_at, &d->it)) return SL_OK;
            r->item_at++;
            d->have = true;
            if (l->rate > 0) d->at_ns += gap_ns(l, r->n_started);
            if (l->timed) d->at_ns = d->it.at_ns;
        }
        bool timed = l->rate > 0 || l->timed;
        if (timed && d->at_ns > now) {
            d->wait_ns = d->at_ns - now;
            return SL_OK;
        }
        int busy = net_client_busy(r->client);
        if (timed ? busy >= IN_FLIGHT_MAX : busy >= l->parallel) return SL_OK;
        SL_TRY(start(r, &d->it, err));
        r->n_started++;
        d->have = false;
    }
    return SL_OK;
}

static bool over(const load_run *r, const struct load_level *l, bool have, bool ended)
{
    if (l->number && r->n_started >= l->number) return true;
    if (l->duration_s > 0 && (double)(clock_now_ns() - r->t0) * 1e-9 >= l->duration_s) return true;
    return ended && !have;
}

static void summary(load_run *r, const struct load_level *l, struct load_result *out)
{
    struct load_result *s = &r->res;
    s->level = *l;
    s->seconds = (double)r->t_last_end * 1e-9;
    load_dist_of(r->ttft.v, r->ttft.n, &s->ttft_ms);
    load_dist_of(r->tpot.v, r->tpot.n, &s->tpot_ms);
    load_dist_of(r->itl.v, r->itl.n, &s->itl_ms);
    load_dist_of(r->latency.v, r->latency.n, &s->latency_ms);
    if (s->seconds > 0) {
        s->out_tps = (double)s->n_out / s->seconds;
        s->total_tps = (double)(s->n_out + s->n_in) / s->seconds;
        s->req_ps = (double)s->n_ok / s->seconds;
    }
    if (s->n_ok) {
        s->in_mean = (double)s->n_in / (double)s->n_ok;
        s->out_mean = (double)s->n_out / (double)s->n_ok;
    }
    if (s->tpot_ms.mean > 0) s->tps_user = 1000 / s->tpot_ms.mean;
    s->tok_per_piece = r->pieces_n ? (double)r->pieces_out / (double)r->pieces_n : 0;
    *out = *s;
}

static void reset(load_run *r)
{
    r->res = (struct load_result){0};
    r->ttft.n = r->tpot.n = r->itl.n = r->latency.n = 0;
    r->n_started = r->n_done = r->n_answer = r->t_last_end = 0;
    r->pieces_out = r->pieces_n = 0;
    r->failed = SL_OK;
    r->only = NULL;
    r->t0 = r->t_tick = clock_now_ns();
}

static sl_status tick(load_run *r, const struct load_level *l, sl_err *err)
{
    int64_t now = clock_now_ns();
    if (r->failed) {
        if (err) *err = r->err;
        return r->failed;
    }
    if (!r->tick || now - r->t_tick < 200000000) return SL_OK;
    r->t_tick = now;
    if (r->tick(r->user, r->n_done, l->number)) return SL_FAIL(err, CANCELLED, "stopped");
    return SL_OK;
}

sl_status load_level_run(load_run *r, const struct load_level *l, const struct load_source *s,
                         struct load_result *out, sl_err *err)
{
    struct due d = {.have = false};
    reset(r);
    for (;;) {
        int64_t was = r->n_started;
        SL_TRY(start_due(r, l, s, &d, err));
        bool ended = d.wait_ns < 0 && r->n_started == was && !d.have;
        if (over(r, l, d.have, ended) && !net_client_busy(r->client)) break;
        int64_t ms = d.wait_ns < 0 ? 100 : BASE_MIN(d.wait_ns / 1000000 + 1, 100);
        SL_TRY(net_client_poll(r->client, (int)ms, err));
        SL_TRY(tick(r, l, err));
    }
    summary(r, l, out);
    if (out->n && !r->n_answer)
        return SL_FAIL(err, IO, "%s: no request got an answer: %s", r->url, out->why);
    return SL_OK;
}

sl_status load_one(load_run *r, const struct load_item *it, struct load_rec *out, sl_err *err)
{
    static const struct load_level one = {.parallel = 1, .number = 1};
    reset(r);
    *out = (struct load_rec){0};
    r->only = out;
    SL_TRY(start(r, it, err));
    while (net_client_busy(r->client)) {
        SL_TRY(net_client_poll(r->client, 100, err));
        SL_TRY(tick(r, &one, err));
    }
    if (!out->http) return SL_FAIL(err, IO, "%s: %s", r->url, out->why);
    return SL_OK;
}
