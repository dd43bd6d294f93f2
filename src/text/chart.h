/* SPDX-License-Identifier: Apache-2.0 */
/* Charts as SVG, for reports and for files of their own: no scripts, no fonts, no links.
 *
 * Every label has its place before anything is drawn: margins follow the widest label by a width
 * that no character passes, so nothing is cut at an edge. Ticks are round numbers in a unit that
 * fits (ms, s, min, h; tok/s, ktok/s), never in exponent form. Colours are classes of the style
 * sheet that text_chart_css() writes, for light and dark themes. Points that would lie on each
 * other stand side by side; lines that would are dashed in turn.
 *
 * Threads  any. Memory: appended to out. Errors: str_status() of out. */
#ifndef TEXT_CHART_H
#define TEXT_CHART_H

#include <stdbool.h>

#include "base/str.h"

/* What a number is of; its base is SI. */
enum text_unit {
    TEXT_UNIT_NONE,
    TEXT_UNIT_SECONDS, /* us, ms, s, min, h */
    TEXT_UNIT_RATE,    /* tok/s, ktok/s, Mtok/s */
    TEXT_UNIT_OPS,     /* Gop/s, Top/s, Pop/s */
    TEXT_UNIT_BYTES,   /* MiB, GiB, TiB */
};

/* The unit that fits the largest number of an axis (of a logarithmic one, that in its middle):
 * multiply by scale, then name follows. */
struct text_unit_pick {
    double scale;
    const char *name; /* "" for none */
};
struct text_unit_pick text_unit_of(enum text_unit u, double most);
/* Three digits that count, no exponent, no zeros after the last: "0.25", "27", "1600". */
void text_number(char *buf, size_t size, double v);
/* A number in the unit that fits it alone: "703 ms", "38.2 s", "27.4 min". */
void text_unit_text(char *buf, size_t size, enum text_unit u, double v);

/* Ticks of an axis from 0 or, with log, from a decade: round numbers that enclose lo..hi. */
#define TEXT_TICKS 24
struct text_axis {
    bool log;
    double lo, hi; /* the ends, round */
    double tick[TEXT_TICKS];
    int n;
};
/* most: ticks at most, 2 to 20. hi <= lo and what is not finite make an axis of 0 to 1. */
void text_axis_make(struct text_axis *a, double lo, double hi, bool log, int most);

/* A bound of the width of text, in units of the drawing, at the size that charts use. */
double text_chart_width(const char *z);

/* The style sheet of the classes that charts use; one for a page, inside <style>. */
void text_chart_css(struct str *out);

#define TEXT_LINES 8 /* lines of a chart at most: so many colours */

struct text_line {
    const char *name;
    const double *x, *y; /* y not finite: a gap. x may be NULL where the chart has names for x */
    int n;
};

enum text_draw { TEXT_DRAW_BOTH, TEXT_DRAW_LINES, TEXT_DRAW_POINTS };

struct text_chart {
    const char *title, *x_title, *y_title;
    enum text_unit x_unit, y_unit;
    bool x_log, y_log;
    const char *const *x_name; /* n_x names: categories 0, 1, ... instead of numbers */
    int n_x;
    const struct text_line *line;
    int n_line;
    const struct text_line *roof; /* one more line in the colour of the axes, NULL: none */
    enum text_draw draw;          /* LINES: points only where a line has no length */
};
/* A <figure> with the chart and its legend. */
void text_chart(struct str *out, const struct text_chart *c);

struct text_bar {
    const char *name;
    const double *part; /* n_part numbers; what is not finite or below zero counts as zero */
    double limit;       /* a mark on this bar; 0: none */
    const char *note;   /* after the bar; NULL: the sum in the unit */
};
struct text_bars {
    const char *title;
    enum text_unit unit;
    const char *const *part_name; /* of the legend; NULL: one part, no legend */
    int n_part;                   /* TEXT_LINES at most */
    const struct text_bar *bar;
    int n;
};
/* A <figure> with one row for each bar, its name above it. On a logarithmic scale where there is
 * one part and the largest is more than 50 times the least. */
void text_bars(struct str *out, const struct text_bars *b);
/* The same as a file: <svg> with its own style and background. */
void text_bars_file(struct str *out, const struct text_bars *b);

#endif
