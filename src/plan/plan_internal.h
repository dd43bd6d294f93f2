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

/* sqrt(a^2+b^2): two uses of a device that overlap, but not perfectly. */
double plan_soft_max(double a, double b);

/* Seconds of one dispatch and of one combine for n_tok tokens per rank. */
double plan_all_to_all(const struct plan_case *c, double n_tok, bool combine);

/* Imbalance of experts over ranks as a factor on expert and all-to-all time. */
double plan_imbalance(const struct plan_case *c);

/* The largest whole number from 1 to most that holds, as plan_most_users() looks for it; 0: none.
 */
double plan_most(bool (*holds)(void *user, double n), void *user, double most);

/* Sequences that an engine takes at a time on one die, when nothing else bounds them: the largest
 * default of the engines in the table (vLLM and SGLang: 256 to 1024). */
#define PLAN_DIE_BATCH 1024.0

#endif
