/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan, shared between its files: options, what was asked, and the parts of the answer. */
#ifndef TOOLS_CMD_PLAN_H
#define TOOLS_CMD_PLAN_H

#include "base/str.h"
#include "cmd.h"
#include "plan/calib.h"
#include "plan/embed.h"
#include "plan/place.h"
#include "plan/search.h"
#include "plan/store.h"
#include "text/json.h"

struct plan_opts {
    struct opt_common common;
    const char *hardware, *host, *weights, *kv, *layout, *pd, *experts_on, *engine;
    const char *models_file, *hardware_file, *constants, *html, *emit;
    const char *calibrate, *check, *sweep, *leave_out, *doctor, *bench, *model_name, *grid;
    const char *this_cluster, *combine, *device, *drafts;
    int goal, defer, n_hot, box_ranks, cards, nodes, redundant, mtp, chunk, top, gen, max_batch;
    double input, output, concurrency, rate, ttft_ms, tpot_ms, acceptance, hot, dram, claim_gb;
    double pd_gbps;
    bool explain, acceptance_table, this_machine, this_box, chunked, list;
};

/* One measured or asked point of this machine. tps NAN: not measured. */
struct plan_point {
    bool prefill;
    double tokens, batch, depth, ctx; /* ctx: mean context of the steps; 0 = depth + tokens/2 */
    double tps, probe, probe_gops, threads;
    double bytes; /* of weights read in a decode step, counted by the engine; 0 unknown */
    bool fit;
    double got;
};

/* What is measured: the three points of the constants, or a grid (batch 1..8 and depth 0..512, or
 * batch 1..32 and depth 0..4096). */
enum plan_grid { PLAN_GRID_NONE, PLAN_GRID_SMALL, PLAN_GRID_FULL };

struct plan_measured {
    struct plan_point p[32];
    int n, threads;
    double gbps, gops; /* probes: reading memory, 8-bit products */
};

/* Run the engine here on random tokens. common: model, threads. Errors: as sl_model_open,
 * sl_engine_open and sl_step; CANCELLED. */
sl_status plan_measure(const struct opt_common *common, enum plan_grid which,
                       struct plan_measured *out, sl_err *err) BASE_MUST_USE;

/* What doctor --ranks --json measured. */
struct plan_cluster {
    struct plan_cpu *rank; /* [n] */
    int n, n_host;
    struct plan_link all, hosts, hop; /* joins of all ranks, of a host's; from stage to stage */
    double op, step; /* s: an operator that begins and ends; a step of nothing */
    /* of --this-box: memory nodes of its CPUs, of which a rank is on each where nobody says
     * otherwise; threads of a rank */
    int n_node, n_thread;
};
struct plan_cpu {
    const char *host;
    double gbps, gops, mem; /* reads, 8-bit products, bytes available on its host */
    double alone_gbps, alone_gops; /* while the other ranks of its host rest */
    double op_us;                  /* an operator that begins and ends */
    double n_node;                 /* memory nodes of its CPUs; 1 = or not known */
};

/* What one run works with. */
struct plan_run {
    const struct plan_opts *o;
    struct arena *a;
    struct plan_tables t;
    struct plan_book book;
    struct plan_query q;
    struct plan_model model; /* when it is not from the table */
    struct plan_counts counts; /* of --expert-stats */
    struct plan_drafts drafts; /* of --drafts */
    struct plan_device dev;  /* own copy: --nodes and CPU-only change it */
    struct plan_host host;
    struct plan_format real; /* bits of a real file */
    struct plan_cluster cluster; /* of --this-cluster */
    bool has_real;
    const char *note; /* something that was assumed, said below the table; NULL = nothing */
};

/* Tables and constants. Errors as in the room. */
sl_status plan_run_open(struct plan_run *r, const struct plan_opts *o, struct arena *a,
                        sl_err *err) BASE_MUST_USE;
/* A whole file in the arena's life. */
sl_status plan_slurp(struct plan_run *r, const char *path, struct plan_bytes *out,
                     sl_err *err) BASE_MUST_USE;
/* The query from the options. REQUEST for what the user can correct. */
sl_status plan_run_query(struct plan_run *r, sl_err *err) BASE_MUST_USE;
/* A .gguf file, or a folder whose config.json is read already into r->model. */
sl_status plan_model_open(struct plan_run *r, const char *path, sl_err *err) BASE_MUST_USE;
/* Names a file or folder rather than a shape of the table. */
bool plan_is_path(const char *name);
sl_status plan_run_model(struct plan_run *r, const char *name, sl_err *err) BASE_MUST_USE;
/* Tokens of a prompt and of an answer: as asked for, else usual ones that the context takes. */
void plan_run_lengths(const struct plan_run *r, double *in, double *out);

/* The file of --this-cluster into r->cluster and r->q, and this engine's constants: fitted on the
 * file of --bench, which ran on one such rank, or what the probes say. r->q.model is there.
 * Errors: NOTFOUND, IO; FORMAT names the file and the field; REQUEST: other hardware beside it. */
sl_status plan_query_cluster(struct plan_run *r, sl_err *err) BASE_MUST_USE;
/* Ranks of this machine into r->cluster, measured here. Errors: REQUEST, as dev_open. */
sl_status plan_box(struct plan_run *r, sl_err *err) BASE_MUST_USE;
/* Of CPU ranks: the best layouts for one user and for many; on stdout, or as members of w's object.
 */
sl_status plan_goals(struct plan_run *r, struct json_w *w, sl_err *err) BASE_MUST_USE;
/* A member of the plan's JSON: its numbers have eight digits. */
void plan_put(struct json_w *w, const char *key, double v);
/* How the first option is started, on stdout; config: what --emit wrote, or NULL. */
void plan_print_start(const struct plan_run *r, const struct plan_option *o, const char *config);
/* --pd apart? Then whether that pays, of a row: lines on stdout, or a member "apart". */
bool plan_is_apart(const struct plan_run *r);
void plan_print_apart(const struct plan_run *r, const struct plan_option *o);
void plan_put_apart(const struct plan_run *r, const struct plan_option *o, struct json_w *w);
/* A layout of CPU ranks as serve's --layout takes it; "" for one rank. */
#define PLAN_LAYOUT_TEXT 384
void plan_layout_text(const struct plan_layout *l, char out[PLAN_LAYOUT_TEXT]);
/* How many ranks an engine of this box has where no layout is given; 0: its CPUs are of one memory
 * node, or it is not --this-box. */
int plan_nodes_default(const struct plan_run *r);
/* As plan_layout_text, and "tp=1" for one rank where that is not what an engine takes by itself. */
void plan_start_layout(const struct plan_run *r, const struct plan_layout *l,
                       char out[PLAN_LAYOUT_TEXT]);
/* Threads that it takes, where it has less of this box than all; else 0. */
int plan_start_threads(const struct plan_run *r, const struct plan_layout *l);
/* Reads and 8-bit products, as probes say. */
struct plan_speed {
    double gbps, gops;
};
/* This engine's constants for r->q.model on one CPU, in GB/s and Top/s: fitted on the file of
 * --bench, else what the probes say. s: becomes what probes said beside that file's tests, where it
 * tells. Sets r->model.spread where the file tells. */
sl_status plan_here(struct plan_run *r, struct plan_speed *s, struct plan_consts *k,
                    sl_err *err) BASE_MUST_USE;

int plan_cmd_search(struct plan_run *r);
int plan_cmd_sweep(struct plan_run *r);
int plan_cmd_check(struct plan_run *r);
int plan_cmd_calibrate(struct plan_run *r);
int plan_cmd_acceptance(struct plan_run *r);
int plan_cmd_cross(struct plan_run *r);
int plan_cmd_machine(struct plan_run *r);
int plan_cmd_device(struct plan_run *r);
int plan_cmd_cards(struct plan_run *r); /* the same of several devices */

/* cmd_plan_device.c: a device's figures, and the host's where its options say them (told); else
 * those of the CPU beside it: of --doctor's file, or its own probes, and --bench says what of them
 * is reached. What is asked of a model on it. Errors: REQUEST, as dev_open. */
sl_status plan_card_get(const struct plan_run *r, const char *name, struct plan_card *out,
                        bool *told, sl_err *err) BASE_MUST_USE;
sl_status plan_card_beside(struct plan_run *r, struct plan_card *card, sl_err *err) BASE_MUST_USE;
sl_status plan_card_asked(struct plan_run *r, struct plan_format *fmt, struct plan_asked *asked,
                          int *stream_from, sl_err *err) BASE_MUST_USE;
/* What both say: a device's figures in a line; options that say which experts are hot and late onto
 * args; the members of --emit from there on, and its file, with s as JSON; how it is started. */
void plan_card_tell(const char *name, const struct plan_card *c, bool told);
void plan_card_args(const struct plan_run *r, const struct plan_placing *p, char *args, size_t cap);
void plan_card_emit(const struct plan_run *r, const struct plan_placing *p,
                    const struct plan_asked *asked, struct json_w *w);
sl_status plan_emit_file(const struct plan_run *r, struct str *s, sl_err *err) BASE_MUST_USE;
int plan_card_start(const struct plan_run *r, const char *args);

/* What the file of --expert-stats counted, into r->q.model, which is there. */
sl_status plan_query_counts(struct plan_run *r, sl_err *err) BASE_MUST_USE;
/* Read bandwidth and int8 peak of the file of --doctor; untouched without one. */
sl_status plan_read_doctor(struct plan_run *r, double *gbps, double *gops,
                           sl_err *err) BASE_MUST_USE;

/* cmd_plan_out.c */
void plan_print_found(const struct plan_run *r, const struct plan_found *f);
void plan_json_found(struct plan_run *r, const struct plan_found *f, double seconds);
const char *plan_trust_name(enum plan_trust t);
/* cmd_plan_html.c */
sl_status plan_html(const struct plan_run *r, const struct plan_found *f, const char *path,
                    sl_err *err) BASE_MUST_USE;

#endif
