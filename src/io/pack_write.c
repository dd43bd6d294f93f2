/* SPDX-License-Identifier: Apache-2.0 */
/* Writing packed files. The header is written last, to a file under a temporary name: what was cut
 * off by anything has no header and not the name. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/size.h"
#include "io/pack_internal.h"
#include "io/write_internal.h"

#define MAX_WORKER 1024

struct worker {
    uint64_t sum; /* of the matrix that is being written */
    sl_err err;
};

struct io_pack_out {
    struct os_out file;
    const io_model *src;
    char layout[PACK_LAYOUT_MAX];
    uint64_t end;    /* of what has a place */
    struct str mats; /* finished rows of the table */
    uint32_t n_mat;
    struct io_pack_mat
        now;        /* n = 0: none; name and scale are the caller's until its row is written */
    struct str row; /* of it, up to the checksum */
    struct str scale;
    struct str vectors, vector_names; /* rows of the tensor table; their names */
    uint32_t n_vector;
    struct worker w[MAX_WORKER];
};

static void put_uint(struct str *s, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        str_putc(s, (char)(v >> (8 * i)));
}

static void put_name(struct str *s, const char *z)
{
    size_t n = z ? strlen(z) : 0;
    put_uint(s, n, 8);
    if (n) str_put(s, z, n);
}

sl_status io_pack_out_open(const char *path, const io_model *src, const char *layout,
                           io_pack_out **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    io_pack_out *o = p;
    o->src = src;
    o->end = PACK_DATA;
    str_init(&o->mats, MEM_MISC, 0);
    str_init(&o->row, MEM_MISC, 0);
    str_init(&o->scale, MEM_MISC, 0);
    str_init(&o->vectors, MEM_MISC, 0);
    str_init(&o->vector_names, MEM_MISC, 0);
    size_t n = strlen(layout);
    ASSERT(n < PACK_LAYOUT_MAX);
    memcpy(o->layout, layout, n);
    sl_status st = os_out_open(path, &o->file, err);
    if (st == SL_OK && o->file.direct)
        st = SL_FAIL(err, IO, "%s: is no regular file", io_short(path));
    if (st)
        io_pack_out_abort(o);
    else
        *out = o;
    return st;
}

sl_status io_pack_out_failed(const io_pack_out *o, sl_err *err)
{
    for (int i = 0; i < MAX_WORKER; i++)
        if (o->w[i].err.code) {
            if (err) *err = o->w[i].err;
            return o->w[i].err.code;
        }
    return SL_OK;
}

/* The table's row of the matrix that was being written. */
static sl_status end_mat(io_pack_out *o, sl_err *err)
{
    uint64_t sum = 0;
    if (!o->now.n) return SL_OK;
    for (int i = 0; i < MAX_WORKER; i++) {
        sum += o->w[i].sum;
        o->w[i].sum = 0;
    }
    str_put(&o->mats, str_c(&o->row), o->row.n);
    put_uint(&o->mats, sum, 8);
    str_put(&o->mats, str_c(&o->scale), o->scale.n);
    o->n_mat++;
    o->end = o->now.offset + o->now.n_bytes;
    o->now.n = 0;
    return io_pack_out_failed(o, err);
}

sl_status io_pack_out_mat(io_pack_out *o, const struct io_pack_mat *m, sl_err *err)
{
    SL_TRY(end_mat(o, err));
    o->now = *m;
    if (!size_align(o->end, PACK_ALIGN, &o->now.offset))
        return SL_FAIL(err, LIMIT, "%s: too long", o->file.path);
    o->now.n_bytes = m->n_unit * (m->unit_bytes[0] + m->unit_bytes[1]);
    str_clear(&o->row);
    str_clear(&o->scale);
    put_name(&o->row, m->name);
    put_name(&o->row, m->fmt[0]);
    put_name(&o->row, m->fmt[1]);
    put_uint(&o->row, (uint64_t)m->n, 4);
    put_uint(&o->row, (uint64_t)m->is_pair, 4);
    put_uint(&o->row, (uint64_t)m->rows, 8);
    put_uint(&o->row, (uint64_t)m->cols, 8);
    put_uint(&o->row, m->unit_bytes[0], 8);
    put_uint(&o->row, m->unit_bytes[1], 8);
    put_uint(&o->row, o->now.offset, 8);
    for (int i = 0; i < 2 * m->n; i++) {
        uint32_t bits;
        memcpy(&bits, &m->scale[i], 4);
        put_uint(&o->scale, bits, 4);
    }
    return str_status(&o->row, err);
}

void io_pack_out_bytes(io_pack_out *o, int worker, uint64_t at, const void *p, uint64_t n)
{
    struct worker *w = &o->w[worker < MAX_WORKER ? worker : 0];
    if (w->err.code) return;
    w->sum += io_pack_sum(o->now.unit_bytes, o->now.n_unit, at, p, n);
    if (os_out_write_at(&o->file, o->now.offset + at, p, n, &w->err)) return;
}

/* ---- the tables ---- */
static sl_status put_stamps(const io_model *src, struct str *s, sl_err *err)
{
    int n = io_n_stamp(src);
    put_uint(s, (uint64_t)n, 4);
    for (int i = 0; i < n; i++) {
        char path[4096];
        struct io_stamp t;
        SL_TRY(io_stamp_now(src, i, path, sizeof path, &t, err));
        put_name(s, path);
        put_uint(s, t.size, 8);
        put_uint(s, t.hash, 8);
        put_uint(s, (uint64_t)t.mtime_ns, 8);
    }
    return SL_OK;
}

/* The metadata as a GGUF file without tensors. */
static sl_status put_gguf(const io_model *src, struct str *s, sl_err *err)
{
    io_out o = {.kind = IO_GGUF};
    str_init(&o.meta, MEM_MISC, 0);
    for (int i = 0; i < io_n_meta(src); i++)
        io_out_copy(&o, src, i);
    sl_status st = o.failed.code ? o.failed.code : str_status(&o.meta, err);
    if (o.failed.code && err) *err = o.failed;
    put_uint(s, 24 + o.meta.n, 8);
    str_puts(s, "GGUF");
    put_uint(s, 3, 4);
    put_uint(s, 0, 8);
    put_uint(s, o.n_meta, 8);
    str_put(s, str_c(&o.meta), o.meta.n);
    str_fini(&o.meta);
    return st;
}

static sl_status put_texts(const io_model *src, struct str *s, sl_err *err)
{
    static const char *const config[] = {"config.json", "generation_config.json"};
    uint32_t n = 0;
    struct str body;
    sl_status st = SL_OK;
    str_init(&body, MEM_MISC, 0);
    for (int i = 0; i < 2 && !st; i++) {
        char *text = NULL;
        uint64_t len = 0;
        st = io_folder_read(src, config[i], &text, &len, err);
        if (st || !text) continue;
        put_name(&body, config[i]);
        put_uint(&body, len, 8);
        str_put(&body, text, len);
        mem_free(text);
        n++;
    }
    for (int i = 0; i < src->n_text; i++, n++) {
        put_name(&body, src->text[i].name);
        put_uint(&body, src->text[i].map.size, 8);
        str_put(&body, (const char *)src->text[i].map.data, src->text[i].map.size);
    }
    put_uint(s, n, 4);
    str_put(s, str_c(&body), body.n);
    if (!st) st = str_status(&body, err);
    str_fini(&body);
    return st;
}

sl_status io_pack_out_vector(io_pack_out *o, const char *name, const float *p, int64_t n,
                             sl_err *err)
{
    put_name(&o->vectors, name);
    put_name(&o->vectors, tensor_dtype(TENSOR_F32)->text);
    put_uint(&o->vectors, 1, 4);
    put_uint(&o->vectors, (uint64_t)n, 8);
    put_uint(&o->vectors, 1, 1);
    str_put(&o->vectors, (const char *)p, (size_t)n * sizeof *p);
    put_name(&o->vector_names, name);
    o->n_vector++;
    return str_status(&o->vectors, err);
}

/* Does one of the vectors of its own stand for it? */
static bool is_replaced(const io_pack_out *o, const char *name)
{
    struct rd r = rd_init(str_c(&o->vector_names), o->vector_names.n);
    uint64_t n, len = strlen(name);
    for (uint32_t i = 0; i < o->n_vector; i++) {
        const char *p = rd_str64(&r, &n);
        if (p && n == len && memcmp(p, name, n) == 0) return true;
    }
    return false;
}

/* The bytes of a vector, or of one to each expert, which may be a part of another tensor. */
static void put_values(struct str *s, const struct tensor *t)
{
    size_t bytes = (size_t)tensor_dtype(t->type)->bytes;
    const uint8_t *p = t->data;
    if (!t->col_bytes) str_put(s, t->data, t->n_bytes);
    for (uint64_t i = 0; t->col_bytes && i * bytes < t->n_bytes; i++)
        str_put(s, (const char *)p + i * t->col_bytes, bytes);
}

/* Of two dimensions, and no product's: a convolution, what streams and entries are made by, a table
 * of experts; and biases, of which each expert has one. */
static bool is_table(const char *name)
{
    static const char *const tail[] = {".bias",       "conv1d.weight",  "_fn",     "_fn.weight",
                                       ".fn",         ".ape",           "_ape",    "_ape.weight",
                                       "tid2eid",     ".position_bias", "tid2eid.weight"};
    for (int i = 0; i < BASE_COUNT_OF(tail); i++)
        if (io_ends_with(name, tail[i])) return true;
    return false;
}

static void put_tensors(const io_pack_out *o, struct str *s)
{
    const io_model *src = o->src;
    uint32_t n = o->n_vector;
    for (int i = 0; i < src->n_tensor; i++)
        n += !is_replaced(o, src->tensor[i].name);
    put_uint(s, n, 4);
    str_put(s, str_c(&o->vectors), o->vectors.n);
    for (int i = 0; i < src->n_tensor; i++) {
        const struct tensor *t = &src->tensor[i];
        bool stored = t->n_dim < 2 || is_table(t->name);
        if (is_replaced(o, t->name)) continue;
        put_name(s, t->name);
        put_name(s, tensor_dtype(t->type)->text);
        put_uint(s, (uint64_t)t->n_dim, 4);
        for (int k = 0; k < t->n_dim; k++)
            put_uint(s, (uint64_t)t->shape[k], 8);
        put_uint(s, stored, 1);
        if (stored) put_values(s, t);
    }
}

static sl_status make_tables(io_pack_out *o, struct str *s, sl_err *err)
{
    SL_TRY(put_stamps(o->src, s, err));
    put_uint(s, o->n_mat, 4);
    str_put(s, str_c(&o->mats), o->mats.n);
    put_uint(s, o->src->kind == IO_HF, 1);
    if (o->src->kind == IO_HF)
        SL_TRY(put_texts(o->src, s, err));
    else
        SL_TRY(put_gguf(o->src, s, err));
    put_tensors(o, s);
    SL_TRY(str_status(&o->mats, err));
    return str_status(s, err);
}

static sl_status write_tables(io_pack_out *o, const struct str *s, bool exact, sl_err *err)
{
    struct str h;
    uint64_t at;
    if (!size_align(o->end, PACK_ALIGN, &at))
        return SL_FAIL(err, LIMIT, "%s: too long", o->file.path);
    SL_TRY(os_out_write_at(&o->file, at, s->p, s->n, err));
    str_init(&h, MEM_MISC, 0);
    str_puts(&h, PACK_MAGIC);
    put_uint(&h, PACK_VERSION, 4);
    put_uint(&h, PACK_HEADER, 4);
    put_uint(&h, at + s->n, 8);
    put_uint(&h, PACK_DATA, 8);
    put_uint(&h, at, 8);
    put_uint(&h, s->n, 8);
    put_uint(&h, hash_bytes(s->p, s->n, 0), 8);
    put_uint(&h, exact, 8);
    str_put(&h, o->layout, PACK_LAYOUT_MAX);
    sl_status st = str_status(&h, err);
    if (!st) put_uint(&h, hash_bytes(h.p, h.n, 0), 8);
    if (!st) st = str_status(&h, err);
    if (!st) st = os_out_write_at(&o->file, 0, h.p, h.n, err);
    str_fini(&h);
    return st;
}

sl_status io_pack_out_commit(io_pack_out *o, bool exact, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    sl_status st = end_mat(o, err);
    if (!st) st = make_tables(o, &s, err);
    if (!st) st = write_tables(o, &s, exact, err);
    if (!st) st = os_out_commit(&o->file, err);
    str_fini(&s);
    io_pack_out_abort(o);
    return st;
}

void io_pack_out_abort(io_pack_out *o)
{
    if (!o) return;
    if (o->file.path) os_out_abort(&o->file);
    str_fini(&o->mats);
    str_fini(&o->row);
    str_fini(&o->scale);
    str_fini(&o->vectors);
    str_fini(&o->vector_names);
    mem_free(o);
}
