// SPDX-License-Identifier: Apache-2.0
// Rows of n values, perhaps of other rows, as they are or rounded to bf16; zeros up to ld.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, from, to;
    uint n, ldx, ld, to_bf16_;
} p;

void main()
{
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.ld) return;
    uint at = p.from != 0ul ? U32(p.from).v[row] : row;
    uint v = i < p.n ? U32(p.x + 4ul * uint64_t(at) * uint64_t(p.ldx)).v[i] : 0u;
    if (p.to_bf16_ != 0u) v = to_bf16(uintBitsToFloat(v)) << 16;
    U32(p.to + 4ul * uint64_t(row) * uint64_t(p.ld)).v[i] = v;
}
