/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that stages compute in pieces, with blocks that are copied before: once, and not again when
 * a piece has written there. */
#include <string.h>

#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_FIRST 32
#define SHARED 20 /* positions that the second sequence takes over from the first */
#define N_TOK 200
#define LD 16

static sl_err err;

static sl_engine *open_engine(sl_model *m, const char *layout)
{
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 4,
                        .n_ctx = LD * ENGINE_BLK_TOK,
                        .n_seq_max = 2,
                        .n_chunk = 256,
                        .kv_tokens = 1024,
                        .device = "cpu",
                        .kv = SL_KV_F32,
                        .layout = layout};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    return e;
}

/* A sequence of n tokens from pos0 on in blocks blk0, blk0 + 1 ..; block `copied` is first copied
 * to where it begins (-1: none). Its last row's logits. */
static void run(sl_engine *e, int pos0, int n, int blk0, int copied, float *logits)
{
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
    ASSERT_OK(engine_ranks_run(e, &s, &rows, &err));
    memcpy(logits, rows.logits, (size_t)e->n_vocab * sizeof *logits);
}

static void answers(sl_model *m, const char *layout, float *logits)
{
    sl_engine *e = open_engine(m, layout);
    assert_true(e->ld_blk >= (SHARED + N_TOK) / ENGINE_BLK_TOK);
    run(e, 0, N_FIRST, 1, -1, logits);
    run(e, SHARED, N_TOK, 4, 1, logits + e->n_vocab);
    run(e, SHARED + N_TOK, 1, 4, -1, logits + 2 * e->n_vocab);
    sl_engine_close(e);
}

TEST(engine_stages_copy_blocks_once)
{
    sl_model *m = NULL;
    void *p = NULL, *q = NULL;
    ASSERT_OK(sl_model_open(tiny("llama3"), NULL, &m, &err));
    size_t n = 3 * (size_t)m->cfg.n_vocab;
    assert_int_equal(mem_alloc_array(MEM_MISC, n, sizeof(float), &p, &err), SL_OK);
    assert_int_equal(mem_alloc_array(MEM_MISC, n, sizeof(float), &q, &err), SL_OK);
    answers(m, NULL, p);
    answers(m, "pp=2", q);
    assert_memory_equal(p, q, n * sizeof(float));
    mem_free(p);
    mem_free(q);
    sl_model_close(m);
}
