/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests over cmocka. TEST(kv_evicts_oldest) { ... } registers itself; the name states the
 * fact. One executable per room. Run with a substring of a name to run only those tests. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

void test_register(const char *name, void (*fn)(void **state));

#define TEST(name)                                                                                 \
    static void test_fn_##name(void **state);                                                      \
    __attribute__((constructor)) static void test_ctor_##name(void)                                \
    {                                                                                              \
        test_register(#name, test_fn_##name);                                                      \
    }                                                                                              \
    static void test_fn_##name(__attribute__((unused)) void **state)

/* expr is SL_OK, or the test fails with the error's text; needs a local `sl_err err`. */
#define ASSERT_OK(expr)                                                                            \
    do {                                                                                           \
        sl_status st_ = (expr);                                                                    \
        if (st_ != SL_OK) fail_msg("%s: %s", #expr, err.text);                                     \
    } while (0)
#define ASSERT_STATUS(expr, code) assert_int_equal((expr), (code))

#endif
