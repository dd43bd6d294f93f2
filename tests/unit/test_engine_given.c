/* SPDX-License-Identifier: Apache-2.0 */
/* An answer that another engine began (sl_request.given): what follows is, bit for bit, what would
 * have followed: tokens, log probabilities, text cut by stop strings, grammars, drafts. */
#include <string.h>

#include "engine/engine_internal.h"
#include "engine_tiny.h"

static sl_err err;

#define N_SAMPLE 3
#define N_TOK 24
#define N_PROMPT 45

struct answer {
    int32_t tok[N_TOK];
    float lp[N_TOK];
    size_t end[N_TOK]; /* bytes of text after each token */
    int n, n_finish, n_token;
    char text[4096];
    size_t n_text;
    sl_finish finish;
};
struct run {
    struct answer of[N_SAMPLE];
};

static void on_event(void *user, const sl_event *ev)
{
    struct answer *a = &((struct run *)user)->of[ev->index];
    assert_in_range(a->n_text + ev->n_text, 0, sizeof a->text);
    memcpy(a->text + a->n_text, ev->text, ev->n_text);
    a->n_text += ev->n_text;
    if (ev->token >= 0) {
        assert_in_range(a->n, 0, N_TOK - 1);
        a->lp[a->n] = ev->logprob;
        a->end[a->n] = a->n_text;
        a->tok[a->n++] = ev->token;
    }
    if (ev->finish == SL_FINISH_NONE) return;
    a->n_finish++;
    a->n_token = ev->n_token;
    a->finish = ev->finish;
}

static void ask(sl_engine *e, sl_request q, struct run *r)
{
    memset(r, 0, sizeof *r);
    q.on_event = on_event;
    q.user = r;
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

/* Cut every sample of want after k of its tokens, and have e go on. */
static int go_on(sl_engine *e, const sl_request *q, const struct run *want, int k)
{
    static struct run got;
    int n = 0;
    for (int i = 0; i < N_SAMPLE; i++) {
        const struct answer *w = &want->of[i], *g = &got.of[i];
        sl_request one = *q;
        if (k >= w->n) continue;
        one.n = 1;
        one.first = i;
        one.given = w->tok;
        one.n_given = k;
        ask(e, one, &got);
        size_t at = k ? w->end[k - 1] : 0;
        assert_int_equal(g->n, w->n - k);
        assert_memory_equal(g->tok, w->tok + k, (size_t)g->n * sizeof *g->tok);
        assert_memory_equal(g->lp, w->lp + k, (size_t)g->n * sizeof *g->lp);
        assert_int_equal(g->n_text, w->n_text - at);
        assert_memory_equal(g->text, w->text + at, g->n_text);
        assert_int_equal(g->finish, w->finish);
        assert_int_equal(g->n_token, w->n_token);
        assert_int_equal(g->n_finish, 1);
        n++;
    }
    return n;
}

static void with_draft(const char *name, const char *draft, sl_grammar *(*make)(sl_model *m))
{
    static struct run want;
    static int32_t ids[N_PROMPT];
    sl_model *m;
    sl_engine *e;
    int n = 0;
    const char *stop[] = {"zq", "the end", "e\n"};
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 256, .n_seq_max = 4, .draft = draft};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    sl_grammar *g = make ? make(m) : NULL;
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = (i * 17 + 5) % e->n_vocab;
    sl_request q = {.ids = ids,
                    .n_ids = N_PROMPT,
                    .n = N_SAMPLE,
                    .max_tokens = N_TOK,
                    .min_tokens = 6,
                    .stop = stop,
                    .n_stop = 3,
                    .want_logprob = 1,
                    .grammar = g,
                    .ignore_eos = !g,
                    .sampling = {.temperature = 0.9f,
                                 .seed = 77,
                                 .repeat_penalty = 1.1f,
                                 .frequency_penalty = 0.3f}};
    ask(e, q, &want);
    for (int i = 1; i < N_SAMPLE; i++)
        assert_memory_not_equal(want.of[i].tok, want.of[0].tok, sizeof want.of[0].tok);
    for (int k = 0; k < N_TOK; k++) {
        sl_drop_cache(e);
        n += go_on(e, &q, &want, k);
        n += go_on(e, &q, &want, k); /* from the prefix cache */
    }
    assert_true(n > N_TOK);
    sl_grammar_unref(g);
    sl_engine_close(e);
    sl_model_close(m);
}

static sl_grammar *letters(sl_model *m)
{
    sl_grammar *g = NULL;
    ASSERT_OK(sl_grammar_compile(m, SL_GRAMMAR_REGEX, "([a-z]{2}[0-9])+", 16, &g, &err));
    return g;
}

TEST(engine_goes_on_with_an_answer_that_another_began)
{
    with_draft("llama3.gguf", "off", NULL);
    with_draft("llama3.gguf", "off", letters);
}

TEST(engine_goes_on_with_drafts)
{
    with_draft("llama3.gguf", "ngram", NULL);
    with_draft("llama3.gguf", "ngram", letters);
}

TEST(engine_refuses_what_cannot_go_on)
{
    sl_model *m;
    sl_engine *e;
    const int32_t ids[] = {1, 2, 3}, bad[] = {1, -1};
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &m, &err));
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    const struct {
        sl_request q;
        const char *says;
    } row[] = {
        {{.given = ids, .n_given = 3, .max_tokens = 3}, "given: 3 tokens of an answer of 3"},
        {{.given = ids, .n_given = 3, .n = 2}, "given: not together with n"},
        {{.given = ids, .n_given = 3, .embed = 1}, "given: not together with n or embed"},
        {{.given = bad, .n_given = 2}, "given: token -1 at place 1"},
        {{.n_given = 2}, "given: missing"},
        {{.given = ids, .n_given = -1}, "n_given: -1"},
        {{.first = 128}, "first: 128: from 0 to 127"},
        {{.first = 127, .n = 2}, "first: 127: from 0 to 126"},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        sl_request q = row[i].q;
        q.ids = ids;
        q.n_ids = 3;
        ASSERT_STATUS(sl_submit(e, &q, NULL, &err), SL_REQUEST);
        if (!strstr(err.text, row[i].says)) fail_msg("%s: %s", row[i].says, err.text);
    }
    assert_int_equal(sl_pending(e), 0);
    sl_engine_close(e);
    sl_model_close(m);
}
