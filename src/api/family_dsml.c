/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3.2. */
#include "api/family_dsml.h"

static const struct api_call_form form = {DSML_FORM("function_calls")};

const struct api_family api_family_dsml = {
    .name = "dsml",
    .parsers = "deepseek_v32",
    .alias = "dsml",
    .reasoning = "deepseek_v32",
    .word = DSML_WORD,
    DSML_ROW("function_calls", &form),
};
