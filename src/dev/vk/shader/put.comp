// SPDX-License-Identifier: Apache-2.0
// Store keys and values of the step's tokens: a workgroup a head of a token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "page.glsl"
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t pieces, pos, seq_of, blk, k, v;
    uint per, type, page, n_layer, layer, blk_tok; // page: words
    uint d_k, d_v, ldk, ldv, ld_blk;
} p;

// Word i of x of d numbers; q8: of the numbers alone, whose scale is s.
uint word_of(F32 x, uint d, uint i)
{
    if (p.type == KV_F32) return floatBitsToUint(x.v[i]);
    float a = x.v[2u * i], b = 2u * i + 1u < d ? x.v[2u * i + 1u] : 0.0;
    return p.type == KV_BF16 ? to_bf16(a) | to_bf16(b) << 16 : to_f16(a) | to_f16(b) << 16;
}

// The group of 32 that begins at 32 g: its scale, and 8 words.
void q8_group(F32 x, uint d, uint g, out float scale, out uint q[8])
{
    uint n = min(32u, d - 32u * g);
    float amax = 0.0;
    bool bad = false;
    for (uint i = 0u; i < 8u; i++) q[i] = 0u;
    for (uint i = 0u; i < n; i++) {
        float a = abs(x.v[32u * g + i]);
        amax = a > amax ? a : amax;
        bad = bad || !finite(x.v[32u * g + i]);
    }
    scale = uintBitsToFloat(0x7fc00000u);
    if (bad) return;
    scale = div(amax, 127.0);
    float inv = scale > 0.0 ? div(1.0, scale) : 0.0;
    if (!(inv <= 3.0e38)) {
        scale = 0.0;
        return;
    }
    for (uint i = 0u; i < n; i++)
        q[i / 4u] |= (uint(int(roundEven(mul(x.v[32u * g + i], inv)))) & 255u) << 8u * (i & 3u);
}

// x to words `apart` from each other.
void put(F32 x, uint d, uint64_t to, uint apart)
{
    U32 o = U32(to);
    uint l = gl_LocalInvocationID.x, n_s = n_scale(p.type, d);
    if (p.type != KV_Q8) {
        for (uint i = l; i < n_word(p.type, d); i += 64u) o.v[i * apart] = word_of(x, d, i);
        return;
    }
    for (uint g = l; g < n_s; g += 64u) {
        float scale;
        uint q[8];
        q8_group(x, d, g, scale, q);
        o.v[g * apart] = floatBitsToUint(scale);
        for (uint i = 0u; i < 8u && 8u * g + i < (d + 3u) / 4u; i++)
            o.v[(n_s + 8u * g + i) * apart] = q[i];
    }
}

void main()
{
    uint h = gl_WorkGroupID.x, t = gl_WorkGroupID.y, pos = U32(p.pos).v[t];
    uint seq = U32(p.seq_of).v[t], in_ = pos % p.blk_tok;
    uint blk = U32(p.blk).v[seq * p.ld_blk + pos / p.blk_tok];
    uint64_t at = page_at(p.pieces, p.per, blk, p.page, uvec2(p.n_layer, p.layer));
    F32 k = F32(p.k + 4ul * (uint64_t(t) * uint64_t(p.ldk) + uint64_t(h * p.d_k)));
    uint kw = n_word(p.type, p.d_k), vw = n_word(p.type, p.d_v);
    if (p.d_v == 0u) { // MLA: rows
        put(k, p.d_k, at + 4ul * uint64_t(in_ * kw), 1u);
        return;
    }
    put(k, p.d_k, at + 4ul * uint64_t(h * p.blk_tok * kw + in_ / 16u * 16u * kw + in_ % 16u), 16u);
    F32 v = F32(p.v + 4ul * (uint64_t(t) * uint64_t(p.ldv) + uint64_t(h * p.d_v)));
    uint values = gl_NumWorkGroups.x * p.blk_tok * kw;
    put(v, p.d_v, at + 4ul * uint64_t(values + (h * p.blk_tok + in_) * vw), 1u);
}
