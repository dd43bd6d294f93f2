/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts as users write them: "tp=2". */
#include <stdlib.h>
#include <string.h>

#include "dist/dist.h"

static sl_status number(const char *word, const char *v, size_t n, int *out, sl_err *err)
{
    char *end;
    long x = strtol(v, &end, 10);
    if (end == v || *v == '-' || *v == '+' || end != v + n || x < 1)
        return SL_FAIL(err, REQUEST, "layout: '%.40s': a number from 1 on comes after '='", word);
    if (x > DIST_RANK_MAX)
        return SL_FAIL(err, REQUEST, "layout: '%.40s': at most %d ranks", word, DIST_RANK_MAX);
    *out = (int)x;
    return SL_OK;
}

static sl_status word(const char *at, size_t n, struct dist_layout *out, sl_err *err)
{
    static const char *const later[] = {"pp", "dp", "ep", "etp", "weight"};
    char w[48];
    if (n >= sizeof w) n = sizeof w - 1;
    memcpy(w, at, n);
    w[n] = 0;
    const char *eq = strchr(w, '=');
    size_t key = eq ? (size_t)(eq - w) : n;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (key == strlen(later[i]) && strncmp(w, later[i], key) == 0)
            return SL_FAIL(err, UNSUPPORTED, "layout: '%s': there is only tp yet", w);
    if (!eq || key != 2 || strncmp(w, "tp", 2) != 0)
        return SL_FAIL(err, REQUEST, "layout: '%s': expected tp=N", w);
    return number(w, eq + 1, n - key - 1, &out->tp, err);
}

sl_status dist_layout_parse(const char *text, struct dist_layout *out, sl_err *err)
{
    *out = (struct dist_layout){.tp = 1};
    bool seen = false;
    for (const char *p = text; *p; seen = true) {
        size_t n = strcspn(p, ",");
        SL_TRY(word(p, n, out, err));
        if (seen) return SL_FAIL(err, REQUEST, "layout: '%.40s': tp is said already", text);
        p += n;
        if (*p == ',' && !*++p) return SL_FAIL(err, REQUEST, "layout: nothing comes after ','");
    }
    return SL_OK;
}
