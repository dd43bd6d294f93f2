/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files: a model's matrices in the run layout of a device, to be mapped and used in place,
 * with everything else that a start needs: metadata or texts of the source, its tensors' names and
 * shapes, its small tensors. Format: docs/formats.md.
 *
 * What is checked when one is opened: every byte but those of the matrices (lengths, checksums of
 * header and tables, bounds of every matrix). The matrices' own checksums are looked at by
 * io_pack_check only: reading them all would cost what mapping them saves.
 */
#ifndef IO_PACK_H
#define IO_PACK_H

#include "io/io.h"

typedef struct io_pack io_pack;

/* A matrix, or a stack of them, under the name that the model loader knows it by. Borrowed from the
 * file. */
struct io_pack_mat {
    const char *name;
    const char *fmt[2]; /* names of run formats; fmt[1] NULL: one */
    int n, is_pair;
    int64_t rows, cols;
    uint64_t unit_bytes[2],
        n_unit;         /* the bytes: n_unit units of unit_bytes[0], then n_unit of unit_bytes[1] */
    const float *scale; /* [n][2] */
    uint64_t offset, n_bytes, check;
    const uint8_t *data;
};

/* A file of the source as it was when it was packed. */
struct io_stamp {
    const char *path;    /* absolute */
    uint64_t size, hash; /* hash: XXH3 of samples, see os_stamp */
    int64_t mtime_ns;
};

/* True when the file begins as packed files do. */
bool io_pack_is(const char *path);
/* Errors: NOTFOUND, IO, NOMEM, FORMAT (file, byte, what is wrong), UNSUPPORTED (another version).
 * Close with io_pack_close. */
sl_status io_pack_open(const char *path, io_pack **out, sl_err *err) BASE_MUST_USE;
void io_pack_close(io_pack *p); /* NULL is legal */
const char *io_pack_path(const io_pack *p);
const char *io_pack_layout(const io_pack *p);
/* True when no matrix lost precision against its source (false: MLA's kv_b was rounded to bf16). */
bool io_pack_exact(const io_pack *p);
uint64_t io_pack_bytes(const io_pack *p); /* of the file */
int io_pack_n_stamp(const io_pack *p);
const struct io_stamp *io_pack_stamp(const io_pack *p, int i);
int io_pack_n_mat(const io_pack *p);
const struct io_pack_mat *io_pack_mat_at(const io_pack *p, int i);
const struct io_pack_mat *io_pack_find(const io_pack *p, const char *name); /* NULL = none */
/* A range of rows of one matrix of a stack, in place: of a pair of two formats each half for
 * itself. */
struct io_pack_rows {
    const uint8_t *data[2]; /* data[1] NULL: one format */
    uint64_t n_bytes[2];
    const float *scale;     /* [2] of that matrix */
};
/* Rows [row0, row0 + n_row) of matrix i of m: whole units, so row0 is a multiple of 16, and n_row
 * too unless the range ends with the matrix. Errors: REQUEST. */
sl_status io_pack_rows(const struct io_pack_mat *m, int i, int64_t row0, int64_t n_row,
                       struct io_pack_rows *out, sl_err *err) BASE_MUST_USE;
/* Was it packed from src in its present state? If false, why names the difference. Reads a few
 * hundred kilobytes of every file. */
bool io_pack_fits(const io_pack *p, const io_model *src, sl_err *why);
/* The checksum of matrix i. FORMAT names it. */
sl_status io_pack_check(const io_pack *p, int i, sl_err *err) BASE_MUST_USE;

/* The packed file that a model was opened from; NULL for every other model. Such a model has
 * metadata, texts and small tensors; of the others it knows name and shape, and io_weight
 * refuses. */
const io_pack *io_model_pack(const io_model *m);

/* ---- writing: after an error (IO, NOMEM) the only legal call is io_pack_out_abort ---- */
typedef struct io_pack_out io_pack_out;

/* Begin path (under a temporary name until commit). src stays open until then. Errors: IO,
 * NOMEM. */
sl_status io_pack_out_open(const char *path, const io_model *src, const char *layout,
                           io_pack_out **out, sl_err *err) BASE_MUST_USE;
/* The next matrix: all but offset, n_bytes, check and data. */
sl_status io_pack_out_mat(io_pack_out *o, const struct io_pack_mat *m, sl_err *err) BASE_MUST_USE;
/* n bytes of it from at on, whole units. From several threads at once, told apart by worker. Errors
 * come out of the next call of one of the others. */
void io_pack_out_bytes(io_pack_out *o, int worker, uint64_t at, const void *p, uint64_t n);
/* A vector that is no tensor of the source, or stands for one. */
sl_status io_pack_out_vector(io_pack_out *o, const char *name, const float *p, int64_t n,
                             sl_err *err) BASE_MUST_USE;
/* An error of io_pack_out_bytes so far. */
sl_status io_pack_out_failed(const io_pack_out *o, sl_err *err) BASE_MUST_USE;
/* Tables, header, then the name. Closes, whether it succeeds or not. */
sl_status io_pack_out_commit(io_pack_out *o, bool exact, sl_err *err) BASE_MUST_USE;
void io_pack_out_abort(io_pack_out *o); /* NULL is legal */

#endif
