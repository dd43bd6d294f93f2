// SPDX-License-Identifier: Apache-2.0
// x += y over n values.
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
    if (i < p.n) F32(p.x).v[i] = add(F32(p.x).v[i], F32(p.y).v[i]);
}
