/* SPDX-License-Identifier: Apache-2.0 */
/* What the files beside a vocabulary say about tokens. */
#include <stdlib.h>
#include <string.h>

#include "io_make.h"
#include "test.h"
#include "tok/tok_internal.h"
#include "tok_expect.h"

#define VOCAB "\"a\":0,\"b\":1,\"<\":2,\"|\":3,\"n\":4,\">\":5,\"<s>\":6,\"</s>\":7"
#define FLAGS ",\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"single_word\":false"
#define SPECIAL(id, text) "{\"id\":" #id ",\"content\":\"" text "\",\"special\":true" FLAGS "}"
#define JSON(vocab, added, more)                                                                   \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[]},\"added_tokens\":[" added   \
    "]," more "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"              \
    "\"use_regex\":true}}"
#define USUAL SPECIAL(6, "<s>") "," SPECIAL(7, "</s>")

struct texts {
    const char *tokenizer, *config, *map, *added, *generation;
};

static tok *open_texts(const struct texts *x)
{
    struct tok_files f = {.tokenizer_json = x->tokenizer ? x->tokenizer : JSON(VOCAB, USUAL, "")};
    struct arena a;
    tok *t = NULL;
    sl_err err = {0};
    mem_arena_init(&a, MEM_MISC, 0);
    f.n_tokenizer_json = strlen(f.tokenizer_json);
    f.tokenizer_config = x->config;
    f.n_tokenizer_config = x->config ? strlen(x->config) : 0;
    f.special_tokens_map = x->map;
    f.n_special_tokens_map = x->map ? strlen(x->map) : 0;
    f.added_tokens = x->added;
    f.n_added_tokens = x->added ? strlen(x->added) : 0;
    if (x->generation)
        ASSERT_OK(text_json_parse(&a, "g", x->generation, strlen(x->generation),
                                  &f.generation_config, &err));
    ASSERT_OK(tok_open_files(&f, &t, &err));
    mem_arena_fini(&a);
    return t;
}

TEST(tok_a_token_that_any_file_names_is_one_token)
{
    static const struct texts row[] = {
        {.config = "{\"added_tokens_decoder\":{\"8\":{\"content\":\"<|n|>\",\"special\":true" FLAGS
                   "}}}"},
        {.config = "{\"additional_special_tokens\":[\"<|n|>\"]}"},
        {.config = "{\"additional_special_tokens\":[{\"content\":\"<|n|>\",\"special\":true}]}"},
        {.config = "{\"extra_special_tokens\":{\"image_token\":\"<|n|>\"}}"},
        {.config = "{\"extra_special_tokens\":[\"<|n|>\"]}"},
        {.config = "{\"video_token\":\"<|n|>\"}"},
        {.config = "{\"eos_token\":\"<|n|>\"}"},
        {.config = "{\"pad_token\":{\"content\":\"<|n|>\"}}"},
        {.added = "{\"<|n|>\":8}"},
        {.map = "{\"additional_special_tokens\":[\"<|n|>\"]}"},
        {.map = "{\"mask_token\":{\"content\":\"<|n|>\"}}"},
        {.tokenizer = JSON(VOCAB ",\"<|n|>\":8", USUAL, ""), .config = "{\"eos_token\":\"<|n|>\"}"},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        tok *t = open_texts(&row[i]);
        expect(t, "a<|n|>b", TOK_SPECIAL, "0 8 1");
        expect(t, "a<|n|>b", 0, "0 2 3 4 3 5 1"); /* what a user writes stays text */
        tok_close(t);
    }
}

TEST(tok_files_are_joined_in_the_references_order)
{
    static const struct texts row[] = {
        /* with a decoder in the configuration the two old files do not count */
        {.config = "{\"added_tokens_decoder\":{}}",
         .added = "{\"<|n|>\":8}",
         .map = "{\"pad_token\":\"<|n|>\"}"},
        /* the next free id, whatever a file says */
        {.config = "{\"added_tokens_decoder\":{\"40\":{\"content\":\"<|n|>\"" FLAGS "}}}"},
        /* flags of the decoder go before those of tokenizer.json */
        {.tokenizer = JSON(VOCAB, USUAL "," SPECIAL(8, "<|n|>"), ""),
         .config = "{\"added_tokens_decoder\":{\"8\":{\"content\":\"<|n|>\",\"lstrip\":true}}}"},
        /* special_tokens_map.json goes before the configuration */
        {.config = "{\"eos_token\":\"</s>\"}", .map = "{\"eos_token\":\"<|n|>\"}"},
        {.config =
             "{\"additional_special_tokens\":[\"b\",\"<|n|>\"],\"split_special_tokens\":true}"},
    };
    static const char *const want[] = {"0 0 2 3 4 3 5 1", "0 0 8 1", "0 0 8 1", "0 0 8 1",
                                       "0 0 2 3 4 3 5 1"};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        tok *t = open_texts(&row[i]);
        expect(t, i == 2 ? "aa \t<|n|>b" : "aa<|n|>b", TOK_SPECIAL, want[i]);
        if (i == 3) assert_int_equal(tok_eos(t), 8);
        tok_close(t);
    }
}

TEST(tok_templates_are_told_of_every_named_token)
{
    struct texts x = {.config = "{\"bos_token\":\"<s>\",\"pad_token\":{\"content\":\"<|p|>\"},"
                                "\"image_token\":\"<|i|>\",\"unk_token\":null,"
                                "\"add_prefix_space\":false,\"add_bos_token\":true}",
                      .map = "{\"sep_token\":\"</s>\"}"};
    static const char *const want[][2] = {{"bos_token", "<s>"},
                                          {"sep_token", "</s>"},
                                          {"pad_token", "<|p|>"},
                                          {"image_token", "<|i|>"}};
    struct tok_special s;
    tok *t = open_texts(&x);
    for (int i = 0; i < BASE_COUNT_OF(want); i++) {
        assert_true(tok_special_get(t, i, &s));
        assert_string_equal(s.name, want[i][0]);
        assert_string_equal(s.text, want[i][1]);
        assert_int_equal(s.id, tok_find(t, s.text));
    }
    assert_false(tok_special_get(t, BASE_COUNT_OF(want), &s));
    expect(t, "a", TOK_BOS | TOK_EOS, "6 0");
    tok_close(t);
}

TEST(tok_end_tokens_without_a_text_are_tokens)
{
    struct texts x = {.generation = "{\"eos_token_id\":[7,11]}"};
    tok *t = open_texts(&x);
    int n = 9;
    assert_int_equal(tok_n_vocab(t), 12);
    assert_true(tok_is_eog(t, 7) && tok_is_eog(t, 11));
    assert_non_null(tok_bytes(t, 11, &n)); /* no hole: the model may say it */
    assert_int_equal(n, 0);
    assert_true(tok_is_special(t, 11));
    assert_null(tok_bytes(t, 9, &n));
    tok_close(t);
}

TEST(tok_post_processors_put_tokens_on_both_sides)
{
    struct texts x = {.tokenizer = JSON(VOCAB, USUAL,
                                        "\"post_processor\":{\"type\":\"TemplateProcessing\","
                                        "\"single\":[{\"SpecialToken\":{\"id\":\"</s>\"}},"
                                        "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{}},"
                                        "{\"SpecialToken\":{\"id\":\"</s>\"}}]},")};
    tok *t = open_texts(&x);
    expect(t, "ab", TOK_BOS | TOK_EOS, "7 6 0 1 7");
    expect(t, "", TOK_BOS | TOK_EOS, "7 6 7");
    expect(t, "ab", 0, "0 1");
    assert_true(tok_add_bos(t) && tok_add_eos(t));
    tok_close(t);
}

/* ---- GGUF ---- */
#define KEY_STR(k, v) "s=" k " u32=8 s=" v " "
#define WORDS8(k, a, b, c, d, e, f, g, h)                                                          \
    "s=" k " u32=9 u32=8 u64=8 s=" a " s=" b " s=" c " s=" d " s=" e " s=" f " s=" g " s=" h " "

static sl_status try_gguf(const char *keys, int n_key, tok **t, sl_err *err)
{
    char words[4096];
    io_model *m = NULL;
    snprintf(words, sizeof words, "GGUF u32=3 u64=0 u64=%d %s pad=32", n_key, keys);
    struct make *f = make_file(words);
    sl_status st = io_open_bytes("test.gguf", f->p, f->n, &m, err);
    if (!st) st = tok_open(m, t, err);
    io_close(m);
    free(f);
    return st;
}

static tok *open_gguf(const char *keys, int n_key)
{
    tok *t = NULL;
    sl_err err = {0};
    ASSERT_OK(try_gguf(keys, n_key, &t, &err));
    return t;
}

#define GPT2                                                                                       \
    KEY_STR("general.architecture", "llama")                                                       \
    KEY_STR("tokenizer.ggml.model", "gpt2")                                                        \
    WORDS8("tokenizer.ggml.tokens", "a", "b", "<", "|", ">", "<|im_end|>", "<fim_middle>", "x")    \
    "s=tokenizer.ggml.merges u32=9 u32=8 u64=0 "

TEST(tok_gguf_keys_are_obeyed_or_refused_by_name)
{
    static const char *const bad[][2] = {
        {KEY_STR("tokenizer.ggml.frob", "x"), "tokenizer.ggml.frob is x: this key is not known"},
        {"s=tokenizer.ggml.add_sep_token u32=7 u8=1 ", "ggml.add_sep_token is true"},
        {"s=tokenizer.ggml.normalizer.lowercase u32=7 u8=1 ", "normalizer.lowercase is true"},
        {"s=tokenizer.ggml.precompiled_charsmap u32=9 u32=0 u64=2 u8=1 u8=2 ",
         "precompiled_charsmap is [...]"},
        {"s=tokenizer.ggml.suppress_tokens u32=9 u32=6 u64=1 f32=1 ", "no array of integers"},
    };
    static const char good[] = GPT2
        "s=tokenizer.ggml.add_sep_token u32=7 u8=0 s=tokenizer.ggml.fim_pad_token_id u32=4 "
        "u32=7 " KEY_STR("tokenizer.huggingface.json",
                         "{}") "s=tokenizer.ggml.suppress_tokens u32=9 u32=4 u64=2 u32=1 u32=99 ";
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        char keys[4096];
        tok *t = NULL;
        sl_err err = {0};
        snprintf(keys, sizeof keys, "%s%s", GPT2, bad[i][0]);
        assert_int_not_equal(try_gguf(keys, 5, &t, &err), SL_OK);
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: want %s", err.text, bad[i][1]);
    }
    tok *t = open_gguf(good, 8);
    assert_true(tok_is_eog(t, 7)); /* as llama.cpp has it */
    assert_true(tok_is_banned(t, 1) && !tok_is_banned(t, 0));
    tok_close(t);
}

TEST(tok_gguf_without_a_rule_is_split_by_the_usual_one)
{
    tok *t = open_gguf(GPT2, 4), *d = open_gguf(GPT2 KEY_STR("tokenizer.ggml.pre", "default"), 5);
    struct tok_cut c;
    text_match *m = NULL;
    sl_err err = {0};
    ASSERT_OK(text_match_open(MEM_MISC, &m, &err));
    for (int i = 0; i < 2; i++) { /* digits by threes from the left of a run, punctuation alone */
        static const char text[] = "it's 12345 (x)";
        tok_cut_init(&c, m);
        ASSERT_OK(tok_pre_split(i ? d : t, &c, text, sizeof text - 1, &err));
        assert_int_equal(c.out->n, 10); /* it ' s _ 123 45 _ ( x ) */
        tok_cut_fini(&c);
    }
    text_match_close(m);
    tok_close(t);
    tok_close(d);
}

TEST(tok_gguf_control_tokens_are_known_by_their_text)
{
    tok *t = open_gguf(GPT2, 4);
    expect(t, "a<|im_end|>b", TOK_SPECIAL, "0 5 1");
    expect(t, "a<fim_middle>", TOK_SPECIAL, "0 6");
    assert_true(tok_is_eog(t, 5) && tok_is_special(t, 5));
    assert_true(!tok_is_eog(t, 6) && tok_is_special(t, 6));
    tok_close(t);
}

/* In Harmony <|end|> ends a message, of which an answer has several; elsewhere it ends an
 * answer. */
TEST(tok_end_of_a_message_is_no_end_of_an_answer)
{
#define WITH(other)                                                                                \
    KEY_STR("general.architecture", "llama")                                                       \
    KEY_STR("tokenizer.ggml.model", "gpt2")                                                        \
    WORDS8("tokenizer.ggml.tokens", "a", "b", "c", "<|return|>", other, "<|end|>", "d", "x")       \
    "s=tokenizer.ggml.merges u32=9 u32=8 u64=0 "
    for (int i = 0; i < 2; i++) {
        tok *t = open_gguf(i ? WITH("<|call|>") : WITH("e"), 4);
        assert_true(tok_is_special(t, 5) && tok_is_eog(t, 3));
        assert_int_equal(tok_is_eog(t, 4), i);
        assert_int_equal(tok_is_eog(t, 5), !i);
        tok_close(t);
    }
}

#define SPM                                                                                        \
    KEY_STR("tokenizer.ggml.model", "llama")                                                       \
    WORDS8("tokenizer.ggml.tokens", "<unk>", "<s>", "</s>", "a", "b", "ab", "\xe2\x96\x81",        \
           "\xe2\x96\x81"                                                                          \
           "a")                                                                                    \
    "s=tokenizer.ggml.scores u32=9 u32=6 u64=8 f32=0 f32=0 f32=0 f32=-5 f32=-6 f32=-1 f32=-7 "     \
    "f32=-2 "

TEST(tok_gguf_of_type_llama_merges_by_score)
{
    static const char types[] = "s=tokenizer.ggml.token_type u32=9 u32=5 u64=8 u32=2 u32=3 u32=3 "
                                "u32=1 u32=1 u32=1 u32=1 u32=1 ";
    char keys[2048];
    sl_err err = {0};
    tok *t = NULL;
    /* no token for what the vocabulary lacks */
    assert_int_equal(try_gguf(SPM, 3, &t, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "SentencePiece"));
    snprintf(keys, sizeof keys, "%s%s", SPM, types);
    t = open_gguf(keys, 4);
    expect(t, "aba", TOK_BOS, "1 6 5 3"); /* "ab" scores more than the mark with "a" */
    expect(t, "a</s>x", TOK_SPECIAL, "7 2 6 0");
    assert_true(tok_add_bos(t) && !tok_add_eos(t) && tok_is_chars(t));
    assert_int_equal(tok_eos(t), 2);
    tok_close(t);
    snprintf(keys, sizeof keys, "%s%ss=tokenizer.ggml.add_space_prefix u32=7 u8=0 ", SPM, types);
    t = open_gguf(keys, 5);
    expect(t, "aba a", 0, "5 3 7");
    tok_close(t);
}
