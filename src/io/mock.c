/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors with random numbers. There is one stretch of numbers for each type; every tensor of that
 * type is a piece of it, from where the hash of its name says. The stretch is repeated in the
 * address space, so that it has room for the largest tensor. */
#include "io/mock.h"

#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/rng.h"
#include "base/size.h"
#include "io/io_internal.h"

#define PAGE 4096
#define STRETCH ((uint64_t)4 << 20) /* about: whole pages, whole blocks, an odd number of both */
#define LINE 256                    /* numbers that are made at a time: whole blocks of all types */
#define SPREAD 0.04f                /* standard deviation of a matrix's numbers */

static const enum tensor_dtype types[] = {TENSOR_BF16, TENSOR_F16,  TENSOR_F32,
                                          TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_Q4_1};

struct stretch {
    enum tensor_dtype type;
    float mean, spread;
    uint64_t bytes, most; /* of the stretch; of its largest tensor */
    struct os_map map;
};
/* By enum io_mock_kind; of matrices that can not have the type EXACT's. */
struct io_mocked {
    struct stretch s[4];
};

bool io_mock_type(const char *text, enum tensor_dtype *out)
{
    for (int i = 0; i < BASE_COUNT_OF(types); i++)
        if (strcasecmp(text, tensor_dtype(types[i])->text) == 0) {
            *out = types[i];
            return true;
        }
    return false;
}

static void size_stretch(struct stretch *s)
{
    uint64_t unit = (uint64_t)tensor_dtype(s->type)->bytes, step = PAGE;
    while (step % unit)
        step += PAGE;
    s->bytes = step * (STRETCH / step | 1);
}

/* Sums of four uniform numbers: near enough to a normal distribution, which no kernel asks for. */
static void draw(const struct stretch *s, uint64_t *rng, float *x)
{
    for (int i = 0; i < LINE; i++) {
        uint64_t r = rng_next(rng);
        float sum = -2;
        for (int k = 0; k < 4; k++)
            sum += (float)(r >> 16 * k & 0xffff) / 65536.0f;
        x[i] = s->mean + s->spread * 1.732f * sum;
    }
}

static sl_status fill(struct stretch *s, sl_err *err)
{
    void *p = NULL;
    float x[LINE];
    uint64_t line = 0, rng = (uint64_t)s->type * 4 + (s->mean != 0), at = 0;
    if (!s->most) return SL_OK;
    (void)tensor_bytes(s->type, LINE, &line);
    SL_TRY(os_map_repeat(s->bytes, s->bytes + s->most, &s->map, &p, err));
    for (; at + line <= s->bytes; at += line) {
        draw(s, &rng, x);
        tensor_quant(s->type, x, LINE, (uint8_t *)p + at);
    }
    const struct tensor_dtype_info *d = tensor_dtype(s->type);
    int64_t rest = (int64_t)(s->bytes - at) / d->bytes * d->block;
    draw(s, &rng, x);
    if (rest) tensor_quant(s->type, x, rest, (uint8_t *)p + at);
    return SL_OK;
}

/* The stretch that a tensor is a piece of, and how many bytes of it. */
static sl_status stretch_of(struct io_mocked *k, const struct io_mock_tensor *t, int *which,
                            uint64_t *n, sl_err *err)
{
    uint64_t count = 1, cols = (uint64_t)t->shape[t->n_dim - 1];
    bool ok = true;
    *which = (int)t->kind;
    if (t->kind == IO_MOCK_MATRIX &&
        cols % (uint64_t)tensor_dtype(k->s[IO_MOCK_MATRIX].type)->block)
        *which = IO_MOCK_EXACT;
    for (int i = 0; i < t->n_dim; i++)
        ok = ok && size_mul(count, (uint64_t)t->shape[i], &count);
    if (ok && tensor_bytes(k->s[*which].type, count, n)) return SL_OK;
    return SL_FAIL(err, FORMAT, "%.100s: its shape is too large", t->name);
}

static sl_status add_all(io_model *m, struct io_mocked *k, const struct io_mock_tensor *t, int n,
                         sl_err *err)
{
    void *p = NULL;
    int which = 0;
    uint64_t bytes = 0;
    SL_TRY(mem_arena_array(&m->arena, (size_t)n, sizeof *m->tensor, &p, err));
    m->tensor = p;
    m->n_tensor = n;
    for (int i = 0; i < n; i++) {
        SL_TRY(stretch_of(k, &t[i], &which, &bytes, err));
        k->s[which].most = BASE_MAX(k->s[which].most, bytes);
    }
    for (int i = 0; i < BASE_COUNT_OF(k->s); i++)
        SL_TRY(fill(&k->s[i], err));
    for (int i = 0; i < n; i++) {
        struct tensor *x = &m->tensor[i];
        SL_TRY(stretch_of(k, &t[i], &which, &bytes, err));
        const struct stretch *s = &k->s[which];
        uint64_t unit = (uint64_t)tensor_dtype(s->type)->bytes;
        uint64_t h = hash_bytes(t[i].name, strlen(t[i].name), 0) % (s->bytes / unit);
        *x = (struct tensor){.name = t[i].name,
                             .type = s->type,
                             .n_dim = t[i].n_dim,
                             .data = s->map.data + h * unit,
                             .n_bytes = bytes};
        for (int d = 0; d < TENSOR_MAX_DIM; d++)
            x->shape[d] = 1;
        for (int d = 0; d < BASE_MIN(t[i].n_dim, 2); d++)
            x->shape[d] = t[i].shape[d];
    }
    return io_index_tensors(m, err);
}

sl_status io_mock(io_model *m, enum tensor_dtype type, const struct io_mock_tensor *t, int n,
                  sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 1, sizeof(struct io_mocked), &p, err));
    m->mocked = p;
    struct stretch *s = m->mocked->s;
    s[IO_MOCK_MATRIX] = (struct stretch){.type = type, .spread = SPREAD};
    s[IO_MOCK_EXACT] = (struct stretch){.type = TENSOR_BF16, .spread = SPREAD};
    s[IO_MOCK_GAIN] = (struct stretch){.type = TENSOR_F32, .mean = 1, .spread = 0.1f};
    s[IO_MOCK_SMALL] = (struct stretch){.type = TENSOR_F32, .spread = SPREAD};
    for (int i = 0; i < BASE_COUNT_OF(m->mocked->s); i++)
        size_stretch(&s[i]);
    m->scheme = NULL;
    m->quant_method = m->quant_file = NULL;
    m->quant = NULL;
    return add_all(m, m->mocked, t, n, err);
}

bool io_is_mock(const io_model *m)
{
    return m->mocked != NULL;
}

void io_mock_close(io_model *m)
{
    for (int i = 0; m->mocked && i < BASE_COUNT_OF(m->mocked->s); i++)
        os_map_close(&m->mocked->s[i].map);
}
