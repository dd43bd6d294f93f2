/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on rows: look-up, norms, preparing, rotation, sums, gathering. */
#include "dev/cpu/rows.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/shares.h"

#include <math.h>
#include <string.h>

static struct cpu_act *act_of(const dev_act *a)
{
    return (struct cpu_act *)a;
}

/* ---- embed ---- */
struct embed_job {
    const struct dev_step *b;
    const struct dev_embed *p;
};

static void embed_row(struct cpu *c, void *arg, int t, int worker)
{
    (void)worker;
    struct embed_job *j = arg;
    const struct cpu_mat *w = dev_cpu_mat_of(j->p->w);
    float *y = j->p->y + (int64_t)t * w->m.n_col;
    int row = j->b->ids[t] - j->p->row0;
    if (row < 0 || row >= w->m.n_row) return;
    kern_mm_unpack_row(&w->m, row, y);
    if (j->p->scale != 1.0f) c->k.scale_f32(y, j->p->scale, w->m.n_col);
}

void dev_cpu_embed(dev *d, const struct dev_step *b, const struct dev_embed *p)
{
    struct embed_job j = {b, p};
    dev_cpu_for_rows(dev_cpu_of(d), b->n_tok, dev_cpu_mat_of(p->w)->m.n_col * 0.5, embed_row, &j);
}

/* ---- norm ---- */
struct norm_job {
    const struct dev_norm *p;
    const int32_t *from; /* NULL: row i of i */
    int n_head;
};

static void norm_row(struct cpu *c, void *arg, int i, int worker)
{
    const struct norm_job *j = arg;
    const struct dev_norm *p = j->p;
    int64_t ldx = p->ldx ? p->ldx : p->n, ldy = p->ldy ? p->ldy : p->n;
    int64_t row = j->from ? (int64_t)j->from[i / j->n_head] * j->n_head + i % j->n_head : i;
    float *x = p->x + row * ldx;
    if (p->r) c->k.add_f32(x, p->r + i * ldx, p->n);
    float *y = p->y ? p->y + i * ldy : c->scratch[worker].row;
    if (p->b) {
        float mean = c->k.sum_f32(x, p->n) / (float)p->n;
        for (int k = 0; k < p->n; k++)
            y[k] = x[k] - mean;
        x = y;
    }
    c->k.rmsnorm_f32(y, x, p->w, p->n, p->eps);
    if (p->b) c->k.add_f32(y, p->b, p->n);
    if (p->act) kern_mm_prep(&act_of(p->act)->b, i, y);
}

void dev_cpu_norm(dev *d, const struct dev_step *b, const struct dev_norm *p)
{
    int n_head = BASE_MAX(p->n_head, 1), n_row = p->n_row ? p->n_row : b->n_tok * n_head;
    struct norm_job j = {p, p->gather ? b->hidden_row : NULL, n_head};
    if (p->ranks) {
        dev_cpu_norm_share(dev_cpu_of(d), p, b->n_tok);
        return;
    }
    dev_cpu_for_rows(dev_cpu_of(d), n_row, p->n * (p->act ? 0.4 : 0.1), norm_row, &j);
}

/* ---- prep ---- */
static void prep_row(struct cpu *c, void *arg, int i, int worker)
{
    (void)c;
    (void)worker;
    const struct dev_prep *p = arg;
    kern_mm_prep(&act_of(p->act)->b, i, p->x + i * (p->ldx ? p->ldx : p->n));
}

void dev_cpu_prep(dev *d, const struct dev_step *b, const struct dev_prep *p)
{
    int n_row = dev_n_row(b, p->n_row);
    if (p->ranks)
        dev_cpu_prep_share(dev_cpu_of(d), p, n_row);
    else
        dev_cpu_for_rows(dev_cpu_of(d), n_row, p->n * 0.3, prep_row, (void *)p);
}

/* ---- rope ---- */

/* The table for freq, of each half of a step: found by its address, else the slot that was taken
 * longest ago. */
static struct cpu_angles *angles_of(struct cpu *c, const struct dev_rope *p)
{
    for (int i = 0; i < CPU_N_ANGLES; i++) {
        struct cpu_angles *a = &c->angles[i];
        if (a->freq == p->freq && a->n_rot == p->n_rot && a->mscale == p->mscale &&
            a->half == c->half)
            return a;
    }
    struct cpu_angles *a = &c->angles[c->angles_next];
    c->angles_next = (c->angles_next + 1) % CPU_N_ANGLES;
    a->freq = p->freq;
    a->n_rot = p->n_rot;
    a->mscale = p->mscale;
    a->half = c->half;
    for (int t = 0; t < c->most.max.n_tok; t++)
        a->pos[t] = -1;
    return a;
}

/* The angles of token t. */
static const float *angles_at(const struct cpu *c, struct cpu_angles *a, const struct dev_step *b,
                              int t)
{
    float *cs = a->cs + (int64_t)t * c->n_rot_max;
    int half = a->n_rot / 2, pos = b->pos[t];
    if (a->pos[t] == pos) return cs;
    for (int i = 0; i < half; i++) {
        double angle = (double)((float)pos * a->freq[i]); /* f32, as the reference */
        cs[i] = (float)cos(angle) * a->mscale;
        cs[half + i] = (float)sin(angle) * a->mscale;
    }
    a->pos[t] = pos;
    return cs;
}

const float *dev_cpu_angles(struct cpu *c, const struct dev_step *b, const struct dev_rope *p)
{
    struct cpu_angles *a = angles_of(c, p);
    for (int t = 0; t < b->n_tok; t++)
        (void)angles_at(c, a, b, t);
    return a->cs;
}

struct rope_job {
    const struct dev_step *b;
    const struct dev_rope *p;
    struct cpu_angles *a;
};

static void rope_row(struct cpu *c, void *arg, int t, int worker)
{
    struct rope_job *j = arg;
    const struct dev_rope *p = j->p;
    const float *cs = angles_at(c, j->a, j->b, t);
    float *x = p->x + t * p->ldx, *row = c->scratch[worker].row;
    if (p->back) { /* the same cosines, and the other sines */
        for (int i = 0, half = p->n_rot / 2; i < half; i++) {
            row[i] = cs[i];
            row[half + i] = -cs[half + i];
        }
        cs = row;
    }
    for (int h = 0; h < p->n_head; h++, x += p->ldx_h)
        dev_cpu_rotate(&c->k, p->style, x, cs, p->n_rot);
}

void dev_cpu_rope(dev *d, const struct dev_step *b, const struct dev_rope *p)
{
    struct cpu *c = dev_cpu_of(d);
    ASSERT(b->n_tok <= c->most.max.n_tok && p->n_rot <= c->n_rot_max);
    struct rope_job j = {b, p, angles_of(c, p)};
    dev_cpu_for_rows(c, b->n_tok, p->n_head * (4.0 + p->n_rot * 0.15), rope_row, &j);
}

/* ---- kv_put ---- */
void dev_cpu_put_head(struct cpu *c, const struct cpu_kv *kv, struct cpu_place at, int h,
                      const float *k, const float *v)
{
    c->k.put_k(kv->t, at.page + dev_cpu_key_at(kv, h, at.in), at.in % 16, k, kv->s.d_k);
    c->k.put_v(kv->t, at.page + dev_cpu_value_at(kv, h, at.in), v, kv->s.d_v);
}

struct put_job {
    const struct dev_step *b;
    const struct dev_kv_put *p;
};

static void put_row(struct cpu *c, void *arg, int t, int worker)
{
    (void)worker;
    struct put_job *j = arg;
    const struct dev_kv_put *p = j->p;
    const struct dev_step *b = j->b;
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    struct cpu_place at = dev_cpu_place(c, kv, p->layer, b, t);
    const float *k = p->k + t * p->ldk;
    if (p->i)
        c->k.put_k(kv->t, at.page + dev_cpu_index_at(kv, at.in), at.in % 16, p->i + t * p->ldi,
                   kv->s.d_i);
    if (kv->s.d_v == 0) {
        c->k.put_v(kv->t, at.page + (size_t)at.in * kv->row_bytes, k, kv->s.d_k);
        return;
    }
    const float *v = p->v + t * p->ldv;
    for (int h = 0; h < kv->s.n_head; h++)
        dev_cpu_put_head(c, kv, at, h, k + h * kv->s.d_k, v + h * kv->s.d_v);
}

void dev_cpu_kv_put(dev *d, const struct dev_step *b, const struct dev_kv_put *p)
{
    struct put_job j = {b, p};
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    dev_cpu_for_rows(dev_cpu_of(d), b->n_tok, kv->s.n_head * (kv->s.d_k + kv->s.d_v) * 0.8, put_row,
                     &j);
}

/* ---- add ---- */
static void add_row(struct cpu *c, void *arg, int i, int worker)
{
    (void)worker;
    const struct dev_add *p = arg;
    float *x = p->x + (int64_t)i * p->n;
    c->k.add_f32(x, p->y + (int64_t)i * p->n, p->n);
    if (p->scale != 0) c->k.scale_f32(x, p->scale, p->n);
}

void dev_cpu_add(dev *d, const struct dev_step *b, const struct dev_add *p)
{
    int n_row = dev_n_row(b, p->n_row);
    if (p->ranks)
        dev_cpu_add_share(dev_cpu_of(d), p, n_row);
    else
        dev_cpu_for_rows(dev_cpu_of(d), n_row, p->n * 0.1, add_row, (void *)p);
}

/* ---- cap ---- */
#define CAP_PIECE 4096 /* values of a worker's turn: rows are few and wide */

static void cap_piece(struct cpu *c, void *arg, int i, int worker)
{
    (void)worker;
    const struct dev_cap *p = arg;
    int n_piece = (p->n + CAP_PIECE - 1) / CAP_PIECE, at = i % n_piece * CAP_PIECE;
    c->k.cap_f32(p->x + (int64_t)(i / n_piece) * p->n + at, p->cap, BASE_MIN(CAP_PIECE, p->n - at));
}

void dev_cpu_cap(dev *d, const struct dev_step *b, const struct dev_cap *p)
{
    int n_piece = (p->n + CAP_PIECE - 1) / CAP_PIECE;
    dev_cpu_for_rows(dev_cpu_of(d), dev_n_row(b, p->n_row) * n_piece, CAP_PIECE * 1.0, cap_piece,
                     (void *)p);
}

/* ---- rows that are wanted ---- */
struct rows_job {
    const struct dev_rows *p;
    const int32_t *from; /* NULL: all */
};

static void rows_row(struct cpu *c, void *arg, int i, int worker)
{
    (void)c;
    (void)worker;
    const struct rows_job *j = arg;
    const struct dev_rows *p = j->p;
    const float *x = p->x + (int64_t)(j->from ? j->from[i] : i) * p->n;
    kern_mm_prep(&act_of(p->act)->b, i, x);
}

void dev_cpu_rows(dev *d, const struct dev_step *b, const struct dev_rows *p)
{
    int n_row = dev_n_row(b, DEV_ROWS_WANTED);
    struct rows_job j = {p, n_row == b->n_tok ? NULL : b->row_tok};
    dev_cpu_for_rows(dev_cpu_of(d), n_row, p->n * 0.4, rows_row, &j);
}

/* ---- move ---- */
struct move_job {
    float *to;
    const float *x;
    const int32_t *from; /* NULL: all */
    int n;
};

static void move_row(struct cpu *c, void *arg, int i, int worker)
{
    (void)c;
    (void)worker;
    const struct move_job *j = arg;
    memcpy(j->to + (int64_t)i * j->n, j->x + (int64_t)(j->from ? j->from[i] : i) * j->n,
           sizeof(float) * (size_t)j->n);
}

void dev_cpu_move(dev *d, const struct dev_step *b, const struct dev_move *p)
{
    int n_row = dev_n_row(b, p->n_row);
    struct move_job j = {.to = p->out ? p->host : p->at,
                         .x = p->out ? p->at : p->host,
                         .from = p->gather ? b->row_tok : NULL,
                         .n = p->n};
    dev_cpu_for_rows(dev_cpu_of(d), n_row, p->n * 0.1, move_row, &j);
}

/* ---- tap ---- */
void dev_cpu_tap(dev *d, const struct dev_step *b, const struct dev_tap *p)
{
    (void)d;
    struct dev_tapped r = {.what = p->what,
                           .layer = p->layer,
                           .expert = -1,
                           .x = p->x,
                           .n_row = b->n_tok,
                           .n_col = p->n,
                           .ldx = p->ldx ? p->ldx : p->n};
    p->fn(p->user, &r);
}
