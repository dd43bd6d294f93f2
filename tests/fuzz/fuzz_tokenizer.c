/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: tok. Property: (first byte odd) what is valid UTF-8 comes back from its ids byte for byte,
 * whole and streamed, with every mix of who wrote what, and no control token appears in what a user
 * wrote; (even) no tokenizer.json crashes or opens to something that crashes: the file, NUL, a
 * text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl.h"
#include "text/utf8.h"
#include "tok/tok.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

/* A vocabulary of all bytes, 24 merges, four added tokens; the pre-tokenizer of DeepSeek-V3. */
static tok *fixed_tok(void)
{
    static const char *const merge[] = {"h e",
                                        "l l",
                                        "he ll",
                                        "hell o",
                                        "\xc4\xa0 w",
                                        "o r",
                                        "\xc4\xa0w or",
                                        "\xc4\xa0wor l",
                                        "a a",
                                        "aa aa",
                                        "aaaa aa",
                                        "\xc4\xa0 \xc4\xa0",
                                        "\xc4\xa0\xc4\xa0 \xc4\xa0\xc4\xa0",
                                        "1 2",
                                        "12 3",
                                        "\xc4\x8a \xc4\x8a",
                                        "e r",
                                        "t h",
                                        "th e"};
    static const char tail[] =
        "],\"byte_fallback\":false},\"added_tokens\":[{\"id\":600,\"content\":\"<|im_start|>\","
        "\"special\":true},"
        "{\"id\":601,\"content\":\"<think>\",\"special\":false},{\"id\":602,\"content\":\"<"
        "\xef\xbd\x9cUser\xef\xbd\x9c>\",\"special\":false},"
        "{\"id\":603,\"content\":\"<|im_start|><|im_start|>\",\"special\":true}],\"normalizer\":"
        "null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\","
        "\"invert\":false},"
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[!-~][A-Za-z]+|[^\\\\r\\\\n\\\\p{L}\\\\p{P}"
        "\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*"
        "|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}}";
    struct str s;
    tok *t = NULL;
    sl_err err;
    int id = 0;
    str_init(&s, MEM_MISC, 0);
    str_puts(&s, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int b = 0, next = 256; b < 256; b++) {
        int printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        str_printf(&s, "%s\"\\u%04x\":%d", id ? "," : "", printable ? b : next, id);
        next += !printable;
        id++;
    }
    for (size_t i = 0; i < sizeof merge / sizeof *merge; i++) {
        const char *sp = strchr(merge[i], ' ');
        str_printf(&s, ",\"%.*s%s\":%d", (int)(sp - merge[i]), merge[i], sp + 1, id++);
    }
    for (; id < 600; id++) /* added tokens follow the vocabulary */
        str_printf(&s, ",\"[%d]\":%d", id, id);
    str_puts(&s, "},\"merges\":[");
    for (size_t i = 0; i < sizeof merge / sizeof *merge; i++)
        str_printf(&s, "%s\"%s\"", i ? "," : "", merge[i]);
    str_puts(&s, tail);
    struct tok_files f = {.tokenizer_json = s.p, .n_tokenizer_json = s.n};
    if (tok_open_files(&f, &t, &err) != SL_OK) check(0, err.text);
    str_fini(&s);
    return t;
}

static void back(const tok *t, const struct tok_ids *ids, const char *text, size_t n)
{
    struct str whole, streamed;
    struct tok_stream st = {0};
    sl_err err;
    str_init(&whole, MEM_MISC, 0);
    str_init(&streamed, MEM_MISC, 0);
    for (int i = 0; i < ids->n; i++) {
        int k = 0;
        const char *p = tok_bytes(t, ids->id[i], &k);
        check(p != NULL, "an id without bytes");
        str_put(&whole, p, (size_t)k);
        check(tok_stream_put(t, &st, ids->id[i], true, &streamed, &err) == SL_OK, err.text);
    }
    check(tok_stream_end(&st, &streamed, &err) == SL_OK, err.text);
    check(whole.n == n && memcmp(str_c(&whole), text, n) == 0, "the bytes did not come back");
    check(streamed.n == n && memcmp(str_c(&streamed), text, n) == 0,
          "the stream did not come back");
    str_fini(&whole);
    str_fini(&streamed);
}

static void round_trip(int mode, const char *text, size_t n)
{
    static tok *t;
    if (!t) t = fixed_tok();
    size_t good = text_utf8_check(text, n);
    sl_err err;
    struct tok_ids ids = {0};
    size_t cut = n / 2;
    while (cut < n && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut++;
    struct text_tmpl_span span[] = {{0, cut, 0}, {cut, n, 1}};
    const struct text_tmpl_spans spans = {span, 2};
    sl_status st = mode < 2 ? tok_encode(t, text, n, mode ? TOK_SPECIAL : 0, &ids, &err)
                            : tok_encode_spans(t, text, n, &spans, &ids, &err);
    if (good < n)
        check(st == SL_REQUEST, "bad UTF-8 was taken");
    else
        check(st == SL_OK, err.text);
    if (good == n) back(t, &ids, text, n);
    for (int i = 0; i < ids.n && mode == 0; i++)
        check(ids.id[i] < 600 || ids.id[i] == 601, "a control token in what a user wrote");
    mem_free(ids.id);
}

static void any_file(const char *p, size_t n)
{
    const char *nul = memchr(p, 0, n);
    size_t n_json = nul ? (size_t)(nul - p) : n;
    const char *text = nul ? nul + 1 : "Hello <|im_start|> 123  w\xc3\xb6rld\n";
    struct tok_files f = {.tokenizer_json = p, .n_tokenizer_json = n_json};
    struct tok_ids ids = {0};
    tok *t = NULL;
    sl_err err;
    if (tok_open_files(&f, &t, &err) != SL_OK) return;
    if (tok_encode(t, text, nul ? n - n_json - 1 : strlen(text), TOK_SPECIAL | TOK_BOS, &ids,
                   &err) == SL_OK)
        for (int i = 0; i < ids.n; i++) {
            int k;
            check(tok_bytes(t, ids.id[i], &k) != NULL, "an id without bytes");
        }
    mem_free(ids.id);
    tok_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (data[0] & 1)
        round_trip((data[0] >> 1) % 3, (const char *)data + 1, size - 1);
    else
        any_file((const char *)data + 1, size - 1);
    return 0;
}
