/* SPDX-License-Identifier: Apache-2.0 */
/* Measured rows (the columns of published.csv) and how a row becomes a case that the model can
 * predict.
 *
 * Reading a row never looks at the measured value: everything comes from the other columns. */
#ifndef PLAN_ROWS_H
#define PLAN_ROWS_H

#include "plan/plan.h"

struct plan_row {
    char source[160], system[96], model[96], wbits[32], abits[16], hardware[192], layout[192];
    char metric[48], unit[32], note[256];
    double cards, conc, in, out; /* NAN: not stated */
    double value;                /* NAN: not a number (a bound, a percentage, words) */
    int line;                    /* in its file */
    bool depth;                  /* in is the depth of the context, not a prompt */
};

/* Errors: FORMAT with file, line and column for a cell that must be a number and is not. */
sl_status plan_read_rows(struct arena *a, struct plan_bytes b, struct plan_row **rows, int *n,
                         sl_err *err) BASE_MUST_USE;

enum plan_metric {
    PLAN_M_TTFT,
    PLAN_M_TPOT,
    PLAN_M_USER_TPS,
    PLAN_M_SYS_TPS,
    PLAN_M_STREAM_TPS,
    PLAN_M_E2E,
    PLAN_M_PREFILL_TPS, /* of the request, the card, the node or the system: see per */
    PLAN_M_PREFILL_TIME,
    PLAN_M_DECODE_TPS, /* steady decode: per user, card, node */
    PLAN_M_STEP,
    PLAN_M_MEMORY,
};

/* A row made ready: everything but the engine's constants. */
struct plan_setup {
    struct plan_case c; /* c.k only has mode; fill it from plan_consts_for() */
    struct plan_load w;
    struct plan_device dev; /* own copies where the row changes them; c points at these */
    struct plan_host host;
    enum plan_metric metric;
    double scale;             /* from SI of the prediction to the row's unit */
    double per;               /* divisor: cards or nodes, for rates */
    struct plan_limits limit; /* of a row without concurrency: as many users as hold it (w.n 0) */
    double past;              /* prefill rows: context before */
    double mult;              /* 1.7 in "tokens per step" etc.; 1 */
    bool step_only;           /* decode metric without a burst */
    int gen;
    char engine[PLAN_NAME], device[PLAN_NAME];
};

/* NULL when s is ready, else why this row cannot be predicted (static text). */
const char *plan_row_setup(const struct plan_tables *t, const struct plan_row *r,
                           struct plan_setup *s);
/* The row's metric in the row's unit; NAN when the model has no answer. s->c.k must be set. s->c's
 * pointers must be fixed with plan_setup_fix when s was copied. */
double plan_row_predict(struct plan_setup *s);
void plan_setup_fix(struct plan_setup *s);
/* The users it is predicted for: as stated, or the most that hold the row's limits. s->c.k must be
 * set. */
double plan_row_users(struct plan_setup *s);

#endif
