// SPDX-License-Identifier: Apache-2.0
// What this device's arithmetic is: fma(a, b, c) as it comes, and the sum of 32 products of bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, y;
    uint n;
} p;

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i >= p.n) return;
    F32 x = F32(p.x + 12ul * uint64_t(i));
    float a = x.v[0], b = x.v[1], c = x.v[2];
    precise float f = fma(a, b, c);
    F32(p.y).v[3u * i] = f;
    F32(p.y).v[3u * i + 1u] = fma1(a, b, c);
    F32(p.y).v[3u * i + 2u] = add(mul(a, b), c);
}
