/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V4. */
#include "api/family_dsml.h"

static const struct api_call_form form = {DSML_FORM("tool_calls")};

const struct api_family api_family_dsml4 = {
    .name = "dsml4",
    .parsers = "deepseek_v4",
    .alias = "dsml4",
    .reasoning = "deepseek_v4",
    .place = 11, /* before V3.2, whose word its templates write too */
    .word = DSML_WORD,
    .beside = "tool_calls>",
    DSML_ROW("tool_calls", &form),
};
