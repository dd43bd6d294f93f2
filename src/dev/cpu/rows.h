/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of values: split over the workers (work.c), rotated (rows.c). Room-internal. */
#ifndef DEV_CPU_ROWS_H
#define DEV_CPU_ROWS_H

#include "dev/dev_internal.h"
#include "kern/vec.h"

struct cpu;

/* Angles of the step's tokens for one frequency table. */
struct cpu_angles {
    const float *freq;
    int n_rot;
    float mscale;
    int half;     /* of a step that is cut */
    int32_t *pos; /* [n_tok_max], -1 = none */
    float *cs;    /* [n_tok_max][n_rot_max]: cosines, then sines */
};
#define CPU_N_ANGLES 8
/* Rows of about ns nanoseconds each: on the caller when they are few, else over the team in
 * contiguous ranges. */
void dev_cpu_for_rows(struct cpu *c, int n_row, double ns,
                      void (*fn)(struct cpu *c, void *arg, int row, int worker), void *arg);
/* Cosines and sines of the step's tokens: token t's from t * c->n_rot_max on. */
const float *dev_cpu_angles(struct cpu *c, const struct dev_step *b, const struct dev_rope *p);
/* One head; cs: of its token. */
static inline void dev_cpu_rotate(const struct vec_kern *k, int style, float *x, const float *cs,
                                  int n_rot)
{
    if (style)
        k->rope_pairs_f32(x, cs, n_rot);
    else
        k->rope_half_f32(x, cs, n_rot);
}

#endif
