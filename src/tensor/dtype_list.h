/* SPDX-License-Identifier: Apache-2.0 */
/* Every storage type that a file can hold. X(NAME, "text", GGUF id or -1, weights per block, bytes
 * per block) Block layouts: docs/formats.md, tensor/quant_*.c. Types with a GGUF id of -1 come from
 * safetensors only. Those after F8_E8M0 have sizes but no dequantiser: files with them can be
 * looked at, not run. */
#define TENSOR_DTYPE_LIST(X)                                                                       \
    X(F32, "F32", 0, 1, 4)                                                                         \
    X(F16, "F16", 1, 1, 2)                                                                         \
    X(BF16, "BF16", 30, 1, 2)                                                                      \
    X(Q4_0, "Q4_0", 2, 32, 18)                                                                     \
    X(Q4_1, "Q4_1", 3, 32, 20)                                                                     \
    X(Q5_0, "Q5_0", 6, 32, 22)                                                                     \
    X(Q5_1, "Q5_1", 7, 32, 24)                                                                     \
    X(Q8_0, "Q8_0", 8, 32, 34)                                                                     \
    X(Q2_K, "Q2_K", 10, 256, 84)                                                                   \
    X(Q3_K, "Q3_K", 11, 256, 110)                                                                  \
    X(Q4_K, "Q4_K", 12, 256, 144)                                                                  \
    X(Q5_K, "Q5_K", 13, 256, 176)                                                                  \
    X(Q6_K, "Q6_K", 14, 256, 210)                                                                  \
    X(IQ4_NL, "IQ4_NL", 20, 32, 18)                                                                \
    X(IQ4_XS, "IQ4_XS", 23, 256, 136)                                                              \
    X(MXFP4, "MXFP4", 39, 32, 17)                                                                  \
    X(NVFP4, "NVFP4", 40, 64, 36)                                                                  \
    X(F64, "F64", 28, 1, 8)                                                                        \
    X(I8, "I8", 24, 1, 1)                                                                          \
    X(I16, "I16", 25, 1, 2)                                                                        \
    X(I32, "I32", 26, 1, 4)                                                                        \
    X(I64, "I64", 27, 1, 8)                                                                        \
    X(U16, "U16", -1, 1, 2)                                                                        \
    X(U32, "U32", -1, 1, 4)                                                                        \
    X(U64, "U64", -1, 1, 8)                                                                        \
    X(U8, "U8", -1, 1, 1)                                                                          \
    X(BOOL, "BOOL", -1, 1, 1)                                                                      \
    X(F8_E4M3, "F8_E4M3", -1, 1, 1)                                                                \
    X(F8_E5M2, "F8_E5M2", -1, 1, 1)                                                                \
    X(F8_E8M0, "F8_E8M0", -1, 1, 1)                                                                \
    X(IQ2_XXS, "IQ2_XXS", 16, 256, 66)                                                             \
    X(IQ2_XS, "IQ2_XS", 17, 256, 74)                                                               \
    X(IQ3_XXS, "IQ3_XXS", 18, 256, 98)                                                             \
    X(IQ1_S, "IQ1_S", 19, 256, 50)                                                                 \
    X(IQ3_S, "IQ3_S", 21, 256, 110)                                                                \
    X(IQ2_S, "IQ2_S", 22, 256, 82)                                                                 \
    X(IQ1_M, "IQ1_M", 29, 256, 56)                                                                 \
    X(TQ1_0, "TQ1_0", 34, 256, 54)                                                                 \
    X(TQ2_0, "TQ2_0", 35, 256, 66)                                                                 \
    X(Q1_0, "Q1_0", 41, 128, 18)                                                                   \
    X(Q2_0, "Q2_0", 42, 64, 18)
