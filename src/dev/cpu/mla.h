/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of MLA share (mla.c, mla_bf16.c, mla_i16.c). Room-internal. */
#ifndef DEV_CPU_MLA_H
#define DEV_CPU_MLA_H

#include "dev/cpu/ask.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"

/* Rows and row floats of a part, and floats of scratch per worker, at most. */
void dev_cpu_mla_need(const struct dev_shapes *p, int *n_row, int *ldo, size_t *mem_floats);

/* What is read after attention and may be fetched while it computes: the first n_bytes of the
 * regions, a share of it with every span of the first unit. */
#define MLA_AHEAD 5
struct mla_ahead {
    struct attn_region r[MLA_AHEAD];
    int n;
    int64_t n_bytes;
    int n_span;
};

struct mla {
    const struct dev_attn_mla *p;
    const struct cpu_kv *kv;
    int n_list;        /* tokens of this form: c->mla.tok_list */
    int d_k, row, r16; /* r + rope; the same and r rounded up to 16 */
    int ldx;           /* floats from a widened row to the next */
    int n_lane;        /* lanes of a unit at most */
    int n_gather;      /* floats of scratch before the form's: rows of a span that are picked */
    struct mla_ahead ahead;
};

/* mla.c: everything of *a but n_list and ahead. */
void dev_cpu_mla_init(struct mla *a, const struct dev_attn_mla *p, const struct cpu_kv *kv);
/* Absorbed attention of the a->n_list tokens in c->mla.tok_list, whose queries are in c->mla.lat,
 * to c->mla.olat: units into c->span.unit, the rest into *j, which points to *a. */
void dev_cpu_mla_job(struct cpu *c, const struct dev_step *b, const struct mla *a,
                     struct cpu_span_job *j);
/* Into a->ahead; n_span: of the first unit. */
void dev_cpu_mla_look_ahead(struct mla *a, int n_span);

/* nope + rope, even. */
static inline int dev_cpu_key_width(int nope, int rope)
{
    return (nope + rope + 1) / 2 * 2;
}
/* Elements from a row of n of size bytes to the next: an odd number of lines, so that a column of a
 * span does not fall on a few sets of the first-level cache. */
static inline int dev_cpu_row_ld(int n, int size)
{
    return (((n * size + 63) / 64) | 1) * 64 / size;
}
static inline int dev_cpu_clamp_span(int hi)
{
    return hi < 0 ? 0 : hi < VEC_SPAN ? hi : VEC_SPAN;
}

/* The absorbed form on bf16: queries, weights and latent rows are rounded to bf16, sums are f32. */
void dev_cpu_abs16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         float *mem);
void dev_cpu_abs16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                        const int where[2], float *mem, struct cpu_part out);
/* Floats of scratch that they use. */
size_t dev_cpu_abs16_floats(int d_k);

/* The same on 16-bit integers. */
void dev_cpu_abs_i16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                           float *mem);
void dev_cpu_abs_i16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                          const int where[2], float *mem, struct cpu_part out);
size_t dev_cpu_abs_i16_floats(int r, int rope);

/* The positions, or windows of them, that token t sees; NULL: all up to its own. */
static inline const int32_t *dev_cpu_mla_pick(const struct dev_attn_mla *p,
                                              const struct dev_step *b, int64_t t)
{
    int every = BASE_MAX(p->every, 1);
    return p->pick && (b->pos[t] + 1) / every > p->n_pick ? p->pick + t * p->n_pick : NULL;
}
/* How many positions these are. */
static inline int dev_cpu_mla_seen(const struct dev_attn_mla *p, const struct dev_step *b,
                                   int64_t t)
{
    int n = b->pos[t] + 1, every = BASE_MAX(p->every, 1);
    return dev_cpu_mla_pick(p, b, t) ? p->n_pick * every + n % every : n;
}
/* Number i of them, of the token at position pos: those of windows, then what is after the last
 * whole one. */
static inline int dev_cpu_mla_picked(const struct dev_attn_mla *p, const int32_t *pick, int pos,
                                     int i)
{
    int every = BASE_MAX(p->every, 1), w = i / every;
    return (w < p->n_pick ? pick[w] : (pos + 1) / every) * every + i % every;
}
/* Those of a unit of the absorbed form, which is one token where there are any. */
static inline const int32_t *dev_cpu_mla_unit_pick(const struct cpu *c,
                                                   const struct cpu_span_job *j,
                                                   const struct cpu_unit *u)
{
    return dev_cpu_mla_pick(((const struct mla *)j->op)->p, j->b, c->mla.tok_list[u->tok0]);
}
/* mla.c: how many rows of the span at row p0 each query of a unit sees, to hi; the most of them.
 * Rows that are picked, which all of a unit's queries are, are copied to mem one after another. */
int dev_cpu_mla_rows(const struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                     int p0, int32_t *hi, float *mem);

/* mla.c: query i of a unit of the absorbed form, token i / n_head of it and head head0 + i %
 * n_head, times scale: row[d_k], latent and rope. */
void dev_cpu_mla_query(struct cpu *c, const struct mla *a, const struct cpu_unit *u, int i,
                       float *row);
/* Where position p of a sequence has its latent row; those after it in its block follow. */
static inline const uint8_t *dev_cpu_mla_row_at(const struct mla *a, const struct dev_step *b,
                                                int seq, int p)
{
    const struct cpu_kv *kv = a->kv;
    return dev_cpu_page_of(kv, a->p->layer, b, seq, p) + (size_t)(p % kv->blk_tok) * kv->row_bytes;
}
/* The rows of a span under way: those of positions [p0, p0 + 128) of a sequence, or copies. */
struct mla_span {
    const struct mla *a;
    const struct dev_step *b;
    int seq, p0;
    const uint8_t *copy; /* NULL: there are none */
};
static inline struct mla_span dev_cpu_mla_span(const struct cpu *c, const struct cpu_span_job *j,
                                               const struct cpu_unit *u, int p0, const float *mem)
{
    return (struct mla_span){
        .a = j->op,
        .b = j->b,
        .seq = u->seq,
        .p0 = p0,
        .copy = dev_cpu_mla_unit_pick(c, j, u) ? (const uint8_t *)mem : NULL};
}
/* Row i of it; those after it in its block, or all others, follow. */
static inline const uint8_t *dev_cpu_mla_span_row(const struct mla_span *s, int i)
{
    return s->copy ? s->copy + (size_t)i * s->a->kv->row_bytes
                   : dev_cpu_mla_row_at(s->a, s->b, s->seq, s->p0 + i);
}
/* mla.c: widen rows [i, end) of a span to x[][ldx]. */
void dev_cpu_mla_widen(struct cpu *c, const struct mla_span *s, int i, int end, float *x);
/* Rows of the absorbed form in f32 and on integers that are multiplied at a time, a tile or two,
 * and of these are made before the next lines are asked for. */
#define MLA_PIECE 12
#define MLA_MADE 4
/* mla.c: the rows of the piece after position end of span where[0], perhaps in span where[1], to be
 * asked for in n_time times. */
struct cpu_ask dev_cpu_mla_ask(const struct cpu *c, const struct cpu_span_job *j,
                               const struct cpu_unit *u, const int where[2], int end, int n_time);

/* The materialised form: a unit is one head of one sequence. */
struct mla_job {
    struct cpu *c;
    const struct dev_step *b;
    struct mla a;
    int n_unit;
};
/* A tile of its tokens over the span at position p0: their scores are s[position][ld]. */
struct mla_tile {
    const int32_t *tok;
    int n_tok, p0, ld;
    const int32_t *hi; /* [n_tok] positions of the span that each comes after, or is at */
};
/* mla.c: of tokens that see some positions only the scores of others become -inf; none[i]: the
 * token sees none of the span, and its scores stay. */
void dev_cpu_mla_mask(const struct mla_job *j, const struct mla_tile *t, float *s, uint8_t *none);
/* The same on bf16: W_kb, W_vb and what they make are rounded to bf16 too. */
void dev_cpu_exp16_unit(struct cpu *c, const struct mla_job *j, const struct cpu_unit *u,
                        int worker);
/* Before them: the weights of a layer that are kept. */
void dev_cpu_exp16_weights(struct cpu *c, const struct mla *a);
size_t dev_cpu_exp16_floats(const struct dev_shapes *p);
/* keep.c: what is kept of a sequence in the form that it is computed with, or NULL. */
struct cpu_kept *dev_cpu_keep_of(const struct mla_job *j, int seq);

#endif
