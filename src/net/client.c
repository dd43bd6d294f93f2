/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client over libcurl's multi interface, driven by one epoll set. */
#include "net/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

struct req {
    net_client *c;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    struct net_post p;
    char why[CURL_ERROR_SIZE];
    struct req *prev, *next;
};

struct net_client {
    CURLM *multi;
    int epoll_fd; /* the sockets of multi, as it asks for them */
    int insecure, n_busy;
    int64_t timer_ns; /* when multi wants to be called; -1 = at events only */
    struct req *busy;
};

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
    net_client *c = user;
    struct epoll_event ev = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* it may be closed by now */
        return 0;
    }
    if (what & CURL_POLL_IN) ev.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) ev.events |= EPOLLOUT;
    if (epoll_ctl(c->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) != 0) return -1;
    curl_multi_assign(c->multi, fd, c); /* known from now on */
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *user)
{
    net_client *c = user;
    (void)multi;
    c->timer_ns = ms < 0 ? -1 : clock_now_ns() + (int64_t)ms * 1000000;
    return 0;
}

sl_status net_client_open(int insecure, net_client **out, sl_err *err)
{
    net_client *c;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof *c, (void **)&c, err));
    c->insecure = insecure;
    c->timer_ns = -1;
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll_fd < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) ||
        !(c->multi = curl_multi_init())) {
        if (c->epoll_fd >= 0) close(c->epoll_fd);
        mem_free(c);
        return SL_FAIL(err, INTERNAL, "the HTTP client does not start");
    }
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    *out = c;
    return SL_OK;
}

static void drop(struct req *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        r->c->busy = r->next;
    if (r->next) r->next->prev = r->prev;
    r->c->n_busy--;
    if (r->easy) {
        curl_multi_remove_handle(r->c->multi, r->easy);
        curl_easy_cleanup(r->easy);
    }
    curl_slist_free_all(r->headers);
    mem_free(r->body);
    mem_free(r);
}

void net_client_close(net_client *c)
{
    if (!c) return;
    while (c->busy)
        drop(c->busy);
    curl_multi_cleanup(c->multi);
    close(c->epoll_fd);
    curl_global_cleanup();
    mem_free(c);
}

static size_t on_data(char *p, size_t size, size_t n, void *user)
{
    struct req *r = user;
    long http = 0;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &http);
    return r->p.on_data(r->p.user, (int)http, p, size * n) ? 0 : size * n;
}

static bool header(struct req *r, const char *line)
{
    struct curl_slist *more = curl_slist_append(r->headers, line);
    if (more) r->headers = more;
    return more != NULL;
}

static sl_status set_up(struct req *r, sl_err *err)
{
    CURL *e = r->easy = curl_easy_init();
    if (!e) return SL_FAIL(err, NOMEM, "no memory for a request");
    bool ok = !curl_easy_setopt(e, CURLOPT_URL, r->p.url) &&
              !curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!ok) return SL_FAIL(err, REQUEST, "not a URL: %.100s", r->p.url);
    if (r->p.key) {
        char line[600];
        if (snprintf(line, sizeof line, "Authorization: Bearer %s", r->p.key) >= (int)sizeof line)
            return SL_FAIL(err, REQUEST, "the API key is longer than 512 bytes");
        ok = header(r, line);
    }
    if (r->p.body) {
        ok = ok && header(r, "Content-Type: application/json") && header(r, "Expect:");
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, r->body);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->p.n_body);
    }
    if (!ok) return SL_FAIL(err, NOMEM, "no memory for a request");
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(e, CURLOPT_PRIVATE, r);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, r->why);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)r->p.timeout_ms);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, 10000L);
    if (r->c->insecure) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    CURLMcode m = curl_multi_add_handle(r->c->multi, e);
    if (m) return SL_FAIL(err, INTERNAL, "the HTTP client: %s", curl_multi_strerror(m));
    return SL_OK;
}

sl_status net_client_post(net_client *c, const struct net_post *p, sl_err *err)
{
    struct req *r;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof *r, (void **)&r, err));
    r->c = c;
    r->p = *p;
    r->next = c->busy;
    if (c->busy) c->busy->prev = r;
    c->busy = r;
    c->n_busy++;
    sl_status st = SL_OK;
    if (p->body) {
        st = mem_alloc(MEM_REQUEST, p->n_body + 1, (void **)&r->body, err);
        if (!st) memcpy(r->body, p->body, p->n_body);
    }
    if (!st) st = set_up(r, err);
    if (st) drop(r);
    return st;
}

int net_client_busy(const net_client *c)
{
    return c->n_busy;
}

static void finish(CURL *easy, CURLcode code)
{
    struct req *r = NULL;
    long http = 0;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&r);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &http);
    struct net_post p = r->p;
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof why, "%s", r->why[0] ? r->why : curl_easy_strerror(code));
    drop(r);
    p.on_done(p.user, (int)http, code ? why : NULL);
}

/* What multi's timer allows of timeout_ms. */
static int wait_ms(const net_client *c, int timeout_ms)
{
    if (c->timer_ns < 0) return timeout_ms;
    int64_t left = (c->timer_ns - clock_now_ns() + 999999) / 1000000;
    return left <= 0 ? 0 : (int)BASE_MIN(left, timeout_ms);
}

sl_status net_client_poll(net_client *c, int timeout_ms, sl_err *err)
{
    struct epoll_event ev[64];
    int running, left, n = epoll_wait(c->epoll_fd, ev, BASE_COUNT_OF(ev), wait_ms(c, timeout_ms));
    CURLMcode m = CURLM_OK;
    if (n < 0 && errno != EINTR)
        return SL_FAIL(err, INTERNAL, "the HTTP client: %s", strerror(errno));
    for (int i = 0; i < n && !m; i++) {
        unsigned e = ev[i].events;
        int bits = (e & EPOLLIN ? CURL_CSELECT_IN : 0) | (e & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (e & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        m = curl_multi_socket_action(c->multi, ev[i].data.fd, bits, &running);
    }
    if (!m && c->timer_ns >= 0 && clock_now_ns() >= c->timer_ns) {
        c->timer_ns = -1; /* it may set a new one */
        m = curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    if (m) return SL_FAIL(err, INTERNAL, "the HTTP client: %s", curl_multi_strerror(m));
    for (CURLMsg *msg; (msg = curl_multi_info_read(c->multi, &left));)
        if (msg->msg == CURLMSG_DONE) finish(msg->easy_handle, msg->data.result);
    return SL_OK;
}
