/* SPDX-License-Identifier: Apache-2.0 */
/* bench_hybrid [LAYERS]: a step with experts on the CPU, which compute for real, and all else on
 * `sim` with a real clock, four times as fast: how long it takes with late experts, against the
 * longer of both parts, and without, against their sum. Parts and steps are timed in turn, and of
 * each the shortest of all rounds counts: other work on this machine only makes them longer. It
 * goes on until both are as short as is due; exit code 1: they were not in ROUNDS. Who may has
 * its threads run before all others. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dev/dev.h"

#define D 512
#define F 1024
#define K 8      /* experts of a token, all there are */
#define N_LATE 3 /* of them: what takes longer than the device's part */
#define HAND_NS 15000
#define LAYERS 6
#define ROUNDS 200
#define LEAST 9 /* rounds */
#define OP_MAX 512
#define MOST_LATE 1.08 /* of the longer part */
#define MOST_PLAIN 1.05 /* of the sum */

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        sl_err err_ = {0};                                                                         \
        if ((expr) != SL_OK) {                                                                     \
            printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, err_.text);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum part { HOST, CARD, PLAIN, LATE, N_PART };

struct rig {
    dev *d, *host;
    int n_layer;
    float *x, *y, *r, *weight; /* of the device */
    int32_t *id;
    float *host_x, *host_r, *host_weight, *late;
    int32_t *host_id;
    dev_act *act, *host_act;
    dev_mat *attn, *gate_up, *down;
    dev_prog *prog[N_PART];
};

static void *memory(dev *d, int64_t n)
{
    void *p = NULL;
    MUST(dev_alloc(d, MEM_ACTS, n, &p, &err_));
    return p;
}

static dev_mat *stack(dev *d, int n, bool pair, int rows, int cols)
{
    static float w[1024 * D];
    struct weight all[K];
    dev_mat *m = NULL;
    for (int i = 0; i < 1024 * D; i++)
        w[i] = (float)(i % 7 - 3) * 0.01f;
    for (int i = 0; i < n; i++)
        all[i] = (struct weight){.name = "w",
                                 .type = TENSOR_F32,
                                 .rows = rows,
                                 .cols = cols,
                                 .data = (const uint8_t *)w,
                                 .row_bytes = (uint64_t)cols * 4,
                                 .tensor_scale = 1.0f};
    MUST(
        dev_mat_load(d,
                     &(struct dev_weights){
                         .first = all, .second = pair ? all : NULL, .n = n, .use = DEV_USE_EXPERTS},
                     &m, &err_));
    return m;
}

/* A list under way. */
struct list {
    struct dev_op op[OP_MAX];
    int n;
};

static struct dev_op *add(struct list *l, dev *d, enum dev_op_kind kind)
{
    if (l->n == OP_MAX) exit(1);
    l->op[l->n] = (struct dev_op){.kind = kind, .layer = -1, .d = d};
    return &l->op[l->n++];
}

static void add_move(struct list *l, const struct rig *r, void *at, void *host, int n, bool out)
{
    add(l, r->d, DEV_OP_move)->u.move =
        (struct dev_move){.at = at, .host = host, .out = out, .n = n};
}

static struct dev_moe experts(const struct rig *r, int n_late, bool late)
{
    return (struct dev_moe){.act = r->host_act,
                            .k = K,
                            .n_expert = K,
                            .id = r->host_id,
                            .weight = r->host_weight,
                            .gate_up = r->gate_up,
                            .down = r->down,
                            .n_late = n_late,
                            .late = late,
                            .y = late ? r->late : r->host_r};
}

static void add_late(struct list *l, const struct rig *r)
{
    struct dev_op *op = add(l, r->host, DEV_OP_moe);
    op->beside = true;
    op->u.moe = experts(r, N_LATE, true);
}

/* As model/ffn.c lists it; of one part only what runs there. */
static void add_layers(struct list *l, const struct rig *r, enum part part)
{
    for (int i = 0; i < r->n_layer; i++) {
        int n_late = part == LATE && i + 1 < r->n_layer ? N_LATE : 0;
        if (part != HOST)
            add(l, r->d, DEV_OP_matmul)->u.matmul =
                (struct dev_matmul){.act = r->act, .n_mat = 1, .w = {r->attn}, .y = {r->y}};
        if (part >= PLAIN) {
            add_move(l, r, r->x, r->host_x, D, true);
            add_move(l, r, r->id, r->host_id, K, true);
            add_move(l, r, r->weight, r->host_weight, K, true);
        }
        if (part == LATE && i) add_late(l, r);
        if (part != CARD) {
            struct dev_op *op = add(l, r->host, DEV_OP_moe);
            op->u.moe = experts(r, n_late, false);
            op->u.moe.before = part == LATE && i ? r->late : NULL;
        }
        if (part >= PLAIN) add_move(l, r, r->r, r->host_r, D, false);
    }
}

/* speed: bytes a second of the device. */
static void rig_open(struct rig *r, int n_layer, double speed)
{
    const struct dev_opts o = {.n_thread = 1, .acts = DEV_ACTS_F32};
    struct dev_limits max = {.n_tok = 1, .n_seq = 1, .n_ctx = 16};
    int32_t id[K];
    float weight[K];
    char name[120];
    static struct list all, one;
    snprintf(name, sizeof name, "sim:clock=real,lat=1us,hand=%dns,bw=%.9f", HAND_NS, speed * 1e-9);
    *r = (struct rig){.n_layer = n_layer};
    MUST(dev_open(name, &o, &r->d, &err_));
    MUST(dev_open("cpu", &o, &r->host, &err_));
    r->attn = stack(r->d, 1, false, D / 8, D);
    r->gate_up = stack(r->host, K, true, F, D);
    r->down = stack(r->host, K, false, D, F);
    const dev_mat *first = r->attn, *up = r->gate_up;
    MUST(dev_act_open(r->d, &(struct dev_inputs){&first, 1, D, 1}, &r->act, &err_));
    MUST(dev_act_open(r->host, &(struct dev_inputs){&up, 1, D, 1}, &r->host_act, &err_));
    r->x = memory(r->d, D * 4), r->y = memory(r->d, D * 4), r->r = memory(r->d, D * 4);
    r->id = memory(r->d, K * 4), r->weight = memory(r->d, K * 4);
    r->host_x = memory(r->host, D * 4), r->host_r = memory(r->host, D * 4);
    r->host_id = memory(r->host, K * 4), r->host_weight = memory(r->host, K * 4);
    r->late = memory(r->host, D * 4);
    for (int i = 0; i < K; i++) {
        id[i] = r->host_id[i] = i;
        weight[i] = r->host_weight[i] = (float)i;
    }
    MUST(dev_put(r->d, r->id, id, sizeof id, &err_));
    MUST(dev_put(r->d, r->weight, weight, sizeof weight, &err_));
    all.n = 0;
    for (int p = 0; p < N_PART; p++)
        add_layers(&all, r, (enum part)p);
    MUST(dev_reserve(r->d, all.op, all.n, &max, &err_));
    MUST(dev_reserve(r->host, all.op, all.n, &max, &err_));
    for (int p = 0; p < N_PART; p++) {
        one.n = 0;
        add_layers(&one, r, (enum part)p);
        MUST(dev_prog_open(p == HOST ? r->host : r->d, one.op, one.n, &r->prog[p], &err_));
    }
}

static void rig_close(struct rig *r)
{
    for (int p = 0; p < N_PART; p++)
        dev_prog_close(r->prog[p]);
    dev_close(r->d);
    dev_close(r->host);
}

/* ms of a step of one generated token. */
static double step_ms(struct rig *r, enum part p)
{
    static const int32_t zero, tok0[2] = {0, 1};
    struct dev_step s = {.n_tok = 1, .n_seq = 1, .ids = &zero, .pos = &zero, .seq_tok0 = tok0};
    int64_t t0 = clock_now_ns();
    MUST(dev_prog_run(r->prog[p], NULL, &s, &err_));
    MUST(dev_sync(r->d, &err_));
    MUST(dev_sync(r->host, &err_));
    return (double)(clock_now_ns() - t0) * 1e-6;
}

static void shortest(double *ms, double now)
{
    if (now < *ms) *ms = now;
}

/* Of the sum of both parts without late ones, of the longer part with them; what is due. */
struct ratio {
    double plain, late;
};

static struct ratio ratio_of(const struct rig *r, const double *ms)
{
    double hand = 2e-6 * HAND_NS * r->n_layer;
    double longer = ms[CARD] > ms[HOST] ? ms[CARD] : ms[HOST];
    return (struct ratio){ms[PLAIN] / (ms[HOST] + ms[CARD] + hand), ms[LATE] / longer};
}

static bool is_good(struct ratio x)
{
    return x.plain <= MOST_PLAIN && x.late <= MOST_LATE;
}

static bool measure(struct rig *r)
{
    double ms[N_PART] = {1e9, 1e9, 1e9, 1e9};
    struct ratio x = {2, 2};
    int n = 0;
    for (; n < ROUNDS && (n < LEAST || !is_good(x)); n++) {
        for (int p = 0; p < N_PART; p++)
            shortest(&ms[p], step_ms(r, (enum part)p));
        x = ratio_of(r, ms);
    }
    printf("%d layers, shortest of %d: CPU %.2f ms, device %.2f; hybrid %.2f, %.3f of the sum "
           "(%.2f is due); with %d of %d late %.2f, %.3f of the longer part (%.2f)\n",
           r->n_layer, n, ms[HOST], ms[CARD], ms[PLAIN], x.plain, MOST_PLAIN, N_LATE, K, ms[LATE],
           x.late, MOST_LATE);
    return is_good(x);
}

int main(int argc, char **argv)
{
    int n_layer = argc > 1 ? atoi(argv[1]) : LAYERS;
    double ms = 1e9;
    struct rig r;
    (void)sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10});
    rig_open(&r, n_layer, 1e12);
    for (int i = 0; i < 3 * LEAST; i++)
        shortest(&ms, step_ms(&r, HOST));
    rig_close(&r);
    rig_open(&r, n_layer, 4.0 * D / 8 * D * 4 / (ms / n_layer * 1e-3));
    (void)step_ms(&r, LATE);
    bool good = measure(&r);
    rig_close(&r);
    return !good;
}
