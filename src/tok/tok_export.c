/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary as GGUF files hold it: what the converter writes. */
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"
#include "tok/tok_internal.h"

/* GPT-2's printable stand-in for a byte; byte_of in tok_build.c is the way back. */
static uint32_t stand_in(unsigned char b)
{
    if ((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae) return b;
    if (b <= 0x20) return 256u + b;
    return b == 173 ? 323u : 289u + b - 127u;
}

/* The byte that id stands for where there is no word; -1 = none. */
static int byte_of_token(const tok *t, int32_t id)
{
    for (int i = 0; t->chars && i < 256; i++)
        if (t->fallback[i] == (uint32_t)id) return i;
    return -1;
}

enum tok_type tok_spell(const tok *t, int32_t id, struct str *out)
{
    if (!tok_valid(t, id) || t->v[id].n == 0) return TOK_TYPE_UNUSED;
    const struct tok_entry *e = &t->v[id];
    bool added = e->flags & TOK_F_ADDED;
    bool word = !added && !t->chars && (e->flags & TOK_F_WORD);
    int byte = added ? -1 : byte_of_token(t, id);
    if (out && byte >= 0)
        str_printf(out, "<0x%02X>", (unsigned)byte);
    else if (out && !word) {
        size_t n = 0;
        const char *p = added ? tok_text_of(t, id, &n) : e->key;
        str_put(out, p, added ? n : e->n_key);
    }
    for (uint32_t i = 0; out && word && i < e->n; i++) {
        char buf[TEXT_UTF8_MAX];
        str_put(out, buf, (size_t)text_utf8_encode(stand_in((unsigned char)e->p[i]), buf));
    }
    if (byte >= 0) return TOK_TYPE_BYTE;
    if (t->chars && id == t->unk) return TOK_TYPE_UNKNOWN;
    return !added ? TOK_TYPE_NORMAL : e->flags & TOK_F_SPECIAL ? TOK_TYPE_CONTROL : TOK_TYPE_USER;
}

sl_status tok_is_scored(const tok *t, bool *out, sl_err *err)
{
    *out = t->chars;
    if (!t->chars || (strcmp(t->mark, "\xe2\x96\x81") == 0 && t->byte_words)) return SL_OK;
    return SL_FAIL(
        err, UNSUPPORTED,
        "words of code points without a mark for spaces or without tokens for bytes: GGUF "
        "has no such vocabulary");
}

sl_status tok_scores(const tok *t, struct arena *a, float **out, sl_err *err)
{
    struct tok_pair *pair = NULL;
    void *p = NULL;
    int n = 0;
    SL_TRY(tok_pairs(t, a, &pair, &n, err));
    SL_TRY(mem_arena_array(a, (size_t)t->n_vocab, sizeof **out, &p, err));
    *out = p;
    for (int i = 0; i < t->n_vocab; i++)
        (*out)[i] = -1e9f; /* what no merge makes comes last of all */
    float score = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && pair[i].rank != pair[i - 1].rank) score -= 1;
        float *s = &(*out)[pair[i].made];
        if (*s < score) *s = score;
    }
    return SL_OK;
}

int tok_rules_of(const tok *t, int32_t id)
{
    uint32_t f = tok_valid(t, id) && (t->v[id].flags & TOK_F_ADDED) ? t->v[id].flags : 0;
    return (f & TOK_F_LSTRIP ? TOK_RULE_LSTRIP : 0) | (f & TOK_F_RSTRIP ? TOK_RULE_RSTRIP : 0) |
           (f & TOK_F_SINGLE_WORD ? TOK_RULE_WORD : 0) |
           (f & TOK_F_NORMALIZED && t->n_norm ? TOK_RULE_NORMALIZED : 0);
}

static int by_rank(const void *a, const void *b)
{
    const struct tok_pair *x = a, *y = b;
    if (x->rank != y->rank) return x->rank > y->rank ? 1 : -1;
    return x->left != y->left ? (x->left > y->left) - (x->left < y->left)
                              : (x->right > y->right) - (x->right < y->right);
}

static bool in_text(const tok *t, uint32_t id)
{
    return !tok_valid(t, id) || (t->v[id].flags & TOK_F_ADDED);
}

sl_status tok_pairs(const tok *t, struct arena *a, struct tok_pair **out, int *n, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(a, (size_t)t->n_merge + 1, sizeof **out, &p, err));
    *out = p;
    *n = 0;
    for (uint32_t i = 0; i <= t->merge_mask; i++) {
        const struct tok_merge *m = &t->merge[i];
        if (m->left == TOK_NONE || in_text(t, m->left) || in_text(t, m->right) || in_text(t, m->id))
            continue;
        (*out)[(*n)++] =
            (struct tok_pair){(int32_t)m->left, (int32_t)m->right, (int32_t)m->id, m->rank};
    }
    qsort(*out, (size_t)*n, sizeof **out, by_rank);
    return SL_OK;
}
