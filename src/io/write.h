/* SPDX-License-Identifier: Apache-2.0 */
/* Writing model files, tensor after tensor: what is held in memory is the header and one buffer.
 * The file appears under its name when it is whole (os_out). GGUF 3, or one safetensors file.
 *
 * Order of calls: open, metadata and tensor declarations, begin, write (the bytes of the tensors in
 * the order of their declaration, in pieces of any size), commit. Errors of the metadata and tensor
 * calls come out of begin. abort is legal at any time and frees; so is commit, whether it succeeds
 * or not. Errors: IO (file, reason), NOMEM, REQUEST (what was declared can not be written).
 * Threads: one. */
#ifndef IO_WRITE_H
#define IO_WRITE_H

#include "io/io.h"

typedef struct io_out io_out;

/* A file of that kind, to be. Errors: IO, NOMEM. */
sl_status io_out_open(const char *path, enum io_kind kind, io_out **out, sl_err *err) BASE_MUST_USE;

/* Metadata. A safetensors file has strings only. */
void io_out_str(io_out *o, const char *key, const char *p, uint64_t n);
void io_out_u32(io_out *o, const char *key, uint32_t v);
void io_out_u64(io_out *o, const char *key, uint64_t v);
void io_out_f32(io_out *o, const char *key, float v);
void io_out_bool(io_out *o, const char *key, bool v);
/* An array of n values: its head; then n calls of io_out_elem_str (IO_STR), io_out_elem_i32
 * (IO_I32), io_out_elem_f32 (IO_F32) or io_out_elem_bool (IO_BOOL). */
void io_out_array(io_out *o, const char *key, enum io_type elem, uint64_t n);
void io_out_elem_str(io_out *o, const char *p, uint64_t n);
void io_out_elem_i32(io_out *o, int32_t v);
void io_out_elem_f32(io_out *o, float v);
void io_out_elem_bool(io_out *o, bool v);
/* One key of a GGUF model as it is, arrays too. */
void io_out_copy(io_out *o, const io_model *m, int i_meta);

/* Declare the next tensor; shape row-major. The type must be one of the file's kind. */
void io_out_tensor(io_out *o, const char *name, enum tensor_dtype type, int n_dim,
                   const int64_t *shape);

/* Every name that was declared so far, in order. */
void io_out_each_name(const io_out *o, void (*fn)(void *user, const char *name), void *user);

/* No declarations follow: the header is written. Errors: IO, NOMEM, REQUEST. */
sl_status io_out_begin(io_out *o, sl_err *err) BASE_MUST_USE;
/* The next n bytes of the tensors. Errors: IO; REQUEST: more than were declared. */
sl_status io_out_write(io_out *o, const void *p, uint64_t n, sl_err *err) BASE_MUST_USE;
/* All is there: it gets its name. Errors: IO; REQUEST: bytes are missing. */
sl_status io_out_commit(io_out *o, sl_err *err) BASE_MUST_USE;
void io_out_abort(io_out *o); /* NULL is legal */

#endif
