/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor names by role. */
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"

static const struct {
    const char *gguf, *hf;
} roles[] = {
#define X(role, gguf, hf) {gguf, hf},
    MODEL_ROLE_LIST(X)
#undef X
};

void model_tensor_name(enum io_kind kind, enum model_role role, int layer, int expert,
                       const char *suffix, char *buf, int n)
{
    char part[64];
    if (role == ROLE_ROUTER_BIAS) suffix = kind == IO_GGUF ? "bias" : "e_score_correction_bias";
    if (kind == IO_GGUF) {
        snprintf(buf, (size_t)n, "blk.%d.%s.%s", layer, roles[role].gguf, suffix);
        return;
    }
    const char *hole = strstr(roles[role].hf, "%d");
    if (hole)
        snprintf(part, sizeof part, "%.*s%d%s", (int)(hole - roles[role].hf), roles[role].hf, expert, hole + 2);
    else
        snprintf(part, sizeof part, "%s", roles[role].hf);
    snprintf(buf, (size_t)n, "model.layers.%d.%s.%s", layer, part, suffix);
}

const char *model_global_name(enum io_kind kind, enum model_global g)
{
    static const char *const names[2][3] = {
        {"token_embd.weight", "output_norm.weight", "output.weight"},
        {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"},
    };
    return names[kind == IO_HF][g];
}
