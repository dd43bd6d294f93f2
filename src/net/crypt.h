/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, comparison in constant time, random bytes, and a lock: what api needs of the system. */
#ifndef NET_CRYPT_H
#define NET_CRYPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define NET_SHA256_BYTES 32

/* SHA-256 of p[0..n). */
void net_sha256(const void *p, size_t n, uint8_t out[NET_SHA256_BYTES]);
/* Its time does not depend on the bytes. */
bool net_equal(const void *a, const void *b, size_t n);
/* From the kernel; never fails on Linux with n <= 256. */
void net_random(void *p, size_t n);
/* "prefix" and 24 random hexadecimal digits, for ids. out: at least strlen(prefix) + 25 bytes. */
void net_random_id(const char *prefix, char *out);

/* A mutex for short sections. Errors: NOMEM. */
typedef struct net_lock net_lock;
sl_status net_lock_open(net_lock **out, sl_err *err) BASE_MUST_USE;
void net_lock_close(net_lock *l); /* NULL is legal */
void net_lock_take(net_lock *l);
void net_lock_give(net_lock *l);

#endif
