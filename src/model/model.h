/* SPDX-License-Identifier: Apache-2.0 */
/* A model maps a ragged batch of tokens to logits through dev operators.
 *
 * The model knows no sequences beyond the step: block tables come as plain ints. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"
#include "base/status.h"
#include "base/str.h"
#include "dev/dev.h"
#include "dist/dist.h"
#include "io/io.h"
#include "io/pack.h"
#include "text/json.h"

/* What this process has of a model whose file's shapes are in struct arch_cfg: rank r of n_rank,
 * the query heads of its key heads; or, of more ranks than key heads, some of those of one key
 * head. (MLA: key heads are all heads, each with its rows of kv_b.) */
struct model_dims {
    int rank, n_rank; /* of those that share matrices */
    int head0, n_head;
    int head_kv0, n_head_kv;
    int dp, n_dp; /* of groups of these ranks with sequences of their own, that have all but
                     experts; n_dp 0 = 1 */
    int stage, n_stage; /* the last one has the MTP layers, the final norm and the head, too */
    int layer0, n_layer;
    int n_slot; /* 0 = some rows of every expert; else so many experts of each layer, of which */
    int n_etp;  /* so many ranks of its stage, that follow each other, share the rows; 0 = 1 */
    uint16_t weight[DIST_RANK_MAX]; /* of its stage's ranks (dist_share); weight[0] 0: alike */
    /* sums of these: of such ranks, and of all that are at the same place among them */
    uint16_t group_weight[DIST_RANK_MAX], place_weight[DIST_RANK_MAX];
};
/* Which layers each of n stages has: those from first[s] up to first[s + 1]. n_dp: groups of ranks
 * with sequences of their own, in each; 0 = 1. n_etp, weight: as of struct model_dims. */
struct model_stages {
    int n, n_dp, n_etp;
    int32_t first[DIST_RANK_MAX + 1];
    uint16_t weight[DIST_RANK_MAX];
};
/* Rows [row0, row0 + n_row) of a matrix; 0 rows where there are more ranks than parts. */
struct model_slice {
    int64_t row0, n_row;
};
/* All layers, 0 <= a->rank < a->n. */
struct model_dims model_dims_of(const struct arch_cfg *c, const struct dist_among *a);
/* The same of another rank of those that share matrices with d. */
struct model_dims model_dims_beside(const struct arch_cfg *c, const struct model_dims *d, int rank);
/* Layers are cut so that stages have about the same bytes of io's weights; the head, and with mtp
 * the MTP layers, count to the last. Errors: REQUEST: there are fewer layers than stages. */
sl_status model_stages_of(const struct arch_cfg *c, const io_model *io, bool mtp,
                          struct model_stages *s, sl_err *err) BASE_MUST_USE;
/* Of rank among all of n_rank, as struct dist_layout numbers them; s NULL: there is one stage. */
struct model_dims model_stage_dims(const struct arch_cfg *c, const struct model_stages *s, int rank,
                                   int n_rank);
static inline bool model_is_last(const struct model_dims *d)
{
    return d->stage == d->n_stage - 1;
}
/* The ranks of its stage, and which of them it is. */
static inline int model_stage_n(const struct model_dims *d)
{
    return BASE_MAX(d->n_dp, 1) * d->n_rank;
}
static inline int model_stage_rank(const struct model_dims *d)
{
    return d->dp * d->n_rank + d->rank;
}
/* Among the ranks that share matrices. */
static inline struct dist_among model_among(const struct model_dims *d)
{
    return (struct dist_among){d->rank, d->n_rank,
                               d->weight[0] ? d->weight + d->dp * d->n_rank : NULL};
}
/* The ranks that share experts with it, which of the stage's groups of such ranks they are, and how
 * many of these there are. */
static inline int model_n_etp(const struct model_dims *d)
{
    return BASE_MAX(d->n_etp, 1);
}
static inline int model_group(const struct model_dims *d)
{
    return model_stage_rank(d) / model_n_etp(d);
}
static inline struct dist_among model_group_among(const struct model_dims *d)
{
    const uint16_t *w = model_n_etp(d) > 1 ? d->group_weight : d->weight;
    return (struct dist_among){model_group(d), model_stage_n(d) / model_n_etp(d),
                               d->weight[0] ? w : NULL};
}
/* Among the ranks that share experts; places have the same rows in every group. */
static inline struct dist_among model_place_among(const struct model_dims *d)
{
    return (struct dist_among){model_stage_rank(d) % model_n_etp(d), model_n_etp(d),
                               d->weight[0] ? d->place_weight : NULL};
}
/* Of n slots of experts, which are dealt to the groups of ranks of d's stage that share experts,
 * those of each group g are from slot0[g] on up to slot0[g + 1]; slot0: room for DIST_RANK_MAX + 1.
 */
void model_slots_dealt(const struct model_dims *d, int n, int32_t *slot0);
int model_slots_of(const struct model_dims *d, int n); /* how many d's own group has */
/* Has it layer il? MTP layers follow the others. */
static inline bool model_has_layer(const struct arch_cfg *c, const struct model_dims *d, int il)
{
    return (il >= d->layer0 && il < d->layer0 + d->n_layer) ||
           (il >= c->n_layer && model_is_last(d));
}
/* Which rows of the role's matrix (of one expert's; of rows in all) d holds. The slices of all
 * ranks follow each other and are all of it, but that several may have the same key head; or, of
 * what every rank needs, each is all of it. */
struct model_slice model_slice_of(const struct arch_cfg *c, const struct model_dims *d,
                                  enum arch_role role, int64_t rows);
/* The same of the first n rows of a matrix that is divided by rows. */
struct model_slice model_slice_of_first(const struct model_dims *d, int64_t n);
/* Of the n_bytes of the tensor or packed matrix of that name those of the rows that d holds. */
int64_t model_slice_bytes(const struct arch_cfg *c, const struct model_dims *d, const char *name,
                          int64_t n_bytes);

typedef struct model model;

/* Parts of a model that may lie on devices of their own: what they are called to users, too. */
#define MODEL_PART_LIST(X)                                                                         \
    X(EMBED, "embed")   /* the look-up */                                                          \
    X(ATTN, "attn")     /* mixers, norms, the residual stream, the cache */                        \
    X(DENSE, "dense")   /* feed-forward blocks without experts */                                  \
    X(SHARED, "shared") /* experts that take every token */                                        \
    X(ROUTER, "router")                                                                            \
    X(EXPERTS, "experts") /* those that are chosen */                                              \
    X(HEAD, "head")
enum model_part {
#define X(name, text) MODEL_##name,
    MODEL_PART_LIST(X)
#undef X
        MODEL_N_PART
};
const char *model_part_name(enum model_part p);
#define MODEL_COPIES 5 /* of a sequence in a step: a tail in two groups, and three of states */
#define MODEL_DEV_MAX DEV_PROG_DEVS
/* Which devices a model is on, and on which of them each part lies. */
struct model_place {
    dev *d[MODEL_DEV_MAX];
    char *name[MODEL_DEV_MAX]; /* by which they are opened */
    int n_dev;
    uint8_t on[MODEL_N_PART]; /* an index into d */
    /* [n_layer + MTP layers, MODEL_N_PART] the same of each layer, or NULL: all are as on says.
     * Parts of layers may differ from it, but attention of MTP layers may not: the device of
     * on[MODEL_ATTN] begins and ends a pass. */
    const uint8_t *in_layer;
};
/* The device, as an index, of a part of layer il; il -1: outside of the layers. */
static inline int model_place_at(const struct model_place *p, int il, enum model_part part)
{
    return p->in_layer && il >= 0 ? p->in_layer[il * MODEL_N_PART + (int)part] : p->on[part];
}
/* What a user says of it, "experts=check; dense@0-15=cpu" (docs/devices.md): into out, d apart.
 * home is the name of the device of all that is not named. Devices on which nothing lies are left
 * out, texts and tables are the arena's. Errors: REQUEST names the item, and what there is. */
sl_status model_place_parse(const char *text, const struct arch_cfg *c, const char *home,
                            struct arena *a, struct model_place *out, sl_err *err) BASE_MUST_USE;
/* text, or where it is NULL the environment's SL_PLACE; NULL: it says nothing. */
const char *model_place_or_default(const char *text);
/* Bytes of the source's tensors, as far as dims holds them (NULL: all), that go to each device; a
 * table of tokens that is the head too counts on both of its devices. */
struct model_placed {
    const struct model_place *p;
    const struct arch_cfg *c;
    const struct model_dims *dims;
};
void model_place_bytes(const struct model_placed *w, const io_model *io,
                       int64_t bytes[MODEL_DEV_MAX]);
/* What small_heads adds to the weights of a model whose MTP layers use its head; 0: that is not
 * wide enough for it to matter. */
int64_t model_small_head_bytes(const struct arch_cfg *c, const io_model *io);
/* Of those, the experts' on device i. */
int64_t model_place_experts(const struct model_place *p, const struct arch_cfg *c,
                            const io_model *io, int i);
/* Of every layer, MTP layers after the others, those of one of its experts. */
void model_expert_bytes(const struct arch_cfg *c, const io_model *io, int64_t *out);
/* What lies on the place's device i, for people, in the arena: "embed, attn, head, experts@4-7".
 * Errors: NOMEM. */
sl_status model_place_text(const struct model_place *p, const struct arch_cfg *c, int i,
                           struct arena *a, char **out, sl_err *err) BASE_MUST_USE;

/* Experts that lie on attention's device beside their copy on the CPU: of layer il (MTP layers
 * follow the others) n[il] of them, expert[il * n_max] on, all different. */
struct model_hot {
    const int32_t *n;
    int n_max;
    const int32_t *expert;
};
/* May experts of layer il lie so? Streamed: is its attention on the device that begins a pass, too?
 * The devices of p are open. */
bool model_may_be_hot(const struct model_place *p, const struct arch_cfg *c, int il);
bool model_may_stream(const struct model_place *p, const struct arch_cfg *c, int il);

#define MODEL_STREAM_AUTO (-1)
/* Experts of that many bytes, the largest of the model, which a buffer of the device holds. */
int model_stream_slots(int n_expert, int64_t bytes);
/* What that takes of the device's memory, beside weights, with steps of n_tok tokens. */
int64_t model_stream_bytes(const struct arch_cfg *c, int64_t expert_bytes, int n_tok);

struct model_opts {
    int n_tok_max; /* tokens of the largest step */
    int n_seq_max;
    int n_ctx;       /* positions of the longest sequence; 0 = n_ctx_train */
    int blk_tok;     /* tokens per KV block */
    int n_logit_max; /* rows of logits of the largest step */
    enum dev_kv_type kv;
    int64_t keep_bytes; /* MLA: memory for what is kept of prompts between their pieces, at most */
    const struct model_place *place; /* NULL = all on one device */
    int rank, n_rank; /* which of how many that hold a part each; n_rank 0 = the only one */
    const struct model_stages *stages; /* NULL: one has all layers */
    bool plain;     /* ranks: as of dev_ranks */
    bool is_mixed;  /* some compute on cards, others on the CPU */
    bool is_placed; /* place says more than which device each has */
    dist *dist;       /* this rank's end, where there are several: all run the same steps at the
                         same time, and the logits come to rank 0 */
    /* 0, or: the stacks of experts hold those that slot_expert [n_slot] names, slot by slot: one
     * may be there several times, or not at all. From a layer's to the next are slot_ld; 0: all
     * layers have the same */
    int n_slot, slot_ld;
    const int32_t *slot_expert;
    bool spread; /* the slots are dealt to the groups of a stage's ranks that share experts, in
                    order, as many to each; every expert has one */
    int n_spare; /* with spread: room for so many experts of each size, which are read while steps
                    go on; then io must stay as long as the model */
    /* of groups with sequences of their own: tokens, sequences and rows above are those of one
     * group. Steps, and rows of results, are those of all; a sequence is of the group that its
     * blocks are of: n_blk[g] are those of the first, as many the second's and so on; the groups'
     * sequences follow each other. swap: as of dev_spread */
    int n_blk[DEV_KV_GROUPS];
    bool swap;
    /* 2: steps of several sequences are cut in two halves, of which one sends while the other
     * computes (micro.c); 0, 1: they are not. UNSUPPORTED where they can not be. */
    int micro;
    enum dev_combine combine; /* of dev_moe */
    int n_late; /* 0, or: of a generated token so many experts of the smallest weights are added one
                   layer with experts later, all but the last layer's; MTP layers are as always */
    const struct model_hot *hot; /* NULL = none */
    /* 0, or: in steps of so many tokens and more, experts that lie on the CPU beside attention's
     * device are streamed through that one; MODEL_STREAM_AUTO: from where that is faster. No result
     * depends on it. Errors: REQUEST: no experts lie so; UNSUPPORTED: ranks share layers */
    int stream_from;
    bool no_mtp;                /* leave the MTP layers out of memory */
    int n_draft_vocab; /* MTP layers choose among the ids below it, in whole tiles of 16 rows;
                          0 = among all */
    const int32_t *draft_ids; /* NULL, or [n_draft_vocab], a multiple of 16, rising: rows of their
                                 heads are these ids'. UNSUPPORTED: pack is all there is */
    /* MTP layers' heads of 8 bits a weight and more are rounded to 4, because their logits choose
     * among drafts and nothing else. Not where pack is all there is. */
    bool small_heads;
    /* Two models of the same steps on one device. The second, without MTP layers, is opened first
     * and takes passes number first_pass: its workspace and its program come with the model that is
     * opened with it as beside. 0, NULL = none. */
    int first_pass;
    struct model *beside;
    bool paged;                       /* layers with a window keep all positions, like the others */
    void (*edit)(struct arch_cfg *c); /* tests: changes the configuration that was read; NULL */
    const io_pack *pack; /* NULL, or a packed file of this model: its matrices are used where they
                            lie, until the model closes */
    int (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
};

/* Check every tensor, pack the weights on d (of opts->place: the device of attention) and the other
 * devices, reserve activations. Errors: FORMAT (tensor missing
 * or misshapen, by name), REQUEST (an option), UNSUPPORTED, NOMEM, CANCELLED. The model keeps no
 * pointer to io afterwards, but with n_spare. */
sl_status model_open(const io_model *m, dev *d, const struct model_opts *opts, model **out,
                     sl_err *err) BASE_MUST_USE;
void model_close(model *m);

/* Pack the matrices of a model, MTP layers too, on d into out (all but the commit). *exact: nothing
 * was rounded. Peak memory: a few buffers. opts: of which progress and its user are read; NULL =
 * none. Errors: as model_open, IO. */
sl_status model_pack(const io_model *m, dev *d, const struct model_opts *opts, io_pack_out *out,
                     bool *exact, sl_err *err) BASE_MUST_USE;
const struct arch_cfg *model_config(const model *m);
/* arch_unused's line of the folder that the model was opened from; NULL = nothing is unused. */
const char *model_unused_text(const model *m);
/* The cache of what dims holds (NULL: of all heads and layers). Groups, of which some may have no
 * layer, up to the last that has one in any stage: DEV_KV_PAGED, DEV_KV_WINDOW where layers have a
 * window, DEV_KV_STATE where they have a recurrent state; n_blk in each. */
struct dev_kv_shape model_kv_shape(const struct arch_cfg *cfg, const struct model_dims *dims,
                                   enum dev_kv_type type, int n_blk, int blk_tok);
/* How many positions the layer's cache of DEV_KV_WINDOW has to have: those of its window, or of the
 * entries that are not whole; 0 = it is not there. */
int model_kv_window(const struct arch_cfg *c, int il);
/* Where layer il (MTP layers follow the others), of those that d has, has its keys and values. */
struct model_kv_place {
    int group, layer;
};
struct model_kv_place model_kv_place(const struct arch_cfg *c, const struct model_dims *d, int il);
/* Of a cache all, what the place's device i has: the layers whose attention lies there. */
struct dev_kv_shape model_kv_shape_on(const struct model_place *p, const struct arch_cfg *c, int i,
                                      const struct dev_kv_shape *all);
/* That cache, on the devices of the model's layers; it is named by the one on the device that
 * begins a pass. Valid as long as the model and the devices. Errors: as dev_kv_open. */
sl_status model_kv_open(model *m, const struct dev_kv_shape *all, dev_kv **out,
                        sl_err *err) BASE_MUST_USE;
/* MLA: the most keep_bytes of model_opts of which there is use for n_ctx positions; 0 = none. */
int64_t model_keep_bytes(const struct arch_cfg *cfg, const dev *d, int n_ctx);
/* Weight bytes that one token at batch 1 reads. */
int64_t model_bytes_per_token(const model *m);
int64_t model_weight_bytes(const model *m);
/* Hot experts of layer il, n of them, by slot. Others take their places, as many, between steps
 * when nothing in the cache depends on it. Errors: as dev_put. */
const int32_t *model_hot_get(const model *m, int il, int *n);
sl_status model_hot_set(model *m, int il, const int32_t *expert, bool *changed,
                        sl_err *err) BASE_MUST_USE;
int64_t model_hot_bytes(const model *m); /* on the device */
/* Of what use they were since open. Between steps. */
struct model_hits {
    uint64_t n_hit, n_miss; /* terms of hot experts, and of others of such layers */
    uint64_t saved_bytes;   /* weights that the CPU did not read for it, or send */
};
struct model_hits model_hot_hits(const model *m);
/* How experts are streamed: layers of which they are, from how many tokens of a step on (0: in no
 * step), experts of a buffer; bytes of the device's buffers, and that a step of the main pass
 * brings; what was measured for auto (0: nothing); steps that were, their tokens, what these
 * brought. */
struct model_streaming {
    int n_layer, from, n_slot;
    int64_t room_bytes, pass_bytes;
    double bus_gbps, cpu_gops;
    uint64_t n_step, n_tok, n_bytes;
};
void model_stream_get(const model *m, struct model_streaming *out);
/* Stages go by one number: from is what all of them have from the next step on; 0: none is. */
void model_stream_set(model *m, int from);
/* May so many ranks, which are alike, share every matrix of the model, as o's combine and
 * n_draft_vocab have it? Errors: REQUEST, UNSUPPORTED: as model_open. */
sl_status model_may_share(const struct arch_cfg *cfg, const struct model_opts *o, int n_rank,
                          sl_err *err) BASE_MUST_USE;
/* The widest row that one of several ranks brings to a join, or gives to another. */
int64_t model_join_bytes(const model *m);
/* Those on d; a table of tokens that is the head too may lie on two devices. */
int64_t model_weight_bytes_on(const model *m, const dev *d);
/* The model's programs, which are what a step runs: into s as text, one line per operator, layers
 * that are alike told once; or, where w is not NULL, into w as an array with an object per
 * operator. Nothing is packed or computed. Errors: as model_open. */
sl_status model_show(const io_model *io, struct str *s, struct json_w *w,
                     sl_err *err) BASE_MUST_USE;
/* For how many tokens each expert of a layer was chosen since open: up to n counts. The device
 * counts; this waits and copies, between steps. NOTFOUND: a dense layer. Else as dev_get. */
sl_status model_routed(model *m, int layer, uint64_t *out, int n, sl_err *err) BASE_MUST_USE;

/* ---- experts that change places while steps go on (n_spare of model_opts) ---- */
/* Slot, of all ranks', gets expert. */
struct model_move {
    int layer, slot, expert;
};
/* Called after every stretch that was read; returns 0 to stop. */
struct model_pace {
    int (*after)(void *user, int64_t bytes);
    void *user;
};
/* Read the expert into spare room number `spare` of its layer, which must be this rank's. Threads:
 * any one. Errors: as reading it when the model was opened; CANCELLED. */
sl_status model_move_read(const model *m, const struct model_move *mv, int spare,
                          const struct model_pace *pace, sl_err *err) BASE_MUST_USE;
/* The same from the memory of a rank that has it, and the same rows of it: bytes [at, at + n) of
 * what lies in a slot of this rank's, into `to`; of what comes into spare room, from `from`. Of all
 * there are model_move_bytes. Not of a packed file. Between steps. */
int64_t model_move_bytes(const model *m, int layer);
struct model_stretch {
    int64_t at, n;
};
void model_move_get(const model *m, int layer, int slot, struct model_stretch s, void *to);
void model_move_put(model *m, int layer, int spare, struct model_stretch s, const void *from);
/* Checksums of what was read, and of what lies in a slot of this rank's: the same for the same
 * expert on every rank. Threads: that of model_move_read. */
uint64_t model_spare_sum(const model *m, int layer, int spare);
uint64_t model_slot_sum(const model *m, int layer, int slot);
/* Between steps, on every rank: from now on the slot has this expert, which must have been read
 * where it is this rank's slot. What lay there becomes the spare room. */
void model_move_apply(model *m, const struct model_move *mv, int spare);

/* What a pass of a step gives: host arrays of the model, valid until the next launch. NULL where it
 * was not wanted, and on ranks other than 0. */
struct model_rows {
    const float *logits;   /* [n_row, V], of an MTP pass [n_row, n_draft_vocab of model_opts in
                              whole tiles]; rows whose logits were not wanted are undefined */
    const int32_t *best;   /* [n_row] ids, the lowest of equals, DEV_BEST_NAN or DEV_BEST_NONE; of
                              rows of which it was not wanted DEV_BEST_NAN */
    const float *hidden;   /* [T, D] hidden states after the final norm */
    const uint8_t *finite; /* [S] 1: the hidden state of the sequence's last token is finite; all
                              that is computed after one that is not would not be either */
    const uint8_t *n_bad;  /* [S] for how many of its tokens in a row, counted from the last, it is
                              not finite; at most 255 */
};
/* Begin a step, or a pass of it: stores keys and values, makes what s->want says. Nothing else of
 * the model may be called before model_wait, and s and its arrays stay as they are until then. Pass
 * 1 .. n_mtp runs an MTP layer on ids t_{pos+1} and the hidden states of the launch before it, and
 * writes that layer's own keys and values (layer n_layer + pass - 1); position 0's embedding is not
 * zeroed. Its hidden states are those after shared_head.norm. Pass model_entries_pass of a layer
 * does no more than write its keys and values: it has no rows, and leaves the hidden states.
 * The engine checked s (debug builds assert it). Errors: as dev_sync: DEVICE, or another that the
 * next step need not have. */
sl_status model_launch(model *m, dev_kv *kv, const struct dev_step *s, sl_err *err) BASE_MUST_USE;
/* Wait for what was launched. After an error of either the contents of the step's blocks from its
 * first positions on are undefined, and so are its rows. Errors: as model_launch. */
sl_status model_wait(model *m, struct model_rows *out, sl_err *err) BASE_MUST_USE;
/* As dev_prog_watch, of pass 0: of a model that is whole or shared by rows, and whose experts come
 * in time; others tell nothing. */
void model_watch(model *m, void (*fn)(void *user, int layer), void *user);
/* What goes into matrices, for calibration: called for the rows of every step, on the calling
 * thread. DOWN_EXPS: per expert, its tokens in order; the others have expert -1; HEAD has the layer
 * n_layer. The rows are borrowed during the call. */
enum model_tap_in {
    MODEL_TAP_ATTN,
    MODEL_TAP_Q_B,
    MODEL_TAP_KV_B,
    MODEL_TAP_O,
    MODEL_TAP_FFN,
    MODEL_TAP_DOWN,
    MODEL_TAP_DOWN_SHEXP,
    MODEL_TAP_DOWN_EXPS,
    MODEL_TAP_HEAD
};
struct model_tap_rows {
    enum model_tap_in in;
    int layer, expert;
    const float *x;
    int n_row, n_col;
    int64_t ldx;
};
typedef void model_tap_fn(void *user, const struct model_tap_rows *rows);
/* From now on fn is told; NULL ends it. Errors: NOMEM. Steps get slower. */
sl_status model_tap(model *m, model_tap_fn *fn, void *user, sl_err *err) BASE_MUST_USE;
/* Prompt tokens from this position on are computed in another form than generated ones
 * (model/mla.c, model/late.c), so their stored values differ. INT_MAX: one form only. */
int model_form_from(const model *m);
/* MTP layers that were found and kept. */
int model_n_mtp(const model *m);
/* How many numbers of passes there are; that of MTP layer j < model_n_mtp's entries alone. */
int model_n_pass(const model *m);
int model_entries_pass(const model *m, int j);
/* Logits of a row of a pass. */
int model_n_logit(const model *m, int pass);

#endif
