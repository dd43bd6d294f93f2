/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the KV cache beside the weights, on every device that has some of it. */
#ifndef ENGINE_FIT_H
#define ENGINE_FIT_H

#include "engine/engine_internal.h"

/* Of the memories of the place's devices. Devices that take the machine's have one together: pool
 * says by which of them it goes here. Bytes: what there is, and what weights leave of it. */
struct engine_rooms {
    int pool[MODEL_DEV_MAX];
    int64_t available[MODEL_DEV_MAX], room[MODEL_DEV_MAX];
};
/* place.c. Errors: NOMEM names a device on which what is placed there does not fit. */
sl_status engine_place_rooms(const sl_engine *e, struct engine_rooms *out,
                             sl_err *err) BASE_MUST_USE;

/* A cache that does not fit beside the weights on a device. */
struct engine_short {
    int dev;
    int64_t available, kv, kv_q8; /* bytes: of the device, of the cache as it is and as q8 */
    int64_t n_least, n_most;      /* its tokens that are asked for; that fit */
};
/* An error that says what is needed, and what would fit. NOMEM. */
sl_status engine_fit_fail(const sl_engine *e, const struct engine_short *s, sl_err *err)
    BASE_MUST_USE;
/* The same of what is placed on device i, without a cache. NOMEM. */
sl_status engine_fit_part(const sl_engine *e, int i, int64_t need, int64_t available, sl_err *err)
    BASE_MUST_USE;

#endif
