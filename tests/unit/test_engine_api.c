/* SPDX-License-Identifier: Apache-2.0 */
/* The public API on tiny checkpoints: requests, limits, events, stop strings, log probabilities,
 * cancel, memory failures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

static sl_err err;

struct rig {
    sl_model *m;
    sl_engine *e;
    sl_model_info mi;
};

static void rig_open(struct rig *r, const char *name, sl_engine_opts o)
{
    if (!o.n_thread) o.n_thread = 1;
    if (!o.n_ctx) o.n_ctx = 128;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &r->m, &err));
    ASSERT_OK(sl_engine_open(r->m, &o, &r->e, &err));
    sl_model_info_get(r->m, &r->mi);
}

static void rig_close(struct rig *r)
{
    sl_engine_close(r->e);
    sl_model_close(r->m);
}

/* What a request gave. */
struct got {
    int32_t tok[256];
    float lp[256];
    int n, n_event, n_finish, n_cached, stop, is_end;
    char text[4096];
    size_t n_text;
    sl_finish finish;
    sl_status status;
    char error[240];
    sl_engine *e; /* cancel after so many tokens */
    int cancel_at;
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    g->n_event++;
    if (ev->token >= 0) {
        g->lp[g->n] = ev->logprob;
        g->tok[g->n++] = ev->token;
        assert_int_equal(ev->n_token, g->n);
    }
    memcpy(g->text + g->n_text, ev->text, ev->n_text);
    g->n_text += ev->n_text;
    for (int i = 1; i < ev->n_top; i++)
        assert_true(ev->top[i - 1].logprob >= ev->top[i].logprob);
    g->n_cached = ev->n_cached;
    g->is_end = ev->is_end;
    g->finish = ev->finish;
    g->stop = ev->stop;
    g->status = ev->status;
    g->n_finish += ev->finish != SL_FINISH_NONE;
    if (ev->error) snprintf(g->error, sizeof g->error, "%s", ev->error);
    if (g->cancel_at && g->n == g->cancel_at) sl_cancel(g->e, ev->id);
}

static void drain(sl_engine *e)
{
    int n = 0;
    while (sl_pending(e)) {
        ASSERT_OK(sl_step(e, &err));
        assert_true(++n < 20000);
    }
    assert_int_equal(sched_check(&e->sched), 0);
}

static const int32_t prompt[] = {5, 6, 7, 8, 9, 10, 11};

static sl_request base_request(struct got *g)
{
    memset(g, 0, sizeof *g);
    return (sl_request){.ids = prompt,
                        .n_ids = 7,
                        .max_tokens = 12,
                        .ignore_eos = 1,
                        .on_event = on_event,
                        .user = g};
}

static void ask(sl_engine *e, const sl_request *q)
{
    ASSERT_OK(sl_submit(e, q, NULL, &err));
    drain(e);
}

TEST(engine_answers_and_ends_at_max_tokens)
{
    struct rig r;
    struct got g;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){0});
    sl_request q = base_request(&g);
    ask(r.e, &q);
    assert_int_equal(g.n, 12);
    assert_int_equal(g.n_event, 12);
    assert_int_equal(g.n_finish, 1);
    assert_int_equal(g.finish, SL_FINISH_LENGTH);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_prompt_tok, 7);
    assert_int_equal(s.n_decode_tok, 11);
    assert_int_equal(s.n_answer_tok, 12);
    rig_close(&r);
}

TEST(engine_fills_the_context_to_its_last_token)
{
    struct rig r;
    struct got g;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_ctx = 40});
    sl_request q = base_request(&g);
    q.max_tokens = 0;
    ask(r.e, &q);
    assert_int_equal(g.n, 33);
    assert_int_equal(g.finish, SL_FINISH_LENGTH);
    int32_t full[41] = {0};
    q = base_request(&g);
    q.ids = full;
    q.n_ids = 40;
    ask(r.e, &q);
    assert_int_equal(g.n, 1);
    q.n_ids = 41;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_LIMIT);
    assert_non_null(strstr(err.text, "41"));
    assert_non_null(strstr(err.text, "40"));
    rig_close(&r);
}

TEST(engine_gives_the_same_tokens_alone_and_together)
{
    struct rig r;
    static struct got alone[6], together[6];
    rig_open(&r, "deepseek_v3.gguf",
             (sl_engine_opts){.n_seq_max = 4, .n_chunk = 5, .kv_tokens = 160});
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 6; i++) {
            sl_request q = base_request(pass ? &together[i] : &alone[i]);
            q.n_ids = 1 + i;
            q.max_tokens = 20;
            q.n_logprob = 2;
            q.sampling = (sl_sampling){.temperature = 1,
                                       .top_p = 0.9f,
                                       .seed = (uint64_t)i,
                                       .repeat_penalty = 1.1f,
                                       .presence_penalty = 0.3f};
            ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
            if (!pass) drain(r.e);
        }
        drain(r.e);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(alone[i].n, 20);
        assert_memory_equal(alone[i].tok, together[i].tok, sizeof alone[i].tok);
        assert_memory_equal(alone[i].lp, together[i].lp, sizeof alone[i].lp);
    }
    rig_close(&r);
}

TEST(engine_reuses_the_kv_of_an_earlier_turn_bitwise)
{
    static const char *const names[] = {"llama3.gguf", "deepseek_v2.gguf"};
    for (int k = 0; k < 2; k++) {
        struct rig r;
        static struct got a, b, c;
        int32_t ids[200];
        rig_open(&r, names[k], (sl_engine_opts){.n_seq_max = 1, .n_ctx = 256});
        for (int i = 0; i < 140; i++)
            ids[i] = (i * 13 + 5) % r.mi.n_vocab;
        sl_request q = base_request(&a);
        q.ids = ids;
        q.n_ids = 140;
        q.max_tokens = 40;
        ask(r.e, &q);
        assert_int_equal(a.n_cached, 0);
        memcpy(ids + 140, a.tok, 40 * sizeof *ids);
        q = base_request(&b);
        q.ids = ids;
        q.n_ids = 180;
        q.n_logprob = 0;
        q.want_logprob = 1;
        ask(r.e, &q);
        /* MLA: answer tokens past the threshold are computed again as prompt */
        assert_int_equal(b.n_cached, r.e->form_from <= 140 ? 128 : 160);
        if (k) assert_int_equal(b.n_cached, 128);
        sl_engine_close(r.e);
        sl_engine_opts o = {.n_thread = 1, .n_ctx = 256, .no_reuse = 1};
        ASSERT_OK(sl_engine_open(r.m, &o, &r.e, &err));
        q.user = &c;
        memset(&c, 0, sizeof c);
        ask(r.e, &q);
        assert_int_equal(c.n_cached, 0);
        assert_memory_equal(b.tok, c.tok, sizeof b.tok);
        assert_memory_equal(b.lp, c.lp, sizeof b.lp);
        rig_close(&r);
    }
}

TEST(engine_cancels_from_outside_and_from_an_event)
{
    struct rig r;
    struct got a, b;
    uint64_t id_a;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 1, .no_reuse = 1});
    sl_request q = base_request(&a);
    ASSERT_OK(sl_submit(r.e, &q, &id_a, &err));
    q = base_request(&b);
    b.e = r.e;
    b.cancel_at = 3;
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    ASSERT_OK(sl_step(r.e, &err));
    sl_cancel(r.e, id_a);
    sl_cancel(r.e, 999); /* nobody */
    drain(r.e);
    assert_int_equal(a.finish, SL_FINISH_CANCELLED);
    assert_int_equal(b.finish, SL_FINISH_CANCELLED);
    assert_int_equal(b.n, 3);
    assert_int_equal(kv_pool_avail(&r.e->pool), r.e->pool.n_blk);
    rig_close(&r);
}

TEST(engine_close_ends_open_requests)
{
    struct rig r;
    struct got g;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){0});
    sl_request q = base_request(&g);
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    ASSERT_OK(sl_step(r.e, &err));
    rig_close(&r);
    assert_int_equal(g.finish, SL_FINISH_CANCELLED);
}

TEST(engine_queue_is_bounded)
{
    struct rig r;
    struct got g;
    int n = 0;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 2, .n_queue_max = 3});
    sl_request q = base_request(&g);
    q.on_event = NULL;
    while (sl_submit(r.e, &q, NULL, &err) == SL_OK)
        n++;
    assert_int_equal(n, 5);
    assert_int_equal(err.code, SL_BUSY);
    drain(r.e);
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    rig_close(&r);
}

TEST(engine_refuses_bad_requests_by_field) /* docs/reliability.md P1, P5 */
{
    struct rig r;
    struct got g;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){0});
    static const float bad_real[] = {NAN, INFINITY, -INFINITY, -1e30f, 1e30f, 1000};
    static const struct {
        const char *name;
        size_t at;
    } real[] = {{"temperature", offsetof(sl_request, sampling.temperature)},
                {"top_p", offsetof(sl_request, sampling.top_p)},
                {"min_p", offsetof(sl_request, sampling.min_p)},
                {"repeat_penalty", offsetof(sl_request, sampling.repeat_penalty)},
                {"presence_penalty", offsetof(sl_request, sampling.presence_penalty)},
                {"frequency_penalty", offsetof(sl_request, sampling.frequency_penalty)}};
    static const struct {
        const char *name;
        size_t at;
        int v;
    } num[] = {{"max_tokens", offsetof(sl_request, max_tokens), -1},
               {"max_tokens", offsetof(sl_request, max_tokens), INT32_MIN},
               {"min_tokens", offsetof(sl_request, min_tokens), -1},
               {"n_logprob", offsetof(sl_request, n_logprob), -2},
               {"n_logprob", offsetof(sl_request, n_logprob), 21},
               {"n_stop", offsetof(sl_request, n_stop), -1},
               {"n_stop", offsetof(sl_request, n_stop), 17},
               {"n_stop_ids", offsetof(sl_request, n_stop_ids), 65},
               {"stop", offsetof(sl_request, n_stop), 1},
               {"n_bias", offsetof(sl_request, sampling.n_bias), -1},
               {"bias", offsetof(sl_request, sampling.n_bias), 2},
               {"top_k", offsetof(sl_request, sampling.top_k), -1},
               {"prompt", offsetof(sl_request, n_ids), 0},
               {"prompt", offsetof(sl_request, n_ids), -5}};
    int n = 0;
    for (int i = 0; i < BASE_COUNT_OF(real); i++)
        for (int k = 0; k < BASE_COUNT_OF(bad_real); k++, n++) {
            sl_request q = base_request(&g);
            memcpy((char *)&q + real[i].at, &bad_real[k], sizeof(float));
            ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
            assert_non_null(strstr(err.text, real[i].name));
        }
    for (int i = 0; i < BASE_COUNT_OF(num); i++, n++) {
        sl_request q = base_request(&g);
        memcpy((char *)&q + num[i].at, &num[i].v, sizeof(int));
        ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
        assert_non_null(strstr(err.text, num[i].name));
    }
    assert_int_equal(sl_pending(r.e), 0);
    assert_int_equal(n, 6 * 6 + BASE_COUNT_OF(num));
    rig_close(&r);
}

TEST(engine_refuses_ids_outside_the_vocabulary_and_bad_lists) /* docs/reliability.md P5 */
{
    struct rig r;
    struct got g;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){0});
    const int32_t outside[] = {-1, r.mi.n_vocab, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        int32_t ids[] = {1, outside[i]};
        sl_bias bias = {outside[i], 1};
        sl_request q = base_request(&g);
        q.ids = ids;
        q.n_ids = 2;
        ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
        q = base_request(&g);
        q.stop_ids = ids;
        q.n_stop_ids = 2;
        ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
        q = base_request(&g);
        q.sampling.bias = &bias;
        q.sampling.n_bias = 1;
        ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
    }
    sl_bias nan_bias = {1, NAN};
    sl_request q = base_request(&g);
    q.sampling.bias = &nan_bias;
    q.sampling.n_bias = 1;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
    const char *empty[] = {"ok", ""};
    q = base_request(&g);
    q.stop = empty;
    q.n_stop = 2;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
    ASSERT_STATUS(sl_submit(r.e, &(sl_request){0}, NULL, &err), SL_REQUEST);
    assert_int_equal(sl_pending(r.e), 0);
    rig_close(&r);
}

TEST(engine_stop_ids_bias_and_min_tokens)
{
    struct rig r;
    struct got g;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 1});
    sl_request q = base_request(&g);
    ask(r.e, &q);
    int32_t second = g.tok[1], first = g.tok[0];
    q = base_request(&g);
    q.stop_ids = &second;
    q.n_stop_ids = 1;
    ask(r.e, &q);
    assert_int_equal(g.finish, SL_FINISH_STOP_STRING);
    assert_int_equal(g.stop, -1);
    assert_true(g.n <= 2);
    q.min_tokens = 6;
    q.user = memset(&g, 0, sizeof g);
    ask(r.e, &q);
    for (int i = 0; i < g.n && i < 6; i++)
        assert_int_not_equal(g.tok[i], second);
    assert_true(g.n >= 6);
    sl_bias ban = {first, -100};
    q = base_request(&g);
    q.sampling.bias = &ban;
    q.sampling.n_bias = 1;
    ask(r.e, &q);
    assert_int_equal(g.n, 12);
    for (int i = 0; i < g.n; i++)
        assert_int_not_equal(g.tok[i], first);
    sl_bias force = {77, 90};
    q.sampling.bias = &force;
    q.user = memset(&g, 0, sizeof g);
    ask(r.e, &q);
    for (int i = 0; i < g.n; i++)
        assert_int_equal(g.tok[i], 77);
    rig_close(&r);
}

TEST(engine_stop_string_cuts_the_text_exactly)
{
    struct rig r;
    struct got whole, cut;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 1});
    if (!r.mi.has_tokenizer) skip();
    sl_request q = base_request(&whole);
    q.max_tokens = 40;
    ask(r.e, &q);
    assert_true(whole.n_text > 8);
    int n_cut = 0;
    for (size_t at = 1; at + 3 < whole.n_text; at++) {
        char stop[4] = {whole.text[at], whole.text[at + 1], whole.text[at + 2], 0};
        const char *list[] = {"never there", stop};
        if (strlen(stop) != 3 || (stop[0] & 0xc0) == 0x80) continue;
        q = base_request(&cut);
        q.max_tokens = 40;
        q.stop = list;
        q.n_stop = 2;
        ask(r.e, &q);
        const char *first = memmem(whole.text, whole.n_text, stop, 3);
        assert_int_equal(cut.finish, SL_FINISH_STOP_STRING);
        assert_int_equal(cut.stop, 1);
        assert_int_equal(cut.n_text, first - whole.text);
        assert_memory_equal(cut.text, whole.text, cut.n_text);
        n_cut++;
    }
    assert_true(n_cut > 3);
    rig_close(&r);
}

TEST(engine_marks_control_tokens_and_tells_ends)
{
    struct rig r;
    struct got g;
    char *name = NULL, *none = NULL;
    size_t n = 0, n_none = 0;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 1});
    if (!r.mi.has_tokenizer) skip();
    sl_bias force = {0, 90};
    for (; force.token < r.mi.n_vocab; force.token++) {
        ASSERT_OK(sl_detokenize(r.m, &force.token, 1, 0, &none, &n_none, &err));
        ASSERT_OK(sl_detokenize(r.m, &force.token, 1, 1, &name, &n, &err));
        sl_free(none);
        if (n && !n_none) break;
        sl_free(name);
    }
    assert_true(force.token < r.mi.n_vocab);
    for (int keep = 0; keep < 3; keep++) {
        sl_request q = base_request(&g);
        q.sampling.bias = &force;
        q.sampling.n_bias = 1;
        q.max_tokens = 1;
        q.keep_special = keep;
        ask(r.e, &q);
        assert_int_equal(g.n_text, keep == 2 ? n + 2 : keep ? n : 0);
        if (keep) assert_memory_equal(g.text + (keep == 2), name, n);
        if (keep == 2) assert_int_equal((unsigned char)g.text[0], SL_MARK);
        if (keep == 2) assert_int_equal((unsigned char)g.text[n + 1], SL_MARK);
        assert_int_equal(g.is_end, 0);
        q.stop_ids = &force.token;
        q.n_stop_ids = 1;
        q.user = memset(&g, 0, sizeof g);
        ask(r.e, &q);
        assert_true(g.is_end && g.n == 1 && g.n_text == 0);
    }
    sl_free(name);
    rig_close(&r);
}

TEST(engine_ends_one_request_alone_when_its_output_is_not_a_number) /* docs/reliability.md K15 */
{
    struct rig r;
    struct got bad, good;
    sl_bias b = {3, -INFINITY};
    sl_bias *all;
    rig_open(&r, "qwen2.gguf", (sl_engine_opts){.n_seq_max = 2});
    int n = BASE_MIN(r.mi.n_vocab, ENGINE_BIAS_MAX);
    all = calloc((size_t)n, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < n; i++)
        all[i] = (sl_bias){i, -100};
    sl_request q = base_request(&bad);
    q.sampling.bias = all; /* nothing is left to choose */
    q.sampling.n_bias = n;
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    q = base_request(&good);
    q.sampling.bias = &b;
    q.sampling.n_bias = 1;
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    drain(r.e);
    if (n == r.mi.n_vocab) {
        assert_int_equal(bad.finish, SL_FINISH_ERROR);
        assert_int_equal(bad.status, SL_REQUEST);
        assert_non_null(strstr(bad.error, "no token"));
    }
    assert_int_equal(good.finish, SL_FINISH_LENGTH);
    assert_int_equal(good.n, 12);
    free(all);
    rig_close(&r);
}

TEST(engine_steps_do_not_allocate)
{
    struct rig r;
    static struct got g[4];
    rig_open(&r, "qwen3_moe.gguf", (sl_engine_opts){.n_seq_max = 4, .n_chunk = 8});
    const char *stop[] = {"zzz"};
    for (int i = 0; i < 4; i++) {
        sl_request q = base_request(&g[i]);
        q.n_logprob = 3;
        q.stop = stop;
        q.n_stop = 1;
        q.sampling =
            (sl_sampling){.temperature = 1, .top_k = 20, .top_p = 0.9f, .frequency_penalty = 0.1f};
        ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    }
    uint64_t before = mem_n_alloc();
    drain(r.e);
    assert_int_equal(mem_n_alloc(), before);
    rig_close(&r);
}

TEST(engine_moves_experts_without_allocating)
{
    struct rig r;
    static struct got g[4];
    sl_stats s = {0};
    rig_open(&r, "qwen3_moe_mixed.gguf",
             (sl_engine_opts){.n_seq_max = 4,
                              .n_chunk = 8,
                              .n_thread = 2,
                              .device = "cpu", /* which ranks are of */
                              .layout = "tp=2,ep=2",
                              .n_spare = 2,
                              .place_mbps = 1 << 20});
    for (int k = 0; k < 400 && s.n_placement < 4; k++) {
        for (int i = 0; i < 4; i++) {
            sl_request q = base_request(&g[i]);
            q.sampling = (sl_sampling){.temperature = 2, .seed = (uint64_t)(4 * k + i)};
            ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
        }
        ASSERT_OK(sl_rebalance(r.e, &err));
        uint64_t before = mem_n_alloc();
        drain(r.e);
        assert_int_equal(mem_n_alloc(), before);
        sl_stats_get(r.e, &s);
    }
    assert_true(s.n_placement >= 4 && s.n_expert_moved >= 4);
    assert_int_equal(s.n_move_failed, 0);
    rig_close(&r);
}

TEST(engine_moves_no_experts_where_it_can_not)
{
    struct rig r;
    rig_open(&r, "qwen3_moe_mixed.gguf",
             (sl_engine_opts){.n_thread = 2, .device = "cpu", .layout = "tp=2,ep=2"});
    ASSERT_STATUS(sl_rebalance(r.e, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "--spare"));
    rig_close(&r);
}

TEST(engine_logits_equal_those_of_chunks)
{
    struct rig r;
    int32_t ids[60];
    rig_open(&r, "deepseek_v2.gguf", (sl_engine_opts){.n_chunk = 64});
    for (int i = 0; i < 60; i++)
        ids[i] = (i * 37 + 11) % r.mi.n_vocab;
    size_t n = 60 * (size_t)r.mi.n_vocab;
    float *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
    assert_true(a && b);
    ASSERT_OK(sl_logits(r.e, ids, 60, 0, a, &err));
    sl_engine_close(r.e);
    sl_engine_opts o = {.n_thread = 2, .n_ctx = 128, .n_chunk = 7};
    ASSERT_OK(sl_engine_open(r.m, &o, &r.e, &err));
    ASSERT_OK(sl_logits(r.e, ids, 60, 0, b, &err));
    assert_memory_equal(a, b, n * sizeof *a);
    memset(b, 0, n * sizeof *b);
    ASSERT_OK(sl_logits(r.e, ids, 60, 50, b, &err));
    assert_memory_equal(a + 50 * (size_t)r.mi.n_vocab, b, 10 * (size_t)r.mi.n_vocab * sizeof *a);
    ASSERT_STATUS(sl_logits(r.e, ids, 129, 0, b, &err), SL_REQUEST);
    ASSERT_STATUS(sl_logits(r.e, ids, 60, 60, b, &err), SL_REQUEST);
    ids[3] = r.mi.n_vocab;
    ASSERT_STATUS(sl_logits(r.e, ids, 60, 0, b, &err), SL_REQUEST);
    free(a);
    free(b);
    rig_close(&r);
}

TEST(engine_refuses_bad_options)
{
    struct rig r;
    sl_engine *e;
    rig_open(&r, "llama2.gguf", (sl_engine_opts){0});
    static const sl_engine_opts bad[] = {
        {.n_ctx = -1},     {.n_thread = -1},     {.n_seq_max = 5000}, {.n_chunk = 100000},
        {.kv_tokens = -1}, {.acts = (sl_acts)9}, {.kv = (sl_kv)-1}};
    for (int i = 0; i < BASE_COUNT_OF(bad); i++)
        ASSERT_STATUS(sl_engine_open(r.m, &bad[i], &e, &err), SL_REQUEST);
    sl_engine_opts huge = {.n_ctx = 1 << 24, .kv_tokens = INT32_MAX};
    enum log_level level = log_get_level();
    log_set_level(LOG_ERROR);
    sl_status st = sl_engine_open(r.m, &huge, &e, &err);
    log_set_level(level);
    if (!st)
        sl_engine_close(e); /* a machine with that much memory */
    else
        assert_int_equal(st, SL_NOMEM);
    rig_close(&r);
}

TEST(engine_model_not_found_says_where_it_looked)
{
    sl_model *m;
    ASSERT_STATUS(sl_model_open("/nowhere/model.gguf", NULL, &m, &err), SL_NOTFOUND);
    assert_non_null(strstr(err.text, "/nowhere/model.gguf"));
    assert_null(m);
    ASSERT_STATUS(sl_model_open("no-such-name", NULL, &m, &err), SL_NOTFOUND);
    assert_non_null(strstr(err.text, "SLUICE_MODELS"));
    ASSERT_STATUS(sl_model_open("", NULL, &m, &err), SL_NOTFOUND);
}

/* Everything from opening to the last token, with the k-th allocation failing. */
static sl_status whole_life(const char *path, struct got *g)
{
    sl_model *m = NULL;
    sl_engine *e = NULL;
    const char *stop[] = {"xyz"};
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .n_seq_max = 2};
    sl_request q = base_request(g);
    q.max_tokens = 4;
    q.stop = stop;
    q.n_stop = 1;
    sl_status st = sl_model_open(path, NULL, &m, &err);
    if (!st) st = sl_engine_open(m, &o, &e, &err);
    if (!st) st = sl_submit(e, &q, NULL, &err);
    while (!st && sl_pending(e))
        st = sl_step(e, &err);
    sl_engine_close(e);
    sl_model_close(m);
    return st;
}

TEST(engine_survives_every_failing_allocation) /* docs/reliability.md S1 */
{
    char path[1024];
    snprintf(path, sizeof path, "%s", tiny("qwen3_moe.gguf"));
    int64_t before = 0;
    for (int t = 0; t < MEM_N_TAG; t++)
        before += mem_used((enum mem_tag)t);
    int k = 1, n_fail = 0;
    for (;; k += k < 300 ? 1 : 37) {
        struct got g;
        mem_fail_at((uint64_t)k, 0);
        sl_status st = whole_life(path, &g);
        mem_fail_at(0, 0);
        int64_t after = 0;
        for (int t = 0; t < MEM_N_TAG; t++)
            after += mem_used((enum mem_tag)t);
        if (after != before)
            fail_msg("allocation %d: %lld bytes leaked", k, (long long)(after - before));
        if (!st && g.finish == SL_FINISH_LENGTH && mem_n_alloc() > 0 && k > 50) {
            uint64_t a = mem_n_alloc();
            ASSERT_OK(whole_life(path, &g));
            if ((uint64_t)k > mem_n_alloc() - a) break; /* past the last allocation */
        }
        if (st) {
            n_fail++;
            if (st != SL_NOMEM) fail_msg("allocation %d: status %d: %s", k, (int)st, err.text);
        }
        assert_true(k < 200000);
    }
    assert_true(n_fail > 30);
}
