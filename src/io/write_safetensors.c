/* SPDX-License-Identifier: Apache-2.0 */
/* One safetensors file: a JSON header padded with spaces to a multiple of 8, then the tensors
 * without a gap. */
#include <string.h>

#include "io/write_internal.h"
#include "text/json.h"

/* Appends a JSON string to s. */
static void put_json_str(struct str *s, const char *p, uint64_t n)
{
    struct json_w w;
    text_jw_init(&w, s);
    text_jw_str(&w, p, n);
}

void io_out_safetensors_str(io_out *o, const char *key, const char *p, uint64_t n)
{
    if (o->n_meta++) str_putc(&o->meta, ',');
    put_json_str(&o->meta, key, strlen(key));
    str_putc(&o->meta, ':');
    put_json_str(&o->meta, p, n);
}

void io_out_safetensors_tensor(io_out *o, const char *name, enum tensor_dtype type, int n_dim,
                               const int64_t *shape, const struct io_out_tensor_info *at)
{
    if (o->n_info) str_putc(&o->info, ',');
    put_json_str(&o->info, name, strlen(name));
    str_printf(&o->info, ":{\"dtype\":\"%s\",\"shape\":[", tensor_dtype(type)->text);
    for (int i = 0; i < n_dim; i++)
        str_printf(&o->info, "%s%lld", i ? "," : "", (long long)shape[i]);
    str_printf(&o->info, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at->offset,
               (unsigned long long)(at->offset + at->n_bytes));
}

sl_status io_out_safetensors_header(io_out *o, sl_err *err)
{
    struct str head;
    uint8_t len[8];
    str_init(&head, MEM_MISC, 100000000);
    str_putc(&head, '{');
    if (o->n_meta) {
        str_puts(&head, "\"__metadata__\":{");
        str_put(&head, str_c(&o->meta), o->meta.n);
        str_puts(&head, o->n_info ? "}," : "}");
    }
    str_put(&head, str_c(&o->info), o->info.n);
    str_putc(&head, '}');
    while (head.n % 8 && !head.failed)
        str_putc(&head, ' ');
    sl_status st = str_status(&head, err);
    for (int i = 0; i < 8; i++)
        len[i] = (uint8_t)((uint64_t)head.n >> (8 * i));
    if (st == SL_OK) st = os_out_write(&o->file, len, 8, err);
    if (st == SL_OK) st = os_out_write(&o->file, str_c(&head), head.n, err);
    str_fini(&head);
    return st;
}
