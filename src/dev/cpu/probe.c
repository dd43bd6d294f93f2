/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do at most, measured beside a run: reading memory, and integer multiply-adds. */
#include "dev/cpu/cpu.h"

#include "base/clock.h"
#include "base/cpu.h"

#define READ_BYTES ((size_t)512 << 20) /* many times any last-level cache */

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

double dev_cpu_probe_read_gbps(dev *d, int ms)
{
    struct cpu *c = dev_cpu_of(d);
    void *p = NULL;
    size_t n = READ_BYTES;
    while (mem_slab_alloc(MEM_SCRATCH, n, c->huge, &p, NULL) != SL_OK) {
        n /= 2;
        if (n < READ_BYTES / 8) return 0; /* no memory for an honest figure */
    }
    struct read_job j = {c, p, (int64_t)(n / sizeof(float)), 0};
    par_run(c->team, fill_run, &j);
    int64_t t0 = clock_now_ns();
    double best = 0;
    do {
        int64_t t = clock_now_ns();
        par_run(c->team, read_run, &j);
        double gbps = (double)n / (double)(clock_now_ns() - t);
        if (gbps > best) best = gbps;
    } while (clock_now_ns() - t0 < (int64_t)ms * 1000000);
    mem_slab_free(MEM_SCRATCH, p, n);
    return best;
}

struct int8_job {
    struct cpu *c;
    int n;
    double ops[512]; /* per worker; a region's end orders them */
};

static void int8_run(void *arg, int worker, int n_w)
{
    (void)n_w;
    struct int8_job *j = arg;
    j->ops[worker] = j->c->k.peak_i8(j->n);
}

double dev_cpu_probe_int8_gops(dev *d, int ms)
{
    struct cpu *c = dev_cpu_of(d);
    struct int8_job j = {.c = c, .n = 20000};
    int64_t t0 = clock_now_ns();
    double best = 0;
    do {
        int64_t t = clock_now_ns();
        par_run(c->team, int8_run, &j);
        double ns = (double)(clock_now_ns() - t), ops = 0;
        for (int i = 0; i < c->n_worker; i++) ops += j.ops[i];
        if (ops / ns > best) best = ops / ns;
    } while (clock_now_ns() - t0 < (int64_t)ms * 1000000);
    return best;
}
