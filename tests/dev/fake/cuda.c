/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 for tests: cards whose memory is the host's at other addresses, and whose kernels
 * are C (simt.h). What is launched runs later, on a thread, in the last order that a graph's edges
 * allow; of several streams now one goes first and now another, as far as their waits allow. What a
 * caller may not do is an error or ends the program; at exit, what was not given back
 * is said.
 *
 * SL_FAKE_CUDA: words with commas between: count=N cards, mem=MIB of each, cc=61 compute
 * capability * 10, fail=K: the K-th call that can fail does, lost=K: so does what the K-th launch
 * runs, recordings=N: more do not fit, calls: how many there were is printed at exit. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dev/cuda/cuda.h"
#include "simt.h"

/* As the driver declares them. */
#define API __attribute__((visibility("default")))
#define X(name, symbol, params) API int symbol params;
CUDA_LIST(X)
#undef X

enum { BAD_VALUE = 1, BAD_CONTEXT = 201, BAD_HANDLE = 400, BAD_ADDRESS = 700, FAILED = 719 };
enum { N_KIND = 7 };
static const char *const kinds[N_KIND] = {"context", "memory", "module", "stream",
                                          "event",   "graph",  "recording"};
enum { CTX, MEM, MODULE, STREAM, EVENT, GRAPH, EXEC };

struct mem {
    struct mem *next;
    uint8_t *host;
    size_t n;
    bool pinned;
};
struct cuda_ctx {
    int n_ref;
};
struct cuda_module {
    char name[64];
};
struct cuda_fn {
    int unused;
};
struct cuda_event {
    cuda_stream *stream; /* NULL: it was never recorded */
    uint64_t at;         /* of its work; reached when that is done */
    bool timed;
    int64_t ns; /* when a graph came to it; 0: none did */
};
struct cuda_stream {
    cuda_stream *next;
    struct work *first, **last;
    uint64_t n_work, n_done;
};
struct cuda_node {
    int n_before, n_left;
    cuda_node *after[64]; /* what follows it */
    int n_after;
    const struct simt_kernel *kernel;
    unsigned grid[3];
    uint8_t args[128];
    struct cuda_copy copy;
    struct cuda_fill fill;
    cuda_event *event;
};
struct cuda_graph {
    cuda_node **node;
    int n;
};
struct cuda_exec {
    cuda_graph graph;
    cuda_event last; /* work that runs it */
};
struct work { /* a graph, a copy, or nothing, after an event */
    struct work *next;
    cuda_exec *exec;
    uint64_t to, from;
    size_t n_bytes;
    cuda_event after;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    pthread_t thread;
    bool runs, stop;
    cuda_stream *stream;
    uint64_t n_run;
    int error;
    /* what there is */
    struct mem *mem, *kept;
    size_t used, total;
    int n[N_KIND], count, cc;
    long fail, lost, most, n_call, n_launch;
    bool says_calls;
    cuda_ctx ctx[8];
} g = {.lock = PTHREAD_MUTEX_INITIALIZER,
       .more = PTHREAD_COND_INITIALIZER,
       .done = PTHREAD_COND_INITIALIZER,
       .total = (size_t)8 << 30,
       .count = 1,
       .cc = 80};
static _Thread_local cuda_ctx *current;

/* ---- settings, counts ---- */

static long word(const char *s, const char *name, long otherwise)
{
    size_t n = strlen(name);
    for (; s && *s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (strncmp(s, name, n) == 0) return s[n] == '=' ? atol(s + n + 1) : 1;
    return otherwise;
}

__attribute__((constructor)) static void begin(void)
{
    const char *s = getenv("SL_FAKE_CUDA");
    g.count = (int)word(s, "count", 1);
    g.total = (size_t)word(s, "mem", 8192) << 20;
    g.cc = (int)word(s, "cc", 80);
    g.fail = word(s, "fail", 0);
    g.lost = word(s, "lost", 0);
    g.most = word(s, "recordings", 0);
    g.says_calls = word(s, "calls", 0);
}

__attribute__((destructor)) static void end(void)
{
    for (int i = 0; i < N_KIND; i++)
        if (g.n[i]) fprintf(stderr, "fake libcuda: not given back: %d x %s\n", g.n[i], kinds[i]);
    if (g.says_calls) fprintf(stderr, "fake libcuda: %ld calls\n", g.n_call);
}

static void misuse(const char *what)
{
    fprintf(stderr, "fake libcuda: %s\n", what);
    abort();
}

/* What a call begins with: 0, or the error that it is to return. */
static int called(bool needs_context)
{
    if (needs_context && !current) misuse("a call on a thread without a context");
    return ++g.n_call == g.fail ? FAILED : 0;
}

static void *make(int kind, size_t n)
{
    void *p = calloc(1, n);
    if (!p) misuse("the host's memory is at its end");
    __atomic_fetch_add(&g.n[kind], 1, __ATOMIC_RELAXED);
    return p;
}

static void drop(int kind, void *p)
{
    free(p);
    if (__atomic_fetch_sub(&g.n[kind], 1, __ATOMIC_RELAXED) <= 0) misuse("given back twice");
}

/* ---- what runs ---- */

/* Where n bytes lie that one allocation must have. */
static uint8_t *seen(uint64_t at, size_t n)
{
    uint8_t *p = simt_host(at);
    for (struct mem *m = g.mem; m; m = m->next)
        if (p >= m->host && p + n <= m->host + m->n) return p;
    return NULL;
}

static void run_node(const cuda_node *v)
{
    if (v->kernel) {
        simt_launch(v->kernel, v->grid, v->args);
        return;
    }
    pthread_mutex_lock(&g.lock);
    if (v->event) v->event->ns = clock_now_ns();
    if (v->event) pthread_mutex_unlock(&g.lock);
    if (v->event) return;
    uint8_t *to = seen(v->copy.n_bytes ? v->copy.to.at : v->fill.to,
                       v->copy.n_bytes ? v->copy.n_bytes : 4 * v->fill.n_word);
    uint8_t *from = v->copy.n_bytes ? seen(v->copy.from.at, v->copy.n_bytes) : to;
    if (!to || !from) g.error = BAD_ADDRESS;
    pthread_mutex_unlock(&g.lock);
    if (!to || !from) return;
    if (v->copy.n_bytes)
        memmove(to, from, v->copy.n_bytes);
    else
        for (size_t i = 0; i < v->fill.n_word; i++)
            memcpy(to + 4 * i, &v->fill.word, 4);
}

/* Of the nodes that may run, that which was added last. */
static void run_graph(const cuda_graph *graph)
{
    cuda_node **ready = malloc(sizeof *ready * (size_t)graph->n);
    int n = 0, n_run = 0;
    if (!ready) misuse("the host's memory is at its end");
    for (int i = 0; i < graph->n; i++) {
        graph->node[i]->n_left = graph->node[i]->n_before;
        if (!graph->node[i]->n_left) ready[n++] = graph->node[i];
    }
    while (n) {
        cuda_node *v = ready[--n];
        run_node(v);
        n_run++;
        for (int i = 0; i < v->n_after; i++)
            if (--v->after[i]->n_left == 0) ready[n++] = v->after[i];
    }
    if (n_run != graph->n) misuse("a graph with a circle");
    free(ready);
}

static void run_copy(const struct work *w)
{
    pthread_mutex_lock(&g.lock);
    uint8_t *to = seen(w->to, w->n_bytes), *from = seen(w->from, w->n_bytes);
    if (!to || !from) g.error = BAD_ADDRESS;
    pthread_mutex_unlock(&g.lock);
    if (to && from) memmove(to, from, w->n_bytes);
}

static bool is_reached(const cuda_event *e)
{
    return !e->stream || e->stream->n_done >= e->at;
}

/* A stream whose next work may run; every other time the last of them, else the first. */
static cuda_stream *runnable(void)
{
    cuda_stream *found = NULL;
    for (cuda_stream *s = g.stream; s; s = s->next)
        if (s->first && is_reached(&s->first->after) && (!found || g.n_run / 3 % 2)) found = s;
    return found;
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&g.lock);
    for (;;) {
        cuda_stream *s = runnable();
        if (!s && g.stop) break;
        if (!s) {
            pthread_cond_wait(&g.more, &g.lock);
            continue;
        }
        struct work *w = s->first;
        bool runs = !g.error;
        pthread_mutex_unlock(&g.lock);
        if (runs && w->exec) run_graph(&w->exec->graph);
        if (runs && w->n_bytes) run_copy(w);
        pthread_mutex_lock(&g.lock);
        s->first = w->next;
        if (!s->first) s->last = &s->first;
        s->n_done++;
        g.n_run++;
        free(w);
        pthread_cond_broadcast(&g.done);
    }
    pthread_mutex_unlock(&g.lock);
    return NULL;
}

/* A piece of work more: reached when that is done. */
static cuda_event queue(cuda_stream *s, const struct work *of)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w) misuse("the host's memory is at its end");
    *w = *of;
    pthread_mutex_lock(&g.lock);
    *s->last = w;
    s->last = &w->next;
    cuda_event e = {.stream = s, .at = ++s->n_work};
    pthread_cond_signal(&g.more);
    pthread_mutex_unlock(&g.lock);
    return e;
}

static void drain(void)
{
    pthread_mutex_lock(&g.lock);
    for (cuda_stream *s = g.stream; s; s = s->next)
        while (s->n_done < s->n_work)
            pthread_cond_wait(&g.done, &g.lock);
    pthread_mutex_unlock(&g.lock);
}

/* ---- the library: devices, contexts ---- */

API int cuInit(unsigned flags)
{
    if (flags) return BAD_VALUE;
    return g.count ? called(false) : CUDA_NO_DEVICE;
}

API int cuGetErrorName(int error, const char **out)
{
    static const struct {
        int error;
        const char *name;
    } all[] = {{BAD_VALUE, "CUDA_ERROR_INVALID_VALUE"},
               {CUDA_NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
               {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
               {BAD_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
               {BAD_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
               {CUDA_NOT_READY, "CUDA_ERROR_NOT_READY"},
               {BAD_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {FAILED, "CUDA_ERROR_LAUNCH_FAILED"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].error == error) {
            *out = all[i].name;
            return 0;
        }
    return BAD_VALUE;
}

API int cuDriverGetVersion(int *out)
{
    *out = 12040;
    return called(false);
}

API int cuDeviceGetCount(int *out)
{
    *out = g.count;
    return called(false);
}

API int cuDeviceGet(int *out, int which)
{
    *out = which + 40; /* no index */
    return which < 0 || which >= g.count ? BAD_VALUE : called(false);
}

API int cuDeviceGetName(char *out, int n, int device)
{
    snprintf(out, (size_t)n, "Fake %d", device - 40);
    return called(false);
}

API int cuDeviceTotalMem_v2(size_t *out, int device)
{
    (void)device;
    *out = g.total;
    return called(false);
}

API int cuDeviceGetAttribute(int *out, int attribute, int device)
{
    (void)device;
    if (attribute != CUDA_ATTR_MAJOR && attribute != CUDA_ATTR_MINOR) return BAD_VALUE;
    *out = attribute == CUDA_ATTR_MAJOR ? g.cc / 10 : g.cc % 10;
    return called(false);
}

API int cuDevicePrimaryCtxRetain(cuda_ctx **out, int device)
{
    int r = called(false);
    if (r) return r;
    *out = &g.ctx[(device - 40) % 8];
    (*out)->n_ref++;
    __atomic_fetch_add(&g.n[CTX], 1, __ATOMIC_RELAXED);
    if (!g.runs && pthread_create(&g.thread, NULL, work, NULL)) misuse("no thread");
    g.runs = true;
    return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    if (g.ctx[(device - 40) % 8].n_ref-- <= 0) misuse("a context given back twice");
    if (__atomic_fetch_sub(&g.n[CTX], 1, __ATOMIC_RELAXED) > 1) return 0;
    drain();
    pthread_mutex_lock(&g.lock);
    g.stop = true;
    pthread_cond_signal(&g.more);
    pthread_mutex_unlock(&g.lock);
    pthread_join(g.thread, NULL);
    g.runs = g.stop = false;
    g.error = 0;
    return 0;
}

API int cuCtxSetCurrent(cuda_ctx *ctx)
{
    current = ctx;
    return 0;
}

/* ---- memory: filled with what is no number, or with what it held before ---- */

/* Of those that were given back, one of that size. */
static struct mem *kept(size_t n)
{
    struct mem **p = &g.kept;
    while (*p && (*p)->n != n)
        p = &(*p)->next;
    struct mem *m = *p;
    if (m) *p = m->next;
    return m;
}

static struct mem *take(size_t n, bool pinned)
{
    pthread_mutex_lock(&g.lock);
    struct mem *m = kept(n);
    pthread_mutex_unlock(&g.lock);
    if (!m) {
        m = calloc(1, sizeof *m);
        if (m) m->host = aligned_alloc(256, (n + 255) / 256 * 256);
        if (!m || !m->host) misuse("the host's memory is at its end");
        memset(m->host, 0xff, n);
        m->n = n;
    }
    m->pinned = pinned;
    __atomic_fetch_add(&g.n[MEM], 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&g.lock);
    m->next = g.mem;
    g.mem = m;
    if (!pinned) g.used += n;
    pthread_mutex_unlock(&g.lock);
    return m;
}

static int give(const uint8_t *host, bool pinned)
{
    drain();
    pthread_mutex_lock(&g.lock);
    struct mem **p = &g.mem;
    while (*p && (*p)->host != host)
        p = &(*p)->next;
    struct mem *m = *p;
    if (!m || m->pinned != pinned) misuse("memory given back that is not there");
    *p = m->next;
    if (!pinned) g.used -= m->n;
    m->next = g.kept;
    g.kept = m;
    pthread_mutex_unlock(&g.lock);
    __atomic_fetch_sub(&g.n[MEM], 1, __ATOMIC_RELAXED);
    return 0;
}

API int cuMemAlloc_v2(uint64_t *out, size_t n_bytes)
{
    if (called(true) || !n_bytes || g.used + n_bytes > g.total) return CUDA_NO_MEMORY;
    *out = simt_address(take(n_bytes, false)->host);
    return 0;
}

API int cuMemFree_v2(uint64_t at)
{
    return give(simt_host(at), false);
}

API int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    *left = g.total - g.used;
    *total = g.total;
    return called(true);
}

API int cuMemHostAlloc(void **out, size_t n_bytes, unsigned flags)
{
    if (flags != (CUDA_HOST_ANY_CONTEXT | CUDA_HOST_MAPPED)) return BAD_VALUE;
    if (called(true)) return CUDA_NO_MEMORY;
    *out = take(n_bytes, true)->host;
    return 0;
}

API int cuMemHostGetDevicePointer_v2(uint64_t *out, void *host, unsigned flags)
{
    *out = simt_address(host);
    return flags ? BAD_VALUE : called(true);
}

API int cuMemFreeHost(void *host)
{
    return give(host, true);
}

/* ---- modules ---- */

API int cuModuleLoadData(cuda_module **out, const void *image)
{
    const char *entry = strstr(image, ".visible .entry ");
    int r = called(true);
    if (!entry || !strstr(image, ".version ")) return BAD_VALUE;
    if (r) return r;
    entry += strlen(".visible .entry ");
    size_t n = strcspn(entry, "(");
    cuda_module *m = make(MODULE, sizeof *m);
    memcpy(m->name, entry, n < sizeof m->name ? n : 0);
    *out = m;
    return 0;
}

API int cuModuleUnload(cuda_module *module)
{
    drain();
    drop(MODULE, module);
    return 0;
}

API int cuModuleGetFunction(cuda_fn **out, cuda_module *module, const char *name)
{
    const struct simt_kernel *k = simt_find(name);
    if (!k || strcmp(module->name, name) != 0) return BAD_VALUE;
    memcpy(out, &k, sizeof k);
    return called(true);
}

/* ---- streams, events ---- */

API int cuStreamCreate(cuda_stream **out, unsigned flags)
{
    int r = called(true);
    if (flags != CUDA_STREAM_OF_ITS_OWN) return BAD_VALUE;
    if (r) return r;
    cuda_stream *s = make(STREAM, sizeof *s);
    s->last = &s->first;
    pthread_mutex_lock(&g.lock);
    s->next = g.stream;
    g.stream = s;
    pthread_mutex_unlock(&g.lock);
    *out = s;
    return 0;
}

API int cuStreamDestroy_v2(cuda_stream *stream)
{
    drain();
    pthread_mutex_lock(&g.lock);
    cuda_stream **p = &g.stream;
    while (*p && *p != stream)
        p = &(*p)->next;
    if (!*p) misuse("a stream given back that is not there");
    *p = stream->next;
    pthread_mutex_unlock(&g.lock);
    drop(STREAM, stream);
    return 0;
}

API int cuStreamSynchronize(cuda_stream *stream)
{
    if (!stream) return BAD_HANDLE;
    drain();
    return g.error;
}

API int cuStreamWaitEvent(cuda_stream *stream, cuda_event *event, unsigned flags)
{
    int r = called(true);
    if (!stream || !event || flags) return BAD_HANDLE;
    if (!r) (void)queue(stream, &(struct work){.after = *event});
    return r;
}

API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t n_bytes, cuda_stream *stream)
{
    int r = called(true);
    if (!stream || !n_bytes) return BAD_VALUE;
    if (!r) (void)queue(stream, &(struct work){.to = to, .from = from, .n_bytes = n_bytes});
    return r;
}

API int cuEventCreate(cuda_event **out, unsigned flags)
{
    int r = called(true);
    if (flags != CUDA_EVENT_NO_TIMING && flags != CUDA_EVENT_TIMED) return BAD_VALUE;
    if (!r) *out = make(EVENT, sizeof **out);
    if (!r) (*out)->timed = flags == CUDA_EVENT_TIMED;
    return r;
}

API int cuEventDestroy_v2(cuda_event *event)
{
    drop(EVENT, event);
    return 0;
}

API int cuEventRecord(cuda_event *event, cuda_stream *stream)
{
    int r = called(true);
    if (!stream) return BAD_HANDLE;
    if (!r) *event = queue(stream, &(struct work){0});
    return r;
}

API int cuEventQuery(cuda_event *event)
{
    if (!current) misuse("a call on a thread without a context");
    pthread_mutex_lock(&g.lock);
    int r = is_reached(event) ? g.error : CUDA_NOT_READY;
    pthread_mutex_unlock(&g.lock);
    return r;
}

/* Of events that graphs have recorded. */
API int cuEventElapsedTime(float *ms, cuda_event *from, cuda_event *to)
{
    int r = called(true);
    if (!from || !to || !from->timed || !to->timed || !from->ns || !to->ns) return BAD_HANDLE;
    if (r) return r;
    pthread_mutex_lock(&g.lock);
    *ms = (float)((double)(to->ns - from->ns) * 1e-6);
    pthread_mutex_unlock(&g.lock);
    return 0;
}

/* ---- graphs ---- */

API int cuGraphCreate(cuda_graph **out, unsigned flags)
{
    int r = called(true);
    if (flags) return BAD_VALUE;
    if (!r) *out = make(GRAPH, sizeof **out);
    return r;
}

static void free_nodes(cuda_graph *graph)
{
    for (int i = 0; i < graph->n; i++)
        free(graph->node[i]);
    free(graph->node);
    *graph = (cuda_graph){0};
}

API int cuGraphDestroy(cuda_graph *graph)
{
    free_nodes(graph);
    drop(GRAPH, graph);
    return 0;
}

static cuda_node *add(cuda_graph *graph, cuda_node *const *after, size_t n_after)
{
    cuda_node *v = calloc(1, sizeof *v);
    cuda_node **all = realloc(graph->node, sizeof *all * (size_t)(graph->n + 1));
    if (!v || !all) misuse("the host's memory is at its end");
    graph->node = all;
    all[graph->n++] = v;
    for (size_t i = 0; i < n_after; i++) {
        if (after[i]->n_after == 64) misuse("more nodes follow one than this library keeps");
        after[i]->after[after[i]->n_after++] = v;
    }
    v->n_before = (int)n_after;
    return v;
}

API int cuGraphAddKernelNode(cuda_node **out, cuda_graph *graph, cuda_node *const *after,
                             size_t n_after, const struct cuda_launch *launch)
{
    const struct simt_kernel *k = (const struct simt_kernel *)(const void *)launch->fn;
    int r = called(true);
    if (!k || launch->block[0] != k->n_lane || launch->block[1] != 1 || launch->block[2] != 1 ||
        launch->shared_bytes || launch->extra || !launch->grid[0] || !launch->grid[1] ||
        !launch->grid[2] || launch->grid[1] > 65535 || launch->grid[2] > 65535)
        return BAD_VALUE;
    if (r) return r;
    cuda_node *v = add(graph, after, n_after);
    v->kernel = k;
    memcpy(v->grid, launch->grid, sizeof v->grid);
    memcpy(v->args, launch->params[0], k->n_arg);
    *out = v;
    return 0;
}

API int cuGraphAddMemcpyNode(cuda_node **out, cuda_graph *graph, cuda_node *const *after,
                             size_t n_after, const struct cuda_copy *copy, cuda_ctx *ctx)
{
    int r = called(true);
    if (!ctx || copy->from.kind != CUDA_MEM_BY_ADDRESS || copy->to.kind != CUDA_MEM_BY_ADDRESS ||
        copy->height != 1 || copy->depth != 1 || !copy->n_bytes)
        return BAD_VALUE;
    if (r) return r;
    cuda_node *v = add(graph, after, n_after);
    v->copy = *copy;
    *out = v;
    return 0;
}

API int cuGraphAddMemsetNode(cuda_node **out, cuda_graph *graph, cuda_node *const *after,
                             size_t n_after, const struct cuda_fill *fill, cuda_ctx *ctx)
{
    int r = called(true);
    if (!ctx || fill->word_bytes != 4 || fill->height != 1 || !fill->n_word || fill->to % 4)
        return BAD_VALUE;
    if (r) return r;
    cuda_node *v = add(graph, after, n_after);
    v->fill = *fill;
    *out = v;
    return 0;
}

API int cuGraphAddEventRecordNode(cuda_node **out, cuda_graph *graph, cuda_node *const *after,
                                  size_t n_after, cuda_event *event)
{
    int r = called(true);
    if (!event || !event->timed) return BAD_VALUE;
    if (r) return r;
    cuda_node *v = add(graph, after, n_after);
    v->event = event;
    *out = v;
    return 0;
}

/* It takes the graph's nodes, which stays as an empty one. */
API int cuGraphInstantiateWithFlags(cuda_exec **out, cuda_graph *graph, unsigned long long flags)
{
    int r = called(true);
    if (flags) return BAD_VALUE;
    if (r) return r;
    if (g.most && g.n[EXEC] >= g.most) return CUDA_NO_MEMORY;
    cuda_exec *e = make(EXEC, sizeof *e);
    e->graph = *graph;
    *graph = (cuda_graph){0};
    *out = e;
    return 0;
}

API int cuGraphExecDestroy(cuda_exec *exec)
{
    pthread_mutex_lock(&g.lock);
    if (!is_reached(&exec->last)) misuse("a recording is given back while it runs");
    pthread_mutex_unlock(&g.lock);
    free_nodes(&exec->graph);
    drop(EXEC, exec);
    return 0;
}

API int cuGraphLaunch(cuda_exec *exec, cuda_stream *stream)
{
    int r = called(true);
    if (!stream) return BAD_HANDLE;
    if (r) return r;
    exec->last = queue(stream, &(struct work){.exec = exec});
    if (++g.n_launch == g.lost) {
        pthread_mutex_lock(&g.lock);
        g.error = FAILED;
        pthread_mutex_unlock(&g.lock);
    }
    return 0;
}
