/* SPDX-License-Identifier: Apache-2.0 */
/* Opening packed files. As with every other format nothing is believed: the checksums only tell
 * accidents apart; a file made to deceive has right ones, so every number is held against the
 * file's bytes as well. */
#include "io/pack.h"

#include <string.h>

#include "base/hash.h"
#include "base/size.h"
#include "io/pack_internal.h"

#define MAX_NAME 255
#define MAX_FMT 31
#define MAT_BYTES_MIN 96 /* three lengths, one byte of name, eight numbers, two scales */

struct io_pack {
    char *path;
    struct os_map map; /* owned, or the caller's */
    bool borrowed;
    struct arena arena;
    char layout[PACK_LAYOUT_MAX + 1];
    bool exact;
    struct io_stamp *stamp;
    int n_stamp;
    struct io_pack_mat *mat;
    int n_mat;
    struct io_index by_name;
    uint64_t tables, tables_bytes,
        rest; /* of the file; rest: where the description of the source begins */
};

bool io_pack_is(const char *path)
{
    char head[8];
    return os_read_start(path, head, sizeof head) == sizeof head &&
           memcmp(head, PACK_MAGIC, 8) == 0;
}

uint64_t io_pack_sum(const uint64_t unit_bytes[2], uint64_t n_unit, uint64_t at, const uint8_t *p,
                     uint64_t n)
{
    uint64_t sum = 0, first = unit_bytes[0] * n_unit;
    for (uint64_t end = at + n; at < end;) {
        uint64_t unit = unit_bytes[at >= first];
        sum += hash_bytes(p, unit, at);
        p += unit;
        at += unit;
    }
    return sum;
}

/* ---- reading ---- */
static sl_status ends_early(const io_pack *p, const struct rd *r, const char *what, sl_err *err)
{
    return IO_FAIL_AT(err, p->path, p->tables + r->pos, "the tables end inside %s", what);
}

/* A name in the arena; "" only where empty is set. */
static sl_status read_name(io_pack *p, struct rd *r, uint64_t max, bool empty, const char **out,
                           sl_err *err)
{
    uint64_t at = p->tables + r->pos, n;
    char *copy = NULL;
    const char *s = rd_str64(r, &n);
    if (!s) return ends_early(p, r, "a name", err);
    const char *fault = empty && n == 0 ? NULL : io_name_fault(s, n, max);
    if (fault) return IO_FAIL_AT(err, p->path, at, "a name %s", fault);
    SL_TRY(mem_arena_str(&p->arena, s, n, &copy, err));
    *out = copy;
    return SL_OK;
}

static sl_status read_header(io_pack *p, sl_err *err)
{
    struct rd r = rd_init(p->map.data, p->map.size);
    const uint8_t *magic = rd_bytes(&r, 8);
    uint32_t version = rd_u32(&r), head = rd_u32(&r);
    uint64_t size = rd_u64(&r), data = rd_u64(&r);
    p->tables = rd_u64(&r);
    p->tables_bytes = rd_u64(&r);
    uint64_t tables_hash = rd_u64(&r), flags = rd_u64(&r), end;
    const uint8_t *layout = rd_bytes(&r, PACK_LAYOUT_MAX);
    uint64_t hash = rd_u64(&r);
    if (!magic || memcmp(magic, PACK_MAGIC, 8) != 0)
        return IO_FAIL_AT(err, p->path, 0, "not a packed file");
    if (!rd_ok(&r)) return IO_FAIL_AT(err, p->path, p->map.size, "the file ends inside its header");
    if (version != PACK_VERSION) {
        SL_FAIL(err, UNSUPPORTED, "packed file of version %u, this sluice reads %d: pack it again",
                version, PACK_VERSION);
        status_prefix(err, "%s: byte 8", io_short(p->path));
        return SL_UNSUPPORTED;
    }
    if (head != PACK_HEADER || hash_bytes(p->map.data, PACK_HEADER - 8, 0) != hash)
        return IO_FAIL_AT(err, p->path, PACK_HEADER - 8, "the header's checksum is wrong");
    if (size != p->map.size)
        return IO_FAIL_AT(err, p->path, 16, "the file has %llu bytes, its header says %llu",
                          (unsigned long long)p->map.size, (unsigned long long)size);
    if (data != PACK_DATA || p->tables < data || !size_add(p->tables, p->tables_bytes, &end) ||
        end != size)
        return IO_FAIL_AT(err, p->path, 24, "data and tables do not fit in %llu bytes",
                          (unsigned long long)size);
    if (hash_bytes(p->map.data + p->tables, p->tables_bytes, 0) != tables_hash)
        return IO_FAIL_AT(err, p->path, p->tables, "the tables' checksum is wrong");
    memcpy(p->layout, layout, PACK_LAYOUT_MAX);
    p->exact = flags & 1;
    return SL_OK;
}

static sl_status read_stamps(io_pack *p, struct rd *r, sl_err *err)
{
    void *q = NULL;
    uint32_t n = rd_u32(r);
    if (n < 1 || n > rd_left(r) / 33) return ends_early(p, r, "the source's files", err);
    SL_TRY(mem_arena_array(&p->arena, n, sizeof *p->stamp, &q, err));
    p->stamp = q;
    for (; p->n_stamp < (int)n; p->n_stamp++) {
        struct io_stamp *s = &p->stamp[p->n_stamp];
        SL_TRY(read_name(p, r, 4095, false, &s->path, err));
        s->size = rd_u64(r);
        s->hash = rd_u64(r);
        s->mtime_ns = (int64_t)rd_u64(r);
        if (!rd_ok(r)) return ends_early(p, r, "the source's files", err);
    }
    return SL_OK;
}

/* Where its bytes lie: whole, inside the data, aligned. */
static sl_status place_mat(io_pack *p, uint64_t at, struct io_pack_mat *m, sl_err *err)
{
    uint64_t unit, end, tiles = ((uint64_t)m->rows + 15) / 16;
    if (m->n < 1 || m->rows < 1 || m->cols < 1 || m->is_pair > 1 || (uint64_t)m->rows > INT32_MAX ||
        (uint64_t)m->cols > INT32_MAX)
        return IO_FAIL_AT(err, p->path, at, "matrix %.80s: %d of %lld x %lld are none", m->name,
                          m->n, (long long)m->rows, (long long)m->cols);
    m->n_unit = tiles * (uint64_t)m->n;
    if (m->unit_bytes[0] < 64 || m->unit_bytes[0] % 64 || m->unit_bytes[1] % 64 ||
        (m->unit_bytes[1] != 0) != (m->fmt[1] != NULL))
        return IO_FAIL_AT(err, p->path, at, "matrix %.80s: units of %llu and %llu bytes are none",
                          m->name, (unsigned long long)m->unit_bytes[0],
                          (unsigned long long)m->unit_bytes[1]);
    if (!size_add(m->unit_bytes[0], m->unit_bytes[1], &unit) ||
        !size_mul(unit, m->n_unit, &m->n_bytes) || !size_add(m->offset, m->n_bytes, &end) ||
        m->offset < PACK_DATA || m->offset % PACK_ALIGN || end > p->tables)
        return IO_FAIL_AT(err, p->path, at,
                          "matrix %.80s: %llu bytes at %llu are not inside the data", m->name,
                          (unsigned long long)m->n_bytes, (unsigned long long)m->offset);
    m->data = p->map.data + m->offset;
    return SL_OK;
}

static sl_status read_mat(io_pack *p, struct rd *r, struct io_pack_mat *m, sl_err *err)
{
    uint64_t at = p->tables + r->pos;
    void *q = NULL;
    SL_TRY(read_name(p, r, MAX_NAME, false, &m->name, err));
    SL_TRY(read_name(p, r, MAX_FMT, false, &m->fmt[0], err));
    SL_TRY(read_name(p, r, MAX_FMT, true, &m->fmt[1], err));
    if (!*m->fmt[1]) m->fmt[1] = NULL;
    uint32_t n = rd_u32(r);
    m->is_pair = (int)(rd_u32(r) & INT32_MAX);
    m->rows = (int64_t)rd_u64(r);
    m->cols = (int64_t)rd_u64(r);
    m->unit_bytes[0] = rd_u64(r);
    m->unit_bytes[1] = rd_u64(r);
    m->offset = rd_u64(r);
    m->check = rd_u64(r);
    const uint8_t *scale = n <= rd_left(r) / 8 ? rd_bytes(r, (uint64_t)n * 8) : NULL;
    if (!scale) return ends_early(p, r, "a matrix", err);
    m->n = (int)n;
    SL_TRY(place_mat(p, at, m, err));
    SL_TRY(mem_arena_array(&p->arena, 2 * (size_t)n, sizeof(float), &q, err));
    memcpy(q, scale, (size_t)n * 8);
    m->scale = q;
    return SL_OK;
}

static sl_status read_mats(io_pack *p, struct rd *r, sl_err *err)
{
    void *q = NULL;
    uint32_t n = rd_u32(r);
    if (n > rd_left(r) / MAT_BYTES_MIN) return ends_early(p, r, "the matrices", err);
    SL_TRY(mem_arena_array(&p->arena, n, sizeof *p->mat, &q, err));
    p->mat = q;
    SL_TRY(io_index_init(&p->by_name, &p->arena, n, err));
    uint64_t end = PACK_DATA;
    for (; p->n_mat < (int)n; p->n_mat++) {
        struct io_pack_mat *m = &p->mat[p->n_mat];
        uint64_t at = p->tables + r->pos;
        SL_TRY(read_mat(p, r, m, err));
        if (m->offset < end)
            return IO_FAIL_AT(err, p->path, at, "matrix %.80s begins inside the one before",
                              m->name);
        end = m->offset + m->n_bytes;
        if (io_index_put(&p->by_name, m->name, strlen(m->name), p->n_mat) >= 0)
            return IO_FAIL_AT(err, p->path, at, "matrix %.80s is there twice", m->name);
    }
    return SL_OK;
}

static sl_status read_tables(io_pack *p, sl_err *err)
{
    SL_TRY(read_header(p, err));
    struct rd r = rd_init(p->map.data + p->tables, p->tables_bytes);
    SL_TRY(read_stamps(p, &r, err));
    SL_TRY(read_mats(p, &r, err));
    p->rest = p->tables + r.pos;
    return SL_OK;
}

static sl_status new_pack(const char *path, io_pack **out, sl_err *err)
{
    void *q = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &q, err));
    io_pack *p = *out = q;
    mem_arena_init(&p->arena, MEM_MISC, 0);
    sl_status st = mem_arena_str(&p->arena, path, strlen(path), &p->path, err);
    if (st) {
        io_pack_close(p);
        *out = NULL;
    }
    return st;
}

static sl_status open_map(const char *path, const struct os_map *map, io_pack **out, sl_err *err)
{
    io_pack *p = NULL;
    *out = NULL;
    SL_TRY(new_pack(path, &p, err));
    sl_status st = SL_OK;
    p->borrowed = map != NULL;
    if (map)
        p->map = *map;
    else
        SL_TRY_OUT(os_map_open(path, &p->map, err));
    if (!map) os_map_huge(&p->map);
    SL_TRY_OUT(read_tables(p, err));
    *out = p;
    return SL_OK;
out:
    io_pack_close(p);
    return st;
}

sl_status io_pack_open(const char *path, io_pack **out, sl_err *err)
{
    return open_map(path, NULL, out, err);
}

void io_pack_close(io_pack *p)
{
    if (!p) return;
    if (!p->borrowed) os_map_close(&p->map);
    mem_arena_fini(&p->arena);
    mem_free(p);
}

/* ---- what it says ---- */
const char *io_pack_path(const io_pack *p)
{
    return p->path;
}

const char *io_pack_layout(const io_pack *p)
{
    return p->layout;
}

bool io_pack_exact(const io_pack *p)
{
    return p->exact;
}

uint64_t io_pack_bytes(const io_pack *p)
{
    return p->map.size;
}

int io_pack_n_stamp(const io_pack *p)
{
    return p->n_stamp;
}

const struct io_stamp *io_pack_stamp(const io_pack *p, int i)
{
    return &p->stamp[i];
}

int io_pack_n_mat(const io_pack *p)
{
    return p->n_mat;
}

const struct io_pack_mat *io_pack_mat_at(const io_pack *p, int i)
{
    return &p->mat[i];
}

const struct io_pack_mat *io_pack_find(const io_pack *p, const char *name)
{
    int i = io_index_find(&p->by_name, name, strlen(name));
    return i < 0 ? NULL : &p->mat[i];
}

bool io_pack_fits(const io_pack *p, const io_model *src, sl_err *why)
{
    struct io_stamp now;
    char path[4096];
    int n = io_n_stamp(src);
    if (n != p->n_stamp) {
        SL_FAIL(why, FORMAT, "made from %d files, there are %d", p->n_stamp, n);
        return false;
    }
    for (int i = 0; i < n; i++) {
        const struct io_stamp *then = &p->stamp[i];
        if (io_stamp_now(src, i, path, sizeof path, &now, why)) return false;
        const char *what = now.size != then->size           ? "size"
                           : now.mtime_ns != then->mtime_ns ? "time"
                           : now.hash != then->hash         ? "contents"
                                                            : NULL;
        if (!what) continue;
        SL_FAIL(why, FORMAT, "%s of %s changed since it was packed", what, io_short(path));
        return false;
    }
    return true;
}

sl_status io_pack_check(const io_pack *p, int i, sl_err *err)
{
    const struct io_pack_mat *m = &p->mat[i];
    SL_TRY(os_touch(m->data, m->n_bytes, err));
    if (io_pack_sum(m->unit_bytes, m->n_unit, 0, m->data, m->n_bytes) == m->check) return SL_OK;
    return IO_FAIL_AT(err, p->path, m->offset, "matrix %.100s: its checksum is wrong", m->name);
}

/* ---- as a model ---- */
const io_pack *io_model_pack(const io_model *m)
{
    return m->pack;
}

static sl_status read_gguf_meta(io_model *m, const uint8_t *bytes, uint64_t n, sl_err *err)
{
    struct io_part part;
    m->file[1] = (struct io_file){
        .path = m->file[0].path, .map = {.data = bytes, .size = n}, .borrowed = true};
    SL_TRY(io_gguf_part(m, 1, &part, err));
    m->meta = part.meta;
    return part.n_tensor ? SL_FAIL(err, FORMAT, "%s: metadata with tensors", io_short(m->path))
                         : SL_OK;
}

static sl_status read_texts(io_model *m, struct rd *r, sl_err *err)
{
    void *q = NULL;
    uint32_t n = rd_u32(r);
    if (n > 64) return ends_early(m->pack, r, "the texts", err);
    SL_TRY(mem_arena_array(&m->arena, n, sizeof *m->text, &q, err));
    m->text = q;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = NULL;
        SL_TRY(read_name(m->pack, r, MAX_NAME, false, &name, err));
        uint64_t len = rd_u64(r);
        const uint8_t *p = rd_bytes(r, len);
        if (!p) return ends_early(m->pack, r, "a text", err);
        bool config = strcmp(name, "config.json") == 0;
        if (config || strcmp(name, "generation_config.json") == 0) {
            SL_TRY(io_folder_json(m, name, (const char *)p, len,
                                  config ? &m->config : &m->generation_config, err));
            continue;
        }
        m->text[m->n_text++] =
            (struct io_text){.name = name, .map = {.data = p, .size = len}, .borrowed = true};
    }
    return SL_OK;
}

static sl_status read_tensor(io_model *m, struct rd *r, struct tensor *t, sl_err *err)
{
    io_pack *p = m->pack;
    uint64_t at = p->tables + r->pos, count = 1;
    const char *type = NULL;
    SL_TRY(read_name(p, r, MAX_NAME, false, &t->name, err));
    SL_TRY(read_name(p, r, MAX_FMT, false, &type, err));
    uint32_t n_dim = rd_u32(r);
    if (!tensor_dtype_from_text(type, strlen(type), &t->type) || n_dim > TENSOR_MAX_DIM)
        return IO_FAIL_AT(err, p->path, at,
                          "tensor %.80s: type %.20s or %u dimensions are not known", t->name, type,
                          n_dim);
    t->n_dim = (int)n_dim;
    for (int i = 0; i < TENSOR_MAX_DIM; i++) {
        uint64_t d = i < t->n_dim ? rd_u64(r) : 1;
        if (d > INT64_MAX || !size_mul(count, d, &count) || count > INT64_MAX)
            return IO_FAIL_AT(err, p->path, at, "tensor %.80s: its size overflows", t->name);
        t->shape[i] = (int64_t)d;
    }
    uint8_t stored = rd_u8(r);
    if (!rd_ok(r)) return ends_early(p, r, "a tensor", err);
    const struct tensor_dtype_info *d = tensor_dtype(t->type);
    if (tensor_cols(t) % d->block || !tensor_bytes(t->type, count, &t->n_bytes))
        return IO_FAIL_AT(err, p->path, at, "tensor %.80s: its shape does not fit %s", t->name,
                          d->text);
    t->offset = p->tables + r->pos;
    if (stored) t->data = rd_bytes(r, t->n_bytes);
    if (stored ? !t->data : t->n_dim < 2) return ends_early(p, r, t->name, err);
    return SL_OK;
}

static sl_status read_rest(io_model *m, bool vocab_only, sl_err *err)
{
    io_pack *p = m->pack;
    struct rd r = rd_init(p->map.data + p->tables, p->tables_bytes);
    void *q = NULL;
    rd_seek(&r, p->rest - p->tables);
    uint8_t kind = rd_u8(&r);
    m->kind = kind ? IO_HF : IO_GGUF;
    if (kind) {
        SL_TRY(read_texts(m, &r, err));
    } else {
        uint64_t n = rd_u64(&r);
        const uint8_t *meta = rd_bytes(&r, n);
        if (!meta) return ends_early(p, &r, "the metadata", err);
        SL_TRY(read_gguf_meta(m, meta, n, err));
    }
    uint32_t n = rd_u32(&r);
    if (!rd_ok(&r) || n > rd_left(&r) / 22) return ends_early(p, &r, "the tensors", err);
    SL_TRY(mem_arena_array(&m->arena, n, sizeof *m->tensor, &q, err));
    m->tensor = q;
    for (; m->n_tensor < (int)n; m->n_tensor++)
        SL_TRY(read_tensor(m, &r, &m->tensor[m->n_tensor], err));
    if (rd_left(&r))
        return IO_FAIL_AT(err, p->path, p->tables + r.pos, "bytes after the last tensor");
    (void)vocab_only;
    return io_index_tensors(m, err);
}

sl_status io_pack_model(io_model *m, bool vocab_only, sl_err *err)
{
    void *q = NULL;
    struct io_file given = m->file[0];
    SL_TRY(mem_arena_array(&m->arena, 2, sizeof *m->file, &q,
                           err)); /* the second: metadata inside the first */
    m->file = q;
    m->file[0] = given;
    if (!given.borrowed && !vocab_only) os_map_huge(&given.map);
    SL_TRY(open_map(given.path, &given.map, &m->pack, err));
    return read_rest(m, vocab_only, err);
}

sl_status io_pack_rows(const struct io_pack_mat *m, int i, int64_t row0, int64_t n_row,
                       struct io_pack_rows *out, sl_err *err)
{
    *out = (struct io_pack_rows){.scale = NULL};
    if (i < 0 || i >= m->n || row0 < 0 || n_row < 1 || row0 > m->rows - n_row)
        return SL_FAIL(
            err, REQUEST, "matrix %.80s: rows %lld to %lld of number %d: %d of %lld are there",
            m->name, (long long)row0, (long long)(row0 + n_row), i, m->n, (long long)m->rows);
    if (row0 % 16 || (n_row % 16 && row0 + n_row != m->rows))
        return SL_FAIL(err, REQUEST, "matrix %.80s: rows %lld to %lld are not whole units of 16",
                       m->name, (long long)row0, (long long)(row0 + n_row));
    uint64_t per = ((uint64_t)m->rows + 15) / 16, first = (uint64_t)i * per + (uint64_t)row0 / 16,
             n = ((uint64_t)n_row + 15) / 16;
    const uint8_t *half = m->data;
    for (int k = 0; k < 2 && (k == 0 || m->fmt[1]); k++) {
        out->data[k] = half + first * m->unit_bytes[k];
        out->n_bytes[k] = n * m->unit_bytes[k];
        half += m->n_unit * m->unit_bytes[k];
    }
    out->scale = m->scale + 2 * (size_t)i;
    return SL_OK;
}
