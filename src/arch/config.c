/* SPDX-License-Identifier: Apache-2.0 */
/* Which architecture a file is, and the checks that every configuration must pass before anything
 * is computed from it. */
#include <stdio.h>
#include <string.h>

#include "arch/arch_internal.h"
#include "base/place.h"
#include "io/pack.h"

#define KNOWN 512 /* bytes of all names: a message has room for fewer */

#define X(name) extern const struct arch arch_##name;
#include "arch/rows.inc"
#undef X
static const struct arch *const rows[] = {
#define X(name) &arch_##name,
#include "arch/rows.inc"
#undef X
};

const struct arch *arch_row(int i)
{
    int place[BASE_COUNT_OF(rows)];
    for (int k = 0; k < BASE_COUNT_OF(rows); k++)
        place[k] = rows[k]->place;
    int r = base_placed(place, BASE_COUNT_OF(rows), i);
    return r < 0 ? NULL : rows[r];
}

/* All their names, a space before each. */
static const char *known(char *buf, size_t n)
{
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; arch_row(i) && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, " %s", arch_row(i)->name);
    return buf;
}

static bool name_in(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, name, n) == 0) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

/* Files that accompany a model are GGUF too. */
static sl_status check_type(const io_model *m, sl_err *err)
{
    static const char *const other[][2] = {
        {"adapter", "a LoRA adapter, not a model: merge it into its base model"},
        {"mmproj",
         "the part of a model that sees or hears (mmproj): give the file of its language model"},
        {"projector",
         "the part of a model that sees or hears: give the file of its language model"},
        {"imatrix", "an importance matrix, not a model"},
        {"vocab", "a vocabulary without weights"},
    };
    const char *type = NULL, *arch = NULL;
    uint64_t n = 0, n_arch = 0;
    if (io_meta_str(m, "general.type", &type, &n, NULL) != SL_OK) n = 0;
    for (int i = 0; i < BASE_COUNT_OF(other); i++)
        if (n == strlen(other[i][0]) && memcmp(type, other[i][0], n) == 0)
            return SL_FAIL(err, UNSUPPORTED, "%s: %s (general.type is %s)", io_path(m), other[i][1],
                           other[i][0]);
    if (n && !(n == 5 && memcmp(type, "model", 5) == 0))
        return SL_FAIL(err, UNSUPPORTED, "%s: general.type is %.*s, not model", io_path(m),
                       (int)BASE_MIN(n, 40), type);
    if (io_meta_str(m, "general.architecture", &arch, &n_arch, NULL) == SL_OK && n_arch == 4 &&
        memcmp(arch, "clip", 4) == 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: the part of a model that sees or hears (clip): give the file of its "
                       "language model",
                       io_path(m));
    return SL_OK;
}

static sl_status find_gguf(const io_model *m, const struct arch **out, sl_err *err)
{
    const char *name = NULL;
    uint64_t n = 0;
    SL_TRY(check_type(m, err));
    SL_TRY(io_meta_str(m, "general.architecture", &name, &n, err));
    const struct arch *found = NULL, *row;
    char list[KNOWN];
    for (int i = 0; (row = arch_row(i)); i++)
        if (name_in(row->gguf, name, n) && (!row->match_gguf || row->match_gguf(m))) found = row;
    if (!found)
        return SL_FAIL(err, UNSUPPORTED, "%s: architecture '%.*s' is not supported (known:%s)",
                       io_path(m), (int)BASE_MIN(n, 40), name, known(list, sizeof list));
    *out = found;
    return SL_OK;
}

/* By the type of the whole model: one with parts that see is listed by its own. */
static sl_status find_hf(const struct json *config, const struct arch **out, sl_err *err)
{
    const char *type = NULL;
    char list[KNOWN];
    SL_TRY(text_json_str(config, "model_type", NULL, &type, err));
    if (!type) return SL_FAIL(err, FORMAT, "model_type is missing");
    for (int i = 0; (*out = arch_row(i)); i++)
        if (name_in((*out)->hf_type, type, strlen(type))) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "model_type '%.40s' is not supported (known:%s)", type,
                   known(list, sizeof list));
}

static sl_status check_mla(const struct arch_cfg *c, sl_err *err)
{
    int least = c->row->unrotated ? 0 : 2;
    if (c->d_nope < 8 || c->d_nope % 8 || c->d_rope < least || c->d_rope % 2 || c->d_v < 8 ||
        c->d_v % 8)
        return SL_FAIL(err, UNSUPPORTED,
                       "head sizes nope %d, rope %d, v %d: multiples of 8, 2, 8 are supported",
                       c->d_nope, c->d_rope, c->d_v);
    if (c->kv_lora % 8)
        return SL_FAIL(err, UNSUPPORTED, "kv_lora_rank %d: multiples of 8 are supported",
                       c->kv_lora);
    return SL_OK;
}

static sl_status check_moe(const struct arch_cfg *c, sl_err *err)
{
    if (c->n_expert_used < 1 || c->n_expert_used > c->n_expert || c->n_expert_used > 64)
        return SL_FAIL(err, FORMAT, "experts used per token %d of %d", c->n_expert_used,
                       c->n_expert);
    if (c->n_group < 1 || c->n_expert % c->n_group || c->n_group_used < 1 ||
        c->n_group_used > c->n_group)
        return SL_FAIL(err, FORMAT, "expert groups: %d of %d groups over %d experts",
                       c->n_group_used, c->n_group, c->n_expert);
    if (c->n_expert_used > c->n_expert / c->n_group * c->n_group_used)
        return SL_FAIL(err, FORMAT, "experts used per token %d, but the chosen groups hold %d",
                       c->n_expert_used, c->n_expert / c->n_group * c->n_group_used);
    if (!c->group_max && c->n_group > 1 && c->n_expert / c->n_group < 2)
        return SL_FAIL(err, FORMAT, "expert groups of %d: at least 2 are needed",
                       c->n_expert / c->n_group);
    if (c->d_ff_expert < 1)
        return SL_FAIL(err, FORMAT, "expert feed-forward width %d", c->d_ff_expert);
    return SL_OK;
}

sl_status arch_cfg_check(const struct arch_cfg *c, sl_err *err)
{
    if (c->n_head % c->n_head_kv)
        return SL_FAIL(err, FORMAT, "%d query heads are not a multiple of %d key heads", c->n_head,
                       c->n_head_kv);
    if (c->kv_lora)
        SL_TRY(check_mla(c, err));
    else if (c->d_head % 8 || c->d_head_win % 8)
        return SL_FAIL(err, UNSUPPORTED, "head size %d: multiples of 8 are supported",
                       c->d_head % 8 ? c->d_head : c->d_head_win);
    if (c->d_head_win && c->n_head % c->n_head_kv_win)
        return SL_FAIL(err, FORMAT,
                       "%d query heads are not a multiple of %d key heads of layers with a window",
                       c->n_head, c->n_head_kv_win);
    if (!(c->row->unrotated && !c->n_rot) &&
        (c->n_rot < 2 || c->n_rot % 2 || (!c->kv_lora && c->n_rot > c->d_head)))
        return SL_FAIL(err, FORMAT, "rotated dimensions %d of a head of %d", c->n_rot, c->d_head);
    if (c->n_expert) SL_TRY(check_moe(c, err));
    if (c->n_delta_k) SL_TRY(arch_check_delta(c, err));
    if (c->n_index && !c->o_groups) SL_TRY(arch_check_index(c, err));
    if (c->rope_kind != ARCH_ROPE_PLAIN && !(c->rope_factor >= 1e-3 && c->rope_factor <= 1e6))
        return SL_FAIL(err, FORMAT, "rope scaling factor %g", c->rope_factor);
    if (c->rope_kind == ARCH_ROPE_LLAMA3 &&
        !(c->rope_high_freq > c->rope_low_freq && c->rope_low_freq > 0))
        return SL_FAIL(err, FORMAT, "rope scaling llama3: low_freq_factor %g, high_freq_factor %g",
                       c->rope_low_freq, c->rope_high_freq);
    return SL_OK;
}

/* Layers as most are; readers change what is otherwise. */
static sl_status new_layers(struct arena *a, struct arch_cfg *c, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(a, (size_t)(c->n_layer + c->n_mtp), sizeof *c->layer, &p, err));
    c->layer = p;
    return SL_OK;
}

static sl_status read_gguf(const io_model *m, struct arena *a, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_common(m, c, err));
    SL_TRY(new_layers(a, c, err));
    SL_TRY(c->row->read_gguf(m, c, err));
    SL_TRY(arch_gguf_layers(m, c, err));
    return arch_keys_gguf(m, c, err);
}

/* What a config.json does not say of MTP layers, their tensors do. m: NULL = there are none. */
static int unsaid_mtp(const io_model *m, const struct arch_cfg *c)
{
    char name[64];
    struct arch_naming by = {.kind = IO_HF, .alias = c->row->alias, .mtp_from = 1};
    arch_tensor_name(&by, ROLE_MTP_EH, 1, "weight", name, sizeof name);
    return m && c->row->mtp_apart && io_has_weight(m, name);
}

/* The outer object of a nested configuration says what holds for the whole model. */
static sl_status read_hf(const struct json *outer, struct arena *a, struct arch_cfg *c, sl_err *err)
{
    const struct json *o = io_text_config(outer);
    sl_status st = SL_OK;
    SL_TRY_OUT(arch_hf_common(o, c, err));
    SL_TRY_OUT(text_json_bool(outer, "tie_word_embeddings", c->tied_head, &c->tied_head, err));
    SL_TRY_OUT(new_layers(a, c, err));
    SL_TRY_OUT(c->row->read_hf(o, c, err));
    SL_TRY_OUT(arch_keys_hf(o, c, err));
out:
    if (st && o != outer) status_prefix(err, "text_config");
    return st;
}

static void begin(struct arch_cfg *c, enum io_kind kind)
{
    c->naming = arch_naming_in(c, kind);
    snprintf(c->arch, sizeof c->arch, "%s", c->row->name);
    c->norm_one = kind == IO_HF && c->row->norm_one;
    c->yarn_mscale = 1.0;
    c->route_scale = 1.0f;
    c->n_group = c->n_group_used = 1;
}

/* What follows from all that was read. */
static sl_status finish(struct arch_cfg *c, sl_err *err)
{
    c->naming = arch_naming_in(c, c->naming.kind);
    for (int i = 0; i < c->n_layer + c->n_mtp; i++) {
        if (c->kv_lora && c->layer[i].mixer != ARCH_DELTA) c->layer[i].mixer = ARCH_MLA;
        if (i >= c->n_layer && c->n_expert) c->layer[i].ffn = ARCH_MOE;
    }
    if (c->qk_norm && !c->d_q_norm && !c->d_head_win) c->d_q_norm = c->d_k_norm = c->d_head;
    return arch_cfg_check(c, err);
}

/* Has the folder names of the row's other list? */
static bool is_renamed(const io_model *m, const struct arch_cfg *c)
{
    char name[128];
    struct arch_naming by = {.kind = IO_HF, .alias = c->row->renamed};
    for (int i = 0; by.alias && i < c->n_layer; i++) {
        arch_tensor_name(&by, by.alias[0].role, i, "weight", name, sizeof name);
        if (io_has_weight(m, name) ||
            (io_model_pack(m) && io_pack_find(io_model_pack(m), name)))
            return true;
    }
    return false;
}

/* m: NULL, or what it was read from. */
static sl_status read_json(const struct json *config, const io_model *m, struct arena *a,
                           struct arch_cfg *c, sl_err *err)
{
    memset(c, 0, sizeof *c);
    SL_TRY(find_hf(config, &c->row, err));
    begin(c, IO_HF);
    c->n_mtp = unsaid_mtp(m, c);
    SL_TRY(read_hf(config, a, c, err));
    return finish(c, err);
}

/* MTP layers of several streams, where a file has other drafters in their place, or has them in
 * another form: they are left. */
static void leave_mtp(const io_model *m, struct arch_cfg *c)
{
    char name[128];
    int n = 0;
    if (!arch_mtp_streams(c) || !io_n_tensor(m)) return; /* one that is a mock has no tensors */
    for (; n < c->n_mtp; n++) {
        arch_tensor_name(&c->naming, arch_mtp_mark(c), c->n_layer + n, "weight", name, sizeof name);
        if (!io_has_weight(m, name)) break;
    }
    if (n == c->n_mtp) return;
    c->n_mtp_left = c->n_mtp;
    c->n_mtp = 0;
}

sl_status arch_cfg_read(const io_model *m, struct arena *a, struct arch_cfg *c, sl_err *err)
{
    const struct json *config = NULL;
    memset(c, 0, sizeof *c);
    if (io_model_kind(m) == IO_HF) {
        SL_TRY(io_need_config(m, &config, err));
        sl_status st = read_json(config, m, a, c, err);
        if (st) status_prefix(err, "config.json");
        if (!st) arch_index_mtp(m, c);
        c->renamed = !st && is_renamed(m, c);
        if (!st) c->naming = arch_naming_in(c, IO_HF);
        if (!st) leave_mtp(m, c);
        c->head_apart = !st && c->tied_head && arch_head_differs(m, c);
        if (c->head_apart) c->tied_head = false;
        return st;
    }
    SL_TRY(find_gguf(m, &c->row, err));
    begin(c, IO_GGUF);
    SL_TRY(read_gguf(m, a, c, err));
    sl_status st = finish(c, err);
    if (st) status_prefix(err, "%s", io_path(m));
    if (!st) arch_index_mtp(m, c);
    if (!st) leave_mtp(m, c);
    return st;
}

sl_status arch_cfg_read_json(const struct json *config, struct arena *a, struct arch_cfg *c,
                             sl_err *err)
{
    return read_json(config, NULL, a, c, err);
}

struct arch_naming arch_naming_in(const struct arch_cfg *c, enum io_kind kind)
{
    bool renamed = kind == IO_HF && c->renamed, bare = kind == IO_HF && c->row->bare && !renamed;
    return (struct arch_naming){kind,
                                renamed ? c->row->renamed : c->row->alias,
                                c->row->mtp_apart || bare ? c->n_layer : 0,
                                bare,
                                c->row->in_delta,
                                c->layer,
                                c->layer ? c->n_layer + c->n_mtp : 0,
                                c->row->embed,
                                c->row->selects};
}

struct glu arch_glu(const struct arch_cfg *c, int layer, enum arch_role role)
{
    const struct arch_layer *l = &c->layer[layer];
    bool routed = role == ROLE_GATE_EXPS || role == ROLE_UP_EXPS || role == ROLE_GATE_UP_EXPS;
    bool shared = role == ROLE_GATE_SHEXP || role == ROLE_UP_SHEXP;
    float own = routed ? l->limit : shared ? l->limit_shared : 0;
    if (own > 0) return (struct glu){.limit = own, .after = 1.0f};
    return routed || c->glu_all ? c->glu : (struct glu){0};
}

bool arch_decay_plain(const struct arch_cfg *c)
{
    return c->row->decay_plain;
}

bool arch_permutes_qk(const struct arch_cfg *c)
{
    return c->row->permutes_qk;
}

bool arch_packs_delta(const struct arch_cfg *c)
{
    return c->row->delta_packed;
}

bool arch_is_less(const struct arch_cfg *c, const struct arch_name *id)
{
    static const uint64_t norms = ARCH_BIT(ATTN_NORM) | ARCH_BIT(FFN_NORM) | ARCH_BIT(Q_NORM) |
                                  ARCH_BIT(K_NORM) | ARCH_BIT(INDEX_Q_NORM) |
                                  ARCH_BIT(INDEX_K_NORM) | ARCH_BIT(MTP_ENORM) |
                                  ARCH_BIT(MTP_HNORM) | ARCH_BIT(MTP_HEAD_NORM);
    if (!c->row->norm_one) return false;
    return id->global == GLOBAL_NORM || (id->role >= 0 && arch_in(norms, id->role));
}

bool arch_tiles_delta(const struct arch_cfg *c)
{
    return c->row->delta_tiled;
}

const char *arch_tool_family(const struct arch_cfg *c)
{
    return c->row->tool_family;
}

bool arch_scale_used(const struct arch_cfg *c, enum arch_role role)
{
    switch (role) {
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return !c->row->ffn_scale_unused;
    case ROLE_Q:
        return !c->kv_lora;
    default:
        return true;
    }
}
