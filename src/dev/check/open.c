/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the devices `check` and `sim`, their memory, and the handles of what the CPU device holds
 * for them. */
#include <string.h>

#include "dev/check/check.h"
#include "kern/mm.h"

static sl_status lost(struct check *c, uint64_t n, const char *what, sl_err *err)
{
    c->lost = true;
    return SL_FAIL(err, DEVICE, "device '%s': lost at call %llu, as its option says (%s)",
                   c->head.cls->name, (unsigned long long)n, what);
}

/* A submit that never ends: what runs the queue stays in it; where there is no thread for that, or
 * the host itself waits, the wait is cut at once. */
static sl_status hang(struct check *c, enum check_kind kind, sl_err *err)
{
    atomic_store_explicit(&c->hangs, true, memory_order_release);
    if (kind == CHECK_RUN && c->thread) return SL_OK;
    dev_check_clock_cut(c);
    return dev_check_dead(c, err);
}

sl_status dev_check_dead(struct check *c, sl_err *err)
{
    c->lost = c->is_dead = true;
    return SL_FAIL(err, DEVICE, "device '%s': lost (no answer in %.3g s: submit %llu hangs, as its "
                                "option says)",
                   c->head.cls->name, (double)c->clock.cut * 1e-9,
                   (unsigned long long)c->fault.hang_submit);
}

sl_status dev_check_count(struct check *c, enum check_kind kind, const char *what, sl_err *err)
{
    const struct check_fault *f = &c->fault;
    bool is_alloc = kind == CHECK_ALLOC;
    uint64_t n = ++c->n_call, n_alloc = c->n_alloc += is_alloc, n_submit = n - n_alloc;
    if (c->is_dead) return dev_check_dead(c, err);
    if (c->lost) return lost(c, BASE_MAX(f->lost, f->lost_submit), what, err);
    if (n == f->lost) return lost(c, n, what, err);
    if (!is_alloc && n_submit == f->lost_submit) return lost(c, n_submit, what, err);
    if (n == f->call)
        return SL_FAIL(err, INTERNAL, "device 'check': call %llu (%s) fails, as its option says",
                       (unsigned long long)n, what);
    if (is_alloc && n_alloc == f->alloc)
        return SL_FAIL(err, NOMEM, "device 'sim': allocation %llu (%s) fails, as its option says",
                       (unsigned long long)n_alloc, what);
    if (!is_alloc && n_submit == f->hang_submit) return hang(c, kind, err);
    if (!is_alloc && n_submit == f->slow_submit) c->clock.slow_ns = CHECK_SLOW_NS;
    return SL_OK;
}

sl_status dev_check_take(struct check *c, int64_t n, const char *what, sl_err *err)
{
    if (!c->clock.is_on || !c->mem) return SL_OK; /* check only says what it has */
    if ((uint64_t)n > c->mem - c->used)
        return SL_FAIL(err, NOMEM, "device 'sim': %.2f MiB are needed (%s), %.2f of %.2f are free",
                       (double)n / (1 << 20), what, (double)(c->mem - c->used) / (1 << 20),
                       (double)c->mem / (1 << 20));
    c->used += (uint64_t)n;
    return SL_OK;
}

static struct check_buf *buf_of(const struct check *c, const void *p, size_t n)
{
    uintptr_t at = (uintptr_t)p;
    for (struct check_buf *b = c->buf; b; b = b->next)
        if (at >= (uintptr_t)b->base && at - (uintptr_t)b->base + n <= b->n) return b;
    return NULL;
}

void *dev_check_mem(const struct check *c, const void *p, size_t n)
{
    const struct check_buf *b = buf_of(c, p, n);
    ASSERT(b); /* else it is no memory of this device */
    return b->mem + ((const uint8_t *)p - b->base);
}

/* ---- open ---- */

static void check_close(dev *d)
{
    struct check *c = dev_check_of(d);
    for (struct check_buf *b = c->buf; b; b = b->next)
        mem_unreserve(b->base, b->n);
    dev_check_queue_free(c);
    mem_arena_fini(&c->arena);
    dev_close(c->in);
    mem_free(c);
}

static sl_status open_as(struct check *c, const char *options, const struct dev_opts *o,
                         sl_err *err)
{
    SL_TRY(dev_check_options(c, options, err));
    SL_TRY(dev_open(dev_cpu_class.name, o, &c->in, err));
    return dev_check_queue_open(c, err);
}

static sl_status open_class(const struct dev_class *cls, const char *options,
                            const struct dev_opts *o, dev **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct check), &p, err));
    struct check *c = p;
    c->head.cls = cls;
    mem_arena_init(&c->arena, MEM_MISC, 0);
    if (cls == &dev_sim_class)
        c->clock = (struct check_clock){
            .is_on = true, .bw = 1e12, .ops = 1e14, .bus = 24e9, .lat = 8000, .hand = 15000,
            .cut = (int64_t)10 * 1000000000};
    sl_status st = open_as(c, options, o, err);
    if (st)
        check_close(&c->head);
    else
        *out = &c->head;
    return st;
}

static sl_status check_open(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    return open_class(&dev_check_class, options, o, out, err);
}

static sl_status sim_open(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    return open_class(&dev_sim_class, options, o, out, err);
}

static void check_info(const dev *d, struct dev_info *out)
{
    dev_info_get(dev_check_of(d)->in, out);
    out->name = d->cls->name;
}

/* ---- memory ---- */

static sl_status check_memory(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err)
{
    const struct check *c = dev_check_of(d);
    if (!c->mem) return dev_memory(c->in, free_bytes, total, err);
    *total = (int64_t)c->mem;
    *free_bytes = (int64_t)(c->mem - c->used);
    return SL_OK;
}

static bool check_takes_host(const dev *d)
{
    return !dev_check_of(d)->mem;
}

static sl_status check_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err)
{
    struct check *c = dev_check_of(d);
    void *p = NULL, *mem = NULL, *base = NULL;
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "allocation", err));
    SL_TRY(dev_check_take(c, n_bytes, "a buffer", err));
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct check_buf), &p, err));
    SL_TRY(dev_alloc(c->in, tag, n_bytes, &mem, err));
    SL_TRY(mem_reserve((size_t)n_bytes, &base, err));
    struct check_buf *b = p;
    *b = (struct check_buf){.next = c->buf, .base = base, .mem = mem, .n = (size_t)n_bytes};
    c->buf = b;
    *out = base;
    return SL_OK;
}

static sl_status check_put(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    struct check *c = dev_check_of(d);
    struct check_buf *b = buf_of(c, dst, (size_t)n_bytes);
    ASSERT(b);
    dev_check_drain(c);
    SL_TRY(dev_check_count(c, CHECK_SUBMIT, "copy to it", err));
    b->is_kept = true;
    dev_check_clock_copy(c, n_bytes);
    return dev_put(c->in, dev_check_mem(c, dst, (size_t)n_bytes), src, n_bytes, err);
}

/* Everything that was called has run; why not, if not. */
static sl_status finish(struct check *c, const char *what, sl_err *err)
{
    dev_check_drain(c);
    SL_TRY(dev_check_failed(c, err));
    return dev_check_count(c, CHECK_SUBMIT, what, err);
}

static sl_status check_get(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    struct check *c = dev_check_of(d);
    SL_TRY(finish(c, "copy from it", err));
    if (n_bytes == 0) return SL_OK;
    dev_check_clock_copy(c, n_bytes);
    return dev_get(c->in, dst, dev_check_mem(c, src, (size_t)n_bytes), n_bytes, err);
}

static sl_status check_sync(dev *d, sl_err *err)
{
    return finish(dev_check_of(d), "wait", err);
}

static void check_host_run(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    dev_check_drain(dev_check_of(d)); /* its workers are the thread's */
    dev_host_run(dev_check_of(d)->in, fn, arg);
}

/* ---- matrices and activations ---- */

static sl_status add_mat(struct check *c, dev_mat *in, dev_mat **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(dev_check_take(c, in->bytes, "a matrix", err));
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct check_mat), &p, err));
    struct check_mat *m = p;
    m->in = in;
    m->head = *in;
    m->head.d = &c->head;
    *out = &m->head;
    return SL_OK;
}

static sl_status check_mat_load(dev *d, const struct dev_weights *of, dev_mat **out, sl_err *err)
{
    struct check *c = dev_check_of(d);
    dev_mat *in = NULL;
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "matrix", err));
    SL_TRY(dev_mat_load(c->in, of, &in, err));
    return add_mat(c, in, out, err);
}

static void check_mat_some(dev *d, const struct dev_some *s)
{
    dev *in = dev_check_of(d)->in;
    in->cls->mat_some(in, s);
}

static sl_status check_mat_map(dev *d, const char *name, const struct dev_image *im,
                               enum dev_use use, dev_mat **out, sl_err *err)
{
    struct check *c = dev_check_of(d);
    dev_mat *in = NULL;
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "matrix", err));
    SL_TRY(dev_mat_map(c->in, name, im, use, &in, err));
    return add_mat(c, in, out, err);
}

static sl_status check_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use,
                                dev_mat **out, sl_err *err)
{
    struct check *c = dev_check_of(d);
    dev_mat *in = NULL;
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "room for matrices", err));
    SL_TRY(c->in->cls->mat_room(c->in, like, n, use, &in, err));
    return add_mat(c, in, out, err);
}

static sl_status check_mat_fill(dev_mat *m, int at, const struct dev_image *one, sl_err *err)
{
    struct check *c = dev_check_of(m->d);
    dev_check_drain(c);
    SL_TRY(dev_check_count(c, CHECK_SUBMIT, "matrix", err));
    dev_check_clock_copy(c, (int64_t)dev_image_bytes(one));
    return c->in->cls->mat_fill(((struct check_mat *)m)->in, at, one, err);
}

static void check_mat_ended(dev_mat *m)
{
    dev_mat *in = ((struct check_mat *)m)->in;
    const float *bias = m->epilogue.bias;
    in->epilogue = m->epilogue;
    if (bias) in->epilogue.bias = dev_check_mem(dev_check_of(m->d), bias, sizeof *bias);
}

static sl_status check_slots_put(dev *d, const struct dev_slots *s, int n_expert, sl_err *err)
{
    (void)s; /* which the CPU device reads where they are */
    (void)n_expert;
    dev_check_drain(dev_check_of(d));
    return dev_check_failed(dev_check_of(d), err);
}

static sl_status check_mat_pack(dev *d, const struct dev_weights *of,
                                const struct dev_image_sink *sink, sl_err *err)
{
    struct check *c = dev_check_of(d);
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "matrix", err));
    return dev_mat_pack(c->in, of, sink, err);
}

static sl_status check_act_open(dev *d, const struct dev_inputs *of, dev_act **out, sl_err *err)
{
    struct check *c = dev_check_of(d);
    void *p = NULL, *list = NULL;
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "activations", err));
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct check_act), &p, err));
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)of->n_mat, sizeof(dev_mat *), &list, err));
    struct check_act *a = p;
    const dev_mat **in = list;
    for (int i = 0; i < of->n_mat; i++)
        in[i] = of->mats[i] ? ((const struct check_mat *)of->mats[i])->in : NULL;
    const struct dev_inputs its = {in, of->n_mat, of->n_col, of->n_tok_max};
    sl_status st = dev_act_open(c->in, &its, &a->in, err);
    mem_free(list);
    a->head.d = d;
    *out = &a->head;
    return st;
}

/* ---- the cache ---- */

static int64_t check_kv_bytes(const dev *d, const struct dev_kv_shape *s)
{
    return dev_kv_bytes(dev_check_of(d)->in, s);
}

static enum dev_kv_type check_kv_auto(const dev *d)
{
    return dev_kv_auto(dev_check_of(d)->in);
}

static sl_status check_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err)
{
    struct check *c = dev_check_of(d);
    void *p = NULL;
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "cache", err));
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct check_kv), &p, err));
    struct check_kv *kv = p;
    SL_TRY(dev_check_take(c, dev_kv_bytes(d, s), "the KV cache", err));
    SL_TRY(dev_kv_open(c->in, s, &kv->in, err));
    kv->head = (struct dev_kv){.d = d};
    *out = &kv->head;
    return SL_OK;
}

static void check_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n)
{
    dev_check_drain(dev_check_of(d));
    dev_kv_touch(dev_check_of(d)->in, ((struct check_kv *)kv)->in, group, blk, n);
}

static void check_kv_poison(dev *d, dev_kv *kv, int group, int blk)
{
    dev_check_drain(dev_check_of(d));
    dev_kv_poison(dev_check_of(d)->in, ((struct check_kv *)kv)->in, group, blk);
}

/* ---- workspace, probes ---- */

static int64_t check_keep_bytes(const dev *d, const struct dev_shapes *p)
{
    return dev_check_of(d)->in->cls->keep_bytes(dev_check_of(d)->in, p);
}

static sl_status check_reserve(dev *d, const struct dev_shapes *p, sl_err *err)
{
    struct check *c = dev_check_of(d);
    SL_TRY(dev_check_count(c, CHECK_ALLOC, "workspace", err));
    SL_TRY(dev_check_queue_reserve(c, p, err));
    return c->in->cls->reserve(c->in, p, err);
}

static double check_probe_read_gbps(dev *d, int ms)
{
    return dev_probe_read_gbps(dev_check_of(d)->in, ms);
}

static double check_probe_int8_gops(dev *d, int ms)
{
    return dev_probe_int8_gops(dev_check_of(d)->in, ms);
}

static double check_probe_attn_gops(dev *d, const dev_kv *kv, int ms)
{
    return dev_probe_attn_gops(dev_check_of(d)->in, ((const struct check_kv *)kv)->in, ms);
}

#define SHARED                                                                                     \
    .close = check_close, .info = check_info, .memory = check_memory,                              \
    .takes_host = check_takes_host, .alloc = check_alloc, .put = check_put, .get = check_get,      \
    .sync = check_sync, .is_late = true, .takes_late = true, .host_run = check_host_run,           \
    .mat_load = check_mat_load, .mat_some = check_mat_some, .layout = KERN_MM_LAYOUT,              \
    .mat_map = check_mat_map, .mat_pack = check_mat_pack, .mat_room = check_mat_room,              \
    .mat_fill = check_mat_fill, .mat_ended = check_mat_ended, .slots_put = check_slots_put,        \
    .act_open = check_act_open,                                                                    \
    .kv_bytes = check_kv_bytes, .kv_auto = check_kv_auto, .kv_open = check_kv_open,                \
    .kv_touch = check_kv_touch, .kv_poison = check_kv_poison, .keep_bytes = check_keep_bytes,      \
    .reserve = check_reserve, .step_begin = dev_check_step_begin, .mark = dev_check_mark,          \
    .wait_mark = dev_check_wait_mark, .lacks = dev_check_lacks,                                    \
    .probe_read_gbps = check_probe_read_gbps, .probe_int8_gops = check_probe_int8_gops,            \
    .probe_attn_gops = check_probe_attn_gops

#define X(name, params) .name = dev_check_##name,
const struct dev_class dev_check_class = {
    .name = "check", .open = check_open, .frees_poisoned = true, SHARED, DEV_OP_LIST(X)};
const struct dev_class dev_sim_class = {
    .name = "sim", .open = sim_open, .host_ran = dev_check_host_ran, .now_ns = dev_check_now_ns,
    .figures = dev_check_figures,
    SHARED, DEV_OP_LIST(X)};
#undef X
