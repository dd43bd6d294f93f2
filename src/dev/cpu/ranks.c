/* SPDX-License-Identifier: Apache-2.0 */
/* Columns and rows that other ranks have computed. */
#include "dev/cpu/ranks.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/product.h"

static bool is_shared(const struct dev_ranks *r, int n_row)
{
    return r && n_row >= CPU_SHARE_ROWS * r->n_rank;
}

static struct cpu_share share_of(const struct dev_ranks *r, int rank, int n_row)
{
    int64_t b, e;
    par_split(n_row, rank, r->n_rank, &b, &e);
    return (struct cpu_share){(int)b, (int)(e - b)};
}

struct cpu_share dev_cpu_share(const struct dev_ranks *r, int n_row)
{
    if (!is_shared(r, n_row)) return (struct cpu_share){0, n_row};
    return share_of(r, r->rank, n_row);
}

void dev_cpu_share_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                        const struct cpu_shared *s)
{
    int32_t n_of[DEV_RANK_MAX];
    struct dev_joined j = {
        .d = &c->head, .x = s->x, .y = s->y, .n_row = n_row, .n = s->n, .n_of = n_of};
    if (!is_shared(r, n_row)) return;
    for (int i = 0; i < r->n_rank; i++)
        n_of[i] = share_of(r, i, n_row).n;
    r->join(r->user, &j);
}

bool dev_cpu_parts_shared(const struct dev_ranks *r, const int32_t *part)
{
    for (int i = 0; i < r->n_rank; i++)
        if (part[i] % 32) return false;
    return true;
}

int dev_cpu_parts_begin(const struct dev_ranks *r, const int32_t *part)
{
    int begin = 0;
    for (int i = 0; i < r->rank; i++)
        begin += part[i];
    return begin / 32;
}

void dev_cpu_parts_join(struct cpu *c, const struct dev_ranks *r, const int32_t *part,
                        struct mm_act_buf *act, int n_row)
{
    int32_t words[DEV_RANK_MAX];
    int64_t ld;
    struct dev_joined j = {.d = &c->head, .n_row = n_row, .part = words};
    j.y = kern_mm_part(act, 0, &ld);
    j.x = kern_mm_part(act, dev_cpu_parts_begin(r, part), &ld);
    j.ldx = j.ldy = ld;
    for (int i = 0; i < r->n_rank; i++) {
        words[i] = part[i] / 32 * MM_PART_WORDS;
        j.n += words[i];
    }
    if (n_row) r->join(r->user, &j);
}

void dev_cpu_join(dev *d, const struct dev_step *b, const struct dev_join *p)
{
    struct dev_joined j = {
        .d = d, .x = p->x, .y = p->y, .n = p->n, .part = p->part, .n_of = p->n_of, .home = p->home};
    j.n_row = dev_n_row(b, p->n_row);
    if (j.n_row) p->ranks->join(p->ranks->user, &j);
}

void dev_cpu_pick(dev *d, const struct dev_step *b, const struct dev_pick *p)
{
    struct dev_joined j = {.d = d, .x = p->x, .y = p->y, .n = p->n, .of = p->of};
    j.n_row = b->n_tok;
    for (int t = 0; t < b->n_tok; t++) {
        int r = 0;
        while (r + 1 < p->ranks->n_rank && b->ids[t] >= p->row0[r + 1])
            r++;
        p->of[t] = r;
    }
    if (j.n_row) p->ranks->join(p->ranks->user, &j);
}
