/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --expert-stats: how often every expert was chosen. */
#ifndef TOOLS_EXPERTS_H
#define TOOLS_EXPERTS_H

#include "base/mem.h"

struct expert_layer {
    int layer;
    int64_t tokens;
    uint64_t *count; /* [n_expert] */
};
struct expert_file {
    int n_expert, n_used, n;
    struct expert_layer *layer; /* [n] those with experts */
};
/* Memory in the arena. Errors: as os_read_once; FORMAT names the file and the layer; NOMEM. */
sl_status experts_read(const char *path, struct arena *a, struct expert_file *out,
                       sl_err *err) BASE_MUST_USE;
/* Of that layer; NULL: the file has none. */
const struct expert_layer *experts_of(const struct expert_file *f, int layer);

#endif
