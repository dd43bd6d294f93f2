// SPDX-License-Identifier: Apache-2.0
// What all kernels share: memory by address, and arithmetic in the CPU's roundings. Every product
// and sum goes through a function here, so that no compiler contracts them.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : enable
layout(constant_id = 0) const uint FUSED = 0u; // fma() is one rounding here (the self-test says so)
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32 { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer I32 { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U64 { uint64_t v[]; };

#define INF uintBitsToFloat(0x7f800000u)

float mul(float a, float b)
{
    precise float r = a * b;
    return r;
}

float add(float a, float b)
{
    precise float r = a + b;
    return r;
}

float sub(float a, float b)
{
    precise float r = a - b;
    return r;
}

// a * b + c with one rounding. Without a fused instruction in doubles: the product is exact there,
// and a sum that lies in the middle of two floats leans to where the exact one lies.
float fma1(float a, float b, float c)
{
    if (FUSED != 0u) {
        precise float r = fma(a, b, c);
        return r;
    }
    precise double p = double(a) * double(b);
    precise double s = p + double(c);
    uvec2 u = unpackDouble2x32(s);
    if ((u.x & 0x1fffffffu) == 0x10000000u) {
        precise double t = s - p;
        precise double e1 = p - (s - t);
        precise double e2 = double(c) - t;
        precise double e = e1 + e2;
        if (e != 0.0lf) {
            u.x += (e > 0.0lf) == (s > 0.0lf) ? 1u : 0xffffffffu;
            s = packDouble2x32(u);
        }
    }
    return float(s);
}

// Quotients and roots that a driver leaves a few units off are put right where fma() is fused.
float div(float a, float b)
{
    precise float q = a / b;
    if (FUSED != 0u && abs(q) < INF && q != 0.0 && abs(b) < INF) {
        precise float y = 1.0 / b;
        precise float r = fma(-q, b, a);
        q = fma(r, y, q);
    }
    return q;
}

float root(float x)
{
    precise float s = sqrt(x);
    if (FUSED != 0u && s > 0.0 && s < INF) {
        precise float r = fma(-s, s, x);
        precise float h = 0.5 / s;
        s = fma(r, h, s);
    }
    return s;
}

// e^x as kern/tmpl/vec.inc has it.
float exp_(float x)
{
    float lo = -87.3 > x ? -87.3 : x;
    x = 88.0 < lo ? 88.0 : lo;
    float n = roundEven(mul(x, 1.44269504088896341));
    float r = fma1(n, -0.693359375, x);
    r = fma1(n, 2.12194440e-4, r);
    float p = 1.9875691500e-4;
    p = fma1(p, r, 1.3981999507e-3);
    p = fma1(p, r, 8.3334519073e-3);
    p = fma1(p, r, 4.1665795894e-2);
    p = fma1(p, r, 1.6666665459e-1);
    p = fma1(p, r, 5.0000001201e-1);
    p = add(fma1(p, mul(r, r), r), 1.0);
    return mul(p, uintBitsToFloat(uint(int(n) + 127) << 23));
}

float exp0(float x)
{
    return x < -87.0 ? 0.0 : exp_(x);
}

float sigmoid(float x)
{
    return div(1.0, add(1.0, exp_(sub(0.0, x))));
}

bool finite(float x)
{
    return abs(x) <= uintBitsToFloat(0x7f7fffffu);
}

float f16(uint h)
{
    uint sign = (h & 0x8000u) << 16, em = h & 0x7fffu;
    if (em >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (em & 0x3ffu) << 13);
    if (em >= 0x0400u) return uintBitsToFloat(sign | ((em << 13) + 0x38000000u));
    float f = mul(float(em), uintBitsToFloat(0x33800000u)); // 2^-24
    return uintBitsToFloat(floatBitsToUint(f) | sign);
}

uint to_f16(float f)
{
    uint b = floatBitsToUint(f), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u;
    if (a >= 0x47800000u) return sign | 0x7c00u;
    if (a < 0x38800000u)
        return sign | (floatBitsToUint(add(uintBitsToFloat(a), 0.5)) - 0x3f000000u);
    uint r = a + 0xfffu + (a >> 13 & 1u);
    return sign | (r - 0x38000000u) >> 13;
}

float bf16(uint h)
{
    return uintBitsToFloat(h << 16);
}

uint to_bf16(float f)
{
    uint b = floatBitsToUint(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return b >> 16 | 0x40u;
    return (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}

float e4m3(uint x)
{
    uint sign = (x & 0x80u) << 24, em = x & 0x7fu;
    if (em == 0x7fu) return uintBitsToFloat(sign | 0x7fc00000u);
    float f = em >= 8u ? uintBitsToFloat((em << 20) + 0x3c000000u)
                       : mul(float(em), uintBitsToFloat(0x3b000000u)); // 2^-9
    return uintBitsToFloat(floatBitsToUint(f) | sign);
}

int s8(uint word, uint i)
{
    return bitfieldExtract(int(word), int(8u * i), 8);
}
