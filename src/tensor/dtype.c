/* SPDX-License-Identifier: Apache-2.0 */
/* The table of storage types, and the names of the GGUF ids that are known but not read. */
#include "tensor/tensor.h"

#include <string.h>

#include "base/size.h"

static const struct tensor_dtype_info info[TENSOR_N_DTYPE] = {
#define X(name, text, id, block, bytes) [TENSOR_##name] = {text, id, block, bytes},
    TENSOR_DTYPE_LIST(X)
#undef X
};

/* Ids that some GGUF file may carry and that this reader refuses; the text goes into the message as
 * it is. */
struct unread {
    uint32_t id;
    const char *text;
};

#define REMOVED " (removed from GGUF)"
#define ACTS " (for activations, never for weights)"
#define IK " (ik_llama.cpp only)"
static const struct unread unread[] = {
    {4, "Q4_2" REMOVED},        {5, "Q4_3" REMOVED},        {9, "Q8_1" ACTS},
    {15, "Q8_K" ACTS},          {31, "Q4_0_4_4" REMOVED},   {32, "Q4_0_4_8" REMOVED},
    {33, "Q4_0_8_8" REMOVED},   {36, "IQ4_NL_4_4" REMOVED}, {37, "IQ4_NL_4_8" REMOVED},
    {38, "IQ4_NL_8_8" REMOVED}, {97, "Q8_0_X4" IK},         {98, "Q8_1_X4" IK},
    {99, "Q8_2_X4" IK},         {133, "Q6_0" IK},           {134, "IQ1_BN" IK},
    {135, "IQ2_BN" IK},         {136, "Q8_K64" IK},         {137, "IQ2_K" IK},
    {138, "IQ3_K" IK},          {139, "IQ4_K" IK},          {140, "IQ5_K" IK},
    {141, "IQ6_K" IK},          {144, "IQ4_KS" IK},         {145, "IQ2_KS" IK},
    {146, "IQ4_KSS" IK},        {147, "Q8_K16" IK},         {148, "Q8_K32" IK},
    {149, "Q8_KR8" IK},         {150, "Q8_K128" IK},        {151, "Q8_KV" IK},
    {152, "IQ5_KS" IK},         {153, "IQ2_KT" IK},         {154, "IQ3_KT" IK},
    {155, "IQ4_KT" IK},         {156, "IQ3_KS" IK},         {157, "IQ2_KL" IK},
    {158, "IQ1_KT" IK},
};

const struct tensor_dtype_info *tensor_dtype(enum tensor_dtype t)
{
    ASSERT((unsigned)t < TENSOR_N_DTYPE);
    return &info[t];
}

bool tensor_dtype_from_gguf(uint32_t id, enum tensor_dtype *out)
{
    for (int i = 0; i < TENSOR_N_DTYPE; i++)
        if (info[i].gguf_id >= 0 && (uint32_t)info[i].gguf_id == id) {
            *out = (enum tensor_dtype)i;
            return true;
        }
    return false;
}

const char *tensor_gguf_id_text(uint32_t id)
{
    enum tensor_dtype t;
    if (tensor_dtype_from_gguf(id, &t)) return info[t].text;
    for (int i = 0; i < BASE_COUNT_OF(unread); i++)
        if (unread[i].id == id) return unread[i].text;
    if (id >= 200 && id < 400) return "a row-interleaved type" IK;
    return "unknown";
}

bool tensor_dtype_from_text(const char *text, size_t n, enum tensor_dtype *out)
{
    for (int i = 0; i < TENSOR_N_DTYPE; i++)
        if (strlen(info[i].text) == n && memcmp(info[i].text, text, n) == 0) {
            *out = (enum tensor_dtype)i;
            return true;
        }
    return false;
}

int64_t tensor_count(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dim; i++)
        n *= t->shape[i];
    return n;
}

int64_t tensor_whole(const struct tensor *t, int64_t i)
{
    int64_t wide = 0;
    int32_t narrow = 0;
    if (t->type == TENSOR_I64) {
        memcpy(&wide, (const uint8_t *)t->data + 8 * i, 8);
        return wide;
    }
    memcpy(&narrow, (const uint8_t *)t->data + 4 * i, 4);
    return narrow;
}

bool tensor_is_zero(const struct tensor *t)
{
    const uint8_t *p = t->data;
    uint8_t any = 0;
    uint64_t n = t->n_bytes;
    if (p && (t->row_bytes || t->col_bytes)) {
        uint64_t bytes = (uint64_t)tensor_dtype(t->type)->bytes;
        uint64_t cols = (uint64_t)tensor_cols(t), step = t->col_bytes ? t->col_bytes : bytes;
        for (uint64_t i = 0; i * bytes < n; i++)
            for (uint64_t k = 0; k < bytes; k++)
                any |= p[i / cols * t->row_bytes + i % cols * step + k];
        return !any;
    }
    for (uint64_t i = 0; p && i < n; i++)
        any |= p[i];
    return !any;
}

int64_t tensor_cols(const struct tensor *t)
{
    return t->n_dim ? t->shape[t->n_dim - 1] : 1;
}

int64_t tensor_rows(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < t->n_dim; i++)
        n *= t->shape[i];
    return n;
}

bool tensor_bytes(enum tensor_dtype t, uint64_t n, uint64_t *out)
{
    const struct tensor_dtype_info *d = tensor_dtype(t);
    ASSERT(n % (uint64_t)d->block == 0);
    return size_mul(n / (uint64_t)d->block, (uint64_t)d->bytes, out);
}
