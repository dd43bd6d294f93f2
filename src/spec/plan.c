/* SPDX-License-Identifier: Apache-2.0 */
/* How many drafts pay: tokens that a step is expected to give over the time that it will take, by
 * the times of steps that were run. Nothing here knows why a step with one more token costs what it
 * costs: a mixture that reads more experts, a kernel that runs out of registers, a device that is
 * idle anyway. */
#include <math.h>
#include <string.h>

#include "spec/spec.h"

#define DRAFTS_MAX 256   /* of one step */
#define PROBE 64         /* one step in so many has no drafts, to know its time */
#define WINDOW 512       /* steps after which the two are compared */
#define PROBES_LEAST 4   /* of them without drafts, to compare at all */
#define OFF 4096         /* so many steps have no drafts where those with them were slower */
#define GAIN 64.0        /* steps of which a mean says what is to be expected of others */
#define DRAFTER_BEGIN 8  /* so many of its steps say nothing: the first passes are slow */
#define DRAFTER_STEPS 32 /* after so many it is asked whether the drafter pays; if not, off */
#define CLEAR_STEPS 4    /* after so many already, of many sequences, where steps with it give */
#define CLEAR 0.9        /* less than this part of the tokens per time of those without */
#define ANSWER 64.0      /* of steps that its passes over prompts are charged to */
#define DRAFTER_OFF 1024 /* for so many, and twice as many each time up to */
#define DRAFTER_OFF_MOST 16384
/* What a further token costs until it was tried: next to nothing, of a step of few tokens; of one
 * of many, which is seldom bound by the weights that it reads, more of what each of them does. */
#define UNKNOWN_TOK 0.05
#define UNKNOWN_SHARE 0.7

sl_status spec_plan_init(struct spec_plan *p, int n_want_max, sl_err *err)
{
    void *heap = NULL;
    memset(p, 0, sizeof *p);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n_want_max, sizeof *p->heap, &heap, err));
    p->heap = heap;
    p->n_want_max = n_want_max;
    p->drafter.off_for = DRAFTER_OFF;
    return SL_OK;
}

void spec_plan_fini(struct spec_plan *p)
{
    mem_free(p->heap);
    memset(p, 0, sizeof *p);
}

/* ---- the drafts in falling order of the chance that they are reached and right ---- */

static double next_chance(const struct spec_plan *p, const struct spec_want *w)
{
    bool of_drafter = w->s->source == SPEC_MTP || w->s->source == SPEC_MODEL;
    if (p->no_drafter && of_drafter) return -1;
    return w->k < w->n ? spec_chance(w->s, w->k) : -1;
}

static void sink(struct spec_plan *p, const struct spec_want *w, int n, int i)
{
    for (;;) {
        int k = 2 * i + 1;
        if (k >= n) return;
        if (k + 1 < n && next_chance(p, &w[p->heap[k + 1]]) > next_chance(p, &w[p->heap[k]])) k++;
        if (!(next_chance(p, &w[p->heap[k]]) > next_chance(p, &w[p->heap[i]]))) return;
        int t = p->heap[i];
        p->heap[i] = p->heap[k];
        p->heap[k] = t;
        i = k;
    }
}

static void fill(struct spec_plan *p, struct spec_want *w, int n)
{
    for (int i = 0; i < n; i++) {
        p->heap[i] = i;
        w[i].k = w[i].always ? w[i].n : 0;
    }
    for (int i = n / 2 - 1; i >= 0; i--)
        sink(p, w, n, i);
}

/* Take the likeliest of the drafts that are left; its chance, or -1. */
static double take(struct spec_plan *p, struct spec_want *w, int n)
{
    if (n == 0) return -1;
    struct spec_want *top = &w[p->heap[0]];
    double chance = next_chance(p, top);
    if (chance < 0) return -1;
    top->k++;
    sink(p, w, n, 0);
    return chance;
}

/* ---- how many ---- */

struct choice {
    int n;          /* drafts */
    double tok, ns; /* expected; ns 0 = not known */
};

/* Times of steps, asked for in rising order. */
struct curve {
    const struct spec_clock *c;
    double known; /* of known_at tokens */
    int known_at;
};

/* 0: not even the first one is known. */
static double time_of(struct curve *t, int n_tok)
{
    double ns = t->c->step_ns(t->c->user, n_tok);
    if (ns > 0) {
        t->known = ns;
        t->known_at = n_tok;
    } else if (t->known > 0) {
        double more = BASE_MIN(UNKNOWN_TOK, UNKNOWN_SHARE / t->known_at);
        ns = t->known * (1 + more * (n_tok - t->known_at));
    }
    return ns;
}

/* Tokens that the time of a step is worth: what steps give lately, for each that one without drafts
 * would. 0 = not known. */
static double worth_of(const struct spec_plan *p, int n_seq, double bare_ns)
{
    const struct spec_gain *g = &p->gain[p->now][p->no_drafter];
    return g->ns > 0 && bare_ns > 0 ? BASE_MAX(g->tok / g->ns, 1) * n_seq / bare_ns : 0;
}

static void see_gain(struct spec_plan *p, const struct choice *c, int n_seq, double bare_ns)
{
    struct spec_gain *g = &p->gain[p->now][p->no_drafter];
    if (c->ns <= 0 || bare_ns <= 0) return;
    g->tok += c->tok / n_seq - g->tok / GAIN;
    g->ns += c->ns / bare_ns - g->ns / GAIN;
}

/* a gives more than b: tokens over those that its time is worth; while that is not known, tokens
 * per time. (By that alone a step of which not much is to be expected would make the most of it,
 * and hold up better ones.) */
static bool is_better(const struct choice *a, const struct choice *b, double worth)
{
    if (worth <= 0) return a->tok * b->ns > b->tok * a->ns;
    return a->tok - worth * a->ns > b->tok - worth * b->ns;
}

/* The number of drafts with which a step, which takes more_ns more than its tokens cost, is
 * expected to give the most. */
static struct choice best_number(struct spec_plan *p, struct spec_want *w, int n, int n_seq,
                                 const struct spec_clock *c, double more_ns)
{
    struct curve t = {.c = c};
    int n_bare = n_seq;
    double tok = n_seq, bare = time_of(&t, n_seq), worth = worth_of(p, n_seq, bare);
    fill(p, w, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w[i].k; j++, n_seq++)
            tok += spec_chance(w[i].s, j);
    struct choice best = {0, tok, time_of(&t, n_seq)};
    if (best.ns <= 0) return best; /* it is measured first */
    best.ns += more_ns;
    for (int m = 1; m <= DRAFTS_MAX; m++) {
        double chance = take(p, w, n);
        if (chance < 0) break;
        tok += chance;
        struct choice one = {m, tok, time_of(&t, n_seq + m) + more_ns};
        if (is_better(&one, &best, worth)) best = one;
    }
    if (!p->forced) see_gain(p, &best, n_bare, bare);
    return best;
}

/* ---- the drafter ---- */

static void drafter_off(struct spec_plan *p, uint64_t n_step)
{
    struct spec_drafter *l = &p->drafter;
    l->off_until = p->n_step + n_step;
    l->n = l->n_row = 0;
    l->tok[0] = l->tok[1] = l->time[0] = l->time[1] = 0;
    p->n_off++;
}

/* What steps are expected to give with it is held against what they would give without its
 * drafts and its passes. */
static void weigh_drafter(struct spec_plan *p, int n_seq, const struct choice *without,
                          const struct choice *with)
{
    struct spec_drafter *l = &p->drafter;
    const struct choice *c[2] = {without, with};
    if (l->n_seen < DRAFTER_BEGIN || without->ns <= 0 || with->ns <= 0) return;
    for (int i = 0; i < 2; i++) {
        l->tok[i] += c[i]->tok;
        l->time[i] += c[i]->ns;
    }
    l->time[1] += l->prompt_ns / ANSWER;
    double with_it = l->tok[1] * l->time[0], without_it = l->tok[0] * l->time[1];
    bool clear = with_it < CLEAR * without_it;
    l->n_row += n_seq;
    if (++l->n < (clear ? CLEAR_STEPS : DRAFTER_STEPS) || l->n_row < DRAFTER_STEPS) return;
    if (with_it < without_it) {
        drafter_off(p, l->off_for);
        l->off_for = BASE_MIN(2 * l->off_for, (uint64_t)DRAFTER_OFF_MOST);
        return;
    }
    l->n = l->n_row = 0;
    l->off_for = DRAFTER_OFF;
    for (int i = 0; i < 2; i++) {
        l->tok[i] *= 0.5;
        l->time[i] *= 0.5;
    }
}

/* Steps of about n_seq sequences. */
static int window_of(int n_seq)
{
    int i = 0;
    while (i < SPEC_WINDOWS - 1 && n_seq > 1 << i)
        i++;
    return i;
}

static bool is_off(const struct spec_plan *p, uint64_t at)
{
    return at < p->window[p->now].off_until;
}

void spec_plan_step(struct spec_plan *p, struct spec_want *w, int n, int n_seq,
                    const struct spec_clock *c)
{
    ASSERT(n <= p->n_want_max);
    uint64_t at = p->n_step++;
    p->drafter.prompt_ns *= 1 - 1 / ANSWER;
    p->forced = p->always;
    bool early = at >= 7 && (at & (at + 1)) == 0; /* the 8th, 16th and 32nd */
    p->bare = early || at % PROBE == PROBE - 1;
    for (int i = 0; i < n; i++) {
        p->forced = p->forced || w[i].always;
        w[i].k = p->always || w[i].always ? w[i].n : 0;
    }
    bool drafter = p->drafter.runs && !spec_plan_drafter_is_off(p);
    p->now = window_of(n_seq);
    if (p->always || p->bare || is_off(p, at) || (n == 0 && !drafter)) return;
    struct choice best = best_number(p, w, n, n_seq, c, drafter ? p->drafter.ns : 0);
    if (drafter && !p->forced) {
        p->no_drafter = true;
        struct choice without = best_number(p, w, n, n_seq, c, 0);
        p->no_drafter = false;
        weigh_drafter(p, n_seq, &without, &best);
    }
    fill(p, w, n);
    while (best.n-- > 0)
        (void)take(p, w, n);
}

bool spec_plan_drafter_is_off(const struct spec_plan *p)
{
    return p->n_step < p->drafter.off_until || is_off(p, p->n_step);
}

int spec_plan_passes(const struct spec_plan *p, const struct spec_want *w, int n, int n_max,
                     const struct spec_clock *c)
{
    const struct spec_drafter *l = &p->drafter;
    struct curve t = {.c = c};
    struct choice best = {1, 0, 0};
    double tok = n, ns = time_of(&t, n);
    if (p->always) return n_max;
    for (int k = 1; k <= n_max && ns > 0; k++) {
        for (int i = 0; i < n; i++)
            tok += spec_drafter_chance(w[i].s, k - 1);
        ns = time_of(&t, n * (1 + k)) + l->first_ns + (k - 1) * l->more_ns;
        if (k == 1 || tok * best.ns > best.tok * ns) best = (struct choice){k, tok, ns};
    }
    return best.n;
}

/* One step that was held up by something else says little: up slowly, down fast. */
static void blend(double *mean, double ns)
{
    if (*mean <= 0)
        *mean = ns;
    else
        *mean = ns < *mean ? 0.5 * (*mean + ns) : *mean + 0.25 * (BASE_MIN(ns, 2 * *mean) - *mean);
}

static void observe_drafter(struct spec_drafter *l, const struct spec_passes *t)
{
    l->n_seen += l->n_seen < DRAFTER_BEGIN;
    blend(&l->ns, t->ns + t->more_ns);
    blend(&l->first_ns, t->ns);
    if (t->n_more) blend(&l->more_ns, t->more_ns / t->n_more);
}

void spec_plan_observe_prompt(struct spec_plan *p, bool decodes, const struct spec_passes *l)
{
    double ns = l->ns + l->more_ns, known = decodes ? p->drafter.ns : 0;
    if (!p->forced) p->drafter.prompt_ns += BASE_MAX(ns - known, 0);
}

void spec_plan_observe(struct spec_plan *p, int n_seq, int n_draft, int n_new, double ns,
                       const struct spec_passes *l)
{
    struct spec_window *v = &p->window[window_of(n_seq)];
    int with = n_draft > 0 || (l && !p->bare);
    p->drafter.runs = l != NULL;
    if (l) observe_drafter(&p->drafter, l);
    if (p->forced) return;
    if (l && with) ns += l->ns + l->more_ns;
    v->drafter = v->drafter || l;
    /* one step that was held up by something else says little */
    double mean = v->n[with] ? v->ns[with] / v->n[with] : ns;
    v->ns[with] += ns < 2 * mean ? ns : 2 * mean;
    v->new_tok[with] += n_new;
    v->n[with]++;
    if (v->n[1] < WINDOW || v->n[0] < PROBES_LEAST) return;
    bool worse = v->new_tok[1] * v->ns[0] < v->new_tok[0] * v->ns[1];
    bool drafter = v->drafter;
    *v = (struct spec_window){0};
    if (worse && drafter) {
        drafter_off(p, OFF);
    } else if (worse) {
        v->off_until = p->n_step + OFF;
        p->n_off++;
    }
}
