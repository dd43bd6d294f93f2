/* SPDX-License-Identifier: Apache-2.0 */
#include "chart.h"

#include <math.h>

#include "base/str.h"
#include "os/os.h"
#include "text/html.h"

#define WIDTH 900
#define LEFT 250
#define BAR_MAX 420
#define ROW 26
#define TOP 44

static bool usable(double v)
{
    return isfinite(v) && v > 0;
}

static double length(double v, double lo, double hi, bool logarithmic)
{
    if (!usable(v)) return 0;
    if (!logarithmic) return BAR_MAX * v / hi;
    return BAR_MAX * (0.05 + 0.95 * log(v / lo) / log(hi / lo));
}

sl_status chart_write(const char *path, const char *title, const struct chart_bar *bar, int n,
                      sl_err *err)
{
    struct str s;
    double lo = INFINITY, hi = 0;
    for (int i = 0; i < n; i++) {
        if (!usable(bar[i].v)) continue;
        lo = fmin(lo, bar[i].v);
        hi = fmax(hi, bar[i].v);
    }
    bool logarithmic = hi > 50 * lo;
    str_init(&s, MEM_MISC, 0);
    str_printf(&s,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
               "font-family=\"sans-serif\" font-size=\"13\">\n",
               WIDTH, TOP + n * ROW + 10);
    str_printf(&s, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"10\" "
                   "y=\"24\" font-size=\"16\">");
    text_html_escape(&s, title);
    str_printf(&s, "%s</text>\n", logarithmic ? " (logarithmic)" : "");
    for (int i = 0; i < n; i++) {
        double len = length(bar[i].v, lo, hi, logarithmic);
        int y = TOP + i * ROW;
        str_printf(&s, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 8, y + 15);
        text_html_escape(&s, bar[i].label);
        str_printf(&s,
                   "</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"18\" "
                   "fill=\"#3b6ea5\"/><text x=\"%.1f\" y=\"%d\">",
                   LEFT, y, len, LEFT + len + 6, y + 15);
        text_html_escape(&s, bar[i].note);
        str_puts(&s, "</text>\n");
    }
    str_puts(&s, "</svg>\n");
    sl_status st = str_status(&s, err);
    if (!st) st = os_write_file(path, s.p, s.n, err);
    str_fini(&s);
    return st;
}
