/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that stages compute in pieces, with blocks that are copied before: once, and not again when
 * a piece has written there. The same where ranks compute on devices far from the host. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_FIRST 32
#define SHARED 20 /* positions that the second sequence takes over from the first */
#define N_TOK 200
#define LD 16

static sl_err err;

static sl_engine_opts opts_of(const char *layout, const char *device)
{
    return (sl_engine_opts){.n_thread = 4,
                            .n_ctx = LD * ENGINE_BLK_TOK,
                            .n_seq_max = 2,
                            .n_chunk = 256,
                            .kv_tokens = 1024,
                            .device = device,
                            .kv = SL_KV_F32,
                            .layout = layout};
}

struct piece {
    int pos0, n, blk0, copied;
};

/* A sequence of n tokens from pos0 on in blocks blk0, blk0 + 1 ..; block `copied` is first copied
 * to where it begins (-1: none). Its last row's logits. */
static sl_status run(sl_engine *e, const struct piece *of, float *logits)
{
    int pos0 = of->pos0, n = of->n, blk0 = of->blk0, copied = of->copied;
    int32_t ids[N_TOK], pos[N_TOK], tok0[] = {0, n}, blk[LD], seat = 0, n_prompt = pos0 + n,
                                    row = n - 1, copy[] = {DEV_KV_PAGED, copied, blk0};
    struct model_rows rows = {0};
    for (int i = 0; i < n; i++) {
        ids[i] = (pos0 + i * 7 + blk0 * 3) % 200;
        pos[i] = pos0 + i;
    }
    for (int i = 0; i < LD; i++)
        blk[i] = blk0 + i;
    const struct dev_step s = {.n_tok = n,
                               .n_seq = 1,
                               .ids = ids,
                               .pos = pos,
                               .seq_tok0 = tok0,
                               .blk = {blk},
                               .ld_blk = e->ld_blk,
                               .seat = &seat,
                               .n_prompt = &n_prompt,
                               .n_copy = copied >= 0,
                               .copy = copy,
                               .n_row = 1,
                               .row_tok = &row,
                               .want = DEV_WANT_LOGITS};
    SL_TRY(engine_ranks_run(e, &s, &rows, &err));
    memcpy(logits, rows.logits, (size_t)e->n_vocab * sizeof *logits);
    return SL_OK;
}

static sl_status answers(sl_model *m, const sl_engine_opts *o, float *logits)
{
    static const struct piece step[] = {
        {0, N_FIRST, 1, -1}, {SHARED, N_TOK, 4, 1}, {SHARED + N_TOK, 1, 4, -1}};
    sl_engine *e = NULL;
    SL_TRY(sl_engine_open(m, o, &e, &err));
    assert_true(e->ld_blk >= (SHARED + N_TOK) / ENGINE_BLK_TOK);
    sl_status st = SL_OK;
    for (int i = 0; i < BASE_COUNT_OF(step) && !st; i++)
        st = run(e, &step[i], logits + (size_t)i * (size_t)e->n_vocab);
    sl_engine_close(e);
    return st;
}

static float *floats(size_t n)
{
    void *p = NULL;
    assert_int_equal(mem_alloc_array(MEM_MISC, n, sizeof(float), &p, &err), SL_OK);
    return p;
}

/* Logits of stages on such devices, with parts of each elsewhere (place; NULL: none), have the bits
 * of one CPU. */
static void same_placed(const char *name, const char *layout, const char *device, const char *place)
{
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    size_t n = 3 * (size_t)m->cfg.n_vocab;
    float *p = floats(n), *q = floats(n);
    sl_engine_opts one = opts_of(NULL, "cpu"), two = opts_of(layout, device);
    two.place = place;
    ASSERT_OK(answers(m, &one, p));
    ASSERT_OK(answers(m, &two, q));
    assert_memory_equal(p, q, n * sizeof(float));
    mem_free(p);
    mem_free(q);
    sl_model_close(m);
}

static void same_in(const char *name, const char *layout, const char *device)
{
    same_placed(name, layout, device, NULL);
}

static void same_on(const char *name, const char *device)
{
    same_in(name, "pp=2", device);
}

TEST(engine_stages_copy_blocks_once)
{
    same_on("llama3", "cpu");
}

TEST(engine_stages_on_devices)
{
    same_on("llama3", "check");
    same_on("qwen3_moe", "sim:clock=real,lat=1us,hand=1us");
    same_on("deepseek_v3", "check");
}

TEST(engine_stages_have_a_device_each)
{
    same_on("llama3", "cpu,check");
    same_on("llama3", "sim:clock=real,lat=1us,hand=1us,cpu");
    same_on("deepseek_v2", "check,sim");
}

/* One between two others takes rows and gives them. */
TEST(engine_stages_on_three_devices)
{
    same_in("qwen3_moe_mixed", "pp=3", "check,sim:clock=real,lat=1us,hand=1us,cpu");
    same_in("glm4_moe", "pp=3", "sim,check,check");
    same_in("glm_moe_dsa", "pp=2", "cpu");
}

/* Each stage has its attention on a device of its own, and its experts, or what else is placed
 * there, on the CPU's share that it has. */
TEST(engine_stages_with_experts_on_the_cpu)
{
    static const char *const sim = "sim:clock=real,lat=1us,hand=1us";
    same_placed("qwen3_moe", "pp=2", "check,check", "experts=cpu");
    same_placed("deepseek_v3", "pp=2", "check,sim", "experts=cpu");
    same_placed("deepseek_v2", "pp=2", sim, "experts=cpu;shared=cpu;router=cpu");
    same_placed("qwen3_moe_mixed", "pp=3", "check,sim,check", "experts=cpu;head=cpu;embed=cpu");
    same_placed("glm4_moe", "pp=3", "check", "experts@1-2=sim;dense=cpu");
}

/* The k-th call of a stage's device fails, or from then on all: opening says so, or the step does,
 * and no rank waits for ever. */
static void ends(const char *name, const char *layout, const char *devices, const char *says)
{
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    float *p = floats(3 * (size_t)m->cfg.n_vocab);
    char device[60];
    int k = 1, n_lost = 0;
    log_set_level(LOG_ERROR);
    for (sl_status st = SL_INTERNAL; st; k += 7) {
        snprintf(device, sizeof device, devices, k);
        sl_engine_opts o = opts_of(layout, device);
        st = answers(m, &o, p);
        if (st && !strstr(err.text, says)) fail_msg("%s: %s", device, err.text);
        n_lost += st == SL_DEVICE;
        assert_true(k < 2000);
    }
    log_set_level(LOG_WARN);
    assert_true(k > 100 && (n_lost > 10 || strcmp(says, "lost") != 0));
    mem_free(p);
    sl_model_close(m);
}

TEST(engine_stages_end_with_a_device_that_fails)
{
    ends("llama3", "pp=2", "check,check:lost=%d", "lost");
    ends("llama3", "pp=2", "check:lost=%d,check", "lost");
    ends("llama3", "pp=2", "check,check:fail=%d", "fails");
    ends("glm4_moe", "pp=3", "check,check:lost=%d,cpu", "lost");
}

/* Ranks that share layers, each on a device of its own: what they join goes through the host. */
TEST(engine_shared_on_devices)
{
    static const char *const sim = "sim:clock=real,lat=1us,hand=1us";
    same_in("llama2", "tp=2", "check");
    same_in("qwen3_moe_mixed", "tp=2", "check");
    same_in("deepseek_v2", "tp=2", sim);
    same_in("deepseek_v2_lite", "tp=2,ep=2", "check,sim");
    same_in("qwen3_moe_mixed", "tp=2,pp=2", "check,sim");
    same_placed("qwen3_moe_mixed", "tp=2", "check,check", "experts=cpu");
    same_placed("deepseek_v2_lite", "tp=2,ep=2", "check,cpu", "experts=cpu");
    same_placed("deepseek_v2", "tp=2", "check,sim", "experts=cpu;shared=cpu;router=cpu");
    same_placed("deepseek_v2", "tp=2,ep=2", "check,sim", "experts@1=sim;dense=cpu");
    same_placed("llama2", "tp=2", "check,cpu", "head=check;embed=sim");
}

TEST(engine_shared_end_with_a_device_that_fails)
{
    ends("llama2", "tp=2", "check,check:lost=%d", "lost");
    ends("deepseek_v2_lite", "tp=2,ep=2", "check:lost=%d,check", "lost");
    ends("qwen3_moe_mixed", "tp=2", "check,check:fail=%d", "fails");
}

TEST(engine_stages_refuse_devices)
{
    static const struct {
        const char *layout, *device, *says;
    } row[] = {{"pp=2", "cpu,check,sim",
                "layout: --device cpu,check,sim: 3 devices, and 2 ranks of this machine"},
               {"pp=2", "check,check:fast", "device 'check': option 'fast'"}};
    sl_model *m = NULL;
    sl_engine *e = NULL;
    ASSERT_OK(sl_model_open(tiny("llama3"), NULL, &m, &err));
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        sl_engine_opts o = opts_of(row[i].layout, row[i].device);
        assert_true(sl_engine_open(m, &o, &e, &err) != SL_OK);
        if (!strstr(err.text, row[i].says)) fail_msg("%s", err.text);
    }
    sl_engine_opts o = opts_of("pp=2", "check");
    o.place = "attn@0=cpu";
    ASSERT_STATUS(sl_engine_open(m, &o, &e, &err), SL_UNSUPPORTED);
    assert_string_equal(err.text, "layout: attention of layer 0 is placed on another device than "
                                  "its stage's: --device names those");
    sl_model_close(m);
}
