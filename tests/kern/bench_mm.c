/* SPDX-License-Identifier: Apache-2.0 */
/* check_kern --bench: products against the read bandwidth (few columns, matrices far bigger than
 * the caches) and the integer peak (512 columns), each beside its probe, interleaved; medians.
 * SL_CPU caps the ISA. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "check.h"

#define MAX_THREAD 64
#define REPEAT 7

/* With one thread its own time, so that other processes on the core do not count; else the clock.
 */
static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static void *huge(size_t n)
{
    size_t a = (size_t)2 << 20;
    n = (n + a - 1) / a * a;
    uint8_t *p = mmap(NULL, n + a, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("bench: mmap");
        exit(1);
    }
    p = (uint8_t *)(((uintptr_t)p + a - 1) / a * a);
    madvise(p, n, MADV_HUGEPAGE);
    return p;
}

struct job {
    struct mm_mat m;
    struct mm_act_buf x;
    enum mm_act form;
    int n_tok, n_thread;
    float *y;
    int64_t ldy;
    uint8_t *scratch[MAX_THREAD];
    volatile uint64_t sink[MAX_THREAD * 8];
};

/* ---- probes ---- */

typedef void (*work_fn)(struct job *j, int t);

static void read_probe(struct job *j, int t)
{
    size_t n = j->m.tile_bytes * (size_t)j->m.n_tile / (size_t)j->n_thread / 256 * 256;
    const uint8_t *p = j->m.data + n * (size_t)t;
    uint64_t s = 0;
#if defined(__x86_64__)
    for (size_t i = 0; i < n; i += 256)
        __asm__ volatile("vmovdqa (%0), %%ymm0; vmovdqa 32(%0), %%ymm1; vmovdqa 64(%0), %%ymm2; "
                         "vmovdqa 96(%0), %%ymm3;"
                         "vmovdqa 128(%0), %%ymm4; vmovdqa 160(%0), %%ymm5; vmovdqa 192(%0), "
                         "%%ymm6; vmovdqa 224(%0), %%ymm7"
                         :
                         : "r"(p + i)
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
#else
    for (size_t i = 0; i < n; i += 64)
        s += *(const uint64_t *)(const void *)(p + i);
#endif
    j->sink[t * 8] = s;
}

#if defined(__x86_64__)
#define R12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define PEAK_ITER 400000
static void vnni_probe(struct job *j, int t)
{
#define OP(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #i ";"
    for (int i = 0; i < PEAK_ITER; i++)
        __asm__ volatile(R12(OP)::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9", "xmm10", "xmm11");
#undef OP
    (void)j, (void)t;
}
static void maddubs_probe(struct job *j, int t)
{
#define OP(i)                                                                                      \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm13; vpmaddwd %%ymm12, %%ymm13, %%ymm13; vpaddd %%ymm13, "   \
    "%%ymm" #i ", %%ymm" #i ";"
    for (int i = 0; i < PEAK_ITER; i++)
        __asm__ volatile(R12(OP)::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9", "xmm10", "xmm11", "xmm13");
#undef OP
    (void)j, (void)t;
}
#endif

/* ---- threads ---- */

static struct {
    pthread_barrier_t go, done;
    work_fn fn;
    struct job *job;
    int quit;
} team;

static void pin(int cpu)
{
    cpu_set_t s;
    CPU_ZERO(&s);
    CPU_SET(cpu, &s);
    sched_setaffinity(0, sizeof(s), &s);
}

static void *worker(void *arg)
{
    int t = (int)(intptr_t)arg;
    pin(t);
    for (;;) {
        pthread_barrier_wait(&team.go);
        if (team.quit) return NULL;
        team.fn(team.job, t);
        pthread_barrier_wait(&team.done);
    }
}

static double timed(work_fn fn, struct job *j)
{
    team.fn = fn;
    team.job = j;
    double t = now();
    pthread_barrier_wait(&team.go);
    fn(j, 0);
    pthread_barrier_wait(&team.done);
    return now() - t;
}

/* ---- the products ---- */

static void product(struct job *j, int t)
{
    int t0 = (int)((int64_t)j->m.n_tile * t / j->n_thread),
        t1 = (int)((int64_t)j->m.n_tile * (t + 1) / j->n_thread);
    kern_mm(&j->m, t0, t1 - t0, &j->x, j->form, NULL, j->n_tok, j->y + 16 * t0, j->ldy, NULL,
            0, j->scratch[t]);
}

static void touch(struct job *j, int t)
{
    size_t n = j->m.tile_bytes * (size_t)j->m.n_tile / (size_t)j->n_thread / 8;
    uint64_t s = (uint64_t)t + 1, *p = (uint64_t *)(void *)j->m.data + n * (size_t)t;
    for (size_t i = 0; i < n; i++)
        p[i] = rng_next(&s) & 0xbfffbfffbfffbfffull; /* no f16 NaN */
}

static void open_job(struct job *j, int fmt, int n_row, int n_col, int n_tok_max, int n_thread)
{
    size_t bytes;
    unsigned forms = 1u << MM_ACT_F32 | 1u << MM_ACT_BF16 | 1u << MM_ACT_INT8 | 1u << MM_ACT_INT8X |
                     1u << MM_ACT_INT15;
    memset(j, 0, sizeof(*j));
    j->n_thread = n_thread;
    kern_mm_layout(fmt, n_row, n_col, 0, &j->m, &bytes);
    j->m.data = huge(bytes);
    timed(touch, j);
    kern_mm_act_init(&j->x, forms, n_col, n_tok_max,
                     huge(kern_mm_act_bytes(forms, n_col, n_tok_max)));
    uint64_t s = 5;
    float *x = huge((size_t)n_col * sizeof(float));
    for (int t = 0; t < n_tok_max; t++) {
        for (int k = 0; k < n_col; k++)
            x[k] = (float)(rng_next(&s) >> 40) * 0x1p-23f - 1.0f;
        for (int k = 0; k < n_col;
             k += 32 * 9) /* outliers where models have them: in the same places */
            x[k] *= 10.0f;
        kern_mm_prep(&j->x, t, x);
    }
    j->ldy = 16 * (int64_t)j->m.n_tile;
    j->y = huge((size_t)j->ldy * (size_t)n_tok_max * sizeof(float));
    for (int t = 0; t < n_thread; t++)
        j->scratch[t] = huge(kern_mm_scratch_bytes(n_col));
}

static const char *const form_names[] = {"f32", "bf16", "int8", "int8x", "int15"};

static void bench_small(int fmt, int n_thread)
{
    static const struct {
        int n_tok;
        enum mm_act form;
    } runs[] = {{1, MM_ACT_INT8},  {1, MM_ACT_INT8X}, {1, MM_ACT_INT15}, {2, MM_ACT_INT8},
                {4, MM_ACT_INT8},  {4, MM_ACT_INT8X}, {8, MM_ACT_INT8},  {8, MM_ACT_INT8X},
                {16, MM_ACT_INT8}, {32, MM_ACT_INT8X}};
    struct job j;
    const int n_col = 4096, n_run = fmt < MM_N_CODE ? 10 : 1;
    int n_row =
        (int)(((int64_t)384 << 20) /
              (kern_mm_fmts[fmt].blk_bytes * (int64_t)(n_col / kern_mm_fmts[fmt].blk_k)) * 16);
    open_job(&j, fmt, n_row, n_col, 32, n_thread);
    double bytes = (double)j.m.tile_bytes * j.m.n_tile, rd[REPEAT * 10], v[10][REPEAT];
    int n_rd = 0;
    for (int i = -1; i < REPEAT; i++)
        for (int r = 0; r < n_run; r++) {
            double t = timed(read_probe, &j);
            j.n_tok = runs[r].n_tok;
            j.form = n_run == 1 ? MM_ACT_F32 : runs[r].form;
            double u = timed(product, &j);
            if (i < 0) continue;
            rd[n_rd++] = bytes / t / 1e9;
            v[r][i] = t / u;
        }
    double read = median(rd, n_rd);
    for (int r = 0; r < n_run; r++) {
        double share = median(v[r], REPEAT), gb = share * read;
        double ops = gb * 1e9 / bytes * 2.0 * n_row * n_col * runs[r].n_tok / 1e9;
        printf("%-7s %-5s M=%-3d %7.1f GB/s  %5.1f %% of read %.1f  %7.0f Gop/s\n",
               kern_mm_fmt_name(fmt), n_run == 1 ? "f32" : form_names[runs[r].form], runs[r].n_tok,
               gb, 100 * share, read, ops);
    }
    fflush(stdout);
    munmap(j.m.data, (size_t)bytes);
}

/* The same with one tile that stays in the L1 cache: what the arithmetic alone can do. */
static void bench_cached(int fmt, int n_thread)
{
    static const int toks[] = {1, 2, 4, 8, 16, 32, 64};
    struct job j;
    open_job(&j, fmt, 4096 * n_thread, 1024, 64, n_thread);
    j.m.tile_bytes = 0; /* every tile is the first one */
    j.form = fmt < MM_N_CODE ? MM_ACT_INT8 : fmt == MM_bf16 ? MM_ACT_BF16 : MM_ACT_F32;
    printf("%-7s %-5s cached, Gop/s:", kern_mm_fmt_name(fmt), form_names[j.form]);
    for (int r = 0; r < 7; r++) {
        double best = 0;
        j.n_tok = toks[r];
        for (int i = 0; i < 20; i++) {
            double ops = 2 * 2.0 * j.m.n_row * j.m.n_col * toks[r], t = 0;
            for (int k = 0; k < 2; k++)
                t += timed(product, &j);
            best = ops / t > best ? ops / t : best;
        }
        printf("  M=%d %.0f", toks[r], best / 1e9);
    }
    printf("\n");
}

/* The integer formats of folders are packed from codes with scales beside them: any bytes will do
 * as those. */
static void as_group(int fmt, struct weight *w, const uint8_t *scales)
{
    if (tensor_dtype_is_weight(kern_mm_fmts[fmt].type)) return;
    int four = kern_mm_fmts[fmt].type == TENSOR_U8;
    if (four) w->row_bytes /= 2;
    w->scheme = TENSOR_SCHEME_GROUP;
    w->group = (struct weight_group){.codes = four ? WEIGHT_NIB : WEIGHT_I8,
                                     .size = 128,
                                     .n_group = w->cols / 128,
                                     .n_row = w->rows,
                                     .scale = {scales, TENSOR_F16, w->cols / 128, 1}};
}

/* Packing, in stored bytes per second of one thread, and the reference decoding of the f32 mode. */
static void bench_pack(int fmt)
{
    struct mm_mat m;
    size_t n;
    const int n_row = 2048, n_col = 4096;
    const struct tensor_dtype_info *d = tensor_dtype(kern_mm_fmts[fmt].type);
    struct weight w = {.name = "w",
                       .type = kern_mm_fmts[fmt].type,
                       .rows = n_row,
                       .cols = n_col,
                       .tensor_scale = 1.0f};
    w.row_bytes = (uint64_t)(n_col / d->block * d->bytes);
    uint8_t *src = huge(w.row_bytes * (size_t)n_row);
    float *row = huge(16 * (size_t)n_col * sizeof(float));
    memset(src, 0x35, w.row_bytes * (size_t)n_row);
    w.data = src;
    as_group(fmt, &w, src);
    kern_mm_layout(fmt, n_row, n_col, 0, &m, &n);
    m.data = huge(n);
    double pack[REPEAT], unpack[REPEAT];
    for (int i = -1; i < REPEAT; i++) {
        double t0 = now();
        for (int t = 0; t < m.n_tile; t++)
            kern_mm_pack_tile(&m, &w, 0, t);
        double t1 = now();
        for (int t = 0; t < m.n_tile; t++)
            kern_mm_unpack_tile(&m, t, row, n_col);
        if (i < 0) continue;
        pack[i] = (double)w.row_bytes * n_row / (t1 - t0) / 1e9;
        unpack[i] = (double)n_row * n_col / (now() - t1) / 1e9;
    }
    double pack_mid = median(pack, REPEAT), unpack_mid = median(unpack, REPEAT); /* they sort */
    printf("%-7s pack %.2f GB/s, best %.2f; unpack %.2f G weights/s, best %.2f (one thread)\n",
           kern_mm_fmt_name(fmt), pack_mid, pack[REPEAT - 1], unpack_mid, unpack[REPEAT - 1]);
    munmap(src, (size_t)(n_col / d->block * d->bytes) * (size_t)n_row);
    munmap(m.data, n);
}

static void bench_big(int fmt, int n_thread)
{
    struct job j;
    const int n = 4096, m = 512;
    open_job(&j, fmt, n, n, m, n_thread);
    double peak_ops = 0;
    work_fn probe = NULL;
#if defined(__x86_64__)
    int vnni = cpu_has(cpu_isa_mask(), CPU_ISA_avx512vnni);
    probe = vnni ? vnni_probe : cpu_has(cpu_isa_mask(), CPU_ISA_avx2) ? maddubs_probe : NULL;
    peak_ops = (vnni ? 128.0 : 64.0) * 12.0 * PEAK_ITER * n_thread;
#endif
    for (int form = fmt < MM_N_CODE ? MM_ACT_INT8 : MM_ACT_F32;
         form < (fmt < MM_N_CODE ? MM_N_ACT : MM_ACT_INT8); form++) {
        double ops[REPEAT], share[REPEAT];
        j.n_tok = m;
        j.form = (enum mm_act)form;
        timed(product, &j);
        for (int i = 0; i < REPEAT; i++) {
            double p = probe ? peak_ops / timed(probe, &j) : 1e9;
            ops[i] = 2.0 * n * n * m / timed(product, &j);
            share[i] = ops[i] / p;
        }
        printf("%-7s %-5s M=512 %7.0f Gop/s  %5.1f %% of the integer peak\n", kern_mm_fmt_name(fmt),
               form_names[form], median(ops, REPEAT) / 1e9, 100 * median(share, REPEAT));
    }
    fflush(stdout);
}

int bench_main(const char *filter, int n_thread)
{
    pthread_t id[MAX_THREAD];
    if (n_thread < 1 || n_thread > MAX_THREAD) n_thread = 2;
    if (n_thread == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&team.go, NULL, (unsigned)n_thread);
    pthread_barrier_init(&team.done, NULL, (unsigned)n_thread);
    pin(0);
    for (int t = 1; t < n_thread; t++)
        pthread_create(&id[t], NULL, worker, (void *)(intptr_t)t);
    printf("%d threads, ISA %s\n", n_thread, cpu_isa_best(cpu_isa_mask()));
    for (int fmt = 0; fmt < MM_N_FMT; fmt++) {
        if (filter && !strstr(kern_mm_fmt_name(fmt), filter)) continue;
        bench_pack(fmt);
        bench_cached(fmt, n_thread);
        bench_small(fmt, n_thread);
        bench_big(fmt, n_thread);
    }
    team.quit = 1;
    pthread_barrier_wait(&team.go);
    for (int t = 1; t < n_thread; t++)
        pthread_join(id[t], NULL);
    return 0;
}
