/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: net base os. Property: what a client sends gives the same requests and replies in one
 * piece and in many; a request that is begun or handled is the one that a strict reader of its own
 * (below) finds there too, with that method, path, Host and body; and a plain one is not refused.
 * The server library is the real one, run by this thread; its socket is the functions below.
 *
 * Input: two bytes that say how it is cut, then what the client sends.
 *
 * The reader is as lenient as the library where sluice sees no bytes and nothing follows from it:
 * empty lines, and lines that begin with NUL, before a request; NUL for the CR of a line, and ':'
 * for that of the last; a lone LF inside a chunked body's framing. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "net/net_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODY_MAX 600
#define PLAIN_BYTES 1024 /* a head of these limits is refused for no size */
#define PLAIN_FIELDS 16

static const char *how = "?"; /* which run it is */
static struct str trace;      /* what happened in it */

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_head: %s: %s\n%s\n", how, what, str_c(&trace));
    abort();
}

/* ---- the socket ---- */

static struct {
    int fd;
    const char *p;
    size_t n, at;
    uint32_t cut; /* 0: all in one piece */
    bool over, closed;
    long moves;
    struct str sent;
} sock = {.fd = -1};

#pragma GCC visibility push(default) /* instead of the system's, for the library too */

ssize_t recv(int fd, void *buf, size_t max, int flags)
{
    size_t n = BASE_MIN(sock.n - sock.at, max);
    (void)flags;
    check(fd == sock.fd && !sock.closed, "another socket is read");
    if (n == 0) {
        errno = EAGAIN;
        return sock.over ? 0 : -1;
    }
    if (sock.cut) {
        sock.cut = sock.cut * 1664525u + 1013904223u;
        size_t most =
            sock.cut >> 31 ? 3 : (size_t)1 << (sock.cut >> 28 & 7); /* mostly short ones */
        n = BASE_MIN(n, 1 + (sock.cut >> 8) % most);
    }
    memcpy(buf, sock.p + sock.at, n);
    sock.at += n;
    sock.moves++;
    return (ssize_t)n;
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    (void)flags;
    check(fd == sock.fd && !sock.closed, "another socket is written");
    str_put(&sock.sent, p, n);
    sock.moves++;
    return (ssize_t)n;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ssize_t n = 0;
    for (size_t i = 0; i < m->msg_iovlen; i++)
        n += send(fd, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len, flags);
    return n;
}

int select(int n, fd_set *restrict r, fd_set *restrict w, fd_set *restrict x,
           struct timeval *restrict t)
{
    (void)n;
    (void)r; /* all that is asked for is so */
    (void)w;
    (void)t;
    FD_ZERO(x);
    return 1;
}

int setsockopt(int fd, int level, int name, const void *p, socklen_t n)
{
    (void)fd;
    (void)level;
    (void)name;
    (void)p;
    (void)n;
    return 0;
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
    (void)ep;
    (void)op;
    (void)fd;
    (void)ev;
    return 0;
}

int shutdown(int fd, int which)
{
    (void)which;
    check(fd == sock.fd, "another socket is shut down");
    return 0;
}

int close(int fd)
{
    if (fd != sock.fd) return (int)syscall(SYS_close, fd);
    check(!sock.closed, "closed twice");
    sock.closed = true;
    sock.moves++;
    return 0;
}

#pragma GCC visibility pop

/* ---- the reader ---- */

struct words {
    const char *p;
    size_t n;
};

static struct {
    const char *p;
    size_t n, at;
    bool in_body, chunked, over; /* over: nothing may be begun any more */
    uint64_t length;
    struct words method, target, name, host; /* name: in an absolute target, which ends before it */
    bool has_host, has_length, http11;
    bool trailer, colon; /* colon: a line of it ends the head */
    bool padded; /* blanks after a value, zeros before a length, an odd line end: may be refused */
    int n_field;
    struct str body;
} ref;

static bool is(struct words w, const char *z)
{
    return w.n == strlen(z) && strncasecmp(w.p, z, w.n) == 0;
}

static bool token(struct words w)
{
    for (size_t i = 0; i < w.n; i++) {
        char c = w.p[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && (!c || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return w.n > 0;
}

static bool digits(struct words w)
{
    for (size_t i = 0; i < w.n; i++)
        if (w.p[i] < '0' || w.p[i] > '9') return false;
    return w.n > 0;
}

/* The next line without its end. lf: a lone LF ends it too. Else the line ":" LF is an empty one.
 */
static bool line(struct words *out, bool lf)
{
    const char *at = ref.p + ref.at, *end = memchr(at, '\n', ref.n - ref.at);
    if (!end) return false;
    bool cr = end > at && end[-1] == '\r';
    if (!lf && end == at + 1 && *at == ':') cr = ref.padded = true;
    *out = (struct words){at, (size_t)(end - at) - cr};
    ref.at = (size_t)(end + 1 - ref.p);
    if (!lf && !cr && ref.n - ref.at >= 3 && memcmp(end + 1, ":\r\n", 3) == 0)
        cr = ref.padded = ref.colon = true;
    return cr || lf;
}

static bool one_of(char c, const char *more)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr(more, c));
}

static bool authority(struct words w)
{
    bool brackets = w.n && w.p[0] == '[';
    size_t i = brackets;
    while (i < w.n && one_of(w.p[i], brackets ? ":." : "-._"))
        i++;
    if (brackets && (i == w.n || w.p[i++] != ']')) return false;
    if (i == 0) return false;
    return i == w.n ||
           (w.p[i] == ':' && (i + 1 == w.n || digits((struct words){w.p + i + 1, w.n - i - 1})));
}

/* Take the name out of an absolute target; false: it is malformed. */
static bool split(void)
{
    struct words *t = &ref.target;
    size_t scheme = t->n >= 7 && strncasecmp(t->p, "http://", 7) == 0    ? 7
                    : t->n >= 8 && strncasecmp(t->p, "https://", 8) == 0 ? 8
                                                                         : 0,
           n = scheme;
    ref.name = (struct words){NULL, 0};
    if (!scheme) return true;
    while (n < t->n && t->p[n] != '/' && t->p[n] != '?')
        n++;
    ref.name = (struct words){t->p + scheme, n - scheme};
    *t = n < t->n && t->p[n] == '/' ? (struct words){t->p + n, t->n - n} : (struct words){"/", 1};
    return authority(ref.name);
}

static bool target_ok(struct words t)
{
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        if (c <= ' ' || c == 0x7f || strchr("\"#<>\\^`{|}", c)) return false;
    }
    if (t.n == 1 && t.p[0] == '*') return is(ref.method, "OPTIONS");
    return t.n > 0 && (t.p[0] == '/' || (t.n >= 7 && strncasecmp(t.p, "http://", 7) == 0) ||
                       (t.n >= 8 && strncasecmp(t.p, "https://", 8) == 0));
}

static bool request_line(void)
{
    struct words l;
    while (ref.at < ref.n &&
           (ref.p[ref.at] == '\0' || ref.p[ref.at] == '\n' ||
            (ref.p[ref.at] == '\r' && ref.n - ref.at > 1 && ref.p[ref.at + 1] == '\n')))
        if (!line(&l, true)) return false;
    if (!line(&l, false)) return false;
    const char *a = memchr(l.p, ' ', l.n),
               *b = a ? memchr(a + 1, ' ', l.n - (size_t)(a + 1 - l.p)) : NULL;
    if (!b) return false;
    ref.method = (struct words){l.p, (size_t)(a - l.p)};
    ref.target = (struct words){a + 1, (size_t)(b - a) - 1};
    struct words v = {b + 1, (size_t)(l.p + l.n - b) - 1};
    if (v.n != 8 || memcmp(v.p, "HTTP/1.", 7) != 0 || v.p[7] < '0' || v.p[7] > '9') return false;
    ref.http11 = v.p[7] != '0';
    return token(ref.method) && target_ok(ref.target) && split();
}

/* A number of the body's length; too large is the largest. */
static uint64_t number(struct words w)
{
    uint64_t v = 0;
    for (size_t i = 0; i < w.n; i++)
        v = v > UINT64_MAX / 16 ? UINT64_MAX / 16 : v * 10 + (uint64_t)(w.p[i] - '0');
    return v;
}

static bool field(struct words l)
{
    const char *colon = memchr(l.p, ':', l.n);
    if (!colon) return false;
    struct words name = {l.p, (size_t)(colon - l.p)},
                 v = {colon + 1, (size_t)(l.p + l.n - colon) - 1};
    for (; v.n && (v.p[0] == ' ' || v.p[0] == '\t'); v.n--)
        v.p++;
    for (; v.n && (v.p[v.n - 1] == ' ' || v.p[v.n - 1] == '\t'); v.n--)
        ref.padded = true;
    for (size_t i = 0; i < v.n; i++)
        if (((unsigned char)v.p[i] < ' ' && v.p[i] != '\t') || v.p[i] == 0x7f) return false;
    if (!token(name)) return false;
    if (is(name, "Host")) {
        if (ref.has_host) return false;
        ref.has_host = true;
        ref.host = v;
    } else if (is(name, "Content-Length")) {
        if (ref.has_length || ref.chunked || !digits(v)) return false;
        ref.has_length = true;
        ref.padded |= v.n > 18;
        ref.length = number(v);
    } else if (is(name, "Transfer-Encoding")) {
        if (ref.has_length || ref.chunked || !is(v, "chunked")) return false;
        ref.chunked = true;
    }
    ref.n_field++;
    return true;
}

/* The head at ref.at, and the place after it; false: none that may be begun. */
static bool head(void)
{
    struct words l;
    ref.in_body = ref.has_host = ref.has_length = ref.chunked = ref.padded = ref.colon = false;
    ref.length = 0;
    ref.n_field = 0;
    ref.host = (struct words){"", 0};
    if (!request_line()) return false;
    for (;;) {
        if (!line(&l, false)) return false;
        if (!l.n || (ref.colon && l.n == 1 && *l.p == ':')) break;
        if (!field(l)) return false;
    }
    ref.in_body = true;
    return ref.has_host || !ref.http11;
}

static bool chunk_size(struct words l, uint64_t *out)
{
    size_t i = 0;
    for (*out = 0; i < l.n && l.p[i] != ';'; i++) {
        const char *d = l.p[i] ? strchr("0123456789abcdef0123456789ABCDEF", l.p[i]) : NULL;
        if (!d || *out >> 60) return false;
        *out = *out * 16 + (uint64_t)(d - "0123456789abcdef0123456789ABCDEF") % 16;
    }
    return i > 0;
}

/* The body at ref.at into ref.body, and the place after it; false: it is not whole, or malformed.
 */
static bool body(void)
{
    struct words l;
    uint64_t n = ref.length;
    str_clear(&ref.body);
    ref.in_body = false;
    do {
        if (ref.chunked && (!line(&l, true) || !chunk_size(l, &n))) return false;
        if (n > ref.n - ref.at) return false;
        str_put(&ref.body, ref.p + ref.at, n);
        ref.at += n;
        if (ref.chunked && n && (!line(&l, true) || l.n)) return false;
    } while (ref.chunked && n);
    ref.trailer = false;
    while (
        ref.chunked) { /* only its end matters: an empty line or what the library takes for one */
        if (!line(&l, true)) return false;
        if (!l.n || !*l.p) break;
        ref.trailer = true;
    }
    return true;
}

/* ---- the server ---- */

static int n_begun, n_handled;
static bool is_plain; /* the first head of the input is one, and its body is there */

static void note(char what, const char *p, size_t n)
{
    str_putc(&trace, what);
    str_put(&trace, p, n);
    str_putc(&trace, '\n');
    sock.moves++;
}

static int hex(char c)
{
    const char *d = c ? strchr("0123456789abcdef0123456789ABCDEF", c) : NULL;
    return d ? (int)(d - "0123456789abcdef0123456789ABCDEF") % 16 : -1;
}

/* As a path: without the query, %XX as that byte, to the first NUL. */
static bool same_path(const char *path, struct words t)
{
    for (size_t i = 0; i < t.n && t.p[i] != '?'; i++, path++) {
        int c = (unsigned char)t.p[i];
        if (c == '%' && t.n - i > 2 && hex(t.p[i + 1]) >= 0 && hex(t.p[i + 2]) >= 0) {
            c = hex(t.p[i + 1]) * 16 + hex(t.p[i + 2]);
            i += 2;
        }
        if ((unsigned char)*path != c) return false;
        if (!c) return true;
    }
    return !*path;
}

static void on_begin(void *user, struct net_req *r)
{
    const char *host = net_req_header(r, "Host");
    const struct words *name = &ref.name;
    (void)user;
    note('b', r->path, strlen(r->path));
    check(!ref.over, "begun after what was refused");
    check(!ref.in_body || body(), "begun inside another's body");
    check(head(), "begun, but no head");
    check(is(ref.method, r->method) && memcmp(ref.method.p, r->method, ref.method.n) == 0,
          "another method");
    check(same_path(r->path, ref.target), "another path");
    check(ref.has_host == (host != NULL), "another Host");
    check(!host || (strlen(host) == ref.host.n && memcmp(host, ref.host.p, ref.host.n) == 0),
          "another Host");
    check(name->p ? strlen(r->host) == name->n && memcmp(r->host, name->p, name->n) == 0
                  : r->host == host,
          "another name");
    check(strspn(r->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
              strlen(r->id),
          "an id with other characters");
    n_begun++;
    note('B', r->path, strlen(r->path));
    (void)net_req_arg(r, "a");
    r->body_max = BODY_MAX;
    r->here = true;
    if (strncmp(r->path, "/no", 3) == 0) net_reply_static(r, 401, "text/plain", "no", 2);
    if (strncmp(r->path, "/busy", 5) == 0) net_reply_static(r, 429, "text/plain", "busy", 4);
}

static void on_handle(void *user, struct net_req *r)
{
    (void)user;
    check(ref.in_body && body(), "handled before it is whole");
    check(r->body.n == ref.body.n && memcmp(str_c(&r->body), str_c(&ref.body), r->body.n) == 0,
          "another body");
    check(r->body.n <= BODY_MAX, "too large a body");
    n_handled++;
    note('H', str_c(&r->body), r->body.n);
    net_reply_static(r, 200, "text/plain", "yes", 3);
}

static void on_refuse(void *user, struct net_req *r, int status, const char *code, const char *text)
{
    (void)user;
    check(status == 400 || status == 413, "refused with another status");
    ref.over |= status == 400;
    note('R', code, strlen(code));
    note(' ', text, strlen(text));
    net_reply_static(r, status, "text/plain", text, strlen(text));
}

static void on_done(void *user, struct net_req *r)
{
    (void)user;
    (void)r;
    note('D', "", 0);
}

static net_server *server(void)
{
    static struct net_conn conn[NET_SPARE + 4];
    static net_server s = {.listen_fd = -1, .epoll_fd = -1, .wake_fd = -1, .tick_fd = -1};
    if (s.daemon) return &s;
    s.opts.n_thread = 1;
    s.opts.hooks = (struct net_hooks){
        .begin = on_begin, .handle = on_handle, .refuse = on_refuse, .done = on_done};
    s.conn = conn;
    s.n_conn_max = BASE_COUNT_OF(conn);
    for (int i = 0; i < s.n_conn_max; i++)
        conn[i].next_free = i + 1 < s.n_conn_max ? i + 1 : -1;
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.push_lock, NULL);
    pthread_mutex_init(&s.work_lock, NULL);
    sock.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    s.listen_fd = open("/dev/null", O_RDWR | O_CLOEXEC); /* where nobody listens */
    check(net_daemon_open(&s, 0, NULL) == SL_OK, "no server");
    (void)MHD_quiesce_daemon(s.daemon);
    return &s;
}

/* Until nothing moves: a request that is whole takes a turn in which nothing does. */
static void settle(net_server *s)
{
    for (int idle = 0; idle < 3; idle++) {
        long before = sock.moves;
        check(MHD_run(s->daemon) == MHD_YES, "the library fails");
        if (sock.moves != before) idle = -1;
    }
}

/* The status of every reply but 100, which depends on what is there already. 431 counts as 400: of
 * a malformed head that fills its buffer the library says either, by how it was cut. */
static void note_replies(void)
{
    static const char begin[] = "HTTP/1.1 ";
    for (const char *p = str_c(&sock.sent); (p = strstr(p, begin)); p += sizeof begin - 1) {
        const char *status = p + sizeof begin - 1;
        if (strncmp(status, "431", 3) == 0) status = "400";
        if (strncmp(status, "100", 3) != 0) note('S', status, 3);
    }
}

static void talk(const char *name, const char *p, size_t n, uint32_t cut)
{
    static const struct sockaddr_in from = {.sin_family = AF_INET};
    net_server *s = server();
    how = name;
    sock.p = ref.p = p;
    sock.n = ref.n = n;
    sock.at = ref.at = 0;
    sock.cut = cut;
    sock.over = sock.closed = ref.in_body = ref.over = false;
    str_clear(&sock.sent);
    str_clear(&trace);
    n_begun = n_handled = 0;
    check(MHD_add_connection(s->daemon, sock.fd, (const struct sockaddr *)&from, sizeof from) ==
              MHD_YES,
          "no connection");
    settle(s);
    note_replies();
    note(sock.closed ? 'C' : 'O', "", 0);
    check(sock.closed || sock.at == sock.n, "bytes are left unread");
    sock.over = true;
    settle(s);
    check(sock.closed && s->n_used == 0 && net_server_active(s) == 0 && net_server_conns(s) == 0,
          "a connection that never ends");
}

/* Has a control character by its escape, which is refused. */
static bool has_control(const char *p, size_t n)
{
    for (; n >= 3; p++, n--) {
        if (*p != '%' || !isxdigit((unsigned char)p[2])) continue;
        if (p[1] == '0' || p[1] == '1' || (p[1] == '7' && (p[2] | 32) == 'f')) return true;
    }
    return false;
}

/* A request that every server takes, whole, at the front. */
static bool plain(const char *p, size_t n)
{
    ref.p = p;
    ref.n = n;
    ref.at = 0;
    if (!n || !((*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z')) || !head()) return false;
    if (ref.at > PLAIN_BYTES || ref.n_field > PLAIN_FIELDS || ref.padded || ref.target.p[0] != '/')
        return false;
    if (has_control(ref.target.p, ref.target.n)) return false;
    for (size_t i = 0; i < ref.host.n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789.", ref.host.p[i])) return false;
    return body() && !ref.trailer && ref.body.n <= BODY_MAX;
}

/* What is left out: a NUL beside a CR or LF, which leaves the same zeros as a line end does; and
 * where a trailer may begin with a blank or a colon: the library (0.9.75) reads its first line in
 * another way when it comes in two pieces. Nothing of it is used, but the replies differ. */
static bool left_out(const char *p, size_t n)
{
    bool odd = false, chunked = false;
    for (size_t i = 0; i + 1 < n; i++) {
        char a = p[i], b = p[i + 1];
        if ((!a && (b == '\r' || b == '\n')) || (!b && (a == '\r' || a == '\n'))) return true;
        odd |= p[i] == '\n' && (p[i + 1] == ' ' || p[i + 1] == '\t' || p[i + 1] == ':');
        chunked |= n - i >= 7 && (p[i] | 32) == 'c' && strncasecmp(p + i, "chunked", 7) == 0;
    }
    return odd && chunked;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct str whole;
    if (size < 2) return 0;
    const char *p = (const char *)data + 2;
    if (left_out(p, size - 2)) return 0;
    is_plain = plain(p, size - 2);
    talk("in one piece", p, size - 2, 0);
    check(!is_plain || n_begun > 0, "a plain request is refused");
    check(!is_plain || n_handled > 0 || strstr(str_c(&trace), "B/no") ||
              strstr(str_c(&trace), "B/busy"),
          "a plain request is not handled");
    str_clear(&whole);
    str_put(&whole, str_c(&trace), trace.n);
    talk("in pieces", p, size - 2, (data[0] | (uint32_t)data[1] << 8) * 2654435761u | 1);
    bool same = whole.n == trace.n && memcmp(str_c(&whole), str_c(&trace), trace.n) == 0;
    if (!same)
        fprintf(stderr, "-- in one piece:\n%s-- in pieces:\n%s", str_c(&whole), str_c(&trace));
    check(same, "pieces are not the whole");
    return 0;
}
