/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: u64 header length, JSON header, data. The rules are those of the reference
 * reader (docs/formats.md): a header of at most 100 000 000 bytes that starts with '{', data
 * offsets that cover the rest of the file from 0 without hole or overlap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "io/io_internal.h"

#define MAX_HEADER 100000000u
#define MAX_NAME 4096

struct sft {
    io_model *m;
    int file;
    const char *path;
    uint64_t start;  /* of the data */
    uint64_t n_data; /* bytes of data */
};

/* The tensor is kept out of the list: t->n_dim < 0 says so. */
static sl_status leave_out(struct sft *f, struct tensor *t, const char *why, sl_err *err)
{
    void *p = NULL;
    char *copy = NULL;
    t->n_dim = -1;
    SL_TRY(mem_arena_alloc(&f->m->arena, sizeof(struct io_unread), &p, err));
    SL_TRY(mem_arena_str(&f->m->arena, why, strlen(why), &copy, err));
    struct io_unread *u = p;
    *u = (struct io_unread){t->name, copy, f->m->unread};
    f->m->unread = u;
    return SL_OK;
}

static sl_status read_dtype(struct sft *f, struct io_scan *s, struct tensor *t, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    SL_TRY(io_scan_str(s, &text, &n, err));
    if (tensor_dtype_from_text(text, n, &t->type) && tensor_dtype(t->type)->block == 1)
        return SL_OK;
    char why[64];
    snprintf(why, sizeof why, "dtype \"%.20s\"", text);
    return leave_out(f, t, why, err);
}

static sl_status read_shape(struct sft *f, struct io_scan *s, struct tensor *t, sl_err *err)
{
    uint64_t count = 1;
    int n = 0;
    SL_TRY(io_scan_char(s, '[', err));
    for (; io_scan_peek(s) != ']'; n++) {
        if (n) SL_TRY(io_scan_char(s, ',', err));
        io_scan_peek(s);
        uint64_t v = 0, at = io_scan_at(s);
        SL_TRY(io_scan_u64(s, &v, err));
        if (!size_mul(count, v, &count) || count > INT64_MAX || v > INT64_MAX)
            return IO_FAIL_AT(err, f->path, at, "tensor %.80s: shape: the product overflows",
                              t->name);
        if (n < TENSOR_MAX_DIM) t->shape[n] = (int64_t)v;
    }
    for (int i = n; i < TENSOR_MAX_DIM; i++)
        t->shape[i] = 1;
    if (n > TENSOR_MAX_DIM) {
        char why[48];
        snprintf(why, sizeof why, "a shape of %d dimensions", n);
        SL_TRY(leave_out(f, t, why, err));
    } else if (t->n_dim == 0) {
        t->n_dim = n;
    }
    return io_scan_char(s, ']', err);
}

static sl_status read_offsets(struct sft *f, struct io_scan *s, struct tensor *t, sl_err *err)
{
    uint64_t begin = 0, end = 0;
    SL_TRY(io_scan_char(s, '[', err));
    uint64_t at = io_scan_at(s);
    SL_TRY(io_scan_u64(s, &begin, err));
    SL_TRY(io_scan_char(s, ',', err));
    SL_TRY(io_scan_u64(s, &end, err));
    SL_TRY(io_scan_char(s, ']', err));
    if (begin > end)
        return IO_FAIL_AT(err, f->path, at,
                          "tensor %.80s: data_offsets: ends at %llu before it begins at %llu",
                          t->name, (unsigned long long)end, (unsigned long long)begin);
    if (end > f->n_data)
        return IO_FAIL_AT(
            err, f->path, at,
            "tensor %.80s: data_offsets: ends at %llu, the file has %llu bytes of data", t->name,
            (unsigned long long)end, (unsigned long long)f->n_data);
    t->offset = begin;
    t->n_bytes = end - begin;
    return SL_OK;
}

enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };

static sl_status read_field(struct sft *f, struct io_scan *s, const char *field, struct tensor *t,
                            int *seen, sl_err *err)
{
    int bit = strcmp(field, "dtype") == 0          ? DTYPE
              : strcmp(field, "shape") == 0        ? SHAPE
              : strcmp(field, "data_offsets") == 0 ? OFFSETS
                                                   : 0;
    if (!bit)
        return IO_FAIL_AT(err, f->path, io_scan_at(s), "tensor %.80s: unknown field \"%.40s\"",
                          t->name, field);
    if (*seen & bit)
        return IO_FAIL_AT(err, f->path, io_scan_at(s), "tensor %.80s: field \"%s\" is there twice",
                          t->name, field);
    *seen |= bit;
    if (bit == DTYPE) return read_dtype(f, s, t, err);
    return bit == SHAPE ? read_shape(f, s, t, err) : read_offsets(f, s, t, err);
}

static sl_status read_tensor(struct sft *f, struct io_scan *s, struct tensor *t, sl_err *err)
{
    int seen = 0;
    uint64_t at = io_scan_at(s), want = 0, n = 0;
    bool more = true;
    char *field = NULL;
    t->file = f->file;
    SL_TRY(io_scan_char(s, '{', err));
    for (bool first = true;; first = false) {
        SL_TRY(io_scan_member(s, first, &more, &field, &n, err));
        if (!more) break;
        SL_TRY(read_field(f, s, field, t, &seen, err));
    }
    if (seen != ALL)
        return IO_FAIL_AT(err, f->path, at, "tensor %.80s: field \"%s\" is missing", t->name,
                          !(seen & DTYPE)   ? "dtype"
                          : !(seen & SHAPE) ? "shape"
                                            : "data_offsets");
    if (t->n_dim < 0) return SL_OK; /* how many bytes it should have is not known */
    if (!tensor_bytes(t->type, (uint64_t)tensor_count(t), &want))
        return IO_FAIL_AT(err, f->path, at, "tensor %.80s: its size overflows", t->name);
    if (want != t->n_bytes)
        return IO_FAIL_AT(err, f->path, at,
                          "tensor %.80s: data_offsets give %llu bytes, dtype and shape %llu",
                          t->name, (unsigned long long)t->n_bytes, (unsigned long long)want);
    return SL_OK;
}

/* "__metadata__": strings by name, by some tools other values; not kept. */
static sl_status read_metadata(struct io_scan *s, sl_err *err)
{
    bool more = true;
    SL_TRY(io_scan_char(s, '{', err));
    for (bool first = true;; first = false) {
        SL_TRY(io_scan_member(s, first, &more, NULL, NULL, err));
        if (!more) return SL_OK;
        SL_TRY(io_scan_skip(s, err));
    }
}

/* How many members the header has, and that it is one JSON object with nothing but spaces after
 * it. */
static sl_status count_members(struct io_scan s, uint64_t *n, sl_err *err)
{
    bool more = true;
    *n = 0;
    SL_TRY(io_scan_char(&s, '{', err));
    for (bool first = true;; first = false) {
        SL_TRY(io_scan_member(&s, first, &more, NULL, NULL, err));
        if (!more) break;
        SL_TRY(io_scan_skip(&s, err));
        ++*n;
    }
    if (io_scan_peek(&s) >= 0)
        return IO_FAIL_AT(err, s.path, io_scan_at(&s), "bytes after the end of the header's JSON");
    return SL_OK;
}

static sl_status read_members(struct sft *f, struct io_scan *s, uint64_t n_max, struct tensor *t,
                              int *n, sl_err *err)
{
    bool more = true, metadata = false;
    struct io_index seen = {0};
    SL_TRY(io_index_init(&seen, s->arena, n_max, err));
    SL_TRY(io_scan_char(s, '{', err));
    for (bool first = true;; first = false) {
        char *name = NULL;
        uint64_t len = 0, at = io_scan_at(s);
        SL_TRY(io_scan_member(s, first, &more, &name, &len, err));
        if (!more) return SL_OK;
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata) return IO_FAIL_AT(err, f->path, at, "__metadata__ is there twice");
            metadata = true;
            SL_TRY(read_metadata(s, err));
            continue;
        }
        const char *fault = io_name_fault(name, len, MAX_NAME);
        if (fault) return IO_FAIL_AT(err, f->path, at, "the name of tensor %d %s", *n, fault);
        if (io_index_put(&seen, name, len, *n) >= 0)
            return IO_FAIL_AT(err, f->path, at, "tensor %.80s is there twice", name);
        t[*n].name = name;
        SL_TRY(read_tensor(f, s, &t[*n], err));
        ++*n;
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

/* The data, sorted, must tile [0, n_data). Then offsets become places in the file. */
static sl_status place(struct sft *f, struct tensor *t, int n, sl_err *err)
{
    uint64_t at = 0;
    if (n) qsort(t, (size_t)n, sizeof *t, by_offset);
    for (int i = 0; i < n; i++) {
        if (t[i].offset != at)
            return IO_FAIL_AT(err, f->path, f->start + BASE_MIN(at, t[i].offset),
                              "tensor %.80s: data_offsets begin at %llu: %s", t[i].name,
                              (unsigned long long)t[i].offset,
                              t[i].offset < at ? "it overlaps the one before" : "a hole before it");
        at += t[i].n_bytes;
        t[i].offset += f->start;
        t[i].data = f->m->file[f->file].map.data + t[i].offset;
    }
    if (at != f->n_data)
        return IO_FAIL_AT(err, f->path, f->start + at, "%llu bytes after the last tensor",
                          (unsigned long long)(f->n_data - at));
    return SL_OK;
}

sl_status io_safetensors_read(io_model *m, int i, struct tensor **out, int *n, sl_err *err)
{
    struct sft f = {.m = m, .file = i, .path = m->file[i].path};
    uint64_t size = m->file[i].map.size, n_member = 0;
    void *p = NULL;
    struct rd r = rd_init(m->file[i].map.data, size);
    uint64_t len = rd_u64(&r);
    char what[140];
    if (!rd_ok(&r) || len == 0 || len > MAX_HEADER || len > size - 8) {
        io_foreign_text(m->file[i].map.data, size, what, sizeof what);
        if (size && what[0])
            return SL_FAIL(err, FORMAT, "%s: not a safetensors file but %s", io_short(f.path),
                           what);
        if (size > 4 && memcmp(m->file[i].map.data, "GGUF", 4) == 0)
            return SL_FAIL(err, FORMAT, "%s: a GGUF file under a wrong name", io_short(f.path));
    }
    if (!rd_ok(&r))
        return IO_FAIL_AT(err, f.path, size,
                          "the file ends inside the header's length (%llu bytes in all)",
                          (unsigned long long)size);
    const uint8_t *first = m->file[i].map.data;
    if (len > MAX_HEADER && size > 8 && first[8] != '{')
        return SL_FAIL(err, FORMAT,
                       "%s: not a safetensors file: it starts with %02x %02x %02x %02x",
                       io_short(f.path), first[0], first[1], first[2], first[3]);
    if (len > MAX_HEADER)
        return IO_FAIL_AT(err, f.path, 0, "a header of %llu bytes, at most %u are read",
                          (unsigned long long)len, MAX_HEADER);
    const uint8_t *header = rd_bytes(&r, len);
    if (!header)
        return IO_FAIL_AT(err, f.path, 0, "a header of %llu bytes does not fit in the file's %llu",
                          (unsigned long long)len, (unsigned long long)size);
    if (len < 2 || header[0] != '{')
        return IO_FAIL_AT(err, f.path, 8, "the header does not start with '{'");
    f.start = 8 + len;
    f.n_data = size - f.start;
    struct io_scan s = io_scan_init(f.path, header, len, 8, &m->arena);
    SL_TRY(count_members(s, &n_member, err));
    SL_TRY(mem_arena_array(&m->arena, n_member, sizeof **out, &p, err));
    *out = p;
    *n = 0;
    SL_TRY(read_members(&f, &s, n_member, *out, n, err));
    SL_TRY(place(&f, *out, *n, err));
    int kept = 0;
    for (int k = 0; k < *n; k++)
        if ((*out)[k].n_dim >= 0) (*out)[kept++] = (*out)[k];
    *n = kept;
    return SL_OK;
}
