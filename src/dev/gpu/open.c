/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a device, its options, and the self-test of its arithmetic. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "dev/gpu/gpu.h"

#define STAGE_BYTES ((int64_t)16 << 20)
#define SLAB_MAX ((int64_t)1 << 30)
#define OPTIONS                                                                                    \
    "NUMBER, slab=BYTES, grid=N, staged, no-matrix-units, tiles, fail=alloc:K, fail=submit:K, "    \
    "fail=units, fail=exact"

/* ---- options ---- */

static sl_status bad_option(const struct gpu *c, const char *s, size_t n, sl_err *err)
{
    if (dev_is_card(s))
        return SL_FAIL(err, REQUEST,
                       "device '%s': '%.*s' is another device: --place puts parts there",
                       c->head.cls->name, (int)BASE_MIN(n, 40), s);
    return SL_FAIL(err, REQUEST, "device '%s': option '%.*s' (there are: " OPTIONS ")",
                   c->head.cls->name, (int)BASE_MIN(n, 40), s);
}

static bool take_number(const char *s, size_t n, uint64_t *out)
{
    char *end;
    if (n == 0 || s[0] < '0' || s[0] > '9') return false;
    *out = strtoull(s, &end, 10);
    return end == s + n;
}

static bool starts(const char *s, size_t n, const char *with)
{
    return n > strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/* A word alone. */
static bool take_word(struct gpu *c, const char *s, size_t n)
{
    const struct {
        const char *name;
        bool *to;
    } word[] = {{"staged", &c->is_staged},
                {"no-matrix-units", &c->no_units},
                {"tiles", &c->tiles},
                {"fail=units", &c->fault.units},
                {"fail=exact", &c->fault.exact}};
    for (int i = 0; i < BASE_COUNT_OF(word); i++)
        if (n == strlen(word[i].name) && memcmp(s, word[i].name, n) == 0) return *word[i].to = true;
    return false;
}

static bool take_option(struct gpu *c, const char *s, size_t n)
{
    static const char slab[] = "slab=", alloc[] = "fail=alloc:", sub[] = "fail=submit:";
    uint64_t v;
    if (take_word(c, s, n)) return true;
    if (take_number(s, n, &v) && v < 64) {
        c->which = (int)v;
        return true;
    }
    if (starts(s, n, slab) && take_number(s + 5, n - 5, &v) && v >= 1u << 16) {
        c->slab_bytes = (int64_t)BASE_MIN(v, (uint64_t)SLAB_MAX);
        return true;
    }
    if (starts(s, n, "grid=") && take_number(s + 5, n - 5, &v) && v > 0 && v <= GPU_GRID_MAX) {
        c->grid_max = (int)v;
        return true;
    }
    if (starts(s, n, alloc)) return take_number(s + 11, n - 11, &c->fault.alloc);
    return starts(s, n, sub) && take_number(s + 12, n - 12, &c->fault.submit);
}

static sl_status take_options(struct gpu *c, const char *s, sl_err *err)
{
    while (*s) {
        size_t n = strcspn(s, ",");
        if (!take_option(c, s, n)) return bad_option(c, s, n, err);
        s += n + (s[n] == ',');
    }
    return SL_OK;
}

/* ---- the self-test ---- */

#define N_TEST 1024

/* a, b, c of which a * b + c is near the middle of two floats more often than by chance. */
static void make_cases(float *x)
{
    uint64_t state = 1;
    for (int i = 0; i < 3 * N_TEST; i++) {
        int32_t r = (int32_t)(rng_next(&state) >> 40) - (1 << 23);
        x[i] = (float)(i % 3 == 2 ? r / 256 : r % 8192) * 0x1p-10f;
    }
}

static sl_status judge(struct gpu *c, const float *x, const float *y, sl_err *err)
{
    int fused = 0, exact = 0, plain = 0;
    for (int i = 0; i < N_TEST; i++) {
        const float *v = x + 3 * i;
        volatile float product = v[0] * v[1];
        float f = fmaf(v[0], v[1], v[2]), s = product + v[2];
        fused += y[3 * i] == f;
        exact += y[3 * i + 1] == f;
        plain += y[3 * i + 2] == s;
    }
    c->fused = fused == N_TEST;
    if (exact == N_TEST && plain == N_TEST) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: %s: its sums are not IEEE's (%d of %d products and sums differ): this "
                   "driver can not run sluice: update it",
                   c->name, c->lim.text, 2 * N_TEST - exact - plain, 2 * N_TEST);
}

/* Quotients and roots, which kernels put right where fma() is fused. */
static sl_status judge_rest(struct gpu *c, const struct dev_opts *o, const float *x, const float *y,
                            sl_err *err)
{
    int bad = c->fault.exact;
    for (int i = 0; i < N_TEST; i++) {
        const float *v = x + 3 * i;
        bad += v[1] != 0 && y[3 * i] != v[0] / v[1];
        bad += y[3 * i + 1] != sqrtf(fabsf(v[0]));
    }
    if (bad == 0 || !o->exact) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: %s: --exact can not be held: %d of %d quotients and roots are not IEEE's",
                   c->name, c->lim.text, bad, 2 * N_TEST);
}

/* First whether fma() is one rounding, which kernels are told when they are made. */
static sl_status self_test(struct gpu *c, const struct dev_opts *o, sl_err *err)
{
    float x[3 * N_TEST], y[3 * N_TEST];
    struct {
        uint64_t x, y;
        uint32_t n, pad;
    } k = {.n = N_TEST};
    make_cases(x);
    SL_TRY(dev_gpu_kernel(c, GPU_selftest, err));
    SL_TRY(dev_gpu_carve(c, sizeof x, &k.x, NULL, err));
    SL_TRY(dev_gpu_carve(c, sizeof y, &k.y, NULL, err));
    SL_TRY(dev_gpu_put(c, k.x, x, sizeof x, err));
    dev_gpu_launch(c, GPU_selftest, (const uint32_t[3]){N_TEST / 64, 1, 1}, &k, sizeof k);
    SL_TRY(dev_gpu_get(c, y, k.y, sizeof y, err));
    SL_TRY(judge(c, x, y, err));
    SL_TRY(dev_gpu_kernel(c, GPU_quotients, err));
    dev_gpu_launch(c, GPU_quotients, (const uint32_t[3]){N_TEST / 64, 1, 1}, &k, sizeof k);
    SL_TRY(dev_gpu_get(c, y, k.y, sizeof y, err));
    SL_TRY(judge_rest(c, o, x, y, err));
    return dev_gpu_choose_units(c, err);
}

/* ---- open ---- */

static sl_status open_driver(struct gpu *c, sl_err *err)
{
    sl_status st = c->drv->open(c->which, &c->g, &c->lim, err);
    if (st) { /* a card that is there and lacks something is not what was asked for wrongly */
        status_prefix(err, st == SL_UNSUPPORTED ? "%s" : "--device %s", c->name);
        return st;
    }
    if (c->slab_bytes == 0) c->slab_bytes = BASE_MIN(SLAB_MAX, c->lim.slab / 2);
    return dev_gpu_pinned(c, STAGE_BYTES, &c->stage, err);
}

static sl_status open_as(struct gpu *c, const char *options, const struct dev_opts *o, sl_err *err)
{
    void *p = NULL;
    SL_TRY(take_options(c, options, err));
    snprintf(c->name, sizeof c->name, "%s:%d", c->head.cls->name, c->which);
    SL_TRY(mem_alloc(MEM_SCRATCH, GPU_LOG * sizeof *c->log, &p, err));
    c->log = p;
    SL_TRY(open_driver(c, err));
    SL_TRY(dev_open(dev_cpu_class.name, o, &c->cpu, err));
    struct dev_info host;
    dev_info_get(c->cpu, &host);
    c->attn = host.attn_bf16 ? GPU_ON_BF16 : host.attn_i16 ? GPU_ON_I16 : GPU_ON_F32;
    return self_test(c, o, err);
}

sl_status dev_gpu_open(const struct dev_class *cls, const struct gpu_driver *drv,
                       const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct gpu), &p, err));
    struct gpu *c = p;
    c->head.cls = cls;
    c->drv = drv;
    c->acts = o->acts;
    c->no_units = o->no_units;
    c->grid_max = GPU_GRID_MAX;
    mem_arena_init(&c->arena, MEM_MISC, 0);
    atomic_flag_clear(&c->taking_lock);
    sl_status st = open_as(c, options, o, err);
    if (st)
        dev_gpu_close(&c->head);
    else
        *out = &c->head;
    return st;
}

void dev_gpu_close(dev *d)
{
    struct gpu *c = dev_gpu_of(d);
    dev_close(c->cpu);
    if (c->g) {
        /* a submit may have failed while others run, which use the memory */
        if (!c->no_wait) (void)c->drv->wait(c->g, c->n_submit, NULL);
        if (!c->no_wait && c->n_send) (void)c->drv->wait_send(c->g, c->n_send, NULL);
        dev_gpu_log_free(c);
        dev_gpu_mem_free(c);
        c->drv->close(c->g);
    } else {
        mem_free(c->log);
    }
    mem_arena_fini(&c->arena);
    mem_free(c);
}

/* ---- the table's small entries ---- */

void dev_gpu_info(const dev *d, struct dev_info *out)
{
    const struct gpu *c = dev_gpu_of(d);
    dev_info_get(c->cpu, out);
    out->name = c->name;
    out->isa = c->lim.text;
    out->units = c->units_text;
}

dev *dev_gpu_packer(dev *d)
{
    return dev_gpu_of(d)->cpu;
}

sl_status dev_gpu_memory(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err)
{
    const struct gpu *c = dev_gpu_of(d);
    if (dev_gpu_takes_host(d)) return dev_memory(c->cpu, free_bytes, total, err);
    *total = c->lim.mem_total;
    return c->drv->mem_left(c->g, free_bytes, err);
}

bool dev_gpu_takes_host(const dev *d)
{
    return dev_gpu_of(d)->lim.is_unified;
}

sl_status dev_gpu_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err)
{
    uint64_t p = 0;
    (void)tag;
    SL_TRY(dev_gpu_carve(dev_gpu_of(d), n_bytes, &p, NULL, err));
    *out = (void *)(uintptr_t)p;
    return SL_OK;
}

sl_status dev_gpu_host_put(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    return dev_gpu_put(dev_gpu_of(d), (uint64_t)(uintptr_t)dst, src, n_bytes, err);
}

sl_status dev_gpu_host_get(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    return dev_gpu_get(dev_gpu_of(d), dst, (uint64_t)(uintptr_t)src, n_bytes, err);
}

sl_status dev_gpu_sync(dev *d, sl_err *err)
{
    return dev_gpu_finish(dev_gpu_of(d), err);
}

uint64_t dev_gpu_mark(dev *d)
{
    struct gpu *c = dev_gpu_of(d);
    dev_gpu_flush(c);
    return c->n_submit;
}

sl_status dev_gpu_wait_mark(dev *d, uint64_t mark, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    SL_TRY(dev_gpu_wait(c, mark, err));
    dev_gpu_give(c);
    return SL_OK;
}

void dev_gpu_host_run(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    dev_host_run(dev_gpu_of(d)->cpu, fn, arg);
}

int64_t dev_gpu_keep_bytes(const dev *d, const struct dev_shapes *p)
{
    (void)d; /* keys and values made of latents are made again in every step */
    (void)p;
    return 0;
}

/* ---- probes ---- */

#define PROBE_BYTES ((int64_t)64 << 20)

/* Read and written by copies within the device. */
double dev_gpu_probe_read_gbps(dev *d, int ms)
{
    struct gpu *c = dev_gpu_of(d);
    int64_t t0 = clock_now_ns(), n = 0, t = t0;
    if (!c->probe && dev_gpu_carve(c, 2 * PROBE_BYTES, &c->probe, NULL, NULL)) return 0;
    do {
        dev_gpu_copy(c, c->probe, c->probe + PROBE_BYTES, PROBE_BYTES);
        if (dev_gpu_finish(c, NULL)) return 0;
        n += 2 * PROBE_BYTES;
        t = clock_now_ns();
    } while (t - t0 < (int64_t)ms * 1000000);
    return (double)n / (double)(t - t0);
}

/* Not measured. */
double dev_gpu_probe_int8_gops(dev *d, int ms)
{
    (void)d;
    (void)ms;
    return 0;
}

double dev_gpu_probe_attn_gops(dev *d, const dev_kv *kv, int ms)
{
    (void)d;
    (void)kv;
    (void)ms;
    return 0;
}

void dev_gpu_list_text(dev_gpu_list_fn *list, char *buf, size_t n)
{
    struct dev_desc all[16];
    int n_all = list(all, BASE_COUNT_OF(all), NULL);
    size_t k = 0;
    *buf = '\0';
    for (int i = 0; i < n_all && i < BASE_COUNT_OF(all) && k < n; i++) {
        char of[32] = " (a CPU; for tests)";
        if (!all[i].is_cpu) snprintf(of, sizeof of, " %.0f GB", (double)all[i].mem / 1e9);
        k += (size_t)snprintf(buf + k, n - k, "%s%s %s%s", i ? ", " : "", all[i].name, all[i].text,
                              of);
    }
}
