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

#endif
