/* SPDX-License-Identifier: Apache-2.0 */
/* utf8proc decomposes and composes; the canonical ordering between is ours, because utf8proc's is
 * an insertion sort: a megabyte of combining marks in falling order would take minutes. */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/size.h"
#include "text/utf8.h"

#define MAX_EXPAND 4 /* code points in the longest canonical decomposition */

bool text_nfc_quick(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        while (n - i >= 8 && (memcpy(&w, p + i, 8), !(w & 0x8080808080808080ull)))
            i += 8;
        if (i == n) break;
        uint32_t cp;
        int k = text_utf8_decode(p + i, n - i, &cp);
        if (k == 0) return false;
        i += (size_t)k;
        if (cp < 0x300) continue;
        if (cp >= 0xac00 && cp <= 0xd7a3) continue; /* Hangul syllables */
        if ((cp >= 0x1160 && cp <= 0x1175) || (cp >= 0x11a8 && cp <= 0x11c2))
            return false; /* their parts */
        const utf8proc_property_t *pr = utf8proc_get_property((utf8proc_int32_t)cp);
        if (pr->combining_class != 0 ||
            (pr->decomp_seqindex != UINT16_MAX && pr->decomp_type == 0) ||
            (pr->comb_index != UINT16_MAX && pr->comb_index >= 0x8000))
            return false;
    }
    return true;
}

/* Stable sort by class of c[0..n), all classes > 0: counting sort when long. tmp has room for n. */
static void order_marks(utf8proc_int32_t *c, size_t n, utf8proc_int32_t *tmp)
{
    if (n < 24) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t x = c[i];
            int cx = utf8proc_get_property(x)->combining_class;
            size_t j = i;
            for (; j > 0 && utf8proc_get_property(c[j - 1])->combining_class > cx; j--)
                c[j] = c[j - 1];
            c[j] = x;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[(utf8proc_get_property(c[i])->combining_class & 255) + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++)
        tmp[start[utf8proc_get_property(c[i])->combining_class & 255]++] = c[i];
    memcpy(c, tmp, n * sizeof *c);
}

static void order_all(utf8proc_int32_t *c, size_t n, utf8proc_int32_t *tmp)
{
    size_t run = 0; /* marks so far */
    for (size_t i = 0; i <= n; i++) {
        if (i < n && c[i] >= 0x300 && utf8proc_get_property(c[i])->combining_class != 0) {
            run++;
            continue;
        }
        if (run > 1) order_marks(c + i - run, run, tmp);
        run = 0;
    }
}

static void compose(utf8proc_int32_t *c, size_t n, struct str *out)
{
    utf8proc_ssize_t m =
        utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < m; i++) {
        char b[TEXT_UTF8_MAX];
        str_put(out, b, (size_t)text_utf8_encode((uint32_t)c[i], b));
    }
}

sl_status text_nfc(const char *p, size_t n, struct str *out, sl_err *err)
{
    void *mem = NULL;
    uint64_t cap, total;
    size_t n_cp = text_utf8_count(p, n), len = 0;
    if (!size_mul(n_cp, MAX_EXPAND, &cap) || !size_mul(cap + MAX_EXPAND, 2, &total))
        return SL_FAIL(err, NOMEM, "out of memory: %zu bytes to normalise", n);
    SL_TRY(mem_alloc_array(out->tag, total, sizeof(utf8proc_int32_t), &mem, err));
    utf8proc_int32_t *c = mem, *tmp = c + cap + MAX_EXPAND;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int k = text_utf8_decode(p + i, n - i, &cp), bound = 0;
        if (k == 0) break;
        utf8proc_ssize_t got =
            cp < 0x80 ? 0
                      : utf8proc_decompose_char((utf8proc_int32_t)cp, c + len, MAX_EXPAND,
                                                UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &bound);
        if (got < 1 || got > MAX_EXPAND) {
            c[len] = (utf8proc_int32_t)cp;
            got = 1;
        }
        len += (size_t)got;
        i += (size_t)k;
    }
    order_all(c, len, tmp);
    for (size_t i = 0; i < len;) {
        /* utf8proc 2.8 swallows U+11A7 after a Hangul syllable as if it were a final consonant:
         * keep it away from there. */
        size_t j = i;
        while (j < len && c[j] != 0x11a7)
            j++;
        compose(c + i, j - i, out);
        if (j < len) str_put(out, "\xe1\x86\xa7", 3);
        i = j + 1;
    }
    mem_free(mem);
    return str_status(out, err);
}
