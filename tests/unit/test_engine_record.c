/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: random runs (cancels, preemption, grammar, four samples, embeddings, scores) replayed
 * with one and two threads give the same bits; what was recorded elsewhere, or is damaged, is
 * refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/engine_internal.h"
#include "engine/record.h"
#include "engine_tiny.h"

#define N_RUN 10 /* of each model */
#define DEMO TEST_DATA "/../../models/demo/demo.gguf"
#define CAP ((size_t)4 << 20)

static sl_err err;
static uint8_t buf[CAP];
static size_t n_buf;

static void keep(void *user, const void *p, size_t n)
{
    (void)user;
    assert_true(n <= CAP - n_buf);
    memcpy(buf + n_buf, p, n);
    n_buf += n;
}

static void open_model(const char *name, sl_model **m)
{
    const char *path = strcmp(name, "demo") == 0 ? DEMO : tiny(name);
    ASSERT_OK(sl_model_open(path, NULL, m, &err));
}

static int pick(uint64_t *rng, int n)
{
    return (int)(rng_next(rng) % (uint64_t)n);
}

static uint64_t submit(sl_engine *e, sl_grammar *g, int n_vocab, uint64_t *rng)
{
    int32_t ids[120];
    uint64_t id;
    int n = 1 + pick(rng, 120), alike = pick(rng, 2);
    for (int i = 0; i < n; i++)
        ids[i] = alike ? (i * 7 + 3) % n_vocab : pick(rng, n_vocab);
    sl_request q = {.ids = ids,
                    .n_ids = n,
                    .max_tokens = 1 + pick(rng, 40),
                    .n = pick(rng, 4) ? 1 : 4,
                    .ignore_eos = 1,
                    .embed = pick(rng, 8) == 0,
                    .sampling = {.temperature = pick(rng, 2) ? 1.0f : 0, .seed = rng_next(rng)}};
    if (q.embed) q.max_tokens = 0, q.n = 1;
    if (!q.embed && pick(rng, 4) == 0) q.grammar = g, q.ignore_eos = 0;
    ASSERT_OK(sl_submit(e, &q, &id, &err));
    return id;
}

static int n_defer, exact; /* of the recorded runs */

struct sums {
    uint64_t n_preempt, n_cancel, n_row, n_draft;
};

/* One recorded run, into buf. */
static void record(sl_model *m, sl_grammar *g, const char *draft, uint64_t seed, struct sums *sum)
{
    uint64_t rng = seed, some = 0;
    sl_model_info mi;
    sl_stats s;
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 1 + pick(&rng, 2),
                        .n_ctx = 192,
                        .n_seq_max = 2 + pick(&rng, 6),
                        .n_chunk = 8 + pick(&rng, 60),
                        .kv_tokens = 192 + pick(&rng, 300),
                        .draft = draft,
                        .draft_always = 1,
                        .n_defer = n_defer,
                        .exact = exact,
                        .on_record = keep};
    sl_model_info_get(m, &mi);
    n_buf = 0;
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    if (pick(&rng, 2)) ASSERT_OK(sl_warm(e, &err));
    for (int i = 0; i < 10; i++) {
        uint64_t id = submit(e, g, mi.n_vocab, &rng);
        if (pick(&rng, 3) == 0) some = id;
        for (int k = pick(&rng, 6); k > 0; k--)
            ASSERT_OK(sl_step(e, &err));
        if (pick(&rng, 4) == 0) sl_cancel(e, some);
    }
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    ASSERT_OK(sl_score(e, ids, 10, 2, no_rows, NULL, &err));
    sl_stats_get(e, &s);
    sum->n_preempt += s.n_preempt;
    sum->n_cancel += s.n_finish[SL_FINISH_CANCELLED];
    sum->n_draft += s.n_draft[0];
    sl_engine_close(e);
}

static sl_status replay(sl_model *m, int n_thread, sl_replay_info *out)
{
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = n_thread};
    ASSERT_OK(sl_record_opts(buf, n_buf, &o, &err));
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    sl_status st = sl_replay(e, buf, n_buf, out, &err);
    sl_engine_close(e);
    return st;
}

static void runs_of(int n_run, const char *name, const char *draft, uint64_t seed,
                    struct sums *sum)
{
    sl_model *m = NULL;
    sl_grammar *g = NULL;
    sl_replay_info info;
    open_model(name, &m);
    ASSERT_OK(sl_grammar_compile(m, SL_GRAMMAR_REGEX, "[ -~]{0,30}", 11, &g, &err));
    for (int i = 0; i < n_run; i++) {
        record(m, g, draft, seed + (uint64_t)i, sum);
        for (int n_thread = 1; n_thread <= 2; n_thread++) {
            ASSERT_OK(replay(m, n_thread, &info));
            assert_true(info.n_step > 20 && info.n_row > 20);
            if (info.n_differ)
                fail_msg("%s, run %d, %d threads: %llu results differ, the first in step %llu",
                         name, i, n_thread, (unsigned long long)info.n_differ,
                         (unsigned long long)info.first_step);
            sum->n_row += info.n_row;
        }
    }
    sl_grammar_unref(g);
    sl_model_close(m);
}

static void runs(const char *name, const char *draft, uint64_t seed, struct sums *sum)
{
    runs_of(N_RUN, name, draft, seed, sum);
}

TEST(engine_recorded_runs_replay_to_the_same_bits)
{
    struct sums sum = {0};
    runs("llama3.gguf", "ngram", 1, &sum);
    runs("deepseek_v3.gguf", NULL, 100, &sum);
    runs("gpt_oss", NULL, 200, &sum);
    assert_true(sum.n_preempt > 10 && sum.n_cancel > 10 && sum.n_row > 10000);
}

/* Copies of states are part of a step, and which of its tokens are drafts. */
TEST(engine_recorded_states_replay_to_the_same_bits)
{
    struct sums sum = {0};
    runs("qwen3_5_moe.gguf", NULL, 500, &sum);
    runs("qwen3_5", "ngram", 500, &sum);
    assert_true(sum.n_preempt > 2 && sum.n_cancel > 2 && sum.n_row > 4000 && sum.n_draft > 100);
}

TEST(engine_recorded_late_experts_replay_to_the_same_bits)
{
    struct sums sum = {0};
    sl_model *m = NULL;
    sl_engine *e = NULL;
    sl_replay_info info;
    sl_engine_opts o = {.n_thread = 1};
    n_defer = 1;
    runs("qwen3_moe.gguf", "ngram", 400, &sum);
    n_defer = 0;
    ASSERT_OK(sl_record_opts(buf, n_buf, &o, &err));
    assert_int_equal(o.n_defer, 1);
    o.n_defer = 2;
    open_model("qwen3_moe.gguf", &m);
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    assert_int_equal(sl_replay(e, buf, n_buf, &info, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "number of experts that come late is 1"));
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_recorded_exact_steps_are_replayed_so)
{
    struct sums sum = {0};
    sl_model *m = NULL;
    sl_engine *e = NULL;
    sl_replay_info info;
    sl_engine_opts o = {.n_thread = 1};
    exact = 1;
    open_model("deepseek_v3.gguf", &m);
    record(m, NULL, NULL, 500, &sum);
    exact = 0;
    ASSERT_OK(replay(m, 2, &info));
    assert_true(info.n_row > 20 && info.n_differ == 0);
    ASSERT_OK(sl_record_opts(buf, n_buf, &o, &err));
    assert_int_equal(o.exact, 1);
    o.exact = 0;
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    assert_int_equal(sl_replay(e, buf, n_buf, &info, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "form for all devices (exact) is 1"));
    sl_engine_close(e);
    sl_model_close(m);
}

/* The passes of an MTP layer are steps of the recording, too. */
TEST(engine_recorded_mtp_passes_replay_to_the_same_bits)
{
    struct sums sum = {0};
    runs_of(N_RUN / 2, "demo", "mtp", 300, &sum);
    assert_true(sum.n_draft > 50);
    sum = (struct sums){0};
    runs_of(N_RUN / 2, "qwen3_next", "mtp", 600, &sum); /* beside copies of states */
    assert_true(sum.n_draft > 50);
}

/* Change byte at of the record that it is in, and mend the record's checksum. */
static void spoil(size_t rec, size_t at, uint8_t x)
{
    uint32_t n;
    memcpy(&n, buf + rec + 4, sizeof n);
    buf[rec + at] ^= x;
    uint64_t h = hash_bytes(buf + rec, 8 + n, 0);
    memcpy(buf + rec + 8 + n, &h, sizeof h);
}

static size_t next_record(size_t rec)
{
    uint32_t n;
    memcpy(&n, buf + rec + 4, sizeof n);
    return rec + 8 + n + 8;
}

TEST(engine_replay_names_what_differs)
{
    sl_model *m = NULL, *other = NULL;
    sl_replay_info info;
    struct sums sum = {0};
    sl_engine *e = NULL;
    open_model("llama3.gguf", &m);
    open_model("qwen3.gguf", &other);
    record(m, NULL, NULL, 5, &sum);
    assert_int_equal(replay(other, 1, &info), SL_REQUEST);
    assert_non_null(strstr(err.text, "another model"));
    sl_engine_opts o = {.n_thread = 1};
    ASSERT_OK(sl_record_opts(buf, n_buf, &o, &err));
    o.acts = o.acts == SL_ACTS_F32 ? SL_ACTS_INT8 : SL_ACTS_F32;
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    assert_int_equal(sl_replay(e, buf, n_buf, &info, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "acts"));
    sl_engine_close(e);
    size_t step = RECORD_HEAD, result = next_record(step);
    spoil(result, 16, 1); /* the first row's hash */
    ASSERT_OK(replay(m, 1, &info));
    assert_int_equal(info.n_differ, 1);
    assert_int_equal(info.first_step, 1);
    assert_int_equal(info.first_row, 0);
    spoil(step, 8 + 3, 0x40); /* its pass */
    assert_int_equal(replay(m, 1, &info), SL_FORMAT);
    assert_non_null(strstr(err.text, "byte 140: pass"));
    spoil(step, 8 + 3, 0x40);
    buf[8] = 1;
    assert_int_equal(sl_record_opts(buf, n_buf, &o, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "version 1:"));
    sl_model_close(other);
    sl_model_close(m);
}

/* Where the model is not packed, a wide head of an MTP layer has 4 bits. */
TEST(engine_replay_tells_a_packed_mtp_layer_from_its_source)
{
    static const char *const says[] = {"MTP layer is not of a packed file, this engine's is",
                                       "MTP layer is of a packed file, this engine's is not"};
    const char *device = getenv("SL_DEVICE");
    char path[64];
    sl_pack_info pack;
    sl_replay_info info;
    struct sums sum = {0};
    sl_model *m[2];
    if (device && strcmp(device, "cpu") != 0) skip(); /* packed files are in the CPU's layout */
    snprintf(path, sizeof path, "record_test_%ld.packed", (long)getpid());
    ASSERT_OK(sl_pack(DEMO, path, NULL, &pack, &err));
    open_model("demo", &m[0]);
    ASSERT_OK(sl_model_open(path, NULL, &m[1], &err));
    for (int i = 0; i < 2; i++) {
        record(m[i], NULL, "mtp", 11, &sum);
        ASSERT_OK(replay(m[i], 1, &info));
        assert_int_equal(info.n_differ, 0);
        assert_int_equal(replay(m[1 - i], 1, &info), SL_REQUEST);
        if (!strstr(err.text, says[i])) fail_msg("%s", err.text);
        record(m[i], NULL, NULL, 11, &sum); /* without the layer they are the same */
        ASSERT_OK(replay(m[1 - i], 1, &info));
        assert_int_equal(info.n_differ, 0);
    }
    sl_model_close(m[1]);
    sl_model_close(m[0]);
    remove(path);
}

/* Cut at any byte, or with any byte changed: an error that names a byte, or, where the cut is
 * between a step and its result or after a result, the steps before it. */
TEST(engine_replay_refuses_damaged_recordings)
{
    sl_model *m = NULL;
    sl_engine *e = NULL;
    sl_replay_info info;
    struct sums sum = {0};
    open_model("llama3.gguf", &m);
    record(m, NULL, NULL, 7, &sum);
    sl_engine_opts o = {.n_thread = 1};
    ASSERT_OK(sl_record_opts(buf, n_buf, &o, &err));
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    size_t end = RECORD_HEAD, n_whole = 0, n_bad = 0;
    for (int i = 0; i < 3; i++)
        end = next_record(end);
    for (size_t n = 0; n <= end; n++) {
        sl_status st = sl_replay(e, buf, n, &info, &err);
        n_whole += st == SL_OK;
        if (st) assert_int_equal(st, SL_FORMAT);
        if (st) assert_non_null(strstr(err.text, "byte "));
    }
    assert_int_equal(n_whole, 4); /* after the header, a step, its result, the next step */
    for (size_t i = 0; i < end; i++) {
        buf[i] ^= 0x10;
        sl_status st = sl_replay(e, buf, end, &info, &err);
        if (i < 8 || i >= 12) assert_int_equal(st, SL_FORMAT);
        n_bad += st != SL_OK;
        buf[i] ^= 0x10;
    }
    assert_int_equal(n_bad, end);
    sl_engine_close(e);
    sl_model_close(m);
}
