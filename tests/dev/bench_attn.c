/* SPDX-License-Identifier: Apache-2.0 */
/* bench_attn [THREADS [FILTER [LAYERS]]]: one attention operator on the shapes of real models, by
 * depth and KV type: microseconds (best of several), Gflop/s, and GB/s of cache read. With several
 * LAYERS one after another, so that a step's rows come from memory: the median. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dev/dev.h"

struct shape {
    const char *name;
    int n_head, n_kv, d; /* MLA: n_kv 0, latent 512 + 64, heads of 128 + 64 and 128 */
};
static const struct shape shapes[] = {
    {"mla16", 16, 0, 128}, {"mla128", 128, 0, 128}, {"qwen", 32, 4, 128}, {"smollm2", 9, 3, 64}};
static const char *const kv_name[] = {"bf16", "f16", "q8", "f32"};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(sl_status st, const sl_err *err)
{
    if (!st) return;
    fprintf(stderr, "bench_attn: %s\n", err->text);
    exit(1);
}

static float *random_floats(int64_t n, float scale)
{
    static uint32_t s = 1;
    float *p = malloc(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        p[i] = ((float)(s >> 8) * 0x1p-23f - 1.0f) * scale;
    }
    return p;
}

#define TIMES 100000
struct run {
    int n_layer, layer; /* the layer of the next step */
    dev *d;
    dev_kv *kv;
    dev_mat *wk, *wv;
    int32_t *pos, *blk, seq_tok0[2], n_prompt;
    int type;             /* of the cache */
    float *k, *v, *q, *y; /* of a chunk of tokens */
};

static dev_mat *stack(dev *d, int n_row, int n_col, int n)
{
    sl_err err;
    struct weight *w = calloc((size_t)n, sizeof *w);
    for (int i = 0; i < n; i++) {
        w[i].type = TENSOR_F32;
        w[i].rows = n_row;
        w[i].cols = n_col;
        w[i].tensor_scale = 1;
        w[i].row_bytes = 4 * (uint64_t)n_col;
        w[i].data = (uint8_t *)random_floats((int64_t)n_row * n_col, 0.1f);
    }
    dev_mat *m = NULL;
    must(dev_mat_load(d, &(struct dev_weights){.first = w, .n = n, .use = DEV_USE_EXACT}, &m, &err),
         &err);
    return m;
}

static void step(struct run *r, const struct shape *s, int depth, int n_tok, int put, int expand)
{
    struct dev_step b = {.n_tok = n_tok,
                         .n_seq = 1,
                         .pos = r->pos,
                         .seq_tok0 = r->seq_tok0,
                         .blk = {r->blk},
                         .ld_blk = 1 << 16,
                         .n_prompt = &r->n_prompt};
    r->seq_tok0[1] = n_tok;
    for (int i = 0; i < n_tok; i++)
        r->pos[i] = depth + i;
    r->n_prompt = expand ? depth + n_tok : 0;
    dev_step_begin(r->d, r->kv, &b);
    int row = s->n_kv ? s->n_kv * s->d : 576;
    if (put)
        dev_kv_put(r->d, &b,
                   &(struct dev_kv_put){.kv = r->kv,
                                        .layer = r->layer,
                                        .k = r->k,
                                        .v = s->n_kv ? r->v : NULL,
                                        .ldk = row,
                                        .ldv = row});
    else if (s->n_kv)
        dev_attn(r->d, &b,
                 &(struct dev_attn){.kv = r->kv,
                                    .layer = r->layer,
                                    .n_head = s->n_head,
                                    .d_k = s->d,
                                    .d_v = s->d,
                                    .scale = 0.1f,
                                    .q = r->q,
                                    .y = r->y});
    else
        dev_attn_mla(r->d, &b,
                     &(struct dev_attn_mla){.kv = r->kv,
                                            .layer = r->layer,
                                            .n_head = s->n_head,
                                            .r = 512,
                                            .nope = 128,
                                            .rope = 64,
                                            .v = 128,
                                            .scale = 0.07f,
                                            .w_kb = r->wk,
                                            .w_vb = r->wv,
                                            .q = r->q,
                                            .y = r->y});
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* n_tok tokens after depth positions. */
static void time_one(struct run *r, const struct shape *s, int depth, int n_tok, int expand)
{
    for (int i = 0; i < 30; i++) /* short regions, in which a busy team comes together again */
        step(r, s, 200, 1, 0, 0);
    static double time[TIMES];
    double t_end = now() + 0.5;
    int n = 0;
    for (; n < TIMES && (n < 3 || now() < t_end); n++) {
        double t = now();
        step(r, s, depth, n_tok, 0, expand);
        time[n] = now() - t;
        r->layer = (r->layer + 1) % r->n_layer;
    }
    qsort(time, (size_t)n, sizeof *time, by_time);
    double best = time[r->n_layer > 1 ? n / 2 : 0];
    double per = s->n_kv ? 4.0 * s->d : expand ? 2.0 * (192 + 128) : 2.0 * (576 + 512);
    double flop = per * s->n_head * n_tok * (depth + n_tok / 2.0);
    static const double bytes[] = {2, 2, 1.125, 4};
    double read = (s->n_kv ? 2.0 * s->n_kv * s->d : 576) * bytes[r->type] * (depth + n_tok);
    printf("%-8s %-5s depth %6d tokens %4d %s: %9.1f us %7.1f Gflop/s %6.1f GB/s\n", s->name,
           kv_name[r->type], depth, n_tok, expand ? "materialised" : "", best * 1e6,
           flop / best * 1e-9, read / best * 1e-9);
    fflush(stdout);
}

static void bench(const struct shape *s, int type, int n_thread, int n_layer)
{
    enum { CTX = 16384 + 64, CHUNK = 512 };
    sl_err err;
    struct run r = {.type = type, .n_layer = n_layer};
    must(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread}, &r.d, &err), &err);
    int mla = s->n_kv == 0, n_blk = CTX / 32 + 1;
    struct dev_kv_group group = {.n_layer = n_layer,
                                 .n_blk = n_blk,
                                 .n_head = mla ? 1 : s->n_kv,
                                 .d_k = mla ? 576 : s->d,
                                 .d_v = mla ? 0 : s->d};
    struct dev_kv_shape ks = {(enum dev_kv_type)type, 32, 1, {group}};
    must(dev_kv_open(r.d, &ks, &r.kv, &err), &err);
    if (mla) {
        r.wk = stack(r.d, 512, 128, s->n_head);
        r.wv = stack(r.d, 128, 512, s->n_head);
    }
    struct dev_op op = {.kind = DEV_OP_attn,
                        .u.attn = {.n_head = s->n_head, .d_k = s->d, .d_v = s->d}};
    if (mla)
        op = (struct dev_op){
            .kind = DEV_OP_attn_mla,
            .u.attn_mla = {.n_head = s->n_head, .r = 512, .nope = 128, .rope = 64, .v = s->d}};
    struct dev_limits max = {.n_tok = CHUNK, .n_seq = 1, .n_ctx = CTX};
    must(dev_reserve(r.d, &op, 1, &max, &err), &err);
    r.pos = calloc(CHUNK, sizeof *r.pos);
    r.blk = calloc((size_t)n_blk, sizeof *r.blk);
    for (int i = 0; i < n_blk; i++)
        r.blk[i] = i;
    int64_t row = mla ? 576 : s->n_kv * s->d;
    r.k = random_floats(CHUNK * row, 1), r.v = random_floats(CHUNK * row, 1);
    r.q = random_floats((int64_t)CHUNK * s->n_head * (mla ? 192 : s->d), 1);
    r.y = random_floats((int64_t)CHUNK * s->n_head * s->d, 1);
    for (int at = 0; at + CHUNK <= CTX; at += CHUNK)
        for (r.layer = 0; r.layer < n_layer; r.layer++)
            step(&r, s, at, CHUNK, 1, 0);
    r.layer = 0;
    time_one(&r, s, 1000, 1, 0);
    time_one(&r, s, 4096 - 1, 1, 0);
    if (s->n_head <= 32) {
        time_one(&r, s, 16384 - 1, 1, 0);
        time_one(&r, s, 2048, CHUNK, 0);
        if (mla) time_one(&r, s, 2048, CHUNK, 1);
    }
    dev_close(r.d);
}

int main(int argc, char **argv)
{
    int n_thread = argc > 1 ? atoi(argv[1]) : 2, n_layer = argc > 3 ? atoi(argv[3]) : 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 4; t++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%s", shapes[i].name, kv_name[t]);
            if (argc > 2 && !strstr(name, argv[2])) continue;
            bench(&shapes[i], t, n_thread, n_layer < 1 ? 1 : n_layer);
        }
    return 0;
}
