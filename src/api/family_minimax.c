/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M2: a block of calls, whose arguments have a tag with their name. */
#include "api/family.h"
#include "api/parse_internal.h"

static const struct api_call_form form = {.word = true,
                                          .head = "<invoke name=\"",
                                          .tail = "\">\n",
                                          .after = " \"</invoke>\"",
                                          .tag = T_BLOCK,
                                          .n_tag = 2,
                                          .whole = "sl-one",
                                          .open = "sl-begin \"\\n\" ",
                                          .close = " \"\\n\" sl-end",
                                          .between = "\"\\n\" ",
                                          .not_text = "<minimax:tool_call>"};

const struct api_family api_family_minimax = {
    .name = "minimax",
    .parsers = "minimax_m2",
    .alias = "minimax",
    .reasoning = "minimax_m2",
    .marks = BIT(T_BLOCK),
    .text_tags = BIT(T_BLOCK),
    .cut_tags = BIT(T_BLOCK),
    .call_tag = T_BLOCK,
    .xml = API_XML_NAMED,
    .form = &form,
};
