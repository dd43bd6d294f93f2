/* SPDX-License-Identifier: Apache-2.0 */
/* What other rooms may see of the scheduler: they do not read its fields. */
#include "sched/sched_internal.h"

struct sched_totals sched_totals_get(const struct sched *s)
{
    return (struct sched_totals){.n_run = s->n_active,
                                 .n_wait = s->n_wait,
                                 .n_owner = s->n_owner,
                                 .n_owner_live = s->n_owner_live,
                                 .n_preempt = s->n_preempt,
                                 .n_query_tok = s->n_query_tok,
                                 .n_hit_tok = s->n_hit_tok};
}

struct sched_load sched_load_get(const struct sched *s, int lane)
{
    struct sched_load l = {0};
    for (int i = 0; i < s->n_active + s->n_wait; i++) {
        const struct sched_req *r =
            &s->req[i < s->n_active ? s->active[i] : s->wait[i - s->n_active]];
        bool runs = i < s->n_active, decodes = runs && sched_answers(r);
        if (runs && lane >= 0 && r->lane != lane) continue;
        l.n_decode += decodes;
        l.n_prompt += !decodes && !r->fork && !r->held;
        if (!decodes && !r->fork) l.n_left += r->n_known - r->n_done;
    }
    return l;
}

const struct sched_req *sched_request(const struct sched *s, int slot)
{
    return &s->req[slot];
}

int sched_running(const struct sched *s, int i)
{
    return i < s->n_active ? s->active[i] : -1;
}

const struct kv_seq *sched_seq(const struct sched *s, int seat)
{
    return &s->seat[seat].seq;
}

bool sched_may_fork(const struct sched *s, int from, int slot)
{
    const struct sched_req *r = &s->req[slot];
    return r->state == SCHED_WAITING && r->fork && r->after == from;
}

void sched_learn(struct sched *s, int n_decode, int n_prompt, int64_t ns)
{
    sched_cost_observe(&s->cost, n_decode, n_prompt, 0, ns);
}

double sched_decode_ns(struct sched *s, int n_tok)
{
    return sched_cost_compare(&s->cost, n_tok);
}
