/* SPDX-License-Identifier: Apache-2.0 */
/* dev_moe of ranks that have tokens of their own, its experts spread over all of them: the bits of
 * one device, whatever rank has how many tokens, none too, and whatever they chose: any, all the
 * same, all those of few ranks; with copies; rows to all ranks, or to those that need them; in all
 * forms of experts' outputs. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { D = 96, F = 64, E = 6, K = 3, T = 19, R_MAX = 3, SLOTS = 12 };

struct experts {
    struct weight gate[E], up[E], down[E];
    float *down_bias, *x, *add, *weight;
    int32_t *id;
};

struct setup {
    const struct experts *s;
    int n_rank, n_slot;
    int32_t rank0[R_MAX + 1]; /* where each rank's slots begin */
    int32_t n_tok[R_MAX];
    int32_t expert[SLOTS];
    bool swap;
    enum dev_combine combine;
    float *y;
    pthread_barrier_t barrier;
    struct dev_joined post[R_MAX];
};
struct rank {
    struct setup *a;
    int rank;
};

/* What dist does, of threads. */
static void join(void *user, const struct dev_joined *j)
{
    const struct rank *r = user;
    struct setup *a = r->a;
    int R = a->n_rank, me = r->rank;
    int64_t n = j->n, to = 0;
    a->post[me] = *j;
    pthread_barrier_wait(&a->barrier);
    for (int q = 0; q < R; q++) {
        int64_t first = 0, n_row = j->count ? j->count[q * R + me] : j->n_of[q];
        for (int i = 0; j->count && i < me; i++)
            first += j->count[q * R + i];
        if (n_row)
            memcpy(j->y + to * n, a->post[q].x + first * n, sizeof(float) * (size_t)(n_row * n));
        to += n_row;
        if (a->post[q].n != j->n) FAIL("rank %d: rows of %d, not %d", q, a->post[q].n, j->n);
    }
    pthread_barrier_wait(&a->barrier);
}

static void *mem(size_t n)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    void *p = get_mem(n);
    (void)pthread_mutex_unlock(&lock);
    return p;
}

/* Rank r of n_rank; n_rank 1: one device that has all. */
static void run(struct setup *a, int rank, float *y)
{
    const struct experts *s = a->s;
    dev *d = NULL;
    dev_act *act = NULL, *all = NULL;
    int R = a->n_rank, n_here = R > 1 ? a->rank0[rank + 1] - a->rank0[rank] : a->n_slot;
    int n_tok = a->n_tok[rank], n_all = R * T, tok0 = 0;
    struct dev_opts o = {.n_thread = 2, .acts = DEV_ACTS_INT8};
    int32_t table[E + 1 + SLOTS], count[R_MAX * R_MAX];
    struct dev_slots slots = {.n = a->n_slot, .expert = a->expert, .first = table};
    struct rank self = {a, rank};
    struct dev_ranks ranks = {.join = join, .user = &self, .rank = rank, .n_rank = R};
    slots.list = table + E + 1;
    dev_slots_init(&slots, E);
    slots.n_here = R > 1 ? n_here : 0;
    slots.begin = R > 1 ? a->rank0[rank] : 0;
    slots.rank0 = a->rank0;
    for (int r = 0; r < rank; r++)
        tok0 += a->n_tok[r];
    MUST(dev_open("cpu", &o, &d, &err_));
    const dev_mat *gate_up = expert_stack(d, s->gate, s->up, a->expert + slots.begin, n_here),
                  *down = expert_stack(d, s->down, NULL, a->expert + slots.begin, n_here);
    end_with(down, (struct dev_epilogue){.bias = s->down_bias,
                                         .n_bias = E,
                                         .n_row = D,
                                         .of = a->expert + slots.begin});
    struct dev_op op = {
        .kind = DEV_OP_moe,
        .u.moe = {.k = K, .n_expert = E, .slots = &slots, .gate_up = gate_up, .down = down}};
    struct dev_limits max = {.n_tok = T, .n_seq = 1, .n_ctx = T, .n_tok_all = R > 1 ? n_all : 0};
    MUST(dev_reserve(d, &op, 1, &max, &err_));
    MUST(dev_act_open(d, &(struct dev_inputs){&gate_up, 1, D, T}, &act, &err_));
    MUST(dev_act_open(d, &(struct dev_inputs){&gate_up, 1, D, n_all}, &all, &err_));
    int n_word = dev_combine_words(a->combine, D);
    struct dev_spread spread = {.ranks = &ranks,
                                .n_tok_of = a->n_tok,
                                .x = s->x + tok0 * D,
                                .swap = a->swap,
                                .act = all,
                                .n_all = n_all,
                                .send = mem(sizeof(float) * (size_t)(T * K * (D + K))),
                                .give = mem(sizeof(float) * (size_t)(n_all * K * n_word)),
                                .in = mem(sizeof(float) * (size_t)(n_all * (D + K))),
                                .back = mem(sizeof(float) * (size_t)(T * K * n_word)),
                                .id = mem(sizeof(int32_t) * (size_t)(n_all * K)),
                                .list = mem(sizeof(int32_t) * (size_t)(n_all * K)),
                                .count = count};
    struct dev_step b = {.n_tok = n_tok};
    dev_prep(d, &b, &(struct dev_prep){.x = s->x + tok0 * D, .n = D, .act = act});
    struct dev_moe p = {.act = act,
                        .k = K,
                        .n_expert = E,
                        .id = s->id + tok0 * K,
                        .weight = s->weight + tok0 * K,
                        .slots = &slots,
                        .gate_up = gate_up,
                        .down = down,
                        .add = s->add + tok0 * D,
                        .spread = R > 1 ? &spread : NULL,
                        .combine = a->combine,
                        .y = y + tok0 * D};
    dev_moe(d, &b, &p);
    dev_close(d);
}

static void *run_rank(void *arg)
{
    const struct rank *r = arg;
    run(r->a, r->rank, r->a->y);
    return NULL;
}

static void run_all(struct setup *a)
{
    pthread_t thread[R_MAX];
    struct rank rank[R_MAX];
    if (pthread_barrier_init(&a->barrier, NULL, (unsigned)a->n_rank)) FAIL("no barrier");
    for (int r = 0; r < a->n_rank; r++) {
        rank[r] = (struct rank){a, r};
        if (pthread_create(&thread[r], NULL, run_rank, &rank[r])) FAIL("no thread");
    }
    for (int r = 0; r < a->n_rank; r++)
        (void)pthread_join(thread[r], NULL);
    (void)pthread_barrier_destroy(&a->barrier);
}

static void make(struct experts *s, int trial)
{
    for (int e = 0; e < E; e++) {
        s->gate[e] = rand_weight(TENSOR_Q4_0, F, D);
        s->up[e] = rand_weight(TENSOR_Q4_0, F, D);
        s->down[e] = rand_weight(TENSOR_Q8_0, D, F);
    }
    s->down_bias = rand_array(E * D);
    s->x = rand_array(T * D);
    s->add = rand_array(T * D);
    s->weight = rand_array(T * K);
    s->id = get_mem(sizeof(int32_t) * T * K);
    int first = rand_int(0, E - 1);
    for (int i = 0; i < T * K; i++) {
        int k = i % K;
        if (k) first = s->id[i - k];
        s->id[i] = trial % 3 == 0   ? (k ? (first + k) % E : rand_int(0, E - 1))
                   : trial % 3 == 1 ? (first + k) % E /* all the same */
                                    : k;              /* all on few ranks */
        if (!k) first = s->id[i];
    }
}

void check_spread(void)
{
    for (int trial = 0; trial < 36; trial++) {
        struct experts s;
        float *want = get_mem(sizeof(float) * T * D);
        struct setup a = {.s = &s, .n_rank = 1, .n_slot = E};
        a.combine = (enum dev_combine)(trial / 3 % 3);
        make(&s, trial);
        for (int e = 0; e < SLOTS; e++)
            a.expert[e] = e % E;
        a.n_tok[0] = T;
        run(&a, 0, want);
        a.n_rank = 2 + trial % 2;
        a.n_slot = trial % 4 == 3 ? SLOTS : E;
        a.swap = trial / 9 % 2;
        for (int r = 0; r <= a.n_rank; r++) /* as many on each, or not */
            a.rank0[r] = r * a.n_slot / a.n_rank + (r % a.n_rank && trial / 6 % 2);
        a.y = get_mem(sizeof(float) * T * D);
        int left = T;
        for (int r = 0; r < a.n_rank; r++) {
            a.n_tok[r] = r == a.n_rank - 1 ? left : trial % 5 == r ? 0 : rand_int(0, left);
            left -= a.n_tok[r];
        }
        run_all(&a);
        same_bits("spread over ranks", a.y, want, T * D);
        if (a.combine) {
            a = (struct setup){.s = &s, .n_rank = 1, .n_slot = E};
            float *plain = get_mem(sizeof(float) * T * D);
            for (int e = 0; e < E; e++)
                a.expert[e] = e;
            a.n_tok[0] = T;
            run(&a, 0, plain);
            double most = 0, off = 0;
            for (int i = 0; i < T * D; i++) {
                most = BASE_MAX(most, fabs(plain[i]));
                off = BASE_MAX(off, fabs((double)plain[i] - want[i]));
            }
            if (off == 0 || off > most * 0.05) FAIL("combine: %g off, of %g", off, most);
        }
        g.n_checked++;
    }
}
