/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: text. Property: the reader never crashes; what it accepts, written and read again, is
 * written the same; and it accepts exactly what Jansson accepts (where Jansson is there), but for
 * four differences on purpose: integers past 64 bits (ours: a real), depth (ours: 128, its: 2048),
 * NUL in a key (ours: fine) and a byte order mark (ours: read over); and one mistake of Jansson
 * 2.14: it skips a NUL byte after a number. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#ifdef SL_HAVE_JANSSON
#include <jansson.h>
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_json: %s\n", what);
    abort();
}

#ifdef SL_HAVE_JANSSON
static void compare(const uint8_t *data, size_t size, sl_status st, const sl_err *err)
{
    json_error_t je;
    if (size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0)
        data += 3, size -= 3; /* ours reads over it */
    json_t *j = json_loadb((const char *)data, size,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (j && st != SL_OK && st != SL_LIMIT && !memchr(data, 0, size)) {
        fprintf(stderr, "%s\n", err->text);
        check(0, "Jansson reads what we refuse");
    }
    if (!j && st == SL_OK)
        check(strstr(je.text, "too big") || strstr(je.text, "NUL byte in object key") ||
                  strstr(je.text, "nesting"),
              je.text);
    json_decref(j);
}
#endif

/* As Python reads it: all that is strictly right, the same; and else what has NaN or Infinity in
 * it, or a name twice, of which Jansson takes the last too. */
static void python(struct arena *a, const char *p, size_t n, const struct json *strict)
{
    const struct json *v = NULL;
    struct json_w w;
    struct str s, t;
    sl_err err;
    sl_status st = text_json_parse_python(a, "input", p, n, &v, &err);
    check(st == SL_OK || !strict, "refused only of Python");
    str_init(&s, MEM_MISC, 0);
    str_init(&t, MEM_MISC, 0);
    text_jw_init(&w, &s);
    if (st == SL_OK) text_jw_node(&w, v);
    text_jw_init(&w, &t);
    if (strict) text_jw_node(&w, strict);
    check(!strict || (s.n == t.n && memcmp(s.p, t.p, s.n) == 0), "other values of Python");
    bool odd = n && (memmem(p, n, "NaN", 3) || memmem(p, n, "Infinity", 8));
    check(st != SL_OK || strict || odd, "taken only of Python");
    str_fini(&s);
    str_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    const struct json *v = NULL, *v2 = NULL;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = text_json_parse(&a, "input", (const char *)data, size, &v, &err);
#ifdef SL_HAVE_JANSSON
    compare(data, size, st, &err);
#endif
    if (st == SL_OK) {
        struct str s, t;
        struct json_w w;
        str_init(&s, MEM_MISC, 0);
        str_init(&t, MEM_MISC, 0);
        text_jw_init(&w, &s);
        text_jw_node(&w, v);
        check(text_json_parse(&a, "ours", str_c(&s), s.n, &v2, &err) == SL_OK,
              "we refuse what we wrote");
        text_jw_init(&w, &t);
        text_jw_node(&w, v2);
        check(s.n == t.n && memcmp(s.p, t.p, s.n) == 0, "written twice, not the same");
        str_fini(&s);
        str_fini(&t);
    }
    python(&a, (const char *)data, size, st == SL_OK ? v : NULL);
    mem_arena_fini(&a);
    return 0;
}
