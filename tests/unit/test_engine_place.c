/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a model on a device of their own (opts.place): every row of logits has the bits that it
 * has on one device, with drafts of the MTP layer and with experts that come late (opts.n_defer)
 * too; what cannot be obeyed is refused by name. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/fit.h"
#include "engine_tiny.h"

#define N_NEW 24
#define DEMO TEST_DATA "/../../models/demo/demo.gguf"

static sl_err err;

struct got {
    int n_tok;
    int32_t tok[N_NEW];
    uint64_t row[N_NEW]; /* hashes of logits, by position in the answer */
    uint64_t n_draft;
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->token >= 0 && g->n_tok < N_NEW) g->tok[g->n_tok++] = ev->token;
    if (ev->finish == SL_FINISH_ERROR) fail_msg("%s", ev->error);
}

static void tap(void *user, const struct request *r, const float *logit)
{
    struct got *g = user;
    int i = r->n_ids - r->n_prompt;
    assert_true(i >= 0 && i < N_NEW);
    g->row[i] = hash_bytes(logit, 300 * sizeof *logit, 0);
}

static sl_engine_opts opts_of(const char *place, const char *draft)
{
    return (sl_engine_opts){.n_thread = 2,
                            .n_ctx = 256,
                            .n_seq_max = 2,
                            .n_chunk = 16,
                            .device = "cpu",
                            .place = place,
                            .draft = draft,
                            .draft_always = 1};
}

static void run_opts(sl_model *m, sl_engine_opts o, struct got *g)
{
    sl_engine *e = NULL;
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = (i * 7 + 3) % 300;
    sl_request q = {.ids = ids,
                    .n_ids = 40,
                    .max_tokens = N_NEW,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = g};
    memset(g, 0, sizeof *g);
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    e->tap = tap;
    e->tap_user = g;
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    sl_stats st;
    sl_stats_get(e, &st);
    for (int i = 0; i < SL_DRAFT_MAX; i++)
        g->n_draft += st.n_draft[i];
    sl_engine_close(e);
}

static void run(sl_model *m, const char *place, const char *draft, struct got *g)
{
    run_opts(m, opts_of(place, draft), g);
}

static void check_same(const struct got *a, const struct got *b, const char *what)
{
    if (a->n_tok != N_NEW || b->n_tok != N_NEW || memcmp(a->tok, b->tok, sizeof a->tok) != 0 ||
        memcmp(a->row, b->row, sizeof a->row) != 0)
        fail_msg("%s: other bits", what);
}

static void places(const char *name, const char *const *spec)
{
    struct got one, other;
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_model_info mi;
    sl_model_info_get(m, &mi);
    run(m, "", NULL, &one);
    for (; *spec; spec++) {
        run(m, *spec, NULL, &other);
        check_same(&one, &other, *spec);
        if (!mi.n_mtp) continue;
        run(m, *spec, "mtp", &other);
        assert_true(other.n_draft > 0);
        check_same(&one, &other, *spec);
    }
    sl_model_close(m);
}

TEST(engine_place_has_the_bits_of_one_device)
{
    static const char *const mtp[] = {"experts=check",
                                      "attn=check",
                                      "embed=check;head=check",
                                      "router=check; shared=check ;",
                                      "dense=check;experts@2=check",
                                      "re:ffn_=check",
                                      "re:(?=blk).*ffn_=sim:clock=real,lat=1us",
                                      "attn=check;head=check:lacks=attn;re:blk.1.ffn=check",
                                      "attn@1=check",
                                      "attn@0=check;experts=check",
                                      "layers@0-1=check",
                                      "layers@0=check;layers@1=sim:clock=real,lat=1us;head=sim",
                                      "re:blk.[01].attn_=check;attn@0=cpu;shared@1=cpu",
                                      NULL};
    static const char *const oss[] = {"experts@1=check", "attn=check;router=check", "head=check",
                                      "attn@0=check", "layers@1=check;embed=check", NULL};
    static const char *const tied[] = {"head=check",
                                       "embed=check",
                                       "attn=check",
                                       "dense=check",
                                       "dense@1=check",
                                       "attn@1=check",
                                       "layers@0=check;head=check",
                                       NULL};
    static const char *const window[] = {"attn@0=check", "layers@1=check", NULL};
    static const char *const delta[] = {"experts@4=check", "attn=check",
                                        "layers@0-1=check;head=check", "re:blk.[34].ffn_=check",
                                        NULL};
    static const char *const kda[] = {"attn@2=check", "attn@0=check;experts@3=check", NULL};
    static const char *const ling[] = {"attn@1=check", "attn@2=check;shared@3=check", NULL};
    static const char *const pools[] = {"attn@1=check", "attn@2=check;experts@3=check",
                                        "layers@0-1=check;head=check", NULL};
    places("mistral_window", window);
    places("glm4_moe", window);
    places("deepseek_v3", mtp);
    places("gpt_oss", oss);
    places("smollm", tied);
    places("qwen3_5_moe", delta);
    places("kimi_linear", kda);
    places("bailing_hybrid", ling);
    places("glm5_next", pools);
}

/* Experts that come late have the bits of the CPU wherever they are; the prompt's logits are those
 * of a model of which none do, the others are not. */
static void defers(const char *path, const char *const *spec)
{
    struct got none, one, other;
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(path, NULL, &m, &err));
    sl_model_info mi;
    sl_model_info_get(m, &mi);
    run(m, "", NULL, &none);
    for (int n = 1; n <= mi.n_expert_used; n++) {
        sl_engine_opts o = opts_of("", NULL);
        o.n_defer = n;
        run_opts(m, o, &one);
        assert_true(one.row[0] == none.row[0]);
        assert_true(one.row[1] != none.row[1] || one.tok[0] != none.tok[0]);
        for (int i = 0; spec[i]; i++) {
            o.place = spec[i];
            o.draft = i % 2 && mi.n_mtp ? "mtp" : NULL;
            run_opts(m, o, &other);
            check_same(&one, &other, spec[i]);
        }
    }
    sl_model_close(m);
}

TEST(engine_defer_has_the_bits_of_the_cpu_everywhere)
{
    static const char *const places[] = {"experts=check",
                                         "experts=sim:clock=real,lat=1us,hand=1us",
                                         "attn=check;dense=check;shared=check;router=check",
                                         "attn=sim:clock=real,lat=20us,hand=1us;head=cpu",
                                         "experts@1=check",
                                         "experts@2=check;router@1=check",
                                         "attn=check;experts@1=sim;router@2=sim",
                                         "layers@1=check",
                                         "attn@2=check;experts=check;router@1=check",
                                         NULL};
    defers(tiny("glm4_moe_lite.gguf"), places);
    defers(tiny("gpt_oss"), (const char *const[]){"experts@1=check", "attn=check", NULL});
    defers(DEMO, (const char *const[]){"attn=check", "experts=check;router=check", NULL}); /* MTP */
}

static void refuses_defer(const char *name, int n, const char *layout, const char *what)
{
    sl_engine *e = NULL;
    sl_model *m = NULL;
    sl_engine_opts o = opts_of("", NULL);
    o.n_defer = n;
    o.layout = layout;
    o.n_thread = 4;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_status st = sl_engine_open(m, &o, &e, &err);
    if (!st || !strstr(err.text, what) || strchr(err.text, '\n'))
        fail_msg("defer %d: %d '%s', not '%s'", n, (int)st, st ? err.text : "", what);
    sl_model_close(m);
}

TEST(engine_defer_refuses_by_name)
{
    refuses_defer("smollm", 1, NULL, "defer: 1: no layer of this model has experts");
    refuses_defer("deepseek_v3", 1, NULL, "defer: 1: no layer with experts follows another one");
    refuses_defer("qwen3_moe", 9, NULL, "defer: 9: of this model a token has 3 experts");
    refuses_defer("qwen3_moe", -1, NULL, "defer: -1: from 0 to 1024");
    refuses_defer("gpt_oss", 1, "tp=2", "defer: 1: not where ranks share");
}

TEST(engine_place_says_what_lies_where)
{
    sl_engine *e = NULL;
    sl_model *m = NULL;
    sl_device_info d[4];
    ASSERT_OK(sl_model_open(tiny("deepseek_v3"), NULL, &m, &err));
    sl_engine_opts o =
        opts_of("experts@2=check;head=check;head=cpu;dense=nothing;dense=cpu", "mtp");
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    assert_int_equal(sl_engine_devices(e, d, 4), 2);
    assert_string_equal(d[0].name, "cpu");
    assert_string_equal(d[0].parts, "embed, attn, dense, shared, router, experts@1, head");
    assert_string_equal(d[1].name, "check");
    assert_string_equal(d[1].parts, "experts@2");
    sl_engine_info info;
    sl_engine_info_get(e, &info);
    assert_true(d[0].weight_bytes > 0 && d[1].weight_bytes > 0);
    assert_int_equal(d[0].weight_bytes + d[1].weight_bytes, info.weight_bytes);
    assert_int_equal(d[0].kv_bytes, info.kv_bytes);
    assert_int_equal(d[1].kv_bytes, 0);
    uint64_t n[64];
    assert_int_equal(sl_routed(e, 1, n, 64), sl_routed(e, 2, n, 64));
    sl_engine_close(e);
    o.place = "layers@0=check;attn@1=check;attn@1=cpu";
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    assert_int_equal(sl_engine_devices(e, d, 4), 2);
    assert_string_equal(d[0].parts, "embed, attn@1-2, shared, router, experts, head");
    assert_string_equal(d[1].parts, "attn@0, dense");
    assert_int_equal(d[0].kv_bytes + d[1].kv_bytes, info.kv_bytes);
    assert_int_equal(d[0].kv_bytes, 2 * d[1].kv_bytes);
    sl_engine_close(e);
    sl_model_close(m);
}

static void refused(sl_model *m, const char *place, sl_status code, const char *what)
{
    sl_engine *e = NULL;
    sl_engine_opts o = opts_of(place, NULL);
    log_set_level(LOG_ERROR);
    sl_status st = sl_engine_open(m, &o, &e, &err);
    log_set_level(LOG_WARN);
    if (st != code || !strstr(err.text, what) || strchr(err.text, '\n'))
        fail_msg("%s: %d '%s', not %d '%s'", place, (int)st, st ? err.text : "", (int)code, what);
}

TEST(engine_place_refuses_by_name)
{
    static const struct {
        const char *place;
        sl_status code;
        const char *what;
    } row[] = {
        {"foo=cpu", SL_REQUEST, "'foo' is no part of a model"},
        {"experts=foo", SL_UNSUPPORTED, "device 'foo' is not known"},
        {"experts@3=check", SL_REQUEST, "'experts@3=check': there is no layer 3"},
        {"experts@2-1=check", SL_REQUEST, "'experts@2-1=check': layers are named"},
        {"experts@=check", SL_REQUEST, "layers are named"},
        {"experts@1-2x=check", SL_REQUEST, "layers are named"},
        {"experts@0=check", SL_REQUEST, "these layers of this model have no 'experts'"},
        {"attn@2=check", SL_REQUEST, "attn@2=check: layer 2 is an MTP layer, whose attention lies "
                                     "where a pass begins, on cpu"},
        {"head@1=check", SL_REQUEST, "head lies on one device"},
        {"experts", SL_REQUEST, "'experts': PART=DEVICE"},
        {"experts=", SL_REQUEST, "PART=DEVICE"},
        {"=cpu", SL_REQUEST, "PART=DEVICE"},
        {"head=cpu;re:ffn_gate_exps=check", SL_REQUEST, "but not blk.1.ffn_down_exps.weight"},
        {"re:attn_q=check", SL_REQUEST, "but not blk.0."},
        {"re:(=check", SL_REQUEST, "'re:(=check'"},
        {"re:nowhere=check", SL_REQUEST, "matches no matrix"},
        {"re:ffn_=gone:mem=4", SL_UNSUPPORTED, "'gone:mem=4'"},
        {"head=a;embed=b;dense=c;router=d", SL_REQUEST, "more than 4 devices"},
        {"head=check:mem=1000", SL_NOMEM, "check:mem=1000: "},
        {"head=check:lacks=prep", SL_UNSUPPORTED, "can not run operator 'prep'"},
    };
    sl_model *m = NULL, *dense = NULL;
    ASSERT_OK(sl_model_open(tiny("deepseek_v3"), NULL, &m, &err));
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        refused(m, row[i].place, row[i].code, row[i].what);
    sl_model_close(m);
    ASSERT_OK(sl_model_open(tiny("smollm"), NULL, &dense, &err));
    refused(dense, "experts=check", SL_REQUEST, "no layer of this model has 'experts'");
    sl_model_close(dense);
}

/* What an engine takes is asked of each device: memory of its own counts apart, the machine's
 * once. */
TEST(engine_place_asks_every_device_for_memory)
{
    sl_engine *e = NULL;
    sl_model *m = NULL;
    int64_t room[3];
    struct engine_rooms r;
    static const char *const place[] = {"", "experts=check", "experts=check:mem=999999999999"};
    ASSERT_OK(sl_model_open(tiny("deepseek_v3"), NULL, &m, &err));
    for (int i = 0; i < 3; i++) {
        sl_engine_opts o = opts_of(place[i], NULL);
        ASSERT_OK(sl_engine_open(m, &o, &e, &err));
        ASSERT_OK(engine_place_rooms(e, &r, &err));
        room[i] = r.available[0] - r.room[0]; /* what weights take where the cache is */
        sl_engine_close(e);
    }
    assert_true(room[0] - room[2] >= 100000); /* the experts' bytes are elsewhere */
    assert_true(room[1] >= room[0]);
    sl_model_close(m);
}
