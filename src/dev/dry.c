/* SPDX-License-Identifier: Apache-2.0 */
/* A device that computes nothing and keeps nothing but shapes: a model that is opened on it can be
 * looked at. Its addresses are numbers that nothing may read. */
#include <stdio.h>
#include <string.h>

#include "dev/dev_internal.h"

#define FIRST ((uintptr_t)1 << 20)

struct dry_mat {
    struct dev_mat head;
    int n;
    char type[64];
};

struct dry {
    struct dev head;
    struct arena arena;
    uintptr_t next; /* address */
};

static struct dry *dry_of(dev *d)
{
    return (struct dry *)d;
}

static void dry_close(dev *d)
{
    mem_arena_fini(&dry_of(d)->arena);
    mem_free(d);
}

static void dry_info(const dev *d, struct dev_info *out)
{
    (void)d;
    *out = (struct dev_info){.name = "dry", .isa = "", .n_thread = 1};
}

static sl_status dry_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err)
{
    (void)tag;
    (void)err;
    struct dry *y = dry_of(d);
    *out = (void *)y->next;
    y->next += ((uintptr_t)n_bytes + 127) / 64 * 64;
    return SL_OK;
}

static sl_status dry_put(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    (void)d;
    (void)dst;
    (void)src;
    (void)n_bytes;
    (void)err;
    return SL_OK;
}

static sl_status new_mat(dev *d, int64_t rows, int64_t cols, int n, struct dry_mat **out,
                         sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&dry_of(d)->arena, 1, sizeof(struct dry_mat), &p, err));
    struct dry_mat *m = *out = p;
    m->head.d = d;
    m->head.rows = (int)rows;
    m->head.cols = (int)cols;
    m->n = n;
    return SL_OK;
}

/* "q4_k", "4-bit groups of 128", or both halves of a pair where they differ. */
static void type_text(const struct weight *w, char *buf, size_t cap)
{
    if (w->scheme == TENSOR_SCHEME_GROUP)
        snprintf(buf, cap, "%d-bit groups", weight_bits(w));
    else
        snprintf(buf, cap, "%s", tensor_dtype(w->type)->text);
}

static sl_status dry_mat_load(dev *d, const struct dev_weights *of, dev_mat **out, sl_err *err)
{
    const struct weight *first = of->first, *second = of->second;
    struct dry_mat *m = NULL;
    char a[28], b[28];
    SL_TRY(new_mat(d, first->rows, first->cols, of->n, &m, err));
    type_text(first, a, sizeof a);
    type_text(second ? second : first, b, sizeof b);
    if (strcmp(a, b) == 0)
        snprintf(m->type, sizeof m->type, "%s", a);
    else
        snprintf(m->type, sizeof m->type, "%s, %s", a, b);
    *out = &m->head;
    return SL_OK;
}

static sl_status dry_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                             dev_mat **out, sl_err *err)
{
    (void)name;
    (void)use;
    struct dry_mat *m = NULL;
    SL_TRY(new_mat(d, im->rows, im->cols, im->n, &m, err));
    snprintf(m->type, sizeof m->type, "%.28s%s%.28s", im->fmt[0], im->fmt[1] ? ", " : "",
             im->fmt[1] ? im->fmt[1] : "");
    *out = &m->head;
    return SL_OK;
}

static sl_status dry_act_open(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err)
{
    (void)in;
    void *p = NULL;
    SL_TRY(mem_arena_array(&dry_of(d)->arena, 1, sizeof(struct dev_act), &p, err));
    *out = p;
    (*out)->d = d;
    return SL_OK;
}

static sl_status dry_reserve(dev *d, const struct dev_shapes *p, sl_err *err)
{
    (void)d;
    (void)p;
    (void)err;
    return SL_OK;
}

/* No operator: a program is refused. */
static const struct dev_class dry_class = {.name = "dry",
                                           .close = dry_close,
                                           .info = dry_info,
                                           .alloc = dry_alloc,
                                           .put = dry_put,
                                           .mat_load = dry_mat_load,
                                           .layout = "",
                                           .mat_map = dry_mat_map,
                                           .act_open = dry_act_open,
                                           .reserve = dry_reserve};

sl_status dev_dry_open(dev **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct dry), &p, err));
    struct dry *y = p;
    y->head.cls = &dry_class;
    y->next = FIRST;
    mem_arena_init(&y->arena, MEM_MISC, 0);
    *out = &y->head;
    return SL_OK;
}

struct dev_dry_mat dev_dry_mat(const dev_mat *m)
{
    const struct dry_mat *y = (const struct dry_mat *)m;
    return (struct dev_dry_mat){y->n, y->head.rows, y->head.cols, y->type};
}
