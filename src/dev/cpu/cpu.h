/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device: operators over kern, split over a worker team. Its state, of which each
 * concern has its part in a header of its own, and the entries of its table. Room-internal. */
#ifndef DEV_CPU_CPU_H
#define DEV_CPU_CPU_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dev/cpu/keep.h"
#include "dev/cpu/mem.h"
#include "dev/cpu/moe.h"
#include "dev/cpu/product.h"
#include "dev/cpu/rows.h"
#include "dev/cpu/span.h"
#include "dev/cpu/work.h"
#include "kern/kern.h"

/* Scratch of one worker. Pointers of one slab; sizes by dev_reserve. */
struct cpu_scratch {
    void *mm;           /* kern_mm's */
    float *tile;        /* outputs of a piece: CPU_TILE_FLOATS and more */
    float *row;         /* one row of the widest input */
    float *attn;        /* everything that attention needs, carved there */
    const float **rowp; /* [k] */
};

/* Memory of fused regions: x and an input of each worker, and hidden values. */
struct cpu_own {
    float **x;  /* [n_worker] */
    void **act; /* [n_worker] */
    void *hidden;
    size_t n_x, n_act, n_hidden;
};
/* The largest logit of a row, or of a part of one. */
struct cpu_best {
    float v;
    int32_t id; /* or DEV_BEST_NAN, DEV_BEST_NONE */
};
/* Memory of MLA's operators. */
struct cpu_latents {
    int32_t *tok_list; /* [T] tokens of one form */
    float *lat, *olat; /* [T, H, r] */
};

/* Memory of indexers; NULL where no sequence is longer than what a token sees. */
struct cpu_index {
    int32_t *tok; /* [T] */
    float *score; /* of a batch of tokens, of all positions */
};

struct cpu {
    struct dev head;
    /* fixed after open */
    par_team *team;
    int n_worker, huge;
    enum dev_acts acts;
    bool exact;
    struct vec_kern k;
    struct cpu_ahead ahead[CPU_AHEAD_MAX]; /* each its worker's */
    struct cpu_mem mem;
    struct cpu_mat *mats;
    const struct dev_some *some; /* while some of a stack are packed */
    struct dev_shapes most; /* what was reserved */
    int n_col_max;

    /* step scratch; sizes fixed by dev_reserve */
    struct cpu_scratch *scratch; /* [n_worker] */
    int n_tok_max;
    size_t tile_floats;
    struct cpu_work work[2];
    int32_t *iota;                    /* 0, 1, 2, ... */
    struct cpu_order *orders, *order; /* [n_pass]; of the pass under way */
    int32_t *seq_of;                  /* [T] which sequence of the step a token is of, rising */
    uint8_t *expand;                  /* [T] MLA: 1 = materialised keys and values, 0 = absorbed */
    uint8_t *generated;               /* [T] 1 = not of the prompt */
    struct cpu_angles angles[CPU_N_ANGLES];
    int angles_next, n_rot_max;
    int half; /* of the step under way, whose operators run; 0 too where it is not cut */
    struct cpu_experts moe;
    struct cpu_heads heads;
    struct cpu_spans span;
    struct cpu_latents mla;
    struct cpu_index index;
    struct cpu_keep keep;
    struct cpu_own own;
    struct cpu_best *best; /* [n_worker, n_tok_max] */
};
static inline int dev_cpu_round16(int n)
{
    return (n + 15) / 16 * 16;
}
static inline struct cpu *dev_cpu_of(dev *d)
{
    return (struct cpu *)d;
}

/* ---- the table's entries ---- */
#define X(name, params)                                                                            \
    void dev_cpu_##name(dev *d, const struct dev_step *b, const struct params *p);
DEV_OP_LIST(X)
#undef X
sl_status dev_cpu_mat_load(dev *d, const struct dev_weights *of, dev_mat **out, sl_err *err);
sl_status dev_cpu_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                          dev_mat **out, sl_err *err);
sl_status dev_cpu_mat_pack(dev *d, const struct dev_weights *of, const struct dev_image_sink *sink,
                           sl_err *err);
/* Matrices of one device on another. Errors: NOMEM. */
void dev_cpu_mat_view(const dev_mat *m, int i, struct dev_image *out);
sl_status dev_cpu_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use,
                           dev_mat **out, sl_err *err);
sl_status dev_cpu_mat_fill(dev_mat *m, int at, const struct dev_image *one, sl_err *err);
sl_status dev_cpu_act_open(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err);
int64_t dev_cpu_kv_bytes(const dev *d, const struct dev_kv_shape *s);
enum dev_kv_type dev_cpu_kv_auto(const dev *d);
sl_status dev_cpu_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err);
void dev_cpu_step_begin(dev *d, dev_kv *kv, const struct dev_step *s);
/* delta.c: values that a worker needs for it. */
size_t dev_cpu_delta_floats(const struct dev_shapes *p);
/* compress.c: the same; ckv.c: rows and row floats of a part too. */
size_t dev_cpu_compress_floats(const struct dev_shapes *p);
void dev_cpu_ckv_need(const struct dev_shapes *p, int *n_row, int *ldo, size_t *mem_floats);
/* index.c: the same, and memory. */
size_t dev_cpu_index_floats(const struct dev_shapes *p);
sl_status dev_cpu_index_reserve(struct cpu *c, sl_err *err);
void dev_cpu_half(dev *d, const struct dev_step *s, int i);
void dev_cpu_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n);
void dev_cpu_kv_poison(dev *d, dev_kv *kv, int group, int blk);
int64_t dev_cpu_kv_page(dev_kv *kv, const struct dev_kv_at *at, void *page, bool set);
void dev_cpu_kv_join(dev_kv *kv, const struct dev_kv_at *at, int n_head, const void *part,
                     void *page);
sl_status dev_cpu_reserve(dev *d, const struct dev_shapes *p, sl_err *err);
const char *dev_cpu_lacks(const dev *d, const struct dev_op *op);
sl_status dev_cpu_fuse(dev *d, const struct dev_op *op, int n_op, int at, struct dev_fused **out,
                       sl_err *err);
bool dev_cpu_run_fused(dev *d, dev_kv *kv, const struct dev_step *b, struct dev_fused *f);
double dev_cpu_probe_read_gbps(dev *d, int ms);
double dev_cpu_probe_int8_gops(dev *d, int ms);
double dev_cpu_probe_attn_gops(dev *d, const dev_kv *kv, int ms);

extern const struct dev_one_ops dev_cpu_one; /* one.c */
void dev_cpu_mat_some(dev *d, const struct dev_some *s); /* mat.c */

#endif
