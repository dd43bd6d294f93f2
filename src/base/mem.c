/* SPDX-License-Identifier: Apache-2.0 */
/* Every block carries a 64-byte head (size, tag) before the pointer that is given out, so that
 * frees can be counted. */
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"

struct head {
    uint64_t size; /* bytes given out */
    uint32_t tag;
    uint32_t magic;
};
#define HEAD_BYTES 64
#define HEAD_MAGIC 0x51c3a110u

/* any thread; relaxed: counters only, nothing is published through them */
static _Atomic int64_t used[MEM_N_TAG];
static _Atomic uint64_t n_alloc;
static _Atomic uint64_t fail_at;
static _Atomic int fail_sticky;

static int must_fail(void)
{
    uint64_t n = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (n == 0) return 0;
    if (n > 1) {
        atomic_store_explicit(&fail_at, n - 1, memory_order_relaxed);
        return 0;
    }
    if (!atomic_load_explicit(&fail_sticky, memory_order_relaxed))
        atomic_store_explicit(&fail_at, 0, memory_order_relaxed);
    return 1;
}

static void count(enum mem_tag tag, int64_t n)
{
    atomic_fetch_add_explicit(&used[tag], n, memory_order_relaxed);
}

sl_status mem_alloc(enum mem_tag tag, size_t n, void **out, sl_err *err)
{
    uint64_t total;
    void *p = NULL;
    if (!size_add(n, HEAD_BYTES, &total) || !size_align(total, 64, &total) || total > SIZE_MAX / 2)
        return SL_FAIL(err, NOMEM, "out of memory: %zu bytes for %s", n, mem_tag_text(tag));
    atomic_fetch_add_explicit(&n_alloc, 1, memory_order_relaxed);
    if (must_fail() || posix_memalign(&p, 64, total) != 0)
        return SL_FAIL(err, NOMEM, "out of memory: %zu bytes for %s", n, mem_tag_text(tag));
    struct head *h = p;
    h->size = n;
    h->tag = (uint32_t)tag;
    h->magic = HEAD_MAGIC;
    count(tag, (int64_t)n);
    *out = (char *)p + HEAD_BYTES;
    return SL_OK;
}

sl_status mem_alloc_array(enum mem_tag tag, size_t n, size_t size, void **out, sl_err *err)
{
    uint64_t total;
    if (!size_mul(n, size, &total))
        return SL_FAIL(err, NOMEM, "out of memory: %zu x %zu bytes", n, size);
    SL_TRY(mem_alloc(tag, total, out, err));
    memset(*out, 0, total);
    return SL_OK;
}

static struct head *head_of(void *p)
{
    struct head *h = (struct head *)((char *)p - HEAD_BYTES);
    ASSERT(h->magic == HEAD_MAGIC);
    return h;
}

sl_status mem_realloc(enum mem_tag tag, void *p, size_t n, void **out, sl_err *err)
{
    void *q = NULL;
    SL_TRY(mem_alloc(tag, n, &q, err));
    if (p) {
        struct head *h = head_of(p);
        memcpy(q, p, h->size < n ? h->size : n);
        mem_free(p);
    }
    *out = q;
    return SL_OK;
}

void mem_free(void *p)
{
    if (!p) return;
    struct head *h = head_of(p);
    count((enum mem_tag)h->tag, -(int64_t)h->size);
    h->magic = 0;
    free(h);
}

sl_status mem_reserve(size_t n, void **out, sl_err *err)
{
    void *p = MAP_FAILED;
    atomic_fetch_add_explicit(&n_alloc, 1, memory_order_relaxed);
    if (!must_fail())
        p = mmap(NULL, n ? n : 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return SL_FAIL(err, NOMEM, "out of memory: addresses of %zu bytes", n);
    *out = p;
    return SL_OK;
}

void mem_unreserve(void *p, size_t n)
{
    munmap(p, n ? n : 1);
}

sl_status mem_slab_alloc(enum mem_tag tag, size_t n, int huge, void **out, sl_err *err)
{
    const size_t big = (size_t)2 << 20;
    uint64_t total;
    atomic_fetch_add_explicit(&n_alloc, 1, memory_order_relaxed);
    if (!size_align(n ? n : 1, big, &total) || total > SIZE_MAX / 4 || must_fail())
        return SL_FAIL(err, NOMEM, "out of memory: %zu bytes for %s", n, mem_tag_text(tag));
    char *p = mmap(NULL, total + big, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return SL_FAIL(err, NOMEM, "out of memory: %zu bytes for %s", n, mem_tag_text(tag));
    size_t skip = (big - (uintptr_t)p % big) % big;
    if (skip) munmap(p, skip);
    if (big - skip) munmap(p + skip + total, big - skip);
    p += skip;
    (void)madvise(p, total, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* advice only */
    count(tag, (int64_t)total);
    *out = p;
    return SL_OK;
}

void mem_slab_free(enum mem_tag tag, void *p, size_t n)
{
    const size_t big = (size_t)2 << 20;
    if (!p) return;
    size_t total = size_round(n ? n : 1, big);
    munmap(p, total);
    count(tag, -(int64_t)total);
}

void mem_steady(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

void mem_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

int64_t mem_used(enum mem_tag tag)
{
    return atomic_load_explicit(&used[tag], memory_order_relaxed);
}

uint64_t mem_n_alloc(void)
{
    return atomic_load_explicit(&n_alloc, memory_order_relaxed);
}

const char *mem_tag_text(enum mem_tag tag)
{
    static const char *const text[] = {
#define X(name, text) text,
        MEM_TAG_LIST(X)
#undef X
    };
    return tag < MEM_N_TAG ? text[tag] : "?";
}

void mem_fail_at(uint64_t n, int sticky)
{
    atomic_store_explicit(&fail_sticky, sticky, memory_order_relaxed);
    atomic_store_explicit(&fail_at, n, memory_order_relaxed);
}

/* ---- arenas ---- */
struct arena_blk {
    struct arena_blk *next;
    size_t pad;
};

void mem_arena_init(struct arena *a, enum mem_tag tag, size_t limit)
{
    memset(a, 0, sizeof *a);
    a->tag = tag;
    a->limit = limit;
}

void mem_arena_fini(struct arena *a)
{
    struct arena_blk *b = a->head, *next;
    for (; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    a->head = NULL;
    a->used = a->cap = a->total = a->held = 0;
}

void mem_arena_reset(struct arena *a)
{
    if (a->head && a->head->next) mem_arena_fini(a);
    a->used = a->total = 0;
}

sl_status mem_arena_alloc(struct arena *a, size_t n, void **out, sl_err *err)
{
    uint64_t want;
    if (!size_align(n ? n : 1, 16, &want) ||
        (a->limit && want > a->limit - BASE_MIN(a->total, a->limit)))
        return SL_FAIL(err, NOMEM, "out of memory: limit of %zu bytes for %s", a->limit,
                       mem_tag_text(a->tag));
    if (want > a->cap - a->used) {
        size_t cap = want > 32768 ? want : (a->total > (1u << 20) ? (1u << 18) : 32768);
        void *p = NULL;
        SL_TRY(mem_alloc(a->tag, cap + sizeof(struct arena_blk), &p, err));
        struct arena_blk *b = p;
        a->held += cap;
        if (want > 32768 && a->head && a->cap - a->used > 1024) { /* keep filling the current one */
            b->next = a->head->next;
            a->head->next = b;
            a->total += want;
            *out = memset(b + 1, 0, want);
            return SL_OK;
        }
        b->next = a->head;
        a->head = b;
        a->used = 0;
        a->cap = cap;
    }
    char *base = (char *)(a->head + 1) + a->used;
    a->used += want;
    a->total += want;
    *out = memset(base, 0, want);
    return SL_OK;
}

sl_status mem_arena_array(struct arena *a, size_t n, size_t size, void **out, sl_err *err)
{
    uint64_t total;
    if (!size_mul(n, size, &total))
        return SL_FAIL(err, NOMEM, "out of memory: %zu x %zu bytes", n, size);
    return mem_arena_alloc(a, total, out, err);
}

sl_status mem_arena_str(struct arena *a, const char *s, size_t n, char **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_alloc(a, n + 1, &p, err));
    if (n) memcpy(p, s, n);
    *out = p;
    return SL_OK;
}
