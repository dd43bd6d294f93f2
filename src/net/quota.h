/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody (a key) uses in a minute and at once, against limits that hold over all servers
 * which count in the same file. Each server has a column of its own there for what runs at once,
 * and a lock that the kernel lets go when it ends: what a killed one had running is free again.
 *
 * Threads: any. */
#ifndef NET_QUOTA_H
#define NET_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define NET_QUOTA_ROWS 16384 /* names at most, those included that nobody has any more */
#define NET_QUOTA_SERVERS 64
#define NET_QUOTA_ID 16

typedef struct net_quota net_quota;

struct net_quota_limit {
    int64_t request, token; /* a minute; 0 = none */
    int64_t parallel;       /* at once; 0 = none */
};
enum net_quota_full { NET_QUOTA_ROOM, NET_QUOTA_PARALLEL, NET_QUOTA_REQUEST, NET_QUOTA_TOKEN };

/* path: the file, made where it is not there and emptied where no server has it; NULL = this server
 * counts alone. Errors: IO, FORMAT (another program's), LIMIT (NET_QUOTA_SERVERS have it), TIMEOUT
 * (a server that is stopped keeps it), NOMEM. */
sl_status net_quota_open(const char *path, net_quota **out, sl_err *err) BASE_MUST_USE;
void net_quota_close(net_quota *q); /* NULL is legal */

/* The row of a name, which stays; guess: where it may be. Errors: LIMIT, TIMEOUT. */
sl_status net_quota_row(net_quota *q, const uint8_t id[NET_QUOTA_ID], int guess, int *row,
                        sl_err *err) BASE_MUST_USE;
/* Count a request where there is room; else what is full, and in how many seconds to come again.
 * After NET_QUOTA_ROOM comes one net_quota_give. now_ns: clock_now_ns(). */
enum net_quota_full net_quota_take(net_quota *q, int row, const struct net_quota_limit *l,
                                   int64_t now_ns, int *wait_s);
void net_quota_give(net_quota *q, int row, int64_t n_token, int64_t now_ns);

#endif
