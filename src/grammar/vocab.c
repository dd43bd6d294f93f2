/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary as a trie in depth-first order, so that a walk is one pass that skips subtrees.
 *
 * Plain characters are those that every text is made of: U+0020 and up but for ", \ and U+007F.
 * Most tokens hold nothing else. Where an automaton says that so many plain characters are possible
 * (inside a JSON string), these tokens are taken as a whole and their subtrees are not walked. */
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_internal.h"
#include "text/utf8.h"

#define NOT_PLAIN 255

struct sorted {
    const uint8_t *p;
    uint16_t n;
    uint8_t plain; /* characters; NOT_PLAIN */
    int32_t id;
};

static int by_bytes(const void *x, const void *y)
{
    const struct sorted *a = x, *b = y;
    int c = memcmp(a->p, b->p, BASE_MIN(a->n, b->n));
    if (c == 0) c = (int)a->n - (int)b->n;
    return c ? c : a->id < b->id ? -1 : 1;
}

/* Characters of p[0..n) when all are plain. */
static uint8_t plain_of(const uint8_t *p, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int k = text_utf8_decode((const char *)p + i, n - i, &cp);
        if (k == 0 || cp < 0x20 || cp == '"' || cp == '\\' || cp == 0x7f) return NOT_PLAIN;
        i += (size_t)k;
        if (++count == NOT_PLAIN) return NOT_PLAIN;
    }
    return (uint8_t)count;
}

/* Bytes that no UTF-8 has: such a token can never be part of an answer. */
static bool impossible(const char *p, int n)
{
    for (int i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        if (c == 0xc0 || c == 0xc1 || c > 0xf4) return true;
    }
    return false;
}

static sl_status copy_tokens(grammar_vocab *v, const struct grammar_token_bytes *t, sl_err *err)
{
    void *p = NULL;
    uint64_t total = 0;
    for (int i = 0; i < v->n_vocab; i++)
        total += t[i].kind == GRAMMAR_TOKEN_CONTROL ? 4 : t[i].n > 0 ? (uint64_t)t[i].n : 0;
    SL_TRY(mem_alloc(MEM_TOK, total + 1, &v->mem, err));
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)v->n_vocab, sizeof *v->bytes, &p, err));
    v->bytes = p;
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)v->n_vocab, sizeof *v->n_bytes, &p, err));
    v->n_bytes = p;
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)v->n_vocab, 1, &p, err));
    v->kind = p;
    uint8_t *w = v->mem;
    for (int i = 0; i < v->n_vocab; i++) {
        v->kind[i] = (uint8_t)t[i].kind;
        v->bytes[i] = w;
        v->n_end += t[i].kind == GRAMMAR_TOKEN_END;
        if (t[i].kind == GRAMMAR_TOKEN_CONTROL) {
            const uint8_t key[4] = {GRAMMAR_CONTROL, (uint8_t)(i >> 16), (uint8_t)(i >> 8),
                                    (uint8_t)i};
            memcpy(w, key, 4);
            v->n_bytes[i] = 4;
        } else if (t[i].kind == GRAMMAR_TOKEN_TEXT && t[i].n > 0 && t[i].n <= GRAMMAR_MAX_TOKEN &&
                   !impossible(t[i].p, t[i].n)) {
            memcpy(w, t[i].p, (size_t)t[i].n);
            v->n_bytes[i] = (uint16_t)t[i].n;
        }
        w += v->n_bytes[i];
    }
    return SL_OK;
}

static uint32_t common(const struct sorted *a, const struct sorted *b)
{
    uint32_t k = 0;
    while (k < a->n && k < b->n && a->p[k] == b->p[k])
        k++;
    return k;
}

static sl_status alloc_trie(grammar_vocab *v, uint32_t n, sl_err *err)
{
    const struct {
        void *p;
        size_t n, size;
    } want[] = {{&v->byte, n, 1}, {&v->plain_max, n, 1}, {&v->depth, n, 2},
                {&v->size, n, 4}, {&v->token, n, 4},     {&v->same, (size_t)v->n_vocab, 4}};
    for (int i = 0; i < BASE_COUNT_OF(want); i++)
        SL_TRY(mem_alloc_array(MEM_TOK, want[i].n, want[i].size, want[i].p, err));
    v->n_node = n;
    return SL_OK;
}

static sl_status build_trie(grammar_vocab *v, const struct sorted *s, int n, sl_err *err)
{
    uint32_t n_node = 1, path[GRAMMAR_MAX_TOKEN + 1] = {0}, at = 1;
    for (int i = 0; i < n; i++)
        n_node += s[i].n - (i ? common(&s[i - 1], &s[i]) : 0);
    SL_TRY(alloc_trie(v, n_node, err));
    for (uint32_t i = 0; i < n_node; i++)
        v->token[i] = -1;
    for (int i = 0; i < v->n_vocab; i++)
        v->same[i] = -1;
    for (int i = 0; i < n; i++) {
        for (uint32_t k = i ? common(&s[i - 1], &s[i]) : 0; k < s[i].n; k++) {
            v->byte[at] = s[i].p[k];
            v->depth[at] = (uint16_t)(k + 1);
            path[k + 1] = at++;
        }
        uint32_t leaf = path[s[i].n];
        v->same[s[i].id] = v->token[leaf];
        v->token[leaf] = s[i].id;
        v->plain_max[leaf] = s[i].plain;
    }
    /* sizes and the plain maximum, children before parents */
    for (uint32_t i = 0; i < n_node; i++)
        v->size[i] = 1;
    uint32_t up[GRAMMAR_MAX_TOKEN + 1] = {0}, *parent = NULL;
    SL_TRY(mem_alloc_array(MEM_TOK, n_node, 4, (void **)&parent, err));
    for (uint32_t i = 1; i < n_node; i++) {
        up[v->depth[i]] = i;
        parent[i] = up[v->depth[i] - 1];
    }
    for (uint32_t i = n_node; i-- > 1;) {
        v->size[parent[i]] += v->size[i];
        v->plain_max[parent[i]] = BASE_MAX(v->plain_max[parent[i]], v->plain_max[i]);
    }
    mem_free(parent);
    return SL_OK;
}

static sl_status list_plain(grammar_vocab *v, const struct sorted *s, int n, sl_err *err)
{
    void *p = NULL;
    uint32_t at[256] = {0};
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)v->n_word, 4, &p, err));
    v->plain_bits = p;
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)n + 1, 4, &p, err));
    v->plain_id = p;
    for (int i = 0; i < n; i++)
        if (s[i].plain != NOT_PLAIN) v->plain_n[s[i].plain]++;
    for (int k = 1; k < 256; k++) {
        at[k] = v->plain_n[k - 1];
        v->plain_n[k] += v->plain_n[k - 1];
    }
    for (int i = 0; i < n; i++) {
        if (s[i].plain == NOT_PLAIN) continue;
        v->plain_id[at[s[i].plain]++] = s[i].id;
        v->plain_bits[s[i].id / 32] |= 1u << s[i].id % 32;
    }
    return SL_OK;
}

sl_status grammar_vocab_open(const struct grammar_token_bytes *token, int n_vocab,
                             grammar_vocab **out, sl_err *err)
{
    void *p = NULL;
    struct sorted *s = NULL;
    int n = 0, n_end = 0;
    sl_status st = SL_OK;
    if (n_vocab <= 0 || n_vocab > 1 << 24)
        return SL_FAIL(err, LIMIT, "grammar: a vocabulary of %d tokens", n_vocab);
    SL_TRY(mem_alloc_array(MEM_TOK, 1, sizeof(grammar_vocab), &p, err));
    grammar_vocab *v = p;
    v->n_vocab = n_vocab;
    v->n_word = (n_vocab + 31) / 32;
    SL_TRY_OUT(copy_tokens(v, token, err));
    SL_TRY_OUT(mem_alloc_array(MEM_TOK, (size_t)v->n_end + 1, 4, &p, err));
    v->end_id = p;
    SL_TRY_OUT(mem_alloc_array(MEM_TOK, (size_t)n_vocab, sizeof *s, &p, err));
    s = p;
    for (int i = 0; i < n_vocab; i++) {
        if (v->kind[i] == GRAMMAR_TOKEN_END) v->end_id[n_end++] = i;
        if (v->n_bytes[i])
            s[n++] = (struct sorted){v->bytes[i], v->n_bytes[i],
                                     plain_of(v->bytes[i], v->n_bytes[i]), i};
    }
    qsort(s, (size_t)n, sizeof *s, by_bytes);
    SL_TRY_OUT(build_trie(v, s, n, err));
    SL_TRY_OUT(list_plain(v, s, n, err));
out:
    mem_free(s);
    if (st) {
        grammar_vocab_close(v);
        return st;
    }
    *out = v;
    return SL_OK;
}

void grammar_vocab_close(grammar_vocab *v)
{
    if (!v) return;
    void *const part[] = {
        v->byte,          v->plain_max, v->depth, v->size,       v->token,    v->same, v->end_id,
        (void *)v->bytes, v->n_bytes,   v->kind,  v->plain_bits, v->plain_id, v->mem};
    for (int i = 0; i < BASE_COUNT_OF(part); i++)
        mem_free(part[i]);
    mem_free(v);
}
