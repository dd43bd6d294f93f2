/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's library, and which devices there are. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "dev/cuda/cuda.h"

const char *dev_cuda_text(const struct cuda *v, int r)
{
    const char *s = NULL;
    return v->GetErrorName(r, &s) || !s ? "an error of the driver" : s;
}

static sl_status find(const struct cuda *v, void *to, const char *name, sl_err *err)
{
    void *f = dlsym(v->lib, name);
    if (!f) return SL_FAIL(err, UNSUPPORTED, "libcuda.so.1 has no %s: update the driver", name);
    memcpy(to, &f, sizeof f);
    return SL_OK;
}

sl_status dev_cuda_load(struct cuda *v, sl_err *err)
{
    v->lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!v->lib)
        return SL_FAIL(err, NOTFOUND,
                       "libcuda.so.1 is not installed (it comes with NVIDIA's driver; Debian: "
                       "libcuda1)");
#define X(name, symbol, params) SL_TRY(find(v, &v->name, #symbol, err));
    CUDA_LIST(X)
#undef X
    int r = v->Init(0);
    if (r == CUDA_NO_DEVICE) return SL_FAIL(err, NOTFOUND, "there is no card for CUDA");
    return r ? SL_FAIL(err, UNSUPPORTED, "cuInit: %s", dev_cuda_text(v, r)) : SL_OK;
}

void dev_cuda_unload(struct cuda *v)
{
    if (v->lib) dlclose(v->lib);
    *v = (struct cuda){0};
}

/* ---- what there is ---- */

void dev_cuda_lacks(const struct cuda *v, int device, char *buf, size_t n)
{
    int major = 0, minor = 0;
    int r = v->DeviceGetAttribute(&major, CUDA_ATTR_MAJOR, device);
    if (!r) r = v->DeviceGetAttribute(&minor, CUDA_ATTR_MINOR, device);
    buf[0] = '\0';
    if (r)
        snprintf(buf, n, "cuDeviceGetAttribute: %s", dev_cuda_text(v, r));
    else if (10 * major + minor < CUDA_LEAST)
        snprintf(buf, n, "compute capability %d.%d: at least %d.%d is needed", major, minor,
                 CUDA_LEAST / 10, CUDA_LEAST % 10);
}

static int describe(const struct cuda *v, int which, struct dev_desc *out)
{
    int device;
    size_t total = 0;
    *out = (struct dev_desc){0};
    snprintf(out->name, sizeof out->name, "cuda:%d", which);
    int r = v->DeviceGet(&device, which);
    if (!r) r = v->DeviceGetName(out->text, 80, device);
    if (!r) r = v->DeviceTotalMem(&total, device);
    out->mem = (int64_t)total;
    if (!r) dev_cuda_lacks(v, device, out->why_not, sizeof out->why_not);
    return r;
}

int dev_cuda_list(struct dev_desc *out, int n, sl_err *err)
{
    struct cuda v = {0};
    int n_out = -1, n_card = 0;
    if (dev_cuda_load(&v, err) == SL_OK) {
        int r = v.DeviceGetCount(&n_card);
        n_out = r ? 0 : n_card;
        for (int i = 0; i < n_out && i < n; i++) {
            r = describe(&v, i, &out[i]);
            if (r)
                snprintf(out[i].why_not, sizeof out[i].why_not, "it can not be asked: %s",
                         dev_cuda_text(&v, r));
        }
    }
    dev_cuda_unload(&v);
    return n_out;
}
