/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tests that registered themselves: those whose name has one of the arguments in it, and
 * none of those that follow a '-'. */
#include <stdlib.h>
#include <string.h>

#include "test.h"

static struct CMUnitTest tests[2048];
static size_t n_test;

void test_register(const char *name, void (*fn)(void **state))
{
    if (n_test == sizeof tests / sizeof *tests) abort();
    tests[n_test++] = (struct CMUnitTest){.name = name, .test_func = fn};
}

static int wanted(const char *name, char **args)
{
    int n_part = 0, n_in = 0;
    for (; *args; args++) {
        if (**args == '-' && strstr(name, *args + 1)) return 0;
        n_part += **args != '-';
        n_in += strstr(name, *args) != NULL;
    }
    return n_part == 0 || n_in > 0;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    (void)argc;
    for (size_t i = 0; i < n_test; i++)
        if (wanted(tests[i].name, argv + 1)) tests[n++] = tests[i];
    if (n == 0) return 1; /* a filter that selects nothing is a mistake */
    return _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
}
