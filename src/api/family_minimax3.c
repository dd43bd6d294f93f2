/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M3: calls as MiniMax-M2 writes them, and tags of its own around reasoning. */
#include "api/family.h"
#include "api/parse_internal.h"

extern const struct api_call_form api_form_minimax;

const struct api_family api_family_minimax3 = {
    .name = "minimax_m3",
    .parsers = "minimax_m3",
    .reasoning = "minimax_m3",
    .place = 4,
    .tag = {[T_THINK] = "<mm:think>",
            [T_THINK_END] = "</mm:think>",
            [T_CALLS] = "<minimax:tool_call>",
            [T_CALLS_END] = "</minimax:tool_call>",
            [T_CALL] = "<invoke name=\"",
            [T_CALL_END] = "</invoke>",
            [T_KEY] = "<parameter name=\"",
            [T_VALUE_END] = "</parameter>"},
    .marks = BIT(T_CALLS) | BIT(T_THINK),
    .word = "<mm:think>",
    .text_tags = BIT(T_CALLS),
    .cut_tags = BIT(T_CALLS),
    .call_tag = T_CALLS,
    .xml = API_XML_NAMED,
    .form = &api_form_minimax,
};
