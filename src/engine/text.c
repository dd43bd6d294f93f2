/* SPDX-License-Identifier: Apache-2.0 */
/* The text half of the public API: strings, ids, chat templates. */
#include <string.h>
#include <time.h>

#include "engine/engine_internal.h"

#define CHAT_BYTES_MAX ((size_t)256 << 20) /* of the temporaries of one rendering */
#define CHAT_OUT_MAX ((size_t)64 << 20)
#define TOKEN_NAMES 64 /* special tokens that a template is told of */

sl_status engine_need_tok(const sl_model *m, sl_err *err)
{
    if (m->tok) return SL_OK;
    return SL_FAIL(err, NOTFOUND, "%s: text needs a tokenizer: %s", m->name,
                   m->tok_err.code == SL_UNSUPPORTED ? m->tok_err.text
                                                     : "this model has none, token ids work");
}

sl_status sl_tokenize(const sl_model *m, const char *text, size_t n, int flags, int32_t **ids,
                      int *n_ids, sl_err *err)
{
    struct tok_ids t = {0};
    *ids = NULL;
    *n_ids = 0;
    SL_TRY(engine_need_tok(m, err));
    bool around = flags & SL_TOK_AROUND, bos = flags & SL_TOK_BOS;
    int f = (flags & SL_TOK_SPECIAL ? TOK_SPECIAL : 0) |
            (bos || (around && tok_add_bos(m->tok)) ? TOK_BOS : 0) |
            (around && tok_add_eos(m->tok) ? TOK_EOS : 0);
    sl_status st = tok_encode(m->tok, text, n, f, &t, err);
    void *p = NULL;
    if (!st && !t.id) { /* no ids: still memory that sl_free takes */
        st = mem_alloc(MEM_REQUEST, 1, &p, err);
        t.id = p;
    }
    if (st) {
        mem_free(t.id);
        return st;
    }
    *ids = t.id;
    *n_ids = t.n;
    return SL_OK;
}

sl_status sl_detokenize(const sl_model *m, const int32_t *ids, int n_ids, int special, char **text,
                        size_t *n, sl_err *err)
{
    struct str s;
    struct tok_stream stream = {.front = !(special & SL_DETOK_PART)};
    *text = NULL;
    *n = 0;
    SL_TRY(engine_need_tok(m, err));
    str_init(&s, MEM_REQUEST, 0);
    for (int i = 0; i < n_ids; i++) {
        int len = 0;
        const char *p =
            ids[i] >= 0 && ids[i] < tok_n_vocab(m->tok) ? tok_bytes(m->tok, ids[i], &len) : NULL;
        if (!p && !(m->has_cfg && ids[i] >= 0 && ids[i] < m->cfg.n_vocab)) {
            str_fini(&s);
            return SL_FAIL(err, REQUEST, "token %d at place %d: not in the vocabulary of %d",
                           ids[i], i, tok_n_vocab(m->tok));
        }
        if (!p || (!(special & SL_DETOK_SPECIAL) && tok_is_special(m->tok, ids[i]))) continue;
        tok_stream_front(m->tok, &stream, ids[i], &p, &len);
        str_put(&s, p, (size_t)len);
    }
    str_put(&s, "", 0);
    sl_status st = str_status(&s, err);
    if (st) {
        str_fini(&s);
        return st;
    }
    *text = s.p;
    *n = s.n;
    return SL_OK;
}

static sl_status need_template(const sl_model *m, bool tools, sl_err *err)
{
    const struct engine_tmpl *x = engine_tmpl_for(m, tools);
    if (x->t) return SL_OK;
    return SL_FAIL(err, NOTFOUND, "%s: %s", m->name,
                   x->why.code ? x->why.text : "the model has no chat template");
}

/* JSON of a caller: what is malformed in it is the request's fault. */
static sl_status parse(struct arena *a, const char *what, const char *text, enum json_kind kind,
                       const struct json **out, sl_err *err)
{
    *out = NULL;
    if (!text) return SL_OK;
    sl_status st = text_json_parse(a, what, text, strlen(text), out, err);
    if (st == SL_FORMAT && err) err->code = SL_REQUEST;
    if (st) return st == SL_FORMAT ? SL_REQUEST : st;
    if ((*out)->kind != kind)
        return SL_FAIL(err, REQUEST, "%s: %s", what,
                       kind == JSON_ARRAY_K ? "not a list" : "not an object");
    return SL_OK;
}

int sl_template_reads(const sl_model *m, int tools, const char *name)
{
    const struct engine_tmpl *x = engine_tmpl_for(m, tools != 0);
    return x->t && text_tmpl_reads(x->t, name);
}

/* End out before the last place of cut; see sl_chat. */
static sl_status cut_off(const char *cut, struct str *out, struct text_tmpl_spans *spans,
                         sl_err *err)
{
    size_t n = strlen(cut) - 1, at = out->n; /* the space is not looked for */
    while (at > 0 && (out->n - at < n || memcmp(out->p + at, cut, n) != 0))
        at--;
    if (out->n - at < n || memcmp(out->p + at, cut, n) != 0)
        return SL_FAIL(err, REQUEST, "the chat template does not write the last message as it is");
    if (at + n == out->n || out->p[at + n] != ' ')
        while (at > 0 && strchr(" \t\r\n", out->p[at - 1]))
            at--;
    str_cut(out, at);
    while (spans->n > 0 && spans->v[spans->n - 1].begin >= at)
        spans->n--;
    struct text_tmpl_span *last = spans->n > 0 ? &spans->v[spans->n - 1] : NULL;
    if (last) last->end = BASE_MIN(last->end, at);
    return SL_OK;
}

#define COUNT_TIMES 8

int engine_count_max(int n_ctx)
{
    return n_ctx > INT32_MAX / COUNT_TIMES ? 0 : COUNT_TIMES * n_ctx;
}

/* The words are those of OpenAI, by which clients know it. */
sl_status engine_too_long(int n_ctx, int n, bool more, sl_err *err)
{
    return SL_FAIL(err, LIMIT,
                   "prompt of %s%d tokens: this model's maximum context length is %d tokens",
                   more ? "more than " : "", n, n_ctx);
}

static sl_status too_long(const sl_model *m, const struct str *out,
                          const struct text_tmpl_spans *spans, int max, sl_err *err)
{
    struct tok_ids all = {.max = engine_count_max(max)};
    sl_status st = tok_encode_spans(m->tok, out->p, out->n, spans, &all, NULL);
    mem_free(all.id);
    return engine_too_long(max, st ? all.max : all.n, st != SL_OK, err);
}

static sl_status render(const sl_model *m, const sl_chat *chat, struct arena *a, struct str *out,
                        struct tok_ids *ids, sl_err *err)
{
    struct text_tmpl_vars v = {.add_generation_prompt = !chat->no_generation_prompt,
                               .now_s = (int64_t)time(NULL)};
    struct text_tmpl_token token[TOKEN_NAMES];
    struct text_tmpl_spans spans = {0};
    struct tok_special sp;
    for (v.token = token; v.n_token < TOKEN_NAMES && tok_special_get(m->tok, v.n_token, &sp);)
        token[v.n_token++] = (struct text_tmpl_token){sp.name, sp.text};
    if (!chat->messages) return SL_FAIL(err, REQUEST, "messages: missing");
    SL_TRY(parse(a, "messages", chat->messages, JSON_ARRAY_K, &v.messages, err));
    SL_TRY(parse(a, "tools", chat->tools, JSON_ARRAY_K, &v.tools, err));
    SL_TRY(parse(a, "kwargs", chat->kwargs, JSON_OBJECT_K, &v.kwargs, err));
    SL_TRY(text_tmpl_render(engine_tmpl_for(m, v.tools)->t, &v, a, out, &spans, err));
    str_put(out, "", 0);
    SL_TRY(str_status(out, err));
    if (chat->cut) SL_TRY(cut_off(chat->cut, out, &spans, err));
    if (!ids) return SL_OK;
    ids->max = chat->max_ids;
    sl_status st = tok_encode_spans(m->tok, out->p, out->n, &spans, ids, err);
    if (st != SL_LIMIT || !ids->max) return st;
    return too_long(m, out, &spans, ids->max, err);
}

sl_status sl_chat_render(const sl_model *m, const sl_chat *chat, char **text, int32_t **ids,
                         int *n_ids, sl_err *err)
{
    struct arena a;
    struct str out;
    struct tok_ids t = {0};
    if (text) *text = NULL;
    if (ids) *ids = NULL;
    SL_TRY(engine_need_tok(m, err));
    SL_TRY(need_template(m, chat->tools != NULL, err));
    mem_arena_init(&a, MEM_REQUEST, CHAT_BYTES_MAX);
    str_init(&out, MEM_REQUEST, CHAT_OUT_MAX);
    sl_status st = render(m, chat, &a, &out, ids ? &t : NULL, err);
    mem_arena_fini(&a);
    if (!st && text && strlen(out.p) != out.n)
        st = SL_FAIL(
            err, REQUEST,
            "messages: the rendered prompt holds a NUL at byte %zu: its text can not be given",
            strlen(out.p));
    if (st || !text) str_fini(&out);
    if (st) {
        mem_free(t.id);
        return st;
    }
    if (text) *text = out.p;
    if (ids) {
        *ids = t.id;
        *n_ids = t.n;
    }
    return SL_OK;
}
