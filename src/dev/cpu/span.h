/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's work: units times spans of positions (span.c). Room-internal. */
#ifndef DEV_CPU_SPAN_H
#define DEV_CPU_SPAN_H

#include "dev/dev_internal.h"
#include "kern/vec.h"
#include "par/par.h"

struct cpu;

/* A unit: some query rows of one sequence that go through the context together. */
struct cpu_unit {
    int32_t seq, tok0, n_tok, head0, n_head;
    int32_t span0, span1; /* spans [span0, span1) hold what they see */
    const int32_t *list;  /* NULL, or [span1] which spans those are, rising; span0 is 0 */
};
/* Results of n_row rows: m, l, and o rows of ldo. l = 0: nothing seen. */
struct cpu_part {
    float *m, *l, *o;
};
struct cpu_span_job {
    const struct dev_step *b;
    const void *op;
    int n_unit;
    int n_row, ldo;           /* rows of a part at most, floats of a row */
    int len;                  /* positions of a span, of units that have a list */
    struct dev_cost products; /* of the whole job */
    /* Start on a unit (its queries into scratch), span at[0] of it into *out, where the worker's
     * next one will most likely be at[1], and the end of its rows [rows[0], rows[1]). */
    void (*begin)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                  float *mem);
    void (*span)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                 const int at[2], float *mem, struct cpu_part out);
    void (*end)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                struct cpu_part in, const int rows[2]);
    size_t mem_floats;  /* what begin and span use */
    int n_span, window; /* set by dev_cpu_spans_begin; window 0: each unit is one worker's */
};
static inline size_t dev_cpu_part_floats(int n_row, int ldo)
{
    return (size_t)n_row * 2 + (size_t)n_row * (size_t)ldo;
}
static inline struct cpu_part dev_cpu_part_at(float *p, int n_row)
{
    return (struct cpu_part){p, p + n_row, p + 2 * n_row};
}
/* Run the job's units over their spans; results are folded span by span in rising order, however
 * the work is split. */
void dev_cpu_spans(struct cpu *c, struct cpu_span_job *j);
/* The same inside a region, perhaps for several layers one after another: begin before the region,
 * then run by all workers, again by one of them between two runs, a barrier before and after it. */
void dev_cpu_spans_begin(struct cpu *c, struct cpu_span_job *j);
void dev_cpu_spans_run(struct cpu *c, struct cpu_span_job *j, int worker, int n_w);
void dev_cpu_spans_again(struct cpu *c, const struct cpu_span_job *j);
#define CPU_ROWS 48       /* query rows that share a widened piece of keys, about */
#define CPU_ROWS_BF16 96  /* the same on bf16, whose pieces are half as big */
#define CPU_LANES 64      /* the same where queries lie in lanes (MLA) */
#define CPU_SPLIT 4       /* fewer units than this times the workers: spans are split too */
#define CPU_SPLIT_ITEMS 8 /* times the workers: unit-spans between two barriers */
/* Memory of it. */
struct cpu_spans {
    struct cpu_unit *unit;
    int32_t *list;  /* the units' lists */
    uint64_t *seen; /* spans as bits, of a unit whose list is being made */
    float *part;    /* partial results of spans */
    int n_run, n_part;
    size_t part_floats;      /* of one */
    struct par_range *range; /* [n_worker] */
    struct par_counter *counter;
};
/* Whether attention over a cache of type t rounds queries and weights to bf16: where the CPU
 * multiplies bf16 twice as fast as f32, on caches of 16 bits or fewer, unless f32 was asked for. */
bool dev_cpu_bf16_attn(const struct cpu *c, int t);
/* The same to 16-bit integers, where it multiplies those faster than f32. */
bool dev_cpu_i16_attn(const struct cpu *c, int t);

#endif
