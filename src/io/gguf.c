/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files. Everything goes through the checked reader; a count is held against the bytes that
 * are left before anything is allocated for it; a tensor is handed out only when its bytes lie
 * inside the file. Format: docs/formats.md. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "io/io_internal.h"

#define MAX_KEY 65535
#define MAX_NAME 255
#define MAX_DIM 4 /* GGUF's own limit */
#define MAX_ALIGN (1u << 20)
#define MAX_PARTS 1000
#define KV_BYTES_MIN 14     /* length, one byte of name, type, one byte of value */
#define TENSOR_BYTES_MIN 25 /* length, one byte of name, n_dims, type, offset */

struct gguf {
    io_model *m;
    int file;
    const char *path;
    struct rd r;
    uint64_t align;
};

static sl_status ends_early(const struct gguf *g, const char *what, sl_err *err)
{
    return IO_FAIL_AT(err, g->path, g->r.pos, "the file ends inside %s (%llu bytes in all)", what,
                      (unsigned long long)g->r.size);
}

/* ---- metadata ---- */
static sl_status check_bools(const struct gguf *g, const struct io_kv *kv, uint64_t n, sl_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (kv->p[i] > 1)
            return IO_FAIL_AT(err, g->path, kv->pos + i, "key %.80s: a bool is 0 or 1, not %u",
                              kv->key, kv->p[i]);
    return SL_OK;
}

static sl_status read_strings(struct gguf *g, struct io_kv *kv, sl_err *err)
{
    void *p = NULL;
    uint64_t start = g->r.pos, n;
    if (kv->n > rd_left(&g->r) / 8)
        return IO_FAIL_AT(err, g->path, start,
                          "key %.80s: %llu strings can not fit in the %llu bytes left", kv->key,
                          (unsigned long long)kv->n, (unsigned long long)rd_left(&g->r));
    SL_TRY(mem_arena_array(&g->m->arena, kv->n, sizeof *kv->str_off, &p, err));
    kv->str_off = p;
    kv->p = g->r.base + start;
    for (uint64_t i = 0; i < kv->n; i++) {
        uint64_t at = g->r.pos;
        rd_str64(&g->r, &n);
        if (!rd_ok(&g->r))
            return IO_FAIL_AT(err, g->path, at,
                              "key %.80s: string %llu goes past the end of the file", kv->key,
                              (unsigned long long)i);
        kv->str_off[i] = at + 8 - start;
    }
    return SL_OK;
}

static sl_status read_array(struct gguf *g, struct io_kv *kv, sl_err *err)
{
    uint64_t at = g->r.pos, bytes;
    kv->elem = rd_u32(&g->r);
    kv->n = rd_u64(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, kv->key, err);
    if (kv->elem == IO_ARRAY)
        return IO_FAIL_AT(err, g->path, at, "key %.80s: arrays of arrays are not read", kv->key);
    if (kv->elem >= IO_N_TYPE)
        return IO_FAIL_AT(err, g->path, at, "key %.80s: array of unknown value type %u", kv->key,
                          kv->elem);
    kv->pos = g->r.pos;
    if (kv->elem == IO_STR) return read_strings(g, kv, err);
    if (!size_mul(kv->n, io_type_bytes(kv->elem), &bytes) || !(kv->p = rd_bytes(&g->r, bytes)))
        return IO_FAIL_AT(err, g->path, at + 4,
                          "key %.80s: %llu elements can not fit in the %llu bytes left", kv->key,
                          (unsigned long long)kv->n, (unsigned long long)(g->r.size - kv->pos));
    return kv->elem == IO_BOOL ? check_bools(g, kv, kv->n, err) : SL_OK;
}

static sl_status read_value(struct gguf *g, struct io_kv *kv, sl_err *err)
{
    kv->pos = g->r.pos;
    if (kv->type == IO_ARRAY) return read_array(g, kv, err);
    if (kv->type == IO_STR) {
        kv->p = (const uint8_t *)rd_str64(&g->r, &kv->n);
        if (!kv->p)
            return IO_FAIL_AT(err, g->path, kv->pos,
                              "key %.80s: the string goes past the end of the file", kv->key);
        return SL_OK;
    }
    kv->p = rd_bytes(&g->r, io_type_bytes(kv->type));
    if (!kv->p) return ends_early(g, kv->key, err);
    return kv->type == IO_BOOL ? check_bools(g, kv, 1, err) : SL_OK;
}

static sl_status read_kv(struct gguf *g, uint64_t i, struct io_kv *kv, sl_err *err)
{
    uint64_t at = g->r.pos, n;
    const char *key = rd_str64(&g->r, &n);
    if (!key)
        return IO_FAIL_AT(err, g->path, at, "the name of key %llu goes past the end of the file",
                          (unsigned long long)i);
    const char *fault = io_name_fault(key, n, MAX_KEY);
    if (fault)
        return IO_FAIL_AT(err, g->path, at, "the name of key %llu %s", (unsigned long long)i,
                          fault);
    SL_TRY(mem_arena_str(&g->m->arena, key, n, &kv->key, err));
    uint64_t type_at = g->r.pos;
    kv->type = rd_u32(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, kv->key, err);
    if (kv->type >= IO_N_TYPE)
        return IO_FAIL_AT(err, g->path, type_at, "key %.80s: unknown value type %u", kv->key,
                          kv->type);
    return read_value(g, kv, err);
}

static sl_status read_meta(struct gguf *g, uint64_t n_kv, struct io_meta *meta, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&g->m->arena, n_kv, sizeof *meta->kv, &p, err));
    meta->kv = p;
    SL_TRY(io_index_init(&meta->index, &g->m->arena, n_kv, err));
    for (uint64_t i = 0; i < n_kv; i++) {
        uint64_t at = g->r.pos;
        SL_TRY(read_kv(g, i, &meta->kv[i], err));
        if (io_index_put(&meta->index, meta->kv[i].key, strlen(meta->kv[i].key), (int)i) >= 0)
            return IO_FAIL_AT(err, g->path, at, "key %.80s is there twice", meta->kv[i].key);
        meta->n = (int)i + 1;
    }
    return SL_OK;
}

static sl_status read_align(struct gguf *g, const struct io_meta *meta, sl_err *err)
{
    int i = io_index_find(&meta->index, "general.alignment", 17);
    g->align = 32;
    if (i < 0) return SL_OK;
    const struct io_kv *kv = &meta->kv[i];
    if (kv->type != IO_U32)
        return IO_FAIL_AT(err, g->path, kv->pos, "general.alignment is %s, it must be u32",
                          io_type_text(kv->type));
    struct rd r = rd_init(kv->p, 4);
    g->align = rd_u32(&r);
    if (g->align < 8 || g->align > MAX_ALIGN || (g->align & (g->align - 1)) != 0)
        return IO_FAIL_AT(err, g->path, kv->pos,
                          "general.alignment is %u, not a power of two in 8 .. %u",
                          (unsigned)g->align, MAX_ALIGN);
    return SL_OK;
}

/* ---- tensors ---- */
/* Dimensions in the file's order (contiguous first) to row-major; the number of weights, and that
 * the bytes can be counted. */
static sl_status read_dims(struct gguf *g, struct tensor *t, uint64_t *count, sl_err *err)
{
    *count = 1;
    for (int i = 0; i < t->n_dim; i++) {
        uint64_t at = g->r.pos, ne = rd_u64(&g->r);
        if (!rd_ok(&g->r)) return ends_early(g, t->name, err);
        if (ne == 0 || ne > INT64_MAX)
            return IO_FAIL_AT(err, g->path, at, "tensor %.80s: dimension %d is %llu", t->name, i,
                              (unsigned long long)ne);
        if (!size_mul(*count, ne, count) || *count > INT64_MAX)
            return IO_FAIL_AT(err, g->path, at,
                              "tensor %.80s: the product of its dimensions overflows", t->name);
        t->shape[t->n_dim - 1 - i] = (int64_t)ne;
    }
    for (int i = t->n_dim; i < TENSOR_MAX_DIM; i++)
        t->shape[i] = 1;
    return SL_OK;
}

void io_types_read(char *buf, size_t cap)
{
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; i < TENSOR_N_DTYPE && n < cap; i++) {
        const struct tensor_dtype_info *d = tensor_dtype((enum tensor_dtype)i);
        if (d->gguf_id >= 0 && tensor_dtype_is_weight((enum tensor_dtype)i))
            n += (size_t)snprintf(buf + n, cap - n, "%s%s", n ? " " : "", d->text);
    }
}

static sl_status read_type(struct gguf *g, struct tensor *t, uint64_t count, sl_err *err)
{
    uint64_t at = g->r.pos;
    uint32_t id = rd_u32(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, t->name, err);
    if (!tensor_dtype_from_gguf(id, &t->type)) {
        char can[160];
        io_types_read(can, sizeof can);
        status_fail(err, SL_UNSUPPORTED, __FILE__, __LINE__,
                    "tensor %.50s: type %u, %s; read are %s", t->name, id, tensor_gguf_id_text(id),
                    can);
        status_prefix(err, "%s: byte %llu", io_short(g->path), (unsigned long long)at);
        return SL_UNSUPPORTED;
    }
    const struct tensor_dtype_info *d = tensor_dtype(t->type);
    if (tensor_cols(t) % d->block != 0)
        return IO_FAIL_AT(err, g->path, at, "tensor %.80s: rows of %lld are no multiple of %s's %d",
                          t->name, (long long)tensor_cols(t), d->text, d->block);
    if (!tensor_bytes(t->type, count, &t->n_bytes))
        return IO_FAIL_AT(err, g->path, at, "tensor %.80s: its size overflows", t->name);
    return SL_OK;
}

/* Everything but the place of the data, which is known after the last tensor: t->offset is from the
 * start of the data. */
static sl_status read_tensor(struct gguf *g, uint64_t i, struct tensor *t, sl_err *err)
{
    uint64_t at = g->r.pos, n, count = 0;
    const char *name = rd_str64(&g->r, &n);
    char *copy = NULL;
    if (!name)
        return IO_FAIL_AT(err, g->path, at, "the name of tensor %llu goes past the end of the file",
                          (unsigned long long)i);
    const char *fault = io_name_fault(name, n, MAX_NAME);
    if (fault)
        return IO_FAIL_AT(err, g->path, at, "the name of tensor %llu %s", (unsigned long long)i,
                          fault);
    SL_TRY(mem_arena_str(&g->m->arena, name, n, &copy, err));
    t->name = copy;
    t->file = g->file;
    at = g->r.pos;
    uint32_t n_dim = rd_u32(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, t->name, err);
    if (n_dim > MAX_DIM)
        return IO_FAIL_AT(err, g->path, at, "tensor %.80s: %u dimensions, at most %d are read",
                          t->name, n_dim, MAX_DIM);
    t->n_dim = (int)n_dim;
    SL_TRY(read_dims(g, t, &count, err));
    SL_TRY(read_type(g, t, count, err));
    at = g->r.pos;
    t->offset = rd_u64(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, t->name, err);
    if (t->offset % g->align != 0)
        return IO_FAIL_AT(err, g->path, at,
                          "tensor %.80s: offset %llu is no multiple of the alignment %llu", t->name,
                          (unsigned long long)t->offset, (unsigned long long)g->align);
    return SL_OK;
}

static sl_status place_tensors(struct gguf *g, struct tensor *t, int n, sl_err *err)
{
    uint64_t start, end;
    if (n == 0) return SL_OK;
    if (!size_align(g->r.pos, g->align, &start)) return ends_early(g, "its header", err);
    for (int i = 0; i < n; i++) {
        uint64_t from_start = t[i].offset;
        if (!size_add(start, from_start, &t[i].offset) ||
            !size_add(t[i].offset, t[i].n_bytes, &end) || end > g->r.size)
            return IO_FAIL_AT(
                err, g->path, start,
                "tensor %.70s: %llu bytes at offset %llu do not fit in the file's %llu", t[i].name,
                (unsigned long long)t[i].n_bytes, (unsigned long long)from_start,
                (unsigned long long)g->r.size);
        t[i].data = g->r.base + t[i].offset;
    }
    return io_check_overlap(g->align, g->path, t, n, &g->m->arena, err);
}

/* ---- one part ---- */
static sl_status read_counts(struct gguf *g, uint64_t *n_tensor, uint64_t *n_kv, sl_err *err)
{
    rd_seek(&g->r, 4);
    uint32_t version = rd_u32(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, "its version", err);
    if (version != 2 && version != 3) {
        const char *why = version && (version & 0xffff) == 0 ? " (a big-endian file)" : "";
        status_fail(err, SL_UNSUPPORTED, __FILE__, __LINE__,
                    "GGUF version %u%s; versions 2 and 3 are read", version, why);
        status_prefix(err, "%s: byte 4", io_short(g->path));
        return SL_UNSUPPORTED;
    }
    *n_tensor = rd_u64(&g->r);
    *n_kv = rd_u64(&g->r);
    if (!rd_ok(&g->r)) return ends_early(g, "its counts", err);
    uint64_t left = rd_left(&g->r);
    if (*n_tensor > left / TENSOR_BYTES_MIN || *n_tensor > INT32_MAX / 4)
        return IO_FAIL_AT(err, g->path, 8, "%llu tensors can not fit in the %llu bytes left",
                          (unsigned long long)*n_tensor, (unsigned long long)left);
    if (*n_kv > left / KV_BYTES_MIN || *n_kv > INT32_MAX / 4)
        return IO_FAIL_AT(err, g->path, 16, "%llu keys can not fit in the %llu bytes left",
                          (unsigned long long)*n_kv, (unsigned long long)left);
    return SL_OK;
}

sl_status io_gguf_part(io_model *m, int i, struct io_part *out, sl_err *err)
{
    struct gguf g = {.m = m, .file = i, .path = m->file[i].path};
    uint64_t n_tensor = 0, n_kv = 0;
    void *p = NULL;
    g.r = rd_init(m->file[i].map.data, m->file[i].map.size);
    memset(out, 0, sizeof *out);
    const uint8_t *magic = rd_bytes(&g.r, 4);
    char what[140];
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        io_foreign_text(m->file[i].map.data, m->file[i].map.size, what, sizeof what);
        if (m->file[i].map.size && what[0])
            return SL_FAIL(err, FORMAT, "%s: not a GGUF file but %s", io_short(g.path), what);
    }
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return IO_FAIL_AT(err, g.path, 0, "not a GGUF file");
    SL_TRY(read_counts(&g, &n_tensor, &n_kv, err));
    SL_TRY(read_meta(&g, n_kv, &out->meta, err));
    SL_TRY(read_align(&g, &out->meta, err));
    if (n_tensor > rd_left(&g.r) / TENSOR_BYTES_MIN)
        return IO_FAIL_AT(err, g.path, 8, "%llu tensors can not fit in the %llu bytes left",
                          (unsigned long long)n_tensor, (unsigned long long)rd_left(&g.r));
    SL_TRY(mem_arena_array(&m->arena, n_tensor, sizeof *out->tensor, &p, err));
    out->tensor = p;
    for (uint64_t k = 0; k < n_tensor; k++)
        SL_TRY(read_tensor(&g, k, &out->tensor[k], err));
    out->n_tensor = (int)n_tensor;
    return place_tensors(&g, out->tensor, out->n_tensor, err);
}

/* ---- split files ---- */
/* "PREFIX-00001-of-00003.gguf": the length of PREFIX, the part's number and their count. False when
 * path is not of this form. */
static bool split_name(const char *path, size_t *prefix, unsigned *no, unsigned *count)
{
    size_t n = strlen(path), tail = strlen("-00001-of-00003.gguf");
    int used = 0;
    if (n <= tail) return false;
    *prefix = n - tail;
    return sscanf(path + *prefix, "-%5u-of-%5u.gguf%n", no, count, &used) == 2 && used == (int)tail;
}

/* What a part says of itself against what its name and the first part say. */
static sl_status check_part(const io_model *m, int i, const struct io_meta *meta, uint64_t count,
                            sl_err *err)
{
    uint64_t no = 0, cnt = 0;
    const char *path = m->file[i].path;
    SL_TRY(io_meta_get_u64(m, meta, "split.no", &no, err));
    SL_TRY(io_meta_get_u64(m, meta, "split.count", &cnt, err));
    if (no != (uint64_t)i)
        return SL_FAIL(err, FORMAT, "%s: split.no is %llu, by its name it is part %d",
                       io_short(path), (unsigned long long)no, i);
    if (cnt != count)
        return SL_FAIL(err, FORMAT, "%s: split.count is %llu, not %llu", io_short(path),
                       (unsigned long long)cnt, (unsigned long long)count);
    return SL_OK;
}

/* All tensors of the parts in one array. */
static sl_status join(io_model *m, const struct io_part *part, int n_part, sl_err *err)
{
    void *p = NULL;
    size_t n = 0;
    for (int i = 0; i < n_part; i++)
        n += (size_t)part[i].n_tensor;
    m->meta = part[0].meta;
    if (n_part == 1) {
        m->tensor = part[0].tensor;
        m->n_tensor = part[0].n_tensor;
        return SL_OK;
    }
    SL_TRY(mem_arena_array(&m->arena, n, sizeof *m->tensor, &p, err));
    m->tensor = p;
    for (int i = 0; i < n_part; i++) {
        memcpy(m->tensor + m->n_tensor, part[i].tensor,
               (size_t)part[i].n_tensor * sizeof *m->tensor);
        m->n_tensor += part[i].n_tensor;
    }
    return SL_OK;
}

/* Open all parts of which m->file[0] is one, in their order. */
static sl_status map_parts(io_model *m, unsigned count, int n_open, sl_err *err)
{
    size_t prefix = 0;
    unsigned no = 0, by_name = 0;
    void *p = NULL;
    struct io_file given = m->file[0];
    if (!split_name(given.path, &prefix, &no, &by_name) || by_name != count || no < 1 || no > count)
        return SL_FAIL(err, FORMAT,
                       "%s: one of %u parts, which must be named like x-00001-of-%05u.gguf",
                       io_short(given.path), count, count);
    SL_TRY(mem_arena_array(&m->arena, count, sizeof *m->file, &p, err));
    size_t cap = strlen(given.path) + 1;
    void *name = NULL;
    SL_TRY(mem_arena_alloc(&m->arena, cap, &name, err));
    os_map_close(&m->file[0].map);
    m->n_file = 0;
    m->file = p;
    for (unsigned i = 0; i < (unsigned)n_open; i++) {
        snprintf(name, cap, "%.*s-%05u-of-%05u.gguf", (int)prefix, given.path, i + 1, count);
        SL_TRY(io_add_file(m, name, err));
    }
    return SL_OK;
}

static sl_status open_split(io_model *m, uint64_t count, bool vocab_only, sl_err *err)
{
    int n_open = vocab_only ? 1 : (int)count;
    void *p = NULL;
    uint64_t n_tensor = 0;
    if (m->file[0].borrowed)
        return SL_FAIL(err, FORMAT, "%s: one part of a split file", io_short(m->path));
    SL_TRY(map_parts(m, (unsigned)count, n_open, err));
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_open, sizeof(struct io_part), &p, err));
    struct io_part *part = p;
    for (int i = 0; i < n_open; i++) {
        SL_TRY(io_gguf_part(m, i, &part[i], err));
        SL_TRY(check_part(m, i, &part[i].meta, count, err));
    }
    SL_TRY(join(m, part, n_open, err));
    sl_status st = io_meta_get_u64(m, &m->meta, "split.tensors.count", &n_tensor, err);
    if (st == SL_OK && !vocab_only && n_tensor != (uint64_t)m->n_tensor)
        return SL_FAIL(err, FORMAT, "%s: split.tensors.count is %llu, the parts have %d",
                       io_short(m->path), (unsigned long long)n_tensor, m->n_tensor);
    return st == SL_NOTFOUND ? SL_OK : st;
}

sl_status io_gguf_open(io_model *m, bool vocab_only, sl_err *err)
{
    struct io_part part;
    uint64_t count = 0;
    SL_TRY(io_gguf_part(m, 0, &part, err));
    sl_status st = io_meta_get_u64(m, &part.meta, "split.count", &count, err);
    if (st != SL_OK && st != SL_NOTFOUND) return st;
    if (count > MAX_PARTS)
        return SL_FAIL(err, FORMAT, "%s: split.count is %llu, at most %d are read",
                       io_short(m->path), (unsigned long long)count, MAX_PARTS);
    if (count > 1)
        SL_TRY(open_split(m, count, vocab_only, err));
    else
        SL_TRY(join(m, &part, 1, err));
    return io_index_tensors(m, err);
}
