/* SPDX-License-Identifier: Apache-2.0 */
#include "api/split.h"

#include "base/mem.h"

struct api_split {
    bool reasoning;
};

sl_status api_split_open(const struct api_split_opts *o, struct api_split **out, sl_err *err)
{
    void *p = NULL;
    (void)o;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out, &p, err));
    *out = p;
    return SL_OK;
}

void api_split_close(struct api_split *s)
{
    mem_free(s);
}

void api_split_feed(struct api_split *s, const char *p, size_t n, bool last,
                    const struct api_sink *sink)
{
    (void)s;
    (void)last;
    if (n) sink->text(sink->user, p, n);
}

bool api_split_reasoning(const struct api_split *s)
{
    return s->reasoning;
}

bool api_split_has_reasoning(const struct api_split *s)
{
    return s->reasoning;
}
