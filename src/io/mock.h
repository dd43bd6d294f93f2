/* SPDX-License-Identifier: Apache-2.0 */
/* Models without weights: the tensors of a folder that has only its configuration, with random
 * numbers that depend on their names and nothing else. */
#ifndef IO_MOCK_H
#define IO_MOCK_H

#include "io/io.h"

enum io_mock_kind {
    IO_MOCK_MATRIX, /* of the type that is asked for, BF16 where its columns are no whole blocks */
    IO_MOCK_EXACT,  /* BF16 */
    IO_MOCK_GAIN,   /* F32, about 1: weights of norms */
    IO_MOCK_SMALL   /* F32, about 0: biases */
};
struct io_mock_tensor {
    const char *name; /* stays until io_close */
    enum io_mock_kind kind;
    int n_dim; /* 1 or 2 */
    int64_t shape[2];
};

/* Types that matrices may have, for messages. */
#define IO_MOCK_TYPES "bf16, f16, f32, q8_0, q4_0 or q4_1"
/* Of such a name. False: it is none of them. */
bool io_mock_type(const char *text, enum tensor_dtype *out);

/* Give m, which io_open opened with vocab_only, these tensors in place of those that its folder may
 * have; how config.json says that weights are quantised no longer counts. The same name, type and
 * shape have the same numbers everywhere. They take some MiB whatever their shapes: numbers repeat
 * with a period of about 4 MiB of a matrix. Errors: FORMAT (a name twice), NOMEM. */
sl_status io_mock(io_model *m, enum tensor_dtype type, const struct io_mock_tensor *t, int n,
                  sl_err *err) BASE_MUST_USE;
/* Has m such tensors? */
bool io_is_mock(const io_model *m);

#endif
