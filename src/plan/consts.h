/* SPDX-License-Identifier: Apache-2.0 */
/* Engine constants: the sets that were fitted, the priors of platforms, choosing between them, and
 * fitting. */
#ifndef PLAN_CONSTS_H
#define PLAN_CONSTS_H

#include "plan/plan.h"
#include "plan/rows.h"
#include "text/json.h"

#define PLAN_MAX_SETS 128

/* What was fitted, and from what. */
struct plan_set {
    struct plan_consts k;
    char rows[128];                 /* lines of the calibration file: "2-7,12" */
    double err_decode, err_prefill; /* mean absolute error on those rows, percent */
};

struct plan_book {
    struct plan_set set[PLAN_MAX_SETS];
    int n_set;
    /* priors by vendor and mode: [vendor][mode]; rel in the CPU keys: factors on the host's own
     * numbers */
    struct plan_consts prior[PLAN_VENDOR_COUNT][PLAN_MODE_COUNT];
    double gen_factor[PLAN_VENDOR_COUNT]
                     [3]; /* on t_layer and t_multi: first releases, mature, tuned */
    double sigma_prior;   /* log error of a platform's prior, from leaving systems out */
    char date[32];
};

extern const char *const plan_key_name[PLAN_KEYS];

/* The priors written in this file (before any fit). */
void plan_book_init(struct plan_book *b);

/* Constants for an engine on a device. The best match wins: same engine, device and model; same
 * engine and device; else the platform's prior. host may be NULL. Sets k->trust. */
void plan_consts_for(const struct plan_book *b, const struct plan_setup *s, struct plan_consts *k);

/* The platform's prior for an unknown engine, with the CPU keys still factors on the host's own
 * numbers. */
void plan_prior_for(const struct plan_book *b, const struct plan_setup *s, struct plan_consts *k);

/* Put constants into a setup: keeps its mode, turns the CPU factors into this host's GB/s and
 * Top/s. */
void plan_use_consts(struct plan_setup *s, const struct plan_consts *k);

/* Minimise f over n variables from x0 with steps; at most max_eval calls. Nelder-Mead (1965),
 * adaptive parameters for n > 2 left standard. Returns the best value; x0 becomes its place. n
 * <= 8. */
double plan_minimise(double (*f)(void *user, const double *x), void *user, double *x0,
                     const double *step, int n, int max_eval);

/* Fit the keys in mask on rows (already set up); prior pulls with weight lambda per key in log
 * space. k: in the prior, out the fit. Returns the mean absolute log error. */
struct plan_fit {
    struct plan_setup *const *row;
    const double *want;
    int n;
    uint32_t mask;
    double lambda;
    struct plan_consts *k;
};
double plan_fit_keys(const struct plan_fit *f, const double *width);

#endif
