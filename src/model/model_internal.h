/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the architecture table, the packed layers, the step's buffers. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include "base/mem.h"
#include "model/model.h"
#include "model/names.h"

/* ---- architectures ---- */

/* One row of model/arch_list.h. A reader fills what is special to the architecture after the common fields were read; it may refuse. */
struct model_arch {
    const char *name;    /* ours */
    const char *gguf;    /* general.architecture */
    const char *hf_type; /* model_type of config.json, "|"-separated */
    bool (*match_gguf)(const io_model *m); /* NULL = by name only; several rows may share a GGUF name */
    sl_status (*read_gguf)(const io_model *m, struct model_cfg *c, sl_err *err);
    sl_status (*read_hf)(const struct json *config, struct model_cfg *c, sl_err *err);
};
#define X(name) extern const struct model_arch model_arch_##name;
#include "model/arch_list.h"
#undef X

/* ---- config readers (config_gguf.c, config_hf.c) ---- */
/* "<arch>.key" as an integer in [lo, hi]; def < lo means required. */
sl_status model_gguf_int(const io_model *m, const char *key, int64_t def, int64_t lo, int64_t hi,
                         int *out, sl_err *err) BASE_MUST_USE;
sl_status model_gguf_real(const io_model *m, const char *key, double def, double lo, double hi,
                          double *out, sl_err *err) BASE_MUST_USE;
sl_status model_gguf_flag(const io_model *m, const char *key, bool def, bool *out, sl_err *err)
    BASE_MUST_USE;
sl_status model_gguf_common(const io_model *m, struct model_cfg *c, sl_err *err) BASE_MUST_USE;
/* Which layers have the sliding window, and that a head's values are as wide as its keys, unless it
 * is MLA's. */
sl_status model_gguf_layers(const io_model *m, struct model_cfg *c, sl_err *err) BASE_MUST_USE;
/* Experts, and which layers have them (c->moe_layer). */
sl_status model_gguf_moe(const io_model *m, struct model_cfg *c, sl_err *err) BASE_MUST_USE;

/* The first of the "|"-separated names that is present and not null; def < lo means required. */
sl_status model_hf_int(const struct json *o, const char *names, int64_t def, int64_t lo, int64_t hi,
                       int *out, sl_err *err) BASE_MUST_USE;
sl_status model_hf_real(const struct json *o, const char *names, double def, double lo, double hi,
                        double *out, sl_err *err) BASE_MUST_USE;
sl_status model_hf_common(const struct json *o, struct model_cfg *c, sl_err *err) BASE_MUST_USE;
/* rope_scaling / rope_parameters / rope_theta. head: width that YaRN and the others work on. */
sl_status model_hf_rope(const struct json *o, int n_rot, struct model_cfg *c, sl_err *err)
    BASE_MUST_USE;
/* What Qwen3 and Qwen3-MoE share; by_layer as in model_hf_window. */
sl_status model_hf_qwen3(const struct json *o, bool by_layer, struct model_cfg *c,
                         sl_err *err) BASE_MUST_USE;
sl_status model_hf_mla(const struct json *o, struct model_cfg *c, sl_err *err) BASE_MUST_USE;
/* sliding_window (def where the key is absent; null is none) of all layers, or, by_layer, of those
 * that layer_types names, else of those from max_window_layers on. */
sl_status model_hf_window(const struct json *o, int def, bool by_layer, struct model_cfg *c,
                          sl_err *err) BASE_MUST_USE;
/* layer_types of a configuration whose c->n_window and c->window_layer are known: by_layer: obeyed;
 * else it must say the same. */
sl_status model_hf_layer_types(const struct json *o, bool by_layer, struct model_cfg *c,
                               sl_err *err) BASE_MUST_USE;
sl_status model_cfg_check(const struct model_cfg *c, sl_err *err) BASE_MUST_USE;

/* ---- keys.c: UNSUPPORTED names a key that changes what the model computes, is not obeyed, and is
 * not at its neutral value ---- */
sl_status model_keys_hf(const struct json *config, const struct model_cfg *c,
                        sl_err *err) BASE_MUST_USE;
/* name: "rope_scaling" or "rope_parameters"; rope may be NULL. */
sl_status model_keys_rope(const struct json *rope, const char *name, const char *type,
                          const struct model_cfg *c, sl_err *err) BASE_MUST_USE;
sl_status model_keys_gguf(const io_model *m, const struct model_cfg *c, sl_err *err) BASE_MUST_USE;

/* ---- packed layers ---- */
struct layer {
    bool is_moe;
    int n_window;
    /* norms: device f32 */
    float *attn_norm, *ffn_norm, *q_norm, *k_norm, *q_a_norm, *kv_a_norm;
    /* attention */
    dev_mat *q, *k, *v, *o;       /* GQA; q also MLA without q_lora */
    dev_mat *q_a, *q_b, *kv_a;    /* MLA */
    dev_mat *k_b, *v_b;           /* MLA: stacks of H: [r, nope], [v, r] */
    float *q_bias, *k_bias, *v_bias, *o_bias;
    /* FFN: dense, or shared expert in MoE layers (NULL without one) */
    dev_mat *gate_up, *down;
    /* experts */
    dev_mat *router, *gate_up_exps, *down_exps;
    const float *router_bias;     /* host [E] or NULL */
};

struct mtp {
    struct layer layer;
    float *enorm, *hnorm, *head_norm;
    dev_mat *eh;
    dev_mat *embed, *head; /* own ones, or those of the model */
};

/* Packing gives up the page cache of what it has read where that makes it faster: on a virtual machine whose host takes free pages
 * back, memory touched for the first time comes at 0.1 to 1 GB/s, and pages just given up come at once. Zero = nothing measured. */
struct behind {
    int64_t t0, byte0, disk0; /* where the stretch began: ns, source bytes done, bytes read from disks */
    double slow;              /* bytes/s before it was tried; 0 = not tried */
    bool on, off;             /* off: tried, no gain */
    struct {
        const uint8_t *begin, *end;
    } run[2]; /* source bytes given up so far without a hole, for each of the two tensors that are packed together */
    int last; /* the run that grew last */
};

struct model {
    /* fixed after open */
    struct model_cfg cfg;
    struct model_opts opts;
    enum io_kind kind;
    const char *unused; /* NULL = no tensor is */
    dev *d;
    struct arena arena;
    struct layer *layer; /* [L] */
    struct mtp *mtp;     /* [n_mtp kept] */
    int n_mtp;           /* kept */
    dev_mat *embed, *head;
    float *norm;
    float *rope_freq;    /* host [n_rot/2] */
    int64_t weight_bytes, bytes_per_token;
    int expand_from;     /* MLA: prompt positions from here on use materialised keys */
    /* prepared inputs, one per kind of input */
    dev_act *a_attn, *a_q_a, *a_o, *a_ffn, *a_h, *a_head, *a_eh;
    /* step buffers, device f32, n_tok_max rows */
    float *x, *r;        /* [T, D] residual stream; output of the sub-layer that is not added yet */
    float *q, *k, *v, *y; /* [T, H*d], [T, C*d] or [T, r+rope], [T, C*d], [T, H*d_v] */
    float *qa, *h;       /* [T, q_lora], [T, F] */
    float *logit_r, *weight_r, *shared; /* [T, E], [T, K], [T, D] */
    float *hidden, *sel; /* [T, D], [n_logit_max, D] */
    float *logits;       /* [n_logit_max, V] */
    float *eh_in;        /* [T, 2D] */
    int32_t *id_r;       /* [T, K] */
    dev_stack *stack;    /* all layers, for steps of a few tokens; NULL = only one by one */
    uint64_t *n_routed;  /* host [L + MTP, E]: tokens that each expert was chosen for */
    /* the step under way */
    const struct dev_step *step;
    uint8_t *finite; /* host [n_seq_max] */
    /* while packing into a file; NULL otherwise */
    io_pack_out *out;
    const char *out_name; /* of the matrix that comes next */
    bool rounded;
    /* calibration; tap_fn NULL = none */
    model_tap_fn *tap_fn;
    void *tap_user;
    float *tap_y;        /* [T, max(D, q_lora)] normed inputs */
    int tap_layer;       /* under way */
    /* progress while opening */
    int64_t done_bytes, total_bytes;
    bool cancelled;
    struct behind behind;
};

/* unused.c: is a plain bias of that attention matrix part of the model? In folders only where the
 * configuration says so. */
bool model_reads_bias(const io_model *m, const struct model_cfg *c, enum model_role role);
/* load.c */
sl_status model_load_layer(struct model *m, const io_model *io, int il, bool is_moe, struct layer *l,
                           sl_err *err) BASE_MUST_USE;
sl_status model_load_globals(struct model *m, const io_model *io, sl_err *err) BASE_MUST_USE;
sl_status model_load_mtp(struct model *m, const io_model *io, int i, sl_err *err) BASE_MUST_USE;
/* rope.c: frequencies of every kind, host memory in the arena. */
sl_status model_rope_freqs(struct model *m, const io_model *io, sl_err *err) BASE_MUST_USE;
/* layer.c */
void model_layer_step(struct model *m, dev_kv *kv, const struct dev_step *b, const struct layer *l,
                      int il, bool first);
/* Final norm (+ pending r), hidden states, and logits of the rows asked for. */
void model_head_step(struct model *m, const struct dev_step *b, const float *norm,
                     const dev_mat *head);
/* mla.c */
void model_mla_step(struct model *m, dev_kv *kv, const struct dev_step *b, const struct layer *l,
                    int il);
/* The position from which prompt tokens use materialised keys and values; INT_MAX = never. */
int model_mla_expand_from(const struct model_cfg *c);
/* mtp.c: the pass b->pass >= 1. */
void model_mtp_pass(struct model *m, dev_kv *kv, const struct dev_step *b);
/* tap.c: tell the tap, if there is one, of rows x [n_row, n_col] that go into matrices of the layer under way. */
void model_tap_put(struct model *m, enum model_tap_in in, const float *x, int n_row, int n_col, int64_t ldx);
/* As dev_moe.tap; user is the model. */
void model_tap_expert(void *user, int expert, const float *h, int n_row, int n_col);

#endif
