/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-pair merging of one pre-token: always the pair of lowest rank, leftmost first. Short words
 * by scanning an array, long ones with a linked list and a heap of (rank, position), so that a
 * megabyte without a split costs n log n. */
#include <limits.h>
#include <string.h>

#include "base/size.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

#define SHORT 48 /* bytes; above this the heap is faster */

sl_status tok_ids_put(struct tok_ids *out, int32_t id, sl_err *err)
{
    if (out->max && out->n >= out->max) return SL_FAIL(err, LIMIT, "more than %d tokens", out->max);
    if (out->n == out->cap) {
        void *p = NULL;
        if (out->cap > INT_MAX / 2) return SL_FAIL(err, LIMIT, "more than %d tokens", INT_MAX / 2);
        int cap = out->cap ? out->cap * 2 : 64;
        SL_TRY(mem_realloc(MEM_REQUEST, out->id, (size_t)cap * sizeof *out->id, &p, err));
        out->id = p;
        out->cap = cap;
    }
    out->id[out->n++] = id;
    return SL_OK;
}

static uint32_t rank_of(const tok *t, uint32_t l, uint32_t r)
{
    const struct tok_merge *m = tok_merge_find(t, l, r);
    return m ? m->rank : TOK_NONE;
}

static uint32_t made_of(const tok *t, uint32_t l, uint32_t r, uint32_t rank)
{
    return t->tied ? tok_merge_find(t, l, r)->id : t->rank_id[rank];
}

/* The symbols that merging p[0..n) begins with: at most n. */
static size_t symbols(const tok *t, const char *p, size_t n, uint32_t *id)
{
    size_t k = 0, len;
    if (!t->chars) {
        for (size_t i = 0; i < n; i++) {
            uint32_t b = t->byte_id[(unsigned char)p[i]];
            if (b == TOK_NONE && t->unk >= 0) b = (uint32_t)t->unk;
            if (b != TOK_NONE) id[k++] = b;
        }
        return k;
    }
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp, x;
        len = (size_t)BASE_MAX(text_utf8_decode(p + i, n - i, &cp), 1);
        x = len == 1 ? t->byte_id[(unsigned char)p[i]] : tok_word_find(t, p + i, len);
        if (x != TOK_NONE)
            id[k++] = x;
        else
            k += tok_bpe_unknown(t, p + i, len, id + k);
    }
    return k;
}

size_t tok_bpe_unknown(const tok *t, const char *p, size_t n, uint32_t *id)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && t->fallback[(unsigned char)p[i]] != TOK_NONE;
    for (size_t i = 0; all && i < n; i++)
        id[i] = t->fallback[(unsigned char)p[i]];
    if (all) return n;
    if (t->unk < 0) return 0;
    id[0] = (uint32_t)t->unk;
    return 1;
}

/* A merged symbol that is no token is spelled by what it was merged from; one without an id by its
 * bytes. begin: where the word's ids begin in out. */
static sl_status put_symbol(const tok *t, uint32_t id, int begin, struct tok_ids *out, sl_err *err)
{
    uint32_t stack[64], byte[4];
    int n = 0;
    stack[n++] = id;
    while (n > 0) {
        uint32_t x = stack[--n];
        const struct tok_entry *e = &t->v[x];
        if (x >= (uint32_t)t->n_vocab) {
            size_t k = tok_bpe_unknown(t, e->key, e->n_key, byte);
            for (size_t i = 0; i < k; i++)
                SL_TRY(put_symbol(t, byte[i], begin, out, err));
            continue;
        }
        if ((int64_t)x == t->unk && t->fuse_unk && out->n > begin && out->id[out->n - 1] == t->unk)
            continue;
        size_t cut =
            e->flags & TOK_F_UNUSED && n + 2 <= BASE_COUNT_OF(stack) ? tok_bpe_cut(t, e) : 0;
        if (cut == 0) {
            SL_TRY(tok_ids_put(out, (int32_t)x, err));
            continue;
        }
        stack[n++] = tok_word_find(t, e->key + cut, e->n_key - cut);
        stack[n++] = tok_word_find(t, e->key, cut);
    }
    return SL_OK;
}

size_t tok_bpe_cut(const tok *t, const struct tok_entry *e)
{
    uint32_t best = TOK_NONE;
    size_t cut = 0;
    for (size_t i = 1; i < e->n_key; i++) {
        if (t->chars && ((unsigned char)e->key[i] & 0xc0) == 0x80) continue;
        uint32_t l = tok_word_find(t, e->key, i), r = tok_word_find(t, e->key + i, e->n_key - i);
        if (l == TOK_NONE || r == TOK_NONE || !tok_merge_find(t, l, r)) continue;
        if (cut && tok_merge_find(t, l, r)->rank >= best) continue;
        best = tok_merge_find(t, l, r)->rank;
        cut = i;
    }
    return cut;
}

static sl_status short_word(const tok *t, const char *p, size_t n, struct tok_ids *out, sl_err *err)
{
    uint32_t id[SHORT], rank[SHORT];
    int begin = out->n;
    size_t k = symbols(t, p, n, id);
    for (size_t i = 0; i + 1 < k; i++)
        rank[i] = rank_of(t, id[i], id[i + 1]);
    while (k > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < k; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == TOK_NONE) break;
        id[best] = made_of(t, id[best], id[best + 1], rank[best]);
        memmove(id + best + 1, id + best + 2, (k - best - 2) * sizeof *id);
        if (best + 3 < k) memmove(rank + best + 1, rank + best + 2, (k - best - 3) * sizeof *rank);
        k--;
        if (best + 1 < k) rank[best] = rank_of(t, id[best], id[best + 1]);
        if (best > 0) rank[best - 1] = rank_of(t, id[best - 1], id[best]);
    }
    for (size_t i = 0; i < k; i++)
        SL_TRY(t->chars || t->unk >= 0 ? put_symbol(t, id[i], begin, out, err)
                                       : tok_ids_put(out, (int32_t)id[i], err));
    return SL_OK;
}

/* ---- long words ---- */
struct sym {
    uint32_t id, prev, next;
    uint32_t rank; /* of (this, next); TOK_NONE = none, also for a symbol that was merged away */
};

struct list {
    struct sym *v;
    uint64_t *heap; /* rank << 32 | position; least first; the 8 children of i are 8 i + 1 .. 8 i +
                       8, one cache line */
    size_t n_heap;
};

static void heap_down(struct list *w, size_t i)
{
    uint64_t *h = w->heap, x = h[i];
    for (;;) {
        size_t c = 8 * i + 1, end = BASE_MIN(c + 8, w->n_heap);
        if (c >= end) break;
        size_t best = c;
        for (size_t k = c + 1; k < end; k++)
            if (h[k] < h[best]) best = k;
        if (h[best] >= x) break;
        h[i] = h[best];
        i = best;
    }
    h[i] = x;
}

static void heap_push(struct list *w, uint64_t x)
{
    size_t i = w->n_heap++;
    for (; i > 0 && w->heap[(i - 1) / 8] > x; i = (i - 1) / 8)
        w->heap[i] = w->heap[(i - 1) / 8];
    w->heap[i] = x;
}

static void rank_again(const tok *t, struct list *w, uint32_t i)
{
    struct sym *s = &w->v[i];
    s->rank = s->next == TOK_NONE ? TOK_NONE : rank_of(t, s->id, w->v[s->next].id);
    if (s->rank != TOK_NONE) heap_push(w, (uint64_t)s->rank << 32 | i);
}

static void merge_all(const tok *t, struct list *w)
{
    while (w->n_heap > 0) {
        uint64_t top = w->heap[0];
        w->heap[0] = w->heap[--w->n_heap];
        if (w->n_heap > 0) heap_down(w, 0);
        uint32_t i = (uint32_t)top, rank = (uint32_t)(top >> 32);
        struct sym *s = &w->v[i];
        if (s->rank != rank) continue; /* the pair is gone */
        s->id = made_of(t, s->id, w->v[s->next].id, rank);
        w->v[s->next].rank = TOK_NONE;
        s->next = w->v[s->next].next;
        if (s->next != TOK_NONE) w->v[s->next].prev = i;
        rank_again(t, w, i);
        if (s->prev != TOK_NONE) rank_again(t, w, s->prev);
    }
}

static sl_status long_word(const tok *t, struct tok_bpe *b, const char *p, size_t n,
                           struct tok_ids *out, sl_err *err)
{
    const size_t each =
        sizeof(struct sym) +
        3 * sizeof(uint64_t); /* the heap: n at first, 2 more for each of n merges, 1 less */
    if (b->cap < n) {
        void *m = NULL;
        mem_free(b->mem);
        b->mem = NULL;
        b->cap = 0;
        SL_TRY(mem_alloc(MEM_REQUEST, n * each + 192, &m, err));
        b->mem = m;
        b->cap = n;
    }
    struct list w = {.v = b->mem};
    w.heap = (uint64_t *)(void *)((char *)b->mem + size_round(n * sizeof *w.v, 64)) +
             7; /* heap[1] begins a cache line */
    uint32_t k =
        (uint32_t)symbols(t, p, n, (uint32_t *)(void *)w.heap); /* the heap is not yet used */
    for (uint32_t i = 0; i < k; i++)                            /* the first's prev: TOK_NONE */
        w.v[i] = (struct sym){.id = ((uint32_t *)(void *)w.heap)[i], .prev = i - 1, .next = i + 1};
    int begin = out->n;
    if (k == 0) return SL_OK;
    w.v[k - 1].next = TOK_NONE;
    for (uint32_t i = 0; i < k; i++) {
        w.v[i].rank = i + 1 < k ? rank_of(t, w.v[i].id, w.v[i + 1].id) : TOK_NONE;
        if (w.v[i].rank != TOK_NONE) w.heap[w.n_heap++] = (uint64_t)w.v[i].rank << 32 | i;
    }
    for (size_t i = w.n_heap; i-- > 0;)
        if (8 * i + 1 < w.n_heap) heap_down(&w, i);
    merge_all(t, &w);
    for (uint32_t i = 0; i != TOK_NONE; i = w.v[i].next)
        SL_TRY(t->chars || t->unk >= 0 ? put_symbol(t, w.v[i].id, begin, out, err)
                                       : tok_ids_put(out, (int32_t)w.v[i].id, err));
    return SL_OK;
}

/* Where no merge crosses from one word into the mark of the next, words are merged one by one. */
static sl_status by_word(const tok *t, struct tok_bpe *w, const char *p, size_t n,
                         struct tok_ids *out, sl_err *err)
{
    size_t m = strlen(t->mark), begin = 0;
    for (size_t i = 0; begin < n; begin = i) {
        while (n - i >= m && memcmp(p + i, t->mark, m) == 0)
            i += m;
        const char *hit = memmem(p + i, n - i, t->mark, m);
        i = hit ? (size_t)(hit - p) : n;
        SL_TRY(i - begin <= SHORT ? short_word(t, p + begin, i - begin, out, err)
                                  : long_word(t, w, p + begin, i - begin, out, err));
    }
    return SL_OK;
}

sl_status tok_bpe_word(const tok *t, struct tok_bpe *w, const char *p, size_t n,
                       struct tok_ids *out, sl_err *err)
{
    if (n == 1 && !t->chars) {
        uint32_t id = t->byte_id[(unsigned char)p[0]];
        if (id == TOK_NONE && t->unk >= 0) id = (uint32_t)t->unk;
        return id == TOK_NONE ? SL_OK : tok_ids_put(out, (int32_t)id, err);
    }
    if (t->ignore_merges) {
        uint32_t id = tok_word_find(t, p, n);
        if (id < (uint32_t)t->n_vocab) return tok_ids_put(out, (int32_t)id, err);
    }
    if (t->by_word) return by_word(t, w, p, n, out, err);
    return n <= SHORT ? short_word(t, p, n, out, err) : long_word(t, w, p, n, out, err);
}

void tok_bpe_fini(struct tok_bpe *w)
{
    mem_free(w->mem);
    w->mem = NULL;
    w->cap = 0;
}
