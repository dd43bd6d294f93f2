/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a free-form call: the same however its arguments were cut. */
#include <string.h>

#include "api/unwrap.h"
#include "test.h"

static void unwrap(const char *args, size_t step, struct str *out)
{
    struct api_unwrap u;
    size_t n = strlen(args);
    api_unwrap_init(&u);
    for (size_t at = 0; at < n; at += step)
        api_unwrap_feed(&u, args + at, BASE_MIN(step, n - at), out);
    api_unwrap_end(&u, out);
    assert_int_equal(u.raw.n, 0);
    api_unwrap_fini(&u);
}

static void check(const char *args, const char *want)
{
    struct str out;
    for (size_t step = 1; step <= strlen(args) + 1; step++) {
        str_init(&out, MEM_MISC, 0);
        unwrap(args, step, &out);
        if (strcmp(str_c(&out), want) != 0)
            fail_msg("%s by %zu bytes: %s", args, step, str_c(&out));
        str_fini(&out);
    }
}

TEST(api_unwrap_takes_the_text_out_of_its_object)
{
    check("{\"input\": \"*** Begin\"}", "*** Begin");
    check(" {\n\t\"input\" :\r\"\"} ", "");
    check("{\"input\":\"a\\n\\\"b\\\"\\t\\\\ \\/ \\b\\f\\r\"}", "a\n\"b\"\t\\ / \b\f\r");
    check("{\"input\":\"\\u00e9 \\u20ac \\ud83d\\ude00 \xc3\xa9\"}",
          "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xc3\xa9");
    check("{\"input\":\"\\ud83d x \\ude00 \\ud83d\\n\"}",
          "\xef\xbf\xbd x \xef\xbf\xbd \xef\xbf\xbd\n"); /* halves of pairs */
    check("{\"input\":\"x\", \"more\": \"y\"}", "x");
}

TEST(api_unwrap_keeps_what_came_of_arguments_that_were_cut)
{
    check("{\"input\": \"abc", "abc");
    check("{\"input\": \"abc\\", "abc");
    check("{\"input\": \"abc\\u00", "abc");
    check("{\"input\": \"abc\\ud83d", "abc\xef\xbf\xbd");
    check("{\"input\": \"abc\\ud83d\\ude", "abc\xef\xbf\xbd");
    check("{\"inp", "");
    check("", "");
}

TEST(api_unwrap_gives_arguments_of_another_form_at_the_end)
{
    check("{\"patch\": \"abc\\n\"}", "abc\n");
    check("\"abc\"", "abc");
    check("ls -l \"x\"", "ls -l \"x\"");
    check("{}", "");
    check("{\"a\": 1, \"input\": \"x\"}", "{\"a\": 1, \"input\": \"x\"}");
    check("{\"input\": 5}", "{\"input\": 5}");
    check("[\"x\"]", "[\"x\"]");
}

TEST(api_unwrap_fails_where_memory_is_short)
{
    static const char *const all[] = {"{\"patch\": \"abc\\n\"}", "{\"input\": \"abc\"}", "ls -l"};
    static const char *const want[] = {"abc\n", "abc", "ls -l"};
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        int n_fail = 0;
        for (uint64_t k = 0; k < 8; k++) { /* 0: nothing fails */
            struct str out;
            str_init(&out, MEM_MISC, 0);
            mem_fail_at(k, 0);
            unwrap(all[i], 100, &out);
            mem_fail_at(0, 0);
            if (out.failed)
                n_fail++;
            else
                assert_string_equal(str_c(&out), want[i]);
            str_fini(&out);
        }
        assert_int_equal(n_fail, i == 1 ? 2 : 3); /* raw, out, and the JSON that it may be */
    }
}

TEST(api_unwrap_can_be_used_again)
{
    struct api_unwrap u;
    struct str out;
    api_unwrap_init(&u);
    for (int i = 0; i < 3; i++) {
        str_init(&out, MEM_MISC, 0);
        api_unwrap_feed(&u, "{\"input\":\"x\"}", 13, &out);
        api_unwrap_end(&u, &out);
        assert_string_equal(str_c(&out), "x");
        str_fini(&out);
    }
    api_unwrap_fini(&u);
}
