/* SPDX-License-Identifier: Apache-2.0 */
/* The module that speaks MPI: the only place of its calls. MPI-3.1, without floating-point
 * reductions. */
#include "dist/module.h"

#include <mpi.h>
#include <stddef.h>
#include <string.h>

static MPI_Request under_way = MPI_REQUEST_NULL;
static char text[MPI_MAX_ERROR_STRING + 1], version[MPI_MAX_LIBRARY_VERSION_STRING + 1];

static const char *said(int rc)
{
    int n = 0;
    if (rc == MPI_SUCCESS) return NULL;
    if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS) return "an error without a text";
    text[n] = 0;
    text[strcspn(text, "\n")] = 0;
    return text;
}

static const char *mpi_open(int *rank, int *n, int *n_node)
{
    int got = 0, before = 0;
    MPI_Comm node;
    if (MPI_Initialized(&before) == MPI_SUCCESS && before) return "a process opens ranks once";
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &got);
    if (rc != MPI_SUCCESS) return said(rc);
    if (got < MPI_THREAD_FUNNELED) return "it can not be used where there are threads";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, n);
    rc = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    if (rc != MPI_SUCCESS) return said(rc);
    MPI_Comm_size(node, n_node);
    return said(MPI_Comm_free(&node));
}

static const char *mpi_tell(int root, void *p, int n)
{
    return said(MPI_Ibcast(p, n, MPI_BYTE, root, MPI_COMM_WORLD, &under_way));
}

static const char *mpi_gather(int root, const void *mine, void *all, const int *n, const int *at)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (root < 0)
        return said(MPI_Iallgatherv(mine, n[rank], MPI_BYTE, all, n, at, MPI_BYTE, MPI_COMM_WORLD,
                                    &under_way));
    return said(MPI_Igatherv(mine, n[rank], MPI_BYTE, all, n, at, MPI_BYTE, root, MPI_COMM_WORLD,
                             &under_way));
}

static const char *mpi_test(bool *done)
{
    int flag = 0;
    const char *why = said(MPI_Test(&under_way, &flag, MPI_STATUS_IGNORE));
    *done = flag;
    return why;
}

static const char *mpi_library(void)
{
    int n = 0;
    if (MPI_Get_library_version(version, &n) != MPI_SUCCESS) return "MPI";
    version[n] = 0;
    version[strcspn(version, ",\n")] = 0; /* Open MPI's goes on with where it was built */
    return version;
}

static void mpi_abort(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void mpi_close(void)
{
    int over = 0;
    if (MPI_Finalized(&over) == MPI_SUCCESS && !over) MPI_Finalize();
}

__attribute__((visibility("default"))) extern const struct dist_module sluice_mpi_module;
const struct dist_module sluice_mpi_module = {
    .version = DIST_MODULE_VERSION,
    .open = mpi_open,
    .tell = mpi_tell,
    .gather = mpi_gather,
    .test = mpi_test,
    .library = mpi_library,
    .abort = mpi_abort,
    .close = mpi_close,
};
