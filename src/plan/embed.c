/* SPDX-License-Identifier: Apache-2.0 */
/* The data files of data/, inside the program. */
#include "plan/embed.h"

/* The assembler copies the files; PLAN_DATA is the folder, given by the build. */
#define EMBED(sym, file)                                                                           \
    __asm__(".section .rodata\n.balign 16\n.global plan_embed_" #sym "\n.hidden plan_embed_" #sym  \
            "\nplan_embed_" #sym ":\n.incbin \"" PLAN_DATA "/" file "\"\n.global plan_embed_" #sym \
            "_end\n.hidden plan_embed_" #sym "_end\nplan_embed_" #sym "_end:\n.byte 0\n.text\n");  \
    extern const char plan_embed_##sym[], plan_embed_##sym##_end[]

EMBED(hardware, "hardware.csv");
EMBED(models, "models.csv");
EMBED(engines, "engines.csv");
EMBED(published, "published.csv");
EMBED(heldout, "heldout.csv");
EMBED(constants, "constants.json");

struct plan_bytes plan_embedded(enum plan_file f)
{
#define FILE_OF(sym, file)                                                                         \
    ((struct plan_bytes){"data/planner/" file, plan_embed_##sym,                                   \
                         (size_t)(plan_embed_##sym##_end - plan_embed_##sym)})
    switch (f) {
    case PLAN_FILE_HARDWARE:
        return FILE_OF(hardware, "hardware.csv");
    case PLAN_FILE_MODELS:
        return FILE_OF(models, "models.csv");
    case PLAN_FILE_ENGINES:
        return FILE_OF(engines, "engines.csv");
    case PLAN_FILE_PUBLISHED:
        return FILE_OF(published, "published.csv");
    case PLAN_FILE_HELDOUT:
        return FILE_OF(heldout, "heldout.csv");
    case PLAN_FILE_CONSTANTS:
        break;
    }
    return FILE_OF(constants, "constants.json");
}
