/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Coder, Qwen3.5 and later: each call between two tags, its name in a tag, each argument in
 * one that holds its name, with the value on lines of its own. The outer tags may be missing. */
#include "api/family.h"
#include "api/parse_internal.h"

static const struct api_call_form form = {.word = true,
                                          .head = "<function=",
                                          .tail = ">\n",
                                          .after = " \"</function>\"",
                                          .tag = T_CALLS,
                                          .n_tag = 2,
                                          .whole = "sl-begin \"\\n\" sl-one \"\\n\" sl-end",
                                          .between = "\"\\n\" ",
                                          .not_text = "<tool_call>\n<function="};

const struct api_family api_family_qwen = {
    .name = "qwen",
    .parsers = "qwen3_coder",
    .alias = "qwen3_xml|qwen",
    .place = 7, /* before Hermes, which writes the outer tags too */
    .tag = {[T_CALLS] = "<tool_call>",
            [T_CALLS_END] = "</tool_call>",
            [T_CALL] = "<function=",
            [T_CALL_END] = "</function>",
            [T_KEY] = "<parameter=",
            [T_VALUE_END] = "</parameter>"},
    .marks = BIT(T_CALLS) | BIT(T_CALL) | BIT(T_KEY),
    .text_tags = BIT(T_CALLS) | BIT(T_CALL),
    .cut_tags = BIT(T_CALLS),
    .call_tag = T_CALLS,
    .xml = API_XML_LINES,
    .form = &form,
};
