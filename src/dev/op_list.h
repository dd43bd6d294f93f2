/* SPDX-License-Identifier: Apache-2.0 */
/* The operators that a device offers. OP(name, parameter struct): dev_<name>(d, batch, &params).
 * One row here, one entry in each device's table, one check in tests/dev. */
#ifndef DEV_OP_LIST_H
#define DEV_OP_LIST_H

#define DEV_OP_LIST(OP)                                                                            \
    OP(embed, dev_embed)                                                                           \
    OP(norm, dev_norm)                                                                             \
    OP(streams, dev_streams)                                                                       \
    OP(prep, dev_prep)                                                                             \
    OP(matmul, dev_matmul)                                                                         \
    OP(matmul_heads, dev_matmul_heads)                                                             \
    OP(rope, dev_rope)                                                                             \
    OP(kv_put, dev_kv_put)                                                                         \
    OP(attn, dev_attn)                                                                             \
    OP(index, dev_index)                                                                           \
    OP(attn_mla, dev_attn_mla)                                                                     \
    OP(compress, dev_compress)                                                                     \
    OP(attn_ckv, dev_attn_ckv)                                                                     \
    OP(scan, dev_scan)                                                                             \
    OP(delta, dev_delta)                                                                           \
    OP(gate, dev_gate)                                                                             \
    OP(ffn, dev_ffn)                                                                               \
    OP(route, dev_route)                                                                           \
    OP(moe, dev_moe)                                                                               \
    OP(sum, dev_sum)                                                                               \
    OP(send, dev_send)                                                                             \
    OP(add, dev_add)                                                                               \
    OP(cap, dev_cap)                                                                               \
    OP(rows, dev_rows)                                                                             \
    OP(best, dev_best)                                                                             \
    OP(move, dev_move)                                                                             \
    OP(join, dev_join)                                                                             \
    OP(pick, dev_pick)                                                                             \
    OP(tap, dev_tap)

#endif
