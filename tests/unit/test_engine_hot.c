/* SPDX-License-Identifier: Apache-2.0 */
/* Hot experts: whichever lie on the device beside the CPU, every row of logits has the bits of one
 * device; hits are those that routers counted; others become hot between requests, not under one;
 * what can not be is refused by name. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/ranks.h"
#include "engine_tiny.h"

#define N_NEW 20
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

static sl_engine_opts opts_of(const char *device, int n_hot)
{
    return (sl_engine_opts){.n_thread = 2,
                            .n_ctx = 256,
                            .n_seq_max = 2,
                            .n_chunk = 16,
                            .device = device,
                            .place = strcmp(device, "cpu") == 0 ? "" : "experts=cpu",
                            .n_hot = n_hot};
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

/* A request after the other, of different prompts. */
static void ask(sl_engine *e, int n, struct got *g)
{
    for (int k = 0; k < n; k++) {
        int32_t ids[30];
        for (int i = 0; i < 30; i++)
            ids[i] = (i * (7 + 2 * k) + 3) % 290;
        sl_request q = {.ids = ids,
                        .n_ids = 30,
                        .max_tokens = N_NEW,
                        .ignore_eos = 1,
                        .on_event = on_event,
                        .user = g};
        ASSERT_OK(sl_submit(e, &q, NULL, &err));
        while (sl_pending(e))
            ASSERT_OK(sl_step(e, &err));
    }
}

static void run(sl_model *m, const sl_engine_opts *o, int n, struct got *g, sl_stats *st)
{
    sl_engine *e = open_engine(m, o, g);
    ask(e, n, g);
    if (st) sl_stats_get(e, st);
    sl_engine_close(e);
}

static void check_same(const struct got *a, const struct got *b, const char *what, int n_hot)
{
    if (a->n_tok != b->n_tok || a->n_row != b->n_row || a->n_tok == 0 ||
        memcmp(a->tok, b->tok, sizeof a->tok) != 0 || memcmp(a->row, b->row, sizeof a->row) != 0)
        fail_msg("%s, %d hot: other bits", what, n_hot);
}

static const char *const devices[] = {"check", "sim:clock=real,lat=1us,hand=1us", "sim"};

/* With any number of hot experts, with some that come late and with drafts. */
static void has_the_bits(const char *name, int n_defer)
{
    struct got one, other;
    sl_model *m = NULL;
    sl_model_info mi;
    sl_stats st;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine_opts o = opts_of("cpu", 0);
    o.n_defer = n_defer;
    run(m, &o, 1, &one, NULL);
    const int n_hot[] = {1, mi.n_expert / 2, mi.n_expert};
    for (int i = 0; i < BASE_COUNT_OF(devices); i++) {
        o = opts_of(devices[i], n_hot[i % 3]);
        o.n_defer = n_defer;
        o.draft = i % 2 && mi.n_mtp ? "mtp" : NULL;
        o.draft_always = 1;
        run(m, &o, 1, &other, &st);
        if (!o.draft) check_same(&one, &other, name, o.n_hot);
        else assert_memory_equal(one.tok, other.tok, sizeof one.tok);
        assert_true(st.n_hot_hit + st.n_hot_miss > 0);
        if (o.n_hot == mi.n_expert) assert_true(st.n_hot_miss == 0 && st.hot_saved_bytes > 0);
    }
    sl_model_close(m);
}

TEST(engine_hot_has_the_bits_of_one_device)
{
    has_the_bits("qwen3_moe", 0);
    has_the_bits("glm4_moe_lite.gguf", 0);
    has_the_bits("gpt_oss", 0); /* biases */
    has_the_bits("deepseek_v3", 0);
}

TEST(engine_hot_has_the_bits_of_one_device_with_late_ones)
{
    has_the_bits("qwen3_moe", 1);
    has_the_bits("glm4_moe_lite.gguf", 2);
    has_the_bits("gpt_oss", 1);
}

/* Two devices that share the layers have hot experts each of its own. */
static void has_them_on_two(const char *name, const char *second, int n_defer)
{
    struct got one, other;
    sl_model *m = NULL;
    sl_model_info mi;
    char place[96];
    int n, n_first = 0, n_second = 0, from = 0;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine_opts o = opts_of("cpu", 0);
    o.n_defer = n_defer;
    run(m, &o, 1, &one, NULL);
    for (int il = 0; il < mi.n_layer; il++)
        if (m->cfg.layer[il].ffn == ARCH_MOE) from = il;
    snprintf(place, sizeof place, "layers@%d-%d=%s;experts=cpu", from, mi.n_layer - 1, second);
    o = opts_of("check", 2);
    o.n_defer = n_defer;
    o.place = place;
    sl_engine *e = open_engine(m, &o, &other);
    ask(e, 1, &other);
    for (int il = 0; il < mi.n_layer; il++) {
        (void)model_hot_get(e->net, il, &n);
        *(il < from ? &n_first : &n_second) += n;
    }
    assert_true(n_first > 0 && n_second > 0);
    check_same(&one, &other, place, 2);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_hot_on_each_of_two_devices)
{
    has_them_on_two("glm4_moe_lite.gguf", "sim", 0);
    has_them_on_two("qwen3_moe", "sim:clock=real,lat=1us,hand=1us", 0);
    has_them_on_two("gpt_oss", "sim", 1);
}

#define E_MAX 64

/* Those that the load says are chosen most, the lower of equals; terms are counted as routers do.
 */
TEST(engine_hot_hits_are_those_of_the_router)
{
    struct got g;
    sl_model *m = NULL;
    uint64_t load[8 * E_MAX] = {0}, n[E_MAX];
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_model_info mi;
    sl_model_info_get(m, &mi);
    int E = mi.n_expert;
    for (int il = 0; il < mi.n_layer; il++)
        for (int i = 0; i < E; i++)
            load[il * E + i] = (uint64_t)((i * 5 + il) % E / 2);
    sl_engine_opts o = opts_of("check", 3);
    o.hot_load = load;
    o.n_hot_load = mi.n_layer;
    sl_engine *e = open_engine(m, &o, &g);
    ask(e, 2, &g);
    uint64_t hit = 0, all = 0;
    for (int il = 0; il < mi.n_layer; il++) {
        int n_hot, n_expert = sl_routed(e, il, n, E_MAX);
        const int32_t *hot = model_hot_get(e->net, il, &n_hot);
        if (!n_expert) continue;
        assert_int_equal(n_hot, 3);
        for (int i = 0; i < E; i++)
            all += n[i];
        for (int i = 0; i < n_hot; i++) {
            int n_before = 0;
            const uint64_t *l = load + il * E;
            hit += n[hot[i]];
            for (int x = 0; x < E; x++)
                n_before += l[x] > l[hot[i]] || (l[x] == l[hot[i]] && x < hot[i]);
            assert_true(n_before < 3);
        }
    }
    sl_stats st;
    sl_stats_get(e, &st);
    assert_true(hit > 0 && hit < all);
    assert_int_equal(st.n_hot_hit, hit);
    assert_int_equal(st.n_hot_miss, all - hit);
    sl_engine_close(e);
    sl_model_close(m);
}

/* Others become hot between requests: answers stay, those of the last request are hot. */
TEST(engine_hot_update_changes_no_answer)
{
    struct got one, other;
    sl_model *m = NULL;
    uint64_t before[8][E_MAX], now[E_MAX];
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_model_info mi;
    sl_model_info_get(m, &mi);
    sl_engine_opts o = opts_of("cpu", 0);
    run(m, &o, 4, &one, NULL);
    for (int i = 0; i < BASE_COUNT_OF(devices); i++) {
        sl_stats st;
        o = opts_of(devices[i], 2);
        o.hot_update = 40;
        sl_engine *e = open_engine(m, &o, &other);
        ask(e, 3, &other);
        for (int il = 0; il < mi.n_layer; il++)
            (void)sl_routed(e, il, before[il], E_MAX);
        other.n_tok = other.n_row = 0; /* the whole list again: the fourth is new */
        memset(&other, 0, sizeof other);
        ask(e, 4, &other);
        check_same(&one, &other, devices[i], 2);
        sl_stats_get(e, &st);
        assert_true(st.n_hot_update > 0);
        assert_int_equal(e->pool.n_kept, 0); /* the prefix cache was dropped with it */
        for (int il = 0; il < mi.n_layer; il++) {
            int n_hot;
            const int32_t *hot = model_hot_get(e->net, il, &n_hot);
            (void)sl_routed(e, il, now, E_MAX);
            for (int k = 0; k < n_hot; k++)
                assert_true(hot[k] >= 0 && hot[k] < mi.n_expert && now[hot[k]] > 0);
        }
        sl_engine_close(e);
    }
    sl_model_close(m);
}

TEST(engine_hot_auto_takes_what_memory_holds)
{
    struct got g;
    sl_model *m = NULL;
    int n_hot, n_all = 0;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_model_info mi;
    sl_model_info_get(m, &mi);
    sl_engine_opts o = opts_of("sim:mem=1G", SL_HOT_AUTO);
    sl_engine *e = open_engine(m, &o, &g);
    for (int il = 0; il < mi.n_layer; il++) {
        (void)model_hot_get(e->net, il, &n_hot);
        n_all += n_hot;
    }
    assert_true(n_all >= mi.n_expert); /* a gigabyte holds all of some layer at least */
    ask(e, 1, &g);
    sl_engine_close(e);
    sl_model_close(m);
}

/* The rank, a thread's, that has layer il. */
static const model *net_of(const sl_engine *e, int il)
{
    for (int r = 1; r < engine_n_rank(e); r++) {
        struct model_dims d = engine_rank_dims(e, r);
        if (model_has_layer(&e->m->cfg, &d, il)) return e->ranks->rank[r].f.net;
    }
    return e->net;
}

/* Each stage has those of its own layers; hits are summed. */
static void in_stages(const char *name, const char *layout, const char *device, int n_defer)
{
    struct got one, other;
    sl_model *m = NULL;
    sl_model_info mi;
    sl_stats st;
    uint64_t n[E_MAX], hit = 0, all = 0;
    int n_stage = 0;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine_opts o = opts_of("cpu", 0);
    o.n_defer = n_defer;
    run(m, &o, 2, &one, NULL);
    o = opts_of(device, 2);
    o.n_thread = 3;
    o.n_defer = n_defer;
    o.layout = layout;
    sl_engine *e = open_engine(m, &o, &other);
    ask(e, 2, &other);
    check_same(&one, &other, device, 2);
    sl_stats_get(e, &st);
    const model *last = NULL;
    for (int il = 0; il < mi.n_layer; il++) {
        int n_hot, n_expert = sl_routed(e, il, n, E_MAX);
        const model *net = net_of(e, il);
        const int32_t *hot = model_hot_get(net, il, &n_hot);
        n_stage += n_hot && net != last;
        if (n_hot) last = net;
        for (int i = 0; i < n_expert && n_hot; i++)
            all += n[i];
        for (int i = 0; i < n_hot; i++)
            hit += n[hot[i]];
    }
    if (strchr(device, ',') && strstr(device, "cpu")) assert_int_equal(n_stage, 1);
    else assert_int_equal(n_stage, engine_n_stage(e));
    assert_int_equal(st.n_hot_hit, hit);
    assert_int_equal(st.n_hot_miss, all - hit);
    assert_true(hit > 0 && hit < all && st.hot_saved_bytes > 0);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_hot_in_stages)
{
    in_stages("qwen3_moe", "pp=2", "check", 0);
    in_stages("gpt_oss", "pp=2", "check,sim", 0);
    in_stages("qwen3_moe", "pp=2", "check,cpu", 0);
    in_stages("qwen3_moe", "pp=2", "cpu,check", 0);
    in_stages("qwen3_moe", "pp=2", "sim:clock=real,lat=1us,hand=1us", 1);
    in_stages("glm4_moe_lite.gguf", "pp=2", "sim,check", 1);
}

/* All stages choose again, and auto takes what each one's device holds. */
TEST(engine_hot_in_stages_changes)
{
    struct got one, other;
    sl_model *m = NULL;
    sl_stats st;
    ASSERT_OK(sl_model_open(tiny("qwen3_moe"), NULL, &m, &err));
    sl_engine_opts o = opts_of("cpu", 0);
    run(m, &o, 4, &one, NULL);
    for (int i = 0; i < 2; i++) {
        o = opts_of(i ? "sim:mem=1G,sim:mem=1G" : "check", i ? SL_HOT_AUTO : 2);
        o.layout = "pp=2";
        o.hot_update = 40;
        sl_engine *e = open_engine(m, &o, &other);
        for (int k = 0; k < 2; k++) {
            other.n_tok = other.n_row = 0;
            ask(e, 4, &other);
            check_same(&one, &other, o.device, o.n_hot);
        }
        sl_stats_get(e, &st);
        assert_int_equal(st.n_hot_update > 0, !i); /* auto: all are hot */
        assert_true(st.n_hot_hit > 0);
        assert_int_equal(st.n_hot_miss > 0, !i);
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

TEST(engine_hot_refuses_by_name)
{
    sl_engine_opts o = opts_of("cpu", 2);
    refuses("qwen3_moe", &o, "hot-experts: the experts of no layer lie on the CPU beside a device");
    o = opts_of("check", 2);
    o.place = "";
    refuses("smollm", &o, "hot-experts: 2: this model has 0 experts in a layer");
    refuses("qwen3_moe", &o, "hot-experts: the experts of no layer lie on the CPU beside a device");
    o = opts_of("check", 1000);
    refuses("qwen3_moe", &o, "hot-experts: 1000: this model has");
    o = opts_of("check", -2);
    refuses("qwen3_moe", &o, "hot-experts: -2: from 0 to");
    o = opts_of("check", 0);
    o.hot_update = 1;
    refuses("qwen3_moe", &o, "hot-update: goes with hot-experts");
    o = opts_of("check", 2);
    o.layout = "tp=2";
    refuses("qwen3_moe", &o, "hot-experts: not where ranks share layers (tp, dp, ep of the ");
    o = opts_of("cpu", 2);
    o.layout = "pp=2";
    refuses("qwen3_moe", &o, "hot-experts: the experts of no layer lie on the CPU beside a device");
    o = opts_of("sim:mem=400K", 4);
    refuses("qwen3_moe", &o, " MiB needed (weights ");
}
