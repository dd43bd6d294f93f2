/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF's metadata: the source's own, or what a folder's configuration and tokenizer say. */
#include <stdio.h>
#include <string.h>

#include "quant/quant_internal.h"

/* MTP layers are written where their tensors are there. */
static int n_mtp(const struct quant_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].id.role == (int)arch_mtp_mark(&p->cfg)) n++;
    return n;
}

static sl_status from_hf(const struct quant_plan *p, io_out *out, sl_err *err)
{
    SL_TRY(arch_write_gguf(&p->cfg, p->src, n_mtp(p), out, err));
    quant_put_sampling(p, out);
    return quant_tok_to_gguf(p, out, err);
}

/* llama.cpp's number for a file whose matrices are mostly of that type; -1 = it has none. */
static int file_type(const struct quant_plan *p)
{
    static const int of[QUANT_N_TYPE + 1] = {
        [QUANT_F16] = 1,   [QUANT_Q4_0] = 2,  [QUANT_Q4_1] = 3,  [QUANT_Q8_0] = 7,
        [QUANT_Q5_0] = 8,  [QUANT_Q5_1] = 9,  [QUANT_Q4_K] = 15, [QUANT_Q5_K] = 17,
        [QUANT_Q6_K] = 18, [QUANT_BF16] = 32, [QUANT_MXFP4] = 38};
    enum quant_type t = p->o->type[QUANT_CLASS_FFN];
    return t == QUANT_F32 || of[t] ? of[t] : -1;
}

sl_status quant_head_gguf(const struct quant_plan *p, io_out *out, sl_err *err)
{
    int type = file_type(p);
    if (io_model_kind(p->src) == IO_HF) SL_TRY(from_hf(p, out, err));
    for (int i = 0; i < io_n_meta(p->src); i++) {
        const char *key = io_meta_key(p->src, i);
        if (strcmp(key, "general.quantization_version") != 0 &&
            (strcmp(key, "general.file_type") != 0 || p->o->type[QUANT_CLASS_FFN] == QUANT_AS_IS))
            io_out_copy(out, p->src, i);
    }
    if (type >= 0 && p->o->type[QUANT_CLASS_FFN] != QUANT_AS_IS)
        io_out_u32(out, "general.file_type", (uint32_t)type);
    io_out_u32(out, "general.quantization_version", 2);
    return SL_OK;
}
