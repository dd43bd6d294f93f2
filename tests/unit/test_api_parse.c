/* SPDX-License-Identifier: Apache-2.0 */
/* Every form of every family in a table; each text cut everywhere gives the same; random and
 * hostile texts. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/parse.h"
#include "base/rng.h"
#include "test.h"

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DS(z) "<" BAR "tool" LOW z BAR ">"
#define CALLS DS("calls" LOW "begin")
#define CALLS_END DS("calls" LOW "end")
#define CALL DS("call" LOW "begin")
#define CALL_END DS("call" LOW "end")
#define SEP DS("sep")
#define CT(z) "\xff" z "\xff" /* a control token */

#define G_Q "<|\"|>"
#define K_CALLS "<|tool_calls_section_begin|>"
#define K_CALLS_END "<|tool_calls_section_end|>"
#define K_CALL "<|tool_call_begin|>"
#define K_CALL_END "<|tool_call_end|>"
#define K_ARGS "<|tool_call_argument_begin|>"
#define KEY(k, v) "<arg_key>" k "</arg_key>\n<arg_value>" v "</arg_value>"
#define ST "<|start|>"
#define END "<|end|>"
#define MSG "<|message|>"
#define CH "<|channel|>"
#define CON "<|constrain|>"
#define RET "<|return|>"
#define CALLH "<|call|>"
#define ARG(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"
#define FUN(name, args) "<function=" name ">\n" args "</function>"
#define DSML(z) "<" BAR "DSML" BAR z
#define SHUT(z) "</" BAR "DSML" BAR z ">"
#define TYPED(k, is, v)                                                                            \
    DSML("parameter name=\"" k "\" string=\"" is "\">") v SHUT("parameter") "\n"
#define PAR(k, v) "<parameter name=\"" k "\">" v "</parameter>\n"

static const char tool_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"$defs\":{\"t\":{\"type\":\"string\"}},\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"u\":{\"type\":[\"string\",\"null\"]},\"e\":{\"enum\":[\"1\",\"2\"]},"
    "\"r\":{\"$ref\":\"#/$defs/t\"},\"a\":{\"anyOf\":[{\"type\":\"array\"},{\"type\":\"null\"}]},"
    "\"x\":{}}}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";

/* What came out, as one line: R(reasoning) C(content) 0:name(arguments) 1:name(arguments) ... */
struct out {
    struct str text, reason, args[8], name[8];
    int n;
};

static void on_text(void *u, const char *p, size_t n)
{
    str_put(&((struct out *)u)->text, p, n);
}
static void on_reason(void *u, const char *p, size_t n)
{
    str_put(&((struct out *)u)->reason, p, n);
}
static void on_call(void *u, int i, const char *p, size_t n)
{
    struct out *o = u;
    assert_int_equal(i, o->n); /* in order, each once */
    o->n++;
    if (i < 8) str_put(&o->name[i], p, n);
}
static void on_args(void *u, int i, const char *p, size_t n)
{
    struct out *o = u;
    assert_int_equal(i, o->n - 1); /* of the last one only */
    assert_true(n > 0);
    if (i < 8) str_put(&o->args[i], p, n);
}

/* How a text is fed: at[k] is where piece k ends, n of them and the rest. fail: the allocation that
 * fails; 0 = none. */
struct fed {
    const size_t *at;
    int n;
    uint64_t fail;
};

/* With an allocation that fails the text may be refused; it is here too, where it is one of o's. */
static sl_status try_parse(const struct api_parse_opts *opts, const char *s, size_t n,
                           const struct fed *fed, struct str *line)
{
    struct out o;
    struct api_parse *p = NULL;
    sl_err err;
    memset(&o, 0, sizeof o);
    struct api_parse_sink sink = {&o, on_text, on_reason, on_call, on_args};
    size_t at = 0;
    mem_fail_at(fed->fail, 0);
    sl_status st = api_parse_open(opts, &p, &err);
    for (int k = 0; k < fed->n && !st; k++) {
        st = api_parse_feed(p, s + at, fed->at[k] - at, false, &sink, &err);
        at = fed->at[k];
    }
    if (!st) st = api_parse_feed(p, s + at, n - at, true, &sink, &err);
    mem_fail_at(0, 0);
    api_parse_close(p);
    if (!st) st = o.text.failed | o.reason.failed;
    for (int i = 0; i < 8 && !st; i++)
        st = o.args[i].failed | o.name[i].failed;
    str_clear(line);
    if (o.reason.n) str_printf(line, "R(%s)", str_c(&o.reason));
    if (o.text.n) str_printf(line, "C(%s)", str_c(&o.text));
    for (int i = 0; i < o.n && i < 8; i++)
        str_printf(line, "%d:%s(%s)", i, str_c(&o.name[i]), str_c(&o.args[i]));
    str_fini(&o.text);
    str_fini(&o.reason);
    for (int i = 0; i < 8; i++) {
        str_fini(&o.args[i]);
        str_fini(&o.name[i]);
    }
    return st;
}

static void parse(const struct api_parse_opts *opts, const char *s, size_t n, const size_t *cut,
                  int n_cut, struct str *line)
{
    const struct fed fed = {cut, n_cut, 0};
    assert_int_equal(try_parse(opts, s, n, &fed, line), SL_OK);
}

struct row {
    const char *tool, *reason;
    bool thinks;
    const char *in, *out;
};
/* clang-format off */
static const struct row rows[] = {
    {"none", "none", false, "<think>a</think><tool_call>b", "C(<think>a</think><tool_call>b)"},
    {"none", "qwen3", false, "plain", "C(plain)"},
    {"none", "qwen3", false, " \n plain < b <thin k", "C( \n plain < b <thin k)"},
    {"none", "qwen3", false, "<think>\nhm, a<b\n\n</think>\n\nyes\n", "R(hm, a<b)C(yes\n)"},
    {"none", "qwen3", false, "<think>\n\n</think>\n\nyes", "C(yes)"},
    {"none", "qwen3", false, "\n<think>never ends \n", "R(never ends)"},
    {"none", "qwen3", false, "a <think>b</think>", "C(a <think>b</think>)"},
    {"none", "deepseek_r1", true, "\nso\n</think>\n\nthus", "R(so)C(thus)"},
    {"none", "deepseek_r1", true, "<think>so</think>thus", "R(so)C(thus)"},
    {"none", "auto", true, "so</thin</think>thus</think>", "R(so</thin)C(thus</think>)"},
    {"none", "none", true, "so</think>thus", "C(so</think>thus)"},
    /* Qwen3, Hermes */
    {"hermes", "none", false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n"
                              "</tool_call>", "0:f({\"a\": [1, \"}\"]})"},
    {"qwen3", "none", false, "I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n"
                             "</tool_call>\n"
                             "<tool_call>{\"name\":\"g\",\"arguments\":{\"b\":null}}</tool_call>\n",
        "C(I look.)0:f({})1:g({\"b\":null})"},
    {"qwen3", "qwen3", false,
     "<think>a</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> and then",
     "R(a)C( and then)0:f({})"},
    {"hermes", "none", false, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": "
                              "\"late\"}</tool_call>", "0:late({\"x\": 1})"},
    {"hermes", "none", false, "<tool_call>{\"name\":\"n\",\"arguments\":\"{\\\"a\\\": "
                              "\\\"\\u00e9\\\"}\"}</tool_call>", "0:n({\"a\": \"\xc3\xa9\"})"},
    {"hermes", "none", false, "<tool_call>{\"id\": [1,{}], \"name\":\"n\\u0041\"}</tool_call>",
     "0:nA({})"},
    {"hermes", "none", false, "<tool_call>{\"name\":\"n\",\"arguments\":5}</tool_call>", "0:n(5)"},
    {"hermes", "none", false, "<tool_call>{\"name\":\"n\",\"arguments\":{\"a\": \"cut o",
     "0:n({\"a\": \"cut o)"},
    {"hermes", "none", false, "<tool_call>{\"name\":\"n\",\"arguments\":{\"a\": 1</tool_call>x",
     "C(x)0:n({\"a\": 1)"},
    {"hermes", "none", false, "<tool_call>{\"name\":\"n\"", "C(<tool_call>{\"name\":\"n\")"},
    {"hermes", "none", false, "a <tool_call>no json</tool_call> b",
     "C(a <tool_call>no json</tool_call> b)"},
    {"hermes", "none", false, "<tool_call>{\"name\": 7}</tool_call>",
     "C(<tool_call>{\"name\": 7}</tool_call>)"},
    {"hermes", "none", false, "a <tool_cal b", "C(a <tool_cal b)"},
    {"hermes", "none", false, "a <tool_call", "C(a <tool_call)"},
    /* Harmony */
    {"harmony", "harmony", false, CH "analysis" MSG
     "Hm, so." END ST "assistant" CH "final" MSG "Yes.\n", "R(Hm, so.)C(Yes.\n)"},
    {"harmony", "harmony", false, CH "analysis" MSG "a" END ST "assistant"
     CH "commentary to=functions.f " CON "json" MSG "{\"x\": 1}" CALLH, "R(a)0:f({\"x\": 1})"},
    {"harmony", "harmony", false, CT("<|channel|>") "analysis" CT("<|message|>") "a <|b|> c"
     CT("<|end|>") CT("<|start|>") "assistant" CT("<|channel|>") "final" CT("<|message|>") "d",
     "R(a <|b|> c)C(d)"},
    {"harmony", "harmony", false, " to=functions.f" CH "commentary json" MSG "{}", "0:f({})"},
    {"harmony", "harmony", false, CH "analysis to=functions.g code" MSG " {\"a\": [1, 2]} \n" CALLH,
     "0:g({\"a\": [1, 2]})"},
    {"harmony", "harmony", false, CH "commentary to=python code" MSG "print(1)\n\nprint(2)" CALLH,
     "0:python(print(1)\n\nprint(2))"},
    {"harmony", "harmony", false, CH "commentary" MSG "I look."
     END ST "assistant" CH "commentary to=functions.f" CON "json" MSG CALLH, "C(I look.)0:f({})"},
    {"harmony", "harmony", false, CH "analysis" MSG "a" END ST "assistant" CH "analysis" MSG "b"
     END ST "assistant" CH "final" MSG "c" END ST "assistant" CH "final" MSG "d" RET,
     "R(a\nb)C(c\nd)"},
    {"harmony", "harmony", false, ST "assistant" CH "final" MSG "a < b <|en", "C(a < b <|en)"},
    {"harmony", "harmony", false, "no header at all < x", "C(no header at all < x)"},
    {"harmony", "harmony", false, "none" END ST "assistant" CH "final" MSG "b", "C(none\nb)"},
    {"harmony", "harmony", false, CH "analysis" MSG "cut", "R(cut)"},
    {"harmony", "harmony", false, CH "analysis" MSG "a" END ST "assist", "R(a)"},
    {"harmony", "harmony", false, CH "commentary to=functions.f " CON "json" MSG "{\"a\": ",
     "0:f({\"a\":)"},
    {"harmony", "none", false, CH "analysis" MSG "a" END ST "assistant" CH "final" MSG "b",
     "C(a\nb)"},
    {"none", "harmony", false, CH "analysis" MSG "a" END ST "assistant" CH "final" MSG "b",
     "C(" CH "analysis" MSG "a" END ST "assistant" CH "final" MSG "b)"},
    /* DeepSeek V3 and R1 */
    {"deepseek_v3", "none", false, "Let me see." CALLS CALL "function" SEP
     "get_weather\n```json\n{\"city\": \"Paris\"}\n```"
     CALL_END "\n" CALL "function" SEP "f\n```json\n{}\n```" CALL_END CALLS_END,
        "C(Let me see.)0:get_weather({\"city\": \"Paris\"})1:f({})"},
    {"deepseek_r1", "deepseek_r1", true, "hm\n</think>\n\n" CALLS CALL "function" SEP
     "f\n```json\n{\n  \"a\": \"```\"\n}\n```" CALL_END CALLS_END,
     "R(hm)0:f({\n  \"a\": \"```\"\n})"},
    {"deepseek_v3", "none", false, CALLS CALL "function" SEP "f\n{\"a\":1}" CALL_END CALLS_END,
     "0:f({\"a\":1})"},
    {"deepseek_v3", "none", false, CALLS CALL "function" SEP "f\n```json\n{\"a\":", "0:f({\"a\":)"},
    {"deepseek_v3", "none", false, CALLS CALL "function" SEP "f", "C(" CALL "function" SEP "f)"},
    {"deepseek_v3", "none", false, CALLS CALL "function" CALL_END "x",
     "C(" CALL "function" CALL_END "x)"},
    {"deepseek_v3", "none", false, CALLS CALL "function" SEP "f\n```json\n{}\n```" CALLS_END,
     "0:f({})"},
    /* DeepSeek V3.1 */
    {"deepseek_v31", "deepseek_v31", true, "r</think>" CALLS CALL "f" SEP "{\"a\": {\"b\": [1]}}"
     CALL_END CALL "g" SEP "{}" CALL_END CALLS_END, "R(r)0:f({\"a\": {\"b\": [1]}})1:g({})"},
    {"deepseek_v31", "none", false, "ok " CALLS CALL "f" SEP CALL_END CALLS_END " end",
     "C(ok end)0:f({})"},
    {"deepseek_v31", "none", false, "a <" BAR "b", "C(a <" BAR "b)"},
    {"deepseek_v31", "none", false, CALLS CALL SEP "{}" CALL_END, "C(" CALL SEP "{})"},
    /* Llama 3 */
    {"llama3", "none", false, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "0:f({\"a\": 1})"},
    {"llama3", "none", false, "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", "
                              "\"parameters\": {\"a\": 1}}; {\"name\":\"g\",\"parameters\":{}}",
     "0:f({\"a\": 1})1:g({})"},
    {"llama3", "none", false, "<|python_tag|>print(1)", "C(<|python_tag|>print(1))"},
    {"llama3", "none", false, "{\"city\": \"Paris\", \"name\": \"x\"}",
     "C({\"city\": \"Paris\", \"name\": \"x\"})"},
    {"llama3", "none", false, "{\"name\": \"Bob\", \"age\": 3}",
     "C({\"name\": \"Bob\", \"age\": 3})"},
    {"llama3", "none", false, "{\"name\": \"Bob\"}", "C({\"name\": \"Bob\"})"},
    {"llama3", "none", false, " hello {\"name\": \"f\", \"parameters\": {}}",
     "C( hello {\"name\": \"f\", \"parameters\": {}})"},
    /* generic */
    {"json", "none", false, "\n[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", "
                            "\"arguments\": {\"a\": 2}}]\n", "0:f({})1:g({\"a\": 2})"},
    {"json", "none", false, "{\"arguments\": {\"z\": 0}, \"name\": \"f\"} tail",
     "C(tail)0:f({\"z\": 0})"},
    {"json", "none", false, "[1, 2]", "C([1, 2])"},
    {"json", "none", false, "{\"a\": 1}", "C({\"a\": 1})"},
    {"json", "none", false, "", ""},
    /* control tokens: tags where they are looked for, else nothing */
    {"none", "none", false, CT("<s>") "a" CT("</s>") "b" CT("<think>") CT("</s>"), "C(ab)"},
    {"none", "qwen3", false, CT("<s>") "\n" CT("<think>") "h"
     CT("</s>") "m" CT("</think>") "\n" CT("<s>") "yes" CT("</think>"), "R(hm)C(yes)"},
    {"none", "deepseek_r1", true, CT("<think>") CT("</s>") "so"
     CT("<tool_call>") CT("</think>") "thus", "R(so)C(thus)"},
    {"hermes", "none", false, "a" CT("<tool_call>") "{\"na"
     CT("</s>") "me\":\"f\",\"arguments\":{\"x\":"
     CT("<s>") "1}}" CT("</tool_call>") CT("</s>") "b", "C(ab)0:f({\"x\":1})"},
    {"hermes", "none", false, CT("<tool_call>") "{\"name\":\"f\",\"arguments\":{\"x\":\"1"
     CT("</tool_call>") "b", "C(b)0:f({\"x\":\"1)"},
    {"hermes", "none", false, CT("<tool_call>") "no" CT("</tool_call>") " b", "C(no b)"},
    {"hermes", "none", false, "a" CT("</tool_call>") "b<tool_cal" CT("</s>") "l>c",
     "C(ab<tool_call>c)"},
    {"deepseek_v3", "none", false, CT(CALLS) CT(CALL) "function" CT(SEP) "f\n```json\n{\"a\""
     CT("</s>") ":1}\n```" CT(CALL_END) CT(CALLS_END) CT("</s>"), "0:f({\"a\":1})"},
    {"deepseek_v3", "none", false, "a" CT(SEP) CT(CALL) "function" CT(SEP) "f" CT(CALL_END) "b",
     "C(afunctionfb)"},
    {"deepseek_v31", "none", false, CT(CALL) "f" CT(SEP) "{"
     CT("<think>") "}" CT(CALL) "g" CT(SEP) CT(CALLS_END) "c", "C(c)0:f({})1:g({})"},
    {"llama3", "none", false, CT("<|begin_of_text|>") CT(
        "<|python_tag|>") "{\"name\": \"f\", \"parameters\": {}}" CT("<|eot_id|>"), "0:f({})"},
    {"llama3", "none", false, CT("<|python_tag|>") "print(1)", "C(print(1))"},
    {"json", "none", false, "[" CT("<s>") "1]" "\xff<cut", "C([1])"},
    /* GLM: with line ends and without, by the schema's types */
    {"glm45", "glm45", false, "\n<think>hm</think>\nLook.\n<tool_call>f\n" KEY("s", "5") "\n"
     KEY("n", "7") "\n</tool_call>", "R(hm)C(Look.)0:f({\"s\": \"5\", \"n\": 7})"},
    {"glm47", "none", false, "<tool_call>f<arg_key>s</arg_key><arg_value>a \"b\"\n"
                             "</arg_value><arg_key>o</arg_key><arg_value>{\"k\": "
                             "[1]}</arg_value></tool_call><tool_call>g</tool_call>",
        "0:f({\"s\": \"a \\\"b\\\"\\n\", \"o\": {\"k\": [1]}})1:g({})"},
    {"glm47", "none", false, "<tool_call>g\n</tool_call>", "0:g({})"},
    {"glm47", "none", false, "<tool_call>f <arg_key>u</arg_key> <arg_value>null</arg_value> "
                             "<arg_key>u</arg_key><arg_value>\"5\"</arg_value></tool_call>",
     "0:f({\"u\": null, \"u\": \"\\\"5\\\"\"})"},
    {"glm47", "none", false, "<tool_call>f" KEY("e", "1") KEY("r", "2") KEY(
        "a", " [1] ") KEY("x", "3") KEY("x", "\"q\"") KEY("x", "q") KEY("b", "True") "</tool_call>",
        "0:f({\"e\": \"1\", \"r\": \"2\", \"a\": [1], \"x\": 3, \"x\": \"q\", \"x\": \"q\", \"b\": "
        "true})"},
    {"glm47", "none", false, "<tool_call>f" KEY("n", "seven") KEY("s", "</arg_valu") KEY(
        "z", "1") "</tool_call>", "0:f({\"n\": \"seven\", \"s\": \"</arg_valu\", \"z\": 1})"},
    {"glm47", "glm45", true, "I call <b\n<tool_call>f" KEY("n", "1") "</tool_call></think>done",
     "R(I call <b)C(done)0:f({\"n\": 1})"},
    {"glm47", "glm45", true, "no <tool_call> here</think>x", "R(no <tool_call> here)C(x)"},
    {"glm47", "glm45", true, "cut <tool_call>f", "R(cut <tool_call>f)"},
    {"glm47", "none", false, "a <tool_call>no call</tool_call> b",
     "C(a <tool_call>no call</tool_call> b)"},
    {"glm47", "none", false, "<tool_call></tool_call>", "C(<tool_call></tool_call>)"},
    {"glm47", "none", false, "<tool_call>f{\"n\":1}</tool_call>",
     "C(<tool_call>f{\"n\":1}</tool_call>)"},
    {"glm47", "none", false, "<tool_call>{\"name\": \"f\"}</tool_call>",
     "C(<tool_call>{\"name\": \"f\"}</tool_call>)"},
    {"glm47", "none", false, "<tool_call>f" KEY("s", "x") "junk</tool_call>",
     "C(junk</tool_call>)0:f({\"s\": \"x\"})"},
    {"glm47", "none", false, "<tool_call>f<arg_key>s</arg_key><arg_value>cut o",
     "0:f({\"s\": \"cut o)"},
    {"glm47", "none", false, "<tool_call>f<arg_key>o</arg_key><arg_value>{\"cut",
     "0:f({\"o\": {\"cut)"},
    {"glm47", "none", false, "<tool_call>f<arg_key>s", "0:f({})"},
    {"glm47", "none", false, CT("<tool_call>") "f" CT("<arg_key>") "s"
     CT("</arg_key>") CT("<arg_value>") "1" CT("<|user|>") "2"
     CT("</tool_call>") CT("<|observation|>"), "0:f({\"s\": \"12\"})"},
    {"glm47", "none", false, CT("<tool_call>") "f" CT("<arg_key>") "n" CT("</arg_key>") CT(
        "<arg_value>") "1" CT("</arg_value>") CT("</tool_call>") "b", "C(b)0:f({\"n\": 1})"},
    /* MiniMax */
    {"minimax_m2", "minimax_m2", true,
     "hm\n</think>\n\nLook.\n<minimax:tool_call>\n<invoke name=\"f\">\n" PAR("s", "a\nb") PAR(
         "n", "-1") "</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
        "R(hm)C(Look.)0:f({\"s\": \"a\\nb\", \"n\": -1})1:g({})"},
    /* M3: other tags around reasoning, whose text the usual ones are then */
    {"minimax_m3", "minimax_m3", true,
     "hm <think>a</think>\n</mm:think>\n\nLook.\n<minimax:tool_call>\n<invoke name=\"f\">\n" PAR(
         "s", "a") "</invoke>\n</minimax:tool_call>",
     "R(hm <think>a</think>)C(Look.)0:f({\"s\": \"a\"})"},
    {"minimax_m3", "minimax_m3", false, "<mm:think>\nx\n</mm:think>y", "R(x)C(y)"},
    {"minimax_m3", "minimax_m3", false, "<think>x</think>y", "C(<think>x</think>y)"},
    {"hermes", "minimax_m3", false, CT("<mm:think>") "x" CT("</mm:think>") "y", "R(x)C(y)"},
    {"minimax_m2", "minimax_m2", false, "<mm:think>x", "C(<mm:think>x)"},
    {"minimax_m2", "none", false, "<minimax:tool_call><invoke name=\"f\">"
     PAR("o", "{}") "</minimax:tool_call>x", "C(x)0:f({\"o\": {}})"},
    {"minimax_m2", "none", false, "<minimax:tool_call>\n<invoke>\n</minimax:tool_call>",
     "C(<minimax:tool_call>\n<invoke>\n</minimax:tool_call>)"},
    {"minimax_m2", "none", false, "<minimax:tool_call><invoke name=f>x",
     "C(<minimax:tool_call><invoke name=f>x)"},
    {"minimax_m2", "none", false, "<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">cut",
     "0:f({\"s\": \"cut)"},
    {"minimax_m2", "minimax_m2", true,
     "so <minimax:tool_call><invoke name=\"g\"></invoke></minimax:tool_call>", "R(so)0:g({})"},
    {"minimax_m2", "none", false, CT("<minimax:tool_call>") "\n<invoke name=\"f\">"
     PAR("s", "1") "</invoke>\n" CT("</minimax:tool_call>") CT("[e~["), "0:f({\"s\": \"1\"})"},
    {"minimax_m2", "none", false,
     CT("<minimax:tool_call>") "<invoke name=\"f\"><parameter name=\"n\">1"
     CT("</minimax:tool_call>") "x", "C(x)0:f({\"n\": 1})"},
    /* DSML: the tag says whether a value is a text; where it does not, the schema */
    {"deepseek_v32", "deepseek_v32", true,
     "hm</think>Look.\n\n" DSML("function_calls>") "\n" DSML("invoke name=\"f\">") "\n" TYPED(
         "s", "true", "a\n\"b\"") TYPED("n", "false", " -1 ") SHUT("invoke") "\n" DSML(
         "invoke name=\"g\">") "\n" SHUT("invoke") "\n" SHUT("function_calls"),
     "R(hm)C(Look.)0:f({\"s\": \"a\\n\\\"b\\\"\", \"n\": -1})1:g({})"},
    {"deepseek_v32", "none", false,
     DSML("function_calls>") DSML("invoke name=\"f\">") TYPED("n", "true", "1") TYPED(
         "s", "false", "5") TYPED("z", "false", "{\"a\": [\"b\"]}") TYPED("x", "false", "no") SHUT(
         "invoke") SHUT("function_calls") "x",
     "C(x)0:f({\"n\": \"1\", \"s\": 5, \"z\": {\"a\": [\"b\"]}, \"x\": \"no\"})"},
    {"deepseek_v32", "none", false,
     DSML("function_calls>") DSML("invoke name=\"f\">") DSML("parameter name=\"n\">") "1" SHUT(
         "parameter") DSML("parameter name=\"s\" >") "1" SHUT("parameter") SHUT("invoke") SHUT(
         "function_calls"),
     "0:f({\"n\": 1, \"s\": \"1\"})"},
    {"deepseek_v32", "none", false, DSML("function_calls>") "\n" DSML("invoke>") "x",
     "C(" DSML("function_calls>") "\n" DSML("invoke>") "x)"},
    {"deepseek_v32", "none", false,
     DSML("function_calls>") DSML("invoke name=\"f\">") DSML(
         "parameter name=\"s\" string=\"true\">") "cut",
     "0:f({\"s\": \"cut)"},
    {"deepseek_v32", "none", false,
     DSML("function_calls>") DSML("invoke name=\"f\">") TYPED("s", "true", "1") DSML(
         "parameter name=\"n\" str<") SHUT("invoke"),
     "C(<" SHUT("invoke") ")0:f({\"s\": \"1\"})"},
    /* the same of DeepSeek-V4, whose block has another name */
    {"deepseek_v4", "deepseek_v4", true,
     "hm</think>Look.\n\n" DSML("tool_calls>") "\n" DSML("invoke name=\"f\">") "\n" TYPED(
         "s", "true", "a") SHUT("invoke") "\n" SHUT("tool_calls"),
     "R(hm)C(Look.)0:f({\"s\": \"a\"})"},
    {"deepseek_v4", "none", false, DSML("function_calls>") "x", "C(" DSML("function_calls>") "x)"},
    /* Qwen3-Coder, Qwen3.5: one line end at each end of a value is none of it */
    {"qwen3_coder", "qwen3", true, "hm\n</think>\n\nLook.\n\n<tool_call>\n" FUN(
        "f", ARG("s", "a\n <b>\n") ARG("n", "7") ARG("b", "True") ARG("o", "{\"k\": [1]}")
        ARG("u", "None")) "\n</tool_call>", "R(hm)C(Look.)0:f({\"s\": \"a\\n <b>\\n\", \"n\": 7, "
        "\"b\": true, \"o\": {\"k\": [1]}, \"u\": null})"},
    {"qwen3_coder", "qwen3", false, "<think>\n\n</think>\n\n<tool_call>\n" FUN("g", "")
     "\n</tool_call>\n<tool_call>\n" FUN("f", ARG("e", "1") ARG("r", "2") ARG("a", "\n[1]\n")
     ARG("x", "3")) "\n</tool_call>\n",
     "0:g({})1:f({\"e\": \"1\", \"r\": \"2\", \"a\": [1], \"x\": 3})"},
    {"qwen3_coder", "none", false, "<tool_call><function=f><parameter=s>a</parameter><parameter=n>"
     "1</parameter></function></tool_call>then", "C(then)0:f({\"s\": \"a\", \"n\": 1})"},
    {"qwen3_xml", "none", false, "<tool_call>\n" FUN("f", ARG("s", "") "<parameter=s>\n</parameter>"
     "<parameter=s></parameter>" ARG("s", "\n") ARG("r", "\n\n\n") ARG("s", "\"q\" </param>"))
     "\n</tool_call>", "0:f({\"s\": \"\", \"s\": \"\", \"s\": \"\", \"s\": \"\\n\", \"r\": "
     "\"\\n\\n\\n\", \"s\": \"\\\"q\\\" </param>\"})"},
    {"qwen3_coder", "none", false, "<tool_call>\n" FUN("f", ARG("n", "seven") ARG("o", "{'k': 1}")
     ARG("z", "[2") ARG("zz", "false")) "\n</tool_call>",
     "0:f({\"n\": \"seven\", \"o\": \"{'k': 1}\", \"z\": \"[2\", \"zz\": false})"},
    {"qwen3_coder", "none", false, "<tool_call>\n" FUN("f", "") FUN("g", "") "</tool_call>x",
     "C(x)0:f({})1:g({})"}, /* two between the outer tags */
    {"qwen3_coder", "none", false, "Look.\n" FUN("f", ARG("s", "a")) "\n</tool_call>\n"
     FUN("g", "") "\n" FUN("g", "") "\nEnd.", /* the outer tags are missing */
     "C(Look.End.)0:f({\"s\": \"a\"})1:g({})2:g({})"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\n" ARG("s", "a")
     "</tool_call><tool_call>\n<function=g>\n<tool_call>\n" FUN("g", ""),
     "0:f({\"s\": \"a\"})1:g({})2:g({})"}, /* and others */
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\n<parameter=s>\na < b </function>\n"
     "<parameter=n>\n1\n</function>\n</tool_call>",
     "0:f({\"s\": \"a < b </function>\", \"n\": 1})"},
    {"qwen3_coder", "none", false, "<function=f><parameter=s></function>x",
     "C(x)0:f({\"s\": \"\"})"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\njunk\n</function>\n</tool_call>",
     "C(junk\n</function>\n</tool_call>)0:f({})"},
    {"qwen3_coder", "none", false, "a <tool_call>{\"name\": \"f\"}</tool_call> b",
     "C(a <tool_call>{\"name\": \"f\"}</tool_call> b)"},
    {"qwen3_coder", "none", false, "a <function> <function=\nf> <function=<b> <function=> <functio",
     "C(a <function> <function=\nf> <function=<b> <function=> <functio)"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f", "C(<tool_call>\n<function=f)"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\n<parameter=s>\ncut o\n",
     "0:f({\"s\": \"cut o)"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\n<parameter=o>\n{\"cut\n",
     "0:f({\"o\": {\"cut)"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\n<parameter=s", "0:f({})"},
    {"qwen3_coder", "none", false, "<tool_call>\n<function=f>\n" ARG("s", "a") "</functi",
     "C(</functi)0:f({\"s\": \"a\"})"},
    {"qwen3_coder", "qwen3", true, "I call <tool_call>\n" FUN("f", ARG("n", "1"))
     "\n</tool_call>\n</think>done", "R(I call)C(done)0:f({\"n\": 1})"},
    {"qwen3_coder", "qwen3", true, "no <tool_call> and <function=f> here</think>x",
     "R(no <tool_call> and <function=f> here)C(x)"},
    {"qwen3_coder", "none", false, CT("<tool_call>") "\n<function=f>\n" ARG("s", "1")
     "</function>\n" CT("</tool_call>") CT("<|im_end|>"), "0:f({\"s\": \"1\"})"},
    {"qwen3_coder", "none", false, CT("<tool_call>") "\n<function=f>\n<parameter=n>\n1\n"
     CT("</tool_call>") "x", "C(x)0:f({\"n\": 1})"},
    /* Kimi: the head is the id */
    {"kimi_k2", "kimi_k2", false, "<think>hm</think>Look." K_CALLS K_CALL "functions.get_weather:0"
     K_ARGS "{\"city\": \"Paris\"}" K_CALL_END K_CALL
     "functions.f:1" K_ARGS "{}" K_CALL_END K_CALLS_END,
        "R(hm)C(Look.)0:get_weather({\"city\": \"Paris\"})1:f({})"},
    {"kimi_k2", "none", false, K_CALLS "\n" K_CALL
     "\n functions.a.b:12\n" K_ARGS " {\"a\":1} " K_CALL_END "\n" K_CALLS_END, "0:a.b({\"a\":1})"},
    {"kimi_k2", "none", false, K_CALL "f" K_ARGS K_CALL_END "x", "C(x)0:f({})"},
    {"kimi_k2", "none", false, K_CALL "functions.:3" K_ARGS "{}" K_CALL_END,
     "C(" K_CALL "functions.:3" K_ARGS "{})"},
    {"kimi_k2", "kimi_k2", true, "so I" K_CALLS K_CALL
     "functions.f:0" K_ARGS "{}" K_CALL_END K_CALLS_END, "R(so I)0:f({})"},
    {"kimi_k2", "none", false, CT(K_CALLS) CT(K_CALL) "functions.f:0" CT(K_ARGS) "{\"a\": "
     CT("<|im_end|>") "1}" CT(K_CALL_END) CT(K_CALLS_END) CT("<|im_end|>"), "0:f({\"a\": 1})"},
    /* Gemma 4: keys and numbers stand bare */
    {"gemma4", "gemma4", false, CT("<|channel>") "thought\nhm \n" CT("<channel|>") "\nLook.\n"
     CT("<|tool_call>") "call:f{a:" G_Q "x \"y\"\n{<z" G_Q ",n:-1.5e3,b:true,o:{p:[1," G_Q G_Q
     ",null],q:{}}}" CT("<tool_call|>") CT("<|tool_response>"),
     "R(hm)C(Look.)0:f({\"a\": \"x \\\"y\\\"\\n{<z\", \"n\": -1.5e3, \"b\": true, "
     "\"o\": {\"p\": [1, \"\", null], \"q\": {}}})"},
    {"gemma4", "gemma4", false, "<|channel>thought\n<channel|>a <b<|tool_call>call:f{}<tool_call|>"
     "<|tool_call> call:g.h{ \"k\" : \"a,}\\\"\" , <|\"|>l<|\"|>: [a b, ] }<tool_call|>end",
     "C(a <bend)0:f({})1:g.h({\"k\": \"a,}\\\"\", \"l\": [\"a b\"]})"},
    {"gemma4", "gemma4", true, " so<channel|> a\n", "R(so)C(a\n)"},
    {"gemma4", "none", false, "<|channel>thought\nso<channel|> a", "C(soa)"},
    {"gemma4", "gemma4", false, "<|channel>thought\nI <|tool_call>call:f{a:1,}<tool_call|>",
     "R(I)0:f({\"a\": 1})"},
    {"gemma4", "none", false, "a <|tool_call>call f{}<tool_call|>",
     "C(a <|tool_call>call f{}<tool_call|>)"},
    {"gemma4", "none", false, "<|tool_call>call:f{a:<|\"|>cut", "0:f({\"a\": \"cut)"},
    {"gemma4", "none", false, "<|tool_call>call:f{a:[{b:<|\"|>x<tool_call|>", /* a text's */
     "0:f({\"a\": [{\"b\": \"x<tool_call|>)"},
    {"gemma4", "none", false, "<|tool_call>call:f{a:[{b:<|\"|>x" CT("<tool_call|>") " y",
     "C(y)0:f({\"a\": [{\"b\": \"x\"}]})"},
    {"gemma4", "none", false, "<|tool_call>call:f{a" CT("<|tool_call>") "call:g{x:,y:1]",
     "0:f({})1:g({\"x\": null, \"y\": 1})"},
};
/* clang-format on */

static struct arena arena;

static const struct json *tool_list(void)
{
    const struct json *v = NULL;
    sl_err err;
    mem_arena_init(&arena, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&arena, "tools", tool_text, sizeof tool_text - 1, &v, &err));
    return v;
}

static struct api_parse_opts opts_of(const struct row *r, const struct json *tools)
{
    return (struct api_parse_opts){.tool_parser = r->tool,
                                   .tool_list = tools,
                                   .reasoning_parser = r->reason,
                                   .tools = true,
                                   .prompt_thinks = r->thinks};
}

TEST(api_parse_forms_in_every_cut)
{
    struct str line;
    str_init(&line, MEM_MISC, 0);
    const struct json *tools = tool_list();
    for (int i = 0; i < BASE_COUNT_OF(rows); i++) {
        struct api_parse_opts o = opts_of(&rows[i], tools);
        size_t n = strlen(rows[i].in), one[600];
        parse(&o, rows[i].in, n, NULL, 0, &line);
        if (strcmp(str_c(&line), rows[i].out) != 0)
            fail_msg("%s\n gives %s\n not   %s", rows[i].in, str_c(&line), rows[i].out);
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b += 1 + n / 40) {
                const size_t cut[2] = {a, b};
                parse(&o, rows[i].in, n, cut, 2, &line);
                if (strcmp(str_c(&line), rows[i].out) != 0)
                    fail_msg("%s\n cut at %zu, %zu gives %s", rows[i].in, a, b, str_c(&line));
            }
        assert_true(n < 600);
        for (size_t k = 0; k < n; k++)
            one[k] = k + 1;
        parse(&o, rows[i].in, n, one, (int)n, &line);
        if (strcmp(str_c(&line), rows[i].out) != 0)
            fail_msg("%s byte by byte gives %s", rows[i].in, str_c(&line));
    }
    mem_arena_fini(&arena);
    str_fini(&line);
}

/* What is no call for certain is told from what could not be read. */
TEST(api_parse_comes_out_whole_or_is_refused_where_memory_is_short)
{
    struct str line;
    int n_fail = 0;
    str_init(&line, MEM_MISC, 0);
    const struct json *tools = tool_list();
    for (int i = 0; i < BASE_COUNT_OF(rows); i++)
        for (int bytes = 0; bytes < 2; bytes++) {
            struct api_parse_opts o = opts_of(&rows[i], tools);
            size_t n = strlen(rows[i].in), one[600];
            for (size_t k = 0; k < n; k++)
                one[k] = k + 1;
            uint64_t begun = mem_n_alloc();
            parse(&o, rows[i].in, n, one, bytes ? (int)n : 0, &line);
            struct fed fed = {one, bytes ? (int)n : 0, mem_n_alloc() - begun};
            for (; fed.fail > 0; fed.fail--) {
                sl_status st = try_parse(&o, rows[i].in, n, &fed, &line);
                if (st && st != SL_NOMEM) fail_msg("%s: status %d", rows[i].in, st);
                if (!st && strcmp(str_c(&line), rows[i].out) != 0)
                    fail_msg("%s\n without allocation %d gives %s\n not   %s", rows[i].in,
                             (int)fed.fail, str_c(&line), rows[i].out);
                n_fail += st != SL_OK;
            }
        }
    assert_true(n_fail > 1000);
    mem_arena_fini(&arena);
    str_fini(&line);
}

#define LONG "a_part_of_a_name_that_is_longer_than_any_may_be__"
static const char *const part[] = {"<think>",
                                   "</think>",
                                   ST,
                                   ST "assistant",
                                   CH "analysis" MSG,
                                   CH "commentary to=functions.f " CON "json" MSG,
                                   CT("<|channel|>") "final" CT("<|message|>"),
                                   END,
                                   CALLH,
                                   "<tool_call>",
                                   "</tool_call>",
                                   CALLS,
                                   CALLS_END,
                                   CALL,
                                   CALL_END,
                                   SEP,
                                   "<|python_tag|>",
                                   "{",
                                   "}",
                                   "[",
                                   "]",
                                   "\"name\"",
                                   ":",
                                   "\"f\"",
                                   ",",
                                   "\"arguments\"",
                                   "\"parameters\"",
                                   "{\"a\": 1}",
                                   "function",
                                   "\n",
                                   "```json",
                                   "```",
                                   " ",
                                   "x",
                                   "<",
                                   "\\",
                                   "\"",
                                   "</t",
                                   "<" BAR,
                                   ";",
                                   "12",
                                   "{\"name\": \"g\", \"arguments\": {",
                                   "\xff",
                                   CT("</s>"),
                                   CT("<think>"),
                                   CT("</think>"),
                                   CT("<tool_call>"),
                                   CT("</tool_call>"),
                                   CT(CALL),
                                   CT(SEP),
                                   CT(CALL_END),
                                   "<arg_key>",
                                   "</arg_key>",
                                   "<arg_value>",
                                   "</arg_value>",
                                   "<minimax:tool_call>",
                                   "</minimax:tool_call>",
                                   "<mm:think>",
                                   "</mm:think>",
                                   DSML("function_calls>"),
                                   DSML("invoke name=\"f\">"),
                                   DSML("parameter name=\"n\" string=\"false\">"),
                                   DSML("parameter name=\"s\" string=\"true\">"),
                                   SHUT("parameter"),
                                   SHUT("invoke"),
                                   "<invoke name=\"f\">",
                                   "</invoke>",
                                   "<parameter name=\"n\">",
                                   "</parameter>",
                                   "<function=f>",
                                   "</function>",
                                   "<parameter=s>",
                                   "<parameter=n>\n",
                                   K_CALL,
                                   K_ARGS,
                                   "functions.f:0",
                                   CT(K_CALL_END),
                                   CT("<arg_value>"),
                                   CT("<minimax:tool_call>"),
                                   "          ",
                                   "<|channel>thought\n",
                                   CT("<channel|>"),
                                   "<|tool_call>call:f{a:",
                                   G_Q,
                                   ",b:[{",
                                   LONG LONG LONG LONG};

TEST(api_parse_random_texts_are_the_same_in_any_cut)
{
    static const char *const tool[] = {"none",    "hermes",     "deepseek_v3", "llama3",
                                       "json",    "glm45",      "minimax_m2",  "kimi_k2",
                                       "harmony", "qwen3_coder", "deepseek_v32", "minimax_m3",
                                       "gemma4"};
    struct str in, whole, line;
    const struct json *tools = tool_list();
    str_init(&in, MEM_MISC, 0);
    str_init(&whole, MEM_MISC, 0);
    str_init(&line, MEM_MISC, 0);
    for (uint64_t seed = 1; seed <= 12000; seed++) {
        size_t cut[64];
        int n_cut = 0, n_part = (int)(rng_uniform(seed, 0, 0) * 24);
        const char *reasoning = seed % 3 == 0 ? "none" : seed % 5 ? "qwen3" : "minimax_m3";
        struct api_parse_opts o = {.tool_parser = tool[seed % 13],
                                   .tool_list = seed % 17 ? tools : NULL,
                                   .reasoning_parser = reasoning,
                                   .tools = true,
                                   .prompt_thinks = seed % 7 == 0,
                                   .max_calls = seed % 11 == 0};
        str_clear(&in);
        for (int i = 0; i < n_part; i++)
            str_puts(&in, part[(int)(rng_uniform(seed, 1, (uint64_t)i) * BASE_COUNT_OF(part))]);
        if (seed % 50 == 0)
            for (int i = 0; i < 300; i++)
                str_puts(&in, seed % 100 ? "        " : "\n\n\n<\n");
        parse(&o, str_c(&in), in.n, NULL, 0, &whole);
        size_t at = 0;
        while (n_cut < 63 && at < in.n) {
            at += 1 + (size_t)(rng_uniform(seed, 2, (uint64_t)n_cut) * 9);
            if (at < in.n) cut[n_cut++] = at;
        }
        parse(&o, str_c(&in), in.n, cut, n_cut, &line);
        if (line.n != whole.n || (line.n && memcmp(line.p, whole.p, line.n) != 0))
            fail_msg("seed %d: %s\n whole %s\n parts %s", (int)seed, str_c(&in), str_c(&whole),
                     str_c(&line));
    }
    mem_arena_fini(&arena);
    str_fini(&in);
    str_fini(&whole);
    str_fini(&line);
}

/* Long hostile texts: linear in time, bounded in what is held. */
TEST(api_parse_long_texts_are_cheap)
{
    static const char *const unit[] = {"<",
                                       "<tool_call>",
                                       "{",
                                       "\"",
                                       " ",
                                       "\n```",
                                       "<tool_call>{\"name\":\"",
                                       "[[[[",
                                       CALL,
                                       CALLS CALL "f" SEP,
                                       "<tool_call>{\"arguments\":{\"a\":\"",
                                       "<think>",
                                       "<tool_call>f",
                                       "<arg_key>",
                                       "<tool_call>f<arg_key>n</arg_key><arg_value>1",
                                       "<minimax:tool_call><invoke name=\"",
                                       "<parameter name=\"n\">",
                                       DSML("function_calls>") DSML("invoke name=\"f\">")
                                           DSML("parameter name=\"n\" "),
                                       "<function=f>",
                                       "<parameter=s>\n",
                                       "<function=f><parameter=n>1\n",
                                       K_CALL "functions.f:0" K_ARGS,
                                       "\\"};
    static const char *const tool[] = {"hermes", "deepseek_v3", "llama3", "json",
                                       "glm45",  "minimax_m2",  "kimi_k2", "qwen3_coder",
                                       "deepseek_v32"};
    for (int u = 0; u < BASE_COUNT_OF(unit); u++)
        for (int t = 0; t < BASE_COUNT_OF(tool); t++) {
            struct api_parse_opts o = {
                .tool_parser = tool[t], .reasoning_parser = "qwen3", .tools = true};
            struct out out;
            struct api_parse *p = NULL;
            struct timespec t0, t1;
            sl_err err;
            memset(&out, 0, sizeof out);
            struct api_parse_sink sink = {&out, on_text, on_reason, on_call, on_args};
            ASSERT_OK(api_parse_open(&o, &p, &err));
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
            int64_t used = mem_used(MEM_REQUEST);
            for (int i = 0; i < 60000; i++)
                ASSERT_OK(api_parse_feed(p, unit[u], strlen(unit[u]), false, &sink, &err));
            assert_true(mem_used(MEM_REQUEST) - used < 1 << 20);
            ASSERT_OK(api_parse_feed(p, "", 0, true, &sink, &err));
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
            assert_true((t1.tv_sec - t0.tv_sec) < 3);
            api_parse_close(p);
            str_fini(&out.text);
            str_fini(&out.reason);
            for (int i = 0; i < 8; i++) {
                str_fini(&out.args[i]);
                str_fini(&out.name[i]);
            }
        }
}

TEST(api_parse_max_calls_leaves_later_ones_out)
{
    struct str line;
    static const char in[] =
        "<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
        "tool_call><tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1}}</tool_call>";
    struct api_parse_opts o = {
        .tool_parser = "hermes", .reasoning_parser = "none", .tools = true, .max_calls = 1};
    str_init(&line, MEM_MISC, 0);
    parse(&o, in, sizeof in - 1, NULL, 0, &line);
    assert_string_equal(str_c(&line), "0:f({})");
    o.max_calls = 0;
    o.tools = false;
    parse(&o, in, sizeof in - 1, NULL, 0, &line);
    assert_int_equal(line.n, sizeof in - 1 + 3); /* all content */
    str_fini(&line);
}

static void keep_id(void *u, int i, const char *p, size_t n)
{
    (void)i;
    (void)p;
    (void)n;
    str_printf(((void **)u)[0], "%s ", api_parse_call_id(((void **)u)[1]));
}
static void no_text(void *u, const char *p, size_t n)
{
    (void)u;
    (void)p;
    (void)n;
}
static void no_args(void *u, int i, const char *p, size_t n)
{
    (void)u;
    (void)i;
    (void)p;
    (void)n;
}

TEST(api_parse_kimi_ids_are_the_models_own)
{
    static const char in[] =
        K_CALLS K_CALL " functions.f:3 " K_ARGS "{}" K_CALL_END K_CALL "functions.g" K_ARGS
                       "{}" K_CALL_END K_CALL "functions.x:y:14" K_ARGS "{}" K_CALL_END;
    struct api_parse_opts o = {.tool_parser = "kimi_k2", .tools = true};
    struct api_parse *p = NULL;
    struct str ids;
    sl_err err;
    for (uint64_t k = 0; k < 40; k++) { /* 0: no allocation fails */
        str_init(&ids, MEM_MISC, 0);
        mem_fail_at(k, 0);
        sl_status st = api_parse_open(&o, &p, &err);
        void *user[2] = {&ids, p};
        struct api_parse_sink sink = {user, no_text, no_text, keep_id, no_args};
        if (!st) st = api_parse_feed(p, in, sizeof in - 1, true, &sink, &err);
        mem_fail_at(0, 0);
        assert_true(st == SL_OK || (k && st == SL_NOMEM));
        if (!st && !ids.failed)
            assert_string_equal(str_c(&ids), "functions.f:3  functions.x:y:14 ");
        api_parse_close(p);
        str_fini(&ids);
    }
}
