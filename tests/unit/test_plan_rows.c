/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of measurements: how they are read, and that no bytes can make them crash or give NaN. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "plan/calib.h"
#include "plan_load.h"

static struct plan_row row(const char *system, const char *model, const char *hw, double cards,
                           const char *layout, const char *metric)
{
    struct plan_row r = {.cards = cards, .conc = 1, .in = 1024, .out = 128, .value = 1};
    snprintf(r.system, sizeof r.system, "%s", system);
    snprintf(r.model, sizeof r.model, "%s", model);
    snprintf(r.hardware, sizeof r.hardware, "%s", hw);
    snprintf(r.layout, sizeof r.layout, "%s", layout);
    snprintf(r.metric, sizeof r.metric, "%s", metric);
    return r;
}

TEST(plan_rows_layouts_as_people_write_them)
{
    static const struct {
        const char *hw;
        double cards;
        const char *layout;
        int tp, pp, dp, ep;
    } t[] = {
        {"H20 96GB (2 nodes)", 16, "TP8PP2", 8, 2, 1, 1},
        {"A800 40GB (6 nodes)", 48, "TP8 x PP6", 8, 6, 1, 1},
        {"H20 96GB", 32, "DP32EP32", 1, 1, 32, 32},
        {"Ascend 910B A2 64GB (4 nodes)", 32, "DP attention + EP32, PD-mixed", 1, 1, 32, 32},
        {"CloudMatrix384 (Ascend 910C)", 160, "EP320 (320 dies): 32 shared copies", 1, 1, 320, 320},
        {"Ascend 950DT", 16, "attn DP + EP", 1, 1, 16, 16},
        {"H20 96GB (2 nodes)", 16, "(not stated)", 8, 2, 1, 1},
        {"H100", 1, "1 GPU", 1, 1, 1, 1},
        {"16x RTX3090", 16, "layer split (PP16)", 1, 16, 1, 1},
        {"B200", 8, "DEP8", 1, 1, 8, 8},
        {"Atlas 800T A2 (2 nodes)", 16, "TP=8, PP=2", 8, 2, 1, 1},
        {"GB200", 48, "P EP2-4, D EP48", 1, 1, 48, 48},
    };
    load();
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct plan_row r = row("x", "deepseek-r1", t[i].hw, t[i].cards, t[i].layout, "TPOT");
        struct plan_setup s;
        const char *why = plan_row_setup(&tables, &r, &s);
        if (why) fail_msg("%s: %s", t[i].layout, why);
        const struct plan_layout *l = &s.c.lay;
        if (l->tp != t[i].tp || l->pp != t[i].pp || l->dp != t[i].dp || l->ep != t[i].ep) {
            fail_msg("%s: tp%d pp%d dp%d ep%d", t[i].layout, l->tp, l->pp, l->dp, l->ep);
        }
    }
}

TEST(plan_rows_drafts_formats_and_units)
{
    struct plan_setup s;
    load();
    struct plan_row r = row("x", "deepseek-r1", "B200", 8, "TP8", "TPOT");
    snprintf(r.note, sizeof r.note, "NVFP4, MTP3 accept 1.44");
    snprintf(r.wbits, sizeof r.wbits, "4");
    snprintf(r.abits, sizeof r.abits, "8");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_int_equal(s.c.lay.mtp, 3);
    assert_true(fabs(s.c.lay.accept - 1.44) < 1e-9);
    assert_string_equal(s.c.fmt.name, "nvfp4");
    assert_true(s.scale == 1e3); /* TPOT in ms */
    r = row("x", "deepseek-r1", "2x Ascend 910B4 64GiB + Kunpeng 920 7263Z", 2,
            "TP2 + experts on CPU", "TTFT");
    snprintf(r.wbits, sizeof r.wbits, "NPU 8 / CPU 4");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_true(s.c.lay.cpu_experts && s.c.k.mode == PLAN_MODE_HYBRID && s.c.fmt.cpu == 4);
    r = row("x", "deepseek-r1", "Xeon 6980P 1 socket", 0, "CPU only, 43 threads", "decode_tps");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_true(s.c.k.mode == PLAN_MODE_CPU && s.host.cores == 43);
    r = row("x", "DeepSeek-R1-Distill-Llama-70B", "Ascend 910B3", 4, "TP4", "tpot");
    snprintf(r.wbits, sizeof r.wbits, "W4A16");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_string_equal(s.c.fmt.name, "awq");
    assert_string_equal(s.c.model->name, "Llama-3.1-70B");
    r = row("x", "mystery-9000", "H100", 8, "TP8", "TPOT");
    assert_non_null(plan_row_setup(&tables, &r, &s));
}

/* Any bytes: an error that names the file, or rows that are skipped or give a finite number above
 * zero. */
TEST(plan_rows_of_any_bytes_never_crash)
{
    struct plan_bytes src = plan_embedded(PLAN_FILE_PUBLISHED);
    size_t n = 24000;
    char *copy;
    sl_err err;
    uint64_t seed = 6;
    int good = 0;
    load();
    struct arena own;
    for (int round = 0; round < 300; round++) {
        mem_arena_init(&own, MEM_MISC, 0);
        ASSERT_OK(mem_arena_str(&own, src.p, n, &copy, &err));
        int flips = 1 + (int)(rng_next(&seed) % 12);
        for (int i = 0; i < flips; i++) {
            static const char odd[] = "\",\n9-~. eTP\0\xff<";
            size_t at = 150 + rng_next(&seed) % (n - 160);
            copy[at] = round % 2 ? (char)rng_next(&seed) : odd[rng_next(&seed) % (sizeof odd - 1)];
        }
        struct plan_row *r;
        struct plan_data d;
        int n_row;
        err.text[0] = '\0';
        if (plan_read_rows(&own, (struct plan_bytes){"x.csv", copy, n}, &r, &n_row, &err) !=
            SL_OK) {
            assert_non_null(strstr(err.text, "x.csv"));
        } else {
            ASSERT_OK(
                plan_data_init(&d, &own, &tables, &(struct plan_rows){.row = r, .n = n_row}, &err));
            plan_check(&book, &d);
            for (int i = 0; i < d.n; i++) {
                if (d.item[i].skip) continue;
                assert_true(isfinite(d.item[i].got) && d.item[i].got > 0);
                good++;
            }
        }
        mem_arena_fini(&own);
    }
    assert_true(good > 1000);
}

TEST(plan_fit_follows_rows_and_leaves_the_rest_at_its_prior)
{
    sl_err err;
    load();
    static const char text[] = "system,model,weights_bits,act_bits,hardware,cards,layout,"
                               "concurrency,input_len,output_len,metric,value,unit,note\n"
                               "e,deepseek-r1,4,16,Ascend 910B1,8,TP8,1,128,512,TPOT,40,ms,\n"
                               "e,deepseek-r1,4,16,Ascend 910B1,8,TP8,8,128,512,TPOT,70,ms,\n"
                               "e,deepseek-r1,4,16,Ascend 910B1,8,TP8,32,128,512,TPOT,120,ms,\n";
    struct plan_row *r;
    struct plan_data d;
    struct plan_set set;
    int n, pick[] = {0, 1, 2};
    ASSERT_OK(
        plan_read_rows(&arena, (struct plan_bytes){"t", text, sizeof text - 1}, &r, &n, &err));
    ASSERT_OK(plan_data_init(&d, &arena, &tables, &(struct plan_rows){.row = r, .n = n}, &err));
    plan_fit_set(&book, &d, pick, 3, &set);
    assert_true(set.err_decode < 6 && set.k.n_rows == 3);
    const struct plan_consts *p = &book.prior[PLAN_ASCEND][PLAN_MODE_TP];
    assert_true(set.k.v[PLAN_MFU] == p->v[PLAN_MFU] && set.k.v[PLAN_ETA_KV] == p->v[PLAN_ETA_KV]);
    assert_false(set.k.fitted >> PLAN_MFU & 1);
}

/* Experts on the host: a prompt of two chunks reads the experts twice and multiplies as much as in
 * one chunk. Streamed experts cross the bus once, and the card's products come on top. */
TEST(plan_hybrid_prompt_reads_experts_once_for_each_chunk)
{
    load();
    struct plan_row r =
        row("Any engine", "DeepSeek-R1", "2x Ascend 910B4 64GiB + Kunpeng 920 7263Z", 2,
            "TP2 + all routed experts on CPU", "TTFT");
    struct plan_setup s;
    struct plan_time one, two, more;
    assert_null(plan_row_setup(&tables, &r, &s));
    plan_setup_fix(&s);
    plan_consts_for(&book, &s, &s.c.k);
    assert_true(s.c.lay.cpu_experts && !s.c.lay.stream_prefill);
    s.c.lay.chunk = 4096;
    plan_prefill(&s.c, 1, 4096, 0, &one);
    s.c.lay.chunk = 2048;
    plan_prefill(&s.c, 1, 4096, 0, &two);
    const struct plan_model *m = s.c.model;
    double bits = s.c.fmt.cpu > 0 ? s.c.fmt.cpu : s.c.fmt.expert;
    double read = m->moe_layers * m->p_expert * m->experts * bits / 8 /
                  (s.c.k.v[PLAN_CPU_GBPS] * 1e9) * (1 - s.c.lay.hot);
    double mul = 2.0 * 4096 * m->topk * m->p_expert * m->moe_layers /
                 (s.c.k.v[PLAN_CPU_TOPS] * 1e12) * (1 - s.c.lay.hot);
    assert_true(fabs(one.cpu / hypot(read, mul) - 1) < 0.01);
    assert_true(fabs(two.cpu / hypot(2 * read, mul) - 1) < 0.01);
    /* 64 and 128 tokens: fewer than a tile of rows for each expert, whole tiles are multiplied */
    plan_prefill(&s.c, 1, 64, 0, &one);
    plan_prefill(&s.c, 1, 128, 0, &two);
    plan_prefill(&s.c, 1, 1024, 0, &more);
    assert_true(two.cpu < 1.35 * one.cpu && more.cpu > 3.5 * two.cpu);
    s.c.lay.stream_prefill = true;
    plan_prefill(&s.c, 1, 2048, 0, &one);
    plan_prefill(&s.c, 1, 4096, 0, &two);
    plan_prefill(&s.c, 1, 8192, 0, &more);
    assert_true(one.cpu == two.cpu && two.cpu == more.cpu && one.cpu > 0);
    assert_true(more.total - two.total > 1.9 * (two.total - one.total));
    s.c.lay.stream_from = 4096; /* shorter prompts stay on the host */
    plan_prefill(&s.c, 1, 2048, 0, &one);
    assert_true(one.cpu != two.cpu);
    plan_prefill(&s.c, 2, 2048, 0, &one);
    assert_true(one.cpu == two.cpu);
    s.c.k.v[PLAN_BUS] = 0.5;
    plan_prefill(&s.c, 1, 4096, 0, &more);
    assert_true(fabs(more.cpu / two.cpu - 2) < 1e-9);
}

/* Where an engine switches to streaming: its own default, or what the row says. */
TEST(plan_rows_prompt_length_that_streams)
{
    load();
    struct plan_setup s;
    struct plan_row r = row("KTransformers", "MiniMax-M2", "1x RTX4090 48GB + 2x Xeon 8488C", 1,
                            "experts on CPU, layerwise GPU prefill", "TTFT");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_true(s.c.lay.stream_prefill && s.c.lay.stream_from == 4096);
    snprintf(r.layout, sizeof r.layout, "layerwise GPU prefill from 1024");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_int_equal(s.c.lay.stream_from, 1024);
}

/* llama.cpp computes a prompt in micro-batches of 512 unless its row says otherwise. */
TEST(plan_rows_micro_batch_of_llama_cpp)
{
    load();
    struct plan_row r = row("ik_llama.cpp", "DeepSeek-V3", "RTX4090 + EPYC 9355", 1, "exps=CPU",
                            "prefill_throughput");
    struct plan_setup s;
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_int_equal(s.c.lay.chunk, 512);
    snprintf(r.layout, sizeof r.layout, "exps=CPU, ub 4096");
    assert_null(plan_row_setup(&tables, &r, &s));
    assert_int_equal(s.c.lay.chunk, 4096);
}
