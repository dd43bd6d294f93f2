/* SPDX-License-Identifier: Apache-2.0 */
/* The module that speaks MPI: the only place of its calls. MPI-3.1; messages only, so nothing
 * is added up here. */
#include "dist/module.h"

#include <mpi.h>
#include <stddef.h>
#include <string.h>

static MPI_Request under_way[DIST_MODULE_PLACES];
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
    for (int i = 0; i < DIST_MODULE_PLACES; i++)
        under_way[i] = MPI_REQUEST_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, n);
    rc = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    if (rc != MPI_SUCCESS) return said(rc);
    MPI_Comm_size(node, n_node);
    return said(MPI_Comm_free(&node));
}

static const char *mpi_send(int place, int to, int tag, const void *p, int n)
{
    return said(MPI_Isend(p, n, MPI_BYTE, to, tag, MPI_COMM_WORLD, &under_way[place]));
}

static const char *mpi_recv(int place, int from, int tag, void *p, int n)
{
    return said(MPI_Irecv(p, n, MPI_BYTE, from, tag, MPI_COMM_WORLD, &under_way[place]));
}

static const char *mpi_test(int place, bool *done, int *n)
{
    int flag = 0;
    MPI_Status st;
    const char *why = said(MPI_Test(&under_way[place], &flag, &st));
    *n = 0;
    *done = flag;
    if (!why && flag && MPI_Get_count(&st, MPI_BYTE, n) != MPI_SUCCESS) *n = 0;
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

static void mpi_close(void)
{
    int begun = 0, over = 0;
    if (MPI_Initialized(&begun) != MPI_SUCCESS || !begun) return;
    if (MPI_Finalized(&over) == MPI_SUCCESS && !over) MPI_Finalize();
}

__attribute__((visibility("default"))) extern const struct dist_module sluice_mpi_module;
const struct dist_module sluice_mpi_module = {
    .version = DIST_MODULE_VERSION,
    .open = mpi_open,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .library = mpi_library,
    .close = mpi_close,
};
