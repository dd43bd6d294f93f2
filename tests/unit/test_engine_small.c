/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of a small model. Where that is the model itself, every guess is the token of the largest
 * logit of its place, or the one that the request draws: one that is not comes of an entry that is
 * missing, stale or another sequence's. Freed blocks are filled with NaN. */
#include <string.h>

#include "base/argmax.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define DEMO TEST_DATA "/../../models/demo/demo.gguf"
#define N_NEW 70

static sl_err err;

struct answer {
    int32_t id[4][N_NEW];
    int n[4], n_draft, n_right;
};

static void on_event(void *user, const sl_event *ev)
{
    struct answer *a = user;
    if (ev->token >= 0) a->id[ev->index][a->n[ev->index]++] = ev->token;
    if (ev->finish == SL_FINISH_NONE) return;
    a->n_draft += ev->n_draft;
    a->n_right += ev->n_right;
}

static void poison(void *user, int32_t blk)
{
    sl_engine *e = user;
    dev_kv_poison(e->d, e->kv, DEV_KV_PAGED, blk);
    if (e->small.on) dev_kv_poison(e->d, e->small.kv, DEV_KV_PAGED, blk);
}

/* Guesses that were compared with the logits of their place, of requests whose draws differ. */
static int n_checked;

static void check_guess(void *user, const struct request *r, const float *logit)
{
    const sl_engine *e = user;
    const struct spec_seq *s = &r->spec;
    int at = r->n_ids - s->offer_at;
    if (!r->has_spec || s->offer_at <= 0 || at < 0 || at >= s->n_offer) return;
    if (memcmp(s->offer, r->ids + s->offer_at, (size_t)at * sizeof *s->offer) != 0) return;
    int best = argmax_f32(logit, e->n_vocab);
    struct engine_pick k = {.r = (struct request *)(uintptr_t)r, .logit = logit, .best = best};
    struct spec_pair pair = {{best, best}, 1};
    if (engine_draws(r)) ASSERT_OK(engine_draw_guess(e, 0, &k, e->n_vocab, &pair, &err));
    if (s->offer[at] != best && s->offer[at] != pair.id[1])
        fail_msg("%s: guess %d after %d tokens is %d, not %d or %d", e->m->name, at, s->offer_at,
                 s->offer[at], best, pair.id[1]);
    n_checked++;
}

static sl_engine *open_engine(sl_model *m, const sl_engine_opts *opts)
{
    sl_engine_opts o = *opts;
    sl_engine *e = NULL;
    o.n_thread = 2;
    o.n_ctx = o.n_ctx ? o.n_ctx : 256;
    o.draft_always = 1;
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    e->pool.on_free = poison;
    e->pool.user = e;
    e->tap = o.draft_model ? check_guess : NULL;
    e->tap_user = e;
    for (int i = 0; i < e->pool.n_blk; i++)
        poison(e, i);
    return e;
}

static void submit(sl_engine *e, const sl_request *q, struct answer *a)
{
    sl_request r = *q;
    memset(a, 0, sizeof *a);
    r.ignore_eos = 1;
    r.on_event = on_event;
    r.user = a;
    ASSERT_OK(sl_submit(e, &r, NULL, &err));
}

static void run_all(sl_engine *e)
{
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

static void make_ids(int n_vocab, int begin, int n, int32_t *ids)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)((begin + i) * 31 % (n_vocab - 10) + 5);
}

TEST(engine_refuses_a_small_model_that_it_can_not_use)
{
    sl_model *m = NULL, *other = NULL, *words = NULL;
    sl_model_opts vocab = {.vocab_only = true};
    ASSERT_OK(sl_model_open(DEMO, NULL, &m, &err));
    ASSERT_OK(sl_model_open(DEMO, &vocab, &words, &err));
    ASSERT_OK(sl_model_open(tiny("llama3"), NULL, &other, &err));
    const struct {
        sl_engine_opts o;
        const char *text;
    } bad[] = {
        {{.draft_model = m, .draft = "ngram"}, "draft: auto or model, not \"ngram\""},
        {{.draft_model = m, .draft = "off"}, "draft: auto or model, not \"off\""},
        {{.draft_model = m, .draft = "mtp"}, "draft: auto or model, not \"mtp\""},
        {{.draft_model = m, .draft = "replay:1"}, "draft: auto or model, not \"replay:1\""},
        {{.draft_model = words}, "opened for its vocabulary only"},
        {{.draft_model = other}, "llama3 has"},
        {{.draft_model = m, .layout = "tp=2"}, "not with layout"},
        {{.draft_model = m, .draft_vocab = 64}, "no MTP layer makes drafts (draft: auto)"},
        {{.draft = "model"}, "draft: model: which one?"},
    };
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        sl_engine *e = NULL;
        sl_engine_opts o = bad[i].o;
        o.n_thread = 2;
        o.device = "cpu";
        if (sl_engine_open(m, &o, &e, &err) == SL_OK) fail_msg("%d was opened", i);
        if (!strstr(err.text, "draft") || !strstr(err.text, bad[i].text))
            fail_msg("%d: %s", i, err.text);
    }
    sl_model_close(other);
    sl_model_close(words);
    sl_model_close(m);
}

TEST(engine_names_the_first_token_that_a_small_model_has_not)
{
    sl_model *m = NULL, *s = NULL;
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64};
    ASSERT_OK(sl_model_open(DEMO, NULL, &m, &err));
    ASSERT_OK(sl_model_open(DEMO, NULL, &s, &err));
    int n = 0;
    char *p = (char *)(uintptr_t)tok_bytes(s->tok, 300, &n);
    p[n - 1] ^= 1;
    o.draft_model = s;
    assert_int_equal(sl_engine_open(m, &o, &e, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "has other tokens than"));
    assert_non_null(strstr(err.text, "number 300 is \""));
    p[n - 1] ^= 1;
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    sl_engine_close(e);
    sl_model_close(s);
    sl_model_close(m);
}

/* An engine that drafts with its own model, with and without draws: requests one after another and
 * beside each other, after hits, forks, and requests without guesses. */
static void guesses(const char *path, const sl_engine_opts *opts, float temperature, int stride)
{
    static struct answer plain[2], a, b;
    sl_model *m = NULL;
    sl_model_info mi;
    sl_engine_opts o = *opts;
    int32_t ids[120];
    ASSERT_OK(sl_model_open(path, NULL, &m, &err));
    sl_model_info_get(m, &mi);
    o.draft_max = 0; /* without drafts it is refused */
    sl_engine *off = open_engine(m, &o);
    o.draft_max = opts->draft_max;
    o.draft_model = m;
    o.draft = "model";
    for (int n_prompt = 30; n_prompt <= 98; n_prompt += stride) {
        sl_engine *e = open_engine(m, &o);
        make_ids(mi.n_vocab, n_prompt, n_prompt, ids);
        sl_request q = {.ids = ids, .n_ids = n_prompt, .max_tokens = N_NEW, .n = 3};
        q.sampling.temperature = temperature;
        for (int i = 0; i < 2; i++) { /* samples; the first alone */
            q.n = i ? 3 : 1;
            submit(off, &q, &plain[i]);
            run_all(off);
            assert_true(plain[i].n_draft == 0 && plain[i].n[0] == N_NEW);
        }
        for (int turn = 0; turn < 4; turn++) {
            int before = n_checked;
            q.n_draft = turn == 1 ? -1 : 0; /* it leaves blocks without entries */
            q.n = turn == 3 ? 3 : 1;
            submit(e, &q, &a);
            if (turn == 2) { /* another beside it, that begins alike */
                q.n_ids -= 3;
                submit(e, &q, &b);
                q.n_ids += 3;
            }
            run_all(e);
            for (int i = 0; i < q.n; i++)
                assert_memory_equal(a.id[i], plain[q.n > 1].id[i], sizeof a.id[0]);
            assert_true((turn == 1) == (n_checked == before));
            if (turn != 1) assert_true(a.n_draft > 30 && a.n_right > 0);
        }
        sl_engine_close(e);
    }
    sl_engine_close(off);
    sl_model_close(m);
}

TEST(engine_guesses_of_the_model_itself_are_its_tokens)
{
    n_checked = 0;
    for (int i = 0; i < 2; i++)
        guesses(DEMO, &(sl_engine_opts){.n_seq_max = 4, .acts = SL_ACTS_F32, .draft_max = 3},
                i * 0.5f, 34);
    assert_true(n_checked > 1500);
}

TEST(engine_guesses_of_tiny_models_are_their_tokens)
{
    static const char *const name[] = {"llama3",         "deepseek_v3", "gpt_oss",
                                       "mistral_window", "qwen3_next",  "qwen3_5_moe.gguf",
                                       "deepseek_v32",   "glm_moe_dsa.gguf",
                                       "glm5_next",      "glm5_next_fp8"};
    n_checked = 0;
    for (int i = 0; i < BASE_COUNT_OF(name); i++)
        guesses(tiny(name[i]), &(sl_engine_opts){.n_seq_max = 4, .n_chunk = 24}, 0.2f, 17);
    assert_true(n_checked > 5000);
}

/* The model itself has the same logits and the same noise, so what it draws is right, once it is
 * known that draws are; in the order of penalties that change with every token. */
TEST(engine_guesses_what_a_request_draws)
{
    static const sl_sampling how[] = {{.temperature = 1},
                                      {.temperature = 1.5f, .top_p = 0.9f},
                                      {.temperature = 0.8f, .top_k = 30, .repeat_penalty = 1.3f},
                                      {.temperature = 1, .frequency_penalty = 0.6f, .min_p = 0.02f},
                                      {.repeat_penalty = 1.5f, .presence_penalty = 0.4f}};
    static struct answer plain, a;
    sl_model *m = NULL;
    sl_model_info mi;
    int32_t ids[60];
    ASSERT_OK(sl_model_open(DEMO, NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine_opts o = {.n_seq_max = 2, .acts = SL_ACTS_F32};
    sl_engine *off = open_engine(m, &o);
    o.draft_model = m;
    o.draft_max = 3;
    o.draft = "model";
    sl_engine *e = open_engine(m, &o);
    e->tap = NULL;
    make_ids(mi.n_vocab, 0, 60, ids);
    for (int i = 0; i < BASE_COUNT_OF(how); i++) {
        sl_request q = {.ids = ids, .n_ids = 60, .max_tokens = N_NEW, .sampling = how[i]};
        int n_draft = 0, n_right = 0;
        for (int turn = 0; turn < 6; turn++) {
            q.sampling.seed = (uint64_t)turn;
            submit(off, &q, &plain);
            run_all(off);
            submit(e, &q, &a);
            run_all(e);
            assert_memory_equal(a.id[0], plain.id[0], sizeof a.id[0]);
            if (turn < 3) continue; /* it learns */
            n_draft += a.n_draft;
            n_right += a.n_right;
        }
        bool greedy = how[i].temperature <= 0;
        assert_true(n_draft > 100);
        if (greedy ? n_right < n_draft : 100 * n_right < 96 * n_draft)
            fail_msg("%d: %d of %d", i, n_right, n_draft);
    }
    sl_engine_close(e);
    sl_engine_close(off);
    sl_model_close(m);
}

/* Blocks run out: requests lose theirs and begin again. no_hole: every id is a token; others are
 * never drawn, though they may be guessed. */
static void preempted(const char *path, bool no_hole)
{
    static struct answer a[6];
    sl_model *m = NULL;
    sl_model_info mi;
    sl_stats st;
    int32_t ids[120];
    int n_draft = 0;
    n_checked = 0;
    ASSERT_OK(sl_model_open(path, NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine_opts o = {.n_seq_max = 6, .n_ctx = 224, .kv_tokens = 288, .n_chunk = 40};
    o.draft_model = m;
    o.draft = "model";
    sl_engine *e = open_engine(m, &o);
    for (int i = 0; i < 6; i++) {
        make_ids(mi.n_vocab, i % 2 ? 0 : i, 12 + i, ids);
        sl_request q = {.ids = ids, .n_ids = 12 + i, .max_tokens = N_NEW, .ignore_eos = 1};
        submit(e, &q, &a[i]);
    }
    run_all(e);
    sl_stats_get(e, &st);
    assert_true(st.n_preempt > 0);
    for (int i = 0; i < 6; i++) {
        if (no_hole && a[i].n_right != a[i].n_draft)
            fail_msg("%d: %d of %d", i, a[i].n_right, a[i].n_draft);
        n_draft += a[i].n_draft;
    }
    assert_true(n_draft > 100 && n_checked > 100);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_guesses_are_right_after_preemption)
{
    preempted(DEMO, true);
    preempted(tiny("qwen3_5"), false);
}

/* auto takes the text's own guesses first, and those of the small model where it has none. */
TEST(engine_takes_guesses_of_the_text_before_those_of_a_small_model)
{
    static struct answer a;
    sl_model *m = NULL;
    sl_model_info mi;
    int32_t ids[60];
    ASSERT_OK(sl_model_open(DEMO, NULL, &m, &err));
    sl_model_info_get(m, &mi);
    sl_engine *e = open_engine(m, &(sl_engine_opts){.draft_model = m, .draft_max = 2});
    assert_true(e->spec.ngram && e->small.on && !e->mtp.on);
    make_ids(mi.n_vocab, 0, 60, ids);
    sl_request q = {.ids = ids, .n_ids = 60, .max_tokens = N_NEW};
    submit(e, &q, &a);
    int n_source[SPEC_N_SOURCE] = {0};
    while (sl_pending(e)) {
        ASSERT_OK(sl_step(e, &err));
        for (int s = 0; s < e->n_req_max; s++)
            if (e->req[s] && e->req[s]->n_draft) n_source[e->req[s]->spec.source]++;
    }
    assert_true(n_source[SPEC_MODEL] > 0 && n_source[SPEC_MTP] == 0);
    assert_true(n_source[SPEC_NGRAM] > 0);
    sl_engine_close(e);
    sl_model_close(m);
}
