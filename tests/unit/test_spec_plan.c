/* SPDX-License-Identifier: Apache-2.0 */
/* How many drafts a step computes: what pays by measured times, and nothing that does not. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "spec/spec.h"
#include "test.h"

static sl_err err;

/* A device: the time of a step of c tokens. */
struct device {
    double first, more; /* of one token; of each further one */
    int known;          /* steps up to so many tokens were seen; 0 = all */
};

static double step_ns(void *user, int n_tok)
{
    const struct device *d = user;
    if (d->known && n_tok > d->known) return 0;
    return d->first + d->more * (n_tok - 1);
}

/* A sequence whose draft j is right with chance a[j] after right ones. */
static void make_seq(struct spec_seq *s, double first, double next)
{
    memset(s, 0, sizeof *s);
    for (int j = 0; j < SPEC_MAX; j++)
        s->rate[0].right[j] = (float)(j ? next : first);
}

static int drafts_of(struct spec_plan *p, struct spec_want *w, int n, struct device d)
{
    int sum = 0;
    struct spec_clock clock = {step_ns, &d};
    spec_plan_step(p, w, n, n, &clock);
    for (int i = 0; i < n; i++)
        sum += w[i].k;
    return sum;
}

TEST(spec_plan_takes_the_number_that_gives_most_tokens_per_time)
{
    static const struct {
        double first, next, cost;
        int want;
    } row[] = {
        {0.9, 0.9, 0.05, 7}, {0.9, 0.9, 1.0, 0},  {0.5, 0.5, 0.1, 3}, {0.3, 0.9, 0.25, 4},
        {0.3, 0.9, 0.45, 0}, {0.05, 0.5, 0.1, 0}, {1, 1, 0.9, 7},     {0.6, 0.1, 0.3, 1},
    };
    struct spec_plan p;
    struct spec_seq s;
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        ASSERT_OK(spec_plan_init(&p, 4, &err));
        make_seq(&s, row[i].first, row[i].next);
        struct spec_want w = {.s = &s, .n = SPEC_MAX};
        int got = drafts_of(&p, &w, 1, (struct device){1, row[i].cost, 0}), best = 0;
        double tok = 1, chance = 1, most = 1;
        for (int k = 1; k <= SPEC_MAX; k++) {
            chance *= k == 1 ? row[i].first : row[i].next;
            tok += chance;
            if (tok / (1 + row[i].cost * k) > most) most = tok / (1 + row[i].cost * k), best = k;
        }
        if (got != best) fail_msg("row %d: %d drafts, not %d", i, got, best);
        if (row[i].want == 0) assert_int_equal(best, 0);
        spec_plan_fini(&p);
    }
}

/* Steps of which much is to be expected, and others, in turn: of all pairs of numbers the one that
 * gives most tokens per time over both. In the others tokens per time of that step alone would have
 * one compute much more. */
TEST(spec_plan_leaves_its_time_to_steps_that_give_more)
{
    static const double first[2] = {0.97, 0.3}, next = 0.95, cost = 0.2;
    double tok[2][SPEC_MAX + 1], most = 0, got_tok = 0, got_ns = 0;
    struct spec_plan p;
    struct spec_seq s[2];
    ASSERT_OK(spec_plan_init(&p, 4, &err));
    for (int i = 0; i < 2; i++) {
        make_seq(&s[i], first[i], next);
        tok[i][0] = 1;
        for (int k = 1; k <= SPEC_MAX; k++)
            tok[i][k] = tok[i][k - 1] + first[i] * pow(next, k - 1);
    }
    for (int a = 0; a <= SPEC_MAX; a++)
        for (int b = 0; b <= SPEC_MAX; b++)
            most = BASE_MAX(most, (tok[0][a] + tok[1][b]) / (2 + cost * (a + b)));
    for (int i = 0; i < 600; i++) {
        struct spec_want w = {.s = &s[i % 2], .n = SPEC_MAX};
        bool probe = p.n_step % 64 == 63;
        int k = drafts_of(&p, &w, 1, (struct device){1, cost, 0});
        if (i < 300 || probe) continue;
        got_tok += tok[i % 2][k];
        got_ns += 1 + cost * k;
    }
    double all = (tok[1][SPEC_MAX] + tok[0][SPEC_MAX]) / (2 + 2 * cost * SPEC_MAX);
    assert_true(got_tok / got_ns > 0.99 * most && most > 1.03 * all);
    spec_plan_fini(&p);
}

TEST(spec_plan_prefers_the_sequences_that_are_surer)
{
    struct spec_plan p;
    struct spec_seq s[3];
    struct spec_want w[3];
    ASSERT_OK(spec_plan_init(&p, 3, &err));
    make_seq(&s[0], 0.2, 0.2);
    make_seq(&s[1], 0.95, 0.95);
    make_seq(&s[2], 0.6, 0.5);
    for (int i = 0; i < 3; i++)
        w[i] = (struct spec_want){.s = &s[i], .n = 4};
    drafts_of(&p, w, 3, (struct device){3, 0.8, 0});
    assert_int_equal(w[0].k, 0);
    assert_int_equal(w[1].k, 4);
    assert_true(w[2].k <= 1);
    spec_plan_fini(&p);
}

TEST(spec_plan_tries_a_number_that_nobody_measured)
{
    struct spec_plan p;
    struct spec_seq s;
    ASSERT_OK(spec_plan_init(&p, 1, &err));
    make_seq(&s, 0.7, 0.7);
    struct spec_want w = {.s = &s, .n = 3};
    assert_int_equal(drafts_of(&p, &w, 1, (struct device){1, 5, 1}), 3); /* only one token known */
    assert_int_equal(drafts_of(&p, &w, 1, (struct device){1, 5, 0}), 0);
    spec_plan_fini(&p);
}

TEST(spec_plan_leaves_drafts_out_now_and_then_and_when_they_are_slow)
{
    struct spec_plan p;
    struct spec_seq s;
    struct device d = {1, 0.1, 0};
    ASSERT_OK(spec_plan_init(&p, 1, &err));
    make_seq(&s, 0.9, 0.9);
    struct spec_want w = {.s = &s, .n = 2};
    int n_none = 0;
    for (int i = 0; i < 640; i++) { /* they are as right as is thought */
        int k = drafts_of(&p, &w, 1, d);
        n_none += k == 0;
        spec_plan_observe(&p, 1, k, k ? 2 : 1, k ? 1.2 : 1.0, NULL);
    }
    assert_int_equal(n_none, 10 + 3);
    assert_int_equal(p.n_off, 0);
    for (int i = 0; i < 1300 && !p.n_off; i++) { /* they never are */
        int k = drafts_of(&p, &w, 1, d);
        spec_plan_observe(&p, 1, k, 1, k ? 1.2 : 1.0, NULL);
    }
    assert_int_equal(p.n_off, 1);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(drafts_of(&p, &w, 1, d), 0);
    int k = 0;
    for (int i = 0; i < 2; i++)
        k += drafts_of(&p, &w, 1, d);
    assert_true(k > 0);
    spec_plan_fini(&p);
}

TEST(spec_plan_computes_everything_when_it_is_told_to)
{
    struct spec_plan p;
    struct spec_seq s;
    ASSERT_OK(spec_plan_init(&p, 1, &err));
    p.always = true;
    make_seq(&s, 0, 0);
    struct spec_want w = {.s = &s, .n = 5};
    for (int i = 0; i < 200; i++)
        assert_int_equal(drafts_of(&p, &w, 1, (struct device){1, 9, 0}), 5);
    spec_plan_fini(&p);
}

TEST(spec_plan_computes_all_of_a_sequence_that_asks_for_it)
{
    struct spec_plan p;
    struct spec_seq never, sure;
    ASSERT_OK(spec_plan_init(&p, 2, &err));
    make_seq(&never, 0, 0);
    make_seq(&sure, 0.1, 1);
    struct spec_want w[2] = {{.s = &never, .n = 5, .always = true}, {.s = &sure, .n = 3}};
    for (int i = 0; i < 200; i++) {
        assert_in_range(drafts_of(&p, w, 2, (struct device){1, 0.01, 0}), 5, 8);
        assert_int_equal(w[0].k, 5);
        if (i % 64 != 63) assert_int_equal(w[1].k, 3);
        (void)drafts_of(&p, w, 2, (struct device){1, 9, 0});
        assert_true(w[0].k == 5 && w[1].k == 0);
    }
    for (int i = 0; i < 2000; i++) { /* such steps do not say what pays */
        int k = drafts_of(&p, w, 2, (struct device){1, 0.01, 0});
        spec_plan_observe(&p, 2, k, 2, k > 5 ? 9 : 1, NULL);
    }
    assert_int_equal(p.n_off, 0);
    spec_plan_fini(&p);
}

/* Steps until the layer is off, of at most n; it costs layer, and its drafts are right at a. */
static int steps_until_off(struct spec_plan *p, double a, double layer, int n)
{
    struct spec_seq s;
    struct device d = {1, 0.3, 0};
    struct spec_passes t = {.ns = 0.5 * layer, .more_ns = 0.5 * layer, .n_more = 1};
    uint64_t rng = 7;
    make_seq(&s, 0, 0);
    s.source = s.row = SPEC_MTP;
    s.rate[SPEC_MTP].right[0] = (float)a;
    for (int i = 0; i < n; i++) {
        struct spec_want w = {.s = &s, .n = 1};
        int k = drafts_of(p, &w, 1, d), right = k && rng_next(&rng) % 1000 < a * 1000;
        if (spec_plan_drafter_is_off(p)) return i;
        spec_plan_observe(p, 1, k, 1 + right, k ? 1.3 : 1.0, layer > 0 ? &t : NULL);
    }
    return n;
}

TEST(spec_plan_switches_the_mtp_layer_off_where_its_passes_cost_more_than_they_give)
{
    static const struct {
        double a, layer;
        bool pays;
    } row[] = {
        {0.94, 0.38, true}, /* 1.94 / 1.68 */
        {0.5, 0.38, false}, /* 1.5 / 1.68 */
        {0.94, 1.2, false}, /* on a machine that is busy */
        {0.2, 0.05, false}, /* not even computed, and the passes cost */
        {0.2, 0.0, true},   /* nothing is lost */
        {0.9, 0.05, true},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct spec_plan p;
        ASSERT_OK(spec_plan_init(&p, 1, &err));
        int n = steps_until_off(&p, row[i].a, row[i].layer, 2000);
        if (row[i].pays != (n == 2000)) fail_msg("row %d: off after %d steps", i, n);
        if (!row[i].pays) assert_in_range(n, 40, 56);
        spec_plan_fini(&p);
    }
}

/* Short answers after long prompts: what the drafter gives does not pay for what prompts cost. */
TEST(spec_plan_counts_the_passes_over_prompts)
{
    static const struct {
        int answer; /* steps */
        double prompt;
        bool pays;
    } row[] = {{16, 0.1, true}, {16, 8, false}, {400, 8, true}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct spec_plan p;
        struct spec_passes t = {.ns = row[i].prompt};
        int n = 0;
        ASSERT_OK(spec_plan_init(&p, 1, &err));
        for (; n < 4000 && !spec_plan_drafter_is_off(&p); n += row[i].answer) {
            spec_plan_observe_prompt(&p, false, &t);
            (void)steps_until_off(&p, 0.94, 0.38, row[i].answer);
        }
        if (row[i].pays != (n >= 4000)) fail_msg("row %d: off after %d steps", i, n);
        spec_plan_fini(&p);
    }
}

TEST(spec_plan_sees_sooner_in_steps_of_many_that_the_mtp_layer_does_not_pay)
{
    static const struct {
        int n_seq, least, most;
        double layer; /* of a step */
    } row[] = {{1, 40, 48, 0.3}, {8, 12, 14, 0.3}, {32, 12, 14, 0.3}, {8, 40, 48, 0.05}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct spec_plan p;
        struct spec_seq s[32];
        struct spec_want w[32];
        struct device d = {1, 0.9, 0}; /* of 0.94 right drafts none pays */
        struct spec_passes t = {.ns = row[i].layer * step_ns(&d, row[i].n_seq)};
        int n = 0, n_seq = row[i].n_seq;
        ASSERT_OK(spec_plan_init(&p, n_seq, &err));
        for (int k = 0; k < n_seq; k++) {
            make_seq(&s[k], 0.5, 1);
            s[k].source = SPEC_MTP;
            w[k] = (struct spec_want){.s = &s[k], .n = 1};
        }
        struct spec_clock clock = {step_ns, &d};
        for (; n < 100 && !spec_plan_drafter_is_off(&p); n++) {
            spec_plan_step(&p, w, n_seq, n_seq, &clock);
            spec_plan_observe(&p, n_seq, 0, n_seq, step_ns(&d, n_seq), &t);
        }
        if (n < row[i].least || n > row[i].most) fail_msg("row %d: off after %d steps", i, n);
        spec_plan_fini(&p);
    }
}

TEST(spec_plan_tries_the_mtp_layer_again_and_less_and_less_often)
{
    struct spec_plan p;
    ASSERT_OK(spec_plan_init(&p, 1, &err));
    for (uint64_t off = 1024; off <= 4096; off *= 2) {
        assert_in_range(steps_until_off(&p, 0.5, 0.38, 100), 30, 48);
        struct device d = {1, 0.3, 0};
        struct spec_clock clock = {step_ns, &d};
        uint64_t n = 0;
        for (; spec_plan_drafter_is_off(&p); n++)
            spec_plan_step(&p, NULL, 0, 1, &clock); /* nobody has a draft */
        assert_in_range(n, off - 1, off);
    }
    spec_plan_fini(&p);
}

TEST(spec_plan_does_not_weigh_a_layer_that_nobody_wants)
{
    struct spec_plan p;
    struct device d = {1, 0.3, 0};
    struct spec_clock clock = {step_ns, &d};
    struct spec_passes t = {.ns = 0.4};
    ASSERT_OK(spec_plan_init(&p, 1, &err));
    spec_plan_step(&p, NULL, 0, 1, &clock);
    spec_plan_observe(&p, 1, 0, 1, 1, &t);
    for (int i = 0; i < 1000; i++) { /* of requests that have drafts switched off */
        spec_plan_step(&p, NULL, 0, 1, &clock);
        spec_plan_observe(&p, 1, 0, 1, 1, NULL);
    }
    assert_int_equal(p.n_off, 0);
    assert_false(spec_plan_drafter_is_off(&p));
    spec_plan_fini(&p);
}

TEST(spec_plan_counts_the_passes_of_the_mtp_layer_in_what_steps_with_drafts_take)
{
    struct spec_plan p;
    struct spec_seq s;
    struct device d = {1, 0.1, 0};
    struct spec_passes t = {.ns = 0.3};
    ASSERT_OK(spec_plan_init(&p, 1, &err));
    make_seq(&s, 1, 1); /* thought to be right, and never is */
    s.source = SPEC_MTP;
    for (int i = 0; i < 600 && !p.n_off; i++) {
        struct spec_want w = {.s = &s, .n = 1};
        int k = drafts_of(&p, &w, 1, d);
        spec_plan_observe(&p, 1, k, 1, k ? 0.9 : 1.0, &t); /* alone, steps with drafts are faster */
    }
    assert_int_equal(p.n_off, 1);
    assert_true(spec_plan_drafter_is_off(&p));
    spec_plan_fini(&p);
}

TEST(spec_plan_runs_the_mtp_layer_as_often_as_its_guesses_pay)
{
    static const struct {
        double first, next, more_tok, more_pass;
        int want;
    } row[] = {
        {0.94, 0.69, 0.3, 0.3, 1}, /* the demo model: 2.59 / 1.98 is less than 1.94 / 1.68 */
        {0.94, 0.9, 0.05, 0.05, 7}, {0.9, 0.7, 0.1, 0.1, 3},
        {0.1, 0.1, 1, 1, 1},        {0.9, 0.9, 0.05, 0, 7}, /* never tried: is tried */
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct spec_plan p;
        struct spec_seq s;
        struct device d = {1, row[i].more_tok, 0};
        struct spec_clock clock = {step_ns, &d};
        struct spec_passes t = {0.38, row[i].more_pass, row[i].more_pass > 0};
        ASSERT_OK(spec_plan_init(&p, 1, &err));
        make_seq(&s, 0, 0);
        for (int j = 0; j < SPEC_MAX; j++)
            s.rate[SPEC_MTP].right[j] = (float)(j ? row[i].next : row[i].first);
        struct spec_want w = {.s = &s};
        spec_plan_observe(&p, 1, 0, 1, 1, &t);
        int best = 1;
        double tok = 1, chance = 1, most = 0;
        for (int k = 1; k <= SPEC_MAX; k++) {
            chance *= k == 1 ? row[i].first : row[i].next;
            tok += chance;
            double ns = 1 + row[i].more_tok * k + 0.38 + row[i].more_pass * (k - 1);
            if (tok / ns > most) most = tok / ns, best = k;
        }
        assert_int_equal(spec_plan_passes(&p, &w, 1, SPEC_MAX, &clock), best);
        assert_int_equal(best, row[i].want);
        assert_int_equal(spec_plan_passes(&p, &w, 1, 1, &clock), 1);
        p.always = true;
        assert_int_equal(spec_plan_passes(&p, &w, 1, 5, &clock), 5);
        spec_plan_fini(&p);
    }
}
