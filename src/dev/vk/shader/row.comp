// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix as floats, by the step's token ids: y[t] = scale * row ids[t] - row0.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t pieces, scale, ids, y;
    uint piece_tiles, tile_bytes, n_row, n_col;
    int row0;
    float factor;
} p;

void main()
{
    uint t = gl_WorkGroupID.y, c = gl_GlobalInvocationID.x;
    int row = I32(p.ids).v[t] - p.row0;
    if (row < 0 || uint(row) >= p.n_row || 8u * c >= p.n_col) return;
    float w[8], f = F32(p.scale).v[0];
    decode8(tile_at(p.pieces, p.piece_tiles, p.tile_bytes, uint(row) / 16u), c, uint(row) & 15u, w);
    for (uint i = 0u; i < 8u && 8u * c + i < p.n_col; i++)
        F32(p.y).v[t * p.n_col + 8u * c + i] = mul(mul(w[i], f), p.factor);
}
