/* SPDX-License-Identifier: Apache-2.0 */
/* What the tensors of a file add up to: parameters, and whether it is a small quantised model. */
#include <string.h>

#include "arch/arch.h"

#define SPARE_BYTES ((int64_t)256 << 20)
#define F32_COLS 512 /* see arch_wants_f32 */

bool arch_wants_f32(const io_model *m, const struct arch_cfg *cfg)
{
    if (cfg->d_model > F32_COLS) return false;
    for (int i = 0; i < io_n_tensor(m); i++) {
        const struct tensor *t = io_tensor(m, i);
        bool is_float = t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16;
        if (t->n_dim >= 2 && !is_float) return true;
    }
    return false;
}

/* A routed expert's tensor counts for K of E; the embedding for one row unless it is the head too;
 * the parts of a model that sees for nothing. */
void arch_count_params(const io_model *m, const struct arch_cfg *cfg, int64_t *total,
                       int64_t *active)
{
    double act = 0;
    *total = 0;
    for (int i = 0; i < io_n_tensor(m); i++) {
        const char *s = io_tensor(m, i)->name;
        int64_t n = io_tensor_params(m, i);
        struct arch_name id;
        arch_name_parse(&cfg->naming, s, &id);
        if (arch_is_beside_text(m, &id) || id.role == ROLE_EXPERT_OF) continue;
        *total += n;
        if (id.layer >= cfg->n_layer || arch_is_mtp_left(cfg, s, &id)) continue; /* MTP */
        if (id.global == GLOBAL_EMBED) {
            if (cfg->tied_head) act += (double)n;
        } else if (strstr(s, "_exps.") || strstr(s, ".experts.")) {
            act += (double)n * cfg->n_expert_used / BASE_MAX(cfg->n_expert, 1);
        } else {
            act += (double)n;
        }
    }
    *active = (int64_t)act;
}

/* Each cut is where it is nearest to the stage's share of all bytes. */
void arch_cut_layers(const int64_t *layer, int n_layer, int64_t last, int n_stage,
                     int32_t *first)
{
    int64_t all = last, sum = 0;
    int il = 0;
    for (int i = 0; i < n_layer; i++)
        all += layer[i];
    first[0] = 0;
    for (int k = 1; k < n_stage; k++) {
        int64_t goal = all / n_stage * k;
        int least = first[k - 1] + 1, most = n_layer - (n_stage - k);
        while (il < least || (il < most && sum + layer[il] / 2 <= goal))
            sum += layer[il++];
        first[k] = il;
    }
    first[n_stage] = n_layer;
}

int64_t arch_acts_bytes(int64_t weights)
{
    return weights / 16;
}

int64_t arch_beside_bytes(int64_t weights)
{
    return arch_acts_bytes(weights) + SPARE_BYTES;
}
