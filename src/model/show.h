/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that show a program share (show.c, show_json.c). Room-internal. */
#ifndef MODEL_SHOW_H
#define MODEL_SHOW_H

#include "model/emit.h"
#include "text/json.h"

/* What a buffer or prepared input of a model on one device is called. */
const char *model_name_of(const struct model *m, const void *p);
/* An operator as an object: pass, layer, op, rows, in, out, weights, params (docs/cli.md). */
void model_op_json(struct json_w *w, const struct model *m, const struct dev_op *op, int pass);

#endif
