/* SPDX-License-Identifier: Apache-2.0 */
/* Hermes and Qwen: each call is an object between two tags. */
#include "api/family.h"
#include "api/parse_internal.h"

static const struct api_call_form form = {.key = "arguments",
                                          .tag = T_CALL,
                                          .n_tag = 2,
                                          .whole = "sl-begin \"\\n\" sl-one \"\\n\" sl-end",
                                          .between = "\"\\n\" ",
                                          .not_text = "<tool_call>"};

const struct api_family api_family_hermes = {
    .name = "hermes",
    .parsers = "hermes|qwen3",
    .reasoning = "qwen3",
    .place = 8, /* after GLM and Qwen3-Coder, which write this tag too */
    .tag = {[T_CALL] = "<tool_call>", [T_CALL_END] = "</tool_call>"},
    .marks = BIT(T_CALL),
    .text_tags = BIT(T_CALL),
    .call_tag = T_CALL,
    .closed = true,
    .form = &form,
};
