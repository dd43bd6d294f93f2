/* SPDX-License-Identifier: Apache-2.0 */
/* Weight formats: bits by tensor class. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/plan_internal.h"

/* Sources: AWQ g128 with zero points 4 + 20/128; NVFP4 16-wide blocks with an FP8 scale; MXFP4
 * 32-wide with an 8-bit exponent; FP8 checkpoints keep head and embedding in BF16; W4A8 keeps
 * everything but routed experts in INT8. Averages over all parameters where the published size is
 * one. */
static const struct plan_format FORMATS[] = {
    /* name   expert  attn   dense  head   cpu  act            soft   fp */
    {"bf16", 16, 16, 16, 16, 0, PLAN_NUM_BF16, false, false},
    {"fp8", 8.002, 8.002, 8.002, 16, 0, PLAN_NUM_FP8, false, true},
    {"int8", 8, 8, 8, 8, 0, PLAN_NUM_INT8, false, false},
    {"w8a16", 8, 8, 8, 16, 0, PLAN_NUM_BF16, false, false},
    {"w4a8", 4, 8, 8, 8, 0, PLAN_NUM_INT8, false, false},
    {"awq", 4.156, 4.156, 4.156, 4.156, 0, PLAN_NUM_BF16, false, false},
    {"nvfp4", 4.5, 4.5, 4.5, 4.5, 0, PLAN_NUM_FP4, false, true},
    {"mxfp4", 4.25, 8, 8, 16, 0, PLAN_NUM_FP8, false, true},
    {"q4", 4.5, 4.5, 4.5, 6.56, 0, PLAN_NUM_BF16, false, false},
    {"q8", 8.5, 8.5, 8.5, 8.5, 0, PLAN_NUM_BF16, false, false},
};

bool plan_format_find(const char *name, struct plan_format *f)
{
    for (size_t i = 0; i < sizeof FORMATS / sizeof FORMATS[0]; i++) {
        if (strcasecmp(name, FORMATS[i].name) == 0) {
            *f = FORMATS[i];
            return true;
        }
    }
    return false;
}

const char *plan_format_names(void)
{
    return "bf16 fp8 int8 w8a16 w4a8 awq nvfp4 mxfp4 q4 q8";
}

double plan_weight_bytes(const struct plan_model *m, const struct plan_format *f, bool with_mtp)
{
    double experts = m->moe_layers * m->experts * m->p_expert;
    double head = m->p_embed + m->p_head;
    double attn = m->layers * (m->p_attn + m->p_repl);
    double dense = m->total - experts - head - attn;
    double bytes = (experts * f->expert + head * f->head + attn * f->attn + dense * f->dense) / 8;
    if (with_mtp) {
        double own = plan_mtp_tables(m);
        bytes += ((m->p_mtp - own) * f->expert + own * f->head) / 8;
    }
    return bytes;
}
