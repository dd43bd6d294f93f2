/* SPDX-License-Identifier: Apache-2.0 */
/* What the planner says fits on a CPU is what the engine would take. */
#include "test.h"

#include "arch/arch.h"
#include "plan/calib.h"
#include "plan/plan.h"
#include "plan_load.h"

TEST(plan_memory_on_a_cpu_follows_the_engines_formula)
{
    static const double gib[] = {8, 24, 64};
    load();
    const struct plan_model *m = plan_find_model(&tables, "Qwen3-30B-A3B");
    assert_non_null(m);
    for (int i = 0; i < 3; i++) {
        struct plan_host host = {.mem = gib[i] * (1 << 30)};
        struct plan_device dev = {.mem = host.mem};
        struct plan_case c = {.model = m,
                              .dev = &dev,
                              .host = &host,
                              .kv_bits = 16,
                              .fmt = {.attn = 4.5, .expert = 4.5, .dense = 4.5, .head = 4.5},
                              .lay = {.tp = 1, .dp = 1, .pp = 1}};
        struct plan_memory out;
        c.k.mode = PLAN_MODE_CPU;
        plan_memory(&c, 1, 4096, &out);
        int64_t weights = (int64_t)out.weights, limit = (int64_t)out.limit;
        int64_t room = limit - weights - arch_beside_bytes(weights); /* as engine.c */
        int64_t n = room > 0 ? room / (int64_t)out.seq : 0;
        assert_true(weights > 0 && out.seq > 0);
        assert_int_equal((int64_t)out.free_seq, n);
        assert_int_equal(out.fits, n >= 1);
    }
}
