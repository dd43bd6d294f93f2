/* SPDX-License-Identifier: Apache-2.0 */
/* The only allocator (docs/house.md, Memory): aligned, counted by tag, and able to fail on request
 * for tests. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(name, text): what memory is for; shown by `sluice inspect --memory`. */
#define MEM_TAG_LIST(X)                                                                            \
    X(MISC, "other")                                                                               \
    X(WEIGHTS, "weights")                                                                          \
    X(KV, "kv cache")                                                                              \
    X(ACTS, "activations")                                                                         \
    X(SCRATCH, "scratch")                                                                          \
    X(TOK, "tokenizer")                                                                            \
    X(REQUEST, "requests")

enum mem_tag {
#define X(name, text) MEM_##name,
    MEM_TAG_LIST(X)
#undef X
        MEM_N_TAG
};

/* n bytes, 64-byte aligned, contents undefined. n = 0 gives a valid pointer. Errors: NOMEM with the
 * size in the text.
 * Memory: caller owns, mem_free. Threads: any. */
sl_status mem_alloc(enum mem_tag tag, size_t n, void **out, sl_err *err) BASE_MUST_USE;

/* The same, zeroed, for n items of size bytes; a product that is too large is NOMEM too. */
sl_status mem_alloc_array(enum mem_tag tag, size_t n, size_t size, void **out, sl_err *err)
    BASE_MUST_USE;

/* Grow or shrink p (may be NULL) to n bytes. NOMEM: the old block stays valid. */
sl_status mem_realloc(enum mem_tag tag, void *p, size_t n, void **out, sl_err *err) BASE_MUST_USE;

/* NULL is legal. */
void mem_free(void *p);

/* Huge-page slab: n bytes of zeroed anonymous memory, 2 MiB aligned, madvise(HUGEPAGE) unless huge
 * is 0. Pages are touched by the thread that writes first. Free with mem_slab_free(p, n). Errors:
 * NOMEM. */
sl_status mem_slab_alloc(enum mem_tag tag, size_t n, int huge, void **out, sl_err *err)
    BASE_MUST_USE;
/* n: as it was asked for. */
void mem_slab_free(enum mem_tag tag, void *p, size_t n);

/* Addresses of n bytes without memory: a read or write there faults. Give them back with
 * mem_unreserve(p, n). Errors: NOMEM. */
sl_status mem_reserve(size_t n, void **out, sl_err *err) BASE_MUST_USE;
void mem_unreserve(void *p, size_t n);

/* For a program that runs for long: blocks of 128 KiB and more have pages of their own and go back
 * when freed. Without this glibc puts larger and larger ones into the heap, which then grows by the
 * gaps between them. Call it before the first thread. */
void mem_steady(void);

/* Give free pages back to the system: what long running programs do now and then, for allocators
 * keep what lies between blocks in use. Milliseconds. Threads: any. */
void mem_trim(void);

/* Bytes now held under a tag, and the number of allocations made since start (all tags, atomic). */
int64_t mem_used(enum mem_tag tag);
uint64_t mem_n_alloc(void);
const char *mem_tag_text(enum mem_tag tag);

/* Tests: the n-th allocation from now (1 = the next) fails, and every later one too when sticky; 0
 * turns it off. */
void mem_fail_at(uint64_t n, int sticky);

/* ---- arenas: many small pieces with one life ---- */
struct arena_blk;
struct arena {
    enum mem_tag tag;
    struct arena_blk *head; /* newest block first */
    size_t used, cap;       /* of the newest block */
    size_t total, limit;    /* bytes taken so far; limit 0 = none */
    size_t held;            /* bytes of all blocks */
};

/* An empty arena, which takes no memory yet; limit: bytes at most, 0 = none. */
void mem_arena_init(struct arena *a, enum mem_tag tag, size_t limit);
/* Give all of it back; zeroed bytes are legal. */
void mem_arena_fini(struct arena *a);
/* Empty again; a block that is the only one is kept for what comes. */
void mem_arena_reset(struct arena *a);
/* 16-byte aligned, zeroed. SL_NOMEM past the limit or out of memory. */
sl_status mem_arena_alloc(struct arena *a, size_t n, void **out, sl_err *err) BASE_MUST_USE;
sl_status mem_arena_array(struct arena *a, size_t n, size_t size, void **out, sl_err *err)
    BASE_MUST_USE;
/* A NUL-terminated copy of s[0..n). */
sl_status mem_arena_str(struct arena *a, const char *s, size_t n, char **out, sl_err *err)
    BASE_MUST_USE;

#endif
