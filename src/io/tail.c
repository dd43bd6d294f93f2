/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose end was never written: programs that download take the space of a file first, and
 * fill it from the front. Such a file has its full size, and zeros where its last tensors should
 * be. */
#include <string.h>

#include "io/io_internal.h"

/* Where the zeros at the end of p[0 .. n) begin. Touches no more than they take up. */
static uint64_t zeros_from(const uint8_t *p, uint64_t n)
{
    uint64_t v;
    while (n >= 8) {
        memcpy(&v, p + n - 8, 8);
        if (v) break;
        n -= 8;
    }
    while (n > 0 && !p[n - 1])
        n--;
    return n;
}

/* Matrices of numbers or codes, and norms, are never all zeros; biases, zero points and orders of
 * columns may be, and a few bytes at the end of any matrix. */
static bool is_lost(const io_model *m, int i, uint64_t from)
{
    const struct tensor *t = &m->tensor[i];
    bool norm = t->n_dim == 1 && io_ends_with(t->name, "norm.weight");
    if (!t->data || !t->n_bytes || !(norm || io_tensor_is_matrix(m, i))) return false;
    uint64_t end = t->offset + t->n_bytes;
    return t->offset >= from || (end > from && end - from >= 4096 && end - from >= t->n_bytes / 2);
}

static sl_status check_file(const io_model *m, int file, sl_err *err)
{
    const struct os_map *map = &m->file[file].map;
    const struct tensor *first = NULL;
    uint64_t end = 0, n_lost = 0;
    for (int i = 0; i < m->n_tensor; i++)
        if (m->tensor[i].file == file && m->tensor[i].data)
            end = BASE_MAX(end, m->tensor[i].offset + m->tensor[i].n_bytes);
    if (!end || end > map->size) return SL_OK;
    uint64_t from = zeros_from(map->data, end);
    for (int i = 0; i < m->n_tensor; i++) {
        const struct tensor *t = &m->tensor[i];
        if (t->file != file || !is_lost(m, i, from)) continue;
        n_lost++;
        if (!first || t->offset < first->offset) first = t;
    }
    if (!first || (n_lost == 1 && first->offset >= from))
        return SL_OK; /* one matrix from its first to its last byte: no download ends just there */
    return SL_FAIL(
        err, FORMAT,
        "%s: nothing but zeros from byte %llu on, %llu of its tensors among them (%.60s): "
        "the download did not end",
        io_short(m->file[file].path), (unsigned long long)from, (unsigned long long)n_lost,
        first->name);
}

sl_status io_check_tails(const io_model *m, sl_err *err)
{
    if (m->pack) return SL_OK;
    for (int i = 0; i < m->n_file; i++)
        SL_TRY(check_file(m, i, err));
    return SL_OK;
}
