/* SPDX-License-Identifier: Apache-2.0 */
/* check_gpu DEVICE [--seed N] [--repeat N] [TEXT | -TEXT]...: every operator of a device of its own
 * kernels against the CPU's, bit for bit: all run formats, forms of activations, types of the
 * cache; attention as --exact has it, and as this CPU has it by default. With TEXT those checks
 * whose names have it, with -TEXT the others. 77: there is no such device. */
#include "check_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fp.h"
#include "base/rng.h"

struct gpu_checks g;
int32_t pos[T_MAX], tok0[4];

int rand_int(int lo, int hi)
{
    return lo + (int)(rng_next(&g.rng) % (uint64_t)(hi - lo + 1));
}

float rand_f(void)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += (double)(rng_next(&g.rng) >> 40) * 0x1p-24 - 0.5;
    return (float)(s * 1.7);
}

/* ---- the same on both ---- */

struct buf make_buf(int64_t n)
{
    struct buf b = {.n = n, .x = malloc(4 * (size_t)n + 64)};
    for (int64_t i = 0; i < n; i++)
        b.x[i] = rand_f() * (rand_int(0, 60) == 0 ? 20.0f : 1.0f);
    for (int k = 0; k < 2; k++) {
        void *p = NULL;
        MUST(dev_alloc(g.d[k], MEM_ACTS, 4 * n, &p, &err_));
        b.at[k] = p;
        MUST(dev_put(g.d[k], p, b.x, 4 * n, &err_));
    }
    return b;
}

/* CPUs' bf16 instructions make zeros of what is below 2^-126 on the way, other devices need not. */
static bool is_same(float a, float b)
{
    if (!g.exact && fabsf(a) < 1e-30f && fabsf(b) < 1e-30f) return true;
    return fp_to_bits(a) == fp_to_bits(b);
}

void same(const char *what, const struct buf *b)
{
    float *got[2];
    for (int k = 0; k < 2; k++) {
        got[k] = malloc(4 * (size_t)b->n + 64);
        MUST(dev_get(g.d[k], got[k], b->at[k], 4 * b->n, &err_));
    }
    g.n_checked++;
    int64_t n_bad = 0, first = 0;
    for (int64_t i = b->n - 1; i >= 0; i--)
        if (!is_same(got[0][i], got[1][i])) {
            n_bad++;
            first = i;
        }
    if (n_bad && g.n_fail++ < 30)
        printf("FAIL %s: %lld of %lld differ, first [%lld]: cpu %.9g, %s %.9g (seed %llu)\n", what,
               (long long)n_bad, (long long)b->n, (long long)first, (double)got[0][first], g.device,
               (double)got[1][first], (unsigned long long)g.seed);
    free(got[0]);
    free(got[1]);
}

/* ---- a step of T tokens of up to 3 sequences ---- */

int32_t table[3 * N_BLK];
static int32_t ids[T_MAX], row_tok[T_MAX], from[T_MAX];
static uint8_t row_want[T_MAX];

/* Blocks of the sequences, scattered. */
static void make_table(void)
{
    int32_t perm[N_BLK];
    for (int i = 0; i < N_BLK; i++) {
        int j = rand_int(0, i);
        perm[i] = perm[j];
        perm[j] = i;
    }
    memset(table, 0, sizeof table);
    for (int i = 0; i < N_BLK; i++)
        table[i / (N_BLK / 3) * N_BLK + i % (N_BLK / 3)] = perm[i];
}

struct dev_step step_of(int T, int n_seq)
{
    return (struct dev_step){.n_tok = T,
                             .n_seq = n_seq,
                             .ids = ids,
                             .pos = pos,
                             .seq_tok0 = tok0,
                             .blk = {table},
                             .ld_blk = N_BLK,
                             .want = DEV_WANT_LOGITS | DEV_WANT_BEST};
}

struct dev_step make_step(int T)
{
    int n_seq = rand_int(1, BASE_MIN(T, 3)), at = 0;
    struct dev_step s = step_of(T, n_seq);
    for (int q = 0; q < n_seq; q++) {
        int n = q == n_seq - 1 ? T - at : rand_int(1, T - at - (n_seq - 1 - q));
        int p0 = rand_int(g.p0, g.n_pos - n);
        tok0[q] = at;
        for (int i = 0; i < n; i++, at++) {
            pos[at] = p0 + i;
            ids[at] = rand_int(0, 9);
        }
    }
    tok0[n_seq] = T;
    for (int i = 0; i < T; i++) {
        from[i] = rand_int(0, T - 1);
        if (rand_int(0, 2) == 0) continue;
        row_want[s.n_row] = (uint8_t)(rand_int(0, 1) ? DEV_WANT_BEST : DEV_WANT_LOGITS);
        row_tok[s.n_row++] = i;
    }
    s.hidden_row = from;
    s.row_tok = row_tok;
    s.row_want = row_want;
    return s;
}

static void begin(const struct dev_step *s)
{
    for (int k = 0; k < 2; k++)
        dev_step_begin(g.d[k], NULL, s);
}

/* An operator on both: its parameters, of device k, as P. */
#define BOTH(op, s, ...)                                                                           \
    for (int k = 0; k < 2; k++)                                                                    \
    dev_##op(g.d[k], s, &(struct dev_##op){__VA_ARGS__})

const int tokens[N_TOKENS] = {1, 2, 7, 8, 9, 33, 64, 65};

/* ---- devices ---- */

void open_both(enum dev_acts acts)
{
    struct dev_opts o = {.n_thread = 2, .acts = acts, .exact = g.exact};
    MUST(dev_open("cpu", &o, &g.d[0], &err_));
    MUST(dev_open(g.device, &o, &g.d[1], &err_));
}

void close_both(void)
{
    for (int k = 0; k < 2; k++)
        dev_close(g.d[k]);
    free_mats();
}

void reserve_both(const struct dev_op *op, int n_op, const struct dev_op *other)
{
    struct dev_limits max = {.n_tok = T_MAX, .n_seq = 3, .n_ctx = N_BLK * BLK,
                             .mla_expand_from = g.expand_from};
    for (int k = 0; k < 2; k++)
        MUST(dev_reserve(g.d[k], k && other ? other : op, n_op, &max, &err_));
}

/* ---- products ---- */

void act_for(dev_mat *const m[2], int n_col, dev_act *out[2])
{
    for (int k = 0; k < 2; k++) {
        const dev_mat *one = m[k];
        MUST(dev_act_open(g.d[k], &(struct dev_inputs){&one, 1, n_col, T_MAX}, &out[k], &err_));
    }
}

void end_both(dev_mat *const w[2], bool is_biased, int n_bias, int n_row, struct glu glu)
{
    struct buf b = make_buf((int64_t)n_bias * n_row);
    const struct dev_epilogue e = {is_biased ? b.x : NULL, n_bias, n_row, NULL, glu};
    for (int k = 0; k < 2; k++)
        MUST(dev_mat_end(w[k], &e, &err_));
    free(b.x);
}

static void check_product(const struct format *f, enum dev_use use, enum dev_acts acts)
{
    static const char *const used[] = {"matmul", "embed", "experts", "plain", "latent", "exact"};
    char what[80];
    dev_mat *w[2], *up[2], *down[2];
    dev_act *a[2], *a2[2], *h[2];
    int rows = rand_int(1, 70), cols = rand_int(0, 3) ? 32 * rand_int(1, 20) : rand_int(1, 300);
    int ff = 8 * rand_int(2, 12);
    open_both(acts);
    make_mat(f, &(struct dev_image){.n = 1, .rows = rows, .cols = cols}, use, w);
    make_mat(f, &(struct dev_image){.n = 1, .rows = ff, .cols = cols, .is_pair = 1}, use, up);
    make_mat(f, &(struct dev_image){.n = 1, .rows = rows, .cols = ff}, use, down);
    end_both(w, rand_int(0, 1), 1, rows, (struct glu){0});
    act_for(w, cols, a);
    act_for(up, cols, a2);
    act_for(down, ff, h);
    reserve_both(NULL, 0, NULL);
    for (int i = rand_int(0, 2); i < BASE_COUNT_OF(tokens); i += 3) {
        int T = tokens[i];
        struct dev_step s = make_step(T);
        struct buf x = make_buf((int64_t)T * cols), y = make_buf((int64_t)T * rows);
        struct buf hid = make_buf((int64_t)T * ff), z = make_buf((int64_t)T * rows);
        begin(&s);
        BOTH(prep, &s, .x = x.at[k], .n = cols, .act = a[k]);
        BOTH(matmul, &s, .act = a[k], .n_mat = 1, .w = {w[k]}, .y = {y.at[k]});
        BOTH(prep, &s, .x = x.at[k], .n = cols, .act = a2[k]);
        BOTH(ffn, &s, .act = a2[k], .gate_up = up[k], .down = down[k], .h_act = h[k],
             .h = hid.at[k], .y = z.at[k]);
        snprintf(what, sizeof what, "%s as %s, acts %d, [%d, %d] T %d", f->name, used[use], acts,
                 rows, cols, T);
        same(what, &y);
        snprintf(what, sizeof what, "ffn of %s as %s, acts %d, [%d, %d, %d] T %d", f->name,
                 used[use], acts, rows, ff, cols, T);
        same(what, &z);
        free(x.x), free(y.x), free(hid.x), free(z.x);
    }
    close_both();
}

static void check_products(void)
{
    static const enum dev_use uses[] = {DEV_USE_MATMUL, DEV_USE_EXPERTS, DEV_USE_EXACT};
    for (int i = 0; i < GPU_N_FMT; i++) {
        for (int u = 0; u < BASE_COUNT_OF(uses); u++)
            check_product(&formats[i], uses[u], DEV_ACTS_AUTO);
        check_product(&formats[i], DEV_USE_MATMUL, DEV_ACTS_F32);
        check_product(&formats[i], DEV_USE_MATMUL, DEV_ACTS_BF16);
    }
}

/* ---- rows ---- */

static void check_embed(void)
{
    for (int i = 0; i < GPU_N_FMT; i++) {
        dev_mat *w[2];
        int cols = 8 * rand_int(1, 40);
        open_both(DEV_ACTS_AUTO);
        make_mat(&formats[i], &(struct dev_image){.n = 1, .rows = 9, .cols = cols}, DEV_USE_EMBED,
                 w);
        reserve_both(NULL, 0, NULL);
        struct dev_step s = make_step(33);
        struct buf y = make_buf(33 * (int64_t)cols);
        begin(&s);
        BOTH(embed, &s, .w = w[k], .y = y.at[k], .scale = i % 2 ? 1.0f : 1.7f, .row0 = i % 3);
        same(formats[i].name, &y);
        free(y.x);
        close_both();
    }
}

static void check_rows(void)
{
    open_both(DEV_ACTS_AUTO);
    reserve_both(&(struct dev_op){.kind = DEV_OP_rope, .u.rope = {.n_rot = 128}}, 1, NULL);
    for (int trial = 0; trial < 40; trial++) {
        int T = tokens[trial % BASE_COUNT_OF(tokens)], n = rand_int(1, trial % 4 ? 200 : 900);
        struct dev_step s = make_step(T);
        struct buf x = make_buf((int64_t)T * n), r = make_buf((int64_t)T * n), w = make_buf(n);
        struct buf y = make_buf((int64_t)T * n), id = make_buf(T);
        begin(&s);
        BOTH(norm, &s, .x = x.at[k], .r = trial % 2 ? r.at[k] : NULL, .w = w.at[k], .eps = 1e-5f,
             .n = n, .gather = trial % 4 == 2, .y = y.at[k]);
        same("norm", &y);
        same("norm's x", &x);
        BOTH(add, &s, .x = y.at[k], .y = r.at[k], .n = n);
        same("add", &y);
        id.n = s.n_row;
        BOTH(best, &s, .x = y.at[k], .n = n, .id = (int32_t *)(void *)id.at[k]);
        if (s.n_row) same("best", &id);
        free(x.x), free(r.x), free(w.x), free(y.x), free(id.x);
    }
    close_both();
}

static void check_rope(void)
{
    open_both(DEV_ACTS_AUTO);
    reserve_both(&(struct dev_op){.kind = DEV_OP_rope, .u.rope = {.n_rot = 128}}, 1, NULL);
    static float freq[6][64]; /* more tables than a device keeps at a time */
    for (int i = 0; i < 6 * 64; i++)
        freq[i / 64][i % 64] = powf(10000.0f, -(float)(i % 64) / 64.0f) * (float)(1 + i / 64);
    for (int trial = 0; trial < 24; trial++) {
        int T = tokens[trial % BASE_COUNT_OF(tokens)], H = rand_int(1, 5), dh = 8 * rand_int(1, 16);
        struct dev_step s = make_step(T);
        struct buf x = make_buf((int64_t)T * H * dh);
        begin(&s);
        for (int f = 0; f < 6; f++)
            BOTH(rope, &s, .x = x.at[k], .n_head = H, .ldx = (int64_t)H * dh, .ldx_h = dh,
                 .n_rot = dh - 2 * (f % 4), .style = trial % 2, .freq = freq[f],
                 .mscale = trial % 3 ? 1.0f : 1.25f);
        same("rope", &x);
        free(x.x);
    }
    close_both();
}

/* ---- attention ---- */

struct heads {
    int C, H, d, dv;
};

/* Keys and values at every position of three sequences. */
static void fill_cache(dev_kv *const kv[2], const struct heads *h)
{
    make_table();
    for (int p0 = 0; p0 < g.n_pos; p0 += BLK) {
        struct dev_step s = step_of(3 * BLK, 3);
        struct buf k_ = make_buf(3 * BLK * (int64_t)h->C * h->d);
        struct buf v = make_buf(3 * BLK * (int64_t)h->C * h->dv);
        for (int i = 0; i < 3 * BLK; i++)
            pos[i] = p0 + i % BLK;
        for (int q = 0; q <= 3; q++)
            tok0[q] = q * BLK;
        begin(&s);
        BOTH(kv_put, &s, .kv = kv[k], .layer = 1, .k = k_.at[k], .v = v.at[k],
             .ldk = (int64_t)h->C * h->d, .ldv = (int64_t)h->C * h->dv);
        free(k_.x), free(v.x);
    }
}

struct attn_case {
    struct heads h;
    int T, n_window;
    bool sink;
};

static void check_attn(enum dev_kv_type type, const struct attn_case *c)
{
    static const char *const names[] = {"bf16", "f16", "q8", "f32"};
    const struct heads h = c->h;
    char what[120];
    struct dev_kv_shape shape = {.type = type, .blk_tok = BLK, .n_group = 1};
    shape.group[0] = (struct dev_kv_group){DEV_KV_PAGED, 2, N_BLK, h.C, h.d, h.dv, 0, {{0}}};
    struct dev_op op = {.kind = DEV_OP_attn};
    op.u.attn = (struct dev_attn){.n_head = h.H, .d_k = h.d, .d_v = h.dv};
    dev_kv *kv[2];
    open_both(DEV_ACTS_AUTO);
    reserve_both(&op, 1, NULL);
    for (int k = 0; k < 2; k++)
        MUST(dev_kv_open(g.d[k], &shape, &kv[k], &err_));
    fill_cache(kv, &h);
    struct dev_step s = make_step(c->T);
    struct buf q = make_buf((int64_t)c->T * h.H * h.d), y = make_buf((int64_t)c->T * h.H * h.dv);
    struct buf sink = make_buf(h.H);
    begin(&s);
    BOTH(attn, &s, .kv = kv[k], .layer = 1, .n_head = h.H, .d_k = h.d, .d_v = h.dv,
         .scale = 1.0f / sqrtf((float)h.d), .q = q.at[k], .y = y.at[k], .n_window = c->n_window,
         .per_head.of[PER_HEAD_SINKS] = c->sink ? sink.at[k] : NULL);
    snprintf(what, sizeof what, "attn %s%s, heads %d of %d, %d and %d, T %d, window %d, pos %d",
             names[type], g.exact ? ", exact" : "", h.H, h.C, h.d, h.dv, c->T, c->n_window, pos[0]);
    same(what, &y);
    free(q.x), free(y.x), free(sink.x);
    close_both();
}

/* ---- experts, latents ---- */

/* Some experts in slots of their own, of which one is filled with another's matrices; their terms
 * one by one in place of the sum. */
struct in_slots {
    struct dev_slots s;
    int32_t expert[64], list[64], first[65];
};

/* Where h->s has slots. */
static void apart(struct dev_moe *p, const struct in_slots *h, float *terms)
{
    if (!h->s.n) return;
    p->slots = &h->s;
    p->terms = terms;
}

static void put_in_slots(struct in_slots *h, int E, dev_mat **up, dev_mat **down)
{
    *h = (struct in_slots){.s = {.n = E / 2}};
    h->s.expert = h->expert;
    h->s.list = h->list;
    h->s.first = h->first;
    for (int i = 0; i < E / 2; i++)
        h->expert[i] = (2 * i + 3) % E;
    dev_slots_init(&h->s, E);
    for (int k = 0; k < 2; k++) {
        struct dev_image one;
        dev_mat_view(up[0], E - 1, &one);
        MUST(dev_mat_fill(up[k], 1, &one, &err_));
        dev_mat_view(down[0], E - 1, &one);
        MUST(dev_mat_fill(down[k], 1, &one, &err_));
    }
}

/* A step's tokens choose among E experts, perhaps by groups, and take their sums. */
static void check_moe(const struct format *f, int trial)
{
    char what[80];
    dev_mat *up[2], *down[2];
    dev_act *a[2];
    int E = 4 * rand_int(2, 9), K = rand_int(1, 4), D = 8 * rand_int(2, 12), F = 8 * rand_int(2, 9);
    int T = tokens[trial % BASE_COUNT_OF(tokens)], n_group = trial % 2 ? 4 : 1;
    float bias[64];
    open_both(DEV_ACTS_AUTO);
    make_mat(f, &(struct dev_image){.n = E, .rows = F, .cols = D, .is_pair = 1}, DEV_USE_EXPERTS,
             up);
    make_mat(f, &(struct dev_image){.n = E, .rows = D, .cols = F}, DEV_USE_EXPERTS, down);
    end_both(up, trial % 5 == 0, E, 2 * F,
             (struct glu){.limit = trial % 16 == 11 ? 0.25f : trial % 4 == 3 ? 7.0f : 0.0f,
                          .plus = trial % 8 == 7,
                          .after = trial % 16 == 11});
    end_both(down, trial % 5 == 0, E, D, (struct glu){0});
    act_for(up, D, a);
    for (int i = 0; i < E; i++)
        bias[i] = rand_f();
    struct buf logit = make_buf((int64_t)T * E), id = make_buf((int64_t)T * K);
    struct buf w = make_buf((int64_t)T * K), x = make_buf((int64_t)T * D);
    struct buf y = make_buf((int64_t)T * D), add = make_buf((int64_t)T * D);
    struct buf terms = make_buf((int64_t)T * K * D);
    struct in_slots h = {0};
    dev_prog *prog[2];
    struct dev_step s = make_step(T);
    struct dev_op all[2][3];
    if (trial % 3 == 2) put_in_slots(&h, E, up, down);
    for (int k = 0; k < 2; k++) {
        struct dev_op op[3] = {{.kind = DEV_OP_prep}, {.kind = DEV_OP_route}, {.kind = DEV_OP_moe}};
        op[0].u.prep = (struct dev_prep){.x = x.at[k], .n = D, .act = a[k]};
        op[1].u.route = (struct dev_route){.logit = logit.at[k],
                                           .bias = trial % 3 ? bias : NULL,
                                           .n_expert = E,
                                           .k = K,
                                           .sigmoid = trial / 2 % 2,
                                           .n_group = n_group,
                                           .k_group = n_group > 1 ? 2 : 1,
                                           .group_max = trial / 4 % 2,
                                           .norm = trial % 2,
                                           .scale = 1.5f,
                                           .id = (int32_t *)(void *)id.at[k],
                                           .weight = w.at[k]};
        op[2].u.moe = (struct dev_moe){.act = a[k],
                                       .k = K,
                                       .n_expert = E,
                                       .id = (int32_t *)(void *)id.at[k],
                                       .weight = w.at[k],
                                       .gate_up = up[k],
                                       .down = down[k],
                                       .add = trial % 2 ? add.at[k] : NULL,
                                       .combine = (enum dev_combine)(trial / 3 % 3),
                                       .y = y.at[k]};
        apart(&op[2].u.moe, &h, terms.at[k]);
        memcpy(all[k], op, sizeof op);
    }
    reserve_both(all[0], 3, all[1]);
    for (int k = 0; k < 2; k++) {
        MUST(dev_prog_open(g.d[k], all[k], 3, &prog[k], &err_));
        MUST(dev_prog_run(prog[k], NULL, &s, &err_));
    }
    snprintf(what, sizeof what, "experts of %s, %d of %d, [%d, %d] T %d", f->name, K, E, D, F, T);
    same(what, &id);
    same(what, &w);
    same(what, &y);
    same(what, &terms);
    for (int k = 0; k < 2; k++)
        dev_prog_close(prog[k]);
    free(logit.x), free(id.x), free(w.x), free(x.x), free(y.x), free(add.x), free(terms.x);
    close_both();
}

static void check_moes(void)
{
    for (int i = 0; i < GPU_N_FMT; i++)
        check_moe(&formats[i], i);
}

/* Where prompts of a step's sequences end: before, in or after its tokens. */
static void end_prompts(struct dev_step *s, int32_t end[3])
{
    for (int q = 0; q < s->n_seq; q++)
        end[q] = rand_int(0, 2) ? rand_int(pos[tok0[q]], pos[tok0[q + 1] - 1] + 1)
                                : g.n_pos * rand_int(0, 1);
    s->n_prompt = end;
}

/* Latents with W_kb and W_vb of that format; by default prompts' keys and values are made of them
 * from some position on. */
static void check_mla(const struct format *f, enum dev_kv_type type, int T)
{
    char what[120];
    int32_t end[3];
    g.expand_from = !g.exact ? rand_int(g.p0, g.n_pos / 2) : INT32_MAX;
    int H = rand_int(1, 5), r = 32 * rand_int(1, 5), nope = 8 * rand_int(2, 8);
    int rope = 8 * rand_int(1, 4), v = 8 * rand_int(2, 8);
    dev_mat *kb[2], *vb[2];
    dev_kv *kv[2];
    open_both(DEV_ACTS_AUTO);
    make_mat(f, &(struct dev_image){.n = H, .rows = r, .cols = nope}, DEV_USE_EXACT, kb);
    make_mat(f, &(struct dev_image){.n = H, .rows = v, .cols = r}, DEV_USE_EXACT, vb);
    struct dev_kv_shape shape = {.type = type, .blk_tok = BLK, .n_group = 1};
    shape.group[0] = (struct dev_kv_group){DEV_KV_PAGED, 2, N_BLK, 1, r + rope, 0, 0, {{0}}};
    struct dev_attn_mla p = {.layer = 1, .n_head = H, .r = r, .nope = nope, .rope = rope, .v = v};
    p.scale = 1.0f / sqrtf((float)(nope + rope));
    struct dev_op op[2] = {{.kind = DEV_OP_attn_mla}, {.kind = DEV_OP_attn_mla}};
    for (int k = 0; k < 2; k++) {
        op[k].u.attn_mla = p;
        op[k].u.attn_mla.w_kb = kb[k];
        op[k].u.attn_mla.w_vb = vb[k];
    }
    reserve_both(&op[0], 1, &op[1]);
    for (int k = 0; k < 2; k++)
        MUST(dev_kv_open(g.d[k], &shape, &kv[k], &err_));
    fill_cache(kv, &(struct heads){.C = 1, .H = H, .d = r + rope, .dv = 0});
    struct dev_step s = make_step(T);
    struct buf q = make_buf((int64_t)T * H * (nope + rope)), y = make_buf((int64_t)T * H * v);
    end_prompts(&s, end);
    begin(&s);
    for (int k = 0; k < 2; k++) {
        p = op[k].u.attn_mla;
        p.kv = kv[k];
        p.q = q.at[k];
        p.y = y.at[k];
        dev_attn_mla(g.d[k], &s, &p);
    }
    snprintf(what, sizeof what, "latents %d + %d by %s, %d heads %d + %d, %d, cache %d, T %d, %d",
             r, rope, f->name, H, nope, rope, v, type, T, g.expand_from);
    same(what, &y);
    free(q.x), free(y.x);
    close_both();
    g.expand_from = INT32_MAX;
}

static void check_mlas(void)
{
    for (int i = 0; i < GPU_N_FMT; i++)
        check_mla(&formats[i], (enum dev_kv_type)(i % 4), tokens[i % BASE_COUNT_OF(tokens)]);
}

/* Rows to the host and from it, now and then without a wait between. */
static void check_moves(void)
{
    open_both(DEV_ACTS_AUTO);
    reserve_both(NULL, 0, NULL);
    for (int trial = 0; trial < 20; trial++) {
        int T = tokens[trial % BASE_COUNT_OF(tokens)], n = rand_int(1, 60);
        struct dev_step s = make_step(T);
        struct buf x = make_buf((int64_t)T * n), y = make_buf((int64_t)T * n);
        float *host[2] = {calloc((size_t)T, 4 * (size_t)n), calloc((size_t)T, 4 * (size_t)n)};
        int n_row = trial % 2 ? DEV_ROWS_WANTED : 0;
        begin(&s);
        BOTH(move, &s, .at = x.at[k], .host = host[k], .out = true, .n = n, .n_row = n_row,
             .gather = trial % 2);
        for (int k = 0; k < 2 && trial % 4; k++)
            MUST(dev_sync(g.d[k], &err_));
        BOTH(move, &s, .at = y.at[k], .host = host[k], .n = n);
        same("move", &y);
        g.n_checked++;
        if (memcmp(host[0], host[1], 4 * (size_t)T * (size_t)n)) g.n_fail++;
        free(x.x), free(y.x), free(host[0]), free(host[1]);
    }
    close_both();
}

static void check_attns(void)
{
    static const int windows[] = {0, 17, 150};
    for (int t = DEV_KV_BF16; t <= DEV_KV_F32; t++)
        for (int trial = 0; trial < 8; trial += 2 - g.exact) {
            struct attn_case c = {.h.C = rand_int(1, 3), .T = tokens[trial]};
            c.h.H = rand_int(1, 4) * c.h.C;
            c.h.d = rand_int(3, trial ? 160 : 300);
            c.h.dv = rand_int(3, 160);
            c.n_window = windows[trial % 3];
            c.sink = trial % 2;
            check_attn((enum dev_kv_type)t, &c);
        }
}

/* Spans of few rows are shared out, with other numbers of rows by other numbers of spans at a time;
 * of many rows they are not, and tokens share workgroups. */
static void check_longs(void)
{
    static const struct {
        int T, H, C, n_window, d, dv;
    } all[] = {{1, 1, 1, 0, 20, 140}, {2, 6, 2, 0, 20, 24}, {7, 8, 1, 450, 8, 24},
               {20, 3, 1, 0, 9, 7},   {1, 10, 2, 0, 12, 9}, {65, 16, 16, 0, 3, 3}};
    g.p0 = 530;
    g.n_pos = N_LONG;
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        struct attn_case c = {
            .h = {all[i].C, all[i].H, all[i].d, all[i].dv}, all[i].T, all[i].n_window, i % 2};
        check_attn((enum dev_kv_type)(i % 4), &c);
    }
    for (int i = 0; i < 4; i++)
        check_mla(&formats[i], (enum dev_kv_type)i, all[i].T);
    g.p0 = 0;
    g.n_pos = N_POS;
    for (int i = 0; i < 2; i++) {
        struct attn_case c = {.h = {8, 8 + i * 8, 3, 4}, .T = 65, .n_window = i * 9};
        check_attn((enum dev_kv_type)i, &c);
    }
}

static void by_default(void (*check)(void))
{
    g.exact = 0;
    check();
    g.exact = 1;
}

/* As the CPU has it by default: on bf16, on 16-bit integers, of keys made of latents. */
static void check_default_attns(void)
{
    by_default(check_attns);
}

static void check_default_longs(void)
{
    by_default(check_longs);
}

static void default_mlas(void)
{
    for (int i = 0; i < GPU_N_FMT; i++)
        check_mla(&formats[i], (enum dev_kv_type)((i + i / 8) % 4),
                  tokens[i * 3 % BASE_COUNT_OF(tokens)]);
}

static void check_default_mlas(void)
{
    by_default(default_mlas);
}

/* Sums of tiles alone, by hand and on matrix units where there are some: 65,536 each, and as many
 * of half the products. */
static void check_sums(void)
{
    open_both(DEV_ACTS_AUTO);
    struct gpu *c = (struct gpu *)g.d[1];
    for (int units = 0; units < 1 + c->has_units; units++)
        for (int half = 0; half < 2; half++) {
            int64_t n_wrong = -1;
            MUST(dev_gpu_count_sums(c, units, half, 512, &n_wrong, &err_));
            g.n_checked++;
            printf("%s %s: %d of 65536 sums differ\n", units ? "matrix units" : "by hand",
                   half ? "16" : "32", (int)n_wrong);
            g.n_fail += n_wrong != 0;
        }
    close_both();
}

/* Do the filters take a check of that name? TEXT: only those that have it; -TEXT: no such. */
static bool is_asked(const char *const *filter, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        bool without = *filter[i] == '-';
        if ((strstr(name, filter[i] + without) != NULL) == without) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    int repeat = 1, n_filter = 0;
    sl_err err = {0};
    dev *d = NULL;
    const char *filter[4];
    g.seed = 1;
    g.n_pos = N_POS;
    g.exact = 1;
    g.expand_from = INT32_MAX;
    g.device = argc > 1 ? argv[1] : "vulkan";
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            g.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc)
            repeat = atoi(argv[++i]);
        else if (n_filter < BASE_COUNT_OF(filter))
            filter[n_filter++] = argv[i];
    if (dev_open(g.device, NULL, &d, &err)) {
        printf("check_gpu: not run: %s\n", err.text);
        return 77;
    }
    struct dev_info info;
    dev_info_get(d, &info);
    printf("check_gpu: %s: %s; products %s\n", info.name, info.isa, info.units);
    dev_close(d);
    static const struct {
        const char *name;
        void (*fn)(void);
    } all[] = {{"sums", check_sums},   {"products", check_products}, {"embed", check_embed},
               {"rows", check_rows},   {"rope", check_rope},         {"attn", check_attns},
               {"long", check_longs},  {"experts", check_moes},      {"latents", check_mlas},
               {"sends", check_sends}, {"moves", check_moves},       {"states", check_states},
               {"gates", check_gates},
               {"again", check_again}, {"attn, default", check_default_attns},
               {"long, default", check_default_longs},
               {"latents, default", check_default_mlas}};
    for (int r = 0; r < repeat; r++, g.seed++)
        for (int i = 0; i < BASE_COUNT_OF(all); i++) {
            int failed = g.n_fail, checked = g.n_checked;
            if (!is_asked(filter, n_filter, all[i].name)) continue;
            g.rng = g.seed * 1000003 + (uint64_t)i;
            all[i].fn();
            printf("%-16s %6d checks, %d failed\n", all[i].name, g.n_checked - checked,
                   g.n_fail - failed);
        }
    printf("check_gpu: %d checks, %d failed\n", g.n_checked, g.n_fail);
    return g.n_fail != 0 || g.n_checked == 0;
}
