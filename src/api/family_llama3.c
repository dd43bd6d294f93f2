/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 3: an answer that is an object with "parameters", or several with semicolons between. */
#include "api/family.h"
#include "api/parse_internal.h"

enum { T_PYTHON = T_OWN };

static const struct api_call_form form = {
    .key = "parameters", .whole = "sl-one", .between = "\"; \" ", .not_first = "<"};

const struct api_family api_family_llama3 = {
    .name = "llama3",
    .parsers = "llama3",
    .alias = "llama3_json",
    .place = 9,
    .tag = {[T_PYTHON] = "<|python_tag|>"},
    .marks = BIT(T_PYTHON),
    .word = "ipython",
    .lead_tags = BIT(T_PYTHON),
    .bare = true,
    .form = &form,
};
