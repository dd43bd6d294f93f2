/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites Oniguruma's syntax for PCRE2, compiles it and finds matches. */
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/str.h"

#define PATTERN_MAX 16384

struct text_regex {
    pcre2_code *code;
    pcre2_general_context *gen;
    bool jit;
    enum mem_tag tag;
};

struct text_match {
    pcre2_general_context *gen;
    pcre2_match_context *ctx;
    pcre2_match_data *data;
    pcre2_jit_stack *stack; /* NULL until the 32 KiB on the machine stack were too small */
    enum mem_tag tag;
};

static void *take(PCRE2_SIZE n, void *tag)
{
    void *p = NULL;
    return mem_alloc(*(enum mem_tag *)tag, n, &p, NULL) == SL_OK ? p : NULL;
}

static void give(void *p, void *tag)
{
    (void)tag;
    mem_free(p);
}

/* ---- rewriting ---- */

#define SPACE                                                                                      \
    "\\t\\n\\x0b\\f\\r "                                                                           \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                  \
    "\\x00-\\x08\\x0e-\\x1f!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-" \
    "\\x{2027}\\x{202a}-\\x{202e}"                                                                 \
    "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

static sl_status refuse(sl_err *err, const char *at, int n)
{
    return SL_FAIL(err, UNSUPPORTED, "regular expression with %.*s", n, at);
}

/* p is after a backslash at p[-1]; *used bytes of it were taken. */
static sl_status put_escape(struct str *s, const char *p, size_t n, bool in_class, size_t *used,
                            sl_err *err)
{
    if (n == 0) return SL_FAIL(err, FORMAT, "regular expression ends in a backslash");
    *used = 1;
    switch (p[0]) {
    case 's':
        str_puts(s, in_class ? SPACE : "[" SPACE "]");
        return SL_OK;
    case 'S':
        str_puts(s, in_class ? NOT_SPACE : "[^" SPACE "]");
        return SL_OK;
    case 'w':
        str_puts(s, in_class ? WORD : "[" WORD "]");
        return SL_OK;
    case 'h':
        str_puts(s, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
        return SL_OK;
    case 'd':
        str_puts(s, "\\p{Nd}");
        return SL_OK;
    case 'D':
        str_puts(s, "\\P{Nd}");
        return SL_OK;
    case 'v':
        str_puts(s, "\\x0b");
        return SL_OK;
    case 'W':
        if (in_class) return refuse(err, "\\W in a class", 13);
        str_puts(s, "[^" WORD "]");
        return SL_OK;
    case 'u':
        if (n < 5) return refuse(err, "a cut \\u", 8);
        str_puts(s, "\\x{");
        str_put(s, p + 1, 4);
        str_putc(s, '}');
        *used = 5;
        return SL_OK;
    case 'p':
    case 'P':
    case 'r':
    case 'n':
    case 't':
    case 'f':
    case 'x':
        break;
    default:
        if ((p[0] >= '0' && p[0] <= '9') || (p[0] >= 'a' && p[0] <= 'z') ||
            (p[0] >= 'A' && p[0] <= 'Z'))
            return refuse(err, p - 1, 2);
    }
    str_putc(s, '\\');
    str_putc(s, p[0]);
    return SL_OK;
}

/* p is at "(": only groups that cannot recurse or refer back. */
static sl_status check_group(const char *p, size_t n, sl_err *err)
{
    if (n > 1 && p[1] == '*') return refuse(err, "a verb (*", 9);
    if (n < 3 || p[1] != '?') return SL_OK;
    size_t i = 2;
    if (p[2] == '<')
        return n > 3 && (p[3] == '=' || p[3] == '!') ? SL_OK : refuse(err, "a named group", 13);
    if (strchr(":=!>", p[2])) return SL_OK;
    while (i < n && strchr("imsx-", p[i]))
        i++;
    return i < n && i > 2 && (p[i] == ':' || p[i] == ')') ? SL_OK : refuse(err, p, 3);
}

static sl_status rewrite(const char *p, size_t n, struct str *s, sl_err *err)
{
    bool in_class = false;
    size_t used = 0, class_at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == 0) return refuse(err, "a NUL", 5);
        if (c == '\\') {
            SL_TRY(put_escape(s, p + i + 1, n - i - 1, in_class, &used, err));
            i += used;
            continue;
        }
        if (in_class) {
            if (c == '[') {
                if (i + 1 < n && p[i + 1] != ':') return refuse(err, "a class inside a class", 22);
            } else if (c == '&' && i + 1 < n && p[i + 1] == '&') {
                return refuse(err, "a class intersection &&", 23);
            } else if (c == ']' && i > class_at && p[i - 1] != ':') {
                in_class = false;
            }
        } else if (c == '[') {
            in_class = true;
            class_at = i + (i + 1 < n && p[i + 1] == '^' ? 2 : 1); /* a ']' here is itself */
        } else if (c == '(') {
            SL_TRY(check_group(p + i, n - i, err));
        } else if (c == '{' && i + 1 < n && p[i + 1] == ',') {
            return refuse(err, "a repeat {,n}", 13);
        }
        str_putc(s, c);
    }
    return str_status(s, err);
}

sl_status text_regex_open(enum mem_tag tag, const char *pattern, size_t n, text_regex **out,
                          sl_err *err)
{
    struct str s;
    void *p = NULL;
    text_regex *r = NULL;
    sl_status st = SL_OK;
    str_init(&s, tag, 0);
    if (n > PATTERN_MAX) return SL_FAIL(err, LIMIT, "regular expression of %zu bytes", n);
    SL_TRY_OUT(rewrite(pattern, n, &s, err));
    SL_TRY_OUT(mem_alloc_array(tag, 1, sizeof *r, &p, err));
    r = p;
    r->tag = tag;
    r->gen = pcre2_general_context_create(take, give, &r->tag);
    if (!r->gen) {
        st = SL_FAIL(err, NOMEM, "out of memory: regular expression");
        goto out;
    }
    pcre2_compile_context *cc = pcre2_compile_context_create(r->gen);
    if (!cc) {
        st = SL_FAIL(err, NOMEM, "out of memory: regular expression");
        goto out;
    }
    int code;
    PCRE2_SIZE at;
    pcre2_set_parens_nest_limit(cc, 50);
    r->code = pcre2_compile((PCRE2_SPTR)str_c(&s), s.n,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                                PCRE2_NO_AUTO_CAPTURE,
                            &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!r->code) {
        PCRE2_UCHAR msg[120];
        pcre2_get_error_message(code, msg, sizeof msg);
        st = code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY
                 ? SL_FAIL(err, NOMEM, "out of memory: regular expression")
                 : SL_FAIL(err, FORMAT, "regular expression: %s", (char *)msg);
        goto out;
    }
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0; /* else the interpreter */
    *out = r;
    r = NULL;
out:
    str_fini(&s);
    text_regex_close(r);
    return st;
}

void text_regex_close(text_regex *r)
{
    if (!r) return;
    if (r->code) pcre2_code_free(r->code);
    if (r->gen) pcre2_general_context_free(r->gen);
    mem_free(r);
}

sl_status text_match_open(enum mem_tag tag, text_match **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(tag, 1, sizeof(text_match), &p, err));
    text_match *m = p;
    m->tag = tag;
    m->gen = pcre2_general_context_create(take, give, &m->tag);
    if (m->gen) m->ctx = pcre2_match_context_create(m->gen);
    if (m->gen) m->data = pcre2_match_data_create(1, m->gen);
    if (!m->ctx || !m->data) {
        text_match_close(m);
        return SL_FAIL(err, NOMEM, "out of memory: regular expression");
    }
    *out = m;
    return SL_OK;
}

void text_match_close(text_match *m)
{
    if (!m) return;
    if (m->stack) pcre2_jit_stack_free(m->stack);
    if (m->data) pcre2_match_data_free(m->data);
    if (m->ctx) pcre2_match_context_free(m->ctx);
    if (m->gen) pcre2_general_context_free(m->gen);
    mem_free(m);
}

sl_status text_regex_find(const text_regex *r, text_match *m, struct text_subject in,
                          struct text_hit *out, sl_err *err)
{
    PCRE2_SPTR p = (PCRE2_SPTR)in.p;
    uint64_t limit = 10000000u + (uint64_t)in.n * 4;
    pcre2_set_match_limit(m->ctx, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    int rc;
    if (r->jit) {
        rc = pcre2_jit_match(r->code, p, in.n, in.from, PCRE2_NO_UTF_CHECK, m->data, m->ctx);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
            m->stack = pcre2_jit_stack_create(32768, 8u << 20, m->gen);
            if (!m->stack) return SL_FAIL(err, NOMEM, "out of memory: regular expression");
            pcre2_jit_stack_assign(m->ctx, NULL, m->stack);
            rc = pcre2_jit_match(r->code, p, in.n, in.from, PCRE2_NO_UTF_CHECK, m->data, m->ctx);
        }
    } else {
        rc = pcre2_match(r->code, p, in.n, in.from, PCRE2_NO_UTF_CHECK, m->data, m->ctx);
    }
    out->found = rc >= 0;
    if (rc >= 0) {
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
        out->begin = v[0];
        out->end = v[1];
        return SL_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH) return SL_OK;
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return SL_FAIL(err, NOMEM, "out of memory: regular expression");
    return SL_FAIL(err, LIMIT, "regular expression gave up at byte %zu of the text (code %d)",
                   in.from, rc);
}
