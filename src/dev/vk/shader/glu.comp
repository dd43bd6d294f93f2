// SPDX-License-Identifier: Apache-2.0
// h = silu(gate) * up, or a unit with limits, of rows of gates and then ups (kern/vec.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t y, h;
    uint n, plain; // plain: silu
    float limit, alpha, plus;
} p;

void main()
{
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.n) return;
    uint64_t y = p.y + 8ul * uint64_t(row) * uint64_t(p.n);
    float g = F32(y).v[i], u = F32(y).v[p.n + i];
    if (p.plain == 0u) {
        g = p.limit < g ? p.limit : g;
        u = p.limit < u ? p.limit : u;
        u = u < -p.limit ? -p.limit : u;
        g = mul(g, sigmoid(mul(p.alpha, g)));
        u = add(u, p.plus);
    } else {
        g = mul(g, sigmoid(g));
    }
    F32(p.h).v[row * p.n + i] = mul(g, u);
}
