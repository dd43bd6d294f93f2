/* SPDX-License-Identifier: Apache-2.0 */
/* The same token gives the same bits alone and in company, in one chunk or in many, with 1 to 4
 * threads, wherever its blocks lie. One layer of every operator runs over random schedules of
 * random sequences. Faults: every allocation of opening and loading fails once. */
#include "check.h"

enum {
    D = 64,
    H = 4,
    C = 2,
    DH = 16,
    F = 96,
    E = 6,
    K = 2,
    R = 64,
    NOPE = 32,
    ROPE = 8,
    V = 16,
    QD = NOPE + ROPE
};
enum { SEQ = 4, LEN = 280, T_MAX = 320, BLK = 32, LD = LEN / BLK + 1, N_BLK = SEQ * LD + 5 };

struct weights {
    struct weight q, k, v, o, gate, up, down, router, eg[E], eu[E], ed[E], mq, mkv, mo, wkb[H],
        wvb[H];
    float *norm, *freq, *x[SEQ]; /* x: [LEN][D] layer input of each sequence */
};

/* One device with the layer on it. */
struct rig {
    dev *d;
    dev_kv *kv;
    dev_mat *q, *k, *v, *o, *gu, *down, *router, *egu, *ed, *mq, *mkv, *mo, *wkb, *wvb;
    dev_act *act, *oact, *hact;
    int mla;
};

static dev_mat *load(dev *d, const struct weight *w, const struct weight *w2, int n,
                     enum dev_use use)
{
    dev_mat *m = NULL;
    MUST(dev_mat_load(d, w, w2, n, use, NULL, NULL, &m, &err_));
    return m;
}

static void rig_open(struct rig *r, const struct weights *w, int n_thread, int mla,
                     enum dev_acts acts, enum dev_kv_type type)
{
    *r = (struct rig){.mla = mla};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread, .acts = acts}, &r->d, &err_));
    r->q = load(r->d, mla ? &w->mq : &w->q, NULL, 1, DEV_USE_MATMUL);
    r->k = load(r->d, mla ? &w->mkv : &w->k, NULL, 1, DEV_USE_MATMUL);
    r->v = load(r->d, &w->v, NULL, 1, DEV_USE_MATMUL);
    r->o = load(r->d, mla ? &w->mo : &w->o, NULL, 1, DEV_USE_MATMUL);
    r->gu = load(r->d, &w->gate, &w->up, 1, DEV_USE_MATMUL);
    r->down = load(r->d, &w->down, NULL, 1, DEV_USE_MATMUL);
    r->router = load(r->d, &w->router, NULL, 1, DEV_USE_EXACT);
    r->egu = load(r->d, w->eg, w->eu, E, DEV_USE_EXPERTS);
    r->ed = load(r->d, w->ed, NULL, E, DEV_USE_EXPERTS);
    r->wkb = load(r->d, w->wkb, NULL, H, DEV_USE_EXACT);
    r->wvb = load(r->d, w->wvb, NULL, H, DEV_USE_EXACT);
    const dev_mat *in[] = {r->q, r->k, r->v, r->gu, r->router, r->egu};
    MUST(dev_act_open(r->d, in, 6, D, T_MAX, &r->act, &err_));
    MUST(dev_act_open(r->d, (const dev_mat *const *)&r->o, 1, H * DH, T_MAX, &r->oact, &err_));
    MUST(dev_act_open(r->d, (const dev_mat *const *)&r->down, 1, F, T_MAX, &r->hact, &err_));
    struct dev_kv_shape s = {type, 1, N_BLK, BLK, mla ? 1 : C, mla ? R + ROPE : DH, mla ? 0 : DH};
    MUST(dev_kv_open(r->d, &s, &r->kv, &err_));
    struct dev_plan p = {.n_tok = T_MAX,
                         .n_seq = SEQ,
                         .n_ctx = LEN,
                         .n_head = H,
                         .d_k = mla ? QD : DH,
                         .d_v = mla ? V : DH,
                         .mla_r = mla ? R : 0,
                         .mla_nope = NOPE,
                         .mla_rope = ROPE,
                         .n_expert = E,
                         .k = K,
                         .d_model = D,
                         .d_ff_expert = F};
    MUST(dev_reserve(r->d, &p, &err_));
}

static void attention(struct rig *r, const struct weights *w, const struct dev_batch *b, float *y)
{
    static float q[T_MAX * H * QD], k[T_MAX * (R + ROPE)], v[T_MAX * C * DH];
    if (r->mla) {
        dev_matmul(r->d, b,
                   &(struct dev_matmul){.act = r->act, .n_mat = 2, .w = {r->q, r->k}, .y = {q, k}});
        dev_rope(r->d, b,
                 &(struct dev_rope){.x = q + NOPE,
                                    .n_head = H,
                                    .ldx = H * QD,
                                    .ldx_h = QD,
                                    .n_rot = ROPE,
                                    .style = 1,
                                    .freq = w->freq,
                                    .mscale = 1});
        dev_rope(r->d, b,
                 &(struct dev_rope){.x = k + R,
                                    .n_head = 1,
                                    .ldx = R + ROPE,
                                    .ldx_h = 0,
                                    .n_rot = ROPE,
                                    .style = 1,
                                    .freq = w->freq,
                                    .mscale = 1});
        dev_kv_put(r->d, b, &(struct dev_kv_put){.kv = r->kv, .k = k, .ldk = R + ROPE});
        dev_attn_mla(r->d, b,
                     &(struct dev_attn_mla){.kv = r->kv,
                                            .n_head = H,
                                            .r = R,
                                            .nope = NOPE,
                                            .rope = ROPE,
                                            .v = V,
                                            .scale = 0.2f,
                                            .w_kb = r->wkb,
                                            .w_vb = r->wvb,
                                            .q = q,
                                            .y = y});
        return;
    }
    dev_matmul(
        r->d, b,
        &(struct dev_matmul){.act = r->act, .n_mat = 3, .w = {r->q, r->k, r->v}, .y = {q, k, v}});
    dev_rope(r->d, b,
             &(struct dev_rope){.x = q,
                                .n_head = H,
                                .ldx = H * DH,
                                .ldx_h = DH,
                                .n_rot = ROPE,
                                .freq = w->freq,
                                .mscale = 1});
    dev_rope(r->d, b,
             &(struct dev_rope){.x = k,
                                .n_head = C,
                                .ldx = C * DH,
                                .ldx_h = DH,
                                .n_rot = ROPE,
                                .freq = w->freq,
                                .mscale = 1});
    dev_kv_put(r->d, b,
               &(struct dev_kv_put){.kv = r->kv, .k = k, .v = v, .ldk = C * DH, .ldv = C * DH});
    dev_attn(r->d, b,
             &(struct dev_attn){
                 .kv = r->kv, .n_head = H, .scale = 0.25f, .q = q, .y = y, .n_window = 150});
}

/* The layer on a batch: x [T, D] in and out. */
static void layer(struct rig *r, const struct weights *w, const struct dev_batch *b, float *x)
{
    static float a[T_MAX * H * DH], y[T_MAX * D], h[T_MAX * F], logit[T_MAX * E], weight[T_MAX * K];
    static int32_t id[T_MAX * K];
    dev *d = r->d;
    dev_norm(d, b, &(struct dev_norm){.x = x, .w = w->norm, .eps = 1e-5f, .n = D, .act = r->act});
    attention(r, w, b, a);
    dev_prep(d, b, &(struct dev_prep){.x = a, .n = H * DH, .act = r->oact});
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
    dev_ffn(
        d, b,
        &(struct dev_ffn){
            .act = r->act, .gate_up = r->gu, .down = r->down, .h_act = r->hact, .h = h, .y = y});
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
    dev_add(d, b, &(struct dev_add){.x = x, .y = y, .n = (int64_t)b->n_tok * D});
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
        dev_kv_poison(r->d, r->kv, i);
    }
    memcpy(table, perm, sizeof table);
    for (int s = 0; s < SEQ; s++)
        left += len[s];
    float *x = malloc(sizeof(float) * T_MAX * D);
    uint8_t expand[T_MAX];
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
        struct batch b = make_batch(SEQ, at, n_new, BLK, N_BLK, table, LD);
        for (int t = 0; t < total; t++) {
            memcpy(x + t * D, w->x[b.b.seq[t]] + b.b.pos[t] * D, sizeof(float) * D);
            expand[t] = b.b.pos[t] < n_prompt[b.b.seq[t]];
        }
        b.b.expand = expand;
        layer(r, w, &b.b, x);
        for (int t = 0; t < total; t++)
            memcpy(out[b.b.seq[t]] + b.b.pos[t] * D, x + t * D, sizeof(float) * D);
        for (int s = 0; s < SEQ; s++)
            at[s] += n_new[s];
        left -= total;
    }
    free(x);
}

static struct weights *make_weights(void)
{
    struct weights *w = get_mem(sizeof *w);
    w->q = rand_weight(TENSOR_Q4_0, H * DH, D);
    w->k = rand_weight(TENSOR_Q8_0, C * DH, D);
    w->v = rand_weight(TENSOR_BF16, C * DH, D);
    w->o = rand_weight(TENSOR_Q4_0, D, H * DH);
    w->gate = rand_weight(TENSOR_Q4_0, F, D);
    w->up = rand_weight(TENSOR_Q4_0, F, D);
    w->down = rand_weight(TENSOR_Q8_0, D, F);
    w->router = rand_weight(TENSOR_F32, E, D);
    w->mq = rand_weight(TENSOR_Q8_0, H * QD, D);
    w->mkv = rand_weight(TENSOR_Q8_0, R + ROPE, D);
    w->mo = rand_weight(TENSOR_Q8_0, D, H * V);
    for (int e = 0; e < E; e++) {
        w->eg[e] = rand_weight(TENSOR_Q4_0, F, D);
        w->eu[e] = rand_weight(TENSOR_Q4_0, F, D);
        w->ed[e] = rand_weight(TENSOR_Q8_0, D, F);
    }
    for (int h = 0; h < H; h++) {
        w->wkb[h] = rand_weight(TENSOR_Q8_0, R, NOPE);
        w->wvb[h] = rand_weight(TENSOR_Q8_0, V, R);
    }
    w->norm = rand_array(D);
    w->freq = rand_array(ROPE);
    for (int s = 0; s < SEQ; s++)
        w->x[s] = rand_array(LEN * D);
    return w;
}

void check_bits(void)
{
    struct weights *w = make_weights();
    static const enum dev_acts acts[] = {DEV_ACTS_AUTO, DEV_ACTS_AUTO, DEV_ACTS_F32, DEV_ACTS_BF16,
                                         DEV_ACTS_INT8};
    for (int round = 0; round < 10; round++) {
        int len[SEQ], n_prompt[SEQ];
        float *want[SEQ], *got[SEQ];
        struct rig r[4];
        for (int s = 0; s < SEQ; s++) {
            len[s] = rand_int(1, s == 0 ? LEN : 60);
            n_prompt[s] = rand_int(0, len[s]);
            want[s] = get_mem(sizeof(float) * LEN * D);
            got[s] = get_mem(sizeof(float) * LEN * D);
        }
        for (int i = 0; i < 4; i++)
            rig_open(&r[i], w, 1 + i, round & 1, acts[round / 2], (enum dev_kv_type)(round % 4));
        play(&r[0], w, len, n_prompt, 1, want);
        for (int trial = 0; trial < 12; trial++) {
            play(&r[trial % 4], w, len, n_prompt, 0, got);
            for (int s = 0; s < SEQ; s++)
                same_bits(round & 1 ? "mla layer" : "gqa layer", got[s], want[s],
                          (int64_t)len[s] * D);
        }
        for (int s = 0; s < SEQ; s++)
            for (int i = 0; i < len[s] * D; i++)
                if (!isfinite(want[s][i])) {
                    FAIL("a result is not finite: sequence %d value %d", s, i);
                    break;
                }
        for (int i = 0; i < 4; i++)
            dev_close(r[i].d);
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
    sl_status st = dev_open("cpu", &(struct dev_opts){.n_thread = 2}, &d, err);
    if (st == SL_OK)
        st = dev_mat_load(d, w, NULL, 1, DEV_USE_MATMUL, count_drop, (void *)w, &m, err);
    if (st == SL_OK) st = dev_act_open(d, (const dev_mat *const *)&m, 1, (int)w->cols, 8, &a, err);
    if (st == SL_OK) st = dev_alloc(d, MEM_ACTS, 1000, &p, err);
    if (st == SL_OK)
        st = dev_kv_open(d, &(struct dev_kv_shape){DEV_KV_BF16, 1, 4, 16, 1, 64, 64}, &kv, err);
    if (st == SL_OK)
        st = dev_reserve(d,
                         &(struct dev_plan){.n_tok = 8,
                                            .n_seq = 1,
                                            .n_ctx = 64,
                                            .n_head = 2,
                                            .d_k = 64,
                                            .d_v = 64,
                                            .mla_r = 32,
                                            .mla_nope = 32,
                                            .mla_rope = 8,
                                            .n_expert = 2,
                                            .k = 1,
                                            .d_model = 64,
                                            .d_ff_expert = 64},
                         err);
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
    MUST(dev_open("cpu", NULL, &d, &err_));
    want_status("shapes differ",
                dev_mat_load(d, &w, &other, 1, DEV_USE_MATMUL, NULL, NULL, &m, &err), SL_FORMAT,
                &err);
    struct weight ints = {.name = "ints",
                          .type = TENSOR_I32,
                          .rows = 4,
                          .cols = 4,
                          .data = w.data,
                          .row_bytes = 16,
                          .tensor_scale = 1};
    want_status("integers", dev_mat_load(d, &ints, NULL, 1, DEV_USE_MATMUL, NULL, NULL, &m, &err),
                SL_UNSUPPORTED, &err);
    ints.rows = 0;
    want_status("no rows", dev_mat_load(d, &ints, NULL, 1, DEV_USE_MATMUL, NULL, NULL, &m, &err),
                SL_FORMAT, &err);
    want_status("kv of 24 tokens",
                dev_kv_open(d, &(struct dev_kv_shape){DEV_KV_BF16, 1, 4, 24, 1, 64, 64}, &kv, &err),
                SL_REQUEST, &err);
    want_status("kv without blocks",
                dev_kv_open(d, &(struct dev_kv_shape){DEV_KV_BF16, 1, 0, 16, 1, 64, 64}, &kv, &err),
                SL_REQUEST, &err);
    want_status(
        "kv beyond memory",
        dev_kv_open(d, &(struct dev_kv_shape){DEV_KV_F32, 1 << 20, 1 << 30, 1 << 14, 64, 512, 512},
                    &kv, &err),
        SL_NOMEM, &err);
    want_status("empty plan", dev_reserve(d, &(struct dev_plan){0}, &err), SL_REQUEST, &err);
    double read = dev_probe_read_gbps(d, 20), int8 = dev_probe_int8_gops(d, 20);
    g.n_checked++;
    printf("         probes: read %.1f GB/s, int8 %.0f Gop/s\n", read, int8);
    if (!(read > 0.01 && read < 10000) || !(int8 > 0.01 && int8 < 1e6)) FAIL("probes");
    want_status("kv",
                dev_kv_open(d, &(struct dev_kv_shape){DEV_KV_F32, 1, 4, 16, 1, 64, 64}, &kv, &err),
                SL_OK, &err);
    double attn = dev_probe_attn_gops(d, kv, 20);
    if (!(attn > 0.01 && attn < 1e6)) FAIL("probe of attention's arithmetic");
    dev_close(d);
    dev_close(NULL);
}
