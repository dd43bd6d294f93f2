/* SPDX-License-Identifier: Apache-2.0 */
/* The small public functions that need no engine. */
#include "base/mem.h"
#include "base/status.h"

#ifdef SL_COMMIT
#define VERSION_TAIL "+" SL_COMMIT
#else
#define VERSION_TAIL ""
#endif
#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)

const char *sl_version(void)
{
    return TEXT_OF(SL_VERSION_MAJOR) "." TEXT_OF(SL_VERSION_MINOR) "." TEXT_OF(SL_VERSION_PATCH)
        VERSION_TAIL;
}

const char *sl_status_text(sl_status code)
{
    return status_text(code);
}

int sl_status_http(sl_status code)
{
    return status_http(code);
}

void sl_free(void *p)
{
    mem_free(p);
}
