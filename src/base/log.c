/* SPDX-License-Identifier: Apache-2.0 */
/* Writes lines to stderr, one write for each; the level is one atomic. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic int level_now =
    LOG_WARN; /* any thread; relaxed: a late change of level loses nothing */

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&level_now, memory_order_relaxed);
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    if (level > log_get_level()) return;
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    fprintf(stderr, "sluice: %s\n", line);
}
