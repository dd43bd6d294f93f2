// SPDX-License-Identifier: Apache-2.0
// Weights of one run format, as the CPU packs them (kern/mm_fmt_list.h, of which the build makes
// the macros BLK_K, BLK_BYTES, HDR_BYTES, GRP_BYTES, H_<header>, P_<planes>, HALF, MIN, OFF).

uint byte_at(uint64_t at, uint i)
{
    return U32(at).v[i / 4u] >> 8u * (i & 3u) & 255u;
}

float half_at(uint64_t at, uint i)
{
    return f16(U32(at).v[i / 2u] >> 16u * (i & 1u) & 0xffffu);
}

#ifndef IS_FLOAT
uint64_t group_at(uint64_t tile, uint g)
{
    const uint per = BLK_K / 32u;
    return tile + uint64_t(g / per * BLK_BYTES + HDR_BYTES + g % per * GRP_BYTES);
}

// Scales of row r in group g: of its halves.
void scales(uint64_t tile, uint g, uint r, out float sc[2], out float mn[2])
{
    const uint per = BLK_K / 32u;
    uint64_t b = tile + uint64_t(g / per * BLK_BYTES);
    g %= per;
    [[unroll]] for (uint h = 0u; h < 2u; h++) {
        uint sub = 2u * g + h;
        float s = 0.0, m = 0.0;
#if defined(H_D)
        s = half_at(b + uint64_t(32u * g), r);
#elif defined(H_DM)
        s = half_at(b, r);
        m = -half_at(b + 32ul, r);
#elif defined(H_E8)
        uint e = byte_at(b, 16u * g + r);
        s = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
#elif defined(H_E4)
        uint c = byte_at(b, 16u * sub + r);
        s = mul(e4m3(c & 0x7fu), 0.5);
        if ((c & 0x7fu) == 0x7fu) s = 240.0;
#elif defined(H_K4)
        s = mul(half_at(b, r), float(byte_at(b, 64u + 32u * g + r)));
        m = mul(half_at(b + 32ul, r), float(byte_at(b, 80u + 32u * g + r)));
#elif defined(H_K6)
        s = mul(half_at(b, r), float(s8(byte_at(b, 64u + 16u * sub + r), 0u)));
#elif defined(H_K3)
        s = mul(half_at(b, r), float(s8(byte_at(b, 32u + 16u * sub + r), 0u)));
#elif defined(H_K2)
        uint k = byte_at(b, 64u + 16u * sub + r);
        s = mul(half_at(b, r), float(k & 15u));
        m = mul(half_at(b + 32ul, r), float(k >> 4));
#elif defined(H_XS)
        s = mul(half_at(b, r), float(s8(byte_at(b, 32u + 16u * g + r), 0u)));
#elif defined(H_F)
        s = F32(b).v[r];
#elif defined(H_Z)
        s = half_at(b, r);
        m = mul(s, float(s8(byte_at(b, 32u + r), 0u)));
#elif defined(H_ZG)
        s = half_at(b + uint64_t(32u * g), r);
        m = mul(s, float(s8(byte_at(b, 128u + 16u * g + r), 0u)));
#endif
        sc[h] = s;
        mn[h] = m;
    }
}

#if defined(P_NL)
const uint TABLE[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
#elif defined(P_E2M1)
const uint TABLE[4] = {0x13121110u, 0x1c181614u, 0x0d0e0f10u, 0x04080a0cu};
#endif

uint through(uint w)
{
#if defined(P_NL) || defined(P_E2M1)
    uint o = 0u;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uint n = w >> 8u * i & 15u;
        o |= (TABLE[n >> 2] >> 8u * (n & 3u) & 255u) << 8u * i;
    }
    return o;
#else
    return w;
#endif
}

// Line l of a group for row r: four codes, after the table.
uint codes(uint64_t group, uint l, uint r)
{
    U32 c = U32(group);
#if defined(P_B8)
    return c.v[16u * l + r];
#elif defined(P_SIX)
    uint b = 48u * (l / 4u) + r, i = l & 3u;
    if (i < 3u) return c.v[b + 16u * i] & 0x3f3f3f3fu;
    return (c.v[b] >> 6 & 0x03030303u) << 4 | (c.v[b + 16u] >> 6 & 0x03030303u) << 2 |
           (c.v[b + 32u] >> 6 & 0x03030303u);
#elif defined(P_TWO) || defined(P_TWO1)
    uint w = c.v[16u * (l / 4u) + r] >> 2u * (l & 3u) & 0x03030303u;
#if defined(P_TWO1)
    w |= (c.v[32u + r] >> l & 0x01010101u) << 2;
#endif
    return w;
#else
    uint w = c.v[16u * (l / 2u) + r] >> 4u * (l & 1u) & 0x0f0f0f0fu;
#if defined(P_NIB1)
    w |= (c.v[64u + r] >> l & 0x01010101u) << 4;
#endif
    return through(w);
#endif
}
#endif

// Eight weights of row r from column 8 c of a tile on, without the tensor's scale.
void decode8(uint64_t tile, uint c, uint r, out float w[8])
{
#ifdef IS_FLOAT
    uint k0 = 8u * c % BLK_K;
    uint64_t b = tile + uint64_t(8u * c / BLK_K * BLK_BYTES);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint k = k0 + i;
#if defined(F_f32)
        w[i] = F32(b).v[16u * k + r];
#elif defined(F_f16)
        w[i] = half_at(b, 16u * k + r);
#elif defined(F_bf16)
        w[i] = bf16(U32(b).v[16u * (k / 2u) + r] >> 16u * (k & 1u) & 0xffffu);
#else
        w[i] = mul(F32(b).v[r], e4m3(byte_at(b, 64u + 16u * k + r)));
#endif
    }
#else
    float sc[2], mn[2];
    uint g = c / 4u, h = (c & 3u) / 2u;
    scales(tile, g, r, sc, mn);
    uint64_t at = group_at(tile, g);
    [[unroll]] for (uint j = 0u; j < 2u; j++) {
        uint word = codes(at, 2u * (c & 3u) + j, r);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            float v = mul(sc[h], float(int(word >> 8u * i & 255u) - OFF));
#if MIN == 1
            v = sub(v, mn[h]);
#endif
            w[4u * j + i] = v;
        }
    }
#endif
}

// A tile of a stack, which lies in pieces of piece_tiles.
uint64_t tile_at(uint64_t pieces, uint piece_tiles, uint tile_bytes, uint tile)
{
    return U64(pieces).v[tile / piece_tiles] + uint64_t(tile % piece_tiles) * uint64_t(tile_bytes);
}
