/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts whose experts are streamed from the CPU's memory through the device beside it: what that
 * takes of the device, and what is said of it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "engine/ranks.h"

#define GIB (1.0 / (1 << 30))
#define CHUNK_LEAST 128 /* no step of a prompt is made shorter than this to save memory */

/* May experts of layer il, of rank r, be streamed? of: as of engine_rank_beside. */
static bool may(const sl_engine *e, int r, const bool *of, int il)
{
    return of[il] && (r != engine_rank_here(e) ||
                      model_may_stream(&e->place.p, &e->m->cfg, il)); /* others': all of a stage */
}

/* The bytes of an expert of each layer. */
static sl_status find(sl_engine *e, const int64_t *bytes, sl_err *err)
{
    struct engine_stream *s = &e->stream;
    s->expert_bytes = s->n_ours = 0;
    for (int r = 0; r < engine_n_rank(e); r++) {
        bool *of = NULL, any = false;
        SL_TRY(engine_rank_beside(e, r, &of, err));
        for (int il = 0; il < e->m->cfg.n_layer; il++) {
            if (!may(e, r, of, il)) continue;
            s->expert_bytes = BASE_MAX(s->expert_bytes, bytes[il]);
            any = true;
        }
        s->n_ours += any && engine_rank_has_ours(e, r);
    }
    return SL_OK;
}

static sl_status look(sl_engine *e, sl_err *err)
{
    const struct arch_cfg *c = &e->m->cfg;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(c->n_layer + c->n_mtp), sizeof(int64_t), &p, err));
    model_expert_bytes(c, e->m->io, p);
    sl_status st = find(e, p, err);
    mem_free(p);
    return st;
}

/* What steps of n tokens take of the device; none is longer than a context that is asked for. */
static int64_t bytes_of(const sl_engine *e, int n)
{
    int most = e->opts.n_ctx ? BASE_MIN(n, e->opts.n_ctx) : n;
    return model_stream_bytes(&e->m->cfg, e->stream.expert_bytes, most);
}

int64_t engine_stream_bytes_of(const sl_engine *e)
{
    return e->stream.expert_bytes ? bytes_of(e, e->n_chunk) : 0;
}

sl_status engine_stream_bytes(sl_engine *e, sl_err *err)
{
    if (e->place.fell_back) e->opts.stream_from = 0; /* the CPU computes everything */
    if (!e->opts.stream_from) return SL_OK;
    if (engine_n_rank(e) != engine_n_stage(e))
        return SL_FAIL(err, UNSUPPORTED, "stream-from: not where ranks share layers (tp, dp, ep of "
                                         "the layout)");
    SL_TRY(look(e, err));
    if (!e->stream.expert_bytes)
        return SL_FAIL(err, REQUEST,
                       "stream-from: the experts of no layer lie on the CPU beside a device "
                       "(device and place say where)");
    e->place.bytes[e->place.p.on[MODEL_ATTN]] += e->stream.n_ours * bytes_of(e, e->n_chunk);
    return SL_OK;
}

bool engine_stream_halve(sl_engine *e)
{
    int n = e->n_chunk / 2;
    if (!e->stream.expert_bytes || e->stream.chunk_asked || n < CHUNK_LEAST) return false;
    e->place.bytes[e->place.p.on[MODEL_ATTN]] +=
        e->stream.n_ours * (bytes_of(e, n) - bytes_of(e, e->n_chunk));
    e->n_chunk = n;
    return true;
}

/* The largest that any stage has found; where it is never faster for one, it is for none: the
 * others would wait for that. */
static int of_all(const uint64_t *of, int n)
{
    uint64_t most = 0;
    for (int r = 0; r < n; r++) {
        if (of[r] == 1) return 0;
        most = BASE_MAX(most, of[r]);
    }
    return most ? (int)(most - 1) : 0;
}

sl_status engine_stream_agree(sl_engine *e, sl_err *err)
{
    uint64_t of[DIST_RANK_MAX];
    if (!e->opts.stream_from || !e->ranks || engine_rank_here(e)) return SL_OK;
    SL_TRY(engine_ranks_ask(e, SAY_COUNT, ENGINE_STREAM_FROM, of, err));
    uint32_t from = (uint32_t)of_all(of, engine_n_rank(e));
    return engine_ranks_ask(e, SAY_STREAM, from, of, err);
}

/* Of all ranks. */
static int64_t sum(sl_engine *e, enum engine_count what, int64_t own)
{
    uint64_t of[DIST_RANK_MAX], n = 0;
    if (!e->ranks || engine_rank_here(e) || engine_ranks_ask(e, SAY_COUNT, what, of, NULL))
        return own;
    for (int r = 0; r < engine_n_rank(e); r++)
        n += of[r];
    return (int64_t)n;
}

/* What was measured, as text. */
static const char *rates(const struct model_streaming *s, char *buf, size_t n)
{
    buf[0] = '\0';
    if (s->cpu_gops > 0)
        snprintf(buf, n, " (tried: %.3g GB/s on the bus, %.3g Gop/s on the CPU)", s->bus_gbps,
                 s->cpu_gops);
    return buf;
}

void engine_stream_tell(sl_engine *e)
{
    struct model_streaming s;
    char text[96];
    int from = e->opts.stream_from, most = e->n_chunk + e->n_seat;
    if (!from) return;
    model_stream_get(e->net, &s);
    s.n_layer = (int)sum(e, ENGINE_STREAM_LAYERS, s.n_layer);
    s.pass_bytes = sum(e, ENGINE_STREAM_PASS, s.pass_bytes);
    s.room_bytes = sum(e, ENGINE_STREAM_ROOM, s.room_bytes);
    (void)rates(&s, text, sizeof text);
    if (s.from)
        log_msg(LOG_INFO,
                "stream-from: experts of %d layers come to %s%s in steps of %d tokens and more%s: "
                "%.2f GiB a step, through %.2f GiB there",
                s.n_layer, e->place.p.name[e->place.p.on[MODEL_ATTN]],
                e->ranks ? " and other stages' devices" : "", s.from, text,
                (double)s.pass_bytes * GIB, (double)s.room_bytes * GIB);
    else
        log_msg(LOG_INFO, "stream-from: auto: in no step of up to %d tokens is it faster%s", most,
                text);
    if (from > most)
        log_msg(LOG_WARN, "stream-from: %d: no step has more than %d tokens (chunk): nothing is "
                          "streamed",
                from, most);
    e->info.stream_from = s.from;
    e->info.stream_bytes = s.pass_bytes;
    e->info.stream_bus_gbps = s.bus_gbps;
    e->info.stream_cpu_gops = s.cpu_gops;
}

void engine_stream_again(sl_engine *e)
{
    struct engine_stream *s = &e->stream;
    s->n_step += s->now_step;
    s->n_tok += s->now_tok;
    s->n_bytes += s->now_bytes;
    s->now_step = s->now_tok = s->now_bytes = 0;
}

void engine_stream_stats(sl_engine *e)
{
    struct engine_stream *s = &e->stream;
    const uint64_t *v = e->counts.v;
    if (!e->opts.stream_from || !e->net) return;
    s->now_step = v[ENGINE_STREAM_STEP];
    s->now_tok = v[ENGINE_STREAM_TOK];
    s->now_bytes = v[ENGINE_STREAM_BYTES];
    e->stats.n_stream_step = s->n_step + s->now_step;
    e->stats.n_stream_tok = s->n_tok + s->now_tok;
    e->stats.stream_bytes = s->n_bytes + s->now_bytes;
}
