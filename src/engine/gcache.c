/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled grammars of earlier requests, least recently used out first. A request with the same
 * text finds its grammar with the masks that were computed for it. What is kept is bounded in
 * bytes: a grammar in use grows, so sizes are taken again at each visit. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "sluice.h"

#define N_SLOT 256
#define MAX_BYTES ((size_t)32 << 20)
#define MAX_TEXT ((size_t)256 << 10) /* a longer text is compiled each time */

struct entry {
    sl_grammar *g; /* NULL = free */
    uint64_t hash, used;
    size_t bytes;
};

struct sl_grammar_cache {
    /* fixed after open */
    const sl_model *m;
    /* any thread */
    atomic_flag busy; /* over what follows */
    struct entry entry[N_SLOT];
    uint64_t clock;
    sl_grammar_cache_info info;
};

/* Held for a few microseconds. acquire; pairs with the release of unlock. */
static void lock(sl_grammar_cache *c)
{
    while (atomic_flag_test_and_set_explicit(&c->busy, memory_order_acquire))
        sched_yield();
}

static void unlock(sl_grammar_cache *c)
{
    atomic_flag_clear_explicit(&c->busy, memory_order_release);
}

sl_status sl_grammar_cache_open(const sl_model *m, sl_grammar_cache **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    sl_grammar_cache *c = p;
    c->m = m;
    atomic_flag_clear(&c->busy);
    *out = c;
    return SL_OK;
}

static void drop(sl_grammar_cache *c, struct entry *e)
{
    if (!e->g) return;
    sl_grammar_unref(e->g);
    c->info.bytes -= e->bytes;
    c->info.n--;
    *e = (struct entry){0};
}

void sl_grammar_cache_close(sl_grammar_cache *c)
{
    if (!c) return;
    for (int i = 0; i < N_SLOT; i++)
        drop(c, &c->entry[i]);
    mem_free(c);
}

static struct entry *find(sl_grammar_cache *c, uint64_t hash, sl_grammar_kind kind,
                          const char *text, size_t n)
{
    for (int i = 0; i < N_SLOT; i++) {
        struct entry *e = &c->entry[i];
        sl_grammar_kind its_kind;
        size_t its_n;
        if (!e->g || e->hash != hash) continue;
        const char *its = sl_grammar_source(e->g, &its_kind, &its_n);
        if (its_kind == kind && its_n == n && memcmp(its, text, n) == 0) return e;
    }
    return NULL;
}

/* Sizes now; the oldest go until all fit and a place is free. */
static struct entry *make_room(sl_grammar_cache *c)
{
    struct entry *old, *unused;
    for (int i = 0; i < N_SLOT; i++) {
        struct entry *e = &c->entry[i];
        if (!e->g) continue;
        c->info.bytes -= e->bytes;
        e->bytes = sl_grammar_bytes(e->g) + sizeof *e;
        c->info.bytes += e->bytes;
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
        if (!old || (unused && c->info.bytes <= MAX_BYTES)) return unused;
        drop(c, old);
    }
}

/* Keep g for later. */
static void keep(sl_grammar_cache *c, uint64_t hash, sl_grammar *g)
{
    sl_grammar_kind kind;
    size_t n;
    const char *text = sl_grammar_source(g, &kind, &n);
    if (n > MAX_TEXT || find(c, hash, kind, text, n)) return;
    struct entry *e = make_room(c);
    *e = (struct entry){.g = sl_grammar_ref(g), .hash = hash, .used = ++c->clock};
    e->bytes = sl_grammar_bytes(g) + sizeof *e;
    c->info.bytes += e->bytes;
    c->info.n++;
}

sl_status sl_grammar_cache_get(sl_grammar_cache *c, sl_grammar_kind kind, const char *text,
                               size_t n, sl_grammar **out, sl_err *err)
{
    uint64_t hash = hash_bytes(text, n, (uint64_t)kind);
    *out = NULL;
    lock(c);
    struct entry *e = find(c, hash, kind, text, n);
    if (e) {
        e->used = ++c->clock;
        *out = sl_grammar_ref(e->g);
        (void)make_room(c);
    }
    if (e)
        c->info.n_hit++;
    else
        c->info.n_miss++;
    unlock(c);
    if (e) return SL_OK;
    SL_TRY(sl_grammar_compile(c->m, kind, text, n, out, err));
    if (sl_grammar_relaxed(*out)[0])
        log_msg(LOG_DEBUG, "schema not held in: %s", sl_grammar_relaxed(*out));
    lock(c);
    keep(c, hash, *out);
    unlock(c);
    return SL_OK;
}

void sl_grammar_cache_info_get(sl_grammar_cache *c, sl_grammar_cache_info *out)
{
    lock(c);
    *out = c->info;
    unlock(c);
}
