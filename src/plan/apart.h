/* SPDX-License-Identifier: Apache-2.0 */
/* Does it pay to compute prompts on an engine of their own (serve --prefill)? */
#ifndef PLAN_APART_H
#define PLAN_APART_H

#include "plan/plan.h"

/* A way to serve the load, s: means of a request. */
struct plan_way {
    double ttft, tpot, e2e;
    double busy; /* share of the time in prompts; of two engines, of the one that computes them */
    bool stable; /* false: the rate cannot be served */
};
struct plan_apart {
    struct plan_way one, two; /* one engine; two alike, each with half of the requests */
    struct plan_way apart;    /* two alike, of which one computes the prompts */
    double kv, wire;          /* bytes of a prompt's keys and values; s that they take */
    double shown;             /* s of these that are not behind the computing of the prompt */
    double load;              /* share of the link that the rate takes */
    double harm, cost; /* s that prompts beside answers, and the way, make a request longer */
    bool pays;
};
/* Of engines laid out as c says, under w, whose rate is above zero. bw: bytes/s of the link. What
 * prompts cost answers (harm: TPOT of two mixed engines over that of one without prompts, for an
 * answer) is held against what the way costs (cost: by how much the first token comes later than of
 * two mixed engines). Cost: milliseconds. */
void plan_apart(const struct plan_case *c, const struct plan_load *w, double bw,
                struct plan_apart *out);

#endif
