/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of groups that have sequences of their own: each cuts its part out of the step of all, and
 * what comes of it goes to rank 0. A group that has no part of a step runs it all the same, for the
 * others' tokens come to its experts. Ranks of a group have all of its tokens, and share the rows
 * that go to experts. */
#include <string.h>

#include "model/model_internal.h"

static sl_status ints(struct model *m, size_t n, int32_t **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, n + 1, sizeof(int32_t), &p, err));
    *out = p;
    return SL_OK;
}

sl_status model_own_open(struct model *m, sl_err *err)
{
    struct model_own *o = &m->own;
    const struct model_opts *k = &m->opts;
    size_t n_seq = (size_t)k->n_seq_max, n_tok = (size_t)k->n_tok_max;
    o->ld_blk = (k->n_ctx + k->blk_tok - 1) / k->blk_tok;
    SL_TRY(ints(m, n_seq, &o->seq_tok0, err));
    SL_TRY(ints(m, n_seq, &o->seat, err));
    SL_TRY(ints(m, 3 * MODEL_COPIES * n_seq, &o->copy, err));
    SL_TRY(ints(m, (size_t)k->n_logit_max, &o->row_tok, err));
    SL_TRY(ints(m, n_tok, &o->hidden_row, err));
    for (int g = 0; g < DEV_KV_GROUPS; g++)
        if (k->n_blk[g]) SL_TRY(ints(m, n_seq * (size_t)o->ld_blk, &o->blk[g], err));
    return SL_OK;
}

struct side *model_own_experts(const struct model *m)
{
    for (int il = 0; il < m->cfg.n_layer + m->cfg.n_mtp; il++)
        if (model_has_layer(&m->cfg, &m->dims, il) && m->cfg.layer[il].ffn == ARCH_MOE)
            return model_side_in(m, il, MODEL_EXPERTS);
    return model_side(m, MODEL_ATTN);
}

static int group_of_block(const struct model *m, int group, int32_t blk)
{
    int n = m->opts.n_blk[group];
    return n ? blk / n : -1;
}

/* What each group has of the step. */
static sl_status count(struct model *m, const struct dev_step *s, sl_err *err)
{
    struct model_own *o = &m->own;
    int last = 0, row = 0;
    memset(o->n_tok, 0, sizeof o->n_tok);
    memset(o->n_seq, 0, sizeof o->n_seq);
    memset(o->n_row, 0, sizeof o->n_row);
    for (int i = 0; i < s->n_seq; i++) {
        int r = group_of_block(m, DEV_KV_PAGED, s->blk[DEV_KV_PAGED][(int64_t)i * s->ld_blk]);
        if (r < last || r >= m->dims.n_dp)
            return SL_FAIL(err, INTERNAL,
                           "sequence %d of a step is group %d's, after one of group %d", i, r,
                           last);
        last = r;
        o->n_seq[r]++;
        o->n_tok[r] += s->seq_tok0[i + 1] - s->seq_tok0[i];
        for (; row < s->n_row && s->row_tok[row] < s->seq_tok0[i + 1]; row++)
            o->n_row[r]++;
    }
    const struct model_opts *k = &m->opts;
    for (int r = 0; r < m->dims.n_dp; r++)
        if (o->n_tok[r] > k->n_tok_max || o->n_seq[r] > k->n_seq_max ||
            o->n_row[r] > k->n_logit_max)
            return SL_FAIL(err, INTERNAL, "group %d has %d tokens, %d sequences, %d rows of a step",
                           r, o->n_tok[r], o->n_seq[r], o->n_row[r]);
    return SL_OK;
}

/* Numbers of seats become this group's; the last of all, which is for no request, its last. */
static void take_seats(struct model *m, const struct dev_step *s, int seq0, struct dev_step *to)
{
    int n = m->opts.n_seq_max;
    for (int i = 0; i < to->n_seq; i++)
        m->own.seat[i] = BASE_MIN(s->seat[seq0 + i] - m->dims.dp * n, n);
    to->seat = m->own.seat;
}

/* Numbers of blocks become this group's. */
static void take_tables(struct model *m, const struct dev_step *s, int seq0, struct dev_step *to)
{
    struct model_own *o = &m->own;
    for (int g = 0; g < DEV_KV_GROUPS; g++) {
        if (!s->blk[g] || !o->blk[g]) continue;
        int first = m->dims.dp * m->opts.n_blk[g];
        for (int i = 0; i < to->n_seq; i++) {
            int n = (to->pos[to->seq_tok0[i + 1] - 1]) / m->opts.blk_tok + 1;
            for (int j = 0; j < n; j++) {
                int32_t blk = s->blk[g][(int64_t)(seq0 + i) * s->ld_blk + j];
                bool ours = group_of_block(m, g, blk) == m->dims.dp; /* else it is not read */
                o->blk[g][(int64_t)i * o->ld_blk + j] = ours ? blk - first : 0;
            }
        }
        to->blk[g] = o->blk[g];
    }
    to->ld_blk = o->ld_blk;
}

static void take_copies(struct model *m, const struct dev_step *s, struct dev_step *to)
{
    int32_t *at = m->own.copy;
    to->n_copy = 0;
    for (const int32_t *c = s->copy, *end = c + 3 * (int64_t)s->n_copy; c < end; c += 3) {
        int first = m->dims.dp * m->opts.n_blk[c[0]];
        if (group_of_block(m, c[0], c[2]) != m->dims.dp) continue;
        at[3 * to->n_copy] = c[0];
        at[3 * to->n_copy + 1] = c[1] - first;
        at[3 * to->n_copy++ + 2] = c[2] - first;
    }
    to->copy = at;
}

sl_status model_own_take(struct model *m, const struct dev_step *s, sl_err *err)
{
    struct model_own *o = &m->own;
    struct dev_step *to = &o->step;
    int seq0 = 0, row0 = 0, tok0 = 0, me = m->dims.dp;
    SL_TRY(count(m, s, err));
    for (int r = 0; r < me; r++) {
        seq0 += o->n_seq[r];
        row0 += o->n_row[r];
        tok0 += o->n_tok[r];
    }
    *to = *s;
    to->n_tok = o->n_tok[me];
    to->n_seq = o->n_seq[me];
    to->n_row = o->n_row[me];
    to->ids += tok0;
    to->pos += tok0;
    for (int i = 0; i <= to->n_seq; i++)
        o->seq_tok0[i] = s->seq_tok0[seq0 + i] - tok0;
    to->seq_tok0 = o->seq_tok0;
    take_seats(m, s, seq0, to);
    to->n_prompt += seq0;
    if (s->n_draft) to->n_draft += seq0;
    if (s->keep) to->keep += seq0;
    for (int i = 0; i < to->n_row; i++)
        o->row_tok[i] = s->row_tok[row0 + i] - tok0;
    to->row_tok = o->row_tok;
    if (s->row_want) to->row_want += row0;
    for (int t = 0; s->hidden_row && t < to->n_tok; t++)
        o->hidden_row[t] = s->hidden_row[tok0 + t] - o->tok_before;
    if (s->hidden_row) to->hidden_row = o->hidden_row;
    if (s->pass <= m->cfg.n_mtp) o->tok_before = tok0; /* else its hidden states stay */
    take_tables(m, s, seq0, to);
    take_copies(m, s, to);
    m->step = to;
    return SL_OK;
}

void model_own_share(struct model *m, const int32_t *n_tok)
{
    int n = m->dims.n_rank;
    for (int g = 0; g < m->dims.n_dp; g++)
        for (int r = 0; r < n; r++)
            m->ranks.tok_of[g * n + r] = n_tok[g] * (r + 1) / n - n_tok[g] * r / n;
    m->ranks.spread.tok0 = n_tok[m->dims.dp] * m->dims.rank / n;
}

/* Of each group its first rank's. */
static void gather(struct model *m, const void *x, float *y, int n, const int32_t *n_of)
{
    int32_t of[DIST_RANK_MAX] = {0};
    for (int g = 0; g < m->dims.n_dp; g++)
        of[g * m->dims.n_rank] = n_of[g];
    dist_gather(
        m->opts.dist,
        &(struct dist_gather){.of = DIST_STAGE, .x = x, .y = y, .n = n, .n_of = of, .home = true});
}

void model_own_give(struct model *m, const struct model_rows *own, struct model_rows *out)
{
    const struct model_own *o = &m->own;
    const struct dev_step *s = &o->step;
    const struct side *a = model_side(m, MODEL_HEAD);
    int n_vocab = model_n_logit(m, s->pass), n_seq = 0;
    bool home = m->opts.rank == 0;
    *out = (struct model_rows){0};
    if (s->want & DEV_WANT_LOGITS) gather(m, own->logits, a->all_logits, n_vocab, o->n_row);
    if (s->want & DEV_WANT_BEST) gather(m, own->best, a->all_best, 1, o->n_row);
    if (s->want & DEV_WANT_HIDDEN) gather(m, own->hidden, a->all_hidden, m->cfg.d_model, o->n_tok);
    if (s->want & DEV_WANT_FINITE) {
        for (int i = 0; i < s->n_seq && own->n_bad; i++)
            a->all_bad[i] = own->n_bad[i];
        gather(m, a->all_bad, a->all_bad + m->opts.n_seq_max, 1, o->n_seq);
    }
    if (!home) return;
    if (s->want & DEV_WANT_LOGITS) out->logits = a->all_logits;
    if (s->want & DEV_WANT_BEST) out->best = (const int32_t *)(const void *)a->all_best;
    if (s->want & DEV_WANT_HIDDEN) out->hidden = a->all_hidden;
    if (!(s->want & DEV_WANT_FINITE)) return;
    for (int r = 0; r < m->dims.n_dp; r++)
        n_seq += o->n_seq[r];
    for (int i = 0; i < n_seq; i++) {
        m->n_bad[i] = (uint8_t)a->all_bad[m->opts.n_seq_max + i];
        m->finite[i] = m->n_bad[i] == 0;
    }
    out->finite = m->finite;
    out->n_bad = m->n_bad;
}
