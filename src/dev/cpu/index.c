/* SPDX-License-Identifier: Apache-2.0 */
/* Which positions a token's attention sees, or which blocks each of its heads does, or which
 * entries, that are counted here as positions are. Scores are made in chunks of positions, so that
 * one token's work is shared out too; then the largest are found by their bits, eleven at a time.
 * A score is a chain of its own, heads rising, so it does not depend on the others; a block's is
 * one of its positions'. Products are on what attention's are: bf16 where the CPU has it, else f32.
 */
#include <math.h>
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"

#define CHUNK 512 /* positions of a unit of work: whole blocks */
#define PIECE 64  /* of these that are scored at a time */
#define BITS 11   /* of a score that are looked at at a time, at most */
#define WIDE (PIECE + 16) /* of a row of f32 keys */

struct index_job {
    const struct dev_step *b;
    const struct dev_index *p;
    const struct cpu_kv *kv;
    const int32_t *tok; /* those under way */
    int n_chunk;
    int n_list, ld; /* choices of a token, and from the scores of one to the next */
};

/* Scratch of a worker: queries, keys of a piece, and their products. */
struct piece {
    uint16_t *q, *k; /* bf16: [n_head][pairs][2], [PIECE / 16 and 1][pairs][16][2] */
    float *wide, *s; /* f32 keys [d][WIDE]; [n_head][PIECE] */
};

static size_t carve(float *mem, int n_head, int d, struct piece *m)
{
    size_t pair = (size_t)(d + 1) / 2, head = (size_t)n_head;
    size_t size[] = {head * PIECE, (size_t)d * WIDE, head * pair, WIDE * pair}, at[5] = {0};
    for (int i = 0; i < 4; i++)
        at[i + 1] = at[i] + size_round(size[i], 16);
    if (mem)
        *m = (struct piece){.s = mem,
                            .wide = mem + at[1],
                            .q = (uint16_t *)(void *)(mem + at[2]),
                            .k = (uint16_t *)(void *)(mem + at[3])};
    return at[4];
}

size_t dev_cpu_index_floats(const struct dev_shapes *p)
{
    return p->index_d ? carve(NULL, p->index_heads, p->index_d, NULL) : 0;
}

/* A batch of tokens: one for each worker. */
static int batch(const struct cpu *c)
{
    return BASE_MAX(c->n_worker, 4);
}

static int64_t score_ld(const struct cpu *c)
{
    return (c->most.index_score + CHUNK - 1) / CHUNK * CHUNK;
}

sl_status dev_cpu_index_reserve(struct cpu *c, sl_err *err)
{
    if (!c->most.index_d || c->most.max.n_ctx <= c->most.index_top) return SL_OK;
    SL_TRY(dev_cpu_scratch(c, (size_t)c->most.max.n_tok, sizeof *c->index.tok, &c->index.tok, err));
    return dev_cpu_scratch(c, (size_t)batch(c) * (size_t)score_ld(c), sizeof *c->index.score,
                           &c->index.score, err);
}

/* ---- scores ---- */

/* Of token t, as bf16, where that is what they are multiplied on. */
static void put_queries(const struct index_job *j, int t, const struct piece *m)
{
    int d = j->p->d, ld = d + d % 2;
    const float *q = j->p->q + (int64_t)t * j->p->n_head * d;
    for (int h = 0; h < j->p->n_head; h++) {
        m->q[(h + 1) * ld - 1] = 0;
        kern_get()->attn_rows_bf16(q + h * d, 0, 1, d, m->q + h * ld, 0);
    }
}

/* A group of 16 keys as bf16. */
static void keys16(const struct cpu_kv *kv, const uint8_t *keys, int d, uint16_t *to)
{
    const struct kern *kn = kern_get();
    if (kv->t == VEC_KV_BF16)
        memcpy(to, keys, 64 * (size_t)((d + 1) / 2));
    else
        (kv->t == VEC_KV_Q8 ? kn->attn_q8_keys : kn->attn_f16_keys)(keys, d, to);
}

/* The keys of n entries from number p on side by side: lanes of m->k, or of m->wide. Those of a
 * group are overwritten as far as they are of no entry. */
static void gather(const struct cpu *c, const struct index_job *j, int seq, int p, int n,
                   const struct piece *m)
{
    const struct cpu_kv *kv = j->kv;
    const struct cpu_kv_part *part = dev_cpu_part(kv, j->p->layer);
    int d = j->p->d, pair = (d + 1) / 2;
    bool bf16 = dev_cpu_bf16_attn(c, kv->t);
    uint16_t *one = m->k + (size_t)PIECE * 2 * (size_t)pair;
    for (int i = 0, k; i < n; i += k) {
        struct cpu_entry e = dev_cpu_entry_at(kv, j->p->layer, j->b, seq, p + i);
        const uint8_t *keys = e.page + part->index_at + (size_t)(e.row / 16) * e.index_bytes;
        k = BASE_MIN(BASE_MIN(n - i, part->n_row - e.row), 16);
        if (!bf16) {
            c->k.get_k(kv->t, keys, d, m->wide + i, WIDE);
            continue;
        }
        keys16(kv, keys, d, one);
        for (int l = 0; l < k; l++)
            for (int x = 0; x < pair; x++)
                memcpy(m->k + ((i + l) / 16 * pair + x) * 32 + (i + l) % 16 * 2,
                       one + x * 32 + l * 2, 2 * sizeof *one);
    }
}

static void products16(const struct index_job *j, const uint8_t *keys, int n_vec,
                       const struct piece *m)
{
    const struct cpu_kv *kv = j->kv;
    int d = j->p->d, pair = (d + 1) / 2;
    struct attn_mm mm = {.a = m->q,
                         .lda = 2 * pair,
                         .lda_k = 2,
                         .b = (const uint16_t *)(const void *)keys,
                         .ldb = 32,
                         .ldb_v = (int64_t)kv->index_bytes / 2,
                         .c = m->s,
                         .ldc = PIECE,
                         .n_row = j->p->n_head,
                         .n_vec = n_vec,
                         .n_k = pair};
    if (!keys || kv->t != VEC_KV_BF16) {
        for (int g = 0; g < n_vec && keys; g++)
            keys16(kv, keys + (size_t)g * kv->index_bytes, d, m->k + 32 * g * pair);
        mm.b = m->k;
        mm.ldb_v = 32 * pair;
    }
    kern_get()->attn_dot_bf16(&mm);
}

/* keys NULL, here as there: they are gathered. */
static void products(const struct cpu *c, const struct index_job *j, int t, const uint8_t *keys,
                     int n_vec, const struct piece *m)
{
    const struct cpu_kv *kv = j->kv;
    int d = j->p->d;
    for (int g = 0; g < n_vec && keys; g++)
        c->k.get_k(kv->t, keys + (size_t)g * kv->index_bytes, d, m->wide + 16 * g, WIDE);
    c->k.gemm_f32(j->p->q + (int64_t)t * j->p->n_head * d, d, 1, m->wide, WIDE, m->s, PIECE,
                  j->p->n_head, n_vec, d, 0);
}

/* Positions that are scored, of a token at position pos: those in blocks that it sees anyway are
 * not. */
static int n_scored(const struct dev_index *p, int pos)
{
    if (p->every) return dev_index_seen(p, pos);
    return p->n_local ? (pos / p->blk + 1 - p->n_local) * p->blk : pos + 1;
}

/* The largest of n scores and of most; 0 is one number. */
static float largest(const float *s, int n, float most)
{
    for (int i = 0; i < n; i++) {
        float x = s[i] + 0.0f;
        most = x > most ? x : most;
    }
    return most;
}

/* Scores s of n positions from p on, head by head, go into those of their blocks. */
static void put_blocks(const struct index_job *j, const float *s, int p, int n, float *score)
{
    int blk = j->p->blk;
    for (int h = 0; h < j->p->n_head; h++)
        for (int i = 0, k; i < n; i += k) {
            float *to = score + (int64_t)h * j->ld + (p + i) / blk;
            bool first = (p + i) % blk == 0;
            k = BASE_MIN(n - i, blk - (p + i) % blk);
            *to = largest(s + h * PIECE + i, k, first ? -INFINITY : *to);
        }
}

/* Chunk at % n_chunk of token at / n_chunk. */
static void score_chunk(struct cpu *c, void *arg, int at, int worker)
{
    const struct index_job *j = arg;
    const struct cpu_kv *kv = j->kv;
    int i = at / j->n_chunk, t = j->tok[i], p = at % j->n_chunk * CHUNK, n;
    int end = BASE_MIN(p + CHUNK, n_scored(j->p, j->b->pos[t]));
    bool bf16 = dev_cpu_bf16_attn(c, kv->t);
    const float *w = j->p->w ? j->p->w + (int64_t)t * j->p->n_head : NULL;
    float *score = c->index.score + i * score_ld(c);
    struct piece m = {0};
    (void)carve(c->scratch[worker].attn, j->p->n_head, j->p->d, &m);
    if (bf16 && p < end) put_queries(j, t, &m);
    for (; p < end; p += n) {
        int in = p % kv->blk_tok;
        const uint8_t *keys = NULL;
        n = BASE_MIN(PIECE, end - p);
        if (!j->p->every) n = BASE_MIN(n, kv->blk_tok - in);
        int n_vec = (n + 15) / 16;
        if (j->p->every)
            gather(c, j, c->seq_of[t], p, n, &m);
        else
            keys = dev_cpu_page_of(kv, j->p->layer, j->b, c->seq_of[t], p) +
                   dev_cpu_index_at(kv, in);
        if (bf16)
            products16(j, keys, n_vec, &m);
        else
            products(c, j, t, keys, n_vec, &m);
        if (j->p->blk)
            put_blocks(j, m.s, p, n, score);
        else
            c->k.relu_sum_f32(score + p, m.s, PIECE, w, j->p->n_head, n_vec);
    }
}

/* ---- the largest ---- */

/* Rises with x. */
static uint32_t rank_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The rank of the k-th largest of n scores; *n_equal: how many of that rank are among the k. */
static uint32_t kth(const float *x, int n, int k, int *n_equal)
{
    int32_t count[1 << BITS];
    uint32_t is = 0, known = 0;
    for (int shift = 32; shift > 0;) {
        int bits = BASE_MIN(BITS, shift), v = 1 << bits;
        shift -= bits;
        memset(count, 0, sizeof count);
        for (int i = 0; i < n; i++) {
            uint32_t r = rank_of(x[i]);
            if ((r & known) == is) count[r >> shift & (uint32_t)(v - 1)]++;
        }
        while (count[--v] < k)
            k -= count[v];
        is |= (uint32_t)v << shift;
        known |= (uint32_t)((1 << bits) - 1) << shift;
    }
    *n_equal = k;
    return is;
}

/* Choice at % n_list of token at / n_list. */
static void choose(struct cpu *c, void *arg, int at, int worker)
{
    const struct index_job *j = arg;
    int i = at / j->n_list, h = at % j->n_list, t = j->tok[i];
    int n = dev_index_seen(j->p, j->b->pos[t]), top = j->p->top, n_equal;
    float *x = c->index.score + i * score_ld(c) + (int64_t)h * j->ld;
    int32_t *out = j->p->pick + ((int64_t)t * j->n_list + h) * top;
    (void)worker;
    for (int k = n - j->p->n_local; k < n; k++)
        x[k] = INFINITY;
    uint32_t least = kth(x, n, top, &n_equal);
    for (int p = 0; p < n; p++) {
        uint32_t r = rank_of(x[p]);
        if (r < least || (r == least && n_equal-- <= 0)) continue;
        *out++ = p;
    }
}

/* ---- both ---- */

/* Reads of keys and products, for dev_op_times. */
static void count(struct cpu *c, const struct index_job *j, int n)
{
    struct dev_cost *cost = &c->head.cost;
    for (int i = 0; i < n && c->head.timing; i++) {
        double n_pos = n_scored(j->p, j->b->pos[j->tok[i]]);
        size_t group = vec_k_group_bytes(j->kv->t, j->p->d);
        cost->bytes += n_pos * (double)group / 16;
        cost->flops += 2 * n_pos * j->p->n_head * j->p->d;
    }
}

void dev_cpu_index(dev *d, const struct dev_step *b, const struct dev_index *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct index_job j = {b, p, dev_cpu_kv_of(p->kv, p->group), c->index.tok, 0, 1, 0};
    int n = 0, all = p->top * BASE_MAX(p->blk, 1);
    ASSERT((p->every ? dev_cpu_part(j.kv, p->layer)->d_i : j.kv->s.d_i) == p->d &&
           (!p->every || dev_cpu_part(j.kv, p->layer)->every == p->every));
    if (p->blk) {
        j.n_list = p->n_head;
        j.ld = (c->most.max.n_ctx + p->blk - 1) / p->blk;
    }
    for (int t = 0; t < b->n_tok; t++)
        if (p->every ? dev_index_seen(p, b->pos[t]) > p->top : b->pos[t] >= all)
            c->index.tok[n++] = t;
    count(c, &j, n);
    for (int m; n > 0; n -= m, j.tok += m) {
        int most = 0;
        m = BASE_MIN(n, batch(c));
        for (int i = 0; i < m; i++)
            most = BASE_MAX(most, n_scored(p, b->pos[j.tok[i]]));
        j.n_chunk = (most + CHUNK - 1) / CHUNK;
        dev_cpu_for_rows(c, m * j.n_chunk, 0.03 * CHUNK * p->n_head * p->d, score_chunk, &j);
        dev_cpu_for_rows(c, m * j.n_list, 2.0 * most / BASE_MAX(p->blk, 1), choose, &j);
    }
}
