/* SPDX-License-Identifier: Apache-2.0 */
/* $ref: JSON pointers, $anchor, and $id of schemas inside this one. Nothing is fetched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

#define MAX_RES 4096
#define MAX_URI 1024

struct resource {                /* a schema that $id or $anchor names, or one with a $ref */
    const struct json *v, *base; /* base: the nearest schema with an $id around v, v included */
    const char *uri;             /* of base; "" = none */
    const char *anchor;          /* NULL = none */
    const char *path;
};

/* uri, seen from base, without its fragment: as far as schemas need it. */
static void resolve(const char *base, const char *uri, char out[MAX_URI])
{
    size_t n = strcspn(uri, "#"), scheme = strcspn(uri, ":/?#");
    const char *slashes = strstr(base, "://"), *end = base + strlen(base);
    if (n == 0) {
        snprintf(out, MAX_URI, "%s", base);
        return;
    }
    if (uri[scheme] == ':' || !slashes) {
        snprintf(out, MAX_URI, "%.*s", (int)BASE_MIN(n, (size_t)MAX_URI - 1), uri);
        return;
    }
    const char *path = slashes + 3 + strcspn(slashes + 3, "/");
    if (uri[0] != '/') { /* beside the last part of the path */
        const char *last = strrchr(path, '/');
        end = last ? last + 1 : end;
    } else {
        end = path;
    }
    if (strncmp(uri, "./", 2) == 0) {
        uri += 2;
        n -= 2;
    }
    snprintf(out, MAX_URI, "%.*s%s%.*s", (int)(end - base), base, *path || uri[0] == '/' ? "" : "/",
             (int)BASE_MIN(n, (size_t)MAX_URI - 1), uri);
}

static const char *keep(struct schema *x, const char *z)
{
    char *p = grammar_build_alloc(x->b, strlen(z) + 1, 1);
    if (p) memcpy(p, z, strlen(z) + 1);
    return p ? p : "";
}

static void add(struct schema *x, struct resource r)
{
    struct build *b = x->b;
    if (b->st || x->n_res == MAX_RES) return;
    b->st = grammar_grow(&x->res, &x->cap_res, (uint64_t)x->n_res + 1, sizeof *x->res, b->err);
    if (!b->st) x->res[x->n_res++] = r;
}

static const char *text_of(const struct json *v, const char *key)
{
    const struct json *s = text_json_get(v, key);
    return s && s->kind == JSON_STR_K ? s->s : NULL;
}

/* Recursion: as deep as JSON nests, which its reader limits. */
static void walk(struct schema *x, struct resource in, const struct json *v)
{
    static const char *const values[] = {"enum", "const", "default", "examples", "example"};
    if (v->kind != JSON_OBJECT_K && v->kind != JSON_ARRAY_K) return;
    if (v->kind == JSON_OBJECT_K) {
        const char *id = text_of(v, "$id"), *anchor = text_of(v, "$anchor");
        char uri[MAX_URI];
        in.v = v;
        if (!id && !text_of(v, "$ref")) id = text_of(v, "id");
        if (x->old_ref && text_of(v, "$ref")) id = NULL;
        if (id && id[0] == '#') { /* draft 6's spelling of $anchor */
            anchor = id + 1;
            id = NULL;
        }
        if (!anchor) anchor = text_of(v, "$dynamicAnchor");
        in.anchor = anchor;
        if (id) {
            resolve(in.uri, id, uri);
            in.uri = keep(x, uri);
            in.base = v;
        }
        if (id || anchor || text_of(v, "$ref")) add(x, in);
    }
    size_t i = 0;
    for (const struct json *m = v->n ? v->child : NULL; m && !x->b->st; m = m->next, i++) {
        bool value = false;
        for (int k = 0; v->kind == JSON_OBJECT_K && k < BASE_COUNT_OF(values); k++)
            value |= strcmp(m->key, values[k]) == 0 && m->kind != JSON_OBJECT_K;
        if (!value) walk(x, in, m);
    }
}

void grammar_schema_index(struct schema *x)
{
    walk(x, (struct resource){x->root, x->root, "", NULL, "#"}, x->root);
}

/* One step of a JSON pointer from p to the next slash: unescaped into out. */
static size_t pointer_step(const char *p, char *out, size_t cap)
{
    size_t n = 0, i = 0;
    while (p[i] && p[i] != '/') {
        char c = p[i++];
        unsigned v = 0;
        if (c == '%' && sscanf(p + i, "%2x", &v) == 1 && p[i + 1]) {
            c = (char)v;
            i += 2;
        } else if (c == '~' && (p[i] == '0' || p[i] == '1')) {
            c = p[i++] == '0' ? '~' : '/';
        }
        if (n + 1 < cap) out[n++] = c;
    }
    out[n] = 0;
    return i;
}

static const struct json *pointed(const struct json *v, const char *p)
{
    char key[512];
    while (*p == '/' && v) {
        p++;
        p += pointer_step(p, key, sizeof key);
        if (v->kind == JSON_ARRAY_K) {
            char *end;
            unsigned long i = strtoul(key, &end, 10);
            v = key[0] && !*end && i < v->n ? v->item[i] : NULL;
        } else {
            v = text_json_get(v, key);
        }
    }
    return v;
}

static const struct resource *resource_of(const struct schema *x, const struct json *v)
{
    for (uint32_t i = 0; i < x->n_res; i++)
        if (x->res[i].v == v) return &x->res[i];
    return NULL;
}

bool grammar_schema_ref(struct schema *x, const struct place *at, struct place *out)
{
    const struct json *r = text_json_get(at->v, "$ref"), *v = NULL;
    if (r->kind != JSON_STR_K) {
        grammar_schema_wrong(x, at, "$ref", "must be a string");
        return false;
    }
    const struct resource *here = resource_of(x, at->v);
    const char *hash = strchr(r->s, '#'), *fragment = hash ? hash + 1 : "";
    const struct json *base = here ? here->base : x->root;
    char uri[MAX_URI];
    resolve(here ? here->uri : "", r->s, uri);
    if (hash != r->s) {
        base = NULL;
        for (uint32_t i = 0; i < x->n_res && !base; i++)
            if (strcmp(x->res[i].uri, uri) == 0) base = x->res[i].base;
    }
    if (base && (*fragment == '/' || !*fragment)) v = pointed(base, fragment);
    for (uint32_t i = 0; base && *fragment && *fragment != '/' && i < x->n_res && !v; i++)
        if (x->res[i].base == base && x->res[i].anchor && !strcmp(x->res[i].anchor, fragment))
            v = x->res[i].v;
    if (!v || (v->kind != JSON_OBJECT_K && v->kind != JSON_BOOL_K)) {
        static const struct json any = {.kind = JSON_BOOL_K, .b = true};
        grammar_schema_cannot(x, at, "$ref",
                              base ? "refers to no schema"
                                   : "only references inside the schema are supported");
        *out = (struct place){&any, at->path};
        return !x->b->st;
    }
    *out = (struct place){v, r->s[0] == '#' ? r->s : at->path};
    return true;
}
