/* SPDX-License-Identifier: Apache-2.0 */
/* Charts: round ticks, units that fit, nothing cut, nothing on top of another. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "text/chart.h"

static bool round_number(double v)
{
    if (v == 0) return true;
    double p = pow(10, floor(log10(fabs(v)) + 1e-9)), m = fabs(v) / p;
    for (int k = 1; k < 100; k++) { /* at most two digits, of which the second is even or 5 */
        if (fabs(m * 10 - k) < 1e-6) return k % 10 % 2 == 0 || k % 10 == 5 || k % 10 == 0;
    }
    return false;
}

TEST(text_axis_has_round_ticks_around_the_data)
{
    static const double tops[] = {1e-7, 0.0238, 0.9999, 1, 1.01, 7, 27000, 99999, 3e14};
    struct text_axis a;
    for (int i = 0; i < BASE_COUNT_OF(tops); i++) {
        for (int most = 3; most < 12; most++) {
            text_axis_make(&a, 0, tops[i], false, most);
            assert_true(a.n >= 2 && a.n <= most + 1);
            assert_true(a.lo == 0 && a.hi >= tops[i] * (1 - 1e-9) && a.hi <= 2.6 * tops[i]);
            for (int k = 0; k < a.n; k++)
                assert_true(round_number(a.tick[k]) && a.tick[k] <= a.hi * (1 + 1e-9));
            text_axis_make(&a, tops[i] * 3e-5, tops[i], true, most);
            assert_true(a.n >= 2 && a.n <= most + 1 && a.lo <= tops[i] * 3e-5 &&
                        a.hi >= tops[i] * 0.999);
            for (int k = 0; k < a.n; k++)
                assert_true(round_number(a.tick[k]) && (k == 0 || a.tick[k] > a.tick[k - 1]));
        }
    }
    text_axis_make(&a, NAN, INFINITY, true, 5);
    assert_true(a.n >= 2 && a.lo == 0 && a.hi == 1);
    text_axis_make(&a, 0, 0, false, 5);
    assert_true(a.n >= 2 && a.hi > a.lo);
}

TEST(text_units_fit_and_have_no_exponent)
{
    static const struct {
        enum text_unit u;
        double v;
        const char *want;
    } t[] = {
        {TEXT_UNIT_SECONDS, 0.0238, "23.8 ms"}, {TEXT_UNIT_SECONDS, 6342.9, "106 min"},
        {TEXT_UNIT_SECONDS, 12342.9, "3.43 h"}, {TEXT_UNIT_SECONDS, 38.16, "38.2 s"},
        {TEXT_UNIT_SECONDS, 2e-5, "20 us"},     {TEXT_UNIT_SECONDS, 0, "0 ms"},
        {TEXT_UNIT_RATE, 27.7, "27.7 tok/s"},   {TEXT_UNIT_RATE, 27000, "27 ktok/s"},
        {TEXT_UNIT_RATE, 9999, "9999 tok/s"},   {TEXT_UNIT_BYTES, 47244640256.0, "44 GiB"},
        {TEXT_UNIT_OPS, 3.54e14, "354 Top/s"},  {TEXT_UNIT_NONE, 123456789, "123456789"},
        {TEXT_UNIT_NONE, 0.000123, "0.000123"}, {TEXT_UNIT_SECONDS, NAN, "- ms"},
        {TEXT_UNIT_NONE, -2.5, "-2.5"},
    };
    char buf[64];
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        text_unit_text(buf, sizeof buf, t[i].u, t[i].v);
        assert_string_equal(buf, t[i].want);
    }
}

static double attr(const char *p, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, " %s=\"", name);
    const char *at = strstr(p, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* Every label lies inside the drawing; none is in exponent form. Returns how many there are. */
static int labels_inside(const char *svg)
{
    char text[512];
    int n = 0;
    const char *box = strstr(svg, "viewBox=\"0 0 ");
    assert_non_null(box);
    char *end;
    double width = strtod(box + 13, &end), height = strtod(end, NULL);
    for (const char *p = strstr(svg, "<text "); p; p = strstr(p + 1, "<text "), n++) {
        double x = attr(p, "x"), y = attr(p, "y");
        const char *from = strchr(p, '>') + 1, *to = strstr(from, "</text>");
        snprintf(text, sizeof text, "%.*s", (int)(to - from), from);
        double w = text_chart_width(text);
        const char *anchor = strstr(p, "text-anchor=\"") + 13;
        double left = *anchor == 's' ? x : *anchor == 'm' ? x - w / 2 : x - w;
        if (left < 0 || left + w > width + 0.1 || y < 8 || y > height)
            fail_msg("\"%s\" from %.1f to %.1f, y %.1f, in %.0f x %.0f", text, left, left + w, y,
                     width, height);
        assert_null(strstr(text, "e+"));
    }
    return n;
}

TEST(text_chart_cuts_no_label)
{
    static const double tops[] = {1e-9, 0.031, 1, 4096, 27000, 3e9, 0};
    static const char *const names[] = {
        "a layout with a name of many letters WWWWMMMM and @@@@ more", "",
        "\xe8\xb6\x8b\xe5\xa2\x83 8\xc3\x97"
        "910B"};
    static const char *const cats[] = {"1", "16384 requests at a time", "trace"};
    double x[3] = {1, 70, 40000}, y[3][3];
    struct text_line line[3];
    struct str s;
    for (int t = 0; t < BASE_COUNT_OF(tops) * 4; t++) {
        struct text_chart c = {.title = "T <b>", .x_title = "x", .y_title = "y", .line = line};
        c.n_line = 3, c.y_unit = t % 2 ? TEXT_UNIT_SECONDS : TEXT_UNIT_RATE;
        c.x_log = c.y_log = t & 1;
        if (t & 2) c.x_name = cats, c.n_x = 3;
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 3; i++)
                y[k][i] = k == 1 && i == 1 ? NAN : tops[t / 4] * (1 - 0.3 * i);
            line[k] = (struct text_line){names[k], c.x_name ? NULL : x, y[k], 3};
        }
        str_init(&s, MEM_MISC, 0);
        text_chart(&s, &c);
        assert_true(labels_inside(str_c(&s)) > 6);
        assert_null(strstr(str_c(&s), "nan"));
        assert_null(strstr(str_c(&s), "<b>"));
        str_fini(&s);
    }
}

TEST(text_chart_shows_points_that_lie_on_each_other)
{
    static const double x[] = {3}, y[] = {7};
    struct text_line line[3] = {{"a", x, y, 1}, {"b", x, y, 1}, {"c", x, y, 1}};
    struct text_chart c = {.title = "t", .x_title = "", .y_title = "", .line = line, .n_line = 3};
    struct str s;
    double at[3];
    int n = 0;
    str_init(&s, MEM_MISC, 0);
    c.draw = TEXT_DRAW_POINTS;
    text_chart(&s, &c);
    for (const char *p = strstr(str_c(&s), "<circle"); p; p = strstr(p + 1, "<circle"))
        at[n++ % 3] = attr(p, "cx");
    assert_int_equal(n, 3);
    assert_true(at[1] - at[0] > 6 && at[2] - at[1] > 6);
    assert_non_null(strstr(str_c(&s), "3 here"));
    str_clear(&s);
    c.draw = TEXT_DRAW_BOTH;
    static const double yy[] = {1, 2}, xx[] = {1, 2};
    for (int k = 0; k < 3; k++)
        line[k] = (struct text_line){"same", xx, yy, 2};
    text_chart(&s, &c);
    assert_non_null(strstr(str_c(&s), "line c1 dash"));
    assert_null(strstr(str_c(&s), "line c0 dash"));
    str_fini(&s);
}

TEST(text_chart_counts_above_what_it_counts)
{
    static const double x[] = {3, 3.1, 900}, y[] = {2e12, 3e12, 1e16}, far[] = {1e9};
    struct text_line line[] = {{"a", x, y, 1}, {"b", x + 1, y + 1, 1}, {"c", x + 2, far, 1}};
    struct text_chart c = {
        .title = "t", .x_title = "", .y_title = "", .line = line, .n_line = 3, .y_log = true};
    struct str s;
    double top = INFINITY;
    str_init(&s, MEM_MISC, 0);
    c.x_log = true, c.y_unit = TEXT_UNIT_OPS, c.draw = TEXT_DRAW_POINTS;
    for (int k = 0; k < 2; k++) { /* with the others below, and with the highest at the edge */
        str_clear(&s);
        text_chart(&s, &c);
        const char *p = strstr(str_c(&s), "<circle"), *here = strstr(str_c(&s), "2 here");
        assert_non_null(here);
        while (strncmp(here, "<text", 5) != 0)
            here--;
        for (int i = 0; i < 2; i++, p = strstr(p + 1, "<circle"))
            top = i == 0 ? attr(p, "cy") : fmin(top, attr(p, "cy"));
        if (k == 0)
            assert_true(attr(here, "y") <= top - 7);
        else
            assert_true(attr(here, "y") > top + 14);
        assert_non_null(strstr(str_c(&s), k ? ">Top/s<" : ">Gop/s<"));
        line[0].y = &y[2], line[1].y = &y[2]; /* 1e9 .. 1e16: the middle is 3e12 */
    }
    str_fini(&s);
}

TEST(text_bars_cut_nothing)
{
    double v[3] = {12.5, 900, NAN};
    struct text_bar bar[3] = {
        {"first", &v[0], 0, NULL},
        {"the second has a name that is far longer than any drawing is wide, and goes on", &v[1], 0,
         "900.0 tok/s, 1.5x, first token after 12.3 ms, and whatever else a note has to say here"},
        {"nothing", &v[2], 0, NULL}};
    struct text_bars b = {.title = "t", .unit = TEXT_UNIT_RATE, .n_part = 1, .bar = bar, .n = 3};
    struct str s;
    str_init(&s, MEM_MISC, 0);
    text_bars(&s, &b);
    assert_true(labels_inside(str_c(&s)) == 7); /* three names, three notes, "logarithmic" */
    str_clear(&s);
    text_bars_file(&s, &b);
    assert_non_null(strstr(str_c(&s), "xmlns"));
    assert_non_null(strstr(str_c(&s), "prefers-color-scheme:dark"));
    assert_null(strstr(str_c(&s), "nan"));
    str_fini(&s);
}
