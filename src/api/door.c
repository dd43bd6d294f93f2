/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks of a server whose engine is not there yet: the port says so, and goes on to the api
 * when there is one. */
#include <string.h>

#include "api/api_internal.h"

/* of requests that were answered here */
static const char answered[] = "not ready";

static bool is_open(const struct api_door *d)
{
    return atomic_load_explicit(&d->open, memory_order_acquire); /* pairs with api_door_open */
}

static void say(struct net_req *r, int status, const char *code, const char *text)
{
    struct str s;
    bool msg = api_msg_speaks(r);
    str_init(&s, MEM_REQUEST, 0);
    if (msg) {
        api_msg_put_error(&s, r, status, code, text);
        net_reply_header(r, "request-id", r->id);
    } else
        api_error_json(&s, status, code, NULL, text);
    if (status == 503) net_reply_header(r, "Retry-After", "1");
    net_reply(r, msg ? api_msg_http(status) : status, API_JSON, &s);
}

static void begin(void *user, struct net_req *r)
{
    struct api_door *d = user;
    if (is_open(d)) {
        d->to.begin(d->to.user, r);
        return;
    }
    r->key = -1;
    r->user = (void *)(uintptr_t)answered;
    if (strcmp(r->method, "GET") == 0 && strcmp(r->path, "/health") == 0)
        net_reply_static(r, 200, API_JSON, "{\"status\":\"ok\"}", 15);
    else
        say(r, 503, "not_ready", "no engine is attached yet");
}

static void body(void *user, struct net_req *r, size_t n)
{
    struct api_door *d = user;
    if (r->user != answered && is_open(d)) d->to.body(d->to.user, r, n);
}

static void handle(void *user, struct net_req *r)
{
    struct api_door *d = user;
    ASSERT(is_open(d)); /* else begin has replied */
    d->to.handle(d->to.user, r);
}

static void refuse(void *user, struct net_req *r, int status, const char *code, const char *text)
{
    struct api_door *d = user;
    if (r->user != answered && is_open(d))
        d->to.refuse(d->to.user, r, status, code, text);
    else
        say(r, status, code, text);
}

static void done(void *user, struct net_req *r)
{
    struct api_door *d = user;
    if (r->user != answered && is_open(d)) d->to.done(d->to.user, r);
}

static void tick(void *user)
{
    struct api_door *d = user;
    if (is_open(d)) d->to.tick(d->to.user);
}

static void take_signal(void *user, int sig)
{
    struct api_door *d = user;
    if (is_open(d) && d->to.signal) d->to.signal(d->to.user, sig);
}

void api_door_hooks(struct api_door *d, struct net_hooks *out)
{
    *out = (struct net_hooks){.user = d,
                              .begin = begin,
                              .body = body,
                              .handle = handle,
                              .refuse = refuse,
                              .done = done,
                              .tick = tick,
                              .signal = take_signal};
}

void api_door_open(struct api_door *d, const struct net_hooks *to)
{
    d->to = *to;
    atomic_store_explicit(&d->open, true, memory_order_release); /* to is there */
}
