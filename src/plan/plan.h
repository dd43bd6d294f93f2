/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: profiles of models and hardware in, memory and speed of a layout out.
 *
 * This room owns the arithmetic of models, the performance model, the burst simulation, the search
 * and the calibration. It is pure: no clock, no file, no thread; the caller hands it the bytes of
 * tables. Numbers are double; times are seconds unless the name says _ms or _us; sizes are bytes;
 * rates are per second. docs/planner.md explains every equation.
 *
 * Threads  every function is pure on its arguments; any thread.
 * Memory   structs are plain and copyable; strings inside them are arrays or borrowed from the
 * arena that the tables were read into. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

struct arch_cfg; /* arch/arch.h */

#define PLAN_NAME 96 /* bytes of a name, with the NUL */

/* ---- models ------------------------------------------------------------------------------------
 */

enum plan_attn {
    PLAN_ATTN_MLA, /* compressed KV (DeepSeek), one cache row replicated on every TP rank; in
                      n_lin layers a constant state (Kimi-Linear) */
    PLAN_ATTN_GQA, /* grouped query attention, KV heads split over TP */
    PLAN_ATTN_HYB, /* GQA on every 4th layer, a constant state elsewhere (Qwen3.5) */
    PLAN_ATTN_V4,  /* shared K=V, windows and compressed context (DeepSeek V4) */
};

/* One model: shape, then parameters by class, all derived by plan_model_finish(). */
struct plan_model {
    char name[PLAN_NAME];
    enum plan_attn attn;
    int layers, hidden, heads, kv_heads, head_dim; /* L, D, H, C, d */
    int q_lora, kv_lora, nope, rope, v_dim;        /* MLA; 0 elsewhere */
    int dense_layers, dense_inter;                 /* first layers with a plain FFN */
    int experts, topk, shared, moe_inter, shared_inter;
    int vocab, mtp_layers, tie_embed, max_ctx;
    int lin_k, lin_v, lin_d; /* linear-attention key heads, value heads, width; 0 unknown */
    int lin_key, lin_conv, n_lin; /* width of keys, 0 = lin_d; taps; such layers, HYB: 0 = 3 of 4 */
    bool lin_each;                /* a decay for each key channel (Kimi Delta Attention) */
    bool lin_whole;               /* which is made at once, as gates are (Ling) */
    bool head_gate;               /* MLA: a row more for each head */
    bool shared_gate;             /* a row more beside the shared experts */
    /* sparse indexer (V3.2, GLM-5, V4; GQA: MiniMax-M3); 0 none. index_topk: in positions */
    int index_heads, index_dim, index_topk;
    int index_pool; /* MLA: positions that have one key of it (GLM-5.3); 0 = each its own */
    int n_index; /* layers with an indexer of their own, of all that keep its keys; 0 = all. Of
                    GQA the others see everything */
    int n_c4, n_c128, window; /* V4: layers compressed 4 and 128 times, window length */
    int n_stream;             /* rows of the residual stream; 0 = one */
    bool stream_mean;         /* their head has no weights */
    int o_groups, o_lora;     /* V4: of the output; 0 = 8, 1024 */
    int n_window;             /* GQA: layers that see a window only (gpt-oss) */
    int win_kv_heads, win_head_dim; /* theirs, where they have others (Gemma 4); 0 = the same */
    bool k_is_v;              /* the other layers of such a model: a key is a value too */
    bool qk_norm;             /* GQA: queries and keys are normed */
    bool unshared;            /* it has what struct arch_cfg says keeps ranks from sharing heads */
    double total;             /* parameters without the MTP module; given or computed */
    double active;            /* parameters one token touches, without embedding lookup */
    double kv_token; /* bytes of BF16 KV per token, all layers; 0 for V4 (see plan_kv_bytes) */
    /* derived, parameters */
    double p_attn;          /* attention of one layer that TP splits, mean over layers */
    double p_repl;          /* attention of one layer that every rank repeats (q_a, kv_a, norms) */
    double p_dense;         /* one plain FFN */
    double p_shared;        /* shared experts of one layer */
    double p_expert;        /* one routed expert */
    double p_router;        /* router of one layer */
    double p_embed, p_head; /* p_head is 0 when tied */
    double p_mtp;           /* the whole MTP module, with its copy of embedding and head if it has
                               one */
    int moe_layers;
    const struct plan_counts *counts; /* which experts were chosen; NULL unknown */
    double spread; /* T tokens choose as T^spread even ones do, where that was counted; 0 unknown */
};

#define PLAN_ROW_MAX 8
/* What the engine counted (docs/cli.md, --expert-stats). */
struct plan_counts {
    int n_layer, n_expert, n_used;
    const float *share; /* [n_layer, n_expert] how likely a token chooses that expert */
    int n_row;          /* 0, or counted too (eval --experts): */
    double
        in_row[PLAN_ROW_MAX]; /* distinct experts of 1, 2, .. n_row tokens of one text in a row */
};

#define PLAN_DRAFT_MAX 7
/* What bench measured (docs/cli.md, bench --draft). */
struct plan_drafts {
    int n;                        /* places */
    double right[PLAN_DRAFT_MAX]; /* how often the draft there was, of those after right ones */
    int64_t n_draft;              /* that says so */
};

/* A tensor of a real checkpoint, as the tools layer lists it. */
struct plan_tensor {
    const char *name; /* GGUF or Hugging Face name */
    double n_elem;    /* parameters; of codes the numbers that they stand for, of scales none */
    double bytes;     /* bytes in the file */
};

/* Derive parameter counts from the shape. total or active given as 0 are computed; a given total
 * fixes the attention of HYB and V4 as what remains. Returns false when the shape is impossible
 * (why names a field). */
bool plan_model_finish(struct plan_model *m, char *why, size_t why_size);

/* Expected distinct experts that n_tok tokens touch, uniform routing: N(1-(1-k/N)^T). */
double plan_experts_touched(const struct plan_model *m, double n_tok);
/* The same with routing as it is found: p_i ~ exp(-3 i/N). The same first value, then fewer. With
 * m->spread set, T tokens count as T^spread even ones instead; with m->counts, as was counted. */
double plan_experts_read(const struct plan_model *m, double n_tok);

/* Bytes of KV that one sequence of ctx tokens keeps, all layers, on one rank of a TP group of tp.
 * bits: 16 (bf16), 8 (int8/fp8). MLA, V4 and the indexer are replicated; GQA splits to min(tp, kv).
 */
double plan_kv_bytes(const struct plan_model *m, double ctx, double bits, int tp);
/* Bytes of a copy of a sequence's states, all layers, with room for inputs of drafts; 0: none. */
double plan_state_bytes(const struct plan_model *m);

/* ---- weight formats ----------------------------------------------------------------------------
 */

enum plan_num { PLAN_NUM_BF16, PLAN_NUM_INT8, PLAN_NUM_FP8, PLAN_NUM_FP4, PLAN_NUM_COUNT };

/* Bits by tensor class, scales included; act is what the matrix unit multiplies in. */
struct plan_format {
    char name[24];
    double expert, attn, dense,
        head;   /* bits; dense also covers shared experts, head the embedding */
    double cpu; /* bits of experts kept on the CPU; 0 = as expert */
    enum plan_num act;
    bool soft_scale; /* block scales that this device family must apply in vector code */
    bool fp_weights; /* needs FP8 or FP4 storage support only, not arithmetic */
};

bool plan_format_find(const char *name,
                      struct plan_format *f); /* awq nvfp4 mxfp4 int8 w4a8 fp8 bf16 ... */
const char *plan_format_names(void);          /* "awq nvfp4 ...", for messages */

/* Bytes of all weights in a format, without and with the MTP module. */
double plan_weight_bytes(const struct plan_model *m, const struct plan_format *f, bool with_mtp);

/* ---- hardware ----------------------------------------------------------------------------------
 */

enum plan_vendor {
    PLAN_ASCEND,
    PLAN_NVIDIA,
    PLAN_OTHER_GPU,
    PLAN_APPLE,
    PLAN_CPU,
    PLAN_VENDOR_COUNT
};

/* A device is one die as a rank sees it. A card may hold two. */
struct plan_device {
    char name[PLAN_NAME];
    enum plan_vendor vendor;
    int dies;                    /* per card that people buy */
    double mem;                  /* bytes per die */
    double bw;                   /* bytes/s per die */
    double peak[PLAN_NUM_COUNT]; /* op/s per die; 0 = no such unit */
    double link, net;            /* bytes/s, one way, per die: inside a node, between nodes */
    int cards_per_node;
    double alpha_link, alpha_net; /* s, base of one collective; 0 = vendor's prior */
    bool consumer;                /* PCIe only, no fabric */
    bool a3;                      /* unified bus between nodes (CloudMatrix) */
};

/* A host processor with its memory: for experts on the CPU and for CPU-only runs. */
struct plan_host {
    char name[PLAN_NAME];
    double mem; /* bytes of DRAM; 0 unknown */
    double bw;  /* bytes/s, measured where known, else 0.8 of peak */
    double ops; /* op/s measured in expert matrix products; 0 unknown */
    int cores;
};

/* ---- tables ------------------------------------------------------------------------------------
 */

/* What moving rows between ranks costs: s before the first byte, bytes/s into each rank. */
struct plan_link {
    double lat, bw;
};
#define PLAN_RANK_MAX 64 /* ranks that share a model, at most */
/* One of them: bytes and 8-bit products a second while all n_here ranks of its host work, and while
 * the others there rest (0: no more than that); its host, by number, and bytes there. */
struct plan_rank {
    double bw, ops, mem;
    int host, n_here;
    double bw_alone, ops_alone;
};
/* CPU ranks as they were measured. */
struct plan_team {
    int n, per_host;            /* ranks; of each host, one after another; 1 where they differ */
    struct plan_link host, all; /* joins of rows of the ranks of a host, and of all */
    struct plan_link hop;       /* from a stage to the next */
    double op;                  /* s: an operator that begins and ends for itself */
    double step;                /* s: home tells of a step, and hears that it is over */
    double fused;               /* tokens of a step up to which a rank alone has no such ones */
    const struct plan_rank *rank; /* [n]; NULL: they are alike */
};

/* One CSV file as bytes: RFC 4180 quoting, "\n" or "\r\n", a header line, '#' lines skipped. */
struct plan_bytes {
    const char *name; /* for messages */
    const char *p;
    size_t n;
};

/* Names of engines, how mature they are, and how they fill a pipeline. */
struct plan_engine {
    const char *alias; /* lower case, ';' between, found anywhere in a system's name */
    int gen;
    double pp_batch; /* sequences of one micro-batch before a pipeline gets a second; 1: at once */
};

struct plan_tables {
    struct plan_model *model;
    const char **model_alias;
    int n_model;
    struct plan_device *dev;
    const char **dev_alias;
    int n_dev;
    struct plan_host *host;
    const char **host_alias;
    int n_host;
    struct plan_engine *engine;
    int n_engine;
};

/* Read tables; later calls append (a user's own rows win over earlier ones of the same name).
 * Errors  FORMAT "FILE line L column C: ..."; the tables are unchanged in what they had.
 * Memory  in the arena. */
sl_status plan_read_models(struct plan_tables *t, struct arena *a, struct plan_bytes b,
                           sl_err *err) BASE_MUST_USE;
sl_status plan_read_hardware(struct plan_tables *t, struct arena *a, struct plan_bytes b,
                             sl_err *err) BASE_MUST_USE;
sl_status plan_read_engines(struct plan_tables *t, struct arena *a, struct plan_bytes b,
                            sl_err *err) BASE_MUST_USE;

/* Find by name: exact, then alias, then the longest alias that stands as words inside the text
 * ("2x Ascend 910B4 64GiB + Kunpeng 920" finds 910B4). NULL when nothing does. */
const struct plan_model *plan_find_model(const struct plan_tables *t, const char *name);
const struct plan_device *plan_find_device(const struct plan_tables *t, const char *name);
const struct plan_host *plan_find_host(const struct plan_tables *t, const char *name);
const struct plan_engine *plan_find_engine(const struct plan_tables *t, const char *system);
/* The three nearest names as "a, b, c" for a message. kind: 0 models, 1 devices and hosts. */
void plan_nearest(const struct plan_tables *t, int kind, const char *name, char *out, size_t size);

/* The file of --expert-stats. Memory in the arena. Errors: FORMAT with the name of the file, the
 * layer and the field. */
sl_status plan_read_counts(struct plan_counts *out, struct arena *a, struct plan_bytes b,
                           sl_err *err) BASE_MUST_USE;
/* Rows of bench --draft --json: those of the row with the most places. Errors: FORMAT names the
 * file and the field. */
sl_status plan_read_drafts(struct plan_drafts *out, struct arena *a, struct plan_bytes b,
                           sl_err *err) BASE_MUST_USE;
/* Of k drafts, how many to expect right; past the last place as there. */
double plan_drafts_right(const struct plan_drafts *d, int k);
/* Different experts of a layer that n_tok tokens choose on average, each token for itself. */
double plan_counts_read(const struct plan_counts *c, double n_tok);
/* The share of choices that the n experts of a layer take that are chosen most, mean of layers. */
double plan_counts_top(const struct plan_counts *c, int n);
/* How many tokens of texts that know nothing of each other read as many experts as n_tok in a row:
 * n_tok where that was not counted, never more. */
double plan_counts_apart(const struct plan_counts *c, int n_tok);

/* A model from the text of a config.json (Hugging Face). name: shown. What room arch does not know
 * or would refuse is read by the names that makers use: other engines may serve it.
 * Errors: FORMAT, NOMEM. */
sl_status plan_model_from_config(struct plan_model *m, struct arena *a, const char *name,
                                 struct plan_bytes b, sl_err *err) BASE_MUST_USE;
/* The shape of a configuration that room arch has read; plan_model_finish() does the rest. */
void plan_model_from_arch(struct plan_model *m, const struct arch_cfg *c);
/* Correct a model by the tensors of a real file: parameters by class as they are. The format gets
 * the real bits per class. Returns the file's bytes. */
double plan_model_from_tensors(struct plan_model *m, struct plan_format *f,
                               const struct plan_tensor *t, size_t n);

/* ---- layouts -----------------------------------------------------------------------------------
 */

struct plan_layout {
    int cards;           /* cards in all (or in the pool that is meant) */
    int ranks;           /* dies in all */
    int tp, pp, dp, ep;  /* ep 1: experts split by TP */
    int redundant;       /* extra copies of experts, in all */
    int mtp;             /* drafted tokens per step, k */
    double accept;       /* expected accepted drafts per step, sum over k */
    int chunk;           /* prompt tokens in one prefill batch; 0 = the engine's own */
    bool micro_batch;    /* two batches overlap compute and communication */
    bool balanced;       /* experts perfectly balanced (forced or simulated) */
    bool shared_ranks;   /* shared experts live on ranks of their own */
    bool serial;         /* pipeline stages without overlap (layer split on one process) */
    double pp_batch;     /* as in struct plan_engine; 0 = 1 */
    bool cpu_experts;    /* routed experts in host memory */
    bool stream_prefill; /* prefill streams the experts over the bus, layer by layer */
    int stream_from;     /* ... from this many tokens in a batch; fewer run on the host */
    double hot;          /* share of expert reads that hit copies on the card, 0..1 */
    int n_p, n_d;        /* split prefill and decode, nodes of each; 0,0 = mixed */
    bool swap;           /* CPU ranks with dp: rows go to those that have experts of theirs alone */
    bool halves;         /* the same: steps in two halves, not counted in their time */
    double combine_bits; /* the same: of a value of an expert's output, 32, 16 or 8.25 */
    int n_weight;        /* CPU ranks of a stage that are not alike: 0, or tp dp */
    uint16_t weight[PLAN_RANK_MAX]; /* of what they share, each one's part */
};

/* ---- constants ---------------------------------------------------------------------------------
 */

enum plan_key {
    PLAN_T_LAYER,  /* us per layer and step: launches, norms, collective base */
    PLAN_T_MULTI,  /* us per layer more where a step groups the tokens of many sequences */
    PLAN_ETA_W,    /* share of bandwidth that reading expert weights reaches */
    PLAN_ETA_KV,   /* share of bandwidth that reading KV reaches */
    PLAN_T0,       /* s that the host needs to launch one prefill batch, beside the device's work */
    PLAN_T_REQ,    /* s per request in a batch */
    PLAN_MFU,      /* share of peak in prefill's matrix products */
    PLAN_ETA_A,    /* share of peak in prefill's attention */
    PLAN_CPU_GBPS, /* GB/s of expert reads in host memory; in a set: a factor on what the host
                      offers */
    PLAN_CPU_TOPS, /* Top/s of expert products on the host; in a set: a factor */
    PLAN_T_TL,     /* us per token and layer: routing, quantisation, vector work (large EP) */
    PLAN_T_DRAFT,  /* us per layer of the model for each drafted token */
    PLAN_SOFT,     /* factor on t_tl where block scales are applied in software */
    PLAN_CHUNK,    /* prompt tokens that the engine puts in one prefill batch */
    PLAN_BUS,      /* factor on the bus while experts are streamed for a prompt (repacking) */
    PLAN_KEYS
};

/* How the engine works; constants do not carry over from one to another. */
enum plan_mode { PLAN_MODE_TP, PLAN_MODE_EP, PLAN_MODE_HYBRID, PLAN_MODE_CPU, PLAN_MODE_COUNT };

enum plan_trust { PLAN_CALIBRATED, PLAN_SAME_PLATFORM, PLAN_UNCALIBRATED };

struct plan_consts {
    char engine[PLAN_NAME]; /* as the rows name it; "" for a platform's prior */
    char device[PLAN_NAME];
    char model[PLAN_NAME];  /* "" unless this set was fitted for one model */
    char taught[PLAN_NAME]; /* model of most of its rows, */
    char format[24];        /* and their weights */
    enum plan_vendor vendor;
    enum plan_mode mode;
    int gen; /* 0 first release for this model class, 1 mature, 2 tuned by the vendor */
    double v[PLAN_KEYS];
    uint32_t fitted; /* bit per key that rows identified; the others are priors */
    double sigma_decode, sigma_prefill; /* log error expected, one standard deviation */
    int n_rows;
    enum plan_trust trust;
};

/* ---- one prediction ----------------------------------------------------------------------------
 */

struct plan_case {
    const struct plan_model *model;
    const struct plan_device *dev;
    const struct plan_host *host; /* NULL: none */
    const struct plan_team *team; /* NULL: one CPU, or cards */
    struct plan_format fmt;
    double kv_bits; /* 16 or 8 */
    struct plan_layout lay;
    struct plan_consts k;
    double
        apart; /* of a step's tokens, for the experts they read: drafts follow each other; 0 = 1 */
};

/* Where the time of one decode step or one prefill goes, seconds. total is not their plain sum
 * where compute and communication overlap, or where reads and products do (root of squares). */
struct plan_time {
    double weights; /* attention, dense, shared, head: reads */
    double experts; /* routed experts: reads */
    double compute; /* matrix products */
    double attn;    /* KV reads or attention products */
    double comm, fixed, token, cpu, draft;
    double device; /* prefill: what is not fixed; launches go on beside it */
    double total;
};

/* One decode step of batch sequences in all (over every rank), each at context ctx, each verifying
 * 1+k tokens. Cost: about 1 us. */
void plan_step(const struct plan_case *c, double batch, double ctx, struct plan_time *t);

/* One prefill batch: n_req prompts of n_tok new tokens each after past tokens of context. */
void plan_prefill(const struct plan_case *c, double n_req, double n_tok, double past,
                  struct plan_time *t);

/* Can the engine be laid out so over CPU ranks? ep divides tp dp. */
bool plan_team_can(const struct plan_model *m, const struct plan_layout *l);
/* Weights by how fast the ranks read, small whole numbers, into l; of each place in a stage the
 * slowest stage's rank counts. False: all are within a tenth of each other, l has none. */
bool plan_team_weigh(const struct plan_team *t, struct plan_layout *l);

/* Memory of one rank, bytes by purpose. */
struct plan_memory {
    double weights, kv, acts, comm, graph, mtp, total, limit;
    double host;     /* bytes in host memory */
    double seq;      /* KV bytes of one sequence at the asked context */
    double free_seq; /* sequences in all that fit beside the rest */
    bool fits;
};
/* batch: sequences at a time on all ranks; ctx: tokens of each. */
void plan_memory(const struct plan_case *c, double batch, double ctx, struct plan_memory *out);

struct plan_load {
    double n;       /* concurrent requests */
    double in, out; /* tokens */
    double rate;    /* requests/s, Poisson; 0 = closed loop of n in one wave */
    bool chunked;   /* prompt chunks ride along with decode, as our own server does */
};

struct plan_result {
    double ttft, tpot, e2e;     /* s, means */
    double out_tps, user_tps;   /* system output tokens/s; of one user */
    double prefill_tps;         /* prompt tokens/s in all */
    double steady_tps;          /* output tokens/s of the closed loop in steady state */
    double util;                /* share of time in prefill (rate), or queue load */
    bool stable;                /* false: the rate cannot be served */
    struct plan_time step, pre; /* breakdown at the mean context */
    struct plan_memory mem;
    const char *bound; /* weights, experts, KV, compute, communication, fixed cost, CPU, queue */
    double lo, hi;     /* factors of an 80 % interval on TPOT and rates */
    double lo_ttft, hi_ttft; /* the same on TTFT */
};
/* What a load of that kind sees. Cost: milliseconds at most. */
void plan_eval(const struct plan_case *c, const struct plan_load *w, struct plan_result *r);

/* What a service promises. */
struct plan_limits {
    double ttft, tpot; /* s, of the means; 0 = no limit */
    double batch;      /* sequences at a time at most, in all; 0 = 1024 on each die */
};

/* The most users of a closed loop (w->n is not read) that hold the limits, that the memory holds at
 * once and that the batch allows: a whole number, 0 when not even one holds. TPOT and TTFT mostly
 * grow with the users, not always (a last prefill batch that is nearly empty, experts that are all
 * read already): every power of two is tried, then the gap above the largest that holds is halved.
 * Cost: about 25 plan_eval. */
double plan_most_users(const struct plan_case *c, const struct plan_load *w,
                       const struct plan_limits *lim);

#endif
