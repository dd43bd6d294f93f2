/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, constant-time comparison and random bytes by GnuTLS; the lock by pthread. */
#include "net/crypt.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"

void net_sha256(const void *p, size_t n, uint8_t out[NET_SHA256_BYTES])
{
    ASSERT(gnutls_hash_fast(GNUTLS_DIG_SHA256, p, n, out) ==
           0); /* fails for unknown digests only */
}

bool net_equal(const void *a, const void *b, size_t n)
{
    return gnutls_memcmp(a, b, n) == 0;
}

void net_random(void *p, size_t n)
{
    ASSERT(n <= 256 && getrandom(p, n, 0) == (ssize_t)n);
}

void net_random_id(const char *prefix, char *out)
{
    uint8_t b[12];
    net_random(b, sizeof b);
    size_t n = strlen(prefix);
    memcpy(out, prefix, n);
    for (int i = 0; i < 12; i++)
        snprintf(out + n + 2 * (size_t)i, 3, "%02x", b[i]);
}

struct net_lock {
    pthread_mutex_t m;
};

sl_status net_lock_open(net_lock **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc(MEM_MISC, sizeof **out, &p, err));
    *out = p;
    pthread_mutex_init(&(*out)->m, NULL);
    return SL_OK;
}

void net_lock_close(net_lock *l)
{
    if (l) pthread_mutex_destroy(&l->m);
    mem_free(l);
}

void net_lock_take(net_lock *l)
{
    pthread_mutex_lock(&l->m);
}

void net_lock_give(net_lock *l)
{
    pthread_mutex_unlock(&l->m);
}
