/* SPDX-License-Identifier: Apache-2.0 */
/* Single matrices of a stack: made beside it, and put into it in place of others. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/mem.h"

static struct cpu_mat *stack_of(dev_mat *m)
{
    return (struct cpu_mat *)(void *)m;
}

static void one_bytes(const dev_mat *stack, int64_t out[2])
{
    const struct cpu_mat *w = dev_cpu_mat_of(stack);
    out[0] = (int64_t)w->stride;
    out[1] = (int64_t)w->stride2;
}

static void one_pack(const dev_mat *stack, const struct weight *first, const struct weight *second,
                     int t0, int t1, struct dev_one *one)
{
    const struct cpu_mat *w = dev_cpu_mat_of(stack);
    struct mm_mat m = w->m, m2 = w->m2;
    bool two = w->stride2 > 0;
    one->scale[0] = kern_mm_scale(m.fmt, first);
    one->scale[1] = second ? kern_mm_scale(two ? m2.fmt : m.fmt, second) : 1.0f;
    m.data = one->data[0];
    m2.data = one->data[1];
    m.scale = one->scale[0];
    m.scale2 = m2.scale = one->scale[1];
    for (int t = t0; t < t1; t++) {
        kern_mm_pack_tile(&m, first, 0, t);
        if (second) kern_mm_pack_tile(two ? &m2 : &m, second, !two, t);
    }
}

static void one_get(const dev_mat *stack, int i, struct dev_one *one)
{
    const struct cpu_mat *w = dev_cpu_mat_of(stack);
    struct mm_mat m = dev_cpu_mat_at(w, i), m2 = dev_cpu_mat2_at(w, i);
    one->data[0] = m.data;
    one->data[1] = w->stride2 ? m2.data : NULL;
    one->scale[0] = m.scale;
    one->scale[1] = m.scale2;
}

static sl_status one_open(dev_mat *stack, sl_err *err)
{
    struct cpu_mat *w = stack_of(stack);
    struct cpu *c = dev_cpu_of(stack->d);
    uint8_t **at = NULL;
    size_t n = (size_t)w->n;
    if (w->at[0]) return SL_OK;
    SL_TRY(dev_cpu_mem(c, MEM_MISC, 2 * n * sizeof *at, (void **)&at, err));
    for (int i = 0; i < w->n; i++) {
        struct dev_one one;
        one_get(stack, i, &one);
        at[i] = one.data[0];
        at[n + (size_t)i] = one.data[1];
    }
    w->at[0] = at;
    w->at[1] = at + n;
    return SL_OK;
}

static void one_swap(dev_mat *stack, int i, struct dev_one *one)
{
    struct cpu_mat *w = stack_of(stack);
    struct dev_one was;
    one_get(stack, i, &was);
    for (int k = 0; k < 2; k++) {
        w->at[k][i] = one->data[k];
        w->scale[2 * i + k] = one->scale[k];
    }
    *one = was;
}

const struct dev_one_ops dev_cpu_one = {.bytes = one_bytes,
                                        .pack = one_pack,
                                        .get = one_get,
                                        .open = one_open,
                                        .swap = one_swap};
