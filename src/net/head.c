/* SPDX-License-Identifier: Apache-2.0 */
/* What the library lets through and a server, all the more one behind a proxy, must not: heads that
 * two readers may read in two ways (RFC 9110, RFC 9112). */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "net/net_internal.h"

#define ALNUM "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TOKEN ALNUM "!#$%&'*+-.^_`|~"

static bool is_token(const char *p, size_t n)
{
    return n > 0 && strlen(p) == n && strspn(p, TOKEN) == n;
}

/* Two lengths, or a length and a transfer coding (RFC 9112 6.3), and more than one Host. */
static const char *bad_framing(const struct net_req *r)
{
    int n_len = net_req_n_header(r, "Content-Length"),
        n_te = net_req_n_header(r, "Transfer-Encoding");
    const char *te = net_req_header(r, "Transfer-Encoding"),
               *len = net_req_header(r, "Content-Length");
    if (n_len > 1) return "more than one Content-Length";
    if (n_len && n_te) return "both Content-Length and Transfer-Encoding";
    if (n_te > 1 || (te && strcasecmp(te, "chunked") != 0))
        return "a Transfer-Encoding other than chunked";
    if (len && (!*len || len[strspn(len, "0123456789")])) return "Content-Length is not a number";
    if (net_req_n_header(r, "Host") > 1) return "more than one Host";
    return NULL;
}

/* How long the name or address, and perhaps port, at the beginning is; 0: malformed, or nothing. */
static size_t host_len(const char *h)
{
    size_t n = *h == '[' ? 1 + strspn(h + 1, ALNUM ":.") : strspn(h, ALNUM "-._");
    if (*h == '[' && h[n++] != ']') return 0;
    if (h[n] == ':') n += 1 + strspn(h + n + 1, "0123456789");
    return n;
}

struct fields {
    const char *bad;
    const char *at; /* where the next one begins, when two bytes ended the line before it */
};

static enum MHD_Result check_field(void *cls, enum MHD_ValueKind kind, const char *key,
                                   size_t n_key, const char *value, size_t n_value)
{
    struct fields *f = cls;
    const char **bad = &f->bad;
    (void)kind;
    /* one that the library took for the end of something: a NUL, a CR, a lone LF, a folded line.
     * The sum of all is not enough: a lone LF is one byte less, an empty name one more. */
    if (key != f->at) *bad = "the header fields are malformed";
    f->at = value + n_value + 2;
    if (!is_token(key, n_key)) *bad = "the name of a header field is malformed";
    for (size_t i = 0; i < n_value; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            *bad = "a control character in a header field";
    return *bad ? MHD_NO : MHD_YES;
}

size_t net_target_scheme(const char *target)
{
    return strncasecmp(target, "http://", 7) == 0    ? 7
           : strncasecmp(target, "https://", 8) == 0 ? 8
                                                     : 0;
}

/* No user, no escapes, and not without a name (RFC 9110 4.2). */
static bool good_authority(const char *h)
{
    size_t n = *h == ':' ? 0 : host_len(h);
    return n > 0 && (!h[n] || h[n] == '/' || h[n] == '?');
}

/* A control character, by its escape: a NUL would end the path for whoever reads it. */
static bool is_control(const char *p)
{
    return p[0] == '%' && (((p[1] == '0' || p[1] == '1') && isxdigit((unsigned char)p[2])) ||
                           (p[1] == '7' && (p[2] == 'f' || p[2] == 'F')));
}

bool net_target_ok(const char *target)
{
    size_t scheme = net_target_scheme(target);
    if (scheme ? !good_authority(target + scheme) : *target != '/' && strcmp(target, "*") != 0)
        return false;
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f || strchr("#\"<>\\^`{|}", *p) || is_control(p))
            return false;
    return true;
}

const char *net_head_bad(const struct net_req *r, const char *version)
{
    const struct net_conn *c = net_own(r)->conn;
    const char *host = net_req_header(r, "Host");
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(net_own(r)->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct fields f = {.at = version + strlen(version) + 2};
    if (!is_token(r->method, strlen(r->method))) return "the method is malformed";
    /* the words of the line stand one byte apart: more is a NUL or a second space */
    if (c->bad_target || c->target != r->method + strlen(r->method) + 1 ||
        version != c->target_end + 1)
        return "the request target is malformed";
    if (strcmp(c->target_end - 1, "*") == 0 && strcmp(r->path, "*") == 0 &&
        strcmp(r->method, "OPTIONS") != 0)
        return "the request target is malformed";
    MHD_get_connection_values_n(net_own(r)->mhd, MHD_HEADER_KIND, check_field, &f);
    if (f.bad) return f.bad;
    /* two line ends, which are zeros by now: a field without a name ends the head too */
    if (info && (r->method + info->header_size != f.at + 2 || memcmp(f.at - 2, "\0\0\0", 4) != 0))
        return "the header fields are malformed";
    if (host && host[host_len(host)]) return "Host is malformed";
    return bad_framing(r);
}
