/* SPDX-License-Identifier: Apache-2.0 */
/* sluice load: measure any OpenAI server. Levels of concurrency or rate, one table row each; with
 * --sla-* the highest level that holds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "load/load.h"
#include "os/os.h"

#define LEVEL_MAX 64

struct load_cmd_opts {
    const char *url, *model, *key, *key_file, *extra, *dataset, *trace, *json, *csv, *html, *config;
    int api, input, output, prefix, timeout_s, warmup;
    struct opt_ints parallel, number;
    double rate, duration, sla_ttft, sla_tpot, sla_pct, temp, speed;
    uint64_t seed;
    bool stream, no_stream, eos, insecure, quiet;
};

#define INPUT 128 /* default: as in the row below */

// clang-format off
#define O(member) offsetof(struct load_cmd_opts, member)
static const struct opt opts[] = {
    {"url",       0,  OPT_STR,  O(url),      "URL",
     NULL, 0, 0, "the server, or its full completions address"},
    {"model",    'm', OPT_STR,  O(model),    "NAME", NULL, 0, 0, "sent as \"model\""},
    {"api",       0,  OPT_ENUM, O(api),      "chat|completions", "chat", 0, 0, "which route"},
    {"parallel",  0,  OPT_INTS, O(parallel), "1,2,4",
     NULL, 1, 16384, "requests at a time, a level each"},
    {"number",    0,  OPT_INTS, O(number),   "8,16,32",
     NULL, 1, 1e9, "requests of each level (default: 4 per place, 16 at least)"},
    {"rate",      0,  OPT_REAL, O(rate),     "R", "0",
     0, 1e6, "Poisson arrivals per second instead of --parallel"},
    {"duration",  0,  OPT_REAL, O(duration), "S", "0", 0, 1e7, "seconds of a level"},
    {"input-length", 0, OPT_INT, O(input),   "N", "128",
     1, 1 << 24, "prompt tokens, as the server counts them"},
    {"output-length", 0, OPT_INT, O(output), "N", "128",
     1, 1 << 24, "answer tokens (max_tokens, min_tokens, ignore_eos)"},
    {"allow-eos", 0,  OPT_FLAG, O(eos),      NULL, NULL, 0, 0, "answers may end by themselves"},
    {"prefix-length", 0, OPT_INT, O(prefix), "N", "0",
     0, 1 << 24, "tokens at the front that all prompts share"},
    {"dataset",   0,  OPT_STR,  O(dataset),  "FILE",
     NULL, 0, 0, "JSON lines with prompt or messages, or plain lines"},
    {"trace",     0,  OPT_STR,  O(trace),    "FILE",
     NULL, 0, 0, "JSON lines with timestamp, input_length, output_length, hash_ids"},
    {"speed",     0,  OPT_REAL, O(speed),    "X", "1", 1e-3, 1e6, "play a trace X times as fast"},
    {"stream",    0,  OPT_FLAG, O(stream),   NULL, NULL, 0, 0, "stream (the default)"},
    {"no-stream", 0,  OPT_FLAG, O(no_stream), NULL,
     NULL, 0, 0, "whole answers: TTFT is the latency"},
    {"sla-ttft",  0,  OPT_REAL, O(sla_ttft), "MS",
     "0", 0, 1e9, "find the highest level that keeps this TTFT"},
    {"sla-tpot",  0,  OPT_REAL, O(sla_tpot), "MS",
     "0", 0, 1e9, "find the highest level that keeps this TPOT"},
    {"sla-percentile", 0, OPT_REAL, O(sla_pct), "P",
     "99", 0, 99, "of both (50, 75, 90, 95, 99; 0: the mean)"},
    {"temp",      0,  OPT_REAL, O(temp),     "T", "0", 0, 2, "temperature"},
    {"extra-args", 0, OPT_STR,  O(extra),    "JSON", NULL, 0, 0, "members added to every request"},
    {"api-key",   0,  OPT_STR,  O(key),      "KEY",
     NULL, 0, 0, "sent as bearer token (better: --api-key-file)"},
    {"api-key-file", 0, OPT_STR, O(key_file), "FILE", NULL, 0, 0, "its first line is the key"},
    {"insecure",  0,  OPT_FLAG, O(insecure), NULL,
     NULL, 0, 0, "do not check the server's certificate"},
    {"warmup",    0,  OPT_INT,  O(warmup),   "N", "1",
     0, 10000, "requests before the first level that do not count"},
    {"timeout",   0,  OPT_INT,  O(timeout_s), "S", "600", 1, 86400, "of one request"},
    {"seed",      0,  OPT_U64,  O(seed),     "N", "0", 0, 0, "of prompts and arrivals"},
    {"json",      0,  OPT_STR,  O(json),     "FILE",
     NULL, 0, 0, "results as JSON (- is standard output)"},
    {"csv",       0,  OPT_STR,  O(csv),      "FILE", NULL, 0, 0, "results as CSV"},
    {"html",      0,  OPT_STR,  O(html),     "FILE", NULL, 0, 0, "tables and charts in one page"},
    {"config",    0,  OPT_STR,  O(config),   "FILE",
     NULL, 0, 0, "options from a JSON file {\"name\": value}"},
    {"quiet",    'q', OPT_FLAG, O(quiet),    NULL, NULL, 0, 0, "no progress"},
    {0},
};
// clang-format on
static const struct opt_pair pairs[] = {{"sla-percentile", "sla-ttft|sla-tpot"}, {0}};

struct job {
    const struct load_cmd_opts *o;
    struct load_target t;
    load_run *run;
    struct cmd_progress progress;
    struct load_source source;
    struct load_words words;
    struct load_file file;
    bool timed; /* the requests have times of their own */
    struct load_result res[LEVEL_MAX];
    int n;
    bool to_stdout; /* the table: not when JSON goes there */
};

static int tick(void *user, int64_t done, int64_t total)
{
    struct job *j = user;
    return cmd_progress_count(&j->progress, "load", "req", done, total) || cmd_stop;
}

static void show(struct job *j, const struct load_result *r)
{
    struct str s;
    cmd_progress_end(&j->progress);
    if (!j->to_stdout) return;
    str_init(&s, MEM_MISC, 0);
    if (j->n == 1) load_table_head(&s);
    load_table_row(&s, r);
    fputs(str_c(&s), stdout);
    fflush(stdout);
    str_fini(&s);
    if (r->n_ok < r->n)
        fprintf(stderr, "sluice: %lld of %lld requests failed: %s\n", (long long)(r->n - r->n_ok),
                (long long)r->n, r->why);
}

static sl_status level(struct job *j, const struct load_level *l, sl_err *err)
{
    if (j->n == LEVEL_MAX) return SL_FAIL(err, LIMIT, "more than %d levels", LEVEL_MAX);
    struct load_result *r = &j->res[j->n];
    SL_TRY(load_level_run(j->run, l, &j->source, r, err));
    j->n++;
    show(j, r);
    return SL_OK;
}

static bool holds(const struct job *j, const struct load_result *r)
{
    const struct load_cmd_opts *o = j->o;
    if (!r->n || r->n_ok < r->n) return false;
    if (o->sla_ttft > 0 && !(load_dist_at(&r->ttft_ms, o->sla_pct) <= o->sla_ttft)) return false;
    return !(o->sla_tpot > 0) || load_dist_at(&r->tpot_ms, o->sla_pct) <= o->sla_tpot;
}

static struct load_level level_at(const struct job *j, double x)
{
    const struct load_cmd_opts *o = j->o;
    struct load_level l = {.seed = o->seed, .duration_s = o->duration};
    if (o->rate > 0)
        l.rate = x;
    else
        l.parallel = (int)x;
    l.number =
        o->number.n ? BASE_MAX(o->number.v[0], (int64_t)l.parallel) : 0; /* every place is taken */
    if (!l.number && !(o->duration > 0)) l.number = BASE_MAX(16, (int64_t)(4 * x));
    return l;
}

/* The highest concurrency (or rate) that holds: doubling, then halving the gap down to 1 place or 5
 * %. */
static sl_status search(struct job *j, sl_err *err)
{
    bool by_rate = j->o->rate > 0;
    double good = 0, bad = 0, x = by_rate ? j->o->rate : j->o->parallel.n ? j->o->parallel.v[0] : 1;
    while (j->n < LEVEL_MAX) {
        struct load_level l = level_at(j, x);
        SL_TRY(level(j, &l, err));
        if (holds(j, &j->res[j->n - 1]))
            good = x;
        else
            bad = x;
        if (bad == 0 && x * 2 > 16384) break;
        if (bad == 0)
            x = good * 2;
        else if (good == 0 && !by_rate && bad <= 1)
            break;
        else if (good == 0)
            x = by_rate ? bad / 2 : floor(bad / 2);
        else if (bad - good <= (by_rate ? 0.05 * good : fmax(1, 0.05 * good)))
            break;
        else
            x = by_rate ? (good + bad) / 2 : floor((good + bad) / 2);
        if (by_rate && x < 1e-3) break;
    }
    if (good > 0)
        fprintf(j->to_stdout ? stdout : stderr, "highest %s that holds: %g\n",
                by_rate ? "rate" : "concurrency", good);
    else
        fprintf(j->to_stdout ? stdout : stderr, "no %s holds\n", by_rate ? "rate" : "concurrency");
    return SL_OK;
}

static sl_status probe_one(struct job *j, int n_words, int *n_tok, sl_err *err)
{
    struct load_words w;
    struct load_item it;
    struct load_rec rec;
    load_words_init(&w, 0, 0, n_words, 1);
    w.in_turn = true;
    load_words_next(&w, 0, &it);
    sl_status st = load_one(j->run, &it, &rec, err);
    load_words_fini(&w);
    if (!st && !rec.ok) st = SL_FAIL(err, IO, "%s: %s", j->o->url, rec.why);
    *n_tok = rec.n_in;
    return st;
}

/* How many words make the tokens that were asked for: two requests with every word equally often
 * tell the tokens of a word and those around the prompt. */
static sl_status calibrate(struct job *j, double *per_tok, double *around, sl_err *err)
{
    int a, b;
    *per_tok = 1;
    *around = 0;
    SL_TRY(probe_one(j, 64, &a, err));
    SL_TRY(probe_one(j, 128, &b, err));
    if (b <= a) return SL_OK; /* no usage reported: a word counts as a token */
    *per_tok = 64.0 / (b - a);
    *around = fmax(0, a - 64 / *per_tok);
    return SL_OK;
}

static sl_status open_source(struct job *j, sl_err *err)
{
    const struct load_cmd_opts *o = j->o;
    double per_tok = 1, around = 0;
    const char *path = o->trace ? o->trace : o->dataset;
    if (!path || o->trace) SL_TRY(calibrate(j, &per_tok, &around, err));
    if (!path) {
        int n = (int)lround((o->input - o->prefix - around) * per_tok);
        load_words_init(&j->words, o->seed, (int)lround(o->prefix * per_tok), BASE_MAX(n, 1),
                        o->output);
        j->source = (struct load_source){load_words_next, &j->words};
        return SL_OK;
    }
    char *text;
    uint64_t n;
    SL_TRY(os_read_once(path, (uint64_t)1 << 31, &text, &n, err));
    struct load_file_opts fo = {
        .words_per_token = o->trace ? per_tok : 1, .max_tokens = o->output, .speed = o->speed};
    sl_status st = load_file_parse(&j->file, path, text, n, &fo, err);
    mem_free(text);
    SL_TRY(st);
    j->timed = j->file.timed;
    j->source = (struct load_source){load_file_next, &j->file};
    if (o->trace && !j->timed)
        return SL_FAIL(err, FORMAT, "%s: no line has a timestamp: use --dataset", path);
    return SL_OK;
}

static sl_status levels(struct job *j, sl_err *err)
{
    const struct load_cmd_opts *o = j->o;
    if (o->sla_ttft > 0 || o->sla_tpot > 0) return search(j, err);
    if (j->timed) {
        struct load_level l = {
            .number = j->file.n, .duration_s = o->duration, .timed = true, .seed = o->seed};
        return level(j, &l, err);
    }
    if (o->rate > 0) {
        struct load_level l = level_at(j, o->rate);
        return level(j, &l, err);
    }
    for (int i = 0; i < o->parallel.n; i++) {
        struct load_level l = level_at(j, o->parallel.v[i]);
        if (o->number.n) l.number = o->number.v[BASE_MIN(i, o->number.n - 1)];
        SL_TRY(level(j, &l, err));
    }
    return SL_OK;
}

static sl_status warm(struct job *j, sl_err *err)
{
    struct load_result r;
    struct load_level l = {.parallel = BASE_MIN(j->o->warmup, 8), .number = j->o->warmup};
    if (!l.number || j->timed) return SL_OK;
    return load_level_run(j->run, &l, &j->source, &r, err);
}

static sl_status write_out(const char *path,
                           void (*put)(struct str *, const struct load_target *,
                                       const struct load_result *, int),
                           struct job *j, sl_err *err)
{
    struct str s;
    if (!path) return SL_OK;
    str_init(&s, MEM_MISC, 0);
    put(&s, &j->t, j->res, j->n);
    sl_status st = str_status(&s, err);
    if (!st && !strcmp(path, "-"))
        fputs(str_c(&s), stdout);
    else if (!st)
        st = os_write_file(path, str_c(&s), s.n, err);
    str_fini(&s);
    return st;
}

static sl_status read_key(struct cmd_ctx *c, struct load_target *t, const char *path, sl_err *err)
{
    char *text, *copy;
    uint64_t n;
    SL_TRY(os_read_once(path, 65536, &text, &n, err));
    sl_status st = mem_arena_str(&c->arena, text, strcspn(text, "\r\n"), &copy, err);
    mem_free(text);
    if (!st) t->key = copy;
    return st;
}

static const char *below_one(const struct load_cmd_opts *o)
{
    for (int i = 0; i < o->parallel.n; i++)
        if (o->parallel.v[i] < 1 || o->parallel.v[i] > 16384) return "parallel";
    for (int i = 0; i < o->number.n; i++)
        if (o->number.v[i] < 1) return "number";
    return NULL;
}

static bool is_known_percentile(double p)
{
    for (int k = 0; k < LOAD_N_PCT; k++)
        if (load_pct[k] == p) return true;
    return p == 0; /* the mean */
}

static int usage(const struct load_cmd_opts *o)
{
    const char *low = below_one(o);
    if (!is_known_percentile(o->sla_pct))
        return cmd_usage(
            "--sla-percentile %g: one of 1, 5, 10, 25, 50, 75, 90, 95, 99, or 0 for the mean",
            o->sla_pct);
    if (low) return cmd_usage("--%s: a value is out of range (1 and more)", low);
    if (!o->url) return cmd_usage("load needs --url URL");
    if (!o->model) return cmd_usage("load needs --model NAME");
    if (o->dataset && o->trace) return cmd_usage("--dataset and --trace: one of them");
    if (o->stream && o->no_stream) return cmd_usage("--stream and --no-stream: one of them");
    if (o->rate > 0 && o->parallel.n) return cmd_usage("--parallel and --rate: one of them");
    if (o->rate > 0 && !o->number.n && !(o->duration > 0))
        return cmd_usage("--rate needs --duration or --number");
    bool sla = o->sla_ttft > 0 || o->sla_tpot > 0;
    if (!o->parallel.n && !(o->rate > 0) && !o->trace && !sla)
        return cmd_usage("load needs --parallel, --rate, --trace or --sla-*");
    if (o->number.n > 1 && o->number.n != o->parallel.n)
        return cmd_usage("--number has %d values, --parallel %d", o->number.n, o->parallel.n);
    if (o->prefix >= o->input) return cmd_usage("--prefix-length must be below --input-length");
    if ((o->dataset || o->trace) && (o->prefix || o->input != INPUT))
        return cmd_usage("--%s-length: not with --%s, which has prompts of its own",
                         o->prefix ? "prefix" : "input", o->dataset ? "dataset" : "trace");
    if (!o->trace && o->speed != 1) return cmd_usage("--speed: of a trace: --trace FILE");
    if (o->trace && sla) return cmd_usage("--trace has its own times: no --sla-* search");
    if (o->trace && (o->parallel.n || o->rate > 0 || o->number.n))
        return cmd_usage("--trace has its own times: without --%s", o->parallel.n ? "parallel"
                                                                    : o->rate > 0 ? "rate"
                                                                                  : "number");
    return 0;
}

static int run(struct cmd_ctx *c)
{
    const struct load_cmd_opts *o = c->opts;
    sl_err err;
    int bad = usage(o);
    if (bad || (bad = cmd_can_write("json", o->json)) || (bad = cmd_can_write("csv", o->csv)) ||
        (bad = cmd_can_write("html", o->html)))
        return bad;
    cmd_signals_sockets();
    struct job *j;
    if (mem_alloc_array(MEM_MISC, 1, sizeof *j, (void **)&j, &err)) return cmd_fail(&err);
    j->o = o;
    j->to_stdout = !(o->json && !strcmp(o->json, "-"));
    j->t = (struct load_target){.url = o->url,
                                .model = o->model,
                                .key = o->key,
                                .chat = o->api == 0,
                                .stream = !o->no_stream,
                                .insecure = o->insecure,
                                .temperature = o->temp,
                                .ignore_eos = !o->eos,
                                .extra = o->extra,
                                .timeout_ms = o->timeout_s * 1000};
    cmd_progress_init(&j->progress, o->quiet);
    sl_status st = SL_OK;
    if (o->key_file) st = read_key(c, &j->t, o->key_file, &err);
    if (!st) st = load_open(&j->t, tick, j, &j->run, &err);
    if (!st) st = open_source(j, &err);
    if (!st) st = warm(j, &err);
    if (!st) st = levels(j, &err);
    cmd_progress_end(&j->progress);
    sl_err werr;
    sl_status wst = write_out(o->json, load_json, j, &werr);
    if (!wst) wst = write_out(o->csv, load_csv, j, &werr);
    if (!wst) wst = write_out(o->html, load_html, j, &werr);
    int64_t failed = 0;
    for (int i = 0; i < j->n; i++)
        failed += j->res[i].n - j->res[i].n_ok;
    load_words_fini(&j->words);
    load_file_fini(&j->file);
    load_close(j->run);
    mem_free(j);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    if (wst) return cmd_fail(&werr);
    return cmd_flush(failed ? CMD_FAILED : CMD_OK);
}

const struct cmd cmd_load = {
    .name = "load",
    .summary = "measure any OpenAI server: TTFT, TPOT, throughput",
    .usage = "--url URL --model NAME (--parallel 1,2,4 [--number 8,16,32] | --rate R --duration S "
             "| --trace FILE | --sla-ttft MS)",
    .about = "Sends chat or text completions with prompts of a given length and prints a row of "
             "figures for each level.\n"
             "Exit code 1 when a request failed.",
    .example = "sluice load --url http://127.0.0.1:8080 --model demo --parallel 1,4,16 --number "
               "8,16,32 --html load.html",
    .opts = opts,
    .pairs = pairs,
    .opts_bytes = sizeof(struct load_cmd_opts),
    .run = run,
};
