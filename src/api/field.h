/* SPDX-License-Identifier: Apache-2.0 */
/* Request fields: one table (field_list.h, field_messages.h) says what each is, and these
 * read it. */
#ifndef API_FIELD_H
#define API_FIELD_H

#include "api/field_list.h"
#include "api/field_messages.h"
#include "text/json.h"

enum { API_CHAT = 1, API_TEXT = 2, API_RESPONSES = 4, API_EMBED = 8, API_MESSAGES = 16 };
enum api_field_type { API_BOOL, API_INT, API_REAL, API_STR, API_OBJ, API_ANY };
enum api_field_what { API_USE, API_SKIP, API_DENY };

struct api_field {
    int routes;
    const char *name;
    enum api_field_type type;
    double min, max;
    enum api_field_what what;
    const char *note;
};
const struct api_field *api_field_table(int *n);

/* Check every member of body against the table for one route (API_CHAT, ...). Errors: REQUEST, the
 * text begins with the field's name and a colon. */
sl_status api_fields_check(const struct json *body, int route, sl_err *err) BASE_MUST_USE;

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

/* The table as Markdown: that of the routes after OpenAI, and that of /v1/messages. */
void api_fields_print(struct str *out);
void api_fields_print_messages(struct str *out);

#endif
