/* SPDX-License-Identifier: Apache-2.0 */
/* What a server gives up of its own accord: files it does not need (Landlock), privileges, and
 * system calls that only an intruder would make (seccomp). */
#ifndef OS_SANDBOX_H
#define OS_SANDBOX_H

#include <stdbool.h>

#include "base/status.h"

struct os_path {
    const char
        *path; /* a file, or a folder with all that is below it; one that is not there is skipped */
    /* write: make and remove, too; folders or not; sockets */
    enum { OS_READ, OS_WRITE, OS_WRITE_DIRS, OS_WRITE_SOCKETS } may;
};

/* From now on this thread and those that it makes can open these paths only, and run no program
 * with more rights. *active: false where the kernel has no Landlock (then only the second half
 * holds). Errors: IO. Threads: before others are made. */
sl_status os_sandbox_files(const struct os_path *path, int n, bool *active,
                           sl_err *err) BASE_MUST_USE;
/* Drop every capability, but for binding ports below 1024 when keep_bind. The same threads. */
void os_sandbox_drop(bool keep_bind);
/* No thread of this process can run programs, make sockets, connect, trace, mount or load code into
 * the kernel any more: such calls fail with EPERM. local: sockets of this machine (AF_UNIX) can
 * still be made and connected. *active: false where the kernel has no seccomp. */
void os_sandbox_calls(bool local, bool *active);

#endif
