/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of data/planner, inside the program. */
#ifndef PLAN_EMBED_H
#define PLAN_EMBED_H

#include "plan/plan.h"

enum plan_file {
    PLAN_FILE_HARDWARE,
    PLAN_FILE_MODELS,
    PLAN_FILE_ENGINES,
    PLAN_FILE_PUBLISHED,
    PLAN_FILE_HELDOUT,
    PLAN_FILE_CONSTANTS,
};

/* Bytes of one table, borrowed for ever; name is "data/planner/...". */
struct plan_bytes plan_embedded(enum plan_file f);

#endif
