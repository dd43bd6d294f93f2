/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts tokens were routed to: the file of --expert-stats, and what inspect makes of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "compute.h"
#include "dist/dist.h"
#include "dist/place.h"
#include "experts.h"
#include "inspect.h"
#include "os/os.h"

#define FILE_MAX ((uint64_t)64 << 20)
#define EXPERT_MAX 65536
#define LAYER_MAX 4096

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

/* A file of a model with as many experts. */
static sl_status read_same(const char *path, const sl_model_info *mi, struct arena *a,
                           struct expert_file *out, sl_err *err)
{
    SL_TRY(experts_read(path, a, out, err));
    if (out->n_expert == mi->n_expert && out->n_used == mi->n_expert_used) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "%.150s: of a model with %d experts of which %d are used, not %d and %d", path,
                   out->n_expert, out->n_used, mi->n_expert, mi->n_expert_used);
}

/* The file as it was before the first writing. */
struct expert_old {
    struct arena a;
    struct expert_file f; /* n 0: there was none, or it is to be replaced */
};

static sl_status read_old(struct compute *c, const struct opt_common *o, sl_err *err)
{
    void *p = NULL;
    if (c->old) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof *c->old, &p, err));
    c->old = p;
    mem_arena_init(&c->old->a, MEM_MISC, 0);
    if (!o->expert_half_life || os_path_kind(o->expert_stats) != OS_FILE) return SL_OK;
    sl_status st = read_same(o->expert_stats, &c->mi, &c->old->a, &c->old->f, err);
    if (st) compute_experts_close(c);
    return st;
}

void compute_experts_close(struct compute *c)
{
    if (c->old) mem_arena_fini(&c->old->a);
    mem_free(c->old);
    c->old = NULL;
}

/* Adds what the file holds of that layer, half as much for each half-life of newer tokens. */
static void add_old(const struct expert_layer *old, const struct compute *c, int half_life,
                    uint64_t *count)
{
    double sum = 0;
    int n = c->mi.n_expert;
    for (int i = 0; i < n; i++)
        sum += (double)count[i];
    double weight = exp2(-sum / c->mi.n_expert_used / half_life);
    for (int i = 0; i < n; i++)
        count[i] += (uint64_t)(weight * (double)old->count[i] + 0.5);
}

sl_status compute_load_of(const char *path, const sl_model_info *mi, const struct compute_load *out,
                          void **mem, sl_err *err)
{
    struct expert_file f;
    struct arena a;
    size_t E = (size_t)mi->n_expert;
    int n = mi->n_layer + mi->n_mtp;
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = read_same(path, mi, &a, &f, err);
    if (!st) st = mem_alloc_array(MEM_MISC, (size_t)n * E, sizeof(uint64_t), mem, err);
    for (int il = 0; il < n && !st; il++) {
        const struct expert_layer *l = experts_of(&f, il);
        if (l) memcpy((uint64_t *)*mem + (size_t)il * E, l->count, E * sizeof(uint64_t));
    }
    mem_arena_fini(&a);
    SL_TRY(st);
    *out->count = *mem;
    *out->n = n;
    return SL_OK;
}

sl_status compute_expert_load(const struct opt_common *o, const sl_model *m, sl_engine_opts *eo,
                              void **mem, sl_err *err)
{
    struct dist_layout l;
    sl_model_info mi;
    *mem = NULL;
    eo->redundant = o->redundant;
    SL_TRY(dist_layout_parse(o->layout ? o->layout : "", &l, err));
    sl_model_info_get(m, &mi);
    if (l.ep == 1 || !mi.n_expert) return SL_OK; /* the engine says what can not be */
    if (o->redundant && !o->expert_stats)
        return SL_FAIL(err, REQUEST,
                       "--redundant: which experts are busiest says --expert-stats FILE, which a "
                       "run before has written");
    bool there = o->expert_stats && os_path_kind(o->expert_stats) == OS_FILE;
    struct compute_load out = {&eo->expert_load, &eo->n_expert_load};
    return there || o->redundant ? compute_load_of(o->expert_stats, &mi, &out, mem, err) : SL_OK;
}

static sl_status put_layers(struct compute *c, const struct opt_common *o, struct json_w *w,
                            sl_err *err)
{
    struct arena a;
    void *p = NULL;
    sl_status st = SL_OK;
    mem_arena_init(&a, MEM_MISC, 0);
    SL_TRY_OUT(mem_arena_array(&a, (size_t)c->mi.n_expert, sizeof(uint64_t), &p, err));
    SL_TRY_OUT(read_old(c, o, err));
    for (int il = 0; il < c->mi.n_layer + c->mi.n_mtp; il++) {
        int n = sl_routed(c->e, il, p, c->mi.n_expert);
        if (n < 0) {
            st = SL_FAIL(err, DEVICE, "--expert-stats: the device has lost its counts");
            goto out;
        }
        const struct expert_layer *was = experts_of(&c->old->f, il);
        if (n && was) add_old(was, c, o->expert_half_life, p);
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

sl_status compute_experts_check(const struct compute *c, const struct opt_common *o, sl_err *err)
{
    sl_err why;
    if (!o->expert_stats) return SL_OK;
    if (!c->mi.n_expert)
        return SL_FAIL(err, REQUEST, "--expert-stats: %.100s has no routed experts", c->mi.name);
    if (!os_out_check(o->expert_stats, &why)) return SL_OK;
    return SL_FAIL(err, IO, "--expert-stats: %.200s", why.text);
}

sl_status compute_experts(struct compute *c, const struct opt_common *o, sl_err *err)
{
    struct str s;
    struct json_w w;
    if (!o->expert_stats) return SL_OK;
    SL_TRY(compute_experts_check(c, o, err));
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

static sl_status read_counts(const struct json *layer, struct expert_layer *l, int n,
                             struct arena *a, sl_err *err)
{
    const struct json *counts = text_json_get(layer, "counts");
    int64_t at = -1;
    void *p = NULL;
    SL_TRY(text_json_int(layer, "layer", -1, &at, err));
    SL_TRY(text_json_int(layer, "tokens", 0, &l->tokens, err));
    if (at < 0 || at > LAYER_MAX) return SL_FAIL(err, FORMAT, "layer: is no number of a layer");
    if (!counts || counts->kind != JSON_ARRAY_K || counts->n != (size_t)n)
        return SL_FAIL(err, FORMAT, "counts of %d experts are expected", n);
    SL_TRY(mem_arena_array(a, counts->n, sizeof(uint64_t), &p, err));
    l->layer = (int)at;
    l->count = p;
    for (int i = 0; i < n; i++) {
        const struct json *c = counts->item[i];
        if (c->kind != JSON_INT_K || c->i < 0)
            return SL_FAIL(err, FORMAT, "counts[%d] is no number of tokens", i);
        l->count[i] = (uint64_t)c->i;
    }
    return SL_OK;
}

static sl_status read_layers(const struct json *j, struct arena *a, struct expert_file *out,
                             sl_err *err)
{
    const struct json *layers = text_json_get(j, "layers");
    int64_t n = 0, used = 0;
    void *p = NULL;
    SL_TRY(text_json_int(j, "experts", 0, &n, err));
    SL_TRY(text_json_int(j, "used", 0, &used, err));
    if (!layers || layers->kind != JSON_ARRAY_K || n < 1 || n > EXPERT_MAX || used < 1 || used > n)
        return SL_FAIL(err, FORMAT, "is no file of --expert-stats");
    *out = (struct expert_file){.n_expert = (int)n, .n_used = (int)used};
    SL_TRY(mem_arena_array(a, layers->n + 1, sizeof *out->layer, &p, err));
    out->layer = p;
    for (size_t i = 0; i < layers->n; i++) {
        struct expert_layer *l = &out->layer[out->n];
        sl_status st = read_counts(layers->item[i], l, out->n_expert, a, err);
        if (!st && experts_of(out, l->layer))
            st = SL_FAIL(err, FORMAT, "layer %d is there already", l->layer);
        if (st) status_prefix(err, "layers[%zu]", i);
        SL_TRY(st);
        out->n++;
    }
    return SL_OK;
}

sl_status experts_read(const char *path, struct arena *a, struct expert_file *out, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    const struct json *j = NULL;
    SL_TRY(os_read_once(path, FILE_MAX, &text, &n, err));
    sl_status st = text_json_parse(a, path, text, n, &j, err);
    if (!st) {
        st = read_layers(j, a, out, err);
        if (st) status_prefix(err, "%.150s", path);
    }
    mem_free(text);
    return st;
}

const struct expert_layer *experts_of(const struct expert_file *f, int layer)
{
    for (int i = 0; i < f->n; i++)
        if (f->layer[i].layer == layer) return &f->layer[i];
    return NULL;
}

/* ---- inspect ---- */

struct load {
    uint64_t most;
    int n_idle, best;
    double even; /* entropy of the counts over that of even ones */
    double top;  /* share of the tenth of the experts that is chosen most */
};

static int falling(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* count is sorted. */
static struct load load_of(uint64_t *count, int n)
{
    struct load l = {.even = 1};
    double sum = 0, h = 0, top = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)count[i];
        l.n_idle += count[i] == 0;
        if (count[i] > l.most) l.most = count[i], l.best = i;
    }
    for (int i = 0; i < n; i++)
        if (count[i]) h -= (double)count[i] / sum * log((double)count[i] / sum);
    qsort(count, (size_t)n, sizeof *count, falling);
    for (int i = 0; i < (n + 9) / 10; i++)
        top += (double)count[i];
    if (n > 1 && sum > 0) l.even = h / log(n);
    l.top = sum > 0 ? top / sum : 0;
    return l;
}

#define RANKS_SHOWN 16 /* with what each has to do */
#define RANKS_PER_LINE 8

/* Over ranks, of the fullest's load to the mean: in order (0: they do not divide), with n_load
 * experts moved from there, and placed. */
struct spread {
    double order, improved, placed;
    int n_load;
    double *rank; /* [n_rank] over the mean, placed */
};

static void improve(const struct expert_layer *at, const struct dist_experts *p, int32_t *expert,
                    struct dist_steps *steps, struct spread *out)
{
    struct dist_goal goal = {DIST_GOAL_RATIO, DIST_GOAL_LOADS};
    dist_improve(p, at->count, &goal, expert, steps);
    out->improved = dist_place_ratio(p, at->count, expert);
    for (int i = 0; i < steps->n; i++)
        out->n_load += steps->v[i].n;
}

static sl_status spread_of(const struct expert_layer *at, const struct dist_experts *p,
                           struct arena *a, struct spread *out, sl_err *err)
{
    struct dist_experts plain = *p;
    struct dist_steps steps = {0};
    void *mem = NULL;
    double sum = 0;
    plain.n_slot = p->n_expert;
    SL_TRY(mem_arena_array(a, (size_t)p->n_slot, sizeof(int32_t), &mem, err));
    int32_t *expert = mem;
    SL_TRY(mem_arena_array(a, (size_t)p->n_rank, sizeof *out->rank, &mem, err));
    out->rank = mem;
    SL_TRY(mem_arena_array(a, DIST_GOAL_LOADS, sizeof *steps.v, &mem, err));
    steps.v = mem;
    SL_TRY(mem_arena_alloc(a, dist_improve_room(p), &steps.room, err));
    SL_TRY(dist_place(p, at->count, expert, err));
    out->placed = dist_place_ratio(p, at->count, expert);
    dist_place_loads(p, at->count, expert, out->rank);
    for (int r = 0; r < p->n_rank; r++)
        sum += out->rank[r];
    for (int r = 0; r < p->n_rank && sum > 0; r++)
        out->rank[r] *= p->n_rank / sum;
    if (p->n_expert % p->n_rank) return SL_OK;
    SL_TRY(dist_place(&plain, NULL, expert, err));
    out->order = dist_place_ratio(&plain, at->count, expert);
    improve(at, &plain, expert, &steps, out);
    return SL_OK;
}

static void print_spread(const struct spread *s, int n_rank)
{
    printf("           on %d ranks the fullest has", n_rank);
    if (s->order > 0)
        printf(" %.2fx the mean in order, %.2fx with %d moved,", s->order, s->improved, s->n_load);
    printf(" %.2fx the mean placed\n", s->placed);
    for (int r = 0; r < n_rank && n_rank <= RANKS_SHOWN; r++)
        printf("%s %.2f%s", r % RANKS_PER_LINE == 0 ? "           placed, each rank:" : "",
               s->rank[r],
               r == n_rank - 1 || r % RANKS_PER_LINE == RANKS_PER_LINE - 1 ? "\n" : "");
}

static void print_load(const struct expert_layer *at, const struct expert_file *f)
{
    struct load l = load_of(at->count, f->n_expert);
    double mean = (double)at->tokens * f->n_used / f->n_expert;
    printf("layer %3d  %lld tokens: busiest expert %d with %.1fx its share, %d of %d idle, the "
           "busiest tenth takes %.0f %%, evenness %.2f\n",
           at->layer, (long long)at->tokens, l.best, mean > 0 ? (double)l.most / mean : 0.0,
           l.n_idle, f->n_expert, 100 * l.top, l.even);
}

/* One line where the file is another model's: it is shown all the same. */
static void say_other(const struct arch_cfg *c, const struct expert_file *f, const char *path)
{
    if (f->n_expert != c->n_expert || f->n_used != c->n_expert_used) {
        log_msg(LOG_WARN,
                "%.150s: of another model: %d experts of which %d are used, not %d and %d", path,
                f->n_expert, f->n_used, c->n_expert, c->n_expert_used);
        return;
    }
    for (int i = 0; i < f->n; i++) {
        int at = f->layer[i].layer;
        if (at < c->n_layer + c->n_mtp && c->layer[at].ffn == ARCH_MOE) continue;
        log_msg(LOG_WARN, "%.150s: of another model: layer %d of this one has no experts", path,
                at);
        return;
    }
}

static sl_status print_file(const struct inspect *v, const struct inspect_spread *s,
                            struct arena *a, sl_err *err)
{
    struct expert_file f;
    SL_TRY(experts_read(s->file, a, &f, err));
    bool same = v->has_cfg && v->cfg.n_expert == f.n_expert;
    if (v->has_cfg) say_other(&v->cfg, &f, s->file);
    struct dist_experts p = {.n_expert = f.n_expert,
                             .n_slot = f.n_expert + s->redundant,
                             .n_rank = s->ranks,
                             .n_group = same ? v->cfg.n_group : 1,
                             .n_node = s->nodes};
    for (int i = 0; i < f.n; i++) {
        struct spread over = {0};
        if (s->ranks) SL_TRY(spread_of(&f.layer[i], &p, a, &over, err));
        print_load(&f.layer[i], &f);
        if (s->ranks) print_spread(&over, s->ranks);
    }
    return SL_OK;
}

sl_status inspect_experts(const struct inspect *v, const struct inspect_spread *s, struct arena *a,
                          sl_err *err)
{
    const struct arch_cfg *c = &v->cfg;
    if (s->file) return print_file(v, s, a, err);
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
