/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation: before a step is planned, guesses at what follows the known tokens of each sequence
 * that decodes; how many of them the step should compute is room spec's choice. Drafts stand after
 * the known ids of their request until the step's rows are drawn (draw.c, answer.c). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

/* ---- options ---- */

/* What opts.draft says. */
static sl_status parse_source(sl_engine *e, sl_err *err)
{
    static const char replay[] = "replay:";
    struct engine_spec *s = &e->spec;
    const char *draft = e->opts.draft;
    char *end = NULL;
    s->on = draft && strcmp(draft, "off") != 0;
    if (!s->on) return SL_OK;
    bool all = strcmp(draft, "auto") == 0;
    s->ngram = all || strcmp(draft, "ngram") == 0;
    e->mtp.must = strcmp(draft, "mtp") == 0;
    e->mtp.on = e->mtp.must || (all && e->m->cfg.n_mtp > 0);
    if (s->ngram || e->mtp.on) return SL_OK;
    if (strncmp(draft, replay, sizeof replay - 1) == 0) {
        const char *rate = draft + sizeof replay - 1;
        s->replay = true;
        s->right = strtod(rate, &end);
        if (*rate && !*end && s->right >= 0 && s->right <= 1) return SL_OK;
        return SL_FAIL(err, REQUEST, "draft: \"%.60s\": a rate from 0 to 1", draft);
    }
    return SL_FAIL(err, REQUEST, "draft: \"%.60s\": off, auto, ngram, mtp or replay:RATE", draft);
}

sl_status engine_spec_parse(sl_engine *e, sl_err *err)
{
    int n = e->opts.draft_vocab, n_vocab = e->m->cfg.n_vocab;
    SL_TRY(parse_source(e, err));
    if (n < 0 || n > n_vocab)
        return SL_FAIL(err, REQUEST,
                       "draft_vocab: %d: from 1 to the vocabulary's %d tokens, 0 = all", n,
                       n_vocab);
    if (n && !e->mtp.on)
        return SL_FAIL(err, REQUEST, "draft_vocab: %d: no MTP layer makes drafts (draft: %.60s%s)",
                       n, e->opts.draft ? e->opts.draft : "off",
                       e->m->cfg.n_mtp ? "" : "; the model has none");
    return SL_OK;
}

sl_status engine_spec_open(sl_engine *e, sl_err *err)
{
    struct engine_spec *s = &e->spec;
    const sl_engine_opts *o = &e->opts;
    void *p = NULL;
    if (o->draft_max < 0 || o->draft_max > SPEC_MAX)
        return SL_FAIL(err, REQUEST, "draft_max: %d: from 0 to %d", o->draft_max, SPEC_MAX);
    s->n_max = o->draft_max ? o->draft_max : SPEC_MAX;
    size_t n_seq = (size_t)e->n_seq_max;
    SL_TRY(spec_plan_init(&s->plan, e->n_seq_max, err));
    s->plan.always = o->draft_always;
    spec_rate_init(&s->layer);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n_seq, sizeof *s->want, &p, err));
    s->want = p;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n_seq, sizeof *s->slot, &p, err));
    s->slot = p;
    return engine_mtp_open(e, err);
}

void engine_spec_close(sl_engine *e)
{
    spec_plan_fini(&e->spec.plan);
    mem_free(e->spec.want);
    mem_free(e->spec.slot);
    engine_mtp_close(e);
}

sl_status engine_spec_begin(const sl_engine *e, struct request *r, sl_err *err)
{
    const struct group *g = r->g;
    if (!e->spec.on || g->embed || g->max_new < 2 || g->n_draft < 0) return SL_OK;
    struct spec_opts o = {.n_prompt = r->n_prompt,
                          .ngram = e->spec.ngram,
                          .replay = e->spec.replay,
                          .right = e->spec.right,
                          .seed = g->sampling.seed,
                          .text = g->draft_id,
                          .n_text = g->n_draft_id};
    SL_TRY(spec_seq_init(&r->spec, &o, r->cap, err));
    r->has_spec = true;
    return SL_OK;
}

/* ---- a step ---- */

/* Guesses after r's ids. The last token of an answer is never a draft: nothing would follow it. */
static int propose(sl_engine *e, struct request *r)
{
    int n_max = BASE_MIN(e->spec.n_max, r->cap - r->n_ids - 1), n = 0;
    int32_t *out = r->ids + r->n_ids;
    if (r->g->n_draft) n_max = BASE_MIN(n_max, r->g->n_draft);
    if (n_max <= 0) return 0;
    if (r->n_ids == r->n_prompt + r->g->n_given + 1) spec_begin(&r->spec, &e->spec.layer);
    if (e->guess) return e->guess(e->guess_user, r, n_max, out);
    if (r->grammar) n = engine_grammar_forced(r->grammar, e->mask, e->n_vocab, n_max, out);
    n = spec_propose(&r->spec, r->ids, r->n_ids, n, n_max, out);
    if (r->grammar && r->spec.source != SPEC_FORCED && n)
        n = engine_grammar_fits(r->grammar, out, n);
    return n;
}

static double step_ns(void *user, int n_tok)
{
    const sl_engine *e = user;
    return sched_decode_ns(&e->sched, n_tok);
}

struct spec_clock engine_spec_clock(sl_engine *e)
{
    return (struct spec_clock){step_ns, e};
}

void engine_spec_propose(sl_engine *e)
{
    struct engine_spec *s = &e->spec;
    int n = 0, n_seq = 0, slot;
    if (!s->on) return;
    int64_t t0 = clock_now_ns();
    for (int i = 0; (slot = sched_running(&e->sched, i)) >= 0; i++) {
        const struct sched_req *q = sched_request(&e->sched, slot);
        struct request *r = e->req[slot];
        if (q->n_known - q->n_done != 1 || q->n_done == 0) continue;
        n_seq++;
        int k = r->has_spec && r->n_ids > r->n_prompt ? propose(e, r) : 0;
        if (k == 0) continue;
        s->slot[n] = slot;
        s->want[n++] = (struct spec_want){.s = &r->spec, .n = k, .always = r->g->n_draft > 0};
    }
    struct spec_clock clock = engine_spec_clock(e);
    if (n_seq) spec_plan_step(&s->plan, s->want, n, n_seq, &clock);
    for (int i = 0; i < n; i++)
        if (s->want[i].k) sched_draft(&e->sched, s->slot[i], s->want[i].k);
    e->stats.draft_ns += clock_now_ns() - t0;
}

void engine_spec_computed(sl_engine *e, struct request *r, int n_draft)
{
    if (!n_draft) return;
    e->stats.n_draft_row++;
    for (int j = 0; j < n_draft; j++)
        e->stats.n_draft[j]++;
    r->n_draft += n_draft;
    if (r->spec.source == SPEC_PREDICTION) r->n_text_draft += n_draft;
}

void engine_spec_judge(sl_engine *e, struct request *r, int j, bool right)
{
    e->stats.n_judged[j]++;
    if (!right) return;
    e->stats.n_right[j]++;
    r->n_right++;
    r->n_text_right += r->spec.source == SPEC_PREDICTION;
}

void engine_spec_learn(sl_engine *e, struct request *r)
{
    if (r->has_spec) spec_learn(&r->spec, r->ids, r->n_ids, &e->spec.layer);
}

void engine_spec_observe(sl_engine *e, const struct sched_plan *p, int n_new, int64_t ns,
                         const struct spec_passes *l)
{
    struct spec_plan *s = &e->spec.plan;
    if (l) e->stats.draft_ns += (int64_t)(l->ns + l->more_ns);
    if (!e->spec.on || p->n_spent) return;
    spec_plan_observe(s, p->n_item, p->n_draft, n_new, (double)ns, l);
    e->stats.n_draft_stop = s->n_off;
}
