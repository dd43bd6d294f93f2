/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes of a machine have mapped, processes that others watch, and what
 * networks there are. */
#include "os/share.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
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

/* ---- a file in common ---- */

sl_status os_common_open(const char *path, uint64_t n, struct os_common *out, sl_err *err)
{
    struct stat st;
    *out = (struct os_common){.n = n};
    out->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (out->fd < 0) return SL_FAIL(err, IO, "%.150s: %s", path, strerror(errno));
    const char *why = NULL;
    if (fstat(out->fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        why = "no file of this user";
    else if (ftruncate(out->fd, (off_t)n))
        why = strerror(errno);
    else if ((out->p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, out->fd, 0)) == MAP_FAILED)
        why = strerror(errno);
    if (!why) return SL_OK;
    (void)SL_FAIL(err, IO, "%.150s: %s", path, why);
    out->p = NULL;
    os_common_close(out);
    return SL_IO;
}

void os_common_close(struct os_common *c)
{
    if (c->p) munmap(c->p, c->n);
    if (c->fd >= 0) close(c->fd);
    *c = (struct os_common){.fd = -1};
}

sl_status os_common_clear(const struct os_common *c, sl_err *err)
{
    if (ftruncate(c->fd, 0) == 0 && ftruncate(c->fd, (off_t)c->n) == 0) return SL_OK;
    return SL_FAIL(err, IO, "a file in common: %s", strerror(errno));
}

static bool lock(const struct os_common *c, int how, short type, uint64_t at, uint64_t n,
                 struct flock *f)
{
    *f = (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = (off_t)n};
    return fcntl(c->fd, how, f) == 0;
}

bool os_common_lock(const struct os_common *c, uint64_t at)
{
    struct flock f;
    return lock(c, F_OFD_SETLK, F_WRLCK, at, 1, &f);
}

void os_common_unlock(const struct os_common *c, uint64_t at)
{
    struct flock f;
    (void)lock(c, F_OFD_SETLK, F_UNLCK, at, 1, &f);
}

bool os_common_held(const struct os_common *c, uint64_t at, uint64_t n)
{
    struct flock f;
    return lock(c, F_OFD_GETLK, F_WRLCK, at, n, &f) && f.l_type != F_UNLCK;
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

/* The number after a name of a line of /proc/PID/status; 0 = there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    const char *p = strstr(text, name);
    return p ? strtoull(p + strlen(name), NULL, 10) : 0;
}

bool os_process_stopped(int pid, uint64_t *turns)
{
    char path[32], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    size_t n = os_read_start(path, text, sizeof text - 1);
    text[n] = 0;
    if (turns)
        *turns = number_of(text, "\nvoluntary_ctxt_switches:") +
                 number_of(text, "\nnonvoluntary_ctxt_switches:");
    const char *state = strstr(text, "\nState:\t");
    return state && (state[8] == 'T' || state[8] == 't');
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

void os_nap(int64_t ns)
{
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* of this thread */
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

void os_host_name(char *out, size_t n)
{
    if (gethostname(out, n)) snprintf(out, n, "?");
    out[n - 1] = 0;
}

/* ---- networks ---- */

static const uint8_t *address_of(const struct sockaddr *a)
{
    const void *p = a;
    return a->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)p)->sin_addr
                                   : (const void *)&((const struct sockaddr_in6 *)p)->sin6_addr;
}

/* word: "10.0.0.0/24" */
static bool in_network(const struct sockaddr *a, char *word)
{
    uint8_t net[16] = {0};
    char *slash = strchr(word, '/');
    if (!slash || !a || (a->sa_family != AF_INET && a->sa_family != AF_INET6)) return false;
    int n_bit = atoi(slash + 1), most = a->sa_family == AF_INET ? 32 : 128;
    *slash = 0;
    bool is_net = inet_pton(a->sa_family, word, net) == 1 && n_bit >= 0 && n_bit <= most;
    *slash = '/';
    if (!is_net) return false;
    const uint8_t *own = address_of(a);
    for (int i = 0; i < n_bit; i++)
        if ((own[i / 8] ^ net[i / 8]) >> (7 - i % 8) & 1) return false;
    return true;
}

bool os_has_network(const char *list)
{
    struct ifaddrs *all = NULL;
    char words[512], *save = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0) return true; /* it can not be known */
    snprintf(words, sizeof words, "%s", list);
    for (char *w = strtok_r(words, ", ", &save); w && !found; w = strtok_r(NULL, ", ", &save))
        for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
            found = strcmp(i->ifa_name, w) == 0 || in_network(i->ifa_addr, w);
    freeifaddrs(all);
    return found;
}
