/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers say in the environment. */
#include <stdlib.h>

#include "dist/dist.h"
#include "test.h"

static const char *const names[] = {"OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "PMI_SIZE",
                                    "PMI_RANK",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_PROCID",
                                    "SLURM_LOCALID",
                                    "SLURM_CPU_BIND",
                                    "OMPI_MCA_orte_bound_at_launch"};

static void clear(void)
{
    for (int i = 0; i < BASE_COUNT_OF(names); i++)
        unsetenv(names[i]);
}

TEST(dist_launchers_are_read)
{
    static const struct {
        const char *size, *rank, *n, *r;
        int want_n, want_rank;
    } all[] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "4", "3", 4, 3},
        {"PMI_SIZE", "PMI_RANK", "2", "0", 2, 0},
        {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "8", "7", 8, 7},
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "4", "4", 1, 0},
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "4", "x", 1, 0},
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "-4", "0", 1, 0},
        {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "4", "0", 1, 0},
        {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", "", 1, 0},
    };
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        clear();
        setenv(all[i].size, all[i].n, 1);
        setenv(all[i].rank, all[i].r, 1);
        struct dist_launch l = dist_launched();
        assert_int_equal(l.n, all[i].want_n);
        assert_int_equal(l.rank, all[i].want_rank);
    }
    clear();
    setenv(names[0], "4", 1);
    setenv(names[1], "3", 1);
    setenv(names[2], "2", 1);
    setenv(names[3], "1", 1);
    struct dist_launch l = dist_launched();
    assert_int_equal(l.n_here, 2);
    assert_int_equal(l.rank_here, 1);
    assert_false(l.bound);
    setenv(names[9], "quiet,mask_cpu:0x1", 1);
    assert_true(dist_launched().bound);
    setenv(names[9], "quiet,none", 1);
    assert_false(dist_launched().bound);
    setenv(names[10], "1", 1);
    assert_true(dist_launched().bound);
    clear();
}
