// SPDX-License-Identifier: Apache-2.0
// y[t] = sum of the K experts' outputs of a token times their weights, in the order of its list,
// and add last.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, weight, add_, y; // x: [T, K, n]
    uint n, k;
} p;

void main()
{
    uint i = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
    if (i >= p.n) return;
    F32 x = F32(p.x + 4ul * uint64_t(t) * uint64_t(p.k) * uint64_t(p.n));
    float a = mul(F32(p.weight).v[t * p.k], x.v[i]);
    for (uint k = 1u; k < p.k; k++) a = fma1(F32(p.weight).v[t * p.k + k], x.v[k * p.n + i], a);
    if (p.add_ != 0ul) a = add(a, F32(p.add_).v[t * p.n + i]);
    F32(p.y).v[t * p.n + i] = a;
}
