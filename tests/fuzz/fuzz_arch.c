/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: plan. Property: any config.json, and any metadata of a GGUF file, is a configuration whose
 * parts fit together, or is refused with a text; and the planner makes a model of it, or says which
 * field it can not use. */
#include <math.h>

#include "arch/arch.h"
#include "fuzz_io.h"
#include "plan/plan.h"

static void check_layers(const struct arch_cfg *c)
{
    for (int i = 0; i < c->n_layer + c->n_mtp; i++) {
        const struct arch_layer *l = &c->layer[i];
        if (l->mixer != (c->kv_lora ? ARCH_MLA : ARCH_GQA) || l->n_window < 0) __builtin_trap();
        if (l->ffn == ARCH_MOE && !c->n_expert) __builtin_trap();
    }
}

static void check(const struct arch_cfg *c)
{
    struct plan_model m = {0};
    char why[200];
    if (c->n_layer < 1 || c->n_mtp < 0 || c->d_model < 1 || c->n_head < 1 || c->n_head_kv < 1 ||
        c->n_head % c->n_head_kv || c->n_rot < 2 || c->n_rot % 2 || c->d_head < 1)
        __builtin_trap();
    if (c->n_expert && (c->n_expert_used < 1 || c->n_expert_used > c->n_expert ||
                        c->d_ff_expert < 1 || c->n_expert % c->n_group))
        __builtin_trap();
    if (!isfinite(c->attn_scale) || !isfinite(c->rope_theta) || !isfinite(c->yarn_mscale))
        __builtin_trap();
    check_layers(c);
    plan_model_from_arch(&m, c);
    if (plan_model_finish(&m, why, sizeof why) && !(m.total > 0 && m.active > 0)) __builtin_trap();
}

static void read_gguf(const uint8_t *data, size_t size)
{
    struct arena a;
    struct arch_cfg c;
    const char *text = NULL;
    int64_t all, active;
    sl_err err = {0};
    io_model *m = fuzz_open("fuzz.gguf", data, size);
    if (!m) return;
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = arch_cfg_read(m, &a, &c, &err);
    if (st && !err.text[0]) __builtin_trap();
    if (!st) {
        check(&c);
        arch_count_params(m, &c, &all, &active);
        st = arch_unused(m, &c, &a, &text, &err);
        if (st && !err.text[0]) __builtin_trap();
    }
    mem_arena_fini(&a);
    io_close(m);
}

static void read_config(const char *text, size_t n)
{
    struct arena a;
    struct arch_cfg c;
    struct plan_model m;
    const struct json *o = NULL;
    sl_err err = {0};
    mem_arena_init(&a, MEM_MISC, 0);
    if (text_json_parse(&a, "config.json", text, n, &o, &err) == SL_OK) {
        sl_status st = arch_cfg_read_json(o, &a, &c, &err);
        if (st && !err.text[0]) __builtin_trap();
        if (!st) check(&c);
        struct plan_bytes b = {"config.json", text, n};
        st = plan_model_from_config(&m, &a, "x", b, &err);
        if (st && !err.text[0]) __builtin_trap();
        if (!st && !(m.total > 0)) __builtin_trap();
    }
    mem_arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
        read_gguf(data, size);
    else
        read_config((const char *)data, size);
    return 0;
}
