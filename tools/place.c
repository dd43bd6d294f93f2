/* SPDX-License-Identifier: Apache-2.0 */
/* Options of placement, and what they come to. */
#include "place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "dev/dev.h"
#include "inspect.h"

#define TEXT_MAX 4096
#define STREAM_CHUNK 2048 /* tokens of a step, where --chunk says nothing */

/* ---- several devices ---- */

/* Does a device's name begin at s? */
static bool is_device(const char *s)
{
    for (int i = 0; dev_name(i); i++) {
        size_t n = strlen(dev_name(i));
        if (strncmp(s, dev_name(i), n) == 0 && strchr(":,", s[n])) return true;
    }
    return false;
}

/* Several devices that share the layers; with a layout each is a rank's (the engine sees to it). */
static bool are_several(const struct opt_common *o)
{
    return o->device && !o->layout && o->device[dev_name_bytes(o->device)];
}

const char *place_asked_by(const struct opt_common *o)
{
    return o->place                                               ? "--place"
           : o->experts_device                                    ? "--experts-device"
           : o->cpu_moe                                           ? "--cpu-moe"
           : o->n_cpu_moe                                         ? "--n-cpu-moe"
           : o->override_tensor.n                                 ? "--override-tensor"
           : o->split                                             ? "--split"
           : o->hot_experts                                       ? "--hot-experts"
           : o->stream_from && strcmp(o->stream_from, "off") != 0 ? "--stream-from"
           : are_several(o)                                       ? "--device"
                                                                  : NULL;
}

bool place_asked(const struct opt_common *o)
{
    return place_asked_by(o) != NULL;
}

struct word {
    const char *text;
    int is;
};

/* Of an option that is a whole number from 0 to most, or one of the words, which end with NULL.
 * -2: it is neither. */
static int number_of(const char *s, const struct word *w, long most)
{
    char *end = NULL;
    for (; w->text; w++)
        if (strcmp(s, w->text) == 0) return w->is;
    long v = *s >= '0' && *s <= '9' ? strtol(s, &end, 10) : -1;
    return v < 0 || v > most || *end ? -2 : (int)v;
}

#define LAYERS_MOST (1 << 30)

/* Of --gpu-layers: INT_MAX for all, -1: it is not given, -2: it is no number. */
static int gpu_layers(const struct opt_common *o)
{
    static const struct word words[] = {{"all", INT_MAX}, {"auto", INT_MAX}, {NULL, 0}};
    return o->gpu_layers ? number_of(o->gpu_layers, words, LAYERS_MOST) : -1;
}

const char *place_device(const struct opt_common *o, char *buf, size_t n)
{
    int n_layer = gpu_layers(o);
    if (n_layer == 0) return dev_name(0);
    if (!o->device) return n_layer > 0 ? "auto" : NULL;
    if (!are_several(o)) return o->device;
    snprintf(buf, n, "%.*s", (int)dev_name_bytes(o->device), o->device);
    return buf;
}

sl_status place_units(const struct opt_common *o, int *no_units, sl_err *err)
{
    char first[128];
    const char *name = place_device(o, first, sizeof first);
    *no_units = o->no_matrix_units;
    if (!o->no_matrix_units || dev_is_card(dev_name_or_default(name))) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "--no-matrix-units: no card is among the devices (--device: vulkan or cuda)");
}

static sl_status check_layers(const struct opt_common *o, sl_err *err)
{
    int n = gpu_layers(o);
    if (n == -2)
        return SL_FAIL(err, REQUEST, "--gpu-layers %.40s: a number of layers, or all",
                       o->gpu_layers);
    if (n == 0 && o->device && strcmp(o->device, dev_name(0)) != 0)
        return SL_FAIL(err, REQUEST, "--gpu-layers 0 and --device %.60s: give one of them",
                       o->device);
    return SL_OK;
}

/* Of --gpu-layers N the first layers that are on the CPU, with the look-up and the head, as long as
 * N is not more than there are: the head counts as one more. How many, in *n. */
static void put_cpu_layers(const struct opt_common *o, int n_layer, struct str *s, int *n)
{
    int n_gpu = gpu_layers(o);
    *n = n_gpu > 0 && n_gpu <= n_layer ? n_layer - n_gpu : 0;
    if (n_gpu <= 0 || n_gpu > n_layer) return;
    str_puts(s, "embed=cpu;head=cpu;");
    if (*n) str_printf(s, "layers@0-%d=cpu;", *n - 1);
}

struct share {
    const char *name;
    int n_name;
    double weight;
};

/* The devices of --device, with the weights of --split; how many, in *n. */
static sl_status shares_of(const struct opt_common *o, struct share *out, int *n, sl_err *err)
{
    const char *w = o->split;
    *n = 0;
    for (const char *s = o->device; s && *s;) {
        char *end = NULL;
        size_t k = dev_name_bytes(s);
        if (*n == MODEL_DEV_MAX)
            return SL_FAIL(err, REQUEST, "--device %.60s: more than %d devices", o->device,
                           MODEL_DEV_MAX);
        out[*n] = (struct share){.name = s, .n_name = (int)k, .weight = 1};
        if (o->split) out[*n].weight = strtod(w, &end);
        bool ok = !o->split || (end != w && out[*n].weight >= 0 && out[*n].weight <= 1e6);
        ++*n;
        s += k + (s[k] == ',');
        if (end) w = end;
        ok &= !o->split || (*s ? *w++ == ',' : !*w);
        if (!ok) break;
        if (!*s) return SL_OK;
    }
    return SL_FAIL(err, REQUEST,
                   "--split %.40s: a weight for every device of --device, as in --device "
                   "vulkan:0,vulkan:1 --split 3,2",
                   o->split);
}

/* The blocks of all layers on the last device: those of MTP layers, whose numbers follow, stay. */
static sl_status put_mtp_blocks(const struct opt_common *o, int n_layer, struct str *s, sl_err *err)
{
    struct share d[MODEL_DEV_MAX];
    int n = 0;
    if (!are_several(o) || !n_layer) return SL_OK;
    SL_TRY(shares_of(o, d, &n, err));
    str_printf(s, "blocks=%.*s;", d[n - 1].n_name, d[n - 1].name);
    return SL_OK;
}

/* The layers after those on the CPU by weight: the first ones on the first device. */
static sl_status put_split(const struct opt_common *o, int n_layer, int n_cpu, struct str *s,
                           sl_err *err)
{
    struct share d[MODEL_DEV_MAX];
    double all = 0, sum = 0;
    int n = 0, from = n_cpu;
    if (!o->split && !are_several(o)) return SL_OK;
    SL_TRY(shares_of(o, d, &n, err));
    for (int i = 0; i < n; i++)
        all += d[i].weight;
    if (!(all > 0)) return SL_FAIL(err, REQUEST, "--split %.40s: all weights are 0", o->split);
    for (int i = 0; i < n && n_layer; i++) {
        sum += d[i].weight;
        int to = i + 1 < n ? n_cpu + (int)(sum / all * (n_layer - n_cpu) + 0.5) : n_layer;
        if (to > from) str_printf(s, "layers@%d-%d=%.*s;", from, to - 1, d[i].n_name, d[i].name);
        from = to;
    }
    return SL_OK;
}

/* ---- llama.cpp's --override-tensor ---- */

/* Its names of devices, "CPU", "CUDA0", "Vulkan1", or ours. */
static bool put_device(struct str *s, const char *name, int n)
{
    static const struct {
        const char *theirs, *ours;
    } is[] = {{"CPU", "cpu"}, {"CUDA", "cuda:"}, {"Vulkan", "vulkan:"}};
    for (int i = 0; i < BASE_COUNT_OF(is); i++) {
        int k = (int)strlen(is[i].theirs), digits = n - k;
        if (digits < (i > 0) || digits > (i > 0 ? 2 : 0) ||
            strncmp(name, is[i].theirs, (size_t)k) != 0 ||
            (int)strspn(name + k, "0123456789") < digits)
            continue;
        str_printf(s, "%s%.*s", is[i].ours, digits, name + k);
        return true;
    }
    char own[64];
    snprintf(own, sizeof own, "%.*s", n, name);
    if (!is_device(own)) return false;
    str_puts(s, own);
    return true;
}

/* "REGEX=DEVICE" of n bytes, as an item of a place. */
static sl_status put_override(struct str *s, const char *item, int n, sl_err *err)
{
    int eq = n - 1;
    while (eq > 0 && item[eq] != '=')
        eq--;
    if (eq <= 0 || eq == n - 1)
        return SL_FAIL(err, REQUEST, "--override-tensor %.*s: REGEX=DEVICE is expected, as in "
                                     "exps=CPU",
                       BASE_MIN(n, 60), item);
    if (memchr(item, ';', (size_t)n))
        return SL_FAIL(err, REQUEST, "--override-tensor %.*s: a pattern with a semicolon",
                       BASE_MIN(n, 60), item);
    str_printf(s, "re:%.*s=", eq, item);
    if (put_device(s, item + eq + 1, n - eq - 1)) {
        str_puts(s, ";");
        return SL_OK;
    }
    return SL_FAIL(err, REQUEST, "--override-tensor %.*s: no such device is known: CPU, CUDA0, "
                                 "Vulkan0, or as doctor names it",
                   BASE_MIN(n, 60), item);
}

/* Of theirs the first that matches counts, of a place's items the last. */
static sl_status put_overrides(const struct opt_common *o, struct str *s, sl_err *err)
{
    for (int i = o->override_tensor.n - 1; i >= 0; i--) {
        const char *text = o->override_tensor.v[i], *end = text + strlen(text);
        while (end > text) {
            const char *from = end;
            while (from > text && from[-1] != ',')
                from--;
            if (from < end) SL_TRY(put_override(s, from, (int)(end - from), err));
            end = from > text ? from - 1 : text;
        }
    }
    return SL_OK;
}

/* ---- all of it ---- */

static sl_status put_all(const struct opt_common *o, int n_layer, struct str *s, sl_err *err)
{
    const char *experts = o->experts_device ? o->experts_device : o->cpu_moe ? "cpu" : NULL;
    if (o->experts_device && o->cpu_moe && strcmp(o->experts_device, "cpu") != 0)
        return SL_FAIL(err, REQUEST, "--cpu-moe and --experts-device %.60s: give one of them",
                       o->experts_device);
    int n_cpu = 0;
    SL_TRY(check_layers(o, err));
    SL_TRY(put_mtp_blocks(o, n_layer, s, err));
    put_cpu_layers(o, n_layer, s, &n_cpu);
    SL_TRY(put_split(o, n_layer, n_cpu, s, err));
    if (experts) str_printf(s, "experts=%s;", experts);
    if (n_layer && o->n_cpu_moe > n_layer)
        str_puts(s, "experts=cpu;"); /* as many as there are */
    else if (o->n_cpu_moe)
        str_printf(s, "experts@0-%d=cpu;", o->n_cpu_moe - 1);
    SL_TRY(put_overrides(o, s, err));
    if (o->place) str_puts(s, o->place);
    return str_status(s, err);
}

sl_status place_option(const struct opt_common *o, int n_layer, char *buf, size_t n,
                       const char **out, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    sl_status st = put_all(o, n_layer, &s, err);
    if (!st && s.n >= n) st = SL_FAIL(err, REQUEST, "--place: more than %zu bytes", n);
    if (!st) snprintf(buf, n, "%s", str_c(&s));
    *out = s.n || o->place ? buf : NULL;
    str_fini(&s);
    return st;
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

sl_status place_hot(const struct opt_common *o, int *n, sl_err *err)
{
    static const struct word words[] = {{"auto", SL_HOT_AUTO}, {NULL, 0}};
    *n = o->hot_experts ? number_of(o->hot_experts, words, 1 << 16) : 0;
    if (*n != -2) return SL_OK;
    return SL_FAIL(err, REQUEST, "--hot-experts %.40s: a number of experts in each layer, or auto",
                   o->hot_experts);
}

sl_status place_stream(const struct opt_common *o, int *n, sl_err *err)
{
    static const struct word words[] = {{"auto", SL_STREAM_AUTO}, {"off", 0}, {NULL, 0}};
    *n = o->stream_from ? number_of(o->stream_from, words, 1 << 30) : 0;
    if (*n != -2) return SL_OK;
    return SL_FAIL(err, REQUEST, "--stream-from %.40s: a number of tokens, auto or off",
                   o->stream_from);
}

/* Is that device the CPU itself? */
static bool is_cpu(const char *name)
{
    return strcmp(name, dev_name(0)) == 0;
}

/* Is layer il one whose experts lie on the CPU beside a device, which has attention? */
static bool lies_so(const struct place_table *t, const struct arch_cfg *c, int il)
{
    int attn = model_place_at(&t->p, il, MODEL_ATTN), at = model_place_at(&t->p, il, MODEL_EXPERTS);
    return !is_cpu(t->p.name[attn]) && c->layer[il].ffn == ARCH_MOE && is_cpu(t->p.name[at]);
}

/* What hot experts take on the devices of attention. */
static sl_status add_hot(struct place_table *t, const io_model *io, const struct arch_cfg *c,
                         struct arena *a, sl_err *err)
{
    void *p = NULL;
    if (!t->n_hot) return SL_OK;
    SL_TRY(mem_arena_array(a, (size_t)(c->n_layer + c->n_mtp), sizeof(int64_t), &p, err));
    int64_t *bytes = p;
    model_expert_bytes(c, io, bytes);
    for (int il = 0; il < c->n_layer; il++) {
        if (!lies_so(t, c, il)) continue;
        t->n_hot_layer++;
        t->hot_one += bytes[il];
        t->on[model_place_at(&t->p, il, MODEL_ATTN)].bytes += BASE_MAX(t->n_hot, 0) * bytes[il];
    }
    if (!t->n_hot_layer)
        return SL_FAIL(err, REQUEST, "--hot-experts: the experts of no layer lie on the CPU beside "
                                     "a device (--device and --cpu-moe or --place say where)");
    if (t->n_hot > c->n_expert)
        return SL_FAIL(err, REQUEST, "--hot-experts %d: this model has %d experts in a layer",
                       t->n_hot, c->n_expert);
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
        int attn = model_place_at(&t->p, il, MODEL_ATTN);
        if (!lies_so(t, c, il) || attn != t->p.on[MODEL_ATTN]) continue;
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
    char first[128];
    const char *text = NULL, *home = dev_name_or_default(place_device(o, first, sizeof first));
    int64_t bytes[MODEL_DEV_MAX];
    memset(out, 0, sizeof *out);
    SL_TRY(place_option(o, c->n_layer, buf, sizeof buf, &text, err));
    text = model_place_or_default(text);
    SL_TRY(model_place_parse(text ? text : "", c, home, a, &out->p, err));
    model_place_bytes(&(struct model_placed){&out->p, c, NULL}, io, bytes);
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
    bool one = t->p.n_dev <= 2;
    if (!t->n_hot) return;
    printf("%-12s %s on %s for each in all of %d layers", "hot experts",
           inspect_bytes_text(t->hot_one, n, sizeof n), one ? home : "attention's devices",
           t->n_hot_layer);
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

static void put_hot(const struct place_table *t, struct json_w *w)
{
    if (!t->n_hot) return;
    text_jw_key(w, "hot_experts");
    text_jw_obj(w);
    text_jw_key_int(w, "n", t->n_hot); /* -1: auto */
    text_jw_key_int(w, "layers", t->n_hot_layer);
    text_jw_key_int(w, "bytes_of_one", t->hot_one);
    text_jw_obj_end(w);
}

static void put_stream(const struct place_table *t, struct json_w *w)
{
    if (!t->stream_from) return;
    text_jw_key(w, "stream");
    text_jw_obj(w);
    text_jw_key_int(w, "from", t->stream_from); /* -1: auto */
    text_jw_key_int(w, "layers", t->n_stream_layer);
    text_jw_key_int(w, "bytes", t->stream_bytes);
    text_jw_key_int(w, "device_bytes", t->stream_room);
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
        text_jw_key_int(w, "bytes", t->on[i].bytes);
        text_jw_key_int(w, "available", t->on[i].available);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    put_hot(t, w);
    put_stream(t, w);
}
