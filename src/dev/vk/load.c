/* SPDX-License-Identifier: Apache-2.0 */
/* Vulkan's loader, an instance, and which devices there are. */
#include "dev/vk/vk.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *dev_vk_text(VkResult r)
{
    switch (r) {
#define X(name)                                                                                    \
    case name:                                                                                     \
        return #name;
        X(VK_TIMEOUT)
        X(VK_ERROR_OUT_OF_HOST_MEMORY)
        X(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        X(VK_ERROR_INITIALIZATION_FAILED)
        X(VK_ERROR_DEVICE_LOST)
        X(VK_ERROR_LAYER_NOT_PRESENT)
        X(VK_ERROR_EXTENSION_NOT_PRESENT)
        X(VK_ERROR_FEATURE_NOT_PRESENT)
        X(VK_ERROR_INCOMPATIBLE_DRIVER)
        X(VK_ERROR_TOO_MANY_OBJECTS)
        X(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
#undef X
    default:
        return "an error of the driver";
    }
}

static sl_status get(void *to, PFN_vkVoidFunction f, const char *name, sl_err *err)
{
    if (!f) return SL_FAIL(err, UNSUPPORTED, "libvulkan.so.1 has no %s: update it", name);
    memcpy(to, &f, sizeof f);
    return SL_OK;
}

static sl_status load_library(struct vk *v, sl_err *err)
{
    v->lib = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!v->lib)
        return SL_FAIL(err, NOTFOUND,
                       "libvulkan.so.1 is not installed (Debian: libvulkan1 and a driver: "
                       "mesa-vulkan-drivers or nvidia's)");
    void *f = dlsym(v->lib, "vkGetInstanceProcAddr");
    if (!f) return SL_FAIL(err, UNSUPPORTED, "libvulkan.so.1 is no Vulkan loader");
    memcpy(&v->GetInstanceProcAddr, &f, sizeof f);
    return SL_OK;
}

static sl_status load_global(struct vk *v, sl_err *err)
{
    uint32_t version = 0;
#define X(name)                                                                                    \
    SL_TRY(get(&v->name, v->GetInstanceProcAddr(NULL, "vk" #name), "vk" #name, err));
    VK_GLOBAL_LIST(X)
#undef X
    if (v->EnumerateInstanceVersion(&version) || version < VK_API_VERSION_1_2)
        return SL_FAIL(err, UNSUPPORTED, "libvulkan.so.1 knows no Vulkan 1.2: update it");
    return SL_OK;
}

sl_status dev_vk_load(struct vk *v, sl_err *err)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "sluice",
                             .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    SL_TRY(load_library(v, err));
    SL_TRY(load_global(v, err));
    VkResult r = v->CreateInstance(&info, NULL, &v->instance);
    if (r == VK_ERROR_INCOMPATIBLE_DRIVER)
        return SL_FAIL(err, NOTFOUND,
                       "no driver for Vulkan is installed (Debian: mesa-vulkan-drivers or "
                       "nvidia's)");
    if (r) return SL_FAIL(err, UNSUPPORTED, "vkCreateInstance: %s", dev_vk_text(r));
#define X(name)                                                                                    \
    SL_TRY(get(&v->name, v->GetInstanceProcAddr(v->instance, "vk" #name), "vk" #name, err));
    VK_INSTANCE_LIST(X)
#undef X
    return SL_OK;
}

sl_status dev_vk_load_device(struct vk *v, sl_err *err)
{
#define X(name)                                                                                    \
    SL_TRY(get(&v->name, v->GetDeviceProcAddr(v->device, "vk" #name), "vk" #name, err));
    VK_DEVICE_LIST(X)
#undef X
    return SL_OK;
}

void dev_vk_unload(struct vk *v)
{
    if (v->instance && v->DestroyInstance) v->DestroyInstance(v->instance, NULL);
    if (v->lib) dlclose(v->lib);
    *v = (struct vk){0};
}

/* ---- what there is ---- */

static void describe(const struct vk *v, VkPhysicalDevice card, struct dev_desc *out)
{
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    v->GetPhysicalDeviceProperties2(card, &p);
    v->GetPhysicalDeviceMemoryProperties2(card, &m);
    const char *lacks = dev_vk_lacks(v, card);
    for (uint32_t i = 0; i < m.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap *h = &m.memoryProperties.memoryHeaps[i];
        if (h->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            out->mem = BASE_MAX(out->mem, (int64_t)h->size);
    }
    out->is_cpu = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    snprintf(out->text, sizeof out->text, "%.80s", p.properties.deviceName);
    if (lacks)
        snprintf(out->why_not, sizeof out->why_not,
                 "no %s: this driver can not run sluice: update it", lacks);
}

int dev_vk_list(struct dev_desc *out, int n, sl_err *err)
{
    struct vk v = {0};
    VkPhysicalDevice card[16];
    uint32_t n_card = BASE_COUNT_OF(card);
    int n_out = -1;
    if (dev_vk_load(&v, err) == SL_OK) {
        VkResult r = v.EnumeratePhysicalDevices(v.instance, &n_card, card);
        n_out = r && r != VK_INCOMPLETE ? 0 : (int)n_card;
        for (int i = 0; i < n_out && i < n; i++) {
            out[i] = (struct dev_desc){0};
            snprintf(out[i].name, sizeof out[i].name, "vulkan:%d", i);
            describe(&v, card[i], &out[i]);
        }
    }
    dev_vk_unload(&v);
    return n_out;
}
