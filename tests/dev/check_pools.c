/* SPDX-License-Identifier: Apache-2.0 */
/* An indexer that chooses pools of positions, whose keys are made one, and attention over latents
 * of which it sees those and what is after the last whole one: against double, and the same bits
 * however sequences are cut into steps. What pools are made of lies apart, and is poisoned as soon
 * as its block is full. */
#include "check_attn.h"

#define SEQS 3
struct pools_case {
    dev *d;
    dev_kv *kv;
    enum dev_kv_type type;
    bool coarse; /* queries and weights are rounded */
    int S, len[SEQS], blk_tok, n_blk, ld;
    int H, r, nope, v, n_index, di, every, top, n_mask;
    int rows, keys, raw; /* layers: of group 0, of group 0, of group 1 */
    int32_t *table[2], spare, n_prompt[SEQS];
    int n_gone[SEQS];
    float *row[SEQS], *q[SEQS], *iq[SEQS], *iw[SEQS], *c[SEQS], *z[SEQS], *ape;
    struct weight *wk, *wv;
    const dev_mat *w_kb, *w_vb;
};
/* Of one way of cutting: of each token of a sequence. */
struct results {
    float *y[SEQS];
    int32_t *pick[SEQS];
};

static struct dev_compress compress_of(const struct pools_case *c)
{
    return (struct dev_compress){.kv = c->kv,
                                 .raw_group = 1,
                                 .raw_layer = c->raw,
                                 .layer = c->keys,
                                 .index = true,
                                 .d = c->di,
                                 .every = c->every,
                                 .ape = c->ape};
}

static struct dev_index index_of(const struct pools_case *c)
{
    return (struct dev_index){.kv = c->kv,
                              .layer = c->keys,
                              .n_head = c->n_index,
                              .d = c->di,
                              .top = c->top,
                              .every = c->every};
}

static struct dev_attn_mla attn_of(const struct pools_case *c)
{
    return (struct dev_attn_mla){.kv = c->kv,
                                 .layer = c->rows,
                                 .n_head = c->H,
                                 .r = c->r,
                                 .nope = c->nope,
                                 .v = c->v,
                                 .scale = 0.2f,
                                 .w_kb = c->w_kb,
                                 .w_vb = c->w_vb,
                                 .n_pick = c->top,
                                 .n_mask = c->n_mask,
                                 .every = c->every};
}

static void open_sequences(struct pools_case *c)
{
    int max = 0;
    c->S = rand_int(1, SEQS);
    for (int s = 0; s < c->S; s++) {
        c->len[s] = rand_int(1, 420);
        max = BASE_MAX(max, c->len[s]);
    }
    c->blk_tok = 16 << rand_int(0, 2);
    c->ld = max / c->blk_tok + 1;
    c->n_blk = c->S * c->ld + 2;
    int32_t *perm = get_mem(sizeof *perm * (size_t)c->n_blk);
    for (int i = 0; i < 2; i++) {
        shuffled(perm, c->n_blk);
        c->table[i] = get_mem(sizeof *perm * (size_t)(c->S * c->ld));
        memcpy(c->table[i], perm, sizeof *perm * (size_t)(c->S * c->ld));
        c->spare = perm[c->S * c->ld];
    }
    for (int s = 0; s < c->S; s++) {
        c->row[s] = rand_array((int64_t)c->len[s] * c->r);
        c->q[s] = rand_array((int64_t)c->len[s] * c->H * c->nope);
        c->iq[s] = rand_array((int64_t)c->len[s] * c->n_index * c->di);
        c->iw[s] = rand_array((int64_t)c->len[s] * c->n_index);
        c->c[s] = rand_array((int64_t)c->len[s] * c->di);
        c->z[s] = rand_array((int64_t)c->len[s] * c->di);
        c->n_prompt[s] = rand_int(0, c->len[s]);
    }
    c->ape = rand_array((int64_t)c->every * c->di);
}

static void open_device(struct pools_case *c, int trial)
{
    static const enum dev_acts acts[] = {DEV_ACTS_F32, DEV_ACTS_AUTO};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 1 + trial % 3, .acts = acts[c->coarse]},
                  &c->d, &err_));
    int n = rand_int(1, 2);
    struct dev_kv_shape s = {c->type, c->blk_tok, 2, {{0}}};
    s.group[0] = (struct dev_kv_group){
        DEV_KV_PAGED, 2 * n, c->n_blk, 1, c->r, 0, 0, {{n, 1, 0, 0, false}}};
    s.group[0].part[1] = (struct dev_kv_part){n, c->every, c->di, 0, true};
    s.group[1] = (struct dev_kv_group){DEV_KV_WINDOW, n, c->n_blk, 1, c->r, 0, 0, {{0}}};
    s.group[1].part[0] = (struct dev_kv_part){n, 1, 0, dev_compress_raw(c->di, false), true};
    c->rows = c->raw = n - 1;
    c->keys = n + rand_int(0, n - 1);
    MUST(dev_kv_open(c->d, &s, &c->kv, &err_));
    c->wk = get_mem(sizeof *c->wk * (size_t)c->H);
    c->wv = get_mem(sizeof *c->wv * (size_t)c->H);
    for (int h = 0; h < c->H; h++) {
        c->wk[h] = rand_weight(TENSOR_Q8_0, c->r, c->nope);
        c->wv[h] = rand_weight(TENSOR_F32, c->v, c->r);
    }
    dev_mat *m[2] = {0};
    for (int i = 0; i < 2; i++)
        MUST(dev_mat_load(
            c->d,
            &(struct dev_weights){.first = i ? c->wv : c->wk, .n = c->H, .use = DEV_USE_EXACT},
            &m[i], &err_));
    c->w_kb = m[0], c->w_vb = m[1];
    struct dev_op op[] = {{.kind = DEV_OP_index, .u.index = index_of(c)},
                          {.kind = DEV_OP_compress, .u.compress = compress_of(c)},
                          {.kind = DEV_OP_attn_mla, .u.attn_mla = attn_of(c)}};
    MUST(dev_reserve(c->d, op, 3,
                     &(struct dev_limits){.n_tok = SEQS * 420,
                                          .n_seq = SEQS,
                                          .n_ctx = 420,
                                          .mla_expand_from = trial % 4 < 2 ? 0 : rand_int(0, 60)},
                     &err_));
}

static void open_case(struct pools_case *c, int trial)
{
    c->type = (enum dev_kv_type)(trial % 4);
    c->coarse = trial / 4 % 2;
    c->H = trial % 5 == 1 ? 72 : rand_int(1, 20);
    c->r = 32 * rand_int(1, 3), c->nope = 32, c->v = 8 * rand_int(1, 3);
    c->n_index = rand_int(1, 6);
    c->di = 8 * rand_int(1, 9);
    c->every = trial % 2 ? 4 : 1 << rand_int(0, 4);
    c->top = rand_int(1, trial % 3 ? 12 : 60);
    c->n_mask = rand_int(0, 1) ? 0 : rand_int(0, 300);
    open_sequences(c);
    open_device(c, trial);
}

/* Rows of n values of the step's tokens, out of those of each sequence; back: into them. */
static float *gather(const struct batch *b, float *const *of, int n, float *back)
{
    float *x = back ? back : get_mem(sizeof *x * (size_t)(b->b.n_tok * n + 1));
    for (int t = 0; t < b->b.n_tok; t++) {
        float *own = of[b->seq[t]] + (int64_t)b->b.pos[t] * n, *to = x + (int64_t)t * n;
        memcpy(back ? own : to, back ? to : own, sizeof *x * (size_t)n);
    }
    return x;
}

/* Blocks before that of the next position are nobody's. */
static void slide(struct pools_case *c, const int *pos0)
{
    for (int s = 0; s < c->S; s++)
        for (; c->n_gone[s] < pos0[s] / c->blk_tok; c->n_gone[s]++) {
            int32_t *blk = &c->table[1][s * c->ld + c->n_gone[s]];
            dev_kv_poison(c->d, c->kv, 1, *blk);
            *blk = c->spare;
        }
}

static void step(struct pools_case *c, const int *pos0, const int *n_new, struct results *r)
{
    struct batch b = make_batch(c->S, pos0, n_new, c->blk_tok, c->table[0], c->ld);
    int n = c->H * c->v;
    slide(c, pos0);
    b.b.blk[1] = c->table[1];
    b.b.n_prompt = c->n_prompt;
    dev_step_begin(c->d, c->kv, &b.b);
    float *rows = gather(&b, c->row, c->r, NULL);
    dev_kv_put(c->d, &b.b,
               &(struct dev_kv_put){.kv = c->kv, .layer = c->rows, .k = rows, .ldk = c->r});
    struct dev_compress e = compress_of(c);
    e.c = gather(&b, c->c, c->di, NULL);
    e.z = gather(&b, c->z, c->di, NULL);
    dev_compress(c->d, &b.b, &e);
    struct dev_index x = index_of(c);
    x.q = gather(&b, c->iq, c->n_index * c->di, NULL);
    x.w = gather(&b, c->iw, c->n_index, NULL);
    x.pick = get_mem(sizeof *x.pick * (size_t)(b.b.n_tok * c->top));
    dev_index(c->d, &b.b, &x);
    for (int t = 0; t < b.b.n_tok; t++)
        memcpy(r->pick[b.seq[t]] + (int64_t)b.b.pos[t] * c->top, x.pick + (int64_t)t * c->top,
               sizeof *x.pick * (size_t)c->top);
    struct dev_attn_mla p = attn_of(c);
    p.q = gather(&b, c->q, c->H * c->nope, NULL);
    p.y = get_mem(sizeof *p.y * (size_t)(b.b.n_tok * n));
    p.pick = x.pick;
    dev_attn_mla(c->d, &b.b, &p);
    (void)gather(&b, r->y, n, p.y);
}

/* All of the sequences, in steps of random sizes, or whole. */
static struct results run(struct pools_case *c, bool whole)
{
    struct results r = {0};
    int pos0[SEQS] = {0}, n_new[SEQS], left = 1;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < c->n_blk; i++)
            dev_kv_poison(c->d, c->kv, k, i);
    for (int s = 0; s < c->S; s++) {
        r.y[s] = get_mem(sizeof(float) * (size_t)(c->len[s] * c->H * c->v));
        r.pick[s] = get_mem(sizeof(int32_t) * (size_t)(c->len[s] * c->top));
    }
    while (left) {
        int n = 0, most = rand_int(0, 2) ? 9 : 200;
        left = 0;
        for (int s = 0; s < c->S; s++) {
            int all = c->len[s] - pos0[s], some = rand_int(0, most);
            n_new[s] = whole ? all : BASE_MIN(all, some);
            n += n_new[s];
            left |= n_new[s] < all;
        }
        if (n) step(c, pos0, n_new, &r);
        for (int s = 0; s < c->S; s++)
            pos0[s] += n_new[s];
    }
    return r;
}

/* ---- in double ---- */

/* The key of pool w, e [di]. */
static void entry(const struct pools_case *c, int seq, int w, double *e)
{
    for (int i = 0; i < c->di; i++) {
        double sum = 0, all = 0;
        for (int p = w * c->every; p < (w + 1) * c->every; p++) {
            double z = (double)c->z[seq][p * c->di + i] +
                       (double)c->ape[p % c->every * c->di + i];
            sum += exp(z) * (double)c->c[seq][p * c->di + i];
            all += exp(z);
        }
        e[i] = sum / all;
    }
}

/* What a key is rounded to, in the cache and before. */
static double entry_unit(enum dev_kv_type t)
{
    return t == DEV_KV_BF16 ? 0x1p-8 : t == DEV_KV_F16 ? 0x1p-10 : t == DEV_KV_Q8 ? 0.02 : 4e-6;
}

static double score(const struct pools_case *c, int seq, int pos, int w, double *tol)
{
    double e[128], sum = 0;
    entry(c, seq, w, e);
    *tol = 0;
    for (int h = 0; h < c->n_index; h++) {
        const float *q = c->iq[seq] + ((int64_t)pos * c->n_index + h) * c->di;
        double dot = 0, all = 0, by = (double)c->iw[seq][pos * c->n_index + h];
        for (int i = 0; i < c->di; i++) {
            dot += (double)q[i] * e[i];
            all += fabs((double)q[i]) * (fabs(e[i]) + 1);
        }
        sum += by * fmax(dot, 0);
        *tol += fabs(by) * 2 * (entry_unit(c->type) + (c->coarse ? U16 : 0)) * all;
    }
    return sum;
}

static void check_pick(const struct pools_case *c, int seq, int pos, const int32_t *row)
{
    int n = (pos + 1) / c->every, at = 0;
    double worst = 1e300, best = -1e300, tol;
    g.n_checked++;
    for (int i = 0; i < c->top; i++)
        if (row[i] < 0 || row[i] >= n || (i && row[i] <= row[i - 1])) {
            FAIL("pools: position %d, place %d: pool %d of %d", pos, i, row[i], n);
            return;
        }
    for (int w = 0; w < n; w++) {
        double x = score(c, seq, pos, w, &tol);
        bool in = at < c->top && row[at] == w;
        at += in;
        if (in)
            worst = fmin(worst, x + tol);
        else
            best = fmax(best, x - tol);
    }
    if (best > worst)
        FAIL("pools: position %d: a score of %g left out, %g taken", pos, best, worst);
}

struct head_arg {
    const struct pools_case *c;
    double *k, *v; /* [len][nope], [len][v] */
};

static double key(void *arg, int p, int i)
{
    const struct head_arg *a = arg;
    return a->k[(int64_t)p * a->c->nope + i];
}

static double value(void *arg, int p, int i)
{
    const struct head_arg *a = arg;
    return a->v[(int64_t)p * a->c->v + i];
}

static struct head_arg materialise(const struct pools_case *c, int seq, int h)
{
    const double *wk = weight_numbers(&c->wk[h]), *wv = weight_numbers(&c->wv[h]);
    size_t n = (size_t)c->len[seq];
    struct head_arg a = {c, get_mem(sizeof(double) * n * (size_t)c->nope),
                         get_mem(sizeof(double) * n * (size_t)c->v)};
    memset(a.k, 0, sizeof(double) * n * (size_t)c->nope);
    memset(a.v, 0, sizeof(double) * n * (size_t)c->v);
    for (int p = 0; p < c->len[seq]; p++)
        for (int i = 0; i < c->r; i++) {
            double x = check_stored(c->type, c->row[seq] + (int64_t)p * c->r, c->r, i);
            for (int k = 0; k < c->nope; k++)
                a.k[p * c->nope + k] += wk[i * c->nope + k] * x;
            for (int k = 0; k < c->v; k++)
                a.v[p * c->v + k] += wv[k * c->r + i] * x;
        }
    return a;
}

/* The positions that a token sees, of its row of pools; how many. */
static int seen(const struct pools_case *c, int pos, const int32_t *row, int32_t *out)
{
    int n = 0, whole = (pos + 1) / c->every;
    for (int p = 0; p <= pos; p++) {
        bool in = whole <= c->top || p >= whole * c->every;
        for (int i = 0; i < c->top && !in; i++)
            in = row[i] == p / c->every;
        if (in) out[n++] = p;
    }
    return n;
}

static void check_head(const struct pools_case *c, int seq, const struct results *r)
{
    int h = rand_int(0, c->H - 1);
    struct head_arg a = materialise(c, seq, h);
    int32_t at[420];
    double want[64], tol[64];
    for (int k = 0; k < 12; k++) {
        int pos = rand_int(0, c->len[seq] - 1);
        const int32_t *row = r->pick[seq] + (int64_t)pos * c->top;
        struct query f = {.hi = seen(c, pos, row, at), .pick = at, .d = c->nope, .dv = c->v};
        f.scale = (double)0.2f;
        f.q = c->q[seq] + ((int64_t)pos * c->H + h) * c->nope;
        f.key = key, f.value = value, f.arg = &a;
        check_attend(&f, want, tol);
        for (int i = 0; i < c->v; i++)
            tol[i] = tol[i] * (c->coarse ? 400 : 1) * (4 + c->r / 8.0) +
                     (c->coarse ? 1e-2 / sqrt(f.hi) : 3e-6);
        compare("attn_mla of pools", r->y[seq] + ((int64_t)pos * c->H + h) * c->v, want, tol, c->v);
        bool f16 = c->type == DEV_KV_F32 || c->type == DEV_KV_F16;
        if (f16 && (pos + 1) / c->every > c->top) check_pick(c, seq, pos, row);
    }
}

void check_pools(void)
{
    for (int trial = 0; trial < 30; trial++) {
        struct pools_case c = {0};
        open_case(&c, trial);
        struct results r = run(&c, trial % 3 == 0);
        for (int s = 0; s < c.S; s++)
            check_head(&c, s, &r);
        memset(c.n_gone, 0, sizeof c.n_gone);
        int32_t *perm = get_mem(sizeof *perm * (size_t)c.n_blk);
        shuffled(perm, c.n_blk);
        memcpy(c.table[1], perm, sizeof *perm * (size_t)(c.S * c.ld));
        c.spare = perm[c.S * c.ld];
        struct results again = run(&c, false);
        for (int s = 0; s < c.S; s++)
            same_bits("attn_mla of pools cut otherwise", again.y[s], r.y[s],
                      (int64_t)c.len[s] * c.H * c.v);
        dev_close(c.d);
    }
}
