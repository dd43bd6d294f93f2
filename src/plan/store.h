/* SPDX-License-Identifier: Apache-2.0 */
/* The constants file: JSON with sets, priors, the rows they came from, errors and a date. */
#ifndef PLAN_STORE_H
#define PLAN_STORE_H

#include "plan/consts.h"

/* Numbers are written with 9 digits; reading gives them back to 1e-8. date may be "". */
void plan_book_write(const struct plan_book *b, struct str *out);

/* Start from plan_book_init() and add what the file has. Errors: FORMAT with file and field. */
sl_status plan_book_read(struct plan_book *b, struct arena *a, struct plan_bytes src,
                         sl_err *err) BASE_MUST_USE;

#endif
