/* SPDX-License-Identifier: Apache-2.0 */
/* The file that --record writes, and what becomes of errors while it is written. */
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct record {
    FILE *f;
    const char *path;
    int error; /* errno of the first write that failed; nothing is written after it */
};

static void put(void *user, const void *p, size_t n)
{
    struct record *r = user;
    if (r->error) return;
    errno = 0;
    if (fwrite(p, 1, n, r->f) == n && fflush(r->f) == 0) return;
    r->error = errno ? errno : EIO;
    fprintf(stderr, "sluice: --record %s: %s: it ends here\n", r->path, strerror(r->error));
}

sl_status record_open(const char *path, sl_engine_opts *opts, struct record **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    if (!path) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    struct record *r = p;
    r->path = path;
    r->f = fopen(path, "wb");
    if (!r->f) {
        mem_free(r);
        return SL_FAIL(err, IO, "--record %.150s: %s", path, strerror(errno));
    }
    opts->on_record = put;
    opts->record_user = r;
    *out = r;
    return SL_OK;
}

sl_status record_check(const struct record *r, sl_err *err)
{
    if (!r || !r->error) return SL_OK;
    return SL_FAIL(err, IO, "--record %.150s: %s: the recording is not whole", r->path,
                   strerror(r->error));
}

void record_close(struct record *r)
{
    if (!r) return;
    fclose(r->f);
    mem_free(r);
}
