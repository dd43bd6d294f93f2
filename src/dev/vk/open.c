/* SPDX-License-Identifier: Apache-2.0 */
/* Which device, what it must have, and opening it. */
#include "dev/vk/vk.h"

#include <stdio.h>
#include <string.h>

struct features {
    VkPhysicalDeviceFeatures2 f;
    VkPhysicalDeviceVulkan12Features v12;
};

static void chain(struct features *f)
{
    *f = (struct features){0};
    f->f.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    f->f.pNext = &f->v12;
    f->v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
}

static uint32_t compute_family(const struct vk *v, VkPhysicalDevice card)
{
    VkQueueFamilyProperties q[16];
    uint32_t n = BASE_COUNT_OF(q);
    v->GetPhysicalDeviceQueueFamilyProperties(card, &n, q);
    for (uint32_t i = 0; i < n; i++)
        if (q[i].queueFlags & VK_QUEUE_COMPUTE_BIT) return i;
    return UINT32_MAX;
}

/* Where copies do not hold up what computes: a family that can do nothing else, a second queue, or,
 * where there is neither, the one there is. */
static void choose_send(struct vk *v)
{
    VkQueueFamilyProperties q[16];
    uint32_t n = BASE_COUNT_OF(q);
    v->GetPhysicalDeviceQueueFamilyProperties(v->card, &n, q);
    v->stamp_bits = q[v->family].timestampValidBits;
    v->send_family = v->family;
    v->send_index = q[v->family].queueCount > 1;
    for (uint32_t i = 0; i < n; i++) {
        const VkQueueFlags other = VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT;
        if (!(q[i].queueFlags & VK_QUEUE_TRANSFER_BIT) || q[i].queueFlags & other) continue;
        v->send_family = i;
        v->send_index = 0;
        return;
    }
}

const char *dev_vk_lacks(const struct vk *v, VkPhysicalDevice card)
{
    struct features f;
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    v->GetPhysicalDeviceProperties2(card, &p);
    if (p.properties.apiVersion < VK_API_VERSION_1_2) return "Vulkan 1.2";
    chain(&f);
    v->GetPhysicalDeviceFeatures2(card, &f.f);
    if (!f.v12.bufferDeviceAddress) return "bufferDeviceAddress";
    if (!f.v12.timelineSemaphore) return "timelineSemaphore";
    if (!f.v12.scalarBlockLayout) return "scalarBlockLayout";
    if (!f.f.features.shaderInt64) return "shaderInt64";
    const VkPhysicalDeviceLimits *lim = &p.properties.limits;
    if (lim->maxComputeSharedMemorySize < 24 << 10) return "24 KiB of shared memory";
    if (lim->maxComputeWorkGroupInvocations < 256 || lim->maxComputeWorkGroupSize[0] < 256)
        return "workgroups of 256";
    return compute_family(v, card) == UINT32_MAX ? "compute queue" : NULL;
}

sl_status dev_vk_device(struct vk *v, sl_err *err)
{
    struct features f;
    float first[2] = {1, 1};
    chain(&f);
    f.f.features.shaderInt64 = VK_TRUE;
    f.v12.bufferDeviceAddress = f.v12.timelineSemaphore = f.v12.scalarBlockLayout = VK_TRUE;
    v->family = compute_family(v, v->card);
    choose_send(v);
    bool apart = v->send_family != v->family;
    VkDeviceQueueCreateInfo queue[2] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = v->family,
                                         .queueCount = 1 + v->send_index,
                                         .pQueuePriorities = first}};
    queue[1] = queue[0];
    queue[1].queueFamilyIndex = v->send_family;
    struct vk_units_features units;
    const char *extension[3] = {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME};
    uint32_t n_extension = v->has_budget;
    if (v->unit_k) {
        n_extension += dev_vk_units_extensions(extension + n_extension);
        f.v12.shaderInt8 = f.v12.vulkanMemoryModel = VK_TRUE;
        f.v12.pNext = dev_vk_units_features(&units, true);
    }
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &f.f,
                               .queueCreateInfoCount = 1 + apart,
                               .pQueueCreateInfos = queue,
                               .enabledExtensionCount = n_extension,
                               .ppEnabledExtensionNames = extension};
    VkResult r = v->CreateDevice(v->card, &info, NULL, &v->device);
    if (r) return SL_FAIL(err, UNSUPPORTED, "vkCreateDevice: %s", dev_vk_text(r));
    SL_TRY(dev_vk_load_device(v, err));
    v->GetDeviceQueue(v->device, v->family, 0, &v->queue);
    v->GetDeviceQueue(v->device, v->send_family, v->send_index, &v->send_queue);
    return SL_OK;
}
