/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary in a GGUF file's metadata (tokenizer.ggml.*), tokenizer.ggml.model = gpt2 only. */
#include <string.h>

#include "text/utf8.h"
#include "tok/tok_internal.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

/* OK and *out untouched when the key is not there. */
static sl_status optional(sl_status st)
{
    return st == SL_NOTFOUND ? SL_OK : st;
}

static sl_status check_model(const io_model *m, sl_err *err)
{
    const char *s = NULL;
    uint64_t n = 0;
    sl_status st = io_meta_str(m, "tokenizer.ggml.model", &s, &n, err);
    if (st == SL_NOTFOUND)
        return SL_FAIL(err, NOTFOUND, "the file has no tokenizer (tokenizer.ggml.model)");
    SL_TRY(st);
    if (n == 4 && memcmp(s, "gpt2", 4) == 0) return SL_OK;
    const char *kind =
        n == 5 && memcmp(s, "llama", 5) == 0
            ? "a SentencePiece vocabulary (tokenizer.ggml.model is llama) is not supported"
            : NULL;
    if (kind) return SL_FAIL(err, UNSUPPORTED, "%s", kind);
    return SL_FAIL(err, UNSUPPORTED, "tokenizer.ggml.model \"%.*s\" is not supported: only gpt2 is",
                   (int)BASE_MIN(n, 40), s);
}

static sl_status read_words(const io_model *m, tok *t, const struct io_array *words, sl_err *err)
{
    struct io_array types = {0};
    SL_TRY(optional(io_meta_array(m, "tokenizer.ggml.token_type", &types, err)));
    if (types.n && types.n != words->n)
        return SL_FAIL(err, FORMAT, "tokenizer.ggml.token_type has %llu items, tokens has %llu",
                       (unsigned long long)types.n, (unsigned long long)words->n);
    for (uint64_t i = 0; i < words->n; i++) {
        int64_t type = TYPE_NORMAL;
        uint64_t n = 0;
        const char *p = io_array_str(words, i, &n);
        if (!p) return SL_FAIL(err, FORMAT, "tokenizer.ggml.tokens is no array of strings");
        if (types.n && !io_array_i64(&types, i, &type))
            return SL_FAIL(err, FORMAT, "tokenizer.ggml.token_type is no array of integers");
        switch (type) {
        case TYPE_CONTROL:
        case TYPE_UNKNOWN:
            SL_TRY(tok_build_added(t, (int64_t)i, p, n, TOK_F_SPECIAL, err));
            break;
        case TYPE_USER_DEFINED:
            SL_TRY(tok_build_added(t, (int64_t)i, p, n, 0, err));
            break;
        case TYPE_NORMAL:
        case TYPE_BYTE:
            SL_TRY(tok_build_word(t, (int64_t)i, p, n, err));
            break;
        case TYPE_UNUSED:
            break; /* a hole */
        default:
            return SL_FAIL(err, FORMAT, "tokenizer.ggml.token_type[%llu] is %lld",
                           (unsigned long long)i, (long long)type);
        }
    }
    return SL_OK;
}

static sl_status read_merges(tok *t, const struct io_array *merges, sl_err *err)
{
    for (uint64_t i = 0; i < merges->n; i++) {
        uint64_t n = 0;
        const char *p = io_array_str(merges, i, &n);
        const char *sp = p && n > 1 ? memchr(p + 1, ' ', n - 1) : NULL;
        if (!sp)
            return SL_FAIL(err, FORMAT, "tokenizer.ggml.merges[%llu] is no pair",
                           (unsigned long long)i);
        size_t a = (size_t)(sp - p);
        SL_TRY(tok_build_merge(t, (uint32_t)i, p, a, sp + 1, n - a - 1, false, err));
    }
    return SL_OK;
}

static sl_status read_id(const io_model *m, const tok *t, const char *key, int32_t *id, sl_err *err)
{
    uint64_t v = 0;
    *id = -1;
    sl_status st = io_meta_u64(m, key, &v, err);
    if (st == SL_NOTFOUND) return SL_OK;
    SL_TRY(st);
    if (v == UINT32_MAX) return SL_OK; /* how some converters write "none" */
    if (v >= (uint64_t)t->n_vocab)
        return SL_FAIL(err, FORMAT, "%s is %llu, the vocabulary has %d tokens", key,
                       (unsigned long long)v, t->n_vocab);
    if (tok_valid(t, (int64_t)v)) *id = (int32_t)v;
    return SL_OK;
}

static sl_status read_ids(const io_model *m, tok *t, sl_err *err)
{
    static const char *const eog[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
    SL_TRY(read_id(m, t, "tokenizer.ggml.bos_token_id", &t->bos, err));
    SL_TRY(read_id(m, t, eog[0], &t->eos, err));
    for (int i = 0; i < BASE_COUNT_OF(eog); i++) {
        int32_t id = -1;
        SL_TRY(read_id(m, t, eog[i], &id, err));
        if (id >= 0) t->v[id].flags |= TOK_F_EOG | TOK_F_CONTROL;
    }
    if (t->bos >= 0) t->bos_text = t->v[t->bos].p;
    if (t->eos >= 0) t->eos_text = t->v[t->eos].p;
    bool add = t->ignore_merges && t->bos >= 0 &&
               !strcmp(t->bos_text, "<|begin_of_text|>"); /* Llama 3 without the key */
    SL_TRY(optional(io_meta_bool(m, "tokenizer.ggml.add_bos_token", &add, err)));
    t->add_bos = add;
    return SL_OK;
}

static sl_status read_template(const io_model *m, tok *t, const char *key, const char *name,
                               sl_err *err)
{
    const char *p = NULL;
    uint64_t n = 0;
    sl_status st = io_meta_str(m, key, &p, &n, err);
    if (st == SL_NOTFOUND) return SL_OK;
    SL_TRY(st);
    size_t good = text_utf8_check(p, n);
    if (good < n) return SL_FAIL(err, FORMAT, "%s is not UTF-8 at byte %zu", key, good);
    return tok_build_template(t, name, p, n, err);
}

static sl_status read_templates(const io_model *m, tok *t, sl_err *err)
{
    static const char prefix[] = "tokenizer.chat_template.";
    SL_TRY(read_template(m, t, "tokenizer.chat_template", "", err));
    for (int i = 0; i < io_n_meta(m); i++) {
        const char *key = io_meta_key(m, i);
        if (strncmp(key, prefix, sizeof prefix - 1) == 0)
            SL_TRY(read_template(m, t, key, key + sizeof prefix - 1, err));
    }
    return SL_OK;
}

sl_status tok_gguf_open(const io_model *m, tok *t, sl_err *err)
{
    struct io_array words = {0}, merges = {0};
    const char *pre = NULL;
    uint64_t n = 0;
    SL_TRY(check_model(m, err));
    SL_TRY(io_meta_array(m, "tokenizer.ggml.tokens", &words, err));
    SL_TRY(io_meta_array(m, "tokenizer.ggml.merges", &merges, err));
    sl_status st = io_meta_str(m, "tokenizer.ggml.pre", &pre, &n, err);
    if (st == SL_NOTFOUND)
        return SL_FAIL(err, UNSUPPORTED,
                       "the file does not say how text is split (tokenizer.ggml.pre): convert the "
                       "model again");
    SL_TRY(st);
    SL_TRY(tok_pre_named(t, pre, n, err));
    if (words.n < 1 || words.n > TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "tokenizer.ggml.tokens has %llu items",
                       (unsigned long long)words.n);
    SL_TRY(tok_build_begin(t, (int)words.n, merges.n, err));
    SL_TRY(read_words(m, t, &words, err));
    SL_TRY(tok_build_index(t, true, err));
    SL_TRY(read_merges(t, &merges, err));
    SL_TRY(read_ids(m, t, err));
    return read_templates(m, t, err);
}
