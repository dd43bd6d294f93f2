/* SPDX-License-Identifier: Apache-2.0 */
/* Lightning indexers, and attention to what they choose: positions over latents, blocks of them
 * with keys and values per head. */
#include "check_attn.h"

/* ---- an indexer ---- */

struct index_case {
    struct scene s;
    dev *d;
    dev_kv *kv;
    enum dev_kv_type type;
    int coarse; /* queries are rounded to bf16 */
    struct dev_index p;
    struct dev_attn_mla op;
    struct weight *wk, *wv;
    float *q, *w; /* of p */
    int32_t n_prompt[4];
};

static bool sees_some(const struct index_case *c, int t)
{
    return c->s.b.b.pos[t] >= c->p.top;
}

/* The score of position pos for token t, and how far off a computed one may be; *zero: every head
 * adds nothing, however it is rounded. */
static double index_score(const struct index_case *c, int t, int pos, double *tol, bool *zero)
{
    int n = c->p.n_head, d = c->p.d;
    const float *k = c->s.x[c->s.b.seq[t]] + pos * d;
    double sum = 0, all = 0;
    *tol = 0;
    *zero = true;
    for (int h = 0; h < n; h++) {
        double dot = 0, size = 0, w = (double)c->w[t * n + h];
        for (int i = 0; i < d; i++) {
            double x = (double)c->q[(t * n + h) * d + i] * check_stored(c->type, k, d, i);
            dot += x;
            size += fabs(x);
        }
        double err = ((d + 4) * U + (c->coarse ? 2 * U16 : 0)) * size;
        *zero &= dot < -err;
        *tol += fabs(w) * err;
        sum += w * fmax(dot, 0);
        all += fabs(w) * fmax(dot, 0);
    }
    *tol += (n + 2) * U * all;
    return sum;
}

/* Is row right? Its positions rise, no other one's score is surely larger, and of those that are
 * surely equal, which are zeros, the lower ones are there. */
static void check_row(const struct index_case *c, int t, const int32_t *row)
{
    int n = c->s.b.b.pos[t] + 1, top = c->p.top, at = 0, last_zero = -1;
    double worst = 1e300, best = -1e300, tol;
    bool zero;
    g.n_checked++;
    for (int i = 0; i < top; i++)
        if (row[i] < 0 || row[i] >= n || (i && row[i] <= row[i - 1])) {
            FAIL("index: token %d, place %d: position %d of %d", t, i, row[i], n);
            return;
        }
    for (int pos = 0; pos < n; pos++) {
        double x = index_score(c, t, pos, &tol, &zero);
        bool in = at < top && row[at] == pos;
        at += in;
        if (in) {
            worst = fmin(worst, x + tol);
            if (zero && last_zero >= 0)
                FAIL("index: token %d sees the zero at %d, not that at %d", t, pos, last_zero);
        } else {
            best = fmax(best, x - tol);
            if (zero) last_zero = pos;
        }
    }
    if (best > worst) FAIL("index: token %d: a score of %g is left out, %g taken", t, best, worst);
}

static void open_index(struct index_case *c, int trial)
{
    static const enum dev_acts acts[] = {DEV_ACTS_F32, DEV_ACTS_AUTO};
    struct dev_attn_mla *p = &c->op;
    struct dev_index *x = &c->p;
    int d_i = 8 * rand_int(1, 9), w = 0;
    *p = (struct dev_attn_mla){.layer = 1, .n_head = trial == 1 ? 72 : rand_int(1, 20)};
    p->r = 32 * rand_int(1, 3), p->rope = 8 * rand_int(1, 3), p->nope = 32, p->v = 8;
    p->scale = 0.2f;
    w = p->r + p->rope;
    *x = (struct dev_index){.layer = 1, .n_head = rand_int(1, 3) == 1 ? 64 : rand_int(1, 6)};
    x->d = d_i, x->top = rand_int(1, trial % 3 ? 30 : 300);
    c->type = (enum dev_kv_type)(trial % 4);
    c->coarse = trial / 4 % 2;
    c->s = check_scene(w, 0, trial % 3 ? 90 : 1300);
    check_scene_index(&c->s, d_i);
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 1 + trial % 3, .acts = acts[c->coarse]},
                  &c->d, &err_));
    MUST(dev_kv_open(
        c->d,
        &(struct dev_kv_shape){
            c->type, c->s.blk_tok, 1, {{0, LAYERS, c->s.n_blk, 1, w, 0, d_i, {{0}}}}},
        &c->kv, &err_));
    p->kv = x->kv = c->kv;
    c->wk = get_mem(sizeof *c->wk * (size_t)p->n_head);
    c->wv = get_mem(sizeof *c->wv * (size_t)p->n_head);
    for (int h = 0; h < p->n_head; h++) {
        c->wk[h] = rand_weight(TENSOR_Q8_0, p->r, p->nope);
        c->wv[h] = rand_weight(TENSOR_F32, p->v, p->r);
    }
    dev_mat *m[2] = {0};
    for (int i = 0; i < 2; i++)
        MUST(dev_mat_load(
            c->d,
            &(struct dev_weights){.first = i ? c->wv : c->wk, .n = p->n_head, .use = DEV_USE_EXACT},
            &m[i], &err_));
    p->w_kb = m[0], p->w_vb = m[1];
    struct dev_op own[2] = {{.kind = DEV_OP_attn_mla, .u.attn_mla = *p},
                            {.kind = DEV_OP_index, .u.index = *x}};
    MUST(dev_reserve(c->d, own, 2,
                     &(struct dev_limits){.n_tok = 5200,
                                          .n_seq = 4,
                                          .n_ctx = 1300,
                                          .mla_expand_from = trial % 4 < 2 ? 0 : rand_int(0, 60)},
                     &err_));
    check_fill(c->d, c->kv, &c->s, w, 0);
}

/* A few tokens by themselves choose and see the same. */
static void check_alone(const struct index_case *c)
{
    int H = c->op.n_head, qd = c->op.nope + c->op.rope, top = c->p.top, v = c->op.v;
    for (int k = 0; k < 5; k++) {
        int t = rand_int(0, c->s.T - 1), q = c->s.b.seq[t], pos = c->s.b.b.pos[t], one = 1;
        struct batch b = make_batch(1, &pos, &one, c->s.blk_tok, c->s.table + q * c->s.ld, c->s.ld);
        struct dev_index x = c->p;
        struct dev_attn_mla p = c->op;
        int32_t *pick = get_mem(sizeof *pick * (size_t)top);
        if (!sees_some(c, t)) continue;
        x.q += t * x.n_head * x.d, x.w += t * x.n_head, x.pick = pick;
        p.q += t * H * qd, p.y = get_mem(sizeof *p.y * (size_t)(H * v)), p.pick = pick;
        b.b.n_prompt = c->n_prompt + q;
        dev_step_begin(c->d, c->kv, &b.b);
        dev_index(c->d, &b.b, &x);
        dev_attn_mla(c->d, &b.b, &p);
        g.n_checked++;
        if (memcmp(pick, c->p.pick + t * top, sizeof *pick * (size_t)top) != 0)
            FAIL("index: token %d chooses otherwise by itself", t);
        same_bits("attn_mla of a token alone", p.y, c->op.y + t * H * v, (int64_t)H * v);
    }
}

void check_index(void)
{
    for (int trial = 0; trial < 40; trial++) {
        struct index_case c = {0};
        open_index(&c, trial);
        int H = c.op.n_head, qd = c.op.nope + c.op.rope, T = c.s.T, top = c.p.top;
        size_t n_pick = (size_t)(T * top);
        c.p.q = c.q = rand_array((int64_t)T * c.p.n_head * c.p.d);
        c.p.w = c.w = rand_array((int64_t)T * c.p.n_head);
        c.op.q = rand_array((int64_t)T * H * qd);
        c.op.y = get_mem(sizeof(float) * (size_t)(T * H * c.op.v));
        c.op.pick = c.p.pick = get_mem(sizeof(int32_t) * n_pick);
        c.op.n_pick = top;
        c.op.n_mask = trial % 2 ? 0 : rand_int(0, 3 * top);
        memset(c.p.pick, 0xf9, sizeof(int32_t) * n_pick);
        for (int i = 0; i < c.s.S; i++)
            c.n_prompt[i] = rand_int(0, c.s.len[i]);
        c.s.b.b.n_prompt = c.n_prompt;
        dev_step_begin(c.d, c.kv, &c.s.b.b);
        dev_index(c.d, &c.s.b.b, &c.p);
        dev_attn_mla(c.d, &c.s.b.b, &c.op);
        for (int t = 0; t < T; t += 1 + T / 40) {
            if (sees_some(&c, t))
                check_row(&c, t, c.p.pick + t * top);
            else if (c.p.pick[t * top] != (int32_t)0xf9f9f9f9)
                FAIL("index: token %d sees all, and has a row", t);
        }
        for (int h = 0; h<H; h += H> 6 ? rand_int(1, 8) : 1) {
            struct mla_arg a = {&c.s, 0,    c.op.r, c.op.rope, c.op.nope, c.op.v,    NULL,
                                NULL, NULL, c.type, NULL,      NULL,      c.op.pick, c.op.n_pick};
            a.wk = weight_numbers(&c.wk[h]);
            a.wv = weight_numbers(&c.wv[h]);
            check_mla_head(a, c.op.q + h * qd, c.op.y + h * c.op.v, H, c.op.scale, c.coarse);
        }
        check_alone(&c);
        dev_close(c.d);
    }
}

/* ---- an indexer of blocks ---- */

struct blocks_case {
    struct scene s;
    dev *d;
    dev_kv *kv;
    enum dev_kv_type type;
    int coarse, C, G, dk;
    struct dev_index p;
    struct dev_attn op;
};

static bool chooses(const struct blocks_case *c, int t)
{
    return c->s.b.b.pos[t] >= c->p.top * c->p.blk;
}

/* The score of block i for head h of token t, and how far off a computed one may be. */
static double block_score(const struct blocks_case *c, int t, int h, int i, double *tol)
{
    int d = c->p.d, end = BASE_MIN((i + 1) * c->p.blk, c->s.b.b.pos[t] + 1);
    double best = -1e300;
    *tol = 0;
    for (int pos = i * c->p.blk; pos < end; pos++) {
        const float *k = c->s.x[c->s.b.seq[t]] + pos * d;
        double dot = 0, size = 0;
        for (int j = 0; j < d; j++) {
            double x = (double)c->p.q[(t * c->C + h) * d + j] * check_stored(c->type, k, d, j);
            dot += x;
            size += fabs(x);
        }
        best = fmax(best, dot);
        *tol = fmax(*tol, ((d + 4) * U + (c->coarse ? 2 * U16 : 0)) * size);
    }
    return best;
}

/* Tokens whose queries are zeros, of either sign: to them all blocks are the same. */
static bool has_zeros(int t)
{
    return t % 3 == 1;
}

/* Do the blocks of row rise, are the last ones there, is no score left out that is surely larger
 * than one that is taken, and are the first ones there of the same? */
static void check_blocks_row(const struct blocks_case *c, int t, int h, const int32_t *row)
{
    int n = c->s.b.b.pos[t] / c->p.blk + 1, at = 0;
    double worst = 1e300, best = -1e300, tol;
    g.n_checked++;
    for (int i = 0; i < c->p.top; i++)
        if (row[i] < 0 || row[i] >= n || (i && row[i] <= row[i - 1])) {
            FAIL("blocks: token %d, place %d: block %d of %d", t, i, row[i], n);
            return;
        }
    for (int i = 0; i < n; i++) {
        bool in = at < c->p.top && row[at] == i, last = i >= n - c->p.n_local;
        double x = block_score(c, t, h, i, &tol);
        at += in;
        if (last && !in) FAIL("blocks: token %d does not see block %d of %d", t, i, n);
        if (in && !last) worst = fmin(worst, x + tol);
        if (!in) best = fmax(best, x - tol);
    }
    if (best > worst) FAIL("blocks: token %d: a score of %g is left out, %g taken", t, best, worst);
    for (int i = 0; i < c->p.top - c->p.n_local && has_zeros(t); i++)
        if (row[i] != i) FAIL("blocks: token %d, place %d: %d of equal ones", t, i, row[i]);
}

static void open_blocks(struct blocks_case *c, int trial)
{
    static const enum dev_acts acts[] = {DEV_ACTS_F32, DEV_ACTS_AUTO};
    int d_i = 8 * rand_int(1, 16), d;
    c->C = rand_int(1, 4), c->G = rand_int(1, trial % 5 ? 6 : 20), d = c->dk = 8 * rand_int(1, 12);
    c->type = (enum dev_kv_type)(trial % 4);
    c->coarse = trial / 4 % 2;
    c->s = check_scene(c->C * d, c->C * d, trial % 3 ? 300 : 1300);
    check_scene_index(&c->s, d_i);
    c->p = (struct dev_index){.layer = 1, .n_head = c->C, .d = d_i, .top = rand_int(1, 4)};
    c->p.blk = 16 << rand_int(0, 3), c->p.n_local = rand_int(0, c->p.top);
    c->op = (struct dev_attn){
        .layer = 1, .n_head = c->C * c->G, .d_k = d, .d_v = d, .scale = 1.0f / sqrtf((float)d)};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 1 + trial % 3, .acts = acts[c->coarse]},
                  &c->d, &err_));
    struct dev_kv_shape shape = {
        c->type, c->s.blk_tok, 1, {{0, LAYERS, c->s.n_blk, c->C, d, d, d_i, {{0}}}}};
    MUST(dev_kv_open(c->d, &shape, &c->kv, &err_));
    c->p.kv = c->op.kv = c->kv;
    struct dev_op own[2] = {{.kind = DEV_OP_attn, .u.attn = c->op},
                            {.kind = DEV_OP_index, .u.index = c->p}};
    MUST(dev_reserve(c->d, own, 2, &(struct dev_limits){.n_tok = 5200, .n_seq = 4, .n_ctx = 1300},
                     &err_));
    check_fill(c->d, c->kv, &c->s, c->C * d, c->C * d);
}

/* Attention of head h of a token over the positions that its blocks have. */
static void check_seen(const struct blocks_case *c, int t, int h)
{
    int pos = c->s.b.b.pos[t], n = 0, top = c->p.top, H = c->op.n_head, kv = h / c->G;
    int32_t *seen = get_mem(sizeof *seen * (size_t)(pos + 1));
    const int32_t *row = c->p.pick + (t * c->C + kv) * top;
    double want[96], tol[96];
    for (int p = 0; p <= pos; p++) {
        bool in = !chooses(c, t);
        for (int i = 0; i < top && !in; i++)
            in = row[i] == p / c->p.blk;
        if (in) seen[n++] = p;
    }
    struct gqa_arg a = {&c->s, c->s.b.seq[t], kv, c->C, c->dk, c->dk, c->type};
    const struct query of = {.hi = n,
                             .pick = seen,
                             .d = c->dk,
                             .dv = c->dk,
                             .scale = c->op.scale,
                             .u16 = c->coarse && c->type != DEV_KV_F32 ? U16 : 0,
                             .q = c->op.q + (t * H + h) * c->dk,
                             .key = check_gqa_key,
                             .value = check_gqa_value,
                             .arg = &a};
    check_attend(&of, want, tol);
    compare("attn to blocks", c->op.y + (t * H + h) * c->dk, want, tol, c->dk);
}

/* A few tokens by themselves choose and see the same; where blocks are as long as spans, tokens
 * that see all get what attention to all gives. */
static void check_blocks_alone(const struct blocks_case *c)
{
    int H = c->op.n_head, n = H * c->dk, n_pick = c->C * c->p.top;
    for (int k = 0; k < 5; k++) {
        int t = rand_int(0, c->s.T - 1), q = c->s.b.seq[t], pos = c->s.b.b.pos[t], one = 1;
        struct batch b = make_batch(1, &pos, &one, c->s.blk_tok, c->s.table + q * c->s.ld, c->s.ld);
        struct dev_index x = c->p;
        struct dev_attn p = c->op;
        int32_t *pick = get_mem(sizeof *pick * (size_t)n_pick);
        x.q += t * c->C * x.d, x.pick = pick;
        p.q += t * n, p.y = get_mem(sizeof *p.y * (size_t)n), p.some.pick = pick;
        dev_step_begin(c->d, c->kv, &b.b);
        dev_index(c->d, &b.b, &x);
        dev_attn(c->d, &b.b, &p);
        g.n_checked++;
        if (chooses(c, t) &&
            memcmp(pick, c->p.pick + t * n_pick, sizeof *pick * (size_t)n_pick) != 0)
            FAIL("blocks: token %d chooses otherwise by itself", t);
        same_bits("attn to blocks of a token alone", p.y, c->op.y + t * n, n);
        if (chooses(c, t)) continue;
        p.some.pick = NULL, p.some.n_pick = 0;
        if (c->p.blk == 128) p.some.blk = 0;
        dev_attn(c->d, &b.b, &p);
        same_bits("attn to all blocks", p.y, c->op.y + t * n, n);
    }
}

void check_blocks(void)
{
    for (int trial = 0; trial < 40; trial++) {
        struct blocks_case c = {0};
        open_blocks(&c, trial);
        int H = c.op.n_head, T = c.s.T, top = c.p.top;
        size_t n_pick = (size_t)(T * c.C * top);
        float *q = rand_array((int64_t)T * c.C * c.p.d);
        for (int i = 0; i < T * c.C * c.p.d; i++)
            q[i] *= has_zeros(i / (c.C * c.p.d)) ? 0.0f : 1.0f;
        c.p.q = q;
        c.op.q = rand_array((int64_t)T * H * c.dk);
        c.op.y = get_mem(sizeof(float) * (size_t)(T * H * c.dk));
        c.p.pick = get_mem(sizeof(int32_t) * n_pick);
        c.op.some = (struct dev_blocks){c.p.blk, top, c.p.pick};
        memset(c.p.pick, 0xf9, sizeof(int32_t) * n_pick);
        dev_step_begin(c.d, c.kv, &c.s.b.b);
        dev_index(c.d, &c.s.b.b, &c.p);
        dev_attn(c.d, &c.s.b.b, &c.op);
        for (int t = 0; t < T; t += 1 + T / 25) {
            int h = rand_int(0, c.C - 1);
            const int32_t *row = c.p.pick + (t * c.C + h) * top;
            if (chooses(&c, t))
                check_blocks_row(&c, t, h, row);
            else if (*row != (int32_t)0xf9f9f9f9)
                FAIL("blocks: token %d sees all, and has a row", t);
            check_seen(&c, t, h * c.G + rand_int(0, c.G - 1));
        }
        check_blocks_alone(&c);
        dev_close(c.d);
    }
}
