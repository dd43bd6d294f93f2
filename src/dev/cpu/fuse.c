/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of a program that are run together, of every kind. */
#include "dev/cpu/fuse.h"

#include "dev/cpu/cpu.h"

sl_status dev_cpu_fuse(dev *d, const struct dev_op *op, int n_op, int at, struct dev_fused **out,
                       sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_fused *f = NULL;
    SL_TRY(dev_cpu_fuse_layers(c, op, n_op, at, &f, err));
    if (!f) SL_TRY(dev_cpu_fuse_best(c, op, n_op, at, &f, err));
    *out = f ? &f->head : NULL;
    return SL_OK;
}

bool dev_cpu_run_fused(dev *d, dev_kv *kv, const struct dev_step *b, struct dev_fused *f)
{
    struct cpu_fused *own = (struct cpu_fused *)f;
    ASSERT(b->n_tok <= f->n_tok_max);
    return own->run(dev_cpu_of(d), kv, b, own);
}
