/* SPDX-License-Identifier: Apache-2.0 */
/* Does a long prompt slow down those who read answers? Streams decode, then a long prompt comes;
 * every gap between two tokens of a stream is measured, before, during and after.
 *
 * pace MODEL [STREAMS [PROMPT [THREADS]]]: prints the median gap without the prompt, median, p99
 * and largest gap while it is computed, and how long it took beside what it takes alone. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sluice.h"

#define GAP_MAX 200000

struct gaps {
    int64_t ns[GAP_MAX];
    int n;
};

struct stream {
    struct gaps *to;
    int64_t last;
};

static struct gaps before, during;
static struct gaps *now_to = &before;
static int64_t long_first;

static void must(sl_status st, const sl_err *err)
{
    if (!st) return;
    fprintf(stderr, "pace: %s\n", err->text);
    exit(1);
}

static void on_stream(void *user, const sl_event *ev)
{
    struct stream *s = user;
    int64_t t = clock_now_ns();
    if (ev->token < 0) return;
    if (s->last && now_to && now_to->n < GAP_MAX) now_to->ns[now_to->n++] = t - s->last;
    s->last = t;
}

static void on_long(void *user, const sl_event *ev)
{
    (void)user;
    if (ev->token >= 0 && !long_first) long_first = ev->ttft_ns;
}

static int up(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double at(struct gaps *g, double q)
{
    if (!g->n) return 0;
    qsort(g->ns, (size_t)g->n, sizeof *g->ns, up);
    int i = (int)(q * g->n);
    return (double)g->ns[BASE_MIN(i, g->n - 1)] * 1e-6;
}

static void step(sl_engine *e)
{
    sl_err err;
    must(sl_step(e, &err), &err);
}

int main(int argc, char **argv)
{
    sl_err err;
    sl_model *m;
    sl_engine *e;
    sl_model_info mi;
    static struct stream stream[64];
    int n_stream = argc > 2 ? atoi(argv[2]) : 4, n_prompt = argc > 3 ? atoi(argv[3]) : 16384;
    if (argc < 2 || n_stream < 1 || n_stream > 64 || n_prompt < 64) return 2;
    int n_ctx = n_prompt + 64;
    must(sl_model_open(argv[1], NULL, &m, &err), &err);
    sl_engine_opts o = {.n_ctx = n_ctx,
                        .n_seq_max = n_stream + 1,
                        .kv_tokens = (int64_t)n_ctx * 2 + 1024 * n_stream,
                        .n_thread = argc > 4 ? atoi(argv[4]) : 0};
    must(sl_engine_open(m, &o, &e, &err), &err);
    sl_model_info_get(m, &mi);
    must(sl_warm(e, &err), &err);
    int32_t *ids = calloc((size_t)n_prompt, sizeof *ids);
    if (!ids) return 1;
    for (int i = 0; i < n_prompt; i++)
        ids[i] = (int32_t)((i * 7919ll + 11) % mi.n_vocab);
    sl_request q = {.ids = ids,
                    .n_ids = n_prompt,
                    .max_tokens = 2,
                    .ignore_eos = 1,
                    .no_cache = 1,
                    .on_event = on_long};
    must(sl_submit(e, &q, NULL, &err), &err);
    while (sl_pending(e))
        step(e);
    double alone = (double)long_first * 1e-9;
    long_first = 0;
    for (int i = 0; i < n_stream; i++) {
        sl_request s = {.ids = ids + i,
                        .n_ids = 16,
                        .ignore_eos = 1,
                        .no_cache = 1,
                        .on_event = on_stream,
                        .user = &stream[i]};
        must(sl_submit(e, &s, NULL, &err), &err);
    }
    for (int i = 0; i < 120; i++)
        step(e);
    double median = at(&before, 0.5);
    now_to = &during;
    must(sl_submit(e, &q, NULL, &err), &err);
    int n_step = 0, open = n_stream;
    for (; !long_first; n_step++) {
        step(e);
        if (sl_pending(e) < open + 1) break; /* a stream filled its context */
    }
    double p99 = at(&during, 0.99);
    printf("%d streams: gap %.2f ms; beside a prompt of %d tokens: median %.2f, p99 %.2f (%.2fx), "
           "largest %.2f ms; %d steps, first token after %.1f s (alone %.1f s)\n",
           n_stream, median, n_prompt, at(&during, 0.5), p99, p99 / median, at(&during, 1), n_step,
           (double)long_first * 1e-9, alone);
    sl_engine_close(e);
    sl_model_close(m);
    free(ids);
    return 0;
}
