/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts in whole engines: what is refused, what is counted, and what the MTP layer guesses after
 * hits and beside others. tests/sim/drafts.c holds events against those without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/record.h"
#include "engine_drafts.h"

TEST(engine_refuses_drafts_that_it_can_not_make)
{
    static const char *const bad[][2] = {{"guess", "off, auto, ngram, mtp, model or replay"},
                                         {"", "off, auto"},
                                         {"replay:", "a rate from 0 to 1"},
                                         {"replay:1.5", "a rate from 0 to 1"},
                                         {"replay:0.5x", "a rate from 0 to 1"},
                                         {"mtp", "has no MTP layer"}};
    sl_model *m;
    sl_engine *e;
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        assert_int_equal(open_with(tiny("llama3"), bad[i][0], &m, &e), SL_REQUEST);
        assert_non_null(strstr(err.text, "draft: "));
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.text);
    }
}

TEST(engine_refuses_a_prediction_for_several_samples)
{
    sl_model *m;
    sl_engine *e;
    int32_t ids[] = {5, 6, 7};
    ASSERT_OK(open_with(tiny("llama3"), "ngram", &m, &e));
    sl_request q = {.ids = ids, .n_ids = 3, .max_tokens = 2, .n = 2};
    q.draft_ids = ids;
    q.n_draft_ids = 3;
    assert_int_equal(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "draft_ids"));
    q.n = 1;
    ids[2] = 1 << 30;
    q.ids = (const int32_t[]){1};
    q.n_ids = 1;
    assert_int_equal(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "draft_ids"));
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_takes_a_replayed_answer_in_few_steps_and_counts_it)
{
    sl_model *m;
    sl_engine *e;
    struct answer plain, fast;
    const int32_t ids[] = {5, 6, 7};
    sl_request q = {.ids = ids, .n_ids = 3, .max_tokens = 41, .ignore_eos = 1};
    ASSERT_OK(open_with(tiny("llama3"), "replay:1", &m, &e));
    run(e, &q, &plain);
    assert_int_equal(plain.n, 41);
    assert_int_equal(plain.last.n_draft, 0);
    sl_stats a, b;
    sl_stats_get(e, &a);
    q.draft_ids = plain.id;
    q.n_draft_ids = plain.n;
    run(e, &q, &fast);
    sl_stats_get(e, &b);
    assert_int_equal(fast.n, 41);
    assert_memory_equal(plain.id, fast.id, sizeof plain.id);
    assert_int_equal(b.n_step - a.n_step, 6); /* the prompt, then eight tokens each */
    assert_int_equal(fast.last.n_draft, 35);
    assert_int_equal(fast.last.n_right, 35);
    for (int j = 0; j < SL_DRAFT_MAX; j++)
        assert_true(b.n_draft[j] == 5 && b.n_judged[j] == 5 && b.n_right[j] == 5);
    q.n_draft = 3;
    run(e, &q, &fast);
    sl_stats_get(e, &a);
    assert_memory_equal(plain.id, fast.id, sizeof plain.id);
    assert_int_equal(a.n_step - b.n_step, 11);
    assert_int_equal(fast.last.n_draft, 30);
    q.n_draft = -1;
    run(e, &q, &fast);
    assert_memory_equal(plain.id, fast.id, sizeof plain.id);
    assert_int_equal(fast.last.n_draft, 0);
    q.n_draft = SL_DRAFT_MAX + 1;
    assert_int_equal(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "n_draft: 8: from -1 to 7"));
    sl_engine_close(e);
    sl_model_close(m);
}

/* However short the context is: all sequences of a step have as many drafts as are wanted. */
TEST(engine_has_room_for_the_drafts_of_all_sequences)
{
    enum { N = 16, NEW = 17 };
    static struct answer plain[N], fast[N];
    int32_t ids[N][3];
    sl_model *m;
    sl_engine *e;
    sl_engine_opts o = {.n_thread = 2,
                        .n_ctx = 24,
                        .n_seq_max = N,
                        .kv_tokens = 32 * N,
                        .draft = "replay:1",
                        .draft_always = 1};
    ASSERT_OK(sl_model_open(tiny("llama3"), NULL, &m, &err));
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    for (int i = 0; i < N; i++) {
        memcpy(ids[i], (const int32_t[]){5 + i, 6, 7}, sizeof ids[i]);
        sl_request q = {.ids = ids[i], .n_ids = 3, .max_tokens = NEW, .ignore_eos = 1};
        run(e, &q, &plain[i]);
        assert_int_equal(plain[i].n, NEW);
    }
    for (int i = 0; i < N; i++) {
        sl_request q = {.ids = ids[i], .n_ids = 3, .max_tokens = NEW, .ignore_eos = 1};
        q.draft_ids = plain[i].id;
        q.n_draft_ids = NEW;
        q.on_event = on_event;
        q.user = &fast[i];
        ASSERT_OK(sl_submit(e, &q, NULL, &err));
    }
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    for (int i = 0; i < N; i++) {
        assert_int_equal(fast[i].last.n_right, 14); /* the prompt's token, then twice eight */
        assert_memory_equal(fast[i].id, plain[i].id, sizeof plain[i].id);
    }
    sl_engine_close(e);
    sl_model_close(m);
}

/* How often guesses of the layer are right that it makes of its own: less often than the first,
 * and far more often than by chance. */
TEST(engine_feeds_the_mtp_layer_its_own_guess)
{
    static const char text[] = "The capital of France is Paris. The capital of Italy is";
    sl_model *m;
    sl_engine *e;
    struct answer one, four;
    int32_t *prompt = NULL;
    int n_prompt = 0;
    sl_stats st;
    ASSERT_OK(open_most(DEMO, "mtp", 1, &m, &e));
    ASSERT_OK(sl_tokenize(m, text, sizeof text - 1, SL_TOK_BOS, &prompt, &n_prompt, &err));
    sl_request q = {.ids = prompt, .n_ids = n_prompt, .max_tokens = 150, .ignore_eos = 1};
    run(e, &q, &one);
    sl_engine_close(e);
    sl_model_close(m);
    ASSERT_OK(open_most(DEMO, "mtp", 4, &m, &e));
    run(e, &q, &four);
    assert_memory_equal(one.id, four.id, sizeof one.id);
    sl_stats_get(e, &st);
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        assert_true((st.n_draft[j] > 0) == (j < 4));
        if (j == 1 || j == 2)
            assert_true(st.n_judged[j] > 10 && 4 * st.n_right[j] > st.n_judged[j]);
    }
    assert_true(four.last.n_right > one.last.n_right);
    q.n_draft = 2; /* a request's own number */
    run(e, &q, &four);
    sl_stats before = st;
    sl_stats_get(e, &st);
    assert_memory_equal(one.id, four.id, sizeof one.id);
    assert_true(st.n_draft[1] > before.n_draft[1] && st.n_draft[2] == before.n_draft[2]);
    sl_free(prompt);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_drafts_of_auto_are_the_layers_where_the_text_has_none)
{
    sl_model *m;
    sl_engine *e;
    struct answer mtp, all;
    int32_t *prompt = NULL;
    int n_prompt = 0;
    const char *text = "The capital of France is";
    ASSERT_OK(open_with(DEMO, "mtp", &m, &e));
    ASSERT_OK(sl_tokenize(m, text, strlen(text), SL_TOK_BOS, &prompt, &n_prompt, &err));
    /* a prompt and an answer without a pair of tokens that is there twice */
    sl_request q = {.ids = prompt, .n_ids = n_prompt, .max_tokens = 8, .ignore_eos = 1};
    run(e, &q, &mtp);
    sl_engine_close(e);
    sl_model_close(m);
    ASSERT_OK(open_most(DEMO, "auto", 1, &m, &e));
    run(e, &q, &all);
    assert_memory_equal(mtp.id, all.id, sizeof mtp.id);
    assert_true(mtp.last.n_right > 1);
    assert_int_equal(all.last.n_draft, mtp.last.n_draft);
    assert_int_equal(all.last.n_right, mtp.last.n_right);
    sl_free(prompt);
    sl_engine_close(e);
    sl_model_close(m);
    ASSERT_OK(open_with(tiny("llama3"), "auto", &m, &e)); /* it has none */
    sl_engine_close(e);
    sl_model_close(m);
}

/* What a grammar forces is guessed as the tokenizer cuts it, also from the middle of a word. */
TEST(engine_guesses_the_tokens_of_a_text_that_a_grammar_forces)
{
    static const char forced[] = "The capital of France, in one word";
    static const char pattern[] = "The capital of France, in one word: [A-Z][a-z]+";
    sl_model *m;
    sl_grammar *g;
    struct engine_grammar_state *s;
    struct tok_ids whole = {0}, rest = {0}, scratch = {0};
    int32_t out[SPEC_MAX];
    bool done;
    ASSERT_OK(sl_model_open(DEMO, NULL, &m, &err));
    ASSERT_OK(sl_grammar_compile(m, SL_GRAMMAR_REGEX, pattern, strlen(pattern), &g, &err));
    ASSERT_OK(engine_grammar_open(g, &s, &err));
    ASSERT_OK(tok_encode(m->tok, forced, sizeof forced - 1, 0, &whole, &err));
    assert_true(whole.n > SPEC_MAX);
    assert_int_equal(engine_grammar_literal(s, m->tok, &scratch, 0, SPEC_MAX, out), SPEC_MAX);
    assert_memory_equal(out, whole.id, sizeof out);
    /* after two tokens that are there already */
    assert_int_equal(engine_grammar_literal(s, m->tok, &scratch, 2, 5, out), 5);
    assert_memory_equal(out, whole.id, 5 * sizeof *out);
    ASSERT_OK(tok_encode(m->tok, "The ca", 6, 0, &rest, &err));
    for (int i = 0; i < rest.n; i++)
        ASSERT_OK(engine_grammar_push(s, rest.id[i], &done, &err));
    rest.n = 0;
    ASSERT_OK(tok_encode(m->tok, forced + 6, sizeof forced - 7, 0, &rest, &err));
    assert_int_equal(engine_grammar_literal(s, m->tok, &scratch, 0, 4, out), 4);
    assert_memory_equal(out, rest.id, 4 * sizeof *out);
    mem_free(whole.id);
    mem_free(rest.id);
    mem_free(scratch.id);
    engine_grammar_close(s);
    sl_grammar_unref(g);
    sl_model_close(m);
}

/* Under a schema some of a key's tokens come without a step of their own. */
TEST(engine_takes_keys_of_a_schema_in_fewer_steps)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"the capital of this country\":{\"enum\":"
        "[\"Paris\",\"Rome\"]},\"number of people in it\":{\"type\":\"integer\"}},\"required\":"
        "[\"the capital of this country\",\"number of people in it\"],"
        "\"additionalProperties\":false}";
    sl_model *m;
    sl_engine *e;
    sl_grammar *g;
    struct answer plain, fast;
    const int32_t ids[] = {5, 6, 7};
    ASSERT_OK(open_with(DEMO, "ngram", &m, &e));
    ASSERT_OK(sl_grammar_compile(m, SL_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &g, &err));
    sl_request q = {.ids = ids, .n_ids = 3, .max_tokens = 60, .grammar = g, .n_draft = -1};
    run(e, &q, &plain);
    assert_int_equal(plain.last.n_draft, 0);
    q.n_draft = 0;
    run(e, &q, &fast);
    assert_int_equal(plain.n, fast.n);
    assert_memory_equal(plain.id, fast.id, sizeof plain.id);
    if (fast.last.n_right < 4)
        fail_msg("%d of %d drafts right, of %d tokens", fast.last.n_right, fast.last.n_draft,
                 fast.n);
    sl_grammar_unref(g);
    sl_engine_close(e);
    sl_model_close(m);
}

/* ---- entries of the MTP layer that are not there ---- */

/* What a freed block is filled with. */
static bool with_nan;
static void spoil(void *user, int32_t blk)
{
    sl_engine *e = user;
    if (with_nan) dev_kv_poison(e->d, e->kv, DEV_KV_PAGED, blk);
}

/* A prompt of n tokens that says little. */
static void make_prompt(sl_model *m, int n, int32_t *ids)
{
    static const char text[] =
        "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is "
        "Madrid. Water boils at one hundred degrees. The sun is a star. Seven times eight is "
        "fifty-six, and nine times nine is eighty-one. A year has twelve months, a week has seven "
        "days, an hour sixty minutes. Whales are mammals. Iron is a metal, and so is copper.";
    int32_t *all = NULL;
    int n_all = 0;
    ASSERT_OK(sl_tokenize(m, text, sizeof text - 1, SL_TOK_BOS, &all, &n_all, &err));
    for (int i = 0; i < n; i++)
        ids[i] = all[i % n_all];
    sl_free(all);
}

/* What a request's drafts were after one that left its blocks in the tree: cold: without it. */
enum before { COLD, SAME, NO_DRAFTS, LONGER, TWICE_AT_ONCE, N_BEFORE };

static struct answer drafts_after(enum before how, bool nan, int n_prompt, sl_stats *st)
{
    sl_model *m;
    sl_engine *e;
    int32_t ids[200];
    struct answer a, b;
    ASSERT_OK(open_with(DEMO, "mtp", &m, &e));
    with_nan = nan;
    e->pool.on_free = spoil;
    e->pool.user = e;
    for (int i = 0; i < e->pool.n_blk; i++)
        spoil(e, i);
    make_prompt(m, 200, ids);
    sl_request q = {.ids = ids, .n_ids = n_prompt, .max_tokens = 40, .ignore_eos = 1};
    sl_request first = q;
    first.max_tokens = 1; /* no block that the second one completes is in the tree */
    first.n_ids = how == LONGER ? 200 : n_prompt;
    first.n_draft = how == NO_DRAFTS ? -1 : 0;
    if (how == TWICE_AT_ONCE) {
        memset(&b, 0, sizeof b);
        q.on_event = on_event;
        q.user = &b;
        ASSERT_OK(sl_submit(e, &q, NULL, &err));
    } else if (how != COLD) {
        run(e, &first, &b);
    }
    run(e, &q, &a);
    sl_stats_get(e, st);
    sl_engine_close(e);
    sl_model_close(m);
    return a;
}

TEST(engine_mtp_layer_reads_nothing_that_was_not_stored)
{
    for (int how = 0; how < N_BEFORE; how++)
        for (int n_prompt = 95; n_prompt <= 97; n_prompt++) {
            sl_stats st[2];
            struct answer zero = drafts_after((enum before)how, false, n_prompt, &st[0]);
            struct answer nan = drafts_after((enum before)how, true, n_prompt, &st[1]);
            assert_memory_equal(zero.id, nan.id, sizeof zero.id);
            if (zero.last.n_draft != nan.last.n_draft || zero.last.n_right != nan.last.n_right)
                fail_msg("%d, %d tokens: %d of %d right, with NaN %d of %d", how, n_prompt,
                         zero.last.n_right, zero.last.n_draft, nan.last.n_right, nan.last.n_draft);
            assert_true(nan.last.n_draft > 10);
        }
}

/* Whether the layer runs for an answer to n tokens that begins while it is off, for n_steps. */
static bool runs_late(int n_prompt, int n_steps)
{
    sl_model *m;
    sl_engine *e;
    struct answer a = {0};
    int32_t ids[200];
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 400, .draft = "mtp", .draft_max = 1};
    ASSERT_OK(open_opts(DEMO, &o, &m, &e));
    make_prompt(m, 200, ids);
    e->spec.plan.always = false;
    e->spec.plan.drafter.off_until = UINT64_MAX;
    sl_request q = {.ids = ids, .n_ids = n_prompt, .max_tokens = 100, .ignore_eos = 1};
    q.on_event = on_event;
    q.user = &a;
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    for (int i = 0; sl_pending(e); i++) {
        if (i == n_steps) e->spec.plan.drafter.off_until = 0;
        ASSERT_OK(sl_step(e, &err));
    }
    bool runs = e->spec.plan.drafter.n_seen > 0;
    sl_engine_close(e);
    sl_model_close(m);
    return runs;
}

/* It would guess worse, and the planner would think that it always does. */
TEST(engine_mtp_chain_does_not_begin_anew_in_a_short_answer)
{
    assert_true(runs_late(100, 0));
    assert_false(runs_late(100, 10)); /* its prompt was computed without it */
    assert_false(runs_late(100, 200));
}

TEST(engine_mtp_drafts_after_a_hit_are_those_without_it)
{
    for (int n_prompt = 95; n_prompt <= 97; n_prompt++) {
        sl_stats cold_st, st;
        struct answer cold = drafts_after(COLD, true, n_prompt, &cold_st);
        assert_int_equal(cold_st.cache_hit_tok, 0);
        for (int how = SAME; how <= LONGER; how += LONGER - SAME) {
            struct answer a = drafts_after((enum before)how, true, n_prompt, &st);
            assert_true(st.cache_hit_tok >= 64);
            assert_memory_equal(cold.id, a.id, sizeof cold.id);
            if (a.last.n_draft != cold.last.n_draft || a.last.n_right != cold.last.n_right)
                fail_msg("%d, %d tokens: %d of %d right, not %d of %d", how, n_prompt,
                         a.last.n_right, a.last.n_draft, cold.last.n_right, cold.last.n_draft);
        }
        /* blocks without entries: the layer begins after them */
        struct answer a = drafts_after(NO_DRAFTS, true, n_prompt, &st);
        assert_true(st.cache_hit_tok >= 64);
        assert_true(a.last.n_draft > 10 && a.last.n_right > 5);
    }
}

/* ---- hits in the prefix tree, on a device that poisons what was freed: what was recorded ---- */

#define RECORD_MAX (1 << 21)
static struct {
    uint8_t p[RECORD_MAX];
    size_t n;
} tape;

static void on_record(void *user, const void *p, size_t n)
{
    (void)user;
    assert_true(tape.n + n <= RECORD_MAX);
    memcpy(tape.p + tape.n, p, n);
    tape.n += n;
}

/* Every guess of the layer: whose, after which tokens, and a hash of it. */
struct guesses {
    int n, seat[400], pos[400];
    uint64_t hash[400];
};

/* Those of the records from byte at of the tape on. */
static void read_guesses(const sl_engine *e, size_t at, struct guesses *g)
{
    struct record_limits max = engine_record_limits(e);
    struct record_step s;
    struct record_result res;
    struct rd r = rd_init(tape.p + at, tape.n - at), body;
    uint32_t kind;
    uint64_t byte;
    ASSERT_OK(engine_record_step_init(&s, &max, &err));
    g->n = 0;
    while (r.pos < r.size) {
        ASSERT_OK(engine_record_next(&r, &kind, &body, &byte, &err));
        if (kind == RECORD_STEP) {
            ASSERT_OK(engine_record_read_step(&body, byte, &max, &s, &err));
            continue;
        }
        ASSERT_OK(engine_record_read_result(&body, byte, &res, &err));
        assert_int_equal(res.status, SL_OK);
        for (int i = 0; s.s.pass && i < res.n_row; i++, g->n++) {
            int seq = 0;
            assert_in_range(g->n, 0, 399);
            while (s.room.seq_tok0[seq + 1] <= s.room.row_tok[i])
                seq++;
            g->seat[g->n] = s.room.seat[seq];
            g->pos[g->n] = s.room.pos[s.room.row_tok[i]];
            memcpy(&g->hash[g->n], res.row + 8 * i, sizeof *g->hash);
        }
    }
    engine_record_step_fini(&s);
}

/* Of a request its guesses, after another one or (first NULL) without it. */
static const char *guesser; /* the model */
static int n_between;       /* prompts between both, each of its own, in a cache that has room for
                               all, and of windows for few */
static void run_between(sl_engine *e)
{
    int32_t ids[220];
    struct answer a;
    for (int i = 0; i < n_between; i++) {
        for (int k = 0; k < 220; k++)
            ids[k] = 5 + (i * 31 + k * (3 + i)) % 60;
        sl_request q = {.ids = ids, .n_ids = 220, .max_tokens = 2, .ignore_eos = 1};
        run(e, &q, &a);
    }
}

static struct answer guesses_after(const sl_request *first, const sl_request *q, int n_most,
                                   struct guesses *g, uint64_t *n_hit)
{
    sl_model *m;
    sl_engine *e;
    struct answer a;
    sl_stats st;
    sl_engine_opts o = {.device = "check", .draft = "mtp", .draft_max = n_most};
    o.on_record = on_record;
    o.kv_tokens = n_between ? 32 * 1024 : 0;
    tape.n = 0;
    ASSERT_OK(open_opts(guesser, &o, &m, &e));
    if (first) run(e, first, &a);
    if (first) run_between(e);
    size_t at = tape.n;
    if (!first) at = RECORD_HEAD;
    run(e, q, &a);
    read_guesses(e, at, g);
    sl_stats_get(e, &st);
    *n_hit = st.cache_hit_tok;
    sl_engine_close(e);
    sl_model_close(m);
    return a;
}

/* Held against those of q alone. */
static void same_guesses(const sl_request *first, const sl_request *q, int n_most, uint64_t n_hit)
{
    static struct guesses cold, warm;
    uint64_t n;
    struct answer a = guesses_after(NULL, q, n_most, &cold, &n);
    assert_int_equal(n, 0);
    struct answer b = guesses_after(first, q, n_most, &warm, &n);
    assert_int_equal(n, n_hit);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    assert_int_equal(a.last.n_draft, b.last.n_draft);
    assert_int_equal(a.last.n_right, b.last.n_right);
    assert_true(cold.n > 15);
    assert_int_equal(warm.n, cold.n);
    assert_memory_equal(warm.pos, cold.pos, (size_t)cold.n * sizeof *cold.pos);
    assert_memory_equal(warm.hash, cold.hash, (size_t)cold.n * sizeof *cold.hash);
}

TEST(engine_mtp_guesses_after_hits_are_recorded_the_same)
{
    sl_model *m;
    int32_t ids[200], other[200];
    struct guesses g;
    uint64_t n_hit;
    ASSERT_OK(sl_model_open(DEMO, NULL, &m, &err));
    make_prompt(m, 200, ids);
    sl_model_close(m);
    guesser = DEMO;
    sl_request q = {.ids = ids, .n_ids = 110, .max_tokens = 50, .ignore_eos = 1}, first = q;
    for (int most = 1; most <= 3; most += 2) {
        first = q;
        first.max_tokens = 5;
        same_guesses(&first, &q, most, 96);
        memcpy(other, ids, sizeof other);
        first.ids = other;
        other[96]++; /* they part where a block ends: that block is not the same */
        same_guesses(&first, &q, most, 64);
        other[97] = ids[96];
        other[96] = ids[96];
        same_guesses(&first, &q, most, 96);
        /* the next turn of a conversation: its hit has blocks of an answer */
        first = q;
        struct answer a = guesses_after(NULL, &first, most, &g, &n_hit);
        memcpy(other, ids, 110 * sizeof *ids);
        memcpy(other + 110, a.id, 50 * sizeof *ids);
        memcpy(other + 160, ids, 10 * sizeof *ids);
        sl_request next = q;
        next.ids = other;
        next.n_ids = 170;
        same_guesses(&first, &next, most, 128);
    }
}

/* Latents, keys and values per head, and the state of other layers, of random weights. A state goes
 * on from a snapshot: there is one at the end of the prompt's last whole block. */
TEST(engine_mtp_guesses_of_other_families_are_the_same_after_hits)
{
    static const struct {
        const char *name;
        uint64_t n_parted; /* found where they part at the end of a block */
    } of[] = {{"deepseek_v3", 64},
              {"glm4_moe.gguf", 64},
              {"deepseek_v32", 64},
              {"deepseek_v4_mtp.gguf", 64},
              {"qwen3_next.gguf", 0},
              {"qwen3_5_moe", 0},
              {"qwen3_5", 0},
              {"glm5_next", 0}};
    int32_t ids[110], other[110];
    for (int i = 0; i < 110; i++)
        ids[i] = other[i] = 5 + (i * 7) % 50;
    other[96]++;
    for (int i = 0; i < BASE_COUNT_OF(of); i++) {
        guesser = tiny(of[i].name);
        sl_request q = {.ids = ids, .n_ids = 110, .max_tokens = 50, .ignore_eos = 1}, first = q;
        first.max_tokens = 5;
        same_guesses(&first, &q, 2, 96);
        first.ids = other;
        same_guesses(&first, &q, 2, of[i].n_parted);
    }
}

/* A layer whose entries lie in windows, which have moved on from where the text begins. */
TEST(engine_mtp_guesses_in_windows_are_the_same_after_hits)
{
    int32_t ids[210], other[210];
    for (int i = 0; i < 210; i++)
        ids[i] = other[i] = 5 + (i * 7) % 50;
    other[192]++;
    guesser = tiny("deepseek_v4_mtp.gguf");
    sl_request q = {.ids = ids, .n_ids = 195, .max_tokens = 40, .ignore_eos = 1}, first = q;
    first.max_tokens = 5;
    same_guesses(&first, &q, 2, 192);
    first.ids = other;
    same_guesses(&first, &q, 2, 160);
    /* others have taken the places: what is found is made again, the layer's entries too */
    n_between = 40;
    same_guesses(&q, &q, 2, 0);
    n_between = 0;
}

static void on_sample(void *user, const sl_event *ev)
{
    on_event((struct answer *)user + ev->index, ev);
}

TEST(engine_mtp_chains_of_samples_go_on_with_that_of_their_prompt)
{
    sl_model *m;
    sl_engine *e;
    int32_t ids[200];
    struct answer one, all[2];
    ASSERT_OK(open_with(DEMO, "mtp", &m, &e));
    make_prompt(m, 100, ids);
    sl_request q = {.ids = ids, .n_ids = 100, .max_tokens = 40, .ignore_eos = 1, .no_cache = 1};
    run(e, &q, &one);
    memset(all, 0, sizeof all);
    q.n = 2;
    q.on_event = on_sample;
    q.user = all;
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    for (int i = 0; i < 2; i++) /* greedy: both are alike */
        assert_memory_equal(one.id, all[i].id, sizeof one.id);
    assert_int_equal(all[0].last.n_draft, one.last.n_draft);
    assert_int_equal(all[0].last.n_right, one.last.n_right);
    /* the first guess of the other is made a step later, and not when the next block begins */
    assert_in_range(all[1].last.n_draft, one.last.n_draft - 3, one.last.n_draft);
    assert_in_range(all[1].last.n_right, one.last.n_right - 2, one.last.n_right);
    sl_engine_close(e);
    sl_model_close(m);
}

/* The second sample of a prompt, of two or (n 1) alone: its guesses, and those of the first. True:
 * the two begin with different tokens. */
static bool guesses_of_second(sl_request q, int n, struct guesses *g, struct answer *a)
{
    sl_model *m;
    sl_engine *e;
    struct answer both[2];
    sl_engine_opts o = {.device = "check", .draft = "mtp", .draft_max = 1};
    o.on_record = on_record;
    tape.n = 0;
    ASSERT_OK(open_opts(guesser, &o, &m, &e));
    memset(both, 0, sizeof both);
    q.n = n;
    q.first = 2 - n;
    q.on_event = on_sample;
    q.user = both;
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    read_guesses(e, RECORD_HEAD, g);
    sl_engine_close(e);
    sl_model_close(m);
    *a = both[1];
    return both[0].n > 0 && both[0].id[0] != both[1].id[0];
}

TEST(engine_mtp_guesses_of_samples_are_those_of_each_alone)
{
    static struct guesses alone, two;
    int32_t ids[32];
    for (int i = 0; i < 32; i++)
        ids[i] = 5 + (i * 7) % 50;
    sl_request q = {.ids = ids, .max_tokens = 30, .ignore_eos = 1};
    q.sampling.temperature = 2;
    guesser = tiny("deepseek_v3");
    int n_other = 0, n_same = 0;
    for (int i = 0; i < 16; i++) {
        struct answer a, b;
        q.n_ids = i % 2 ? 32 : 3; /* the prompt ends where a block does */
        q.sampling.seed = (uint64_t)i;
        (void)guesses_of_second(q, 1, &alone, &a);
        n_other += guesses_of_second(q, 2, &two, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.id, b.id, (size_t)a.n * sizeof *a.id);
        for (int j = 0; j < two.n; j++)
            for (int k = 0; k < alone.n && two.seat[j] == 1; k++) {
                if (two.pos[j] != alone.pos[k]) continue;
                if (two.hash[j] != alone.hash[k])
                    fail_msg("%d: another guess after %d tokens", i, two.pos[j] + 1);
                n_same++;
            }
    }
    assert_true(n_other > 8);
    assert_true(n_same > 16 * 15);
}

/* A state can not go back to the prompt's last position, whose entry depends on the first token: it
 * stays the first sample's. So where the first tokens are the same all guesses are those of the
 * sample alone; else there are as many, of the same places, and some differ. */
TEST(engine_mtp_samples_of_a_state_go_on_with_the_first_one_s_entries)
{
    static struct guesses alone, two;
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = 5 + (i * 7) % 50;
    sl_request q = {.ids = ids, .max_tokens = 30, .ignore_eos = 1};
    q.sampling.temperature = 0.3f;
    guesser = tiny("qwen3_5_moe");
    int n_alike = 0, n_other = 0;
    for (int i = 0; i < 24; i++) {
        struct answer a, b;
        q.n_ids = i % 2 ? 40 : 3; /* there is a snapshot after 32 */
        q.sampling.seed = (uint64_t)i;
        (void)guesses_of_second(q, 1, &alone, &a);
        bool other = guesses_of_second(q, 2, &two, &b);
        int n_place = 0, n_differ = 0;
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.id, b.id, (size_t)a.n * sizeof *a.id);
        for (int j = 0; j < two.n; j++)
            for (int k = 0; k < alone.n && two.seat[j] == 1; k++) {
                if (two.pos[j] != alone.pos[k]) continue;
                n_place++;
                if (two.hash[j] == alone.hash[k]) continue;
                if (!other) fail_msg("%d: another guess after %d tokens", i, two.pos[j] + 1);
                n_differ++;
            }
        assert_true(!other || n_differ > 0);
        n_other += other;
        n_alike += !other;
        assert_in_range(n_place, alone.n - 3, alone.n);
        assert_true(alone.n > 15);
    }
    assert_true(n_other > 4 && n_alike > 1);
}
