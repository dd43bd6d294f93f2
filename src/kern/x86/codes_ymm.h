/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a group of 32 k apart with 256-bit instructions: a tile is two parts of 8 rows. */
#ifndef KERN_X86_CODES_YMM_H
#define KERN_X86_CODES_YMM_H

#include <immintrin.h>

#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))

AI __m256i line(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

AI __m256i low4(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

AI __m256i high4(__m256i v)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

/* ---- scales of the 8 rows of a part ---- */
typedef __m256 fvec;

AI fvec zeros(void)
{
    return _mm256_setzero_ps();
}

AI fvec floats(const uint8_t *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}

AI fvec mul(fvec a, fvec b)
{
    return _mm256_mul_ps(a, b);
}

AI fvec half_floats(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

AI __m128i eight_bytes(const uint8_t *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

AI __m256i bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(eight_bytes(p));
}

AI fvec bytes_u(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(bytes(p));
}

AI fvec bytes_s(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(p)));
}

AI fvec low_nibbles(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(bytes(p), _mm256_set1_epi32(15)));
}

AI fvec high_nibbles(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(bytes(p), 4));
}

/* Their bits are those of an f16 2^8 times smaller. */
AI fvec e4m3_halves(const uint8_t *p)
{
    __m128i v = _mm_slli_epi16(_mm_cvtepu8_epi16(eight_bytes(p)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(v), _mm256_set1_ps(128.0f));
}

/* Below 2 it is subnormal. */
AI fvec e8(const uint8_t *p)
{
    __m256i v = bytes(p);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(_mm256_slli_epi32(_mm256_sub_epi32(v, _mm256_set1_epi32(1)), 23),
                           _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v),
                           _mm256_cmpgt_epi32(_mm256_set1_epi32(2), v)));
}

#include "kern/tmpl/scales.inc"

/* The bits of mask, from bit `from` of v moved to bit `to`. */
AI __m256i field(__m256i v, int from, int to, int mask)
{
    if (from != to)
        v = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

/* What of a code is wanted: all of it, or four of its eight bits. */
enum bits { ALL, UPPER, LOWER };

AI __m256i some_bits(__m256i v, enum bits bits)
{
    return bits == ALL ? v : bits == UPPER ? high4(v) : low4(v);
}

AI __m256i look_up(__m256i v, const uint8_t table[16], enum bits bits)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    return _mm256_shuffle_epi8(some_bits(t, bits), v);
}

/* Line l (a constant) of a part, whose rows of the first line of the group's planes are at c: codes
 * u8 after the table. bits: other than ALL for B8 and NL only. */
AI __m256i code(const uint8_t *c, const int l, enum mm_planes planes, enum bits bits)
{
    __m256i v;
    switch (planes) {
    case P_B8:
        return some_bits(line(c + 64 * l), bits);
    case P_SIX:
        c += 192 * (l / 4);
        if (l % 4 < 3) return field(line(c + 64 * (l % 4)), 0, 0, 63);
        v = _mm256_or_si256(field(line(c), 6, 4, 0x30), field(line(c + 64), 6, 2, 0x0c));
        return _mm256_or_si256(v, field(line(c + 128), 6, 0, 3));
    case P_TWO:
    case P_TWO1:
        v = field(line(c + 64 * (l / 4)), 2 * (l % 4), 0, 3);
        return planes == P_TWO ? v : _mm256_or_si256(v, field(line(c + 128), l, 2, 4));
    default:
        v = line(c + 64 * (l / 2));
        v = l % 2 ? high4(v) : low4(v);
        if (planes == P_NIB1) return _mm256_or_si256(v, field(line(c + 256), l, 4, 16));
        if (planes == P_NL) return look_up(v, kern_mm_nl, bits);
        if (planes == P_E2M1) return look_up(v, kern_mm_e2m1, ALL);
        return v;
    }
}

/* -off times a sum, from -8 times it. */
AI __m256i start(int32_t i, int off)
{
    __m256i v = _mm256_set1_epi32(i);
    switch (off) {
    case 0:
        return _mm256_setzero_si256();
    case 4:
        return _mm256_srai_epi32(v, 1);
    case 16:
        return _mm256_slli_epi32(v, 1);
    case 32:
        return _mm256_slli_epi32(v, 2);
    case 128:
        return _mm256_slli_epi32(v, 4);
    default:
        return v;
    }
}

#endif
