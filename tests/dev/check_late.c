/* SPDX-License-Identifier: Apache-2.0 */
/* dev_moe with terms that come late: what is in time and what is late are all terms, each once,
 * chosen by weight; sums of layers before are added where the token is generated. */
#include "check.h"

enum { D = 96, F = 64, E = 9, K = 4, T = 23, N_SEQ = 3 };

struct late {
    dev *d;
    struct dev_moe moe; /* all terms */
    float *x, *weight;
    int32_t *id;
    struct batch b;
    int32_t n_prompt[N_SEQ];
    bool generated[T];
};

static dev_mat *stack(dev *d, bool pair, int rows, int cols)
{
    struct weight w[2][E];
    dev_mat *m = NULL;
    for (int i = 0; i < E; i++) {
        w[0][i] = rand_weight(TENSOR_Q4_0, rows, cols);
        w[1][i] = rand_weight(TENSOR_Q4_0, rows, cols);
    }
    MUST(dev_mat_load(
        d,
        &(struct dev_weights){
            .first = w[0], .second = pair ? w[1] : NULL, .n = E, .use = DEV_USE_EXPERTS},
        &m, &err_));
    return m;
}

static void make(struct late *s)
{
    static const int pos0[N_SEQ] = {0, 9, 5}, n_new[N_SEQ] = {8, 8, 7};
    struct dev_opts o = {.n_thread = rand_int(1, 3), .acts = DEV_ACTS_INT8};
    const dev_mat *gate_up;
    dev_act *a = NULL;
    int32_t *table = get_mem(sizeof(int32_t) * N_SEQ * 4);
    *s = (struct late){.x = rand_array(T * D), .weight = rand_array(T * K)};
    s->id = get_mem(sizeof(int32_t) * T * K);
    for (int i = 0; i < T; i++) {
        int32_t perm[E];
        shuffled(perm, E);
        for (int k = 0; k < K; k++) {
            s->id[i * K + k] = perm[k];
            if (rand_int(0, 3) == 0) s->weight[i * K + k] = s->weight[i * K]; /* equals */
        }
    }
    MUST(dev_open("cpu", &o, &s->d, &err_));
    gate_up = stack(s->d, true, F, D);
    s->moe = (struct dev_moe){.k = K, .n_expert = E, .id = s->id, .weight = s->weight};
    s->moe.gate_up = gate_up;
    s->moe.down = stack(s->d, false, D, F);
    struct dev_op op = {.kind = DEV_OP_moe, .u.moe = s->moe};
    reserve(s->d, T, &op, 1);
    MUST(dev_act_open(s->d, &(struct dev_inputs){&gate_up, 1, D, T}, &a, &err_));
    s->moe.act = a;
    s->b = make_batch(N_SEQ, pos0, n_new, 16, table, 4);
    s->b.b.n_prompt = s->n_prompt;
    s->n_prompt[0] = 20;             /* a prompt */
    s->n_prompt[1] = rand_int(0, 9); /* generated */
    s->n_prompt[2] = rand_int(6, 11);
    for (int q = 0, t = 0; q < N_SEQ; q++)
        for (int i = 0; i < n_new[q]; i++)
            s->generated[t++] = pos0[q] + i >= s->n_prompt[q];
    dev_step_begin(s->d, NULL, &s->b.b);
    dev_prep(s->d, &s->b.b, &(struct dev_prep){.x = s->x, .n = D, .act = a});
}

/* Term k of token t comes late: n - 1 others at most are smaller, or as small and later. */
static bool is_late(const struct late *s, int t, int k, int n)
{
    int order[K]; /* the best first */
    const float *w = s->weight + t * K;
    const int32_t *id = s->id + t * K;
    for (int i = 0; i < K; i++)
        order[i] = i;
    for (int i = 0; i < K; i++)
        for (int j = i + 1; j < K; j++)
            if (w[order[j]] > w[order[i]] ||
                (w[order[j]] == w[order[i]] && id[order[j]] < id[order[i]])) {
                int swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
    for (int i = K - n; i < K; i++)
        if (order[i] == k) return s->generated[t];
    return false;
}

/* The plain operator where terms that are not late (or that are) weigh nothing. */
static void plain(const struct late *s, int n, bool late, float *y)
{
    float *w = get_mem(sizeof(float) * T * K);
    struct dev_moe p = s->moe;
    for (int i = 0; i < T * K; i++)
        w[i] = is_late(s, i / K, i % K, n) == late ? s->weight[i] : 0;
    p.weight = w;
    p.y = y;
    dev_moe(s->d, &s->b.b, &p);
}

static void row_is(const char *what, const float *y, const float *want)
{
    for (int i = 0; i < D; i++)
        if (y[i] != want[i]) { /* a term of no weight may turn the sign of a zero */
            FAIL("%s: %d: %g, not %g", what, i, (double)y[i], (double)want[i]);
            return;
        }
    g.n_checked++;
}

static void check_sums(const struct late *s, int n)
{
    size_t size = sizeof(float) * T * D;
    float *now = get_mem(size), *late = get_mem(size), *y = get_mem(size), *sum = get_mem(size),
          *add = rand_array(T * D), *before = rand_array(T * D);
    struct dev_moe p = s->moe;
    plain(s, n, false, now);
    plain(s, n, true, late);
    p.n_late = n;
    p.y = y;
    dev_moe(s->d, &s->b.b, &p);
    for (int t = 0; t < T; t++)
        row_is("in time", y + t * D, now + t * D);
    memcpy(sum, add, size);
    p.y = sum;
    p.add = sum; /* in place, as shared experts are */
    p.before = before;
    dev_moe(s->d, &s->b.b, &p);
    for (int i = 0; i < T * D; i++)
        y[i] = (s->generated[i / D] ? y[i] + before[i] : y[i]) + add[i];
    for (int t = 0; t < T; t++)
        row_is("with the sum before", sum + t * D, y + t * D);
    for (int i = 0; i < T * D; i++)
        y[i] = 7;
    p = s->moe;
    p.n_late = n;
    p.late = true;
    p.y = y;
    dev_moe(s->d, &s->b.b, &p);
    for (int i = 0; i < T * D; i++)
        if (!s->generated[i / D]) late[i] = 7; /* is not written */
    for (int t = 0; t < T; t++)
        row_is("late", y + t * D, late + t * D);
}

void check_late(void)
{
    for (int trial = 0; trial < 4; trial++) {
        struct late s;
        make(&s);
        for (int n = 1; n <= K; n++)
            check_sums(&s, n);
        dev_close(s.d);
    }
}
