// SPDX-License-Identifier: Apache-2.0
// Rotate pairs of the first values of every head, by the angles of the token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, cs; // cs: [T][n_rot] cosines, then sines
    uint n_head, ldx, ldx_h, n_rot, style;
} p;

void main()
{
    uint half_ = p.n_rot / 2u, j = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
    uint h = j / half_, i = j % half_;
    if (h >= p.n_head) return;
    F32 x = F32(p.x + 4ul * (uint64_t(t) * uint64_t(p.ldx) + uint64_t(h * p.ldx_h)));
    F32 cs = F32(p.cs + 4ul * uint64_t(t * p.n_rot));
    uint ia = p.style != 0u ? 2u * i : i, ib = p.style != 0u ? 2u * i + 1u : i + half_;
    float a = x.v[ia], b = x.v[ib], c = cs.v[i], s = cs.v[half_ + i];
    x.v[ia] = sub(mul(a, c), mul(b, s));
    x.v[ib] = fma1(b, c, mul(a, s));
}
