/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of steps, as a whole and, because of the checksums, the rest of the input as the
 * bodies of a step and of a result. Rooms: engine. */
#include <stdlib.h>

#include "../unit/step_check.h"
#include "engine/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct dev_step *s, const struct record_limits *max)
{
    if (step_bad(s, max)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct record_limits max = {.n_tok = 12,
                                .n_seq = 4,
                                .n_row = 8,
                                .n_copy = 4,
                                .n_pass = 2,
                                .n_ctx = 96,
                                .n_blk = {20, 15},
                                .blk_tok = 32,
                                .n_vocab = 300};
    struct rd r = rd_init(data, n), body;
    struct record_head h;
    struct record_step s;
    struct record_result res;
    uint32_t kind;
    uint64_t at;
    sl_err err;
    if (engine_record_step_init(&s, &max, &err) == SL_OK) {
        if (!engine_record_read_head(&r, &h, &err))
            while (rd_left(&r) && !engine_record_next(&r, &kind, &body, &at, &err))
                if (kind == RECORD_STEP && !engine_record_read_step(&body, at, &max, &s, &err))
                    check(&s.s, &max);
        body = rd_init(data, n);
        if (!engine_record_read_step(&body, 0, &max, &s, &err)) check(&s.s, &max);
        body = rd_init(data, n);
        if (!engine_record_read_result(&body, 0, &res, &err) && res.n_row < 0) abort();
    }
    engine_record_step_fini(&s);
    return 0;
}
