/* SPDX-License-Identifier: Apache-2.0 */
/* The hook of a server that refuses without a body. */
#ifndef NET_REFUSE_H
#define NET_REFUSE_H

#include "net/net.h"

static void refuse(void *user, struct net_req *r, int status, const char *code, const char *text)
{
    (void)user;
    (void)code;
    (void)text;
    net_reply(r, status, "text/plain", NULL);
}

#endif
