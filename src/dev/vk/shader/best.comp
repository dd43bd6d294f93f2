// SPDX-License-Identifier: Apache-2.0
// The index of the largest value of rows, the lowest of equals; -1: a value is no number, -2: all
// are -infinity. Rows that the step does not want so get -1.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, want, id; // want: [n_row] bits of enum dev_want
    uint n, bit;
} p;
shared float top[256];
shared uint place[256];
shared uint n_nan;

void main()
{
    uint l = gl_LocalInvocationID.x, row = gl_WorkGroupID.x;
    F32 x = F32(p.x + 4ul * uint64_t(row) * uint64_t(p.n));
    bool wanted = (U32(p.want).v[row] & p.bit) != 0u;
    float m = -INF;
    uint at = ~0u;
    if (l == 0u) n_nan = 0u;
    barrier();
    for (uint i = l; i < p.n && wanted; i += 256u) {
        float v = x.v[i];
        if ((floatBitsToUint(v) & 0x7fffffffu) > 0x7f800000u) atomicAdd(n_nan, 1u);
        if (v > m) {
            m = v;
            at = i;
        }
    }
    top[l] = m;
    place[l] = at;
    for (uint h = 128u; h > 0u; h >>= 1) {
        barrier();
        if (l < h && (top[l + h] > top[l] || (top[l + h] == top[l] && place[l + h] < place[l]))) {
            top[l] = top[l + h];
            place[l] = place[l + h];
        }
    }
    barrier();
    int id = place[0] == ~0u ? -2 : int(place[0]);
    if (l == 0u) I32(p.id).v[row] = wanted && n_nan == 0u ? id : -1;
}
