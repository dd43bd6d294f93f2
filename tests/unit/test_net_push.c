/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that get their bytes from the watcher and from net_server_flush: all of them, in order,
 * for readers that keep up, that stop for a while, and beside one that leaves; and the flush with
 * which they get them. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"
#include "net_refuse.h"
#include "test.h"

#define N_STREAM 8
#define N_LINE 6000
#define LINE 100 /* bytes: all of them more than sockets hold */
#define PART 4096

static struct stream {
    struct net_req *r;
    _Atomic int n_told, ended;
} stream[N_STREAM];
static _Atomic int n_begun, n_made, n_closed, n_released;
static net_server *server;
static int apart, old; /* streams that are never for the thread of net_server_flush */

static enum net_next poll(struct net_req *r)
{
    (void)r;
    return NET_ABORT; /* streams have their reply */
}
static enum net_next pull(struct net_req *r, struct str *out)
{
    struct stream *s = r->user;
    int i = atomic_load(&s->n_told), n = atomic_load(&n_made);
    size_t max = out->n + PART;
    for (; i < n && out->n < max; i++)
        str_printf(out, "%*d\n", LINE - 1, i);
    atomic_store(&s->n_told, i);
    if (i == N_LINE) return NET_END;
    return i < n ? NET_MORE : NET_WAIT;
}
static void closed(struct net_req *r)
{
    atomic_store(&((struct stream *)r->user)->ended, 1);
    atomic_fetch_add(&n_closed, 1);
}
static void released(struct net_req *r)
{
    (void)r;
    atomic_fetch_add(&n_released, 1);
}
static const struct net_ops ops = {poll, pull, closed, released};

static void begin(void *user, struct net_req *r)
{
    (void)user;
    r->body_max = 100;
}
static void handle(void *user, struct net_req *r)
{
    (void)user;
    int i = r->path[1] - '0';
    r->user = &stream[i];
    r->apart = i == apart;
    r->ops = &ops;
    net_req_ref(r);
    stream[i].r = r;
    net_reply_stream(r, 200, "text/plain");
    atomic_fetch_add(&n_begun, 1);
}
static void done(void *user, struct net_req *r)
{
    (void)user;
    (void)r;
}

/* What an engine's thread does: steps of many lengths, a flush after each. */
static void *make(void *arg)
{
    (void)arg;
    for (int i = 1; i <= N_LINE; i++) {
        struct timespec t = {.tv_nsec = i % 100 == 0 ? 5000000 : i % 10 == 0 ? 300000 : 0};
        atomic_store(&n_made, i);
        for (int k = 0; k < N_STREAM; k++) {
            if (atomic_load(&stream[k].ended)) continue;
            if (i == 1 || i == N_LINE)
                net_wake(stream[k].r);
            else
                net_wake_later(stream[k].r);
        }
        net_server_flush(server, i % 7 == 0);
        if (t.tv_nsec) nanosleep(&t, NULL);
    }
    return NULL;
}

static int ask(int i)
{
    char text[200];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)net_server_port(server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), few = 16384;
    int n =
        snprintf(text, sizeof text, "GET /%d HTTP/1.%d\r\nHost: localhost\r\n\r\n", i, i != old);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, text, (size_t)n, 0), n);
    return fd;
}

static char got[N_STREAM][2 * N_LINE * LINE];
static size_t n_got[N_STREAM];

/* What of stream i is there; false: it is over. */
static bool read_some(int fd, int i)
{
    char *buf = got[i];
    ssize_t n = recv(fd, buf + n_got[i], sizeof got[i] - 1 - n_got[i], MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return true;
    n_got[i] += n > 0 ? (size_t)n : 0;
    bool last = i != old && n_got[i] > 5 && memcmp(buf + n_got[i] - 5, "0\r\n\r\n", 5) == 0;
    return n > 0 && !last;
}

/* Streams from the second on to their ends, side by side: one that nobody reads for long is closed.
 */
static void read_all(const int *fd)
{
    unsigned left = (1u << N_STREAM) - 2;
    memset(n_got, 0, sizeof n_got);
    for (; left; usleep(200))
        for (int i = N_STREAM - 1; i > 0; i--)
            if (left >> i & 1 && !read_some(fd[i], i)) left &= ~(1u << i);
}

/* Every line once, in order; chunked (HTTP/1.1) or as it is. */
static void check_lines(int i, bool chunked)
{
    char *buf = got[i];
    size_t n = n_got[i], at;
    buf[n] = 0;
    char *p = strstr(buf, "\r\n\r\n"), *text = buf;
    assert_non_null(p);
    for (p += 4, at = 0; p < buf + n;) {
        char *end = p;
        size_t part = chunked ? strtoul(p, &end, 16) : (size_t)(buf + n - p);
        if (chunked) end += 2;
        memmove(text + at, end, part);
        at += part;
        p = end + part + (chunked ? 2 : 0);
        if (chunked && part == 0) break;
    }
    assert_int_equal(at, N_LINE * LINE);
    for (int k = 0; k < N_LINE; k++)
        assert_int_equal(strtol(text + (size_t)k * LINE, NULL, 10), k);
}

static const struct net_hooks hooks = {
    .begin = begin, .handle = handle, .refuse = refuse, .done = done};

static void begin_all(const struct net_opts *o, int n, int *fd)
{
    sl_err err;
    memset(stream, 0, sizeof stream);
    atomic_store(&n_begun, 0);
    atomic_store(&n_made, 0);
    atomic_store(&n_closed, 0);
    atomic_store(&n_released, 0);
    ASSERT_OK(net_server_open(o, &server, &err));
    for (int i = 0; i < n; i++)
        fd[i] = ask(i);
    while (atomic_load(&n_begun) < n)
        usleep(1000);
}

static void end_all(int n, const int *fd)
{
    for (int i = 0; i < n; i++) {
        net_req_unref(stream[i].r);
        if (fd[i] >= 0) close(fd[i]);
    }
    net_server_close(server);
    assert_int_equal(atomic_load(&n_closed), n);
    assert_int_equal(atomic_load(&n_released), n);
}

static void run(bool push_here)
{
    struct net_opts o = {
        .host = "127.0.0.1", .push_here = push_here, .gather_ms = 2, .hooks = hooks};
    pthread_t maker;
    int fd[N_STREAM];
    apart = 1;
    old = 2;
    begin_all(&o, N_STREAM, fd);
    assert_int_equal(pthread_create(&maker, NULL, make, NULL), 0);
    while (atomic_load(&n_made) < N_LINE / 2)
        usleep(1000);
    close(fd[0]); /* in the middle; the others did not read so far */
    fd[0] = -1;
    read_all(fd);
    for (int i = 1; i < N_STREAM; i++)
        check_lines(i, i != old);
    pthread_join(maker, NULL);
    double s = net_server_push_s(server);
    assert_true(push_here ? s > 0 : s == 0.0);
    end_all(N_STREAM, fd);
}

TEST(net_streams_are_whole_from_the_watcher)
{
    run(false);
}

TEST(net_streams_are_whole_from_flush)
{
    run(true);
}

/* ---- the flush that passes them on ---- */

#define GATHER_MS 32

static bool told(int n, int line)
{
    for (int k = 0; k < n; k++)
        if (atomic_load(&stream[k].n_told) < line) return false;
    return true;
}

/* n streams of which each step has news. With the times before and after each flush: those behind
 * which one more step would make the oldest news older than GATHER_MS pass them on, or, where
 * streams are few, those behind a step of more than half of that, and no other; so does every one
 * that is told to. How long a step takes on this machine does not matter. */
static void gather(bool push_here, int n)
{
    struct net_opts o = {
        .host = "127.0.0.1", .push_here = push_here, .gather_ms = GATHER_MS, .hooks = hooks};
    int64_t most = GATHER_MS * (int64_t)1000000, slow = most / (n < 8 ? 2 : 1), t0 = 0, t1 = 0,
            old0 = 0, old1 = 0;
    bool here = push_here && n < N_STREAM; /* many streams of short steps are the watcher's */
    int fd[N_STREAM], n_waited = 0, n_passed = 0, n_early = 0;
    apart = old = -1;
    begin_all(&o, n, fd);
    for (int i = 1; i <= 160; i++) { /* with the first they begin to sleep */
        bool first = i == 1 || told(n, i - 1), now = i == 1 || i % 40 == 0;
        struct timespec step = {.tv_nsec = i % 50 < 10 ? 22000000 : 3000000};
        atomic_store(&n_made, i);
        for (int k = 0; k < n; k++)
            net_wake_later(stream[k].r);
        int64_t before = clock_now_ns();
        net_server_flush(server, now);
        int64_t after = clock_now_ns();
        if (first) old0 = before;
        if (first) old1 = after;
        bool must = now || 2 * before - t1 - old1 > most || before - t1 > slow;
        bool may = now || 2 * after - t0 - old0 > most || after - t0 > slow;
        for (int ms = 0; must && !told(n, i); ms++) {
            if ((here && i > 1) || ms == 5000) fail_msg("step %d: news wait too long", i);
            usleep(1000);
        }
        t0 = before;
        t1 = after;
        nanosleep(&step, NULL);
        n_passed += must && !now;
        n_waited += !may;
        n_early += !may && told(n, i);
    }
    assert_true(n_passed > 3);
    assert_true(n_waited > 3);
    /* a watcher that was stopped in the middle of the last ones finds these too */
    assert_true(n_early <= (here ? 0 : n_waited / 4));
    for (int k = 0; k < n; k++)
        close(fd[k]);
    for (int k = 0; k < n; k++)
        fd[k] = -1;
    end_all(n, fd);
}

TEST(net_flush_gathers_for_few_streams)
{
    gather(true, 1);
    gather(true, 4);
}

TEST(net_flush_gathers_slow_steps_of_many_streams)
{
    gather(true, 8);
}

TEST(net_watcher_is_rung_by_the_same_rule)
{
    gather(false, 1);
    gather(false, 8);
}
