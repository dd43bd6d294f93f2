/* SPDX-License-Identifier: Apache-2.0 */
/* What the module that speaks MPI gives (module_mpi.c: a shared library of its own, loaded when
 * ranks are processes; nothing else knows MPI). Functions return NULL, or in MPI's words why they
 * failed. One operation is under way at a time: begun, then asked about until it is done, so that
 * who waits has a deadline of its own. */
#ifndef DIST_MODULE_H
#define DIST_MODULE_H

#include <stdbool.h>

#define DIST_MODULE_VERSION 1
#define DIST_MODULE_FILE "libsluice-mpi.so"
#define DIST_MODULE_SYMBOL "sluice_mpi_module"

struct dist_module {
    int version;
    const char *(*open)(int *rank, int *n, int *n_node); /* n_node: ranks on this machine */
    /* n bytes of root's p into the others' */
    const char *(*tell)(int root, void *p, int n);
    /* All ranks' bytes into all, rank r's n[r] of them from at[r] on; root -1, or of use to that
     * rank alone. */
    const char *(*gather)(int root, const void *mine, void *all, const int *n, const int *at);
    const char *(*test)(bool *done);
    const char *(*library)(void); /* its name and version */
    void (*abort)(int code);      /* ends every rank */
    void (*close)(void);          /* waits for the others */
};

#endif
