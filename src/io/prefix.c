/* SPDX-License-Identifier: Apache-2.0 */
/* Names with words before them that a tool left there (torch.compile's _orig_mod., DataParallel's
 * module., the language_model. of a model that sees), or without the "model." of all published
 * checkpoints. They become the published names: the weights are the same, and no two of them can
 * meet, which is checked when they are listed. */
#include <stdio.h>
#include <string.h>

#include "io/io_internal.h"

static const char embed[] = "embed_tokens.weight";

/* Is p[0 .. n) made of such words, each with its point? */
static bool is_known(const char *p, size_t n)
{
    static const char *const word[] = {"_orig_mod.", "module.", "language_model.", "model."};
    while (n > 0) {
        size_t k = 0;
        for (int i = 0; i < BASE_COUNT_OF(word) && !k; i++)
            if (strlen(word[i]) <= n && strncmp(p, word[i], strlen(word[i])) == 0)
                k = strlen(word[i]);
        if (!k) return false;
        p += k;
        n -= k;
    }
    return true;
}

/* What stands before the embedding's own name; NULL: it has its usual name, or there is none, or
 * more than one. Layers of MTP have one of their own. */
static const char *find_prefix(const io_model *m, size_t *n)
{
    const char *found = NULL;
    if (io_find(m, "model.embed_tokens.weight")) return NULL;
    for (int i = 0; i < m->n_tensor; i++) {
        const char *name = m->tensor[i].name;
        size_t len = strlen(name), k = strlen(embed);
        if (len < k || strcmp(name + len - k, embed) != 0 || strstr(name, "layers.")) continue;
        if (strncmp(name, "mtp.", 4) == 0) continue;
        if (found || !is_known(name, len - k)) return NULL;
        found = name;
        *n = len - k;
    }
    return found;
}

/* PREFIX becomes "model."; of the head and of MTP layers, which stand outside of the model, all of
 * it goes. */
static sl_status rename_one(io_model *m, struct tensor *t, const char *prefix, size_t n,
                            sl_err *err)
{
    static const char *const inside[] = {"embed_tokens.", "layers.", "norm.", "rotary_emb."};
    static const char *const outside[] = {"lm_head.", "mtp."};
    char name[512], *copy = NULL;
    size_t outer = n >= 6 && strncmp(prefix + n - 6, "model.", 6) == 0 ? n - 6 : n;
    const char *rest = t->name + n;
    int k = 0;
    if (strncmp(t->name, prefix, n) == 0)
        for (int i = 0; i < BASE_COUNT_OF(inside) && !k; i++)
            if (strncmp(rest, inside[i], strlen(inside[i])) == 0)
                k = snprintf(name, sizeof name, "model.%s", rest);
    if (!k && outer && strncmp(t->name, prefix, outer) == 0)
        for (int i = 0; i < BASE_COUNT_OF(outside) && !k; i++)
            if (strncmp(t->name + outer, outside[i], strlen(outside[i])) == 0)
                k = snprintf(name, sizeof name, "%s", t->name + outer);
    if (!k) return SL_OK;
    if ((size_t)k >= sizeof name)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s: its name is too long", io_short(m->path),
                       t->name);
    SL_TRY(mem_arena_str(&m->arena, name, (size_t)k, &copy, err));
    t->name = copy;
    return SL_OK;
}

sl_status io_plain_names(io_model *m, sl_err *err)
{
    size_t n = 0;
    const char *prefix = find_prefix(m, &n);
    if (!prefix) return SL_OK;
    for (int i = 0; i < m->n_tensor; i++)
        SL_TRY(rename_one(m, &m->tensor[i], prefix, n, err));
    return io_index_tensors(m, err);
}
