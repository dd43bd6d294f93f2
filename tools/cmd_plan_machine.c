/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --this-machine: this engine on this CPU, constants from three points (measured here,
 * or of a bench file), the others predicted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_plan.h"
#include "compute.h"
#include "engine/find.h"

/* Speeds that are fitted: reading weights, products, reading KV, attention of a prompt. */
enum { READ, PRODUCTS, READ_KV, ATTENTION, CONSTS };

struct machine {
    struct plan_case c;
    double start[CONSTS]; /* logarithms of what the probes say */
    struct plan_point *p;
    int n;
};

/* Prompt tokens per step of the engine, unless it is told otherwise. */
#define CHUNK 512.0

static double predict(struct machine *m, const struct plan_point *p)
{
    struct plan_time t;
    if (p->prefill) {
        double sum = 0;
        for (double at = 0; at < p->tokens; at += CHUNK) { /* as the engine cuts a prompt */
            plan_prefill(&m->c, 1, fmin(CHUNK, p->tokens - at), p->depth + at, &t);
            sum += t.total;
        }
        return p->tokens / sum;
    }
    plan_step(&m->c, p->batch, p->ctx > 0 ? p->ctx : p->depth + p->tokens / 2, &t);
    return p->batch / t.total;
}

/* x: logarithms of GB/s of weights, Top/s of products, share of the former for KV, Top/s of a
 * prompt's attention. */
static void set_speeds(struct machine *m, const double *x)
{
    double *v = m->c.k.v;
    v[PLAN_CPU_GBPS] = exp(x[READ]);
    v[PLAN_CPU_TOPS] = exp(x[PRODUCTS]);
    v[PLAN_ETA_KV] = exp(x[READ_KV]);
    v[PLAN_ETA_A] = exp(x[ATTENTION] - x[PRODUCTS]);
}

/* A factor of e away from the probes costs as much as an error of 4 % on one point, of attention 8
 * %: one short prompt says little about it. */
#define PULL 0.0016

static double cost(void *user, const double *x)
{
    struct machine *m = user;
    double sum = 0;
    set_speeds(m, x);
    for (int i = 0; i < m->n; i++) {
        if (!m->p[i].fit) continue;
        double e = log(predict(m, &m->p[i]) / m->p[i].tps);
        sum += e * e;
    }
    for (int i = 0; i < CONSTS; i++) /* a cache reads faster than the probe, but not without end */
        sum += PULL * (i == ATTENTION ? 4 : 1) * (x[i] - m->start[i]) * (x[i] - m->start[i]);
    return sum;
}

static sl_status read_bench(struct plan_run *r, struct machine *m, sl_err *err)
{
    struct plan_bytes b;
    const struct json *root;
    void *mem;
    SL_TRY(plan_slurp(r, r->o->bench, &b, err));
    SL_TRY(text_json_parse(r->a, b.name, b.p, b.n, &root, err));
    if (root->kind != JSON_ARRAY_K || root->n < 3) {
        return SL_FAIL(err, FORMAT, "%s: an array of three tests or more is needed", b.name);
    }
    SL_TRY(mem_arena_array(r->a, root->n, sizeof *m->p, &mem, err));
    m->p = mem;
    for (const struct json *o = root->child; o; o = o->next) {
        struct plan_point *p = &m->p[m->n];
        const char *test;
        SL_TRY(text_json_str(o, "test", "", &test, err));
        if (strncmp(test, "pp", 2) && strncmp(test, "tg", 2)) continue;
        p->prefill = test[0] == 'p';
        p->tokens = strtod(test + 2, NULL);
        SL_TRY(text_json_real(o, "batch", 1, &p->batch, err));
        SL_TRY(text_json_real(o, "depth", 0, &p->depth, err));
        SL_TRY(text_json_real(o, "tps", 0, &p->tps, err));
        SL_TRY(text_json_real(o, "probe_gbps", 0, &p->probe, err));
        SL_TRY(text_json_real(o, "probe_gops", 0, &p->probe_gops, err));
        SL_TRY(text_json_real(o, "threads", 0, &p->threads, err));
        SL_TRY(text_json_real(o, "bytes_per_step", 0, &p->bytes, err));
        if (!(p->tps > 0) || !(p->tokens > 0) || !(p->batch > 0)) {
            return SL_FAIL(err, FORMAT, "%s: test %.20s: tps, batch and tokens must be above zero",
                           b.name, test);
        }
        m->n++;
    }
    if (m->n < 3)
        return SL_FAIL(err, FORMAT, "%s: %d tests named ppN or tgN, three are needed", b.name,
                       m->n);
    return SL_OK;
}

/* What a point says about the cost of context: with a prompt among the points, which tells the
 * products, four sequences at the largest depth (short steps, which other programs interrupt less);
 * else the largest batch there. */
static double depth_rank(const struct plan_point *p, bool prompts)
{
    double far = fabs(log2(p->batch / 4));
    return prompts ? 1e3 * (1 + p->depth) - far : p->batch * (1 + p->depth);
}

/* One sequence without depth, one deep point, the prompt next to 512 tokens, which is long enough
 * for full tiles and has little attention (or the first point left). */
static void choose(struct machine *m)
{
    int one = 0, deep = 0, pre = -1;
    bool prompts = false;
    for (int i = 0; i < m->n; i++)
        prompts = prompts || m->p[i].prefill;
    for (int i = 0; i < m->n; i++) {
        const struct plan_point *p = &m->p[i], *a = &m->p[one], *d = &m->p[deep];
        if (p->prefill) {
            bool nearer = pre < 0 || fabs(log(p->tokens / 512)) < fabs(log(m->p[pre].tokens / 512));
            if (p->depth == 0 && nearer) pre = i;
            continue;
        }
        if (a->prefill || p->batch + p->depth < a->batch + a->depth) one = i;
        if (d->prefill || depth_rank(p, prompts) > depth_rank(d, prompts)) deep = i;
    }
    m->p[one].fit = m->p[deep].fit = true;
    if (pre >= 0) m->p[pre].fit = true;
    for (int i = 0; i < m->n && pre < 0; i++) {
        if (!m->p[i].fit) m->p[i].fit = true, pre = i;
    }
}

/* How alike the tokens of a batch choose their experts: the engine counts the weights that it
 * reads, and two of the fitted points have different batches. Random weights choose much the same
 * for all tokens, text does not. 0: unknown. */
static double spread_of(const struct machine *m)
{
    const struct plan_model *s = m->c.model;
    const struct plan_point *few = NULL, *many = NULL;
    for (int i = 0; i < m->n; i++) {
        const struct plan_point *p = &m->p[i];
        if (!p->fit || p->prefill || !(p->bytes > 0)) continue;
        if (!few || p->batch < few->batch) few = p;
        if (!many || p->batch > many->batch) many = p;
    }
    if (!few || few->batch != 1 || !(many->batch > 1) || s->experts <= s->topk) return 0;
    double one = s->moe_layers * s->p_expert * m->c.fmt.expert / 8, n = s->experts;
    double more = fmax(0, many->bytes - few->bytes) / one;
    double touched = fmin(s->topk + more, 0.999 * n);
    double even = log(1 - touched / n) / log(1 - s->topk / n); /* tokens that would touch so many */
    return fmin(1, fmax(0.01, log(even) / log(many->batch)));
}

static void report(struct plan_run *r, struct machine *m)
{
    double med = 0;
    void *mem;
    if (mem_arena_array(r->a, (size_t)m->n, sizeof(double), &mem, NULL)) return;
    double *err = mem;
    int n = 0;
    bool json = r->o->common.json;
    if (json)
        printf("{\"points\":[");
    else
        printf("%-8s %6s %7s %10s %10s %8s\n", "test", "batch", "depth", "measured", "predicted",
               "error %");
    for (int i = 0; i < m->n; i++) {
        struct plan_point *p = &m->p[i];
        p->got = predict(m, p);
        double e = 100 * (p->got / p->tps - 1);
        if (!p->fit && !isnan(p->tps)) err[n++] = fabs(e);
        char test[24];
        snprintf(test, sizeof test, "%s%.0f", p->prefill ? "pp" : "tg", p->tokens);
        if (json) {
            printf("%s{\"test\":\"%s\",\"batch\":%g,\"depth\":%g,\"predicted\":%.6g,\"fitted\":%s",
                   i ? "," : "", test, p->batch, p->depth, p->got, p->fit ? "true" : "false");
            if (!isnan(p->tps)) printf(",\"tps\":%.6g,\"error_pct\":%.4g", p->tps, e);
            if (p->bytes > 0) printf(",\"bytes_per_step\":%.9g", p->bytes);
            printf("}");
        } else if (isnan(p->tps)) {
            printf("%-8s %6g %7g %10s %10.2f\n", test, p->batch, p->depth, "-", p->got);
        } else {
            printf("%-8s %6g %7g %10.2f %10.2f %+8.1f%s\n", test, p->batch, p->depth, p->tps,
                   p->got, e, p->fit ? "  (fitted)" : "");
        }
    }
    qsort(err, (size_t)n, sizeof *err, compute_by_value);
    if (n > 0) med = n % 2 ? err[n / 2] : 0.5 * (err[n / 2 - 1] + err[n / 2]);
    const double *k = m->c.k.v;
    if (json) {
        printf("],\"n_checked\":%d,\"median_error_pct\":%.4g,\"constants\":{\"cpu_gbps\":%.6g,"
               "\"cpu_tops\":%.6g,"
               "\"eta_kv\":%.6g}}\n",
               n, med, k[PLAN_CPU_GBPS], k[PLAN_CPU_TOPS], k[PLAN_ETA_KV]);
    } else {
        if (n > 0) printf("median error on the %d points that were not fitted: %.1f %%\n", n, med);
        printf("this engine here: %.1f GB/s of weights, %.3f Top/s, %.1f GB/s of KV\n",
               k[PLAN_CPU_GBPS], k[PLAN_CPU_TOPS], k[PLAN_ETA_KV] * k[PLAN_CPU_GBPS]);
    }
}

sl_status plan_read_doctor(struct plan_run *r, double *gbps, double *gops, sl_err *err)
{
    struct plan_bytes b;
    const struct json *root;
    if (!r->o->doctor) return SL_OK;
    SL_TRY(plan_slurp(r, r->o->doctor, &b, err));
    SL_TRY(text_json_parse(r->a, b.name, b.p, b.n, &root, err));
    SL_TRY(text_json_real(root, "read_gbps", *gbps, gbps, err));
    SL_TRY(text_json_real(root, "int8_gops", *gops, gops, err));
    if (!(*gbps > 0 && *gops > 0)) {
        return SL_FAIL(err, FORMAT, "%s: read_gbps and int8_gops must be above zero", b.name);
    }
    return SL_OK;
}

/* A name that the library knows ("demo") becomes its path; a shape of the table stays one. */
static sl_status find_model(struct plan_run *r, sl_err *err)
{
    const char *name = r->o->common.model, *path = name;
    if (!name && r->o->bench) return SL_FAIL(err, REQUEST, "missing option: --model");
    if (name && !plan_is_path(name) && plan_find_model(&r->t, name)) {
        if (!r->o->bench)
            return SL_FAIL(err, REQUEST,
                           "missing option: --bench: %.60s is a shape without weights, so nothing "
                           "can be measured",
                           name);
        return plan_run_model(r, name, err);
    }
    if (!r->o->bench) SL_TRY(engine_find_model(name ? name : "demo", r->a, &path, err));
    return plan_run_model(r, path, err);
}

/* Measure, then append what is only predicted. */
static sl_status run_here(struct plan_run *r, struct machine *m, double *gbps, double *gops,
                          sl_err *err)
{
    static struct plan_measured got;
    enum plan_grid which = !r->o->grid                       ? PLAN_GRID_NONE
                           : strcmp(r->o->grid, "full") == 0 ? PLAN_GRID_FULL
                                                             : PLAN_GRID_SMALL;
    void *mem;
    SL_TRY(plan_measure(&r->o->common, which, &got, err));
    SL_TRY(mem_arena_array(r->a, 64, sizeof *m->p, &mem, err));
    m->p = mem, m->n = got.n;
    memcpy(m->p, got.p, (size_t)got.n * sizeof *m->p);
    *gbps = got.gbps, *gops = got.gops;
    if (!r->o->common.json)
        printf("probes with %d threads: reads %.1f GB/s, 8-bit products %.0f Gop/s\n", got.threads,
               got.gbps, got.gops);
    if (which != PLAN_GRID_NONE) return SL_OK;
    static const int batch[] = {1, 2, 4, 8, 16, 32}, depth[] = {0, 1024, 4096};
    for (int d = 0; d < 3; d++) {
        for (int b = 0; b < 6; b++)
            m->p[m->n++] =
                (struct plan_point){.tokens = 16, .batch = batch[b], .depth = depth[d], .tps = NAN};
    }
    for (int len = 128; len <= 8192; len *= 4)
        m->p[m->n++] = (struct plan_point){.prefill = true, .tokens = len, .batch = 1, .tps = NAN};
    for (int i = 0; i < got.n; i++)
        m->p[i].fit = true;
    return SL_OK;
}

/* What a fit works with: room for what it describes, the probes, and whether the points that count
 * are still to be chosen. */
struct here {
    struct plan_device *dev;
    struct plan_model *counted;
    double gbps, gops;
    bool is_choice;
    const struct plan_team *team; /* NULL: operators take what they take */
};

static void fit(const struct plan_run *r, struct machine *m, const struct here *h)
{
    *h->dev = (struct plan_device){
        .vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1, .bw = h->gbps * 1e9, .mem = 16e9};
    h->dev->peak[PLAN_NUM_BF16] = 1e12;
    m->c = (struct plan_case){.model = r->q.model, .dev = h->dev, .team = h->team, .kv_bits = 16};
    if (r->has_real)
        m->c.fmt = r->real;
    else
        plan_format_find(r->o->weights ? r->o->weights : "q4", &m->c.fmt);
    m->c.lay = (struct plan_layout){.cards = 1, .ranks = 1, .tp = 1, .pp = 1, .dp = 1, .ep = 1};
    m->c.k = r->book.prior[PLAN_CPU][PLAN_MODE_CPU];
    m->c.k.mode = PLAN_MODE_CPU;
    m->c.k.v[PLAN_T0] = 0, m->c.k.v[PLAN_T_REQ] = 0, m->c.k.v[PLAN_T_LAYER] = 5;
    if (h->is_choice) choose(m);
    *h->counted = *r->q.model;
    h->counted->spread = spread_of(m);
    m->c.model = h->counted;
    /* 16-bit weights multiply at half the rate of 8 bits; attention works in 16 and 32 bits */
    double unit = m->c.fmt.dense > 15 ? 0.25e-3 : 0.5e-3;
    double x[CONSTS] = {log(h->gbps), log(unit * h->gops), log(0.6), log(0.35e-3 * h->gops)};
    double step[CONSTS] = {0.3, 0.5, 0.3, 0.3};
    memcpy(m->start, x, sizeof m->start);
    for (int i = 0; i < 4 && m->n > 0; i++)
        plan_minimise(cost, m, x, step, CONSTS, 800);
    cost(m, x);
}

/* The middle one of what the probes beside each test say, where all have some. */
static void probes_of(const struct machine *m, struct plan_speed *s)
{
    double v[64];
    int n = BASE_MIN(m->n, 64);
    double gbps = 0, gops = 0;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < n; k++)
            v[k] = i ? m->p[k].probe_gops : m->p[k].probe;
        qsort(v, (size_t)n, sizeof *v, compute_by_value);
        if (n == 0 || !(v[0] > 0)) return;
        *(i ? &gops : &gbps) = v[n / 2];
    }
    *s = (struct plan_speed){gbps, gops};
}

sl_status plan_here(struct plan_run *r, struct plan_speed *s, struct plan_consts *k, sl_err *err)
{
    struct machine m = {0};
    struct plan_device dev;
    struct plan_model counted;
    if (r->o->bench) SL_TRY(read_bench(r, &m, err));
    probes_of(&m, s);
    struct plan_team one = r->q.links;
    one.rank = NULL; /* what was measured is the device itself */
    fit(r, &m, &(struct here){&dev, &counted, s->gbps, s->gops, m.n > 0, r->q.team ? &one : NULL});
    r->model = counted;
    r->q.model = &r->model;
    *k = m.c.k;
    return SL_OK;
}

int plan_cmd_machine(struct plan_run *r)
{
    sl_err err;
    struct machine m = {0};
    if (r->o->grid && strcmp(r->o->grid, "small") != 0 && strcmp(r->o->grid, "full") != 0)
        return cmd_usage("bad value: --grid %.20s: small or full", r->o->grid);
    if (r->o->grid && r->o->bench)
        return cmd_usage("contradiction: --grid measures, --bench is a file");
    double gbps = 50, gops = 400;
    sl_status st = find_model(r, &err);
    if (st == SL_OK && r->o->bench)
        st = read_bench(r, &m, &err);
    else if (st == SL_OK)
        st = run_here(r, &m, &gbps, &gops, &err);
    for (int i = 0; i < m.n && st == SL_OK; i++) {
        if (m.p[i].probe > 0) gbps = m.p[i].probe;
    }
    if (st == SL_OK) st = plan_read_doctor(r, &gbps, &gops, &err);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    struct plan_device dev;
    struct plan_model counted;
    fit(r, &m, &(struct here){&dev, &counted, gbps, gops, r->o->bench || r->o->grid, NULL});
    report(r, &m);
    return CMD_OK;
}
