/* SPDX-License-Identifier: Apache-2.0 */
/* Which kinds of value the arguments of tools may have, from their schemas: some families write
 * arguments without quotes, so that "5" and 5 look alike. */
#include <string.h>

#include "api/parse_internal.h"

#define MAX_DEPTH 8 /* of references and unions that are followed */

struct api_parse_type {
    size_t name, n_name, key, n_key; /* in text */
    unsigned kinds;
};

static unsigned kind_of_type(const struct json *v)
{
    static const struct {
        const char *name;
        unsigned bit;
    } row[] = {{"string", API_PARSE_STR},   {"number", API_PARSE_NUM}, {"integer", API_PARSE_NUM},
               {"boolean", API_PARSE_BOOL}, {"null", API_PARSE_NULL},  {"object", API_PARSE_OBJ},
               {"array", API_PARSE_ARR}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (text_json_is(v, row[i].name)) return row[i].bit;
    return 0;
}

static unsigned kind_of_value(const struct json *v)
{
    switch (v->kind) {
    case JSON_STR_K:
        return API_PARSE_STR;
    case JSON_BOOL_K:
        return API_PARSE_BOOL;
    case JSON_NULL_K:
        return API_PARSE_NULL;
    case JSON_ARRAY_K:
        return API_PARSE_ARR;
    case JSON_OBJECT_K:
        return API_PARSE_OBJ;
    default:
        return API_PARSE_NUM;
    }
}

const struct json *api_parse_ref(const struct json *root, const char *ref)
{
    char part[128];
    const struct json *v = root;
    if (ref[0] != '#') return NULL;
    for (const char *p = ref + 1; *p == '/' && v;) {
        size_t n = strcspn(++p, "/");
        if (n >= sizeof part) return NULL;
        memcpy(part, p, n);
        part[n] = 0;
        v = text_json_get(v, part);
        p += n;
    }
    return v;
}

static unsigned kinds_at(const struct json *s, const struct json *root, int depth)
{
    static const char *const any[] = {"anyOf", "oneOf"};
    const struct json *v;
    unsigned kinds = 0;
    if (!s || s->kind != JSON_OBJECT_K || depth > MAX_DEPTH) return 0;
    if ((v = text_json_get(s, "$ref")) && v->kind == JSON_STR_K)
        return kinds_at(api_parse_ref(root, v->s), root, depth + 1);
    if ((v = text_json_get(s, "type")) && v->kind == JSON_STR_K) return kind_of_type(v);
    if (v && v->kind == JSON_ARRAY_K) {
        for (const struct json *t = v->child; t; t = t->next)
            kinds |= kind_of_type(t);
        return kinds;
    }
    if ((v = text_json_get(s, "const"))) return kind_of_value(v);
    if ((v = text_json_get(s, "enum")) && v->kind == JSON_ARRAY_K) {
        for (const struct json *e = v->child; e; e = e->next)
            kinds |= kind_of_value(e);
        return kinds;
    }
    for (int i = 0; i < BASE_COUNT_OF(any); i++) {
        v = text_json_get(s, any[i]);
        for (const struct json *e = v && v->kind == JSON_ARRAY_K ? v->child : NULL; e;
             e = e->next) {
            unsigned one = kinds_at(e, root, depth + 1);
            if (!one) return 0;
            kinds |= one;
        }
        if (kinds) return kinds;
    }
    v = text_json_get(s, "allOf");
    for (const struct json *e = v && v->kind == JSON_ARRAY_K ? v->child : NULL; e && !kinds;
         e = e->next)
        kinds = kinds_at(e, root, depth + 1);
    return kinds;
}

unsigned api_parse_kinds(const struct json *schema, const struct json *root)
{
    return kinds_at(schema, root, 0);
}

static sl_status add(struct api_parse_types *t, const struct json *name, const struct json *prop,
                     const struct json *root, sl_err *err)
{
    void *p = NULL;
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 16;
        SL_TRY(mem_realloc(MEM_REQUEST, t->v, (size_t)cap * sizeof *t->v, &p, err));
        t->v = p;
        t->cap = cap;
    }
    struct api_parse_type *x = &t->v[t->n++];
    *x = (struct api_parse_type){.name = t->text.n,
                                 .n_name = name->n,
                                 .key = t->text.n + name->n,
                                 .n_key = strlen(prop->key),
                                 .kinds = api_parse_kinds(prop, root)};
    str_put(&t->text, name->s, name->n);
    str_puts(&t->text, prop->key);
    return str_status(&t->text, err);
}

sl_status api_parse_types_read(struct api_parse_types *t, const struct json *tools, sl_err *err)
{
    str_init(&t->text, MEM_REQUEST, 0);
    if (!tools || tools->kind != JSON_ARRAY_K) return SL_OK;
    for (const struct json *x = tools->child; x; x = x->next) {
        const struct json *f = text_json_get(x, "function"),
                          *name = text_json_get(f ? f : x, "name"),
                          *root = text_json_get(f ? f : x, "parameters"),
                          *props = root ? text_json_get(root, "properties") : NULL;
        if (!name || name->kind != JSON_STR_K || !props || props->kind != JSON_OBJECT_K) continue;
        for (const struct json *p = props->child; p; p = p->next)
            SL_TRY(add(t, name, p, root, err));
    }
    return SL_OK;
}

void api_parse_types_fini(struct api_parse_types *t)
{
    str_fini(&t->text);
    mem_free(t->v);
}

unsigned api_parse_types_of(const struct api_parse_types *t, const struct str *name,
                            const struct str *key)
{
    for (int i = 0; i < t->n; i++) {
        const struct api_parse_type *x = &t->v[i];
        if (x->n_name == name->n && x->n_key == key->n && name->n && key->n &&
            memcmp(t->text.p + x->name, name->p, name->n) == 0 &&
            memcmp(t->text.p + x->key, key->p, key->n) == 0)
            return x->kinds;
    }
    return 0;
}
