/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a file being written, shared by the writers of GGUF and safetensors. */
#ifndef IO_WRITE_INTERNAL_H
#define IO_WRITE_INTERNAL_H

#include "base/str.h"
#include "io/write.h"
#include "os/os.h"

struct io_out_tensor_info {
    uint64_t n_bytes, offset; /* in the data; gaps before it are padding */
};

struct io_out {
    enum io_kind kind;
    struct os_out file;
    struct str meta, info; /* encoded metadata; encoded tensor declarations */
    uint32_t n_meta, n_info;
    struct str names;   /* of the tensors, each with its 0 */
    struct str sizes;   /* struct io_out_tensor_info, one after the other */
    uint64_t n_data;    /* bytes of the data declared so far */
    uint32_t next;      /* tensor that is being written */
    uint64_t at;        /* bytes of it that were written */
    uint64_t n_written; /* bytes of data with padding */
    bool begun;
    sl_err failed; /* the first wrong declaration; code SL_OK = none */
};

/* Remember the first wrong declaration. */
void io_out_refuse(io_out *o, const char *fmt, ...) BASE_PRINTF(2, 3);
/* write_gguf.c and write_safetensors.c: the header from meta and info, as it stands before the
 * data. */
sl_status io_out_gguf_header(io_out *o, sl_err *err) BASE_MUST_USE;
sl_status io_out_safetensors_header(io_out *o, sl_err *err) BASE_MUST_USE;
void io_out_gguf_tensor(io_out *o, const char *name, enum tensor_dtype type, int n_dim,
                        const int64_t *shape, uint64_t offset);
void io_out_safetensors_tensor(io_out *o, const char *name, enum tensor_dtype type, int n_dim,
                               const int64_t *shape, const struct io_out_tensor_info *at);
void io_out_safetensors_str(io_out *o, const char *key, const char *p, uint64_t n);

#define IO_OUT_ALIGN 32 /* of GGUF data */

#endif
