/* SPDX-License-Identifier: Apache-2.0 */
/* From sl_submit to the last event.
 *
 * The engine's thread writes events into the job's ring (on_event) and never waits: a ring that is
 * full means that the reader is too slow, and ends the request, with an error event after all that
 * the ring holds. A net thread takes them out (poll, pull) and has fmt make JSON of them. Each
 * submitted prompt holds a reference to the request until its last event, because the job lives in
 * the request's arena. */
#include <string.h>

#include "api/api_internal.h"
#include "base/size.h"

/* How many tokens a reader may lag behind: LAG of each sample, and in a stream that is plain about
 * 1200. */
#define RING_STREAM (64 * 1024)
#define RING_WHOLE (128 * 1024)
#define RING_MAX (1024 * 1024)
#define LAG 128
#define TEXT_BYTES 16    /* of a token, about */
#define STEP_TOKENS 8192 /* of prompts, that one step may echo */
#define PULL_BYTES                                                                                 \
    (16 * 1024)        /* of a stream at a time: more stays in the ring, where it is small */
#define WINDOW 16      /* prompts of one request that are in the engine at once */
#define ROOM_BYTES 512 /* of a stream, kept for the event that says why it ends early */

/* What stands in the ring before its payload: for plain tokens as little as can be, for this is
 * what a reader that stopped holds. */
struct rec {
    int32_t sub, index, token, n_text, n_top, n_prompt, n_done, n_token;
    float logprob;
    int16_t has_more, n_held; /* n_held: less than a stop string and a token */
};
struct more {
    int32_t prompt_pos, n_embedding, finish, status, n_cached, n_error, stop, is_end;
    int32_t n_draft, n_right, n_text_draft, n_text_right, n_replay;
    int64_t ttft_ns, done_ns, queue_ns, prefill_ns;
};

struct api_sub {
    struct api_job *job;
    uint64_t id;
    int i, n_left;
    int n_over; /* net thread: samples whose last event was read */
};

/* ---- engine thread ---- */

static void on_event(void *user, const sl_event *ev)
{
    struct api_sub *s = user;
    struct api_job *j = s->job;
    bool last = ev->finish != SL_FINISH_NONE, first = ev->n_token <= 1;
    struct more more = {.prompt_pos = ev->prompt_pos,
                        .n_embedding = ev->n_embedding,
                        .finish = (int32_t)ev->finish,
                        .status = (int32_t)ev->status,
                        .n_cached = ev->n_cached,
                        .is_end = ev->is_end,
                        .n_error = ev->error ? (int32_t)strlen(ev->error) : 0,
                        .stop = ev->stop,
                        .n_draft = ev->n_draft,
                        .n_right = ev->n_right,
                        .n_text_draft = ev->n_text_draft,
                        .n_text_right = ev->n_text_right,
                        .n_replay = ev->n_replay,
                        .ttft_ns = ev->ttft_ns,
                        .done_ns = ev->done_ns,
                        .queue_ns = ev->queue_ns,
                        .prefill_ns = ev->prefill_ns};
    struct rec rec = {.sub = s->i,
                      .index = ev->index,
                      .token = ev->token,
                      .n_text = (int32_t)ev->n_text,
                      .n_top = ev->n_top,
                      .n_prompt = ev->n_prompt,
                      .n_done = ev->n_done,
                      .n_token = ev->n_token,
                      .logprob = ev->logprob,
                      .n_held = (int16_t)BASE_MIN(ev->n_held, INT16_MAX),
                      .has_more =
                          last || first || ev->prompt_pos >= 0 || more.n_embedding || more.n_error};
    struct net_piece piece[6] = {
        {&rec, sizeof rec},
        {&more, rec.has_more ? sizeof more : 0},
        {ev->text, ev->n_text},
        {ev->top, (size_t)ev->n_top * sizeof *ev->top},
        {ev->embedding, (size_t)ev->n_embedding * sizeof *ev->embedding},
        {ev->error, (size_t)more.n_error},
    };
    /* a client that waits for the first token or for the end waits for nothing else */
    bool now = last || (j->g->stream && ev->n_token == 1);
    if (net_feed_put(&j->feed, piece, 6, now) == NET_FEED_FULL && !last)
        sl_cancel(j->a->o.engine, ev->id);
    if (last && --s->n_left == 0) {
        net_count_sub(&j->a->n_gen, 1);
        net_req_unref(j->r); /* may free the job */
    }
}

/* ---- worker and net threads ---- */

static sl_status submit(struct api_job *j, sl_err *err)
{
    struct api_sub *s = &j->sub[j->n_submitted];
    const struct api_prompt *p = &j->prompt[j->n_submitted];
    sl_request q = j->g->q;
    s->job = j;
    s->i = j->n_submitted;
    s->n_left = BASE_MAX(q.n, 1);
    q.ids = p->ids;
    q.n_ids = p->n_ids;
    q.text = p->text;
    q.on_event = on_event;
    q.user = s;
    net_req_ref(j->r);
    net_count_add(&j->a->n_gen, 1);
    sl_status st = sl_submit(j->a->o.engine, &q, &s->id, err);
    if (st) {
        api_say_asked(j->g, err);
        net_count_sub(&j->a->n_gen, 1);
        net_req_unref(j->r);
        return st;
    }
    j->n_submitted++;
    return SL_OK;
}

static void cancel(struct api_job *j)
{
    for (int i = 0; i < j->n_submitted; i++)
        if (j->sub[i].n_over < j->g->n) sl_cancel(j->a->o.engine, j->sub[i].id);
}

static void fail(struct api_job *j, const sl_err *err)
{
    if (j->failed) return;
    j->failed = true;
    j->err = *err;
    cancel(j);
}

static void sums(struct api_job *j, const struct api_event *ev)
{
    struct api_sub *s = &j->sub[ev->sub];
    j->n_answer_tok += ev->n_token;
    j->n_text_draft += ev->n_text_draft;
    j->n_text_right += ev->n_text_right;
    if (s->n_over++ == 0) {
        j->n_prompt_tok += ev->n_prompt;
        j->n_cached_tok += ev->n_cached;
        j->n_written_tok += api_written(j->a, ev->n_prompt, ev->n_cached);
    }
    if (s->n_over == j->g->n) j->n_over++;
    if (ev->sub == 0 && ev->index == 0) j->last = *ev;
    api_metrics_done(j->a, j, ev);
}

static void take(struct api_job *j, const struct api_event *ev, struct str *out)
{
    sl_err err = {0};
    j->n_seen_tok += ev->token >= 0 && ev->prompt_pos < 0;
    if (j->n_seen_tok == 1) j->n_seen_prompt = ev->n_prompt;
    if (ev->finish != SL_FINISH_NONE) sums(j, ev);
    if (ev->finish == SL_FINISH_ERROR) {
        (void)SL_FAIL(&err, INTERNAL, "%s", ev->error);
        err.code = (sl_status)ev->status;
        fail(j, &err);
    } else if (ev->finish == SL_FINISH_CANCELLED && !j->failed) {
        (void)SL_FAIL(&err, NOMEM, "the server ended this request");
        err.code = SL_CANCELLED;
        fail(j, &err);
    }
    if (!j->failed) j->fmt->event(j, ev, out);
}

static void short_of_memory(struct api_job *j)
{
    sl_err err = {0};
    (void)SL_FAIL(&err, NOMEM, "out of memory: an answer");
    fail(j, &err);
}

/* The ring was full, and what was in it is read. */
static void check_broken(struct api_job *j, sl_status code, const char *text)
{
    sl_err err = {0};
    if (!atomic_load(&j->feed.broken) || net_ring_used(&j->feed.ring)) return;
    (void)SL_FAIL(&err, BUSY, "%s", text);
    err.code = code;
    fail(j, &err);
}

static bool reserve(struct api_job *j, size_t n)
{
    void *p = NULL;
    if (n <= j->n_buf) return true;
    if (mem_realloc(MEM_REQUEST, j->buf, 2 * n, &p, NULL)) return false;
    j->buf = p;
    j->n_buf = 2 * n;
    return true;
}

/* The next record without its payload. */
static struct api_event next_event(struct net_ring *ring)
{
    struct rec rec;
    struct more more = {.prompt_pos = -1, .finish = SL_FINISH_NONE, .stop = -1};
    net_ring_get(ring, &rec, sizeof rec);
    if (rec.has_more) net_ring_get(ring, &more, sizeof more);
    return (struct api_event){.sub = rec.sub,
                              .index = rec.index,
                              .token = rec.token,
                              .n_top = rec.n_top,
                              .prompt_pos = more.prompt_pos,
                              .n_embedding = more.n_embedding,
                              .finish = more.finish,
                              .status = more.status,
                              .n_prompt = rec.n_prompt,
                              .n_token = rec.n_token,
                              .n_cached = more.n_cached,
                              .n_done = rec.n_done,
                              .n_text = rec.n_text,
                              .n_error = more.n_error,
                              .stop = more.stop,
                              .is_end = more.is_end,
                              .n_draft = more.n_draft,
                              .n_right = more.n_right,
                              .n_text_draft = more.n_text_draft,
                              .n_text_right = more.n_text_right,
                              .n_replay = more.n_replay,
                              .n_held = rec.n_held,
                              .logprob = rec.logprob,
                              .ttft_ns = more.ttft_ns,
                              .done_ns = more.done_ns,
                              .queue_ns = more.queue_ns,
                              .prefill_ns = more.prefill_ns};
}

/* Read what is in the ring; of a stream no more than PULL_BYTES make: true, there may be more. */
static bool drain(struct api_job *j, struct str *out)
{
    size_t max = out ? out->n + PULL_BYTES : 0;
    while (net_ring_used(&j->feed.ring) >= sizeof(struct rec) && (!out || out->n < max)) {
        struct api_event next = next_event(&j->feed.ring), *ev = &next;
        size_t n_text = (size_t)ev->n_text, n_top = (size_t)ev->n_top * sizeof *ev->top,
               n_emb = (size_t)ev->n_embedding * sizeof(float), n_err = (size_t)ev->n_error;
        size_t at_top = size_round(n_text + 1, 16), at_emb = at_top + size_round(n_top, 16),
               at_err = at_emb + n_emb, n = at_err + n_err + 1;
        if (!reserve(j, n)) {
            short_of_memory(j); /* the rest of this record is still there: nothing is read now */
            return false;
        }
        char *p = j->buf;
        net_ring_get(&j->feed.ring, p, n_text);
        net_ring_get(&j->feed.ring, p + at_top, n_top);
        net_ring_get(&j->feed.ring, p + at_emb, n_emb);
        net_ring_get(&j->feed.ring, p + at_err, n_err);
        p[n_text] = p[at_err + n_err] = 0;
        ev->text = p;
        ev->top = (const sl_logprob *)(const void *)(p + at_top);
        ev->embedding = (const float *)(const void *)(p + at_emb);
        ev->error = p + at_err;
        take(j, ev, out);
    }
    return out && out->n >= max;
}

/* Prompts that wait outside of the engine's queue. */
static void refill(struct api_job *j)
{
    sl_err err = {0};
    while (!j->failed && j->n_submitted < j->n_prompt && j->n_submitted - j->n_over < j->window) {
        sl_status st = submit(j, &err);
        if (st == SL_BUSY && j->n_submitted > j->n_over) return; /* when the next one is over */
        if (st) fail(j, &err);
    }
}

static bool over(const struct api_job *j)
{
    return j->n_over == j->n_submitted && (j->failed || j->n_submitted == j->n_prompt);
}

static enum net_next poll(struct net_req *r)
{
    struct api_job *j = r->user;
    (void)drain(j, NULL);
    check_broken(j, SL_BUSY, "the server could not keep up with this answer");
    refill(j);
    if (j->failed)
        api_error_of(j->a, r, &j->err);
    else if (over(j)) {
        j->ended = true;
        j->fmt->end(j, NULL);
    } else
        return NET_WAIT;
    api_settle(j->a, r);
    return NET_END;
}

static enum net_next pull_more(struct net_req *r, struct str *out)
{
    struct api_job *j = r->user;
    bool more = drain(j, out);
    check_broken(j, SL_TIMEOUT, "the stream was not read as fast as it was written");
    refill(j);
    if (j->failed && j->fmt->fail) {
        j->fmt->fail(j, out);
        return NET_END;
    }
    if (j->failed) {
        struct str s;
        str_init(&s, MEM_REQUEST, 0);
        api_error_json(&s, api_error_http(&j->err), api_error_code(&j->err),
                       api_error_field(r, &j->err), api_error_text(&j->err));
        api_sse(out, &s);
        str_puts(out, "data: [DONE]\n\n");
        str_fini(&s);
        return NET_END;
    }
    if (!over(j)) return more ? NET_MORE : NET_WAIT;
    j->ended = true;
    j->fmt->end(j, out);
    return NET_END;
}

static enum net_next pull(struct net_req *r, struct str *out)
{
    static const char none[] =
        "data: {\"error\":{\"message\":\"there is no memory for the rest now\",\"type\":"
        "\"rate_limit_error\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}\n\n"
        "data: [DONE]\n\n";
    struct api_job *j = r->user;
    size_t n = out->n;
    enum net_next next = pull_more(r, out);
    if (out->failed) { /* whole events are out; instead of a part of one, what there is room for */
        short_of_memory(j);
        str_cut(out, n);
        str_puts(out, api_msg_speaks(r) ? api_msg_lost : none);
        next = out->failed ? NET_ABORT : NET_END;
    }
    if (next == NET_END) api_settle(j->a, r);
    return next;
}

static void closed(struct net_req *r)
{
    struct api_job *j = r->user;
    net_feed_kill(&j->feed);
    if (!over(j)) cancel(j);
}

static void release(struct net_req *r)
{
    struct api_job *j = r->user;
    int n_lost = j->n_submitted * j->g->n; /* samples whose end nobody read: the client went away */
    for (int i = 0; i < j->n_submitted; i++)
        n_lost -= j->sub[i].n_over;
    net_count_add(&j->a->metrics.finish[SL_FINISH_CANCELLED], n_lost);
    if (j->fmt->fini) j->fmt->fini(j);
    sl_grammar_unref(j->g->grammar);
    net_feed_fini(&j->feed);
    mem_free(j->buf);
}

static const struct net_ops ops = {poll, pull, closed, release};

const struct api_job *api_job_of(const struct net_req *r)
{
    return r->ops == &ops ? r->user : NULL;
}

/* The ring holds what a few steps tell: all at once where a prompt is echoed. */
static size_t ring_bytes(const api *a, const struct api_gen *g, int n_prompt)
{
    size_t each =
               sizeof(struct rec) + TEXT_BYTES + (size_t)BASE_MAX(g->n_top, 0) * sizeof(sl_logprob),
           rows = BASE_MIN((size_t)n_prompt * (size_t)g->n, (size_t)BASE_MAX(a->o.max_batch, 1)),
           least = g->stream ? RING_STREAM : RING_WHOLE;
    if (g->q.embed) return RING_MAX;
    if (g->q.echo_logprob)
        return 2 * (each + sizeof(struct more)) * (size_t)BASE_MIN(a->ei.n_ctx, STEP_TOKENS);
    return BASE_MAX(least, BASE_MIN(rows * each * LAG, RING_MAX));
}

sl_status api_job_start(api *a, struct net_req *r, const struct api_ask *ask, sl_err *err)
{
    struct api_gen *g = ask->g;
    int n_prompt = ask->n_prompt;
    void *mem = NULL;
    size_t align = _Alignof(struct api_job); /* of its ring: more than arenas give */
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct api_job) + align, &mem, err));
    struct api_job *j = (struct api_job *)size_round((uintptr_t)mem, align);
    SL_TRY(mem_arena_array(&r->arena, (size_t)n_prompt, sizeof *j->sub, &mem, err));
    *j = (struct api_job){.a = a, .r = r, .g = g, .prompt = ask->prompt, .n_prompt = n_prompt};
    j->sub = mem;
    j->fmt = ask->fmt;
    j->n_reason_tok = -1;
    j->user = ask->user;
    j->window = BASE_MIN(WINDOW, BASE_MAX(a->o.max_batch, 1));
    r->user = j;
    sl_status st = net_feed_init(&j->feed, r, ring_bytes(a, g, n_prompt), !g->stream, err);
    if (!st && g->stream) st = net_stream_room(r, ROOM_BYTES, err);
    if (!st) st = submit(j, err);
    if (st) {
        release(r);
        return st;
    }
    r->ops = &ops;
    refill(j);
    r->apart = n_prompt > j->window; /* refill reads the others' texts when there is room */
    if (g->stream) {
        net_reply_header(r, "Cache-Control", "no-cache");
        net_reply_header(r, "X-Accel-Buffering", "no");
        net_reply_stream(r, 200, "text/event-stream; charset=utf-8");
    }
    return SL_OK;
}
