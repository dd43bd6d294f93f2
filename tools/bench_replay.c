/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench --replay: the steps of a recording again, and are the results the same bits? */
#include <inttypes.h>
#include <string.h>

#include "bench.h"
#include "dist/dist.h"
#include "os/os.h"

static sl_status print_json(const struct compute *c, const sl_replay_info *r, sl_err *err)
{
    const struct {
        const char *key;
        uint64_t v;
    } number[] = {{"steps", r->n_step},
                  {"tokens", r->n_tok},
                  {"rows", r->n_row},
                  {"differ", r->n_differ},
                  {"first_step", r->first_step}};
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    for (int i = 0; i < BASE_COUNT_OF(number); i++) {
        text_jw_key(&w, number[i].key);
        text_jw_int(&w, (int64_t)number[i].v);
    }
    text_jw_key(&w, "seconds");
    text_jw_real(&w, (double)r->ns * 1e-9, 6);
    text_jw_key(&w, "threads");
    text_jw_int(&w, c->ei.n_thread);
    text_jw_key(&w, "isa");
    text_jw_strz(&w, c->ei.isa);
    text_jw_key(&w, "recorded_isa");
    text_jw_strz(&w, r->isa);
    text_jw_key(&w, "recorded_by");
    text_jw_strz(&w, r->program);
    text_jw_obj_end(&w);
    sl_status st = str_status(&s, err);
    if (!st) st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

static sl_status tell(const struct compute *c, const char *path, const sl_replay_info *r, bool json,
                      sl_err *err)
{
    char row[40] = "";
    if (json) SL_TRY(print_json(c, r, err));
    if (r->first_row >= 0) snprintf(row, sizeof row, ", row %d", r->first_row);
    if (r->n_differ)
        return SL_FAIL(err, INTERNAL,
                       "%.100s: %" PRIu64 " results differ, the first in step %" PRIu64
                       "%s (recorded on %s, computed on %s)",
                       path, r->n_differ, r->first_step, row, r->isa, c->ei.isa);
    if (!json)
        printf("%" PRIu64 " steps, %" PRIu64 " tokens, %" PRIu64
               " rows of logits: the same bits; %.3f s (recorded on %s by sluice %s)\n",
               r->n_step, r->n_tok, r->n_row, (double)r->ns * 1e-9, r->isa, r->program);
    return SL_OK;
}

sl_status bench_replay(const struct opt_common *o, const char *path, sl_err *err)
{
    struct compute c = {0};
    struct opt_common like = *o;
    struct os_map map;
    sl_engine_opts eo = {0};
    sl_replay_info info;
    SL_TRY(os_map_open(path, &map, err));
    sl_status st = sl_record_opts(map.data, map.size, &eo, err);
    if (st) status_prefix(err, "%.100s", path);
    if (!o->acts) like.acts = (int)eo.acts; /* what is asked for stays: a difference is named */
    if (!o->kv) like.kv = (int)eo.kv;
    like.exact = o->exact || eo.exact;
    if (!o->defer) like.defer = eo.n_defer;
    if (!o->combine) like.combine = eo.combine;
    if (eo.draft) like.draft = eo.draft;
    like.draft_vocab = eo.draft_vocab;
    if (o->ctx) eo.n_ctx = o->ctx;
    struct dist_layout l;
    if (o->layout && !dist_layout_parse(o->layout, &l, NULL)) { /* all is the first group's */
        eo.n_seq_max *= l.dp;
        eo.n_chunk *= l.dp;
        eo.kv_tokens *= l.dp;
    }
    if (!st) {
        st = compute_open(&c, &like, &eo, err);
        /* the recording asks for an MTP layer that this model lacks */
        if (st && st != SL_NOTFOUND && eo.draft) status_prefix(err, "%.100s", path);
    }
    if (!st) {
        st = sl_replay(c.e, map.data, map.size, &info, err);
        if (st) status_prefix(err, "%.100s", path);
        if (!st) st = tell(&c, path, &info, o->json, err);
        compute_close(&c);
    }
    os_map_close(&map);
    return st;
}
