/* SPDX-License-Identifier: Apache-2.0 */
/* What the checks of check_gpu share: both devices, buffers on both, random steps and matrices. */
#ifndef CHECK_GPU_H
#define CHECK_GPU_H

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "dev/dev.h"
#include "dev/gpu/gpu.h"

#define T_MAX 65
#define N_BLK 144 /* of a sequence a third */
#define BLK 16
#define N_POS 384  /* of a sequence, as a rule */
#define N_LONG 720 /* where spans are shared out */
#define N_TOKENS 8

struct gpu_checks {
    uint64_t rng, seed;
    int n_fail, n_checked;
    const char *device;
    int exact, expand_from; /* as dev_opts, dev_limits have them */
    int p0, n_pos; /* positions of a step's tokens are from p0 on, below n_pos */
    dev *d[2]; /* the CPU, and the device */
};
extern struct gpu_checks g;

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        sl_err err_ = {0};                                                                         \
        if ((expr) != SL_OK) {                                                                     \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #expr, err_.text);                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int rand_int(int lo, int hi);
float rand_f(void); /* about normal */
/* n random values on both devices, a few of them large. */
struct buf {
    float *at[2];
    float *x; /* on the host */
    int64_t n;
};
struct buf make_buf(int64_t n);
void same(const char *what, const struct buf *b);

/* A step of T tokens of up to 3 sequences; table: their blocks. */
extern int32_t pos[T_MAX], tok0[4], table[3 * N_BLK];
extern const int tokens[N_TOKENS];
struct dev_step make_step(int T);
struct dev_step step_of(int T, int n_seq); /* whose tokens' positions are set by the caller */

/* Random weights of a run format. */
struct format {
    const char *name, *header; /* header: of code formats */
    int blk_k, blk_bytes, hdr_bytes;
};
extern const struct format formats[GPU_N_FMT];
void make_mat(const struct format *f, const struct dev_image *shape, enum dev_use use,
              dev_mat *out[2]);
void free_mats(void); /* what make_mat made */
/* Products of w end with random biases, n_bias of n_row, where is_biased, and with glu. */
void end_both(dev_mat *const w[2], bool is_biased, int n_bias, int n_row, struct glu glu);
void open_both(enum dev_acts acts);
void close_both(void);
/* other: the operators of the device, NULL: op has nothing of a device. */
void reserve_both(const struct dev_op *op, int n_op, const struct dev_op *other);
void act_for(dev_mat *const m[2], int n_col, dev_act *out[2]);

void check_sends(void); /* check_gpu_send.c */
void check_again(void); /* check_gpu_again.c */
void check_states(void); /* check_gpu_delta.c */
void check_gates(void);

#endif
