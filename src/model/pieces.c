/* SPDX-License-Identifier: Apache-2.0 */
/* A step in pieces, where layers are in several stages: a stage computes a piece while the next one
 * computes that before it. Pieces are tokens of prompts whose rows nobody wants; what is left, with
 * all rows that are wanted, is the last one. Every rank cuts a step alike. One whose experts are
 * streamed stays whole: what comes for a piece would come again for the next. */
#include <string.h>

#include "model/model_internal.h"

#define LEAST 32     /* tokens of a piece: with fewer, reading the weights takes longer */
#define LEAST_EACH 8 /* the same of an expert */
#define PER_STAGE 4  /* pieces while a stage waits for the first one */
#define OWN_ID ((uint64_t)1 << 63)

static int least_of(const struct arch_cfg *c)
{
    int each = c->n_expert ? LEAST_EACH * c->n_expert / c->n_expert_used : 0;
    return BASE_MAX(LEAST, each);
}

/* Tokens of sequence i before the first whose row is wanted, or the last. */
static int free_of(const struct dev_step *s, int i, int *row)
{
    int end = s->seq_tok0[i + 1] - 1;
    while (*row < s->n_row && s->row_tok[*row] < s->seq_tok0[i])
        ++*row;
    if (*row < s->n_row) end = BASE_MIN(end, s->row_tok[*row]);
    return end - s->seq_tok0[i];
}

void model_pieces_cut(const struct dev_step *s, int least, int n_max, struct model_pieces *c)
{
    int n = BASE_MIN(BASE_MIN(s->n_tok / least, n_max), MODEL_PIECES), row = 0;
    c->n = 0;
    if (n < 2) return;
    int size = (s->n_tok + n - 1) / n, left = s->n_tok;
    for (int i = 0; i < s->n_seq; i++) {
        int at = s->seq_tok0[i], end = at + free_of(s, i, &row);
        for (; at + size <= end && left >= 2 * size; at += size, left -= size)
            c->piece[c->n++] = (struct model_piece){i, at, size};
    }
}

sl_status model_pieces_open(struct model *m, sl_err *err)
{
    struct model_pieces *c = &m->pieces;
    size_t T = (size_t)m->opts.n_tok_max, S = (size_t)m->opts.n_seq_max;
    void *p = NULL;
    if (m->dims.n_stage == 1) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, 3 * T + S + 1, sizeof(int32_t), &p, err));
    c->ids = p;
    c->pos = c->ids + T;
    c->row_tok = c->pos + T;
    c->seq_tok0 = c->row_tok + T;
    SL_TRY(mem_arena_array(&m->arena, S, sizeof *c->keep, &p, err));
    c->keep = p;
    return SL_OK;
}

struct dev_step model_pieces_rest(const struct dev_step *s, struct model_pieces *c)
{
    struct dev_step r = *s;
    int k = 0, row = 0, n = 0;
    for (int i = 0; i < s->n_seq; i++) {
        int at = s->seq_tok0[i], end = s->seq_tok0[i + 1];
        for (; k < c->n && c->piece[k].seq == i; k++)
            at = c->piece[k].tok0 + c->piece[k].n_tok;
        c->seq_tok0[i] = n;
        for (; row < s->n_row && s->row_tok[row] < end; row++)
            c->row_tok[row] = s->row_tok[row] - at + n;
        memcpy(c->ids + n, s->ids + at, (size_t)(end - at) * sizeof *c->ids);
        memcpy(c->pos + n, s->pos + at, (size_t)(end - at) * sizeof *c->pos);
        n += end - at;
    }
    c->seq_tok0[s->n_seq] = n;
    r.n_tok = n;
    r.ids = c->ids;
    r.pos = c->pos;
    r.seq_tok0 = c->seq_tok0;
    r.row_tok = c->row_tok;
    return r;
}

/* ---- running ---- */

static sl_status run_one(struct model *m, dev_kv *kv, const struct dev_step *s, sl_err *err)
{
    int D = m->cfg.d_model, X = (int)model_x_cols(&m->cfg);
    bool few, near = dev_is_host(m->d), takes = m->dims.stage > 0 && s->pass == 0;
    float *x = near ? model_side(m, MODEL_ATTN)->x : m->stage;
    dev_prog *p = NULL;
    const struct dev_ranks *ranks = m->ranks.join.n_rank > 1 ? &m->ranks.join : NULL;
    struct dev_share of = dev_share_of(ranks, m->dims.rank, s->n_tok); /* in every stage */
    x += (int64_t)of.begin * X;
    if (takes && !near) SL_TRY(dev_sync(m->d, err)); /* the piece before may still be read there */
    if (takes) dist_take(m->opts.dist, x, of.n, X);
    const struct side *in = model_late_in(m), *out = model_late_out(m); /* without shares */
    if (takes && in) dist_take(m->opts.dist, model_late_rows(m, in), s->n_tok, D);
    SL_TRY(model_few_run(m, kv, s, &few, err));
    if (few) return SL_OK;
    SL_TRY(model_stream_prog(m, s, &p, err));
    SL_TRY(dev_prog_run(p ? p : m->prog[s->pass], kv, s, err));
    if (model_is_last(&m->dims)) return SL_OK;
    if (!near) SL_TRY(dev_sync(m->d, err));
    dist_give(m->opts.dist, x, of.n, X);
    if (out) dist_give(m->opts.dist, model_late_rows(m, out), s->n_tok, D);
    return SL_OK;
}

static sl_status run_piece(struct model *m, dev_kv *kv, const struct model_piece *p, bool first,
                           sl_err *err)
{
    const struct dev_step *s = m->step;
    int32_t tok0[2] = {0, p->n_tok};
    struct dev_keep keep = {0};
    struct dev_step one = *s;
    one.n_tok = p->n_tok;
    one.n_seq = 1;
    one.ids += p->tok0;
    one.pos += p->tok0;
    one.seq_tok0 = tok0;
    for (int g = 0; g < DEV_KV_GROUPS; g++)
        if (one.blk[g]) one.blk[g] += (int64_t)p->seq * s->ld_blk;
    one.seat += p->seq;
    one.n_prompt += p->seq;
    one.n_draft = NULL; /* of a prompt */
    keep.id = m->pieces.keep[p->seq].id; /* not its last piece */
    one.keep = &keep;
    if (!first) one.n_copy = 0;
    one.n_row = 0;
    one.want = 0;
    return run_one(m, kv, &one, err);
}

/* A prompt that the step has whole is one in pieces now. */
static void name_kept(const struct dev_step *s, struct model_pieces *c)
{
    for (int i = 0; i < s->n_seq; i++)
        c->keep[i] = s->keep ? s->keep[i] : (struct dev_keep){0};
    for (int k = 0; k < c->n; k++) {
        struct dev_keep *keep = &c->keep[c->piece[k].seq];
        if (!keep->id) *keep = (struct dev_keep){OWN_ID | ++c->n_kept, true};
    }
}

/* ---- of groups with sequences of their own ---- */

static void cut(const struct model *m, const struct dev_step *s, struct model_pieces *c)
{
    model_pieces_cut(s, least_of(&m->cfg), PER_STAGE * (m->dims.n_stage - 1), c);
}

/* What the pieces of every group are, all of which run at the same time. */
static void cut_all(struct model *m, const struct dev_step *all)
{
    struct model_own *o = &m->own;
    struct model_pieces *c = &m->pieces;
    struct dev_step part = *all;
    o->n_piece = 0;
    memset(o->piece_tok, 0, sizeof o->piece_tok);
    for (int g = 0; g < m->dims.n_dp; g++) {
        part.n_tok = o->n_tok[g];
        part.n_seq = o->n_seq[g];
        part.n_row = o->n_row[g];
        cut(m, &part, c);
        for (int k = 0; k < c->n; k++)
            o->piece_tok[g][k] = c->piece[k].n_tok;
        o->n_piece = BASE_MAX(o->n_piece, c->n);
        part.seq_tok0 += part.n_seq;
        part.row_tok += part.n_row;
    }
}

/* Tokens of every group's piece k; k n_piece: of what is left. */
static void share_piece(struct model *m, int k)
{
    const struct model_own *o = &m->own;
    int32_t n_tok[DIST_RANK_MAX];
    for (int g = 0; g < m->dims.n_dp; g++) {
        n_tok[g] = k < o->n_piece ? o->piece_tok[g][k] : o->n_tok[g];
        for (int i = 0; i < o->n_piece && k == o->n_piece; i++)
            n_tok[g] -= o->piece_tok[g][i];
    }
    model_own_share(m, n_tok);
}

/* Others have a piece more. */
static sl_status run_none(struct model *m, dev_kv *kv, sl_err *err)
{
    struct dev_step none = *m->step;
    none.n_tok = none.n_seq = none.n_row = none.n_copy = 0;
    none.want = 0;
    return run_one(m, kv, &none, err);
}

sl_status model_stages_run(struct model *m, dev_kv *kv, const struct dev_step *all, sl_err *err)
{
    const struct dev_step *s = m->step;
    struct model_pieces *c = &m->pieces;
    bool own = model_is_own(m);
    c->n = m->own.n_piece = 0;
    if (s->pass && !model_is_last(&m->dims)) return SL_OK; /* MTP layers are the last stage's */
    bool whole = s->want & DEV_WANT_HIDDEN || m->keeps_hidden || model_stream_has(m, s);
    if (s->pass == 0 && all->n_tok && !whole) {
        if (own) cut_all(m, all);
        cut(m, s, c);
    }
    name_kept(s, c);
    for (int k = 0; k < BASE_MAX(c->n, m->own.n_piece); k++) {
        if (own) share_piece(m, k);
        SL_TRY(k < c->n ? run_piece(m, kv, &c->piece[k], k == 0, err) : run_none(m, kv, err));
    }
    if (own) share_piece(m, m->own.n_piece);
    if (!c->n) return run_one(m, kv, s, err);
    c->rest = model_pieces_rest(s, c);
    c->rest.keep = c->keep;
    c->rest.n_copy = 0; /* the first piece has made them */
    m->step = &c->rest;
    return run_one(m, kv, &c->rest, err);
}
