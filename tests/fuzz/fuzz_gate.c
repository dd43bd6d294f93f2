/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine and its fronts send each other: a stream of frames, whose bodies are read as their
 * type says. What is accepted lies where it should, and is put again to the same bytes. Rooms: gate
 * engine. */
#include <stdlib.h>
#include <string.h>

#include "gate/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void same(const struct gate_frame *f, const struct str *s)
{
    if (s->failed || s->n != f->body.size || memcmp(s->p, f->body.base, s->n) != 0) abort();
}

static void request(const struct gate_frame *f, struct arena *a, struct str *s)
{
    struct rd r = f->body;
    sl_request q;
    struct gate_grammar g;
    sl_err err;
    if (gate_read_request(&r, a, &q, &g, &err)) return;
    for (int i = 0; i < q.n_stop; i++)
        if (strlen(q.stop[i]) > f->body.size) abort();
    if (g.any) { /* its source can only be had of one that was compiled */
        if ((const uint8_t *)g.text < f->body.base || g.n > f->body.size) abort();
        return;
    }
    struct gate_tail tail = {q.n, q.first, q.timeout_ms, q.given, q.n_given, q.kv_from};
    gate_put_request(s, &q);
    gate_put_tail(s, &tail);
    same(f, s);
}

static void event(const struct gate_frame *f, struct arena *a, struct str *s)
{
    struct rd r = f->body;
    sl_event ev;
    sl_err err;
    if (gate_read_event(&r, a, &ev, &err)) return;
    if (ev.finish >= SL_N_FINISH || ev.n_text > f->body.size || ev.n_top < 0) abort();
    gate_put_event(s, &ev);
    same(f, s);
}

static void hello(const struct gate_frame *f)
{
    static struct gate_hello h;
    struct rd r = f->body;
    sl_err err;
    if (gate_read_hello(&r, &h, &err)) return;
    if (h.n_device < 0 || h.n_device > GATE_DEVICE_MAX || h.info.n_ctx < 1) abort();
    if (gate_print_differs(&h.print, &h.print)) abort();
}

static void state(const struct gate_frame *f)
{
    struct rd r = f->body;
    struct gate_state s;
    sl_err err;
    if (gate_read_state(&r, &s, &err) == SL_OK && rd_left(&r)) abort();
}

static void refusal(const struct gate_frame *f)
{
    struct rd r = f->body;
    sl_err why, err;
    if (gate_read_fail(&r, &why, &err) == SL_OK && (!why.code || strlen(why.text) > 239)) abort();
}

static void routed(const struct gate_frame *f)
{
    struct rd r = f->body;
    uint64_t count[3 * 4];
    sl_err err;
    if (gate_read_routed(&r, count, 3, 4, &err) == SL_OK && f->body.size != 8 + sizeof count)
        abort();
}

static void page(const struct gate_frame *f, struct str *s)
{
    struct rd r = f->body;
    sl_kv_page p;
    sl_err err;
    if (gate_read_page(&r, &p, &err)) return;
    if ((const uint8_t *)p.bytes < f->body.base || p.n_bytes > f->body.size) abort();
    gate_put_page(s, &p);
    same(f, s);
}

static void body(const struct gate_frame *f)
{
    struct arena a;
    struct str s;
    mem_arena_init(&a, MEM_REQUEST, (size_t)64 << 20);
    str_init(&s, MEM_REQUEST, 0);
    if (f->type == GATE_SUBMIT || f->type == GATE_RESUME || f->type == GATE_PREFILL)
        request(f, &a, &s);
    if (f->type == GATE_EVENTS) event(f, &a, &s);
    if (f->type == GATE_HELLO) hello(f);
    if (f->type == GATE_STATS) state(f);
    if (f->type == GATE_FAIL) refusal(f);
    if (f->type == GATE_ROUTED) routed(f);
    if (f->type == GATE_PAGE) page(f, &s);
    str_fini(&s);
    mem_arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gate_frame f;
    size_t used;
    sl_err err;
    while (gate_frame_next(data, n, 1 << 20, &f, &used, &err) == SL_OK && used) {
        if (used > n || f.body.size > n - GATE_HEAD) abort();
        body(&f);
        data += used;
        n -= used;
    }
    return 0;
}
