/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: api engine. Property: any text is taken apart without harm, calls come in order, and
 * pieces give what the whole gives. First byte: the family and options; second: where to cut, and
 * from 200 on other families; then the text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_toolparse: %s\n", what);
    abort();
}

/* Everything that came out, by kind; calls with their arguments in one text. */
struct out {
    struct str text, reason, calls;
    int n;
};

static void on_text(void *u, const char *p, size_t n)
{
    str_put(&((struct out *)u)->text, p, n);
}
static void on_reason(void *u, const char *p, size_t n)
{
    str_put(&((struct out *)u)->reason, p, n);
}
static void on_call(void *u, int i, const char *p, size_t n)
{
    struct out *o = u;
    check(i == o->n++, "calls out of order");
    str_putc(&o->calls, '\0');
    str_put(&o->calls, p, n);
    str_putc(&o->calls, '\0');
}
static void on_args(void *u, int i, const char *p, size_t n)
{
    struct out *o = u;
    check(i == o->n - 1, "arguments of another call");
    str_put(&o->calls, p, n);
}

static void parse(const struct api_parse_opts *opts, const char *s, size_t n, size_t piece,
                  struct out *o)
{
    struct api_parse_sink sink = {o, on_text, on_reason, on_call, on_args};
    struct api_parse *p = NULL;
    check(api_parse_open(opts, &p, NULL) == SL_OK, "not opened");
    for (size_t at = 0; at < n || n == 0;) {
        size_t k = n - at < piece ? n - at : piece;
        check(api_parse_feed(p, s + at, k, at + k == n, &sink, NULL) == SL_OK, "feed failed");
        at += k;
        if (at >= n) break;
    }
    api_parse_close(p);
}

static int same(const struct str *a, const struct str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

static void clear(struct out *o)
{
    str_clear(&o->text);
    str_clear(&o->reason);
    str_clear(&o->calls);
    o->n = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const tool[] = {"none",    "hermes",     "deepseek_v3", "llama3",
                                       "json",    "glm45",      "minimax_m2",  "kimi_k2",
                                       "harmony", "qwen3_coder"},
                      *const later[] = {"gemma4", "minimax_m3", "deepseek_v32", "deepseek_v4"};
    static struct out a, b; /* their blocks stay: to allocate them anew is a sixth of a run */
    if (size < 2) return 0;
    const char *of = data[1] < 200 ? tool[data[0] % 10] : later[data[0] % 4];
    struct api_parse_opts o = {.tool_parser = of,
                               .reasoning_parser = data[0] & 64 ? "qwen3" : "none",
                               .tools = true,
                               .prompt_thinks = (data[0] & 128) != 0};
    clear(&a);
    clear(&b);
    parse(&o, (const char *)data + 2, size - 2, size, &a);
    parse(&o, (const char *)data + 2, size - 2, 1 + data[1] % 40, &b);
    check(same(&a.text, &b.text) && same(&a.reason, &b.reason) && same(&a.calls, &b.calls),
          "pieces are not the whole");
    return 0;
}
