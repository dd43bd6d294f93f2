/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: every variant bit for bit equal to the reference, the reference within a formula
 * of double, packing lossless, results independent of the company. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "check.h"

/* ---- random matrices ---- */

static void put_f16(struct check *c, uint8_t *p, int positive)
{
    float v = (check_randf(c) + (positive ? 1.5f : 0.0f)) * 0.01f;
    if (check_rand(c, 64) == 0) v = 0x1p-20f; /* a subnormal f16 */
    uint16_t h = fp_f32_to_f16(v);
    memcpy(p, &h, 2);
}

/* A valid random block; a quarter of them at the extremes of the codes. */
static void random_block(struct check *c, enum tensor_dtype type, uint8_t *b)
{
    int n = tensor_dtype(type)->bytes;
    uint32_t kind = check_rand(c, 8);
    for (int i = 0; i < n; i++)
        b[i] = kind == 0 ? 0x00 : kind == 1 ? 0xff : (uint8_t)check_rand(c, 256);
    switch (type) {
    case TENSOR_F32: {
        float v = check_randf(c);
        memcpy(b, &v, 4);
        break;
    }
    case TENSOR_F16:
        put_f16(c, b, 0);
        break;
    case TENSOR_BF16: {
        uint16_t h = fp_f32_to_bf16(check_randf(c));
        memcpy(b, &h, 2);
        break;
    }
    case TENSOR_F8_E4M3:
        if ((b[0] & 0x7f) == 0x7f) b[0] ^= 1;
        break;
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        put_f16(c, b, 0);
        put_f16(c, b + 2, 0);
        break;
    case TENSOR_Q2_K:
        put_f16(c, b + 80, 0);
        put_f16(c, b + 82, 0);
        break;
    case TENSOR_Q3_K:
        put_f16(c, b + 108, 0);
        break;
    case TENSOR_Q6_K:
        put_f16(c, b + 208, 0);
        break;
    case TENSOR_MXFP4:
        b[0] = (uint8_t)(check_rand(c, 16) ? 110 + check_rand(c, 20) : check_rand(c, 3));
        break;
    case TENSOR_NVFP4:
        break;
    default:
        put_f16(c, b, 0);
        break;
    }
}

static uint8_t *random_bytes(struct check *c, size_t n)
{
    uint8_t *p = check_alloc(c, n);
    uint32_t kind = check_rand(c, 8);
    for (size_t i = 0; i < n; i++)
        p[i] = kind == 0 ? 0x00 : kind == 1 ? 0xff : (uint8_t)check_rand(c, 256);
    return p;
}

/* What folders store in integers, in the form that the run formats i4* and i8* are made from. */
static struct weight random_group(struct check *c, int fmt, int n_row, int n_col)
{
    int four = kern_mm_fmts[fmt].type == TENSOR_U8, min = kern_mm_fmts[fmt].min;
    int size = fmt == MM_i4zg ? 32 : kern_mm_fmts[fmt].blk_k, whole = n_col % size != 0;
    struct weight w = {.name = "w",
                       .scheme = TENSOR_SCHEME_GROUP,
                       .type = kern_mm_fmts[fmt].type,
                       .rows = n_row,
                       .cols = n_col,
                       .tensor_scale = 1.0f};
    struct weight_group *g = &w.group;
    w.row_bytes = (uint64_t)(four ? (n_col + 7) / 8 * 4 : n_col);
    w.data = random_bytes(c, w.row_bytes * (size_t)n_row);
    g->codes = four ? WEIGHT_NIB : WEIGHT_I8;
    g->size = whole ? n_col : size;
    g->n_group = n_col / g->size;
    g->n_row = n_row;
    if (min) {
        g->zeros = four ? WEIGHT_ZERO_NIB_ROWS : WEIGHT_ZERO_U8_ROWS;
        g->zero = random_bytes(c, 4 * (size_t)g->n_group *
                                      (size_t)(four ? (n_row + 7) / 8 : (n_row + 3) / 4));
    }
    int64_t n = n_row * g->n_group;
    uint8_t *s = check_alloc(c, 4 * (size_t)n);
    g->scale = (struct weight_scale){s,
                                     !min               ? TENSOR_F32
                                     : check_rand(c, 2) ? TENSOR_F16
                                                        : TENSOR_BF16,
                                     g->n_group, 1};
    for (int64_t i = 0; i < n; i++) {
        float v = (check_randf(c) + 1.5f) * 0.0001f;
        uint16_t h = fp_f32_to_bf16(v);
        if (g->scale.type == TENSOR_F32)
            memcpy(s + 4 * i, &v, 4);
        else if (g->scale.type == TENSOR_F16)
            put_f16(c, s + 2 * i, 1);
        else
            memcpy(s + 2 * i, &h, 2);
    }
    return w;
}

static struct weight random_weight(struct check *c, int fmt, int n_row, int n_col)
{
    if (!tensor_dtype_is_weight(kern_mm_fmts[fmt].type)) return random_group(c, fmt, n_row, n_col);
    enum tensor_dtype type = kern_mm_fmts[fmt].type;
    const struct tensor_dtype_info *d = tensor_dtype(type);
    struct weight w = {
        .name = "w", .type = type, .rows = n_row, .cols = n_col, .tensor_scale = 1.0f};
    w.row_bytes = (uint64_t)(n_col / d->block) * (uint64_t)d->bytes;
    uint8_t *p = check_alloc(c, w.row_bytes * (size_t)n_row);
    for (size_t i = 0; i < w.row_bytes * (size_t)n_row; i += (size_t)d->bytes)
        random_block(c, type, p + i);
    w.data = p;
    if (type == TENSOR_F8_E4M3) {
        int n = (n_row + 127) / 128 * ((n_col + 127) / 128);
        float *s = check_alloc(c, (size_t)n * sizeof(float));
        for (int i = 0; i < n; i++) { /* a kernel may take small ones its own way */
            s[i] = check_randf(c);
            if (check_rand(c, 4) == 0) s[i] *= check_rand(c, 2) ? 0x1p12f : 0x1p100f;
        }
        w.scheme = TENSOR_SCHEME_F8_BLOCK;
        w.scale = s;
        w.block_rows = w.block_cols = 128;
    }
    return w;
}

static void pack(struct check *c, int want, const struct weight *w, const struct weight *w2,
                 struct mm_mat *m)
{
    int fmt = -1;
    sl_err err;
    size_t n;
    if (w->scheme == TENSOR_SCHEME_GROUP)
        fmt = want; /* several would do */
    else if (kern_mm_fmt(w, &fmt, &err) != SL_OK || fmt != want) {
        check_fail(c, "kern_mm_fmt: %s", err.text);
        return;
    }
    kern_mm_layout(fmt, w->rows, w->cols, w2 != NULL, m, &n);
    m->data = check_alloc(c, n);
    m->scale = kern_mm_scale(fmt, w);
    if (w2) m->scale2 = kern_mm_scale(fmt, w2);
    for (int t = 0; t < (w->rows + 15) / 16; t++) {
        kern_mm_pack_tile(m, w, 0, t);
        if (w2) kern_mm_pack_tile(m, w2, 1, t);
    }
}

/* ---- packing ---- */

static int same_row(const struct weight *w, int r, const float *got, float *want)
{
    weight_dequant(w, r, 0, w->cols, want);
    return memcmp(got, want, (size_t)w->cols * sizeof(float)) == 0;
}

static void check_pack_fmt(struct check *c, int fmt, int n_row, int n_col, int is_pair)
{
    struct weight w = random_weight(c, fmt, n_row, n_col), w2 = random_weight(c, fmt, n_row, n_col);
    struct mm_mat m;
    w.tensor_scale = check_rand(c, 2) ? 1.0f : 0.37f;
    w2.tensor_scale = 1.7f;
    pack(c, fmt, &w, is_pair ? &w2 : NULL, &m);
    size_t stored = w.row_bytes * (size_t)((n_row + 15) / 16 * 16) * (is_pair ? 2u : 1u);
    double most = fmt == MM_i4zg ? 1.2 : w.scheme == TENSOR_SCHEME_GROUP ? 1.07 : 1.05;
    if (n_col % kern_mm_fmts[fmt].blk_k == 0 && n_col >= 256 &&
        (double)(m.tile_bytes - 63) * m.n_tile > most * (double)stored)
        check_fail(c, "%s: %zu bytes for %zu stored", kern_mm_fmt_name(fmt),
                   m.tile_bytes * (size_t)m.n_tile, stored);
    float *got = check_alloc(c, 16 * (size_t)n_col * sizeof(float));
    float *want = check_alloc(c, (size_t)n_col * sizeof(float));
    for (int t = 0; t < m.n_tile; t++) {
        const struct weight *src = is_pair && (t & 1) ? &w2 : &w;
        int tile = is_pair ? t / 2 : t;
        kern_mm_unpack_tile(&m, t, got, n_col);
        for (int r = 0; r < 16 && 16 * tile + r < n_row; r++)
            if (!same_row(src, 16 * tile + r, got + (size_t)r * (size_t)n_col, want))
                check_fail(c, "%s: row %d of %d x %d differs", kern_mm_fmt_name(fmt), 16 * tile + r,
                           n_row, n_col);
    }
    for (int r = 0; r < n_row; r++) {
        kern_mm_unpack_row(&m, r, got);
        if (!same_row(&w, r, got, want))
            check_fail(c, "%s: unpack_row %d differs", kern_mm_fmt_name(fmt), r);
    }
    c->n_case++;
    check_free_all();
}

static int cols_of(int fmt, int i)
{
    static const int small[] = {1, 7, 33, 100, 256, 576}, code[] = {1, 3, 2, 7, 18, 24};
    int block = tensor_dtype(kern_mm_fmts[fmt].type)->block;
    if (block == 1) return small[i % 6];
    return block * (block == 256 ? 1 + i % 3 : code[i % 6]);
}

void check_pack(struct check *c)
{
    static const int rows[] = {1, 16, 17, 40, 31, 8};
    for (int fmt = 0; fmt < MM_N_FMT; fmt++)
        for (int i = 0; i < 6; i++)
            check_pack_fmt(c, fmt, rows[(i + fmt) % 6], cols_of(fmt, i), i & 1);
}

/* ---- products ---- */

struct problem {
    struct weight w, w2;
    struct mm_mat m;
    struct mm_act_buf x;
    float *raw; /* [n_src][n_col] */
    int n_src, n_tok;
    int32_t *idx;
    enum mm_act form;
};

static void random_acts(struct check *c, float *x, int n)
{
    uint32_t kind = check_rand(c, 5), far = check_rand(c, 2) ? 8 : 3;
    float out = 1.0f;
    for (int i = 0; i < n; i++) {
        float v = check_randf(c);
        /* groups that stand out: those get second planes */
        if (i % 32 == 0)
            out = kind == 1 || check_rand(c, far) ? 1.0f : 2.0f + 9.0f * check_randf(c);
        v *= out;
        if (kind == 1) v = v > 0 || far == 3 ? 1.0f : -1.0f; /* every q at +-127, or at 127 */
        if (kind == 2 && check_rand(c, 20) == 0) v *= 60.0f;
        if (kind == 3 && i / 32 % 2) v = 0.0f;
        x[i] = v;
    }
}

static void make_problem(struct check *c, int fmt, int n_row, int n_col, int n_tok,
                         enum mm_act form, struct problem *p)
{
    int is_pair = (int)check_rand(c, 3) == 0;
    p->w = random_weight(c, fmt, n_row, n_col);
    p->w2 = random_weight(c, fmt, n_row, n_col);
    if (check_rand(c, 4) == 0) p->w.tensor_scale = 0.7f, p->w2.tensor_scale = 1.3f;
    pack(c, fmt, &p->w, is_pair ? &p->w2 : NULL, &p->m);
    p->n_tok = n_tok;
    p->n_src = n_tok + (int)check_rand(c, 3);
    p->form = form;
    p->idx = NULL;
    if (check_rand(c, 2)) {
        p->idx = check_alloc(c, (size_t)n_tok * sizeof(int32_t));
        for (int j = 0; j < n_tok; j++)
            p->idx[j] = (int32_t)check_rand(c, (uint32_t)p->n_src);
    }
    size_t n = kern_mm_act_bytes(1u << form, n_col, p->n_src);
    kern_mm_act_init(&p->x, 1u << form, n_col, p->n_src, check_alloc(c, n));
    p->raw = check_alloc(c, (size_t)p->n_src * (size_t)n_col * sizeof(float));
    for (int t = 0; t < p->n_src; t++) {
        random_acts(c, p->raw + (size_t)t * (size_t)n_col, n_col);
        kern_mm_prep(&p->x, t, p->raw + (size_t)t * (size_t)n_col);
    }
    c->n_case++;
}

/* The value that the activations stand for. */
static double act_value(const struct problem *p, int tok, int k)
{
    size_t ld = (size_t)p->x.ld, n = ld / 32, t = (size_t)tok, g = (size_t)k / 32;
    if (p->form == MM_ACT_F32) return p->x.f32[t * ld + (size_t)k];
    if (p->form == MM_ACT_BF16) return fp_bf16_to_f32(p->x.bf16[t * ld + (size_t)k]);
    size_t planes = p->form == MM_ACT_INT8 ? 1 : 2, row = t * (planes * n | 1) + g;
    const struct mm_rec *r = (p->form == MM_ACT_INT8    ? p->x.i8
                              : p->form == MM_ACT_INT8X ? p->x.i8x
                                                        : p->x.i15) +
                             row;
    double v = (double)r->d * r->q[k % 32];
    int two = p->form == MM_ACT_INT15;
    const int32_t *list = p->x.lo_list + t * (n + 1);
    for (int i = 1; p->form == MM_ACT_INT8X && i <= list[0]; i++)
        two |= list[i] == (int)g;
    if (two) v += (double)r[n].d * r[n].q[k % 32];
    const struct mm_rec *unit = r - g + (planes * n | 1) - 1;
    return v * (double)unit->d;
}

/* |y - sum| <= (3 K + 8) u (sum |w x| + what minima cancel): each group adds at most five roundings
 * for 16 or 32 k. */
static void against_double(struct check *c, const struct problem *p, const float *y, int64_t ldy)
{
    int n_col = p->m.n_col;
    float *row = check_alloc(c, 16 * (size_t)n_col * sizeof(float));
    for (int t = 0; t < p->m.n_tile; t++) {
        const struct weight *w = p->m.is_pair && (t & 1) ? &p->w2 : &p->w;
        for (int r = 0; r < 16; r++) {
            int64_t at = (p->m.is_pair ? t / 2 : t) * 16 + r;
            if (at < w->rows) weight_dequant(w, at, 0, n_col, row);
            for (int j = 0; j < p->n_tok; j++) {
                int tok = p->idx ? p->idx[j] : j;
                double sum = 0, mag = 0, got = y[j * ldy + 16 * t + r];
                for (int k = 0; k < n_col && at < w->rows; k++) {
                    double x = act_value(p, tok, k);
                    sum += row[k] * x;
                    mag += fabs(row[k] * x) + fabs(x) * (kern_mm_fmts[p->m.fmt].min ? 2.0 : 0.0);
                }
                double tol = (3.0 * n_col + 8) * 0x1p-24 * mag;
                if (!(fabs(got - sum) <= tol))
                    check_fail(c,
                               "%s form %d: row %d tok %d of %d x %d x %d: %.9g, double %.9g, "
                               "tolerance %.3g",
                               kern_mm_fmt_name(p->m.fmt), (int)p->form, (int)at, j, p->m.n_row,
                               n_col, p->n_tok, got, sum, tol);
            }
        }
    }
}

static void compare(struct check *c, const struct problem *p, const float *y, const float *want,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fp_to_bits(y[i]) != fp_to_bits(want[i])) {
            check_fail(c, "%s form %d, %d x %d x %d: output %zu is %.9g, reference %.9g",
                       kern_mm_fmt_name(p->m.fmt), (int)p->form, p->m.n_row, p->m.n_col, p->n_tok,
                       i, y[i], want[i]);
            return;
        }
}

static void compare_tiles(struct check *c, const struct problem *p, const float *y,
                          const float *want, int64_t ldy)
{
    for (int j = 0; j < p->n_tok; j++)
        compare(c, p, y + j * ldy, want + j * ldy, 16 * (size_t)p->m.n_tile);
}

/* Columns that changed and a call that says so; other columns, and a call that does not. */
static void check_changed(struct check *c, const struct kern *k, struct problem *p, void *scratch)
{
    float *y = check_alloc(c, 32 * sizeof(float));
    float *x = check_alloc(c, (size_t)p->m.n_col * sizeof(float));
    float *want = check_alloc(c, 32 * sizeof(float));
    void *fresh = check_alloc(c, kern_mm_scratch_bytes(p->m.n_col));
    int32_t tok[2] = {p->idx ? p->idx[p->n_tok - 1] : p->n_tok - 1, p->idx ? p->idx[0] : 0};
    for (int i = 0; i < p->m.n_col; i++)
        x[i] = (float)check_rand(c, 1000) / 100.0f - 5.0f;
    for (int again = 0; again < 2; again++) {
        if (!again) kern_mm_prep(&p->x, tok[0], x);
        kern_mm_with(k, &p->m, 0, 1, &p->x, p->form, tok + again, 2 - again, want, 16, NULL, 0,
                     fresh);
        kern_mm_with(k, &p->m, 0, 1, &p->x, p->form, tok + again, 2 - again, y, 16, NULL, again,
                     scratch);
        compare(c, p, y, want, 16 * (size_t)(2 - again));
    }
}

static void check_product(struct check *c, const struct kern *k, int fmt, int n_row, int n_col,
                          int n_tok, enum mm_act form)
{
    struct problem p;
    struct kern ref;
    make_problem(c, fmt, n_row, n_col, n_tok, form, &p);
    check_ref_table(&ref);
    int64_t ldy = 16 * p.m.n_tile + (int)check_rand(c, 3);
    size_t n = (size_t)ldy * (size_t)(n_tok - 1) + 16 * (size_t)p.m.n_tile;
    float *want = check_alloc(c, n * sizeof(float)), *y = check_alloc(c, n * sizeof(float));
    void *scratch = check_alloc(c, kern_mm_scratch_bytes(n_col));
    kern_mm_with(&ref, &p.m, 0, p.m.n_tile, &p.x, form, p.idx, n_tok, want, ldy, NULL, 0, scratch);
    if (strcmp(c->isa, "ref") == 0) {
        if (fmt != MM_mxfp4) against_double(c, &p, want, ldy);
    } else {
        kern_mm_with(k, &p.m, 0, p.m.n_tile, &p.x, form, p.idx, n_tok, y, ldy, p.m.data, 0,
                     scratch);
        compare(c, &p, y, want, n);
        memset(y, 0xff, n * sizeof(float));
        for (int t = 0; t < p.m.n_tile; t++) /* with the columns of the call before */
            kern_mm_with(k, &p.m, t, 1, &p.x, form, p.idx, n_tok, y + 16 * t, ldy, NULL, 1,
                         scratch);
        compare_tiles(c, &p, y, want, ldy);
        check_changed(c, k, &p, scratch);
    }
    check_free_all();
}

static void check_mm(struct check *c, int fmt, const struct kern *k)
{
    static const int rows[] = {1, 16, 17, 40, 24},
                     toks[] = {1, 2, 3, 4, 7, 8, 16, 33, 64, 65, 1, 1};
    for (int i = 0; i < 12; i++)
        for (int form = 0; form < MM_N_ACT; form++) {
            if (!kern_mm_takes(fmt, (enum mm_act)form)) continue;
            if (fmt < MM_N_CODE && form <= MM_ACT_BF16 && strcmp(c->isa, "ref") != 0) continue;
            struct kern with = *k;
            with.two_tiles = (i + form) & 1;
            check_product(c, &with, fmt, rows[(i + form) % 5], cols_of(fmt, i + form), toks[i],
                          (enum mm_act)form);
        }
    /* more columns of K than one panel holds */
    int n_col = tensor_dtype(kern_mm_fmts[fmt].type)->block * (fmt == MM_nvfp4 ? 72 : 144);
    if (tensor_dtype(kern_mm_fmts[fmt].type)->block == 256) n_col = 256 * 10;
    if (tensor_dtype(kern_mm_fmts[fmt].type)->block == 1) n_col = 2400;
    check_product(c, k, fmt, 17, n_col, 64, fmt < MM_N_CODE ? MM_ACT_INT8X : MM_ACT_F32);
}

#define X(name, ...)                                                                               \
    void check_mm_##name(struct check *c, void (*variant)(const struct mm_run *r))                 \
    {                                                                                              \
        struct kern k;                                                                             \
        check_ref_table(&k);                                                                       \
        k.mm_##name = variant;                                                                     \
        check_mm(c, MM_##name, &k);                                                                \
    }
MM_CODE_FMTS(X)
MM_FLOAT_FMTS(X)
#undef X

void check_mm_bf16x(struct check *c, void (*variant)(const struct mm_run *r))
{
    static const int toks[] = {1, 2, 3, 7, 16, 33, 64, 65};
    struct kern k;
    struct check as = *c; /* the reference's mm_bf16 is what it must equal, even the reference */
    check_ref_table(&k);
    k.mm_bf16x = variant;
    k.bf16_pairs = 1;
    if (strcmp(c->isa, "ref") == 0) as.isa = "ref against mm_bf16";
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 6; j++)
            check_product(&as, &k, MM_bf16, 5 + 17 * (j % 3), cols_of(MM_bf16, j), toks[i],
                          MM_ACT_BF16);
    check_product(&as, &k, MM_bf16, 17, 2400, 64, MM_ACT_BF16);
    *c = as;
}

/* Values of every kind. */
void check_mm_bf16_row(struct check *c, void (*variant)(const float *x, int n, uint16_t *y))
{
    for (int n = 1; n < 100; n++) {
        float *x = check_alloc(c, (size_t)n * sizeof *x);
        uint16_t *a = check_alloc(c, (size_t)n * sizeof *a + 64), b[100];
        for (int i = 0; i < n; i++) {
            uint32_t bits = check_rand(c, 1 << 16) << 16 | check_rand(c, 1 << 16);
            uint32_t how = check_rand(c, 8);
            if (how == 0) bits &= 0x807fffffu;                  /* subnormal */
            if (how == 1) bits |= 0x7f800000u;                  /* NaN */
            if (how == 2) bits = (bits & 0xffff0000u) | 0x8000; /* halfway */
            if (how == 3) bits = (bits & 0x80000000u) | 0x7f800000u;
            x[i] = fp_from_bits(bits);
        }
        memset(a + n, 0x5a, 64);
        variant(x, n, a);
        kern_mm_bf16_row_ref(x, n, b);
        c->n_case++;
        for (int i = 0; i < n; i++)
            if (a[i] != b[i] || b[i] != fp_f32_to_bf16(x[i]))
                check_fail(c, "%08x is %04x, not %04x", fp_to_bits(x[i]), a[i], b[i]);
        for (int i = 0; i < 32; i++)
            if (a[n + i] != 0x5a5a) check_fail(c, "writes beyond its %d values", n);
    }
}

/* One token alone, tile by tile, equals the batch: with the table of this CPU. */
void check_alone(struct check *c)
{
    for (int fmt = 0; fmt < MM_N_FMT; fmt++)
        for (int form = 0; form < MM_N_ACT; form++) {
            if (!kern_mm_takes(fmt, (enum mm_act)form)) continue;
            struct problem p;
            make_problem(c, fmt, 40, cols_of(fmt, form + 3), 5 + (int)check_rand(c, 90),
                         (enum mm_act)form, &p);
            int64_t ldy = 16 * p.m.n_tile;
            float *y = check_alloc(c, (size_t)p.n_tok * (size_t)ldy * sizeof(float));
            float *one = check_alloc(c, 16 * sizeof(float));
            void *scratch = check_alloc(c, kern_mm_scratch_bytes(p.m.n_col));
            kern_mm(&p.m, 0, p.m.n_tile, &p.x, p.form, p.idx, p.n_tok, y, ldy, NULL, 0, scratch);
            for (int j = 0; j < p.n_tok; j++)
                for (int t = 0; t < p.m.n_tile; t++) {
                    int32_t tok = p.idx ? p.idx[j] : j;
                    kern_mm(&p.m, t, 1, &p.x, p.form, &tok, 1, one, 16, p.m.data, 0, scratch);
                    compare(c, &p, y + j * ldy + 16 * t, one, 16);
                }
            check_free_all();
        }
}

/* ---- activations ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Which groups have a second plane, told again from mm.h: a set of the largest. */
void check_outliers(struct check *c)
{
    int n_second = 0, n_all = 0;
    for (int trial = 0; trial < 300; trial++) {
        int n_group = 1 + (int)check_rand(c, 256), n_col = 32 * n_group;
        struct mm_act_buf b;
        float *x = check_alloc(c, (size_t)n_col * sizeof *x);
        double *size = check_alloc(c, (size_t)n_group * sizeof *size);
        size_t bytes = kern_mm_act_bytes(1u << MM_ACT_INT8X, n_col, 1);
        kern_mm_act_init(&b, 1u << MM_ACT_INT8X, n_col, 1, check_alloc(c, bytes));
        random_acts(c, x, n_col);
        kern_mm_prep(&b, 0, x);
        double sum = 0, smallest = INFINITY, largest = 0;
        for (int g = 0; g < n_group; g++) {
            float amax = 0;
            for (int k = 0; k < 32; k++)
                amax = fmaxf(amax, fabsf(x[32 * g + k]));
            bool has = false;
            for (int i = 1; i <= b.lo_list[0]; i++)
                has |= b.lo_list[i] == g;
            if (has)
                smallest = fmin(smallest, amax);
            else
                largest = fmax(largest, amax);
            size[g] = (double)amax * (double)amax;
            sum += size[g];
        }
        qsort(size, (size_t)n_group, sizeof *size, by_size);
        int n = 0, sure = 1;
        for (; n < (n_group + 3) / 4 && size[n] * (n_group - n) > 3.0 * sum; n++) {
            sure &= size[n] * (n_group - n) > 3.0001 * sum;
            sum -= size[n];
        }
        sure &= n == (n_group + 3) / 4 || !(size[n] * (n_group - n) > 2.9999 * sum);
        if (b.lo_list[0] != n && sure)
            check_fail(c, "%d groups: %d have a second plane, not %d", n_group, b.lo_list[0], n);
        if (smallest < largest) check_fail(c, "%d groups: not the largest ones", n_group);
        n_second += b.lo_list[0];
        n_all += n_group;
        c->n_case++;
        check_free_all();
    }
    if (n_second < n_all / 50) check_fail(c, "%d second planes of %d groups", n_second, n_all);
}

/* Values that no product of real ones has: NaN, infinities, zeros of both signs, subnormals. */
static void strange_acts(struct check *c, float *x, int n)
{
    static const uint32_t bits[] = {0x7fc00000u, 0xff812345u, 0x7f800000u, 0xff800000u,
                                    0x80000000u, 0u,          0x00000001u, 0x807fffffu};
    int group = (int)check_rand(c, (uint32_t)n / 32), whole = check_rand(c, 4) == 0;
    for (int i = 0; i < 32; i++) {
        uint32_t b = bits[check_rand(c, BASE_COUNT_OF(bits))];
        if (whole || check_rand(c, 8) == 0) x[32 * group + i] = fp_from_bits(b);
    }
}

/* Groups from to of token 1 go from one buffer to another, as ranks take them. */
static void carry(struct mm_act_buf *from, struct mm_act_buf *to, int begin, int end)
{
    int64_t ld;
    const float *x = kern_mm_part(from, begin, &ld) + ld;
    float *y = kern_mm_part(to, begin, &ld) + ld;
    memcpy(y, x, (size_t)(end - begin) * MM_PART_WORDS * sizeof *y);
}

/* Token 1 in parts of any order, and put together of what two buffers have of it. */
static void parts_case(struct check *c, enum mm_act form, int n_group)
{
    int n_col = 32 * n_group, cut = (int)check_rand(c, (uint32_t)n_group);
    size_t bytes = kern_mm_act_bytes(1u << form, n_col, 2);
    float *x = check_alloc(c, (size_t)n_col * sizeof *x);
    struct mm_act_buf b[4]; /* whole, in parts, its last part alone, put together */
    for (int i = 0; i < 4; i++) {
        void *p = check_alloc(c, bytes);
        memset(p, 0, bytes);
        kern_mm_act_init(&b[i], 1u << form, n_col, 2, p);
        b[i].is_parts = 1;
    }
    random_acts(c, x, n_col);
    if (check_rand(c, 2)) strange_acts(c, x, n_col);
    kern_mm_prep(&b[0], 1, x);
    kern_mm_prep_part(&b[1], 1, cut, n_group - cut, x + 32 * (size_t)cut);
    kern_mm_prep_part(&b[2], 1, cut, n_group - cut, x + 32 * (size_t)cut);
    for (int g = 0, n; g < cut; g += n) {
        n = 1 + (int)check_rand(c, (uint32_t)(cut - g));
        kern_mm_prep_part(&b[1], 1, g, n, x + 32 * (size_t)g);
    }
    carry(&b[1], &b[3], 0, cut);
    carry(&b[2], &b[3], cut, n_group);
    kern_mm_prep_end(&b[3], 1);
    if (memcmp(b[0].base, b[1].base, bytes) != 0)
        check_fail(c, "%d groups: parts differ from the whole", n_group);
    if (memcmp(b[0].base, b[3].base, bytes) != 0)
        check_fail(c, "%d groups: what was carried differs from the whole", n_group);
    c->n_case++;
    check_free_all();
}

/* The parts of a token, in any order, are the whole token where is_parts says that they may come.
 */
void check_parts(struct check *c, int n_group)
{
    static const enum mm_act form[] = {MM_ACT_INT8, MM_ACT_BF16};
    for (int i = 0; i < BASE_COUNT_OF(form); i++)
        for (int trial = 0, done = 0, n; done < n_group; trial++, done += n) {
            n = 1 + (int)check_rand(c, trial % 10 ? 40 : 6000);
            parts_case(c, form[i], n);
        }
}

static void quant_case(struct check *c,
                       void (*variant)(const float *, int, struct mm_rec *, struct mm_rec *,
                                       const float *, float),
                       int n_group, int planes, int special)
{
    size_t n = (size_t)n_group * 32, bytes = (size_t)n_group * sizeof(struct mm_rec);
    float *x = check_alloc(c, n * sizeof(float)),
          *amax = check_alloc(c, (size_t)n_group * sizeof(float));
    struct mm_rec *hi = check_alloc(c, bytes), *lo = check_alloc(c, bytes),
                  *hi2 = check_alloc(c, bytes), *lo2 = check_alloc(c, bytes);
    memset(lo, 0, bytes);
    memset(lo2, 0, bytes);
    random_acts(c, x, (int)n);
    float inv = check_rand(c, 2) ? 1.0f : 0x1.6a09e6p-1f;
    if (special) {
        x[check_rand(c, (uint32_t)n)] = special == 1 ? fp_from_bits(0x7fc00000u) : INFINITY;
        for (int k = 0; k < 32; k++)
            x[k] = special == 1 ? 1e-41f : 3e38f;
    }
    kern_mm_amax_ref(x, n_group, amax);
    for (int g = 0; g < n_group; g++)
        if (check_rand(c, 2)) amax[g] = -amax[g];
    kern_mm_quant_ref(x, n_group, hi, planes == 2 ? lo : NULL, amax, inv);
    variant(x, n_group, hi2, planes == 2 ? lo2 : NULL, amax, inv);
    if (memcmp(hi, hi2, bytes) != 0 || memcmp(lo, lo2, bytes) != 0)
        check_fail(c, "%d groups, %d planes, special %d: records differ", n_group, planes, special);
    for (size_t i = 0; i < n && !special; i++) {
        const struct mm_rec *h = &hi2[i / 32], *l = &lo2[i / 32];
        double v = (double)h->d * h->q[i % 32], step = h->d;
        if (planes == 2 && !signbit(amax[i / 32])) v += (double)l->d * l->q[i % 32], step = l->d;
        if (!(fabs(v - x[i] * inv) <= 0.50001 * step + fabs((double)x[i]) * 0x1p-22))
            check_fail(c, "value %zu: %.9g for %.9g, step %.9g", i, v, x[i], step);
        if (h->d != 0.0f && (double)h->d != exp2(h->e))
            check_fail(c, "value %zu: step %g, e %g", i, h->d, h->e);
        if (h->q[i % 32] == -128) check_fail(c, "value %zu: -128", i);
    }
    for (int g = 0; g < n_group; g++) {
        int s[2][2] = {{0}};
        const struct mm_rec *r = &hi2[g];
        for (int k = 0; k < 32; k++)
            s[k / 16][k % 4 / 2] += r->q[k];
        int s1 = s[0][0] + s[0][1], s2 = s[1][0] + s[1][1];
        if (r->i[0] != -8 * (s1 + s2) || r->i[1] != -8 * s1 || r->i[2] != -8 * s2 ||
            r->p[0][0] != -8 * s[0][0] || r->p[0][1] != -8 * s[0][1] ||
            r->p[1][0] != -8 * s[1][0] || r->p[1][1] != -8 * s[1][1])
            check_fail(c, "group %d: sums are wrong", g);
        if (!special && r->s != r->d * (float)(s1 + s2))
            check_fail(c, "group %d: the sum's value is wrong", g);
    }
    c->n_case++;
    check_free_all();
}

void check_mm_quant(struct check *c,
                    void (*variant)(const float *x, int n_group, struct mm_rec *hi,
                                    struct mm_rec *lo, const float *amax, float inv))
{
    static const int sizes[] = {1, 2, 3, 7, 8, 9, 63, 224};
    for (int i = 0; i < 8; i++)
        for (int planes = 1; planes <= 2; planes++)
            for (int special = 0; special < 3; special++)
                for (int j = 0; j < 4; j++)
                    quant_case(c, variant, sizes[i], planes, special);
}

void check_mm_amax(struct check *c, void (*variant)(const float *x, int n_group, float *amax))
{
    static const int sizes[] = {1, 2, 7, 8, 63, 256};
    for (int i = 0; i < 6; i++) {
        int n = sizes[i];
        float *x = check_alloc(c, (size_t)n * 128), *a = check_alloc(c, (size_t)n * 4),
              *b = check_alloc(c, (size_t)n * 4);
        random_acts(c, x, 32 * n);
        x[check_rand(c, (uint32_t)n * 32)] = fp_from_bits(0x7fc00000u);
        kern_mm_amax_ref(x, n, a);
        variant(x, n, b);
        if (memcmp(a, b, (size_t)n * 4) != 0) check_fail(c, "%d groups differ", n);
        for (int g = 0; g < n; g++)
            for (int k = 0; k < 32; k++)
                if (fabsf(x[32 * g + k]) > b[g])
                    check_fail(c, "group %d: %g is above %g", g, x[32 * g + k], b[g]);
        c->n_case++;
        check_free_all();
    }
}
