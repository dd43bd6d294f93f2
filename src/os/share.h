/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes of a machine have mapped, and processes that others watch. */
#ifndef OS_SHARE_H
#define OS_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define OS_SHARE_NAME 64

/* n bytes of zeros under a name of their own, which is told to the others, who take them; the name
 * goes when all have (os_share_unname), the memory with its last user. Errors: IO, NOMEM. */
sl_status os_share_make(char name[OS_SHARE_NAME], uint64_t n, void **p, sl_err *err) BASE_MUST_USE;
/* Errors: NOTFOUND, FORMAT (it has another size), NOMEM. */
sl_status os_share_take(const char *name, uint64_t n, void **p, sl_err *err) BASE_MUST_USE;
/* Take the pages of [at, at + n), near the calling thread, so that touching them can not fail.
 * Errors: NOMEM says how much there is, and what to do. */
sl_status os_share_reserve(const char *name, uint64_t at, uint64_t n, sl_err *err) BASE_MUST_USE;
void os_share_unname(const char *name);
void os_share_drop(void *p, uint64_t n); /* NULL is legal */

int os_process_id(void);
/* A handle on a process, -1 where it can not be had (then it is never gone). */
int os_process_watch(int pid);
bool os_process_gone(int watch);
bool os_process_stopped(int pid); /* by a signal or a debugger */
void os_process_unwatch(int watch);
/* This process is killed when the one that started it ends. */
void os_end_with_parent(void);
void os_host_name(char *out, size_t n);

#endif
