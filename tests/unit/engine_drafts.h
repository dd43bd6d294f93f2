/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that draft in everything, and an answer of theirs. */
#ifndef TEST_ENGINE_DRAFTS_H
#define TEST_ENGINE_DRAFTS_H

#include <string.h>

#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define DEMO TEST_DATA "/../../models/demo/demo.gguf"

static sl_err err;

struct answer {
    int32_t id[200];
    int n;
    sl_event last;
};

static inline void on_event(void *user, const sl_event *ev)
{
    struct answer *a = user;
    if (ev->token >= 0) a->id[a->n++] = ev->token;
    a->last = *ev;
}

static inline sl_status open_opts(const char *path, const sl_engine_opts *opts, sl_model **m,
                           sl_engine **e)
{
    sl_engine_opts o = *opts;
    o.n_thread = 2;
    o.n_ctx = 256;
    o.n_seq_max = 2;
    o.acts = SL_ACTS_F32;
    o.kv = SL_KV_F32;
    o.draft_always = 1;
    ASSERT_OK(sl_model_open(path, NULL, m, &err));
    sl_status st = sl_engine_open(*m, &o, e, &err);
    if (st) sl_model_close(*m);
    return st;
}

static inline sl_status open_most(const char *path, const char *draft, int draft_max, sl_model **m,
                           sl_engine **e)
{
    sl_engine_opts o = {.draft = draft, .draft_max = draft_max};
    return open_opts(path, &o, m, e);
}

static inline sl_status open_with(const char *path, const char *draft, sl_model **m, sl_engine **e)
{
    return open_most(path, draft, strcmp(draft, "mtp") == 0, m, e);
}

static inline void run(sl_engine *e, const sl_request *q, struct answer *a)
{
    sl_request r = *q;
    memset(a, 0, sizeof *a);
    r.on_event = on_event;
    r.user = a;
    ASSERT_OK(sl_submit(e, &r, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

#endif
