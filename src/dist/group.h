/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of processes share: who they are, and messages between them. */
#ifndef DIST_GROUP_H
#define DIST_GROUP_H

#include "dist/dist_internal.h"
#include "dist/module.h"

/* TELL: what home tells, which may come while others are still at what it told before. */
enum { GROUP_TAG_OPEN = 1, GROUP_TAG_STEP, GROUP_TAG_TELL };

/* Where messages to a rank are under way in the module: of a step; of what comes in; the last ones;
 * what home tells, by its number; and of exchanges that were begun, each with one for what comes.
 */
enum {
    GROUP_OUT = 0,
    GROUP_IN = 1,
    GROUP_LAST = 2,
    GROUP_LAST_TOLD = 3,
    GROUP_TELL = 4,
    GROUP_AWAY = GROUP_TELL + DIST_AHEAD_MAX,
    GROUP_N_PLACE = GROUP_AWAY + 2 * DIST_AWAY_MAX
};

struct dist_about {
    char host[48];
    int32_t pid, messages; /* messages: it has no memory in common with all */
};

struct dist_group {
    const struct dist_module *m;
    struct dist_about of[DIST_RANK_MAX];
    int watch[DIST_RANK_MAX]; /* of processes of this machine; -1 */
    bool one_host;
    void *share;
    size_t n_share;
    struct mail *mail; /* message.c; NULL with shared memory */
    bool broken;       /* MPI is not spoken any more */
};

/* Messages under way: bits of ranks. */
struct dist_way {
    int tag, place; /* place: of what goes out, GROUP_... */
    int in;         /* of what comes in, 0 = GROUP_IN */
    uint64_t to, from;
    int n[DIST_RANK_MAX]; /* bytes that came */
};
/* n bytes of p, which stay until they have gone. Errors: IO, MPI's. */
sl_status dist_group_send(dist *d, struct dist_way *w, int rank, const void *p, size_t n,
                          sl_err *err);
/* At most n bytes into p. Errors: IO, MPI's. */
sl_status dist_group_recv(dist *d, struct dist_way *w, int rank, void *p, size_t n, sl_err *err);
/* What has gone and come meanwhile: their bits are cleared. Errors: IO. */
sl_status dist_group_poll(dist *d, struct dist_way *w, sl_err *err);
/* Between two polls, the longer the longer nothing has happened. */
void dist_group_rest(const dist *d, int64_t waited_ns);
/* The lowest rank that something is under way to or from; -1 = none. */
int dist_group_late(const struct dist_way *w);

/* message.c: joins and steps as messages. half: bytes of a piece; a message's at most. Errors:
 * NOMEM. */
sl_status dist_message_open(dist *d, size_t half, size_t msg_bytes, sl_err *err) BASE_MUST_USE;
void dist_message_close(struct mail *m); /* NULL is legal */

#endif
