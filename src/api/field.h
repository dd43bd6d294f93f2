/* SPDX-License-Identifier: Apache-2.0 */
/* Request fields: one table (field_list.h, field_messages.h, field_tokens.h) says what each is, and
 * these read it. */
#ifndef API_FIELD_H
#define API_FIELD_H

#include "api/field_list.h"
#include "api/field_messages.h"
#include "api/field_tokens.h"
#include "text/json.h"

enum {
    API_CHAT = 1,
    API_TEXT = 2,
    API_RESPONSES = 4,
    API_EMBED = 8,
    API_MESSAGES = 16,
    API_TOKENIZE = 32, /* with messages also API_CHAT's */
    API_DETOKENIZE = 64
};
enum api_field_type { API_BOOL, API_INT, API_REAL, API_STR, API_OBJ, API_ANY };
enum api_field_what { API_USE, API_SKIP, API_DENY };

struct api_field {
    int routes;
    const char *name;
    enum api_field_type type;
    double min, max;
    enum api_field_what what;
    const char *note;
    const char *code; /* of a refusal that clients know how to answer; NULL = none */
};
/* All rows, static; *n: how many. */
const struct api_field *api_field_table(int *n);

/* Check every member of body against the table for one route (API_CHAT, ...). unknown: NULL, or
 * where the names of fields that the table lacks go instead of being an error, ", " between them.
 * Errors: REQUEST, the text begins with the field's name and a colon. */
sl_status api_fields_check(const struct json *body, int route, struct str *unknown,
                           sl_err *err) BASE_MUST_USE;
/* The same of an object inside: a member that is none of the "|"-separated names is an error, but
 * for one whose value means nothing. o may be NULL, and is passed over where it is no object. */
sl_status api_members_check(const struct json *o, const char *path, const char *names,
                            sl_err *err) BASE_MUST_USE;
/* The row of the field that an error's text begins with, where its refusal has a code; else NULL.
 */
const struct api_field *api_field_refused(const char *text, int route);
/* Does a value mean nothing: null, false, or nothing in it? */
bool api_field_empty(const struct json *v);
bool api_name_in(const char *names, const char *name); /* is it one of "|"-separated ones? */
/* A member's name as it may stand in a message and a header: at most 60 bytes of letters, digits
 * and _ . -, ? for others. */
void api_field_name(struct str *out, const char *name);

/* Values after the check; def where absent or null. Of integers from 2^63 on: their bits. */
int64_t api_field_int(const struct json *body, const char *name, int64_t def);
double api_field_real(const struct json *body, const char *name, double def);
bool api_field_bool(const struct json *body, const char *name, bool def);
const char *api_field_str(const struct json *body, const char *name, const char *def);
/* NULL where absent or null. */
const struct json *api_field(const struct json *body, const char *name);
/* Write into an open object, as they are, those of the n members that are neither absent nor
 * null. */
void api_fields_put(struct json_w *w, const struct json *body, const char *const *name, int n);

/* REQUEST, with its path (path.name; path may be empty), when o has a member name that is neither
 * null nor of that kind. o may be NULL. */
sl_status api_field_kind(const struct json *o, const char *path, const char *name,
                         enum json_kind kind, sl_err *err) BASE_MUST_USE;

/* The table as Markdown: that of the routes after OpenAI, that of /v1/messages, and that of
 * /tokenize and /detokenize. */
void api_fields_print(struct str *out);
void api_fields_print_messages(struct str *out);
void api_fields_print_tokens(struct str *out);

#endif
