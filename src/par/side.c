/* SPDX-License-Identifier: Apache-2.0 */
/* A thread beside the one that opened a team: it may open and call a team of its own. */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "par/par.h"

struct par_side {
    pthread_t thread;
    void (*fn)(void *arg);
    void *arg;
};

static void *side_main(void *arg)
{
    struct par_side *s = arg;
    s->fn(s->arg);
    return NULL;
}

sl_status par_side_open(void (*fn)(void *arg), void *arg, par_side **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct par_side), &p, err));
    struct par_side *s = p;
    s->fn = fn;
    s->arg = arg;
    int e = pthread_create(&s->thread, NULL, side_main, s);
    if (e) {
        mem_free(s);
        return SL_FAIL(err, IO, "cannot make a thread: %s", strerror(e));
    }
    *out = s;
    return SL_OK;
}

void par_side_close(par_side *s)
{
    if (!s) return;
    pthread_join(s->thread, NULL);
    mem_free(s);
}
