/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: tok. Property: no tokenizer.model (first byte 0 of 4), no tiktoken.model (1) and no
 * vocab.json with merges.txt (2; a NUL between) crashes or opens to something that crashes; what
 * opens gives ids that all have bytes. The file, then "\0\0" and a text, or no text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/tok.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_vocab: %s\n", what);
    abort();
}

static void use(const tok *t, const char *text, size_t n)
{
    struct tok_ids ids = {0};
    struct tok_stream s = {.front = true};
    struct str out;
    sl_err err = {0};
    str_init(&out, MEM_MISC, 0);
    if (tok_encode(t, text, n, TOK_SPECIAL | TOK_BOS | TOK_EOS, &ids, &err) == SL_OK)
        for (int i = 0; i < ids.n; i++) {
            int k;
            check(tok_bytes(t, ids.id[i], &k) != NULL, "an id without bytes");
            check(tok_stream_put(t, &s, ids.id[i], true, &out, &err) == SL_OK, err.text);
        }
    check(tok_stream_end(&s, &out, &err) == SL_OK, err.text);
    mem_free(ids.id);
    str_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char config[] =
        "{\"tokenizer_class\":\"TikTokenTokenizer\",\"pad_token\":\"<p>\"}",
                      gpt2[] = "{\"tokenizer_class\":\"GPT2Tokenizer\",\"pad_token\":\"<p>\"}";
    struct tok_files f = {.tokenizer_config = config, .n_tokenizer_config = sizeof config - 1};
    tok *t = NULL;
    sl_err err = {0};
    if (size == 0) return 0;
    const char *p = (const char *)data + 1, *text = "He said  \xe4\xb8\x96 <p>x\n";
    size_t n = size - 1, n_text = strlen(text);
    const char *end = memmem(p, n, "\0\0", 2);
    if (end && (data[0] & 3) != 0) {
        text = end + 2;
        n_text = n - (size_t)(text - p);
        n = (size_t)(end - p);
    }
    const char *nul = memchr(p, 0, n);
    switch (data[0] & 3) {
    case 1:
        f.tiktoken_model = p;
        f.n_tiktoken_model = n;
        break;
    case 2:
        f.tokenizer_config = gpt2;
        f.n_tokenizer_config = sizeof gpt2 - 1;
        f.vocab_json = p;
        f.n_vocab_json = nul ? (size_t)(nul - p) : n;
        f.merges_txt = nul ? nul + 1 : "";
        f.n_merges_txt = nul ? n - f.n_vocab_json - 1 : 0;
        break;
    default:
        f.tokenizer_model = p;
        f.n_tokenizer_model = n;
    }
    if (tok_open_files(&f, &t, &err) == SL_OK) use(t, text, n_text);
    tok_close(t);
    return 0;
}
