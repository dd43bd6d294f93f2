/* SPDX-License-Identifier: Apache-2.0 */
/* dev_moe with experts in other slots of the stacks, in several of them, or in none: the same bits
 * as with expert e in slot e. */
#include "check.h"

enum { D = 96, F = 64, E = 7, K = 3, T = 37 };

struct experts {
    struct weight gate[E], up[E], down[E];
    float *gate_up_bias, *down_bias;
    float *x, *add, *weight;
    int32_t *id;
};

static void make(struct experts *s)
{
    for (int e = 0; e < E; e++) {
        s->gate[e] = rand_weight(TENSOR_Q4_0, F, D);
        s->up[e] = rand_weight(TENSOR_Q4_0, F, D);
        s->down[e] = rand_weight(TENSOR_Q8_0, D, F);
        s->gate[e].tensor_scale = 1.0f + 0.25f * (float)e;
        s->up[e].tensor_scale = 2.0f;
        s->down[e].tensor_scale = 0.5f;
    }
    s->gate_up_bias = rand_array(E * 2 * F);
    s->down_bias = rand_array(E * D);
    s->x = rand_array(T * D);
    s->add = rand_array(T * D);
    s->weight = rand_array(T * K);
    s->id = get_mem(sizeof(int32_t) * T * K);
    for (int t = 0; t < T; t++)
        for (int k = 0; k < K; k++)
            s->id[t * K + k] =
                k == 0 ? rand_int(0, rand_int(0, E - 1)) : (s->id[t * K + k - 1] + 1) % E;
}

/* y [T, D] with n experts in the slots; no table where is is false. */
static void run(const struct experts *s, const int32_t *expert, int n, bool is, float *y)
{
    dev *d = NULL;
    dev_act *a = NULL;
    struct dev_opts o = {.n_thread = rand_int(1, 3), .acts = DEV_ACTS_INT8};
    struct dev_slots slots = {.n = n, .expert = expert};
    int32_t table[E + 1 + STACK_MAX];
    slots.first = table;
    slots.list = table + E + 1;
    dev_slots_init(&slots, E);
    MUST(dev_open("cpu", &o, &d, &err_));
    const dev_mat *gate_up = expert_stack(d, s->gate, s->up, expert, n),
                  *down = expert_stack(d, s->down, NULL, expert, n);
    end_with(gate_up, (struct dev_epilogue){
                          .bias = s->gate_up_bias, .n_bias = E, .n_row = 2 * F, .of = expert});
    end_with(down, (struct dev_epilogue){
                       .bias = s->down_bias, .n_bias = E, .n_row = D, .of = expert});
    struct dev_op op = {
        .kind = DEV_OP_moe,
        .u.moe = {.k = K, .n_expert = E, .slots = &slots, .gate_up = gate_up, .down = down}};
    reserve(d, T, &op, 1);
    MUST(dev_act_open(d, &(struct dev_inputs){&gate_up, 1, D, T}, &a, &err_));
    struct dev_step b = {.n_tok = T};
    dev_prep(d, &b, &(struct dev_prep){.x = s->x, .n = D, .act = a});
    struct dev_moe p = {.act = a,
                        .k = K,
                        .n_expert = E,
                        .id = s->id,
                        .weight = s->weight,
                        .slots = is ? &slots : NULL,
                        .gate_up = gate_up,
                        .down = down,
                        .add = s->add,
                        .y = y};
    dev_moe(d, &b, &p);
    dev_close(d);
}

void check_slots(void)
{
    static const int32_t even[E] = {0, 1, 2, 3, 4, 5, 6};
    for (int trial = 0; trial < 6; trial++) {
        struct experts s;
        int32_t expert[STACK_MAX], some[E];
        float *want = get_mem(sizeof(float) * T * D), *y = get_mem(sizeof(float) * T * D);
        int n = E, n_some = 0;
        make(&s);
        run(&s, even, E, false, want);
        shuffled(expert, E);
        run(&s, expert, E, true, y);
        same_bits("shuffled slots", y, want, T * D);
        while (n < STACK_MAX)
            expert[n++] = trial % 2 ? expert[0] : rand_int(0, E - 1);
        run(&s, expert, n, true, y);
        same_bits("doubled experts", y, want, T * D);
        for (int e = 0; e < E; e++)
            if (e % 3 != trial % 3) some[n_some++] = e;
        run(&s, some, n_some, true, y);
        for (int i = 0; i < T * K; i++) /* as if those that are not there weighed nothing */
            if (s.id[i] % 3 == trial % 3) s.weight[i] = 0;
        run(&s, even, E, false, want);
        for (int i = 0; i < T * D; i++)
            if (y[i] != want[i]) FAIL("missing experts: %d: %g, not %g", i, y[i], want[i]);
        g.n_checked++;
    }
}
