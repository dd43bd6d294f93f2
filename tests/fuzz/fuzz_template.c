/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: text. Property: no template and no message crashes the interpreter or runs past its
 * budget; the spans cover the output exactly, in order; and a second rendering is the same. Input:
 * a template, NUL, messages as JSON (without them: fixed ones). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char fixed[] =
    "[{\"role\":\"system\",\"content\":\"Be <b>brief</b>\"},{\"role\":\"user\",\"content\":\"Hi "
    "\xe2\x82\xac\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"a\":1,\"b\":[2.5,true]}}}]},"
    "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]";
static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
                            "\"type\":\"object\",\"properties\":{}}}}]";

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_template: %s\n", what);
    abort();
}

static sl_status render(const text_tmpl *t, const struct json *m, const struct json *tl,
                        struct str *out)
{
    struct text_tmpl_vars v = {.messages = m,
                               .tools = tl,
                               .add_generation_prompt = true,
                               .bos_token = "<s>",
                               .now_s = 86400};
    struct text_tmpl_spans spans = {0};
    struct arena a;
    sl_err err;
    mem_arena_init(&a, MEM_REQUEST, 0);
    sl_status st = text_tmpl_render(t, &v, &a, out, &spans, &err);
    if (st == SL_OK) {
        size_t at = 0;
        for (int i = 0; i < spans.n; i++) {
            check(spans.v[i].begin == at && spans.v[i].end > at, "spans do not follow each other");
            at = spans.v[i].end;
        }
        check(at == out->n, "spans do not cover the text");
    } else {
        check(st == SL_REQUEST || st == SL_LIMIT, err.text);
    }
    mem_arena_fini(&a);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *src = (const char *)data, *nul = memchr(src, 0, size);
    size_t n = nul ? (size_t)(nul - src) : size;
    const char *msg = nul && n + 1 < size ? nul + 1 : fixed;
    size_t n_msg = nul && n + 1 < size ? size - n - 1 : sizeof fixed - 1;
    text_tmpl *t = NULL;
    struct arena a;
    struct str x, y;
    const struct json *m = NULL, *tl = NULL;
    sl_err err;
    if (text_tmpl_open(src, n, &t, &err) != SL_OK) {
        check(strstr(err.text, "chat template") != NULL, "an error without its place");
        return 0;
    }
    mem_arena_init(&a, MEM_REQUEST, 0);
    str_init(&x, MEM_REQUEST, 0);
    str_init(&y, MEM_REQUEST, 0);
    check(text_json_parse(&a, "tools", tools, sizeof tools - 1, &tl, &err) == SL_OK, "tools");
    if (text_json_parse(&a, "messages", msg, n_msg, &m, &err) == SL_OK) {
        sl_status st = render(t, m, tl, &x);
        check(render(t, m, tl, &y) == st, "another status the second time");
        check(st != SL_OK || (x.n == y.n && memcmp(str_c(&x), str_c(&y), x.n) == 0),
              "another text the second time");
    }
    str_fini(&x);
    str_fini(&y);
    mem_arena_fini(&a);
    text_tmpl_close(t);
    return 0;
}
