/* SPDX-License-Identifier: Apache-2.0 */
/* A libvulkan.so.1 for tests, in front of the real one: its card in software looks like others.
 *
 * SL_FAKE_VULKAN: words with commas between: own: memory of its own that the host does not see, but
 * for a window of a quarter or 256 MiB, and pinned memory without a cache; card, apu: the same, of
 * a card or an integrated one by its type; count=N of them; mem=MIB of its own; shared=BYTES of a
 * workgroup, lanes=N of one; old: Vulkan 1.1; noclock: queues without timestamps; lacks=NAME: a
 * feature that it has not; keep: a device that is closed is the next one that is opened, with the
 * kernels that were made for it, for making them is what takes the time in software. What a driver
 * need not take is an error or ends the program; kernels with doubles are such, whether it has them
 * or not. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#define API __attribute__((visibility("default")))
#define N_KEPT 4096
#define N_DEVICE 4
#define N_MADE 512
enum { OWN, PINNED, SEEN, N_TYPE };

static struct {
    PFN_vkGetInstanceProcAddr get;
    PFN_vkGetDeviceProcAddr of_device;
    VkInstance instance;
    uint32_t real; /* the real type that stands for all */
    struct {
        VkDeviceMemory memory;
        uint32_t type;
        VkDeviceSize n;
    } kept[N_KEPT];
    VkDeviceSize used[N_TYPE];
    /* keep: */
    VkInstance one;
    struct made {
        VkDevice device;
        bool busy;
        VkPipelineLayout layout;
        VkPushConstantRange range;
        uint32_t n_module, n_pipeline;
        struct {
            const uint32_t *code;
            VkShaderModule module;
        } module[N_MADE];
        struct {
            VkShaderModule module;
            uint32_t with[2];
            VkPipeline pipeline;
        } pipeline[N_MADE];
    } made[N_DEVICE];
    pthread_mutex_t lock;
} g = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void misuse(const char *what)
{
    fprintf(stderr, "fake libvulkan: %s\n", what);
    abort();
}

/* What a word of SL_FAKE_VULKAN says; NULL: it is not there. */
static const char *word(const char *name)
{
    const char *s = getenv("SL_FAKE_VULKAN");
    size_t n = strlen(name);
    for (; s && *s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (strncmp(s, name, n) == 0 && strchr("=,", s[n])) return s + n + (s[n] == '=');
    return NULL;
}

static bool is_apart(void)
{
    return word("own") || word("card") || word("apu");
}

/* Bytes of its memory, and of the window into it. */
static VkDeviceSize own_bytes(void)
{
    return (word("mem") ? (VkDeviceSize)atoll(word("mem")) : 8192) << 20;
}

static VkDeviceSize window_bytes(void)
{
    VkDeviceSize most = (VkDeviceSize)256 << 20, n = own_bytes() / 4;
    return n < most ? n : most;
}

/* Calls the real function of that name. */
#define REAL(name) ((PFN_##name)(void (*)(void))g.get(g.instance, #name))
#define REAL_OF(device, name) ((PFN_##name)(void (*)(void))g.of_device(device, #name))

/* ---- the card ---- */

static VkResult VKAPI_CALL devices(VkInstance instance, uint32_t *n, VkPhysicalDevice *out)
{
    uint32_t count = word("count") ? (uint32_t)atoi(word("count")) : 1, one = 1;
    VkPhysicalDevice card;
    if (!out) return REAL(vkEnumeratePhysicalDevices)(instance, n, out);
    VkResult r = REAL(vkEnumeratePhysicalDevices)(instance, &one, &card);
    if ((r && r != VK_INCOMPLETE) || !one) return r;
    if (count < *n) *n = count;
    for (uint32_t i = 0; i < *n; i++)
        out[i] = card;
    return VK_SUCCESS;
}

static void VKAPI_CALL properties(VkPhysicalDevice card, VkPhysicalDeviceProperties2 *out)
{
    VkPhysicalDeviceLimits *lim = &out->properties.limits;
    REAL(vkGetPhysicalDeviceProperties2)(card, out);
    if (word("card")) out->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    if (word("apu")) out->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    if (is_apart()) snprintf(out->properties.deviceName, 32, "Fake card");
    if (word("old")) out->properties.apiVersion = VK_API_VERSION_1_1;
    if (word("shared")) lim->maxComputeSharedMemorySize = (uint32_t)atoi(word("shared"));
    if (word("lanes")) lim->maxComputeWorkGroupInvocations = (uint32_t)atoi(word("lanes"));
}

static void VKAPI_CALL features(VkPhysicalDevice card, VkPhysicalDeviceFeatures2 *out)
{
    const char *lacks = word("lacks");
    size_t n = lacks ? strcspn(lacks, ",") : 0;
    REAL(vkGetPhysicalDeviceFeatures2)(card, out);
#define LACKS(at, name)                                                                            \
    if (n == strlen(#name) && strncmp(lacks, #name, n) == 0) (at).name = VK_FALSE;
    LACKS(out->features, shaderInt64)
    LACKS(out->features, shaderFloat64)
    for (VkBaseOutStructure *s = out->pNext; s; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) continue;
        VkPhysicalDeviceVulkan12Features *f = (void *)s;
        LACKS(*f, bufferDeviceAddress)
        LACKS(*f, timelineSemaphore)
        LACKS(*f, scalarBlockLayout)
    }
}

/* The window is the first heap, as some drivers have it. */
static void VKAPI_CALL memory(VkPhysicalDevice card, VkPhysicalDeviceMemoryProperties2 *out)
{
    const VkMemoryPropertyFlags host =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    VkPhysicalDeviceMemoryProperties *m = &out->memoryProperties;
    REAL(vkGetPhysicalDeviceMemoryProperties2)(card, out);
    if (!is_apart()) return;
    *m = (VkPhysicalDeviceMemoryProperties){
        .memoryTypeCount = N_TYPE,
        .memoryTypes = {[OWN] = {local, 2}, [PINNED] = {host, 1}, [SEEN] = {local | host, 0}},
        .memoryHeapCount = 3,
        .memoryHeaps = {{window_bytes(), VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                        {(VkDeviceSize)64 << 30, 0},
                        {own_bytes(), VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}}};
    for (VkBaseOutStructure *s = out->pNext; s; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) continue;
        VkPhysicalDeviceMemoryBudgetPropertiesEXT *b = (void *)s;
        for (int i = 0; i < 3; i++) {
            b->heapBudget[i] = m->memoryHeaps[i].size;
            b->heapUsage[i] = g.used[i == 0 ? SEEN : i == 1 ? PINNED : OWN];
        }
    }
}

static void VKAPI_CALL families(VkPhysicalDevice card, uint32_t *n, VkQueueFamilyProperties *out)
{
    REAL(vkGetPhysicalDeviceQueueFamilyProperties)(card, n, out);
    for (uint32_t i = 0; out && word("noclock") && i < *n; i++)
        out[i].timestampValidBits = 0;
}

/* What it lacks can not be had. */
static VkResult VKAPI_CALL create(VkPhysicalDevice card, const VkDeviceCreateInfo *info,
                                  const VkAllocationCallbacks *a, VkDevice *out)
{
    VkPhysicalDeviceFeatures2 has = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    const VkPhysicalDeviceFeatures2 *asked = info->pNext;
    features(card, &has);
    if (asked && asked->sType == has.sType &&
        ((asked->features.shaderInt64 && !has.features.shaderInt64) ||
         (asked->features.shaderFloat64 && !has.features.shaderFloat64)))
        return VK_ERROR_FEATURE_NOT_PRESENT;
    return REAL(vkCreateDevice)(card, info, a, out);
}

/* ---- memory ---- */

static VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                    const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    VkMemoryAllocateInfo own = *info;
    if (!is_apart()) return REAL_OF(device, vkAllocateMemory)(device, info, a, out);
    if (info->memoryTypeIndex >= N_TYPE) misuse("a type of memory that there is not");
    own.memoryTypeIndex = g.real;
    pthread_mutex_lock(&g.lock);
    VkDeviceSize left = info->memoryTypeIndex == OWN ? own_bytes() : window_bytes();
    bool full = info->memoryTypeIndex != PINNED &&
                g.used[info->memoryTypeIndex] + info->allocationSize > left;
    VkResult r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (!full) r = REAL_OF(device, vkAllocateMemory)(device, &own, a, out);
    int i = 0;
    while (!r && g.kept[i].memory)
        i++;
    if (!r) {
        g.kept[i].memory = *out;
        g.kept[i].type = info->memoryTypeIndex;
        g.kept[i].n = info->allocationSize;
        g.used[info->memoryTypeIndex] += info->allocationSize;
    }
    pthread_mutex_unlock(&g.lock);
    return r;
}

static int find(VkDeviceMemory memory)
{
    int i = 0;
    while (i < N_KEPT && g.kept[i].memory != memory)
        i++;
    if (i == N_KEPT) misuse("memory that there is not");
    return i;
}

static void VKAPI_CALL give(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks *a)
{
    if (is_apart() && memory) {
        pthread_mutex_lock(&g.lock);
        int i = find(memory);
        g.used[g.kept[i].type] -= g.kept[i].n;
        g.kept[i].memory = VK_NULL_HANDLE;
        pthread_mutex_unlock(&g.lock);
    }
    REAL_OF(device, vkFreeMemory)(device, memory, a);
}

static VkResult VKAPI_CALL map(VkDevice device, VkDeviceMemory memory, VkDeviceSize at,
                               VkDeviceSize n, VkMemoryMapFlags flags, void **out)
{
    if (is_apart() && g.kept[find(memory)].type == OWN)
        misuse("memory of the card's own is mapped");
    return REAL_OF(device, vkMapMemory)(device, memory, at, n, flags, out);
}

static void VKAPI_CALL needs(VkDevice device, VkBuffer buffer, VkMemoryRequirements *out)
{
    REAL_OF(device, vkGetBufferMemoryRequirements)(device, buffer, out);
    g.real = 0;
    while (!(out->memoryTypeBits >> g.real & 1u))
        g.real++;
    if (is_apart()) out->memoryTypeBits = (1u << N_TYPE) - 1;
}

/* ---- what runs ---- */

static VkResult VKAPI_CALL module(VkDevice device, const VkShaderModuleCreateInfo *info,
                                  const VkAllocationCallbacks *a, VkShaderModule *out)
{
    const uint32_t capability = 17, float64 = 10; /* SPIR-V's numbers */
    const uint32_t *code = info->pCode;
    for (size_t i = 5; i < info->codeSize / 4; i += code[i] >> 16)
        if ((code[i] & 0xffff) == capability && code[i + 1] == float64)
            misuse("a kernel has doubles, which many cards have not");
    return REAL_OF(device, vkCreateShaderModule)(device, info, a, out);
}

static void VKAPI_CALL dispatch(VkCommandBuffer cb, uint32_t x, uint32_t y, uint32_t z)
{
    static PFN_vkCmdDispatch real;
    if (!real) real = REAL(vkCmdDispatch);
    if (!x || !y || !z || x > 65535 || y > 65535 || z > 65535)
        misuse("more workgroups than a driver must take");
    real(cb, x, y, z);
}

/* ---- what is kept ---- */

static VkResult VKAPI_CALL keep_instance(const VkInstanceCreateInfo *info,
                                         const VkAllocationCallbacks *a, VkInstance *out)
{
    PFN_vkVoidFunction real = g.get(NULL, "vkCreateInstance");
    VkResult r = VK_SUCCESS;
    if (!g.one) r = ((PFN_vkCreateInstance)(void (*)(void))real)(info, a, &g.one);
    *out = g.one;
    return r;
}

static void VKAPI_CALL kept_instance(VkInstance instance, const VkAllocationCallbacks *a)
{
    (void)instance;
    (void)a;
}

static struct made *made_of(VkDevice device)
{
    for (int i = 0; i < N_DEVICE; i++)
        if (g.made[i].device == device) return &g.made[i];
    misuse("a device that there is not");
    return NULL;
}

/* A program asks for devices of one kind only. */
static VkResult VKAPI_CALL keep_device(VkPhysicalDevice card, const VkDeviceCreateInfo *info,
                                       const VkAllocationCallbacks *a, VkDevice *out)
{
    VkResult r = VK_SUCCESS;
    int i = 0;
    pthread_mutex_lock(&g.lock);
    while (i < N_DEVICE && g.made[i].busy)
        i++;
    if (i == N_DEVICE) misuse("more devices at a time than it keeps");
    if (!g.made[i].device) r = create(card, info, a, &g.made[i].device);
    *out = g.made[i].device;
    g.made[i].busy = !r;
    pthread_mutex_unlock(&g.lock);
    return r;
}

static void VKAPI_CALL kept_device(VkDevice device, const VkAllocationCallbacks *a)
{
    (void)a;
    pthread_mutex_lock(&g.lock);
    struct made *m = made_of(device);
    if (!m->busy) misuse("a device is closed twice");
    m->busy = false;
    pthread_mutex_unlock(&g.lock);
}

static VkResult VKAPI_CALL keep_layout(VkDevice device, const VkPipelineLayoutCreateInfo *info,
                                       const VkAllocationCallbacks *a, VkPipelineLayout *out)
{
    struct made *m = made_of(device);
    const VkPushConstantRange *range = info->pPushConstantRanges;
    VkResult r = VK_SUCCESS;
    if (info->setLayoutCount || info->pushConstantRangeCount != 1) misuse("a layout to be kept");
    if (!m->layout) {
        r = REAL_OF(device, vkCreatePipelineLayout)(device, info, a, &m->layout);
        m->range = *range;
    }
    if (memcmp(&m->range, range, sizeof *range) != 0) misuse("two layouts to be kept");
    *out = m->layout;
    return r;
}

static void VKAPI_CALL kept_layout(VkDevice device, VkPipelineLayout layout,
                                   const VkAllocationCallbacks *a)
{
    (void)a;
    if (made_of(device)->layout != layout) misuse("a layout that there is not");
}

static VkResult VKAPI_CALL keep_module(VkDevice device, const VkShaderModuleCreateInfo *info,
                                       const VkAllocationCallbacks *a, VkShaderModule *out)
{
    struct made *m = made_of(device);
    uint32_t i = 0;
    VkResult r = VK_SUCCESS;
    while (i < m->n_module && m->module[i].code != info->pCode)
        i++;
    if (i == N_MADE) misuse("more kernels than it keeps");
    if (i == m->n_module) {
        r = module(device, info, a, &m->module[i].module);
        m->module[i].code = info->pCode;
        m->n_module += !r;
    }
    *out = m->module[i].module;
    return r;
}

static void VKAPI_CALL kept_module(VkDevice device, VkShaderModule which,
                                   const VkAllocationCallbacks *a)
{
    (void)device;
    (void)which;
    (void)a;
}

/* By its code and constants. */
static VkResult VKAPI_CALL keep_pipeline(VkDevice device, VkPipelineCache cache, uint32_t n,
                                         const VkComputePipelineCreateInfo *info,
                                         const VkAllocationCallbacks *a, VkPipeline *out)
{
    struct made *m = made_of(device);
    const VkSpecializationInfo *spec = info->stage.pSpecializationInfo;
    uint32_t i = 0, with[2] = {0};
    VkResult r = VK_SUCCESS;
    if (n != 1 || !spec || spec->dataSize != sizeof with) misuse("a kernel to be kept");
    memcpy(with, spec->pData, sizeof with);
    while (i < m->n_pipeline && (m->pipeline[i].module != info->stage.module ||
                                 memcmp(m->pipeline[i].with, with, sizeof with) != 0))
        i++;
    if (i == N_MADE) misuse("more kernels than it keeps");
    if (i == m->n_pipeline) {
        r = REAL_OF(device, vkCreateComputePipelines)(device, cache, 1, info, a,
                                                      &m->pipeline[i].pipeline);
        m->pipeline[i].module = info->stage.module;
        memcpy(m->pipeline[i].with, with, sizeof with);
        m->n_pipeline += !r;
    }
    *out = m->pipeline[i].pipeline;
    return r;
}

static void VKAPI_CALL kept_pipeline(VkDevice device, VkPipeline pipeline,
                                     const VkAllocationCallbacks *a)
{
    struct made *m = made_of(device);
    uint32_t i = 0;
    (void)a;
    while (i < m->n_pipeline && m->pipeline[i].pipeline != pipeline)
        i++;
    if (i == m->n_pipeline) misuse("a kernel that there is not");
}

static const struct {
    const char *name;
    PFN_vkVoidFunction fn;
} of_keep[] = {
    {"vkCreateInstance", (PFN_vkVoidFunction)(void (*)(void))keep_instance},
    {"vkDestroyInstance", (PFN_vkVoidFunction)(void (*)(void))kept_instance},
    {"vkCreateDevice", (PFN_vkVoidFunction)(void (*)(void))keep_device},
    {"vkDestroyDevice", (PFN_vkVoidFunction)(void (*)(void))kept_device},
    {"vkCreatePipelineLayout", (PFN_vkVoidFunction)(void (*)(void))keep_layout},
    {"vkDestroyPipelineLayout", (PFN_vkVoidFunction)(void (*)(void))kept_layout},
    {"vkCreateShaderModule", (PFN_vkVoidFunction)(void (*)(void))keep_module},
    {"vkDestroyShaderModule", (PFN_vkVoidFunction)(void (*)(void))kept_module},
    {"vkCreateComputePipelines", (PFN_vkVoidFunction)(void (*)(void))keep_pipeline},
    {"vkDestroyPipeline", (PFN_vkVoidFunction)(void (*)(void))kept_pipeline}};

static PFN_vkVoidFunction of_kept(const char *name)
{
    for (size_t i = 0; word("keep") && i < sizeof of_keep / sizeof *of_keep; i++)
        if (strcmp(of_keep[i].name, name) == 0) return of_keep[i].fn;
    return NULL;
}

/* ---- names ---- */

static const struct {
    const char *name;
    PFN_vkVoidFunction fn;
} of_device[] = {{"vkAllocateMemory", (PFN_vkVoidFunction)(void (*)(void))allocate},
                 {"vkFreeMemory", (PFN_vkVoidFunction)(void (*)(void))give},
                 {"vkMapMemory", (PFN_vkVoidFunction)(void (*)(void))map},
                 {"vkCreateShaderModule", (PFN_vkVoidFunction)(void (*)(void))module},
                 {"vkGetBufferMemoryRequirements", (PFN_vkVoidFunction)(void (*)(void))needs},
                 {"vkCmdDispatch", (PFN_vkVoidFunction)(void (*)(void))dispatch}};

static PFN_vkVoidFunction VKAPI_CALL get_of_device(VkDevice device, const char *name)
{
    if (of_kept(name)) return of_kept(name);
    for (size_t i = 0; i < sizeof of_device / sizeof *of_device; i++)
        if (strcmp(of_device[i].name, name) == 0) return of_device[i].fn;
    return g.of_device(device, name);
}

static const struct {
    const char *name;
    PFN_vkVoidFunction fn;
} of_instance[] = {
    {"vkEnumeratePhysicalDevices", (PFN_vkVoidFunction)(void (*)(void))devices},
    {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)(void (*)(void))properties},
    {"vkGetPhysicalDeviceFeatures2", (PFN_vkVoidFunction)(void (*)(void))features},
    {"vkCreateDevice", (PFN_vkVoidFunction)(void (*)(void))create},
    {"vkGetPhysicalDeviceMemoryProperties2", (PFN_vkVoidFunction)(void (*)(void))memory},
    {"vkGetPhysicalDeviceQueueFamilyProperties", (PFN_vkVoidFunction)(void (*)(void))families},
    {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)(void (*)(void))get_of_device}};

API PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name);
API PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
    if (!g.get) {
        void *lib = dlopen(SL_REAL_VULKAN, RTLD_NOW | RTLD_LOCAL);
        void *f = lib ? dlsym(lib, "vkGetInstanceProcAddr") : NULL;
        if (!f) return NULL;
        memcpy(&g.get, &f, sizeof f);
    }
    if (instance) {
        g.instance = instance;
        PFN_vkVoidFunction of = g.get(instance, "vkGetDeviceProcAddr");
        memcpy(&g.of_device, &of, sizeof of);
    }
    if (of_kept(name)) return of_kept(name);
    for (size_t i = 0; instance && i < sizeof of_instance / sizeof *of_instance; i++)
        if (strcmp(of_instance[i].name, name) == 0) return of_instance[i].fn;
    return g.get(instance, name);
}
