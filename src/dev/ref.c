/* SPDX-License-Identifier: Apache-2.0 */
/* What in the parameters of operators is of a device: one list per operator, for all that looks at
 * operators without computing them. Pointers that are not listed are host memory. */
#include <stddef.h>

#include "dev/dev_internal.h"

#define MAT(s, f)                                                                                  \
    {                                                                                              \
        DEV_REF_MAT, offsetof(struct s, f)                                                         \
    }
#define ACT(s, f)                                                                                  \
    {                                                                                              \
        DEV_REF_ACT, offsetof(struct s, f)                                                         \
    }
#define KV(s, f)                                                                                   \
    {                                                                                              \
        DEV_REF_KV, offsetof(struct s, f)                                                          \
    }
#define BUF(s, f)                                                                                  \
    {                                                                                              \
        DEV_REF_BUF, offsetof(struct s, f)                                                         \
    }
#define FOUR(kind, s, f) kind(s, f[0]), kind(s, f[1]), kind(s, f[2]), kind(s, f[3])
#define ALL(s) FOUR(MAT, s, all), MAT(s, all[4])
#define END                                                                                        \
    {                                                                                              \
        DEV_REF_END, 0                                                                             \
    }

static const struct dev_ref embed_refs[] = {MAT(dev_embed, w), BUF(dev_embed, y), END};
static const struct dev_ref norm_refs[] = {BUF(dev_norm, x),
                                           BUF(dev_norm, r),
                                           BUF(dev_norm, w),
                                           BUF(dev_norm, b),
                                           BUF(dev_norm, y),
                                           ACT(dev_norm, act),
                                           ALL(dev_norm),
                                           END};
static const struct dev_ref streams_refs[] = {
    BUF(dev_streams, x),  BUF(dev_streams, r),    BUF(dev_streams, mix),
    BUF(dev_streams, fn), BUF(dev_streams, base), BUF(dev_streams, scale),
    BUF(dev_streams, y),  BUF(dev_streams, part), END};
static const struct dev_ref prep_refs[] = {BUF(dev_prep, x), ACT(dev_prep, act), ALL(dev_prep),
                                           END};
static const struct dev_ref matmul_refs[] = {ACT(dev_matmul, act), FOUR(MAT, dev_matmul, w),
                                             FOUR(BUF, dev_matmul, y), BUF(dev_matmul, room),
                                             END};
static const struct dev_ref matmul_heads_refs[] = {
    MAT(dev_matmul_heads, w), BUF(dev_matmul_heads, x), BUF(dev_matmul_heads, y), END};
static const struct dev_ref rope_refs[] = {BUF(dev_rope, x), END};
static const struct dev_ref kv_put_refs[] = {KV(dev_kv_put, kv), BUF(dev_kv_put, k),
                                             BUF(dev_kv_put, v), BUF(dev_kv_put, i), END};
static const struct dev_ref attn_refs[] = {KV(dev_attn, kv), BUF(dev_attn, q), BUF(dev_attn, y),
                                           BUF(dev_attn, some.pick),
#define X(role, ...) BUF(dev_attn, per_head.of[PER_HEAD_##role]),
                                           PER_HEAD_LIST(X)
#undef X
                                               END};
static const struct dev_ref index_refs[] = {KV(dev_index, kv), BUF(dev_index, q), BUF(dev_index, w),
                                            BUF(dev_index, pick), END};
static const struct dev_ref attn_mla_refs[] = {KV(dev_attn_mla, kv),
                                               MAT(dev_attn_mla, w_kb),
                                               MAT(dev_attn_mla, w_vb),
                                               BUF(dev_attn_mla, q),
                                               BUF(dev_attn_mla, y),
                                               BUF(dev_attn_mla, pick),
                                               FOUR(MAT, dev_attn_mla, next),
                                               END};
static const struct dev_ref compress_refs[] = {
    KV(dev_compress, kv),   BUF(dev_compress, c),    BUF(dev_compress, z),
    BUF(dev_compress, ape), BUF(dev_compress, norm), END};
static const struct dev_ref attn_ckv_refs[] = {KV(dev_attn_ckv, kv), BUF(dev_attn_ckv, q),
                                               BUF(dev_attn_ckv, y), BUF(dev_attn_ckv, sink),
                                               BUF(dev_attn_ckv, pick), END};
static const struct dev_ref scan_refs[] = {KV(dev_scan, kv), BUF(dev_scan, x), BUF(dev_scan, y),
                                           END};
static const struct dev_ref delta_refs[] = {
    KV(dev_delta, kv),     BUF(dev_delta, q.p),   BUF(dev_delta, k.p),  BUF(dev_delta, v.p),
    BUF(dev_delta, z.p),   BUF(dev_delta, a.p),   BUF(dev_delta, b.p),  BUF(dev_delta, conv),
    BUF(dev_delta, decay), BUF(dev_delta, dt),    BUF(dev_delta, norm), BUF(dev_delta, y),
    END};
static const struct dev_ref gate_refs[] = {BUF(dev_gate, x), BUF(dev_gate, g), END};
static const struct dev_ref ffn_refs[] = {
    ACT(dev_ffn, act), MAT(dev_ffn, gate_up), MAT(dev_ffn, down),  ACT(dev_ffn, h_act),
    BUF(dev_ffn, h),   BUF(dev_ffn, y),       BUF(dev_ffn, h_all), END};
static const struct dev_ref route_refs[] = {BUF(dev_route, logit),
                                            BUF(dev_route, id),
                                            BUF(dev_route, weight),
                                            BUF(dev_route, count),
                                            ACT(dev_route, act),
                                            ALL(dev_route),
                                            END};
static const struct dev_ref moe_refs[] = {
    ACT(dev_moe, act),   BUF(dev_moe, id),     BUF(dev_moe, weight), MAT(dev_moe, gate_up),
    MAT(dev_moe, down),  BUF(dev_moe, before), BUF(dev_moe, add),    BUF(dev_moe, y),
    BUF(dev_moe, h_all), BUF(dev_moe, rows),   BUF(dev_moe, terms),  END};
static const struct dev_ref sum_refs[] = {
    BUF(dev_sum, id),  BUF(dev_sum, weight), BUF(dev_sum, here), BUF(dev_sum, there),
    BUF(dev_sum, add), BUF(dev_sum, before), BUF(dev_sum, y),    END};
static const struct dev_ref send_refs[] = {MAT(dev_send, gate_up), MAT(dev_send, down), END};
static const struct dev_ref add_refs[] = {BUF(dev_add, x), BUF(dev_add, y), END};
static const struct dev_ref cap_refs[] = {BUF(dev_cap, x), END};
static const struct dev_ref rows_refs[] = {BUF(dev_rows, x), ACT(dev_rows, act), END};
static const struct dev_ref best_refs[] = {BUF(dev_best, x), BUF(dev_best, id), END};
static const struct dev_ref move_refs[] = {BUF(dev_move, at), END};
static const struct dev_ref join_refs[] = {BUF(dev_join, x), BUF(dev_join, y), END};
static const struct dev_ref pick_refs[] = {BUF(dev_pick, x), BUF(dev_pick, y), END};
static const struct dev_ref tap_refs[] = {BUF(dev_tap, x), END};

const struct dev_ref *dev_op_refs(enum dev_op_kind op)
{
    static const struct dev_ref *const of[] = {
#define X(name, params) [DEV_OP_##name] = name##_refs,
        DEV_OP_LIST(X)
#undef X
    };
    return of[op];
}
