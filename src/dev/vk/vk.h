/* SPDX-License-Identifier: Apache-2.0 */
/* The driver for Vulkan 1.2: libvulkan by dlopen, buffers by address, a queue and a timeline
 * semaphore for what computes, and for what is sent. Room-internal. */
#ifndef DEV_VK_VK_H
#define DEV_VK_VK_H

#include "dev/gpu/gpu.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

/* X(name): without the instance; of an instance; of a device. */
#define VK_GLOBAL_LIST(X) X(CreateInstance) X(EnumerateInstanceVersion)
#define VK_INSTANCE_LIST(X)                                                                        \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties2)                                                          \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)
#define VK_DEVICE_LIST(X)                                                                          \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(DeviceWaitIdle)                                                                              \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(GetBufferDeviceAddress)                                                                      \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(BindBufferMemory)                                                                            \
    X(MapMemory)                                                                                   \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(FreeCommandBuffers)                                                                          \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdBindPipeline)                                                                             \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdPipelineBarrier)                                                                          \
    X(CmdCopyBuffer)                                                                               \
    X(CmdFillBuffer)                                                                               \
    X(CmdResetQueryPool)                                                                           \
    X(CmdWriteTimestamp)                                                                           \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(GetQueryPoolResults)                                                                         \
    X(CreateSemaphore)                                                                             \
    X(DestroySemaphore)                                                                            \
    X(WaitSemaphores)                                                                              \
    X(QueueSubmit)

#define VK_MEM_MAX 4096 /* allocations, at most: what drivers promise */

#define VK_SENDS 8      /* sends under way, at most */

struct vk_mem {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t at, n;
};

struct vk {
    void *lib;
#define X(name) PFN_vk##name name;
    VK_GLOBAL_LIST(X) VK_INSTANCE_LIST(X) VK_DEVICE_LIST(X)
#undef X
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    VkInstance instance;
    VkPhysicalDevice card;
    VkDevice device;
    VkQueue queue, send_queue; /* which may be one */
    uint32_t family, send_family, send_index; /* index: among the queues of its family */
    VkPhysicalDeviceMemoryProperties mem;
    bool is_unified, is_cpu, has_budget;
    uint32_t unit_k; /* k of matrix units; 0 = without */
    uint32_t heap; /* of the device's memory */
    struct vk_mem *of[VK_MEM_MAX];
    int n_mem;
    int64_t taken;
    VkQueryPool stamps;  /* VK_NULL_HANDLE until operators are timed */
    uint32_t stamp_bits; /* of its values; 0: the queue has no clock */
    double stamp_ns;     /* of one tick */
    VkPipelineLayout layout;
    VkPipeline pipeline[GPU_N_KERNEL];
    VkCommandPool pool;
    VkSemaphore done, sent;
    uint64_t n_submit, n_send, n_send_waited; /* waited: that a submit has waited for */
    VkCommandPool send_pool;
    VkCommandBuffer send[VK_SENDS]; /* of send n: [n % VK_SENDS] */
};

/* Code of a kernel. */
struct vk_code {
    const char *name;
    const uint32_t *words;
    size_t n_bytes;
};
extern const struct vk_code dev_vk_code[GPU_N_KERNEL];
extern const bool dev_vk_has_units; /* the build could make kernels for matrix units */

const char *dev_vk_text(VkResult r);
/* The loader and an instance. Errors: NOTFOUND no loader, UNSUPPORTED no Vulkan 1.2, NOMEM. */
sl_status dev_vk_load(struct vk *v, sl_err *err);
/* The functions of v->device. Errors: UNSUPPORTED. */
sl_status dev_vk_load_device(struct vk *v, sl_err *err);
/* What of a device is missing; NULL = it can be used. */
const char *dev_vk_lacks(const struct vk *v, VkPhysicalDevice card);
bool dev_vk_has_extension(const struct vk *v, const char *name);
/* ---- matrix units (units.c) ---- */
struct vk_units_features {
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sub;
    struct { /* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
        VkStructureType sType;
        void *pNext;
        VkBool32 is_there, is_robust;
    } matrices;
};
/* Chain them, asked for (want) or to be filled; returns the chain's begin. */
void *dev_vk_units_features(struct vk_units_features *u, bool want);
uint32_t dev_vk_units_extensions(const char **out); /* how many: 2 */
/* Has v->card those that the kernels want? Into v->unit_k and *lim. */
void dev_vk_ask_units(struct vk *v, struct gpu_limits *lim);
/* v->device of v->card. Errors: UNSUPPORTED, NOMEM. */
sl_status dev_vk_device(struct vk *v, sl_err *err);
/* What stays when everything that was made is gone. */
void dev_vk_unload(struct vk *v);
int dev_vk_list(struct dev_desc *out, int n, sl_err *err);

#endif
