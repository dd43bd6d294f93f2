/* SPDX-License-Identifier: Apache-2.0 */
/* What checks of attention share (check_attn.c, check_index.c): sequences in a paged cache, and
 * attention in double. */
#ifndef CHECK_ATTN_H
#define CHECK_ATTN_H

#include "check.h"

#define LAYERS 2
#define U16 0x1p-9 /* unit roundoff of bf16 */

/* What the cache keeps of x[i]; groups of Q8 run over the row x[0..n). */
double check_stored(enum dev_kv_type t, const float *x, int n, int i);
/* Sequences of random lengths in random blocks; unused blocks poisoned. */
struct scene {
    int S, blk_tok, n_blk, ld, T, group;
    int pos0[4], n_new[4], len[4];
    int32_t *table, spare;
    float *k[4], *v[4]; /* [len][C * d] of each sequence */
    float *x[4];        /* [len][xw] keys of an index; xw 0 = there are none */
    int xw;
    struct batch b;
};

/* kw, vw: values of a key and of a value, of all heads together; vw 0: there are none. */
struct scene check_scene(int kw, int vw, int max_len);
/* With keys of an index of xw values. */
void check_scene_index(struct scene *s, int xw);
/* Fill the cache: everything before the step's tokens in one step, then the step's. All other
 * places stay NaN. */
void check_fill(dev *d, dev_kv *kv, const struct scene *s, int kw, int vw);

/* Attention of one query over positions [lo, hi). u16: what queries, keys, weights and values are
 * rounded to besides (0 = not). */
struct query {
    int lo, hi, d, dv;
    const int32_t *pick; /* NULL, or [hi] which positions these are */
    double scale, u16;
    const float *q, *sink; /* sink: one more score beside the keys, or NULL */
    double (*key)(void *arg, int p, int i), (*value)(void *arg, int p, int i);
    void *arg;
};

/* softmax(scale q k) v in double, and how far off a computed one may be. */
void check_attend(const struct query *f, double *y, double *tol);

struct gqa_arg {
    const struct scene *s;
    int seq, head, C, dk, dv;
    enum dev_kv_type t;
};
double check_gqa_key(void *arg, int p, int i);
double check_gqa_value(void *arg, int p, int i);

struct mla_arg {
    const struct scene *s;
    int seq, r, rope, nope, v;
    const double *wk, *wv; /* of the head: [r][nope], [v][r] */
    const float *qn;
    enum dev_kv_type t;
    double *kn, *vn;     /* materialised: [len][nope], [len][v] */
    const int32_t *pick; /* NULL, or [T, n_pick] as of dev_attn_mla */
    int n_pick;
};
/* One head's results: q [T][H * (nope + rope)], y [T][H * v] from that head on. coarse: 15-bit
 * activations. */
void check_mla_head(struct mla_arg a, const float *q, const float *y, int n_head, float scale,
                    int coarse);

#endif
