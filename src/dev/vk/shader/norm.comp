// SPDX-License-Identifier: Apache-2.0
// y = x / sqrt(mean(x^2) + eps) * w for rows of n; with r x += r first. The CPU's 64 lanes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, r, w, y, from;
    uint n, ldx, ldy;
    float eps;
} p;
shared float part[64];

float sum_at(F32 x, F32 r, uint i)
{
    return p.r != 0ul ? add(x.v[i], r.v[i]) : x.v[i];
}

void main()
{
    uint l = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, n = p.n;
    uint at = p.from != 0ul ? U32(p.from).v[row] : row;
    F32 x = F32(p.x + 4ul * uint64_t(at) * uint64_t(p.ldx));
    F32 y = F32(p.y + 4ul * uint64_t(row) * uint64_t(p.ldy));
    F32 r = F32(p.r + 4ul * uint64_t(row) * uint64_t(p.ldx));
    uint whole = n / 64u * 64u;
    float s = 0.0;
    for (uint i = l; i < whole; i += 64u) {
        float v = sum_at(x, r, i);
        s = fma1(v, v, s);
    }
    if (l < 16u)
        for (uint i = whole + l; i < n; i += 16u) {
            float v = sum_at(x, r, i);
            s = fma1(v, v, s);
        }
    part[l] = s;
    barrier();
    if (l < 16u) part[l] = add(add(part[l], part[l + 16u]), add(part[l + 32u], part[l + 48u]));
    for (uint h = 8u; h > 0u; h >>= 1) {
        barrier();
        if (l < h) part[l] = add(part[l], part[l + h]);
    }
    barrier();
    float inv = div(1.0, root(add(div(part[0], float(n)), p.eps)));
    for (uint i = l; i < n; i += 64u) { // x is written now that all lanes have read it
        float v = sum_at(x, r, i);
        if (p.r != 0ul) x.v[i] = v;
        y.v[i] = mul(mul(v, inv), F32(p.w).v[i]);
    }
}
