/* SPDX-License-Identifier: Apache-2.0 */
/* Families of models by the form in which they write reasoning, calls and answers: one row each,
 * api_family_<name> in family_<name>.c, that says how such answers are read, which grammar holds a
 * model to that form, and what its templates want of messages. Every such file is built, and its
 * row is known. The loop that reads (parse.c), the grammars (form.c, form_tools.c) and the prompts
 * (messages.c, think.c) know no family by name. */
#ifndef API_FAMILY_H
#define API_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "text/json.h"

struct api;
struct api_parse;

/* What tags stand for. Their texts are each family's own (tag of struct api_family); the first two
 * are <think> and </think> where it has none. */
enum api_tag {
    T_THINK,
    T_THINK_END,
    T_CALLS, /* before all calls, after them, before each, after it; before its arguments */
    T_CALLS_END,
    T_CALL,
    T_CALL_END,
    T_SEP,
    T_KEY, /* XML: before an argument's name, after it, before its value, after it */
    T_KEY_END,
    T_VALUE,
    T_VALUE_END,
    T_OWN, /* from here on what only the family's own files know */
    N_TAG = T_OWN + 7
};
typedef uint32_t api_tags; /* a bit each */

/* Which calls may, must or can not come: nothing about them is enforced, or it is. */
enum api_calls { API_CALLS_FREE, API_CALLS_MAY, API_CALLS_MUST };

/* How arguments are written that have a tag each: one for the name and one for the value; one that
 * holds the name in quotes; one that then says string="true" of a text and string="false" of JSON;
 * or one that holds the name without quotes, and the value on lines of its own. */
enum api_xml { API_XML_NONE, API_XML_PAIRS, API_XML_NAMED, API_XML_TYPED, API_XML_LINES };

/* How calls are written, as pieces of GBNF; NULL = nothing there. */
struct api_call_form {
    const char *key; /* a call is an object with the arguments under this key; NULL: the name stands
                        between tags, and so do the arguments */
    bool word;       /* that name is one word */
    const char *head;           /* before it */
    const char *tail;           /* after it; both are texts, not rules */
    const char *before, *after; /* of the arguments */
    /* Rules from sl-args on: arguments in a form that no schema holds; NULL = JSON. */
    void (*rules)(struct api *a, struct str *out);
    int tag, n_tag; /* the first of the tags that are sl-begin, sl-end, sl-call-begin, sl-call-end
                       and sl-sep, and how many there are */
    const char *whole;        /* sl-one with what stands around it; NULL: rules of the family's own
                                 say what stands around calls and texts (messages) */
    const char *open, *close; /* around all calls */
    const char *between;
    bool list;             /* several may be a list */
    const char *not_text;  /* what words before calls do not hold: tags, or their beginnings, as
                              api_form_without has them; NULL: an answer has no words before
                              calls, and begins with no "{" */
    const char *not_first; /* and with none of these, of a class */
};

/* What reads answers that are a row of messages, each with a header (struct api_parse). */
struct api_message_form {
    /* Of the answer's text, n bytes stand in the prompt. */
    void (*begin)(struct api_parse *p, size_t n);
    size_t (*step)(struct api_parse *p, const char *s, size_t n, bool last); /* as parse.c's */
    api_tags (*tags)(const struct api_parse *p); /* that mean something where it stands */
    void (*finish)(struct api_parse *p);
    /* The grammar's root and all that stands around calls and content (its rule; NULL = any).
       NULL: as of answers without messages. */
    void (*root)(struct api *a, const struct api_parse *p, enum api_calls calls,
                 const char *content, struct str *out);
};

/* One row. What it leaves out is none. */
struct api_family {
    const char *name;
    /* "|"-separated: what --tool-parser calls it, names that are known besides, and what
     * --reasoning-parser does. */
    const char *parsers, *alias, *reasoning;
    /* Where it stands among the families: in messages, and of two whose marks a template has the
     * first is its family. 0: after those that say it, by the names of their files. */
    int place;
    const char *tag[N_TAG]; /* NULL = it has none */
    api_tags marks;         /* a template that writes all of these, */
    const char *word;       /* or this word, is of the family */
    const char *beside;     /* NULL, or what it must hold beside that word */
    /* ---- reading ---- */
    api_tags text_tags; /* that mean something in content */
    api_tags cut_tags;  /* of calls that end reasoning which no tag has closed */
    api_tags lead_tags; /* that may stand before an object */
    int call_tag;       /* that begins a call, or all of them; T_CALL may then begin one too */
    bool block;         /* around calls stand T_CALLS to T_SEP, all five */
    bool bare;   /* an answer that is an object, or a list where the form has one, is a call */
    bool closed; /* a tag ends each object */
    enum api_xml xml;
    void (*head)(struct api_parse *p); /* takes what stands before the separator */
    const struct api_message_form *messages;
    /* ---- grammars ---- */
    const struct api_call_form *form;
    const struct api_call_form *fenced; /* where the template writes "```json" */
    /* ---- prompts ---- */
    const char *(*effort)(const char *effort); /* the word that its templates know */
    /* Its templates write the first call of a message and are silent of others. */
    bool one_call;
    /* Its models read the ids of calls: is this one theirs; write that of call k of a function. */
    bool (*is_id)(const char *id);
    void (*put_id)(char *buf, size_t n, const struct json *name, int k);
    /* The members of a message in which its templates look for reasoning (NULL = none) and for
     * words before calls, which are then no content. */
    void (*put_reason)(struct json_w *w, const struct json *message, const struct json *reason);
};

extern const struct api_family api_family_json; /* of templates that show no form */
/* family.c: the row for calls that nothing looks for. */
extern const struct api_family api_family_none;
/* The text of a tag; NULL = the family has none. */
const char *api_family_tag(const struct api_family *f, int tag);
/* Does text end with that tag, T_THINK or T_THINK_END, of any family, and white space? */
bool api_family_ends(const char *text, size_t n, int tag);
/* The one that --tool-parser names; NULL = none has that name. */
const struct api_family *api_family_named(const char *name);
/* The one whose marks a template has (NULL is legal); NULL = none. */
const struct api_family *api_family_shown(const char *template_text);
/* Is that a name of --reasoning-parser? The family whose it is; NULL = none's. */
bool api_family_reasons(const char *name);
const struct api_family *api_family_reasoning(const char *name);
/* All names of one of the two options onto out, as messages list them. */
void api_family_names(struct str *out, bool reasoning);

#endif
