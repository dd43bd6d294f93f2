/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration on a file of rows, checking on a file of rows, and the acceptance groups. */
#ifndef PLAN_CALIB_H
#define PLAN_CALIB_H

#include "plan/consts.h"

enum plan_role { PLAN_ROLE_FIT, PLAN_ROLE_HELD, PLAN_ROLE_SKIP, PLAN_ROLE_BLIND };

/* A line of heldout.csv: which rows may be learned from. Empty words match anything. */
struct plan_rule {
    const char *group, *system, *model, *hardware, *metric;
    double in, conc, cards; /* NAN: any */
    enum plan_role role;
};

/* A row made ready, with its place in the acceptance. */
struct plan_item {
    const struct plan_row *row;
    struct plan_setup s;
    const char *skip; /* why it cannot be predicted; NULL = it can */
    const char *group;
    enum plan_role role;
    bool prefill;    /* metric is of the prefill kind */
    int sys;         /* number of its system (engine and device) */
    double got, err; /* prediction, log(got/value) */
    bool left;       /* left out by plan_cross() */
    enum plan_role kept_role;
    enum plan_trust trust;
};

struct plan_data {
    struct plan_item *item;
    int n;
    int n_sys;
};

/* Errors: FORMAT with file, line and column, NOMEM. */
sl_status plan_read_rules(struct arena *a, struct plan_bytes b, struct plan_rule **rules, int *n,
                          sl_err *err) BASE_MUST_USE;
/* What was measured, and which of it may be fitted. */
struct plan_rows {
    const struct plan_row *row; /* [n] */
    int n;
    const struct plan_rule *rule; /* [n_rule]; NULL: everything may be fitted */
    int n_rule;
};
/* Set up all rows. Errors: NOMEM. */
sl_status plan_data_init(struct plan_data *d, struct arena *a, const struct plan_tables *t,
                         const struct plan_rows *of, sl_err *err) BASE_MUST_USE;

/* Fit one set from chosen items (indices). Which keys follows from the mode and what the rows vary.
 * name: of the set's model, "" for all. */
void plan_fit_set(const struct plan_book *b, struct plan_data *d, const int *pick, int n,
                  struct plan_set *out);

/* The same engine on another model: base with only t_layer fitted on these rows (one is enough).
 * What belongs to the kernel of the experts (eta_w, t_multi) is the prior's where the rows multiply
 * in another arithmetic than those that base was taught on. */
void plan_fit_model(const struct plan_book *b, struct plan_data *d, const int *pick, int n,
                    const struct plan_set *base, struct plan_set *out);

/* Fit the priors of every vendor and mode on all rows that may be learned from; skip_sys leaves a
 * system out (-1: none). Only rows of blind and fit role. */
void plan_fit_priors(struct plan_book *b, struct plan_data *d, int skip_sys);

/* All sets of a file: one per engine, device and mode with three rows or more (two for four-row
 * lists). */
void plan_fit_book(struct plan_book *b, struct plan_data *d);

/* The sets only: each engine, device and mode of the rows gets one, in place of an older one. */
void plan_fit_sets(struct plan_book *b, struct plan_data *d);

/* sigma_prior such that four of five blind rows lie inside the 80 % interval. Changes the blind
 * predictions in d. */
void plan_fit_sigma(struct plan_book *b, struct plan_data *d);

/* Predict every item with a book. */
void plan_check(const struct plan_book *b, struct plan_data *d);

/* Predict the blind items of each system with priors fitted without it; other items untouched. */
void plan_check_blind(const struct plan_book *b, struct plan_data *d);

/* Two rows are one measurement when everything but the metric is the same. */
bool plan_same_point(const struct plan_row *a, const struct plan_row *b);

/* Leave one out inside a group: refit each set of the group without the item's measurement. */
void plan_check_loo(const struct plan_book *b, struct plan_data *d, const char *group);

/* The rows of a group: each machine (same system, model, hardware, layout) is calibrated on its
 * shortest prompt or depth alone and its other lengths are predicted; those become HELD. */
void plan_check_lengths(const struct plan_book *b, struct plan_data *d, const char *group);

struct plan_score {
    int n;
    double mape, median, worst, rank; /* percent; rank correlation (Spearman) */
    int worst_item;
};
/* Over items for which keep(item, user) holds and that have a prediction. */
void plan_score(const struct plan_data *d, bool (*keep)(const struct plan_item *, const void *),
                const void *user, struct plan_score *out);

/* Cross-validation: each model, or each device, is left out with all its rows, priors and sets are
 * fitted on the others, and its rows are predicted. out has room for most + 1 lines; the last one
 * written, out[returned], is over all rows. b is room to work in. Names are borrowed from d's
 * tables. Cost: one plan_fit_book() for each name. */
enum plan_leave { PLAN_LEAVE_MODEL, PLAN_LEAVE_DEVICE };
struct plan_left_out {
    const char *name;
    struct plan_score score;
};
int plan_cross(struct plan_book *b, struct plan_data *d, enum plan_leave what,
               struct plan_left_out *out, int most);

#endif
