/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to bytes, and bytes to frames. */
#include "gate/frame.h"

#include <string.h>


static sl_status bad(const char *what, sl_err *err)
{
    return SL_FAIL(err, FORMAT, "a frame of the other end: %s", what);
}

/* ---- numbers ---- */

static void put_uint(struct str *out, uint64_t v, int n)
{
    char b[8];
    for (int i = 0; i < n; i++)
        b[i] = (char)(v >> (8 * i));
    str_put(out, b, (size_t)n);
}

static void put_i32(struct str *out, int32_t v)
{
    put_uint(out, (uint32_t)v, 4);
}

static void put_u64(struct str *out, uint64_t v)
{
    put_uint(out, v, 8);
}

static void put_f32(struct str *out, float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    put_uint(out, u, 4);
}

static void put_f64(struct str *out, double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    put_uint(out, u, 8);
}

static void put_text(struct str *out, const char *p, size_t n)
{
    put_uint(out, n, 4);
    str_put(out, p, n);
}

static void put_ids(struct str *out, const int32_t *id, int n)
{
    put_i32(out, n);
    for (int i = 0; i < n; i++)
        put_i32(out, id[i]);
}

static int32_t get_i32(struct rd *r)
{
    return (int32_t)rd_u32(r);
}

static float get_f32(struct rd *r)
{
    uint32_t u = rd_u32(r);
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static double get_f64(struct rd *r)
{
    uint64_t u = rd_u64(r);
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* In place; "" where it is not whole. */
static const char *get_text(struct rd *r, size_t *n)
{
    *n = rd_u32(r);
    const char *p = (const char *)rd_bytes(r, *n);
    if (!p) *n = 0;
    return p ? p : "";
}

/* A text of ours: what does not fit, or is no text, makes the frame a bad one. */
static void get_name(struct rd *r, char *out, size_t max)
{
    size_t n;
    const char *p = get_text(r, &n);
    if (n >= max || memchr(p, 0, n)) r->failed = true;
    if (!rd_ok(r)) n = 0;
    memcpy(out, p, n);
    out[n] = 0;
}

/* A count of things of at least each bytes, which are all there. */
static int get_count(struct rd *r, uint64_t each)
{
    int32_t n = get_i32(r);
    if (n < 0 || (uint64_t)n > rd_left(r) / each) r->failed = true;
    return rd_ok(r) ? n : 0;
}

static sl_status get_ids(struct rd *r, struct arena *a, const int32_t **out, int *n, sl_err *err)
{
    void *p = NULL;
    *n = get_count(r, 4);
    SL_TRY(mem_arena_array(a, (size_t)*n + 1, sizeof **out, &p, err));
    int32_t *id = p;
    for (int i = 0; i < *n; i++)
        id[i] = get_i32(r);
    *out = id;
    return SL_OK;
}

static sl_status done(const struct rd *r, const char *what, sl_err *err)
{
    return rd_ok(r) && rd_left(r) == 0 ? SL_OK : bad(what, err);
}

/* ---- frames ---- */

sl_status gate_frame_next(const uint8_t *p, size_t n, uint32_t max, struct gate_frame *out,
                          size_t *used, sl_err *err)
{
    struct rd r = rd_init(p, n);
    *used = 0;
    if (n < GATE_HEAD) return SL_OK;
    uint32_t bytes = rd_u32(&r), type = rd_u8(&r);
    out->id = rd_u64(&r);
    if (bytes > max) return bad("it is too long", err);
    if (type == GATE_NONE || type >= GATE_N_TYPE) return bad("its type is not known", err);
    if (n - GATE_HEAD < bytes) return SL_OK;
    out->type = (enum gate_type)type;
    out->body = rd_init(p + GATE_HEAD, bytes);
    *used = GATE_HEAD + (size_t)bytes;
    return SL_OK;
}

size_t gate_frame_begin(struct str *out, enum gate_type type, uint64_t id)
{
    size_t at = out->n;
    put_uint(out, 0, 4);
    put_uint(out, type, 1);
    put_u64(out, id);
    return at;
}

void gate_frame_end(struct str *out, size_t at)
{
    if (out->failed) return;
    uint64_t n = out->n - at - GATE_HEAD;
    for (int i = 0; i < 4; i++)
        out->p[at + (size_t)i] = (char)(n >> (8 * i));
}

/* ---- HELLO ---- */

const char *gate_print_differs(const struct gate_print *a, const struct gate_print *b)
{
    if (strcmp(a->program, b->program) != 0) return "program";
    if (a->model != b->model || a->vocab != b->vocab) return "model";
    if (strcmp(a->isa, b->isa) != 0) return "CPU";
    if (strcmp(a->acts, b->acts) != 0) return "--acts";
    if (strcmp(a->kv, b->kv) != 0) return "--kv";
    return a->n_ctx != b->n_ctx ? "--ctx" : NULL;
}

void gate_put_hello(struct str *out, const struct gate_hello *h)
{
    const struct gate_print *p = &h->print;
    const char *text[] = {p->program, p->isa, p->acts, p->kv, h->model};
    const sl_engine_info *i = &h->info;
    const int64_t number[] = {i->n_thread,     i->n_seq_max, i->kv_tokens, i->bytes_per_token,
                              i->weight_bytes, i->kv_bytes,  i->act_bytes, i->scratch_bytes,
                              i->packed,       i->text_bytes_max, (int64_t)i->kv_hash};
    put_i32(out, GATE_VERSION);
    for (int k = 0; k < BASE_COUNT_OF(text); k++)
        put_text(out, text[k], strlen(text[k]));
    put_u64(out, p->model);
    put_u64(out, p->vocab);
    put_i32(out, p->n_ctx);
    for (int k = 0; k < BASE_COUNT_OF(number); k++)
        put_u64(out, (uint64_t)number[k]);
    put_f64(out, i->pack_ms);
    put_f64(out, h->probe.read_gbps);
    put_f64(out, h->probe.int8_gops);
    put_i32(out, h->n_device);
    for (int k = 0; k < h->n_device; k++) {
        const struct gate_device *d = &h->device[k];
        put_text(out, d->name, strlen(d->name));
        put_text(out, d->parts, strlen(d->parts));
        put_u64(out, (uint64_t)d->weight_bytes);
        put_u64(out, (uint64_t)d->kv_bytes);
    }
}

sl_status gate_read_hello(struct rd *r, struct gate_hello *h, sl_err *err)
{
    struct gate_print *p = &h->print;
    sl_engine_info *i = &h->info;
    int32_t version = get_i32(r);
    memset(h, 0, sizeof *h);
    if (rd_ok(r) && version != GATE_VERSION)
        return SL_FAIL(err, UNSUPPORTED,
                       "the engine speaks version %d of the gate, this program version %d",
                       (int)version, GATE_VERSION);
    get_name(r, p->program, sizeof p->program);
    get_name(r, p->isa, sizeof p->isa);
    get_name(r, p->acts, sizeof p->acts);
    get_name(r, p->kv, sizeof p->kv);
    get_name(r, h->model, sizeof h->model);
    p->model = rd_u64(r);
    p->vocab = rd_u64(r);
    i->n_ctx = p->n_ctx = get_i32(r);
    i->n_thread = (int)rd_u64(r);
    i->n_seq_max = (int)rd_u64(r);
    int64_t *const wide[] = {&i->kv_tokens, &i->bytes_per_token, &i->weight_bytes,
                             &i->kv_bytes,  &i->act_bytes,       &i->scratch_bytes};
    for (int k = 0; k < BASE_COUNT_OF(wide); k++)
        *wide[k] = (int64_t)rd_u64(r);
    i->packed = rd_u64(r) != 0;
    i->text_bytes_max = (int64_t)rd_u64(r);
    i->kv_hash = rd_u64(r);
    i->pack_ms = get_f64(r);
    h->probe.read_gbps = get_f64(r);
    h->probe.int8_gops = get_f64(r);
    h->n_device = get_count(r, 24);
    if (h->n_device > GATE_DEVICE_MAX) return bad("it has too many devices", err);
    for (int k = 0; k < h->n_device; k++) {
        struct gate_device *d = &h->device[k];
        get_name(r, d->name, sizeof d->name);
        get_name(r, d->parts, sizeof d->parts);
        d->weight_bytes = (int64_t)rd_u64(r);
        d->kv_bytes = (int64_t)rd_u64(r);
    }
    i->isa = p->isa;
    i->acts = p->acts;
    i->kv = p->kv;
    i->model_hash = p->model;
    SL_TRY(done(r, "it is no greeting", err));
    if (i->n_ctx < 1 || i->n_seq_max < 1 || i->text_bytes_max < 0)
        return bad("it greets with what cannot be", err);
    return SL_OK;
}

/* ---- SUBMIT, RESUME, PREFILL ---- */

static void put_sampling(struct str *out, const sl_sampling *s)
{
    put_f32(out, s->temperature);
    put_i32(out, s->top_k);
    put_f32(out, s->top_p);
    put_f32(out, s->min_p);
    put_f32(out, s->repeat_penalty);
    put_f32(out, s->presence_penalty);
    put_f32(out, s->frequency_penalty);
    put_u64(out, s->seed);
    put_i32(out, s->n_bias);
    for (int i = 0; i < s->n_bias; i++) {
        put_i32(out, s->bias[i].token);
        put_f32(out, s->bias[i].bias);
    }
}

static sl_status get_sampling(struct rd *r, struct arena *a, sl_sampling *s, sl_err *err)
{
    void *p = NULL;
    s->temperature = get_f32(r);
    s->top_k = get_i32(r);
    s->top_p = get_f32(r);
    s->min_p = get_f32(r);
    s->repeat_penalty = get_f32(r);
    s->presence_penalty = get_f32(r);
    s->frequency_penalty = get_f32(r);
    s->seed = rd_u64(r);
    s->n_bias = get_count(r, 8);
    SL_TRY(mem_arena_array(a, (size_t)s->n_bias + 1, sizeof *s->bias, &p, err));
    sl_bias *b = p;
    for (int i = 0; i < s->n_bias; i++) {
        b[i].token = get_i32(r);
        b[i].bias = get_f32(r);
    }
    s->bias = b;
    return SL_OK;
}

/* The fields that are plain numbers. X(name) */
#define NUMBER_LIST(X)                                                                             \
    X(keep_special)                                                                                \
    X(max_tokens)                                                                                  \
    X(min_tokens)                                                                                  \
    X(ignore_eos)                                                                                  \
    X(n_logprob)                                                                                   \
    X(want_logprob)                                                                                \
    X(priority)                                                                                    \
    X(no_cache)                                                                                    \
    X(echo_logprob)                                                                                \
    X(embed)                                                                                       \
    X(want_progress)                                                                               \
    X(n_draft)

void gate_put_request(struct str *out, const sl_request *q)
{
    put_ids(out, q->ids, q->n_ids);
#define X(name) put_i32(out, q->name);
    NUMBER_LIST(X)
#undef X
    put_u64(out, q->owner);
    put_u64(out, q->cache_salt);
    put_i32(out, q->n_stop);
    for (int i = 0; i < q->n_stop; i++)
        put_text(out, q->stop[i], strlen(q->stop[i]));
    put_ids(out, q->stop_ids, q->n_stop_ids);
    put_ids(out, q->draft_ids, q->n_draft_ids);
    put_sampling(out, &q->sampling);
    put_i32(out, q->grammar != NULL);
    if (!q->grammar) return;
    sl_grammar_kind kind;
    size_t n;
    const char *text = sl_grammar_source(q->grammar, &kind, &n);
    put_i32(out, (int32_t)kind);
    put_text(out, text, n);
}

void gate_put_tail(struct str *out, const struct gate_tail *t)
{
    put_i32(out, t->n);
    put_i32(out, t->first);
    put_u64(out, (uint64_t)t->timeout_ms);
    put_ids(out, t->given, t->n_given);
    put_i32(out, t->kv_from);
}

static sl_status get_stops(struct rd *r, struct arena *a, sl_request *q, sl_err *err)
{
    void *p = NULL;
    q->n_stop = get_count(r, 4);
    SL_TRY(mem_arena_array(a, (size_t)q->n_stop + 1, sizeof *q->stop, &p, err));
    const char **stop = p;
    for (int i = 0; i < q->n_stop; i++) {
        size_t n;
        const char *text = get_text(r, &n);
        char *copy = NULL;
        if (memchr(text, 0, n)) return bad("a stop string holds a NUL", err);
        SL_TRY(mem_arena_str(a, text, n, &copy, err));
        stop[i] = copy;
    }
    q->stop = stop;
    return SL_OK;
}

sl_status gate_read_request(struct rd *r, struct arena *a, sl_request *q, struct gate_grammar *g,
                            sl_err *err)
{
    memset(q, 0, sizeof *q);
    memset(g, 0, sizeof *g);
    SL_TRY(get_ids(r, a, &q->ids, &q->n_ids, err));
#define X(name) q->name = get_i32(r);
    NUMBER_LIST(X)
#undef X
    q->owner = rd_u64(r);
    q->cache_salt = rd_u64(r);
    SL_TRY(get_stops(r, a, q, err));
    SL_TRY(get_ids(r, a, &q->stop_ids, &q->n_stop_ids, err));
    SL_TRY(get_ids(r, a, &q->draft_ids, &q->n_draft_ids, err));
    SL_TRY(get_sampling(r, a, &q->sampling, err));
    g->any = get_i32(r) != 0;
    if (g->any) {
        g->kind = (sl_grammar_kind)get_i32(r);
        g->text = get_text(r, &g->n);
    }
    q->n = get_i32(r);
    q->first = get_i32(r);
    q->timeout_ms = (int64_t)rd_u64(r);
    SL_TRY(get_ids(r, a, &q->given, &q->n_given, err));
    q->kv_from = get_i32(r);
    return done(r, "it is no request", err);
}

/* ---- EVENTS ---- */

/* X(name): plain numbers of an event that may be below 2^31; and its times. */
#define EVENT_LIST(X)                                                                              \
    X(token)                                                                                       \
    X(index)                                                                                       \
    X(n_prompt)                                                                                    \
    X(n_token)                                                                                     \
    X(n_cached)                                                                                    \
    X(n_done)                                                                                      \
    X(prompt_pos)                                                                                  \
    X(n_preempt)                                                                                   \
    X(stop)                                                                                        \
    X(is_end)                                                                                      \
    X(n_draft)                                                                                     \
    X(n_right)                                                                                     \
    X(n_text_draft)                                                                                \
    X(n_text_right)
#define TIME_LIST(X)                                                                               \
    X(ttft_ns)                                                                                     \
    X(done_ns)                                                                                     \
    X(queue_ns)                                                                                    \
    X(prefill_ns)

void gate_put_event(struct str *out, const sl_event *ev)
{
    const char *error = ev->error ? ev->error : "";
#define X(name) put_i32(out, ev->name);
    EVENT_LIST(X)
#undef X
#define X(name) put_u64(out, (uint64_t)ev->name);
    TIME_LIST(X)
#undef X
    put_uint(out, ev->finish, 1);
    put_uint(out, ev->status, 1);
    put_uint(out, ev->n_held, 4);
    put_f32(out, ev->logprob);
    put_text(out, ev->text ? ev->text : "", ev->n_text);
    put_uint(out, 0, 1);
    put_text(out, error, strlen(error));
    put_uint(out, 0, 1);
    put_i32(out, ev->n_top);
    for (int i = 0; i < ev->n_top; i++) {
        put_i32(out, ev->top[i].token);
        put_f32(out, ev->top[i].logprob);
    }
    put_i32(out, ev->n_embedding);
    for (int i = 0; i < ev->n_embedding; i++)
        put_f32(out, ev->embedding[i]);
}

/* With a NUL after it. */
static const char *get_textz(struct rd *r, size_t *n)
{
    const char *p = get_text(r, n);
    if (rd_u8(r) != 0) r->failed = true;
    return p;
}

sl_status gate_read_event(struct rd *r, struct arena *scratch, sl_event *ev, sl_err *err)
{
    size_t n_error;
    void *p = NULL;
    mem_arena_reset(scratch);
    memset(ev, 0, sizeof *ev);
#define X(name) ev->name = get_i32(r);
    EVENT_LIST(X)
#undef X
#define X(name) ev->name = (int64_t)rd_u64(r);
    TIME_LIST(X)
#undef X
    unsigned finish = rd_u8(r), status = rd_u8(r);
    ev->n_held = rd_u32(r);
    ev->logprob = get_f32(r);
    ev->text = get_textz(r, &ev->n_text);
    ev->error = get_textz(r, &n_error);
    ev->n_top = get_count(r, 8);
    SL_TRY(mem_arena_array(scratch, (size_t)ev->n_top + 1, sizeof *ev->top, &p, err));
    sl_logprob *top = p;
    for (int i = 0; i < ev->n_top; i++) {
        top[i].token = get_i32(r);
        top[i].logprob = get_f32(r);
    }
    ev->top = top;
    ev->n_embedding = get_count(r, 4);
    SL_TRY(mem_arena_array(scratch, (size_t)ev->n_embedding + 1, sizeof *ev->embedding, &p, err));
    float *v = p;
    for (int i = 0; i < ev->n_embedding; i++)
        v[i] = get_f32(r);
    if (ev->n_embedding) ev->embedding = v;
    SL_TRY(done(r, "it is no event", err));
    if (finish >= SL_N_FINISH || status > SL_DEVICE || strlen(ev->error) != n_error ||
        ev->n_prompt < 0 || ev->n_token < 0)
        return bad("it is an event that cannot be", err);
    ev->finish = (sl_finish)finish;
    ev->status = (sl_status)status;
    if (!n_error) ev->error = NULL;
    return SL_OK;
}

/* ---- FAIL, PAGE, STATS, ROUTED ---- */

void gate_put_fail(struct str *out, const sl_err *why)
{
    put_uint(out, why->code, 1);
    put_text(out, why->text, strlen(why->text));
}

sl_status gate_read_fail(struct rd *r, sl_err *why, sl_err *err)
{
    memset(why, 0, sizeof *why);
    unsigned code = rd_u8(r);
    get_name(r, why->text, sizeof why->text);
    SL_TRY(done(r, "it is no refusal", err));
    if (code == SL_OK || code > SL_DEVICE) return bad("it refuses without a reason", err);
    why->code = (sl_status)code;
    why->file = "";
    return SL_OK;
}

void gate_put_page(struct str *out, const sl_kv_page *page)
{
    put_i32(out, page->block);
    put_i32(out, page->layer);
    put_u64(out, page->sum);
    put_text(out, page->bytes, page->n_bytes);
}

sl_status gate_read_page(struct rd *r, sl_kv_page *page, sl_err *err)
{
    page->block = get_i32(r);
    page->layer = get_i32(r);
    page->sum = rd_u64(r);
    page->bytes = get_text(r, &page->n_bytes);
    SL_TRY(done(r, "it is no page", err));
    return page->block < 0 || page->layer < 0 ? bad("it is a page of nothing", err) : SL_OK;
}

#define STAT_WORDS ((int)(sizeof(sl_stats) / sizeof(uint64_t)))
_Static_assert(sizeof(sl_stats) % sizeof(uint64_t) == 0, "stats are sent as words");

void gate_put_state(struct str *out, const struct gate_state *s)
{
    uint64_t word[STAT_WORDS];
    memcpy(word, &s->stats, sizeof word);
    put_i32(out, s->ready);
    put_i32(out, STAT_WORDS);
    for (int i = 0; i < STAT_WORDS; i++)
        put_u64(out, word[i]);
}

sl_status gate_read_state(struct rd *r, struct gate_state *s, sl_err *err)
{
    uint64_t word[STAT_WORDS];
    s->ready = get_i32(r) != 0;
    if (get_count(r, 8) != STAT_WORDS) return bad("its counters are others", err);
    for (int i = 0; i < STAT_WORDS; i++)
        word[i] = rd_u64(r);
    memcpy(&s->stats, word, sizeof word);
    return done(r, "it is no state", err);
}

void gate_put_routed(struct str *out, const uint64_t *count, int n_layer, int n_expert)
{
    put_i32(out, n_layer);
    put_i32(out, n_expert);
    for (int64_t i = 0; i < (int64_t)n_layer * n_expert; i++)
        put_u64(out, count[i]);
}

sl_status gate_read_routed(struct rd *r, uint64_t *count, int n_layer, int n_expert, sl_err *err)
{
    if (get_i32(r) != n_layer || get_i32(r) != n_expert ||
        rd_left(r) != 8 * (uint64_t)n_layer * (uint64_t)n_expert)
        return bad("it counts other experts", err);
    for (int64_t i = 0; i < (int64_t)n_layer * n_expert; i++)
        count[i] = rd_u64(r);
    return done(r, "it counts other experts", err);
}
