/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share beside rows. */
#ifndef ARCH_INTERNAL_H
#define ARCH_INTERNAL_H

#include "arch/row.h"

/* ---- config_gguf.c, config_hf.c: what all architectures have ---- */
sl_status arch_gguf_common(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Which layers have the sliding window, and that a head's values are as wide as its keys, unless it
 * is MLA's. */
sl_status arch_gguf_layers(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* c->n_mtp is what holds where o does not say it. */
sl_status arch_hf_common(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
sl_status arch_cfg_check(const struct arch_cfg *c, sl_err *err) BASE_MUST_USE;

/* ---- delta.c: sizes of gated delta layers. FORMAT, UNSUPPORTED ---- */
sl_status arch_check_delta(const struct arch_cfg *c, sl_err *err) BASE_MUST_USE;

/* ---- index.c: sizes of a lightning indexer. FORMAT, UNSUPPORTED ---- */
sl_status arch_check_index(const struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* MTP layers that m has without their indexers see all positions. */
void arch_index_mtp(const io_model *m, struct arch_cfg *c);

/* ---- keys.c: UNSUPPORTED names a key that changes what the model computes, is not obeyed, and is
 * not at its neutral value ---- */
sl_status arch_keys_hf(const struct json *config, const struct arch_cfg *c,
                       sl_err *err) BASE_MUST_USE;
/* name: "rope_scaling" or "rope_parameters"; rope may be NULL. */
sl_status arch_keys_rope(const struct json *rope, const char *name, const char *type,
                         const struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
sl_status arch_keys_gguf(const io_model *m, const struct arch_cfg *c, sl_err *err) BASE_MUST_USE;

/* Has a folder a head of its own, that differs from its embedding? Then it is used, as by
 * transformers, whatever tie_word_embeddings says. */
bool arch_head_differs(const io_model *m, const struct arch_cfg *c);

#endif
