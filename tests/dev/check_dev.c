/* SPDX-License-Identifier: Apache-2.0 */
/* check_dev [--seed N] [--repeat N] [--acts auto|int8|bf16|f32] [--kv bf16|f16|q8|f32] [--other]
 * [PART]...: all parts, or those that have one of the texts in their name.
 * SL_CPU caps the ISA. --other: nothing where that caps nothing. */
#include "check.h"

#include "base/cpu.h"

struct check g = {.seed = 1, .repeat = 1, .acts = -1, .kv = -1};

static void *blocks[1 << 17];
static int n_block;

void *get_mem(size_t n)
{
    void *p = calloc(1, n + 64);
    if (!p || n_block == 1 << 17) exit(1);
    return blocks[n_block++] = p;
}

void free_all(void)
{
    while (n_block)
        free(blocks[--n_block]);
}

int rand_int(int lo, int hi)
{
    return lo + (int)(rng_next(&g.rng) % (uint64_t)(hi - lo + 1));
}

float rand_f(void)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += (double)(rng_next(&g.rng) >> 40) * 0x1p-24 - 0.5;
    return (float)(s * 1.7);
}

void shuffled(int32_t *perm, int n)
{
    for (int i = 0; i < n; i++) {
        int j = rand_int(0, i);
        perm[i] = perm[j];
        perm[j] = i;
    }
}

void reserve(dev *d, int n_tok, const struct dev_op *op, int n_op)
{
    struct dev_limits max = {.n_tok = n_tok, .n_seq = n_tok, .n_ctx = 64};
    MUST(dev_reserve(d, op, n_op, &max, &err_));
}

float *rand_array(int64_t n)
{
    float *p = get_mem(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        p[i] = rand_f();
    return p;
}

void compare(const char *what, const float *got, const double *want, const double *tol, int64_t n)
{
    g.n_checked++;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tol[i])) {
            FAIL("%s [%lld of %lld]: got %.9g, want %.9g, tolerance %.3g (seed %llu)", what,
                 (long long)i, (long long)n, (double)got[i], want[i], tol[i],
                 (unsigned long long)g.seed);
            return;
        }
}

void same_bits(const char *what, const float *a, const float *b, int64_t n)
{
    g.n_checked++;
    for (int64_t i = 0; i < n; i++)
        if (fp_to_bits(a[i]) != fp_to_bits(b[i])) {
            FAIL("%s [%lld of %lld]: %.9g and %.9g are not the same bits (seed %llu)", what,
                 (long long)i, (long long)n, (double)a[i], (double)b[i],
                 (unsigned long long)g.seed);
            return;
        }
}

struct weight rand_weight(enum tensor_dtype type, int rows, int cols)
{
    uint64_t row_bytes = 0;
    if (!tensor_bytes(type, (uint64_t)cols, &row_bytes)) exit(1);
    float *row = get_mem(sizeof(float) * (size_t)cols);
    uint8_t *data = get_mem(row_bytes * (size_t)rows);
    float f = 1.0f / sqrtf((float)cols);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < cols; i++)
            row[i] = rand_f() * f;
        tensor_quant(type, row, cols, data + (size_t)r * row_bytes);
    }
    return (struct weight){.name = "w",
                           .type = type,
                           .rows = rows,
                           .cols = cols,
                           .data = data,
                           .row_bytes = row_bytes,
                           .tensor_scale = 1.0f};
}

dev_mat *expert_stack(dev *d, const struct weight *a, const struct weight *b, const int32_t *expert,
                      int n)
{
    struct weight w[2][STACK_MAX];
    dev_mat *m = NULL;
    for (int i = 0; i < n; i++) {
        w[0][i] = a[expert[i]];
        if (b) w[1][i] = b[expert[i]];
    }
    MUST(dev_mat_load(d,
                      &(struct dev_weights){
                          .first = w[0], .second = b ? w[1] : NULL, .n = n, .use = DEV_USE_EXPERTS},
                      &m, &err_));
    return m;
}

void end_with(const dev_mat *m, struct dev_epilogue e)
{
    MUST(dev_mat_end((dev_mat *)(uintptr_t)m, &e, &err_));
}

double *weight_numbers(const struct weight *w)
{
    double *p = get_mem(sizeof(double) * (size_t)(w->rows * w->cols));
    float *row = get_mem(sizeof(float) * (size_t)w->cols);
    for (int64_t r = 0; r < w->rows; r++) {
        weight_dequant(w, r, 0, w->cols, row);
        for (int64_t i = 0; i < w->cols; i++)
            p[r * w->cols + i] = (double)row[i]; /* tensor_scale is in it */
    }
    return p;
}

struct batch make_batch(int n_seq, const int *pos0, const int *n_new, int blk_tok, int32_t *table,
                        int ld)
{
    int n = 0, at = 0;
    for (int s = 0; s < n_seq; s++)
        n += n_new[s];
    int32_t *ids = get_mem(4 * (size_t)n), *pos = get_mem(4 * (size_t)n),
            *seq = get_mem(4 * (size_t)n);
    int32_t *tok0 = get_mem(4 * (size_t)(n_seq + 1));
    for (int s = 0; s < n_seq; s++) {
        tok0[s] = at;
        for (int i = 0; i < n_new[s]; i++, at++) {
            ids[at] = rand_int(0, 9);
            pos[at] = pos0[s] + i;
            seq[at] = s;
        }
    }
    tok0[n_seq] = n;
    return (struct batch){.b = {.n_tok = n,
                                .n_seq = n_seq,
                                .ids = ids,
                                .pos = pos,
                                .seq_tok0 = tok0,
                                .blk = {table},
                                .ld_blk = ld},
                          .seq = seq,
                          .blk_tok = blk_tok};
}

/* The place of name in a list of names with blanks between them. */
static int named(const char *name, const char *list)
{
    for (int i = 0; *list; i++) {
        size_t n = strcspn(list, " ");
        if (strlen(name) == n && strncmp(name, list, n) == 0) return i;
        list += n + strspn(list + n, " ");
    }
    fprintf(stderr, "check_dev: %s: unknown\n", name);
    exit(2);
}

static bool is_named(const char *name, char **parts, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

int main(int argc, char **argv)
{
    bool other = false;
    int n_part = 0; /* texts, which are put first in argv */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            g.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc)
            g.repeat = atoi(argv[++i]);
        else if (strcmp(argv[i], "--other") == 0)
            other = true;
        else if (strcmp(argv[i], "--acts") == 0 && i + 1 < argc)
            g.acts = named(argv[++i], "auto int8 bf16 f32"); /* as enum dev_acts */
        else if (strcmp(argv[i], "--kv") == 0 && i + 1 < argc)
            g.kv = named(argv[++i], "bf16 f16 q8 f32"); /* as enum dev_kv_type */
        else
            argv[n_part++] = argv[i];
    }
    if (other && cpu_isa_mask() == cpu_isa_native()) {
        printf("check_dev: %s is this CPU's best: nothing but what runs without SL_CPU\n",
               cpu_isa_best(cpu_isa_mask()));
        return 0;
    }
    static const struct {
        const char *name;
        void (*fn)(void);
    } all[] = {{"ops", check_ops},       {"attn", check_attn},     {"mla", check_mla},
               {"bits", check_bits},     {"prog", check_prog},     {"slots", check_slots},
               {"spread", check_spread}, {"shares", check_shares}, {"late", check_late},
               {"best", check_best},     {"faults", check_faults}, {"delta", check_delta},
               {"index", check_index},   {"blocks", check_blocks}, {"streams", check_streams},
               {"ckv", check_ckv},       {"pools", check_pools},   {"route", check_route}};
    for (int r = 0; r < g.repeat; r++, g.seed++) {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            if (n_part && !is_named(all[i].name, argv, n_part)) continue;
            int failed = g.n_fail, checked = g.n_checked;
            g.rng = g.seed * 1000003 + i;
            all[i].fn();
            free_all();
            printf("%-8s %6d checks, %d failed\n", all[i].name, g.n_checked - checked,
                   g.n_fail - failed);
        }
    }
    printf("check_dev: %d checks, %d failed\n", g.n_checked, g.n_fail);
    return g.n_fail != 0 || g.n_checked == 0;
}
