/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files: the header, and sums over units. All numbers little-endian.
 *
 *     0    "SLUIPACK"            8   u32 version           12  u32 header bytes (96)
 *     16   u64 file bytes        24  u64 first byte of data (HEAD_BYTES)
 *     32   u64 tables: offset    40  u64 bytes             48  u64 XXH3 of them
 *     56   u64 flags (1 = exact) 64  layout, 24 bytes, zero-filled
 *     88   u64 XXH3 of bytes 0 .. 87
 * then zeros up to the data, the matrices' bytes (each at a multiple of PACK_ALIGN), the tables,
 * the end. */
#ifndef IO_PACK_INTERNAL_H
#define IO_PACK_INTERNAL_H

#include "io/io_internal.h"
#include "io/pack.h"

#define PACK_MAGIC "SLUIPACK"
#define PACK_VERSION 1
#define PACK_HEADER 96
#define PACK_LAYOUT_MAX 24
#define PACK_DATA                                                                                  \
    ((uint64_t)2 << 20) /* so that large pages of the file are large pages of the data */
#define PACK_ALIGN 4096

/* XXH3 of every unit, seeded by where it begins in its matrix, summed: does not depend on the order
 * in which they come. */
uint64_t io_pack_sum(const uint64_t unit_bytes[2], uint64_t n_unit, uint64_t at, const uint8_t *p,
                     uint64_t n);

/* The files that decide what a packed file of m holds: those with tensors, and config.json. path:
 * receives the absolute name. */
int io_n_stamp(const io_model *m);
sl_status io_stamp_now(const io_model *m, int i, char *path, size_t n, struct io_stamp *out,
                       sl_err *err) BASE_MUST_USE;

/* A model whose file 0 is a packed file. */
sl_status io_pack_model(io_model *m, bool vocab_only, sl_err *err) BASE_MUST_USE;
/* folder.c: a JSON file of a folder: the object from its bytes; its bytes (mem_free), NULL where
 * there is none. */
sl_status io_folder_json(io_model *m, const char *path, const char *p, uint64_t n,
                         const struct json **out, sl_err *err) BASE_MUST_USE;
sl_status io_folder_read(const io_model *m, const char *name, char **out, uint64_t *n,
                         sl_err *err) BASE_MUST_USE;

#endif
