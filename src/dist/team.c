/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process. */
#include "base/mem.h"
#include "dist/dist_internal.h"

static void team_close(dist *any)
{
    dist *first = any - any->rank;
    for (int i = 0; i < any->n; i++)
        mem_free(first[i].room);
    mem_free(any->board);
    mem_free(first);
}

sl_status dist_team_open(int n, const struct dist_opts *o, dist **out, sl_err *err)
{
    void *b = NULL, *end = NULL;
    if (n < 2 || n > DIST_RANK_MAX)
        return SL_FAIL(err, REQUEST, "%d ranks: there may be 2 to %d", n, DIST_RANK_MAX);
    SL_TRY(mem_alloc_array(MEM_MISC, 1, dist_board_bytes(n), &b, err));
    sl_status st = mem_alloc_array(MEM_MISC, (size_t)n, sizeof(struct dist), &end, err);
    if (st) {
        mem_free(b);
        return st;
    }
    dist_board_init(b, n, false);
    for (int i = 0; i < n; i++) {
        out[i] = (struct dist *)end + i;
        dist_init(out[i], i, n, o);
        dist_board_attach(out[i], b, 0, 0);
        out[i]->close = team_close;
    }
    return SL_OK;
}
