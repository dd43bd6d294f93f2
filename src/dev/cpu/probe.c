/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do at most, measured beside a run: reading memory, and
 * multiply-adds. */
#include "dev/cpu/cpu.h"

#include "base/clock.h"
#include "os/os.h"

#define READ_MIN ((size_t)128 << 20)
#define READ_MAX ((size_t)1 << 30)

/* Four times the last-level cache, so that little of it can be read from there. */
static size_t read_bytes(void)
{
    struct os_topology t;
    size_t n = READ_MAX / 2;
    if (os_topology_get(&t, NULL) == SL_OK && t.l3 > 0)
        n = size_round((size_t)t.l3 * 4, (size_t)2 << 20);
    return n < READ_MIN ? READ_MIN : n > READ_MAX ? READ_MAX : n;
}

struct read_job {
    struct cpu *c;
    const float *p;
    int64_t n;
    volatile float sink;
};

static void read_run(void *arg, int worker, int n_w)
{
    struct read_job *j = arg;
    int64_t b, e;
    par_split(j->n / 64, worker, n_w, &b, &e);
    float s = j->c->k.sum_f32(j->p + 64 * b, 64 * (e - b));
    if (s != 0) j->sink = s; /* all zeros: never, but the compiler can not know */
}

static void fill_run(void *arg, int worker, int n_w)
{
    struct read_job *j = arg;
    int64_t b, e;
    par_split(j->n / 64, worker, n_w, &b, &e);
    memset((float *)j->p + 64 * b, 0, sizeof(float) * 64 * (size_t)(e - b));
}

/* The packed weights themselves when there is a slab of that size (memory is not taken twice), else
 * a buffer of zeros. */
static const struct cpu_block *weight_slab(const struct cpu *c, size_t n)
{
    for (const struct cpu_block *b = c->blocks; b; b = b->next)
        if (b->slab && b->tag == MEM_WEIGHTS && b->n >= n) return b;
    return NULL;
}

double dev_cpu_probe_read_gbps(dev *d, int ms)
{
    struct cpu *c = dev_cpu_of(d);
    size_t n = read_bytes();
    const struct cpu_block *have = weight_slab(c, n);
    void *own = NULL;
    if (!have && mem_slab_alloc(MEM_SCRATCH, n, c->huge, &own, NULL) != SL_OK)
        return 0; /* no honest figure without */
    struct read_job j = {c, have ? have->p : own, (int64_t)(n / sizeof(float)), 0};
    if (own) par_run(c->team, fill_run, &j);
    int64_t t0 = clock_now_ns();
    double best = 0;
    do {
        int64_t t = clock_now_ns();
        par_run(c->team, read_run, &j);
        double gbps = (double)n / (double)(clock_now_ns() - t);
        if (gbps > best) best = gbps;
    } while (clock_now_ns() - t0 < (int64_t)ms * 1000000);
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
    int bf16 = dev_cpu_bf16_attn(c, ((const struct cpu_kv *)kv)->t);
    return peak_gops(c, bf16 ? c->k.peak_bf16 : c->k.peak_f32, ms);
}
