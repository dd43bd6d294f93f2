/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of prompts under way between their pieces: materialised keys and values (MLA,
 * keep.c). Room-internal. */
#ifndef DEV_CPU_KEEP_H
#define DEV_CPU_KEEP_H

#include "dev/dev_internal.h"

struct cpu;

#define CPU_KEEP_MAX 8
struct cpu_kept {
    uint64_t id;    /* 0 = free */
    uint64_t tick;  /* when a step continued it last */
    bool last;      /* that was its last piece */
    int32_t *page;  /* [n_page] of spans 0, 1, ... */
    int32_t *valid; /* [n_layer] positions that are there */
    int n_page;
};
struct cpu_keep {
    uint8_t *base; /* [n_page] pages of [L][H] keys [SPAN][width], values [SPAN][width of v] */
    uint8_t *wide; /* [L][H] W_kb and W_vb as bf16, or NULL */
    const dev_mat **wide_of; /* [L] of which W_kb; NULL = not yet */
    size_t elem;             /* bytes of a key's or value's number: f32 or bf16 */
    size_t page_bytes, head_bytes, wide_bytes;
    int32_t *free_page;
    int n_page, n_free;
    uint64_t tick;
    struct cpu_kept of[CPU_KEEP_MAX];
};
int64_t dev_cpu_keep_bytes(const dev *d, const struct dev_shapes *p);
/* Memory of it, where there is room. Errors: NOMEM. */
sl_status dev_cpu_keep_init(struct cpu *c, sl_err *err) BASE_MUST_USE;
/* Once a step, before its first layer, when seq_of and expand are there. */
void dev_cpu_keep_step(struct cpu *c, const struct dev_step *b);
/* Where one head's keys, and after them values, of a span are kept, or NULL. */
void *dev_cpu_keep_span(const struct cpu *c, const struct cpu_kept *e, int layer, int head,
                        int span);
/* Where one head's widened weights are kept, or NULL. */
uint16_t *dev_cpu_keep_wide(const struct cpu *c, int layer, int head, const dev_mat *w_kb);
/* True: the caller makes the widened weights of that layer now, which are then kept. */
bool dev_cpu_keep_claim(struct cpu *c, int layer, const dev_mat *w_kb);

#endif
