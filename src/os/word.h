/* SPDX-License-Identifier: Apache-2.0 */
/* A word that only rises, to wait on: polled, and slept on when that takes long. Who raises it
 * wakes sleepers only when there are some: a sleeper counts itself before it looks at the word
 * again, who raises it looks at the count afterwards, both sequentially consistent, so one of the
 * two sees the other. Of the threads of one process, or, where shared says so, of all processes
 * that have it mapped. Zeros are a word. */
#ifndef OS_WORD_H
#define OS_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct os_word {
    _Alignas(64) atomic_uint n; /* release by who raises it; pairs with acquire in os_word_there */
    atomic_int n_sleep;
    bool shared; /* set before anybody waits */
};

static inline bool os_word_there(struct os_word *w, unsigned goal)
{
    return (int)(atomic_load_explicit(&w->n, memory_order_acquire) - goal) >= 0;
}

/* Whoever sleeps looks again: after w->n was raised by hand, sequentially consistent. */
void os_word_wake(struct os_word *w);
void os_word_set(struct os_word *w, unsigned n);
void os_word_raise(struct os_word *w); /* by one */
/* Sleep until it is there, or for timeout_ms, about (-1 = no limit): is it there? */
bool os_word_sleep(struct os_word *w, unsigned goal, int timeout_ms);

static inline bool os_word_poll(struct os_word *w, unsigned goal, int times)
{
    for (int i = 0; i < times; i++) {
        if (os_word_there(w, goal)) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    return false;
}

/* Poll for spin_ns from t0 on. *t: the clock when it was looked at last. */
static inline bool os_word_spin(struct os_word *w, unsigned goal, int64_t spin_ns, int64_t t0,
                                int64_t *t)
{
    for (*t = t0; *t - t0 < spin_ns; *t = clock_now_ns())
        if (os_word_poll(w, goal, 32)) return true;
    return false;
}

#endif
