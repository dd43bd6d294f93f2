/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: memory, recordings, submits. The calling thread's context is set in every entry, for
 * engines open a device on one thread and run it on another. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dev/cuda/cuda.h"

#define WAIT_S 60
#define SPIN_NS 200000 /* then it sleeps between questions */
#define NAP_NS 20000

static sl_status failed(const struct cuda *v, int r, const char *what, sl_err *err)
{
    if (r == CUDA_NO_MEMORY)
        return SL_FAIL(err, NOMEM, "%s: %s", what, dev_cuda_text(v, r));
    return SL_FAIL(err, INTERNAL, "%s: %s", what, dev_cuda_text(v, r));
}

/* After an error of what ran, nothing of the context can be used. */
static sl_status lost(const struct cuda *v, int r, sl_err *err)
{
    return SL_FAIL(err, DEVICE, "lost (%s)", dev_cuda_text(v, r));
}

static int enter(const struct cuda *v)
{
    return v->CtxSetCurrent(v->ctx);
}

/* ---- memory ---- */

static sl_status no_room(const struct cuda *v, int r, int64_t n, sl_err *err)
{
    size_t left = 0, total = 0;
    if (r != CUDA_NO_MEMORY || v->MemGetInfo(&left, &total)) return failed(v, r, "memory", err);
    return SL_FAIL(err, NOMEM, "%.1f MiB needed, %.1f free (%s)", (double)n / (1 << 20),
                   (double)left / (1 << 20), dev_cuda_text(v, r));
}

static sl_status cuda_mem(void *g, int64_t n, bool pinned, struct gpu_mem *out, sl_err *err)
{
    struct cuda *v = g;
    struct gpu_mem m = {.n = n};
    void *host = NULL;
    int r = enter(v);
    if (!r && !pinned) r = v->MemAlloc(&m.at, (size_t)n);
    if (!r && pinned)
        r = v->MemHostAlloc(&host, (size_t)n, CUDA_HOST_ANY_CONTEXT | CUDA_HOST_MAPPED);
    if (r) return no_room(v, r, n, err);
    m.host = host;
    if (pinned) r = v->MemHostGetDevicePointer(&m.at, host, 0);
    if (r) {
        (void)v->MemFreeHost(host);
        return failed(v, r, "cuMemHostGetDevicePointer", err);
    }
    *out = m;
    return SL_OK;
}

static void cuda_mem_free(void *g, struct gpu_mem *m)
{
    struct cuda *v = g;
    (void)enter(v);
    if (m->host)
        (void)v->MemFreeHost(m->host);
    else if (m->n)
        (void)v->MemFree(m->at);
    *m = (struct gpu_mem){0};
}

static sl_status cuda_mem_left(void *g, int64_t *out, sl_err *err)
{
    struct cuda *v = g;
    size_t left = 0, total = 0;
    int r = enter(v);
    if (!r) r = v->MemGetInfo(&left, &total);
    *out = (int64_t)left;
    return r ? failed(v, r, "cuMemGetInfo", err) : SL_OK;
}

/* ---- recordings ---- */

static int add_stamp(struct cuda *v, cuda_graph *graph, uint64_t which, int i, const int after[2])
{
    cuda_event **e = &v->stamp[which];
    int r = *e ? 0 : v->EventCreate(e, CUDA_EVENT_TIMED);
    if (r) return r;
    return v->GraphAddEventRecordNode(&v->node[i], graph, v->node + after[0],
                                      (size_t)(after[1] - after[0]), *e);
}

static int add_entry(struct cuda *v, cuda_graph *graph, const struct gpu_entry *e, int i,
                     const int after[2])
{
    cuda_node *const *first = v->node + after[0];
    size_t n = (size_t)(after[1] - after[0]);
    if (e->kind == GPU_STAMP) return add_stamp(v, graph, e->u.c.to, i, after);
    if (e->kind == GPU_LAUNCH) {
        uint8_t k[sizeof e->u.k];
        void *params[] = {k};
        struct cuda_launch l = {.fn = v->fn[e->kernel],
                                .grid = {e->grid[0], e->grid[1], e->grid[2]},
                                .block = {(unsigned)dev_cuda_code[e->kernel].n_lane, 1, 1},
                                .params = params};
        memcpy(k, e->u.k, sizeof k);
        return v->GraphAddKernelNode(&v->node[i], graph, first, n, &l);
    }
    if (e->kind == GPU_FILL) {
        struct cuda_fill f = {.to = e->u.c.to,
                              .pitch = e->u.c.n,
                              .word = (unsigned)e->u.c.from,
                              .word_bytes = 4,
                              .n_word = e->u.c.n / 4,
                              .height = 1};
        return v->GraphAddMemsetNode(&v->node[i], graph, first, n, &f, v->ctx);
    }
    struct cuda_side from = {.kind = CUDA_MEM_BY_ADDRESS, .at = e->u.c.from}, to = from;
    to.at = e->u.c.to;
    from.pitch = to.pitch = e->u.c.n;
    from.height = to.height = 1;
    struct cuda_copy c = {.from = from, .to = to, .n_bytes = e->u.c.n, .height = 1, .depth = 1};
    return v->GraphAddMemcpyNode(&v->node[i], graph, first, n, &c, v->ctx);
}

/* Entries side by side all follow those that lie side by side before them. */
static int add_all(struct cuda *v, cuda_graph *graph, const struct gpu_entry *log, int n)
{
    int after[2] = {0, 0}, from = 0, r = 0;
    for (int i = 0; i < n && !r; i++) {
        if (log[i].barrier) {
            after[0] = from;
            after[1] = from = i;
        }
        r = add_entry(v, graph, &log[i], i, after);
    }
    return r;
}

static sl_status cuda_record(void *g, const struct gpu_entry *log, int n, void **out, sl_err *err)
{
    struct cuda *v = g;
    cuda_graph *graph = NULL;
    cuda_exec *exec = NULL;
    int r = enter(v);
    if (!r) r = v->GraphCreate(&graph, 0);
    if (!r) r = add_all(v, graph, log, n);
    if (!r) r = v->GraphInstantiate(&exec, graph, 0);
    if (graph) (void)v->GraphDestroy(graph);
    *out = exec;
    return r ? failed(v, r, "a graph", err) : SL_OK;
}

static sl_status cuda_times(void *g, int n, int64_t *out)
{
    struct cuda *v = g;
    int r = enter(v);
    for (int i = 0; i < n && !r; i++) {
        float ms = 0;
        if (i) r = v->EventElapsedTime(&ms, v->stamp[0], v->stamp[i]);
        out[i] = (int64_t)((double)ms * 1e6);
    }
    return r ? failed(v, r, "cuEventElapsedTime", NULL) : SL_OK;
}

static void cuda_forget(void *g, void *rec)
{
    struct cuda *v = g;
    (void)enter(v);
    (void)v->GraphExecDestroy(rec);
}

/* An event stands for a later submit, or send, when its place is taken by that: what waits for it
 * waits longer. */
static cuda_event *event_of(cuda_event *const *all, uint64_t n)
{
    return all[n % CUDA_EVENTS];
}

static sl_status cuda_submit(void *g, void *rec, uint64_t n_send, sl_err *err)
{
    struct cuda *v = g;
    int r = enter(v);
    if (!r && n_send > v->n_send_waited) {
        r = v->StreamWaitEvent(v->stream, event_of(v->sent, n_send), 0);
        v->n_send_waited = n_send;
    }
    if (!r) r = v->GraphLaunch(rec, v->stream);
    if (r) return r == CUDA_NO_MEMORY ? failed(v, r, "cuGraphLaunch", err) : lost(v, r, err);
    r = v->EventRecord(v->event[(v->n_submit + 1) % CUDA_EVENTS], v->stream);
    if (r) {
        (void)v->StreamSynchronize(v->stream); /* nobody can wait for it later */
        return lost(v, r, err);
    }
    v->n_submit++;
    return SL_OK;
}

/* Until it is reached. */
static sl_status wait_for(const struct cuda *v, cuda_event *event, sl_err *err)
{
    int64_t t0 = clock_now_ns(), t = t0;
    int r = enter(v);
    if (!r) r = v->EventQuery(event);
    while (r == CUDA_NOT_READY && t - t0 < (int64_t)WAIT_S * 1000000000) {
        if (t - t0 > SPIN_NS) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        r = v->EventQuery(event);
        t = clock_now_ns();
    }
    if (r == CUDA_NOT_READY) return SL_FAIL(err, DEVICE, "lost (no answer in %d s)", WAIT_S);
    return r ? lost(v, r, err) : SL_OK;
}

static sl_status cuda_wait(void *g, uint64_t n, sl_err *err)
{
    struct cuda *v = g;
    return n ? wait_for(v, event_of(v->event, n), err) : SL_OK;
}

/* ---- what is sent ---- */

static sl_status cuda_wait_send(void *g, uint64_t n, sl_err *err)
{
    struct cuda *v = g;
    return n ? wait_for(v, event_of(v->sent, n), err) : SL_OK;
}

static sl_status cuda_send(void *g, const struct gpu_sending *s, sl_err *err)
{
    struct cuda *v = g;
    int r = enter(v);
    if (!r && s->after) r = v->StreamWaitEvent(v->send_stream, event_of(v->event, s->after), 0);
    if (!r) r = v->MemcpyAsync(s->to, s->from, s->n, v->send_stream);
    if (r) return lost(v, r, err);
    r = v->EventRecord(event_of(v->sent, v->n_send + 1), v->send_stream);
    if (r) {
        (void)v->StreamSynchronize(v->send_stream); /* nobody can wait for it later */
        return lost(v, r, err);
    }
    v->n_send++;
    return SL_OK;
}

/* ---- kernels ---- */

static sl_status cuda_kernel(void *g, enum gpu_kernel id, bool fused, sl_err *err)
{
    struct cuda *v = g;
    const struct cuda_code *code = &dev_cuda_code[id];
    int r = enter(v);
    (void)fused; /* it is, or the self-test refuses the device */
    if (!r) r = v->ModuleLoadData(&v->module[id], code->ptx);
    if (!r) r = v->ModuleGetFunction(&v->fn[id], v->module[id], code->name);
    return r ? failed(v, r, code->name, err) : SL_OK;
}

/* ---- open ---- */

static sl_status ask_units(const struct cuda *v, struct gpu_limits *lim, sl_err *err)
{
    int major = 0, minor = 0;
    int r = v->DeviceGetAttribute(&major, CUDA_ATTR_MAJOR, v->device);
    if (!r) r = v->DeviceGetAttribute(&minor, CUDA_ATTR_MINOR, v->device);
    if (r) return failed(v, r, "a card", err);
    lim->has_units = 10 * major + minor >= CUDA_UNITS;
    if (lim->has_units)
        snprintf(lim->units, sizeof lim->units, "int8, mma.sync 16x8x32");
    else
        snprintf(lim->units, sizeof lim->units, "compute capability %d.%d: they want %d.%d", major,
                 minor, CUDA_UNITS / 10, CUDA_UNITS % 10);
    return SL_OK;
}

static sl_status pick_card(struct cuda *v, int which, struct gpu_limits *lim, sl_err *err)
{
    int n = 0, version = 0;
    char text[160];
    size_t total = 0;
    int r = v->DeviceGetCount(&n);
    if (!r && which >= n) {
        dev_gpu_list_text(dev_cuda_list, text, sizeof text);
        return SL_FAIL(err, NOTFOUND, "there %s %d: %s", n == 1 ? "is" : "are", n, text);
    }
    if (!r) r = v->DeviceGet(&v->device, which);
    if (!r) r = v->DeviceGetName(lim->text, 90, v->device);
    if (!r) r = v->DeviceTotalMem(&total, v->device);
    if (!r) r = v->DriverGetVersion(&version);
    if (r) return failed(v, r, "a card", err);
    snprintf(lim->driver, sizeof lim->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    lim->mem_total = lim->slab = (int64_t)total;
    lim->has_clock = true;
    SL_TRY(ask_units(v, lim, err));
    dev_cuda_lacks(v, v->device, text, sizeof text);
    return *text ? SL_FAIL(err, UNSUPPORTED, "%s: %s", lim->text, text) : SL_OK;
}

static sl_status open_rest(struct cuda *v, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc(MEM_SCRATCH, GPU_LOG * sizeof *v->node, &p, err));
    v->node = p;
    int r = v->DevicePrimaryCtxRetain(&v->ctx, v->device);
    if (!r) r = enter(v);
    if (!r) r = v->StreamCreate(&v->stream, CUDA_STREAM_OF_ITS_OWN);
    if (!r) r = v->StreamCreate(&v->send_stream, CUDA_STREAM_OF_ITS_OWN);
    for (int i = 0; i < CUDA_EVENTS && !r; i++)
        r = v->EventCreate(&v->event[i], CUDA_EVENT_NO_TIMING);
    for (int i = 0; i < CUDA_EVENTS && !r; i++)
        r = v->EventCreate(&v->sent[i], CUDA_EVENT_NO_TIMING);
    return r ? failed(v, r, "opening", err) : SL_OK;
}

static void cuda_close(void *g)
{
    struct cuda *v = g;
    if (v->ctx) {
        (void)enter(v);
        for (int i = 0; i < GPU_N_KERNEL; i++)
            if (v->module[i]) (void)v->ModuleUnload(v->module[i]);
        for (int i = 0; i < CUDA_EVENTS; i++)
            if (v->event[i]) (void)v->EventDestroy(v->event[i]);
        for (int i = 0; i < CUDA_EVENTS; i++)
            if (v->sent[i]) (void)v->EventDestroy(v->sent[i]);
        for (int i = 0; i < GPU_STAMPS; i++)
            if (v->stamp[i]) (void)v->EventDestroy(v->stamp[i]);
        if (v->send_stream) (void)v->StreamDestroy(v->send_stream);
        if (v->stream) (void)v->StreamDestroy(v->stream);
        (void)v->CtxSetCurrent(NULL);
        (void)v->DevicePrimaryCtxRelease(v->device);
    }
    mem_free(v->node);
    dev_cuda_unload(v);
    mem_free(v);
}

static sl_status cuda_open(int which, void **out, struct gpu_limits *lim, sl_err *err)
{
    void *p = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct cuda), &p, err));
    struct cuda *v = p;
    *lim = (struct gpu_limits){0};
    SL_TRY_OUT(dev_cuda_load(v, err));
    SL_TRY_OUT(pick_card(v, which, lim, err));
    SL_TRY_OUT(open_rest(v, err));
out:
    if (st)
        cuda_close(v);
    else
        *out = v;
    return st;
}

static const struct gpu_driver driver = {.name = "cuda",
                                         .open = cuda_open,
                                         .close = cuda_close,
                                         .mem = cuda_mem,
                                         .mem_free = cuda_mem_free,
                                         .mem_left = cuda_mem_left,
                                         .kernel = cuda_kernel,
                                         .record = cuda_record,
                                         .forget = cuda_forget,
                                         .submit = cuda_submit,
                                         .wait = cuda_wait,
                                         .send = cuda_send,
                                         .wait_send = cuda_wait_send,
                                         .times = cuda_times};

static sl_status open_device(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    return dev_gpu_open(&dev_cuda_class, &driver, options, o, out, err);
}

const struct dev_class dev_cuda_class = {
    .name = "cuda", .open = open_device, .list = dev_cuda_list, DEV_GPU_ENTRIES};
