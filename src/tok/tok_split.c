/* SPDX-License-Identifier: Apache-2.0 */
/* Merges of vocabularies that list none (SentencePiece, tiktoken): two neighbours become one where
 * the vocabulary has the two together. */
#include <string.h>

#include "base/size.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

struct pairs {
    tok *t;
    const uint32_t *rank;
    bool count; /* only how many there are */
    uint64_t n;
};

static size_t step_of(const tok *t, const struct tok_entry *e, size_t i)
{
    int k = t->chars ? text_utf8_need((unsigned char)e->key[i]) : 1;
    return k > 0 ? (size_t)k : 1;
}

static void put(tok *t, struct tok_merge m)
{
    uint64_t h = ((uint64_t)m.left << 32 | m.right) * 0x9E3779B97F4A7C15ull;
    uint32_t s = ((uint32_t)(h >> 32) ^ (uint32_t)(h >> 12)) & t->merge_mask;
    while (t->merge[s].left != TOK_NONE)
        s = (s + 1) & t->merge_mask;
    t->merge[s] = m;
    t->n_merge++;
}

static void word(struct pairs *x, uint32_t id)
{
    tok *t = x->t;
    const struct tok_entry *e = &t->v[id];
    for (size_t i = step_of(t, e, 0); i < e->n_key; i += step_of(t, e, i)) {
        uint32_t l = tok_word_find(t, e->key, i), r = TOK_NONE;
        if (l != TOK_NONE) r = tok_word_find(t, e->key + i, e->n_key - i);
        if (r == TOK_NONE) continue;
        if (!x->count) put(t, (struct tok_merge){l, r, x->rank[id], id});
        x->n++;
    }
}

static bool merged(const struct pairs *x, uint32_t id)
{
    const struct tok_entry *e = &x->t->v[id];
    return (e->flags & TOK_F_WORD) && x->rank[id] != TOK_NONE && e->n_key <= TOK_MAX_SPLIT &&
           tok_word_find(x->t, e->key, e->n_key) == id;
}

/* Code points that words have and that are no words themselves: symbols without an id, so that
 * merges can begin with them. */
static sl_status lone_chars(const struct pairs *x, sl_err *err)
{
    tok *t = x->t;
    uint32_t most = (t->slot_mask + 1) / 4, cap = (uint32_t)t->n_vocab;
    for (uint32_t id = 0; id < (uint32_t)t->n_vocab; id++) {
        if (!merged(x, id)) continue;
        for (size_t i = 0, k; i < t->v[id].n_key; i += k) {
            const char *p = t->v[id].key + i;
            k = step_of(t, &t->v[id], i);
            if (k == t->v[id].n_key || tok_word_find(t, p, k) != TOK_NONE || most == 0) continue;
            if ((uint32_t)t->n_entry == cap) {
                void *q = NULL;
                cap += cap / 8 + 16;
                SL_TRY(mem_realloc(MEM_TOK, t->v, cap * sizeof *t->v, &q, err));
                t->v = q;
            }
            t->v[t->n_entry] =
                (struct tok_entry){p, p, (uint32_t)k, (uint32_t)k, TOK_F_USED | TOK_F_WORD};
            tok_build_slot(t, (uint32_t)t->n_entry++);
            most--;
        }
    }
    return SL_OK;
}

/* rank -> what the merge makes, where every rank is one word's. */
static sl_status rank_table(const struct pairs *x, sl_err *err)
{
    tok *t = x->t;
    void *p = NULL;
    size_t n = (size_t)t->n_vocab;
    mem_free(t->rank_id);
    t->rank_id = NULL;
    SL_TRY(mem_alloc_array(MEM_TOK, n, sizeof *t->rank_id, &p, err));
    t->rank_id = p;
    memset(p, 0xff, n * sizeof *t->rank_id);
    for (uint32_t id = 0; id < n; id++) {
        if (x->rank[id] == TOK_NONE) continue;
        uint32_t *slot = &t->rank_id[x->rank[id]];
        if (*slot != TOK_NONE) t->tied = true;
        *slot = id;
    }
    return SL_OK;
}

sl_status tok_build_splits(tok *t, const uint32_t *rank, sl_err *err)
{
    struct pairs x = {.t = t, .rank = rank, .count = true};
    void *p = NULL;
    size_t cap = 16;
    if (t->chars) SL_TRY(lone_chars(&x, err));
    for (uint32_t id = 0; id < (uint32_t)t->n_vocab; id++)
        if (merged(&x, id)) word(&x, id);
    if (x.n > (uint64_t)TOK_MAX_VOCAB * 8) return SL_FAIL(err, LIMIT, "too many ways to merge");
    while (cap < x.n * 2)
        cap *= 2;
    mem_free(t->merge);
    t->merge = NULL;
    SL_TRY(mem_alloc_array(MEM_TOK, cap, sizeof *t->merge, &p, err));
    t->merge = p;
    t->merge_mask = (uint32_t)cap - 1;
    memset(t->merge, 0xff, cap * sizeof *t->merge);
    x.count = false;
    for (uint32_t id = 0; id < (uint32_t)t->n_vocab; id++)
        if (merged(&x, id)) word(&x, id);
    return rank_table(&x, err);
}
