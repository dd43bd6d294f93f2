/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers and writers of this room share: slots by hash, scanners, files. */
#ifndef IO_INTERNAL_H
#define IO_INTERNAL_H

#include "base/mem.h"
#include "base/rd.h"
#include "io/io.h"
#include "os/os.h"

/* ---- names by hash: open addressing, seeded by the clock so that a file can not choose collisions
 * ---- */
struct io_slot {
    const char *p; /* borrowed; NULL = free */
    uint64_t n, hash;
    int i;
};
struct io_index {
    struct io_slot *slot;
    uint64_t mask, seed;
};
/* Room for n names. */
sl_status io_index_init(struct io_index *ix, struct arena *a, uint64_t n,
                        sl_err *err) BASE_MUST_USE;
/* The number that belongs to a name; -1 = none. A zeroed index has none. */
int io_index_find(const struct io_index *ix, const char *p, uint64_t n);
/* Put a name with its number, or return the number that it has already; -1 = it was new. */
int io_index_put(struct io_index *ix, const char *p, uint64_t n, int i);

/* ---- GGUF metadata ---- */
struct io_kv {
    char *key; /* NUL-terminated copy */
    uint32_t type;
    uint64_t pos;      /* of the value in its file, for messages */
    const uint8_t *p;  /* scalars and strings: the value; arrays: the first element */
    uint64_t n;        /* strings: bytes; arrays: elements */
    uint32_t elem;     /* arrays: type of the elements */
    uint64_t *str_off; /* arrays of strings */
};
struct io_meta {
    struct io_kv *kv;
    int n;
    struct io_index index;
};

struct io_file {
    char *path;
    struct os_map map;
    bool borrowed; /* the caller's bytes */
};

/* A file of a folder that is handed out as bytes. */
struct io_text {
    const char *name;
    struct os_map map;
    bool borrowed; /* part of a packed file */
};

/* A tensor that was found and is not read: of a type or shape that nothing here needs. */
struct io_unread {
    const char *name, *why;
    const struct io_unread *next;
};

struct io_model {
    enum io_kind kind; /* of a packed file: its source's */
    struct io_pack *pack;
    char *path;
    struct arena arena;
    struct io_file *file;
    int n_file;
    struct tensor *tensor;
    int n_tensor;
    struct io_index by_name;
    struct io_index promised; /* HF: names that an index gives to files, by file number */
    const struct io_unread *unread;
    struct io_meta meta;  /* GGUF */
    struct io_text *text; /* HF */
    int n_text;
    const struct json *config, *generation_config;
    const struct io_scheme
        *scheme;       /* HF: how quantised weights are stored; NULL = they are plain */
    sl_err scheme_err; /* why io_weight refuses, where scheme is NULL and quant_method is not */
    const char *quant_method; /* HF: of the configuration; NULL = none */
    const struct json *quant; /* HF: quantization_config, or the file that stands for it */
    const char *quant_file;   /* where that is, for messages */
    void *quant_own;          /* what the scheme's prepare keeps, in the arena */
    void (*quant_close)(void *own);
    int block_rows, block_cols; /* HF fp8; 0 = one scale for all of a tensor, or for each row */
    const char *scale_tail;     /* HF fp8: what follows a weight's name in that of its scales */
    const float **scale;        /* HF fp8: by tensor number, of the tensors that are scales */
    struct io_mocked *mocked;   /* NULL; tensors of no file (mock.c) */
};

/* What tensors of no file have taken. */
void io_mock_close(io_model *m);

/* ---- the loader table: one row per way in which a folder stores quantised matrices ---- */
/* A matrix that is asked for. */
struct io_want {
    const io_model *m;
    const char *name;       /* as asked: MODULE.weight */
    int n_module;           /* bytes of MODULE */
    const struct tensor *t; /* the tensor of that name; NULL = none */
};
struct io_scheme {
    const char *method; /* quantization_config.quant_method */
    /* Check the configuration. NULL: known by name, not read. UNSUPPORTED is told when a weight is
     * asked for. */
    sl_status (*prepare)(io_model *m, sl_err *err);
    /* Fill *out where the matrix is quantised, and say so in *done; else leave it. */
    sl_status (*read)(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
};
/* quant_keys.c: every key of the configuration is one that the reader of that method knows.
 * UNSUPPORTED names it and its value. */
sl_status io_quant_keys(const io_model *m, const char *method, sl_err *err) BASE_MUST_USE;
/* Rules for single modules: UNSUPPORTED names the first that gives one numbers of its own. */
sl_status io_quant_dynamic(const io_model *m, sl_err *err) BASE_MUST_USE;
sl_status io_quant_extra(const io_model *m, sl_err *err) BASE_MUST_USE;
/* quant.c: what the readers share. Every function that returns a status names the tensor. */
const struct tensor *io_part_of(const struct io_want *q,
                                const char *part); /* MODULE.part; NULL = none */
sl_status io_need(const struct io_want *q, const char *part, const struct tensor **out,
                  sl_err *err) BASE_MUST_USE;
/* FORMAT unless the shape of t is [d0, d1] (d1 < 0: [d0]). */
sl_status io_want_shape(const struct io_want *q, const struct tensor *t, int64_t d0, int64_t d1,
                        sl_err *err) BASE_MUST_USE;
/* FORMAT unless t is of that type. */
sl_status io_want_type(const struct io_want *q, const struct tensor *t, enum tensor_dtype type,
                       sl_err *err) BASE_MUST_USE;
/* A GROUP weight of codes t: no zero points or scales yet. shape: rows, columns, columns of a group
 * (<= 0: all); FORMAT where they do not divide. */
sl_status io_group_init(const struct io_want *q, const struct tensor *t, enum weight_codes codes,
                        const int64_t shape[3], struct weight *w, sl_err *err) BASE_MUST_USE;
/* Its scales: t is [rows, groups] in F32, F16 or BF16 ([rows] and, for all rows together, one value
 * are fine too where there is one group). */
sl_status io_group_scale(const struct io_want *q, const struct tensor *t, const struct weight *w,
                         struct weight_scale *out, sl_err *err) BASE_MUST_USE;
/* Its order of columns: t is i32 [cols]; kept only where it is not k / size. */
sl_status io_group_order(const struct io_want *q, const struct tensor *t, struct weight *w,
                         sl_err *err) BASE_MUST_USE;
/* An F8_E4M3 weight with its scales in f32: of blocks (rows, cols > 0), else of each row or of
 * all. */
sl_status io_f8_weight(const struct io_want *q, const struct tensor *scale, int rows, int cols,
                       struct weight *w, sl_err *err) BASE_MUST_USE;
/* Every tensor MODULE.weight<suffix> of an F8_E4M3 weight as f32 in m->scale. */
sl_status io_f8_scales(io_model *m, const char *suffix, sl_err *err) BASE_MUST_USE;
/* A member of the configuration, with UNSUPPORTED where it is not what is read. */
sl_status io_quant_int(const io_model *m, const struct json *o, const char *key, int64_t def,
                       int64_t *out, sl_err *err) BASE_MUST_USE;
bool io_ends_with(const char *s, const char *tail);

sl_status io_awq_prepare(io_model *m, sl_err *err);
sl_status io_awq_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_gptq_prepare(io_model *m, sl_err *err);
sl_status io_gptq_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_autoround_prepare(io_model *m, sl_err *err);
sl_status io_autoround_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_ct_prepare(io_model *m, sl_err *err);
sl_status io_ct_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_modelopt_prepare(io_model *m, sl_err *err);
sl_status io_modelopt_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_ascend_prepare(io_model *m, sl_err *err);
sl_status io_ascend_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_ascend_bias(const struct io_want *q, const struct weight *w, float *out, bool *any,
                         sl_err *err);
sl_status io_mxfp4_prepare(io_model *m, sl_err *err);
sl_status io_mxfp4_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);
sl_status io_fp8_prepare(io_model *m, sl_err *err);
sl_status io_mxfp8_prepare(io_model *m, sl_err *err);
/* Are scales of FP8 those of groups of a row's columns, which are used as they are stored? */
static inline bool io_f8_has_groups(const io_model *m)
{
    return m->block_rows == 1 && m->block_cols % 128;
}
sl_status io_fp8_read(const struct io_want *q, struct weight *out, bool *done, sl_err *err);

/* prefix.c: names as the published checkpoints have them, where tools put their own words before
 * all of them. */
sl_status io_plain_names(io_model *m, sl_err *err) BASE_MUST_USE;
/* fused.c: experts of a layer in one tensor become matrices of their own. */
sl_status io_split_fused(io_model *m, sl_err *err) BASE_MUST_USE;

/* foreign.c: what bytes are that should be a file of a model and certainly are not: a git-lfs
 * pointer, a web page, an archive, UTF-16. NULL = nothing that is known. */
const char *io_foreign(const void *p, uint64_t n);
/* The same for files of weights, which are not text either; buf "" = not known. */
void io_foreign_text(const void *p, uint64_t n, char *buf, size_t cap);

/* The end of a path, at most 100 bytes, for messages that have to fit in 240. */
const char *io_short(const char *path);
/* FORMAT: "FILE: byte N: text". */
#define IO_FAIL_AT(err, path, at, ...)                                                             \
    (status_fail((err), SL_FORMAT, __FILE__, __LINE__, __VA_ARGS__),                               \
     status_prefix((err), "%s: byte %llu", io_short(path), (unsigned long long)(at)), SL_FORMAT)

/* Map path as the next file of m (there must be room in m->file). */
sl_status io_add_file(io_model *m, const char *path, sl_err *err) BASE_MUST_USE;
/* Fill m->by_name from m->tensor. FORMAT for a name that occurs twice. */
sl_status io_index_tensors(io_model *m, sl_err *err) BASE_MUST_USE;
/* FORMAT when two tensors of one file share bytes, or align bytes and more lie between them. */
sl_status io_check_overlap(uint64_t align, const char *path, const struct tensor *t, int n,
                           struct arena *a, sl_err *err) BASE_MUST_USE;
/* A name of a tensor or key: 1 .. max bytes of UTF-8 without control characters. NULL, or what is
 * wrong. */
const char *io_name_fault(const char *p, uint64_t n, uint64_t max);

/* gguf.c: m->file[0] is mapped and starts with "GGUF". */
sl_status io_gguf_open(io_model *m, bool vocab_only, sl_err *err) BASE_MUST_USE;
/* Names of the types that matrices of GGUF files may have. */
void io_types_read(char *buf, size_t cap);
/* One part: its metadata and tensors, from file number i of m. */
struct io_part {
    struct io_meta meta;
    struct tensor *tensor;
    int n_tensor;
};
sl_status io_gguf_part(io_model *m, int i, struct io_part *out, sl_err *err) BASE_MUST_USE;
/* gguf_meta.c */
const char *io_type_text(uint32_t type);
uint64_t io_type_bytes(uint32_t type); /* of a scalar; 0 for strings and arrays */
sl_status io_meta_get_u64(const io_model *m, const struct io_meta *meta, const char *key,
                          uint64_t *out, sl_err *err) BASE_MUST_USE;

/* ---- scan.c: JSON as a stream, for files whose form is fixed (safetensors headers, shard
 * indexes): no tree, no recursion ---- */
struct io_scan {
    struct rd r;
    uint64_t base; /* byte of the file where r starts */
    const char *path;
    struct arena *arena; /* of strings */
};
struct io_scan io_scan_init(const char *path, const void *p, uint64_t n, uint64_t base,
                            struct arena *a);
/* The next byte that is not white space, not consumed; -1 at the end. */
int io_scan_peek(struct io_scan *s);
/* Consume c, or FORMAT. */
sl_status io_scan_char(struct io_scan *s, char c, sl_err *err) BASE_MUST_USE;
/* A string, unescaped, NUL-terminated, in the arena; p NULL: it is checked and dropped. */
sl_status io_scan_str(struct io_scan *s, char **p, uint64_t *n, sl_err *err) BASE_MUST_USE;
/* An integer of 0 .. 2^64 - 1 without sign, fraction or exponent. */
sl_status io_scan_u64(struct io_scan *s, uint64_t *v, sl_err *err) BASE_MUST_USE;
/* Any value, at most 64 deep. */
sl_status io_scan_skip(struct io_scan *s, sl_err *err) BASE_MUST_USE;
/* After '{' or a member: true when another member follows, with its name read up to and with the
 * colon. first: no comma is due yet. */
sl_status io_scan_member(struct io_scan *s, bool first, bool *more, char **name, uint64_t *n,
                         sl_err *err) BASE_MUST_USE;
uint64_t io_scan_at(const struct io_scan *s); /* byte of the file */

/* model.c: io_drop, and out of the system's page cache. */
void io_evict(const io_model *m, const void *p, uint64_t n);
/* safetensors.c: the tensors of file i, in order of their offset, into the arena. */
sl_status io_safetensors_read(io_model *m, int i, struct tensor **out, int *n,
                              sl_err *err) BASE_MUST_USE;
/* folder.c */
sl_status io_folder_open(io_model *m, bool vocab_only, sl_err *err) BASE_MUST_USE;
/* weight.c: choose m->scheme from config.json. */
sl_status io_scheme_choose(io_model *m, sl_err *err) BASE_MUST_USE;
/* config.json's quantization_config, or compression_config, as compressed-tensors called it once;
 * NULL = none. */
const struct json *io_quant_config(const io_model *m);

#endif
