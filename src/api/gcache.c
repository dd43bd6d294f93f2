/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled grammars of earlier requests, least recently used out first. A request with the same
 * text finds its grammar with the masks that were computed for it. What is kept is bounded in
 * bytes: a grammar in use grows, so sizes are taken again at each visit. */
#include <string.h>

#include "api/api_internal.h"
#include "base/hash.h"
#include "base/log.h"

#define N_SLOT 256
#define MAX_BYTES ((size_t)32 << 20)
#define MAX_TEXT ((size_t)256 << 10) /* a longer text is compiled each time */

struct entry {
    sl_grammar *g; /* NULL = free */
    uint64_t hash, used;
    sl_grammar_kind kind;
    char *text;
    size_t n, bytes;
};

struct api_gcache {
    /* fixed after open */
    net_lock *lock;
    /* under lock */
    struct entry entry[N_SLOT];
    uint64_t clock;
    size_t bytes;
    int n;
};

sl_status api_gcache_open(struct api_gcache **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    *out = p;
    return net_lock_open(&(*out)->lock, err);
}

static void drop(struct api_gcache *c, struct entry *e)
{
    if (!e->g) return;
    sl_grammar_unref(e->g);
    mem_free(e->text);
    c->bytes -= e->bytes;
    c->n--;
    *e = (struct entry){0};
}

void api_gcache_close(struct api_gcache *c)
{
    if (!c) return;
    for (int i = 0; i < N_SLOT; i++)
        drop(c, &c->entry[i]);
    net_lock_close(c->lock);
    mem_free(c);
}

static struct entry *find(struct api_gcache *c, uint64_t hash, sl_grammar_kind kind,
                          const char *text, size_t n)
{
    for (int i = 0; i < N_SLOT; i++) {
        struct entry *e = &c->entry[i];
        if (e->g && e->hash == hash && e->kind == kind && e->n == n &&
            memcmp(e->text, text, n) == 0)
            return e;
    }
    return NULL;
}

/* Sizes now; the oldest go until all fit and a place is free. */
static struct entry *make_room(struct api_gcache *c)
{
    struct entry *old, *unused;
    for (int i = 0; i < N_SLOT; i++) {
        struct entry *e = &c->entry[i];
        if (!e->g) continue;
        c->bytes -= e->bytes;
        e->bytes = sl_grammar_bytes(e->g) + e->n + sizeof *e;
        c->bytes += e->bytes;
    }
    for (;;) {
        old = unused = NULL;
        for (int i = 0; i < N_SLOT; i++) {
            struct entry *e = &c->entry[i];
            if (!e->g)
                unused = e;
            else if (!old || e->used < old->used)
                old = e;
        }
        if (!old || (unused && c->bytes <= MAX_BYTES)) return unused;
        drop(c, old);
    }
}

/* Keep g for later; not doing so is no failure. */
static void keep(struct api_gcache *c, uint64_t hash, sl_grammar_kind kind, const char *text,
                 size_t n, sl_grammar *g)
{
    void *copy = NULL;
    if (n > MAX_TEXT || find(c, hash, kind, text, n)) return;
    if (mem_alloc_array(MEM_MISC, n + 1, 1, &copy, NULL)) return;
    memcpy(copy, text, n);
    struct entry *e = make_room(c);
    *e = (struct entry){.g = sl_grammar_ref(g), .hash = hash, .used = ++c->clock, .kind = kind};
    e->text = copy;
    e->n = n;
    e->bytes = sl_grammar_bytes(g) + n + sizeof *e;
    c->bytes += e->bytes;
    c->n++;
}

sl_status api_gcache_get(api *a, sl_grammar_kind kind, const char *text, size_t n, sl_grammar **out,
                         sl_err *err)
{
    struct api_gcache *c = a->gcache;
    uint64_t hash = hash_bytes(text, n, (uint64_t)kind);
    *out = NULL;
    net_lock_take(c->lock);
    struct entry *e = find(c, hash, kind, text, n);
    if (e) {
        e->used = ++c->clock;
        *out = sl_grammar_ref(e->g);
        (void)make_room(c);
    }
    net_lock_give(c->lock);
    net_count_add(e ? &a->metrics.grammar_hit : &a->metrics.grammar_miss, 1);
    if (e) return SL_OK;
    SL_TRY(sl_grammar_compile(a->o.model, kind, text, n, out, err));
    if (sl_grammar_relaxed(*out)[0])
        log_msg(LOG_DEBUG, "schema not held in: %s", sl_grammar_relaxed(*out));
    net_lock_take(c->lock);
    keep(c, hash, kind, text, n, *out);
    net_lock_give(c->lock);
    return SL_OK;
}

void api_gcache_stat(const api *a, int *n, size_t *bytes)
{
    net_lock_take(a->gcache->lock);
    *n = a->gcache->n;
    *bytes = a->gcache->bytes;
    net_lock_give(a->gcache->lock);
}
