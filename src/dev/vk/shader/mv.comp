// SPDX-License-Identifier: Apache-2.0
// Products of integer codes and prepared int8 records, in the CPU's bits (kern/mm.h): the exact sum
// of every group of 32 by any lane, then one lane a row and column for the chain over the groups.
// The second plane of a column is a column more, added at the end.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "product.glsl"

#define N_COL 8u // columns and planes at a time
#if HALF == 1
#define N_GRP 16u
shared int sums[N_COL][N_GRP][2][16];
#else
#define N_GRP 32u
shared int sums[N_COL][N_GRP][1][16];
#endif
#define REC 12u // words of a record: 8 of q, d, sum of q[0..15], of q[16..31], 0
shared float fin[N_COL][16];

int dot4(uint c, uint q)
{
    return int(c & 255u) * s8(q, 0u) + int(c >> 8 & 255u) * s8(q, 1u) +
           int(c >> 16 & 255u) * s8(q, 2u) + int(c >> 24) * s8(q, 3u);
}

void main()
{
    uint l = gl_LocalInvocationID.x, r = l & 15u, team = l >> 4;
    int mat = mat_of();
    if (mat < 0) return;
    uint n_col = N_COL / p.n_plane, col0 = column0(n_col), n_v = n_column(n_col) * p.n_plane;
    uint64_t tile = tile_of(mat);
    uint64_t own = p.act; // of the column whose chain this lane runs
    if (team < n_v)
        own += 4ul * (uint64_t(token_of(col0 + team / p.n_plane)) * uint64_t(p.stride) +
                      uint64_t(team % p.n_plane * p.plane));
    float acc = 0.0;
    for (uint g0 = 0u; g0 < p.n_group; g0 += N_GRP) {
        uint n = min(N_GRP, p.n_group - g0);
        for (uint g = team; g < n; g += 8u) {
            uint c[8];
            uint64_t at = group_at(tile, g0 + g);
            [[unroll]] for (uint i = 0u; i < 8u; i++) c[i] = codes(at, i, r);
            for (uint v = 0u; v < n_v; v++) {
                U32 q = U32(p.act + 4ul * (uint64_t(token_of(col0 + v / p.n_plane)) *
                                               uint64_t(p.stride) +
                                           uint64_t(v % p.n_plane * p.plane + (g0 + g) * REC)));
                int a = 0, b = 0;
                [[unroll]] for (uint i = 0u; i < 4u; i++) {
                    a += dot4(c[i], q.v[i]);
                    b += dot4(c[4u + i], q.v[4u + i]);
                }
#if HALF == 1
                sums[v][g][0][r] = a;
                sums[v][g][1][r] = b;
#else
                sums[v][g][0][r] = a + b;
#endif
            }
        }
        barrier();
        if (team < n_v)
            for (uint g = 0u; g < n; g++) {
                float sc[2], mn[2];
                U32 rec = U32(own + uint64_t(4u * REC * (g0 + g)));
                float d = uintBitsToFloat(rec.v[8]);
                int s0 = int(rec.v[9]), s1 = int(rec.v[10]);
                scales(tile, g0 + g, r, sc, mn);
#if HALF == 1
                float t = mul(float(sums[team][g][0][r] - OFF * s0), sc[0]);
                t = fma1(float(sums[team][g][1][r] - OFF * s1), sc[1], t);
#else
                float t = mul(float(sums[team][g][0][r] - OFF * (s0 + s1)), sc[0]);
#endif
                acc = add(acc, mul(t, d)); // d is a power of two
#if MIN == 1 && HALF == 1
                acc = fma1(-mn[0], mul(d, float(s0)), acc);
                acc = fma1(-mn[1], mul(d, float(s1)), acc);
#elif MIN == 1
                acc = fma1(-mn[0], mul(d, float(s0 + s1)), acc);
#endif
            }
        barrier();
    }
    fin[team][r] = acc;
    barrier();
    if (team >= n_v || team % p.n_plane != 0u) return;
    if (p.n_plane == 2u) acc = add(acc, fin[team + 1u][r]);
    uint column = col0 + team / p.n_plane;
    float unit = F32(p.act).v[token_of(column) * p.stride + p.n_plane * p.plane];
    store(mat, column, r, mul(acc, mul(unit, tensor_scale(mat))));
}
