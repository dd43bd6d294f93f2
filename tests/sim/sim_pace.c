/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's pace on devices of known cost: streams decode, and prompts come one after the
 * other, short ones and one of 16384 tokens. Beside them no step may last longer than 2.5 times one
 * that only decodes, but for one in a hundred, wherever a piece of one token allows it; every
 * stream gets a token in every step; prompts take a fair part of the time; and alone a prompt gets
 * whole chunks. Times are noisy by 10 %, and one in fifty is half longer.
 *
 * sim_pace FIRST N: seeds FIRST .. FIRST+N-1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sched/sched.h"

#define CHUNK 512
#define STEP_MAX 60000
#define WAVE 32
#define WAVE_PROMPT 100

/* ns of a step: base, and for n prompt tokens at a depth: fixed + fixed_deep depth + n (tok +
 * tok_deep depth) + expert (1 - (15/16)^n), what n tokens load of a mixture's experts. */
struct device {
    const char *name;
    int n_stream;
    double base, fixed, fixed_deep, tok, tok_deep, expert;
    bool feasible; /* one token keeps within 2.5 times everywhere */
};

static const struct device devices[] = {
    {"dense", 4, 5e6, 0, 0, 6e5, 0, 0, true},
    {"batch 31", 31, 2e8, 0, 0, 3e6, 20, 0, true},
    {"mixture, alone", 1, 2e7, 0, 0, 5e5, 20, 9.6e7, true},
    {"attention by compute", 4, 5e6, 0, 0, 6e5, 250, 0, true},
    {"attention by memory", 4, 5e6, 1e6, 700, 2e5, 20, 0, false},
    {"tiny", 8, 1e6, 1e5, 0, 5e4, 0, 0, true},
    {"latents made keys", 4, 1e6, 1e5, 2000, 5e4, 3, 0, false},
    {"latents, slower", 4, 1e6, 1e6, 1000, 5e4, 3, 0, false},
    {"one token at most", 4, 1e6, 1e5, 0, 6e5, 30, 0, true},
};

struct run {
    const struct device *d;
    struct kv_pool pool;
    struct sched s;
    uint64_t rng;
    double ratio[STEP_MAX]; /* of mixed steps to decoding ones */
    int n_mixed, n_step;
    double ns, ns_prompt; /* all steps from the first prompt on; what prompts added */
};

static int fail(const struct run *r, const char *what, double x)
{
    fprintf(stderr, "sim_pace: %s: %s: %g\n", r->d->name, what, x);
    return 1;
}

static double noise(struct run *r)
{
    double x = 0.95 + 0.1 * (double)(rng_next(&r->rng) % 1000) / 1000;
    return rng_next(&r->rng) % 50 ? x : 1.5 * x;
}

/* One step; the number of answers in it. */
static int step(struct run *r, int slot)
{
    const struct device *d = r->d;
    const struct sched_plan *p = sched_step(&r->s);
    int n_answer = 0, n_stream = 0, n = 0;
    double depth = slot >= 0 ? r->s.req[slot].n_done : 0;
    for (int i = 0; i < p->n_item; i++) {
        n_answer += p->item[i].answer;
        n_stream += p->item[i].answer && p->item[i].req < d->n_stream;
    }
    n = p->n_tok - n_answer;
    double more = n ? d->fixed + d->fixed_deep * depth + n * (d->tok + d->tok_deep * depth) +
                          d->expert * (1 - pow(15.0 / 16, n))
                    : 0;
    double base = n_answer ? d->base : 0;
    if (n && n_answer && r->n_mixed < STEP_MAX) r->ratio[r->n_mixed++] = (base + more) / base;
    r->n_step++;
    r->ns += base + more;
    r->ns_prompt += more;
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].sample) sched_accept(&r->s, p->item[i].req, 0);
    sched_observe(&r->s, (int64_t)((base + more) * noise(r)));
    return n_stream;
}

static int submit(struct run *r, int slot, int n_prompt)
{
    struct sched_new q = {.n_prompt = n_prompt, .fork_of = -1};
    sched_submit(&r->s, slot, &q);
    return slot;
}

static int up(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* p99 over the median of the mixed steps from number from on. */
static double spread(const struct run *r, int from)
{
    static double v[STEP_MAX];
    int n = r->n_mixed - from;
    memcpy(v, r->ratio + from, (size_t)n * sizeof *v);
    qsort(v, (size_t)n, sizeof *v, up);
    return v[n * 99 / 100] / v[n / 2];
}

static int prompts(struct run *r)
{
    static const int length[] = {100, 500, 3000, 16384, 1900, 64};
    const struct device *d = r->d;
    double worst = 0;
    r->ns = r->ns_prompt = 0;
    for (int k = 0; k < BASE_COUNT_OF(length); k++) {
        int slot = submit(r, d->n_stream, length[k]), from = r->n_mixed;
        while (r->s.req[slot].n_done < length[k]) {
            if (step(r, slot) != d->n_stream) return fail(r, "a stream missed a step", k);
            if (r->n_mixed == STEP_MAX) return fail(r, "a prompt starves", length[k]);
        }
        sched_finish(&r->s, slot);
        for (int i = 0; i < 5; i++)
            step(r, -1);
        if (length[k] >= 500) worst = BASE_MAX(worst, spread(r, from));
    }
    qsort(r->ratio, (size_t)r->n_mixed, sizeof *r->ratio, up);
    double p99 = r->ratio[r->n_mixed * 99 / 100], share = r->ns_prompt / r->ns;
    printf("%-21s %6d steps: with prompts p50 %.2f, p99 %.2f, most %.2f of one that decodes; %.0f "
           "%% of the time is the prompts'; p99 %.2f of the median beside one prompt\n",
           d->name, r->n_step, r->ratio[r->n_mixed / 2], p99, r->ratio[r->n_mixed - 1], 100 * share,
           worst);
    if (d->feasible && p99 > 2.5) return fail(r, "p99 of the steps with prompts", p99);
    if (worst > 2.5) return fail(r, "p99 over the median beside one prompt", worst);
    if (share < 0.3) return fail(r, "the prompts' share of the time", share);
    return 0;
}

/* A wave: requests that come at once, more than a chunk holds. Those that are read first decode
 * beside the rest, which have nothing yet: it must not take long beside reading them one by one. */
static int wave(struct run *r)
{
    const struct device *d = r->d;
    double alone = 0;
    int left = 1, from = r->n_step;
    r->ns = 0;
    for (int i = 0; i < WAVE; i++) {
        submit(r, i, WAVE_PROMPT);
        alone += d->fixed + d->tok * WAVE_PROMPT + d->expert;
    }
    while (left) {
        step(r, -1);
        left = 0;
        for (int i = 0; i < WAVE; i++)
            left += r->s.req[i].n_done < WAVE_PROMPT;
        if (r->n_step - from > STEP_MAX) return fail(r, "a wave starves", left);
    }
    if (r->ns > 5 * alone) return fail(r, "a wave's time over that alone", r->ns / alone);
    for (int i = 0; i < WAVE; i++)
        sched_finish(&r->s, i);
    return 0;
}

static int run_device(struct run *r, const struct device *d, uint64_t seed)
{
    struct sched_opts o = {
        .n_req_max = 40, .n_run_max = 40, .n_chunk = CHUNK, .n_ctx = 65536, .n_row_max = 64};
    r->d = d;
    r->rng = seed;
    r->n_mixed = r->n_step = 0;
    if (kv_pool_init(&r->pool, 32 * 65536 / 32, 32, NULL) || sched_init(&r->s, &o, &r->pool, NULL))
        return 1;
    if (wave(r)) return 1;
    r->n_mixed = r->n_step = 0;
    for (int i = 0; i < d->n_stream; i++)
        submit(r, i, 16);
    for (int i = 0; i < 10; i++)
        step(r, -1);
    int bad = prompts(r);
    for (int i = 0; i < d->n_stream; i++)
        sched_finish(&r->s, i);
    submit(r, 0, 2 * CHUNK);
    step(r, 0);
    if (!bad && r->s.req[0].n_done != CHUNK) bad = fail(r, "a piece alone", r->s.req[0].n_done);
    sched_fini(&r->s);
    kv_pool_fini(&r->pool);
    return bad;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
             n = argc > 2 ? strtoull(argv[2], NULL, 10) : 3;
    static struct run r;
    for (uint64_t seed = first; seed < first + n; seed++)
        for (int i = 0; i < BASE_COUNT_OF(devices); i++)
            if (run_device(&r, &devices[i], seed)) return 1;
    return 0;
}
