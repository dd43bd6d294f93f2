/* SPDX-License-Identifier: Apache-2.0 */
/* check_gpu: 1,000 steps of one shape, and times of operators. */
#include <string.h>

#include "base/clock.h"
#include "check_gpu.h"

enum { AGAIN_D = 64, AGAIN_H = 2, AGAIN_N = 1000, AGAIN_OPS = 7 };
struct again {
    dev_mat *w[2], *o[2];
    dev_act *a[2], *oa[2];
    struct buf x, q, y, z, one;
    struct dev_op op[2][AGAIN_OPS];
};

/* A layer's attention, of device k. */
static void again_ops(struct again *t, int k)
{
    enum { D = AGAIN_D, H = AGAIN_H };
    static const float freq[D / H / 2] = {1.0f, 0.5f, 0.3f, 0.2f, 0.1f};
    struct dev_op all[AGAIN_OPS] = {
        {.kind = DEV_OP_norm},   {.kind = DEV_OP_matmul}, {.kind = DEV_OP_rope},
        {.kind = DEV_OP_kv_put}, {.kind = DEV_OP_attn},   {.kind = DEV_OP_prep},
        {.kind = DEV_OP_matmul}};
    all[0].u.norm = (struct dev_norm){.x = t->x.at[k], .r = t->z.at[k], .w = t->one.at[k],
                                      .eps = 1e-5f, .n = D, .act = t->a[k]};
    all[1].u.matmul = (struct dev_matmul){.act = t->a[k], .n_mat = 1, .w = {t->w[k]},
                                          .y = {t->q.at[k]}};
    all[2].u.rope = (struct dev_rope){.x = t->q.at[k], .n_head = H, .ldx = D, .ldx_h = D / H,
                                      .n_rot = D / H, .freq = freq, .mscale = 1.0f};
    all[3].u.kv_put = (struct dev_kv_put){.k = t->q.at[k], .v = t->q.at[k], .ldk = D, .ldv = D};
    all[4].u.attn = (struct dev_attn){.n_head = H, .d_k = D / H, .d_v = D / H, .scale = 0.2f,
                                      .q = t->q.at[k], .y = t->y.at[k]};
    all[5].u.prep = (struct dev_prep){.x = t->y.at[k], .n = D, .act = t->oa[k]};
    all[6].u.matmul = (struct dev_matmul){.act = t->oa[k], .n_mat = 1, .w = {t->o[k]},
                                          .y = {t->z.at[k]}};
    memcpy(t->op[k], all, sizeof all);
}

/* A position a step: after the first nothing is allocated, and recorded only where twice as many
 * spans are shared out: at positions 256 and 512. */
static void again_run(const struct again *t, int k, int n_step)
{
    struct dev_kv_shape shape = {.type = DEV_KV_F16, .blk_tok = BLK, .n_group = 1};
    const int H = AGAIN_H, d = AGAIN_D / AGAIN_H;
    const struct gpu *gpu = (const struct gpu *)g.d[1];
    uint64_t n[3] = {0}, n_new = n_step > 512 ? 2 : 0;
    dev_kv *kv;
    dev_prog *prog;
    shape.group[0] = (struct dev_kv_group){DEV_KV_PAGED, 1, N_BLK, H, d, d, 0, {{0}}};
    MUST(dev_kv_open(g.d[k], &shape, &kv, &err_));
    MUST(dev_prog_open(g.d[k], t->op[k], AGAIN_OPS, &prog, &err_));
    tok0[1] = 1;
    for (int i = 0; i < n_step; i++) {
        struct dev_step s = step_of(1, 1);
        pos[0] = i;
        MUST(dev_prog_run(prog, kv, &s, &err_));
        MUST(dev_sync(g.d[k], &err_));
        if (i) continue;
        n[0] = mem_n_alloc();
        n[1] = gpu->n_alloc;
        n[2] = gpu->n_record;
    }
    n[0] = mem_n_alloc() - n[0];
    n[1] = gpu->n_alloc - n[1];
    n[2] = gpu->n_record - n[2];
    g.n_checked++;
    if (k && (n[0] + n[1] || n[2] != n_new) && g.n_fail++ < 30)
        printf("FAIL %d steps: %d allocations, %d of the device, %d recordings\n", n_step,
               (int)n[0], (int)n[1], (int)n[2]);
    dev_prog_close(prog);
}

/* The same with times of operators, on the device's clock: all of them together no more than the
 * steps took. */
static void again_timed(const struct again *t)
{
    enum { N = 40 };
    struct dev_op_row row[DEV_N_OP];
    int64_t sum = 0;
    again_run(t, 0, N);
    (void)dev_op_times(g.d[1], row, DEV_N_OP);
    int64_t t0 = clock_now_ns();
    again_run(t, 1, N);
    int64_t ns = clock_now_ns() - t0;
    (void)dev_op_times(g.d[1], row, DEV_N_OP);
    for (int i = 0; i < AGAIN_OPS; i++) {
        const struct dev_op_row *r = &row[t->op[1][i].kind];
        uint64_t n_call = N * (1 + (t->op[1][i].kind == DEV_OP_matmul));
        g.n_checked++;
        if ((r->n_call != n_call || r->ns <= 0) && g.n_fail++ < 30)
            printf("FAIL times of %s: %d calls, %lld ns\n", r->name, (int)r->n_call,
                   (long long)r->ns);
    }
    for (int i = 0; i < DEV_N_OP; i++)
        sum += row[i].ns;
    g.n_checked++;
    if (sum > ns && g.n_fail++ < 30)
        printf("FAIL times of operators: %lld ns of %lld\n", (long long)sum, (long long)ns);
}

/* 1,000 steps of one shape; the last has the CPU's bits. */
void check_again(void)
{
    enum { D = AGAIN_D };
    struct again t;
    open_both(DEV_ACTS_AUTO);
    make_mat(&formats[0], &(struct dev_image){.n = 1, .rows = D, .cols = D}, DEV_USE_MATMUL, t.w);
    make_mat(&formats[0], &(struct dev_image){.n = 1, .rows = D, .cols = D}, DEV_USE_PLAIN, t.o);
    act_for(t.w, D, t.a);
    act_for(t.o, D, t.oa);
    t.x = make_buf(D), t.q = make_buf(D), t.y = make_buf(D), t.z = make_buf(D);
    t.one = make_buf(D);
    again_ops(&t, 0);
    again_ops(&t, 1);
    reserve_both(t.op[0], AGAIN_OPS, t.op[1]);
    for (int i = 0; i < N_BLK; i++)
        table[i] = i * 7 % N_BLK;
    again_run(&t, 0, AGAIN_N);
    again_run(&t, 1, AGAIN_N);
    same("the last of 1000 steps", &t.z);
    again_timed(&t);
    same("the last of timed steps", &t.z);
    free(t.x.x), free(t.q.x), free(t.y.x), free(t.z.x), free(t.one.x);
    close_both();
}
