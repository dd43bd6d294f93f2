/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts whose experts are streamed through the device: every row of logits has the bits of one
 * device, whichever steps are; auto begins where whole prompts are faster; what can not be is
 * refused by name. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/ranks.h"
#include "engine_tiny.h"

#define N_PROMPT 40
#define N_NEW 10
#define N_ROW 256

static sl_err err;

struct got {
    int n_tok, n_row;
    int32_t tok[4 * N_NEW];
    uint64_t row[N_ROW];
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->token >= 0) g->tok[g->n_tok++] = ev->token;
    if (ev->finish == SL_FINISH_ERROR) fail_msg("%s", ev->error);
}

static void tap(void *user, const struct request *r, const float *logit)
{
    struct got *g = user;
    (void)r;
    assert_true(g->n_row < N_ROW);
    g->row[g->n_row++] = hash_bytes(logit, 300 * sizeof *logit, 0);
}

static sl_engine_opts opts_of(const char *device, int from)
{
    return (sl_engine_opts){.n_thread = 2,
                            .n_ctx = 256,
                            .n_seq_max = 3,
                            .n_chunk = 16,
                            .device = device,
                            .place = strcmp(device, "cpu") == 0 ? "" : "experts=cpu",
                            .stream_from = from};
}

static sl_engine *open_engine(sl_model *m, const sl_engine_opts *o, struct got *g)
{
    sl_engine *e = NULL;
    memset(g, 0, sizeof *g);
    log_set_level(LOG_ERROR);
    ASSERT_OK(sl_engine_open(m, o, &e, &err));
    log_set_level(LOG_WARN);
    e->tap = tap;
    e->tap_user = g;
    return e;
}

static void submit(sl_engine *e, int k, int n_prompt, int n_new, struct got *g)
{
    int32_t ids[512];
    for (int i = 0; i < n_prompt; i++)
        ids[i] = (i * (7 + 2 * k) + 3) % 290;
    sl_request q = {.ids = ids,
                    .n_ids = n_prompt,
                    .max_tokens = n_new,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = g};
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

static void run(sl_model *m, const sl_engine_opts *o, struct got *g, sl_stats *st)
{
    sl_engine *e = open_engine(m, o, g);
    for (int k = 0; k < 2; k++)
        submit(e, k, N_PROMPT, N_NEW, g);
    sl_stats_get(e, st);
    sl_engine_close(e);
}

static void check_same(const struct got *a, const struct got *b, const char *what, int from)
{
    if (a->n_tok != b->n_tok || a->n_row != b->n_row || a->n_tok == 0 ||
        memcmp(a->tok, b->tok, sizeof a->tok) != 0 || memcmp(a->row, b->row, sizeof a->row) != 0)
        fail_msg("%s, streamed from %d tokens on: other bits", what, from);
}

static const char *const devices[] = {"check", "sim:clock=real,lat=1us,hand=1us", "sim"};

/* All steps, those of prompts, or those of whole chunks; with hot experts, with drafts. */
static void has_the_bits(const char *name, int n_defer)
{
    static const int from[] = {1, 9, 16};
    struct got one, other;
    sl_model *m = NULL;
    sl_model_info mi;
    sl_stats st;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine_opts o = opts_of("cpu", 0);
    o.n_defer = n_defer;
    run(m, &o, &one, &st);
    assert_int_equal(st.n_stream_step, 0);
    for (int i = 0; i < BASE_COUNT_OF(devices); i++)
        for (int k = 0; k < BASE_COUNT_OF(from); k++) {
            o = opts_of(devices[i], from[k]);
            o.n_defer = n_defer;
            o.n_hot = (i + k) % 3;
            o.draft = i == 1 && mi.n_mtp ? "mtp" : NULL;
            o.draft_always = 1;
            run(m, &o, &other, &st);
            if (!o.draft) check_same(&one, &other, name, from[k]);
            else assert_memory_equal(one.tok, other.tok, sizeof one.tok);
            assert_true(st.n_stream_step > 0 && st.stream_bytes > 0);
            assert_true(st.n_stream_tok >= (uint64_t)from[k] * st.n_stream_step);
        }
    sl_model_close(m);
}

TEST(engine_stream_has_the_bits_of_one_device)
{
    has_the_bits("qwen3_moe", 0);
    has_the_bits("glm4_moe_lite.gguf", 0);
    has_the_bits("gpt_oss", 0); /* biases */
    has_the_bits("deepseek_v3", 0);
}

TEST(engine_stream_has_the_bits_of_one_device_with_late_ones)
{
    has_the_bits("qwen3_moe", 1);
    has_the_bits("glm4_moe_lite.gguf", 2);
    has_the_bits("gpt_oss", 1);
}

/* The model, and what the CPU alone gets of it. */
static sl_model *alone(const char *name, int n_defer, struct got *one, sl_stats *st)
{
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_engine_opts o = opts_of("cpu", 0);
    o.n_defer = n_defer;
    run(m, &o, one, st);
    return m;
}

/* Parts elsewhere: routers and shared experts on the CPU too, some layers' experts on the device.
 */
static void goes_with(const char *name, const char *const *places, int n_place, int n_defer)
{
    struct got one, other;
    sl_stats st;
    sl_model *m = alone(name, n_defer, &one, &st);
    for (int i = 0; i < n_place; i++) {
        sl_engine_opts o = opts_of(devices[i % 3], 1 + 8 * (i % 2));
        o.n_defer = n_defer;
        o.place = places[i];
        run(m, &o, &other, &st);
        check_same(&one, &other, places[i], o.stream_from);
        assert_true(st.n_stream_step > 0);
    }
    sl_model_close(m);
}

TEST(engine_stream_goes_with_other_places)
{
    static const char *const moe[] = {"experts=cpu; router=cpu", "experts=cpu; shared=cpu",
                                      "experts=cpu; shared=cpu; router=cpu; dense=cpu"};
    static const char *const some[] = {"experts@0=cpu", "experts@1=cpu; router@1=cpu",
                                       "experts=cpu; router@0=cpu", "experts@1=cpu; router@0=cpu"};
    goes_with("deepseek_v3", moe, BASE_COUNT_OF(moe), 0);
    goes_with("glm4_moe_lite.gguf", moe, BASE_COUNT_OF(moe), 1);
    goes_with("qwen3_moe", some, BASE_COUNT_OF(some), 0);
    goes_with("qwen3_moe", some, BASE_COUNT_OF(some), 1);
}

/* Outputs in another form: other bits, which are those of one device with it. */
TEST(engine_stream_goes_with_combine)
{
    static const char *const form[] = {"bf16", "q8"};
    struct got plain, one, other;
    sl_model *m = NULL;
    sl_stats st;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_engine_opts o = opts_of("cpu", 0);
    run(m, &o, &plain, &st);
    for (int i = 0; i < 6; i++) {
        o = opts_of("cpu", 0);
        o.combine = form[i % 2];
        o.n_defer = i / 2 % 2;
        run(m, &o, &one, &st);
        assert_memory_not_equal(plain.row, one.row, sizeof one.row);
        o = opts_of(devices[i % 3], 1 + 8 * (i / 3));
        o.combine = form[i % 2];
        o.n_defer = i / 2 % 2;
        o.n_hot = i % 3;
        o.layout = i == 5 ? "pp=2" : NULL;
        run(m, &o, &other, &st);
        check_same(&one, &other, o.combine, o.stream_from);
        o.stream_from = 0;
        run(m, &o, &other, &st);
        check_same(&one, &other, o.combine, 0);
    }
    sl_model_close(m);
}

/* Terms of layers with hot experts, as routers count them: of all experts, and of hot ones. */
static void count_terms(sl_engine *e, int n_layer, uint64_t *all, uint64_t *hit)
{
    uint64_t n[64];
    *all = *hit = 0;
    for (int il = 0; il < n_layer; il++) {
        int n_hot, n_expert = sl_routed(e, il, n, BASE_COUNT_OF(n));
        const int32_t *hot = model_hot_get(e->net, il, &n_hot);
        for (int i = 0; i < n_expert && n_hot; i++)
            *all += n[i];
        for (int i = 0; i < n_hot; i++)
            *hit += n[hot[i]];
    }
}

/* Hits and misses are a recount, whether all steps are streamed or those of prompts alone, and with
 * routers on either side. */
TEST(engine_stream_counts_hot_experts)
{
    static const char *const place[] = {"experts=cpu", "experts=cpu; router=cpu",
                                        "experts=cpu; router@1=cpu"};
    sl_model *m = NULL;
    sl_model_info mi;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_model_info_get(m, &mi);
    for (int i = 0; i < 9; i++) {
        struct got g;
        sl_stats st;
        uint64_t all, hit;
        sl_engine_opts o = opts_of(devices[i % 3], i % 2 ? 9 : 1);
        o.n_hot = 3;
        o.n_defer = i / 3 % 2;
        o.place = place[i / 3];
        sl_engine *e = open_engine(m, &o, &g);
        submit(e, 0, N_PROMPT, N_NEW, &g);
        sl_stats_get(e, &st);
        count_terms(e, mi.n_layer, &all, &hit);
        assert_true(st.n_stream_step > 0 && hit > 0 && hit < all);
        assert_int_equal(st.n_hot_hit, hit);
        assert_int_equal(st.n_hot_miss, all - hit);
        if (o.stream_from == 1) /* none of the hot ones is ever sent */
            assert_int_equal(st.hot_saved_bytes,
                             st.n_stream_step * (uint64_t)model_hot_bytes(e->net));
        sl_engine_close(e);
    }
    sl_model_close(m);
}

/* Others become hot between requests: what is streamed changes with it, answers do not. */
TEST(engine_stream_goes_with_hot_experts_that_change)
{
    struct got one, other;
    sl_stats st;
    sl_model *m = alone("qwen3_moe", 0, &one, &st);
    sl_engine_opts o = opts_of("check", 4);
    o.n_hot = 2;
    o.hot_update = 30;
    sl_engine *e = open_engine(m, &o, &other);
    for (int k = 0; k < 3; k++) {
        other.n_tok = other.n_row = 0;
        for (int r = 0; r < 2; r++)
            submit(e, r, N_PROMPT, N_NEW, &other);
        check_same(&one, &other, "hot experts that change", 4);
    }
    sl_stats_get(e, &st);
    assert_true(st.n_hot_update > 0 && st.n_stream_step > 0);
    uint64_t all, hit;
    count_terms(e, 2, &all, &hit);
    assert_int_equal(st.n_hot_hit + st.n_hot_miss, all);
    sl_engine_close(e);
    sl_model_close(m);
}

/* How long a prompt of n tokens takes on the device's clock. */
static int64_t prompt_ns(sl_engine *e, int n, struct got *g)
{
    int64_t t0 = dev_now_ns(e->d);
    submit(e, n, n, 1, g);
    return dev_now_ns(e->d) - t0;
}

/* Auto begins within a tenth of where a whole prompt is faster; times are sim's, which are the same
 * on every machine. */
TEST(engine_stream_auto_begins_where_it_is_faster)
{
    const char *device = "sim:lat=100ns,hand=100ns,bus=1,host-bw=20,host-ops=24G";
    struct got g;
    sl_model *m = NULL;
    sl_engine *e[2];
    sl_engine_info info;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_engine_opts o = opts_of(device, SL_STREAM_AUTO);
    o.n_ctx = o.n_chunk = 512;
    o.no_reuse = 1;
    sl_engine *tried = open_engine(m, &o, &g);
    sl_engine_info_get(tried, &info);
    assert_true(info.stream_from > 1 && info.stream_from < 512);
    assert_true(info.stream_bus_gbps > 0.5 && info.stream_bus_gbps <= 1.0);
    assert_true(info.stream_cpu_gops > 12 && info.stream_cpu_gops <= 24);
    for (int k = 0; k < 2; k++) {
        o.stream_from = k;
        e[k] = open_engine(m, &o, &g);
    }
    int lo = 1, hi = 500;
    while (hi - lo > 1) {
        int n = (lo + hi) / 2;
        int64_t plain = prompt_ns(e[0], n, &g), streamed = prompt_ns(e[1], n, &g);
        if (streamed < plain) hi = n;
        else lo = n;
        g.n_tok = g.n_row = 0;
    }
    if (abs(info.stream_from - hi) > (hi + 9) / 10)
        fail_msg("from %d tokens on, by trying from %d", info.stream_from, hi);
    sl_engine_close(e[0]);
    sl_engine_close(e[1]);
    uint64_t n[64], sum = 0; /* trials are not counted */
    for (int i = sl_routed(tried, 1, n, 64) - 1; i >= 0; i--)
        sum += n[i];
    assert_int_equal(sum, 0);
    sl_engine_close(tried);
    sl_model_close(m);
}

TEST(engine_stream_auto_is_never_where_it_is_slower)
{
    struct got g;
    sl_model *m = NULL;
    sl_engine_info info;
    sl_stats st;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_engine_opts o = opts_of("sim:bus=0.01,host-bw=100,host-ops=1T", SL_STREAM_AUTO);
    sl_engine *e = open_engine(m, &o, &g);
    sl_engine_info_get(e, &info);
    assert_int_equal(info.stream_from, 0);
    submit(e, 0, N_PROMPT, 1, &g);
    sl_stats_get(e, &st);
    assert_int_equal(st.n_stream_step, 0);
    sl_engine_close(e);
    sl_model_close(m);
}

/* Stages stream alike, each the experts of its own layers, in steps that stay whole. */
static void in_stages(const char *name, const char *layout, const char *device, int n_defer)
{
    static const int from[] = {1, 9, 16};
    struct got one, other;
    sl_stats st;
    sl_model *m = alone(name, n_defer, &one, &st);
    for (int k = 0; k < BASE_COUNT_OF(from); k++) {
        sl_engine_opts o = opts_of(device, from[k]);
        o.n_thread = 3;
        o.n_defer = n_defer;
        o.n_hot = k;
        o.layout = layout;
        run(m, &o, &other, &st);
        check_same(&one, &other, device, from[k]);
        assert_true(st.n_stream_step > 0 && st.stream_bytes > 0);
        assert_true(st.n_stream_tok >= (uint64_t)from[k] * st.n_stream_step);
        assert_true(st.n_stream_tok <= st.n_prompt_tok + st.n_decode_tok);
        if (from[k] == 1) assert_true(st.n_stream_tok >= 2 * N_PROMPT);
    }
    sl_model_close(m);
}

TEST(engine_stream_in_stages)
{
    in_stages("qwen3_moe", "pp=2", "check", 0);
    in_stages("gpt_oss", "pp=2", "check,sim", 0);
    in_stages("deepseek_v3", "pp=2", "check", 0); /* a stage without experts */
    in_stages("qwen3_moe", "pp=2", "check,cpu", 0);
    in_stages("qwen3_moe", "pp=2", "cpu,check", 0);
    in_stages("qwen3_moe", "pp=2", "check,sim", 1);
    in_stages("glm4_moe_lite.gguf", "pp=2", "sim:clock=real,lat=1us,hand=1us", 2);
    in_stages("gpt_oss", "pp=3", "check", 1);
    in_stages("gpt_oss", "pp=3", "check,cpu,sim", 1); /* late ones pass a stage that streams none */
}

/* A long step, which stages otherwise compute in pieces; auto is one number for all of them. */
TEST(engine_stream_in_stages_whole_and_auto)
{
    struct got one, other;
    sl_model *m = NULL;
    sl_engine_info info;
    sl_stats st;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_engine_opts o = opts_of("cpu", 0);
    o.n_ctx = o.n_chunk = 512;
    sl_engine *e = open_engine(m, &o, &one);
    submit(e, 1, 400, 2, &one);
    sl_engine_close(e);
    for (int i = 0; i < 2; i++) {
        o = opts_of("sim:lat=100ns,hand=100ns,bus=1,host-bw=20,host-ops=24G",
                    i ? SL_STREAM_AUTO : 100);
        o.n_ctx = o.n_chunk = 512;
        o.layout = "pp=2";
        e = open_engine(m, &o, &other);
        sl_engine_info_get(e, &info);
        assert_true(i ? info.stream_from > 1 && info.stream_from < 400 : info.stream_from == 100);
        assert_int_equal(info.stream_bytes > 0, 1);
        submit(e, 1, 400, 2, &other);
        check_same(&one, &other, "pp=2", info.stream_from);
        sl_stats_get(e, &st);
        assert_int_equal(st.n_stream_step, 1);
        assert_int_equal(st.n_stream_tok, 400);
        assert_int_equal(st.stream_bytes, info.stream_bytes);
        sl_engine_close(e);
    }
    sl_model_close(m);
}

static void refuses(const char *name, const sl_engine_opts *o, const char *what)
{
    sl_engine *e = NULL;
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_status st = sl_engine_open(m, o, &e, &err);
    if (!st || !strstr(err.text, what) || strchr(err.text, '\n'))
        fail_msg("%d '%s', not '%s'", (int)st, st ? err.text : "", what);
    sl_model_close(m);
}

TEST(engine_stream_refuses_by_name)
{
    const char *nowhere = "stream-from: the experts of no layer lie on the CPU beside a device";
    sl_engine_opts o = opts_of("cpu", 1);
    refuses("qwen3_moe", &o, nowhere);
    o = opts_of("check", SL_STREAM_AUTO);
    o.place = "";
    refuses("qwen3_moe", &o, nowhere);
    refuses("smollm", &o, nowhere);
    o = opts_of("cpu", 1);
    o.layout = "pp=2";
    refuses("qwen3_moe", &o, nowhere);
    o = opts_of("check", 1);
    o.layout = "tp=2";
    refuses("qwen3_moe", &o, "stream-from: not where ranks share layers (tp, dp, ep of the ");
    o = opts_of("check", -2);
    refuses("qwen3_moe", &o, "stream-from: -2: from 0 to");
    o = opts_of("sim:mem=400K", 1);
    refuses("qwen3_moe", &o, " MiB needed (weights ");
    o = opts_of("check:lacks=send", 1);
    refuses("qwen3_moe", &o, "can not run operator 'send'");
}
