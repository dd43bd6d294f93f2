/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices: the CPU's images, brought to the device as they are packed or as they lie in a file;
 * and the memory of prepared inputs. */
#include <sched.h>
#include <string.h>

#include "base/size.h"
#include "dev/cpu/mat.h"
#include "dev/gpu/gpu.h"

/* ---- matrices ---- */

static sl_status open_half(struct gpu *c, struct gpu_mat *m, int half, const struct dev_image *im,
                           sl_err *err)
{
    struct gpu_half *h = &m->half[half];
    h->fmt = im->fmt[half] ? kern_mm_fmt_find(im->fmt[half]) : -1;
    if (h->fmt < 0) return SL_OK;
    h->form = dev_cpu_form(c->acts, h->fmt, m->use);
    h->unit_bytes = im->unit_bytes[half];
    if (m->use == DEV_USE_EXPERTS) c->expert_forms |= 1u << h->form;
    if (m->use == DEV_USE_EXACT) c->head_forms |= 1u << h->form;
    m->head.bytes += (int64_t)h->unit_bytes * m->n * m->n_tile;
    SL_TRY(dev_gpu_carve_items(c, (int64_t)m->n * m->n_tile, (int64_t)h->unit_bytes, &h->p, err));
    int what = h->form == MM_ACT_F32 || h->form == MM_ACT_BF16 ? GPU_MF : GPU_MV;
    SL_TRY(dev_gpu_kernel(c, dev_gpu_kernel_of(what, h->fmt), err));
    if (what == GPU_MV) what = c->has_units ? GPU_CM : GPU_MM;
    if (what != GPU_MF && c->tiles) SL_TRY(dev_gpu_kernel(c, dev_gpu_kernel_of(what, h->fmt), err));
    bool by_rows = m->use == DEV_USE_EMBED || m->use == DEV_USE_EXACT;
    return by_rows ? dev_gpu_kernel(c, dev_gpu_kernel_of(GPU_ROW, h->fmt), err) : SL_OK;
}

static sl_status open_mat(struct gpu *c, const struct dev_image *im, enum dev_use use,
                          struct gpu_mat **out, sl_err *err)
{
    void *p = NULL;
    int64_t n_scale = 2 * (int64_t)im->n * (int64_t)sizeof(float);
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct gpu_mat), &p, err));
    struct gpu_mat *m = *out = p;
    m->head.d = &c->head;
    m->head.rows = (int)im->rows;
    m->head.cols = (int)im->cols;
    m->n = im->n;
    m->n_tile = (int)((im->rows + 15) / 16);
    m->is_pair = im->is_pair;
    m->use = use;
    for (int half = 0; half < 2; half++)
        SL_TRY(open_half(c, m, half, im, err));
    SL_TRY(dev_gpu_carve(c, n_scale, &m->scale, NULL, err));
    if (!im->pick) return dev_gpu_put(c, m->scale, im->scale, n_scale, err);
    for (int i = 0; i < im->n; i++)
        SL_TRY(dev_gpu_put(c, m->scale + 8 * (uint64_t)i, im->scale + 2 * im->pick[i], 8, err));
    return SL_OK;
}

/* n bytes of whole units, of which the first is number unit of that half. */
static sl_status write_units(struct gpu *c, const struct gpu_half *h, uint64_t unit,
                             const uint8_t *from, uint64_t n)
{
    sl_status st = SL_OK;
    for (uint64_t left = n / h->unit_bytes; left && !st;) {
        uint64_t in = unit % (uint64_t)h->p.per;
        uint64_t many = BASE_MIN(left, (uint64_t)h->p.per - in), bytes = many * h->unit_bytes;
        uint8_t *host;
        uint64_t at = dev_gpu_item(&h->p, (int64_t)unit, &host);
        if (host)
            memcpy(host, from, bytes);
        else
            st = dev_gpu_put(c, at, from, (int64_t)bytes, NULL);
        from += bytes;
        unit += many;
        left -= many;
    }
    return st;
}

static sl_status take_begin(void *user, const struct dev_image *im, sl_err *err)
{
    struct gpu *c = user;
    return open_mat(c, im, c->taking_use, &c->taking, err);
}

/* From all workers at once; without memory that the host sees one after another. */
static void take_bytes(void *user, int worker, uint64_t at, const void *p, uint64_t n)
{
    struct gpu *c = user;
    const struct gpu_mat *m = c->taking;
    uint64_t first = m->half[0].unit_bytes * (uint64_t)m->n * (uint64_t)m->n_tile;
    int half = at >= first;
    const struct gpu_half *h = &m->half[half];
    uint64_t unit = (half ? at - first : at) / h->unit_bytes;
    (void)worker;
    if (h->p.host[0]) {
        (void)write_units(c, h, unit, p, n);
        return;
    }
    while (atomic_flag_test_and_set_explicit(&c->taking_lock, memory_order_acquire))
        sched_yield();
    (void)write_units(c, h, unit, p, n); /* what fails stays in c->why */
    atomic_flag_clear_explicit(&c->taking_lock, memory_order_release);
}

sl_status dev_gpu_mat_take(dev *d, enum dev_use use, struct dev_image_sink *sink, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    (void)err;
    c->taking = NULL;
    c->taking_use = use;
    *sink = (struct dev_image_sink){take_begin, take_bytes, c};
    return SL_OK;
}

sl_status dev_gpu_mat_taken(dev *d, dev_mat **out, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    *out = &c->taking->head;
    return dev_gpu_finish(c, err);
}

sl_status dev_gpu_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                          dev_mat **out, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    struct gpu_mat *m = NULL;
    SL_TRY(dev_cpu_image_check(name, im, err));
    SL_TRY(open_mat(c, im, use, &m, err));
    uint64_t n_tile = (uint64_t)m->n_tile;
    for (int half = 0; half < 2 && m->half[half].fmt >= 0; half++)
        for (uint64_t i = 0; i < (uint64_t)im->n; i++)
            SL_TRY(write_units(c, &m->half[half], i * n_tile,
                               im->data[half] +
                                   (im->pick ? (uint64_t)im->pick[i] : i) * im->step[half],
                               n_tile * m->half[half].unit_bytes));
    *out = &m->head;
    return dev_gpu_finish(c, err);
}

/* ---- matrices of the host ---- */

sl_status dev_gpu_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use,
                           dev_mat **out, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    struct gpu_mat *m = NULL;
    struct dev_image im = *like;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 2 * (size_t)n, sizeof(float), &p, err));
    im.n = n;
    im.scale = p;
    sl_status st = open_mat(c, &im, use, &m, err);
    mem_free(p);
    if (!st) *out = &m->head;
    return st;
}

sl_status dev_gpu_mat_fill(dev_mat *mat, int at, const struct dev_image *one, sl_err *err)
{
    struct gpu_mat *m = (struct gpu_mat *)mat;
    struct gpu *c = dev_gpu_of(mat->d);
    uint64_t n_tile = (uint64_t)m->n_tile;
    ASSERT(at >= 0 && at < m->n && one->rows == m->head.rows && one->cols == m->head.cols);
    SL_TRY(dev_gpu_finish(c, err));
    for (int half = 0; half < 2 && m->half[half].fmt >= 0; half++)
        if (write_units(c, &m->half[half], (uint64_t)at * n_tile, one->data[half],
                        n_tile * m->half[half].unit_bytes))
            return dev_gpu_finish(c, err);
    return dev_gpu_put(c, m->scale + 8 * (uint64_t)at, one->scale, 8, err);
}

/* ---- inputs ---- */

struct gpu_input dev_gpu_input(const struct gpu_act *a, enum mm_act form, int n_col)
{
    struct gpu_input in = {.at = a->form[form], .n_plane = 1};
    in.ld = (int)size_round((size_t)n_col, 256);
    in.stride = (uint32_t)in.ld;
    if (form < MM_ACT_INT8) return in;
    in.n_plane = form == MM_ACT_INT8 ? 1 : 2;
    in.plane = (uint32_t)in.ld / 32 * GPU_REC;
    in.stride = in.plane * in.n_plane + 4; /* and the unit */
    return in;
}

static sl_status open_form(struct gpu *c, struct gpu_act *a, enum mm_act form, sl_err *err)
{
    struct gpu_input in = dev_gpu_input(a, form, a->n_col);
    if (form >= MM_ACT_INT8)
        SL_TRY(dev_gpu_kernel(c, GPU_prep, err));
    else
        SL_TRY(dev_gpu_kernel(c, GPU_floats, err));
    return dev_gpu_carve(c, 4 * (int64_t)in.stride * a->n_tok_max, &a->form[form], NULL, err);
}

sl_status dev_gpu_act_room(struct gpu *c, unsigned forms, int n_col, int n_row, struct gpu_act *a,
                           sl_err *err)
{
    a->head.d = &c->head;
    a->forms = forms;
    a->n_col = n_col;
    a->n_tok_max = n_row;
    for (int f = 0; f < MM_N_ACT; f++)
        if (forms >> f & 1u) SL_TRY(open_form(c, a, (enum mm_act)f, err));
    return SL_OK;
}

sl_status dev_gpu_act_open(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    void *p = NULL;
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct gpu_act), &p, err));
    struct gpu_act *a = p;
    unsigned forms = 0;
    for (int i = 0; i < in->n_mat; i++)
        for (int half = 0; in->mats[i] && half < 2; half++) {
            const struct gpu_half *h = &((const struct gpu_mat *)in->mats[i])->half[half];
            if (h->fmt >= 0) forms |= 1u << h->form;
        }
    SL_TRY(dev_gpu_carve(c, 4 * (int64_t)in->n_col * in->n_tok_max, &a->rows, NULL, err));
    SL_TRY(dev_gpu_act_room(c, forms, in->n_col, in->n_tok_max, a, err));
    c->cols_max = BASE_MAX(c->cols_max, in->n_col);
    *out = &a->head;
    return SL_OK;
}
