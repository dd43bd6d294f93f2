/* SPDX-License-Identifier: Apache-2.0 */
/* What the home rank tells the others of a step, and a recording holds: what is accepted is within
 * the engine's limits, and a model computes it, whatever it says: other tokens perhaps, but no byte
 * outside of its own memory. Rooms: engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/step_check.h"
#include "engine/engine_internal.h"
#include "os/os.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static sl_engine *open_engine(void)
{
    const char *dir = getenv("SLUICE_TINY");
    char path[1024];
    sl_model *m = NULL;
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 96, .n_seq_max = 3, .n_chunk = 12, .draft = "mtp"};
    snprintf(path, sizeof path, "%s/deepseek_v3", dir ? dir : TEST_TINY);
    if (os_path_kind(path) == OS_NONE) return NULL;
    if (sl_model_open(path, NULL, &m, NULL) || sl_engine_open(m, &o, &e, NULL)) abort();
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static sl_engine *e;
    static struct record_limits max;
    static struct record_step s;
    struct rd body = rd_init(data, n);
    struct model_rows rows;
    sl_err err;
    if (!e) {
        e = open_engine();
        if (!e) return 0;
        max = engine_record_limits(e);
        if (engine_record_step_init(&s, &max, &err)) abort();
    }
    if (engine_record_read_step(&body, 0, &max, &s, &err)) return 0;
    if (step_bad(&s.s, &max)) abort();
    sl_status st = model_launch(e->net, e->kv, &s.s, &err);
    if (!st) st = model_wait(e->net, &rows, &err);
    if (st && !*err.text) abort();
    return 0;
}
