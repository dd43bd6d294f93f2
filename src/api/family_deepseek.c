/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3, R1 and V3.1: a block of calls, each with tags; the older form has the kind of tool
 * before the separator, then the name, then the arguments in a fence. */
#include "api/family.h"
#include "api/parse_internal.h"

#define NOT_TEXT                                                                                   \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                \
    "call"

static const struct api_call_form form = {.before = "sl-sep ",
                                          .tag = T_DS_CALLS,
                                          .n_tag = 5,
                                          .whole = "sl-call-begin sl-one sl-call-end",
                                          .open = "sl-begin ",
                                          .close = " sl-end",
                                          .not_text = NOT_TEXT};
static const struct api_call_form fenced = {.before = "\"\\n```json\\n\" ",
                                            .after = " \"\\n```\"",
                                            .tag = T_DS_CALLS,
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
    .marks = BIT(T_DS_CALLS),
    .text_tags = BIT(T_DS_CALLS) | BIT(T_DS_CALLS_END) | BIT(T_DS_CALL) | BIT(T_DS_CALL_END),
    .call_tag = T_DS_CALL,
    .block_tag = T_DS_CALLS,
    .form = &form,
    .fenced = &fenced,
};
