/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are run together (dev_layers) give the bits of the operators one by one, for any
 * division of sequences into steps, with 1 to 4 threads. */
#include "check.h"

enum { L = 3, D = 96, H = 6, C = 3, DH = 16, F = 160, ROPE = 12 };
enum { SEQ = 3, LEN = 300, T_MAX = 64, BLK = 32, LD = LEN / BLK + 1, N_BLK = SEQ * LD + 3 };

struct layer_weights {
    struct weight q, k, v, o, gate, up, down;
    float *norm[2], *head_norm[2], *bias[4];
};
struct weights {
    struct layer_weights of[L];
    float *freq, *x[SEQ];
};
struct shape {
    enum dev_acts acts;
    enum dev_kv_type kv;
    int n_window, style, head_norm, bias;
};

struct layer_mats {
    dev_mat *q, *k, *v, *o, *gu, *down;
};
struct rig {
    dev *d;
    dev_kv *kv;
    dev_stack *stack; /* NULL: one by one */
    struct layer_mats of[L];
    dev_act *act, *oact, *hact;
    const struct shape *p;
    const struct weights *w;
};

static dev_mat *load(dev *d, const struct weight *w, const struct weight *w2)
{
    dev_mat *m = NULL;
    MUST(dev_mat_load(d, w, w2, 1, DEV_USE_MATMUL, NULL, NULL, &m, &err_));
    return m;
}

static dev_act *act(dev *d, const dev_mat *const *m, int n, int n_col)
{
    dev_act *a = NULL;
    MUST(dev_act_open(d, m, n, n_col, T_MAX, &a, &err_));
    return a;
}

static void stack_open(struct rig *r)
{
    struct dev_stack_layer l[L];
    for (int i = 0; i < L; i++) {
        const struct layer_weights *w = &r->w->of[i];
        const struct layer_mats *m = &r->of[i];
        l[i] = (struct dev_stack_layer){.attn_norm = w->norm[0],
                                        .ffn_norm = w->norm[1],
                                        .q = m->q,
                                        .k = m->k,
                                        .v = m->v,
                                        .o = m->o,
                                        .gate_up = m->gu,
                                        .down = m->down};
        if (r->p->head_norm) {
            l[i].q_norm = w->head_norm[0];
            l[i].k_norm = w->head_norm[1];
        }
        if (r->p->bias) {
            l[i].q_bias = w->bias[0];
            l[i].k_bias = w->bias[1];
            l[i].v_bias = w->bias[2];
            l[i].o_bias = w->bias[3];
        }
    }
    struct dev_stack_shape s = {.n_layer = L,
                                .layer = l,
                                .n_head = H,
                                .n_head_kv = C,
                                .d_head = DH,
                                .n_window = r->p->n_window,
                                .eps = 1e-5f,
                                .scale = 0.2f,
                                .n_rot = ROPE,
                                .rope_style = r->p->style,
                                .freq = r->w->freq,
                                .mscale = 1.1f};
    MUST(dev_stack_open(r->d, &s, &r->stack, &err_));
    if (dev_stack_tok_max(r->stack) < 1) FAIL("the device runs no layers together");
}

static void rig_open(struct rig *r, const struct weights *w, const struct shape *p, int n_thread,
                     int together)
{
    *r = (struct rig){.p = p, .w = w};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread, .acts = p->acts}, &r->d, &err_));
    const dev_mat *in[5 * L], *o[L], *down[L];
    for (int i = 0; i < L; i++) {
        const struct layer_weights *lw = &w->of[i];
        struct layer_mats *m = &r->of[i];
        in[5 * i] = m->q = load(r->d, &lw->q, NULL);
        in[5 * i + 1] = m->k = load(r->d, &lw->k, NULL);
        in[5 * i + 2] = m->v = load(r->d, &lw->v, NULL);
        in[5 * i + 3] = m->gu = load(r->d, &lw->gate, &lw->up);
        in[5 * i + 4] = NULL;
        o[i] = m->o = load(r->d, &lw->o, NULL);
        down[i] = m->down = load(r->d, &lw->down, NULL);
    }
    r->act = act(r->d, in, 5 * L, D);
    r->oact = act(r->d, o, L, H * DH);
    r->hact = act(r->d, down, L, F);
    struct dev_kv_shape s = {p->kv, L, N_BLK, BLK, C, DH, DH};
    MUST(dev_kv_open(r->d, &s, &r->kv, &err_));
    struct dev_plan plan = {
        .n_tok = T_MAX, .n_seq = SEQ, .n_ctx = LEN, .n_head = H, .d_k = DH, .d_v = DH};
    MUST(dev_reserve(r->d, &plan, &err_));
    if (together) stack_open(r);
}

static void head_norm(struct rig *r, const struct dev_step *b, float *x, const float *w, int n)
{
    dev_norm(
        r->d, b,
        &(struct dev_norm){.x = x, .w = w, .eps = 1e-5f, .n = DH, .n_row = b->n_tok * n, .y = x});
}

static void rotate(struct rig *r, const struct dev_step *b, float *x, int n)
{
    dev_rope(r->d, b,
             &(struct dev_rope){.x = x,
                                .n_head = n,
                                .ldx = n * DH,
                                .ldx_h = DH,
                                .n_rot = ROPE,
                                .style = r->p->style,
                                .freq = r->w->freq,
                                .mscale = 1.1f});
}

/* Layer i by operators. */
static void layer(struct rig *r, const struct dev_step *b, int i, float *x, float *y)
{
    static float q[T_MAX * H * DH], k[T_MAX * C * DH], v[T_MAX * C * DH], a[T_MAX * H * DH],
        h[T_MAX * F];
    const struct layer_weights *w = &r->w->of[i];
    const struct layer_mats *m = &r->of[i];
    int bias = r->p->bias;
    dev_norm(r->d, b,
             &(struct dev_norm){
                 .x = x, .r = i ? y : NULL, .w = w->norm[0], .eps = 1e-5f, .n = D, .act = r->act});
    dev_matmul(r->d, b,
               &(struct dev_matmul){.act = r->act,
                                    .n_mat = 3,
                                    .w = {m->q, m->k, m->v},
                                    .bias = {bias ? w->bias[0] : NULL, bias ? w->bias[1] : NULL,
                                             bias ? w->bias[2] : NULL},
                                    .y = {q, k, v}});
    if (r->p->head_norm) {
        head_norm(r, b, q, w->head_norm[0], H);
        head_norm(r, b, k, w->head_norm[1], C);
    }
    rotate(r, b, q, H);
    rotate(r, b, k, C);
    dev_kv_put(r->d, b,
               &(struct dev_kv_put){
                   .kv = r->kv, .layer = i, .k = k, .v = v, .ldk = C * DH, .ldv = C * DH});
    dev_attn(r->d, b,
             &(struct dev_attn){.kv = r->kv,
                                .layer = i,
                                .n_head = H,
                                .scale = 0.2f,
                                .q = q,
                                .y = a,
                                .n_window = r->p->n_window});
    dev_prep(r->d, b, &(struct dev_prep){.x = a, .n = H * DH, .act = r->oact});
    dev_matmul(
        r->d, b,
        &(struct dev_matmul){
            .act = r->oact, .n_mat = 1, .w = {m->o}, .bias = {bias ? w->bias[3] : NULL}, .y = {y}});
    dev_norm(
        r->d, b,
        &(struct dev_norm){.x = x, .r = y, .w = w->norm[1], .eps = 1e-5f, .n = D, .act = r->act});
    dev_ffn(
        r->d, b,
        &(struct dev_ffn){
            .act = r->act, .gate_up = m->gu, .down = m->down, .h_act = r->hact, .h = h, .y = y});
}

static void step(struct rig *r, const struct dev_step *b, float *x, float *y)
{
    if (b->n_tok <= dev_stack_tok_max(r->stack)) {
        dev_layers(r->d, b, &(struct dev_layers){.stack = r->stack, .kv = r->kv, .x = x, .r = y});
        return;
    }
    for (int i = 0; i < L; i++)
        layer(r, b, i, x, y);
}

/* Run the sequences by random steps, most of them of few tokens, and keep x and r of each token. */
static void play(struct rig *r, const int *len, float *out[SEQ])
{
    static float x[T_MAX * D], y[T_MAX * D];
    int32_t table[SEQ * LD], perm[N_BLK];
    int at[SEQ] = {0}, left = 0, n_small = 0;
    shuffled(perm, N_BLK);
    for (int i = 0; i < N_BLK; i++)
        dev_kv_poison(r->d, r->kv, i);
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
        n_small += total <= dev_stack_tok_max(r->stack);
        struct batch b = make_batch(SEQ, at, n_new, BLK, N_BLK, table, LD);
        for (int t = 0; t < total; t++)
            memcpy(x + t * D, r->w->x[b.seq[t]] + b.b.pos[t] * D, sizeof(float) * D);
        dev_step_begin(r->d, r->kv, &b.b);
        step(r, &b.b, x, y);
        for (int t = 0; t < total; t++) {
            float *to = out[b.seq[t]] + b.b.pos[t] * 2 * D;
            memcpy(to, x + t * D, sizeof(float) * D);
            memcpy(to + D, y + t * D, sizeof(float) * D);
        }
        for (int s = 0; s < SEQ; s++)
            at[s] += n_new[s];
        left -= total;
    }
    if (r->stack && n_small < 10) FAIL("only %d steps ran their layers together", n_small);
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
        for (int k = 0; k < 4; k++)
            l->bias[k] = rand_array(k == 0 ? H * DH : k == 3 ? D : C * DH);
        for (int k = 0; k < 2; k++) {
            l->norm[k] = rand_array(D);
            l->head_norm[k] = rand_array(DH);
        }
    }
    w->freq = rand_array(ROPE / 2);
    for (int s = 0; s < SEQ; s++)
        w->x[s] = rand_array(LEN * D);
    return w;
}

void check_stack(void)
{
    static const enum dev_acts acts[] = {DEV_ACTS_AUTO, DEV_ACTS_INT8, DEV_ACTS_AUTO,
                                         DEV_ACTS_F32,  DEV_ACTS_BF16, DEV_ACTS_AUTO};
    for (int round = 0; round < 6; round++) {
        struct weights *w = make_weights(round);
        struct shape p = {.acts = acts[round],
                          .kv = (enum dev_kv_type)(round % 4),
                          .n_window = round % 3 == 2 ? 150 : 0,
                          .style = round & 1,
                          .head_norm = round % 4 < 2,
                          .bias = round % 3 == 1};
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
        for (int trial = 0; trial < 8; trial++) {
            play(&r[1 + trial % 4], len, got);
            for (int s = 0; s < SEQ; s++)
                same_bits("layers together", got[s], want[s], (int64_t)len[s] * 2 * D);
        }
        for (int s = 0; s < SEQ; s++)
            for (int i = 0; i < len[s] * 2 * D; i++)
                if (!isfinite(want[s][i])) {
                    FAIL("a result is not finite: sequence %d value %d", s, i);
                    break;
                }
        for (int i = 0; i < 5; i++)
            dev_close(r[i].d);
    }
}
