/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the steps of an engine as a Chrome trace. */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

#define BYTES_MAX ((long)256 << 20)
#define BLOCK (64 * 1024) /* bytes that are written together */

struct trace {
    FILE *f;
    long n; /* bytes written */
    bool any;
    struct str out; /* not yet written */
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
    str_init(&t->out, MEM_MISC, 0);
    str_puts(&t->out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    *out = t;
    return SL_OK;
}

static void flush(struct trace *t)
{
    t->n += (long)fwrite(str_c(&t->out), 1, t->out.n, t->f);
    str_clear(&t->out);
}

/* All without printf, which takes longer than anything else between two short steps. */
static void number(struct str *s, const char *key, long long v)
{
    str_puts(s, key);
    str_int(s, v);
}

/* Nanoseconds as microseconds. */
static void us(struct str *s, const char *key, int64_t ns)
{
    int64_t part = ns % 1000;
    number(s, key, ns / 1000);
    const char digits[] = {'.', (char)('0' + part / 100), (char)('0' + part / 10 % 10),
                           (char)('0' + part % 10)};
    str_put(s, digits, sizeof digits);
}

/* Up to its arguments, in front of which the brace stands. */
static void span(struct trace *t, const char *name, int64_t t0_ns, int64_t ns)
{
    struct str *s = &t->out;
    str_puts(s, t->any ? ",\n{\"name\":\"" : "\n{\"name\":\"");
    str_puts(s, name);
    us(s, "\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":", t0_ns);
    us(s, ",\"dur\":", ns);
    str_puts(s, ",\"args\":{");
    t->any = true;
}

static void counter(struct str *s, const char *name, int64_t t0_ns)
{
    str_puts(s, ",\n{\"name\":\"");
    str_puts(s, name);
    us(s, "\",\"ph\":\"C\",\"pid\":1,\"ts\":", t0_ns);
}

void trace_step(void *user, const sl_step_record *r)
{
    struct trace *t = user;
    struct str *s = &t->out;
    if (t->n > BYTES_MAX) return;
    span(t, "step", r->t0_ns, r->plan_ns + r->compute_ns + r->sample_ns);
    number(s, "\"step\":", (long long)r->n);
    number(s, ",\"prompt\":", r->n_prompt);
    number(s, ",\"decode\":", r->n_decode);
    number(s, ",\"sequences\":", r->n_seq);
    number(s, ",\"preempted\":", r->n_preempt);
    str_puts(s, "}}");
    span(t, "plan", r->t0_ns, r->plan_ns);
    str_puts(s, "}}");
    span(t, "compute", r->t0_ns + r->plan_ns, r->compute_ns);
    str_puts(s, "}}");
    span(t, "sample", r->t0_ns + r->plan_ns + r->compute_ns, r->sample_ns);
    str_puts(s, "}}");
    counter(s, "requests", r->t0_ns);
    number(s, ",\"args\":{\"running\":", r->n_running);
    number(s, ",\"waiting\":", r->n_waiting);
    str_puts(s, "}}");
    counter(s, "kv tokens", r->t0_ns);
    number(s, ",\"args\":{\"used\":", r->kv_used_tok);
    str_puts(s, "}}");
    if (s->n >= BLOCK) flush(t);
}

void trace_close(struct trace *t)
{
    if (!t) return;
    str_puts(&t->out, "\n]}\n");
    flush(t);
    fclose(t->f);
    str_fini(&t->out);
    mem_free(t);
}
