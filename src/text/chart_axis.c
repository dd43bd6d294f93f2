/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of charts: units that fit, round ticks, widths that hold. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/chart.h"

struct text_unit_pick text_unit_of(enum text_unit u, double most)
{
    double v = isfinite(most) ? fabs(most) : 0;
    switch (u) {
    case TEXT_UNIT_SECONDS:
        if (v >= 7200) return (struct text_unit_pick){1 / 3600.0, "h"};
        if (v >= 120) return (struct text_unit_pick){1 / 60.0, "min"};
        if (v >= 1) return (struct text_unit_pick){1, "s"};
        if (v >= 1e-3 || v == 0) return (struct text_unit_pick){1e3, "ms"};
        return (struct text_unit_pick){1e6, "us"};
    case TEXT_UNIT_RATE:
        if (v >= 1e6) return (struct text_unit_pick){1e-6, "Mtok/s"};
        if (v >= 1e4) return (struct text_unit_pick){1e-3, "ktok/s"};
        return (struct text_unit_pick){1, "tok/s"};
    case TEXT_UNIT_OPS:
        if (v >= 1e15) return (struct text_unit_pick){1e-15, "Pop/s"};
        if (v >= 1e12) return (struct text_unit_pick){1e-12, "Top/s"};
        return (struct text_unit_pick){1e-9, "Gop/s"};
    case TEXT_UNIT_BYTES:
        if (v >= 1099511627776.0) return (struct text_unit_pick){1 / 1099511627776.0, "TiB"};
        if (v >= 1073741824.0) return (struct text_unit_pick){1 / 1073741824.0, "GiB"};
        return (struct text_unit_pick){1 / 1048576.0, "MiB"};
    default:
        return (struct text_unit_pick){1, ""};
    }
}

void text_number(char *buf, size_t size, double v)
{
    if (!isfinite(v)) {
        snprintf(buf, size, "-");
        return;
    }
    double a = fabs(v);
    int digits = a == 0 ? 0 : 2 - (int)floor(log10(a) + 1e-9);
    if (digits < 0) digits = 0;
    if (digits > 12) digits = 12;
    snprintf(buf, size, "%.*f", digits, v);
    if (!strchr(buf, '.')) return;
    size_t n = strlen(buf);
    while (n > 0 && buf[n - 1] == '0')
        n--;
    if (n > 0 && buf[n - 1] == '.') n--;
    buf[n] = '\0';
}

void text_unit_text(char *buf, size_t size, enum text_unit u, double v)
{
    char number[32];
    struct text_unit_pick p = text_unit_of(u, v);
    text_number(number, sizeof number, v * p.scale);
    snprintf(buf, size, "%s%s%s", number, *p.name ? " " : "", p.name);
}

/* The least of 1, 2, 5, 10, 20 ... that is not below v. */
static double round_up(double v)
{
    double p = pow(10, floor(log10(v) + 1e-9));
    for (int i = 0; i < 3; i++) {
        double m = i == 0 ? 1 : i == 1 ? 2 : 5;
        if (p * m >= v * (1 - 1e-9)) return p * m;
    }
    return 10 * p;
}

static void linear(struct text_axis *a, double lo, double hi, int most)
{
    double step = round_up((hi - fmin(lo, 0)) / (most - 1));
    double from = lo < 0 ? -ceil(-lo / step - 1e-9) : 0, to = ceil(hi / step - 1e-9);
    a->lo = from * step, a->hi = to * step;
    for (double k = from; k <= to && a->n < TEXT_TICKS; k++)
        a->tick[a->n++] = k * step;
}

/* Ticks at 1, 2 and 5 of each decade, at its 1 alone, or at every second, third ... decade. */
static void logarithmic(struct text_axis *a, double lo, double hi, int most)
{
    static const double three[] = {1, 2, 5};
    double first = floor(log10(lo) + 1e-9), last = ceil(log10(hi) - 1e-9);
    if (last <= first) last = first + 1;
    double decades = last - first;
    a->lo = pow(10, first), a->hi = pow(10, last);
    int in = 3 * decades + 1 <= most ? 3 : 1;
    double stride = in == 3 ? 1 : ceil((decades + 1) / most);
    for (double d = first; d <= last && a->n < TEXT_TICKS; d += stride) {
        for (int i = 0; i < in && a->n < TEXT_TICKS; i++) {
            double v = three[i] * pow(10, d);
            if (v <= a->hi * (1 + 1e-9)) a->tick[a->n++] = v;
        }
    }
}

void text_axis_make(struct text_axis *a, double lo, double hi, bool log, int most)
{
    *a = (struct text_axis){.log = log};
    bool fine = isfinite(lo) && isfinite(hi) && hi > (log ? 0 : fmin(lo, 0)) && hi >= lo;
    if (log && lo <= 0) lo = hi * 1e-3;
    if (most < 2) most = 2;
    if (most > 20) most = 20;
    if (!fine) a->log = log = false, lo = 0, hi = 1;
    if (log)
        logarithmic(a, lo, hi, most);
    else
        linear(a, lo, hi, most);
}

/* Sans-serif fonts (DejaVu Sans is among the widest): digits and lower case stay below 0.66 of the
 * size, capitals and what is wide at 1.0, characters beyond ASCII below 1.1. Size 12. */

double text_chart_width(const char *z)
{
    double w = 0;
    for (; *z; z++) {
        unsigned char c = (unsigned char)*z;
        if ((c & 0xc0) == 0x80) continue; /* inside a UTF-8 sequence */
        bool wide = (c >= 'A' && c <= 'Z') || strchr("mw%@+=<>#&~", c) != NULL;
        w += c >= 0x80 ? 1.1 : wide ? 1.0 : 0.66;
    }
    return 12 * w;
}
