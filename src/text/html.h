/* SPDX-License-Identifier: Apache-2.0 */
/* Escaping text for HTML and SVG. */
#ifndef TEXT_HTML_H
#define TEXT_HTML_H

#include "base/str.h"

/* z onto out, as the text or the quoted attribute of an HTML or SVG element: < > & " are written as
 * entities. */
void text_html_escape(struct str *out, const char *z);

#endif
