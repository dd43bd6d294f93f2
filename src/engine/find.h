/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model that was named lies; for the commands that look at files without running them. */
#ifndef ENGINE_FIND_H
#define ENGINE_FIND_H

#include "base/mem.h"
#include "base/status.h"

/* The path of a model given by path or name, in the arena. Errors: NOTFOUND (says where it looked),
 * NOMEM. */
sl_status engine_find_model(const char *name, struct arena *a, const char **path,
                            sl_err *err) BASE_MUST_USE;

#endif
