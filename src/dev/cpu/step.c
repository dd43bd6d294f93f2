/* SPDX-License-Identifier: Apache-2.0 */
/* A step, or a pass of it, begins: blocks are copied, and what several operators need of the step
 * is worked out once. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/keep.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/work.h"

/* What of each token operators look up. */
static void look_up(struct cpu *c, const struct dev_step *s)
{
    for (int q = 0; q < s->n_seq; q++) {
        int end = s->n_prompt ? s->n_prompt[q] : 0;
        for (int t = s->seq_tok0[q]; t < s->seq_tok0[q + 1]; t++) {
            c->seq_of[t] = q;
            c->generated[t] = s->pos[t] >= end;
            c->expand[t] =
                c->most.mla_r && s->pos[t] >= c->most.max.mla_expand_from && s->pos[t] < end;
        }
    }
}

void dev_cpu_half(dev *d, const struct dev_step *s, int i)
{
    struct cpu *c = dev_cpu_of(d);
    look_up(c, s);
    c->half = i;
}

void dev_cpu_step_begin(dev *d, dev_kv *kv, const struct dev_step *s)
{
    struct cpu *c = dev_cpu_of(d);
    const struct dev_limits *max = &c->most.max;
    ASSERT(s->n_tok <= max->n_tok && s->n_seq <= max->n_seq && s->pass >= 0 &&
           s->pass < max->n_pass);
    for (const int32_t *c3 = s->copy, *end = c3 + 3 * s->n_copy; c3 < end; c3 += 3)
        dev_cpu_kv_copy(dev_cpu_kv_of(kv, c3[0]), c3[1], c3[2]);
    look_up(c, s);
    c->half = 0;
    dev_cpu_work_begin(c, s->pass);
    if (s->pass == 0) dev_cpu_keep_step(c, s);
}
