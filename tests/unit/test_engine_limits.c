/* SPDX-License-Identifier: Apache-2.0 */
/* Every number of a step's description, at and beyond its limits: a step is refused with its name,
 * or is within all limits. */
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine_internal.h"
#include "step_check.h"
#include "test.h"

static const struct record_limits max = {.n_tok = 12,
                                         .n_seq = 4,
                                         .n_row = 8,
                                         .n_copy = 4,
                                         .n_pass = 2,
                                         .n_ctx = 96,
                                         .n_blk = {20, 15},
                                         .blk_tok = ENGINE_BLK_TOK,
                                         .n_vocab = 300};

/* Two sequences, everything that a step may have. */
static struct dev_step step_of(void)
{
    static const int32_t ids[] = {299, 0, 7, 8, 9}, pos[] = {40, 41, 93, 94, 95};
    static const int32_t tok0[] = {0, 2, 5}, seat[] = {0, 4}, n_prompt[] = {42, 96};
    static const int32_t copy[] = {0, 19, 3, 1, 14, 0}, row[] = {1, 4};
    static const int32_t hidden[] = {0, 1, 2, 11, 4};
    static const int32_t blk0[] = {1, 2, 0, 19, 18, 17}, blk1[] = {14, 13, 0, 3, 2, 1};
    static const uint8_t want[] = {DEV_WANT_LOGITS, DEV_WANT_BEST};
    static const struct dev_keep keep[] = {{5, true}, {6, false}};
    return (struct dev_step){.pass = 1,
                             .n_tok = 5,
                             .n_seq = 2,
                             .ids = ids,
                             .pos = pos,
                             .seq_tok0 = tok0,
                             .blk = {blk0, blk1},
                             .ld_blk = 3,
                             .seat = seat,
                             .n_prompt = n_prompt,
                             .keep = keep,
                             .n_copy = 2,
                             .copy = copy,
                             .n_row = 2,
                             .row_tok = row,
                             .row_want = want,
                             .hidden_row = hidden,
                             .want = DEV_WANT_LOGITS | DEV_WANT_BEST};
}

/* Reads the body with one word of it another. 1 = it is refused. */
static int refused(const uint8_t *body, size_t n, size_t at, int64_t v, struct record_step *s)
{
    uint8_t copy[1024];
    sl_err err = {0};
    int32_t word = (int32_t)v;
    assert_true(n <= sizeof copy);
    memcpy(copy, body, n);
    if (at < n) memcpy(copy + at, &word, sizeof word);
    struct rd r = rd_init(copy, n);
    sl_status st = engine_record_read_step(&r, 0, &max, s, &err);
    if (st) {
        assert_int_equal(st, SL_FORMAT);
        assert_non_null(strstr(err.text, "byte "));
        return 1;
    }
    if (step_bad(&s->s, &max)) fail_msg("word %zu as %d is taken", at / 4, word);
    return 0;
}

TEST(engine_step_numbers_keep_their_limits)
{
    static const int64_t values[] = {-1,  0,   1,    2,    3,    4,     5,       11,
                                     12,  13,  14,   15,   19,   20,    21,      95,
                                     96,  97,  299,  300,  301,  65535, INT_MAX, INT_MIN,
                                     255, 256, 1024, 4096, 1000, -2,    -1024,   1 << 24};
    uint8_t buf[1024];
    struct engine_record rec = {.p = buf, .cap = sizeof buf};
    struct record_step s;
    struct dev_step step = step_of();
    struct rd r, body;
    sl_err err = {0};
    uint32_t kind;
    uint64_t at;
    int n_refused = 0, n_all = 0;
    engine_record_put_step(&rec, 2, &step);
    r = rd_init(rec.p, rec.n);
    ASSERT_OK(engine_record_next(&r, &kind, &body, &at, &err));
    ASSERT_OK(engine_record_step_init(&s, &max, &err));
    const uint8_t *p = rd_bytes(&body, rd_left(&body));
    size_t n = (size_t)body.size;
    assert_int_equal(refused(p, n, n, 0, &s), 0);
    for (size_t w = 0; w < n; w += 4)
        for (int i = 0; i < BASE_COUNT_OF(values); i++, n_all++)
            n_refused += refused(p, n, w, values[i], &s);
    assert_true(n_refused > n_all / 2);
    for (size_t k = 0; k < n; k++) /* cut short anywhere */
        assert_int_equal(refused(p, k, n, 0, &s), 1);
    engine_record_step_fini(&s);
}
