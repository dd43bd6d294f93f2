/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that makes the k-th call of a kind fail, and logs what is opened and
 * executed (check_faults.py).
 *
 *   FAULT_KIND   alloc | open | fstat | read | write | mmap | fsync | rename | poison (no fault:
 *                what malloc, realloc and posix_memalign give is filled with the byte FAULT_AT)
 *   FAULT_AT     which call of that kind, from 1
 *   FAULT_HOW    an errno number; 0: a short transfer (one byte) for read and write; -9: the
 *                process is killed there
 *   FAULT_LOG    a file: one line per open and exec, and "fault" when the fault happened
 *   FAULT_EVERY  instead of FAULT_AT: about each so manieth call, from SIGUSR2 to the next
 *
 * The allocators are glibc's own by their other names, so that nothing here allocates. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

#define SHOW __attribute__((visibility("default")))

static const char *kind, *log_path;
static long at, how, every;
static atomic_long n_call;
static atomic_int on;

static void turn(int sig)
{
    (void)sig;
    atomic_fetch_xor(&on, 1);
}

__attribute__((constructor)) static void setup(void)
{
    const char *a = getenv("FAULT_AT"), *h = getenv("FAULT_HOW"), *e = getenv("FAULT_EVERY");
    log_path = getenv("FAULT_LOG");
    at = a ? atol(a) : 0;
    how = h ? atol(h) : 0;
    every = e ? atol(e) : 0;
    if (every) signal(SIGUSR2, turn);
    kind = getenv("FAULT_KIND"); /* last: from now on calls are counted */
}

static void log_line(const char *a, const char *b)
{
    int old = errno;
    char line[600];
    size_t n = 0;
    if (!log_path) return;
    long fd = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (; *a && n < 500; a++)
        line[n++] = *a;
    for (; *b && n < 590; b++)
        line[n++] = *b;
    line[n++] = '\n';
    if (fd >= 0) {
        syscall(SYS_write, fd, line, n);
        syscall(SYS_close, fd);
    }
    errno = old;
}

/* True when this call is the one. */
static int hit(const char *what)
{
    if (!kind || (!at && !every) || strcmp(kind, what) != 0) return 0;
    if (every) {
        if (!atomic_load_explicit(&on, memory_order_relaxed)) return 0;
        unsigned long n = (unsigned long)atomic_fetch_add(&n_call, 1) * 0x9e3779b97f4a7c15u;
        errno = (int)how;
        return (n >> 33) % (unsigned long)every == 0;
    }
    if (atomic_fetch_add(&n_call, 1) + 1 != at) return 0;
    log_line("fault", "");
    if (how == -SIGKILL) kill(getpid(), SIGKILL);
    errno = (int)how;
    return 1;
}

static void *poisoned(void *p, size_t from, size_t n)
{
    if (p && from < n && kind && strcmp(kind, "poison") == 0)
        memset((char *)p + from, (int)at, n - from);
    return p;
}

SHOW void *malloc(size_t n)
{
    return hit("alloc") ? NULL : poisoned(__libc_malloc(n), 0, n);
}

SHOW void *calloc(size_t n, size_t size)
{
    return hit("alloc") ? NULL : __libc_calloc(n, size);
}

SHOW void *realloc(void *p, size_t n)
{
    if (hit("alloc")) return NULL;
    size_t had = p ? malloc_usable_size(p) : 0;
    return poisoned(__libc_realloc(p, n), had, n);
}

SHOW int posix_memalign(void **p, size_t align, size_t n)
{
    if (hit("alloc")) return ENOMEM;
    *p = poisoned(__libc_memalign(align, n), 0, n);
    return *p ? 0 : ENOMEM;
}

static int do_open(int dir, const char *path, int flags, va_list ap)
{
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    log_line("open ", path);
    if (hit("open")) return -1;
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

#define OPEN(name, flags_of)                                                                       \
    SHOW int name(const char *path, int flags, ...)                                                \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        int fd = do_open(AT_FDCWD, path, flags_of, ap);                                            \
        va_end(ap);                                                                                \
        return fd;                                                                                 \
    }
OPEN(open, flags)
OPEN(open64, flags)

SHOW FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    log_line("open ", path);
    return hit("open") ? NULL : next(path, mode);
}

SHOW int execve(const char *path, char *const argv[], char *const envp[])
{
    log_line("exec ", path);
    return (int)syscall(SYS_execve, path, argv, envp);
}

SHOW ssize_t read(int fd, void *p, size_t n)
{
    if (hit("read")) {
        if (how) return -1;
        n = n ? 1 : 0;
    }
    return syscall(SYS_read, fd, p, n);
}

SHOW ssize_t write(int fd, const void *p, size_t n)
{
    if (hit("write")) {
        if (how) return -1;
        n = n ? 1 : 0;
    }
    return syscall(SYS_write, fd, p, n);
}

SHOW int fstat(int fd, struct stat *st)
{
    return hit("fstat") ? -1 : (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

SHOW void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
    if (hit("mmap")) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, off);
}

SHOW int fsync(int fd)
{
    return hit("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

SHOW int rename(const char *from, const char *to)
{
    return hit("rename") ? -1 : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
