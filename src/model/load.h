/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices and vectors of a model by role: their shapes in the file are checked by name, and this
 * rank's rows of them (slice.c) go to the device, or into a packed file, or come out of one.
 *
 * Errors of all of it: NOTFOUND and FORMAT name the tensor, and its shape with the one that was
 * wanted; UNSUPPORTED a type or scheme; NOMEM; those of dev_mat_load and dev_put. */
#ifndef MODEL_LOAD_H
#define MODEL_LOAD_H

#include "model/model_internal.h"

#define LOAD_NAME 128

/* A matrix, a stack of n of one shape, or of n pairs: all of it, as the file has it. */
struct want {
    char name[LOAD_NAME]; /* of the (first) tensor, which packed files know it by */
    enum arch_role role;  /* the model's own embedding and head: MTP_EMBED, MTP_HEAD */
    int layer, n;
    bool pair;
    enum arch_role second; /* of a pair */
    int64_t rows, cols; /* of one */
    int64_t first;      /* only so many rows of it, its first; 0 = all */
    enum dev_use use;
};
/* One matrix of a layer under its usual name. */
struct want model_want(const struct model *m, int il, enum arch_role role, int64_t rows,
                       int64_t cols, enum dev_use use);
/* One outside of the layers; its rows are divided as those of the role, which MTP layers have. */
struct want model_want_global(const struct model *m, enum arch_global g, enum arch_role role,
                              enum dev_use use);

/* n bytes more for that role. */
void model_load_count(struct model *m, enum arch_role role, int64_t n);
/* Read the tensor called name, of s's role and shape. A bias is refused unless the role has a place
 * for one. */
sl_status model_load_weight(const struct model *m, const char *name, const struct want *s,
                            struct weight *w, sl_err *err) BASE_MUST_USE;
/* Our part of w, out of the packed file that the model has. NULL where we have none of its rows. */
sl_status model_load_map(struct model *m, const struct want *w, dev_mat **out,
                         sl_err *err) BASE_MUST_USE;
/* Our part of w, whose n matrices are a, and with pairs b; both are changed. */
sl_status model_load_part(struct model *m, const struct want *w, struct weight *a, struct weight *b,
                          dev_mat **out, sl_err *err) BASE_MUST_USE;
/* The same where all of w is ours. */
sl_status model_load_pack(struct model *m, const struct want *w, const struct weight *a,
                          const struct weight *b, dev_mat **out, sl_err *err) BASE_MUST_USE;
/* A plain matrix: model_load_map, or model_load_weight and model_load_part. */
sl_status model_load_matrix(struct model *m, const struct want *w, dev_mat **out,
                            sl_err *err) BASE_MUST_USE;

/* A vector of n values as f32, into p. */
sl_status model_load_read(const io_model *io, const char *name, int64_t n, float *p,
                          sl_err *err) BASE_MUST_USE;
/* The same of a tensor with dimensions of 1 beside that of n. */
sl_status model_load_read_line(const io_model *io, const char *name, int64_t n, float *p,
                               sl_err *err) BASE_MUST_USE;
/* n values to the device of the role's part; none: NULL. */
sl_status model_load_put(struct model *m, enum arch_role role, const float *host, int64_t n,
                         float **out, sl_err *err) BASE_MUST_USE;
/* n ones for attention: weights of a norm that has none. */
sl_status model_load_ones(struct model *m, int n, float **out, sl_err *err) BASE_MUST_USE;
/* The vector called name of n values, one for each row of the role's matrix: those of our rows. */
sl_status model_load_vector(struct model *m, const char *name, enum arch_role role, int64_t n,
                            float **out, sl_err *err) BASE_MUST_USE;
/* The same of all of a plain matrix. */
sl_status model_load_read_rows(const io_model *io, const char *name, int64_t rows, int64_t cols,
                               float *p, sl_err *err) BASE_MUST_USE;
/* To the device of the role's part, as f32. */
struct load_rows {
    enum arch_role role;
    int64_t rows, cols;
};
sl_status model_load_role_rows(struct model *m, int il, const struct load_rows *of, float **out,
                               sl_err *err) BASE_MUST_USE;
/* Of a layer how blocks read and write streams (streams.c); of the head of MTP layer il, or with -1
 * the model's. */
sl_status model_load_streams(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
sl_status model_load_stream_head(struct model *m, int il, struct stream_in *s,
                                 sl_err *err) BASE_MUST_USE;
/* The role's own vector. */
sl_status model_load_role_vector(struct model *m, int il, enum arch_role role, int64_t n,
                                 float **out, sl_err *err) BASE_MUST_USE;
/* The epilogue of a matrix that was loaded as w (bias.c): our part of its bias, where it has one,
 * and the unit of experts. mat NULL: it goes into a packed file, and so does a bias from among
 * its scales. */
sl_status model_load_end(struct model *m, const struct want *w, dev_mat *mat,
                         sl_err *err) BASE_MUST_USE;
/* w, the matrix of that name, has no bias unless the role has a place for one. UNSUPPORTED. */
sl_status model_load_unbiased(const struct model *m, const char *name, enum arch_role role,
                              const struct weight *w, sl_err *err) BASE_MUST_USE;

/* A gated delta layer's mixer (load_delta.c). */
sl_status model_load_delta(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
/* One of attention over rows that are keys and values (load_ckv.c). */
sl_status model_load_ckv(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
/* Feed-forward blocks of a layer (load_ffn.c): dense, or experts with their router. */
sl_status model_load_dense(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
sl_status model_load_moe(struct model *m, int il, struct layer *l, sl_err *err) BASE_MUST_USE;
/* Is there a tensor of that name with other bytes than the main one's? Published files hold the
 * embedding and the head a second time for MTP layers. */
bool model_load_differs(const struct model *m, const char *name, const char *other);
/* The head of MTP layer i (mtp_head.c), as model_opts wants it: its own, or the model's; of either
 * all rows or some; as they are stored, or in 4 bits. */
sl_status model_load_mtp_head(struct model *m, int i, sl_err *err) BASE_MUST_USE;
/* Of one expert of a layer, all rows of a role's matrix, from the source. Threads: any one. */
sl_status model_load_expert(const struct model *m, int il, enum arch_role role, int expert,
                            struct weight *w, sl_err *err) BASE_MUST_USE;

#endif
