/* SPDX-License-Identifier: Apache-2.0 */
/* --record FILE: what an engine hands out of its steps, into a file as it comes, so that a program
 * that crashes leaves the step that it was in. */
#ifndef TOOLS_RECORD_H
#define TOOLS_RECORD_H

#include "base/status.h"
#include "sluice.h"

struct record;

/* path NULL: *out is NULL, opts stay as they are. Errors: IO, NOMEM. */
sl_status record_open(const char *path, sl_engine_opts *opts, struct record **out,
                      sl_err *err) BASE_MUST_USE;
/* Is all of it in the file? Once, when everything has run; r may be NULL. Errors: IO. */
sl_status record_check(const struct record *r, sl_err *err) BASE_MUST_USE;
void record_close(struct record *r); /* after the engine; NULL is legal */

#endif
