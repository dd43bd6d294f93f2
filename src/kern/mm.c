/* SPDX-License-Identifier: Apache-2.0 */
/* Activation buffers, panels, and the product of one worker: cuts columns and K into runs that fit
 * the caches and calls the kernel of the format. Results do not depend on how it cuts: sums between
 * chunks of K rest in y as f32. */
#include "kern/mm.h"

#include <string.h>

#include "base/fp.h"
#include "kern/kern.h"

/* ---- activations ---- */

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static int padded(int n_col)
{
    return (n_col + 255) & ~255;
}

static int has(unsigned forms, enum mm_act form)
{
    return (int)(forms >> form & 1u);
}

/* Offsets of the forms in one block; returns its size. */
static size_t carve(unsigned forms, int n_col, int n_tok, size_t off[MM_N_ACT])
{
    size_t n = 0, vals = (size_t)padded(n_col) * (size_t)n_tok;
    for (int f = 0; f < MM_N_ACT; f++) {
        size_t planes = f == MM_ACT_INT8 ? 1 : 2;
        size_t bytes =
            f <= MM_ACT_BF16 ? vals * sizeof(float) : vals / 32 * planes * sizeof(struct mm_rec);
        off[f] = n;
        if (has(forms, (enum mm_act)f)) n += align64(bytes);
    }
    return n;
}

size_t kern_mm_act_bytes(unsigned forms, int n_col, int n_tok_max)
{
    size_t off[MM_N_ACT];
    return carve(forms, n_col, n_tok_max, off);
}

void kern_mm_act_init(struct mm_act_buf *b, unsigned forms, int n_col, int n_tok_max, void *base)
{
    size_t off[MM_N_ACT];
    carve(forms, n_col, n_tok_max, off);
    memset(b, 0, sizeof(*b));
    b->forms = forms;
    b->n_tok_max = n_tok_max;
    b->n_col = n_col;
    b->ld = padded(n_col);
    b->base = base;
    if (has(forms, MM_ACT_F32)) b->f32 = (float *)(void *)(b->base + off[MM_ACT_F32]);
    if (has(forms, MM_ACT_BF16)) b->bf16 = (float *)(void *)(b->base + off[MM_ACT_BF16]);
    if (has(forms, MM_ACT_INT8)) b->i8 = (struct mm_rec *)(void *)(b->base + off[MM_ACT_INT8]);
    if (has(forms, MM_ACT_INT8X)) b->i8x = (struct mm_rec *)(void *)(b->base + off[MM_ACT_INT8X]);
    if (has(forms, MM_ACT_INT15)) b->i15 = (struct mm_rec *)(void *)(b->base + off[MM_ACT_INT15]);
}

/* The k-th largest (k >= 1) of n values, which are permuted. */
static float kth_largest(float *v, int n, int k)
{
    int lo = 0, hi = n - 1, want = k - 1;
    while (lo < hi) {
        float p = v[lo + (hi - lo) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (v[i] > p)
                i++;
            while (v[j] < p)
                j--;
            if (i <= j) {
                float x = v[i];
                v[i++] = v[j];
                v[j--] = x;
            }
        }
        if (want <= j)
            hi = j;
        else if (want >= i)
            lo = i;
        else
            break;
    }
    return v[want];
}

#define SPAN 256 /* groups of a token among which an eighth get the second plane */

/* Mark with amax < 0 the groups of a span that stay at one plane. Ties go to the lower group. */
static void choose(const struct kern *kern, const float *x, int n, float amax[SPAN])
{
    float v[SPAN];
    kern->mm_amax(x, n, amax);
    memcpy(v, amax, (size_t)n * sizeof(float));
    int k = (n + 7) / 8, above = 0;
    float cut = kth_largest(v, n, k);
    for (int g = 0; g < n; g++)
        above += amax[g] > cut;
    for (int g = 0; g < n; g++) {
        if (amax[g] > cut) continue;
        if (amax[g] == cut && above < k)
            above++;
        else
            amax[g] = -1.0f;
    }
}

static void prep_int(const struct mm_act_buf *b, const float *x, struct mm_rec *hi,
                     struct mm_rec *lo, int all)
{
    const struct kern *kern = kern_get();
    int n_group = b->ld / 32, whole = b->n_col / 32;
    float amax[SPAN], tail[32];
    for (int g = 0; g < n_group;) {
        int n = BASE_MIN(SPAN, whole - g);
        const float *src = x + 32 * (size_t)g;
        if (n <= 0) { /* the rest: a part of a group, then zeros */
            int k = BASE_MAX(0, BASE_MIN(32, b->n_col - 32 * g));
            memset(tail, 0, sizeof(tail));
            memcpy(tail, k ? src : x, (size_t)k * sizeof(float));
            src = tail;
            n = 1;
        }
        if (lo && !all)
            choose(kern, src, n, amax);
        else
            for (int i = 0; i < n; i++)
                amax[i] = 0.0f;
        kern->mm_quant(src, n, hi + g, lo ? lo + g : NULL, amax);
        g += n;
    }
}

void kern_mm_prep(struct mm_act_buf *b, int t, const float *x)
{
    size_t ld = (size_t)b->ld, n_group = ld / 32, n = (size_t)b->n_col, tok = (size_t)t;
    if (b->f32) {
        memcpy(b->f32 + tok * ld, x, n * sizeof(float));
        memset(b->f32 + tok * ld + n, 0, (ld - n) * sizeof(float));
    }
    if (b->bf16) {
        float *dst = b->bf16 + tok * ld;
        for (size_t k = 0; k < n; k++)
            dst[k] = fp_bf16_to_f32(fp_f32_to_bf16(x[k]));
        memset(dst + n, 0, (ld - n) * sizeof(float));
    }
    if (b->i8) prep_int(b, x, b->i8 + tok * n_group, NULL, 0);
    if (b->i8x) {
        struct mm_rec *hi = b->i8x + 2 * tok * n_group;
        prep_int(b, x, hi, hi + n_group, 0);
    }
    if (b->i15) {
        struct mm_rec *hi = b->i15 + 2 * tok * n_group;
        prep_int(b, x, hi, hi + n_group, 1);
    }
}

/* ---- the product ---- */

#define UNPACK_GROUPS 32 /* groups of a code format that the float forms decode at a time */

struct scratch {
    struct mm_ent *hi, *lo;
    int32_t *lo_off;
    float *acc, *unpack;
};

static size_t carve_scratch(uint8_t *base, struct scratch *s)
{
    size_t n = 0;
    s->hi = (struct mm_ent *)(void *)(base + n);
    n += MM_PANEL * sizeof(struct mm_ent);
    s->lo = (struct mm_ent *)(void *)(base + n);
    n += MM_PANEL * sizeof(struct mm_ent);
    s->acc = (float *)(void *)(base + n);
    n += MM_N_COL * 16 * sizeof(float);
    s->unpack = (float *)(void *)(base + n);
    n += UNPACK_GROUPS * 32 * 16 * sizeof(float);
    s->lo_off = (int32_t *)(void *)(base + n);
    n += (MM_PANEL + 16) * sizeof(int32_t);
    return align64(n);
}

size_t kern_mm_scratch_bytes(int n_col)
{
    struct scratch s;
    uint8_t none;
    (void)n_col;
    return carve_scratch(&none, &s);
}

/* The panel of one token: count groups from r on; its second planes are `lo` records further. */
static int fill_one(const struct kern *kern, const struct mm_fmt_info *f, const struct mm_rec *r,
                    size_t lo, int count, const struct scratch *s)
{
    int n_lo = 0;
    kern->mm_fill(r, count, f->off, f->half, 0, s->hi, 1);
    for (int g = 0; g < count && lo; g++) {
        s->lo_off[g] = n_lo;
        if (r[g].has_lo) kern->mm_fill(r + lo + g, 1, f->off, f->half, 0, &s->lo[n_lo++], 1);
    }
    if (lo) s->lo_off[count] = n_lo;
    return n_lo > 0;
}

#define FILL_GROUPS                                                                                \
    4 /* few, for entries of a column can be 4096 bytes apart: one set of the L1                   \
       */

/* Panel of groups [g0, g1) for n tokens, a few groups of a column after another. Returns 1 when
 * there are second planes. */
static int fill_panel(const struct kern *kern, const struct mm_fmt_info *f,
                      const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int j0,
                      int n, int g0, int g1, const struct scratch *s)
{
    const struct mm_rec *rec = form == MM_ACT_INT8 ? x->i8 : form == MM_ACT_INT8X ? x->i8x : x->i15;
    size_t n_group = (size_t)x->ld / 32, planes = form == MM_ACT_INT8 ? 1 : 2;
    int count = g1 - g0;
    if (n == 1) {
        size_t tok = (size_t)(idx ? idx[j0] : j0);
        return fill_one(kern, f, rec + tok * planes * n_group + (size_t)g0,
                        planes == 2 ? n_group : 0, count, s);
    }
    int32_t *off = s->lo_off + 1; /* first counts, then where the next entry of a group goes */
    if (planes == 2) memset(s->lo_off, 0, (size_t)(count + 2) * sizeof(int32_t));
    for (int g = 0; g < count; g += FILL_GROUPS)
        for (int j = 0; j < n; j++) {
            size_t tok = (size_t)(idx ? idx[j0 + j] : j0 + j);
            const struct mm_rec *r = rec + tok * planes * n_group + (size_t)(g0 + g);
            int m = BASE_MIN(FILL_GROUPS, count - g);
            kern->mm_fill(r, m, f->off, f->half, j, s->hi + (size_t)g * (size_t)n + j, n);
            for (int i = 0; i < m && planes == 2; i++)
                off[g + i + 1] += r[i].has_lo;
        }
    if (planes == 1) return 0;
    int32_t n_lo = 0;
    for (int g = 0; g < count; g++)
        off[g + 1] = n_lo += off[g + 1];
    if (n_lo == 0) return 0;
    for (int j = 0; j < n; j++) {
        size_t tok = (size_t)(idx ? idx[j0 + j] : j0 + j);
        const struct mm_rec *r = rec + tok * planes * n_group + (size_t)g0;
        for (int g = 0; g < count; g++)
            if (r[g].has_lo)
                kern->mm_fill(r + n_group + g, 1, f->off, f->half, j, &s->lo[off[g]++], 1);
    }
    return 1;
}

/* The same for floats: [4 * groups][n][8]. */
static void fill_panel_f32(const float *x, size_t ld, const int32_t *idx, int j0, int n, int g0,
                           int g1, float *panel)
{
    for (int j = 0; j < n; j++) {
        const float *src = x + (size_t)(idx ? idx[j0 + j] : j0 + j) * ld;
        float *dst = panel + 8 * j;
        for (int k = 4 * g0; k < 4 * g1; k++, dst += 8 * (size_t)n)
            memcpy(dst, src + 8 * (size_t)k, 32);
    }
}

/* The same for bf16: [4 * groups][n][8], from values that are bf16 in f32. */
static void fill_panel_bf16(const float *x, size_t ld, const int32_t *idx, int j0, int n, int g0,
                            int g1, uint16_t *panel)
{
    for (int j = 0; j < n; j++) {
        const float *src = x + (size_t)(idx ? idx[j0 + j] : j0 + j) * ld;
        uint16_t *dst = panel + 8 * j;
        for (int k = 4 * g0; k < 4 * g1; k++, dst += 8 * (size_t)n)
            for (int i = 0; i < 8; i++)
                dst[i] = (uint16_t)(fp_to_bits(src[8 * (size_t)k + (size_t)i]) >> 16);
    }
}

typedef void (*run_fn)(const struct mm_run *r);

static run_fn run_of(const struct kern *k, int fmt)
{
    switch (fmt) {
#define X(name, ...)                                                                               \
    case MM_##name:                                                                                \
        return k->mm_##name;
        MM_CODE_FMTS(X)
        MM_FLOAT_FMTS(X)
#undef X
    default:
        return NULL;
    }
}

static const uint8_t *block_at(const struct mm_mat *m, int tile, int g)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[m->fmt];
    return m->data + (size_t)tile * m->tile_bytes +
           (size_t)(g / (f->blk_k / 32)) * (size_t)f->blk_bytes;
}

/* Float activations times a code format: decode each tile to f32 by pieces of K. */
static void run_unpacked(const struct kern *k, const struct mm_mat *m, int tile0, struct mm_run r,
                         float *w)
{
    int n_tile = r.n_tile, g0 = r.g0, g1 = r.g1, add = r.add;
    const float *x = r.x;
    r.w = (const uint8_t *)w;
    r.tile_bytes = 0;
    r.n_tile = 1;
    r.prefetch = 0;
    for (int t = 0; t < n_tile; t++, r.y += 16) {
        r.add = add;
        for (int g = g0; g < g1; g += UNPACK_GROUPS) {
            int n = BASE_MIN(UNPACK_GROUPS, g1 - g);
            for (int i = 0; i < n; i++)
                kern_mm_group_f32(m->fmt, m->data + (size_t)(tile0 + t) * m->tile_bytes, g + i,
                                  w + 512 * (size_t)i);
            r.g0 = g;
            r.g1 = g + n;
            r.x = x + 32 * (size_t)(g - g0) * (size_t)r.n;
            k->mm_f32(&r);
            r.add = 1;
        }
    }
}

/* One set of at most MM_N_COL columns. */
static void columns(const struct kern *kern, const struct mm_mat *m, int tile0, int n_tile,
                    const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int j0, int n,
                    float *y, int64_t ldy, const struct scratch *s)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[m->fmt];
    int per = f->blk_k / 32, n_group = (m->n_col + f->blk_k - 1) / f->blk_k * per;
    int step = MM_PANEL / n & ~7, floats = form <= MM_ACT_BF16;
    for (int g0 = 0; g0 < n_group; g0 += step) {
        struct mm_run r = {.tile_bytes = m->tile_bytes, .n_tile = n_tile, .n = n, .g0 = g0};
        r.g1 = BASE_MIN(n_group, g0 + step);
        r.w = block_at(m, tile0, g0);
        r.y = y + j0 * ldy;
        r.ldy = ldy;
        r.add = g0 > 0;
        r.acc = s->acc;
        r.prefetch = n == 1 ? kern->prefetch_1 : kern->prefetch_n;
        if (form == MM_ACT_BF16 && m->fmt == MM_bf16 && kern->bf16_pairs) {
            uint16_t *panel = (uint16_t *)(void *)s->hi;
            fill_panel_bf16(x->bf16, (size_t)x->ld, idx, j0, n, g0, r.g1, panel);
            r.xb = panel;
            kern->mm_bf16x(&r);
            continue;
        }
        if (floats) {
            float *panel =
                (float *)(void *)s->hi; /* 32 * 4 bytes per entry: hi and lo together hold it */
            fill_panel_f32(form == MM_ACT_F32 ? x->f32 : x->bf16, (size_t)x->ld, idx, j0, n, g0,
                           r.g1, panel);
            r.x = panel;
            if (m->fmt < MM_N_CODE)
                run_unpacked(kern, m, tile0, r, s->unpack);
            else
                run_of(kern, m->fmt)(&r);
            continue;
        }
        r.hi = s->hi;
        if (fill_panel(kern, f, x, form, idx, j0, n, g0, r.g1, s)) {
            r.lo = s->lo;
            r.lo_off = s->lo_off;
        }
        run_of(kern, m->fmt)(&r);
    }
}

void kern_mm(const struct mm_mat *m, int tile0, int n_tile, const struct mm_act_buf *x,
             enum mm_act form, const int32_t *idx, int n_tok, float *y, int64_t ldy, void *scratch)
{
    kern_mm_with(kern_get(), m, tile0, n_tile, x, form, idx, n_tok, y, ldy, scratch);
}

void kern_mm_with(const struct kern *k, const struct mm_mat *m, int tile0, int n_tile,
                  const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int n_tok,
                  float *y, int64_t ldy, void *scratch)
{
    struct scratch s;
    carve_scratch(scratch, &s);
    int n_set = (n_tok + MM_N_COL - 1) / MM_N_COL;
    for (int i = 0; i < n_set; i++) {
        int j0 = (int)((int64_t)n_tok * i / n_set), j1 = (int)((int64_t)n_tok * (i + 1) / n_set);
        columns(k, m, tile0, n_tile, x, form, idx, j0, j1 - j0, y, ldy, &s);
    }
    if (m->scale == 1.0f && (!m->is_pair || m->scale2 == 1.0f)) return;
    for (int j = 0; j < n_tok; j++)
        for (int t = 0; t < n_tile; t++) {
            float scale = m->is_pair && ((tile0 + t) & 1) ? m->scale2 : m->scale;
            for (int i = 0; i < 16; i++)
                y[j * ldy + 16 * t + i] *= scale;
        }
}
