/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of room grammar, and its seam to the sampler. */
#include "engine/engine_internal.h"

sl_status sl_grammar_compile(const sl_model *m, sl_grammar_kind kind, const char *text, size_t n,
                             sl_grammar **out, sl_err *err)
{
    (void)kind, (void)text, (void)n;
    *out = NULL;
    return SL_FAIL(err, UNSUPPORTED, "%s: this build of sluice has no grammars", m->name);
}

void sl_grammar_unref(sl_grammar *g)
{
    (void)g;
}

sl_grammar *engine_grammar_ref(sl_grammar *g)
{
    return g;
}

sl_status engine_grammar_open(sl_grammar *g, struct engine_grammar_state **out, sl_err *err)
{
    *out = NULL;
    if (!g) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "grammar: this build of sluice has no grammars");
}

void engine_grammar_close(struct engine_grammar_state *s)
{
    (void)s;
}

void engine_grammar_mask(struct engine_grammar_state *s, uint32_t *bits)
{
    (void)s, (void)bits;
}

bool engine_grammar_push(struct engine_grammar_state *s, int32_t token)
{
    (void)s, (void)token;
    return true;
}
