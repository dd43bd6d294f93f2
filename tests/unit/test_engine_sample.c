/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler: distributions, seeds, penalties, logprobs and stop strings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/argmax.h"
#include "base/fp_math.h"
#include "base/rng.h"
#include "engine/engine_internal.h"
#include "test.h"

static sl_err err;

struct rig {
    struct engine_sampler s;
    float *logit;
    sl_sampling p;
    struct engine_draw d;
};

static void rig_open(struct rig *r, int n_vocab)
{
    memset(r, 0, sizeof *r);
    ASSERT_OK(engine_sampler_init(&r->s, n_vocab, &err));
    r->logit = calloc((size_t)n_vocab, sizeof *r->logit);
    assert_non_null(r->logit);
    r->d = (struct engine_draw){.logit = r->logit, .p = &r->p};
}

static void rig_close(struct rig *r)
{
    for (int i = 0; i < r->s.n_vocab; i++)
        assert_int_equal(r->s.count[i], 0);
    free(r->logit);
    engine_sampler_fini(&r->s);
}

static int32_t draw(struct rig *r, uint64_t index)
{
    int32_t t = -1;
    r->d.index = index;
    ASSERT_OK(engine_sample(&r->s, &r->d, &t, &err));
    assert_in_range(t, 0, r->s.n_vocab - 1);
    return t;
}

static void noise(struct rig *r, uint64_t seed, float scale)
{
    for (int i = 0; i < r->s.n_vocab; i++)
        r->logit[i] = scale * (float)((double)(rng_next(&seed) >> 11) * 0x1p-53 - 0.5);
}

TEST(engine_greedy_takes_the_lowest_of_equals)
{
    struct rig r;
    rig_open(&r, 10);
    r.logit[3] = r.logit[7] = 2;
    assert_int_equal(draw(&r, 0), 3);
    int32_t no[] = {3};
    r.d.forbid[0] = no;
    r.d.n_forbid[0] = 1;
    assert_int_equal(draw(&r, 0), 7);
    rig_close(&r);
}

TEST(engine_draws_follow_the_distribution)
{
    struct rig r;
    static const float p[4] = {0.1f, 0.2f, 0.3f, 0.4f};
    rig_open(&r, 4);
    r.p.temperature = 1;
    r.p.seed = 5;
    for (int filtered = 0; filtered < 2; filtered++) {
        int n[4] = {0};
        r.p.top_k = filtered ? 4 : 0;
        r.p.min_p = filtered ? 1e-6f : 0;
        for (int i = 0; i < 4; i++)
            r.logit[i] = logf(p[i]);
        for (int i = 0; i < 40000; i++)
            n[draw(&r, (uint64_t)i)]++;
        for (int i = 0; i < 4; i++) /* five standard deviations */
            assert_true(fabs(n[i] - 40000.0 * (double)p[i]) <
                        5 * sqrt(40000.0 * (double)p[i] * (1 - (double)p[i])));
    }
    rig_close(&r);
}

TEST(engine_temperature_sharpens)
{
    struct rig r;
    rig_open(&r, 2);
    r.logit[1] = 1;
    r.p.temperature = 0.25f; /* odds e^4 */
    int n = 0;
    for (int i = 0; i < 20000; i++)
        n += draw(&r, (uint64_t)i);
    double want = 20000 / (1 + exp(-4));
    assert_true(fabs(n - want) < 5 * sqrt(want * exp(-4)));
    rig_close(&r);
}

TEST(engine_filters_keep_what_they_should)
{
    struct rig r;
    rig_open(&r, 6);
    static const float p[6] = {0.05f, 0.4f, 0.25f, 0.15f, 0.1f, 0.05f};
    for (int i = 0; i < 6; i++)
        r.logit[i] = logf(p[i]);
    static const struct {
        int top_k;
        float top_p, min_p;
        unsigned keep; /* bit per id */
    } t[] = {{1, 0, 0, 0x02},     {2, 0, 0, 0x06},         {0, 0.4f, 0, 0x02}, {0, 0.41f, 0, 0x06},
             {0, 0.79f, 0, 0x0e}, {0, 0, 0.3f, 0x0e},      {0, 0, 1, 0x02},    {3, 0.7f, 0, 0x06},
             {0, 1, 0, 0x3f},     {0, 0.000001f, 0, 0x02}, {100, 0, 0, 0x3f},  {5, 0, 0, 0x1f},
             {4, 1, 0.2f, 0x1e}};
    r.p.temperature = 1;
    for (int k = 0; k < BASE_COUNT_OF(t); k++) {
        unsigned seen = 0;
        r.p.top_k = t[k].top_k;
        r.p.top_p = t[k].top_p;
        r.p.min_p = t[k].min_p;
        for (int i = 0; i < 3000; i++)
            seen |= 1u << draw(&r, (uint64_t)i);
        if (seen != t[k].keep) fail_msg("row %d: kept %x, not %x", k, seen, t[k].keep);
    }
    rig_close(&r);
}

TEST(engine_draws_depend_on_seed_and_index_only)
{
    struct rig r;
    int32_t a[50];
    rig_open(&r, 1000);
    noise(&r, 3, 8);
    r.p.temperature = 1;
    r.p.seed = 42;
    for (int i = 0; i < 50; i++)
        a[i] = draw(&r, (uint64_t)i);
    for (int i = 49; i >= 0; i--)
        assert_int_equal(draw(&r, (uint64_t)i), a[i]);
    r.p.seed = 43;
    int same = 0;
    for (int i = 0; i < 50; i++)
        same += draw(&r, (uint64_t)i) == a[i];
    assert_true(same < 10);
    rig_close(&r);
}

TEST(engine_penalties_and_bias_change_the_choice)
{
    struct rig r;
    int32_t known[] = {0, 1, 1, 2};
    rig_open(&r, 4);
    r.d.known = known;
    r.d.n_known = 4;
    r.d.n_prompt = 2; /* the answer so far: 1, 2 */
    memcpy(r.logit, (float[]){4, 3.5f, 3.4f, 3}, 4 * sizeof(float));
    assert_int_equal(draw(&r, 0), 0);
    r.p.repeat_penalty = 1.2f; /* 0, 1, 2 were seen: 3.33, 2.9, 2.8 */
    assert_int_equal(draw(&r, 0), 0);
    r.p.repeat_penalty = 1.5f;
    assert_int_equal(draw(&r, 0), 3);
    r.p.repeat_penalty = 0;
    memcpy(r.logit, (float[]){3.0f, 3.5f, 3.4f, 2.9f}, 4 * sizeof(float));
    r.p.presence_penalty = 0.6f; /* 1: 2.9, 2: 2.8 */
    assert_int_equal(draw(&r, 0), 0);
    r.p.presence_penalty = 0;
    r.d.n_prompt = 0; /* 0 once, 1 twice, 2 once */
    r.p.frequency_penalty = 0.3f;
    assert_int_equal(draw(&r, 0), 2);
    r.p.frequency_penalty = 0;
    sl_bias b[] = {{1, -100}, {2, -1}, {3, 0.2f}};
    r.p.bias = b;
    r.p.n_bias = 3;
    assert_int_equal(draw(&r, 0), 3);
    rig_close(&r);
}

TEST(engine_degenerate_logits_give_a_valid_id_or_an_error) /* docs/reliability.md P6 */
{
    struct rig r;
    uint64_t rng = 9;
    int n_ok = 0, n_err = 0;
    static const float odd[] = {-INFINITY, INFINITY, NAN, 0, -0.0f, 3e38f, -3e38f, 1e-45f};
    rig_open(&r, 7);
    for (int i = 0; i < 1000000; i++) {
        int mode = (int)(rng_next(&rng) % 6), bad = 0, possible = 0;
        for (int k = 0; k < 7; k++) {
            uint64_t x = rng_next(&rng);
            float v = mode == 0   ? -INFINITY
                      : mode == 1 ? 1.5f
                      : mode == 2 ? odd[x % 8]
                      : mode == 3 ? odd[x % 2]
                                  : odd[x % 2 ? 3 + x % 5 : 0];
            r.logit[k] = v;
            bad |= v != v;
            possible |= v > -INFINITY;
        }
        uint64_t x = rng_next(&rng);
        r.p = (sl_sampling){.temperature = x % 3 ? (x % 5 ? 1.0f : 1e-40f) : 0,
                            .top_k = (int)(x >> 8) % 3,
                            .top_p = (x >> 16) % 2 ? 0.5f : 1,
                            .min_p = (x >> 17) % 2 ? 0.1f : 0,
                            .seed = x};
        int32_t t = -1;
        sl_status st = engine_sample(&r.s, &r.d, &t, &err);
        assert_int_equal(st, bad || !possible ? SL_INTERNAL : SL_OK);
        if (st)
            n_err++;
        else {
            n_ok++;
            assert_in_range(t, 0, 6);
            assert_true(r.logit[t] > -INFINITY);
        }
    }
    assert_true(n_ok > 100000 && n_err > 100000);
    rig_close(&r);
}

TEST(engine_logprobs_sum_to_one_and_are_sorted) /* docs/reliability.md N8 */
{
    enum { V = 20 };
    float logit[V];
    sl_logprob top[ENGINE_TOP_MAX];
    uint64_t rng = 1;
    for (int i = 0; i < 100000; i++) {
        float scale = i % 3 ? 5.0f : 200.0f, lp;
        for (int k = 0; k < V; k++)
            logit[k] = scale * (float)((double)(rng_next(&rng) >> 11) * 0x1p-53);
        if (i % 7 == 0) logit[i % V] = -INFINITY;
        if (i % 5 == 0) logit[2] = logit[3];
        engine_logprobs(logit, V, i % V, V, &lp, top);
        double sum = 0;
        unsigned seen = 0;
        for (int k = 0; k < V; k++) {
            assert_true(isfinite(top[k].logprob) && top[k].logprob <= 0);
            if (k) assert_true(top[k - 1].logprob >= top[k].logprob);
            if (k && top[k - 1].logprob == top[k].logprob)
                assert_true(top[k - 1].token < top[k].token);
            if (top[k].token == i % V) assert_true(lp == top[k].logprob);
            sum += exp((double)top[k].logprob);
            seen |= 1u << top[k].token;
        }
        assert_true(fabs(sum - 1) < 1e-5);
        assert_int_equal(seen, (1u << V) - 1);
    }
    for (int k = 0; k < V; k++)
        logit[k] = k == 4 ? INFINITY : 0;
    float lp;
    engine_logprobs(logit, V, 4, 2, &lp, top);
    assert_true(lp == 0 && top[0].token == 4 && top[1].logprob == -9999.0f);
}

/* ---- stop strings ---- */

/* The text that comes out when s is fed in random pieces; *stopped as the last scan said. */
static void feed(const char *s, const char *const *stop, int n_stop, uint64_t *rng, struct str *out,
                 bool *stopped)
{
    struct engine_stop st = {.n = n_stop};
    size_t n = strlen(s), i = 0;
    for (int k = 0; k < n_stop; k++)
        st.s[k] = stop[k], st.len[k] = (int)strlen(stop[k]);
    str_init(&st.held, MEM_MISC, 0);
    *stopped = false;
    while (i < n && !*stopped) {
        size_t len = 1 + rng_next(rng) % 5, n_out = 0;
        if (len > n - i) len = n - i;
        str_put(&st.held, s + i, len);
        i += len;
        *stopped = engine_stop_scan(&st, &n_out);
        str_put(out, str_c(&st.held), n_out);
        engine_stop_drop(&st, n_out);
        /* whatever was given out can not be the beginning of a stop string that comes */
        for (int k = 0; k < n_stop; k++)
            assert_null(strstr(str_c(out), stop[k]));
    }
    if (!*stopped) str_put(out, str_c(&st.held), st.held.n);
    str_fini(&st.held);
}

TEST(engine_stop_strings_are_exact_in_any_pieces) /* docs/reliability.md A4 */
{
    static const char *const stops[] = {"ab", "aab", "ba", "abcabc", "c", "aaa", "bcb", "cc"};
    uint64_t rng = 7;
    int n_stopped = 0;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        const char *stop[3];
        struct str out;
        int n = (int)(rng_next(&rng) % 39), n_stop = 1 + (int)(rng_next(&rng) % 3);
        for (int i = 0; i < n; i++)
            text[i] = "abc"[rng_next(&rng) % 3];
        text[n] = 0;
        for (int i = 0; i < n_stop; i++)
            stop[i] = stops[rng_next(&rng) % 8];
        /* the definition: the first byte at which some stop string is complete; the longest of
         * those */
        int want = n;
        bool hit = false;
        for (int end = 1; end <= n && !hit; end++)
            for (int k = 0; k < n_stop; k++) {
                int len = (int)strlen(stop[k]);
                if (len > end || strncmp(text + end - len, stop[k], (size_t)len) != 0) continue;
                if (!hit || end - len < want) want = end - len;
                hit = true;
            }
        bool stopped;
        str_init(&out, MEM_MISC, 0);
        feed(text, stop, n_stop, &rng, &out, &stopped);
        assert_int_equal(stopped, hit);
        if (out.n != (size_t)want)
            fail_msg("%s: stops %s|%s|%s: %zu bytes out, not %d", text, stop[0],
                     n_stop > 1 ? stop[1] : "", n_stop > 2 ? stop[2] : "", out.n, want);
        assert_int_equal(strncmp(str_c(&out), text, out.n), 0);
        n_stopped += hit;
        str_fini(&out);
    }
    assert_true(n_stopped > 1000 && n_stopped < 19900);
}

TEST(engine_stop_holds_back_no_more_than_it_must)
{
    struct engine_stop s = {.n = 1, .s = {"\nUser:"}, .len = {6}};
    size_t n = 0;
    str_init(&s.held, MEM_MISC, 0);
    str_puts(&s.held, "hello\nUs");
    assert_false(engine_stop_scan(&s, &n));
    assert_int_equal(n, 5);
    engine_stop_drop(&s, n);
    str_puts(&s.held, "e it");
    assert_false(engine_stop_scan(&s, &n));
    assert_int_equal(n, 7);
    str_fini(&s.held);
}

/* What draw_filtered promises, by sorting everything: the first to arrive of the kept candidates.
 */
struct plain {
    float v;
    int32_t id;
};

static int best_first(const void *x, const void *y)
{
    const struct plain *a = x, *b = y;
    return a->v != b->v ? (a->v < b->v) - (a->v > b->v) : (a->id > b->id) - (a->id < b->id);
}

static int32_t draw_plainly(const struct rig *r, uint64_t index)
{
    static struct plain c[4000];
    int n = r->s.n_vocab, take = 0;
    float top = -INFINITY;
    double z = 0, kept = 0, best = -INFINITY;
    int32_t id = -1;
    for (int i = 0; i < n; i++)
        top = fmaxf(top, r->logit[i]);
    for (int i = 0; i < n; i++)
        c[i] = (struct plain){(r->logit[i] - top) / r->p.temperature, i};
    if (r->p.top_k > 0) {
        qsort(c, (size_t)n, sizeof *c, best_first);
        n = r->p.top_k < n ? r->p.top_k : n;
    }
    for (int i = 0; i < n; i++)
        z += fp_exp((double)c[i].v);
    qsort(c, (size_t)n, sizeof *c, best_first);
    while (take < n && (take == 0 || !(r->p.top_p < 1) || kept < (double)r->p.top_p * z))
        kept += fp_exp((double)c[take++].v);
    for (int i = 0; i < take; i++) {
        uint32_t w[4];
        rng_philox(r->p.seed, index, (uint64_t)c[i].id / 4, w);
        double e = -fp_log((0x1p32 - 0.5 - (double)w[c[i].id % 4]) * 0x1p-32);
        double s = (double)c[i].v - fp_log(e);
        if (s > best || (s == best && c[i].id < id)) best = s, id = c[i].id;
    }
    return id;
}

TEST(engine_filtered_draws_are_those_of_a_plain_sort)
{
    static const struct {
        int k;
        float p, scale;
    } row[] = {{1, 1, 9},          {7, 1, 9},      {40, 0.9f, 9},   {0, 0.9f, 9},
               {0, 0.999f, 30},    {0, 0.1f, 30},  {3999, 0.5f, 1}, {0, 0.99999f, 1},
               {0, 0.9999999f, 9}, {600, 0.95f, 0}};
    struct rig r;
    rig_open(&r, 4000);
    r.p.temperature = 0.7f;
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        for (uint64_t at = 0; at < 40; at++) {
            noise(&r, at, row[i].scale);
            for (int k = 0; k < 4000; k += 3) /* equals */
                r.logit[k] = roundf(r.logit[k]);
            r.p.top_k = row[i].k;
            r.p.top_p = row[i].p;
            assert_int_equal(draw(&r, at), draw_plainly(&r, at));
        }
    rig_close(&r);
}

TEST(engine_argmax_by_pieces_is_that_of_the_whole)
{
    struct rig r;
    rig_open(&r, 1000);
    for (uint64_t at = 0; at < 200; at++) {
        noise(&r, at, at % 2 ? 4 : 1000);
        for (int i = 0; i < 1000; i++)
            r.logit[i] = roundf(r.logit[i]);
        if (at % 10 == 9) r.logit[at * 4] = NAN;
        int whole = argmax_f32(r.logit, 1000), best = -1;
        for (int from = 0; from < 1000; from += 96) {
            int n = from + 96 <= 1000 ? 96 : 1000 - from, b = argmax_f32(r.logit + from, n);
            if (b < 0) {
                best = -1;
                break;
            }
            if (best < 0 || r.logit[from + b] > r.logit[best]) best = from + b;
        }
        assert_int_equal(whole, best);
        r.d.best = &whole;
        if (whole >= 0) assert_int_equal(draw(&r, at), whole);
    }
    rig_close(&r);
}
