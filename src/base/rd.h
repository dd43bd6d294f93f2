/* SPDX-License-Identifier: Apache-2.0 */
/* The one checked reader: little-endian values from (base, size, pos). After a read past the end it
 * is failed and stays so: every later read gives zeros. Check rd_ok once per record, before the
 * values are used. Every parser of bytes that are not ours goes through this. */
#ifndef BASE_RD_H
#define BASE_RD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct rd {
    const uint8_t *base;
    uint64_t size, pos;
    bool failed;
};

/* A reader of base[0..size), borrowed, at its front. */
static inline struct rd rd_init(const void *base, uint64_t size)
{
    return (struct rd){.base = base, .size = size};
}

/* False: some read went past the end, since rd_init. */
static inline bool rd_ok(const struct rd *r)
{
    return !r->failed;
}

/* Bytes from here to the end; 0 after a failure. */
static inline uint64_t rd_left(const struct rd *r)
{
    return r->failed ? 0 : r->size - r->pos;
}

/* n bytes in place, or NULL (and failed). */
static inline const uint8_t *rd_bytes(struct rd *r, uint64_t n)
{
    if (r->failed || n > r->size - r->pos) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->base + r->pos;
    r->pos += n;
    return p;
}

/* Go to byte pos; false, and failed, past the end. */
static inline bool rd_seek(struct rd *r, uint64_t pos)
{
    if (pos > r->size) r->failed = true;
    if (r->failed) return false;
    r->pos = pos;
    return true;
}

/* A little-endian number of n_bytes, 8 at most; 0 where there are not so many. */
static inline uint64_t rd_uint(struct rd *r, int n_bytes)
{
    const uint8_t *p = rd_bytes(r, (uint64_t)n_bytes);
    uint64_t v = 0;
    if (p)
        for (int i = 0; i < n_bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline uint8_t rd_u8(struct rd *r)
{
    return (uint8_t)rd_uint(r, 1);
}
static inline uint16_t rd_u16(struct rd *r)
{
    return (uint16_t)rd_uint(r, 2);
}
static inline uint32_t rd_u32(struct rd *r)
{
    return (uint32_t)rd_uint(r, 4);
}
static inline uint64_t rd_u64(struct rd *r)
{
    return rd_uint(r, 8);
}

/* A GGUF-like string: u64 length, then bytes in place. */
static inline const char *rd_str64(struct rd *r, uint64_t *n)
{
    *n = rd_u64(r);
    const char *p = (const char *)rd_bytes(r, *n);
    if (!p) *n = 0;
    return p;
}

#endif
