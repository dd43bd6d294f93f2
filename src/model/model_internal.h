/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the packed layers, the step's buffers. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include "base/mem.h"
#include "io/reading.h"
#include "model/model.h"

/* ---- packed layers ---- */
/* How a block reads and writes streams: device f32 (dev_streams). */
struct stream_in {
    float *fn, *base, *scale;
    bool head; /* no block follows */
};
/* What makes entries of tokens; vectors are device f32: [ratio, rows of kv], [d]. */
struct entries {
    dev_mat *kv, *gate;
    float *ape, *norm;
};
struct layer {
    bool is_moe;
    int n_window;
    /* norms: device f32 */
    float *attn_norm, *ffn_norm, *q_norm, *k_norm, *q_a_norm, *kv_a_norm;
    /* attention */
    dev_mat *q, *k, *v, *o;    /* GQA; q also MLA without q_lora */
    dev_mat *q_a, *q_b, *kv_a; /* MLA */
    dev_mat *k_b, *v_b;        /* MLA: stacks of H: [r, nope], [v, r] */
    dev_mat *head_gate;        /* [H, D], or NULL */
    /* queries, key and weights (MLA) of an indexer, or NULL; of the norm of its keys, and of its
     * queries (GQA) or its bias (MLA), device f32; of pools there is index_entry's gate and ape */
    dev_mat *index_q, *index_k, *index_w;
    float *index_norm, *index_bias, *index_q_norm;
    /* rows that are keys and values (q_a, q_b, kv_a, o too): of the groups of heads a stack; ones
     * [d], device f32; entries of attention, and of its indexer */
    dev_mat *o_a;
    float *head_one;
    struct entries entry, index_entry;
    /* gated delta: queries, keys and values, z, b, a; or all of them in the first, b and a in the
     * third. Kimi Delta Attention: queries, keys, values, b, what a is made of, what z is */
    dev_mat *in[6];
    dev_mat *a_of, *z_of; /* which make those, [n_v d_k, d_k], [n_v d_v, d_v]; else NULL */
    /* device f32: [n_conv, channels], [n_v], [n_v, decays of each], [d_v] */
    float *conv, *decay, *dt, *out_norm;
    dev_mat *shared_gate;                /* [1, D], or NULL */
    /* FFN: dense, or shared expert in MoE layers (NULL without one) */
    dev_mat *gate_up, *down;
    /* experts */
    dev_mat *router, *gate_up_exps, *down_exps;
    const float *router_bias; /* host [E] or NULL: it chooses, and does not weigh */
    const int32_t *expert_of; /* host [V, K] or NULL: experts by the token's id */
    struct per_head per_head;
    struct stream_in streams[2]; /* of attention, of the feed-forward block */
    /* of a sandwich (sandwich.c): norms of what attention and the feed-forward block give; of a
     * dense block beside experts; experts' own before and after them, and that of their router;
     * a factor of each, host [E]; that of the layer */
    float *attn_post, *ffn_post, *dense_post, *exps_norm, *exps_post, *router_norm;
    const float *expert_scale;
    float scale;
};

/* Of a layer's experts those that lie on attention's device too (hot.c). */
struct hot {
    int n; /* 0 = none */
    int32_t *here_of, *rest_of, *next; /* [n] of the device's slots, [E] of the CPU's: the expert,
                                          -1 = none; scratch [n] */
    struct dev_slots here, rest;
    dev_mat *gate_up, *down; /* stacks of n */
    struct dev_hits hits;    /* counted by the CPU's steps, and of streamed ones */
    int64_t bytes;           /* of an expert */
};

#define MODEL_MTP_MAX 16
#define MODEL_PASS_MAX (1 + 2 * MODEL_MTP_MAX)

/* Experts that are streamed through attention's device (stream.c). */
#define MODEL_STREAM_BUFS 2
#define MODEL_STREAM_ROOMS 16 /* kinds of matrices */
struct stream {
    int from;           /* tokens of a step that is; 0 = none is */
    int n_slot, n_slab; /* experts of a buffer; buffers that a layer's experts fill */
    int n_layer, n_room;
    struct dev_slots **slab; /* [L + MTP]: of a layer whose experts are [n_slab], else NULL; all
                                NULL: none are */
    int64_t *bytes;          /* [L + MTP] that a step brings of a layer */
    struct stream_room {
        struct dev_image like;
        dev_mat *mat[MODEL_STREAM_BUFS]; /* stacks of n_slot */
    } room[MODEL_STREAM_ROOMS];
    dev_prog *prog[MODEL_PASS_MAX]; /* of each pass */
    int64_t room_bytes;
    double bus_gbps, cpu_gops; /* measured; 0 = not */
    uint64_t n_step, n_tok, n_bytes;
    uint64_t *routed, *now; /* [devices, L + MTP, E] what routers had counted before a step, and
                               after it; NULL: no expert is hot */
    int pass;               /* of the step that is to be counted so; -1: none is */
};

struct mtp {
    struct layer layer;
    float *enorm, *hnorm, *head_norm;
    dev_mat *eh;
    dev_mat *e, *h; /* of several streams, in place of eh; and their head */
    struct stream_in stream_head;
    dev_mat *embed, *head; /* own ones, or those of the model; of head the rows of n_draft_vocab */
    bool has_head; /* of its own */
};

/* What a device has of a model's step: what the parts that lie there need (buffers.c). */
struct side {
    dev *d;
    int64_t weight_bytes;
    /* prepared inputs, one per kind of input */
    dev_act *a_attn, *a_q_a, *a_o, *a_mix, *a_ffn, *a_h, *a_head, *a_eh;
    dev_act *a_e, *a_streams; /* of an MTP layer of several streams: as eh_in, a row for each */
    dev_act *a_a, *a_z; /* of a_of and z_of */
    dev_act *a_o_win;   /* as a_o, of layers with a window that are not like the others */
    dev_act *a_router, *a_beside; /* of the router, and of experts, that have norms of their own */
    /* step buffers, device f32, n_tok_max rows */
    float *x, *r; /* [T, model_x_cols] residual stream; [T, D] output of the sub-layer that is not
                     added yet */
    /* of several streams: a block's input [T, D]; by what r goes into them; room for sums */
    float *stream_y, *stream_mix, *stream_part;
    float *q, *k, *v, *y; /* [T, H*d], [T, C*d] or [T, r+rope], [T, C*d], [T, H*d_v] */
    float *qa, *h;        /* [T, q_lora], [T, F] */
    float *qg;            /* [T, H, 2 d] queries and their gates */
    float *index_q, *index_k, *index_w; /* [T, n_index, d_index], [T, d_index], [T, n_index] */
    int32_t *pick;                      /* [T, model_index_cols] what an indexer chose */
    float *heads, *entry[4]; /* [T, H d] of attention; [T, 2 d] of entries, [T, 2 d_index] of index
                                keys: kv, gate of each */
    float *mix;           /* [T, model_delta_cols] what a delta layer takes */
    float *low;           /* [T, d_k + d_v] what a_of and z_of take */
    float *head_gate;     /* [T, H] what the outputs of heads are gated by */
    float *share;         /* [T] what shared experts are gated by */
    float *logit_r, *weight_r, *shared; /* [T, E], [T, K], [T, D] */
    float *rows;   /* [T, D] the feed-forward block's input, where some of the block is elsewhere */
    dev_act *a_exps; /* of ranks with sequences of their own: that of the tokens of all ranks */
    float *send, *give, *in, *back; /* as of dev_spread; the next three too */
    int32_t *id_all, *list, *count;
    float *all_logits, *all_hidden; /* rows of all ranks, on rank 0 */
    float *all_best, *all_bad;      /* the same of what best and n_bad say */
    float *hidden; /* [T, D] */
    float *logits; /* [n_logit_max, V] */
    int32_t *best; /* [n_logit_max] */
    float *eh_in;  /* [T, 2D]; of several streams [T, model_x_cols]: those of entries alone, which
                      leave x as it is; may be q, which such a pass has no use for */
    int32_t *id_r; /* [T, K] */
    /* where experts come late: as id_r and weight_r, of every second layer; their sum [T, D] */
    int32_t *id_odd;
    float *weight_odd, *late;
    float *terms, *given; /* [T * K, D] of hot experts: computed here; on the other device */
    uint64_t *n_routed; /* [L + MTP, E] tokens that an expert was chosen for, by routers here */
    /* of several ranks, this one's columns of y, r, logits; its rows of x; all hidden values of
     * h, and of experts */
    float *y_cols, *r_cols, *logit_cols, *x_rows, *h_all, *h_exps;
    float *whole;    /* [T, kv_lora + d_rope + d_index + n_index]: its rows of latents, and of what
                        an indexer has, which all ranks get */
    float *exp_rows; /* [T * K, own columns of D] of experts that are spread over ranks */
    float *etp_rows; /* its share of what experts give that ranks share by rows */
    float *own_rows; /* what experts give for those of the tokens that are this rank's own, of
                        several that share matrices */
};

/* What is divided among ranks, as columns of an output. */
enum model_cut {
    MODEL_CUT_HEADS,
    MODEL_CUT_MODEL,
    MODEL_CUT_FF,
    MODEL_CUT_SHARED,
    MODEL_CUT_EXPERT,
    MODEL_CUT_VOCAB,
    MODEL_CUT_DRAFT, /* the vocabulary of MTP layers, where that is less */
    MODEL_N_CUT
};
struct model_ranks {
    struct dev_ranks join;
    int32_t part[MODEL_N_CUT][DIST_RANK_MAX]; /* columns of each rank */
    int32_t row0[DIST_RANK_MAX + 1];          /* of the vocabulary, where each rank's begin */
    int32_t *of;                              /* [n_tok_max] whose row a token's is */
    int32_t n_of[DIST_RANK_MAX];              /* rows of experts that each has computed */
    /* of groups with sequences of their own: all ranks of a stage; n_rank 0: there is one group */
    struct dev_ranks apart;
    struct dev_spread spread;
    /* of experts that are spread, and shared by rows: who shares them, and columns of each of F and
     * D; n_rank below 2: they are whole */
    struct dev_ranks share;
    struct dev_etp etp;
    int32_t h_part[DIST_RANK_MAX], y_part[DIST_RANK_MAX], share_of[DIST_RANK_MAX];
    int32_t tok_of[DIST_RANK_MAX]; /* by rank of the stage: whose experts' input it sends */
};

/* Pieces of a step. */
#define MODEL_PIECES 16
struct model_piece {
    int seq, tok0, n_tok;
};
struct model_pieces {
    int n;
    struct model_piece piece[MODEL_PIECES];
    struct dev_step rest;
    int32_t *ids, *pos, *row_tok, *seq_tok0; /* of rest */
    struct dev_keep *keep;                   /* [n_seq_max] */
    uint64_t n_kept;
};

/* Of a step of several groups with sequences of their own what is this one's. */
struct model_own {
    struct dev_step step;
    /* what each has of the whole step; tok_before: where its tokens began in the pass before */
    int32_t n_tok[DIST_RANK_MAX], n_seq[DIST_RANK_MAX], n_row[DIST_RANK_MAX], tok_before;
    /* of several stages, what each has of the whole step's pieces; n_piece: of the one that has
     * most */
    int32_t piece_tok[DIST_RANK_MAX][MODEL_PIECES];
    int n_piece;
    int32_t *seq_tok0, *seat, *copy, *row_tok, *hidden_row, *blk[DEV_KV_GROUPS];
    int ld_blk;
};

/* A step of sequences of one's own in two halves (micro.c). */
struct model_micro {
    struct side side;              /* the second half's buffers */
    struct dev_spread spread;      /* its ways to experts */
    int32_t tok_of[DIST_RANK_MAX]; /* its tokens, by rank */
    bool is_second;                /* operators are listed for it, and its side is the model's */
    dev_prog *half[2], *tail;      /* of both, up to the head; NULL: steps are not cut */
    struct dev_step step[2];
    int32_t *seq_tok0; /* of the second */
};
/* A step whose last layer has few of its tokens (few.c). tok NULL: none is such a step. */
struct model_few {
    dev_prog *body, *tail;                   /* with all tokens; with the few */
    struct dev_step step;                    /* of the few */
    int32_t *tok, *pos, *row_tok, *ids, *seq_tok0; /* of it; tok: which of all they are */
};
/* What comes first of the sequences and tokens of each group. */
struct model_first {
    int32_t n_seq[DIST_RANK_MAX], n_tok[DIST_RANK_MAX];
};

/* Bytes of an expert's gate and up, and of its down, each in up to two formats. */
struct model_spare_bytes {
    int64_t n[2][2];
};
struct model_spare_one {
    struct dev_one of[2];
};
#define MODEL_SPARE_KINDS 16
struct model_spares {
    int n_kind, *kind; /* kind [L + MTP]: of a layer's experts */
    struct model_spare_bytes bytes[MODEL_SPARE_KINDS];
    struct model_spare_one *one; /* [n_kind, n_spare] */
};

struct model {
    /* fixed after open */
    struct arch_cfg cfg;    /* of the file */
    struct model_dims dims; /* of this rank */
    struct model_ranks ranks; /* where there are several */
    struct model_opts opts;
    enum io_kind kind;
    const io_model *io;     /* while opening, and with n_spare */
    struct model_spares spares;
    int load_layer;         /* whose weights are being loaded; -1 = outside of the layers */
    struct dev_slots *slots; /* [L + MTP]; NULL = expert e in slot e */
    const char *unused;     /* NULL = no tensor is */
    dev *d;                 /* of attention and the cache */
    struct model_place place;
    struct side side[MODEL_DEV_MAX];
    struct arena arena;
    struct layer *layer; /* [L] */
    struct mtp *mtp;     /* [n_mtp kept] */
    struct hot *hot;     /* [L + MTP], or NULL */
    int64_t hot_bytes;
    struct stream stream;
    int n_mtp;           /* kept */
    bool keeps_hidden;   /* a later pass reads the hidden states of all tokens */
    bool has_mtp;        /* the file has MTP layers, kept or not */
    int n_draft_vocab;   /* rows of their heads; 0 = all of the vocabulary */
    dev_mat *embed, *head;
    float *norm;
    struct stream_in stream_head; /* fn NULL: the mean */
    float *rope_freq, *entry_freq; /* host [n_rot/2]; of layers with entries, or NULL */
    float *win_freq; /* host [d_head_win/2] of layers with a window that are not like the others, or
                        NULL */
    int64_t weight_bytes, bytes_per_token;
    int expand_from; /* MLA: prompt positions from here on use materialised keys */
    float
        *stage_late, /* host [T, D]: what comes late, between stages */
        *stage; /* host [T, model_x_cols]: rows between two devices of which neither's
                   memory is the host's, or between such a one and another rank */
    dev_prog *prog[MODEL_PASS_MAX]; /* of each pass */
    /* the step under way */
    const struct dev_step *step;
    struct model_pieces pieces; /* of several stages */
    struct model_own own;       /* of several ranks with sequences of their own */
    struct model_micro micro;
    struct model_few few;
    uint8_t *finite, *n_bad; /* host [n_seq_max] */
    /* host copies of a step's results, where the device's memory is not the host's; else NULL */
    float *host_logits, *host_hidden, *host_row; /* as logits, hidden, a row of hidden */
    int32_t *host_best;                          /* as best */
    /* while packing into a file; NULL otherwise */
    io_pack_out *out;
    const char *out_name; /* of the matrix that comes next */
    bool rounded;
    /* calibration; tap_fn NULL = none */
    model_tap_fn *tap_fn;
    void *tap_user;
    float *tap_y;                          /* [T, max(D, q_lora)] normed inputs */
    dev_prog *tap_prog[MODEL_PASS_MAX]; /* that show rows; NULL until there was a tap */
    /* progress while opening */
    int64_t done_bytes, total_bytes;
    char doing[64];         /* what is told of it */
    bool cancelled;
    struct io_reading reading; /* of the source */
};

/* Layer il; MTP layers follow the others. */
static inline struct layer *model_layer(const struct model *m, int il)
{
    return il < m->cfg.n_layer ? &m->layer[il] : &m->mtp[il - m->cfg.n_layer].layer;
}
/* The side on which a part that is not a layer's lies, or all layers' one. */
static inline struct side *model_side(const struct model *m, enum model_part p)
{
    return (struct side *)&m->side[m->place.on[p]];
}
/* The side on which a part of layer il lies; il -1: outside of the layers. */
static inline struct side *model_side_in(const struct model *m, int il, enum model_part p)
{
    return (struct side *)&m->side[model_place_at(&m->place, il, p)];
}
/* place.c: m->place and its sides, from the options or all on d. The table of the options' place
 * stays the caller's until the model closes. */
void model_place_open(struct model *m, dev *d);
/* Has layer il such a part? */
bool model_has_part(const struct arch_cfg *c, int il, enum model_part p);
/* Does any of the layer's feed-forward block lie elsewhere than attention? */
bool model_ffn_apart(const struct model *m, int il);
/* The part to which a tensor of that name belongs, and its layer, -1 = of none. */
enum model_part model_part_of_name(const struct arch_cfg *c, const char *name, int *layer);
/* The part to which matrices and vectors of a role belong. */
enum model_part model_part_of(enum arch_role role);
/* buffers.c: the widest input of down, of experts that are chosen apart; what steps use, reserved
 * once. */
int model_wide_ff(const struct arch_cfg *c);
sl_status model_buffers_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* shape.c: m->slots from the options, checked. Errors: REQUEST. */
sl_status model_slots_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* Which experts the stacks of layer il hold here; NULL: all, in order. */
const int32_t *model_slots_here(const struct model *m, int il, int *n);
/* spare.c: room for experts that come while steps go on. Errors: UNSUPPORTED, NOMEM. */
sl_status model_spares_open(struct model *m, const io_model *io, sl_err *err) BASE_MUST_USE;
/* hot.c: m->hot from the options, when the layers are loaded. Errors: REQUEST, UNSUPPORTED, NOMEM,
 * as dev_put. */
sl_status model_hot_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* Hot experts of layer il; NULL: there are none. */
const struct hot *model_hot_of(const struct model *m, int il);
/* stream.c: m->stream from the options, after hot experts. Errors: REQUEST, UNSUPPORTED, NOMEM. */
sl_status model_stream_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* Are the experts of layer il streamed, in steps that are? */
bool model_stream_of(const struct model *m, int il);
/* Others of layer il are hot now. Errors: as dev_put. */
sl_status model_stream_hot(struct model *m, int il, sl_err *err) BASE_MUST_USE;
/* Is a step streamed? Stages say the same of it, whichever of them have such experts. */
bool model_stream_has(const struct model *m, const struct dev_step *s);
/* Into *out the program of a step that is streamed, counted as one, or NULL: it is not. Errors: as
 * dev_get. */
sl_status model_stream_prog(struct model *m, const struct dev_step *s, dev_prog **out,
                            sl_err *err) BASE_MUST_USE;
/* Count what the last step, if it was streamed and when it has ended, took of hot experts. Errors:
 * as dev_get. */
sl_status model_stream_count(struct model *m, sl_err *err) BASE_MUST_USE;
/* try.c: from how many tokens on it pays, found by trying. When all programs are open. Errors: what
 * opening and running them says. */
sl_status model_stream_try(struct model *m, sl_err *err) BASE_MUST_USE;
/* late.c: can experts come late as the options say? REQUEST, UNSUPPORTED. */
sl_status model_late_check(const struct model *m, sl_err *err) BASE_MUST_USE;
/* Where what comes late is when the stage before has given it, and when the next one takes it; NULL
 * = nothing. On the host it is there: rows [T, D]. */
struct side *model_late_in(const struct model *m);
struct side *model_late_out(const struct model *m);
float *model_late_rows(const struct model *m, const struct side *s);
/* Experts of a token that come late in layer il. */
int model_n_late(const struct model *m, int il);
/* load.c; m->io is set */
sl_status model_load_layer(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
sl_status model_load_globals(struct model *m, sl_err *err) BASE_MUST_USE;
sl_status model_load_mtp(struct model *m, int i, sl_err *err) BASE_MUST_USE;
/* weights.c: n more bytes of the source are done. True: progress wants to stop. */
bool model_load_tell(struct model *m, int64_t n);
/* All is there. The same. */
bool model_load_told(struct model *m);
/* rope.c: frequencies of every kind, host memory in the arena. */
sl_status model_rope_freqs(struct model *m, const io_model *io, sl_err *err) BASE_MUST_USE;
/* model.c: open all but the programs; *out is NULL after an error. */
sl_status model_open_parts(const io_model *io, dev *d, const struct model_opts *opts, model **out,
                           sl_err *err) BASE_MUST_USE;
/* prog.c: reserve the workspace that the operators of all passes need, on every device. */
sl_status model_reserve(struct model *m, sl_err *err) BASE_MUST_USE;
/* Open the programs of all passes, with tap's operators where its fn is not NULL, or with experts
 * that are streamed: into out[model_n_pass]. */
struct model_progs {
    struct dev_tap tap;
    bool streams;
};
sl_status model_progs_open(struct model *m, struct model_progs how, dev_prog **out,
                           sl_err *err) BASE_MUST_USE;
/* slice.c: does this rank have what is outside of the layers? */
bool model_has_global(const struct arch_cfg *c, const struct model_dims *d, enum arch_global g);
/* pieces.c: in at most n_max pieces of least tokens or more, into c; none where it stays whole. */
void model_pieces_cut(const struct dev_step *s, int least, int n_max, struct model_pieces *c);
/* What is left, in c's arrays: every sequence has a token at least, and all rows are there. */
struct dev_step model_pieces_rest(const struct dev_step *s, struct model_pieces *c);
sl_status model_pieces_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* The pass m->step of a stage, of the step all of all groups: rows come from the stage before, and
 * go to the next one. Errors: as model_launch. */
sl_status model_stages_run(struct model *m, dev_kv *kv, const struct dev_step *all,
                           sl_err *err) BASE_MUST_USE;
/* own.c */
sl_status model_own_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* What of s is this group's becomes m->step. Errors: INTERNAL: it is not sorted by groups. */
sl_status model_own_take(struct model *m, const struct dev_step *s, sl_err *err) BASE_MUST_USE;
/* How many tokens of the next run each group has: its ranks share those whose rows go to experts.
 */
void model_own_share(struct model *m, const int32_t *n_tok);
/* Tokens of a rank's share, at most. */
static inline int model_own_tok_max(const struct model *m)
{
    return (m->opts.n_tok_max + m->dims.n_rank - 1) / m->dims.n_rank;
}
/* Where its experts are: one side, of all layers. */
struct side *model_own_experts(const struct model *m);
/* The rows of all ranks come to rank 0; own: this one's. Elsewhere out has none. */
void model_own_give(struct model *m, const struct model_rows *own, struct model_rows *out);
/* micro.c: can steps be cut as the options say? UNSUPPORTED. When layers are loaded: the second
 * half's buffers; programs. Errors: NOMEM, as dev_prog_open. */
/* mla.c: where tokens of prompts that see some positions only begin to be absorbed. */
int model_mla_mask_until(const struct arch_cfg *c);
/* index.c: layers that see what the indexer of another chooses are in its stage. UNSUPPORTED names
 * the layer. */
sl_status model_index_check(const struct model *m, sl_err *err) BASE_MUST_USE;
/* Positions or blocks that an indexer chooses for a token, of all heads of this rank. */
int model_index_cols(const struct arch_cfg *c, const struct model_dims *d);
sl_status model_micro_check(const struct model *m, sl_err *err) BASE_MUST_USE;
sl_status model_micro_open(struct model *m, sl_err *err) BASE_MUST_USE;
sl_status model_micro_progs(struct model *m, sl_err *err) BASE_MUST_USE;
void model_micro_close(struct model *m);
/* Of a step of n_dp groups with n_seq sequences each, which follow each other, the first half: no
 * sequence is cut, and tokens of both are as many as that allows. False: no group has two. */
bool model_micro_cut(const int32_t *seq_tok0, const int32_t *n_seq, int n_dp,
                     struct model_first *out);
/* The step, of which model_own_take has taken its part, in halves; false: it is not cut. */
bool model_micro_run(struct model *m, dev_kv *kv, const struct dev_step *all);
/* few.c: its arrays, of a model that has such steps; its programs. Errors: NOMEM, as dev_prog_open.
 */
sl_status model_few_open(struct model *m, sl_err *err) BASE_MUST_USE;
sl_status model_few_progs(struct model *m, sl_err *err) BASE_MUST_USE;
void model_few_close(struct model *m);
/* Which tokens of s go on to the end: into f->step, in f's arrays. False: too many. */
bool model_few_choose(const struct dev_step *s, struct model_few *f);
/* Run a pass that is such a step, whose rest is then m->step; else *done is false. Errors: as
 * dev_prog_run. */
sl_status model_few_run(struct model *m, dev_kv *kv, const struct dev_step *s, bool *done,
                        sl_err *err) BASE_MUST_USE;
/* How operators that are listed give rows to experts. */
static inline const struct dev_spread *model_spread_of(const struct model *m)
{
    return m->micro.is_second ? &m->micro.spread : &m->ranks.spread;
}
/* buffers.c: those of side s, of which the model has none yet; and its ways to experts. */
sl_status model_buffers_side(struct model *m, struct side *s, sl_err *err) BASE_MUST_USE;
struct dev_spread model_buffers_spread(const struct model *m, const struct side *s);
static inline bool model_is_own(const struct model *m)
{
    return m->dims.n_dp > 1;
}
/* ranks.c: which rank computes which columns. Errors: REQUEST, UNSUPPORTED: what can not be shared
 * so. */
sl_status model_ranks_open(struct model *m, sl_err *err) BASE_MUST_USE;
/* shape.c: a layer's group: DEV_KV_GROUPS has a kind each. */
int model_kv_group(const struct arch_cfg *c, int il);
/* kv.c: where operators of layer il find its keys and values, in the cache of their device. */
struct model_kv_place model_kv_here(const struct model *m, int il);
/* The same of its entries; of what pools' entries are made of. */
struct model_kv_place model_kv_entries_here(const struct model *m, int il);
struct model_kv_place model_kv_raw_here(const struct model *m, int il);
/* shape.c: one layer more, or with by -1 less, in the groups that it is in. */
void model_kv_count(struct dev_kv_shape *s, const struct arch_cfg *c, int il, int by);
/* What of a layer the cache has, and where: numbered among the layers that has() says are there. */
enum model_kv_what { MODEL_KV_ROWS, MODEL_KV_ENTRIES, MODEL_KV_RAW, MODEL_N_KV };
typedef bool model_kv_has(const void *arg, int il);
struct model_kv_place model_kv_at(const struct arch_cfg *c, int il, enum model_kv_what what,
                                  model_kv_has *has, const void *arg);
/* Where a layer's state is, its blocks are of DEV_KV_STATE. */
static inline bool model_has_state(const struct arch_cfg *c, int il)
{
    return model_kv_group(c, il) == DEV_KV_STATE;
}
/* sandwich.c: a layer's norms and factors; what of such a model can not be placed, shared or
 * deferred. UNSUPPORTED names it. */
sl_status model_load_sandwich(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
sl_status model_sandwich_check(const struct model *m, sl_err *err) BASE_MUST_USE;
/* streams.c: values of a token's residual stream; and of what its streams are mixed by. */
int64_t model_x_cols(const struct arch_cfg *c);
int64_t model_stream_mix_cols(const struct arch_cfg *c);
/* delta.c: values of a token that a gated delta layer takes: its channels, z, b and a. */
int64_t model_delta_cols(const struct arch_cfg *c);
/* mla.c */
/* The position from which prompt tokens use materialised keys and values; INT_MAX = never. */
int model_mla_expand_from(const struct arch_cfg *c);

#endif
