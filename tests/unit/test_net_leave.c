/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that leave while a worker is at their request: whatever comes first, what the worker began
 * is closed and released, once. */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "net/net.h"
#include "net_refuse.h"
#include "test.h"

enum what { STARTS, REPLIES };
static struct {
    _Atomic int what, begin_ms, handle_ms;
    _Atomic int n_begun, n_entered, n_handled, n_closed, n_released, n_done;
} seen;

static void pause_ms(int ms)
{
    struct timespec t = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&t, NULL);
}

static enum net_next wait_on(struct net_req *r)
{
    (void)r;
    return NET_WAIT; /* until the peer is gone */
}
static enum net_next pull(struct net_req *r, struct str *out)
{
    (void)r;
    (void)out;
    return NET_WAIT;
}
static void closed(struct net_req *r)
{
    (void)r;
    atomic_fetch_add(&seen.n_closed, 1);
}
static void released(struct net_req *r)
{
    (void)r;
    atomic_fetch_add(&seen.n_released, 1);
}
static const struct net_ops ops = {wait_on, pull, closed, released};

static void begin(void *user, struct net_req *r)
{
    (void)user;
    r->body_max = 100;
    pause_ms(atomic_load(&seen.begin_ms));
    atomic_fetch_add(&seen.n_begun, 1);
}
static void handle(void *user, struct net_req *r)
{
    (void)user;
    atomic_fetch_add(&seen.n_entered, 1);
    pause_ms(atomic_load(&seen.handle_ms));
    if (atomic_load(&seen.what) == STARTS)
        r->ops = &ops;
    else {
        struct str s;
        str_init(&s, MEM_REQUEST, 0);
        str_puts(&s, "{}");
        net_reply(r, 200, "application/json", &s);
    }
    atomic_fetch_add(&seen.n_handled, 1);
}
static void done(void *user, struct net_req *r)
{
    (void)user;
    (void)r;
    atomic_fetch_add(&seen.n_done, 1);
}

static int ask(int port)
{
    static const char text[] = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, text, sizeof text - 1, 0), sizeof text - 1);
    return fd;
}

static void leave(int fd, bool reset)
{
    struct linger hard = {1, 0};
    if (reset) setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
}

static void wait_for(_Atomic int *v, int n)
{
    for (int i = 0; i < 500 && atomic_load(v) < n; i++)
        pause_ms(10);
    assert_int_equal(atomic_load(v), n);
}

TEST(net_peers_that_leave_a_worker_are_closed_once)
{
    struct net_opts o = {
        .host = "127.0.0.1",
        .hooks = {.begin = begin, .handle = handle, .refuse = refuse, .done = done}};
    net_server *s = NULL;
    sl_err err;
    int n = 0, n_start = 0;
    memset(&seen, 0, sizeof seen);
    ASSERT_OK(net_server_open(&o, &s, &err));
    for (int what = STARTS; what <= REPLIES; what++)
        for (int reset = 0; reset < 2; reset++)
            for (int late = 0; late < 2; late++) {
                atomic_store(&seen.what, what);
                atomic_store(&seen.handle_ms, late ? 5 : 120);
                int fd = ask(net_server_port(s));
                n++;
                n_start += what == STARTS;
                wait_for(late ? &seen.n_handled : &seen.n_entered, n);
                leave(fd, reset);
                wait_for(&seen.n_handled, n);
                wait_for(&seen.n_done, n);
                wait_for(&seen.n_closed, n_start);
                wait_for(&seen.n_released, n_start);
                for (int i = 0; i < 200 && net_server_active(s); i++)
                    pause_ms(5);
                assert_int_equal(net_server_active(s), 0);
            }
    /* at any moment, many at once */
    atomic_store(&seen.what, STARTS);
    int n_handled = n, begun = atomic_load(&seen.n_begun) - n;
    for (int i = 0; i < 1500; i++) {
        atomic_store(&seen.handle_ms, i % 4);
        int fd = ask(net_server_port(s));
        pause_ms(i / 4 % 3);
        leave(fd, true);
    }
    for (int i = 0; i < 500 && net_server_active(s); i++)
        pause_ms(10);
    assert_int_equal(net_server_active(s), 0);
    n = atomic_load(&seen.n_begun) - begun; /* the head of some was never read */
    assert_int_equal(atomic_load(&seen.n_done), n);
    /* what was handled was closed; the peer of some was gone before that */
    assert_int_equal(atomic_load(&seen.n_closed), atomic_load(&seen.n_released));
    n_start = atomic_load(&seen.n_handled) - (n_handled - n_start);
    assert_int_equal(atomic_load(&seen.n_closed), n_start);
    net_server_close(s);
    assert_int_equal(atomic_load(&seen.n_closed), n_start);
    assert_int_equal(atomic_load(&seen.n_done), n);
}

/* A peer that closes its own side has still to get its reply, whenever that is seen. */
TEST(net_peers_that_send_no_more_are_answered)
{
    struct net_opts o = {
        .host = "127.0.0.1",
        .hooks = {.begin = begin, .handle = handle, .refuse = refuse, .done = done}};
    net_server *s = NULL;
    sl_err err;
    memset(&seen, 0, sizeof seen);
    atomic_store(&seen.what, REPLIES);
    ASSERT_OK(net_server_open(&o, &s, &err));
    for (int i = 0; i < 120; i++) { /* many at once: several are woken in one turn */
        char buf[512];
        int fd[12];
        atomic_store(&seen.begin_ms, i % 3);
        atomic_store(&seen.handle_ms, i / 3 % 3);
        for (int k = 0; k < 12; k++) {
            fd[k] = ask(net_server_port(s));
            if (i & 1) pause_ms(1);
            shutdown(fd[k], SHUT_WR);
        }
        for (int k = 0; k < 12; k++) {
            ssize_t n = recv(fd[k], buf, sizeof buf, MSG_WAITALL);
            assert_true(n > 12 && memcmp(buf, "HTTP/1.1 200", 12) == 0);
            close(fd[k]);
        }
    }
    net_server_close(s);
    assert_int_equal(atomic_load(&seen.n_done), 120 * 12);
}
