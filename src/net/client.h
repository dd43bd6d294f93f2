/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP requests to other servers, many at once on one thread: libcurl's multi interface behind four
 * calls. Answers are given out as they arrive. */
#ifndef NET_CLIENT_H
#define NET_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct net_client net_client;

/* One request. Everything it points to is copied, but for user. */
struct net_post {
    const char *url;  /* http:// or https:// */
    const char *key;  /* sent as "Authorization: Bearer KEY"; NULL = none */
    const char *body; /* JSON; NULL makes it a GET */
    size_t n_body;
    int64_t timeout_ms; /* of the whole request; 0 = none */
    /* Bytes of the answer's body, whatever its status; called inside net_client_poll. Returns 1 to
     * stop the request. */
    int (*on_data)(void *user, int http, const char *p, size_t n);
    /* The end: http is the status, 0 when there was none; error NULL, or one line (connection
     * refused, timed out, cut short). */
    void (*on_done)(void *user, int http, const char *error);
    void *user;
};

/* insecure: certificates are not checked (a test server with its own). Errors: NOMEM, INTERNAL.
 * Threads: one. */
sl_status net_client_open(int insecure, net_client **out, sl_err *err) BASE_MUST_USE;
void net_client_close(net_client *c); /* requests under way end without on_done; NULL is legal */

/* Start a request. Errors: NOMEM, REQUEST (a URL that is none). */
sl_status net_client_post(net_client *c, const struct net_post *p, sl_err *err) BASE_MUST_USE;
/* Requests that have not ended. */
int net_client_busy(const net_client *c);
/* Move all requests on; wait for the first event, at most timeout_ms (all of it when nothing is
 * under way). Errors: INTERNAL. */
sl_status net_client_poll(net_client *c, int timeout_ms, sl_err *err) BASE_MUST_USE;

#endif
