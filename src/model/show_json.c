/* SPDX-License-Identifier: Apache-2.0 */
/* A program's operators for programs: operands with their widths, matrices with shape and type,
 * and parameters. */
#include <string.h>

#include "model/show.h"

#define OPERANDS 6
#define WEIGHTS 4
#define PARAMS 12

/* What an operator has, before it is written. */
struct shown {
    const struct model *m;
    struct operand {
        const char *name;
        int64_t cols; /* of a row */
    } in[OPERANDS], out[OPERANDS];
    int n_in, n_out;
    struct {
        const char *as; /* NULL = the only kind that there is */
        const dev_mat *w;
    } weight[WEIGHTS];
    int n_weight;
    struct {
        const char *key;
        double v;
        enum { INT, REAL, BOOL } kind;
    } param[PARAMS];
    int n_param;
    bool wanted; /* rows: those that the step wants; else all of its tokens */
};

static void takes(struct shown *s, const void *p, int64_t cols)
{
    ASSERT(s->n_in < OPERANDS);
    if (p) s->in[s->n_in++] = (struct operand){model_name_of(s->m, p), cols};
}

static void gives(struct shown *s, const void *p, int64_t cols)
{
    ASSERT(s->n_out < OPERANDS);
    if (p) s->out[s->n_out++] = (struct operand){model_name_of(s->m, p), cols};
}

static void has(struct shown *s, const char *as, const dev_mat *w)
{
    ASSERT(s->n_weight < WEIGHTS);
    s->weight[s->n_weight].as = as;
    s->weight[s->n_weight++].w = w;
}

static void put(struct shown *s, const char *key, double v, int kind)
{
    ASSERT(s->n_param < PARAMS);
    s->param[s->n_param].key = key;
    s->param[s->n_param].v = v;
    s->param[s->n_param++].kind = kind;
}

static void whole(struct shown *s, const char *key, int v)
{
    put(s, key, v, INT);
}

static void real(struct shown *s, const char *key, float v)
{
    put(s, key, (double)v, REAL);
}

static void yes(struct shown *s, const char *key, bool v)
{
    put(s, key, v, BOOL);
}

/* ---- operators ---- */

static void show_norm(struct shown *s, const struct dev_norm *p)
{
    int n_head = BASE_MAX(p->n_head, 1);
    takes(s, p->x, (int64_t)n_head * p->n);
    takes(s, p->r, p->n);
    gives(s, p->act, p->n);
    gives(s, p->y, (int64_t)n_head * p->n);
    whole(s, "heads", n_head);
    real(s, "eps", p->eps);
    yes(s, "gather", p->gather);
}

static void show_matmul(struct shown *s, const struct dev_matmul *p)
{
    takes(s, p->act, dev_mat_cols(p->w[0]));
    for (int i = 0; i < p->n_mat; i++) {
        gives(s, p->y[i], dev_mat_rows(p->w[i]));
        has(s, NULL, p->w[i]);
    }
}

static void show_rope(struct shown *s, const struct dev_rope *p)
{
    takes(s, p->x, p->n_head * p->ldx_h);
    gives(s, p->x, p->n_head * p->ldx_h);
    whole(s, "heads", p->n_head);
    whole(s, "rotated", p->n_rot);
    yes(s, "pairs", p->style);
    real(s, "times", p->mscale);
}

static void show_attn(struct shown *s, const struct dev_attn *p)
{
    takes(s, p->q, (int64_t)p->n_head * p->d_k);
    gives(s, p->y, (int64_t)p->n_head * p->d_v);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "heads", p->n_head);
    real(s, "scale", p->scale);
    whole(s, "window", p->n_window);
    yes(s, "sinks", p->sink);
}

static void show_mla(struct shown *s, const struct dev_attn_mla *p)
{
    takes(s, p->q, (int64_t)p->n_head * (p->nope + p->rope));
    gives(s, p->y, (int64_t)p->n_head * p->v);
    has(s, "keys", p->w_kb);
    has(s, "values", p->w_vb);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "heads", p->n_head);
    whole(s, "latent", p->r);
    whole(s, "nope", p->nope);
    whole(s, "rope", p->rope);
    whole(s, "value", p->v);
    real(s, "scale", p->scale);
}

static void show_glu(struct shown *s, const dev_mat *gate_up)
{
    const struct glu *g = &dev_mat_epilogue(gate_up)->glu;
    real(s, "limit", g->limit);
    real(s, "alpha", g->alpha > 0 ? g->alpha : 1.0f);
    yes(s, "plus1", g->plus != 0);
}

static void show_ffn(struct shown *s, const struct dev_ffn *p)
{
    takes(s, p->act, dev_mat_cols(p->gate_up));
    gives(s, p->y, dev_mat_rows(p->down));
    has(s, "gate_up", p->gate_up);
    has(s, "down", p->down);
    show_glu(s, p->gate_up);
}

static void show_route(struct shown *s, const struct dev_route *p)
{
    takes(s, p->logit, p->n_expert);
    gives(s, p->id, p->k);
    whole(s, "experts", p->n_expert);
    whole(s, "used", p->k);
    yes(s, "sigmoid", p->sigmoid);
    yes(s, "bias", p->bias);
    whole(s, "groups", BASE_MAX(p->n_group, 1));
    whole(s, "groups_used", BASE_MAX(p->k_group, 1));
    yes(s, "norm", p->norm);
    real(s, "scale", p->scale);
}

static void show_moe(struct shown *s, const struct dev_moe *p)
{
    takes(s, p->act, dev_mat_cols(p->gate_up));
    takes(s, p->id, p->k);
    takes(s, p->add, dev_mat_rows(p->down));
    gives(s, p->y, dev_mat_rows(p->down));
    has(s, "gate_up", p->gate_up);
    has(s, "down", p->down);
    whole(s, "experts", p->n_expert);
    whole(s, "used", p->k);
    show_glu(s, p->gate_up);
}

static void show_kv_put(struct shown *s, const struct dev_kv_put *p)
{
    takes(s, p->k, p->ldk);
    takes(s, p->v, p->ldv);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
}

static void show(struct shown *s, const struct dev_op *op)
{
    switch (op->kind) {
    case DEV_OP_embed:
        gives(s, op->u.embed.y, dev_mat_cols(op->u.embed.w));
        has(s, NULL, op->u.embed.w);
        real(s, "scale", op->u.embed.scale);
        break;
    case DEV_OP_norm:
        show_norm(s, &op->u.norm);
        break;
    case DEV_OP_prep:
        takes(s, op->u.prep.x, op->u.prep.n);
        gives(s, op->u.prep.act, op->u.prep.n);
        break;
    case DEV_OP_matmul:
        show_matmul(s, &op->u.matmul);
        s->wanted = op->u.matmul.n_row == DEV_ROWS_WANTED;
        break;
    case DEV_OP_rope:
        show_rope(s, &op->u.rope);
        break;
    case DEV_OP_kv_put:
        show_kv_put(s, &op->u.kv_put);
        break;
    case DEV_OP_attn:
        show_attn(s, &op->u.attn);
        break;
    case DEV_OP_attn_mla:
        show_mla(s, &op->u.attn_mla);
        break;
    case DEV_OP_ffn:
        show_ffn(s, &op->u.ffn);
        break;
    case DEV_OP_route:
        show_route(s, &op->u.route);
        break;
    case DEV_OP_moe:
        show_moe(s, &op->u.moe);
        break;
    case DEV_OP_rows:
        takes(s, op->u.rows.x, op->u.rows.n);
        gives(s, op->u.rows.act, op->u.rows.n);
        s->wanted = true;
        break;
    case DEV_OP_best:
        takes(s, op->u.best.x, op->u.best.n);
        gives(s, op->u.best.id, 1);
        s->wanted = true;
        break;
    default: /* in no program of a model on one device without a tap */
        break;
    }
}

/* ---- writing ---- */

static void put_operands(struct json_w *w, const char *key, const struct operand *o, int n)
{
    text_jw_key(w, key);
    text_jw_arr(w);
    for (int i = 0; i < n; i++) {
        text_jw_obj(w);
        text_jw_key(w, "name");
        text_jw_strz(w, o[i].name);
        text_jw_key(w, "cols");
        text_jw_int(w, o[i].cols);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

static void put_weights(struct json_w *w, const struct shown *s)
{
    text_jw_key(w, "weights");
    text_jw_arr(w);
    for (int i = 0; i < s->n_weight; i++) {
        struct dev_dry_mat d = dev_dry_mat(s->weight[i].w);
        text_jw_obj(w);
        if (s->weight[i].as) {
            text_jw_key(w, "as");
            text_jw_strz(w, s->weight[i].as);
        }
        text_jw_key(w, "n");
        text_jw_int(w, d.n);
        text_jw_key(w, "rows");
        text_jw_int(w, d.rows);
        text_jw_key(w, "cols");
        text_jw_int(w, d.cols);
        text_jw_key(w, "type");
        text_jw_strz(w, d.type);
        text_jw_key(w, "bias");
        text_jw_bool(w, dev_mat_epilogue(s->weight[i].w)->bias != NULL);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

static void put_params(struct json_w *w, const struct shown *s)
{
    text_jw_key(w, "params");
    text_jw_obj(w);
    for (int i = 0; i < s->n_param; i++) {
        text_jw_key(w, s->param[i].key);
        if (s->param[i].kind == INT)
            text_jw_int(w, (int64_t)s->param[i].v);
        else if (s->param[i].kind == BOOL)
            text_jw_bool(w, s->param[i].v != 0);
        else
            text_jw_real(w, s->param[i].v, 9);
    }
    text_jw_obj_end(w);
}

void model_op_json(struct json_w *w, const struct model *m, const struct dev_op *op, int pass)
{
    struct shown s = {.m = m};
    show(&s, op);
    text_jw_obj(w);
    text_jw_key(w, "pass");
    text_jw_int(w, pass);
    text_jw_key(w, "layer");
    text_jw_int(w, op->layer);
    text_jw_key(w, "op");
    text_jw_strz(w, dev_op_name(op->kind));
    text_jw_key(w, "rows");
    text_jw_strz(w, s.wanted ? "wanted" : "tokens");
    put_operands(w, "in", s.in, s.n_in);
    put_operands(w, "out", s.out, s.n_out);
    put_weights(w, &s);
    put_params(w, &s);
    text_jw_obj_end(w);
}
