/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors the target has, where each comes from, and what type it gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant_internal.h"

/* ---- the list ---- */

static sl_status add_item(struct quant_plan *p, struct quant_item **out, sl_err *err)
{
    if (p->n_item == p->cap_item) {
        void *q = NULL;
        int cap = BASE_MAX(256, 2 * p->cap_item);
        SL_TRY(mem_realloc(MEM_MISC, p->item, (size_t)cap * sizeof *p->item, &q, err));
        p->item = q;
        p->cap_item = cap;
    }
    struct quant_item *it = &p->item[p->n_item++];
    memset(it, 0, sizeof *it);
    it->sub = -1;
    it->n_src = 1;
    it->v_heads = 1;
    it->from = QUANT_ROWS;
    it->type = QUANT_AS_IS;
    it->from_text = "";
    *out = it;
    return SL_OK;
}

static void set_shape(struct quant_item *it, int n_dim, int64_t a, int64_t b, int64_t c)
{
    int64_t s[3] = {a, b, c};
    it->n_dim = n_dim;
    for (int i = 0; i < TENSOR_MAX_DIM; i++)
        it->shape[i] = i < n_dim ? s[i] : 1;
    it->cols = it->shape[n_dim - 1];
    it->rows = n_dim == 3 ? a * b : n_dim == 2 ? a : 1;
}

static sl_status refuse_name(const struct quant_plan *p, const char *name, sl_err *err)
{
    return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.100s has no place in a %s", io_path(p->src),
                   name, p->to == IO_GGUF ? ".gguf file" : "folder");
}

/* Heads whose rows llama's GGUF files keep in another order. */
static int perm_of(const struct quant_plan *p, const struct arch_name *id)
{
    if (io_model_kind(p->src) == p->to || !arch_permutes_qk(&p->cfg)) return 0;
    int n = id->role == ROLE_Q ? p->cfg.n_head : id->role == ROLE_K ? p->cfg.n_head_kv : 0;
    return p->to == IO_GGUF ? n : -n;
}

/* Is it of a model with gated delta layers that goes into the other kind of file? */
static bool is_cross_delta(const struct quant_plan *p)
{
    return io_model_kind(p->src) != p->to && p->cfg.n_delta_k > 0;
}

/* Weights of norms that files of one kind have less 1. */
static void set_norm(const struct quant_plan *p, struct quant_item *it)
{
    if (!p->has_cfg || !arch_is_less(&p->cfg, &it->id)) return;
    it->less = p->to == IO_HF;
    it->add = (p->cfg.norm_one ? 1.0f : 0.0f) - (it->less ? 1.0f : 0.0f);
}

static sl_status describe(const struct quant_plan *p, struct quant_item *it, const char *name,
                          struct weight *w, sl_err *err)
{
    SL_TRY(io_weight(p->src, name, w, err));
    it->from_text = quant_scheme_text(w);
    it->bytes_from = (int64_t)weight_bytes(w);
    snprintf(it->src, sizeof it->src, "%s", name);
    return SL_OK;
}

/* Neither numbers nor the codes of a matrix: masks, positions; or patches of pictures, of more
 * dimensions than any part of a language model has. */
static bool is_raw(const struct quant_plan *p, const struct tensor *t)
{
    if (t && t->n_dim > 3 && tensor_dtype_is_weight(t->type))
        return !(p->has_cfg && p->cfg.kda && quant_delta_is_flat(t));
    if (!t || tensor_dtype_is_weight(t->type) || t->type == TENSOR_I8) return false;
    return !io_tensor_is_matrix(p->src, (int)(t - io_tensor(p->src, 0)));
}

/* What is small, and in all that a layer computes. */
static bool is_small(const struct arch_name *id)
{
    return id->global >= GLOBAL_HC_FN || id->role == ROLE_HC_ATTN_FN ||
           id->role == ROLE_HC_FFN_FN || id->role == ROLE_MTP_HC_FN ||
           id->role == ROLE_ENTRY_APE || id->role == ROLE_INDEX_ENTRY_APE;
}

/* Numbers of experts are of 4 bytes in GGUF, of 8 in folders. */
static bool is_table(const struct arch_name *id, const struct tensor *t)
{
    return id->role == ROLE_EXPERT_OF && (t->type == TENSOR_I32 || t->type == TENSOR_I64);
}

/* One tensor as it is, perhaps under another name. */
static sl_status add_same(struct quant_plan *p, const char *name, const struct arch_name *id,
                          const char *new_name, sl_err *err)
{
    struct quant_item *it = NULL;
    struct weight w;
    const struct tensor *t = io_find(p->src, name);
    SL_TRY(add_item(p, &it, err));
    snprintf(it->name, sizeof it->name, "%s", new_name);
    it->id = *id;
    if (is_raw(p, t)) {
        bool table = is_table(id, t);
        if (io_model_kind(p->src) != p->to && !table) return refuse_name(p, name, err);
        it->from = QUANT_RAW;
        it->store = !table ? t->type : p->to == IO_GGUF ? TENSOR_I32 : TENSOR_I64;
        it->from_text = tensor_dtype(t->type)->text;
        it->bytes_from = tensor_count(t) * tensor_dtype(it->store)->bytes;
        if (!table) it->bytes_from = (int64_t)t->n_bytes;
        it->n_dim = t->n_dim;
        memcpy(it->shape, t->shape, sizeof it->shape);
        snprintf(it->src, sizeof it->src, "%s", name);
        it->cls = QUANT_CLASS_OTHER;
        return SL_OK;
    }
    SL_TRY(describe(p, it, name, &w, err));
    if (t && t->n_dim == 3)
        set_shape(it, 3, t->shape[0], t->shape[1], t->shape[2]);
    else if (t && t->n_dim < 2)
        set_shape(it, 1, w.cols, 0, 0);
    else
        set_shape(it, 2, w.rows, w.cols, 0);
    if (t && t->n_dim > 3) { /* of few that are more than 1 */
        it->n_dim = t->n_dim;
        memcpy(it->shape, t->shape, sizeof it->shape);
    }
    it->cls = quant_class_of(id, name, it->n_dim);
    if (p->has_cfg && p->cfg.kda_whole && id->role == ROLE_KDA_F_A && it->n_dim == 2)
        it->cls = QUANT_CLASS_ATTN;
    it->perm = perm_of(p, id);
    if (id->role == ROLE_V && p->has_cfg && !p->cfg.kv_lora)
        it->v_heads = p->cfg.n_head / p->cfg.n_head_kv;
    if (abs(it->perm) && (it->n_dim == 1 ? it->cols : it->rows) % (2 * abs(it->perm)))
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s does not fall into %d heads",
                       io_path(p->src), name, abs(it->perm));
    bool exact = it->n_dim == 1 || id->role == ROLE_ROUTER || id->role == ROLE_INDEX_W ||
                 is_small(id);
    it->store = quant_store_of(p->to, io_model_kind(p->src), &w, exact);
    set_norm(p, it);
    return is_cross_delta(p) ? quant_delta_item(p, it, err) : SL_OK;
}

static bool is_bias(const struct arch_name *id)
{
    return strcmp(id->suffix, "bias") == 0;
}

/* The stack of all experts of a role (to GGUF). */
static sl_status add_stack(struct quant_plan *p, const char *name, const struct arch_name *id,
                           sl_err *err)
{
    struct quant_item *it = NULL;
    struct weight w;
    if (id->expert != 0) return SL_OK; /* the first stands for all */
    SL_TRY(add_item(p, &it, err));
    it->id = *id;
    it->id.expert = -1;
    quant_name_in(&p->naming[IO_GGUF], id, it->name, sizeof it->name);
    SL_TRY(describe(p, it, name, &w, err));
    it->n_src = p->cfg.n_expert;
    it->bytes_from *= it->n_src;
    it->cls = quant_class_of(id, name, 2);
    if (is_bias(id)) set_shape(it, 2, it->n_src, w.cols, 0);
    else set_shape(it, 3, it->n_src, w.rows, w.cols);
    it->store = quant_store_of(IO_GGUF, IO_HF, &w, is_bias(id));
    return SL_OK;
}

/* Matrix i of the n of the stack `name`, which becomes `of`, one expert's (to a folder). */
static sl_status add_unstacked(struct quant_plan *p, const char *name, const struct arch_name *of,
                               int i, int n, sl_err *err)
{
    struct quant_item *it = NULL;
    struct weight w;
    SL_TRY(add_item(p, &it, err));
    it->id = *of;
    quant_name_in(&p->naming[IO_HF], &it->id, it->name, sizeof it->name);
    SL_TRY(describe(p, it, name, &w, err));
    if (w.rows % n)
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s: %lld rows are not %d matrices",
                       io_path(p->src), name, (long long)w.rows, n);
    it->sub = i;
    it->n_sub = n;
    it->bytes_from /= n;
    it->cls = quant_class_of(of, name, 2);
    if (is_bias(of)) set_shape(it, 1, w.cols, 0, 0);
    else set_shape(it, 2, w.rows / n, w.cols, 0);
    it->store = quant_store_of(IO_HF, IO_GGUF, &w, is_bias(of));
    return SL_OK;
}

/* Every expert of a stack by itself; of a stack that holds gate and up, both. */
static sl_status add_all_unstacked(struct quant_plan *p, const char *name,
                                   const struct arch_name *id, sl_err *err)
{
    int E = p->cfg.n_expert;
    struct arch_name of = *id;
    if (id->role != ROLE_GATE_UP_EXPS) {
        for (of.expert = 0; of.expert < E; of.expert++)
            SL_TRY(add_unstacked(p, name, &of, of.expert, E, err));
        return SL_OK;
    }
    for (int i = 0; i < 2 * E; i++) {
        of.role = i % 2 ? ROLE_UP_EXPS : ROLE_GATE_EXPS;
        of.expert = i / 2;
        SL_TRY(add_unstacked(p, name, &of, i, 2 * E, err));
    }
    return SL_OK;
}

static bool is_stack(int role)
{
    return role == ROLE_GATE_EXPS || role == ROLE_UP_EXPS || role == ROLE_DOWN_EXPS ||
           role == ROLE_GATE_UP_EXPS;
}

/* kv_b: one matrix in folders, two in GGUF. part: which of the two, or the whole. */
static sl_status add_kv_b(struct quant_plan *p, const char *name, const struct arch_name *id,
                          enum quant_source part, sl_err *err)
{
    const struct arch_cfg *c = &p->cfg;
    struct quant_item *it = NULL;
    struct weight w;
    SL_TRY(add_item(p, &it, err));
    it->id = *id;
    it->id.role = part == QUANT_K_B ? ROLE_K_B : part == QUANT_V_B ? ROLE_V_B : ROLE_KV_B;
    quant_name_in(&p->naming[p->to], &it->id, it->name, sizeof it->name);
    SL_TRY(describe(p, it, name, &w, err));
    it->from = part;
    it->cls = QUANT_CLASS_ATTN;
    it->store = quant_store_of(p->to, io_model_kind(p->src), &w, false);
    if (part == QUANT_K_B)
        set_shape(it, 3, c->n_head, c->kv_lora, c->d_nope);
    else if (part == QUANT_V_B)
        set_shape(it, 3, c->n_head, c->d_v, c->kv_lora);
    else
        set_shape(it, 2, (int64_t)c->n_head * (c->d_nope + c->d_v), c->kv_lora, 0);
    it->bytes_from =
        part == QUANT_KV_B
            ? it->bytes_from * (c->d_nope + c->d_v) / c->d_nope
            : it->bytes_from * (part == QUANT_K_B ? c->d_nope : c->d_v) / (c->d_nope + c->d_v);
    return SL_OK;
}

/* GGUF holds llama3's scaling as a tensor, and which pairs of wide heads are rotated. */
static sl_status add_freqs(struct quant_plan *p, sl_err *err)
{
    struct quant_item *it = NULL;
    bool has = p->cfg.rope_kind == ARCH_ROPE_LLAMA3 || p->cfg.d_head_win;
    if (p->to != IO_GGUF || io_model_kind(p->src) == IO_GGUF || !has) return SL_OK;
    SL_TRY(add_item(p, &it, err));
    it->id = (struct arch_name){.global = -1, .role = -1, .layer = -1, .expert = -1};
    snprintf(it->name, sizeof it->name, "rope_freqs.weight");
    it->from = QUANT_FREQS;
    it->cls = QUANT_CLASS_OTHER;
    it->store = TENSOR_F32;
    it->from_text = "config";
    set_shape(it, 1, p->cfg.n_rot / 2, 0, 0);
    return SL_OK;
}

/* A bias that the folder's configuration does not know: it is no part of the model, but a GGUF file
 * would make it one. */
static bool is_unknown_bias(const struct quant_plan *p, const struct arch_name *id)
{
    bool attn =
        id->role == ROLE_Q || id->role == ROLE_K || id->role == ROLE_V || id->role == ROLE_O;
    return p->to == IO_GGUF && p->has_cfg && attn && strcmp(id->suffix, "bias") == 0 &&
           !p->cfg.kv_lora && !(id->role == ROLE_O ? p->cfg.o_bias : p->cfg.attn_bias);
}

/* Projections of a delta layer whose rows go by key head, out of one matrix or into one. */
static sl_status add_by_key(struct quant_plan *p, const char *name, const struct arch_name *id,
                            enum quant_move move, sl_err *err)
{
    struct quant_item *it = NULL;
    struct weight w;
    SL_TRY(add_item(p, &it, err));
    it->id = *id;
    it->id.role = move == QUANT_JOIN       ? ROLE_DELTA_QKVZ
                  : move == QUANT_TAKE_QKV ? ROLE_DELTA_QKV
                                           : ROLE_DELTA_Z;
    quant_name_in(&p->naming[p->to], &it->id, it->name, sizeof it->name);
    SL_TRY(describe(p, it, name, &w, err));
    it->move = move;
    it->n_src = move == QUANT_JOIN ? 2 : 1;
    it->cls = QUANT_CLASS_ATTN;
    it->store = quant_store_of(p->to, io_model_kind(p->src), &w, false);
    set_shape(it, 2, quant_delta_rows(&p->cfg, it->id.role), w.cols, 0);
    if (w.rows) it->bytes_from = it->bytes_from * it->rows / w.rows;
    return SL_OK;
}

/* An MTP layer's own table of tokens, or head: a folder of these has the model's in their place. */
static bool is_own_table(const struct quant_plan *p, const char *name, const struct arch_name *id)
{
    bool embed = id->role == ROLE_MTP_EMBED;
    enum arch_global g = embed || p->cfg.tied_head ? GLOBAL_EMBED : GLOBAL_HEAD;
    if (p->to != IO_HF || (!embed && id->role != ROLE_MTP_HEAD)) return false;
    const struct tensor *t = io_find(p->src, name),
                        *same = io_find(p->src, arch_global_name(&p->naming[IO_GGUF], g));
    if (!t || !same || t->type != same->type || t->n_bytes != same->n_bytes ||
        memcmp(t->data, same->data, t->n_bytes) != 0)
        quant_note(p->rep, "%.100s is left out: in folders of %s it is the model's", name,
                   p->cfg.arch);
    return true;
}

/* done: it was, as items or as something that has no place. */
static sl_status add_delta(struct quant_plan *p, const char *name, const struct arch_name *id,
                           bool *done, sl_err *err)
{
    bool packs = arch_packs_delta(&p->cfg), mtp = arch_is_mtp_left(&p->cfg, name, id);
    *done = true;
    p->left_mtp = p->left_mtp || (mtp && !p->cfg.n_mtp);
    if (mtp && p->cfg.n_mtp)
        quant_note(p->rep, "%.100s is left out: the MTP layer has no place for it", name);
    if (mtp || is_own_table(p, name, id)) return SL_OK;
    SL_TRY(quant_delta_check(p, name, id, err));
    if (p->to == IO_GGUF && id->role == ROLE_DELTA_QKVZ) {
        SL_TRY(add_by_key(p, name, id, QUANT_TAKE_QKV, err));
        return add_by_key(p, name, id, QUANT_TAKE_Z, err);
    }
    if (p->to == IO_HF && packs && id->role == ROLE_DELTA_QKV)
        return add_by_key(p, name, id, QUANT_JOIN, err);
    *done = p->to == IO_HF && packs && id->role == ROLE_DELTA_Z; /* with attn_qkv */
    return SL_OK;
}

static sl_status add_cross(struct quant_plan *p, const char *name, const struct arch_name *id,
                           sl_err *err)
{
    char other[QUANT_MAX_NAME];
    bool done = false;
    if (is_cross_delta(p)) SL_TRY(add_delta(p, name, id, &done, err));
    if (done) return SL_OK;
    if (p->cfg.n_mtp_left && arch_is_mtp_left(&p->cfg, name, id)) {
        p->left_mtp = true;
        return SL_OK;
    }
    if (p->to == IO_GGUF && id->expert >= 0 && id->role >= 0) return add_stack(p, name, id, err);
    if (p->to == IO_HF && is_stack(id->role)) return add_all_unstacked(p, name, id, err);
    if (p->to == IO_GGUF && id->role == ROLE_KV_B) {
        SL_TRY(add_kv_b(p, name, id, QUANT_K_B, err));
        return add_kv_b(p, name, id, QUANT_V_B, err);
    }
    if (p->to == IO_HF && id->role == ROLE_K_B) return add_kv_b(p, name, id, QUANT_KV_B, err);
    if (p->to == IO_HF && id->role == ROLE_V_B) return SL_OK; /* with attn_k_b */
    if (p->to == IO_HF && strstr(name, "rotary_emb.inv_freq")) return SL_OK;
    if (is_unknown_bias(p, id) || arch_is_beside_text(p->src, id)) return SL_OK;
    quant_name_in(&p->naming[p->to], id, other, sizeof other);
    if (!other[0]) {
        if (strstr(name, "rotary_emb.inv_freq"))
            return SL_OK; /* old folders store what the configuration says */
        if (strcmp(name, "rope_freqs.weight") == 0 && p->cfg.d_head_win) return SL_OK;
        if (strcmp(name, "rope_freqs.weight") == 0)
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: rope_freqs.weight: the configuration that made it is not in the "
                           "file: convert the "
                           "original folder instead",
                           io_path(p->src));
        return refuse_name(p, name, err);
    }
    return add_same(p, name, id, other, err);
}

/* Does that matrix have a bias among its scales? */
static sl_status find_bias(const struct quant_plan *p, const char *name, struct weight *w,
                           bool *any, sl_err *err)
{
    void *q = NULL;
    *any = false;
    if (io_model_kind(p->src) != IO_HF || io_weight(p->src, name, w, NULL) != SL_OK ||
        w->scheme != TENSOR_SCHEME_GROUP)
        return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)w->rows, sizeof(float), &q, err));
    sl_status st = io_weight_bias(p->src, name, w, q, any, err);
    mem_free(q);
    return st;
}

/* It becomes a tensor of its own, instead of one that is there besides. */
static sl_status add_bias(struct quant_plan *p, const char *name, const struct arch_name *of,
                          sl_err *err)
{
    struct quant_item *it = NULL;
    struct weight w;
    bool any;
    SL_TRY(find_bias(p, name, &w, &any, err));
    if (!any) return SL_OK;
    if (of->role != ROLE_Q && of->role != ROLE_K && of->role != ROLE_V && of->role != ROLE_O)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %.100s: its quant_bias holds a bias, which that layer has no place for",
                       io_path(p->src), name);
    SL_TRY(add_item(p, &it, err));
    it->id = *of;
    snprintf(it->id.suffix, sizeof it->id.suffix, "bias");
    quant_name_in(&p->naming[p->to], &it->id, it->name, sizeof it->name);
    snprintf(it->src, sizeof it->src, "%s", name);
    it->from = QUANT_BIAS;
    it->cls = QUANT_CLASS_OTHER;
    it->store = TENSOR_F32;
    it->from_text = tensor_dtype(TENSOR_I32)->text;
    it->bytes_from = 4 * w.rows;
    it->perm = perm_of(p, of);
    if (of->role == ROLE_V && p->has_cfg && !p->cfg.kv_lora)
        it->v_heads = p->cfg.n_head / p->cfg.n_head_kv;
    set_shape(it, 1, w.rows, 0, 0);
    return SL_OK;
}

/* X.bias beside a matrix that has one among its scales too, which stands for it. */
static sl_status is_doubled(const struct quant_plan *p, const char *name, bool *out, sl_err *err)
{
    char weight[QUANT_MAX_NAME];
    struct weight w;
    size_t n = strlen(name), k = strlen(".bias");
    *out = false;
    if (n <= k || strcmp(name + n - k, ".bias") != 0) return SL_OK;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - k), name);
    return find_bias(p, weight, &w, out, err);
}

/* In a target of the source's kind a name stays, unless that one has words of its own. */
static const char *other_name(const struct quant_plan *p, const struct arch_name *id,
                              const char *name, char buf[QUANT_MAX_NAME])
{
    buf[0] = 0;
    if (p->into && p->into->naming.alias != p->naming[p->to].alias)
        quant_name_in(&p->into->naming, id, buf, QUANT_MAX_NAME);
    return buf[0] ? buf : name;
}

static sl_status add_tensor(struct quant_plan *p, const char *name, sl_err *err)
{
    char new_name[QUANT_MAX_NAME];
    enum io_kind from = io_model_kind(p->src);
    struct arch_name id;
    bool doubled;
    SL_TRY(is_doubled(p, name, &doubled, err));
    if (doubled) return SL_OK;
    arch_name_parse(&p->naming[from], name, &id);
    if (from != p->to) SL_TRY(add_cross(p, name, &id, err));
    else SL_TRY(add_same(p, name, &id, other_name(p, &id, name, new_name), err));
    return add_bias(p, name, &id, err);
}

sl_status quant_plan_make(struct quant_plan *p, sl_err *err)
{
    enum io_kind from = io_model_kind(p->src);
    sl_err why = {0};
    p->has_cfg = arch_cfg_read(p->src, &p->arena, &p->cfg, &why) == SL_OK;
    for (int i = 0; i < 2; i++)
        p->naming[i] = p->has_cfg ? arch_naming_in(&p->cfg, (enum io_kind)i)
                                  : (struct arch_naming){.kind = (enum io_kind)i};
    if (p->into && (!p->has_cfg || strcmp(p->into->arch, p->cfg.arch) != 0)) p->into = NULL;
    if (p->into && from != p->to) p->naming[p->to] = p->into->naming;
    if (from != p->to && !p->has_cfg) {
        if (err) *err = why;
        return why.code;
    }
    for (int i = 0; i < io_n_tensor(p->src); i++) {
        char name[QUANT_MAX_NAME];
        if (strlen(io_tensor(p->src, i)->name) >= QUANT_MAX_NAME - 32)
            return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.80s...: its name is too long",
                           io_path(p->src), io_tensor(p->src, i)->name);
        if (quant_weight_name(p->src, i, name, sizeof name)) SL_TRY(add_tensor(p, name, err));
    }
    if (p->left_mtp) quant_note(p->rep, "MTP layers of %s are left out", p->cfg.arch);
    return add_freqs(p, err);
}

/* ---- types ---- */

enum tensor_dtype quant_store_of(enum io_kind to, enum io_kind from, const struct weight *w,
                                 bool vector)
{
    bool plain = w->scheme == TENSOR_SCHEME_PLAIN && tensor_dtype(w->type)->block == 1 &&
                 w->type != TENSOR_F64 && w->type != TENSOR_F8_E4M3 && w->type != TENSOR_F8_E5M2 &&
                 w->type != TENSOR_I8;
    if (to == from && plain) return w->type;
    if (vector && to == IO_GGUF) return TENSOR_F32;
    if (to == IO_GGUF && from == IO_GGUF && w->scheme == TENSOR_SCHEME_PLAIN) return w->type;
    return plain ? w->type : vector ? TENSOR_F32 : TENSOR_BF16;
}

static int gguf_of(enum quant_type t)
{
    static const int of[] = {
#define X(name, text, gguf, where) gguf,
        QUANT_TYPE_LIST(X)
#undef X
    };
    return of[t];
}

static bool goes_to(enum quant_type t, enum io_kind kind)
{
    static const int where[] = {
#define X(name, text, gguf, where) where,
        QUANT_TYPE_LIST(X)
#undef X
    };
    return t == QUANT_AS_IS || (where[t] & (kind == IO_GGUF ? 1 : 2));
}

static bool is_coded(enum quant_type t)
{
    return t != QUANT_AS_IS && t != QUANT_F32 && t != QUANT_F16 && t != QUANT_BF16;
}

/* awq's and DeepSeek's fp8 schemes know only themselves; the others are all compressed-tensors and
 * mix. */
static bool is_ct(enum quant_type t)
{
    return t == QUANT_INT8 || t == QUANT_INT4 || t == QUANT_NVFP4 || t == QUANT_MXFP4;
}

sl_status quant_check(enum io_kind to, const struct quant_opts *o, sl_err *err)
{
    enum quant_type lone = QUANT_AS_IS, ct = QUANT_AS_IS;
    char can[200];
    for (int c = 0; c < QUANT_CLASS_OTHER; c++) {
        enum quant_type t = o->type[c];
        if (!goes_to(t, to)) {
            quant_types_of(to, can, sizeof can);
            return SL_FAIL(err, REQUEST, "%s: a %s can not hold it: it takes %s",
                           quant_type_text(t), to == IO_GGUF ? ".gguf file" : "folder", can);
        }
        if (to == IO_GGUF || !is_coded(t)) continue;
        if (t == QUANT_FP8 && c != QUANT_CLASS_EMBED && c != QUANT_CLASS_HEAD) {
            if (lone == QUANT_AS_IS) lone = t;
        } else if (is_ct(t))
            ct = t;
        if (t == QUANT_AWQ) lone = t;
        if (c == QUANT_CLASS_EMBED)
            return SL_FAIL(err, REQUEST,
                           "--embed %s: the embedding of a folder can be f32, f16 or bf16",
                           quant_type_text(t));
        if (c == QUANT_CLASS_HEAD && !is_ct(t))
            return SL_FAIL(
                err, REQUEST,
                "--head %s: the head of a folder can be f32, f16, bf16, int8, int4, nvfp4 or mxfp4",
                quant_type_text(t));
        if (lone != QUANT_AS_IS && t != lone && ct == QUANT_AS_IS) ct = t;
    }
    if (lone == QUANT_AWQ && ct != QUANT_AS_IS)
        return SL_FAIL(err, REQUEST,
                       "awq and %s: a folder can not mix them: int8, int4, fp8, nvfp4 and mxfp4 "
                       "mix, awq stands alone",
                       quant_type_text(ct));
    if (o->awq && !o->stats) return SL_FAIL(err, REQUEST, "--awq: needs --calib TEXT");
    return SL_OK;
}

/* What a row of that width can hold instead. */
static enum quant_type fall_back(enum quant_type t)
{
    switch (t) {
    case QUANT_Q4_K:
        return QUANT_Q5_0;
    case QUANT_Q5_K:
        return QUANT_Q5_1;
    case QUANT_Q6_K:
        return QUANT_Q8_0;
    case QUANT_NVFP4:
        return QUANT_Q5_0;
    default:
        return QUANT_F16;
    }
}

/* Is there a place for X.scale? llama.cpp refuses a file with scales that it does not look for: of
 * embeddings, MLA's own matrices and MTP layers. */
static bool takes_scale(const struct quant_plan *p, const struct quant_item *it)
{
    if (it->cls == QUANT_CLASS_EMBED || (p->has_cfg && it->id.layer >= p->cfg.n_layer))
        return false;
    if (p->has_cfg && p->cfg.sandwich && it->id.role == ROLE_DOWN_EXPS) return false; /* taken */
    switch (it->id.role) {
    case ROLE_Q_A:
    case ROLE_Q_B:
    case ROLE_KV_A:
    case ROLE_KV_B:
    case ROLE_K_B:
    case ROLE_V_B:
    case ROLE_INDEX_Q:
    case ROLE_INDEX_K:
    case ROLE_KDA_G_A:
    case ROLE_KDA_G_B:
        return false;
    default:
        return true;
    }
}

static bool fits(const struct quant_plan *p, enum quant_type t, const struct quant_item *it)
{
    if (p->to == IO_GGUF && t == QUANT_NVFP4 && !takes_scale(p, it)) return false;
    if (p->to == IO_GGUF) return it->cols % tensor_dtype((enum tensor_dtype)gguf_of(t))->block == 0;
    switch (t) {
    case QUANT_AWQ:
        return it->cols % p->group == 0 && it->rows % 8 == 0;
    case QUANT_INT4:
        return it->cols % 8 == 0;
    case QUANT_NVFP4:
        return it->cols % 16 == 0;
    case QUANT_MXFP4:
        return it->cols % 32 == 0;
    default:
        return true;
    }
}

/* Embedding and head where nothing was said: as the rest when that is plain; else in a folder as
 * they are, in GGUF not below 6 bits. */
static enum quant_type wanted(const struct quant_plan *p, const struct quant_item *it)
{
    enum quant_type t = it->cls == QUANT_CLASS_OTHER ? QUANT_AS_IS : p->o->type[it->cls];
    if (t != QUANT_AS_IS || (it->cls != QUANT_CLASS_EMBED && it->cls != QUANT_CLASS_HEAD)) return t;
    enum quant_type w = p->o->type[QUANT_CLASS_FFN];
    if (!is_coded(w) || (w == QUANT_Q8_0 && p->to == IO_GGUF)) return w;
    return p->to == IO_HF ? QUANT_AS_IS : QUANT_Q6_K;
}

static sl_status kept_by_name(const struct quant_plan *p, const char *name, bool *kept, sl_err *err)
{
    struct text_hit hit = {0};
    *kept = false;
    if (!p->keep) return SL_OK;
    SL_TRY(text_regex_find(p->keep, p->match, (struct text_subject){name, strlen(name), 0}, &hit,
                           err));
    *kept = hit.found;
    return SL_OK;
}

/* The largest group that nine tenths of the weights can have; the other matrices are kept. */
static void choose_group(struct quant_plan *p)
{
    int64_t all = 0, fit[3] = {0};
    for (int i = 0; i < p->n_item; i++) {
        const struct quant_item *it = &p->item[i];
        if (it->type != QUANT_AWQ) continue;
        all += it->rows * it->cols;
        for (int k = 0; k < 3; k++)
            if (it->cols % (128 >> k) == 0 && it->rows % 8 == 0) fit[k] += it->rows * it->cols;
    }
    p->group = p->o->group;
    for (int k = 0; k < 3 && !p->group; k++)
        if (10 * fit[k] >= 9 * all || k == 2) p->group = 128 >> k;
}

sl_status quant_plan_types(struct quant_plan *p, sl_err *err)
{
    for (int i = 0; i < p->n_item; i++) {
        struct quant_item *it = &p->item[i];
        bool kept = false;
        if (it->from == QUANT_RAW || it->from == QUANT_FREQS || it->from == QUANT_BIAS) continue;
        it->type = wanted(p, it);
        SL_TRY(kept_by_name(p, it->name, &kept, err));
        if (kept) it->type = QUANT_AS_IS;
    }
    choose_group(p);
    bool only_fp8 = true;
    for (int i = 0; i < p->n_item; i++) {
        struct quant_item *it = &p->item[i];
        while (it->type != QUANT_AS_IS && !fits(p, it->type, it)) {
            it->fallback = true;
            it->type = p->to == IO_HF ? QUANT_AS_IS : fall_back(it->type);
        }
        p->rep->n_fallback += it->fallback;
        if (it->type != QUANT_AS_IS && gguf_of(it->type) < TENSOR_N_DTYPE &&
            (p->to == IO_GGUF || !is_coded(it->type)))
            it->store = (enum tensor_dtype)gguf_of(it->type);
        if (p->to == IO_HF && is_ct(it->type)) only_fp8 = false;
    }
    p->ct = p->to == IO_HF && !only_fp8;
    p->rep->group = p->group;
    return SL_OK;
}
