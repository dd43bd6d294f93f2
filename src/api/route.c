/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of routes. What is not in it is 404, and with keys 401 before that. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"

#define KB 1024
#define BIG ((size_t)8 << 20) /* cut further by the context's length: api_body_max */

static const struct api_route table[] = {
    {"GET", "/health", API_OPEN | API_HERE | API_ANY_HOST, 0, api_health, NULL},
    {"GET", "/ready", API_OPEN | API_HERE | API_ANY_HOST, 0, api_ready, NULL},
    {"GET", "/version", API_HERE, 0, api_version, NULL},
    {"POST", "/admin/place", API_HERE | API_ADMIN, 1024, api_place, NULL},
    {"GET", "/metrics", API_HERE | API_METRICS, 0, api_metrics_get, NULL},
    {"GET", "/", API_OPEN | API_HERE | API_UI, 0, api_page, NULL},
    {"GET", "/app.js", API_OPEN | API_HERE | API_UI, 0, api_page, NULL},
    {"GET", "/live.js", API_OPEN | API_HERE | API_UI, 0, api_page, NULL},
    {"GET", "/text.js", API_OPEN | API_HERE | API_UI, 0, api_page, NULL},
    {"GET", "/style.css", API_OPEN | API_HERE | API_UI, 0, api_page, NULL},
    {"GET", "/icon.svg", API_OPEN | API_HERE | API_UI, 0, api_page, NULL},
    {"GET", "/v1/models", API_HERE, 0, api_models, NULL},
    {"GET", "/v1/models/*", API_HERE, 0, api_model_get, NULL},
    {"POST", "/v1/chat/completions", API_GEN, BIG, api_chat, "messages"},
    {"POST", "/v1/completions", API_GEN, BIG, api_completions, "prompt"},
    {"POST", "/v1/responses", API_GEN, BIG, api_responses, "input"},
    {"GET", "/v1/responses/*/input_items", 0, 0, api_response_input, NULL},
    {"GET", "/v1/responses/*", 0, 0, api_response_get, NULL},
    {"DELETE", "/v1/responses/*", 0, 0, api_response_delete, NULL},
    {"POST", "/v1/messages", API_GEN, BIG, api_messages, "messages"},
    {"POST", "/v1/messages/count_tokens", 0, BIG, api_count_tokens, "messages"},
    {"POST", "/v1/embeddings", API_GEN, BIG, api_embeddings, "input"},
    {"POST", "/tokenize", 0, BIG, api_tokenize, NULL},
    {"POST", "/detokenize", 0, BIG, api_detokenize, NULL},
    {"POST", "/apply-template", 0, BIG, api_apply_template, NULL},
};

static bool known(const char *path);

/* Names that other servers have for these paths. */
static const char *other_name(const char *path)
{
    static const char *const row[][2] = {{"/healthz", "/health"},
                                         {"/livez", "/health"},
                                         {"/ping", "/health"},
                                         {"/readyz", "/ready"}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (strcmp(path, row[i][0]) == 0) return row[i][1];
    return path;
}

/* The path without a slash at its end, with /v1 in front or without it, where there is one such. */
sl_status api_route_path(struct net_req *r, sl_err *err)
{
    char path[API_PATH], tried[API_PATH];
    char *copy = NULL;
    size_t n = strlen(r->path);
    if (n + 4 > API_PATH || known(r->path)) return SL_OK;
    memcpy(path, r->path, n + 1);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = 0;
    snprintf(tried, sizeof tried, "%s", other_name(path));
    if (!known(tried) && strncmp(path, "/v1/", 4) == 0)
        snprintf(tried, sizeof tried, "%s", other_name(path + 3));
    else if (!known(tried))
        snprintf(tried, sizeof tried, "/v1%s", path);
    if (!known(tried) || strcmp(tried, "/") == 0) return SL_OK;
    SL_TRY(mem_arena_str(&r->arena, tried, strlen(tried), &copy, err));
    r->path = copy;
    return SL_OK;
}

const struct api_route *api_route_table(int *n)
{
    *n = BASE_COUNT_OF(table);
    return table;
}

/* A * stands for anything of at least one byte. */
static bool fits(const char *want, const char *path)
{
    const char *star = strchr(want, '*');
    if (!star) return strcmp(path, want) == 0;
    size_t head = (size_t)(star - want), tail = strlen(star + 1), n = strlen(path);
    return n > head + tail && strncmp(path, want, head) == 0 &&
           strcmp(path + n - tail, star + 1) == 0;
}

/* Files of the page have no other names. */
static bool known(const char *path)
{
    for (int i = 0; i < BASE_COUNT_OF(table); i++)
        if (!(table[i].flags & API_UI) && fits(table[i].path, path)) return true;
    return false;
}

const struct api_route *api_route_find(const char *method, const char *path, bool *path_known)
{
    bool head = strcmp(method, "HEAD") == 0;
    *path_known = false;
    for (int i = 0; i < BASE_COUNT_OF(table); i++) {
        const struct api_route *t = &table[i];
        if (!fits(t->path, path)) continue;
        *path_known = true;
        if (strcmp(method, t->method) == 0 || (head && strcmp(t->method, "GET") == 0)) return t;
    }
    return NULL;
}

void api_route_allow(const char *path, char out[static API_ALLOW])
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < BASE_COUNT_OF(table); i++) {
        const char *m = table[i].method;
        if (!fits(table[i].path, path) || strstr(out, m) || n >= API_ALLOW) continue;
        n += (size_t)snprintf(out + n, API_ALLOW - n, "%s%s%s", n ? ", " : "", m,
                              strcmp(m, "GET") == 0 ? ", HEAD" : "");
    }
}
