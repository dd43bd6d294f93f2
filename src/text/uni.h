/* SPDX-License-Identifier: Apache-2.0 */
/* Properties and case of code points, as Python and Unicode define them. */
#ifndef TEXT_UNI_H
#define TEXT_UNI_H

#include <stdbool.h>
#include <stdint.h>

bool text_uni_white(uint32_t cp); /* White_Space */
bool text_uni_space(uint32_t cp); /* Python's str.isspace: White_Space and U+001C..1F */
bool text_uni_word(
    uint32_t cp); /* \w of a regular expression: letters, marks, decimal digits, connectors */
bool text_uni_cased(uint32_t cp);     /* Lu, Ll, Lt */
bool text_uni_alpha(uint32_t cp);     /* any letter */
bool text_uni_print(uint32_t cp);     /* Python's str.isprintable */
bool text_uni_digit(uint32_t cp);     /* Nd */
uint32_t text_uni_upper(uint32_t cp); /* simple case mappings */
uint32_t text_uni_lower(uint32_t cp);
uint32_t text_uni_title(uint32_t cp);

#endif
