/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the engine's constants to measured rows. */
#include "plan/calib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/csv.h"
#include "plan/plan_internal.h"

#define MAX_PICK 1024
/* Strength of the pull to the prior: one width of one key costs as much as a 14 % error on one row.
 */
#define LAMBDA 0.14

static sl_status keep_text(struct arena *a, const struct plan_csv *c, const char *col,
                           const char **out, sl_err *err)
{
    char *copy;
    const char *s = plan_csv_text(c, col);
    SL_TRY(mem_arena_str(a, s, strlen(s), &copy, err));
    *out = copy;
    return SL_OK;
}

sl_status plan_read_rules(struct arena *a, struct plan_bytes b, struct plan_rule **rules, int *n,
                          sl_err *err)
{
    struct plan_csv c;
    bool more;
    void *mem;
    size_t lines = 1;
    for (size_t i = 0; i < b.n; i++)
        lines += b.p[i] == '\n';
    SL_TRY(plan_csv_open(&c, b, err));
    SL_TRY(mem_arena_array(a, lines, sizeof **rules, &mem, err));
    *rules = mem, *n = 0;
    for (;;) {
        SL_TRY(plan_csv_next(&c, &more, err));
        if (!more) return SL_OK;
        struct plan_rule *r = &(*rules)[*n];
        SL_TRY(keep_text(a, &c, "group", &r->group, err));
        SL_TRY(keep_text(a, &c, "system", &r->system, err));
        SL_TRY(keep_text(a, &c, "model", &r->model, err));
        SL_TRY(keep_text(a, &c, "hardware", &r->hardware, err));
        SL_TRY(keep_text(a, &c, "metric", &r->metric, err));
        SL_TRY(plan_csv_num(&c, "input_len", PLAN_NUM(NAN, 0, 1e9), &r->in, err));
        SL_TRY(plan_csv_num(&c, "concurrency", PLAN_NUM(NAN, 0, 1e9), &r->conc, err));
        SL_TRY(plan_csv_num(&c, "cards", PLAN_NUM(NAN, 0, 1e9), &r->cards, err));
        const char *role = plan_csv_text(&c, "role");
        r->role = !strcmp(role, "held")   ? PLAN_ROLE_HELD
                  : !strcmp(role, "skip") ? PLAN_ROLE_SKIP
                  : !strcmp(role, "fit")  ? PLAN_ROLE_FIT
                                          : PLAN_ROLE_BLIND;
        (*n)++;
    }
}

static bool matches(const struct plan_rule *r, const struct plan_row *w)
{
    return (!*r->system || strcasestr(w->system, r->system)) &&
           (!*r->model || strcasestr(w->model, r->model)) &&
           (!*r->hardware || strcasestr(w->hardware, r->hardware)) &&
           (!*r->metric || !strcmp(w->metric, r->metric)) && (isnan(r->in) || w->in == r->in) &&
           (isnan(r->conc) || w->conc == r->conc) && (isnan(r->cards) || w->cards == r->cards);
}

static bool is_prefill(const struct plan_item *it)
{
    enum plan_metric m = it->s.metric;
    return m == PLAN_M_TTFT || m == PLAN_M_PREFILL_TPS || m == PLAN_M_PREFILL_TIME;
}

sl_status plan_data_init(struct plan_data *d, struct arena *a, const struct plan_tables *t,
                         const struct plan_rows *of, sl_err *err)
{
    void *mem;
    *d = (struct plan_data){.n = of->n};
    SL_TRY(mem_arena_array(a, (size_t)of->n + 1, sizeof *d->item, &mem, err));
    d->item = mem;
    for (int i = 0; i < of->n; i++) {
        struct plan_item *it = &d->item[i];
        it->row = &of->row[i];
        it->skip = plan_row_setup(t, it->row, &it->s);
        if (!it->skip) plan_setup_fix(&it->s);
        it->group = "rows", it->role = PLAN_ROLE_FIT;
        for (int j = 0; j < of->n_rule; j++) {
            if (!matches(&of->rule[j], it->row)) continue;
            it->group = of->rule[j].group, it->role = of->rule[j].role;
            break;
        }
        if (it->role == PLAN_ROLE_SKIP && !it->skip) it->skip = "not to be believed";
        it->prefill = is_prefill(it);
        it->sys = -1;
        for (int j = 0; j < i && it->sys < 0; j++) {
            if (!strcasecmp(d->item[j].s.engine, it->s.engine) &&
                !strcmp(d->item[j].s.device, it->s.device)) {
                it->sys = d->item[j].sys;
            }
        }
        if (it->sys < 0) it->sys = d->n_sys++;
    }
    return SL_OK;
}

/* The same measurement printed twice says nothing new: rates per user and stream, and rounded
 * times. */
static bool teaches(const struct plan_item *it)
{
    if (it->skip || it->s.metric == PLAN_M_MEMORY) return false;
    if (it->s.metric == PLAN_M_STREAM_TPS) return false;
    if (it->s.metric == PLAN_M_TPOT && strcasestr(it->row->note, "rounded")) return false;
    return !(it->s.metric == PLAN_M_USER_TPS && it->s.per > 1);
}

static uint32_t bit(enum plan_key k)
{
    return 1u << k;
}

static uint32_t decode_keys(const struct plan_data *d, const int *pick, int n, enum plan_mode mode)
{
    uint32_t mask = bit(PLAN_T_LAYER);
    double t_lo = 1e30, t_hi = 0, s_lo = 1e30, s_hi = 0;
    bool draft = false, soft = false;
    double e_lo = 1e30, e_hi = 0; /* batches of models with experts */
    int points = 0;
    for (int i = 0; i < n; i++) {
        const struct plan_item *it = &d->item[pick[i]];
        if (it->prefill) continue;
        double batch = it->s.w.n / fmax(1, it->s.c.lay.dp), ctx = it->s.w.in + it->s.w.out / 2;
        t_lo = fmin(t_lo, batch), t_hi = fmax(t_hi, batch);
        s_lo = fmin(s_lo, ctx), s_hi = fmax(s_hi, ctx);
        draft = draft || it->s.c.lay.mtp > 0;
        soft = soft || it->s.c.fmt.soft_scale;
        bool seen = false;
        for (int j = 0; j < i; j++) {
            const struct plan_item *o = &d->item[pick[j]];
            seen = seen || (!o->prefill && o->s.w.n == it->s.w.n && o->s.w.in == it->s.w.in &&
                            o->s.c.model == it->s.c.model);
        }
        points += !seen;
        if (it->s.c.model->experts > 0) {
            e_lo = fmin(e_lo, batch), e_hi = fmax(e_hi, batch);
        }
    }
    bool host = mode == PLAN_MODE_HYBRID || mode == PLAN_MODE_CPU;
    if (points < 2) return host ? bit(PLAN_CPU_GBPS) : mask;
    if (mode == PLAN_MODE_EP) {
        mask |= bit(PLAN_T_TL);
        if (draft && points >= 3) mask |= bit(PLAN_T_DRAFT);
        if (soft) mask |= bit(PLAN_SOFT);
        return mask;
    }
    if (host) {
        mask |= bit(PLAN_CPU_GBPS);
        if (t_hi > 2 * t_lo) mask |= bit(PLAN_CPU_TOPS);
        return mask;
    }
    if (e_hi > e_lo)
        mask |= bit(PLAN_ETA_W);
    else if (t_hi > 8 * t_lo)
        mask |= bit(PLAN_T_TL); /* dense: batch grows without experts */
    if (t_lo < 1.5 && e_hi > e_lo && points >= 3) mask |= bit(PLAN_T_MULTI);
    if (s_hi > 8 * s_lo && s_hi > 4000) mask |= bit(PLAN_ETA_KV);
    if (draft && points >= 4) mask |= bit(PLAN_T_DRAFT), mask &= ~bit(PLAN_ETA_KV);
    return mask;
}

static uint32_t prefill_keys(const struct plan_data *d, const int *pick, int n, enum plan_mode mode)
{
    double lo = 1e30, hi = 0, few = 1e30, most = 0;
    bool host = mode == PLAN_MODE_CPU || mode == PLAN_MODE_HYBRID, streams = false;
    int points = 0, on_host = 0;
    for (int i = 0; i < n; i++) {
        const struct plan_item *it = &d->item[pick[i]];
        if (!it->prefill) continue;
        lo = fmin(lo, it->s.w.in), hi = fmax(hi, it->s.w.in);
        few = fmin(few, it->s.w.n), most = fmax(most, it->s.w.n);
        double batch = it->s.w.n * it->s.w.in;
        bool bus = it->s.c.lay.stream_prefill && batch >= it->s.c.lay.stream_from;
        streams = streams || bus;
        on_host += !bus;
        points++;
    }
    if (points == 0) return 0;
    if (host && !streams) {
        /* the host's products: the sum of PLANNER 3.10 has no other prefill constant. Only when
         * nothing but prompts is known is its fixed part fitted too. */
        return hi < 256 && points == 1                 ? bit(PLAN_T0)
               : mode == PLAN_MODE_CPU && hi >= 4 * lo ? bit(PLAN_CPU_TOPS) | bit(PLAN_T0)
                                                       : bit(PLAN_CPU_TOPS);
    }
    uint32_t also = host && on_host > 0 ? bit(PLAN_CPU_TOPS) : 0; /* short prompts stayed there */
    if (points == 1 && host) return bit(PLAN_BUS);
    if (points == 1) return hi < 1000 ? bit(PLAN_T0) : bit(PLAN_MFU);
    uint32_t mask = host ? bit(PLAN_BUS) | also : 0;
    if (hi >= 4 * lo) mask |= host ? bit(PLAN_BUS) : bit(PLAN_T0) | bit(PLAN_MFU);
    if (most >= 2 * few && mode != PLAN_MODE_EP) mask |= bit(PLAN_T0) | bit(PLAN_T_REQ);
    if (mask == 0) mask = bit(PLAN_MFU);
    if (hi >= 20000) mask |= bit(PLAN_ETA_A);
    return mask;
}

/* The rows that a fit learns from: data and the numbers of its items. */
struct lesson {
    struct plan_data *d;
    const int *pick; /* [n] */
    int n;
};

/* part: 0 decode rows, 1 prefill rows, 2 both */
static void fit_part(const struct lesson *of, int part, uint32_t mask, struct plan_consts *k,
                     double *err)
{
    static _Thread_local struct plan_setup *rows[MAX_PICK];
    double want[MAX_PICK];
    int m = 0;
    for (int i = 0; i < of->n && m < MAX_PICK; i++) {
        struct plan_item *it = &of->d->item[of->pick[i]];
        if ((part < 2 && it->prefill != (part == 1)) || !teaches(it)) continue;
        rows[m] = &it->s, want[m++] = it->row->value;
    }
    *err = 0;
    if (m == 0 || mask == 0) return;
    static const double width[PLAN_KEYS] = {
        [PLAN_T_LAYER] = 1.5, [PLAN_T_MULTI] = 1.5, [PLAN_ETA_W] = 1.0, [PLAN_ETA_KV] = 0.4,
        [PLAN_T0] = 1.5,      [PLAN_T_REQ] = 1.5,   [PLAN_MFU] = 1.0,   [PLAN_ETA_A] = 0.3,
        [PLAN_CPU_GBPS] = 1,  [PLAN_CPU_TOPS] = 1,  [PLAN_T_TL] = 1.5,  [PLAN_T_DRAFT] = 1.5,
        [PLAN_SOFT] = 0.5,    [PLAN_CHUNK] = 1,     [PLAN_BUS] = 0.5,
    };
    struct plan_fit f = {.row = rows, .want = want, .n = m, .mask = mask, .lambda = LAMBDA, .k = k};
    *err = plan_fit_keys(&f, width);
    double sum = 0;
    for (int i = 0; i < m; i++) {
        plan_use_consts(rows[i], k);
        sum += fabs(plan_row_predict(rows[i]) / want[i] - 1);
    }
    *err = 100 * sum / m;
}

static void row_list(const struct plan_data *d, const int *pick, int n, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n && used + 16 < size; i++) {
        int j = i;
        while (j + 1 < n && d->item[pick[j + 1]].row->line == d->item[pick[j]].row->line + 1)
            j++;
        int a = d->item[pick[i]].row->line, b = d->item[pick[j]].row->line;
        used += (size_t)(a == b ? snprintf(out + used, size - used, "%s%d", i ? "," : "", a)
                                : snprintf(out + used, size - used, "%s%d-%d", i ? "," : "", a, b));
        i = j;
    }
}

/* Decode moved eta_w, which prefill reads too: fit prefill's keys once more from their prior. */
static struct plan_consts refit_prefill(const struct lesson *of, uint32_t mask,
                                        const struct plan_consts *start,
                                        const struct plan_consts *now, double *err)
{
    struct plan_consts k = *now;
    for (int i = 0; i < PLAN_KEYS; i++) {
        if (mask >> i & 1) k.v[i] = start->v[i];
    }
    double e = 0;
    fit_part(of, 1, mask, &k, &e);
    *err = e;
    return k;
}

/* Both parts, decode and prefill, with the batch of prompts that the engine takes. That batch is a
 * setting of the engine which rows seldom state: where they have several users and prompts, the
 * smallest is taken whose errors (of both parts together) are within a point of the best, since
 * less than that is noise of the rows, and a small batch is the careful guess for users who wait.
 */
static void fit_batches(const struct lesson *of, uint32_t pm, uint32_t dm, struct plan_set *out)
{
    static const double batch[] = {1024, 2048, 4096, 8192, 16384, 32768};
    const struct plan_consts start = out->k;
    struct plan_set got[BASE_COUNT_OF(batch)];
    bool search = (pm & bit(PLAN_T_REQ)) && start.mode == PLAN_MODE_TP;
    double best = INFINITY;
    int tries = search ? BASE_COUNT_OF(batch) : 1, take = 0;
    for (int i = 0; i < tries; i++) {
        struct plan_set *g = &got[i];
        *g = *out;
        if (search) g->k.v[PLAN_CHUNK] = batch[i];
        fit_part(of, 1, pm, &g->k, &g->err_prefill);
        fit_part(of, 0, dm, &g->k, &g->err_decode);
        struct plan_consts from = start;
        from.v[PLAN_CHUNK] = g->k.v[PLAN_CHUNK];
        g->k = refit_prefill(of, pm, &from, &g->k, &g->err_prefill);
        best = fmin(best, g->err_prefill + g->err_decode);
    }
    while (take + 1 < tries && got[take].err_prefill + got[take].err_decode > best + 2)
        take++;
    *out = got[take];
}

void plan_fit_set(const struct plan_book *b, struct plan_data *d, const int *pick, int n,
                  struct plan_set *out)
{
    *out = (struct plan_set){0};
    if (n == 0) return;
    struct plan_item *first = &d->item[pick[0]];
    plan_prior_for(b, &first->s, &out->k);
    struct plan_consts *k = &out->k;
    snprintf(k->engine, sizeof k->engine, "%s", first->s.engine);
    snprintf(k->device, sizeof k->device, "%s", first->s.device);
    k->vendor = first->s.dev.vendor, k->mode = first->s.c.k.mode;
    snprintf(k->taught, sizeof k->taught, "%s", first->s.c.model->name);
    snprintf(k->format, sizeof k->format, "%s", first->s.c.fmt.name);
    k->trust = PLAN_CALIBRATED;
    uint32_t pm = prefill_keys(d, pick, n, k->mode), dm = decode_keys(d, pick, n, k->mode);
    bool hybrid = k->mode == PLAN_MODE_HYBRID || k->mode == PLAN_MODE_CPU;
    const struct lesson of = {d, pick, n};
    if (hybrid) fit_part(&of, pm ? 2 : 0, dm | pm, k, &out->err_decode);
    if (hybrid)
        out->err_prefill = out->err_decode;
    else
        fit_batches(&of, pm, dm, out);
    k->n_rows = n;
    k->sigma_decode = fmax(0.04, 1.4 * out->err_decode / 100);
    k->sigma_prefill = fmax(0.08, 1.4 * out->err_prefill / 100);
    row_list(d, pick, n, out->rows, sizeof out->rows);
}

void plan_fit_model(const struct plan_book *b, struct plan_data *d, const int *pick, int n,
                    const struct plan_set *base, struct plan_set *out)
{
    const struct plan_setup *s = &d->item[pick[0]].s;
    struct plan_format taught;
    *out = *base;
    if (!plan_format_find(base->k.format, &taught) || taught.act != s->c.fmt.act) {
        struct plan_consts prior; /* another arithmetic: another kernel of the experts */
        plan_prior_for(b, s, &prior);
        out->k.v[PLAN_ETA_W] = prior.v[PLAN_ETA_W], out->k.v[PLAN_T_MULTI] = prior.v[PLAN_T_MULTI];
    }
    snprintf(out->k.model, sizeof out->k.model, "%s", d->item[pick[0]].s.c.model->name);
    fit_part(&(struct lesson){d, pick, n}, 0, bit(PLAN_T_LAYER), &out->k, &out->err_decode);
    out->k.fitted = bit(PLAN_T_LAYER);
    out->k.n_rows = n;
    out->k.sigma_decode = fmax(0.10, 1.4 * out->err_decode / 100);
    row_list(d, pick, n, out->rows, sizeof out->rows);
}

/* ---- priors -------------------------------------------------------------------------------------
 */

struct prior_fit {
    struct plan_book *b;
    struct plan_data *d;
    int pick[MAX_PICK], n;
    double weight[MAX_PICK];
    int v;
    enum plan_mode m;
    int key[8], n_key;
    double base[PLAN_KEYS];
};

static double prior_cost(void *user, const double *x)
{
    struct prior_fit *f = user;
    int v0 = f->v < 0 ? 0 : f->v, v1 = f->v < 0 ? PLAN_VENDOR_COUNT : f->v + 1;
    double sum = 0, total = 0, pull = 0;
    for (int i = 0; i < f->n_key; i++) {
        if (fabs(x[i]) > 3) return 1e3;
        for (int v = v0; v < v1; v++) {
            f->b->prior[v][f->m].v[f->key[i]] = f->base[f->key[i]] * exp(x[i]);
        }
        pull +=
            x[i] * x[i] * (f->key[i] == PLAN_ETA_W ? 8 : 1); /* kernels differ less than launches */
    }
    for (int i = 0; i < f->n; i++) {
        struct plan_item *it = &f->d->item[f->pick[i]];
        plan_consts_for(f->b, &it->s, &it->s.c.k);
        double got = plan_row_predict(&it->s);
        double e = got > 0 ? fmin(fabs(log(got / it->row->value)), 2) : 2;
        sum += f->weight[i] * e, total += f->weight[i];
    }
    return total > 0 ? sum / total + 0.03 * pull : 0;
}

/* v < 0: the host's keys of hybrids, over all vendors together. */
static void fit_prior(struct plan_book *b, struct plan_data *d, int skip_sys, int v,
                      enum plan_mode m, bool prefill)
{
    struct prior_fit f = {.b = b, .d = d, .v = v, .m = m};
    int count[MAX_PICK] = {0};
    for (int i = 0; i < d->n && f.n < MAX_PICK; i++) {
        const struct plan_item *it = &d->item[i];
        if (it->skip || it->role == PLAN_ROLE_HELD || it->sys == skip_sys || it->prefill != prefill)
            continue;
        if ((v >= 0 && (int)it->s.dev.vendor != v) || it->s.c.k.mode != m || !teaches(it)) continue;
        f.pick[f.n++] = i;
        count[it->sys]++;
    }
    if (f.n < 3) return;
    for (int i = 0; i < f.n; i++)
        f.weight[i] = 1 / sqrt(count[d->item[f.pick[i]].sys]);
    static const int dec[4][3] = {{PLAN_T_LAYER, PLAN_ETA_W, PLAN_T_MULTI},
                                  {PLAN_T_LAYER, PLAN_T_TL, PLAN_T_DRAFT},
                                  {PLAN_T_LAYER, -1, -1},
                                  {PLAN_CPU_GBPS, PLAN_CPU_TOPS, -1}};
    static const int pre[4][3] = {
        {PLAN_MFU, PLAN_T0, -1}, {PLAN_MFU, -1, -1}, {PLAN_T0, -1, -1}, {PLAN_CPU_TOPS, -1, -1}};
    static const int host[2][3] = {{PLAN_CPU_GBPS, -1, -1}, {PLAN_CPU_TOPS, -1, -1}};
    const int *keys = v < 0 ? host[prefill] : prefill ? pre[m] : dec[m];
    for (int i = 0; i < 3 && keys[i] >= 0; i++)
        f.key[f.n_key++] = keys[i];
    double x[8] = {0}, step[8];
    memcpy(f.base, b->prior[v < 0 ? 0 : v][m].v, sizeof f.base);
    for (int i = 0; i < f.n_key; i++)
        step[i] = 0.25;
    plan_minimise(prior_cost, &f, x, step, f.n_key, 160);
    prior_cost(&f, x);
}

void plan_fit_priors(struct plan_book *b, struct plan_data *d, int skip_sys)
{
    int sets = b->n_set;
    b->n_set = 0; /* priors must explain the rows by themselves */
    fit_prior(b, d, skip_sys, -1, PLAN_MODE_HYBRID, true);
    fit_prior(b, d, skip_sys, -1, PLAN_MODE_HYBRID, false);
    for (int v = 0; v < PLAN_VENDOR_COUNT; v++) {
        for (int m = 0; m < PLAN_MODE_COUNT; m++) {
            fit_prior(b, d, skip_sys, v, m, true);
            fit_prior(b, d, skip_sys, v, m, false);
        }
    }
    b->n_set = sets;
}

/* The model with the most rows teaches the engine; each other model of a TP engine then gets a set
 * of its own in which only t_layer moved: its operators are not those of the first. */
static void fit_group(struct plan_book *b, struct plan_data *d, const int *pick, int n)
{
    const struct plan_model *models[32], *first = NULL;
    int count[32] = {0}, n_model = 0, best = 0;
    if (n == 0) return;
    for (int i = 0; i < n; i++) {
        const struct plan_model *m = d->item[pick[i]].s.c.model;
        int j = 0;
        while (j < n_model && models[j] != m)
            j++;
        if (j == n_model && n_model < 32) models[n_model++] = m;
        if (j < 32 && ++count[j] > best) best = count[j], first = m;
    }
    bool by_model = d->item[pick[0]].s.c.k.mode == PLAN_MODE_TP && n_model > 1;
    int some[MAX_PICK], k = 0;
    for (int i = 0; i < n; i++) {
        if (!by_model || d->item[pick[i]].s.c.model == first) some[k++] = pick[i];
    }
    if (k < 3 || b->n_set >= PLAN_MAX_SETS) return;
    struct plan_set base;
    plan_fit_set(b, d, some, k, &base);
    b->set[b->n_set++] = base;
    for (int j = 0; by_model && j < n_model && b->n_set < PLAN_MAX_SETS; j++) {
        if (models[j] == first) continue;
        for (int i = k = 0; i < n; i++) {
            if (d->item[pick[i]].s.c.model == models[j]) some[k++] = pick[i];
        }
        plan_fit_model(b, d, some, k, &base, &b->set[b->n_set++]);
    }
}

/* A set of the same engine, device and mode is replaced. */
static void forget(struct plan_book *b, const struct plan_item *it)
{
    int k = 0;
    for (int i = 0; i < b->n_set; i++) {
        const struct plan_consts *c = &b->set[i].k;
        bool same = c->mode == it->s.c.k.mode && !strcasecmp(c->engine, it->s.engine) &&
                    !strcasecmp(c->device, it->s.device);
        if (!same) b->set[k++] = b->set[i];
    }
    b->n_set = k;
}

void plan_fit_book(struct plan_book *b, struct plan_data *d)
{
    plan_fit_priors(b, d, -1);
    b->n_set = 0;
    plan_fit_sets(b, d);
}

void plan_fit_sets(struct plan_book *b, struct plan_data *d)
{
    for (int s = 0; s < d->n_sys; s++) {
        for (int m = 0; m < PLAN_MODE_COUNT && b->n_set < PLAN_MAX_SETS; m++) {
            int pick[MAX_PICK], n = 0;
            for (int i = 0; i < d->n && n < MAX_PICK; i++) {
                const struct plan_item *it = &d->item[i];
                if (it->skip || it->sys != s || (int)it->s.c.k.mode != m || !teaches(it)) continue;
                if (it->role == PLAN_ROLE_HELD) continue;
                pick[n++] = i;
            }
            if (n > 0) forget(b, &d->item[pick[0]]);
            fit_group(b, d, pick, n);
        }
    }
}

void plan_check(const struct plan_book *b, struct plan_data *d)
{
    for (int i = 0; i < d->n; i++) {
        struct plan_item *it = &d->item[i];
        if (it->skip) continue;
        plan_consts_for(b, &it->s, &it->s.c.k);
        it->trust = it->s.c.k.trust;
        it->got = plan_row_predict(&it->s);
        it->err = it->got > 0 ? log(it->got / it->row->value) : NAN;
        if (!(it->got > 0) || !isfinite(it->got)) it->skip = "the model has no answer";
    }
}

void plan_check_blind(const struct plan_book *b, struct plan_data *d)
{
    for (int s = 0; s < d->n_sys; s++) {
        bool any = false;
        for (int i = 0; i < d->n; i++) {
            any = any ||
                  (d->item[i].sys == s && d->item[i].role == PLAN_ROLE_BLIND && !d->item[i].skip);
        }
        if (!any) continue;
        struct plan_book left;
        plan_book_init(&left);
        left.sigma_prior = b->sigma_prior;
        plan_fit_priors(&left, d, s);
        for (int i = 0; i < d->n; i++) {
            struct plan_item *it = &d->item[i];
            if (it->skip || it->sys != s || it->role != PLAN_ROLE_BLIND) continue;
            plan_consts_for(&left, &it->s, &it->s.c.k);
            it->got = plan_row_predict(&it->s);
            it->err = it->got > 0 ? log(it->got / it->row->value) : 2;
            it->trust = PLAN_UNCALIBRATED;
        }
    }
}

void plan_fit_sigma(struct plan_book *b, struct plan_data *d)
{
    double e[MAX_PICK];
    int n = 0;
    plan_check_blind(b, d);
    for (int i = 0; i < d->n && n < MAX_PICK; i++) {
        const struct plan_item *it = &d->item[i];
        if (!it->skip && it->role == PLAN_ROLE_BLIND) e[n++] = fabs(it->err);
    }
    for (int i = 1; i < n; i++) { /* insertion: a few hundred numbers, once */
        double x = e[i];
        int j = i;
        for (; j > 0 && e[j - 1] > x; j--)
            e[j] = e[j - 1];
        e[j] = x;
    }
    if (n >= 10) b->sigma_prior = fmin(1.5, fmax(0.1, e[(int)(0.8 * n)] / 1.2816));
}

bool plan_same_point(const struct plan_row *a, const struct plan_row *b)
{
    bool in = a->in == b->in || (isnan(a->in) && isnan(b->in));
    return in && a->conc == b->conc && !strcmp(a->system, b->system) &&
           !strcmp(a->model, b->model) && !strcmp(a->hardware, b->hardware) &&
           !strcmp(a->note, b->note) && a->cards == b->cards;
}

void plan_check_loo(const struct plan_book *b, struct plan_data *d, const char *group)
{
    for (int i = 0; i < d->n; i++) {
        struct plan_item *it = &d->item[i];
        if (it->skip || strcmp(it->group, group) != 0) continue;
        int pick[MAX_PICK], n = 0;
        for (int j = 0; j < d->n && n < MAX_PICK; j++) {
            const struct plan_item *o = &d->item[j];
            if (o->skip || o->sys != it->sys || o->s.c.k.mode != it->s.c.k.mode || !teaches(o))
                continue;
            if (o->role == PLAN_ROLE_HELD || plan_same_point(o->row, it->row)) continue;
            pick[n++] = j;
        }
        if (n == 0) { /* nothing left of this system: the platform's prior */
            struct plan_consts k;
            plan_prior_for(b, &it->s, &k);
            plan_use_consts(&it->s, &k);
        } else {
            struct plan_set set;
            plan_fit_set(b, d, pick, n, &set);
            plan_use_consts(&it->s, &set.k);
        }
        it->got = plan_row_predict(&it->s);
        it->err = log(it->got / it->row->value);
    }
}

/* One machine as it was set up: the same system, model, hardware and layout. */
static bool same_setting(const struct plan_row *a, const struct plan_row *b)
{
    return !strcmp(a->system, b->system) && !strcmp(a->model, b->model) &&
           !strcmp(a->hardware, b->hardware) && !strcmp(a->layout, b->layout);
}

void plan_check_lengths(const struct plan_book *b, struct plan_data *d, const char *group)
{
    for (int i = 0; i < d->n; i++) {
        struct plan_item *it = &d->item[i];
        if (it->skip || strcmp(it->group, group) != 0) continue;
        double shortest[2] = {INFINITY, INFINITY}; /* of decode rows, of prompts */
        int pick[MAX_PICK], n = 0;
        for (int j = 0; j < d->n; j++) {
            const struct plan_item *o = &d->item[j];
            if (!o->skip && same_setting(o->row, it->row))
                shortest[o->prefill] = fmin(shortest[o->prefill], o->row->in);
        }
        if (it->row->in <= shortest[it->prefill]) continue;
        for (int j = 0; j < d->n && n < MAX_PICK; j++) {
            const struct plan_item *o = &d->item[j];
            bool use = !o->skip && same_setting(o->row, it->row) && teaches(o);
            if (use && o->row->in == shortest[o->prefill]) pick[n++] = j;
        }
        if (n == 0) continue;
        struct plan_set set;
        plan_fit_set(b, d, pick, n, &set);
        plan_use_consts(&it->s, &set.k);
        it->got = plan_row_predict(&it->s);
        it->err = log(it->got / it->row->value);
        it->role = PLAN_ROLE_HELD;
    }
}
