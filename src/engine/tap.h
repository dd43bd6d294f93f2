/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into the matrices of a running engine (model/model.h), for tools that calibrate. */
#ifndef ENGINE_TAP_H
#define ENGINE_TAP_H

#include "model/model.h"
#include "sluice.h"

/* Tell fn of the rows of every step from now on; NULL ends it. Errors: NOMEM. Threads: the
 * engine's. */
sl_status engine_tap(sl_engine *e, model_tap_fn *fn, void *user, sl_err *err) BASE_MUST_USE;

#endif
