/* SPDX-License-Identifier: Apache-2.0 */
/* Columns and rows that other ranks have computed. */
#include "dev/cpu/ranks.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/product.h"

/* How many rows each rank's share has. */
static void shares(const struct dev_ranks *r, int n_row, int32_t *n_of)
{
    for (int i = 0; i < r->n_rank; i++)
        n_of[i] = dev_share_of(r, i, n_row).n;
}

void dev_cpu_share_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                        const struct cpu_shared *s)
{
    int32_t n_of[DEV_RANK_MAX];
    struct dev_joined j = {
        .d = &c->head, .x = s->x, .y = s->y, .n_row = n_row, .n = s->n, .n_of = n_of};
    if (!dev_is_shared(r, n_row)) return;
    shares(r, n_row, n_of);
    r->join(r->user, &j);
}

void dev_cpu_cols_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                       const struct dev_joined *j)
{
    int32_t n_of[DEV_RANK_MAX];
    struct dev_joined a = *j;
    a.d = &c->head;
    a.n_row = n_row;
    a.each = dev_is_shared(r, n_row);
    if (a.each) {
        shares(r, n_row, n_of);
        a.n_of = n_of;
    }
    if (n_row) r->join(r->user, &a);
}

/* Forms of activations that the matrices take. */
static unsigned forms_of(const dev_mat *const *all)
{
    unsigned forms = 0;
    for (int i = 0; i < DEV_ALL_MAX; i++)
        if (all[i])
            forms |= 1u << dev_cpu_mat_of(all[i])->form | 1u << dev_cpu_mat_of(all[i])->form2;
    return forms;
}

static struct dev_strip *add_strip(struct dev_joined *j, struct dev_strip *strip, struct mm_strip s,
                                   int begin)
{
    ASSERT(j->n_strip < DEV_STRIPS);
    strip[j->n_strip] = (struct dev_strip){s.p + begin * s.ld, s.p, s.n, s.ld, 0};
    return &strip[j->n_strip++];
}

/* Of a form with a second plane in some groups: a row's first plane, its unit, the list of those,
 * and of the second plane what is listed. */
static void add_planes(struct dev_joined *j, struct dev_strip *strip, const struct mm_strip of[2],
                       int begin)
{
    int plane = (of[1].n - 1) * MM_PART_WORDS, unit = of[0].n - MM_PART_WORDS;
    struct mm_strip at = of[0];
    at.n = plane;
    add_strip(j, strip, at, begin);
    at.p = of[0].p + unit;
    at.n = MM_PART_WORDS;
    add_strip(j, strip, at, begin);
    add_strip(j, strip, of[1], begin);
    at.p = of[0].p + plane;
    at.n = plane;
    add_strip(j, strip, at, begin)->group = MM_PART_WORDS;
}

void dev_cpu_whole_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                        const struct cpu_whole *w)
{
    if (!dev_is_shared(r, n_row)) return;
    int32_t n_of[DEV_RANK_MAX];
    struct dev_strip strip[DEV_STRIPS];
    struct dev_joined j = {.d = &c->head, .n_row = n_row, .n_of = n_of, .strip = strip};
    struct mm_act_buf *act = w->act ? &((struct cpu_act *)w->act)->b : w->buf;
    unsigned forms = w->act ? forms_of(w->all) : w->forms;
    int begin = dev_share_of(r, r->rank, n_row).begin;
    for (int f = 0; act && f < MM_N_ACT; f++) {
        struct mm_strip of[MM_STRIPS];
        int n = forms >> f & 1 ? kern_mm_strips(act, (enum mm_act)f, of) : 0;
        if (n == 1) add_strip(&j, strip, *of, begin);
        if (n == 2) add_planes(&j, strip, of, begin);
    }
    for (int i = 0; i < w->n_rows; i++)
        add_strip(&j, strip, (struct mm_strip){w->rows[i].y, w->rows[i].n, w->rows[i].n}, begin);
    shares(r, n_row, n_of);
    if (j.n_strip) r->join(r->user, &j);
}

bool dev_cpu_parts_shared(const struct dev_ranks *r, const int32_t *part)
{
    if (r->plain) return false;
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
    bool own = p->own && dev_is_shared(p->ranks, j.n_row);
    struct dev_share s = dev_share_of(p->ranks, p->ranks->rank, j.n_row);
    float *to = p->y + (int64_t)s.begin * p->n;
    if (own && p->n_of) {
        memcpy(to, p->x, sizeof *to * (size_t)s.n * (size_t)p->n);
    } else if (own) {
        j.y = to;
        dev_cpu_cols_join(dev_cpu_of(d), p->ranks, j.n_row, &j);
    } else if (j.n_row) {
        p->ranks->join(p->ranks->user, &j);
    }
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
