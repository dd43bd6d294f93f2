/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of GPUs (src/dev/gpu/kernel) on the CPU: the lanes of a workgroup are fibers, which
 * change at every SYNC. Workgroups run one after another, those with an odd number from the last
 * lane down, so that a SYNC that is missing shows. */
#ifndef TESTS_DEV_SIMT_H
#define TESTS_DEV_SIMT_H

#include <stdbool.h>
#include <stdint.h>

struct simt_kernel {
    const char *name;
    unsigned n_lane;
    unsigned n_arg; /* bytes of its arguments */
    void (*set)(const void *args);
    void (*run)(void); /* a lane */
};

/* Of the lane that runs. */
extern unsigned simt_lane, simt_group[3], simt_n_group_x;
void simt_sync(void);
/* A warp's mma.sync.m16n8k(16 n).row.col.s32.u8.s8.s32, onto zeros, where PTX says which lane has
 * what: 2 n registers of a, n of b, 4 of d. All lanes of the workgroup call it. */
void simt_mma(unsigned n, const unsigned *a, const unsigned *b, int d[4]);

void simt_launch(const struct simt_kernel *k, const unsigned grid[3], const void *args);
const struct simt_kernel *simt_find(const char *name); /* NULL: there is none */

/* The card's addresses are no addresses of the host. */
#define SIMT_APART ((uint64_t)1 << 48)
static inline uint64_t simt_address(const void *p)
{
    return (uint64_t)(uintptr_t)p + SIMT_APART;
}
static inline void *simt_host(uint64_t at)
{
    return (void *)(uintptr_t)(at - SIMT_APART);
}

#endif
