/* SPDX-License-Identifier: Apache-2.0 */
/* A step of ranks with sequences of their own in two halves: while rows of one are on their way to
 * experts, or from them, the other one computes. No sequence is in both. The halves have buffers
 * and programs of their own up to the last layer; from there on the step is whole again. Every rank
 * knows the whole step, and cuts all groups alike: one may have no sequence in a half, or in both,
 * and runs its experts for the others. */
#include <string.h>

#include "dev/halves.h"
#include "model/emit.h"

sl_status model_micro_check(const struct model *m, sl_err *err)
{
    struct dev_info info;
    dev_info_get(m->d, &info);
    if (m->opts.micro < 2) return SL_OK;
    if (!model_is_own(m) || !m->cfg.n_expert)
        return SL_FAIL(err, UNSUPPORTED,
                       "micro: 2: goes with a layout with dp, of a model with experts");
    if (m->dims.n_stage > 1)
        return SL_FAIL(err, UNSUPPORTED, "micro: 2: not with pp, whose stages have lanes");
    if (m->dims.n_rank > 1) return SL_FAIL(err, UNSUPPORTED, "micro: 2: not with tp beside dp");
    if (m->place.n_dev > 1 || !dev_has_halves(m->d))
        return SL_FAIL(err, UNSUPPORTED,
                       "micro: 2: %s: on the CPU alone, other devices compute a step in one piece",
                       m->place.n_dev > 1 ? "place" : info.name);
    return SL_OK;
}

/* The second half's side takes the place of the first's, or leaves it. */
static void change(struct model *m)
{
    struct side s = m->side[0];
    m->side[0] = m->micro.side;
    m->micro.side = s;
    m->micro.is_second = !m->micro.is_second;
}

static void look(void *user)
{
    const struct model *m = user;
    dist_look(m->opts.dist);
}

sl_status model_micro_open(struct model *m, sl_err *err)
{
    struct model_micro *c = &m->micro;
    void *p = NULL;
    if (model_is_own(m) && dev_has_halves(m->d)) dev_halves_look(m->d, look, m);
    if (m->opts.micro < 2) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, (size_t)m->opts.n_seq_max + 1, sizeof(int32_t), &p, err));
    c->seq_tok0 = p;
    c->side = (struct side){.d = m->d, .n_routed = m->side[0].n_routed};
    change(m);
    sl_status st = model_buffers_side(m, &m->side[0], err);
    change(m);
    c->spread = model_buffers_spread(m, &c->side);
    c->spread.n_tok_of = c->tok_of;
    return st;
}

static sl_status open_half(struct model *m, int i, struct dev_op *op, sl_err *err)
{
    struct model_micro *c = &m->micro;
    struct emit e = {.op = op, .n_max = model_op_max(m)};
    if (i) change(m);
    model_emit_begin(&e, m);
    model_pass_emit(&e, 0);
    if (i) change(m);
    SL_TRY(dev_prog_open(m->d, op, e.n_body, &c->half[i], err));
    return i ? SL_OK : dev_prog_open(m->d, op + e.n_body, e.n - e.n_body, &c->tail, err);
}

sl_status model_micro_progs(struct model *m, sl_err *err)
{
    void *p = NULL;
    if (m->opts.micro < 2) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)model_op_max(m), sizeof(struct dev_op), &p, err));
    sl_status st = open_half(m, 1, p, err);
    if (!st) st = open_half(m, 0, p, err);
    mem_free(p);
    return st;
}

void model_micro_close(struct model *m)
{
    dev_prog_close(m->micro.half[0]);
    dev_prog_close(m->micro.half[1]);
    dev_prog_close(m->micro.tail);
}

bool model_micro_cut(const int32_t *seq_tok0, const int32_t *n_seq, int n_dp,
                     struct model_first *out)
{
    int64_t lead = 0; /* tokens of first halves over those of second ones */
    int most = 0;
    for (int g = 0; g < n_dp; seq_tok0 += n_seq[g++]) {
        int64_t n = seq_tok0[n_seq[g]] - seq_tok0[0], best = INT64_MAX;
        for (int i = 0; i <= n_seq[g]; i++) {
            int64_t off = lead + 2 * (int64_t)(seq_tok0[i] - seq_tok0[0]) - n;
            off = off < 0 ? -off : off;
            if (off >= best) continue;
            best = off;
            out->n_seq[g] = i;
            out->n_tok[g] = seq_tok0[i] - seq_tok0[0];
        }
        lead += 2 * (int64_t)out->n_tok[g] - n;
        most = BASE_MAX(most, n_seq[g]);
    }
    return most > 1;
}

/* Sequences [seq0, seq0 + n_seq) of this rank's, of which no rows of results are wanted yet. */
static struct dev_step part_of(const struct dev_step *s, int seq0, int n_seq, int32_t *seq_tok0)
{
    struct dev_step p = *s;
    int tok0 = s->seq_tok0[seq0];
    p.n_seq = n_seq;
    p.n_tok = s->seq_tok0[seq0 + n_seq] - tok0;
    p.ids += tok0;
    p.pos += tok0;
    for (int i = 0; i <= n_seq; i++)
        seq_tok0[i] = s->seq_tok0[seq0 + i] - tok0;
    p.seq_tok0 = seq_tok0;
    p.seat += seq0;
    p.n_prompt += seq0;
    if (s->n_draft) p.n_draft += seq0;
    if (s->keep) p.keep += seq0;
    for (int g = 0; g < DEV_KV_GROUPS; g++)
        if (s->blk[g]) p.blk[g] += (int64_t)seq0 * s->ld_blk;
    p.n_copy = p.n_row = 0; /* copies are made when the whole step begins */
    p.want = 0;
    return p;
}

/* What the layers have left of the second half comes behind that of the first. */
static void merge(void *user)
{
    const struct model *m = user;
    const struct side *a = model_side(m, MODEL_ATTN), *b = &m->micro.side;
    int64_t X = model_x_cols(&m->cfg), D = m->cfg.d_model, M = model_stream_mix_cols(&m->cfg);
    int64_t at = m->micro.step[0].n_tok, n = m->micro.step[1].n_tok;
    memcpy(a->x + at * X, b->x, (size_t)(n * X) * sizeof *a->x);
    memcpy(a->r + at * D, b->r, (size_t)(n * D) * sizeof *a->r);
    if (M)
        memcpy(a->stream_mix + at * M, b->stream_mix, (size_t)(n * M) * sizeof *a->stream_mix);
}

bool model_micro_run(struct model *m, dev_kv *kv, const struct dev_step *all)
{
    struct model_micro *c = &m->micro;
    const struct dev_step *s = m->step;
    struct model_first first;
    if (!c->tail || all->pass || m->tap_fn) return false;
    if (!model_micro_cut(all->seq_tok0, m->own.n_seq, m->dims.n_dp, &first)) return false;
    int n = first.n_seq[m->dims.dp];
    int32_t *seq_tok0 = m->own.seq_tok0; /* whose first are those of the first half */
    c->step[0] = part_of(s, 0, n, seq_tok0);
    c->step[1] = part_of(s, n, s->n_seq - n, c->seq_tok0);
    model_own_share(m, first.n_tok);
    for (int g = 0; g < m->dims.n_dp; g++)
        c->tok_of[g] = m->own.n_tok[g] - first.n_tok[g];
    const struct dev_halves h = {.half = {c->half[0], c->half[1]},
                                 .tail = c->tail,
                                 .s = {&c->step[0], &c->step[1]},
                                 .merge = merge,
                                 .user = m};
    dev_halves_run(&h, kv, s);
    return true;
}
