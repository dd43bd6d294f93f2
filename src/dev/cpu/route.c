/* SPDX-License-Identifier: Apache-2.0 */
/* The router. Scores are sigmoid(logit), sqrt(softplus(logit)), or softmax over all experts; what
 * chooses is score + bias, or the token's id, what weighs is the score.
 *
 * With groups: the k_group groups with the best group score stay (its best expert, or the sum of
 * its two best), the others' experts are never taken. Best first; a tie goes to the lower number. A
 * NaN score never wins against a number, and the K numbers are distinct whatever the scores.
 * Source: DeepseekV2/V3 and Qwen3Moe routers of transformers. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/moe.h"
#include "dev/cpu/ranks.h"
#include "dev/cpu/rows.h"

#include <math.h>

/* The best of v[0..n) that is still free (taken[i] = 0). */
static int best_of(const float *v, const uint8_t *taken, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || v[i] > v[best] || (isnan(v[best]) && !isnan(v[i])))) best = i;
    return best;
}

static float group_score(const float *v, int n, int best_only)
{
    uint8_t taken[CPU_EXPERT_MAX];
    memset(taken, 0, (size_t)n);
    int a = best_of(v, taken, n);
    if (best_only || n == 1) return v[a];
    taken[a] = 1;
    return v[a] + v[best_of(v, taken, n)];
}

static void make_scores(struct cpu *c, const struct dev_route *p, float *score)
{
    int n = p->n_expert;
    if (p->root) {
        c->k.softplus_f32(score, n);
        for (int i = 0; i < n; i++)
            score[i] = sqrtf(score[i]);
    } else if (p->sigmoid)
        c->k.sigmoid_f32(score, n);
    else
        c->k.softmax_f32(score, n);
}

void dev_cpu_route_row(struct cpu *c, const struct dev_route *p, const int32_t *ids, int t)
{
    float score[CPU_EXPERT_MAX], choose[CPU_EXPERT_MAX], group[CPU_EXPERT_MAX];
    uint8_t taken[CPU_EXPERT_MAX] = {0}, group_taken[CPU_EXPERT_MAX] = {0};
    int n = p->n_expert, per = n / (p->n_group > 1 ? p->n_group : 1);
    memcpy(score, p->logit + (int64_t)t * n, sizeof(float) * (size_t)n);
    make_scores(c, p, score);
    for (int i = 0; i < n; i++)
        choose[i] = p->bias ? score[i] + p->bias[i] : score[i];
    if (p->n_group > 1) {
        for (int g = 0; g < p->n_group; g++)
            group[g] = group_score(choose + g * per, per, p->group_max);
        for (int i = 0; i < p->k_group; i++)
            group_taken[best_of(group, group_taken, p->n_group)] = 1;
        for (int i = 0; i < n; i++)
            taken[i] = !group_taken[i / per];
    }
    int32_t *id = p->id + (int64_t)t * p->k;
    float *weight = p->weight + (int64_t)t * p->k, sum = 0;
    for (int k = 0; k < p->k; k++) {
        id[k] = p->of_id ? p->of_id[(int64_t)ids[t] * p->k + k] : best_of(choose, taken, n);
        taken[id[k]] = 1;
        weight[k] = score[id[k]];
        sum += weight[k];
    }
    float f = p->norm ? p->scale / (sum + 1e-20f) : p->scale;
    for (int k = 0; k < p->k; k++)
        weight[k] *= p->gain ? f * p->gain[id[k]] : f;
}

struct route_job {
    const struct dev_route *p;
    const int32_t *ids;
    int begin; /* row 0 of the job */
};

static void route_row(struct cpu *c, void *arg, int t, int worker)
{
    const struct route_job *j = arg;
    (void)worker;
    dev_cpu_route_row(c, j->p, j->ids, j->begin + t);
}

void dev_cpu_route_count(const struct dev_route *p, int n_tok)
{
    for (int i = 0; p->count && i < n_tok * p->k; i++)
        p->count[p->id[i]]++;
}

void dev_cpu_route(dev *d, const struct dev_step *b, const struct dev_route *p)
{
    int n_tok = dev_n_row(b, p->n_tok);
    ASSERT(p->n_expert <= CPU_EXPERT_MAX && p->k >= 1 &&
           p->k <=
               p->n_expert / (p->n_group > 1 ? p->n_group : 1) * (p->n_group > 1 ? p->k_group : 1));
    struct cpu *c = dev_cpu_of(d);
    struct dev_share s = dev_cpu_share(p->ranks, n_tok);
    struct cpu_whole w = {.act = p->act, .all = p->all};
    struct route_job j = {p, b->ids, s.begin};
    dev_cpu_for_rows(c, s.n, p->n_expert * (p->k + 2.0), route_row, &j);
    w.rows[w.n_rows++] = (struct cpu_whole_rows){p->id, p->k};
    w.rows[w.n_rows++] = (struct cpu_whole_rows){p->weight, p->k};
    if (p->ranks) dev_cpu_whole_join(c, p->ranks, n_tok, &w);
    dev_cpu_route_count(p, n_tok);
}
