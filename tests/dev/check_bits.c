/* SPDX-License-Identifier: Apache-2.0 */
/* The same token gives the same bits alone and in company, in one chunk or in many, with 1 to 4
 * threads, wherever its blocks lie. One layer of every operator runs over random schedules of
 * random sequences, with 1 to 33 heads: every form of activations by every cache type, GQA and MLA
 * (or those that --acts and --kv name). Faults: every allocation of opening and loading fails
 * once. */
#include "check.h"

enum { D = 64, H_MAX = 33, F = 96, E = 6, K = 2, ROPE = 8 };
enum { SEQ = 4, LEN = 280, T_MAX = 320, BLK = 32, LD = LEN / BLK + 1, N_BLK = SEQ * LD + 5 };

/* A cache of one group. */
#define SHAPE(type, blk_tok, ...)                                                                  \
    &(struct dev_kv_shape)                                                                         \
    {                                                                                              \
        type, blk_tok, 1,                                                                          \
        {                                                                                          \
            {                                                                                      \
                DEV_KV_PAGED, __VA_ARGS__                                                          \
            }                                                                                      \
        }                                                                                          \
    }

/* Of attention. GQA: n_head_kv heads of keys and values of width d; MLA: the latent's width r, and
 * what a head adds to its ROPE and makes of it. */
struct shape {
    int is_mla, n_head, n_head_kv, d, r, nope, v, n_window;
    int n_q, n_k, n_out; /* widths of queries, of keys in the cache's row, of the result */
};

struct weights {
    struct shape s;
    struct weight q, k, v, o, gate, up, down, router, eg[E], eu[E], ed[E], wkb[H_MAX], wvb[H_MAX];
    float *norm, *freq, *x[SEQ]; /* x: [LEN][D] layer input of each sequence */
    /* in every other layer with keys and values per head, else NULL and 0 */
    float *sink, *gate_up_bias, *down_bias;
    struct glu glu;
};

/* One device with the layer on it. */
struct rig {
    dev *d;
    dev_kv *kv;
    dev_mat *q, *k, *v, *o, *gu, *down, *router, *egu, *ed, *wkb, *wvb;
    dev_act *act, *oact, *hact;
};

static dev_mat *load(dev *d, const struct weight *w, const struct weight *w2, int n,
                     enum dev_use use)
{
    dev_mat *m = NULL;
    MUST(dev_mat_load(d, &(struct dev_weights){.first = w, .second = w2, .n = n, .use = use}, &m,
                      &err_));
    return m;
}

static void rig_open(struct rig *r, const struct weights *w, int n_thread, enum dev_acts acts,
                     enum dev_kv_type type)
{
    const struct shape *a = &w->s;
    *r = (struct rig){0};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread, .acts = acts}, &r->d, &err_));
    r->q = load(r->d, &w->q, NULL, 1, DEV_USE_MATMUL);
    r->k = load(r->d, &w->k, NULL, 1, DEV_USE_MATMUL);
    r->o = load(r->d, &w->o, NULL, 1, DEV_USE_MATMUL);
    r->gu = load(r->d, &w->gate, &w->up, 1, DEV_USE_MATMUL);
    r->down = load(r->d, &w->down, NULL, 1, DEV_USE_MATMUL);
    r->router = load(r->d, &w->router, NULL, 1, DEV_USE_EXACT);
    r->egu = load(r->d, w->eg, w->eu, E, DEV_USE_EXPERTS);
    r->ed = load(r->d, w->ed, NULL, E, DEV_USE_EXPERTS);
    for (int i = 0; i < 2; i++) {
        const struct dev_epilogue up = {w->gate_up_bias, i ? E : 1, 2 * F, NULL, w->glu},
                                  down = {.bias = w->down_bias, .n_bias = i ? E : 1, .n_row = D};
        end_with(i ? r->egu : r->gu, up);
        end_with(i ? r->ed : r->down, down);
    }
    const dev_mat *in[6] = {r->q, r->k, r->gu, r->router, r->egu};
    if (a->is_mla) {
        r->wkb = load(r->d, w->wkb, NULL, a->n_head, DEV_USE_EXACT);
        r->wvb = load(r->d, w->wvb, NULL, a->n_head, DEV_USE_EXACT);
    } else {
        in[5] = r->v = load(r->d, &w->v, NULL, 1, DEV_USE_MATMUL);
    }
    MUST(dev_act_open(r->d, &(struct dev_inputs){in, a->is_mla ? 5 : 6, D, T_MAX}, &r->act, &err_));
    MUST(dev_act_open(r->d, &(struct dev_inputs){(const dev_mat *const *)&r->o, 1, a->n_out, T_MAX},
                      &r->oact, &err_));
    MUST(dev_act_open(r->d, &(struct dev_inputs){(const dev_mat *const *)&r->down, 1, F, T_MAX},
                      &r->hact, &err_));
    struct dev_kv_group group = {DEV_KV_PAGED,        1, N_BLK, a->n_head_kv, a->n_k / a->n_head_kv,
                                 a->is_mla ? 0 : a->d, 0, {{0}}};
    struct dev_kv_shape s = {type, BLK, 1, {group}};
    MUST(dev_kv_open(r->d, &s, &r->kv, &err_));
    struct dev_op op[] = {
        {.kind = DEV_OP_attn, .u.attn = {.n_head = a->n_head, .d_k = a->d, .d_v = a->d}},
        {.kind = DEV_OP_rope, .u.rope = {.n_rot = ROPE}},
        {.kind = DEV_OP_moe, .u.moe = {.k = K, .n_expert = E, .gate_up = r->egu, .down = r->ed}}};
    if (a->is_mla)
        op[0] = (struct dev_op){
            .kind = DEV_OP_attn_mla,
            .u.attn_mla = {
                .n_head = a->n_head, .r = a->r, .nope = a->nope, .rope = ROPE, .v = a->v}};
    struct dev_limits max = {.n_tok = T_MAX, .n_seq = SEQ, .n_ctx = LEN};
    MUST(dev_reserve(r->d, op, 3, &max, &err_));
}

static void rotate(struct rig *r, const struct weights *w, const struct dev_step *b, float *x,
                   int n_head, int ldx)
{
    dev_rope(r->d, b,
             &(struct dev_rope){.x = x,
                                .n_head = n_head,
                                .ldx = ldx,
                                .ldx_h = n_head > 1 ? ldx / n_head : 0,
                                .n_rot = ROPE,
                                .style = w->s.is_mla,
                                .freq = w->freq,
                                .mscale = 1});
}

static void attention(struct rig *r, const struct weights *w, const struct dev_step *b, float *y)
{
    static float q[T_MAX * H_MAX * 80], k[T_MAX * H_MAX * 40], v[T_MAX * H_MAX * 40];
    const struct shape *a = &w->s;
    int H = a->n_head, C = a->n_head_kv;
    dev_matmul(
        r->d, b,
        &(struct dev_matmul){
            .act = r->act, .n_mat = a->is_mla ? 2 : 3, .w = {r->q, r->k, r->v}, .y = {q, k, v}});
    if (a->is_mla) {
        rotate(r, w, b, q + a->nope, H, a->n_q);
        rotate(r, w, b, k + a->r, 1, a->n_k);
        dev_kv_put(r->d, b, &(struct dev_kv_put){.kv = r->kv, .k = k, .ldk = a->n_k});
        dev_attn_mla(r->d, b,
                     &(struct dev_attn_mla){.kv = r->kv,
                                            .n_head = H,
                                            .r = a->r,
                                            .nope = a->nope,
                                            .rope = ROPE,
                                            .v = a->v,
                                            .scale = 0.2f,
                                            .w_kb = r->wkb,
                                            .w_vb = r->wvb,
                                            .q = q,
                                            .y = y});
        return;
    }
    rotate(r, w, b, q, H, a->n_q);
    rotate(r, w, b, k, C, a->n_k);
    dev_kv_put(r->d, b,
               &(struct dev_kv_put){.kv = r->kv, .k = k, .v = v, .ldk = a->n_k, .ldv = a->n_k});
    dev_attn(r->d, b,
             &(struct dev_attn){.kv = r->kv,
                                .n_head = H,
                                .d_k = a->d,
                                .d_v = a->d,
                                .scale = 0.25f,
                                .q = q,
                                .y = y,
                                .n_window = a->n_window,
                                .per_head.of[PER_HEAD_SINKS] = w->sink});
}

/* The layer on a batch: x [T, D] in and out. */
static void layer(struct rig *r, const struct weights *w, const struct dev_step *b, float *x)
{
    static float a[T_MAX * H_MAX * 40], y[T_MAX * D], h[T_MAX * F], logit[T_MAX * E],
        weight[T_MAX * K];
    static int32_t id[T_MAX * K];
    dev *d = r->d;
    int n_out = w->s.n_out;
    dev_norm(d, b, &(struct dev_norm){.x = x, .w = w->norm, .eps = 1e-5f, .n = D, .act = r->act});
    attention(r, w, b, a);
    dev_prep(d, b, &(struct dev_prep){.x = a, .n = n_out, .act = r->oact});
    dev_matmul(d, b, &(struct dev_matmul){.act = r->oact, .n_mat = 1, .w = {r->o}, .y = {y}});
    dev_norm(d, b,
             &(struct dev_norm){.x = x, .r = y, .w = w->norm, .eps = 1e-5f, .n = D, .act = r->act});
    dev_matmul(d, b,
               &(struct dev_matmul){.act = r->act, .n_mat = 1, .w = {r->router}, .y = {logit}});
    dev_route(d, b,
              &(struct dev_route){.logit = logit,
                                  .n_expert = E,
                                  .k = K,
                                  .n_group = 2,
                                  .k_group = 1,
                                  .norm = 1,
                                  .scale = 1,
                                  .id = id,
                                  .weight = weight});
    dev_ffn(d, b,
            &(struct dev_ffn){.act = r->act,
                              .gate_up = r->gu,
                              .down = r->down,
                              .h_act = r->hact,
                              .h = h,
                              .y = y});
    dev_moe(d, b,
            &(struct dev_moe){.act = r->act,
                              .k = K,
                              .n_expert = E,
                              .id = id,
                              .weight = weight,
                              .gate_up = r->egu,
                              .down = r->ed,
                              .add = y,
                              .y = y});
    dev_add(d, b, &(struct dev_add){.x = x, .y = y, .n = D});
}

/* Run sequences of len[] tokens by steps of random composition (or whole, one after another) and
 * keep each token's result in out[s]. n_prompt decides MLA's form by position. */
static void play(struct rig *r, const struct weights *w, const int *len, const int *n_prompt,
                 int whole, float *out[SEQ])
{
    int32_t table[SEQ * LD], perm[N_BLK];
    int at[SEQ] = {0}, left = 0;
    if (!whole) shuffled(perm, N_BLK);
    for (int i = 0; i < N_BLK; i++) {
        if (whole) perm[i] = i;
        dev_kv_poison(r->d, r->kv, 0, i);
    }
    memcpy(table, perm, sizeof table);
    for (int s = 0; s < SEQ; s++)
        left += len[s];
    float *x = malloc(sizeof(float) * T_MAX * D);
    for (int turn = 0; left > 0; turn++) {
        int n_new[SEQ] = {0}, total = 0;
        for (int s = 0; s < SEQ; s++) {
            int rest = len[s] - at[s], kind = rand_int(0, 3);
            if (whole)
                n_new[s] = turn == s ? rest : 0;
            else
                n_new[s] = kind == 0 ? 0 : kind == 1 ? 1 : rand_int(0, rand_int(1, 100));
            if (n_new[s] > rest) n_new[s] = rest;
            if (n_new[s] > T_MAX - total) n_new[s] = T_MAX - total;
            total += n_new[s];
        }
        if (total == 0) continue;
        struct batch b = make_batch(SEQ, at, n_new, BLK, table, LD);
        for (int t = 0; t < total; t++)
            memcpy(x + t * D, w->x[b.seq[t]] + b.b.pos[t] * D, sizeof(float) * D);
        b.b.n_prompt = n_prompt;
        dev_step_begin(r->d, r->kv, &b.b);
        layer(r, w, &b.b, x);
        for (int t = 0; t < total; t++)
            memcpy(out[b.seq[t]] + b.b.pos[t] * D, x + t * D, sizeof(float) * D);
        for (int s = 0; s < SEQ; s++)
            at[s] += n_new[s];
        left -= total;
    }
    free(x);
}

/* A shape of attention: every count of heads from 1 to 33 may come. */
static struct shape draw_shape(int is_mla)
{
    struct shape a = {.is_mla = is_mla, .n_head = rand_int(1, H_MAX), .n_head_kv = 1};
    if (is_mla) {
        a.r = 16 * rand_int(2, 4);
        a.nope = 8 * rand_int(1, 4);
        a.v = 8 * rand_int(1, 4);
        a.n_q = a.n_head * (a.nope + ROPE);
        a.n_k = a.r + ROPE;
        a.n_out = a.n_head * a.v;
        return a;
    }
    do
        a.n_head_kv = rand_int(1, a.n_head);
    while (a.n_head % a.n_head_kv);
    a.d = 8 * rand_int(1, 5);
    a.n_window = rand_int(0, 1) ? 150 : 0;
    a.n_q = a.n_out = a.n_head * a.d;
    a.n_k = a.n_head_kv * a.d;
    return a;
}

static struct weights *make_weights(int is_mla)
{
    struct weights *w = get_mem(sizeof *w);
    struct shape *a = &w->s;
    *a = draw_shape(is_mla);
    w->q = rand_weight(is_mla ? TENSOR_Q8_0 : TENSOR_Q4_0, a->n_q, D);
    w->k = rand_weight(TENSOR_Q8_0, a->n_k, D);
    w->v = rand_weight(TENSOR_BF16, a->n_k, D);
    w->o = rand_weight(a->n_out % 32 ? TENSOR_BF16 : TENSOR_Q4_0, D, a->n_out);
    w->gate = rand_weight(TENSOR_Q4_0, F, D);
    w->up = rand_weight(TENSOR_Q4_0, F, D);
    w->down = rand_weight(TENSOR_Q8_0, D, F);
    w->router = rand_weight(TENSOR_F32, E, D);
    for (int e = 0; e < E; e++) {
        w->eg[e] = rand_weight(TENSOR_Q4_0, F, D);
        w->eu[e] = rand_weight(TENSOR_Q4_0, F, D);
        w->ed[e] = rand_weight(TENSOR_Q8_0, D, F);
    }
    for (int h = 0; is_mla && h < a->n_head; h++) {
        int exact = a->nope % 32 || a->r % 32;
        w->wkb[h] = rand_weight(exact ? TENSOR_BF16 : TENSOR_Q8_0, a->r, a->nope);
        w->wvb[h] = rand_weight(exact ? TENSOR_BF16 : TENSOR_Q8_0, a->v, a->r);
    }
    if (!is_mla && rand_int(0, 1)) {
        w->sink = rand_array(a->n_head);
        w->gate_up_bias = rand_array(E * 2 * F);
        w->down_bias = rand_array(E * D);
        w->glu = (struct glu){.limit = 1.5f, .alpha = 1.702f, .plus = 1};
    }
    w->norm = rand_array(D);
    w->freq = rand_array(ROPE);
    for (int s = 0; s < SEQ; s++)
        w->x[s] = rand_array(LEN * D);
    return w;
}

/* One shape in one numeric form. */
static void check_form(int is_mla, enum dev_acts acts, enum dev_kv_type type)
{
    struct weights *w = make_weights(is_mla);
    int len[SEQ], n_prompt[SEQ];
    float *want[SEQ], *got[SEQ];
    struct rig r[4];
    char what[80];
    snprintf(what, sizeof what, "%s layer, acts %d, kv %d, heads %d of %d", is_mla ? "mla" : "gqa",
             (int)acts, (int)type, w->s.n_head, w->s.n_head_kv);
    for (int s = 0; s < SEQ; s++) {
        len[s] = rand_int(1, s == 0 ? LEN : 60);
        n_prompt[s] = rand_int(0, len[s]);
        want[s] = get_mem(sizeof(float) * LEN * D);
        got[s] = get_mem(sizeof(float) * LEN * D);
    }
    for (int i = 0; i < 4; i++)
        rig_open(&r[i], w, 1 + i, acts, type);
    play(&r[0], w, len, n_prompt, 1, want);
    for (int trial = 0; trial < 4; trial++) {
        play(&r[trial % 4], w, len, n_prompt, 0, got);
        for (int s = 0; s < SEQ; s++)
            same_bits(what, got[s], want[s], (int64_t)len[s] * D);
    }
    for (int s = 0; s < SEQ; s++)
        for (int i = 0; i < len[s] * D; i++)
            if (!isfinite(want[s][i])) {
                FAIL("%s: a result is not finite: sequence %d value %d", what, s, i);
                break;
            }
    for (int i = 0; i < 4; i++)
        dev_close(r[i].d);
    free_all();
}

void check_bits(void)
{
    static const enum dev_acts acts[] = {DEV_ACTS_AUTO, DEV_ACTS_INT8, DEV_ACTS_BF16, DEV_ACTS_F32};
    for (int is_mla = 0; is_mla < 2; is_mla++)
        for (int a = 0; a < 4; a++)
            for (int t = 0; t < 4; t++) {
                if ((g.acts >= 0 && g.acts != (int)acts[a]) || (g.kv >= 0 && g.kv != t)) continue;
                for (int shape = 0; shape < 3; shape++)
                    check_form(is_mla, acts[a], (enum dev_kv_type)t);
            }
}

/* ---- faults ---- */
static int64_t dropped;
static void count_drop(void *user, const struct weight *w)
{
    const struct weight *all = user;
    if (w->data < all->data || w->data + (uint64_t)w->rows * w->row_bytes >
                                   all->data + (uint64_t)all->rows * all->row_bytes)
        FAIL("drop: rows outside the weight");
    dropped += w->rows;
}

static sl_status open_all(const struct weight *w, sl_err *err)
{
    dev *d = NULL;
    dev_mat *m = NULL;
    dev_act *a = NULL;
    dev_kv *kv = NULL;
    void *p = NULL;
    const struct dev_op all[] = {
        {.kind = DEV_OP_attn, .u.attn = {.n_head = 2, .d_k = 64, .d_v = 64}},
        {.kind = DEV_OP_attn_mla,
         .u.attn_mla = {.n_head = 2, .r = 32, .nope = 32, .rope = 8, .v = 64}},
        {.kind = DEV_OP_rope, .u.rope = {.n_rot = 64}},
        {.kind = DEV_OP_route, .u.route = {.n_expert = 2, .k = 1}}};
    sl_status st = dev_open("cpu", &(struct dev_opts){.n_thread = 2}, &d, err);
    if (st == SL_OK)
        st = dev_mat_load(
            d,
            &(struct dev_weights){
                .first = w, .n = 1, .use = DEV_USE_MATMUL, .drop = count_drop, .user = (void *)w},
            &m, err);
    if (st == SL_OK)
        st = dev_act_open(d, &(struct dev_inputs){(const dev_mat *const *)&m, 1, (int)w->cols, 8},
                          &a, err);
    if (st == SL_OK) st = dev_alloc(d, MEM_ACTS, 1000, &p, err);
    if (st == SL_OK)
        st = dev_kv_open(d, SHAPE(DEV_KV_BF16, 16, 1, 4, 1, 64, 64, 0, {{0}}), &kv, err);
    if (st == SL_OK)
        st = dev_reserve(d, all, BASE_COUNT_OF(all),
                         &(struct dev_limits){.n_tok = 8, .n_seq = 1, .n_ctx = 64}, err);
    dev_close(d);
    return st;
}

static void want_status(const char *what, sl_status got, sl_status want, const sl_err *err)
{
    g.n_checked++;
    if (got != want) FAIL("%s: %s, want %s", what, status_text(got), status_text(want));
    if (want != SL_OK && !err->text[0]) FAIL("%s: no text", what);
}

void check_faults(void)
{
    struct weight w = rand_weight(TENSOR_Q8_0, 1000, 64), other = rand_weight(TENSOR_Q8_0, 999, 64);
    sl_err err = {0};
    int64_t used[MEM_N_TAG];
    for (int i = 0; i < MEM_N_TAG; i++)
        used[i] = mem_used((enum mem_tag)i);
    int n_failed = 0;
    for (unsigned k = 1; k < 1000; k++) {
        uint64_t n_alloc = mem_n_alloc();
        mem_fail_at(k, 0);
        err = (sl_err){0};
        sl_status st = open_all(&w, &err);
        mem_fail_at(0, 0);
        for (int i = 0; i < MEM_N_TAG; i++)
            if (mem_used((enum mem_tag)i) != used[i])
                FAIL("allocation %u: %s leaked", k, mem_tag_text((enum mem_tag)i));
        if (mem_n_alloc() - n_alloc < k) break; /* there is no k-th */
        if (st == SL_OK) continue;              /* without a list of CPUs the team is not pinned */
        n_failed++;
        want_status("failed allocation", st, SL_NOMEM, &err);
    }
    if (n_failed < 20) FAIL("only %d allocations", n_failed);
    dropped = 0;
    want_status("open", open_all(&w, &err), SL_OK, &err);
    if (dropped != 1000) FAIL("drop: %lld of 1000 rows", (long long)dropped);
    dev *d = NULL;
    dev_mat *m = NULL;
    dev_kv *kv = NULL;
    want_status("unknown device", dev_open("abacus", NULL, &d, &err), SL_UNSUPPORTED, &err);
    want_status("option of a device", dev_open("cpu:fast", NULL, &d, &err), SL_REQUEST, &err);
    MUST(dev_open("cpu", NULL, &d, &err_));
    struct dev_weights of = {.first = &w, .second = &other, .n = 1, .use = DEV_USE_MATMUL};
    want_status("shapes differ", dev_mat_load(d, &of, &m, &err), SL_FORMAT, &err);
    struct weight ints = {.name = "ints",
                          .type = TENSOR_I32,
                          .rows = 4,
                          .cols = 4,
                          .data = w.data,
                          .row_bytes = 16,
                          .tensor_scale = 1};
    of = (struct dev_weights){.first = &ints, .n = 1, .use = DEV_USE_MATMUL};
    want_status("integers", dev_mat_load(d, &of, &m, &err), SL_UNSUPPORTED, &err);
    ints.rows = 0;
    want_status("no rows", dev_mat_load(d, &of, &m, &err), SL_FORMAT, &err);
    want_status("kv of 24 tokens",
                dev_kv_open(d, SHAPE(DEV_KV_BF16, 24, 1, 4, 1, 64, 64, 0, {{0}}), &kv, &err),
                SL_REQUEST, &err);
    want_status("kv without blocks",
                dev_kv_open(d, SHAPE(DEV_KV_BF16, 16, 1, 0, 1, 64, 64, 0, {{0}}), &kv, &err),
                SL_REQUEST, &err);
    want_status("kv beyond memory",
                dev_kv_open(d,
                            SHAPE(DEV_KV_F32, 1 << 14, 1 << 20, 1 << 30, 64, 512, 512, 0, {{0}}),
                            &kv, &err),
                SL_NOMEM, &err);
    want_status("empty limits", dev_reserve(d, NULL, 0, &(struct dev_limits){0}, &err), SL_REQUEST,
                &err);
    double read = dev_probe_read_gbps(d, 20), int8 = dev_probe_int8_gops(d, 20);
    g.n_checked++;
    printf("         probes: read %.1f GB/s, int8 %.0f Gop/s\n", read, int8);
    if (!(read > 0.01 && read < 10000) || !(int8 > 0.01 && int8 < 1e6)) FAIL("probes");
    want_status("kv",
                dev_kv_open(d, SHAPE(DEV_KV_F32, 16, 1, 4, 1, 64, 64, 0, {{0}}), &kv, &err), SL_OK,
                &err);
    double attn = dev_probe_attn_gops(d, kv, 20);
    if (!(attn > 0.01 && attn < 1e6)) FAIL("probe of attention's arithmetic");
    dev_close(d);
    dev_close(NULL);
}
