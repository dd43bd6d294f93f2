/* SPDX-License-Identifier: Apache-2.0 */
/* A CSV cursor without allocation, and tolerant numbers as data sheets write them. */
#ifndef PLAN_CSV_H
#define PLAN_CSV_H

#include "plan/plan.h"

#define PLAN_CSV_COLS 64
#define PLAN_CSV_LINE 8192

struct plan_csv {
    struct plan_bytes src;
    size_t pos;
    int line; /* of the row in cell[], 1 = header */
    int next_line;
    int n_head, n;
    char head_buf[2048], buf[PLAN_CSV_LINE];
    const char *head[PLAN_CSV_COLS]; /* column names */
    const char *cell[PLAN_CSV_COLS]; /* NUL-terminated, unquoted */
};

/* Read the header. Errors: FORMAT with file and line. */
sl_status plan_csv_open(struct plan_csv *c, struct plan_bytes src, sl_err *err) BASE_MUST_USE;
/* Next row; *more false at the end. A row with too few cells gets empty ones; too many is an error.
 */
sl_status plan_csv_next(struct plan_csv *c, bool *more, sl_err *err) BASE_MUST_USE;
/* Column by name: its text, "" when the file has no such column. */
const char *plan_csv_text(const struct plan_csv *c, const char *col);
/* What a number may be: lo .. hi; def: what it is where there is none. */
struct plan_span {
    double def, lo, hi;
};
#define PLAN_NUM(def, lo, hi) ((struct plan_span){def, lo, hi})
/* A number of a data sheet: "378 estimate (FP16 400)" 378, "~4000" 4000, "180-192" 186, "80 / 40"
 * 80, "none" and "" give def. Errors: FORMAT with file, line and column: text without a number, or
 * one that may not be. */
sl_status plan_csv_num(const struct plan_csv *c, const char *col, struct plan_span may, double *out,
                       sl_err *err) BASE_MUST_USE;

#endif
