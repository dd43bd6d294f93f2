/* SPDX-License-Identifier: Apache-2.0 */
/* What is due to whom. Owners (API keys) that have requests are due equal parts of the sequences,
 * the blocks and the steps; an owner that uses less than its part is served at once, one that uses
 * more waits. Those heard of lately keep a part of the prefix tree, and others' prompts leave the
 * steps short enough for theirs. With one owner none of this does anything. */
#include "sched/sched_internal.h"

#define TREE_NS                                                                                    \
    ((int64_t)300 * 1000000000)            /* so long an owner's part of the tree is kept for it   \
                                            */
#define STEP_NS ((int64_t)60 * 1000000000) /* so long steps are short for it */
#define USED_NS 4e9                        /* what was used longer ago counts little */
#define LEAST_PIECE                                                                                \
    32 /* fewer prompt tokens than this in a step cost a mixture's experts too much */
#define LIGHT_FIRST 4 /* prompt tokens of the first in rank beside prompts that go before it */

int sched_owner_of(struct sched *s, uint64_t id)
{
    int idle = -1;
    for (int i = 0; i < s->n_owner; i++) {
        if (s->owner[i].id == id) return i;
        if (s->owner[i].n_live == 0) idle = i;
    }
    if (s->n_owner < SCHED_OWNER_MAX)
        idle = s->n_owner++;
    else if (idle < 0)
        return (int)(id % SCHED_OWNER_MAX);
    s->used_ns = BASE_MAX(s->used_ns - s->owner[idle].used_ns, 0);
    s->owner[idle] = (struct sched_owner){.id = id};
    return idle;
}

static bool seen(const struct sched *s, int at, int64_t ns)
{
    const struct sched_owner *o = &s->owner[at];
    return o->n_live > 0 || (o->seen_ns && s->now_ns - o->seen_ns < ns);
}

/* Half of the pool is kept for those that were heard of lately, in equal parts. */
static void share_tree(struct sched *s)
{
    int n = 0;
    for (int i = 0; i < s->n_owner; i++)
        n += seen(s, i, TREE_NS);
    for (int i = 0; i < s->n_owner; i++)
        kv_owner_reserve(s->pool, i, n > 1 && seen(s, i, TREE_NS) ? s->pool->n_blk / (2 * n) : 0);
}

/* An owner that comes back has no claim on the time it was away. */
void sched_owner_begin(struct sched *s, int at, int64_t now_ns)
{
    struct sched_owner *o = &s->owner[at];
    s->now_ns = BASE_MAX(s->now_ns, now_ns);
    o->seen_ns = BASE_MAX(s->now_ns, 1);
    if (o->n_live++ > 0) return;
    s->n_owner_live++;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < s->n_owner; i++)
        if (i != at && s->owner[i].n_live > 0 && s->owner[i].served < least)
            least = s->owner[i].served;
    if (least != UINT64_MAX && o->served < least) o->served = least;
    share_tree(s);
}

void sched_owner_end(struct sched *s, int at)
{
    if (--s->owner[at].n_live == 0) s->n_owner_live--;
}

bool sched_owner_before(const struct sched *s, int a, int b)
{
    const struct sched_owner *x = &s->owner[a], *y = &s->owner[b];
    bool light = sched_owner_light(s, a);
    if (light != sched_owner_light(s, b)) return light;
    return x->served < y->served || (x->served == y->served && x->n_run < y->n_run);
}

void sched_owner_piece(struct sched *s, int at, int n)
{
    struct sched_owner *o = &s->owner[at];
    o->piece = o->piece > 0 && n > o->piece ? 0.75 * o->piece + 0.25 * n : n;
}

bool sched_owner_light(const struct sched *s, int at)
{
    return s->n_owner_live > 1 && s->owner[at].used_ns * s->n_owner_live < s->used_ns;
}

/* The shortest pieces of two owners: for each the other's count. */
void sched_owner_step(struct sched *s, bool light)
{
    s->light = light;
    s->n_heavy = 0;
    s->limit[0] = s->limit[1] = s->opts.n_chunk;
    s->for_at = -1;
    for (int i = 0; i < s->n_owner; i++) {
        const struct sched_owner *o = &s->owner[i];
        if (o->piece <= 0 || !seen(s, i, STEP_NS)) continue;
        int n = BASE_MAX((int)(o->piece / 2), LEAST_PIECE);
        if (n < s->limit[0]) {
            s->limit[1] = s->limit[0];
            s->limit[0] = n;
            s->for_at = i;
        } else
            s->limit[1] = BASE_MIN(s->limit[1], n);
    }
}

int sched_owner_limit(const struct sched *s, int at)
{
    if (sched_owner_light(s, at)) return s->opts.n_chunk;
    int n = s->light ? LIGHT_FIRST : s->limit[at == s->for_at];
    return BASE_MAX(n - s->n_heavy, 0);
}

int sched_share_run(const struct sched *s)
{
    return BASE_MAX(s->opts.n_run_max / BASE_MAX(s->n_owner_live, 1), 1);
}

int sched_share_blk(const struct sched *s)
{
    return s->pool->n_blk / BASE_MAX(s->n_owner_live, 1);
}

int sched_owner_blk(const struct sched *s, int at)
{
    int n = 0;
    for (int i = 0; i < s->n_active; i++) {
        const struct sched_req *r = &s->req[s->active[i]];
        if (r->owner == at) n += s->seat[r->seat].seq.n_blk;
    }
    return n;
}

void sched_owner_used(struct sched *s, int64_t ns, double decode_ns)
{
    const struct sched_plan *p = &s->plan;
    if (s->n_owner < 2 || p->n_tok == 0) return;
    int n_answer = 0;
    for (int i = 0; i < p->n_item; i++)
        n_answer += p->item[i].answer;
    int n_prompt = p->n_tok - n_answer;
    double d = n_prompt == 0 ? (double)ns : n_answer == 0 ? 0 : BASE_MIN(decode_ns, (double)ns);
    double keep = USED_NS / (USED_NS + (double)ns);
    for (int i = 0; i < s->n_owner; i++)
        s->owner[i].used_ns *= keep;
    s->used_ns = s->used_ns * keep + (double)ns;
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        s->owner[s->req[it->req].owner].used_ns +=
            it->answer ? d / n_answer : ((double)ns - d) * it->n_tok / n_prompt;
    }
}
