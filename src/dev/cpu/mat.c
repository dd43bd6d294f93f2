/* SPDX-License-Identifier: Apache-2.0 */
/* Packing weights into the run layout, and the buffers of prepared inputs. */
#include "dev/cpu/mat.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/mem.h"

#define SLICE_BYTES                                                                                \
    ((int64_t)32 << 20) /* of source between two drops: bounds what lies in memory twice */

/* bf16 means bf16 activations where the weights are floats; where they are integer codes 15-bit
 * integers say at least as much (an error of 2^-16 of the largest of 32 values, against 2^-9 of
 * each) and take the integer units. Unless they are asked for, only bf16 weights get bf16
 * activations: products with other floats are f32 and no slower with activations as they are. */
enum mm_act dev_cpu_form(enum dev_acts acts, int fmt, enum dev_use use)
{
    static const enum mm_act wanted[][DEV_USE_EXACT + 1] = {
        /* matmul, embed, experts, plain, latent, exact */
        [DEV_ACTS_AUTO] = {MM_ACT_INT8X, MM_ACT_INT8X, MM_ACT_INT8, MM_ACT_INT8, MM_ACT_INT15,
                           MM_ACT_INT15},
        [DEV_ACTS_INT8] = {MM_ACT_INT8, MM_ACT_INT8, MM_ACT_INT8, MM_ACT_INT8, MM_ACT_INT8,
                           MM_ACT_INT15},
        [DEV_ACTS_BF16] = {MM_ACT_INT15, MM_ACT_INT15, MM_ACT_INT15, MM_ACT_INT15, MM_ACT_INT15,
                           MM_ACT_INT15},
        [DEV_ACTS_F32] = {MM_ACT_F32, MM_ACT_F32, MM_ACT_F32, MM_ACT_F32, MM_ACT_F32, MM_ACT_F32},
    };
    enum mm_act a = wanted[acts][use];
    if (kern_mm_takes(fmt, a)) return a;
    int rounded = acts == DEV_ACTS_BF16 || fmt == MM_bf16;
    return use == DEV_USE_EXACT || !rounded || !kern_mm_takes(fmt, MM_ACT_BF16) ? MM_ACT_F32
                                                                                : MM_ACT_BF16;
}

/* Matrices of a stack, and the two of a pair, have the same shape. */
static sl_status check_shapes(const struct weight *first, const struct weight *w, sl_err *err)
{
    if (w->rows == first->rows && w->cols == first->cols) return SL_OK;
    return SL_FAIL(err, FORMAT, "tensor %.80s [%lld, %lld] and tensor %.80s [%lld, %lld] differ",
                   first->name, (long long)first->rows, (long long)first->cols, w->name,
                   (long long)w->rows, (long long)w->cols);
}

static bool all_fit_bf16(const struct weight *w, int n)
{
    int i = 0;
    while (i < n && weight_fits_bf16(&w[i]))
        i++;
    return i == n;
}

/* The run format of n matrices: that of all, or decoded where they differ (a quantiser left one as
 * it was; the scales of one allow an f16, and those of another do not). Of some of a longer stack:
 * that of all of it. What is used exactly meets activations in f32 whether it is f32 or bf16, with
 * the same result: routers, which converters write as f32, are bf16 where that holds them and the
 * caller asks for it (narrow), for half of the bytes. */
static sl_status choose_fmt(const struct cpu *c, const struct dev_weights *of,
                            const struct weight *w, bool narrow, int *fmt, sl_err *err)
{
    bool decode = false;
    int n = of->n;
    if (c->some) {
        w = w == c->some->of.first ? c->some->all_first : c->some->all_second;
        n = c->some->n_all;
    }
    SL_TRY(kern_mm_fmt(w, fmt, err));
    for (int i = 0; i < n && !decode; i++) {
        int f;
        SL_TRY(kern_mm_fmt(&w[i], &f, err));
        decode = f != *fmt || (w[i].scheme == TENSOR_SCHEME_GROUP && f == kern_mm_decoded(1));
    }
    if (decode) *fmt = kern_mm_decoded(c->acts == DEV_ACTS_F32);
    if (narrow && of->use == DEV_USE_EXACT && *fmt == MM_f32 && all_fit_bf16(w, n)) *fmt = MM_bf16;
    return SL_OK;
}

struct pack_job {
    const struct cpu_mat *w;
    const struct dev_weights *of;
    int n_tile;         /* of one matrix */
    int64_t begin, end; /* units: tile t of matrix i is i * n_tile + t */
};

static void pack_run(void *arg, int worker, int n_w)
{
    const struct pack_job *j = arg;
    int64_t b, e;
    par_split(j->end - j->begin, worker, n_w, &b, &e);
    for (int64_t u = j->begin + b; u < j->begin + e; u++) {
        int i = (int)(u / j->n_tile), t = (int)(u % j->n_tile);
        struct mm_mat m = dev_cpu_mat_at(j->w, i), m2 = dev_cpu_mat2_at(j->w, i);
        kern_mm_pack_tile(&m, &j->of->first[i], 0, t);
        if (j->of->second) kern_mm_pack_tile(m2.data ? &m2 : &m, &j->of->second[i], !m2.data, t);
    }
}

static void drop_rows(const struct dev_weights *of, const struct weight *w, int64_t tile0,
                      int64_t tile1)
{
    int64_t r0 = tile0 * 16, r1 = tile1 * 16 < w->rows ? tile1 * 16 : w->rows;
    struct weight part = *w;
    if (!weight_by_row(w)) { /* nothing is done with before everything is */
        if (r1 == w->rows && r1 > r0) of->drop(of->user, &part);
        return;
    }
    /* the data of a GROUP weight begin with the first row of the stored matrix */
    int64_t row0 = w->scheme == TENSOR_SCHEME_GROUP ? w->group.row0 : 0;
    part.data += (uint64_t)(row0 + r0) * w->row_bytes;
    part.rows = r1 - r0;
    if (part.rows > 0) of->drop(of->user, &part);
}

void dev_cpu_mat_drop(const struct dev_weights *of, int n_tile, int64_t begin, int64_t end)
{
    if (!of->drop) return;
    for (int64_t u = begin; u < end;) {
        int64_t i = u / n_tile, stop = (i + 1) * n_tile;
        if (stop > end) stop = end;
        drop_rows(of, &of->first[i], u - i * n_tile, stop - i * n_tile);
        if (of->second) drop_rows(of, &of->second[i], u - i * n_tile, stop - i * n_tile);
        u = stop;
    }
}

sl_status dev_cpu_mat_new(struct cpu *c, const struct cpu_stack *s, struct cpu_mat **out,
                          sl_err *err)
{
    struct cpu_mat *w = NULL;
    size_t n_bytes;
    bool two = s->pair && s->fmt[1] != s->fmt[0];
    SL_TRY(dev_cpu_mem(c, MEM_MISC, sizeof *w, (void **)&w, err));
    SL_TRY(dev_cpu_mem(c, MEM_MISC, sizeof(float) * 2 * (size_t)s->n, (void **)&w->scale, err));
    kern_mm_layout(s->fmt[0], s->rows, s->cols, s->pair && !two, &w->m, &n_bytes);
    w->n = s->n;
    w->stride = w->step = n_bytes;
    w->head.d = &c->head;
    w->head.bytes = (int64_t)w->stride * s->n;
    w->head.rows = w->m.n_row;
    w->head.cols = w->m.n_col;
    if (two) {
        kern_mm_layout(s->fmt[1], s->rows, s->cols, 0, &w->m2, &n_bytes);
        w->stride2 = w->step2 = n_bytes;
        w->head.bytes += (int64_t)w->stride2 * s->n;
    }
    *out = w;
    return SL_OK;
}

void dev_cpu_mat_add(struct cpu *c, struct cpu_mat *w, enum dev_use use)
{
    w->use = use;
    w->m.scale = w->scale[0];
    w->m.scale2 = w->scale[1];
    w->form = w->form2 = dev_cpu_form(c->acts, w->m.fmt, use);
    if (w->m2.data) {
        w->m2.scale = w->scale[1];
        w->form2 = dev_cpu_form(c->acts, w->m2.fmt, use);
    }
    w->next = c->mats;
    c->mats = w;
    c->n_col_max = c->n_col_max > w->m.n_col ? c->n_col_max : w->m.n_col;
}

sl_status dev_cpu_mat_of_weights(struct cpu *c, const struct dev_weights *of, bool narrow,
                                 struct cpu_mat **out, sl_err *err)
{
    const struct weight *first = of->first, *second = of->second;
    int n = of->n, fmt, fmt2;
    if (n < 1 || first->rows < 1 || first->cols < 1 || first->rows > INT32_MAX - 16 ||
        first->cols > INT32_MAX - 256)
        return SL_FAIL(err, FORMAT, "tensor %.80s: %d x [%lld, %lld] is no matrix", first->name, n,
                       (long long)first->rows, (long long)first->cols);
    for (int i = 0; i < n; i++) {
        SL_TRY(check_shapes(first, &first[i], err));
        if (second) SL_TRY(check_shapes(first, &second[i], err));
    }
    SL_TRY(choose_fmt(c, of, first, narrow, &fmt, err));
    fmt2 = fmt;
    if (second) SL_TRY(choose_fmt(c, of, second, narrow, &fmt2, err));
    const struct cpu_stack s = {{fmt, fmt2}, n, first->rows, first->cols, second != NULL};
    SL_TRY(dev_cpu_mat_new(c, &s, out, err));
    for (int i = 0; i < n; i++) {
        (*out)->scale[2 * i] = kern_mm_scale(fmt, &first[i]);
        (*out)->scale[2 * i + 1] = second ? kern_mm_scale(fmt2, &second[i]) : 1.0f;
    }
    return SL_OK;
}

sl_status dev_cpu_mat_memory(struct cpu *c, struct cpu_mat *w, sl_err *err)
{
    void *data = NULL;
    SL_TRY(dev_cpu_carve(c, w->stride * (size_t)w->n, &data, err));
    w->m.data = data;
    if (!w->stride2) return SL_OK;
    SL_TRY(dev_cpu_carve(c, w->stride2 * (size_t)w->n, &data, err));
    w->m2.data = data;
    return SL_OK;
}

sl_status dev_cpu_mat_load(dev *d, const struct dev_weights *of, dev_mat **out, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_mat *w = NULL;
    SL_TRY(dev_cpu_mat_of_weights(c, of, true, &w, err));
    SL_TRY(dev_cpu_mat_memory(c, w, err));
    dev_cpu_mat_add(c, w, of->use);
    struct pack_job j = {w, of, (w->m.n_row + 15) / 16, 0, 0};
    int64_t total = (int64_t)of->n * j.n_tile;
    int64_t slice = SLICE_BYTES / (int64_t)(16 * of->first->row_bytes * (of->second ? 2 : 1)) + 1;
    for (; j.begin < total; j.begin = j.end) {
        j.end = j.begin + slice < total ? j.begin + slice : total;
        par_run(c->team, pack_run, &j);
        dev_cpu_mat_drop(of, j.n_tile, j.begin, j.end);
    }
    *out = &w->head;
    return SL_OK;
}

void dev_cpu_mat_some(dev *d, const struct dev_some *s)
{
    dev_cpu_of(d)->some = s;
}

sl_status dev_cpu_act_open(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_act *a = NULL;
    void *base = NULL;
    unsigned forms = 0;
    for (int i = 0; i < in->n_mat; i++) {
        const struct cpu_mat *w = dev_cpu_mat_of(in->mats[i]);
        if (w) forms |= 1u << w->form | 1u << w->form2;
    }
    SL_TRY(dev_cpu_mem(c, MEM_ACTS, sizeof *a, (void **)&a, err));
    size_t n = kern_mm_act_bytes(forms, in->n_col, in->n_tok_max);
    SL_TRY(dev_cpu_mem(c, MEM_ACTS, n, &base, err));
    a->head.d = d;
    kern_mm_act_init(&a->b, forms, in->n_col, in->n_tok_max, base);
    *out = (dev_act *)a;
    return SL_OK;
}
