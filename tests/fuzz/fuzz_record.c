/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of steps, as a whole and, because of the checksums, the rest of the input as the
 * bodies of a step and of a result. Rooms: engine. */
#include <stdlib.h>

#include "engine/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct dev_step *s, const struct record_limits *max)
{
    if (s->n_tok < 1 || s->n_tok > max->n_tok || s->n_seq < 1 || s->n_seq > max->n_seq) abort();
    for (int q = 0; q < s->n_seq; q++) {
        if (s->seq_tok0[q + 1] <= s->seq_tok0[q]) abort();
        int last = s->pos[s->seq_tok0[q + 1] - 1];
        for (int b = 0; b <= last / max->blk_tok; b++) {
            for (int g = 0; g < DEV_KV_GROUPS; g++) {
                if (!s->blk[g] != !max->n_blk[g]) abort();
                if (!s->blk[g]) continue;
                int32_t blk = s->blk[g][(int64_t)q * s->ld_blk + b];
                if (blk < 0 || blk >= max->n_blk[g]) abort();
            }
        }
    }
    for (int i = 0; i < 3 * s->n_copy; i += 3)
        for (int k = 1; k < 3; k++)
            if (s->copy[i + k] < 0 || s->copy[i + k] >= max->n_blk[s->copy[i]]) abort();
    for (int i = 0; i < s->n_row; i++)
        if (s->row_tok[i] < 0 || s->row_tok[i] >= s->n_tok) abort();
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
