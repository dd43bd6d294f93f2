/* SPDX-License-Identifier: Apache-2.0 */
/* Devices with memory and queues of their own, whatever their interface: operators become launches
 * and copies in a log, which a driver (struct gpu_driver) records once and replays. Everything here
 * is written once for all drivers. Room-internal.
 *
 * Numerics: the CPU's order of sums and roundings in every kernel (docs/devices.md), so that the
 * CPU is the oracle of every test. Weights have the CPU's layout, packed by a CPU device of our
 * own.
 *
 * Errors of all functions here: DEVICE the device is lost, NOMEM its memory or the host's,
 * UNSUPPORTED the driver lacks something, named. */
#ifndef DEV_GPU_GPU_H
#define DEV_GPU_GPU_H

#include <stdatomic.h>

#include "dev/dev_internal.h"
#include "dev/gpu/kernel_list.h"
#include "dev/terms.h"
#include "kern/mm.h"
#include "kern/mm_fmt_list.h"

enum gpu_fmt { /* run formats, as kern numbers them */
#define X(name, ...) GPU_FMT_##name,
    MM_CODE_FMTS(X) MM_FLOAT_FMTS(X)
#undef X
        GPU_N_FMT
};
enum { GPU_MV, GPU_MF, GPU_ROW, GPU_MM, GPU_CM, GPU_N_OF_FMT }; /* kernels of every format */
enum gpu_kernel {
#define X(name, lanes) GPU_##name,
    GPU_KERNEL_LIST(X) GPU_UNITS_LIST(X)
#undef X
        GPU_OF_FMT, /* GPU_N_OF_FMT of each format */
    GPU_N_KERNEL = GPU_OF_FMT + GPU_N_OF_FMT * GPU_N_FMT
};
static inline enum gpu_kernel dev_gpu_kernel_of(int what, int fmt)
{
    return (enum gpu_kernel)(GPU_OF_FMT + GPU_N_OF_FMT * fmt + what);
}

/* Memory of the device. host: where the host sees it, or NULL. */
struct gpu_mem {
    uint64_t at;
    uint8_t *host;
    int64_t n;
    void *own; /* the driver's */
};

/* An entry of a log. Copies and fills: k holds to, from (a fill: the word) and the bytes. A stamp:
 * the time when all before it is done is written as number `to` of GPU_STAMPS. */
enum gpu_kind { GPU_LAUNCH, GPU_COPY, GPU_FILL, GPU_STAMP };
struct gpu_entry {
    uint16_t kind, kernel;
    uint32_t barrier; /* all before is done first */
    uint32_t grid[3], n_k;
    union {
        uint8_t k[128];
        struct {
            uint64_t to, from, n;
        } c;
    } u;
};

struct gpu_sending {
    uint64_t to, from, n, after;
};

struct gpu_limits {
    char text[96];        /* name of the card */
    char driver[96];      /* its driver's name and version */
    int64_t slab;         /* of one allocation, at most */
    int64_t mem_total;
    bool is_unified;      /* the host sees all of its memory */
    bool is_cpu;          /* software, for tests */
    bool has_clock;       /* stamps can be taken */
    bool has_units;       /* matrix units for bytes: kernels cm_... run */
    char units[72];       /* how they are reached, or why they are not */
};

/* Everything fails with a reason in err that does not name the device. */
struct gpu_driver {
    const char *name;
    /* which: number of the device */
    sl_status (*open)(int which, void **out, struct gpu_limits *lim, sl_err *err);
    void (*close)(void *g);
    /* pinned: memory of the host that both see; else the device's, seen by the host where it is
     * unified. */
    sl_status (*mem)(void *g, int64_t n, bool pinned, struct gpu_mem *out, sl_err *err);
    void (*mem_free)(void *g, struct gpu_mem *m);
    sl_status (*mem_left)(void *g, int64_t *out, sl_err *err); /* bytes that can still be taken */
    /* Make a kernel ready; fused: fma() of this device is. */
    sl_status (*kernel)(void *g, enum gpu_kernel id, bool fused, sl_err *err);
    /* Record n entries, for many submits. */
    sl_status (*record)(void *g, const struct gpu_entry *log, int n, void **out, sl_err *err);
    void (*forget)(void *g, void *rec); /* which is not under way */
    /* Run it after all that was submitted, and after so many sends since open. */
    sl_status (*submit)(void *g, void *rec, uint64_t n_send, sl_err *err);
    /* Wait for the n-th submit since open (from 1). */
    sl_status (*wait)(void *g, uint64_t n, sl_err *err);
    /* Copy n bytes of pinned memory beside what runs, after the sends before, and after submit
     * number after. */
    sl_status (*send)(void *g, const struct gpu_sending *s, sl_err *err);
    /* Wait for the n-th send since open. */
    sl_status (*wait_send)(void *g, uint64_t n, sl_err *err);
    /* The times of stamps 0 .. n - 1, which were reached, in ns from some time on. */
    sl_status (*times)(void *g, int n, int64_t *out);
    /* Devices there are: fills at most n rows, returns how many there are; -1: none can be asked,
     * err says why. */
    int (*list)(struct dev_desc *out, int n, sl_err *err);
};

#define GPU_GRID_MAX 65535 /* workgroups of a side of a launch that every driver takes */
#define GPU_STAMPS 4096 /* times that wait to be read, at most */
#define GPU_LOG 4096   /* entries of a submit, at most */
#define GPU_PLACES 1024 /* recordings kept: a step of many layers on two devices has hundreds */
#define GPU_ANGLES 4   /* tables of frequencies */
#define GPU_HEAD_MAX 512 /* numbers of a head (kernel/attn.inc) */
#define GPU_LATENT_MAX 512 /* of a latent (gpu/kernel/mla.inc) */
#define GPU_EXPERT_MAX 1024 /* kernel/route.inc */
#define GPU_OUTS 256   /* copies to the host that wait for the device, at most */

struct gpu_place {
    void *rec;
    int n; /* entries of the log that it is a recording of */
    uint64_t hash[2], used; /* of them (hash_wide); number of its last submit */
};

/* Host memory that is filled when the device has come so far. */
struct gpu_out {
    void *host;
    const void *from;
    size_t n;
};

struct gpu_slab {
    struct gpu_slab *next;
    struct gpu_mem mem;
    int64_t used;
};

/* Many items of one size, as no allocation may hold all: cut into pieces. */
struct gpu_pieces {
    uint64_t table; /* [n] their addresses, on the device */
    int per;        /* items of a piece */
    int64_t item;   /* bytes */
    int n;
    uint64_t *at;   /* [n] */
    uint8_t **host; /* [n] where the host sees them, or NULL */
};

struct gpu_mat {
    struct dev_mat head;
    struct gpu_half {
        int fmt; /* -1: there is none */
        enum mm_act form;
        struct gpu_pieces p;
        uint64_t unit_bytes; /* of a tile, or the two of a pair: items of p */
    } half[2];
    int n, n_tile; /* of the stack; units of a matrix */
    bool is_pair;
    enum dev_use use;
    uint64_t scale; /* [n][2] */
    uint64_t used;  /* the last submit that reads it */
};

struct gpu_act {
    struct dev_act head;
    unsigned forms;
    int n_col, n_tok_max;
    uint64_t rows;             /* [n_tok_max][n_col] f32 */
    uint64_t form[MM_N_ACT];   /* floats [n_tok][ld], or records; 0 = not prepared */
};

/* Of one form, at a width: where it lies; words from token to token, of a plane of records. */
struct gpu_input {
    uint64_t at;
    int ld;
    uint32_t n_plane, plane, stride;
};
#define GPU_REC 12 /* words of a record (kernel/prep.inc) */

struct gpu_kv {
    struct dev_kv head;
    struct dev_kv_shape s;
    struct gpu_cache_group {
        struct gpu_pieces p; /* items: a block of all layers */
        int64_t page;        /* words of a block in one layer */
        int n_layer;
    } group[DEV_KV_GROUPS];
};

/* What a pass of a step brings: in one block, the host's side and the device's. */
struct gpu_step {
    struct gpu_mem pinned;
    uint64_t mem;
    uint64_t ids, pos, seq_of, blk[DEV_KV_GROUPS], row_tok, row_want, hidden_row; /* device */
    uint64_t generated; /* [T] 1 = no token of a prompt */
    uint64_t seqs; /* [S][5] as gpu/kernel/state.inc says, then [T] as seq_of */
    uint64_t used; /* the last submit that reads pinned */
    bool is_new;   /* the log reads it */
    int64_t angles; /* where in the block they begin */
    const float *freq[GPU_ANGLES];
    float mscale[GPU_ANGLES];
    int n_rot[GPU_ANGLES];
    int n_angles;
};

/* Memory of the host that operators read, and its copy here. */
struct gpu_brought {
    struct gpu_brought *next;
    const void *host;
    uint64_t at;
};

/* Lists of the host, of experts that are spread over ranks: [tokens, K] of all that may come. */
struct gpu_terms {
    struct dev_terms l;
    int32_t *place, *id, *slot, *row_of;
    size_t n_place;
};

/* Workspace of routed experts: a row a token and expert. Of latents: a row a token and head. */
struct gpu_moe {
    uint64_t glu, h, y, slots; /* slots: [T, K] where experts have chosen slots */
    struct gpu_act act;
    struct gpu_terms terms;
};
struct gpu_mla {
    uint64_t heads, lat, olat;
    struct gpu_act act;
    uint64_t made, run; /* keys and values of a window of positions; rows folded so far */
    int64_t n_made;     /* bytes of made */
    uint64_t keys, values; /* W_kb and W_vb as floats */
};

/* Pinned memory through which the host sends, piece by piece. */
#define GPU_FLOWS 4
struct gpu_flow {
    struct gpu_mem mem;
    uint64_t sent; /* the send that reads it; 0 = none */
};

struct gpu_fault {
    uint64_t alloc, submit; /* the k-th fails; 0 = none */
    bool units, exact;      /* of the self-test: sums of matrix units, quotients and roots */
};

struct gpu {
    struct dev head;
    /* fixed after open */
    const struct gpu_driver *drv;
    void *g;
    struct gpu_limits lim;
    bool fused, is_staged; /* is_staged: copies go through pinned memory in any case */
    enum gpu_attn_form { GPU_ON_F32, GPU_ON_BF16, GPU_ON_I16, GPU_N_ON } attn; /* as the host's */
    unsigned kv_forms; /* of caches so far, as bits */
    bool no_units, has_units; /* matrix units: are not wanted; are used */
    bool tiles;               /* products of many columns have kernels of their own */
    char units_text[96];
    int which;
    int64_t slab_bytes;
    int grid_max;     /* workgroups of a side of a launch that has one for every row */
    enum dev_acts acts;
    dev *cpu; /* packs weights */
    char name[24];
    struct arena arena;
    struct gpu_fault fault;

    struct gpu_slab *slab;
    struct gpu_mem stage; /* pinned, for copies */
    uint8_t has_kernel[GPU_N_KERNEL];
    uint64_t n_alloc, n_submit;
    struct gpu_mat *taking; /* dev_mat_load under way */
    enum dev_use taking_use;
    atomic_flag taking_lock;

    /* a step */
    struct gpu_entry *log;
    int n_log;
    struct gpu_place place[GPU_PLACES];
    int next_place; /* where the next log may be found: steps are alike */
    uint64_t n_record, waited;
    struct gpu_step *step; /* [n_pass] */
    int n_pass, pass;
    struct dev_shapes most;
    struct gpu_out out[GPU_OUTS];
    int n_out;
    int64_t stamp_ns[GPU_STAMPS]; /* of operators (times.c) */
    uint8_t stamp[GPU_STAMPS];    /* which one ends there */
    int n_stamp;
    int at_room[2]; /* which of two the last join's rows are in (ranks.c): [1] of ranks that share
                       experts, [0] of others */
    struct gpu_mem bounce; /* pinned rows between devices */
    int64_t bounce_used;
    struct gpu_flow flow[GPU_FLOWS];
    int at_flow;
    uint64_t n_send;
    struct gpu_brought *brought;
    unsigned expert_forms, head_forms; /* of matrices so far, as bits */
    struct gpu_moe moe;
    struct gpu_mla mla;
    uint64_t order, blocks; /* rows of a list by their matrices (gpu/kernel/group.inc) */
    int n_order;            /* rows at most */
    uint64_t parts;    /* of attention (attn.c), of values part_d wide */
    uint64_t delta_rows; /* between kernels of attention by a state */
    bool has_drafts;     /* a step had some: states may wait for them */
    int part_d;
    int64_t cols_max;  /* of all inputs */
    uint64_t glu;      /* [n_tok_max][2 * glu_cols] gates and ups */
    int64_t glu_cols;
    uint64_t probe;    /* two buffers; 0 = not yet */
    sl_err why; /* of the step under way; code OK: nothing failed */
    bool lost;
    bool no_wait; /* a wait has failed: closing does not wait again */
};
static inline struct gpu *dev_gpu_of(const dev *d)
{
    return (struct gpu *)d;
}

/* ---- memory (mem.c) ---- */
/* n bytes of the device, 256-byte aligned, until it closes. */
sl_status dev_gpu_carve(struct gpu *c, int64_t n, uint64_t *out, uint8_t **host, sl_err *err);
/* n items of so many bytes, in pieces. */
sl_status dev_gpu_carve_items(struct gpu *c, int64_t n, int64_t bytes, struct gpu_pieces *out,
                              sl_err *err);
/* Address and, where the host sees it, memory of an item. */
uint64_t dev_gpu_item(const struct gpu_pieces *p, int64_t i, uint8_t **host);
sl_status dev_gpu_pinned(struct gpu *c, int64_t n, struct gpu_mem *out, sl_err *err);
sl_status dev_gpu_put(struct gpu *c, uint64_t to, const void *from, int64_t n, sl_err *err);
sl_status dev_gpu_get(struct gpu *c, void *to, uint64_t from, int64_t n, sl_err *err);
/* Where the host sees n bytes at an address, or NULL. */
uint8_t *dev_gpu_seen(const struct gpu *c, uint64_t at, int64_t n);
void dev_gpu_mem_free(struct gpu *c);

/* ---- the log (log.c) ---- */
/* Append; what fails is kept in c->why. */
void dev_gpu_launch(struct gpu *c, enum gpu_kernel id, const uint32_t grid[3], const void *k,
                    size_t n_k);
void dev_gpu_copy(struct gpu *c, uint64_t to, uint64_t from, int64_t n);
void dev_gpu_fill(struct gpu *c, uint64_t to, uint32_t word, int64_t n);
/* The entry appended last does not wait for those before it. */
void dev_gpu_beside(struct gpu *c);
/* Submit what is in the log. */
void dev_gpu_flush(struct gpu *c);
/* Flush, wait, and fill what waits on the host. Errors: what of the step failed. */
sl_status dev_gpu_finish(struct gpu *c, sl_err *err);
/* Fill what waits on the host: the device has come so far. */
void dev_gpu_give(struct gpu *c);
/* Wait for submit n alone. */
sl_status dev_gpu_wait(struct gpu *c, uint64_t n, sl_err *err);
/* Of sends, as of submits: what fails is kept in c->why. */
void dev_gpu_send_one(struct gpu *c, const struct gpu_sending *s);
void dev_gpu_wait_send(struct gpu *c, uint64_t n);
void dev_gpu_log_free(struct gpu *c);
/* Have a kernel ready before a step needs it. */
sl_status dev_gpu_kernel(struct gpu *c, enum gpu_kernel id, sl_err *err);

/* A stamp after what is in the log. */
void dev_gpu_stamp(struct gpu *c);

/* ---- times of operators (times.c) ---- */
bool dev_gpu_times_on(const struct gpu *c); /* they are asked for, and it has a clock */
/* e, the first entry of a log, becomes a stamp. */
void dev_gpu_stamp_first(struct gpu *c, struct gpu_entry *e);
void dev_gpu_op_done(dev *d, enum dev_op_kind op);
/* Read them: all that was submitted is done. */
void dev_gpu_times_take(struct gpu *c);

/* ---- matrix units (units.c) ---- */
/* Use them, or say why not, at open. Errors: UNSUPPORTED: their sums are wrong. */
sl_status dev_gpu_choose_units(struct gpu *c, sl_err *err);
/* How many of 128 n_tile sums of random bytes, or of halves of them, are not those of plain loops.
 * n_tile: a multiple of 4. */
sl_status dev_gpu_count_sums(struct gpu *c, bool units, bool half, int n_tile, int64_t *n_wrong,
                             sl_err *err);

/* ---- matrices, inputs (mat.c), the cache (kv.c), steps (step.c) ---- */
sl_status dev_gpu_mat_take(dev *d, enum dev_use use, struct dev_image_sink *sink, sl_err *err);
sl_status dev_gpu_mat_taken(dev *d, dev_mat **out, sl_err *err);
sl_status dev_gpu_mat_map(dev *d, const char *name, const struct dev_image *im, enum dev_use use,
                          dev_mat **out, sl_err *err);
struct gpu_input dev_gpu_input(const struct gpu_act *a, enum mm_act form, int n_col);
/* Room for forms (bits) of n_row rows of n_col values. */
sl_status dev_gpu_act_room(struct gpu *c, unsigned forms, int n_col, int n_row, struct gpu_act *a,
                           sl_err *err);
sl_status dev_gpu_mat_room(dev *d, const struct dev_image *like, int n, enum dev_use use,
                           dev_mat **out, sl_err *err);
sl_status dev_gpu_mat_fill(dev_mat *m, int at, const struct dev_image *one, sl_err *err);
sl_status dev_gpu_slots_put(dev *d, const struct dev_slots *s, int n_expert, sl_err *err);
sl_status dev_gpu_act_open(dev *d, const struct dev_inputs *in, dev_act **out, sl_err *err);
int64_t dev_gpu_kv_bytes(const dev *d, const struct dev_kv_shape *s);
enum dev_kv_type dev_gpu_kv_auto(const dev *d);
sl_status dev_gpu_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err);
void dev_gpu_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n);
void dev_gpu_kv_poison(dev *d, dev_kv *kv, int group, int blk);
void dev_gpu_kv_copy(struct gpu *c, const struct gpu_kv *kv, const int32_t copy[3]);
sl_status dev_gpu_reserve(dev *d, const struct dev_shapes *p, sl_err *err);
void dev_gpu_step_begin(dev *d, dev_kv *kv, const struct dev_step *s);
/* Cosines and sines of the step's tokens, on the device: [T][n_rot]. */
uint64_t dev_gpu_angles(struct gpu *c, const struct dev_step *s, const struct dev_rope *p);
const char *dev_gpu_lacks(const dev *d, const struct dev_op *op);

/* ---- operators (ops.c) ---- */
#define X(name, params)                                                                            \
    void dev_gpu_##name(dev *d, const struct dev_step *b, const struct params *p);
DEV_OP_LIST(X) /* some are not defined: no device here has them */
#undef X

/* What an operator has on the host is brought here: when its program is opened. */
sl_status dev_gpu_bring(dev *d, const struct dev_op *op, sl_err *err);
/* Workspace, after c->most is set. */
sl_status dev_gpu_moe_reserve(struct gpu *c, sl_err *err);
sl_status dev_gpu_mla_reserve(struct gpu *c, sl_err *err);
/* Pinned memory for what is sent (send.c). */
sl_status dev_gpu_send_reserve(struct gpu *c, sl_err *err);
sl_status dev_gpu_attn_reserve(struct gpu *c, sl_err *err);
sl_status dev_gpu_delta_reserve(struct gpu *c, sl_err *err);
sl_status dev_gpu_delta_kernels(struct gpu *c, sl_err *err);
const char *dev_gpu_delta_lacks(const struct dev_delta *p);
/* Kernels of attention for the caches so far, after c->most is set. */
sl_status dev_gpu_attn_kernels(struct gpu *c, sl_err *err);
/* What attention over a cache of that type is on; I16: where latents are absorbed, else f32. */
static inline enum gpu_attn_form dev_gpu_attn_on(const struct gpu *c, enum dev_kv_type t)
{
    return t == DEV_KV_F32 ? GPU_ON_F32 : c->attn;
}
static inline bool dev_gpu_bf16(const struct gpu *c, enum dev_kv_type t)
{
    return dev_gpu_attn_on(c, t) == GPU_ON_BF16;
}
/* The cards that list finds in a line, as far as it goes into n bytes. */
typedef int dev_gpu_list_fn(struct dev_desc *out, int n, sl_err *err);
void dev_gpu_list_text(dev_gpu_list_fn *list, char *buf, size_t n);

/* ---- opening, and the table's other entries (open.c) ---- */
/* options: "[NUMBER][,slab=BYTES][,staged][,no-matrix-units][,tiles][,fail=alloc:K]
 * [,fail=submit:K][,fail=units][,fail=exact]". Errors: REQUEST too: an option. */
sl_status dev_gpu_open(const struct dev_class *cls, const struct gpu_driver *drv,
                       const char *options, const struct dev_opts *o, dev **out, sl_err *err);
void dev_gpu_close(dev *d);
void dev_gpu_info(const dev *d, struct dev_info *out);
dev *dev_gpu_packer(dev *d);
sl_status dev_gpu_memory(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err);
bool dev_gpu_takes_host(const dev *d);
sl_status dev_gpu_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err);
sl_status dev_gpu_host_put(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err);
sl_status dev_gpu_host_get(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err);
sl_status dev_gpu_sync(dev *d, sl_err *err);
uint64_t dev_gpu_mark(dev *d);
sl_status dev_gpu_wait_mark(dev *d, uint64_t mark, sl_err *err);
void dev_gpu_host_run(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg);
int64_t dev_gpu_keep_bytes(const dev *d, const struct dev_shapes *p);
double dev_gpu_probe_read_gbps(dev *d, int ms);
double dev_gpu_probe_int8_gops(dev *d, int ms);
double dev_gpu_probe_attn_gops(dev *d, const dev_kv *kv, int ms);

/* The entries of a class that are the same for all drivers. */
#define DEV_GPU_ENTRIES                                                                            \
    .is_card = true, .close = dev_gpu_close, .info = dev_gpu_info, .memory = dev_gpu_memory,       \
    .takes_host = dev_gpu_takes_host, .alloc = dev_gpu_alloc, .put = dev_gpu_host_put,             \
    .get = dev_gpu_host_get, .sync = dev_gpu_sync, .mark = dev_gpu_mark,                           \
    .wait_mark = dev_gpu_wait_mark, .host_run = dev_gpu_host_run, .layout = KERN_MM_LAYOUT,        \
    .packer = dev_gpu_packer, .mat_take = dev_gpu_mat_take, .mat_taken = dev_gpu_mat_taken,        \
    .mat_map = dev_gpu_mat_map, .mat_room = dev_gpu_mat_room, .mat_fill = dev_gpu_mat_fill,        \
    .slots_put = dev_gpu_slots_put, .act_open = dev_gpu_act_open, .kv_bytes = dev_gpu_kv_bytes,    \
    .kv_auto = dev_gpu_kv_auto, .kv_open = dev_gpu_kv_open, .kv_touch = dev_gpu_kv_touch,          \
    .kv_poison = dev_gpu_kv_poison, .keep_bytes = dev_gpu_keep_bytes, .reserve = dev_gpu_reserve,  \
    .step_begin = dev_gpu_step_begin, .op_done = dev_gpu_op_done, .lacks = dev_gpu_lacks,          \
    .probe_read_gbps = dev_gpu_probe_read_gbps, .probe_int8_gops = dev_gpu_probe_int8_gops,        \
    .probe_attn_gops = dev_gpu_probe_attn_gops, .embed = dev_gpu_embed, .norm = dev_gpu_norm,      \
    .prep = dev_gpu_prep, .matmul = dev_gpu_matmul, .rope = dev_gpu_rope,                          \
    .kv_put = dev_gpu_kv_put, .attn = dev_gpu_attn, .delta = dev_gpu_delta, .gate = dev_gpu_gate,  \
    .ffn = dev_gpu_ffn, .add = dev_gpu_add, .rows = dev_gpu_rows, .best = dev_gpu_best,            \
    .move = dev_gpu_move, .route = dev_gpu_route, .moe = dev_gpu_moe,                              \
    .attn_mla = dev_gpu_attn_mla, .sum = dev_gpu_sum, .send = dev_gpu_send,                        \
    .join = dev_gpu_join, .pick = dev_gpu_pick, .bring = dev_gpu_bring

#endif
