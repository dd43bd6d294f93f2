/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices in the run layout outside of this process: taking them from a mapped file as they are,
 * and making them for one. */
#include <math.h>
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "os/os.h"

#define CPU_TOUCH_MAX 16 /* workers that read a mapped file in */

#define PIECE_BYTES                                                                                \
    ((uint64_t)16                                                                                  \
     << 20) /* packed at a time by one worker: long writes give the page cache large pages */
#define PIECES_BYTES ((uint64_t)256 << 20) /* of all workers */

/* ---- taking ---- */

struct touch_job {
    const struct dev_image *im;
    uint64_t n_tile; /* of one matrix */
    sl_err err[CPU_TOUCH_MAX];
};

/* Every worker touches its slice of every matrix, so that pages which are not in memory yet come to
 * its node. */
static void touch_run(void *arg, int worker, int n_w)
{
    struct touch_job *j = arg;
    const struct dev_image *im = j->im;
    int64_t b, e;
    int n = n_w < CPU_TOUCH_MAX ? n_w : CPU_TOUCH_MAX;
    if (worker >= n) return;
    par_split((int64_t)j->n_tile, worker, n, &b, &e);
    for (int half = 0; half < 2 && im->unit_bytes[half]; half++) {
        uint64_t unit = im->unit_bytes[half];
        for (int i = 0; i < im->n && !j->err[worker].code; i++) {
            uint64_t at = (uint64_t)(im->pick ? im->pick[i] : i) * im->step[half];
            if (os_touch(im->data[half] + at + (uint64_t)b * unit, (uint64_t)(e - b) * unit,
                         &j->err[worker]))
                return;
        }
    }
}

static sl_status wrong(const char *name, const char *what, sl_err *err)
{
    return SL_FAIL(err, FORMAT, "matrix %.100s: %s", name, what);
}

/* Scales of matrix i, two each. */
static float scale_of(const struct dev_image *im, int i)
{
    return im->scale[im->pick ? 2 * im->pick[i / 2] + i % 2 : i];
}

sl_status dev_cpu_image_check(const char *name, const struct dev_image *im, sl_err *err)
{
    if (im->n < 1 || im->rows < 1 || im->cols < 1 || im->rows > INT32_MAX - 16 ||
        im->cols > INT32_MAX - 256)
        return SL_FAIL(err, FORMAT, "matrix %.80s: %d x [%lld, %lld] is no matrix", name, im->n,
                       (long long)im->rows, (long long)im->cols);
    int fmt = kern_mm_fmt_find(im->fmt[0]), fmt2 = im->fmt[1] ? kern_mm_fmt_find(im->fmt[1]) : fmt;
    if (fmt < 0 || fmt2 < 0) return wrong(name, "its run format is not known", err);
    if (im->fmt[1] && (fmt == fmt2 || !im->is_pair))
        return wrong(name, "two formats, but no pair of two", err);
    for (int i = 0; i < 2; i++)
        if ((uintptr_t)im->data[i] % 64 || im->step[i] % 64)
            return wrong(name, "its bytes are not aligned to 64", err);
    for (int i = 0; i < 2 * im->n; i++)
        if (!isfinite(scale_of(im, i))) return wrong(name, "a scale is not finite", err);
    struct mm_mat m;
    size_t one, two = 0;
    uint64_t n_tile = ((uint64_t)im->rows + 15) / 16;
    kern_mm_layout(fmt, im->rows, im->cols, im->is_pair && fmt == fmt2, &m, &one);
    if (fmt != fmt2) kern_mm_layout(fmt2, im->rows, im->cols, 0, &m, &two);
    if (one != n_tile * im->unit_bytes[0] || two != n_tile * im->unit_bytes[1])
        return wrong(name, "its bytes do not fit its shape", err);
    return SL_OK;
}

sl_status dev_cpu_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                          dev_mat **out, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_mat *w = NULL;
    SL_TRY(dev_cpu_image_check(name, im, err));
    int fmt[2] = {kern_mm_fmt_find(im->fmt[0]), kern_mm_fmt_find(im->fmt[0])};
    if (im->fmt[1]) fmt[1] = kern_mm_fmt_find(im->fmt[1]);
    const struct cpu_stack s = {{fmt[0], fmt[1]}, im->n, im->rows, im->cols, im->is_pair};
    SL_TRY(dev_cpu_mat_new(c, &s, &w, err));
    uint64_t n_tile = ((uint64_t)im->rows + 15) / 16;
    for (int i = 0; i < 2 * im->n; i++)
        w->scale[i] = scale_of(im, i);
    w->m.data = (uint8_t *)(uintptr_t)im->data[0]; /* kernels only read it */
    if (w->stride2) w->m2.data = (uint8_t *)(uintptr_t)im->data[1];
    w->step = im->step[0];
    w->step2 = im->step[1];
    w->pick = im->pick;
    dev_cpu_mat_add(c, w, use);
    struct touch_job j = {.im = im, .n_tile = n_tile};
    par_run(c->team, touch_run, &j);
    for (int i = 0; i < CPU_TOUCH_MAX; i++)
        if (j.err[i].code) {
            if (err) *err = j.err[i];
            return j.err[i].code;
        }
    *out = &w->head;
    return SL_OK;
}

/* ---- matrices of one device on another ---- */

void dev_cpu_mat_view(const dev_mat *mat, int i, struct dev_image *out)
{
    const struct cpu_mat *w = dev_cpu_mat_of(mat);
    uint64_t n_tile = ((uint64_t)w->m.n_row + 15) / 16;
    struct mm_mat m = dev_cpu_mat_at(w, i), m2 = dev_cpu_mat2_at(w, i);
    ASSERT(i >= 0 && i < w->n);
    *out = (struct dev_image){
        .fmt = {kern_mm_fmt_name(w->m.fmt), w->m2.data ? kern_mm_fmt_name(w->m2.fmt) : NULL},
        .n = 1,
        .is_pair = w->m.is_pair || w->m2.data,
        .rows = w->m.n_row,
        .cols = w->m.n_col,
        .unit_bytes = {w->stride / n_tile, w->stride2 / n_tile},
        .scale = w->scale + 2 * (size_t)i,
        .data = {m.data, m2.data},
        .step = {w->stride, w->stride2}};
}

sl_status dev_cpu_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use,
                           dev_mat **out, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_mat *w = NULL;
    int fmt = kern_mm_fmt_find(like->fmt[0]),
        fmt2 = like->fmt[1] ? kern_mm_fmt_find(like->fmt[1]) : fmt;
    const struct cpu_stack s = {{fmt, fmt2}, n, like->rows, like->cols, like->is_pair};
    SL_TRY(dev_cpu_mat_new(c, &s, &w, err));
    SL_TRY(dev_cpu_mat_memory(c, w, err));
    dev_cpu_mat_add(c, w, use);
    *out = &w->head;
    return SL_OK;
}

struct fill_job {
    uint8_t *to[2];
    const uint8_t *from[2];
    size_t n[2];
};

static void fill_run(void *arg, int worker, int n_w)
{
    const struct fill_job *j = arg;
    for (int half = 0; half < 2 && j->n[half]; half++) {
        int64_t b, e;
        par_split((int64_t)j->n[half] / 64, worker, n_w, &b, &e);
        memcpy(j->to[half] + 64 * b, j->from[half] + 64 * b, 64 * (size_t)(e - b));
    }
}

sl_status dev_cpu_mat_fill(dev_mat *m, int at, const struct dev_image *one, sl_err *err)
{
    struct cpu_mat *w = (struct cpu_mat *)m;
    struct fill_job j = {{w->m.data + (size_t)at * w->step,
                          w->m2.data ? w->m2.data + (size_t)at * w->step2 : NULL},
                         {one->data[0], one->data[1]},
                         {w->stride, w->stride2}};
    (void)err;
    ASSERT(at >= 0 && at < w->n && one->rows == w->m.n_row && one->cols == w->m.n_col);
    ASSERT(w->stride % 64 == 0 && w->stride2 % 64 == 0);
    memcpy(w->scale + 2 * (size_t)at, one->scale, 2 * sizeof(float));
    if (at == 0) {
        w->m.scale = w->scale[0];
        w->m.scale2 = w->scale[1];
        if (w->m2.data) w->m2.scale = w->scale[1];
    }
    par_run(dev_cpu_of(m->d)->team, fill_run, &j);
    return SL_OK;
}

void dev_cpu_send(dev *d, const struct dev_step *b, const struct dev_send *p)
{
    struct dev_image one;
    (void)d;
    (void)b;
    for (int i = 0; i < p->slots->n; i++) {
        int e = p->slots->expert[i];
        if (e < 0) continue;
        dev_mat_view(p->from_gate_up, e, &one);
        sl_status up = dev_mat_fill(p->gate_up, i, &one, NULL);
        dev_mat_view(p->from_down, e, &one);
        sl_status down = dev_mat_fill(p->down, i, &one, NULL);
        ASSERT(!up && !down); /* memory is copied */
    }
}

/* ---- making ---- */

struct image_job {
    const struct cpu_mat *w;
    const struct dev_weights *of;
    const struct dev_image_sink *sink;
    struct par_counter *counter;
    uint8_t *buf;
    uint64_t buf_bytes; /* of one worker */
    int64_t begin, end; /* units of this region */
    int n_tile, step;   /* units of a piece */
    int half;           /* 1: of the second stream */
};

static void pack_unit(const struct image_job *j, int i, int t, uint8_t *dst)
{
    struct mm_mat m = j->half ? j->w->m2 : j->w->m;
    m.scale = j->w->scale[2 * i + j->half];
    m.scale2 = j->w->scale[2 * i + 1];
    m.data = dst - (size_t)t * m.tile_bytes * (m.is_pair ? 2 : 1); /* so that tile t lies at dst */
    kern_mm_pack_tile(&m, j->half ? &j->of->second[i] : &j->of->first[i], 0, t);
    if (m.is_pair) kern_mm_pack_tile(&m, &j->of->second[i], 1, t);
}

static void image_run(void *arg, int worker, int n_w)
{
    struct image_job *j = arg;
    int b, e;
    (void)n_w;
    uint8_t *buf = j->buf + (uint64_t)worker * j->buf_bytes;
    uint64_t unit = (j->half ? j->w->stride2 : j->w->stride) / (uint64_t)j->n_tile;
    uint64_t base = j->half ? j->w->stride * (uint64_t)j->w->n : 0;
    while (par_take(j->counter, (int)(j->end - j->begin), j->step, &b, &e)) {
        for (int64_t u = j->begin + b; u < j->begin + e; u++)
            pack_unit(j, (int)(u / j->n_tile), (int)(u % j->n_tile),
                      buf + (uint64_t)(u - j->begin - b) * unit);
        j->sink->bytes(j->sink->user, worker, base + (uint64_t)(j->begin + b) * unit, buf,
                       (uint64_t)(e - b) * unit);
    }
}

static sl_status run_half(struct cpu *c, struct image_job *j, sl_err *err)
{
    void *p = NULL;
    uint64_t unit = (j->half ? j->w->stride2 : j->w->stride) / (uint64_t)j->n_tile;
    uint64_t piece = BASE_MIN(PIECE_BYTES, PIECES_BYTES / (uint64_t)c->n_worker);
    int64_t total = (int64_t)j->w->n * j->n_tile, region;
    j->step = (int)BASE_MAX(1, piece / unit);
    j->buf_bytes = (uint64_t)j->step * unit;
    SL_TRY(mem_slab_alloc(MEM_SCRATCH, j->buf_bytes * (uint64_t)c->n_worker, c->huge, &p, err));
    j->buf = p;
    region = (int64_t)j->step * c->n_worker * 2;
    bool last = j->half || !j->w->stride2;
    for (j->begin = 0; j->begin < total; j->begin = j->end) {
        j->end = BASE_MIN(j->begin + region, total);
        atomic_store_explicit(&j->counter->next, 0,
                              memory_order_relaxed); /* published by par_run */
        par_run(c->team, image_run, j);
        if (last) dev_cpu_mat_drop(j->of, j->n_tile, j->begin, j->end);
    }
    mem_slab_free(MEM_SCRATCH, p, j->buf_bytes * (uint64_t)c->n_worker);
    return SL_OK;
}

/* Some of n weights that no run format holds exactly, or not all of one, were decoded and rounded.
 */
static bool is_rounded(const struct weight *w, int n, const struct mm_mat *m)
{
    for (int i = 0; w && i < n && m->fmt == kern_mm_decoded(0); i++)
        if (!weight_is_mxfp8(&w[i]) &&
            (w[i].scheme == TENSOR_SCHEME_GROUP || w[i].type != TENSOR_BF16))
            return true;
    return false;
}

sl_status dev_cpu_mat_pack(dev *d, const struct dev_weights *of, const struct dev_image_sink *sink,
                           sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_mat *w = NULL;
    struct par_counter counter;
    SL_TRY(dev_cpu_mat_of_weights(c, of, false, &w, err));
    uint64_t n_tile = ((uint64_t)w->m.n_row + 15) / 16;
    struct dev_image im = {
        .fmt = {kern_mm_fmt_name(w->m.fmt), w->stride2 ? kern_mm_fmt_name(w->m2.fmt) : NULL},
        .n = of->n,
        .is_pair = of->second != NULL,
        .is_rounded = is_rounded(of->first, of->n, &w->m) ||
                      is_rounded(of->second, of->n, w->stride2 ? &w->m2 : &w->m),
        .rows = w->m.n_row,
        .cols = w->m.n_col,
        .unit_bytes = {w->stride / n_tile, w->stride2 / n_tile},
        .scale = w->scale};
    SL_TRY(sink->begin(sink->user, &im, err));
    struct image_job j = {
        .w = w, .of = of, .sink = sink, .counter = &counter, .n_tile = (int)n_tile};
    SL_TRY(run_half(c, &j, err));
    if (!w->stride2) return SL_OK;
    j.half = 1;
    return run_half(c, &j, err);
}
