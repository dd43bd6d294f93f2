// SPDX-License-Identifier: Apache-2.0
// Rows as int8 records of 32 (kern/mm.h): one plane, a second one for outliers, or two in all
// groups. The choices and roundings of kern/mm.c.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 128) in;
layout(push_constant, scalar) uniform P {
    uint64_t x, from, to;
    uint n, ldx, n_group, stride; // groups with the padding; stride in words
    uint mode, is_parts;          // mode 0: one plane; 1: a second for outliers; 2: two
} p;
#define SPAN 256u
#define REC 12u
#define AMAX_MIN uintBitsToFloat(0x12800000u) // 2^-90
shared uint amax[SPAN], left_of[SPAN], is_out[SPAN];
shared double part[4];
shared uint best, place;
shared float loss[8];

const uint UNIT[8] = {0x3f800000u, 0x3f8b95c2u, 0x3f9837f0u, 0x3fa5fed7u,
                      0x3fb504f3u, 0x3fc5672au, 0x3fd744fdu, 0x3feac0c7u};

float step_of(float a, bool two)
{
    uint u = (floatBitsToUint(a) + 0x1ffffu & 0xff800000u) - (two ? 13u << 23 : 6u << 23);
    return uintBitsToFloat(u);
}

// Which of m groups have a second plane.
void choose(uint l, uint m)
{
    if (l < 4u) {
        precise double s = 0.0lf;
        for (uint i = l; i < m; i += 4u) {
            double a = double(uintBitsToFloat(amax[i]));
            precise double q = a * a;
            s = s + q;
        }
        part[l] = s;
    }
    if (l == 0u) {
        best = 0u;
        place = ~0u;
    }
    barrier();
    precise double left = (part[0] + part[1]) + (part[2] + part[3]);
    for (uint k = 0u; k < (m + 3u) / 4u; k++) {
        uint own = 0u;
        for (uint i = l; i < m; i += 128u) own = max(own, left_of[i]);
        atomicMax(best, own);
        barrier();
        uint top = best;
        double a = double(uintBitsToFloat(top - 1u));
        precise double q = a * a;
        precise double many = q * double(m - k), bound = 3.0lf * left;
        if (!(many > bound)) break;
        left = left - q;
        for (uint i = l; i < m; i += 128u)
            if (left_of[i] == top) atomicMin(place, i);
        barrier();
        if (l == 0u) {
            is_out[place] = 1u;
            left_of[place] = 0u;
            best = 0u;
            place = ~0u;
        }
        barrier();
    }
    barrier();
}

float best_unit(uint l, uint m)
{
    if (l < 8u) {
        float u = uintBitsToFloat(UNIT[l]), inv = div(1.0, u), s = 0.0;
        for (uint i = 0u; i < m; i++) {
            float a = is_out[i] != 0u ? 0.0 : uintBitsToFloat(amax[i]);
            if (!(a >= 2.0 * AMAX_MIN)) continue;
            float d = mul(step_of(mul(a, inv), false), u);
            s = add(s, mul(d, d));
        }
        loss[l] = s;
    }
    barrier();
    uint b = 0u;
    for (uint i = 1u; i < 8u; i++)
        if (loss[i] < loss[b]) b = i;
    return uintBitsToFloat(UNIT[b]);
}

void put(uint64_t at, uint q[8], float d, int s0, int s1)
{
    U32 o = U32(at);
    for (uint i = 0u; i < 8u; i++) o.v[i] = q[i];
    o.v[8] = floatBitsToUint(d);
    o.v[9] = uint(s0);
    o.v[10] = uint(s1);
    o.v[11] = 0u;
}

void quantise(F32 x, uint n, uint64_t hi, uint64_t lo, float a, bool two, float unit_inv)
{
    uint q[8], r[8];
    bool bad = false;
    for (uint i = 0u; i < 8u; i++) q[i] = r[i] = 0u;
    for (uint k = 0u; k < n; k++) bad = bad || !finite(x.v[k]);
    float am = mul(a, unit_inv), d = step_of(am, two);
    float inv = mul(unit_inv, uintBitsToFloat(254u - (floatBitsToUint(d) >> 23) << 23));
    if (!(am >= AMAX_MIN)) inv = d = 0.0;
    int s[4] = {0, 0, 0, 0};
    for (uint k = 0u; k < n && !bad; k++) {
        int v = int(roundEven(mul(x.v[k], inv))), h = two ? v + 64 >> 7 : v, low = v - 128 * h;
        q[k / 4u] |= (uint(h) & 255u) << 8u * (k & 3u);
        s[k / 16u] += h;
        if (!two) continue;
        r[k / 4u] |= (uint(low) & 255u) << 8u * (k & 3u);
        s[2u + k / 16u] += low;
    }
    float dh = two ? mul(d, 128.0) : d;
    put(hi, q, bad ? uintBitsToFloat(0x7fc00000u) : dh, s[0], s[1]);
    if (lo != 0ul) put(lo, r, bad || !two ? 0.0 : d, s[2], s[3]);
}

void main()
{
    uint l = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, n = p.n;
    uint at = p.from != 0ul ? U32(p.from).v[row] : row;
    uint64_t x = p.x + 4ul * uint64_t(at) * uint64_t(p.ldx);
    uint64_t to = p.to + 4ul * uint64_t(row) * uint64_t(p.stride);
    uint whole = n / 32u, used = (n + 31u) / 32u, plane = p.n_group * REC;
    float unit = 1.0;
    for (uint g = 0u; g < used;) {
        bool is_tail = g >= whole;
        uint m = is_tail ? 1u : min(SPAN, whole - g), n_k = is_tail ? n - 32u * g : 32u;
        for (uint i = l; i < m; i += 128u) {
            F32 v = F32(x + uint64_t(128u * (g + i)));
            float a = 0.0;
            for (uint k = 0u; k < n_k; k++) a = abs(v.v[k]) > a ? abs(v.v[k]) : a;
            amax[i] = floatBitsToUint(a);
            left_of[i] = amax[i] + 1u;
            is_out[i] = p.mode == 2u ? 1u : 0u;
        }
        barrier();
        if (p.mode == 1u) choose(l, m);
        if (g == 0u && p.is_parts == 0u) unit = best_unit(l, m);
        float inv = div(1.0, unit);
        for (uint i = l; i < m; i += 128u) {
            uint64_t hi = to + uint64_t(4u * REC * (g + i));
            uint64_t lo = p.mode != 0u ? hi + uint64_t(4u * plane) : 0ul;
            quantise(F32(x + uint64_t(128u * (g + i))), n_k, hi, lo, uintBitsToFloat(amax[i]),
                     is_out[i] != 0u, inv);
        }
        g += m;
        barrier();
    }
    for (uint i = used * REC + l; i < plane; i += 128u) {
        U32(to).v[i] = 0u;
        if (p.mode != 0u) U32(to).v[plane + i] = 0u;
    }
    if (l == 0u) F32(to).v[(p.mode != 0u ? 2u : 1u) * plane] = unit;
}
