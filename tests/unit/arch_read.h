/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters of a config.json that a test writes down. */
#ifndef ARCH_READ_H
#define ARCH_READ_H

#include <string.h>

#include "arch/arch.h"
#include "test.h"

struct read {
    struct arena arena;
    struct arch_cfg cfg;
    sl_status st;
    sl_err err;
};

/* No file is there: what only tensors say is not known. */
static inline void read_config(const char *text, struct read *r)
{
    const struct json *config = NULL;
    sl_err err = {0};
    memset(r, 0, sizeof *r);
    mem_arena_init(&r->arena, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&r->arena, "config", text, strlen(text), &config, &err));
    r->st = arch_cfg_read_json(config, &r->arena, &r->cfg, &r->err);
}

/* It is refused in words that have text in them. */
static inline void refuse_config(const char *config, const char *text)
{
    struct read r;
    read_config(config, &r);
    if (r.st == SL_OK || !strstr(r.err.text, text)) fail_msg("%s: \"%s\"", text, r.err.text);
    mem_arena_fini(&r.arena);
}

/* The weight of that role in layer 3 has the name, and the name is read as what is returned. */
static inline struct arch_name check_name(const struct arch_naming *by, enum arch_role role,
                                          const char *name)
{
    struct arch_name id;
    char buf[128];
    arch_tensor_name(by, role, 3, "weight", buf, sizeof buf);
    assert_string_equal(buf, name);
    arch_name_parse(by, buf, &id);
    assert_int_equal(id.role, role);
    assert_int_equal(id.layer, 3);
    return id;
}

#endif
