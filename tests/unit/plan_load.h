/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded tables, read once. */
#ifndef TEST_PLAN_LOAD_H
#define TEST_PLAN_LOAD_H

#include "plan/embed.h"
#include "plan/store.h"
#include "test.h"

static struct arena arena;
static struct plan_tables tables;
static struct plan_book book;

static inline void load(void)
{
    sl_err err;
    if (tables.n_model > 0) return;
    mem_arena_init(&arena, MEM_MISC, 0);
    ASSERT_OK(plan_read_models(&tables, &arena, plan_embedded(PLAN_FILE_MODELS), &err));
    ASSERT_OK(plan_read_hardware(&tables, &arena, plan_embedded(PLAN_FILE_HARDWARE), &err));
    ASSERT_OK(plan_read_engines(&tables, &arena, plan_embedded(PLAN_FILE_ENGINES), &err));
    ASSERT_OK(plan_book_read(&book, &arena, plan_embedded(PLAN_FILE_CONSTANTS), &err));
}

#endif
