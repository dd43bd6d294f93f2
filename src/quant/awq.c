/* SPDX-License-Identifier: Apache-2.0 */
/* AWQ's search (Lin et al. 2023): channels whose inputs are large are scaled up before rounding, so
 * that they lose less, and what makes these inputs is divided by the same numbers, so that nothing
 * changes but the rounding. s[j] = mean|x_j|^alpha; alpha is the one of a grid that loses least:
 *
 *   loss = sum over rows of sum_j (round(w_j s_j) / s_j - w_j)^2 * mean(x_j^2)
 *
 * on sample rows of all matrices that share the input. What makes an input: the norm before it, or
 * the rows of v (tied over the query heads of a group) and of up. A norm's weights keep their
 * storage type: s is bent so that norm / s is a number of that type, and nothing is lost there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "quant/quant_internal.h"

#define N_ALPHA 20
#define SAMPLE_ROWS 48 /* of each matrix */

struct quant_folds {
    int n_layer, n_expert;
    struct quant_fold **at; /* [n_layer][QUANT_N_INPUT + n_expert] */
};

static struct quant_fold **slot(const struct quant_folds *f, enum quant_input in, int layer,
                                int expert)
{
    if (layer < 0 || layer >= f->n_layer || expert >= f->n_expert || in == QUANT_IN_HEAD)
        return NULL;
    if (in == QUANT_IN_DOWN_EXPS && expert < 0) return NULL;
    return &f->at[(int64_t)layer * (QUANT_N_INPUT + f->n_expert) +
                  (in == QUANT_IN_DOWN_EXPS ? QUANT_N_INPUT + expert : (int)in)];
}

const struct quant_fold *quant_fold_get(const struct quant_folds *f, enum quant_input in, int layer,
                                        int expert)
{
    struct quant_fold **at = f ? slot(f, in, layer, expert) : NULL;
    return at ? *at : NULL;
}

struct group {
    enum quant_input in;
    int layer, expert;
    const struct quant_stat *st;
    struct quant_fold fold;
    bool found;
    sl_status status;
    sl_err err;
};

struct search {
    const struct quant_plan *p;
    struct group *g;
    int n;
    int *first, *next; /* items by layer: first[layer], next[item]; -1 ends */
    struct par_counter *counter;
};

/* ---- samples ---- */

struct sample {
    float *x; /* [n_row, n_col] */
    enum quant_type type;
    enum tensor_dtype store;
    int n_row;
};

static bool coded(enum quant_type t)
{
    return t != QUANT_AS_IS && t > QUANT_BF16;
}

/* Rows of item it that belong to the group's input: evenly spread. */
static sl_status take_sample(const struct search *s, const struct group *g,
                             const struct quant_item *it, struct sample *out, sl_err *err)
{
    struct quant_rows r;
    void *p = NULL;
    int64_t n = it->rows, row0 = 0;
    if (g->in == QUANT_IN_DOWN_EXPS && it->n_dim == 3) {
        n /= it->shape[0];
        row0 = n * g->expert;
    }
    int k = (int)BASE_MIN(n, SAMPLE_ROWS);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)k * (size_t)it->cols, sizeof(float), &p, err));
    *out = (struct sample){.x = p, .type = it->type, .store = it->store, .n_row = k};
    SL_TRY(quant_rows_open(s->p, it, &r, err));
    for (int i = 0; i < k; i++)
        quant_rows_get(&r, row0 + n * i / k, out->x + (int64_t)i * it->cols);
    quant_rows_close(&r);
    return SL_OK;
}

struct work {
    float *x, *w, *s;
    uint8_t *packed, *z;
    struct quant_codes c;
};

/* x as the type holds it, into c.deq. */
static void round_trip(const struct search *s, const struct sample *m, int n, struct work *k)
{
    const struct quant_plan *p = s->p;
    const struct quant_values row = {k->x, k->w, n};
    const bool search =
        false; /* the exponent hardly depends on it, and it is thirty times the work */
    if (p->to == IO_GGUF) {
        float top = 1.0f;
        if (m->type == QUANT_NVFP4) { /* its second scale, as of this row alone */
            top = 0.0f;
            for (int j = 0; j < n; j++)
                top = fmaxf(top, fabsf(k->x[j]));
            top = top > 0.0f ? top / 2688.0f : 1.0f;
            for (int j = 0; j < n; j++)
                k->x[j] /= top;
        }
        quant_round_gguf(m->store, &row, search, k->packed);
        tensor_dequant(m->store, k->packed, n, k->c.deq);
        for (int j = 0; m->type == QUANT_NVFP4 && j < n; j++)
            k->c.deq[j] *= top;
        return;
    }
    float top = 0.0f;
    for (int j = 0; j < n; j++)
        top = fmaxf(top, fabsf(k->x[j]));
    top = top > 0.0f ? top : 1.0f;
    switch (m->type) {
    case QUANT_NVFP4:
    case QUANT_MXFP4:
        quant_round_fp4(m->type, &row, top / 2688.0f, search, &k->c);
        break;
    case QUANT_FP8:
        for (int j = 0; j < n; j++)
            k->c.deq[j] = fp_e4m3_to_f32(fp_f32_to_e4m3(k->x[j] * 448.0f / top)) * top / 448.0f;
        break;
    default:
        quant_round_int(m->type, &row, p->group, search, &k->c);
        break;
    }
}

static double loss_of(const struct search *s, const struct group *g, const struct sample *m,
                      int n_m, struct work *k)
{
    int n = g->st->n_col;
    double sum = 0;
    for (int j = 0; j < n; j++)
        k->w[j] = (float)(g->st->sq[j] / (double)g->st->n_row) / (k->s[j] * k->s[j]);
    for (int i = 0; i < n_m; i++)
        for (int r = 0; r < m[i].n_row; r++) {
            const float *x = m[i].x + (int64_t)r * n;
            for (int j = 0; j < n; j++)
                k->x[j] = x[j] * k->s[j];
            round_trip(s, &m[i], n, k);
            for (int j = 0; j < n; j++) {
                double d = (double)k->c.deq[j] - (double)(x[j] * k->s[j]);
                sum += d * d * (double)k->w[j];
            }
        }
    return sum;
}

/* mean|x|^alpha, tied where heads share their values, its extremes around 1. */
static void scales(const struct search *s, const struct group *g, double alpha, float *out)
{
    const struct arch_cfg *c = &s->p->cfg;
    const struct quant_stat *st = g->st;
    int n = st->n_col, d = c->d_head,
        tie = g->in == QUANT_IN_O && !c->kv_lora && !c->v_norm ? c->n_head / c->n_head_kv : 1;
    double mean = 0, lo = INFINITY, hi = 0;
    for (int j = 0; j < n; j++)
        mean += st->abs[j] / n;
    for (int j = 0; j < n; j++) {
        double a = 0;
        int first = tie > 1 ? j / (d * tie) * (d * tie) + j % d : j;
        for (int t = 0; t < tie; t++)
            a += st->abs[first + (tie > 1 ? t * d : 0)] / tie;
        a = pow(fmax(a / mean, 1e-4), alpha);
        out[j] = (float)a;
        lo = fmin(lo, a);
        hi = fmax(hi, a);
    }
    double mid = sqrt(lo * hi);
    for (int j = 0; j < n; j++)
        out[j] = (float)((double)out[j] / mid);
}

/* ---- what makes the input ---- */

static int norm_role(enum quant_input in)
{
    return in == QUANT_IN_ATTN  ? ROLE_ATTN_NORM
           : in == QUANT_IN_FFN ? ROLE_FFN_NORM
           : in == QUANT_IN_Q_B ? ROLE_Q_A_NORM
                                : -1;
}

/* Is the input's maker linear in it? Not an up before a unit that limits it or adds to it. */
static bool is_even(const struct arch_cfg *c, const struct group *g)
{
    bool routed = g->in == QUANT_IN_DOWN_EXPS, shared = g->in == QUANT_IN_DOWN_SHEXP;
    enum arch_role role = routed ? ROLE_GATE_EXPS : shared ? ROLE_GATE_SHEXP : ROLE_GATE;
    struct glu unit = arch_glu(c, g->layer, role);
    return (!routed && !shared && g->in != QUANT_IN_DOWN) || glu_is_even(&unit);
}

static bool is_maker(const struct quant_plan *p, const struct group *g, const struct quant_item *it)
{
    if (strcmp(it->id.suffix, "weight") != 0 || !is_even(&p->cfg, g)) return false;
    switch (g->in) {
    case QUANT_IN_O:
        if (p->cfg.v_norm) return false; /* which takes a factor away */
        return it->id.role == ROLE_V || it->id.role == ROLE_V_B || it->id.role == ROLE_KV_B;
    case QUANT_IN_DOWN:
        return it->id.role == ROLE_UP;
    case QUANT_IN_DOWN_SHEXP:
        return it->id.role == ROLE_UP_SHEXP;
    case QUANT_IN_DOWN_EXPS:
        return it->id.role == ROLE_UP_EXPS && (it->id.expert < 0 || it->id.expert == g->expert);
    default:
        return it->id.role == norm_role(g->in);
    }
}

static bool is_user(const struct quant_plan *p, const struct group *g, const struct quant_item *it)
{
    enum quant_input in;
    return it->n_dim >= 2 && coded(it->type) && quant_input_of(&p->cfg, &it->id, &in) &&
           in == g->in && it->cols == g->st->n_col &&
           (in != QUANT_IN_DOWN_EXPS || it->id.expert < 0 || it->id.expert == g->expert);
}

/* norm / s must be a number of the norm's type. */
static sl_status bend(const struct search *s, struct group *g, const struct quant_item *norm,
                      sl_err *err)
{
    struct quant_rows r;
    void *p = NULL;
    int n = g->fold.n;
    float one = norm->less ? 1.0f : 0.0f;
    if (norm->cols != n)
        return SL_FAIL(err, FORMAT, "%s: %lld values, %d are expected", norm->src,
                       (long long)norm->cols, n);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(float), &p, err));
    float *w = p;
    sl_status st = quant_rows_open(s->p, norm, &r, err);
    if (!st) {
        quant_rows_get(&r, 0, w);
        quant_rows_close(&r);
        for (int j = 0; j < n; j++) {
            uint8_t raw[4];
            float v = (w[j] + one) / g->fold.s[j] - one;
            tensor_quant(norm->store, &v, 1, raw);
            tensor_dequant(norm->store, raw, 1, &v);
            v += one;
            float t = v != 0.0f ? (w[j] + one) / v : 1.0f;
            g->fold.s[j] = t > 0.0f && isfinite(t) ? t : 1.0f;
        }
    }
    mem_free(w);
    return st;
}

/* ---- one group ---- */

static sl_status open_work(int n, struct arena *a, struct work *k, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(a, 5 * (size_t)n, sizeof(float), &p, err));
    k->x = p;
    k->w = k->x + n;
    k->s = k->w + n;
    k->c.deq = k->s + n;
    k->c.scale = k->c.deq + n;
    SL_TRY(mem_arena_array(a, 8 * (size_t)n + 512, 1, &p, err));
    k->packed = p;
    SL_TRY(mem_arena_array(a, 2 * (size_t)n, 1, &p, err));
    k->c.q = p;
    k->c.z = (uint8_t *)p + n;
    return SL_OK;
}

static void try_all(const struct search *s, struct group *g, const struct sample *m, int n_m,
                    struct work *k)
{
    double best = INFINITY;
    int n = g->fold.n, best_i = 0;
    for (int i = 0; i < N_ALPHA; i++) {
        scales(s, g, (double)i / N_ALPHA, k->s);
        double e = loss_of(s, g, m, n_m, k);
        if (!(e < best)) continue;
        best = e;
        best_i = i;
        memcpy(g->fold.s, k->s, (size_t)n * sizeof *g->fold.s);
    }
    g->found = best_i > 0;
}

static sl_status one_group(const struct search *s, struct group *g, sl_err *err)
{
    const struct quant_plan *p = s->p;
    const struct quant_item *maker = NULL;
    struct sample *m = NULL;
    struct work k = {0};
    struct arena a;
    void *q = NULL;
    int n_m = 0, n_user = 0;
    for (int i = s->first[g->layer]; i >= 0; i = s->next[i]) {
        if (is_user(p, g, &p->item[i])) n_user++;
        if (is_maker(p, g, &p->item[i])) maker = &p->item[i];
    }
    if (!maker || !n_user) return SL_OK;
    bool vector = norm_role(g->in) >= 0; /* else: as many rows as the input has channels */
    if (vector && !quant_can_round(maker->store)) return SL_OK;
    sl_status st = SL_OK;
    mem_arena_init(&a, MEM_SCRATCH, 0);
    SL_TRY_OUT(mem_arena_array(&a, (size_t)n_user, sizeof *m, &q, err));
    m = q;
    SL_TRY_OUT(open_work(g->fold.n, &a, &k, err));
    for (int i = s->first[g->layer]; i >= 0; i = s->next[i])
        if (is_user(p, g, &p->item[i])) SL_TRY_OUT(take_sample(s, g, &p->item[i], &m[n_m++], err));
    try_all(s, g, m, n_m, &k);
    if (g->found && vector) SL_TRY_OUT(bend(s, g, maker, err));
out:
    for (int i = 0; i < n_m; i++)
        mem_free(m[i].x);
    mem_arena_fini(&a);
    return st;
}

static void region(void *arg, int worker, int n_w)
{
    struct search *s = arg;
    int b, e;
    (void)worker;
    (void)n_w;
    while (par_take(s->counter, s->n, 1, &b, &e))
        s->g[b].status = one_group(s, &s->g[b], &s->g[b].err);
}

/* ---- all ---- */

static sl_status list_groups(struct quant_plan *p, struct search *s, sl_err *err)
{
    int E = p->cfg.n_expert, L = p->cfg.n_layer, per = QUANT_N_INPUT + E;
    void *q = NULL;
    SL_TRY(mem_arena_array(&p->arena, (size_t)L * (size_t)per, sizeof *s->g, &q, err));
    s->g = q;
    for (int l = 0; l < L; l++)
        for (int i = 0; i < per; i++) {
            enum quant_input in = i < QUANT_N_INPUT ? (enum quant_input)i : QUANT_IN_DOWN_EXPS;
            int expert = i < QUANT_N_INPUT ? -1 : i - QUANT_N_INPUT;
            if ((in == QUANT_IN_DOWN_EXPS) != (expert >= 0) || in == QUANT_IN_HEAD ||
                in == QUANT_IN_KV_B ||
                (in == QUANT_IN_O && p->cfg.layer[l].mixer == ARCH_DELTA)) /* v is no maker */
                continue;
            const struct quant_stat *st = quant_stats_get(p->o->stats, in, l, expert);
            if (!st || st->n_row < 16) continue;
            struct group *g = &s->g[s->n++];
            *g = (struct group){
                .in = in, .layer = l, .expert = expert, .st = st, .fold.n = st->n_col};
            SL_TRY(mem_arena_array(&p->arena, (size_t)st->n_col, sizeof(float), &q, err));
            g->fold.s = q;
        }
    SL_TRY(mem_arena_array(&p->arena, (size_t)L + (size_t)p->n_item, sizeof *s->first, &q, err));
    s->first = q;
    s->next = s->first + L;
    for (int l = 0; l < L; l++)
        s->first[l] = -1;
    for (int i = p->n_item - 1; i >= 0; i--) {
        int l = p->item[i].id.layer;
        if (l < 0 || l >= L) continue;
        s->next[i] = s->first[l];
        s->first[l] = i;
    }
    return SL_OK;
}

sl_status quant_awq(struct quant_plan *p, par_team *team, sl_err *err)
{
    struct search s = {.p = p};
    struct quant_folds *f = NULL;
    void *q = NULL;
    if (!p->has_cfg)
        return SL_FAIL(err, UNSUPPORTED, "%s: --awq: the architecture is not known",
                       io_path(p->src));
    SL_TRY(list_groups(p, &s, err));
    SL_TRY(mem_arena_array(&p->arena, 2, sizeof *s.counter, &q, err));
    s.counter = (struct par_counter *)(((uintptr_t)q + 63) & ~(uintptr_t)63);
    if (p->o->progress && p->o->progress(p->o->user, "searching scales", 0, 0))
        return SL_FAIL(err, CANCELLED, "cancelled");
    par_run(team, region, &s);
    SL_TRY(mem_arena_array(&p->arena, 1, sizeof *f, &q, err));
    f = q;
    f->n_layer = p->cfg.n_layer;
    f->n_expert = p->cfg.n_expert;
    SL_TRY(mem_arena_array(&p->arena, (size_t)f->n_layer * (size_t)(QUANT_N_INPUT + f->n_expert),
                           sizeof *f->at, &q, err));
    f->at = q;
    for (int i = 0; i < s.n; i++) {
        struct group *g = &s.g[i];
        if (g->status) {
            if (err) *err = g->err;
            return g->status;
        }
        if (!g->found) continue;
        *slot(f, g->in, g->layer, g->expert) = &g->fold;
        p->rep->n_folded++;
    }
    p->folds = f;
    return SL_OK;
}
