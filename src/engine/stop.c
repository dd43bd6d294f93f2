/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings over text that comes in pieces: what may go out, and where one ends. */
#include <string.h>

#include "engine/engine_internal.h"

/* The longest stop string that ends at byte end of held; -1 = none. */
static int match_at(const struct engine_stop *s, size_t end)
{
    int best = -1;
    for (int i = 0; i < s->n; i++)
        if ((best < 0 || s->len[i] > s->len[best]) && (size_t)s->len[i] <= end &&
            memcmp(s->held.p + end - s->len[i], s->s[i], (size_t)s->len[i]) == 0)
            best = i;
    return best;
}

/* The longest end of held that a stop string begins with, the whole of it left out. */
static size_t open_tail(const struct engine_stop *s)
{
    size_t best = 0;
    for (int i = 0; i < s->n; i++) {
        size_t k = BASE_MIN(s->held.n, (size_t)s->len[i] - 1);
        for (; k > best; k--)
            if (memcmp(s->held.p + s->held.n - k, s->s[i], k) == 0) best = k;
    }
    return best;
}

bool engine_stop_scan(struct engine_stop *s, size_t *n_out)
{
    for (size_t end = s->n_seen + 1; s->n && end <= s->held.n; end++) {
        int i = match_at(s, end);
        if (i < 0) continue;
        s->which = i;
        *n_out = end - (size_t)s->len[i];
        return true;
    }
    s->which = -1;
    s->n_seen = s->held.n;
    *n_out = s->held.n - open_tail(s);
    return false;
}

void engine_stop_drop(struct engine_stop *s, size_t n)
{
    if (!n) return;
    memmove(s->held.p, s->held.p + n, s->held.n - n);
    s->held.n -= n;
    s->held.p[s->held.n] = 0;
    s->n_seen = s->n_seen > n ? s->n_seen - n : 0;
}
