/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that follow from a configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/pack.h"
#include "model/model.h"
#include "model/emit.h"
#include "test.h"

TEST(model_caches_a_latent_for_mla_and_heads_for_gqa)
{
    struct arch_layer layer[5] = {{0}};
    struct arch_cfg mla = {
        .n_layer = 2, .n_mtp = 1, .n_head_kv = 4, .kv_lora = 32, .d_rope = 8, .layer = layer};
    struct arch_cfg gqa = {.n_layer = 5, .n_head_kv = 4, .d_head = 24, .layer = layer};
    struct dev_kv_shape s = model_kv_shape(&mla, NULL, DEV_KV_BF16, 10, 16);
    assert_int_equal(s.n_group, 1);
    assert_int_equal(s.group[0].n_layer, 3);
    assert_int_equal(s.group[0].n_head, 1);
    assert_int_equal(s.group[0].d_k, 40);
    assert_int_equal(s.group[0].d_v, 0);
    layer[0].n_window = layer[3].n_window = 128;
    s = model_kv_shape(&gqa, NULL, DEV_KV_BF16, 10, 16);
    assert_int_equal(s.n_group, 2);
    assert_int_equal(s.group[0].kind, DEV_KV_PAGED);
    assert_int_equal(s.group[1].kind, DEV_KV_WINDOW);
    assert_int_equal(s.group[0].n_layer, 3);
    assert_int_equal(s.group[1].n_layer, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.group[i].n_blk, 10);
        assert_int_equal(s.group[i].n_head, 4);
        assert_int_equal(s.group[i].d_k, 24);
        assert_int_equal(s.group[i].d_v, 24);
    }
}

/* Heads of another width and number in layers with a window. */
TEST(model_caches_two_kinds_of_heads)
{
    struct arch_layer layer[3] = {{.n_window = 8}, {.n_window = 8}, {0}};
    struct arch_cfg c = {.n_layer = 3,
                         .n_head_kv = 1,
                         .d_head = 64,
                         .n_head_kv_win = 4,
                         .d_head_win = 24,
                         .layer = layer};
    struct dev_kv_shape s = model_kv_shape(&c, NULL, DEV_KV_BF16, 10, 16);
    assert_int_equal(s.n_group, 2);
    for (int i = 0; i < 2; i++) {
        const struct dev_kv_group *g = &s.group[i];
        assert_int_equal(g->kind, i ? DEV_KV_WINDOW : DEV_KV_PAGED);
        assert_int_equal(g->n_layer, i ? 2 : 1);
        assert_int_equal(g->n_head, i ? 4 : 1);
        assert_true(g->d_k == (i ? 24 : 64) && g->d_v == g->d_k);
    }
}

static void want_part(const struct dev_kv_part *p, int n_layer, int every, int d_i, int d_raw)
{
    assert_int_equal(p->n_layer, n_layer);
    assert_int_equal(p->every, every);
    assert_int_equal(p->d_i, d_i);
    assert_int_equal(p->d_raw, d_raw);
}

TEST(model_caches_entries_and_what_they_are_made_of)
{
    struct arch_layer layer[4] = {{.ratio = 128}, {.ratio = 4, .index = ARCH_INDEX_OWN}, {0}};
    layer[3] = layer[1];
    for (int i = 0; i < 4; i++)
        layer[i].mixer = ARCH_CKV, layer[i].n_window = 16;
    struct arch_cfg c = {.n_layer = 4, .n_head_kv = 1, .d_head = 32, .d_index = 24, .layer = layer};
    struct model_dims d = {.n_rank = 1, .n_stage = 1, .n_layer = 4};
    struct dev_kv_shape s = model_kv_shape(&c, NULL, DEV_KV_BF16, 10, 32);
    assert_int_equal(s.n_group, 2);
    assert_int_equal(s.group[DEV_KV_PAGED].n_layer, 3);
    assert_int_equal(s.group[DEV_KV_PAGED].d_i + s.group[DEV_KV_PAGED].d_v, 0);
    assert_int_equal(s.group[DEV_KV_WINDOW].n_layer, 4);
    const struct dev_kv_part *e = s.group[DEV_KV_PAGED].part, *w = s.group[DEV_KV_WINDOW].part;
    want_part(&e[0], 2, 4, 24, 0);
    want_part(&e[1], 1, 128, 0, 0);
    want_part(&w[0], 1, 1, 0, 0);
    want_part(&w[1], 2, 1, 0, 4 * 32 + 4 * 24);
    want_part(&w[2], 1, 1, 0, 2 * 32);
    /* parts follow each other, layers of one as they come */
    const int at[4] = {3, 1, 0, 2}, window[4] = {128, 16, 16, 16};
    for (int i = 0; i < 4; i++) {
        struct model_kv_place p = model_kv_place(&c, &d, i);
        assert_int_equal(p.group, DEV_KV_WINDOW);
        assert_int_equal(p.layer, at[i]);
        assert_int_equal(model_kv_window(&c, i), window[i]);
    }
    c.paged = true; /* all of it stays */
    s = model_kv_shape(&c, NULL, DEV_KV_BF16, 10, 32);
    assert_int_equal(s.n_group, 1);
    assert_int_equal(s.group[0].n_layer, 7);
    want_part(&s.group[0].part[3], 2, 1, 0, 4 * 32 + 4 * 24);
}

/* Keys of pools beside latents, and apart what these are made of; those of an MTP layer come after
 * the others, whose places are the same without it. */
TEST(model_caches_keys_of_pools)
{
    struct arch_layer layer[4] = {{.mixer = ARCH_MLA, .index = ARCH_INDEX_OWN},
                                  {.mixer = ARCH_DELTA}};
    layer[2] = layer[3] = layer[0];
    struct arch_cfg c = {.n_layer = 3, .n_mtp = 1, .n_head_kv = 1, .kv_lora = 64, .d_index = 24,
                         .index_pool = 4, .index_top = 8, .layer = layer, .n_delta_k = 1,
                         .n_delta_v = 1, .d_delta_k = 8, .d_delta_v = 8, .n_conv = 4};
    struct model_dims d = {.n_rank = 1, .n_stage = 1, .n_layer = 3};
    struct dev_kv_shape s = model_kv_shape(&c, NULL, DEV_KV_BF16, 10, 32);
    assert_int_equal(s.n_group, 3);
    assert_int_equal(s.group[DEV_KV_PAGED].n_layer, 6);
    assert_int_equal(s.group[DEV_KV_PAGED].d_k, 64);
    assert_int_equal(s.group[DEV_KV_PAGED].d_i, 0);
    assert_int_equal(s.group[DEV_KV_WINDOW].n_layer, 3);
    assert_int_equal(s.group[DEV_KV_STATE].n_layer, 1);
    const struct dev_kv_part *p = s.group[DEV_KV_PAGED].part, *w = s.group[DEV_KV_WINDOW].part;
    for (int i = 0; i < 2; i++) {
        int n = i ? 1 : 2;
        want_part(&p[2 * i], n, 1, 0, 0);
        want_part(&p[2 * i + 1], n, 4, 24, 0);
        want_part(&w[i], n, 1, 0, 2 * 24);
        assert_true(!p[2 * i].bare && p[2 * i + 1].bare && w[i].bare);
    }
    const int at[4] = {0, 0, 1, 4};
    for (int i = 0; i < 4; i++) {
        struct model_kv_place place = model_kv_place(&c, &d, i);
        assert_int_equal(place.group, i == 1 ? DEV_KV_STATE : DEV_KV_PAGED);
        assert_int_equal(place.layer, at[i]);
        assert_int_equal(model_kv_window(&c, i), i != 1);
    }
    c.n_mtp = 0;
    assert_int_equal(model_kv_place(&c, &d, 2).layer, 1);
    c.paged = true; /* all of it stays */
    s = model_kv_shape(&c, NULL, DEV_KV_BF16, 10, 32);
    assert_int_equal(s.group[DEV_KV_WINDOW].n_layer, 0);
    want_part(&s.group[DEV_KV_PAGED].part[2], 2, 1, 0, 2 * 24);
}

enum { N_TOK = 5, BLK = 16 };

/* Logits of the last of N_TOK tokens, with those slots. */
static sl_status logits_at(const char *path, const int32_t *expert, int n_slot, float *out,
                           sl_err *err)
{
    int32_t ids[N_TOK] = {3, 1, 4, 1, 5}, pos[N_TOK] = {0, 1, 2, 3, 4}, seq[2] = {0, N_TOK},
            blk = 0, last = N_TOK - 1, n_prompt = N_TOK;
    struct dev_step b = {.n_tok = N_TOK,
                         .n_seq = 1,
                         .ids = ids,
                         .pos = pos,
                         .seq_tok0 = seq,
                         .blk = {&blk},
                         .ld_blk = 1,
                         .n_prompt = &n_prompt,
                         .n_row = 1,
                         .row_tok = &last,
                         .want = DEV_WANT_LOGITS};
    struct model_opts o = {.n_tok_max = N_TOK,
                           .n_seq_max = 1,
                           .n_ctx = BLK,
                           .blk_tok = BLK,
                           .n_logit_max = 1,
                           .kv = DEV_KV_F32,
                           .n_slot = n_slot,
                           .slot_expert = expert};
    io_model *io = NULL;
    dev *d = NULL;
    model *m = NULL;
    dev_kv *kv = NULL;
    struct model_rows rows;
    sl_status st = SL_OK;
    SL_TRY_OUT(io_open(path, false, &io, err));
    SL_TRY_OUT(dev_open("cpu", &(struct dev_opts){.n_thread = 2, .acts = DEV_ACTS_INT8}, &d, err));
    SL_TRY_OUT(model_open(io, d, &o, &m, err));
    struct dev_kv_shape shape = model_kv_shape(model_config(m), NULL, DEV_KV_F32, 1, BLK);
    SL_TRY_OUT(dev_kv_open(d, &shape, &kv, err));
    SL_TRY_OUT(model_launch(m, kv, &b, err));
    SL_TRY_OUT(model_wait(m, &rows, err));
    memcpy(out, rows.logits, sizeof(float) * (size_t)model_config(m)->n_vocab);
out:
    model_close(m);
    dev_close(d);
    io_close(io);
    return st;
}

static sl_status logits_with(const char *name, const int32_t *expert, int n_slot, float *out,
                             sl_err *err)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, name);
    return logits_at(path, expert, n_slot, out, err);
}

/* tiny/name as a packed file at path. */
static void make_packed(const char *name, const char *path)
{
    char src[512];
    sl_err err = {0};
    io_model *io = NULL;
    dev *d = NULL;
    io_pack_out *out = NULL;
    bool exact = false;
    snprintf(src, sizeof src, "%s/%s", TEST_TINY, name);
    ASSERT_OK(io_open(src, false, &io, &err));
    ASSERT_OK(dev_open("cpu", &(struct dev_opts){.n_thread = 2, .acts = DEV_ACTS_INT8}, &d, &err));
    ASSERT_OK(io_pack_out_open(path, io, dev_layout(d), &out, &err));
    ASSERT_OK(model_pack(io, d, NULL, out, &exact, &err));
    ASSERT_OK(io_pack_out_commit(out, exact, &err));
    dev_close(d);
    io_close(io);
}

TEST(model_experts_of_a_packed_file_may_have_no_slot)
{
    char packed[64], dir[] = "/tmp/sluice-slots-XXXXXX";
    static float want[4096], got[4096];
    int32_t expert[64];
    sl_err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(packed, sizeof packed, "%s/q.packed", dir);
    make_packed("qwen3_moe.gguf", packed);
    for (int n = 7; n >= 5; n--) { /* 7 experts: all, without the first, without two */
        for (int s = 0; s < n; s++)
            expert[s] = 6 - s;
        expert[n] = expert[0]; /* a second time: the same memory */
        ASSERT_OK(logits_with("qwen3_moe.gguf", expert, n, want, &err));
        ASSERT_OK(logits_at(packed, expert, n + 1, got, &err));
        assert_memory_equal(got, want, sizeof(float) * 320);
    }
    expert[2] = 7;
    assert_int_equal(logits_at(packed, expert, 5, got, &err), SL_REQUEST);
    unlink(packed);
    rmdir(dir);
}

TEST(model_experts_in_other_or_more_slots_give_the_same_bits)
{
    static const char *const name[] = {"qwen3_moe.gguf", "qwen3_moe", "deepseek_v3.gguf"};
    sl_err err = {0};
    for (int i = 0; i < BASE_COUNT_OF(name); i++) {
        char path[512];
        static float want[4096], got[4096];
        int32_t expert[64];
        io_model *io = NULL;
        struct arena a;
        struct arch_cfg c;
        snprintf(path, sizeof path, "%s/%s", TEST_TINY, name[i]);
        if (io_open(path, false, &io, &err)) skip(); /* unpacked by CTest's fixture */
        mem_arena_init(&a, MEM_MISC, 0);
        ASSERT_OK(arch_cfg_read(io, &a, &c, &err));
        int E = c.n_expert, n = E + E / 2;
        mem_arena_fini(&a);
        io_close(io);
        assert_true(E >= 2 && n <= 64 && c.n_vocab <= 4096);
        for (int s = 0; s < n; s++)
            expert[s] = s < E ? E - 1 - s : s % 2;
        size_t bytes = sizeof(float) * (size_t)c.n_vocab;
        ASSERT_OK(logits_with(name[i], NULL, 0, want, &err));
        ASSERT_OK(logits_with(name[i], expert, E, got, &err));
        assert_memory_equal(got, want, bytes);
        ASSERT_OK(logits_with(name[i], expert, n, got, &err));
        assert_memory_equal(got, want, bytes);
        ASSERT_OK(logits_with(name[i], expert, E - 1, got, &err)); /* one of them is not there */
        assert_true(memcmp(got, want, bytes) != 0);
        expert[1] = E;
        assert_int_equal(logits_with(name[i], expert, E, got, &err), SL_REQUEST);
        assert_non_null(strstr(err.text, "expert slot 1"));
    }
}

/* So many whole pools that not all are seen: from there on there is an index. */
TEST(model_has_an_index_of_pools_from_the_first_that_is_not_seen)
{
    struct arch_layer layer[2] = {{.index = ARCH_INDEX_OWN}, {0}};
    struct model m = {.cfg = {.n_layer = 2, .index_pool = 4, .index_top = 24, .layer = layer}};
    m.opts.n_ctx = 27;
    assert_false(model_index_is_sparse(&m, 0));
    m.opts.n_ctx = 28;
    assert_true(model_index_is_sparse(&m, 0));
    assert_false(model_index_is_sparse(&m, 1));
    m.cfg.index_pool = 0;
    m.opts.n_ctx = 24;
    assert_false(model_index_is_sparse(&m, 0));
    m.opts.n_ctx = 25;
    assert_true(model_index_is_sparse(&m, 0));
}
