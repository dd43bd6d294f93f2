/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: memory, recordings, submits. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "dev/vk/vk.h"

#define WAIT_NS 10000000000 /* then it is asked again */
#define WAITS 6             /* of a card; a CPU may take as long as it needs */
#define SEEN (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

static sl_status failed(VkResult r, const char *what, sl_err *err)
{
    if (r == VK_ERROR_DEVICE_LOST) return SL_FAIL(err, DEVICE, "lost (%s)", dev_vk_text(r));
    if (r == VK_ERROR_OUT_OF_HOST_MEMORY || r == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
        r == VK_ERROR_TOO_MANY_OBJECTS)
        return SL_FAIL(err, NOMEM, "%s: %s", what, dev_vk_text(r));
    return SL_FAIL(err, INTERNAL, "%s: %s", what, dev_vk_text(r));
}

/* ---- memory ---- */

/* The first of the types (bits) that has those flags; of the device's own memory one that lies in
 * its heap, for windows into it, and others, are small. */
static uint32_t mem_type(const struct vk *v, uint32_t bits, VkMemoryPropertyFlags flags)
{
    bool is_own = flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    for (uint32_t i = 0; i < v->mem.memoryTypeCount; i++) {
        const VkMemoryType *t = &v->mem.memoryTypes[i];
        if (bits >> i & 1u && (t->propertyFlags & flags) == flags &&
            (!is_own || t->heapIndex == v->heap))
            return i;
    }
    return UINT32_MAX;
}

static uint32_t choose_type(const struct vk *v, uint32_t bits, bool pinned)
{
    VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    if (!pinned) return mem_type(v, bits, v->is_unified ? local | SEEN : local);
    uint32_t t = mem_type(v, bits, SEEN | VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
    return t == UINT32_MAX ? mem_type(v, bits, SEEN) : t;
}

static void free_mem(struct vk *v, struct vk_mem *m)
{
    if (m->buffer) v->DestroyBuffer(v->device, m->buffer, NULL);
    if (m->memory) v->FreeMemory(v->device, m->memory, NULL); /* and unmaps it */
    mem_free(m);
}

static sl_status vk_mem_left(void *g, int64_t *out, sl_err *err)
{
    struct vk *v = g;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT b = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    (void)err;
    m.pNext = v->has_budget ? &b : NULL;
    v->GetPhysicalDeviceMemoryProperties2(v->card, &m);
    int64_t all = (int64_t)v->mem.memoryHeaps[v->heap].size;
    *out = v->has_budget ? (int64_t)b.heapBudget[v->heap] - (int64_t)b.heapUsage[v->heap]
                         : all - v->taken;
    *out = BASE_MAX(*out, 0);
    return SL_OK;
}

/* An allocation of n bytes has failed. */
static sl_status no_room(struct vk *v, VkResult r, uint64_t n, bool pinned, sl_err *err)
{
    int64_t left = 0;
    if (r == VK_ERROR_DEVICE_LOST) return failed(r, "vkAllocateMemory", err);
    if (pinned || vk_mem_left(v, &left, NULL))
        return SL_FAIL(err, NOMEM, "%.1f MiB of the host's memory: %s", (double)n / (1 << 20),
                       dev_vk_text(r));
    return SL_FAIL(err, NOMEM, "%.1f MiB needed, %.1f free (%s)", (double)n / (1 << 20),
                   (double)left / (1 << 20), dev_vk_text(r));
}

static sl_status make_buffer(struct vk *v, struct vk_mem *m, bool pinned, sl_err *err)
{
    VkMemoryRequirements need;
    VkBufferCreateInfo b = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                            .size = m->n,
                            .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                     VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                     VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                     VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    const uint32_t families[2] = {v->family, v->send_family};
    if (v->send_family != v->family) {
        b.sharingMode = VK_SHARING_MODE_CONCURRENT;
        b.queueFamilyIndexCount = 2;
        b.pQueueFamilyIndices = families;
    }
    VkResult r = v->CreateBuffer(v->device, &b, NULL, &m->buffer);
    if (r) return failed(r, "vkCreateBuffer", err);
    v->GetBufferMemoryRequirements(v->device, m->buffer, &need);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo a = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                              .pNext = &flags,
                              .allocationSize = need.size,
                              .memoryTypeIndex = choose_type(v, need.memoryTypeBits, pinned)};
    if (a.memoryTypeIndex == UINT32_MAX)
        return SL_FAIL(err, UNSUPPORTED, "no memory of the kind that is needed");
    r = v->AllocateMemory(v->device, &a, NULL, &m->memory);
    if (r) return no_room(v, r, m->n, pinned, err);
    r = v->BindBufferMemory(v->device, m->buffer, m->memory, 0);
    return r ? failed(r, "vkBindBufferMemory", err) : SL_OK;
}

static sl_status fill_mem(struct vk *v, struct vk_mem *m, bool pinned, struct gpu_mem *out,
                          sl_err *err)
{
    void *p = NULL;
    SL_TRY(make_buffer(v, m, pinned, err));
    if (pinned || v->is_unified) {
        VkResult r = v->MapMemory(v->device, m->memory, 0, VK_WHOLE_SIZE, 0, &p);
        if (r) return failed(r, "vkMapMemory", err);
    }
    VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                      .buffer = m->buffer};
    m->at = v->GetBufferDeviceAddress(v->device, &info);
    *out = (struct gpu_mem){.at = m->at, .host = p, .n = (int64_t)m->n, .own = m};
    return SL_OK;
}

static sl_status vk_mem(void *g, int64_t n, bool pinned, struct gpu_mem *out, sl_err *err)
{
    struct vk *v = g;
    void *p = NULL;
    if (v->n_mem == VK_MEM_MAX)
        return SL_FAIL(err, NOMEM, "more than %d allocations", VK_MEM_MAX);
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct vk_mem), &p, err));
    struct vk_mem *m = p;
    m->n = (uint64_t)n;
    sl_status st = fill_mem(v, m, pinned, out, err);
    if (st) {
        free_mem(v, m);
        return st;
    }
    v->of[v->n_mem++] = m;
    if (!pinned) v->taken += n;
    return SL_OK;
}

static void vk_mem_free(void *g, struct gpu_mem *mem)
{
    struct vk *v = g;
    for (int i = 0; i < v->n_mem; i++)
        if (v->of[i] == mem->own) {
            free_mem(v, v->of[i]);
            v->of[i] = v->of[--v->n_mem];
            break;
        }
    *mem = (struct gpu_mem){0};
}

/* ---- recordings ---- */

static const struct vk_mem *mem_of(const struct vk *v, uint64_t at)
{
    for (int i = 0; i < v->n_mem; i++)
        if (at >= v->of[i]->at && at < v->of[i]->at + v->of[i]->n) return v->of[i];
    ASSERT(!"an address of this device");
    return NULL;
}

static void put_barrier(struct vk *v, VkCommandBuffer cb)
{
    const VkPipelineStageFlags all =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkMemoryBarrier b = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                          VK_ACCESS_TRANSFER_READ_BIT |
                                          VK_ACCESS_TRANSFER_WRITE_BIT};
    v->CmdPipelineBarrier(cb, all, all, 0, 1, &b, 0, NULL, 0, NULL);
}

/* The host reads what the device wrote. */
static void put_end(struct vk *v, VkCommandBuffer cb)
{
    VkMemoryBarrier b = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT};
    v->CmdPipelineBarrier(cb, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                          VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &b, 0, NULL, 0, NULL);
}

static void put_entry(struct vk *v, VkCommandBuffer cb, const struct gpu_entry *e)
{
    if (e->barrier) put_barrier(v, cb);
    if (e->kind == GPU_LAUNCH) {
        v->CmdBindPipeline(cb, VK_PIPELINE_BIND_POINT_COMPUTE, v->pipeline[e->kernel]);
        v->CmdPushConstants(cb, v->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, e->n_k, e->u.k);
        v->CmdDispatch(cb, e->grid[0], e->grid[1], e->grid[2]);
        return;
    }
    if (e->kind == GPU_STAMP) {
        uint32_t n = (uint32_t)e->u.c.to;
        v->CmdResetQueryPool(cb, v->stamps, n, 1);
        v->CmdWriteTimestamp(cb, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, v->stamps, n);
        return;
    }
    const struct vk_mem *to = mem_of(v, e->u.c.to);
    if (e->kind == GPU_FILL) {
        v->CmdFillBuffer(cb, to->buffer, e->u.c.to - to->at, e->u.c.n, (uint32_t)e->u.c.from);
        return;
    }
    const struct vk_mem *from = mem_of(v, e->u.c.from);
    VkBufferCopy c = {e->u.c.from - from->at, e->u.c.to - to->at, e->u.c.n};
    v->CmdCopyBuffer(cb, from->buffer, to->buffer, 1, &c);
}

/* Room for the times of stamps, before the first is recorded. */
static sl_status need_stamps(struct vk *v, const struct gpu_entry *log, int n, sl_err *err)
{
    VkQueryPoolCreateInfo q = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                               .queryType = VK_QUERY_TYPE_TIMESTAMP,
                               .queryCount = GPU_STAMPS};
    int i = v->stamps ? n : 0;
    while (i < n && log[i].kind != GPU_STAMP)
        i++;
    VkResult r = i < n ? v->CreateQueryPool(v->device, &q, NULL, &v->stamps) : VK_SUCCESS;
    return r ? failed(r, "vkCreateQueryPool", err) : SL_OK;
}

static sl_status vk_times(void *g, int n, int64_t *out)
{
    struct vk *v = g;
    VkResult r = v->GetQueryPoolResults(v->device, v->stamps, 0, (uint32_t)n,
                                        (size_t)n * sizeof *out, out, sizeof *out,
                                        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    uint64_t first = (uint64_t)out[0], mask = ~(uint64_t)0 >> (64 - v->stamp_bits);
    for (int i = 0; i < n && !r; i++) /* the clock may run over between two */
        out[i] = (int64_t)((double)(((uint64_t)out[i] - first) & mask) * v->stamp_ns);
    return r ? failed(r, "vkGetQueryPoolResults", NULL) : SL_OK;
}

static sl_status vk_record(void *g, const struct gpu_entry *log, int n, void **out, sl_err *err)
{
    struct vk *v = g;
    VkCommandBuffer cb;
    SL_TRY(need_stamps(v, log, n, err));
    VkCommandBufferAllocateInfo a = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                     .commandPool = v->pool,
                                     .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                     .commandBufferCount = 1};
    VkCommandBufferBeginInfo b = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                  .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VkResult r = v->AllocateCommandBuffers(v->device, &a, &cb);
    if (r) return failed(r, "vkAllocateCommandBuffers", err);
    r = v->BeginCommandBuffer(cb, &b);
    for (int i = 0; i < n && !r; i++)
        put_entry(v, cb, &log[i]);
    if (!r) put_end(v, cb);
    if (!r) r = v->EndCommandBuffer(cb);
    if (r) {
        v->FreeCommandBuffers(v->device, v->pool, 1, &cb);
        return failed(r, "a command buffer", err);
    }
    *out = cb;
    return SL_OK;
}

static void vk_forget(void *g, void *rec)
{
    struct vk *v = g;
    VkCommandBuffer cb = rec;
    v->FreeCommandBuffers(v->device, v->pool, 1, &cb);
}

/* A command buffer, which waits for one of the semaphores and counts up the other. */
struct queued {
    VkQueue queue;
    VkCommandBuffer cb;
    VkSemaphore wait, done;
    uint64_t n_wait, n_done; /* n_wait 0: it waits for nothing */
};

static sl_status put_queue(struct vk *v, const struct queued *q, sl_err *err)
{
    const VkPipelineStageFlags stage =
        VK_PIPELINE_STAGE_TRANSFER_BIT |
        (q->done == v->sent ? 0 : VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
    VkTimelineSemaphoreSubmitInfo t = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                       .waitSemaphoreValueCount = q->n_wait > 0,
                                       .pWaitSemaphoreValues = &q->n_wait,
                                       .signalSemaphoreValueCount = 1,
                                       .pSignalSemaphoreValues = &q->n_done};
    VkSubmitInfo s = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                      .pNext = &t,
                      .waitSemaphoreCount = q->n_wait > 0,
                      .pWaitSemaphores = &q->wait,
                      .pWaitDstStageMask = &stage,
                      .commandBufferCount = 1,
                      .pCommandBuffers = &q->cb,
                      .signalSemaphoreCount = 1,
                      .pSignalSemaphores = &q->done};
    VkResult r = v->QueueSubmit(q->queue, 1, &s, VK_NULL_HANDLE);
    return r ? failed(r, "vkQueueSubmit", err) : SL_OK;
}

static sl_status vk_submit(void *g, void *rec, uint64_t n_send, sl_err *err)
{
    struct vk *v = g;
    struct queued q = {.queue = v->queue,
                       .cb = rec,
                       .wait = v->sent,
                       .done = v->done,
                       .n_wait = n_send > v->n_send_waited ? n_send : 0,
                       .n_done = v->n_submit + 1};
    SL_TRY(put_queue(v, &q, err));
    v->n_submit++;
    v->n_send_waited = BASE_MAX(v->n_send_waited, n_send);
    return SL_OK;
}

static sl_status wait_for(struct vk *v, VkSemaphore semaphore, uint64_t n, sl_err *err)
{
    VkSemaphoreWaitInfo w = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                             .semaphoreCount = 1,
                             .pSemaphores = &semaphore,
                             .pValues = &n};
    VkResult r = VK_TIMEOUT;
    for (int i = 0; r == VK_TIMEOUT && (v->is_cpu || i < WAITS); i++)
        r = v->WaitSemaphores(v->device, &w, WAIT_NS);
    if (r == VK_TIMEOUT)
        return SL_FAIL(err, DEVICE, "lost (no answer in %d s)", (int)(WAITS * (WAIT_NS / 1e9)));
    return r ? failed(r, "vkWaitSemaphores", err) : SL_OK;
}

static sl_status vk_wait(void *g, uint64_t n, sl_err *err)
{
    struct vk *v = g;
    return wait_for(v, v->done, n, err);
}

/* ---- what is sent ---- */

static sl_status vk_wait_send(void *g, uint64_t n, sl_err *err)
{
    struct vk *v = g;
    return wait_for(v, v->sent, n, err);
}

static sl_status vk_send(void *g, const struct gpu_sending *s, sl_err *err)
{
    struct vk *v = g;
    uint64_t n = v->n_send + 1;
    VkCommandBuffer cb = v->send[n % VK_SENDS];
    const struct vk_mem *to = mem_of(v, s->to), *from = mem_of(v, s->from);
    VkBufferCopy c = {s->from - from->at, s->to - to->at, s->n};
    VkCommandBufferBeginInfo b = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                  .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    struct queued q = {.queue = v->send_queue,
                       .cb = cb,
                       .wait = v->done,
                       .done = v->sent,
                       .n_wait = s->after,
                       .n_done = n};
    if (n > VK_SENDS) SL_TRY(vk_wait_send(g, n - VK_SENDS, err)); /* it is recorded there */
    VkResult r = v->BeginCommandBuffer(cb, &b);
    if (!r) v->CmdCopyBuffer(cb, from->buffer, to->buffer, 1, &c);
    if (!r) r = v->EndCommandBuffer(cb);
    if (r) return failed(r, "a command buffer", err);
    SL_TRY(put_queue(v, &q, err));
    v->n_send = n;
    return SL_OK;
}

static sl_status open_send(struct vk *v, sl_err *err)
{
    VkCommandPoolCreateInfo p = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                 .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                 .queueFamilyIndex = v->send_family};
    VkCommandBufferAllocateInfo a = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                     .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                     .commandBufferCount = VK_SENDS};
    VkResult r = v->CreateCommandPool(v->device, &p, NULL, &v->send_pool);
    a.commandPool = v->send_pool;
    if (!r) r = v->AllocateCommandBuffers(v->device, &a, v->send);
    return r ? failed(r, "opening", err) : SL_OK;
}

/* ---- kernels ---- */

static sl_status vk_kernel(void *g, enum gpu_kernel id, bool fused, sl_err *err)
{
    struct vk *v = g;
    const struct vk_code *code = &dev_vk_code[id];
    VkShaderModule module;
    VkShaderModuleCreateInfo m = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                  .codeSize = code->n_bytes,
                                  .pCode = code->words};
    VkResult r = v->CreateShaderModule(v->device, &m, NULL, &module);
    if (r) return failed(r, code->name, err);
    uint32_t with[2] = {fused, v->unit_k};
    bool units = strncmp(code->name, "cm_", 3) == 0;
    VkSpecializationMapEntry entry[2] = {{.constantID = 0, .offset = 0, .size = 4},
                                         {.constantID = 1, .offset = 4, .size = 4}};
    VkSpecializationInfo spec = {.mapEntryCount = units ? 2 : 1,
                                 .pMapEntries = entry,
                                 .dataSize = sizeof with,
                                 .pData = with};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = 32};
    VkComputePipelineCreateInfo p = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = units ? &size : NULL,
                  .flags = units ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT
                                 : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &spec},
        .layout = v->layout};
    r = v->CreateComputePipelines(v->device, VK_NULL_HANDLE, 1, &p, NULL, &v->pipeline[id]);
    v->DestroyShaderModule(v->device, module, NULL);
    return r ? failed(r, code->name, err) : SL_OK;
}

/* ---- open ---- */

static sl_status pick_card(struct vk *v, int which, sl_err *err)
{
    VkPhysicalDevice card[16];
    uint32_t n = BASE_COUNT_OF(card);
    VkResult r = v->EnumeratePhysicalDevices(v->instance, &n, card);
    if ((r && r != VK_INCOMPLETE) || n == 0)
        return SL_FAIL(err, NOTFOUND,
                       "no driver for Vulkan is installed (Debian: mesa-vulkan-drivers or "
                       "nvidia's)");
    if ((uint32_t)which >= n) {
        char list[160];
        dev_gpu_list_text(dev_vk_list, list, sizeof list);
        return SL_FAIL(err, NOTFOUND, "there %s %u: %s", n == 1 ? "is" : "are", n, list);
    }
    v->card = card[which];
    const char *lacks = dev_vk_lacks(v, v->card);
    return lacks ? SL_FAIL(err, UNSUPPORTED, "no %s: this driver can not run sluice: update it",
                           lacks)
                 : SL_OK;
}

static void read_limits(struct vk *v, struct gpu_limits *lim)
{
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceDriverProperties by = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &v11};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &by};
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    v->GetPhysicalDeviceProperties2(v->card, &p);
    v->GetPhysicalDeviceMemoryProperties2(v->card, &m);
    v->mem = m.memoryProperties;
    for (uint32_t i = 0; i < v->mem.memoryHeapCount; i++)
        if (v->mem.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT &&
            (int64_t)v->mem.memoryHeaps[i].size > lim->mem_total) {
            lim->mem_total = (int64_t)v->mem.memoryHeaps[i].size;
            v->heap = i;
        }
    VkPhysicalDeviceType type = p.properties.deviceType;
    v->is_cpu = type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    v->is_unified = (v->is_cpu || type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) &&
                    mem_type(v, UINT32_MAX, SEEN | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) < 32;
    lim->is_unified = v->is_unified;
    lim->is_cpu = v->is_cpu;
    v->stamp_ns = (double)p.properties.limits.timestampPeriod;
    lim->slab = (int64_t)v11.maxMemoryAllocationSize;
    snprintf(lim->text, sizeof lim->text, "%.90s", p.properties.deviceName);
    snprintf(lim->driver, sizeof lim->driver, "%.40s %.50s", by.driverName, by.driverInfo);
}

bool dev_vk_has_extension(const struct vk *v, const char *name)
{
    void *p = NULL;
    uint32_t n = 0;
    bool found = false;
    VkResult r = v->EnumerateDeviceExtensionProperties(v->card, NULL, &n, NULL);
    if (r || mem_alloc_array(MEM_SCRATCH, n, sizeof(VkExtensionProperties), &p, NULL)) return false;
    VkExtensionProperties *all = p;
    r = v->EnumerateDeviceExtensionProperties(v->card, NULL, &n, all);
    for (uint32_t i = 0; (!r || r == VK_INCOMPLETE) && i < n; i++)
        found |= strcmp(all[i].extensionName, name) == 0;
    mem_free(p);
    return found;
}

static sl_status open_rest(struct vk *v, sl_err *err)
{
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
    VkPipelineLayoutCreateInfo l = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                    .pushConstantRangeCount = 1,
                                    .pPushConstantRanges = &range};
    VkCommandPoolCreateInfo p = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                 .queueFamilyIndex = v->family};
    VkSemaphoreTypeCreateInfo t = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                   .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo s = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &t};
    VkResult r = v->CreatePipelineLayout(v->device, &l, NULL, &v->layout);
    if (!r) r = v->CreateCommandPool(v->device, &p, NULL, &v->pool);
    if (!r) r = v->CreateSemaphore(v->device, &s, NULL, &v->done);
    if (!r) r = v->CreateSemaphore(v->device, &s, NULL, &v->sent);
    return r ? failed(r, "opening", err) : open_send(v, err);
}

static void vk_close(void *g)
{
    struct vk *v = g;
    if (v->device && v->DestroyDevice) {
        for (int i = 0; i < GPU_N_KERNEL; i++)
            if (v->pipeline[i]) v->DestroyPipeline(v->device, v->pipeline[i], NULL);
        if (v->stamps) v->DestroyQueryPool(v->device, v->stamps, NULL);
        if (v->layout) v->DestroyPipelineLayout(v->device, v->layout, NULL);
        if (v->pool) v->DestroyCommandPool(v->device, v->pool, NULL);
        if (v->send_pool) v->DestroyCommandPool(v->device, v->send_pool, NULL);
        if (v->done) v->DestroySemaphore(v->device, v->done, NULL);
        if (v->sent) v->DestroySemaphore(v->device, v->sent, NULL);
        v->DestroyDevice(v->device, NULL);
    }
    dev_vk_unload(v);
    mem_free(v);
}

static sl_status vk_open(int which, void **out, struct gpu_limits *lim, sl_err *err)
{
    void *p = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct vk), &p, err));
    struct vk *v = p;
    *lim = (struct gpu_limits){0};
    SL_TRY_OUT(dev_vk_load(v, err));
    SL_TRY_OUT(pick_card(v, which, err));
    read_limits(v, lim);
    v->has_budget = dev_vk_has_extension(v, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    dev_vk_ask_units(v, lim);
    SL_TRY_OUT(dev_vk_device(v, err));
    lim->has_clock = v->stamp_bits > 0;
    SL_TRY_OUT(open_rest(v, err));
out:
    if (st)
        vk_close(v);
    else
        *out = v;
    return st;
}

static const struct gpu_driver driver = {.name = "vulkan",
                                         .open = vk_open,
                                         .close = vk_close,
                                         .mem = vk_mem,
                                         .mem_free = vk_mem_free,
                                         .mem_left = vk_mem_left,
                                         .kernel = vk_kernel,
                                         .record = vk_record,
                                         .forget = vk_forget,
                                         .submit = vk_submit,
                                         .wait = vk_wait,
                                         .send = vk_send,
                                         .wait_send = vk_wait_send,
                                         .times = vk_times};

static sl_status open_device(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    return dev_gpu_open(&dev_vulkan_class, &driver, options, o, out, err);
}

const struct dev_class dev_vulkan_class = {
    .name = "vulkan", .open = open_device, .list = dev_vk_list, DEV_GPU_ENTRIES};
