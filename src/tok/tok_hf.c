/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json (byte-level BPE only) and what tokenizer_config.json, generation_config.json and
 * config.json add to it. */
#include <string.h>

#include "tok/tok_internal.h"

static sl_status check_model(const struct json *model, sl_err *err)
{
    bool yes;
    const char *s;
    double f;
    SL_TRY(text_json_str(model, "type", "BPE", &s, err));
    if (strcmp(s, "BPE") != 0)
        return SL_FAIL(err, UNSUPPORTED, "model type \"%.40s\": only byte-level BPE is supported",
                       s);
    SL_TRY(text_json_bool(model, "byte_fallback", false, &yes, err));
    if (yes)
        return SL_FAIL(err, UNSUPPORTED,
                       "a SentencePiece vocabulary (byte_fallback) is not supported");
    SL_TRY(text_json_str(model, "continuing_subword_prefix", "", &s, err));
    if (*s) return SL_FAIL(err, UNSUPPORTED, "continuing_subword_prefix \"%.20s\"", s);
    SL_TRY(text_json_str(model, "end_of_word_suffix", "", &s, err));
    if (*s) return SL_FAIL(err, UNSUPPORTED, "end_of_word_suffix \"%.20s\"", s);
    SL_TRY(text_json_real(model, "dropout", 0, &f, err));
    if (f != 0) return SL_FAIL(err, UNSUPPORTED, "dropout");
    return SL_OK;
}

/* NFC, nothing, or a Sequence of these. */
static sl_status read_normalizer(tok *t, const struct json *j, sl_err *err)
{
    if (!j || j->kind == JSON_NULL_K) return SL_OK;
    const struct json *type = text_json_get(j, "type");
    if (text_json_is(type, "NFC")) {
        t->nfc = true;
        return SL_OK;
    }
    const struct json *list = text_json_get(j, "normalizers");
    if (!text_json_is(type, "Sequence") || !list || list->kind != JSON_ARRAY_K)
        return SL_FAIL(err, UNSUPPORTED, "normalizer \"%.40s\"",
                       type && type->kind == JSON_STR_K ? type->s : "?");
    for (size_t i = 0; i < list->n; i++) {
        const struct json *k = text_json_get(list->item[i], "type");
        if (!text_json_is(k, "NFC"))
            return SL_FAIL(err, UNSUPPORTED, "normalizer \"%.40s\"",
                           k && k->kind == JSON_STR_K ? k->s : "?");
        t->nfc = true;
    }
    return SL_OK;
}

static sl_status count_ids(const struct json *vocab, const struct json *added, int *n_vocab,
                           sl_err *err)
{
    int64_t top = -1, id;
    size_t n = vocab->n + (added ? added->n : 0);
    for (const struct json *m = vocab->child; m; m = m->next) {
        if (m->kind != JSON_INT_K || m->i < 0)
            return SL_FAIL(err, FORMAT, "model.vocab: the id of \"%.40s\" is no number from 0 on",
                           m->key);
        top = BASE_MAX(top, m->i);
    }
    for (const struct json *m = added ? added->child : NULL; m; m = m->next) {
        SL_TRY(text_json_int(m, "id", -1, &id, err));
        if (id < 0) return SL_FAIL(err, FORMAT, "added_tokens: an entry without an id from 0 on");
        top = BASE_MAX(top, id);
    }
    if (top >= (int64_t)n * 4 + 65536 || top >= TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "token id %lld in a vocabulary of %zu tokens", (long long)top,
                       n);
    *n_vocab = (int)(top + 1);
    return SL_OK;
}

static sl_status read_added(tok *t, const struct json *list, sl_err *err)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } bit[] = {{"special", TOK_F_SPECIAL},
               {"normalized", TOK_F_NORMALIZED},
               {"lstrip", TOK_F_LSTRIP},
               {"rstrip", TOK_F_RSTRIP},
               {"single_word", TOK_F_SINGLE_WORD}};
    for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
        const struct json *text = text_json_get(m, "content");
        int64_t id;
        uint32_t flags = 0;
        SL_TRY(text_json_int(m, "id", -1, &id, err));
        if (!text || text->kind != JSON_STR_K)
            return SL_FAIL(err, FORMAT, "added_tokens: id %lld has no content", (long long)id);
        for (int i = 0; i < BASE_COUNT_OF(bit); i++) {
            bool yes;
            SL_TRY(text_json_bool(m, bit[i].key, false, &yes, err));
            if (yes) flags |= bit[i].flag;
        }
        SL_TRY(tok_build_added(t, id, text->s, text->n, flags, err));
    }
    return SL_OK;
}

static sl_status read_merges(tok *t, const struct json *list, sl_err *err)
{
    uint32_t i = 0;
    for (const struct json *m = list->child; m; m = m->next, i++) {
        if (m->kind == JSON_STR_K) {
            const char *sp = memchr(m->s, ' ', m->n);
            size_t a = sp ? (size_t)(sp - m->s) : 0;
            if (!sp || memchr(sp + 1, ' ', m->n - a - 1))
                return SL_FAIL(err, FORMAT, "model.merges[%u]: \"%.40s\" is no pair", i, m->s);
            SL_TRY(tok_build_merge(t, i, m->s, a, sp + 1, m->n - a - 1, true, err));
            continue;
        }
        if (m->kind != JSON_ARRAY_K || m->n != 2 || m->item[0]->kind != JSON_STR_K ||
            m->item[1]->kind != JSON_STR_K)
            return SL_FAIL(err, FORMAT, "model.merges[%u] is no pair of strings", i);
        SL_TRY(tok_build_merge(t, i, m->item[0]->s, m->item[0]->n, m->item[1]->s, m->item[1]->n,
                               true, err));
    }
    return SL_OK;
}

/* A template processor whose sequence begins with a special token wants that token in front. */
static sl_status read_post(tok *t, const struct json *j, int depth, sl_err *err)
{
    if (!j || j->kind != JSON_OBJECT_K) return SL_OK;
    const struct json *type = text_json_get(j, "type"), *list = text_json_get(j, "processors");
    if (text_json_is(type, "Sequence") && list && list->kind == JSON_ARRAY_K && depth < 4) {
        for (const struct json *p = list->child; p; p = p->next)
            SL_TRY(read_post(t, p, depth + 1, err));
        return SL_OK;
    }
    if (!text_json_is(type, "TemplateProcessing")) return SL_OK;
    const struct json *single = text_json_get(j, "single");
    if (!single || single->kind != JSON_ARRAY_K || single->n == 0) return SL_OK;
    const struct json *id = text_json_get(text_json_get(single->item[0], "SpecialToken"), "id");
    if (!id) return SL_OK;
    if (id->kind != JSON_STR_K)
        return SL_FAIL(err, FORMAT, "post_processor: a special token without a name");
    t->bos = tok_find(t, id->s);
    t->add_bos = t->bos >= 0;
    return SL_OK;
}

static sl_status read_tokenizer(tok *t, const struct json *j, sl_err *err)
{
    const struct json *model = text_json_get(j, "model"), *vocab = text_json_get(model, "vocab"),
                      *merges = text_json_get(model, "merges"),
                      *added = text_json_get(j, "added_tokens");
    int n_vocab = 0;
    if (!model || model->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "no model");
    SL_TRY(check_model(model, err));
    if (!vocab || vocab->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "model.vocab is no object");
    if (!merges || merges->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "model.merges is no array");
    if (added && added->kind == JSON_NULL_K) added = NULL;
    if (added && added->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "added_tokens is no array");
    SL_TRY(text_json_bool(model, "ignore_merges", false, &t->ignore_merges, err));
    SL_TRY(read_normalizer(t, text_json_get(j, "normalizer"), err));
    SL_TRY(tok_pre_json(t, text_json_get(j, "pre_tokenizer"), err));
    SL_TRY(count_ids(vocab, added, &n_vocab, err));
    SL_TRY(tok_build_begin(t, n_vocab, merges->n, err));
    for (const struct json *m = vocab->child; m; m = m->next)
        SL_TRY(tok_build_word(t, m->i, m->key, m->n_key, err));
    SL_TRY(tok_build_index(t, false, err));
    SL_TRY(read_merges(t, merges, err));
    SL_TRY(read_added(t, added, err));
    return read_post(t, text_json_get(j, "post_processor"), 0, err);
}

/* A token in a config: its text, or an object with it as "content". */
static const char *token_text(const struct json *o, const char *key)
{
    const struct json *v = text_json_get(o, key);
    if (v && v->kind == JSON_OBJECT_K) v = text_json_get(v, "content");
    return v && v->kind == JSON_STR_K ? v->s : NULL;
}

static sl_status set_token(tok *t, const char *text, const char **keep, int32_t *id, sl_err *err)
{
    char *p = NULL;
    if (!text || *keep) return SL_OK;
    SL_TRY(mem_arena_str(&t->a, text, strlen(text), &p, err));
    *keep = p;
    int32_t found = tok_find(t, text);
    if (found >= 0) *id = found;
    return SL_OK;
}

static sl_status put_template(tok *t, const char *name, const struct json *text, sl_err *err)
{
    if (!name || !text || text->kind != JSON_STR_K)
        return SL_FAIL(err, FORMAT, "chat_template: an entry without name and template");
    return tok_build_template(t, name, text->s, text->n, err);
}

static sl_status read_template(tok *t, const struct json *v, sl_err *err)
{
    if (!v || v->kind == JSON_NULL_K) return SL_OK;
    if (v->kind == JSON_STR_K) return tok_build_template(t, "", v->s, v->n, err);
    if (v->kind == JSON_OBJECT_K) {
        for (const struct json *m = v->child; m; m = m->next)
            SL_TRY(put_template(t, m->key, m, err));
        return SL_OK;
    }
    if (v->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "chat_template is %s", text_json_kind_text(v->kind));
    for (size_t i = v->n; i-- > 0;) { /* of two with one name the last counts */
        const struct json *name = text_json_get(v->item[i], "name");
        SL_TRY(put_template(t, name && name->kind == JSON_STR_K ? name->s : NULL,
                            text_json_get(v->item[i], "template"), err));
    }
    return SL_OK;
}

static void add_eog(tok *t, const struct json *config)
{
    const struct json *v = text_json_get(config, "eos_token_id");
    if (!v) return;
    if (v->kind == JSON_INT_K && tok_valid(t, v->i)) t->v[v->i].flags |= TOK_F_EOG | TOK_F_CONTROL;
    if (v->kind != JSON_ARRAY_K) return;
    for (const struct json *m = v->child; m; m = m->next)
        if (m->kind == JSON_INT_K && tok_valid(t, m->i))
            t->v[m->i].flags |= TOK_F_EOG | TOK_F_CONTROL;
}

static sl_status parse_file(struct arena *a, const char *name, const char *p, size_t n,
                            const struct json **out, sl_err *err)
{
    if (!p) return SL_OK;
    SL_TRY(text_json_parse(a, name, p, n, out, err));
    if ((*out)->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s is no object", name);
    return SL_OK;
}

static sl_status in_file(sl_status st, const char *name, sl_err *err)
{
    if (st != SL_OK && st != SL_NOMEM) status_prefix(err, "%s", name);
    return st;
}

/* As transformers' tokenizers choose: the files of templates; else tokenizer_config.json. The file
 * chat_template.json belongs to processors: it counts where nothing else brings a default. */
static sl_status read_templates(const struct tok_files *f, tok *t, const struct json *config,
                                const struct json *processor, sl_err *err)
{
    if (f->chat_template_jinja)
        SL_TRY(tok_build_template(t, "", f->chat_template_jinja, f->n_chat_template_jinja, err));
    for (int i = 0; i < f->n_tmpl; i++)
        SL_TRY(tok_build_template(t, f->tmpl[i].name, f->tmpl[i].text, f->tmpl[i].n, err));
    if (!tok_template_find(t, ""))
        SL_TRY(in_file(read_template(t, text_json_get(config, "chat_template"), err),
                       "tokenizer_config.json", err));
    if (tok_template_find(t, "")) return SL_OK;
    return in_file(read_template(t, text_json_get(processor, "chat_template"), err),
                   "chat_template.json", err);
}

static sl_status read_all(const struct tok_files *f, tok *t, struct arena *a, sl_err *err)
{
    const struct json *j = NULL, *config = NULL, *map = NULL, *tmpl = NULL;
    SL_TRY(parse_file(a, "tokenizer.json", f->tokenizer_json, f->n_tokenizer_json, &j, err));
    SL_TRY(parse_file(a, "tokenizer_config.json", f->tokenizer_config, f->n_tokenizer_config,
                      &config, err));
    SL_TRY(parse_file(a, "special_tokens_map.json", f->special_tokens_map, f->n_special_tokens_map,
                      &map, err));
    SL_TRY(parse_file(a, "chat_template.json", f->chat_template_json, f->n_chat_template_json,
                      &tmpl, err));
    SL_TRY(in_file(read_tokenizer(t, j, err), "tokenizer.json", err));
    int32_t post_bos = t->bos;
    SL_TRY(set_token(t, token_text(config, "bos_token"), &t->bos_text, &t->bos, err));
    SL_TRY(set_token(t, token_text(config, "eos_token"), &t->eos_text, &t->eos, err));
    if (!text_json_get(config, "bos_token"))
        SL_TRY(set_token(t, token_text(map, "bos_token"), &t->bos_text, &t->bos, err));
    if (!text_json_get(config, "eos_token"))
        SL_TRY(set_token(t, token_text(map, "eos_token"), &t->eos_text, &t->eos, err));
    if (post_bos >= 0) t->bos = post_bos;
    SL_TRY(in_file(text_json_bool(config, "add_bos_token", t->add_bos, &t->add_bos, err),
                   "tokenizer_config.json", err));
    add_eog(t, f->config);
    add_eog(t, f->generation_config);
    return read_templates(f, t, config, tmpl, err);
}

sl_status tok_hf_open(const struct tok_files *f, tok *t, sl_err *err)
{
    struct arena a;
    if (!f->tokenizer_json) return SL_FAIL(err, NOTFOUND, "the model has no tokenizer.json");
    mem_arena_init(&a, MEM_TOK, 0);
    sl_status st = read_all(f, t, &a, err);
    mem_arena_fini(&a);
    return st;
}
