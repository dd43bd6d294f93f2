/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the device: reservations that live as long as it does, and its workspace.
 * Room-internal. */
#ifndef DEV_CPU_MEM_H
#define DEV_CPU_MEM_H

#include "base/mem.h"
#include "base/status.h"

struct cpu;

/* One reservation; freed when the device closes. */
struct cpu_block {
    struct cpu_block *next;
    void *p;
    size_t n;
    enum mem_tag tag;
    int slab;
};
struct cpu_mem {
    struct cpu_block *blocks;
    uint8_t *chunk; /* small matrices are carved from here */
    size_t chunk_left;
};

/* A slab or block of n bytes that lives as long as the device; zeroed. Errors: NOMEM. */
sl_status dev_cpu_mem(struct cpu *c, enum mem_tag tag, size_t n, void **out,
                      sl_err *err) BASE_MUST_USE;
/* The same for n * size bytes of workspace and a line after them, that vectors may read. out: a
 * pointer's address. Errors: NOMEM. */
sl_status dev_cpu_scratch(struct cpu *c, size_t n, size_t size, void *out,
                          sl_err *err) BASE_MUST_USE;
/* n bytes of weights: 64-byte aligned, small ones packed together. Errors: NOMEM. */
sl_status dev_cpu_carve(struct cpu *c, size_t n, void **out, sl_err *err) BASE_MUST_USE;

#endif
