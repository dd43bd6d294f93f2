/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes text for HTML. */
#include "text/html.h"

void text_html_escape(struct str *out, const char *z)
{
    for (; *z; z++)
        switch (*z) {
        case '<':
            str_puts(out, "&lt;");
            break;
        case '>':
            str_puts(out, "&gt;");
            break;
        case '&':
            str_puts(out, "&amp;");
            break;
        case '"':
            str_puts(out, "&quot;");
            break;
        default:
            str_putc(out, *z);
        }
}
