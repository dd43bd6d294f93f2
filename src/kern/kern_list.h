/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel that has variants per ISA: X(op, return, (parameters)). A row gives the prototypes
 * kern_<op>_<isa>, a pointer in struct kern, and demands a reference kern_<op>_ref and a check_<op>
 * in tests/kern. Which ISAs have which: x86/variants.h, arm/variants.h. */
#ifndef KERN_LIST_H
#define KERN_LIST_H

/* clang-format off */
#define KERN_LIST(X)                                                                               \
    X(mm_q4_0,   void, (const struct mm_run *r))                                                   \
    X(mm_q4_1,   void, (const struct mm_run *r))                                                   \
    X(mm_q5_0,   void, (const struct mm_run *r))                                                   \
    X(mm_q5_1,   void, (const struct mm_run *r))                                                   \
    X(mm_q8_0,   void, (const struct mm_run *r))                                                   \
    X(mm_q2_k,   void, (const struct mm_run *r))                                                   \
    X(mm_q3_k,   void, (const struct mm_run *r))                                                   \
    X(mm_q4_k,   void, (const struct mm_run *r))                                                   \
    X(mm_q5_k,   void, (const struct mm_run *r))                                                   \
    X(mm_q6_k,   void, (const struct mm_run *r))                                                   \
    X(mm_iq4_nl, void, (const struct mm_run *r))                                                   \
    X(mm_iq4_xs, void, (const struct mm_run *r))                                                   \
    X(mm_mxfp4,  void, (const struct mm_run *r))                                                   \
    X(mm_nvfp4,  void, (const struct mm_run *r))                                                   \
    X(mm_i4c,    void, (const struct mm_run *r))                                                   \
    X(mm_i4g,    void, (const struct mm_run *r))                                                   \
    X(mm_i4z,    void, (const struct mm_run *r))                                                   \
    X(mm_i4zg,   void, (const struct mm_run *r))                                                   \
    X(mm_i8c,    void, (const struct mm_run *r))                                                   \
    X(mm_i8g,    void, (const struct mm_run *r))                                                   \
    X(mm_i8z,    void, (const struct mm_run *r))                                                   \
    X(mm_f32,    void, (const struct mm_run *r))                                                   \
    X(mm_f16,    void, (const struct mm_run *r))                                                   \
    X(mm_bf16,   void, (const struct mm_run *r))                                                   \
    X(mm_f8,     void, (const struct mm_run *r))                                                   \
    X(mm_bf16x,  void, (const struct mm_run *r))                                                   \
    X(mm_bf16_row, void, (const float *x, int n, uint16_t *y))                                     \
    X(mm_amax,   void, (const float *x, int n_group, float *amax))                                 \
    X(mm_quant,  void, (const float *x, int n_group,                                               \
                        struct mm_rec *hi, struct mm_rec *lo, const float *amax, float inv))       \
    X(attn_dot_bf16,   void, (const struct attn_mm *m))                                            \
    X(attn_mix_bf16,   void, (const struct attn_mm *m))                                            \
    X(attn_soft_bf16,  void, (const struct attn_soft *a))                                          \
    X(attn_rows_bf16,  void,                                                                       \
      (const float *x, int64_t ldx, int n_row, int n, uint16_t *y, int64_t ldy))                   \
    X(attn_pairs_bf16, void,                                                                       \
      (const float *x, int64_t ldx, int n_row, int n, uint16_t *y, int64_t ldy))                   \
    X(attn_f16_rows,   void,                                                                       \
      (const uint8_t *row, int64_t row_bytes, int n_row, int d, uint16_t *y,                       \
       int64_t ldy))                                                                               \
    X(attn_f16_keys,   void, (const uint8_t *group, int d, uint16_t *y))                           \
    X(attn_q8_rows,    void,                                                                       \
      (const uint8_t *row, int64_t row_bytes, int n_row, int d, uint16_t *y,                       \
       int64_t ldy))                                                                               \
    X(attn_q8_keys,    void, (const uint8_t *group, int d, uint16_t *y))                           \
    X(attn_q8_query,   void, (const float *x, int d, int lane, int ld, int8_t *q, float *scale,    \
                              int32_t *bias))                                                      \
    X(attn_dot_q8,     void, (const struct attn_q8 *m))                                            \
    X(attn_mix_q8,     void, (const struct attn_q8 *m))                                            \
    X(attn_rows_i16,    void,                                                                      \
      (const float *x, int64_t ldx, int n_row, int n, int16_t *y, int64_t ldy,                     \
       float *scale, int64_t ld_scale))                                                            \
    X(attn_f16_i16,     void,                                                                      \
      (const uint8_t *row, int64_t row_bytes, int n_row, int n, int16_t *y,                        \
       int64_t ldy, float *scale, int64_t ld_scale))                                               \
    X(attn_query_i16,   void, (const float *x, int n, int16_t *y, float *scale))                   \
    X(attn_dot_i16,     void, (const struct attn_i16 *m))                                          \
    X(attn_weights_i16, void,                                                                      \
      (const struct attn_i16 *m, const int32_t *hi, int16_t *w, float *w_scale))                   \
    X(attn_mix_i16,     void, (const struct attn_i16 *m))                                          \
    X(draw_next,  int, (const struct draw_run *r, int id0))                                        \
    X(draw_mass,  struct draw_mass, (const float *z, int n, float least))
/* All float formats in one ISA. */
#define KERN_MM_FLOATS(V, isa) V(mm_f32, isa) V(mm_f16, isa) V(mm_bf16, isa) V(mm_f8, isa)
/* All code formats in one ISA, for the variants lists. */
#define KERN_MM_CODES(V, isa)                                                                      \
    V(mm_q4_0, isa) V(mm_q4_1, isa) V(mm_q5_0, isa) V(mm_q5_1, isa) V(mm_q8_0, isa)                \
    V(mm_q2_k, isa) V(mm_q3_k, isa) V(mm_q4_k, isa) V(mm_q5_k, isa) V(mm_q6_k, isa)                \
    V(mm_iq4_nl, isa) V(mm_iq4_xs, isa) V(mm_mxfp4, isa) V(mm_nvfp4, isa)                          \
    V(mm_i4c, isa) V(mm_i4g, isa) V(mm_i4z, isa) V(mm_i4zg, isa)                                   \
    V(mm_i8c, isa) V(mm_i8g, isa) V(mm_i8z, isa)
/* clang-format on */

#endif
