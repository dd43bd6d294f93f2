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
    const sl_model *small = e->opts.draft_model;
    const char *draft = e->opts.draft;
    if (!draft) draft = small ? "auto" : "off";
    s->name = draft;
    char *end = NULL;
    s->on = strcmp(draft, "off") != 0;
    bool all = strcmp(draft, "auto") == 0;
    bool alone = e->opts.draft && strcmp(e->opts.draft, "model") == 0;
    if (small && !all && !alone)
        return SL_FAIL(err, REQUEST, "draft_model: %.100s: draft: auto or model, not \"%.60s\"",
                       small->name, draft);
    if (alone && !small)
        return SL_FAIL(err, REQUEST, "draft: model: which one? draft_model is not given");
    s->ngram = all || strcmp(draft, "ngram") == 0;
    e->mtp.must = strcmp(draft, "mtp") == 0;
    e->mtp.on = e->mtp.must || (all && !small && e->m->cfg.n_mtp > 0);
    if (!s->on || s->ngram || alone || e->mtp.on) return SL_OK;
    if (strncmp(draft, replay, sizeof replay - 1) == 0) {
        const char *rate = draft + sizeof replay - 1;
        s->replay = true;
        s->right = strtod(rate, &end);
        if (*rate && !*end && s->right >= 0 && s->right <= 1) return SL_OK;
        return SL_FAIL(err, REQUEST, "draft: \"%.60s\": a rate from 0 to 1", draft);
    }
    strtod(draft, &end);
    bool number = *draft && !*end; /* llama.cpp's option of that name */
    return SL_FAIL(err, REQUEST, "draft: \"%.60s\": off, auto, ngram, mtp, model or replay:RATE%s",
                   draft, number ? "; how many at most is draft_max" : "");
}

sl_status engine_spec_parse(sl_engine *e, sl_err *err)
{
    int n = e->opts.draft_vocab, n_vocab = e->m->cfg.n_vocab;
    SL_TRY(parse_source(e, err));
    if (e->opts.draft_max && !e->spec.on)
        return SL_FAIL(err, REQUEST, "draft_max: %d: there are no drafts (draft: off)",
                       e->opts.draft_max);
    if (n < 0 || n > n_vocab)
        return SL_FAIL(err, REQUEST,
                       "draft_vocab: %d: from 1 to the vocabulary's %d tokens, 0 = all", n,
                       n_vocab);
    if (n && !e->mtp.on)
        return SL_FAIL(err, REQUEST, "draft_vocab: %d: no MTP layer makes drafts (draft: %.60s%s)",
                       n, e->spec.name, e->m->cfg.n_mtp ? "" : "; the model has none");
    return engine_vocab_open(e, err);
}

sl_status engine_spec_open(sl_engine *e, sl_err *err)
{
    struct engine_spec *s = &e->spec;
    const sl_engine_opts *o = &e->opts;
    if (o->draft_max < 0 || o->draft_max > SPEC_MAX)
        return SL_FAIL(err, REQUEST, "draft_max: %d: from 0 to %d", o->draft_max, SPEC_MAX);
    s->n_max = o->draft_max ? o->draft_max : SPEC_MAX;
    size_t n_seq = (size_t)e->n_seq_max;
    SL_TRY(spec_plan_init(&s->plan, e->n_seq_max, err));
    s->plan.always = o->draft_always;
    spec_taught_init(&s->taught);
    SL_TRY(engine_array(n_seq, sizeof *s->want, &s->want, err));
    SL_TRY(engine_array(n_seq, sizeof *s->slot, &s->slot, err));
    SL_TRY(engine_mtp_open(e, err));
    SL_TRY(engine_small_open(e, err));
    return e->mtp.on || e->small.on ? engine_passes_open(e, err) : SL_OK;
}

void engine_spec_close(sl_engine *e)
{
    spec_plan_fini(&e->spec.plan);
    mem_free(e->spec.want);
    mem_free(e->spec.slot);
    mem_free(e->spec.literal.id);
    engine_mtp_close(e);
    engine_small_close(e);
    engine_passes_close(e);
}

sl_status engine_spec_begin(const sl_engine *e, struct request *r, sl_err *err)
{
    const struct group *g = r->g;
    if (!e->spec.on || g->embed || g->max_new < 2 || g->n_draft < 0) return SL_OK;
    struct spec_opts o = {.n_prompt = r->n_prompt,
                          .ngram = e->spec.ngram,
                          .model = e->small.on,
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

/* The last token of an answer is never a draft: nothing would follow it. */
int engine_spec_most(const sl_engine *e, const struct request *r)
{
    int n = BASE_MIN(e->spec.n_max, r->cap - r->n_ids - 1);
    return r->g->n_draft ? BASE_MIN(n, r->g->n_draft) : n;
}

static int fits(void *user, const int32_t *id, int n)
{
    struct request *r = user;
    return engine_grammar_fits(r->grammar, id, n);
}

static int propose(sl_engine *e, struct request *r)
{
    int n_max = engine_spec_most(e, r);
    struct spec_given given = {.certain = true, .user = r};
    int32_t *out = r->ids + r->n_ids;
    if (n_max <= 0) return 0;
    if (r->n_ids == r->n_prompt + r->g->n_given + 1) spec_begin(&r->spec, &e->spec.taught);
    if (e->guess) return e->guess(e->guess_user, r, n_max, out);
    if (r->grammar) {
        int n = engine_grammar_forced(r->grammar, e->mask, e->n_vocab, n_max, out);
        given.n = engine_grammar_literal(r->grammar, e->m->tok, &e->spec.literal, n, n_max, out);
        given.certain = given.n == n;
        given.fits = fits;
    }
    return spec_propose(&r->spec, r->ids, r->n_ids, given, n_max, out);
}

static double step_ns(void *user, int n_tok)
{
    sl_engine *e = user;
    return sched_decode_ns(&e->sched, n_tok);
}

struct spec_clock engine_spec_clock(sl_engine *e)
{
    return (struct spec_clock){step_ns, e};
}

static bool decodes(const sl_engine *e, int slot)
{
    return sched_decodes(engine_sched_req(e, e->req[slot]));
}

static bool has_answer(const struct request *r)
{
    return r->has_spec && r->n_ids > r->n_prompt;
}

/* The small model guesses for those for whom nothing else has guesses. */
static bool run_small(sl_engine *e, struct spec_passes *t)
{
    int slot;
    if (!e->small.on) return false;
    for (int i = 0; (slot = engine_running(e, i)) >= 0; i++) {
        struct request *r = e->req[slot];
        r->small_wants =
            decodes(e, slot) && has_answer(r) && engine_spec_most(e, r) > 0 && propose(e, r) == 0;
    }
    return engine_small_run(e, t);
}

bool engine_spec_propose(sl_engine *e, struct spec_passes *t)
{
    struct engine_spec *s = &e->spec;
    int n = 0, n_seq = 0, slot;
    if (!s->on) return false;
    int64_t t0 = clock_now_ns();
    bool ran = run_small(e, t);
    for (int i = 0; (slot = engine_running(e, i)) >= 0; i++) {
        struct request *r = e->req[slot];
        if (!decodes(e, slot) || engine_sched_req(e, r)->lane != e->at_lane) continue;
        n_seq++;
        int k = has_answer(r) ? propose(e, r) : 0;
        if (k == 0) continue;
        s->slot[n] = slot;
        s->want[n++] = (struct spec_want){.s = &r->spec, .n = k, .always = r->g->n_draft > 0};
    }
    struct spec_clock clock = engine_spec_clock(e);
    if (n_seq) spec_plan_step(&s->plan, s->want, n, n_seq, &clock);
    for (int i = 0; i < n; i++)
        if (s->want[i].k)
            sched_draft(engine_sched(e, e->req[s->slot[i]]), s->slot[i], s->want[i].k);
    e->stats.draft_ns += clock_now_ns() - t0;
    if (ran) e->stats.draft_ns -= (int64_t)(t->ns + t->more_ns); /* counted when it is observed */
    return ran;
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
    if (r->has_spec) spec_learn(&r->spec, r->ids, r->n_ids, &e->spec.taught);
}

void engine_spec_observe(sl_engine *e, const struct sched_plan *p, int n_new, int64_t ns,
                         const struct spec_passes *l)
{
    struct spec_plan *s = &e->spec.plan;
    if (l) e->stats.draft_ns += (int64_t)(l->ns + l->more_ns);
    if (!e->spec.on) return;
    if (p->n_spent) {
        if (l) spec_plan_observe_prompt(s, p->n_decode > 0, l);
        return;
    }
    spec_plan_observe(s, p->n_item, p->n_draft, n_new, (double)ns, l);
    e->stats.n_draft_stop = s->n_off;
}
