/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel as C: BODY_FILE under the name ENTRY. */
#include "simt.h"

#define DEVICE_AT(a) simt_host(a)
#include "dev/gpu/kernel/c.inc"

#include "dev/gpu/kernel/arith.inc"
#include BODY_FILE

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

static void set(const void *args)
{
    __builtin_memcpy(&p, args, sizeof p);
}

const struct simt_kernel JOIN(simt_kernel_, ENTRY) = {TEXT(ENTRY), LANES, sizeof p, set, run};
