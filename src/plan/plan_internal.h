/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside room plan only: physics that no engine changes, and small helpers. */
#ifndef PLAN_PLAN_INTERNAL_H
#define PLAN_PLAN_INTERNAL_H

#include "plan/plan.h"

#define PLAN_GIB 1073741824.0

/* Properties of a vendor's devices that are measured once and not fitted per engine. */
struct plan_physics {
    double eta_d;     /* share of bandwidth that dense weight reads reach */
    double eta_mla;   /* share of peak of decode attention */
    double mfu_dec;   /* share of peak of decode matrix products */
    double alpha_tp;  /* s, base of one all-reduce inside a node */
    double alpha_net; /* s, base of one collective or transfer between nodes */
    double alpha_a2a; /* s, base of one dispatch or combine */
};
const struct plan_physics *plan_physics_of(const struct plan_device *d);

/* Cached keys that one query of a GQA model sees, summed over its layers; some see a window only.
 */
double plan_keys_seen(const struct plan_model *m, double ctx);
/* Layers with an indexer of their own, of a model that has some. */
double plan_index_layers(const struct plan_model *m);

/* sqrt(a^2+b^2): two uses of a device that overlap, but not perfectly. */
double plan_soft_max(double a, double b);

/* Seconds of one dispatch and of one combine for n_tok tokens per rank. */
double plan_all_to_all(const struct plan_case *c, double n_tok, bool combine);

/* Imbalance of experts over ranks as a factor on expert and all-to-all time. */
double plan_imbalance(const struct plan_case *c);

/* Parameters of an MTP layer's attention, of what every rank repeats of it, and of tables that the
 * module has for itself. */
double plan_mtp_attn(const struct plan_model *m);
double plan_mtp_repl(const struct plan_model *m);
double plan_mtp_tables(const struct plan_model *m);
/* Operators that one layer launches, beside those of a DeepSeek layer with 16-bit activations. */
double plan_layer_ops(const struct plan_case *c);
/* Distinct experts that tok tokens of a step read. */
double plan_experts_of(const struct plan_case *c, double tok);
/* Attention products of one query token against ctx cached ones, all layers; of n tokens of a
 * prompt after past ones. */
double plan_attn_flop(const struct plan_model *m, double ctx);
double plan_prompt_flop(const struct plan_model *m, double n, double past);
double plan_attn_host(const struct plan_case *c, double seq, double tok, double ctx);

/* team.c: CPU ranks, one too. A step of decode; a batch of prompts, whose attention takes attn_flop
 * in all: t without fixed cost; memory of the fullest rank below out->limit. */
void plan_team_step(const struct plan_case *c, double batch, double ctx, struct plan_time *t);
/* Is a step of decode of so many sequences sooner over in two halves, `--micro 2`? */
bool plan_team_micro(const struct plan_case *c, double batch, double ctx);
void plan_team_prefill(const struct plan_case *c, double n_req, double n_tok, double attn_flop,
                       struct plan_time *t);
void plan_team_memory(const struct plan_case *c, double batch, double ctx,
                      struct plan_memory *out);

/* The largest whole number from 1 to most that holds, as plan_most_users() looks for it; 0: none.
 */
double plan_most(bool (*holds)(void *user, double n), void *user, double most);

/* Sequences that an engine takes at a time on one die, when nothing else bounds them: the largest
 * default of the engines in the table (vLLM and SGLang: 256 to 1024). */
#define PLAN_DIE_BATCH 1024.0

#endif
