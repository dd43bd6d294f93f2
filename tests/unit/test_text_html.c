/* SPDX-License-Identifier: Apache-2.0 */
/* Escaping for HTML. */
#include "base/str.h"
#include "test.h"
#include "text/html.h"

TEST(text_html_escapes_what_would_be_markup)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    text_html_escape(&s, "a<b> \"c\" & 'd' \xc3\xa9");
    assert_string_equal(str_c(&s), "a&lt;b&gt; &quot;c&quot; &amp; 'd' \xc3\xa9");
    str_fini(&s);
}
