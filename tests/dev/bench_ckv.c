/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ckv [THREADS [POSITIONS [ROUNDS]]]: what the operators of a DeepSeek-V4 layer take of one
 * token that has so many positions before it, in V4-Flash's shape: the indexer's choice, attention
 * over the window and chosen entries, and over the window and all coarse ones, streams between two
 * blocks; the shortest of some rounds. By hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dev/dev.h"

#define BLK 32
#define CHUNK 256
#define D 512
#define DI 128
#define H 64
#define NI 64
#define TOP 512
#define WINDOW 128
#define WIDE 4096
#define N 4

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        sl_err err_ = {0};                                                                         \
        if ((expr) != SL_OK) {                                                                     \
            printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, err_.text);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct rig {
    dev *d;
    dev_kv *kv;
    int n_pos, n_blk;
    int32_t *table, pos[CHUNK], tok0[2], seat;
    float *c[2], *z[2], *ape, *norm, *freq, *q, *iq, *iw, *y;
    int32_t *pick;
    struct dev_step b;
};

static void *memory(dev *d, int64_t n)
{
    void *p = NULL;
    MUST(dev_alloc(d, MEM_ACTS, n, &p, &err_));
    return p;
}

static float *numbers(dev *d, int64_t n)
{
    static uint32_t state = 1;
    float *p = memory(d, 4 * n);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
    }
    return p;
}

static struct dev_compress compress_of(const struct rig *r, bool index, bool coarse)
{
    return (struct dev_compress){.kv = r->kv,
                                 .raw_group = 1,
                                 .raw_layer = coarse,
                                 .raw_at = index ? dev_compress_raw(D, true) : 0,
                                 .layer = coarse,
                                 .index = index,
                                 .overlap = !coarse,
                                 .d = index ? DI : D,
                                 .every = coarse ? 128 : 4,
                                 .c = r->c[index],
                                 .z = r->z[index],
                                 .ape = r->ape,
                                 .norm = r->norm,
                                 .eps = 1e-6f,
                                 .n_rot = 64,
                                 .freq = r->freq,
                                 .mscale = 1.0f};
}

static struct dev_index index_of(const struct rig *r)
{
    return (struct dev_index){.kv = r->kv, .n_head = NI, .d = DI, .top = TOP, .every = 4,
                              .q = r->iq, .w = r->iw, .pick = r->pick};
}

static struct dev_attn_ckv attn_of(const struct rig *r, bool coarse)
{
    return (struct dev_attn_ckv){.kv = r->kv, .group = 1, .layer = coarse, .n_head = H, .d = D,
                                 .scale = 0.05f, .q = r->q, .y = r->y, .n_window = WINDOW,
                                 .more_layer = coarse, .every = coarse ? 128 : 4,
                                 .pick = coarse ? NULL : r->pick, .n_pick = coarse ? 0 : TOP};
}

static void open_rig(struct rig *r, int n_thread, int n_pos)
{
    int raw = dev_compress_raw(D, true) + dev_compress_raw(DI, true);
    *r = (struct rig){.n_pos = n_pos, .n_blk = (n_pos + BLK - 1) / BLK};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread}, &r->d, &err_));
    struct dev_kv_shape s = {DEV_KV_BF16, BLK, 2, {{0}}};
    s.group[0] = (struct dev_kv_group){
        DEV_KV_PAGED, 2, r->n_blk, 1, D, 0, 0, {{1, 4, DI, 0, false}, {1, 128, 0, 0, false}}};
    s.group[1] = (struct dev_kv_group){
        DEV_KV_WINDOW, 2, r->n_blk, 1, D, 0, 0, {{1, 1, 0, raw, false}, {1, 1, 0, 2 * D, false}}};
    MUST(dev_kv_open(r->d, &s, &r->kv, &err_));
    for (int i = 0; i < 2; i++) {
        r->c[i] = numbers(r->d, CHUNK * 2 * D);
        r->z[i] = numbers(r->d, CHUNK * 2 * D);
    }
    r->ape = numbers(r->d, 128 * 2 * D);
    r->norm = numbers(r->d, D);
    r->freq = numbers(r->d, 32);
    r->q = numbers(r->d, (int64_t)CHUNK * H * D);
    r->iq = numbers(r->d, (int64_t)CHUNK * NI * DI);
    r->iw = numbers(r->d, CHUNK * NI);
    r->y = numbers(r->d, (int64_t)CHUNK * H * D);
    r->pick = memory(r->d, 4ll * CHUNK * TOP);
    r->table = memory(r->d, 4ll * r->n_blk);
    for (int i = 0; i < r->n_blk; i++)
        r->table[i] = (int32_t)((i * 7919ll) % r->n_blk);
    const struct dev_op op[] = {
        {.kind = DEV_OP_index, .u.index = index_of(r)},
        {.kind = DEV_OP_compress, .u.compress = compress_of(r, false, false)},
        {.kind = DEV_OP_attn_ckv, .u.attn_ckv = attn_of(r, false)}};
    struct dev_limits max = {.n_tok = CHUNK, .n_seq = 1, .n_ctx = n_pos};
    MUST(dev_reserve(r->d, op, 3, &max, &err_));
}

static void begin(struct rig *r, int pos0, int n)
{
    r->tok0[1] = n;
    for (int i = 0; i < n; i++)
        r->pos[i] = pos0 + i;
    r->b = (struct dev_step){.n_tok = n, .n_seq = 1, .pos = r->pos, .seq_tok0 = r->tok0,
                             .blk = {r->table, r->table}, .ld_blk = r->n_blk, .seat = &r->seat,
                             .n_prompt = &r->seat};
    dev_step_begin(r->d, r->kv, &r->b);
}

static void fill(struct rig *r)
{
    for (int pos = 0; pos < r->n_pos; pos += CHUNK) {
        begin(r, pos, r->n_pos - pos < CHUNK ? r->n_pos - pos : CHUNK);
        for (int i = 0; i < 3; i++) {
            struct dev_compress p = compress_of(r, i == 1, i == 2);
            dev_compress(r->d, &r->b, &p);
        }
    }
}

enum what { INDEX, FINE, COARSE, STREAMS, N_WHAT };

static void run(struct rig *r, enum what what, struct dev_streams *s)
{
    struct dev_index i = index_of(r);
    struct dev_attn_ckv a = attn_of(r, what == COARSE);
    if (what == INDEX)
        dev_index(r->d, &r->b, &i);
    else if (what == STREAMS)
        dev_streams(r->d, &r->b, s);
    else
        dev_attn_ckv(r->d, &r->b, &a);
}

int main(int argc, char **argv)
{
    static const char *const name[] = {"index", "attention, chosen entries",
                                       "attention, coarse entries", "streams"};
    struct rig r;
    int n_thread = argc > 1 ? atoi(argv[1]) : 0, n_pos = argc > 2 ? atoi(argv[2]) : 32768,
        rounds = argc > 3 ? atoi(argv[3]) : 40;
    open_rig(&r, n_thread, n_pos);
    fill(&r);
    begin(&r, n_pos - 1, 1);
    struct dev_streams s = {.x = numbers(r.d, N * WIDE), .n_stream = N, .n = WIDE,
                            .r = numbers(r.d, WIDE), .mix = numbers(r.d, N + N * N),
                            .fn = numbers(r.d, (int64_t)(2 + N) * N * N * WIDE),
                            .base = numbers(r.d, 64), .scale = numbers(r.d, 4), .eps = 1e-6f,
                            .norm_eps = 1e-6f, .rounds = 20, .y = numbers(r.d, WIDE),
                            .part = numbers(r.d, dev_streams_parts(N, WIDE))};
    for (int w = 0; w < N_WHAT; w++) {
        int64_t least = INT64_MAX;
        for (int i = 0; i < rounds; i++) {
            int64_t t0 = clock_now_ns();
            run(&r, (enum what)w, &s);
            int64_t ns = clock_now_ns() - t0;
            least = ns < least ? ns : least;
        }
        printf("%-28s %9.1f us\n", name[w], (double)least / 1e3);
    }
    dev_close(r.d);
    return 0;
}
