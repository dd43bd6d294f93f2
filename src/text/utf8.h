/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8: strict (no overlong forms, no surrogates, nothing over U+10FFFF). */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TEXT_UTF8_MAX 4 /* bytes of a code point */

/* Bytes of the byte order mark that begins p[0..n): 3, or 0. */
static inline size_t text_utf8_bom(const void *p, size_t n)
{
    return n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* The code point at p[0..n), n >= 1. Returns its bytes (1 to 4), or 0 when they are not UTF-8 (*cp
 * untouched). */
static inline int text_utf8_decode(const char *p, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)p;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (s[0] < 0xe0) {
        if (s[0] < 0xc2 || n < 2 || (s[1] & 0xc0) != 0x80) return 0;
        *cp = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
        return 2;
    }
    if (s[0] < 0xf0) {
        if (n < 3 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80) return 0;
        uint32_t c = (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
        if (c < 0x800 || (c >= 0xd800 && c < 0xe000)) return 0;
        *cp = c;
        return 3;
    }
    if (s[0] > 0xf4 || n < 4 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80 ||
        (s[3] & 0xc0) != 0x80)
        return 0;
    uint32_t c = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
                 (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
    if (c < 0x10000 || c > 0x10ffff) return 0;
    *cp = c;
    return 4;
}

/* Bytes that a lead byte asks for: 1 to 4; 0 for a byte that cannot begin a code point. */
static inline int text_utf8_need(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Write cp (a scalar value) to out; returns the bytes written. */
static inline int text_utf8_encode(uint32_t cp, char out[TEXT_UTF8_MAX])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* Offset of the first byte that is not part of valid UTF-8; n when all is well. */
size_t text_utf8_check(const char *p, size_t n);
/* Code points in valid UTF-8. */
size_t text_utf8_count(const char *p, size_t n);
/* How many bytes at p[0..n) are one maximal invalid subpart (for one U+FFFD), as Unicode's table
 * 3-7 and CPython do; n >= 1 and p is not a valid code point. *cut is 1 when more bytes could still
 * complete it. */
int text_utf8_bad(const char *p, size_t n, int *cut);

#endif
