/* SPDX-License-Identifier: Apache-2.0 */
/* The step of a hybrid, experts on the CPU and all else on a device, in the virtual time of `sim`:
 * against the times that a formula gives (docs/devices.md), by how many experts come late. The
 * models' shapes are real, their matrices small: speeds are scaled with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "test.h"

#define D 32
#define K 8       /* experts of a token, all there are */
#define SCALE 1e5 /* parameters to a row of a matrix */
#define ROW_BYTES 128.0
#define LAT_US 5     /* of a launch */
#define PER_LAYER 12 /* launches of attention and router */
#define OP_MAX 2400
#define N_LATE 7

static sl_err err;

/* Parameters of a layer: attention and router, shared expert, one expert, a dense block; of the
 * head. bytes: of a parameter on the device. */
struct shape {
    double attn, shared, expert, dense, head;
    int n_layer, n_dense;
    double bytes;
};
static const struct shape r1 = {188.935e6, 44.04e6, 44.04e6, 396.4e6, 926.7e6, 58, 3, 1.0};
static const struct shape q30 = {19.16e6, 0, 4.72e6, 0, 311.2e6, 48, 0, 0.53125};

struct rig {
    dev *d, *host;
    const struct shape *s;
    struct dev_op *op;
    int n_op;
    float *x, *y, *r, *late, *host_r; /* of the device: x, y, r */
    float *weight, *host_weight;
    int32_t *id, *host_id;
    dev_act *act, *host_act;
    dev_mat *attn, *shared, *dense, *head, *gate_up, *down;
};

static void *memory(dev *d, int64_t n)
{
    void *p = NULL;
    ASSERT_OK(dev_alloc(d, MEM_ACTS, n, &p, &err));
    return p;
}

static dev_mat *stack(dev *d, int n, bool pair, int rows, enum dev_use use)
{
    static float w[10000 * D];
    struct weight all[K];
    dev_mat *m = NULL;
    for (int i = 0; i < n; i++)
        all[i] = (struct weight){.name = "w",
                                 .type = TENSOR_F32,
                                 .rows = rows,
                                 .cols = D,
                                 .data = (const uint8_t *)w,
                                 .row_bytes = D * 4,
                                 .tensor_scale = 1.0f};
    ASSERT_OK(dev_mat_load(
        d, &(struct dev_weights){.first = all, .second = pair ? all : NULL, .n = n, .use = use}, &m,
        &err));
    return m;
}

/* As many rows as the parameters need; NULL: none. */
static dev_mat *matrix(dev *d, double params)
{
    return params > 0 ? stack(d, 1, false, (int)(params / SCALE + 0.5), DEV_USE_MATMUL) : NULL;
}

static struct dev_op *add(struct rig *r, dev *d, enum dev_op_kind kind)
{
    assert_true(r->n_op < OP_MAX);
    r->op[r->n_op] = (struct dev_op){.kind = kind, .layer = -1, .d = d};
    return &r->op[r->n_op++];
}

/* A product, and launches beside it that read nothing to speak of: n in all. */
static void add_product(struct rig *r, const dev_mat *w, int n)
{
    if (w)
        add(r, r->d, DEV_OP_matmul)->u.matmul =
            (struct dev_matmul){.act = r->act, .n_mat = 1, .w = {w}, .y = {r->y}};
    for (int i = w ? 1 : 0; i < n; i++)
        add(r, r->d, DEV_OP_add)->u.add = (struct dev_add){.x = r->x, .y = r->x, .n = 1};
}

static void add_move(struct rig *r, void *at, void *host, int n, bool out)
{
    add(r, r->d, DEV_OP_move)->u.move =
        (struct dev_move){.at = at, .host = host, .out = out, .n = n};
}

static struct dev_moe experts(struct rig *r, int n_late)
{
    return (struct dev_moe){.act = r->host_act,
                            .k = K,
                            .n_expert = K,
                            .id = r->host_id,
                            .weight = r->host_weight,
                            .gate_up = r->gate_up,
                            .down = r->down,
                            .n_late = n_late,
                            .y = r->host_r};
}

static void add_late(struct rig *r, int n_late)
{
    struct dev_op *op = add(r, r->host, DEV_OP_moe);
    op->beside = true;
    op->u.moe = experts(r, n_late);
    op->u.moe.late = true;
    op->u.moe.y = r->late;
}

/* As model/ffn.c lists it. */
static void add_layers(struct rig *r, int n_late)
{
    for (int i = 0; i < r->s->n_dense; i++) {
        add_product(r, r->attn, PER_LAYER - 1);
        add_product(r, r->dense, 1);
    }
    for (int i = 0; i < r->s->n_layer; i++) {
        bool is_last = i == r->s->n_layer - 1;
        add_product(r, r->attn, PER_LAYER - 3);
        add_move(r, r->id, r->host_id, K, true);
        add_move(r, r->weight, r->host_weight, K, true);
        add_product(r, r->shared, 3);
        if (i && n_late) add_late(r, n_late);
        struct dev_op *op = add(r, r->host, DEV_OP_moe);
        op->u.moe = experts(r, is_last ? 0 : n_late);
        op->u.moe.before = i && n_late ? r->late : NULL;
        add_move(r, r->r, r->host_r, D, false);
    }
    add_product(r, r->head, 4);
}

/* A card and a CPU: bytes a second. */
struct speed {
    double card, cpu;
};

static void rig_open(struct rig *r, const struct shape *s, struct speed v)
{
    char name[120];
    const dev_mat *mats[4];
    int32_t id[K];
    float weight[K];
    int n_mat = 0;
    /* what K experts take, with 25 us of their own */
    double expert = 3 * D * D * 4.0 * K, c = K * s->expert * 0.53125 / v.cpu + 25e-6;
    snprintf(name, sizeof name, "sim:bw=%.9f,lat=%dus,hand=15us,host-bw=%.9f",
             v.card * ROW_BYTES / SCALE / s->bytes * 1e-9, LAT_US, expert / c * 1e-9);
    *r = (struct rig){.s = s};
    r->op = calloc(OP_MAX, sizeof *r->op);
    assert_non_null(r->op);
    ASSERT_OK(dev_open(name, &(struct dev_opts){.n_thread = 1, .acts = DEV_ACTS_F32}, &r->d, &err));
    ASSERT_OK(
        dev_open("cpu", &(struct dev_opts){.n_thread = 1, .acts = DEV_ACTS_F32}, &r->host, &err));
    mats[n_mat++] = r->attn = matrix(r->d, s->attn);
    mats[n_mat++] = r->head = matrix(r->d, s->head);
    if ((r->shared = matrix(r->d, s->shared))) mats[n_mat++] = r->shared;
    if ((r->dense = matrix(r->d, s->dense))) mats[n_mat++] = r->dense;
    r->gate_up = stack(r->host, K, true, D, DEV_USE_EXPERTS);
    r->down = stack(r->host, K, false, D, DEV_USE_EXPERTS);
    ASSERT_OK(dev_act_open(r->d, &(struct dev_inputs){mats, n_mat, D, 1}, &r->act, &err));
    mats[0] = r->gate_up;
    ASSERT_OK(dev_act_open(r->host, &(struct dev_inputs){mats, 1, D, 1}, &r->host_act, &err));
    r->x = memory(r->d, D * 4);
    r->y = memory(r->d, 10000 * 4);
    r->r = memory(r->d, D * 4);
    r->id = memory(r->d, K * 4);
    r->weight = memory(r->d, K * 4);
    r->host_r = memory(r->host, D * 4);
    r->late = memory(r->host, D * 4);
    r->host_id = memory(r->host, K * 4);
    r->host_weight = memory(r->host, K * 4);
    for (int i = 0; i < K; i++) {
        id[i] = i;
        weight[i] = (float)i;
    }
    ASSERT_OK(dev_put(r->d, r->id, id, sizeof id, &err));
    ASSERT_OK(dev_put(r->d, r->weight, weight, sizeof weight, &err));
}

static void rig_close(struct rig *r)
{
    free(r->op);
    dev_close(r->d);
    dev_close(r->host);
}

/* ms of the second of two steps of one generated token; idle: of them the CPU had nothing to do
 * between the first layer's experts and the last's. */
static double step_ms(const struct shape *s, struct speed v, int n_late, double *idle)
{
    static const int32_t zero, tok0[2] = {0, 1};
    struct dev_limits max = {.n_tok = 1, .n_seq = 1, .n_ctx = 16};
    struct dev_op_row row[64];
    struct dev_step step = {.n_tok = 1, .n_seq = 1, .ids = &zero, .pos = &zero, .seq_tok0 = tok0};
    struct rig r;
    dev_prog *p = NULL;
    rig_open(&r, s, v);
    add_layers(&r, n_late);
    ASSERT_OK(dev_reserve(r.d, r.op, r.n_op, &max, &err));
    ASSERT_OK(dev_reserve(r.host, r.op, r.n_op, &max, &err));
    ASSERT_OK(dev_prog_open(r.d, r.op, r.n_op, &p, &err));
    for (int i = 0; i < 2; i++) {
        (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
        ASSERT_OK(dev_prog_run(p, NULL, &step, &err));
        ASSERT_OK(dev_sync(r.d, &err));
    }
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    dev_prog_close(p);
    rig_close(&r);
    assert_string_equal(row[DEV_N_OP + 1].name, "(wait)");
    assert_string_equal(row[DEV_N_OP + 2].name, "(step)");
    assert_int_equal(row[DEV_N_OP + 2].n_call, 1);
    double first = (s->n_dense + 1) * (s->attn * s->bytes / v.card + PER_LAYER * LAT_US * 1e-6) +
                   s->n_dense * s->dense * s->bytes / v.card,
           last = s->head * s->bytes / v.card;
    *idle = (double)row[DEV_N_OP + 1].ns * 1e-6 - (first + last) * 1e3;
    return (double)row[DEV_N_OP + 2].ns * 1e-6;
}

TEST(dev_hybrid_takes_the_time_of_the_formula)
{
    static const struct {
        const struct shape *s;
        struct speed v;
        double ms[N_LATE]; /* by experts that come late */
        int best;          /* from so many on the CPU has always something to do; 0 = from none */
    } rows[] = {
        {&r1, {756e9, 340e9}, {56.8, 52.7, 48.6, 44.5, 40.4, 37.5, 37.5}, 5},
        {&r1, {800e9, 379e9}, {52.6, 48.9, 45.2, 41.5, 37.8, 34.1, 34.0}, 5},
        {&r1, {756e9, 60e9}, {206, 187, 187, 187, 187, 187, 187}, 1},
        {&q30, {204e9, 50e9}, {28.0, 25.5, 23.0, 21.4, 21.4, 21.4, 21.4}, 3},
    };
    for (int i = 0; i < BASE_COUNT_OF(rows); i++)
        for (int n = 0; n < N_LATE; n++) {
            double idle, want = rows[i].ms[n], ms = step_ms(rows[i].s, rows[i].v, n, &idle);
            if (ms < 0.95 * want || ms > 1.05 * want)
                fail_msg("row %d, %d late: %.2f ms, not %.2f", i, n, ms, want);
            bool rests = idle > 0.03 * ms;
            if (rests != (n < rows[i].best))
                fail_msg("row %d, %d late: the CPU rests for %.2f of %.2f ms", i, n, idle, ms);
        }
}
