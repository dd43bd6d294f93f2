/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing an engine: what is sized here is all the memory that steps use. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/apart.h"
#include "engine/fit.h"
#include "engine/record.h"
#include "os/os.h"

#define DEFAULT_SEQ 32
#define STATE_SEQ 8 /* the same, at least, where sequences have large states */
#define DEFAULT_CHUNK 512
#define STREAM_CHUNK 2048 /* where prompts are streamed: what comes is of use to so many tokens */
#define DEFAULT_QUEUE 256
#define DEFAULT_BATCH_TOK 1024 /* KV tokens per further sequence, where memory allows */
#define SEQ_LIMIT 1024
#define CHUNK_LIMIT 8192
#define LOGIT_BYTES                                                                                \
    ((int64_t)32 << 20) /* of logits kept in one step, beyond one row per sequence */
#define LOGIT_ROWS 16   /* at least so many beyond, and a draft's of each sequence */
#define CTX_LEAST 512   /* less than this is refused, not cut to */

static const enum dev_kv_type kv_types[] = {[SL_KV_AUTO] = DEV_KV_F16,
                                            [SL_KV_F16] = DEV_KV_F16,
                                            [SL_KV_BF16] = DEV_KV_BF16,
                                            [SL_KV_Q8] = DEV_KV_Q8,
                                            [SL_KV_F32] = DEV_KV_F32};
static const char *const kv_names[] = {
    [DEV_KV_BF16] = "bf16", [DEV_KV_F16] = "f16", [DEV_KV_Q8] = "q8", [DEV_KV_F32] = "f32"};
static const char *const combine_names[] = {
    [DEV_COMBINE_F32] = "f32", [DEV_COMBINE_BF16] = "bf16", [DEV_COMBINE_Q8] = "q8"};
static const char *const acts_names[] = {[DEV_ACTS_AUTO] = "auto",
                                         [DEV_ACTS_INT8] = "int8",
                                         [DEV_ACTS_BF16] = "bf16",
                                         [DEV_ACTS_F32] = "f32"};

static sl_status check_opts(const sl_engine_opts *o, sl_err *err)
{
    static const struct {
        const char *name;
        size_t at;
        int max;
    } row[] = {
        {"n_thread", offsetof(sl_engine_opts, n_thread), 1024},
        {"n_ctx", offsetof(sl_engine_opts, n_ctx), 1 << 24},
        {"n_seq_max", offsetof(sl_engine_opts, n_seq_max), SEQ_LIMIT},
        {"n_chunk", offsetof(sl_engine_opts, n_chunk), CHUNK_LIMIT},
        {"n_queue_max", offsetof(sl_engine_opts, n_queue_max), 1 << 20},
        {"defer", offsetof(sl_engine_opts, n_defer), 1024},
        {"dist_deadline_ms", offsetof(sl_engine_opts, dist_deadline_ms), 3600000},
        {"redundant", offsetof(sl_engine_opts, redundant), 1 << 16},
        {"hot_update", offsetof(sl_engine_opts, hot_update), 1 << 30},
        {"exact", offsetof(sl_engine_opts, exact), 1},
        {"no_matrix_units", offsetof(sl_engine_opts, no_matrix_units), 1},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        int v = *(const int *)((const char *)o + row[i].at);
        if (v < 0 || v > row[i].max)
            return SL_FAIL(err, REQUEST, "%s: %d: from 0 to %d", row[i].name, v, row[i].max);
    }
    if (o->n_hot < SL_HOT_AUTO || o->n_hot > 1 << 16)
        return SL_FAIL(err, REQUEST, "hot-experts: %d: from 0 to %d, or auto", o->n_hot, 1 << 16);
    if (o->stream_from < SL_STREAM_AUTO || o->stream_from > 1 << 30)
        return SL_FAIL(err, REQUEST, "stream-from: %d: from 0 to %d, or auto", o->stream_from,
                       1 << 30);
    if (!(o->mem_fraction >= 0 && o->mem_fraction <= 1))
        return SL_FAIL(err, REQUEST, "mem-fraction: %g: from 0 to 1", o->mem_fraction);
    if (o->fallback && strcmp(o->fallback, "cpu") != 0)
        return SL_FAIL(err, REQUEST, "fallback: '%.40s': cpu, or none", o->fallback);
    if (!o->n_hot && (o->hot_update || o->hot_load))
        return SL_FAIL(err, REQUEST, "%s: goes with hot-experts",
                       o->hot_update ? "hot-update" : "hot-from");
    if (o->kv_tokens < 0 || o->kv_tokens > INT_MAX)
        return SL_FAIL(err, REQUEST, "kv_tokens: %" PRId64 ": from 0 to %d", o->kv_tokens, INT_MAX);
    if ((unsigned)o->acts > SL_ACTS_F32)
        return SL_FAIL(err, REQUEST, "acts: %d: unknown", (int)o->acts);
    if ((unsigned)o->kv > SL_KV_F32) return SL_FAIL(err, REQUEST, "kv: %d: unknown", (int)o->kv);
    return SL_OK;
}

const char *engine_combine_name(enum dev_combine form)
{
    return combine_names[form];
}

/* The form of experts' outputs. */
static sl_status parse_combine(sl_engine *e, sl_err *err)
{
    const char *text = e->opts.combine;
    for (int i = 0; text && i < BASE_COUNT_OF(combine_names); i++) {
        if (strcmp(text, combine_names[i]) != 0) continue;
        if (i && !e->m->cfg.n_expert)
            return SL_FAIL(err, REQUEST, "combine: %s: %.60s has no experts that are chosen", text,
                           e->m->name);
        e->combine = (enum dev_combine)i;
        return SL_OK;
    }
    return text ? SL_FAIL(err, REQUEST, "combine: \"%.40s\": f32, bf16 or q8", text) : SL_OK;
}

static enum dev_acts acts_of(const sl_engine *e)
{
    bool small = e->opts.acts == SL_ACTS_AUTO && arch_wants_f32(e->m->io, &e->m->cfg);
    return small ? DEV_ACTS_F32 : (enum dev_acts)e->opts.acts;
}

enum dev_kv_type engine_kv_type(const sl_engine *e)
{
    return e->opts.kv == SL_KV_AUTO ? dev_kv_auto(e->d) : kv_types[e->opts.kv];
}

static struct dev_kv_shape shape_of(const sl_engine *e, int n_blk, int rank)
{
    struct model_dims d = engine_rank_dims(e, rank);
    return engine_kv_shape(&e->m->cfg, &d, engine_kv_type(e), n_blk, e->n_seat,
                           e->n_chunk + e->n_seat);
}

/* Bytes on device i of a cache of n_blk blocks of each home: of all ranks, or of those of this
 * machine. */
static int64_t kv_bytes_on(const sl_engine *e, int i, int n_blk, bool here)
{
    const struct model_place *p = &e->place.p;
    int64_t n = 0;
    for (int r = 0; r < engine_n_rank(e); r++) {
        if (here && !engine_rank_has_ours(e, r)) continue;
        struct dev_kv_shape s = shape_of(e, n_blk, r);
        s = model_kv_shape_on(p, &e->m->cfg, i, &s);
        n += dev_kv_bytes(p->d[i], &s);
    }
    return n + (i == p->on[MODEL_ATTN] ? engine_small_kv_bytes(e, n_blk) : 0);
}

/* Of those, of all devices whose memory is that pool. */
static int64_t kv_bytes_in(const sl_engine *e, const struct engine_rooms *m, int pool, int n_blk)
{
    int64_t n = 0;
    for (int i = 0; i < e->place.p.n_dev; i++)
        if (m->pool[i] == pool) n += kv_bytes_on(e, i, n_blk, true);
    return n;
}

/* The memory that has no room for it; -1: all have. */
static int too_small(const sl_engine *e, const struct engine_rooms *m, int n_blk)
{
    for (int i = 0; i < e->place.p.n_dev; i++)
        if (m->pool[i] == i && kv_bytes_in(e, m, i, n_blk) > BASE_MAX(m->room[i], 0)) return i;
    return -1;
}

/* Tokens of each home's KV cache that fit: layers with a window need less. */
static int64_t fits(const sl_engine *e, const struct engine_rooms *m)
{
    int lo = 0, hi = INT_MAX / ENGINE_BLK_TOK;
    while (lo < hi) {
        int n = lo + (hi - lo + 1) / 2;
        if (too_small(e, m, n) < 0)
            lo = n;
        else
            hi = n - 1;
    }
    return (int64_t)lo * ENGINE_BLK_TOK;
}

/* What prompts may keep between their pieces: a quarter of the room and of the weights, and no
 * more than the KV tokens wished leave. */
static void plan_keep(sl_engine *e, const struct engine_rooms *m, int64_t kv_tokens)
{
    int home = e->place.p.on[MODEL_ATTN];
    int64_t kv = kv_bytes_in(e, m, home, engine_blocks(BASE_MIN(kv_tokens, INT_MAX)));
    int64_t room = m->room[home];
    int64_t left = BASE_MIN(room - kv, BASE_MIN(room, e->m->bytes) / 4);
    int n_ctx = (int)BASE_MIN(kv_tokens, INT_MAX);
    int64_t use = model_keep_bytes(&e->m->cfg, e->d, n_ctx);
    e->keep_bytes = BASE_MAX(BASE_MIN(left, use), 0);
}

/* The memory of the devices, and tokens of cache that fit into it. */
struct room {
    struct engine_rooms of;
    int64_t most;
};

/* kv_tokens: of the cache that is wished. */
static sl_status look(sl_engine *e, int64_t kv_tokens, struct room *out, sl_err *err)
{
    SL_TRY(engine_place_rooms(e, &out->of, err));
    plan_keep(e, &out->of, kv_tokens);
    out->of.room[e->place.p.on[MODEL_ATTN]] -= e->keep_bytes;
    out->most = fits(e, &out->of);
    return SL_OK;
}

/* least tokens of cache do not fit. */
static sl_status too_little(sl_engine *e, const struct room *r, int64_t least, sl_err *err)
{
    sl_kv kv = e->opts.kv;
    int at = BASE_MAX(too_small(e, &r->of, engine_blocks(least)), 0);
    struct engine_short s = {.dev = at,
                             .available = r->of.available[at],
                             .kv = kv_bytes_in(e, &r->of, at, engine_blocks(least)),
                             .n_least = least,
                             .n_most = r->most};
    if (!dev_is_host(e->place.p.d[at])) {
        e->opts.kv = SL_KV_Q8;
        s.kv_q8 = kv_bytes_in(e, &r->of, at, engine_blocks(least));
        e->opts.kv = kv;
        return engine_fit_fail(e, &s, err);
    }
    double gib = 1.0 / (1 << 30);
    return SL_FAIL(err, NOMEM,
                   "not enough memory: weights of %.2f GiB and a KV cache of %" PRId64
                   " tokens: %.2f GiB are available: a smaller -c or --kv q8 needs less",
                   (double)engine_ranks_source_bytes(e) * gib, least * e->n_home,
                   (double)s.available * gib);
}

/* Context, and KV tokens of each home, from what is wished and what memory is there once the
 * weights are packed. */
static sl_status plan_memory(sl_engine *e, int64_t *kv_tokens, sl_err *err)
{
    struct room r;
    const sl_engine_opts *o = &e->opts;
    int n_chunk = e->n_chunk;
    int64_t asked = (o->kv_tokens + e->n_home - 1) / e->n_home; /* of each home */
    int64_t wish = o->n_ctx ? o->n_ctx : e->m->cfg.n_ctx_train;
    if (!o->n_ctx && asked) wish = BASE_MIN(wish, asked);
    int64_t least =
        o->n_ctx || asked ? BASE_MAX((int64_t)o->n_ctx, asked) : BASE_MIN(CTX_LEAST, wish);
    SL_TRY(look(e, BASE_MAX(wish, asked), &r, err));
    while (r.most < least && engine_stream_halve(e))
        SL_TRY(look(e, BASE_MAX(wish, asked), &r, err));
    int64_t most = r.most;
    if (o->n_ctx > e->m->cfg.n_ctx_train)
        log_msg(LOG_WARN, "context of %d tokens is more than the %d that the model was trained on",
                o->n_ctx, e->m->cfg.n_ctx_train);
    if (most < least) return too_little(e, &r, least, err);
    if (e->n_chunk < n_chunk)
        log_msg(LOG_WARN,
                "chunk halved from %d to %d tokens: that is what memory allows (--chunk sets it)",
                n_chunk, e->n_chunk);
    if (wish > most) {
        log_msg(LOG_WARN,
                "context cut from %" PRId64 " to %" PRId64
                " tokens: that is what memory allows (-c sets it)",
                wish, most);
        wish = most;
    }
    e->n_ctx = (int)wish;
    int64_t more = (int64_t)(e->n_seat - 1) * BASE_MIN(wish, DEFAULT_BATCH_TOK);
    *kv_tokens = asked ? BASE_MAX(asked, wish) : BASE_MIN(wish + more, BASE_MIN(most, INT_MAX / 2));
    for (int i = 0; i < e->place.p.n_dev; i++) {
        int pool = r.of.pool[i];
        e->hot.room[i] = r.of.room[pool] - kv_bytes_in(e, &r.of, pool, engine_blocks(*kv_tokens));
    }
    return SL_OK;
}

static sl_status open_tables(sl_engine *e, sl_err *err)
{
    e->ld_blk = engine_blocks(e->n_ctx);
    SL_TRY(engine_cache_open(e, err));
    SL_TRY(engine_lanes_open(e, err));
    SL_TRY(engine_homes_open(e, err));
    SL_TRY(kv_seq_init(&e->score, e->ld_blk, err));
    SL_TRY(engine_draw_init(e, err));
    SL_TRY(engine_spec_open(e, err));
    SL_TRY(engine_array((size_t)e->n_req_max, sizeof *e->req, &e->req, err));
    SL_TRY(engine_array((size_t)e->m->cfg.d_model, sizeof *e->row, &e->row, err));
    return engine_array((size_t)e->n_vocab / 32 + 1, sizeof *e->mask, &e->mask, err);
}

static uint64_t files_hash(const sl_engine *e)
{
    uint64_t h = 0;
    return io_files_hash(e->m->io, &h, NULL) ? 0 : h;
}

/* What the model is, its files too; and in which form its experts' outputs are. */
static uint64_t model_hash(const sl_engine *e)
{
    return e->files_hash + e->record_model + (uint64_t)e->combine;
}

/* Of the cache, on all devices and ranks. */
static int64_t kv_bytes_of_all(sl_engine *e)
{
    int64_t n = 0;
    for (int i = 0; i < e->place.p.n_dev; i++)
        n += e->place.told[i].kv_bytes = kv_bytes_on(e, i, e->pool.n_blk, false);
    return n;
}

static void fill_info(sl_engine *e, int64_t pack_ns)
{
    struct dev_info di;
    dev_info_get(e->d, &di);
    snprintf(e->isa, sizeof e->isa, "%s", di.isa);
    e->info = (struct sl_engine_info){
        .packed = e->info.packed,
        .rank = engine_rank_here(e),
        .n_thread = di.n_thread * engine_n_rank(e),
        .n_ctx = e->n_ctx,
        .n_seq_max = e->n_seq_max,
        .kv_tokens = (int64_t)e->n_home * e->pool.n_blk * ENGINE_BLK_TOK,
        .isa = e->isa,
        .fallback = e->place.fell_back,
        .acts = acts_names[di.acts],
        .kv = kv_names[e->kv_shape.type],
        .bytes_per_token = engine_ranks_bytes_per_token(e),
        .weight_bytes =
            engine_ranks_weight_bytes(e) + (e->small.net ? model_weight_bytes(e->small.net) : 0),
        .kv_bytes = kv_bytes_of_all(e),
        .act_bytes = mem_used(MEM_ACTS),
        .scratch_bytes = mem_used(MEM_SCRATCH),
        .pack_ms = (double)pack_ns * 1e-6,
        .model_hash = model_hash(e),
        .text_bytes_max = e->m->tok ? e->n_ctx * (int64_t)tok_max_piece(e->m->tok) : 0,
    };
    e->info.kv_hash = engine_pages_hash(e);
    e->stats.kv_total_tok = e->info.kv_tokens;
    e->stats.kv_blk_tok = ENGINE_BLK_TOK;
    engine_place_tell(e);
    engine_stream_tell(e);
    engine_publish(e);
}

/* Devices, and the sizes of everything. */
static sl_status plan(sl_engine *e, const struct dev_opts *o, int64_t *kv_tokens, sl_err *err)
{
    sl_err why = {0};
    SL_TRY(engine_place_open(e, o, err));
    sl_status st = plan_memory(e, kv_tokens, &why);
    if (st == SL_NOMEM) {
        SL_TRY(engine_place_fall_back(e, &why, err));
        return plan_memory(e, kv_tokens, err);
    }
    if (st && err) *err = why;
    return st;
}

/* No step has more tokens of prompts and drafts than all sequences together can have. */
static void size_steps(sl_engine *e)
{
    sl_engine_opts *o = &e->opts;
    e->n_chunk = (int)BASE_MIN(e->n_chunk, (int64_t)e->n_seat * e->n_ctx);
    o->n_chunk = e->n_home * e->n_chunk;
    e->n_tok_max = o->n_chunk + e->n_seq_max;
    int64_t more = LOGIT_BYTES / (4 * (int64_t)e->n_vocab) / e->n_home;
    more = BASE_MAX(more, BASE_MAX(LOGIT_ROWS, e->n_seat));
    e->n_row = e->n_seat + (int)BASE_MIN(more, e->n_chunk);
    e->n_logit_max = e->n_home * e->n_row;
}

sl_status engine_load(sl_engine *e, int64_t kv_tokens, sl_err *err)
{
    const io_pack *pack = NULL;
    struct dev_kv_shape rank[DIST_RANK_MAX];
    int64_t t0 = clock_now_ns();
    SL_TRY(engine_pack_use(e, &pack, err));
    if (pack && e->opts.place_from && strcmp(e->opts.place_from, "peer") == 0)
        return SL_FAIL(err, REQUEST,
                       "place-from: peer: %.120s is a packed file, which every rank maps: disk",
                       io_pack_path(pack));
    e->mtp.small = e->mtp.on && !pack && model_small_head_bytes(&e->m->cfg, e->m->io);
    struct model_opts mo = {.n_tok_max = e->n_chunk + e->n_seat,
                            .n_seq_max = e->n_seat,
                            .n_ctx = e->n_ctx,
                            .blk_tok = ENGINE_BLK_TOK,
                            .n_logit_max = e->n_row,
                            .kv = engine_kv_type(e),
                            .keep_bytes = e->keep_bytes,
                            .place = &e->place.p,
                            .n_late = e->opts.n_defer,
                            .edit = e->m->edit,
                            .stream_from = e->opts.stream_from,
                            .no_mtp = !e->mtp.on,
                            .n_draft_vocab = e->opts.draft_vocab,
                            .draft_ids = e->mtp.ids,
                            .small_heads = e->mtp.small,
                            .combine = e->combine,
                            .pack = pack,
                            .progress = e->opts.progress,
                            .user = e->opts.user};
    for (int r = 0; r < engine_n_rank(e); r++)
        rank[r] = shape_of(e, engine_blocks(kv_tokens), r);
    e->kv_shape = rank[engine_rank_here(e)];
    mo.hot = engine_hot_own(e);
    SL_TRY(engine_small_load(e, engine_blocks(kv_tokens), err));
    mo.beside = e->small.net;
    SL_TRY(engine_ranks_start(e, &mo, rank, err));
    SL_TRY(model_open(e->m->io, e->d, &mo, &e->net, err));
    if (e->m->cfg.group_unsaid)
        log_msg(LOG_WARN, "%s: expert_group_count is missing: experts are chosen without groups",
                io_path(e->m->io));
    if (model_unused_text(e->net)) log_msg(LOG_WARN, "%s", model_unused_text(e->net));
    if (pack)
        log_msg(LOG_DEBUG, "weights: mapped from %s in %.0f ms", io_pack_path(pack),
                (double)(clock_now_ns() - t0) * 1e-6);
    e->info.packed = pack != NULL;
    e->form_from = model_form_from(e->net);
    return model_kv_open(e->net, &e->kv_shape, &e->kv, err);
}

/* A device may have had memory for it, and then have none: the CPU stands in then, too, where that
 * is asked for. */
static sl_status load(sl_engine *e, int64_t *kv_tokens, sl_err *err)
{
    sl_err why = {0};
    sl_status st = engine_load(e, *kv_tokens, &why);
    if (st != SL_NOMEM || e->ranks || e->small.on) {
        if (st && err) *err = why;
        return st;
    }
    model_close(e->net);
    e->net = NULL;
    SL_TRY(engine_place_fall_back(e, &why, err));
    SL_TRY(plan_memory(e, kv_tokens, err));
    size_steps(e);
    return engine_load(e, *kv_tokens, err);
}

static void report(const sl_engine *e)
{
    if (strcmp(e->info.isa, "ref") == 0)
        log_msg(LOG_WARN, "no kernels for this CPU's vector units (AVX2 or NEON dotprod are "
                          "needed): the reference kernels run, "
                          "which is slow");
    log_msg(LOG_DEBUG,
            "engine: %d threads, %s, acts %s, kv %s, context %d, %d sequences, kv cache %.2f GiB",
            e->info.n_thread, e->info.isa, e->info.acts, e->info.kv, e->n_ctx, e->n_seq_max,
            (double)e->info.kv_bytes / (1 << 30));
    if (e->opts.n_defer)
        log_msg(LOG_DEBUG, "engine: %d experts of a token come one layer late (other answers)",
                e->opts.n_defer);
}

/* Where layers have states, those of all sequences and their snapshots (engine_n_snap) take an
 * eighth of what the weights do, about. */
static int default_seq(const struct arch_cfg *c, int64_t weights)
{
    struct dev_kv_shape s = model_kv_shape(c, NULL, DEV_KV_F32, 1, ENGINE_BLK_TOK);
    const struct dev_kv_group *g = &s.group[DEV_KV_STATE];
    int64_t bytes = (int64_t)g->n_layer * g->d_k * (int64_t)sizeof(float);
    if (!bytes) return DEFAULT_SEQ;
    return (int)BASE_MIN(BASE_MAX(weights / 8 / (3 * bytes), STATE_SEQ), DEFAULT_SEQ);
}

static sl_status fill(sl_engine *e, sl_err *err)
{
    sl_engine_opts *o = &e->opts;
    int64_t kv_tokens = 0;
    e->files_hash = files_hash(e);
    int64_t t0 = clock_now_ns();
    e->n_vocab = e->m->cfg.n_vocab;
    e->n_seq_max = o->n_seq_max ? o->n_seq_max : default_seq(&e->m->cfg, e->m->bytes);
    struct dev_opts dopts = {
        .n_thread = o->n_thread, .acts = acts_of(e), .no_hugepages = o->no_hugepages};
    dopts.exact = o->exact;
    dopts.no_units = o->no_matrix_units;
    SL_TRY(engine_spec_parse(e, err));
    SL_TRY(parse_combine(e, err));
    SL_TRY(engine_ranks_parse(e, &dopts, err));
    e->stream.chunk_asked = o->n_chunk != 0;
    if (!o->n_chunk) o->n_chunk = o->stream_from ? STREAM_CHUNK : DEFAULT_CHUNK * engine_n_home(e);
    engine_homes_size(e);
    SL_TRY(engine_homes_alloc(e, err));
    SL_TRY(engine_small_check(e, err));
    e->n_req_max = e->n_seq_max + (o->n_queue_max ? o->n_queue_max : DEFAULT_QUEUE);
    SL_TRY(engine_ranks_gate(e, plan(e, &dopts, &kv_tokens, err), err));
    e->record_model = engine_record_model(e);
    SL_TRY(engine_ranks_agree(e, &kv_tokens, err));
    size_steps(e);
    SL_TRY(engine_ranks_gate(e, load(e, &kv_tokens, err), err));
    int64_t pack_ns = clock_now_ns() - t0;
    SL_TRY(engine_ranks_open(e, err));
    SL_TRY(engine_ranks_measure(e, err));
    SL_TRY(engine_stream_agree(e, err));
    SL_TRY(engine_rebalance_open(e, err));
    SL_TRY(open_tables(e, err));
    SL_TRY(engine_give_open(e, err));
    SL_TRY(engine_threads_init(e, err));
    SL_TRY(engine_record_open(e, err));
    fill_info(e, pack_ns);
    report(e);
    return SL_OK;
}

sl_status sl_engine_open(sl_model *m, const sl_engine_opts *opts, sl_engine **out, sl_err *err)
{
    static const sl_engine_opts none;
    void *p = NULL;
    *out = NULL;
    if (!opts) opts = &none;
    if (!m->has_cfg) return SL_FAIL(err, REQUEST, "%s: opened for its vocabulary only", m->name);
    SL_TRY(check_opts(opts, err));
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(sl_engine), &p, err));
    sl_engine *e = p;
    e->m = m;
    e->opts = *opts;
    sl_status st = fill(e, err);
    if (st) {
        st = engine_ranks_refuse(e, st, err);
        sl_engine_close(e);
        return st;
    }
    *out = e;
    return SL_OK;
}

void sl_engine_close(sl_engine *e)
{
    if (!e) return;
    if (e->remote) {
        e->remote->close(e->remote->user);
        mem_free(e);
        return;
    }
    atomic_store(&e->closing, 1); /* events that answer by submitting get an error */
    if (e->event.open) engine_intake(e);
    for (int i = 0; e->req && i < e->n_req_max; i++)
        if (e->req[i]) engine_request_end(e, e->req[i], -1, SL_FINISH_CANCELLED, NULL);
    engine_lanes_drain(e); /* of which nobody is told any more */
    engine_away_close(e);
    engine_give_close(e);
    engine_rebalance_close(e);
    engine_ranks_close(e); /* they may still be in a step that failed, whose arrays are here */
    engine_homes_close(e);
    engine_draw_fini(e);
    engine_spec_close(e);
    mem_free(e->req);
    mem_free(e->row);
    mem_free(e->mask);
    engine_lanes_close(e);
    engine_record_close(e);
    engine_threads_fini(e);
    model_close(e->net);
    engine_place_close(e);
    io_pack_close(e->pack);
    mem_free(e);
}

void sl_engine_info_get(const sl_engine *e, sl_engine_info *out)
{
    if (e->remote)
        e->remote->info(e->remote->user, out);
    else
        *out = e->info;
}

int sl_op_stats(sl_engine *e, sl_op_stat *out, int n)
{
    struct dev_op_row row[64];
    int n_row = 0;
    if (e->remote) return 0;
    for (int k = 0; k < e->place.p.n_dev; k++) {
        n_row = dev_op_times(e->place.p.d[k], out ? row : NULL, out ? BASE_COUNT_OF(row) : 0);
        for (int i = 0; i < n_row && i < n && i < BASE_COUNT_OF(row); i++) {
            if (k == 0) out[i] = (sl_op_stat){.name = row[i].name};
            out[i].n_call += row[i].n_call;
            out[i].ns += row[i].ns;
            out[i].bytes += row[i].cost.bytes;
            out[i].ops += row[i].cost.ops;
            out[i].flops += row[i].cost.flops;
        }
    }
    return n_row;
}

int sl_routed(const sl_engine *e_, int layer, uint64_t *out, int n)
{
    sl_engine *e = (sl_engine *)(uintptr_t)e_; /* steps that are under way are finished */
    if (e->remote) return e->remote->routed(e->remote->user, layer, out, n);
    if (!e->net) return -1; /* it could not be opened again */
    sl_status st = engine_ranks_routed(e, layer, out, n, NULL);
    if (st) return st == SL_NOTFOUND ? 0 : -1;
    return model_config(e->net)->n_expert;
}

void sl_probe(sl_engine *e, int ms, sl_probe_result *out)
{
    if (e->remote) {
        e->remote->probe(e->remote->user, out);
        return;
    }
    struct dev_opts all = {.n_thread = e->info.n_thread};
    dev *d = e->d, *own = NULL;
    /* home has a part of the threads; that of a process may have CPUs of its own */
    if (engine_ranks_share_cpus(e) && dev_open(NULL, &all, &own, NULL) == SL_OK) d = own;
    out->read_gbps = dev_probe_read_gbps(d, ms);
    out->int8_gops = dev_probe_int8_gops(d, ms);
    dev_close(own);
}

double sl_probe_attn(sl_engine *e, int ms)
{
    return e->remote ? 0 : dev_probe_attn_gops(e->d, e->kv, ms);
}
