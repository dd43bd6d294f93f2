/* SPDX-License-Identifier: Apache-2.0 */
/* JSON schema to rules: one rule for each schema that was met, made when it is first referred to
 * and filled from a list of work, so no recursion follows the schema. */
#ifndef GRAMMAR_SCHEMA_INTERNAL_H
#define GRAMMAR_SCHEMA_INTERNAL_H

#include "grammar/grammar_internal.h"

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
struct work {
    struct place at;
    int rule;
    uint32_t next; /* in its hash chain, 1 + place */
};
struct schema {
    struct build *b;
    const struct json *root;
    int rule;   /* of the whole */
    int number; /* among the loose ones; -1 = not one of them */
    enum loose_level level;
    struct work *work;
    uint32_t n_work, cap_work, n_done;
    uint32_t head[4096];
};

/* "PATH/KEY: MSG", a REQUEST. key may be NULL. */
void grammar_schema_bad(struct schema *x, const struct place *at, const char *key, const char *msg);
/* The place of a member or (key NULL) of item i. */
struct place grammar_schema_at(struct schema *x, const struct place *at, const struct json *v,
                               const char *key, size_t i);
/* A call of the rule of a subschema. */
const struct ir *grammar_schema_call(struct schema *x, const struct place *at);
/* Typed members; false (and a failure) when there with another type or out of range. */
bool grammar_schema_count(struct schema *x, const struct place *at, const char *key, uint32_t def,
                          uint32_t *out);

/* ---- one type each ---- */
const struct ir *grammar_schema_object(struct schema *x, const struct place *at);
const struct ir *grammar_schema_array(struct schema *x, const struct place *at);
const struct ir *grammar_schema_string(struct schema *x, const struct place *at);
const struct ir *grammar_schema_number(struct schema *x, const struct place *at, bool integer);
struct multiple {  /* the multiples N of step in lo..hi, read as N / 10^point */
    uint64_t step; /* 1 .. 10^18 */
    int64_t lo, hi;
    int point;    /* 0 .. 9 */
    double value; /* step / 10^point */
    bool exact;   /* so it is, and all its multiples between the bounds */
};
const struct ir *grammar_multiples(struct build *b, const struct multiple *m);
/* One character of a JSON string, for repeats. */
const struct ir *grammar_schema_char(struct build *b, bool counted);
/* A key that is none of these. */
const struct ir *grammar_schema_other_key(struct build *b, const struct json *const *name,
                                          size_t n);

#endif
