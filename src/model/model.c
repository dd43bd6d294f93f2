/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a model, and what others ask of one. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"

int64_t model_keep_bytes(const struct arch_cfg *c, const dev *d, int n_ctx)
{
    struct dev_attn_mla p = {
        .n_head = c->n_head, .r = c->kv_lora, .nope = c->d_nope, .rope = c->d_rope, .v = c->d_v};
    if (!c->kv_lora || model_mla_expand_from(c) >= n_ctx) return 0;
    if (c->index_top) n_ctx = BASE_MIN(n_ctx, BASE_MAX(c->index_top, model_mla_mask_until(c)));
    int n = 0;
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        n += c->layer[i].mixer == ARCH_MLA;
    return dev_keep_bytes(d, &p, n, n_ctx);
}

/* ---- open ---- */

/* MTP layers count only when their tensors are there (many files leave them out). */
static int count_mtp(const struct model *m, const io_model *io)
{
    int n = 0;
    for (; n < m->cfg.n_mtp; n++) {
        char name[128];
        arch_tensor_name(&m->cfg.naming, arch_mtp_mark(&m->cfg), m->cfg.n_layer + n, "weight",
                         name, sizeof name);
        if (!io_has_weight(io, name)) break;
    }
    return n;
}

static int64_t mat_bytes(const dev_mat *w)
{
    return w ? dev_mat_bytes(w) : 0;
}

static void count_bytes(struct model *m)
{
    const struct arch_cfg *c = &m->cfg;
    double b = (double)mat_bytes(m->head), exps = 0;
    for (int i = 0; i < c->n_layer; i++) {
        const struct layer *l = &m->layer[i];
        b += (double)(mat_bytes(l->q) + mat_bytes(l->k) + mat_bytes(l->v) + mat_bytes(l->o) +
                      mat_bytes(l->q_a) + mat_bytes(l->q_b) + mat_bytes(l->kv_a) +
                      mat_bytes(l->k_b) + mat_bytes(l->v_b) + mat_bytes(l->gate_up) +
                      mat_bytes(l->head_gate) +
                      mat_bytes(l->index_q) + mat_bytes(l->index_k) + mat_bytes(l->index_w) +
                      mat_bytes(l->down) + mat_bytes(l->router) + mat_bytes(l->a_of) +
                      mat_bytes(l->z_of) + mat_bytes(l->o_a) + mat_bytes(l->entry.kv) +
                      mat_bytes(l->entry.gate) + mat_bytes(l->index_entry.kv) +
                      mat_bytes(l->index_entry.gate));
        for (int k = 0; k < BASE_COUNT_OF(l->in); k++)
            b += (double)mat_bytes(l->in[k]);
        if (l->is_moe)
            exps += (double)(mat_bytes(l->gate_up_exps) + mat_bytes(l->down_exps)) *
                    c->n_expert_used / (m->slots ? m->slots[i].n : c->n_expert);
    }
    /* with ranks that have sequences of their own a token is of one of them */
    m->bytes_per_token = (int64_t)(b / BASE_MAX(m->dims.n_dp, 1) + exps);
}

/* Bytes of the source, or of the packed file, that this rank has its weights from. */
static int64_t count_source(const struct model *m)
{
    const io_pack *p = m->opts.pack;
    int64_t n = 0;
    for (int i = 0; p ? i < io_pack_n_mat(p) : i < io_n_tensor(m->io); i++) {
        const char *name = p ? io_pack_mat_at(p, i)->name : io_tensor(m->io, i)->name;
        uint64_t bytes = p ? io_pack_mat_at(p, i)->n_bytes : io_tensor(m->io, i)->n_bytes;
        n += model_slice_bytes(&m->cfg, &m->dims, name, (int64_t)bytes);
    }
    return n;
}

/* One text for all of it: what draws it begins again with another. */
static void name_load(struct model *m)
{
    struct dev_info d;
    const char *way = m->opts.pack ? "mapping" : "packing";
    if (!m->d || dev_is_host(m->d)) {
        snprintf(m->doing, sizeof m->doing, "%s weights", way);
        return;
    }
    dev_info_get(m->d, &d);
    snprintf(m->doing, sizeof m->doing, "uploading weights to %s", d.name);
}

static sl_status load_all(struct model *m, const io_model *io, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, (size_t)c->n_layer, sizeof(struct layer), &p, err));
    m->layer = p;
    SL_TRY(mem_arena_array(&m->arena, (size_t)BASE_MAX(m->n_mtp, 1), sizeof(struct mtp), &p, err));
    m->mtp = p;
    m->io = io;
    m->total_bytes = count_source(m);
    io_reading_begin(&m->reading, io, !m->out);
    if (m->dims.n_rank > 1 || m->dims.n_stage > 1 || m->dims.n_dp > 1)
        io_reading_parts(&m->reading);
    m->load_layer = -1;
    name_load(m);
    SL_TRY(model_load_globals(m, err));
    for (int i = m->dims.layer0; i < m->dims.layer0 + m->dims.n_layer; i++) {
        m->load_layer = i;
        SL_TRY(model_load_layer(m, i, &m->layer[i], err));
    }
    for (int i = 0; i < m->n_mtp; i++) {
        m->load_layer = c->n_layer + i;
        SL_TRY(model_load_mtp(m, i, err));
    }
    if (model_load_told(m)) /* with all that is small */
        return SL_FAIL(err, CANCELLED, "cancelled after packing");
    io_reading_end(&m->reading);
    m->io = NULL;
    SL_TRY(model_spares_open(m, io, err));
    SL_TRY(model_rope_freqs(m, io, err));
    count_bytes(m);
    return SL_OK;
}

static sl_status load(struct model *m, const io_model *io, sl_err *err)
{
    return io_name_file(io, load_all(m, io, err), err);
}

static sl_status open_dims(struct model *m, sl_err *err)
{
    int rank = m->opts.rank, n = BASE_MAX(m->opts.n_rank, 1);
    if (rank < 0 || rank >= n) return SL_FAIL(err, REQUEST, "rank %d of %d", rank, n);
    m->dims = model_stage_dims(&m->cfg, m->opts.stages, rank, n);
    m->opts.stages = NULL; /* the caller's */
    return SL_OK;
}

static sl_status open_draft_vocab(struct model *m, sl_err *err)
{
    int n = m->opts.n_draft_vocab, V = m->cfg.n_vocab;
    if (n < 0 || n > V)
        return SL_FAIL(err, REQUEST, "draft_vocab: %d: the vocabulary has %d tokens", n, V);
    n = (n + 15) / 16 * 16; /* tiles are whole in packed files */
    m->n_draft_vocab = n < V ? n : 0;
    return SL_OK;
}

/* A model of which nothing but the configuration is there yet. */
static sl_status new_model(const io_model *io, dev *d, const struct model_opts *opts,
                           struct model **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct model), &p, err));
    struct model *m = *out = p;
    mem_arena_init(&m->arena, MEM_MISC, 0);
    m->opts = *opts;
    model_place_open(m, d);
    m->kind = io_model_kind(io);
    SL_TRY(arch_cfg_read(io, &m->arena, &m->cfg, err));
    if (opts->edit) opts->edit(&m->cfg);
    m->cfg.paged = opts->paged;
    SL_TRY(io_check_tails(io, err));
    SL_TRY(arch_unused(io, &m->cfg, &m->arena, &m->unused, err));
    SL_TRY(open_dims(m, err));
    if (m->opts.n_ctx <= 0) m->opts.n_ctx = m->cfg.n_ctx_train;
    int n_file = count_mtp(m, io), n_mtp = opts->no_mtp ? 0 : n_file;
    m->has_mtp = n_file > 0;
    m->keeps_hidden = n_mtp > 0;
    m->n_mtp = model_is_last(&m->dims) ? n_mtp : 0;
    m->cfg.n_mtp = m->n_mtp;
    SL_TRY(model_slots_open(m, err));
    SL_TRY(model_late_check(m, err));
    SL_TRY(model_sandwich_check(m, err));
    SL_TRY(model_micro_check(m, err));
    SL_TRY(open_draft_vocab(m, err));
    struct dev_info info;
    dev_info_get(m->d, &info);
    bool expands = m->cfg.kv_lora && !info.exact;
    m->expand_from = expands ? model_mla_expand_from(&m->cfg) : INT_MAX;
    return opts->dist ? model_ranks_open(m, err) : SL_OK;
}

sl_status model_open_parts(const io_model *io, dev *d, const struct model_opts *opts, model **out,
                           sl_err *err)
{
    sl_status st = new_model(io, d, opts, out, err);
    if (!st) st = load(*out, io, err);
    if (!st) st = model_index_check(*out, err);
    if (!st) st = model_hot_open(*out, err);
    if (!st) st = model_stream_open(*out, err);
    if (!st) st = model_buffers_open(*out, err);
    if (!st) st = model_micro_open(*out, err);
    if (!st) st = model_few_open(*out, err);
    if (st) {
        model_close(*out);
        *out = NULL;
    }
    return st;
}

/* A packed file has the layout of every device. */
static sl_status check_layout(const struct model_opts *o, dev *d, sl_err *err)
{
    const struct model_place one = {.d = {d}, .n_dev = 1}, *p = o->place ? o->place : &one;
    for (int i = 0; i < p->n_dev && o->pack; i++)
        if (strcmp(io_pack_layout(o->pack), dev_layout(p->d[i])) != 0)
            return SL_FAIL(err, UNSUPPORTED,
                           "%.120s: packed in layout %.24s, this sluice runs %.24s: pack it again",
                           io_pack_path(o->pack), io_pack_layout(o->pack), dev_layout(p->d[i]));
    return SL_OK;
}

sl_status model_open(const io_model *io, dev *d, const struct model_opts *opts, model **out,
                     sl_err *err)
{
    struct model *m = NULL;
    struct model_opts o = *opts;
    if (o.n_rank > 1 && !o.dist)
        return SL_FAIL(err, UNSUPPORTED, "rank %d of %d: nothing here joins what ranks compute",
                       o.rank, o.n_rank);
    if (!o.pack) o.pack = io_model_pack(io);
    SL_TRY(check_layout(&o, d, err));
    sl_status st = model_open_parts(io, d, &o, &m, err);
    if (!st && !o.first_pass) st = model_reserve(m, err);
    const struct model_progs plain = {0}, streams = {.streams = true};
    if (!st && !o.first_pass) st = model_progs_open(m, plain, m->prog, err);
    if (!st && m->stream.slab) st = model_progs_open(m, streams, m->stream.prog, err);
    if (!st && !o.first_pass) st = model_micro_progs(m, err);
    if (!st) st = model_few_progs(m, err);
    if (!st && o.beside) st = model_progs_open(o.beside, plain, o.beside->prog, err);
    if (!st && o.stream_from == MODEL_STREAM_AUTO && m->stream.slab) st = model_stream_try(m, err);
    if (st)
        model_close(m);
    else
        *out = m;
    return st;
}

sl_status model_pack(const io_model *io, dev *d, const struct model_opts *opts, io_pack_out *out,
                     bool *exact, sl_err *err)
{
    struct model *m = NULL;
    struct model_opts o = {0};
    if (opts) o = (struct model_opts){.progress = opts->progress, .user = opts->user};
    sl_status st = new_model(io, d, &o, &m, err);
    if (!st) {
        m->out = out;
        st = load(m, io, err);
    }
    if (!st) *exact = !m->rounded;
    model_close(m);
    return st;
}

void model_close(model *m)
{
    if (!m) return;
    for (int i = 0; i < MODEL_PASS_MAX; i++) {
        dev_prog_close(m->prog[i]);
        dev_prog_close(m->tap_prog[i]);
        dev_prog_close(m->stream.prog[i]);
    }
    model_micro_close(m);
    model_few_close(m);
    mem_arena_fini(&m->arena); /* device memory belongs to the device */
    mem_free(m);
}

const struct arch_cfg *model_config(const model *m)
{
    return &m->cfg;
}

const char *model_unused_text(const model *m)
{
    return m->unused;
}

int model_form_from(const model *m)
{
    return m->opts.n_late ? 0 : m->expand_from;
}

int64_t model_bytes_per_token(const model *m)
{
    return m->bytes_per_token;
}

sl_status model_routed(model *m, int layer, uint64_t *out, int n, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t E = c->n_expert;
    if (!E || layer < 0 || layer >= c->n_layer + m->n_mtp || c->layer[layer].ffn != ARCH_MOE)
        return SL_FAIL(err, NOTFOUND, "layer %d has no routed experts", layer);
    const struct side *s = model_side_in(m, layer, MODEL_ROUTER);
    return dev_get(s->d, out, s->n_routed + layer * E, BASE_MIN(n, E) * (int64_t)sizeof *out, err);
}

int64_t model_weight_bytes(const model *m)
{
    return m->weight_bytes;
}

int64_t model_weight_bytes_on(const model *m, const dev *d)
{
    int64_t n = 0;
    for (int i = 0; i < m->place.n_dev; i++)
        if (m->place.d[i] == d) n += m->side[i].weight_bytes;
    return n;
}
