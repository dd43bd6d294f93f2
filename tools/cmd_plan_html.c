/* SPDX-License-Identifier: Apache-2.0 */
/* The report of sluice plan: one HTML file without links, charts as SVG. */
#include <math.h>
#include <string.h>

#include "cmd_plan.h"
#include "os/os.h"
#include "text/html.h"

#define GIB 1073741824.0

static const char *const colours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                      "#76b7b2", "#edc948", "#b07aa1"};

static void text_at(struct str *s, double x, double y, const char *anchor, const char *t)
{
    str_printf(s, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    text_html_escape(s, t);
    str_puts(s, "</text>\n");
}

/* Achieved operations per second over operations per byte of one decode step, under the device's
 * roof. */
static void roofline(struct str *s, const struct plan_run *r, const struct plan_found *f)
{
    const struct plan_device *d = r->q.dev;
    double peak = fmax(d->peak[PLAN_NUM_BF16], fmax(d->peak[PLAN_NUM_INT8], d->peak[PLAN_NUM_FP8]));
    double x0 = log10(0.5), x1 = log10(4000), y1 = log10(peak * 2), y0 = y1 - 5;
#define PX(v) (60 + 520 * (log10(v) - x0) / (x1 - x0))
#define PY(v) (310 - 280 * (log10(fmax(v, pow(10, y0))) - y0) / (y1 - y0))
    str_puts(s, "<h2>Roofline of a decode step, per die</h2>\n<svg viewBox=\"0 0 640 360\" "
                "role=\"img\">\n");
    str_printf(s,
               "<polyline fill=\"none\" stroke=\"#333\" stroke-width=\"2\" points=\"%.1f,%.1f "
               "%.1f,%.1f %.1f,%.1f\"/>\n",
               PX(0.5), PY(0.5 * d->bw), PX(peak / d->bw), PY(peak), PX(4000.0), PY(peak));
    for (double v = 1; v <= 1000; v *= 10) {
        char t[16];
        snprintf(t, sizeof t, "%g", v);
        text_at(s, PX(v), 328, "middle", t);
    }
    text_at(s, 320, 350, "middle", "operations per byte (log)");
    text_at(s, PX(2000.0), PY(peak) - 6, "end", "peak");
    for (double v = pow(10, ceil(y0)); v <= peak; v *= 10) {
        char t[24];
        snprintf(t, sizeof t, "%.3g T/s", v * 1e-12);
        text_at(s, 54, PY(v) + 4, "end", t);
    }
    for (int i = 0; i < f->n_option && i < 7; i++) {
        const struct plan_option *o = &f->option[i];
        const struct plan_layout *l = &o->c.lay;
        double ranks = fmax(1, (double)l->tp * l->pp * l->dp), q = 1 + l->mtp;
        double flop = 2 * r->q.model->active * r->q.load.n * q / ranks;
        double bytes = (o->r.step.weights + o->r.step.experts) * d->bw * 0.7 +
                       r->q.load.n / fmax(1, l->dp) * o->r.mem.seq;
        double ai = fmin(fmax(flop / fmax(bytes, 1), 0.5), 4000),
               rate = flop / fmax(o->r.step.total, 1e-9);
        str_printf(s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", PX(ai), PY(rate),
                   colours[i]);
        str_printf(s, "<rect x=\"350\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>",
                   196 + 16 * i, colours[i]);
        text_at(s, 366, 205 + 16 * i, "start", o->name);
    }
    str_puts(s, "</svg>\n");
#undef PX
#undef PY
}

static void tpot_curve(struct str *s, const struct plan_run *r, const struct plan_found *f)
{
    double top = 0, y[7][12];
    int n = f->n_option < 7 ? f->n_option : 7, m = 12;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++) {
            struct plan_load w = r->q.load;
            struct plan_result x;
            w.rate = 0, w.n = pow(2, j);
            plan_eval(&f->option[i].c, &w, &x);
            y[i][j] = x.tpot * 1e3;
            if (w.n <= 8 * r->q.load.n) top = fmax(top, y[i][j]);
        }
    }
    if (top <= 0) top = 1;
    str_puts(s, "<h2>TPOT over concurrency</h2>\n<svg viewBox=\"0 0 640 360\" role=\"img\">\n"
                "<line x1=\"60\" y1=\"310\" x2=\"620\" y2=\"310\" stroke=\"#333\"/><line x1=\"60\" "
                "y1=\"20\" x2=\"60\" y2=\"310\" stroke=\"#333\"/>\n");
    for (int i = 0; i < n; i++) {
        str_printf(s, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                   colours[i]);
        for (int j = 0; j < m && y[i][j] <= 1.03 * top; j++) {
            str_printf(s, "%.1f,%.1f ", 60 + 540.0 * j / (m - 1), 310 - 280 * y[i][j] / top);
        }
        str_puts(s, "\"/>\n");
        str_printf(s, "<rect x=\"70\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>",
                   24 + 16 * i, colours[i]);
        text_at(s, 86, 33 + 16 * i, "start", f->option[i].name);
    }
    for (int j = 0; j < m; j++) {
        char t[16];
        snprintf(t, sizeof t, "%d", 1 << j);
        text_at(s, 60 + 540.0 * j / (m - 1), 328, "middle", t);
    }
    char t[32];
    snprintf(t, sizeof t, "%.3g ms", top);
    text_at(s, 56, 34, "end", t);
    text_at(s, 320, 350, "middle", "concurrent requests");
    str_puts(s, "</svg>\n");
}

static void memory_bars(struct str *s, const struct plan_found *f)
{
    static const char *const part[] = {"weights",       "KV",     "activations",
                                       "communication", "graphs", "MTP"};
    int n = f->n_option < 10 ? f->n_option : 10;
    double most = 1;
    for (int i = 0; i < n; i++)
        most = fmax(most, fmax(f->option[i].r.mem.total, f->option[i].r.mem.limit));
    str_printf(s, "<h2>Memory per rank</h2>\n<svg viewBox=\"0 0 640 %d\" role=\"img\">\n",
               60 + 26 * n);
    for (int i = 0; i < 6; i++) {
        str_printf(s, "<rect x=\"%d\" y=\"4\" width=\"10\" height=\"10\" fill=\"%s\"/>",
                   10 + 100 * i, colours[i]);
        text_at(s, 24 + 100 * i, 13, "start", part[i]);
    }
    for (int i = 0; i < n; i++) {
        const struct plan_memory *m = &f->option[i].r.mem;
        const double v[] = {m->weights, m->kv, m->acts, m->comm, m->graph, m->mtp};
        double x = 200;
        char t[48];
        for (int j = 0; j < 6; j++) {
            double w = 380 * v[j] / most;
            str_printf(s, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"18\" fill=\"%s\"/>", x,
                       26 + 26 * i, w, colours[j]);
            x += w;
        }
        double lim = 200 + 380 * m->limit / most;
        str_printf(s,
                   "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#c00\" "
                   "stroke-width=\"2\"/>\n",
                   lim, lim, 24 + 26 * i, 46 + 26 * i);
        snprintf(t, sizeof t, "%.1f GiB", m->total / GIB);
        text_at(s, 195, 39 + 26 * i, "end", f->option[i].name);
        text_at(s, x + 4, 39 + 26 * i, "start", t);
    }
    str_puts(s, "</svg>\n");
}

static void table(struct str *s, const struct plan_run *r, const struct plan_found *f)
{
    str_puts(s, "<table><tr><th>layout</th><th>GiB/rank</th><th>TTFT ms</th><th>TPOT "
                "ms</th><th>tok/s per user</th>"
                "<th>tok/s per card</th><th>holds</th><th>bound by</th><th>confidence</th></tr>\n");
    for (int i = 0; i < f->n_option; i++) {
        const struct plan_option *o = &f->option[i];
        str_puts(s, "<tr><td>");
        text_html_escape(s, o->name);
        str_printf(s,
                   "</td><td>%.1f</td><td>%.1f</td><td>%.2f</td><td>%.1f</td><td>%.1f</"
                   "td><td>%.0f</td><td>%s</td>"
                   "<td>%s, x%.2f to x%.2f</td></tr>\n",
                   o->r.mem.total / GIB, o->r.ttft * 1e3, o->r.tpot * 1e3, o->r.user_tps,
                   o->card_tps, o->r.mem.free_seq, o->r.bound, plan_trust_name(o->c.k.trust),
                   o->r.lo, o->r.hi);
    }
    str_puts(s, "</table>\n<p>");
    char text[512];
    plan_explain(&f->option[0], text, sizeof text);
    text_html_escape(s, text);
    str_puts(s, "</p>\n");
    (void)r;
}

sl_status plan_html(const struct plan_run *r, const struct plan_found *f, const char *path,
                    sl_err *err)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    str_puts(&s, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>sluice "
                 "plan</title><style>"
                 "body{font:14px sans-serif;max-width:60em;margin:2em auto;padding:0 "
                 "1em}table{border-collapse:collapse}"
                 "td,th{border:1px solid #ccc;padding:3px "
                 "8px;text-align:right}td:first-child{text-align:left}"
                 "svg{width:100%;max-width:760px;font:11px sans-serif}</style></head><body>\n<h1>");
    text_html_escape(&s, r->q.model->name);
    str_printf(&s, " on %d x ", r->q.cards);
    text_html_escape(&s, r->q.dev->name);
    str_printf(&s,
               "</h1>\n<p>%.0f concurrent requests, %.0f tokens in, %.0f out; %d candidates, %d "
               "fit.</p>\n",
               r->q.load.n, r->q.load.in, r->q.load.out, f->n_tried, f->n_fit);
    table(&s, r, f);
    roofline(&s, r, f);
    tpot_curve(&s, r, f);
    memory_bars(&s, f);
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
