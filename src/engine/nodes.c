/* SPDX-License-Identifier: Apache-2.0 */
/* Which layout "auto" means: on a machine of several memory nodes a rank of this process on each,
 * where the model and what else is asked for allow it; else one rank. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "os/os.h"

/* What of the options one rank has only, or NULL. */
static const char *for_one(const sl_engine *e)
{
    const sl_engine_opts *o = &e->opts;
    return model_place_or_default(o->place)                          ? "place"
           : strcmp(dev_name_or_default(o->device), dev_name(0)) != 0 ? "device"
           : o->n_hot                                                ? "hot-experts"
           : o->stream_from                                          ? "stream-from"
           : o->n_defer                                              ? "defer"
           : o->draft_model                                          ? "draft-model"
                                                                     : NULL;
}

/* May a rank be on each of n nodes? Errors: why not. */
static sl_status may(const sl_engine *e, const struct os_topology *top, int n, sl_err *err)
{
    const char *what = for_one(e);
    int n_thread = e->opts.n_thread ? e->opts.n_thread : os_within_quota(top, top->n_core);
    struct model_opts o = {.combine = e->combine, .n_draft_vocab = e->opts.draft_vocab};
    if (what) return SL_FAIL(err, REQUEST, "%s is for one", what);
    if (n > DIST_RANK_MAX) return SL_FAIL(err, REQUEST, "at most %d ranks", DIST_RANK_MAX);
    if (n_thread < n)
        return SL_FAIL(err, REQUEST, "%d threads are less than one for each", n_thread);
    if (n_thread / n > top->n_core_node)
        return SL_FAIL(err, REQUEST, "%d threads for each, and one of %d cores", n_thread / n,
                       top->n_core_node);
    return model_may_share(&e->m->cfg, &o, n, err);
}

sl_status engine_nodes_layout(sl_engine *e, sl_err *err)
{
    struct os_topology top;
    sl_err why = {0};
    if (!e->opts.layout || strcmp(e->opts.layout, "auto") != 0) return SL_OK;
    e->opts.layout = NULL;
    if (dist_launched().n > 1) return SL_OK; /* each process is one rank */
    SL_TRY(os_topology_get(&top, err));
    int n = top.n_numa;
    if (n < 2) return SL_OK;
    if (may(e, &top, n, &why)) {
        size_t skip = strncmp(why.text, "layout: ", 8) == 0 ? 8 : 0;
        log_msg(LOG_INFO, "one rank on %d memory nodes, not one on each: %s", n, why.text + skip);
        return SL_OK;
    }
    snprintf(e->layout, sizeof e->layout, "tp=%d", n);
    e->opts.layout = e->layout;
    log_msg(LOG_INFO, "layout: %s: a rank on each memory node (--layout tp=1: one on all)",
            e->layout);
    return SL_OK;
}
