/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/* The run formats: one row per format, the exact layout of its blocks.
 *
 * A tile is 16 rows; it is a sequence of blocks of blk_k columns, K ascending. A block of a code
 * format is a header with the scales of all its groups and then, per group of 32 k, its codes. A
 * "line" is 64 bytes: lane r (4 bytes) belongs to row r of the tile, byte b of it to k + b. A group
 * of 32 k is eight lines of codes u8, stored in planes:
 *     B8      8 lines: the codes as they are
 *     NIB     4 lines: line p has the low 4 bits of code line 2p in its low nibbles, of line 2p + 1
 *             in its high nibbles
 *     TWO(s)  2 lines: line p has bits s, s+1 of code line 4p + i at bits 2i, 2i+1  (i = 0..3)
 *     ONE(s)  1 line:  bit s of code line i at bit i
 *     SIX     6 lines: of each four code lines c0..c3 three:
 *             c0 | c3[5:4] << 6,  c1 | c3[3:2] << 6,  c2 | c3[1:0] << 6
 * Planes of a format: B8; NIB, NL, E2M1 = NIB (the last two through a table); NIB1 = NIB, ONE(4);
 * SIX; TWO = TWO(0); TWO1 = TWO(0), ONE(2).
 * The weight is  sc * (code - off) - mn, the code after the table. Headers (all little-endian,
 * [16] = one per row):
 *     D    f16 d[16] per group                                   sc = d
 *     DM   f16 d[16], f16 m[16] per group                        sc = d, mn = -m
 *     E8   u8 e[16] per group                                    sc = 2^(e - 128)
 *     E4   u8 e4m3[16] per half group                            sc = e4m3 / 2
 *     K4   f16 d[16], f16 dmin[16]; u8 sc[16], m[16] per group   sc = d * sc, mn = dmin * m
 *     K6   f16 d[16], 32 bytes of zeros; i8 sc[16] per half      sc = d * sc
 *     K3   f16 d[16]; i8 sc[16] per half group                   sc = d * sc
 *     K2   f16 d[16], f16 dmin[16]; u8 (sc | m << 4)[16] per half   sc = d * sc, mn = dmin * m
 *     XS   f16 d[16]; i8 sc[16] per group; 32 bytes of zeros     sc = d * sc
 *     F    f32 d[16]                                             sc = d
 *     Z    f16 d[16]; i8 z[16]; 16 bytes of zeros                sc = d, mn = d * z
 *     ZG   f16 d[16] per group; i8 z[16] per group               sc = d, mn = d * z
 * Columns beyond n_col and rows beyond n_row are zeros. A tile's bytes are rounded up to 64. Size
 * against the bytes of the file: Q4_K 1.028, Q5_K 1.023, Q6_K 1.010, Q3_K 1.036, IQ4_XS 1.029,
 * F8 1.031, i4c i4g 1.03 to 1.06, i4z 1.023, i8c 1.016, i8g i8z 1.03, all others 1.000; plus the
 * padding of rows to 16. The i4 and i8 rows run what folders store in integers with scales beside
 * them (weight_group): one scale for a row (c) or for each 128 columns (g), zero points (z), groups
 * of 32 and 64 with zero points (zg); groups of 32 without them run as q4_0 and q8_0. Type: of no
 * GGUF file, and not what kern_mm_fmt chooses by.
 *
 * MM_CODE_FMTS   X(name, dtype, blk_k, blk_bytes, hdr_bytes, grp_bytes, header, planes, half, min,
 *                  off)   half: 1 = a scale per 16 k; min: 1 = has mn
 * MM_FLOAT_FMTS  X(name, dtype, blk_k, blk_bytes)
 *     f32   f32 [k][16]
 *     f16   f16 [k][16]
 *     bf16  bf16 [k / 2][16][2]
 *     f8    f32 scale[16], then e4m3 [k][16]; a row whose block holds a NaN code has a NaN scale
 */
// clang-format on
#ifndef KERN_MM_FMT_LIST_H
#define KERN_MM_FMT_LIST_H

/* clang-format off */
#define MM_CODE_FMTS(X)                                             \
    X(q4_0,   Q4_0,    64,  576,  64, 256, D,  NIB,    0, 0, 8)     \
    X(q4_1,   Q4_1,    32,  320,  64, 256, DM, NIB,    0, 1, 0)     \
    X(q5_0,   Q5_0,    64,  704,  64, 320, D,  NIB1,   0, 0, 16)    \
    X(q5_1,   Q5_1,    32,  384,  64, 320, DM, NIB1,   0, 1, 0)     \
    X(q8_0,   Q8_0,    64, 1088,  64, 512, D,  B8,     0, 0, 128)   \
    X(q2_k,   Q2_K,   256, 1344, 320, 128, K2, TWO,    1, 1, 0)     \
    X(q3_k,   Q3_K,   256, 1824, 288, 192, K3, TWO1,   1, 0, 4)     \
    X(q4_k,   Q4_K,   256, 2368, 320, 256, K4, NIB,    0, 1, 0)     \
    X(q5_k,   Q5_K,   256, 2880, 320, 320, K4, NIB1,   0, 1, 0)     \
    X(q6_k,   Q6_K,   256, 3392, 320, 384, K6, SIX,    1, 0, 32)    \
    X(iq4_nl, IQ4_NL,  64,  576,  64, 256, D,  NL,     0, 0, 128)   \
    X(iq4_xs, IQ4_XS, 256, 2240, 192, 256, XS, NL,     0, 0, 128)   \
    X(mxfp4,  MXFP4,  128, 1088,  64, 256, E8, E2M1,   0, 0, 16)    \
    X(nvfp4,  NVFP4,   64,  576,  64, 256, E4, E2M1,   1, 0, 16)    \
    X(i4c,    U8,     256, 2112,  64, 256, F,  NIB,    0, 0, 8)     \
    X(i4g,    U8,     128, 1088,  64, 256, F,  NIB,    0, 0, 8)     \
    X(i4z,    U8,     128, 1088,  64, 256, Z,  NIB,    0, 1, 8)     \
    X(i4zg,   U8,     128, 1216, 192, 256, ZG, NIB,    0, 1, 8)     \
    X(i8c,    I8,     256, 4160,  64, 512, F,  B8,     0, 0, 128)   \
    X(i8g,    I8,     128, 2112,  64, 512, F,  B8,     0, 0, 128)   \
    X(i8z,    I8,     128, 2112,  64, 512, Z,  B8,     0, 1, 128)
#define MM_FLOAT_FMTS(X)          \
    X(f32,  F32,      32, 2048)   \
    X(f16,  F16,      32, 1024)   \
    X(bf16, BF16,     32, 1024)   \
    X(f8,   F8_E4M3, 128, 2112)
/* clang-format on */

#endif
