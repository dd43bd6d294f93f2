/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens, found longest first. At most TOK_MAX_ADDED steps from each byte. */
#include <string.h>

#include "tok/tok_internal.h"

static sl_status new_node(struct tok_trie *t, uint8_t byte, uint32_t *out, sl_err *err)
{
    if (t->n == t->cap) {
        void *p = NULL;
        uint32_t cap = t->cap ? t->cap * 2 : 256;
        SL_TRY(mem_realloc(MEM_TOK, t->node, cap * sizeof *t->node, &p, err));
        t->node = p;
        t->cap = cap;
    }
    if (t->n == 0) t->node[t->n++] = (struct tok_trie_node){.id = TOK_NONE}; /* 0 is "none" */
    *out = t->n;
    t->node[t->n++] = (struct tok_trie_node){.id = TOK_NONE, .byte = byte};
    return SL_OK;
}

static uint32_t step(const struct tok_trie *t, uint32_t at, uint8_t byte)
{
    uint32_t c = t->node[at].child;
    while (c && t->node[c].byte != byte)
        c = t->node[c].sibling;
    return c;
}

sl_status tok_trie_add(struct tok_trie *t, const char *p, size_t n, uint32_t id, sl_err *err)
{
    uint32_t at = t->first[(unsigned char)p[0]], next = 0;
    if (!at) {
        SL_TRY(new_node(t, (uint8_t)p[0], &at, err));
        t->first[(unsigned char)p[0]] = at;
    }
    for (size_t i = 1; i < n; i++) {
        next = step(t, at, (uint8_t)p[i]);
        if (!next) {
            SL_TRY(new_node(t, (uint8_t)p[i], &next, err));
            t->node[next].sibling = t->node[at].child;
            t->node[at].child = next;
        }
        at = next;
    }
    if (t->node[at].id == TOK_NONE) t->node[at].id = id; /* two of one text: the first */
    return SL_OK;
}

void tok_trie_fini(struct tok_trie *t)
{
    mem_free(t->node);
}

size_t tok_trie_match(const tok *t, const struct tok_trie *tr, const char *p, size_t n,
                      size_t n_clean, uint32_t *id)
{
    uint32_t at = tr->first[(unsigned char)p[0]];
    size_t best = 0;
    for (size_t i = 1; at; i++) {
        uint32_t hit = tr->node[at].id;
        if (hit != TOK_NONE && (i <= n_clean || !(t->v[hit].flags & TOK_F_CONTROL))) {
            best = i;
            *id = hit;
        }
        if (i == n) break;
        at = step(tr, at, (uint8_t)p[i]);
    }
    return best;
}
