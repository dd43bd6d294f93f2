/* SPDX-License-Identifier: Apache-2.0 */
/* What each language accepts and refuses, in tables: every keyword, every error. */
#include <stdio.h>
#include <string.h>

#include "grammar/grammar.h"
#include "test.h"

/* Does the grammar accept the text as a whole? */
static bool accepts(enum grammar_kind kind, const char *text, const char *in)
{
    sl_err err;
    grammar *g = NULL;
    grammar_run *r = NULL;
    enum grammar_where where = GRAMMAR_DEAD;
    int s = -1;
    ASSERT_OK(grammar_open(kind, text, strlen(text), &g, &err));
    ASSERT_OK(grammar_run_open(g, NULL, &r, &err));
    ASSERT_OK(grammar_state_open(r, &s, &err));
    ASSERT_OK(grammar_push_bytes(r, s, in, strlen(in), &where, &err));
    grammar_state_close(r, s);
    grammar_run_close(r);
    grammar_close(g);
    return where == GRAMMAR_CAN_STOP || where == GRAMMAR_DONE;
}

struct row {
    const char *text;
    const char *yes[6], *no[6];
};

static void check_rows(enum grammar_kind kind, const struct row *row, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 6 && row[i].yes[k]; k++)
            if (!accepts(kind, row[i].text, row[i].yes[k]))
                fail_msg("%s does not accept %s", row[i].text, row[i].yes[k]);
        for (int k = 0; k < 6 && row[i].no[k]; k++)
            if (accepts(kind, row[i].text, row[i].no[k]))
                fail_msg("%s accepts %s", row[i].text, row[i].no[k]);
    }
}

/* clang-format off */
static const struct row regexes[] = {
    {"", {""}, {"a"}},
    {"abc", {"abc"}, {"ab", "abcd", ""}},
    {"^abc$", {"abc"}, {"xabc"}},
    {"^a|b$", {"a", "b"}, {"ab"}},
    {"a|b|", {"a", "b", ""}, {"ab"}},
    {"a*b+c?", {"b", "aabbc", "bc"}, {"a", "bcc"}},
    {"a{2}", {"aa"}, {"a", "aaa"}},
    {"a{2,}", {"aa", "aaaaa"}, {"a"}},
    {"a{1,3}?", {"a", "aaa"}, {"", "aaaa"}},
    {"(ab|c)*d", {"d", "abcabd"}, {"abc"}},
    {"(?:x)(?P<n>y)(?<m>z)", {"xyz"}, {"xy"}},
    {"[a-c]", {"a", "c"}, {"d", ""}},
    {"[^a-c]", {"d", "\xc3\xa9", "\n"}, {"a", ""}},
    {"[\\d\\-x]+", {"1-x"}, {"y"}},
    {"[a-]", {"a", "-"}, {"b"}},
    {"\\d\\w\\s", {"1_ "}, {"a_ "}},
    {"\\D\\W\\S", {"a-b"}, {"1-b"}},
    {".", {"a", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}, {"\n", "\xe2\x82"}},
    {"\\x41\\u0042\\u{43}\\t\\.\\/", {"ABC\t./"}, {"ABC\tx/"}},
    {"\\ud83d\\ude00", {"\xf0\x9f\x98\x80"}, {"a"}},
    {"[\xc3\xa0-\xc3\xbf]+", {"\xc3\xa9\xc3\xbf"}, {"\xc4\x80", "a"}},
    {"[\\u0700-\\u{10300}]", {"\xdf\xbf", "\xe2\x82\xac", "\xf0\x90\x8c\x80"},
     {"\xdb\xbf", "\xf0\x90\x8c\x81"}},
    {"(\"a\"*)*", {"", "\"a\"", "\"a\"\"\""}, {"a"}},
    {"((((a*)*)*)*)*", {"", "aaaa"}, {"b"}},
    {"(a|a)*(a|a)*", {"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, {"aaab"}},
};
static const struct row gbnfs[] = {
    {"root ::= \"a\" [b-d]* \"e\"?", {"a", "abbe", "ae"}, {"", "aa"}},
    {"root ::= x | y\nx ::= \"1\"\ny ::= \"2\" x?\n", {"1", "2", "21"}, {"12"}},
    {"# a comment\nroot ::= (\"a\" |\n  \"b\")+ # more\n", {"a", "bab"}, {""}},
    {"root ::=\n  \"a\"\n", {"a"}, {"b"}},
    {"root ::= \"\\n\\t\\\\\\\"\\x41\\u00e9\\U0001F600\"",
     {"\n\t\\\"A\xc3\xa9\xf0\x9f\x98\x80"}, {"n"}},
    {"root ::= [^\"\\\\\\]]{2,3}", {"ab", "[[["}, {"a", "a\"", "]]"}},
    {"root ::= .{2}", {"\xc3\xa9\n"}, {"a"}},
    {"root ::= \"a\"{,2} \"b\"{1,}", {"b", "aabb"}, {"aaab", "a"}},
    {"root ::= (\"(\" root \")\")?", {"", "()", "((()))"}, {"(", "())"}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"",
     {"1", "1+(2+3)", "((1))"}, {"1+", "(1"}},
    {"root ::= ws \"x\" ws\nws ::= ([ \\t\\n] ws)?", {"x", "  x\n "}, {" "}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
     {"", "ab", "aabc", "aaacbc"}, {"a", "abb"}},
    {"root-1 ::= \"z\"\nroot ::= root-1", {"z"}, {"a"}},
    {"root ::= \"<\" %json "
     "{\"type\":\"object\",\"properties\":{\"a}\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"a}\"],"
     "\"$defs\":{\"n\":{\"type\":\"integer\"}}} \">\" x\nx ::= \"!\"",
     {"<{\"a}\":3}>!"}, {"<{\"a}\":\"\"}>!", "<{}>!", "<{\"a}\":3}>"}},
    {"root ::= %json {\"const\":1} | %json {\"const\":2} | %json true \"x\"",
     {"1", "2", "\"a\"x", "[{}]x"}, {"\"a\"", "3"}},
    {"root ::= (%json {\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":1} \";\")+",
     {"[];", "[[]];[];"}, {"[1];", "[]"}},
    {"root ::= %regex \"[0-9]{2}|\\x61\" \".\"", {"12.", "a."}, {"1.", "12"}},
    {"%root a-b\nroot ::= \"r\"\na-b ::= root \"x\"", {"rx"}, {"r"}},
    {"%root root\nroot ::= \"r\"", {"r"}, {""}},
};
static const struct row schemas[] = {
    {"{}", {"1", "\"a\"", "[1, {\"a\": null}]", "true", "-0.5e3"}, {"", "01", "nul", "[1,]"}},
    {"true", {"{}"}, {"{"}},
    {"{\"type\":\"null\"}", {"null"}, {"0"}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True"}},
    {"{\"type\":\"string\"}", {"\"\"", "\"\xc3\xa9\\n\\u00e9\\ud83d\\ude00\""},
     {"\"", "\"\n\"", "\"\\ud800\"", "\"\\x\"", "\"\xff\""}},
    {"{\"type\":[\"integer\",\"null\"]}", {"1", "null"}, {"\"\""}},
    {"{\"type\":\"string\",\"nullable\":true}", {"\"\"", "null"}, {"1"}},
    {"{\"enum\":[1,\"a\",null,[1,2],{\"k\":\"v\"}]}",
     {"1", "\"a\"", "null", "[1,2]", "{\"k\":\"v\"}"}, {"2", "a"}},
    {"{\"type\":\"string\",\"enum\":[1,\"a\"]}", {"\"a\""}, {"1"}},
    {"{\"const\":\"a\\\"b\"}", {"\"a\\\"b\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"a\xc3\xa9\\n\""}, {"\"a\"", "\"abcd\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", {"\"ab\""}, {"\"\"", "\"A\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\n]$\"}",
     {"\"\\\"\"", "\"\\\\\"", "\"\\n\""}, {"\"\"\"", "\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]*$\",\"minLength\":1,\"maxLength\":2}",
     {"\"a\"", "\"bc\""}, {"\"\"", "\"abc\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"0000-01-01\"", "\"2024-04-31\""}},
    {"{\"format\":\"date-time\"}", {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+01:00\""},
     {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\""}},
    {"{\"format\":\"time\"}", {"\"12:00:00Z\""}, {"\"12:00\""}},
    {"{\"format\":\"duration\"}", {"\"P1D\"", "\"PT5M\"", "\"P2W\""}, {"\"P\"", "\"PT\""}},
    {"{\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
    {"{\"format\":\"email\"}", {"\"a.b@c.de\""}, {"\"a\"", "\"a@b\""}},
    {"{\"format\":\"hostname\"}", {"\"a-b.c\""}, {"\"-a\""}},
    {"{\"format\":\"ipv4\"}", {"\"255.0.10.1\""}, {"\"256.0.0.1\"", "\"1.2.3\""}},
    {"{\"format\":\"ipv6\"}", {"\"::1\"", "\"1:2:3:4:5:6:7:8\""}, {"\"1:2\""}},
    {"{\"format\":\"uri\"}", {"\"https://a.b/c?d=e#f\""}, {"\"a\""}},
    {"{\"type\":\"integer\"}", {"0", "-12"}, {"01", "1.0", "-", "-0"}},
    {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}",
     {"-3", "0", "9", "12"}, {"-4", "13", "99"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":112}",
     {"10", "99", "111"}, {"9", "112", "120"}},
    {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":2.5}", {"2"}, {"1", "3"}},
    {"{\"type\":\"integer\",\"format\":\"int32\"}", {"2147483647", "-2147483648"}, {"2147483648"}},
    {"{\"type\":\"integer\",\"minimum\":1000}", {"1000", "999999999999999999"}, {"999", "-1000"}},
    {"{\"type\":\"number\"}", {"1", "-0.5", "1e5", "2.5E-3"}, {".5", "1.", "+1"}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":2.25}",
     {"-1.5", "-1.499", "0", "2.25", "2.2"}, {"-1.51", "2.26", "3"}},
    {"{\"type\":\"integer\",\"multipleOf\":7}",
     {"0", "7", "-14", "999999999999999999", "770", "-999999999999999999"},
     {"1", "-0", "07", "999999999999999997", "1000000000000000001", "70.0"}},
    {"{\"type\":\"integer\",\"multipleOf\":1000}",
     {"0", "-1000", "12345000", "999999999999999000"}, {"100", "1500", "1001", "00", "12345001"}},
    {"{\"type\":\"integer\",\"multipleOf\":3,\"minimum\":-100,\"exclusiveMaximum\":9999}",
     {"-99", "-3", "0", "9", "9996", "111"}, {"-102", "9999", "10002", "100", "-1", "9998"}},
    {"{\"type\":\"integer\",\"multipleOf\":25,\"minimum\":40,\"maximum\":99}",
     {"50", "75"}, {"25", "100", "40", "0", "-50"}},
    {"{\"multipleOf\":2.5,\"type\":\"integer\"}", {"5", "-10", "0"}, {"2", "7", "2.5"}},
    {"{\"multipleOf\":0.25}", {"0", "0.25", "-3.5", "12.50", "100000000000.25", "1.0"},
     {"0.1", "0.3", "-0", "1.", ".5", "00.5"}},
    {"{\"type\":\"number\",\"multipleOf\":2.5,\"minimum\":-2.5,\"exclusiveMaximum\":10000}",
     {"-2.5", "0", "2.5", "9997.5", "5"}, {"-5", "10000", "2", "0.5", "-7.5"}},
    {"{\"type\":\"number\",\"multipleOf\":0.1,\"minimum\":0,\"maximum\":1}",
     {"0", "0.1", "0.5", "1"}, {"0.3", "0.05", "1.1", "-0.1", "0.15"}},
    {"{\"type\":\"number\",\"multipleOf\":4}", {"0", "-4", "123456789012"}, {"2", "4.5", "4.0"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
     {"0.1", "0.999", "0.0001"}, {"0", "1", "0.0", "1.0", "-0.1"}},
    {"{\"type\":\"number\",\"minimum\":99.99}", {"99.99", "100", "100.5", "99.991"},
     {"99.98", "99", "-100"}},
    {"{\"type\":\"number\",\"maximum\":-1}", {"-1", "-1.0", "-2.5"}, {"-0.9", "0", "1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[ ]", "[1]", "[1, 2,\n  3]"}, {"[1,]", "[,1]", "[\"a\"]"}},
    {"{\"items\":{\"const\":1},\"minItems\":2,\"maxItems\":3}",
     {"[1,1]", "[1,1,1]"}, {"[]", "[1]", "[1,1,1,1]"}},
    {"{\"type\":\"array\",\"items\":{\"const\":1},\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}]}", {"[]", "[1]", "[1,2]"}, {"[2]", "[1,2,3]"}},
    {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":9},\"minItems\":2,\"maxItems\":3}",
     {"[1,9]", "[1,9,9]"}, {"[1]", "[9,9]", "[1,9,9,9]"}},
    {"{\"type\":\"array\",\"uniqueItems\":false,\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"null\"}}}",
     {"[[],[null]]"}, {"[null]"}},
    {"{\"type\":\"object\"}", {"{}", "{\"a\":1,\"b\":{}}"}, {"[]", "{\"a\"}", "{\"a\":1,}"}},
    {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
     "\"required\":[\"b\"]}",
        {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}",
         "{ \"a\": 1, \"b\": 2, \"c\": 3 }", "{\n  \"b\": 2\n}"},
        {"{}", "{\"a\":1}", "{\"b\":2,\"a\":1}", "{\"b\":2,\"d\":4}", "{,\"b\":2}"}},
    {"{\"properties\":{\"a\":{\"const\":1}}}", {"{}", "{\"a\":1}"}, {"{\"a\":2}", "{\"b\":1}"}},
    {"{\"properties\":{\"ab\":{\"const\":1}},\"additionalProperties\":{\"const\":9}}",
        {"{}", "{\"ab\":1}", "{\"a\":9}", "{\"ab\":1,\"abc\":9,\"\":9,\"b\":9}"},
     {"{\"ab\":9}", "{\"a\":1}", "{\"a\\u0062\":9}"}},
    {"{\"properties\":{},\"required\":[\"z\"],\"additionalProperties\":true}",
     {"{\"z\":1}", "{\"z\":1,\"y\":2}"}, {"{}", "{\"y\":2}"}},
    {"{\"properties\":{\"a\":false,\"b\":{\"const\":1}},\"additionalProperties\":false}",
     {"{}", "{\"b\":1}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"additionalProperties\":false}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"a\":1,\"b\":2}"}, {"{\"a\":\"\"}"}},
    {"{\"properties\":{\"q\\\"\":{\"const\":1}},\"required\":[\"q\\\"\"]}",
     {"{\"q\\\"\":1}"}, {"{\"q\":1}"}},
    {"{\"anyOf\":[{\"const\":1},{\"const\":\"a\"}]}", {"1", "\"a\""}, {"2"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"a\""}, {"null"}},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},"
     "{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
        {"{\"k\":\"a\"}", "{\"k\":\"b\"}"}, {"{}"}},
    {"{\"allOf\":[{\"const\":1}],\"description\":\"d\"}", {"1"}, {"2"}},
    {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"properties\":{\"v\":{\"const\":1},"
     "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":[\"v\","
     "\"next\"]}}}",
        {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":1,\"next\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]"}},
    {"{\"properties\":{\"a/b\":{\"const\":1},\"c\":{\"$ref\":\"#/properties/a~1b\"}},"
     "\"required\":[\"c\"]}", {"{\"c\":1}"}, {"{\"c\":2}"}},
    {"{\"title\":\"t\",\"$schema\":\"s\",\"x-more\":1,\"default\":3,\"type\":\"integer\","
     "\"minLength\":3}", {"5"}, {"\"a\""}},
    {"{\"type\":\"string\",\"format\":\"email\",\"minLength\":6,\"maxLength\":20}",
     {"\"a@b.co\""}, {"\"a@b.c\"", "\"aaaaaaaaaaaaaaaaaaaaaaaaaa@b.co\""}},
    {"{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}",
     {"\"http://a.b/c?d=e#f\""}, {"\"\"", "\"a b\""}},
    {"{\"format\":\"iri\",\"maxLength\":3}", {"\"abc\""}, {"\"abcd\""}},
    {"{\"type\":\"integer\",\"format\":\"uint8\"}", {"0", "255"}, {"-1", "256"}},
    {"{\"pattern\":\"^a|b$\",\"maxLength\":3}", {"\"axx\"", "\"xb\""}, {"\"axxx\"", "\"xa\""}},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"},{\"not\":{\"pattern\":\"ab\"}}]}",
     {"\"ba\"", "\"axb\""}, {"\"ab\"", "\"a\""}},
    {"{\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}",
     {"\"1.5\"", "\"+.5\""}, {"\"-\"", "\".\"", "\"\""}},
    {"{\"pattern\":\"^(?=.*[A-Z])(?=.*[0-9]).{4,6}$\"}",
     {"\"abC1\"", "\"1ABCDE\""}, {"\"abc1\"", "\"C1\"", "\"abcdeC1\""}},
    {"{\"pattern\":\"^(?!-)[a-z-]+(?<!-)$\"}", {"\"a-b\"", "\"a\""}, {"\"-a\"", "\"a-\""}},
    {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},"
     "\"additionalProperties\":{\"type\":\"string\"}}", {"{}", "{\"a\":\"b\"}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}",
     {"{\"ab\":1}"}, {"{\"A\":1}"}},
    {"{\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"minProperties\":2}",
     {"{\"a\":1,\"b\":2}"}, {"{\"a\":1}", "{\"c\":1}", "{}"}},
    {"{\"patternProperties\":{\"^S_\":{\"type\":\"string\"},\"_I$\":{\"minimum\":3}},"
     "\"additionalProperties\":false}", {"{\"S_a\":\"x\"}", "{\"a_I\":3}", "{}"},
     {"{\"S_a\":1}", "{\"S_I\":3}", "{\"x\":1}"}},
    {"{\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,\"maxProperties\":2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"}, {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2}",
     {"{\"a\":1,\"c\":2}"}, {"{\"a\":1}", "{}"}},
    {"{\"$defs\":{\"A\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},"
     "\"required\":[\"x\"]}},\"allOf\":[{\"$ref\":\"#/$defs/A\"},"
     "{\"properties\":{\"y\":{\"type\":\"integer\"},\"x\":{\"minimum\":5}},\"required\":[\"y\"]}]}",
     {"{\"x\":5,\"y\":2}"}, {"{\"x\":5}", "{\"x\":4,\"y\":2}"}},
    {"{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\"}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":\"\"}", "{\"b\":\"\"}", "{\"a\":\"\",\"b\":\"\"}"}, {"{}", "{\"a\":1}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", {"1.5", "-0.25"}, {"1", "2.0"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"const\":\"a\"}]}", {"\"b\""}, {"\"a\"", "1"}},
    {"{\"properties\":{},\"required\":[\"a\"]}", {"{\"a\":1}"}, {"{}", "{\"b\":1}"}},
    {"{\"$ref\":\"#/$defs/a\",\"required\":[\"y\"],"
     "\"$defs\":{\"a\":{\"properties\":{\"x\":{\"const\":1},\"y\":{}}}}}",
     {"{\"x\":1,\"y\":2}"}, {"{\"x\":1}"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/a\","
     "\"required\":[\"y\"],\"definitions\":{\"a\":{\"const\":1}}}", {"1"}, {"2"}},
    {"{\"$ref\":\"#b\",\"$defs\":{\"a\":{\"$anchor\":\"b\",\"const\":1}}}", {"1"}, {"2"}},
    {"{\"$id\":\"http://x.y/a.json\",\"$ref\":\"c.json#/$defs/d\","
     "\"$defs\":{\"c\":{\"$id\":\"c.json\",\"$defs\":{\"d\":{\"const\":1}}}}}", {"1"}, {"2"}},
    {"{\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true}",
     {"[\"c\",\"a\"]", "[]", "[\"a\",\"b\",\"c\"]"}, {"[\"a\",\"a\"]", "[\"d\"]"}},
    {"{\"items\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
     {"[1,\"a\"]", "[1]", "[]"}, {"[\"a\"]", "[1,\"a\",2]"}},
    {"{\"contains\":{\"type\":\"integer\"},\"items\":{\"type\":[\"integer\",\"string\"]},"
     "\"minContains\":1,\"maxContains\":2}", {"[1]", "[\"a\",1,\"b\",2]"},
     {"[]", "[\"a\"]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":7}}", {"[7]", "[1,7,\"x\"]"}, {"[]", "[1]"}},
    {"{\"not\":{\"type\":\"string\"}}", {"1", "null", "[]"}, {"\"a\""}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]}}",
     {"\"c\"", "\"ab\""}, {"\"a\"", "\"b\""}},
    {"{\"type\":\"integer\",\"not\":{\"const\":5},\"minimum\":4,\"maximum\":6}",
     {"4", "6"}, {"5", "7"}},
    {"{\"properties\":{\"a\":{\"enum\":[1,2]},\"z\":{\"type\":\"string\"}},\"required\":[\"a\"],"
     "\"if\":{\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"required\":[\"z\"]},"
     "\"else\":{\"properties\":{\"z\":{\"maxLength\":1}}}}",
     {"{\"a\":1,\"z\":\"abc\"}", "{\"a\":2}", "{\"a\":2,\"z\":\"b\"}"},
     {"{\"a\":1}", "{\"a\":2,\"z\":\"abc\"}"}},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"{\"a\":1,\"b\":2}", "{\"b\":1}", "{}"}, {"{\"a\":1}"}},
    {"{\"properties\":{\"a\":{},\"b\":{}},"
     "\"dependencies\":{\"a\":{\"properties\":{\"b\":{\"const\":2}}}}}",
     {"{\"a\":1,\"b\":2}", "{\"b\":1}", "{\"a\":1}"}, {"{\"a\":1,\"b\":3}"}},
    {"{\"minimum\":3,\"exclusiveMinimum\":true,\"type\":\"integer\"}", {"4"}, {"3"}},
    {"{\"enum\":[\"a\",\"abc\",3],\"maxLength\":1}", {"\"a\"", "3"}, {"\"abc\""}},
    {"{\"enum\":[3,4],\"multipleOf\":3}", {"3"}, {"4"}},
    {"{\"multipleOf\":10,\"minimum\":1,\"maximum\":9,\"type\":[\"number\",\"null\"]}",
     {"null"}, {"5"}},
    {"{\"allOf\":[{\"multipleOf\":2},{\"multipleOf\":6}],\"minimum\":1,\"maximum\":13}",
     {"6", "12"}, {"2", "3"}},
    {"{\"type\":\"string\",\"maxLength\":30000,\"minLength\":1}", {"\"a\""}, {"\"\""}},
    {"{\"typ\":\"string\",\"x-a\":1,\"not\":false,\"markdownDescription\":\"m\"}",
     {"1", "\"a\""}, {"a"}},
    {"{\"unevaluatedProperties\":false,\"properties\":{\"a\":{}},"
     "\"allOf\":[{\"properties\":{\"b\":{\"const\":1}}}]}",
     {"{\"a\":1,\"b\":1}"}, {"{\"c\":1}", "{\"b\":2}"}},
};

static const struct {
    enum grammar_kind kind;
    const char *text, *says;
} refused[] = {
    {GRAMMAR_REGEX, "(a", "byte 0: a group without its )"},
    {GRAMMAR_REGEX, "a)", "byte 1: a ) without its group"},
    {GRAMMAR_REGEX, "[a", "a class without its ]"},
    {GRAMMAR_REGEX, "[]", "an empty class"},
    {GRAMMAR_REGEX, "[z-a]", "whose end is before its beginning"},
    {GRAMMAR_REGEX, "[\\d-z]", "can not begin with a set"},
    {GRAMMAR_REGEX, "[a-\\d]", "can not end with a set"},
    {GRAMMAR_REGEX, "[[:alpha:]]", "named classes"},
    {GRAMMAR_REGEX, "*a", "byte 0: nothing to repeat"},
    {GRAMMAR_REGEX, "a**", "nothing to repeat"},
    {GRAMMAR_REGEX, "a|*", "byte 2: nothing to repeat"},
    {GRAMMAR_REGEX, "a{2", "not a repeat count"},
    {GRAMMAR_REGEX, "a{,2}", "not a repeat count"},
    {GRAMMAR_REGEX, "{2}", "nothing to repeat"},
    {GRAMMAR_REGEX, "a{3,2}", "most is below its least"},
    {GRAMMAR_REGEX, "a++", "possessive"},
    {GRAMMAR_REGEX, "(a)\\1", "back references"},
    {GRAMMAR_REGEX, "(?<n>a)\\k<n>", "back references"},
    {GRAMMAR_REGEX, "a(?=b)", "look-around"},
    {GRAMMAR_REGEX, "(?<!b)a", "look-around"},
    {GRAMMAR_REGEX, "(?i)a", "this kind of group"},
    {GRAMMAR_REGEX, "(?<n", "name without its >"},
    {GRAMMAR_REGEX, "\\ba", "\\b is not supported"},
    {GRAMMAR_REGEX, "\\p{L}", "\\p is not supported"},
    {GRAMMAR_REGEX, "a\\", "a backslash at the end"},
    {GRAMMAR_REGEX, "\\xg1", "hexadecimal"},
    {GRAMMAR_REGEX, "\\u{110000}", "no code point"},
    {GRAMMAR_REGEX, "\\ud800", "a surrogate"},
    {GRAMMAR_REGEX, "a^b", "at the two ends only"},
    {GRAMMAR_REGEX, "(^a)", "at the two ends only"},
    {GRAMMAR_REGEX, "\xff", "byte 0: not UTF-8"},
    {GRAMMAR_GBNF, "", "there is no rule root"},
    {GRAMMAR_GBNF, "a ::= \"b\"", "there is no rule root"},
    {GRAMMAR_GBNF, "root ::= x", "line 1 column 10: there is no rule x"},
    {GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "line 2 column 1: a rule with this name"},
    {GRAMMAR_GBNF, "root = \"a\"", "::= is missing"},
    {GRAMMAR_GBNF, "root ::= \"a", "closing quote"},
    {GRAMMAR_GBNF, "root ::= [a", "without its ]"},
    {GRAMMAR_GBNF, "root ::= (\"a\"", "without its )"},
    {GRAMMAR_GBNF, "root ::= \"a\")", "without its group"},
    {GRAMMAR_GBNF, "root ::= * \"a\"", "nothing to repeat"},
    {GRAMMAR_GBNF, "root ::= \"a\"{2", "not a repeat count"},
    {GRAMMAR_GBNF, "root ::= \"a\"{3,1}", "below its least"},
    {GRAMMAR_GBNF, "root ::= \"\\q\"", "unknown escape"},
    {GRAMMAR_GBNF, "root ::= \"\\xZZ\"", "hexadecimal"},
    {GRAMMAR_GBNF, "root ::= \"\\ud800\"", "no code point"},
    {GRAMMAR_GBNF, "root ::= [z-a]", "before its beginning"},
    {GRAMMAR_GBNF, "root ::= root \"a\" | \"b\"", "root: left recursion"},
    {GRAMMAR_GBNF, "root ::= x\nx ::= y? x \"a\" | \"b\"\ny ::= \"c\"", "x: left recursion"},
    {GRAMMAR_GBNF, "root ::= root", "no answer is possible"},
    {GRAMMAR_GBNF, "root ::= \"a\" root", "no answer is possible"},
    {GRAMMAR_GBNF, "root ::= <think>", "a token is written <[id]>"},
    {GRAMMAR_GBNF, "root ::= !<[3]>", "not supported"},
    {GRAMMAR_GBNF, "root ::= $", "not a literal"},
    {GRAMMAR_GBNF, "root ::= %xml {}", "line 1 column 10: not %json SCHEMA"},
    {GRAMMAR_GBNF, "root ::= %", "name is missing"},
    {GRAMMAR_GBNF, "root ::= %regex", "not %json SCHEMA"},
    {GRAMMAR_GBNF, "root ::= %regex \"(\"", "regex: byte 0: a group without its )"},
    {GRAMMAR_GBNF, "root ::= %json", "line 1 column 15: schema: line 1 column 1"},
    {GRAMMAR_GBNF, "root ::= %json {", "schema: line 1 column 2"},
    {GRAMMAR_GBNF, "root ::= %json {\"a\":\"}", "schema: line 1 column"},
    {GRAMMAR_GBNF, "%root a\nroot ::= \"b\"", "there is no rule a"},
    {GRAMMAR_GBNF, "%root \nroot ::= \"b\"", "name is missing"},
    {GRAMMAR_GBNF, "::= \"a\"", "name is missing"},
    {GRAMMAR_GBNF, "root ::= \"a\" |\n %json {\"uniqueItems\":true}",
     "line 2 column 8: schema: #/uniqueItems: is supported for items"},
    {GRAMMAR_JSON_SCHEMA, "{\"not\":{}}", "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"uniqueItems\":true}",
     "#/uniqueItems: is supported for items of few values"},
    {GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a\":{\"$dynamicRef\":\"#x\"}}}",
     "#/properties/a/$dynamicRef: is not supported"},
    {GRAMMAR_JSON_SCHEMA, "{\"not\":{\"multipleOf\":3}}",
     "#/not/multipleOf: is not supported inside of not"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"minProperties\":2}",
     "#/minProperties: more than one of names"},
    {GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"\\\\p{L}\"}", "#/pattern: byte 0: \\p is not supported"},
    {GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"a(?=b)c\"}",
     "#/pattern: byte 1: look-around is supported at the two ends"},
    {GRAMMAR_JSON_SCHEMA, "{\"patternProperties\":{\"(\":{}}}", "a group without its )"},
    {GRAMMAR_JSON_SCHEMA, "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"object\"}]}",
     "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"properties\":{},\"additionalProperties\":false,\"required\":[\"a\"]}",
     "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"required\":true}", "#/required: must be a list"},
    {GRAMMAR_JSON_SCHEMA, "{\"allOf\":[3]}", "#/allOf/0: a schema must be"},
    {GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"^[ab]*a[ab]{16}$\",\"maxLength\":90}", "too many states"},
    {GRAMMAR_JSON_SCHEMA, "{", "schema: line 1 column 2"},
    {GRAMMAR_JSON_SCHEMA, "[]", "#: a schema must be an object"},
    {GRAMMAR_JSON_SCHEMA, "false", "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"multipleOf\":0}", "#/multipleOf: must be"},
    {GRAMMAR_JSON_SCHEMA, "{\"multipleOf\":-3}", "#/multipleOf: must be"},
    {GRAMMAR_JSON_SCHEMA, "{\"multipleOf\":\"3\"}", "#/multipleOf: must be"},
    {GRAMMAR_JSON_SCHEMA, "{\"multipleOf\":0.01}", "multipleOf 0.01: supported between bounds"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"multipleOf\":7919}",
     "multipleOf: more than 40000"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"text\"}", "#/type: not a type"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":3}", "#/type: must be"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":[3]}", "#/type: must hold"},
    {GRAMMAR_JSON_SCHEMA, "{\"enum\":[]}", "#/enum: must be a list"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"enum\":[\"a\"]}", "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[]}", "#/anyOf: must be a list"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"http://a/b\"}", "#/$ref: only references inside"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/a\"}", "#/$ref: refers to no schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#\"}", "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[{\"$ref\":\"#\"},{\"const\":1}]}", "left recursion"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"(\"}", "#/pattern: byte 0"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":3}", "#/pattern: must be"},
    {GRAMMAR_JSON_SCHEMA, "{\"minLength\":-1}", "#/minLength: must be a whole number"},
    {GRAMMAR_JSON_SCHEMA, "{\"maxLength\":1.5}", "#/maxLength: must be a whole number"},
    {GRAMMAR_JSON_SCHEMA, "{\"minLength\":3,\"maxLength\":2}", "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"minItems\":3,\"maxItems\":2}", "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"minimum\":\"3\"}", "#/minimum: must be a number"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}",
     "no answer is possible"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"minimum\":1e300}", "more digits"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":1e18}", "#/minimum: over 18 digits"},
    {GRAMMAR_JSON_SCHEMA, "{\"properties\":[]}", "#/properties: must be an object"},
    {GRAMMAR_JSON_SCHEMA, "{\"required\":\"a\"}", "#/required: must be a list"},
    {GRAMMAR_JSON_SCHEMA, "{\"required\":[1]}", "#/required: must hold names"},
    {GRAMMAR_JSON_SCHEMA, "{\"prefixItems\":{}}", "#/prefixItems: must be a list"},
    {GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a\":3},\"required\":[\"a\"]}",
     "#/properties/a: a schema must be"},
};
/* clang-format on */

TEST(grammar_regex_rows)
{
    check_rows(GRAMMAR_REGEX, regexes, BASE_COUNT_OF(regexes));
}

TEST(grammar_gbnf_rows)
{
    check_rows(GRAMMAR_GBNF, gbnfs, BASE_COUNT_OF(gbnfs));
}

TEST(grammar_schema_rows)
{
    check_rows(GRAMMAR_JSON_SCHEMA, schemas, BASE_COUNT_OF(schemas));
}

TEST(grammar_object_takes_any_object)
{
    assert_true(accepts(GRAMMAR_JSON_OBJECT, "", "{\"a\": [1, {}, \"\\u00e9\"], \"b\": null}"));
    assert_false(accepts(GRAMMAR_JSON_OBJECT, "", "[]"));
}

TEST(grammar_refuses_by_name_and_place)
{
    for (int i = 0; i < BASE_COUNT_OF(refused); i++) {
        sl_err err = {0};
        grammar *g = NULL;
        sl_status st =
            grammar_open(refused[i].kind, refused[i].text, strlen(refused[i].text), &g, &err);
        if (st != SL_REQUEST || g) fail_msg("%s: status %d", refused[i].text, (int)st);
        if (!strstr(err.text, refused[i].says))
            fail_msg("%s: says %s, not %s", refused[i].text, err.text, refused[i].says);
    }
}

/* What a loose schema still holds, and what it says that it does not. */
static const struct {
    const char *text, *yes, *no, *relaxed;
} loose[] = {
    {"{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"array\",\"uniqueItems\":true,"
     "\"items\":{"
     "\"type\":\"string\"}}},\"required\":[\"s\"]}",
     "{\"s\":[\"a\",\"a\"]}", "{\"s\":[1]}", "#/properties/s/uniqueItems"},
    {"{\"type\":\"string\",\"pattern\":\"\\\\p{L}\",\"maxLength\":2}", "\"1\"", "\"123\"",
     "#/pattern"},
    {"{\"properties\":{\"a\":{\"$ref\":\"http://x/y\"},\"b\":{\"type\":\"integer\"}}}",
     "{\"a\":[],\"b\":1}", "{\"b\":\"\"}", "#/properties/a/$ref"},
    {"{\"type\":\"object\",\"minProperties\":2}", "{\"a\":1,\"a\":2}", "{\"a\":1}",
     "#/minProperties"},
    {"{\"oneOf\":[{\"multipleOf\":3},{\"type\":\"integer\",\"multipleOf\":5}]}", "5", "7",
     "#/oneOf/multipleOf"},
    {"{\"not\":{}}", "{\"a\":1}", "1", "#"},
    {"{\"type\":[\"array\",\"null\"],\"not\":{}}", "[1]", "1", "#"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"const\":1}]}", "{}", "1", "#"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":3}}}",
     "{\"a\":\"abc\"}", "{\"a\":\"abcd\"}", ""},
    /* what Go writes for members that it does not have; a value of null stays one */
    {"{\"type\":\"object\",\"description\":null,\"properties\":{\"a\":{\"const\":null,\"enum\":"
     "null},"
     "\"const\":{\"type\":\"integer\",\"items\":null},\"b\":null},\"required\":null,\"$defs\":"
     "null}",
     "{\"a\":null,\"const\":1,\"b\":[]}", "{\"a\":1}", ""},
    {"{\"type\":\"object\",\"properties\":null,\"required\":[\"a\"]}", "{\"a\":1}", "1", ""},
    {"{\"enum\":[null,{\"x\":null}]}", "{\"x\":null}", "{}", ""},
};

TEST(grammar_loose_holds_what_it_can)
{
    for (int i = 0; i < BASE_COUNT_OF(loose); i++) {
        sl_err err = {0};
        grammar *g = NULL;
        ASSERT_OK(grammar_open(GRAMMAR_JSON_SCHEMA_LOOSE, loose[i].text, strlen(loose[i].text), &g,
                               &err));
        if (!accepts(GRAMMAR_JSON_SCHEMA_LOOSE, loose[i].text, loose[i].yes) ||
            accepts(GRAMMAR_JSON_SCHEMA_LOOSE, loose[i].text, loose[i].no))
            fail_msg("%s: %s or not %s", loose[i].text, loose[i].yes, loose[i].no);
        if (strcmp(grammar_relaxed(g), loose[i].relaxed) != 0)
            fail_msg("%s: not held: %s", loose[i].text, grammar_relaxed(g));
        grammar_close(g);
    }
}

TEST(grammar_loose_refuses_what_is_no_schema)
{
    static const char *const wrong[] = {
        "{\"type\":\"text\"}",
        "{\"properties\":[]}",
        "{\"minLength\":\"3\"}",
        "{\"enum\":[]}",
        "{\"allOf\":[3]}",
        "{\"anyOf\":[]}",
        "[]",
        "{",
        "{\"pattern\":3}",
        "{\"required\":[1]}",
        "{\"maximum\":\"x\"}",
    };
    static const char none[] = "{\"type\":\"object\",\"required\":null}";
    sl_err why = {0};
    grammar *strict = NULL;
    assert_int_equal(grammar_open(GRAMMAR_JSON_SCHEMA, none, strlen(none), &strict, &why),
                     SL_REQUEST);
    for (int i = 0; i < BASE_COUNT_OF(wrong); i++) {
        sl_err err = {0};
        grammar *g = NULL;
        assert_int_equal(
            grammar_open(GRAMMAR_JSON_SCHEMA_LOOSE, wrong[i], strlen(wrong[i]), &g, &err),
            SL_REQUEST);
    }
}

/* In a grammar of several schemas the one that can not be held is relaxed, and no other. */
TEST(grammar_loose_in_gbnf_relaxes_one)
{
    static const char text[] = "root ::= %json-loose {\"not\":{}} \"|\" %json-loose "
                               "{\"type\":\"integer\",\"maximum\":3} \"|\" %json {\"const\":1}";
    assert_true(accepts(GRAMMAR_GBNF, text, "{}|3|1"));
    assert_false(accepts(GRAMMAR_GBNF, text, "{}|4|1"));
    assert_false(accepts(GRAMMAR_GBNF, text, "1|3|1"));
}
