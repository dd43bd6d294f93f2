// SPDX-License-Identifier: Apache-2.0
// The KV cache: [block][layer] pages, of each head first its keys, in groups of 16 positions whose
// words lie side by side, then of each head its values as rows. A key or value of d numbers is
// KW(d) words: one, two (bf16, f16) or four (q8) numbers in each; q8 has a scale for every 32
// first.
#define KV_BF16 0u
#define KV_F16 1u
#define KV_Q8 2u
#define KV_F32 3u

uint n_scale(uint type, uint d)
{
    return type == KV_Q8 ? (d + 31u) / 32u : 0u;
}

uint n_word(uint type, uint d)
{
    return type == KV_F32 ? d : type == KV_Q8 ? (d + 3u) / 4u + (d + 31u) / 32u : (d + 1u) / 2u;
}

// The page of a block in a layer (layers: how many, and which), of `page` words; blocks lie in
// pieces of per.
uint64_t page_at(uint64_t pieces, uint per, uint blk, uint page, uvec2 layers)
{
    return U64(pieces).v[blk / per] +
           4ul * uint64_t(page) * (uint64_t(blk % per) * uint64_t(layers.x) + uint64_t(layers.y));
}

// Number a.z of a.y, whose words lie a.x apart.
float number(U32 w, uint type, uvec3 a)
{
    if (type == KV_F32) return uintBitsToFloat(w.v[a.z * a.x]);
    if (type == KV_Q8) {
        float sc = uintBitsToFloat(w.v[a.z / 32u * a.x]);
        return mul(sc, float(s8(w.v[((a.y + 31u) / 32u + a.z / 4u) * a.x], a.z & 3u)));
    }
    uint h = w.v[a.z / 2u * a.x] >> 16u * (a.z & 1u) & 0xffffu;
    return type == KV_BF16 ? bf16(h) : f16(h);
}
