/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes of a machine have mapped, and processes that others watch. */
#ifndef OS_SHARE_H
#define OS_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define OS_SHARE_NAME 64

/* n bytes of zeros under a name of their own, which is told to the others, which take them; the
 * name goes when all have (os_share_unname), the memory with its last user. Errors: IO, NOMEM. */
sl_status os_share_make(char name[OS_SHARE_NAME], uint64_t n, void **p, sl_err *err) BASE_MUST_USE;
/* Errors: NOTFOUND, FORMAT (it has another size), NOMEM. */
sl_status os_share_take(const char *name, uint64_t n, void **p, sl_err *err) BASE_MUST_USE;
/* Take the pages of [at, at + n), near the calling thread, so that touching them can not fail.
 * Errors: NOMEM says how much there is, and what to do. */
sl_status os_share_reserve(const char *name, uint64_t at, uint64_t n, sl_err *err) BASE_MUST_USE;
void os_share_unname(const char *name);
void os_share_drop(void *p, uint64_t n); /* NULL is legal */

/* A file of this user that several processes have mapped, made with n bytes of zeros where it is
 * not there; the processes take bytes of it as locks, which the kernel lets go when they end. */
struct os_common {
    int fd; /* -1 = closed */
    uint64_t n;
    void *p; /* [n] */
};
/* Errors: IO (names it: it can not be had, or is another user's or no file). */
sl_status os_common_open(const char *path, uint64_t n, struct os_common *out,
                         sl_err *err) BASE_MUST_USE;
void os_common_close(struct os_common *c); /* twice is legal */
/* All zeros again, while no other process reads or writes it. Errors: IO. */
sl_status os_common_clear(const struct os_common *c, sl_err *err) BASE_MUST_USE;
bool os_common_lock(const struct os_common *c, uint64_t at); /* false: another process has it */
void os_common_unlock(const struct os_common *c, uint64_t at);
/* Has another process one of these locks? */
bool os_common_held(const struct os_common *c, uint64_t at, uint64_t n);

/* Of this process. */
int os_process_id(void);
/* A handle on a process, -1 where it can not be had (then it is never gone). */
int os_process_watch(int pid);
bool os_process_gone(int watch);
/* Is it stopped, by a signal or a debugger? *turns, or NULL: how often its first thread has left a
 * CPU so far (0 = unknown), which is more after it was made to go on. */
bool os_process_stopped(int pid, uint64_t *turns);
void os_process_unwatch(int watch);
/* This process is killed when the one that started it ends. */
void os_end_with_parent(void);
/* Sleep so long, under a second, and not as much longer as the system otherwise lets threads sleep
 * (50 us), that it may wake several at once. */
void os_nap(int64_t ns);
void os_host_name(char *out, size_t n);
/* Has this machine an interface that list names, or one with an address in a network that it names?
 * "eth0,10.0.0.0/24". */
bool os_has_network(const char *list);

#endif
