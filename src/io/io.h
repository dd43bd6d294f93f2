/* SPDX-License-Identifier: Apache-2.0 */
/* Model files: bytes -> named, checked tensor views and metadata. GGUF v3 (split files too) and
 * Hugging Face folders (safetensors).
 *
 * What this room refuses to do: run anything, open other files than io_open lists below (no .bin,
 * .pt, .py), trust a number. Every offset, count and size was checked against the mapped bytes
 * before it is handed out.
 */
#ifndef IO_IO_H
#define IO_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "tensor/tensor.h"
#include "text/json.h"
#include "text/keys.h"

enum io_kind { IO_GGUF, IO_HF };

typedef struct io_model io_model;

/* path: a .gguf file (any part of a split one) or a folder with config.json. vocab_only: weights
 * need not be there.
 * Errors: NOTFOUND, IO, FORMAT (file, field, byte offset), UNSUPPORTED, NOMEM. Memory: close with
 * io_close; tensors and metadata are borrowed until then. */
sl_status io_open(const char *path, bool vocab_only, io_model **out, sl_err *err) BASE_MUST_USE;
/* The same from n bytes in memory that stay until io_close: one GGUF or safetensors file, told
 * apart by its first bytes. name: for messages. Errors: as io_open. */
sl_status io_open_bytes(const char *name, const void *p, uint64_t n, io_model **out,
                        sl_err *err) BASE_MUST_USE;
void io_close(io_model *m); /* NULL is legal */

/* Names and metadata are those of a GGUF file, or of a folder. */
enum io_kind io_model_kind(const io_model *m);
const char *io_path(const io_model *m); /* as opened */
/* What was wrong with the model's contents (FORMAT, UNSUPPORTED, NOTFOUND): its path in front of
 * the line, where that does not have it. Gives st. */
sl_status io_name_file(const io_model *m, sl_status st, sl_err *err);
int io_n_file(const io_model *m);
const char *io_file_path(const io_model *m, int file);
uint64_t io_file_size(const io_model *m, int file);
/* Of the files' sizes and bytes, some of each (os_stamp); a packed file has that of its source.
 * Errors: as os_stamp. */
sl_status io_files_hash(const io_model *m, uint64_t *out, sl_err *err) BASE_MUST_USE;

/* In all files. */
int io_n_tensor(const io_model *m);
const struct tensor *io_tensor(const io_model *m, int i);          /* in file order */
const struct tensor *io_find(const io_model *m, const char *name); /* NULL = none */
const struct tensor *io_findf(const io_model *m, const char *fmt, ...) BASE_PRINTF(2, 3);
/* The bytes [p, p + n) of a tensor are not needed for a while: their pages leave this process.
 * Nothing happens when they are in no file of m. */
void io_drop(const io_model *m, const void *p, uint64_t n);
/* They will be read soon. */
void io_will_need(const io_model *m, const void *p, uint64_t n);
/* Of its files parts are read (os_map_parts). */
void io_parts(const io_model *m, bool parts);

/* Why there is no tensor of that name, nor a matrix: NOTFOUND, or UNSUPPORTED where there is one
 * that is not read. */
sl_status io_missing(const io_model *m, const char *name, sl_err *err) BASE_MUST_USE;
/* Tensors that are there and not read, for a type or number of dimensions that is not known: the
 * i-th name; NULL = no more. */
const char *io_unread_name(const io_model *m, int i);
/* FORMAT when a file of weights ends in zeros where numbers should be, as a download does whose
 * space was taken in advance. Looks at the last tensors only. */
sl_status io_check_tails(const io_model *m, sl_err *err) BASE_MUST_USE;

/* ---- HF folders: parsed JSON files, NULL where the file is missing. Borrowed. ---- */
const struct json *io_config(const io_model *m); /* config.json */
/* The same; where there is none, why: NOTFOUND, or UNSUPPORTED for folders of another kind. */
sl_status io_need_config(const io_model *m, const struct json **out, sl_err *err) BASE_MUST_USE;
/* The language model's part of a parsed config.json: text_config where that has a hidden_size (a
 * model with parts that see), else all of it. */
const struct json *io_text_config(const struct json *config);
const struct json *io_generation_config(const io_model *m);
/* Raw bytes of tokenizer.json, tokenizer_config.json, chat_template.jinja, ...: a file of the
 * folder by its fixed name; NULL = not there. */
const char *io_text_file(const io_model *m, const char *name, uint64_t *n);
/* Names of those that are there, from 0 on; NULL past the last. Further chat templates:
 * "additional_chat_templates/NAME.jinja". */
const char *io_text_name(const io_model *m, int i);

/* ---- GGUF metadata. Each getter: NOTFOUND when the key is missing, FORMAT when its type does not
 * fit (names file, key and type). u64 takes every integer type where the value is not negative; f64
 * takes floats and integers; bool, str and array only their own. The first part of a split file has
 * the metadata. A Hugging Face folder has none: every getter says NOTFOUND. ---- */
sl_status io_meta_u64(const io_model *m, const char *key, uint64_t *out, sl_err *err) BASE_MUST_USE;
sl_status io_meta_f64(const io_model *m, const char *key, double *out, sl_err *err) BASE_MUST_USE;
sl_status io_meta_bool(const io_model *m, const char *key, bool *out, sl_err *err) BASE_MUST_USE;
sl_status io_meta_str(const io_model *m, const char *key, const char **p, uint64_t *n,
                      sl_err *err) BASE_MUST_USE; /* bytes in place, not NUL-terminated */
enum io_type {                                    /* GGUF value types */
               IO_U8,
               IO_I8,
               IO_U16,
               IO_I16,
               IO_U32,
               IO_I32,
               IO_F32,
               IO_BOOL,
               IO_STR,
               IO_ARRAY,
               IO_U64,
               IO_I64,
               IO_F64,
               IO_N_TYPE
};
struct io_array {
    uint32_t type; /* enum io_type of the elements; never IO_ARRAY */
    uint64_t n;
    const uint8_t *data;     /* first element in place; unaligned */
    const uint64_t *str_off; /* strings: where each element's bytes start, from data; the u64 before
                                them is their length */
};
sl_status io_meta_array(const io_model *m, const char *key, struct io_array *out,
                        sl_err *err) BASE_MUST_USE;
const char *io_array_str(const struct io_array *a, uint64_t i, uint64_t *n);
bool io_array_i64(const struct io_array *a, uint64_t i,
                  int64_t *out); /* integers and bools; false for other types */
bool io_array_f64(const struct io_array *a, uint64_t i, double *out);
/* All keys in file order, for inspect. */
int io_n_meta(const io_model *m);
const char *io_meta_key(const io_model *m, int i);
/* "u32 7", "str \"qwen3\"", "[str x 151936]": at most n bytes. */
void io_meta_text(const io_model *m, int i, char *buf, int n);
/* A value for lists of keys (text/keys.h). Arrays of numbers are empty where all of them are 0, as
 * the sections of a rope that has none. */
struct text_key_value io_meta_value(const io_model *m, const char *key);

/* ---- weights: the loader table (io/weight.c): a format is a row: a test, a reader and (in tensor)
 * a reference dequantiser ---- */
/* The matrix called name (with its ".weight" or other suffix, as the model's own naming has it)
 * with all scales that belong to it. A 3-D stack [E, rows, cols] is given as E*rows rows. Errors:
 * NOTFOUND (names the tensor), FORMAT (scales missing or misshapen; names both), UNSUPPORTED
 * (scheme). Memory: borrowed from m. */
sl_status io_weight(const io_model *m, const char *name, struct weight *out,
                    sl_err *err) BASE_MUST_USE;
/* A bias that is stored with the scales of w (io_weight's answer for name): Ascend's static W8A8.
 * out [rows]; *any: false = there is none, and out was not written; all zeros count as none.
 * Errors: NOTFOUND and FORMAT name the tensor. */
sl_status io_weight_bias(const io_model *m, const char *name, const struct weight *w, float *out,
                         bool *any, sl_err *err) BASE_MUST_USE;
/* Is there such a matrix, in whatever form? (io_find sees only tensors that have exactly that
 * name.) */
bool io_has_weight(const io_model *m, const char *name);
/* Parameters that tensor i holds: of codes, the numbers that they stand for; 0 for scales, zero
 * points and the like. */
int64_t io_tensor_params(const io_model *m, int i);
/* Can io_weight be asked for tensor i by its own name: floats, blocks (those that it refuses too),
 * or the codes of a quantised matrix? */
bool io_tensor_is_matrix(const io_model *m, int i);
/* Does a quantised folder keep a tensor of that name beside its codes: scales, zero points, what
 * its cache is quantised by? A packed file may be of one: there the name alone says it. */
bool io_is_beside(const io_model *m, const char *name);
/* How the folder's quantiser calls itself ("awq"); NULL = not quantised. */
const char *io_quant_method(const io_model *m);

#endif
