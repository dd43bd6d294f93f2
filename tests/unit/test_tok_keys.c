/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a tokenizer's files that change text: obeyed or refused by name; and files as they are
 * published, none of whose keys may be refused. */
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tok/tok_internal.h"
#include "tok_expect.h"

#define M "\xe2\x96\x81"
#define BYTE_VOCAB                                                                                 \
    "\"a\":0,\"b\":1,\"<\":2,\"|\":3,\"n\":4,\">\":5,\"<s>\":6,\"</s>\":7,\"\\u0120\":8"
#define CHAR_VOCAB                                                                                 \
    "\"<unk>\":0,\"a\":1,\"b\":2,\"[\":3,\"N\":4,\"]\":5,\"<s>\":6,\"</s>\":7,\"" M "\":8,"        \
    "\"<0x0A>\":9"
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"      \
    "\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":7,\"content\":\"</s>\","      \
    "\"special\":true}],"
#define MODEL(vocab, more)                                                                         \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[]" more "}"
#define BYTE_PRE                                                                                   \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"  \
    "\"use_regex\":true}"
#define BYTE_DEC                                                                                   \
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"         \
    "\"use_regex\":true}"
#define TO_MARK "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" M "\"}"
#define FROM_MARK "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" M "\"},\"content\":\" \"}"
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" M "\"}"
#define STRIP "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
#define LLAMA2_NORM                                                                                \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" PREPEND "," TO_MARK "]}"
#define DECODERS(list) "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" list "]}"
#define LLAMA2_DEC DECODERS(FROM_MARK ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," STRIP)
/* whole files; more: further members */
#define BYTES(more, model) "{" ADDED more BYTE_PRE "," BYTE_DEC "," MODEL(BYTE_VOCAB, model) "}"
#define CHARS(more, model)                                                                         \
    "{" ADDED more LLAMA2_NORM "," LLAMA2_DEC                                                      \
    "," MODEL(CHAR_VOCAB, ",\"byte_fallback\":true,\"unk_token\":\"<unk>\"" model) "}"

struct texts {
    const char *tokenizer, *config, *generation;
};

static sl_status try(const struct texts *x, tok **t, sl_err *err)
{
    struct tok_files f = {.tokenizer_json = x->tokenizer, .tokenizer_config = x->config};
    struct arena a;
    mem_arena_init(&a, MEM_MISC, 0);
    f.n_tokenizer_json = strlen(f.tokenizer_json);
    f.n_tokenizer_config = x->config ? strlen(x->config) : 0;
    sl_status st = x->generation ? text_json_parse(&a, "g", x->generation, strlen(x->generation),
                                                   &f.generation_config, err)
                                 : SL_OK;
    if (!st) st = tok_open_files(&f, t, err);
    mem_arena_fini(&a);
    return st;
}

static tok *open_it(const char *tokenizer, const char *config)
{
    tok *t = NULL;
    sl_err err = {0};
    ASSERT_OK(try(&(struct texts){tokenizer, config, NULL}, &t, &err));
    return t;
}

/* The message has both words. */
static void refuse(const struct texts *x, const char *key, const char *value)
{
    tok *t = NULL;
    sl_err err = {0};
    sl_status st = try(x, &t, &err);
    if (!st || !strstr(err.text, key) || !strstr(err.text, value))
        fail_msg("%d \"%s\": want %s and %s (%s)", st, err.text, key, value, x->tokenizer);
}

/* ---- tokenizer.json ---- */
static const char *const bad_json[][3] = {
    {BYTES("\"special\":1,", ""), "special", "1"},
    {BYTES("\"normalizers\":[1],", ""), "normalizers", "[...]"},
    {BYTES("", ",\"dropout\":0.1"), "dropout", ""},
    {BYTES("", ",\"continuing_subword_prefix\":\"##\""), "continuing_subword_prefix", "##"},
    {BYTES("", ",\"end_of_word_suffix\":\"</w>\""), "end_of_word_suffix", "</w>"},
    {BYTES("", ",\"max_piece\":4"), "model: max_piece", "4"},
    {BYTES("", ",\"byte_fallback\":true"), "byte_fallback", "missing"},
    {BYTES("\"normalizer\":{\"type\":\"NFKC\"},", ""), "normalizer", "NFKC"},
    {BYTES("\"normalizer\":{\"type\":\"Lowercase\"},", ""), "normalizer", "Lowercase"},
    {BYTES("\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true},", ""), "normalizer", "Strip"},
    {BYTES("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA\"},", ""),
     "normalizer", "Precompiled"},
    {BYTES("\"normalizer\":{\"type\":\"NFC\",\"form\":\"D\"},", ""), "NFC: form", "D"},
    {BYTES("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\",\"x\":2}]},",
           ""),
     "NFC: x", "2"},
    {BYTES("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":"
           "\"a\"},",
           ""),
     "normalizer Replace", "String"},
    /* added tokens */
    {"{\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"fuzzy\":true}]," BYTE_PRE
     "," MODEL(BYTE_VOCAB, "") "}",
     "added_tokens: fuzzy", "true"},
    /* pre-tokenizers */
    {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true,"
     "\"regex\":\"x\"}," MODEL(BYTE_VOCAB, "") "}",
     "ByteLevel: regex", "x"},
    {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," BYTE_DEC "," MODEL(BYTE_VOCAB, "") "}",
     "pre_tokenizer", "Whitespace"},
    {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
     "{\"Regex\":\"a\"},\"behavior\":\"Isolated\",\"invert\":false,\"limit\":3},{\"type\":"
     "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}," MODEL(BYTE_VOCAB, "") "}",
     "Split: limit", "3"},
    /* decoders */
    {"{" BYTE_PRE ",\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}," MODEL(
         BYTE_VOCAB, "") "}",
     "decoder", "WordPiece"},
    {"{" BYTE_PRE "," DECODERS("{\"type\":\"ByteLevel\"}," STRIP) "," MODEL(BYTE_VOCAB, "") "}",
     "decoder", "Strip"},
    {"{" LLAMA2_NORM
     "," DECODERS(FROM_MARK "," STRIP ",{\"type\":\"Fuse\"}") "," MODEL(CHAR_VOCAB, "") "}",
     "decoder Strip", "without Fuse"},
    {"{" LLAMA2_NORM
     "," DECODERS(FROM_MARK
                  ",{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}") "," MODEL(CHAR_VOCAB, "") "}",
     "decoder ByteFallback", "after Fuse"},
    {"{" LLAMA2_NORM
     "," DECODERS(FROM_MARK ",{\"type\":\"Fuse\"}," STRIP "," STRIP) "," MODEL(CHAR_VOCAB, "") "}",
     "decoder Strip", "another"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," DECODERS(
         "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}") "," MODEL(CHAR_VOCAB, "") "}",
     "decoder", "without Replace"},
    {"{" LLAMA2_NORM
     "," DECODERS(FROM_MARK ",{\"type\":\"Metaspace\"}") "," MODEL(CHAR_VOCAB, "") "}",
     "decoder Metaspace", "another"},
    {"{" LLAMA2_NORM
     "," DECODERS("{\"type\":\"Fuse\"}," STRIP "," FROM_MARK) "," MODEL(CHAR_VOCAB, "") "}",
     "decoder Replace", "another"},
    {"{" LLAMA2_NORM "," DECODERS(FROM_MARK ",{\"type\":\"CTC\"}") "," MODEL(CHAR_VOCAB, "") "}",
     "decoder", "CTC"},
    /* post-processors */
    {BYTES("\"post_processor\":{\"type\":\"Frob\"},", ""), "post_processor", "Frob"},
    {BYTES("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":\"$A\"},", ""),
     "TemplateProcessing", "list"},
    {BYTES("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":"
           "\"A\"}},{\"Sequence\":{\"id\":\"A\"}}]},",
           ""),
     "post_processor", "2 sequences"},
    {BYTES("\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",6]},", ""),
     "post_processor", "sep"},
    {BYTES("\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",99],\"sep\":["
           "\"</s>\",7]},",
           ""),
     "post_processor", "99"},
    {BYTES("", ",\"unk_token\":5"), "model.unk_token", "string"},
    /* the next id is 2, as tokenizers counts, which a word has */
    {"{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\"}]," BYTE_PRE "," BYTE_DEC
     "," MODEL("\"a\":0,\"b\":2", "") "}",
     "\"<x>\" gets the id 2", "\"b\""},
};

TEST(tok_keys_of_tokenizer_json_are_obeyed_or_refused_by_name)
{
    for (int i = 0; i < BASE_COUNT_OF(bad_json); i++)
        refuse(&(struct texts){bad_json[i][0], NULL, NULL}, bad_json[i][1], bad_json[i][2]);
}

/* As published: Llama 3, Qwen2, DeepSeek-V3, GPT-2 and StarCoder, Llama 2, Mistral, Gemma; what
 * changes nothing is there with the values that people leave. */
static const char *const good_json[] = {
    BYTES("\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"normalizer\":null,", ""),
    BYTES("\"truncation\":{\"direction\":\"Right\",\"max_length\":512,\"strategy\":"
          "\"LongestFirst\",\"stride\":0},\"padding\":{\"strategy\":{\"Fixed\":512},\"direction\":"
          "\"Right\",\"pad_to_multiple_of\":null,\"pad_id\":0,\"pad_type_id\":0,\"pad_token\":"
          "\"a\"},",
          ",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
          "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,"
          "\"ignore_merges\":true"),
    BYTES("\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\","
          "\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true},{\"type\":"
          "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{"
          "\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\","
          "\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\""
          ":{\"id\":\"<s>\",\"ids\":[6],\"tokens\":[\"<s>\"]}}}]},",
          ""),
    BYTES("\"normalizer\":{\"type\":\"NFC\"},\"post_processor\":{\"type\":\"ByteLevel\","
          "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false},",
          ",\"unk_token\":\"a\""),
    BYTES("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]},\"comment\":null,", ""),
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
    "\"individual_digits\":true},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
    "false,\"trim_offsets\":true,\"use_regex\":true}]}," BYTE_DEC "," MODEL(BYTE_VOCAB, "") "}",
    "{" BYTE_PRE
    "," DECODERS("{\"type\":\"ByteLevel\"},{\"type\":\"Fuse\"}") "," MODEL(BYTE_VOCAB, "") "}",
    CHARS("\"truncation\":null,\"pre_tokenizer\":null,\"post_processor\":{\"type\":"
          "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{"
          "\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},",
          ",\"dropout\":null,\"fuse_unk\":true,\"ignore_merges\":false"),
    "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" M
    "\",\"str_rep\":\"" M "\",\"add_prefix_space\":true,\"prepend_scheme\":\"first\",\"split\":"
    "false}," LLAMA2_DEC "," MODEL(CHAR_VOCAB, "") "}",
    "{\"normalizer\":" TO_MARK ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"
    "\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}," DECODERS(
        FROM_MARK ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}") "," MODEL(CHAR_VOCAB, "") "}",
};

TEST(tok_keys_of_published_tokenizer_json_pass)
{
    for (int i = 0; i < BASE_COUNT_OF(good_json); i++)
        tok_close(open_it(good_json[i], NULL));
}

TEST(tok_post_processors_of_encoders_are_obeyed)
{
    tok *t =
        open_it(BYTES("\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",7]"
                      ",\"cls\":[\"<s>\",6],\"trim_offsets\":true,\"add_prefix_space\":false},",
                      ""),
                NULL);
    expect(t, "ab", TOK_BOS | TOK_EOS, "6 0 1 7");
    tok_close(t);
    t = open_it(BYTES("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                      "\"SpecialToken\":{\"id\":\"X\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                      "\"special_tokens\":{\"X\":{\"id\":\"X\",\"ids\":[7,6],\"tokens\":[\"</s>\","
                      "\"<s>\"]}}},",
                      ""),
                NULL);
    expect(t, "ab", TOK_BOS | TOK_EOS, "7 6 0 1"); /* by the ids that it gives */
    tok_close(t);
}

TEST(tok_bytes_that_a_vocabulary_lacks_are_its_unknown_token)
{
    tok *t = open_it(BYTES("", ",\"unk_token\":\"n\""), NULL);
    expect(t, "axb", 0, "0 4 1");
    expect(t, "x", 0, "4");
    expect(t, "axxb", 0, "0 4 4 1");
    tok_close(t);
    t = open_it(BYTES("", ",\"unk_token\":\"n\",\"fuse_unk\":true"), NULL);
    expect(t, "axxb", 0, "0 4 1");
    tok_close(t);
}

/* ---- tokenizer_config.json ---- */
static const char *const bad_config[][3] = {
    {"{\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\":true}",
     "clean_up_tokenization_spaces_for_bpe", "true"},
    {"{\"do_lower_case\":true}", "do_lower_case", "true"},
    {"{\"strip_accents\":true}", "strip_accents", "true"},
    {"{\"remove_space\":true}", "remove_space", "true"},
    {"{\"sp_model_kwargs\":{\"enable_sampling\":true}}", "sp_model_kwargs", "{...}"},
    {"{\"fix_mistral_regex\":true}", "fix_mistral_regex", "true"},
    {"{\"encode_special_tokens\":true}", "encode_special_tokens", "true"},
    {"{\"add_prefix_space\":true}", "add_prefix_space", "nothing in front"},
    {"{\"add_prefix_space\":true,\"tokenizer_class\":\"GPT2Tokenizer\"}", "add_prefix_space",
     "nothing in front"},
    {"{\"add_dummy_prefix\":true}", "add_dummy_prefix", "true"},
    {"{\"src_lang\":\"eng_Latn\"}", "src_lang", "not known"},
    {"{\"rewrite_digits\":\"all\"}", "rewrite_digits", "not known"},
    {"{\"bos_token\":{\"content\":\"<s>\",\"fuzzy\":1}}", "bos_token: fuzzy", "1"},
    {"{\"added_tokens_decoder\":{\"6\":{\"content\":\"<s>\",\"regex\":true}}}",
     "added_tokens_decoder: regex", "true"},
};

TEST(tok_keys_of_tokenizer_config_are_obeyed_or_refused_by_name)
{
    for (int i = 0; i < BASE_COUNT_OF(bad_config); i++)
        refuse(&(struct texts){BYTES("", ""), bad_config[i][0], NULL}, bad_config[i][1],
               bad_config[i][2]);
    refuse(&(struct texts){CHARS("", ""), "{\"add_prefix_space\":false}", NULL}, "add_prefix_space",
           "a space in front");
}

/* Of Llama 2 and 3, Qwen2.5 and Qwen3, DeepSeek-V3, GLM-4.5, gpt-oss, Mistral, Kimi, SmolLM2, and
 * what fine-tuning tools and transformers 5 leave there. */
static const char *const good_config[] = {
    "{\"add_bos_token\":true,\"add_eos_token\":false,\"bos_token\":{\"__type\":\"AddedToken\","
    "\"content\":\"<s>\",\"lstrip\":false,\"normalized\":true,\"rstrip\":false,\"single_word\":"
    "false},\"clean_up_tokenization_spaces\":false,\"legacy\":false,\"model_max_length\":"
    "1000000000000000019884624838656,\"pad_token\":null,\"padding_side\":\"right\","
    "\"sp_model_kwargs\":{},\"tokenizer_class\":\"LlamaTokenizer\",\"use_default_system_prompt\":"
    "false,\"unk_token\":null}",
    "{\"added_tokens_decoder\":{\"6\":{\"content\":\"<s>\",\"lstrip\":false,\"normalized\":false,"
    "\"rstrip\":false,\"single_word\":false,\"special\":true}},\"clean_up_tokenization_spaces\":"
    "true,\"model_input_names\":[\"input_ids\",\"attention_mask\"],\"tokenizer_class\":"
    "\"PreTrainedTokenizerFast\",\"extra_special_tokens\":{}}",
    "{\"add_bos_token\":false,\"add_prefix_space\":false,\"additional_special_tokens\":[\"</s>\"],"
    "\"chat_template\":\"x\",\"errors\":\"replace\",\"split_special_tokens\":false,"
    "\"tokenizer_class\":\"Qwen2Tokenizer\",\"bos_token\":null,\"_from_auto\":true}",
    "{\"auto_map\":{\"AutoTokenizer\":[\"tokenization.X\",null]},\"do_lower_case\":false,"
    "\"remove_space\":false,\"padding_side\":\"left\",\"model_max_length\":128000,"
    "\"spaces_between_special_tokens\":false,\"special_tokens_map_file\":\"/a/b\",\"name_or_path\":"
    "\"x/y\",\"tokenizer_file\":null,\"trust_remote_code\":false,\"use_fast\":true,"
    "\"processor_class\":\"P\",\"image_token\":\"<|n|>\",\"vision_bos_token\":\"<|n|>\"}",
    "{\"backend\":\"tokenizers\",\"is_local\":true,\"local_files_only\":false,\"max_length\":512,"
    "\"pad_to_multiple_of\":null,\"pad_token_type_id\":0,\"stride\":0,\"truncation_side\":"
    "\"right\",\"truncation_strategy\":\"longest_first\",\"response_schema\":{\"a\":1},"
    "\"model_specific_special_tokens\":{\"image_token\":\"<|n|>\"},\"from_slow\":true,"
    "\"fix_mistral_regex\":false,\"tool_parser_type\":\"glm47\",\"unsloth_version\":\"2026.1\","
    "\"vocab_size\":9,\"eos_token_id\":7,\"torch_dtype\":\"float16\",\"init_inputs\":[]}",
};

TEST(tok_keys_of_published_tokenizer_configs_pass)
{
    for (int i = 0; i < BASE_COUNT_OF(good_config); i++)
        tok_close(open_it(BYTES("", ""), good_config[i]));
    tok_close(open_it(CHARS("", ""), "{\"add_prefix_space\":true,\"legacy\":true}"));
    tok_close(open_it(CHARS("", ""), "{\"add_prefix_space\":null}"));
    tok_close(open_it(BYTES("", ""), "{\"add_prefix_space\":true,\"tokenizer_class\":"
                                     "\"PreTrainedTokenizerFast\",\"do_basic_tokenize\":true,"
                                     "\"wordpieces_prefix\":\"##\",\"strip_accents\":null}"));
    tok *t = open_it(BYTES("", ""), good_config[4]);
    expect(t, "a<|n|>", TOK_SPECIAL, "0 9"); /* of model_specific_special_tokens */
    tok_close(t);
}

TEST(tok_add_bos_and_add_eos_take_the_place_of_the_template)
{
    static const struct {
        const char *config, *want;
    } row[] = {
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", "6 0 7"},
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":null}", "6 0 7"},
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true}", "6 0"},
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":false}", "6 0"},
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_eos_token\":true,\"add_bos_token\":"
         "true}",
         "6 0 7"},
        {"{\"bos_token\":\"</s>\",\"eos_token\":\"<s>\",\"add_eos_token\":true,\"add_bos_token\":"
         "true}",
         "7 0 6"},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        tok *t = open_it(BYTES("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                               "\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}},{"
                               "\"SpecialToken\":{\"id\":\"</s>\"}}]},",
                               ""),
                         row[i].config);
        expect(t, "a", TOK_BOS | TOK_EOS, row[i].want); /* BOS that is asked for is there */
        assert_int_equal(tok_add_bos(t), i != 3);
        tok_close(t);
    }
}

/* ---- where a text begins, and where added tokens end ---- */

/* "first" is what stands where the text began: nothing does once its first letter was taken out,
 * and all that was put in front of it does. */
TEST(tok_a_first_mark_goes_where_the_text_began)
{
    static const char first[] =
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{"
        "\"String\":\"N\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Metaspace\","
        "\"prepend_scheme\":\"first\",\"split\":false}]}," LLAMA2_DEC "," MODEL(CHAR_VOCAB, "") "}";
    static const struct {
        const char *norm, *text, *want;
    } row[] = {
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"\"}", "ba", "1"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"\"}", "ab b", "8 1 8"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"[a\"}", "ba",
         "8 3 1 1"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"[\"}", "aba", "3 1"},
        {"{\"type\":\"Prepend\",\"prepend\":\"aN\"}", "ba", "8 1 8 4 8 2 1"},
        {"{\"type\":\"NFC\"}", "a", "8 1"},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        char json[2048];
        snprintf(json, sizeof json, "{\"normalizer\":%s,%s", row[i].norm, first);
        tok *t = open_it(json, NULL);
        expect(t, row[i].text, 0, row[i].want);
        tok_close(t);
    }
}

/* White space that rstrip takes may be what the next added token begins with. */
TEST(tok_white_space_counts_for_the_added_tokens_on_both_sides)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":10,\"content\":\" a\",\"rstrip\":true,\"normalized\":false,"
        "\"special\":false}]," LLAMA2_DEC "," MODEL(CHAR_VOCAB, "") "}";
    tok *t = open_it(json, NULL);
    expect(t, "b a ab", 0, "2 10 10 2");
    expect(t, "b a  ab", 0, "2 10 10 2");
    tok_close(t);
}

/* ---- answers ---- */

/* What ids of words, -1 at the end, are as an answer. */
static void expect_text(const tok *t, const int32_t *id, const char *want)
{
    struct tok_stream s = {.front = true};
    struct str out;
    sl_err err = {0};
    str_init(&out, MEM_MISC, 0);
    for (int k = 0; id[k] >= 0; k++)
        ASSERT_OK(tok_stream_put(t, &s, id[k], true, &out, &err));
    ASSERT_OK(tok_stream_end(&s, &out, &err));
    assert_string_equal(str_c(&out), want);
    str_fini(&out);
}

/* Strip takes so many spaces from the text, whichever tokens they are; Metaspace the marks of the
 * first token, but no spaces. */
TEST(tok_decoders_take_what_the_reference_takes_from_the_front)
{
    tok *two = open_it(
        "{" LLAMA2_NORM "," DECODERS(
            FROM_MARK ",{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
                      "\"start\":2,\"stop\":0}") "," MODEL(CHAR_VOCAB ",\"" M M "\":10", "") "}",
        NULL);
    tok *mark = open_it(
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"always\"},\"decoder\":{"
        "\"type\":\"Metaspace\",\"prepend_scheme\":\"always\"}," MODEL(
            CHAR_VOCAB ",\"" M M "\":10,\" \":11", "") "}",
        NULL);
    expect_text(two, (int32_t[]){8, 8, 8, 1, -1}, " a");
    expect_text(two, (int32_t[]){8, 10, 1, -1}, " a");
    expect_text(two, (int32_t[]){8, 1, 8, -1}, "a ");
    expect_text(mark, (int32_t[]){10, 8, 1, -1}, " a");
    expect_text(mark, (int32_t[]){11, 8, 1, -1}, "  a");
    expect_text(mark, (int32_t[]){1, 8, -1}, "a ");
    tok_close(two);
    tok_close(mark);
}

/* tokenizers since 0.23: what was normalised when it was looked for is what answers have. */
TEST(tok_normalised_added_tokens_come_back_as_texts_have_them)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":10,\"content\":\"[N]\",\"normalized\":true,\"special\":false},{"
        "\"id\":11,\"content\":\"[a]\",\"normalized\":false,\"special\":false}]," LLAMA2_NORM
        "," LLAMA2_DEC "," MODEL(CHAR_VOCAB, "") "}";
    tok *t = open_it(json, NULL);
    expect(t, "a [N] b", 0, "8 1 10 8 2");
    expect_text(t, (int32_t[]){8, 1, 10, 2, -1}, "a [N]b");
    expect_text(t, (int32_t[]){10, 2, -1}, "[N]b");
    expect_text(t, (int32_t[]){10, 10, -1}, "[N] [N]");
    expect_text(t, (int32_t[]){8, 1, 11, 2, -1}, "a[a]b");
    expect_text(t, (int32_t[]){11, 10, -1}, "[a] [N]");
    assert_int_equal(tok_find(t, "[N]"), 10); /* by the text that its file has */
    tok_close(t);
}

/* Metaspace, as a decoder, leaves every mark of the first token out, wherever it stands, and no
 * space: a literal one may be what a normaliser put before an added token. */
TEST(tok_first_tokens_lose_marks_within_and_keep_spaces)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":11,\"content\":\"[N]\",\"normalized\":true,\"special\":false},{"
        "\"id\":12,\"content\":\"]" M
        "[\",\"normalized\":false,\"special\":false}],\"normalizer\":{"
        "\"type\":\"Prepend\",\"prepend\":\" \"},\"decoder\":{\"type\":\"Metaspace\","
        "\"prepend_scheme\":\"first\"}," MODEL(CHAR_VOCAB ",\"a" M "b\":10", "") "}";
    tok *t = open_it(json, NULL);
    expect_text(t, (int32_t[]){10, 10, -1}, "aba b");
    expect_text(t, (int32_t[]){8, 10, -1}, "a b");
    expect_text(t, (int32_t[]){11, 11, -1}, " [N] [N]");
    expect_text(t, (int32_t[]){12, 12, -1}, "][] [");
    tok_close(t);
}

TEST(tok_tokens_that_a_configuration_suppresses_are_never_drawn)
{
    struct texts x = {BYTES("", ""), NULL,
                      "{\"suppress_tokens\":[1,99,-1],\"bad_words_ids\":[[3],[4,5],[7]],"
                      "\"eos_token_id\":7}"};
    static const bool want[] = {false, true, false, true, false, false, false, false, false};
    tok *t = NULL;
    sl_err err = {0};
    ASSERT_OK(try(&x, &t, &err));
    for (int i = 0; i < BASE_COUNT_OF(want); i++)
        assert_int_equal(tok_is_banned(t, i), want[i]);
    tok_close(t);
}

TEST(tok_ids_that_are_none_are_refused_by_the_name_of_their_key)
{
    static const char *const bad[][2] = {
        {"eos_token_id", "\"7\""},       {"eos_token_id", "[7,\"8\"]"},
        {"eos_token_id", "true"},        {"eos_token_id", "1.5"},
        {"eos_token_id", "[[7]]"},       {"suppress_tokens", "\"x\""},
        {"suppress_tokens", "[1,null]"}, {"suppress_tokens", "7"},
        {"bad_words_ids", "[5]"},        {"bad_words_ids", "[[1],[\"a\"]]"},
        {"bad_words_ids", "[[]]"},
    };
    char text[80];
    struct texts x = {BYTES("", ""), NULL, text};
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        snprintf(text, sizeof text, "{\"%s\":%s}", bad[i][0], bad[i][1]);
        refuse(&x, bad[i][0], "generation_config.json");
    }
    tok *t = NULL;
    sl_err err = {0};
    snprintf(text, sizeof text, "{\"eos_token_id\":[7.0,99,-1],\"suppress_tokens\":null}");
    ASSERT_OK(try(&x, &t, &err));
    assert_true(tok_is_eog(t, 7) && !tok_is_eog(t, 6));
    tok_close(t);
}
