/* SPDX-License-Identifier: Apache-2.0 */
/* Terms of experts, sorted by the place that computes each. */
#include "dev/terms.h"

#include <string.h>

/* The rank whose token number t of all is. */
static int owner_of(const struct dev_spread *s, int t)
{
    int r = 0;
    while (t >= s->n_tok_of[r])
        t -= s->n_tok_of[r++];
    return r;
}

int dev_terms_n_etp(const struct dev_moe *p)
{
    return p->etp ? p->etp->ranks->n_rank : 1;
}

int dev_terms_share(const struct dev_moe *p, int n, int i)
{
    return (int)((int64_t)n * i / dev_terms_n_etp(p));
}

int dev_terms_sharer(const struct dev_moe *p, int n, int row)
{
    return (int)((((int64_t)row + 1) * dev_terms_n_etp(p) - 1) / n);
}

int dev_terms_cols(const struct dev_moe *p)
{
    int n = 0;
    if (!p->etp) return dev_mat_rows(p->down);
    for (int r = 0; r < p->etp->ranks->n_rank; r++)
        n += p->etp->part[r];
    return n;
}

int dev_terms_place(const struct dev_moe *p, int e, int t)
{
    if (!p->slots) return e;
    int first = p->slots->first[e], n = p->slots->first[e + 1] - first;
    const int32_t *list = p->slots->list + first;
    if (n == 0) return -1;
    if (!p->spread || n == 1) return list[t % n];
    int rank = owner_of(p->spread, t), at = rank / dev_terms_n_etp(p);
    for (int i = 0; i < n; i++)
        if (list[i] >= p->slots->rank0[at] && list[i] < p->slots->rank0[at + 1]) return list[i];
    return list[(t + rank) % n];
}

void dev_terms_sort(const struct dev_terms *l, int n, int k, int n_place)
{
    int32_t *first = l->slot0;
    memset(first, 0, sizeof *first * (size_t)(n_place + 1));
    for (int i = 0; i < n; i++)
        if (l->slot_of[i] >= 0) first[l->slot_of[i] + 1]++;
    for (int e = 0; e < n_place; e++)
        first[e + 1] += first[e];
    for (int i = 0; i < n; i++) {
        int at = l->slot_of[i];
        if (at < 0) continue;
        int32_t slot = first[at]++;
        l->slot_row[slot] = i / k;
        l->slot_of[i] = slot;
    }
    for (int e = n_place; e > 0; e--)
        first[e] = first[e - 1]; /* first[e] had moved to its end */
    first[0] = 0;
}

void dev_terms_count(const struct dev_terms *l, const struct dev_moe *p, int n_rank, int32_t *n_of)
{
    const int32_t *rank0 = p->slots->rank0;
    int n_etp = dev_terms_n_etp(p);
    for (int r = 0; r < n_rank; r++) {
        int g = r / n_etp, n = l->slot0[rank0[g + 1]] - l->slot0[rank0[g]];
        n_of[r] = dev_terms_share(p, n, r % n_etp + 1) - dev_terms_share(p, n, r % n_etp);
    }
}
