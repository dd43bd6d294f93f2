/* SPDX-License-Identifier: Apache-2.0 */
/* Two models side by side: what the converter would make of the first, tensor by tensor, against
 * the values of the second. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant_internal.h"

struct rows {
    const struct quant_rows *a;
    const struct weight *b;
    float *x; /* [workers][2, cols] */
    double *err2, *ref2;
    float *max;
    struct par_counter *next;
};

static void region(void *arg, int worker, int n_w)
{
    struct rows *j = arg;
    int64_t n = j->a->it->cols;
    float *x = j->x + worker * 2 * n, *y = x + n;
    int b, e;
    (void)n_w;
    while (par_take(j->next, (int)j->b->rows, 16, &b, &e))
        for (int r = b; r < e; r++) {
            quant_rows_get(j->a, r, x);
            weight_dequant(j->b, r, 0, n, y);
            double err2 = 0, ref2 = 0;
            float max = 0.0f;
            for (int64_t i = 0; i < n; i++) {
                double d = (double)x[i] - (double)y[i];
                err2 += d * d;
                ref2 += (double)x[i] * (double)x[i];
                if (!(fabs(d) <= (double)max)) max = (float)fabs(d);
            }
            j->err2[r] = err2;
            j->ref2[r] = ref2;
            j->max[r] = max;
        }
}

static void sum_up(const struct rows *j, struct quant_diff *d)
{
    double err2 = 0, ref2 = 0, max = 0;
    for (int64_t r = 0; r < j->b->rows; r++) {
        err2 += j->err2[r];
        ref2 += j->ref2[r];
        if (!((double)j->max[r] <= max)) max = (double)j->max[r];
    }
    d->max_abs = max;
    d->rms_rel = err2 == 0 ? 0 : ref2 > 0 ? sqrt(err2 / ref2) : INFINITY;
}

static sl_status compare_rows(const struct quant_rows *a, const struct weight *b, par_team *team,
                              struct quant_diff *d, sl_err *err)
{
    struct rows j = {.a = a, .b = b};
    struct arena mem;
    void *p = NULL;
    sl_status st = SL_OK;
    mem_arena_init(&mem, MEM_SCRATCH, 0);
    SL_TRY_OUT(mem_arena_array(&mem, 2 * (size_t)par_size(team) * (size_t)b->cols, sizeof(float),
                               &p, err));
    j.x = p;
    SL_TRY_OUT(mem_arena_array(&mem, 2 * (size_t)b->rows, sizeof(double), &p, err));
    j.err2 = p;
    j.ref2 = j.err2 + b->rows;
    SL_TRY_OUT(mem_arena_array(&mem, (size_t)b->rows, sizeof(float), &p, err));
    j.max = p;
    SL_TRY_OUT(mem_arena_array(&mem, 2, sizeof *j.next, &p, err));
    j.next = (struct par_counter *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
    atomic_store(&j.next->next, 0);
    par_run(team, region, &j);
    sum_up(&j, d);
out:
    mem_arena_fini(&mem);
    return st;
}

/* Tensors that are no weights: their bytes. */
/* Whole numbers in 4 bytes and in 8. */
static bool same_table(const struct tensor *x, const struct tensor *y)
{
    int64_t n = tensor_count(x), i = 0;
    if (tensor_count(y) != n) return false;
    while (i < n && tensor_whole(x, i) == tensor_whole(y, i))
        i++;
    return i == n;
}

static void compare_raw(const struct quant_plan *p, const struct quant_item *it, const io_model *b,
                        struct quant_diff *d)
{
    const struct tensor *x = io_find(p->src, it->src), *y = io_find(b, it->name);
    bool same = x && y && x->type == y->type && x->n_bytes == y->n_bytes &&
                memcmp(x->data, y->data, x->n_bytes) == 0;
    if (x && y && x->type != y->type) same = y->type == it->store && same_table(x, y);
    d->max_abs = d->rms_rel = same ? 0 : INFINITY;
}

/* B's bias of that name where it is stored among the scales of its matrix, as a vector in the
 * arena. */
static sl_status stored_bias(const io_model *b, const char *name, struct arena *mem,
                             struct weight *out, bool *any, sl_err *err)
{
    char matrix[QUANT_MAX_NAME];
    struct weight w;
    void *q = NULL;
    size_t n = strlen(name), k = strlen(".bias");
    *any = false;
    if (io_model_kind(b) != IO_HF || n <= k || strcmp(name + n - k, ".bias") != 0) return SL_OK;
    snprintf(matrix, sizeof matrix, "%.*s.weight", (int)(n - k), name);
    if (io_weight(b, matrix, &w, NULL) != SL_OK || w.scheme != TENSOR_SCHEME_GROUP) return SL_OK;
    SL_TRY(mem_arena_array(mem, (size_t)w.rows, sizeof(float), &q, err));
    SL_TRY(io_weight_bias(b, matrix, &w, q, any, err));
    *out = (struct weight){.name = name,
                           .type = TENSOR_F32,
                           .rows = 1,
                           .cols = w.rows,
                           .data = q,
                           .row_bytes = 4 * (uint64_t)w.rows,
                           .tensor_scale = 1.0f};
    return SL_OK;
}

/* What it is called in reports: A's own name where that says which. */
static const char *shown(const struct quant_item *it)
{
    return it->sub < 0 && it->n_src == 1 && it->from != QUANT_BIAS ? it->src : it->name;
}

/* Files may store a vector of floats as a column. */
static void turn_vector(const struct quant_item *it, struct weight *w)
{
    bool flat = (it->rows == 1 || it->cols == 1) && (w->rows == 1 || w->cols == 1);
    if (w->type != TENSOR_F32 || !flat || it->rows * it->cols != w->rows * w->cols) return;
    w->rows = it->rows;
    w->cols = it->cols;
    w->row_bytes = 4 * (uint64_t)w->cols;
}

static sl_status compare_item(struct quant_plan *p, const struct quant_item *it, const io_model *b,
                              par_team *team, struct quant_diff *d, sl_err *err)
{
    struct quant_rows a;
    struct weight w;
    bool stored;
    *d = (struct quant_diff){.name = shown(it), .n_weight = it->rows * it->cols};
    if (it->from == QUANT_RAW) {
        compare_raw(p, it, b, d);
        return SL_OK;
    }
    SL_TRY(stored_bias(b, it->name, &p->arena, &w, &stored, err));
    if (!stored) SL_TRY(quant_weight(b, it->name, &w, err));
    turn_vector(it, &w);
    if (w.rows != it->rows || w.cols != it->cols)
        return SL_FAIL(err, FORMAT, "tensor %.80s is [%lld, %lld] in %.50s, [%lld, %lld] in %.50s",
                       it->src, (long long)it->rows, (long long)it->cols, str_base(io_path(p->src)),
                       (long long)w.rows, (long long)w.cols, str_base(io_path(b)));
    SL_TRY(quant_rows_open(p, it, &a, err));
    sl_status st = compare_rows(&a, &w, team, d, err);
    quant_rows_drop(&a, 0, it->rows);
    quant_rows_close(&a);
    if (!st && !stored) io_drop(b, w.data, weight_span(&w));
    return st;
}

static int by_name(const void *a, const void *b)
{
    const struct quant_item *x = *(const struct quant_item *const *)a,
                            *y = *(const struct quant_item *const *)b;
    return strcmp(x->name, y->name);
}

static int to_name(const void *key, const void *item)
{
    return strcmp(key, (*(const struct quant_item *const *)item)->name);
}

static sl_status index_items(struct quant_plan *p, const struct quant_item ***out, sl_err *err)
{
    void *q = NULL;
    SL_TRY(mem_arena_array(&p->arena, (size_t)p->n_item + 1, sizeof **out, &q, err));
    const struct quant_item **ix = q;
    for (int i = 0; i < p->n_item; i++)
        ix[i] = &p->item[i];
    qsort(ix, (size_t)p->n_item, sizeof *ix, by_name);
    *out = ix;
    return SL_OK;
}

/* Is the tensor, or the weight that it is a part of, in the other model? */
static sl_status has_weight(struct quant_plan *p, const io_model *b, const char *name, bool *out,
                            sl_err *err)
{
    struct weight w;
    *out = io_find(b, name) || io_weight(b, name, &w, NULL) == SL_OK;
    return *out ? SL_OK : stored_bias(b, name, &p->arena, &w, out, err);
}

/* What B alone has of that name: a tensor, or a bias among the scales of a matrix. */
static sl_status only_in_b(struct quant_plan *p, const io_model *b, const char *name,
                           const struct quant_item **ix, struct quant_verify *v, sl_err *err)
{
    char bias[QUANT_MAX_NAME];
    struct weight w;
    size_t n = strlen(name), k = strlen(".weight");
    bool any;
    if (!bsearch(name, ix, (size_t)p->n_item, sizeof *ix, to_name)) {
        v->n_only_b++;
        if (v->on_only) v->on_only(v->user, true, name);
    }
    if (n <= k || strcmp(name + n - k, ".weight") != 0) return SL_OK;
    snprintf(bias, sizeof bias, "%.*s.bias", (int)(n - k), name);
    if (bsearch(bias, ix, (size_t)p->n_item, sizeof *ix, to_name)) return SL_OK;
    SL_TRY(stored_bias(b, bias, &p->arena, &w, &any, err));
    if (!any) return SL_OK;
    v->n_only_b++;
    if (v->on_only) v->on_only(v->user, true, bias);
    return SL_OK;
}

static sl_status compare_all(struct quant_plan *p, const io_model *b, par_team *team,
                             struct quant_verify *v, sl_err *err)
{
    const struct quant_item **ix = NULL;
    for (int i = 0; i < p->n_item; i++) {
        struct quant_diff d;
        bool there;
        if (v->progress && v->progress(v->user, "comparing", i, p->n_item))
            return SL_FAIL(err, CANCELLED, "cancelled");
        SL_TRY(has_weight(p, b, p->item[i].name, &there, err));
        if (!there) {
            v->n_only_a++;
            if (v->on_only)
                v->on_only(v->user, false,
                           p->item[i].from == QUANT_BIAS ? p->item[i].name : p->item[i].src);
            continue;
        }
        SL_TRY(compare_item(p, &p->item[i], b, team, &d, err));
        v->n_same++;
        v->max_abs = d.max_abs <= v->max_abs ? v->max_abs : d.max_abs;
        v->rms_rel = d.rms_rel <= v->rms_rel ? v->rms_rel : d.rms_rel;
        if (v->on_diff) v->on_diff(v->user, &d);
    }
    SL_TRY(index_items(p, &ix, err));
    for (int i = 0; i < io_n_tensor(b); i++) {
        char name[QUANT_MAX_NAME];
        struct arch_name id;
        if (!quant_weight_name(b, i, name, sizeof name)) continue;
        arch_name_parse(p->into ? &p->into->naming : &p->naming[io_model_kind(b)], name, &id);
        bool beside = arch_is_beside_text(b, &id) || arch_is_mtp_left(&p->cfg, name, &id);
        if (io_model_kind(p->src) == io_model_kind(b) || !beside)
            SL_TRY(only_in_b(p, b, name, ix, v, err));
    }
    return SL_OK;
}

sl_status quant_compare(const io_model *a, const io_model *b, struct quant_verify *v, sl_err *err)
{
    struct quant_opts o = {.n_thread = v->n_thread};
    struct quant_report rep = {0};
    struct quant_plan p = {.src = a, .o = &o, .to = io_model_kind(b), .rep = &rep};
    struct arch_cfg into; /* folders of some architectures have one of two sets of names */
    par_team *team = NULL;
    sl_status st = SL_OK;
    for (int c = 0; c < QUANT_N_CLASS; c++)
        o.type[c] = QUANT_AS_IS;
    mem_arena_init(&p.arena, MEM_MISC, 0);
    SL_TRY_OUT(par_open(&(struct par_opts){.n_worker = v->n_thread}, &team, err));
    if (arch_cfg_read(b, &p.arena, &into, NULL) == SL_OK) p.into = &into;
    SL_TRY_OUT(quant_plan_make(&p, err));
    SL_TRY_OUT(compare_all(&p, b, team, v, err));
out:
    par_close(team);
    mem_free(p.item);
    mem_arena_fini(&p.arena);
    return st;
}
