/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets between processes of one user on one machine, by a path. Descriptors do not block and are
 * the caller's to close. */
#ifndef NET_LOCAL_H
#define NET_LOCAL_H

#include "base/status.h"

/* The path of "unix:PATH". Errors: REQUEST (another address, a path that is too long). */
sl_status net_local_path(const char *address, const char **path, sl_err *err) BASE_MUST_USE;
/* A socket that only this user may connect to (0600). One that a process left behind when it died
 * is replaced. Errors: IO (another process listens there; the reason of the system). */
sl_status net_local_listen(const char *path, int *fd, sl_err *err) BASE_MUST_USE;
/* The next connection, -1 = none now. Another user's is closed at once. */
int net_local_accept(int listen_fd);
/* Errors: NOTFOUND (nobody listens there), IO; REQUEST: another user's process does. */
sl_status net_local_connect(const char *path, int *fd, sl_err *err) BASE_MUST_USE;
/* Bytes sent, at most n; 0 = none now, -1 = the other end is gone. */
int net_local_send(int fd, const void *p, int n);
/* The same of received. */
int net_local_receive(int fd, void *p, int n);

#endif
