/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of fused regions share: which operators of a program are run together (match.c),
 * how (region.c), and the parts of a layer (region_gqa.c, region_mla.c, region_ffn.c).
 * Room-internal. */
#ifndef DEV_CPU_REGION_H
#define DEV_CPU_REGION_H

#include "dev/cpu/attn.h"
#include "dev/cpu/fuse.h"
#include "dev/cpu/mla.h"
#include "dev/cpu/moe.h"

/* ---- which operators ---- */

/* The operators of a layer; NULL: it has none. */
struct cpu_layer_ops {
    int n_op;
    const struct dev_norm *attn_norm;
    const struct dev_matmul *in, *out; /* in: q, k, v; of MLA q or q_a, and kv_a */
    const struct dev_rope *rope;       /* of the queries; that of the keys is alike */
    /* keys and values per head: attn, else mla */
    const struct dev_norm *q_norm, *k_norm;
    const struct dev_attn *attn;
    int n_head_kv, d_head;
    /* MLA */
    const struct dev_norm *q_a_norm, *kv_norm;
    const struct dev_matmul *q_b;
    const struct dev_attn_mla *mla;
    /* the feed-forward block; ffn_norm NULL: the region ends before it */
    const struct dev_norm *ffn_norm;
    const struct dev_ffn *ffn; /* all of it, or the shared experts */
    const struct dev_matmul *router;
    const struct dev_route *route;
    const struct dev_moe *moe;
};

/* Does such a layer begin at op[at]? It is one whatever the step's tokens: every buffer is what the
 * operator before it wrote, without gaps, and shapes fit together. False: *l is undefined. */
bool dev_cpu_match_layer(const struct dev_op *op, int n_op, int at, struct cpu_layer_ops *l);
/* Can next, which begins where l ends, be in one region with it? */
bool dev_cpu_match_next(const struct cpu_layer_ops *l, const struct cpu_layer_ops *next);

/* ---- a region ---- */

/* Sets of products of a layer in their order. Which worker multiplies what is settled when the
 * program is opened; of routed experts, which are no such set, when they are known. */
enum set {
    SET_IN,
    SET_Q_B,
    SET_K_B, /* by head */
    SET_V_B, /* by head */
    SET_OUT,
    SET_ROUTER,
    SET_GATE_UP,
    SET_DOWN,
    N_SET
};
struct fixed {
    struct cpu_work w;
    int *begin;               /* [n_worker] of each worker's range */
    struct cpu_stream *start; /* [n_worker]; NULL: the layer has no such set */
    unsigned form;            /* of its input */
    int n_col;
};

struct region_layer {
    struct cpu_layer_ops p;
    struct dev_matmul down; /* act and y are not used */
    struct fixed set[N_SET];
    int parts; /* the hidden values of ffn are prepared as they come */
};

struct region {
    struct cpu_fused head;
    int n_layer;
    struct region_layer *layer;
    struct fixed *last;             /* the last set, unless routed experts are */
    struct cpu_stream *expert_down; /* [n_worker] */
    int d_model, kv_group;
};

/* A run of it. */
struct region_job {
    struct cpu *c;
    const struct dev_step *b;
    struct region *s;
    const struct cpu_kv *kv;
    const float *cs;
    struct dev_attn attn; /* of the first layer */
    struct attn a;
    struct mla mla; /* of the first layer */
    struct cpu_span_job spans;
    struct cpu_moe moe;             /* of the layer under way */
    const struct cpu_stream *after; /* where workers begin after the region */
    struct dev_op_time t0; /* when operators are timed: where they were before the region */
    int shared; /* each worker makes the inputs of its own rows, and waits for the others' */
    int whole;  /* a unit of attention is one worker's, with all tokens of its sequence: nobody else
                   needs what it makes ready */
};

/* One worker's view. */
struct mine {
    struct cpu_span_job spans; /* first: begin_unit comes from there */
    struct dev_attn attn;      /* of this layer */
    struct attn a;
    struct mla mla;
    struct region_job *j;
    struct region_layer *l;
    struct mm_act_buf in; /* of the set under way */
    float *x;             /* [tokens, D] */
    int worker, n_w;
    int row0, row_step; /* rows whose inputs I make: from row0 on every row_step-th */
    void (*begin)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                  float *mem);
    struct dev_op_time at; /* worker 0, when operators are timed: until where they were */
};

/* What worker 0 did since the last time was that operator's; f: with these products, or NULL. */
void dev_cpu_region_book(struct mine *m, enum dev_op_kind op, const struct fixed *f);
/* Ask for the next lines of what this worker will multiply with: while it makes its inputs nothing
 * else reads. */
void dev_cpu_region_ask(const struct mine *m);
/* m->in becomes the input of that set: empty; all tokens' rows of n_col values at x. An empty one
 * that a worker fills is there for all after input_made. */
void dev_cpu_region_input(struct mine *m, const struct fixed *f);
void dev_cpu_region_input_made(const struct mine *m);
void dev_cpu_region_prepare(struct mine *m, const struct fixed *f, const float *x);
/* x (+= r), normed and prepared for the set. */
void dev_cpu_region_norm(struct mine *m, const struct dev_norm *p, const struct fixed *f);
/* My share of the set's products, from m->in. */
void dev_cpu_region_take(struct mine *m, struct fixed *f, const struct dev_matmul *p);

/* The parts of a layer: all workers call them, and wait for each other before what comes next. */
/* From in's products to attention's output. */
void dev_cpu_region_gqa(struct mine *m);
void dev_cpu_region_mla(struct mine *m);
/* From the norm to r. */
void dev_cpu_region_ffn(struct mine *m);
void dev_cpu_region_moe(struct mine *m);
/* Keys and values of the units that this worker will begin with, without waiting for them. */
void dev_cpu_region_fetch(const struct mine *m);
/* Before the region: what its attention is, from the first layer. */
void dev_cpu_region_gqa_begin(struct region_job *j);
void dev_cpu_region_mla_begin(struct region_job *j);

#endif
