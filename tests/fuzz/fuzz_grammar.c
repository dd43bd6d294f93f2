/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: grammar text base. Property: any text is refused with a reason or compiles; what compiles
 * gives masks whose bits are what pushes take, never a mask without a token, and keeps to its
 * bounds; a schema that can be held exactly can be held loose. First byte: the kind; then the text.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_grammar: %s\n", what);
    abort();
}

#define N_VOCAB 264
static grammar_vocab *vocab(void)
{
    static const char *const word[] = {"{\"", "\":", "\"}", "abc", "12", "\xc3\xa9"};
    static grammar_vocab *v;
    static char byte[256];
    struct grammar_token_bytes t[N_VOCAB] = {{0}};
    if (v) return v;
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        t[i] = (struct grammar_token_bytes){&byte[i], 1, GRAMMAR_TOKEN_TEXT};
    }
    for (int i = 0; i < 6; i++)
        t[256 + i] =
            (struct grammar_token_bytes){word[i], (int)strlen(word[i]), GRAMMAR_TOKEN_TEXT};
    t[262] = (struct grammar_token_bytes){"<end>", 5, GRAMMAR_TOKEN_END};
    t[263] = (struct grammar_token_bytes){"<user>", 6, GRAMMAR_TOKEN_CONTROL};
    check(grammar_vocab_open(t, N_VOCAB, &v, NULL) == SL_OK, "no vocabulary");
    return v;
}

/* A few steps; the seed chooses among what is allowed. */
static void steps(grammar_run *r, uint32_t seed)
{
    uint32_t bits[(N_VOCAB + 31) / 32];
    enum grammar_where w = GRAMMAR_RUNNING;
    int s = -1, copy = -1;
    if (grammar_state_open(r, &s, NULL)) return;
    for (int k = 0; k < 8 && w != GRAMMAR_DONE; k++) {
        int n = 0, allowed[N_VOCAB];
        if (grammar_mask(r, s, bits, NULL)) return;
        for (int id = 0; id < N_VOCAB; id++) {
            int bit = bits[id / 32] >> id % 32 & 1;
            if (bit) allowed[n++] = id;
            if ((id + (int)seed) % 16) continue;
            if (grammar_state_copy(r, s, &copy, NULL)) return;
            sl_status st = grammar_push(r, copy, id, &w, NULL);
            grammar_state_close(r, copy);
            if (st) return;
            check(bit == (w != GRAMMAR_DEAD), "mask and push disagree");
        }
        check(n > 0, "no token is allowed");
        seed = seed * 1664525u + 1013904223u;
        if (grammar_push(r, s, allowed[(seed >> 8) % (uint32_t)n], &w, NULL)) return;
        check(w != GRAMMAR_DEAD, "an allowed token is dead");
    }
}

/* One text as one language; whether it compiled. */
static int one(enum grammar_kind kind, const char *text, size_t n)
{
    grammar *g = NULL;
    grammar_run *r = NULL;
    sl_err err = {0};
    sl_status st = grammar_open(kind, text, n, &g, &err);
    check(!st || ((st == SL_REQUEST || st == SL_LIMIT) && err.text[0] && !g),
          "refused without a reason");
    if (st) return 0;
    if (!grammar_run_open(g, vocab(), &r, &err)) {
        steps(r, (uint32_t)(n + 1) * 2654435761u);
        check(grammar_run_bytes(r) < 4 * (size_t)GRAMMAR_RUN_BYTES, "a run is over its bound");
    }
    grammar_run_close(r);
    grammar_close(g);
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum grammar_kind kind[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_GBNF};
    if (size < 1) return 0;
    const char *text = (const char *)data + 1;
    int k = data[0] % 3, held = one(kind[k], text, size - 1);
    if (k == 0)
        check(one(GRAMMAR_JSON_SCHEMA_LOOSE, text, size - 1) >= held, "held, but not loose");
    return 0;
}
