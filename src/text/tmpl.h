/* SPDX-License-Identifier: Apache-2.0 */
/* The chat-template interpreter: the subset of Jinja that docs/house.md lists (Templates),
 * rendered as transformers does (trim_blocks, lstrip_blocks). Strict: a template that uses anything
 * else is refused when it is compiled, with the line. Safe: no attribute escapes, no recursion on
 * input, budgets of steps, depth and output. */
#ifndef TEXT_TMPL_H
#define TEXT_TMPL_H

#include "base/mem.h"
#include "base/status.h"
#include "text/json.h"

typedef struct text_tmpl text_tmpl;

/* Budget of one rendering: steps (an expression's node, 64 bytes copied, ...) and bytes of output;
 * both grow with the request's size. */
#ifndef TEXT_TMPL_STEPS /* less when fuzzing */
#define TEXT_TMPL_STEPS 1000000
#endif
#define TEXT_TMPL_OUT (4 << 20)

/* Errors: UNSUPPORTED or FORMAT: "chat template line 12: ...". Memory: close with text_tmpl_close;
 * src is copied. */
sl_status text_tmpl_open(const char *src, size_t n, text_tmpl **out, sl_err *err) BASE_MUST_USE;
void text_tmpl_close(text_tmpl *t);

/* Does it read a variable of this name anywhere? (It may set that itself before.) */
bool text_tmpl_reads(const text_tmpl *t, const char *name);

struct text_tmpl_token {
    const char *name, *text;
};

struct text_tmpl_vars {
    const struct json *messages; /* array */
    const struct json
        *tools; /* array or NULL (undefined becomes none, as transformers passes tools=None) */
    const struct json *kwargs; /* object or NULL: further variables */
    bool add_generation_prompt;
    const char *bos_token, *eos_token; /* NULL = undefined */
    const struct text_tmpl_token *token; /* further special tokens by name */
    int n_token;
    int64_t now_s;                     /* for strftime_now: seconds since 1970, local time */
};

/* A piece of output: user != 0 when the bytes came from a variable (so a control token spelled in
 * it is plain text). */
struct text_tmpl_span {
    size_t begin, end;
    int user;
};
/* All pieces of a text, in order. */
struct text_tmpl_spans {
    struct text_tmpl_span *v; /* [n] */
    int n;
};

/* Render to out (appended). spans (may be NULL) receives the pieces, in the arena. Errors:
 * REQUEST (raise_exception's text, or a wrong type at "chat template line N"), LIMIT (steps,
 * output). Memory: temporaries in the arena. Threads: any (a compiled template is read-only). */
sl_status text_tmpl_render(const text_tmpl *t, const struct text_tmpl_vars *vars, struct arena *a,
                           struct str *out, struct text_tmpl_spans *spans,
                           sl_err *err) BASE_MUST_USE;

#endif
