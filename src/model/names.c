/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor names by role. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_internal.h"

#define MAX_NAME 256

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

/* "PREFIX%dREST": the number; false when s does not begin so. */
static bool number_after(const char *s, const char *prefix, int *n, const char **rest)
{
    size_t k = strlen(prefix);
    char *end;
    if (strncmp(s, prefix, k) != 0 || s[k] < '0' || s[k] > '9') return false;
    long v = strtol(s + k, &end, 10);
    if (v > 1000000) return false;
    *n = (int)v;
    *rest = end;
    return true;
}

/* s is PART.SUFFIX. */
static bool is_part(const char *s, const char *part, char *suffix, size_t n_suffix)
{
    size_t k = strlen(part);
    if (k == 0 || strncmp(s, part, k) != 0 || s[k] != '.' || strlen(s + k + 1) >= n_suffix)
        return false;
    snprintf(suffix, n_suffix, "%s", s + k + 1);
    return true;
}

/* The expert's number is cut out of an HF name: "mlp.experts.7.up_proj.weight" ->
 * "mlp.experts.%d.up_proj.weight". */
static const char *cut_expert(const char *s, char *buf, size_t n, int *expert)
{
    const char *rest = NULL;
    if (!number_after(s, "mlp.experts.", expert, &rest)) return s;
    snprintf(buf, n, "mlp.experts.%%d%s", rest);
    return buf;
}

void model_name_parse(enum io_kind kind, const char *name, struct model_name *id)
{
    char cut[MAX_NAME];
    const char *rest = NULL;
    *id = (struct model_name){.global = -1, .role = -1, .layer = -1, .expert = -1};
    for (int g = 0; g < 3; g++)
        if (strcmp(name, model_global_name(kind, (enum model_global)g)) == 0) {
            id->global = g;
            snprintf(id->suffix, sizeof id->suffix, "weight");
            return;
        }
    if (!number_after(name, kind == IO_GGUF ? "blk." : "model.layers.", &id->layer, &rest) ||
        *rest != '.')
        return;
    rest++;
    if (kind == IO_HF) rest = cut_expert(rest, cut, sizeof cut, &id->expert);
    if (kind == IO_GGUF && strcmp(rest, roles[ROLE_ROUTER_BIAS].gguf) == 0)
        rest = "exp_probs_b.bias"; /* some files leave it out */
    for (int r = 0; r < N_ROLE; r++) {
        if (!is_part(rest, kind == IO_GGUF ? roles[r].gguf : roles[r].hf, id->suffix,
                     sizeof id->suffix))
            continue;
        if (kind == IO_HF && r == ROLE_ROUTER && strcmp(id->suffix, "e_score_correction_bias") == 0)
            r = ROLE_ROUTER_BIAS;
        if (r == ROLE_ROUTER_BIAS) snprintf(id->suffix, sizeof id->suffix, "bias");
        id->role = r;
        return;
    }
    id->suffix[0] = 0;
}
