/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: api net text grammar base. Property: the whole way of a request, from the body to the last
 * byte of the answer, over an engine that says what the input wants. No body and no answer of the
 * model harms; what reaches the engine is in its ranges; a reply is JSON or a four-key error, a
 * stream is events that end as they should; all memory comes back.
 *
 * Input: route, family, ways to go on; the body, up to a NUL; what the model says. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_internal.h"
#include "grammar/grammar.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_VOCAB 266
#define N_CTX 4096
#define END 262
#define USER 263
#define THINK 264
#define THINK_END 265
#define N_PENDING 16
#define MAX_STEP 400

static void check(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_serve: %s\n", what);
    abort();
}

/* ---- vocabulary: bytes, a few words, control tokens ---- */

static const char *const word[] = {"{\"",      "\":", "\"}",    "abc",     "12",
                                   "\xc3\xa9", "",    "<user>", "<think>", "</think>"};

static const char *token_text(int id, int *n)
{
    static char one[256];
    if (id < 256) {
        one[id] = (char)id;
        *n = 1;
        return &one[id];
    }
    *n = (int)strlen(word[id - 256]);
    return word[id - 256];
}

static grammar_vocab *vocab(void)
{
    static grammar_vocab *v;
    struct grammar_token_bytes t[N_VOCAB] = {{0}};
    if (v) return v;
    for (int i = 0; i < N_VOCAB; i++) {
        t[i].p = token_text(i, &t[i].n);
        t[i].kind = i == END    ? GRAMMAR_TOKEN_END
                    : i == USER ? GRAMMAR_TOKEN_CONTROL
                                : GRAMMAR_TOKEN_TEXT;
    }
    check(grammar_vocab_open(t, N_VOCAB, &v, NULL) == SL_OK, "no vocabulary");
    return v;
}

/* ---- the model ---- */

struct sl_grammar {
    grammar *g;
    grammar_run *run;
    int n_ref;
    sl_grammar_kind kind;
    char *text; /* [n] */
    size_t n;
};
struct sample {
    int state, n_token, said;
    char pend[4]; /* of a code point that is not whole yet */
    int n_pend;
    bool over;
};
struct pending {
    uint64_t id; /* 0 = free */
    sl_request q;
    int n_prompt;
    struct sample *s; /* [n] */
    bool cancelled, begun;
};
static struct {
    const char *family, *says; /* chat template; what the model says */
    size_t n_says;
    uint32_t how;
    uint64_t last_id;
    struct pending p[N_PENDING];
} fake;

static uint32_t rnd(uint32_t n)
{
    fake.how = fake.how * 1664525u + 1013904223u;
    return (fake.how >> 8) % n;
}

void sl_free(void *p)
{
    free(p);
}
const char *sl_version(void)
{
    return "0";
}
int sl_status_http(sl_status code)
{
    return status_http(code);
}
void sl_model_info_get(const sl_model *m, sl_model_info *out)
{
    (void)m;
    *out = (sl_model_info){.arch = "fake",
                           .name = "fake",
                           .n_vocab = N_VOCAB,
                           .n_layer = 2,
                           .n_embd = 4,
                           .n_expert = 4,
                           .n_ctx_train = N_CTX,
                           .has_tokenizer = 1,
                           .has_template = 1,
                           .chat_template = fake.family,
                           .chat_template_tools = fake.family};
}
void sl_engine_info_get(const sl_engine *e, sl_engine_info *out)
{
    (void)e;
    *out =
        (sl_engine_info){.n_ctx = N_CTX, .n_seq_max = 4, .isa = "ref", .acts = "f32", .kv = "f32"};
}
void sl_stats_get(const sl_engine *e, sl_stats *out)
{
    (void)e;
    memset(out, 0, sizeof *out);
}
int sl_ready(const sl_engine *e)
{
    (void)e;
    return 1;
}
int sl_routed(const sl_engine *e, int layer, uint64_t *out, int n)
{
    (void)e;
    (void)layer;
    memset(out, 0, (size_t)n * sizeof *out);
    return n;
}

int sl_slots(const sl_engine *e, int layer, int32_t *out, int n, int *n_rank)
{
    (void)e;
    (void)layer;
    (void)out;
    (void)n;
    *n_rank = 1;
    return 0;
}

sl_status sl_rebalance(sl_engine *e, sl_err *err)
{
    (void)e;
    if (err) *err = (sl_err){.code = SL_REQUEST, .text = "no experts can move"};
    return SL_REQUEST;
}

int sl_ranks(const sl_engine *e, sl_rank_stat *out, int n)
{
    (void)e;
    (void)out;
    (void)n;
    return 1;
}

int sl_engine_devices(const sl_engine *e, sl_device_info *out, int n)
{
    (void)e;
    if (n > 0) *out = (sl_device_info){.name = "cpu", .parts = "embed, attn, dense, head"};
    return 1;
}

sl_status sl_tokenize(const sl_model *m, const char *text, size_t n, int flags, int32_t **ids,
                      int *n_ids, sl_err *err)
{
    (void)m;
    if (text_utf8_check(text, n) < n) return SL_FAIL(err, REQUEST, "not UTF-8");
    *ids = malloc((n + 1) * sizeof **ids);
    *n_ids = 0;
    for (size_t i = 0; i < n;) {
        int id = (unsigned char)text[i], k = 1, w = 1;
        for (int c = USER; flags & SL_TOK_SPECIAL && c < N_VOCAB; c++)
            if (token_text(c, &w) && (size_t)w <= n - i &&
                !memcmp(text + i, word[c - 256], (size_t)w))
                id = c, k = w;
        (*ids)[(*n_ids)++] = id;
        i += (size_t)k;
    }
    return SL_OK;
}

sl_status sl_detokenize(const sl_model *m, const int32_t *ids, int n_ids, int special, char **text,
                        size_t *n, sl_err *err)
{
    (void)m;
    *text = malloc((size_t)n_ids * 16 + 1);
    *n = 0;
    for (int i = 0; i < n_ids; i++) {
        int k = 0;
        if (ids[i] < 0 || ids[i] >= N_VOCAB) {
            free(*text);
            return SL_FAIL(err, REQUEST, "token %d: not in the vocabulary", ids[i]);
        }
        const char *p = token_text(ids[i], &k);
        if (ids[i] == USER && !special) continue;
        memcpy(*text + *n, p, (size_t)k);
        *n += (size_t)k;
    }
    (*text)[*n] = 0;
    return SL_OK;
}

int sl_template_reads(const sl_model *m, int tools, const char *name)
{
    (void)m;
    (void)tools;
    return strcmp(name, "enable_thinking") == 0; /* and no tools: those are told */
}

sl_status sl_chat_render(const sl_model *m, const sl_chat *chat, char **text, int32_t **ids,
                         int *n_ids, sl_err *err)
{
    struct arena a;
    struct str s;
    const struct json *v = NULL;
    mem_arena_init(&a, MEM_REQUEST, (size_t)64 << 20);
    str_init(&s, MEM_REQUEST, 0);
    const char *const part[] = {chat->messages, chat->tools, chat->kwargs};
    sl_status st = SL_OK;
    for (int i = 0; i < 3 && !st; i++) {
        if (!part[i]) continue;
        st = text_json_parse(&a, "chat", part[i], strlen(part[i]), &v, err);
        check(!st || st == SL_LIMIT || st == SL_NOMEM, "the template gets no JSON");
        str_puts(&s, part[i]);
    }
    if (!st && rnd(16) == 0) st = SL_FAIL(err, REQUEST, "template: raise_exception");
    if (fake.how & 64) str_puts(&s, "<think>\n");
    if (!st && ids) st = sl_tokenize(m, str_c(&s), s.n, SL_TOK_SPECIAL, ids, n_ids, err);
    if (!st && text) {
        *text = malloc(s.n + 1);
        memcpy(*text, str_c(&s), s.n + 1);
    }
    if (st == SL_LIMIT) st = SL_REQUEST;
    str_fini(&s);
    mem_arena_fini(&a);
    return st;
}

sl_status sl_grammar_compile(const sl_model *m, sl_grammar_kind kind, const char *text, size_t n,
                             sl_grammar **out, sl_err *err)
{
    static const enum grammar_kind kinds[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_JSON_OBJECT,
                                              GRAMMAR_REGEX, GRAMMAR_GBNF,
                                              GRAMMAR_JSON_SCHEMA_LOOSE};
    grammar *g = NULL;
    (void)m;
    *out = NULL;
    SL_TRY(grammar_open(kinds[kind], text, n, &g, err));
    *out = calloc(1, sizeof **out);
    (*out)->g = g;
    (*out)->n_ref = 1;
    (*out)->kind = kind;
    (*out)->n = n;
    (*out)->text = malloc(n + 1);
    if (n) memcpy((*out)->text, text, n);
    return SL_OK;
}
const char *sl_grammar_source(const sl_grammar *g, sl_grammar_kind *kind, size_t *n)
{
    *kind = g->kind;
    *n = g->n;
    return g->text;
}
sl_grammar *sl_grammar_ref(sl_grammar *g)
{
    if (g) g->n_ref++;
    return g;
}
void sl_grammar_unref(sl_grammar *g)
{
    if (!g) return;
    check(g->n_ref > 0, "a grammar is freed twice");
    if (--g->n_ref) return;
    free(g->text);
    grammar_run_close(g->run);
    grammar_close(g->g);
    free(g);
}
const char *sl_grammar_relaxed(const sl_grammar *g)
{
    (void)g;
    return "";
}

size_t sl_grammar_bytes(const sl_grammar *g)
{
    return grammar_bytes(g->g) + (g->run ? grammar_run_bytes(g->run) : 0);
}

/* ---- what reaches the engine ---- */

static bool in(double v, double lo, double hi)
{
    return v >= lo && v <= hi; /* not NaN */
}

static void check_request(const sl_request *q)
{
    const sl_sampling *s = &q->sampling;
    check(in(s->temperature, 0, 2) && in(s->top_p, 0, 1) && in(s->min_p, 0, 1), "sampling");
    check(in(s->repeat_penalty, 0, 100) && in(s->presence_penalty, -2, 2) &&
              in(s->frequency_penalty, -2, 2),
          "penalties");
    check(s->top_k >= 0 && s->n_bias >= 0 && s->n_bias <= 1024 && (!s->n_bias || s->bias), "top_k");
    for (int i = 0; i < s->n_bias; i++)
        check(s->bias[i].token >= 0 && s->bias[i].token < N_VOCAB && in(s->bias[i].bias, -100, 100),
              "bias");
    check(q->n >= 1 && q->n <= 128 && in(q->priority, -100, 100), "n or priority");
    check(q->max_tokens >= -1 && q->min_tokens >= 0 && q->timeout_ms >= 0, "lengths");
    check(q->n_stop >= 0 && q->n_stop <= 16 && q->n_stop_ids >= 0 && q->n_stop_ids <= 64, "stops");
    for (int i = 0; i < q->n_stop; i++) {
        size_t n = strlen(q->stop[i]);
        check(n >= 1 && n <= 1024 && text_utf8_check(q->stop[i], n) == n, "a stop string");
    }
    check(q->n_logprob >= -1 && q->n_logprob <= 20, "logprobs");
    check((q->ids != NULL) != (q->text != NULL) || q->ids, "no prompt");
}

sl_status sl_submit(sl_engine *e, const sl_request *q, uint64_t *id, sl_err *err)
{
    struct pending *p = NULL;
    (void)e;
    check_request(q);
    for (int i = 0; i < N_PENDING && !p; i++)
        if (!fake.p[i].id) p = &fake.p[i];
    if (!p || rnd(40) == 0) return SL_FAIL(err, BUSY, "queue: full");
    int n = q->ids ? q->n_ids : (int)strlen(q->text);
    for (int i = 0; q->ids && i < n; i++)
        if (q->ids[i] < 0 || q->ids[i] >= N_VOCAB)
            return SL_FAIL(err, REQUEST, "prompt: token %d: not in the vocabulary", q->ids[i]);
    for (int i = 0; i < q->n_stop_ids; i++)
        if (q->stop_ids[i] >= N_VOCAB)
            return SL_FAIL(err, REQUEST, "stop_ids: token %d: not in it", q->stop_ids[i]);
    if (n == 0) return SL_FAIL(err, REQUEST, "prompt: empty");
    if (n >= N_CTX) return SL_FAIL(err, LIMIT, "prompt of %d tokens: the context has %d", n, N_CTX);
    *p = (struct pending){.id = ++fake.last_id, .q = *q, .n_prompt = n};
    p->s = calloc((size_t)q->n, sizeof *p->s);
    for (int i = 0; i < q->n; i++) {
        p->s[i].state = -1;
        p->s[i].said = i;
    }
    sl_grammar_ref(p->q.grammar);
    *id = p->id;
    return SL_OK;
}

void sl_cancel(sl_engine *e, uint64_t id)
{
    (void)e;
    for (int i = 0; i < N_PENDING; i++)
        if (fake.p[i].id == id) fake.p[i].cancelled = true;
}

/* ---- answers ---- */

/* The next token: what the model wants to say when the grammar takes it. */
static int choose(struct pending *p, struct sample *s, bool *dead)
{
    uint32_t bits[(N_VOCAB + 31) / 32];
    sl_grammar *g = p->q.grammar;
    bool more = (size_t)s->said < fake.n_says;
    int want = more ? (unsigned char)fake.says[s->said++] : END;
    if (more && want >= 250) want = 256 + want % 10;
    if (want == END && p->q.ignore_eos && !g) want = 'x';
    if (!g) return want;
    enum grammar_where w = GRAMMAR_RUNNING;
    *dead = true;
    if (!g->run && grammar_run_open(g->g, vocab(), &g->run, NULL)) return END;
    if (s->state < 0 && grammar_state_open(g->run, &s->state, NULL)) return END;
    if (grammar_mask(g->run, s->state, bits, NULL)) return END;
    for (int i = 0, at = (int)rnd(N_VOCAB); i < N_VOCAB; i++) {
        if (bits[want / 32] >> want % 32 & 1) break;
        want = (at + i) % N_VOCAB;
    }
    check(bits[want / 32] >> want % 32 & 1, "no token is allowed");
    if (grammar_push(g->run, s->state, want, &w, NULL)) return END;
    check(w != GRAMMAR_DEAD, "an allowed token is dead");
    *dead = false;
    return want;
}

/* Text of whole code points; what is none becomes U+FFFD, as the engine does it. */
static void say(struct sample *s, struct str *out, const char *t, int n, bool last)
{
    for (int i = 0; i < n; i++) {
        s->pend[s->n_pend++] = t[i];
        int need = text_utf8_need((unsigned char)s->pend[0]);
        if (text_utf8_check(s->pend, (size_t)s->n_pend) == (size_t)s->n_pend) {
            str_put(out, s->pend, (size_t)s->n_pend);
            s->n_pend = 0;
        } else if (s->n_pend == 4 || need <= s->n_pend) {
            str_puts(out, "\xef\xbf\xbd");
            s->n_pend = 0;
        }
    }
    if (last && s->n_pend) str_puts(out, "\xef\xbf\xbd");
}

static void finish(struct pending *p, struct sample *s)
{
    s->over = true;
    if (s->state >= 0) grammar_state_close(p->q.grammar->run, s->state);
    s->state = -1;
    for (int i = 0; i < p->q.n; i++)
        if (!p->s[i].over) return;
    sl_grammar_unref(p->q.grammar);
    free(p->s);
    *p = (struct pending){0};
}

static void give(struct pending *p, struct sample *s, sl_event *ev)
{
    void (*on_event)(void *, const sl_event *) = p->q.on_event;
    void *user = p->q.user;
    ev->id = p->id;
    ev->index = (int)(s - p->s);
    ev->n_prompt = p->n_prompt;
    ev->n_token = s->n_token;
    ev->ttft_ns = 1000;
    ev->done_ns = ev->finish ? 2000 : 0;
    if (ev->finish) finish(p, s); /* the last event may free the request */
    on_event(user, ev);
}

static void echo(struct pending *p)
{
    for (int i = 0; i < p->n_prompt && i < 40; i++) {
        sl_logprob top = {.token = i % N_VOCAB, .logprob = -1};
        sl_event ev = {.token = p->q.ids ? p->q.ids[i] : 'a', .prompt_pos = i, .logprob = -1};
        ev.text = "";
        ev.top = &top;
        ev.n_top = i && p->q.want_logprob && p->q.n_logprob > 0;
        give(p, &p->s[0], &ev);
    }
}

static void one_token(struct pending *p, struct sample *s)
{
    sl_logprob top[20];
    struct str out;
    bool dead = false;
    float vec[4] = {1, 0, -1, (float)rnd(100)};
    sl_event ev = {.token = -1, .prompt_pos = -1, .text = ""};
    for (int i = 0; i < 20; i++)
        top[i] = (sl_logprob){.token = (i * 37) % N_VOCAB, .logprob = -(float)i};
    str_init(&out, MEM_REQUEST, 0);
    if (p->cancelled || rnd(300) == 0) {
        ev.finish = p->cancelled ? SL_FINISH_CANCELLED : SL_FINISH_ERROR;
        ev.status = p->cancelled ? SL_OK : SL_TIMEOUT;
        ev.error = p->cancelled ? NULL : "over its time limit";
    } else if (p->q.embed) {
        ev.embedding = vec;
        ev.n_embedding = 4;
        ev.finish = SL_FINISH_STOP;
    } else if (p->q.max_tokens == -1) {
        ev.finish = SL_FINISH_LENGTH;
    } else {
        int n = 0;
        ev.token = choose(p, s, &dead);
        const char *t = token_text(ev.token, &n);
        bool stop = ev.token == END && !p->q.ignore_eos;
        s->n_token++;
        ev.finish =
            dead   ? SL_FINISH_ERROR
            : stop ? SL_FINISH_STOP
            : (p->q.max_tokens && s->n_token >= p->q.max_tokens) || s->n_token >= MAX_STEP / 2
                ? SL_FINISH_LENGTH
                : SL_FINISH_NONE;
        if (dead) ev.status = SL_INTERNAL, ev.error = "grammar: too ambiguous here";
        if (ev.token == USER && !p->q.keep_special) n = 0;
        say(s, &out, t, n, ev.finish != SL_FINISH_NONE);
        ev.text = str_c(&out);
        ev.n_text = out.n;
        ev.logprob = -1;
        ev.top = top;
        ev.n_top = p->q.want_logprob && p->q.n_logprob > 0 ? p->q.n_logprob : 0;
    }
    give(p, s, &ev);
    str_fini(&out);
}

static bool step(void)
{
    bool any = false;
    for (int i = 0; i < N_PENDING; i++) {
        struct pending *p = &fake.p[i];
        if (!p->id) continue;
        any = true;
        if (!p->begun && p->q.echo_logprob) echo(p);
        p->begun = true;
        int n = p->q.n;
        for (int k = 0; k < n && p->id; k++)
            if (!p->s[k].over) one_token(p, &p->s[k]);
    }
    return any;
}

/* ---- the server ---- */

struct fake_req {
    struct net_req r;
    int n_ref;
    bool replied, streaming;
    struct str body;
};

static struct fake_req *of(struct net_req *r)
{
    return (struct fake_req *)(void *)r;
}
void net_wake(struct net_req *r)
{
    (void)r;
}
void net_wake_later(struct net_req *r)
{
    (void)r;
}
void net_req_ref(struct net_req *r)
{
    of(r)->n_ref++;
}
void net_req_unref(struct net_req *r)
{
    struct fake_req *f = of(r);
    check(f->n_ref > 0, "a request is freed twice");
    if (--f->n_ref) return;
    if (r->ops) r->ops->release(r);
    str_fini(&r->body);
    str_fini(&f->body);
    mem_arena_fini(&r->arena);
    free(f);
}
const char *net_req_header(const struct net_req *r, const char *name)
{
    (void)r;
    return strcmp(name, "Host") == 0 ? "localhost" : NULL;
}
const char *net_req_arg(const struct net_req *r, const char *name)
{
    (void)r;
    (void)name;
    return NULL;
}
void net_reply_header(struct net_req *r, const char *name, const char *value)
{
    (void)r;
    for (const char *c = value; *c; c++)
        check((unsigned char)*c >= 32, name);
}
const char *net_reply_header_of(const struct net_req *r, const char *name)
{
    (void)r;
    return strcmp(name, "Host") == 0 ? "" : NULL;
}
void net_reply(struct net_req *r, int status, const char *type, struct str *body)
{
    struct fake_req *f = of(r);
    (void)type;
    check(!f->replied && !f->streaming, "two replies");
    f->replied = true;
    r->status = status;
    if (!body) return;
    check(!body->failed, "a reply that is not whole");
    str_put(&f->body, body->p, body->n);
    str_fini(body);
}
void net_reply_static(struct net_req *r, int status, const char *type, const void *p, size_t n)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    str_put(&s, p, n);
    net_reply(r, status, type, &s);
}
sl_status net_stream_room(struct net_req *r, size_t n, sl_err *err)
{
    (void)err;
    check(!of(r)->streaming && n <= 4096, "room of a stream that runs");
    return SL_OK;
}
void net_reply_stream(struct net_req *r, int status, const char *type)
{
    (void)type;
    check(!of(r)->replied && status == 200, "a stream after a reply");
    of(r)->streaming = true;
    r->status = status;
}
int net_server_active(const net_server *s)
{
    (void)s;
    return 0;
}
double net_server_push_s(const net_server *s)
{
    (void)s;
    return 0;
}

int net_server_conns(const net_server *s)
{
    (void)s;
    return 0;
}

/* ---- what came out ---- */

static const struct json *parsed(struct arena *a, const char *p, size_t n, const char *what)
{
    const struct json *v = NULL;
    sl_err err = {0};
    sl_status st = text_json_parse(a, "reply", p, n, &v, &err);
    if (st == SL_LIMIT || st == SL_NOMEM) return NULL; /* a client's depth within ours */
    if (st) fprintf(stderr, "%s\n%.*s\n", err.text, (int)n, p);
    check(!st && v->kind == JSON_OBJECT_K, what);
    return v;
}

static void check_error(const struct json *v)
{
    static const char *const key[] = {"message", "type", "param", "code"};
    const struct json *e = text_json_get(v, "error");
    check(e && e->kind == JSON_OBJECT_K && e->n == 4, "an error without its four keys");
    for (int i = 0; i < 4; i++)
        check(text_json_get(e, key[i]) != NULL, "an error without its four keys");
    check(text_json_get(e, "message")->n > 0, "an error without a text");
}

static void check_reply(struct arena *a, const struct fake_req *f)
{
    int st = f->r.status;
    check(st == 200 || st == 400 || st == 404 || st == 413 || st == 429 || st == 500 || st == 501 ||
              st == 503 || st == 504,
          "another status");
    const struct json *v = parsed(a, str_c(&f->body), f->body.n, "a reply that is no JSON");
    if (v && st != 200) check_error(v);
}

static void check_stream(struct arena *a, const struct fake_req *f, bool whole)
{
    const char *p = str_c(&f->body), *end = p + f->body.n, *last = "";
    while (p < end) {
        const char *stop = strstr(p, "\n\n");
        check(stop != NULL, "an event without its end");
        for (const char *line = p; line < stop;) {
            size_t n = (size_t)(stop - line);
            const char *nl = memchr(line, '\n', n);
            if (nl) n = (size_t)(nl - line);
            bool is_data = n > 6 && memcmp(line, "data: ", 6) == 0;
            check(is_data || line[0] == ':' || memcmp(line, "event: ", 7) == 0,
                  "a line of no event");
            if (is_data) last = line + 6;
            if (is_data && memcmp(line + 6, "[DONE]", 6) != 0)
                (void)parsed(a, line + 6, n - 6, "an event that is no JSON");
            line += n + 1;
        }
        p = stop + 2;
    }
    if (whole)
        check(strncmp(last, "[DONE]", 6) == 0 || strncmp(last, "{\"type\":\"response.", 18) == 0,
              "a stream without its end");
}

static void go_on(struct fake_req *f, uint32_t leave)
{
    struct net_req *r = &f->r;
    struct arena a;
    enum net_next next = NET_WAIT;
    bool whole = true;
    mem_arena_init(&a, MEM_REQUEST, (size_t)256 << 20);
    for (int i = 0; r->ops && next <= NET_MORE && i < MAX_STEP; i++) {
        if (leave && (uint32_t)i == leave) {
            whole = false;
            break;
        }
        next = f->streaming ? r->ops->pull(r, &f->body) : r->ops->poll(r);
        if (next == NET_WAIT) check(step() || i < 2, "a request that waits for nothing");
    }
    check(!r->ops || !whole || next > NET_MORE, "an answer without an end");
    if (next == NET_ABORT) whole = false;
    if (f->streaming)
        check_stream(&a, f, whole);
    else if (whole)
        check_reply(&a, f);
    mem_arena_fini(&a);
}

static api *server(int family)
{
    static const char *const tmpl[] = {"<tool_call> <think>",
                                       "<\xef\xbd\x9ctool\xe2\x96\x81"
                                       "calls\xe2\x96\x81"
                                       "begin\xef\xbd\x9c> </think>",
                                       "ipython",
                                       "plain",
                                       "<tool_call>",
                                       "```json <\xef\xbd\x9ctool\xe2\x96\x81"
                                       "calls\xe2\x96\x81"
                                       "begin\xef\xbd\x9c>"};
    static api *a[6];
    static int n_used[6];
    int i = family % 6;
    fake.family = tmpl[i];
    if (a[i] && ++n_used[i] % 256 == 0) { /* what it stores goes */
        api_close(a[i]);
        a[i] = NULL;
    }
    struct api_opts o = {.model = (sl_model *)(void *)&fake,
                         .engine = (sl_engine *)(void *)&fake,
                         .max_batch = 4,
                         .max_queue = 16,
                         .ignore_unknown = i % 2 == 1};
    if (!a[i]) check(api_open(&o, &a[i], NULL) == SL_OK, "not opened");
    return a[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const path[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                       "/v1/embeddings",       "/tokenize",       "/detokenize",
                                       "/apply-template"};
    struct net_hooks hooks;
    if (size < 3) return 0;
    api *a = server(data[1]);
    const uint8_t *body = data + 3, *nul = memchr(body, 0, size - 3);
    size_t n_body = nul ? (size_t)(nul - body) : size - 3;
    fake.says = nul ? (const char *)nul + 1 : "";
    fake.n_says = nul ? size - 3 - n_body - 1 : 0;
    fake.how = data[2] * 2654435761u + data[1];
    struct fake_req *f = calloc(1, sizeof *f);
    f->r.method = "POST";
    f->r.path = path[data[0] % 7];
    f->r.key = -1;
    f->n_ref = 1;
    mem_arena_init(&f->r.arena, MEM_REQUEST, (size_t)192 << 20);
    str_init(&f->r.body, MEM_REQUEST, 0);
    str_init(&f->body, MEM_REQUEST, 0);
    api_hooks(a, &hooks);
    hooks.begin(hooks.user, &f->r);
    if (!f->replied) {
        str_put(&f->r.body, (const char *)body, n_body);
        hooks.handle(hooks.user, &f->r);
        check(f->replied || f->r.ops, "no reply and no job");
    }
    go_on(f, data[0] & 128 ? 1 + data[2] % 32 : 0);
    hooks.done(hooks.user, &f->r);
    if (f->r.ops) f->r.ops->closed(&f->r);
    for (int i = 0; i < MAX_STEP && step(); i++) {
    }
    check(f->n_ref == 1, "a request that is never freed");
    net_req_unref(&f->r);
    check(api_active(a) == 0, "a generation that never ends");
    return 0;
}
