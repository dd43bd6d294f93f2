/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence: a sequence after the other, its tokens in their order, so that the sums have one
 * order however a prompt is cut into steps. */
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/rows.h"

struct scan {
    const struct dev_scan *p;
    const struct dev_step *b;
};

static void one_seq(struct cpu *c, void *arg, int q, int worker)
{
    const struct scan *j = arg;
    const struct dev_scan *p = j->p;
    const struct dev_step *b = j->b;
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    float *state = (float *)(void *)dev_cpu_page(kv, p->layer, b->seat[q]);
    (void)c;
    (void)worker;
    for (int t = b->seq_tok0[q]; t < b->seq_tok0[q + 1]; t++) {
        const float *x = p->x + (int64_t)t * p->n;
        float *y = p->y + (int64_t)t * p->n;
        if (b->pos[t] == 0) memset(state, 0, (size_t)p->n * sizeof *state);
        for (int i = 0; i < p->n; i++)
            y[i] = state[i] = p->decay * state[i] + x[i];
    }
}

void dev_cpu_scan(dev *d, const struct dev_step *b, const struct dev_scan *p)
{
    struct scan j = {p, b};
    ASSERT(b->seat && p->n == dev_cpu_kv_of(p->kv, p->group)->s.d_k);
    dev_cpu_for_rows(dev_cpu_of(d), b->n_seq, (double)b->n_tok / BASE_MAX(b->n_seq, 1) * p->n,
                     one_seq, &j);
}
