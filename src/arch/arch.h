/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: one file with one row each. This room knows what a family is
 * called, reads and writes its configuration in both kinds of files, and names its tensors. It
 * computes nothing: model, quant, plan and the tools ask it.
 *
 * Threads: everything here may be called by several at once; nothing is kept. */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/names.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/io.h"
#include "io/write.h"
#include "tensor/glu.h"
#include "text/json.h"

struct arch;      /* a row: arch/row.h */
struct arch_keys; /* where keys of GGUF go: arch/row.h */

/* What rope rotates together of the n_rot values of a head: i and i + n_rot / 2, or 2 i and
 * 2 i + 1. */
enum arch_rope_style { ARCH_ROPE_HALF, ARCH_ROPE_PAIRS };
/* SCAN: a recurrence in place of attention over the queries (dev_scan). No file has it: tests.
 * DELTA: gated DeltaNet, a convolution and a recurrence of matrices, or Kimi Delta Attention.
 * CKV: one head of keys, which are values too, for all queries: of a window, and with a ratio
 * compressed entries of what is before (DeepSeek-V4). */
enum arch_mixer { ARCH_GQA, ARCH_MLA, ARCH_SCAN, ARCH_DELTA, ARCH_CKV };
enum arch_ffn { ARCH_DENSE, ARCH_MOE };
/* Which positions a token sees. NONE: all before it. OWN: those that the layer's indexer chooses.
 * SHARED: those of the nearest layer below that has one. */
enum arch_index { ARCH_INDEX_NONE, ARCH_INDEX_OWN, ARCH_INDEX_SHARED };

/* What one layer is made of. */
struct arch_layer {
    enum arch_mixer mixer;
    enum arch_ffn ffn;
    enum arch_index index;
    int n_window; /* sliding window in tokens, the token itself included; 0 = none */
    int ratio;    /* CKV: tokens of a compressed entry, 0 = there are none. With index OWN its
                     indexer chooses the entries, whose windows overlap */
    bool hash;    /* MOE: experts are chosen by the token's id (ROLE_EXPERT_OF) */
    /* of silu(gate) and up of experts, and of shared ones; 0 = as the configuration's glu */
    float limit, limit_shared;
};

/* Hyperparameters of every architecture, checked: those of the file, whatever part of it a process
 * holds. Unused ones are 0. */
struct arch_cfg {
    char arch[32]; /* "deepseek_v3" */
    const struct arch *row;
    struct arch_naming naming; /* of the file that was read */
    bool renamed;              /* that is a folder with names of row->renamed */
    int n_layer;               /* L, without MTP layers */
    int n_mtp;
    int d_model;           /* D */
    int n_vocab;           /* V: rows of the embedding */
    int n_head, n_head_kv; /* H, C */
    int d_head;            /* d; MLA: nope + rope */
    int d_ff;              /* of dense layers */
    int n_ctx_train;
    float norm_eps;
    bool tied_head, head_apart; /* apart: a folder says it is tied, and it is not */
    bool attn_bias,
        o_bias;   /* of q, k and v; of o. Folders only: GGUF files say it by the tensors */
    bool qk_norm; /* q and k are normed */
    int d_q_norm, d_k_norm; /* so much of them at once: d, a head, where a reader says no more */
    const char *unshared;   /* what it has that ranks which share its heads lack; NULL = nothing */
    int n_window;           /* of those layers that have one; 0 = none has */
    bool paged;             /* these keep all positions, like the others */
    struct arch_layer *layer; /* [n_layer + n_mtp]; in the arena that it was read into */
    /* layers with a window that are not like the others: their key heads and the width of a head,
     * all of which is rotated; rope's base there, where it is plain. 0 = they are alike */
    int n_head_kv_win, d_head_win;
    double theta_win;
    bool k_is_v; /* in layers without a window keys, before their norm, are values too */
    bool v_norm; /* values are normed by heads, without weights */
    /* Gemma: what a sub-layer gives is normed before it is added, and a layer ends with a factor;
     * layers with experts have a dense block of d_ff beside these, each with norms of its own */
    bool sandwich;
    float embed_scale, logit_cap; /* 0 = none: what embeddings are multiplied by; cap tanh(x / cap)
                                     of logits */
    /* rope */
    enum arch_rope_style rope_style;
    int n_rot; /* rotated dimensions: the first of a head */
    int n_turn; /* of the pairs of these only the first so many are rotated ("proportional"); 0 =
                   all */
    double rope_theta;
    enum { ARCH_ROPE_PLAIN, ARCH_ROPE_LINEAR, ARCH_ROPE_LLAMA3, ARCH_ROPE_YARN } rope_kind;
    double rope_factor, rope_orig_ctx;
    double rope_low_freq, rope_high_freq;               /* llama3 */
    double yarn_beta_fast, yarn_beta_slow, yarn_mscale; /* yarn_mscale: factor on cos and sin */
    bool yarn_real;    /* the correction range is not rounded to whole dimensions ("truncate":
                          false) */
    double attn_scale; /* of q k^T, YaRN's mscale_all_dim included */
    /* MLA */
    int q_lora, kv_lora, d_nope, d_rope, d_v; /* q_lora 0 = plain q projection */
    bool no_rope; /* nothing is rotated: the d_rope values of queries and keys are as projected */
    float latent_eps; /* of the norms of latents; 0 = 1e-6, whatever norm_eps is */
    bool head_gate; /* a head's output is multiplied by sigmoid of a number, of [H, D] W x */
    /* the lightning indexer of sparse attention (DeepSeek-V3.2): heads, their width of which the
     * first d_rope values are rotated, and how many positions a token sees; 0 = there is none */
    int n_index, d_index, index_top;
    enum arch_rope_style index_rope;
    /* beside MLA (GLM-5.3): tokens of a pool, whose keys are made one. Pools are chosen, index_top
     * / index_pool of them, and what is after the last whole one is seen; 0 = positions one by one
     */
    int index_pool;
    /* of keys per head (MiniMax-M3): positions of a block, of which every KV head chooses for
     * itself index_top / index_blk, its last index_local ones among them; n_rot values are rotated;
     * 0 = positions are chosen one by one */
    int index_blk, index_local;
    /* gated delta layers: heads of keys and of values, widths of one, taps of the convolution;
     * 0 = there are no such layers */
    int n_delta_k, n_delta_v, d_delta_k, d_delta_v, n_conv;
    bool kda; /* they are Kimi Delta Attention's: a decay for each key channel, made by way of
                 d_delta_k values, as the gate of d_delta_v; queries, keys and values have matrices
                 and convolutions of their own, under the names that other layers' have */
    bool kda_whole;    /* decays and gates are made at once, [n_delta_v d_delta_k, D] W x */
    float delta_bound; /* what logarithms of decays are above (dev_delta); 0 = they have no bound */
    bool delta_tiled; /* value head h goes with key head h mod n_delta_k, else with h div (n_delta_v
                         / n_delta_k) */
    bool attn_gate; /* GQA: q is, head by head, the query and a gate as wide, [2 H d, D]: the output
                       of attention is multiplied by sigmoid(gate) */
    bool norm_one;  /* the file has weights of norms less 1, but for the delta layers' own */
    int n_mtp_left; /* MTP layers that the file has after the others and that are not read: then
                       n_mtp is 0 */
    /* streams (hyper-connections): so many rows of D are a token's residual stream, 0 = one; of how
     * they are mixed, rounds of Sinkhorn's normalisation and what is added to its sums; mean: their
     * head is the mean of all, without weights */
    int n_stream, stream_rounds;
    float stream_eps;
    bool stream_mean;
    /* CKV: groups of heads that have a matrix to o_lora values each, of which o makes the output;
     * rope's base in layers with a ratio, which alone have its scaling: in others it is plain, of
     * rope_theta. The last n_rot values of a head are rotated */
    int o_groups, o_lora;
    double entry_theta;
    /* experts */
    int n_expert, n_expert_used, n_shared, d_ff_expert;
    int d_ff_shared;  /* of all shared experts together; 0 = n_shared * d_ff_expert */
    bool shared_gate; /* what they say is multiplied by sigmoid(w x), one number a token */
    int n_dense_lead; /* leading dense layers */
    bool route_sigmoid, route_norm, route_bias, group_max;
    bool route_root; /* scores are sqrt(softplus(logit)) */
    int n_group, n_group_used;
    bool group_unsaid; /* a GGUF of many experts does not say whether they are in groups: they are
                          taken not to be */
    float route_scale;
    struct glu glu; /* of experts */
    bool glu_all;   /* of shared and dense ones too */
    /* Sets of roles (ARCH_BIT): whose matrices all have a bias, which attn_bias and o_bias do not
     * say of q, k, v and o alone; and vectors of attention with a number for each head */
    uint64_t biased, per_head;
};

/* Is it a layer with a window that is not like the others? */
static inline bool arch_is_win(const struct arch_cfg *c, int il)
{
    return c->d_head_win && c->layer[il].n_window;
}
/* Of a layer with keys and values per head: the width of a head; key heads. */
static inline int arch_d_head(const struct arch_cfg *c, int il)
{
    return arch_is_win(c, il) ? c->d_head_win : c->d_head;
}
static inline int arch_n_head_kv(const struct arch_cfg *c, int il)
{
    return arch_is_win(c, il) ? c->n_head_kv_win : c->n_head_kv;
}
/* The widest of all layers: queries, or keys. */
static inline int64_t arch_wide_q(const struct arch_cfg *c)
{
    return (int64_t)c->n_head * (c->d_head_win > c->d_head ? c->d_head_win : c->d_head);
}
/* Are keys of that layer values too? */
static inline bool arch_k_is_v(const struct arch_cfg *c, int il)
{
    return c->k_is_v && !c->layer[il].n_window;
}

/* Read and check the hyperparameters. cfg->layer is allocated in the arena. UNSUPPORTED names an
 * unknown architecture, or a key that changes what is computed and is not obeyed (keys.c). FORMAT
 * names the field and its value. */
sl_status arch_cfg_read(const io_model *m, struct arena *a, struct arch_cfg *out,
                        sl_err *err) BASE_MUST_USE;
/* The same of a parsed config.json alone. Errors do not say which file it was. */
sl_status arch_cfg_read_json(const struct json *config, struct arena *a, struct arch_cfg *out,
                             sl_err *err) BASE_MUST_USE;
/* Names of that architecture in the other kind of file. */
struct arch_naming arch_naming_in(const struct arch_cfg *c, enum io_kind kind);
/* Do GGUF files of the architecture keep the rows of q and k in the order of rotated pairs, where
 * folders have halves? */
bool arch_permutes_qk(const struct arch_cfg *c);
/* How its models write calls of tools: see sl_model_info. Static. */
const char *arch_tool_family(const struct arch_cfg *c);
/* Does llama.cpp multiply by the X.scale that lies beside that matrix of a GGUF file? It loads all
 * of them; the graphs of some architectures leave those of the feed-forward out, MLA's q too. */
bool arch_scale_used(const struct arch_cfg *c, enum arch_role role);

/* Is the model a quantised one of at most 512 columns? Such models are computed in f32 by default:
 * what coarser activations lose does not average out over so few columns, in mixtures of experts
 * they choose another expert now and then, and exact ones cost them milliseconds. */
bool arch_wants_f32(const io_model *m, const struct arch_cfg *cfg);
/* Channels of a gated delta layer's convolution: queries, keys, values. */
int64_t arch_delta_channels(const struct arch_cfg *c);
/* Decays of a value head of such a layer. */
int arch_delta_decays(const struct arch_cfg *c);
/* f32 values of a sequence's state of such a layer (tensor/delta_state.h). */
int64_t arch_delta_state(int n_k, int n_v, int d_k, int d_v, int n_conv, bool each);
/* The width of all shared experts together; 0 = there are none. */
int64_t arch_d_shared(const struct arch_cfg *c);
/* Do folders of the architecture have the delta layers' projections in two matrices, DELTA_QKVZ and
 * DELTA_BA, whose rows go by key head? */
bool arch_packs_delta(const struct arch_cfg *c);
/* Do GGUF files of the architecture have the value heads tiled (delta_tiled)? */
bool arch_tiles_delta(const struct arch_cfg *c);
/* Do GGUF files of the architecture have exp(A_log), where others have it negative? */
bool arch_decay_plain(const struct arch_cfg *c);
/* Do folders of the architecture have the weights of that norm less 1? GGUF files do not. */
bool arch_is_less(const struct arch_cfg *c, const struct arch_name *id);
/* Has the role's matrix a place for a bias? */
bool arch_takes_bias(const struct arch_cfg *c, enum arch_role role);
/* Is a plain bias of that matrix part of the model? In folders only where the configuration says
 * so. */
bool arch_reads_bias(const io_model *m, const struct arch_cfg *c, enum arch_role role);
/* The unit that a pair of matrices of that layer ends with; role: of its first. */
struct glu arch_glu(const struct arch_cfg *c, int layer, enum arch_role role);
/* Must one that is part of the model be there? Else none is one of zeros. */
bool arch_must_bias(const struct arch_cfg *c, enum arch_role role);
/* Is a tensor of that name of another part of a model that does more than text, whose configuration
 * nests the text model's? */
bool arch_is_beside_text(const io_model *m, const struct arch_name *id);
/* Tensors that nothing of the architecture reads, but for those that change nothing
 * (docs/formats.md). In a GGUF file they are refused: UNSUPPORTED names the first ones. In a folder
 * *text, in the arena, is a line that does; NULL = there are none. FORMAT: a layer lacks an
 * optional tensor that others have, or is no MTP layer though nextn_predict_layers counts it. */
sl_status arch_unused(const io_model *m, const struct arch_cfg *cfg, struct arena *a,
                      const char **text, sl_err *err) BASE_MUST_USE;
/* Do MTP layers have several streams? One, where the model's head takes the mean of its own. */
static inline bool arch_mtp_streams(const struct arch_cfg *c)
{
    return c->n_stream && !c->stream_mean;
}
/* The matrix by whose tensor an MTP layer is known to be there. */
static inline enum arch_role arch_mtp_mark(const struct arch_cfg *c)
{
    return arch_mtp_streams(c) ? ROLE_MTP_E : ROLE_MTP_EH;
}
/* Is it one of MTP layers that are not read (n_mtp_left, mtp.* of folders that have no place)? */
bool arch_is_mtp_left(const struct arch_cfg *c, const char *name, const struct arch_name *id);
/* Parameters in all, and read for one token at batch 1. From the tensors' shapes. */
void arch_count_params(const io_model *m, const struct arch_cfg *cfg, int64_t *total,
                       int64_t *active);

/* The tensors that a folder of that configuration, which m was read from alone, has: with random
 * numbers (io/mock.h), matrices of that type. Errors: as io_mock. */
sl_status arch_mock(io_model *m, const struct arch_cfg *c, enum tensor_dtype type, struct arena *a,
                    sl_err *err) BASE_MUST_USE;

/* Where n_stage stages begin that have about the same bytes: first [n_stage + 1]. layer: bytes of
 * each layer; last: of what the last stage has beside its layers. n_stage is at most n_layer. */
void arch_cut_layers(const int64_t *layer, int n_layer, int64_t last, int n_stage,
                     int32_t *first);

/* Bytes that a process on a CPU holds beside weights of that many bytes and its KV cache:
 * activations, tables, scales. The engine sizes its cache by it, the planner says by it what fits.
 */
int64_t arch_beside_bytes(int64_t weights);
/* Of those what activations take, which grows with the model; the rest is as much of any. */
int64_t arch_acts_bytes(int64_t weights);

/* ---- writing: the configuration of src, which was read into c, in the other kind of file ---- */

/* GGUF's keys of the architecture (general.architecture and <arch>.*), from a folder. n_mtp: MTP
 * layers that are written. UNSUPPORTED: what GGUF has no key for. */
sl_status arch_write_gguf(const struct arch_cfg *c, const io_model *src, int n_mtp, io_out *out,
                          sl_err *err) BASE_MUST_USE;
/* config.json's members of the architecture, from a GGUF file, into the object that w has open.
 * UNSUPPORTED: what a folder of the architecture can not say. */
sl_status arch_write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err) BASE_MUST_USE;

#endif
