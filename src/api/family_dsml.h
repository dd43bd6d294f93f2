/* SPDX-License-Identifier: Apache-2.0 */
/* DSML, in which DeepSeek's models write calls from V3.2 on: a block of calls, whose arguments have
 * a tag with their name that also says whether the value is a text or JSON. The word in all tags is
 * a token of its own, and no control token. The block's tag differs from one to the next. */
#ifndef API_FAMILY_DSML_H
#define API_FAMILY_DSML_H

#include "api/family.h"
#include "api/parse_internal.h"

#define DSML_WORD                                                                                  \
    "\xef\xbd\x9c"                                                                                 \
    "DSML"                                                                                         \
    "\xef\xbd\x9c"
#define DSML_OPEN(z) "<" DSML_WORD z
#define DSML_SHUT(z) "</" DSML_WORD z ">"

/* Members of a form and of a row, whose block is called calls. */
#define DSML_FORM(calls)                                                                           \
    .word = true, .head = DSML_OPEN("invoke name=\""), .tail = "\">\n",                            \
    .after = " \"" DSML_SHUT("invoke") "\"", .tag = T_CALLS, .n_tag = 2, .whole = "sl-one",        \
    .open = "sl-begin \"\\n\" ", .close = " \"\\n\" sl-end", .between = "\"\\n\" ",                \
    .not_text = DSML_OPEN(calls ">")
#define DSML_ROW(calls, form_)                                                                     \
    .tag = {[T_CALLS] = DSML_OPEN(calls ">"),                                                      \
            [T_CALLS_END] = DSML_SHUT(calls),                                                      \
            [T_CALL] = DSML_OPEN("invoke name=\""),                                                \
            [T_CALL_END] = DSML_SHUT("invoke"),                                                    \
            [T_KEY] = DSML_OPEN("parameter name=\""),                                              \
            [T_VALUE_END] = DSML_SHUT("parameter")},                                               \
    .text_tags = BIT(T_CALLS), .cut_tags = BIT(T_CALLS), .call_tag = T_CALLS,                      \
    .xml = API_XML_TYPED, .form = (form_)

#endif
