// SPDX-License-Identifier: Apache-2.0
// Causal attention with keys and values per head: a workgroup a query head of a token. A lane a
// position for scores, a lane a number for values; spans of 128 positions, each with its own
// maximum, folded in rising order: the CPU's order (kern/vec.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "page.glsl"
#define SPAN 128u
#define D_MAX 512u // of a head
layout(local_size_x = 128) in;
layout(push_constant, scalar) uniform P {
    uint64_t pieces, pos, seq_of, blk, q, y, sink;
    uint per, type, page, n_layer, layer, blk_tok;
    uint d_k, d_v, n_kv, n_group, ld_blk, n_window; // n_group: query heads of a KV head
    float scale;
} p;
shared float q[D_MAX], s[SPAN], red[SPAN];

uint64_t page_of(uint seq, uint pos)
{
    uint blk = U32(p.blk).v[seq * p.ld_blk + pos / p.blk_tok];
    return page_at(p.pieces, p.per, blk, p.page, uvec2(p.n_layer, p.layer));
}

float score(uint seq, uint head, uint pos)
{
    uint in_ = pos % p.blk_tok, kw = n_word(p.type, p.d_k);
    U32 k = U32(page_of(seq, pos) +
                4ul * uint64_t(head * p.blk_tok * kw + in_ / 16u * 16u * kw + in_ % 16u));
    float a = 0.0;
    for (uint i = 0u; i < p.d_k; i++) a = fma1(q[i], number(k, p.type, uvec3(16u, p.d_k, i)), a);
    return a;
}

// s[0 .. 127]: scores to weights; their maximum and sum.
void soften(uint l, out float m, out float sum)
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
    float a = 0.0;
    if (l < 16u)
        for (uint g = 0u; g < SPAN; g += 16u) a = add(a, s[g + l]);
    red[l] = a;
    for (uint h = 8u; h > 0u; h >>= 1) {
        barrier();
        if (l < h) red[l] = add(red[l], red[l + h]);
    }
    barrier();
    sum = red[0];
}

void main()
{
    uint l = gl_LocalInvocationID.x, h = gl_WorkGroupID.x, t = gl_WorkGroupID.y;
    uint seq = U32(p.seq_of).v[t], pos = U32(p.pos).v[t], head = h / p.n_group;
    uint from = p.n_window > 0u && pos + 1u > p.n_window ? pos + 1u - p.n_window : 0u;
    uint64_t row = uint64_t(t) * uint64_t(gl_NumWorkGroups.x) + uint64_t(h);
    uint kw = n_word(p.type, p.d_k), vw = n_word(p.type, p.d_v);
    F32 qv = F32(p.q + 4ul * row * uint64_t(p.d_k));
    for (uint i = l; i < p.d_k; i += 128u) q[i] = mul(qv.v[i], p.scale);
    float M = 0.0, L = 0.0, o[D_MAX / 128u];
    for (uint j = 0u; j < D_MAX / 128u; j++) o[j] = 0.0;
    barrier();
    for (uint p0 = from / SPAN * SPAN; p0 <= pos; p0 += SPAN) {
        uint at = p0 + l, lo = max(from, p0), hi = min(pos + 1u, p0 + SPAN);
        s[l] = at >= lo && at < hi ? score(seq, head, at) : -INF;
        float m, sum;
        barrier();
        soften(l, m, sum);
        float a = 0.0, b = 1.0, w[D_MAX / 128u]; // what was so far, and this span
        for (uint j = 0u; j < D_MAX / 128u; j++) w[j] = 0.0;
        for (uint i = lo; i < hi; i++) {
            uint in_ = i % p.blk_tok;
            U32 v = U32(page_of(seq, i) +
                        4ul * uint64_t(p.n_kv * p.blk_tok * kw + (head * p.blk_tok + in_) * vw));
            for (uint j = 0u; l + 128u * j < p.d_v; j++)
                w[j] = fma1(s[i - p0], number(v, p.type, uvec3(1u, p.d_v, l + 128u * j)), w[j]);
        }
        if (L == 0.0) {
            M = m;
            L = sum;
            for (uint j = 0u; j < D_MAX / 128u; j++) o[j] = w[j];
        } else {
            float top = M > m ? M : m;
            a = exp0(sub(M, top));
            b = exp0(sub(m, top));
            L = fma1(L, a, mul(sum, b));
            M = top;
            for (uint j = 0u; j < D_MAX / 128u; j++) o[j] = fma1(o[j], a, mul(w[j], b));
        }
        barrier();
    }
    float f = 1.0;
    if (p.sink != 0ul) {
        float m2 = F32(p.sink).v[h], top = M > m2 ? M : m2, a = exp0(sub(M, top));
        float b = exp0(sub(m2, top));
        L = fma1(L, a, mul(1.0, b));
        f = fma1(f, a, mul(0.0, b));
    }
    f = div(f, L);
    for (uint j = 0u; l + 128u * j < p.d_v; j++)
        F32(p.y + 4ul * row * uint64_t(p.d_v)).v[l + 128u * j] = mul(o[j], f);
}
