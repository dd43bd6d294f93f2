/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the engine share: the tiny checkpoints, and a score whose rows are not looked at.
 */
#ifndef ENGINE_TINY_H
#define ENGINE_TINY_H

#include <stdio.h>
#include <stdlib.h>

#include "os/os.h"
#include "test.h"

/* The path of a tiny checkpoint, until the next call. The test is skipped where there is none. */
static inline const char *tiny(const char *name)
{
    static char path[1024];
    const char *dir = getenv("SLUICE_TINY");
    snprintf(path, sizeof path, "%s/%s", dir ? dir : TEST_TINY, name);
    if (os_path_kind(path) == OS_NONE) skip();
    return path;
}

/* For sl_score. */
static inline int no_rows(void *user, int row0, int n_row, const float *logits)
{
    (void)user;
    (void)row0;
    (void)n_row;
    (void)logits;
    return 0;
}

#endif
