/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over what is fed: each state takes some bytes from the front, or waits when a tag may
 * have begun. Only beginnings of tags, white space whose fate is open, and calls whose name is not
 * known yet are held back. */
#include <string.h>

#include "api/parse_internal.h"

/* ---- choice ---- */

/* A name that no row has: err says which there are. */
static sl_status not_known(const char *option, const char *name, bool reasoning, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    api_family_names(&s, reasoning);
    sl_status st = str_status(&s, err);
    if (!st) st = SL_FAIL(err, REQUEST, "%s %.40s: not known: %s", option, name, str_c(&s));
    str_fini(&s);
    return st;
}

/* By what the template writes around calls; of one that shows none of the forms, as the models of
 * the architecture were trained. */
static sl_status family_of(const struct api_parse_opts *o, const struct api_family **out,
                           sl_err *err)
{
    const char *name = o->tool_parser ? o->tool_parser : "auto";
    if ((*out = api_family_named(name))) return SL_OK;
    if (strcmp(name, "auto") != 0) return not_known("--tool-parser", name, false, err);
    *out = api_family_shown(o->template_text);
    if (!*out && o->template_text && o->trained) *out = api_family_named(o->trained);
    if (!*out) *out = &api_family_json;
    return SL_OK;
}

static sl_status reasoning_of(const struct api_parse_opts *o, struct api_parse *p, sl_err *err)
{
    const char *name = o->reasoning_parser ? o->reasoning_parser : "auto", *t = o->template_text;
    const struct api_family *shown = api_family_shown(t), *named = api_family_reasoning(name);
    bool is_auto = strcmp(name, "auto") == 0;
    p->thinks = named ? named : is_auto && shown && shown->tag[T_THINK] ? shown : p->f;
    bool think =
        t && (strstr(t, api_parse_tag(p, T_THINK)) || strstr(t, api_parse_tag(p, T_THINK_END)));
    if (p->f == &api_family_none && shown && shown->messages)
        p->f = shown; /* headers all the same */
    think |= p->f->messages != NULL;
    p->reasoning = is_auto ? think || o->prompt_thinks : api_family_reasons(name);
    if (!p->reasoning && !is_auto && strcmp(name, "none") != 0)
        return not_known("--reasoning-parser", name, true, err);
    p->state = !p->reasoning ? S_START : o->prompt_thinks ? S_REASON : S_BEGIN;
    p->strip = p->state == S_REASON;
    if (p->f->messages) p->f->messages->begin(p, 0);
    return SL_OK;
}

sl_status api_parse_open(const struct api_parse_opts *o, struct api_parse **out, sl_err *err)
{
    void *v = NULL;
    const struct api_family *f = NULL;
    *out = NULL;
    SL_TRY(family_of(o, &f, err));
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out, &v, err));
    struct api_parse *p = v;
    p->f = f;
    p->tools = o->tools && f != &api_family_none;
    p->max_calls = o->max_calls;
    struct str *const s[] = {&p->buf, &p->out, &p->gap, &p->held, &p->head, &p->func, &p->id};
    for (int i = 0; i < BASE_COUNT_OF(s); i++)
        str_init(s[i], MEM_REQUEST, 0);
    sl_status st = reasoning_of(o, p, err);
    if (!st && p->tools && f->xml) st = api_parse_types_read(&p->types, o->tool_list, err);
    if (st) {
        api_parse_close(p);
        return st;
    }
    *out = p;
    return SL_OK;
}

void api_parse_close(struct api_parse *p)
{
    if (!p) return;
    str_fini(&p->buf);
    str_fini(&p->out);
    str_fini(&p->gap);
    str_fini(&p->held);
    str_fini(&p->head);
    str_fini(&p->func);
    str_fini(&p->id);
    api_parse_types_fini(&p->types);
    if (p->json_open) api_parse_json_fini(&p->json);
    mem_free(p);
}

bool api_parse_in_reasoning(const struct api_parse *p)
{
    return p->state == S_REASON;
}

bool api_parse_in_content(const struct api_parse *p)
{
    return p->state == S_BEGIN || p->state == S_START || p->state == S_TEXT;
}

const char *api_parse_tag(const struct api_parse *p, int tag)
{
    return api_family_tag(tag <= T_THINK_END ? p->thinks : p->f, tag);
}

bool api_parse_has_reasoning(const struct api_parse *p)
{
    return p->reasoning;
}

const struct api_family *api_parse_family(const struct api_parse *p)
{
    return p->f;
}

const char *api_parse_call_id(const struct api_parse *p)
{
    return str_c(&p->id);
}

bool api_parse_wants_special(const struct api_parse *p)
{
    return p->reasoning || p->f->messages || (p->tools && p->f->marks);
}

/* ---- output: pieces of one kind are given out together ---- */

static void flush(struct api_parse *p)
{
    const struct api_parse_sink *k = p->sink;
    if (p->out.n && p->out_kind == O_TEXT) k->text(k->user, p->out.p, p->out.n);
    if (p->out.n && p->out_kind == O_REASON) k->reason(k->user, p->out.p, p->out.n);
    if (p->out.n && p->out_kind == O_ARGS) k->args(k->user, p->n_call - 1, p->out.p, p->out.n);
    p->out.n = 0;
}

void api_parse_clear(struct api_parse *p, struct str *s)
{
    if (s->failed) p->out.failed = s->failed;
    str_clear(s);
}

void api_parse_put(struct api_parse *p, enum out_kind kind, const char *s, size_t n)
{
    if (kind != p->out_kind) flush(p);
    p->out_kind = kind;
    str_put(&p->out, s, n);
}

void api_parse_put_gap(struct api_parse *p, enum out_kind kind)
{
    api_parse_put(p, kind, str_c(&p->gap), p->gap.n);
    api_parse_clear(p, &p->gap);
}

void api_parse_begin_call(struct api_parse *p, const char *name, size_t n)
{
    flush(p);
    p->muted = p->max_calls > 0 && p->n_call >= p->max_calls;
    p->any_args = false;
    api_parse_clear(p, &p->gap); /* white space before a call is no content */
    api_parse_clear(p, &p->held);
    p->n_prompt = 0;
    p->cut_reason |= p->from_reason;
    p->from_reason = false;
    if (!p->muted) p->sink->call(p->sink->user, p->n_call, name, n);
    p->n_call++;
}

void api_parse_put_args(struct api_parse *p, const char *s, size_t n)
{
    if (!n) return;
    p->any_args = true;
    if (!p->muted) api_parse_put(p, O_ARGS, s, n);
}

void api_parse_end_call(struct api_parse *p)
{
    if (!p->any_args) api_parse_put_args(p, "{}", 2);
    p->after_call = true;
}

void api_parse_hold(struct api_parse *p, const char *s, size_t n)
{
    if (!p->control) str_put(&p->held, s, n);
}

void api_parse_give_up(struct api_parse *p)
{
    enum out_kind kind = p->from_reason ? O_REASON : O_TEXT;
    api_parse_put_gap(p, kind);
    api_parse_put(p, kind, str_c(&p->held) + p->n_prompt, p->held.n - p->n_prompt);
    p->n_prompt = 0;
    api_parse_clear(p, &p->held);
    p->after_call = false;
    p->state = p->from_reason ? S_REASON : S_TEXT;
    p->from_reason = false;
}

/* ---- input ---- */

bool api_parse_white(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

size_t api_parse_white_run(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && api_parse_white(s[k]))
        k++;
    return k;
}

int api_parse_tag_at(const struct api_parse *p, const char *s, size_t n, bool last, api_tags tags)
{
    int r = -1;
    for (int t = 0; t < N_TAG; t++) {
        const char *tag = api_parse_tag(p, t);
        if (!(tags & BIT(t)) || !tag) continue;
        size_t m = strlen(tag);
        if (memcmp(s, tag, BASE_MIN(n, m)) != 0) continue;
        if (n >= m) return t;
        if (!last) r = -2;
    }
    return r;
}

size_t api_parse_run_of(const struct api_parse *p, const char *s, size_t n, bool last,
                        api_tags tags, int *tag)
{
    size_t k = 0;
    *tag = -1;
    while (k < n && s[k] != '<' && !api_parse_white(s[k]))
        k++;
    if (k) return k;
    if (s[0] != '<') return 0;
    int t = api_parse_tag_at(p, s, n, last, tags);
    if (t == -2) return 0;
    if (t < 0) return 1;
    *tag = t;
    return strlen(api_parse_tag(p, t));
}

/* White space whose fate is open; too much of it is what text of this kind is. Byte counts alone
 * decide, not pieces. */
void api_parse_hold_white(struct api_parse *p, const char *s, size_t n, enum out_kind kind)
{
    while (n) {
        size_t k = BASE_MIN(n, API_PARSE_GAP - p->gap.n);
        str_put(&p->gap, s, k);
        if (p->gap.n == API_PARSE_GAP || p->gap.failed) api_parse_put_gap(p, kind);
        s += k;
        n -= k;
    }
}

size_t api_parse_name_part(const struct api_parse *p, size_t n)
{
    return BASE_MIN(n, API_PARSE_NAME + 1 - p->head.n);
}

/* ---- states ---- */

static size_t in_begin(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    if (k) {
        api_parse_hold_white(p, s, k, O_TEXT);
        return k;
    }
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_THINK)) : -1;
    if (t == -2) return 0;
    if (t < 0) {
        p->state = S_START;
        return 0;
    }
    api_parse_clear(p, &p->gap);
    p->state = S_REASON;
    p->strip = true;
    return strlen(api_parse_tag(p, t));
}

/* Tags that mean something in content. */
static api_tags text_tags(const struct api_parse *p)
{
    if (!p->tools || !p->f->text_tags) return 0;
    return p->f->text_tags | (p->cut_reason ? BIT(T_THINK_END) : 0);
}

static api_tags cut_tags(const struct api_parse *p)
{
    return p->tools ? p->f->cut_tags : 0;
}

/* A tag of calls was found, k bytes. */
static size_t begin_tag(struct api_parse *p, const char *s, size_t k, int t)
{
    bool call = t == p->f->call_tag || (p->f->xml && t == T_CALL);
    if (call) api_parse_hold(p, s, k);
    if (call && p->f->xml)
        api_parse_xml_begin(p, t);
    else if (call && p->f->block) {
        api_parse_clear(p, &p->head);
        p->state = S_HEAD;
    } else if (call)
        api_parse_begin_json(p, false);
    else if (t == T_THINK_END) { /* of reasoning that a call has ended */
        api_parse_clear(p, &p->gap);
        p->strip = true;
        p->state = S_START;
    } else if (p->state == S_REASON) { /* of several calls: what follows are they */
        api_parse_clear(p, &p->gap);
        p->cut_reason = true;
        p->from_reason = false;
        p->state = S_TEXT;
    }
    return k;
}

static size_t in_reason(struct api_parse *p, const char *s, size_t n, bool last)
{
    int t;
    size_t k = api_parse_white_run(s, n);
    if (k) {
        if (!p->strip) api_parse_hold_white(p, s, k, O_REASON);
        return k;
    }
    k = api_parse_run_of(p, s, n, last,
                         BIT(T_THINK_END) | (p->strip ? BIT(T_THINK) : 0) | cut_tags(p), &t);
    if (!k || t == T_THINK) return k; /* a second opening tag: the prompt had one */
    if (t == T_THINK_END) {
        api_parse_clear(p, &p->gap);
        p->state = S_START;
        p->strip = true;
        return k;
    }
    if (t >= 0) { /* a call: reasoning is over, unless it turns out to be none */
        p->strip = false;
        p->from_reason = true;
        return begin_tag(p, s, k, t);
    }
    api_parse_put_gap(p, O_REASON);
    p->strip = false;
    api_parse_put(p, O_REASON, s, k);
    return k;
}

static size_t in_start(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    bool object = p->tools && p->f->bare;
    if (k && p->strip) return k;
    if (k && object) {
        api_parse_hold_white(p, s, k, O_TEXT);
        return k;
    }
    p->strip = false;
    p->state = S_TEXT;
    if (!object) return 0;
    if (s[0] == '<' && p->f->lead_tags) {
        int t = api_parse_tag_at(p, s, n, last, p->f->lead_tags);
        if (t == -2) p->state = S_START;
        if (t < 0) return 0;
        k = strlen(api_parse_tag(p, t));
        api_parse_hold(p, s, k);
        api_parse_begin_json(p, true);
        return k;
    }
    if (s[0] == '[' && p->f->form->list) {
        str_putc(&p->held, '[');
        p->in_list = true;
        api_parse_begin_json(p, true);
        return 1;
    }
    if (s[0] == '{') api_parse_begin_json(p, true);
    return 0;
}

static size_t in_text(struct api_parse *p, const char *s, size_t n, bool last)
{
    api_tags tags = text_tags(p);
    int t;
    size_t k = api_parse_white_run(s, n);
    if (k && !p->after_call && !tags) {
        api_parse_put_gap(p, O_TEXT);
        api_parse_put(p, O_TEXT, s, k);
        return k;
    }
    if (k) { /* before a call it is no content */
        api_parse_hold_white(p, s, k, O_TEXT);
        return k;
    }
    k = api_parse_run_of(p, s, n, last, tags, &t);
    if (!k) return 0;
    if (t < 0) {
        api_parse_put_gap(p, O_TEXT);
        api_parse_put(p, O_TEXT, s, k);
        p->after_call = false;
        return k;
    }
    return begin_tag(p, s, k, t);
}

static size_t step(struct api_parse *p, const char *s, size_t n, bool last)
{
    if (p->f->messages) return p->f->messages->step(p, s, n, last);
    switch (p->state) {
    case S_BEGIN:
        return in_begin(p, s, n, last);
    case S_REASON:
        return in_reason(p, s, n, last);
    case S_START:
        return in_start(p, s, n, last);
    case S_TEXT:
        return in_text(p, s, n, last);
    default:
        return p->state < S_X_BLOCK ? api_parse_calls_step(p, s, n, last)
                                    : api_parse_xml_step(p, s, n, last);
    }
}

/* ---- control tokens ---- */

/* Tags that mean something where p stands. */
static api_tags tags_now(const struct api_parse *p)
{
    const api_tags ends = BIT(T_CALL_END) | BIT(T_CALLS_END) | BIT(T_CALL);
    api_tags lead = p->tools ? p->f->lead_tags : 0;
    if (p->f->messages) return p->f->messages->tags(p);
    switch (p->state) {
    case S_BEGIN:
        return BIT(T_THINK) | lead | text_tags(p);
    case S_REASON:
        return BIT(T_THINK_END) | (p->strip ? BIT(T_THINK) : 0) | cut_tags(p);
    case S_START:
        return lead | text_tags(p);
    case S_TEXT:
        return text_tags(p);
    case S_JSON:
        return p->f->closed ? BIT(T_CALL) | BIT(T_CALL_END) : lead;
    case S_CLOSE:
        return BIT(T_CALL) | BIT(T_CALL_END);
    case S_NEXT:
        return lead;
    case S_HEAD:
        return BIT(T_SEP) | BIT(T_CALL_END) | BIT(T_CALLS_END);
    default:
        return p->state < S_X_BLOCK ? ends : api_parse_xml_tags(p);
    }
}

static bool is_tag(const struct api_parse *p, int t, const char *s, size_t n)
{
    const char *tag = api_parse_tag(p, t);
    return tag && strlen(tag) == n && memcmp(tag, s, n) == 0;
}

/* A control token: a tag where one is looked for, else nothing. It never becomes text, and inside
 * of a call's object or name it ends that. */
static void take_control(struct api_parse *p, const char *s, size_t n)
{
    int t = 0;
    while (t < N_TAG && !is_tag(p, t, s, n))
        t++;
    if (t == N_TAG || !(tags_now(p) & BIT(t))) return;
    if (p->state == S_JSON && p->json.open) {
        api_parse_end_call(p);
        p->state = p->f->closed ? S_CLOSE : S_NEXT;
    } else if (p->state == S_JSON || p->state == S_NAME)
        api_parse_give_up(p);
    p->control = true;
    while (n && (tags_now(p) & BIT(t))) {
        size_t k = step(p, s, n, true);
        s += k;
        n -= k;
    }
    p->control = false;
}

/* The text is over. */
static void finish(struct api_parse *p)
{
    if (p->f->messages) {
        p->f->messages->finish(p);
        return;
    }
    if (p->state >= S_X_BLOCK) {
        api_parse_xml_finish(p);
        return;
    }
    bool call = p->state == S_FENCE || p->state == S_ARGS || p->state == S_TAIL;
    if (p->state == S_TAIL) api_parse_end_call(p);
    if (call || (p->state == S_JSON && p->json.open)) {
        if (!p->any_args)
            api_parse_put_args(p, "{}", 2); /* a call that was cut off keeps what came */
        api_parse_clear(p, &p->gap);
        return;
    }
    if (p->state == S_JSON || p->state == S_HEAD || p->state == S_NAME) {
        api_parse_give_up(p);
        return;
    }
    if (p->state == S_REASON) return; /* white space at its end is not part of it */
    if (!p->after_call) api_parse_put_gap(p, O_TEXT);
    api_parse_clear(p, &p->gap);
}

static size_t next_mark(const struct str *s, size_t at)
{
    const char *m = at < s->n ? memchr(s->p + at, API_PARSE_MARK, s->n - at) : NULL;
    return m ? (size_t)(m - s->p) : s->n;
}

/* Step over what is in buf, as far as it is known what it is. */
static void run(struct api_parse *p, bool last)
{
    size_t at = 0, mark = 0; /* mark: where the next control token begins */
    while (at < p->buf.n) {
        enum state before = p->state;
        if (at >= mark) mark = next_mark(&p->buf, at);
        if (at == mark) { /* whole, or it waits */
            size_t end = next_mark(&p->buf, at + 1);
            if (end == p->buf.n && !last) break;
            if (end < p->buf.n) take_control(p, p->buf.p + at + 1, end - at - 1);
            at = BASE_MIN(end + 1, p->buf.n);
            continue;
        }
        size_t k = step(p, p->buf.p + at, mark - at, last || mark < p->buf.n);
        if (k == 0 && p->state == before) break; /* waits */
        at += k;
    }
    if (at) {
        p->buf.n -= at;
        memmove(p->buf.p, p->buf.p + at, p->buf.n + 1);
    }
}

static sl_status status_of(const struct api_parse *p, sl_err *err)
{
    const struct str *const all[] = {&p->out, &p->gap, &p->held, &p->head, &p->func, &p->id};
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        SL_TRY(str_status(all[i], err));
    return SL_OK;
}

sl_status api_parse_feed(struct api_parse *p, const char *s, size_t n, bool last,
                         const struct api_parse_sink *sink, sl_err *err)
{
    p->sink = sink;
    str_put(&p->buf, s, n);
    SL_TRY(str_status(&p->buf, err));
    run(p, last);
    if (last) finish(p);
    flush(p);
    return status_of(p, err);
}

sl_status api_parse_prompt(struct api_parse *p, const char *s, size_t n,
                           const struct api_parse_sink *sink, sl_err *err)
{
    p->sink = sink;
    if (p->f->messages) {
        p->f->messages->begin(p, n);
        return SL_OK;
    }
    str_put(&p->buf, s, n);
    SL_TRY(str_status(&p->buf, err));
    run(p, true); /* a tag that the prompt cuts is none */
    flush(p);
    api_parse_clear(p, &p->gap);
    p->n_prompt = p->held.n;
    return status_of(p, err);
}
