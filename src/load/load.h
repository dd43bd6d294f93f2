/* SPDX-License-Identifier: Apache-2.0 */
/* Measure an OpenAI server from outside: requests by closed loop, at a rate, or from a trace; what
 * each of them saw; tables and charts.
 *
 * Definitions (those of evalscope perf):
 *   TTFT     from sending the request to the first piece of the answer (a role alone is none);
 *            without streaming: the latency
 *   latency  from sending the request to the last event with data (the one with the usage; not
 *            [DONE]); without streaming: to the end of the answer
 *   TPOT     (latency - TTFT) / (output tokens - 1), of answers with two tokens or more
 *   ITL      each gap between two pieces of an answer
 *   output tokens/s  output tokens of the successful requests / (last end - first start)
 *   means are over requests (ITL: over gaps), percentiles by nearest rank
 * Token counts are the server's `usage`, and the number of pieces where it reports none.
 */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

/* ---- what is sent ---- */
struct load_target {
    const char *url;   /* ".../v1/chat/completions", ".../v1/completions", or the server's root
                          ("http://127.0.0.1:8080") */
    const char *model; /* sent as "model" */
    const char *key;   /* NULL = none */
    bool chat;         /* chat completions; else completions */
    bool stream;
    bool insecure;
    double temperature;
    bool ignore_eos;   /* sent as ignore_eos and min_tokens where an output length is asked for */
    const char *extra; /* a JSON object whose members are added to every body; NULL */
    int timeout_ms;    /* of one request */
};
/* The full address for a target in buf: a root gets /v1/chat/completions or /v1/completions.
 * Errors: REQUEST, LIMIT. */
sl_status load_url(const struct load_target *t, char *buf, size_t n, sl_err *err) BASE_MUST_USE;

/* One request to come. */
struct load_item {
    int64_t at_ns;        /* since the start of the run, for traces; 0 = by the plan */
    const char *prompt;   /* text, UTF-8; or */
    const char *messages; /* JSON array, for chat; or */
    const char *ids;      /* JSON array of token ids, for completions */
    size_t n_prompt;
    int max_tokens; /* 0 = the server's default */
};

/* Gives the items in turn; i counts from 0 over the whole program. Everything lives until the next
 * call but one (the body is built at once). false: no more. */
struct load_source {
    bool (*next)(void *user, int64_t i, struct load_item *out);
    void *user;
};

/* ---- sources: item.c ---- */

/* Texts of about n words from a fixed word list, a different one for every (seed, i), after
 * n_prefix words that are the same for all. */
struct load_words {
    uint64_t seed;
    int n_prefix, n, max_tokens;
    bool in_turn; /* every word of the list equally often: to learn how many tokens a word has */
    struct str text;
};
/* n, n_prefix: words of a text; max_tokens: of its answer. */
void load_words_init(struct load_words *w, uint64_t seed, int n_prefix, int n, int max_tokens);
void load_words_fini(struct load_words *w);
/* next of struct load_source; never false. */
bool load_words_next(void *w, int64_t i, struct load_item *out);

/* A file: JSON lines {"prompt": "..." or ids}, {"ids": [...]} or {"messages": [...]} with optional
 * "max_tokens",
 * {"input_length": N, "output_length": N, "timestamp": ms, "hash_ids": [...]} (a trace: text is
 * made, one block of blk_tok tokens for each hash id, the same for the same id), or any other line
 * as a prompt by itself. Errors: FORMAT (file and line), IO, NOTFOUND, NOMEM. */
struct load_file {
    struct arena arena;
    struct load_item *item; /* [n] */
    int n;
    bool repeat; /* begin again at the end (not for traces) */
    bool timed;  /* the lines have timestamps */
};
struct load_file_opts {
    double words_per_token; /* for made text */
    int max_tokens;         /* where a line has none */
    double speed;           /* timestamps are divided by this */
    int64_t limit;          /* lines at most; 0 = all */
};
sl_status load_file_parse(struct load_file *f, const char *name, const char *p, size_t n,
                          const struct load_file_opts *o, sl_err *err) BASE_MUST_USE;
void load_file_fini(struct load_file *f);
/* next of struct load_source. */
bool load_file_next(void *f, int64_t i, struct load_item *out);

/* ---- what is measured ---- */

/* One request. Times in ns since the start of its level. */
struct load_rec {
    int64_t t_start, t_first, t_end;
    int n_in, n_out, n_cached; /* tokens */
    int n_piece;
    int http;
    bool ok;
    char why[96]; /* of a failure */
};

/* A level: parallel requests at a time until number are done (rate 0), or Poisson arrivals at rate
 * per second; number 0: for duration_s. */
struct load_level {
    int parallel;
    int64_t number;
    double rate, duration_s;
    bool timed; /* the items' own times (parallel and rate are not used) */
    uint64_t seed;
};

#define LOAD_N_PCT 9
extern const double load_pct[LOAD_N_PCT]; /* 1 5 10 25 50 75 90 95 99 */
struct load_dist {
    int64_t n;
    double mean, min, max, pct[LOAD_N_PCT];
};

struct load_result {
    struct load_level level;
    int64_t n, n_ok, n_in, n_out, n_cached;
    double seconds;
    struct load_dist ttft_ms, tpot_ms, itl_ms, latency_ms;
    double out_tps, total_tps, req_ps, in_mean, out_mean, tps_user; /* tps_user: 1000 / mean TPOT */
    double tok_per_piece; /* (out - 1) / (pieces - 1): 1 without speculation */
    char why[96];         /* the first failure; "" = none */
};

struct load_run; /* connections and records of a program run */
typedef struct load_run load_run;

/* tick: called about five times a second with requests done and planned (0 = by time); 1 = stop. */
sl_status load_open(const struct load_target *t,
                    int (*tick)(void *user, int64_t done, int64_t total), void *user,
                    load_run **out, sl_err *err) BASE_MUST_USE;
void load_close(load_run *r);
/* Run one level to its end. Requests that fail are counted, not errors. Errors: CANCELLED (tick),
 * IO when not a single request got an answer of any kind, NOMEM. */
sl_status load_level_run(load_run *r, const struct load_level *l, const struct load_source *s,
                         struct load_result *out, sl_err *err) BASE_MUST_USE;
/* One request by itself. */
sl_status load_one(load_run *r, const struct load_item *it, struct load_rec *out,
                   sl_err *err) BASE_MUST_USE;

/* ---- stat.c ---- */
/* Fill a distribution; v is sorted. Percentiles by nearest rank: the value at place ceil(p/100 n),
 * counted from 1, so each is a time that somebody saw. */
void load_dist_of(float *v, int64_t n, struct load_dist *out);
/* A percentile of a distribution by its number (one of load_pct); 0 = the mean. */
double load_dist_at(const struct load_dist *d, double pct);

/* ---- report.c ---- */
void load_table_head(struct str *s);
void load_table_row(struct str *s, const struct load_result *r);
void load_json(struct str *s, const struct load_target *t, const struct load_result *r, int n);
void load_csv(struct str *s, const struct load_target *t, const struct load_result *r, int n);
/* One file without links: tables, and charts of TTFT, TPOT and throughput over the levels as SVG.
 */
void load_html(struct str *s, const struct load_target *t, const struct load_result *r, int n);

#endif
