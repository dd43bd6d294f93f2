/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in until the interpreter lands (then this file goes): no template is run. */
#include "text/tmpl.h"

sl_status text_tmpl_open(const char *src, size_t n, text_tmpl **out, sl_err *err)
{
    (void)src;
    (void)n;
    (void)err;
    *out = NULL;
    return SL_OK;
}

void text_tmpl_close(text_tmpl *t)
{
    (void)t;
}

sl_status text_tmpl_render(const text_tmpl *t, const struct text_tmpl_vars *vars, struct arena *a, struct str *out,
                           struct text_tmpl_span **spans, int *n_span, sl_err *err)
{
    (void)t, (void)vars, (void)a, (void)out, (void)spans, (void)n_span;
    return SL_FAIL(err, UNSUPPORTED, "chat templates are not built in");
}
