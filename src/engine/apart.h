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
    int home, layer, blk; /* blk: of the home's pool */
};
void engine_page_get(sl_engine *e, const struct engine_page_at *at, void *page);
void engine_page_set(sl_engine *e, const struct engine_page_at *at, const void *page);
uint64_t engine_page_sum(const sl_kv_page *page);

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

void engine_away_close(sl_engine *e);
/* sched_opts.away: how many of slot's first positions are to come from elsewhere. */
int engine_away_for(void *user, int slot);
/* What came goes into the cache; who has all of it goes on. At the beginning of a step. */
void engine_away_step(sl_engine *e);
/* After a plan: those that it holds are asked for. */
void engine_away_ask(sl_engine *e);
/* r is over. */
void engine_away_leave(sl_engine *e, struct request *r);
/* Nothing can be computed now: wait for what comes, shortly. */
void engine_apart_idle(sl_engine *e);

#endif
