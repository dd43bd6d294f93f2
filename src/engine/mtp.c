/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of the model's MTP layer. After the rows of a step were drawn, the layer's pass of the
 * same step runs over every token that the step computed and kept: on the hidden state of its
 * position and the token after it, which is known by now. That stores the layer's keys and values
 * along prompts and answers, and the row of a sequence's last position guesses the token after the
 * known ones.
 *
 * What the layer stores at the last position of a block depends on the first token of the next
 * block, so a block that the prefix tree shares may hold another continuation's value there. Drafts
 * may be worse for it; answers are what they are. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

/* The tokens of a row that stay, in the engine's arrays as sequence s of the pass, which has n_tok
 * tokens so far. The arrays are still those of the step: entries up to the row's own are free. */
static int add_row(sl_engine *e, const struct request *r, const struct sched_item *it, int i, int s,
                   int n_tok)
{
    const struct engine_mtp *m = &e->mtp;
    int n = sched_request(&e->sched, it->req)->n_done - it->pos0, row0 = e->seq_tok0[i];
    for (int g = 0; g < e->kv_shape.n_group && s < i; g++)
        memmove(e->blk[g] + (int64_t)s * e->ld_blk, e->blk[g] + (int64_t)i * e->ld_blk,
                (size_t)e->ld_blk * sizeof *e->blk[g]);
    e->seq_tok0[s] = n_tok;
    e->seat[s] = it->seat;
    e->n_prompt[s] = r->n_prompt;
    for (int k = 0; k < n; k++) {
        m->ids[n_tok + k] = r->ids[it->pos0 + k + 1];
        m->pos[n_tok + k] = it->pos0 + k;
        m->hidden_row[n_tok + k] = row0 + k;
    }
    return n;
}

static void offer(sl_engine *e, const struct model_rows *rows, int n)
{
    for (int i = 0; i < n; i++) {
        struct request *r = e->mtp.of[i];
        if (rows->best[i] >= 0) spec_offer(&r->spec, r->n_ids, rows->best[i]);
    }
}

int64_t engine_mtp_run(sl_engine *e, const struct sched_plan *p)
{
    struct engine_mtp *m = &e->mtp;
    int n_tok = 0, n_seq = 0, n_row = 0;
    struct model_rows rows;
    sl_err err = {0};
    int64_t t0 = clock_now_ns();
    if (!m->on) return 0;
    bool off = spec_plan_layer_is_off(&e->spec.plan);
    for (int i = 0; i < p->n_item; i++) {
        struct request *r = e->req[p->item[i].req];
        if (!r || r->pool || p->item[i].pos0 >= r->n_ids) continue; /* it is over */
        if (r->g->n_draft < 0 || (off && !r->g->n_draft)) continue;
        int n = add_row(e, r, &p->item[i], i, n_seq, n_tok);
        if (n <= 0) continue;
        n_tok += n;
        n_seq++;
        if (!r->has_spec || !p->item[i].sample) continue;
        m->row_tok[n_row] = n_tok - 1;
        m->of[n_row++] = r;
    }
    if (!n_seq) return 0;
    e->seq_tok0[n_seq] = n_tok;
    struct dev_step s = engine_step(e, n_tok, n_seq, n_row);
    s.pass = 1;
    s.ids = m->ids;
    s.pos = m->pos;
    s.hidden_row = m->hidden_row;
    s.row_tok = m->row_tok;
    s.want = DEV_WANT_BEST;
    if (engine_run(e, &s, &rows, &err)) /* a lost device ends the next step */
        log_msg(LOG_WARN, "the MTP layer failed: %s: no drafts of it in this step", err.text);
    else
        offer(e, &rows, n_row);
    return clock_now_ns() - t0;
}

sl_status engine_mtp_open(sl_engine *e, sl_err *err)
{
    struct engine_mtp *m = &e->mtp;
    size_t n_tok = (size_t)e->n_tok_max;
    void *p = NULL;
    bool none = model_n_mtp(e->net) < 1;
    if (m->must && none)
        return SL_FAIL(err, REQUEST, "draft: mtp: %.120s has no MTP layer", e->m->name);
    m->on = m->on && !none;
    if (!m->on && e->opts.draft && strcmp(e->opts.draft, "auto") == 0)
        log_msg(LOG_DEBUG, "draft: auto: %s has no MTP layer: drafts come from the text alone",
                e->m->name);
    if (!m->on) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 4 * n_tok, sizeof *m->ids, &p, err));
    m->ids = p;
    m->pos = m->ids + n_tok;
    m->hidden_row = m->pos + n_tok;
    m->row_tok = m->hidden_row + n_tok;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)e->n_seq_max, sizeof(struct request *), &p, err));
    m->of = p;
    return SL_OK;
}

void engine_mtp_close(sl_engine *e)
{
    mem_free(e->mtp.ids);
    mem_free(e->mtp.of);
}
