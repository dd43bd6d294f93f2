/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tap.h"

#include "engine/engine_internal.h"

sl_status engine_tap(sl_engine *e, model_tap_fn *fn, void *user, sl_err *err)
{
    return model_tap(e->net, fn, user, err);
}
