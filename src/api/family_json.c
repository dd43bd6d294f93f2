/* SPDX-License-Identifier: Apache-2.0 */
/* Plain JSON, of models whose template shows no form: an answer that is an object, or a list. */
#include "api/family.h"

static const struct api_call_form form = {
    .key = "arguments", .whole = "sl-one", .between = "\", \" ", .list = true, .not_first = "\\["};

const struct api_family api_family_json = {
    .name = "json",
    .parsers = "json",
    .place = 10,
    .bare = true,
    .form = &form,
};
