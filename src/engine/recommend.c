/* SPDX-License-Identifier: Apache-2.0 */
/* How a model wants to be sampled: generation_config.json, and llama.cpp's keys in a GGUF. What
 * would change answers and is not done here is refused by name. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"

enum { TEMP, TOP_K, TOP_P, MIN_P, REPEAT, PRESENCE, FREQUENCY, MAX_NEW, N_VALUE };

static const struct value {
    const char *json, *gguf; /* names; NULL = none */
    double min, max;
} value[N_VALUE] = {
    [TEMP] = {"temperature", "general.sampling.temp", 0, 100},
    [TOP_K] = {"top_k", "general.sampling.top_k", -1, 1 << 30},
    [TOP_P] = {"top_p", "general.sampling.top_p", 0, 1},
    [MIN_P] = {"min_p", "general.sampling.min_p", 0, 1},
    [REPEAT] = {"repetition_penalty", "general.sampling.penalty_repeat", 0.01, 100},
    [PRESENCE] = {"presence_penalty", NULL, -2, 2},
    [FREQUENCY] = {"frequency_penalty", NULL, -2, 2},
    [MAX_NEW] = {"max_new_tokens", NULL, 1, 1 << 30},
};

/* generation_config.json beside these values. suppress_tokens and bad_words_ids are the tokenizer's
 * (tokens that are never drawn). max_length bounds prompt and answer of a program that was given no
 * other bound; here that is the context. */
static const struct text_key json_row[] = {
    {"temperature|top_k|top_p|min_p|repetition_penalty|presence_penalty|frequency_penalty|"
     "max_new_tokens|do_sample|eos_token_id|suppress_tokens|bad_words_ids|max_length",
     "*"},
    {"num_beams|num_beam_groups|num_return_sequences|typical_p|guidance_scale|"
     "encoder_repetition_penalty",
     "1|-"},
    {"no_repeat_ngram_size|encoder_no_repeat_ngram_size|sequence_bias|constraints|forced_*|"
     "force_words_ids|begin_suppress_tokens|exponential_decay_length_penalty|penalty_alpha|"
     "epsilon_cutoff|eta_cutoff|top_h|diversity_penalty|min_length|min_new_tokens|max_time|"
     "stop_strings|watermarking_config|token_healing|dola_layers",
     "-"},
    /* of beams, names of tokens, how other programs compute, and who wrote it */
    {"length_penalty|early_stopping|*_token_id|*_token_ids|renormalize_logits|"
     "remove_invalid_values|low_memory|use_cache|cache_*|max_cache_len|*compile*|return_*|output_*|"
     "num_assistant_*|assistant_*|is_assistant|prompt_lookup_*|max_matching_ngram_size|"
     "target_lookbehind|prefill_chunk_size|use_mtp|speculation_type|continuous_batching_*|_*|"
     "*_version|trust_remote_code|chat_format|max_window_size|*dtype",
     "*"},
};
static const struct text_key gguf_row[] = {
    {"temp|top_k|top_p|min_p|penalty_repeat|sequence|xtc_threshold|mirostat_tau|mirostat_eta", "*"},
    {"xtc_probability|mirostat", "-"},
    {"penalty_last_n", "-1"},
};
static const char changes[] = "answers";

/* Words of several tokens, which only what came before makes bad. */
static sl_status check_words(const struct json *list, sl_err *err)
{
    for (const struct json *m = list && list->kind == JSON_ARRAY_K ? list->child : NULL; m;
         m = m->next)
        if (m->kind != JSON_ARRAY_K || m->n != 1 || m->item[0]->kind != JSON_INT_K)
            return SL_FAIL(
                err, UNSUPPORTED,
                "bad_words_ids has words of more than one token, which is not supported");
    return SL_OK;
}

static sl_status check_json(const struct json *g, sl_err *err)
{
    static const struct text_keys k = {json_row, BASE_COUNT_OF(json_row), changes};
    sl_status st = text_keys_check(&k, NULL, g, err);
    if (!st) st = check_words(text_json_get(g, "bad_words_ids"), err);
    if (st) status_prefix(err, "generation_config.json");
    return st;
}

static sl_status check_gguf(const sl_model *m, sl_err *err)
{
    static const char prefix[] = "general.sampling.";
    static const struct text_keys k = {gguf_row, BASE_COUNT_OF(gguf_row), changes};
    for (int i = 0; i < io_n_meta(m->io); i++) {
        const char *key = io_meta_key(m->io, i);
        if (strncmp(key, prefix, sizeof prefix - 1) != 0) continue;
        struct text_key_value v = io_meta_value(m->io, key);
        SL_TRY(text_key_check(&k, "general.sampling", key + sizeof prefix - 1, &v, err));
    }
    return SL_OK;
}

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

/* do_sample false: the best token, whatever temperature stands beside it. */
static bool is_greedy(const struct json *g)
{
    const struct json *v = text_json_get(g, "do_sample");
    return v && v->kind == JSON_BOOL_K && !v->b;
}

int sl_model_sampling(const sl_model *m, sl_sampling *s, int *max_tokens)
{
    const struct json *g = io_generation_config(m->io);
    double v[N_VALUE];
    bool set[N_VALUE];
    sl_err err = {0};
    int n = 0;
    if (g ? check_json(g, &err) : check_gguf(m, &err)) {
        log_msg(LOG_ERROR, "%s: %s", m->name, err.text);
        return -1;
    }
    for (int i = 0; i < N_VALUE; i++)
        set[i] = g ? read_json(g, &value[i], &v[i]) : read_gguf(m, &value[i], &v[i]);
    if (is_greedy(g)) {
        set[TEMP] = true;
        v[TEMP] = 0;
    }
    for (int i = 0; i < N_VALUE; i++)
        n += set[i];
    if (set[TEMP]) s->temperature = (float)v[TEMP];
    if (set[TOP_K]) s->top_k = BASE_MAX((int)v[TOP_K], 0);
    if (set[TOP_P]) s->top_p = (float)v[TOP_P];
    if (set[MIN_P]) s->min_p = (float)v[MIN_P];
    if (set[REPEAT]) s->repeat_penalty = (float)v[REPEAT];
    if (set[PRESENCE]) s->presence_penalty = (float)v[PRESENCE];
    if (set[FREQUENCY]) s->frequency_penalty = (float)v[FREQUENCY];
    *max_tokens = set[MAX_NEW] ? (int)v[MAX_NEW] : 0;
    return n;
}
