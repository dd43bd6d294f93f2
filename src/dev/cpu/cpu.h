/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device: operators over kern, split over a worker team. Room-internal. */
#ifndef DEV_CPU_CPU_H
#define DEV_CPU_CPU_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dev/dev_internal.h"
#include "kern/kern.h"
#include "kern/mm.h"
#include "kern/vec.h"
#include "par/par.h"

/* One reservation; freed when the device closes. */
struct cpu_block {
    struct cpu_block *next;
    void *p;
    size_t n;
    enum mem_tag tag;
    int slab;
};

/* A stack of n matrices (or pairs) of stride bytes, step bytes from one to the next. */
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
    enum dev_use use;
    struct cpu_mat *next;
};

struct cpu_act {
    struct dev_act head;
    struct mm_act_buf b;
};

/* The pages of a group of layers. That of one block in one layer: GQA: C heads of keys (groups of
 * 16 positions, transposed), then C heads of values (rows). MLA: rows. */
struct cpu_kv {
    struct dev_kv_group s;
    int id; /* which group */
    int t;  /* enum vec_kv */
    int blk_tok;
    size_t group_bytes, row_bytes;   /* a group of 16 keys; a row of values, or of latents */
    size_t k_head_bytes, head_bytes; /* keys of one head in a page; rows of one head */
    size_t page_bytes;
    uint8_t *base; /* [n_blk][L] pages */
};
struct cpu_cache {
    struct dev_kv head;
    int n_group;
    struct cpu_kv group[DEV_KV_GROUPS];
};
static inline const struct cpu_kv *dev_cpu_kv_of(const dev_kv *kv, int group)
{
    return &((const struct cpu_cache *)kv)->group[group];
}

/* A set of products that share the worker team, as one row of units (a tile, or the two tiles of a
 * pair): worker w begins at its own range of about equal bytes and helps the others at the end. */
struct cpu_seg {
    struct mm_mat m, m2;
    int unit;       /* stream tiles of m in a unit */
    int begin, end; /* units */
    int n_tok;      /* its columns */
    int user;       /* which product */
};
/* Where a worker began to read in a set of products. */
struct cpu_stream {
    const uint8_t *p;
    size_t n;
    int again; /* as in the step before */
};
/* What a worker that waits fetches into its own cache: the beginning of what it will read next. */
struct cpu_ahead {
    _Alignas(64) const uint8_t *p;
    const uint8_t *end;
};
#define CPU_ORDER_MAX 1024 /* sets of products of a pass that are remembered */
/* Where workers began in the sets of products of one pass. */
struct cpu_order {
    struct cpu_stream *set; /* [CPU_ORDER_MAX][n_worker] of this step and, further on, the last */
    int n, last;            /* sets so far; in the step before */
};
#define CPU_AHEAD_MAX 64 /* workers that fetch ahead */

struct cpu_work {
    struct cpu_seg *seg;
    int n_seg, n_seg_max, n_tok; /* n_tok: the most of a product */
    int step_min, step_max;      /* units of a piece */
    const struct cpu_stream
        *next;               /* [n_worker] where workers will begin after this; NULL = unknown */
    struct par_range *range; /* [n_worker] */
};
/* What a worker has taken. */
struct cpu_piece {
    const struct cpu_seg *seg;
    int tile0, n_tile; /* stream tiles of seg->m */
    int at, end;       /* units taken and not yet handed out; start with 0, 0 */
};

/* Angles of the step's tokens for one frequency table. */
struct cpu_angles {
    const float *freq;
    int n_rot;
    float mscale;
    int32_t *pos; /* [n_tok_max], -1 = none */
    float *cs;    /* [n_tok_max][n_rot_max]: cosines, then sines */
};
#define CPU_N_ANGLES 4
#define CPU_TOUCH_MAX 16 /* workers that read a mapped file in */

/* Scratch of one worker. Pointers of one slab; sizes by dev_reserve. */
struct cpu_scratch {
    void *mm;           /* kern_mm's */
    float *tile;        /* outputs of a piece: CPU_TILE_FLOATS and more */
    float *row;         /* one row of the widest input */
    float *attn;        /* everything that attention needs, carved there */
    const float **rowp; /* [k] */
};

/* Materialised keys and values of prompts under way (keep.c). */
#define CPU_KEEP_MAX 8
struct cpu_kept {
    uint64_t id;    /* 0 = free */
    uint64_t tick;  /* when a step continued it last */
    bool last;      /* that was its last piece */
    int32_t *page;  /* [n_page] of spans 0, 1, ... */
    int32_t *valid; /* [n_layer] positions that are there */
    int n_page;
};
struct cpu_keep {
    uint8_t *base; /* [n_page] pages of [L][H] keys [SPAN][width], values [SPAN][width of v] */
    uint8_t *wide; /* [L][H] W_kb and W_vb as bf16, or NULL */
    const dev_mat **wide_of; /* [L] of which W_kb; NULL = not yet */
    size_t elem;             /* bytes of a key's or value's number: f32 or bf16 */
    size_t page_bytes, head_bytes, wide_bytes;
    int32_t *free_page;
    int n_page, n_free;
    uint64_t tick;
    struct cpu_kept of[CPU_KEEP_MAX];
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

#define CPU_EXPERT_MAX 4096

struct cpu {
    struct dev head;
    /* fixed after open */
    par_team *team;
    int n_worker, huge;
    enum dev_acts acts;
    struct vec_kern k;
    struct cpu_ahead ahead[CPU_AHEAD_MAX]; /* each its worker's */
    struct cpu_block *blocks;
    struct cpu_mat *mats;
    uint8_t *chunk; /* small matrices are carved from here */
    size_t chunk_left;
    struct dev_plan plan; /* what was reserved */
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
    struct par_counter *counter;
    struct cpu_angles angles[CPU_N_ANGLES];
    int angles_next, n_rot_max;
    /* experts */
    int32_t *slot_row;     /* [T * K] token of each slot, slots sorted by expert */
    int32_t *slot_of;      /* [T, K] slot of token t's k-th expert */
    int32_t *expert_slot0; /* [E + 1] */
    float *moe_h;          /* [T * K, F] */
    float *moe_y;          /* [T * K, D] */
    void *moe_mem;         /* of moe_act */
    struct mm_act_buf moe_act;
    /* products by head */
    void *head_mem;
    int64_t n_head_rows;
    int n_head_col;
    /* attention */
    int32_t *tok_list; /* [T] tokens of one form (MLA) */
    float *lat, *olat; /* MLA: [T, H, r] */
    struct cpu_unit *unit;
    int n_unit_max;
    float *part;                  /* partial results of spans */
    struct par_range *span_range; /* [n_worker] */
    struct cpu_keep keep;
    struct cpu_own own;
    struct cpu_best *best; /* [n_worker, n_tok_max] */
    int n_part, n_run;
    size_t part_floats; /* of one */
};

/* ---- memory (open.c) ---- */
/* A slab or block that lives as long as the device; zeroed. */
sl_status dev_cpu_mem(struct cpu *c, enum mem_tag tag, size_t n, void **out,
                      sl_err *err) BASE_MUST_USE;
/* The same for n * size bytes of workspace and a line behind them, that vectors may read. out: a
 * pointer's address. */
sl_status dev_cpu_scratch(struct cpu *c, size_t n, size_t size, void *out,
                          sl_err *err) BASE_MUST_USE;
/* Weights: 64-byte aligned, small ones packed together. */
sl_status dev_cpu_carve(struct cpu *c, size_t n, void **out, sl_err *err) BASE_MUST_USE;

/* ---- matrices (mat.c) ---- */
/* Everything but bytes and scales (which are 0). pair with fmt2 != fmt: two streams, m and m2. */
sl_status dev_cpu_mat_new(struct cpu *c, int fmt, int fmt2, int n, int64_t rows, int64_t cols,
                          bool pair, struct cpu_mat **out, sl_err *err) BASE_MUST_USE;
/* The same, with scales, for weights that were checked to belong together. */
sl_status dev_cpu_mat_of_weights(struct cpu *c, const struct weight *first,
                                 const struct weight *second, int n, struct cpu_mat **out,
                                 sl_err *err) BASE_MUST_USE;
/* Its bytes and scales are there: choose its form and let the workspace know of it. */
void dev_cpu_mat_add(struct cpu *c, struct cpu_mat *w, enum dev_use use);
/* Tell the owner of the source that units [begin, end) are packed; unit i * n_tile + t is tile t of
 * matrix i. */
void dev_cpu_mat_drop(const struct weight *first, const struct weight *second, int n_tile,
                      int64_t begin, int64_t end, void (*drop)(void *user, const struct weight *w),
                      void *user);

/* ---- splitting work (work.c) ---- */
/* Rows of about ns nanoseconds each: on the caller when they are few, else over the team in
 * contiguous ranges. */
void dev_cpu_for_rows(struct cpu *c, int n_row, double ns,
                      void (*fn)(struct cpu *c, void *arg, int row, int worker), void *arg);
void dev_cpu_work_clear(struct cpu_work *w);
/* m2: the second half of a pair of two formats, NULL or without data otherwise; n_tok: columns;
 * rows: of a matrix in a unit, 16 or (then they must divide n_row) 32. */
struct cpu_seg *dev_cpu_work_add(struct cpu_work *w, const struct mm_mat *m,
                                 const struct mm_mat *m2, int n_tok, int rows);
/* After the last add. */
void dev_cpu_work_split(struct cpu *c, struct cpu_work *w);
/* The parts of split, for sets of products that stay: ranges; where workers begin, into start
 * [n_worker], and what they fetch ahead follows; what the products read and compute. */
void dev_cpu_work_divide(struct cpu *c, struct cpu_work *w);
void dev_cpu_work_starts(const struct cpu *c, const struct cpu_work *w, struct cpu_stream *start);
void dev_cpu_work_remember(struct cpu *c, struct cpu_work *w);
void dev_cpu_work_count(struct cpu *c, const struct cpu_work *w);
/* A pass of a step begins: its sets of products come in the order of the same pass before. */
void dev_cpu_work_begin(struct cpu *c, int pass);
/* For par_opts.on_wait. */
int dev_cpu_work_ahead(void *cpu, int worker);
/* The next piece for a worker; false when there is none. */
int dev_cpu_work_take(struct cpu *c, struct cpu_work *w, int worker, struct cpu_piece *p);

/* One piece times tokens idx (NULL: 0 ..) into y: row j at y + j * ldy, its column 0 is row 0 of
 * the matrix; rows beyond n_row are not written. */
void dev_cpu_product(struct cpu *c, int worker, const struct cpu_piece *p,
                     const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int n_tok,
                     float *y, int64_t ldy);
/* y += bias (of the whole matrix) for the rows of a piece. */
void dev_cpu_product_bias(struct cpu *c, const struct cpu_piece *p, const float *bias, int n_tok,
                          float *y, int64_t ldy);
/* What a worker takes of w, the matrices of p times n_row rows of x, into p->y. */
void dev_cpu_matmul_take(struct cpu *c, int worker, struct cpu_work *w, const struct mm_act_buf *x,
                         const struct dev_matmul *p, int n_row);
/* Where silu(gate) * up of tokens goes: rows h + j * ldh, or straight into prepared activations
 * act, token j to row0 + j (dev_cpu_takes_parts). */
struct cpu_hidden {
    float *h;
    int64_t ldh;
    struct mm_act_buf *act;
    int row0;
    const struct vec_glu *glu; /* NULL: plain silu(gate) * up */
    const float *bias;         /* with glu: of the gates, then of the ups; or NULL */
};
/* What a gated unit of these parameters and this bias (may be NULL) takes; NULL: plain silu. */
static inline const struct vec_glu *dev_cpu_glu(const struct dev_glu *p, const float *bias,
                                                struct vec_glu *out)
{
    *out = (struct vec_glu){.limit = p->limit > 0 ? p->limit : HUGE_VALF,
                            .alpha = p->alpha > 0 ? p->alpha : 1.0f,
                            .add = p->plus1 ? 1.0f : 0.0f};
    return p->limit > 0 || p->alpha > 0 || p->plus1 || bias ? out : NULL;
}
/* Groups of 32 outputs can be prepared by themselves: one int8 plane, and they divide the width. */
static inline int dev_cpu_takes_parts(const struct cpu_mat *down)
{
    return down->form == MM_ACT_INT8 && down->m.n_col % 32 == 0;
}
/* A piece of the pairs w: silu(gate) * up, or what out->glu says. */
void dev_cpu_product_silu(struct cpu *c, int worker, const struct cpu_piece *p,
                          const struct mm_act_buf *x, const struct cpu_mat *w, const int32_t *idx,
                          int n_tok, const struct cpu_hidden *out);

static inline struct mm_mat dev_cpu_mat_at(const struct cpu_mat *w, int i)
{
    struct mm_mat m = w->m;
    m.data += (size_t)i * w->step;
    m.scale = w->scale[2 * i];
    m.scale2 = w->scale[2 * i + 1];
    return m;
}
static inline struct mm_mat dev_cpu_mat2_at(const struct cpu_mat *w, int i)
{
    struct mm_mat m = w->m2;
    if (m.data) m.data += (size_t)i * w->step2;
    m.scale = w->scale[2 * i + 1];
    return m;
}
static inline struct cpu *dev_cpu_of(dev *d)
{
    return (struct cpu *)d;
}
static inline const struct cpu_mat *dev_cpu_mat_of(const dev_mat *m)
{
    return (const struct cpu_mat *)m;
}

/* ---- parts of the operators on rows (rows.c) ---- */
/* Cosines and sines of the step's tokens: token t's from t * c->n_rot_max on. */
const float *dev_cpu_angles(struct cpu *c, const struct dev_step *b, const struct dev_rope *p);
static inline void dev_cpu_rotate(const struct cpu *c, int style, float *x, const float *cs,
                                  int n_rot)
{
    if (style)
        c->k.rope_pairs_f32(x, cs, n_rot);
    else
        c->k.rope_half_f32(x, cs, n_rot);
}
/* ---- where positions lie (kv.c) ---- */
static inline uint8_t *dev_cpu_page(const struct cpu_kv *kv, int layer, int blk)
{
    return kv->base + ((size_t)blk * (size_t)kv->s.n_layer + (size_t)layer) * kv->page_bytes;
}
/* The block of position pos of sequence seq. */
static inline uint8_t *dev_cpu_page_of(const struct cpu_kv *kv, int layer, const struct dev_step *b,
                                       int seq, int pos)
{
    return dev_cpu_page(kv, layer, b->blk[kv->id][(int64_t)seq * b->ld_blk + pos / kv->blk_tok]);
}
/* In a page, from head h's position `in` on: keys (of the group of 16 that it is in) and values. */
static inline size_t dev_cpu_key_at(const struct cpu_kv *kv, int h, int in)
{
    return (size_t)h * kv->k_head_bytes + (size_t)(in / 16) * kv->group_bytes;
}
static inline size_t dev_cpu_value_at(const struct cpu_kv *kv, int h, int in)
{
    return (size_t)kv->s.n_head * kv->k_head_bytes + (size_t)h * kv->head_bytes +
           (size_t)in * kv->row_bytes;
}
/* For dev_op_times, when operators are timed: keys and values that the step's tokens see in one
 * layer, each once, and attention's products. */
void dev_cpu_attn_count(struct cpu *c, const struct cpu_kv *kv, const struct dev_step *b,
                        int n_window, const struct dev_cost *products);
/* Positions of one block that lie side by side, a power of two. */
static inline int dev_cpu_run_length(const struct cpu_kv *kv)
{
    int n = VEC_SPAN;
    while (kv->blk_tok % n)
        n /= 2;
    return n;
}
/* Where token t of the step has its place. */
struct cpu_place {
    uint8_t *page;
    int in; /* position in the page */
};
static inline struct cpu_place dev_cpu_place(const struct cpu *c, const struct cpu_kv *kv,
                                             int layer, const struct dev_step *b, int t)
{
    int pos = b->pos[t];
    return (struct cpu_place){dev_cpu_page_of(kv, layer, b, c->seq_of[t], pos), pos % kv->blk_tok};
}
/* Key and value of head h (rows.c). */
void dev_cpu_put_head(struct cpu *c, const struct cpu_kv *kv, struct cpu_place at, int h,
                      const float *k, const float *v);

/* ---- attention (attn.c, mla.c, span.c) ---- */
/* A unit: some query rows of one sequence that go through the context together. */
struct cpu_unit {
    int32_t seq, tok0, n_tok, head0, n_head;
    int32_t span0, span1; /* spans [span0, span1) hold what they see */
};
/* Results of n_row rows: m, l, and o rows of ldo. l = 0: nothing seen. */
struct cpu_part {
    float *m, *l, *o;
};
struct cpu_span_job {
    const struct dev_step *b;
    const void *op;
    int n_unit;
    int n_row, ldo;           /* rows of a part at most, floats of a row */
    struct dev_cost products; /* of the whole job */
    /* Start on a unit (its queries into scratch), span at[0] of it into *out, where the worker's
     * next one will most likely be at[1], and the end of its rows [rows[0], rows[1]). */
    void (*begin)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                  float *mem);
    void (*span)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                 const int at[2], float *mem, struct cpu_part out);
    void (*end)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                struct cpu_part in, const int rows[2]);
    size_t mem_floats;  /* what begin and span use */
    int n_span, window; /* set by dev_cpu_spans_begin; window 0: each unit is one worker's */
};
static inline size_t dev_cpu_part_floats(int n_row, int ldo)
{
    return (size_t)n_row * 2 + (size_t)n_row * (size_t)ldo;
}
static inline struct cpu_part dev_cpu_part_at(float *p, int n_row)
{
    return (struct cpu_part){p, p + n_row, p + 2 * n_row};
}
/* Run the job's units over their spans; results are folded span by span in rising order, however
 * the work is split. */
void dev_cpu_spans(struct cpu *c, struct cpu_span_job *j);
/* The same inside a region, perhaps for several layers one after another: begin before the region,
 * then run by all workers, again by one of them between two runs, a barrier before and after it. */
void dev_cpu_spans_begin(struct cpu *c, struct cpu_span_job *j);
void dev_cpu_spans_run(struct cpu *c, struct cpu_span_job *j, int worker, int n_w);
void dev_cpu_spans_again(struct cpu *c, const struct cpu_span_job *j);
#define CPU_SET 64        /* tokens whose gate and up products wait for silu together */
#define CPU_ROWS 48       /* query rows that share a widened piece of keys, about */
#define CPU_ROWS_BF16 96  /* the same on bf16, whose pieces are half as big */
#define CPU_LANES 64      /* the same where queries lie in lanes (MLA) */
#define CPU_SPLIT 4       /* fewer units than this times the workers: spans are split too */
#define CPU_SPLIT_ITEMS 8 /* times the workers: unit-spans between two barriers */
/* Whether attention over a cache of type t rounds queries and weights to bf16: where the CPU
 * multiplies bf16 twice as fast as f32, on caches of 16 bits or fewer, unless f32 was asked for. */
static inline int dev_cpu_bf16_attn(const struct cpu *c, int t)
{
    return kern_get()->attn_bf16 && c->acts != DEV_ACTS_F32 && t != VEC_KV_F32;
}
/* The same to 16-bit integers, where it multiplies those faster than f32. */
static inline int dev_cpu_i16_attn(const struct cpu *c, int t)
{
    return kern_get()->attn_i16 && c->acts != DEV_ACTS_F32 && t != VEC_KV_F32;
}
/* Rows and row floats of a part, and floats of scratch per worker, at most. */
void dev_cpu_attn_need(const struct dev_plan *p, int *n_row, int *ldo, size_t *mem_floats);
void dev_cpu_mla_need(const struct dev_plan *p, int *n_row, int *ldo, size_t *mem_floats);
/* keep.c */
int64_t dev_cpu_keep_bytes(const dev *d, const struct dev_plan *p);
sl_status dev_cpu_keep_init(struct cpu *c, sl_err *err) BASE_MUST_USE;
/* Once a step, before its first layer, when seq_of and expand are there. */
void dev_cpu_keep_step(struct cpu *c, const struct dev_step *b);
/* Where one head's keys, and behind them values, of a span are kept, or NULL. */
void *dev_cpu_keep_span(const struct cpu *c, const struct cpu_kept *e, int layer, int head,
                        int span);
/* Where one head's widened weights are kept, or NULL. */
uint16_t *dev_cpu_keep_wide(const struct cpu *c, int layer, int head, const dev_mat *w_kb);
/* True: the caller makes the widened weights of that layer now, which are then kept. */
bool dev_cpu_keep_claim(struct cpu *c, int layer, const dev_mat *w_kb);
/* y[i, h, :] = W_h x[rows[i], h, :]; see dev_matmul_heads. */
void dev_cpu_heads(struct cpu *c, const struct dev_matmul_heads *p, const int32_t *rows);

/* ---- the table's entries ---- */
#define X(name, params)                                                                            \
    void dev_cpu_##name(dev *d, const struct dev_step *b, const struct params *p);
DEV_OP_LIST(X)
#undef X
sl_status dev_cpu_mat_load(dev *d, const struct weight *first, const struct weight *second, int n,
                           enum dev_use use, void (*drop)(void *user, const struct weight *w),
                           void *user, dev_mat **out, sl_err *err);
sl_status dev_cpu_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                          dev_mat **out, sl_err *err);
sl_status dev_cpu_mat_pack(dev *d, const struct weight *first, const struct weight *second, int n,
                           const struct dev_image_sink *sink,
                           void (*drop)(void *user, const struct weight *w), void *user,
                           sl_err *err);
sl_status dev_cpu_act_open(dev *d, const dev_mat *const *mats, int n_mat, int n_col, int n_tok_max,
                           dev_act **out, sl_err *err);
int64_t dev_cpu_kv_bytes(const dev *d, const struct dev_kv_shape *s);
enum dev_kv_type dev_cpu_kv_auto(const dev *d);
sl_status dev_cpu_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err);
void dev_cpu_step_begin(dev *d, dev_kv *kv, const struct dev_step *s);
/* Copy block src to dst in every layer. */
void dev_cpu_kv_copy(const struct cpu_kv *kv, int src, int dst);
void dev_cpu_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n);
void dev_cpu_kv_poison(dev *d, dev_kv *kv, int group, int blk);
sl_status dev_cpu_reserve(dev *d, const struct dev_plan *p, sl_err *err);
const char *dev_cpu_lacks(const dev *d, const struct dev_op *op);
/* Operators that are run together (fuse.c): a head that says how. */
struct cpu_fused {
    struct dev_fused head;
    bool (*run)(struct cpu *c, dev_kv *kv, const struct dev_step *b, struct cpu_fused *f);
};
/* Those that begin at op[at]; *out NULL: none. Layers (region.c), products whose largest values are
 * wanted (best.c). */
sl_status dev_cpu_fuse_layers(struct cpu *c, const struct dev_op *op, int n_op, int at,
                              struct cpu_fused **out, sl_err *err);
sl_status dev_cpu_fuse_best(struct cpu *c, const struct dev_op *op, int n_op, int at,
                            struct cpu_fused **out, sl_err *err);
sl_status dev_cpu_fuse(dev *d, const struct dev_op *op, int n_op, int at, struct dev_fused **out,
                       sl_err *err);
bool dev_cpu_run_fused(dev *d, dev_kv *kv, const struct dev_step *b, struct dev_fused *f);
double dev_cpu_probe_read_gbps(dev *d, int ms);
double dev_cpu_probe_int8_gops(dev *d, int ms);
double dev_cpu_probe_attn_gops(dev *d, const dev_kv *kv, int ms);

#endif
