/* SPDX-License-Identifier: Apache-2.0 */
/* What the targets of the io room share. */
#ifndef FUZZ_IO_H
#define FUZZ_IO_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Read every byte: an address that is not ours is the sanitizer's find. */
static inline void fuzz_touch(const void *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) (void)((const volatile uint8_t *)p)[i];
}

/* The model, or NULL after a refusal that was checked: a code, a text, nothing kept. */
static inline io_model *fuzz_open(const char *name, const uint8_t *data, size_t size)
{
    sl_err err = {0};
    io_model *m = NULL;
    int64_t before = mem_used(MEM_MISC);
    sl_status st = io_open_bytes(name, data, size, &m, &err);
    if (st == SL_OK) return m;
    if (m || !err.text[0] || mem_used(MEM_MISC) != before) __builtin_trap();
    if (st != SL_FORMAT && st != SL_UNSUPPORTED && st != SL_NOTFOUND) __builtin_trap();
    return NULL;
}

/* Every tensor is found by its name, lies inside the data, and is dequantised row by row from its
 * first and last blocks. */
static inline void fuzz_tensors(const io_model *m, const uint8_t *data, size_t size)
{
    for (int i = 0; i < io_n_tensor(m); i++) {
        const struct tensor *t = io_tensor(m, i);
        struct weight w;
        float f[256];
        sl_err err;
        if (io_find(m, t->name) != t) __builtin_trap();
        if (data && (t->n_bytes > size || (const uint8_t *)t->data < data ||
                     (const uint8_t *)t->data > data + size - t->n_bytes))
            __builtin_trap();
        fuzz_touch(t->data, t->n_bytes);
        if (io_weight(m, t->name, &w, &err) != SL_OK) continue;
        int64_t n = tensor_dtype(w.type)->block;
        if (w.rows == 0 || w.cols == 0) continue;
        weight_dequant(&w, 0, 0, n, f);
        weight_dequant(&w, w.rows - 1, w.cols - n, n, f);
    }
}

#endif
