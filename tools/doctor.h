/* SPDX-License-Identifier: Apache-2.0 */
/* doctor --ranks: what the processes that a launcher started see of their machines, and how fast
 * they exchange rows. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include "cmd.h"

/* Every process of the launcher calls it; rank 0 prints. Returns the exit code. */
int doctor_ranks(const struct opt_common *o);

#endif
