/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens of a step go on to its end: all rows that are wanted, of every sequence the last,
 * and no other. */
#include "base/rng.h"
#include "model/model_internal.h"
#include "test.h"

#define SEQS 5
#define TOKS 400

struct arrays {
    int32_t tok[TOKS], pos[TOKS], row[TOKS], tok0[SEQS + 1];
};
struct step {
    struct dev_step s;
    struct arrays a;
    bool goes_on[TOKS];
};

static struct model_few few_of(struct arrays *a)
{
    return (struct model_few){
        .tok = a->tok, .pos = a->pos, .row_tok = a->row, .seq_tok0 = a->tok0};
}

/* Sequences of one token or many, rows of a few of them or of one in every few. */
static void make(struct step *t, uint64_t *rng)
{
    int n_seq = 1 + (int)(rng_next(rng) % SEQS), n = 0, n_row = 0;
    *t = (struct step){0};
    for (int i = 0; i < n_seq; i++) {
        int n_tok = 1 + (int)(rng_next(rng) % (rng_next(rng) % 2 ? TOKS / SEQS : 3));
        uint64_t each = rng_next(rng) % 2 ? 2 : 50;
        t->a.tok0[i] = n;
        for (int k = 0; k < n_tok; k++, n++) {
            bool wanted = rng_next(rng) % each == 0;
            t->a.pos[n] = 1000 * i + k;
            t->goes_on[n] = wanted || k == n_tok - 1;
            if (wanted) t->a.row[n_row++] = n;
        }
    }
    t->a.tok0[n_seq] = n;
    t->s = (struct dev_step){.n_tok = n,
                             .n_seq = n_seq,
                             .pos = t->a.pos,
                             .seq_tok0 = t->a.tok0,
                             .n_row = n_row,
                             .row_tok = t->a.row,
                             .n_copy = 1,
                             .want = DEV_WANT_FINITE};
}

/* Was it a step with few rows? */
static bool check(const struct step *t)
{
    static struct arrays out;
    struct model_few f = few_of(&out);
    const struct dev_step *s = &t->s, *to = &f.step;
    int n = 0, seq = 0;
    for (int k = 0; k < s->n_tok; k++)
        n += t->goes_on[k];
    bool few = model_few_choose(s, &f);
    assert_int_equal(few, s->n_tok >= 32 && 2 * n <= s->n_tok);
    if (!few) return false;
    assert_int_equal(to->n_tok, n);
    assert_int_equal(to->n_seq, s->n_seq);
    assert_int_equal(to->n_row, s->n_row);
    assert_int_equal(to->n_copy, 0);
    assert_int_equal(to->want, s->want);
    for (int k = 0, i = 0; k < s->n_tok; k++) {
        if (!t->goes_on[k]) continue;
        while (s->seq_tok0[seq + 1] <= k)
            seq++;
        assert_int_equal(f.tok[i], k);
        assert_int_equal(to->pos[i], s->pos[k]);
        assert_in_range(i, to->seq_tok0[seq], to->seq_tok0[seq + 1] - 1);
        i++;
    }
    assert_int_equal(to->seq_tok0[s->n_seq], n);
    for (int i = 0; i < s->n_row; i++)
        assert_int_equal(f.tok[to->row_tok[i]], s->row_tok[i]);
    return true;
}

TEST(model_few_are_rows_and_last_tokens)
{
    uint64_t rng = 5;
    int n_few = 0, n_all = 0;
    for (int i = 0; i < 4000; i++) {
        struct step t;
        make(&t, &rng);
        if (check(&t))
            n_few++;
        else
            n_all++;
    }
    assert_true(n_few > 500 && n_all > 500);
}

TEST(model_few_are_none_of_a_piece)
{
    struct arrays out;
    struct model_few f = few_of(&out);
    int32_t pos[64] = {0}, tok0[2] = {0, 64}, row = 63;
    struct dev_step s = {.n_tok = 64, .n_seq = 1, .pos = pos, .seq_tok0 = tok0};
    assert_true(model_few_choose(&s, &f)); /* nothing of it is wanted */
    assert_int_equal(f.step.n_tok, 0);
    s.want = DEV_WANT_LOGITS | DEV_WANT_HIDDEN;
    s.n_row = 1;
    s.row_tok = &row;
    assert_false(model_few_choose(&s, &f)); /* the hidden states of all */
    s.want = DEV_WANT_LOGITS;
    assert_true(model_few_choose(&s, &f));
    assert_int_equal(f.step.n_tok, 1);
    assert_int_equal(f.tok[0], 63);
}
