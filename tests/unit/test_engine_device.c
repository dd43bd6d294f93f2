/* SPDX-License-Identifier: Apache-2.0 */
/* A short run on the device `check` whose k-th call fails, for every k: opening says why in one
 * line, or the requests of the failed step do; nothing leaks, nothing hangs. The same where the
 * device is lost at its k-th call, and of `sim` for every allocation that fails, and submit that
 * never ends. A device that was lost is opened again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_NEW 3
#define CALLS_MAX 3000

static sl_err err;

struct got {
    int n_tok, n_end;
    int32_t tok[N_NEW];
    sl_status status;
    char text[sizeof err.text];
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->token >= 0 && g->n_tok < N_NEW) g->tok[g->n_tok++] = ev->token;
    if (ev->finish == SL_FINISH_NONE) return;
    g->n_end++;
    g->status = ev->finish == SL_FINISH_ERROR ? ev->status : SL_OK;
    snprintf(g->text, sizeof g->text, "%s", ev->finish == SL_FINISH_ERROR ? ev->error : "");
}

static sl_status ask(sl_engine *e, struct got *g)
{
    static const int32_t ids[20] = {5, 9, 3, 7, 1, 2, 8, 4, 6, 10, 11};
    sl_request q = {.ids = ids,
                    .n_ids = 20,
                    .max_tokens = N_NEW,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = g};
    memset(g, 0, sizeof *g);
    SL_TRY(sl_submit(e, &q, NULL, &err));
    for (int n = 0; sl_pending(e); n++) {
        assert_true(n < 100);
        SL_TRY(sl_step(e, &err));
    }
    return SL_OK;
}

/* Open an engine on that device and ask twice. What the first that fails says, in err. */
static sl_status run(sl_model *m, const char *device, struct got g[2])
{
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .n_seq_max = 2, .n_chunk = 16};
    o.device = device;
    memset(g, 0, 2 * sizeof *g);
    SL_TRY(sl_engine_open(m, &o, &e, &err));
    sl_status st = SL_OK;
    for (int i = 0; i < 2 && !st; i++) {
        st = ask(e, &g[i]);
        assert_true(st || g[i].n_end == 1);
    }
    assert_int_equal(sl_pending(e), 0);
    assert_int_equal(sched_check(&e->sched), 0);
    sl_engine_close(e);
    return st;
}

static int64_t held(void)
{
    int64_t n = 0;
    for (int i = 0; i < MEM_N_TAG; i++)
        n += mem_used((enum mem_tag)i);
    return n;
}

static bool same_answer(const struct got *a, const struct got *b)
{
    return a->n_tok == b->n_tok && memcmp(a->tok, b->tok, sizeof a->tok) == 0;
}

/* One line that names the device and the call. */
static void check_text(const char *text, const char *what)
{
    assert_non_null(strstr(text, "device 'check'"));
    assert_non_null(strstr(text, what));
    assert_null(strchr(text, '\n'));
}

/* The k-th call fails; false when there is no such call. */
static bool failed_call(sl_model *m, int k, const struct got *good, int *n_step)
{
    struct got g[2];
    char device[40], what[40];
    int n_bad = 0;
    snprintf(device, sizeof device, "check:fail=%d", k);
    snprintf(what, sizeof what, "call %d ", k);
    sl_status st = run(m, device, g);
    if (st) {
        check_text(err.text, what);
        return true;
    }
    for (int i = 0; i < 2; i++) {
        if (!g[i].status) {
            assert_true(same_answer(&g[i], good));
            continue;
        }
        check_text(g[i].text, what);
        n_bad++;
    }
    assert_true(n_bad <= 1); /* the engine goes on */
    *n_step += n_bad;
    return n_bad > 0;
}

/* The device is lost at the k-th call. */
static bool lost_call(sl_model *m, int k)
{
    struct got g[2];
    char device[40], what[40];
    snprintf(device, sizeof device, "check:lost=%d", k);
    snprintf(what, sizeof what, "lost at call %d,", k);
    sl_status st = run(m, device, g);
    if (!st) return false;
    assert_int_equal(st, SL_DEVICE);
    check_text(err.text, what);
    for (int i = 0; i < 2; i++)
        if (g[i].n_end && g[i].status) check_text(g[i].text, what);
    return true;
}

static void every_call(const char *name)
{
    sl_model *m = NULL;
    struct got good[2], same[2];
    int k = 1, n_step = 0;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    ASSERT_OK(run(m, "cpu", good));
    ASSERT_OK(run(m, "check", same));
    assert_true(good[0].n_tok == N_NEW && same_answer(&good[0], &good[1]));
    assert_true(same_answer(&good[0], &same[0]) && same_answer(&good[0], &same[1]));
    int64_t before = held();
    log_set_level(LOG_ERROR); /* a line for each failed step is right, but not here */
    for (; failed_call(m, k, &good[0], &n_step); k++) {
        assert_true(lost_call(m, k));
        assert_int_equal(held(), before);
        assert_true(k < CALLS_MAX);
    }
    assert_false(lost_call(m, k));
    log_set_level(LOG_WARN);
    assert_true(n_step > 50 && k > n_step + 20); /* in steps, and while it opens */
    sl_model_close(m);
}

TEST(engine_device_fails_at_every_call)
{
    every_call("llama3.gguf");
}

TEST(engine_device_fails_at_every_call_of_experts_and_latents)
{
    every_call("deepseek_v3.gguf");
}

/* The k-th allocation of `sim` fails, or the device is lost at its k-th submit, or hangs there. */
static bool sim_call(sl_model *m, const char *kind, int k, const char *says)
{
    struct got g[2];
    char device[40], what[60];
    snprintf(device, sizeof device, "sim:fail=%s:%d", kind, k);
    snprintf(what, sizeof what, "%s %d", says, k);
    sl_status st = run(m, device, g);
    if (!st) return false;
    if (!strstr(err.text, "device 'sim'") || !strstr(err.text, what) || strchr(err.text, '\n'))
        fail_msg("%s: '%s', not '%s'", device, err.text, what);
    assert_int_equal(st, strcmp(kind, "alloc") == 0 ? SL_NOMEM : SL_DEVICE);
    return true;
}

TEST(engine_device_sim_fails_at_every_call)
{
    static const struct {
        const char *kind, *says;
        int least;
    } row[] = {{"alloc", "allocation", 20}, {"lost", "lost at call", 50}, {"hang", "submit", 50}};
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &m, &err));
    int64_t before = held();
    log_set_level(LOG_ERROR);
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        int k = 1;
        for (; sim_call(m, row[i].kind, k, row[i].says); k++) {
            assert_int_equal(held(), before);
            assert_true(k < CALLS_MAX);
        }
        assert_true(k > row[i].least);
    }
    log_set_level(LOG_WARN);
    sl_model_close(m);
}

/* A thread that hangs is found out when the wait is cut, one that is slow is waited for. */
TEST(engine_device_waits_are_cut)
{
    static const char fast[] = "sim:clock=real,lat=0us,hand=0us,bw=9000,cut=60ms,fail=";
    sl_model *m = NULL;
    struct got g[2];
    char device[100];
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &m, &err));
    log_set_level(LOG_ERROR);
    snprintf(device, sizeof device, "%shang:200", fast);
    int64_t t0 = clock_now_ns();
    assert_int_equal(run(m, device, g), SL_DEVICE);
    assert_non_null(strstr(err.text, "lost (no answer in 0.06 s: submit 200 hangs"));
    assert_true(clock_now_ns() - t0 > 60000000);
    snprintf(device, sizeof device, "%sslow:200", fast);
    t0 = clock_now_ns();
    ASSERT_OK(run(m, device, g));
    assert_true(clock_now_ns() - t0 > 1000000000);
    log_set_level(LOG_WARN);
    sl_model_close(m);
}

static sl_status lose(void *user, bool wait, sl_err *e)
{
    int *left = user;
    if (wait && --*left == 0) return SL_FAIL(e, DEVICE, "it is gone");
    return SL_OK;
}

struct told {
    int64_t done, total;
    char what[64];
    int n, n_back;
};

static int on_progress(void *user, const char *what, int64_t done, int64_t total)
{
    struct told *t = user;
    t->n_back += t->n++ && (done < t->done || total != t->total || strcmp(what, t->what) != 0);
    snprintf(t->what, sizeof t->what, "%s", what);
    t->done = done;
    t->total = total;
    return 0;
}

/* Mesa's driver in software leaks a little by itself, and is unloaded before LeakSanitizer could be
 * told whose that is. */
#ifdef __SANITIZE_ADDRESS__
#define CARDS_LEAK 1
#else
#define CARDS_LEAK 0
#endif

/* What is told while weights go to a device never goes back, and ends with all of them. */
TEST(engine_device_tells_how_far_it_is)
{
    static const struct {
        const char *device, *place, *what;
    } rows[] = {{"cpu", "", "packing weights"},
                {"check", "", "uploading weights to check"},
                {"sim", "experts=cpu", "uploading weights to sim"},
                {"cpu", "experts=check; head=check", "packing weights"},
                {"vulkan:0,staged,slab=65536", "experts=cpu", "uploading weights to vulkan:0"}};
    static const char *const models[] = {"qwen3_moe", "deepseek_v2_lite.gguf", "llama3.gguf"};
    log_set_level(LOG_ERROR);
    for (int k = 0; k < 2 * BASE_COUNT_OF(models); k++)
        for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
            struct told t = {0};
            sl_model *m = NULL;
            sl_engine *e = NULL;
            bool is_card = strncmp(rows[i].device, "vulkan", 6) == 0;
            if (is_card && (k || CARDS_LEAK)) continue;
            if (k / 2 == 2 && strstr(rows[i].place, "experts")) continue; /* a dense model */
            ASSERT_OK(sl_model_open(tiny(models[k / 2]), NULL, &m, &err));
            sl_engine_opts o = {.n_thread = 1 + k % 2, .n_ctx = 64, .n_seq_max = 2};
            o.device = rows[i].device;
            o.place = rows[i].place;
            o.progress = on_progress;
            o.user = &t;
            sl_status st = sl_engine_open(m, &o, &e, &err);
            if (!is_card) ASSERT_OK(st); /* which may not be there */
            if (!st && (t.n < 3 || t.n_back || t.done != t.total || strcmp(t.what, rows[i].what)))
                fail_msg("%s, %s: told %d times, %d backwards, '%s' %lld of %lld", models[k / 2],
                         rows[i].device, t.n, t.n_back, t.what, (long long)t.done,
                         (long long)t.total);
            sl_engine_close(e);
            sl_model_close(m);
        }
    log_set_level(LOG_WARN);
}

TEST(engine_device_lost_is_opened_again)
{
    static const char *const devices[] = {"cpu", "check", "sim:clock=real,lat=1us,hand=1us"};
    sl_model *m = NULL;
    struct got good[2], g;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    ASSERT_OK(run(m, "cpu", good));
    log_set_level(LOG_ERROR);
    for (int i = 0; i < BASE_COUNT_OF(devices); i++) {
        sl_engine *e = NULL;
        int left = 2;
        sl_device_info d[4];
        sl_stats st;
        sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .n_seq_max = 2, .n_chunk = 16};
        o.device = devices[i];
        o.place = i ? "experts=cpu" : NULL;
        o.n_hot = i ? 2 : 0;
        o.stream_from = i ? 2 : 0;
        ASSERT_OK(sl_engine_open(m, &o, &e, &err));
        ASSERT_OK(sl_reopen(e, &err)); /* nothing is lost */
        e->fault = lose;
        e->fault_user = &left;
        assert_int_equal(ask(e, &g), SL_DEVICE);
        assert_true(g.n_end == 1 && g.status == SL_DEVICE && !sl_ready(e));
        assert_int_equal(ask(e, &g), SL_DEVICE); /* nobody gets in */
        ASSERT_OK(sl_reopen(e, &err));
        assert_true(sl_ready(e) && sl_engine_devices(e, d, 4) == 1 + (i > 0));
        ASSERT_OK(ask(e, &g));
        assert_true(g.status == SL_OK && same_answer(&g, &good[0]));
        sl_stats_get(e, &st);
        assert_int_equal(st.n_reopen, 1);
        sl_engine_close(e);
    }
    log_set_level(LOG_WARN);
    sl_model_close(m);
}

TEST(engine_device_falls_back_when_asked_to)
{
    sl_model *m = NULL;
    sl_engine *e = NULL;
    sl_engine_info info;
    int n_fell = 0;
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &m, &err));
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .device = "cuda:40", .fallback = "cpu"};
    o.stream_from = SL_STREAM_AUTO; /* which there is nothing to do for then */
    log_set_level(LOG_ERROR);
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    sl_engine_info_get(e, &info);
    assert_int_equal(info.fallback, 1);
    sl_engine_close(e);
    o.device = "sim:mem=100K"; /* it opens, and has too little memory */
    o.stream_from = 0;
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    sl_engine_info_get(e, &info);
    assert_int_equal(info.fallback, 1);
    sl_engine_close(e);
    for (int k = 1; k < 40; k += 3) { /* it has enough, and then an allocation fails */
        char device[32];
        snprintf(device, sizeof device, "sim:fail=alloc:%d", k);
        o.device = device;
        ASSERT_OK(sl_engine_open(m, &o, &e, &err));
        sl_engine_info_get(e, &info);
        n_fell += info.fallback;
        sl_engine_close(e);
    }
    assert_true(n_fell > 5);
    o.device = "volcano";
    assert_int_equal(sl_engine_open(m, &o, &e, &err), SL_UNSUPPORTED); /* nobody knows it */
    o.device = "sim:speed=9";
    assert_int_equal(sl_engine_open(m, &o, &e, &err), SL_REQUEST);
    o.device = "cuda:40";
    o.fallback = NULL;
    assert_true(sl_engine_open(m, &o, &e, &err) != SL_OK);
    o.fallback = "gpu";
    assert_int_equal(sl_engine_open(m, &o, &e, &err), SL_REQUEST);
    log_set_level(LOG_WARN);
    sl_model_close(m);
}

/* Options that go with experts beside a device mean nothing where the CPU stands in for it. */
TEST(engine_device_falls_back_with_experts)
{
    sl_model *m = NULL;
    sl_engine *e = NULL;
    sl_engine_info info;
    static const char *const device[] = {"cuda:40", "sim:mem=100K"};
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    log_set_level(LOG_ERROR);
    for (int i = 0; i < 2; i++) {
        sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .device = device[i], .fallback = "cpu"};
        o.place = "experts=cpu";
        o.n_hot = 2;
        o.stream_from = 1;
        ASSERT_OK(sl_engine_open(m, &o, &e, &err));
        sl_engine_info_get(e, &info);
        assert_int_equal(info.fallback, 1);
        sl_engine_close(e);
    }
    log_set_level(LOG_WARN);
    sl_model_close(m);
}

#define SPARE_KIB (256 * 1024) /* that are left beside weights and cache whatever they are */

/* A device of so many KiB. */
static sl_status open_small(sl_model *m, sl_engine_opts o, int kib, sl_engine **e)
{
    char name[32];
    snprintf(name, sizeof name, "sim:mem=%dK", kib);
    o.device = name;
    *e = NULL;
    return sl_engine_open(m, &o, e, &err);
}

static void fits_so(sl_model *m, const sl_engine_opts *o, int kib, const char *text)
{
    sl_engine *e;
    if (open_small(m, *o, kib, &e)) fail_msg("%s: and yet: %s", text, err.text);
    sl_engine_close(e);
}

/* "NAME: ... MiB needed (weights ..., KV ..., activations ..., rest ...), ... free: ...", and what
 * is needed is the sum, up to the rounding of each. */
static bool adds_up(const char *text)
{
    double v[6];
    int n = 0;
    (void)sscanf(text, "%*[^ ] %lf MiB needed (weights %lf, KV %lf, activations %lf, rest %lf), "
                       "%lf free: %n",
                 &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &n);
    return n > 0 && fabs(v[0] - v[1] - v[2] - v[3] - v[4]) < 0.3 && v[0] >= v[5];
}

/* What is said of a device with too little memory is one line, and what it says fits does. */
TEST(engine_device_says_what_fits)
{
    sl_model *m = NULL;
    sl_engine *e;
    int n_seen[4] = {0};
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    log_set_level(LOG_ERROR);
    for (int kib = SPARE_KIB; kib < SPARE_KIB + 1200; kib += 20) {
        char text[sizeof err.text];
        const sl_engine_opts o = {.n_thread = 1, .n_ctx = 1024, .kv = SL_KV_F16};
        sl_engine_opts p;
        sl_status st = open_small(m, o, kib, &e);
        if (!st) sl_engine_close(e);
        if (!st) continue;
        snprintf(text, sizeof text, "%s", err.text);
        assert_int_equal(st, SL_NOMEM);
        if (strncmp(text, "sim:mem=", 8) != 0 || strchr(text, '\n') || !adds_up(text))
            fail_msg("%s", text);
        const char *c = strstr(text, "-c ");
        n_seen[0] += strstr(text, "too little for this model") != NULL;
        if (strstr(text, "--place experts=cpu")) {
            p = o, p.place = "experts=cpu";
            if (strstr(text, "experts=cpu and")) p.kv = SL_KV_Q8;
            fits_so(m, &p, kib, text);
            n_seen[1]++;
        }
        if (c) {
            p = o, p.n_ctx = atoi(c + 3);
            fits_so(m, &p, kib, text);
            p.n_ctx += 32;
            assert_int_equal(open_small(m, p, kib, &e), SL_NOMEM); /* it is the most */
            n_seen[2]++;
        }
        if (strstr(text, "--kv q8") && !strstr(text, "experts=cpu and")) {
            p = o, p.kv = SL_KV_Q8;
            fits_so(m, &p, kib, text);
            n_seen[3]++;
        }
    }
    for (int i = 0; i < 4; i++)
        if (!n_seen[i]) fail_msg("advice %d was never given", i);
    log_set_level(LOG_WARN);
    sl_model_close(m);
}

/* Steps of prompts that are streamed get shorter for want of memory, unless their length is asked
 * for. */
TEST(engine_device_halves_the_chunk)
{
    sl_model *m = NULL;
    sl_engine *e;
    int n_half = 0, last = 0;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    log_set_level(LOG_ERROR);
    for (int kib = SPARE_KIB; kib < SPARE_KIB + 30000 && last < 2048; kib += 200) {
        sl_engine_opts o = {.n_thread = 1, .n_ctx = 2048, .place = "experts=cpu"};
        o.stream_from = 1;
        if (open_small(m, o, kib, &e)) continue;
        int n = e->n_chunk;
        sl_engine_close(e);
        assert_true(n >= last && n >= 128 && (n & (n - 1)) == 0); /* more memory, longer ones */
        n_half += n < 2048 && n > last;
        last = n;
        o.n_chunk = 2048;
        sl_status st = open_small(m, o, kib, &e);
        assert_int_equal(st, n < 2048 ? SL_NOMEM : SL_OK);
        if (!st) sl_engine_close(e);
    }
    assert_int_equal(last, 2048);
    assert_true(n_half > 1);
    log_set_level(LOG_WARN);
    sl_model_close(m);
}
