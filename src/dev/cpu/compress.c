/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of windows of tokens. What they are made of lies in the cache, of every token until no
 * open window has it, so an entry does not depend on how its tokens were divided among steps: all
 * of a step's are stored first, and an entry is made of what is stored. Channels are lanes; their
 * sums are plain products and sums in rising order of tokens. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"

#define PIECE 64 /* channels at a time */

struct compress_job {
    const struct dev_step *b;
    const struct dev_compress *p;
    const struct cpu_kv *raw, *kv;
    int wide; /* values of c, and of z */
};

static float *raw_of(const struct compress_job *j, int seq, int pos)
{
    uint8_t *page = dev_cpu_page_of(j->raw, j->p->raw_layer, j->b, seq, pos);
    const struct cpu_kv_part *part = dev_cpu_part(j->raw, j->p->raw_layer);
    float *row = (float *)(void *)(page + part->raw_at);
    return row + (int64_t)(pos % j->raw->blk_tok) * part->d_raw + j->p->raw_at;
}

static void put_raw(struct cpu *c, void *arg, int t, int worker)
{
    const struct compress_job *j = arg;
    int pos = j->b->pos[t], n = j->wide;
    float *to = raw_of(j, c->seq_of[t], pos);
    (void)worker;
    memcpy(to, j->p->c + (int64_t)t * n, sizeof(float) * (size_t)n);
    memcpy(to + n, j->p->z + (int64_t)t * n, sizeof(float) * (size_t)n);
    c->k.add_f32(to + n, j->p->ape + (int64_t)(pos % j->p->every) * n, n);
}

/* Where the tokens of an entry have their c, of the channels that go in; how many. */
static int rows_of(const struct compress_job *j, int seq, int w, const float **row)
{
    const struct dev_compress *p = j->p;
    int n = 0, first = p->overlap ? BASE_MAX(w - 1, 0) * p->every : w * p->every;
    for (int pos = first; pos < (w + 1) * p->every; pos++)
        row[n++] = raw_of(j, seq, pos) + (p->overlap && pos >= w * p->every ? p->d : 0);
    return n;
}

/* Scratch: weights of a piece, the entry, its angles. */
struct entry_mem {
    float *s, *y, *cs;
};

static size_t carve(float *mem, int d, int n_rot, struct entry_mem *m)
{
    size_t s = (size_t)DEV_ENTRY_EVERY * PIECE, y = size_round((size_t)d, 16);
    if (mem) *m = (struct entry_mem){mem, mem + s, mem + s + y};
    return s + y + size_round((size_t)n_rot, 16);
}

size_t dev_cpu_compress_floats(const struct dev_shapes *p)
{
    return p->entry_d ? carve(NULL, p->entry_d, p->n_rot, NULL) : 0;
}

/* Channels [k0, k0 + n) of y, of n_row tokens. */
static void sum_piece(struct cpu *c, const struct compress_job *j, const float *const *row,
                      int n_row, const int at[2], const struct entry_mem *m)
{
    int32_t lo[PIECE] = {0}, hi[PIECE];
    float max[PIECE], sum[PIECE], *y = m->y + at[0];
    int n = at[1];
    for (int i = 0; i < PIECE; i++)
        hi[i] = n_row;
    for (int r = 0; r < n_row; r++) {
        memcpy(m->s + (int64_t)r * PIECE, row[r] + j->wide + at[0], sizeof(float) * (size_t)n);
        memset(m->s + (int64_t)r * PIECE + n, 0, sizeof(float) * (size_t)(PIECE - n));
    }
    c->k.span_col_f32(m->s, PIECE, n_row, (n + 15) / 16, lo, hi, max, sum);
    memset(y, 0, sizeof(float) * (size_t)n);
    for (int r = 0; r < n_row; r++)
        for (int i = 0; i < n; i++)
            y[i] += m->s[(int64_t)r * PIECE + i] * row[r][at[0] + i];
    for (int i = 0; i < n; i++)
        y[i] /= sum[i];
}

static void rotate(struct cpu *c, const struct dev_compress *p, int pos, const struct entry_mem *m)
{
    int half = p->n_rot / 2;
    for (int i = 0; i < half; i++) {
        double angle = (double)((float)pos * p->freq[i]); /* as of dev_rope */
        m->cs[i] = (float)cos(angle) * p->mscale;
        m->cs[half + i] = (float)sin(angle) * p->mscale;
    }
    dev_cpu_rotate(&c->k, 1, m->y + p->d - p->n_rot, m->cs, p->n_rot);
}

/* The entry whose last token is t, if that is one's. */
static void make(struct cpu *c, void *arg, int t, int worker)
{
    const struct compress_job *j = arg;
    const struct dev_compress *p = j->p;
    int pos = j->b->pos[t], w = pos / p->every, seq = c->seq_of[t];
    const float *row[DEV_ENTRY_EVERY];
    struct entry_mem m = {0};
    if ((pos + 1) % p->every) return;
    (void)carve(c->scratch[worker].attn, p->d, p->n_rot, &m);
    int n = rows_of(j, seq, w, row);
    for (int i = 0; i < p->d; i += PIECE)
        sum_piece(c, j, row, n, (const int[]){i, BASE_MIN(PIECE, p->d - i)}, &m);
    if (p->norm) c->k.rmsnorm_f32(m.y, m.y, p->norm, p->d, p->eps);
    if (p->n_rot) rotate(c, p, w * p->every, &m);
    struct cpu_entry at = dev_cpu_entry_at(j->kv, p->layer, j->b, seq, w);
    if (p->index)
        c->k.put_k(j->kv->t, at.page + dev_cpu_part(j->kv, p->layer)->index_at +
                                 (size_t)(at.row / 16) * at.index_bytes,
                   at.row % 16, m.y, p->d);
    else
        c->k.put_v(j->kv->t, at.page + (size_t)at.row * j->kv->row_bytes, m.y, p->d);
}

void dev_cpu_compress(dev *d, const struct dev_step *b, const struct dev_compress *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct compress_job j = {b, p, dev_cpu_kv_of(p->kv, p->raw_group),
                             dev_cpu_kv_of(p->kv, p->group), p->overlap ? 2 * p->d : p->d};
    const struct cpu_kv_part *raw = dev_cpu_part(j.raw, p->raw_layer),
                             *part = dev_cpu_part(j.kv, p->layer);
    ASSERT(raw->d_raw >= p->raw_at + dev_compress_raw(p->d, p->overlap) &&
           part->every == p->every && (p->index ? part->d_i : j.kv->s.d_k) == p->d &&
           p->d <= c->most.entry_d);
    dev_cpu_for_rows(c, b->n_tok, 0.5 * j.wide, put_raw, &j);
    dev_cpu_for_rows(c, b->n_tok, 2.0 * p->d, make, &j);
}
