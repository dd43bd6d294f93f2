/* SPDX-License-Identifier: Apache-2.0 */
/* Results of load runs as a table, JSON and an HTML page with charts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "load/load.h"
#include "text/chart.h"
#include "text/html.h"
#include "text/json.h"

static void level_name(char *buf, size_t n, const struct load_result *r)
{
    if (r->level.rate > 0)
        snprintf(buf, n, "%g/s", r->level.rate);
    else if (r->level.parallel)
        snprintf(buf, n, "%d", r->level.parallel);
    else
        snprintf(buf, n, "trace");
}

void load_table_head(struct str *s)
{
    str_puts(s, "concurrency   input  output  requests    ok  TTFT s  p99   TPOT ms  p99     tok/s "
                "user  tok/s system  req/s  latency s\n");
}

void load_table_row(struct str *s, const struct load_result *r)
{
    char name[32];
    level_name(name, sizeof name, r);
    str_printf(
        s, "%11s %7.0f %7.0f %9lld %4.0f%% %7.3f %-7.3f %5.2f %-7.2f %10.2f %13.2f %6.2f %10.3f\n",
        name, r->in_mean, r->out_mean, (long long)r->n,
        r->n ? 100.0 * (double)r->n_ok / (double)r->n : 0.0, r->ttft_ms.mean * 1e-3,
        load_dist_at(&r->ttft_ms, 99) * 1e-3, r->tpot_ms.mean, load_dist_at(&r->tpot_ms, 99),
        r->tps_user, r->out_tps, r->req_ps, r->latency_ms.mean * 1e-3);
}

static void put(struct json_w *w, const char *key, double v)
{
    text_jw_key(w, key);
    text_jw_real(w, v, 7);
}

static void put_dist(struct json_w *w, const char *key, const struct load_dist *d)
{
    char name[24];
    text_jw_key(w, key);
    text_jw_obj(w);
    text_jw_key_int(w, "n", d->n);
    put(w, "mean", d->mean);
    put(w, "min", d->min);
    for (int k = 0; k < LOAD_N_PCT; k++) {
        snprintf(name, sizeof name, "p%g", load_pct[k]);
        put(w, name, d->pct[k]);
    }
    put(w, "max", d->max);
    text_jw_obj_end(w);
}

static void put_level(struct json_w *w, const struct load_result *r)
{
    text_jw_obj(w);
    text_jw_key_int(w, "concurrency", r->level.parallel);
    if (r->level.rate > 0) put(w, "rate", r->level.rate);
    text_jw_key_int(w, "requests", r->n);
    text_jw_key_int(w, "succeeded", r->n_ok);
    text_jw_key_int(w, "failed", r->n - r->n_ok);
    put(w, "success_rate", r->n ? (double)r->n_ok / (double)r->n : 0);
    put(w, "seconds", r->seconds);
    text_jw_key_int(w, "input_tokens", r->n_in);
    text_jw_key_int(w, "output_tokens", r->n_out);
    text_jw_key_int(w, "cached_tokens", r->n_cached);
    put(w, "input_mean", r->in_mean);
    put(w, "output_mean", r->out_mean);
    put(w, "output_tps", r->out_tps);
    put(w, "total_tps", r->total_tps);
    put(w, "tps_user", r->tps_user);
    put(w, "requests_ps", r->req_ps);
    put(w, "tokens_per_piece", r->tok_per_piece);
    put_dist(w, "ttft_ms", &r->ttft_ms);
    put_dist(w, "tpot_ms", &r->tpot_ms);
    put_dist(w, "itl_ms", &r->itl_ms);
    put_dist(w, "latency_ms", &r->latency_ms);
    if (r->why[0]) {
        text_jw_key(w, "first_failure");
        text_jw_strz(w, r->why);
    }
    text_jw_obj_end(w);
}

void load_json(struct str *s, const struct load_target *t, const struct load_result *r, int n)
{
    struct json_w w;
    text_jw_init(&w, s);
    text_jw_obj(&w);
    text_jw_key(&w, "url");
    text_jw_strz(&w, t->url);
    text_jw_key(&w, "model");
    text_jw_strz(&w, t->model);
    text_jw_key(&w, "stream");
    text_jw_bool(&w, t->stream);
    text_jw_key(&w, "levels");
    text_jw_arr(&w);
    for (int i = 0; i < n; i++)
        put_level(&w, &r[i]);
    text_jw_arr_end(&w);
    text_jw_obj_end(&w);
    str_putc(s, '\n');
}

void load_csv(struct str *s, const struct load_target *t, const struct load_result *r, int n)
{
    (void)t;
    str_puts(s, "concurrency,rate,input,output,requests,success_rate,ttft_mean_s,ttft_p50_s,ttft_"
                "p99_s,tpot_mean_ms,tpot_p50_ms,tpot_p99_ms,"
                "itl_mean_ms,itl_p99_ms,tps_user,output_tps,total_tps,requests_ps,latency_mean_s,"
                "latency_p99_s,cached_tokens\n");
    for (int i = 0; i < n; i++) {
        const struct load_result *c = &r[i];
        str_printf(s,
                   "%d,%g,%.1f,%.1f,%lld,%.4f,%.4f,%.4f,%.4f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%."
                   "3f,%.4f,%.4f,%.4f,%lld\n",
                   c->level.parallel, c->level.rate, c->in_mean, c->out_mean, (long long)c->n,
                   c->n ? (double)c->n_ok / (double)c->n : 0.0, c->ttft_ms.mean * 1e-3,
                   load_dist_at(&c->ttft_ms, 50) * 1e-3, load_dist_at(&c->ttft_ms, 99) * 1e-3,
                   c->tpot_ms.mean, load_dist_at(&c->tpot_ms, 50), load_dist_at(&c->tpot_ms, 99),
                   c->itl_ms.mean, load_dist_at(&c->itl_ms, 99), c->tps_user, c->out_tps,
                   c->total_tps, c->req_ps, c->latency_ms.mean * 1e-3,
                   load_dist_at(&c->latency_ms, 99) * 1e-3, (long long)c->n_cached);
    }
}

/* ---- HTML ---- */

struct curve {
    const char *name;
    double (*of)(const struct load_result *r);
};

static double ttft_mean(const struct load_result *r)
{
    return r->ttft_ms.mean * 1e-3;
}
static double ttft_p99(const struct load_result *r)
{
    return load_dist_at(&r->ttft_ms, 99) * 1e-3;
}
static double tpot_mean(const struct load_result *r)
{
    return r->tpot_ms.mean * 1e-3;
}
static double tpot_p99(const struct load_result *r)
{
    return load_dist_at(&r->tpot_ms, 99) * 1e-3;
}
static double out_tps(const struct load_result *r)
{
    return r->out_tps;
}
static double tps_user(const struct load_result *r)
{
    return r->tps_user;
}

#define LEVELS 64 /* in a chart */

static double level_of(const struct load_result *r)
{
    return r->level.rate > 0 ? r->level.rate : r->level.parallel;
}

/* The k-th by its level: a search has them in the order in which they were tried. */
static const struct load_result *nth(const struct load_result *r, int n, int k)
{
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int j = 0; j < n; j++)
            before +=
                level_of(&r[j]) < level_of(&r[i]) || (level_of(&r[j]) == level_of(&r[i]) && j < i);
        if (before == k) return &r[i];
    }
    return &r[k];
}

static void chart(struct str *s, const char *title, enum text_unit unit,
                  const struct load_result *r, int n, const struct curve *c)
{
    double y[2][LEVELS];
    char text[LEVELS][32];
    const char *name[LEVELS];
    struct text_line line[2];
    if (n > LEVELS) n = LEVELS;
    for (int i = 0; i < n; i++) {
        level_name(text[i], sizeof text[i], nth(r, n, i));
        name[i] = text[i];
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < n; i++)
            y[k][i] = c[k].of(nth(r, n, i));
        line[k] = (struct text_line){.name = c[k].name, .y = y[k], .n = n};
    }
    text_chart(s, &(struct text_chart){.title = title,
                                       .x_title = r[0].level.rate > 0 ? "requests a second"
                                                                      : "concurrent requests",
                                       .y_title = "",
                                       .y_unit = unit,
                                       .x_name = name,
                                       .n_x = n,
                                       .line = line,
                                       .n_line = 2});
}

/* In a column of so many digits after the point; what they would make a zero, in three that count.
 */
static void cell(struct str *s, double v, int digits)
{
    char t[40];
    if (v == 0 || v >= 2 * pow(10, -digits))
        snprintf(t, sizeof t, "%.*f", digits, v);
    else
        text_number(t, sizeof t, v);
    str_printf(s, "<td>%s", t);
}

static void table(struct str *s, const struct load_result *r, int n)
{
    char name[32];
    str_puts(s,
             "<div class=\"wide\"><table><thead><tr><th rowspan=2>concur&shy;rency<th "
             "rowspan=2>input<th rowspan=2>output<th rowspan=2>requests<th rowspan=2>success<th "
             "colspan=3>TTFT, s<th colspan=3>TPOT, ms<th rowspan=2>ITL p99, ms<th "
             "colspan=2>tok/s<th rowspan=2>latency, s</tr>\n<tr class=\"sub\"><th>mean<th>p50<th>"
             "p99<th>mean<th>p50<th>p99<th>of a user<th>system</tr></thead><tbody>\n");
    for (int i = 0; i < n; i++) {
        const struct load_result *c = nth(r, n, i);
        double ok = c->n ? 100.0 * (double)c->n_ok / (double)c->n : 0.0;
        if (c->n_ok < c->n) ok = fmin(ok, 99.9); /* one that failed is seen */
        level_name(name, sizeof name, c);
        str_printf(s, "<tr><td>%s<td>%.0f<td>%.0f<td>%lld<td>%.1f %%", name, c->in_mean,
                   c->out_mean, (long long)c->n, ok);
        const double row[] = {ttft_mean(c),
                              load_dist_at(&c->ttft_ms, 50) * 1e-3,
                              ttft_p99(c),
                              c->tpot_ms.mean,
                              load_dist_at(&c->tpot_ms, 50),
                              load_dist_at(&c->tpot_ms, 99),
                              load_dist_at(&c->itl_ms, 99),
                              c->tps_user,
                              c->out_tps,
                              c->latency_ms.mean * 1e-3};
        for (int k = 0; k < BASE_COUNT_OF(row); k++)
            cell(s, row[k], k < 3 || k == 9 ? 3 : 2);
        str_puts(s, "</tr>\n");
    }
    str_puts(s, "</tbody></table></div>\n");
}

void load_html(struct str *s, const struct load_target *t, const struct load_result *r, int n)
{
    static const struct curve tps[] = {{"system", out_tps}, {"of one user", tps_user}};
    static const struct curve ttft[] = {{"mean", ttft_mean}, {"p99", ttft_p99}};
    static const struct curve tpot[] = {{"mean", tpot_mean}, {"p99", tpot_p99}};
    str_puts(s,
             "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
             "content=\"width=device-width\"><title>sluice load</title>\n<style>body{font:15px/1.4 "
             "system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222;"
             "background:#fff}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.87em}"
             "td,th{padding:.25em .45em;text-align:right;border-bottom:1px solid #ccc}thead th{"
             "vertical-align:bottom}th[colspan]{text-align:center}"
             "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}td,th{"
             "border-color:#444}}\n");
    text_chart_css(s);
    str_puts(s, "</style>\n<h1>");
    text_html_escape(s, t->model);
    str_puts(s, "</h1>\n<p>");
    text_html_escape(s, t->url);
    str_printf(s, ", %s.</p>\n", t->stream ? "streaming" : "whole answers");
    table(s, r, n);
    if (n) {
        str_puts(s, "<div class=\"charts\">\n");
        chart(s, "Output tokens per second", TEXT_UNIT_RATE, r, n, tps);
        chart(s, "Time to first token", TEXT_UNIT_SECONDS, r, n, ttft);
        chart(s, "Time per output token", TEXT_UNIT_SECONDS, r, n, tpot);
        str_puts(s, "</div>\n");
    }
    str_puts(s, "<p>TTFT: to the first piece of the answer. TPOT: (latency - TTFT) / (output "
                "tokens - 1). ITL: gaps between pieces. "
                "System tok/s: output tokens of successful requests over the time from the first "
                "start to the last end.</p></html>\n");
}
