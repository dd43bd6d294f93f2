/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over rows that are keys and values, entries of windows of tokens, and an indexer that
 * chooses among them: against double, and the same bits however sequences are cut into steps. The
 * cache of what no window sees any more is poisoned. */
#include "check_attn.h"

#define SEQS 3
/* What entries are of: attention that chooses, its index keys, attention that sees all. */
#define KINDS 3
enum { FINE, KEYS, COARSE };

/* What a kind's entries are made of: c, z [len][wide] of each sequence. */
struct made {
    int d, every, wide, overlap;
    float *c[SEQS], *z[SEQS], *ape, *norm;
};
struct ckv_case {
    dev *d;
    dev_kv *kv;
    enum dev_kv_type type;
    bool coarse; /* queries and weights are rounded to bf16 */
    int S, len[SEQS], blk_tok, n_blk, ld, window, keep;
    int H, dk, n_rot, n_index, top;
    int raw[2], at[2], plain; /* layers: of group 1, and of group 0, of fine and coarse; of none */
    int32_t *table[2], spare;
    int n_gone[SEQS];
    float *rows[SEQS], *q[SEQS], *iq[SEQS], *iw[SEQS], *freq, *sink;
    struct made m[KINDS];
};
/* Of one way of cutting: of each token of a sequence, y of three layers, and what was chosen. */
struct results {
    float *y[KINDS][SEQS];
    int32_t *pick[SEQS];
};

static void open_kind(struct ckv_case *c, int kind, int d, int every)
{
    struct made *m = &c->m[kind];
    *m = (struct made){.d = d, .every = every, .overlap = kind != COARSE};
    m->wide = m->overlap ? 2 * d : d;
    m->ape = rand_array((int64_t)every * m->wide);
    m->norm = rand_array(d);
    for (int s = 0; s < c->S; s++) {
        m->c[s] = rand_array((int64_t)c->len[s] * m->wide);
        m->z[s] = rand_array((int64_t)c->len[s] * m->wide);
    }
}

static void open_sequences(struct ckv_case *c)
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
        c->rows[s] = rand_array((int64_t)c->len[s] * c->dk);
        c->q[s] = rand_array((int64_t)c->len[s] * c->H * c->dk);
        c->iq[s] = rand_array((int64_t)c->len[s] * c->n_index * c->m[KEYS].d);
        c->iw[s] = rand_array((int64_t)c->len[s] * c->n_index);
    }
}

static struct dev_compress compress_of(const struct ckv_case *c, int kind)
{
    const struct made *m = &c->m[kind];
    int of = kind == COARSE;
    return (struct dev_compress){.kv = c->kv,
                                 .raw_group = 1,
                                 .raw_layer = c->raw[of],
                                 .raw_at = kind == KEYS ? dev_compress_raw(c->dk, true) : 0,
                                 .group = 0,
                                 .layer = c->at[of],
                                 .index = kind == KEYS,
                                 .overlap = m->overlap,
                                 .d = m->d,
                                 .every = m->every,
                                 .ape = m->ape,
                                 .norm = m->norm,
                                 .eps = 1e-6f,
                                 .n_rot = c->n_rot,
                                 .freq = c->freq,
                                 .mscale = 1.0f};
}

static struct dev_index index_of(const struct ckv_case *c)
{
    return (struct dev_index){.kv = c->kv,
                              .layer = c->at[0],
                              .n_head = c->n_index,
                              .d = c->m[KEYS].d,
                              .top = c->top,
                              .every = c->m[KEYS].every};
}

/* Of layer: FINE, COARSE, or KEYS: the one without entries. */
static struct dev_attn_ckv attn_of(const struct ckv_case *c, int layer)
{
    int of = layer == COARSE;
    struct dev_attn_ckv p = {.kv = c->kv,
                             .group = 1,
                             .layer = layer == KEYS ? c->plain : c->raw[of],
                             .n_head = c->H,
                             .d = c->dk,
                             .scale = 0.3f,
                             .sink = layer == COARSE ? NULL : c->sink,
                             .n_window = c->window};
    if (layer == KEYS) return p;
    p.more_layer = c->at[of];
    p.every = c->m[layer].every;
    p.n_pick = layer == FINE ? c->top : 0;
    return p;
}

static void open_device(struct ckv_case *c, int trial)
{
    static const enum dev_acts acts[] = {DEV_ACTS_F32, DEV_ACTS_AUTO};
    struct made *f = &c->m[FINE], *k = &c->m[KEYS], *o = &c->m[COARSE];
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 1 + trial % 7, .acts = acts[c->coarse]},
                  &c->d, &err_));
    int raw = dev_compress_raw(f->d, true) + dev_compress_raw(k->d, true), n = rand_int(1, 2);
    struct dev_kv_shape s = {c->type, c->blk_tok, 2, {{0}}};
    s.group[0] = (struct dev_kv_group){
        DEV_KV_PAGED, n + 2, c->n_blk, 1,
        c->dk,        0,     0,        {{n, f->every, k->d, 0, 0}, {2, o->every, 0, 0, 0}}};
    s.group[1] = (struct dev_kv_group){
        DEV_KV_WINDOW, n + 3, c->n_blk, 1,
        c->dk,         0,     0,        {{1, 1, 0, 0, 0}, {n, 1, 0, raw, 0}}};
    s.group[1].part[2] = (struct dev_kv_part){2, 1, 0, 2 * o->d, false};
    c->plain = 0;
    c->raw[0] = n, c->raw[1] = 1 + n + rand_int(0, 1);
    c->at[0] = n - 1, c->at[1] = n + rand_int(0, 1);
    MUST(dev_kv_open(c->d, &s, &c->kv, &err_));
    struct dev_op op[8] = {{.kind = DEV_OP_index, .u.index = index_of(c)}};
    for (int i = 0; i < KINDS; i++) {
        op[1 + i] = (struct dev_op){.kind = DEV_OP_compress, .u.compress = compress_of(c, i)};
        op[4 + i] = (struct dev_op){.kind = DEV_OP_attn_ckv, .u.attn_ckv = attn_of(c, i)};
    }
    MUST(dev_reserve(c->d, op, 7,
                     &(struct dev_limits){.n_tok = SEQS * 420, .n_seq = SEQS, .n_ctx = 420},
                     &err_));
}

static void open_case(struct ckv_case *c, int trial)
{
    c->type = (enum dev_kv_type)(trial % 4);
    c->coarse = trial / 4 % 2;
    c->H = trial % 5 == 1 ? 72 : rand_int(1, 20);
    c->n_rot = 2 * rand_int(1, 8);
    c->dk = c->n_rot + rand_int(0, 60);
    c->n_index = rand_int(1, 6);
    c->top = rand_int(1, 40);
    c->window = rand_int(1, 140);
    c->m[KEYS].d = c->n_rot + rand_int(0, 30);
    open_sequences(c);
    int fine = 2 << rand_int(0, 2), coarse = c->blk_tok << rand_int(0, 1);
    if (trial % 2) fine = 4, coarse = 128;
    int di = c->m[KEYS].d;
    open_kind(c, FINE, c->dk, fine);
    open_kind(c, KEYS, di, fine);
    open_kind(c, COARSE, c->dk, coarse);
    c->keep = BASE_MAX(c->window, BASE_MAX(2 * fine, coarse));
    c->freq = get_mem(sizeof *c->freq * (size_t)c->n_rot);
    for (int i = 0; i < c->n_rot / 2; i++)
        c->freq[i] = (float)pow(100.0, -2.0 * i / c->n_rot);
    c->sink = rand_array(c->H);
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

/* What no window sees when these tokens come is nobody's. */
static void slide(struct ckv_case *c, const int *pos0)
{
    for (int s = 0; s < c->S; s++)
        for (; c->n_gone[s] < (pos0[s] - c->keep + 1) / c->blk_tok; c->n_gone[s]++) {
            int32_t *blk = &c->table[1][s * c->ld + c->n_gone[s]];
            dev_kv_poison(c->d, c->kv, 1, *blk);
            *blk = c->spare;
        }
}

static void attend(struct ckv_case *c, const struct batch *b, int layer, const int32_t *pick,
                   struct results *r)
{
    int n = c->H * c->dk;
    struct dev_attn_ckv p = attn_of(c, layer);
    p.q = gather(b, c->q, n, NULL);
    p.y = get_mem(sizeof *p.y * (size_t)(b->b.n_tok * n));
    p.pick = layer == FINE ? pick : NULL;
    dev_attn_ckv(c->d, &b->b, &p);
    (void)gather(b, r->y[layer], n, p.y);
}

static void step(struct ckv_case *c, const int *pos0, const int *n_new, struct results *r)
{
    struct batch b = make_batch(c->S, pos0, n_new, c->blk_tok, c->table[0], c->ld);
    slide(c, pos0);
    b.b.blk[1] = c->table[1];
    dev_step_begin(c->d, c->kv, &b.b);
    float *rows = gather(&b, c->rows, c->dk, NULL);
    const int layer[] = {c->plain, c->raw[0], c->raw[1]};
    for (int i = 0; i < 3; i++)
        dev_kv_put(c->d, &b.b,
                   &(struct dev_kv_put){
                       .kv = c->kv, .group = 1, .layer = layer[i], .k = rows, .ldk = c->dk});
    for (int i = 0; i < KINDS; i++) {
        struct dev_compress p = compress_of(c, i);
        p.c = gather(&b, c->m[i].c, c->m[i].wide, NULL);
        p.z = gather(&b, c->m[i].z, c->m[i].wide, NULL);
        dev_compress(c->d, &b.b, &p);
    }
    struct dev_index x = index_of(c);
    x.q = gather(&b, c->iq, c->n_index * c->m[KEYS].d, NULL);
    x.w = gather(&b, c->iw, c->n_index, NULL);
    x.pick = get_mem(sizeof *x.pick * (size_t)(b.b.n_tok * c->top));
    dev_index(c->d, &b.b, &x);
    for (int t = 0; t < b.b.n_tok; t++)
        memcpy(r->pick[b.seq[t]] + (int64_t)b.b.pos[t] * c->top, x.pick + (int64_t)t * c->top,
               sizeof *x.pick * (size_t)c->top);
    for (int i = 0; i < KINDS; i++)
        attend(c, &b, i, x.pick, r);
}

/* All of the sequences, in steps of random sizes, or whole. */
static struct results run(struct ckv_case *c, bool whole)
{
    struct results r = {0};
    int pos0[SEQS] = {0}, n_new[SEQS], left = 1;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < c->n_blk; i++)
            dev_kv_poison(c->d, c->kv, k, i);
    for (int s = 0; s < c->S; s++) {
        for (int i = 0; i < KINDS; i++)
            r.y[i][s] = get_mem(sizeof(float) * (size_t)(c->len[s] * c->H * c->dk));
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

/* Entry w of a kind, e [d]. */
static void entry(const struct ckv_case *c, int kind, int seq, int w, double *e)
{
    const struct made *m = &c->m[kind];
    int d = m->d, end = (w + 1) * m->every;
    int first = (m->overlap ? BASE_MAX(w - 1, 0) : w) * m->every;
    double square = 0;
    for (int i = 0; i < d; i++) {
        double sum = 0, all = 0;
        for (int p = first; p < end; p++) {
            int at = i + (m->overlap && p >= w * m->every ? d : 0);
            double z = (double)m->z[seq][p * m->wide + at] +
                       (double)m->ape[p % m->every * m->wide + at];
            sum += exp(z) * (double)m->c[seq][p * m->wide + at];
            all += exp(z);
        }
        e[i] = sum / all;
        square += e[i] * e[i];
    }
    for (int i = 0; i < d; i++)
        e[i] *= (double)m->norm[i] / sqrt(square / d + 1e-6);
    double *x = e + d - c->n_rot;
    for (int i = 0; i < c->n_rot / 2; i++, x += 2) {
        double a = (double)((float)(w * m->every) * c->freq[i]), y = x[0];
        x[0] = y * cos(a) - x[1] * sin(a);
        x[1] = x[1] * cos(a) + y * sin(a);
    }
}

struct seen_arg {
    const struct ckv_case *c;
    int seq, pos0, n_pos;
    const double *entry; /* [][dk] those that are seen */
};

static double value(void *arg, int p, int i)
{
    const struct seen_arg *a = arg;
    const struct ckv_case *c = a->c;
    if (p >= a->n_pos) return a->entry[(int64_t)(p - a->n_pos) * c->dk + i];
    return check_stored(c->type, c->rows[a->seq] + (int64_t)(a->pos0 + p) * c->dk, c->dk, i);
}

/* What an entry is rounded to, in the cache and before. */
static double entry_unit(enum dev_kv_type t)
{
    return t == DEV_KV_BF16 ? 0x1p-8 : t == DEV_KV_F16 ? 0x1p-10 : t == DEV_KV_Q8 ? 0.02 : 4e-6;
}

static void check_token(const struct ckv_case *c, int layer, int seq, int pos,
                        const struct results *r)
{
    int n = c->H * c->dk, n_e = layer == KEYS ? 0 : (pos + 1) / c->m[layer].every;
    const int32_t *pick = NULL;
    if (layer == FINE && n_e > c->top) {
        pick = r->pick[seq] + (int64_t)pos * c->top;
        n_e = c->top;
    }
    double *e = get_mem(sizeof *e * (size_t)(n_e * c->dk + 1));
    for (int i = 0; i < n_e; i++)
        entry(c, layer, seq, pick ? pick[i] : i, e + (int64_t)i * c->dk);
    struct seen_arg a = {c, seq, BASE_MAX(pos + 1 - c->window, 0), 0, e};
    a.n_pos = pos + 1 - a.pos0;
    double y[128], tol[128];
    int h = rand_int(0, c->H - 1);
    struct query f = {.hi = a.n_pos + n_e, .d = c->dk, .dv = c->dk, .scale = (double)0.3f};
    f.u16 = BASE_MAX(n_e ? entry_unit(c->type) : 0, c->coarse ? U16 : 0);
    f.q = c->q[seq] + (int64_t)pos * n + (int64_t)h * c->dk;
    f.sink = layer == COARSE ? NULL : c->sink + h;
    f.key = f.value = value;
    f.arg = &a;
    check_attend(&f, y, tol);
    for (int i = 0; i < c->dk; i++) /* an entry's error is not its own value's: the row's */
        if (n_e) tol[i] += 4 * entry_unit(c->type);
    compare("attn_ckv", r->y[layer][seq] + (int64_t)pos * n + (int64_t)h * c->dk, y, tol, c->dk);
}

/* Score of entry w for a token. */
static double score(const struct ckv_case *c, int seq, int pos, int w, double *tol)
{
    int d = c->m[KEYS].d;
    double e[128], sum = 0;
    entry(c, KEYS, seq, w, e);
    *tol = 0;
    for (int h = 0; h < c->n_index; h++) {
        const float *q = c->iq[seq] + ((int64_t)pos * c->n_index + h) * d;
        double dot = 0, all = 0, by = (double)c->iw[seq][pos * c->n_index + h];
        for (int i = 0; i < d; i++) {
            dot += (double)q[i] * e[i];
            all += fabs((double)q[i]) * (fabs(e[i]) + 1);
        }
        sum += by * fmax(dot, 0);
        *tol += fabs(by) * 2 * (entry_unit(c->type) + (c->coarse ? U16 : 0)) * all;
    }
    return sum;
}

static void check_pick(const struct ckv_case *c, int seq, int pos, const int32_t *row)
{
    int n = (pos + 1) / c->m[KEYS].every, at = 0;
    double worst = 1e300, best = -1e300, tol;
    g.n_checked++;
    if (n <= c->top) return;
    for (int i = 0; i < c->top; i++)
        if (row[i] < 0 || row[i] >= n || (i && row[i] <= row[i - 1])) {
            FAIL("index: position %d, place %d: entry %d of %d", pos, i, row[i], n);
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
        FAIL("index: position %d: a score of %g left out, %g taken", pos, best, worst);
}

void check_ckv(void)
{
    for (int trial = 0; trial < 30; trial++) {
        struct ckv_case c = {0};
        open_case(&c, trial);
        struct results r = run(&c, trial % 3 == 0);
        for (int k = 0; k < 40; k++) {
            int s = rand_int(0, c.S - 1), pos = rand_int(0, c.len[s] - 1);
            if (c.type == DEV_KV_F32 || c.type == DEV_KV_F16)
                check_pick(&c, s, pos, r.pick[s] + (int64_t)pos * c.top);
            for (int i = 0; i < KINDS; i++)
                check_token(&c, i, s, pos, &r);
        }
        memset(c.n_gone, 0, sizeof c.n_gone);
        int32_t *perm = get_mem(sizeof *perm * (size_t)c.n_blk);
        shuffled(perm, c.n_blk);
        memcpy(c.table[1], perm, sizeof *perm * (size_t)(c.S * c.ld));
        c.spare = perm[c.S * c.ld];
        struct results again = run(&c, false);
        for (int s = 0; s < c.S; s++)
            for (int i = 0; i < KINDS; i++)
                same_bits("attn_ckv cut otherwise", again.y[i][s], r.y[i][s],
                          (int64_t)c.len[s] * c.H * c.dk);
        dev_close(c.d);
    }
}
