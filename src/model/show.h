/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that show a program share: an operator described once (show_op.c), written for
 * people (show.c) and for programs (show_json.c). Room-internal. */
#ifndef MODEL_SHOW_H
#define MODEL_SHOW_H

#include "base/str.h"
#include "model/emit.h"
#include "text/json.h"

#define SHOWN_OPERANDS 6
#define SHOWN_WEIGHTS 4
#define SHOWN_PARAMS 12

/* What an operator has. Operands and parameters are what programs are told; text is one sentence,
 * which leaves out what is as usual. */
struct shown {
    const struct model *m;
    struct str text;
    struct shown_operand {
        const char *name;
        int64_t cols; /* of a row */
    } in[SHOWN_OPERANDS], out[SHOWN_OPERANDS];
    int n_in, n_out;
    struct {
        const char *as; /* NULL = the only kind that there is */
        const dev_mat *w;
    } weight[SHOWN_WEIGHTS];
    int n_weight;
    struct {
        const char *key;
        double v;
        enum { SHOWN_INT, SHOWN_REAL, SHOWN_BOOL } kind;
    } param[SHOWN_PARAMS];
    int n_param;
    bool wanted; /* rows: those that the step wants; else all of its tokens */
};
/* Of a model on one device that keeps nothing but shapes. */
void model_op_show(struct shown *s, const struct model *m, const struct dev_op *op);
void model_op_show_end(struct shown *s);
/* An operator as an object: pass, layer, op, rows, in, out, weights, params (docs/cli.md). */
void model_op_json(struct json_w *w, const struct model *m, const struct dev_op *op, int pass);

#endif
