/* SPDX-License-Identifier: Apache-2.0 */
/* What the two reports of doctor share, and the one of --ranks: what the processes that a launcher
 * started see of their machines, and how fast they exchange rows. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include "cmd.h"
#include "text/json.h"

struct doctor_advice {
    char text[16][160];
    int n;
};
void doctor_advise(struct doctor_advice *a, bool when, const char *text);
/* A line each; none: what stands where there is none. */
void doctor_print_advice(const struct doctor_advice *a, const char *none);
void doctor_put_advice(const struct doctor_advice *a, struct json_w *w);

/* Every process of the launcher calls it; rank 0 prints. Returns the exit code. */
int doctor_ranks(const struct opt_common *o);

#endif
