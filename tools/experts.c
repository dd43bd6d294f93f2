/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts tokens were routed to: the file of --expert-stats, and what inspect makes of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"
#include "inspect.h"
#include "os/os.h"

#define FILE_MAX ((uint64_t)64 << 20)
#define EXPERT_MAX 65536

/* ---- writing ---- */

static void put_layer(struct json_w *w, int layer, const uint64_t *count, int n, int n_used)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += count[i];
    text_jw_obj(w);
    text_jw_key(w, "layer");
    text_jw_int(w, layer);
    text_jw_key(w, "tokens");
    text_jw_int(w, (int64_t)(sum / (uint64_t)BASE_MAX(n_used, 1)));
    text_jw_key(w, "counts");
    text_jw_arr(w);
    for (int i = 0; i < n; i++)
        text_jw_int(w, (int64_t)count[i]);
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

/* The file as it is; *out NULL: there is none, or it is to be replaced. */
static sl_status read_old(const struct compute *c, const struct opt_common *o, struct arena *a,
                          const struct json **out, sl_err *err)
{
    const char *path = o->expert_stats;
    char *text = NULL, *copy = NULL;
    uint64_t n = 0;
    int64_t experts = 0, used = 0;
    *out = NULL;
    if (!o->expert_half_life || os_path_kind(path) != OS_FILE) return SL_OK;
    SL_TRY(os_read_once(path, FILE_MAX, &text, &n, err));
    sl_status st = mem_arena_str(a, text, n, &copy, err);
    mem_free(text);
    SL_TRY(st);
    SL_TRY(text_json_parse(a, path, copy, n, out, err));
    SL_TRY(text_json_int(*out, "experts", 0, &experts, err));
    SL_TRY(text_json_int(*out, "used", 0, &used, err));
    if (experts == c->mi.n_expert && used == c->mi.n_expert_used) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "%.150s: of a model with %lld experts of which %lld are used, not %d and %d",
                   path, (long long)experts, (long long)used, c->mi.n_expert, c->mi.n_expert_used);
}

/* Adds what the file holds of that layer, half as much for each half-life of newer tokens. */
static sl_status add_old(const struct json *old, int layer, const struct compute *c, int half_life,
                         uint64_t *count, sl_err *err)
{
    double sum = 0;
    int n = c->mi.n_expert;
    const struct json *list = text_json_get(old, "layers");
    for (int i = 0; i < n; i++)
        sum += (double)count[i];
    double weight = exp2(-sum / c->mi.n_expert_used / half_life);
    for (const struct json *l = list && list->kind == JSON_ARRAY_K ? list->child : NULL; l;
         l = l->next) {
        const struct json *of = text_json_get(l, "layer"), *v = text_json_get(l, "counts");
        if (!of || of->kind != JSON_INT_K || of->i != layer) continue;
        if (!v || v->kind != JSON_ARRAY_K || v->n != (size_t)n)
            return SL_FAIL(err, FORMAT, "layer %d: %d counts are expected", layer, n);
        int i = 0;
        for (v = v->child; v; v = v->next, i++) {
            if (v->kind != JSON_INT_K || v->i < 0)
                return SL_FAIL(err, FORMAT, "layer %d: counts[%d] is no number of tokens", layer,
                               i);
            count[i] += (uint64_t)(weight * (double)v->i + 0.5);
        }
    }
    return SL_OK;
}

static sl_status put_layers(const struct compute *c, const struct opt_common *o, struct json_w *w,
                            sl_err *err)
{
    const struct json *old = NULL;
    struct arena a;
    void *p = NULL;
    sl_status st = SL_OK;
    mem_arena_init(&a, MEM_MISC, 0);
    SL_TRY_OUT(mem_arena_array(&a, (size_t)c->mi.n_expert, sizeof(uint64_t), &p, err));
    SL_TRY_OUT(read_old(c, o, &a, &old, err));
    for (int il = 0; il < c->mi.n_layer + c->mi.n_mtp; il++) {
        int n = sl_routed(c->e, il, p, c->mi.n_expert);
        if (n < 0) {
            st = SL_FAIL(err, DEVICE, "--expert-stats: the device has lost its counts");
            goto out;
        }
        if (n && old) {
            st = add_old(old, il, c, o->expert_half_life, p, err);
            if (st) status_prefix(err, "%.150s", o->expert_stats);
            if (st) goto out;
        }
        if (n) put_layer(w, il, p, n, c->mi.n_expert_used);
    }
out:
    mem_arena_fini(&a);
    return st;
}

static void put_row(struct json_w *w, const struct compute *c)
{
    text_jw_key(w, "in_row");
    text_jw_arr(w);
    for (int i = 0; i < BASE_COUNT_OF(c->in_row) && c->in_row[i] > 0; i++)
        text_jw_real(w, c->in_row[i], 9);
    text_jw_arr_end(w);
}

sl_status compute_experts(const struct compute *c, const struct opt_common *o, sl_err *err)
{
    struct str s;
    struct json_w w;
    if (!o->expert_stats) return SL_OK;
    if (!c->mi.n_expert)
        return SL_FAIL(err, REQUEST, "--expert-stats: %.100s has no routed experts", c->mi.name);
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "model");
    text_jw_strz(&w, c->mi.name);
    text_jw_key(&w, "experts");
    text_jw_int(&w, c->mi.n_expert);
    text_jw_key(&w, "used");
    text_jw_int(&w, c->mi.n_expert_used);
    text_jw_key(&w, "layers");
    text_jw_arr(&w);
    sl_status st = put_layers(c, o, &w, err);
    text_jw_arr_end(&w);
    if (!st && c->in_row[0] > 0) put_row(&w, c);
    text_jw_obj_end(&w);
    str_putc(&s, '\n');
    if (!st) st = str_status(&s, err);
    if (!st) st = os_write_file(o->expert_stats, s.p, s.n, err);
    str_fini(&s);
    return st;
}

/* ---- reading ---- */

struct load {
    int64_t tokens, most;
    int n, n_idle, best;
    double even; /* entropy of the counts over that of even ones */
    double top;  /* share of the tenth of the experts that is chosen most */
};

static int falling(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static sl_status read_load(const struct json *layer, struct load *l, struct arena *a, sl_err *err)
{
    const struct json *counts = text_json_get(layer, "counts");
    void *p = NULL;
    double sum = 0, h = 0, top = 0;
    memset(l, 0, sizeof *l);
    SL_TRY(text_json_int(layer, "tokens", 0, &l->tokens, err));
    if (!counts || counts->kind != JSON_ARRAY_K || counts->n < 1 || counts->n > EXPERT_MAX)
        return SL_FAIL(err, FORMAT, "layer without counts");
    l->n = (int)counts->n;
    SL_TRY(mem_arena_array(a, counts->n, sizeof(int64_t), &p, err));
    int64_t *v = p;
    for (int i = 0; i < l->n; i++) {
        const struct json *c = counts->item[i];
        if (c->kind != JSON_INT_K || c->i < 0)
            return SL_FAIL(err, FORMAT, "count %d is no number", i);
        v[i] = c->i;
        sum += (double)c->i;
        l->n_idle += c->i == 0;
        if (c->i > l->most) l->most = c->i, l->best = i;
    }
    for (int i = 0; i < l->n; i++)
        if (v[i]) h -= (double)v[i] / sum * log((double)v[i] / sum);
    qsort(v, (size_t)l->n, sizeof *v, falling);
    for (int i = 0; i < (l->n + 9) / 10; i++)
        top += (double)v[i];
    l->even = l->n > 1 && sum > 0 ? h / log(l->n) : 1;
    l->top = sum > 0 ? top / sum : 0;
    return SL_OK;
}

static void print_load(int layer, const struct load *l, int used)
{
    double mean = (double)l->tokens * used / l->n;
    printf("layer %3d  %lld tokens: busiest expert %d with %.1fx its share, %d of %d idle, the "
           "busiest tenth takes %.0f %%, evenness %.2f\n",
           layer, (long long)l->tokens, l->best, mean > 0 ? (double)l->most / mean : 0.0, l->n_idle,
           l->n, 100 * l->top, l->even);
}

static sl_status print_file(const char *path, struct arena *a, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    int64_t used = 0;
    const struct json *j = NULL;
    SL_TRY(os_read_once(path, FILE_MAX, &text, &n, err));
    sl_status st = text_json_parse(a, path, text, n, &j, err);
    const struct json *layers = st ? NULL : text_json_get(j, "layers");
    if (!st) st = text_json_int(j, "used", 0, &used, err);
    if (!st && (!layers || layers->kind != JSON_ARRAY_K || used < 1 || used > EXPERT_MAX))
        st = SL_FAIL(err, FORMAT, "%.150s: is no file of --expert-stats", path);
    for (size_t i = 0; !st && i < layers->n; i++) {
        struct load l;
        int64_t layer = 0;
        st = text_json_int(layers->item[i], "layer", -1, &layer, err);
        if (!st) st = read_load(layers->item[i], &l, a, err);
        if (st)
            status_prefix(err, "%.150s: layers[%zu]", path, i);
        else
            print_load((int)layer, &l, (int)used);
    }
    mem_free(text);
    return st;
}

sl_status inspect_experts(const struct inspect *v, const char *file, struct arena *a, sl_err *err)
{
    const struct arch_cfg *c = &v->cfg;
    if (file) return print_file(file, a, err);
    if (!v->has_cfg || c->n_expert == 0)
        printf("no routed experts%s\n", v->has_cfg ? "" : " that this version knows of");
    for (int i = 0; v->has_cfg && c->n_expert && i < c->n_layer + c->n_mtp; i++) {
        const char *mtp = i >= c->n_layer ? " (MTP)" : "";
        if (c->layer[i].ffn == ARCH_MOE)
            printf("layer %3d%s  %d experts, %d used, %d shared\n", i, mtp, c->n_expert,
                   c->n_expert_used, c->n_shared);
        else
            printf("layer %3d%s  dense\n", i, mtp);
    }
    return SL_OK;
}
