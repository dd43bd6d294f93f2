/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers leave in the environment of the processes that they start. */
#include <stdlib.h>
#include <string.h>

#include "dist/dist.h"

static bool number(const char *name, int *out)
{
    const char *v = name ? getenv(name) : NULL;
    char *end;
    if (!v || !*v) return false;
    long x = strtol(v, &end, 10);
    if (*end || x < 0 || x > 1 << 20) return false;
    *out = (int)x;
    return true;
}

static bool is_bound(void)
{
    const char *slurm = getenv("SLURM_CPU_BIND");
    return getenv("OMPI_MCA_orte_bound_at_launch") || (slurm && strstr(slurm, "mask_"));
}

struct dist_launch dist_launched(void)
{
    static const struct {
        const char *n, *rank, *n_here, *rank_here;
    } of[] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
         "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
        {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, "SLURM_LOCALID"},
    };
    for (int i = 0; i < BASE_COUNT_OF(of); i++) {
        struct dist_launch l = {0};
        if (!number(of[i].n, &l.n) || !number(of[i].rank, &l.rank) || l.rank >= l.n) continue;
        if (!number(of[i].n_here, &l.n_here)) l.n_here = 0;
        if (!number(of[i].rank_here, &l.rank_here)) l.rank_here = 0;
        l.bound = is_bound();
        return l;
    }
    return (struct dist_launch){.n = 1, .n_here = 1};
}

sl_status dist_check_bound(const bool *same, int n, int n_cpu, sl_err *err)
{
    int n_same = 0, rank[DIST_RANK_MAX] = {0};
    for (int r = 0; r < n; r++)
        if (same[r]) rank[n_same++] = r;
    if (!dist_launched().bound || n_same <= n_cpu) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "ranks %d and %d were bound to the same CPUs, %d for %d ranks: mpirun --map-by "
                   "numa --bind-to numa, or --bind-to none",
                   rank[0], rank[1], n_cpu, n_same);
}
