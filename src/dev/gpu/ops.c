/* SPDX-License-Identifier: Apache-2.0 */
/* Operators as launches. The structs of constants are those of the kernels (kernel/), field by
 * field. */
#include <stddef.h>
#include <string.h>

#include "dev/gpu/ops.h"

/* ---- inputs ---- */

/* What has a workgroup for every row goes in several launches side by side where one does not take
 * so many workgroups a side: n rows from row i on. */
#define EACH_PART(c, i, n, n_row)                                                                  \
    for (int i = 0, n; n = BASE_MIN((n_row) - i, (c)->grid_max), i < (n_row); i += (c)->grid_max)

/* As many bytes further on as rows of ld words have that one launch takes. */
static uint64_t step_rows(const struct gpu *c, int64_t ld)
{
    return 4 * (uint64_t)c->grid_max * (uint64_t)ld;
}

/* The rows of the next part: those that a list names, or as many further on. */
static void next_rows(const struct gpu *c, uint64_t *x, uint64_t *from, int64_t ldx)
{
    if (*from)
        *from += step_rows(c, 1);
    else
        *x += step_rows(c, ldx);
}

void dev_gpu_prep_form(struct gpu *c, const struct gpu_act *a, enum mm_act form,
                       const struct gpu_rows *r, bool is_parts)
{
    struct gpu_input in = dev_gpu_input(a, form, r->n);
    if (form < MM_ACT_INT8) {
        struct {
            uint64_t x, from, to;
            uint32_t n, ldx, ld, to_bf16;
        } k = {r->x, r->from, in.at, (uint32_t)r->n, (uint32_t)r->ldx, (uint32_t)in.ld,
               form == MM_ACT_BF16};
        EACH_PART(c, i, n, r->n_row) {
            LAUNCH(c, GPU_floats, GRID(groups(in.ld, 64), n, 1), k);
            if (i) dev_gpu_beside(c);
            next_rows(c, &k.x, &k.from, r->ldx);
            k.to += step_rows(c, k.ld);
        }
        return;
    }
    struct {
        uint64_t x, from, to;
        uint32_t n, ldx, n_group, stride, mode, is_parts;
    } k = {r->x,      r->from,  in.at,
           (uint32_t)r->n, (uint32_t)r->ldx, (uint32_t)in.ld / 32,
           in.stride, form == MM_ACT_INT8 ? 0 : form == MM_ACT_INT8X ? 1 : 2,
           is_parts};
    EACH_PART(c, i, n, r->n_row) {
        LAUNCH(c, GPU_prep, GRID(n, 1, 1), k);
        if (i) dev_gpu_beside(c);
        next_rows(c, &k.x, &k.from, r->ldx);
        k.to += step_rows(c, k.stride);
    }
}

void dev_gpu_prep_all(struct gpu *c, const dev_act *act, const struct gpu_rows *r)
{
    const struct gpu_act *a = (const struct gpu_act *)act;
    int n = 0;
    for (int f = 0; f < MM_N_ACT; f++) {
        if (!(a->forms >> f & 1u)) continue;
        dev_gpu_prep_form(c, a, (enum mm_act)f, r, false);
        if (n++) dev_gpu_beside(c);
    }
}

/* ---- products ---- */

struct product_k {
    uint64_t pieces, scale, act, y, bias, ids, order, blocks;
    uint32_t piece_tiles, tile_bytes, n_tile;
    uint32_t n_group, n_row, is_pair, half;
    uint32_t n_tok, stride, n_plane, plane;
    uint32_t ldy, per, n_mat, bias_ld, pad; /* no bytes that nobody writes */
};

/* Every row has its own matrix: as many launches as the third side of a grid allows. */
static void launch_listed(struct gpu *c, enum gpu_kernel id, struct product_k *k, int n_row)
{
    int per = (int)k->per, most = BASE_MAX(c->grid_max / per, 1) * per;
    uint64_t act = k->act, y = k->y, ids = k->ids;
    for (int i = 0; i < n_row; i += most) {
        uint64_t n = (uint64_t)i;
        k->act = act + 4 * (n / k->per) * k->stride;
        k->y = y + 4 * n * k->ldy;
        k->ids = ids + 4 * n;
        LAUNCH(c, id, GRID(k->n_tile, 1, BASE_MIN(n_row - i, most)), *k);
        if (i) dev_gpu_beside(c);
    }
}

#define GROUP_FROM 2 /* rows a matrix, on average */
#define MANY_COLS 64 /* columns and planes of a workgroup that makes many */
#define FEW_COLS 8   /* of one that makes few */
#define MANY_TILES 4

/* Rows of one matrix side by side, as a list has them. */
static void launch_grouped(struct gpu *c, enum gpu_kernel id, struct product_k *k, int n_row)
{
    uint32_t n_col = MANY_COLS / k->n_plane, n = (uint32_t)n_row;
    struct {
        uint64_t ids, order, blocks;
        uint32_t n, n_mat, n_col, n_block;
    } g = {k->ids, c->order, c->blocks, n, k->n_mat, n_col, n / n_col + BASE_MIN(k->n_mat, n)};
    LAUNCH(c, GPU_group, GRID(1, 1, 1), g);
    k->order = g.order;
    k->blocks = g.blocks;
    LAUNCH(c, id, GRID(groups(k->n_tile, MANY_TILES), g.n_block, 1), *k);
}

/* Does a list give matrices enough rows each that it pays to bring these together? */
static bool groups_pay(const struct gpu *c, const struct gpu_mat *w, int n_row)
{
    return n_row <= c->n_order && w->n <= GPU_EXPERT_MAX && n_row >= GROUP_FROM * w->n;
}

/* Integer codes: for few columns, or for many. */
static void launch_codes(struct gpu *c, const struct gpu_mat *w, int fmt, struct product_k *k)
{
    int n_row = (int)k->n_tok, n_col = n_row * (int)k->n_plane;
    enum gpu_kernel many = dev_gpu_kernel_of(c->has_units ? GPU_CM : GPU_MM, fmt);
    enum gpu_kernel few = dev_gpu_kernel_of(GPU_MV, fmt);
    if (k->ids && c->tiles && groups_pay(c, w, n_row))
        launch_grouped(c, many, k, n_row);
    else if (k->ids)
        launch_listed(c, few, k, n_row);
    else if (n_col > FEW_COLS && c->tiles)
        LAUNCH(c, many, GRID(groups(k->n_tile, MANY_TILES), groups(n_col, MANY_COLS), 1), *k);
    else
        LAUNCH(c, few, GRID(k->n_tile, groups(n_row, FEW_COLS / (int)k->n_plane), 1), *k);
}

static void product_half(struct gpu *c, struct gpu_mat *w, int half,
                         const struct gpu_product *p)
{
    static const int blk_k[GPU_N_FMT] = {
#define X(name, type, k, ...) k,
        MM_CODE_FMTS(X) MM_FLOAT_FMTS(X)
#undef X
    };
    const struct gpu_half *h = &w->half[half];
    bool both = w->is_pair && w->half[1].fmt < 0;
    uint32_t n = both ? 2 : 1;
    int k0 = blk_k[h->fmt];
    struct gpu_input in = dev_gpu_input(p->act, h->form, w->head.cols);
    bool is_int = h->form >= MM_ACT_INT8;
    struct product_k k = {.pieces = h->p.table,
                          .scale = w->scale,
                          .act = in.at,
                          .y = p->y,
                          .bias = at(w->head.epilogue.bias),
                          .ids = p->ids,
                          .piece_tiles = n * (uint32_t)h->p.per,
                          .tile_bytes = (uint32_t)h->unit_bytes / n,
                          .n_tile = n * (uint32_t)w->n_tile,
                          .n_group = (uint32_t)((w->head.cols + k0 - 1) / k0 * (k0 / 32)),
                          .n_row = (uint32_t)w->head.rows,
                          .is_pair = both,
                          .half = (uint32_t)half,
                          .n_tok = (uint32_t)p->n_row,
                          .stride = in.stride,
                          .n_plane = in.n_plane,
                          .plane = in.plane,
                          .ldy = (uint32_t)p->ldy,
                          .per = (uint32_t)BASE_MAX(p->per, 1),
                          .n_mat = (uint32_t)w->n,
                          .bias_ld = (uint32_t)(w->head.rows * (w->is_pair ? 2 : 1))};
    enum gpu_kernel floats = dev_gpu_kernel_of(GPU_MF, h->fmt);
    if (is_int)
        launch_codes(c, w, h->fmt, &k);
    else if (k.ids)
        launch_listed(c, floats, &k, p->n_row);
    else
        LAUNCH(c, floats, GRID(k.n_tile, groups(p->n_row, FEW_COLS), 1), k);
    w->used = c->n_submit + 1;
}

/* Both halves of a pair go side by side: gates, then ups. */
void dev_gpu_product(struct gpu *c, const dev_mat *mat, const struct gpu_product *p)
{
    struct gpu_mat *w = (struct gpu_mat *)mat;
    product_half(c, w, 0, p);
    if (w->half[1].fmt < 0) return;
    product_half(c, w, 1, p);
    dev_gpu_beside(c);
}

void dev_gpu_matmul(dev *d, const struct dev_step *b, const struct dev_matmul *p)
{
    struct gpu *c = dev_gpu_of(d);
    for (int i = 0; i < p->n_mat; i++) {
        int rows = dev_mat_rows(p->w[i]);
        struct gpu_product q = {.act = (const struct gpu_act *)p->act,
                            .n_row = dev_n_row(b, p->n_row),
                            .y = at(p->y[i]),
                            .ldy = p->ldy[i] ? p->ldy[i] : rows};
        if (q.n_row == 0) return;
        dev_gpu_product(c, p->w[i], &q);
        if (i) dev_gpu_beside(c);
    }
}

#define GLU_WORDS 4 /* of struct glu: up to cubic, which lacks.c refuses */
_Static_assert(offsetof(struct glu, cubic) == GLU_WORDS * sizeof(float), "what kernels know");

/* h->x of the gates and ups at h->from. */
static void gate(struct gpu *c, const struct dev_epilogue *e, const struct gpu_rows *h)
{
    struct {
        uint64_t y, h;
        uint32_t n, plain;
        float glu[GLU_WORDS];
    } k = {h->from, h->x, (uint32_t)h->n, glu_is_silu(&e->glu) && !e->bias, {0}};
    memcpy(k.glu, &e->glu, sizeof k.glu);
    EACH_PART(c, i, n, h->n_row) {
        LAUNCH(c, GPU_glu, GRID(groups(h->n, 64), n, 1), k);
        if (i) dev_gpu_beside(c);
        k.y += 2 * step_rows(c, k.n);
        k.h += step_rows(c, k.n);
    }
}

void dev_gpu_block_up(struct gpu *c, const struct gpu_block *b)
{
    struct gpu_rows h = b->h;
    h.from = b->up.y;
    dev_gpu_product(c, b->gate_up, &b->up);
    gate(c, dev_mat_epilogue(b->gate_up), &h);
}

void dev_gpu_block_down(struct gpu *c, const struct gpu_block *b)
{
    const struct gpu_mat *down = (const struct gpu_mat *)b->down;
    enum mm_act form = down->half[0].form;
    struct gpu_rows h = b->h;
    dev_gpu_prep_form(c, b->q.act, form, &h, form == MM_ACT_INT8 && h.n % 32 == 0);
    dev_gpu_product(c, b->down, &b->q);
}

void dev_gpu_block(struct gpu *c, const struct gpu_block *b)
{
    dev_gpu_block_up(c, b);
    dev_gpu_block_down(c, b);
}

void dev_gpu_ffn(dev *d, const struct dev_step *b, const struct dev_ffn *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_mat *down = (const struct gpu_mat *)p->down;
    int n = down->head.cols, n_row = dev_n_row(b, p->n_row);
    const struct gpu_block k = {.gate_up = p->gate_up,
                                .down = p->down,
                                .up = {.act = (const struct gpu_act *)p->act,
                                       .n_row = n_row,
                                       .y = c->glu,
                                       .ldy = 2 * (int64_t)n},
                                .q = {.act = (const struct gpu_act *)p->h_act,
                                      .n_row = n_row,
                                      .y = at(p->y),
                                      .ldy = down->head.rows},
                                .h = {.x = at(p->h), .n = n, .n_row = n_row, .ldx = n}};
    if (n_row == 0) return;
    if (p->ranks)
        dev_gpu_block_shared(c, &k, &(struct gpu_shared){p->ranks, p->part, at(p->h_all)});
    else
        dev_gpu_block(c, &k);
}

/* ---- rows ---- */

struct row_k {
    uint64_t pieces, scale, ids, y;
    uint32_t piece_tiles, tile_bytes, n_row, n_col;
    int32_t row0;
    float factor;
};

static struct row_k rows_of(const struct gpu_mat *w)
{
    const struct gpu_half *h = &w->half[0];
    return (struct row_k){.pieces = h->p.table,
                          .scale = w->scale,
                          .piece_tiles = (uint32_t)h->p.per,
                          .tile_bytes = (uint32_t)h->unit_bytes,
                          .n_row = (uint32_t)w->head.rows,
                          .n_col = (uint32_t)w->head.cols,
                          .factor = 1};
}

static void launch_rows(struct gpu *c, const struct gpu_mat *w, const struct row_k *k, int n_row,
                        int n_mat)
{
    LAUNCH(c, dev_gpu_kernel_of(GPU_ROW, w->half[0].fmt),
           GRID(groups((w->head.cols + 7) / 8, 64), n_row, n_mat), *k);
}

void dev_gpu_embed(dev *d, const struct dev_step *b, const struct dev_embed *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_mat *w = (const struct gpu_mat *)p->w;
    struct row_k k = rows_of(w);
    k.ids = step_of(c, b)->ids;
    k.y = at(p->y);
    k.row0 = p->row0;
    k.factor = p->scale;
    launch_rows(c, w, &k, b->n_tok, 1);
}

void dev_gpu_unpack(struct gpu *c, const dev_mat *mat, uint64_t y)
{
    const struct gpu_mat *w = (const struct gpu_mat *)mat;
    struct row_k k = rows_of(w);
    k.y = y;
    launch_rows(c, w, &k, w->head.rows, w->n);
}

void dev_gpu_norm(dev *d, const struct dev_step *b, const struct dev_norm *p)
{
    struct gpu *c = dev_gpu_of(d);
    int n_row = p->n_row ? p->n_row : b->n_tok * BASE_MAX(p->n_head, 1);
    int64_t ldy = p->y && p->ldy ? p->ldy : p->n;
    uint64_t y = p->y ? at(p->y) : ((const struct gpu_act *)p->act)->rows;
    struct {
        uint64_t x, r, w, y, from;
        uint32_t n, ldx, ldy;
        float eps;
    } k = {at(p->x), at(p->r), at(p->w), y, p->gather ? step_of(c, b)->hidden_row : 0,
           (uint32_t)p->n, (uint32_t)(p->ldx ? p->ldx : p->n), (uint32_t)ldy, p->eps};
    EACH_PART(c, i, n, n_row) {
        LAUNCH(c, GPU_norm, GRID(n, 1, 1), k);
        if (i) dev_gpu_beside(c);
        next_rows(c, &k.x, &k.from, k.ldx);
        if (k.r) k.r += step_rows(c, k.ldx);
        k.y += step_rows(c, k.ldy);
    }
    if (p->act)
        dev_gpu_prep_all(c, p->act,
                         &(struct gpu_rows){.x = y, .n = p->n, .n_row = n_row, .ldx = ldy});
}

void dev_gpu_prep(dev *d, const struct dev_step *b, const struct dev_prep *p)
{
    struct gpu_rows r = {.x = at(p->x), .n = p->n, .n_row = dev_n_row(b, p->n_row)};
    r.ldx = p->ldx ? p->ldx : p->n;
    dev_gpu_prep_all(dev_gpu_of(d), p->act, &r);
}

void dev_gpu_rows(dev *d, const struct dev_step *b, const struct dev_rows *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct gpu_rows r = {.x = at(p->x), .n = p->n, .n_row = dev_n_row(b, DEV_ROWS_WANTED)};
    r.ldx = p->n;
    r.from = r.n_row == b->n_tok ? 0 : step_of(c, b)->row_tok;
    dev_gpu_prep_all(c, p->act, &r);
}

void dev_gpu_add(dev *d, const struct dev_step *b, const struct dev_add *p)
{
    struct gpu *c = dev_gpu_of(d);
    int64_t n = (int64_t)p->n * dev_n_row(b, p->n_row), most = 64 * (int64_t)c->grid_max;
    struct {
        uint64_t x, y;
        uint32_t n, pad;
    } k = {at(p->x), at(p->y), 0, 0};
    for (int64_t i = 0; i < n; i += most) {
        k.n = (uint32_t)BASE_MIN(n - i, most);
        LAUNCH(c, GPU_add, GRID(groups(k.n, 64), 1, 1), k);
        if (i) dev_gpu_beside(c);
        k.x += step_rows(c, 64);
        k.y += step_rows(c, 64);
    }
}

void dev_gpu_best(dev *d, const struct dev_step *b, const struct dev_best *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct {
        uint64_t x, want, id;
        uint32_t n, bit;
    } k = {at(p->x), step_of(c, b)->row_want, at(p->id), (uint32_t)p->n, DEV_WANT_BEST};
    LAUNCH(c, GPU_best, GRID(dev_n_row(b, DEV_ROWS_WANTED), 1, 1), k);
}

int64_t dev_gpu_bounce(struct gpu *c, int64_t n)
{
    if (c->bounce_used + n > c->bounce.n || c->n_out == GPU_OUTS) (void)dev_gpu_finish(c, NULL);
    int64_t from = c->bounce_used;
    c->bounce_used += (n + 63) / 64 * 64;
    return from;
}

/* Is some of the n bytes on their way to the host? */
static bool is_under_way(const struct gpu *c, const void *host, int64_t n)
{
    for (int i = 0; i < c->n_out; i++)
        if (at(c->out[i].host) < at(host) + (uint64_t)n &&
            at(host) < at(c->out[i].host) + c->out[i].n)
            return true;
    return false;
}

void dev_gpu_move(dev *d, const struct dev_step *b, const struct dev_move *p)
{
    struct gpu *c = dev_gpu_of(d);
    int n_row = dev_n_row(b, p->n_row);
    if (!p->out && is_under_way(c, p->host, 4 * (int64_t)p->n * b->n_tok))
        (void)dev_gpu_finish(c, NULL); /* no other device's operator has waited for it */
    int64_t row = 4 * (int64_t)p->n, n = row * n_row, from = n ? dev_gpu_bounce(c, n) : 0;
    uint64_t there = c->bounce.at + (uint64_t)from;
    uint8_t *here = c->bounce.host + from;
    if (n == 0 || c->why.code) return;
    if (p->out && p->gather) {
        struct {
            uint64_t x, from, to;
            uint32_t n, ldx, ld, to_bf16;
        } k = {at(p->at), step_of(c, b)->row_tok, there, (uint32_t)p->n, (uint32_t)p->n,
               (uint32_t)p->n, 0};
        LAUNCH(c, GPU_floats, GRID(groups(p->n, 64), n_row, 1), k);
    } else if (p->out) {
        dev_gpu_copy(c, there, at(p->at), n);
    }
    if (p->out) {
        c->out[c->n_out++] = (struct gpu_out){p->host, here, (size_t)n};
        return;
    }
    for (int i = 0; i < n_row; i++)
        memcpy(here + i * row, (const uint8_t *)p->host + (p->gather ? b->row_tok[i] : i) * row,
               (size_t)row);
    dev_gpu_copy(c, at(p->at), there, n);
}

/* ---- attention ---- */

void dev_gpu_rope(dev *d, const struct dev_step *b, const struct dev_rope *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct {
        uint64_t x, cs;
        uint32_t n_head, ldx, ldx_h, n_rot, style, pad;
    } k = {at(p->x),
           dev_gpu_angles(c, b, p),
           (uint32_t)p->n_head,
           (uint32_t)p->ldx,
           (uint32_t)p->ldx_h,
           (uint32_t)p->n_rot,
           (uint32_t)p->style,
           0};
    LAUNCH(c, GPU_rope, GRID(groups((int64_t)p->n_head * (p->n_rot / 2), 64), b->n_tok, 1), k);
}

void dev_gpu_kv_put(dev *d, const struct dev_step *b, const struct dev_kv_put *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    const struct dev_kv_group *s = &kv->s.group[p->group];
    const struct gpu_step *t = step_of(c, b);
    struct {
        uint64_t pieces, pos, seq_of, blk, k, v;
        uint32_t per, type, page, n_layer, layer, blk_tok;
        uint32_t d_k, d_v, ldk, ldv, ld_blk, pad;
    } k = {g->p.table,        t->pos,           t->seq_of,        t->blk[p->group],
           at(p->k),          at(p->v),         (uint32_t)g->p.per, (uint32_t)kv->s.type,
           (uint32_t)g->page, (uint32_t)g->n_layer, (uint32_t)p->layer, (uint32_t)kv->s.blk_tok,
           (uint32_t)s->d_k,  (uint32_t)s->d_v, (uint32_t)p->ldk, (uint32_t)p->ldv,
           (uint32_t)b->ld_blk, 0};
    LAUNCH(c, GPU_put, GRID(s->n_head, b->n_tok, 1), k);
}
