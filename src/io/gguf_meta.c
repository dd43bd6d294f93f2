/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to GGUF metadata. The bytes were checked when the file was opened; here only types
 * and ranges are looked at. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fp.h"
#include "io/io_internal.h"

const char *io_type_text(uint32_t type)
{
    static const char *const text[IO_N_TYPE] = {
        [IO_U8] = "u8",   [IO_I8] = "i8",       [IO_U16] = "u16", [IO_I16] = "i16",
        [IO_U32] = "u32", [IO_I32] = "i32",     [IO_F32] = "f32", [IO_BOOL] = "bool",
        [IO_STR] = "str", [IO_ARRAY] = "array", [IO_U64] = "u64", [IO_I64] = "i64",
        [IO_F64] = "f64",
    };
    return type < IO_N_TYPE ? text[type] : "unknown";
}

uint64_t io_type_bytes(uint32_t type)
{
    static const uint8_t bytes[IO_N_TYPE] = {
        [IO_U8] = 1,  [IO_I8] = 1,   [IO_U16] = 2, [IO_I16] = 2, [IO_U32] = 4, [IO_I32] = 4,
        [IO_F32] = 4, [IO_BOOL] = 1, [IO_U64] = 8, [IO_I64] = 8, [IO_F64] = 8,
    };
    return type < IO_N_TYPE ? bytes[type] : 0;
}

/* A scalar of an integer or bool type: its value, and whether it is negative (then the value is its
 * two's complement). */
static bool get_int(const uint8_t *p, uint32_t type, uint64_t *v, bool *negative)
{
    static const int8_t bytes[IO_N_TYPE] = {
        [IO_U8] = 1,  [IO_U16] = 2,  [IO_U32] = 4,  [IO_U64] = 8, [IO_BOOL] = 1,
        [IO_I8] = -1, [IO_I16] = -2, [IO_I32] = -4, [IO_I64] = -8};
    int n = type < IO_N_TYPE ? bytes[type] : 0;
    if (n == 0) return false;
    struct rd r = rd_init(p, (uint64_t)(n < 0 ? -n : n));
    *v = rd_uint(&r, n < 0 ? -n : n);
    *negative = n < 0 && (*v >> (-8 * n - 1) & 1);
    if (*negative && n > -8) *v |= ~0ull << (-8 * n);
    return true;
}

static bool get_float(const uint8_t *p, uint32_t type, double *v)
{
    struct rd r = rd_init(p, 8);
    if (type == IO_F32)
        *v = (double)fp_from_bits(rd_u32(&r));
    else if (type == IO_F64) {
        uint64_t bits = rd_u64(&r);
        memcpy(v, &bits, 8);
    }
    return type == IO_F32 || type == IO_F64;
}

static sl_status find(const io_model *m, const struct io_meta *meta, const char *key,
                      const struct io_kv **out, sl_err *err)
{
    int i = io_index_find(&meta->index, key, strlen(key));
    if (i < 0) return SL_FAIL(err, NOTFOUND, "%s: key %.80s is missing", io_short(m->path), key);
    *out = &meta->kv[i];
    return SL_OK;
}

static sl_status wrong_type(const io_model *m, const struct io_kv *kv, const char *want,
                            sl_err *err)
{
    return IO_FAIL_AT(err, m->path, kv->pos, "key %.80s is %s, it must be %s", kv->key,
                      io_type_text(kv->type), want);
}

sl_status io_meta_get_u64(const io_model *m, const struct io_meta *meta, const char *key,
                          uint64_t *out, sl_err *err)
{
    const struct io_kv *kv = NULL;
    uint64_t v;
    bool negative;
    SL_TRY(find(m, meta, key, &kv, err));
    if (kv->type == IO_BOOL || !get_int(kv->p, kv->type, &v, &negative))
        return wrong_type(m, kv, "an integer", err);
    if (negative)
        return IO_FAIL_AT(err, m->path, kv->pos, "key %.80s is %lld, it must not be negative",
                          kv->key, (long long)v);
    *out = v;
    return SL_OK;
}

sl_status io_meta_u64(const io_model *m, const char *key, uint64_t *out, sl_err *err)
{
    return io_meta_get_u64(m, &m->meta, key, out, err);
}

sl_status io_meta_f64(const io_model *m, const char *key, double *out, sl_err *err)
{
    const struct io_kv *kv = NULL;
    uint64_t v;
    bool negative;
    SL_TRY(find(m, &m->meta, key, &kv, err));
    if (get_float(kv->p, kv->type, out)) return SL_OK;
    if (kv->type == IO_BOOL || !get_int(kv->p, kv->type, &v, &negative))
        return wrong_type(m, kv, "a number", err);
    *out = negative ? (double)(int64_t)v : (double)v;
    return SL_OK;
}

sl_status io_meta_bool(const io_model *m, const char *key, bool *out, sl_err *err)
{
    const struct io_kv *kv = NULL;
    SL_TRY(find(m, &m->meta, key, &kv, err));
    if (kv->type != IO_BOOL) return wrong_type(m, kv, "a bool", err);
    *out = kv->p[0] != 0;
    return SL_OK;
}

sl_status io_meta_str(const io_model *m, const char *key, const char **p, uint64_t *n, sl_err *err)
{
    const struct io_kv *kv = NULL;
    SL_TRY(find(m, &m->meta, key, &kv, err));
    if (kv->type != IO_STR) return wrong_type(m, kv, "a string", err);
    *p = (const char *)kv->p;
    *n = kv->n;
    return SL_OK;
}

sl_status io_meta_array(const io_model *m, const char *key, struct io_array *out, sl_err *err)
{
    const struct io_kv *kv = NULL;
    SL_TRY(find(m, &m->meta, key, &kv, err));
    if (kv->type != IO_ARRAY) return wrong_type(m, kv, "an array", err);
    *out = (struct io_array){.type = kv->elem, .n = kv->n, .data = kv->p, .str_off = kv->str_off};
    return SL_OK;
}

const char *io_array_str(const struct io_array *a, uint64_t i, uint64_t *n)
{
    *n = 0;
    if (a->type != IO_STR || i >= a->n) return NULL;
    struct rd r = rd_init(a->data + a->str_off[i] - 8, 8);
    *n = rd_u64(&r);
    return (const char *)a->data + a->str_off[i];
}

bool io_array_i64(const struct io_array *a, uint64_t i, int64_t *out)
{
    uint64_t v;
    bool negative;
    if (i >= a->n || a->type == IO_STR) return false;
    if (!get_int(a->data + i * io_type_bytes(a->type), a->type, &v, &negative)) return false;
    if (!negative && v > INT64_MAX) return false;
    *out = (int64_t)v;
    return true;
}

bool io_array_f64(const struct io_array *a, uint64_t i, double *out)
{
    int64_t v;
    if (i >= a->n || a->type == IO_STR) return false;
    if (get_float(a->data + i * io_type_bytes(a->type), a->type, out)) return true;
    if (a->type == IO_BOOL || !io_array_i64(a, i, &v)) return false;
    *out = (double)v;
    return true;
}

int io_n_meta(const io_model *m)
{
    return m->meta.n;
}

const char *io_meta_key(const io_model *m, int i)
{
    return m->meta.kv[i].key;
}

void io_meta_text(const io_model *m, int i, char *buf, int n)
{
    const struct io_kv *kv = &m->meta.kv[i];
    const char *type = io_type_text(kv->type);
    uint64_t v;
    double f;
    bool negative;
    size_t cap = (size_t)n;
    if (kv->type == IO_ARRAY)
        snprintf(buf, cap, "[%s x %llu]", io_type_text(kv->elem), (unsigned long long)kv->n);
    else if (kv->type == IO_STR) {
        int len = (int)BASE_MIN(kv->n, (uint64_t)BASE_MAX(n - 12, 0));
        const char *more = (uint64_t)len < kv->n ? "..." : "";
        snprintf(buf, cap, "str \"%.*s\"%s", len, (const char *)kv->p, more);
        for (char *c = buf; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    } else if (kv->type == IO_BOOL)
        snprintf(buf, cap, "bool %s", kv->p[0] ? "true" : "false");
    else if (get_float(kv->p, kv->type, &f))
        snprintf(buf, cap, "%s %.9g", type, f);
    else if (get_int(kv->p, kv->type, &v, &negative))
        snprintf(buf, cap, negative ? "%s %lld" : "%s %llu", type, (unsigned long long)v);
}

struct text_key_value io_meta_value(const io_model *m, const char *key)
{
    struct text_key_value o = {.text = "[...]", .f = NAN};
    struct io_array a;
    const char *s = NULL;
    uint64_t n = 0;
    double f = 0;
    bool b = false;
    if (io_meta_bool(m, key, &b, NULL) == SL_OK) {
        snprintf(o.text, sizeof o.text, "%s", b ? "true" : "false");
        o.empty = !b;
    } else if (io_meta_f64(m, key, &f, NULL) == SL_OK) {
        snprintf(o.text, sizeof o.text, "%.7g", f);
        o.empty = f == 0;
        o.f = f;
    } else if (io_meta_str(m, key, &s, &n, NULL) == SL_OK) {
        snprintf(o.text, sizeof o.text, "%.*s", (int)BASE_MIN(n, 60), s);
        o.empty = n == 0;
    } else if (io_meta_array(m, key, &a, NULL) == SL_OK) {
        o.empty = a.type != IO_STR || a.n == 0;
        for (uint64_t i = 0; i < a.n && o.empty; i++) {
            int64_t v = 0;
            o.empty = (io_array_f64(&a, i, &f) && f == 0) || (io_array_i64(&a, i, &v) && v == 0);
        }
    }
    return o;
}
