/* SPDX-License-Identifier: Apache-2.0 */
/* What every device implements: one table per kind of device. */
#ifndef DEV_DEV_INTERNAL_H
#define DEV_DEV_INTERNAL_H

#include "dev/dev.h"
#include "dev/figures.h"

struct dev_fused;

/* What of the operators of a device decides about workspace: the most of each (shapes.c). */
struct dev_shapes {
    struct dev_limits max;
    int n_head;                           /* of attention, or of products by head */
    int d_k, d_v;                         /* of keys and values per head; 0 = there are none */
    int n_rot;                            /* values of a head that are rotated */
    int mla_r, mla_nope, mla_rope, mla_v; /* 0 without MLA */
    int index_heads, index_d, index_top;  /* of an indexer: the most of each, of positions that a
                                             token sees; 0 = there is none */
    int index_score, index_list;          /* of a token: scores; blocks that are chosen */
    int ckv_d, entry_d; /* of attention over rows that are keys and values, of entries */
    int n_layer;                          /* MLA: of the cache's group, as far as it is used */
    int head_cols;                        /* of products by head */
    int mat_heads;                        /* rows of a token in products of all heads at once */
    int delta_k, delta_v;                 /* of a key head, and of all value heads of one */
    int delta_a;                          /* decays of a value head */
    int delta_row;                        /* of a token: convolved, decays, betas and k q */
    int n_expert, k;          /* n_expert: of a router or, where there are more, slots */
    int d_model, d_ff_expert; /* of experts: rows of down, of gate */
    int n_move;               /* values of the widest row to or from another device */
};
/* Of the operators that are d's, or nobody's. */
struct dev_shapes dev_shapes_of(const dev *d, const struct dev_op *op, int n_op,
                                const struct dev_limits *max);

/* As the functions of those names. */
struct dev_one_ops {
    void (*bytes)(const dev_mat *stack, int64_t out[2]);
    void (*pack)(const dev_mat *stack, const struct weight *first, const struct weight *second,
                 int t0, int t1, struct dev_one *one);
    void (*get)(const dev_mat *stack, int i, struct dev_one *one);
    sl_status (*open)(dev_mat *stack, sl_err *err);
    void (*swap)(dev_mat *stack, int i, struct dev_one *one);
};

struct dev_class {
    const char *name;
    /* NULL, or fills at most n rows: those that can be opened, or why not. Returns how many there
     * are, -1: none can be asked, and err says why. */
    int (*list)(struct dev_desc *out, int n, sl_err *err);
    /* options: what stands after the ':' of its name; "" = nothing */
    sl_status (*open)(const char *options, const struct dev_opts *o, dev **out, sl_err *err);
    void (*close)(dev *d);
    void (*info)(const dev *d, struct dev_info *out);
    sl_status (*memory)(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err);
    bool (*takes_host)(const dev *d); /* NULL: it has memory of its own */
    sl_status (*alloc)(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err);
    sl_status (*put)(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err);
    sl_status (*get)(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err);
    sl_status (*sync)(dev *d, sl_err *err);
    /* Of a device that runs while the host goes on: a mark is reached when all that is queued so
     * far has run; what waits for it is told what of the step failed. NULL: it is waited for by
     * sync. */
    uint64_t (*mark)(dev *d);
    sl_status (*wait_mark)(dev *d, uint64_t mark, sl_err *err);
    /* NULL, or told what operators of a device that is the host's have cost since it was last told.
     */
    void (*host_ran)(dev *d, const struct dev_cost *cost);
    int64_t (*now_ns)(const dev *d); /* NULL: it goes by the clock */
    void (*figures)(const dev *d, struct dev_figures *out); /* NULL: they are measured */
    bool is_host;        /* its memory is the host's */
    bool is_card;        /* its driver has libraries, files and devices of its own */
    bool is_late;        /* it queues operators, and times them itself */
    /* NULL, or called after every operator that is timed, in place of the host's clock */
    void (*op_done)(dev *d, enum dev_op_kind op);
    bool takes_late;     /* its moe knows terms that come late */
    bool frees_poisoned; /* dev_kv_free is to poison: nothing may read a free block */
    void (*host_run)(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg);
    int (*host_ahead)(dev *d);
    struct dev_pages (*pages_near)(const dev *d); /* NULL: not known */
    sl_status (*mat_load)(dev *d, const struct dev_weights *of, dev_mat **out, sl_err *err);
    /* NULL, or: what is loaded until it is told NULL is some of a stack; of a packer in its place
     */
    void (*mat_some)(dev *d, const struct dev_some *s);
    const struct dev_one_ops *one; /* NULL: no matrix of a stack is replaced */
    /* In place of mat_load and mat_pack, of a device whose matrices are another's images: that
     * device packs into the sink of mat_take, and mat_taken is what came. */
    dev *(*packer)(dev *d);
    sl_status (*mat_take)(dev *d, enum dev_use use, struct dev_image_sink *sink, sl_err *err);
    sl_status (*mat_taken)(dev *d, dev_mat **out, sl_err *err);
    const char *layout;
    sl_status (*mat_map)(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                         dev_mat **out, sl_err *err);
    sl_status (*mat_pack)(dev *d, const struct dev_weights *of, const struct dev_image_sink *sink,
                          sl_err *err);
    void (*mat_view)(const dev_mat *m, int i, struct dev_image *out); /* NULL: its memory is not
                                                                         the host's */
    sl_status (*mat_room)(dev *d, const struct dev_image *like, int n, enum dev_use use,
                          dev_mat **out, sl_err *err);
    sl_status (*mat_fill)(dev_mat *m, int at, const struct dev_image *one, sl_err *err);
    /* NULL, or told that m's epilogue is there, of a device whose matrices stand for another's. */
    void (*mat_ended)(dev_mat *m);
    /* NULL: it reads them where they are */
    sl_status (*slots_put)(dev *d, const struct dev_slots *s, int n_expert, sl_err *err);
    sl_status (*act_open)(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err);
    int64_t (*kv_bytes)(const dev *d, const struct dev_kv_shape *s);
    enum dev_kv_type (*kv_auto)(const dev *d);
    sl_status (*kv_open)(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err);
    void (*kv_touch)(dev *d, dev_kv *kv, int group, const int32_t *blk, int n);
    void (*kv_poison)(dev *d, dev_kv *kv, int group, int blk);
    /* NULL: the cache is not shown. A page's bytes; page: NULL, or where it goes to, or with set
     * comes from. */
    int64_t (*kv_page)(dev_kv *kv, const struct dev_kv_at *at, void *page, bool set);
    void (*kv_join)(dev_kv *kv, const struct dev_kv_at *at, int n_head, const void *part,
                    void *page);
    int64_t (*keep_bytes)(const dev *d, const struct dev_shapes *p);
    sl_status (*reserve)(dev *d, const struct dev_shapes *p, sl_err *err);
    void (*step_begin)(dev *d, dev_kv *kv, const struct dev_step *s);
    /* What of the operator's parameters the device can not do; NULL = it takes it. */
    const char *(*lacks)(const dev *d, const struct dev_op *op);
    /* NULL, or called for every operator of a program that is opened: what it has on the host that
     * stays may be copied. */
    sl_status (*bring)(dev *d, const struct dev_op *op, sl_err *err);
    /* Operators from op[at] on that are run together: *out NULL: none; else out->n_op of them.
     * NULL: the device runs one after another. */
    sl_status (*fuse)(dev *d, const struct dev_op *op, int n_op, int at, struct dev_fused **out,
                      sl_err *err);
    /* False: it can not on this step; the operators are run one by one. */
    bool (*run_fused)(dev *d, dev_kv *kv, const struct dev_step *s, struct dev_fused *f);
    /* NULL: it has no experts in parts (dev_moe_phase), nor halves of steps. Operators from now on
     * are of s, of the step that has begun all or half i. */
    void (*half)(dev *d, const struct dev_step *s, int i);
    double (*probe_read_gbps)(dev *d, int ms);
    double (*probe_int8_gops)(dev *d, int ms);
    double (*probe_attn_gops)(dev *d, const dev_kv *kv, int ms);
#define X(name, params) void (*name)(dev * d, const struct dev_step *b, const struct params *p);
    DEV_OP_LIST(X)
#undef X
};

/* sum += now - from. */
static inline void dev_cost_add(struct dev_cost *sum, const struct dev_cost *now,
                                const struct dev_cost *from)
{
    sum->bytes += now->bytes - from->bytes;
    sum->ops += now->ops - from->ops;
    sum->flops += now->flops - from->flops;
}

/* How far the host may be ahead of what it sends (dev_send). */
#define DEV_SEND_AHEAD ((int64_t)64 << 20)

/* The common heads of a device's own structures. */
struct dev_op_time {
    uint64_t n_call;
    int64_t ns;
    struct dev_cost cost;
};
struct dev {
    const struct dev_class *cls;
    int timing;           /* operators are timed; set by the first dev_op_times, or by a program;
                             2: also where that makes steps longer */
    bool is_asked;        /* dev_op_times was called */
    void (*look)(void *user); /* NULL, or as of dev_halves_look */
    void *look_user;
    struct dev_cost cost; /* counted up by the device while timing */
    struct dev_op_time op[DEV_N_OP];
    /* of a device that runs while the host goes on, in steps: it has nothing to do, or is waited
     * for; and all of their time */
    struct dev_op_time idle, wait, step;
};
struct dev_mat {
    dev *d;
    int64_t bytes;
    int rows, cols;
    struct dev_epilogue epilogue;
};
/* The bias of matrix i, NULL = none. */
static inline const float *dev_mat_bias(const struct dev_mat *m, int i)
{
    const struct dev_epilogue *e = &m->epilogue;
    return e->bias ? e->bias + (int64_t)(e->of ? e->of[i] : i) * e->n_row : NULL;
}

struct dev_act {
    dev *d;
};
struct dev_kv {
    dev *d;
    dev_kv *beside; /* the next device's, where layers lie on several */
};

/* A pointer in the parameters of an operator to something of a device. */
struct dev_ref {
    enum { DEV_REF_END, DEV_REF_MAT, DEV_REF_ACT, DEV_REF_KV, DEV_REF_BUF } kind; /* BUF: memory */
    size_t at;                                                                    /* its offset */
};
/* All of an operator, and an END (ref.c). */
const struct dev_ref *dev_op_refs(enum dev_op_kind op);

/* Operators of a program that are run together on steps of at most n_tok_max tokens. */
struct dev_fused {
    int n_op, n_tok_max;
};

/* The rows that an operator works on whose n_row or n_tok is n_row. */
static inline int dev_n_row(const struct dev_step *s, int n_row)
{
    if (n_row != DEV_ROWS_WANTED) return n_row ? n_row : s->n_tok;
    return s->want & (DEV_WANT_LOGITS | DEV_WANT_BEST) ? s->n_row : 0;
}

extern const struct dev_class dev_cpu_class, dev_check_class, dev_sim_class, dev_cuda_class,
    dev_vulkan_class;

#endif
