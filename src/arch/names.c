/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor names by role, and roles by name. */
#include "arch/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "base/str.h"

#define MAX_NAME 256

static const char selection_bias[] = "e_score_correction_bias"; /* HF's suffix */

static const struct {
    const char *gguf, *hf;
} roles[] = {
#define X(role, gguf, hf, ...) {gguf, hf},
    ARCH_ROLE_LIST(X) PER_HEAD_LIST(X) ARCH_MORE_ROLE_LIST(X)
#undef X
};

/* The name that a list has; NULL: none. */
static const char *alias_of(const struct arch_alias *a, enum io_kind kind, enum arch_role role)
{
    for (; a && a->role != N_ROLE; a++) {
        const char *name = kind == IO_GGUF ? a->gguf : a->hf;
        if (a->role == role && name) return name;
    }
    return NULL;
}

const char *arch_role_name(const struct arch_naming *by, enum arch_role role)
{
    const char *name = alias_of(by->alias, by->kind, role);
    return name ? name : by->kind == IO_GGUF ? roles[role].gguf : roles[role].hf;
}

const char *arch_role_name_at(const struct arch_naming *by, enum arch_role role, int layer)
{
    bool delta = layer >= 0 && layer < by->n_layer && by->layer[layer].mixer == ARCH_DELTA;
    const char *name = delta ? alias_of(by->in_delta, by->kind, role) : NULL;
    return name ? name : arch_role_name(by, role);
}

/* The suffix of the bias that chooses. */
static const char *selects(const struct arch_naming *by)
{
    return by->kind == IO_GGUF ? "bias" : by->selects ? by->selects : selection_bias;
}

/* Has the layer names of its own (mtp_from)? */
static bool is_mtp(const struct arch_naming *by, int layer)
{
    return by->kind == IO_HF && by->mtp_from && layer >= by->mtp_from;
}

/* What an MTP layer has beside a layer's, where that is elsewhere. */
static bool is_beside_layer(const struct arch_naming *by, int role)
{
    return !by->bare && role >= ROLE_MTP_EH && role <= ROLE_MTP_HEAD_NORM;
}

/* What is before the number of an MTP layer with names of its own. */
static const char *mtp_layers(const struct arch_naming *by)
{
    return by->bare ? "mtp" : "mtp.layers";
}

/* What comes before the number of a layer that is no MTP layer with names of its own. */
static const char *layers_of(const struct arch_naming *by)
{
    return by->kind == IO_GGUF ? "blk" : by->bare ? "layers" : "model.layers";
}

/* What comes before the role's name, with its point. */
static void put_head(const struct arch_naming *by, const struct arch_name *id, char *buf, size_t n)
{
    bool mtp = is_mtp(by, id->layer);
    const char *layer = mtp ? mtp_layers(by) : layers_of(by);
    if (mtp && is_beside_layer(by, id->role))
        snprintf(buf, n, "mtp.");
    else
        snprintf(buf, n, "%s.%d.", layer, mtp ? id->layer - by->mtp_from : id->layer);
}

void arch_name_put(const struct arch_naming *by, const struct arch_name *id, char *buf, int n)
{
    char part[64], head[32];
    enum arch_role role = (enum arch_role)id->role;
    const char *name = arch_role_name_at(by, role, id->layer), *suffix = id->suffix;
    if (role == ROLE_ROUTER_BIAS) suffix = selects(by);
    const char *hole = strstr(name, "%d");
    put_head(by, id, head, sizeof head);
    if (hole)
        snprintf(part, sizeof part, "%.*s%d%s", (int)(hole - name), name, id->expert, hole + 2);
    else
        snprintf(part, sizeof part, "%s", name);
    if (str_ends(part, ".")) {
        snprintf(buf, (size_t)n, "%s%.*s", head, (int)strlen(part) - 1, part);
        return;
    }
    snprintf(buf, (size_t)n, "%s%s.%s", head, part, suffix);
}

void arch_tensor_name(const struct arch_naming *by, enum arch_role role, int layer,
                      const char *suffix, char *buf, int n)
{
    struct arch_name id = {.global = -1, .role = (int)role, .layer = layer, .expert = 0};
    snprintf(id.suffix, sizeof id.suffix, "%s", suffix);
    arch_name_put(by, &id, buf, n);
}

const char *arch_global_name(const struct arch_naming *by, enum arch_global g)
{
    static const char *const names[3][N_GLOBAL] = {
        {"token_embd.weight", "output_norm.weight", "output.weight", "output_hc_fn.weight",
         "output_hc_base.weight", "output_hc_scale.weight"},
        {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.hc_head.hc_fn",
         "model.hc_head.hc_base", "model.hc_head.hc_scale"},
        {"embed.weight", "norm.weight", "head.weight", "hc_head_fn", "hc_head_base",
         "hc_head_scale"},
    };
    if (by->kind == IO_HF && g == GLOBAL_EMBED && by->embed) return by->embed;
    return names[by->kind == IO_HF ? 1 + by->bare : 0][g];
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

/* s is PART.SUFFIX, or all of a PART that has none. */
static bool is_part(const char *s, const char *part, char *suffix, size_t n_suffix)
{
    size_t k = strlen(part);
    if (k && part[k - 1] == '.' && strlen(s) == k - 1 && strncmp(s, part, k - 1) == 0) {
        snprintf(suffix, n_suffix, "weight");
        return true;
    }
    if (k == 0 || strncmp(s, part, k) != 0 || s[k] != '.' || strlen(s + k + 1) >= n_suffix)
        return false;
    snprintf(suffix, n_suffix, "%s", s + k + 1);
    return true;
}

/* The expert's number is cut out of an HF name: "mlp.experts.7.up_proj.weight" ->
 * "mlp.experts.%d.up_proj.weight". */
static const char *cut_expert(const char *s, char *buf, size_t n, int *expert)
{
    static const char word[] = ".experts.";
    const char *at = strstr(s, word), *rest = NULL;
    if (strncmp(s, word + 1, sizeof word - 2) == 0) { /* of no module */
        if (!number_after(s, word + 1, expert, &rest)) return s;
        snprintf(buf, n, "%s%%d%s", word + 1, rest);
        return buf;
    }
    if (!at || !number_after(at, word, expert, &rest)) return s;
    snprintf(buf, n, "%.*s%s%%d%s", (int)(at - s), s, word, rest);
    return buf;
}

/* The router and its selection bias may have one name, and differ in the suffix; or the latter has
 * a name of its own. */
static bool is_suffix_of(const struct arch_naming *by, int role, const char *suffix)
{
    if (str_ends(arch_role_name(by, ROLE_ROUTER_BIAS), ".")) return true;
    if (by->kind == IO_GGUF || (role != ROLE_ROUTER && role != ROLE_ROUTER_BIAS)) return true;
    return (strcmp(suffix, selects(by)) == 0) == (role == ROLE_ROUTER_BIAS);
}

/* The layer that a name begins with, and what comes after that with its point before it. beside: it
 * is what an MTP layer has beside a layer's. */
static bool cut_layer(const struct arch_naming *by, const char *name, struct arch_name *id,
                      const char **rest, bool *beside)
{
    char head[16];
    *beside = false;
    if (!is_mtp(by, by->mtp_from) || strncmp(name, "mtp.", 4) != 0) {
        snprintf(head, sizeof head, "%s.", layers_of(by));
        if (!number_after(name, head, &id->layer, rest)) return false;
        return **rest == '.' && !is_mtp(by, id->layer);
    }
    snprintf(head, sizeof head, "%s.", mtp_layers(by));
    *beside = !number_after(name, head, &id->layer, rest);
    if (*beside && by->bare) return false;
    if (*beside) {
        id->layer = 0;
        *rest = name + 3;
    }
    id->layer += by->mtp_from;
    return **rest == '.';
}

/* The role that has the name, and the suffix; -1 = none. A name without a suffix comes before one
 * that the same word is a suffix of. */
static int find_role(const struct arch_naming *by, const char *name, int layer, bool beside,
                     char *suffix, size_t n_suffix)
{
    for (int k = 0; k < 2 * N_ROLE; k++) {
        int r = k % N_ROLE;
        const char *part = arch_role_name_at(by, (enum arch_role)r, layer);
        if (str_ends(part, ".") != (k < N_ROLE) || !is_part(name, part, suffix, n_suffix) ||
            !is_suffix_of(by, r, suffix) ||
            (is_mtp(by, by->mtp_from) && is_beside_layer(by, r) != beside))
            continue;
        return r;
    }
    return -1;
}

void arch_name_parse(const struct arch_naming *by, const char *name, struct arch_name *id)
{
    char cut[MAX_NAME];
    const char *rest = NULL;
    bool gguf = by->kind == IO_GGUF, beside;
    *id = (struct arch_name){.global = -1, .role = -1, .layer = -1, .expert = -1};
    for (int g = 0; g < N_GLOBAL; g++)
        if (strcmp(name, arch_global_name(by, (enum arch_global)g)) == 0) {
            id->global = g;
            snprintf(id->suffix, sizeof id->suffix, "weight");
            return;
        }
    if (!cut_layer(by, name, id, &rest, &beside)) return;
    rest++;
    if (!gguf) rest = cut_expert(rest, cut, sizeof cut, &id->expert);
    if (gguf && strcmp(rest, arch_role_name(by, ROLE_ROUTER_BIAS)) == 0)
        rest = "exp_probs_b.bias"; /* some files leave it out */
    id->role = find_role(by, rest, id->layer, beside, id->suffix, sizeof id->suffix);
    if (id->role < 0) id->suffix[0] = 0;
    if (id->role == ROLE_ROUTER_BIAS) snprintf(id->suffix, sizeof id->suffix, "bias");
}
