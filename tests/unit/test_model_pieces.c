/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in pieces: every token is in one, in its order; rows that are wanted stay together. */
#include <string.h>

#include "base/rng.h"
#include "model/model_internal.h"
#include "test.h"

#define SEQS 6
#define TOKS 600
#define LEAST 32

struct step {
    struct dev_step s;
    int32_t ids[TOKS], pos[TOKS], tok0[SEQS + 1], row[TOKS];
};

/* Sequences of one token and of many, some with rows of all, some with none. */
static void make(struct step *t, uint64_t *rng)
{
    int n_seq = 1 + (int)(rng_next(rng) % SEQS), n = 0, n_row = 0;
    for (int i = 0; i < n_seq; i++) {
        int n_tok = rng_next(rng) % 3 ? 1 + (int)(rng_next(rng) % (TOKS / SEQS)) : 1,
            from = rng_next(rng) % 4 ? n_tok - 1 : (int)(rng_next(rng) % (uint64_t)(n_tok + 1));
        if (i == 0) n_tok = TOKS / SEQS; /* one is long enough */
        t->tok0[i] = n;
        for (int k = 0; k < n_tok; k++, n++) {
            t->ids[n] = 1000 * i + k;
            t->pos[n] = 7 * i + k;
            if (k >= from) t->row[n_row++] = n;
        }
    }
    t->tok0[n_seq] = n;
    t->s = (struct dev_step){.n_tok = n,
                             .n_seq = n_seq,
                             .ids = t->ids,
                             .pos = t->pos,
                             .seq_tok0 = t->tok0,
                             .n_row = n_row,
                             .row_tok = t->row};
}

/* How many pieces there are beside the rest. */
static int check(const struct step *t, int n_max)
{
    static int32_t ids[TOKS], pos[TOKS], row[TOKS], tok0[SEQS + 1];
    const struct dev_step *s = &t->s;
    struct model_pieces c = {.ids = ids, .pos = pos, .row_tok = row, .seq_tok0 = tok0};
    int at[SEQS] = {0};
    model_pieces_cut(s, LEAST, n_max, &c);
    assert_true(c.n < BASE_MAX(n_max, 1));
    for (int k = 0; k < c.n; k++) {
        const struct model_piece *p = &c.piece[k];
        assert_true(p->n_tok >= LEAST);
        assert_int_equal(p->tok0, t->tok0[p->seq] + at[p->seq]);
        at[p->seq] += p->n_tok;
        for (int i = 0; i < s->n_row; i++)
            assert_true(t->row[i] < p->tok0 || t->row[i] >= p->tok0 + p->n_tok);
    }
    if (c.n == 0) return 0;
    struct dev_step r = model_pieces_rest(s, &c);
    assert_int_equal(r.n_seq, s->n_seq);
    assert_int_equal(r.n_row, s->n_row);
    for (int i = 0; i < s->n_seq; i++) {
        int n = tok0[i + 1] - tok0[i], first = t->tok0[i] + at[i];
        assert_true(n >= 1);
        assert_int_equal(at[i] + n, t->tok0[i + 1] - t->tok0[i]);
        assert_memory_equal(ids + tok0[i], t->ids + first, sizeof *ids * (size_t)n);
        assert_memory_equal(pos + tok0[i], t->pos + first, sizeof *pos * (size_t)n);
    }
    assert_int_equal(r.n_tok, tok0[s->n_seq]);
    for (int i = 0; i < s->n_row; i++)
        assert_int_equal(ids[row[i]], t->ids[t->row[i]]);
    return c.n;
}

TEST(model_pieces_keep_every_token_and_row)
{
    static struct step t;
    uint64_t rng = 3;
    int n = 0;
    for (int i = 0; i < 3000; i++) {
        make(&t, &rng);
        n += check(&t, (int)(rng_next(&rng) % 20));
    }
    assert_true(n > 1000);
}

TEST(model_pieces_of_a_prompt_is_even)
{
    static struct step t;
    struct model_pieces c;
    for (int i = 0; i < 512; i++)
        t.pos[i] = i;
    t.tok0[1] = 512;
    t.row[0] = 511;
    t.s = (struct dev_step){.n_tok = 512,
                            .n_seq = 1,
                            .ids = t.ids,
                            .pos = t.pos,
                            .seq_tok0 = t.tok0,
                            .n_row = 1,
                            .row_tok = t.row};
    model_pieces_cut(&t.s, LEAST, 4, &c);
    assert_int_equal(c.n, 3); /* and the rest */
    for (int k = 0; k < c.n; k++)
        assert_int_equal(c.piece[k].n_tok, 128);
    t.row[0] = 0; /* a row of the first token: nothing comes before it */
    model_pieces_cut(&t.s, LEAST, 4, &c);
    assert_int_equal(c.n, 0);
    t.row[0] = 511;
    t.s.n_tok = t.tok0[1] = 63;
    model_pieces_cut(&t.s, LEAST, 4, &c);
    assert_int_equal(c.n, 0);
}
