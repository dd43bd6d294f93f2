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
#define WORTH 0.98       /* of the speed without: below it drafts are switched off */
#define OFF 4096         /* for so many steps */
#define UNKNOWN_TOK 0.05 /* what a further token costs until it was tried: next to nothing */

sl_status spec_plan_init(struct spec_plan *p, int n_want_max, sl_err *err)
{
    void *heap = NULL;
    memset(p, 0, sizeof *p);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n_want_max, sizeof *p->heap, &heap, err));
    p->heap = heap;
    p->n_want_max = n_want_max;
    return SL_OK;
}

void spec_plan_fini(struct spec_plan *p)
{
    mem_free(p->heap);
    memset(p, 0, sizeof *p);
}

/* ---- the drafts in falling order of the chance that they are reached and right ---- */

static double next_chance(const struct spec_want *w)
{
    return w->k < w->n ? spec_chance(w->s, w->k) : -1;
}

static void sink(struct spec_plan *p, const struct spec_want *w, int n, int i)
{
    for (;;) {
        int k = 2 * i + 1;
        if (k >= n) return;
        if (k + 1 < n && next_chance(&w[p->heap[k + 1]]) > next_chance(&w[p->heap[k]])) k++;
        if (!(next_chance(&w[p->heap[k]]) > next_chance(&w[p->heap[i]]))) return;
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
    struct spec_want *top = &w[p->heap[0]];
    double chance = next_chance(top);
    if (chance < 0) return -1;
    top->k++;
    sink(p, w, n, 0);
    return chance;
}

/* ---- how many ---- */

/* The number of drafts with which a step is expected to give the most tokens per time. */
static int best_number(struct spec_plan *p, struct spec_want *w, int n, int n_seq,
                       double (*step_ns)(void *user, int n_tok), void *user)
{
    double tok = n_seq;
    int most = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w[i].k; j++, n_seq++)
            tok += spec_chance(w[i].s, j);
    double known = step_ns(user, n_seq), best = tok / known;
    int known_at = n_seq;
    if (known <= 0) return 0; /* it is measured first */
    for (int m = 1; m <= DRAFTS_MAX; m++) {
        double chance = take(p, w, n);
        if (chance < 0) break;
        tok += chance;
        double ns = step_ns(user, n_seq + m);
        if (ns > 0) {
            known = ns;
            known_at = n_seq + m;
        } else {
            ns = known * (1 + UNKNOWN_TOK * (n_seq + m - known_at) / known_at);
        }
        if (tok / ns > best) {
            best = tok / ns;
            most = m;
        }
    }
    return most;
}

void spec_plan_step(struct spec_plan *p, struct spec_want *w, int n, int n_seq,
                    double (*step_ns)(void *user, int n_tok), void *user)
{
    ASSERT(n <= p->n_want_max);
    uint64_t at = p->n_step++;
    p->forced = p->always;
    for (int i = 0; i < n; i++) {
        p->forced = p->forced || w[i].always;
        w[i].k = p->always || w[i].always ? w[i].n : 0;
    }
    if (p->always || n == 0 || at % PROBE == PROBE - 1 || at < p->off_until) return;
    fill(p, w, n);
    int m = best_number(p, w, n, n_seq, step_ns, user);
    fill(p, w, n);
    while (m-- > 0)
        (void)take(p, w, n);
}

bool spec_plan_is_off(const struct spec_plan *p)
{
    return p->n_step < p->off_until;
}

void spec_plan_observe(struct spec_plan *p, int n_seq, int n_draft, int n_new, double ns)
{
    struct spec_window *v = &p->window;
    int with = n_draft > 0;
    if (p->forced) return;
    if (v->n_seq != n_seq) *v = (struct spec_window){.n_seq = n_seq};
    /* one step that was held up by something else says little */
    double mean = v->n[with] ? v->ns[with] / v->n[with] : ns;
    v->ns[with] += ns < 2 * mean ? ns : 2 * mean;
    v->new_tok[with] += n_new;
    v->n[with]++;
    if (v->n[1] < WINDOW || v->n[0] < PROBES_LEAST) return;
    if (v->new_tok[1] * v->ns[0] < WORTH * v->new_tok[0] * v->ns[1]) {
        p->off_until = p->n_step + OFF;
        p->n_off++;
    }
    *v = (struct spec_window){.n_seq = n_seq};
}
