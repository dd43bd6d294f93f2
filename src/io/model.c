/* SPDX-License-Identifier: Apache-2.0 */
/* Opening by what is at the path, and the parts that both kinds of model share. */
#include "io/io.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/size.h"
#include "io/pack_internal.h"
#include "text/utf8.h"

const char *io_short(const char *path)
{
    size_t n = strlen(path);
    return n <= 100 ? path : path + n - 100;
}

/* ---- names ---- */
sl_status io_index_init(struct io_index *ix, struct arena *a, uint64_t n, sl_err *err)
{
    uint64_t cap = 8;
    void *p = NULL;
    while (cap < 2 * n)
        cap *= 2;
    SL_TRY(mem_arena_array(a, cap, sizeof *ix->slot, &p, err));
    ix->slot = p;
    ix->mask = cap - 1;
    ix->seed = (uint64_t)clock_now_ns();
    return SL_OK;
}

/* The slot of a name, or the free one where it belongs. */
static struct io_slot *slot_of(const struct io_index *ix, const char *p, uint64_t n, uint64_t hash)
{
    for (uint64_t s = hash & ix->mask;; s = (s + 1) & ix->mask) {
        struct io_slot *slot = &ix->slot[s];
        if (!slot->p || (slot->hash == hash && slot->n == n && memcmp(slot->p, p, n) == 0))
            return slot;
    }
}

int io_index_find(const struct io_index *ix, const char *p, uint64_t n)
{
    if (!ix->slot) return -1;
    const struct io_slot *slot = slot_of(ix, p, n, hash_bytes(p, n, ix->seed));
    return slot->p ? slot->i : -1;
}

int io_index_put(struct io_index *ix, const char *p, uint64_t n, int i)
{
    uint64_t hash = hash_bytes(p, n, ix->seed);
    struct io_slot *slot = slot_of(ix, p, n, hash);
    if (slot->p) return slot->i;
    *slot = (struct io_slot){.p = p, .n = n, .hash = hash, .i = i};
    return -1;
}

const char *io_name_fault(const char *s, uint64_t n, uint64_t max)
{
    if (n == 0) return "is empty";
    if (n > max) return "is too long";
    if (text_utf8_check(s, n) != n) return "is not UTF-8";
    for (uint64_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) return "has a control character";
    return NULL;
}

/* ---- files and tensors ---- */
sl_status io_add_file(io_model *m, const char *path, sl_err *err)
{
    struct io_file *f = &m->file[m->n_file];
    SL_TRY(mem_arena_str(&m->arena, path, strlen(path), &f->path, err));
    SL_TRY(os_map_open(path, &f->map, err));
    m->n_file++;
    return SL_OK;
}

sl_status io_index_tensors(io_model *m, sl_err *err)
{
    SL_TRY(io_index_init(&m->by_name, &m->arena, (uint64_t)m->n_tensor, err));
    for (int i = 0; i < m->n_tensor; i++) {
        const char *name = m->tensor[i].name;
        if (io_index_put(&m->by_name, name, strlen(name), i) >= 0)
            return SL_FAIL(err, FORMAT, "%s: tensor %.100s is there twice",
                           io_short(m->n_file ? m->file[m->tensor[i].file].path : m->path), name);
    }
    return SL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor *x = *(const struct tensor *const *)a,
                        *y = *(const struct tensor *const *)b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
                                  : (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

sl_status io_check_overlap(uint64_t align, const char *path, const struct tensor *t, int n,
                           struct arena *a, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(a, (size_t)n, sizeof(struct tensor *), &p, err));
    const struct tensor **order = p;
    bool sorted = true;
    for (int i = 0; i < n; i++) {
        order[i] = &t[i];
        sorted = sorted && (i == 0 || t[i - 1].offset <= t[i].offset);
    }
    if (!sorted) qsort(order, (size_t)n, sizeof *order, by_offset);
    for (int i = 1; i < n; i++) {
        uint64_t at = order[i]->offset, end = order[i - 1]->offset + order[i - 1]->n_bytes;
        if (at < end)
            return IO_FAIL_AT(err, path, at, "tensors %.50s and %.50s overlap", order[i - 1]->name,
                              order[i]->name);
        if (at - end >= align)
            return IO_FAIL_AT(err, path, end,
                              "a hole of %llu bytes between the tensors %.50s and %.50s",
                              (unsigned long long)(at - end), order[i - 1]->name, order[i]->name);
    }
    return SL_OK;
}

/* ---- opening ---- */
static sl_status new_model(const char *path, io_model **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(io_model), &p, err));
    io_model *m = p;
    mem_arena_init(&m->arena, MEM_MISC, 0);
    sl_status st = mem_arena_str(&m->arena, path, strlen(path), &m->path, err);
    if (st == SL_OK)
        *out = m;
    else
        io_close(m);
    return st;
}

/* m->file[0] is there; decide what it is. */
static sl_status open_file(io_model *m, bool vocab_only, sl_err *err)
{
    const struct io_file *f = &m->file[0];
    struct rd r = rd_init(f->map.data, f->map.size);
    const uint8_t *magic = rd_bytes(&r, 4);
    if (magic && memcmp(magic, "GGUF", 4) == 0) {
        m->kind = IO_GGUF;
        return io_gguf_open(m, vocab_only, err);
    }
    if (magic && f->map.size >= 8 && memcmp(f->map.data, PACK_MAGIC, 8) == 0)
        return io_pack_model(m, vocab_only, err);
    r = rd_init(f->map.data, f->map.size);
    uint64_t n = rd_u64(&r);
    const uint8_t *brace = rd_bytes(&r, 1);
    size_t len = strlen(f->path);
    if ((brace && *brace == '{' && n <= f->map.size - 8) ||
        (len > 12 && strcmp(f->path + len - 12, ".safetensors") == 0)) {
        m->kind = IO_HF;
        SL_TRY(io_safetensors_read(m, 0, &m->tensor, &m->n_tensor, err));
        return io_index_tensors(m, err);
    }
    char what[140];
    io_foreign_text(f->map.data, f->map.size, what, sizeof what);
    if (f->map.size && what[0])
        return SL_FAIL(err, FORMAT, "%s: not a model file but %s", io_short(f->path), what);
    if (f->map.size < 4)
        return SL_FAIL(err, FORMAT, "%s: %llu bytes are no model file", io_short(f->path),
                       (unsigned long long)f->map.size);
    return IO_FAIL_AT(err, f->path, 0,
                      "neither GGUF nor safetensors (it starts with %02x %02x %02x %02x)", magic[0],
                      magic[1], magic[2], magic[3]);
}

static sl_status one_file(io_model *m, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 1, sizeof *m->file, &p, err));
    m->file = p;
    return SL_OK;
}

sl_status io_open(const char *path, bool vocab_only, io_model **out, sl_err *err)
{
    io_model *m = NULL;
    SL_TRY(new_model(path, &m, err));
    sl_status st = SL_OK;
    if (os_path_kind(path) == OS_DIR) {
        m->kind = IO_HF;
        SL_TRY_OUT(io_folder_open(m, vocab_only, err));
    } else {
        SL_TRY_OUT(one_file(m, err));
        SL_TRY_OUT(io_add_file(m, path, err));
        SL_TRY_OUT(open_file(m, vocab_only, err));
    }
    *out = m;
    m = NULL;
out:
    io_close(m);
    return st;
}

sl_status io_open_bytes(const char *name, const void *bytes, uint64_t n, io_model **out,
                        sl_err *err)
{
    io_model *m = NULL;
    SL_TRY(new_model(name, &m, err));
    sl_status st = SL_OK;
    SL_TRY_OUT(one_file(m, err));
    m->file[0] =
        (struct io_file){.path = m->path, .map = {.data = bytes, .size = n}, .borrowed = true};
    m->n_file = 1;
    SL_TRY_OUT(open_file(m, false, err));
    *out = m;
    m = NULL;
out:
    io_close(m);
    return st;
}

void io_close(io_model *m)
{
    if (!m) return;
    for (int i = 0; i < m->n_file; i++)
        if (!m->file[i].borrowed) os_map_close(&m->file[i].map);
    for (int i = 0; i < m->n_text; i++)
        if (!m->text[i].borrowed) os_map_close(&m->text[i].map);
    io_pack_close(m->pack);
    io_mock_close(m);
    if (m->quant_close) m->quant_close(m->quant_own);
    mem_arena_fini(&m->arena);
    mem_free(m);
}

/* ---- reading off ---- */
enum io_kind io_model_kind(const io_model *m)
{
    return m->kind;
}

const char *io_path(const io_model *m)
{
    return m->path;
}

sl_status io_name_file(const io_model *m, sl_status st, sl_err *err)
{
    const char *path = io_short(m->path);
    bool of_file = st == SL_FORMAT || st == SL_UNSUPPORTED || st == SL_NOTFOUND;
    if (of_file && err && !strstr(err->text, path)) status_prefix(err, "%s", path);
    return st;
}

int io_n_file(const io_model *m)
{
    return m->n_file;
}

const char *io_file_path(const io_model *m, int file)
{
    return m->file[file].path;
}

uint64_t io_file_size(const io_model *m, int file)
{
    return m->file[file].map.size;
}

int io_n_tensor(const io_model *m)
{
    return m->n_tensor;
}

const struct tensor *io_tensor(const io_model *m, int i)
{
    return &m->tensor[i];
}

const struct tensor *io_find(const io_model *m, const char *name)
{
    int i = io_index_find(&m->by_name, name, strlen(name));
    return i < 0 ? NULL : &m->tensor[i];
}

const struct tensor *io_findf(const io_model *m, const char *fmt, ...)
{
    char name[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return n < 0 || n >= (int)sizeof name ? NULL : io_find(m, name);
}

static void drop(const io_model *m, const void *p, uint64_t n,
                 void (*how)(const struct os_map *, uint64_t, uint64_t))
{
    for (int i = 0; i < m->n_file; i++) {
        const struct os_map *map = &m->file[i].map;
        uint64_t at =
            (uint64_t)((uintptr_t)p - (uintptr_t)map->data); /* wraps far up when p lies before */
        if (m->file[i].borrowed || at >= map->size) continue;
        how(map, at, BASE_MIN(n, map->size - at));
        return;
    }
}

void io_drop(const io_model *m, const void *p, uint64_t n)
{
    drop(m, p, n, os_map_drop);
}

void io_will_need(const io_model *m, const void *p, uint64_t n)
{
    drop(m, p, n, os_map_will_need);
}

void io_parts(const io_model *m, bool parts)
{
    for (int i = 0; i < m->n_file; i++)
        if (!m->file[i].borrowed) os_map_parts(&m->file[i].map, parts);
}

void io_evict(const io_model *m, const void *p, uint64_t n)
{
    drop(m, p, n, os_map_evict);
}

/* ---- what packed files are held against ---- */
/* The quantiser's own file, where config.json does not say how the weights are stored. */
static bool has_quant_file(const io_model *m)
{
    return m->quant_file && strcmp(m->quant_file, "config.json") != 0;
}

int io_n_stamp(const io_model *m)
{
    return m->n_file + (m->config != NULL) + has_quant_file(m);
}

sl_status io_stamp_now(const io_model *m, int i, char *path, size_t n, struct io_stamp *out,
                       sl_err *err)
{
    char other[4096];
    bool quant = has_quant_file(m) && i == io_n_stamp(m) - 1;
    const char *p = i < m->n_file ? m->file[i].path : other;
    int k = snprintf(other, sizeof other, "%s/%s", m->path, quant ? m->quant_file : "config.json");
    if (k < 0 || (size_t)k >= sizeof other || !os_path_full(p, path, n))
        return SL_FAIL(err, IO, "%s: has no absolute name", io_short(p));
    out->path = path;
    return os_stamp(p, &out->size, &out->mtime_ns, &out->hash, err);
}

sl_status io_files_hash(const io_model *m, uint64_t *out, sl_err *err)
{
    const io_pack *p = io_model_pack(m);
    char path[4096];
    *out = 0;
    for (int i = 0, n = p ? io_pack_n_stamp(p) : io_n_stamp(m); i < n; i++) {
        struct io_stamp now;
        if (p)
            now = *io_pack_stamp(p, i);
        else
            SL_TRY(io_stamp_now(m, i, path, sizeof path, &now, err));
        const uint64_t v[] = {now.size, now.hash};
        *out = hash_bytes(v, sizeof v, *out);
    }
    return SL_OK;
}
