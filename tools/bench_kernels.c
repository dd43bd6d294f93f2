/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench --kernels: products alone, through the device as the engine calls them, with weights
 * far bigger than the caches. Every figure stands beside what the machine can do in the same
 * seconds. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fp.h"
#include "base/rng.h"
#include "bench.h"
#include "chart.h"
#include "dev/dev.h"
#include "kern/mm.h"
#include "os/os.h"
#include "place.h"

#define COLS 4096
#define ROWS 2048
#define TOTAL_BYTES ((int64_t)128 << 20) /* of packed weights that one pass reads */
#define PASS_NS ((int64_t)150000000)
#define MAT_MAX 64
#define ROW_MAX 1024

static const int n_cols[] = {1, 2, 4, 8, 16, 32, 64, 512};
#define N_TOK_MAX 512

struct kernel {
    dev *d;
    dev_mat *mat[MAT_MAX];
    int n_mat;
    dev_act *act;
    float *x, *y;
    double gbps, gops; /* of the machine */
};
struct result {
    char type[24], use[12];
    int n_tok;
    double gbps, gops, probe_gbps, probe_gops;
};

/* Where a block has its scales; f16 but for MXFP4 (an exponent) and NVFP4 (four e4m3). */
static const struct {
    enum tensor_dtype type;
    int n, at[4];
    int bytes;
    uint16_t value;
} scales[] = {
    {TENSOR_Q4_0, 1, {0}, 2, 0x1c00},    {TENSOR_Q4_1, 2, {0, 2}, 2, 0x1c00},
    {TENSOR_Q5_0, 1, {0}, 2, 0x1c00},    {TENSOR_Q5_1, 2, {0, 2}, 2, 0x1c00},
    {TENSOR_Q8_0, 1, {0}, 2, 0x1c00},    {TENSOR_Q2_K, 2, {80, 82}, 2, 0x1c00},
    {TENSOR_Q3_K, 1, {108}, 2, 0x1c00},  {TENSOR_Q4_K, 2, {0, 2}, 2, 0x1c00},
    {TENSOR_Q5_K, 2, {0, 2}, 2, 0x1c00}, {TENSOR_Q6_K, 1, {208}, 2, 0x1c00},
    {TENSOR_IQ4_NL, 1, {0}, 2, 0x1c00},  {TENSOR_IQ4_XS, 1, {0}, 2, 0x1c00},
    {TENSOR_MXFP4, 1, {0}, 1, 120},      {TENSOR_NVFP4, 4, {0, 1, 2, 3}, 1, 0x30},
};

/* Stored bytes of random weights near 1. False where this program does not know how to make them.
 */
static bool fill(enum tensor_dtype type, uint8_t *p, uint64_t n)
{
    const struct tensor_dtype_info *d = tensor_dtype(type);
    uint64_t rng = 7;
    if (tensor_can_quant(type)) {
        static float f[256];
        for (uint64_t at = 0; at < n; at += (uint64_t)d->bytes) {
            for (int i = 0; i < d->block; i++)
                f[i] = (float)((double)(rng_next(&rng) >> 11) * 0x1p-52 - 1.0);
            tensor_quant(type, f, d->block, p + at);
        }
        return true;
    }
    for (int s = 0; s < BASE_COUNT_OF(scales); s++) {
        if (scales[s].type != type) continue;
        for (uint64_t i = 0; i < n; i++)
            p[i] = (uint8_t)(rng_next(&rng) >> 32);
        for (uint64_t at = 0; at < n; at += (uint64_t)d->bytes)
            for (int k = 0; k < scales[s].n; k++)
                for (int b = 0; b < scales[s].bytes; b++)
                    p[at + (uint64_t)scales[s].at[k] + (uint64_t)b] =
                        (uint8_t)(scales[s].value >> (8 * b));
        return true;
    }
    return false;
}

/* A device of its own for every type: its memory goes with it. */
static sl_status open_kernel(struct kernel *k, const struct opt_common *o, enum tensor_dtype type,
                             enum dev_use use, sl_err *err)
{
    void *stored = NULL, *host = NULL, *p = NULL;
    uint64_t row = 0;
    struct dev_opts dopts = {
        .n_thread = o->threads, .acts = (enum dev_acts)o->acts, .no_hugepages = o->no_hugepages};
    struct dev_limits max = {.n_tok = N_TOK_MAX, .n_seq = 1, .n_ctx = 1};
    char home[128];
    memset(k, 0, sizeof *k);
    SL_TRY(place_units(o, &dopts.no_units, err));
    SL_TRY(dev_open(place_device(o, home, sizeof home), &dopts, &k->d, err));
    if (!tensor_bytes(type, COLS, &row)) return SL_FAIL(err, INTERNAL, "rows too long");
    SL_TRY(mem_alloc(MEM_SCRATCH, row * ROWS, &stored, err));
    sl_status st = fill(type, stored, row * ROWS)
                       ? SL_OK
                       : SL_FAIL(err, UNSUPPORTED, "no random weights of that type are made");
    int64_t bytes = 0;
    for (k->n_mat = 0; !st && k->n_mat < MAT_MAX && bytes < TOTAL_BYTES; k->n_mat++) {
        struct weight w = {.name = tensor_dtype(type)->text,
                           .type = type,
                           .rows = ROWS,
                           .cols = COLS,
                           .data = stored,
                           .row_bytes = row,
                           .tensor_scale = 1.0f};
        st = dev_mat_load(k->d, &(struct dev_weights){.first = &w, .n = 1, .use = use},
                          &k->mat[k->n_mat], err);
        if (!st) bytes += dev_mat_bytes(k->mat[k->n_mat]);
    }
    mem_free(stored);
    SL_TRY(st);
    SL_TRY(dev_act_open(
        k->d, &(struct dev_inputs){(const dev_mat *const *)k->mat, k->n_mat, COLS, N_TOK_MAX},
        &k->act, err));
    SL_TRY(dev_alloc(k->d, MEM_SCRATCH, (int64_t)N_TOK_MAX * COLS * 4, &p, err));
    k->x = p;
    SL_TRY(dev_alloc(k->d, MEM_SCRATCH, (int64_t)DEV_MATMUL_MAX * N_TOK_MAX * ROWS * 4, &p, err));
    k->y = p;
    SL_TRY(mem_alloc(MEM_SCRATCH, (size_t)N_TOK_MAX * COLS * 4, &host, err));
    for (int64_t i = 0; i < (int64_t)N_TOK_MAX * COLS; i++)
        ((float *)host)[i] = (float)(i % 251) * 0.01f - 1.25f;
    st = dev_put(k->d, k->x, host, (int64_t)N_TOK_MAX * COLS * 4, err);
    mem_free(host);
    SL_TRY(st);
    return dev_reserve(k->d, NULL, 0, &max, err);
}

/* Columns n_tok times all matrices; seconds. */
static sl_status pass(const struct kernel *k, const struct dev_step *b, int n_mat, double *s,
                      sl_err *err)
{
    int64_t t0 = clock_now_ns();
    for (int i = 0; i < n_mat; i += DEV_MATMUL_MAX) {
        struct dev_matmul m = {
            .act = k->act, .n_row = b->n_tok, .n_mat = BASE_MIN(DEV_MATMUL_MAX, n_mat - i)};
        for (int j = 0; j < m.n_mat; j++) {
            m.w[j] = k->mat[i + j];
            m.y[j] = k->y + (int64_t)j * N_TOK_MAX * ROWS;
        }
        dev_matmul(k->d, b, &m);
    }
    SL_TRY(dev_sync(k->d, err));
    *s = (double)(clock_now_ns() - t0) * 1e-9;
    return SL_OK;
}

static sl_status time_one(struct kernel *k, int n_tok, struct result *r, sl_err *err)
{
    static int32_t zero[N_TOK_MAX];
    int32_t tok0[2] = {0, n_tok};
    struct dev_step b = {.n_tok = n_tok, .n_seq = 1, .ids = zero, .pos = zero, .seq_tok0 = tok0};
    struct dev_prep prep = {.x = k->x, .n = COLS, .n_row = n_tok, .act = k->act};
    int n_mat = n_tok > 64 ? BASE_MIN(4, k->n_mat) : k->n_mat;
    double best = INFINITY, bytes = 0, s;
    dev_step_begin(k->d, NULL, &b);
    dev_prep(k->d, &b, &prep);
    SL_TRY(pass(k, &b, n_mat, &s, err));
    int64_t begin = clock_now_ns();
    for (int i = 0; (i < 3 || clock_now_ns() - begin < PASS_NS) && !cmd_stop; i++) {
        SL_TRY(pass(k, &b, n_mat, &s, err));
        best = fmin(best, s);
    }
    for (int i = 0; i < n_mat; i++)
        bytes += (double)dev_mat_bytes(k->mat[i]);
    r->n_tok = n_tok;
    r->gbps = bytes / best * 1e-9;
    r->gops = 2.0 * n_mat * ROWS * COLS * n_tok / best * 1e-9;
    r->probe_gbps = k->gbps;
    r->probe_gops = k->gops;
    return SL_OK;
}

static void print_result(const struct result *r)
{
    printf("%-8s %-8s %4d column%s %7.1f GB/s (%3.0f %% of %.1f) %8.0f Gop/s (%3.0f %% of %.0f)\n",
           r->type, r->use, r->n_tok, r->n_tok == 1 ? " " : "s", r->gbps,
           100 * r->gbps / r->probe_gbps, r->probe_gbps, r->gops, 100 * r->gops / r->probe_gops,
           r->probe_gops);
    fflush(stdout);
}

static sl_status time_type(const struct opt_common *o, enum tensor_dtype type, enum dev_use use,
                           struct result *r, int *n, sl_err *err)
{
    struct kernel k;
    sl_status st = open_kernel(&k, o, type, use, err);
    if (!st) {
        k.gbps = dev_probe_read_gbps(k.d, 100);
        k.gops = dev_probe_int8_gops(k.d, 60);
    }
    for (int i = 0; !st && i < BASE_COUNT_OF(n_cols) && *n < ROW_MAX; i++) {
        struct result *q = &r[(*n)++];
        snprintf(q->type, sizeof q->type, "%s", tensor_dtype(type)->text);
        snprintf(q->use, sizeof q->use, "%s", use == DEV_USE_EXPERTS ? "experts" : "dense");
        st = time_one(&k, n_cols[i], q, err);
        if (!st && cmd_stop)
            st = SL_FAIL(err, CANCELLED, "cancelled");
        else if (!st && !o->json)
            print_result(q);
    }
    dev_close(k.d);
    return st;
}

/* ---- the files ---- */
static sl_status print_json(const struct result *r, int n, sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_arr(&w);
    for (int i = 0; i < n; i++) {
        const struct {
            const char *key;
            double v;
        } num[] = {{"gbps", r[i].gbps},
                   {"probe_gbps", r[i].probe_gbps},
                   {"gops", r[i].gops},
                   {"probe_gops", r[i].probe_gops}};
        text_jw_obj(&w);
        text_jw_key(&w, "type");
        text_jw_strz(&w, r[i].type);
        text_jw_key(&w, "use");
        text_jw_strz(&w, r[i].use);
        text_jw_key(&w, "columns");
        text_jw_int(&w, r[i].n_tok);
        for (int j = 0; j < BASE_COUNT_OF(num); j++) {
            text_jw_key(&w, num[j].key);
            text_jw_real(&w, num[j].v, 6);
        }
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    sl_status st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

static sl_status write_files(const struct bench_files *f, const struct result *r, int n,
                             sl_err *err)
{
    static struct chart_bar bar[ROW_MAX];
    struct str csv;
    sl_status st = SL_OK;
    str_init(&csv, MEM_MISC, 0);
    str_puts(&csv, "type,use,columns,gbps,probe_gbps,gops,probe_gops\n");
    for (int i = 0; i < n; i++) {
        double mem = 100 * r[i].gbps / r[i].probe_gbps, ops = 100 * r[i].gops / r[i].probe_gops;
        str_printf(&csv, "%s,%s,%d,%.6g,%.6g,%.6g,%.6g\n", r[i].type, r[i].use, r[i].n_tok,
                   r[i].gbps, r[i].probe_gbps, r[i].gops, r[i].probe_gops);
        bar[i].v = fmax(mem, ops);
        snprintf(bar[i].label, sizeof bar[i].label, "%.23s, %.11s, %d columns", r[i].type, r[i].use,
                 r[i].n_tok);
        snprintf(bar[i].note, sizeof bar[i].note, "%.0f %% of %s (%.1f GB/s, %.0f Gop/s)", bar[i].v,
                 mem > ops ? "read bandwidth" : "int8 peak", r[i].gbps, r[i].gops);
    }
    if (f->csv) st = str_status(&csv, err);
    if (!st && f->csv) st = os_write_file(f->csv, csv.p, csv.n, err);
    if (!st && f->svg)
        st = chart_write(f->svg, "Matrix kernels, percent of the nearer limit", bar, n, err);
    str_fini(&csv);
    return st;
}

static bool has_kernel(enum tensor_dtype type)
{
    struct weight w = {.name = "", .type = type, .rows = ROWS, .cols = COLS, .tensor_scale = 1.0f};
    uint8_t block[4096];
    int fmt;
    return tensor_dtype_is_weight(type) && tensor_dtype(type)->bytes <= (int)sizeof block &&
           kern_mm_fmt(&w, &fmt, NULL) == SL_OK &&
           fill(type, block, (uint64_t)tensor_dtype(type)->bytes);
}

/* Letters of either case. */
static bool same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a | 32) != (*b | 32)) return false;
    return *a == *b;
}

sl_status bench_kernels(const struct opt_common *o, const char *type, const struct bench_files *f,
                        sl_err *err)
{
    static struct result r[ROW_MAX];
    int n = 0, n_type = 0;
    sl_status st = SL_OK;
    for (int t = 0; t < TENSOR_N_DTYPE && !st; t++) {
        enum tensor_dtype dt = (enum tensor_dtype)t;
        if (!has_kernel(dt) || (strcmp(type, "all") != 0 && !same(type, tensor_dtype(dt)->text)))
            continue;
        n_type++;
        st = time_type(o, dt, DEV_USE_EXPERTS, r, &n, err);
        if (!st) st = time_type(o, dt, DEV_USE_MATMUL, r, &n, err);
    }
    if (!st && n_type == 0) {
        char list[200] = "all";
        for (int t = 0; t < TENSOR_N_DTYPE; t++)
            if (has_kernel((enum tensor_dtype)t))
                snprintf(list + strlen(list), sizeof list - strlen(list), " %s",
                         tensor_dtype((enum tensor_dtype)t)->text);
        return SL_FAIL(err, REQUEST, "--kernels: %.24s: there are %s", type, list);
    }
    if (!st && o->json) st = print_json(r, n, err);
    return st ? st : write_files(f, r, n, err);
}
