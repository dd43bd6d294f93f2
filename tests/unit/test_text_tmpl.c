/* SPDX-License-Identifier: Apache-2.0 */
/* The template interpreter against Jinja's answers, and hostile templates. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"
#include "text/tmpl.h"

static const char msgs[] =
    "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"a <|im_end|> b\"},"
    "{\"role\":\"assistant\",\"content\":null,\"n\":1.0,\"tool_calls\":[{\"function\":{\"name\":"
    "\"f\",\"arguments\":{\"x\":1,\"y\":\"\xc3\xa9<\"}}}]}]";

/* Render src over msgs. spans may be NULL. */
static sl_status render(const char *src, size_t n, struct str *out, struct arena *a,
                        struct text_tmpl_spans *spans, sl_err *err)
{
    text_tmpl *t = NULL;
    const struct json *m = NULL;
    struct text_tmpl_vars v = {
        .add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>"};
    sl_status st = text_tmpl_open(src, n, &t, err);
    if (st != SL_OK) return st;
    st = text_json_parse(a, "m", msgs, sizeof msgs - 1, &m, err);
    v.messages = m;
    if (st == SL_OK) st = text_tmpl_render(t, &v, a, out, spans, err);
    text_tmpl_close(t);
    return st;
}

static void expect(const char *src, const char *want)
{
    struct str out;
    struct arena a;
    sl_err err = {0};
    str_init(&out, MEM_MISC, 0);
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = render(src, strlen(src), &out, &a, NULL, &err);
    if (st != SL_OK) fail_msg("%s: %s", src, err.text);
    if (strcmp(str_c(&out), want) != 0)
        fail_msg("%s: got '%s', expected '%s'", src, str_c(&out), want);
    mem_arena_fini(&a);
    str_fini(&out);
}

/* Each expected text is what jinja2 3.1.6 makes of it, set up as transformers does. */
TEST(tmpl_white_space_control_is_jinjas)
{
    static const struct {
        const char *src, *want;
    } t[] = {{"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
             {"a {% if true %} b {% endif %} c", "a  b  c"},
             {"a\n  {{ 1 }}\n b", "a\n  1\n b"},
             {"a \n {%- if true -%} \n b \n {%- endif -%} \n c", "abc"},
             {"a\n  {%+ if true +%}\nb{% endif %}", "a\n  \nb"},
             {"x {{- 1 -}} y", "x1y"},
             {"a\n  {# note #}\nb", "a\nb"},
             {"a\r\nb\rc", "a\nb\nc"},
             {"a\n\n", "a\n"},
             {"{% set x = 1 %}  {% set y = 2 %}\n{{ x }}", "  1"},
             {"{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}", "}}1"},
             {"\xc2\xa0{{- 'x' }}", "x"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        expect(t[i].src, t[i].want);
}

TEST(tmpl_expressions_are_pythons)
{
    static const struct {
        const char *src, *want;
    } t[] = {
        {"{{ 1 + 2 * 3 ** 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}",
         "19 -4 2 3.5 1024"},
        {"{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }}", "a1NoneTrue1.0"},
        {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }}", "True False True"},
        {"{{ not 1 == 2 and 'x' or 'y' }}", "x"},
        {"{{ 'b' in 'abc' }} {{ 4 not in [1, 2] }} {{ 'x' in {'x': 1} }}", "True True True"},
        {"{{ 'yes' if messages else 'no' }}{{ 'z' if false }}", "yes"},
        {"{{ 'h\\u00e9llo'[1] }}{{ 'abc'[-1] }}{{ 'abcdef'[::-2] }}{{ [1,2,3,4][1:-1] }}",
         "\xc3\xa9"
         "cfdb[2, 3]"},
        {"{{ [1, 'a', none, {'k': \"it's\"}] }} {{ (1,) }} {{ () }}",
         "[1, 'a', None, {'k': \"it's\"}] (1,) ()"},
        {"{{ messages[2].n }} {{ messages[2]['none'] }}|{{ messages[9] }}", "1.0 |"},
        {"{{ 'a\\nb\\\\' | tojson }} {{ messages[2].tool_calls[0].function.arguments | tojson }}",
         "\"a\\nb\\\\\" {\"x\": 1, \"y\": \"\xc3\xa9<\"}"},
        {"{{ {'b': [1, {}], 'a': []} | tojson(indent=2) }}",
         "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}"},
        {"{{ {'b': 1, 'a': '\xc3\xa9'} | tojson(sort_keys=true, ensure_ascii=true, "
         "separators=(',', ':')) }}",
         "{\"a\":\"\\u00e9\",\"b\":1}"},
        {"{{ 'x' * 3 }}{{ [0] * 2 }}{{ 'a' 'b' }}", "xxx[0, 0]ab"},
        {"{{ undefined_thing }}{{ undefined_thing is defined }}{{ undefined_thing is iterable }}{{ "
         "undefined_thing | length }}",
         "FalseTrue0"},
        {"{{ -1 | abs }}{{ 3.7 | int }}{{ '12' | int + 1 }}{{ 'x' | int(5) }}{{ 2.5 | round }}",
         "131352.0"},
        {"{{ ('<a>' | safe) + '&' }}", "<a>&amp;"},
        {"{{ range(3) == [0, 1, 2] }}{{ range(3) == range(0, 3) }}{{ range(9)[2:4] | list }}",
         "FalseTrue[2, 3]"},
        {"{{ messages[0].keys() == ['role', 'content'] }}{{ messages[0].keys()[0] }}{{ "
         "messages[0].keys() is sequence }}{{ messages[0].keys() | list }}",
         "FalseFalse['role', 'content']"},
        {"{% set g = messages | map(attribute='role') %}{{ g | first }}{{ 'user' in g }}{{ g | "
         "list }}{{ g | list }}{{ 1 if g }}",
         "systemTrue['assistant'][]1"},
        {"{{ [].append is defined }}{% macro m(a) %}{% endmacro %}{{ m.name }}{{ m.other }}",
         "Falsem"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        expect(t[i].src, t[i].want);
}

TEST(tmpl_statements_keep_jinjas_scopes)
{
    static const struct {
        const char *src, *want;
    } t[] = {
        {"{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = 9 %}{% endfor %}{{ x }}", "111"},
        {"{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor "
         "%}{{ ns.n }}",
         "10"},
        {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ loop.index }}{{ k }}{{ v }}{{ '' if "
         "loop.last else ',' }}{% endfor %}",
         "1a1,2b2"},
        {"{% for i in [1,2,3,4] if i is even %}{{ i }}{{ loop.length }}{% else %}none{% endfor %}",
         "2242"},
        {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
        {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break "
         "%}{% endif %}{{ i }}{% endfor %}",
         "0134"},
        {"{% macro m(a, b='B') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}{{ m(4, "
         "5) }}",
         "[1B][32][45]"},
        {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "3210"},
        {"{% set x %}a{{ 1 }}{% endset %}{{ x }}{% set y | upper %}b{% endset %}{{ y }}", "a1B"},
        {"{% filter upper | trim %} ab {% endfilter %}", "AB"},
        {"{% generation %}{% set z = 1 %}g{% endgeneration %}{{ z is defined }}", "gFalse"},
        {"{% for i in [1,2,3] %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}",
         "-2;1-3;2-;"},
        {"{% if false %}a{% elif 1 %}b{% else %}c{% endif %}", "b"},
        {"{% set a, b = 1, (2, 3) %}{{ a }}{{ b[1] }}", "13"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        expect(t[i].src, t[i].want);
}

TEST(tmpl_filters_and_methods_are_pythons)
{
    static const struct {
        const char *src, *want;
    } t[] = {{"{{ messages | map(attribute='role') | join(',') }}", "system,user,assistant"},
             {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | "
              "first }}",
              "a <|im_end|> b"},
             {"{{ messages | rejectattr('content') | list | length }}{{ [1,2,3] | select('odd') | "
              "list }}",
              "1[1, 3]"},
             {"{{ ' ab ' | trim }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n a'.lstrip() }}", "ab|a|a"},
             {"{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}{{ 'a b "
              "c'.rsplit(' ', 1) }}",
              "['a', 'b', '', 'c']['a', 'b']['a', 'b c']['a b', 'c']"},
             {"{{ 'stra\xc3\x9f"
              "e'.upper() }}{{ 'ABC' | lower }}{{ 'it is-so (x)' | title }}{{ \"it's\".title() "
              "}}{{ 'aB' | capitalize }}",
              "STRASSEabcIt Is-So (X)It'SAb"},
             {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ "
              "'banana'.replace('a', 'o', 2) }}{{ 'ab'.replace('', '-') }}",
              "TrueTruebonona-a-b-"},
             {"{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.get('b') }}{{ "
              "{'b':1,'a':2} | dictsort }}",
              "12None[('a', 2), ('b', 1)]"},
             {"{{ [3,1,2] | sort }}{{ ['b','A','c'] | sort }}{{ [1,2] | sort(reverse=true) }}{{ "
              "[1,1,2] | unique | list }}",
              "[1, 2, 3]['A', 'b', 'c'][2, 1][1, 2]"},
             {"{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(1, first=true) }}",
              "a\n  b\n\n  c| a\n b"},
             {"{{ none | default('x') }}{{ none | default('x', true) }}{{ zz | default('y') }}{{ "
              "[4,5] | last }}{{ [1,9,3] | max }}{{ [1,2] | sum }}",
              "Nonexy593"},
             {"{{ 'x={} y={y}'.format(1, y='z') }}{{ 'a-b'.partition('-') }}{{ 'abab'.count('ab') "
              "}}{{ 'abc'.find('c') }}",
              "x=1 y=z('a', '-', 'b')22"},
             {"{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ "
              "'pre-x'.removeprefix('pre-') }}",
              "TrueTrueTruex"},
             {"{% set j = '{\"b\": [1, 2.0, null, true], \"a\": \"\\\\u00e9\"}' | from_json %}"
              "{{ j }}{{ j.b[1] + 1 }}{{ '\"x\"' | from_json }}{{ ' 3 ' | from_json + 1 }}"
              "{% for k, v in j.items() %}{{ k }}{% endfor %}",
              "{'b': [1, 2.0, None, True], 'a': '\xc3\xa9'}3.0x4ba"},
             {"{{ 'abc' | list }}{{ 'abc' | reverse }}{{ [1,2] | reverse | list }}{{ 'a' is string "
              "}}{{ {} is mapping }}{{ 1 is number }}",
              "['a', 'b', 'c']cba[2, 1]TrueTrueTrue"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        expect(t[i].src, t[i].want);
}

/* Everything here is refused when the template is opened, with its line. */
TEST(tmpl_unsupported_is_refused_at_load_with_its_line)
{
    static const char *const t[] = {"\n{% include 'x' %}",
                                    "\n{% import 'x' as y %}",
                                    "\n{% extends 'x' %}",
                                    "\n{% block a %}{% endblock %}",
                                    "\n{% call m() %}{% endcall %}",
                                    "\n{% do x %}",
                                    "\n{% raw %}x{% endraw %}",
                                    "\n{% with a=1 %}{% endwith %}",
                                    "\n{% autoescape true %}{% endautoescape %}",
                                    "\n{{ x | nofilter }}",
                                    "\n{{ x | from_json(1) }}",
                                    "\n{{ x is notest }}",
                                    "\n{{ x.nomethod() }}",
                                    "\n{{ nofunction() }}",
                                    "\n{{ ''.__class__ }}",
                                    "\n{{ x.__init__.__globals__ }}",
                                    "\n{{ f(*args) }}",
                                    "\n{{ f(**args) }}",
                                    "\n{{ x[0]() }}",
                                    "\n{{ 'a' % 1 }}",
                                    "\n{{ x | tojson(foo=1) }}",
                                    "\n{{ x | trim(1, 2) }}",
                                    "\n{{ x | map(y) }}",
                                    "\n{{ x | select('nothere') }}",
                                    "\n{% for a in b recursive %}{% endfor %}",
                                    "\n{{ lipsum() }}",
                                    "\n{{ cycler() }}",
                                    "\n{{ joiner }}",
                                    "\n{{ self }}",
                                    "\n{{ self.title }}",
                                    "\n{% macro m() %}{{ kwargs }}{% endmacro %}",
                                    "\n{{ '\\N{DASH}' }}"};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        text_tmpl *x = NULL;
        sl_err err;
        sl_status st = text_tmpl_open(t[i], strlen(t[i]), &x, &err);
        if (st == SL_OK) fail_msg("opened: %s", t[i]);
        assert_true(st == SL_UNSUPPORTED || st == SL_FORMAT);
        if (!strstr(err.text, "chat template line 2: ")) fail_msg("%s: %s", t[i], err.text);
    }
}

TEST(tmpl_syntax_errors_are_one_line)
{
    static const char *const t[] = {"{{",
                                    "{%",
                                    "{#",
                                    "{{ 1",
                                    "{% if 1 %}",
                                    "{% if %}{% endif %}",
                                    "{% for x in %}{% endfor %}",
                                    "{% for in y %}{% endfor %}",
                                    "{% endif %}",
                                    "{% else %}",
                                    "{{ }}",
                                    "{{ 1 + }}",
                                    "{{ (1 }}",
                                    "{{ 1) }}",
                                    "{{ [1 }}",
                                    "{{ {1:2 }}",
                                    "{{ {1} }}",
                                    "{{ 'a }}",
                                    "{{ a..b }}",
                                    "{{ a | }}",
                                    "{{ a is }}",
                                    "{{ 1 2 }}",
                                    "{% set %}",
                                    "{% set 1 = 2 %}",
                                    "{% set x = %}",
                                    "{% macro %}{% endmacro %}",
                                    "{% macro m(a=1, b) %}{% endmacro %}",
                                    "{% break %}",
                                    "{{ a[ }}",
                                    "{{ f(a=1, 2) }}",
                                    "{{ @ }}",
                                    "{{ 0x1 }}",
                                    "{{ 99999999999999999999 }}",
                                    "{% if a %}{% endfor %}",
                                    "{{ a if }}",
                                    "\xff",
                                    "{{ '\\xZZ' }}"};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        text_tmpl *x = NULL;
        sl_err err;
        if (text_tmpl_open(t[i], strlen(t[i]), &x, &err) == SL_OK) fail_msg("opened: %s", t[i]);
        assert_null(x);
        assert_non_null(strstr(err.text, "chat template"));
    }
}

static void repeat(struct str *s, const char *z, int n)
{
    for (int i = 0; i < n; i++)
        str_puts(s, z);
}

/* docs/reliability.md T5: an error, within 100 ms of CPU. {A, n, B, m, C}: A n times, then B, then
 * C m times. */
/* clang-format off */
static const struct {
    const char *a;
    int n;
    const char *b, *c;
    int m;
} hostile[] = {
    {"{{ (", 1, "", "(", 60000},
    {"{{ [", 1, "", "[", 60000},
    {"{{ {1:", 1, "", "{1:", 60000},
    {"{{ ", 1, "", "-", 60000},
    {"{{ ", 1, "", "not ", 60000},
    {"{{ a", 1, "", ".b", 60000},
    {"{{ a", 1, "", "[0]", 60000},
    {"{{ a", 1, "", "|trim", 60000},
    {"{{ 1", 1, "", "+1", 60000},
    {"{{ 1", 1, "", " if 1", 60000},
    {"{{ 1", 1, "", "**1", 60000},
    {"{{ a", 1, "", " is defined", 60000},
    {"{{ f", 1, "", "(f", 60000},
    {"{{ 1", 1, "", " if 1 else 1", 60000},
    {"{% if 1 %}", 60000, "x", "{% endif %}", 60000},
    {"{% for a in [1] %}", 60000, "x", "{% endfor %}", 60000},
    {"{% set x %}", 60000, "x", "{% endset %}", 60000},
    {"{% filter trim %}", 60000, "x", "{% endfilter %}", 60000},
    {"{% macro m() %}", 60000, "x", "{% endmacro %}", 60000},
    {"{% generation %}", 60000, "x", "{% endgeneration %}", 60000},
    {"{% for a in range(100000) %}", 3, "x", "{% endfor %}", 3},
    {"{% for a in range(99999) %}{% for b in range(99999) %}", 1, "", "{% endfor %}", 2},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", 1, "", "", 0},
    {"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", 1, "", "", 0},
    {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", 1,
     "", "", 0},
    {"{{ 'x' * 1000000000 }}", 1, "", "", 0},
    {"{{ [0] * 1000000000 }}", 1, "", "", 0},
    {"{{ 'x' * 9223372036854775807 }}", 1, "", "", 0},
    {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
     "endfor %}",
     1, "", "", 0},
    {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
     "endfor %}{{ ns.s }}",
     1, "", "", 0},
    {"{% set ns = namespace(s=[0]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
     "endfor %}",
     1, "", "", 0},
    {"{% set ns = namespace(s=[0]) %}{% for i in range(2000) %}{% set ns.s = [ns.s] %}{% "
     "endfor %}{{ ns.s }}",
     1, "", "", 0},
    {"{% set ns = namespace(s=[0]) %}{% for i in range(2000) %}{% set ns.s = [ns.s] %}{% "
     "endfor %}{{ ns.s | tojson }}",
     1, "", "", 0},
    {"{% set ns = namespace(s=[0]) %}{% for i in range(2000) %}{% set ns.s = [ns.s] %}{% "
     "endfor %}{{ ns.s == [ns.s] }}",
     1, "", "", 0},
    {"{% set ns = namespace(s=[0]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% "
     "endfor %}{{ ns.s | tojson }}",
     1, "", "", 0},
    {"{% set ns = namespace(s=[0]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% "
     "endfor %}{{ ns.s == ns.s }}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{{ x | replace('a', x) }}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x.split('b') %}{% "
     "endfor %}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x | upper %}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = 'ſß' * 50000 %}{% for i in range(90000) %}{% set y = x | upper %}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x[::-1] %}{% endfor %}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = 'b' in x %}{% set y = "
     "'zz' in x %}{% endfor %}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x | length %}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x == x ~ '' %}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x | tojson %}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = 'ab' * 100000 %}{% for i in range(90000) %}{% set y = x.strip(x) %}{% endfor "
     "%}",
     1, "", "", 0},
    {"{% set x = range(99999) | list %}{% for i in x %}{% set y = x | sort %}{% endfor %}", 1,
     "", "", 0},
    {"{% set x = range(99999) | list %}{{ x | unique | list | length }}", 1, "", "", 0},
    {"{% set x = range(99999) | list %}{% for i in x %}{{ -1 in x }}{% endfor %}", 1, "", "",
     0},
    {"{{ range(100001) }}", 1, "", "", 0},
    {"{{ range(0, 9223372036854775807, 1) }}", 1, "", "", 0},
    {"{{ 9223372036854775807 + 1 }}", 1, "", "", 0},
    {"{{ 2 ** 9223372036854775807 }}", 1, "", "", 0},
    {"{{ 1 // 0 }}", 1, "", "", 0},
    {"{{ 1 % 0 }}", 1, "", "", 0},
    {"{{ 'a' | indent(1000000000) }}", 1, "", "", 0},
    {"{{ [1] | tojson(indent=1000000000) }}", 1, "", "", 0},
    {"{{ undefined_name.x }}", 1, "", "", 0},
    {"{{ messages.append(1) }}", 1, "", "", 0},
    {"{{ raise_exception('no') }}", 1, "", "", 0},
};
/* clang-format on */

/* CPU time of one refused rendering, in ms. */
static double refuse_ms(int row, const struct str *src)
{
    struct str out;
    struct arena a;
    sl_err err = {0};
    str_init(&out, MEM_MISC, 0);
    mem_arena_init(&a, MEM_MISC, 0);
    clock_t t0 = clock();
    sl_status st = render(str_c(src), src->n, &out, &a, NULL, &err);
    double ms = (double)(clock() - t0) * 1e3 / CLOCKS_PER_SEC;
    if (st == SL_OK) fail_msg("row %d (%.60s) was rendered", row, str_c(src));
    assert_non_null(strstr(err.text, "chat template"));
    mem_arena_fini(&a);
    str_fini(&out);
    return ms;
}

TEST(tmpl_hostile_templates_end_within_their_budget)
{
#ifndef SL_DEBUG
    double most = 100;
#else
    double most = 5000;
#endif
    assert_true(BASE_COUNT_OF(hostile) >= 40);
    for (int i = 0; i < BASE_COUNT_OF(hostile); i++) {
        struct str src;
        str_init(&src, MEM_MISC, 0);
        repeat(&src, hostile[i].a, hostile[i].n);
        str_puts(&src, hostile[i].b);
        repeat(&src, hostile[i].c, hostile[i].m);
        if (!strstr(str_c(&src), "%}") && !strstr(str_c(&src), "}}")) str_puts(&src, " }}");
        double ms = refuse_ms(i, &src);
        /* a core that others share is slow for moments: the best of five counts */
        for (int again = 0; again < 4 && ms > most; again++)
            ms = BASE_MIN(ms, refuse_ms(i, &src));
        if (ms > most) fail_msg("row %d (%.60s) took %.0f ms", i, str_c(&src), ms);
        str_fini(&src);
    }
}

/* Which bytes of the output are the user's. */
static void expect_user(const char *src, const char *want)
{
    struct str out;
    struct arena a;
    struct text_tmpl_spans s = {0};
    sl_err err = {0};
    char marks[512];
    str_init(&out, MEM_MISC, 0);
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = render(src, strlen(src), &out, &a, &s, &err);
    if (st != SL_OK) fail_msg("%s: %s", src, err.text);
    for (int i = 0; i < s.n; i++)
        memset(marks + s.v[i].begin, s.v[i].user ? 'u' : '.', s.v[i].end - s.v[i].begin);
    marks[out.n] = 0;
    if (strcmp(marks, want) != 0)
        fail_msg("%s: '%s' is '%s', expected '%s'", src, str_c(&out), marks, want);
    mem_arena_fini(&a);
    str_fini(&out);
}

TEST(tmpl_says_at_which_line_a_value_does_not_fit)
{
    static const struct {
        const char *src, *want;
    } t[] = {{"\n{{ messages[1].content | from_json }}", "line 2: from_json: line 1 column 1"},
             {"\n{{ '{\"a\": [1,' | from_json }}", "line 2: from_json: line 1 column 10"},
             {"{{ messages[2].tool_calls[0].function.arguments | from_json }}",
              "line 1: from_json of a mapping"},
             {"{{ none | from_json }}", "line 1: from_json of none"},
             /* what Python would print, or does not have */
             {"{{ range(3) }}", "line 1: a range can not be printed"},
             {"{{ [range(3)] }}", "a range can not be printed"},
             {"{{ range(3) | tojson }}", "tojson: a range is not data"},
             {"{{ range(3) + [3] }}", "for a range and a list"},
             {"{{ range(3) * 2 }}", "for a range and an integer"},
             {"{{ messages[0].items() }}", "a view of a mapping can not be printed"},
             {"{{ messages[0].keys() + [] }}", "for a view of a mapping and a list"},
             {"{{ messages[0].values() | tojson }}", "a view of a mapping is not data"},
             {"{% macro m(a) %}{% endmacro %}{{ m.arguments }}", ".arguments of a macro"},
             {"{{ messages[0].role.casefold }}", ".casefold of a string"},
             {"{{ (messages | length).real }}", ".real of an integer"},
             {"{{ messages.index }}", ".index of a list"},
             {"{% set g = [1, 2] | unique %}{% for i in g %}{% break %}{% endfor %}{{ g | list }}",
              "a generator is used again"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct str out;
        struct arena a;
        sl_err err = {0};
        str_init(&out, MEM_MISC, 0);
        mem_arena_init(&a, MEM_MISC, 0);
        sl_status st = render(t[i].src, strlen(t[i].src), &out, &a, NULL, &err);
        assert_true(st == SL_REQUEST || st == SL_UNSUPPORTED);
        if (!strstr(err.text, t[i].want)) fail_msg("%s: %s", t[i].src, err.text);
        mem_arena_fini(&a);
        str_fini(&out);
    }
}

TEST(tmpl_knows_which_bytes_a_user_wrote)
{
    static const struct {
        const char *src, *want;
    } t[] = {{"<x>{{ messages[0].content }}</x>", "...u...."},
             {"{{ '<x>' + messages[0].role + '<y>' }}", "...uuuuuu..."},
             {"{{ '<x>' ~ messages[0].role | upper ~ 1 }}", "...uuuuuu."},
             {"{{ bos_token }}{{ messages[0].content | replace('S', 'ab') }}", "....."},
             {"{{ 'a-b' | replace('-', messages[0].content) }}", ".u."},
             {"{{ [messages[0].content, 'x'] | join('--') }}", "u..."},
             {"{{ (('[\"' ~ messages[0].content ~ '\"]') | from_json)[0] }}.", "u."},
             {"{{ messages[0] | tojson }}", "uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu"},
             {"{% set m %}<{{ messages[0].content }}>{% endset %}{{ m[1:] }}{{ m | trim('<') }}",
              "u.u."},
             {"{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0].content) }}{{ m('t') }}",
              ".u...."},
             {"{{ messages[0].role.split('s')[1] }}{{ messages[0].role[:2] }}{{ messages[0].role | "
              "first }}{{ 'ab' | first }}",
              "uuuu."},
             {"{{ '{}!'.format(messages[0].content) }}{{ (messages[0].content * 2) ~ ('z' * 2) }}",
              "u.uu.."},
             {"{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
              "uuuu.uuuuuu.uuuuuuu.u."},
             {"{% for c in messages[0].role %}{{ c }}{% endfor %}{{ ('x' ~ messages[0].role) | "
              "indent }}",
              "uuuuuu.uuuuuu"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        expect_user(t[i].src, t[i].want);
}

TEST(tmpl_survives_every_failing_allocation)
{
    static const char src[] = "{% set ns = namespace(x=[]) %}{% macro m(a, b=1) %}{{ a }}{{ b }}{% "
                              "endmacro %}{% for x in messages %}{{ m(x.role) ~ (x | tojson) }}"
                              "{% set ns.x = ns.x + [x.content] %}{% endfor %}{{ ns.x | length "
                              "}}{{ (messages | map(attribute='role') | join('x')).split('x') }}";
    int64_t before = mem_used(MEM_MISC);
    sl_status st = SL_NOMEM;
    uint64_t k = 1;
    for (; st != SL_OK; k++) {
        struct str out;
        struct arena a;
        sl_err err;
        struct text_tmpl_spans s;
        str_init(&out, MEM_MISC, 0);
        mem_arena_init(&a, MEM_MISC, 0);
        mem_fail_at(k, 1);
        st = render(src, sizeof src - 1, &out, &a, &s, &err);
        mem_fail_at(0, 0);
        assert_true(st == SL_OK || st == SL_NOMEM);
        mem_arena_fini(&a);
        str_fini(&out);
        assert_int_equal(mem_used(MEM_MISC), before);
        assert_true(k < 10000);
    }
    assert_true(k > 4);
}

/* The arena takes few large blocks: its limit makes every single piece fail in turn. */
TEST(tmpl_survives_every_full_arena)
{
    static const char src[] = "{% macro m(a, b=1) %}{{ a | upper }}{{ b }}{% endmacro %}{% for x "
                              "in messages %}{{ m(x.role) ~ (x | tojson) }}{{ x.role[::-1] }}"
                              "{% set y = {'a': [x.content]} %}{% endfor %}{{ y }}{{ messages | "
                              "map(attribute='role') | sort | join('x') }}{{ 'a b'.split() }}";
    text_tmpl *t = NULL;
    struct arena m;
    const struct json *j = NULL;
    sl_err err;
    mem_arena_init(&m, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&m, "m", msgs, sizeof msgs - 1, &j, &err));
    ASSERT_OK(text_tmpl_open(src, sizeof src - 1, &t, &err));
    struct text_tmpl_vars v = {.messages = j};
    sl_status st = SL_NOMEM;
    int n_fail = 0;
    for (size_t limit = 16; st != SL_OK; limit += 16) {
        struct str out;
        struct arena a;
        struct text_tmpl_spans s;
        str_init(&out, MEM_MISC, 0);
        mem_arena_init(&a, MEM_MISC, limit);
        st = text_tmpl_render(t, &v, &a, &out, &s, &err);
        assert_true(st == SL_OK || st == SL_NOMEM);
        n_fail += st != SL_OK;
        mem_arena_fini(&a);
        str_fini(&out);
        assert_true(limit < 1000000);
    }
    assert_true(n_fail > 300);
    text_tmpl_close(t);
    mem_arena_fini(&m);
}
