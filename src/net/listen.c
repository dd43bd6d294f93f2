/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket: our own, so that a port in use is one clear line. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/net_internal.h"

#define SEND_BYTES                                                                                 \
    (64 * 1024) /* kernel buffer of a connection: what a stopped reader can hold back */

static int bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

static int try_one(const struct addrinfo *ai, bool share, int backlog)
{
    int one = 1, bytes = SEND_BYTES;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (share) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* inherited by what is accepted */
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, backlog) == 0) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

sl_status net_listen(const struct net_opts *o, int backlog, int *fd, int *bound, sl_err *err)
{
    struct addrinfo hint = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM},
                    *list = NULL;
    char text[16];
    snprintf(text, sizeof text, "%d", o->port);
    int rc = getaddrinfo(o->host, text, &hint, &list);
    if (rc != 0)
        return SL_FAIL(err, REQUEST, "--host %.100s: %s: give an address of this machine",
                       o->host, gai_strerror(rc));
    *fd = -1;
    for (const struct addrinfo *ai = list; ai && *fd < 0; ai = ai->ai_next)
        *fd = try_one(ai, o->share_port, backlog);
    int e = errno;
    freeaddrinfo(list);
    if (*fd < 0)
        return SL_FAIL(err, IO, "can not listen on %.100s port %d: %s: choose another with --port",
                       o->host, o->port, strerror(e));
    *bound = bound_port(*fd);
    return SL_OK;
}
