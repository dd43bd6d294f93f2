/* SPDX-License-Identifier: Apache-2.0 */
/* Hands a tap to the model of an engine. */
#include "engine/tap.h"

#include "engine/engine_internal.h"

sl_status engine_tap(sl_engine *e, model_tap_fn *fn, void *user, sl_err *err)
{
    return model_tap(e->net, fn, user, err);
}
