/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out and draws line and bar charts as SVG. */
#include "text/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/html.h"

#define WIDTH 520.0
#define LINE 17.0 /* from one line of text to the next */
#define PLOT 240.0
#define DOT 4.0
#define INSET 12.0 /* of numbers on the x axis: room for points side by side */

void text_chart_css(struct str *out)
{
    static const char *const light[TEXT_LINES] = {"#1f6fb4", "#c2570c", "#2b8a3e", "#c92a2a",
                                                  "#0b7285", "#8a6d00", "#7048b6", "#5c636a"};
    static const char *const dark[TEXT_LINES] = {"#74b3ec", "#ff9d52", "#69d07f", "#ff8787",
                                                 "#4fc9da", "#f2cc4d", "#bfa3f5", "#b3bac1"};
    str_puts(out,
             ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,28em),"
             "1fr));gap:1em 2em;margin:1.5em 0}figure{margin:0;max-width:40em}figcaption{"
             "font-weight:600;margin:.5em 0}"
             "figure svg{display:block;width:100%;height:auto}svg.chart text{font:"
             "12px system-ui,sans-serif;fill:currentColor}svg.chart .axis{stroke:currentColor;"
             "fill:none}svg.chart .grid{stroke:currentColor;stroke-opacity:.18;fill:none}"
             "svg.chart .limit{stroke:currentColor;stroke-width:2;stroke-dasharray:3 2}"
             "svg.chart .line{fill:none;stroke-width:2}svg.chart .dash{stroke-dasharray:7 5}\n");
    for (int i = 0; i < TEXT_LINES; i++)
        str_printf(out, ".c%d{fill:%s}.line.c%d{stroke:%s}", i, light[i], i, light[i]);
    str_puts(out, "\n@media(prefers-color-scheme:dark){");
    for (int i = 0; i < TEXT_LINES; i++)
        str_printf(out, ".c%d{fill:%s}.line.c%d{stroke:%s}", i, dark[i], i, dark[i]);
    str_puts(out, "}\n");
}

static void text_at(struct str *s, double x, double y, const char *anchor, const char *t)
{
    str_printf(s, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    text_html_escape(s, t);
    str_puts(s, "</text>\n");
}

static void figure_open(struct str *s, const char *title, double width, double height)
{
    str_puts(s, "<figure><figcaption>");
    text_html_escape(s, title);
    str_printf(s,
               "</figcaption><svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
               "aria-label=\"",
               width, height);
    text_html_escape(s, title);
    str_puts(s, "\">\n");
}

static double widest_of(const char *const *name, int n)
{
    double w = 0;
    for (int i = 0; i < n; i++)
        w = fmax(w, text_chart_width(name[i]));
    return w;
}

/* Squares and names in as many lines as they need. Returns the y below them. */
static double legend(struct str *s, double y, const char *const *name, int n)
{
    double x = 8;
    for (int i = 0; i < n; i++) {
        double w = 18 + text_chart_width(name[i]) + 10;
        if (i > 0 && x + w > WIDTH) x = 8, y += LINE;
        str_printf(s, "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\"/>",
                   i % TEXT_LINES, x, y - 10);
        text_at(s, x + 16, y, "start", name[i]);
        x += w;
    }
    return n > 0 ? y + LINE : y;
}

/* ---- lines and points ---------------------------------------------------------------------------
 */

struct frame {
    const struct text_chart *c;
    struct text_axis x, y;
    struct text_unit_pick ux, uy;
    double left, right, top, bottom; /* of the plot */
};

static double place(const struct text_axis *a, double v, double from, double to)
{
    double p =
        a->log ? log(fmax(v, 1e-300) / a->lo) / log(a->hi / a->lo) : (v - a->lo) / (a->hi - a->lo);
    return from + (to - from) * fmin(fmax(p, 0), 1);
}

static double px(const struct frame *f, double x)
{
    const struct text_chart *c = f->c;
    if (c->x_name) {
        double cell = (f->right - f->left) / (c->n_x > 0 ? c->n_x : 1);
        return f->left + cell * (x + 0.5);
    }
    return place(&f->x, x * f->ux.scale, f->left + INSET, f->right - INSET);
}

static double py(const struct frame *f, double y)
{
    return place(&f->y, y * f->uy.scale, f->bottom, f->top);
}

static double x_of(const struct text_line *l, int i)
{
    return l->x ? l->x[i] : i;
}

static void range(const struct text_chart *c, bool of_y, double *lo, double *hi)
{
    *lo = INFINITY, *hi = -INFINITY;
    for (int k = 0; k < c->n_line + (c->roof != NULL); k++) {
        const struct text_line *l = k < c->n_line ? &c->line[k] : c->roof;
        for (int i = 0; i < l->n; i++) {
            double v = of_y ? l->y[i] : x_of(l, i);
            bool log = of_y ? c->y_log : c->x_log;
            if (!isfinite(v) || !isfinite(l->y[i]) || (log && v <= 0)) continue;
            *lo = fmin(*lo, v), *hi = fmax(*hi, v);
        }
    }
}

static struct text_unit_pick unit_of(enum text_unit u, double lo, double hi, bool log)
{
    return text_unit_of(u, log && lo > 0 ? sqrt(lo) * sqrt(hi) : hi);
}

/* The margin follows the widest label of the y axis. */
static void frame_of(struct frame *f, const struct text_chart *c)
{
    double lo, hi, widest = 0;
    char t[40];
    *f = (struct frame){.c = c, .top = LINE + 8, .right = WIDTH - 16};
    f->bottom = f->top + PLOT;
    range(c, true, &lo, &hi);
    f->uy = unit_of(c->y_unit, lo, hi, c->y_log);
    text_axis_make(&f->y, lo * f->uy.scale, hi * f->uy.scale, c->y_log, 7);
    for (int i = 0; i < f->y.n; i++) {
        text_number(t, sizeof t, f->y.tick[i]);
        widest = fmax(widest, text_chart_width(t));
    }
    f->left = widest + 14;
    range(c, false, &lo, &hi);
    f->ux = unit_of(c->x_unit, lo, hi, c->x_log);
    text_axis_make(&f->x, lo * f->ux.scale, hi * f->ux.scale, c->x_log, 9);
}

static void axis_title(char *buf, size_t size, const char *title, const char *unit)
{
    snprintf(buf, size, "%s%s%s", title, *title && *unit ? ", " : "", unit);
}

/* Names of categories, every second or third where they would touch. */
static void x_names(struct str *s, const struct frame *f)
{
    const struct text_chart *c = f->c;
    double cell = (f->right - f->left) / (c->n_x > 0 ? c->n_x : 1);
    int stride = (int)fmax(1, ceil((widest_of(c->x_name, c->n_x) + 6) / cell));
    for (int i = 0; i < c->n_x; i += stride) {
        double half = text_chart_width(c->x_name[i]) / 2, x = px(f, i);
        x = fmin(fmax(x, half), WIDTH - half);
        text_at(s, x, f->bottom + LINE, "middle", c->x_name[i]);
    }
}

static void axes(struct str *s, const struct frame *f)
{
    char t[128];
    for (int i = 0; i < f->y.n; i++) {
        double y = place(&f->y, f->y.tick[i], f->bottom, f->top);
        str_printf(s, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", f->left, y, f->right);
        text_number(t, sizeof t, f->y.tick[i]);
        text_at(s, f->left - 6, y + 4, "end", t);
    }
    str_printf(s, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", f->left, f->top, f->bottom,
               f->right);
    axis_title(t, sizeof t, f->c->y_title, f->uy.name);
    text_at(s, 4, LINE - 5, "start", t);
    if (f->c->x_name) {
        x_names(s, f);
    } else {
        double last = -INFINITY;
        for (int i = 0; i < f->x.n; i++) {
            text_number(t, sizeof t, f->x.tick[i]);
            double half = text_chart_width(t) / 2;
            double x = place(&f->x, f->x.tick[i], f->left + INSET, f->right - INSET);
            double at = fmin(x, WIDTH - half);
            if (at - half < last + 4) continue;
            last = at + half;
            text_at(s, at, f->bottom + LINE, "middle", t);
            str_printf(s, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>", x, f->bottom);
        }
    }
    axis_title(t, sizeof t, f->c->x_title, f->ux.name);
    text_at(s, (f->left + f->right) / 2, f->bottom + 2 * LINE + 2, "middle", t);
}

/* Two lines that nowhere are two units of the drawing apart. */
static bool same_path(const struct frame *f, const struct text_line *a, const struct text_line *b)
{
    int seen = 0;
    for (int i = 0; i < a->n && i < b->n; i++) {
        if (!isfinite(a->y[i]) || !isfinite(b->y[i])) continue;
        seen++;
        if (fabs(py(f, a->y[i]) - py(f, b->y[i])) > 2) return false;
        if (fabs(px(f, x_of(a, i)) - px(f, x_of(b, i))) > 2) return false;
    }
    return seen > 0;
}

static void path(struct str *s, const struct frame *f, const struct text_line *l, const char *class)
{
    bool open = false;
    str_printf(s, "<path class=\"%s\" d=\"", class);
    for (int i = 0; i < l->n; i++) {
        bool here = isfinite(l->y[i]);
        if (here) str_printf(s, "%c%.1f %.1f", open ? 'L' : 'M', px(f, x_of(l, i)), py(f, l->y[i]));
        open = here;
    }
    str_puts(s, "\"/>\n");
}

struct spot {
    int k, i; /* line and point */
};

static bool close_by(const struct frame *f, struct spot a, struct spot b)
{
    const struct text_line *l = f->c->line;
    if (!isfinite(l[a.k].y[a.i]) || !isfinite(l[b.k].y[b.i])) return false;
    double dx = px(f, x_of(&l[a.k], a.i)) - px(f, x_of(&l[b.k], b.i));
    double dy = py(f, l[a.k].y[a.i]) - py(f, l[b.k].y[b.i]);
    double reach = f->c->draw == TEXT_DRAW_POINTS ? 6 * DOT : 1.5 * DOT; /* a row of them is wide */
    return dx * dx + dy * dy < reach * reach;
}

/* The first point that lies where p does; p itself when none did before. */
static struct spot first_at(const struct frame *f, struct spot p)
{
    for (int k = 0; k <= p.k; k++) {
        for (int i = 0; i < f->c->line[k].n && (k < p.k || i < p.i); i++) {
            if (close_by(f, p, (struct spot){k, i})) return (struct spot){k, i};
        }
    }
    return p;
}

/* Points with the same first one. */
struct crowd {
    int before, all; /* the point's place among them; how many they are */
    double top, low; /* the y of the highest and of the lowest */
};

static struct crowd crowd_of(const struct frame *f, struct spot p)
{
    struct spot first = first_at(f, p);
    struct crowd c = {.top = f->bottom};
    for (int k = 0; k < f->c->n_line; k++) {
        for (int i = 0; i < f->c->line[k].n; i++) {
            if (!isfinite(f->c->line[k].y[i])) continue;
            struct spot o = first_at(f, (struct spot){k, i});
            if (o.k != first.k || o.i != first.i) continue;
            c.before += k < p.k || (k == p.k && i < p.i);
            c.all++;
            c.top = fmin(c.top, py(f, f->c->line[k].y[i]));
            c.low = fmax(c.low, py(f, f->c->line[k].y[i]));
        }
    }
    return c;
}

/* Whether a point is drawn: not where a line passes, if lines are all that is wanted. */
static bool has_dot(const struct text_chart *c, const struct text_line *l, int i)
{
    bool left = i > 0 && isfinite(l->y[i - 1]), right = i + 1 < l->n && isfinite(l->y[i + 1]);
    return isfinite(l->y[i]) && (c->draw != TEXT_DRAW_LINES || !(left || right));
}

static void points(struct str *s, const struct frame *f, int k)
{
    const struct text_line *l = &f->c->line[k];
    char vx[40], vy[40];
    for (int i = 0; i < l->n; i++) {
        if (!has_dot(f->c, l, i)) continue;
        struct crowd near = crowd_of(f, (struct spot){k, i});
        double x = px(f, x_of(l, i)) + (near.before - (near.all - 1) / 2.0) * 2 * DOT,
               y = py(f, l->y[i]);
        x = fmin(fmax(x, DOT), WIDTH - DOT);
        text_unit_text(vy, sizeof vy, f->c->y_unit, l->y[i]);
        if (f->c->x_name)
            snprintf(vx, sizeof vx, "%.32s", i < f->c->n_x ? f->c->x_name[i] : "");
        else
            text_unit_text(vx, sizeof vx, f->c->x_unit, x_of(l, i));
        str_printf(s, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>",
                   k % TEXT_LINES, x, y, DOT - 0.5);
        text_html_escape(s, l->name);
        str_printf(s, ": %s, %s</title></circle>\n", vx, vy);
        if (f->c->draw == TEXT_DRAW_POINTS && near.before == 0 && near.all > 1) {
            snprintf(vx, sizeof vx, "%d here", near.all);
            double half = text_chart_width(vx) / 2;
            double at = fmin(fmax(px(f, x_of(l, i)), f->left + half), WIDTH - half);
            double above = near.top - 2 * DOT;
            text_at(s, at, above < f->top ? near.low + LINE : above, "middle", vx);
        }
    }
}

void text_chart(struct str *out, const struct text_chart *c)
{
    struct frame f;
    struct str body;
    const char *name[TEXT_LINES] = {0};
    int n = c->n_line < TEXT_LINES ? c->n_line : TEXT_LINES;
    frame_of(&f, c);
    str_init(&body, MEM_MISC, 0);
    axes(&body, &f);
    if (c->roof) path(&body, &f, c->roof, "axis");
    for (int k = 0; k < n; k++) {
        char class[32];
        bool hidden = false;
        for (int m = 0; m < k; m++)
            hidden |= same_path(&f, &c->line[m], &c->line[k]);
        snprintf(class, sizeof class, "line c%d%s", k, hidden ? " dash" : "");
        if (c->draw != TEXT_DRAW_POINTS) path(&body, &f, &c->line[k], class);
        name[k] = c->line[k].name;
    }
    for (int k = 0; k < n; k++)
        points(&body, &f, k);
    double below = legend(&body, f.bottom + 3 * LINE + 6, name, n);
    figure_open(out, c->title, fmax(WIDTH, 28 + widest_of(name, n)), below);
    str_put(out, body.p, body.n);
    str_puts(out, "</svg></figure>\n");
    str_fini(&body);
}

/* ---- bars
 * ---------------------------------------------------------------------------------------- */

static double part_of(const struct text_bar *b, int i)
{
    return isfinite(b->part[i]) && b->part[i] > 0 ? b->part[i] : 0;
}

static double sum_of(const struct text_bars *b, int i)
{
    double sum = 0;
    for (int k = 0; k < b->n_part; k++)
        sum += part_of(&b->bar[i], k);
    return sum;
}

struct scale {
    double lo, hi, room, width; /* room: the longest bar; width: of the drawing */
    bool log;
};

static double length(const struct scale *sc, double v)
{
    if (!(v > 0)) return 0;
    if (sc->log) return sc->room * (0.05 + 0.95 * log(v / sc->lo) / log(sc->hi / sc->lo));
    return sc->room * v / sc->hi;
}

static void note_of(const struct text_bars *b, int i, char *buf, size_t size)
{
    if (b->bar[i].note)
        snprintf(buf, size, "%s", b->bar[i].note);
    else
        text_unit_text(buf, size, b->unit, sum_of(b, i));
}

/* The drawing is as wide as notes and names ask for, and leaves a third of itself to the bars. */
static void scale_of(const struct text_bars *b, struct scale *sc)
{
    char note[128];
    double notes = 0, names = 0;
    *sc = (struct scale){.lo = INFINITY};
    for (int i = 0; i < b->n; i++) {
        double v = sum_of(b, i);
        if (v > 0) sc->lo = fmin(sc->lo, v);
        sc->hi = fmax(sc->hi, fmax(v, b->bar[i].limit));
        note_of(b, i, note, sizeof note);
        notes = fmax(notes, text_chart_width(note));
        names = fmax(names, text_chart_width(b->bar[i].name));
    }
    if (!(sc->hi > 0)) sc->lo = sc->hi = 1;
    sc->log = b->n_part == 1 && sc->hi > 50 * sc->lo;
    sc->width = fmax(fmax(WIDTH, names + 16), 1.5 * (notes + 22));
    sc->room = sc->width - notes - 22;
}

/* The rows from y on. Returns the y below them. */
static double bar_rows(struct str *s, const struct text_bars *b, const struct scale *sc, double y)
{
    char note[128];
    if (sc->log) {
        text_at(s, 8, y, "start", "logarithmic");
        y += LINE;
    }
    for (int i = 0; i < b->n; i++, y += 2 * LINE + 6) {
        double x = 8;
        text_at(s, 8, y, "start", b->bar[i].name);
        for (int k = 0; k < b->n_part; k++) {
            double w = length(sc, part_of(&b->bar[i], k));
            str_printf(s,
                       "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"14\"/>",
                       k % TEXT_LINES, x, y + 5, w);
            x += w;
        }
        note_of(b, i, note, sizeof note);
        double limit = b->bar[i].limit > 0 ? 8 + length(sc, b->bar[i].limit) : 0;
        if (limit > 0) str_printf(s, "<path class=\"limit\" d=\"M%.1f %.1fv20\"/>", limit, y + 2);
        bool before = x + 6 + text_chart_width(note) < limit - 4;
        text_at(s, (before ? x : fmax(x, limit)) + 6, y + 16, "start", note);
    }
    return y;
}

static double bars_body(struct str *s, const struct text_bars *b, const struct scale *sc)
{
    double y = LINE;
    if (b->part_name && b->n_part > 1) y = legend(s, y, b->part_name, b->n_part) + 4;
    return bar_rows(s, b, sc, y) - LINE + 4;
}

void text_bars(struct str *out, const struct text_bars *b)
{
    struct str body;
    struct scale sc;
    scale_of(b, &sc);
    str_init(&body, MEM_MISC, 0);
    double height = bars_body(&body, b, &sc);
    figure_open(out, b->title, sc.width, height);
    str_put(out, body.p, body.n);
    str_puts(out, "</svg></figure>\n");
    str_fini(&body);
}

void text_bars_file(struct str *out, const struct text_bars *b)
{
    struct str body;
    struct scale sc;
    scale_of(b, &sc);
    str_init(&body, MEM_MISC, 0);
    double height = bars_body(&body, b, &sc) + 2 * LINE;
    double width = fmax(sc.width, text_chart_width(b->title) + 16);
    str_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 %.0f %.0f\" "
        "width=\"%.0f\" height=\"%.0f\">\n<style>\n",
        width, height, width * 1.5, height * 1.5);
    text_chart_css(out);
    str_puts(out, "svg{color:#222}.back{fill:#fff}@media(prefers-color-scheme:dark){svg{color:#ddd}"
                  ".back{fill:#161616}}\n</style>\n<rect class=\"back\" width=\"100%\" "
                  "height=\"100%\"/>\n");
    text_at(out, 8, LINE, "start", b->title);
    str_printf(out, "<g transform=\"translate(0 %.0f)\">\n", LINE + 6);
    str_put(out, body.p, body.n);
    str_puts(out, "</g></svg>\n");
    str_fini(&body);
}
