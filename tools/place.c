/* SPDX-License-Identifier: Apache-2.0 */
/* Options of placement, and what they come to. */
#include "place.h"

#include <stdio.h>
#include <string.h>

#include "dev/dev.h"
#include "inspect.h"

#define TEXT_MAX 4096

bool place_asked(const struct opt_common *o)
{
    return o->place || o->experts_device || o->cpu_moe || o->n_cpu_moe;
}

sl_status place_option(const struct opt_common *o, char *buf, size_t n, const char **out,
                       sl_err *err)
{
    const char *experts = o->experts_device ? o->experts_device : o->cpu_moe ? "cpu" : NULL;
    char first[40] = "";
    *out = o->place;
    if (o->experts_device && o->cpu_moe && strcmp(o->experts_device, "cpu") != 0)
        return SL_FAIL(err, REQUEST, "--cpu-moe and --experts-device %.60s: give one of them",
                       o->experts_device);
    if (o->n_cpu_moe) snprintf(first, sizeof first, "experts@0-%d=cpu;", o->n_cpu_moe - 1);
    if (!experts && !*first) return SL_OK;
    int k = snprintf(buf, n, "%s%s%s%s%s", experts ? "experts=" : "", experts ? experts : "",
                     experts ? ";" : "", first, o->place ? o->place : "");
    if (k < 0 || (size_t)k >= n) return SL_FAIL(err, REQUEST, "--place: more than %zu bytes", n);
    *out = buf;
    return SL_OK;
}

static sl_status row(struct place_table *t, const struct arch_cfg *c, int i, struct arena *a,
                     sl_err *err)
{
    dev *d = NULL;
    int64_t total;
    SL_TRY(dev_open(t->p.name[i], &(struct dev_opts){.n_thread = 1}, &d, err));
    sl_status st = dev_memory(d, &t->on[i].available, &total, err);
    dev_close(d);
    return st ? st : model_place_text(&t->p, c, i, a, &t->on[i].parts, err);
}

sl_status place_get(const io_model *io, const struct arch_cfg *c, const struct opt_common *o,
                    struct arena *a, struct place_table *out, sl_err *err)
{
    char buf[TEXT_MAX];
    const char *text = NULL, *home = dev_name_or_default(o->device);
    int64_t bytes[MODEL_DEV_MAX];
    memset(out, 0, sizeof *out);
    SL_TRY(place_option(o, buf, sizeof buf, &text, err));
    text = model_place_or_default(text);
    SL_TRY(model_place_parse(text ? text : "", c, home, a, &out->p, err));
    model_place_bytes(&out->p, c, io, bytes);
    for (int i = 0; i < out->p.n_dev; i++) {
        out->on[i].bytes = bytes[i];
        SL_TRY(row(out, c, i, a, err));
    }
    return SL_OK;
}

void place_print(const struct place_table *t)
{
    char n[32], of[32];
    for (int i = 0; i < t->p.n_dev; i++)
        printf("%-12s %s (%s available): %s\n", t->p.name[i],
               inspect_bytes_text(t->on[i].bytes, n, sizeof n),
               inspect_bytes_text(t->on[i].available, of, sizeof of), t->on[i].parts);
}

void place_json(const struct place_table *t, struct json_w *w)
{
    text_jw_key(w, "place");
    text_jw_arr(w);
    for (int i = 0; i < t->p.n_dev; i++) {
        text_jw_obj(w);
        text_jw_key(w, "device");
        text_jw_strz(w, t->p.name[i]);
        text_jw_key(w, "parts");
        text_jw_strz(w, t->on[i].parts);
        text_jw_key(w, "bytes");
        text_jw_int(w, t->on[i].bytes);
        text_jw_key(w, "available");
        text_jw_int(w, t->on[i].available);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}
