/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the device, its memory, and the workspace of a step. */
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/keep.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/mem.h"
#include "dev/cpu/mla.h"
#include "dev/cpu/product.h"
#include "dev/cpu/rows.h"
#include "dev/cpu/span.h"
#include "dev/cpu/work.h"

#include "base/cpu.h"
#include "os/os.h"

#define SLAB_FROM ((size_t)1 << 20)    /* smaller: from the heap */
#define CHUNK_BYTES ((size_t)32 << 20) /* weights smaller than half of this share slabs */

sl_status dev_cpu_mem(struct cpu *c, enum mem_tag tag, size_t n, void **out, sl_err *err)
{
    struct cpu_block *b = NULL;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof *b, (void **)&b, err));
    int slab = n >= SLAB_FROM;
    sl_status st =
        slab ? mem_slab_alloc(tag, n, c->huge, &p, err) : mem_alloc_array(tag, n, 1, &p, err);
    if (st != SL_OK) {
        mem_free(b);
        return st;
    }
    *b = (struct cpu_block){c->mem.blocks, p, n, tag, slab};
    c->mem.blocks = b;
    *out = p;
    return SL_OK;
}

sl_status dev_cpu_carve(struct cpu *c, size_t n, void **out, sl_err *err)
{
    n = size_round(n, 64);
    if (n >= CHUNK_BYTES / 2) return dev_cpu_mem(c, MEM_WEIGHTS, n, out, err);
    if (n > c->mem.chunk_left) {
        void *p = NULL;
        SL_TRY(dev_cpu_mem(c, MEM_WEIGHTS, CHUNK_BYTES, &p, err));
        c->mem.chunk = p;
        c->mem.chunk_left = CHUNK_BYTES;
    }
    *out = c->mem.chunk;
    c->mem.chunk += n;
    c->mem.chunk_left -= n;
    return SL_OK;
}

static struct dev_pages pages_near(const dev *d)
{
    struct dev_pages all = {0};
    for (const struct cpu_block *b = ((const struct cpu *)d)->mem.blocks; b; b = b->next) {
        if (b->tag != MEM_WEIGHTS) continue;
        struct os_pages p = os_pages_near(b->p, b->n, 16);
        all.n += p.n;
        all.near += p.near;
    }
    return all;
}

static void cpu_close(dev *d)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_block *b, *next;
    par_close(c->team);
    for (b = c->mem.blocks; b; b = next) {
        next = b->next;
        if (b->slab)
            mem_slab_free(b->tag, b->p, b->n);
        else
            mem_free(b->p);
        mem_free(b);
    }
    mem_free(c);
}

static sl_status cpu_open(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    struct cpu *c = NULL;
    if (*options)
        return SL_FAIL(err, REQUEST, "device 'cpu': option '%.40s': it has none", options);
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof *c, (void **)&c, err));
    c->head.cls = &dev_cpu_class;
    c->huge = !o->no_hugepages;
    c->acts = o->acts;
    c->exact = o->exact;
    kern_vec_select(&c->k, cpu_isa_mask());
    struct par_opts po = {.n_worker = o->n_thread, .on_wait = dev_cpu_work_ahead, .on_wait_arg = c};
    po.rank = o->rank;
    po.n_rank = o->n_rank;
    sl_status st = par_open(&po, &c->team, err);
    if (st != SL_OK) {
        cpu_close(&c->head);
        return st;
    }
    c->n_worker = par_size(c->team);
    *out = &c->head;
    return SL_OK;
}

static void cpu_info(const dev *d, struct dev_info *out)
{
    const struct cpu *c = (const struct cpu *)d;
    *out = (struct dev_info){.name = "cpu",
                             .isa = cpu_isa_best(cpu_isa_mask()),
                             .n_thread = c->n_worker,
                             .acts = c->acts,
                             .exact = c->exact,
                             .attn_bf16 = dev_cpu_bf16_attn(c, VEC_KV_F16),
                             .attn_i16 = dev_cpu_i16_attn(c, VEC_KV_F16)};
}

static sl_status cpu_memory(const dev *d, int64_t *free_bytes, int64_t *total, sl_err *err)
{
    struct os_topology top;
    (void)d;
    SL_TRY(os_topology_get(&top, err));
    *free_bytes = top.mem_available;
    *total = top.mem_total;
    return SL_OK;
}

static bool cpu_takes_host(const dev *d)
{
    (void)d;
    return true;
}

static sl_status cpu_alloc(dev *d, enum mem_tag tag, int64_t n_bytes, void **out, sl_err *err)
{
    return dev_cpu_mem(dev_cpu_of(d), tag, (size_t)n_bytes, out, err);
}

static sl_status cpu_copy(dev *d, void *dst, const void *src, int64_t n_bytes, sl_err *err)
{
    (void)d;
    (void)err;
    memcpy(dst, src, (size_t)n_bytes);
    return SL_OK;
}

static sl_status cpu_sync(dev *d, sl_err *err)
{
    (void)d; /* operators are complete when they return, and can not fail */
    (void)err;
    return SL_OK;
}

static void cpu_host_run(dev *d, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    par_run(dev_cpu_of(d)->team, fn, arg);
}

static int cpu_host_ahead(dev *d)
{
    return dev_cpu_work_ahead(dev_cpu_of(d), 0);
}

/* ---- the workspace of a step ---- */

sl_status dev_cpu_scratch(struct cpu *c, size_t n, size_t size, void *out, sl_err *err)
{
    uint64_t total;
    if (!size_mul(n, size, &total) || total > SIZE_MAX / 4)
        return SL_FAIL(err, NOMEM, "out of memory: workspace of %zu x %zu bytes", n, size);
    return dev_cpu_mem(c, MEM_SCRATCH, total + 64, out, err);
}

static sl_status reserve_workers(struct cpu *c, size_t attn_floats, sl_err *err)
{
    size_t n_w = (size_t)c->n_worker, col = size_round((size_t)c->n_col_max, 64) + 64;
    size_t mm = size_round(kern_mm_scratch_bytes(c->n_col_max), 64);
    size_t n_tok = (size_t)dev_cpu_n_tok_experts(&c->most),
           n_head = (size_t)BASE_MAX(c->most.mat_heads, 1);
    n_tok = BASE_MAX(n_tok, (size_t)c->most.max.n_tok * n_head);
    c->tile_floats = BASE_MAX(n_tok * 16, (size_t)CPU_SET * 16 * 64);
    c->tile_floats = BASE_MAX(c->tile_floats, (size_t)(1 + c->most.k) * CPU_SUM_COLS);
    SL_TRY(dev_cpu_scratch(c, n_w, sizeof *c->scratch, &c->scratch, err));
    for (size_t i = 0; i < n_w; i++) {
        struct cpu_scratch *s = &c->scratch[i];
        uint8_t *p = NULL;
        size_t rows = size_round(sizeof *s->rowp * (size_t)(c->most.k + 1), 64);
        size_t n = mm + rows + sizeof(float) * (c->tile_floats + col + attn_floats);
        SL_TRY(dev_cpu_scratch(c, n, 1, &p, err));
        s->mm = p;
        s->rowp = (void *)(p + mm);
        s->tile = (void *)(p + mm + rows);
        s->row = s->tile + c->tile_floats;
        s->attn = s->row + col;
    }
    return SL_OK;
}

static sl_status reserve_experts(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    if (p->n_expert == 0) return SL_OK;
    size_t slots = (size_t)dev_cpu_n_tok_experts(p) * (size_t)p->k, bytes = 0;
    for (const struct cpu_mat *m = c->mats; m; m = m->next) {
        if (m->use != DEV_USE_EXPERTS) continue;
        size_t n = kern_mm_act_bytes(1u << m->form, p->d_ff_expert, (int)slots);
        bytes = n > bytes ? n : bytes;
    }
    SL_TRY(dev_cpu_scratch(c, slots, sizeof(int32_t), &c->moe.slot_row, err));
    SL_TRY(dev_cpu_scratch(c, slots, sizeof(int32_t), &c->moe.slot_of, err));
    SL_TRY(dev_cpu_scratch(c, (size_t)p->n_expert + 1, sizeof(int32_t), &c->moe.expert_slot0, err));
    SL_TRY(dev_cpu_scratch(c, slots * (size_t)p->d_ff_expert, sizeof(float), &c->moe.h, err));
    SL_TRY(dev_cpu_scratch(c, slots * (size_t)p->d_model, sizeof(float), &c->moe.y, err));
    return dev_cpu_scratch(c, bytes, 1, &c->moe.mem, err);
}

static sl_status reserve_heads(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    size_t rows = (size_t)p->max.n_tok * (size_t)p->n_head, bytes = 0;
    if (p->head_cols == 0) return SL_OK;
    c->heads.n_row = (int64_t)rows;
    c->heads.n_col = p->head_cols;
    for (const struct cpu_mat *m = c->mats; m; m = m->next) {
        if (m->m.n_col > p->head_cols) continue;
        size_t n = kern_mm_act_bytes(1u << m->form, p->head_cols, (int)rows);
        bytes = n > bytes ? n : bytes;
    }
    return dev_cpu_scratch(c, bytes, 1, &c->heads.mem, err);
}

static sl_status reserve_latents(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    size_t n = (size_t)p->max.n_tok * (size_t)p->n_head * (size_t)BASE_MAX(p->mla_r, p->mla_v);
    if (p->mla_r == 0) return SL_OK;
    SL_TRY(dev_cpu_scratch(c, (size_t)p->max.n_tok, sizeof(int32_t), &c->mla.tok_list, err));
    SL_TRY(dev_cpu_scratch(c, n, sizeof(float), &c->mla.lat, err));
    return dev_cpu_scratch(c, n, sizeof(float), &c->mla.olat, err);
}

static sl_status reserve_angles(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    c->n_rot_max = p->n_rot;
    for (int i = 0; i < CPU_N_ANGLES; i++) {
        struct cpu_angles *a = &c->angles[i];
        *a = (struct cpu_angles){0};
        SL_TRY(dev_cpu_scratch(c, (size_t)p->max.n_tok, sizeof(int32_t), &a->pos, err));
        SL_TRY(dev_cpu_scratch(c, (size_t)p->max.n_tok * (size_t)c->n_rot_max, sizeof(float),
                               &a->cs, err));
    }
    return SL_OK;
}

static sl_status reserve_orders(struct cpu *c, sl_err *err)
{
    int n_pass = c->most.max.n_pass;
    SL_TRY(dev_cpu_scratch(c, (size_t)n_pass, sizeof *c->orders, &c->orders, err));
    c->order = c->orders;
    for (int i = 0; i < n_pass; i++)
        SL_TRY(dev_cpu_scratch(c, (size_t)CPU_ORDER_MAX * (size_t)c->n_worker,
                               sizeof(struct cpu_stream), &c->orders[i].set, err));
    return SL_OK;
}

/* Attention's partial results, units, and what of scratch a worker needs for it. */
static sl_status reserve_spans(struct cpu *c, size_t *mem, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    struct cpu_spans *s = &c->span;
    int n_row, ldo, n_w = c->n_worker;
    size_t n_unit = (size_t)p->max.n_tok * (size_t)BASE_MAX(p->n_head, 1), n = 0;
    *mem = 0;
    if (p->d_k) {
        dev_cpu_attn_need(p, &n_row, &ldo, mem);
        s->part_floats = size_round(dev_cpu_part_floats(n_row, ldo), 16);
    }
    if (p->mla_r) {
        dev_cpu_mla_need(p, &n_row, &ldo, &n);
        *mem = BASE_MAX(*mem, n);
        n = size_round(dev_cpu_part_floats(n_row, ldo), 16);
        s->part_floats = BASE_MAX(s->part_floats, n);
    }
    if (p->ckv_d) {
        dev_cpu_ckv_need(p, &n_row, &ldo, &n);
        *mem = BASE_MAX(*mem, n);
        n = size_round(dev_cpu_part_floats(n_row, ldo), 16);
        s->part_floats = BASE_MAX(s->part_floats, n);
    }
    *mem += 2 * s->part_floats;
    *mem = BASE_MAX(*mem, dev_cpu_delta_floats(p));
    *mem = BASE_MAX(*mem, dev_cpu_index_floats(p));
    *mem = BASE_MAX(*mem, dev_cpu_compress_floats(p));
    s->n_run = CPU_SPLIT * n_w;
    s->n_part = (CPU_SPLIT_ITEMS + CPU_SPLIT) * n_w;
    SL_TRY(dev_cpu_scratch(c, (size_t)(s->n_run + s->n_part) * s->part_floats, sizeof(float),
                           &s->part, err));
    SL_TRY(dev_cpu_scratch(c, n_unit, sizeof *s->unit, &s->unit, err));
    if (p->index_list) {
        size_t n_list = (size_t)p->max.n_tok * (size_t)p->index_list;
        SL_TRY(dev_cpu_scratch(c, n_list, sizeof *s->list, &s->list, err));
        SL_TRY(dev_cpu_scratch(c, (size_t)p->max.n_ctx / (16 * 64) + 2, sizeof *s->seen, &s->seen,
                               err));
    }
    SL_TRY(dev_cpu_scratch(c, 1, sizeof *s->counter, &s->counter, err));
    return dev_cpu_scratch(c, (size_t)n_w, sizeof *s->range, &s->range, err);
}

static sl_status reserve_work(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int seg_max = BASE_MAX(BASE_MAX(p->n_expert, p->n_head), DEV_MATMUL_MAX);
    for (int i = 0; i < 2; i++) {
        struct cpu_work *w = &c->work[i];
        w->n_seg_max = seg_max;
        SL_TRY(dev_cpu_scratch(c, (size_t)seg_max, sizeof *w->seg, &w->seg, err));
        SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *w->range, &w->range, err));
    }
    return reserve_orders(c, err);
}

static sl_status reserve_tokens(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    size_t n = (size_t)p->max.n_tok;
    int64_t n_iota = BASE_MAX((int64_t)n * BASE_MAX(p->n_head, 1),
                              (int64_t)dev_cpu_n_tok_experts(p) * BASE_MAX(p->k, 1));
    SL_TRY(dev_cpu_scratch(c, n, sizeof *c->seq_of, &c->seq_of, err));
    SL_TRY(dev_cpu_scratch(c, n, 1, &c->expand, err));
    SL_TRY(dev_cpu_scratch(c, n, 1, &c->generated, err));
    SL_TRY(dev_cpu_scratch(c, (size_t)n_iota, sizeof(int32_t), &c->iota, err));
    for (int64_t i = 0; i < n_iota; i++)
        c->iota[i] = (int32_t)i;
    return dev_cpu_scratch(c, (size_t)c->n_worker * n, sizeof *c->best, &c->best, err);
}

sl_status dev_cpu_reserve(dev *d, const struct dev_shapes *p, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    size_t mem;
    c->most = *p;
    c->n_tok_max = p->max.n_tok;
    SL_TRY(reserve_spans(c, &mem, err));
    SL_TRY(reserve_workers(c, mem, err));
    SL_TRY(reserve_work(c, err));
    SL_TRY(reserve_tokens(c, err));
    SL_TRY(reserve_angles(c, err));
    SL_TRY(reserve_experts(c, err));
    SL_TRY(dev_cpu_keep_init(c, err));
    SL_TRY(reserve_heads(c, err));
    SL_TRY(dev_cpu_index_reserve(c, err));
    return reserve_latents(c, err);
}

const struct dev_class dev_cpu_class = {.name = "cpu",
                                        .open = cpu_open,
                                        .close = cpu_close,
                                        .info = cpu_info,
                                        .memory = cpu_memory,
                                        .takes_host = cpu_takes_host,
                                        .alloc = cpu_alloc,
                                        .put = cpu_copy,
                                        .get = cpu_copy,
                                        .sync = cpu_sync,
                                        .is_host = true,
                                        .takes_late = true,
                                        .host_run = cpu_host_run,
                                        .host_ahead = cpu_host_ahead,
                                        .pages_near = pages_near,
                                        .mat_load = dev_cpu_mat_load,
                                        .mat_some = dev_cpu_mat_some,
                                        .one = &dev_cpu_one,
                                        .layout = KERN_MM_LAYOUT,
                                        .mat_map = dev_cpu_mat_map,
                                        .mat_pack = dev_cpu_mat_pack,
                                        .mat_view = dev_cpu_mat_view,
                                        .mat_room = dev_cpu_mat_room,
                                        .mat_fill = dev_cpu_mat_fill,
                                        .act_open = dev_cpu_act_open,
                                        .kv_bytes = dev_cpu_kv_bytes,
                                        .kv_auto = dev_cpu_kv_auto,
                                        .kv_open = dev_cpu_kv_open,
                                        .kv_touch = dev_cpu_kv_touch,
                                        .kv_poison = dev_cpu_kv_poison,
                                        .kv_page = dev_cpu_kv_page,
                                        .kv_join = dev_cpu_kv_join,
                                        .keep_bytes = dev_cpu_keep_bytes,
                                        .reserve = dev_cpu_reserve,
                                        .step_begin = dev_cpu_step_begin,
                                        .lacks = dev_cpu_lacks,
                                        .fuse = dev_cpu_fuse,
                                        .run_fused = dev_cpu_run_fused,
                                        .half = dev_cpu_half,
                                        .probe_read_gbps = dev_cpu_probe_read_gbps,
                                        .probe_int8_gops = dev_cpu_probe_int8_gops,
                                        .probe_attn_gops = dev_cpu_probe_attn_gops,
#define X(name, params) .name = dev_cpu_##name,
                                        DEV_OP_LIST(X)
#undef X
};
