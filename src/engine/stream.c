/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts whose experts are streamed from the CPU's memory through the device beside it: what that
 * takes of the device, and what is said of it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "engine/engine_internal.h"

#define GIB (1.0 / (1 << 30))
#define CHUNK_LEAST 128 /* no step of a prompt is made shorter than this to save memory */

static int64_t largest(const sl_engine *e, sl_err *err, sl_status *st)
{
    const struct arch_cfg *c = &e->m->cfg;
    void *p = NULL;
    int64_t most = 0;
    *st = mem_alloc_array(MEM_SCRATCH, (size_t)(c->n_layer + c->n_mtp), sizeof(int64_t), &p, err);
    if (*st) return 0;
    int64_t *bytes = p;
    model_expert_bytes(c, e->m->io, bytes);
    for (int il = 0; il < c->n_layer; il++)
        if (model_may_stream(&e->place.p, c, il)) most = BASE_MAX(most, bytes[il]);
    mem_free(p);
    return most;
}

/* What steps of n tokens take of the device; none is longer than a context that is asked for. */
static int64_t bytes_of(const sl_engine *e, int n)
{
    int most = e->opts.n_ctx ? BASE_MIN(n, e->opts.n_ctx) : n;
    return model_stream_bytes(&e->m->cfg, e->stream.expert_bytes, most);
}

sl_status engine_stream_bytes(sl_engine *e, sl_err *err)
{
    sl_status st;
    if (e->place.fell_back) e->opts.stream_from = 0; /* the CPU computes everything */
    if (!e->opts.stream_from) return SL_OK;
    if (engine_n_rank(e) > 1)
        return SL_FAIL(err, UNSUPPORTED, "stream-from: not where ranks share the model (layout)");
    int64_t one = largest(e, err, &st);
    SL_TRY(st);
    if (!one)
        return SL_FAIL(err, REQUEST,
                       "stream-from: the experts of no layer lie on the CPU beside a device "
                       "(device and place say where)");
    e->stream.expert_bytes = one;
    e->place.bytes[e->place.p.on[MODEL_ATTN]] += bytes_of(e, e->n_chunk);
    return SL_OK;
}

bool engine_stream_halve(sl_engine *e)
{
    int n = e->n_chunk / 2;
    if (!e->stream.expert_bytes || e->stream.chunk_asked || n < CHUNK_LEAST) return false;
    e->place.bytes[e->place.p.on[MODEL_ATTN]] += bytes_of(e, n) - bytes_of(e, e->n_chunk);
    e->n_chunk = n;
    return true;
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
    (void)rates(&s, text, sizeof text);
    if (s.from)
        log_msg(LOG_INFO,
                "stream-from: experts of %d layers come to %s in steps of %d tokens and more%s: "
                "%.2f GiB a step, through %.2f GiB there",
                s.n_layer, e->place.p.name[e->place.p.on[MODEL_ATTN]], s.from, text,
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
    struct model_streaming now;
    if (!e->opts.stream_from || !e->net) return;
    model_stream_get(e->net, &now);
    s->now_step = now.n_step;
    s->now_tok = now.n_tok;
    s->now_bytes = now.n_bytes;
    e->stats.n_stream_step = s->n_step + now.n_step;
    e->stats.n_stream_tok = s->n_tok + now.n_tok;
    e->stats.stream_bytes = s->n_bytes + now.n_bytes;
}
