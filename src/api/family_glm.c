/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-4.5 and later: each call between two tags, its arguments with a tag for name and value. */
#include "api/family.h"
#include "api/parse_internal.h"

static const struct api_call_form form = {.word = true,
                                          .before = "\"\\n\"? ",
                                          .tag = T_CALL,
                                          .n_tag = 2,
                                          .whole = "sl-begin sl-one sl-end",
                                          .between = "\"\\n\"? ",
                                          .not_text = "<tool_call>"};

const struct api_family api_family_glm = {
    .name = "glm",
    .parsers = "glm45",
    .alias = "glm47|glm",
    .reasoning = "glm45",
    .place = 6,
    .tag = {[T_CALL] = "<tool_call>",
            [T_CALL_END] = "</tool_call>",
            [T_KEY] = "<arg_key>",
            [T_KEY_END] = "</arg_key>",
            [T_VALUE] = "<arg_value>",
            [T_VALUE_END] = "</arg_value>"},
    .marks = BIT(T_KEY),
    .text_tags = BIT(T_CALL),
    .cut_tags = BIT(T_CALL),
    .call_tag = T_CALL,
    .xml = API_XML_PAIRS,
    .form = &form,
};
