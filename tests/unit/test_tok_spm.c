/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece models, and folders whose vocabulary is in no tokenizer.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"
#include "tok_expect.h"

#define M "\xe2\x96\x81" /* the mark */

/* ---- a model as a protocol buffer ---- */
static void put_var(struct str *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        str_putc(s, (char)(v | 0x80));
    str_putc(s, (char)v);
}

static void put_field(struct str *s, int number, const char *p, size_t n)
{
    put_var(s, (uint64_t)number << 3 | 2);
    put_var(s, n);
    str_put(s, p, n);
}

static void put_num(struct str *s, int number, uint64_t v)
{
    put_var(s, (uint64_t)number << 3);
    put_var(s, v);
}

static void put_piece(struct str *out, const char *text, float score, int type)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    put_field(&s, 1, text, strlen(text));
    str_putc(&s, 0x15);
    str_put(&s, (const char *)&score, 4);
    if (type != 1) put_num(&s, 3, (uint64_t)type);
    put_field(out, 1, str_c(&s), s.n);
    str_fini(&s);
}

struct spec {
    int type; /* of the model; 2 = bpe */
    bool bytes, no_prefix, squeeze;
};

enum { UNK, BOS, EOS, USER, BYTE_E4, BYTE_B8, BYTE_96, BYTE_0A, T_T, T_H, T_E, T_MARK };
enum { T_TH = T_MARK + 1, T_THE, T_MTHE, T_MM, T_HE, T_UNUSED };

static void make_model(struct str *out, const struct spec *x)
{
    static const char *const text[] = {"<unk>",  "<s>",    "</s>",  "[U]", "<0xE4>", "<0xB8>",
                                       "<0x96>", "<0x0A>", "t",     "h",   "e",      M,
                                       "th",     "the",    M "the", M M,   "he",     "hh"};
    static const int type[] = {2, 3, 3, 4, 6, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5};
    struct str s;
    str_init(out, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    for (int i = 0; i < BASE_COUNT_OF(text); i++)
        put_piece(out, text[i], (float)-i, !x->bytes && type[i] == 6 ? 1 : type[i]);
    put_num(&s, 3, (uint64_t)x->type);
    put_num(&s, 35, x->bytes);
    put_field(out, 2, str_c(&s), s.n);
    str_clear(&s);
    put_num(&s, 3, !x->no_prefix);
    put_num(&s, 4, x->squeeze);
    put_field(out, 3, str_c(&s), s.n);
    str_fini(&s);
}

static sl_status open_model(const struct str *m, const char *config, tok **t, sl_err *err)
{
    struct tok_files f = {.tokenizer_model = m->p,
                          .n_tokenizer_model = m->n,
                          .tokenizer_config = config,
                          .n_tokenizer_config = config ? strlen(config) : 0};
    return tok_open_files(&f, t, err);
}

static tok *model(const struct spec *x, const char *config)
{
    struct str s;
    sl_err err = {0};
    tok *t = NULL;
    make_model(&s, x);
    ASSERT_OK(open_model(&s, config, &t, &err));
    str_fini(&s);
    return t;
}

TEST(tok_sentencepiece_merges_by_score_and_falls_back_to_bytes)
{
    tok *t = model(&(struct spec){.type = 2, .bytes = true}, NULL);
    expect(t, "the", 0, "14");                /* the mark and "the" */
    expect(t, "thehe", 0, "14 16");           /* "th" has the best score, so no "he" before it */
    expect(t, " the  the", 0, "11 14 11 14"); /* each mark goes to its word first */
    expect(t, "\xe4\xb8\x96\n", 0, "11 4 5 6 7");
    expect(t, "xyt", 0, "11 0 8"); /* no bytes for these: one unknown token */
    expect(t, "t[U]h", 0, "11 8 3 9");
    expect(t, "thh", 0, "11 12 9");
    expect(t, "hh", 0, "11 9 9"); /* an unused piece is spelled by its halves */
    expect(t, "</s>the", TOK_SPECIAL | TOK_BOS, "1 2 14");
    expect(t, "</s>the", 0, "11 0 13");
    expect(t, "", TOK_BOS, "1");
    tok_close(t);
}

TEST(tok_sentencepiece_obeys_the_models_flags)
{
    tok *t = model(&(struct spec){.type = 2, .no_prefix = true}, NULL);
    expect(t, "the the", 0, "13 14");
    tok_close(t);
    t = model(&(struct spec){.type = 2, .squeeze = true, .bytes = true}, NULL);
    expect(t, "  the   the  ", 0, "14 14");
    expect(t, "   ", 0, "");
    tok_close(t);
    /* only the beginning of a text, not what follows a special token */
    t = model(&(struct spec){.type = 2}, "{\"legacy\":false}");
    expect(t, "the</s>the", TOK_SPECIAL, "14 2 13");
    tok_close(t);
    t = model(&(struct spec){.type = 2}, NULL);
    expect(t, "the</s>the", TOK_SPECIAL, "14 2 14");
    tok_close(t);
    t = model(&(struct spec){.type = 2}, "{\"add_prefix_space\":false,\"add_bos_token\":false,"
                                         "\"add_eos_token\":true,\"eos_token\":\"[E]\"}");
    expect(t, "the[E]", TOK_SPECIAL | (tok_add_bos(t) ? TOK_BOS : 0) | TOK_EOS, "13 18 18");
    assert_int_equal(tok_eos(t), 18);
    tok_close(t);
}

TEST(tok_sentencepiece_gives_text_back)
{
    static const int32_t ids[] = {T_MTHE, T_MM, BYTE_E4, BYTE_B8, BYTE_96, T_MTHE};
    tok *t = model(&(struct spec){.type = 2, .bytes = true}, NULL);
    for (int front = 0; front < 2; front++) {
        struct tok_stream s = {.front = front};
        struct str out;
        sl_err err;
        str_init(&out, MEM_MISC, 0);
        for (int i = 0; i < BASE_COUNT_OF(ids); i++) {
            ASSERT_OK(tok_stream_put(t, &s, ids[i], false, &out, &err));
            assert_int_equal(text_utf8_check(str_c(&out), out.n), out.n);
        }
        ASSERT_OK(tok_stream_end(&s, &out, &err));
        assert_string_equal(str_c(&out), " the  \xe4\xb8\x96 the" + front);
        str_fini(&out);
    }
    tok_close(t);
}

TEST(tok_squeezed_sentencepiece_leaves_out_a_space_of_each_first_token)
{
    static const int32_t ids[] = {T_MARK, T_MM, T_MTHE};
    tok *t = model(&(struct spec){.type = 2, .squeeze = true}, NULL);
    struct tok_stream s = {.front = true};
    struct str out;
    sl_err err;
    str_init(&out, MEM_MISC, 0);
    for (int i = 0; i < BASE_COUNT_OF(ids); i++)
        ASSERT_OK(tok_stream_put(t, &s, ids[i], false, &out, &err));
    assert_string_equal(str_c(&out), "  the");
    str_fini(&out);
    tok_close(t);
}

TEST(tok_sentencepiece_of_another_kind_is_refused_by_name)
{
    static const char *const name[] = {"?", "unigram", "bpe", "word", "char"};
    for (int type = 1; type < 5; type++) {
        struct str s;
        sl_err err = {0};
        tok *t = NULL;
        make_model(&s, &(struct spec){.type = type});
        sl_status st = open_model(&s, NULL, &t, &err);
        assert_int_equal(st, type == 2 ? SL_OK : SL_UNSUPPORTED);
        if (type != 2) assert_non_null(strstr(err.text, name[type]));
        tok_close(t);
        str_fini(&s);
    }
}

TEST(tok_cut_sentencepiece_models_are_refused)
{
    struct str s;
    int good = 0;
    make_model(&s, &(struct spec){.type = 2, .bytes = true});
    for (size_t n = 0; n < s.n; n++) {
        char *copy = malloc(n + 1);
        struct str cut = {.p = copy, .n = n};
        sl_err err = {0};
        tok *t = NULL;
        memcpy(copy, s.p, n);
        sl_status st = open_model(&cut, NULL, &t, &err);
        if (st) assert_non_null(strstr(err.text, n ? "tokenizer.model" : "tokenizer"));
        good += st == SL_OK;
        tok_close(t);
        free(copy);
    }
    assert_int_equal(good,
                     1); /* what ends before the last message, which only says what is usual */
    str_fini(&s);
}

TEST(tok_sentencepiece_survives_every_failing_allocation)
{
    struct str s;
    make_model(&s, &(struct spec){.type = 2, .bytes = true});
    for (uint64_t n = 1;; n++) {
        sl_err err = {0};
        tok *t = NULL;
        int64_t before = mem_used(MEM_TOK);
        mem_fail_at(n, 1);
        sl_status st = open_model(&s, "{\"pad_token\":\"<p>\"}", &t, &err);
        mem_fail_at(0, 0);
        if (st == SL_OK) {
            tok_close(t);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(st, SL_NOMEM);
        assert_int_equal(mem_used(MEM_TOK), before);
    }
    str_fini(&s);
}

TEST(tok_sentencepiece_is_near_linear)
{
    tok *t = model(&(struct spec){.type = 2, .bytes = true}, NULL);
    static const char *const unit[] = {"the", "the ", " ", "\xe4\xb8\x96"};
    for (int k = 0; k < BASE_COUNT_OF(unit); k++) {
        struct tok_ids ids = {0};
        struct str s;
        sl_err err;
        str_init(&s, MEM_MISC, 0);
        while (s.n < 1 << 20)
            str_puts(&s, unit[k]);
        clock_t begin = clock();
        ASSERT_OK(tok_encode(t, s.p, s.n, 0, &ids, &err));
        assert_true(clock() - begin < 5 * CLOCKS_PER_SEC); /* some 0.1 s; quadratic: minutes */
        assert_true(ids.n > 1000);
        mem_free(ids.id);
        str_fini(&s);
    }
    tok_close(t);
}

/* ---- words of bytes without tokenizer.json ---- */
static sl_status open_ranks(const char *ranks, const char *config, tok **t, sl_err *err)
{
    struct tok_files f = {.tiktoken_model = ranks,
                          .n_tiktoken_model = strlen(ranks),
                          .tokenizer_config = config,
                          .n_tokenizer_config = strlen(config)};
    return tok_open_files(&f, t, err);
}

TEST(tok_tiktoken_models_merge_by_rank_and_reserve_256)
{
    static const char config[] =
        "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{\"9\":{\"content\":"
        "\"[EOS]\",\"special\":true}},\"eos_token\":\"[EOS]\"}";
    sl_err err = {0};
    tok *t = NULL;
    ASSERT_OK(open_ranks("dA== 0\naA== 1\nZQ== 2\naGU= 3\ndGg= 4\ndGhl 5\n", config, &t, &err));
    expect(t, "the", 0, "5");
    expect(t, "thet", 0, "5 0");
    expect(t, "hthe", 0, "1 5"); /* t goes with "he", of the lower rank, not with h */
    expect(t, "[EOS]t<|reserved_token_6|>", TOK_SPECIAL, "9 0 6");
    assert_int_equal(tok_n_vocab(t), 6 + 256);
    assert_int_equal(tok_eos(t), 9);
    tok_close(t);
}

TEST(tok_tiktoken_models_may_be_called_tokenizer_model)
{
    static const char ranks[] = "dA== 0\naA== 1\ndGg= 2\n",
                      config[] =
                          "{\"tokenizer_class\":\"ChatGLM4Tokenizer\",\"eos_token\":\"[E]\"}";
    struct tok_files f = {.tokenizer_model = ranks,
                          .n_tokenizer_model = sizeof ranks - 1,
                          .tokenizer_config = config,
                          .n_tokenizer_config = sizeof config - 1};
    sl_err err = {0};
    tok *t = NULL;
    ASSERT_OK(tok_open_files(&f, &t, &err));
    expect(t, "tht[E]", TOK_SPECIAL, "2 0 3");
    assert_int_equal(tok_n_vocab(t), 4);
    tok_close(t);
}

TEST(tok_bad_vocabularies_without_tokenizer_json_are_refused_by_place)
{
    static const char kimi[] = "{\"tokenizer_class\":\"TikTokenTokenizer\"}";
    static const struct {
        const char *ranks, *config, *says;
    } row[] = {
        {"dA== 9999999\n", kimi, "9999999"},
        {"dA== 0\nx 1\n", kimi, "rank 1"},
        {"dA== 0\ndA==\n", kimi, "byte 7"},
        {"dA== 0\naA== 0\n", kimi, "twice"},
        {"dA== 99999999999\n", kimi, "byte 0"},
        {"dA== 0\ndA== 1\n", kimi, "same bytes"},
        {"dA== 0", "{\"tokenizer_class\":\"X\"}", "\"X\""},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        sl_err err = {0};
        tok *t = NULL;
        assert_int_not_equal(open_ranks(row[i].ranks, row[i].config, &t, &err), SL_OK);
        if (!strstr(err.text, row[i].says) || !strstr(err.text, "tiktoken.model"))
            fail_msg("%s: %s", row[i].ranks, err.text);
    }
}

TEST(tok_vocab_json_with_merges_txt_is_read_by_class)
{
    static const char vocab[] = "{\"t\":0,\"h\":1,\"th\":2,\"\xc4\xa0\":3}",
                      merges[] = "#version: 0.2\nt h\r\n",
                      *const config[] = {
                          "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true}",
                          "{\"tokenizer_class\":\"Qwen2Tokenizer\"}",
                          "{\"tokenizer_class\":\"OddTokenizer\"}"};
    for (int i = 0; i < 3; i++) {
        struct tok_files f = {.vocab_json = vocab,
                              .n_vocab_json = sizeof vocab - 1,
                              .merges_txt = merges,
                              .n_merges_txt = sizeof merges - 1,
                              .tokenizer_config = config[i],
                              .n_tokenizer_config = strlen(config[i])};
        tok *t = NULL;
        sl_err err = {0};
        sl_status st = tok_open_files(&f, &t, &err);
        assert_int_equal(st, i < 2 ? SL_OK : SL_UNSUPPORTED);
        if (st)
            assert_non_null(strstr(err.text, "OddTokenizer"));
        else
            expect(t, "tht", 0, i == 0 ? "3 2 0" : "2 0");
        tok_close(t);
    }
}
