/* SPDX-License-Identifier: Apache-2.0 */
/* A model's programs, for people: one line per operator, layers that are alike told once. The model
 * is opened on a device that keeps nothing but shapes (dev_dry_open). */
#include "model/show.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct name {
    const void *at;
    const char *text;
};

const char *model_name_of(const struct model *m, const void *p)
{
    const struct side *d = model_side(m, MODEL_ATTN); /* the model is on one device */
    const struct name all[] = {{d->x, "x"},
                               {d->r, "r"},
                               {d->q, "q"},
                               {d->k, "k"},
                               {d->v, "v"},
                               {d->y, "y"},
                               {d->qa, "q_latent"},
                               {d->h, "h"},
                               {d->hidden, "hidden"},
                               {d->logits, "logits"},
                               {d->best, "best"},
                               {d->eh_in, "pair"},
                               {d->logit_r, "scores"},
                               {d->id_r, "experts"},
                               {d->shared, "shared"},
                               {d->a_attn, "in_attn"},
                               {d->a_q_a, "in_q_b"},
                               {d->a_o, "in_o"},
                               {d->a_ffn, "in_ffn"},
                               {d->a_h, "in_down"},
                               {d->a_head, "in_head"},
                               {d->a_eh, "in_eh"}};
    const struct name *best = NULL;
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        if (all[i].at && (uintptr_t)all[i].at <= (uintptr_t)p &&
            (!best || (uintptr_t)best->at < (uintptr_t)all[i].at))
            best = &all[i];
    return best ? best->text : "?";
}

/* "[576 x 1536] q4_0", "64 of [32 x 128] f32". */
static void put_mat(struct str *s, const dev_mat *w)
{
    struct dev_dry_mat d = dev_dry_mat(w);
    if (d.n > 1) str_printf(s, "%d of ", d.n);
    str_printf(s, "[%d x %d] %s%s", d.rows, d.cols, d.type,
               dev_mat_epilogue(w)->bias ? " + bias" : "");
}

static void put_embed(struct str *s, const struct model *m, const struct dev_embed *p)
{
    str_printf(s, "%s = the tokens' rows of ", model_name_of(m, p->y));
    put_mat(s, p->w);
}

static void put_norm(struct str *s, const struct model *m, const struct dev_norm *p)
{
    const void *to = p->act ? (const void *)p->act : p->y;
    str_printf(s, "%s = rmsnorm(%s", model_name_of(m, to), model_name_of(m, p->x));
    if (p->r) str_printf(s, " += %s", model_name_of(m, p->r));
    str_printf(s, ")");
    if (p->n_head > 1)
        str_printf(s, ", %d heads of %d", p->n_head, p->n);
    else
        str_printf(s, " of %d", p->n);
    str_printf(s, ", eps %g%s", (double)p->eps, p->gather ? ", rows of the pass before" : "");
}

static void put_matmul(struct str *s, const struct model *m, const struct dev_matmul *p)
{
    for (int i = 0; i < p->n_mat; i++)
        str_printf(s, "%s%s", i ? ", " : "", model_name_of(m, p->y[i]));
    str_printf(s, " = %s by ", model_name_of(m, p->act));
    for (int i = 0; i < p->n_mat; i++) {
        if (i) str_puts(s, ", ");
        put_mat(s, p->w[i]);
    }
}

static void put_attn(struct str *s, const struct model *m, const struct dev_attn *p)
{
    str_printf(s, "%s = attention of %s over cache: %d heads, scale %g", model_name_of(m, p->y),
               model_name_of(m, p->q), p->n_head, (double)p->scale);
    if (p->n_window) str_printf(s, ", window %d", p->n_window);
    if (p->sink) str_puts(s, ", sinks");
}

static void put_mla(struct str *s, const struct model *m, const struct dev_attn_mla *p)
{
    str_printf(s, "%s = attention of %s over cache: %d heads of %d + %d, latents of %d, scale %g; ",
               model_name_of(m, p->y), model_name_of(m, p->q), p->n_head, p->nope, p->rope, p->r,
               (double)p->scale);
    str_puts(s, "keys ");
    put_mat(s, p->w_kb);
    str_puts(s, ", values ");
    put_mat(s, p->w_vb);
}

static void put_glu(struct str *s, const dev_mat *gate_up, const dev_mat *down)
{
    const struct glu *g = &dev_mat_epilogue(gate_up)->glu;
    str_puts(s, "gate and up ");
    put_mat(s, gate_up);
    str_puts(s, ", down ");
    put_mat(s, down);
    if (g->limit > 0) str_printf(s, ", values to +-%g", (double)g->limit);
    if (g->alpha > 0) str_printf(s, ", sigmoid of %g g", (double)g->alpha);
    if (g->plus != 0) str_printf(s, ", up + %g", (double)g->plus);
}

static void put_route(struct str *s, const struct model *m, const struct dev_route *p)
{
    str_printf(s, "%s = %d of %d by %s of %s", model_name_of(m, p->id), p->k, p->n_expert,
               p->sigmoid ? "sigmoid" : "softmax", model_name_of(m, p->logit));
    if (p->bias) str_puts(s, " + bias");
    if (p->n_group > 1) str_printf(s, ", from %d of %d groups", p->k_group, p->n_group);
    if (p->norm) str_puts(s, ", weights sum to 1");
    if (p->scale != 1.0f) str_printf(s, ", times %g", (double)p->scale);
}

static void put_moe(struct str *s, const struct model *m, const struct dev_moe *p)
{
    str_printf(s, "%s = %s by %s", model_name_of(m, p->y), model_name_of(m, p->act),
               model_name_of(m, p->id));
    if (p->add) str_printf(s, " + %s", model_name_of(m, p->add));
    str_puts(s, ": ");
    put_glu(s, p->gate_up, p->down);
}

static void put_ffn(struct str *s, const struct model *m, const struct dev_ffn *p)
{
    str_printf(s, "%s = %s by ", model_name_of(m, p->y), model_name_of(m, p->act));
    put_glu(s, p->gate_up, p->down);
}

static void put_what(struct str *s, const struct model *m, const struct dev_op *op)
{
    switch (op->kind) {
    case DEV_OP_embed:
        put_embed(s, m, &op->u.embed);
        break;
    case DEV_OP_norm:
        put_norm(s, m, &op->u.norm);
        break;
    case DEV_OP_prep:
        str_printf(s, "%s = %s of %d", model_name_of(m, op->u.prep.act),
                   model_name_of(m, op->u.prep.x), op->u.prep.n);
        break;
    case DEV_OP_matmul:
        put_matmul(s, m, &op->u.matmul);
        break;
    case DEV_OP_rope:
        str_printf(s, "%s: %d head%s, %d values in %s", model_name_of(m, op->u.rope.x),
                   op->u.rope.n_head, op->u.rope.n_head == 1 ? "" : "s", op->u.rope.n_rot,
                   op->u.rope.style ? "pairs" : "halves");
        break;
    case DEV_OP_kv_put:
        str_printf(s, "cache = %s%s%s", model_name_of(m, op->u.kv_put.k),
                   op->u.kv_put.v ? ", " : "",
                   op->u.kv_put.v ? model_name_of(m, op->u.kv_put.v) : "");
        break;
    case DEV_OP_attn:
        put_attn(s, m, &op->u.attn);
        break;
    case DEV_OP_attn_mla:
        put_mla(s, m, &op->u.attn_mla);
        break;
    case DEV_OP_ffn:
        put_ffn(s, m, &op->u.ffn);
        break;
    case DEV_OP_route:
        put_route(s, m, &op->u.route);
        break;
    case DEV_OP_moe:
        put_moe(s, m, &op->u.moe);
        break;
    case DEV_OP_rows:
        str_printf(s, "%s = %s, the rows that are wanted", model_name_of(m, op->u.rows.act),
                   model_name_of(m, op->u.rows.x));
        break;
    case DEV_OP_best:
        str_printf(s, "%s = largest of %s, of %d", model_name_of(m, op->u.best.id),
                   model_name_of(m, op->u.best.x), op->u.best.n);
        break;
    default: /* in no program of a model on one device without a tap */
        break;
    }
}

/* Of the operators of one layer, or of a stretch outside of the layers. */
static void put_lines(struct str *s, const struct model *m, const struct dev_op *op, int n)
{
    for (int i = 0; i < n; i++) {
        str_printf(s, "  %-9s ", dev_op_name(op[i].kind));
        put_what(s, m, &op[i]);
        str_putc(s, '\n');
    }
}

/* Operators from at on that are of the same layer. */
static int stretch(const struct emit *e, int at)
{
    int n = 1;
    while (at + n < e->n && e->op[at + n].layer == e->op[at].layer)
        n++;
    return n;
}

static bool same(const struct model *m, const struct dev_op *a, int n_a, const struct dev_op *b,
                 int n_b)
{
    struct str s, t;
    if (n_a != n_b) return false;
    str_init(&s, MEM_MISC, 0);
    str_init(&t, MEM_MISC, 0);
    put_lines(&s, m, a, n_a);
    put_lines(&t, m, b, n_b);
    bool is = s.n == t.n && (!s.n || memcmp(s.p, t.p, s.n) == 0);
    str_fini(&s);
    str_fini(&t);
    return is;
}

/* "layers 0, 2-4": the layers from at on that are like the one there; they are marked in done. */
static void put_alike(struct str *s, const struct model *m, const struct emit *e, int at,
                      bool *done)
{
    int n = stretch(e, at), first = e->op[at].layer, last = first, n_alike = 0;
    struct str list;
    str_init(&list, MEM_MISC, 0);
    str_printf(&list, "%d", first);
    int from = first;
    for (int i = at, k; i < e->n; i += k) {
        int il = e->op[i].layer;
        k = stretch(e, i);
        if (il < 0 || done[il] || !same(m, e->op + at, n, e->op + i, k)) continue;
        done[il] = true;
        n_alike++;
        if (il > last + 1) {
            if (last > from) str_printf(&list, "-%d", last);
            str_printf(&list, ", %d", il);
            from = il;
        }
        last = il;
    }
    if (last > from) str_printf(&list, "-%d", last);
    str_printf(s, "layer%s %.*s\n", n_alike == 1 ? "" : "s", (int)list.n, list.p);
    str_fini(&list);
    put_lines(s, m, e->op + at, n);
}

static void put_text(struct str *s, const struct model *m, const struct emit *e, int pass,
                     bool *done)
{
    if (pass) str_printf(s, "\nMTP pass %d\n", pass);
    for (int at = 0, n; at < e->n; at += n) {
        int il = e->op[at].layer;
        n = stretch(e, at);
        if (il < 0) {
            if (at) str_puts(s, "head\n");
            put_lines(s, m, e->op + at, n);
        } else if (!done[il]) {
            put_alike(s, m, e, at, done);
        }
    }
}

static void put_json(struct json_w *w, const struct model *m, const struct emit *e, int pass)
{
    for (int i = 0; i < e->n; i++)
        model_op_json(w, m, &e->op[i], pass);
}

static sl_status show(struct model *m, struct str *s, struct json_w *w, sl_err *err)
{
    void *p = NULL, *done = NULL;
    int n_max = model_op_max(m), n_layer = m->cfg.n_layer + m->n_mtp;
    sl_status st = SL_OK;
    SL_TRY_OUT(mem_alloc_array(MEM_SCRATCH, (size_t)n_max, sizeof(struct dev_op), &p, err));
    SL_TRY_OUT(mem_alloc_array(MEM_SCRATCH, (size_t)n_layer, sizeof(bool), &done, err));
    if (w) text_jw_arr(w);
    for (int pass = 0; pass <= m->n_mtp; pass++) {
        struct emit e = {.op = p, .n_max = n_max};
        model_emit_begin(&e, m);
        model_pass_emit(&e, pass);
        if (w)
            put_json(w, m, &e, pass);
        else
            put_text(s, m, &e, pass, done);
    }
    if (w) text_jw_arr_end(w);
out:
    mem_free(done);
    mem_free(p);
    return st;
}

sl_status model_show(const io_model *io, struct str *s, struct json_w *w, sl_err *err)
{
    struct model *m = NULL;
    dev *d = NULL;
    struct model_opts o = {
        .n_tok_max = 1, .n_seq_max = 1, .n_logit_max = 1, .pack = io_model_pack(io)};
    SL_TRY(dev_dry_open(&d, err));
    sl_status st = model_open_parts(io, d, &o, &m, err);
    if (!st) st = show(m, s, w, err);
    model_close(m);
    dev_close(d);
    return st;
}
