// SPDX-License-Identifier: Apache-2.0
// Products of any weights and float activations, in the CPU's order: t over eight k, then the sum
// of the t in rising k (kern/mm.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "product.glsl"

#define N_COL 8u
#define N_CHUNK 32u // of eight k
shared float part[N_COL][N_CHUNK][16];

void main()
{
    uint l = gl_LocalInvocationID.x, r = l & 15u, team = l >> 4;
    int mat = mat_of();
    if (mat < 0) return;
    uint col0 = column0(N_COL), n_v = n_column(N_COL), n_chunk = 4u * p.n_group;
    uint64_t tile = tile_of(mat);
    float acc = 0.0;
    for (uint c0 = 0u; c0 < n_chunk; c0 += N_CHUNK) {
        uint n = min(N_CHUNK, n_chunk - c0);
        for (uint c = team; c < n; c += 8u) {
            float w[8];
            decode8(tile, c0 + c, r, w);
            for (uint v = 0u; v < n_v; v++) {
                uint at = token_of(col0 + v) * p.stride + 8u * (c0 + c);
                float x[8];
                [[unroll]] for (uint i = 0u; i < 8u; i++) x[i] = F32(p.act).v[at + i];
                float t = mul(w[1], x[1]); // odd k before even
                t = fma1(w[0], x[0], t);
                [[unroll]] for (uint i = 2u; i < 8u; i += 2u) {
                    t = fma1(w[i + 1u], x[i + 1u], t);
                    t = fma1(w[i], x[i], t);
                }
                part[v][c][r] = t;
            }
        }
        barrier();
        if (team < n_v)
            for (uint c = 0u; c < n; c++) acc = add(acc, part[team][c][r]);
        barrier();
    }
    if (team < n_v) store(mat, col0 + team, r, mul(acc, tensor_scale(mat)));
}
