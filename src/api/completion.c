/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/completions: raw prompts, several at once, echo. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "text/utf8.h"

struct choice {
    struct str text;
    struct str token, logprob, top, offset; /* the four lists of logprobs, without brackets */
    struct str ids;
    struct api_lp lp;
    size_t n_chars; /* of text so far, for text_offset */
    struct str
        part; /* of the prompt: bytes that could still become a character with those to come */
    int finish;
    bool begun;
};

struct completion {
    struct api_gen g;
    struct api_prompts prompt;
    struct choice *choice; /* [n_choice] */
    int n_choice;
    struct str head;
};

/* ---- events ---- */

/* Count characters as a reader will: one U+FFFD for each piece that is no UTF-8. */
static void count_chars(struct choice *ch, const char *p, size_t n)
{
    struct str *s = &ch->part;
    size_t i = 0;
    int cut = 0;
    str_put(s, p, n);
    while (i < s->n) {
        uint32_t cp;
        int k = text_utf8_decode(s->p + i, s->n - i, &cp);
        if (!k) k = text_utf8_bad(s->p + i, s->n - i, &cut);
        if (cut) break;
        ch->n_chars++;
        i += (size_t)k;
    }
    api_inherit(&ch->offset, s);
    if (i) memmove(s->p, s->p + i, s->n - i);
    if (i) str_cut(s, s->n - i);
}

/* A token's text; as OpenAI's API spells them, "bytes:\xe2\x80" where it is no whole UTF-8. Each
 * token has another name: they are keys of an object. */
static void put_token_text(const api *a, struct str *out, int32_t id)
{
    struct json_w w;
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    api_token_bytes(a, id, &s);
    if (!s.n) str_printf(&s, "token_id:%d", id);
    size_t n = s.n;
    if (text_utf8_check(s.p, n) != n) {
        struct str b;
        str_init(&b, MEM_REQUEST, 0);
        str_puts(&b, "bytes:");
        for (size_t i = 0; i < n; i++)
            str_printf(&b, "\\x%02x", (unsigned char)s.p[i]);
        api_inherit(&b, &s);
        str_fini(&s);
        s = b;
    }
    text_jw_init(&w, out);
    api_put_text(&w, &s);
    str_fini(&s);
}

static void put_number(struct str *out, double v)
{
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_real(&w, v, 9);
}

static void put_top(const api *a, struct str *out, int32_t id, float logprob)
{
    put_token_text(a, out, id);
    str_putc(out, ':');
    put_number(out, (double)logprob);
}

/* Append one token to the lists; offset: characters of the text before it. */
static void add_logprob(const api *a, struct choice *ch, const struct api_event *ev, size_t offset)
{
    const char *comma = ch->token.n ? "," : "";
    bool first = ev->prompt_pos == 0; /* nothing predicted it */
    str_puts(&ch->token, comma);
    put_token_text(a, &ch->token, ev->token);
    str_puts(&ch->logprob, comma);
    str_puts(&ch->top, comma);
    str_printf(&ch->offset, "%s%zu", comma, offset);
    if (first) {
        str_puts(&ch->logprob, "null");
        str_puts(&ch->top, "null");
        return;
    }
    put_number(&ch->logprob, (double)ev->logprob);
    bool seen = ev->n_top == 0;
    str_putc(&ch->top, '{');
    for (int i = 0; i < ev->n_top; i++) {
        if (i) str_putc(&ch->top, ',');
        put_top(a, &ch->top, ev->top[i].token, ev->top[i].logprob);
        seen |= ev->top[i].token == ev->token;
    }
    if (!seen) { /* the token itself is always among them */
        str_putc(&ch->top, ',');
        put_top(a, &ch->top, ev->token, ev->logprob);
    }
    str_putc(&ch->top, '}');
}

static void put_lists(struct str *out, struct choice *ch)
{
    api_inherit(out, &ch->token);
    api_inherit(out, &ch->logprob);
    api_inherit(out, &ch->top);
    api_inherit(out, &ch->offset);
    str_printf(out, "{\"tokens\":[%s],\"token_logprobs\":[%s],", str_c(&ch->token),
               str_c(&ch->logprob));
    str_printf(out, "\"top_logprobs\":[%s],\"text_offset\":[%s]}", str_c(&ch->top),
               str_c(&ch->offset));
}

static void clear(struct choice *ch)
{
    str_clear(&ch->text);
    str_clear(&ch->token);
    str_clear(&ch->logprob);
    str_clear(&ch->top);
    str_clear(&ch->offset);
    str_clear(&ch->ids);
}

/* One choice as it stands in ch; finish NONE: null. */
static void put_choice(struct completion *c, struct str *out, struct choice *ch, int index)
{
    api_inherit(out, &ch->text);
    api_inherit(out, &ch->ids);
    str_puts(out, "{\"index\":");
    str_int(out, index);
    str_puts(out, ",\"text\":\"");
    text_json_escape(out, str_c(&ch->text), ch->text.n);
    str_puts(out, "\",\"logprobs\":");
    if (c->g.logprobs)
        put_lists(out, ch);
    else
        str_puts(out, "null");
    if (c->g.return_ids) str_printf(out, ",\"token_ids\":[%s]", str_c(&ch->ids));
    if (ch->finish != SL_FINISH_NONE)
        str_printf(out, ",\"finish_reason\":\"%s\"}", api_finish_text(ch->finish));
    else
        str_puts(out, ",\"finish_reason\":null}");
}

static void put_head(struct api_job *j, struct str *out)
{
    struct completion *c = j->user;
    if (!c->head.n) {
        struct json_w w;
        str_puts(&c->head, "data: ");
        text_jw_init(&w, &c->head);
        text_jw_obj(&w);
        api_put_head(&w, j, "text_completion");
        str_puts(&c->head, ",\"choices\":[");
    }
    api_inherit(out, &c->head);
    str_put(out, c->head.p, c->head.n);
}

/* Text that says nothing but itself: what most chunks are. */
static void put_text(struct api_job *j, struct str *out, int index, const struct api_event *ev)
{
    put_head(j, out);
    str_puts(out, "{\"index\":");
    str_int(out, index);
    str_puts(out, ",\"text\":\"");
    text_json_escape(out, ev->text, (size_t)ev->n_text);
    str_puts(out, j->g->include_usage
                      ? "\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n"
                      : "\",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void put_chunk(struct api_job *j, struct str *out, struct choice *ch, int index,
                      const struct api_event *ev)
{
    struct completion *c = j->user;
    put_head(j, out);
    put_choice(c, out, ch, index);
    str_putc(out, ']');
    if (c->g.continuous_usage)
        str_printf(out,
                   ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
                   ev->n_prompt, ev->n_token, ev->n_prompt + ev->n_token);
    else if (c->g.include_usage)
        str_puts(out, ",\"usage\":null");
    str_puts(out, "}\n\n");
    clear(ch);
}

/* The prompt's own text, in front of each of its samples. */
static void echo(struct api_job *j, struct choice *ch, int prompt)
{
    struct completion *c = j->user;
    const struct api_prompt *p = &c->prompt.v[prompt];
    if (p->text)
        str_puts(&ch->text, p->text);
    else {
        char *text = NULL;
        size_t n = 0;
        if (sl_detokenize(j->a->o.model, p->ids, p->n_ids, 1, &text, &n, NULL))
            ch->text.failed = SL_NOMEM; /* the ids are good: nothing else fails */
        else
            str_put(&ch->text, text, n);
        sl_free(text);
    }
}

/* A token of the echoed prompt. One that is put in front of a text is not in what is echoed. */
static void echo_token(struct api_job *j, struct choice *ch, const struct api_event *ev)
{
    const struct completion *c = j->user;
    struct str s;
    add_logprob(j->a, ch, ev, ch->n_chars);
    if (c->prompt.v[ev->sub].text && ev->prompt_pos == 0 && j->a->mi.add_bos && c->g.q.bos >= 0)
        return;
    str_init(&s, MEM_REQUEST, 0);
    api_token_bytes(j->a, ev->token, &s);
    count_chars(ch, str_c(&s), s.n);
    api_inherit(&ch->offset, &s);
    str_fini(&s);
}

struct told {
    const api *a;
    struct choice *ch;
    const char *text; /* of the event */
};

static void tell(void *user, const struct api_event *tok, size_t at)
{
    const struct told *t = user;
    add_logprob(t->a, t->ch, tok, t->ch->n_chars + text_utf8_count(t->text, at));
}

/* What an event of the answer tells of tokens. */
static void answer_token(struct api_job *j, struct choice *ch, const struct api_event *ev)
{
    struct told t = {j->a, ch, ev->text};
    if (ch->part.n) ch->n_chars++; /* the prompt ended within a character */
    str_clear(&ch->part);
    if (!api_lp_event(&ch->lp, ev, tell, &t)) ch->offset.failed = SL_NOMEM;
    ch->n_chars += text_utf8_count(ev->text, (size_t)ev->n_text);
}

static void event(struct api_job *j, const struct api_event *ev, struct str *out)
{
    struct completion *c = j->user;
    int index = ev->sub * c->g.n + ev->index;
    struct choice *ch = &c->choice[index];
    if (ev->token < 0 && ev->finish == SL_FINISH_NONE && !ev->n_text) {
        if (out) api_put_progress(out, ev);
        return;
    }
    const struct api_gen *g = &c->g;
    bool plain = !g->echo && !g->logprobs && !g->return_ids && !g->continuous_usage;
    if (out && plain && ev->finish == SL_FINISH_NONE) {
        if (ev->n_text) put_text(j, out, index, ev);
        return;
    }
    if (ev->prompt_pos >= 0 && ev->token >= 0) {
        echo_token(j, ch, ev);
        return;
    }
    if (c->g.echo && !ch->begun) echo(j, ch, ev->sub);
    ch->begun = true;
    if (c->g.logprobs) answer_token(j, ch, ev);
    if (ev->token >= 0 && c->g.return_ids)
        str_printf(&ch->ids, "%s%d", ch->ids.n ? "," : "", ev->token);
    str_put(&ch->text, ev->text, (size_t)ev->n_text);
    ch->finish = ev->finish;
    if (out && (ch->text.n || ch->token.n || ch->ids.n || ch->text.failed || ch->token.failed ||
                ch->ids.failed || ev->finish != SL_FINISH_NONE))
        put_chunk(j, out, ch, index, ev);
}

static void end(struct api_job *j, struct str *out)
{
    struct completion *c = j->user;
    struct json_w w;
    struct str s;
    bool chunk = out != NULL;
    if (chunk && !c->g.include_usage) {
        str_puts(out, "data: [DONE]\n\n");
        return;
    }
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    api_put_head(&w, j, "text_completion");
    str_puts(&s, ",\"choices\":[");
    for (int i = 0; !chunk && i < c->n_choice; i++) {
        if (i) str_putc(&s, ',');
        put_choice(c, &s, &c->choice[i], i);
    }
    str_putc(&s, ']');
    api_put_usage(&w, j);
    api_put_timings(&w, j);
    text_jw_obj_end(&w);
    if (!chunk) {
        net_reply(j->r, 200, API_JSON, &s);
        return;
    }
    api_sse(out, &s);
    str_puts(out, "data: [DONE]\n\n");
    str_fini(&s);
}

static void fini(struct api_job *j)
{
    struct completion *c = j->user;
    for (int i = 0; i < c->n_choice; i++) {
        struct choice *ch = &c->choice[i];
        str_fini(&ch->text);
        str_fini(&ch->token);
        str_fini(&ch->logprob);
        str_fini(&ch->top);
        str_fini(&ch->offset);
        str_fini(&ch->ids);
        str_fini(&ch->part);
        api_lp_fini(&ch->lp);
    }
    str_fini(&c->head);
}

static const struct api_fmt fmt = {event, end, NULL, fini};

sl_status api_completions(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL;
    void *p = NULL;
    SL_TRY(api_body_parse(a, r, API_TEXT, &body, err));
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct completion), &p, err));
    struct completion *c = p;
    SL_TRY(api_gen_parse(a, r, body, API_TEXT, &c->g, err));
    if (api_field_int(body, "best_of", c->g.n) != c->g.n)
        return SL_FAIL(err, REQUEST, "best_of: only where it equals n");
    const struct json *ids = api_field(body, "prompt_token_ids"),
                      *given = ids ? ids : api_field(body, "prompt");
    if (!given) return SL_FAIL(err, REQUEST, "prompt: missing");
    c->prompt.max = API_FANOUT_MAX / c->g.n;
    c->prompt.ids_only = ids != NULL;
    SL_TRY(api_prompts_parse(a, &r->arena, ids ? "prompt_token_ids" : "prompt", given, &c->prompt,
                             err));
    if (c->g.echo && c->g.logprobs) {
        if (c->g.n > 1) return SL_FAIL(err, REQUEST, "echo: with logprobs only for n = 1");
        c->g.q.echo_logprob = 1;
    } else if (c->g.q.max_tokens < 0)
        return SL_FAIL(err, REQUEST, "max_tokens: 0: only with echo: true and logprobs");
    c->n_choice = c->prompt.n * c->g.n;
    SL_TRY(mem_arena_array(&r->arena, (size_t)c->n_choice, sizeof *c->choice, &p, err));
    c->choice = p;
    for (int i = 0; i < c->n_choice; i++) {
        struct choice *ch = &c->choice[i];
        struct str *all[] = {&ch->text,   &ch->token, &ch->logprob, &ch->top,
                             &ch->offset, &ch->ids,   &ch->part};
        for (int k = 0; k < BASE_COUNT_OF(all); k++)
            str_init(all[k], MEM_REQUEST, 0);
    }
    str_init(&c->head, MEM_REQUEST, 0);
    net_random_id("cmpl-", c->g.id);
    const struct api_form_in in = {.body = body, .route = API_TEXT};
    SL_TRY(api_form_parse(a, r, &in, &c->g.grammar, err));
    c->g.q.grammar = c->g.grammar;
    const struct api_ask ask = {&c->g, c->prompt.v, c->prompt.n, &fmt, c};
    return api_job_start(a, r, &ask, err);
}
