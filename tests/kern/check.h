/* SPDX-License-Identifier: Apache-2.0 */
/* The harness of the kernel checks (docs/house.md): memory that ends at a guard page, faults turned
 * into failures, seeded numbers. A row of kern_list.h needs a check_<op> here: it compares one
 * variant with the reference. */
#ifndef CHECK_H
#define CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "kern/kern.h"

struct check {
    uint64_t seed, rng; /* rng: the stream of this row */
    int n_fail, n_case;
    const char *op, *isa;
};

/* n bytes ending at a PROT_NONE page, filled with 0xff (NaN as floats); start is aligned to 64 when
 * n is a multiple of 64. Freed after the row. */
void *check_alloc(struct check *c, size_t n);
/* Free what was allocated since the row began. */
void check_free_all(void);
void check_fail(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint32_t check_rand(struct check *c, uint32_t below);
float check_randf(struct check *c); /* -1 .. 1 */

/* The table with everything from the reference, to put one variant into. */
void check_ref_table(struct kern *k);

typedef void (*check_fn)(void);
#define X(op, ret, params) void check_##op(struct check *c, ret(*variant) params);
KERN_LIST(X)
#undef X

/* Properties that do not belong to a row: packing, activations, independence of the company. */
void check_pack(struct check *c);
void check_alone(struct check *c);
void check_outliers(struct check *c);
void check_parts(struct check *c, int n_group); /* at least so many of each form */

int bench_main(const char *filter, int n_thread);

#endif
