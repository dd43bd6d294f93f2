/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the gate: what is put is read again; what is cut or longer is refused. */
#include <math.h>
#include <string.h>

#include "gate/frame.h"
#include "test.h"

static sl_err err;

/* The one frame of s. */
static struct gate_frame frame_of(const struct str *s)
{
    struct gate_frame f;
    size_t used;
    ASSERT_OK(gate_frame_next((const uint8_t *)s->p, s->n, GATE_BODY_MAX, &f, &used, &err));
    assert_int_equal(used, s->n);
    return f;
}

enum what { REQUEST, EVENT, HELLO, STATE, REFUSAL, PAGE };

static sl_status read_any(enum what what, struct rd r)
{
    static struct gate_hello h;
    struct arena a;
    sl_request q;
    struct gate_grammar g;
    sl_event ev;
    struct gate_state s;
    sl_kv_page page;
    sl_err why;
    sl_status st = SL_OK;
    mem_arena_init(&a, MEM_REQUEST, 0);
    switch (what) {
    case REQUEST:
        st = gate_read_request(&r, &a, &q, &g, &err);
        break;
    case EVENT:
        st = gate_read_event(&r, &a, &ev, &err);
        break;
    case HELLO:
        st = gate_read_hello(&r, &h, &err);
        break;
    case STATE:
        st = gate_read_state(&r, &s, &err);
        break;
    case REFUSAL:
        st = gate_read_fail(&r, &why, &err);
        break;
    case PAGE:
        st = gate_read_page(&r, &page, &err);
        break;
    }
    mem_arena_fini(&a);
    return st;
}

/* Every beginning of the body is refused, and so is one byte more. */
static void check_cuts(enum what what, const struct gate_frame *f)
{
    uint8_t more[4096];
    assert_in_range(f->body.size, 1, sizeof more - 1);
    for (uint64_t n = 0; n < f->body.size; n++)
        ASSERT_STATUS(read_any(what, rd_init(f->body.base, n)), SL_FORMAT);
    memcpy(more, f->body.base, f->body.size);
    more[f->body.size] = 0;
    ASSERT_OK(read_any(what, rd_init(more, f->body.size)));
    ASSERT_STATUS(read_any(what, rd_init(more, f->body.size + 1)), SL_FORMAT);
}

TEST(gate_frames_are_whole_or_not_there)
{
    struct str s;
    struct gate_frame f;
    size_t used;
    str_init(&s, MEM_MISC, 0);
    for (int i = 0; i < 2; i++) {
        size_t at = gate_frame_begin(&s, GATE_CANCEL, 0x123456789abcdefu + (uint64_t)i);
        str_put(&s, "abc", 3);
        gate_frame_end(&s, at);
    }
    size_t one = GATE_HEAD + 3;
    assert_int_equal(s.n, 2 * one);
    for (size_t n = 0; n < one; n++) {
        ASSERT_OK(gate_frame_next((const uint8_t *)s.p, n, 100, &f, &used, &err));
        assert_int_equal(used, 0);
    }
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(gate_frame_next((const uint8_t *)s.p + (size_t)i * one, s.n - (size_t)i * one, 3,
                                  &f, &used, &err));
        assert_int_equal(used, one);
        assert_int_equal(f.type, GATE_CANCEL);
        assert_int_equal(f.id, 0x123456789abcdefu + (uint64_t)i);
        assert_int_equal(f.body.size, 3);
    }
    ASSERT_STATUS(gate_frame_next((const uint8_t *)s.p, s.n, 2, &f, &used, &err), SL_FORMAT);
    s.p[4] = GATE_N_TYPE;
    ASSERT_STATUS(gate_frame_next((const uint8_t *)s.p, s.n, 3, &f, &used, &err), SL_FORMAT);
    s.p[4] = GATE_NONE;
    ASSERT_STATUS(gate_frame_next((const uint8_t *)s.p, s.n, 3, &f, &used, &err), SL_FORMAT);
    str_fini(&s);
}

TEST(gate_requests_are_read_as_they_were_put)
{
    const int32_t ids[] = {5, 0, 70000}, stops[] = {9}, drafts[] = {1, 2}, given[] = {3, 4};
    const sl_bias bias[] = {{7, -INFINITY}, {8, 2.5f}};
    const char *stop[] = {"one", "\xc3\xbc"};
    const sl_request q = {.ids = ids,
                          .n_ids = 3,
                          .keep_special = 2,
                          .max_tokens = -1,
                          .min_tokens = 4,
                          .ignore_eos = 1,
                          .stop = stop,
                          .n_stop = 2,
                          .stop_ids = stops,
                          .n_stop_ids = 1,
                          .n_logprob = 20,
                          .want_logprob = 1,
                          .sampling = {.temperature = 0.7f,
                                       .top_k = 40,
                                       .top_p = 0.9f,
                                       .min_p = 0.1f,
                                       .repeat_penalty = 1.2f,
                                       .presence_penalty = -1,
                                       .frequency_penalty = 2,
                                       .seed = UINT64_MAX,
                                       .bias = bias,
                                       .n_bias = 2},
                          .priority = -100,
                          .owner = 1ull << 63,
                          .cache_salt = 77,
                          .no_cache = 1,
                          .echo_logprob = 1,
                          .embed = 2,
                          .want_progress = 1,
                          .draft_ids = drafts,
                          .n_draft_ids = 2,
                          .n_draft = -1,
                          .kv_from = 96};
    const struct gate_tail tail = {
        .n = 4, .first = 3, .timeout_ms = 1ll << 40, .given = given, .n_given = 2, .kv_from = 96};
    struct str s;
    struct arena a;
    sl_request r;
    struct gate_grammar g;
    str_init(&s, MEM_MISC, 0);
    size_t at = gate_frame_begin(&s, GATE_RESUME, 1);
    gate_put_request(&s, &q);
    gate_put_tail(&s, &tail);
    gate_frame_end(&s, at);
    struct gate_frame f = frame_of(&s);
    check_cuts(REQUEST, &f);
    mem_arena_init(&a, MEM_REQUEST, 0);
    ASSERT_OK(gate_read_request(&f.body, &a, &r, &g, &err));
    assert_memory_equal(r.ids, ids, sizeof ids);
    assert_memory_equal(r.stop_ids, stops, sizeof stops);
    assert_memory_equal(r.draft_ids, drafts, sizeof drafts);
    assert_memory_equal(r.given, given, sizeof given);
    assert_memory_equal(r.sampling.bias, bias, sizeof bias);
    for (int i = 0; i < 2; i++)
        assert_string_equal(r.stop[i], stop[i]);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.first, 3);
    assert_true(r.timeout_ms == tail.timeout_ms && r.n_given == 2 && !g.any);
    /* all that is no pointer is the same */
    sl_request want = q;
    want.ids = r.ids, want.stop = r.stop, want.stop_ids = r.stop_ids;
    want.draft_ids = r.draft_ids, want.given = r.given, want.sampling.bias = r.sampling.bias;
    want.n = r.n, want.first = r.first, want.timeout_ms = r.timeout_ms, want.n_given = r.n_given;
    assert_memory_equal(&r, &want, sizeof r);
    mem_arena_fini(&a);
    str_fini(&s);
}

TEST(gate_events_are_read_as_they_were_put)
{
    const sl_logprob top[] = {{3, -0.5f}, {4, -9999}};
    const float embedding[] = {1, -2, 3.5f};
    const sl_event ev = {.token = -1,
                         .text = "a\xc3\xbc",
                         .n_text = 3,
                         .index = 127,
                         .finish = SL_FINISH_ERROR,
                         .status = SL_TIMEOUT,
                         .error = "late",
                         .logprob = -1.5f,
                         .top = top,
                         .n_top = 2,
                         .n_prompt = 1,
                         .n_token = 2,
                         .n_cached = 3,
                         .n_done = 4,
                         .prompt_pos = -1,
                         .embedding = embedding,
                         .n_embedding = 3,
                         .ttft_ns = 1ll << 50,
                         .done_ns = 6,
                         .queue_ns = 7,
                         .prefill_ns = 8,
                         .n_preempt = 9,
                         .stop = -1,
                         .is_end = 1,
                         .n_draft = 10,
                         .n_right = 11,
                         .n_text_draft = 12,
                         .n_text_right = 13,
                         .n_held = 14};
    struct str s;
    struct arena a;
    sl_event got, want = ev;
    str_init(&s, MEM_MISC, 0);
    size_t at = gate_frame_begin(&s, GATE_EVENTS, 1);
    gate_put_event(&s, &ev);
    gate_frame_end(&s, at);
    struct gate_frame f = frame_of(&s);
    check_cuts(EVENT, &f);
    mem_arena_init(&a, MEM_REQUEST, 0);
    ASSERT_OK(gate_read_event(&f.body, &a, &got, &err));
    assert_memory_equal(got.text, ev.text, ev.n_text);
    assert_string_equal(got.error, ev.error);
    assert_memory_equal(got.top, top, sizeof top);
    assert_memory_equal(got.embedding, embedding, sizeof embedding);
    want.text = got.text, want.error = got.error;
    want.top = got.top, want.embedding = got.embedding;
    assert_memory_equal(&got, &want, sizeof got);
    mem_arena_fini(&a);
    str_fini(&s);
}

TEST(gate_greetings_states_and_refusals_are_read_as_they_were_put)
{
    static struct gate_hello h, got;
    struct gate_state put = {.ready = true}, read;
    sl_err why = {.code = SL_BUSY, .text = "full"}, why2;
    struct str s;
    h = (struct gate_hello){.print = {.program = "p", .isa = "i", .acts = "a", .kv = "k",
                                      .model = 1, .vocab = 2, .n_ctx = 3},
                            .model = "m",
                            .info = {.n_thread = 1, .n_seq_max = 2, .kv_tokens = 3,
                                     .text_bytes_max = 4, .packed = 1, .kv_hash = 1ull << 63},
                            .probe = {.read_gbps = 1.5},
                            .n_device = 1,
                            .device = {{"cpu", "all", 5, 6}}};
    str_init(&s, MEM_MISC, 0);
    size_t at = gate_frame_begin(&s, GATE_HELLO, 0);
    gate_put_hello(&s, &h);
    gate_frame_end(&s, at);
    struct gate_frame f = frame_of(&s);
    check_cuts(HELLO, &f);
    ASSERT_OK(gate_read_hello(&f.body, &got, &err));
    assert_memory_equal(&got.print, &h.print, sizeof h.print);
    assert_memory_equal(got.device, h.device, sizeof h.device);
    assert_string_equal(got.info.isa, "i");
    assert_int_equal(got.info.n_ctx, 3);
    assert_int_equal(got.info.text_bytes_max, 4);
    assert_true(got.info.kv_hash == h.info.kv_hash);
    assert_true(got.probe.read_gbps == 1.5);
    assert_null(gate_print_differs(&got.print, &h.print));
    got.print.model++;
    assert_string_equal(gate_print_differs(&got.print, &h.print), "model");
    s.p[GATE_HEAD]++; /* the version */
    f = frame_of(&s);
    ASSERT_STATUS(gate_read_hello(&f.body, &got, &err), SL_UNSUPPORTED);

    memset(&put.stats, 7, sizeof put.stats);
    str_clear(&s);
    at = gate_frame_begin(&s, GATE_STATS, 0);
    gate_put_state(&s, &put);
    gate_frame_end(&s, at);
    f = frame_of(&s);
    check_cuts(STATE, &f);
    ASSERT_OK(gate_read_state(&f.body, &read, &err));
    assert_true(read.ready);
    assert_memory_equal(&read.stats, &put.stats, sizeof put.stats);

    str_clear(&s);
    at = gate_frame_begin(&s, GATE_FAIL, 1);
    gate_put_fail(&s, &why);
    gate_frame_end(&s, at);
    f = frame_of(&s);
    check_cuts(REFUSAL, &f);
    ASSERT_OK(gate_read_fail(&f.body, &why2, &err));
    assert_int_equal(why2.code, SL_BUSY);
    assert_string_equal(why2.text, "full");
    str_fini(&s);
}

TEST(gate_pages_are_read_as_they_were_put)
{
    const sl_kv_page page = {
        .block = 3, .layer = 60, .bytes = "some\0bytes", .n_bytes = 10, .sum = UINT64_MAX - 5};
    sl_kv_page got;
    struct str s;
    str_init(&s, MEM_MISC, 0);
    size_t at = gate_frame_begin(&s, GATE_PAGE, 1);
    gate_put_page(&s, &page);
    gate_frame_end(&s, at);
    struct gate_frame f = frame_of(&s);
    check_cuts(PAGE, &f);
    ASSERT_OK(gate_read_page(&f.body, &got, &err));
    assert_memory_equal(got.bytes, page.bytes, page.n_bytes);
    assert_int_equal(got.n_bytes, page.n_bytes);
    assert_int_equal(got.block, 3);
    assert_int_equal(got.layer, 60);
    assert_true(got.sum == page.sum);
    s.p[GATE_HEAD + 3] = (char)0x80; /* a block before the first */
    f = frame_of(&s);
    ASSERT_STATUS(gate_read_page(&f.body, &got, &err), SL_FORMAT);
    str_fini(&s);
}
