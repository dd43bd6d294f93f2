/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a tokenizer's files: read by the other files of this room, harmless, or refused by name.
 * One list for each kind of object. */
#include <string.h>

#include "base/log.h"
#include "text/keys.h"
#include "tok/tok_internal.h"

static const char changes[] = "the text";
#define LIST(rows)                                                                                 \
    {                                                                                              \
        rows, BASE_COUNT_OF(rows), changes                                                         \
    }

/* ---- tokenizer.json ---- */
static const struct text_key whole_row[] = {
    {"version|truncation|padding|added_tokens|normalizer|pre_tokenizer|post_processor|decoder|"
     "model",
     "*"},
};
static const struct text_key model_row[] = {
    {"type|vocab|merges|unk_token|fuse_unk|byte_fallback|ignore_merges|dropout|"
     "continuing_subword_prefix|end_of_word_suffix",
     "*"},
};
static const struct text_key token_row[] = {
    {"id|content|single_word|lstrip|rstrip|normalized|special|__type", "*"},
};

/* The parts of the pipeline, by type. ByteLevel's trim_offsets is about offsets only. */
static const struct {
    const char *type, *keys;
} part[] = {
    {"Sequence", "normalizers|pretokenizers|decoders|processors"},
    {"NFC", ""},
    {"Prepend", "prepend"},
    {"Replace", "pattern|content"},
    {"Split", "pattern|behavior|invert"},
    {"Digits", "individual_digits"},
    {"ByteLevel", "add_prefix_space|trim_offsets|use_regex"},
    {"Metaspace", "replacement|str_rep|add_prefix_space|prepend_scheme|split"},
    {"ByteFallback", ""},
    {"Fuse", ""},
    {"Strip", "content|start|stop"},
    {"TemplateProcessing", "single|pair|special_tokens"},
    {"BertProcessing", "sep|cls"},
    {"RobertaProcessing", "sep|cls|trim_offsets|add_prefix_space"},
};

/* What is no object, or of a type that is not known, its reader has refused. */
static sl_status check_part(const struct json *j, int depth, sl_err *err)
{
    const struct json *type = text_json_get(j, "type"), *list = NULL;
    for (int i = 0; i < BASE_COUNT_OF(part); i++) {
        const struct text_key row[] = {{"type", "*"}, {part[i].keys, "*"}};
        const struct text_keys k = LIST(row);
        if (text_json_is(type, part[i].type)) SL_TRY(text_keys_check(&k, part[i].type, j, err));
    }
    for (const struct json *m = j && j->kind == JSON_OBJECT_K ? j->child : NULL; m; m = m->next)
        if (m->kind == JSON_ARRAY_K && text_key_fits(part[0].keys, m->key)) list = m;
    if (list && depth > 8) return SL_FAIL(err, LIMIT, "a Sequence in a Sequence in a Sequence ...");
    for (const struct json *m = list ? list->child : NULL; m; m = m->next)
        SL_TRY(check_part(m, depth + 1, err));
    return SL_OK;
}

sl_status tok_keys_token(const struct json *token, const char *what, sl_err *err)
{
    static const struct text_keys k = LIST(token_row);
    return text_keys_check(&k, what, token, err);
}

sl_status tok_keys_json(const struct json *j, sl_err *err)
{
    static const char *const name[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    static const struct text_keys whole = LIST(whole_row), model = LIST(model_row);
    SL_TRY(text_keys_check(&whole, NULL, j, err));
    SL_TRY(text_keys_check(&model, "model", text_json_get(j, "model"), err));
    for (int i = 0; i < BASE_COUNT_OF(name); i++)
        SL_TRY(check_part(text_json_get(j, name[i]), 0, err));
    return SL_OK;
}

/* ---- tokenizer_config.json ---- */
static const struct text_key config_row[] = {
    /* transformers forms no text by them where a vocabulary is a BPE */
    {"clean_up_tokenization_spaces|spaces_between_special_tokens|errors|use_default_system_prompt",
     "*"},
    {"clean_up_tokenization_spaces_for_*|encode_special_tokens|suffix_first", "-"},
    /* of WordPiece vocabularies, left by other classes */
    {"do_basic_tokenize|never_split|tokenize_chinese_chars|handle_chinese_chars|clean_text|"
     "wordpieces_prefix|start_n_top|end_n_top",
     "*"},
    /* what normalises, or adds: the vocabulary's own file says it, where it is so */
    {"do_lower_case|do_lowercase|lowercase|strip_accents|remove_space|keep_accents|"
     "normalization|normalize|add_sep_token|add_cls_token|fix_mistral_regex|sp_model_kwargs|"
     "add_dummy_prefix*|add_space_prefix|remove_extra_whitespaces",
     "-"},
    /* read */
    {"added_tokens_decoder|additional_special_tokens|extra_special_tokens|"
     "model_specific_special_tokens|*_token|chat_template|split_special_tokens|add_prefix_space|"
     "legacy",
     "*"},
    /* limits, sides and shapes of batches */
    {"model_max_length|max_length|max_len|max_model_*|*_max_length|stride|*truncat*|padding*|pad_*|"
     "model_input_names|return_*|verbose|*_seq_len*|is_split_into_words",
     "*"},
    /* names, classes, places */
    {"*_class|*_type|auto_map|architectures|name_or_path|_*|__*|*_file|*_version|backend|use_fast|"
     "from_slow|is_local|local_files_only|trust_remote_code|init_inputs|init_kwargs|cache_dir|"
     "revision|subfolder|device_map|*dtype|vocab_size|*_token_id|*_token_ids|model_id|base_model*|"
     "license|author*|description|language|languages|tags|name|date|unsloth*|save_*",
     "*"},
    /* of what reads answers, and of pictures and sounds */
    {"response_*|reasoning_*|tool_*|thinking_*|chat_*|image_*|*_image*|vision_*|video_*|*_video*|"
     "audio_*|patch_*|*_pixels|mm_*|processor_*|feature_*",
     "*"},
};

/* Does the vocabulary put a space in front of a text? */
static bool puts_space(const tok *t)
{
    for (int i = 0; i < t->n_norm; i++) {
        const struct tok_norm *x = &t->norm_step[i];
        if (x->kind == TOK_NORM_PREPEND || (x->kind == TOK_NORM_SPM && t->spm.prefix)) return true;
    }
    for (int i = 0; i < t->n_step; i++)
        if (t->step[i].kind == TOK_STEP_SPACE ||
            (t->step[i].kind == TOK_STEP_MARK && t->step[i].prepend))
            return true;
    return false;
}

/* Two files that say different things. Transformers' general classes go by tokenizer.json; which of
 * the two the others obey has changed more than once. */
static sl_status check_prefix(const struct json *config, const tok *t, sl_err *err)
{
    const struct json *v = text_json_get(config, "add_prefix_space"),
                      *class = text_json_get(config, "tokenizer_class");
    bool puts = puts_space(t);
    if (!v || v->kind != JSON_BOOL_K || v->b == puts) return SL_OK;
    if (text_json_is(class, "PreTrainedTokenizerFast") ||
        text_json_is(class, "TokenizersBackend")) {
        log_msg(
            LOG_WARN,
            "tokenizer_config.json: add_prefix_space is %s, but tokenizer.json puts %s in front "
            "of a text, which counts",
            v->b ? "true" : "false", puts ? "a space" : "nothing");
        return SL_OK;
    }
    return SL_FAIL(err, UNSUPPORTED,
                   "add_prefix_space is %s, but tokenizer.json puts %s in front of a text: take "
                   "it out of the one that is wrong",
                   v->b ? "true" : "false", puts ? "a space" : "nothing");
}

sl_status tok_keys_config(const struct tok_src *s, const tok *t, sl_err *err)
{
    static const struct text_keys k = LIST(config_row);
    SL_TRY(text_keys_check(&k, NULL, s->config, err));
    return s->f->tokenizer_json ? check_prefix(s->config, t, err) : SL_OK;
}

/* ---- GGUF ---- */
#define GGML "tokenizer.ggml."
static const struct text_key gguf_row[] = {
    {GGML "model|" GGML "pre|" GGML "tokens|" GGML "token_type|" GGML "scores|" GGML "merges|" GGML
          "*_token_id|" GGML "add_bos_token|" GGML "add_eos_token|" GGML "add_space_prefix|" GGML
          "remove_extra_whitespaces|" GGML "eog_token_ids|" GGML "suppress_tokens|"
          "tokenizer.chat_template|tokenizer.chat_template.*",
     "*"},
    /* the vocabulary a second time, and names of templates that have keys of their own */
    {"tokenizer.huggingface.*|tokenizer.chat_templates|tokenizer.rwkv.*|" GGML
     "token_type_count|" GGML "vocab_size",
     "*"},
    {GGML "add_sep_token|" GGML "normalizer.*|" GGML "precompiled_charsmap", "-"},
};

sl_status tok_keys_gguf(const io_model *m, sl_err *err)
{
    static const char prefix[] = "tokenizer.";
    static const struct text_keys k = LIST(gguf_row);
    for (int i = 0; i < io_n_meta(m); i++) {
        const char *key = io_meta_key(m, i);
        if (strncmp(key, prefix, sizeof prefix - 1) != 0) continue;
        struct text_key_value v = io_meta_value(m, key);
        SL_TRY(text_key_check(&k, NULL, key, &v, err));
    }
    return SL_OK;
}
