/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a model (weights, inputs, buffers, all reserved once). */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"

/* ---- prepared inputs: one per kind, told of every matrix of all layers that takes it ---- */

struct mats {
    const dev_mat **p;
    int n;
};

static void add(struct mats *s, const dev_mat *w)
{
    if (w) s->p[s->n++] = w;
}

enum input { IN_ATTN, IN_Q_A, IN_O, IN_FFN, IN_H };

static void add_layer(struct mats *s, const struct layer *l, enum input in)
{
    switch (in) {
    case IN_ATTN:
        add(s, l->q);
        add(s, l->k);
        add(s, l->v);
        add(s, l->q_a);
        add(s, l->kv_a);
        break;
    case IN_Q_A:
        add(s, l->q_b);
        break;
    case IN_O:
        add(s, l->o);
        break;
    case IN_FFN:
        add(s, l->gate_up);
        add(s, l->router);
        add(s, l->gate_up_exps);
        break;
    case IN_H:
        add(s, l->down);
        break;
    }
}

static sl_status open_input(struct model *m, enum input in, int n_col, dev_act **out, sl_err *err)
{
    void *p = NULL;
    int n_layer = m->cfg.n_layer;
    SL_TRY(
        mem_alloc_array(MEM_SCRATCH, 8 * (size_t)(n_layer + m->n_mtp), sizeof(dev_mat *), &p, err));
    struct mats s = {p, 0};
    for (int i = 0; i < n_layer; i++)
        add_layer(&s, &m->layer[i], in);
    for (int i = 0; i < m->n_mtp; i++)
        add_layer(&s, &m->mtp[i].layer, in);
    sl_status st = s.n ? dev_act_open(m->d, s.p, s.n, n_col, m->opts.n_tok_max, out, err) : SL_OK;
    mem_free(p);
    return st;
}

static sl_status open_inputs(struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int D = c->d_model, n_mat = 0;
    const dev_mat *heads[1 + MODEL_MTP_MAX], *ehs[MODEL_MTP_MAX];
    int ff = BASE_MAX(c->d_ff, c->n_shared * c->d_ff_expert);
    int n_o = c->n_head * (c->kv_lora ? c->d_v : c->d_head);
    SL_TRY(open_input(m, IN_ATTN, D, &m->a_attn, err));
    SL_TRY(open_input(m, IN_O, n_o, &m->a_o, err));
    SL_TRY(open_input(m, IN_FFN, D, &m->a_ffn, err));
    SL_TRY(open_input(m, IN_H, ff, &m->a_h, err));
    if (c->q_lora) SL_TRY(open_input(m, IN_Q_A, c->q_lora, &m->a_q_a, err));
    heads[n_mat++] = m->head;
    for (int i = 0; i < m->n_mtp; i++) {
        ehs[i] = m->mtp[i].eh;
        if (m->mtp[i].head != m->head) heads[n_mat++] = m->mtp[i].head;
    }
    if (m->n_mtp)
        SL_TRY(dev_act_open(m->d, ehs, m->n_mtp, 2 * D, m->opts.n_tok_max, &m->a_eh, err));
    return dev_act_open(m->d, heads, n_mat, D, BASE_MAX(m->opts.n_logit_max, m->opts.n_tok_max),
                        &m->a_head, err);
}

/* ---- step buffers ---- */

static sl_status buffer(struct model *m, int64_t rows, int64_t cols, void *out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(dev_alloc(m->d, MEM_ACTS, BASE_MAX(rows * cols, 1) * 4, &p, err));
    memcpy(out, &p, sizeof p);
    return SL_OK;
}

static struct dev_plan shapes(const struct arch_cfg *c, int n_ctx)
{
    return (struct dev_plan){.n_ctx = n_ctx,
                             .n_head = c->n_head,
                             .d_k = c->d_head,
                             .d_v = c->kv_lora ? c->d_v : c->d_head,
                             .mla_r = c->kv_lora,
                             .mla_nope = c->d_nope,
                             .mla_rope = c->d_rope,
                             .n_expert = c->n_expert,
                             .k = c->n_expert_used,
                             .d_model = c->d_model,
                             .d_ff_expert = c->d_ff_expert,
                             .n_layer = c->n_layer + c->n_mtp};
}

int64_t model_keep_bytes(const struct arch_cfg *cfg, const dev *d, int n_ctx)
{
    struct dev_plan p = shapes(cfg, n_ctx);
    return cfg->kv_lora && model_mla_expand_from(cfg) < n_ctx ? dev_keep_bytes(d, &p) : 0;
}

/* Where results of a step go to be read, unless the host can read them where they are. */
static sl_status open_host_rows(struct model *m, sl_err *err)
{
    size_t D = (size_t)m->cfg.d_model;
    size_t n_logit = (size_t)m->opts.n_logit_max * (size_t)m->cfg.n_vocab;
    void *p = NULL;
    if (dev_is_host(m->d)) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, n_logit, sizeof(float), &p, err));
    m->host_logits = p;
    SL_TRY(mem_arena_array(&m->arena, (size_t)m->opts.n_tok_max * D, sizeof(float), &p, err));
    m->host_hidden = p;
    SL_TRY(mem_arena_array(&m->arena, D, sizeof(float), &p, err));
    m->host_row = p;
    return SL_OK;
}

static sl_status open_counts(struct model *m, sl_err *err)
{
    size_t n = (size_t)(m->cfg.n_layer + m->n_mtp) * (size_t)m->cfg.n_expert;
    void *zero = NULL, *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n, sizeof *m->n_routed, &zero, err));
    sl_status st = dev_alloc(m->d, MEM_ACTS, (int64_t)(n * sizeof *m->n_routed), &p, err);
    if (!st) st = dev_put(m->d, p, zero, (int64_t)(n * sizeof *m->n_routed), err);
    mem_free(zero);
    m->n_routed = p;
    return st;
}

static sl_status open_buffers(struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t T = m->opts.n_tok_max, D = c->d_model, nl = m->opts.n_logit_max;
    int64_t nq = (int64_t)c->n_head * c->d_head,
            nk = c->kv_lora ? c->kv_lora + c->d_rope : (int64_t)c->n_head_kv * c->d_head;
    int64_t ff = BASE_MAX(c->d_ff, c->n_shared * c->d_ff_expert);
    SL_TRY(buffer(m, T, D, &m->x, err));
    SL_TRY(buffer(m, T, D, &m->r, err));
    SL_TRY(buffer(m, T, nq, &m->q, err));
    SL_TRY(buffer(m, T, nk, &m->k, err));
    if (!c->kv_lora) SL_TRY(buffer(m, T, nk, &m->v, err));
    SL_TRY(buffer(m, T, c->kv_lora ? (int64_t)c->n_head * c->d_v : nq, &m->y, err));
    if (c->q_lora) SL_TRY(buffer(m, T, c->q_lora, &m->qa, err));
    SL_TRY(buffer(m, T, ff, &m->h, err));
    SL_TRY(buffer(m, T, D, &m->hidden, err));
    SL_TRY(buffer(m, nl, c->n_vocab, &m->logits, err));
    if (m->n_mtp) SL_TRY(buffer(m, T, 2 * D, &m->eh_in, err));
    if (c->n_expert) {
        SL_TRY(buffer(m, T, c->n_expert, &m->logit_r, err));
        SL_TRY(buffer(m, T, c->n_expert_used, &m->weight_r, err));
        SL_TRY(buffer(m, T, c->n_expert_used, &m->id_r, err));
        if (c->n_shared) SL_TRY(buffer(m, T, D, &m->shared, err));
        SL_TRY(open_counts(m, err));
    }
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 2 * (size_t)m->opts.n_seq_max, 1, &p, err));
    m->finite = p;
    m->n_bad = m->finite + m->opts.n_seq_max;
    SL_TRY(open_host_rows(m, err));
    struct dev_plan plan = shapes(c, m->opts.n_ctx);
    plan.mla_expand_from = m->expand_from;
    plan.n_pass = 1 + m->n_mtp;
    plan.n_tok = (int)T;
    plan.n_seq = m->opts.n_seq_max;
    plan.n_expert = BASE_MAX(plan.n_expert, m->slots.n);
    plan.keep_bytes = m->opts.keep_bytes;
    return dev_reserve(m->d, &plan, err);
}

/* ---- open ---- */

/* MTP layers count only when their tensors are there (many files leave them out). */
static int count_mtp(const struct model *m, const io_model *io)
{
    int n = 0;
    for (; n < m->cfg.n_mtp; n++) {
        char name[128];
        arch_tensor_name(&m->cfg.naming, ROLE_MTP_EH, m->cfg.n_layer + n, 0, "weight", name,
                         sizeof name);
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
    double b = (double)mat_bytes(m->head);
    for (int i = 0; i < c->n_layer; i++) {
        const struct layer *l = &m->layer[i];
        b += (double)(mat_bytes(l->q) + mat_bytes(l->k) + mat_bytes(l->v) + mat_bytes(l->o) +
                      mat_bytes(l->q_a) + mat_bytes(l->q_b) + mat_bytes(l->kv_a) +
                      mat_bytes(l->k_b) + mat_bytes(l->v_b) + mat_bytes(l->gate_up) +
                      mat_bytes(l->down) + mat_bytes(l->router));
        if (l->is_moe)
            b += (double)(mat_bytes(l->gate_up_exps) + mat_bytes(l->down_exps)) * c->n_expert_used /
                 BASE_MAX(m->slots.n, c->n_expert);
    }
    m->bytes_per_token = (int64_t)b;
}

static sl_status load(struct model *m, const io_model *io, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, (size_t)c->n_layer, sizeof(struct layer), &p, err));
    m->layer = p;
    SL_TRY(mem_arena_array(&m->arena, (size_t)BASE_MAX(m->n_mtp, 1), sizeof(struct mtp), &p, err));
    m->mtp = p;
    for (int i = 0; i < io_n_tensor(io); i++)
        m->total_bytes += (int64_t)io_tensor(io, i)->n_bytes;
    if (m->opts.pack) m->total_bytes = (int64_t)io_pack_bytes(m->opts.pack);
    io_reading_begin(&m->reading, io, !m->out);
    SL_TRY(model_load_globals(m, io, err));
    for (int i = 0; i < c->n_layer; i++)
        SL_TRY(model_load_layer(m, io, i, &m->layer[i], err));
    for (int i = 0; i < m->n_mtp; i++)
        SL_TRY(model_load_mtp(m, io, i, err));
    m->reading = (struct io_reading){0};
    SL_TRY(model_rope_freqs(m, io, err));
    count_bytes(m);
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
    m->d = d;
    m->opts = *opts;
    m->kind = io_model_kind(io);
    SL_TRY(arch_cfg_read(io, &m->arena, &m->cfg, err));
    SL_TRY(io_check_tails(io, err));
    SL_TRY(arch_unused(io, &m->cfg, &m->arena, &m->unused, err));
    SL_TRY(model_slots_open(m, err));
    if (m->opts.n_ctx <= 0) m->opts.n_ctx = m->cfg.n_ctx_train;
    m->n_mtp = opts->no_mtp ? 0 : count_mtp(m, io);
    m->cfg.n_mtp = m->n_mtp;
    m->expand_from = m->cfg.kv_lora ? model_mla_expand_from(&m->cfg) : INT_MAX;
    return SL_OK;
}

sl_status model_open_parts(const io_model *io, dev *d, const struct model_opts *opts, model **out,
                           sl_err *err)
{
    sl_status st = new_model(io, d, opts, out, err);
    if (!st) st = load(*out, io, err);
    if (!st) st = open_inputs(*out, err);
    if (!st) st = open_buffers(*out, err);
    if (st) {
        model_close(*out);
        *out = NULL;
    }
    return st;
}

sl_status model_open(const io_model *io, dev *d, const struct model_opts *opts, model **out,
                     sl_err *err)
{
    struct model *m = NULL;
    struct model_opts o = *opts;
    if (!o.pack) o.pack = io_model_pack(io);
    if (o.pack && strcmp(io_pack_layout(o.pack), dev_layout(d)) != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%.120s: packed in layout %.24s, this sluice runs %.24s: pack it again",
                       io_pack_path(o.pack), io_pack_layout(o.pack), dev_layout(d));
    sl_status st = model_open_parts(io, d, &o, &m, err);
    if (!st) st = model_progs_open(m, (struct dev_tap){0}, m->prog, err);
    if (st)
        model_close(m);
    else
        *out = m;
    return st;
}

sl_status model_pack(const io_model *io, dev *d, io_pack_out *out,
                     int (*progress)(void *user, const char *what, int64_t done, int64_t total),
                     void *user, bool *exact, sl_err *err)
{
    struct model *m = NULL;
    struct model_opts o = {.progress = progress, .user = user};
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
    for (int i = 0; i <= MODEL_MTP_MAX; i++) {
        dev_prog_close(m->prog[i]);
        dev_prog_close(m->tap_prog[i]);
    }
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
    return m->expand_from;
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
    return dev_get(m->d, out, m->n_routed + layer * E, BASE_MIN(n, E) * (int64_t)sizeof *out, err);
}

int64_t model_weight_bytes(const model *m)
{
    return m->weight_bytes;
}
