/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that compute in another process: what is known here is the model's vocabulary. */
#include "engine/engine_internal.h"

sl_status sl_engine_remote(const sl_model *m, const sl_remote *r, sl_engine **out, sl_err *err)
{
    sl_model_info mi;
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(sl_engine) + sizeof *r, &p, err));
    sl_engine *e = p;
    e->m = (sl_model *)(uintptr_t)m; /* read only, as of every engine */
    e->remote = (sl_remote *)(e + 1);
    *e->remote = *r;
    sl_model_info_get(m, &mi);
    e->n_vocab = mi.n_vocab;
    *out = e;
    return SL_OK;
}

sl_status engine_need_here(const sl_engine *e, const char *call, sl_err *err)
{
    if (!e->remote) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "%s: the engine is in another process", call);
}

int sl_ready(const sl_engine *e)
{
    return e->remote ? e->remote->ready(e->remote->user) : !atomic_load(&e->lost);
}
