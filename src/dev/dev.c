/* SPDX-License-Identifier: Apache-2.0 */
/* Calls go through the device's table. */
#include "dev/dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dev/dev_internal.h"

static const struct dev_class *const classes[] = {&dev_cpu_class, &dev_check_class, &dev_sim_class,
                                                &dev_cuda_class, &dev_vulkan_class};

const char *dev_name(int i)
{
    return i >= 0 && i < BASE_COUNT_OF(classes) ? classes[i]->name : NULL;
}

static sl_status unknown(const char *name, sl_err *err)
{
    char list[128];
    size_t k = 0;
    for (int i = 0; i < BASE_COUNT_OF(classes) && k < sizeof list; i++)
        k += (size_t)snprintf(list + k, sizeof list - k, "%s, ", classes[i]->name);
    return SL_FAIL(err, UNSUPPORTED, "device '%.40s' is not known (there are: %sauto)", name, list);
}

int dev_list(struct dev_desc *out, int n, sl_err *err)
{
    int total = -1;
    char why[sizeof err->text] = "";
    sl_err one = {0};
    for (int i = 0; i < BASE_COUNT_OF(classes); i++) {
        int at = BASE_MAX(total, 0), left = n - BASE_MIN(at, n);
        if (!classes[i]->list) continue;
        int more = classes[i]->list(out + n - left, left, &one);
        size_t k = strlen(why);
        if (more >= 0)
            total = at + more;
        else
            snprintf(why + k, sizeof why - k, "%s%.*s", k ? "; " : "", 110, one.text);
    }
    if (total < 0) (void)SL_FAIL(err, NOTFOUND, "%s", why);
    return total;
}

static const char *best_name(void)
{
    static struct dev_desc all[16]; /* the same for all that ask */
    int n = dev_list(all, BASE_COUNT_OF(all), NULL);
    for (int i = 0; i < n && i < BASE_COUNT_OF(all); i++)
        if (!all[i].is_cpu && !*all[i].why_not) return all[i].name;
    return classes[0]->name;
}

bool dev_name_is_auto(const char *name)
{
    if (!name) name = getenv("SL_DEVICE");
    return name && strcmp(name, "auto") == 0;
}

const char *dev_name_or_default(const char *name)
{
    if (dev_name_is_auto(name)) return best_name();
    if (!name) name = getenv("SL_DEVICE");
    return name && *name ? name : classes[0]->name;
}

sl_status dev_open(const char *name, const struct dev_opts *opts, dev **out, sl_err *err)
{
    static const struct dev_opts none;
    name = dev_name_or_default(name);
    size_t n = strcspn(name, ":");
    for (int i = 0; i < BASE_COUNT_OF(classes); i++)
        if (strlen(classes[i]->name) == n && strncmp(classes[i]->name, name, n) == 0)
            return classes[i]->open(name + n + (name[n] == ':'), opts ? opts : &none, out, err);
    return unknown(name, err);
}

/* Does a device's name begin at s? */
static bool is_name(const char *s)
{
    size_t n = strcspn(s, ":,");
    for (int i = 0; i < BASE_COUNT_OF(classes); i++)
        if (strlen(classes[i]->name) == n && strncmp(classes[i]->name, s, n) == 0) return true;
    return false;
}

size_t dev_name_bytes(const char *list)
{
    size_t n = strcspn(list, ",");
    while (list[n] && !is_name(list + n + 1))
        n += 1 + strcspn(list + n + 1, ",");
    return n;
}

bool dev_is_card(const char *name)
{
    size_t n = strcspn(name, ":;, ");
    for (int i = 0; i < BASE_COUNT_OF(classes); i++)
        if (strlen(classes[i]->name) == n && strncmp(classes[i]->name, name, n) == 0)
            return classes[i]->is_card;
    return false;
}

void dev_close(dev *d)
{
    if (d) d->cls->close(d);
}

void dev_info_get(const dev *d, struct dev_info *out)
{
    d->cls->info(d, out);
}

sl_status dev_memory(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err)
{
    return d->cls->memory(d, free_bytes, total, err);
}

bool dev_takes_host(const dev *d)
{
    return d->cls->takes_host && d->cls->takes_host(d);
}

sl_status dev_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err)
{
    return d->cls->alloc(d, tag, n_bytes, out, err);
}

sl_status dev_put(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    return d->cls->put(d, dst, src, n_bytes, err);
}

sl_status dev_get(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    return d->cls->get(d, dst, src, n_bytes, err);
}

bool dev_is_host(const dev *d)
{
    return d->cls->is_host;
}

sl_status dev_read(dev *d, const void *src, int64_t n_bytes, void *room, const void **out,
                   sl_err *err)
{
    *out = d->cls->is_host ? src : room;
    return d->cls->is_host ? d->cls->sync(d, err) : d->cls->get(d, room, src, n_bytes, err);
}

sl_status dev_sync(dev *d, sl_err *err)
{
    return d->cls->sync(d, err);
}

void dev_host_run(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    d->cls->host_run(d, fn, arg);
}

struct dev_pages dev_pages_near(const dev *d)
{
    return d->cls->pages_near ? d->cls->pages_near(d) : (struct dev_pages){0};
}

int dev_host_ahead(void *d)
{
    const struct dev_class *c = ((dev *)d)->cls;
    return c->host_ahead ? c->host_ahead(d) : 0;
}

sl_status dev_mat_load(dev *d, const struct dev_weights *of, dev_mat **out, sl_err *err)
{
    struct dev_image_sink sink;
    if (d->cls->mat_load) return d->cls->mat_load(d, of, out, err);
    SL_TRY(d->cls->mat_take(d, of->use, &sink, err));
    SL_TRY(dev_mat_pack(d, of, &sink, err));
    return d->cls->mat_taken(d, out, err);
}

sl_status dev_mat_load_some(dev *d, const struct dev_some *s, dev_mat **out, sl_err *err)
{
    dev *by = d->cls->packer ? d->cls->packer(d) : d;
    if (by->cls->mat_some) by->cls->mat_some(by, s);
    sl_status st = dev_mat_load(d, &s->of, out, err);
    if (by->cls->mat_some) by->cls->mat_some(by, NULL);
    return st;
}

void dev_one_bytes(const dev_mat *stack, int64_t out[2])
{
    stack->d->cls->one->bytes(stack, out);
}

void dev_one_pack(const dev_mat *stack, const struct weight *first, const struct weight *second,
                  int t0, int t1, struct dev_one *one)
{
    stack->d->cls->one->pack(stack, first, second, t0, t1, one);
}

void dev_one_get(const dev_mat *stack, int i, struct dev_one *one)
{
    stack->d->cls->one->get(stack, i, one);
}

sl_status dev_one_open(dev_mat *stack, sl_err *err)
{
    if (!stack->d->cls->one)
        return SL_FAIL(err, UNSUPPORTED, "device %s replaces no matrix of a stack",
                       stack->d->cls->name);
    return stack->d->cls->one->open(stack, err);
}

void dev_one_swap(dev_mat *stack, int i, struct dev_one *one)
{
    stack->d->cls->one->swap(stack, i, one);
}

uint64_t dev_image_bytes(const struct dev_image *im)
{
    uint64_t n_unit = (uint64_t)im->n * (((uint64_t)im->rows + 15) / 16);
    return n_unit * (im->unit_bytes[0] + im->unit_bytes[1]);
}

const char *dev_layout(const dev *d)
{
    return d->cls->layout;
}

sl_status dev_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                      dev_mat **out, sl_err *err)
{
    return d->cls->mat_map(d, name, im, use, out, err);
}

sl_status dev_mat_pack(dev *d, const struct dev_weights *of, const struct dev_image_sink *sink,
                       sl_err *err)
{
    if (d->cls->packer) d = d->cls->packer(d);
    return d->cls->mat_pack(d, of, sink, err);
}

/* m has this epilogue, whose biases are n of the host's or, where it has none, room for as many. */
static sl_status end(dev_mat *m, const struct dev_epilogue *e, const float *bias, sl_err *err)
{
    int64_t n = 4 * (int64_t)e->n_bias * e->n_row;
    void *p = NULL;
    if (e->bias && n) SL_TRY(dev_alloc(m->d, MEM_WEIGHTS, n, &p, err));
    if (p && bias) SL_TRY(dev_put(m->d, p, bias, n, err));
    m->epilogue = *e;
    m->epilogue.bias = p;
    if (m->d->cls->mat_ended) m->d->cls->mat_ended(m);
    return SL_OK;
}

sl_status dev_mat_end(dev_mat *m, const struct dev_epilogue *e, sl_err *err)
{
    return end(m, e, e->bias, err);
}

const struct dev_epilogue *dev_mat_epilogue(const dev_mat *m)
{
    return &m->epilogue;
}

void dev_mat_view(const dev_mat *m, int i, struct dev_image *out)
{
    m->d->cls->mat_view(m, i, out);
    out->epilogue = m->epilogue;
    out->epilogue.bias = dev_mat_bias(m, i);
    out->epilogue.n_bias = 1;
    out->epilogue.of = NULL;
}

static bool same_text(const char *a, const char *b)
{
    return !a == !b && (!a || strcmp(a, b) == 0);
}

bool dev_image_is_like(const struct dev_image *a, const struct dev_image *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->is_pair == b->is_pair &&
           same_text(a->fmt[0], b->fmt[0]) && same_text(a->fmt[1], b->fmt[1]) &&
           !a->epilogue.bias == !b->epilogue.bias && glu_same(&a->epilogue.glu, &b->epilogue.glu);
}

sl_status dev_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use, dev_mat **out,
                       sl_err *err)
{
    if (!d->cls->mat_room)
        return SL_FAIL(err, UNSUPPORTED, "device %s takes no matrices of another", d->cls->name);
    SL_TRY(d->cls->mat_room(d, like, n, use, out, err));
    struct dev_epilogue e = like->epilogue;
    e.n_bias = n;
    return end(*out, &e, NULL, err);
}

sl_status dev_mat_fill(dev_mat *m, int at, const struct dev_image *one, sl_err *err)
{
    float *bias = (float *)(uintptr_t)dev_mat_bias(m, at);
    SL_TRY(m->d->cls->mat_fill(m, at, one, err));
    return bias ? dev_put(m->d, bias, one->epilogue.bias, 4 * (int64_t)m->epilogue.n_row, err)
                : SL_OK;
}

sl_status dev_slots_put(dev *d, const struct dev_slots *s, int n_expert, sl_err *err)
{
    return d->cls->slots_put ? d->cls->slots_put(d, s, n_expert, err) : SL_OK;
}

int64_t dev_mat_bytes(const dev_mat *m)
{
    return m->bytes;
}

int dev_mat_rows(const dev_mat *m)
{
    return m->rows;
}

int dev_mat_cols(const dev_mat *m)
{
    return m->cols;
}

sl_status dev_act_open(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err)
{
    for (int i = 0; i < in->n_mat; i++)
        ASSERT(!in->mats[i] || in->mats[i]->d == d);
    return d->cls->act_open(d, in, out, err);
}

enum dev_kv_type dev_kv_auto(const dev *d)
{
    return d->cls->kv_auto(d);
}

int64_t dev_kv_bytes(const dev *d, const struct dev_kv_shape *s)
{
    return d->cls->kv_bytes(d, s);
}

/* Layers that are not alike: they are all of the group's, and blocks whole windows, or windows
 * whole blocks. */
static sl_status check_parts(const struct dev_kv_shape *s, const struct dev_kv_group *g,
                             sl_err *err)
{
    int n = 0;
    for (int i = 0; i < DEV_KV_PARTS && g->part[i].every; i++) {
        const struct dev_kv_part *p = &g->part[i];
        n += p->n_layer;
        if (p->every < 1 || (s->blk_tok % p->every && p->every % s->blk_tok) || p->d_i < 0 ||
            p->d_raw < 0 || p->n_layer < 0 || g->d_v || g->d_i)
            return SL_FAIL(err, REQUEST, "kv cache: rows of %d positions in blocks of %d", p->every,
                           s->blk_tok);
    }
    if (!g->part[0].every || n == g->n_layer) return SL_OK;
    return SL_FAIL(err, REQUEST, "kv cache: %d of %d layers", n, g->n_layer);
}

static sl_status check_kv(const struct dev_kv_shape *s, sl_err *err)
{
    if (s->n_group < 1 || s->n_group > DEV_KV_GROUPS)
        return SL_FAIL(err, REQUEST, "kv cache: %d groups of layers: from 1 to %d", s->n_group,
                       DEV_KV_GROUPS);
    if (s->blk_tok < 16 || s->blk_tok % 16)
        return SL_FAIL(err, REQUEST, "kv cache: a block of %d tokens is no multiple of 16",
                       s->blk_tok);
    for (int i = 0; i < s->n_group; i++) {
        const struct dev_kv_group *g = &s->group[i];
        SL_TRY(check_parts(s, g, err));
        if (g->n_layer < 0 || g->n_blk < 1 || g->n_head < 1 || g->d_k < 1 || g->d_v < 0 ||
            (g->d_v == 0 && g->n_head != 1))
            return SL_FAIL(err, REQUEST, "kv cache: %d layers, %d blocks, %d heads of %d and %d",
                           g->n_layer, g->n_blk, g->n_head, g->d_k, g->d_v);
    }
    return SL_OK;
}

sl_status dev_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err)
{
    SL_TRY(check_kv(s, err));
    return d->cls->kv_open(d, s, out, err);
}

void dev_step_begin(dev *d, dev_kv *kv, const struct dev_step *s)
{
    ASSERT(!kv || kv->d == d);
    d->cls->step_begin(d, kv, s);
}

void dev_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n)
{
    ASSERT(kv->d == d);
    for (; kv; kv = kv->beside)
        kv->d->cls->kv_touch(kv->d, kv, group, blk, n);
}

void dev_kv_free(dev *d, dev_kv *kv, int group, int blk)
{
    ASSERT(kv->d == d);
    for (; kv; kv = kv->beside)
        if (kv->d->cls->frees_poisoned) kv->d->cls->kv_poison(kv->d, kv, group, blk);
}

void dev_kv_poison(dev *d, dev_kv *kv, int group, int blk)
{
    ASSERT(kv->d == d);
    for (; kv; kv = kv->beside)
        kv->d->cls->kv_poison(kv->d, kv, group, blk);
}

int64_t dev_now_ns(const dev *d)
{
    return d->cls->now_ns ? d->cls->now_ns(d) : clock_now_ns();
}

double dev_probe_read_gbps(dev *d, int ms)
{
    return d->cls->probe_read_gbps(d, ms);
}

double dev_probe_int8_gops(dev *d, int ms)
{
    return d->cls->probe_int8_gops(d, ms);
}

int64_t dev_kv_page_bytes(dev *d, dev_kv *kv, const struct dev_kv_at *at)
{
    ASSERT(kv->d == d);
    return d->cls->kv_page && !kv->beside ? d->cls->kv_page(kv, at, NULL, false) : 0;
}

void dev_kv_get(dev *d, dev_kv *kv, const struct dev_kv_at *at, void *page)
{
    ASSERT(kv->d == d && d->cls->kv_page && !kv->beside);
    (void)d->cls->kv_page(kv, at, page, false);
}

void dev_kv_set(dev *d, dev_kv *kv, const struct dev_kv_at *at, const void *page)
{
    ASSERT(kv->d == d && d->cls->kv_page && !kv->beside);
    (void)d->cls->kv_page(kv, at, (void *)(uintptr_t)page, true); /* which is only read */
}

void dev_kv_join(dev_kv *kv, const struct dev_kv_at *at, int n_head, const void *part, void *page)
{
    ASSERT(kv->d->cls->kv_join);
    kv->d->cls->kv_join(kv, at, n_head, part, page);
}

double dev_probe_attn_gops(dev *d, const dev_kv *kv, int ms)
{
    ASSERT(kv->d == d);
    return d->cls->probe_attn_gops(d, kv, ms);
}

static struct dev_op_row row_of(const char *name, const struct dev_op_time *t)
{
    return (struct dev_op_row){name, t->n_call, t->ns, t->cost};
}

static void reset_times(dev *d)
{
    memset(d->op, 0, sizeof d->op);
    d->idle = d->wait = d->step = (struct dev_op_time){0};
}

int dev_op_times(dev *d, struct dev_op_row *out, int n)
{
    if (!d->is_asked) reset_times(d); /* a program may have it count */
    d->is_asked = true;
    for (int i = 0; i < DEV_N_OP && i < n; i++)
        out[i] = row_of(dev_op_name((enum dev_op_kind)i), &d->op[i]);
    if (DEV_N_OP < n) out[DEV_N_OP] = row_of("(idle)", &d->idle);
    if (DEV_N_OP + 1 < n) out[DEV_N_OP + 1] = row_of("(wait)", &d->wait);
    if (DEV_N_OP + 2 < n) out[DEV_N_OP + 2] = row_of("(step)", &d->step);
    reset_times(d);
    d->timing = out ? 2 : 1;
    return DEV_N_OP + 3;
}

struct stamp {
    int64_t ns;
    struct dev_cost cost;
};

static struct stamp stamp(const dev *d)
{
    return (struct stamp){d->timing ? clock_now_ns() : 0, d->cost};
}

static void count(dev *d, enum dev_op_kind op, struct stamp s)
{
    if (!d->timing || d->cls->is_late) return;
    if (d->cls->op_done) {
        d->cls->op_done(d, op);
        return;
    }
    struct dev_op_time *t = &d->op[op];
    t->n_call++;
    t->ns += clock_now_ns() - s.ns;
    dev_cost_add(&t->cost, &d->cost, &s.cost);
}

/* Matrices, activations and caches of an operator are the device's. */
static void check_refs(const dev *d, enum dev_op_kind op, const void *params)
{
    for (const struct dev_ref *r = dev_op_refs(op); r->kind; r++) {
        const void *p = *(void *const *)((const char *)params + r->at);
        if (p && r->kind != DEV_REF_BUF) ASSERT(*(dev *const *)p == d);
    }
}

#define X(name, params)                                                                            \
    void dev_##name(dev *d, const struct dev_step *b, const struct params *p)                      \
    {                                                                                              \
        struct stamp s = stamp(d);                                                                 \
        check_refs(d, DEV_OP_##name, p);                                                           \
        d->cls->name(d, b, p);                                                                     \
        count(d, DEV_OP_##name, s);                                                                \
    }
DEV_OP_LIST(X)
#undef X

void dev_slots_init(struct dev_slots *s, int n_expert)
{
    int n = 0;
    for (int e = 0; e < n_expert; e++) {
        s->first[e] = n;
        for (int i = 0; i < s->n; i++)
            if (s->expert[i] == e) s->list[n++] = i;
    }
    s->first[n_expert] = n;
}

int dev_combine_words(enum dev_combine form, int n)
{
    int n_group = (n + 31) / 32;
    return form == DEV_COMBINE_F32    ? n
           : form == DEV_COMBINE_BF16 ? (n + 1) / 2
                                      : (33 * n_group + 3) / 4;
}
