/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with AVX2: a tile in two parts of 8 rows. Products of u8 codes and s8
 * activations are summed in s16 as long as the largest code allows it (PERF.md E0.3): 8 lines up to
 * 15, 4 up to 31, 2 up to 63. Eight-bit codes are made signed and multiplied as |w| * sign(a, w).
 */
#include <immintrin.h>

#include "kern/kern.h"

#define MM_ISA avx2
#define MM_PARTS 2
#define MM_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define AI static inline __attribute__((always_inline))

struct wgroup {
    __m256i w0, w1, w2, w3, w4, w5, w6, w7;
    __m256 sc0, sc1, mn0, mn1;
};
typedef __m256 vacc;

AI vacc acc_zero(void)
{
    return _mm256_setzero_ps();
}
AI vacc acc_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
AI void acc_store(float *p, vacc v)
{
    _mm256_storeu_ps(p, v);
}
AI vacc acc_add(vacc a, vacc b)
{
    return _mm256_add_ps(a, b);
}

AI __m256i line(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

AI __m256 half_floats(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

AI __m128i eight_bytes(const uint8_t *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

AI __m256i bytes_u(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(eight_bytes(p));
}

AI __m256 bytes_s(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(p)));
}

/* Half of 8 unsigned e4m3: the bits of an f16 2^8 times smaller. */
AI __m256 e4m3_halves(const uint8_t *p)
{
    __m128i v = _mm_slli_epi16(_mm_cvtepu8_epi16(eight_bytes(p)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(v), _mm256_set1_ps(128.0f));
}

/* blk: the header, moved to the part's first row of 16-byte rows; half floats of a part are 16
 * bytes, so they are at blk + 8 * part more. */
AI void load_scales(struct wgroup *w, const uint8_t *blk, int g, int part, enum mm_header header)
{
    const uint8_t *h = blk + 16 * part, *b = blk + 8 * part;
    __m256 d, m;
    __m256i v;
    w->sc0 = w->sc1 = w->mn0 = w->mn1 = _mm256_setzero_ps();
    switch (header) {
    case H_D:
        w->sc0 = half_floats(h + 32 * g);
        break;
    case H_DM:
        w->sc0 = half_floats(h);
        w->mn0 = half_floats(h + 32);
        break;
    case H_E8:
        v = bytes_u(b + 16 * g);
        w->sc0 = _mm256_castsi256_ps(
            _mm256_blendv_epi8(_mm256_slli_epi32(_mm256_sub_epi32(v, _mm256_set1_epi32(1)), 23),
                               _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(2), v)));
        break;
    case H_E4:
        w->sc0 = e4m3_halves(b + 32 * g);
        w->sc1 = e4m3_halves(b + 32 * g + 16);
        break;
    case H_K4:
        w->sc0 = _mm256_mul_ps(half_floats(h), _mm256_cvtepi32_ps(bytes_u(b + 64 + 32 * g)));
        w->mn0 = _mm256_mul_ps(half_floats(h + 32), _mm256_cvtepi32_ps(bytes_u(b + 80 + 32 * g)));
        break;
    case H_K6:
    case H_K3:
        d = half_floats(h);
        b += (header == H_K6 ? 64 : 32) + 32 * g;
        w->sc0 = _mm256_mul_ps(d, bytes_s(b));
        w->sc1 = _mm256_mul_ps(d, bytes_s(b + 16));
        break;
    case H_K2:
        d = half_floats(h);
        m = half_floats(h + 32);
        v = bytes_u(b + 64 + 32 * g);
        w->sc0 = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(15))));
        w->mn0 = _mm256_mul_ps(m, _mm256_cvtepi32_ps(_mm256_srli_epi32(v, 4)));
        v = bytes_u(b + 80 + 32 * g);
        w->sc1 = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(15))));
        w->mn1 = _mm256_mul_ps(m, _mm256_cvtepi32_ps(_mm256_srli_epi32(v, 4)));
        break;
    case H_XS:
        w->sc0 = _mm256_mul_ps(half_floats(h), bytes_s(b + 32 + 16 * g));
        break;
    case H_F:
        w->sc0 = _mm256_loadu_ps((const float *)(const void *)(blk + 32 * part));
        break;
    case H_Z:
        w->sc0 = half_floats(h);
        w->mn0 = _mm256_mul_ps(w->sc0, bytes_s(b + 32));
        break;
    case H_ZG:
        w->sc0 = half_floats(h + 32 * g);
        w->mn0 = _mm256_mul_ps(w->sc0, bytes_s(b + 128 + 16 * g));
        break;
    case H_FLOAT:
        break;
    }
}

AI __m256i low4(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

AI __m256i high4(__m256i v)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

AI void load_nibbles(struct wgroup *w, const uint8_t *c)
{
    __m256i v = line(c);
    w->w0 = low4(v);
    w->w1 = high4(v);
    v = line(c + 64);
    w->w2 = low4(v);
    w->w3 = high4(v);
    v = line(c + 128);
    w->w4 = low4(v);
    w->w5 = high4(v);
    v = line(c + 192);
    w->w6 = low4(v);
    w->w7 = high4(v);
}

/* codes -> table[code] - less */
AI void look_up(struct wgroup *w, const uint8_t table[16], int less)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    t = _mm256_sub_epi8(t, _mm256_set1_epi8((char)less));
    w->w0 = _mm256_shuffle_epi8(t, w->w0);
    w->w1 = _mm256_shuffle_epi8(t, w->w1);
    w->w2 = _mm256_shuffle_epi8(t, w->w2);
    w->w3 = _mm256_shuffle_epi8(t, w->w3);
    w->w4 = _mm256_shuffle_epi8(t, w->w4);
    w->w5 = _mm256_shuffle_epi8(t, w->w5);
    w->w6 = _mm256_shuffle_epi8(t, w->w6);
    w->w7 = _mm256_shuffle_epi8(t, w->w7);
}

/* The bits of mask, from bit `from` of v moved to bit `to`. */
AI __m256i field(__m256i v, int from, int to, int mask)
{
    v = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

AI void load_two(struct wgroup *w, const uint8_t *c)
{
    __m256i v = line(c), u = line(c + 64);
    w->w0 = field(v, 0, 0, 3);
    w->w1 = field(v, 2, 0, 3);
    w->w2 = field(v, 4, 0, 3);
    w->w3 = field(v, 6, 0, 3);
    w->w4 = field(u, 0, 0, 3);
    w->w5 = field(u, 2, 0, 3);
    w->w6 = field(u, 4, 0, 3);
    w->w7 = field(u, 6, 0, 3);
}

AI void or_one(struct wgroup *w, const uint8_t *c, int to)
{
    __m256i v = line(c);
    w->w0 = _mm256_or_si256(w->w0, field(v, 0, to, 1 << to));
    w->w1 = _mm256_or_si256(w->w1, field(v, 1, to, 1 << to));
    w->w2 = _mm256_or_si256(w->w2, field(v, 2, to, 1 << to));
    w->w3 = _mm256_or_si256(w->w3, field(v, 3, to, 1 << to));
    w->w4 = _mm256_or_si256(w->w4, field(v, 4, to, 1 << to));
    w->w5 = _mm256_or_si256(w->w5, field(v, 5, to, 1 << to));
    w->w6 = _mm256_or_si256(w->w6, field(v, 6, to, 1 << to));
    w->w7 = _mm256_or_si256(w->w7, field(v, 7, to, 1 << to));
}

AI void load_six(const uint8_t *p, __m256i *w0, __m256i *w1, __m256i *w2, __m256i *w3)
{
    __m256i m = _mm256_set1_epi8(63), a = line(p), b = line(p + 64), c = line(p + 128);
    *w0 = _mm256_and_si256(a, m);
    *w1 = _mm256_and_si256(b, m);
    *w2 = _mm256_and_si256(c, m);
    *w3 = _mm256_or_si256(field(a, 6, 4, 0x30),
                          _mm256_or_si256(field(b, 6, 2, 0x0c), field(c, 6, 0, 3)));
}

AI void load_bytes(struct wgroup *w, const uint8_t *c)
{
    __m256i x = _mm256_set1_epi8((char)0x80);
    w->w0 = _mm256_xor_si256(line(c), x);
    w->w1 = _mm256_xor_si256(line(c + 64), x);
    w->w2 = _mm256_xor_si256(line(c + 128), x);
    w->w3 = _mm256_xor_si256(line(c + 192), x);
    w->w4 = _mm256_xor_si256(line(c + 256), x);
    w->w5 = _mm256_xor_si256(line(c + 320), x);
    w->w6 = _mm256_xor_si256(line(c + 384), x);
    w->w7 = _mm256_xor_si256(line(c + 448), x);
}

AI void load_group(struct wgroup *w, const uint8_t *blk, const uint8_t *codes, int g, int part,
                   enum mm_header header, enum mm_planes planes)
{
    const uint8_t *c = codes + 32 * part;
    load_scales(w, blk, g, part, header);
    switch (planes) {
    case P_B8:
        load_bytes(w, c);
        break;
    case P_NIB:
        load_nibbles(w, c);
        break;
    case P_NIB1:
        load_nibbles(w, c);
        or_one(w, c + 256, 4);
        break;
    case P_SIX:
        load_six(c, &w->w0, &w->w1, &w->w2, &w->w3);
        load_six(c + 192, &w->w4, &w->w5, &w->w6, &w->w7);
        break;
    case P_TWO:
        load_two(w, c);
        break;
    case P_TWO1:
        load_two(w, c);
        or_one(w, c + 128, 2);
        break;
    case P_NL:
        load_nibbles(w, c);
        look_up(w, kern_mm_nl, 128);
        break;
    case P_E2M1:
        load_nibbles(w, c);
        look_up(w, kern_mm_e2m1, 0);
        break;
    }
}

/* Products of a line in s16 pairs. */
AI __m256i pairs(__m256i w, const int8_t *q, int is_signed)
{
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    __m256i a = _mm256_set1_epi32(v);
    if (is_signed) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
    return _mm256_maddubs_epi16(w, a);
}

AI __m256i wide(__m256i s16)
{
    return _mm256_madd_epi16(s16, _mm256_set1_epi16(1));
}

/* Four lines in s32; n: how many may be summed in s16 (1, 2, 4; 8 is the caller's business). */
AI __m256i four(__m256i a, __m256i b, __m256i c, __m256i d, int n)
{
    if (n >= 4) return wide(_mm256_add_epi16(_mm256_add_epi16(_mm256_add_epi16(a, b), c), d));
    if (n == 2) return _mm256_add_epi32(wide(_mm256_add_epi16(a, b)), wide(_mm256_add_epi16(c, d)));
    return _mm256_add_epi32(_mm256_add_epi32(wide(a), wide(b)), _mm256_add_epi32(wide(c), wide(d)));
}

/* -off times a sum, from -8 times it. */
AI __m256i start(int32_t i, int off)
{
    __m256i v = _mm256_set1_epi32(i);
    if (off == 4) return _mm256_srai_epi32(v, 1);
    if (off == 16) return _mm256_slli_epi32(v, 1);
    if (off == 32) return _mm256_slli_epi32(v, 2);
    return v;
}

AI vacc column(const struct wgroup *w, const struct mm_rec *e, vacc acc, enum mm_header header,
               enum mm_planes planes, int half, int min, int off)
{
    int sg = planes == P_B8 || planes == P_NL;
    int n = sg ? 1 : planes == P_SIX ? 2 : planes == P_NIB1 || planes == P_E2M1 ? 4 : 8;
    const int8_t *q = e->q;
    __m256i p0 = pairs(w->w0, q, sg), p1 = pairs(w->w1, q + 4, sg), p2 = pairs(w->w2, q + 8, sg),
            p3 = pairs(w->w3, q + 12, sg), s, u;
    if (n == 8 && !half) {
        s = _mm256_add_epi16(_mm256_add_epi16(_mm256_add_epi16(p0, p1), p2), p3);
        s = _mm256_add_epi16(s, pairs(w->w4, q + 16, sg));
        s = _mm256_add_epi16(s, pairs(w->w5, q + 20, sg));
        s = _mm256_add_epi16(s, pairs(w->w6, q + 24, sg));
        s = u = wide(_mm256_add_epi16(s, pairs(w->w7, q + 28, sg)));
    } else {
        s = four(p0, p1, p2, p3, n);
        u = four(pairs(w->w4, q + 16, sg), pairs(w->w5, q + 20, sg), pairs(w->w6, q + 24, sg),
                 pairs(w->w7, q + 28, sg), n);
        if (!half) s = _mm256_add_epi32(s, u);
    }
    if (off && !sg) s = _mm256_add_epi32(s, start(e->i[half ? 1 : 0], off));
    if (off && !sg && half) u = _mm256_add_epi32(u, start(e->i[2], off));
    __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(s), w->sc0);
    if (half) t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(u), w->sc1, t);
    acc = _mm256_fmadd_ps(t, _mm256_set1_ps(e->d), acc);
    if (!min) return acc;
    if (header == H_DM) return _mm256_fmadd_ps(w->mn0, _mm256_set1_ps(e->s[0]), acc);
    acc = _mm256_fnmadd_ps(w->mn0, _mm256_set1_ps(e->s[half ? 1 : 0]), acc);
    return half ? _mm256_fnmadd_ps(w->mn1, _mm256_set1_ps(e->s[2]), acc) : acc;
}

AI void columns(const struct wgroup *w, const struct mm_rec *const *x, size_t at, int n, float *acc,
                enum mm_header header, enum mm_planes planes, int half, int min, int off)
{
    for (int j = 0; j < n; j++)
        acc_store(acc + 16 * j,
                  column(w, x[j] + at, acc_load(acc + 16 * j), header, planes, half, min, off));
}

#include "kern/tmpl/mm_codes.inc"
