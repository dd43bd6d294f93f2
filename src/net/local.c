/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets by a path, for processes of one user. */
#include "net/local.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

sl_status net_local_path(const char *address, const char **path, sl_err *err)
{
    struct sockaddr_un a;
    if (strncmp(address, "unix:", 5) != 0 || !address[5])
        return SL_FAIL(err, REQUEST, "%.150s: an address is unix:PATH", address);
    *path = address + 5;
    if (strlen(*path) >= sizeof a.sun_path)
        return SL_FAIL(err, REQUEST, "%.60s...: a path of a socket has at most %d bytes", *path,
                       (int)sizeof a.sun_path - 1);
    return SL_OK;
}

static struct sockaddr_un name_of(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strncpy(a.sun_path, path, sizeof a.sun_path - 1);
    return a;
}

static int make(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool same_user(int fd)
{
    struct ucred c = {.uid = (uid_t)-1};
    socklen_t n = sizeof c;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == geteuid();
}

sl_status net_local_connect(const char *path, int *fd, sl_err *err)
{
    struct sockaddr_un a = name_of(path);
    *fd = make();
    if (*fd < 0) return SL_FAIL(err, IO, "%.150s: %s", path, strerror(errno));
    if (connect(*fd, (struct sockaddr *)&a, sizeof a) != 0) {
        int e = errno;
        close(*fd);
        *fd = -1;
        if (e == ENOENT || e == ECONNREFUSED)
            return SL_FAIL(err, NOTFOUND, "%.150s: nobody listens there", path);
        return SL_FAIL(err, IO, "%.150s: %s", path, strerror(e));
    }
    if (same_user(*fd)) return SL_OK;
    close(*fd);
    *fd = -1;
    return SL_FAIL(err, REQUEST, "%.150s: another user's process listens there", path);
}

/* Remove a socket on which nobody listens any more. */
static sl_status sweep(const char *path, sl_err *err)
{
    struct stat s;
    int fd = -1;
    if (lstat(path, &s) != 0) return SL_OK;
    if (!S_ISSOCK(s.st_mode)) return SL_FAIL(err, IO, "%.150s: there is a file", path);
    if (net_local_connect(path, &fd, err) != SL_NOTFOUND) {
        if (fd >= 0) close(fd);
        return SL_FAIL(err, IO, "%.150s: another process listens there", path);
    }
    (void)unlink(path); /* binding says why it stays */
    return SL_OK;
}

sl_status net_local_listen(const char *path, int *fd, sl_err *err)
{
    struct sockaddr_un a = name_of(path);
    *fd = -1;
    SL_TRY(sweep(path, err));
    int s = make();
    /* what the descriptor may is what the file may, from its first moment on */
    if (s >= 0 && fchmod(s, 0600) == 0 && bind(s, (struct sockaddr *)&a, sizeof a) == 0 &&
        chmod(path, 0600) == 0 && listen(s, BACKLOG) == 0) {
        *fd = s;
        return SL_OK;
    }
    int e = errno;
    if (s >= 0) close(s);
    return SL_FAIL(err, IO, "cannot listen on %.150s: %s", path, strerror(e));
}

int net_local_accept(int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 || same_user(fd)) return fd;
    close(fd);
    return -1;
}

static int moved(ssize_t n)
{
    if (n > 0) return (int)n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    return -1;
}

int net_local_send(int fd, const void *p, int n)
{
    return moved(send(fd, p, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int net_local_receive(int fd, void *p, int n)
{
    return moved(recv(fd, p, (size_t)n, MSG_DONTWAIT));
}
