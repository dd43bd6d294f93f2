/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary as GGUF files hold it: what the converter writes. */
#include <stdlib.h>

#include "text/utf8.h"
#include "tok/tok_internal.h"

/* GPT-2's printable stand-in for a byte; byte_of in tok_build.c is the way back. */
static uint32_t stand_in(unsigned char b)
{
    if ((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae) return b;
    if (b <= 0x20) return 256u + b;
    return b == 173 ? 323u : 289u + b - 127u;
}

enum tok_type tok_spell(const tok *t, int32_t id, struct str *out)
{
    if (!tok_valid(t, id) || t->v[id].n == 0) return TOK_TYPE_UNUSED;
    const struct tok_entry *e = &t->v[id];
    bool added = e->flags & TOK_F_ADDED, word = !added && (e->flags & TOK_F_WORD);
    if (out && !word) str_put(out, e->p, e->n);
    for (uint32_t i = 0; out && word && i < e->n; i++) {
        char buf[TEXT_UTF8_MAX];
        str_put(out, buf, (size_t)text_utf8_encode(stand_in((unsigned char)e->p[i]), buf));
    }
    return !added ? TOK_TYPE_NORMAL : e->flags & TOK_F_SPECIAL ? TOK_TYPE_CONTROL : TOK_TYPE_USER;
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
        (*out)[(*n)++] = (struct tok_pair){(int32_t)m->left, (int32_t)m->right, m->rank};
    }
    qsort(*out, (size_t)*n, sizeof **out, by_rank);
    return SL_OK;
}
