/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that are run together, of every kind (fuse.c). Room-internal. */
#ifndef DEV_CPU_FUSE_H
#define DEV_CPU_FUSE_H

#include "dev/dev_internal.h"

struct cpu;

/* A head that says how. */
struct cpu_fused {
    struct dev_fused head;
    bool (*run)(struct cpu *c, dev_kv *kv, const struct dev_step *b, struct cpu_fused *f);
};
/* Those that begin at op[at]; *out NULL: none. Layers (region.c), products whose largest values are
 * wanted (best.c). Errors: NOMEM. */
sl_status dev_cpu_fuse_layers(struct cpu *c, const struct dev_op *op, int n_op, int at,
                              struct cpu_fused **out, sl_err *err);
sl_status dev_cpu_fuse_best(struct cpu *c, const struct dev_op *op, int n_op, int at,
                            struct cpu_fused **out, sl_err *err);

#endif
