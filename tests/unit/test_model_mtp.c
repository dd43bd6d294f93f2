/* SPDX-License-Identifier: Apache-2.0 */
/* The MTP layer against the independent forward of tests/oracle/mtp_ref.py: logits within 1e-4 of their deviation, argmax equal everywhere. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "test.h"

#define BLK 16
#define MAX_TOK 64

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
    for (const struct json *v = a->child; v; v = v->next) out[n++] = (int32_t)v->i;
    return n;
}

static int best(const float *z, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (z[i] > z[at]) at = i;
    return at;
}

/* One sequence through the main model and the MTP layer; chunk: tokens per step. */
static void run(const char *file, const struct json *seq, const float *blob, int n_vocab, double std, int chunk)
{
    sl_err err;
    io_model *io = NULL;
    dev *d = NULL;
    model *m = NULL;
    dev_kv *kv = NULL;
    char path[512];
    int32_t ids[MAX_TOK], want[MAX_TOK], rows[MAX_TOK], pos[MAX_TOK], blk[MAX_TOK / BLK], all[MAX_TOK];
    int n = ints(text_json_get(seq, "ids"), ids) - 1; /* the last token is only somebody's next */
    int n_row = ints(text_json_get(seq, "rows"), rows);
    assert_int_equal(ints(text_json_get(seq, "argmax"), want), n);
    const float *ref = blob + text_json_get(seq, "offset")->i;
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, file);
    ASSERT_OK(io_open(path, false, &io, &err));
    ASSERT_OK(dev_open("cpu", &(struct dev_opts){.n_thread = 2, .acts = DEV_ACTS_F32}, &d, &err));
    struct model_opts o = {.n_tok_max = MAX_TOK, .n_seq_max = 1, .n_ctx = MAX_TOK, .blk_tok = BLK,
                           .n_logit_max = MAX_TOK, .kv = DEV_KV_F32};
    ASSERT_OK(model_open(io, d, &o, &m, &err));
    assert_int_equal(model_n_mtp(m), 1);
    struct dev_kv_shape shape = model_kv_shape(model_config(m), DEV_KV_F32, MAX_TOK / BLK, BLK);
    ASSERT_OK(dev_kv_open(d, &shape, &kv, &err));
    for (int i = 0; i < MAX_TOK / BLK; i++) blk[i] = MAX_TOK / BLK - 1 - i;
    for (int i = 0; i < MAX_TOK; i++) all[i] = i;
    double worst = 0;
    for (int t0 = 0; t0 < n; t0 += chunk) {
        int k = t0 + chunk < n ? chunk : n - t0;
        int32_t seq_tok0[2] = {0, k}, n_prompt = n;
        for (int i = 0; i < k; i++) pos[i] = t0 + i;
        struct model_batch b = {.n_tok = k, .n_seq = 1, .ids = ids + t0, .pos = pos, .seq_tok0 = seq_tok0, .blk = blk,
                                .ld_blk = MAX_TOK / BLK, .n_prompt = &n_prompt};
        const float *logits, *hidden;
        model_step(m, kv, &b, &logits, &hidden);
        b.ids = ids + t0 + 1;
        b.n_logit = k;
        b.logit_tok = all;
        model_mtp(m, kv, 0, &b, hidden, &logits, NULL);
        for (int i = 0; i < k; i++) {
            const float *z = logits + (int64_t)i * n_vocab;
            if (want[t0 + i] >= 0) assert_int_equal(best(z, n_vocab), want[t0 + i]);
            for (int r = 0; r < n_row; r++)
                for (int j = 0; rows[r] == t0 + i && j < n_vocab; j++)
                    worst = fmax(worst, fabs((double)z[j] - ref[(int64_t)r * n_vocab + j]));
        }
    }
    if (!(worst <= 1e-4 * std)) fail_msg("%s, chunks of %d: %g of the deviation", file, chunk, worst / std);
    model_close(m);
    dev_close(d);
    io_close(io);
}

TEST(model_mtp_equals_the_written_out_forward)
{
    static const char *const files[] = {"deepseek_v3", "deepseek_v3.gguf"};
    sl_err err;
    struct arena a;
    const struct json *ref = NULL;
    long n_text = 0, n_blob = 0;
    char *text = slurp("ref/deepseek_v3.json", &n_text), *blob = slurp("ref/deepseek_v3.f32", &n_blob);
    if (!text || !blob) skip(); /* the checkpoints are unpacked by CTest's fixture */
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&a, "ref", text, (size_t)n_text, &ref, &err));
    int n_vocab = (int)text_json_get(ref, "n_vocab")->i, n_seq = 0;
    for (const struct json *s = text_json_get(ref, "mtp")->child; s; s = s->next, n_seq++)
        for (int f = 0; f < 2; f++) {
            run(files[f], s, (const float *)(void *)blob, n_vocab, text_json_get(ref, "std")->f, MAX_TOK);
            run(files[f], s, (const float *)(void *)blob, n_vocab, text_json_get(ref, "std")->f, 7);
        }
    assert_true(n_seq >= 2);
    mem_arena_fini(&a);
    free(text);
    free(blob);
}
