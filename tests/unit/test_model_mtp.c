/* SPDX-License-Identifier: Apache-2.0 */
/* The MTP layer against the independent forward of tests/oracle/mtp_ref.py: logits within 1e-4 of
 * their deviation, argmax equal everywhere. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mtp_run.h"
#include "test.h"

static char *slurp(const char *name, long *n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = ftell(f);
    rewind(f);
    char *p = malloc((size_t)*n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)*n, f), *n);
    p[*n] = 0;
    fclose(f);
    return p;
}

static int ints(const struct json *a, int32_t *out)
{
    int n = 0;
    for (const struct json *v = a->child; v; v = v->next)
        out[n++] = (int32_t)v->i;
    return n;
}

static int best(const float *z, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (z[i] > z[at]) at = i;
    return at;
}

/* One sequence; chunk: tokens per step. */
static void run(const char *file, const struct json *seq, const float *blob, int want_vocab,
                double std, int chunk)
{
    sl_err err;
    char path[512];
    float *all = NULL;
    int32_t ids[MTP_MAX_TOK + 1], want[MTP_MAX_TOK], rows[MTP_MAX_TOK];
    int n = ints(text_json_get(seq, "ids"), ids) - 1; /* the last token is only somebody's next */
    int n_row = ints(text_json_get(seq, "rows"), rows), n_vocab = 0;
    assert_int_equal(ints(text_json_get(seq, "argmax"), want), n);
    const float *ref = blob + text_json_get(seq, "offset")->i;
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, file);
    struct mtp_text t = {ids, n, chunk, false, false};
    ASSERT_OK(mtp_logits(path, &t, &all, &n_vocab, &err));
    assert_int_equal(n_vocab, want_vocab);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const float *z = all + (int64_t)i * n_vocab;
        if (want[i] >= 0) assert_int_equal(best(z, n_vocab), want[i]);
        for (int r = 0; r < n_row; r++)
            for (int j = 0; rows[r] == i && j < n_vocab; j++)
                worst = fmax(worst, fabs((double)z[j] - ref[(int64_t)r * n_vocab + j]));
    }
    if (!(worst <= 1e-4 * std))
        fail_msg("%s, chunks of %d: %g of the deviation", file, chunk, worst / std);
    mem_free(all);
}

/* Entries that were made alone are those of the whole layer. */
static void entries_alone(const char *file, const struct json *seq)
{
    sl_err err;
    char path[512];
    float *all[2];
    int32_t ids[MTP_MAX_TOK + 1];
    int n = ints(text_json_get(seq, "ids"), ids) - 1, n_vocab = 0, n_same = 0;
    struct mtp_text t = {ids, n, 7, false, false};
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, file);
    for (int i = 0; i < 2; i++) {
        t.entries = i == 1;
        ASSERT_OK(mtp_logits(path, &t, &all[i], &n_vocab, &err));
    }
    for (int i = 0; i < n; i++) {
        int64_t at = (int64_t)i * n_vocab;
        if (i % t.chunk != t.chunk - 1 && i != n - 1) continue;
        assert_memory_equal(all[0] + at, all[1] + at, sizeof(float) * (size_t)n_vocab);
        n_same++;
    }
    assert_true(n_same >= 2);
    mem_free(all[0]);
    mem_free(all[1]);
}

/* A head in 4 bits: of its rows rounded so, and of its places most have the same best token. */
TEST(model_mtp_heads_of_4_bits_guess_as_the_file_s_do)
{
    static const char demo[] = TEST_DATA "/../../models/demo/demo.gguf";
    sl_err err;
    float *all[2];
    int32_t ids[MTP_MAX_TOK + 1];
    int n = MTP_MAX_TOK, n_vocab = 0, n_alike = 0;
    double off = 0, size = 0;
    for (int i = 0; i <= n; i++)
        ids[i] = 300 + i * 131 % 3000;
    for (int i = 0; i < 2; i++) {
        struct mtp_text t = {ids, n, 16, false, i == 1};
        ASSERT_OK(mtp_logits(demo, &t, &all[i], &n_vocab, &err));
    }
    for (int i = 0; i < n; i++) {
        const float *a = all[0] + (int64_t)i * n_vocab, *b = all[1] + (int64_t)i * n_vocab;
        n_alike += best(a, n_vocab) == best(b, n_vocab);
        for (int k = 0; k < n_vocab; k++) {
            off += (a[k] - b[k]) * (a[k] - b[k]);
            size += a[k] * a[k];
        }
    }
    assert_true(n_alike > n * 3 / 4);
    assert_true(off > 1e-6 * size && off < 0.03 * size); /* rounded, by a sixteenth at most */
    mem_free(all[0]);
    mem_free(all[1]);
}

/* name: of the folder, the GGUF file, unless there is none, and the reference. */
static void equals_reference(const char *name)
{
    char gguf[64], path[2][64];
    snprintf(gguf, sizeof gguf, "%s.gguf", name);
    snprintf(path[0], sizeof path[0], "ref/%s.json", name);
    snprintf(path[1], sizeof path[1], "ref/%s.f32", name);
    const char *const files[] = {name, gguf};
    sl_err err;
    struct arena a;
    const struct json *ref = NULL;
    long n_text = 0, n_blob = 0;
    char *text = slurp(path[0], &n_text), *blob = slurp(path[1], &n_blob);
    if (!text || !blob) skip(); /* the checkpoints are unpacked by CTest's fixture */
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&a, "ref", text, (size_t)n_text, &ref, &err));
    int n_vocab = (int)text_json_get(ref, "n_vocab")->i, n_seq = 0;
    for (const struct json *s = text_json_get(ref, "mtp")->child; s; s = s->next, n_seq++)
        for (int f = 0; f < 2; f++) {
            run(files[f], s, (const float *)(void *)blob, n_vocab, text_json_get(ref, "std")->f,
                MTP_MAX_TOK);
            run(files[f], s, (const float *)(void *)blob, n_vocab, text_json_get(ref, "std")->f, 7);
            entries_alone(files[f], s);
        }
    assert_true(n_seq >= 2);
    mem_arena_fini(&a);
    free(text);
    free(blob);
}

TEST(model_mtp_equals_the_written_out_forward)
{
    equals_reference("deepseek_v3");
}

TEST(model_mtp_with_an_indexer_equals_the_written_out_forward)
{
    equals_reference("deepseek_v32");
}

/* Pools that are chosen; one stream, where the other layers have several. */
TEST(model_mtp_of_glm5_next_equals_the_written_out_forward)
{
    equals_reference("glm5_next");
}

TEST(model_mtp_of_glm_equals_the_written_out_forward)
{
    equals_reference("glm4_moe");
}

/* Names of its own in folders; weights of norms less 1; a gate of attention; experts and a shared
 * one with a gate. The configuration says nothing of the layer. */
TEST(model_mtp_of_qwen3_next_equals_the_written_out_forward)
{
    equals_reference("qwen3_next");
}

/* Experts of the layer in one tensor. */
TEST(model_mtp_of_qwen3_5_moe_equals_the_written_out_forward)
{
    equals_reference("qwen3_5_moe");
}

/* A dense layer; the head is the embedding. */
TEST(model_mtp_of_qwen3_5_equals_the_written_out_forward)
{
    equals_reference("qwen3_5");
}

/* All streams go in and on; a head of streams of its own. */
TEST(model_mtp_of_deepseek_v4_equals_the_written_out_forward)
{
    equals_reference("deepseek_v4_mtp");
}
