/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `sluice inspect` share: a look at a model's files without running it. */
#ifndef TOOLS_INSPECT_H
#define TOOLS_INSPECT_H

#include "base/str.h"
#include "cmd.h"
#include "io/io.h"
#include "model/model.h"
#include "text/json.h"
#include "tok/tok.h"

struct inspect {
    io_model *io;
    struct arch_cfg cfg;
    bool has_cfg;
    sl_err why_not; /* why it cannot be run; code SL_OK = it can */
    char arch[64];
    int64_t params, active, bytes;
    int n_layer, n_vocab, n_ctx; /* 0 = not known */
    int n_of[TENSOR_N_DTYPE];    /* tensors by type */
    int64_t bytes_of[TENSOR_N_DTYPE];
    tok *tok;
    sl_err tok_err;
};

/* Memory of running it. Bytes; estimates but for weights and KV. */
struct inspect_memory {
    int n_ctx, n_seq;
    int64_t weights, kv, acts, scratch, total, available;
};
/* n_thread 0 = physical cores. UNSUPPORTED when the model cannot be run. */
sl_status inspect_memory_get(const struct inspect *v, int n_ctx, int n_seq, int n_thread,
                             struct inspect_memory *out, sl_err *err) BASE_MUST_USE;

/* "134.5 M", "98.4 MB": three or four digits and a unit. */
const char *inspect_count_text(int64_t n, char *buf, size_t cap);
const char *inspect_bytes_text(int64_t n, char *buf, size_t cap);

/* What of experts is asked for. */
struct inspect_spread {
    const char *file;            /* NULL, or what --expert-stats of another command wrote */
    int ranks, redundant, nodes; /* ranks 0, or: placed by it on so many, with so many copies */
};
/* Experts per layer, or their load. Errors: as experts_read, dist_place. */
sl_status inspect_experts(const struct inspect *v, const struct inspect_spread *s, struct arena *a,
                          sl_err *err) BASE_MUST_USE;

/* The dequantised tensor as raw f32 in a file. */
sl_status inspect_dump(const struct inspect *v, const char *name, const char *path, sl_err *err)
    BASE_MUST_USE;

#endif
