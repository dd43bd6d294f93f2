/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: errors by errno, opening regular files. */
#ifndef OS_INTERNAL_H
#define OS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "os/os.h"

/* The status for errno e of a call on path: NOTFOUND or IO, "PATH: reason". */
sl_status os_fail_errno(int e, const char *path, sl_err *err);
/* Open a regular file for reading, without blocking and without touching anything that is not a
 * regular file. */
sl_status os_open_regular(const char *path, int *fd, struct stat *st, sl_err *err) BASE_MUST_USE;

/* One hardware thread that this process may run on. */
struct os_pu {
    int cpu;  /* number for affinity calls */
    int core; /* any number that is the same for the threads of one core */
    int numa;
};
#define OS_MAX_PU 4096

/* The allowed hardware threads in order of their number, and the caches of the first. Returns
 * how many, at least 1. */
int os_pu_list(struct os_pu *pu, struct os_topology *cache);

/* Cores of the memory node that has fewest of these; they are in the order of their cores. */
int os_node_cores(const struct os_pu *pu, int n_pu);
/* As if the cores, in the order of their numbers, were those of n memory nodes, as evenly as they
 * can be. */
void os_pretend_nodes(struct os_pu *pu, int n_pu, int n);
/* os_team_cpus of these hardware threads, whose order changes. */
int os_team_deal(struct os_pu *pu, int n_pu, const struct os_team *t, int *cpu);

/* Narrow t by the control groups below root that self (the text of /proc/self/cgroup, which is cut
 * into pieces) names and by those above them, of versions 2 and 1. */
void os_cgroup_limits(const char *root, char *self, struct os_topology *t);

#endif
