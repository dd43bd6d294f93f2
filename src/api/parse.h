/* SPDX-License-Identifier: Apache-2.0 */
/* Tool calls and reasoning in an answer's text, as it streams. Pure: text in, pieces out.
 *
 * What the pieces add up to does not depend on how the text was cut, so a stream adds up to the
 * whole. The text is a model's and may be anything: what is no call in the family's form comes out
 * as content, what is held back is bounded, and nothing nests. A call that the text's end cuts off
 * keeps the arguments that came. docs/grammar.md has the forms. */
#ifndef API_PARSE_H
#define API_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "api/family.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "text/json.h"

struct api_parse_sink {
    void *user;
    void (*text)(void *user, const char *p, size_t n);                /* content */
    void (*reason)(void *user, const char *p, size_t n);              /* reasoning */
    void (*call)(void *user, int i, const char *name, size_t n_name); /* call i begins */
    void (*args)(void *user, int i, const char *p, size_t n);         /* more of its arguments */
};

struct api_parse_opts {
    /* "auto" (NULL is that), "none", or a name of a row of family.h: its parsers or alias; its
     * reasoning. */
    const char *tool_parser, *reasoning_parser;
    const char *template_text;    /* the chat template, for "auto"; may be NULL */
    const char *trained;          /* a tool parser's name: "auto" where the template writes tools in
                                     none of the forms; NULL = "json" */
    const struct json *tool_list; /* of a chat body, checked, or NULL: the kinds of arguments that
                                     are written without quotes; read in open only */
    bool tools;         /* the request has tools that may be called; else no call is looked for */
    bool prompt_thinks; /* the prompt ended inside reasoning: the answer has no opening tag */
    int max_calls;      /* later ones are left out; 0 = no limit */
};

struct api_parse;

/* Errors: REQUEST (a parser's name that is not known: lists them), NOMEM. */
sl_status api_parse_open(const struct api_parse_opts *o, struct api_parse **out,
                         sl_err *err) BASE_MUST_USE;
void api_parse_close(struct api_parse *p); /* NULL is legal */
/* A byte that no text holds: a control token stands between two of them. It is a tag, or it is left
 * out; one that the text's end cuts is left out too. */
#define API_PARSE_MARK 0xff
/* More text. last: nothing follows; what was held back comes out. Errors: NOMEM (what was held back
 * is lost). Cost: linear in all text together. */
sl_status api_parse_feed(struct api_parse *p, const char *s, size_t n, bool last,
                         const struct api_parse_sink *sink, sl_err *err) BASE_MUST_USE;
/* Before the first text: n bytes of the answer stand in the prompt already. sink: gets them as if
 * they had been fed; nothing of them comes out again later. */
sl_status api_parse_prompt(struct api_parse *p, const char *s, size_t n,
                           const struct api_parse_sink *sink, sl_err *err) BASE_MUST_USE;
bool api_parse_in_reasoning(const struct api_parse *p);  /* now */
bool api_parse_in_content(const struct api_parse *p);    /* now, as far as is known */
bool api_parse_has_reasoning(const struct api_parse *p); /* a reasoning parser is at work */
/* The text of a tag of enum api_tag, of the family; of reasoning that which is looked for. */
const char *api_parse_tag(const struct api_parse *p, int tag);
/* The row of the family whose form is read; static. */
const struct api_family *api_parse_family(const struct api_parse *p);
/* The id that the model gave the call that began last; "" where its family gives none. */
const char *api_parse_call_id(const struct api_parse *p);
/* Control tokens must be part of the text that is fed, marked: the calls of this family, or the
 * ends of reasoning, are made of them. */
bool api_parse_wants_special(const struct api_parse *p);

#endif
