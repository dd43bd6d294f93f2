/* SPDX-License-Identifier: Apache-2.0 */
/* A real checkpoint as a model of the planner: GGUF metadata and tensor lists through io. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arch/arch.h"
#include "cmd_plan.h"
#include "io/io.h"

static bool all_equal(const struct io_array *a, int64_t *out)
{
    int64_t v;
    if (!io_array_i64(a, 0, out)) return false;
    for (uint64_t i = 1; i < a->n; i++)
        if (!io_array_i64(a, i, &v) || v != *out) return false;
    return true;
}

static int meta_int(const io_model *m, const char *arch, const char *key, int def)
{
    char full[160];
    uint64_t v;
    sl_err err;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    struct io_array a;
    int64_t x;
    if (io_meta_array(m, full, &a, NULL) == SL_OK) /* one per layer: all equal, or not known */
        return all_equal(&a, &x) && x >= 0 && x <= 1000000000 ? (int)x : def;
    if (io_meta_u64(m, full, &v, &err) != SL_OK || v > 1000000000) return def;
    return (int)v;
}

/* A family that this engine does not serve. */
static sl_status other_shape(const io_model *io, struct plan_model *m, sl_err *err)
{
    const char *p;
    uint64_t n;
    char a[64];
    SL_TRY(io_meta_str(io, "general.architecture", &p, &n, err));
    snprintf(a, sizeof a, "%.*s", (int)(n < 60 ? n : 60), p);
    m->layers = meta_int(io, a, "block_count", 0);
    m->mtp_layers = meta_int(io, a, "nextn_predict_layers", 0);
    if (m->layers > m->mtp_layers) m->layers -= m->mtp_layers;
    m->hidden = meta_int(io, a, "embedding_length", 0);
    m->heads = meta_int(io, a, "attention.head_count", 0);
    m->kv_heads = meta_int(io, a, "attention.head_count_kv", m->heads);
    m->head_dim = meta_int(io, a, "attention.key_length", m->heads > 0 ? m->hidden / m->heads : 0);
    m->q_lora = meta_int(io, a, "attention.q_lora_rank", 0);
    m->kv_lora = meta_int(io, a, "attention.kv_lora_rank", 0);
    m->max_ctx = meta_int(io, a, "context_length", 0);
    m->dense_inter = meta_int(io, a, "feed_forward_length", 0);
    m->experts = meta_int(io, a, "expert_count", 0);
    m->topk = meta_int(io, a, "expert_used_count", 0);
    m->shared = meta_int(io, a, "expert_shared_count", 0);
    m->moe_inter =
        meta_int(io, a, "expert_feed_forward_length", m->experts > 0 ? m->dense_inter : 0);
    m->dense_layers = meta_int(io, a, "leading_dense_block_count", 0);
    if (m->kv_lora > 0) {
        m->attn = PLAN_ATTN_MLA;
        m->rope = meta_int(io, a, "rope.dimension_count", 64);
        m->nope = meta_int(io, a, "attention.key_length_mla", m->head_dim) - m->rope;
        m->v_dim = meta_int(io, a, "attention.value_length_mla",
                            meta_int(io, a, "attention.value_length", 128));
        if (m->nope <= 0) m->nope = 128;
    } else {
        m->attn = PLAN_ATTN_GQA;
    }
    const struct tensor *e = io_find(io, "token_embd.weight");
    m->vocab =
        e && m->hidden > 0 ? (int)(tensor_count(e) / m->hidden) : meta_int(io, a, "vocab_size", 0);
    m->tie_embed = io_find(io, "output.weight") == NULL;
    return SL_OK;
}

static sl_status gguf_shape(const io_model *io, struct arena *a, struct plan_model *m, sl_err *err)
{
    struct arch_cfg c;
    sl_status st = arch_cfg_read(io, a, &c, err);
    if (st == SL_UNSUPPORTED) return other_shape(io, m, err);
    if (!st) plan_model_from_arch(m, &c);
    return st;
}

/* What a folder's config.json does not say and its tensors do. */
static void folder_shape(const io_model *io, struct arena *a, struct plan_model *m)
{
    struct arch_cfg c;
    if (arch_cfg_read(io, a, &c, NULL) == SL_OK) m->mtp_layers = c.n_mtp;
}

/* Fill r->model and r->real from an open checkpoint. The shape of a folder was read from its
 * config.json before. */
sl_status plan_model_open(struct plan_run *r, const char *path, sl_err *err)
{
    io_model *io = NULL;
    char why[160];
    SL_TRY(io_open(path, false, &io, err));
    sl_status st = SL_OK;
    void *mem = NULL;
    int n = io_n_tensor(io);
    if (io_model_kind(io) == IO_GGUF) {
        r->model = (struct plan_model){0};
        snprintf(r->model.name, sizeof r->model.name, "%.90s", str_base(path));
        st = gguf_shape(io, r->a, &r->model, err);
        if (st == SL_OK && !plan_model_finish(&r->model, why, sizeof why)) {
            st = SL_FAIL(err, FORMAT, "%s: %s", path, why);
        }
    } else {
        folder_shape(io, r->a, &r->model);
    }
    if (st == SL_OK)
        st = mem_arena_array(r->a, (size_t)n + 1, sizeof(struct plan_tensor), &mem, err);
    if (st == SL_OK) {
        struct plan_tensor *t = mem;
        for (int i = 0; i < n; i++) {
            const struct tensor *x = io_tensor(io, i);
            t[i] = (struct plan_tensor){x->name, (double)io_tensor_params(io, i),
                                        (double)x->n_bytes};
        }
        plan_format_find("q8", &r->real);
        snprintf(r->real.name, sizeof r->real.name, "file");
        plan_model_from_tensors(&r->model, &r->real, t, (size_t)n);
        if (!plan_model_finish(&r->model, why, sizeof why))
            st = SL_FAIL(err, FORMAT, "%s: %s", path, why);
        r->has_real = st == SL_OK;
        if (r->has_real) plan_model_from_tensors(&r->model, &r->real, t, (size_t)n);
    }
    io_close(io);
    return st;
}
