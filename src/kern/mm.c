/* SPDX-License-Identifier: Apache-2.0 */
/* Activation buffers, panels of floats, and the product of one worker: cuts columns (and K, for
 * floats) into runs that fit the caches and calls the kernel of the format. Results do not depend
 * on how it cuts: sums between chunks of K rest in y as f32. */
#include "kern/mm.h"

#include <math.h>
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

static int planes_of(enum mm_act form)
{
    return form == MM_ACT_INT8 ? 1 : 2;
}

/* Records between two tokens: odd, so that the same group of 64 tokens lies in 64 sets of an L1. */
static size_t row_recs(int n_col, enum mm_act form)
{
    return (size_t)(padded(n_col) / 32 * planes_of(form)) | 1;
}

/* Offsets of the forms in one block, the last one of the lists; returns its size. */
static size_t carve(unsigned forms, int n_col, int n_tok, size_t off[MM_N_ACT + 1])
{
    size_t n = 0, vals = (size_t)padded(n_col) * (size_t)n_tok;
    for (int f = 0; f < MM_N_ACT; f++) {
        size_t recs = row_recs(n_col, (enum mm_act)f) * (size_t)n_tok;
        off[f] = n;
        if (!has(forms, (enum mm_act)f)) continue;
        n += align64(f == MM_ACT_F32    ? vals * sizeof(float)
                     : f == MM_ACT_BF16 ? vals * sizeof(uint16_t)
                                        : recs * sizeof(struct mm_rec));
    }
    off[MM_N_ACT] = n;
    return n +
           (has(forms, MM_ACT_INT8X) ? align64(sizeof(int32_t) * (vals / 32 + (size_t)n_tok)) : 0);
}

size_t kern_mm_act_bytes(unsigned forms, int n_col, int n_tok_max)
{
    size_t off[MM_N_ACT + 1];
    return carve(forms, n_col, n_tok_max, off);
}

void kern_mm_act_init(struct mm_act_buf *b, unsigned forms, int n_col, int n_tok_max, void *base)
{
    size_t off[MM_N_ACT + 1];
    carve(forms, n_col, n_tok_max, off);
    memset(b, 0, sizeof(*b));
    b->forms = forms;
    b->n_tok_max = n_tok_max;
    b->n_col = n_col;
    b->ld = padded(n_col);
    b->base = base;
    if (has(forms, MM_ACT_F32)) b->f32 = (float *)(void *)(b->base + off[MM_ACT_F32]);
    if (has(forms, MM_ACT_BF16)) b->bf16 = (uint16_t *)(void *)(b->base + off[MM_ACT_BF16]);
    if (has(forms, MM_ACT_INT8)) b->i8 = (struct mm_rec *)(void *)(b->base + off[MM_ACT_INT8]);
    if (has(forms, MM_ACT_INT8X)) b->i8x = (struct mm_rec *)(void *)(b->base + off[MM_ACT_INT8X]);
    b->lo_list = (int32_t *)(void *)(b->base + off[MM_N_ACT]);
    if (has(forms, MM_ACT_INT15)) b->i15 = (struct mm_rec *)(void *)(b->base + off[MM_ACT_INT15]);
}

#define SPAN 256    /* groups of a token among which those of a second plane are chosen */
#define OUTLIER 3.0 /* amax squared against its mean in the span, without those chosen before */
#define PLANES 4    /* one group of so many, at most */

#define N_UNIT 8

/* The unit of a token, from its first span: steps are powers of two of it, and where the largest
 * values lie between those decides how much is lost. amax: of the groups with one plane, or 0. */
static float best_unit(const float *amax, int n)
{
    /* 2^(p/8), and 1 / (127 * 2^(p/8)) */
    static const float unit[N_UNIT] = {0x1p0f,        0x1.172b84p0f, 0x1.306fep0f,  0x1.4bfdaep0f,
                                       0x1.6a09e6p0f, 0x1.8ace54p0f, 0x1.ae89fap0f, 0x1.d5818ep0f};
    float sum[N_UNIT] = {0}, inv[N_UNIT];
    for (int p = 0; p < N_UNIT; p++)
        inv[p] = 1.0f / unit[p];
    for (int g = 0; g < n; g++) {
        if (!(amax[g] >= 2.0f * MM_AMAX_MIN)) continue;
        for (int p = 0; p < N_UNIT; p++) {
            float d = kern_mm_step(amax[g] * inv[p], 0) * unit[p];
            sum[p] += d * d;
        }
    }
    int best = 0;
    for (int p = 1; p < N_UNIT; p++)
        if (sum[p] < sum[best]) best = p;
    return unit[best];
}

#define BUNCH 8 /* values whose largest is kept, so that a search looks at few */

static int32_t max_of(const int32_t *v, int n)
{
    int32_t m = v[0];
    for (int i = 1; i < n; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

/* Give amax a sign in the groups of a span that stay at one plane: all but the largest ones, as
 * long as the next one's square is thrice the mean of those left, and a quarter of all at most.
 * Ties go to the lower group. Floats of no sign are in the order of their bits. */
static void choose(int n, float amax[SPAN])
{
    int32_t v[SPAN], top[SPAN / BUNCH];
    int n_bunch = (n + BUNCH - 1) / BUNCH;
    double sum[4] = {0}, left; /* in this order on every CPU */
    memcpy(v, amax, (size_t)n * sizeof(float));
    for (int g = n; g < n_bunch * BUNCH; g++)
        v[g] = -1;
    for (int b = 0; b < n_bunch; b++)
        top[b] = max_of(v + b * BUNCH, BUNCH);
    for (int g = 0; g < n; g++) {
        sum[g % 4] += (double)amax[g] * (double)amax[g];
        amax[g] = -amax[g];
    }
    left = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (int k = 0; k < (n + PLANES - 1) / PLANES; k++) {
        int32_t m = max_of(top, n_bunch);
        int b = 0, g;
        float largest;
        memcpy(&largest, &m, sizeof m);
        double square = (double)largest * (double)largest;
        if (!(square * (n - k) > OUTLIER * left)) break;
        left -= square;
        while (top[b] != m)
            b++;
        for (g = b * BUNCH; v[g] != m;)
            g++;
        amax[g] = largest;
        v[g] = -1;
        top[b] = max_of(v + b * BUNCH, BUNCH);
    }
}

/* hi, lo: records of the planes, lo NULL: one; list: NULL, or only the groups in it have lo. */
static void prep_int(const struct mm_act_buf *b, const float *x, struct mm_rec *hi,
                     struct mm_rec *lo, int32_t *list)
{
    const struct kern *kern = kern_get();
    int n_group = b->ld / 32, whole = b->n_col / 32, used = (b->n_col + 31) / 32;
    float amax[SPAN], one[SPAN], tail[32], unit = 1.0f;
    if (list) list[0] = 0;
    for (int g = 0; g < used;) {
        int n = BASE_MIN(SPAN, whole - g);
        const float *src = x + 32 * (size_t)g;
        if (n <= 0) { /* a part of a group */
            memset(tail, 0, sizeof(tail));
            memcpy(tail, src, (size_t)(b->n_col - 32 * g) * sizeof(float));
            src = tail;
            n = 1;
        }
        kern->mm_amax(src, n, amax);
        memcpy(one, amax, (size_t)n * sizeof(float));
        if (list) choose(n, amax);
        for (int i = 0; i < n; i++)
            if (lo && !signbit(amax[i])) one[i] = 0.0f;
        if (g == 0 && !b->is_parts) unit = best_unit(one, n);
        kern->mm_quant(src, n, hi + g, lo ? lo + g : NULL, amax, 1.0f / unit);
        for (int i = 0; i < n && list; i++)
            if (!signbit(amax[i])) list[++list[0]] = g + i;
        g += n;
    }
    memset(hi + used, 0, sizeof(*hi) * (size_t)(n_group - used));
    if (lo && !list) memset(lo + used, 0, sizeof(*lo) * (size_t)(n_group - used));
    hi[row_recs(b->n_col, lo ? MM_ACT_INT15 : MM_ACT_INT8) - 1].d = unit;
}

void kern_mm_prep(struct mm_act_buf *b, int t, const float *x)
{
    size_t ld = (size_t)b->ld, n_group = ld / 32, n = (size_t)b->n_col, tok = (size_t)t;
    if (b->f32) {
        memcpy(b->f32 + tok * ld, x, n * sizeof(float));
        memset(b->f32 + tok * ld + n, 0, (ld - n) * sizeof(float));
    }
    if (b->bf16) {
        uint16_t *dst = b->bf16 + tok * ld;
        kern_get()->mm_bf16_row(x, b->n_col, dst);
        memset(dst + n, 0, (ld - n) * sizeof *dst);
    }
    if (b->i8) prep_int(b, x, b->i8 + tok * row_recs(b->n_col, MM_ACT_INT8), NULL, NULL);
    if (b->i8x) {
        struct mm_rec *hi = b->i8x + tok * row_recs(b->n_col, MM_ACT_INT8X);
        prep_int(b, x, hi, hi + n_group, b->lo_list + tok * (n_group + 1));
    }
    if (b->i15) {
        struct mm_rec *hi = b->i15 + tok * row_recs(b->n_col, MM_ACT_INT15);
        prep_int(b, x, hi, hi + n_group, NULL);
    }
}

void kern_mm_prep_part(struct mm_act_buf *b, int t, int g0, int n_group, const float *x)
{
    const struct kern *kern = kern_get();
    float amax[SPAN];
    if (b->bf16) {
        kern->mm_bf16_row(x, 32 * n_group, b->bf16 + (size_t)t * (size_t)b->ld + 32 * g0);
    } else {
        struct mm_rec *r = b->i8 + (size_t)t * row_recs(b->n_col, MM_ACT_INT8);
        for (int g = 0, n; g < n_group; g += n) {
            n = BASE_MIN(SPAN, n_group - g);
            kern->mm_amax(x + 32 * (size_t)g, n, amax);
            kern->mm_quant(x + 32 * (size_t)g, n, r + g0 + g, NULL, amax, 1.0f);
        }
    }
    if (g0 + n_group == b->n_col / 32) kern_mm_prep_end(b, t);
}

_Static_assert(sizeof(struct mm_rec) == MM_PART_WORDS * sizeof(float) &&
                   32 * sizeof(uint16_t) == MM_PART_WORDS * sizeof(float),
               "a group's words");

float *kern_mm_part(struct mm_act_buf *b, int g0, int64_t *ld)
{
    *ld = b->bf16 ? b->ld / 2 : (int64_t)row_recs(b->n_col, MM_ACT_INT8) * MM_PART_WORDS;
    return b->bf16 ? (float *)(void *)(b->bf16 + 32 * (size_t)g0) : (float *)(void *)(b->i8 + g0);
}

void kern_mm_prep_end(struct mm_act_buf *b, int t)
{
    size_t ld = (size_t)b->ld, n = (size_t)b->n_col;
    if (b->bf16) {
        memset(b->bf16 + (size_t)t * ld + n, 0, (ld - n) * sizeof *b->bf16);
        return;
    }
    struct mm_rec *r = b->i8 + (size_t)t * row_recs(b->n_col, MM_ACT_INT8);
    int end = b->n_col / 32;
    r[row_recs(b->n_col, MM_ACT_INT8) - 1].d = 1.0f;
    memset(r + end, 0, sizeof(*r) * (size_t)(b->ld / 32 - end));
}

int kern_mm_strips(const struct mm_act_buf *b, enum mm_act form, struct mm_strip out[MM_STRIPS])
{
    int n_group = b->ld / 32, n = (int)row_recs(b->n_col, form) * MM_PART_WORDS;
    switch (form) {
    case MM_ACT_F32:
        out[0] = (struct mm_strip){b->f32, b->ld, b->ld};
        return 1;
    case MM_ACT_BF16:
        out[0] = (struct mm_strip){(float *)(void *)b->bf16, b->ld / 2, b->ld / 2};
        return 1;
    case MM_ACT_INT8X:
        out[0] = (struct mm_strip){(float *)(void *)b->i8x, n, n};
        out[1] = (struct mm_strip){(float *)(void *)b->lo_list, n_group + 1, n_group + 1};
        return 2;
    default:
        out[0] = (struct mm_strip){(float *)(void *)(form == MM_ACT_INT8 ? b->i8 : b->i15), n, n};
        return 1;
    }
}

void kern_mm_blank(struct mm_act_buf *b, int n)
{
    for (int t = 0; b->i8x && t < n; t++)
        b->lo_list[(size_t)t * ((size_t)b->ld / 32 + 1)] = 0;
}

/* ---- the product ---- */

#define UNPACK_GROUPS 32 /* groups of a code format that the float forms decode at a time */

/* Of which columns the scratch holds what code formats read. */
struct kept_key {
    const struct kern *kern;
    const struct mm_act_buf *x;
    const int32_t *idx;
    int form, fmt, n_col, j0, n;
};

struct kept {
    struct kept_key key; /* n 0: of none */
    struct mm_run r;     /* what code_columns() fills */
};

struct scratch {
    struct kept *kept;
    float *panel; /* of the float forms; bf16 too */
    float *acc, *unpack;
    const struct mm_rec **hi, **lo; /* [MM_N_COL] */
    float (*unit)[2];               /* [MM_N_COL] */
    int32_t *lo_off;                /* [groups + 1] */
    uint8_t *lo_col;                /* [groups * MM_N_COL] */
};

static size_t carve_scratch(uint8_t *base, int n_col, struct scratch *s)
{
    size_t n = align64(sizeof *s->kept), n_group = (size_t)padded(n_col) / 32;
    s->kept = (struct kept *)(void *)base;
    s->panel = (float *)(void *)(base + n);
    n += MM_PANEL * 32 * sizeof(float);
    s->acc = (float *)(void *)(base + n);
    n += 4 * MM_N_COL * 16 * sizeof(float);
    s->unpack = (float *)(void *)(base + n);
    n += UNPACK_GROUPS * 32 * 16 * sizeof(float);
    s->hi = (const struct mm_rec **)(void *)(base + n);
    n += MM_N_COL * sizeof(void *);
    s->lo = (const struct mm_rec **)(void *)(base + n);
    n += MM_N_COL * sizeof(void *);
    s->unit = (float(*)[2])(void *)(base + n);
    n += MM_N_COL * sizeof(*s->unit);
    s->lo_off = (int32_t *)(void *)(base + n);
    n += align64((n_group + 1) * sizeof(int32_t));
    s->lo_col = base + n;
    n += n_group * MM_N_COL;
    return align64(n);
}

size_t kern_mm_scratch_bytes(int n_col)
{
    struct scratch s;
    uint8_t none;
    return carve_scratch(&none, n_col, &s);
}

static size_t tok_at(const int32_t *idx, int j)
{
    return (size_t)(idx ? idx[j] : j);
}

/* Which columns have a second plane in each group (INT15: all). */
static void list_lo(const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int j0, int n,
                    struct mm_run *r, const struct scratch *s)
{
    size_t ld = (size_t)x->ld / 32 + 1;
    int32_t n_lo = 0, *off = s->lo_off;
    r->lo_off = off;
    r->lo_col = s->lo_col;
    if (form == MM_ACT_INT15) {
        for (int g = 0; g <= r->g1; g++)
            off[g] = n == 1 ? g : g * n;
        for (int i = 0; i < r->g1 * n; i++)
            s->lo_col[i] = (uint8_t)(i % n);
        r->n_lo = r->g1;
        return;
    }
    if (n == 1) {
        const int32_t *list = x->lo_list + tok_at(idx, j0) * ld;
        r->lo_off = list + 1;
        for (r->n_lo = list[0]; r->n_lo > 0 && list[r->n_lo] >= r->g1;)
            r->n_lo--; /* groups of padding */
        return;
    }
    memset(off, 0, (size_t)(r->g1 + 1) * sizeof(int32_t));
    for (int j = 0; j < n; j++) { /* first counts, then where the next one of a group goes */
        const int32_t *list = x->lo_list + tok_at(idx, j0 + j) * ld;
        for (int i = 1; i <= list[0] && list[i] < r->g1; i++)
            off[list[i]]++;
    }
    for (int g = 0; g < r->g1; g++) {
        int32_t count = off[g];
        off[g] = n_lo;
        n_lo += count;
    }
    for (int j = 0; j < n; j++) {
        const int32_t *list = x->lo_list + tok_at(idx, j0 + j) * ld;
        for (int i = 1; i <= list[0] && list[i] < r->g1; i++)
            s->lo_col[off[list[i]]++] = (uint8_t)j;
    }
    for (int g = r->g1; g > 0; g--)
        off[g] = off[g - 1]; /* off[g] had moved to its end */
    off[0] = 0;
}

static const struct mm_rec *records(const struct mm_act_buf *x, enum mm_act form)
{
    return form == MM_ACT_INT8 ? x->i8 : form == MM_ACT_INT8X ? x->i8x : x->i15;
}

/* A column's records cut to what the format needs, n apart. Word by word from where they lie to
 * where they go: put together in a struct first, each took 46 cycles. */
static void shorten(const struct mm_rec *e, int n_group, const struct mm_fmt_info *f, size_t n,
                    struct mm_short *to)
{
    size_t i = offsetof(struct mm_rec, i) + (f->half ? 4 : 0), s = offsetof(struct mm_rec, s);
    size_t a = f->off ? i : s, b = f->off && f->half ? a + 4 : s; /* b of no use: any */
    int sums = f->half && f->min;
    for (int g = 0; g < n_group; g++, e++, to += n) {
        const char *from = (const char *)e;
        memcpy(to->q, e->q, sizeof to->q);
        memcpy(&to->e, &e->e, sizeof to->e);
        memcpy(&to->a, from + a, sizeof to->a);
        memcpy(&to->b, from + b, sizeof to->b);
        for (int h = 0; h < 2 && sums; h++) {
            float half = kern_mm_half_sum(e, h);
            memcpy(h ? &to->b : &to->a, &half, sizeof half);
        }
    }
}

/* The records of second planes are one stream then, not one for each column. */
static void copy_lo(struct mm_run *r, struct mm_rec *seq)
{
    r->lo_seq = seq;
    for (int g = 0; g < r->g1; g++)
        for (int l = r->lo_off[g]; l < r->lo_off[g + 1]; l++)
            *seq++ = r->lo[r->lo_col[l]][g];
}

#define COPY_COLS 32 /* up to so many columns their records are copied into one stream */

/* The columns of a code format. Many columns' records are read where they are. A few are laid side
 * by side first, group by group: every stream more costs a core that waits for memory. Very few are
 * cut to what the format needs: they are read again for each tile, and stay in the L1 only while
 * they are small. */
static void code_columns(const struct kern *kern, const struct mm_mat *m,
                         const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int j0,
                         struct mm_run *r, const struct scratch *s)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[m->fmt];
    const struct mm_rec *rec = records(x, form);
    struct mm_rec *panel = (struct mm_rec *)(void *)s->panel;
    size_t stride = row_recs(x->n_col, form), n = (size_t)r->n;
    struct mm_short *recs = (struct mm_short *)(void *)s->panel;
    int copy = r->n > 1 && r->n <= COPY_COLS && r->n * r->g1 <= MM_PANEL * 2;
    if (copy && r->n <= kern->short_rec && !(f->half && f->min && f->off)) r->short_rec = recs;
    for (size_t j = 0; j < n; j++) {
        const struct mm_rec *from = s->hi[j] = rec + tok_at(idx, j0 + (int)j) * stride;
        s->lo[j] = from + x->ld / 32;
        if (!copy) continue;
        s->hi[j] = panel + j;
        if (r->short_rec) {
            shorten(from, r->g1, f, n, recs + j);
            continue;
        }
        for (size_t g = 0; g < (size_t)r->g1; g++)
            panel[g * n + j] = from[g];
    }
    r->hi = s->hi;
    r->step = copy ? n : 1;
    if (form == MM_ACT_INT8) return;
    r->lo = s->lo;
    list_lo(x, form, idx, j0, r->n, r, s);
    size_t used = copy ? n * (size_t)r->g1 : 0;
    if (n > 1 && used + (size_t)r->lo_off[r->g1] <= MM_PANEL * 2) copy_lo(r, panel + used);
}

/* What the outputs of the columns are multiplied with. */
static void code_units(const struct mm_mat *m, int tile0, const struct mm_act_buf *x,
                       enum mm_act form, const int32_t *idx, int j0, struct mm_run *r,
                       const struct scratch *s)
{
    float even = m->scale, odd = m->is_pair ? m->scale2 : m->scale;
    const struct mm_rec *rec = records(x, form);
    size_t stride = row_recs(x->n_col, form);
    for (int j = 0; j < r->n; j++) {
        float unit = rec[(tok_at(idx, j0 + j) + 1) * stride - 1].d;
        s->unit[j][0] = unit * (tile0 & 1 ? odd : even);
        s->unit[j][1] = unit * (tile0 & 1 ? even : odd);
    }
    r->unit = (const float(*)[2])s->unit;
}

/* The columns of the scratch, if they are those and did not change (again). Narrow matrices are
 * cut into pieces of a few tiles, so that copying columns for each would take as long as a tile. */
static int are_kept(const struct kept *k, const struct kept_key *key, int again, struct mm_run *r)
{
    const struct kept_key *a = &k->key;
    if (!again || a->kern != key->kern || a->x != key->x || a->idx != key->idx ||
        a->form != key->form || a->fmt != key->fmt || a->n_col != key->n_col || a->j0 != key->j0 ||
        a->n != key->n)
        return 0;
    r->hi = k->r.hi;
    r->lo = k->r.lo;
    r->short_rec = k->r.short_rec;
    r->step = k->r.step;
    r->lo_off = k->r.lo_off;
    r->lo_col = k->r.lo_col;
    r->n_lo = k->r.n_lo;
    r->lo_seq = k->r.lo_seq;
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

/* The same from bf16. */
static void fill_panel_widened(const uint16_t *x, size_t ld, const int32_t *idx, int j0, int n,
                               int g0, int g1, float *panel)
{
    for (int j = 0; j < n; j++) {
        const uint16_t *src = x + (size_t)(idx ? idx[j0 + j] : j0 + j) * ld;
        float *dst = panel + 8 * j;
        for (int k = 4 * g0; k < 4 * g1; k++, dst += 8 * (size_t)n)
            for (int i = 0; i < 8; i++)
                dst[i] = fp_bf16_to_f32(src[8 * (size_t)k + (size_t)i]);
    }
}

/* The same in bf16. One column is a panel as it is. */
static const uint16_t *fill_panel_bf16(const uint16_t *x, size_t ld, const int32_t *idx, int j0,
                                       int n, int g0, int g1, uint16_t *panel)
{
    for (int j = 0; j < n; j++) {
        const uint16_t *src = x + (size_t)(idx ? idx[j0 + j] : j0 + j) * ld;
        uint16_t *dst = panel + 8 * j;
        if (n == 1) return src + 32 * (size_t)g0;
        for (int k = 4 * g0; k < 4 * g1; k++, dst += 8 * (size_t)n)
            memcpy(dst, src + 8 * (size_t)k, 16);
    }
    return panel;
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
                    float *y, int64_t ldy, const uint8_t *then, int again,
                    const struct scratch *s)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[m->fmt];
    int per = f->blk_k / 32, n_group = (m->n_col + f->blk_k - 1) / f->blk_k * per;
    int floats = form <= MM_ACT_BF16, step = floats ? MM_PANEL / n & ~7 : n_group;
    for (int g0 = 0; g0 < n_group; g0 += step) {
        struct mm_run r = {.tile_bytes = m->tile_bytes, .n_tile = n_tile, .n = n, .g0 = g0};
        r.g1 = BASE_MIN(n_group, g0 + step);
        r.w = block_at(m, tile0, g0);
        r.y = y + j0 * ldy;
        r.ldy = ldy;
        r.add = g0 > 0;
        r.acc = s->acc;
        r.prefetch = n < kern->prefetch_from ? kern->prefetch_1 : kern->prefetch_n;
        r.prefetch_far = n == 1                    ? kern->prefetch_far_1
                         : n < kern->prefetch_from ? 0
                                                   : kern->prefetch_far;
        r.two = kern->two_tiles;
        if (floats) s->kept->key.n = 0; /* the panel is theirs */
        if (form == MM_ACT_BF16 && m->fmt == MM_bf16 && kern->bf16_pairs) {
            r.xb = fill_panel_bf16(x->bf16, (size_t)x->ld, idx, j0, n, g0, r.g1,
                                   (uint16_t *)(void *)s->panel);
            kern->mm_bf16x(&r);
            continue;
        }
        if (floats) {
            if (form == MM_ACT_F32)
                fill_panel_f32(x->f32, (size_t)x->ld, idx, j0, n, g0, r.g1, s->panel);
            else
                fill_panel_widened(x->bf16, (size_t)x->ld, idx, j0, n, g0, r.g1, s->panel);
            r.x = s->panel;
            if (m->fmt < MM_N_CODE)
                run_unpacked(kern, m, tile0, r, s->unpack);
            else
                run_of(kern, m->fmt)(&r);
            continue;
        }
        r.end = r.w + (size_t)n_tile * m->tile_bytes;
        r.then = then;
        struct kept_key key = {kern, x, idx, (int)form, m->fmt, x->n_col, j0, n};
        if (!are_kept(s->kept, &key, again, &r)) {
            code_columns(kern, m, x, form, idx, j0, &r, s);
            *s->kept = (struct kept){key, r};
        }
        code_units(m, tile0, x, form, idx, j0, &r, s);
        run_of(kern, m->fmt)(&r);
    }
}

/* Outputs of float forms times the tensor's scale. */
static void scale_row(const struct mm_mat *m, int tile0, int n_tile, float *y)
{
    float even = m->scale, odd = m->is_pair ? m->scale2 : m->scale;
    if (even == 1.0f && odd == 1.0f) return;
    for (int t = 0; t < n_tile; t++) {
        float f = (tile0 + t) & 1 ? odd : even;
        for (int i = 0; i < 16; i++)
            y[16 * t + i] *= f;
    }
}

void kern_mm(const struct mm_mat *m, int tile0, int n_tile, const struct mm_act_buf *x,
             enum mm_act form, const int32_t *idx, int n_tok, float *y, int64_t ldy,
             const uint8_t *then, int again, void *scratch)
{
    kern_mm_with(kern_get(), m, tile0, n_tile, x, form, idx, n_tok, y, ldy, then, again, scratch);
}

void kern_mm_with(const struct kern *k, const struct mm_mat *m, int tile0, int n_tile,
                  const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int n_tok,
                  float *y, int64_t ldy, const uint8_t *then, int again, void *scratch)
{
    struct scratch s;
    carve_scratch(scratch, m->n_col, &s);
    int n_set = (n_tok + MM_N_COL - 1) / MM_N_COL;
    for (int i = 0; i < n_set; i++) {
        int j0 = (int)((int64_t)n_tok * i / n_set), j1 = (int)((int64_t)n_tok * (i + 1) / n_set);
        const uint8_t *after = i == n_set - 1 ? then : NULL;
        columns(k, m, tile0, n_tile, x, form, idx, j0, j1 - j0, y, ldy, after, again, &s);
        for (int j = j0; j < j1 && form <= MM_ACT_BF16; j++)
            scale_row(m, tile0, n_tile, y + j * ldy);
    }
}
