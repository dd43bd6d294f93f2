/* SPDX-License-Identifier: Apache-2.0 */
/* Checks, counts and steps through UTF-8. */
#include "text/utf8.h"

#include <string.h>

size_t text_utf8_check(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if ((unsigned char)p[i] < 0x80) { /* eight ASCII bytes at a time */
            uint64_t w;
            while (n - i >= 8 && (memcpy(&w, p + i, 8), !(w & 0x8080808080808080ull)))
                i += 8;
            while (i < n && (unsigned char)p[i] < 0x80)
                i++;
            continue;
        }
        uint32_t cp;
        int k = text_utf8_decode(p + i, n - i, &cp);
        if (k == 0) return i;
        i += (size_t)k;
    }
    return n;
}

size_t text_utf8_count(const char *p, size_t n)
{
    size_t c = 0;
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)p[i] & 0xc0) != 0x80;
    return c;
}

int text_utf8_bad(const char *p, size_t n, int *cut)
{
    const unsigned char *s = (const unsigned char *)p;
    int need = text_utf8_need(s[0]);
    *cut = 0;
    if (need < 2) return 1;
    if (n < 2) {
        *cut = 1;
        return 1;
    }
    unsigned lo = 0x80, hi = 0xbf; /* the second byte's range depends on the first */
    if (s[0] == 0xe0) lo = 0xa0;
    if (s[0] == 0xed) hi = 0x9f;
    if (s[0] == 0xf0) lo = 0x90;
    if (s[0] == 0xf4) hi = 0x8f;
    if (s[1] < lo || s[1] > hi) return 1;
    for (int i = 2; i < need; i++) {
        if ((size_t)i >= n) {
            *cut = 1;
            return i;
        }
        if ((s[i] & 0xc0) != 0x80) return i;
    }
    return need;
}
