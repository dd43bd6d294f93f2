/* SPDX-License-Identifier: Apache-2.0 */
/* Which expert lies on which rank: groups of the router's are packed to nodes, experts with much
 * load get copies inside their node, and all of them are packed to the node's ranks, the heaviest
 * first and each where there is least. Ties are settled by number, so every rank that computes this
 * from the same counts gets the same. */
#include "dist/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dist/dist.h"

/* Something that is packed. */
struct item {
    double load;
    int32_t of, at; /* of: what must not meet itself in a bin; at: its number */
};

struct bins {
    int n;
    const uint16_t *weight; /* [n]; NULL: alike */
    double *load;           /* [n] */
    int32_t *n_in, *begin;  /* [n], [n + 1] bin i has places from begin[i] on */
    int32_t *item;          /* numbers, in the order in which they came */
    int32_t *of;            /* of those */
};

static int heavier(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->load != y->load) return x->load < y->load ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static bool has(const struct bins *b, int bin, int32_t of)
{
    for (int i = 0; i < b->n_in[bin]; i++)
        if (b->of[b->begin[bin] + i] == of) return true;
    return false;
}

/* What is compared: of bins that are alike what is in them already, else how long they take. */
static double fill_of(const struct bins *b, int bin, double more)
{
    return b->weight ? (b->load[bin] + more) / b->weight[bin] : b->load[bin];
}

/* The bin with room that is the lightest; twins: it may have another of the same. -1: there is
 * none. */
static int lightest(const struct bins *b, const struct item *v, bool twins)
{
    int best = -1;
    for (int i = 0; i < b->n; i++)
        if (b->n_in[i] < b->begin[i + 1] - b->begin[i] &&
            (best < 0 || fill_of(b, i, v->load) < fill_of(b, best, v->load)) &&
            (twins || !has(b, i, v->of)))
            best = i;
    return best;
}

/* All of v, as many as there are places, which is sorted. */
static void pack(struct item *v, struct bins *b)
{
    int n = b->begin[b->n];
    memset(b->load, 0, sizeof *b->load * (size_t)b->n);
    memset(b->n_in, 0, sizeof *b->n_in * (size_t)b->n);
    qsort(v, (size_t)n, sizeof *v, heavier);
    for (int i = 0; i < n; i++) {
        int bin = lightest(b, &v[i], false);
        if (bin < 0) bin = lightest(b, &v[i], true);
        int32_t at = b->begin[bin] + b->n_in[bin]++;
        b->item[at] = v[i].at;
        b->of[at] = v[i].of;
        b->load[bin] += v[i].load;
    }
}

/* What all of it works with. */
struct place {
    const struct dist_experts *p;
    const uint64_t *load;
    bool even; /* no expert was ever chosen */
    struct bins bins;
    struct item *item;   /* [most items at a time] */
    int32_t *local;      /* [experts of a node] */
    int32_t *n_copy;     /* the same */
    int32_t *node_group; /* [groups] node by node */
};

static double load_of(const struct place *k, int32_t expert)
{
    return k->even ? 1.0 : (double)k->load[expert];
}

static void alike_bins(struct bins *b, int n, int cap)
{
    b->n = n;
    for (int i = 0; i <= n; i++)
        b->begin[i] = i * cap;
}

static void groups_to_nodes(struct place *k)
{
    const struct dist_experts *p = k->p;
    int size = p->n_expert / p->n_group;
    for (int g = 0; g < p->n_group; g++) {
        k->item[g] = (struct item){0, g, g};
        for (int i = 0; i < size; i++)
            k->item[g].load += load_of(k, g * size + i);
    }
    alike_bins(&k->bins, p->n_node, p->n_group / p->n_node);
    pack(k->item, &k->bins);
    memcpy(k->node_group, k->bins.item, sizeof *k->node_group * (size_t)p->n_group);
}

/* One more copy of what has most load a copy, until there are n_slot: item [n_slot] of which of
 * local's n experts each is one. */
static void replicate(struct place *k, int n, int n_slot)
{
    for (int i = 0; i < n; i++) {
        k->n_copy[i] = 1;
        k->item[i].of = i;
    }
    for (int s = n; s < n_slot; s++) {
        int most = 0;
        double top = -1;
        for (int i = 0; i < n; i++) {
            double each = load_of(k, k->local[i]) / k->n_copy[i];
            if (each > top) top = each, most = i;
        }
        k->n_copy[most]++;
        k->item[s].of = most;
    }
}

static void place_node(struct place *k, int node, int32_t *expert)
{
    const struct dist_experts *p = k->p;
    int size = p->n_expert / p->n_group, per = p->n_group / p->n_node, n = size * per;
    int n_slot = p->n_slot / p->n_node;
    for (int i = 0; i < n; i++)
        k->local[i] = k->node_group[node * per + i / size] * size + i % size;
    replicate(k, n, n_slot);
    for (int s = 0; s < n_slot; s++) {
        int32_t i = k->item[s].of;
        k->item[s] = (struct item){load_of(k, k->local[i]) / k->n_copy[i], k->local[i], s};
    }
    alike_bins(&k->bins, p->n_rank / p->n_node, n_slot / (p->n_rank / p->n_node));
    k->bins.weight = p->weight; /* then there is one node */
    for (int r = 0; r <= p->n_rank && p->weight; r++)
        k->bins.begin[r] = dist_place_begin(p, r);
    pack(k->item, &k->bins);
    memcpy(expert + node * n_slot, k->bins.of, sizeof *expert * (size_t)n_slot);
}

static sl_status check(const struct dist_experts *p, bool has_load, sl_err *err)
{
    int n_copy = p->n_slot - p->n_expert, more = -p->n_slot % BASE_MAX(p->n_rank, 1);
    if (p->n_rank < 1 || p->n_rank > p->n_expert)
        return SL_FAIL(err, REQUEST, "%d ranks: there are %d experts", p->n_rank, p->n_expert);
    if (n_copy < 0) return SL_FAIL(err, REQUEST, "%d slots: %d experts", p->n_slot, p->n_expert);
    if (more && !p->weight)
        return SL_FAIL(
            err, REQUEST,
            "%d experts and %d copies are not dealt evenly to %d ranks: they are with --redundant "
            "%d",
            p->n_expert, n_copy, p->n_rank, n_copy + p->n_rank + more);
    if (n_copy && !has_load)
        return SL_FAIL(err, REQUEST, "%d copies: of which experts needs counts", n_copy);
    return SL_OK;
}

int dist_place_begin(const struct dist_experts *p, int rank)
{
    int64_t at;
    if (rank == p->n_rank) return p->n_slot;
    (void)dist_share(p->n_slot, 1, &(struct dist_among){rank, p->n_rank, p->weight}, &at);
    return (int)at;
}

static bool by_node(const struct dist_experts *p)
{
    return !p->weight && p->n_node > 1 && p->n_group > 1 && p->n_group % p->n_node == 0 &&
           p->n_expert % p->n_group == 0 && p->n_rank % p->n_node == 0;
}

static sl_status open_place(struct place *k, struct arena *a, sl_err *err)
{
    size_t n = (size_t)k->p->n_slot, E = (size_t)k->p->n_expert;
    void *p = NULL;
    SL_TRY(mem_arena_array(a, n, sizeof *k->item, &p, err));
    k->item = p;
    SL_TRY(mem_arena_array(a, n, sizeof *k->bins.load, &p, err));
    k->bins.load = p;
    SL_TRY(mem_arena_array(a, 4 * n + 1 + 3 * E, sizeof(int32_t), &p, err));
    k->bins.n_in = p;
    k->bins.item = k->bins.n_in + n;
    k->bins.of = k->bins.item + n;
    k->bins.begin = k->bins.of + n;
    k->local = k->bins.begin + n + 1;
    k->n_copy = k->local + E;
    k->node_group = k->n_copy + E;
    return SL_OK;
}

sl_status dist_place(const struct dist_experts *p, const uint64_t *load, int32_t *expert,
                     sl_err *err)
{
    struct dist_experts q = *p;
    struct place k = {.p = &q, .load = load, .even = true};
    struct arena a;
    SL_TRY(check(p, load != NULL, err));
    if (!load) {
        for (int e = 0; e < p->n_expert; e++)
            expert[e] = e;
        return SL_OK;
    }
    if (!by_node(p)) q.n_group = q.n_node = 1;
    for (int e = 0; e < p->n_expert; e++)
        k.even &= load[e] == 0;
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = open_place(&k, &a, err);
    if (!st) groups_to_nodes(&k);
    for (int node = 0; node < q.n_node && !st; node++)
        place_node(&k, node, expert);
    mem_arena_fini(&a);
    return st;
}

static double rank_load(const struct dist_experts *p, const uint64_t *load, const int32_t *expert,
                        int rank)
{
    int end = dist_place_begin(p, rank + 1);
    double sum = 0;
    for (int i = dist_place_begin(p, rank); i < end; i++) {
        int n_copy = 0;
        for (int s = 0; s < p->n_slot; s++)
            n_copy += expert[s] == expert[i];
        sum += (double)load[expert[i]] / n_copy;
    }
    return sum;
}

void dist_place_loads(const struct dist_experts *p, const uint64_t *load, const int32_t *expert,
                      double *out)
{
    for (int r = 0; r < p->n_rank; r++)
        out[r] = rank_load(p, load, expert, r);
}

double dist_place_ratio(const struct dist_experts *p, const uint64_t *load, const int32_t *expert)
{
    double sum = 0, most = 0, all = 0;
    for (int e = 0; e < p->n_expert; e++)
        sum += (double)load[e];
    for (int r = 0; r < p->n_rank; r++) {
        double w = p->weight ? p->weight[r] : 1;
        most = BASE_MAX(most, rank_load(p, load, expert, r) / w);
        all += w;
    }
    return sum > 0 ? most * all / sum : 1;
}
