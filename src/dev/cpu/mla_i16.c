/* SPDX-License-Identifier: Apache-2.0 */
/* The absorbed form of MLA on 16-bit integers (kern/attn.h), heads in lanes. Latent and rope parts
 * of a row have a scale each, for their magnitudes are far apart: rows are [r16 | rope16] with
 * zeros after each part. */
#include "dev/cpu/mla.h"
#include "dev/cpu/span.h"

/* A tile. The rows of a piece, two of them, stay in the first-level cache, beside the queries. */
#define TILE (MLA_PIECE / 2)

struct i16_mem {
    int16_t *q, *w, *x; /* q [row / 2][lanes][2], w [SPAN / 2][lanes][2], x [SPAN][ldx] */
    float *s, *t;       /* [SPAN][lanes], [MLA_MADE][ldx], or a query and its codes */
    float *x_scale;     /* [SPAN][2] */
    float *q_scale;     /* [2][lanes] */
};

/* Parts of a row: numbers from at on, n of them, to where codes lie. */
struct part {
    int at, n, to;
};

static void parts_of(int r, int rope, struct part out[2])
{
    out[0] = (struct part){0, r, 0};
    out[1] = (struct part){r, rope, dev_cpu_round16(r)};
}

static int row_codes(int r, int rope)
{
    return dev_cpu_row_ld(dev_cpu_round16(r) + dev_cpu_round16(rope), sizeof(int16_t));
}

static size_t carve(float *mem, int r, int rope, struct i16_mem *m)
{
    size_t row = (size_t)row_codes(r, rope), wide = (size_t)dev_cpu_row_ld(r + rope, 4);
    size_t size[] = {(size_t)VEC_SPAN * CPU_LANES,
                     MLA_MADE * wide + row,
                     2 * VEC_SPAN,
                     2 * CPU_LANES,
                     row / 2 * CPU_LANES,
                     (size_t)VEC_SPAN / 2 * CPU_LANES,
                     VEC_SPAN * row / 2};
    size_t at[8] = {0};
    for (int i = 0; i < 7; i++)
        at[i + 1] = at[i] + (size[i] + 15) / 16 * 16;
    if (mem)
        *m = (struct i16_mem){.s = mem,
                              .t = mem + at[1],
                              .x_scale = mem + at[2],
                              .q_scale = mem + at[3],
                              .q = (int16_t *)(void *)(mem + at[4]),
                              .w = (int16_t *)(void *)(mem + at[5]),
                              .x = (int16_t *)(void *)(mem + at[6])};
    return at[7];
}

size_t dev_cpu_abs_i16_floats(int r, int rope)
{
    return carve(NULL, r, rope, NULL);
}

void dev_cpu_abs_i16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                           float *mem)
{
    const struct mla *a = j->op;
    const struct dev_attn_mla *p = a->p;
    struct i16_mem m;
    struct part part[2];
    (void)carve(mem + a->n_gather, p->r, p->rope, &m);
    parts_of(p->r, p->rope, part);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n), row = row_codes(p->r, p->rope);
    int16_t *codes = (int16_t *)(void *)(m.t + a->ldx);
    memset(m.q, 0, sizeof *m.q * (size_t)row * (size_t)ld);
    memset(m.q_scale, 0, sizeof(float) * 2 * CPU_LANES);
    for (int i = 0; i < n; i++) {
        dev_cpu_mla_query(c, a, u, i, m.t);
        for (int k = 0; k < 2; k++) {
            kern_get()->attn_query_i16(m.t + part[k].at, part[k].n, codes,
                                       &m.q_scale[k * CPU_LANES + i]);
            for (int d = 0; d < part[k].n; d += 2)
                memcpy(m.q + (int64_t)(part[k].to + d) * ld + 2 * i, codes + d, 2 * sizeof *codes);
        }
    }
}

/* Codes of rows [range[0], range[1]) of a span. */
static void make_rows(struct cpu *c, const struct mla_span *of, const struct i16_mem *m,
                      const int range[2], struct cpu_ask *next)
{
    const struct mla *a = of->a;
    struct part part[2];
    parts_of(a->p->r, a->p->rope, part);
    int row = row_codes(a->p->r, a->p->rope), blk = a->kv->blk_tok;
    int f16 = a->kv->t == VEC_KV_F16 && part[0].n % 16 == 0 && part[1].n % 16 == 0;
    for (int at = range[0], n; at < range[1]; at += n) {
        int left = blk - (of->p0 + at) % blk;
        n = range[1] - at < MLA_MADE ? range[1] - at : MLA_MADE;
        dev_cpu_ask(next);
        if (f16) {
            if (!of->copy) n = BASE_MIN(n, left);
            const uint8_t *from = dev_cpu_mla_span_row(of, at);
            for (int k = 0; k < 2; k++)
                kern_get()->attn_f16_i16(from + 2 * (size_t)part[k].at, (int64_t)a->kv->row_bytes,
                                         n, part[k].n, m->x + (int64_t)at * row + part[k].to, row,
                                         m->x_scale + 2 * at + k, 2);
            continue;
        }
        dev_cpu_mla_widen(c, of, at, at + n, m->t);
        for (int k = 0; k < 2; k++)
            kern_get()->attn_rows_i16(m->t + part[k].at, a->ldx, n, part[k].n,
                                      m->x + (int64_t)at * row + part[k].to, row,
                                      m->x_scale + 2 * at + k, 2);
    }
}

/* Scores of positions [at, end), whose rows are made. */
static void score(const struct mla *a, const struct i16_mem *m, int at, int end, int ld,
                  struct cpu_ask *next)
{
    struct part part[2];
    parts_of(a->p->r, a->p->rope, part);
    int row = row_codes(a->p->r, a->p->rope);
    for (int n; at < end; at += n) {
        n = end - at < TILE ? end - at : TILE;
        for (int k = 0; k < 2; k++)
            kern_get()->attn_dot_i16(
                &(struct attn_i16){.x = m->x + (int64_t)at * row + part[k].to,
                                   .ldx = row,
                                   .x_scale = m->x_scale + 2 * at + k,
                                   .ld_scale = 2,
                                   .q = m->q + (int64_t)part[k].to * ld,
                                   .q_scale = m->q_scale + (ptrdiff_t)k * CPU_LANES,
                                   .ld = ld,
                                   .n_pair = (part[k].n + 1) / 2,
                                   .n_pos = n,
                                   .add = k,
                                   .s = m->s + at * ld});
        dev_cpu_ask(next);
    }
}

void dev_cpu_abs_i16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                          const int where[2], float *mem, struct cpu_part out)
{
    const struct mla *a = j->op;
    struct i16_mem m;
    (void)carve(mem + a->n_gather, a->p->r, a->p->rope, &m);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n), p0 = where[0] * VEC_SPAN;
    int row = row_codes(a->p->r, a->p->rope);
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES] = {0};
    int to = dev_cpu_mla_rows(c, j, u, p0, hi, mem);
    const struct mla_span rows = dev_cpu_mla_span(c, j, u, p0, mem);
    for (int at = 0; at < to; at += MLA_PIECE) {
        int end = at + MLA_PIECE < to ? at + MLA_PIECE : to;
        struct cpu_ask next = dev_cpu_mla_ask(c, j, u, where, end, MLA_PIECE / MLA_MADE + 2);
        make_rows(c, &rows, &m, (const int[]){at, end}, &next);
        score(a, &m, at, end, ld, &next);
    }
    float mx[CPU_LANES], l[CPU_LANES], w_scale[CPU_LANES];
    c->k.span_col_f32(m.s, ld, to, ld / 16, lo, hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)n);
    memcpy(out.l, l, sizeof(float) * (size_t)n);
    struct attn_i16 mix = {.x = m.x,
                           .ldx = row,
                           .x_scale = m.x_scale,
                           .ld_scale = 2,
                           .s = m.s,
                           .w = m.w,
                           .w_scale = w_scale,
                           .ld = ld,
                           .n_pos = to,
                           .n_lane = n,
                           .n = a->p->r,
                           .c = out.o,
                           .ldc = j->ldo};
    kern_get()->attn_weights_i16(&mix, hi, m.w, w_scale);
    kern_get()->attn_mix_i16(&mix);
}
