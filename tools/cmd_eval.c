/* SPDX-License-Identifier: Apache-2.0 */
/* sluice eval: perplexity and bits per byte of a text, KL divergence against saved logits, or the
 * raw logits of given ids.
 *
 * A text is read in windows of ctx tokens that begin stride tokens apart. The row after token i
 * predicts token i+1; every token but the first is counted once, in the first window that predicts
 * it. Where the model's files wish a BOS, each window begins with it, so that the first token is
 * counted too. Bits per byte are over all bytes: a first token without BOS costs log2(V) bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "compute.h"
#include "eval_experts.h"
#include "os/os.h"

struct eval_opts {
    struct opt_common common;
    const char *file, *save_base, *base, *ids_file, *dump;
    struct opt_ints ids;
    int chunks, stride, experts;
};

// clang-format off
static const struct opt opts[] = {
    {"file",    'f', OPT_STR,  offsetof(struct eval_opts, file),
     "FILE", NULL, 0, 0, "the text (- is standard input)"},
    {"chunks",   0,  OPT_INT,  offsetof(struct eval_opts, chunks),
     "N", "0", 0, 1 << 30, "at most N windows (0: all)"},
    {"stride",   0,  OPT_INT,  offsetof(struct eval_opts, stride),
     "N", "0", 0, 1 << 24, "tokens between windows (0: as --ctx)"},
    {"save-base",0,  OPT_STR,  offsetof(struct eval_opts, save_base),
     "FILE", NULL, 0, 0, "write the log probabilities, for --base"},
    {"base",     0,  OPT_STR,  offsetof(struct eval_opts, base),
     "FILE", NULL, 0, 0, "KL divergence from a file of --save-base"},
    {"ids",      0,  OPT_INTS, offsetof(struct eval_opts, ids),
     "1,2,3", NULL, 0, 0, "token ids, for --dump-logits"},
    {"ids-file", 0,  OPT_STR,  offsetof(struct eval_opts, ids_file),
     "FILE", NULL, 0, 0, "token ids in a file"},
    {"dump-logits", 0, OPT_STR, offsetof(struct eval_opts, dump),
     "FILE", NULL, 0, 0, "write logits [T, V] as raw f32"},
    {"experts", 0,   OPT_FLAG, offsetof(struct eval_opts, experts),
     NULL, NULL, 0, 0, "how many experts 1 to 5 tokens in a row read (one token a step)"},
    OPT_ROWS_EXPERTS(struct eval_opts),
    OPT_ROWS_MODEL(struct eval_opts),
    {"threads", 't', OPT_INT,  offsetof(struct eval_opts, common.threads),
     "N", "0", 0, OPT_THREADS_MAX, "worker threads (0: physical cores)"},
    {"ctx",     'c', OPT_INT,  offsetof(struct eval_opts, common.ctx),
     "N", "512", 2, 1 << 24, "tokens of a window"},
    OPT_ROWS_LAYOUT(struct eval_opts),
    OPT_ROWS_ENGINE(struct eval_opts),
    {0},
};
// clang-format on

#define BASE_MAGIC "SLKLB001"
struct base_head {
    char magic[8];
    uint64_t ids_hash; /* of all ids and the window sizes */
    int64_t n_row;
    int32_t n_vocab, pad;
};

struct eval {
    struct compute c;
    const struct eval_opts *o;
    int32_t *ids;   /* the text's, without BOS */
    int n_ids, bos; /* bos: -1 = none */
    int ctx, stride;
    int32_t *window; /* [ctx] ids of the window under way */
    /* the window under way: row r predicts text id first + r */
    int first, n_row_text;
    /* sums */
    int64_t n; /* tokens counted */
    double nll, nll2;
    int64_t bytes_to; /* text ids counted are [.., bytes_to) */
    /* base */
    struct os_out out;
    struct os_map in;
    int64_t row_at, n_row_in;
    double *kl; /* [n] */
    int64_t n_top1;
    sl_status st;
    sl_err err;
    int64_t n_total;
    struct eval_experts experts;
};

static double log_sum(const float *l, int n)
{
    float max = l[0];
    double z = 0;
    for (int i = 1; i < n; i++)
        if (l[i] > max) max = l[i];
    for (int i = 0; i < n; i++)
        z += exp((double)(l[i] - max));
    return (double)max + log(z);
}

static int argmax(const float *l, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (l[i] > l[best]) best = i;
    return best;
}

/* KL(base || here) of one row. */
static void compare(struct eval *v, const float *l, double lz)
{
    int n = v->c.mi.n_vocab;
    const float *b = (const float *)(v->in.data + sizeof(struct base_head)) + v->row_at * n;
    double kl = 0;
    for (int i = 0; i < n; i++)
        if (b[i] > -INFINITY) kl += exp((double)b[i]) * ((double)b[i] - ((double)l[i] - lz));
    v->kl[v->n] = kl > 0 ? kl : 0;
    v->n_top1 += argmax(l, n) == argmax(b, n);
    v->row_at++;
}

static int on_rows(void *user, int row0, int n_row, const float *logits)
{
    struct eval *v = user;
    int n_vocab = v->c.mi.n_vocab;
    for (int r = 0; r < n_row; r++) {
        int target = v->first + row0 + r;
        if (target >= v->n_row_text) break; /* past the text */
        const float *l = logits + (int64_t)r * n_vocab;
        double lz = log_sum(l, n_vocab), nll = lz - (double)l[v->ids[target]];
        if (v->o->base) compare(v, l, lz);
        if (v->o->save_base && !v->st)
            for (int i = 0; i < n_vocab && !v->st; i++) {
                float lp = (float)((double)l[i] - lz);
                v->st = os_out_write(&v->out, &lp, sizeof lp, &v->err);
            }
        v->n++;
        v->nll += nll;
        v->nll2 += nll * nll;
    }
    if (v->o->experts && !v->st) v->st = eval_experts_token(&v->experts, &v->err);
    cmd_progress_count(&v->c.progress, "eval", "tok", v->n, v->n_total);
    return v->st || cmd_stop;
}

/* One window from text id begin on; returns the first id that is not counted yet. */
static sl_status window(struct eval *v, int begin, int counted, sl_err *err)
{
    int n = 0, end = BASE_MIN(begin + v->ctx - (v->bos >= 0), v->n_ids);
    if (v->bos >= 0) v->window[n++] = v->bos;
    for (int i = begin; i < end; i++)
        v->window[n++] = v->ids[i];
    v->first = begin + 1 - (v->bos >= 0);
    v->n_row_text = BASE_MIN(v->first + n, v->n_ids);
    int first_row = counted - v->first;
    if (first_row >= n || counted >= v->n_ids) return SL_OK;
    if (v->o->experts) eval_experts_begin(&v->experts);
    sl_status st = sl_score(v->c.e, v->window, n, BASE_MAX(first_row, 0), on_rows, v, err);
    if (v->st) {
        if (err) *err = v->err;
        return v->st;
    }
    return st;
}

static sl_status open_base(struct eval *v, uint64_t hash, sl_err *err)
{
    struct base_head h = {
        .magic = BASE_MAGIC, .ids_hash = hash, .n_row = v->n_total, .n_vocab = v->c.mi.n_vocab};
    void *p = NULL;
    if (v->o->save_base) {
        SL_TRY(os_out_open(v->o->save_base, &v->out, err));
        SL_TRY(os_out_write(&v->out, &h, sizeof h, err));
    }
    if (!v->o->base) return SL_OK;
    struct base_head got;
    SL_TRY(os_map_open(v->o->base, &v->in, err));
    if (v->in.size < sizeof got)
        return SL_FAIL(err, FORMAT, "%s: %llu bytes: not a file of --save-base", v->o->base,
                       (unsigned long long)v->in.size);
    memcpy(&got, v->in.data, sizeof got);
    if (memcmp(got.magic, BASE_MAGIC, 8) != 0)
        return SL_FAIL(err, FORMAT, "%s: byte 0: not a file of --save-base", v->o->base);
    if (got.n_vocab != h.n_vocab || got.ids_hash != hash || got.n_row != h.n_row)
        return SL_FAIL(err, FORMAT, "%s: made from another text, tokenizer or window size",
                       v->o->base);
    if (v->in.size != sizeof got + (uint64_t)h.n_row * (uint64_t)h.n_vocab * 4)
        return SL_FAIL(err, FORMAT, "%s: %llu bytes: truncated", v->o->base,
                       (unsigned long long)v->in.size);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)v->n_total + 1, sizeof *v->kl, &p, err));
    v->kl = p;
    return SL_OK;
}

static sl_status windows(struct eval *v, int *n_done, sl_err *err)
{
    /* how many tokens will be counted */
    int counted = v->bos >= 0 ? 0 : 1, n_win = 0, last = counted;
    for (int begin = 0; begin < v->n_ids && (!v->o->chunks || n_win < v->o->chunks);
         begin += v->stride, n_win++) {
        int end = BASE_MIN(begin + v->ctx - (v->bos >= 0) + 1, v->n_ids);
        if (v->bos >= 0) end = BASE_MIN(begin + v->ctx, v->n_ids);
        last = BASE_MAX(last, end);
    }
    v->n_total = last - counted;
    if (v->n_total < 1)
        return SL_FAIL(err, REQUEST, "%s: too short: one token can not be scored", v->o->file);
    int32_t key[2] = {v->ctx, v->stride};
    uint64_t hash = hash_bytes(v->ids, (size_t)v->n_ids * sizeof *v->ids,
                               hash_bytes(key, sizeof key, (uint64_t)v->n_total));
    SL_TRY(open_base(v, hash, err));
    for (int begin = 0, i = 0; i < n_win; begin += v->stride, i++) {
        SL_TRY(window(v, begin, counted, err));
        counted = BASE_MAX(counted, BASE_MIN(begin + v->ctx + (v->bos < 0), v->n_ids));
    }
    *n_done = counted;
    return v->o->save_base ? os_out_commit(&v->out, err) : SL_OK;
}

static sl_status report(struct eval *v, int n_done, uint64_t n_bytes, double s, sl_err *err)
{
    char *text = NULL;
    size_t n_text = (size_t)n_bytes;
    if (n_done < v->n_ids) { /* bytes of the part that was counted */
        SL_TRY(sl_detokenize(v->c.m, v->ids, n_done, 1, &text, &n_text, err));
        sl_free(text);
    }
    double n = (double)v->n, mean = v->nll / n, ppl = exp(mean);
    double var = n > 1 ? (v->nll2 - v->nll * mean) / (n - 1) : 0;
    double se = ppl * sqrt(var > 0 ? var / n : 0);
    double bits = v->nll / log(2) + (v->bos < 0 ? log2(v->c.mi.n_vocab) : 0);
    double kl_mean = 0, kl_med = 0, kl_p99 = 0, kl_max = 0, top1 = 0;
    if (v->o->base) {
        qsort(v->kl, (size_t)v->n, sizeof *v->kl, compute_by_value);
        for (int64_t i = 0; i < v->n; i++)
            kl_mean += v->kl[i] / n;
        kl_med = v->kl[v->n / 2];
        kl_p99 = v->kl[(int64_t)(0.99 * (n - 1))];
        kl_max = v->kl[v->n - 1];
        top1 = 100 * (double)v->n_top1 / n;
    }
    if (v->o->common.json) {
        printf("{\"tokens\":%lld,\"nll\":%.9g,\"ppl\":%.9g,\"ppl_se\":%.6g,\"bits_per_byte\":%.9g,"
               "\"tps\":%.6g",
               (long long)v->n, v->nll, ppl, se, bits / (double)n_text, n / s);
        if (v->o->base)
            printf(",\"kl_mean\":%.6g,\"kl_median\":%.6g,\"kl_p99\":%.6g,\"kl_max\":%.6g,\"top1_"
                   "pct\":%.6g",
                   kl_mean, kl_med, kl_p99, kl_max, top1);
        if (v->o->experts) eval_experts_json(&v->experts);
        printf("}\n");
        return SL_OK;
    }
    printf("tokens         %lld\nperplexity     %.4f +- %.4f\nbits per byte  %.4f\ntokens/s       "
           "%.1f\n",
           (long long)v->n, ppl, se, bits / (double)n_text, n / s);
    if (v->o->base)
        printf("KL mean        %.6f\nKL median      %.6f\nKL 99 %%        %.6f\nKL max         "
               "%.6f\ntop-1 equal    %.3f %%\n",
               kl_mean, kl_med, kl_p99, kl_max, top1);
    if (v->o->experts) eval_experts_print(&v->experts);
    return SL_OK;
}

static sl_status eval_text(struct eval *v, sl_err *err)
{
    char *text = NULL;
    uint64_t n_bytes = 0;
    int n_done = 0;
    void *p = NULL;
    sl_status st = compute_read(v->o->file, &text, &n_bytes, err);
    if (st) return st;
    st = sl_tokenize(v->c.m, text, (size_t)n_bytes, 0, &v->ids, &v->n_ids, err);
    if (st) {
        status_prefix(err, "%.80s", v->o->file);
        goto out;
    }
    v->bos = v->c.mi.add_bos ? v->c.mi.bos : -1;
    v->ctx = v->c.ei.n_ctx;
    v->stride = v->o->stride ? v->o->stride : v->ctx;
    if (v->stride > v->ctx) {
        st = SL_FAIL(err, REQUEST,
                     "--stride %d: windows have %d tokens: those between two would be left out",
                     v->stride, v->ctx);
        goto out;
    }
    if (v->o->experts) SL_TRY_OUT(eval_experts_open(&v->experts, &v->c, err));
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)v->ctx, sizeof *v->window, &p, err));
    v->window = p;
    int64_t t0 = clock_now_ns();
    SL_TRY_OUT(windows(v, &n_done, err));
    cmd_progress_end(&v->c.progress);
    SL_TRY_OUT(report(v, n_done, n_bytes, (double)(clock_now_ns() - t0) * 1e-9, err));
    for (int q = 1; q <= EVAL_EXPERTS_MOST && v->experts.n[q - 1] > 0; q++)
        v->c.in_row[q - 1] = eval_experts_mean(&v->experts, q);
out:
    cmd_progress_end(&v->c.progress);
    os_out_abort(&v->out);
    if (v->in.data) os_map_close(&v->in);
    sl_free(v->ids);
    eval_experts_close(&v->experts);
    mem_free(v->window);
    mem_free(v->kl);
    mem_free(text);
    return st;
}

static int dump_rows(void *user, int row0, int n_row, const float *logits)
{
    struct eval *v = user;
    (void)row0;
    v->st = os_out_write(&v->out, logits,
                         (uint64_t)n_row * (uint64_t)v->c.mi.n_vocab * sizeof *logits, &v->err);
    return v->st || cmd_stop;
}

static sl_status dump(struct eval *v, const struct opt_ints *ids, sl_err *err)
{
    sl_status st = os_out_open(v->o->dump, &v->out, err);
    if (!st) st = sl_score(v->c.e, ids->v, ids->n, 0, dump_rows, v, err);
    if (v->st) {
        *err = v->err;
        st = v->st;
    }
    if (!st)
        st = os_out_commit(&v->out, err);
    else
        os_out_abort(&v->out);
    if (!st && v->o->common.json) printf("{\"tokens\":%d,\"vocab\":%d}\n", ids->n, v->c.mi.n_vocab);
    return st;
}

static int run(struct cmd_ctx *x)
{
    const struct eval_opts *o = x->opts;
    struct eval v = {.o = o};
    struct opt_ints ids = o->ids;
    sl_err err = {0};
    char *text = NULL;
    uint64_t n = 0;
    bool want_dump = o->ids.n || o->ids_file || o->dump;
    if (want_dump && !o->dump)
        return cmd_usage("--%s: goes with --dump-logits", o->ids.n ? "ids" : "ids-file");
    if (want_dump && (!!o->ids.n + !!o->ids_file != 1 || o->file))
        return cmd_usage("--dump-logits: goes with one of --ids and --ids-file, without -f");
    if (want_dump && (o->base || o->save_base || o->chunks || o->stride || o->experts))
        return cmd_usage("--%s: not with --dump-logits", o->base        ? "base"
                                                         : o->save_base ? "save-base"
                                                         : o->chunks    ? "chunks"
                                                         : o->experts   ? "experts"
                                                                        : "stride");
    if (!want_dump && !o->file) return cmd_usage("no text: -f FILE: or --ids with --dump-logits");
    if (o->base && o->save_base) return cmd_usage("--base and --save-base: give one of them");
    if (o->common.seed) return cmd_usage("--seed: eval draws nothing");
    if (o->ids_file) {
        if (compute_read(o->ids_file, &text, &n, &err)) return cmd_fail(&err);
        sl_status st = opt_ints_parse(o->ids_file, text, &x->arena, &ids, &err);
        mem_free(text);
        if (st) return cmd_fail(&err);
    }
    if (want_dump && ids.n == 0)
        return cmd_usage("%s: no token ids in it", o->ids_file ? o->ids_file : "--ids");
    sl_engine_opts eo = {.n_seq_max = 1,
                         .layout = "auto",
                         .n_ctx = BASE_MAX(o->common.ctx, want_dump ? ids.n : 0),
                         .n_chunk = o->experts}; /* one token a step, where they are counted */
    sl_status st = compute_open(&v.c, &o->common, &eo, &err);
    if (!st) {
        st = want_dump ? dump(&v, &ids, &err) : eval_text(&v, &err);
        if (!st) st = compute_experts(&v.c, &o->common, &err);
        compute_close(&v.c);
    }
    return st ? cmd_fail(&err) : CMD_OK;
}

const struct cmd cmd_eval = {
    .name = "eval",
    .summary = "perplexity, bits per byte, KL divergence, raw logits",
    .usage = "[-m MODEL] (-f FILE | --ids 1,2,3 --dump-logits FILE) [options]",
    .about = "Perplexity with its standard error, bits per byte over all bytes, tokens per second; "
             "with --base also the KL divergence.",
    .example = "sluice eval -f README.md --ctx 512 --json",
    .opts = opts,
    .opts_bytes = sizeof(struct eval_opts),
    .run = run,
};
