/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses: where they come from, and what is learnt of them. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "spec/spec.h"
#include "test.h"

static sl_err err;
static const struct spec_given none;
static struct spec_taught all;

static void open_seq(struct spec_seq *s, struct spec_opts o)
{
    ASSERT_OK(spec_seq_init(s, &o, 1000, &err));
}

/* The tokens of a text of letters. */
static int ids_of(const char *text, int32_t *ids)
{
    int n = (int)strlen(text);
    for (int i = 0; i < n; i++)
        ids[i] = text[i];
    return n;
}

static void expect(struct spec_seq *s, const char *text, int n_max, const char *want)
{
    int32_t ids[200], out[SPEC_MAX];
    char got[SPEC_MAX + 1] = {0};
    int n = spec_propose(s, ids, ids_of(text, ids), none, n_max, out);
    for (int i = 0; i < n; i++)
        got[i] = (char)out[i];
    if (strcmp(got, want) != 0) fail_msg("after %s: \"%s\", not \"%s\"", text, got, want);
}

TEST(spec_ngrams_take_the_longest_match_and_of_those_the_newest)
{
    struct spec_seq s;
    open_seq(&s, (struct spec_opts){.ngram = true});
    expect(&s, "xabc", 7, "");
    expect(&s, "xabcdefgh_ab", 3, "cde");
    spec_seq_fini(&s);
    open_seq(&s, (struct spec_opts){.ngram = true});
    expect(&s, "1abX__2abY__3ab", 1, "Y"); /* two alike each: the newest */
    spec_seq_fini(&s);
    open_seq(&s, (struct spec_opts){.ngram = true});
    expect(&s, "1abX__2abY__1ab", 2, "X_"); /* three alike are better */
    assert_int_equal(s.source, SPEC_NGRAM);
    spec_seq_fini(&s);
    open_seq(&s, (struct spec_opts){0});
    expect(&s, "1abX__2abY__1ab", 2, "");
    spec_seq_fini(&s);
}

TEST(spec_ngrams_run_into_themselves_where_a_text_repeats)
{
    struct spec_seq s;
    open_seq(&s, (struct spec_opts){.ngram = true});
    expect(&s, "abcabc", 7, "abcabca");
    spec_seq_fini(&s);
}

TEST(spec_index_finds_what_a_plain_search_finds)
{
    uint64_t rng = 5;
    int n_found = 0;
    for (int round = 0; round < 300; round++) {
        struct spec_index x;
        int32_t ids[150];
        int n_id = 2 + (int)(rng_next(&rng) % 5);
        ASSERT_OK(spec_index_init(&x, 150, &err));
        for (int n = 0; n < 60; n++) { /* short: never more candidates than are looked at */
            ids[n] = (int32_t)(rng_next(&rng) % (uint64_t)n_id);
            spec_index_add(&x, ids, n + 1);
            int len, best = -1, most = 1;
            for (int p = n - 1; p >= 1; p--) {
                int k = 0;
                while (k <= p && k < SPEC_MATCH_MOST && ids[p - k] == ids[n - k])
                    k++;
                if (k > most) most = k, best = p + 1;
            }
            assert_int_equal(spec_index_find(&x, ids, ids, n + 1, &len), best);
            if (best >= 0) assert_int_equal(len, most);
            n_found += best >= 0;
        }
        spec_index_fini(&x);
    }
    assert_true(n_found > 5000);
}

TEST(spec_predictions_are_followed_and_found_again)
{
    int32_t text[64];
    struct spec_seq s;
    int n = ids_of("the quick brown fox jumps", text);
    open_seq(&s, (struct spec_opts){.n_prompt = 2, .text = text, .n_text = n});
    expect(&s, "??", 4, "the ");
    expect(&s, "??the ", 4, "quic");
    expect(&s, "??the slim", 4, "");
    expect(&s, "??the slim br", 4, "own "); /* " br" */
    expect(&s, "??the slim brown fox jump", 4, "s");
    expect(&s, "??the slim brown fox jumps", 4, "");
    assert_int_equal(s.source, SPEC_NGRAM);
    spec_seq_fini(&s);
}

TEST(spec_forced_drafts_come_first)
{
    struct spec_seq s;
    int32_t ids[] = {1, 2, 3, 1, 2}, out[SPEC_MAX] = {9, 8};
    const struct spec_given two = {.n = 2, .certain = true};
    open_seq(&s, (struct spec_opts){.ngram = true});
    assert_int_equal(spec_propose(&s, ids, 5, two, 7, out), 2);
    assert_true(out[0] == 9 && out[1] == 8);
    assert_int_equal(s.source, SPEC_FORCED);
    assert_true(spec_chance(&s, 1) == 1);
    spec_seq_fini(&s);
}

/* A text that a grammar forces: its tokens are a guess, and others may be worth more. */
TEST(spec_forced_texts_stand_back_where_another_source_has_more)
{
    struct spec_seq s;
    int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, out[SPEC_MAX] = {9, 8};
    const struct spec_given two = {.n = 2};
    open_seq(&s, (struct spec_opts){.ngram = true});
    assert_int_equal(spec_propose(&s, ids, 7, two, 4, out), 2); /* nothing is like it */
    assert_int_equal(s.source, SPEC_LITERAL);
    assert_true(out[0] == 9 && out[1] == 8);
    assert_int_equal(spec_propose(&s, ids, 10, two, 4, out), 2); /* taken to be mostly right */
    assert_int_equal(s.source, SPEC_LITERAL);
    for (int i = 0; i < 12; i++) { /* and it is never */
        out[0] = 9;
        spec_propose(&s, ids, 7, two, 4, out);
        spec_learn(&s, ids, 8, &all);
    }
    assert_int_equal(spec_propose(&s, ids, 10, two, 4, out), 4);
    assert_int_equal(s.source, SPEC_NGRAM);
    assert_true(out[0] == 4 && out[3] == 7);
    spec_seq_fini(&s);
}

static int below(void *user, const int32_t *id, int n)
{
    int fit = 0;
    while (fit < n && id[fit] < *(const int32_t *)user)
        fit++;
    return fit;
}

/* A grammar's: they are no guesses, say nothing about how often guesses are right, and leave their
 * place to another source. */
TEST(spec_guesses_that_do_not_fit_are_as_if_they_were_not_made)
{
    struct spec_seq s;
    int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 1}, out[SPEC_MAX], most = 6;
    struct spec_given given = {.fits = below, .user = &most};
    open_seq(&s, (struct spec_opts){.ngram = true});
    assert_int_equal(spec_propose(&s, ids, 10, given, 4, out), 2); /* not 4 5 6 7 */
    assert_true(out[0] == 4 && out[1] == 5 && s.n_prop == 2);
    float before = s.rate[SPEC_N_SOURCE].right[0];
    most = 4;
    for (int i = 0; i < 12; i++) {
        assert_int_equal(spec_propose(&s, ids, 10, given, 4, out), 0);
        spec_learn(&s, ids, 11, &all);
    }
    assert_true(s.rate[SPEC_N_SOURCE].right[0] == before);
    spec_offer(&s, 10, 0, 1);
    spec_offer(&s, 10, 1, 8);
    assert_int_equal(spec_propose(&s, ids, 10, given, 4, out), 1);
    assert_int_equal(s.source, SPEC_MTP);
    assert_true(out[0] == 1);
    out[0] = 2; /* the one token that is given */
    given.n = 1;
    s.n_offer = 0;
    assert_int_equal(spec_propose(&s, ids, 10, given, 4, out), 1);
    assert_int_equal(s.source, SPEC_LITERAL);
    assert_true(out[0] == 2);
    spec_seq_fini(&s);
}

TEST(spec_replays_are_right_at_their_rate_and_depend_on_the_place_only)
{
    int32_t text[2000], ids[2001] = {0}, out[SPEC_MAX];
    struct spec_seq s;
    for (int i = 0; i < 2000; i++)
        text[i] = i;
    struct spec_opts o = {1, .replay = true, .right = 0.8, .text = text, .n_text = 2000};
    ASSERT_OK(spec_seq_init(&s, &o, 2001, &err));
    int n_right = 0, last = 0;
    for (int i = 0; i < 1990; i++) {
        assert_int_equal(spec_propose(&s, ids, 1 + i, none, 2, out), 2);
        if (i) assert_int_equal(out[0], last);
        last = out[1];
        n_right += out[0] == i;
    }
    assert_true(fabs(n_right / 1990.0 - 0.8) < 0.03);
    spec_seq_fini(&s);
}

TEST(spec_rates_approach_what_happens)
{
    struct spec_seq s;
    uint64_t rng = 8;
    int32_t text[5000], ids[5000], out[SPEC_MAX];
    for (int i = 0; i < 5000; i++)
        text[i] = i;
    ids[0] = -1;
    struct spec_opts o = {1, .replay = true, .right = 1, .text = text, .n_text = 5000};
    ASSERT_OK(spec_seq_init(&s, &o, 5000, &err));
    double p = 0, n = 0;
    for (int i = 0; i < 4000; i++) { /* a token is as expected in 6 of 10 cases */
        spec_propose(&s, ids, 1 + i, none, 4, out);
        ids[1 + i] = rng_next(&rng) % 10 < 6 ? i : 9999;
        spec_learn(&s, ids, 2 + i, &all);
        if (i < 100) continue;
        p += spec_chance(&s, 2);
        n++;
    }
    assert_true(fabs(p / n - 0.216) < 0.03);
    spec_seq_fini(&s);
}

TEST(spec_seq_init_fails_cleanly_without_memory)
{
    int32_t text[4] = {1, 2, 3, 4};
    struct spec_opts o = {.ngram = true, .text = text, .n_text = 4};
    int64_t before = mem_used(MEM_REQUEST);
    int n_fail = 0;
    for (uint64_t k = 1; k < 20; k++) {
        struct spec_seq s;
        mem_fail_at(k, 0);
        sl_status st = spec_seq_init(&s, &o, 100, &err);
        mem_fail_at(0, 0);
        spec_seq_fini(&s);
        assert_int_equal(mem_used(MEM_REQUEST), before);
        if (!st) break;
        assert_int_equal(st, SL_NOMEM);
        n_fail++;
    }
    assert_int_equal(n_fail, 4);
}

TEST(spec_offers_of_the_mtp_layer_are_a_chain_and_come_last)
{
    struct spec_seq s;
    open_seq(&s, (struct spec_opts){.ngram = true});
    spec_offer(&s, 4, 0, 'x');
    spec_offer(&s, 4, 1, 'y');
    spec_offer(&s, 4, 2, 'z');
    expect(&s, "abcd", 2, "xy");
    assert_int_equal(s.source, SPEC_MTP);
    expect(&s, "abcd", 7, "xyz");
    expect(&s, "abcdx", 7, ""); /* they were of another place */
    spec_offer(&s, 6, 0, 'x');
    expect(&s, "abcdab", 7, "cdabcda");
    spec_offer(&s, 4, 0, 'w');
    expect(&s, "abcd", 7, "w");
    spec_seq_fini(&s);
}

TEST(spec_rates_go_over_to_the_next_sequence)
{
    struct spec_seq s;
    int32_t ids[200] = {0}, out[SPEC_MAX];
    spec_taught_init(&all);
    open_seq(&s, (struct spec_opts){0});
    for (int n = 1; n < 100; n++) { /* never right */
        spec_offer(&s, n, 0, 1);
        assert_int_equal(spec_propose(&s, ids, n, none, 1, out), 1);
        spec_learn(&s, ids, n + 1, &all);
    }
    spec_seq_fini(&s);
    open_seq(&s, (struct spec_opts){0});
    assert_true(spec_drafter_chance(&s, 0) > 0.7);
    spec_begin(&s, &all);
    assert_true(spec_drafter_chance(&s, 0) < 0.05);
    for (int n = 1; n <= 8; n++) { /* but here it is, which counts for more */
        spec_offer(&s, n, 0, 0);
        assert_int_equal(spec_propose(&s, ids, n, none, 1, out), 1);
        spec_learn(&s, ids, n + 1, &all);
    }
    assert_true(spec_drafter_chance(&s, 0) > 0.6);
    spec_seq_fini(&s);
}

/* Of a pair the guess is taken that was right more often where the likeliest was about so likely.
 */
TEST(spec_takes_of_two_guesses_the_one_that_is_right_more_often)
{
    struct spec_seq s;
    int32_t ids[2] = {0};
    uint64_t rng = 5;
    int n_drawn[2] = {0};
    spec_taught_init(&all);
    open_seq(&s, (struct spec_opts){0});
    for (int i = 0; i < 4000; i++) {
        bool sure = rng_next(&rng) % 2;
        struct spec_pair pair = {{1, 2}, sure ? 0.95 : 0.1};
        int32_t id = spec_choose(&s, &all, 1, 0, pair);
        if (i >= 2000) n_drawn[sure] += id == 2;
        /* sure: 95 and 3 of 100 are right; else 10 and 40 */
        uint64_t at = rng_next(&rng) % 100;
        ids[1] = sure ? at < 95 ? 1 : at < 98 ? 2 : 3 : at < 10 ? 1 : at < 50 ? 2 : 3;
        spec_learn(&s, ids, 2, &all);
    }
    assert_int_equal(n_drawn[1], 0);
    assert_true(n_drawn[0] > 900);
    struct spec_pair pair = {{1, 2}, 0.1}; /* of a later token, by the same rates */
    assert_int_equal(spec_choose(&s, &all, 1, 3, pair), 2);
    assert_int_equal(spec_choose(&s, &all, 1, 3, (struct spec_pair){{1, 2}, 1}), 1);
    spec_seq_fini(&s);
}
