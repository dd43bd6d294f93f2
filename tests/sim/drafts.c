/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation changes nothing: every sample's events are compared, bit for bit but for times, with
 * those that it has alone and without drafts. Requests are greedy or sampled, with filters,
 * penalties, biases, stop strings and tokens, least lengths, log probabilities, echoed prompts,
 * grammars, several samples, pooled states; some go on to the end of the context, some are the next
 * turn after another one's answer, some end at a token that another answer has. Some engines have
 * --exact, or experts that come late. A trial draws threads, chunk, sequences (1 to 32), the size
 * of the KV cache (down to one context), the prefix tree on or off, who comes when, who is
 * cancelled, whose answer has begun elsewhere, and where drafts come from: the text itself, an
 * expected text that is nearly right or goes on behind the answer's end, the answer at a rate, or a
 * guesser that is right mostly, seldom or never, a small model, the MTP layer (of a part of the
 * vocabulary, too); 1 to 7 of them, or as many as the planner thinks pay, or as a request says. The
 * small model is the model itself: its guesses are right where nothing is drawn. Freed blocks are
 * filled with NaN.
 *
 * drafts N SEED [--layout L] [--from FIRST] [--threads N] MODEL...: N trials of each model, on so
 * many ranks; or of these those from FIRST on, as a run goes on that was ended: 20 trials at a time
 * depend on the seed and their number alone, and say when they are over. --threads: not as drawn,
 * for a run on fewer cores beside other work. Sources and numbers of drafts are gone
 * through in turn, and pairs of --acts and --kv, a new one after every 20 trials. What was reached
 * is counted, and what a run of that size must reach and did not is an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "engine/engine_internal.h"

#define N_REQ 24
#define PROMPT_MAX 150
#define NEW_MAX 64
#define SAMPLE_MAX 3
#define CTX (PROMPT_MAX + NEW_MAX)
#define EVENT_MAX (PROMPT_MAX + NEW_MAX + 8)
#define PAIR_TRIALS 20 /* of one pair of --acts and --kv */
#define N_PAIR 16

/* Where drafts come from; the last one only of models with an MTP layer. */
enum from { NGRAM, AUTO, REPLAY, GUESS, SMALL, AUTO_SMALL, MTP, N_FROM };
static const char *const from_name[] = {"ngram", "auto", "replay:0.8", "ngram",
                                        "model", "auto", "mtp"};

/* Requests that were compared, by what they ask for. X(NAME, name) */
#define KIND_LIST(X)                                                                               \
    X(GREEDY, "greedy")                                                                            \
    X(SAMPLED, "sampled")                                                                          \
    X(FILTERS, "filters")                                                                          \
    X(PENALTIES, "penalties")                                                                      \
    X(BIAS, "bias")                                                                                \
    X(GRAMMAR, "grammar")                                                                          \
    X(STOP, "stop strings")                                                                        \
    X(STOP_IDS, "stop ids")                                                                        \
    X(ENDED, "ended by a stop id")                                                                 \
    X(EMBED, "pooled states")                                                                      \
    X(LOGPROBS, "log probabilities")                                                               \
    X(ECHO, "echo")                                                                                \
    X(SAMPLES, "several samples")                                                                  \
    X(TEXT, "expected text")                                                                       \
    X(CONTEXT, "to the context's end")                                                             \
    X(TURN, "next turns")                                                                          \
    X(GIVEN, "begun elsewhere")                                                                    \
    X(NUMBER, "their own number of drafts")                                                        \
    X(CANCEL, "cancelled")
enum kind {
#define X(NAME, name) KIND_##NAME,
    KIND_LIST(X)
#undef X
        N_KIND
};
static const char *const kind_name[] = {
#define X(NAME, name) name,
    KIND_LIST(X)
#undef X
};

/* What one sample's events were. */
struct story {
    int n_ev, n_tok;
    uint64_t ev[EVENT_MAX];
    int32_t tok[NEW_MAX + 1];
    bool ended; /* by a stop string or token */
};

struct spec {
    sl_request q;
    int32_t ids[PROMPT_MAX], text[3 * NEW_MAX], stop_id[2];
    sl_bias bias[3];
    struct story alone[SAMPLE_MAX];
    int turn_of; /* the spec whose prompt and answer its own begins with; -1 = none */
};

/* A request of a trial. */
struct run {
    const struct spec *spec;
    struct story *into; /* NULL: compare */
    int n_ev[SAMPLE_MAX], n_given, n_draft;
    uint64_t id;
    int cancel; /* after so many events of the first sample; -1 = not */
    bool cancelled, over;
};

struct trial {
    struct spec *spec;
    struct run run[2 * N_REQ];
    int n_run;
    uint64_t rng;
    const char *layout;
    int n_thread; /* 0: drawn */
    int right; /* of 8 guesses */
    int n_vocab, exact, n_defer; /* of the engines under way */
    bool has_mtp, any_mtp;                /* the model under way; one of them */
    int n_cell[N_FROM][SL_DRAFT_MAX + 1]; /* trials, by source and most drafts; 0 = what pays */
    int n_pair[N_PAIR], n_batch[33];      /* by acts and kv; by sequences at once */
    int n_kind[N_KIND];                   /* requests */
    long long n_trial, n_event, n_draft, n_right, n_preempt, n_hit, n_small;
};

static int pick(struct trial *t, int n)
{
    return (int)(rng_next(&t->rng) % (uint64_t)n);
}

static void must(sl_status st, const sl_err *err)
{
    if (!st) return;
    fprintf(stderr, "drafts: %s\n", err->text);
    exit(1);
}

/* All of an event but times, and what depends on the company: cached tokens, preemptions. */
static uint64_t hash_event(const sl_event *ev)
{
    uint64_t h = hash_bytes(ev->text, ev->n_text, 0);
    const int64_t v[] = {ev->token,           ev->index,
                         (int64_t)ev->finish, ev->status,
                         ev->n_top,           ev->n_prompt,
                         ev->n_token,         ev->is_end,
                         ev->prompt_pos,      ev->finish == SL_FINISH_STOP_STRING ? ev->stop : 0,
                         (int64_t)ev->n_held};
    h = hash_bytes(v, sizeof v, h);
    h = hash_bytes(&ev->logprob, sizeof ev->logprob, h);
    if (ev->embedding)
        h = hash_bytes(ev->embedding, (size_t)ev->n_embedding * sizeof *ev->embedding, h);
    for (int i = 0; i < ev->n_top; i++)
        h = hash_bytes(&ev->top[i], sizeof ev->top[i], h);
    return ev->error ? hash_bytes(ev->error, strlen(ev->error), h) : h;
}

static void on_event(void *user, const sl_event *ev)
{
    struct run *r = user;
    uint64_t h = hash_event(ev);
    int at = r->n_ev[ev->index]++;
    if (r->into) {
        struct story *s = &r->into[ev->index];
        s->ev[at] = h;
        s->n_ev = at + 1;
        s->ended = ev->finish == SL_FINISH_STOP_STRING;
        if (ev->prompt_pos < 0 && ev->token >= 0) s->tok[s->n_tok++] = ev->token;
        return;
    }
    r->over = r->over || ev->finish != SL_FINISH_NONE;
    if (r->cancelled && ev->finish == SL_FINISH_CANCELLED) return;
    const struct story *s = &r->spec->alone[ev->index];
    if (at < s->n_ev && s->ev[at] == h) return;
    fprintf(stderr, "drafts: event %d of sample %d differs: token %d \"%.*s\" finish %d %s\n", at,
            ev->index, ev->token, (int)ev->n_text, ev->text, (int)ev->finish,
            ev->error ? ev->error : "");
    exit(1);
}

/* Guesses for whoever asks: those of the answer, or not. */
static int guess(void *user, const struct request *r, int n_max, int32_t *out)
{
    struct trial *t = user;
    const struct run *run = r->g->user;
    const struct story *s = &run->spec->alone[r->index];
    int at = r->n_ids - r->n_prompt, n = pick(t, n_max + 1);
    for (int i = 0; i < n; i++) {
        bool right = at + i < s->n_tok && pick(t, 8) < t->right;
        out[i] = right ? s->tok[at + i] : pick(t, t->n_vocab);
    }
    return n;
}

/* A step that a lane has under way was told before the block was freed: it may copy it, and whoever
 * gets it writes into it later. */
static bool under_way(const sl_engine *e)
{
    bool any = false;
    for (int i = 0; e->lane && i < e->n_lane; i++)
        any = any || e->lane[i].under_way;
    return any;
}

static void poison(void *user, int32_t blk)
{
    sl_engine *e = user;
    if (under_way(e)) return;
    dev_kv_poison(e->d, e->kv, DEV_KV_PAGED, blk);
    if (e->small.on) dev_kv_poison(e->d, e->small.kv, DEV_KV_PAGED, blk);
}

static void poison_window(void *user, int32_t win)
{
    sl_engine *e = user;
    if (under_way(e)) return;
    dev_kv_poison(e->d, e->kv, DEV_KV_WINDOW, win);
}

static sl_engine *open_engine(sl_model *m, const sl_engine_opts *o)
{
    sl_err err;
    sl_engine *e = NULL;
    must(sl_engine_open(m, o, &e, &err), &err);
    e->pool.on_free = poison;
    e->pool.on_win_free = poison_window;
    e->pool.user = e;
    return e;
}

static void step(sl_engine *e, struct trial *t)
{
    sl_err err;
    must(sl_step(e, &err), &err);
    for (int i = 0; i < t->n_run; i++) {
        struct run *r = &t->run[i];
        if (r->cancel < 0 || r->cancelled || r->n_ev[0] - r->n_given < r->cancel) continue;
        r->cancelled = true;
        sl_cancel(e, r->id);
    }
}

static void run_all(sl_engine *e, struct trial *t)
{
    while (sl_pending(e))
        step(e, t);
}

/* ---- requests ---- */

static void make_sampling(struct trial *t, struct spec *s)
{
    sl_sampling *p = &s->q.sampling;
    p->seed = rng_next(&t->rng);
    if (pick(t, 3)) p->temperature = 0.2f + 0.4f * (float)pick(t, 4);
    if (pick(t, 4) == 0) p->top_k = 1 + pick(t, 40);
    if (pick(t, 4) == 0) p->top_p = 0.5f + 0.1f * (float)pick(t, 5);
    if (pick(t, 4) == 0) p->min_p = 0.05f;
    if (pick(t, 4) == 0) p->repeat_penalty = 1.3f;
    if (pick(t, 4) == 0) p->presence_penalty = 0.5f;
    if (pick(t, 4) == 0) p->frequency_penalty = 0.3f;
    if (pick(t, 5)) return;
    for (int i = 0; i < 3; i++)
        s->bias[i] = (sl_bias){pick(t, t->n_vocab), pick(t, 2) ? 3.0f : -100.0f};
    p->bias = s->bias;
    p->n_bias = 3;
}

/* The prompt and the answer of an earlier one, and some tokens more, where there is room. */
static void make_turn(struct trial *t, struct spec *s, int i)
{
    int of = pick(t, i), more = 1 + pick(t, 8);
    const struct spec *b = &t->spec[of];
    const struct story *a = &b->alone[0];
    int n = b->q.n_ids + a->n_tok;
    if (n + more > PROMPT_MAX) return;
    memcpy(s->ids, b->ids, (size_t)b->q.n_ids * sizeof *s->ids);
    memcpy(s->ids + b->q.n_ids, a->tok, (size_t)a->n_tok * sizeof *s->ids);
    for (int k = 0; k < more; k++)
        s->ids[n + k] = pick(t, t->n_vocab);
    s->q.n_ids = n + more;
    s->turn_of = of;
}

static void make_request(struct trial *t, struct spec *s, int i, sl_grammar *const *masks)
{
    static const char *const stops[] = {"a", "e", "th", "\n"};
    memset(s, 0, sizeof *s);
    bool full = i % 8 == 2 || pick(t, 6) == 0;
    int n = 1 + pick(t, i % 4 ? 60 : PROMPT_MAX), period = 1 + pick(t, 30);
    if (full) n = PROMPT_MAX;
    for (int k = 0; k < n; k++) { /* half of them begin alike; many repeat */
        int32_t any = pick(t, t->n_vocab);
        s->ids[k] = i % 2 && k < 70 ? (k * 7 + 3) % t->n_vocab : any;
        if (k >= period && pick(t, 3)) s->ids[k] = s->ids[k - period];
    }
    s->q = (sl_request){.ids = s->ids,
                        .n_ids = n,
                        .max_tokens = full ? 0 : 1 + pick(t, NEW_MAX),
                        .n_logprob = -1,
                        .ignore_eos = pick(t, 2),
                        .on_event = on_event};
    s->turn_of = -1;
    if (i % 5 == 4 && !full) make_turn(t, s, i);
    make_sampling(t, s);
    if (pick(t, 4) == 0) s->q.min_tokens = pick(t, 20);
    if (pick(t, 4) == 0) s->q.want_logprob = 1, s->q.n_logprob = pick(t, 6);
    if (pick(t, 4) == 0) s->q.stop = &stops[pick(t, 3)], s->q.n_stop = 1 + pick(t, 2);
    if (pick(t, 4) == 0) { /* often one that an answer before has */
        const struct story *a = &t->spec[pick(t, i + 1)].alone[0];
        s->stop_id[0] = a->n_tok && pick(t, 4) ? a->tok[pick(t, a->n_tok)] : pick(t, t->n_vocab);
        s->stop_id[1] = pick(t, t->n_vocab);
        s->q.stop_ids = s->stop_id;
        s->q.n_stop_ids = 2;
    }
    if (pick(t, 4) == 0) s->q.keep_special = pick(t, 3);
    if (pick(t, 10) == 0 && s->turn_of < 0)
        s->q.embed = 1 + pick(t, 2);
    else if (pick(t, 4) == 0)
        s->q.grammar = masks[pick(t, 2)];
    else if (pick(t, 8) == 0)
        s->q.echo_logprob = 1;
    else if (pick(t, 4) == 0)
        s->q.n = 1 + pick(t, SAMPLE_MAX);
}

/* An expected text: the answer with some tokens more, less and other ones; some go on behind its
 * end, and some end wrong. */
static void make_text(struct trial *t, struct spec *s)
{
    const struct story *a = &s->alone[0];
    int n = 0;
    for (int i = 0; i < a->n_tok; i++) {
        int how = pick(t, 24);
        if (how == 0) continue;
        if (how == 1) s->text[n++] = pick(t, t->n_vocab);
        s->text[n++] = how == 2 ? pick(t, t->n_vocab) : a->tok[i];
    }
    for (int k = pick(t, 3) ? 0 : pick(t, 12); k > 0; k--)
        s->text[n++] = pick(t, t->n_vocab);
    if (n && pick(t, 4) == 0) s->text[n - 1] = pick(t, t->n_vocab);
    if (s->q.n > 1 || s->q.embed) return;
    s->q.draft_ids = s->text;
    s->q.n_draft_ids = n;
}

static void make_specs(sl_model *m, struct trial *t, sl_acts acts, sl_kv kv,
                       sl_grammar *const *masks)
{
    sl_err err;
    t->n_run = 0;
    sl_engine *e = open_engine(m, &(sl_engine_opts){.n_thread = 1,
                                                    .n_ctx = CTX,
                                                    .n_seq_max = SAMPLE_MAX,
                                                    .no_reuse = 1,
                                                    .exact = t->exact,
                                                    .n_defer = t->n_defer,
                                                    .acts = acts,
                                                    .kv = kv});
    for (int i = 0; i < N_REQ; i++) {
        struct spec *s = &t->spec[i];
        make_request(t, s, i, masks);
        struct run r = {.spec = s, .into = s->alone};
        s->q.user = &r;
        must(sl_submit(e, &s->q, NULL, &err), &err);
        run_all(e, t);
        make_text(t, s);
    }
    sl_engine_close(e);
}

/* ---- a trial ---- */

/* Which spec comes next: often the next turn of one that was there. Half of those wait for its
 * answer. */
static const struct spec *choose(sl_engine *e, struct trial *t)
{
    const struct spec *s = &t->spec[pick(t, N_REQ)];
    for (int k = pick(t, 2) * t->n_run - 1; k >= 0; k--)
        for (int j = 0; j < N_REQ; j++) {
            if (t->spec[j].turn_of != t->run[k].spec - t->spec) continue;
            for (int n = pick(t, 2) * 100; n > 0 && sl_pending(e) && !t->run[k].over; n--)
                step(e, t);
            return &t->spec[j];
        }
    return s;
}

static void submit(sl_engine *e, struct trial *t, int i)
{
    sl_err err;
    struct run *r = &t->run[i];
    *r = (struct run){.spec = choose(e, t), .cancel = pick(t, 12) ? -1 : pick(t, 20)};
    sl_request q = r->spec->q;
    const struct story *a = &r->spec->alone[0];
    q.user = r;
    q.priority = pick(t, 4) ? 0 : pick(t, 5) - 2;
    q.owner = (uint64_t)pick(t, 3);
    q.cache_salt = (uint64_t)(pick(t, 5) == 0);
    q.no_cache = pick(t, 12) == 0;
    if (pick(t, 4) == 0) q.n_draft = pick(t, SL_DRAFT_MAX + 2) - 1;
    if (pick(t, 6) == 0 && q.n < 2 && !q.echo_logprob && !q.embed && a->n_tok > 1) {
        q.given = a->tok;
        q.n_given = r->n_given = r->n_ev[0] = 1 + pick(t, a->n_tok - 1);
    }
    r->n_draft = q.n_draft;
    must(sl_submit(e, &q, &r->id, &err), &err);
    t->n_run = i + 1;
    for (int k = pick(t, 4); k > 0; k--)
        step(e, t);
}

static void end_trial(struct trial *t, sl_engine *e)
{
    sl_stats st;
    sl_stats_get(e, &st);
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        t->n_draft += (long long)st.n_draft[j];
        t->n_right += (long long)st.n_right[j];
        if (e->small.on) t->n_small += (long long)st.n_right[j];
    }
    t->n_preempt += (long long)st.n_preempt;
    t->n_hit += (long long)st.cache_hit_tok;
    t->n_trial++;
    for (int h = 0; h < e->n_home; h++) {
        const struct kv_pool *p = e->home[h].pool;
        if (kv_pool_avail(p) == p->n_blk) continue;
        fprintf(stderr, "drafts: a block leaked\n");
        exit(1);
    }
}

/* The first answer ended by a stop token. */
static bool by_stop_id(const struct spec *s)
{
    const struct story *a = &s->alone[0];
    int32_t last = a->n_tok ? a->tok[a->n_tok - 1] : -1;
    return s->q.n_stop_ids && a->ended && (last == s->stop_id[0] || last == s->stop_id[1]);
}

static void count_kinds(struct trial *t, const struct run *r)
{
    const sl_request *q = &r->spec->q;
    const sl_sampling *p = &q->sampling;
    const bool is[N_KIND] = {[KIND_GREEDY] = p->temperature <= 0,
                             [KIND_SAMPLED] = p->temperature > 0,
                             [KIND_FILTERS] =
                                 p->temperature > 0 && (p->top_k || p->top_p > 0 || p->min_p > 0),
                             [KIND_PENALTIES] = p->repeat_penalty > 0 || p->presence_penalty > 0 ||
                                                p->frequency_penalty > 0,
                             [KIND_BIAS] = p->n_bias > 0,
                             [KIND_GRAMMAR] = q->grammar != NULL,
                             [KIND_STOP] = q->n_stop > 0,
                             [KIND_STOP_IDS] = q->n_stop_ids > 0,
                             [KIND_ENDED] = by_stop_id(r->spec),
                             [KIND_EMBED] = q->embed > 0,
                             [KIND_LOGPROBS] = q->want_logprob,
                             [KIND_ECHO] = q->echo_logprob,
                             [KIND_SAMPLES] = q->n > 1,
                             [KIND_TEXT] = q->n_draft_ids > 0,
                             [KIND_CONTEXT] = q->n_ids + r->spec->alone[0].n_tok >= CTX,
                             [KIND_TURN] = r->spec->turn_of >= 0,
                             [KIND_GIVEN] = r->n_given > 0,
                             [KIND_NUMBER] = r->n_draft != 0,
                             [KIND_CANCEL] = r->cancelled};
    for (int i = 0; i < N_KIND; i++)
        t->n_kind[i] += is[i];
}

/* The pair of trial i, and its number. */
static int pair_of(uint64_t i, sl_acts *acts, sl_kv *kv)
{
    static const sl_kv kvs[] = {SL_KV_BF16, SL_KV_F16, SL_KV_Q8, SL_KV_F32};
    int pair = (int)(i % N_PAIR);
    *acts = (sl_acts)(pair % 4);
    *kv = kvs[(pair + pair / 4) % 4];
    return pair;
}

/* Trial number i of a model. */
static void one_trial(sl_model *m, struct trial *t, uint64_t i, sl_acts acts, sl_kv kv)
{
    int n_from = t->has_mtp ? N_FROM : MTP, batch = 1 + pick(t, 32);
    int n = 1 + pick(t, BASE_MIN(batch, 2 * N_REQ));
    enum from how = (enum from)(i % (uint64_t)n_from);
    if (t->layout && (how == SMALL || how == AUTO_SMALL)) how = t->has_mtp ? MTP : AUTO;
    int most = (int)(i / (uint64_t)n_from % (SL_DRAFT_MAX + 1));
    sl_engine_opts o = {.n_thread = 1 + pick(t, 3),
                        .n_ctx = CTX,
                        .n_seq_max = batch,
                        .n_chunk = 1 + pick(t, 1 << pick(t, 9)),
                        .no_reuse = pick(t, 4) == 0,
                        .exact = t->exact,
                        .n_defer = t->n_defer,
                        .acts = acts,
                        .kv = kv,
                        .n_queue_max = 8 * N_REQ,
                        .layout = t->layout,
                        .draft = from_name[how],
                        .draft_model = how == SMALL || how == AUTO_SMALL ? m : NULL,
                        .draft_max = most,
                        .draft_always = most > 0 && pick(t, 4) > 0};
    o.kv_tokens = CTX + (pick(t, 3) ? pick(t, CTX * 2) : CTX * batch);
    if (t->layout) o.n_thread = BASE_MAX(o.n_thread, 4);
    if (t->n_thread) o.n_thread = t->n_thread;
    if (t->has_mtp && how == MTP && pick(t, 3) == 0) o.draft_vocab = 1 + pick(t, t->n_vocab);
    t->n_run = 0;
    t->n_cell[how][most]++;
    t->n_batch[batch]++;
    sl_engine *e = open_engine(m, &o);
    kv_pool_shuffle(&e->pool, rng_next(&t->rng) | 1);
    if (how == GUESS) {
        t->right = pick(t, 9);
        e->guess = guess;
        e->guess_user = t;
    }
    for (int k = 0; k < n; k++)
        submit(e, t, k);
    run_all(e, t);
    for (int k = 0; k < n; k++) {
        const struct run *r = &t->run[k];
        count_kinds(t, r);
        for (int j = 0; j < BASE_MAX(r->spec->q.n, 1); j++) {
            t->n_event += r->n_ev[j];
            if (r->n_ev[j] == r->spec->alone[j].n_ev || r->cancelled) continue;
            fprintf(stderr, "drafts: %d events, not %d\n", r->n_ev[j], r->spec->alone[j].n_ev);
            exit(1);
        }
    }
    end_trial(t, e);
    sl_engine_close(e);
}

/* Whether the next engines have --exact, or of a model that has experts one that comes late. */
static void choose_form(sl_model *m, struct trial *t)
{
    sl_err err;
    sl_engine *e = NULL;
    t->exact = pick(t, 3) == 0;
    t->n_defer = 0;
    if (t->layout || pick(t, 3)) return;
    const sl_engine_opts o = {.n_thread = 1, .n_ctx = CTX, .n_seq_max = 1, .n_defer = 1};
    if (sl_engine_open(m, &o, &e, &err) == SL_OK) t->n_defer = 1;
    sl_engine_close(e);
}

/* Trials [from, to) of a model, for which the same requests are made. */
struct block {
    const char *path;
    sl_model *m;
    sl_grammar *g[2];
    uint64_t seed, pair, trial0;
    int from, to;
};

static void one_block(const struct block *b, struct trial *t)
{
    static const char *const acts_name[] = {"auto", "int8", "bf16", "f32"};
    sl_acts acts;
    sl_kv kv;
    int64_t t0 = clock_now_ns();
    long long events = t->n_event;
    t->rng = hash_bytes(&b->from, sizeof b->from, b->seed);
    choose_form(b->m, t);
    int pair = pair_of(b->pair, &acts, &kv);
    make_specs(b->m, t, acts, kv, b->g);
    t->n_pair[pair]++;
    for (int i = b->from; i < b->to; i++)
        one_trial(b->m, t, b->trial0 + (uint64_t)i, acts, kv);
    if (b->to - b->from < PAIR_TRIALS) return;
    printf("%s: trials %d to %d, --acts %s: %lld events equal, %.0f s\n", b->path, b->from,
           b->to - 1, acts_name[acts], t->n_event - events, (double)(clock_now_ns() - t0) * 1e-9);
    fflush(stdout);
}

static void one_model(const char *path, uint64_t i_model, int from, int n, struct trial *t)
{
    static const char *const schema =
        "{\"type\":\"object\",\"properties\":{\"alpha\":{\"type\":\"integer\"},"
        "\"beta\":{\"enum\":[\"red\",\"green\"]}},\"required\":[\"alpha\",\"beta\"]}";
    static const char *const regex = "[a-f]{3,20}(start|stop)";
    sl_err err;
    sl_model_info mi;
    struct block b = {.path = path, .seed = t->rng + 7919 * (i_model + 3)};
    b.trial0 = b.seed * 7 + (uint64_t)(n * (int)i_model);
    must(sl_model_open(path, NULL, &b.m, &err), &err);
    sl_model_info_get(b.m, &mi);
    t->n_vocab = mi.n_vocab;
    t->has_mtp = mi.n_mtp > 0;
    t->any_mtp = t->any_mtp || t->has_mtp;
    if (mi.has_tokenizer) {
        must(sl_grammar_compile(b.m, SL_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &b.g[0], &err),
             &err);
        must(sl_grammar_compile(b.m, SL_GRAMMAR_REGEX, regex, strlen(regex), &b.g[1], &err), &err);
    }
    long long drafts = t->n_draft, events = t->n_event, right = t->n_right;
    for (int i = from - from % PAIR_TRIALS; i < n; i = b.to) {
        b.from = i;
        b.to = BASE_MIN(i + PAIR_TRIALS, n);
        b.pair = b.seed + 5 * i_model + (uint64_t)(i / PAIR_TRIALS);
        one_block(&b, t);
    }
    printf("%-60s %d trials, %lld events equal, %lld of %lld drafts right\n", path, n,
           t->n_event - events, t->n_right - right, t->n_draft - drafts);
    fflush(stdout);
    sl_grammar_unref(b.g[0]);
    sl_grammar_unref(b.g[1]);
    sl_model_close(b.m);
}

/* True: not all of these were reached, and they must be. */
static bool missed(const char *what, const int *count, int n, bool must)
{
    int none = 0;
    for (int i = 0; i < n; i++)
        none += count[i] == 0;
    printf("%d of %d %s\n", n - none, n, what);
    return none && must;
}

static bool report(const struct trial *t)
{
    printf("%lld trials, %lld events, %lld drafts, %lld right, %lld preemptions, %lld tokens from "
           "the prefix tree\n",
           t->n_trial, t->n_event, t->n_draft, t->n_right, t->n_preempt, t->n_hit);
    /* trials that reach none of these are worth nothing */
    bool full = t->n_trial >= 500,
         bad = t->n_draft == t->n_right || !t->n_right || !t->n_preempt || !t->n_hit ||
               (!t->n_small && !t->layout);
    int n_from = t->any_mtp ? N_FROM : MTP;
    full = full && !t->layout;
    bad |= missed("pairs of source and number of drafts", t->n_cell[0], n_from * (SL_DRAFT_MAX + 1),
                  full);
    bad |= missed("pairs of activations and cache", t->n_pair, N_PAIR, full);
    bad |= missed("numbers of sequences", t->n_batch + 1, 32, full);
    bad |= missed("kinds of requests:", t->n_kind, N_KIND, true);
    for (int i = 0; i < N_KIND; i++)
        printf(" %s %d%s", kind_name[i], t->n_kind[i], i + 1 < N_KIND ? "," : "\n");
    return bad;
}

int main(int argc, char **argv)
{
    static struct spec spec[N_REQ];
    static struct trial t = {.spec = spec};
    int first = 3, from = 0;
    for (; argc > first + 2 && strncmp(argv[first], "--", 2) == 0; first += 2) {
        if (strcmp(argv[first], "--layout") == 0) t.layout = argv[first + 1];
        if (strcmp(argv[first], "--from") == 0) from = atoi(argv[first + 1]);
        if (strcmp(argv[first], "--threads") == 0) t.n_thread = atoi(argv[first + 1]);
    }
    if (argc <= first) {
        fprintf(stderr, "drafts N SEED [--layout L] [--from FIRST] [--threads N] MODEL...\n");
        return 2;
    }
    if (from < 0 || from >= atoi(argv[1])) {
        fprintf(stderr, "drafts: --from %d: of trials 0 to %d\n", from, atoi(argv[1]) - 1);
        return 2;
    }
    for (int i = first; i < argc; i++) {
        t.rng = strtoull(argv[2], NULL, 10);
        one_model(argv[i], (uint64_t)(i - first), from, atoi(argv[1]), &t);
    }
    return report(&t);
}
