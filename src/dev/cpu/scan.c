/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence: a sequence after the other, its tokens in their order, so that the sums have one
 * order however a prompt is cut into steps. A block has the state, the inputs of drafts after it,
 * and at which position it is. */
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/rows.h"

struct scan {
    const struct dev_scan *p;
    const struct dev_step *b;
};

/* A sequence under way: its tokens, and inputs of drafts before them. */
struct seq {
    const float *x;
    float *log;
    struct cpu_drafts drafts;
};

static const float *input(const struct seq *s, int n, int t)
{
    return t < 0 ? s->log + (int64_t)(t + s->drafts.n_back) * n : s->x + (int64_t)t * n;
}

static void add(const struct dev_scan *p, const float *state, const float *x, float *y)
{
    for (int i = 0; i < p->n; i++)
        y[i] = p->decay * state[i] + x[i];
}

static void one_seq(struct cpu *c, void *arg, int q, int worker)
{
    const struct scan *j = arg;
    const struct dev_scan *p = j->p;
    const struct dev_step *b = j->b;
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    float *state = (float *)(void *)dev_cpu_page(kv, p->layer, b->seat[q]), *log = state + p->n;
    int32_t *at = (int32_t *)(void *)(log + (int64_t)DEV_STATE_BACK * p->n);
    int t0 = b->seq_tok0[q], n_tok = b->seq_tok0[q + 1] - t0;
    size_t row = (size_t)p->n * sizeof *state;
    (void)c;
    (void)worker;
    if (!n_tok) return;
    struct seq s = {p->x + (int64_t)t0 * p->n, log, dev_cpu_drafts(b, q, *at)};
    const float *last = state;
    float *y = p->y + (int64_t)t0 * p->n;
    int n_sure = s.drafts.n_sure;
    if (b->pos[t0] == 0) memset(state, 0, row);
    for (int t = -s.drafts.n_back; t < n_sure; t++) {
        add(p, state, input(&s, p->n, t), state);
        if (t >= 0) memcpy(y + (int64_t)t * p->n, state, row);
    }
    *at = b->pos[t0] + n_sure;
    for (int t = n_sure; t < n_tok; t++) /* all of them first: y may be x */
        memmove(log + (int64_t)(t - n_sure) * p->n, input(&s, p->n, t), row);
    for (int t = n_sure; t < n_tok; t++) {
        float *to = y + (int64_t)BASE_MAX(t, 0) * p->n;
        add(p, last, log + (int64_t)(t - n_sure) * p->n, to);
        last = to;
    }
}

void dev_cpu_scan(dev *d, const struct dev_step *b, const struct dev_scan *p)
{
    struct scan j = {p, b};
    ASSERT(b->seat && dev_scan_state(p->n) <= dev_cpu_kv_of(p->kv, p->group)->s.d_k);
    dev_cpu_for_rows(dev_cpu_of(d), b->n_seq, (double)b->n_tok / BASE_MAX(b->n_seq, 1) * p->n,
                     one_seq, &j);
}
