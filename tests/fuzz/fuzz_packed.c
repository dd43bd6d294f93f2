/* SPDX-License-Identifier: Apache-2.0 */
/* Property: any bytes either open as a packed file, and then every matrix' bytes, every name, value
 * and stored tensor can be read, or are refused with a text. Checksums are made right first, so
 * that what lies past them is reached. Rooms: io text tensor os base. */
#include <string.h>

#include "base/hash.h"
#include "fuzz_io.h"
#include "io/pack.h"

#define HEADER 96

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* The input is the header's layout name and the tables; header and data are made around them. */
static uint8_t *build(const uint8_t *data, size_t size, size_t *n)
{
    const uint64_t start = (uint64_t)2 << 20, tables = start + 8192;
    *n = tables + size;
    void *q = NULL;
    if (mem_alloc(MEM_MISC, *n, &q, NULL)) return NULL; /* matrices hold anything */
    uint8_t *p = q;
    memset(p, 0, HEADER);
    memcpy(p, "SLUIPACK\1\0\0\0\x60\0\0\0", 16);
    put64(p + 16, *n);
    put64(p + 24, start);
    put64(p + 32, tables);
    put64(p + 40, size);
    put64(p + 48, hash_bytes(data, size, 0));
    memcpy(p + 64, "fuzz", 4);
    put64(p + 88, hash_bytes(p, HEADER - 8, 0));
    memcpy(p + tables, data, size);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n;
    uint8_t *p = build(data, size, &n);
    io_model *m = p ? fuzz_open("fuzz.packed", p, n) : NULL;
    const io_pack *k = m ? io_model_pack(m) : NULL;
    if (m && !k) __builtin_trap();
    for (int i = 0; k && i < io_pack_n_mat(k); i++) {
        const struct io_pack_mat *a = io_pack_mat_at(k, i);
        fuzz_touch(a->data, 1);
        fuzz_touch(a->data + a->n_bytes - 1, 1);
        fuzz_touch(a->scale, sizeof(float) * 2 * (size_t)a->n);
        if (io_pack_find(k, a->name) != a) __builtin_trap();
    }
    for (int i = 0; m && i < io_n_tensor(m); i++)
        if (io_tensor(m, i)->data) fuzz_touch(io_tensor(m, i)->data, io_tensor(m, i)->n_bytes);
    for (int i = 0; m && i < io_n_meta(m); i++) {
        char text[64];
        io_meta_text(m, i, text, sizeof text);
    }
    io_close(m);
    mem_free(p);
    return 0;
}
