/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a model lies on which device: the options that say so, and a table of it without
 * running the model (inspect, doctor). */
#ifndef TOOLS_PLACE_H
#define TOOLS_PLACE_H

#include "cmd.h"
#include "io/io.h"
#include "model/model.h"
#include "text/json.h"

/* Does any option say where parts lie? (The environment's SL_PLACE is none.) */
bool place_asked(const struct opt_common *o);
/* Which one does, "--split"; NULL: none. */
const char *place_asked_by(const struct opt_common *o);
/* The device of attention, as the options say it, in buf or as it stands there: the first of
 * --device, or what --gpu-layers means; NULL: nothing. */
const char *place_device(const struct opt_common *o, char *buf, size_t n);
/* What --no-matrix-units means for it. Errors: REQUEST: it is no card. */
sl_status place_units(const struct opt_common *o, int *no_units, sl_err *err) BASE_MUST_USE;
/* What these options say together, in buf; NULL: nothing. What names less counts more: --place over
 * --override-tensor, --n-cpu-moe and the others. n_layer: of the model, without MTP layers; 0: it
 * is not known yet, and layers are not shared. Errors: REQUEST: it is too long, two options
 * contradict each other, or one can not be obeyed. */
sl_status place_option(const struct opt_common *o, int n_layer, char *buf, size_t n,
                       const char **out, sl_err *err) BASE_MUST_USE;

/* What --hot-experts says: a number, SL_HOT_AUTO, 0 where it is not given. Errors: REQUEST. */
sl_status place_hot(const struct opt_common *o, int *n, sl_err *err) BASE_MUST_USE;

/* The same of --stream-from: SL_STREAM_AUTO, 0: off. */
sl_status place_stream(const struct opt_common *o, int *n, sl_err *err) BASE_MUST_USE;

struct place_table {
    struct model_place p;
    int n_hot, n_hot_layer; /* of --hot-experts; layers that may have some */
    int64_t hot_one;        /* bytes of one in each of them */
    /* of --stream-from: layers whose experts are; bytes of a step, of the largest expert, and of
     * the device */
    int stream_from, n_stream_layer;
    int64_t stream_bytes, stream_one, stream_room;
    struct {
        char *parts;
        int64_t bytes, available; /* of tensors that go there; of memory */
    } on[MODEL_DEV_MAX];
};
/* What the options (--device too), or SL_PLACE, say of a model. Texts are the arena's. Errors:
 * REQUEST names an item; UNSUPPORTED: no such device; NOMEM. */
sl_status place_get(const io_model *io, const struct arch_cfg *c, const struct opt_common *o,
                    struct arena *a, struct place_table *out, sl_err *err) BASE_MUST_USE;
/* Lines "DEVICE  BYTES of what is there  PARTS". */
void place_print(const struct place_table *t);
/* As member "place" of an object: [{"device","parts","bytes","available"}]. */
void place_json(const struct place_table *t, struct json_w *w);

#endif
