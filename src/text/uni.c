/* SPDX-License-Identifier: Apache-2.0 */
/* Properties and case of code points, by utf8proc. */
#include "text/uni.h"

#include <utf8proc.h>

static utf8proc_category_t cat(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool text_uni_white(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

bool text_uni_space(uint32_t cp)
{
    return text_uni_white(cp) || (cp >= 0x1c && cp <= 0x1f);
}

bool text_uni_word(uint32_t cp)
{
    switch (cat(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return text_uni_alpha(cp);
    }
}

bool text_uni_cased(uint32_t cp)
{
    if (cp < 0x80) return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    utf8proc_category_t c = cat(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

bool text_uni_alpha(uint32_t cp)
{
    utf8proc_category_t c = cat(cp);
    return text_uni_cased(cp) || c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool text_uni_print(uint32_t cp)
{
    if (cp == ' ') return true;
    switch (cat(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool text_uni_digit(uint32_t cp)
{
    return cat(cp) == UTF8PROC_CATEGORY_ND;
}

uint32_t text_uni_upper(uint32_t cp)
{
    if (cp < 0x80) return cp >= 'a' && cp <= 'z' ? cp ^ 0x20 : cp; /* most text: no tables */
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
}
uint32_t text_uni_lower(uint32_t cp)
{
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp ^ 0x20 : cp;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}
uint32_t text_uni_title(uint32_t cp)
{
    if (cp < 0x80) return text_uni_upper(cp);
    return (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
}
