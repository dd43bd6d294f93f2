/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that another engine computes: pages of a cache (pages.c), who gives them away (give.c)
 * and who takes them (away.c). */
#ifndef ENGINE_APART_H
#define ENGINE_APART_H

#include "engine/engine_internal.h"

/* ---- pages.c: what is stored of a block in one layer, the same from every layout ---- */

/* UNSUPPORTED says why this engine's cache is not shown. */
sl_status engine_pages_check(const sl_engine *e, sl_err *err) BASE_MUST_USE;
/* What must be the same for pages to be of use; 0: they are not shown. */
uint64_t engine_pages_hash(const sl_engine *e);
/* Layers of the model, and those after them whose entries the MTP layer has stored. */
int engine_pages_layers(const sl_engine *e);
/* Bytes of a layer's page, and of the largest. */
size_t engine_page_bytes(const sl_engine *e, int layer);
size_t engine_page_most(const sl_engine *e);
struct engine_page_at {
    int home, layer, blk; /* blk: of the home's pool, or of that of windows */
};
/* A page as bytes, out of the cache and into it; engine_page_bytes of them. Between steps. */
void engine_page_get(sl_engine *e, const struct engine_page_at *at, void *page);
void engine_page_set(sl_engine *e, const struct engine_page_at *at, const void *page);
/* A checksum of its bytes and of where it belongs. */
uint64_t engine_page_sum(const sl_kv_page *page);
/* Must it come for what follows a prompt of n_tok? Block number j of it in a layer with a window
 * that the next position does not see need not. */
bool engine_page_needed(const sl_engine *e, int layer, int j, int n_tok);
/* The place in the home's pool of a layer that needs it. */
int32_t engine_page_blk(const sl_engine *e, int home, int layer, int32_t blk);
/* Where a rank of these dims has it; false: it has it not. */
bool engine_page_find(const struct arch_cfg *c, const struct model_dims *d,
                      const struct engine_page_at *at, struct dev_kv_at *out);

/* ---- pages_far.c: where parts of the cache are in other processes. Between steps: of several
 * lanes none is under way. What fails there loses the engine. ---- */

#define ENGINE_FAR_PAGES 256 /* at most, that go or are asked for at once */

/* Are parts of the cache in other processes? */
bool engine_is_far(const sl_engine *e);
/* As engine_page_set, at the latest with the next flush, or a page of another layer. */
void engine_far_put(sl_engine *e, const struct engine_page_at *at, const void *page);
void engine_far_flush(sl_engine *e);
/* As engine_page_get, of block number j of a request, and of those after it that will be asked for
 * next, n in all at blk; what came with it is known until it is forgotten. False: the ranks have
 * failed. */
struct engine_far_of {
    const struct request *r;
    int j, n;
    int32_t blk[ENGINE_FAR_PAGES];
};
bool engine_far_get(sl_engine *e, const struct engine_page_at *at, const struct engine_far_of *of,
                    void *page);
void engine_far_forget(sl_engine *e); /* the request is over */

/* ---- give.c ---- */

/* May q have the on_kv and kv_from that it has? On the submitting thread. Errors: UNSUPPORTED, as
 * engine_pages_check; REQUEST: fields that do not go with them. */
sl_status engine_give_check(const sl_engine *e, const sl_request *q, sl_err *err) BASE_MUST_USE;
/* When the engine is opened: room for a page, where its cache can be shown. Errors: NOMEM. */
sl_status engine_give_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_give_close(sl_engine *e);
/* A request with on_kv was taken in, and is over. */
void engine_give_begin(sl_engine *e, struct request *r);
void engine_give_end(sl_engine *e);
/* Between steps: what is computed goes, as far as it is taken; requests of which all has gone end.
 */
void engine_give_step(sl_engine *e);
/* The step of this plan runs; NULL: it is over. */
void engine_give_watch(sl_engine *e, const struct sched_plan *p);

/* ---- away.c ---- */

/* When the engine is closed: what it asked of another one is given up. */
void engine_away_close(sl_engine *e);
/* sched_opts.away: how many of slot's first positions are to come from elsewhere. */
int engine_away_for(void *user, int slot);
/* What came goes into the cache; a request that has all of its goes on. At the beginning of a step.
 */
void engine_away_step(sl_engine *e);
/* After a plan: those that it holds are asked for. */
void engine_away_ask(sl_engine *e);
/* r is over. */
void engine_away_leave(sl_engine *e, struct request *r);
/* Nothing can be computed now: wait for what comes, shortly. */
void engine_apart_idle(sl_engine *e);

#endif
