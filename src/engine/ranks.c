/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that share a model. Either they are threads of this process: the engine's own device,
 * model and cache are those of rank 0, the home rank, and each other rank has a thread, a device, a
 * model and a cache of its own. Or a launcher has started a process for each: then every process
 * opens an engine, and the engines of the others follow home's. Both run the steps that home tells
 * them. Where ranks have sequences of their own (dp) a step is that of all, and each cuts out its
 * part (model/own.c). Where layers are in several stages home may tell of a step while others are
 * under way (lanes.c). */
#include "engine/ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "dist/place.h"
#include "engine/apart.h"
#include "os/os.h"

#define JOIN_LEAST 1024 /* bytes of a rank's row: what ranks say of moves */

static sl_status open_devices(struct rank *r, sl_err *err)
{
    const struct engine_ranks *k = r->all;
    struct dev_opts o = k->dopts;
    char name[ENGINE_DEVICE_NAME];
    struct engine_stage s = {.place = k->fell_back ? NULL : k->place,
                             .home = k->fell_back ? dev_name(0) : name,
                             .cfg = &k->m->cfg,
                             .opts = &o};
    SL_TRY(engine_rank_name(k, r->opts.rank, name, sizeof name, err));
    o.rank = r->opts.rank;
    SL_TRY(engine_place_rank(&s, &r->arena, &r->place, err));
    r->f.d = r->place.d[r->place.on[MODEL_ATTN]];
    r->opts.place = &r->place;
    return SL_OK;
}

/* Ranks of this process that have the same device. */
static int n_alike(const struct rank *r)
{
    const struct engine_ranks *k = r->all;
    const struct model_place *p = &r->place;
    char name[ENGINE_DEVICE_NAME];
    int n = 0;
    for (int i = 0; i < k->n; i++)
        n += !engine_rank_name(k, i, name, sizeof name, NULL) &&
             strcmp(name, p->name[p->on[MODEL_ATTN]]) == 0;
    return BASE_MAX(n, 1);
}

/* What weights, cache and prompts that are streamed leave on the rank's devices. */
static sl_status look_for_room(struct rank *r, sl_err *err)
{
    const struct engine_ranks *k = r->all;
    const struct model_place *p = &r->place;
    const struct arch_cfg *c = &k->m->cfg;
    int64_t bytes[MODEL_DEV_MAX], n;
    model_place_bytes(&(struct model_placed){p, c, &r->hot.o.dims}, k->m->io, bytes);
    bytes[p->on[MODEL_ATTN]] += k->stream_bytes;
    for (int i = 0; i < p->n_dev; i++) {
        struct dev_kv_shape kv = model_kv_shape_on(p, c, i, &r->shape);
        SL_TRY(engine_free_on(p->d[i], k->mem_fraction, &n, err));
        r->hot.room[i] = n / n_alike(r) - bytes[i] - arch_beside_bytes(bytes[i]) -
                         dev_kv_bytes(p->d[i], &kv);
    }
    return SL_OK;
}

static sl_status choose_hot(struct rank *r, sl_err *err)
{
    const struct engine_ranks *k = r->all;
    struct engine_hot_opts o = k->hot;
    r->f.hot = &r->hot;
    r->opts.hot = NULL;
    if (!o.n || k->fell_back) return SL_OK;
    o.p = &r->place;
    o.tells = false;
    o.dims = model_stage_dims(o.c, &k->stages, r->opts.rank, k->n);
    SL_TRY(engine_hot_open(&r->hot, &o, &r->arena, err));
    if (o.n == SL_HOT_AUTO) SL_TRY(look_for_room(r, err));
    r->opts.hot = engine_hot_choose(&r->hot);
    return SL_OK;
}

static sl_status open_thread(struct rank *r, sl_err *err)
{
    struct follower *f = &r->f;
    SL_TRY(open_devices(r, err));
    SL_TRY(choose_hot(r, err));
    SL_TRY(model_open(r->all->m->io, f->d, &r->opts, &f->net, err));
    SL_TRY(dev_kv_open(f->d, &r->shape, &f->kv, err));
    return engine_follower_init(f, r->all, r->opts.rank, err);
}

static void rank_main(void *arg)
{
    struct rank *r = arg;
    r->st = open_thread(r, &r->err);
    os_word_raise(&r->is_open);
    engine_follow(&r->f);
}

sl_status sl_follow(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    if (!k || !k->here) return SL_FAIL(err, REQUEST, "this rank is home: it follows nobody");
    engine_follow(&k->own);
    return dist_status(k->end, err);
}

/* ---- opening ---- */

/* Exchanges of rows to and from experts that are begun at the same time: of each half of a step. */
static int n_away(const sl_engine *e)
{
    return e->ranks->stages.n_dp > 1 ? BASE_MAX(e->opts.micro, 1) : 0;
}

static sl_status open_team(sl_engine *e, struct dev_opts *o, const struct os_topology *top,
                           sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    dist *end[DIST_RANK_MAX];
    if (o->n_thread && o->n_thread < k->n)
        return SL_FAIL(err, REQUEST, "layout: %d ranks need a thread each, there are %d threads",
                       k->n, o->n_thread);
    int n_thread = o->n_thread ? o->n_thread : os_within_quota(top, top->n_core);
    o->n_thread = BASE_MAX(n_thread / k->n, 1);
    o->n_rank = k->n;
    struct dist_opts team = {.deadline_ms = e->opts.dist_deadline_ms,
                             .n_join = k->n / k->stages.n,
                             .n_tp = k->n / k->stages.n / k->stages.n_dp,
                             .n_etp = k->stages.n_etp,
                             .n_ahead = k->n_ahead,
                             .n_away = n_away(e),
                             .crowded = o->n_thread * k->n > top->n_pu};
    SL_TRY(dist_team_open(k->n, &team, end, err));
    for (int i = 0; i < k->n; i++) {
        k->rank[i].all = k;
        k->rank[i].f.end = end[i];
    }
    k->end = end[0];
    return SL_OK;
}

/* What a process may run on. */
struct cpus {
    int32_t n_core, n_pu, cpu[64]; /* the first of them */
};

/* The ranks of this machine that may run on the same CPUs share them. */
static sl_status deal_cpus(struct engine_ranks *k, struct dev_opts *o,
                           const struct os_topology *top, sl_err *err)
{
    struct cpus mine = {.n_core = top->n_core, .n_pu = top->n_pu}, all[DIST_RANK_MAX];
    int n_same = 0, rank_same = 0, cpu[BASE_COUNT_OF(mine.cpu)] = {0};
    bool same[DIST_RANK_MAX];
    struct os_team all_cpus = {BASE_MIN(top->n_pu, BASE_COUNT_OF(cpu)), 0, 1};
    (void)os_team_cpus(&all_cpus, cpu);
    for (int i = 0; i < BASE_COUNT_OF(cpu); i++)
        mine.cpu[i] = cpu[i];
    SL_TRY(dist_all(k->end, &mine, all, sizeof mine, err));
    for (int r = 0; r < k->n; r++) {
        same[r] = dist_here(k->end, r) && memcmp(&all[r], &mine, sizeof mine) == 0;
        n_same += same[r];
        rank_same += same[r] && r < k->here;
    }
    SL_TRY(dist_gate(k->end, dist_check_bound(same, k->n, top->n_pu, err), err));
    int n_thread = o->n_thread ? o->n_thread : os_within_quota(top, top->n_core);
    o->n_thread = BASE_MAX(n_thread / n_same, 1);
    if (n_same > 1) {
        o->n_rank = n_same;
        o->rank = rank_same;
    }
    dist_set_crowded(k->end, o->n_thread * n_same > top->n_pu);
    return SL_OK;
}

/* Rank 0 alone may know what will be asked of the engine. */
static sl_status take_sizes(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    sl_engine_opts *o = &e->opts;
    int64_t mine[] = {o->n_ctx, e->n_seq_max, o->n_chunk, o->kv_tokens},
            all[DIST_RANK_MAX][BASE_COUNT_OF(mine)];
    SL_TRY(dist_all(k->end, mine, all, sizeof mine, err));
    o->n_ctx = (int)all[0][0];
    e->n_seq_max = (int)all[0][1];
    o->n_chunk = (int)all[0][2];
    o->kv_tokens = all[0][3];
    return SL_OK;
}

static sl_status open_apart(sl_engine *e, struct dev_opts *o, const struct os_topology *top,
                            sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    struct dist_launch l = dist_launched();
    struct dist_opts group = {.deadline_ms = e->opts.dist_deadline_ms,
                              .n_join = k->n / k->stages.n,
                              .n_tp = k->n / k->stages.n / k->stages.n_dp,
                              .n_etp = k->stages.n_etp,
                              .n_ahead = k->n_ahead,
                              .n_away = n_away(e)};
    k->here = l.rank;
    if (l.n != k->n)
        return SL_FAIL(err, REQUEST,
                       "layout: %.40s: %d processes were started: another layout, or mpirun -n %d",
                       e->opts.layout, l.n, k->n);
    k->met = true;
    sl_status st = dist_mpi_open(&group, &k->end, err);
    if (!st) st = deal_cpus(k, o, top, err);
    if (!st) st = take_sizes(e, err);
    if (st) status_prefix(err, "layout");
    return st;
}

/* ---- experts that are whole ---- */

/* Groups of a stage's ranks that have experts each. */
static int n_group(const struct engine_ranks *k)
{
    return k->n / k->stages.n / BASE_MAX(k->stages.n_etp, 1);
}

/* Of these groups; NULL: they are alike. */
static const uint16_t *weights(const struct engine_ranks *k)
{
    return k->stages.weight[0] ? k->group_weight : NULL;
}

/* Of one layer, by its counts: NULL where none are known of any. */
static sl_status deal_layer(struct engine_ranks *k, const struct dist_experts *p, int il,
                            const uint64_t *load, sl_err *err)
{
    int32_t *expert = k->slot_expert + (int64_t)il * p->n_slot;
    sl_status st = dist_place(p, load, expert, err);
    if (st) status_prefix(err, "layout: ep=%d", p->n_rank);
    SL_TRY(st);
    if (load)
        log_msg(LOG_DEBUG, "layer %d: %d of %d experts on each of %d ranks, at most %.2fx the mean",
                il, p->n_slot / p->n_rank, p->n_expert, p->n_rank,
                dist_place_ratio(p, load, expert));
    return SL_OK;
}

static sl_status deal_experts(sl_engine *e, int n_rank, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    const struct arch_cfg *c = &e->m->cfg;
    struct dist_experts p = {.n_expert = c->n_expert,
                             .n_slot = c->n_expert + e->opts.redundant,
                             .n_rank = n_rank,
                             .n_group = 1,
                             .n_node = 1,
                             .weight = weights(k)};
    const sl_engine_opts *o = &e->opts;
    void *mem = NULL, *none = NULL;
    if (!c->n_expert)
        return n_rank > 1 ? SL_FAIL(err, REQUEST,
                                    "layout: ep=%d: %.60s has no experts that are chosen", n_rank,
                                    e->m->name)
                          : SL_FAIL(err, REQUEST,
                                    "layout: dp=%d: every rank would hold all of %.60s, which has "
                                    "no experts: several engines (serve --attach), or tp",
                                    k->stages.n_dp, e->m->name);
    k->n_slot = p.n_slot;
    k->n_layer = c->n_layer + c->n_mtp;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)k->n_layer * (size_t)p.n_slot, sizeof(int32_t), &mem,
                           err));
    k->slot_expert = mem;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)c->n_expert, sizeof(uint64_t), &none, err));
    sl_status st = SL_OK;
    for (int il = 0; il < k->n_layer && !st; il++) {
        const uint64_t *load = o->expert_load ? none : NULL;
        if (il < o->n_expert_load) load = o->expert_load + (int64_t)il * c->n_expert;
        st = deal_layer(k, &p, il, load, err);
    }
    mem_free(none);
    return st;
}

/* One message to all is less to wait for, rows for whom they are less to carry: that counts between
 * machines, where a token does not go to nearly all ranks anyway. */
bool engine_ranks_swap(const sl_engine *e)
{
    const struct engine_ranks *k = e->ranks;
    bool one_host = true;
    if (e->opts.dispatch && strcmp(e->opts.dispatch, "auto") != 0)
        return strcmp(e->opts.dispatch, "swap") == 0;
    for (int r = 0; r < k->n; r++)
        one_host = one_host && dist_here(k->end, r);
    return !one_host && k->n / k->stages.n > e->m->cfg.n_expert_used;
}

sl_status engine_ranks_parse(sl_engine *e, struct dev_opts *o, sl_err *err)
{
    struct dist_layout l;
    struct os_topology top;
    void *p = NULL;
    SL_TRY(engine_nodes_layout(e, err));
    SL_TRY(dist_layout_parse(e->opts.layout ? e->opts.layout : "", &l, err));
    if (e->opts.redundant && l.ep == 1)
        return SL_FAIL(err, REQUEST, "redundant: %d: copies of experts go with a layout with ep",
                       e->opts.redundant);
    if (e->opts.n_spare && l.ep == 1)
        return SL_FAIL(err, REQUEST, "spare: %d: experts move with a layout with ep",
                       e->opts.n_spare);
    if (e->opts.n_spare < 0 || e->opts.n_spare > ENGINE_MOVES_MAX)
        return SL_FAIL(err, REQUEST, "spare: %d: 0 to %d", e->opts.n_spare, ENGINE_MOVES_MAX);
    const char *from = e->opts.place_from;
    if (from && strcmp(from, "peer") != 0 && strcmp(from, "disk") != 0)
        return SL_FAIL(err, REQUEST, "place-from: \"%.40s\": disk or peer", from);
    if (from && !e->opts.n_spare)
        return SL_FAIL(err, REQUEST, "place-from: %s: no experts move: set spare, too", from);
    if (e->opts.rebalance_s && !e->opts.n_spare)
        return SL_FAIL(err, REQUEST, "rebalance: %d: experts move into spare room: set spare, too",
                       e->opts.rebalance_s);
    SL_TRY(engine_dispatch_check(e, l.dp, err));
    if (dist_layout_ranks(&l) == 1) return SL_OK;
    SL_TRY(os_topology_get(&top, err));
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct engine_ranks), &p, err));
    struct engine_ranks *k = e->ranks = p;
    k->n = dist_layout_ranks(&l);
    io_parts(e->m->io, true); /* vectors lie between matrices: hashing them is not to read all */
    k->stages.n = l.pp;
    k->stages.n_dp = l.dp;
    if (dist_layout_spread(&l)) k->stages.n_etp = l.tp * l.dp / l.ep;
    for (int i = 0; i < l.n_weight; i++) {
        int g = i / BASE_MAX(k->stages.n_etp, 1);
        k->stages.weight[i] = l.weight[i];
        k->group_weight[g] = (uint16_t)(k->group_weight[g] + l.weight[i]);
    }
    k->n_ahead = BASE_MIN(l.pp, DIST_AHEAD_MAX);
    SL_TRY(model_stages_of(&e->m->cfg, e->m->io, e->mtp.on, &k->stages, err));
    if (dist_layout_spread(&l)) SL_TRY(deal_experts(e, l.ep, err));
    k->m = e->m;
    k->device = e->opts.device;
    k->place = model_place_or_default(e->opts.place);
    k->n_spare = e->opts.n_spare;
    k->from_peer = e->opts.place_from && strcmp(e->opts.place_from, "peer") == 0;
    k->place_mbps = e->opts.place_mbps ? e->opts.place_mbps : 200;
    k->apart = dist_launched().n > 1;
    SL_TRY(k->apart ? open_apart(e, o, &top, err) : open_team(e, o, &top, err));
    k->dopts = *o;
    return SL_OK;
}

sl_status engine_ranks_refuse(const sl_engine *e, sl_status st, sl_err *err)
{
    bool met = e->ranks && e->ranks->met;
    if (st != SL_CANCELLED && !met) (void)dist_mpi_refuse(e->opts.layout, &st, err);
    return st;
}

int engine_n_rank(const sl_engine *e)
{
    return e->ranks ? e->ranks->n : 1;
}

int engine_rank_here(const sl_engine *e)
{
    return e->ranks ? e->ranks->here : 0;
}

bool engine_rank_is_here(const sl_engine *e, int rank)
{
    return !e->ranks || dist_here(e->ranks->end, rank);
}

bool engine_ranks_share_cpus(const sl_engine *e)
{
    return e->ranks && e->ranks->dopts.n_rank == e->ranks->n;
}

int engine_n_stage(const sl_engine *e)
{
    return e->ranks ? e->ranks->stages.n : 1;
}

bool engine_ranks_last_alone(const sl_engine *e)
{
    return e->ranks && e->ranks->n == e->ranks->stages.n;
}

int engine_n_home(const sl_engine *e)
{
    return e->ranks ? BASE_MAX(e->ranks->stages.n_dp, 1) : 1;
}

struct model_dims engine_rank_dims(const sl_engine *e, int rank)
{
    const struct model_stages *s = e->ranks ? &e->ranks->stages : NULL;
    return model_stage_dims(&e->m->cfg, s, rank, engine_n_rank(e));
}

sl_status engine_ranks_gate(sl_engine *e, sl_status st, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    sl_err why = {0};
    if (!k || !k->apart || !k->end) return st;
    if (st && err) why = *err;
    st = dist_gate(k->end, st, &why);
    if (st && err) *err = why;
    return st;
}

static sl_status start_thread(struct rank *r, int rank, const struct model_opts *o,
                              const struct dev_kv_shape *kv, sl_err *err)
{
    r->opts = *o;
    r->opts.rank = rank;
    r->opts.dist = r->f.end;
    r->opts.progress = NULL; /* home's tells how far it is */
    mem_arena_init(&r->arena, MEM_MISC, 0);
    r->shape = kv[rank];
    return par_side_open(rank_main, r, &r->side, err);
}

sl_status engine_ranks_start(sl_engine *e, struct model_opts *o, const struct dev_kv_shape *kv,
                             sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    if (!k) return SL_OK;
    o->n_rank = k->n;
    o->rank = k->here;
    o->dist = k->end;
    o->stages = &k->stages;
    engine_ranks_find(k, o);
    o->n_slot = o->slot_ld = k->n_slot;
    o->slot_expert = k->slot_expert;
    o->spread = k->slot_expert != NULL;
    o->n_spare = k->n_spare;
    o->swap = k->stages.n_dp > 1 && engine_ranks_swap(e);
    o->micro = e->opts.micro;
    for (int g = 0; g < kv->n_group && k->stages.n_dp > 1; g++)
        o->n_blk[g] = kv->group[g].n_blk;
    o->keep_bytes /= k->n;
    k->max = engine_record_limits(e);
    k->fell_back = e->place.fell_back;
    k->hot = engine_hot_asked(e);
    k->mem_fraction = e->opts.mem_fraction;
    k->stream_bytes = engine_stream_bytes_of(e);
    for (int i = 1; !k->apart && i < k->n; i++)
        SL_TRY(start_thread(&k->rank[i], i, o, kv, err));
    return SL_OK;
}

static sl_status wait_for_threads(struct engine_ranks *k, sl_err *err)
{
    for (int i = 1; i < k->n; i++) {
        struct rank *r = &k->rank[i];
        (void)os_word_sleep(&r->is_open, 1, -1);
        if (!r->st) continue;
        if (err) *err = r->err;
        return r->st;
    }
    return SL_OK;
}

static sl_status count_bytes(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    int64_t mine[2] = {model_weight_bytes(e->net), model_bytes_per_token(e->net)};
    int64_t all[DIST_RANK_MAX][2] = {{mine[0], mine[1]}};
    if (k->apart) SL_TRY(dist_all(k->end, mine, all, sizeof mine, err));
    for (int i = 0; i < k->n; i++) {
        const model *net = k->apart || i == 0 ? NULL : k->rank[i].f.net;
        k->weight_bytes[i] = net ? model_weight_bytes(net) : all[i][0];
        k->bytes_per_token[i] = net ? model_bytes_per_token(net) : all[i][1];
    }
    return SL_OK;
}

sl_status engine_ranks_open(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    void *p = NULL;
    if (!k) return SL_OK;
    size_t n_blk = (size_t)e->kv_shape.group[DEV_KV_PAGED].n_blk; /* of a home */
    size_t body = BASE_MAX(engine_record_most(e), n_blk * sizeof(int32_t));
    body = BASE_MAX(body, ENGINE_MOVES_MAX * sizeof(struct engine_move));
    if (k->apart && !engine_pages_check(e, NULL)) body = BASE_MAX(body, engine_far_room(e));
    for (int i = 0; i < k->n_ahead; i++) {
        k->say[i].cap = sizeof(struct say_head) + body;
        SL_TRY(mem_alloc(MEM_SCRATCH, k->say[i].cap, &p, err));
        k->say[i].p = p;
    }
    k->own.end = k->end;
    k->own.d = e->d;
    k->own.net = e->net;
    k->own.kv = e->kv;
    k->own.hot = &e->hot;
    SL_TRY(engine_ranks_gate(e, engine_follower_init(&k->own, k, k->here, err), err));
    if (k->apart) {
        int64_t row = BASE_MAX(model_join_bytes(e->net), JOIN_LEAST);
        SL_TRY(engine_ranks_gate(e, engine_far_open(e, err), err));
        row = BASE_MAX(row, (int64_t)engine_page_most(e));
        SL_TRY(dist_room(k->end, row, (int64_t)k->say[0].cap, err));
    } else
        SL_TRY(wait_for_threads(k, err));
    return count_bytes(e, err);
}

void engine_ranks_close(sl_engine *e)
{
    struct engine_ranks *k = e->ranks;
    if (!k) return;
    if (k->end && !k->here) dist_tell(k->end, NULL, 0);
    for (int i = 1; !k->apart && i < k->n; i++) {
        struct follower *f = &k->rank[i].f;
        par_side_close(k->rank[i].side);
        engine_follower_fini(f);
        model_close(f->net);
        engine_place_rank_close(&k->rank[i].place);
        mem_arena_fini(&k->rank[i].arena);
    }
    dist_close(k->end);
    engine_far_close(k->own.far);
    engine_follower_fini(&k->own);
    for (int i = 0; i < k->n_ahead; i++)
        mem_free(k->say[i].p);
    mem_free(k->slot_expert);
    mem_free(k);
    e->ranks = NULL;
}

/* ---- home ---- */

static sl_status run_here(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                          sl_err *err)
{
    SL_TRY(model_launch(e->net, e->kv, s, err));
    return model_wait(e->net, out, err);
}

/* Room for the body of the next message. */
static struct engine_record next_body(struct engine_ranks *k)
{
    const struct engine_record *r = &k->say[k->n_told % (unsigned)k->n_ahead];
    return (struct engine_record){r->p + sizeof(struct say_head), 0,
                                  r->cap - sizeof(struct say_head)};
}

/* n: bytes of the body, for these ranks */
static void tell_some(struct engine_ranks *k, const struct say_head *h, size_t n, uint64_t ranks)
{
    uint8_t *p = k->say[k->n_told % (unsigned)k->n_ahead].p;
    if (k->n_told++ == k->n_done) k->t_from = clock_now_ns();
    memcpy(p, h, sizeof *h);
    dist_tell_some(k->end, p, sizeof *h + n, &(struct dist_some){ranks, sizeof *h});
}

static void tell(struct engine_ranks *k, const struct say_head *h, size_t n)
{
    tell_some(k, h, n, ~(uint64_t)0);
}

/* All ranks are through with the first that they were told and not waited for. Errors: DEVICE: no
 * rank goes on. */
static sl_status all_done(struct engine_ranks *k, sl_err *err)
{
    sl_err why = {0};
    sl_status st = dist_all_done(k->end, &why);
    int64_t now = clock_now_ns();
    k->n_done++;
    k->step_ns += now - k->t_from;
    k->t_from = now;
    return st ? SL_FAIL(err, DEVICE, "layout: %.200s", why.text) : SL_OK;
}

void engine_ranks_begin(sl_engine *e, const struct dev_step *s)
{
    struct engine_record r = next_body(e->ranks);
    engine_record_put_step(&r, engine_n_table(e), s);
    tell(e->ranks, &(struct say_head){.what = SAY_STEP, .at = e->cold}, r.n);
    if (e->cold) dist_uncounted(e->ranks->end);
}

sl_status engine_ranks_end(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                           sl_err *err)
{
    sl_err why = {0};
    if (run_here(e, s, out, &why)) dist_fail(e->ranks->end, &why);
    return all_done(e->ranks, err);
}

sl_status engine_ranks_run(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                           sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    bool alone = s->pass && e->n_lane > 1; /* MTP layers are here, and the others at other steps */
    if (!k || alone) return run_here(e, s, out, err);
    if (k->here)
        return SL_FAIL(err, REQUEST, "layout: rank %d runs the steps of rank 0 only", k->here);
    engine_ranks_begin(e, s);
    return engine_ranks_end(e, s, out, err);
}

bool engine_rank_cache(const sl_engine *e, int rank, dev **d, dev_kv **kv)
{
    const struct engine_ranks *k = e->ranks;
    bool own = !k || rank == k->here;
    *d = own ? e->d : k->rank[rank].f.d;
    *kv = own ? e->kv : k->rank[rank].f.kv;
    return own || !k->apart;
}

sl_status engine_ranks_measure(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    sl_err why = {0};
    if (!k || k->here) return SL_OK; /* others follow */
    tell(k, &(struct say_head){.what = SAY_MEASURE}, 0);
    if (engine_follower_measure(&k->own, &k->link, &why)) dist_fail(k->end, &why);
    SL_TRY(all_done(k, err));
    for (int r = 0; r < k->n; r++)
        k->near[r] = dist_counts(k->end, r).note;
    return SL_OK;
}

bool engine_ranks_busy(const sl_engine *e)
{
    return e->ranks && e->ranks->n_told != e->ranks->n_done;
}

sl_status engine_ranks_ask(sl_engine *e, uint32_t what, uint32_t at, uint64_t *of, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    struct say_head h = {.what = what, .at = at};
    sl_err why = {0};
    tell(k, &h, 0);
    if (engine_follower_beside(&k->own, &h, &why)) dist_fail(k->end, &why);
    SL_TRY(all_done(k, err));
    for (int r = 0; r < k->n; r++)
        of[r] = dist_counts(k->end, r).note;
    return SL_OK;
}

void engine_kv_touch(sl_engine *e, int home, int group, const int32_t *blk, int n)
{
    struct engine_ranks *k = e->ranks;
    if (home == 0) dev_kv_touch(e->d, e->kv, group, blk, n);
    if (!k || k->here) return;
    size_t bytes = (size_t)n * sizeof *blk;
    memcpy(next_body(k).p, blk, bytes);
    struct say_head h = {SAY_TOUCH, (uint32_t)group, (uint32_t)n, (uint32_t)home};
    tell(k, &h, bytes);
    dist_uncounted(k->end);
    if (all_done(k, NULL)) return; /* the next step says it again */
}

sl_status engine_ranks_routed(sl_engine *e, int layer, uint64_t *out, int n, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    const struct arch_cfg *c = model_config(e->net);
    sl_err why = {0};
    bool here = !k || k->here || (k->stages.n_dp <= 1 && model_has_layer(c, &k->own.dims, layer));
    bool is_there = layer >= 0 && layer < c->n_layer + c->n_mtp && c->layer[layer].ffn == ARCH_MOE;
    if (here || !is_there) return model_routed(e->net, layer, out, n, err);
    engine_lanes_drain(e);
    tell(k, &(struct say_head){.what = SAY_ROUTED, .at = (uint32_t)layer}, 0);
    if (engine_follower_routed(&k->own, layer, &why)) dist_fail(k->end, &why);
    SL_TRY(all_done(k, err));
    memcpy(out, k->own.routed, (size_t)BASE_MIN(n, c->n_expert) * sizeof *out);
    return SL_OK;
}

struct engine_spread engine_ranks_spread(const sl_engine *e)
{
    const struct engine_ranks *k = e->ranks;
    if (!k || !k->slot_expert) return (struct engine_spread){0};
    return (struct engine_spread){k->slot_expert,     k->n_layer, k->n_slot,
                                  n_group(k),         k->n_spare, weights(k)};
}

struct engine_mover *engine_ranks_mover(const sl_engine *e)
{
    return e->ranks->own.mover;
}

sl_status engine_ranks_say(sl_engine *e, const struct engine_say *s, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    struct say_head h = {.what = s->what,
                         .at = (uint32_t)s->layer,
                         .n_blk = (uint32_t)s->n,
                         .home = (uint32_t)s->home};
    sl_err why = {0};
    struct rd r = rd_init(s->body, s->bytes);
    engine_lanes_drain(e);
    if (s->bytes) memcpy(next_body(k).p, s->body, s->bytes);
    tell_some(k, &h, s->bytes, s->is_for ? s->is_for : ~(uint64_t)0);
    bool pages = s->what == SAY_PAGES_SET || s->what == SAY_PAGES_GET;
    if (pages ? engine_far_hear(k->own.far, &h, &r, &why)
              : engine_mover_hear(k->own.mover, s->what, s->layer, s->n, &r, &why))
        dist_fail(k->end, &why);
    return all_done(k, err);
}

int sl_slots(const sl_engine *e, int layer, int32_t *out, int n, int *n_rank)
{
    const struct engine_ranks *k = e->ranks; /* NULL: alone, or elsewhere */
    *n_rank = 1;
    if (!k || !k->slot_expert || layer < 0 || layer >= k->n_layer) return 0;
    if (e->m->cfg.layer[layer].ffn != ARCH_MOE) return 0;
    *n_rank = n_group(k);
    for (int i = 0; i < n && i < k->n_slot; i++)
        out[i] = k->slot_expert[(int64_t)layer * k->n_slot + i];
    return k->n_slot;
}
