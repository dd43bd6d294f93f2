/* SPDX-License-Identifier: Apache-2.0 */
/* The device interface: buffers, packed weights, the paged KV cache, and the operators that models
 * are made of (dev/op_list.h).
 *
 * A model lists its operators once, as programs (dev_prog_open), and a step runs one of them; each
 * operator is complete when the next begins (a device may queue them; dev_sync waits). Pointers to
 * activations are device addresses from dev_alloc: float *, row-major [T, n], leading dimension = n
 * unless an ld is given. Host data (ids, positions, tables) comes with the step.
 * An operator that a device lacks is a NULL entry and found when a program is opened, never in a
 * step. Operators cannot fail: shapes were checked at open. Nothing allocates in a step.
 * Determinism: a token's results depend on that token's sequence only: not on n_tok, on the other
 * rows, on the chunking or on the threads. */
#ifndef DEV_DEV_H
#define DEV_DEV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "dev/ckv.h"
#include "dev/delta.h"
#include "dev/index.h"
#include "dev/ranks.h"
#include "dev/route.h"
#include "dev/streams.h"
#include "tensor/glu.h"
#include "tensor/per_head.h"
#include "tensor/tensor.h"

/* Form of the activations of products. AUTO: int8 for experts (routed and shared) and attention
 * outputs; elsewhere int8 with a second int8 plane in groups that stand out (kern/mm.h); 15 bits
 * (two planes) for routers, MLA's per-head matrices and latents; bf16 with bf16 weights, f32 with
 * other floats. (Mean KL against exact activations on SmolLM2: 15 bits 3e-7, second planes for
 * outliers 0.0011, plain int8 0.0046.) */
enum dev_acts { DEV_ACTS_AUTO, DEV_ACTS_INT8, DEV_ACTS_BF16, DEV_ACTS_F32 };
enum dev_kv_type { DEV_KV_BF16, DEV_KV_F16, DEV_KV_Q8, DEV_KV_F32 };

struct dev_opts {
    int n_thread; /* 0 = default */
    enum dev_acts acts;
    int no_hugepages;
    int exact; /* 1: as all machines have the same bits: attention in f32, latents absorbed */
    int no_units; /* 1: cards multiply without their matrix units; the bits are the same */
    int rank, n_rank; /* one of n_rank devices that share the CPUs: it takes the rank-th part of
                         them. n_rank 0 = the only one */
};

typedef struct dev dev;
typedef struct dev_mat dev_mat;   /* packed weights: a matrix, a stack of some, or of pairs */
typedef struct dev_act dev_act;   /* prepared activations of one layer input */
typedef struct dev_kv dev_kv;     /* KV cache of all layers */
typedef struct dev_prog dev_prog; /* operators of a pass, accepted by the device */

/* name: one of dev_name, perhaps followed by ':' and options of that device; NULL = what the
 * environment's SL_DEVICE says, or the first of them. Errors: UNSUPPORTED (no such device), REQUEST
 * (an option), NOMEM, IO. */
sl_status dev_open(const char *name, const struct dev_opts *opts, dev **out,
                   sl_err *err) BASE_MUST_USE;
/* The name that is opened; auto: the first card that can be, never one in software, else cpu. */
const char *dev_name_or_default(const char *name);
bool dev_name_is_auto(const char *name); /* NULL, in both: the environment's SL_DEVICE */
/* Is name, perhaps with more after it, of a kind whose driver has files and devices of its own? */
bool dev_is_card(const char *name);
size_t dev_name_bytes(const char *list); /* of the first name of a list with commas between */
const char *dev_name(int i); /* of the i-th kind of device; NULL after the last */
/* A device of a kind of which a machine may have several, as far as it can be looked at. */
struct dev_desc {
    char name[24], text[96]; /* to be opened by; of whom */
    int64_t mem;             /* bytes of its own, or of what it shares with the host */
    bool is_cpu;             /* software, for tests */
    char why_not[120];       /* "" = it can be opened */
};
/* Such devices: fills at most n rows. Returns how many there are; -1: none can be asked, and err
 * says why. Takes milliseconds. */
int dev_list(struct dev_desc *out, int n, sl_err *err);
void dev_close(dev *d);      /* NULL is legal; frees every buffer and matrix made on it */

struct dev_info {
    const char *name;
    const char *isa;
    int n_thread;
    enum dev_acts acts;
    bool exact;        /* dev_opts.exact is asked for */
    bool attn_bf16, attn_i16; /* over caches that are not f32, attention is on bf16, attention over
                                 latents (absorbed) on 16-bit integers */
    const char *units; /* what products of prompts run on, of a card; else NULL */
};
void dev_info_get(const dev *d, struct dev_info *out);
/* Bytes of its memory: what is free, and all of it. Errors: NOMEM; DEVICE (its driver's). */
sl_status dev_memory(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err) BASE_MUST_USE;
/* Its memory is the machine's: what one such device takes all others lack. */
bool dev_takes_host(const dev *d);

/* ---- memory: at open time only ----
 * Its addresses mean something to operators and to the functions here, nothing to the host. When
 * an operator of a step could not be computed, dev_get, dev_read and dev_sync say so until the next
 * step begins: what the step writes is undefined then, and the device goes on. DEVICE: the device
 * is lost, nothing but dev_close is of use. */
sl_status dev_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out,
                    sl_err *err) BASE_MUST_USE;
sl_status dev_put(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err) BASE_MUST_USE;
/* Wait, and copy to the host. */
sl_status dev_get(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err) BASE_MUST_USE;
/* The device's memory is the host's: dev_read copies nothing. */
bool dev_is_host(const dev *d);
/* Wait, and give the host n_bytes at src to read: where they lie (dev_is_host), else copied to
 * room. They stay until the next operator. */
sl_status dev_read(dev *d, const void *src, int64_t n_bytes, void *room, const void **out,
                   sl_err *err) BASE_MUST_USE;
sl_status dev_sync(dev *d, sl_err *err) BASE_MUST_USE;
/* Run fn(arg, worker, n_worker) once on every host worker of the device and wait, as par_run does:
 * for work on what the device gave to the host. Another n_worker than dev_info's may be given;
 * worker < dev_info's n_thread. */
void dev_host_run(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg);
/* Such a device, by the thread that runs its operators while it waits for something else: reads a
 * little of what it will need next. 0: it knows of nothing. */
int dev_host_ahead(void *d);
/* Of pages of d's weights that were looked at: how many there are in memory, and on the memory node
 * of the calling thread, which is one of d's. 0: not known (of mapped ones). */
struct dev_pages dev_pages_near(const dev *d);

/* ---- weights: at open time only ---- */
enum dev_use {
    DEV_USE_MATMUL,  /* y = W x */
    DEV_USE_EMBED,   /* row look-up, and perhaps y = W x too (tied heads) */
    DEV_USE_EXPERTS, /* activations of a single int8 plane are precise enough (see dev_opts.acts =
                        auto) */
    DEV_USE_PLAIN,   /* the same for other matrices: GQA's output, shared experts */
    DEV_USE_LATENT,  /* to and from MLA's latents, whose errors are in all heads: integer codes take
                        15 bits unless acts = f32 or int8, the rest is as MATMUL */
    DEV_USE_EXACT    /* routers, MLA's per-head matrices: f32 whatever dev_opts.acts says; integer
                        codes take 15 bits unless acts = f32 */
};
/* What a stack is packed from: n matrices [rows, cols] of one shape and type (1: a plain one), or
 * pairs: gate in first, up in second, else NULL. drop: NULL, or called from the calling thread with
 * views of rows that are packed: data, rows and row_bytes say which bytes are not needed any more;
 * every row comes once. dev_mat_pack reads no use. */
struct dev_weights {
    const struct weight *first, *second; /* [n] */
    int n;
    enum dev_use use;
    void (*drop)(void *user, const struct weight *w);
    void *user;
};
/* Pack them into slab memory, first touched by the worker that will read it. Errors: NOMEM,
 * UNSUPPORTED (type), FORMAT (shapes differ). */
sl_status dev_mat_load(dev *d, const struct dev_weights *of, dev_mat **out,
                       sl_err *err) BASE_MUST_USE;
/* Of a stack some matrices, or pairs. */
struct dev_some {
    struct dev_weights of;                       /* those that are packed */
    const struct weight *all_first, *all_second; /* the whole stack: they run as all of it would */
    int n_all;
};
/* dev_mat_load of them. Errors: its. */
sl_status dev_mat_load_some(dev *d, const struct dev_some *s, dev_mat **out,
                            sl_err *err) BASE_MUST_USE;

/* What products of a matrix end with: a bias is added; gate and up of a pair become one hidden
 * value. */
struct dev_epilogue {
    /* NULL, or [n_bias, n_row]: n_row is the rows of a matrix, or those of both of a pair, the
     * gates' first */
    const float *bias;
    int n_bias, n_row;
    /* NULL: matrix i of the stack has bias i; else number of[i]: the owner's, and may be changed
     * between steps, as what the slots of the stack hold (the CPU's) */
    const int32_t *of;
    struct glu glu;
};
/* Give a matrix its epilogue, of which it has none yet: before the first program. The bias is host
 * memory, and copied; it goes wherever the matrix goes. Errors: those of dev_alloc and dev_put. */
sl_status dev_mat_end(dev_mat *m, const struct dev_epilogue *e, sl_err *err) BASE_MUST_USE;
/* The bias is the device's memory. */
const struct dev_epilogue *dev_mat_epilogue(const dev_mat *m);

/* ---- matrices of a stack that are replaced while steps go on: the CPU's ---- */
/* One matrix, or pair, as a stack has it. data[1]: of a pair of two formats the second half. */
struct dev_one {
    uint8_t *data[2];
    float scale[2];
};
/* Its bytes; out[1] 0: one format. */
void dev_one_bytes(const dev_mat *stack, int64_t out[2]);
/* Tiles [t0, t1), of 16 rows, of first (and second, of a pair) into one's data, which has room for
 * all of it and lies on 64 bytes; and its scales. Threads: any. */
void dev_one_pack(const dev_mat *stack, const struct weight *first, const struct weight *second,
                  int t0, int t1, struct dev_one *one);
/* Matrix i. Threads: any that knows that it is not being replaced. */
void dev_one_get(const dev_mat *stack, int i, struct dev_one *one);
/* Before the first swap. Errors: NOMEM; UNSUPPORTED: on devices that cannot. */
sl_status dev_one_open(dev_mat *stack, sl_err *err) BASE_MUST_USE;
/* Matrix i is *one from the next operator on, *one what it was. Between operators. */
void dev_one_swap(dev_mat *stack, int i, struct dev_one *one);

/* A matrix, stack or stack of pairs in the run layout, outside of the device: what a packed file
 * holds. It is a row of n * ceil(rows / 16) units of unit_bytes[0] each (a tile of 16 rows, or the
 * two tiles of a pair), and after them, for pairs of two formats, as many of unit_bytes[1]. */
struct dev_image {
    const char *fmt[2]; /* run formats by name; fmt[1] NULL unless the halves of a pair differ */
    int n, is_pair;
    int is_rounded; /* no run format holds its weights exactly: not for the reference mode */
    int64_t rows, cols;
    uint64_t unit_bytes[2];
    const float *scale; /* [n][2] */
    /* Where the units of each format begin, 64-byte aligned; NULL while it is being made. step:
     * from a matrix of the stack to the next; more than its units where each is some rows of
     * another. */
    const uint8_t *data[2];
    uint64_t step[2];
    const int32_t *pick; /* NULL, or [n]: matrix i is number pick[i] there, scales too; stays as
                            long as the bytes */
    struct dev_epilogue epilogue; /* of what a view shows and a room is like; not of files */
};
uint64_t dev_image_bytes(const struct dev_image *im);
/* Matrices that one room may hold: of one shape, formats and epilogue. */
bool dev_image_is_like(const struct dev_image *a, const struct dev_image *b);
/* The layout that this device's kernels read, by name: it takes images of no other. */
const char *dev_layout(const dev *d);
/* Take an image as it is: no copy, its memory (read-only is enough) stays until the device closes.
 * Pages are touched by the worker that will read them. Errors: NOMEM; FORMAT (what the image says
 * of itself does not fit together: name says which); IO (a page can not be read). */
sl_status dev_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                      dev_mat **out, sl_err *err) BASE_MUST_USE;
/* Pack as dev_mat_load does, but hand the bytes out instead of keeping them: begin once, then bytes
 * from all workers at the same time: whole units, each once, n bytes from at on of the image.
 * Nothing is handed out any more when begin has failed. Errors: as dev_mat_load, and begin's. */
struct dev_image_sink {
    sl_status (*begin)(void *user, const struct dev_image *im, sl_err *err);
    void (*bytes)(void *user, int worker, uint64_t at, const void *p, uint64_t n);
    void *user;
};
sl_status dev_mat_pack(dev *d, const struct dev_weights *of, const struct dev_image_sink *sink,
                       sl_err *err) BASE_MUST_USE;

/* Matrices of a device whose memory is the host's also on another one. like: matrix i of m as an
 * image, borrowed while m is there; n is 1. */
void dev_mat_view(const dev_mat *m, int i, struct dev_image *out);
/* Room for n matrices of like's shape and formats, whose contents are undefined until they are
 * filled. Errors: NOMEM; UNSUPPORTED: another layout. */
sl_status dev_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use, dev_mat **out,
                       sl_err *err) BASE_MUST_USE;
/* Matrix number at of a room is one now. Between steps: what the device had to do is waited for.
 * Errors: as dev_put. */
sl_status dev_mat_fill(dev_mat *m, int at, const struct dev_image *one, sl_err *err) BASE_MUST_USE;

int64_t dev_mat_bytes(const dev_mat *m); /* of the whole stack */
int dev_mat_rows(const dev_mat *m);      /* of one matrix */
int dev_mat_cols(const dev_mat *m);

/* ---- prepared activations: the input of one or several products ---- */
/* mats: every matrix that will ever take this input (of all layers). Each matrix has one activation
 * form, fixed when it was loaded (from dev_opts.acts, its use and its storage type: integer codes
 * take int8 or 15 bits, float weights take bf16 or f32); the union of the forms is prepared, of
 * n_tok_max tokens of n_col values. NULLs among them are skipped. Errors: NOMEM. */
struct dev_inputs {
    const dev_mat *const *mats; /* [n_mat], borrowed for the call */
    int n_mat, n_col, n_tok_max;
};
sl_status dev_act_open(dev *d, const struct dev_inputs *in, dev_act **out,
                       sl_err *err) BASE_MUST_USE;

/* ---- the KV cache: groups of layers that are stored alike; pages of blk_tok tokens ---- */
#define DEV_KV_GROUPS 3
enum dev_kv_kind {
    DEV_KV_PAGED,  /* every position of a sequence has its block */
    DEV_KV_WINDOW, /* those that the layers' sliding window still sees */
    DEV_KV_STATE   /* no positions: a block is a recurrent state, of a sequence (dev_step.seat) or a
                      copy of one. d_k f32 values, n_head 1, d_v 0 */
};
struct dev_kv_group {
    enum dev_kv_kind kind;
    int n_layer; /* a layer is named by its group and its place there */
    int n_blk;   /* numbered from 0 in every group */
    int n_head;  /* KV heads C; 1 for MLA */
    int d_k;     /* GQA: head width. MLA: latent + rope (576), keys and values share the row */
    int d_v;     /* GQA: value width. MLA: 0 */
    int d_i;     /* width of an index key (dev_index) of every position; 0 = there is none */
    struct dev_kv_part part[DEV_KV_PARTS]; /* of layers that differ; else every is 0 */
};
struct dev_kv_shape {
    enum dev_kv_type type;
    int blk_tok; /* a multiple of 16 */
    int n_group;
    struct dev_kv_group group[DEV_KV_GROUPS];
};
int64_t dev_kv_bytes(const dev *d, const struct dev_kv_shape *s);
/* The type to take where the user names none. */
enum dev_kv_type dev_kv_auto(const dev *d);
/* Errors: NOMEM; REQUEST: a count below 1 (a group may have no layer), blk_tok not a multiple
 * of 16. Contents are undefined; pages are touched when first written. */
sl_status dev_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out,
                      sl_err *err) BASE_MUST_USE;
/* Write zeros to n blocks in every layer of the group: their memory is there before a step. */
void dev_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n);
/* A block's contents are not needed any more. */
void dev_kv_free(dev *d, dev_kv *kv, int group, int blk);
/* Fill a block with NaN in every layer (tests, debug builds: nothing may read a freed one). */
void dev_kv_poison(dev *d, dev_kv *kv, int group, int blk);
/* A block's page in a layer of a group: n_all heads, of which the cache has its own from head0 on;
 * the same bytes on every device of one instruction set. */
struct dev_kv_at {
    int group, layer, blk, head0, n_all;
};
/* Bytes of such a page; 0: the device does not show its cache. */
int64_t dev_kv_page_bytes(dev *d, dev_kv *kv, const struct dev_kv_at *at);
/* The cache's heads into their places of the page, and back, while the host waits for no step. */
void dev_kv_get(dev *d, dev_kv *kv, const struct dev_kv_at *at, void *page);
void dev_kv_set(dev *d, dev_kv *kv, const struct dev_kv_at *at, const void *page);
/* n_head heads of another cache, from head0 on, out of a page of those alone into their places. */
void dev_kv_join(dev_kv *kv, const struct dev_kv_at *at, int n_head, const void *part, void *page);

/* ---- a step: all that is asked of a device at once ---- */

/* MLA: a sequence whose prompt is computed in pieces, so that what pieces have in common may be
 * kept between them. */
struct dev_keep {
    uint64_t id; /* of the prompt, always the same tokens; 0 = nothing to keep */
    bool last;   /* this is its last piece */
};

enum dev_want {
    DEV_WANT_LOGITS = 1, /* of rows of row_tok */
    DEV_WANT_HIDDEN = 2, /* hidden states after the final norm, of all tokens */
    DEV_WANT_FINITE = 4, /* of every sequence: is its last token's hidden state finite? */
    DEV_WANT_BEST = 8    /* of rows of row_tok: the id of the largest logit */
};

/* Plain data: it can be recorded, replayed, sent to another process. Arrays are host memory,
 * borrowed until the step is over. T = n_tok, S = n_seq; an array of [S] or [T] that does not apply
 * is NULL. */
struct dev_step {
    int pass; /* 0: the main model; 1 ..: an MTP layer, after the pass whose hidden states go in; or
                 a second model, on its own */
    int n_tok, n_seq;
    const int32_t *ids;      /* [T]; MTP: the token after the one at this position */
    const int32_t *pos;      /* [T] position in its sequence */
    const int32_t *seq_tok0; /* [S+1] first token of each sequence in the step */
    /* Of each group [S, ld_blk]: blk[g][s * ld_blk + p / blk_tok] holds position p. Where a window
     * does not reach any more: any block of the group. */
    const int32_t *blk[DEV_KV_GROUPS];
    int ld_blk;
    const int32_t *seat;     /* [S] a number that a sequence has as long as it runs, below the most
                                sequences of a step: its block of DEV_KV_STATE */
    const int32_t *n_prompt; /* [S] tokens at positions below it are prompt, the others generated */
    /* [S] the last so many of a sequence's tokens are drafts, DEV_STATE_BACK at most: its next step
     * may begin at any of them, or after them. More than it has in the step: those before it stay
     * drafts. NULL: none. For states alone. */
    const int32_t *n_draft;
    const struct dev_keep *keep; /* [S] prompts that are computed in pieces */
    int n_copy;
    const int32_t *copy; /* [n_copy, 3] group, and its blocks copied from, to in all of its layers
                            before anything else, in this order; pass 0 only */
    int n_row;
    const int32_t *row_tok; /* [n_row] tokens of the step whose rows are wanted, rising */
    /* [n_row] what of a row is wanted, DEV_WANT_LOGITS, DEV_WANT_BEST or both, all in want; NULL:
     * what want says */
    const uint8_t *row_want;
    const int32_t *hidden_row; /* [T] MTP: whose hidden state of the pass before goes in with
                                  each token; NULL = the same row */
    unsigned want;             /* of enum dev_want */
};

static inline bool dev_row_wants(const struct dev_step *s, int row, enum dev_want what)
{
    return ((s->row_want ? s->row_want[row] : s->want) & what) != 0;
}

/* Begin a step or a pass of it: copies blocks, prepares what operators derive from s. kv may be
 * NULL where n_copy is 0. Called before the first operator that is given s, which stays unchanged
 * until the last one is over. Work is laid out alike from pass to pass of one number. */
void dev_step_begin(dev *d, dev_kv *kv, const struct dev_step *s);

#include "dev/op_list.h"

/* ---- operators: parameters. All activation pointers are f32 device memory. ----
 * n_row, n_tok: 0 = the tokens of the step, DEV_ROWS_WANTED = the rows of it that are wanted.
 * kv: of a program's operators always the cache that the program is run on. */
#define DEV_ROWS_WANTED (-1)

/* Rows shown to a caller that calibrates: fn is called on the thread that runs the device's
 * operators, while the host waits. */
struct dev_tapped {
    int what, layer, expert; /* what, layer: as in dev_tap; expert: -1 = of no expert */
    const float *x;          /* [n_row, n_col] host memory, borrowed */
    int n_row, n_col;
    int64_t ldx;
};
struct dev_tap {
    void (*fn)(void *user, const struct dev_tapped *rows);
    void *user;
    int what, layer;
    const float *x; /* [T, n] */
    int n;
    int64_t ldx;
};

/* y[t] = row ids[t] - row0 of w (an EMBED matrix), times scale; where w has no such row, y[t] is
 * left as it is. */
struct dev_embed {
    const dev_mat *w;
    float *y;
    float scale;
    int row0;
};
/* y = rmsnorm(x (+ r)) * w over rows of n; when r is not NULL x += r first (x is updated). y may be
 * NULL; when act is not NULL the result is prepared there; y may be x. n_row rows, or, where rows
 * are the heads of tokens, n_tok times n_head; ldx/ldy leading dimensions (0 = n). With b a layer
 * norm: the mean of x is taken away first, b added last; y is there, and no r, act or ranks. */
struct dev_norm {
    float *x;
    const float *r; /* of several ranks see part */
    const float *w, *b;
    float eps;
    int n, n_row;
    int n_head;  /* with n_row 0: rows of a token; 0 = 1 */
    bool gather; /* the rows of token i are those of hidden_row[i] in x, where the step has a
                    hidden_row; r is NULL */
    int64_t ldx, ldy;
    float *y;
    dev_act *act;
    /* NULL, or ranks that have these rows (n_row and n_head 0): of a shared step (dev_is_shared)
     * each norms its share, adds r to those rows of x alone, and the others' rows of x stay as they
     * are. Of act it gets the others' rows in the forms that the matrices `all` take, NULLs among
     * them skipped, and those of y where whole is set. part: NULL, or r has this rank's columns
     * only, [n_row, part[rank]], and the others' come first. */
    const struct dev_ranks *ranks;
    const int32_t *part; /* [n_rank] host */
    const dev_mat *all[DEV_ALL_MAX];
    bool whole;
};
/* Prepare x [n_row, n] as it is. ranks, part, all: as of dev_norm, x in r's place; with ranks there
 * is a part, and ldx is 0. */
struct dev_prep {
    const float *x;
    int n, n_row;
    int64_t ldx;
    dev_act *act;
    const struct dev_ranks *ranks;
    const int32_t *part;
    const dev_mat *all[DEV_ALL_MAX];
};
/* y_i = W_i act for up to 4 matrices that share the input. rows: token rows of act to
 * use, NULL = 0 .. n_row-1. ranks: NULL, or those that all have W_i where bit i of whole is set
 * (then ldy is 0 and rows NULL): of a shared step each computes its share, in room, and gets the
 * others'; without room in y, which must then stay as it is until the next join; where bit i of own
 * is set too its share is all that it needs. n_head: rows of act and y that a token has, one after
 * another (n_row 0, no rows, no ranks); 0 = 1. */
#define DEV_MATMUL_MAX 4
struct dev_matmul {
    const dev_act *act;
    int n_row, n_head;
    const int32_t *rows;
    int n_mat;
    const dev_mat *w[DEV_MATMUL_MAX];
    float *y[DEV_MATMUL_MAX];
    int64_t ldy[DEV_MATMUL_MAX]; /* 0 = rows of W_i */
    const struct dev_ranks *ranks;
    unsigned whole, own;
    float *room; /* as the outputs of those W_i, one after another; or NULL */
};
/* For every head h: y[t, h, :] = W_h x[t, h, :], W a stack of H matrices. f32 activations are
 * prepared inside (f32 x dequantised weights). x [T, H, ldx_h], y [T, H, ldy_h]. */
struct dev_matmul_heads {
    const dev_mat *w;
    int n_head, n_tok;
    const float *x;
    int64_t ldx, ldx_h; /* token and head strides in elements */
    float *y;
    int64_t ldy, ldy_h;
};
/* Rotate pairs of the first n_rot of each head's d values in place. style 0: half-split (i, i +
 * n_rot/2); 1: interleaved (2i, 2i+1). Angle of pair i at position p: p * freq[i], with back its
 * negative; sin and cos times mscale. x [T, H, ...] with strides. */
struct dev_rope {
    float *x; /* freq keeps its contents while the device lives: angles are cached by its address */
    int n_head;
    int64_t ldx, ldx_h; /* token and head strides in elements */
    int n_rot, style;
    const float *freq; /* [n_rot/2], host */
    float mscale;
    bool back;
};
/* Store the step's keys and values: k [T, C, d_k], v [T, C, d_v] (MLA: k = [latent | rope], no v);
 * i: NULL, or keys of an index [T, d_i]. */
struct dev_kv_put {
    dev_kv *kv;
    int group, layer; /* of the cache */
    const float *k, *v, *i;
    int64_t ldk, ldv, ldi; /* token strides */
};
/* Causal attention over the paged cache: y[t, h, :] = softmax(scale * q k^T) v. q [T, H, d_k], y
 * [T, H, d_v]. n_window 0 = whole context. */
struct dev_attn {
    const dev_kv *kv;
    int group, layer, n_head, d_k, d_v;
    float scale;
    const float *q;
    float *y;
    int n_window;
    struct per_head per_head;
    struct dev_blocks some; /* with them there is no window */
};
/* MLA. q [T, H, nope + rope] (rope part rotated). For absorbed tokens: q_lat = W_kb q_nope,
 * attention over latents, y = W_vb o. Else (dev_limits.mla_expand_from): keys and values of the
 * context are materialised span by span. w_kb: stack of H matrices [r, nope]; w_vb: stack of H
 * matrices [v, r]. y [T, H, v]. With pick a token at a position from n_pick on sees those that its
 * row says, rising, and is absorbed from n_mask on. With every > 0 the row says windows of so many
 * positions: a token after more than n_pick whole ones sees these, and what is after the last. */
struct dev_attn_mla {
    const dev_kv *kv;
    int group, layer, n_head;
    int r, nope, rope, v;
    float scale;
    const dev_mat *w_kb, *w_vb;
    const float *q;
    float *y;
    const int32_t *pick; /* [T, n_pick], or NULL */
    int n_pick, n_mask, every;
    /* What the operators after this one read, in their order; NULL: nothing. A hint: attention
     * over a long context leaves the memory idle. */
    const dev_mat *next[4];
};
/* A recurrence over the tokens of each sequence: state = decay * state + x[t], y[t] = state, for n
 * values each for itself. The state lies in block seat of a group of states, with the inputs of
 * drafts; a sequence whose first token is at position 0 begins with zeros. No architecture has it:
 * tests of states do. */
struct dev_scan {
    dev_kv *kv;
    int group, layer, n;
    float decay;
    const float *x; /* [T, n] */
    float *y;       /* [T, n]; may be x */
};
/* A pair product and what its epilogue makes of it: act -> [gate | up] pair matrix -> h -> prepared
 * in h_act (n_row rows) -> y. */
struct dev_ffn {
    const dev_act *act;
    int n_row;
    const dev_mat *gate_up; /* pair */
    const dev_mat *down;
    dev_act *h_act; /* prepared h */
    float *h;       /* [n_row, F] scratch */
    float *y;       /* [n_row, D] */
    bool keep_h;    /* h is looked at afterwards; else its contents are undefined */
    /* NULL, or: h has this rank's columns, h_all [n_row, all columns] is room for those of all,
     * which is what down takes, unless they go from rank to rank prepared; keep_h is false */
    const struct dev_ranks *ranks;
    const int32_t *part; /* [n_rank] host */
    float *h_all;
};
/* Which experts the stacks of dev_moe hold, where it is not expert e in slot e: one may lie in
 * several slots, which take tokens in turn by their index in the step, or in none: it adds nothing.
 * Built by dev_slots_init; the arrays are the owner's and stay until the device closes. */
struct dev_slots {
    int n;                         /* slots */
    const int32_t *expert, *rank0; /* [n] expert in a slot, -1 = none; rank0: see n_here */
    int32_t *first, *list; /* [E + 1], [n]: expert e lies in slots list[first[e] .. first[e + 1]) */
    /* 0, or: experts are spread over ranks, rank r's slots are from rank0[r] on up to rank0[r + 1];
     * these stacks hold n_here slots from begin on. Where ranks share the rows of an expert
     * (dev_etp) they are those of rank r's group of such ranks */
    int n_here, begin;
};
/* Fills s->first and s->list from s->n and s->expert. */
void dev_slots_init(struct dev_slots *s, int n_expert);
/* What slots say that a program of the device has is another now. Between steps. Errors: as
 * dev_put. */
sl_status dev_slots_put(dev *d, const struct dev_slots *s, int n_expert, sl_err *err) BASE_MUST_USE;
/* The form in which every expert's output is taken before it is weighed and added: as it is,
 * rounded to bf16, or to 8 bits with a power of two for each 32 values. Another form than f32
 * changes results, on one rank as on many. */
enum dev_combine { DEV_COMBINE_F32, DEV_COMBINE_BF16, DEV_COMBINE_Q8 };
/* Words of 4 bytes of a row of n values in that form. */
int dev_combine_words(enum dev_combine form, int n);
/* The routed experts and the shared ones: y[t] = sum_k weight * down_e(h of gate_e x, up_e x) (+
 * shared(x)); a bias is part of an expert's output, so weighed with it. Sum in the order k = 0 ..
 * K-1, shared last.
 *
 * n_late > 0: of a generated token (at a position from its sequence's n_prompt on) the n_late terms
 * of the smallest weights, among equals those of the higher experts, come late: they are left out
 * of y, and another operator with late set has them alone. Of a prompt's tokens all terms are in
 * time, and a late y is not written. A late sum goes on to an operator whose before it is: there it
 * is added to a generated token's sum, and then what add has. */
struct dev_moe {
    const dev_act *act; /* prepared for DEV_USE_EXPERTS */
    int n_tok, k, n_expert;
    const int32_t *id;
    const float *weight;
    const struct dev_slots *slots; /* NULL: expert e is in slot e of the stacks */
    const dev_mat *gate_up;        /* stack of pairs, one a slot */
    const dev_mat *down;           /* stack, one a slot */
    const float *add; /* [T, D] or NULL: the shared expert's output, added last; may be y itself */
    float *y;         /* [T, D] */
    int n_late;       /* at most k */
    bool late;
    const float *before; /* [T, D] or NULL */
    struct dev_tap tap; /* fn NULL, or told afterwards what every expert in use gives to its down
                           matrix: [its tokens, F]; x, n and ldx are not used */
    /* as of dev_ffn; h_all: room for [n_tok * k, all columns] */
    const struct dev_ranks *ranks;
    const int32_t *part;
    float *h_all;
    /* NULL, or in its place, where the slots are spread over the ranks: room for [n_tok * k,
     * part[rank]], this rank's columns of what every expert gives; add and y have these columns.
     * n_of: room for [n_rank] */
    float *rows;
    int32_t *n_of; /* host */
    /* NULL, or [n_tok * k, D], in place of the sum, which dev_sum makes: each term of an expert
     * that has a slot goes to its own row, as the list has them, unweighed; rows of others stay
     * as they are. y, add and before are not used. */
    float *terms;
    struct dev_hits *hits; /* host: counted up, with terms; or NULL */
    const struct dev_spread *spread; /* NULL, or in place of ranks */
    const struct dev_etp *etp;       /* NULL, or with rows or spread */
    enum dev_combine combine;
    enum dev_moe_phase phase; /* with spread */
};
/* Of a device that leaves some of the experts to another one. */
struct dev_hits {
    uint64_t n_here, n_there; /* terms: of experts that have a slot here, of others */
    uint64_t n_used_there;    /* of the latter, experts, each counted once a step and layer */
};
/* The sum of moe, of terms that were computed one by one, some of them on another device. n_late,
 * late, before and add are as of dev_moe. */
struct dev_sum {
    int n_tok, n, k; /* n: D */
    const int32_t *id;
    const float *weight;
    /* Of the terms that are here, others are there. slots NULL: all are here */
    const struct dev_slots *slots;
    const float *here, *there; /* [n_tok * k, n] */
    const float *add, *before;
    float *y;
    int n_late;
    bool late;
};
/* Experts of the host come into rooms of this device (dev_mat_room) beside what it computes: slot i
 * of the rooms gets number slots->expert[i] of the host's stacks, -1: it stays what it is.
 * Operators after this one that read a room have what came; those before it are done with it first.
 * The host reads its weights while this is queued, and does not write them in a step. */
struct dev_send {
    const dev_mat *from_gate_up, *from_down; /* of a device whose memory is the host's */
    dev_mat *gate_up, *down;                 /* rooms */
    const struct dev_slots *slots;           /* host: read when it is queued */
};
/* x += y over rows of n values, and with a scale (0 = none) the sum times it. ranks, part: as of
 * dev_norm, y in r's place; then there is no scale. */
struct dev_add {
    float *x;
    const float *y;
    int n, n_row;
    float scale;
    const struct dev_ranks *ranks;
    const int32_t *part;
};
/* x = cap tanh(x / cap) over rows of n values, in place. */
struct dev_cap {
    float *x;
    int n, n_row;
    float cap;
};
/* The rows that the step wants, prepared: row i of act is x[row_tok[i]] of n values. */
struct dev_rows {
    const float *x;
    int n;
    dev_act *act;
};
/* Of row i of x [n_row, n], where the step wants it (DEV_WANT_BEST): the index of the largest
 * value, the lowest of equals. Of other rows id is DEV_BEST_NAN. */
enum {
    DEV_BEST_NAN = -1, /* a value is not a number */
    DEV_BEST_NONE = -2 /* all are -infinity */
};
struct dev_best {
    const float *x;
    int n;
    int32_t *id; /* [n_row] */
};
/* Rows of n values of 4 bytes between this device and another, whose memory is the host's
 * (dev_is_host). What is at host is not touched otherwise before this device was waited for. */
struct dev_move {
    void *at;   /* this device's memory */
    void *host; /* the other's */
    bool out;   /* from at to host; else from host to at */
    int n, n_row;
    bool gather; /* row i of the target is row row_tok[i] of the source; with DEV_ROWS_WANTED */
};

#define DEV_OP_DECL(name, params)                                                                  \
    void dev_##name(dev *d, const struct dev_step *b, const struct params *p);
DEV_OP_LIST(DEV_OP_DECL)
#undef DEV_OP_DECL

/* ---- programs ---- */
enum dev_op_kind {
#define DEV_OP_KIND(name, params) DEV_OP_##name,
    DEV_OP_LIST(DEV_OP_KIND)
#undef DEV_OP_KIND
        DEV_N_OP
};
/* An operator and its parameters: plain data. What changes with each step comes from the step. */
struct dev_op {
    enum dev_op_kind kind;
    int layer; /* of the model, for messages; -1 = of none */
    dev *d;    /* that runs it; NULL = the program's own */
    bool beside; /* it needs nothing of the operators since the last one of its device */
    union {
#define DEV_OP_PARAMS(name, params) struct params name;
        DEV_OP_LIST(DEV_OP_PARAMS)
#undef DEV_OP_PARAMS
    } u;
};
const char *dev_op_name(enum dev_op_kind kind);
/* What steps are at most. */
struct dev_limits {
    int n_tok, n_seq, n_ctx; /* tokens, sequences, positions of a sequence */
    int n_tok_all;           /* tokens of experts, where they are those of all ranks; 0 = n_tok */
    int n_pass;              /* of a step: 1 + MTP layers, or a second model's; 0 = 1 */
    int mla_expand_from;     /* MLA: prompt tokens at this position and after it are computed with
                                materialised keys and values, all other tokens are absorbed */
    int64_t
        keep_bytes; /* MLA: for what is kept of prompts between their pieces; touched when used */
};
/* Reserve the workspace that steps within the limits need for the operators: those of all programs
 * together, of which those of other devices count for nothing. Once, at open: after every matrix
 * was loaded, before the first program. Errors: REQUEST: a limit below 1; NOMEM. */
sl_status dev_reserve(dev *d, const struct dev_op *op, int n_op, const struct dev_limits *max,
                      sl_err *err) BASE_MUST_USE;
/* The most keep_bytes of which a device makes use for n_layer such operators (their n_head, r,
 * nope, rope and v); 0: it keeps nothing. */
int64_t dev_keep_bytes(const dev *d, const struct dev_attn_mla *p, int n_layer, int n_ctx);
/* Take the list, which is copied: a pass of a step, in its order. Its operators may be of several
 * devices (at most DEV_PROG_DEVS), between which dev_move takes rows: where the next operator is of
 * another device, the one that is left is waited for; where that is one whose memory is the host's,
 * only as far as operators that read or write host memory go, so both may run at the same time. An
 * operator that is beside those of another device waits for none of them. A device may run several
 * of its operators as one (how far: dev_prog_fused); the bits are those of one after another, but
 * the contents of buffers that only operators run together write and read are undefined. After
 * dev_reserve. Errors: NOMEM; UNSUPPORTED names the device, and the operator and the layer that it
 * lacks. */
#define DEV_PROG_DEVS 4
sl_status dev_prog_open(dev *d, const struct dev_op *op, int n_op, dev_prog **out,
                        sl_err *err) BASE_MUST_USE;
void dev_prog_close(dev_prog *p); /* NULL is legal; before dev_close */
/* Run it on s, which begins with it on every device (dev_step_begin); kv is of some of them.
 * Errors: what dev_sync says of a device that is left. The others are said by waiting. */
sl_status dev_prog_run(dev_prog *p, dev_kv *kv, const struct dev_step *s,
                       sl_err *err) BASE_MUST_USE;
/* From now on fn is told, while a program runs that is all the host's, that all operators of a
 * layer and of those before it are through; of some only with a later one. NULL ends it. */
void dev_prog_watch(dev_prog *p, void (*fn)(void *user, int layer), void *user);
/* How many of its operators a step of n_tok tokens runs together with others. */
int dev_prog_fused(const dev_prog *p, int n_tok);

/* What time it is for a host that waits for the device: its clock, or what a device says whose time
 * is computed. Nanoseconds since any moment. */
int64_t dev_now_ns(const dev *d);

/* ---- a device to look at models with ---- */
/* It keeps of a model's matrices their shapes and types, takes no program, and its addresses can
 * not be read. Only functions of memory, weights and inputs may be called. Errors: NOMEM. */
sl_status dev_dry_open(dev **out, sl_err *err) BASE_MUST_USE;
struct dev_dry_mat {
    int n, rows, cols; /* n: of a stack */
    const char *type;  /* of the weights; both halves of a pair where they differ */
};
struct dev_dry_mat dev_dry_mat(const dev_mat *m); /* of that device */

/* ---- probes of the machine's limits (bench, doctor): take about ms milliseconds each ---- */
double dev_probe_read_gbps(dev *d, int ms);
double dev_probe_int8_gops(dev *d, int ms);
/* Products and sums of the floating-point type that attention over kv is in (bf16 or f32). */
double dev_probe_attn_gops(dev *d, const dev_kv *kv, int ms);
/* What operators read and compute. */
struct dev_cost {
    double bytes; /* weights by matrix products, keys and values by attention */
    double ops;   /* products and sums of matrices, and of attention's on 8-bit codes */
    double flops; /* attention's other products and sums: queries by keys, weights by values */
};
/* Time of every operator since the call before (from the first call on), and in three rows at the
 * end of a device that runs while the host goes on: how long, in steps, it had nothing to do; how
 * long the host waited for it; and its steps, from first begin to last end. Returns the number of
 * rows, writes at most n. A card's have times from a call with out to one without: it is slower. */
struct dev_op_row {
    const char *name;
    uint64_t n_call;
    int64_t ns;
    struct dev_cost cost;
};
int dev_op_times(dev *d, struct dev_op_row *out, int n);

#endif
