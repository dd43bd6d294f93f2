/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the paged cache: all KV types, ragged batches, scattered blocks, freed blocks
 * poisoned. */
#include "check_attn.h"

static double q8_value(const float *x, int n, int i)
{
    float amax = 0;
    int g0 = i / 32 * 32;
    for (int k = g0; k < g0 + 32 && k < n; k++)
        amax = fmaxf(amax, fabsf(x[k]));
    float s = amax / 127.0f;
    return s > 0 ? (double)(s * rintf(x[i] * (1.0f / s))) : 0;
}

/* What the cache keeps of x[i]; groups of Q8 run over the row x[0..n). */
double check_stored(enum dev_kv_type t, const float *x, int n, int i)
{
    switch (t) {
    case DEV_KV_BF16:
        return fp_bf16_to_f32(fp_f32_to_bf16(x[i]));
    case DEV_KV_F16:
        return fp_f16_to_f32(fp_f32_to_f16(x[i]));
    case DEV_KV_Q8:
        return q8_value(x, n, i);
    default:
        return x[i];
    }
}

struct scene check_scene(int kw, int vw, int max_len)
{
    struct scene s = {.S = rand_int(1, 4), .blk_tok = 16 * rand_int(1, 4)};
    for (int i = 0; i < s.S; i++) {
        s.len[i] = rand_int(1, rand_int(1, max_len));
        s.n_new[i] = rand_int(0, 2) ? rand_int(1, s.len[i]) : 1;
        s.pos0[i] = s.len[i] - s.n_new[i];
        s.T += s.n_new[i];
        s.ld = s.len[i] / s.blk_tok + 1 > s.ld ? s.len[i] / s.blk_tok + 1 : s.ld;
        s.k[i] = rand_array((int64_t)s.len[i] * kw);
        s.v[i] = vw ? rand_array((int64_t)s.len[i] * vw) : NULL;
    }
    s.n_blk = s.S * s.ld + 3; /* perm[S * ld] on: of nobody */
    s.table = get_mem(sizeof(int32_t) * (size_t)(s.S * s.ld));
    int32_t *perm = get_mem(sizeof(int32_t) * (size_t)s.n_blk);
    shuffled(perm, s.n_blk);
    for (int i = 0; i < s.S * s.ld; i++)
        s.table[i] = perm[i];
    s.spare = perm[s.S * s.ld];
    s.b = make_batch(s.S, s.pos0, s.n_new, s.blk_tok, s.table, s.ld);
    return s;
}

void check_scene_index(struct scene *s, int xw)
{
    s->xw = xw;
    for (int i = 0; i < s->S; i++)
        s->x[i] = rand_array((int64_t)s->len[i] * xw);
}

/* The step's table is that of group. */
static void in_group(struct dev_step *b, int group)
{
    const int32_t *table = b->blk[0];
    b->blk[0] = NULL;
    b->blk[group] = table;
}

/* Its layers are in group 1, and see a window: of the blocks before it nothing is left. */
static void slide(struct scene *s, int window)
{
    for (int i = 0; i < s->S; i++)
        for (int k = 0; window && k < (s->pos0[i] - window + 1) / s->blk_tok; k++)
            s->table[i * s->ld + k] = s->spare;
    in_group(&s->b.b, s->group);
}

/* Fill the cache: everything before the step's tokens in one step, then (put_new) the step's. All
 * other places stay NaN. */
void check_fill(dev *d, dev_kv *kv, const struct scene *s, int kw, int vw)
{
    for (int i = 0; i < s->n_blk; i++)
        dev_kv_poison(d, kv, s->group, i);
    int zero[4] = {0};
    for (int part = 0; part < 2; part++) {
        const int *from = part ? s->pos0 : zero, *n = part ? s->n_new : s->pos0;
        struct batch b = make_batch(s->S, from, n, s->blk_tok, s->table, s->ld);
        if (b.b.n_tok == 0) continue;
        in_group(&b.b, s->group);
        dev_step_begin(d, kv, &b.b);
        float *k = get_mem(sizeof(float) * (size_t)(b.b.n_tok * kw)),
              *v = get_mem(sizeof(float) * (size_t)(b.b.n_tok * vw + 1)),
              *x = get_mem(sizeof(float) * (size_t)(b.b.n_tok * s->xw + 1));
        for (int t = 0; t < b.b.n_tok; t++) {
            int q = b.seq[t], p = b.b.pos[t];
            memcpy(k + t * kw, s->k[q] + p * kw, sizeof(float) * (size_t)kw);
            if (vw) memcpy(v + t * vw, s->v[q] + p * vw, sizeof(float) * (size_t)vw);
            if (s->xw) memcpy(x + t * s->xw, s->x[q] + p * s->xw, sizeof *x * (size_t)s->xw);
        }
        for (int l = 0; l < LAYERS; l++)
            dev_kv_put(d, &b.b,
                       &(struct dev_kv_put){.kv = kv,
                                            .group = s->group,
                                            .layer = l,
                                            .k = k,
                                            .v = vw ? v : NULL,
                                            .i = s->xw ? x : NULL,
                                            .ldk = kw,
                                            .ldv = vw,
                                            .ldi = s->xw});
    }
}

static int at(const struct query *f, int i)
{
    return f->pick ? f->pick[i] : i;
}

/* softmax(scale q k) v in double; tolerance: scores err by u (d + 2) sum|q k| scale, which scales
 * weights by e^err; sums over n add u n. */
void check_attend(const struct query *f, double *y, double *tol)
{
    int n_lo = f->lo, n_hi = f->hi;
    const float *sink = f->sink;
    double *w = malloc(sizeof(double) * (size_t)n_hi), max = sink ? *sink : -1e300, sum = 0,
           err = 0;
    for (int p = n_lo; p < n_hi; p++) {
        double s = 0, a = 0;
        for (int i = 0; i < f->d; i++) {
            double x = (double)f->q[i] * f->key(f->arg, at(f, p), i) * f->scale;
            s += x;
            a += fabs(x);
        }
        w[p] = s;
        max = BASE_MAX(max, s);
        err = fmax(err, ((f->d + 4) * U + 2 * f->u16) * a);
    }
    for (int p = n_lo; p < n_hi; p++)
        sum += w[p] = exp(w[p] - max);
    if (sink) sum += exp(*sink - max);
    for (int i = 0; i < f->dv; i++) {
        double s = 0, a = 0;
        for (int p = n_lo; p < n_hi; p++) {
            double x = w[p] / sum * f->value(f->arg, at(f, p), i);
            s += x;
            a += fabs(x);
        }
        y[i] = s;
        tol[i] = (4 * err + (2 * (n_hi - n_lo) + 40) * U + 2 * f->u16) * a + 1e-30;
    }
    free(w);
}

double check_gqa_key(void *arg, int p, int i)
{
    struct gqa_arg *a = arg;
    return check_stored(a->t, a->s->k[a->seq] + (p * a->C + a->head) * a->dk, a->dk, i);
}
double check_gqa_value(void *arg, int p, int i)
{
    struct gqa_arg *a = arg;
    return check_stored(a->t, a->s->v[a->seq] + (p * a->C + a->head) * a->dv, a->dv, i);
}

void check_attn(void)
{
    for (int trial = 0; trial < 60; trial++) {
        int C = rand_int(1, 4), G = rand_int(1, 5), H = C * G,
            dk = 8 * rand_int(1, trial % 10 == 9 ? 32 : 12);
        int dv = rand_int(0, 1) ? dk : 8 * rand_int(1, 12),
            window = rand_int(0, 2) ? 0 : rand_int(1, 200);
        if (trial == 0) C = 1, G = 64, H = 64, dk = dv = 64;
        enum dev_kv_type type = (enum dev_kv_type)(trial % 4);
        struct scene s = check_scene(C * dk, C * dv, trial % 3 ? 90 : 700);
        dev *d = NULL;
        dev_kv *kv = NULL;
        int coarse = trial / 4 % 2 && type != DEV_KV_F32;
        enum dev_acts acts = trial / 4 % 2 ? DEV_ACTS_AUTO : DEV_ACTS_F32;
        MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 1 + trial % 3, .acts = acts}, &d,
                      &err_));
        struct dev_kv_group g0 = {DEV_KV_PAGED, rand_int(0, 2), 3, C, dk, dv, 0, {{0}}},
                            g1 = {DEV_KV_WINDOW, LAYERS, s.n_blk, C, dk, dv, 0, {{0}}};
        s.group = trial % 5 > 1;
        struct dev_kv_shape shape = {type, s.blk_tok, 1, {g1}};
        if (s.group) shape = (struct dev_kv_shape){type, s.blk_tok, 2, {g0, g1}};
        MUST(dev_kv_open(d, &shape, &kv, &err_));
        struct dev_op own = {.kind = DEV_OP_attn, .u.attn = {.n_head = H, .d_k = dk, .d_v = dv}};
        MUST(dev_reserve(d, &own, 1, &(struct dev_limits){.n_tok = 2800, .n_seq = 4, .n_ctx = 700},
                         &err_));
        check_fill(d, kv, &s, C * dk, C * dv);
        slide(&s, window);
        float *q = rand_array((int64_t)s.T * H * dk),
              *y = get_mem(sizeof(float) * (size_t)(s.T * H * dv));
        float scale = 1.0f / sqrtf((float)dk), *sink = trial % 3 == 1 ? rand_array(H) : NULL;
        if (sink) sink[rand_int(0, H - 1)] = 40.0f; /* far above every key */
        dev_step_begin(d, kv, &s.b.b);
        dev_attn(d, &s.b.b,
                 &(struct dev_attn){.kv = kv,
                                    .group = s.group,
                                    .layer = 1,
                                    .n_head = H,
                                    .d_k = dk,
                                    .d_v = dv,
                                    .scale = scale,
                                    .q = q,
                                    .y = y,
                                    .n_window = window,
                                    .per_head.of[PER_HEAD_SINKS] = sink});
        double want[256], tol[256];
        for (int t = 0; t<s.T; t += s.T> 40 ? rand_int(1, s.T / 20) : 1)
            for (int h = 0; h<H; h += H> 8 ? rand_int(1, 16) : 1) {
                struct gqa_arg a = {&s, s.b.seq[t], h / G, C, dk, dv, type};
                int hi = s.b.b.pos[t] + 1, lo = window && hi > window ? hi - window : 0;
                const struct query of = {lo,
                                         hi,
                                         dk,
                                         dv,
                                         NULL,
                                         scale,
                                         coarse ? U16 : 0,
                                         q + (t * H + h) * dk,
                                         sink ? sink + h : NULL,
                                         check_gqa_key,
                                         check_gqa_value,
                                         &a};
                check_attend(&of, want, tol);
                compare("attn", y + (t * H + h) * dv, want, tol, dv);
            }
        if (dev_kv_bytes(d, &(struct dev_kv_shape){type, 16, 1, {{0, 1, 1, 1, 64, 64, 0, {{0}}}}}) <
            16 * 2 * 64)
            FAIL("kv bytes");
        dev_close(d);
    }
}

/* ---- MLA ---- */
static double mla_key(void *arg, int p, int i)
{
    struct mla_arg *a = arg;
    if (i < a->nope) return a->kn[p * a->nope + i];
    int w = a->r + a->rope;
    return check_stored(a->t, a->s->k[a->seq] + p * w, w, a->r + i - a->nope);
}
static double mla_value(void *arg, int p, int i)
{
    struct mla_arg *a = arg;
    return a->vn[p * a->v + i];
}
static void materialise(struct mla_arg *a, int len)
{
    int w = a->r + a->rope;
    a->kn = calloc((size_t)(len * a->nope + 1), sizeof(double));
    a->vn = calloc((size_t)(len * a->v + 1), sizeof(double));
    for (int p = 0; p < len; p++)
        for (int i = 0; i < a->r; i++) {
            double c = check_stored(a->t, a->s->k[a->seq] + p * w, w, i);
            for (int k = 0; k < a->nope; k++)
                a->kn[p * a->nope + k] += a->wk[i * a->nope + k] * c;
            for (int k = 0; k < a->v; k++)
                a->vn[p * a->v + k] += a->wv[k * a->r + i] * c;
        }
}

/* One head's results: q [T][H * (nope + rope)], y [T][H * v] from that head on. coarse: 15-bit
 * activations, which add 2^-15 of the largest value of a group; the latent's products add roundings
 * of r terms. */
void check_mla_head(struct mla_arg a, const float *q, const float *y, int n_head, float scale,
                    int coarse)
{
    const struct dev_step *b = &a.s->b.b;
    int qd = a.nope + a.rope, v = a.v;
    double want[64], tol[64];
    for (a.seq = 0; a.seq < a.s->S; a.seq++) {
        int n_new = a.s->n_new[a.seq];
        materialise(&a, a.s->len[a.seq]);
        for (int t = b->seq_tok0[a.seq]; t < b->seq_tok0[a.seq + 1];) {
            bool some = a.pick && b->pos[t] >= a.n_pick;
            const struct query of = {.hi = some ? a.n_pick : b->pos[t] + 1,
                                     .pick = some ? a.pick + t * a.n_pick : NULL,
                                     .d = qd,
                                     .dv = v,
                                     .scale = scale,
                                     .q = q + t * n_head * qd,
                                     .key = mla_key,
                                     .value = mla_value,
                                     .arg = &a};
            check_attend(&of, want, tol);
            for (int i = 0; i < v; i++)
                tol[i] = tol[i] * (coarse ? 400 : 1) * (4 + a.r / 8.0) +
                         (coarse ? 1e-2 / sqrt(of.hi) : 3e-6); /* of many, roundings even out */
            compare("attn_mla", y + t * n_head * v, want, tol, v);
            t += n_new > 20 ? rand_int(1, n_new / 10) : 1;
        }
        free(a.kn);
        free(a.vn);
    }
}

/* The same results, bit for bit, whatever of the keys and values was kept from steps before:
 * nothing, those of a shorter context, all. */
static void check_kept(dev *d, const struct scene *s, struct dev_attn_mla op, size_t n)
{
    struct dev_step b = s->b.b, half = s->b.b;
    struct dev_keep keep[8];
    int32_t *pos = get_mem(sizeof *pos * (size_t)s->T);
    float *want = op.y;
    op.y = get_mem(sizeof *op.y * n);
    for (int i = 0; i < s->S; i++)
        keep[i] = (struct dev_keep){(uint64_t)i + 7, false};
    for (int t = 0; t < s->T; t++)
        pos[t] = b.pos[t] / 2;
    half.pos = pos;
    b.keep = half.keep = keep;
    for (int round = 0; round < 4; round++) {
        const struct dev_step *now = round == 1 ? &half : &b;
        dev_step_begin(d, NULL, now);
        for (op.layer = 0; op.layer < 2; op.layer++)
            dev_attn_mla(d, now, &op);
        if (round == 1) keep[0].id = 99; /* another prompt: begins anew */
        if (round == 1) continue;
        g.n_checked++;
        if (memcmp(op.y, want, sizeof *want * n) != 0)
            FAIL("attn_mla: kept keys change the result");
        for (int i = 0; i < s->S && round == 0; i++)
            keep[i].id += 20; /* none of what is there */
    }
}

void check_mla(void)
{
    for (int trial = 0; trial < 32; trial++) {
        bool bf16 = trial >= 24; /* only that what is kept changes nothing */
        int H = trial == 1 ? 72 : rand_int(1, 20), r = 32 * rand_int(1, 3),
            rope = 8 * rand_int(1, 3);
        int nope = 32 * rand_int(1, 2), v = 8 * rand_int(1, 6), w = r + rope, qd = nope + rope;
        enum dev_kv_type type =
            bf16 ? (trial % 2 ? DEV_KV_BF16 : DEV_KV_Q8) : (enum dev_kv_type)(trial % 4);
        struct scene s = check_scene(w, 0, trial % 3 ? 60 : 300);
        dev *d = NULL;
        dev_kv *kv = NULL;
        dev_mat *wkb = NULL, *wvb = NULL;
        struct weight *wk = get_mem(sizeof *wk * (size_t)H), *wv = get_mem(sizeof *wv * (size_t)H);
        for (int h = 0; h < H; h++) {
            wk[h] = rand_weight(TENSOR_Q8_0, r, nope);
            wv[h] = rand_weight(TENSOR_F32, v, r);
        }
        MUST(dev_open("cpu",
                      &(struct dev_opts){.n_thread = 1 + trial % 3,
                                         .acts = bf16 || trial % 2 ? DEV_ACTS_AUTO : DEV_ACTS_F32},
                      &d, &err_));
        struct dev_kv_shape shape = {
            type, s.blk_tok, 1, {{0, LAYERS, s.n_blk, 1, w, 0, 0, {{0}}}}};
        MUST(dev_kv_open(d, &shape, &kv, &err_));
        MUST(dev_mat_load(d, &(struct dev_weights){.first = wk, .n = H, .use = DEV_USE_EXACT}, &wkb,
                          &err_));
        MUST(dev_mat_load(d, &(struct dev_weights){.first = wv, .n = H, .use = DEV_USE_EXACT}, &wvb,
                          &err_));
        struct dev_op own = {
            .kind = DEV_OP_attn_mla,
            .u.attn_mla = {
                .layer = LAYERS - 1, .n_head = H, .r = r, .nope = nope, .rope = rope, .v = v}};
        struct dev_limits max = {.n_tok = 1200, .n_seq = 4};
        max.n_ctx = bf16 ? 8192 : 300; /* pages for all that is kept */
        max.mla_expand_from = trial % 4 < 2 ? 0 : rand_int(0, 60);
        max.keep_bytes = trial % 4 * (int64_t)30000000;
        MUST(dev_reserve(d, &own, 1, &max, &err_));
        check_fill(d, kv, &s, w, 0);
        float *q = rand_array((int64_t)s.T * H * qd),
              *y = get_mem(sizeof(float) * (size_t)(s.T * H * v));
        int32_t n_prompt[4];
        for (int i = 0; i < s.S; i++)
            n_prompt[i] = trial % 4 == 0 ? 0 : trial % 4 == 1 ? s.len[i] : rand_int(0, s.len[i]);
        s.b.b.n_prompt = n_prompt;
        float scale = 1.0f / sqrtf((float)qd);
        struct dev_attn_mla op = {.kv = kv,
                                  .layer = 1,
                                  .n_head = H,
                                  .r = r,
                                  .nope = nope,
                                  .rope = rope,
                                  .v = v,
                                  .scale = scale,
                                  .w_kb = wkb,
                                  .w_vb = wvb,
                                  .q = q,
                                  .y = y};
        dev_step_begin(d, kv, &s.b.b);
        dev_attn_mla(d, &s.b.b, &op);
        check_kept(d, &s, op, (size_t)(s.T * H * v));
        int coarse = trial % 2;
        for (int h = 0; h < H && !bf16;) {
            struct mla_arg a = {&s,   0,    r,    rope, nope, v,    NULL,
                                NULL, NULL, type, NULL, NULL, NULL, 0};
            a.wk = weight_numbers(&wk[h]);
            a.wv = weight_numbers(&wv[h]);
            check_mla_head(a, q + h * qd, y + h * v, H, scale, coarse);
            h += H > 6 ? rand_int(1, 8) : 1;
        }
        dev_close(d);
    }
}
