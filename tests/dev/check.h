/* SPDX-License-Identifier: Apache-2.0 */
/* check_dev: operators against restatements in double. Tolerances are formulas of the sizes; u is
 * the unit roundoff of f32. */
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dev/dev.h"

#define U 5.9604644775390625e-8 /* 2^-24 */

struct check {
    uint64_t seed, rng;
    int n_fail, n_checked, repeat;
    int acts, kv; /* enum dev_acts, enum dev_kv_type; -1 = all */
};
extern struct check g;

/* A failed check prints and counts; the program goes on. */
#define FAIL(...)                                                                                  \
    do {                                                                                           \
        if (g.n_fail++ < 30) {                                                                     \
            printf("FAIL %s:%d: ", __FILE__, __LINE__);                                            \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)
#define MUST(expr)                                                                                 \
    do {                                                                                           \
        sl_err err_;                                                                               \
        sl_status st_ = (expr);                                                                    \
        if (st_ != SL_OK) {                                                                        \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #expr, status_text(st_));           \
            exit(1);                                                                               \
        }                                                                                          \
        (void)err_;                                                                                \
    } while (0)

int rand_int(int lo, int hi); /* inclusive */
float rand_f(void);           /* about normal */
float *rand_array(int64_t n);
/* 0 .. n - 1 in random order. */
void shuffled(int32_t *perm, int n);
void *get_mem(size_t n); /* zeroed; freed at the end of each check */
void free_all(void);

/* |got - want| <= tol for n values; the first miss is printed. */
void compare(const char *what, const float *got, const double *want, const double *tol, int64_t n);
/* The same bits. */
void same_bits(const char *what, const float *a, const float *b, int64_t n);

/* A weight of random values stored as type (F32, BF16, Q8_0, Q4_0), and its numbers. */
struct weight rand_weight(enum tensor_dtype type, int rows, int cols);
double *weight_numbers(const struct weight *w);
/* A stack of n matrices, those of experts: a[e], or pairs of a[e] and b[e]. */
#define STACK_MAX 16
dev_mat *expert_stack(dev *d, const struct weight *a, const struct weight *b, const int32_t *expert,
                      int n);
/* Products of m, which may be const, end with a bias (NULL: none) and a unit. */
void end_with(const dev_mat *m, struct dev_epilogue e);

/* Workspace for steps of n_tok tokens, up to n_tok sequences and 64 positions with the operators.
 */
void reserve(dev *d, int n_tok, const struct dev_op *op, int n_op);

struct batch {
    struct dev_step b;
    const int32_t *seq; /* [T] */
    int n_ctx, blk_tok;
};
/* n_seq sequences; sequence s has n_new[s] new tokens from position pos0[s] on. table: the blocks
 * of each, in rows of ld. */
struct batch make_batch(int n_seq, const int *pos0, const int *n_new, int blk_tok, int32_t *table,
                        int ld);

void check_ops(void);
void check_route(void);
void check_delta(void);
void check_streams(void);
void check_attn(void);
void check_mla(void);
void check_index(void);
void check_blocks(void);
void check_ckv(void);
void check_pools(void);
void check_bits(void);
void check_prog(void);
void check_slots(void);
void check_spread(void);
void check_shares(void);
void check_late(void);
void check_best(void);
void check_faults(void);

#endif
