/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank's CPUs reach, and what moving rows between ranks costs: of processes of a launcher
 * (doctor --ranks), and of parts of this one (plan --this-box). */
#ifndef TOOLS_RANK_PROBE_H
#define TOOLS_RANK_PROBE_H

#include "dev/dev.h"
#include "dist/dist.h"

/* GB/s of reads, Gop/s of 8-bit products. */
struct rank_pace {
    double gbps, gops;
};
struct rank_speed {
    char isa[24];
    int32_t n_thread;
    struct rank_pace all;   /* while all ranks do the same */
    struct rank_pace alone; /* while the others of its host rest */
    double op_us;           /* workers begin, and are waited for */
};
/* Which of the ranks of its host this one is, and how many the host with most has. */
struct rank_turn {
    int i, n;
};
/* Of a rank's device; all ranks call it at the same time. e: its end, opened with n_join 1, with
 * room for rows; NULL where it is the only one. Errors: as dist_status. */
sl_status rank_speed_get(dist *e, dev *d, const struct rank_turn *t, struct rank_speed *out,
                         sl_err *err) BASE_MUST_USE;

/* A short move, and the bytes that come into each rank of a long one. */
struct rank_way {
    double us, gbps;
};
/* Joins of all ranks; of those of a host, n_here of them where there are several hosts of more than
 * one; and from a stage, such a host or a rank, to the next. */
struct rank_ways {
    struct rank_way all, host, hop;
    double step_us; /* home: a step of nothing */
};
#define RANK_PROBE_ROW ((int64_t)(256 << 10) * 4) /* bytes of a rank's row */
/* Of a rank's end that was opened with n_join 1, and room for such rows; all ranks call it. Errors:
 * NOMEM, as dist_status. */
sl_status rank_ways_get(dist *d, int n_here, struct rank_ways *out, sl_err *err) BASE_MUST_USE;

#endif
