/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3.2: a block of calls, whose arguments have a tag with their name that also says
 * whether the value is a text or JSON. The word in all tags is a token of its own, and no control
 * token. */
#include "api/family.h"
#include "api/parse_internal.h"

#define WORD                                                                                       \
    "\xef\xbd\x9c"                                                                                 \
    "DSML"                                                                                         \
    "\xef\xbd\x9c"
#define OPEN(z) "<" WORD z
#define SHUT(z) "</" WORD z ">"

static const struct api_call_form form = {.word = true,
                                          .head = OPEN("invoke name=\""),
                                          .tail = "\">\n",
                                          .after = " \"" SHUT("invoke") "\"",
                                          .tag = T_CALLS,
                                          .n_tag = 2,
                                          .whole = "sl-one",
                                          .open = "sl-begin \"\\n\" ",
                                          .close = " \"\\n\" sl-end",
                                          .between = "\"\\n\" ",
                                          .not_text = OPEN("function_calls>")};

const struct api_family api_family_dsml = {
    .name = "dsml",
    .parsers = "deepseek_v32",
    .alias = "dsml",
    .reasoning = "deepseek_v32",
    .tag = {[T_CALLS] = OPEN("function_calls>"),
            [T_CALLS_END] = SHUT("function_calls"),
            [T_CALL] = OPEN("invoke name=\""),
            [T_CALL_END] = SHUT("invoke"),
            [T_KEY] = OPEN("parameter name=\""),
            [T_VALUE_END] = SHUT("parameter")},
    .word = WORD,
    .text_tags = BIT(T_CALLS),
    .cut_tags = BIT(T_CALLS),
    .call_tag = T_CALLS,
    .xml = API_XML_TYPED,
    .form = &form,
};
