/* SPDX-License-Identifier: Apache-2.0 */
/* A bar chart as SVG: one row per value, drawn without scripts, fonts or links. */
#ifndef TOOLS_CHART_H
#define TOOLS_CHART_H

#include "base/status.h"

struct chart_bar {
    char label[96];
    double v;      /* >= 0 and finite; others are drawn as nothing */
    char note[96]; /* after the bar */
};
/* Write n bars to path, the longest as wide as the chart, on a logarithmic scale where the largest
 * is over 50 times the least. */
sl_status chart_write(const char *path, const char *title, const struct chart_bar *bar, int n,
                      sl_err *err) BASE_MUST_USE;

#endif
