/* SPDX-License-Identifier: Apache-2.0 */
/* The response object. */
#include "api/responses.h"

#include <string.h>

static void put_error(struct json_w *w, const struct api_job *j, bool is)
{
    text_jw_key(w, "error");
    if (!is) {
        text_jw_null(w);
        return;
    }
    text_jw_obj(w);
    text_jw_key(w, "code");
    text_jw_strz(w, api_error_http(&j->err) == 429 ? api_error_code(&j->err) : "server_error");
    text_jw_key(w, "message");
    text_jw_strz(w, api_error_text(&j->err));
    text_jw_obj_end(w);
}

static void put_usage(struct json_w *w, const struct api_job *j, bool done)
{
    text_jw_key(w, "usage");
    if (!done) {
        text_jw_null(w);
        return;
    }
    text_jw_obj(w);
    text_jw_key(w, "input_tokens");
    text_jw_int(w, j->n_prompt_tok);
    text_jw_key(w, "input_tokens_details");
    text_jw_obj(w);
    api_put_cached(w, j);
    text_jw_obj_end(w);
    text_jw_key(w, "output_tokens");
    text_jw_int(w, j->n_answer_tok);
    text_jw_key(w, "output_tokens_details");
    text_jw_obj(w);
    text_jw_key(w, "reasoning_tokens");
    text_jw_int(w, BASE_MAX(j->n_reason_tok, 0));
    text_jw_obj_end(w);
    text_jw_key(w, "total_tokens");
    text_jw_int(w, j->n_prompt_tok + j->n_answer_tok);
    text_jw_obj_end(w);
}

/* As they were sent, but for what lets a server of MCP in. */
static void put_tools(struct json_w *w, const struct json *tools)
{
    text_jw_arr(w);
    for (const struct json *t = tools->child; t; t = t->next) {
        bool mcp = text_json_is(text_json_get(t, "type"), "mcp");
        text_jw_obj(w);
        for (const struct json *v = t->child; v; v = v->next) {
            if (mcp && api_name_in("authorization|headers", v->key)) continue;
            text_jw_key(w, v->key);
            text_jw_node(w, v);
        }
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

/* Members that are given back as they were sent. */
static void put_sent(struct json_w *w, const struct json *body)
{
    static const struct {
        const char *key, *def; /* as JSON */
    } row[] = {{"instructions", "null"},
               {"max_output_tokens", "null"},
               {"previous_response_id", "null"},
               {"parallel_tool_calls", "true"},
               {"temperature", "1.0"},
               {"top_p", "1.0"},
               {"tool_choice", "\"auto\""},
               {"tools", "[]"},
               {"text", "{\"format\":{\"type\":\"text\"}}"},
               {"reasoning", "{\"effort\":null,\"summary\":null}"},
               {"truncation", "\"disabled\""},
               {"metadata", "{}"},
               {"user", "null"}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        const struct json *v = api_field(body, row[i].key);
        text_jw_key(w, row[i].key);
        if (v && strcmp(row[i].key, "tools") == 0)
            put_tools(w, v);
        else if (v)
            text_jw_node(w, v);
        else
            text_jw_raw(w, row[i].def, strlen(row[i].def));
    }
}

void api_resp_put(struct json_w *w, struct api_job *j, const char *status)
{
    const struct api_resp *p = j->user;
    bool done = strcmp(status, "in_progress") != 0, cut = strcmp(status, "incomplete") == 0;
    text_jw_obj(w);
    text_jw_key(w, "id");
    text_jw_strz(w, p->g.id);
    text_jw_key(w, "object");
    text_jw_strz(w, "response");
    text_jw_key(w, "created_at");
    text_jw_int(w, p->g.created);
    text_jw_key(w, "status");
    text_jw_strz(w, status);
    text_jw_key(w, "background");
    text_jw_bool(w, false);
    put_error(w, j, j->failed);
    text_jw_key(w, "incomplete_details");
    if (cut) {
        text_jw_obj(w);
        text_jw_key(w, "reason");
        text_jw_strz(w, "max_output_tokens");
        text_jw_obj_end(w);
    } else
        text_jw_null(w);
    text_jw_key(w, "model");
    text_jw_strz(w, j->g->model);
    text_jw_key(w, "output");
    text_jw_arr(w);
    api_put_json(w, &p->items);
    text_jw_arr_end(w);
    text_jw_key(w, "store");
    text_jw_bool(w, p->store);
    put_sent(w, p->body);
    put_usage(w, j, done && !j->failed);
    text_jw_obj_end(w);
}
