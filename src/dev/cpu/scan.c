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

static void add(const struct dev_scan *p, float *state, const float *x, float *y)
{
    for (int i = 0; i < p->n; i++)
        y[i] = state[i] = p->decay * state[i] + x[i];
}

static void one_seq(struct cpu *c, void *arg, int q, int worker)
{
    const struct scan *j = arg;
    const struct dev_scan *p = j->p;
    const struct dev_step *b = j->b;
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    float *state = (float *)(void *)dev_cpu_page(kv, p->layer, b->seat[q]), *log = state + p->n;
    int32_t *at = (int32_t *)(void *)(log + (int64_t)DEV_STATE_BACK * p->n);
    int t0 = b->seq_tok0[q], end = b->seq_tok0[q + 1], n_draft = b->n_draft ? b->n_draft[q] : 0;
    (void)c;
    (void)worker;
    if (t0 == end) return;
    if (b->pos[t0] == 0) memset(state, 0, (size_t)p->n * sizeof *state);
    for (int i = 0, n = dev_cpu_state_back(*at, b->pos[t0]); i < n; i++)
        add(p, state, log + (int64_t)i * p->n, log + (int64_t)i * p->n);
    for (int t = t0; t < end - n_draft; t++)
        add(p, state, p->x + (int64_t)t * p->n, p->y + (int64_t)t * p->n);
    *at = b->pos[t0] + end - n_draft - t0;
    for (int t = end - n_draft; t < end; t++, log += p->n) {
        const float *before = t == end - n_draft ? state : p->y + (int64_t)(t - 1) * p->n;
        float *y = p->y + (int64_t)t * p->n;
        memcpy(log, p->x + (int64_t)t * p->n, (size_t)p->n * sizeof *log);
        for (int i = 0; i < p->n; i++)
            y[i] = p->decay * before[i] + log[i];
    }
}

void dev_cpu_scan(dev *d, const struct dev_step *b, const struct dev_scan *p)
{
    struct scan j = {p, b};
    ASSERT(b->seat && dev_scan_state(p->n) <= dev_cpu_kv_of(p->kv, p->group)->s.d_k);
    dev_cpu_for_rows(dev_cpu_of(d), b->n_seq, (double)b->n_tok / BASE_MAX(b->n_seq, 1) * p->n,
                     one_seq, &j);
}
