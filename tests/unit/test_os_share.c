/* SPDX-License-Identifier: Apache-2.0 */
/* A file that processes have in common, and which networks there are. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/share.h"
#include "test.h"

TEST(os_common_is_shared_and_locks_are_of_one)
{
    struct os_common a, b;
    char path[64];
    snprintf(path, sizeof path, "share_test_%d", (int)getpid());
    assert_int_equal(os_common_open(path, 5000, &a, NULL), SL_OK);
    assert_int_equal(os_common_open(path, 5000, &b, NULL), SL_OK);
    ((char *)a.p)[4999] = 7;
    assert_int_equal(((char *)b.p)[4999], 7);
    assert_true(os_common_lock(&a, 3));
    assert_true(os_common_lock(&a, 3)); /* one's own is no obstacle */
    assert_false(os_common_lock(&b, 3));
    assert_true(os_common_lock(&b, 4));
    assert_true(os_common_held(&a, 0, 10));
    assert_true(os_common_held(&b, 0, 4));
    assert_false(os_common_held(&a, 0, 4));
    os_common_unlock(&a, 3);
    assert_true(os_common_lock(&b, 3));
    assert_int_equal(os_common_clear(&a, NULL), SL_OK);
    assert_int_equal(((char *)b.p)[4999], 0);
    os_common_close(&b);
    assert_true(os_common_lock(&a, 3)); /* those of one that is gone are free */
    os_common_close(&a);
    os_common_close(&a);
    unlink(path);
}

TEST(os_network_is_found_by_name_and_address)
{
    static const struct {
        const char *list;
        bool there;
    } all[] = {{"lo", true},           {"127.0.0.0/8", true},  {"nosuch0", false},
               {"nosuch0,lo", true},   {"127.0.0.1/32", true}, {"127.0.0.2/32", false},
               {"240.0.0.0/8", false}, {"", false},           {"127.0.0.0/99", false},
               {"127.0.0.0", false},   {"/8", false},          {"240.0.0.0/8,127.0.0.0/8", true}};
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        if (os_has_network(all[i].list) != all[i].there) fail_msg("%s", all[i].list);
}
