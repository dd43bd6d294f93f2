/* SPDX-License-Identifier: Apache-2.0 */
/* How a model's files want it to be sampled: obeyed, or refused by name. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sluice.h"

#include "engine_tiny.h"

static char dir[64];

static const char *path_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* A tiny folder with this generation_config.json. */
static sl_model *open_with(const char *generation)
{
    static const char *const name[] = {"config.json", "model.safetensors", "tokenizer.json",
                                       "tokenizer_config.json"};
    sl_model *m = NULL;
    sl_err err = {0};
    snprintf(dir, sizeof dir, "/tmp/sluice-test-XXXXXX");
    const char *from = tiny("llama2");
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 4; i++) {
        char source[1200];
        snprintf(source, sizeof source, "%s/%s", from, name[i]);
        assert_int_equal(symlink(source, path_of(name[i])), 0);
    }
    ASSERT_OK(
        os_write_file(path_of("generation_config.json"), generation, strlen(generation), &err));
    ASSERT_OK(sl_model_open(dir, NULL, &m, &err));
    for (int i = 0; i < 4; i++)
        unlink(path_of(name[i]));
    unlink(path_of("generation_config.json"));
    rmdir(dir);
    return m;
}

static int ask(const char *generation, sl_sampling *s, int *max_tokens)
{
    sl_model *m = open_with(generation);
    *s = (sl_sampling){.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    *max_tokens = -1;
    int n = sl_model_sampling(m, s, max_tokens);
    sl_model_close(m);
    return n;
}

TEST(engine_recommended_sampling_is_that_of_the_files)
{
    sl_sampling s;
    int max = 0;
    assert_int_equal(ask("{\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,\"min_p\":0.05,"
                         "\"repetition_penalty\":1.05,\"presence_penalty\":1.5,"
                         "\"frequency_penalty\":0.5,\"max_new_tokens\":77,\"do_sample\":true}",
                         &s, &max),
                     8);
    assert_true(s.temperature == 0.6f && s.top_k == 20 && s.top_p == 0.95f && s.min_p == 0.05f);
    assert_true(s.repeat_penalty == 1.05f && s.presence_penalty == 1.5f);
    assert_true(s.frequency_penalty == 0.5f && max == 77);
    assert_int_equal(ask("{\"do_sample\":false,\"temperature\":0.7,\"top_p\":0.9}", &s, &max), 2);
    assert_true(s.temperature == 0 && s.top_p == 0.9f && max == 0); /* the best token */
    assert_int_equal(ask("{\"do_sample\":false}", &s, &max), 1);
    assert_true(s.temperature == 0);
    assert_int_equal(ask("{}", &s, &max), 0);
    assert_true(s.temperature == 1 && s.top_k == 0);
}

/* What changes answers and is not done here. */
static const char *const refused[] = {
    "\"no_repeat_ngram_size\":3",
    "\"encoder_no_repeat_ngram_size\":2",
    "\"bad_words_ids\":[[1],[2,3]]",
    "\"sequence_bias\":{\"[1]\":-3}",
    "\"forced_bos_token_id\":5",
    "\"forced_eos_token_id\":[5]",
    "\"forced_decoder_ids\":[[1,5]]",
    "\"begin_suppress_tokens\":[4]",
    "\"force_words_ids\":[[4]]",
    "\"exponential_decay_length_penalty\":[10,1.1]",
    "\"num_beams\":4",
    "\"num_return_sequences\":2",
    "\"penalty_alpha\":0.6",
    "\"typical_p\":0.9",
    "\"epsilon_cutoff\":0.0003",
    "\"eta_cutoff\":0.0003",
    "\"top_h\":0.4",
    "\"guidance_scale\":1.5",
    "\"diversity_penalty\":0.5",
    "\"min_new_tokens\":5",
    "\"min_length\":10",
    "\"max_time\":5.0",
    "\"stop_strings\":[\"###\"]",
    "\"watermarking_config\":{\"bias\":2}",
    "\"token_healing\":true",
    "\"dola_layers\":\"high\"",
    "\"profiles\":{\"creative\":{\"temperature\":1.5}}",
};

TEST(engine_sampling_that_is_not_done_here_is_refused)
{
    for (int i = 0; i < BASE_COUNT_OF(refused); i++) {
        char text[200];
        sl_sampling s;
        int max = 0;
        snprintf(text, sizeof text, "{\"temperature\":0.5,%s}", refused[i]);
        if (ask(text, &s, &max) != -1) fail_msg("taken: %s", refused[i]);
        assert_true(s.temperature == 1);
    }
}

/* Llama 3, Qwen3, DeepSeek-R1, GLM-4.5, gpt-oss, Baichuan2, Qwen-7B, and all of a configuration
 * that says nothing, as transformers saves it. */
static const char *const published[] = {
    "{\"bos_token_id\":128000,\"do_sample\":true,\"eos_token_id\":[128001,128008],\"temperature\":"
    "0.6,\"max_length\":4096,\"top_p\":0.9,\"transformers_version\":\"4.42.3\"}",
    "{\"bos_token_id\":1,\"do_sample\":true,\"eos_token_id\":[2,3],\"pad_token_id\":1,"
    "\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,\"transformers_version\":\"4.51.0\"}",
    "{\"_from_model_config\":true,\"bos_token_id\":0,\"eos_token_id\":1,\"do_sample\":true,"
    "\"temperature\":0.6,\"top_p\":0.95,\"transformers_version\":\"4.39.3\"}",
    "{\"pad_token_id\":0,\"user_token_id\":195,\"assistant_token_id\":196,\"max_new_tokens\":2048,"
    "\"temperature\":0.3,\"top_k\":5,\"top_p\":0.85,\"repetition_penalty\":1.05,\"do_sample\":"
    "true}",
    "{\"chat_format\":\"chatml\",\"eos_token_id\":3,\"max_new_tokens\":512,\"max_window_size\":"
    "6144,"
    "\"pad_token_id\":3,\"do_sample\":true,\"top_k\":0,\"top_p\":0.8}",
    "{\"max_length\":20,\"min_length\":0,\"do_sample\":true,\"early_stopping\":false,\"num_beams\":"
    "1,\"num_beam_groups\":1,\"diversity_penalty\":0.0,\"temperature\":1.0,\"top_k\":50,\"top_p\":"
    "1.0,\"typical_p\":1.0,\"repetition_penalty\":1.0,\"length_penalty\":1.0,"
    "\"no_repeat_ngram_size\":0,\"encoder_no_repeat_ngram_size\":0,\"bad_words_ids\":null,"
    "\"num_return_sequences\":1,\"output_scores\":false,\"return_dict_in_generate\":false,"
    "\"forced_bos_token_id\":null,\"forced_eos_token_id\":null,\"remove_invalid_values\":false,"
    "\"exponential_decay_length_penalty\":null,\"suppress_tokens\":null,"
    "\"begin_suppress_tokens\":null,\"use_cache\":true,\"cache_implementation\":null,"
    "\"renormalize_logits\":false,\"guidance_scale\":null,\"low_memory\":null,"
    "\"prompt_lookup_num_tokens\":null,\"num_assistant_tokens\":20,\"is_assistant\":false,"
    "\"disable_compile\":false,\"output_logits\":null,\"decoder_start_token_id\":null,"
    "\"encoder_repetition_penalty\":1.0,\"epsilon_cutoff\":0.0,\"eta_cutoff\":0.0,"
    "\"penalty_alpha\":null,\"stop_strings\":null,\"token_healing\":false,"
    "\"trust_remote_code\":true}",
};

TEST(engine_published_generation_configs_are_obeyed)
{
    for (int i = 0; i < BASE_COUNT_OF(published); i++) {
        sl_sampling s;
        int max = 0;
        if (ask(published[i], &s, &max) < 0) fail_msg("refused: %s", published[i]);
    }
}

static void keep(void *user, const sl_event *e)
{
    int32_t *got = user;
    if (e->token >= 0 && got[0] < 0) got[0] = e->token;
}

/* The first token of a greedy answer, and what follows where it may not be drawn. */
TEST(engine_suppressed_tokens_are_never_drawn)
{
    int32_t first[3] = {-1, -1, -1};
    static const int32_t ids[] = {5, 6, 7};
    for (int i = 0; i < 3; i++) {
        char text[80] = "{}";
        sl_engine *e = NULL;
        sl_err err = {0};
        uint64_t id = 0;
        if (i)
            snprintf(text, sizeof text,
                     i == 1 ? "{\"suppress_tokens\":[%d]}" : "{\"bad_words_ids\":[[%d]]}",
                     (int)first[0]);
        sl_model *m = open_with(text);
        ASSERT_OK(sl_engine_open(m, &(sl_engine_opts){.n_thread = 1, .n_ctx = 64}, &e, &err));
        sl_request q = {.ids = ids,
                        .n_ids = 3,
                        .max_tokens = 1,
                        .ignore_eos = true,
                        .on_event = keep,
                        .user = &first[i]};
        ASSERT_OK(sl_submit(e, &q, &id, &err));
        while (sl_pending(e))
            ASSERT_OK(sl_step(e, &err));
        sl_engine_close(e);
        sl_model_close(m);
    }
    assert_true(first[0] >= 0 && first[1] >= 0 && first[1] != first[0]);
    assert_int_equal(first[1], first[2]);
}
