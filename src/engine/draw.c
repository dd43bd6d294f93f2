/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a step's rows. The device finds the largest logits, and with that greedy rows are
 * done; workers take whole sequences that draw, whose rows come in turn, as far as drafts are
 * right; where there are more workers than sequences they take rows, as if all drafts were right.
 * Which worker takes what changes nothing: a row's draw is one worker's. */
#include <math.h>

#include "engine/engine_internal.h"
#include "par/par.h"

/* n logits of which none can be chosen. */
static sl_status no_logits(float **out, int n, sl_err *err)
{
    SL_TRY(engine_array((size_t)n, sizeof **out, out, err));
    for (int i = 0; i < n; i++)
        (*out)[i] = -INFINITY;
    return SL_OK;
}

sl_status engine_draw_init(sl_engine *e, sl_err *err)
{
    struct dev_info di;
    dev_info_get(e->d, &di);
    size_t n_seq = (size_t)e->n_seq_max, n_row = (size_t)e->n_logit_max;
    int most = e->n_seq_max * (e->spec.on ? 1 + SPEC_MAX : 1); /* rows that draw */
    int n = BASE_MIN(BASE_MIN(di.n_thread, ENGINE_SAMPLER_MAX), most);
    SL_TRY(engine_array((size_t)n, sizeof *e->sampler, &e->sampler, err));
    while (e->n_sampler < n)
        SL_TRY(engine_sampler_init(&e->sampler[e->n_sampler++], e->n_vocab, err));
    for (int i = 0; i < n && e->mtp.ids; i++)
        SL_TRY(no_logits(&e->sampler[i].all, e->n_vocab, err));
    SL_TRY(engine_array(n_row, sizeof *e->pick, &e->pick, err));
    return engine_array(n_seq, sizeof *e->item_pick, &e->item_pick, err);
}

void engine_draw_fini(sl_engine *e)
{
    for (int i = 0; i < e->n_sampler; i++)
        engine_sampler_fini(&e->sampler[i]);
    mem_free(e->sampler);
    mem_free(e->pick);
    mem_free(e->item_pick);
}

/* ---- one row ---- */

/* What is drawn: the token after the first n_ids of r. */
struct place {
    const struct request *r;
    int n_ids;
    const uint32_t *mask; /* of its grammar; NULL = any token */
};

static struct engine_draw draw_of(const sl_engine *e, struct place at,
                                  const struct engine_pick *pick)
{
    const struct request *r = at.r;
    const struct group *g = r->g;
    int n_new = at.n_ids - r->n_prompt;
    bool early = n_new < g->min_new;
    return (struct engine_draw){.logit = pick->logit,
                            .best = &pick->best,
                            .mask = at.mask,
                            .p = &g->sampling,
                            .known = r->ids,
                            .n_prompt = r->n_prompt,
                            .n_known = at.n_ids,
                            .forbid = {e->m->hole, e->m->eog, g->stop_id},
                            .n_forbid = {e->m->n_hole, early && !g->ignore_eos ? e->m->n_eog : 0,
                                         early ? g->n_stop_id : 0},
                            .stream = (uint64_t)(g->first + r->index),
                            .index = (uint64_t)n_new};
}

static sl_status draw(const sl_engine *e, struct engine_sampler *s, struct place at,
                      const struct engine_pick *pick, int32_t *token, sl_err *err)
{
    struct engine_draw d = draw_of(e, at, pick);
    return engine_sample(s, &d, token, err);
}

sl_status engine_draw_guess(const sl_engine *e, int worker, const struct engine_pick *pick,
                            int n_vocab, struct spec_pair *pair, sl_err *err)
{
    struct engine_sampler s = e->sampler[worker];
    struct place at = {pick->r, pick->r->n_ids + pick->at, NULL};
    struct engine_draw d = draw_of(e, at, pick);
    s.n_vocab = BASE_MIN(s.n_vocab, n_vocab);
    d.likely = &pair->likely;
    return engine_sample(&s, &d, &pair->id[1], err);
}

sl_status engine_pick_one(sl_engine *e, const struct request *r, const struct engine_pick *pick,
                          const uint32_t *mask, int32_t *token, sl_err *err)
{
    if (!pick->done || r != pick->r)
        return draw(e, &e->sampler[0], (struct place){r, r->n_ids, mask}, pick, token, err);
    *token = pick->token;
    if (pick->st && err) *err = pick->why;
    return pick->st;
}

/* ---- all rows ---- */

struct job {
    sl_engine *e;
    int n_unit; /* items of the plan, or picks */
    bool by_row;
    struct par_counter at;
};

/* Whether the row after this one of its sequence, if there is one, has the tokens that it needs:
 * the draft was right. */
static bool draw_pick(sl_engine *e, int worker, int i)
{
    struct engine_pick *k = &e->pick[i];
    const struct request *r = k->r;
    struct place at = {r, r->n_ids + k->at, NULL};
    k->st = draw(e, &e->sampler[worker], at, k, &k->token, &k->why);
    k->done = true;
    bool last = i + 1 == e->n_pick || e->pick[i + 1].r != r;
    return !last && !k->st && k->token == r->ids[at.n_ids];
}

static void draw_rows(void *arg, int worker, int n_worker)
{
    struct job *j = arg;
    sl_engine *e = j->e;
    int b, end;
    (void)n_worker;
    if (worker >= e->n_sampler) return;
    while (par_take(&j->at, j->n_unit, 1, &b, &end)) {
        int i = j->by_row ? b : e->item_pick[b];
        if (i < 0 || e->pick[i].r->grammar) continue; /* its mask is made on the engine thread */
        while (draw_pick(e, worker, i) && !j->by_row)
            i++;
    }
}

bool engine_draws(const struct request *r)
{
    const sl_sampling *s = &r->g->sampling;
    return s->temperature > 0 || s->n_bias || s->presence_penalty != 0 ||
           s->frequency_penalty != 0 || (s->repeat_penalty > 0 && s->repeat_penalty != 1.0f);
}

unsigned engine_row_want(const sl_engine *e, const struct request *r, int at)
{
    const struct group *g = r->g;
    bool early = r->n_ids + at - r->n_prompt < g->min_new;
    bool forbids = e->m->n_hole || (early && (g->n_stop_id || !g->ignore_eos));
    bool more = engine_draws(r) || r->grammar || g->n_top >= 0 || forbids || e->tap;
    return DEV_WANT_BEST | (more ? DEV_WANT_LOGITS : 0u);
}

/* The rows of item i from which tokens are wanted. */
static void add_picks(sl_engine *e, const struct sched_item *it, int i,
                      const struct model_rows *rows)
{
    struct request *r = engine_item_req(e, it);
    int n_logit = it->all_rows ? it->n_tok : 1 + it->n_draft, first = n_logit - 1 - it->n_draft;
    e->item_pick[i] = -1;
    if (!r || !it->sample || r->pool || r->g->max_new == 0) return;
    e->item_pick[i] = e->n_pick;
    for (int at = 0; at <= it->n_draft; at++) {
        int row = e->item_row[i] + first + at;
        bool whole = e->room->row_want[row] & DEV_WANT_LOGITS;
        e->pick[e->n_pick++] =
            (struct engine_pick){.r = r,
                                 .at = at,
                                 .logit = whole ? rows->logits + (int64_t)row * e->n_vocab : NULL,
                                 .best = rows->best[row]};
    }
}

void engine_pick_all(sl_engine *e, const struct sched_plan *p, const struct model_rows *rows)
{
    struct job j = {.e = e, .n_unit = p->n_item};
    int n_draw = 0, n_seq = 0;
    e->n_pick = 0;
    for (int i = 0; i < p->n_item; i++)
        add_picks(e, &p->item[i], i, rows);
    for (int i = 0; i < e->n_pick; i++) {
        bool counts = !e->pick[i].r->grammar && engine_draws(e->pick[i].r);
        n_draw += counts;
        n_seq += counts && e->pick[i].at == 0;
    }
    if (n_seq < e->n_sampler) { /* more workers than sequences */
        j.by_row = true;
        j.n_unit = e->n_pick;
    }
    if (n_draw > 1 && n_draw * e->n_vocab > ENGINE_ALONE)
        dev_host_run(e->d, draw_rows, &j);
    else if (n_draw > 1)
        draw_rows(&j, 0, 1);
}
