/* SPDX-License-Identifier: Apache-2.0 */
/* CPU ranks that share a model: which layouts there are, what each holds and waits for; a device
 * beside the CPU. */
#include <math.h>

#include "plan/place.h"
#include "plan/search.h"
#include "plan_load.h"

static const struct plan_team links = {
    8, 4, {5e-6, 10e9}, {100e-6, 1e9}, {200e-6, 1e9}, 2e-6, 200e-6, 4, NULL};

static struct plan_case here(const char *model, struct plan_layout l)
{
    static struct plan_device dev = {.vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1,
                                     .mem = 64e9, .bw = 100e9};
    load();
    struct plan_case c = {.model = plan_find_model(&tables, model), .dev = &dev, .team = &links};
    assert_non_null(c.model);
    assert_true(plan_format_find("q4", &c.fmt));
    l.ranks = l.tp * l.pp * l.dp, l.cards = 1, l.chunk = 512, l.combine_bits = 32;
    c.kv_bits = 16, c.lay = l;
    c.k = book.prior[PLAN_CPU][PLAN_MODE_CPU];
    c.k.mode = PLAN_MODE_CPU;
    c.k.v[PLAN_CPU_GBPS] = 100, c.k.v[PLAN_CPU_TOPS] = 2;
    c.k.v[PLAN_T0] = c.k.v[PLAN_T_REQ] = 0;
    return c;
}

static struct plan_layout lay(int tp, int pp, int dp, int ep)
{
    return (struct plan_layout){.tp = tp, .pp = pp, .dp = dp, .ep = ep};
}

static struct plan_time step(struct plan_case c, double batch)
{
    struct plan_time t;
    plan_step(&c, batch, 512, &t);
    return t;
}

TEST(plan_team_knows_which_layouts_there_are)
{
    const struct {
        const char *model;
        int tp, pp, dp, ep;
        bool can;
    } rows[] = {{"qwen3-30b-a3b", 4, 1, 1, 1, true},  {"qwen3-30b-a3b", 4, 1, 1, 4, true},
                {"qwen3-30b-a3b", 4, 2, 1, 2, true},  {"qwen3-30b-a3b", 1, 1, 4, 4, true},
                {"qwen3-30b-a3b", 1, 1, 4, 2, true},  {"qwen3-30b-a3b", 2, 1, 2, 4, true},
                {"qwen3-30b-a3b", 2, 2, 2, 4, true},  {"qwen3-30b-a3b", 2, 1, 2, 2, true},
                {"qwen3-30b-a3b", 4, 1, 1, 3, false}, {"qwen3-30b-a3b", 1, 1, 2, 1, true},
                {"qwen3-32b", 1, 1, 2, 1, false},     {"qwen3-32b", 4, 1, 1, 2, false},
                {"qwen3-30b-a3b", 33, 1, 1, 1, false}, {"qwen3-30b-a3b", 3, 1, 1, 3, false},
                {"qwen3-30b-a3b", 1, 49, 1, 1, false}, {"qwen3-32b", 1, 1, 2, 2, false},
                {"qwen3-32b", 2, 2, 1, 1, true},       {"deepseek-r1", 1, 3, 1, 1, true},
                {"qwen3.5-35b-a3b", 1, 4, 1, 1, true}, {"qwen3.5-35b-a3b", 2, 2, 1, 1, false},
                {"qwen3.5-35b-a3b", 1, 1, 2, 2, true}};
    load();
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        struct plan_layout l = lay(rows[i].tp, rows[i].pp, rows[i].dp, rows[i].ep);
        if (plan_team_can(plan_find_model(&tables, rows[i].model), &l) != rows[i].can)
            fail_msg("row %d: %d", i, rows[i].can);
    }
}

TEST(plan_team_ranks_hold_all_of_a_model_together)
{
    struct plan_memory m;
    const struct plan_layout all[] = {lay(4, 1, 1, 1), lay(1, 4, 1, 1), lay(2, 2, 1, 2),
                                      lay(1, 1, 4, 4)};
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        struct plan_case c = here("deepseek-r1", all[i]);
        double whole = plan_weight_bytes(c.model, &c.fmt, false);
        plan_memory(&c, 4, 4096, &m);
        /* the fullest has its quarter, and what every rank has */
        double most = all[i].dp > 1 ? 0.25 * whole + 0.75 * 17.1e9 * c.fmt.attn / 8 : 0.3 * whole;
        if (m.weights < 0.248 * whole || m.weights > 1.03 * most)
            fail_msg("row %d: %.1f of %.1f GB", i, m.weights * 1e-9, whole * 1e-9);
    }
    /* caches: heads are shared, latents are not; stages have their layers' */
    struct plan_case g = here("qwen3-30b-a3b", lay(4, 1, 1, 1)),
                     a = here("deepseek-r1", lay(4, 1, 1, 1)),
                     p = here("deepseek-r1", lay(1, 4, 1, 1));
    plan_memory(&g, 1, 1000, &m);
    assert_true(fabs(m.seq - plan_kv_bytes(g.model, 1000, 16, 1) / 4) < 1);
    plan_memory(&a, 1, 1000, &m);
    assert_true(fabs(m.seq - 70272e3) < 1);
    plan_memory(&p, 1, 1000, &m);
    assert_true(m.seq > 0.2 * 70272e3 && m.seq < 0.3 * 70272e3);
}

TEST(plan_team_waits_for_what_is_moved)
{
    /* R1, dense and mixed layers: four joins a layer and one for shared experts, the row of the
     * table and the logits, and two for the step; experts' hidden values are half as many words */
    struct plan_case c = here("deepseek-r1", lay(4, 1, 1, 1));
    double col = 7168 + 61 * (128 * 128 + 2 * 7168.0) + 3 * 18432.0 + 58 * (8 + 1) * 1024.0;
    col += 129280;
    double want = (4 * 61 + 58 + 2) * 5e-6 + 2 * 100e-6 + 4 * col * 0.75 / 10e9;
    double got = step(c, 1).comm;
    if (fabs(got / want - 1) > 1e-3) fail_msg("tp: %.6f ms, not %.6f", got * 1e3, want * 1e3);
    c = here("deepseek-r1", lay(1, 4, 1, 1));
    want = 2 * 100e-6 + 3 * (200e-6 + 4 * 7168 / 1e9);
    got = step(c, 1).comm;
    if (fabs(got / want - 1) > 1e-3) fail_msg("pp: %.6f ms, not %.6f", got * 1e3, want * 1e3);
    /* 8 tokens of 4 ranks: 6 others' rows with their experts' numbers come, and 3/4 of 2 x 8 */
    c = here("deepseek-r1", lay(1, 1, 4, 4));
    double bytes = 6 * 4 * (8 + 7168.0) + 2 * 8 * 0.75 * 7168 * 4;
    want = 58 * (2 * 5e-6 + bytes / 10e9) + 2 * 100e-6;
    got = step(c, 8).comm;
    if (fabs(got / want - 1) > 1e-3) fail_msg("dp: %.6f ms, not %.6f", got * 1e3, want * 1e3);
    c.lay.combine_bits = 8.25;
    assert_true(step(c, 8).comm < got);
    /* eight ranks are on two hosts */
    c = here("deepseek-r1", lay(8, 1, 1, 1));
    assert_true(step(c, 1).comm > 300 * 100e-6);
}

TEST(plan_team_the_fullest_rank_decides)
{
    /* of one user's eight experts on four ranks: 1.74 times the mean (drawn); of 16 users' 1.16 */
    struct plan_case whole = here("deepseek-r1", lay(1, 1, 1, 1)),
                     four = here("deepseek-r1", lay(4, 1, 1, 4));
    double one = step(four, 1).experts * 4 / step(whole, 1).experts,
           many = step(four, 16).experts * 4 / step(whole, 16).experts;
    if (fabs(one - 1.74) > 0.08 || fabs(many - 1.16) > 0.05) fail_msg("%.3f, %.3f", one, many);
}

/* Ranks that read so many times 100 GB/s, each on a host of its own. */
static struct plan_team unlike(struct plan_rank *rank, int n, const double *times)
{
    struct plan_team t = links;
    for (int i = 0; i < n; i++)
        rank[i] = (struct plan_rank){
            .bw = times[i] * 100e9, .ops = times[i] * 2e12, .mem = 64e9, .host = i};
    t.n = n, t.per_host = 1, t.rank = rank;
    return t;
}

/* A case of four ranks of a host, which read 100 GB/s together, and one of them alone 80; and the
 * same of which nothing is known but 25 GB/s each. */
struct host {
    struct plan_rank rank[4];
    struct plan_team team;
    struct plan_case c, like;
};

static void four_of_a_host(struct host *h, const char *model, struct plan_layout l)
{
    static struct plan_device dev = {
        .vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1, .mem = 64e9, .bw = 25e9};
    dev.peak[PLAN_NUM_INT8] = 2e12;
    h->team = unlike(h->rank, 4, (const double[]){1, 1, 1, 1});
    for (int r = 0; r < 4; r++)
        h->rank[r] = (struct plan_rank){25e9, 2e12, 64e9, 0, 4, 80e9, 2e12};
    h->c = h->like = here(model, l);
    h->c.dev = h->like.dev = &dev;
    h->c.team = &h->team;
}

TEST(plan_team_ranks_of_a_host_share_what_it_has)
{
    const struct {
        struct plan_layout l;
        double batch, gbps; /* of each that works */
    } rows[] = {{lay(1, 1, 1, 1), 1, 80}, {lay(2, 1, 1, 1), 1, 50}, {lay(4, 1, 1, 1), 1, 25},
                {lay(1, 4, 1, 1), 1, 80}, /* one stage after the other */
                {lay(1, 4, 1, 1), 2, 50}, {lay(1, 4, 1, 1), 8, 25}, {lay(2, 2, 1, 1), 1, 50}};
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        struct host h;
        four_of_a_host(&h, "qwen3-32b", rows[i].l);
        double got = 25 * step(h.like, rows[i].batch).weights / step(h.c, rows[i].batch).weights;
        if (fabs(got / rows[i].gbps - 1) > 1e-6)
            fail_msg("%d: %.2f GB/s, not %.0f", i, got, rows[i].gbps);
    }
}

/* With dp groups without sequences compute experts only. */
TEST(plan_team_groups_that_attend_share_what_the_host_has)
{
    const struct {
        struct plan_layout l;
        double batch, gbps; /* of each that attends, meanwhile */
    } rows[] = {{lay(1, 1, 4, 4), 1, 80}, {lay(1, 1, 4, 4), 2, 50}, {lay(1, 1, 4, 4), 3, 100. / 3},
                {lay(1, 1, 4, 4), 9, 25}, {lay(2, 1, 2, 4), 1, 50}, {lay(2, 1, 2, 4), 2, 25}};
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        struct host h;
        four_of_a_host(&h, "qwen3-30b", rows[i].l);
        struct plan_time c = step(h.c, rows[i].batch), like = step(h.like, rows[i].batch);
        double got = 25 * like.weights / c.weights;
        if (fabs(got / rows[i].gbps - 1) > 1e-6)
            fail_msg("%d: %.2f GB/s, not %.1f", i, got, rows[i].gbps);
        if (fabs(c.experts / like.experts - 1) > 1e-6) fail_msg("%d: experts are of all", i);
    }
}

TEST(plan_team_weighs_ranks_by_what_they_read)
{
    const struct {
        int n;
        double times[8];
        struct plan_layout l;
        const char *want; /* "": they are alike */
    } rows[] = {{2, {2, 1}, {.tp = 2, .pp = 1, .dp = 1}, "2:1"},
                {3, {3.02, 2, 1.01}, {.tp = 3, .pp = 1, .dp = 1}, "3:2:1"},
                {2, {1, 0.95}, {.tp = 2, .pp = 1, .dp = 1}, ""},
                {4, {2, 1, 1, 2}, {.tp = 2, .pp = 2, .dp = 1}, ""}, /* the slower of two stages */
                {4, {2, 1, 4, 1}, {.tp = 2, .pp = 2, .dp = 1}, "2:1"},
                {4, {4, 1, 1, 1}, {.tp = 1, .pp = 1, .dp = 4}, "4:1:1:1"},
                {2, {2, 1}, {.tp = 1, .pp = 2, .dp = 1}, ""},
                {2, {1000, 1}, {.tp = 2, .pp = 1, .dp = 1}, "100:1"}};
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        struct plan_rank rank[8];
        struct plan_team t = unlike(rank, rows[i].n, rows[i].times);
        struct plan_layout l = rows[i].l;
        char got[64];
        l.ranks = rows[i].n;
        assert_int_equal(plan_team_weigh(&t, &l), *rows[i].want != 0);
        assert_true(plan_layout_weights(&l, got, sizeof got));
        assert_string_equal(got, rows[i].want);
    }
    char small[4];
    struct plan_layout l = {.n_weight = 3, .weight = {1, 2, 3}};
    assert_false(plan_layout_weights(&l, small, sizeof small));
}

TEST(plan_team_by_weight_all_take_as_long)
{
    static struct plan_device dev = {
        .vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1, .mem = 64e9, .bw = 100e9};
    dev.peak[PLAN_NUM_INT8] = 2e12;
    for (int ep = 1; ep <= 3; ep += 2) {
        struct plan_rank rank[3];
        struct plan_team t = unlike(rank, 3, (const double[]){3, 2, 1});
        struct plan_case even = here("qwen3-30b-a3b", lay(3, 1, 1, 1)), c = even;
        even.dev = c.dev = &dev;
        even.team = c.team = &t;
        c.lay.ep = ep; /* 128 experts: not to three ranks, but by weight */
        assert_int_equal(plan_team_can(c.model, &c.lay), ep == 1);
        assert_true(plan_team_weigh(&t, &c.lay));
        assert_true(plan_team_can(c.model, &c.lay));
        /* the mean rank reads twice what the slowest does; heads and experts come in wholes */
        double gain = (step(even, 64).weights + step(even, 64).experts) /
                      (step(c, 64).weights + step(c, 64).experts);
        if (gain < 1.5 || gain > 2.01) fail_msg("ep %d: %.2f times", ep, gain);
        /* memory: that rank decides whose is the least for its share */
        struct plan_memory a, b;
        plan_memory(&c, 1, 1000, &a);
        rank[0].mem = 4e9; /* which is to have half of 17 GB */
        plan_memory(&c, 1, 1000, &b);
        assert_true(a.fits && !b.fits);
        assert_true(b.weights > 0.45 * plan_weight_bytes(c.model, &c.fmt, false));
        rank[0].mem = 64e9, rank[2].mem = 4e9; /* and that one a sixth */
        plan_memory(&c, 1, 1000, &b);
        assert_true(b.fits);
    }
}

TEST(plan_team_stages_work_at_the_same_time_on_prompts_only)
{
    struct plan_case one = here("qwen3-32b", lay(1, 1, 1, 1)),
                     two = here("qwen3-32b", lay(1, 2, 1, 1));
    struct plan_time a, b;
    plan_prefill(&one, 1, 2048, 0, &a);
    plan_prefill(&two, 1, 2048, 0, &b);
    assert_true(b.total < 0.7 * a.total);
    assert_true(step(two, 1).total > step(one, 1).total);
    /* two requests are in a stage each: a token takes as long as one's, both get it */
    assert_true(step(two, 2).total < 1.05 * step(two, 1).total);
    two.lay.mtp = 1, two.lay.tp = 2, two.lay.ranks = 4; /* drafts go through all stages at once */
    assert_true(step(two, 2).total > step(two, 1).total);
}

TEST(plan_team_few_tokens_of_a_rank_alone_have_no_starts)
{
    struct plan_case c = here("qwen3-32b", lay(1, 1, 1, 1));
    double few = step(c, 4).fixed, many = step(c, 5).fixed;
    double want = links.op * 64 * (7 + 3); /* operators of attention and dense blocks, all layers */
    if (fabs((many - few) / want - 1) > 1e-6)
        fail_msg("%.6f ms, not %.6f", (many - few) * 1e3, want * 1e3);
    c = here("qwen3-32b", lay(2, 1, 1, 1)); /* joins */
    if (fabs(step(c, 4).fixed / many - 1) > 1e-6) fail();
}

/* ---- a device beside the CPU ---- */

TEST(plan_place_takes_the_time_of_the_formula)
{
    /* docs/devices.md: ms of a step of one token by how many experts come late */
    static const struct {
        const char *model;
        double card, cpu, ms[7];
    } rows[] = {
        {"deepseek-r1", 756e9, 340e9, {56.8, 52.7, 48.6, 44.5, 40.4, 37.5, 37.5}},
        {"deepseek-r1", 800e9, 379e9, {52.6, 48.9, 45.2, 41.5, 37.8, 34.1, 34.0}},
        {"deepseek-r1", 756e9, 60e9, {206, 187, 187, 187, 187, 187, 187}},
        {"qwen3-30b-a3b", 204e9, 50e9, {28.0, 25.5, 23.0, 21.4, 21.4, 21.4, 21.4}},
    };
    struct plan_asked q = {.batch = 1, .ctx = 1, .chunk = 512, .kv_bits = 16};
    load();
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        const struct plan_model *m = plan_find_model(&tables, rows[i].model);
        struct plan_format f;
        assert_true(plan_format_find("q4", &f));
        bool r1 = i < 3;
        f.expert = 4.25, f.attn = f.dense = f.head = r1 ? 8 : 4.25;
        /* 25 us of each layer's experts are the CPU's own */
        double c = m->topk * m->p_expert * 4.25 / 8;
        struct plan_card card = {.mem = 1e12, .bw = rows[i].card, .bus = 24e9, .lat = 5e-6,
                                 .hand = 15e-6, .host_bw = c / (c / rows[i].cpu + 25e-6)};
        for (int n = 0; n < 7; n++) {
            struct plan_placing p = {.n_cpu = m->moe_layers, .n_late = n};
            struct plan_placed got;
            plan_place(m, &f, &card, &p, &q, &got);
            double ms = got.step * 1e3, want = rows[i].ms[n];
            if (fabs(ms / want - 1) > 0.07)
                fail_msg("row %d, %d late: %.2f ms, not %.2f", i, n, ms, want);
        }
    }
}

/* docs/serving.md: a state of 2.4 MB in each of 30 layers, and with 8 sequences 2.4 GB of them. */
TEST(plan_place_counts_copies_of_states)
{
    struct plan_asked q = {.batch = 8, .ctx = 1, .kv_bits = 16};
    struct plan_card card = {.mem = 1e12, .bw = 1e12, .bus = 24e9, .lat = 5e-6, .host_bw = 1e11};
    struct plan_placing p = {0};
    struct plan_format f;
    struct plan_placed got;
    load();
    const struct plan_model *m = plan_find_model(&tables, "qwen3.5-35b-a3b");
    assert_true(plan_format_find("q4", &f));
    plan_place(m, &f, &card, &p, &q, &got);
    double bytes = got.dev_kv + got.dev_acts;
    if (fabs(bytes / 2.4e9 - 1) > 0.1) fail_msg("%.3g bytes of states", bytes);
}

TEST(plan_place_fits_what_fits)
{
    struct plan_asked q = {.batch = 1, .ctx = 4096, .chunk = 512, .kv_bits = 16};
    struct plan_card card = {.bw = 1e12, .bus = 24e9, .lat = 5e-6, .host_bw = 100e9};
    struct plan_format f;
    struct plan_placed got;
    load();
    const struct plan_model *m = plan_find_model(&tables, "qwen3-30b-a3b");
    assert_true(plan_format_find("q4", &f));
    card.mem = 24e9;
    assert_int_equal(plan_place_least(m, &f, &card, &q), 0);
    card.mem = 12e9;
    int least = plan_place_least(m, &f, &card, &q);
    assert_true(least > 0 && least < m->moe_layers);
    struct plan_placing p = {.n_cpu = least};
    plan_place(m, &f, &card, &p, &q, &got);
    assert_true(got.over <= 0 && got.free_seq >= 1);
    p.n_cpu--;
    plan_place(m, &f, &card, &p, &q, &got);
    assert_true(got.over > 0);
    p.n_cpu = m->moe_layers;
    p.n_hot = plan_place_hot(m, &f, &card, &p, &q);
    assert_true(p.n_hot > 0 && p.n_hot < m->experts);
    plan_place(m, &f, &card, &p, &q, &got);
    assert_true(got.over <= 0);
    card.mem = 1e9;
    assert_int_equal(plan_place_least(m, &f, &card, &q), -1);
    card.mem = 24e9, card.host_mem = 1e9; /* then the host is too small */
    p.n_hot = 0;
    plan_place(m, &f, &card, &p, &q, &got);
    assert_true(got.over > 0 && got.host_over);
}

/* ---- several devices ---- */

/* Layers are dealt out, and nothing is lost: in turn they take as long as one large device and the
 * ways between; stages have a part of the CPU each, and gain where several sequences are there. */
TEST(plan_cards_deal_layers_out)
{
    struct plan_asked q = {.batch = 1, .ctx = 4096, .prompt = 512, .chunk = 512, .kv_bits = 16};
    struct plan_card card[2], one = {.mem = 1e12, .bw = 800e9, .ops = 1e12, .bus = 24e9,
                                     .lat = 5e-6, .hand = 15e-6, .host_bw = 379e9};
    struct plan_format f;
    load();
    assert_true(plan_format_find("q4", &f));
    card[0] = card[1] = one;
    for (int i = 0; i < 4; i++) {
        const struct plan_model *m = plan_find_model(&tables, i < 2 ? "deepseek-r1" : "qwen3-32b");
        struct plan_cards c = {card, 2, false};
        struct plan_placing p = {.n_cpu = i % 2 ? m->moe_layers : 0};
        struct plan_placed whole;
        struct plan_carded turn, stages;
        plan_place(m, &f, &one, &p, &q, &whole);
        plan_cards(m, &f, &c, &p, &q, &turn);
        c.stages = true;
        plan_cards(m, &f, &c, &p, &q, &stages);
        assert_int_equal(turn.first[2], m->layers);
        assert_int_equal(stages.first[2], m->layers);
        double more = turn.all.dev_weights / whole.dev_weights - 1;
        if (fabs(more) > 0.001) fail_msg("%d: weights %+.4f", i, more);
        if (fabs(turn.all.seq / whole.seq - 1) > 1e-9) fail_msg("%d: cache", i);
        double longer = turn.all.step / whole.step;
        if (longer < 1 || longer > 1.02) fail_msg("%d: in turn %.3f of one", i, longer);
        double host = stages.all.host - 2 * whole.host; /* half of the CPU each */
        if (fabs(host) > 1e-3 * whole.step) fail_msg("%d: the CPU's part", i);
        q.batch = 8;
        plan_cards(m, &f, &c, &p, &q, &stages);
        c.stages = false;
        plan_cards(m, &f, &c, &p, &q, &turn);
        if (!m->moe_layers) assert_true(stages.all.step < 0.65 * turn.all.step);
        q.batch = 1;
    }
}

TEST(plan_cards_fit_what_fits)
{
    struct plan_asked q = {.batch = 1, .ctx = 8192, .chunk = 512, .kv_bits = 8};
    struct plan_card card[2] = {{.mem = 64e9, .bw = 800e9, .bus = 24e9, .host_bw = 379e9}};
    struct plan_format f;
    struct plan_carded got;
    load();
    const struct plan_model *m = plan_find_model(&tables, "deepseek-r1");
    assert_true(plan_format_find("w4a8", &f));
    card[1] = card[0];
    struct plan_cards c = {card, 2, false};
    struct plan_placing p = {0};
    plan_cards(m, &f, &c, &p, &q, &got);
    assert_true(got.all.over > 0);
    p.n_cpu = m->moe_layers;
    p.n_hot = plan_cards_hot(m, &f, &c, &p, &q);
    assert_true(p.n_hot >= 51); /* of 256 in every layer */
    plan_cards(m, &f, &c, &p, &q, &got);
    assert_true(got.all.over <= 0 && got.all.free_seq >= 1);
    p.n_hot += 20;
    plan_cards(m, &f, &c, &p, &q, &got);
    assert_true(got.all.over > 0);
    card[1].mem = 4e9; /* the smaller one decides */
    p.n_hot = 0;
    plan_cards(m, &f, &c, &p, &q, &got);
    assert_true(got.all.over > 0 && got.fullest == 1);
}
