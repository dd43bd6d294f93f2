/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M2: a block of calls, whose arguments have a tag with their name. */
#include "api/family.h"
#include "api/parse_internal.h"

extern const struct api_call_form api_form_minimax;
const struct api_call_form api_form_minimax = {
    .word = true,
    .head = "<invoke name=\"",
    .tail = "\">\n",
    .after = " \"</invoke>\"",
    .tag = T_CALLS,
    .n_tag = 2,
    .whole = "sl-one",
    .open = "sl-begin \"\\n\" ",
    .close = " \"\\n\" sl-end",
    .between = "\"\\n\" ",
    .not_text = "<minimax:tool_call>",
};

const struct api_family api_family_minimax = {
    .name = "minimax",
    .parsers = "minimax_m2",
    .alias = "minimax",
    .reasoning = "minimax_m2",
    .place = 5, /* after M3, which writes this tag too */
    .tag = {[T_CALLS] = "<minimax:tool_call>",
            [T_CALLS_END] = "</minimax:tool_call>",
            [T_CALL] = "<invoke name=\"",
            [T_CALL_END] = "</invoke>",
            [T_KEY] = "<parameter name=\"",
            [T_VALUE_END] = "</parameter>"},
    .marks = BIT(T_CALLS),
    .text_tags = BIT(T_CALLS),
    .cut_tags = BIT(T_CALLS),
    .call_tag = T_CALLS,
    .xml = API_XML_NAMED,
    .form = &api_form_minimax,
};
