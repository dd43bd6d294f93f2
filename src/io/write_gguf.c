/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF 3: header, metadata and tensor declarations. */
#include <string.h>

#include "base/fp.h"
#include "io/io_internal.h"
#include "io/write_internal.h"

static void put_uint(struct str *s, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        str_putc(s, (char)(v >> (8 * i)));
}

static void put_str(struct str *s, const char *p, uint64_t n)
{
    put_uint(s, n, 8);
    str_put(s, p, n);
}

/* The name and type of one more key; the value comes next. */
static bool begin_key(io_out *o, const char *key, enum io_type type)
{
    const char *fault = io_name_fault(key, strlen(key), 65535);
    if (o->kind != IO_GGUF) fault = "is not a string, which is all that safetensors can hold";
    if (fault) {
        io_out_refuse(o, "key %.60s %s", key, fault);
        return false;
    }
    put_str(&o->meta, key, strlen(key));
    put_uint(&o->meta, (uint64_t)type, 4);
    o->n_meta++;
    return true;
}

void io_out_str(io_out *o, const char *key, const char *p, uint64_t n)
{
    if (o->kind == IO_HF)
        io_out_safetensors_str(o, key, p, n);
    else if (begin_key(o, key, IO_STR))
        put_str(&o->meta, p, n);
}

void io_out_u32(io_out *o, const char *key, uint32_t v)
{
    if (begin_key(o, key, IO_U32)) put_uint(&o->meta, v, 4);
}

void io_out_u64(io_out *o, const char *key, uint64_t v)
{
    if (begin_key(o, key, IO_U64)) put_uint(&o->meta, v, 8);
}

void io_out_f32(io_out *o, const char *key, float v)
{
    if (begin_key(o, key, IO_F32)) put_uint(&o->meta, fp_to_bits(v), 4);
}

void io_out_bool(io_out *o, const char *key, bool v)
{
    if (begin_key(o, key, IO_BOOL)) put_uint(&o->meta, v, 1);
}

void io_out_array(io_out *o, const char *key, enum io_type elem, uint64_t n)
{
    if (!begin_key(o, key, IO_ARRAY)) return;
    put_uint(&o->meta, (uint64_t)elem, 4);
    put_uint(&o->meta, n, 8);
}

void io_out_elem_str(io_out *o, const char *p, uint64_t n)
{
    put_str(&o->meta, p, n);
}

void io_out_elem_i32(io_out *o, int32_t v)
{
    put_uint(&o->meta, (uint32_t)v, 4);
}

void io_out_elem_f32(io_out *o, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_uint(&o->meta, bits, 4);
}

void io_out_elem_bool(io_out *o, bool v)
{
    put_uint(&o->meta, v, 1);
}

void io_out_copy(io_out *o, const io_model *m, int i_meta)
{
    const struct io_kv *kv = &m->meta.kv[i_meta];
    if (strcmp(kv->key, "general.alignment") == 0 || strncmp(kv->key, "split.", 6) == 0)
        return; /* of the old file */
    if (!begin_key(o, kv->key, (enum io_type)kv->type)) return;
    uint64_t n = kv->n;
    if (kv->type == IO_STR) {
        put_str(&o->meta, (const char *)kv->p, n);
        return;
    }
    if (kv->type != IO_ARRAY) {
        str_put(&o->meta, (const char *)kv->p, io_type_bytes(kv->type));
        return;
    }
    put_uint(&o->meta, kv->elem, 4);
    put_uint(&o->meta, n, 8);
    struct io_array a = {.type = kv->elem, .n = n, .data = kv->p, .str_off = kv->str_off};
    if (kv->elem != IO_STR) str_put(&o->meta, (const char *)kv->p, n * io_type_bytes(kv->elem));
    for (uint64_t i = 0; kv->elem == IO_STR && i < n; i++) {
        uint64_t len;
        const char *s = io_array_str(&a, i, &len);
        put_str(&o->meta, s, len);
    }
}

void io_out_gguf_tensor(io_out *o, const char *name, enum tensor_dtype type, int n_dim,
                        const int64_t *shape, uint64_t offset)
{
    put_str(&o->info, name, strlen(name));
    put_uint(&o->info, (uint64_t)n_dim, 4);
    for (int i = n_dim - 1; i >= 0; i--)
        put_uint(&o->info, (uint64_t)shape[i], 8);
    put_uint(&o->info, (uint64_t)tensor_dtype(type)->gguf_id, 4);
    put_uint(&o->info, offset, 8);
}

sl_status io_out_gguf_header(io_out *o, sl_err *err)
{
    struct str head;
    str_init(&head, MEM_MISC, 0);
    str_puts(&head, "GGUF");
    put_uint(&head, 3, 4);
    put_uint(&head, o->n_info, 8);
    put_uint(&head, o->n_meta, 8);
    sl_status st = str_status(&head, err);
    if (st == SL_OK) st = os_out_write(&o->file, str_c(&head), head.n, err);
    if (st == SL_OK) st = os_out_write(&o->file, str_c(&o->meta), o->meta.n, err);
    if (st == SL_OK) st = os_out_write(&o->file, str_c(&o->info), o->info.n, err);
    static const uint8_t zero[IO_OUT_ALIGN];
    uint64_t n = o->n_info ? (IO_OUT_ALIGN - o->file.n % IO_OUT_ALIGN) % IO_OUT_ALIGN : 0;
    if (st == SL_OK) st = os_out_write(&o->file, zero, n, err);
    str_fini(&head);
    return st;
}
