/* SPDX-License-Identifier: Apache-2.0 */
/* What serve and engine share: the options of batches and of services, and what a service gives up
 * before it has threads. */
#ifndef TOOLS_SERVING_H
#define TOOLS_SERVING_H

#include "cmd.h"
#include "compute.h"
#include "os/sandbox.h"

/* How much is computed at once. */
struct batch_opts {
    int max_batch, max_queue, prefix_cache;
    int64_t kv_tokens;
};
struct service_opts {
    int drain_s, sandbox;
};
/* Engines that compute prompts. */
struct prefill_opts {
    struct opt_strs at;
    int from_tok;
};
// clang-format off
#define OPT_ROWS_BATCH(S)                                                                          \
    {"max-batch", 0, OPT_INT,  offsetof(S, batch.max_batch),                                       \
     "N", "0", 0, 1024, "sequences decoded together (0: 32; 8 to 32 where they have states)"},     \
    {"max-queue", 0, OPT_INT,  offsetof(S, batch.max_queue),                                       \
     "N", "256", 1, 100000, "requests that wait; more are 429"},                                   \
    {"kv-tokens", 0, OPT_I64,  offsetof(S, batch.kv_tokens),                                       \
     "N", "0", 0, 1e15, "KV cache in tokens, all sequences (0: what memory allows)"},              \
    {"prefix-cache", 0, OPT_ENUM, offsetof(S, batch.prefix_cache),                                 \
     "on|off", "on", 0, 0, "reuse the KV of equal beginnings"}
#define OPT_ROWS_SERVICE(S)                                                                        \
    {"drain",     0, OPT_INT,  offsetof(S, service.drain_s),                                       \
     "S", "30", 0, 86400, "seconds that SIGTERM leaves to what runs"},                             \
    {"sandbox",   0, OPT_ENUM, offsetof(S, service.sandbox),                                       \
     "auto|off", "auto", 0, 0, "give up files, privileges and system calls that are not needed"}
#define OPT_ROWS_PREFILL(S)                                                                        \
    {"prefill",   0, OPT_STRS, offsetof(S, prefill.at),                                            \
     "unix:PATH", NULL, 0, 0,                                                                      \
     "an engine of sluice engine --listen computes prompts (may be repeated)"},                    \
    {"prefill-from", 0, OPT_INT, offsetof(S, prefill.from_tok),                                    \
     "N", "64", 1, 1 << 24, "prompts that lack N tokens or more go there"}
// clang-format on

sl_engine_opts serving_engine_opts(const struct batch_opts *b);
/* A line where it has several ranks that nobody asked for (a layout "auto"). */
void serving_ranks(const struct compute *c, const struct opt_common *o);
/* The file of --expert-stats, while serving; a failure is a warning. Engine thread. */
void serving_experts(struct compute *c, const struct opt_common *o);

typedef struct gate_prefill gate_prefill;
/* *out, also where it fails: to be closed after the engine. NULL: none is asked for. Errors: as
 * gate_prefill_open; REQUEST: a path. */
sl_status serving_prefill(struct compute *c, const struct prefill_opts *o, gate_prefill **out,
                          sl_err *err) BASE_MUST_USE;

/* Before there are other threads: only the model's files and those of more from here on. Errors: as
 * engine_find_model, os_sandbox_files. */
sl_status serving_sandbox(const struct opt_common *o, const struct os_path *more, int n_more,
                          struct arena *a, sl_err *err) BASE_MUST_USE;
/* The folder of a file, in the arena: one that is replaced is another file. NULL for NULL. */
const char *serving_folder(struct arena *a, const char *path);

#endif
