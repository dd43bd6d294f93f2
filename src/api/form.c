/* SPDX-License-Identifier: Apache-2.0 */
/* One grammar of reasoning, calls and content, compiled on a worker thread or found in the cache.
 *
 * sl-root ::= (reasoning) (calls | content). A request that has only a content's form and no
 * reasoning is compiled as it is. */
#include "api/form.h"

#include <stdio.h>
#include <string.h>

#include "api/family.h"

void api_form_literal(struct str *out, const char *p, size_t n)
{
    str_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '"' || c == '\\')
            str_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            str_printf(out, "\\x%02x", c);
        else
            str_putc(out, (char)c);
    }
    str_putc(out, '"');
}

void api_form_tag(api *a, struct str *out, const char *tag)
{
    int32_t *ids = NULL;
    int n = 0;
    char *text = NULL;
    size_t n_text = 1;
    sl_status st = sl_tokenize(a->o.model, tag, strlen(tag), SL_TOK_SPECIAL, &ids, &n, NULL);
    if (!st && n == 1) st = sl_detokenize(a->o.model, ids, 1, SL_DETOK_PART, &text, &n_text, NULL);
    if (st == SL_NOMEM) /* no reason to hold the answer to another text */
        out->failed = SL_NOMEM;
    else if (!st && n_text == 0)
        str_printf(out, "<[%d]>", ids[0]);
    else
        api_form_literal(out, tag, strlen(tag));
    sl_free(text);
    sl_free(ids);
}

static size_t char_len(const char *p)
{
    size_t n = 1;
    while (((unsigned char)p[n] & 0xc0) == 0x80)
        n++;
    return n;
}

#define TAG_MAX 4

/* What is left of tags, each up to the end of its line. */
struct rests {
    const char *at[TAG_MAX];
    int n;
};

static bool is_over(const char *rest)
{
    return !*rest || *rest == '\n';
}

/* Those of r that go on with the character at c, after it. */
static struct rests after(const struct rests *r, const char *c)
{
    struct rests out = {.n = 0};
    size_t n = char_len(c);
    for (int i = 0; i < r->n; i++)
        if (strncmp(r->at[i], c, n) == 0) out.at[out.n++] = r->at[i] + n;
    return out;
}

/* Does an earlier one go on with the same character as i? */
static bool is_again(const struct rests *r, int i)
{
    for (int k = 0; k < i; k++)
        if (strncmp(r->at[k], r->at[i], char_len(r->at[i])) == 0) return true;
    return false;
}

/* With tags c0 c1 ... ck, and the text after c0 matched so far up to cj of some:
 *   back ::= c0 | c1 back'        another beginning of a tag
 *   off  ::= [^c0c1] | c1 off'    no tag
 *   part ::= (c1 part')?          the text ends inside of one
 * Where tags part, each has its own c1. */
enum piece { BACK, OFF, PART };

static void put_piece(struct str *out, enum piece what, const char *c0, const struct rests *r)
{
    const char *between = what == PART ? "" : " | ";
    int n0 = (int)char_len(c0), n_inner = 0;
    for (int i = 0; i < r->n; i++)
        n_inner += !is_over(r->at[i] + char_len(r->at[i]));
    if (what == PART && !n_inner) return;
    str_puts(out, "(");
    if (what == BACK) str_printf(out, "\"%.*s\"", n0, c0);
    if (what == OFF) str_printf(out, "[^%.*s", n0, c0);
    for (int i = 0; i < r->n && what == OFF; i++)
        if (!is_again(r, i)) str_put(out, r->at[i], char_len(r->at[i]));
    if (what == OFF) str_putc(out, ']');
    for (int i = 0; i < r->n; i++) {
        struct rests next = after(r, r->at[i]);
        if (is_again(r, i) || is_over(next.at[0])) continue;
        str_puts(out, between);
        api_form_literal(out, r->at[i], char_len(r->at[i]));
        str_putc(out, ' ');
        put_piece(out, what, c0, &next);
        between = " | ";
    }
    str_puts(out, what == PART ? ")?" : ")");
}

void api_form_without(struct str *out, const char *name, const char *tags, bool until,
                      const char *tag_gbnf)
{
    struct rests r = {.n = 0};
    int n0 = (int)char_len(tags);
    for (const char *t = tags; *t && r.n < TAG_MAX; t += *t == '\n') {
        r.at[r.n++] = t + n0;
        t += strcspn(t, "\n");
    }
    str_printf(out, "%s-back ::= ", name);
    put_piece(out, BACK, tags, &r);
    str_printf(out, "\n%s-off ::= ", name);
    put_piece(out, OFF, tags, &r);
    str_printf(out, "\n%s ::= ([^%.*s] | \"%.*s\" %s-back* %s-off)* ", name, n0, tags, n0, tags,
               name, name);
    if (!until) {
        str_printf(out, "(\"%.*s\" %s-back* ", n0, tags, name);
        put_piece(out, PART, tags, &r);
        str_puts(out, ")?\n");
    } else if (tag_gbnf[0] == '<') /* a token of its own */
        str_printf(out, "%s\n", tag_gbnf);
    else {
        str_printf(out, "\"%.*s\" %s-back* ", n0, tags, name);
        api_form_literal(out, tags + n0, strcspn(tags + n0, "\n"));
        str_putc(out, '\n');
    }
}

/* ---- the parts ---- */

static void put_think(api *a, const struct api_parse *p, struct str *out)
{
    const char *tag = api_parse_tag(p, T_THINK_END);
    struct str end;
    str_init(&end, MEM_REQUEST, 0);
    api_form_tag(a, &end, tag);
    api_inherit(out, &end);
    api_form_without(out, "sl-think", tag, true, str_c(&end));
    str_fini(&end);
}

/* The rule sl-form, or the user's own root. */
static void put_form(struct str *out, const struct api_form *f)
{
    if (f->kind == SL_GRAMMAR_GBNF) {
        str_put(out, f->text.p, f->text.n);
        str_putc(out, '\n');
        return;
    }
    str_puts(out, "sl-form ::= ");
    if (f->kind == SL_GRAMMAR_JSON_OBJECT)
        str_puts(out, "%json {\"type\":\"object\"}");
    else if (f->kind == SL_GRAMMAR_REGEX) {
        str_puts(out, "%regex ");
        api_form_literal(out, str_c(&f->text), f->text.n);
    } else {
        str_puts(out, f->kind == SL_GRAMMAR_JSON_SCHEMA ? "%json " : "%json-loose ");
        str_put(out, f->text.p, f->text.n);
    }
    str_putc(out, '\n');
}

enum think { THINK_NO, THINK_MAY, THINK_ON };

static enum think think_of(const struct api_form_in *in)
{
    if (in->parse && api_parse_in_reasoning(in->parse)) return THINK_ON;
    return in->parse && api_parse_has_reasoning(in->parse) && !in->thought ? THINK_MAY : THINK_NO;
}

static enum api_calls calls_of(const struct api_form_in *in, const struct api_form *f)
{
    return in->chat ? api_calls_mode(in->chat, f->any) : API_CALLS_FREE;
}

/* NULL: nothing but calls and content stands in the grammar. */
static const struct api_message_form *messages_of(const struct api_form_in *in)
{
    const struct api_message_form *m = in->parse ? api_parse_family(in->parse)->messages : NULL;
    return m && m->root ? m : NULL;
}

/* What opens reasoning: a tag, and text after it where that is more than the tag. */
static void put_open(api *a, struct str *out, const char *tag)
{
    char first[32];
    const char *end = strchr(tag, '>');
    size_t n = end ? (size_t)(end - tag) + 1 : strlen(tag);
    snprintf(first, sizeof first, "%.*s", (int)n, tag);
    api_form_tag(a, out, first);
    if (!tag[n]) return;
    str_putc(out, ' ');
    api_form_literal(out, tag + n, strlen(tag + n));
}

static sl_status put_all(api *a, const struct api_form *f, const struct api_form_in *in,
                         struct str *out, sl_err *err)
{
    enum api_calls calls = calls_of(in, f);
    enum think think = think_of(in);
    const char *content = f->kind == SL_GRAMMAR_GBNF ? "root" : "sl-form";
    if (messages_of(in)) {
        messages_of(in)->root(a, in->parse, calls, f->any ? content : NULL, out);
        if (calls != API_CALLS_FREE) SL_TRY(api_calls_put(a, in->parse, in->chat, out, err));
        if (f->any && calls != API_CALLS_MUST) put_form(out, f);
        return str_status(out, err);
    }
    str_puts(out, "%root sl-root\nsl-root ::= ");
    if (think == THINK_ON) str_puts(out, "sl-think [ \\n]{0,4} ");
    if (think == THINK_MAY) str_puts(out, "(sl-open sl-think [ \\n]{0,4})? ");
    if (calls == API_CALLS_MUST)
        str_puts(out, "sl-calls\n");
    else if (calls == API_CALLS_MAY && f->any)
        str_printf(out, "(sl-calls | %s)\n", content);
    else
        str_printf(out, "%s\n", f->any ? content : "sl-text");
    if (think == THINK_MAY) {
        str_puts(out, "sl-open ::= ");
        put_open(a, out, api_parse_tag(in->parse, T_THINK));
        str_putc(out, '\n');
    }
    if (think != THINK_NO) put_think(a, in->parse, out);
    if (calls != API_CALLS_FREE) SL_TRY(api_calls_put(a, in->parse, in->chat, out, err));
    if (f->any && calls != API_CALLS_MUST) put_form(out, f);
    return str_status(out, err);
}

/* ---- compiling ---- */

/* What a grammar says of itself, with the field in front: it begins with a rule's name or a place.
 */
static sl_status name_it(sl_status st, const char *name, sl_err *err)
{
    if (st != SL_REQUEST && st != SL_LIMIT && st != SL_FORMAT) return st;
    if (err) {
        err->code = SL_REQUEST;
        status_prefix(err, "%s", name);
    }
    return SL_REQUEST;
}

/* The whole was refused with st: by which of its parts? */
static sl_status blame(api *a, const struct api_form *f, const struct api_form_in *in, sl_status st,
                       sl_err *err)
{
    enum api_calls calls = calls_of(in, f);
    sl_grammar *g = NULL;
    sl_err part = {0};
    if (st != SL_REQUEST && st != SL_LIMIT) return st;
    if (f->any) {
        sl_status own =
            sl_grammar_compile(a->o.model, f->kind, str_c(&f->text), f->text.n, &g, &part);
        sl_grammar_unref(g);
        if (own) {
            if (err) *err = part;
            return name_it(own, f->name, err);
        }
    }
    if (calls != API_CALLS_FREE && api_calls_blame(a, in->chat, &part)) {
        if (err) *err = part;
        return SL_REQUEST;
    }
    return name_it(st, calls != API_CALLS_FREE ? "tools" : f->name, err);
}

static sl_status compile(api *a, const struct api_form *f, const struct api_form_in *in,
                         sl_grammar **out, sl_err *err)
{
    struct str s;
    bool calls = calls_of(in, f) != API_CALLS_FREE;
    if (!calls && !f->any) return SL_OK;
    if (!calls && think_of(in) == THINK_NO && !messages_of(in))
        return name_it(
            sl_grammar_cache_get(a->gcache, f->kind, str_c(&f->text), f->text.n, out, err), f->name,
            err);
    str_init(&s, MEM_REQUEST, 0);
    sl_status st = put_all(a, f, in, &s, err);
    if (!st) {
        st = sl_grammar_cache_get(a->gcache, SL_GRAMMAR_GBNF, str_c(&s), s.n, out, err);
        st = blame(a, f, in, st, err);
    }
    str_fini(&s);
    return st;
}

sl_status api_form_parse(api *a, struct net_req *r, const struct api_form_in *in, sl_grammar **out,
                         sl_err *err)
{
    struct api_form f = {0};
    *out = NULL;
    str_init(&f.text, MEM_REQUEST, 0);
    sl_status st = api_format_read(r, in->body, in->route, &f, err);
    if (!st) st = compile(a, &f, in, out, err);
    str_fini(&f.text);
    if (st == SL_FORMAT || st == SL_LIMIT) {
        if (err) err->code = SL_REQUEST;
        st = SL_REQUEST;
    }
    return st;
}
