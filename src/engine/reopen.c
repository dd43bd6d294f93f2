/* SPDX-License-Identifier: Apache-2.0 */
/* A device was lost: it is opened again, and the model loaded again. What other threads see of the
 * engine stays where it is. */
#include "base/log.h"
#include "engine/engine_internal.h"

static sl_status check(const sl_engine *e, sl_err *err)
{
    if (engine_n_rank(e) > 1)
        return SL_FAIL(err, UNSUPPORTED, "reopen: not where ranks share the model (layout)");
    if (e->opts.draft_model)
        return SL_FAIL(err, UNSUPPORTED, "reopen: not with a draft_model");
    return SL_OK;
}

sl_status sl_reopen(sl_engine *e, sl_err *err)
{
    int64_t kv_tokens = (int64_t)e->pool.n_blk * ENGINE_BLK_TOK;
    SL_TRY(engine_need_here(e, "sl_reopen", err));
    SL_TRY(check(e, err));
    if (!atomic_load(&e->lost)) return SL_OK;
    for (int i = 0; i < e->n_req_max; i++)
        if (e->req[i]) engine_request_end(e, e->req[i], -1, SL_FINISH_ERROR, &e->lost_err);
    kv_cache_drop(&e->pool);
    model_close(e->net);
    e->net = NULL;
    SL_TRY(engine_place_again(e, err));
    engine_hot_again(e);
    engine_stream_again(e);
    engine_mtp_forget(e);
    SL_TRY(engine_load(e, kv_tokens, err));
    engine_stream_tell(e);
    e->stats.n_reopen++;
    atomic_store(&e->lost, 0); /* release; pairs with loads where requests are submitted */
    engine_publish(e);
    log_msg(LOG_WARN, "the device was opened again, the model is there: requests are taken");
    return SL_OK;
}
