/* SPDX-License-Identifier: Apache-2.0 */
/* Reads CSV records and the numbers in them. */
#include "plan/csv.h"
#include "text/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Where a record goes: its bytes, and cells that point into them. */
struct cells {
    char *buf; /* [size] */
    size_t size;
    const char **cell; /* [PLAN_CSV_COLS] */
    int *n;
};

/* Read one record; *more: there was one. */
static sl_status record(struct plan_csv *c, const struct cells *to, bool *more, sl_err *err)
{
    char *buf = to->buf;
    int *n_cell = to->n;
    const char *p = c->src.p;
    size_t n = c->src.n, used = 0;
    *n_cell = 0;
    while (c->pos < n && (p[c->pos] == '\n' || p[c->pos] == '\r' || p[c->pos] == '#')) {
        if (p[c->pos] == '#') {
            while (c->pos < n && p[c->pos] != '\n')
                c->pos++;
            continue;
        }
        c->next_line += p[c->pos] == '\n';
        c->pos++;
    }
    c->line = c->next_line;
    *more = c->pos < n;
    if (!*more) return SL_OK;
    bool end = false;
    while (!end) {
        if (*n_cell == PLAN_CSV_COLS) {
            return SL_FAIL(err, FORMAT, "%s line %d: more than %d columns", c->src.name, c->line,
                           PLAN_CSV_COLS);
        }
        to->cell[(*n_cell)++] = buf + used;
        bool quoted = c->pos < n && p[c->pos] == '"';
        if (quoted) c->pos++;
        for (;; c->pos++) {
            if (c->pos >= n) {
                if (quoted)
                    return SL_FAIL(err, FORMAT, "%s line %d column %d: quote is not closed",
                                   c->src.name, c->line, *n_cell);
                end = true;
                break;
            }
            char ch = p[c->pos];
            if (quoted && ch == '"') {
                if (c->pos + 1 < n && p[c->pos + 1] == '"') {
                    c->pos++;
                } else {
                    quoted = false;
                    continue;
                }
            } else if (!quoted && (ch == ',' || ch == '\n')) {
                end = ch == '\n';
                c->next_line += end;
                c->pos++;
                break;
            } else if (!quoted && ch == '\r') {
                continue;
            } else if (ch == '\n') {
                c->next_line++;
            } else if (ch == '\0') {
                return SL_FAIL(err, FORMAT, "%s line %d column %d: NUL byte", c->src.name, c->line,
                               *n_cell);
            }
            if (used + 2 > to->size) {
                return SL_FAIL(err, FORMAT, "%s line %d: longer than %zu bytes", c->src.name,
                               c->line, to->size);
            }
            buf[used++] = ch;
        }
        if (used + 2 > to->size) {
            return SL_FAIL(err, FORMAT, "%s line %d: longer than %zu bytes", c->src.name, c->line,
                           to->size);
        }
        buf[used++] = '\0';
    }
    return SL_OK;
}

sl_status plan_csv_open(struct plan_csv *c, struct plan_bytes src, sl_err *err)
{
    *c = (struct plan_csv){.src = src, .next_line = 1};
    c->pos = text_utf8_bom(src.p, src.n);
    bool more;
    struct cells head = {c->head_buf, sizeof c->head_buf, c->head, &c->n_head};
    SL_TRY(record(c, &head, &more, err));
    if (!more) return SL_FAIL(err, FORMAT, "%s: empty file: a header line is needed", src.name);
    return SL_OK;
}

sl_status plan_csv_next(struct plan_csv *c, bool *more, sl_err *err)
{
    struct cells row = {c->buf, sizeof c->buf, c->cell, &c->n};
    SL_TRY(record(c, &row, more, err));
    if (*more && c->n > c->n_head) {
        return SL_FAIL(err, FORMAT, "%s line %d: %d cells, the header has %d", c->src.name, c->line,
                       c->n, c->n_head);
    }
    return SL_OK;
}

static int column(const struct plan_csv *c, const char *col)
{
    for (int i = 0; i < c->n_head; i++) {
        if (strcasecmp(c->head[i], col) == 0) return i;
    }
    return -1;
}

const char *plan_csv_text(const struct plan_csv *c, const char *col)
{
    int i = column(c, col);
    return i >= 0 && i < c->n ? c->cell[i] : "";
}

sl_status plan_csv_num(const struct plan_csv *c, const char *col, struct plan_span may, double *out,
                       sl_err *err)
{
    const char *s = plan_csv_text(c, col);
    while (*s == ' ' || *s == '~')
        s++;
    *out = may.def;
    if (!*s || strncasecmp(s, "none", 4) == 0 || strcmp(s, "-") == 0) return SL_OK;
    char *end;
    double v = strtod(s, &end);
    if (end == s || !isfinite(v)) {
        return SL_FAIL(err, FORMAT, "%s line %d column %d (%s): \"%.40s\" is not a number",
                       c->src.name, c->line, column(c, col) + 1, col, s);
    }
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') { /* a range: its middle */
        v = 0.5 * (v + strtod(end + 1, NULL));
    }
    if (!(v >= may.lo && v <= may.hi)) {
        return SL_FAIL(err, FORMAT, "%s line %d column %d (%s): %.6g is outside %.6g .. %.6g",
                       c->src.name, c->line, column(c, col) + 1, col, v, may.lo, may.hi);
    }
    *out = v;
    return SL_OK;
}
