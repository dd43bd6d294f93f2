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

/* Drafts follow each other in a text, and read fewer experts than as many sequences do. */
TEST(plan_counts_of_tokens_in_a_row_make_drafts_cheaper)
{
    sl_err err;
    struct arena a;
    struct plan_counts c;
    struct plan_model m = {.experts = 8, .topk = 2, .counts = &c};
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(take(&a,
                   "{\"experts\":8,\"used\":2,\"layers\":[{\"counts\":[1,1,1,1,1,1,1,1]}],"
                   "\"in_row\":[2,2.5,4.625]}",
                   &c, &err));
    assert_true(plan_counts_apart(&c, 1) == 1);
    /* 8 (1 - 0.75^t) = 2.5 */
    assert_true(fabs(plan_counts_apart(&c, 2) - log(5.5 / 8) / log(0.75)) < 1e-6);
    assert_true(fabs(plan_experts_read(&m, plan_counts_apart(&c, 2)) - 2.5) < 1e-6);
    assert_true(fabs(plan_counts_apart(&c, 3) - 3) < 1e-6); /* as if they knew nothing */
    assert_true(plan_counts_apart(&c, 4) == 4);             /* not counted */
    ASSERT_OK(take(&a, "{\"experts\":8,\"used\":2,\"layers\":[{\"counts\":[1,1,1,1,1,1,1,1]}]}", &c,
                   &err));
    assert_true(plan_counts_apart(&c, 2) == 2);
    mem_arena_fini(&a);
}

/* The planner's step of two tokens of each sequence takes them. */
TEST(plan_steps_with_drafts_read_what_tokens_in_a_row_read)
{
    struct plan_counts c = {
        .n_layer = 1, .n_expert = 64, .n_used = 4, .n_row = 2, .in_row = {4, 4.5}};
    float share[64];
    for (int i = 0; i < 64; i++)
        share[i] = 4.0f / 64;
    c.share = share;
    struct plan_model m = {.experts = 64,
                           .topk = 4,
                           .layers = 2,
                           .moe_layers = 2,
                           .p_expert = 1e6,
                           .p_attn = 1e6,
                           .active = 1e8,
                           .counts = &c};
    struct plan_case k = {.model = &m, .fmt = {.expert = 4, .attn = 8, .head = 8}, .kv_bits = 16};
    struct plan_time one, two, far;
    k.k.mode = PLAN_MODE_CPU;
    k.k.v[PLAN_CPU_GBPS] = 10;
    k.k.v[PLAN_CPU_TOPS] = 1;
    k.k.v[PLAN_ETA_KV] = k.k.v[PLAN_ETA_A] = 1;
    plan_step(&k, 1, 100, &one);
    k.lay.mtp = 1;
    plan_step(&k, 1, 100, &two);
    c.n_row = 0;
    plan_step(&k, 1, 100, &far);
    assert_true(fabs(two.experts / one.experts - 4.5 / 4) < 1e-4);
    assert_true(fabs(far.experts / one.experts - (1 - pow(0.9375, 2)) * 16) < 1e-4);
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
        {"{\"experts\":2,\"used\":1,\"layers\":[{\"counts\":[1,2]}],\"in_row\":[1,0.5]}",
         "in_row[1]"},
        {"{\"experts\":2,\"used\":1,\"layers\":[{\"counts\":[1,2]}],\"in_row\":[3]}", "in_row[0]"},
        {"{\"experts\":2,\"used\":1,\"layers\":[{\"counts\":[1,2]}],\"in_row\":5}", "in_row: is"},
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

/* Of a bench with drafts the row with the most places counts, and of those the one of most drafts.
 */
TEST(plan_drafts_are_those_of_the_longest_rows)
{
    static const char text[] =
        "[{\"test\":\"draft\",\"drafts\":0,\"draft\":null},{\"drafts\":1,\"draft\":"
        "{\"drafted\":900,\"accepted_by_position\":[0.9]}},{\"drafts\":2,\"draft\":{\"drafted\":90,"
        "\"accepted_by_position\":[0.8,0.5]}},{\"drafts\":null,\"draft\":{\"drafted\":20,"
        "\"accepted_by_position\":[0.7,0.6]}}]";
    sl_err err;
    struct arena a;
    struct plan_drafts d;
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(plan_read_drafts(&d, &a, (struct plan_bytes){"b.json", text, sizeof text - 1}, &err));
    assert_true(d.n == 2 && d.n_draft == 90);
    assert_true(plan_drafts_right(&d, 0) == 0);
    assert_true(fabs(plan_drafts_right(&d, 1) - 0.8) < 1e-9);
    assert_true(fabs(plan_drafts_right(&d, 2) - 1.2) < 1e-9);
    assert_true(fabs(plan_drafts_right(&d, 3) - 1.4) < 1e-9); /* as the second */
    mem_arena_fini(&a);
}
