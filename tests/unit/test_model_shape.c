/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that follow from a configuration. */
#include "model/model.h"
#include "test.h"

TEST(model_caches_a_latent_for_mla_and_heads_for_gqa)
{
    struct arch_cfg mla = {.n_layer = 2, .n_mtp = 1, .n_head_kv = 4, .kv_lora = 32, .d_rope = 8};
    struct arch_cfg gqa = {.n_layer = 2, .n_head_kv = 4, .d_head = 24};
    struct dev_kv_shape s = model_kv_shape(&mla, DEV_KV_BF16, 10, 16);
    assert_int_equal(s.n_layer, 3);
    assert_int_equal(s.n_head, 1);
    assert_int_equal(s.d_k, 40);
    assert_int_equal(s.d_v, 0);
    s = model_kv_shape(&gqa, DEV_KV_BF16, 10, 16);
    assert_int_equal(s.n_layer, 2);
    assert_int_equal(s.n_head, 4);
    assert_int_equal(s.d_k, 24);
    assert_int_equal(s.d_v, 24);
}
