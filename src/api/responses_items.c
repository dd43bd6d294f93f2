/* SPDX-License-Identifier: Apache-2.0 */
/* What went into a stored response, item by item: GET /v1/responses/ID/input_items. */
#include <stdlib.h>
#include <string.h>

#include "api/responses.h"

#define ROUTE_HEAD "/v1/responses/"
#define ROUTE_TAIL "/input_items"
#define LIMIT_MAX 100

/* ---- kept with a response ---- */

/* The id that the client gave, as it does with items of earlier answers, or a new one. */
static void put_id(struct json_w *w, const struct json *it, const char *type)
{
    static const struct {
        const char *type, *prefix;
    } row[] = {{"message", "msg_"},
               {"function_call", "fc_"},
               {"function_call_output", "fco_"},
               {"custom_tool_call", "ctc_"},
               {"custom_tool_call_output", "ctco_"},
               {"reasoning", "rs_"}};
    const struct json *given = it ? api_field(it, "id") : NULL;
    char id[48] = "";
    text_jw_key(w, "id");
    if (given && given->kind == JSON_STR_K && given->n > 0) {
        text_jw_node(w, given);
        return;
    }
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (strcmp(type, row[i].type) == 0) net_random_id(row[i].prefix, id);
    if (!id[0]) net_random_id("item_", id);
    text_jw_strz(w, id);
}

/* Text as the one part of a message's content. */
static void put_content(struct json_w *w, const struct json *text, bool answer)
{
    text_jw_arr(w);
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, answer ? "output_text" : "input_text");
    text_jw_key(w, "text");
    text_jw_node(w, text);
    if (answer) {
        text_jw_key(w, "annotations");
        text_jw_arr(w);
        text_jw_arr_end(w);
    }
    text_jw_obj_end(w);
    text_jw_arr_end(w);
}

/* What every item begins with. */
static void put_head(struct json_w *w, const struct json *it, const char *type, const char *status)
{
    text_jw_obj(w);
    put_id(w, it, type);
    text_jw_key(w, "type");
    text_jw_strz(w, type);
    text_jw_key(w, "status");
    text_jw_strz(w, status);
}

static void put_item(struct json_w *w, const struct json *it)
{
    const char *type = api_field_str(it, "type", "message");
    bool answer = strcmp(api_field_str(it, "role", ""), "assistant") == 0;
    put_head(w, it, type, api_field_str(it, "status", "completed"));
    for (const struct json *v = it->child; v; v = v->next) {
        if (!strcmp(v->key, "id") || !strcmp(v->key, "type") || !strcmp(v->key, "status")) continue;
        text_jw_key(w, v->key);
        if (strcmp(v->key, "content") == 0 && v->kind == JSON_STR_K)
            put_content(w, v, answer);
        else
            text_jw_node(w, v);
    }
    text_jw_obj_end(w);
}

void api_resp_put_input(struct str *out, const struct json *in)
{
    struct json_w w;
    bool text = in->kind == JSON_STR_K;
    for (const struct json *it = text ? in : in->child; it; it = text ? NULL : it->next) {
        if (out->n) str_putc(out, ',');
        text_jw_init(&w, out);
        if (!text) {
            put_item(&w, it);
            continue;
        }
        put_head(&w, NULL, "message", "completed");
        text_jw_key(&w, "role");
        text_jw_strz(&w, "user");
        text_jw_key(&w, "content");
        put_content(&w, it, false);
        text_jw_obj_end(&w);
    }
}

/* ---- the list ---- */

struct page {
    const struct json *all;
    size_t first, n; /* of all, counted from the end when backward */
    bool backward;
};

static const struct json *item_at(const struct page *p, size_t i)
{
    return p->all->item[p->backward ? p->all->n - 1 - i : i];
}

static sl_status read_page(struct net_req *r, struct page *p, sl_err *err)
{
    const char *limit = net_req_arg(r, "limit"), *order = net_req_arg(r, "order"),
               *after = net_req_arg(r, "after");
    char *end = NULL;
    long most = limit ? strtol(limit, &end, 10) : 20;
    if (limit && (end == limit || *end || most < 1 || most > LIMIT_MAX))
        return SL_FAIL(err, REQUEST, "limit: must be a number from 1 to %d", LIMIT_MAX);
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return SL_FAIL(err, REQUEST, "order: must be asc or desc");
    p->backward = !order || strcmp(order, "desc") == 0;
    if (after) {
        while (p->first < p->all->n &&
               !text_json_is(text_json_get(item_at(p, p->first), "id"), after))
            p->first++;
        if (p->first++ == p->all->n)
            return SL_FAIL(err, REQUEST, "after: this response has no such item");
    }
    p->n = BASE_MIN((size_t)most, p->all->n - p->first);
    return SL_OK;
}

static void put_edge(struct json_w *w, const struct page *p, const char *key, size_t i)
{
    text_jw_key(w, key);
    if (p->n)
        text_jw_node(w, text_json_get(item_at(p, i), "id"));
    else
        text_jw_null(w);
}

static void put_page(struct str *out, const struct page *p)
{
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "object");
    text_jw_strz(&w, "list");
    text_jw_key(&w, "data");
    text_jw_arr(&w);
    for (size_t i = 0; i < p->n; i++)
        text_jw_node(&w, item_at(p, p->first + i));
    text_jw_arr_end(&w);
    put_edge(&w, p, "first_id", p->first);
    put_edge(&w, p, "last_id", p->first + p->n - 1);
    text_jw_key(&w, "has_more");
    text_jw_bool(&w, p->first + p->n < p->all->n);
    text_jw_obj_end(&w);
}

/* The items of input, which is a list without its brackets. */
static sl_status parse(struct net_req *r, const struct api_stored *s, const struct json **out,
                       sl_err *err)
{
    struct str all;
    str_init(&all, MEM_REQUEST, 0);
    str_putc(&all, '[');
    str_put(&all, s->items, s->n_input);
    str_putc(&all, ']');
    sl_status st = str_status(&all, err);
    if (!st) st = text_json_parse(&r->arena, "response store", str_c(&all), all.n, out, err);
    str_fini(&all);
    return st;
}

sl_status api_response_input(api *a, struct net_req *r, sl_err *err)
{
    struct api_stored s;
    struct page p = {0};
    struct str out;
    char *id = NULL, key[64];
    size_t n = strlen(r->path) - strlen(ROUTE_HEAD) - strlen(ROUTE_TAIL);
    SL_TRY(mem_arena_str(&r->arena, r->path + strlen(ROUTE_HEAD), n, &id, err));
    api_key_name(a, r->key, key);
    sl_status st = api_store_get(a, id, key, &r->arena, &s, err);
    if (!st && !s.n_input)
        st = SL_FAIL(err, NOTFOUND, "an older version stored \"%.80s\" without its input", id);
    if (st) return api_resp_not_found(a, r, st, err);
    SL_TRY(parse(r, &s, &p.all, err));
    SL_TRY(read_page(r, &p, err));
    str_init(&out, MEM_REQUEST, 0);
    put_page(&out, &p);
    net_reply(r, 200, API_JSON, &out);
    return SL_OK;
}
