/* SPDX-License-Identifier: Apache-2.0 */
/* Packed matrices (mat.c, image.c) and prepared activations. Room-internal. */
#ifndef DEV_CPU_MAT_H
#define DEV_CPU_MAT_H

#include "dev/dev_internal.h"
#include "kern/mm.h"

struct cpu;

/* A stack of n matrices (or pairs) of stride bytes, step bytes from one to the next, or some of a
 * longer one. */
struct cpu_mat {
    struct dev_mat head;
    struct mm_mat m; /* of the first; data of matrix i = m.data + i * step */
    int n;
    size_t stride, step;
    float *scale; /* [n][2] tensor scales */
    enum mm_act form;
    /* Pairs whose two halves have different run formats: m is the first half and m2 the second,
     * both plain; else m2.data is NULL. */
    struct mm_mat m2;
    size_t stride2, step2;
    enum mm_act form2;
    const int32_t *pick; /* NULL, or [n] which of all those there matrix i is */
    uint8_t **at[2]; /* NULL, or [n] where matrix i lies, of both formats: some were replaced */
    enum dev_use use;
    struct cpu_mat *next;
};

struct cpu_act {
    struct dev_act head;
    struct mm_act_buf b;
};

/* The form of activations that a matrix of that run format takes. */
enum mm_act dev_cpu_form(enum dev_acts acts, int fmt, enum dev_use use);
/* What an image says of itself fits together. Errors: FORMAT. */
sl_status dev_cpu_image_check(const char *name, const struct dev_image *im,
                              sl_err *err) BASE_MUST_USE;
/* A stack of n matrices [rows, cols], or pairs, in run formats; of pairs with two formats there are
 * two streams, m and m2. */
struct cpu_stack {
    int fmt[2], n;
    int64_t rows, cols;
    bool pair;
};
/* Everything but bytes and scales (which are 0). Errors: NOMEM. */
sl_status dev_cpu_mat_new(struct cpu *c, const struct cpu_stack *s, struct cpu_mat **out,
                          sl_err *err) BASE_MUST_USE;
/* The same, with scales, for weights, which it checks to belong together. narrow: f32 that is used
 * exactly may be kept as bf16, where that is the same numbers; packed files keep what they were
 * made of. Errors: NOMEM, FORMAT, UNSUPPORTED. */
sl_status dev_cpu_mat_of_weights(struct cpu *c, const struct dev_weights *of, bool narrow,
                                 struct cpu_mat **out, sl_err *err) BASE_MUST_USE;
/* Memory for all of its matrices. Errors: NOMEM. */
sl_status dev_cpu_mat_memory(struct cpu *c, struct cpu_mat *w, sl_err *err) BASE_MUST_USE;
/* Its bytes and scales are there: choose its form and let the workspace know of it. */
void dev_cpu_mat_add(struct cpu *c, struct cpu_mat *w, enum dev_use use);
/* Tell the owner of the source that units [begin, end) are packed; unit i * n_tile + t is tile t of
 * matrix i. */
void dev_cpu_mat_drop(const struct dev_weights *of, int n_tile, int64_t begin, int64_t end);
static inline size_t dev_cpu_mat_place(const struct cpu_mat *w, int i)
{
    return (size_t)(w->pick ? w->pick[i] : i);
}
static inline struct mm_mat dev_cpu_mat_at(const struct cpu_mat *w, int i)
{
    struct mm_mat m = w->m;
    m.data = w->at[0] ? w->at[0][i] : m.data + dev_cpu_mat_place(w, i) * w->step;
    m.scale = w->scale[2 * i];
    m.scale2 = w->scale[2 * i + 1];
    return m;
}
static inline struct mm_mat dev_cpu_mat2_at(const struct cpu_mat *w, int i)
{
    struct mm_mat m = w->m2;
    if (m.data) m.data = w->at[0] ? w->at[1][i] : m.data + dev_cpu_mat_place(w, i) * w->step2;
    m.scale = w->scale[2 * i + 1];
    return m;
}
static inline const struct cpu_mat *dev_cpu_mat_of(const dev_mat *m)
{
    return (const struct cpu_mat *)m;
}

#endif
