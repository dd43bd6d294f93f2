/* SPDX-License-Identifier: Apache-2.0 */
/* What the module that speaks MPI gives (module_mpi.c: a shared library of its own, loaded when
 * ranks are processes; nothing else knows MPI). Functions return NULL, or in MPI's words why they
 * failed. Messages between two ranks are begun in a place and asked about until they are through,
 * so that a rank that waits has a deadline of its own, and knows for whom. */
#ifndef DIST_MODULE_H
#define DIST_MODULE_H

#include <stdbool.h>

#define DIST_MODULE_VERSION 4
#define DIST_MODULE_FILE "libsluice-mpi.so"
#define DIST_MODULE_SYMBOL "sluice_mpi_module"
#define DIST_MODULE_PLACES 1536

struct dist_module {
    int version;
    const char *(*open)(int *rank, int *n, int *n_node); /* n_node: ranks on this machine */
    /* n bytes that stay until it is through; of two ranks in order of their beginnings, by tag */
    const char *(*send)(int place, int to, int tag, const void *p, int n);
    const char *(*recv)(int place, int from, int tag, void *p, int n); /* at most n bytes */
    const char *(*test)(int place, bool *done, int *n);                /* n: bytes that came */
    const char *(*library)(void);                                      /* its name and version */
    void (*close)(void);                                               /* waits for the others */
};

#endif
