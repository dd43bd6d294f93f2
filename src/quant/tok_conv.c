/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers: tokenizer.json <-> tokenizer.ggml.* keys. Byte-level BPE only, the same that the tok room reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"
#include "quant/quant_internal.h"
#include "tok/tok.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

/* ---- folder -> GGUF ---- */

struct vocab {
    const char **text;
    size_t *len;
    int32_t *type;
    int64_t n;
};

static sl_status put_token(struct vocab *v, const struct json *id, const char *s, size_t n, int32_t type, sl_err *err)
{
    if (!id || id->kind != JSON_INT_K || id->i < 0 || id->i >= v->n)
        return SL_FAIL(err, FORMAT, "tokenizer.json: the id of \"%.40s\" is not in the vocabulary of %lld", s, (long long)v->n);
    v->text[id->i] = s;
    v->len[id->i] = n;
    v->type[id->i] = type;
    return SL_OK;
}

static int64_t largest_id(const struct json *vocab, const struct json *added)
{
    int64_t top = -1;
    for (const struct json *w = vocab ? vocab->child : NULL; w; w = w->next)
        if (w->kind == JSON_INT_K && w->i > top && w->i < INT32_MAX) top = w->i;
    for (const struct json *w = added && added->kind == JSON_ARRAY_K ? added->child : NULL; w; w = w->next) {
        const struct json *id = text_json_get(w, "id");
        if (id && id->kind == JSON_INT_K && id->i > top && id->i < INT32_MAX) top = id->i;
    }
    return top;
}

static sl_status read_vocab(const struct json *root, int64_t n_vocab, struct arena *a, struct vocab *v, sl_err *err)
{
    const struct json *vocab = text_json_get(text_json_get(root, "model"), "vocab"), *added = text_json_get(root, "added_tokens");
    void *p = NULL;
    if (!vocab || vocab->kind != JSON_OBJECT_K) return SL_FAIL(err, UNSUPPORTED, "tokenizer.json: model.vocab is no object: not a BPE");
    v->n = BASE_MAX(n_vocab, largest_id(vocab, added) + 1);
    SL_TRY(mem_arena_array(a, (size_t)v->n, sizeof *v->text, &p, err));
    v->text = p;
    SL_TRY(mem_arena_array(a, (size_t)v->n, sizeof *v->len, &p, err));
    v->len = p;
    SL_TRY(mem_arena_array(a, (size_t)v->n, sizeof *v->type, &p, err));
    v->type = p;
    for (const struct json *w = vocab->child; w; w = w->next) SL_TRY(put_token(v, w, w->key, w->n_key, NORMAL, err));
    for (const struct json *w = added && added->kind == JSON_ARRAY_K ? added->child : NULL; w; w = w->next) {
        const struct json *text = text_json_get(w, "content"), *sp = text_json_get(w, "special");
        if (!text || text->kind != JSON_STR_K) return SL_FAIL(err, FORMAT, "tokenizer.json: an added token without content");
        SL_TRY(put_token(v, text_json_get(w, "id"), text->s, text->n, sp && sp->kind == JSON_BOOL_K && sp->b ? CONTROL : USER_DEFINED, err));
    }
    return SL_OK;
}

static void put_vocab(const struct vocab *v, io_out *out)
{
    char pad[32];
    io_out_array(out, "tokenizer.ggml.tokens", IO_STR, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++) {
        snprintf(pad, sizeof pad, "[PAD%lld]", (long long)i);
        io_out_elem_str(out, v->text[i] ? v->text[i] : pad, v->text[i] ? v->len[i] : strlen(pad));
    }
    io_out_array(out, "tokenizer.ggml.token_type", IO_I32, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++) io_out_elem_i32(out, v->text[i] ? v->type[i] : UNUSED);
}

static sl_status put_merges(const struct json *root, io_out *out, sl_err *err)
{
    const struct json *m = text_json_get(text_json_get(root, "model"), "merges");
    struct str s;
    if (!m || m->kind != JSON_ARRAY_K) return SL_FAIL(err, UNSUPPORTED, "tokenizer.json: model.merges is no array: not a BPE");
    io_out_array(out, "tokenizer.ggml.merges", IO_STR, m->n);
    str_init(&s, MEM_MISC, 0);
    for (const struct json *w = m->child; w; w = w->next) {
        if (w->kind == JSON_STR_K) {
            io_out_elem_str(out, w->s, w->n);
        } else if (w->kind == JSON_ARRAY_K && w->n == 2 && w->item[0]->kind == JSON_STR_K && w->item[1]->kind == JSON_STR_K) {
            str_clear(&s);
            str_put(&s, w->item[0]->s, w->item[0]->n);
            str_putc(&s, ' ');
            str_put(&s, w->item[1]->s, w->item[1]->n);
            io_out_elem_str(out, str_c(&s), s.n);
        } else {
            str_fini(&s);
            return SL_FAIL(err, FORMAT, "tokenizer.json: a merge is no pair");
        }
    }
    sl_status st = str_status(&s, err);
    str_fini(&s);
    return st;
}

static sl_status to_gguf(const struct quant_plan *p, const struct json *root, const tok *t, struct arena *a, io_out *out, sl_err *err)
{
    char pre[64];
    struct vocab v = {0};
    size_t n = 0;
    SL_TRY(tok_rule_name(t, pre, sizeof pre, err));
    SL_TRY(read_vocab(root, p->cfg.n_vocab, a, &v, err));
    io_out_str(out, "tokenizer.ggml.model", "gpt2", 4);
    io_out_str(out, "tokenizer.ggml.pre", pre, strlen(pre));
    put_vocab(&v, out);
    SL_TRY(put_merges(root, out, err));
    if (tok_bos(t) >= 0) io_out_u32(out, "tokenizer.ggml.bos_token_id", (uint32_t)tok_bos(t));
    if (tok_eos(t) >= 0) io_out_u32(out, "tokenizer.ggml.eos_token_id", (uint32_t)tok_eos(t));
    io_out_bool(out, "tokenizer.ggml.add_bos_token", tok_add_bos(t));
    const char *tmpl = NULL;
    SL_TRY(tok_template_for(t, false, &tmpl, &n, err));
    if (tmpl) io_out_str(out, "tokenizer.chat_template", tmpl, n);
    return SL_OK;
}

sl_status quant_tok_to_gguf(const struct quant_plan *p, io_out *out, sl_err *err)
{
    uint64_t n = 0;
    const char *text = io_text_file(p->src, "tokenizer.json", &n);
    const struct json *root = NULL;
    struct arena a;
    tok *t = NULL;
    if (!text) return SL_OK; /* a model without a tokenizer stays one */
    mem_arena_init(&a, MEM_MISC, 0);
    sl_status st = tok_open(p->src, &t, err);
    if (!st) st = text_json_parse(&a, "tokenizer.json", text, n, &root, err);
    if (!st) st = to_gguf(p, root, t, &a, out, err);
    tok_close(t);
    mem_arena_fini(&a);
    return st;
}

/* ---- GGUF -> folder ---- */

static void put_bool(struct json_w *w, const char *key, bool v)
{
    text_jw_key(w, key);
    text_jw_bool(w, v);
}

static void put_str(struct json_w *w, const char *key, const char *v)
{
    text_jw_key(w, key);
    text_jw_strz(w, v);
}

static void put_null(struct json_w *w, const char *key)
{
    text_jw_key(w, key);
    text_jw_null(w);
}

static void put_bytelevel(struct json_w *w)
{
    text_jw_obj(w);
    put_str(w, "type", "ByteLevel");
    put_bool(w, "add_prefix_space", false);
    put_bool(w, "trim_offsets", true);
    put_bool(w, "use_regex", false);
    text_jw_obj_end(w);
}

static void put_pre(struct json_w *w, const struct tok_rule *r)
{
    text_jw_key(w, "pre_tokenizer");
    text_jw_obj(w);
    put_str(w, "type", "Sequence");
    text_jw_key(w, "pretokenizers");
    text_jw_arr(w);
    for (int i = 0; i < 7 && r->step[i]; i++) {
        text_jw_obj(w);
        put_str(w, "type", "Split");
        text_jw_key(w, "pattern");
        text_jw_obj(w);
        put_str(w, "Regex", r->step[i]);
        text_jw_obj_end(w);
        put_str(w, "behavior", "Isolated");
        put_bool(w, "invert", false);
        text_jw_obj_end(w);
    }
    put_bytelevel(w);
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

static int64_t type_of(const struct io_array *types, uint64_t i)
{
    int64_t v = NORMAL;
    return types->n && !io_array_i64(types, i, &v) ? NORMAL : v;
}

static void put_added(struct json_w *w, const struct io_array *words, const struct io_array *types)
{
    text_jw_key(w, "added_tokens");
    text_jw_arr(w);
    for (uint64_t i = 0; i < words->n; i++) {
        int64_t type = type_of(types, i);
        uint64_t n = 0;
        if (type != CONTROL && type != USER_DEFINED && type != 2) continue;
        const char *s = io_array_str(words, i, &n);
        text_jw_obj(w);
        text_jw_key(w, "id");
        text_jw_int(w, (int64_t)i);
        text_jw_key(w, "content");
        text_jw_str(w, s, n);
        put_bool(w, "single_word", false);
        put_bool(w, "lstrip", false);
        put_bool(w, "rstrip", false);
        put_bool(w, "normalized", false);
        put_bool(w, "special", type != USER_DEFINED);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

static sl_status put_model(struct json_w *w, const struct io_array *words, const struct io_array *types, const struct io_array *merges,
                           bool ignore_merges, sl_err *err)
{
    char key[1024];
    text_jw_key(w, "model");
    text_jw_obj(w);
    put_str(w, "type", "BPE");
    put_null(w, "dropout");
    put_null(w, "unk_token");
    put_null(w, "continuing_subword_prefix");
    put_null(w, "end_of_word_suffix");
    put_bool(w, "fuse_unk", false);
    put_bool(w, "byte_fallback", false);
    put_bool(w, "ignore_merges", ignore_merges);
    text_jw_key(w, "vocab");
    text_jw_obj(w);
    for (uint64_t i = 0; i < words->n; i++) {
        uint64_t n = 0;
        const char *s = io_array_str(words, i, &n);
        int64_t type = type_of(types, i);
        if (type == UNUSED || type == USER_DEFINED) continue;
        if (n >= sizeof key || memchr(s, 0, n))
            return SL_FAIL(err, UNSUPPORTED, "tokenizer.ggml.tokens[%llu]: %llu bytes: too long", (unsigned long long)i, (unsigned long long)n);
        snprintf(key, sizeof key, "%.*s", (int)n, s);
        text_jw_key(w, key);
        text_jw_int(w, (int64_t)i);
    }
    text_jw_obj_end(w);
    text_jw_key(w, "merges");
    text_jw_arr(w);
    for (uint64_t i = 0; i < merges->n; i++) {
        uint64_t n = 0;
        const char *s = io_array_str(merges, i, &n);
        text_jw_str(w, s, n);
    }
    text_jw_arr_end(w);
    text_jw_obj_end(w);
    return SL_OK;
}

static sl_status tokenizer_json(const io_model *m, const struct tok_rule *r, struct str *out, sl_err *err)
{
    struct io_array words = {0}, types = {0}, merges = {0};
    struct json_w w;
    SL_TRY(io_meta_array(m, "tokenizer.ggml.tokens", &words, err));
    SL_TRY(io_meta_array(m, "tokenizer.ggml.merges", &merges, err));
    if (io_meta_array(m, "tokenizer.ggml.token_type", &types, NULL) != SL_OK) types.n = 0;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    put_str(&w, "version", "1.0");
    put_null(&w, "truncation");
    put_null(&w, "padding");
    put_added(&w, &words, &types);
    text_jw_key(&w, "normalizer");
    if (r->nfc) {
        text_jw_obj(&w);
        put_str(&w, "type", "NFC");
        text_jw_obj_end(&w);
    } else {
        text_jw_null(&w);
    }
    put_pre(&w, r);
    put_null(&w, "post_processor");
    text_jw_key(&w, "decoder");
    put_bytelevel(&w);
    SL_TRY(put_model(&w, &words, &types, &merges, r->ignore_merges, err));
    text_jw_obj_end(&w);
    return str_status(out, err);
}

static sl_status tokenizer_config(const tok *t, struct str *out, sl_err *err)
{
    struct json_w w;
    size_t n = 0;
    const char *tmpl = NULL;
    SL_TRY(tok_template_for(t, false, &tmpl, &n, err));
    text_jw_init(&w, out);
    text_jw_obj(&w);
    put_str(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    if (tok_bos_text(t)) put_str(&w, "bos_token", tok_bos_text(t));
    if (tok_eos_text(t)) put_str(&w, "eos_token", tok_eos_text(t));
    put_bool(&w, "add_bos_token", tok_add_bos(t));
    put_bool(&w, "clean_up_tokenization_spaces", false);
    if (tmpl) {
        text_jw_key(&w, "chat_template");
        text_jw_str(&w, tmpl, n);
    }
    text_jw_obj_end(&w);
    return str_status(out, err);
}

static bool find_rule(const io_model *m, struct tok_rule *r)
{
    char key[72];
    const char *name = NULL;
    uint64_t n = 0;
    if (io_meta_str(m, "tokenizer.ggml.pre", &name, &n, NULL) != SL_OK || n < 1 || n > 64) return false;
    snprintf(key, sizeof key, " %.*s ", (int)n, name);
    for (int i = 0; tok_rule_get(i, r); i++)
        if (strstr(r->names, key)) return true;
    return false;
}

sl_status quant_tok_to_hf(const struct quant_plan *p, const char *dir, sl_err *err)
{
    struct tok_rule r;
    struct str s;
    tok *t = NULL;
    char path[4400];
    sl_status st = tok_open(p->src, &t, err);
    if (st == SL_NOTFOUND) return SL_OK; /* none there, none here */
    SL_TRY(st);
    str_init(&s, MEM_MISC, 0);
    if (!find_rule(p->src, &r)) st = SL_FAIL(err, UNSUPPORTED, "%s: tokenizer.ggml.pre is not known", io_path(p->src));
    if (!st) st = tokenizer_json(p->src, &r, &s, err);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    if (!st) st = os_write_file(path, str_c(&s), s.n, err);
    str_clear(&s);
    if (!st) st = tokenizer_config(t, &s, err);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    if (!st) st = os_write_file(path, str_c(&s), s.n, err);
    str_fini(&s);
    tok_close(t);
    return st;
}
