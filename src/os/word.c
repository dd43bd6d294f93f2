/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a word. */
#include "os/word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void futex(struct os_word *w, int op, unsigned v, const struct timespec *limit)
{
    (void)syscall(SYS_futex, &w->n, w->shared ? op : op | FUTEX_PRIVATE_FLAG, v, limit, NULL, 0);
}

void os_word_wake(struct os_word *w)
{
    if (atomic_load_explicit(&w->n_sleep, memory_order_seq_cst) > 0)
        futex(w, FUTEX_WAKE, 1 << 30, NULL);
}

void os_word_set(struct os_word *w, unsigned n)
{
    atomic_store_explicit(&w->n, n, memory_order_seq_cst);
    os_word_wake(w);
}

void os_word_raise(struct os_word *w)
{
    atomic_fetch_add_explicit(&w->n, 1, memory_order_seq_cst);
    os_word_wake(w);
}

bool os_word_sleep(struct os_word *w, unsigned goal, int timeout_ms)
{
    struct timespec limit = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    bool there = false;
    atomic_fetch_add_explicit(&w->n_sleep, 1, memory_order_seq_cst);
    do {
        unsigned now = atomic_load_explicit(&w->n, memory_order_seq_cst);
        there = (int)(now - goal) >= 0;
        if (!there) futex(w, FUTEX_WAIT, now, timeout_ms < 0 ? NULL : &limit);
    } while (!there && timeout_ms < 0);
    atomic_fetch_sub_explicit(&w->n_sleep, 1, memory_order_relaxed);
    return there || os_word_there(w, goal);
}
