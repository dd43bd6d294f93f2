// SPDX-License-Identifier: Apache-2.0
// Which K experts take each token, with what weights (dev/cpu/route.c says how): a workgroup a
// token. Scores in all lanes, the choice in one.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define E_MAX 1024u
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform P {
    uint64_t logit, bias, id, weight, count;
    uint n_expert, k, sigmoid, n_group, k_group, group_max, norm;
    float scale;
} p;
shared float score[E_MAX], choose[E_MAX], group[E_MAX], red[16];
shared uint taken[E_MAX], group_taken[E_MAX];

bool is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

bool better(float x, float than)
{
    return x > than || (is_nan(than) && !is_nan(x));
}

// Softmax with the CPU's 16 lanes.
void soften(uint l)
{
    uint n = p.n_expert;
    float m = -INF, s = 0.0;
    if (l < 16u)
        for (uint i = l; i < n; i += 16u) m = score[i] > m ? score[i] : m;
    for (uint h = 16u; h > 0u; h >>= 1) {
        if (l < h && h == 16u) red[l] = m;
        if (l < h && h < 16u) red[l] = red[l + h] > red[l] ? red[l + h] : red[l];
        barrier();
    }
    m = red[0];
    barrier();
    for (uint i = l; i < n; i += 64u) score[i] = exp0(sub(score[i], m));
    barrier();
    if (l < 16u) {
        for (uint i = l; i < n; i += 16u) s = add(s, score[i]);
        red[l] = s;
    }
    for (uint h = 8u; h > 0u; h >>= 1) {
        barrier();
        if (l < h) red[l] = add(red[l], red[l + h]);
    }
    barrier();
    for (uint i = l; i < n; i += 64u) score[i] = div(score[i], red[0]);
}

// The best that is free of those from `from` on.
uint best_of(uint from, uint n)
{
    uint b = ~0u;
    for (uint i = from; i < from + n; i++)
        if (taken[i] == 0u && (b == ~0u || better(choose[i], choose[b]))) b = i;
    return b;
}

void choose_groups(uint per)
{
    for (uint g = 0u; g < p.n_group; g++) {
        uint a = best_of(g * per, per);
        group[g] = choose[a];
        group_taken[g] = 0u;
        if (p.group_max != 0u || per == 1u) continue;
        taken[a] = 1u;
        group[g] = add(choose[a], choose[best_of(g * per, per)]);
        taken[a] = 0u;
    }
    for (uint i = 0u; i < p.k_group; i++) {
        uint b = ~0u;
        for (uint g = 0u; g < p.n_group; g++)
            if (group_taken[g] == 0u && (b == ~0u || better(group[g], group[b]))) b = g;
        group_taken[b] = 1u;
    }
    for (uint i = 0u; i < p.n_expert; i++) taken[i] = group_taken[i / per] == 0u ? 1u : 0u;
}

void count(uint e)
{
    if (p.count == 0ul) return;
    uint old = atomicAdd(U32(p.count).v[2u * e], 1u);
    if (old == ~0u) atomicAdd(U32(p.count).v[2u * e + 1u], 1u);
}

void main()
{
    uint l = gl_LocalInvocationID.x, t = gl_WorkGroupID.x, n = p.n_expert;
    for (uint i = l; i < n; i += 64u) score[i] = F32(p.logit).v[t * n + i];
    barrier();
    if (p.sigmoid != 0u)
        for (uint i = l; i < n; i += 64u) score[i] = sigmoid(score[i]);
    else
        soften(l);
    for (uint i = l; i < n; i += 64u) {
        choose[i] = p.bias != 0ul ? add(score[i], F32(p.bias).v[i]) : score[i];
        taken[i] = 0u;
    }
    barrier();
    if (l != 0u) return;
    if (p.n_group > 1u) choose_groups(n / p.n_group);
    float sum = 0.0;
    for (uint i = 0u; i < p.k; i++) {
        uint e = best_of(0u, n);
        taken[e] = 1u;
        I32(p.id).v[t * p.k + i] = int(e);
        sum = add(sum, score[e]);
        count(e);
    }
    float f = p.norm != 0u ? div(p.scale, add(sum, 1e-20)) : p.scale;
    for (uint i = 0u; i < p.k; i++)
        F32(p.weight).v[t * p.k + i] = mul(score[I32(p.id).v[t * p.k + i]], f);
}
