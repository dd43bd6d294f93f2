/* SPDX-License-Identifier: Apache-2.0 */
/* The keywords, between schema_open.c and schema_keys.c. */
#ifndef GRAMMAR_SCHEMA_KEYS_H
#define GRAMMAR_SCHEMA_KEYS_H

#include "grammar/schema_internal.h"

/* fact.max of things to take that are no schemas: v names a member that is there (neg: is not), or
 * whose value does not match the schema at. */
enum { MEMBER = 1, VALUE_OF = 2 };

/* Is m a keyword that can fail by itself? */
bool grammar_key_says(const struct json *m);
/* Take the keyword l->v of the schema l->at; neg: it must not hold. false: nothing can match. */
bool grammar_key_take(struct schema *x, struct facts *f, const struct fact *l);
/* Is v one of the values of an enum or const? */
bool grammar_value_in(const struct fact *list, const struct json *v);

/* ---- schema_open.c ---- */
bool grammar_key_ref(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_not(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_all_of(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_any_of(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_one_of(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_if(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_dependent(struct schema *x, struct facts *f, const struct fact *l, bool neg);
bool grammar_key_not_properties(struct schema *x, struct facts *f, const struct fact *l);
bool grammar_key_not_required(struct schema *x, struct facts *f, const struct fact *l);

#endif
