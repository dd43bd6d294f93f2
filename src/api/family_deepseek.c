/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3, R1 and V3.1: a block of calls, each with tags; the older form has the kind of tool
 * before the separator, then the name, then the arguments in a fence. */
#include "api/family.h"
#include "api/parse_internal.h"

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define TAG(z) "<" BAR "tool" LOW z BAR ">"
#define NOT_TEXT "<" BAR "tool" LOW "call"

static const struct api_call_form form = {.before = "sl-sep ",
                                          .tag = T_CALLS,
                                          .n_tag = 5,
                                          .whole = "sl-call-begin sl-one sl-call-end",
                                          .open = "sl-begin ",
                                          .close = " sl-end",
                                          .not_text = NOT_TEXT};
static const struct api_call_form fenced = {.before = "\"\\n```json\\n\" ",
                                            .after = " \"\\n```\"",
                                            .tag = T_CALLS,
                                            .n_tag = 5,
                                            .whole = "sl-call-begin \"function\" sl-sep sl-one "
                                                     "sl-call-end",
                                            .open = "sl-begin ",
                                            .close = " sl-end",
                                            .between = "\"\\n\" ",
                                            .not_text = NOT_TEXT};

const struct api_family api_family_deepseek = {
    .name = "deepseek",
    .parsers = "deepseek_v3|deepseek_r1|deepseek_v31",
    .alias = "deepseek",
    .reasoning = "deepseek_r1|deepseek_v3|deepseek_v31",
    .place = 2,
    .tag = {[T_CALLS] = TAG("calls" LOW "begin"),
            [T_CALLS_END] = TAG("calls" LOW "end"),
            [T_CALL] = TAG("call" LOW "begin"),
            [T_CALL_END] = TAG("call" LOW "end"),
            [T_SEP] = TAG("sep")},
    .marks = BIT(T_CALLS),
    .text_tags = BIT(T_CALLS) | BIT(T_CALLS_END) | BIT(T_CALL) | BIT(T_CALL_END),
    .call_tag = T_CALL,
    .block = true,
    .form = &form,
    .fenced = &fenced,
};
