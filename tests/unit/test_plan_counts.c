/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of chosen experts, as the planner reads them. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "plan/plan.h"

static sl_status take(struct arena *a, const char *text, struct plan_counts *c, sl_err *err)
{
    struct plan_bytes b = {"stats.json", text, strlen(text)};
    return plan_read_counts(c, a, b, err);
}

TEST(plan_counts_say_how_many_experts_a_batch_reads)
{
    sl_err err;
    struct arena a;
    struct plan_counts c;
    struct plan_model m = {.experts = 4, .topk = 1, .counts = &c};
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(take(&a,
                   "{\"experts\":4,\"used\":1,\"layers\":[{\"layer\":0,\"tokens\":8,\"counts\":"
                   "[8,0,0,0]},{\"layer\":2,\"tokens\":8,\"counts\":[2,2,2,2]}]}",
                   &c, &err));
    /* one layer has one expert for all tokens, the other is even */
    for (int n = 1; n <= 64; n *= 4)
        assert_true(fabs(plan_experts_read(&m, n) - (1 + 4 * (1 - pow(0.75, n))) / 2) < 1e-6);
    assert_true(plan_experts_read(&m, 0) == 0);
    mem_arena_fini(&a);
}

TEST(plan_counts_of_another_form_are_refused_by_field)
{
    static const char *const bad[][2] = {
        {"{}", "no file of --expert-stats"},
        {"{\"experts\":2,\"used\":3,\"layers\":[]}", "no file of --expert-stats"},
        {"{\"experts\":2,\"used\":1,\"layers\":[{\"counts\":[1]}]}",
         "layers[0]: counts of 2 experts"},
        {"{\"experts\":2,\"used\":1,\"layers\":[{\"counts\":[1,2]},{\"counts\":[1,-2]}]}",
         "layers[1]: counts[1]"},
        {"{\"experts\":2", "stats.json"},
    };
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        sl_err err = {0};
        struct arena a;
        struct plan_counts c;
        mem_arena_init(&a, MEM_MISC, 0);
        assert_int_equal(take(&a, bad[i][0], &c, &err), SL_FORMAT);
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: no %s", err.text, bad[i][1]);
        mem_arena_fini(&a);
    }
}
