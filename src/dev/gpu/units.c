/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels multiply bytes for many columns: on matrix units where the device has them and
 * their sums are right, else by hand. Both give the same integers, so no result depends on it. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "dev/gpu/gpu.h"

#define TEAMS 4 /* tiles of a workgroup */
enum { A_WORDS = 16 * 8, B_WORDS = 8 * 8, SUMS = 16 * 8 };

static int dot(const uint8_t *a, const int8_t *b, int k0)
{
    int s = 0;
    for (int k = k0; k < 32; k++)
        s += a[k] * b[k];
    return s;
}

static int64_t count_wrong(const uint8_t *a, const int8_t *b, const int32_t *y, int n_tile, int k0)
{
    int64_t n = 0;
    for (int t = 0; t < n_tile; t++, a += 4 * A_WORDS, b += 4 * B_WORDS, y += SUMS)
        for (int i = 0; i < SUMS; i++)
            n += y[i] != dot(a + i / 8 * 32, b + i % 8 * 32, k0);
    return n;
}

sl_status dev_gpu_count_sums(struct gpu *c, bool units, bool half, int n_tile, int64_t *n_wrong,
                             sl_err *err)
{
    struct {
        uint64_t a, b, y;
    } k = {0};
    enum gpu_kernel id = units ? GPU_cm_sums : GPU_sums;
    uint64_t state = 7;
    void *p = NULL;
    int64_t n_a = 4 * A_WORDS * (int64_t)n_tile, n_b = 4 * B_WORDS * (int64_t)n_tile,
            n_y = 4 * SUMS * (int64_t)n_tile;
    if (half) id = units ? GPU_cm_halves : GPU_halves;
    ASSERT(n_tile % TEAMS == 0);
    SL_TRY(dev_gpu_kernel(c, id, err));
    SL_TRY(dev_gpu_carve(c, n_a, &k.a, NULL, err));
    SL_TRY(dev_gpu_carve(c, n_b, &k.b, NULL, err));
    SL_TRY(dev_gpu_carve(c, n_y, &k.y, NULL, err));
    SL_TRY(mem_alloc(MEM_SCRATCH, (size_t)(n_a + n_b + n_y), &p, err));
    uint8_t *a = p;
    for (int64_t i = 0; i < n_a + n_b; i += 4) {
        uint32_t r = (uint32_t)(rng_next(&state) >> 32);
        memcpy(a + i, &r, 4);
    }
    sl_status st = dev_gpu_put(c, k.a, a, n_a, err);
    if (!st) st = dev_gpu_put(c, k.b, a + n_a, n_b, err);
    if (!st)
        dev_gpu_launch(c, id, (const uint32_t[3]){(uint32_t)n_tile / TEAMS, 1, 1}, &k, sizeof k);
    if (!st) st = dev_gpu_get(c, a + n_a + n_b, k.y, n_y, err);
    if (!st)
        *n_wrong =
            count_wrong(a, (const int8_t *)a + n_a, (const int32_t *)(const void *)(a + n_a + n_b),
                        n_tile, half ? 16 : 0);
    mem_free(p);
    return st;
}

sl_status dev_gpu_choose_units(struct gpu *c, sl_err *err)
{
    /* compilers of software devices take minutes for kernels that gain nothing there */
    c->tiles = c->tiles || !c->lim.is_cpu;
    if (!c->lim.has_units || c->no_units) {
        snprintf(c->units_text, sizeof c->units_text, "%s: %s",
                 c->tiles ? "by hand" : "a column at a time",
                 c->no_units ? "no-matrix-units" : c->lim.units);
        return SL_OK;
    }
    for (int half = 0; half < 2; half++) {
        int64_t n_wrong = 0;
        SL_TRY(dev_gpu_count_sums(c, true, half, 16, &n_wrong, err));
        if (c->fault.units) n_wrong++;
        if (n_wrong)
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: matrix units give wrong sums on this driver (%s): --device "
                           "%s,no-matrix-units runs without",
                           c->name, c->lim.driver, c->name);
    }
    c->has_units = true;
    snprintf(c->units_text, sizeof c->units_text, "on matrix units: %s", c->lim.units);
    return SL_OK;
}
