/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that hold over several servers of one file; those that are gone hold nothing. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/quota.h"
#include "test.h"

#define SECOND ((int64_t)1000000000)

static const uint8_t anna[NET_QUOTA_ID] = "anna", bob[NET_QUOTA_ID] = "bob";

static int take(net_quota *q, int row, struct net_quota_limit l, int64_t s, int *wait)
{
    return (int)net_quota_take(q, row, &l, 1000 * SECOND + s * SECOND, wait);
}

static void a_minute(net_quota *a, net_quota *b, int row)
{
    struct net_quota_limit l = {.request = 3};
    int wait;
    for (int i = 0; i < 3; i++) {
        net_quota *q = i == 1 ? b : a;
        assert_int_equal(take(q, row, l, i, &wait), NET_QUOTA_ROOM);
        net_quota_give(q, row, i == 2 ? 100 : 0, 1002 * SECOND);
    }
    assert_int_equal(take(a, row, l, 10, &wait), NET_QUOTA_REQUEST);
    assert_int_equal(wait, 51);
    assert_int_equal(take(b, row, l, 59, &wait), NET_QUOTA_REQUEST);
    assert_int_equal(wait, 2);
    l = (struct net_quota_limit){.token = 100};
    assert_int_equal(take(b, row, l, 61, &wait), NET_QUOTA_TOKEN);
    assert_int_equal(wait, 2);
    l.token = 101;
    assert_int_equal(take(b, row, l, 61, &wait), NET_QUOTA_ROOM);
    net_quota_give(b, row, 0, 1061 * SECOND);
    l = (struct net_quota_limit){.request = 3, .token = 100, .parallel = 1};
    assert_int_equal(take(a, row, l, 125, &wait), NET_QUOTA_ROOM);
    assert_int_equal(take(b, row, l, 125, &wait), NET_QUOTA_PARALLEL);
    assert_int_equal(wait, 1);
    net_quota_give(a, row, 0, 1125 * SECOND);
    assert_int_equal(take(b, row, l, 125, &wait), NET_QUOTA_ROOM);
    net_quota_give(b, row, 0, 1125 * SECOND);
}

TEST(net_quota_counts_alone)
{
    net_quota *q = NULL;
    int row, other;
    assert_int_equal(net_quota_open(NULL, &q, NULL), SL_OK);
    assert_int_equal(net_quota_row(q, anna, 0, &row, NULL), SL_OK);
    assert_int_equal(net_quota_row(q, bob, 0, &other, NULL), SL_OK);
    assert_true(row != other);
    a_minute(q, q, row);
    a_minute(q, q, other);
    assert_int_equal(net_quota_row(q, anna, 7, &other, NULL), SL_OK);
    assert_int_equal(row, other);
    net_quota_close(q);
    net_quota_close(NULL);
}

static char *file(void)
{
    static char path[64];
    snprintf(path, sizeof path, "quota_test_%d.keys", (int)getpid());
    return path;
}

TEST(net_quota_holds_over_servers_and_forgets_the_dead)
{
    struct net_quota_limit l = {.parallel = 4};
    net_quota *a = NULL, *b = NULL, *c = NULL;
    int ra, rb, rc, wait;
    (void)unlink(file());
    assert_int_equal(net_quota_open(file(), &a, NULL), SL_OK);
    assert_int_equal(net_quota_open(file(), &b, NULL), SL_OK);
    assert_int_equal(net_quota_row(a, bob, 0, &ra, NULL), SL_OK);
    assert_int_equal(net_quota_row(b, anna, 0, &rb, NULL), SL_OK);
    assert_int_equal(net_quota_row(a, anna, 1, &ra, NULL), SL_OK);
    assert_int_equal(ra, rb);
    a_minute(a, b, ra);
    for (int i = 0; i < 4; i++)
        assert_int_equal(take(i & 1 ? a : b, ra, l, 200, &wait), NET_QUOTA_ROOM);
    assert_int_equal(take(a, ra, l, 200, &wait), NET_QUOTA_PARALLEL);
    net_quota_close(b); /* two are its */
    for (int i = 0; i < 2; i++)
        assert_int_equal(take(a, ra, l, 200, &wait), NET_QUOTA_ROOM);
    assert_int_equal(take(a, ra, l, 200, &wait), NET_QUOTA_PARALLEL);
    assert_int_equal(net_quota_open(file(), &c, NULL), SL_OK);
    assert_int_equal(net_quota_row(c, anna, 0, &rc, NULL), SL_OK);
    assert_int_equal(ra, rc);
    assert_int_equal(take(c, rc, l, 200, &wait), NET_QUOTA_PARALLEL);
    net_quota_close(a);
    assert_int_equal(take(c, rc, l, 200, &wait), NET_QUOTA_ROOM);
    net_quota_close(c);
    assert_int_equal(net_quota_open(file(), &a, NULL), SL_OK); /* nobody was there: all is new */
    assert_int_equal(net_quota_row(a, bob, 0, &ra, NULL), SL_OK);
    assert_int_equal(ra, 0);
    net_quota_close(a);
    unlink(file());
}

TEST(net_quota_refuses_what_it_cannot_use)
{
    static net_quota *q[NET_QUOTA_SERVERS];
    net_quota *more = NULL;
    sl_err err = {0};
    FILE *f = fopen(file(), "wb");
    assert_non_null(f);
    for (int i = 0; i < 5000; i++)
        fputc(i * 7, f);
    fclose(f);
    for (int i = 0; i < NET_QUOTA_SERVERS; i++) /* what was there is nobody's */
        assert_int_equal(net_quota_open(file(), &q[i], NULL), SL_OK);
    assert_int_equal(net_quota_open(file(), &more, &err), SL_LIMIT);
    assert_non_null(strstr(err.text, "64 servers"));
    f = fopen(file(), "r+b");
    assert_non_null(f);
    fputc('x', f);
    fclose(f);
    net_quota_close(q[3]);
    assert_int_equal(net_quota_open(file(), &more, &err), SL_FORMAT);
    for (int i = 0; i < NET_QUOTA_SERVERS; i++)
        if (i != 3) net_quota_close(q[i]);
    unlink(file());
    assert_int_equal(symlink("/dev/null", file()), 0);
    assert_int_equal(net_quota_open(file(), &more, &err), SL_IO);
    unlink(file());
    assert_int_equal(net_quota_open("/dev/null", &more, &err), SL_IO);
    assert_non_null(strstr(err.text, "no file of this user"));
    assert_int_equal(net_quota_open("/nowhere/at/all", &more, &err), SL_IO);
    assert_null(more);
}

/* ---- at the same time ---- */

#define THREADS 6
#define TIMES 4000
#define MOST 3

static struct {
    atomic_int n_now, n_bad, n_room;
} seen;

static void *use(void *arg)
{
    net_quota *q = arg;
    struct net_quota_limit l = {.parallel = MOST};
    int row, wait;
    if (net_quota_row(q, anna, 0, &row, NULL)) return NULL;
    for (int i = 0; i < TIMES; i++) {
        if (take(q, row, l, 0, &wait)) continue;
        atomic_fetch_add(&seen.n_room, 1);
        if (atomic_fetch_add(&seen.n_now, 1) >= MOST) atomic_fetch_add(&seen.n_bad, 1);
        atomic_fetch_sub(&seen.n_now, 1);
        net_quota_give(q, row, 1, 1000 * SECOND);
    }
    return NULL;
}

TEST(net_quota_never_lets_in_too_many_at_a_time)
{
    net_quota *q[THREADS];
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(net_quota_open(file(), &q[i], NULL), SL_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, use, q[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&seen.n_bad), 0);
    assert_true(atomic_load(&seen.n_room) >= TIMES / 2);
    int row, wait;
    assert_int_equal(net_quota_row(q[0], anna, 0, &row, NULL), SL_OK);
    struct net_quota_limit l = {.token = atomic_load(&seen.n_room)};
    assert_int_equal(take(q[0], row, l, 1, &wait), NET_QUOTA_TOKEN); /* each was counted */
    l.token++;
    assert_int_equal(take(q[0], row, l, 1, &wait), NET_QUOTA_ROOM);
    for (int i = 0; i < THREADS; i++)
        net_quota_close(q[i]);
    unlink(file());
}
