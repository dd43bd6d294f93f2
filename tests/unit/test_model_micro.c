/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in two halves: every group's first sequences are in the first, tokens of all groups are as
 * even as sequences allow, and it is known whether there is anything to cut. */
#include "base/rng.h"
#include "model/model_internal.h"
#include "test.h"

#define GROUPS 6
#define SEQS 9

struct groups {
    int32_t n_seq[GROUPS], tok0[GROUPS * SEQS + 1];
    int n, longest; /* tokens of a sequence */
};

static void make(struct groups *g, uint64_t *rng)
{
    int i = 0;
    g->n = 1 + (int)(rng_next(rng) % GROUPS);
    g->tok0[0] = g->longest = 0;
    for (int r = 0; r < g->n; r++) {
        g->n_seq[r] = (int32_t)(rng_next(rng) % SEQS);
        if (rng_next(rng) % 3 == 0) g->n_seq[r] %= 2;
        for (int k = 0; k < g->n_seq[r]; k++, i++) {
            int n = rng_next(rng) % 4 ? 1 : 1 + (int)(rng_next(rng) % 50);
            g->tok0[i + 1] = g->tok0[i] + n;
            g->longest = BASE_MAX(g->longest, n);
        }
    }
}

TEST(model_micro_cuts_between_sequences)
{
    uint64_t rng = 5;
    int n_cut = 0;
    for (int round = 0; round < 5000; round++) {
        struct groups g;
        struct model_first first = {{0}, {0}};
        make(&g, &rng);
        bool cut = model_micro_cut(g.tok0, g.n_seq, g.n, &first), two = false;
        int off = 0;
        for (int r = 0, at = 0; r < g.n; at += g.n_seq[r++]) {
            int n = g.tok0[at + g.n_seq[r]] - g.tok0[at];
            two |= g.n_seq[r] > 1;
            assert_true(first.n_seq[r] >= 0 && first.n_seq[r] <= g.n_seq[r]);
            assert_int_equal(first.n_tok[r], g.tok0[at + first.n_seq[r]] - g.tok0[at]);
            off += 2 * first.n_tok[r] - n;
            /* after each group */
            assert_true(off <= g.longest && off >= -g.longest);
        }
        assert_true(cut == two);
        n_cut += cut;
    }
    assert_true(n_cut > 1000 && n_cut < 5000);
}

TEST(model_micro_cuts_groups_of_one_by_turns)
{
    const int32_t tok0[] = {0, 1, 2, 3, 4, 5}, n_seq[] = {1, 1, 0, 1, 2};
    struct model_first f;
    assert_true(model_micro_cut(tok0, n_seq, 5, &f));
    assert_int_equal(f.n_seq[0] + f.n_seq[1], 1);
    assert_int_equal(f.n_seq[2], 0);
    assert_int_equal(f.n_seq[4], 1);
    assert_false(model_micro_cut(tok0, n_seq, 4, &f));
    assert_false(model_micro_cut(tok0, n_seq, 0, &f));
}
