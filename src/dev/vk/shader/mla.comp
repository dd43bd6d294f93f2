// SPDX-License-Identifier: Apache-2.0
// Absorbed attention over latents (MLA): a workgroup a head of a token. Keys are rows of r + rope
// numbers, values their first r. As attn.comp, but the sum of a span's weights is a chain.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "page.glsl"
#define SPAN 128u
#define D_MAX 640u
#define R_MAX 512u
layout(local_size_x = 128) in;
layout(push_constant, scalar) uniform P {
    uint64_t pieces, pos, seq_of, blk, lat, q, y; // lat, y: [T, H, r]
    uint per, type, page, n_layer, layer, blk_tok;
    uint r, nope, rope, ld_blk;
    float scale;
} p;
shared float q[D_MAX], s[SPAN], red[SPAN];

U32 row_of(uint seq, uint pos)
{
    uint blk = U32(p.blk).v[seq * p.ld_blk + pos / p.blk_tok];
    return U32(page_at(p.pieces, p.per, blk, p.page, uvec2(p.n_layer, p.layer)) +
               4ul * uint64_t(pos % p.blk_tok * n_word(p.type, p.r + p.rope)));
}

void soften(uint l, uint n, out float m, out float sum)
{
    red[l] = s[l];
    for (uint h = SPAN / 2u; h > 0u; h >>= 1) {
        barrier();
        if (l < h) red[l] = red[l + h] > red[l] ? red[l + h] : red[l];
    }
    barrier();
    m = red[0];
    s[l] = exp0(sub(s[l], m));
    barrier();
    sum = 0.0;
    for (uint i = 0u; i < n; i++) sum = add(sum, s[i]);
}

void main()
{
    uint l = gl_LocalInvocationID.x, h = gl_WorkGroupID.x, t = gl_WorkGroupID.y;
    uint seq = U32(p.seq_of).v[t], pos = U32(p.pos).v[t], d = p.r + p.rope;
    uint64_t row = uint64_t(t) * uint64_t(gl_NumWorkGroups.x) + uint64_t(h);
    F32 lat = F32(p.lat + 4ul * row * uint64_t(p.r));
    F32 rope = F32(p.q + 4ul * (row * uint64_t(p.nope + p.rope) + uint64_t(p.nope)));
    for (uint i = l; i < d; i += 128u) q[i] = mul(i < p.r ? lat.v[i] : rope.v[i - p.r], p.scale);
    float M = 0.0, L = 0.0, o[R_MAX / 128u];
    for (uint j = 0u; j < R_MAX / 128u; j++) o[j] = 0.0;
    barrier();
    for (uint p0 = 0u; p0 <= pos; p0 += SPAN) {
        uint n = min(pos + 1u - p0, SPAN);
        float x = -INF, m, sum, w[R_MAX / 128u];
        if (l < n) {
            U32 k = row_of(seq, p0 + l);
            x = 0.0;
            for (uint i = 0u; i < d; i++) x = fma1(number(k, p.type, uvec3(1u, d, i)), q[i], x);
        }
        s[l] = x;
        barrier();
        soften(l, n, m, sum);
        for (uint j = 0u; j < R_MAX / 128u; j++) w[j] = 0.0;
        for (uint i = 0u; i < n; i++) {
            U32 v = row_of(seq, p0 + i);
            for (uint j = 0u; l + 128u * j < p.r; j++)
                w[j] = fma1(s[i], number(v, p.type, uvec3(1u, d, l + 128u * j)), w[j]);
        }
        if (L == 0.0) {
            M = m;
            L = sum;
            for (uint j = 0u; j < R_MAX / 128u; j++) o[j] = w[j];
        } else {
            float top = M > m ? M : m, a = exp0(sub(M, top)), b = exp0(sub(m, top));
            L = fma1(L, a, mul(sum, b));
            M = top;
            for (uint j = 0u; j < R_MAX / 128u; j++) o[j] = fma1(o[j], a, mul(w[j], b));
        }
        barrier();
    }
    float f = div(1.0, L);
    for (uint j = 0u; l + 128u * j < p.r; j++)
        F32(p.y + 4ul * row * uint64_t(p.r)).v[l + 128u * j] = mul(o[j], f);
}
