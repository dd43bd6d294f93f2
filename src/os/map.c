/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files, and the guard that turns a SIGBUS inside one of them into a line of text. The table
 * of mappings is read by the signal handler: entries are claimed and published with atomics, never
 * locked. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/os_internal.h"

#define MAX_GUARDED 1024

struct guarded {
    atomic_int
        used; /* claimed by exchange; release in os_map_close pairs with the exchange in remember */
    _Atomic uintptr_t
        end; /* 0 = not published; its release in remember pairs with the acquire in on_sigbus */
    uintptr_t begin;
    char path[256];
};
static struct guarded guarded[MAX_GUARDED];
static const uint8_t empty[1];

static void remember(const uint8_t *p, uint64_t n, const char *path)
{
    for (int i = 0; i < MAX_GUARDED; i++) {
        struct guarded *g = &guarded[i];
        if (atomic_exchange_explicit(&g->used, 1, memory_order_acquire)) continue;
        size_t len = strlen(path), from = len < sizeof g->path ? 0 : len - sizeof g->path + 1;
        memcpy(g->path, path + from, len - from + 1);
        g->begin = (uintptr_t)p;
        atomic_store_explicit(&g->end, (uintptr_t)p + n, memory_order_release);
        return;
    }
}

static void forget(const uint8_t *p)
{
    for (int i = 0; i < MAX_GUARDED; i++) {
        struct guarded *g = &guarded[i];
        if (atomic_load_explicit(&g->end, memory_order_acquire) == 0 || g->begin != (uintptr_t)p)
            continue;
        atomic_store_explicit(&g->end, 0, memory_order_release);
        atomic_store_explicit(&g->used, 0, memory_order_release);
        return;
    }
}

sl_status os_map_open(const char *path, struct os_map *out, sl_err *err)
{
    int fd = -1;
    struct stat st;
    memset(out, 0, sizeof *out);
    SL_TRY(os_open_regular(path, &fd, &st, err));
    out->size = (uint64_t)st.st_size;
    out->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    out->data = empty;
    sl_status status = SL_OK;
    if (out->size) {
        void *p = mmap(NULL, out->size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            status = SL_FAIL(err, IO, "%s: can not be mapped: %s", path, strerror(errno));
        else
            remember(out->data = p, out->size, path);
    }
    if (status)
        close(fd);
    else
        out->fd = fd;
    return status;
}

sl_status os_map_repeat(uint64_t every, uint64_t n, struct os_map *out, void **fill, sl_err *err)
{
    uint64_t size = (n + every - 1) / every * every;
    int fd = memfd_create("sluice", MFD_CLOEXEC);
    bool ok = fd >= 0 && ftruncate(fd, (off_t)every) == 0;
    uint8_t *p =
        ok ? mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    memset(out, 0, sizeof *out);
    ok = p != MAP_FAILED;
    for (uint64_t at = 0; ok && at < size; at += every) {
        int may = at ? PROT_READ : PROT_READ | PROT_WRITE;
        ok = mmap(p + at, every, may, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    }
    if (ok) {
        *out = (struct os_map){.data = p, .size = size, .fd = fd};
        *fill = p;
        return SL_OK;
    }
    sl_status st = SL_FAIL(err, NOMEM, "%llu bytes of address space: %s", (unsigned long long)size,
                           strerror(errno));
    if (p != MAP_FAILED) munmap(p, size);
    if (fd >= 0) close(fd);
    return st;
}

void os_map_close(struct os_map *m)
{
    if (!m || !m->data) return;
    if (m->data != empty) {
        forget(m->data);
        munmap((void *)(uintptr_t)m->data, m->size);
    }
    close(m->fd);
    memset(m, 0, sizeof *m);
}

/* madvise on all pages that [offset, offset + n) touches. Advice: failing is no error. */
static void advise(const struct os_map *m, uint64_t offset, uint64_t n, int advice)
{
    if (!m->data || m->data == empty || offset >= m->size) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), p = (uintptr_t)m->data + offset;
    uint64_t len = n < m->size - offset ? n : m->size - offset;
    len += p % page;
    madvise((void *)(p - p % page), len, advice);
}

void os_map_will_need(const struct os_map *m, uint64_t offset, uint64_t n)
{
    advise(m, offset, n, MADV_WILLNEED);
}

void os_map_parts(const struct os_map *m, bool parts)
{
    advise(m, 0, m->size, parts ? MADV_RANDOM : MADV_NORMAL);
}

void os_map_drop(const struct os_map *m, uint64_t offset, uint64_t n)
{
    advise(m, offset, n, MADV_DONTNEED);
}

void os_map_evict(const struct os_map *m, uint64_t offset, uint64_t n)
{
    os_map_drop(m, offset, n);
    if (!m->data || offset >= m->size || n == 0) return;
    posix_fadvise(m->fd, (off_t)offset, (off_t)BASE_MIN(n, m->size - offset), POSIX_FADV_DONTNEED);
}

void os_map_huge(const struct os_map *m)
{
    advise(m, 0, m->size, MADV_HUGEPAGE);
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

sl_status os_touch(const void *p, uint64_t n, sl_err *err)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), b = (uintptr_t)p / page * page,
              e = (uintptr_t)p + n;
    if (n == 0) return SL_OK;
    int rc;
    do
        rc = madvise((void *)b, e - b, MADV_POPULATE_READ);
    while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc == 0) return SL_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return SL_FAIL(err, IO, "%" PRIu64 " bytes of a mapped file can not be read: %s", n,
                       strerror(errno));
    for (uintptr_t q = b; q < e; q += page)
        (void)*(const volatile uint8_t *)q; /* an older kernel */
    return SL_OK;
}

/* Append s to the line at *n; nothing but plain code: this runs in a signal handler. */
static void put(char *line, size_t cap, size_t *n, const char *s)
{
    while (*s && *n + 1 < cap)
        line[(*n)++] = *s++;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < MAX_GUARDED; i++) {
        struct guarded *g = &guarded[i];
        uintptr_t end = atomic_load_explicit(&g->end, memory_order_acquire);
        if (end == 0 || at < g->begin || at >= end) continue;
        char line[512], digits[24];
        size_t n = 0;
        int d = (int)sizeof digits;
        uint64_t byte = at - g->begin;
        digits[--d] = 0;
        do
            digits[--d] = (char)('0' + byte % 10);
        while (byte /= 10);
        put(line, sizeof line, &n, "sluice: ");
        put(line, sizeof line, &n, g->path);
        put(line, sizeof line, &n, ": byte ");
        put(line, sizeof line, &n, digits + d);
        put(line, sizeof line, &n,
            " can not be read any more: the file was cut or its disk failed while it was in use\n");
        if (write(2, line, n) < 0) _exit(1);
        _exit(1);
    }
    signal(sig, SIG_DFL); /* not ours: the access faults again, as without us */
}

void os_map_guard(void)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_sigbus;
    sa.sa_flags = SA_SIGINFO;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGBUS, &sa, NULL);
}
