/* SPDX-License-Identifier: Apache-2.0 */
/* JSON schema to rules, in two steps.
 *
 * A value must often match several schemas at once (allOf, $ref with neighbours, a member that two
 * schemas speak of). So the unit is a set of schemas, each to be matched or (not) not to be: struct
 * all. There is one rule for each set that was met, made when it is first referred to and filled
 * from a list of work, so no recursion follows the schema and a schema may refer to itself.
 *
 * To fill a rule, its set is opened (schema_open.c): keywords become facts about the value, and
 * where one of several things must hold (anyOf, not, if) there is one list of facts for each
 * choice: struct facts. Each list of facts then becomes text, type by type (schema_object.c, ...).
 *
 * Held exactly or not: what cannot be held goes through grammar_schema_cannot, which refuses in
 * strict schemas; in loose ones it notes the place, and the caller goes on without it. */
#ifndef GRAMMAR_SCHEMA_INTERNAL_H
#define GRAMMAR_SCHEMA_INTERNAL_H

#include "grammar/dfa.h"

#define SCHEMA_MAX_PROPERTY 8192 /* of one object */
#define SCHEMA_MAX_PREFIX 100    /* prefixItems */

enum shared_rule { /* build.shared */
                   SHARED_WS,
                   SHARED_STRING,
                   SHARED_ESCAPE,
                   SHARED_WIDE, /* a character that is not one plain byte */
                   SHARED_NUMBER,
                   SHARED_INTEGER,
                   SHARED_VALUE,
                   SHARED_OBJECT,
                   SHARED_ARRAY,
                   SHARED_N
};
/* A call of a common part, made on its first use. */
const struct ir *grammar_shared(struct build *b, enum shared_rule which);

struct place { /* a schema and where it is */
    const struct json *v;
    const char *path; /* JSON pointer, "#" first; in the builder's arena */
};

/* ---- sets of schemas ---- */

enum sense { IS, NOT };
struct one {
    struct place at;
    enum sense sense;
};
struct all {
    const struct one *one; /* sorted, unique */
    uint32_t n;            /* 0 = any value */
    bool never;            /* no value matches */
};
struct work {
    struct all all;
    int rule;
    uint32_t next; /* in its hash chain, 1 + place */
};
struct resource; /* what $id and $anchor name */
struct schema {
    struct build *b;
    const struct json *root;
    int rule;   /* of the whole */
    int number; /* among the loose ones; -1 = not one of them */
    enum loose_level level;
    bool old_ref; /* draft 7 and older: nothing counts beside $ref */
    struct resource *res;
    uint32_t n_res, cap_res;
    struct cached *cached;       /* automata of patterns */
    struct same_string *strings; /* rules of strings */
    int64_t left;                /* steps for all sets */
    int deep;                    /* of questions inside questions */
    uint32_t n_set;              /* schemas in the set that is opened */
    struct work *work;
    uint32_t n_work, cap_work, n_done;
    uint32_t head[4096];
};

/* "PATH/KEY: MSG", a REQUEST. key may be NULL. wrong: the text is no JSON schema, which loose ones
 * do not forgive; bad: a failure in any case; cannot: a failure in strict schemas, a note in loose
 * ones. */
void grammar_schema_wrong(struct schema *x, const struct place *at, const char *key,
                          const char *msg);
void grammar_schema_cannot(struct schema *x, const struct place *at, const char *key,
                           const char *msg);
/* After something that may have failed: is it forgiven (noted at key, the builder goes on)? */
bool grammar_schema_forgive(struct schema *x, const struct place *at, const char *key);
/* The place of a member or (key NULL) of item i. */
struct place grammar_schema_at(struct schema *x, const struct place *at, const struct json *v,
                               const char *key, size_t i);
/* The set of these: references followed, what is always true left out. one is sorted in place. */
struct all grammar_schema_all(struct schema *x, struct one *one, uint32_t n);
/* A call of the rule of a set. */
const struct ir *grammar_schema_call(struct schema *x, const struct all *all);
/* Typed members; false (and a failure) when there with another type or out of range. */
bool grammar_schema_count(struct schema *x, const struct place *at, const char *key, uint32_t def,
                          uint32_t *out);

/* ---- schema_ref.c ---- */
void grammar_schema_index(struct schema *x);
/* What the "$ref" of at refers to; false (and a failure) when there is no such schema. */
bool grammar_schema_ref(struct schema *x, const struct place *at, struct place *out);

/* ---- facts (schema_open.c) ---- */

enum { T_NULL = 1, T_BOOL = 2, T_INT = 4, T_FRAC = 8, T_STR = 16, T_ARR = 32, T_OBJ = 64 };
#define T_NUM (T_INT | T_FRAC)
#define T_ALL 127

struct fact { /* of a list; the newest first */
    const struct fact *next;
    struct place at;      /* the schema that says it, or a subschema */
    const struct json *v; /* the value of the keyword */
    bool neg;
    uint32_t min, max; /* contains */
};
struct limits {
    const struct json *lo, *hi; /* NULL = none */
    bool lo_open, hi_open;
};
struct branch { /* one of alt[0..n) must hold as well */
    const struct branch *next;
    const struct fact **alt; /* lists of things to take */
    uint32_t n;
};
struct facts {
    unsigned types;
    unsigned implied; /* where no "type" is: those that the keywords speak of; else all */
    bool typed;
    const struct fact *value, *except; /* lists of values (arrays), or one value */
    struct limits limits;
    const struct fact *multiple, *format, *pattern;
    uint32_t min_len, max_len, min_item, max_item, min_prop, max_prop;
    const struct fact *object, *array;    /* schemas with keywords for them */
    const struct fact *names;             /* at: what all names match */
    const struct fact *has, *lacks;       /* v: a name */
    const struct fact *also;              /* v: a name, at: what its value matches besides */
    const struct fact *rest, *rest_items; /* at: unevaluatedProperties, unevaluatedItems */
    const struct fact *contains, *unique;
    /* while it is opened */
    const struct fact *todo, *done;
    const struct branch *branch;
    bool any;               /* something was said */
    const struct all *call; /* not NULL: nothing but this set */
};
struct opened {
    struct facts *v;
    uint32_t n, cap;
};
void grammar_schema_open(struct schema *x, const struct all *all, struct opened *out);
/* Can no value match? Only what is easily seen. */
bool grammar_schema_void(struct schema *x, const struct all *all);
bool grammar_schema_facts_void(struct schema *x, struct facts *f);
void grammar_schema_say(struct schema *x, const struct fact **list, const struct fact *f);

/* ---- values (schema_value.c) ---- */
enum holds { NO, YES, UNSURE };
bool grammar_json_same(const struct json *a, const struct json *b);
unsigned grammar_json_types(const struct json *v);
enum holds grammar_schema_holds(struct schema *x, const struct place *at, const struct json *v);
/* member: v is in the first of the lists f->value. */
enum holds grammar_schema_facts_hold(struct schema *x, const struct facts *f, const struct json *v,
                                     bool member);
enum holds grammar_schema_holds_all(struct schema *x, const struct all *all, const struct json *v);

/* ---- one type each ---- */
const struct ir *grammar_schema_object(struct schema *x, const struct place *at, struct facts *f);
/* No object has these facts. */
bool grammar_schema_object_void(struct schema *x, struct facts *f);
const struct ir *grammar_schema_array(struct schema *x, const struct place *at, struct facts *f);
const struct ir *grammar_schema_string(struct schema *x, const struct place *at, struct facts *f);
/* The strings of a set as an automaton; NULL: too large, or not held. */
const struct dfa *grammar_schema_strings(struct schema *x, const struct all *all);
/* The automaton of a pattern that is searched for; NULL: not held. */
const struct dfa *grammar_schema_pattern(struct schema *x, const struct place *at,
                                         const struct json *p);
const struct ir *grammar_schema_number(struct schema *x, const struct place *at, struct facts *f);
struct multiple {  /* the multiples N of step in lo..hi, read as N / 10^point */
    uint64_t step; /* 1 .. 10^18 */
    int64_t lo, hi;
    int point;    /* 0 .. 9 */
    double value; /* step / 10^point */
    bool exact;   /* so it is, and all its multiples between the bounds */
};
const struct ir *grammar_multiples(struct build *b, const struct multiple *m);
/* ---- parts of JSON (schema_kind.c) ---- */
const struct ir *grammar_json_comma(struct build *b);
const struct ir *grammar_json_ws(struct build *b);
const struct ir *grammar_json_member(struct build *b, const struct ir *name,
                                     const struct ir *value);
const struct ir *grammar_json_quoted(struct build *b, const struct ir *e);
/* v written out. */
const struct ir *grammar_json_value(struct build *b, const struct json *v);
/* One character of a JSON string, for repeats. */
const struct ir *grammar_schema_char(struct build *b, bool counted);
/* A key that is none of these. */
const struct ir *grammar_schema_other_key(struct build *b, const struct json *const *name,
                                          size_t n);

#endif
