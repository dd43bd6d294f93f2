/* SPDX-License-Identifier: Apache-2.0 */
/* All layouts of some hardware for one model: memory first, then speed; the best per goal and the
 * Pareto front. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "plan/consts.h"

#define PLAN_MAX_FORMATS 12

/* What is asked. Zero means "any" unless the field says otherwise. */
struct plan_query {
    const struct plan_model *model;
    const struct plan_device *dev;
    const struct plan_host *host; /* NULL: no experts on a CPU, no CPU-only */
    bool cpu_only;
    struct plan_format fmt[PLAN_MAX_FORMATS];
    int n_fmt;
    double kv_bits;
    int cards;
    struct plan_load load;    /* n 0, and no rate: of each layout the most users that hold limit */
    struct plan_limits limit; /* with a given n or rate: what is within */
    int tp, pp, dp, ep;       /* fixed parts of the layout */
    int n_weight;             /* of CPU ranks; 0: even ones, and such as ranks were measured */
    uint16_t weight[PLAN_RANK_MAX];
    int pools;                /* 0 any, 1 mixed only, 2 the split n_p:n_d */
    int n_p, n_d;
    int redundant, mtp; /* -1 any */
    double accept;      /* per drafted token, 0 = usual */
    const struct plan_drafts *drafts; /* NULL, or measured, in its place */
    int chunk;
    int experts_on;     /* 0 any, 1 CPU, 2 card */
    double hot;         /* share of experts on the card for a hybrid; < 0: as many as fit */
    const char *engine; /* "" = the best known on this device */
    int gen;            /* maturity of an engine that is not known */
    /* CPU ranks that were measured. Reads and 8-bit products in bw and peak. NULL: one host. */
    const struct plan_device *team; /* [links.n] the slowest of the first 1, 2, .. ranks */
    struct plan_team links;
    double combine_bits; /* of their experts' outputs */
    struct plan_consts here; /* with a team: this engine's constants, those of reads and products
                                as shares of what was measured */
};

enum { PLAN_GOAL_TTFT = 1, PLAN_GOAL_TPOT = 2, PLAN_GOAL_RATE = 4 };

struct plan_option {
    struct plan_case c;
    struct plan_result r;
    struct plan_load load; /* as asked, with the users that were found */
    double card_tps;       /* output tokens/s per card, over all cards */
    int goals;             /* bits: best of which goal */
    bool within;           /* holds the asked limits */
    char name[64];         /* "int8 dp32ep32 +r32 mtp1" */
};

struct plan_reject {
    char name[64];
    double over; /* bytes too many per rank (or on the host) */
    char why[160];
};

struct plan_found {
    struct plan_option *option; /* goal winners first, then by tokens/s per card */
    int n_option;
    struct plan_reject *reject; /* one per format and layout, the nearest miss first */
    int n_reject;
    int n_tried, n_fit; /* evaluations; how many fitted in memory */
    char cure[160];     /* when nothing fits: what would */
};

/* Errors: NOMEM; LIMIT past 200000 candidates. Memory: in the arena. Cost: about 4 us a candidate.
 */
sl_status plan_search(const struct plan_book *b, const struct plan_query *q, struct arena *a,
                      int top, struct plan_found *out, sl_err *err) BASE_MUST_USE;

/* What is asked of one layout: the load as it is, or with the most users that hold the limits (one
 * where not even one does). */
struct plan_load plan_query_load(const struct plan_query *q, const struct plan_case *c);

/* "tp8", "tp4pp2", "dp32ep32", "tp4dp8ep32" into q's fixed parts. False: why says what is wrong. */
bool plan_layout_parse(const char *text, struct plan_query *q, char *why, size_t size);

/* "3:2:1", the weights of a layout. False: size has no room for all. */
bool plan_layout_weights(const struct plan_layout *l, char *out, size_t size);

/* Why one option is as fast as it is, as a sentence. */
void plan_explain(const struct plan_option *o, char *out, size_t size);

/* Constants for a query's mode on its device. */
void plan_query_consts(const struct plan_book *b, const struct plan_query *q, enum plan_mode mode,
                       const struct plan_format *fmt, const struct plan_layout *l,
                       struct plan_consts *k);

/* A claim that some weights use bytes in all, or that bits of every parameter fit on cards: NULL
 * when possible, else why not (in out). */
const char *plan_claim(const struct plan_model *m, double bits, double bytes_in_all, char *out,
                       size_t size);

#endif
