/* SPDX-License-Identifier: Apache-2.0 */
/* Options of placement, and what they come to. */
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "inspect.h"

#define TEXT_MAX 4096
#define STREAM_CHUNK 2048 /* tokens of a step, where --chunk says nothing */

bool place_asked(const struct opt_common *o)
{
    return o->place || o->experts_device || o->cpu_moe || o->n_cpu_moe || o->hot_experts ||
           (o->stream_from && strcmp(o->stream_from, "off") != 0);
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

/* Of an option "N|auto|WORD": auto, 0 for NULL and WORD. -2: it is something else. */
static int number_of(const char *s, int automatic, const char *word, long most)
{
    char *end = NULL;
    if (!s || strcmp(s, word) == 0) return 0;
    if (strcmp(s, "auto") == 0) return automatic;
    long v = *s >= '0' && *s <= '9' ? strtol(s, &end, 10) : -1;
    return v < 0 || v > most || *end ? -2 : (int)v;
}

sl_status place_hot(const struct opt_common *o, int *n, sl_err *err)
{
    *n = number_of(o->hot_experts, SL_HOT_AUTO, "0", 1 << 16);
    if (*n != -2) return SL_OK;
    return SL_FAIL(err, REQUEST, "--hot-experts %.40s: a number of experts in each layer, or auto",
                   o->hot_experts);
}

sl_status place_stream(const struct opt_common *o, int *n, sl_err *err)
{
    *n = number_of(o->stream_from, SL_STREAM_AUTO, "off", 1 << 30);
    if (*n != -2) return SL_OK;
    return SL_FAIL(err, REQUEST, "--stream-from %.40s: a number of tokens, auto or off",
                   o->stream_from);
}

/* Is that device the CPU itself? */
static bool is_cpu(const char *name)
{
    return strcmp(name, dev_name(0)) == 0;
}

/* Is layer il one whose experts lie on the CPU beside a device? */
static bool lies_so(const struct place_table *t, const struct arch_cfg *c, int il)
{
    const uint8_t *in = t->p.in_layer;
    int home = t->p.on[MODEL_ATTN];
    int at = in ? in[il * MODEL_N_PART + MODEL_EXPERTS] : t->p.on[MODEL_EXPERTS];
    return !is_cpu(t->p.name[home]) && c->layer[il].ffn == ARCH_MOE && is_cpu(t->p.name[at]);
}

/* What hot experts take on the device of attention. */
static sl_status add_hot(struct place_table *t, const io_model *io, const struct arch_cfg *c,
                         struct arena *a, sl_err *err)
{
    void *p = NULL;
    int home = t->p.on[MODEL_ATTN];
    if (!t->n_hot) return SL_OK;
    SL_TRY(mem_arena_array(a, (size_t)(c->n_layer + c->n_mtp), sizeof(int64_t), &p, err));
    int64_t *bytes = p;
    model_expert_bytes(c, io, bytes);
    for (int il = 0; il < c->n_layer; il++) {
        if (!lies_so(t, c, il)) continue;
        t->n_hot_layer++;
        t->hot_one += bytes[il];
    }
    if (!t->n_hot_layer)
        return SL_FAIL(err, REQUEST, "--hot-experts: the experts of no layer lie on the CPU beside "
                                     "a device (--device and --cpu-moe or --place say where)");
    if (t->n_hot > c->n_expert)
        return SL_FAIL(err, REQUEST, "--hot-experts %d: this model has %d experts in a layer",
                       t->n_hot, c->n_expert);
    if (t->n_hot > 0) t->on[home].bytes += t->n_hot * t->hot_one;
    return SL_OK;
}

static sl_status add_stream(struct place_table *t, const io_model *io, const struct arch_cfg *c,
                            const struct opt_common *o, sl_err *err)
{
    int n_chunk = o->chunk ? o->chunk : STREAM_CHUNK, hot = BASE_MAX(t->n_hot, 0);
    void *p = NULL;
    if (!t->stream_from) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(c->n_layer + c->n_mtp), sizeof(int64_t), &p, err));
    int64_t *bytes = p;
    model_expert_bytes(c, io, bytes);
    for (int il = 0; il < c->n_layer; il++) {
        if (!lies_so(t, c, il)) continue;
        t->n_stream_layer++;
        t->stream_bytes += (c->n_expert - hot) * bytes[il];
        t->stream_one = BASE_MAX(t->stream_one, bytes[il]);
    }
    mem_free(p);
    if (!t->n_stream_layer)
        return SL_FAIL(err, REQUEST, "--stream-from: the experts of no layer lie on the CPU beside "
                                     "a device (--device and --cpu-moe or --place say where)");
    t->stream_room = model_stream_bytes(c, t->stream_one, n_chunk);
    t->on[t->p.on[MODEL_ATTN]].bytes += t->stream_room;
    return SL_OK;
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
    SL_TRY(place_hot(o, &out->n_hot, err));
    SL_TRY(add_hot(out, io, c, a, err));
    SL_TRY(place_stream(o, &out->stream_from, err));
    return add_stream(out, io, c, o, err);
}

static void print_hot(const struct place_table *t)
{
    char n[32];
    const char *home = t->p.name[t->p.on[MODEL_ATTN]];
    if (!t->n_hot) return;
    printf("%-12s %s on %s for each in all of %d layers", "hot experts",
           inspect_bytes_text(t->hot_one, n, sizeof n), home, t->n_hot_layer);
    if (t->n_hot > 0)
        printf(": %d take %s\n", t->n_hot,
               inspect_bytes_text(t->n_hot * t->hot_one, n, sizeof n));
    else
        puts(": as many as its memory holds beside the cache");
}

static void print_stream(const struct place_table *t)
{
    char n[32], of[32];
    if (!t->stream_from) return;
    printf("%-12s %s of %d layers through %s of %s in steps of ", "streamed",
           inspect_bytes_text(t->stream_bytes, n, sizeof n), t->n_stream_layer,
           inspect_bytes_text(t->stream_room, of, sizeof of), t->p.name[t->p.on[MODEL_ATTN]]);
    if (t->stream_from > 0)
        printf("%d tokens and more\n", t->stream_from);
    else
        puts("as many tokens as a trial says when the model opens");
}

void place_print(const struct place_table *t)
{
    char n[32], of[32];
    for (int i = 0; i < t->p.n_dev; i++)
        printf("%-12s %s (%s available): %s\n", t->p.name[i],
               inspect_bytes_text(t->on[i].bytes, n, sizeof n),
               inspect_bytes_text(t->on[i].available, of, sizeof of), t->on[i].parts);
    print_hot(t);
    print_stream(t);
}

static void put_int(struct json_w *w, const char *key, int64_t v)
{
    text_jw_key(w, key);
    text_jw_int(w, v);
}

static void put_hot(const struct place_table *t, struct json_w *w)
{
    if (!t->n_hot) return;
    text_jw_key(w, "hot_experts");
    text_jw_obj(w);
    put_int(w, "n", t->n_hot); /* -1: auto */
    put_int(w, "layers", t->n_hot_layer);
    put_int(w, "bytes_of_one", t->hot_one);
    text_jw_obj_end(w);
}

static void put_stream(const struct place_table *t, struct json_w *w)
{
    if (!t->stream_from) return;
    text_jw_key(w, "stream");
    text_jw_obj(w);
    put_int(w, "from", t->stream_from); /* -1: auto */
    put_int(w, "layers", t->n_stream_layer);
    put_int(w, "bytes", t->stream_bytes);
    put_int(w, "device_bytes", t->stream_room);
    text_jw_obj_end(w);
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
        put_int(w, "bytes", t->on[i].bytes);
        put_int(w, "available", t->on[i].available);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    put_hot(t, w);
    put_stream(t, w);
}
