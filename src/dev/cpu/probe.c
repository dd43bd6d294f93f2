/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do at most, measured beside a run: reading memory, and
 * multiply-adds. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/span.h"

#include "base/clock.h"
#include "os/os.h"

#define READ_MIN ((size_t)128 << 20)
#define READ_MAX ((size_t)1 << 30)
#define READ_PART ((size_t)16 << 20) /* of a matrix; smaller ones are left out */
#define READ_PARTS 256

/* Four times the last-level cache. Caches that do not simply keep what was used last still serve a
 * fifth of it (Zen 5: 57 GB/s where a gigabyte has 45), so this is for models that are no larger.
 */
static size_t least_bytes(void)
{
    struct os_topology t;
    size_t n = READ_MAX / 2;
    if (os_topology_get(&t, NULL) == SL_OK && t.l3 > 0)
        n = size_round((size_t)t.l3 * 4, (size_t)2 << 20);
    return n < READ_MIN ? READ_MIN : n > READ_MAX ? READ_MAX : n;
}

struct read_part {
    const float *p;
    int64_t n;
};
struct read_job {
    struct cpu *c;
    struct read_part part[READ_PARTS];
    int n_part;
    size_t n_bytes;
    volatile float sink;
};

static void add_part(struct read_job *j, const void *p, size_t n)
{
    n = BASE_MIN(n, READ_MAX - j->n_bytes);
    if (n < READ_PART || j->n_part == READ_PARTS) return;
    j->part[j->n_part++] = (struct read_part){p, (int64_t)(n / sizeof(float))};
    j->n_bytes += n;
}

static void read_run(void *arg, int worker, int n_w)
{
    struct read_job *j = arg;
    float s = 0;
    for (int i = 0; i < j->n_part; i++) {
        int64_t b, e;
        par_split(j->part[i].n / 64, worker, n_w, &b, &e);
        s += j->c->k.sum_f32(j->part[i].p + 64 * b, 64 * (e - b));
    }
    if (s != 0) j->sink = s; /* the compiler can not know what is read */
}

static void fill_run(void *arg, int worker, int n_w)
{
    struct read_job *j = arg;
    int64_t b, e;
    par_split(j->part[0].n / 64, worker, n_w, &b, &e);
    float *p = (float *)(uintptr_t)j->part[0].p + 64 * b;
    kern_zero_uncached(p, sizeof(float) * 64 * (size_t)(e - b));
}

/* The best within ms: each time all parts are read, after they are filled anew if fill says so. */
static double read_best(struct read_job *j, bool fill, int ms)
{
    par_team *team = j->c->team;
    int64_t t0 = clock_now_ns();
    double best = 0;
    do {
        if (fill) par_run(team, fill_run, j);
        int64_t t = clock_now_ns();
        par_run(team, read_run, j);
        double gbps = (double)j->n_bytes / (double)(clock_now_ns() - t);
        if (gbps > best) best = gbps;
    } while (clock_now_ns() - t0 < (int64_t)ms * 1000000);
    return best;
}

/* Reads the packed weights themselves, up to a gigabyte of them, where they are large enough
 * (memory is not taken twice), else a buffer of zeros. Zeros that can be written past the caches
 * are, before each reading, and then need not be more than the caches hold: to take and read a
 * gigabyte takes a second on a machine with large caches, and `run` ends with this. */
double dev_cpu_probe_read_gbps(dev *d, int ms)
{
    struct cpu *c = dev_cpu_of(d);
    struct read_job j = {.c = c};
    size_t least = least_bytes();
    for (const struct cpu_mat *w = c->mats; w; w = w->next) {
        add_part(&j, w->m.data, (size_t)w->n * w->stride);
        if (w->m2.data) add_part(&j, w->m2.data, (size_t)w->n * w->stride2);
    }
    if (j.n_bytes >= least) return read_best(&j, false, ms);

    bool past = kern_zero_uncached(NULL, 0);
    size_t n = past ? READ_MIN : least;
    void *own;
    if (mem_slab_alloc(MEM_SCRATCH, n, c->huge, &own, NULL) != SL_OK)
        return 0; /* no honest figure without */
    j.n_part = 0;
    j.n_bytes = 0;
    add_part(&j, own, n);
    if (!past) par_run(c->team, fill_run, &j);
    double best = read_best(&j, past, ms);
    mem_slab_free(MEM_SCRATCH, own, n);
    return best;
}

struct peak_job {
    double (*peak)(int n);
    double ops[512]; /* per worker; a region's end orders them */
};

static void peak_run(void *arg, int worker, int n_w)
{
    (void)n_w;
    struct peak_job *j = arg;
    j->ops[worker] = j->peak(20000);
}

static double peak_gops(struct cpu *c, double (*peak)(int n), int ms)
{
    struct peak_job j = {.peak = peak};
    int64_t t0 = clock_now_ns();
    double best = 0;
    do {
        int64_t t = clock_now_ns();
        par_run(c->team, peak_run, &j);
        double ns = (double)(clock_now_ns() - t), ops = 0;
        for (int i = 0; i < c->n_worker; i++)
            ops += j.ops[i];
        if (ops / ns > best) best = ops / ns;
    } while (clock_now_ns() - t0 < (int64_t)ms * 1000000);
    return best;
}

double dev_cpu_probe_int8_gops(dev *d, int ms)
{
    struct cpu *c = dev_cpu_of(d);
    return peak_gops(c, c->k.peak_i8, ms);
}

double dev_cpu_probe_attn_gops(dev *d, const dev_kv *kv, int ms)
{
    struct cpu *c = dev_cpu_of(d);
    const struct cpu_kv *x = dev_cpu_kv_of(kv, 0);
    if (dev_cpu_bf16_attn(c, x->t)) return peak_gops(c, c->k.peak_bf16, ms);
    /* Over latents; keys and values that are made of them are f32, and so further from this. */
    if (x->s.d_v == 0 && dev_cpu_i16_attn(c, x->t)) return peak_gops(c, c->k.peak_i16, ms);
    return peak_gops(c, c->k.peak_f32, ms);
}
