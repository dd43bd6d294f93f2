/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of both kinds: ids, streaming text, hostile files, time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "test.h"
#include "text/nfc.h"
#include "text/regex.h"
#include "text/tmpl.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

/* A tokenizer.json: all 256 bytes in the byte alphabet as ids 0..255, then one id for each merge,
 * then what tail says. */
static void make(struct str *s, const char *const *merge, int n_merge, bool arrays,
                 const char *model_tail, const char *tail)
{
    int id = 0, next = 256;
    str_puts(s, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        str_printf(s, "%s\"\\u%04x\":%d", id ? "," : "", (unsigned)(printable ? b : next), id);
        next += !printable;
        id++;
    }
    for (int i = 0; i < n_merge; i++) {
        const char *sp = strchr(merge[i], ' ');
        str_printf(s, ",\"%.*s%s\":%d", (int)(sp - merge[i]), merge[i], sp + 1, id++);
    }
    while (strstr(tail, "\"id\":900") && id < 900) { /* added tokens follow the vocabulary */
        str_printf(s, ",\"[fill%d]\":%d", id, id);
        id++;
    }
    str_puts(s, "},\"merges\":[");
    for (int i = 0; i < n_merge; i++) {
        const char *sp = strchr(merge[i], ' ');
        if (arrays)
            str_printf(s, "%s[\"%.*s\",\"%s\"]", i ? "," : "", (int)(sp - merge[i]), merge[i],
                       sp + 1);
        else
            str_printf(s, "%s\"%s\"", i ? "," : "", merge[i]);
    }
    str_printf(s, "]%s}%s}", model_tail, tail);
}

#define BYTES                                                                                      \
    ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define ADDED                                                                                      \
    ",\"added_tokens\":[{\"id\":900,\"content\":\"<|im_start|>\",\"special\":true},"               \
    "{\"id\":901,\"content\":\"<\xef\xbd\x9cUser\xef\xbd\x9c>\",\"special\":false},"               \
    "{\"id\":902,\"content\":\"<think>\",\"special\":false},"                                      \
    "{\"id\":903,\"content\":\"<|im_start|>x\",\"special\":true},"                                 \
    "{\"id\":904,\"content\":\"[strip]\",\"special\":false,\"lstrip\":true,\"rstrip\":true},"      \
    "{\"id\":905,\"content\":\"word\",\"special\":false,\"single_word\":true}]"

static const char *const merges[] = {"l l",        "h e", "he ll", "hell o",
                                     "\xc4\xa0 w", "a a", "aa aa", "\xc4\xa0 \xc4\xa0"};

static tok *open_text(const struct str *s, const char *config, sl_err *err)
{
    struct tok_files f = {.tokenizer_json = s->p,
                          .n_tokenizer_json = s->n,
                          .tokenizer_config = config,
                          .n_tokenizer_config = config ? strlen(config) : 0};
    tok *t = NULL;
    return tok_open_files(&f, &t, err) == SL_OK ? t : NULL;
}

static tok *standard(const char *model_tail, const char *tail, const char *config)
{
    struct str s;
    sl_err err = {0};
    str_init(&s, MEM_MISC, 0);
    make(&s, merges, BASE_COUNT_OF(merges), false, model_tail, tail);
    tok *t = open_text(&s, config, &err);
    if (!t) fail_msg("%s", err.text);
    str_fini(&s);
    return t;
}

static void expect(const tok *t, const char *text, int flags, const int32_t *want, int n)
{
    struct tok_ids ids = {0};
    sl_err err = {0};
    if (tok_encode(t, text, strlen(text), flags, &ids, &err) != SL_OK)
        fail_msg("%s: %s", text, err.text);
    if (ids.n != n || memcmp(ids.id, want, (size_t)n * sizeof *want) != 0) {
        char buf[400] = "";
        for (int i = 0; i < ids.n && i < 40; i++)
            snprintf(buf + strlen(buf), sizeof buf - strlen(buf), " %d", (int)ids.id[i]);
        fail_msg("'%s' gives%s", text, buf);
    }
    mem_free(ids.id);
}
#define EXPECT(t, text, flags, ...)                                                                \
    do {                                                                                           \
        static const int32_t want_[] = {__VA_ARGS__};                                              \
        expect(t, text, flags, want_, BASE_COUNT_OF(want_));                                       \
    } while (0)

TEST(tok_merges_by_rank_leftmost_first)
{
    for (int arrays = 0; arrays < 2; arrays++) {
        struct str s;
        sl_err err = {0};
        str_init(&s, MEM_MISC, 0);
        make(&s, merges, BASE_COUNT_OF(merges), arrays, "", BYTES);
        tok *t = open_text(&s, NULL, &err);
        if (!t) fail_msg("%s", err.text);
        EXPECT(t, "hello", 0, 259);
        EXPECT(t, "hell", 0, 258);
        EXPECT(t, "llhe", 0, 256, 257);
        EXPECT(t, "aaaaa", 0, 262, 'a');
        EXPECT(t, "a w", 0, 'a', 260);
        EXPECT(t, "\n", 0, 10);
        EXPECT(t, "\xc3\xa9", 0, 0xc3, 0xa9);
        assert_int_equal(tok_n_vocab(t), 264);
        tok_close(t);
        str_fini(&s);
    }
}

TEST(tok_long_words_merge_like_short_ones)
{
    tok *t = standard("", BYTES, NULL);
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) { /* 48 bytes is where the other algorithm begins */
        static const char letters[] = "halo";
        char text[400];
        struct tok_ids whole = {0}, part = {0};
        struct tok_bpe w = {0};
        sl_err err;
        size_t n = 40 + rng_next(&seed) % 200;
        for (size_t i = 0; i < n; i++)
            text[i] = letters[rng_next(&seed) % 4];
        ASSERT_OK(tok_bpe_word(t, &w, text, n, &whole, &err));
        /* the reference: merge the best pair of the whole array, again and again */
        uint32_t id[400];
        size_t k = n;
        for (size_t i = 0; i < n; i++)
            id[i] = (unsigned char)text[i];
        for (;;) {
            size_t best = 0;
            uint32_t rank = TOK_NONE, to = 0;
            for (size_t i = 0; i + 1 < k; i++) {
                const struct tok_merge *m = tok_merge_find(t, id[i], id[i + 1]);
                if (m && m->rank < rank) rank = m->rank, best = i, to = m->id;
            }
            if (rank == TOK_NONE) break;
            id[best] = to;
            memmove(id + best + 1, id + best + 2, (k - best - 2) * sizeof *id);
            k--;
        }
        assert_int_equal(whole.n, k);
        for (size_t i = 0; i < k; i++)
            assert_int_equal(whole.id[i], id[i]);
        mem_free(whole.id);
        mem_free(part.id);
        tok_bpe_fini(&w);
    }
    tok_close(t);
}

TEST(tok_ignore_merges_takes_whole_words)
{
    tok *t = standard(",\"ignore_merges\":true", BYTES, NULL);
    EXPECT(t, "hello", 0, 259);
    EXPECT(t, "hella", 0, 258, 'a');
    tok_close(t);
}

TEST(tok_added_tokens_longest_first_with_their_flags)
{
    tok *t = standard("", BYTES ADDED, NULL);
    EXPECT(t, "a<|im_start|>b", TOK_SPECIAL, 'a', 900, 'b');
    EXPECT(t, "<|im_start|>x", TOK_SPECIAL, 903);
    EXPECT(t, "a \n [strip] \t b", TOK_SPECIAL, 'a', 904, 'b');
    EXPECT(t, "word", TOK_SPECIAL, 905);
    EXPECT(t, "aword", TOK_SPECIAL, 'a', 'w', 'o', 'r', 'd');
    EXPECT(t, "(word)", TOK_SPECIAL, '(', 905, ')');
    assert_int_equal(tok_find(t, "<think>"), 902);
    assert_int_equal(tok_find(t, "hello"), 259);
    assert_int_equal(tok_find(t, "nothere"), -1);
    assert_true(tok_is_special(t, 900) && !tok_is_special(t, 902) && !tok_is_special(t, 300));
    tok_close(t);
}

TEST(tok_control_tokens_in_user_text_are_inert)
{
    tok *t = standard("", BYTES ADDED, NULL);
    static const char *const control[] = {"<|im_start|>", "<\xef\xbd\x9cUser\xef\xbd\x9c>",
                                          "<|im_start|>x"};
    for (int i = 0; i < BASE_COUNT_OF(control); i++)
        for (int cut = 0; cut < 3; cut++) {
            struct str s;
            struct tok_ids ids = {0};
            sl_err err;
            str_init(&s, MEM_MISC, 0);
            str_puts(&s, "<|im_start|>user ");
            size_t a = s.n;
            str_puts(&s, control[i]);
            size_t b = s.n;
            str_puts(&s, " <|im_start|>");
            /* the user's part: all of it, without its first byte, without its last */
            struct text_tmpl_span span[] = {{0, a + (cut == 1), 0},
                                            {a + (cut == 1), b - (cut == 2), 1},
                                            {b - (cut == 2), s.n, 0}};
            ASSERT_OK(
                tok_encode_spans(t, s.p, s.n, &(struct text_tmpl_spans){span, 3}, &ids, &err));
            int n = 0;
            for (int k = 0; k < ids.n; k++)
                n += ids.id[k] >= 900;
            assert_int_equal(n, 2); /* the template's own, at both ends */
            assert_int_equal(ids.id[0], 900);
            assert_int_equal(ids.id[ids.n - 1], 900);
            mem_free(ids.id);
            ids = (struct tok_ids){0};
            ASSERT_OK(tok_encode(t, control[i], strlen(control[i]), 0, &ids, &err));
            for (int k = 0; k < ids.n; k++)
                assert_true(ids.id[k] < 900);
            mem_free(ids.id);
            str_fini(&s);
        }
    EXPECT(t, "<think>", 0, 902); /* normal vocabulary for its owner */
    tok_close(t);
}

TEST(tok_words_run_across_the_border_of_who_wrote_what)
{
    tok *t = standard("", BYTES ADDED, NULL);
    struct text_tmpl_span span[] = {{0, 2, 0}, {2, 5, 1}};
    struct tok_ids ids = {0};
    sl_err err;
    ASSERT_OK(tok_encode_spans(t, "hello", 5, &(struct text_tmpl_spans){span, 2}, &ids, &err));
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.id[0], 259);
    mem_free(ids.id);
    tok_close(t);
}

TEST(tok_normalises_and_still_knows_who_wrote_what)
{
    tok *t = standard("", ",\"normalizer\":{\"type\":\"NFC\"}" BYTES ADDED, NULL);
    static const char text[] = "e\xcc\x81<|im_start|><|im_start|>e\xcc\x81";
    struct text_tmpl_span span[] = {{0, 15, 1}, {15, sizeof text - 1, 0}};
    struct tok_ids ids = {0};
    sl_err err;
    EXPECT(t, "e\xcc\x81", 0, 0xc3, 0xa9);
    ASSERT_OK(
        tok_encode_spans(t, text, sizeof text - 1, &(struct text_tmpl_spans){span, 2}, &ids, &err));
    int n = 0;
    for (int i = 0; i < ids.n; i++)
        n += ids.id[i] == 900;
    assert_int_equal(n, 1);
    assert_int_equal(ids.id[0], 0xc3);
    assert_int_equal(ids.id[ids.n - 1], 0xa9);
    mem_free(ids.id);
    tok_close(t);
}

TEST(tok_bos_eos_and_template_come_from_the_files)
{
    tok *t =
        standard("",
                 BYTES ADDED ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
                             "[{\"SpecialToken\":{\"id\":\"<|im_start|>\"}},{\"Sequence\":{}}]}",
                 "{\"eos_token\":{\"content\":\"<think>\"},\"model_max_length\":"
                 "1000000000000000019884624838656,"
                 "\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":"
                 "\"default\",\"template\":\"D\"}]}");
    const char *text = NULL;
    size_t n;
    assert_int_equal(tok_bos(t), 900);
    assert_true(tok_add_bos(t));
    assert_int_equal(tok_eos(t), 902);
    assert_true(tok_is_eog(t, 902));
    assert_string_equal(tok_eos_text(t), "<think>");
    assert_int_equal(tok_template_for(t, false, &text, &n, NULL), SL_OK);
    assert_string_equal(text, "D");
    assert_int_equal(tok_template_for(t, true, &text, &n, NULL), SL_OK);
    assert_string_equal(text, "T");
    EXPECT(t, "a", TOK_BOS, 900, 'a');
    tok_close(t);
}

TEST(tok_bad_utf8_is_refused_with_its_byte)
{
    tok *t = standard("", BYTES, NULL);
    struct tok_ids ids = {0};
    sl_err err;
    assert_int_equal(tok_encode(t, "ab\xff", 3, 0, &ids, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "byte 2"));
    assert_int_equal(ids.n, 0);
    tok_close(t);
}

TEST(tok_stream_gives_whole_code_points_only)
{
    tok *t = standard("", BYTES ADDED, NULL);
    static const char text[] = "a\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80z";
    struct tok_stream s = {0};
    struct str out;
    sl_err err;
    str_init(&out, MEM_MISC, 0);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        ASSERT_OK(tok_stream_put(t, &s, (unsigned char)text[i], false, &out, &err));
        assert_int_equal(text_utf8_check(str_c(&out), out.n), out.n);
    }
    assert_string_equal(str_c(&out), text);
    str_clear(&out);
    ASSERT_OK(tok_stream_put(t, &s, 0xe4, false, &out, &err)); /* cut short by something else */
    ASSERT_OK(tok_stream_put(t, &s, 'x', false, &out, &err));
    ASSERT_OK(tok_stream_put(t, &s, 0xff, false, &out, &err));
    ASSERT_OK(tok_stream_put(t, &s, 900, false, &out, &err));
    ASSERT_OK(tok_stream_put(t, &s, 902, false, &out, &err));
    ASSERT_OK(tok_stream_put(t, &s, 0xf0, false, &out, &err));
    ASSERT_OK(tok_stream_end(&s, &out, &err));
    assert_string_equal(str_c(&out), "\xef\xbf\xbdx\xef\xbf\xbd<think>\xef\xbf\xbd");
    assert_int_equal(tok_stream_put(t, &s, 5000, false, &out, &err), SL_REQUEST);
    assert_int_equal(tok_stream_put(t, &s, -1, false, &out, &err), SL_REQUEST);
    str_fini(&out);
    tok_close(t);
}

/* docs/reliability.md T4. Each is a change to a good file; all are refused with one line that names
 * the place. */
/* clang-format off */
static const struct {
    const char *json, *says;
} hostile[] = {
    {"", "unexpected end"},
    {"[]", "no object"},
    {"{}", "no model"},
    {"{\"model\":[]}", "no model"},
    {"{\"model\":{\"type\":\"WordPiece\"}}", "WordPiece"},
    {"{\"model\":{\"type\":\"Unigram\"}}", "Unigram"},
    {"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}}", "vocab"},
    {"{\"model\":{\"vocab\":[],\"merges\":[]}}", "vocab"},
    {"{\"model\":{\"vocab\":{},\"merges\":{}}}", "merges"},
    {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.5}}", "dropout"},
    {"{\"model\":{\"vocab\":{},\"merges\":[],\"continuing_subword_prefix\":\"##\"}}",
     "continuing"},
    {"{\"model\":{\"vocab\":{},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", "end_of_word"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", "pre_tokenizer"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Metaspace\"}"
     "}",
     "no decoder"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Metaspace\","
     "\"prepend_scheme\":\"often\"}}",
     "often"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"decoder\":{\"type\":\"CTC\"}}", "CTC"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"decoder\":{\"type\":\"Strip\","
     "\"content\":\" \",\"start\":0,\"stop\":1}}",
     "Strip"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Digits\","
     "\"individual_digits\":true}}",
     "ByteLevel"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":"
     "\"WhitespaceSplit\"}}",
     "WhitespaceSplit"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\","
     "\"pattern\":{\"Regex\":\"(\"}}}",
     "regular expression"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\","
     "\"pattern\":{\"Regex\":\"(a)\\\\1\"}}}",
     "regular expression"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\","
     "\"pattern\":{\"Regex\":\"(?R)\"}}}",
     "regular expression"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\","
     "\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"No\"}}",
     "behavior"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\"}}",
     "pattern"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Lowercase\"}}",
     "Lowercase"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Sequence\","
     "\"normalizers\":[{\"type\":\"NFKC\"}]}}",
     "NFKC"},
    {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}" BYTES "}", "\"a\""},
    {"{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}" BYTES "}", "\"a\""},
    {"{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}" BYTES "}", "\"a\""},
    {"{\"model\":{\"vocab\":{\"a\":2147483647},\"merges\":[]}" BYTES "}", "2147483647"},
    {"{\"model\":{\"vocab\":{\"a\":9223372036854775807},\"merges\":[]}" BYTES "}",
     "9223372036854775807"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}" BYTES "}", "twice"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}" BYTES "}", "twice"},
    {"{\"model\":{\"vocab\":{},\"merges\":[]}" BYTES "}", "vocabulary of 0"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}" BYTES "}", "the result"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"ab\":1},\"merges\":[\"a b\"]}" BYTES "}", "right half"},
    {"{\"model\":{\"vocab\":{\"b\":0,\"ab\":1},\"merges\":[\"a b\"]}" BYTES "}", "left half"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}" BYTES "}", "no pair"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}" BYTES "}", "no pair"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\" a\"]}" BYTES "}", "merge 0"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}" BYTES "}", "no pair"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}" BYTES "}", "no pair"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}" BYTES "}", "no pair"},
    {"{\"model\":{\"vocab\":{\"<0x-1>\":0},\"merges\":[\"<0x-1> <0x-1>\"]}" BYTES "}",
     "the result"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":{}" BYTES "}",
     "added_tokens"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{}]" BYTES "}",
     "added_tokens"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1}]" BYTES "}",
     "content"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":"
     "\"\"}]" BYTES "}",
     "0 bytes"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":"
     "\"x\",\"special\":3}]" BYTES "}",
     "special"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":"
     "\"x\"},{\"id\":1,\"content\":\"y\"}]" BYTES "}",
     "twice"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":999999999,"
     "\"content\":\"x\"}]" BYTES "}",
     "999999999"},
};
/* clang-format on */

TEST(tok_hostile_vocabularies_are_refused)
{
    assert_true(BASE_COUNT_OF(hostile) >= 25);
    for (int i = 0; i < BASE_COUNT_OF(hostile); i++) {
        struct tok_files f = {.tokenizer_json = hostile[i].json,
                              .n_tokenizer_json = strlen(hostile[i].json)};
        tok *x = NULL;
        sl_err err;
        int64_t before = mem_used(MEM_TOK);
        if (tok_open_files(&f, &x, &err) == SL_OK) fail_msg("opened: %s", hostile[i].json);
        assert_null(x);
        if (!strstr(err.text, hostile[i].says)) fail_msg("%s: %s", hostile[i].json, err.text);
        assert_int_equal(mem_used(MEM_TOK), before);
    }
}

TEST(tok_every_named_pre_tokenizer_compiles_and_splits)
{
    static const char *const names[] = {
        "gpt-2",      "smollm",      "llama-bpe",    "qwen2",
        "qwen35",     "deepseek-v3", "deepseek-llm", "deepseek-coder",
        "gpt-4o",     "tekken",      "kimi-k2",      "seed-coder",
        "bailingmoe", "olmo",        "command-r",    "deepseek-r1-qwen",
        "glm4",       "llama3",      "starcoder"};
    static const char text[] = "It's 12345 \xe4\xb8\x96\xe7\x95\x8c\xe3\x81\x82 fooBAR!!\n\n  "
                               "x\t(y) \xd0\xbf\xd1\x80 e\xcc\x81 \xf0\x9f\x98\x80 ";
    for (int i = 0; i < BASE_COUNT_OF(names); i++) {
        tok t = {0};
        struct tok_cut c;
        text_match *m = NULL;
        sl_err err = {0};
        if (tok_pre_named(&t, names[i], strlen(names[i]), &err) != SL_OK)
            fail_msg("%s: %s", names[i], err.text);
        ASSERT_OK(text_match_open(MEM_MISC, &m, &err));
        tok_cut_init(&c, m);
        ASSERT_OK(tok_pre_split(&t, &c, text, sizeof text - 1, &err));
        size_t at = 0;
        for (size_t k = 0; k < c.out->n; k++) {
            assert_int_equal(c.out->v[k].begin, at);
            at = c.out->v[k].end;
        }
        assert_int_equal(at, sizeof text - 1);
        assert_true(c.out->n > 10);
        tok_cut_fini(&c);
        text_match_close(m);
        for (int k = 0; k < t.n_step; k++)
            text_regex_close(t.step[k].re);
    }
    tok t = {0};
    sl_err err;
    assert_int_equal(tok_pre_named(&t, "nothere", 7, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "nothere"));
    assert_int_equal(tok_pre_named(&t, "", 0, &err), SL_UNSUPPORTED);
    assert_int_equal(tok_pre_named(&t, "gpt-2 phi-2", 11, &err), SL_UNSUPPORTED);
}

TEST(regex_means_what_oniguruma_means)
{
    static const struct {
        const char *re, *text;
        int begin, end; /* -1 = no match */
    } t[] = {{"\\s+", "a \xe1\xa0\x8e", 1, 2},
             {"\\S", "\xe1\xa0\x8e", 0, 3},
             {"[^\\s]+", " ab ", 1, 3},
             {"[\\S]", " \xc3\xa9", 1, 3},
             {"\\h+", "xyzfF0", 3, 6},
             {"\\v", "a\x0b", 1, 2},
             {"(?i:LL)", "ll", 0, 2},
             {"\\p{N}{1,3}", "a1234", 1, 4},
             {"\\s+(?!\\S)", "a   b", 1, 3},
             {"\\u4e00", "\xe4\xb8\x80", 0, 3},
             {"x", "abc", -1, -1},
             {"[]a]", "]", 0, 1},
             {"\\d", "\xd9\xa3", 0, 2},
             {"a++b|a", "aab", 0, 3}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        text_regex *r = NULL;
        text_match *m = NULL;
        sl_err err = {0};
        struct text_hit hit = {0};
        if (text_regex_open(MEM_MISC, t[i].re, strlen(t[i].re), &r, &err) != SL_OK)
            fail_msg("%s: %s", t[i].re, err.text);
        ASSERT_OK(text_match_open(MEM_MISC, &m, &err));
        const struct text_subject in = {t[i].text, strlen(t[i].text), 0};
        ASSERT_OK(text_regex_find(r, m, in, &hit, &err));
        if (hit.found != (t[i].begin >= 0) ||
            (hit.found && ((int)hit.begin != t[i].begin || (int)hit.end != t[i].end)))
            fail_msg("%s: %zu %zu", t[i].re, hit.begin, hit.end);
        text_match_close(m);
        text_regex_close(r);
    }
    static const char *const bad[] = {"(?<n>a)", "(?P<n>a)",   "\\1",     "\\k<n>", "(*NO_JIT)a",
                                      "[a[b]]",  "[a&&b]",     "\\b",     "\\K",    "\\C",
                                      "a{,3}",   "(?#x)",      "(?(1)a)", "\\",     "[",
                                      "*",       "\\x{110000}"};
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        text_regex *r = NULL;
        sl_err err;
        if (text_regex_open(MEM_MISC, bad[i], strlen(bad[i]), &r, &err) == SL_OK)
            fail_msg("compiled: %s", bad[i]);
        assert_null(r);
    }
}

TEST(regex_that_runs_away_is_stopped)
{
    text_regex *r = NULL;
    text_match *m = NULL;
    sl_err err;
    struct text_hit hit = {0};
    char text[64];
    memset(text, 'a', sizeof text);
    ASSERT_OK(text_regex_open(MEM_MISC, "(a+)+$(?!a)b", 12, &r, &err));
    ASSERT_OK(text_match_open(MEM_MISC, &m, &err));
    const struct text_subject in = {text, sizeof text, 0};
    sl_status st = text_regex_find(r, m, in, &hit, &err);
    assert_true(st == SL_LIMIT || (st == SL_OK && !hit.found));
    text_match_close(m);
    text_regex_close(r);
}

TEST(nfc_composes_orders_and_is_linear)
{
    static const struct {
        const char *in, *out;
    } t[] = {
        {"abc", "abc"},
        {"e\xcc\x81", "\xc3\xa9"},
        {"\xe2\x84\xab", "\xc3\x85"},              /* Angstrom sign */
        {"a\xcc\x81\xcc\x96", "\xc3\xa1\xcc\x96"}, /* 230 before 220: a, grave below, acute */
        {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"}, /* Hangul parts */
        {"\xea\xb3\xa0\xe1\x86\xa7", "\xea\xb3\xa0\xe1\x86\xa7"}, /* U+11A7 is no final consonant */
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"}};            /* excluded from composition */
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct str s;
        sl_err err;
        str_init(&s, MEM_MISC, 0);
        ASSERT_OK(text_nfc(t[i].in, strlen(t[i].in), &s, &err));
        if (strcmp(str_c(&s), t[i].out) != 0) fail_msg("row %d", i);
        if (text_nfc_quick(t[i].in, strlen(t[i].in))) assert_string_equal(t[i].in, t[i].out);
        str_fini(&s);
    }
    size_t n = 1 << 20;
    char *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i += 2)
        memcpy(p + i, i % 4 ? "\xcc\x81" : "\xcc\x96", 2);
    struct str s;
    sl_err err;
    str_init(&s, MEM_MISC, 0);
    clock_t t0 = clock();
    ASSERT_OK(text_nfc(p, n, &s, &err));
    assert_int_equal(s.n, n);
    assert_true((double)(clock() - t0) / CLOCKS_PER_SEC < 5); /* quadratic would be minutes */
    str_fini(&s);
    free(p);
}

/* docs/reliability.md T1, coarsely: sixteen times the text in at most 2.3^4 times the CPU time. */
TEST(tok_one_long_word_is_near_linear)
{
    tok *t = standard("", BYTES ADDED, NULL);
    static const char *const unit[] = {"a", "l", " ", "hello", "<", "\n", "\xe4\xb8\x96", "7"};
    for (int i = 0; i < BASE_COUNT_OF(unit); i++) {
        double sec[2] = {1e9, 1e9};
        for (int big = 0; big < 2; big++) {
            struct str s;
            str_init(&s, MEM_MISC, 0);
            while (s.n < (big ? 1u << 20 : 1u << 16))
                str_puts(&s, unit[i]);
            for (int rep = 0; rep < 3; rep++) {
                struct tok_ids ids = {0};
                sl_err err;
                clock_t t0 = clock();
                ASSERT_OK(tok_encode(t, s.p, s.n, 0, &ids, &err));
                sec[big] = BASE_MIN(sec[big], (double)(clock() - t0) / CLOCKS_PER_SEC);
                mem_free(ids.id);
            }
            str_fini(&s);
        }
        /* 16 times the text: quadratic, 256 times as long; on a busy machine, caches of others */
        if (sec[1] > 0.2 && sec[1] > 64 * BASE_MAX(sec[0], 0.002))
            fail_msg("'%s': %f s for 64 KiB, %f s for 1 MiB", unit[i], sec[0], sec[1]);
    }
    tok_close(t);
}

TEST(tok_survives_every_failing_allocation)
{
    struct str s;
    int64_t before = mem_used(MEM_TOK), before_r = mem_used(MEM_REQUEST);
    sl_status st = SL_NOMEM;
    uint64_t k = 1;
    str_init(&s, MEM_MISC, 0);
    make(&s, merges, BASE_COUNT_OF(merges), true, "",
         ",\"normalizer\":{\"type\":\"NFC\"}" BYTES ADDED);
    for (; st != SL_OK; k++) {
        struct tok_files f = {.tokenizer_json = s.p, .n_tokenizer_json = s.n};
        struct tok_ids ids = {0};
        struct str text;
        tok *t = NULL;
        sl_err err;
        str_init(&text, MEM_MISC, 0);
        for (int i = 0; i < 300; i++)
            str_puts(&text, "hello e\xcc\x81 <|im_start|> "
                            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ");
        mem_fail_at(k, 1);
        st = tok_open_files(&f, &t, &err);
        if (st == SL_OK) st = tok_encode(t, text.p, text.n, TOK_SPECIAL, &ids, &err);
        mem_fail_at(0, 0);
        if (st != SL_OK && st != SL_NOMEM) fail_msg("allocation %d: %s", (int)k, err.text);
        mem_free(ids.id);
        tok_close(t);
        str_fini(&text);
        assert_int_equal(mem_used(MEM_TOK), before);
        assert_int_equal(mem_used(MEM_REQUEST), before_r);
        assert_true(k < 5000);
    }
    assert_true(k > 30);
    str_fini(&s);
}
