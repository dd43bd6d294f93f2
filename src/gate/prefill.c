/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that compute prompts for another one: a front to them, and the thread that reads what
 * they give. They may come and go; what they lose is computed by the engine that asked. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gate/gate.h"
#include "par/par.h"

#define MOMENT_NS ((int64_t)500 * 1000000)

struct gate_prefill {
    sl_engine *front;
    par_side *thread;
    atomic_bool stopping;
    char refusal[sizeof(((sl_err *)0)->text)];
};

static void loop(void *arg)
{
    gate_prefill *p = arg;
    sl_err err;
    while (!atomic_load(&p->stopping)) {
        sl_wait(p->front, 100);
        if (sl_step(p->front, &err)) log_msg(LOG_WARN, "prefill: %s", err.text);
    }
}

/* Those that are there greet. Refused by one where no other is there: REQUEST. */
static sl_status greet(gate_prefill *p, sl_err *err)
{
    int64_t end = clock_now_ns() + MOMENT_NS;
    bool ready = false;
    do {
        SL_TRY(sl_step(p->front, err));
        ready = sl_ready(p->front);
        if (ready) break;
        if (p->refusal[0]) return SL_FAIL(err, REQUEST, "--prefill %s", p->refusal);
        sl_wait(p->front, 20);
    } while (clock_now_ns() < end);
    if (!ready)
        log_msg(LOG_WARN, "no engine is there yet that computes prompts: they are computed here");
    if (p->refusal[0]) log_msg(LOG_WARN, "%s", p->refusal);
    snprintf(p->refusal, sizeof p->refusal, "the log has them"); /* from now on */
    return SL_OK;
}

static sl_status open_all(gate_prefill *p, const struct gate_prefill_opts *o, sl_err *err)
{
    struct gate_front_opts fo = {.model = o->model, .n_path = o->n_path, .like = o->engine,
                                 .refusal = p->refusal};
    memcpy(fo.path, o->path, sizeof fo.path);
    SL_TRY(gate_front_open(&fo, &p->front, err));
    SL_TRY(greet(p, err));
    SL_TRY(par_side_open(loop, p, &p->thread, err));
    return sl_prefill_by(o->engine, p->front, o->from_tok, err);
}

sl_status gate_prefill_open(const struct gate_prefill_opts *o, gate_prefill **out, sl_err *err)
{
    void *m = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &m, err));
    *out = m; /* also where it fails: then the engine is closed first, too */
    return open_all(*out, o, err);
}

void gate_prefill_close(gate_prefill *p)
{
    if (!p) return;
    atomic_store(&p->stopping, true);
    if (p->front) sl_wake(p->front);
    par_side_close(p->thread);
    sl_engine_close(p->front);
    mem_free(p);
}
