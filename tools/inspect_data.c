/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: a tensor's numbers into a file, and the memory that a model would take. */
#include <string.h>

#include "base/size.h"
#include "engine/cache.h"
#include "inspect.h"
#include "kern/mm.h"
#include "os/os.h"

#define DUMP_PIECE 65536 /* weights at a time; a multiple of every block */
#define N_CHUNK 512      /* tokens of its largest step */

const char *inspect_count_text(int64_t n, char *buf, size_t cap)
{
    double v = (double)n;
    if (n < 10000)
        snprintf(buf, cap, "%lld", (long long)n);
    else if (v < 1e6)
        snprintf(buf, cap, "%.1f K", v / 1e3);
    else if (v < 1e9)
        snprintf(buf, cap, "%.1f M", v / 1e6);
    else
        snprintf(buf, cap, "%.2f B", v / 1e9);
    return buf;
}

const char *inspect_bytes_text(int64_t n, char *buf, size_t cap)
{
    double v = (double)n;
    if (n < 10000)
        snprintf(buf, cap, "%lld bytes", (long long)n);
    else if (v < 1e6)
        snprintf(buf, cap, "%.1f KB", v / 1e3);
    else if (v < 1e9)
        snprintf(buf, cap, "%.1f MB", v / 1e6);
    else
        snprintf(buf, cap, "%.2f GB", v / 1e9);
    return buf;
}

/* ---- dump ---- */
static sl_status dump_rows(const struct weight *w, float *buf, struct os_out *out, sl_err *err)
{
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t c = 0; c < w->cols; c += DUMP_PIECE) {
            int64_t n = BASE_MIN(w->cols - c, (int64_t)DUMP_PIECE);
            weight_dequant(w, r, c, n, buf);
            SL_TRY(os_out_write(out, buf, (uint64_t)n * 4, err));
            if (cmd_stop) return SL_FAIL(err, CANCELLED, "interrupted");
        }
    return SL_OK;
}

sl_status inspect_dump(const struct inspect *v, const char *name, const char *path, sl_err *err)
{
    struct weight w;
    struct os_out out;
    void *buf = NULL;
    SL_TRY(io_weight(v->io, name, &w, err));
    SL_TRY(mem_alloc(MEM_MISC, DUMP_PIECE * 4, &buf, err));
    sl_status st = os_out_open(path, &out, err);
    if (st == SL_OK) {
        st = dump_rows(&w, buf, &out, err);
        if (st == SL_OK)
            st = os_out_commit(&out, err);
        else
            os_out_abort(&out);
    }
    mem_free(buf);
    return st;
}

/* ---- memory ---- */
/* Bytes of one tensor in the layout that it runs in: matrices are packed, vectors become f32. */
static sl_status packed_bytes(const io_model *io, int i, int64_t *n, sl_err *err)
{
    const struct tensor *t = io_tensor(io, i);
    struct weight w;
    struct mm_mat mat;
    size_t bytes = 0;
    int fmt = 0;
    *n = 0;
    if (io_tensor_params(io, i) == 0) return SL_OK;
    if (!io_tensor_is_matrix(io, i)) {
        if (tensor_dtype_is_weight(t->type)) *n = tensor_count(t) * 4;
        return SL_OK;
    }
    SL_TRY(io_weight(io, t->name, &w, err));
    SL_TRY(kern_mm_fmt(&w, &fmt, err));
    int64_t stack = t->n_dim > 2 ? t->shape[0] : 1;
    kern_mm_layout(fmt, w.rows / stack, w.cols, 0, &mat, &bytes);
    *n = (int64_t)bytes * stack;
    return SL_OK;
}

/* The step's buffers for T tokens: residual stream and its copy, hidden states, queries, keys,
 * values, outputs, feed-forward; the products' inputs are prepared beside them, which about doubles
 * it. */
static int64_t act_bytes(const struct arch_cfg *c, int64_t n_seq)
{
    int64_t D = c->d_model, d_ff = BASE_MAX(c->d_ff, arch_d_shared(c));
    int64_t q = (int64_t)c->n_head * c->d_head;
    int64_t kv = c->kv_lora ? c->kv_lora + c->d_rope : 2 * (int64_t)c->n_head_kv * c->d_head;
    int64_t chosen =
        c->index_blk ? (int64_t)c->n_index * c->index_top / c->index_blk : c->index_top;
    int64_t index = c->n_index ? (int64_t)c->n_index * (c->d_index + 1) + c->d_index + chosen
                               : 0; /* queries, weights, a key, what is chosen */
    int64_t row = 3 * D + 2 * q + kv + c->q_lora + d_ff + index +
                  (int64_t)c->n_expert_used * 2 * c->d_ff_expert;
    return N_CHUNK * row * 4 * 2 + n_seq * ((int64_t)c->n_vocab + D) * 4;
}

/* What each worker keeps for itself: a row of scores or materialised keys, and the products'
 * scratch. */
static int64_t scratch_bytes(const struct arch_cfg *c, int64_t n_ctx, int64_t n_thread)
{
    int64_t wide = BASE_MAX(BASE_MAX(c->d_ff, c->d_model), c->n_head * BASE_MAX(c->d_head, c->d_v));
    int64_t mat = c->kv_lora ? n_ctx * (c->d_nope + c->d_v) * 4 : 0;
    return n_thread * ((int64_t)kern_mm_scratch_bytes((int)wide) + mat + (1 << 20));
}

sl_status inspect_memory_get(const struct inspect *v, int n_ctx, int n_seq, int n_thread,
                             struct inspect_memory *out, sl_err *err)
{
    struct os_topology top;
    dev *d = NULL;
    memset(out, 0, sizeof *out);
    if (v->why_not.code) {
        if (err) *err = v->why_not;
        return v->why_not.code;
    }
    SL_TRY(os_topology_get(&top, err));
    for (int i = 0; i < io_n_tensor(v->io); i++) {
        int64_t n;
        SL_TRY(packed_bytes(v->io, i, &n, err));
        out->weights += n;
    }
    int n_blk = n_seq * size_div_up(n_ctx, ENGINE_BLK_TOK);
    struct dev_kv_shape shape =
        engine_kv_shape(&v->cfg, NULL, DEV_KV_BF16, n_blk, n_seq, N_CHUNK + n_seq);
    out->n_ctx = n_ctx;
    out->n_seq = n_seq;
    SL_TRY(dev_open(NULL, &(struct dev_opts){.n_thread = 1}, &d, err));
    out->kv = dev_kv_bytes(d, &shape);
    dev_close(d);
    out->acts = act_bytes(&v->cfg, n_seq);
    out->scratch = scratch_bytes(&v->cfg, n_ctx, n_thread ? n_thread : top.n_core);
    out->total = out->weights + out->kv + out->acts + out->scratch;
    out->available = top.mem_available;
    return SL_OK;
}
