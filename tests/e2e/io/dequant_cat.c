/* SPDX-License-Identifier: Apache-2.0 */
/* dequant_cat TYPE < blocks > f32: the reference dequantiser as a filter, for comparison with
 * gguf-py (dequant_oracle.py). dequant_cat --quant TYPE < f32 > blocks: the reference quantiser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

int main(int argc, char **argv)
{
    enum tensor_dtype t;
    int quant = argc == 3 && strcmp(argv[1], "--quant") == 0;
    if (argc != 2 + quant || !tensor_dtype_from_text(argv[argc - 1], strlen(argv[argc - 1]), &t) ||
        !tensor_dtype_is_weight(t))
        return 2;
    const struct tensor_dtype_info *d = tensor_dtype(t);
    size_t per = 4096;
    uint8_t *blk = malloc(per * (size_t)d->bytes + 1);
    float *f = malloc(per * (size_t)d->block * 4);
    if (!blk || !f) return 1;
    blk++; /* unaligned on purpose */
    if (quant) {
        size_t n;
        while ((n = fread(f, (size_t)d->block * 4, per, stdin)) > 0) {
            tensor_quant(t, f, (int64_t)n * d->block, blk);
            if (fwrite(blk, (size_t)d->bytes, n, stdout) != n) return 1;
        }
    } else {
        size_t n;
        while ((n = fread(blk, (size_t)d->bytes, per, stdin)) > 0) {
            tensor_dequant(t, blk, (int64_t)n * d->block, f);
            if (fwrite(f, (size_t)d->block * 4, n, stdout) != n) return 1;
        }
    }
    free(blk - 1);
    free(f);
    return fflush(stdout) == 0 ? 0 : 1;
}
