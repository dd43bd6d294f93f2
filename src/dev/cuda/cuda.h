/* SPDX-License-Identifier: Apache-2.0 */
/* The driver for CUDA: libcuda by dlopen, declared here as far as it is used, a stream for what
 * computes and one for what is sent, a graph for every recording. Kernels are PTX, which the card's
 * driver assembles. Room-internal. */
#ifndef DEV_CUDA_CUDA_H
#define DEV_CUDA_CUDA_H

#include "dev/gpu/gpu.h"

/* ---- NVIDIA's driver interface ---- */

enum cuda_result { /* those that are told apart; others have a name of the library's */
    CUDA_OK = 0,
    CUDA_NO_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_NOT_READY = 600,
};
enum { /* attributes of a device */
    CUDA_ATTR_MAJOR = 75,
    CUDA_ATTR_MINOR = 76,
};
enum {
    CUDA_STREAM_OF_ITS_OWN = 1, /* that does not wait for the default one */
    CUDA_EVENT_TIMED = 0,
    CUDA_EVENT_NO_TIMING = 2,
    CUDA_HOST_ANY_CONTEXT = 1,
    CUDA_HOST_MAPPED = 2,
    CUDA_MEM_BY_ADDRESS = 4, /* whose memory it is follows from the address */
};
typedef struct cuda_ctx cuda_ctx;
typedef struct cuda_module cuda_module;
typedef struct cuda_fn cuda_fn;
typedef struct cuda_stream cuda_stream;
typedef struct cuda_event cuda_event;
typedef struct cuda_graph cuda_graph;
typedef struct cuda_exec cuda_exec;
typedef struct cuda_node cuda_node;

struct cuda_launch {
    cuda_fn *fn;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
};
struct cuda_side { /* of a copy */
    size_t x_bytes, y, z, lod;
    int kind;
    void *host;
    uint64_t at;
    void *array, *reserved;
    size_t pitch, height;
};
struct cuda_copy {
    struct cuda_side from, to;
    size_t n_bytes, height, depth;
};
struct cuda_fill {
    uint64_t to;
    size_t pitch;
    unsigned word, word_bytes;
    size_t n_word, height;
};

/* X(name without its "cu", as it is exported, parameters) */
#define CUDA_LIST(X)                                                                               \
    X(Init, cuInit, (unsigned flags))                                                              \
    X(GetErrorName, cuGetErrorName, (int error, const char **out))                                 \
    X(DriverGetVersion, cuDriverGetVersion, (int *out))                                            \
    X(DeviceGetCount, cuDeviceGetCount, (int *out))                                                \
    X(DeviceGet, cuDeviceGet, (int *out, int which))                                               \
    X(DeviceGetName, cuDeviceGetName, (char *out, int n, int device))                              \
    X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *out, int device))                              \
    X(DeviceGetAttribute, cuDeviceGetAttribute, (int *out, int attribute, int device))             \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (cuda_ctx **out, int device))              \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device))                         \
    X(CtxSetCurrent, cuCtxSetCurrent, (cuda_ctx *ctx))                                             \
    X(MemAlloc, cuMemAlloc_v2, (uint64_t *out, size_t n_bytes))                                    \
    X(MemFree, cuMemFree_v2, (uint64_t at))                                                        \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t *left, size_t *total))                                  \
    X(MemHostAlloc, cuMemHostAlloc, (void **out, size_t n_bytes, unsigned flags))                  \
    X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                       \
      (uint64_t *out, void *host, unsigned flags))                                                 \
    X(MemFreeHost, cuMemFreeHost, (void *host))                                                    \
    X(ModuleLoadData, cuModuleLoadData, (cuda_module **out, const void *image))                    \
    X(ModuleUnload, cuModuleUnload, (cuda_module *module))                                         \
    X(ModuleGetFunction, cuModuleGetFunction,                                                      \
      (cuda_fn **out, cuda_module *module, const char *name))                                      \
    X(StreamCreate, cuStreamCreate, (cuda_stream **out, unsigned flags))                           \
    X(StreamDestroy, cuStreamDestroy_v2, (cuda_stream *stream))                                    \
    X(StreamSynchronize, cuStreamSynchronize, (cuda_stream *stream))                               \
    X(StreamWaitEvent, cuStreamWaitEvent,                                                          \
      (cuda_stream * stream, cuda_event * event, unsigned flags))                                  \
    X(MemcpyAsync, cuMemcpyAsync,                                                                  \
      (uint64_t to, uint64_t from, size_t n_bytes, cuda_stream *stream))                           \
    X(EventCreate, cuEventCreate, (cuda_event **out, unsigned flags))                              \
    X(EventDestroy, cuEventDestroy_v2, (cuda_event *event))                                        \
    X(EventRecord, cuEventRecord, (cuda_event *event, cuda_stream *stream))                        \
    X(EventQuery, cuEventQuery, (cuda_event *event))                                               \
    X(GraphCreate, cuGraphCreate, (cuda_graph **out, unsigned flags))                              \
    X(GraphDestroy, cuGraphDestroy, (cuda_graph *graph))                                           \
    X(GraphAddKernelNode, cuGraphAddKernelNode,                                                    \
      (cuda_node **out, cuda_graph *graph, cuda_node *const *after, size_t n_after,                \
       const struct cuda_launch *launch))                                                          \
    X(GraphAddMemcpyNode, cuGraphAddMemcpyNode,                                                    \
      (cuda_node **out, cuda_graph *graph, cuda_node *const *after, size_t n_after,                \
       const struct cuda_copy *copy, cuda_ctx *ctx))                                               \
    X(GraphAddMemsetNode, cuGraphAddMemsetNode,                                                    \
      (cuda_node **out, cuda_graph *graph, cuda_node *const *after, size_t n_after,                \
       const struct cuda_fill *fill, cuda_ctx *ctx))                                               \
    X(EventElapsedTime, cuEventElapsedTime, (float *ms, cuda_event *from, cuda_event *to))         \
    X(GraphAddEventRecordNode, cuGraphAddEventRecordNode,                                          \
      (cuda_node **out, cuda_graph *graph, cuda_node *const *after, size_t n_after,                \
       cuda_event *event))                                                                         \
    X(GraphInstantiate, cuGraphInstantiateWithFlags,                                               \
      (cuda_exec **out, cuda_graph *graph, unsigned long long flags))                              \
    X(GraphExecDestroy, cuGraphExecDestroy, (cuda_exec *exec))                                     \
    X(GraphLaunch, cuGraphLaunch, (cuda_exec *exec, cuda_stream *stream))

#define CUDA_LEAST 61 /* compute capability * 10: dp4a */
#define CUDA_UNITS 80 /* the same: matrix units for bytes, 16 x 8 x 32 */
#define CUDA_EVENTS 16

struct cuda {
    void *lib;
#define X(name, symbol, params) int(*name) params;
    CUDA_LIST(X)
#undef X
    int device; /* the library's number of it */
    cuda_ctx *ctx;
    cuda_stream *stream, *send_stream;
    cuda_event *event[CUDA_EVENTS]; /* of submit n: [n % CUDA_EVENTS] */
    cuda_event *sent[CUDA_EVENTS];  /* of send n */
    uint64_t n_send, n_send_waited; /* waited: that a submit has waited for */
    cuda_event *stamp[GPU_STAMPS];  /* NULL until that number was recorded */
    cuda_module *module[GPU_N_KERNEL];
    cuda_fn *fn[GPU_N_KERNEL];
    cuda_node **node; /* [GPU_LOG] of the graph that is made */
    uint64_t n_submit;
};

/* Code of a kernel: PTX, with a 0 at its end. */
struct cuda_code {
    const char *name, *ptx;
    int n_lane;
};
extern const struct cuda_code dev_cuda_code[GPU_N_KERNEL];

const char *dev_cuda_text(const struct cuda *v, int r);
/* The library. Errors: NOTFOUND it is not installed, UNSUPPORTED it is too old, or does not start.
 */
sl_status dev_cuda_load(struct cuda *v, sl_err *err);
void dev_cuda_unload(struct cuda *v);
/* What of a device is missing, in n bytes; "" = it can be used. */
void dev_cuda_lacks(const struct cuda *v, int device, char *buf, size_t n);
int dev_cuda_list(struct dev_desc *out, int n, sl_err *err);

#endif
