/* SPDX-License-Identifier: Apache-2.0 */
/* A program's operators for programs, as JSON. */
#include "model/show.h"

static void put_operands(struct json_w *w, const char *key, const struct shown_operand *o, int n)
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
        if (s->param[i].kind == SHOWN_INT)
            text_jw_int(w, (int64_t)s->param[i].v);
        else if (s->param[i].kind == SHOWN_BOOL)
            text_jw_bool(w, s->param[i].v != 0);
        else
            text_jw_real(w, s->param[i].v, 9);
    }
    text_jw_obj_end(w);
}

void model_op_json(struct json_w *w, const struct model *m, const struct dev_op *op, int pass)
{
    struct shown s;
    model_op_show(&s, m, op);
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
    model_op_show_end(&s);
}
