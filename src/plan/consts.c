/* SPDX-License-Identifier: Apache-2.0 */
/* The names and priors of the engine's constants, choosing a set, and fitting. */
#include "plan/consts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plan/plan_internal.h"

const char *const plan_key_name[PLAN_KEYS] = {
    [PLAN_T_LAYER] = "t_layer_us",
    [PLAN_T_MULTI] = "t_multi_us",
    [PLAN_ETA_W] = "eta_w",
    [PLAN_ETA_KV] = "eta_kv",
    [PLAN_T0] = "t0_s",
    [PLAN_T_REQ] = "t_req_s",
    [PLAN_MFU] = "mfu",
    [PLAN_ETA_A] = "eta_a",
    [PLAN_CPU_GBPS] = "cpu_bw",
    [PLAN_CPU_TOPS] = "cpu_ops",
    [PLAN_T_TL] = "t_tl_us",
    [PLAN_T_DRAFT] = "t_draft_us",
    [PLAN_SOFT] = "soft",
    [PLAN_CHUNK] = "chunk",
    [PLAN_BUS] = "bus",
};

static void set_prior(struct plan_book *b, enum plan_vendor v, enum plan_mode m, const double *x)
{
    struct plan_consts *k = &b->prior[v][m];
    k->vendor = v, k->mode = m, k->gen = 1;
    memcpy(k->v, x, sizeof k->v);
}

void plan_book_init(struct plan_book *b)
{
    *b = (struct plan_book){.sigma_prior = 0.35};
    /*                    layer multi eta_w eta_kv t0    t_req  mfu   eta_a gbps tops t_tl draft
     * soft chunk bus */
    const double ascend_tp[PLAN_KEYS] = {500, 70, 0.50, 0.5, 0.20, 0.02,  0.35, 0.65,
                                         1,   1,  2,    50,  1.8,  16384, 1};
    const double nvidia_tp[PLAN_KEYS] = {150, 40, 0.60, 0.7, 0.08, 0.01, 0.50, 0.65,
                                         1,   1,  0.5,  12,  1.8,  8192, 1};
    const double other_tp[PLAN_KEYS] = {150, 60, 0.50, 0.5, 0.15, 0.02, 0.35, 0.50,
                                        1,   1,  1,    15,  1.8,  8192, 1};
    const double ascend_ep[PLAN_KEYS] = {150, 10, 0.70, 0.6, 0.10, 0.005, 0.30, 0.65,
                                         1,   1,  3,    50,  1.8,  16384, 1};
    const double nvidia_ep[PLAN_KEYS] = {150, 10, 0.75, 0.7, 0.05, 0.002, 0.33, 0.65,
                                         1,   1,  1.2,  20,  1.8,  16384, 1};
    const double ascend_hy[PLAN_KEYS] = {300, 50, 0.60, 0.5, 0.20, 0.05, 0.30, 0.65,
                                         1,   1,  1,    20,  1.8,  8192, 1};
    const double nvidia_hy[PLAN_KEYS] = {100, 20, 0.60, 0.5, 0.05, 0.02, 0.30, 0.65,
                                         1,   1,  0.5,  12,  1.8,  8192, 1};
    const double cpu[PLAN_KEYS] = {50, 10, 1.0, 0.6, 0.05, 0.01, 1.0, 0.50,
                                   1,  1,  3,   20,  1.8,  512,  1};
    for (int v = 0; v < PLAN_VENDOR_COUNT; v++) {
        bool npu = v == PLAN_ASCEND, nv = v == PLAN_NVIDIA;
        b->gen_factor[v][0] = npu ? 1.4 : 2.5;
        b->gen_factor[v][1] = 1;
        b->gen_factor[v][2] = npu ? 0.45 : 0.7;
        set_prior(b, v, PLAN_MODE_TP, npu ? ascend_tp : nv ? nvidia_tp : other_tp);
        if (v == PLAN_APPLE) b->prior[v][PLAN_MODE_TP].v[PLAN_MFU] = 0.45;
        set_prior(b, v, PLAN_MODE_EP, npu ? ascend_ep : nvidia_ep);
        set_prior(b, v, PLAN_MODE_HYBRID, npu ? ascend_hy : nvidia_hy);
        set_prior(b, v, PLAN_MODE_CPU, cpu);
    }
}

/* GB/s and Top/s that expert products reach on a host, before an engine's factor: cores and memory
 * in series. */
static void bind_host(const struct plan_host *h, struct plan_consts *k)
{
    double bw = h ? h->bw : 200e9, cores = h && h->cores > 0 ? h->cores : 32;
    double reach = 1 / (1 / (cores * 6e9) + 1 / bw);
    double ops = h && h->ops > 0 ? fmin(h->ops, 10e12) : fmin(5e12, cores * 0.15e12);
    k->v[PLAN_CPU_GBPS] *= reach * 1e-9;
    k->v[PLAN_CPU_TOPS] *= ops * 1e-12;
}

void plan_consts_for(const struct plan_book *b, const struct plan_setup *s, struct plan_consts *k)
{
    const struct plan_set *best = NULL;
    int score = 0;
    enum plan_mode mode = s->c.k.mode;
    for (int i = 0; i < b->n_set; i++) {
        const struct plan_consts *c = &b->set[i].k;
        if (c->mode != mode || strcasecmp(c->engine, s->engine) != 0) continue;
        if (strcasecmp(c->device, s->device) != 0) continue;
        bool same = strcasecmp(c->model, s->c.model->name) == 0;
        int now = c->model[0] == '\0' ? 1 : same ? 2 : 0;
        if (now > score) score = now, best = &b->set[i];
    }
    if (best) {
        *k = best->k;
        k->trust = PLAN_CALIBRATED;
        bool known =
            !strcasecmp(k->taught, s->c.model->name) || !strcasecmp(k->model, s->c.model->name);
        if (!known || (*k->format && strcasecmp(k->format, s->c.fmt.name) != 0)) {
            /* another model or weights than it was fitted on: 9 % was seen, see the acceptance
             * table */
            k->sigma_decode = hypot(k->sigma_decode, 0.12);
            k->sigma_prefill = hypot(k->sigma_prefill, 0.15);
            k->trust = known ? PLAN_CALIBRATED : PLAN_SAME_PLATFORM;
        }
        bind_host(s->c.host, k);
        return;
    }
    plan_prior_for(b, s, k);
    bind_host(s->c.host, k);
}

void plan_prior_for(const struct plan_book *b, const struct plan_setup *s, struct plan_consts *k)
{
    enum plan_mode mode = s->c.k.mode;
    *k = b->prior[s->dev.vendor][mode];
    k->v[PLAN_T_LAYER] *= b->gen_factor[s->dev.vendor][s->gen];
    k->v[PLAN_T_MULTI] *= b->gen_factor[s->dev.vendor][s->gen];
    if (mode == PLAN_MODE_EP && s->dev.vendor == PLAN_ASCEND && !s->dev.a3) {
        /* without the unified bus, expert parallelism is launched like tensor parallelism */
        double tp = b->prior[PLAN_ASCEND][PLAN_MODE_TP].v[PLAN_T_LAYER] *
                    b->gen_factor[PLAN_ASCEND][s->gen];
        k->v[PLAN_T_LAYER] = fmax(k->v[PLAN_T_LAYER], 0.8 * tp);
    }
    if (mode == PLAN_MODE_EP && s->dev.vendor == PLAN_NVIDIA && s->dev.link >= 600e9) {
        k->v[PLAN_T_LAYER] *= 0.6; /* one switch for all: no proxy threads, no RDMA */
    }
    if (s->gen != 1) k->v[PLAN_ETA_W] = fmin(0.85, k->v[PLAN_ETA_W] * (s->gen ? 1.3 : 0.6));
    bool soft4 = s->c.fmt.fp_weights && s->c.fmt.expert < 5 && s->dev.peak[PLAN_NUM_FP4] <= 0;
    if (s->gen == 0 && soft4 && s->dev.vendor != PLAN_ASCEND)
        k->v[PLAN_ETA_W] *= 0.5; /* unpacked in shader code */
    if (mode == PLAN_MODE_TP && s->c.lay.tp == 1 && s->c.lay.pp == 1) {
        k->v[PLAN_ETA_W] = fmin(0.75, 1.8 * k->v[PLAN_ETA_W]); /* whole experts, no slices */
        k->v[PLAN_T_LAYER] *= 0.5;                             /* one process, nobody to wait for */
    }
    if (s->dev.consumer &&
        mode == PLAN_MODE_TP) { /* desktop engines: dense products are good, grouped ones are not */
        k->v[PLAN_MFU] = fmin(0.75, k->v[PLAN_MFU] * (s->c.model->experts > 0 ? 0.4 : 1.3));
        k->v[PLAN_T0] *= 0.3; /* no server in between */
    }
    k->gen = s->gen;
    k->sigma_decode = k->sigma_prefill = b->sigma_prior;
    k->trust = PLAN_UNCALIBRATED;
    for (int i = 0; i < b->n_set; i++) {
        const struct plan_consts *c = &b->set[i].k;
        if (c->mode == mode && c->vendor == s->dev.vendor) k->trust = PLAN_SAME_PLATFORM;
    }
}

double plan_minimise(double (*f)(void *user, const double *x), void *user, double *x0,
                     const double *step, int n, int max_eval)
{
    enum { MAX = 8 };
    double p[MAX + 1][MAX], y[MAX + 1];
    int used = 0;
    for (int i = 0; i <= n; i++) {
        memcpy(p[i], x0, (size_t)n * sizeof *x0);
        if (i > 0) p[i][i - 1] += step[i - 1];
        y[i] = f(user, p[i]), used++;
    }
    while (used < max_eval) {
        int lo = 0, hi = 0, nh = 0;
        for (int i = 1; i <= n; i++) {
            if (y[i] < y[lo]) lo = i;
            if (y[i] >= y[hi]) hi = i;
        }
        nh = lo;
        for (int i = 0; i <= n; i++) {
            if (i != hi && y[i] >= y[nh]) nh = i;
        }
        if (fabs(y[hi] - y[lo]) <= 1e-12 * (fabs(y[hi]) + 1e-12)) break;
        double c[MAX] = {0}, r[MAX], e[MAX];
        for (int i = 0; i <= n; i++) {
            for (int j = 0; j < n && i != hi; j++)
                c[j] += p[i][j] / n;
        }
        for (int j = 0; j < n; j++)
            r[j] = 2 * c[j] - p[hi][j];
        double yr = f(user, r);
        used++;
        if (yr < y[lo]) {
            for (int j = 0; j < n; j++)
                e[j] = 3 * c[j] - 2 * p[hi][j];
            double ye = f(user, e);
            used++;
            memcpy(p[hi], ye < yr ? e : r, sizeof r);
            y[hi] = fmin(ye, yr);
            continue;
        }
        if (yr < y[nh] && n > 1) {
            memcpy(p[hi], r, sizeof r), y[hi] = yr;
            continue;
        }
        if (yr < y[hi]) memcpy(p[hi], r, sizeof r), y[hi] = yr;
        for (int j = 0; j < n; j++)
            e[j] = 0.5 * (c[j] + p[hi][j]);
        double ye = f(user, e);
        used++;
        if (ye < y[hi]) {
            memcpy(p[hi], e, sizeof e), y[hi] = ye;
            continue;
        }
        for (int i = 0; i <= n; i++) {
            for (int j = 0; j < n && i != lo; j++)
                p[i][j] = 0.5 * (p[i][j] + p[lo][j]);
            if (i != lo) y[i] = f(user, p[i]), used++;
        }
    }
    int lo = 0;
    for (int i = 1; i <= n; i++) {
        if (y[i] < y[lo]) lo = i;
    }
    memcpy(x0, p[lo], (size_t)n * sizeof *x0);
    return y[lo];
}

struct fit_state {
    const struct plan_fit *f;
    const double *width;
    double prior[PLAN_KEYS];
    int key[8], n;
};

void plan_use_consts(struct plan_setup *s, const struct plan_consts *k)
{
    enum plan_mode mode = s->c.k.mode;
    s->c.k = *k;
    s->c.k.mode = mode;
    bind_host(s->c.host, &s->c.k);
}

static double rows_error(const struct plan_fit *f)
{
    double sum = 0;
    for (int i = 0; i < f->n; i++) {
        struct plan_setup *s = f->row[i];
        plan_use_consts(s, f->k);
        double got = plan_row_predict(s), e = got > 0 ? log(got / f->want[i]) : 10;
        sum +=
            e * e /
            (0.05 + fabs(e)); /* squares when small, plain when large: one wild row cannot rule */
    }
    return f->n > 0 ? sum / f->n : 0;
}

static double fit_cost(void *user, const double *x)
{
    struct fit_state *st = user;
    double pull = 0;
    for (int i = 0; i < st->n; i++) {
        if (fabs(x[i]) > 6) return 1e3;
        int key = st->key[i];
        st->f->k->v[key] = st->prior[key] * exp(x[i]);
        double z = x[i] / (st->width ? st->width[key] : 1.0);
        pull += z * z;
    }
    return rows_error(st->f) + st->f->lambda * pull / fmax(1, st->f->n);
}

double plan_fit_keys(const struct plan_fit *f, const double *width)
{
    struct fit_state st = {.f = f, .width = width};
    double x[8] = {0}, step[8];
    memcpy(st.prior, f->k->v, sizeof st.prior);
    for (int k = 0; k < PLAN_KEYS && st.n < 8; k++) {
        if (f->mask >> k & 1) st.key[st.n++] = k;
    }
    for (int round = 0; round < 3;
         round++) { /* restarts leave the flats where one simplex stalls */
        for (int i = 0; i < st.n; i++)
            step[i] = round == 1 ? -0.3 : 0.3;
        plan_minimise(fit_cost, &st, x, step, st.n, 900);
    }
    fit_cost(&st, x);
    f->k->fitted |= f->mask;
    return rows_error(f);
}
