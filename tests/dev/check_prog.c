/* SPDX-License-Identifier: Apache-2.0 */
/* A program, whose layers may be run together, gives the bits of the operators one by one, for any
 * division of sequences into steps, with 1 to 4 threads; and what a device lacks is named. */
#include "check.h"

enum { L = 3, D = 192, H = 6, C = 3, DH = 16, F = 160, ROPE = 12 };
enum { R = 32, NOPE = 32, RP = 12, QD = NOPE + RP, V = DH, QA = 64 }; /* MLA */
enum { E = 7, K = 3, FE = 64, N_SLOT = 8 };                           /* experts */
enum { SEQ = 3, LEN = 300, T_MAX = 64, BLK = 32, LD = LEN / BLK + 1, N_BLK = SEQ * LD + 3 };
enum { EXPAND_FROM = 20 }; /* MLA: such tokens of prompts are never run together */

struct layer_weights {
    struct weight q, k, v, o, gate, up, down;
    float *norm[2], *head_norm[2], *bias[4], *sink, *ffn_bias[2];
    struct weight q_direct, q_a, kv_a, q_b, k_b[H], v_b[H];
    float *q_a_norm, *kv_norm;
    struct weight router, gate_e[N_SLOT], up_e[N_SLOT], down_e[N_SLOT];
    float *router_bias[2], *expert_bias[2];
};
struct weights {
    struct layer_weights of[L];
    float *freq, *zero, *x[SEQ];
};
struct shape {
    enum dev_acts acts;
    enum dev_kv_type kv;
    int n_window, style, head_norm, bias, sink, glu;
    int split; /* a layer with an operator after it that no region has; -1 = none */
    enum { GQA, MLA, MLA_Q_A } mixer;
    enum { DENSE, MOE, MOE_SHARED } ffn; /* of MLA's layers the first is dense */
    int sigmoid, slots;
};

struct layer_mats {
    dev_mat *q, *k, *v, *o, *gu, *down;
    dev_mat *q_a, *kv_a, *q_b, *k_b, *v_b, *router, *gu_e, *down_e;
};
struct rig {
    dev *d;
    dev_kv *kv;
    dev_prog *prog; /* NULL: one by one */
    float *x, *y, *q, *k, *v, *a, *h, *qa, *logit, *weight, *shared;
    int32_t *id;
    uint64_t *count; /* [L, E] */
    struct layer_mats of[L];
    dev_act *act, *oact, *hact, *q_act;
    const struct shape *p;
    const struct weights *w;
};

/* The first N_SLOT - 1 slots are the experts in order, and one of them is there twice. */
static const int32_t slot_expert[N_SLOT] = {0, 1, 2, 3, 4, 5, 6, 2};
static int32_t slot_first[E + 1], slot_list[N_SLOT];
static struct dev_slots slots = {
    .n = N_SLOT, .expert = slot_expert, .first = slot_first, .list = slot_list};

/* Layers that see a window are in the second group of the cache. */
static int group_of(const struct shape *p)
{
    return p->n_window ? DEV_KV_WINDOW : DEV_KV_PAGED;
}

static dev_mat *load_as(dev *d, const struct weight *w, const struct weight *w2, int n,
                        enum dev_use use)
{
    dev_mat *m = NULL;
    MUST(dev_mat_load(d, &(struct dev_weights){.first = w, .second = w2, .n = n, .use = use}, &m,
                      &err_));
    return m;
}

static dev_mat *load(dev *d, const struct weight *w, const struct weight *w2)
{
    return load_as(d, w, w2, 1, DEV_USE_MATMUL);
}

static dev_act *act(dev *d, const dev_mat *const *m, int n, int n_col)
{
    dev_act *a = NULL;
    MUST(dev_act_open(d, &(struct dev_inputs){m, n, n_col, T_MAX}, &a, &err_));
    return a;
}

static struct dev_norm head_norm(float *x, const float *w, int n)
{
    return (struct dev_norm){.x = x, .w = w, .eps = 1e-5f, .n = DH, .n_head = n, .y = x};
}

static struct dev_rope rotate(const struct rig *r, float *x, int n, int width)
{
    return (struct dev_rope){.x = x,
                             .n_head = n,
                             .ldx = n * width,
                             .ldx_h = width,
                             .n_rot = ROPE,
                             .style = r->p->style,
                             .freq = r->w->freq,
                             .mscale = 1.1f};
}

#define OP(name, ...)                                                                              \
    op[n++] = (struct dev_op)                                                                      \
    {                                                                                              \
        .kind = DEV_OP_##name, .layer = i, .u.name = __VA_ARGS__                                   \
    }

/* These return the number of operators, as layer does. */
static int heads(const struct rig *r, int i, struct dev_op *op)
{
    const struct layer_weights *w = &r->w->of[i];
    const struct layer_mats *m = &r->of[i];
    const struct shape *p = r->p;
    int n = 0, nk = C * DH;
    OP(matmul, {.act = r->act, .n_mat = 3, .w = {m->q, m->k, m->v}, .y = {r->q, r->k, r->v}});
    if (p->head_norm) {
        OP(norm, head_norm(r->q, w->head_norm[0], H));
        OP(norm, head_norm(r->k, w->head_norm[1], C));
    }
    OP(rope, rotate(r, r->q, H, DH));
    OP(rope, rotate(r, r->k, C, DH));
    OP(kv_put,
       {.kv = r->kv, .group = group_of(p), .layer = i, .k = r->k, .v = r->v, .ldk = nk, .ldv = nk});
    OP(attn, {.kv = r->kv,
              .group = group_of(p),
              .layer = i,
              .n_head = H,
              .d_k = DH,
              .d_v = DH,
              .scale = 0.2f,
              .q = r->q,
              .y = r->a,
              .n_window = p->n_window,
              .per_head.of[PER_HEAD_SINKS] = p->sink ? w->sink : NULL});
    return n;
}

static int latents(const struct rig *r, int i, struct dev_op *op)
{
    const struct layer_weights *w = &r->w->of[i];
    const struct layer_mats *m = &r->of[i];
    int n = 0, row = R + RP;
    if (r->p->mixer == MLA_Q_A) {
        OP(matmul, {.act = r->act, .n_mat = 2, .w = {m->q_a, m->kv_a}, .y = {r->qa, r->k}});
        OP(norm, {.x = r->qa, .w = w->q_a_norm, .eps = 1e-6f, .n = QA, .act = r->q_act});
        OP(matmul, {.act = r->q_act, .n_mat = 1, .w = {m->q_b}, .y = {r->q}});
    } else {
        OP(matmul, {.act = r->act, .n_mat = 2, .w = {m->q, m->kv_a}, .y = {r->q, r->k}});
    }
    OP(norm, {.x = r->k, .w = w->kv_norm, .eps = 1e-6f, .n = R, .ldx = row, .ldy = row, .y = r->k});
    OP(rope, rotate(r, r->k + R, 1, row));
    OP(rope, rotate(r, r->q + NOPE, H, QD));
    OP(kv_put, {.kv = r->kv, .layer = i, .k = r->k, .ldk = row});
    OP(attn_mla, {.kv = r->kv,
                  .layer = i,
                  .n_head = H,
                  .r = R,
                  .nope = NOPE,
                  .rope = RP,
                  .v = V,
                  .scale = 0.2f,
                  .w_kb = m->k_b,
                  .w_vb = m->v_b,
                  .q = r->q,
                  .y = r->a,
                  .next = {m->o}});
    return n;
}

static int gated(const struct rig *r, int i, float *y, struct dev_op *op)
{
    const struct layer_mats *m = &r->of[i];
    int n = 0;
    OP(ffn,
       {.act = r->act, .gate_up = m->gu, .down = m->down, .h_act = r->hact, .h = r->h, .y = y});
    return n;
}

static int experts(const struct rig *r, int i, struct dev_op *op)
{
    const struct layer_weights *w = &r->w->of[i];
    const struct layer_mats *m = &r->of[i];
    const struct shape *p = r->p;
    bool shared = p->ffn == MOE_SHARED;
    int n = 0;
    OP(matmul, {.act = r->act, .n_mat = 1, .w = {m->router}, .y = {r->logit}});
    OP(route, {.logit = r->logit,
               .bias = p->sigmoid ? w->router_bias[1] : NULL,
               .n_expert = E,
               .k = K,
               .sigmoid = p->sigmoid,
               .norm = 1,
               .scale = 1.5f,
               .id = r->id,
               .weight = r->weight,
               .count = r->count + i * E});
    if (shared) n += gated(r, i, r->shared, op + n);
    OP(moe, {.act = r->act,
             .k = K,
             .n_expert = E,
             .id = r->id,
             .weight = r->weight,
             .slots = p->slots ? &slots : NULL,
             .gate_up = m->gu_e,
             .down = m->down_e,
             .add = shared ? r->shared : NULL,
             .y = r->y});
    return n;
}

static bool is_dense(const struct shape *p, int i)
{
    return p->ffn == DENSE || (p->mixer != GQA && i == 0);
}

/* Layer i; returns the number of operators. */
static int layer(const struct rig *r, int i, struct dev_op *op)
{
    const struct layer_weights *w = &r->w->of[i];
    const struct layer_mats *m = &r->of[i];
    const struct shape *p = r->p;
    int n = 0;
    OP(norm,
       {.x = r->x, .r = i ? r->y : NULL, .w = w->norm[0], .eps = 1e-5f, .n = D, .act = r->act});
    n += (p->mixer == GQA ? heads : latents)(r, i, op + n);
    OP(prep, {.x = r->a, .n = H * DH, .act = r->oact});
    OP(matmul, {.act = r->oact, .n_mat = 1, .w = {m->o}, .y = {r->y}});
    OP(norm, {.x = r->x, .r = r->y, .w = w->norm[1], .eps = 1e-5f, .n = D, .act = r->act});
    n += is_dense(p, i) ? gated(r, i, r->y, op + n) : experts(r, i, op + n);
    if (i == p->split) /* an operator that no region has */
        OP(add, {.x = r->y, .y = r->w->zero, .n = D, .n_row = 1});
    return n;
}
#undef OP

static int layers(const struct rig *r, struct dev_op *op)
{
    int n = 0;
    for (int i = 0; i < L; i++)
        n += layer(r, i, op + n);
    return n;
}

static void prog_open(struct rig *r)
{
    struct dev_op op[L * 20];
    int n = layers(r, op), apart = r->p->split >= 0;
    MUST(dev_prog_open(r->d, op, n, &r->prog, &err_));
    int fused = dev_prog_fused(r->prog, 1);
    if (fused != n - apart) FAIL("%d of %d operators are run together", fused, n);
    if (dev_prog_fused(r->prog, T_MAX)) FAIL("large steps are run together");
}

static void step(struct rig *r, const struct dev_step *b)
{
    struct dev_op op[L * 20];
    if (r->prog) {
        MUST(dev_prog_run(r->prog, r->kv, b, &err_));
        return;
    }
    dev_step_begin(r->d, r->kv, b);
    int n = layers(r, op);
    for (int i = 0; i < n; i++)
        switch (op[i].kind) {
#define X(name, params)                                                                            \
    case DEV_OP_##name:                                                                            \
        dev_##name(r->d, b, &op[i].u.name);                                                        \
        break;
            DEV_OP_LIST(X)
#undef X
        case DEV_N_OP:
            break;
        }
}

/* Biases and units of a layer's matrices. */
static void end_layer(const struct rig *r, const struct layer_weights *w,
                      const struct layer_mats *m)
{
    const struct shape *p = r->p;
    const dev_mat *plain[] = {p->mixer == GQA ? m->q : NULL, m->k, m->v, m->o, m->router};
    const float *bias[] = {w->bias[0], w->bias[1], w->bias[2], w->bias[3], w->router_bias[0]};
    for (int k = 0; p->bias && k < BASE_COUNT_OF(plain); k++)
        if (plain[k])
            end_with(plain[k], (struct dev_epilogue){
                                   .bias = bias[k], .n_bias = 1, .n_row = dev_mat_rows(plain[k])});
    if (!p->glu) return;
    const int32_t *of = p->slots ? slot_expert : NULL;
    const struct glu dense = {.limit = 1.5f, .alpha = 1.7f, .plus = 1},
                     moe = {.limit = 1.2f, .alpha = 1.1f};
    end_with(m->gu, (struct dev_epilogue){w->ffn_bias[0], 1, 2 * F, NULL, dense});
    end_with(m->down, (struct dev_epilogue){.bias = w->ffn_bias[1], .n_bias = 1, .n_row = D});
    if (!m->gu_e) return;
    end_with(m->gu_e, (struct dev_epilogue){w->expert_bias[0], E, 2 * FE, of, moe});
    end_with(m->down_e,
             (struct dev_epilogue){.bias = w->expert_bias[1], .n_bias = E, .n_row = D, .of = of});
}

static void load_layer(struct rig *r, int i)
{
    const struct layer_weights *w = &r->w->of[i];
    struct layer_mats *m = &r->of[i];
    dev *d = r->d;
    if (r->p->mixer == GQA) {
        m->q = load(d, &w->q, NULL);
        m->k = load(d, &w->k, NULL);
        m->v = load(d, &w->v, NULL);
    } else {
        m->q = load(d, &w->q_direct, NULL);
        m->q_a = load(d, &w->q_a, NULL);
        m->kv_a = load_as(d, &w->kv_a, NULL, 1, DEV_USE_LATENT);
        m->q_b = load(d, &w->q_b, NULL);
        m->k_b = load_as(d, w->k_b, NULL, H, DEV_USE_EXACT);
        m->v_b = load_as(d, w->v_b, NULL, H, DEV_USE_EXACT);
    }
    m->o = load_as(d, &w->o, NULL, 1, DEV_USE_PLAIN);
    m->gu = load(d, &w->gate, &w->up);
    m->down = load(d, &w->down, NULL);
    if (r->p->ffn != DENSE) {
        m->router = load_as(d, &w->router, NULL, 1, DEV_USE_EXACT);
        m->gu_e = load_as(d, w->gate_e, w->up_e, N_SLOT, DEV_USE_EXPERTS);
        m->down_e = load_as(d, w->down_e, NULL, N_SLOT, DEV_USE_EXPERTS);
    }
    end_layer(r, w, m);
}

static void acts_open(struct rig *r)
{
    const dev_mat *in[7 * L], *o[L], *down[L], *q_b[L];
    for (int i = 0; i < L; i++) {
        const struct layer_mats *m = &r->of[i];
        const dev_mat *all[7] = {m->q, m->k, m->v, m->gu, m->q_a, m->kv_a, m->router};
        memcpy(in + 7 * i, all, sizeof all);
        o[i] = m->o;
        down[i] = m->down;
        q_b[i] = m->q_b;
    }
    const dev_mat *with_experts[8 * L];
    memcpy(with_experts, in, sizeof in);
    for (int i = 0; i < L; i++)
        with_experts[7 * L + i] = r->of[i].gu_e;
    r->act = act(r->d, with_experts, 8 * L, D);
    r->oact = act(r->d, o, L, H * DH);
    r->hact = act(r->d, down, L, F);
    if (r->p->mixer != GQA) r->q_act = act(r->d, q_b, L, QA);
}

static void cache_open(struct rig *r)
{
    enum dev_kv_type t = r->p->kv;
    struct dev_kv_shape s = {t, BLK, 1, {{DEV_KV_PAGED, L, N_BLK, C, DH, DH, 0, {{0}}}}};
    if (r->p->n_window)
        s = (struct dev_kv_shape){
            t, BLK, 2,
            {{DEV_KV_PAGED, 0, 1, C, DH, DH, 0, {{0}}},
             {DEV_KV_WINDOW, L, N_BLK, C, DH, DH, 0, {{0}}}}};
    if (r->p->mixer != GQA)
        s = (struct dev_kv_shape){t, BLK, 1, {{DEV_KV_PAGED, L, N_BLK, 1, R + RP, 0, 0, {{0}}}}};
    MUST(dev_kv_open(r->d, &s, &r->kv, &err_));
}

static void rig_open(struct rig *r, const struct weights *w, const struct shape *p, int n_thread,
                     int together)
{
    *r = (struct rig){.p = p, .w = w};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread, .acts = p->acts}, &r->d, &err_));
    for (int i = 0; i < L; i++)
        load_layer(r, i);
    acts_open(r);
    cache_open(r);
    float **buf[] = {&r->x, &r->y,  &r->q,     &r->k,      &r->v,     &r->a,
                     &r->h, &r->qa, &r->logit, &r->weight, &r->shared};
    const int width[] = {D, D, H * QD, C * DH, C * DH, H * DH, F, QA, E, K, D};
    for (int i = 0; i < BASE_COUNT_OF(buf); i++)
        *buf[i] = get_mem(sizeof(float) * T_MAX * (size_t)width[i]);
    r->id = get_mem(sizeof *r->id * T_MAX * K);
    r->count = get_mem(sizeof *r->count * L * E);
    struct dev_op op[L * 20];
    struct dev_limits max = {
        .n_tok = T_MAX, .n_seq = SEQ, .n_ctx = LEN, .mla_expand_from = EXPAND_FROM};
    MUST(dev_reserve(r->d, op, layers(r, op), &max, &err_));
    if (together) prog_open(r);
}

/* Run the sequences by random steps, most of them of few tokens, and keep x and r of each token. */
static void play(struct rig *r, const int *len, float *out[SEQ])
{
    float *x = r->x, *y = r->y;
    int32_t table[SEQ * LD], perm[N_BLK];
    int32_t n_prompt[SEQ] = {EXPAND_FROM + 30, 0, EXPAND_FROM + 5};
    int at[SEQ] = {0}, left = 0, n_small = 0;
    memset(r->count, 0, sizeof *r->count * L * E);
    shuffled(perm, N_BLK);
    for (int i = 0; i < N_BLK; i++)
        dev_kv_poison(r->d, r->kv, group_of(r->p), i);
    memcpy(table, perm, sizeof table);
    for (int s = 0; s < SEQ; s++)
        left += len[s];
    while (left > 0) {
        int n_new[SEQ] = {0}, total = 0, many = rand_int(0, 9) == 0;
        for (int s = 0; s < SEQ; s++) {
            int most = many ? T_MAX / SEQ : rand_int(0, 2);
            n_new[s] = BASE_MIN(most, len[s] - at[s]);
            total += n_new[s];
        }
        if (total == 0) continue;
        n_small += r->prog && dev_prog_fused(r->prog, total) > 0;
        for (int s = 0; s < SEQ; s++) /* what is before the window is given to nobody */
            for (int k = 0; k < (at[s] - r->p->n_window + 1) / BLK && r->p->n_window; k++)
                table[s * LD + k] = perm[SEQ * LD];
        struct batch b = make_batch(SEQ, at, n_new, BLK, table, LD);
        b.b.n_prompt = n_prompt;
        b.b.blk[0] = NULL;
        b.b.blk[group_of(r->p)] = table;
        for (int t = 0; t < total; t++)
            memcpy(x + t * D, r->w->x[b.seq[t]] + b.b.pos[t] * D, sizeof(float) * D);
        step(r, &b.b);
        for (int t = 0; t < total; t++) {
            float *to = out[b.seq[t]] + b.b.pos[t] * 2 * D;
            memcpy(to, x + t * D, sizeof(float) * D);
            memcpy(to + D, y + t * D, sizeof(float) * D);
        }
        for (int s = 0; s < SEQ; s++)
            at[s] += n_new[s];
        left -= total;
    }
    if (r->prog && n_small < 10) FAIL("only %d steps ran their layers together", n_small);
}

/* round 0: all of one type; then mixtures, of which some have pairs of two formats. */
static struct weights *make_weights(int round)
{
    static const enum tensor_dtype type[] = {TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_BF16, TENSOR_F32};
    struct weights *w = get_mem(sizeof *w);
    for (int i = 0; i < L; i++) {
        struct layer_weights *l = &w->of[i];
        struct {
            struct weight *w;
            int rows, cols;
        } all[] = {{&l->q, H * DH, D}, {&l->k, C * DH, D}, {&l->v, C * DH, D}, {&l->o, D, H * DH},
                   {&l->gate, F, D},   {&l->up, F, D},     {&l->down, D, F}};
        for (int k = 0; k < 7; k++) {
            enum tensor_dtype t = type[round ? rand_int(0, 3) : 1];
            *all[k].w = rand_weight(t, all[k].rows, all[k].cols);
        }
        struct {
            struct weight *w;
            int n, rows, cols;
        } more[] = {{&l->q_direct, 1, H * QD, D}, {&l->q_a, 1, QA, D},
                    {&l->kv_a, 1, R + RP, D},     {&l->q_b, 1, H * QD, QA},
                    {l->k_b, H, R, NOPE},         {l->v_b, H, V, R},
                    {&l->router, 1, E, D},        {l->gate_e, N_SLOT, FE, D},
                    {l->up_e, N_SLOT, FE, D},     {l->down_e, N_SLOT, D, FE}};
        for (int k = 0; k < BASE_COUNT_OF(more); k++) {
            enum tensor_dtype t = type[round ? rand_int(0, 3) : 1];
            for (int e = 0; e < more[k].n; e++)
                more[k].w[e] = rand_weight(t, more[k].rows, more[k].cols);
        }
        l->gate_e[N_SLOT - 1] = l->gate_e[slot_expert[N_SLOT - 1]];
        l->up_e[N_SLOT - 1] = l->up_e[slot_expert[N_SLOT - 1]];
        l->down_e[N_SLOT - 1] = l->down_e[slot_expert[N_SLOT - 1]];
        l->q_a_norm = rand_array(QA);
        l->kv_norm = rand_array(R);
        for (int k = 0; k < 2; k++)
            l->router_bias[k] = rand_array(E);
        l->expert_bias[0] = rand_array(E * 2 * FE);
        l->expert_bias[1] = rand_array(E * D);
        for (int k = 0; k < 4; k++)
            l->bias[k] = rand_array(k == 0 ? H * DH : k == 3 ? D : C * DH);
        for (int k = 0; k < 2; k++) {
            l->norm[k] = rand_array(D);
            l->head_norm[k] = rand_array(DH);
        }
        l->sink = rand_array(H);
        l->ffn_bias[0] = rand_array(2 * F);
        l->ffn_bias[1] = rand_array(D);
    }
    w->freq = rand_array(ROPE / 2);
    w->zero = get_mem(sizeof(float) * D);
    for (int s = 0; s < SEQ; s++)
        w->x[s] = rand_array(LEN * D);
    return w;
}

/* What a device lacks is named with its layer, and nothing is left open. */
static void check_refused(void)
{
    static const struct shape p = {.split = -1};
    struct dev_op op[L * 20];
    struct weights *w = make_weights(0);
    struct rig r;
    sl_err err = {0};
    dev_prog *prog = NULL;
    rig_open(&r, w, &p, 1, 0);
    int n = layers(&r, op), last = n - 1;
    while (op[last].kind != DEV_OP_rope)
        last--;
    op[last].u.rope.n_rot = DH + 2;
    sl_status st = dev_prog_open(r.d, op, n, &prog, &err);
    if (st != SL_UNSUPPORTED || prog || !strstr(err.text, "layer 2") || !strstr(err.text, "'rope'"))
        FAIL("a rotation that is too wide: %s: %s", status_text(st), err.text);
    op[last] = (struct dev_op){.kind = DEV_OP_route,
                               .layer = -1,
                               .u.route = {.n_expert = 8, .k = 3, .n_group = 4, .k_group = 1}};
    st = dev_prog_open(r.d, op, n, &prog, &err);
    if (st != SL_UNSUPPORTED || prog || !strstr(err.text, "outside of the layers") ||
        !strstr(err.text, "'route'"))
        FAIL("a router with too few experts to choose from: %s: %s", status_text(st), err.text);
    dev_close(r.d);
}

void check_prog(void)
{
    static const enum dev_acts acts[] = {DEV_ACTS_AUTO, DEV_ACTS_INT8, DEV_ACTS_AUTO,
                                         DEV_ACTS_F32,  DEV_ACTS_BF16, DEV_ACTS_AUTO};
    static const int kinds[][2] = {{GQA, DENSE},          {GQA, MOE},
                                   {GQA, MOE_SHARED},     {MLA, DENSE},
                                   {MLA_Q_A, MOE_SHARED}, {MLA, MOE}};
    enum { N_ROUND = 6 * BASE_COUNT_OF(kinds) };
    dev_slots_init(&slots, E);
    for (int round = 0; round < N_ROUND; round++) {
        struct weights *w = make_weights(round);
        struct shape p = {.acts = acts[round % 6],
                          .mixer = kinds[round / 6][0],
                          .ffn = kinds[round / 6][1],
                          .sigmoid = round & 1,
                          .slots = round % 6 > 2,
                          .kv = (enum dev_kv_type)(round % 4),
                          .n_window = round / 6 < 2 && round % 3 == 2 ? 150 : 0,
                          .style = round & 1,
                          .head_norm = round % 4 < 2,
                          .bias = round % 3 == 1,
                          .sink = round % 2,
                          .glu = round % 3 == 0,
                          .split = round % 6 < 3 ? round % 6 - 1 : -1};
        int len[SEQ];
        float *want[SEQ], *got[SEQ];
        struct rig r[5];
        for (int s = 0; s < SEQ; s++) {
            len[s] = s == 0 ? rand_int(140, LEN) : rand_int(1, 60);
            want[s] = get_mem(sizeof(float) * LEN * 2 * D);
            got[s] = get_mem(sizeof(float) * LEN * 2 * D);
        }
        for (int i = 0; i < 5; i++)
            rig_open(&r[i], w, &p, i ? i : 2, i > 0);
        play(&r[0], len, want);
        for (int trial = 0; trial < 4; trial++) {
            play(&r[1 + trial], len, got);
            if (memcmp(r[0].count, r[1 + trial].count, sizeof *r[0].count * L * E) != 0)
                FAIL("layers together: other counts of experts");
            for (int s = 0; s < SEQ; s++)
                same_bits("layers together", got[s], want[s], (int64_t)len[s] * 2 * D);
        }
        for (int s = 0; s < SEQ; s++)
            for (int i = 0; i < len[s] * 2 * D; i++)
                if (!isfinite(want[s][i])) {
                    FAIL("a result is not finite: sequence %d value %d", s, i);
                    break;
                }
        for (int i = 0; i < 5; i++) {
            dev_prog_close(r[i].prog);
            dev_close(r[i].d);
        }
    }
    check_refused();
}
