/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation changes nothing: every sample's events are compared, bit for bit but for times, with
 * those that it has alone and without drafts. Requests are greedy or sampled, with filters,
 * penalties, biases, stop strings and tokens, least lengths, log probabilities, echoed prompts,
 * grammars, several samples. A trial draws threads, chunk, sequences (1 to 32), the size of the KV
 * cache (down to one context), the prefix tree on or off, who comes when, and where drafts come
 * from: the text itself, an expected text that is nearly right, the answer at a rate, or a guesser
 * that is right mostly, seldom or never; 1 to 7 of them, all that there are or what the planner
 * thinks pays. Freed blocks are filled with NaN.
 *
 * drafts N SEED MODEL...: N trials of each model, on every pair of --acts and --kv by turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/engine_internal.h"

#define N_REQ 24
#define PROMPT_MAX 150
#define NEW_MAX 64
#define SAMPLE_MAX 3
#define CTX (PROMPT_MAX + NEW_MAX + 4)
#define EVENT_MAX (PROMPT_MAX + NEW_MAX + 8)

/* What one sample's events were. */
struct story {
    int n_ev, n_tok;
    uint64_t ev[EVENT_MAX];
    int32_t tok[NEW_MAX + 1];
};

struct spec {
    sl_request q;
    int32_t ids[PROMPT_MAX], text[2 * NEW_MAX], stop_id[2];
    sl_bias bias[3];
    struct story alone[SAMPLE_MAX];
};

/* A request of a trial. */
struct run {
    const struct spec *spec;
    struct story *into; /* NULL: compare */
    int n_ev[SAMPLE_MAX];
};

struct trial {
    struct spec *spec;
    struct run run[2 * N_REQ];
    uint64_t rng;
    int right; /* of 8 guesses */
    int n_vocab;
    bool has_mtp;
    long long n_trial, n_event, n_draft, n_right, n_preempt, n_hit;
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
        if (ev->prompt_pos < 0 && ev->token >= 0) s->tok[s->n_tok++] = ev->token;
        return;
    }
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

static void poison(void *user, int32_t blk)
{
    sl_engine *e = user;
    dev_kv_poison(e->d, e->kv, DEV_KV_PAGED, blk);
}

static void poison_window(void *user, int32_t win)
{
    sl_engine *e = user;
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

static void run_all(sl_engine *e)
{
    sl_err err;
    while (sl_pending(e))
        must(sl_step(e, &err), &err);
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

static void make_request(struct trial *t, struct spec *s, int i, sl_grammar *const *masks)
{
    static const char *const stops[] = {"a", "e", "th", "\n"};
    memset(s, 0, sizeof *s);
    int n = 1 + pick(t, i % 4 ? 60 : PROMPT_MAX), period = 1 + pick(t, 30);
    for (int k = 0; k < n; k++) { /* half of them begin alike; many repeat */
        int32_t any = pick(t, t->n_vocab);
        s->ids[k] = i % 2 && k < 70 ? (k * 7 + 3) % t->n_vocab : any;
        if (k >= period && pick(t, 3)) s->ids[k] = s->ids[k - period];
    }
    s->q = (sl_request){.ids = s->ids,
                        .n_ids = n,
                        .max_tokens = 1 + pick(t, NEW_MAX),
                        .n_logprob = -1,
                        .ignore_eos = pick(t, 2),
                        .on_event = on_event};
    make_sampling(t, s);
    if (pick(t, 4) == 0) s->q.min_tokens = pick(t, 20);
    if (pick(t, 4) == 0) s->q.want_logprob = 1, s->q.n_logprob = pick(t, 6);
    if (pick(t, 4) == 0) s->q.stop = &stops[pick(t, 3)], s->q.n_stop = 1 + pick(t, 2);
    if (pick(t, 6) == 0) {
        s->stop_id[0] = pick(t, t->n_vocab);
        s->stop_id[1] = pick(t, t->n_vocab);
        s->q.stop_ids = s->stop_id;
        s->q.n_stop_ids = 2;
    }
    if (pick(t, 4) == 0)
        s->q.grammar = masks[pick(t, 2)];
    else if (pick(t, 8) == 0)
        s->q.echo_logprob = 1;
    else if (pick(t, 4) == 0)
        s->q.n = 1 + pick(t, SAMPLE_MAX);
}

/* An expected text: the answer with some tokens more, less and other ones. */
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
    if (s->q.n > 1) return;
    s->q.draft_ids = s->text;
    s->q.n_draft_ids = n;
}

static void make_specs(sl_model *m, struct trial *t, sl_acts acts, sl_kv kv,
                       sl_grammar *const *masks)
{
    sl_err err;
    sl_engine *e = open_engine(m, &(sl_engine_opts){.n_thread = 1,
                                                    .n_ctx = CTX,
                                                    .n_seq_max = SAMPLE_MAX,
                                                    .no_reuse = 1,
                                                    .acts = acts,
                                                    .kv = kv});
    for (int i = 0; i < N_REQ; i++) {
        struct spec *s = &t->spec[i];
        make_request(t, s, i, masks);
        struct run r = {.spec = s, .into = s->alone};
        s->q.user = &r;
        must(sl_submit(e, &s->q, NULL, &err), &err);
        run_all(e);
        make_text(t, s);
    }
    sl_engine_close(e);
}

/* ---- a trial ---- */

static void submit(sl_engine *e, struct trial *t, int i)
{
    sl_err err;
    struct run *r = &t->run[i];
    *r = (struct run){.spec = &t->spec[pick(t, N_REQ)]};
    sl_request q = r->spec->q;
    q.user = r;
    q.priority = pick(t, 4) ? 0 : pick(t, 5) - 2;
    q.owner = (uint64_t)pick(t, 3);
    q.cache_salt = (uint64_t)(pick(t, 5) == 0);
    must(sl_submit(e, &q, NULL, &err), &err);
    for (int k = pick(t, 4); k > 0; k--)
        must(sl_step(e, &err), &err);
}

static void end_trial(struct trial *t, sl_engine *e)
{
    sl_stats st;
    sl_stats_get(e, &st);
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        t->n_draft += (long long)st.n_draft[j];
        t->n_right += (long long)st.n_right[j];
    }
    t->n_preempt += (long long)st.n_preempt;
    t->n_hit += (long long)st.cache_hit_tok;
    t->n_trial++;
    if (kv_pool_avail(&e->pool) == e->pool.n_blk) return;
    fprintf(stderr, "drafts: a block leaked\n");
    exit(1);
}

static void one_trial(sl_model *m, struct trial *t, sl_acts acts, sl_kv kv)
{
    static const char *const from[] = {"ngram", "auto", "replay:0.8", "ngram", "mtp"};
    int how = pick(t, t->has_mtp ? 5 : 4), batch = 1 + pick(t, 32),
        n = 1 + pick(t, BASE_MIN(batch, 2 * N_REQ));
    sl_engine_opts o = {.n_thread = 1 + pick(t, 3),
                        .n_ctx = CTX,
                        .n_seq_max = batch,
                        .n_chunk = 1 + pick(t, 1 << pick(t, 9)),
                        .no_reuse = pick(t, 2),
                        .acts = acts,
                        .kv = kv,
                        .n_queue_max = 8 * N_REQ,
                        .draft = from[how],
                        .draft_max = pick(t, SL_DRAFT_MAX + 1),
                        .draft_always = pick(t, 4) > 0};
    o.kv_tokens = CTX + (pick(t, 3) ? pick(t, CTX * 2) : CTX * batch);
    sl_engine *e = open_engine(m, &o);
    kv_pool_shuffle(&e->pool, rng_next(&t->rng) | 1);
    if (how == 3) {
        t->right = pick(t, 9);
        e->guess = guess;
        e->guess_user = t;
    }
    for (int i = 0; i < n; i++)
        submit(e, t, i);
    run_all(e);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < BASE_MAX(t->run[i].spec->q.n, 1); k++) {
            t->n_event += t->run[i].n_ev[k];
            if (t->run[i].n_ev[k] == t->run[i].spec->alone[k].n_ev) continue;
            fprintf(stderr, "drafts: %d events, not %d\n", t->run[i].n_ev[k],
                    t->run[i].spec->alone[k].n_ev);
            exit(1);
        }
    end_trial(t, e);
    sl_engine_close(e);
}

static void one_model(const char *path, int i_model, int n, struct trial *t)
{
    static const sl_kv kvs[] = {SL_KV_BF16, SL_KV_F16, SL_KV_Q8, SL_KV_F32};
    static const char *const schema =
        "{\"type\":\"object\",\"properties\":{\"alpha\":{\"type\":\"integer\"},"
        "\"beta\":{\"enum\":[\"red\",\"green\"]}},\"required\":[\"alpha\",\"beta\"]}";
    static const char *const regex = "[a-f]{3,20}(start|stop)";
    sl_err err;
    sl_model *m = NULL;
    sl_model_info mi;
    sl_grammar *g[2] = {NULL, NULL};
    sl_acts acts = (sl_acts)((i_model + (int)(t->rng % 4)) % 4);
    sl_kv kv = kvs[(i_model + i_model / 4 + (int)(t->rng / 4 % 4)) % 4];
    must(sl_model_open(path, NULL, &m, &err), &err);
    sl_model_info_get(m, &mi);
    t->n_vocab = mi.n_vocab;
    t->has_mtp = mi.n_mtp > 0;
    if (mi.has_tokenizer) {
        must(sl_grammar_compile(m, SL_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &g[0], &err),
             &err);
        must(sl_grammar_compile(m, SL_GRAMMAR_REGEX, regex, strlen(regex), &g[1], &err), &err);
    }
    long long drafts = t->n_draft, events = t->n_event, right = t->n_right;
    make_specs(m, t, acts, kv, g);
    for (int i = 0; i < n; i++)
        one_trial(m, t, acts, kv);
    printf("%-60s acts %d kv %d: %d trials, %lld events equal, %lld of %lld drafts right\n", path,
           (int)acts, (int)kv, n, t->n_event - events, t->n_right - right, t->n_draft - drafts);
    fflush(stdout);
    sl_grammar_unref(g[0]);
    sl_grammar_unref(g[1]);
    sl_model_close(m);
}

int main(int argc, char **argv)
{
    static struct spec spec[N_REQ];
    static struct trial t = {.spec = spec};
    if (argc < 4) {
        fprintf(stderr, "drafts N SEED MODEL...\n");
        return 2;
    }
    for (int i = 3; i < argc; i++) {
        t.rng = strtoull(argv[2], NULL, 10) + (uint64_t)i * 7919;
        one_model(argv[i], i, atoi(argv[1]), &t);
    }
    printf("%lld trials, %lld events, %lld drafts, %lld right, %lld preemptions, %lld tokens from "
           "the prefix tree\n",
           t.n_trial, t.n_event, t.n_draft, t.n_right, t.n_preempt, t.n_hit);
    /* trials that reach none of these are worth nothing */
    return t.n_draft > t.n_right && t.n_right && t.n_preempt && t.n_hit ? 0 : 1;
}
