/* SPDX-License-Identifier: Apache-2.0 */
/* What the families with a lightning indexer share (DeepSeek-V3.2, GLM-5; MiniMax-M3 the checks):
 * its sizes, and which layers have one of their own. An MTP layer has its own, unless a file that
 * has the layer lacks its indexer: then it sees all positions, which is what such files can mean.
 */
#include <stdio.h>
#include <string.h>

#include "arch/arch_internal.h"

#define NORM_EPS 1e-6 /* of the keys' norm: no file says another one */
#define POOL_MOST 16  /* a block of the cache is a multiple of it */

/* All layers have one; readers change what is otherwise. */
static void set_own(struct arch_cfg *c)
{
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        c->layer[i].index = ARCH_INDEX_OWN;
}

/* ---- config.json ---- */

sl_status arch_hf_index(const struct json *o, int n_head, struct arch_cfg *c, sl_err *err)
{
    bool pairs = c->row->index_rope == ARCH_ROPE_PAIRS;
    SL_TRY(arch_hf_int(o, "index_n_heads", ARCH_RANGE(n_head, 1, 4096), &c->n_index, err));
    SL_TRY(arch_hf_int(o, "index_head_dim", ARCH_RANGE(128, 1, 65536), &c->d_index, err));
    SL_TRY(arch_hf_int(o, "index_topk", ARCH_RANGE(2048, 1, 1 << 28), &c->index_top, err));
    SL_TRY(arch_hf_bool(o, "indexer_rope_interleave", pairs, &pairs, err));
    c->index_rope = pairs ? ARCH_ROPE_PAIRS : ARCH_ROPE_HALF;
    set_own(c);
    return SL_OK;
}

/* A list of words, one for each layer. */
static sl_status hf_words(const struct json *list, struct arch_cfg *c, sl_err *err)
{
    int i = 0;
    if (list->kind != JSON_ARRAY_K || list->n != (size_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "%s is not a list of %d layers", list->key, c->n_layer);
    for (const struct json *v = list->child; v; v = v->next, i++) {
        bool own = text_json_is(v, "full");
        if (!own && !text_json_is(v, "shared"))
            return SL_FAIL(err, UNSUPPORTED, "%s[%d] is neither full nor shared", list->key, i);
        c->layer[i].index = own ? ARCH_INDEX_OWN : ARCH_INDEX_SHARED;
    }
    return SL_OK;
}

/* The same as a letter each: "FSSF". */
static sl_status hf_letters(const struct json *text, struct arch_cfg *c, sl_err *err)
{
    if (strlen(text->s) != (size_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "%s has %lld letters for %d layers", text->key,
                       (long long)strlen(text->s), c->n_layer);
    for (int i = 0; i < c->n_layer; i++) {
        if (text->s[i] != 'F' && text->s[i] != 'S')
            return SL_FAIL(err, UNSUPPORTED, "%s[%d] is neither F nor S", text->key, i);
        c->layer[i].index = text->s[i] == 'F' ? ARCH_INDEX_OWN : ARCH_INDEX_SHARED;
    }
    return SL_OK;
}

static const struct json *said(const struct json *o, const char *key)
{
    const struct json *v = text_json_get(o, key);
    return v && v->kind != JSON_NULL_K ? v : NULL;
}

sl_status arch_hf_index_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *types = said(o, "indexer_types"), *way = said(o, "index_topk_pattern");
    int every = 1, from = 0;
    if (types) return hf_words(types, c, err);
    if (way) return way->kind == JSON_STR_K ? hf_letters(way, c, err) : hf_words(way, c, err);
    SL_TRY(arch_hf_int(o, "index_topk_freq", ARCH_RANGE(1, 0, 1024), &every, err));
    SL_TRY(arch_hf_int(o, "index_skip_topk_offset", ARCH_RANGE(2, 0, 1024), &from, err));
    every = BASE_MAX(every, 1);
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].index = BASE_MAX(i - from + 1, 0) % every ? ARCH_INDEX_SHARED : ARCH_INDEX_OWN;
    return SL_OK;
}

/* ---- GGUF ---- */

static bool has_own(const io_model *m, const struct arch_cfg *c, int layer)
{
    char name[128];
    arch_tensor_name(&c->naming, ROLE_INDEX_W, layer, "weight", name, sizeof name);
    return io_has_weight(m, name);
}

sl_status arch_gguf_index(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    char name[128];
    double eps = 0;
    int n = 0;
    SL_TRY(arch_gguf_int(m, "attention.indexer.head_count", ARCH_RANGE(-1, 1, 4096), &c->n_index,
                         err));
    SL_TRY(arch_gguf_int(m, "attention.indexer.key_length", ARCH_RANGE(-1, 1, 65536), &c->d_index,
                         err));
    SL_TRY(arch_gguf_int(m, "attention.indexer.top_k", ARCH_RANGE(-1, 1, 1 << 28), &c->index_top,
                         err));
    SL_TRY(
        arch_gguf_real(m, "attention.layer_norm_epsilon", ARCH_RANGE(NORM_EPS, 0, 1), &eps, err));
    if ((float)eps != (float)NORM_EPS)
        return SL_FAIL(err, UNSUPPORTED, "%s: attention.layer_norm_epsilon is %g, not %g",
                       io_path(m), eps, NORM_EPS);
    if (c->n_expert && !c->route_sigmoid)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_gating_func is not 2 (sigmoid)", io_path(m));
    c->index_rope = c->row->index_rope;
    set_own(c);
    for (int i = 0; i < c->n_layer; i++)
        n += has_own(m, c, i);
    arch_tensor_name(&c->naming, ROLE_INDEX_W, 0, "weight", name, sizeof name);
    if (!n)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: no layer has an indexer (%s), which %s computes attention by",
                       io_path(m), name, c->arch);
    return SL_OK;
}

sl_status arch_gguf_index_layers(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    struct io_array arr;
    int64_t v = 0;
    bool listed = arch_gguf_array(m, "attention.indexer.types", &arr);
    if (listed && arr.n != (uint64_t)c->n_layer && arr.n != (uint64_t)(c->n_layer + c->n_mtp))
        return SL_FAIL(err, FORMAT, "%s: attention.indexer.types has %llu entries for %d layers",
                       io_path(m), (unsigned long long)arr.n, c->n_layer);
    for (int i = 0; i < c->n_layer; i++) {
        if (listed && (!io_array_i64(&arr, (uint64_t)i, &v) || v < 0 || v > 1))
            return SL_FAIL(err, FORMAT, "%s: attention.indexer.types[%d] is neither 0 nor 1",
                           io_path(m), i);
        bool own = listed ? v == 1 : has_own(m, c, i);
        c->layer[i].index = own ? ARCH_INDEX_OWN : ARCH_INDEX_SHARED;
    }
    return SL_OK;
}

/* ---- what all must be ---- */

void arch_index_mtp(const io_model *m, struct arch_cfg *c)
{
    char name[128];
    for (int i = c->n_layer; c->n_index && i < c->n_layer + c->n_mtp; i++) {
        arch_tensor_name(&c->naming, ROLE_MTP_EH, i, "weight", name, sizeof name);
        if (io_has_weight(m, name) && !has_own(m, c, i)) c->layer[i].index = ARCH_INDEX_NONE;
    }
}

/* Blocks are those of attention's spans, and every KV head has its own. */
static sl_status check_blocks(const struct arch_cfg *c, sl_err *err)
{
    if (c->index_blk < 16 || c->index_blk > 128 || 128 % c->index_blk)
        return SL_FAIL(err, UNSUPPORTED,
                       "an indexer's blocks of %d positions: 16, 32, 64 and 128 are supported",
                       c->index_blk);
    if (c->n_index != c->n_head_kv)
        return SL_FAIL(err, UNSUPPORTED,
                       "an indexer of %d heads beside %d key heads: one for each is supported",
                       c->n_index, c->n_head_kv);
    if (c->d_index < c->n_rot || c->d_index % 16)
        return SL_FAIL(err, UNSUPPORTED,
                       "indexer heads of %d, of which %d are rotated: multiples of 16 that hold "
                       "these are supported",
                       c->d_index, c->n_rot);
    if (c->index_local > c->index_top / c->index_blk)
        return SL_FAIL(err, FORMAT, "an indexer of %d blocks, %d of which are the last ones",
                       c->index_top / c->index_blk, c->index_local);
    return SL_OK;
}

sl_status arch_check_index(const struct arch_cfg *c, sl_err *err)
{
    if (c->index_blk) return check_blocks(c, err);
    if (!c->q_lora)
        return SL_FAIL(err, UNSUPPORTED,
                       "q_lora_rank 0 with an indexer is not supported: it reads "
                       "the latent of queries");
    if (c->layer[0].index == ARCH_INDEX_SHARED)
        return SL_FAIL(err, FORMAT,
                       "layer 0 shares the positions of an indexer, but none is below it");
    if (c->d_index < c->d_rope || c->d_index % 8)
        return SL_FAIL(err, UNSUPPORTED,
                       "indexer heads of %d, of which %d are rotated: multiples of 8 that hold "
                       "these are supported",
                       c->d_index, c->d_rope);
    int pool = c->index_pool;
    if (pool && (pool > POOL_MOST || POOL_MOST % pool || c->index_top % pool))
        return SL_FAIL(err, UNSUPPORTED,
                       "an indexer of %d positions in pools of %d: powers of two up to %d that "
                       "divide these are supported",
                       c->index_top, pool, POOL_MOST);
    return SL_OK;
}

/* ---- writing ---- */

static bool any_shared(const struct arch_cfg *c)
{
    for (int i = 0; i < c->n_layer; i++)
        if (c->layer[i].index == ARCH_INDEX_SHARED) return true;
    return false;
}

sl_status arch_put_index(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    if (c->index_rope != c->row->index_rope)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: indexer_rope_interleave %s, which GGUF can not say",
                       k->path, c->index_rope == ARCH_ROPE_PAIRS ? "true" : "false");
    arch_put_int(k, "attention.indexer.head_count", c->n_index);
    arch_put_int(k, "attention.indexer.key_length", c->d_index);
    arch_put_int(k, "attention.indexer.top_k", c->index_top);
    return arch_put_moe_shared(c, k, err);
}

void arch_put_index_layers(const struct arch_cfg *c, const struct arch_keys *k)
{
    char key[128];
    snprintf(key, sizeof key, "%s.attention.indexer.types", k->arch);
    io_out_array(k->out, key, IO_BOOL, (uint64_t)c->n_layer);
    for (int i = 0; i < c->n_layer; i++)
        io_out_elem_bool(k->out, c->layer[i].index == ARCH_INDEX_OWN);
}

sl_status arch_jw_index(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, false, false, w, err));
    arch_jw_mla(c, w);
    text_jw_key_int(w, "index_n_heads", c->n_index);
    text_jw_key_int(w, "index_head_dim", c->d_index);
    text_jw_key_int(w, "index_topk", c->index_top);
    text_jw_key_bool(w, "indexer_rope_interleave", c->index_rope == ARCH_ROPE_PAIRS);
    if (c->n_expert) arch_jw_moe_shared(c, "sigmoid", "noaux_tc", w);
    if (!any_shared(c)) return SL_OK;
    text_jw_key(w, "indexer_types");
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer; i++)
        text_jw_strz(w, c->layer[i].index == ARCH_INDEX_OWN ? "full" : "shared");
    text_jw_arr_end(w);
    return SL_OK;
}
