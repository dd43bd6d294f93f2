/* SPDX-License-Identifier: Apache-2.0 */
/* What src/dev/cuda/cuda.h declares of NVIDIA's interface is what NVIDIA's header declares, where
 * that is at hand: compiled, never run. */
#include <cuda.h>
#include <stddef.h>

#include "dev/cuda/cuda.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " is " #b)
#define FIELD(type, field, theirs, their)                                                          \
    SAME(offsetof(struct type, field), offsetof(theirs, their));                                   \
    SAME(sizeof(((struct type *)0)->field), sizeof(((theirs *)0)->their))

SAME((int)CUDA_OK, (int)CUDA_SUCCESS);
SAME((int)CUDA_NO_MEMORY, (int)CUDA_ERROR_OUT_OF_MEMORY);
SAME((int)CUDA_NO_DEVICE, (int)CUDA_ERROR_NO_DEVICE);
SAME((int)CUDA_NOT_READY, (int)CUDA_ERROR_NOT_READY);
SAME((int)CUDA_ATTR_MAJOR, (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME((int)CUDA_ATTR_MINOR, (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME((int)CUDA_STREAM_OF_ITS_OWN, (int)CU_STREAM_NON_BLOCKING);
SAME((int)CUDA_EVENT_NO_TIMING, (int)CU_EVENT_DISABLE_TIMING);
SAME((int)CUDA_HOST_ANY_CONTEXT, CU_MEMHOSTALLOC_PORTABLE);
SAME((int)CUDA_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME((int)CUDA_MEM_BY_ADDRESS, (int)CU_MEMORYTYPE_UNIFIED);
SAME(sizeof(CUdevice), sizeof(int));
SAME(sizeof(CUdeviceptr), sizeof(uint64_t));

SAME(sizeof(struct cuda_launch), sizeof(CUDA_KERNEL_NODE_PARAMS_v1));
FIELD(cuda_launch, fn, CUDA_KERNEL_NODE_PARAMS_v1, func);
FIELD(cuda_launch, grid[0], CUDA_KERNEL_NODE_PARAMS_v1, gridDimX);
FIELD(cuda_launch, block[0], CUDA_KERNEL_NODE_PARAMS_v1, blockDimX);
FIELD(cuda_launch, shared_bytes, CUDA_KERNEL_NODE_PARAMS_v1, sharedMemBytes);
FIELD(cuda_launch, params, CUDA_KERNEL_NODE_PARAMS_v1, kernelParams);
FIELD(cuda_launch, extra, CUDA_KERNEL_NODE_PARAMS_v1, extra);

SAME(sizeof(struct cuda_copy), sizeof(CUDA_MEMCPY3D_v2));
FIELD(cuda_copy, from.kind, CUDA_MEMCPY3D_v2, srcMemoryType);
FIELD(cuda_copy, from.host, CUDA_MEMCPY3D_v2, srcHost);
FIELD(cuda_copy, from.at, CUDA_MEMCPY3D_v2, srcDevice);
FIELD(cuda_copy, from.array, CUDA_MEMCPY3D_v2, srcArray);
FIELD(cuda_copy, from.pitch, CUDA_MEMCPY3D_v2, srcPitch);
FIELD(cuda_copy, from.height, CUDA_MEMCPY3D_v2, srcHeight);
FIELD(cuda_copy, to.kind, CUDA_MEMCPY3D_v2, dstMemoryType);
FIELD(cuda_copy, to.at, CUDA_MEMCPY3D_v2, dstDevice);
FIELD(cuda_copy, to.height, CUDA_MEMCPY3D_v2, dstHeight);
FIELD(cuda_copy, n_bytes, CUDA_MEMCPY3D_v2, WidthInBytes);
FIELD(cuda_copy, height, CUDA_MEMCPY3D_v2, Height);
FIELD(cuda_copy, depth, CUDA_MEMCPY3D_v2, Depth);

SAME(sizeof(struct cuda_fill), sizeof(CUDA_MEMSET_NODE_PARAMS_v1));
FIELD(cuda_fill, to, CUDA_MEMSET_NODE_PARAMS_v1, dst);
FIELD(cuda_fill, word, CUDA_MEMSET_NODE_PARAMS_v1, value);
FIELD(cuda_fill, word_bytes, CUDA_MEMSET_NODE_PARAMS_v1, elementSize);
FIELD(cuda_fill, n_word, CUDA_MEMSET_NODE_PARAMS_v1, width);
FIELD(cuda_fill, height, CUDA_MEMSET_NODE_PARAMS_v1, height);
