/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a bar chart as SVG. */
#include "chart.h"

#include "base/mem.h"
#include "os/os.h"
#include "text/chart.h"

sl_status chart_write(const char *path, const char *title, const struct chart_bar *bar, int n,
                      sl_err *err)
{
    struct text_bar *row;
    struct str s;
    void *p;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n + 1, sizeof *row, &p, err));
    row = p;
    for (int i = 0; i < n; i++)
        row[i] = (struct text_bar){.name = bar[i].label, .part = &bar[i].v, .note = bar[i].note};
    struct text_bars b = {.title = title, .n_part = 1, .bar = row, .n = n};
    str_init(&s, MEM_MISC, 0);
    text_bars_file(&s, &b);
    sl_status st = str_status(&s, err);
    if (!st) st = os_write_file(path, s.p, s.n, err);
    str_fini(&s);
    mem_free(row);
    return st;
}
