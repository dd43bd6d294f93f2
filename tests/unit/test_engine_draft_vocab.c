/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses of the MTP layer: those that it makes of the sequence alone, and among which ids. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/argmax.h"
#include "engine_drafts.h"
#include "model/model_internal.h"
#include "mtp_run.h"

TEST(engine_refuses_a_vocabulary_for_drafts_that_it_can_not_use)
{
    static const struct {
        const char *model, *draft;
        int n;
        const char *text;
    } bad[] = {{DEMO, "mtp", -1, "-1: from 1 to the vocabulary's"},
               {DEMO, "auto", 1 << 20, "1048576: from 1 to the vocabulary's"},
               {DEMO, "ngram", 64, "no MTP layer makes drafts (draft: ngram)"},
               {DEMO, NULL, 64, "no MTP layer makes drafts (draft: off)"},
               {NULL, "auto", 64, "(draft: auto; the model has none)"}};
    sl_model *m;
    sl_engine *e;
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        sl_engine_opts o = {.draft = bad[i].draft, .draft_vocab = bad[i].n};
        const char *path = bad[i].model ? bad[i].model : tiny("llama3");
        assert_int_equal(open_opts(path, &o, &m, &e), SL_REQUEST);
        if (strncmp(err.text, "draft_vocab: ", 13) != 0 || !strstr(err.text, bad[i].text))
            fail_msg("%d: %s", i, err.text);
    }
}

/* What the layer, with a head in 4 bits where small, says of ids [n + 1] alone: draft[i] guesses
 * ids[i + 2], among those that are in; NULL: among all, or where n_first is not 0 the first. */
static void drafts_alone(const int32_t *ids, int n, bool small, int n_first, const bool *in,
                         int32_t *draft)
{
    float *logits = NULL;
    int n_vocab = 0;
    struct mtp_text t = {ids, n, 5, false, small};
    ASSERT_OK(mtp_logits(DEMO, &t, &logits, &n_vocab, &err));
    for (int i = 0; i < n; i++) {
        float *row = logits + (int64_t)i * n_vocab;
        for (int k = 0; in && k < n_vocab; k++)
            if (!in[k]) row[k] = -INFINITY;
        draft[i] = argmax_f32(row, n_first ? n_first : n_vocab);
    }
    mem_free(logits);
}

/* Answers of an engine whose layer guesses among the first n_first ids, or list[n_first]; how many
 * it guessed. */
static int drafts_among(const char *path, const char *layout, int n_first, const int32_t *list)
{
    static bool in[8192];
    static const char *const text[] = {"Once upon a time there was", "The capital of France is",
                                       "1 2 3 4 5 6"};
    sl_model *m;
    sl_engine *e;
    int n_all = 0;
    sl_engine_opts o = {.draft = "mtp", .draft_max = 1, .draft_vocab = n_first, .layout = layout};
    o.draft_vocab_ids = list;
    if (layout) o.device = "cpu";
    ASSERT_OK(open_opts(path, &o, &m, &e));
    memset(in, 0, sizeof in);
    for (int i = 0; list && i < e->opts.draft_vocab; i++)
        in[e->mtp.ids[i]] = true;
    for (int i = 0; list && i < n_first; i++)
        assert_true(in[list[i]]);
    for (int i = 0; i < BASE_COUNT_OF(text); i++) {
        int32_t *prompt = NULL, ids[MTP_MAX_TOK + 1], draft[MTP_MAX_TOK];
        int n_prompt = 0, n_draft = 0, n_right = 0;
        struct answer a;
        ASSERT_OK(sl_tokenize(m, text[i], strlen(text[i]), SL_TOK_BOS, &prompt, &n_prompt, &err));
        sl_request q = {.ids = prompt, .n_ids = n_prompt, .max_tokens = 40, .ignore_eos = 1};
        run(e, &q, &a);
        memcpy(ids, prompt, (size_t)n_prompt * sizeof *ids);
        memcpy(ids + n_prompt, a.id, (size_t)a.n * sizeof *ids);
        int n = n_prompt + a.n;
        assert_in_range(n, 20, MTP_MAX_TOK);
        drafts_alone(ids, n - 1, e->mtp.small, list ? 0 : n_first, list ? in : NULL, draft);
        for (int known = n_prompt + 1; known < n - 1;) { /* the last token is never a draft */
            bool right = draft[known - 2] == ids[known];
            n_draft++;
            n_right += right;
            known += 1 + right;
        }
        assert_int_equal(a.last.n_draft, n_draft);
        assert_int_equal(a.last.n_right, n_right);
        n_all += n_right;
        sl_free(prompt);
    }
    sl_engine_close(e);
    sl_model_close(m);
    return n_all;
}

static int drafts_of_the_layer(const char *path, const char *layout, int n_first)
{
    return drafts_among(path, layout, n_first, NULL);
}

/* Half of the ids, all over the vocabulary; on ranks that share the rows, too. */
TEST(engine_drafts_of_the_mtp_layer_are_among_the_ids_of_a_list)
{
    static int32_t list[1500];
    for (int i = 0; i < 1500; i++)
        list[i] = (1499 - i) * 2 + (i % 7 == 0);
    int some = drafts_among(DEMO, NULL, 1500, list);
    assert_true(some > 10 && some < drafts_of_the_layer(DEMO, NULL, 0));
    assert_int_equal(drafts_among(DEMO, "tp=2", 1500, list), some);
}

/* The first ids as a list are the first ids; what is drawn of the layer's logits, too. */
TEST(engine_guesses_among_a_list_of_the_first_ids_as_among_the_first)
{
    static int32_t list[512];
    struct answer a[2];
    int32_t *prompt = NULL;
    int n_prompt = 0;
    for (int i = 0; i < 512; i++)
        list[i] = i;
    for (int i = 0; i < 2; i++) {
        sl_model *m;
        sl_engine *e;
        sl_engine_opts o = {.draft = "mtp", .draft_max = 2, .draft_vocab = 512};
        if (i) o.draft_vocab_ids = list;
        ASSERT_OK(open_opts(DEMO, &o, &m, &e));
        assert_true((e->mtp.ids != NULL) == (i == 1) && e->opts.draft_vocab >= 512);
        int n_end = 0; /* of answers, which are among them */
        for (int k = 0; i && k < e->opts.draft_vocab; k++)
            for (int j = 0; j < m->n_eog; j++)
                n_end += e->mtp.ids[k] == m->eog[j];
        assert_int_equal(n_end, i ? m->n_eog : 0);
        ASSERT_OK(sl_tokenize(m, "Once upon", 9, SL_TOK_BOS, &prompt, &n_prompt, &err));
        sl_request q = {.ids = prompt, .n_ids = n_prompt, .max_tokens = 150, .ignore_eos = 1};
        q.sampling = (sl_sampling){.temperature = 0.9f, .seed = 3};
        run(e, &q, &a[i]);
        sl_free(prompt);
        sl_engine_close(e);
        sl_model_close(m);
    }
    assert_memory_equal(a[0].id, a[1].id, sizeof a[0].id);
    assert_true(a[0].last.n_right > 20 && a[1].last.n_right >= a[0].last.n_right - 5);
}

TEST(engine_refuses_lists_of_ids_that_it_can_not_use)
{
    static const int32_t high[2] = {5, 1 << 20};
    sl_model *m;
    sl_engine *e;
    sl_engine_opts o = {.draft = "mtp", .draft_vocab_ids = high};
    assert_int_equal(open_opts(DEMO, &o, &m, &e), SL_REQUEST);
    assert_non_null(strstr(err.text, "how many"));
    o.draft_vocab = 2;
    assert_int_equal(open_opts(DEMO, &o, &m, &e), SL_REQUEST);
    assert_non_null(strstr(err.text, "draft_vocab_ids[1]: 1048576"));
}

TEST(engine_drafts_of_the_mtp_layer_are_those_of_the_sequence_alone)
{
    int all = drafts_of_the_layer(DEMO, NULL, 0), some = drafts_of_the_layer(DEMO, NULL, 512);
    assert_true(all > 20 && some > 10 && some < all);
    assert_int_equal(drafts_of_the_layer(DEMO, "tp=2", 512), some);
}

TEST(engine_has_a_small_copy_of_a_wide_head_for_drafts)
{
    sl_model *m;
    sl_engine *e;
    ASSERT_OK(open_opts(DEMO, &(sl_engine_opts){.draft = "mtp"}, &m, &e));
    const dev_mat *own = e->net->head, *small = e->net->mtp[0].head;
    assert_true(e->mtp.small && small != own && dev_mat_rows(small) == dev_mat_rows(own));
    assert_int_equal(dev_mat_bytes(own) * 9, dev_mat_bytes(small) * 32); /* 16 bits, and 4.5 */
    assert_int_equal(model_small_head_bytes(&m->cfg, m->io), dev_mat_bytes(small));
    sl_engine_close(e);
    sl_model_close(m);
    ASSERT_OK(open_opts(DEMO, &(sl_engine_opts){.draft = NULL}, &m, &e));
    assert_false(e->mtp.small);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_drafts_of_a_packed_mtp_layer_are_the_same)
{
    const char *device = getenv("SL_DEVICE");
    char path[64];
    sl_pack_info info;
    if (device && strcmp(device, "cpu") != 0) skip(); /* packed files are in the CPU's layout */
    snprintf(path, sizeof path, "draft_test_%ld.packed", (long)getpid());
    ASSERT_OK(sl_pack(DEMO, path, NULL, &info, &err));
    int all = drafts_of_the_layer(path, NULL, 0), some = drafts_of_the_layer(path, NULL, 512);
    assert_true(all > 20 && some > 10 && some < all);
    static const int32_t ids[2] = {5, 6};
    sl_model *m;
    sl_engine *e;
    sl_engine_opts o = {.draft = "mtp", .draft_vocab = 2, .draft_vocab_ids = ids};
    assert_int_equal(open_opts(path, &o, &m, &e), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "is a packed file"));
    remove(path);
}
