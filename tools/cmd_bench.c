/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench: the engine alone, on random tokens. pp: prompts of given lengths; tg: decoding with
 * given batch sizes and depths. The probes of the machine's limits run beside each test, because a
 * shared machine's limits change. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "bench.h"
#include "chart.h"
#include "os/os.h"
#include "place.h"

struct bench_opts {
    struct opt_common common;
    struct opt_ints p, b, d;
    int n, r;
    double temp;
    const char *csv, *svg, *kernels, *replay, *prompts, *json_schema;
    bool ops, ablation;
};

// clang-format off
static const struct opt opts[] = {
    {"prompt",  'p', OPT_INTS, offsetof(struct bench_opts, p),
     "N,..", NULL, 0, 0, "prompt lengths to prefill (512; --ablation 96; 0: none)"},
    {"n",       'n', OPT_INT,  offsetof(struct bench_opts, n),
     "N", "-1", -1, 1 << 20, "tokens to decode (-1: 64, --ablation 32; 0: none)"},
    {"batch",   'b', OPT_INTS, offsetof(struct bench_opts, b),
     "N,..", NULL, 0, 0, "sequences decoded together (1; --ablation 8)"},
    {"depth",   'd', OPT_INTS, offsetof(struct bench_opts, d),
     "N,..", "0", 0, 0, "tokens of context before each test"},
    {"repeat",  'r', OPT_INT,  offsetof(struct bench_opts, r),
     "N", "5", 1, 1000, "repeats; the median is given"},
    {"csv",      0,  OPT_STR,  offsetof(struct bench_opts, csv),
     "FILE", NULL, 0, 0, "write the table as CSV too"},
    {"ops",      0,  OPT_FLAG, offsetof(struct bench_opts, ops),
     NULL, NULL, 0, 0, "after each test, where its time went"},
    {"svg",      0,  OPT_STR,  offsetof(struct bench_opts, svg),
     "FILE", NULL, 0, 0, "draw it as a chart too"},
    {"ablation", 0,  OPT_FLAG, offsetof(struct bench_opts, ablation),
     NULL, NULL, 0, 0, "the same work from everything off to everything on"},
    {"kernels",  0,  OPT_STR,  offsetof(struct bench_opts, kernels),
     "TYPE", NULL, 0, 0, "products alone with weights of that type (all: every type)"},
    {"replay",   0,  OPT_STR,  offsetof(struct bench_opts, replay), "FILE", NULL, 0, 0,
     "the steps that --record wrote again: are the results the same bits?"},
    {"draft",    0,  OPT_STR,  offsetof(struct bench_opts, common.draft),
     "off|auto|ngram|mtp|model|replay:RATE", NULL, 0, 0, "what such guesses cost and gain"},
    {"draft-max", 0, OPT_INT, offsetof(struct bench_opts, common.draft_max), "N", "0", 0,
     SL_DRAFT_MAX,
     "guesses for one sequence in a step at most (0: 7)"},
    OPT_ROWS_DRAFTER(struct bench_opts),
    {"prompts",  0,  OPT_STR,  offsetof(struct bench_opts, prompts), "FILE", NULL, 0, 0,
     "--draft: of these prompts, lines as of run --batch-file"},
    {"json-schema", 0, OPT_STR, offsetof(struct bench_opts, json_schema), "FILE", NULL, 0, 0,
     "--prompts: the answers are JSON that this JSON schema accepts"},
    {"temp",     0,  OPT_REAL, offsetof(struct bench_opts, temp), "X", "-1", -1, 100,
     "--draft: temperature (-1: 0 with --prompts, else 1)"},
    OPT_ROWS_EXPERTS(struct bench_opts),
    OPT_ROWS_LAYOUT(struct bench_opts),
    OPT_ROWS_MOCK(struct bench_opts),
    OPT_ROWS_COMPUTE(struct bench_opts),
    {0},
};
// clang-format on

struct test {
    bool prefill;
    int n, batch, depth;
};

struct result {
    double tps, tps_min, tps_max, ms_per_step, bytes_per_step, gbps, probe_gbps, probe_gops,
        pct_bandwidth, gops, pct_int8_peak, attn_gflop_per_step, attn_gops_peak, pct_limit,
        device_ms, rss_mb;
};

#define REPEAT_MAX 1000
#define STREAM_CHUNK 8192 /* tokens of a step where prompts are streamed: the most */
#define OP_MAX 64
#define TEST_MAX 256
#define BATCH_MAX 1024

struct bench {
    struct compute c;
    const struct bench_opts *o;
    int32_t *ids;
    uint64_t rng;
    int n_first; /* requests that have begun to answer, and that are over */
    int n_over;
    uint64_t id[BATCH_MAX]; /* of the newest requests */
    int n_id;
    sl_op_stat op[OP_MAX]; /* of the last repeat's measured part */
    int n_op;
    bool failed;
    char error[240];
};

static void on_event(void *user, const sl_event *ev)
{
    struct bench *b = user;
    if (ev->n_token == 1) b->n_first++;
    if (ev->finish != SL_FINISH_NONE) b->n_over++;
    if (ev->finish != SL_FINISH_ERROR) return;
    b->failed = true;
    snprintf(b->error, sizeof b->error, "%s", ev->error);
}

static sl_status submit(struct bench *b, int n_prompt, int n_new, int many, sl_err *err)
{
    for (int i = 0; i < n_prompt; i++)
        b->ids[i] = (int32_t)(rng_next(&b->rng) % (uint64_t)b->c.mi.n_vocab);
    sl_request q = {.ids = b->ids,
                    .n_ids = n_prompt,
                    .max_tokens = n_new,
                    .ignore_eos = 1,
                    .n_logprob = -1,
                    .on_event = on_event,
                    .user = b};
    /* Alike sequences would soon make the same token and take the same experts: each keeps to a
     * token of its own. */
    sl_bias own = {(int32_t)(rng_next(&b->rng) % (uint64_t)b->c.mi.n_vocab), 100.0f};
    q.sampling.bias = &own;
    q.sampling.n_bias = many;
    return sl_submit(b->c.e, &q, &b->id[b->n_id++ % BATCH_MAX], err);
}

static sl_status step(struct bench *b, sl_err *err)
{
    SL_TRY(sl_step(b->c.e, err));
    if (b->failed) return SL_FAIL(err, INTERNAL, "%s", b->error);
    return cmd_stop ? SL_FAIL(err, CANCELLED, "cancelled") : SL_OK;
}

/* Tokens that a sequence may make while the others' prompts are computed. */
static int spare(const struct test *t)
{
    return t->batch * (t->depth / 64 + 8);
}

/* Compute the context of every sequence by itself and leave it in the prefix tree, where the next
 * repeat finds it. Else the first sequences would decode, and be over, while the prompts of the
 * last are computed in small pieces beside them. The same random numbers then make the same
 * prompts. */
static sl_status fill(struct bench *b, const struct test *t, sl_err *err)
{
    uint64_t start = b->rng;
    if (t->depth < 1) return SL_OK;
    for (int i = 0; i < t->batch; i++) {
        SL_TRY(submit(b, t->depth, 1, 1, err));
        while (sl_pending(b->c.e))
            SL_TRY(step(b, err));
    }
    b->rng = start;
    return SL_OK;
}

/* Tokens of answers so far: a step of a lane makes only its own sequences'. */
static uint64_t n_made(const struct bench *b)
{
    sl_stats st;
    sl_stats_get(b->c.e, &st);
    return st.n_answer_tok;
}

/* One repeat: tokens and seconds of the measured part, and its steps. */
static sl_status once(struct bench *b, const struct test *t, double *tok, double *s, int *n_step,
                      sl_err *err)
{
    sl_stats st;
    SL_TRY(fill(b, t, err));
    sl_stats_get(b->c.e, &st);
    uint64_t n0 = st.n_prompt_tok;
    b->n_first = b->n_over = b->n_id = 0;
    *n_step = 0;
    if (t->prefill) {
        SL_TRY(submit(b, t->depth + t->n, 1, 0, err));
    } else {
        for (int i = 0; i < t->batch; i++)
            SL_TRY(submit(b, BASE_MAX(t->depth, 1), t->n + 1 + spare(t), t->batch > 1, err));
        while (b->n_first < t->batch)
            SL_TRY(step(b, err));
    }
    uint64_t first = n_made(b), goal = first + (uint64_t)t->n * (uint64_t)t->batch;
    sl_op_stats(b->c.e, b->o->ops ? b->op : NULL, b->o->ops ? OP_MAX : 0); /* from here on */
    int64_t t0 = clock_now_ns();
    while (t->prefill ? sl_pending(b->c.e) != 0 : n_made(b) < goal) {
        SL_TRY(step(b, err));
        ++*n_step;
    }
    *s = (double)(clock_now_ns() - t0) * 1e-9;
    if (t->prefill) { /* what the tree did not have: the last part of a block of the depth too */
        sl_stats_get(b->c.e, &st);
        *tok = (double)(st.n_prompt_tok - n0);
    } else {
        *tok = (double)(n_made(b) - first);
    }
    if (!t->prefill && b->n_over > 0)
        return SL_FAIL(err, INTERNAL, "%d of %d sequences ended before the measured steps did",
                       b->n_over, t->batch);
    b->n_op = sl_op_stats(b->c.e, b->op, OP_MAX);
    if (b->n_op > OP_MAX) b->n_op = OP_MAX;
    for (int i = 0; i < b->n_id; i++)
        sl_cancel(b->c.e, b->id[i]); /* what still decodes ends here */
    while (sl_pending(b->c.e))
        SL_TRY(sl_step(b->c.e, err));
    return SL_OK;
}

/* The least time of the counted steps: all products at the read bandwidth or the integer peak,
 * whichever is slower, and attention (operators with flops), which waits for them, likewise. */
static double least_ns(const struct bench *b, const struct result *r, double gops_peak)
{
    double read[2] = {0}, calc[2] = {0}; /* products, attention */
    for (int i = 0; i < b->n_op; i++) {
        const sl_op_stat *o = &b->op[i];
        int attn = o->flops > 0;
        read[attn] += o->bytes / r->probe_gbps;
        calc[attn] += o->ops / gops_peak + (attn ? o->flops / r->attn_gops_peak : 0);
    }
    return BASE_MAX(read[0], calc[0]) + BASE_MAX(read[1], calc[1]);
}

/* The steps of a device with a time of its own; NULL: there is none. */
static const sl_op_stat *device_steps(const struct bench *b)
{
    for (int i = 0; i < b->n_op; i++)
        if (strcmp(b->op[i].name, "(step)") == 0) return &b->op[i];
    return NULL;
}

static sl_status measure(struct bench *b, const struct test *t, struct result *r, sl_err *err)
{
    static double tps[REPEAT_MAX], ms[REPEAT_MAX];
    static double probe_gbps[REPEAT_MAX];
    double tok, s, gops_peak = 0, attn_peak = 0;
    int n_step, n = b->o->r;
    uint64_t start = b->rng;
    SL_TRY(once(b, t, &tok, &s, &n_step, err)); /* warm-up */
    for (int i = 0; i < n; i++) {
        sl_probe_result p;
        sl_probe(b->c.e, 60, &p);
        probe_gbps[i] = p.read_gbps;
        double attn_gops = sl_probe_attn(b->c.e, 60);
        gops_peak = BASE_MAX(gops_peak, p.int8_gops);
        attn_peak = BASE_MAX(attn_peak, attn_gops);
        if (!t->prefill && t->depth > 0) b->rng = start; /* the same contexts */
        SL_TRY(once(b, t, &tok, &s, &n_step, err));
        tps[i] = tok / s;
        ms[i] = s * 1e3 / n_step;
        cmd_progress_count(&b->c.progress, t->prefill ? "prefill" : "decode", "repeats", i + 1, n);
    }
    cmd_progress_end(&b->c.progress);
    qsort(tps, (size_t)n, sizeof *tps, compute_by_value);
    qsort(ms, (size_t)n, sizeof *ms, compute_by_value);
    qsort(probe_gbps, (size_t)n, sizeof *probe_gbps, compute_by_value);
    *r = (struct result){.tps = tps[(n - 1) / 2], /* of an even number the same run as ms's */
                         .tps_min = tps[0],
                         .tps_max = tps[n - 1],
                         .ms_per_step = ms[n / 2],
                         .probe_gbps = probe_gbps[n / 2],
                         .rss_mb = (double)os_rss_now() * 1e-6};
    const sl_op_stat *steps = device_steps(b);
    r->device_ms = steps && steps->n_call ? (double)steps->ns * 1e-6 / (double)steps->n_call : NAN;
    double bytes = 0,
           ops = 0; /* counted: of matrices in use only, the head only where logits are */
    for (int i = 0; i < b->n_op; i++) {
        bytes += b->op[i].bytes;
        ops += b->op[i].ops;
        r->attn_gflop_per_step += b->op[i].flops / n_step * 1e-9;
    }
    r->attn_gops_peak = attn_peak;
    r->probe_gops = gops_peak;
    r->bytes_per_step = t->prefill ? NAN : bytes / n_step;
    r->gbps = r->bytes_per_step / r->ms_per_step * 1e-6;
    r->pct_bandwidth = 100 * r->gbps / r->probe_gbps;
    r->gops = ops / n_step / r->ms_per_step * 1e-6;
    r->pct_int8_peak = gops_peak > 0 ? 100 * r->gops / gops_peak : NAN;
    r->pct_limit = 100 * least_ns(b, r, gops_peak) / n_step * 1e-6 / r->ms_per_step;
    return SL_OK;
}

/* Operators of one step (--ops), the slowest first: time, weights read, products. */
static int by_time(const void *a, const void *b)
{
    int64_t x = ((const sl_op_stat *)a)->ns, y = ((const sl_op_stat *)b)->ns;
    return (x < y) - (x > y);
}

static void print_ops(struct bench *b, const struct result *r)
{
    double sum = 0;
    uint64_t n_step = 0;
    for (int i = 0; i < b->n_op; i++) {
        if (strcmp(b->op[i].name, "(step)") != 0) sum += (double)b->op[i].ns;
        if (strcmp(b->op[i].name, "embed") == 0) n_step = b->op[i].n_call;
    }
    qsort(b->op, (size_t)b->n_op, sizeof *b->op, by_time);
    for (int i = 0; i < b->n_op && b->op[i].n_call && n_step; i++) {
        const sl_op_stat *o = &b->op[i];
        double ns = (double)o->ns;
        if (strcmp(o->name, "(step)") == 0) {
            printf("    %-12s %8.3f ms/step: all of the device's time\n", o->name,
                   ns * 1e-6 / n_step);
            continue;
        }
        printf("    %-12s %8.3f ms/step %5.1f %%  %6.1f calls", o->name, ns * 1e-6 / n_step,
               100 * ns / sum, (double)o->n_call / n_step);
        if (o->bytes > 0)
            printf("  %6.1f GB/s, %3.0f %%", o->bytes / ns, 100 * o->bytes / ns / r->probe_gbps);
        if (o->ops > 0) printf("  %6.0f Gop/s", o->ops / ns);
        if (o->flops > 0)
            printf("  %6.0f Gflop/s, %3.0f %%", o->flops / ns,
                   100 * o->flops / ns / r->attn_gops_peak);
        printf("\n");
    }
}

static const char *test_name(const struct test *t, char *buf, size_t n)
{
    snprintf(buf, n, "%s%d", t->prefill ? "pp" : "tg", t->n);
    return buf;
}

/* What --json and --csv say of a result; NaN: nothing (bytes of a prompt; the time of a device that
 * there is not). */
#define N_FIELD 15
struct field {
    const char *key;
    int digits;
    double v;
};

static void list_fields(const struct result *r, struct field f[N_FIELD])
{
    const struct field all[N_FIELD] = {{"tps", 6, r->tps},
                                       {"tps_min", 6, r->tps_min},
                                       {"tps_max", 6, r->tps_max},
                                       {"ms_per_step", 6, r->ms_per_step},
                                       {"bytes_per_step", 15, r->bytes_per_step},
                                       {"gbps", 6, r->gbps},
                                       {"probe_gbps", 6, r->probe_gbps},
                                       {"probe_gops", 6, r->probe_gops},
                                       {"pct_bandwidth", 6, r->pct_bandwidth},
                                       {"gops", 6, r->gops},
                                       {"pct_int8_peak", 6, r->pct_int8_peak},
                                       {"attn_gflop_per_step", 6, r->attn_gflop_per_step},
                                       {"attn_gops_peak", 6, r->attn_gops_peak},
                                       {"pct_limit", 6, r->pct_limit},
                                       {"device_ms_per_step", 6, r->device_ms}};
    memcpy(f, all, sizeof all);
}

static void put_stream(struct json_w *w, const sl_engine_info *ei)
{
    text_jw_key(w, "stream_from");
    text_jw_int(w, ei->stream_from);
    text_jw_key(w, "stream_bytes");
    text_jw_int(w, ei->stream_bytes);
    text_jw_key(w, "stream_bus_gbps");
    text_jw_real(w, ei->stream_bus_gbps, 4);
    text_jw_key(w, "stream_cpu_gops");
    text_jw_real(w, ei->stream_cpu_gops, 4);
}

static void put_json(struct json_w *w, const struct bench *b, const struct test *t,
                     const struct result *r)
{
    char name[32];
    struct field f[N_FIELD];
    list_fields(r, f);
    text_jw_obj(w);
    text_jw_key(w, "test");
    text_jw_strz(w, test_name(t, name, sizeof name));
    text_jw_key(w, "batch");
    text_jw_int(w, t->batch);
    text_jw_key(w, "depth");
    text_jw_int(w, t->depth);
    for (int i = 0; i < N_FIELD; i++) {
        text_jw_key(w, f[i].key);
        text_jw_real(w, f[i].v, f[i].digits);
    }
    text_jw_key(w, "threads");
    text_jw_int(w, b->c.ei.n_thread);
    if (b->o->common.stream_from) put_stream(w, &b->c.ei);
    text_jw_key(w, "model");
    text_jw_strz(w, b->c.mi.name);
    text_jw_key(w, "rss_mb");
    text_jw_real(w, r->rss_mb, 6);
    text_jw_obj_end(w);
}

static void print_row(const struct test *t, const struct result *r)
{
    char name[32];
    printf("%-8s batch %3d depth %6d  %9.1f tok/s (%.1f .. %.1f)  %8.2f ms/step",
           test_name(t, name, sizeof name), t->batch, t->depth, r->tps, r->tps_min, r->tps_max,
           r->ms_per_step);
    if (!isnan(r->gbps))
        printf("  %6.1f GB/s, %.0f %% of %.1f", r->gbps, r->pct_bandwidth, r->probe_gbps);
    printf("  %.0f Gop/s, %.0f %% of peak  %.0f %% of the limit\n", r->gops, r->pct_int8_peak,
           r->pct_limit);
    fflush(stdout);
}

static void put_csv(struct str *s, const struct bench *b, const struct test *t,
                    const struct result *r)
{
    char name[32];
    struct field f[N_FIELD];
    list_fields(r, f);
    if (s->n == 0) {
        str_puts(s, "test,batch,depth,");
        for (int i = 0; i < N_FIELD; i++)
            str_printf(s, "%s,", f[i].key);
        str_puts(s, "threads,model,rss_mb\n");
    }
    str_printf(s, "%s,%d,%d,", test_name(t, name, sizeof name), t->batch, t->depth);
    for (int i = 0; i < N_FIELD; i++)
        if (isnan(f[i].v))
            str_putc(s, ',');
        else
            str_printf(s, "%.*g,", f[i].digits, f[i].v);
    str_printf(s, "%d,\"", b->c.ei.n_thread);
    for (const char *p = b->c.mi.name; *p; p++) {
        if (*p == '"') str_putc(s, '"');
        str_putc(s, *p);
    }
    str_printf(s, "\",%.6g\n", r->rss_mb);
}

static void put_bar(struct chart_bar *bar, const struct test *t, const struct result *r)
{
    char name[32];
    snprintf(bar->label, sizeof bar->label, "%s, batch %d, depth %d",
             test_name(t, name, sizeof name), t->batch, t->depth);
    snprintf(bar->note, sizeof bar->note, "%.1f tok/s, %.0f %% of the limit", r->tps, r->pct_limit);
    bar->v = r->tps;
}

/* The tests in order; returns how many. */
static int list_tests(const struct bench_opts *o, struct test *t, int cap)
{
    int n = 0;
    for (int d = 0; d < o->d.n; d++) {
        for (int i = 0; i < o->p.n; i++)
            if (o->p.v[i] > 0 && n < cap) t[n++] = (struct test){true, o->p.v[i], 1, o->d.v[d]};
        for (int i = 0; i < o->b.n; i++)
            if (o->n > 0 && n < cap) t[n++] = (struct test){false, o->n, o->b.v[i], o->d.v[d]};
    }
    return n;
}

static sl_status run_tests(struct bench *b, const struct test *t, int n, sl_err *err)
{
    static struct chart_bar bar[TEST_MAX];
    struct str json, csv;
    struct json_w w;
    sl_status st = SL_OK;
    str_init(&json, MEM_MISC, 0);
    str_init(&csv, MEM_MISC, 0);
    text_jw_init(&w, &json);
    text_jw_arr(&w);
    for (int i = 0; i < n && !st; i++) {
        struct result r;
        st = measure(b, &t[i], &r, err);
        if (st) break;
        put_json(&w, b, &t[i], &r);
        put_csv(&csv, b, &t[i], &r);
        put_bar(&bar[i], &t[i], &r);
        if (b->o->common.json) continue;
        print_row(&t[i], &r);
        if (b->o->ops) print_ops(b, &r);
    }
    text_jw_arr_end(&w);
    if (!st && b->o->common.json) st = compute_print(&json, err);
    if (!st && b->o->csv) st = str_status(&csv, err);
    if (!st && b->o->csv) st = os_write_file(b->o->csv, csv.p, csv.n, err);
    if (!st && b->o->svg) st = chart_write(b->o->svg, "Tokens per second", bar, n, err);
    str_fini(&json);
    str_fini(&csv);
    return st;
}

static int32_t default_prompt[] = {512};

static int check_lists(const struct bench_opts *o)
{
    for (int i = 0; i < o->p.n; i++)
        if (o->p.v[i] < 0 || o->p.v[i] > 1 << 24)
            return cmd_usage("bad value: --prompt %d: from 0 to %d", o->p.v[i], 1 << 24);
    for (int i = 0; i < o->d.n; i++)
        if (o->d.v[i] < 0 || o->d.v[i] > 1 << 24)
            return cmd_usage("bad value: --depth %d: from 0 to %d", o->d.v[i], 1 << 24);
    for (int i = 0; i < o->b.n; i++)
        if (o->b.v[i] < 1 || o->b.v[i] > BATCH_MAX)
            return cmd_usage("bad value: --batch %d: from 1 to 1024", o->b.v[i]);
    return CMD_OK;
}

/* --draft; true: *rc is the result. */
static bool drafts(const struct bench_opts *o, int *rc)
{
    const struct bench_draft_opts d = {o->b, o->d, o->n, o->r, o->temp, o->prompts, o->json_schema};
    sl_err err = {0};
    bool on = strcmp(compute_draft_source(&o->common), "off") != 0, deep = o->d.n != 1 || o->d.v[0];
    const struct opt_common *c = &o->common;
    if (!on && !o->prompts && !o->json_schema && o->temp < 0 && !c->draft_max && !c->draft_vocab &&
        !c->draft_model)
        return false;
    if (!on)
        *rc = cmd_usage("--prompts, --temp and other options of --draft: with --draft only");
    else if (o->p.v != default_prompt || o->ops || o->csv || o->svg || o->common.expert_stats)
        *rc = cmd_usage("--draft: not with -p, --ops, --csv, --svg or --expert-stats");
    else if (o->json_schema && !o->prompts)
        *rc = cmd_usage("--json-schema: with --prompts only");
    else if (o->prompts && deep)
        *rc = cmd_usage("--prompts: not with -d");
    else if (o->n < 2)
        *rc = cmd_usage("--draft: -n %d: at least 2", o->n);
    else if (!(*rc = check_lists(o)))
        *rc = bench_draft(&o->common, &d, &err) ? cmd_fail(&err) : CMD_OK;
    return true;
}

/* The first option about drafts that is given; NULL = none. */
static const char *draft_option(const struct bench_opts *o)
{
    const struct opt_common *c = &o->common;
    if (strcmp(compute_draft_source(c), "off") != 0) return c->draft ? "draft" : "draft-model";
    if (o->prompts) return "prompts";
    if (o->json_schema) return "json-schema";
    if (o->temp >= 0) return "temp";
    if (c->draft_vocab_from) return "draft-vocab-from";
    return c->draft_max ? "draft-max" : c->draft_vocab ? "draft-vocab" : NULL;
}

/* What is not given, and the commands inside this one; true: *rc is the result. */
static bool other(struct bench_opts *o, int *rc)
{
    bool lists = o->p.n || o->b.n || o->n >= 0, deep = o->d.n != 1 || o->d.v[0];
    static int32_t one[] = {1}, work[] = {96, 8};
    const struct bench_files f = {o->csv, o->svg};
    sl_err err = {0};
    if (o->n < 0) o->n = o->ablation ? 32 : 64;
    if (!o->p.n) o->p = (struct opt_ints){o->ablation ? work : default_prompt, 1};
    if (!o->b.n) o->b = (struct opt_ints){o->ablation ? work + 1 : one, 1};
    if (!o->kernels && !o->ablation && !o->replay) return drafts(o, rc);
    const char *draft = draft_option(o);
    if (draft && o->replay)
        *rc = cmd_usage("--%s: not with --replay: the drafts are those of the recording", draft);
    else if (draft)
        *rc = cmd_usage("--%s: not with --kernels or --ablation", draft);
    else if (!!o->kernels + o->ablation + !!o->replay > 1)
        *rc = cmd_usage("--kernels, --ablation and --replay: give one of them");
    else if (o->replay && (lists || deep || o->csv || o->svg || o->ops || o->common.expert_stats))
        *rc = cmd_usage("--replay: not with -p, -n, -b, -d, --ops, --csv, --svg or --expert-stats");
    else if (o->kernels && place_asked(&o->common))
        *rc = cmd_usage("--kernels: products alone are on one device: without --place");
    else if (o->kernels && (o->common.layout || o->common.defer))
        *rc = cmd_usage("--kernels: not with --layout or --defer");
    else if (o->kernels && (lists || deep || o->common.expert_stats))
        *rc = cmd_usage("--kernels: not with -p, -n, -b, -d or --expert-stats");
    else if (o->ablation && (o->p.n != 1 || o->b.n != 1 || deep || o->common.expert_stats))
        *rc = cmd_usage("--ablation: one -p, one -n and one -b, without -d and --expert-stats");
    else {
        sl_status st = o->replay ? bench_replay(&o->common, o->replay, &err)
                       : o->kernels
                           ? bench_kernels(&o->common, o->kernels, &f, &err)
                           : bench_ablation(&o->common, o->b.v[0], o->p.v[0], o->n, &f, &err);
        *rc = !st                              ? CMD_OK
              : st == SL_REQUEST && !o->replay ? cmd_usage("%s", err.text)
                                               : cmd_fail(&err);
    }
    return true;
}

/* From how many tokens on prompts are streamed, and what that was measured by. */
static void print_stream(const sl_engine_info *ei)
{
    if (ei->stream_from)
        fprintf(stderr, "stream-from: %d tokens: %.3g GB a step", ei->stream_from,
                (double)ei->stream_bytes * 1e-9);
    else
        fprintf(stderr, "stream-from: in no step");
    if (ei->stream_cpu_gops > 0)
        fprintf(stderr, "; tried: %.3g GB/s on the bus, %.3g Gop/s on the CPU",
                ei->stream_bus_gbps, ei->stream_cpu_gops);
    fputc('\n', stderr);
}

static int run(struct cmd_ctx *x)
{
    struct bench_opts *o = x->opts;
    int rc;
    if (o->ops && (o->common.json || o->kernels || o->ablation))
        return cmd_usage("--ops: not with --json, --kernels or --ablation");
    if ((rc = cmd_can_write("csv", o->csv)) || (rc = cmd_can_write("svg", o->svg))) return rc;
    if (other(o, &rc)) return rc;
    struct bench b = {.o = o, .rng = o->common.seed + 1};
    struct test t[TEST_MAX];
    sl_err err = {0};
    void *p = NULL;
    int longest = 1, batch = 1;
    int64_t kv = 0;
    bool deep = false; /* contexts come from the prefix tree */
    if ((rc = check_lists(o))) return rc;
    int n = list_tests(o, t, BASE_COUNT_OF(t));
    if (n == 0) return cmd_usage("nothing to measure: -p or -n: give one above 0");
    for (int i = 0; i < n; i++) {
        int len = t[i].prefill ? t[i].depth + t[i].n + 1
                               : BASE_MAX(t[i].depth, 1) + t[i].n + 2 + spare(&t[i]);
        longest = BASE_MAX(longest, len);
        batch = BASE_MAX(batch, t[i].batch);
        deep = deep || t[i].depth > 0;
        kv = BASE_MAX(kv, (int64_t)t[i].batch * (len + 64));
    }
    /* One step reads what the tree does not have of all sequences' contexts, less than a block
     * each: they begin together. */
    int rest = deep ? BASE_MIN(32 * batch, 4096) : 1;
    int stream = 0, chunk = o->common.chunk;
    if (place_stream(&o->common, &stream, &err)) return cmd_fail(&err);
    if (!chunk) chunk = stream ? STREAM_CHUNK : 512;
    sl_engine_opts eo = {.n_seq_max = batch,
                         .n_ctx = BASE_MAX(BASE_MAX(longest, rest), o->common.ctx),
                         .kv_tokens = BASE_MAX(kv, rest),
                         .n_chunk = BASE_MAX(chunk, rest),
                         .no_reuse = !deep,
                         .layout = "auto"};
    sl_status st = compute_open(&b.c, &o->common, &eo, &err);
    if (st) return cmd_fail(&err);
    if (stream && !o->common.quiet) print_stream(&b.c.ei);
    st = mem_alloc_array(MEM_MISC, (size_t)longest, sizeof *b.ids, &p, &err);
    b.ids = p;
    if (!st) st = run_tests(&b, t, n, &err);
    if (!st) st = compute_experts(&b.c, &o->common, &err);
    mem_free(b.ids);
    compute_close(&b.c);
    return st ? cmd_fail(&err) : CMD_OK;
}

const struct cmd cmd_bench = {
    .name = "bench",
    .summary = "speed of prompts and answers, beside what the machine can do",
    .usage = "[-m MODEL] [-p 512,2048] [-n 64] [-b 1,2,4] [-d 0,4096] [-r 5] [options] | "
             "--ablation | --kernels TYPE",
    .about = "Random tokens through the engine alone. One line per test; --json an array.",
    .example = "sluice bench -p 512 -n 64 -b 1,8",
    .opts = opts,
    .opts_bytes = sizeof(struct bench_opts),
    .run = run,
};
