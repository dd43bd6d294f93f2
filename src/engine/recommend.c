/* SPDX-License-Identifier: Apache-2.0 */
/* How a model wants to be sampled: the values of generation_config.json that vLLM takes, and
 * llama.cpp's keys in a GGUF. */
#include <stdio.h>

#include "base/log.h"
#include "engine/engine_internal.h"

enum { TEMP, TOP_K, TOP_P, MIN_P, REPEAT, MAX_NEW, N_VALUE };

static const struct value {
    const char *json, *gguf; /* names; NULL = none */
    double min, max;
} value[N_VALUE] = {
    [TEMP] = {"temperature", "general.sampling.temp", 0, 100},
    [TOP_K] = {"top_k", "general.sampling.top_k", -1, 1 << 30},
    [TOP_P] = {"top_p", "general.sampling.top_p", 0, 1},
    [MIN_P] = {"min_p", "general.sampling.min_p", 0, 1},
    [REPEAT] = {"repetition_penalty", "general.sampling.penalty_repeat", 0.01, 100},
    [MAX_NEW] = {"max_new_tokens", NULL, 1, 1 << 30},
};

/* Keys of a GGUF for which there is nothing here, and the value that turns them off. */
static const struct {
    const char *key;
    double off;
} other[] = {{"general.sampling.xtc_probability", 0}, {"general.sampling.mirostat", 0}};

static bool usable(const char *where, const char *key, double v, const struct value *row)
{
    if (v >= row->min && v <= row->max) return true;
    log_msg(LOG_WARN, "%s: %s: %g is not from %g to %g: not used", where, key, v, row->min,
            row->max);
    return false;
}

static bool read_json(const struct json *g, const struct value *row, double *out)
{
    const struct json *v = g->kind == JSON_OBJECT_K ? text_json_get(g, row->json) : NULL;
    if (!v || v->kind == JSON_NULL_K) return false;
    if (v->kind != JSON_INT_K && v->kind != JSON_REAL_K) {
        log_msg(LOG_WARN, "generation_config.json: %s: must be a number: not used", row->json);
        return false;
    }
    *out = v->f;
    return usable("generation_config.json", row->json, v->f, row);
}

static bool read_gguf(const sl_model *m, const struct value *row, double *out)
{
    sl_err err = {0};
    sl_status st = row->gguf ? io_meta_f64(m->io, row->gguf, out, &err) : SL_NOTFOUND;
    if (st == SL_NOTFOUND) return false;
    if (st) {
        log_msg(LOG_WARN, "%s: not used", err.text);
        return false;
    }
    return usable(m->name, row->gguf, *out, row);
}

int sl_model_sampling(const sl_model *m, sl_sampling *s, int *max_tokens)
{
    const struct json *g = io_generation_config(m->io);
    double v[N_VALUE];
    bool set[N_VALUE];
    int n = 0;
    for (int i = 0; i < N_VALUE; i++) {
        set[i] = g ? read_json(g, &value[i], &v[i]) : read_gguf(m, &value[i], &v[i]);
        n += set[i];
    }
    for (int i = 0; i < BASE_COUNT_OF(other); i++) {
        double x = 0;
        if (io_meta_f64(m->io, other[i].key, &x, NULL) == SL_OK && x != other[i].off)
            log_msg(LOG_WARN, "%s: %s: not supported: not used", m->name, other[i].key);
    }
    if (set[TEMP]) s->temperature = (float)v[TEMP];
    if (set[TOP_K]) s->top_k = BASE_MAX((int)v[TOP_K], 0);
    if (set[TOP_P]) s->top_p = (float)v[TOP_P];
    if (set[MIN_P]) s->min_p = (float)v[MIN_P];
    if (set[REPEAT]) s->repeat_penalty = (float)v[REPEAT];
    *max_tokens = set[MAX_NEW] ? (int)v[MAX_NEW] : 0;
    return n;
}
