/* SPDX-License-Identifier: Apache-2.0 */
/* Loading rank r of R: of every matrix that is divided each row is with exactly one rank, tile for
 * tile the bytes of the whole model's, from the source and from a packed file; what is read and
 * held is the share that the shapes say; and a rank's heads compute what they compute in the
 * whole. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dev/cpu/cpu.h"
#include "io/pack.h"
#include "model/emit.h"
#include "os/os.h"
#include "test.h"

static sl_err err;

struct opened {
    io_model *io;
    io_pack *pack;
    dev *d;
    model *m;
};

/* pack NULL = from the source; stages NULL = one. False: there is no such checkpoint. */
static bool open_rank(const char *name, const char *pack, const struct model_stages *stages,
                      int rank, int n_rank, struct opened *o)
{
    char path[512];
    struct model_opts mo = {.n_tok_max = 8,
                            .n_seq_max = 1,
                            .n_ctx = 32,
                            .blk_tok = 16,
                            .n_logit_max = 1,
                            .stages = stages,
                            .rank = rank,
                            .n_rank = n_rank};
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, name);
    *o = (struct opened){0};
    if (os_path_kind(path) == OS_NONE) return false;
    ASSERT_OK(io_open(path, false, &o->io, &err));
    if (pack) ASSERT_OK(io_pack_open(pack, &o->pack, &err));
    mo.pack = o->pack;
    ASSERT_OK(dev_open("cpu", &(struct dev_opts){.n_thread = 2}, &o->d, &err));
    ASSERT_OK(model_open_parts(o->io, o->d, &mo, &o->m, &err));
    return true;
}

static void close_rank(struct opened *o)
{
    model_close(o->m);
    dev_close(o->d);
    io_pack_close(o->pack);
    io_close(o->io);
}

/* ---- matrices ---- */

/* STACK: whole matrices of a stack; KEYS: rows of key heads, which several ranks may have */
enum cut { WHOLE, ROWS, STACK, KEYS };

#define PER_LAYER 20 /* room for a layer's matrices */

/* Where the next rank's part begins, of each matrix. */
struct cursor {
    int64_t next[64 * PER_LAYER];
};

/* A router: f32 in a packed file, and out of the source bf16, where that holds it. */
static bool is_narrowed(const struct mm_mat *w, const struct mm_mat *p)
{
    static float row[2][4096];
    if (w->fmt != MM_bf16 || p->fmt != MM_f32) return false;
    assert_true(w->n_col <= 4096 && w->n_row == p->n_row && !w->is_pair);
    for (int r = 0; r < w->n_row; r++) {
        kern_mm_unpack_row(w, r, row[0]);
        kern_mm_unpack_row(p, r, row[1]);
        assert_memory_equal(row[0], row[1], sizeof(float) * (size_t)w->n_col);
    }
    return true;
}

static void same_tiles(const struct cpu_mat *a, const struct cpu_mat *b, int i0, int64_t row0)
{
    for (int i = 0; i < b->n; i++) {
        struct mm_mat of[2][2] = {{dev_cpu_mat_at(a, i0 + i), dev_cpu_mat_at(b, i)},
                                  {dev_cpu_mat2_at(a, i0 + i), dev_cpu_mat2_at(b, i)}};
        for (int half = 0; half < 2; half++) {
            const struct mm_mat *w = &of[half][0], *p = &of[half][1];
            if (!w->data || is_narrowed(w, p)) continue;
            size_t unit = w->tile_bytes * (w->is_pair ? 2 : 1);
            assert_int_equal(p->fmt, w->fmt);
            assert_int_equal(p->tile_bytes, w->tile_bytes);
            assert_true(p->scale == w->scale && p->scale2 == w->scale2);
            assert_memory_equal(p->data, w->data + (size_t)(row0 / 16) * unit,
                                p->tile_bytes * (size_t)p->n_tile);
        }
    }
}

/* Where the rank's key heads begin, of width d, and all up to there were seen. */
static int64_t first_key(const model *part, int d, int64_t next)
{
    int64_t row0 = (int64_t)part->dims.head_kv0 * d;
    if (!part->dims.n_head_kv) return next; /* it has none */
    assert_true(row0 <= next);
    return row0;
}

/* part, of a rank, is what whole has from *next on, which moves. */
static void check_mat(const dev_mat *whole, const dev_mat *part, enum cut cut, int64_t *next)
{
    const struct cpu_mat *a = dev_cpu_mat_of(whole), *b = dev_cpu_mat_of(part);
    if (!a) {
        assert_null(b);
        return;
    }
    if (!b) { /* more ranks than parts */
        assert_int_not_equal(cut, WHOLE);
        return;
    }
    assert_int_equal(b->m.n_col, a->m.n_col);
    assert_int_equal(b->form, a->form);
    if (cut == STACK) {
        assert_int_equal(b->m.n_row, a->m.n_row);
        same_tiles(a, b, (int)*next, 0);
        *next += b->n;
        return;
    }
    assert_int_equal(b->n, a->n);
    if (cut == WHOLE) assert_int_equal(b->m.n_row, a->m.n_row);
    same_tiles(a, b, 0, cut == WHOLE ? 0 : *next);
    *next += cut == WHOLE ? 0 : b->m.n_row;
}

static void check_end(const dev_mat *whole, enum cut cut, int64_t next)
{
    const struct cpu_mat *a = dev_cpu_mat_of(whole);
    if (a && cut != WHOLE) assert_int_equal(next, cut == STACK ? a->n : a->m.n_row);
}

static const struct {
    size_t at;
    enum cut cut;
} mats[] = {{offsetof(struct layer, q), ROWS},
            {offsetof(struct layer, k), KEYS},
            {offsetof(struct layer, v), KEYS},
            {offsetof(struct layer, o), ROWS},
            {offsetof(struct layer, q_a), WHOLE},
            {offsetof(struct layer, q_b), ROWS},
            {offsetof(struct layer, kv_a), WHOLE},
            {offsetof(struct layer, k_b), STACK},
            {offsetof(struct layer, v_b), STACK},
            {offsetof(struct layer, gate_up), ROWS},
            {offsetof(struct layer, down), ROWS},
            {offsetof(struct layer, router), WHOLE},
            {offsetof(struct layer, index_q), WHOLE},
            {offsetof(struct layer, index_k), WHOLE},
            {offsetof(struct layer, index_w), WHOLE},
            {offsetof(struct layer, gate_up_exps), ROWS},
            {offsetof(struct layer, down_exps), ROWS}};
#define N_MAT BASE_COUNT_OF(mats)

static const dev_mat *mat_of(const struct layer *l, int i)
{
    return *(dev_mat *const *)(const void *)((const char *)l + mats[i].at);
}

/* Key heads that choose blocks have the queries for that. */
static enum cut cut_of(const model *m, int i)
{
    bool chooses = mats[i].at == offsetof(struct layer, index_q) && m->cfg.index_blk;
    return chooses ? KEYS : mats[i].cut;
}

static const struct layer *layer_of(const model *m, int i)
{
    return i < m->cfg.n_layer ? &m->layer[i] : &m->mtp[i - m->cfg.n_layer].layer;
}

/* ---- vectors: of the rows of a matrix ---- */

/* Of a matrix, a pair or stacks of them; *next: of the rows of one matrix. */
static void check_bias(const dev_mat *whole, const dev_mat *part, int64_t *next)
{
    const struct dev_epilogue *a = whole ? dev_mat_epilogue(whole) : NULL,
                              *b = part ? dev_mat_epilogue(part) : NULL;
    assert_int_equal(b && b->bias, a && a->bias && part);
    if (!b || !b->bias) return;
    int n = a->n_row / dev_mat_rows(whole), rows = dev_mat_rows(part); /* n: halves of a pair */
    assert_int_equal(b->n_row, n * rows);
    assert_int_equal(b->n_bias, a->n_bias);
    assert_memory_equal(&a->glu, &b->glu, sizeof a->glu);
    for (int64_t i = 0; i < (int64_t)n * a->n_bias; i++)
        assert_memory_equal(b->bias + i * rows, a->bias + i * dev_mat_rows(whole) + *next,
                            sizeof(float) * (size_t)rows);
    *next += rows;
}

static void check_vectors(const model *whole, const model *part, int i, struct cursor *c)
{
    const struct layer *a = layer_of(whole, i), *b = layer_of(part, i);
    int64_t *next = c->next + i * 8;
    if (a->k && dev_mat_epilogue(a->k)->bias) next[1] = first_key(part, part->cfg.d_head, next[1]);
    if (a->v && dev_mat_epilogue(a->v)->bias) next[2] = first_key(part, part->cfg.d_head, next[2]);
    check_bias(a->q, b->q, &next[0]);
    check_bias(a->k, b->k, &next[1]);
    check_bias(a->v, b->v, &next[2]);
    check_bias(a->o, b->o, &next[3]);
    if (a->per_head.of[PER_HEAD_SINKS] && b->q) {
        const float *all = a->per_head.of[PER_HEAD_SINKS] + next[4];
        assert_memory_equal(b->per_head.of[PER_HEAD_SINKS], all,
                            sizeof(float) * (size_t)part->dims.n_head);
        next[4] += part->dims.n_head;
    }
    check_bias(a->gate_up_exps, b->gate_up_exps, &next[5]);
    check_bias(a->down_exps, b->down_exps, &next[6]);
}

/* ---- all of a model ---- */

static void check_rank(const model *whole, const model *part, struct cursor *mat,
                       struct cursor *vec)
{
    int n = whole->cfg.n_layer + whole->n_mtp;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < N_MAT; k++) {
            int64_t *next = &mat->next[i * PER_LAYER + k];
            enum cut cut = cut_of(whole, k);
            int d = mats[k].cut == KEYS ? whole->cfg.d_head : whole->cfg.d_index;
            if (cut == KEYS && mat_of(layer_of(whole, i), k)) *next = first_key(part, d, *next);
            check_mat(mat_of(layer_of(whole, i), k), mat_of(layer_of(part, i), k), cut, next);
        }
        check_vectors(whole, part, i, vec);
    }
    int64_t *next = mat->next + 60 * PER_LAYER;
    check_mat(whole->embed, part->embed, ROWS, &next[0]);
    check_mat(whole->head, part->head, ROWS, &next[1]);
    for (int i = 0; i < whole->n_mtp; i++) {
        check_mat(whole->mtp[i].eh, part->mtp[i].eh, ROWS, &next[2 + 3 * i]);
        check_mat(whole->mtp[i].embed, part->mtp[i].embed, ROWS, &next[3 + 3 * i]);
        check_mat(whole->mtp[i].head, part->mtp[i].head, ROWS, &next[4 + 3 * i]);
    }
}

static void check_all_there(const model *whole, const struct cursor *mat)
{
    for (int i = 0; i < whole->cfg.n_layer + whole->n_mtp; i++)
        for (int k = 0; k < N_MAT; k++)
            check_end(mat_of(layer_of(whole, i), k), cut_of(whole, k),
                      mat->next[i * PER_LAYER + k]);
    check_end(whole->embed, ROWS, mat->next[60 * PER_LAYER]);
    check_end(whole->head, ROWS, mat->next[60 * PER_LAYER + 1]);
}

/* Bytes of the matrices that every rank has: in the run layout, and in the source. */
static void whole_bytes(const struct opened *o, int64_t *run, int64_t *source)
{
    *run = *source = 0;
    const model *m = o->m;
    for (int i = 0; i < m->cfg.n_layer + m->n_mtp; i++)
        for (int k = 0; k < N_MAT; k++) {
            static const struct {
                size_t at;
                enum arch_role role;
            } of[] = {{offsetof(struct layer, q_a), ROLE_Q_A},
                      {offsetof(struct layer, kv_a), ROLE_KV_A},
                      {offsetof(struct layer, router), ROLE_ROUTER},
                      {offsetof(struct layer, index_q), ROLE_INDEX_Q},
                      {offsetof(struct layer, index_k), ROLE_INDEX_K},
                      {offsetof(struct layer, index_w), ROLE_INDEX_W}};
            int r = 0;
            const dev_mat *w = mat_of(layer_of(m, i), k);
            if (cut_of(m, k) != WHOLE || !w) continue;
            char name[128];
            struct weight x;
            while (of[r].at != mats[k].at)
                r++;
            arch_tensor_name(&m->cfg.naming, of[r].role, i, "weight", name, sizeof name);
            *run += dev_mat_bytes(w);
            if (o->pack) continue;
            ASSERT_OK(io_weight(o->io, name, &x, &err));
            *source += (int64_t)weight_bytes(&x);
        }
    if (o->pack) *source = *run;
}

/* Of the matrices of key heads: what the rank has in the run layout, and in the source. */
static void key_bytes(const struct opened *o, int64_t *run, int64_t *source)
{
    static const enum arch_role role[] = {ROLE_K, ROLE_V, ROLE_INDEX_Q};
    const model *m = o->m;
    int64_t here = 0;
    for (int i = 0; i < m->cfg.n_layer + m->n_mtp; i++)
        for (int k = 0; k < (m->cfg.index_blk ? 3 : 2); k++) {
            const struct layer *l = layer_of(m, i);
            const dev_mat *const of[] = {l->k, l->v, l->index_q}, *w = of[k];
            char name[128];
            struct weight x;
            if (!w) continue;
            here += dev_mat_bytes(w);
            if (o->pack) continue;
            arch_tensor_name(&m->cfg.naming, role[k], i, "weight", name, sizeof name);
            ASSERT_OK(io_weight(o->io, name, &x, &err));
            *source += (int64_t)weight_bytes(&x) * m->dims.n_head_kv / m->cfg.n_head_kv;
        }
    *run += here;
    if (o->pack) *source += here;
}

static int64_t held(const model *m)
{
    int64_t n = m->embed ? dev_mat_bytes(m->embed) : 0;
    if (m->head && m->head != m->embed) n += dev_mat_bytes(m->head);
    for (int i = 0; i < m->cfg.n_layer + m->n_mtp; i++)
        for (int k = 0; k < N_MAT; k++)
            n += mat_of(layer_of(m, i), k) ? dev_mat_bytes(mat_of(layer_of(m, i), k)) : 0;
    for (int i = 0; i < m->n_mtp; i++) {
        const struct mtp *t = &m->mtp[i];
        n += t->eh ? dev_mat_bytes(t->eh) : 0;
        n += t->embed && t->embed != m->embed ? dev_mat_bytes(t->embed) : 0;
        n += t->head && t->head != m->head ? dev_mat_bytes(t->head) : 0;
    }
    return n;
}

/* pack NULL: from the source; weight NULL: ranks are alike. False: no such checkpoint. */
static bool check_ranks(const char *name, const char *pack, const uint16_t *weight)
{
    struct opened whole, o;
    struct model_stages by = {.n = 1};
    int64_t run, source;
    if (!open_rank(name, NULL, NULL, 0, 1, &whole)) return false;
    if (pack) { /* which all of it is the same in */
        static struct cursor mat, vec;
        memset(&mat, 0, sizeof mat);
        memset(&vec, 0, sizeof vec);
        assert_true(open_rank(name, pack, NULL, 0, 1, &o));
        check_rank(whole.m, o.m, &mat, &vec);
        check_all_there(whole.m, &mat);
        close_rank(&whole);
        whole = o;
    }
    assert_true(whole.m->cfg.n_layer + whole.m->n_mtp < 60);
    by.first[1] = whole.m->cfg.n_layer;
    if (weight) memcpy(by.weight, weight, 5 * sizeof *weight);
    for (int n_rank = 1; n_rank <= 5; n_rank++) {
        static struct cursor mat, vec;
        int64_t all_held = 0, all_done = 0, most = 0, done = whole.m->done_bytes;
        int64_t keys = 0, keys_done = 0, once = 0, once_done = 0;
        memset(&mat, 0, sizeof mat);
        memset(&vec, 0, sizeof vec);
        for (int rank = 0; rank < n_rank; rank++) {
            assert_true(open_rank(name, pack, weight ? &by : NULL, rank, n_rank, &o));
            check_rank(whole.m, o.m, &mat, &vec);
            all_held += held(o.m);
            all_done += o.m->done_bytes;
            most = BASE_MAX(most, held(o.m));
            if (pack) assert_int_equal(o.m->done_bytes, held(o.m));
            if (rank == 0) whole_bytes(&o, &run, &source);
            key_bytes(&o, &keys, &keys_done);
            close_rank(&o);
        }
        check_all_there(whole.m, &mat);
        key_bytes(&whole, &once, &once_done);
        if (pack) done = held(whole.m);
        if (pack) once_done = once;
        if (n_rank <= whole.m->cfg.n_head_kv) assert_int_equal(keys, once);
        assert_int_equal(all_held, held(whole.m) + (n_rank - 1) * run + keys - once);
        assert_int_equal(all_done, done + (n_rank - 1) * source + keys_done - once_done);
        if (n_rank == 2 && !weight) /* tiles and heads that do not divide are the only difference */
            assert_true(most - run < (held(whole.m) - run) * 2 / 3);
    }
    close_rank(&whole);
    return true;
}

static const char *const models[] = {
    "llama3.gguf",      "qwen2",           "qwen3_moe.gguf", "qwen3_moe",
    "deepseek_v3.gguf", "deepseek_v3_fp8", "deepseek_v2",    "deepseek_v2_lite_legacy.gguf",
    "q_mla.gguf",       "q_moe.gguf",      "gpt_oss",        "gpt_oss_mxfp4",
    "kimi_k25",         "minimax_m2_fp8",  "glm4_moe_fp8",   "smollm.gguf",
    "q_gpt_oss.gguf",   "glm4_moe.gguf",   "deepseek_v32",   "glm_moe_dsa.gguf",
    "minimax_m3",       "minimax_m3_mxfp8"};

TEST(model_rank_holds_its_rows_of_every_matrix)
{
    int n = 0;
    for (int i = 0; i < BASE_COUNT_OF(models); i++)
        n += check_ranks(models[i], NULL, NULL);
    if (n == 0) skip(); /* unpacked by CTest's fixture */
    assert_int_equal(n, BASE_COUNT_OF(models));
}

static void pack_file(const char *name, const char *to)
{
    char path[512];
    io_model *io = NULL;
    io_pack_out *out = NULL;
    dev *d = NULL;
    bool exact = false;
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, name);
    ASSERT_OK(io_open(path, false, &io, &err));
    ASSERT_OK(dev_open("cpu", &(struct dev_opts){.n_thread = 2}, &d, &err));
    ASSERT_OK(io_pack_out_open(to, io, dev_layout(d), &out, &err));
    ASSERT_OK(model_pack(io, d, NULL, out, &exact, &err));
    ASSERT_OK(io_pack_out_commit(out, exact, &err));
    dev_close(d);
    io_close(io);
}

TEST(model_rank_holds_its_rows_of_a_packed_file)
{
    char path[64], tiny[512];
    snprintf(tiny, sizeof tiny, "%s/%s", TEST_TINY, models[0]);
    if (os_path_kind(tiny) == OS_NONE) skip();
    for (int i = 0; i < BASE_COUNT_OF(models); i++) {
        snprintf(path, sizeof path, "rank_test_%ld.packed", (long)getpid());
        pack_file(models[i], path);
        assert_true(check_ranks(models[i], path, NULL));
        assert_int_equal(unlink(path), 0);
    }
}

TEST(model_rank_holds_its_rows_by_weight)
{
    static const uint16_t weight[] = {4, 1, 3, 2, 2};
    char path[64];
    for (int i = 0; i < BASE_COUNT_OF(models); i++) {
        if (!check_ranks(models[i], NULL, weight)) skip();
        snprintf(path, sizeof path, "rank_test_%ld.packed", (long)getpid());
        pack_file(models[i], path);
        assert_true(check_ranks(models[i], path, weight));
        assert_int_equal(unlink(path), 0);
    }
}

/* ---- stages ---- */

/* Of a model of n_layer layers each stage holds its own, and nothing twice but a table that is the
 * head too, or that MTP layers look into. */
static bool check_stages(const char *name, const char *pack, int n_stage, int tp)
{
    struct opened whole, o;
    if (!open_rank(name, NULL, NULL, 0, tp, &whole)) return false;
    const model *m = whole.m;
    struct model_stages s = {.n = n_stage};
    ASSERT_OK(model_stages_of(&m->cfg, whole.io, true, &s, &err));
    int64_t all = 0, want = 0;
    for (int t = 0; t < tp; t++) {
        assert_true(open_rank(name, pack, NULL, t, tp, &o));
        want += held(o.m);
        if (n_stage > 1 && o.m->embed && (m->cfg.tied_head || m->n_mtp))
            want += dev_mat_bytes(o.m->embed);
        close_rank(&o);
    }
    for (int rank = 0; rank < n_stage * tp; rank++) {
        assert_true(open_rank(name, pack, &s, rank, n_stage * tp, &o));
        const struct model_dims *d = &o.m->dims;
        assert_int_equal(d->stage, n_stage - 1 - rank / tp);
        assert_true(d->n_layer >= 1);
        assert_true(!!o.m->head == (rank < tp) && !!o.m->norm == (rank < tp));
        assert_int_equal(o.m->n_mtp, rank < tp ? m->n_mtp : 0);
        for (int il = 0; il < m->cfg.n_layer; il++) {
            bool has = il >= s.first[d->stage] && il < s.first[d->stage + 1];
            assert_true(!!layer_of(o.m, il)->o == has);
            assert_true(!!layer_of(o.m, il)->attn_norm == has);
        }
        all += held(o.m);
        if (pack) assert_int_equal(o.m->done_bytes, held(o.m));
        close_rank(&o);
    }
    assert_int_equal(all, want);
    close_rank(&whole);
    return true;
}

TEST(model_stage_holds_its_layers)
{
    char path[64], tiny[512];
    snprintf(tiny, sizeof tiny, "%s/%s", TEST_TINY, models[0]);
    if (os_path_kind(tiny) == OS_NONE) skip();
    for (int i = 0; i < BASE_COUNT_OF(models); i++) {
        assert_true(check_stages(models[i], NULL, 2, 1));
        assert_true(check_stages(models[i], NULL, 2, 2));
        snprintf(path, sizeof path, "stage_test_%ld.packed", (long)getpid());
        pack_file(models[i], path);
        assert_true(check_stages(models[i], path, 2, 1));
        assert_int_equal(unlink(path), 0);
    }
}

TEST(model_stages_have_equal_bytes)
{
    struct opened o;
    if (!open_rank("llama3.gguf", NULL, NULL, 0, 1, &o)) skip();
    struct arch_cfg *c = &o.m->cfg;
    struct model_stages s = {.n = c->n_layer + 1};
    ASSERT_STATUS(model_stages_of(c, o.io, false, &s, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "layers: as many stages at most"));
    s.n = c->n_layer;
    ASSERT_OK(model_stages_of(c, o.io, false, &s, &err));
    for (int i = 0; i <= c->n_layer; i++)
        assert_int_equal(s.first[i], i);
    /* the head, whose bytes are many layers' here, is the last stage's */
    s.n = 2;
    ASSERT_OK(model_stages_of(c, o.io, false, &s, &err));
    assert_int_equal(s.first[1], c->n_layer - 1);
    close_rank(&o);
}

TEST(model_rank_out_of_range_and_programs_of_several_are_refused)
{
    char path[512];
    io_model *io = NULL;
    dev *d = NULL;
    model *m = NULL;
    struct model_opts o = {
        .n_tok_max = 1, .n_seq_max = 1, .n_logit_max = 1, .rank = 2, .n_rank = 2};
    snprintf(path, sizeof path, "%s/llama3.gguf", TEST_TINY);
    if (os_path_kind(path) == OS_NONE) skip();
    ASSERT_OK(io_open(path, false, &io, &err));
    ASSERT_OK(dev_open("cpu", &(struct dev_opts){.n_thread = 1}, &d, &err));
    ASSERT_STATUS(model_open_parts(io, d, &o, &m, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "rank 2 of 2"));
    o.rank = 1;
    ASSERT_STATUS(model_open(io, d, &o, &m, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "rank 1 of 2"));
    dev_close(d);
    io_close(io);
}

/* ---- a rank's heads ---- */

enum { T = 7 };

/* y of layer 0's attention over T tokens of random x: [T, own heads' values]. The program without
 * the look-up, up to its first attention. */
static int heads_of(struct opened *o, const float *x, float *y)
{
    static int32_t pos[T] = {0, 1, 2, 3, 4, 5, 6};
    int32_t tok0[2] = {0, T}, blk = 0, n_prompt = T;
    model *m = o->m;
    int n_max = model_op_max(m), last = 0;
    struct dev_op *op = NULL;
    void *p = NULL;
    dev_prog *prog = NULL;
    dev_kv *kv = NULL;
    struct dev_step s = {.n_tok = T,
                         .n_seq = 1,
                         .ids = pos,
                         .pos = pos,
                         .seq_tok0 = tok0,
                         .blk = {&blk, &blk},
                         .ld_blk = 1,
                         .n_prompt = &n_prompt};
    ASSERT_OK(mem_alloc_array(MEM_MISC, (size_t)n_max, sizeof *op, &p, &err));
    op = p;
    struct emit e = {.op = op, .n_max = n_max};
    model_emit_begin(&e, m);
    model_pass_emit(&e, 0);
    assert_int_equal(op[0].kind, DEV_OP_embed);
    while (op[last].kind != DEV_OP_attn && op[last].kind != DEV_OP_attn_mla)
        last++;
    struct dev_kv_shape shape = model_kv_shape(&m->cfg, &m->dims, DEV_KV_F32, 1, 16);
    ASSERT_OK(dev_kv_open(o->d, &shape, &kv, &err));
    ASSERT_OK(dev_put(o->d, model_side(m, MODEL_ATTN)->x, x,
                      sizeof(float) * T * (size_t)m->cfg.d_model, &err));
    ASSERT_OK(model_reserve(m, &err));
    ASSERT_OK(dev_prog_open(o->d, op + 1, last, &prog, &err));
    ASSERT_OK(dev_prog_run(prog, kv, &s, &err));
    int width = m->dims.n_head * (m->cfg.kv_lora ? m->cfg.d_v : m->cfg.d_head);
    ASSERT_OK(
        dev_get(o->d, y, model_side(m, MODEL_ATTN)->y, sizeof(float) * T * (size_t)width, &err));
    dev_prog_close(prog);
    mem_free(op);
    return width;
}

TEST(model_rank_computes_its_heads_as_the_whole_does)
{
    static const char *const some[] = {"llama2.gguf", "deepseek_v3", "deepseek_v2_lite.gguf",
                                       "kimi_k2"};
    static float x[T * 4096], want[T * 8192], got[T * 8192];
    for (int i = 0; i < T * 4096; i++)
        x[i] = (float)((i * 37 + 11) % 101) / 50.0f - 1.0f;
    for (int i = 0; i < BASE_COUNT_OF(some); i++) {
        struct opened whole, o;
        if (!open_rank(some[i], NULL, NULL, 0, 1, &whole)) skip();
        int all = heads_of(&whole, x, want), at = 0;
        for (int rank = 0; rank < 2; rank++) {
            assert_true(open_rank(some[i], NULL, NULL, rank, 2, &o));
            int n = heads_of(&o, x, got);
            assert_true(n > 0 && n < all);
            for (int t = 0; t < T; t++)
                assert_memory_equal(got + t * n, want + t * all + at, sizeof(float) * (size_t)n);
            at += n;
            close_rank(&o);
        }
        assert_int_equal(at, all);
        close_rank(&whole);
    }
}
