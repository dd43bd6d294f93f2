/* SPDX-License-Identifier: Apache-2.0 */
/* Masks against pushes, states, bounded memory, and texts that are meant to hurt. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "base/str.h"
#include "grammar/grammar.h"
#include "test.h"

/* ---- a small vocabulary: all bytes, some words, an end, a control token ---- */
#define N_BYTE 256
static const char *const words[] = {"{\"", "\":",   "\", \"", "\"}",      "true",           "null",
                                    "  ",  "ab",    "abc",    "\xc3\xa9", "\xe2\x82",       "12",
                                    "-1",  "0.5",   "[]",     "],",       "},\n",           "a\"b",
                                    "\\n", "\\u00", "zz",     "\n  ",     "a b c d e f g h"};
enum { N_WORD = BASE_COUNT_OF(words), END = N_BYTE + N_WORD, CONTROL, HOLE, N_VOCAB };

static grammar_vocab *vocab(void)
{
    static char byte[N_BYTE];
    struct grammar_token_bytes t[N_VOCAB] = {{0}};
    grammar_vocab *v = NULL;
    sl_err err;
    for (int i = 0; i < N_BYTE; i++) {
        byte[i] = (char)i;
        t[i] = (struct grammar_token_bytes){&byte[i], 1, GRAMMAR_TOKEN_TEXT};
    }
    for (int i = 0; i < N_WORD; i++)
        t[N_BYTE + i] =
            (struct grammar_token_bytes){words[i], (int)strlen(words[i]), GRAMMAR_TOKEN_TEXT};
    t[END] = (struct grammar_token_bytes){"<end>", 5, GRAMMAR_TOKEN_END};
    t[CONTROL] = (struct grammar_token_bytes){"<user>", 6, GRAMMAR_TOKEN_CONTROL};
    ASSERT_OK(grammar_vocab_open(t, N_VOCAB, &v, &err));
    return v;
}

static grammar *open_text(enum grammar_kind kind, const char *text)
{
    grammar *g = NULL;
    sl_err err;
    ASSERT_OK(grammar_open(kind, text, strlen(text), &g, &err));
    return g;
}

/* A run of a grammar, on the small vocabulary or on none. */
struct fixture {
    grammar_vocab *v;
    grammar *g;
    grammar_run *r;
};

static struct fixture begin(enum grammar_kind kind, const char *text, bool with_vocab)
{
    struct fixture f = {.v = with_vocab ? vocab() : NULL, .g = open_text(kind, text)};
    sl_err err;
    ASSERT_OK(grammar_run_open(f.g, f.v, &f.r, &err));
    return f;
}

static void end(struct fixture *f)
{
    grammar_run_close(f->r);
    grammar_close(f->g);
    grammar_vocab_close(f->v);
}

static bool bit(const uint32_t *bits, int id)
{
    return bits[id / 32] >> id % 32 & 1;
}

/* Follow a random path; at each step every token's bit is what a push says. */
static void compare_walk(grammar_run *r, uint64_t seed, int n_step)
{
    uint32_t bits[(N_VOCAB + 31) / 32];
    enum grammar_where where = GRAMMAR_RUNNING, w;
    sl_err err;
    int s = -1;
    ASSERT_OK(grammar_state_open(r, &s, &err));
    for (int k = 0; k < n_step && where != GRAMMAR_DONE; k++) {
        int n = 0, allowed[N_VOCAB], copy;
        ASSERT_OK(grammar_mask(r, s, bits, &err));
        for (int id = 0; id < N_VOCAB; id++) {
            ASSERT_OK(grammar_state_copy(r, s, &copy, &err));
            ASSERT_OK(grammar_push(r, copy, id, &w, &err));
            grammar_state_close(r, copy);
            if (bit(bits, id) != (w != GRAMMAR_DEAD))
                fail_msg("seed %d step %d token %d", (int)seed, k, id);
            if (bit(bits, id)) allowed[n++] = id;
        }
        assert_true(n > 0);
        int id = allowed[(int)(rng_uniform(seed, 0, (uint64_t)k) * n)];
        ASSERT_OK(grammar_push(r, s, id, &where, &err));
        assert_int_not_equal(where, GRAMMAR_DEAD);
    }
    grammar_state_close(r, s);
}

TEST(grammar_mask_is_what_push_takes)
{
    static const struct {
        enum grammar_kind kind;
        const char *text;
    } row[] = {
        {GRAMMAR_JSON_OBJECT, ""},
        {GRAMMAR_JSON_SCHEMA, "{}"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^.{3,}x$\"}"},
        {GRAMMAR_JSON_SCHEMA,
         "{\"properties\":{\"ab\":{\"type\":\"number\"}},\"additionalProperties\":true}"},
        {GRAMMAR_REGEX, "(ab?c?|[^a]{2,5})*"},
        {GRAMMAR_REGEX, "[^\"\\\\\\x7f]*zz"},
        {GRAMMAR_GBNF, "root ::= x \"!\"\nx ::= [^\"\\\\\\x7F\\x00-\\x1F]* \"\\\"\" y\ny ::= \"a\" "
                       "y \"b\" | [^a]"},
        {GRAMMAR_GBNF, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\""},
        {GRAMMAR_GBNF, "root ::= ([a-z ]* <[280]>)* \"12\""},
    };
    assert_int_equal(CONTROL, 280);
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct fixture f = begin(row[i].kind, row[i].text, true);
        for (uint64_t seed = 1; seed <= 8; seed++)
            compare_walk(f.r, seed, 25);
        end(&f);
    }
}

TEST(grammar_end_and_control_tokens)
{
    struct fixture f = begin(GRAMMAR_GBNF, "root ::= \"a\" | \"a\" <[280]> \"b\"", true);
    grammar_run *r = f.r;
    uint32_t bits[(N_VOCAB + 31) / 32];
    enum grammar_where w;
    sl_err err;
    int s = -1;
    ASSERT_OK(grammar_state_open(r, &s, &err));
    ASSERT_OK(grammar_push(r, s, END, &w, &err));
    assert_int_equal(w, GRAMMAR_DEAD);
    ASSERT_OK(grammar_push(r, s, HOLE, &w, &err));
    assert_int_equal(w, GRAMMAR_DEAD);
    ASSERT_OK(grammar_push(r, s, N_VOCAB, &w, &err));
    assert_int_equal(w, GRAMMAR_DEAD);
    ASSERT_OK(grammar_push(r, s, 'a', &w, &err));
    assert_int_equal(w, GRAMMAR_CAN_STOP);
    ASSERT_OK(grammar_mask(r, s, bits, &err));
    assert_true(bit(bits, END) && bit(bits, CONTROL));
    assert_false(bit(bits, 0xff) || bit(bits, HOLE) || bit(bits, 'b'));
    ASSERT_OK(grammar_push(r, s, CONTROL, &w, &err));
    assert_int_equal(w, GRAMMAR_RUNNING);
    ASSERT_OK(grammar_push(r, s, 'b', &w, &err));
    assert_int_equal(w, GRAMMAR_DONE);
    ASSERT_OK(grammar_push(r, s, END, &w, &err));
    assert_int_equal(w, GRAMMAR_DONE);
    grammar_state_close(r, s);
    end(&f);
}

TEST(grammar_that_wants_an_absent_token_says_so)
{
    struct fixture f = begin(GRAMMAR_GBNF, "root ::= <[999]>", true);
    grammar_run *r = f.r;
    uint32_t bits[(N_VOCAB + 31) / 32];
    sl_err err;
    int s = -1;
    ASSERT_OK(grammar_state_open(r, &s, &err));
    ASSERT_STATUS(grammar_mask(r, s, bits, &err), SL_REQUEST);
    end(&f);
}

/* Bytes without a choice, as far as there is none: to a class, to where the answer may end. */
TEST(grammar_says_which_bytes_must_come)
{
    static const struct {
        const char *pattern, *after, *want;
    } row[] = {{"key\": [0-9]+", "", "key\": "}, {"key\": [0-9]+", "key", "\": "},
               {"(one|only) way", "", "on"},     {"(one|only) way", "one", " way"},
               {"(one|only) way", "on", ""},     {"end(ing)?", "", "end"},
               {"end(ing)?", "endi", "ng"},      {"a{3}b", "", "aaab"}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct fixture f = begin(GRAMMAR_REGEX, row[i].pattern, false);
        enum grammar_where w;
        char out[16];
        size_t n = 0, want = strlen(row[i].want);
        int s = -1;
        sl_err err;
        ASSERT_OK(grammar_state_open(f.r, &s, &err));
        ASSERT_OK(grammar_push_bytes(f.r, s, row[i].after, strlen(row[i].after), &w, &err));
        ASSERT_OK(grammar_forced_bytes(f.r, s, out, sizeof out, &n, &err));
        if (n != want || memcmp(out, row[i].want, n) != 0)
            fail_msg("%s after \"%s\": \"%.*s\"", row[i].pattern, row[i].after, (int)n, out);
        ASSERT_OK(grammar_forced_bytes(f.r, s, out, 2, &n, &err)); /* and the state stays */
        assert_int_equal(n, BASE_MIN(want, 2));
        end(&f);
    }
}

TEST(grammar_states_are_independent)
{
    struct fixture f = begin(GRAMMAR_REGEX, "a*b", false);
    grammar_run *r = f.r;
    enum grammar_where w;
    sl_err err;
    int a, b, c;
    ASSERT_OK(grammar_state_open(r, &a, &err));
    ASSERT_OK(grammar_push_bytes(r, a, "aa", 2, &w, &err));
    ASSERT_OK(grammar_state_copy(r, a, &b, &err));
    ASSERT_OK(grammar_push_bytes(r, b, "b", 1, &w, &err));
    assert_int_equal(w, GRAMMAR_DONE);
    ASSERT_OK(grammar_state_where(r, a, &w, &err));
    assert_int_equal(w, GRAMMAR_RUNNING);
    ASSERT_OK(grammar_push_bytes(r, a, "ax", 2, &w, &err));
    assert_int_equal(w, GRAMMAR_DEAD); /* and did not move */
    ASSERT_OK(grammar_push_bytes(r, a, "ab", 2, &w, &err));
    assert_int_equal(w, GRAMMAR_DONE);
    grammar_state_close(r, b);
    ASSERT_OK(grammar_state_open(r, &c, &err));
    assert_int_equal(c, b); /* numbers are used again */
    grammar_state_close(r, a);
    grammar_state_close(r, c);
    grammar_state_close(r, -1);
    end(&f);
}

/* A text with ever new situations: what a run holds stays bounded, and it goes on. */
TEST(grammar_run_memory_is_bounded)
{
    struct fixture f =
        begin(GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", true);
    grammar_run *r = f.r;
    uint32_t bits[(N_VOCAB + 31) / 32];
    enum grammar_where w;
    sl_err err;
    int s;
    ASSERT_OK(grammar_state_open(r, &s, &err));
    for (int i = 0; i < 12000; i++) {
        ASSERT_OK(grammar_push_bytes(r, s, "[[],", 4, &w, &err));
        if (i % 16 == 0) ASSERT_OK(grammar_mask(r, s, bits, &err));
        assert_true(grammar_run_bytes(r) < 3 * (size_t)GRAMMAR_RUN_BYTES);
    }
    for (int i = 0; i < 12000; i++)
        ASSERT_OK(grammar_push_bytes(r, s, i ? "]" : "[]]", i ? 1 : 3, &w, &err));
    assert_int_equal(w, GRAMMAR_DONE);
    end(&f);
}

TEST(grammar_leaks_nothing_over_many)
{
    sl_err err;
    int64_t used = mem_used(MEM_REQUEST);
    for (int i = 0; i < 2000; i++) {
        char text[200];
        grammar *g = NULL;
        grammar_run *r = NULL;
        enum grammar_where w;
        int s;
        int n = snprintf(text, sizeof text,
                         "{\"properties\":{\"k%d\":{\"type\":\"integer\",\"minimum\":%d}},"
                         "\"required\":[\"k%d\"]%s",
                         i, i, i, i % 3 ? "}" : ",");
        if (grammar_open(GRAMMAR_JSON_SCHEMA, text, (size_t)n, &g, &err)) continue;
        ASSERT_OK(grammar_run_open(g, NULL, &r, &err));
        ASSERT_OK(grammar_state_open(r, &s, &err));
        ASSERT_OK(grammar_push_bytes(r, s, "{\"k", 3, &w, &err));
        grammar_run_close(r);
        grammar_close(g);
    }
    assert_int_equal(mem_used(MEM_REQUEST), used);
}

/* ---- hostile texts ---- */

static void put_n(struct str *s, const char *z, int n)
{
    for (int i = 0; i < n; i++)
        str_puts(s, z);
}

/* head, n times mid, tail. */
struct hostile {
    enum grammar_kind kind;
    const char *head, *mid;
    int n;
    const char *tail;
    int n_tail;
    const char *end;
};
/* clang-format off */
static const struct hostile hostile[] = {
    {GRAMMAR_REGEX, "", "(", 60000, ")", 60000, ""},
    {GRAMMAR_REGEX, "", "(?:", 60000, "", 0, ""},
    {GRAMMAR_REGEX, "a", "*", 60000, "", 0, ""},
    {GRAMMAR_REGEX, "", "(a|", 127, ")", 127, ""},
    {GRAMMAR_REGEX, "", "(a*)*", 20000, "", 0, ""},
    {GRAMMAR_REGEX, "", "((((a*)*)*)*)*", 5000, "", 0, ""},
    {GRAMMAR_REGEX, "", "(", 100, "){2}", 100, ""},
    {GRAMMAR_REGEX, "", "(", 60, "a){1000}", 60, ""},
    {GRAMMAR_REGEX, "(a|b)*a", "(a|b)", 5000, "", 0, ""},
    {GRAMMAR_REGEX, "(.*)", "(.*)", 4000, "x", 1, ""},
    {GRAMMAR_REGEX, "a{100000}", "", 0, "", 0, ""},
    {GRAMMAR_REGEX, "(a{100000}){100000}", "", 0, "", 0, ""},
    {GRAMMAR_REGEX, ".{100000}", "", 0, "", 0, ""},
    {GRAMMAR_REGEX, "a{99999999999999999999}", "", 0, "", 0, ""},
    {GRAMMAR_REGEX, "[", "a-z", 20000, "]", 1, ""},
    {GRAMMAR_REGEX, "", "a|", 200000, "b", 1, ""},
    {GRAMMAR_REGEX, "(", "[^a]?", 20000, ")*", 1, ""},
    {GRAMMAR_REGEX, "\\", "\\\\", 60000, "", 0, ""},
    {GRAMMAR_REGEX, "[", "\\", 60001, "", 0, ""},
    {GRAMMAR_REGEX, "", "(?<n>", 60000, "", 0, ""},
    {GRAMMAR_REGEX, "", "\xf0\x9f\x98\x80", 200000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= ", "(", 60000, ")", 60000, ""},
    {GRAMMAR_GBNF, "root ::= \"a\"", "*", 60000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= \"a\"", "{1000}", 5, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= (\"a\"*)*", "", 0, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= ", "(\"a\"*)* ", 20000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= ", "\"a\" | ", 100000, "\"b\"", 1, ""},
    {GRAMMAR_GBNF, "root ::= ", "root ", 60000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= ", "x", 100000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= x\nx ::= ", "x? ", 20000, "\"a\"", 1, ""},
    {GRAMMAR_GBNF, "", "root ::= \"a\"\n", 20000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= r* r*\nr ::= s* s*\ns ::= t* t*\nt ::= \"a\"* \"a\"*",
     "", 0, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= \"a\" root root | \"a\"", "", 0, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= [", "\\", 60001, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= \"", "\\x", 60000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::= <[99999999999]>", "", 0, "", 0, ""},
    {GRAMMAR_GBNF, "", "#", 100000, "", 0, ""},
    {GRAMMAR_GBNF, "root ::=", "\n", 100000, "|", 1000, ""},
    {GRAMMAR_JSON_SCHEMA, "", "{\"items\":", 60000, "{}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "", "{\"items\":", 100, "{}", 1,
     "}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}"
     "}}}}}}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"enum\":[", "\"abcdefgh\",", 60000, "1]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"enum\":[", "1,", 200000, "1]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[", "{\"type\":\"string\"},", 30000, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"oneOf\":[", "{\"type\":\"string\"},", 30000, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[", "{\"$ref\":\"#\"},", 30000, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"required\":[", "\"a\",", 100000, "\"b\"]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#", "/a", 60000, "\"}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"", "(", 60000, "\"}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^", "(a|b)*", 5000, "$\"}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":100000}", "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":100000}", "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":1e99}", "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":100000,\"maxItems\":100000}",
     "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"minimum\":-1e308,\"maximum\":1e308}", "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":-9223372036854775808,"
                          "\"maximum\":9223372036854775807}", "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"exclusiveMinimum\":9223372036854775807}",
     "", 0, "", 0, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"prefixItems\":[", "{},", 30000, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"allOf\":[",
     "{\"anyOf\":[{\"required\":[\"a\"]},{\"minProperties\":2}]},", 3000, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA_LOOSE, "{\"allOf\":[",
     "{\"anyOf\":[{\"required\":[\"a\"]},{\"minProperties\":2}]},", 60, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA_LOOSE, "{\"oneOf\":[", "{\"properties\":{\"a\":{}}},", 190, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA_LOOSE, "{\"allOf\":[",
     "{\"pattern\":\"(a|b)*a(a|b){13}\",\"maxLength\":90},", 200, "{}]}", 1, ""},
    {GRAMMAR_JSON_SCHEMA_LOOSE, "", "{\"not\":", 100, "{}", 1,
     "}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}"
     "}}}}}}}}}}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"description\":\"", "x", 1000000, "\"}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"description\":\"", "x", 2000000, "\"}", 1, ""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":[", "\"string\",", 1000, "\"null\"]}", 1, ""},
};
/* clang-format on */

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Compiles or is refused, in bounded time and memory; what compiles gives masks and takes bytes or
 * says LIMIT. */
TEST(grammar_hostile_texts_are_harmless)
{
    grammar_vocab *v = vocab();
    int n_ok = 0;
    assert_true(BASE_COUNT_OF(hostile) >= 60);
    for (int i = 0; i < BASE_COUNT_OF(hostile); i++) {
        const struct hostile *h = &hostile[i];
        struct str s;
        grammar *g = NULL;
        sl_err err = {0};
        str_init(&s, MEM_MISC, 0);
        str_puts(&s, h->head);
        put_n(&s, h->mid, h->n);
        put_n(&s, h->tail, h->n_tail);
        str_puts(&s, h->end);
        double t0 = cpu_ms();
        sl_status st = grammar_open(h->kind, str_c(&s), s.n, &g, &err);
        double ms = cpu_ms() - t0;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(NDEBUG)
        if (ms > 250) fail_msg("%.40s: %.0f ms", str_c(&s), ms);
#endif
        (void)ms;
        if (st && st != SL_REQUEST && st != SL_LIMIT) fail_msg("%.40s: %s", str_c(&s), err.text);
        if (st && !err.text[0]) fail_msg("%.40s: no reason", str_c(&s));
        if (!st) {
            uint32_t bits[(N_VOCAB + 31) / 32];
            grammar_run *r = NULL;
            enum grammar_where w;
            int at;
            n_ok++;
            assert_true(grammar_bytes(g) < (size_t)32 << 20);
            ASSERT_OK(grammar_run_open(g, v, &r, &err));
            ASSERT_OK(grammar_state_open(r, &at, &err));
            for (int k = 0; k < 20; k++) {
                st = grammar_mask(r, at, bits, &err);
                if (!st) st = grammar_push_bytes(r, at, k % 2 ? "a" : "[", 1, &w, &err);
                if (st) assert_int_equal(st, SL_LIMIT);
            }
            assert_true(grammar_run_bytes(r) < 3 * (size_t)GRAMMAR_RUN_BYTES);
            grammar_run_close(r);
        }
        grammar_close(g);
        str_fini(&s);
    }
    assert_true(n_ok >= 10);
    grammar_vocab_close(v);
}

/* Each allocation that fails is told, and nothing is lost. */
TEST(grammar_survives_failed_allocations)
{
    static const char text[] = "{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"b+\"},"
                               "\"c\":{\"enum\":[1,2,3]},\"d\":{\"multipleOf\":7}},"
                               "\"required\":[\"a\"]}";
    sl_err err;
    grammar_vocab *v = vocab();
    int64_t used = mem_used(MEM_REQUEST);
    for (uint64_t k = 1;; k++) {
        uint32_t bits[(N_VOCAB + 31) / 32];
        grammar *g = NULL;
        grammar_run *r = NULL;
        enum grammar_where w;
        int s = -1;
        mem_fail_at(k, 0);
        sl_status st = grammar_open(GRAMMAR_JSON_SCHEMA, text, sizeof text - 1, &g, &err);
        if (!st) st = grammar_run_open(g, v, &r, &err);
        if (!st) st = grammar_state_open(r, &s, &err);
        if (!st) st = grammar_mask(r, s, bits, &err);
        if (!st) st = grammar_push_bytes(r, s, "{\"a\": \"", 7, &w, &err);
        if (!st) st = grammar_mask(r, s, bits, &err);
        mem_fail_at(0, 0);
        grammar_run_close(r);
        grammar_close(g);
        assert_int_equal(mem_used(MEM_REQUEST), used);
        if (!st) break;
        assert_int_equal(st, SL_NOMEM);
        assert_true(k < 5000);
    }
    grammar_vocab_close(v);
}
