/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix tree. A node is a full block; its key is its parent, its tokens, their marks, the
 * salt, and where paths look ahead the token after it. Whoever names a block names its parents too,
 * so a kept block has only kept descendants; and because sequences let their blocks go from the
 * end, descendants come before their parents in the order of use: the block to evict is always a
 * leaf. */
#include <string.h>

#include "base/hash.h"
#include "kv/kv_internal.h"

sl_status kv_cache_init(struct kv_pool *p, sl_err *err)
{
    void *v = NULL;
    int n = 16;
    while (n < p->n_blk && n < 1 << 24)
        n *= 2;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)p->n_blk, sizeof *p->node, &v, err));
    p->node = v;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)p->n_blk * (size_t)p->blk_tok, sizeof *p->tok, &v, err));
    p->tok = v;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n, sizeof *p->bucket, &v, err));
    p->bucket = v;
    p->n_bucket = n;
    memset(p->bucket, 0xff, (size_t)n * sizeof *p->bucket);
    SL_TRY(mem_alloc_array(MEM_KV, KV_OWNER_MAX, sizeof *p->owner, &v, err));
    p->owner = v;
    for (int i = 0; i < KV_OWNER_MAX; i++)
        p->owner[i].lru_old = p->owner[i].lru_new = -1;
    return SL_OK;
}

/* ---- order of use ---- */

static void add_kept(struct kv_pool *p, struct kv_owner *o, int n)
{
    p->n_reserved -= BASE_MIN(o->n_kept, o->reserve);
    o->n_kept += n;
    p->n_kept += n;
    p->n_reserved += BASE_MIN(o->n_kept, o->reserve);
}

void kv_owner_reserve(struct kv_pool *p, int owner, int n_blk)
{
    if (!p->node) return;
    struct kv_owner *o = &p->owner[owner];
    p->n_owner = BASE_MAX(p->n_owner, owner + 1);
    p->n_reserved += BASE_MIN(o->n_kept, n_blk) - BASE_MIN(o->n_kept, o->reserve);
    o->reserve = n_blk;
}

void kv_tree_keep(struct kv_pool *p, int32_t blk, int owner)
{
    struct kv_node *n = &p->node[blk];
    struct kv_owner *o = &p->owner[owner];
    p->n_owner = BASE_MAX(p->n_owner, owner + 1);
    n->owner = owner;
    n->stamp = ++p->n_stamp;
    n->lru_prev = o->lru_new;
    n->lru_next = -1;
    if (o->lru_new >= 0)
        p->node[o->lru_new].lru_next = blk;
    else
        o->lru_old = blk;
    o->lru_new = blk;
    add_kept(p, o, 1);
}

void kv_tree_use(struct kv_pool *p, int32_t blk)
{
    struct kv_node *n = &p->node[blk];
    struct kv_owner *o = &p->owner[n->owner];
    if (n->lru_prev >= 0)
        p->node[n->lru_prev].lru_next = n->lru_next;
    else
        o->lru_old = n->lru_next;
    if (n->lru_next >= 0)
        p->node[n->lru_next].lru_prev = n->lru_prev;
    else
        o->lru_new = n->lru_prev;
    n->lru_prev = n->lru_next = -1;
    add_kept(p, o, -1);
}

/* ---- nodes ---- */

static int32_t *bucket_of(const struct kv_pool *p, uint64_t hash)
{
    return &p->bucket[hash & (uint64_t)(p->n_bucket - 1)];
}

static void forget(struct kv_pool *p, int32_t blk)
{
    struct kv_node *n = &p->node[blk];
    int32_t *at = bucket_of(p, n->hash);
    while (*at != blk)
        at = &p->node[*at].chain;
    *at = n->chain;
    if (n->parent >= 0) p->node[n->parent].n_child--;
    kv_snap_drop(p, blk);
    kv_win_drop(p, blk);
    n->in_tree = false;
}

/* The block of an owner that was let go first, of those nothing hangs on. A child that another
 * owner keeps may hang on it. */
static int32_t oldest_of(const struct kv_pool *p, const struct kv_owner *o)
{
    int32_t blk = o->lru_old;
    while (blk >= 0 && p->node[blk].n_child)
        blk = p->node[blk].lru_next;
    return blk;
}

/* The oldest of the owners that keep more than their reserve; any: of all owners. */
static int32_t oldest(const struct kv_pool *p, bool any)
{
    int32_t best = -1;
    for (int i = 0; i < p->n_owner; i++) {
        const struct kv_owner *o = &p->owner[i];
        if (o->n_kept <= (any ? 0 : o->reserve)) continue;
        int32_t blk = oldest_of(p, o);
        if (blk >= 0 && (best < 0 || p->node[blk].stamp < p->node[best].stamp)) best = blk;
    }
    return best;
}

void kv_tree_evict(struct kv_pool *p, struct kv_who who)
{
    int32_t blk = oldest(p, false);
    if (blk < 0) blk = oldest_of(p, &p->owner[who.owner]);
    if (blk < 0) blk = oldest(p, true); /* a leaf is always there: see README.md, 9 */
    ASSERT(blk >= 0 && p->ref[blk] == 0 && p->node[blk].n_child == 0);
    kv_tree_use(p, blk);
    forget(p, blk);
    p->n_evict++;
    kv_block_release(p, blk);
}

void kv_cache_drop(struct kv_pool *p)
{
    if (!p->node) return;
    while (p->n_kept)
        kv_tree_evict(p, (struct kv_who){.all = true});
    for (int32_t b = 0; b < p->n_blk; b++) {
        if (p->node[b].in_tree) {
            kv_snap_drop(p, b);
            kv_win_drop(p, b);
        }
        p->node[b].in_tree = false;
        p->node[b].n_child = 0;
    }
    p->epoch++;
    memset(p->bucket, 0xff, (size_t)p->n_bucket * sizeof *p->bucket);
}

/* ---- paths ---- */

/* Which positions of block i of a path are marked: first and end within the block. */
static uint32_t mark_of(const struct kv_pool *p, const struct kv_path *path, int i)
{
    int64_t base = (int64_t)i * p->blk_tok;
    int64_t lo = path->mark0 - base, hi = path->mark1 - base;
    lo = lo < 0 ? 0 : lo;
    hi = hi > p->blk_tok ? p->blk_tok : hi;
    return lo < hi ? (uint32_t)lo << 16 | (uint32_t)hi : 0;
}

struct key {
    int32_t parent, next;
    uint32_t mark;
    uint64_t salt, hash;
    const int32_t *tok;
};

/* The key of block i under parent. */
static struct key key_of(const struct kv_pool *p, const struct kv_path *path, int i, int32_t parent)
{
    struct key k = {.parent = parent,
                    .mark = mark_of(p, path, i),
                    .salt = path->salt,
                    .tok = path->ids + (int64_t)i * p->blk_tok};
    k.next = path->ahead ? k.tok[p->blk_tok] : -1;
    uint64_t seed = (parent >= 0 ? p->node[parent].hash : path->salt) + k.mark + 1;
    seed += (uint64_t)(k.next + 1) << 32;
    k.hash = hash_bytes(k.tok, (size_t)p->blk_tok * sizeof *k.tok, seed) & p->hash_mask;
    return k;
}

static int32_t find(const struct kv_pool *p, const struct key *k)
{
    size_t bytes = (size_t)p->blk_tok * sizeof *p->tok;
    int32_t b = *bucket_of(p, k->hash);
    while (b >= 0) {
        const struct kv_node *n = &p->node[b];
        if (n->hash == k->hash && n->parent == k->parent && n->mark == k->mark &&
            n->next == k->next && n->salt == k->salt &&
            memcmp(p->tok + (int64_t)b * p->blk_tok, k->tok, bytes) == 0)
            return b;
        b = n->chain;
    }
    return -1;
}

/* Blocks of the path in s after which it can go on: with a snapshot of the state, and places of all
 * that the next position sees. */
static int usable(const struct kv_pool *p, struct kv_seq *s)
{
    for (int n = s->n_path;;) {
        int to = kv_win_before(p, s, n);
        if (p->has_state) to = kv_snap_before(p, s, to, &s->snap);
        if (to == n) return n / p->blk_tok;
        n = to;
    }
}

int kv_cache_match(struct kv_pool *p, const struct kv_path *path, int max_tok, struct kv_seq *s)
{
    ASSERT(s->n_blk == 0 && s->n_tok == 0);
    int n_max = BASE_MIN(kv_path_whole(path, max_tok, p->blk_tok) / p->blk_tok, s->cap);
    for (int i = 0; p->node && i < n_max; i++) {
        struct key k = key_of(p, path, i, i ? s->blk[i - 1] : -1);
        int32_t b = find(p, &k);
        if (b < 0) break;
        s->blk[s->n_blk++] = b;
    }
    s->n_path = s->n_blk * p->blk_tok;
    s->snap = -1;
    s->n_blk = usable(p, s);
    if (s->snap >= 0) kv_snap_use(p, s->snap);
    for (int i = 0; i < s->n_blk; i++)
        kv_block_ref(p, s->blk[i]);
    s->n_tok = s->n_blk * p->blk_tok;
    s->n_put = s->win0 = s->n_blk;
    kv_win_hold(p, s);
    s->epoch = p->epoch;
    return s->n_tok;
}

int kv_cache_probe(const struct kv_pool *p, const struct kv_path *path, int max_tok)
{
    int n_max = kv_path_whole(path, max_tok, p->blk_tok) / p->blk_tok, n = 0;
    for (int32_t b = -1; p->node && n < n_max; n++) {
        struct key k = key_of(p, path, n, b);
        b = find(p, &k);
        if (b < 0) break;
    }
    return n * p->blk_tok;
}

void kv_cache_put(struct kv_pool *p, const struct kv_path *path, struct kv_seq *s)
{
    int n_full = kv_path_whole(path, s->n_tok, p->blk_tok) / p->blk_tok;
    if (!p->node || s->epoch != p->epoch) return;
    for (; s->n_put < n_full; s->n_put++) {
        int i = s->n_put;
        struct key k = key_of(p, path, i, i ? s->blk[i - 1] : -1);
        int32_t had = find(p, &k), blk = s->blk[i];
        if (had == blk) continue;
        if (had >= 0) {
            if (!kv_win_swap(p, s, i, had)) return;
            kv_block_ref(p, had);
            s->blk[i] = had;
            kv_block_unref(p, blk, s->who.owner);
            continue;
        }
        struct kv_node *n = &p->node[blk];
        /* of a fork where a block ended: another sequence has put it, with the token after it that
         * it has itself */
        if (n->in_tree) return;
        int32_t *at = bucket_of(p, k.hash);
        *n = (struct kv_node){.in_tree = true,
                              .parent = k.parent,
                              .chain = *at,
                              .lru_prev = -1,
                              .lru_next = -1,
                              .snap = -1,
                              .mark = k.mark,
                              .next = k.next,
                              .salt = k.salt,
                              .hash = k.hash};
        *at = blk;
        if (k.parent >= 0) p->node[k.parent].n_child++;
        memcpy(p->tok + (int64_t)blk * p->blk_tok, k.tok, (size_t)p->blk_tok * sizeof *p->tok);
    }
}

/* ---- checking ---- */

static int check_node(const struct kv_pool *p, int32_t b)
{
    const struct kv_node *n = &p->node[b];
    int32_t at = *bucket_of(p, n->hash);
    while (at >= 0 && at != b)
        at = p->node[at].chain;
    if (at != b) return 8;
    if (n->parent < 0) return 0;
    if (!p->node[n->parent].in_tree) return 7;
    if (p->ref[b] > 0 && p->ref[n->parent] == 0) return 7;
    p->seen[n->parent]++; /* children */
    return 0;
}

/* The kept blocks of an owner: in the order in which they were let go, and each before its parent.
 */
static int check_kept(const struct kv_pool *p, int owner, int *n)
{
    const struct kv_owner *o = &p->owner[owner];
    int32_t prev = -1;
    int had = *n;
    for (int32_t b = o->lru_old; b >= 0; b = p->node[b].lru_next) {
        const struct kv_node *k = &p->node[b];
        if (!k->in_tree || p->ref[b] || k->owner != owner || k->lru_prev != prev || ++*n > p->n_blk)
            return 9;
        if (prev >= 0 && p->node[prev].stamp >= k->stamp) return 9;
        if (k->parent >= 0 && p->ref[k->parent] == 0 && p->node[k->parent].stamp <= k->stamp)
            return 9; /* a parent would be evicted first */
        prev = b;
    }
    return *n - had == o->n_kept && prev == o->lru_new ? 0 : 9;
}

int kv_tree_check(const struct kv_pool *p)
{
    int n = 0;
    memset(p->seen, 0, (size_t)p->n_blk * sizeof *p->seen);
    for (int32_t b = 0; b < p->n_blk; b++) {
        int broken = p->node[b].in_tree ? check_node(p, b) : 0;
        if (broken) return broken;
    }
    for (int32_t b = 0; b < p->n_blk; b++)
        if (p->node[b].in_tree && p->seen[b] != p->node[b].n_child) return 7;
    int n_reserved = 0;
    for (int i = 0; i < p->n_owner; i++) {
        int had = n;
        int broken = check_kept(p, i, &n);
        if (broken) return broken;
        n_reserved += BASE_MIN(n - had, p->owner[i].reserve);
    }
    return n == p->n_kept && n_reserved == p->n_reserved ? 0 : 9;
}
