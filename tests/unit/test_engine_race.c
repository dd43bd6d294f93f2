/* SPDX-License-Identifier: Apache-2.0 */
/* The draw: its distribution, that skipping skips nothing that could win, and that a seed means the
 * same everywhere. SLUICE_DRAWS: draws of each distribution (a million in the release list);
 * SLUICE_SEED: other ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp_math.h"
#include "base/hash.h"
#include "base/rng.h"
#include "engine/engine_internal.h"
#include "test.h"

#define V 50

static sl_err err;

static double uniform(uint64_t *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

static int n_draws(void)
{
    const char *s = getenv("SLUICE_DRAWS");
    return s ? atoi(s) : 40000;
}

static uint64_t first_seed(void)
{
    const char *s = getenv("SLUICE_SEED");
    return s ? strtoull(s, NULL, 10) : 0;
}

/* P(chi-square of df degrees > x): the upper incomplete gamma function by its continued fraction or
 * series. */
static double chi_p(double x, int df)
{
    double a = 0.5 * df, y = 0.5 * x, front = exp(a * log(y) - y - lgamma(a));
    if (y < a + 1) {
        double term = 1 / a, sum = term;
        for (int i = 1; i < 1000; i++)
            sum += term *= y / (a + i);
        return 1 - front * sum;
    }
    double b = y + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 1000; i++) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
    }
    return front * h;
}

/* Of counts against probabilities; cells of fewer than five are taken together. */
static double chi_of(const int *n, const double *p, int cells, int total)
{
    double x = 0, rest_p = 0, rest_n = 0;
    int df = -1;
    for (int i = 0; i < cells; i++) {
        double want = p[i] * total;
        if (p[i] == 0) assert_int_equal(n[i], 0);
        if (want < 5) {
            rest_p += want;
            rest_n += n[i];
            continue;
        }
        x += (n[i] - want) * (n[i] - want) / want;
        df++;
    }
    if (rest_p >= 5) {
        x += (rest_n - rest_p) * (rest_n - rest_p) / rest_p;
        df++;
    }
    return chi_p(x, df);
}

static const double *weight;

static int heavier(const void *a, const void *b)
{
    int i = *(const int *)a, k = *(const int *)b;
    return weight[i] != weight[k] ? (weight[i] < weight[k]) - (weight[i] > weight[k]) : i - k;
}

/* What the filters promise, in other words than sample.c's. */
static void exact(const float *logit, const sl_sampling *s, double *p)
{
    int at[V], n = V, k = 0;
    double z = 0, kept = 0;
    float top = -INFINITY;
    for (int i = 0; i < V; i++)
        top = fmaxf(top, logit[i]);
    for (int i = 0; i < V; i++) {
        p[i] = exp(((double)logit[i] - (double)top) / (double)s->temperature);
        at[i] = i;
    }
    weight = p;
    qsort(at, V, sizeof *at, heavier);
    while (n > 1 && s->min_p > 0 && p[at[n - 1]] < (double)s->min_p)
        n--;
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    for (int i = 0; i < n; i++)
        z += p[at[i]];
    while (k < n && (!(s->top_p > 0) || kept < (double)s->top_p * z))
        kept += p[at[k++]];
    for (int i = 0; i < V; i++)
        p[at[i]] = i < k ? p[at[i]] / kept : 0;
}

struct rig {
    struct engine_sampler s;
    float logit[V];
    sl_sampling p;
    struct engine_draw d;
};

static void rig_open(struct rig *r)
{
    uint64_t rng = 11;
    memset(r, 0, sizeof *r);
    ASSERT_OK(engine_sampler_init(&r->s, V, &err));
    for (int i = 0; i < V; i++)
        r->logit[i] = (float)(4 * log(uniform(&rng) + 1e-9));
    r->d = (struct engine_draw){.logit = r->logit, .p = &r->p};
}

static int32_t draw(struct rig *r, uint64_t stream, uint64_t index)
{
    int32_t t = -1;
    r->d.stream = stream;
    r->d.index = index;
    ASSERT_OK(engine_sample(&r->s, &r->d, &t, &err));
    return t;
}

TEST(engine_draws_pass_chi_square_at_every_temperature_and_filter)
{
    static const float temp[] = {0.3f, 1, 1.5f};
    static const sl_sampling filter[] = {{.seed = 1},
                                         {.seed = 2, .top_k = 10},
                                         {.seed = 3, .top_p = 0.9f},
                                         {.seed = 4, .min_p = 0.02f},
                                         {.seed = 5, .top_k = 30, .top_p = 0.95f, .min_p = 0.001f}};
    struct rig r;
    int total = n_draws();
    double least = 1;
    rig_open(&r);
    for (int f = 0; f < BASE_COUNT_OF(filter); f++)
        for (int t = 0; t < BASE_COUNT_OF(temp); t++) {
            int n[V] = {0};
            double p[V];
            r.p = filter[f];
            r.p.temperature = temp[t];
            r.p.seed += first_seed();
            exact(r.logit, &r.p, p);
            for (int i = 0; i < total; i++)
                n[draw(&r, 0, (uint64_t)i)]++;
            double got = chi_of(n, p, V, total);
            if (!(got > 0.001)) fail_msg("filter %d, temperature %d: p = %g", f, t, got);
            least = fmin(least, got);
        }
    print_message("%d draws of each distribution: the least p is %.4f\n", total, least);
    engine_sampler_fini(&r.s);
}

TEST(engine_draws_of_neighbours_are_independent)
{
    struct rig r;
    int total = n_draws();
    rig_open(&r);
    r.p = (sl_sampling){.temperature = 1, .seed = 77, .top_k = 5};
    double p[V], pair[V * V];
    exact(r.logit, &r.p, p);
    for (int i = 0; i < V * V; i++)
        pair[i] = p[i / V] * p[i % V];
    for (int how = 0; how < 3; how++) { /* the next token, sample, seed */
        static int n[V * V];
        memset(n, 0, sizeof n);
        for (int i = 0; i < total; i++) {
            r.p.seed = 77;
            int a = draw(&r, 0, 2 * (uint64_t)i);
            r.p.seed += how == 2;
            n[a * V + draw(&r, how == 1, 2 * (uint64_t)i + (how == 0))]++;
        }
        double got = chi_of(n, pair, V * V, total);
        if (!(got > 0.001)) fail_msg("neighbour %d: p = %g", how, got);
    }
    engine_sampler_fini(&r.s);
}

/* The race without any skipping. */
static int32_t plain(const float *z, int n, const struct engine_draw *d)
{
    double best = -INFINITY;
    int32_t id = -1;
    for (int i = 0; i < n; i++) {
        uint32_t w[4];
        rng_philox(d->p->seed, d->stream << 32 | d->index, (uint64_t)i / 4, w);
        double s = (double)z[i] - fp_log(-fp_log((0x1p32 - 0.5 - (double)w[i % 4]) * 0x1p-32));
        if (s > best) best = s, id = i;
    }
    return id;
}

TEST(engine_race_skips_nobody_who_wins)
{
    enum { N = 3001 }; /* not whole tiles */
    static float z[N];
    static struct engine_cand c[N];
    uint64_t rng = 3;
    sl_sampling p = {.seed = 9};
    struct engine_draw d = {.p = &p};
    static const float scale[] = {0, 0.5f, 3, 20, 60, 3000};
    int n_other = 0;
    for (int round = 0; round < 600; round++) {
        int best = 0;
        for (int i = 0; i < N; i++) {
            z[i] = -scale[round % 6] * (float)uniform(&rng);
            if (round % 5 == 0 && i % 3) z[i] = -INFINITY;
            if (z[i] > z[best]) best = i;
        }
        float top = z[best];
        int n = 0;
        for (int i = 0; i < N; i++)
            z[i] -= top;
        for (int i = N - 1; i >= 0; i--) /* in another order */
            if (z[i] > -INFINITY) c[n++] = (struct engine_cand){z[i], i};
        d.index = (uint64_t)round;
        d.stream = (uint64_t)round % 4;
        int32_t want = plain(z, N, &d);
        assert_int_equal(engine_race_all(z, N, best, &d), want);
        assert_int_equal(engine_race(c, n, &d), want);
        n_other += want != best;
    }
    assert_true(n_other > 300);
}

TEST(engine_seeds_mean_the_same_on_every_machine)
{
    enum { N = 1000 };
    static float logit[N];
    struct engine_sampler s;
    int32_t token[256];
    uint64_t rng = 21;
    ASSERT_OK(engine_sampler_init(&s, N, &err));
    for (int i = 0; i < N; i++) /* whole multiples of 1/64: no libm here */
        logit[i] = (float)(int)(rng_next(&rng) % 640) * 0x1p-6f;
    for (int i = 0; i < 256; i++) {
        sl_sampling p = {.seed = (uint64_t)i * 12345};
        p.temperature = 0.25f + 0.25f * (float)(i % 5);
        if (i % 4 == 1) p.top_k = 40;
        if (i % 4 == 2) p.top_p = 0.9f;
        if (i % 4 == 3) p.min_p = 0.1f;
        struct engine_draw d = {.logit = logit, .p = &p, .stream = (uint64_t)i % 3, .index = 7};
        ASSERT_OK(engine_sample(&s, &d, &token[i], &err));
    }
    assert_int_equal(hash_bytes(token, sizeof token, 0), 0x67e4c8748c4cbe98u);
    engine_sampler_fini(&s);
}
