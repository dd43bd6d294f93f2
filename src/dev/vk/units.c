/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix units for bytes, by VK_KHR_cooperative_matrix: whether a device has those that the kernels
 * want (16 x 16 sums of 16 or 32 products in a subgroup of 32). Debian 12's headers are older than
 * the extension, so what is used of it is declared here. */
#include "dev/vk/vk.h"

#include <stdio.h>
#include <string.h>

#define MATRICES "VK_KHR_cooperative_matrix"
enum { /* of that extension */
       STYPE_FEATURES = 1000506000,
       STYPE_PROPERTIES = 1000506001,
       SINT8 = 3,
       SINT32 = 5,
       SCOPE_SUBGROUP = 3,
};
struct shape {
    VkStructureType sType;
    void *pNext;
    uint32_t m, n, k;
    int a, b, c, result;
    VkBool32 saturates;
    int scope;
};
typedef VkResult(VKAPI_PTR *shapes_fn)(VkPhysicalDevice card, uint32_t *n, struct shape *out);

static bool fits(const struct shape *s)
{
    return s->m == 16 && s->n == 16 && (s->k == 16 || s->k == 32) && s->a == SINT8 &&
           s->b == SINT8 && s->c == SINT32 && s->result == SINT32 && !s->saturates &&
           s->scope == SCOPE_SUBGROUP;
}

/* The k of the widest shape that the kernels can use; 0 = there is none. */
static uint32_t find_shape(const struct vk *v)
{
    struct shape s[64];
    uint32_t n = BASE_COUNT_OF(s), k = 0;
    PFN_vkVoidFunction f =
        v->GetInstanceProcAddr(v->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    shapes_fn shapes;
    if (!f) return 0;
    memcpy(&shapes, &f, sizeof shapes);
    for (int i = 0; i < BASE_COUNT_OF(s); i++)
        s[i] = (struct shape){.sType = (VkStructureType)STYPE_PROPERTIES};
    VkResult r = shapes(v->card, &n, s);
    if (r && r != VK_INCOMPLETE) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (fits(&s[i])) k = BASE_MAX(k, s[i].k);
    return k;
}

static const char *lacks(const struct vk *v)
{
    struct vk_units_features u;
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sub = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &sub};
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &v12};
    if (!dev_vk_has_units) return "sluice was built without them (they want glslang 13)";
    if (!dev_vk_has_extension(v, MATRICES)) return "the driver has no " MATRICES;
    if (!dev_vk_has_extension(v, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        return "the driver has no " VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    v12.pNext = dev_vk_units_features(&u, false);
    v->GetPhysicalDeviceFeatures2(v->card, &f);
    v->GetPhysicalDeviceProperties2(v->card, &p);
    if (!u.matrices.is_there || !v12.shaderInt8 || !v12.vulkanMemoryModel ||
        !u.sub.subgroupSizeControl || !u.sub.computeFullSubgroups)
        return "the driver has none for kernels of this kind";
    if (sub.minSubgroupSize > 32 || sub.maxSubgroupSize < 32 ||
        !(sub.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT))
        return "there are no subgroups of 32";
    return NULL;
}

void *dev_vk_units_features(struct vk_units_features *u, bool want)
{
    *u = (struct vk_units_features){0};
    u->sub.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT;
    u->sub.pNext = &u->matrices;
    u->matrices.sType = (VkStructureType)STYPE_FEATURES;
    u->sub.subgroupSizeControl = u->sub.computeFullSubgroups = u->matrices.is_there = want;
    return &u->sub;
}

uint32_t dev_vk_units_extensions(const char **out)
{
    out[0] = MATRICES;
    out[1] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    return 2;
}

void dev_vk_ask_units(struct vk *v, struct gpu_limits *lim)
{
    const char *why = lacks(v);
    v->unit_k = why ? 0 : find_shape(v);
    if (!why && !v->unit_k) why = "they are of other shapes than int8 16x16x32 or 16x16x16";
    lim->has_units = !why;
    if (why)
        snprintf(lim->units, sizeof lim->units, "%s", why);
    else
        snprintf(lim->units, sizeof lim->units, "int8, " MATRICES " 16x16x%u", v->unit_k);
}
