/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts in the scheduler: what of them a step takes, and that they take nothing from anybody. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "sched/sched.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool pool;
    struct sched s;
};

static void rig_open(struct rig *r, struct sched_opts o, int n_blk, int blk_tok)
{
    ASSERT_OK(kv_pool_init(&r->pool, n_blk, blk_tok, &err));
    ASSERT_OK(sched_init(&r->s, &o, &r->pool, &err));
}

static void rig_close(struct rig *r)
{
    sched_fini(&r->s);
    assert_int_equal(kv_pool_avail(&r->pool), r->pool.n_blk);
    kv_pool_fini(&r->pool);
}

static void submit(struct rig *r, int slot, int n_prompt)
{
    sched_submit(&r->s, slot, &(struct sched_new){.n_prompt = n_prompt, .fork_of = -1});
}

static const struct sched_plan *step(struct rig *r)
{
    const struct sched_plan *p = sched_step(&r->s);
    assert_int_equal(sched_check(&r->s), 0);
    return p;
}

/* The outcome of a step; right: of every row's drafts. */
static void accept(struct rig *r, const struct sched_plan *p, int right)
{
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].sample)
            sched_accept(&r->s, p->item[i].req, BASE_MIN(right, p->item[i].n_draft));
    assert_int_equal(sched_check(&r->s), 0);
}

static const struct sched_opts small = {
    .n_req_max = 6, .n_run_max = 4, .n_chunk = 16, .n_ctx = 40, .n_row_max = 9};

TEST(sched_computes_drafts_behind_the_known_token_and_trims_the_wrong_ones)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    submit(&r, 0, 6);
    accept(&r, step(&r), 0);
    sched_draft(&r.s, 0, 5);
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->n_item, 1);
    assert_int_equal(p->item[0].pos0, 6);
    assert_int_equal(p->item[0].n_tok, 6);
    assert_int_equal(p->item[0].n_draft, 5);
    assert_true(p->item[0].sample && p->item[0].answer);
    assert_int_equal(p->n_draft, 5);
    assert_int_equal(r.pool.n_free, 13); /* 12 positions */
    accept(&r, p, 1);
    assert_int_equal(r.s.req[0].n_known, 9); /* one known, one right, one more */
    assert_int_equal(r.s.req[0].n_done, 8);
    assert_int_equal(r.pool.n_free, 14);
    p = step(&r); /* the offer was for one step */
    assert_int_equal(p->item[0].n_tok, 1);
    assert_int_equal(p->item[0].pos0, 8);
    rig_close(&r);
}

TEST(sched_takes_no_drafts_for_prompts_and_first_tokens_or_past_the_context)
{
    struct rig r;
    struct sched_opts o = small;
    o.n_chunk = 5;
    rig_open(&r, o, 16, 4);
    submit(&r, 0, 6);
    step(&r);
    sched_draft(&r.s, 0, 3); /* the prompt's last token is missing */
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->n_draft, 0);
    accept(&r, p, 0);
    for (int known = 7; known < 40;) {
        sched_draft(&r.s, 0, 9);
        p = step(&r);
        int want = BASE_MIN(BASE_MIN(SCHED_DRAFT_MAX, 5), 40 - known); /* rows: 9 - 4 */
        assert_int_equal(p->n_draft, want);
        known += 1 + BASE_MIN(want, 39 - known);
        accept(&r, p, BASE_MIN(want, 40 - r.s.req[0].n_known - 1));
        assert_int_equal(r.s.req[0].n_known, known);
    }
    rig_close(&r);
}

TEST(sched_cuts_drafts_to_blocks_rows_and_tokens)
{
    struct rig r;
    rig_open(&r, small, 10, 4);
    for (int i = 0; i < 4; i++)
        submit(&r, i, 8); /* two blocks each, and one more for the answer: 2 short of 12 */
    accept(&r, step(&r), 0);
    accept(&r, step(&r), 0);
    for (int i = 0; i < 4; i++)
        if (r.s.req[i].state == SCHED_RUNNING) sched_draft(&r.s, i, 7);
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->n_preempt, 0);
    assert_true(p->n_draft > 0 && p->n_draft <= 5); /* rows: 9 - 4 */
    assert_true(p->n_tok <= 20);
    accept(&r, p, 0);
    rig_close(&r);
}

/* Two schedulers see the same requests; one is offered drafts that are always wrong. */
TEST(sched_plans_with_wrong_drafts_what_it_plans_without)
{
    static struct rig a, b;
    uint64_t rng = 17;
    long n_draft = 0, n_preempt = 0, n_cut = 0;
    for (int round = 0; round < 300; round++) {
        struct sched_opts o = {.n_req_max = 12,
                               .n_run_max = 1 + (int)(rng_next(&rng) % 6),
                               .n_chunk = 1 + (int)(rng_next(&rng) % 20),
                               .n_ctx = 60};
        o.n_row_max = o.n_run_max + 1 + (int)(rng_next(&rng) % 12);
        int n_blk = 15 + (int)(rng_next(&rng) % 30);
        rig_open(&a, o, n_blk, 4);
        rig_open(&b, o, n_blk, 4);
        int64_t now = 0;
        for (int t = 0; t < 120; t++) {
            int slot = (int)(rng_next(&rng) % 12);
            struct sched_new q = {.n_prompt = 1 + (int)(rng_next(&rng) % 30),
                                  .priority = (int)(rng_next(&rng) % 8) == 0,
                                  .owner = rng_next(&rng) % 3,
                                  .now_ns = now += 1000000,
                                  .fork_of = -1};
            if (a.s.req[slot].state == SCHED_FREE) {
                sched_submit(&a.s, slot, &q);
                sched_submit(&b.s, slot, &q);
            }
            for (int i = 0, at; (at = sched_running(&a.s, i)) >= 0; i++)
                sched_draft(&a.s, at, (int)(rng_next(&rng) % 8));
            const struct sched_plan *p = step(&a), *w = step(&b);
            n_cut += p->n_preempt > 0;
            n_draft += p->n_draft;
            n_preempt += p->n_preempt;
            assert_int_equal(p->n_item, w->n_item);
            assert_int_equal(p->n_preempt, w->n_preempt);
            assert_int_equal(p->n_tok - p->n_draft, w->n_tok);
            for (int i = 0; i < p->n_item; i++) {
                const struct sched_item *x = &p->item[i], *y = &w->item[i];
                assert_int_equal(x->req, y->req);
                assert_int_equal(x->seat, y->seat);
                assert_int_equal(x->pos0, y->pos0);
                assert_int_equal(x->n_tok - x->n_draft, y->n_tok);
            }
            accept(&a, p, 0);
            accept(&b, w, 0);
            for (int i = 0; i < 12; i++) /* full ones end */
                if (a.s.req[i].state != SCHED_FREE && a.s.req[i].n_known >= 58) {
                    sched_finish(&a.s, i);
                    sched_finish(&b.s, i);
                }
        }
        rig_close(&a);
        rig_close(&b);
    }
    assert_true(n_draft > 1000 && n_preempt > 100 && n_cut > 0);
}

TEST(sched_learns_what_drafts_cost)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    submit(&r, 0, 4);
    accept(&r, step(&r), 0);
    for (int i = 0; i < 6; i++) {
        sched_draft(&r.s, 0, i % 2 ? 3 : 0);
        const struct sched_plan *p = step(&r);
        sched_observe(&r.s, 1000 + 100 * p->n_draft);
        accept(&r, p, 0);
    }
    assert_true(sched_decode_ns(&r.s, 1) == 1000);
    assert_true(fabs(sched_decode_ns(&r.s, 4) - 1300) < 20);
    assert_true(fabs(sched_decode_ns(&r.s, 2) - 1100) < 10); /* between them */
    assert_true(sched_decode_ns(&r.s, 5) == 0);
    sched_learn(&r.s, 3, 0, 9000); /* held up by something else */
    assert_true(sched_decode_ns(&r.s, 3) > 8000);
    for (int i = 0; i < 1000; i++)
        sched_learn(&r.s, 1, 0, 1000);
    assert_true(sched_decode_ns(&r.s, 3) < 1500); /* is tried again */
    rig_close(&r);
}

/* What a further token costs of steps of n tokens, after 300 steps of 24 to 60 of which each took
 * fixed + each n, as some other program left it: between the shares least and most of each. */
static void learns_slope(double fixed, double each, double least, double most)
{
    struct sched_opts o = small;
    struct rig r;
    uint64_t rng = 5;
    o.n_run_max = o.n_req_max = 16;
    o.n_row_max = o.n_chunk = 128;
    rig_open(&r, o, 16, 4);
    sched_learn(&r.s, 32, 0, 32000);
    assert_true(fabs(sched_decode_ns(&r.s, 34) - 32000 - 2 * 700) < 1); /* nothing else is known */
    for (int i = 0; i < 400; i++) {
        int n = 24 + (int)(rng_next(&rng) % 37);
        double busy = 0.85 + 0.3 * (double)(rng_next(&rng) % 1000) / 1000;
        sched_learn(&r.s, n, 0, (int64_t)(busy * (fixed + each * n)));
        if (i < 100) continue;
        double a = sched_decode_ns(&r.s, 32), b = sched_decode_ns(&r.s, 33);
        double c = sched_decode_ns(&r.s, 64);
        assert_true(b - a > least * each && b - a < most * each);
        assert_true(fabs((c - a) - 32 * (b - a)) < 1); /* one line, however far */
    }
    rig_close(&r);
}

TEST(sched_compares_large_steps_by_a_line_through_all_of_them)
{
    learns_slope(0, 1000, 0.6, 1.4);
    learns_slope(30000, 1000, 0.2, 2.0);
    learns_slope(100000, 100, 0, 14); /* a seventh of what is assumed at first */
}

/* A step that something else held up says little about how many tokens pay, and nobody tries a
 * number again that is thought not to. */
TEST(sched_forgets_that_a_large_step_was_held_up)
{
    struct sched_opts o = small;
    struct rig r;
    o.n_run_max = o.n_req_max = 16;
    o.n_row_max = o.n_chunk = 128;
    rig_open(&r, o, 16, 4);
    for (int i = 0; i < 60; i++)
        sched_learn(&r.s, i % 2 ? 32 : 64, 0, i % 2 ? 32000 : 54000);
    double more = sched_decode_ns(&r.s, 64) - sched_decode_ns(&r.s, 32);
    assert_true(fabs(more - 22000) < 300);
    sched_learn(&r.s, 64, 0, 200000);
    more = sched_decode_ns(&r.s, 64) - sched_decode_ns(&r.s, 32);
    assert_true(more < 23500);
    rig_close(&r);
    rig_open(&r, o, 16, 4);
    sched_learn(&r.s, 32, 0, 32000);
    sched_learn(&r.s, 64, 0, 150000); /* the only time that there were so many */
    for (int i = 0; i < 1000; i++)
        sched_learn(&r.s, 32, 0, 32000);
    more = sched_decode_ns(&r.s, 64) - sched_decode_ns(&r.s, 32);
    assert_true(more < 30000);
    rig_close(&r);
}
