/* SPDX-License-Identifier: Apache-2.0 */
/* The report of sluice plan: one HTML file without links, charts as SVG. */
#include <math.h>
#include <string.h>

#include "cmd_plan.h"
#include "os/os.h"
#include "text/chart.h"
#include "text/html.h"

#define SHOWN 7 /* layouts in a chart */

static int shown(const struct plan_found *f)
{
    return f->n_option < SHOWN ? f->n_option : SHOWN;
}

/* Achieved operations per second over operations per byte of one decode step, under the device's
 * roof. */
static void roofline(struct str *s, const struct plan_run *r, const struct plan_found *f)
{
    const struct plan_device *d = r->q.dev;
    double peak = fmax(d->peak[PLAN_NUM_BF16], fmax(d->peak[PLAN_NUM_INT8], d->peak[PLAN_NUM_FP8]));
    double knee = peak / d->bw, first = 1, last = knee * 4, x[SHOWN], y[SHOWN];
    struct text_line line[SHOWN];
    for (int i = 0; i < shown(f); i++) {
        const struct plan_option *o = &f->option[i];
        const struct plan_layout *l = &o->c.lay;
        double ranks = fmax(1, (double)l->tp * l->pp * l->dp), q = 1 + l->mtp;
        double flop = 2 * r->q.model->active * o->load.n * q / ranks;
        double bytes = (o->r.step.weights + o->r.step.experts) * d->bw * 0.7 +
                       o->load.n / fmax(1, l->dp) * o->r.mem.seq;
        x[i] = flop / fmax(bytes, 1), y[i] = flop / fmax(o->r.step.total, 1e-9);
        first = fmin(first, x[i]), last = fmax(last, x[i]);
        line[i] = (struct text_line){.name = o->name, .x = &x[i], .y = &y[i], .n = 1};
    }
    const double rx[] = {first, knee, last}, ry[] = {first * d->bw, peak, peak};
    const struct text_line roof = {"roof", rx, ry, 3};
    text_chart(s, &(struct text_chart){.title = "Roofline of a decode step, per die",
                                       .x_title = "operations per byte",
                                       .y_title = "rate",
                                       .y_unit = TEXT_UNIT_OPS,
                                       .x_log = true,
                                       .y_log = true,
                                       .line = line,
                                       .n_line = shown(f),
                                       .roof = &roof,
                                       .draw = TEXT_DRAW_POINTS});
}

#define POWERS 12

/* Each layout up to the users that its memory holds, and within a scale that shows what was asked.
 */
static void tpot_curve(struct str *s, const struct plan_run *r, const struct plan_found *f)
{
    static const char *const users[POWERS] = {"1",  "2",   "4",   "8",   "16",   "32",
                                              "64", "128", "256", "512", "1024", "2048"};
    double y[SHOWN][POWERS], top = 0;
    struct text_line line[SHOWN];
    int n = 2; /* so many powers have something to show */
    for (int i = 0; i < shown(f); i++) {
        const struct plan_option *o = &f->option[i];
        for (int j = 0; j < POWERS; j++) {
            struct plan_load w = r->q.load;
            struct plan_result x;
            w.rate = 0, w.n = pow(2, j);
            plan_eval(&o->c, &w, &x);
            y[i][j] = w.n <= fmax(1, x.mem.free_seq) ? x.tpot : NAN;
            if (w.n <= 8 * o->load.n && isfinite(y[i][j])) top = fmax(top, y[i][j]);
        }
        line[i] = (struct text_line){.name = o->name, .y = y[i], .n = POWERS};
    }
    for (int i = 0; i < shown(f); i++) {
        for (int j = 0; j < POWERS; j++) {
            y[i][j] = y[i][j] <= 1.2 * top ? y[i][j] : NAN;
            if (isfinite(y[i][j]) && j >= n) n = j + 1;
        }
    }
    for (int i = 0; i < shown(f); i++)
        line[i].n = n;
    text_chart(s, &(struct text_chart){.title = "TPOT over concurrency",
                                       .x_title = "concurrent requests",
                                       .y_title = "TPOT",
                                       .y_unit = TEXT_UNIT_SECONDS,
                                       .x_name = users,
                                       .n_x = n,
                                       .line = line,
                                       .n_line = shown(f),
                                       .draw = TEXT_DRAW_LINES});
}

static void memory_bars(struct str *s, const struct plan_found *f)
{
    static const char *const part[] = {"weights",       "KV",     "activations",
                                       "communication", "graphs", "MTP"};
    struct text_bar bar[10];
    double v[10][6];
    char note[10][80], sum[32], limit[32];
    int n = f->n_option < 10 ? f->n_option : 10;
    for (int i = 0; i < n; i++) {
        const struct plan_memory *m = &f->option[i].r.mem;
        const double p[] = {m->weights, m->kv, m->acts, m->comm, m->graph, m->mtp};
        memcpy(v[i], p, sizeof p);
        text_unit_text(sum, sizeof sum, TEXT_UNIT_BYTES, m->total);
        text_unit_text(limit, sizeof limit, TEXT_UNIT_BYTES, m->limit);
        snprintf(note[i], sizeof note[i], "%s of %s", sum, limit);
        bar[i] = (struct text_bar){f->option[i].name, v[i], m->limit, note[i]};
    }
    text_bars(s, &(struct text_bars){.title = "Memory per rank",
                                     .unit = TEXT_UNIT_BYTES,
                                     .part_name = part,
                                     .n_part = 6,
                                     .bar = bar,
                                     .n = n});
}

static void cell(struct str *s, enum text_unit u, double v)
{
    char t[40];
    text_unit_text(t, sizeof t, u, v);
    str_printf(s, "<td>%s", t);
}

static void table(struct str *s, const struct plan_found *f)
{
    char text[512];
    str_puts(s, "<div class=\"wide\"><table><thead><tr><th>layout<th>memory of a rank<th>users<th>"
                "TTFT<th>TPOT<th>of one user<th>of one card<th>holds<th>bound by<th>confidence"
                "</thead><tbody>\n");
    for (int i = 0; i < f->n_option; i++) {
        const struct plan_option *o = &f->option[i];
        str_printf(s, "<tr%s><td>", o->within ? "" : " class=\"over\"");
        text_html_escape(s, o->name);
        cell(s, TEXT_UNIT_BYTES, o->r.mem.total);
        str_printf(s, "<td>%.0f", o->load.n);
        cell(s, TEXT_UNIT_SECONDS, o->r.ttft);
        cell(s, TEXT_UNIT_SECONDS, o->r.tpot);
        cell(s, TEXT_UNIT_RATE, o->r.user_tps);
        cell(s, TEXT_UNIT_RATE, o->card_tps);
        str_printf(s, "<td>%.0f<td>%s<td>%s, x%.2f to x%.2f</tr>\n", o->r.mem.free_seq, o->r.bound,
                   plan_trust_name(o->c.k.trust), o->r.lo, o->r.hi);
    }
    str_puts(s, "</tbody></table></div>\n<p>");
    plan_explain(&f->option[0], text, sizeof text);
    text_html_escape(s, text);
    str_puts(s, "</p>\n");
}

static void head(struct str *s, const struct plan_run *r, const struct plan_found *f)
{
    str_puts(s,
             "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
             "name=\"viewport\" content=\"width=device-width\"><title>sluice plan</title>\n"
             "<style>body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:74em;"
             "padding:0 1em;color:#222;background:#fff}.wide{overflow-x:auto}table{"
             "border-collapse:collapse;font-size:.9em}td,th{padding:.25em .55em;text-align:right;"
             "white-space:nowrap;border-bottom:1px solid "
             "#ccc}td:first-child,th:first-child{text-align:left}"
             "th{white-space:normal}"
             ".over{opacity:.6}@media(prefers-color-scheme:dark){body{color:#ddd;background:"
             "#161616}td,th{border-color:#444}}\n");
    text_chart_css(s);
    str_puts(s, "</style></head><body>\n<h1>");
    text_html_escape(s, r->q.model->name);
    str_printf(s, " on %d x ", r->q.cards);
    text_html_escape(s, r->q.dev->name);
    str_puts(s, "</h1>\n<p>");
    if (r->q.load.rate > 0)
        str_printf(s, "%.3g requests a second", r->q.load.rate);
    else if (r->q.load.n > 0)
        str_printf(s, "%.0f concurrent request%s", r->q.load.n, r->q.load.n == 1 ? "" : "s");
    else
        str_puts(s, "The most users that hold the limits");
    str_printf(s, ", %.0f tokens in, %.0f out; %d candidate%s, %d fit%s.</p>\n", r->q.load.in,
               r->q.load.out, f->n_tried, f->n_tried == 1 ? "" : "s", f->n_fit,
               f->n_fit == 1 ? "s" : "");
}

sl_status plan_html(const struct plan_run *r, const struct plan_found *f, const char *path,
                    sl_err *err)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    head(&s, r, f);
    if (f->n_option > 0) {
        table(&s, f);
        str_puts(&s, "<div class=\"charts\">\n");
        roofline(&s, r, f);
        tpot_curve(&s, r, f);
        memory_bars(&s, f);
        str_puts(&s, "</div>\n");
    } else {
        str_puts(&s, "<p>Nothing fits. ");
        text_html_escape(&s, f->cure);
        str_puts(&s, "</p>\n");
    }
    if (f->n_reject > 0) str_puts(&s, "<h2>What does not fit</h2>\n<ul>\n");
    for (int i = 0; i < f->n_reject && i < 40; i++) {
        str_puts(&s, "<li>");
        text_html_escape(&s, f->reject[i].name);
        str_puts(&s, ": ");
        text_html_escape(&s, f->reject[i].why);
        str_puts(&s, "</li>\n");
    }
    if (f->n_reject > 0) str_puts(&s, "</ul>\n");
    str_puts(&s, "</body></html>\n");
    sl_status st = str_status(&s, err);
    if (st == SL_OK) st = os_write_file(path, s.p, s.n, err);
    str_fini(&s);
    return st;
}
