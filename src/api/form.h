/* SPDX-License-Identifier: Apache-2.0 */
/* The form of an answer: what the client asks of the content, the calls of tools that it forces or
 * restricts, and the reasoning before both, as one grammar. */
#ifndef API_FORM_H
#define API_FORM_H

#include "api/api_internal.h"
#include "api/parse.h"

/* What the content must be, before it is compiled. */
struct api_form {
    const char *name; /* the field, for messages */
    bool any;         /* false: free text */
    sl_grammar_kind kind;
    struct str text; /* of the grammar; empty for JSON_OBJECT */
};

/* format.c: the content's form. Errors: REQUEST. */
sl_status api_format_read(struct net_req *r, const struct json *body, int route, struct api_form *f,
                          sl_err *err) BASE_MUST_USE;
/* A literal of GBNF, quotes included. */
void api_form_literal(struct str *out, const char *p, size_t n);

/* form_tools.c: of a body whose tools were checked. form: the content has one, beside which calls
 * must stay possible. */
enum api_calls api_calls_mode(const struct json *chat, bool form);
/* The parameters of a tool with "strict": true are held exactly or refused; those of all others as
 * far as they can be (SL_GRAMMAR_JSON_SCHEMA_LOOSE): never refused but for what is no schema. This
 * holds for every route: a body that has no "strict" (Anthropic's) is the second kind.
 * The rules sl-calls and sl-text (an answer without calls, or with calls after its text) onto out.
 * Errors: REQUEST. */
sl_status api_calls_put(api *a, const struct api_parse *parse, const struct json *chat,
                        struct str *out, sl_err *err) BASE_MUST_USE;
/* Compile the parameters of each tool alone, to find the one that is refused. */
sl_status api_calls_blame(api *a, const struct json *chat, sl_err *err) BASE_MUST_USE;
/* form_xml.c: the rule sl-args-TOOL, arguments with a tag each by their schema (root; NULL = none).
 * Errors: REQUEST. */
sl_status api_form_xml_args(const struct api_family *family, struct str *out,
                            const struct json *root, int tool, bool strict,
                            sl_err *err) BASE_MUST_USE;
/* The rules that those are made of. */
void api_form_xml_tags(api *a, struct str *out, const struct api_family *family);
/* Texts that hold none of the tags, of which each but the last has a line end after it; all begin
 * with the same character, which is none of their others, and none is another's beginning.
 * until false: rule NAME, which may end anywhere; true: up to and with the first tag, tag_gbnf. */
void api_form_without(struct str *out, const char *name, const char *tags, bool until,
                      const char *tag_gbnf);
/* tag as GBNF: the token, when it is a control token; else its text. */
void api_form_tag(api *a, struct str *out, const char *tag);

#endif
