/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/chat/completions. */
#include <string.h>

#include "api/api_internal.h"

struct choice {
    struct str text, reason; /* whole answers; streams give their pieces away */
    struct str logprobs;     /* entries with commas between them */
    int32_t *ids;
    int n_ids, cap_ids;
    int finish;
    bool begun;
};

struct chat {
    struct api_gen g;
    struct api_prompt prompt;
    struct choice *choice; /* [g.n] */
    struct str head, tmp;  /* of every chunk, up to the choice's index */
};

static bool keep_id(struct choice *c, int32_t id)
{
    void *p = NULL;
    if (c->n_ids == c->cap_ids) {
        int cap = c->cap_ids ? 2 * c->cap_ids : 64;
        if (mem_realloc(MEM_REQUEST, c->ids, (size_t)cap * sizeof id, &p, NULL)) return false;
        c->ids = p;
        c->cap_ids = cap;
    }
    c->ids[c->n_ids++] = id;
    return true;
}

/* ---- streams ---- */

static void chunk_head(struct api_job *j, struct chat *c)
{
    struct json_w w;
    text_jw_init(&w, &c->head);
    text_jw_obj(&w);
    api_put_head(&w, j, "chat.completion.chunk");
    str_puts(&c->head, ",\"choices\":[");
}

static void chunk_open(struct api_job *j, struct str *out, int index)
{
    struct chat *c = j->user;
    if (!c->head.n) chunk_head(j, c);
    str_puts(out, "data: ");
    str_put(out, c->head.p, c->head.n);
    if (index >= 0) str_printf(out, "{\"index\":%d,\"delta\":{", index);
}

/* finish: -1 = not yet. Logprobs and ids of the event with the content. */
static void chunk_close(struct api_job *j, struct str *out, const struct api_event *ev, int finish)
{
    struct chat *c = j->user;
    str_puts(out, "},\"logprobs\":");
    if (c->g.logprobs && ev && ev->token >= 0 && ev->finish != SL_FINISH_STOP) {
        struct json_w w;
        str_puts(out, "{\"content\":[");
        text_jw_init(&w, out);
        api_put_logprob(j->a, &w, ev);
        str_puts(out, "],\"refusal\":null}");
    } else
        str_puts(out, "null");
    if (c->g.return_ids && ev && ev->token >= 0) str_printf(out, ",\"token_ids\":[%d]", ev->token);
    if (finish >= 0)
        str_printf(out, ",\"finish_reason\":\"%s\"}]", api_finish_text(finish));
    else
        str_puts(out, ",\"finish_reason\":null}]");
    if (c->g.continuous_usage && ev)
        str_printf(out,
                   ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
                   ev->n_prompt, ev->n_token, ev->n_prompt + ev->n_token);
    else if (c->g.include_usage)
        str_puts(out, ",\"usage\":null");
    str_puts(out, "}\n\n");
}

static void stream_text(struct api_job *j, struct choice *ch, const struct api_event *ev,
                        struct str *out)
{
    struct chat *c = j->user;
    if (!ch->begun) {
        chunk_open(j, out, ev->index);
        str_puts(out, "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null");
        chunk_close(j, out, NULL, -1);
        ch->begun = true;
    }
    if (!ev->n_text && !c->g.logprobs && !c->g.return_ids && !c->g.continuous_usage) return;
    if (ev->token < 0 && !ev->n_text) return;
    chunk_open(j, out, ev->index);
    str_puts(out, "\"content\":\"");
    text_json_escape(out, ev->text, (size_t)ev->n_text);
    str_putc(out, '"');
    chunk_close(j, out, ev, -1);
}

static void progress(const struct api_event *ev, struct str *out)
{
    if (ev->n_done < ev->n_prompt) str_printf(out, ": prefill %d/%d\n\n", ev->n_done, ev->n_prompt);
}

static void event(struct api_job *j, const struct api_event *ev, struct str *out)
{
    struct chat *c = j->user;
    struct choice *ch = &c->choice[ev->index];
    if (ev->token < 0 && ev->finish == SL_FINISH_NONE && !ev->n_text) {
        if (out) progress(ev, out);
        return;
    }
    if (out) {
        stream_text(j, ch, ev, out);
        if (ev->finish == SL_FINISH_NONE) return;
        chunk_open(j, out, ev->index);
        chunk_close(j, out, NULL, ev->finish);
        return;
    }
    str_put(&ch->text, ev->text, (size_t)ev->n_text);
    if (c->g.return_ids && ev->token >= 0) (void)keep_id(ch, ev->token);
    if (c->g.logprobs && ev->token >= 0 && ev->finish != SL_FINISH_STOP) {
        struct json_w w;
        if (ch->logprobs.n) str_putc(&ch->logprobs, ',');
        text_jw_init(&w, &ch->logprobs);
        api_put_logprob(j->a, &w, ev);
    }
    if (ev->finish != SL_FINISH_NONE) ch->finish = ev->finish;
}

/* ---- the end ---- */

static void end_stream(struct api_job *j, struct str *out)
{
    struct chat *c = j->user;
    struct json_w w;
    if (c->g.include_usage) {
        struct str s;
        str_init(&s, MEM_REQUEST, 0);
        text_jw_init(&w, &s);
        text_jw_obj(&w);
        api_put_head(&w, j, "chat.completion.chunk");
        text_jw_key(&w, "choices");
        text_jw_arr(&w);
        text_jw_arr_end(&w);
        api_put_usage(&w, j);
        api_put_timings(&w, j);
        text_jw_obj_end(&w);
        api_sse(out, &s);
        str_fini(&s);
    }
    str_puts(out, "data: [DONE]\n\n");
}

static void put_choice(struct json_w *w, struct chat *c, int i)
{
    struct choice *ch = &c->choice[i];
    text_jw_obj(w);
    text_jw_key(w, "index");
    text_jw_int(w, i);
    text_jw_key(w, "message");
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, "assistant");
    text_jw_key(w, "content");
    text_jw_str(w, str_c(&ch->text), ch->text.n);
    text_jw_key(w, "refusal");
    text_jw_null(w);
    text_jw_obj_end(w);
    text_jw_key(w, "logprobs");
    if (c->g.logprobs) {
        str_puts(w->out, "{\"content\":[");
        str_put(w->out, str_c(&ch->logprobs), ch->logprobs.n);
        str_puts(w->out, "],\"refusal\":null}");
    } else
        text_jw_null(w);
    if (c->g.return_ids) api_put_ids(w, "token_ids", ch->ids, ch->n_ids);
    text_jw_key(w, "finish_reason");
    text_jw_strz(w, api_finish_text(ch->finish));
    text_jw_obj_end(w);
}

static void end(struct api_job *j, struct str *out)
{
    struct chat *c = j->user;
    struct json_w w;
    struct str s;
    if (out) {
        end_stream(j, out);
        return;
    }
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    api_put_head(&w, j, "chat.completion");
    text_jw_key(&w, "choices");
    text_jw_arr(&w);
    for (int i = 0; i < c->g.n; i++)
        put_choice(&w, c, i);
    text_jw_arr_end(&w);
    api_put_usage(&w, j);
    if (c->g.return_ids) api_put_ids(&w, "prompt_token_ids", c->prompt.ids, c->prompt.n_ids);
    api_put_timings(&w, j);
    text_jw_obj_end(&w);
    net_reply(j->r, 200, API_JSON, &s);
}

static void fini(struct api_job *j)
{
    struct chat *c = j->user;
    for (int i = 0; i < c->g.n; i++) {
        str_fini(&c->choice[i].text);
        str_fini(&c->choice[i].reason);
        str_fini(&c->choice[i].logprobs);
        mem_free(c->choice[i].ids);
    }
    str_fini(&c->head);
}

static const struct api_fmt fmt = {event, end, fini};

sl_status api_chat(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL;
    void *p = NULL;
    SL_TRY(api_body_parse(r, API_CHAT, &body, err));
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct chat), &p, err));
    struct chat *c = p;
    SL_TRY(api_gen_parse(a, r, body, API_CHAT, &c->g, err));
    SL_TRY(mem_arena_array(&r->arena, (size_t)c->g.n, sizeof *c->choice, &p, err));
    c->choice = p;
    str_init(&c->head, MEM_REQUEST, 0);
    for (int i = 0; i < c->g.n; i++) {
        str_init(&c->choice[i].text, MEM_REQUEST, 0);
        str_init(&c->choice[i].reason, MEM_REQUEST, 0);
        str_init(&c->choice[i].logprobs, MEM_REQUEST, 0);
    }
    net_random_id("chatcmpl-", c->g.id);
    SL_TRY(api_chat_prompt(a, r, body, &c->prompt, err));
    return api_job_start(a, r, &c->g, &c->prompt, 1, &fmt, c, err);
}
