/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader and writer: what is refused, and what comes back unchanged. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test.h"
#include "text/json.h"
#include "text/utf8.h"

#define S(z) z, sizeof(z) - 1

struct row {
    const char *p;
    size_t n;
};

/* clang-format off */
static const struct row yes[] = {
    {S("0")}, {S("-0")}, {S("1")}, {S("-1")}, {S("123456789")},
    {S("9223372036854775807")}, {S("-9223372036854775808")},
    {S("9223372036854775808")}, {S("1000000000000000019884624838656")},
    {S("0.0")}, {S("-0.0")}, {S("1.5")}, {S("1e5")},
    {S("1E5")}, {S("1e+5")}, {S("1e-5")}, {S("1E+05")},
    {S("0e0")}, {S("0e+1")}, {S("1.25e-3")}, {S("123e65")}, {S("1e-400")},
    {S("0.000000000000000000000000000000000000000000000000000000000000000000000000000000000001")},
    {S("-123.456e-78")}, {S("4.9e-324")}, {S("1.7976931348623157e308")},
    {S("true")}, {S("false")}, {S("null")}, {S(" null ")}, {S("\t\r\n 1 \n\r\t")},
    {S("\"\"")}, {S("\"a\"")}, {S("\"\\\"\"")}, {S("\"\\\\\"")},
    {S("\"\\/\"")}, {S("\"\\b\\f\\n\\r\\t\"")},
    {S("\"\\u0041\"")}, {S("\"\\u00e9\"")}, {S("\"\\u20ac\"")},
    {S("\"\\ud834\\udd1e\"")}, {S("\"\\uD834\\uDd1e\"")},
    {S("\"\\u0000\"")}, {S("\"\\u001f\"")}, {S("\"\\uffff\"")},
    {S("\"\\udbff\\udfff\"")}, {S("\"\\ufdd0\"")},
    {S("\"\xc3\xa9\"")}, {S("\"\xe2\x82\xac\"")}, {S("\"\xf0\x9d\x84\x9e\"")},
    {S("\"\xf4\x8f\xbf\xbf\"")}, {S("\"\xef\xbf\xbf\"")},
    {S("\"\xed\x9f\xbf\"")}, {S("\"\xee\x80\x80\"")},
    {S("\"\x7f\"")}, {S("\"/\"")}, {S("\"\xe2\x80\xa8\xe2\x80\xa9\"")}, {S("\"\xc2\x80\"")},
    {S("\" \"")}, {S("\"\\\\u0000\"")}, {S("\"\\\\n\"")}, {S("\"a/*b*/c\"")}, {S("\"//\"")},
    {S("[]")}, {S("[ ]")}, {S("[1]")}, {S("[1,2]")},
    {S("[ 1 , 2 ]")}, {S("[[]]")}, {S("[[],[]]")}, {S("[null,1,\"1\",{}]")},
    {S("[1\n]")}, {S("\n[1]")}, {S("[1,null,null,null,2]")},
    {S("[\"\"]")}, {S("[false]")}, {S("[true]")}, {S("[-1]")}, {S("[1e1]")},
    {S("{}")}, {S("{ }")}, {S("{\"a\":1}")}, {S("{\"a\":1,\"b\":2}")},
    {S("{ \"a\" : 1 , \"b\" : [ ] }")}, {S("{\"\":0}")},
    {S("{\"a\":{\"a\":{\"a\":1}}}")}, {S("{\"a\":1,\"A\":2}")},
    {S("{\"foo\\u0000bar\":42}")}, {S("{\"\\u0061\":1}")},
    {S("{\"a\":[{\"b\":[{}]}]}")}, {S("{\"min\":-1.0e+28,\"max\":1.0e+28}")},
    {S("{\"a\":null}")}, {S("{\"\xe2\x82\xac\":1}")},
};

static const struct row no[] = {
    {S("")}, {S(" ")}, {S("\n")}, {S("\0")}, {S("1\0")}, {S("\xef\xbb\xbf")}, {S("\xff\xfe[\0]\0")},
    {S("-")}, {S("+1")}, {S("01")}, {S("-01")}, {S("00")},
    {S("0x1")}, {S("1.")}, {S(".5")}, {S("-.5")}, {S("1.e1")}, {S("1e")}, {S("1e+")},
    {S("1E-")}, {S("1ea")}, {S("1.2.3")}, {S("1 2")},
    {S("--1")}, {S("- 1")}, {S("1e1.5")}, {S("1_000")}, {S("1,")}, {S("NaN")}, {S("-NaN")},
    {S("Infinity")}, {S("-Infinity")}, {S("inf")},
    {S("1e999")}, {S("-1e999")}, {S("0e")}, {S("0.")}, {S("1f")}, {S("0b1")}, {S("\xef\xbc\x91")},
    {S("tru")}, {S("truE")}, {S("True")}, {S("TRUE")},
    {S("truex")}, {S("fals")}, {S("nul")}, {S("nulL")}, {S("None")}, {S("undefined")}, {S("a")},
    {S("\"")}, {S("\"a")}, {S("\"\\\"")}, {S("\"\\")},
    {S("'a'")}, {S("\"\\a\"")}, {S("\"\\x41\"")}, {S("\"\\'\"")}, {S("\"\\0\"")},
    {S("\"\\u\"")}, {S("\"\\u1\"")}, {S("\"\\u12\"")},
    {S("\"\\u123\"")}, {S("\"\\u123g\"")}, {S("\"\\U0041\"")}, {S("\"\\u 041\"")},
    {S("\"\\ud800\"")}, {S("\"\\udc00\"")}, {S("\"\\ud800\\u0041\"")},
    {S("\"\\ud800\\n\"")}, {S("\"\\ud800\\ud800\"")}, {S("\"\\ud800a\"")},
    {S("\"\\udc00\\ud800\"")}, {S("\"\\ud800\\u\"")},
    {S("\"\\ud800\\udc0\"")}, {S("\"\\\xc3\xa9\"")},
    {S("\"\n\"")}, {S("\"\t\"")}, {S("\"\0\"")}, {S("\"\x1f\"")}, {S("\"\r\"")},
    {S("\"\x80\"")}, {S("\"\xc3\"")}, {S("\"\xc3(\"")},
    {S("\"\xe2\x82\"")}, {S("\"\xc0\x80\"")}, {S("\"\xc1\xbf\"")}, {S("\"\xe0\x80\x80\"")},
    {S("\"\xe0\x9f\xbf\"")}, {S("\"\xed\xa0\x80\"")},
    {S("\"\xed\xbf\xbf\"")}, {S("\"\xf0\x80\x80\x80\"")}, {S("\"\xf0\x8f\xbf\xbf\"")},
    {S("\"\xf4\x90\x80\x80\"")}, {S("\"\xf5\x80\x80\x80\"")},
    {S("\"\xf8\x88\x80\x80\x80\"")}, {S("\"\xfe\"")}, {S("\"\xff\"")}, {S("\"\xe9\"")},
    {S("\"\xf0\x9d\x84\"")}, {S("\"a\" \"b\"")}, {S("\"a\"x")},
    {S("[")}, {S("]")}, {S("[1")}, {S("[1,")}, {S("[,]")},
    {S("[,1]")}, {S("[1,]")}, {S("[1,,2]")}, {S("[1 2]")}, {S("[1:2]")}, {S("[1;2]")},
    {S("[1}")}, {S("[[1]")}, {S("[1]]")}, {S("[\"a\"")},
    {S("[\"a")}, {S("[*]")}, {S("[a]")}, {S("[-]")}, {S("[\v1]")}, {S("[1\f]")},
    {S("[\xc2\xa0" "1]")}, {S("[\xe2\x81\xa0]")}, {S("[1]x")},
    {S("[1] [2]")}, {S("[/**/]")}, {S("[1]//x")}, {S("[1]#x")}, {S("[\"\",]")}, {S("[\xff]")},
    {S("{")}, {S("}")}, {S("{\"a\"")}, {S("{\"a\":")}, {S("{\"a\":1")},
    {S("{\"a\":1,")}, {S("{\"a\":1,}")}, {S("{,}")}, {S("{,\"a\":1}")}, {S("{\"a\"}")},
    {S("{\"a\" 1}")}, {S("{\"a\",1}")}, {S("{\"a\"::1}")},
    {S("{\"a\":1 \"b\":2}")}, {S("{\"a\":1;\"b\":2}")}, {S("{a:1}")}, {S("{'a':1}")}, {S("{1:1}")},
    {S("{null:1}")}, {S("{[]:1}")}, {S("{\"a\":1]")},
    {S("{\"a\":1}}")}, {S("{\"a\":1}x")}, {S("{\"a\":1,,\"b\":2}")}, {S("{\"a\":/*1*/2}")},
    {S("{\"a\":\"a")}, {S("{\"a\":a}")}, {S("{\"a\":1,\"a\":1}")},
    {S("{\"a\":1,\"\\u0061\":2}")}, {S("{\"\xff\":1}")}, {S("{\"a\":{\"b\":1,\"b\":2}}")},
    {S("<null>")}, {S("#")}, {S("//\n1")}, {S("\xe2\x82\xac")},
    {S("[\"\\uD83D\\\"]")}, {S("{\"a\":\xe2\x80\x9c" "b\xe2\x80\x9d}")},
};
/* clang-format on */

static sl_status parse(struct arena *a, const char *p, size_t n, const struct json **out,
                       sl_err *err)
{
    char *copy = malloc(n ? n : 1); /* exactly n bytes: the sanitizer sees a read past them */
    assert_non_null(copy);
    if (n) memcpy(copy, p, n);
    sl_status st = text_json_parse(a, "t", copy, n, out, err);
    free(copy);
    return st;
}

TEST(json_reads_what_the_rfc_allows)
{
    for (int i = 0; i < BASE_COUNT_OF(yes); i++) {
        struct arena a;
        const struct json *v = NULL;
        sl_err err;
        mem_arena_init(&a, MEM_MISC, 0);
        if (parse(&a, yes[i].p, yes[i].n, &v, &err) != SL_OK)
            fail_msg("%s: %s", yes[i].p, err.text);
        assert_non_null(v);
        mem_arena_fini(&a);
    }
}

TEST(json_refuses_the_rest_and_says_where)
{
    for (int i = 0; i < BASE_COUNT_OF(no); i++) {
        struct arena a;
        const struct json *v = NULL;
        sl_err err;
        mem_arena_init(&a, MEM_MISC, 0);
        if (parse(&a, no[i].p, no[i].n, &v, &err) != SL_FORMAT) fail_msg("accepted: %s", no[i].p);
        assert_non_null(strstr(err.text, "t: line "));
        mem_arena_fini(&a);
    }
}

TEST(json_of_python_may_have_what_is_no_number)
{
    static const char doc[] = "{\"a\":NaN,\"b\":[Infinity,-Infinity,-1],\"c\":1e30}";
    struct arena a;
    const struct json *v = NULL;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    assert_int_equal(text_json_parse(&a, "t", doc, sizeof doc - 1, &v, &err), SL_FORMAT);
    ASSERT_OK(text_json_parse_python(&a, "t", doc, sizeof doc - 1, &v, &err));
    assert_true(text_json_is(text_json_get(v, "a"), "NaN"));
    assert_true(text_json_is(text_json_get(v, "b")->item[1], "-Infinity"));
    assert_true(text_json_get(v, "b")->item[2]->i == -1 && text_json_get(v, "c")->f == 1e30);
    for (int i = 0; i < BASE_COUNT_OF(no); i++) {
        bool is_it =
            no[i].n >= 3 && (memcmp(no[i].p, "NaN", 3) == 0 || strstr(no[i].p, "Infinity"));
        if (!is_it)
            assert_int_equal(text_json_parse_python(&a, "t", no[i].p, no[i].n, &v, &err),
                             SL_FORMAT);
    }
    mem_arena_fini(&a);
}

TEST(json_every_cut_of_a_document_is_refused)
{
    static const char doc[] = "{\"a\":[1,-2.5e3,true,null,\"x\\u20ac\xe2\x82\xac\"],\"b\":{}}";
    for (size_t n = 0; n < sizeof doc - 1; n++) {
        struct arena a;
        const struct json *v;
        sl_err err;
        mem_arena_init(&a, MEM_MISC, 0);
        assert_int_equal(parse(&a, doc, n, &v, &err), SL_FORMAT);
        mem_arena_fini(&a);
    }
}

TEST(json_depth_is_capped_at_128)
{
    for (int kind = 0; kind < 2; kind++)
        for (int depth = 127; depth <= 200000; depth = depth < 130 ? depth + 1 : depth * 38) {
            struct str s;
            struct arena a;
            const struct json *v;
            sl_err err;
            str_init(&s, MEM_MISC, 0);
            mem_arena_init(&a, MEM_MISC, 0);
            for (int i = 0; i < depth; i++)
                str_puts(&s, kind ? "{\"a\":" : "[");
            str_puts(&s, "1");
            for (int i = 0; i < depth; i++)
                str_putc(&s, kind ? '}' : ']');
            assert_int_equal(text_json_parse(&a, "t", s.p, s.n, &v, &err),
                             depth <= 128 ? SL_OK : SL_LIMIT);
            mem_arena_fini(&a);
            str_fini(&s);
        }
}

TEST(json_keeps_key_order_and_finds_members)
{
    static const char doc[] = "{\"z\":1,\"a\":[10,20,30],\"m\":{\"x\":\"a\\u0000b\"},\"big\":"
                              "1000000000000000019884624838656,\"r\":0.1,\"n\":null,\"t\":true}";
    struct arena a;
    const struct json *v;
    sl_err err;
    int64_t i;
    double f;
    bool b;
    const char *s;
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(parse(&a, S(doc), &v, &err));
    assert_int_equal(v->n, 7);
    assert_string_equal(v->child->key, "z");
    assert_string_equal(v->child->next->key, "a");
    assert_int_equal(text_json_get(v, "a")->item[2]->i, 30);
    const struct json *x = text_json_get(text_json_get(v, "m"), "x");
    assert_int_equal(x->n, 3);
    assert_memory_equal(x->s, "a\0b", 4);
    assert_true(text_json_get(v, "big")->f == 1e30);
    assert_null(text_json_get(v, "none"));
    assert_null(text_json_get(NULL, "none"));
    ASSERT_OK(text_json_int(v, "z", 7, &i, &err));
    assert_int_equal(i, 1);
    ASSERT_OK(text_json_int(v, "n", 7, &i, &err));
    assert_int_equal(i, 7);
    assert_int_equal(text_json_int(v, "r", 7, &i, &err), SL_FORMAT);
    assert_string_equal(err.text, "r is a real, not an integer");
    ASSERT_OK(text_json_real(v, "r", 0, &f, &err));
    assert_true(f == 0.1);
    ASSERT_OK(text_json_bool(v, "t", false, &b, &err));
    assert_true(b);
    assert_int_equal(text_json_str(v, "t", NULL, &s, &err), SL_FORMAT);
    ASSERT_OK(text_json_str(v, "nothere", "d", &s, &err));
    assert_string_equal(s, "d");
    assert_true(text_json_is(text_json_get(v, "z"), "1") == false);
    mem_arena_fini(&a);
}

TEST(json_refuses_duplicates_in_large_objects)
{
    for (int dup = 0; dup < 2; dup++) {
        struct str s;
        struct arena a;
        const struct json *v;
        sl_err err;
        str_init(&s, MEM_MISC, 0);
        mem_arena_init(&a, MEM_MISC, 0);
        str_putc(&s, '{');
        for (int i = 0; i < 5000; i++)
            str_printf(&s, "%s\"k%d\":%d", i ? "," : "", dup && i == 4321 ? 17 : i, i);
        str_putc(&s, '}');
        assert_int_equal(text_json_parse(&a, "t", s.p, s.n, &v, &err), dup ? SL_FORMAT : SL_OK);
        if (dup) assert_non_null(strstr(err.text, "\"k17\" twice"));
        mem_arena_fini(&a);
        str_fini(&s);
    }
}

TEST(json_writer_round_trips)
{
    static const char doc[] =
        "{\"a\":[1,-2,3.5,[],{},[{\"b\":null}]],\"c\":\"q\\\"\\\\\\n\\u0001\xe2\x82\xac\",\"d\":"
        "true,\"e\":1e-07,\"f\":[false]}";
    struct arena a;
    const struct json *v;
    struct json_w w;
    struct str s;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    ASSERT_OK(parse(&a, S(doc), &v, &err));
    text_jw_init(&w, &s);
    text_jw_node(&w, v);
    assert_string_equal(str_c(&s), doc);
    str_clear(&s);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "x");
    text_jw_real(&w, 0.25, 6);
    text_jw_key(&w, "y");
    text_jw_arr(&w);
    text_jw_real(&w, NAN, 6);
    text_jw_str(&w, S("\xff"
                      "a\xe2\x82"));
    text_jw_node(&w, text_json_get(v, "f"));
    text_jw_int(&w, INT64_MIN);
    text_jw_arr_end(&w);
    text_jw_key(&w, "z");
    text_jw_bool(&w, false);
    text_jw_obj_end(&w);
    assert_string_equal(str_c(&s), "{\"x\":0.25,\"y\":[null,\"\xef\xbf\xbd"
                                   "a\xef\xbf\xbd\",[false],-9223372036854775808],\"z\":false}");
    str_fini(&s);
    mem_arena_fini(&a);
}

TEST(real_repr_is_pythons_and_reads_back)
{
    static const struct {
        double v;
        const char *z;
    } t[] = {{0, "0.0"},
             {1, "1.0"},
             {-2.5, "-2.5"},
             {0.1, "0.1"},
             {1e15, "1000000000000000.0"},
             {1e16, "1e+16"},
             {1e22, "1e+22"},
             {1e-4, "0.0001"},
             {1e-5, "1e-05"},
             {1.5e-7, "1.5e-07"},
             {123456.789, "123456.789"},
             {1e100, "1e+100"},
             {5e-324, "5e-324"},
             {1.7976931348623157e308, "1.7976931348623157e+308"},
             {2.0 / 3, "0.6666666666666666"},
             {-0.0, "-0.0"},
             {9007199254740993.0, "9007199254740992.0"}};
    char buf[32];
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        text_real_repr(t[i].v, buf);
        assert_string_equal(buf, t[i].z);
    }
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = rng_next(&seed);
        double v, r;
        memcpy(&v, &bits, 8);
        if (!isfinite(v)) continue;
        text_real_repr(v, buf);
        r = text_real_parse(buf);
        assert_true(r == v);
    }
}

TEST(utf8_check_finds_the_first_bad_byte)
{
    assert_int_equal(text_utf8_check("", 0), 0);
    assert_int_equal(text_utf8_check(S("plain ascii over eight bytes")), 28);
    assert_int_equal(text_utf8_check(S("abc\xe2\x82\xac\xff")), 6);
    assert_int_equal(text_utf8_check(S("abcdefghijk\xc3")), 11);
    assert_int_equal(text_utf8_count(S("a\xe2\x82\xac"
                                       "b")),
                     3);
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        char b[4];
        uint32_t back = 0;
        int k = text_utf8_encode(c, b);
        assert_int_equal(text_utf8_decode(b, (size_t)k, &back), k);
        assert_int_equal(back, c);
        if (k > 1) assert_int_equal(text_utf8_decode(b, (size_t)k - 1, &back), 0);
    }
}

TEST(utf8_bad_sizes_follow_the_unicode_table)
{
    static const struct {
        const char *p;
        int n, bytes, cut;
    } t[] = {{"\x80", 1, 1, 0},
             {"\xc3", 1, 1, 1},
             {"\xc3"
              "a",
              2, 1, 0},
             {"\xe2\x82", 2, 2, 1},
             {"\xe2\x82"
              "a",
              3, 2, 0},
             {"\xe0\x80", 2, 1, 0},
             {"\xed\xa0\x80", 3, 1, 0},
             {"\xf0\x9d\x84", 3, 3, 1},
             {"\xf4\x90", 2, 1, 0},
             {"\xf0\x9d"
              "a",
              3, 2, 0},
             {"\xff", 1, 1, 0},
             {"\xc0\x80", 2, 1, 0}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        int cut = -1;
        assert_int_equal(text_utf8_bad(t[i].p, (size_t)t[i].n, &cut), t[i].bytes);
        assert_int_equal(cut, t[i].cut);
    }
}

TEST(json_survives_every_failing_allocation)
{
    struct str s;
    sl_err err;
    str_init(&s, MEM_MISC, 0);
    str_puts(&s, "{");
    for (int i = 0; i < 2000; i++)
        str_printf(&s, "\"k%d\":[%d,\"v\",{}],", i, i);
    str_puts(&s, "\"e\":1}");
    sl_status st = SL_NOMEM;
    int64_t before = mem_used(MEM_REQUEST);
    uint64_t k = 1;
    for (; st != SL_OK; k++) {
        struct arena a;
        const struct json *v = NULL;
        mem_arena_init(&a, MEM_REQUEST, 0);
        mem_fail_at(k, 1);
        st = text_json_parse(&a, "t", s.p, s.n, &v, &err);
        mem_fail_at(0, 0);
        assert_true(st == SL_OK || st == SL_NOMEM);
        mem_arena_fini(&a);
        assert_int_equal(mem_used(MEM_REQUEST), before);
        assert_true(k < 20000);
    }
    assert_true(k > 3);
    str_fini(&s);
}

TEST(json_probe_tells_no_json_from_no_memory)
{
    static const struct {
        const char *p;
        bool is;
    } t[] = {{"{\"a\":[1,\"b\"]}", true}, {"{\"a\":", false}, {"ls -l", false}, {"", false}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        for (uint64_t k = 0; k < 8; k++) { /* 0: nothing fails */
            struct arena a;
            const struct json *v = NULL;
            sl_err err = {0};
            mem_arena_init(&a, MEM_REQUEST, 0);
            mem_fail_at(k, 0);
            sl_status st = text_json_probe(&a, t[i].p, strlen(t[i].p), &v, &err);
            mem_fail_at(0, 0);
            assert_int_equal(st, k == 1 ? SL_NOMEM : SL_OK); /* an arena takes one block here */
            assert_int_equal(v != NULL, st == SL_OK && t[i].is);
            assert_int_equal(err.text[0] != 0, st != SL_OK);
            mem_arena_fini(&a);
        }
}

TEST(json_reads_over_a_byte_order_mark)
{
    static const struct {
        const char *p;
        size_t n;
        const char *refused;
    } t[] = {
        {"\xef\xbb\xbf{\"a\":1}", 10, NULL},
        {"\xef\xbb\xbf \n[]", 7, NULL},
        {"\xef\xbb\xbf", 3, "unexpected end"},
        {"\xef\xbb\xbf\xef\xbb\xbf[]", 8, "byte 3"},
        {"\xff\xfe[\0]\0", 6, "UTF-16"},
        {"\xfe\xff\0[\0]", 6, "UTF-16"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct arena a;
        const struct json *v = NULL;
        sl_err err = {0};
        mem_arena_init(&a, MEM_MISC, 0);
        sl_status st = text_json_parse(&a, "t", t[i].p, t[i].n, &v, &err);
        if (t[i].refused ? st == SL_OK || !strstr(err.text, t[i].refused) : st != SL_OK)
            fail_msg("case %d: %d %s", i, st, err.text);
        mem_arena_fini(&a);
    }
}
