/* SPDX-License-Identifier: Apache-2.0 */
/* Which family of parsers a template, or else an architecture, means. */
#include <string.h>

#include "api/parse.h"
#include "test.h"

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define CALLS "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"
#define K_CALLS "<|tool_calls_section_begin|>"
#define MSG "<|message|>"
#define CH "<|channel|>"

TEST(api_parse_auto_reads_the_template)
{
    static const struct {
        const char *tmpl, *family;
        bool reasoning;
        const char *trained;
    } row[] = {{"{{ '" CALLS "' }} </think>", "deepseek", true, NULL},
               {"<tool_call> <think>", "hermes", true, NULL},
               {"<tool_call>{name}\n<arg_key> </think>", "glm", true, NULL},
               {"'<minimax:tool_call>' <think>", "minimax", true, NULL},
               {"'<minimax:tool_call>' <mm:think>", "minimax_m3", true, NULL},
               {"</mm:think> <mm:think>", "minimax_m3", true, NULL},
               {"{{ x }}", "minimax_m3", false, "minimax_m3"},
               {"{% set d = '" BAR "DSML" BAR "' %} </think>", "dsml", true, NULL},
               {"{{ x }}", "dsml", false, "dsml"},
               {"{% set d = '" BAR "DSML" BAR "' %}{{ '<' ~ d ~ 'tool_calls>' }}", "dsml4", false,
                NULL},
               {"<" BAR "DSML" BAR "tool_calls> </think>", "dsml4", true, "dsml"},
               {"{{ x }}", "dsml4", false, "dsml4"},
               {"'<|tool_call>call:' '<|\"|>' <|channel>thought", "gemma4", true, NULL},
               {"<|turn>model <|channel>thought", "gemma4", true, NULL},
               {"<start_of_turn>model", "gemma4", true, "gemma4"},
               {"<tool_call>\n<function=a>\n<parameter=b> <think>", "qwen", true, NULL},
               {"<tool_call>\n<function=' + name + '>' <parameter=", "qwen", false, "hermes"},
               {"<tool_call> <function=a>", "hermes", false, NULL},
               {"<function=a> <parameter=b>", "json", false, NULL},
               {"{{ x }}", "qwen", false, "qwen"},
               {K_CALLS, "kimi", false, NULL},
               {CH "analysis" MSG, "harmony", true, NULL},
               {"<|python_tag|>", "llama3", false, NULL},
               {"{{ x }}", "json", false, NULL},
               {"{{ x }}", "glm", false, "glm"},
               {"<tool_call>", "hermes", false, "glm"},
               {NULL, "json", false, "glm"}};
    sl_err err;
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct api_parse_opts o = {
            .template_text = row[i].tmpl, .trained = row[i].trained, .tools = true};
        struct api_parse *p = NULL;
        ASSERT_OK(api_parse_open(&o, &p, &err));
        assert_string_equal(api_parse_family(p)->name, row[i].family);
        assert_int_equal(api_parse_has_reasoning(p), row[i].reasoning);
        api_parse_close(p);
    }
    struct api_parse *p = NULL;
    ASSERT_STATUS(api_parse_open(&(struct api_parse_opts){.tool_parser = "x"}, &p, &err),
                  SL_REQUEST);
    assert_non_null(strstr(err.text, "--tool-parser x: "));
    ASSERT_STATUS(api_parse_open(&(struct api_parse_opts){.reasoning_parser = "x"}, &p, &err),
                  SL_REQUEST);
    assert_non_null(strstr(err.text, "--reasoning-parser x: "));
}
