/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define BYTES_MAX ((long)256 << 20)
/* Nanoseconds as microseconds: printing a double takes ten times as long, ten times a step. */
#define US "%lld.%03d"
#define AS_US(ns) (long long)((ns) / 1000), (int)((ns) % 1000)

struct trace {
    FILE *f;
    long n;
    bool any;
};

sl_status trace_open(const char *path, struct trace **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    struct trace *t = p;
    t->f = fopen(path, "w");
    if (!t->f) {
        mem_free(t);
        return SL_FAIL(err, IO, "--trace %.150s: %s", path, strerror(errno));
    }
    t->n = fprintf(t->f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    *out = t;
    return SL_OK;
}

static void span(struct trace *t, const char *name, int64_t t0_ns, int64_t ns, const char *args)
{
    t->n += fprintf(t->f,
                    "%s\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":" US ",\"dur\":" US
                    ",\"args\":{%s}}",
                    t->any ? "," : "", name, AS_US(t0_ns), AS_US(ns), args);
    t->any = true;
}

void trace_step(void *user, const sl_step_record *s)
{
    struct trace *t = user;
    char args[200];
    if (t->n > BYTES_MAX) return;
    snprintf(args, sizeof args,
             "\"step\":%llu,\"prompt\":%d,\"decode\":%d,\"sequences\":%d,\"preempted\":%d",
             (unsigned long long)s->n, s->n_prompt, s->n_decode, s->n_seq, s->n_preempt);
    span(t, "step", s->t0_ns, s->plan_ns + s->compute_ns + s->sample_ns, args);
    span(t, "plan", s->t0_ns, s->plan_ns, "");
    span(t, "compute", s->t0_ns + s->plan_ns, s->compute_ns, "");
    span(t, "sample", s->t0_ns + s->plan_ns + s->compute_ns, s->sample_ns, "");
    t->n += fprintf(t->f,
                    ",\n{\"name\":\"requests\",\"ph\":\"C\",\"pid\":1,\"ts\":" US ",\"args\":"
                    "{\"running\":%d,\"waiting\":%d}},\n{\"name\":\"kv tokens\",\"ph\":\"C\","
                    "\"pid\":1,\"ts\":" US ",\"args\":{\"used\":%lld}}",
                    AS_US(s->t0_ns), s->n_running, s->n_waiting, AS_US(s->t0_ns),
                    (long long)s->kv_used_tok);
}

void trace_close(struct trace *t)
{
    if (!t) return;
    fprintf(t->f, "\n]}\n");
    fclose(t->f);
    mem_free(t);
}
