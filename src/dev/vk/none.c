/* SPDX-License-Identifier: Apache-2.0 */
/* The device `vulkan` of a build that has no headers of Vulkan or no compiler of its shaders: it
 * says so. */
#include "dev/dev_internal.h"

#define WHY                                                                                        \
    "this sluice was built without Vulkan (Debian: libvulkan-dev and glslang-tools, then build "   \
    "again)"

static sl_status open_device(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    (void)options;
    (void)o;
    (void)out;
    return SL_FAIL(err, UNSUPPORTED, "--device vulkan: " WHY);
}

static int list(struct dev_desc *out, int n, sl_err *err)
{
    (void)out;
    (void)n;
    (void)SL_FAIL(err, UNSUPPORTED, WHY);
    return -1;
}

const struct dev_class dev_vulkan_class = {.name = "vulkan", .open = open_device, .list = list};
