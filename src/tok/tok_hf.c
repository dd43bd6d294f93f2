/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a Hugging Face folder: which file has the vocabulary, and what the
 * configurations add to it: named tokens, ends of generation, templates. */
#include <string.h>

#include "tok/tok_internal.h"

static sl_status parse_file(struct arena *a, const char *name, const char *p, size_t n,
                            const struct json **out, sl_err *err)
{
    if (!p) return SL_OK;
    SL_TRY(text_json_parse_python(a, name, p, n, out, err));
    if ((*out)->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s is no object", name);
    return SL_OK;
}

/* ---- ends of generation ---- */
typedef void end_fn(void *arg, int64_t id);

/* A token's id; some tools write 2.0. */
static bool is_id(const struct json *v)
{
    return v->kind == JSON_INT_K ||
           (v->kind == JSON_REAL_K && v->f > -1e9 && v->f < 1e9 && v->f == (double)(int64_t)v->f);
}

static int64_t id_of(const struct json *v)
{
    return v->kind == JSON_INT_K ? v->i : (int64_t)v->f;
}

static bool is_id_list(const struct json *v)
{
    if (v->kind != JSON_ARRAY_K) return false;
    for (const struct json *m = v->child; m; m = m->next)
        if (!is_id(m)) return false;
    return true;
}

static void ends_of(const struct json *config, end_fn *f, void *arg)
{
    const struct json *v = text_json_get(config, "eos_token_id");
    if (!v) return;
    if (is_id(v)) f(arg, id_of(v));
    if (v->kind != JSON_ARRAY_K) return;
    for (const struct json *m = v->child; m; m = m->next)
        if (is_id(m)) f(arg, id_of(m));
}

/* Ids that nobody could read would be passed over without a word: the ends, and bans. */
static sl_status check_ids(const struct json *config, const char *file, sl_err *err)
{
    const struct json *end = text_json_get(config, "eos_token_id"),
                      *bans = text_json_get(config, "suppress_tokens"),
                      *words = text_json_get(config, "bad_words_ids");
    if (end && end->kind != JSON_NULL_K && !is_id(end) && !is_id_list(end))
        return SL_FAIL(err, FORMAT, "%s: eos_token_id is neither an id nor a list of ids", file);
    if (bans && bans->kind != JSON_NULL_K && !is_id_list(bans))
        return SL_FAIL(err, FORMAT, "%s: suppress_tokens is no list of ids", file);
    if (!words || words->kind == JSON_NULL_K) return SL_OK;
    bool fits = words->kind == JSON_ARRAY_K;
    for (const struct json *m = fits ? words->child : NULL; m; m = m->next)
        fits = fits && is_id_list(m) && m->n;
    if (fits) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: bad_words_ids is no list of lists of ids", file);
}

/* Both configurations, and the text model's part of config.json. */
static void all_ends(const struct tok_files *f, end_fn *fn, void *arg)
{
    ends_of(f->config, fn, arg);
    ends_of(text_json_get(f->config, "text_config"), fn, arg);
    ends_of(f->generation_config, fn, arg);
}

static void mark_end(void *arg, int64_t id)
{
    tok_build_eog(arg, id);
}

struct most {
    int64_t top, limit;
};

static void raise_top(void *arg, int64_t id)
{
    struct most *m = arg;
    if (id > m->top && id < m->limit) m->top = id;
}

sl_status tok_src_size(const struct tok_src *s, size_t n_token, int64_t top, int *n_vocab,
                       sl_err *err)
{
    struct most m = {.top = top};
    m.limit = BASE_MIN((int64_t)n_token * 4 + 65536, TOK_MAX_VOCAB);
    if (top >= m.limit)
        return SL_FAIL(err, FORMAT, "token id %lld in a vocabulary of %zu tokens", (long long)top,
                       n_token);
    all_ends(s->f, raise_top, &m);
    *n_vocab = (int)(m.top + 1);
    return SL_OK;
}

struct list {
    int32_t *id;
    int n, most;
};

static void put_end(void *arg, int64_t id)
{
    struct list *l = arg;
    if (id >= 0 && id < TOK_MAX_VOCAB && l->n < l->most) l->id[l->n++] = (int32_t)id;
}

int tok_end_ids(const io_model *m, int32_t *id, int most)
{
    static const char *const key[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
    struct tok_files f = {.config = io_config(m), .generation_config = io_generation_config(m)};
    struct list l = {.id = id, .most = most};
    uint64_t v = 0;
    all_ends(&f, put_end, &l);
    for (int i = 0; i < BASE_COUNT_OF(key); i++)
        if (io_meta_u64(m, key[i], &v, NULL) == SL_OK && v < TOK_MAX_VOCAB) put_end(&l, (int64_t)v);
    return l.n;
}

/* ---- templates ---- */
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

/* As transformers' tokenizers choose: the files of templates; else tokenizer_config.json. The file
 * chat_template.json belongs to processors: it counts where nothing else brings a default. */
static sl_status read_templates(const struct tok_src *s, tok *t, sl_err *err)
{
    const struct tok_files *f = s->f;
    const struct json *processor = NULL;
    SL_TRY(parse_file(s->a, "chat_template.json", f->chat_template_json, f->n_chat_template_json,
                      &processor, err));
    for (int i = 0; i < f->n_tmpl; i++) /* first, for a default one among them counts */
        SL_TRY(tok_build_template(t, f->tmpl[i].name, f->tmpl[i].text, f->tmpl[i].n, err));
    if (f->chat_template_jinja)
        SL_TRY(tok_build_template(t, "", f->chat_template_jinja, f->n_chat_template_jinja, err));
    if (!tok_template_find(t, ""))
        SL_TRY(tok_in_file(read_template(t, text_json_get(s->config, "chat_template"), err),
                           "tokenizer_config.json", err));
    if (tok_template_find(t, "")) return SL_OK;
    return tok_in_file(read_template(t, text_json_get(processor, "chat_template"), err),
                       "chat_template.json", err);
}

/* ---- all of it ---- */

/* Where the configuration has add_bos_token or add_eos_token, they take the place of what the
 * post-processor wishes, as DeepSeek's files mean it: BOS, EOS, both or nothing. */
static sl_status read_wishes(const struct tok_src *s, tok *t, sl_err *err)
{
    static const char *const key[] = {"add_bos_token", "add_eos_token"};
    bool yes[2] = {false}, said = false;
    for (int i = 0; i < 2; i++) {
        const struct json *v = text_json_get(s->config, key[i]);
        said = said || (v && v->kind != JSON_NULL_K);
        SL_TRY(tok_in_file(text_json_bool(s->config, key[i], false, &yes[i], err),
                           "tokenizer_config.json", err));
    }
    if (!said) return SL_OK;
    t->n_front = t->n_back = 0;
    if (yes[0] && t->bos >= 0) SL_TRY(tok_build_around(t, true, t->bos, err));
    if (yes[1] && t->eos >= 0) SL_TRY(tok_build_around(t, false, t->eos, err));
    return SL_OK;
}

/* ---- tokens that are never drawn ---- */

/* suppress_tokens, and those of bad_words_ids that are one token. An end of generation that stands
 * among the latter is passed over, as in transformers. */
static void read_bans(const struct json *g, tok *t)
{
    const struct json *list = text_json_get(g, "suppress_tokens"),
                      *words = text_json_get(g, "bad_words_ids");
    for (const struct json *m = list && list->kind == JSON_ARRAY_K ? list->child : NULL; m;
         m = m->next)
        if (is_id(m)) tok_build_ban(t, id_of(m));
    for (const struct json *m = words && words->kind == JSON_ARRAY_K ? words->child : NULL; m;
         m = m->next)
        if (m->kind == JSON_ARRAY_K && m->n == 1 && is_id(m->item[0]) &&
            !tok_is_eog(t, (int32_t)BASE_MIN(id_of(m->item[0]), INT32_MAX)))
            tok_build_ban(t, id_of(m->item[0]));
}

static sl_status read_all(const struct tok_files *f, tok *t, struct arena *a, sl_err *err)
{
    struct tok_src s = {.f = f, .a = a};
    SL_TRY(parse_file(a, "tokenizer_config.json", f->tokenizer_config, f->n_tokenizer_config,
                      &s.config, err));
    SL_TRY(parse_file(a, "special_tokens_map.json", f->special_tokens_map, f->n_special_tokens_map,
                      &s.map, err));
    SL_TRY(parse_file(a, "added_tokens.json", f->added_tokens, f->n_added_tokens, &s.added, err));
    if (f->tokenizer_json) {
        SL_TRY(tok_json_open(&s, t, err));
    } else if (f->tokenizer_model) {
        SL_TRY(tok_spm_open(&s, t, err));
    } else if (f->tiktoken_model) {
        SL_TRY(tok_ranks_open(&s, t, err));
    } else {
        SL_TRY(tok_vocab_open(&s, t, err));
    }
    if (f->tokenizer_json || !f->tokenizer_model) SL_TRY(read_wishes(&s, t, err));
    SL_TRY(tok_in_file(tok_keys_config(&s, t, err), "tokenizer_config.json", err));
    SL_TRY(check_ids(f->config, "config.json", err));
    SL_TRY(check_ids(text_json_get(f->config, "text_config"), "config.json", err));
    SL_TRY(check_ids(f->generation_config, "generation_config.json", err));
    all_ends(f, mark_end, t);
    read_bans(f->generation_config, t);
    return read_templates(&s, t, err);
}

sl_status tok_hf_open(const struct tok_files *given, tok *t, sl_err *err)
{
    struct arena a;
    struct tok_files files = *given, *f = &files;
    if (f->tokenizer_model && tok_ranks_like(f->tokenizer_model, f->n_tokenizer_model)) {
        f->tiktoken_model = f->tokenizer_model; /* by the other one's name */
        f->n_tiktoken_model = f->n_tokenizer_model;
        f->tokenizer_model = NULL;
    }
    if (!f->tokenizer_json && !f->tokenizer_model && !f->tiktoken_model &&
        !(f->vocab_json && f->merges_txt))
        return SL_FAIL(err, NOTFOUND,
                       "the model has no tokenizer.json, nor tokenizer.model, tiktoken.model, or "
                       "vocab.json with merges.txt");
    mem_arena_init(&a, MEM_TOK, 0);
    sl_status st = read_all(f, t, &a, err);
    mem_arena_fini(&a);
    return st;
}
