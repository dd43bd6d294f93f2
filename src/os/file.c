/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files and directories. Interrupted calls are repeated; short reads are continued. */
#include "os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "os/os_internal.h"

#define MAX_NAMES 100000

sl_status os_fail_errno(int e, const char *path, sl_err *err)
{
    size_t n = strlen(path);
    if (n > 160) path += n - 160; /* the reason has to fit after it */
    if (e == ENOENT || e == ENOTDIR) return SL_FAIL(err, NOTFOUND, "%s: %s", path, strerror(e));
    return SL_FAIL(err, IO, "%s: %s", path, strerror(e));
}

static sl_status not_regular(const char *path, mode_t mode, sl_err *err)
{
    const char *what = S_ISDIR(mode)    ? "a directory"
                       : S_ISFIFO(mode) ? "a pipe"
                       : S_ISCHR(mode)  ? "a character device"
                       : S_ISBLK(mode)  ? "a block device"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a special file";
    return SL_FAIL(err, FORMAT, "%s: is %s, not a regular file", path, what);
}

/* Nothing is there, or a link to nothing, as an unfinished download leaves in the hub's cache. */
static sl_status no_file(const char *path, int e, sl_err *err)
{
    struct stat st;
    if (e != ENOENT || lstat(path, &st) != 0) return os_fail_errno(e, path, err);
    return SL_FAIL(err, NOTFOUND, "%s: a link to a file that is not there", path);
}

sl_status os_open_regular(const char *path, int *fd, struct stat *st, sl_err *err)
{
    if (stat(path, st) != 0) return no_file(path, errno, err);
    if (!S_ISREG(st->st_mode))
        return not_regular(path, st->st_mode, err); /* opening a device can do things */
    do
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return os_fail_errno(errno, path, err);
    if (fstat(*fd, st) != 0 || !S_ISREG(st->st_mode) || st->st_size < 0) { /* exchanged meanwhile */
        close(*fd);
        *fd = -1;
        return not_regular(path, st->st_mode, err);
    }
    return SL_OK;
}

/* Up to n bytes; *got is less only at the end of the file. */
static sl_status read_all(int fd, const char *path, char *p, uint64_t n, uint64_t *got, sl_err *err)
{
    *got = 0;
    while (*got < n) {
        ssize_t k = read(fd, p + *got, n - *got);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            sl_status st = os_fail_errno(errno, path, err);
            status_prefix(err, "byte %llu", (unsigned long long)*got);
            return st;
        }
        if (k == 0) break;
        *got += (uint64_t)k;
    }
    return SL_OK;
}

sl_status os_read_file(const char *path, uint64_t max, char **out, uint64_t *n, sl_err *err)
{
    int fd = -1;
    struct stat info;
    void *p = NULL;
    sl_status st = os_open_regular(path, &fd, &info, err);
    if (st != SL_OK) return st;
    uint64_t size = (uint64_t)info.st_size;
    if (size > max) {
        st = SL_FAIL(err, LIMIT, "%s: %llu bytes, at most %llu are read", path,
                     (unsigned long long)size, (unsigned long long)max);
        goto out;
    }
    SL_TRY_OUT(mem_alloc(MEM_MISC, size + 1, &p, err));
    SL_TRY_OUT(read_all(fd, path, p, size, n, err));
    ((char *)p)[*n] = 0;
    *out = p;
    p = NULL;
out:
    mem_free(p);
    close(fd);
    return st;
}

/* Bytes of fd until its end, at most max, in memory that grows. */
static sl_status read_growing(int fd, const char *path, uint64_t max, char **out, uint64_t *n,
                              sl_err *err)
{
    void *p = NULL;
    uint64_t cap = 0, have = 0, got = 0;
    sl_status st = SL_OK;
    do {
        have += got;
        if (have > max) {
            st = SL_FAIL(err, LIMIT, "%s: at most %llu bytes are read", path,
                         (unsigned long long)max);
            break;
        }
        if (have == cap) {
            cap = cap ? cap * 2 : 65536;
            st = mem_realloc(MEM_MISC, p, cap + 1, &p, err);
            if (st) break;
        }
        st = read_all(fd, path, (char *)p + have, cap - have, &got, err);
    } while (!st && got);
    if (st) {
        mem_free(p);
        return st;
    }
    ((char *)p)[have] = 0;
    *out = p;
    *n = have;
    return SL_OK;
}

sl_status os_read_once(const char *path, uint64_t max, char **out, uint64_t *n, sl_err *err)
{
    struct stat info;
    int fd;
    if (stat(path, &info) != 0 || !(S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)))
        return os_read_file(path, max, out, n, err);
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return os_fail_errno(errno, path, err);
    sl_status st = read_growing(fd, path, max, out, n, err);
    close(fd);
    return st;
}

#define STAMP_HEAD ((uint64_t)256 << 10)
#define STAMP_TAIL ((uint64_t)64 << 10)
#define STAMP_PAGES 64

struct samples {
    int fd;
    const char *path;
    char *buf; /* [STAMP_HEAD] */
    uint64_t *hash;
};

/* The n bytes at `at`, or those of them that the file has, go into the hash. */
static sl_status add_sample(const struct samples *s, uint64_t at, uint64_t n, sl_err *err)
{
    uint64_t got = 0;
    while (got < n) {
        ssize_t k = pread(s->fd, s->buf + got, n - got, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return os_fail_errno(errno, s->path, err);
        if (k == 0) break;
        got += (uint64_t)k;
    }
    *s->hash = hash_bytes(s->buf, got, *s->hash);
    return SL_OK;
}

sl_status os_stamp(const char *path, uint64_t *size, int64_t *mtime_ns, uint64_t *hash, sl_err *err)
{
    int fd = -1;
    struct stat info;
    void *buf = NULL;
    SL_TRY(os_open_regular(path, &fd, &info, err));
    uint64_t n = *size = *hash = (uint64_t)info.st_size;
    *mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead around the samples */
    sl_status st = SL_OK;
    SL_TRY_OUT(mem_alloc(MEM_MISC, STAMP_HEAD, &buf, err));
    struct samples s = {.fd = fd, .path = path, .buf = buf, .hash = hash};
    SL_TRY_OUT(add_sample(&s, 0, STAMP_HEAD, err));
    if (n <= STAMP_HEAD) goto out;
    SL_TRY_OUT(add_sample(&s, n - STAMP_TAIL, STAMP_TAIL, err));
    for (uint64_t i = 1; i <= STAMP_PAGES; i++)
        SL_TRY_OUT(add_sample(&s, (n / 4096) * i / (STAMP_PAGES + 1) * 4096, 4096, err));
out:
    mem_free(buf);
    close(fd);
    return st;
}

size_t os_read_start(const char *path, void *p, size_t n)
{
    int fd = -1;
    struct stat info;
    uint64_t got = 0;
    if (os_open_regular(path, &fd, &info, NULL)) return 0;
    if (read_all(fd, path, p, n, &got, NULL)) got = 0;
    close(fd);
    return (size_t)got;
}

bool os_path_full(const char *path, char *out, size_t n)
{
    char full[PATH_MAX];
    if (!realpath(path, full) || strlen(full) >= n) return false;
    memcpy(out, full, strlen(full) + 1);
    return true;
}

int64_t os_free_bytes(const char *dir)
{
    struct statvfs v;
    return statvfs(dir, &v) == 0 ? (int64_t)v.f_bavail * (int64_t)v.f_frsize : -1;
}

sl_status os_make_dirs(const char *dir, sl_err *err)
{
    char path[PATH_MAX];
    size_t n = strlen(dir);
    if (n >= sizeof path) return SL_FAIL(err, IO, "%.100s...: the name is too long", dir);
    memcpy(path, dir, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        path[i] = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return os_fail_errno(errno, path, err);
        if (i < n) path[i] = '/';
    }
    return SL_OK;
}

enum os_kind os_path_kind(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return lstat(path, &st) == 0 ? OS_OTHER : OS_NONE;
    return S_ISREG(st.st_mode) ? OS_FILE : S_ISDIR(st.st_mode) ? OS_DIR : OS_OTHER;
}

int64_t os_path_mtime_ns(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return INT64_MIN;
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Room for one more in a list whose capacity is the next power of two from 16 on. */
static sl_status grow(char ***list, int n, sl_err *err)
{
    void *p = NULL;
    if (n != 0 && (n < 16 || (n & (n - 1)) != 0)) return SL_OK;
    SL_TRY(mem_realloc(MEM_MISC, *list, (size_t)(n ? 2 * n : 16) * sizeof **list, &p, err));
    *list = p;
    return SL_OK;
}

sl_status os_list(const char *dir, char ***names, int *n, sl_err *err)
{
    sl_status st = SL_OK;
    char **list = NULL;
    int count = 0;
    DIR *d = opendir(dir);
    if (!d) return os_fail_errno(errno, dir, err);
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno) {
            st = os_fail_errno(errno, dir, err);
            goto out;
        }
        if (!e) break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (count == MAX_NAMES) {
            st = SL_FAIL(err, LIMIT, "%s: more than %d files", dir, MAX_NAMES);
            goto out;
        }
        void *p = NULL;
        SL_TRY_OUT(grow(&list, count, err));
        SL_TRY_OUT(mem_alloc(MEM_MISC, strlen(e->d_name) + 1, &p, err));
        memcpy(p, e->d_name, strlen(e->d_name) + 1);
        list[count++] = p;
    }
    if (count) qsort(list, (size_t)count, sizeof *list, by_name);
    *names = list;
    *n = count;
    list = NULL;
out:
    os_list_free(list, list ? count : 0);
    closedir(d);
    return st;
}

void os_list_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
}

int64_t os_rss_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

int64_t os_disk_read(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_inblock * 512 : 0;
}
