/* SPDX-License-Identifier: Apache-2.0 */
/* From an item to bytes: GGUF's types in chunks of rows as they come; a folder's schemes whole,
 * since their parts lie one after another. Rows are shared out to the team; what is written and the
 * error that is told do not depend on its size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fp.h"
#include "quant/quant_internal.h"

#define CHUNK_BYTES ((int64_t)32 << 20)
#define NVFP4_TOP (6.0f * 448.0f) /* largest code times largest scale */

/* ---- parts: the tensors that stand for one matrix ---- */
enum what { P_CODES, P_SCALE, P_ZERO, P_GLOBAL };
struct part {
    const char *suffix; /* in place of "weight" */
    enum what what;
    enum tensor_dtype type;
    int n_dim;
    int64_t shape[2];
};
#define MAX_PART 4

static int parts_of(const struct quant_plan *p, const struct quant_item *it, struct part *out)
{
    int64_t N = it->rows, K = it->cols, g = p->group;
    switch (it->type) {
    case QUANT_INT8:
        out[0] = (struct part){"weight", P_CODES, TENSOR_I8, 2, {N, K}};
        out[1] = (struct part){"weight_scale", P_SCALE, TENSOR_BF16, 2, {N, 1}};
        return 2;
    case QUANT_INT4:
        out[0] = (struct part){"weight_packed", P_CODES, TENSOR_I32, 2, {N, K / 8}};
        out[1] = (struct part){"weight_scale", P_SCALE, TENSOR_BF16, 2, {N, 1}};
        return 2;
    case QUANT_AWQ:
        out[0] = (struct part){"qweight", P_CODES, TENSOR_I32, 2, {K, N / 8}};
        out[1] = (struct part){"qzeros", P_ZERO, TENSOR_I32, 2, {K / g, N / 8}};
        out[2] = (struct part){"scales", P_SCALE, TENSOR_F16, 2, {K / g, N}};
        return 3;
    case QUANT_FP8:
        out[0] = (struct part){p->ct ? "weight_scale" : "weight_scale_inv",
                               P_SCALE,
                               TENSOR_F32,
                               2,
                               {(N + 127) / 128, (K + 127) / 128}};
        out[1] = (struct part){"weight", P_CODES, TENSOR_F8_E4M3, 2, {N, K}};
        return 2;
    case QUANT_NVFP4:
        out[0] = (struct part){"weight_global_scale", P_GLOBAL, TENSOR_F32, 1, {1}};
        out[1] = (struct part){"weight_packed", P_CODES, TENSOR_U8, 2, {N, K / 2}};
        out[2] = (struct part){"weight_scale", P_SCALE, TENSOR_F8_E4M3, 2, {N, K / 16}};
        return 3;
    default: /* MXFP4 */
        out[0] = (struct part){"weight_packed", P_CODES, TENSOR_U8, 2, {N, K / 2}};
        out[1] = (struct part){"weight_scale", P_SCALE, TENSOR_U8, 2, {N, K / 32}};
        return 2;
    }
}

static uint64_t part_bytes(const struct part *s)
{
    uint64_t n = 0;
    return tensor_bytes(s->type, (uint64_t)(s->shape[0] * (s->n_dim > 1 ? s->shape[1] : 1)), &n)
               ? n
               : 0;
}

/* Stored as one plain tensor of it->store? */
static bool is_plain(const struct quant_plan *p, const struct quant_item *it)
{
    return p->to == IO_GGUF || it->type == QUANT_AS_IS || it->type == QUANT_F32 ||
           it->type == QUANT_F16 || it->type == QUANT_BF16;
}

/* "X.weight" with another suffix. */
static void part_name(const struct quant_item *it, const char *suffix, char *buf, size_t n)
{
    snprintf(buf, n, "%.*s%s", (int)(strlen(it->name) - strlen("weight")), it->name, suffix);
}

/* GGUF's NVFP4 has its second scales in a tensor of their own: one, or one of each expert. */
static int n_outer(const struct quant_plan *p, const struct quant_item *it)
{
    if (p->to != IO_GGUF || it->type != QUANT_NVFP4) return 0;
    return it->n_dim == 3 && it->cls == QUANT_CLASS_EXPERTS ? (int)it->shape[0] : 1;
}

void quant_declare_first(const struct quant_plan *p, struct quant_item *it, io_out *out)
{
    char name[QUANT_MAX_NAME];
    int64_t two = 2;
    if (p->to != IO_HF || it->type != QUANT_INT4) return;
    part_name(it, "weight_shape", name, sizeof name);
    io_out_tensor(out, name, TENSOR_I64, 1, &two);
    it->shape_sidecar = true;
}

sl_status quant_write_first(const struct quant_plan *p, const struct quant_item *it, io_out *out,
                            sl_err *err)
{
    (void)p;
    int64_t shape[2] = {it->rows, it->cols};
    return it->shape_sidecar ? io_out_write(out, shape, sizeof shape, err) : SL_OK;
}

void quant_declare(const struct quant_plan *p, const struct quant_item *it, io_out *out)
{
    char name[QUANT_MAX_NAME];
    struct part s[MAX_PART];
    if (is_plain(p, it)) {
        io_out_tensor(out, it->name, it->store, it->n_dim, it->shape);
        int64_t n = n_outer(p, it);
        part_name(it, "scale", name, sizeof name);
        if (n) io_out_tensor(out, name, TENSOR_F32, 1, &n);
        return;
    }
    int n = parts_of(p, it, s);
    for (int i = 0; i < n; i++) {
        part_name(it, s[i].suffix, name, sizeof name);
        io_out_tensor(out, name, s[i].type, s[i].n_dim, s[i].shape);
    }
}

uint64_t quant_item_bytes(const struct quant_plan *p, const struct quant_item *it)
{
    struct part s[MAX_PART];
    uint64_t n = 0, count = (uint64_t)(it->rows * it->cols);
    if (it->from == QUANT_RAW) return (uint64_t)it->bytes_from;
    if (is_plain(p, it))
        return tensor_bytes(it->store, count, &n) ? n + 4 * (uint64_t)n_outer(p, it) : 0;
    int k = parts_of(p, it, s);
    for (int i = 0; i < k; i++)
        n += part_bytes(&s[i]);
    return n;
}

/* ---- the work on a range of units ---- */

struct scratch {
    float *x, *deq, *scale;
    int8_t *q;
    uint8_t *z;
};

struct job {
    const struct quant_plan *p;
    const struct quant_item *it;
    struct quant_rows *src;
    int unit;        /* rows that are worked on together */
    int64_t row0, n; /* rows [row0, row0 + n) */
    uint8_t *out;    /* plain types: rows from row0; else the whole of the parts */
    uint64_t row_bytes;
    struct part part[MAX_PART];
    uint8_t *part_at[MAX_PART]; /* by enum what */
    float *mul;                 /* [n_mul] NVFP4: second scale of each part of the rows */
    int n_mul;
    double *err2, *ref2; /* [n] of the rows */
    float *amax;         /* [rows] first pass */
    struct scratch *s;   /* [workers] */
    struct par_counter *next;
    void (*fn)(const struct job *j, struct scratch *s, int64_t row, int n);
};

static void region(void *arg, int worker, int n_w)
{
    struct job *j = arg;
    int b, e, n_unit = (int)((j->n + j->unit - 1) / j->unit);
    (void)n_w;
    while (par_take(j->next, n_unit, BASE_MAX(1, BASE_MIN(16, n_unit / 16)), &b, &e))
        for (int u = b; u < e; u++) {
            int64_t row = j->row0 + (int64_t)u * j->unit;
            j->fn(j, &j->s[worker], row, (int)BASE_MIN(j->unit, j->row0 + j->n - row));
        }
}

static void run(struct job *j, par_team *team,
                void (*fn)(const struct job *, struct scratch *, int64_t, int))
{
    j->fn = fn;
    atomic_store(&j->next->next, 0);
    par_run(team, region, j);
}

static void measure(const struct job *j, int64_t row, const float *x, const float *deq)
{
    double e = 0, s = 0;
    for (int64_t k = 0; k < j->it->cols; k++) {
        double d = (double)deq[k] - (double)x[k];
        e += d * d;
        s += (double)x[k] * (double)x[k];
    }
    j->err2[row - j->row0] = e;
    j->ref2[row - j->row0] = s;
}

static void row_amax(const struct job *j, struct scratch *s, int64_t row, int n)
{
    float amax = 0.0f;
    (void)n;
    quant_rows_get(j->src, row, s->x);
    for (int64_t k = 0; k < j->it->cols; k++)
        amax = fmaxf(amax, fabsf(s->x[k]));
    j->amax[row] = amax;
}

static float mul_of(const struct job *j, int64_t row)
{
    return j->n_mul ? j->mul[row / (j->it->rows / j->n_mul)] : 1.0f;
}

static void plain_row(const struct job *j, struct scratch *s, int64_t row, int n)
{
    const struct quant_item *it = j->it;
    uint8_t *dst = j->out + (uint64_t)(row - j->row0) * j->row_bytes;
    float mul = mul_of(j, row);
    (void)n;
    quant_rows_get(j->src, row, s->x);
    for (int64_t k = 0; j->n_mul && k < it->cols; k++)
        s->deq[k] = s->x[k] / mul;
    const struct quant_values x = {j->n_mul ? s->deq : s->x, quant_rows_weight(j->src, row),
                                   it->cols};
    quant_round_gguf(it->store, &x, !j->p->o->plain, dst);
    tensor_dequant(it->store, dst, it->cols, s->deq);
    for (int64_t k = 0; j->n_mul && k < it->cols; k++)
        s->deq[k] *= mul;
    measure(j, row, s->x, s->deq);
}

static void put_bf16(uint8_t *p, int64_t i, float v)
{
    uint16_t h = fp_f32_to_bf16(v);
    memcpy(p + 2 * i, &h, 2);
}

static void channel_row(const struct job *j, struct scratch *s, int64_t row, int n)
{
    int64_t K = j->it->cols;
    struct quant_codes c = {s->q, s->scale, s->z, s->deq};
    (void)n;
    quant_rows_get(j->src, row, s->x);
    const struct quant_values x = {s->x, quant_rows_weight(j->src, row), K};
    quant_round_int(j->it->type, &x, 0, !j->p->o->plain, &c);
    put_bf16(j->part_at[P_SCALE], row, c.scale[0]);
    if (j->it->type == QUANT_INT8) {
        memcpy(j->part_at[P_CODES] + row * K, s->q, (size_t)K);
    } else {
        uint8_t *dst = j->part_at[P_CODES] + row * K / 2;
        for (int64_t k = 0; k < K; k += 2)
            dst[k / 2] = (uint8_t)((s->q[k] + 8) | (s->q[k + 1] + 8) << 4);
    }
    measure(j, row, s->x, s->deq);
}

static void fp4_row(const struct job *j, struct scratch *s, int64_t row, int n)
{
    int64_t K = j->it->cols, n_scale = K / (j->it->type == QUANT_NVFP4 ? 16 : 32);
    struct quant_codes c = {s->q, s->scale, s->z, s->deq};
    uint8_t *dst = j->part_at[P_CODES] + row * K / 2;
    (void)n;
    quant_rows_get(j->src, row, s->x);
    const struct quant_values x = {s->x, quant_rows_weight(j->src, row), K};
    quant_round_fp4(j->it->type, &x, mul_of(j, row), !j->p->o->plain, &c);
    memcpy(j->part_at[P_SCALE] + row * n_scale, s->z, (size_t)n_scale);
    for (int64_t k = 0; k < K; k += 2)
        dst[k / 2] = (uint8_t)(s->q[k] | s->q[k + 1] << 4);
    measure(j, row, s->x, s->deq);
}

/* Eight rows make a word: row r lies in nibble [0,4,1,5,2,6,3,7][r]. */
static void awq_rows(const struct job *j, struct scratch *s, int64_t row, int n)
{
    static const int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    int64_t K = j->it->cols, N = j->it->rows, g = j->p->group, ld = N / 8, col = row / 8;
    uint8_t *words = j->part_at[P_CODES], *zeros = j->part_at[P_ZERO],
            *scales = j->part_at[P_SCALE];
    for (int r = 0; r < n; r++) {
        struct quant_codes c = {s->q, s->scale, s->z, s->deq};
        int at = nibble[r] / 2, up = nibble[r] % 2 * 4;
        quant_rows_get(j->src, row + r, s->x);
        const struct quant_values x = {s->x, quant_rows_weight(j->src, row + r), K};
        quant_round_int(QUANT_AWQ, &x, (int)g, !j->p->o->plain, &c);
        for (int64_t k = 0; k < K; k++)
            words[4 * (k * ld + col) + at] |= (uint8_t)(s->q[k] << up);
        for (int64_t k = 0; k < K / g; k++) {
            uint16_t h = fp_f32_to_f16(s->scale[k]);
            zeros[4 * (k * ld + col) + at] |= (uint8_t)(s->z[k] << up);
            memcpy(scales + 2 * (k * N + row + r), &h, 2);
        }
        measure(j, row + r, s->x, s->deq);
    }
}

/* 128 rows: one scale for each 128 columns of them. */
static void fp8_rows(const struct job *j, struct scratch *s, int64_t row, int n)
{
    int64_t K = j->it->cols, n_scale = (K + 127) / 128;
    uint8_t *codes = j->part_at[P_CODES] + row * K;
    for (int r = 0; r < n; r++)
        quant_rows_get(j->src, row + r, s->x + r * K);
    for (int64_t b = 0; b < n_scale; b++) {
        int64_t end = BASE_MIN(K, 128 * b + 128);
        float amax = 0.0f;
        for (int r = 0; r < n; r++)
            for (int64_t k = 128 * b; k < end; k++)
                amax = fmaxf(amax, fabsf(s->x[r * K + k]));
        float d = amax > 0.0f ? amax / 448.0f : 1.0f;
        memcpy(j->part_at[P_SCALE] + 4 * (row / 128 * n_scale + b), &d, 4);
        for (int r = 0; r < n; r++)
            for (int64_t k = 128 * b; k < end; k++) {
                uint8_t c = fp_f32_to_e4m3(s->x[r * K + k] / d);
                codes[r * K + k] = c;
                s->deq[r * K + k] = fp_e4m3_to_f32(c) * d;
            }
    }
    for (int r = 0; r < n; r++)
        measure(j, row + r, s->x + r * K, s->deq + r * K);
}

/* ---- buffers ---- */

static sl_status open_scratch(struct job *j, int n_worker, struct arena *a, sl_err *err)
{
    void *p = NULL;
    size_t K = (size_t)j->it->cols;
    SL_TRY(mem_arena_array(a, (size_t)n_worker, sizeof *j->s, &p, err));
    j->s = p;
    for (int i = 0; i < n_worker; i++) {
        SL_TRY(mem_arena_array(a, K * (size_t)j->unit, sizeof(float), &p, err));
        j->s[i].x = p;
        SL_TRY(mem_arena_array(a, K * (size_t)j->unit, sizeof(float), &p, err));
        j->s[i].deq = p;
        SL_TRY(mem_arena_array(a, K / 16 + 1, sizeof(float), &p, err));
        j->s[i].scale = p;
        SL_TRY(mem_arena_array(a, K, 1, &p, err));
        j->s[i].q = p;
        SL_TRY(mem_arena_array(a, K / 16 + 1, 1, &p, err));
        j->s[i].z = p;
    }
    SL_TRY(mem_arena_array(a, 2, sizeof *j->next, &p, err)); /* room to align */
    j->next = (struct par_counter *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
    return SL_OK;
}

static sl_status rows_of(struct job *j, int64_t n, struct arena *a, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(a, 2 * (size_t)n, sizeof(double), &p, err));
    j->err2 = p;
    j->ref2 = j->err2 + n;
    return SL_OK;
}

/* FORMAT where a weight is no finite number. */
static sl_status add_errors(const struct job *j, struct quant_error *e, sl_err *err)
{
    for (int64_t i = 0; i < j->n; i++) {
        e->err2 += j->err2[i];
        e->ref2 += j->ref2[i];
        if (!isfinite(j->ref2[i]))
            return SL_FAIL(err, FORMAT,
                           "%s: tensor %.80s: row %lld has a weight that is no finite number",
                           io_path(j->p->src), j->it->src, (long long)(j->row0 + i));
    }
    return SL_OK;
}

/* NVFP4's second scale, of a matrix whose largest magnitude is amax: that becomes 6 * 448. Where it
 * would not be heeded it is 1, as long as scales of blocks alone, whose least is 2^-9, can hold the
 * matrix. */
static float second_scale(const struct job *j, float amax)
{
    const struct quant_plan *p = j->p;
    bool used = p->to != IO_GGUF || !p->has_cfg || j->it->id.role < 0 ||
                 arch_scale_used(&p->cfg, (enum arch_role)j->it->id.role);
    if (amax >= 6.0f * 0x1p-8f && amax <= NVFP4_TOP && !used) return 1.0f;
    float mul = amax > 0.0f ? amax / NVFP4_TOP : 1.0f;
    return p->to == IO_HF ? 1.0f / (1.0f / mul) : mul; /* a folder holds the reciprocal */
}

/* Engines multiply q, k and v as one matrix, as well as gate and up, and q_a and kv_a: in a folder
 * these have one second scale, as the format's own tools give them. 0: alone. */
static int joined(const struct quant_item *it)
{
    switch (it->id.role) {
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V:
        return 1;
    case ROLE_Q_A:
    case ROLE_KV_A:
        return 2;
    case ROLE_GATE:
    case ROLE_UP:
        return 3;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
        return 4;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
        return 5;
    default:
        return 0;
    }
}

/* The largest magnitude of another item than the job's. */
static sl_status amax_of(const struct quant_plan *p, const struct quant_item *it, par_team *team,
                         float *out, sl_err *err)
{
    struct quant_rows src;
    struct arena a;
    void *v = NULL;
    struct job j = {.p = p, .it = it, .src = &src, .unit = 1, .n = it->rows};
    SL_TRY(quant_rows_open(p, it, &src, err));
    mem_arena_init(&a, MEM_SCRATCH, 0);
    sl_status st = open_scratch(&j, par_size(team), &a, err);
    if (!st) st = mem_arena_array(&a, (size_t)it->rows, sizeof(float), &v, err);
    j.amax = v;
    if (!st) run(&j, team, row_amax);
    for (int64_t r = 0; !st && r < it->rows; r++)
        *out = fmaxf(*out, j.amax[r]);
    mem_arena_fini(&a);
    quant_rows_close(&src);
    return st;
}

static sl_status joined_amax(const struct job *j, par_team *team, float *amax, sl_err *err)
{
    int set = joined(j->it);
    for (int i = 0; set && i < j->p->n_item; i++) {
        const struct quant_item *o = &j->p->item[i];
        if (o == j->it || o->id.layer != j->it->id.layer || o->id.expert != j->it->id.expert ||
            joined(o) != set)
            continue;
        if (o->type == QUANT_NVFP4 && strcmp(o->id.suffix, "weight") == 0)
            SL_TRY(amax_of(j->p, o, team, amax, err));
    }
    return SL_OK;
}

static sl_status find_mul(struct job *j, par_team *team, int n_mul, struct arena *a, sl_err *err)
{
    void *p = NULL;
    int64_t rows = j->it->rows, per = rows / n_mul;
    int unit = j->unit;
    SL_TRY(mem_arena_array(a, (size_t)rows, sizeof(float), &p, err));
    j->amax = p;
    SL_TRY(mem_arena_array(a, (size_t)n_mul, sizeof(float), &p, err));
    j->mul = p;
    j->unit = 1;
    j->row0 = 0;
    j->n = rows;
    run(j, team, row_amax);
    j->unit = unit;
    for (int m = 0; m < n_mul; m++) {
        float amax = 0.0f;
        for (int64_t r = m * per; r < (m + 1) * per; r++)
            amax = fmaxf(amax, j->amax[r]);
        if (j->p->to == IO_HF) SL_TRY(joined_amax(j, team, &amax, err));
        j->mul[m] = second_scale(j, amax);
    }
    j->n_mul = n_mul;
    return SL_OK;
}

static sl_status encode_plain(struct job *j, par_team *team, io_out *out, struct arena *a,
                              struct quant_error *e, sl_err *err)
{
    const struct quant_item *it = j->it;
    void *p = NULL;
    int outer = n_outer(j->p, it);
    if (!tensor_bytes(it->store, (uint64_t)it->cols, &j->row_bytes))
        return SL_FAIL(err, FORMAT, "%s: rows too long", it->name);
    if (outer) SL_TRY(find_mul(j, team, outer, a, err));
    int64_t chunk =
        BASE_MIN(it->rows, BASE_MAX(1, CHUNK_BYTES / (int64_t)BASE_MAX(j->row_bytes, 1)));
    SL_TRY(mem_arena_array(a, (size_t)chunk, (size_t)j->row_bytes, &p, err));
    j->out = p;
    SL_TRY(rows_of(j, chunk, a, err));
    for (j->row0 = 0; j->row0 < it->rows; j->row0 += chunk) {
        j->n = BASE_MIN(chunk, it->rows - j->row0);
        run(j, team, plain_row);
        SL_TRY(add_errors(j, e, err));
        SL_TRY(io_out_write(out, j->out, (uint64_t)j->n * j->row_bytes, err));
        quant_rows_drop(j->src, j->row0, j->row0 + j->n);
    }
    return outer ? io_out_write(out, j->mul, 4 * (uint64_t)outer, err) : SL_OK;
}

static sl_status encode_parts(struct job *j, par_team *team, io_out *out, struct arena *a,
                              struct quant_error *e, sl_err *err)
{
    const struct quant_item *it = j->it;
    void *p = NULL;
    int n_part = parts_of(j->p, it, j->part);
    uint64_t total = 0;
    float global = 1.0f;
    for (int i = 0; i < n_part; i++)
        total += part_bytes(&j->part[i]);
    if (it->type == QUANT_NVFP4) SL_TRY(find_mul(j, team, 1, a, err));
    SL_TRY(mem_arena_alloc(a, total, &p, err));
    j->out = p;
    for (int i = 0; i < n_part; i++) {
        j->part_at[j->part[i].what] = p;
        p = (uint8_t *)p + part_bytes(&j->part[i]);
    }
    SL_TRY(rows_of(j, it->rows, a, err));
    j->row0 = 0;
    j->n = it->rows;
    run(j, team,
        it->type == QUANT_AWQ                              ? awq_rows
        : it->type == QUANT_FP8                            ? fp8_rows
        : it->type == QUANT_INT8 || it->type == QUANT_INT4 ? channel_row
                                                           : fp4_row);
    SL_TRY(add_errors(j, e, err));
    if (it->type == QUANT_NVFP4) {
        global = 1.0f / j->mul[0];
        memcpy(j->part_at[P_GLOBAL], &global, 4);
    }
    quant_rows_drop(j->src, 0, it->rows);
    return io_out_write(out, j->out, total, err);
}

/* Whole numbers in 4 bytes or in 8. */
static sl_status copy_table(const struct quant_plan *p, const struct quant_item *it, io_out *out,
                            sl_err *err)
{
    const struct tensor *t = io_find(p->src, it->src);
    int64_t n = tensor_count(t), wide[512];
    int32_t narrow[512];
    bool is_wide = it->store == TENSOR_I64;
    for (int64_t at = 0, k; at < n; at += k) {
        k = BASE_MIN(n - at, (int64_t)BASE_COUNT_OF(wide));
        for (int64_t i = 0; i < k; i++) {
            wide[i] = tensor_whole(t, at + i);
            narrow[i] = (int32_t)wide[i];
            if (!is_wide && narrow[i] != wide[i])
                return SL_FAIL(err, FORMAT,
                               "%s: tensor %.80s: number %lld is %lld, which 32 bits do not hold",
                               io_path(p->src), it->src, (long long)(at + i), (long long)wide[i]);
        }
        const void *from = is_wide ? (const void *)wide : narrow;
        SL_TRY(io_out_write(out, from, (uint64_t)(k * (is_wide ? 8 : 4)), err));
    }
    return SL_OK;
}

static sl_status copy_raw(const struct quant_plan *p, const struct quant_item *it, io_out *out,
                          sl_err *err)
{
    const struct tensor *t = io_find(p->src, it->src);
    if (it->from == QUANT_RAW && it->store != t->type) return copy_table(p, it, out, err);
    for (uint64_t at = 0; at < t->n_bytes; at += CHUNK_BYTES) {
        uint64_t n = BASE_MIN(t->n_bytes - at, (uint64_t)CHUNK_BYTES);
        SL_TRY(io_out_write(out, (const uint8_t *)t->data + at, n, err));
        io_drop(p->src, (const uint8_t *)t->data + at, n);
    }
    return SL_OK;
}

/* Buffers that an item needs at once, against opts.memory. */
static sl_status check_memory(const struct quant_plan *p, const struct quant_item *it, int unit,
                              int n_worker, sl_err *err)
{
    uint64_t out = quant_item_bytes(p, it),
             need = (uint64_t)n_worker * (uint64_t)unit * (uint64_t)it->cols * 10;
    if (is_plain(p, it)) out = BASE_MIN(out, (uint64_t)CHUNK_BYTES);
    need += out + 20 * (uint64_t)it->rows;
    if (it->from != QUANT_ROWS && it->from != QUANT_FUSED)
        need += 4 * (uint64_t)(it->rows * it->cols);
    if (p->o->memory > 0 && need > (uint64_t)p->o->memory)
        return SL_FAIL(
            err, LIMIT, "%s: tensor %.80s needs %llu bytes of buffers, --memory allows %lld",
            io_path(p->src), it->name, (unsigned long long)need, (long long)p->o->memory);
    return SL_OK;
}

/* Nothing is changed, so the bytes can stay (GGUF's quantised types can not even be written
 * otherwise). */
static bool unchanged(const struct quant_plan *p, const struct quant_item *it,
                      const struct quant_rows *r)
{
    const struct tensor *t = io_find(p->src, it->src);
    bool folded = false;
    for (int i = 0; i < r->n_part; i++)
        folded = folded || r->col[i] || r->row[i];
    folded = folded || it->move || it->decay || it->add != 0.0f;
    return t && r->n == 1 && !r->dense && !folded && !it->perm && it->sub < 0 &&
           r->w[0].scheme == TENSOR_SCHEME_PLAIN && !t->row_bytes && !t->col_bytes &&
           r->w[0].tensor_scale == 1.0f && !r->w[0].part_scale && t->type == it->store;
}

sl_status quant_encode(const struct quant_plan *p, const struct quant_item *it, par_team *team,
                       io_out *out, struct quant_error *e, sl_err *err)
{
    struct quant_rows src;
    struct arena a;
    *e = (struct quant_error){.bytes = (int64_t)quant_item_bytes(p, it)};
    if (it->from == QUANT_RAW) return copy_raw(p, it, out, err);
    struct job j = {.p = p,
                    .it = it,
                    .src = &src,
                    .unit = it->type == QUANT_AWQ   ? 8
                            : it->type == QUANT_FP8 ? 128
                                                    : 1};
    SL_TRY(quant_rows_open(p, it, &src, err));
    sl_status st = SL_OK;
    mem_arena_init(&a, MEM_SCRATCH, 0);
    if (it->type == QUANT_AS_IS && unchanged(p, it, &src)) {
        st = copy_raw(p, it, out, err);
    } else if (is_plain(p, it) && !quant_can_round(it->store)) {
        st = SL_FAIL(err, UNSUPPORTED,
                     "%s: tensor %.80s: values change, and %s can not be written: give its class "
                     "another type",
                     io_path(p->src), it->src, tensor_dtype(it->store)->text);
    } else {
        st = check_memory(p, it, j.unit, par_size(team), err);
        if (!st) st = open_scratch(&j, par_size(team), &a, err);
        if (!st)
            st = is_plain(p, it) ? encode_plain(&j, team, out, &a, e, err)
                                 : encode_parts(&j, team, out, &a, e, err);
    }
    mem_arena_fini(&a);
    quant_rows_close(&src);
    return st;
}
