/* SPDX-License-Identifier: Apache-2.0 */
/* A step begins: its arrays are packed into one block of pinned memory, which the first copy of the
 * log brings to the device. Workspace of steps. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "dev/gpu/gpu.h"

/* A place in the block: the host's side, and the device's address in *to. */
static int32_t *place(const struct gpu_step *t, int64_t *at, size_t n, uint64_t *to)
{
    int32_t *host = (int32_t *)(void *)(t->pinned.host + *at);
    *to = n ? t->mem + (uint64_t)*at : 0;
    *at += (int64_t)size_round(4 * n, 64);
    return host;
}

static uint64_t put(const struct gpu_step *t, int64_t *at, const int32_t *src, size_t n)
{
    uint64_t to;
    int32_t *host = place(t, at, src ? n : 0, &to);
    if (src && n) memcpy(host, src, 4 * n);
    return to;
}

static void put_seqs(struct gpu_step *t, int64_t *at, const struct dev_step *s)
{
    int32_t *seq = place(t, at, (size_t)s->n_tok, &t->seq_of),
            *generated = place(t, at, (size_t)s->n_tok, &t->generated);
    int32_t *of = place(t, at, (size_t)(5 * s->n_seq + s->n_tok), &t->seqs);
    for (int q = 0; q < s->n_seq; q++, of += 5) {
        int t0 = s->seq_tok0[q], n = s->seq_tok0[q + 1] - t0;
        of[0] = t0;
        of[1] = n;
        of[2] = n ? s->pos[t0] : 0;
        of[3] = s->seat ? s->seat[q] : 0;
        of[4] = s->n_draft ? s->n_draft[q] : 0;
    }
    for (int q = 0; q < s->n_seq; q++)
        for (int i = s->seq_tok0[q]; i < s->seq_tok0[q + 1]; i++) {
            seq[i] = of[i] = q;
            generated[i] = s->pos[i] >= (s->n_prompt ? s->n_prompt[q] : 0);
        }
}

static void put_rows(struct gpu_step *t, int64_t *at, const struct dev_step *s)
{
    int32_t *want = place(t, at, (size_t)s->n_row, &t->row_want);
    t->row_tok = put(t, at, s->row_tok, (size_t)s->n_row);
    for (int i = 0; i < s->n_row; i++)
        want[i] = s->row_want ? s->row_want[i] : (int32_t)s->want;
}

static void begin(struct gpu *c, const struct dev_step *s)
{
    if (s->pass > 0) return;
    if (c->n_out) (void)dev_gpu_finish(c, NULL); /* of a step that nobody waited for */
    if (!c->lost) c->why.code = SL_OK;
}

void dev_gpu_step_begin(dev *d, dev_kv *kv, const struct dev_step *s)
{
    struct gpu *c = dev_gpu_of(d);
    size_t T = (size_t)s->n_tok, S = (size_t)s->n_seq;
    ASSERT(s->n_tok <= c->most.max.n_tok && s->n_seq <= c->most.max.n_seq && s->pass < c->n_pass);
    struct gpu_step *t = &c->step[s->pass];
    int64_t at = 0;
    begin(c, s);
    if (t->is_new) dev_gpu_flush(c);
    if (dev_gpu_wait(c, t->used, NULL)) return;
    for (int i = 0; i < s->n_copy; i++)
        dev_gpu_kv_copy(c, (const struct gpu_kv *)kv, s->copy + 3 * i);
    t->ids = put(t, &at, s->ids, T);
    t->pos = put(t, &at, s->pos, T);
    put_rows(t, &at, s);
    t->hidden_row = put(t, &at, s->hidden_row, T);
    if (s->seq_tok0) put_seqs(t, &at, s);
    for (int g = 0; g < DEV_KV_GROUPS; g++)
        t->blk[g] = put(t, &at, s->blk[g], S * (size_t)s->ld_blk);
    ASSERT(at <= t->angles);
    t->n_angles = 0;
    c->has_drafts = c->has_drafts || s->n_draft;
    t->is_new = true;
    c->pass = s->pass;
    dev_gpu_copy(c, t->mem, t->pinned.at, at);
    if (dev_gpu_times_on(c)) dev_gpu_stamp(c); /* that was no operator's */
}

static void compute_angles(const struct dev_step *s, const struct dev_rope *p, float *cs)
{
    int half = p->n_rot / 2;
    for (int t = 0; t < s->n_tok; t++, cs += p->n_rot)
        for (int i = 0; i < half; i++) {
            double angle = (double)((float)s->pos[t] * p->freq[i]); /* f32, as the reference */
            cs[i] = (float)cos(angle) * p->mscale;
            cs[half + i] = (float)sin(angle) * p->mscale;
        }
}

uint64_t dev_gpu_angles(struct gpu *c, const struct dev_step *s, const struct dev_rope *p)
{
    struct gpu_step *t = &c->step[s->pass];
    int64_t bytes = 4 * (int64_t)c->most.max.n_tok * c->most.n_rot;
    int i = 0;
    while (i < t->n_angles &&
           (t->freq[i] != p->freq || t->n_rot[i] != p->n_rot || t->mscale[i] != p->mscale))
        i++;
    int64_t at = t->angles + i % GPU_ANGLES * bytes;
    if (i < t->n_angles) return t->mem + (uint64_t)at;
    if (i == GPU_ANGLES) { /* more tables than places: the first is taken when it was read */
        (void)dev_gpu_finish(c, NULL);
        t->n_angles = i = 0;
        at = t->angles;
    }
    t->freq[i] = p->freq;
    t->n_rot[i] = p->n_rot;
    t->mscale[i] = p->mscale;
    t->n_angles = i + 1;
    compute_angles(s, p, (float *)(void *)(t->pinned.host + at));
    dev_gpu_copy(c, t->mem + (uint64_t)at, t->pinned.at + (uint64_t)at,
                 4 * (int64_t)s->n_tok * p->n_rot);
    t->is_new = true;
    return t->mem + (uint64_t)at;
}

/* ---- workspace ---- */

static sl_status reserve_step(struct gpu *c, struct gpu_step *t, sl_err *err)
{
    const struct dev_limits *max = &c->most.max;
    int64_t T = max->n_tok, blk = max->n_ctx / 16 + 8, lines = 16 * 64;
    t->angles = 4 * (8 * T + max->n_seq * (DEV_KV_GROUPS * blk + 5)) + lines;
    t->angles = (int64_t)size_round((size_t)t->angles, 256);
    int64_t n = t->angles + GPU_ANGLES * 4 * T * c->most.n_rot;
    SL_TRY(dev_gpu_pinned(c, n, &t->pinned, err));
    return dev_gpu_carve(c, n, &t->mem, NULL, err);
}

/* Rows of lists by matrix: of experts' tokens, of heads. */
static sl_status reserve_lists(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int64_t T = p->max.n_tok, n = T * (p->mla_r ? p->n_head : 0);
    n = BASE_MAX(n, (int64_t)BASE_MAX(p->max.n_tok, p->max.n_tok_all) * p->k);
    if (n == 0) return SL_OK;
    SL_TRY(dev_gpu_kernel(c, GPU_group, err));
    c->n_order = (int)n;
    SL_TRY(dev_gpu_carve(c, 4 * n, &c->order, NULL, err));
    return dev_gpu_carve(c, 12 * (n / 32 + GPU_EXPERT_MAX), &c->blocks, NULL, err);
}

sl_status dev_gpu_reserve(dev *d, const struct dev_shapes *p, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    void *mem = NULL;
    int64_t T = p->max.n_tok, cols = BASE_MAX(c->cols_max, 64);
    c->most = *p;
    SL_TRY(mem_arena_array(&c->arena, (size_t)p->max.n_pass, sizeof *c->step, &mem, err));
    c->step = mem;
    c->n_pass = p->max.n_pass;
    for (int i = 0; i < c->n_pass; i++)
        SL_TRY(reserve_step(c, &c->step[i], err));
    int64_t row = BASE_MAX(cols, p->n_move);
    SL_TRY(dev_gpu_pinned(c, 4 * T * (3 * cols + row), &c->bounce, err));
    SL_TRY(dev_gpu_carve(c, 8 * T * cols, &c->glu, NULL, err));
    c->glu_cols = cols;
    static const enum gpu_kernel always[] = {GPU_norm, GPU_floats, GPU_rope, GPU_put,
                                             GPU_glu,  GPU_add,    GPU_best};
    for (int i = 0; i < BASE_COUNT_OF(always); i++)
        SL_TRY(dev_gpu_kernel(c, always[i], err));
    SL_TRY(reserve_lists(c, err));
    SL_TRY(dev_gpu_attn_reserve(c, err));
    SL_TRY(dev_gpu_delta_reserve(c, err));
    SL_TRY(dev_gpu_moe_reserve(c, err));
    SL_TRY(dev_gpu_mla_reserve(c, err));
    return dev_gpu_attn_kernels(c, err);
}
