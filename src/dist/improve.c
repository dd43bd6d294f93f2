/* SPDX-License-Identifier: Apache-2.0 */
/* A placement that has become uneven is improved step by step, with few experts loaded: two ranks
 * exchange an expert each, or the fullest one's gets a copy in place of another's. Each step is the
 * one that lowers the fullest of its ranks most; equal ones are settled by number, so every rank
 * that computes this from the same counts gets the same. */
#include <string.h>

#include "base/size.h"
#include "dist/place.h"

#define TO_MAX 4 /* of the emptiest ranks, to which the fullest may give */

struct improve {
    const struct dist_experts *p;
    const uint64_t *load;
    int32_t *expert; /* [n_slot] */
    double sum;
    double *rank;    /* [n_rank] what each has to do, over its weight */
    double *changed; /* [n_rank] the same after a step that is tried */
    double *weight;  /* [n_rank] of ranks that are alike 1 */
    int32_t *n_copy; /* [n_expert] */
    int32_t *begin;  /* [n_rank + 1] where its slots begin */
    int32_t *of;     /* [n_slot] the rank that has it */
};

static double each(const struct improve *k, int32_t e, int more)
{
    return (double)k->load[e] / (k->n_copy[e] + more);
}

static void count(struct improve *k)
{
    memset(k->n_copy, 0, sizeof *k->n_copy * (size_t)k->p->n_expert);
    for (int s = 0; s < k->p->n_slot; s++)
        k->n_copy[k->expert[s]]++;
    for (int r = 0; r < k->p->n_rank; r++) {
        k->rank[r] = 0;
        for (int i = k->begin[r]; i < k->begin[r + 1]; i++)
            k->rank[r] += each(k, k->expert[i], 0);
        k->rank[r] /= k->weight[r];
    }
}

static bool has(const struct improve *k, int rank, int32_t e)
{
    for (int i = k->begin[rank]; i < k->begin[rank + 1]; i++)
        if (k->expert[i] == e) return true;
    return false;
}

static int fullest(const struct improve *k)
{
    int best = 0;
    for (int r = 1; r < k->p->n_rank; r++)
        if (k->rank[r] > k->rank[best]) best = r;
    return best;
}

/* The emptiest ranks but for one, into to. */
static int emptiest(const struct improve *k, int but, int to[TO_MAX])
{
    int n = 0;
    while (n < TO_MAX && n < k->p->n_rank - 1) {
        int best = -1;
        for (int r = 0; r < k->p->n_rank; r++) {
            bool taken = r == but;
            for (int i = 0; i < n; i++)
                taken |= to[i] == r;
            if (!taken && (best < 0 || k->rank[r] < k->rank[best])) best = r;
        }
        to[n++] = best;
    }
    return n;
}

/* *best becomes this step where it leaves less to do. */
static void propose(const struct dist_exchange *x, double left, double *least,
                    struct dist_exchange *best)
{
    if (left >= *least) return;
    *least = left;
    *best = *x;
}

static void try_swap(const struct improve *k, int full, int to, double *least,
                     struct dist_exchange *best)
{
    for (int i = k->begin[full]; i < k->begin[full + 1]; i++)
        for (int j = k->begin[to]; j < k->begin[to + 1]; j++) {
            int32_t a = k->expert[i], b = k->expert[j];
            double more = each(k, a, 0) - each(k, b, 0);
            double left = BASE_MAX(k->rank[full] - more / k->weight[full],
                                   k->rank[to] + more / k->weight[to]);
            if (more <= 0 || left >= *least || has(k, full, b) || has(k, to, a)) continue;
            propose(&(struct dist_exchange){2, {i, j}, {b, a}}, left, least, best);
        }
}

/* What the fullest of the ranks has to do that hold either, when slot j has a instead of b. */
static double after_copy(const struct improve *k, int j, int32_t a, int32_t b)
{
    double most = 0;
    memcpy(k->changed, k->rank, sizeof *k->rank * (size_t)k->p->n_rank);
    for (int s = 0; s < k->p->n_slot; s++) {
        int r = k->of[s];
        if (k->expert[s] == a) k->changed[r] += (each(k, a, 1) - each(k, a, 0)) / k->weight[r];
        if (k->expert[s] == b && s != j)
            k->changed[r] += (each(k, b, -1) - each(k, b, 0)) / k->weight[r];
    }
    k->changed[k->of[j]] += (each(k, a, 1) - each(k, b, 0)) / k->weight[k->of[j]];
    for (int r = 0; r < k->p->n_rank; r++)
        if (k->changed[r] != k->rank[r]) most = BASE_MAX(most, k->changed[r]);
    return most;
}

static void try_copy(const struct improve *k, int full, int to, double *least,
                     struct dist_exchange *best)
{
    for (int j = k->begin[to]; j < k->begin[to + 1]; j++) {
        int32_t b = k->expert[j];
        for (int i = k->begin[full]; i < k->begin[full + 1] && k->n_copy[b] > 1; i++) {
            int32_t a = k->expert[i];
            if (a == b || has(k, to, a)) continue;
            propose(&(struct dist_exchange){1, {j}, {a}}, after_copy(k, j, a, b), least, best);
        }
    }
}

static bool find(const struct improve *k, struct dist_exchange *best)
{
    int full = fullest(k), to[TO_MAX], n = emptiest(k, full, to);
    double least = k->rank[full];
    best->n = 0;
    for (int i = 0; i < n; i++) {
        try_swap(k, full, to[i], &least, best);
        try_copy(k, full, to[i], &least, best);
    }
    return best->n > 0;
}

size_t dist_improve_room(const struct dist_experts *p)
{
    return 3 * (size_t)p->n_rank * sizeof(double) +
           (size_t)(p->n_expert + p->n_rank + 1 + p->n_slot) * sizeof(int32_t);
}

static void deal(struct improve *k, void *room)
{
    const struct dist_experts *p = k->p;
    k->rank = room;
    k->changed = k->rank + p->n_rank;
    k->weight = k->changed + p->n_rank;
    k->n_copy = (int32_t *)(void *)(k->weight + p->n_rank);
    k->begin = k->n_copy + p->n_expert;
    k->of = k->begin + p->n_rank + 1;
    k->begin[p->n_rank] = p->n_slot;
    for (int r = 0; r < p->n_rank; r++) {
        k->weight[r] = p->weight ? p->weight[r] : 1;
        k->begin[r] = dist_place_begin(p, r);
    }
    for (int r = 0; r < p->n_rank; r++)
        for (int i = k->begin[r]; i < k->begin[r + 1]; i++)
            k->of[i] = r;
}

void dist_improve(const struct dist_experts *p, const uint64_t *load, const struct dist_goal *goal,
                  int32_t *expert, struct dist_steps *out)
{
    struct improve k = {.p = p, .load = load, .expert = expert};
    struct dist_exchange x;
    double all = 0;
    int n_load = 0;
    out->n = 0;
    for (int e = 0; e < p->n_expert; e++)
        k.sum += (double)load[e];
    if (p->n_rank < 2 || k.sum <= 0) return;
    deal(&k, out->room);
    for (int r = 0; r < p->n_rank; r++)
        all += k.weight[r];
    count(&k);
    while (k.rank[fullest(&k)] * all > goal->ratio * k.sum) {
        if (!find(&k, &x) || n_load + x.n > goal->n_load) return;
        for (int i = 0; i < x.n; i++)
            expert[x.slot[i]] = x.expert[i];
        n_load += x.n;
        out->v[out->n++] = x;
        count(&k);
    }
}
