/* SPDX-License-Identifier: Apache-2.0 */
/* The other things that `sluice bench` does. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "compute.h"

struct bench_files {
    const char *csv, *svg; /* NULL = none */
};

/* What drafts (o->draft) cost and gain: without, with 1, 2, .. in each step, and chosen. */
struct bench_draft_opts {
    struct opt_ints batch, depth; /* depth: tokens of random prompts, where prompts is NULL */
    int n, r;                     /* tokens of an answer; repeats */
    double temp;                  /* < 0: 1 after random prompts, else 0 */
    const char *prompts;          /* NULL, or a file of them (compute_lines) */
    const char *json_schema;      /* NULL, or a file: answers match it */
};
sl_status bench_draft(const struct opt_common *o, const struct bench_draft_opts *d,
                      sl_err *err) BASE_MUST_USE;

/* The same work from everything off to everything on, one measure at a time: n_req requests of
 * n_prompt tokens, two thirds of them shared, and n_new new ones. Every row is a process of its
 * own. */
sl_status bench_ablation(const struct opt_common *o, int n_req, int n_prompt, int n_new,
                         const struct bench_files *f, sl_err *err) BASE_MUST_USE;
/* Products with weights of one type ("q4_0", or "all") on this device, at rising numbers of
 * columns. */
sl_status bench_kernels(const struct opt_common *o, const char *type, const struct bench_files *f,
                        sl_err *err) BASE_MUST_USE;
/* The steps of a recording again; other bits are an error that names the first. */
sl_status bench_replay(const struct opt_common *o, const char *path, sl_err *err) BASE_MUST_USE;

#endif
