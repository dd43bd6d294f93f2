/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json: a BPE over bytes, or over code points with tokens for bytes (SentencePiece). */
#include <string.h>

#include "tok/tok_internal.h"

static sl_status check_model(const struct json *model, sl_err *err)
{
    const char *s;
    double f;
    SL_TRY(text_json_str(model, "type", "BPE", &s, err));
    if (strcmp(s, "BPE") != 0)
        return SL_FAIL(err, UNSUPPORTED, "model type \"%.40s\": only BPE is supported", s);
    SL_TRY(text_json_str(model, "continuing_subword_prefix", "", &s, err));
    if (*s) return SL_FAIL(err, UNSUPPORTED, "continuing_subword_prefix \"%.20s\"", s);
    SL_TRY(text_json_str(model, "end_of_word_suffix", "", &s, err));
    if (*s) return SL_FAIL(err, UNSUPPORTED, "end_of_word_suffix \"%.20s\"", s);
    SL_TRY(text_json_real(model, "dropout", 0, &f, err));
    if (f != 0) return SL_FAIL(err, UNSUPPORTED, "dropout");
    return SL_OK;
}

/* ---- decoders of words of code points ---- */
static sl_status decode_replace(tok *t, const struct json *j, sl_err *err)
{
    const struct json *a = text_json_get(text_json_get(j, "pattern"), "String"),
                      *b = text_json_get(j, "content");
    if (!a || a->kind != JSON_STR_K || !text_json_is(b, " "))
        return SL_FAIL(err, UNSUPPORTED, "decoder Replace by anything but a space");
    return tok_build_mark(t, a->s, err);
}

static sl_status decode_strip(tok *t, const struct json *j, sl_err *err)
{
    int64_t start, stop;
    SL_TRY(text_json_int(j, "start", 0, &start, err));
    SL_TRY(text_json_int(j, "stop", 0, &stop, err));
    if (!text_json_is(text_json_get(j, "content"), " ") || start < 0 || start > 1000 || stop != 0)
        return SL_FAIL(err, UNSUPPORTED, "decoder Strip of anything but spaces in front");
    t->strip = (int)start;
    return SL_OK;
}

static sl_status decode_mark(tok *t, const struct json *j, sl_err *err)
{
    const char *mark, *scheme;
    bool yes;
    SL_TRY(text_json_str(j, "replacement", "\xe2\x96\x81", &mark, err));
    SL_TRY(text_json_bool(j, "add_prefix_space", true, &yes, err));
    SL_TRY(text_json_str(j, "prepend_scheme", yes ? "always" : "never", &scheme, err));
    t->strip_first = strcmp(scheme, "never") != 0;
    return tok_build_mark(t, mark, err);
}

/* Tokens are told apart until Fuse, and what comes after it sees one text: steps for tokens, then
 * Fuse, then steps for the text, is what a decoder here can be. */
struct decoding {
    bool fused, marked; /* Fuse; a step that makes spaces of marks */
};

static sl_status check_order(const tok *t, const char *type, const struct decoding *d, sl_err *err)
{
    bool fused = d->fused, meta = strcmp(type, "Metaspace") == 0;
    bool of_text = strcmp(type, "Strip") == 0;
    bool of_token = strcmp(type, "ByteFallback") == 0 || meta;
    if ((of_text && !fused) || (of_token && fused))
        return SL_FAIL(err, UNSUPPORTED, "decoder %s %s Fuse", type, fused ? "after" : "without");
    if ((of_text && (t->strip || t->strip_first)) || (meta && d->marked) ||
        (t->strip && strcmp(type, "Replace") == 0))
        return SL_FAIL(err, UNSUPPORTED, "decoder %s after another one", type);
    return SL_OK;
}

static sl_status decode_step(tok *t, const struct json *j, struct decoding *d, sl_err *err)
{
    const char *type;
    SL_TRY(text_json_str(j, "type", "?", &type, err));
    SL_TRY(check_order(t, type, d, err));
    if (strcmp(type, "ByteFallback") == 0) t->byte_decode = true;
    if (strcmp(type, "Fuse") == 0) d->fused = true;
    if (strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0) return SL_OK;
    if (strcmp(type, "Replace") == 0 || strcmp(type, "Metaspace") == 0) d->marked = true;
    if (strcmp(type, "Replace") == 0) return decode_replace(t, j, err);
    if (strcmp(type, "Strip") == 0) return decode_strip(t, j, err);
    if (strcmp(type, "Metaspace") == 0) return decode_mark(t, j, err);
    return SL_FAIL(err, UNSUPPORTED, "decoder \"%.40s\"", type);
}

/* Of words of bytes: what they stand for, and nothing else. */
static sl_status byte_step(const struct json *j, bool first, sl_err *err)
{
    const char *type;
    SL_TRY(text_json_str(j, "type", "?", &type, err));
    if (strcmp(type, first ? "ByteLevel" : "Fuse") == 0) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "decoder \"%.40s\" of words of bytes", type);
}

/* Answers would have the marks that the pre-tokenizer put there. */
static sl_status want_marked(const tok *t, const struct decoding *d, sl_err *err)
{
    if (!t->mark[0] || d->marked) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "decoder without Replace or Metaspace beside a pre_tokenizer Metaspace");
}

static sl_status one_step(tok *t, const struct json *j, sl_err *err)
{
    struct decoding d = {0};
    SL_TRY(decode_step(t, j, &d, err));
    return want_marked(t, &d, err);
}

static sl_status read_decoder(tok *t, const struct json *j, sl_err *err)
{
    struct decoding d = {0};
    bool bytes = !t->chars;
    if (bytes && (!j || j->kind == JSON_NULL_K)) return SL_OK;
    if (!j || j->kind != JSON_OBJECT_K)
        return SL_FAIL(
            err, UNSUPPORTED,
            "no decoder, and no pre_tokenizer ByteLevel: what its words mean is not known");
    const struct json *list = text_json_get(j, "decoders");
    if (!text_json_is(text_json_get(j, "type"), "Sequence"))
        return bytes ? byte_step(j, true, err) : one_step(t, j, err);
    if (!list || list->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "decoder Sequence without decoders");
    for (size_t i = 0; i < list->n; i++)
        SL_TRY(bytes ? byte_step(list->item[i], i == 0, err)
                     : decode_step(t, list->item[i], &d, err));
    return bytes ? SL_OK : want_marked(t, &d, err);
}

static sl_status read_unknown(tok *t, const struct json *model, sl_err *err)
{
    const struct json *unk = text_json_get(model, "unk_token");
    SL_TRY(text_json_bool(model, "fuse_unk", false, &t->fuse_unk, err));
    if (!unk || unk->kind == JSON_NULL_K) return SL_OK;
    if (unk->kind != JSON_STR_K) return SL_FAIL(err, FORMAT, "model.unk_token is not a string");
    uint32_t id = tok_word_find(t, unk->s, unk->n);
    if (id == TOK_NONE)
        return SL_FAIL(err, FORMAT, "model.unk_token \"%.40s\" is not in the vocabulary", unk->s);
    t->unk = (int32_t)id;
    return SL_OK;
}

/* Of words of bytes: are those there that UTF-8 needs? Where some are not, byte_fallback would look
 * for tokens by how the alphabet spells them. */
static sl_status want_bytes(const tok *t, sl_err *err)
{
    for (int i = 0; i < 0xf5 && !t->chars && t->byte_words; i++)
        if (t->byte_id[i] == TOK_NONE && i != 0xc0 && i != 0xc1)
            return SL_FAIL(err, UNSUPPORTED,
                           "model.byte_fallback with words of bytes of which 0x%02x is missing", i);
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
            SL_TRY(tok_build_merge(t, i, (struct tok_halves){m->s, a, sp + 1, m->n - a - 1}, true,
                                   err));
            continue;
        }
        if (m->kind != JSON_ARRAY_K || m->n != 2 || m->item[0]->kind != JSON_STR_K ||
            m->item[1]->kind != JSON_STR_K)
            return SL_FAIL(err, FORMAT, "model.merges[%u] is no pair of strings", i);
        SL_TRY(tok_build_merge(
            t, i, (struct tok_halves){m->item[0]->s, m->item[0]->n, m->item[1]->s, m->item[1]->n},
            true, err));
    }
    return SL_OK;
}

/* ---- post-processing ---- */
static sl_status put_id(tok *t, int64_t id, bool front, sl_err *err)
{
    if (!tok_valid(t, id))
        return SL_FAIL(err, FORMAT, "post_processor: %lld is no token", (long long)id);
    if (front && t->n_front == 0 && t->bos < 0) t->bos = (int32_t)id;
    return tok_build_around(t, front, (int32_t)id, err);
}

/* A special token of a template: the ids that special_tokens gives it, else the token of that text.
 */
static sl_status put_special(tok *t, const struct json *special, const struct json *all, bool front,
                             sl_err *err)
{
    const struct json *name = text_json_get(special, "id");
    if (!name || name->kind != JSON_STR_K)
        return SL_FAIL(err, FORMAT, "post_processor: a special token without a name");
    const struct json *ids = text_json_get(text_json_get(all, name->s), "ids");
    for (size_t i = 0; ids && ids->kind == JSON_ARRAY_K && i < ids->n; i++) {
        if (ids->item[i]->kind != JSON_INT_K)
            return SL_FAIL(err, FORMAT, "post_processor: an id of \"%.40s\" is no number", name->s);
        SL_TRY(put_id(t, ids->item[i]->i, front, err));
    }
    if (ids && ids->kind == JSON_ARRAY_K && ids->n) return SL_OK;
    int32_t found = tok_find(t, name->s);
    if (found < 0) return SL_FAIL(err, FORMAT, "post_processor: \"%.40s\" is no token", name->s);
    return put_id(t, found, front, err);
}

/* A template: the special tokens before and after the one text. */
static sl_status read_single(tok *t, const struct json *j, sl_err *err)
{
    const struct json *single = text_json_get(j, "single"),
                      *all = text_json_get(j, "special_tokens");
    int n_text = 0;
    if (!single || single->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "post_processor TemplateProcessing: single is no list");
    for (const struct json *m = single->child; m; m = m->next) {
        const struct json *special = text_json_get(m, "SpecialToken"),
                          *text = text_json_get(m, "Sequence");
        if (special) SL_TRY(put_special(t, special, all, n_text == 0, err));
        if (!special && !text)
            return SL_FAIL(err, FORMAT,
                           "post_processor: neither a special token nor a sequence in single");
        n_text += text != NULL;
    }
    if (n_text == 1) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "post_processor: %d sequences in single", n_text);
}

/* [text, id] of BertProcessing and RobertaProcessing. */
static sl_status put_pair(tok *t, const struct json *j, const char *key, bool front, sl_err *err)
{
    const struct json *v = text_json_get(j, key);
    if (!v || v->kind != JSON_ARRAY_K || v->n != 2 || v->item[1]->kind != JSON_INT_K)
        return SL_FAIL(err, FORMAT, "post_processor: %s is no text and its id", key);
    return put_id(t, v->item[1]->i, front, err);
}

static sl_status read_post(tok *t, const struct json *j, int depth, sl_err *err)
{
    const char *type = NULL;
    const struct json *list = text_json_get(j, "processors");
    if (!j || j->kind == JSON_NULL_K) return SL_OK;
    if (j->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "post_processor is no object");
    SL_TRY(text_json_str(j, "type", "?", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        if (!list || list->kind != JSON_ARRAY_K || depth > 3)
            return SL_FAIL(err, FORMAT, "post_processor Sequence without processors, or too deep");
        for (const struct json *p = list->child; p; p = p->next)
            SL_TRY(read_post(t, p, depth + 1, err));
        return SL_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) return SL_OK; /* of offsets */
    if (t->n_front || t->n_back)
        return SL_FAIL(err, UNSUPPORTED, "post_processor %.40s after one that adds tokens", type);
    if (strcmp(type, "TemplateProcessing") == 0) return read_single(t, j, err);
    if (strcmp(type, "RobertaProcessing") != 0 && strcmp(type, "BertProcessing") != 0)
        return SL_FAIL(err, UNSUPPORTED, "post_processor \"%.40s\"", type);
    SL_TRY(put_pair(t, j, "cls", true, err));
    return put_pair(t, j, "sep", false, err);
}

/* ---- all of it ---- */
sl_status tok_json_words(const struct json *vocab, struct tok_join *join, int64_t *top, sl_err *err)
{
    *top = -1;
    for (const struct json *m = vocab->child; m; m = m->next) {
        if (m->kind != JSON_INT_K || m->i < 0)
            return SL_FAIL(err, FORMAT, "model.vocab: the id of \"%.40s\" is no number from 0 on",
                           m->key);
        *top = BASE_MAX(*top, m->i);
        tok_join_word(join, m->key, m->n_key, m->i);
    }
    return SL_OK;
}

struct parts {
    const struct json *model, *vocab, *merges, *added;
};

static sl_status read_parts(const struct json *j, struct parts *p, sl_err *err)
{
    *p = (struct parts){.model = text_json_get(j, "model"),
                        .added = text_json_get(j, "added_tokens")};
    p->vocab = text_json_get(p->model, "vocab");
    p->merges = text_json_get(p->model, "merges");
    if (!p->model || p->model->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "no model");
    SL_TRY(check_model(p->model, err));
    if (!p->vocab || p->vocab->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "model.vocab is no object");
    if (!p->merges || p->merges->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "model.merges is no array");
    if (p->added && p->added->kind == JSON_NULL_K) p->added = NULL;
    if (p->added && p->added->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "added_tokens is no array");
    return SL_OK;
}

/* Everything that says how text is cut and put together. */
static sl_status read_rules(const struct json *j, const struct parts *p, tok *t, sl_err *err)
{
    bool bytes = false;
    SL_TRY(text_json_bool(p->model, "ignore_merges", false, &t->ignore_merges, err));
    SL_TRY(text_json_bool(p->model, "byte_fallback", false, &t->byte_words, err));
    SL_TRY(tok_norm_json(t, text_json_get(j, "normalizer"), err));
    SL_TRY(tok_pre_json(t, text_json_get(j, "pre_tokenizer"), &bytes, err));
    t->chars = !bytes;
    return read_decoder(t, text_json_get(j, "decoder"), err);
}

static sl_status build(const struct tok_src *s, const struct json *j, const struct parts *p,
                       struct tok_join *join, tok *t, sl_err *err)
{
    int64_t top = -1, added = -1;
    int n_vocab = 0;
    SL_TRY(read_rules(j, p, t, err));
    SL_TRY(tok_json_words(p->vocab, join, &top, err));
    tok_join_ids(join, (int64_t)p->vocab->n, &added);
    SL_TRY(tok_src_size(s, p->vocab->n + join->n_name, BASE_MAX(top, added), &n_vocab, err));
    SL_TRY(tok_build_begin(t, n_vocab, p->merges->n, err));
    for (const struct json *m = p->vocab->child; m; m = m->next)
        SL_TRY(t->chars ? tok_build_chars(t, m->i, m->key, m->n_key, err)
                        : tok_build_word(t, m->i, m->key, m->n_key, err));
    SL_TRY(tok_build_index(t, false, err));
    SL_TRY(read_merges(t, p->merges, err));
    SL_TRY(read_unknown(t, p->model, err));
    SL_TRY(want_bytes(t, err));
    SL_TRY(tok_join_build(join, t, err));
    SL_TRY(read_post(t, text_json_get(j, "post_processor"), 0, err));
    return tok_keys_json(j, err);
}

sl_status tok_json_open(const struct tok_src *s, tok *t, sl_err *err)
{
    static const char name[] = "tokenizer.json";
    const struct json *j = NULL;
    struct parts p;
    struct tok_join join = {.a = s->a, .config = s->config, .map = s->map, .added = s->added};
    SL_TRY(text_json_parse(s->a, name, s->f->tokenizer_json, s->f->n_tokenizer_json, &j, err));
    if (j->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s is no object", name);
    SL_TRY(tok_in_file(read_parts(j, &p, err), name, err));
    join.list = p.added;
    SL_TRY(tok_join_read(&join, err));
    return tok_in_file(build(s, j, &p, &join, t, err), name, err);
}
