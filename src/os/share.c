/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes of a machine have mapped, and processes that others watch. */
#include "os/share.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

#define DIR_SHM "/dev/shm"

/* A page that is not there when it is touched ends the program: take them now. */
static sl_status reserve(int fd, uint64_t at, uint64_t n, sl_err *err)
{
    struct statvfs v;
    int e = posix_fallocate(fd, (off_t)at, (off_t)n);
    if (!e) return SL_OK;
    double mib = 1.0 / (1 << 20), room = 0;
    if (e != ENOSPC)
        return SL_FAIL(err, IO, DIR_SHM ": %.1f MiB: %s", (double)n * mib, strerror(e));
    if (statvfs(DIR_SHM, &v) == 0) room = (double)v.f_blocks * (double)v.f_frsize * mib;
    return SL_FAIL(err, NOMEM,
                   DIR_SHM
                   " is too small: %.1f MiB more are needed, it has %.0f MiB in all: a container "
                   "gets more by --shm-size=1g, or an emptyDir in memory",
                   (double)n * mib, room);
}

static sl_status map(int fd, uint64_t n, void **p, sl_err *err)
{
    *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*p != MAP_FAILED) return SL_OK;
    *p = NULL;
    return SL_FAIL(err, NOMEM, "%" PRIu64 " bytes of " DIR_SHM ": %s", n, strerror(errno));
}

sl_status os_share_make(char name[OS_SHARE_NAME], uint64_t n, void **p, sl_err *err)
{
    *p = NULL;
    for (int i = 0;; i++) {
        snprintf(name, OS_SHARE_NAME, "/sluice-%d-%d", (int)getpid(), i);
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST && i < 1000) continue;
        if (fd < 0) return SL_FAIL(err, IO, DIR_SHM ": %s", strerror(errno));
        sl_status st = SL_OK;
        if (ftruncate(fd, (off_t)n)) st = SL_FAIL(err, IO, DIR_SHM ": %s", strerror(errno));
        if (!st) st = map(fd, n, p, err);
        if (st) shm_unlink(name);
        close(fd);
        return st;
    }
}

sl_status os_share_take(const char *name, uint64_t n, void **p, sl_err *err)
{
    struct stat st;
    *p = NULL;
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return SL_FAIL(err, NOTFOUND,
                       DIR_SHM "%.40s: %s: the ranks of a machine need the same " DIR_SHM, name,
                       strerror(errno));
    sl_status out = SL_OK;
    if (fstat(fd, &st) || st.st_size < 0 || (uint64_t)st.st_size != n)
        out = SL_FAIL(err, FORMAT, DIR_SHM "%.40s: not of %" PRIu64 " bytes", name, n);
    if (!out) out = map(fd, n, p, err);
    close(fd);
    return out;
}

sl_status os_share_reserve(const char *name, uint64_t at, uint64_t n, sl_err *err)
{
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return SL_FAIL(err, NOTFOUND, DIR_SHM "%.40s: %s", name, strerror(errno));
    sl_status st = reserve(fd, at, n, err);
    close(fd);
    return st;
}

void os_share_unname(const char *name)
{
    (void)shm_unlink(name);
}

void os_share_drop(void *p, uint64_t n)
{
    if (p) munmap(p, n);
}

/* ---- processes ---- */

int os_process_watch(int pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    return -1;
#endif
}

bool os_process_gone(int watch)
{
    struct pollfd p = {.fd = watch, .events = POLLIN};
    return watch >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

bool os_process_stopped(int pid)
{
    char path[32], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    size_t n = os_read_start(path, text, sizeof text - 1);
    text[n] = 0;
    const char *end = strrchr(text, ')'); /* of the name */
    return end && (end[1] == ' ') && (end[2] == 'T' || end[2] == 't');
}

void os_process_unwatch(int watch)
{
    if (watch >= 0) close(watch);
}

int os_process_id(void)
{
    return (int)getpid();
}

void os_end_with_parent(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

void os_host_name(char *out, size_t n)
{
    if (gethostname(out, n)) snprintf(out, n, "?");
    out[n - 1] = 0;
}
