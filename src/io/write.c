/* SPDX-License-Identifier: Apache-2.0 */
/* What both kinds of files share: the declared tensors, their order, and the bytes that follow. */
#include "io/write.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "io/io_internal.h"
#include "io/write_internal.h"

void io_out_refuse(io_out *o, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    if (o->failed.code) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    SL_FAIL(&o->failed, REQUEST, "%s: %s", io_short(o->file.path), text);
}

sl_status io_out_open(const char *path, enum io_kind kind, io_out **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(io_out), &p, err));
    io_out *o = p;
    o->kind = kind;
    str_init(&o->meta, MEM_MISC, 0);
    str_init(&o->info, MEM_MISC, 0);
    str_init(&o->names, MEM_MISC, 0);
    str_init(&o->sizes, MEM_MISC, 0);
    os_out_sweep(path);
    sl_status st = os_out_open(path, &o->file, err);
    if (st == SL_OK)
        *out = o;
    else
        mem_free(o);
    return st;
}

void io_out_tensor(io_out *o, const char *name, enum tensor_dtype type, int n_dim,
                   const int64_t *shape)
{
    const struct tensor_dtype_info *d = tensor_dtype(type);
    struct io_out_tensor_info t = {0};
    uint64_t count = 1;
    const char *fault = io_name_fault(name, strlen(name), o->kind == IO_GGUF ? 255 : 4096);
    if (fault) io_out_refuse(o, "the name of tensor %u %s", o->n_info, fault);
    if (n_dim < 0 || n_dim > (o->kind == IO_GGUF ? 4 : TENSOR_MAX_DIM)) {
        io_out_refuse(o, "tensor %.60s: %d dimensions", name, n_dim);
        return;
    }
    for (int i = 0; i < n_dim; i++)
        if (shape[i] < (o->kind == IO_GGUF) || !size_mul(count, (uint64_t)shape[i], &count) ||
            count > INT64_MAX)
            io_out_refuse(o, "tensor %.60s: dimension %d is %lld", name, i, (long long)shape[i]);
    if ((n_dim ? shape[n_dim - 1] : 1) % d->block != 0 ||
        (o->kind == IO_GGUF ? d->gguf_id < 0 : d->block != 1))
        io_out_refuse(o, "tensor %.60s: %s can not be written here", name, d->text);
    if (o->failed.code) return;
    if (!tensor_bytes(type, count, &t.n_bytes) || !size_add(o->n_data, t.n_bytes, &t.offset))
        io_out_refuse(o, "tensor %.60s: its size overflows", name);
    t.offset = o->n_data;
    if (o->kind == IO_GGUF && !size_align(o->n_data, IO_OUT_ALIGN, &t.offset))
        io_out_refuse(o, "tensor %.60s: its size overflows", name);
    if (o->kind == IO_GGUF)
        io_out_gguf_tensor(o, name, type, n_dim, shape, t.offset);
    else
        io_out_safetensors_tensor(o, name, type, n_dim, shape, &t);
    str_put(&o->names, name, strlen(name) + 1);
    str_put(&o->sizes, (const char *)&t, sizeof t);
    o->n_info++;
    o->n_data = t.offset + t.n_bytes;
}

void io_out_each_name(const io_out *o, void (*fn)(void *user, const char *name), void *user)
{
    for (const char *p = str_c(&o->names), *end = p + o->names.n; p < end; p += strlen(p) + 1)
        fn(user, p);
}

sl_status io_out_begin(io_out *o, sl_err *err)
{
    if (o->failed.code) {
        if (err) *err = o->failed;
        return o->failed.code;
    }
    SL_TRY(str_status(&o->meta, err));
    SL_TRY(str_status(&o->info, err));
    SL_TRY(str_status(&o->names, err));
    SL_TRY(str_status(&o->sizes, err));
    o->begun = true;
    return o->kind == IO_GGUF ? io_out_gguf_header(o, err) : io_out_safetensors_header(o, err);
}

/* The tensor that the next byte belongs to; padding in front of it is written. False when all are
 * complete. */
static sl_status enter(io_out *o, struct io_out_tensor_info *t, bool *more, sl_err *err)
{
    static const uint8_t zero[IO_OUT_ALIGN];
    *more = false;
    for (; o->next < o->n_info; o->next++, o->at = 0) {
        memcpy(t, o->sizes.p + o->next * sizeof *t, sizeof *t);
        if (o->at == t->n_bytes && t->n_bytes) continue;
        if (o->at == 0 && o->n_written < t->offset) {
            SL_TRY(os_out_write(&o->file, zero, t->offset - o->n_written, err));
            o->n_written = t->offset;
        }
        if (t->n_bytes == 0) continue;
        *more = true;
        break;
    }
    return SL_OK;
}

sl_status io_out_write(io_out *o, const void *p, uint64_t n, sl_err *err)
{
    ASSERT(o->begun);
    for (const uint8_t *src = p; n > 0;) {
        struct io_out_tensor_info t = {0};
        bool more;
        SL_TRY(enter(o, &t, &more, err));
        if (!more)
            return SL_FAIL(err, REQUEST, "%s: more bytes than the declared tensors have",
                           io_short(o->file.path));
        uint64_t k = BASE_MIN(n, t.n_bytes - o->at);
        SL_TRY(os_out_write(&o->file, src, k, err));
        src += k;
        n -= k;
        o->at += k;
        o->n_written += k;
    }
    return SL_OK;
}

static void free_out(io_out *o)
{
    str_fini(&o->meta);
    str_fini(&o->info);
    str_fini(&o->names);
    str_fini(&o->sizes);
    mem_free(o);
}

sl_status io_out_commit(io_out *o, sl_err *err)
{
    struct io_out_tensor_info t;
    bool more = false;
    sl_status st = SL_OK;
    if (!o->begun) st = io_out_begin(o, err);
    if (st == SL_OK) st = enter(o, &t, &more, err);
    if (st == SL_OK && more)
        st = SL_FAIL(err, REQUEST, "%s: tensor %u of %u is not complete", io_short(o->file.path),
                     o->next, o->n_info);
    if (st == SL_OK)
        st = os_out_commit(&o->file, err);
    else
        os_out_abort(&o->file);
    free_out(o);
    return st;
}

void io_out_abort(io_out *o)
{
    if (!o) return;
    os_out_abort(&o->file);
    free_out(o);
}
