/* SPDX-License-Identifier: Apache-2.0 */
/* What a text is cut into, for the tests of tokenizers. */
#ifndef TESTS_TOK_EXPECT_H
#define TESTS_TOK_EXPECT_H

#include <stdio.h>
#include <string.h>

#include "test.h"
#include "tok/tok_internal.h"

/* want: the ids with blanks between them. */
static inline void expect(const tok *t, const char *text, int flags, const char *want)
{
    struct tok_ids ids = {0};
    sl_err err = {0};
    char got[256] = "";
    ASSERT_OK(tok_encode(t, text, strlen(text), flags, &ids, &err));
    for (int i = 0; i < ids.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", (int)ids.id[i]);
    mem_free(ids.id);
    assert_string_equal(got, want);
}

#endif
