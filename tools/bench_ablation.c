/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench --ablation. Every row is run in a process of its own, so that the kernels can be
 * chosen anew and the peak of memory is that row's. What this build cannot switch off is left out
 * of the table and named below it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "bench.h"
#include "chart.h"
#include "os/os.h"

#define REQ_MAX 256
#define MEASURE_NS ((int64_t)1000000000) /* a row is repeated until this has passed */
#define REPEAT_MAX 64

/* The measures in their order; each row has those before it too. */
enum { REFERENCE, SIMD, INT8, BATCHING, THREADS, PREFIX, N_MEASURE };
static const struct {
    const char *name, *what;
} measure[N_MEASURE] = {
    [REFERENCE] = {"reference kernels",
                   "plain C, f32, one request at a time, one thread, small pages, no prefix cache"},
    [SIMD] = {"SIMD", "this CPU's vector units, still f32 activations"},
    [INT8] = {"int8", "activations as integers (--acts auto)"},
    [BATCHING] = {"continuous batching", "requests run together"},
    [THREADS] = {"threads and huge pages", "all cores"},
    [PREFIX] = {"prefix cache", "what prompts have in common is computed once"},
};
static const char *const left_out[] = {
    "fused operators: gate and up lie in one stream and meet in registers; there are no others to "
    "compare with",
    "flash attention: attention has no form that keeps whole score matrices",
    "paged KV: the cache is paged always",
    "MTP: random tokens have no drafts that are right",
};

struct work {
    const struct opt_common *o;
    int n_req, n_prompt, n_shared, n_new;
};
struct row {
    double tps, ttft_ms, rss_mb;
    int n_repeat;
    sl_err err; /* code SL_OK = fine */
};
struct pass {
    struct compute c;
    int64_t ttft_ns[REQ_MAX];
    int n_done, n_token;
    char error[200];
};

static void on_event(void *user, const sl_event *ev)
{
    struct pass *p = user;
    if (ev->finish == SL_FINISH_NONE) return;
    if (ev->finish == SL_FINISH_ERROR) snprintf(p->error, sizeof p->error, "%s", ev->error);
    p->ttft_ns[p->n_done++ % REQ_MAX] = ev->ttft_ns;
    p->n_token += ev->n_token;
}

/* n requests: the shared tokens, then their own, other ones in every pass. */
static sl_status submit(struct pass *p, const struct work *w, int n, int n_new, uint64_t seed,
                        sl_err *err)
{
    void *mem = NULL;
    uint64_t rng = 1, id;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)w->n_prompt, sizeof(int32_t), &mem, err));
    int32_t *ids = mem;
    sl_status st = SL_OK;
    for (int i = 0; i < w->n_shared; i++)
        ids[i] = (int32_t)(rng_next(&rng) % (uint64_t)p->c.mi.n_vocab);
    for (int r = 0; r < n && !st; r++) {
        rng = seed * REQ_MAX + (uint64_t)r + 2;
        for (int i = w->n_shared; i < w->n_prompt; i++)
            ids[i] = (int32_t)(rng_next(&rng) % (uint64_t)p->c.mi.n_vocab);
        sl_request q = {.ids = ids,
                        .n_ids = w->n_prompt,
                        .max_tokens = n_new,
                        .ignore_eos = 1,
                        .n_logprob = -1,
                        .on_event = on_event,
                        .user = p};
        st = sl_submit(p->c.e, &q, &id, err);
    }
    mem_free(mem);
    return st;
}

static sl_status drain(struct pass *p, sl_err *err)
{
    while (sl_pending(p->c.e)) {
        SL_TRY(sl_step(p->c.e, err));
        if (p->error[0]) return SL_FAIL(err, INTERNAL, "%s", p->error);
        if (cmd_stop) return SL_FAIL(err, CANCELLED, "cancelled");
    }
    return SL_OK;
}

static sl_status repeat(struct pass *p, const struct work *w, struct row *r, sl_err *err)
{
    static double tps[REPEAT_MAX], ttft[REPEAT_MAX], one[REQ_MAX];
    int64_t begin = clock_now_ns();
    SL_TRY(submit(p, w, 1, 1, 0, err)); /* warm-up */
    SL_TRY(drain(p, err));
    for (int n = 0; n < REPEAT_MAX && (n == 0 || clock_now_ns() - begin < MEASURE_NS); n++) {
        p->n_done = p->n_token = 0;
        int64_t t0 = clock_now_ns();
        SL_TRY(submit(p, w, w->n_req, w->n_new, (uint64_t)n + 1, err));
        SL_TRY(drain(p, err));
        tps[n] = p->n_token / ((double)(clock_now_ns() - t0) * 1e-9);
        for (int i = 0; i < w->n_req; i++)
            one[i] = (double)p->ttft_ns[i] * 1e-6;
        qsort(one, (size_t)w->n_req, sizeof *one, compute_by_value);
        ttft[n] = one[w->n_req / 2];
        r->n_repeat = n + 1;
    }
    qsort(tps, (size_t)r->n_repeat, sizeof *tps, compute_by_value);
    qsort(ttft, (size_t)r->n_repeat, sizeof *ttft, compute_by_value);
    r->tps = tps[(r->n_repeat - 1) / 2]; /* of an even number the slower, as of the times */
    r->ttft_ms = ttft[r->n_repeat / 2];
    return SL_OK;
}

/* Measures up to last are on. */
static sl_status run_row(const struct work *w, int last, struct row *r, sl_err *err)
{
    static struct pass p;
    struct opt_common o = *w->o;
    sl_engine_opts eo = {.n_ctx = w->n_prompt + w->n_new + 1,
                         .n_seq_max = last >= BATCHING ? w->n_req : 1,
                         .n_queue_max = w->n_req,
                         .kv_tokens = (int64_t)(w->n_req + 2) * (w->n_prompt + w->n_new + 64),
                         .no_reuse = last < PREFIX};
    if (last < SIMD) setenv("SL_CPU", "ref", 1);
    if (last < INT8) o.acts = SL_ACTS_F32;
    if (last < THREADS) o.threads = 1, o.no_hugepages = true;
    o.pack_cache = SL_PACK_IGNORE; /* a mapped file has pages of its own */
    log_set_level(LOG_ERROR);      /* that the reference kernels are slow is the point */
    SL_TRY(compute_open(&p.c, &o, &eo, err));
    sl_status st = repeat(&p, w, r, err);
    r->rss_mb = (double)os_rss_peak() * 1e-6;
    compute_close(&p.c);
    return st;
}

/* The same in a child. */
static sl_status fork_row(const struct work *w, int last, struct row *r, sl_err *err)
{
    int fd[2], status = 0;
    memset(r, 0, sizeof *r);
    fflush(NULL);
    if (pipe(fd) != 0) return SL_FAIL(err, IO, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) {
        close(fd[0]);
        close(fd[1]);
        return SL_FAIL(err, IO, "fork: %s", strerror(errno));
    }
    if (pid == 0) {
        r->err.code = run_row(w, last, r, &r->err);
        bool sent = write(fd[1], r, sizeof *r) == (ssize_t)sizeof *r; /* shorter than PIPE_BUF */
        _exit(!sent);
    }
    close(fd[1]);
    ssize_t n;
    do
        n = read(fd[0], r, sizeof *r);
    while (n < 0 && errno == EINTR);
    close(fd[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (cmd_stop) return SL_FAIL(err, CANCELLED, "cancelled");
    if (n != (ssize_t)sizeof *r)
        return SL_FAIL(err, INTERNAL, "%s: the process that measured it ended with status %d",
                       measure[last].name, status);
    if (r->err.code) *err = r->err;
    return r->err.code;
}

/* ---- the table ---- */
static void put_json(struct json_w *w, int i, const struct row *r, double factor)
{
    text_jw_obj(w);
    text_jw_key(w, "measure");
    text_jw_strz(w, measure[i].name);
    text_jw_key(w, "tps");
    text_jw_real(w, r->tps, 6);
    text_jw_key(w, "ttft_ms");
    text_jw_real(w, r->ttft_ms, 6);
    text_jw_key(w, "rss_mb");
    text_jw_real(w, r->rss_mb, 6);
    text_jw_key(w, "factor");
    text_jw_real(w, factor, 6);
    text_jw_key(w, "repeats");
    text_jw_int(w, r->n_repeat);
    text_jw_obj_end(w);
}

static void print_row(int i, const struct row *r, double factor)
{
    if (i == 0)
        printf("%-24s %10s %10s %9s %8s\n", "measure", "tok/s", "TTFT ms", "peak MB", "factor");
    printf("%-24s %10.1f %10.1f %9.0f %7.1fx   %s\n", measure[i].name, r->tps, r->ttft_ms,
           r->rss_mb, factor, measure[i].what);
    fflush(stdout);
}

static sl_status write_files(const struct bench_files *f, const struct row *row, sl_err *err)
{
    struct chart_bar bar[N_MEASURE];
    struct str csv;
    sl_status st = SL_OK;
    str_init(&csv, MEM_MISC, 0);
    str_puts(&csv, "measure,tps,ttft_ms,rss_mb,factor,repeats\n");
    for (int i = 0; i < N_MEASURE; i++) {
        double factor = row[i].tps / row[0].tps;
        str_printf(&csv, "%s,%.6g,%.6g,%.6g,%.6g,%d\n", measure[i].name, row[i].tps, row[i].ttft_ms,
                   row[i].rss_mb, factor, row[i].n_repeat);
        bar[i].v = row[i].tps;
        snprintf(bar[i].label, sizeof bar[i].label, "%s%s", i ? "+ " : "", measure[i].name);
        snprintf(bar[i].note, sizeof bar[i].note, "%.1f tok/s, %.1fx, first token after %.1f ms",
                 row[i].tps, factor, row[i].ttft_ms);
    }
    if (f->csv) st = str_status(&csv, err);
    if (!st && f->csv) st = os_write_file(f->csv, csv.p, csv.n, err);
    if (!st && f->svg)
        st = chart_write(f->svg, "One measure at a time, tokens per second", bar, N_MEASURE, err);
    str_fini(&csv);
    return st;
}

sl_status bench_ablation(const struct opt_common *o, int n_req, int n_prompt, int n_new,
                         const struct bench_files *f, sl_err *err)
{
    struct work w = {o, n_req, n_prompt, n_prompt * 2 / 3, n_new};
    struct row row[N_MEASURE];
    struct str json;
    struct json_w jw;
    sl_status st = SL_OK;
    if (n_req < 1 || n_req > REQ_MAX || n_prompt < 3 || n_new < 1)
        return SL_FAIL(
            err, REQUEST,
            "--ablation: 1 to %d requests (-b) of 3 tokens (-p) and 1 new one (-n) at least",
            REQ_MAX);
    if (!o->json)
        printf("%d requests of %d tokens, the first %d the same in all, %d new ones each\n", n_req,
               n_prompt, w.n_shared, n_new);
    str_init(&json, MEM_MISC, 0);
    text_jw_init(&jw, &json);
    text_jw_arr(&jw);
    for (int i = 0; i < N_MEASURE && !st; i++) {
        st = fork_row(&w, i, &row[i], err);
        if (st) break;
        put_json(&jw, i, &row[i], row[i].tps / row[0].tps);
        if (!o->json) print_row(i, &row[i], row[i].tps / row[0].tps);
    }
    text_jw_arr_end(&jw);
    for (int i = 0; !st && !o->json && i < BASE_COUNT_OF(left_out); i++)
        printf("left out: %s\n", left_out[i]);
    if (!st && o->json) st = compute_print(&json, err);
    if (!st) st = write_files(f, row, err);
    str_fini(&json);
    return st;
}
