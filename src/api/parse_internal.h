/* SPDX-License-Identifier: Apache-2.0 */
/* What the parser's files share: parse.c has the loop, reasoning and content; parse_calls.c calls
 * whose arguments are JSON; parse_xml.c calls with one tag for each argument; parse_types.c what a
 * tool's schema says of them. */
#ifndef API_PARSE_INTERNAL_H
#define API_PARSE_INTERNAL_H

#include "api/family.h"
#include "api/parse.h"
#include "api/parse_json.h"

#define API_PARSE_GAP ((size_t)1024) /* white space that is held back */
#define API_PARSE_NAME ((size_t)512) /* bytes of the name of a function or an argument */

#define BIT(t) ((api_tags)1 << (t))

enum state {
    S_BEGIN, /* nothing but white space yet; reasoning may begin */
    S_REASON,
    S_START, /* of the content */
    S_TEXT,
    S_JSON,  /* inside a call's object */
    S_CLOSE, /* after the object, before the closing tag */
    S_NEXT,  /* after an object, another may follow */
    S_HEAD,  /* a block of five tags: before the separator. Messages: in a header */
    S_NAME,  /* the older form of that: the line with the name */
    S_FENCE, /* before the arguments */
    S_ARGS,
    S_TAIL,    /* after the arguments, before the closing tag */
    S_X_BLOCK, /* XML but PAIRS: between calls */
    S_X_NAME,  /* the function's name */
    S_X_NEXT,  /* between arguments */
    S_X_KEY,
    S_X_GAP, /* PAIRS: between a name and its value */
    S_X_VALUE
};

/* Where in a value that stands on lines of its own: the line end before it and the one after it are
 * no part of it, so that each line end is held until more of the value follows. */
enum line {
    LINE_NONE,  /* nothing has come yet */
    LINE_FRONT, /* at the beginning of its first line */
    LINE_IN,
    LINE_HELD /* a line end is held */
};

/* Arguments whose keys and numbers stand bare (family_gemma4.c): where in them. */
enum api_parse_bare_at {
    BARE_KEY, /* before a member */
    BARE_NAME,
    BARE_KEY_TEXT, /* its name, between tags */
    BARE_COLON,
    BARE_VALUE, /* before a value */
    BARE_TEXT,  /* between tags */
    BARE_WORD,
    BARE_QUOTED, /* in JSON's quotes */
    BARE_NEXT    /* after it */
};
#define API_PARSE_DEPTH 64 /* levels of lists and objects */
struct api_parse_bare {
    enum api_parse_bare_at at;
    int depth;
    uint64_t list, some; /* a bit for each level: it is a list; it has something */
    bool escaped;
};

enum out_kind { O_NONE, O_TEXT, O_REASON, O_ARGS };

/* The kinds of JSON value that a schema allows, as bits; 0 = not known. */
enum {
    API_PARSE_STR = 1,
    API_PARSE_NUM = 2,
    API_PARSE_BOOL = 4,
    API_PARSE_NULL = 8,
    API_PARSE_OBJ = 16,
    API_PARSE_ARR = 32
};

/* The arguments of all tools, and of which kinds they are. */
struct api_parse_types {
    struct str text; /* names one after the other */
    struct api_parse_type *v;
    int n, cap;
};
/* tools: of a chat body, checked; NULL is legal. After a failure fini is due all the same. */
sl_status api_parse_types_read(struct api_parse_types *t, const struct json *tools,
                               sl_err *err) BASE_MUST_USE;
void api_parse_types_fini(struct api_parse_types *t);
/* Of argument key of that function: kinds as bits; 0 = not known. */
unsigned api_parse_types_of(const struct api_parse_types *t, const struct str *name,
                            const struct str *key);
/* The kinds that a schema allows; root: what its references are seen from. */
unsigned api_parse_kinds(const struct json *schema, const struct json *root);
/* What "#/$defs/NAME" and the like name, member by member from the root; NULL: nothing. */
const struct json *api_parse_ref(const struct json *root, const char *ref);

struct api_parse {
    /* fixed after open */
    const struct api_family *f, *thinks; /* thinks: whose tags are around reasoning */
    bool reasoning, tools;
    int max_calls;
    struct api_parse_types types;
    /* as text comes */
    enum state state;
    bool strip;      /* white space at the front of what comes is dropped */
    bool after_call; /* white space is dropped when nothing but calls follow */
    bool in_list, fenced, any_args, muted;
    bool control;              /* what is stepped over is a control token: it is no text */
    bool from_reason;          /* the call at hand began within reasoning */
    bool cut_reason;           /* a call ended reasoning: its closing tag may still come */
    bool named;                /* XML: the name is complete, its tag is not */
    bool open_str;             /* XML: a value that is a string is on its way out */
    bool any_call;             /* XML but PAIRS: of this block */
    enum line line;            /* XML, LINES: of the value at hand */
    bool started;              /* messages: the header at hand has its beginning */
    bool any_text, any_reason; /* messages: some came out */
    unsigned kinds;            /* XML: of the value at hand */
    int n_call;
    struct str buf; /* fed, not taken yet */
    struct str out; /* on its way to the sink */
    enum out_kind out_kind;
    struct str gap;  /* white space held back */
    struct str held; /* a call that may still turn out to be text; XML: a value */
    size_t n_prompt; /* bytes of held that stand in the prompt */
    struct str head; /* a name */
    struct str func; /* XML: the function's name, while its arguments come */
    struct str id;   /* of the last call, where the family gives one */
    struct api_parse_json json;
    bool json_open;
    struct api_parse_bare bare;
    const struct api_parse_sink *sink;
};

/* ---- parse.c ---- */
/* s is done with. What it lacks for want of memory is lost: so is the answer. */
void api_parse_clear(struct api_parse *p, struct str *s);
void api_parse_put(struct api_parse *p, enum out_kind kind, const char *s, size_t n);
void api_parse_put_gap(struct api_parse *p, enum out_kind kind);
void api_parse_begin_call(struct api_parse *p, const char *name, size_t n);
void api_parse_put_args(struct api_parse *p, const char *s, size_t n);
void api_parse_end_call(struct api_parse *p);
void api_parse_hold(struct api_parse *p, const char *s, size_t n);
/* What looked like a call is text, or reasoning. */
void api_parse_give_up(struct api_parse *p);
bool api_parse_white(char c);
size_t api_parse_white_run(const char *s, size_t n);
/* Which of the tags begins s: its number; -1 = none; -2 = more text is needed to know. */
int api_parse_tag_at(const struct api_parse *p, const char *s, size_t n, bool last, api_tags tags);
/* Text up to a tag or white space at its end. Takes at least one byte, or 0 to wait; *tag: the tag
 * that was taken, -1 = none. */
size_t api_parse_run_of(const struct api_parse *p, const char *s, size_t n, bool last,
                        api_tags tags, int *tag);
void api_parse_hold_white(struct api_parse *p, const char *s, size_t n, enum out_kind kind);
/* How many of n bytes may go into a name: one more than it may have ends it, at the same byte
 * however the text was cut. */
size_t api_parse_name_part(const struct api_parse *p, size_t n);

/* ---- parse_calls.c, parse_xml.c: a step in one of their states ---- */
void api_parse_begin_json(struct api_parse *p, bool strict);
size_t api_parse_calls_step(struct api_parse *p, const char *s, size_t n, bool last);
/* Text within a JSON string of the arguments. */
void api_parse_put_escaped(struct api_parse *p, const char *s, size_t n);
/* tag: the one that was found, of all calls or of one. */
void api_parse_xml_begin(struct api_parse *p, int tag);
size_t api_parse_xml_step(struct api_parse *p, const char *s, size_t n, bool last);
api_tags api_parse_xml_tags(const struct api_parse *p);
void api_parse_xml_finish(struct api_parse *p);

#endif
