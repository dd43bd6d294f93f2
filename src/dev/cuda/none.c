/* SPDX-License-Identifier: Apache-2.0 */
/* The device `cuda` of a build that had no compiler of its kernels: it says so. */
#include "dev/dev_internal.h"

#define WHY "this sluice was built without CUDA (Debian: clang, then build again)"

static sl_status open_device(const char *options, const struct dev_opts *o, dev **out, sl_err *err)
{
    (void)options;
    (void)o;
    (void)out;
    return SL_FAIL(err, UNSUPPORTED, "--device cuda: " WHY);
}

static int list(struct dev_desc *out, int n, sl_err *err)
{
    (void)out;
    (void)n;
    (void)SL_FAIL(err, UNSUPPORTED, WHY);
    return -1;
}

const struct dev_class dev_cuda_class = {.name = "cuda", .open = open_device, .list = list};
