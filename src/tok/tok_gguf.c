/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary in a GGUF file's metadata (tokenizer.ggml.*): tokenizer.ggml.model is gpt2 (words
 * of bytes, and merges), llama (SentencePiece: words of code points, and scores) or gemma4 (words
 * of code points, and merges). */
#include <string.h>

#include "base/log.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

#define WIDE_BAR "\xef\xbd\x9c"
#define SP_MARK "\xe2\x96\x81"
/* Control tokens by their text, whatever type a converter wrote: ends of turn, and the marks of
 * fill-in-the-middle. Those with end set end a generation. As llama.cpp has them. */
static const struct {
    const char *text;
    bool end;
} control[] = {
    {"<|eot_id|>", true},
    {"<|im_end|>", true},
    {"<|end|>", true},
    {"<|return|>", true},
    {"<|call|>", true},
    {"<|flush|>", true},
    {"<|calls|>", true},
    {"<end_of_turn>", true},
    {"<turn|>", true},
    {"<|endoftext|>", true},
    {"<|end_of_text|>", true},
    {"</s>", true},
    {"<EOT>", true},
    {"_<EOT>", true},
    {"[EOT]", true},
    {"[EOS]", true},
    {"<|eom_id|>", true},
    {"<end_of_utterance>", true},
    {"<" WIDE_BAR "end" SP_MARK "of" SP_MARK "sentence" WIDE_BAR ">", true},
    {"<|fim_prefix|>", false},
    {"<fim-prefix>", false},
    {"<fim_prefix>", false},
    {"<" WIDE_BAR "fim" SP_MARK "begin" WIDE_BAR ">", false},
    {"<PRE>", false},
    {SP_MARK "<PRE>", false},
    {"<|code_prefix|>", false},
    {"<|prefix|>", false},
    {"<|fim_suffix|>", false},
    {"<fim-suffix>", false},
    {"<fim_suffix>", false},
    {"<" WIDE_BAR "fim" SP_MARK "hole" WIDE_BAR ">", false},
    {"<SUF>", false},
    {SP_MARK "<SUF>", false},
    {"<|code_suffix|>", false},
    {"<|suffix|>", false},
    {"<|fim_middle|>", false},
    {"<fim-middle>", false},
    {"<fim_middle>", false},
    {"<" WIDE_BAR "fim" SP_MARK "end" WIDE_BAR ">", false},
    {"<MID>", false},
    {SP_MARK "<MID>", false},
    {"<|code_middle|>", false},
    {"<|middle|>", false},
    {"<|fim_pad|>", true},
    {"<fim-pad>", true},
    {"<fim_pad>", true},
    {"<PAD>", true},
    {"[PAD]", true},
    {"<|fim_repo|>", true},
    {"<|repo_name|>", true},
    {"<fim-repo>", true},
    {"<REPO>", true},
    {"<reponame>", true},
    {"<|file_sep|>", true},
};

static int control_text(const char *p, uint64_t n)
{
    for (int i = 0; i < BASE_COUNT_OF(control); i++)
        if (strlen(control[i].text) == n && memcmp(control[i].text, p, n) == 0) return i;
    return -1;
}

/* Which control texts are to be found by their text at all: none where the file lists its end
 * tokens (our own key, which says that its types are right too), and none that merges make, which
 * is an ordinary word ("</s>" of Qwen3). */
static void look_for(const io_model *m, const struct io_array *merges, bool look[])
{
    struct io_array own = {0};
    bool listed = io_meta_array(m, "tokenizer.ggml.eog_token_ids", &own, NULL) == SL_OK;
    for (int i = 0; i < BASE_COUNT_OF(control); i++)
        look[i] = !listed;
    for (uint64_t i = 0; i < merges->n && !listed; i++) {
        char text[64];
        uint64_t n = 0;
        const char *p = io_array_str(merges, i, &n);
        const char *sp = p && n > 2 && n < sizeof text ? memchr(p + 1, ' ', n - 1) : NULL;
        if (!sp || (p[n - 1] != '>' && p[n - 1] != ']')) continue;
        size_t a = (size_t)(sp - p);
        memcpy(text, p, a);
        memcpy(text + a, sp + 1, n - a - 1);
        int c = control_text(text, n - 1);
        if (c >= 0) look[c] = false;
    }
}

bool tok_lists_merges(const io_model *m)
{
    const char *s = NULL;
    uint64_t n = 0;
    return io_meta_str(m, "tokenizer.ggml.model", &s, &n, NULL) == SL_OK && n == 6 &&
           memcmp(s, "gemma4", 6) == 0;
}

/* OK and *out untouched when the key is not there. */
static sl_status optional(sl_status st)
{
    return st == SL_NOTFOUND ? SL_OK : st;
}

static sl_status check_model(const io_model *m, tok *t, sl_err *err)
{
    const char *s = NULL;
    uint64_t n = 0;
    sl_status st = io_meta_str(m, "tokenizer.ggml.model", &s, &n, err);
    if (st == SL_NOTFOUND)
        return SL_FAIL(err, NOTFOUND, "the file has no tokenizer (tokenizer.ggml.model)");
    SL_TRY(st);
    t->chars = (n == 5 && memcmp(s, "llama", 5) == 0) || tok_lists_merges(m);
    if (t->chars || (n == 4 && memcmp(s, "gpt2", 4) == 0)) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "tokenizer.ggml.model \"%.*s\" is not supported: only gpt2, llama and gemma4 "
                   "are",
                   (int)BASE_MIN(n, 40), s);
}

static sl_status read_words(const io_model *m, tok *t, const struct io_array *words,
                            const bool look[], sl_err *err)
{
    struct io_array types = {0};
    bool gemma = tok_lists_merges(m);
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
        int c = control_text(p, n);
        if (c >= 0 && !look[c]) c = -1;
        if (c >= 0 && (type == TYPE_NORMAL || type == TYPE_USER_DEFINED)) {
            log_msg(LOG_WARN,
                    "the file calls token %llu (%s) plain text: it is taken for a control token",
                    (unsigned long long)i, control[c].text);
            type = TYPE_CONTROL;
        }
        /* Gemma's are marks of answers: a user's text has none, as in folders */
        if (gemma && type == TYPE_USER_DEFINED) type = TYPE_CONTROL;
        if (c >= 0 && control[c].end && type == TYPE_CONTROL) t->v[i].flags |= TOK_F_EOG;
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
            SL_TRY(t->chars ? tok_build_chars(t, (int64_t)i, p, n, err)
                            : tok_build_word(t, (int64_t)i, p, n, err));
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
        SL_TRY(tok_build_merge(t, (uint32_t)i, (struct tok_halves){p, a, sp + 1, n - a - 1}, false,
                               err));
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
    *id = (int32_t)v;
    return SL_OK;
}

static sl_status read_specials(const io_model *m, tok *t, sl_err *err)
{
    static const char *const row[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                         {"eos_token", "tokenizer.ggml.eos_token_id"},
                                         {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                         {"sep_token", "tokenizer.ggml.seperator_token_id"},
                                         {"pad_token", "tokenizer.ggml.padding_token_id"},
                                         {"cls_token", "tokenizer.ggml.cls_token_id"},
                                         {"mask_token", "tokenizer.ggml.mask_token_id"}};
    static const int32_t usual[] = {1, 2, 0}; /* of SentencePiece vocabularies that do not say */
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        int32_t id = -1;
        uint64_t v = 0;
        bool missing = io_meta_u64(m, row[i][1], &v, NULL) == SL_NOTFOUND;
        SL_TRY(read_id(m, t, row[i][1], &id, err));
        if (missing && t->chars && i < BASE_COUNT_OF(usual) && tok_is_special(t, usual[i]))
            id = usual[i];
        if (id >= 0 && tok_valid(t, id))
            SL_TRY(tok_build_special(t, row[i][0], t->v[id].p, t->v[id].n, id, err));
    }
    return SL_OK;
}

static sl_status read_ids(const io_model *m, tok *t, sl_err *err)
{
    static const char *const eog[] = {
        "tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.fim_pad_token_id",
        "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id"};
    struct io_array more = {0};
    bool front, back = false;
    SL_TRY(read_specials(m, t, err));
    for (int i = 0; i < BASE_COUNT_OF(eog); i++) {
        int32_t id = -1;
        SL_TRY(read_id(m, t, eog[i], &id, err));
        tok_build_eog(t, id);
        if (i == 0 && t->eos < 0) t->eos = id;
    }
    SL_TRY(optional(io_meta_array(m, "tokenizer.ggml.eog_token_ids", &more, err)));
    for (uint64_t i = 0; i < more.n; i++) { /* our own key: all of them */
        int64_t id = -1;
        if (!io_array_i64(&more, i, &id) || id < 0 || id >= t->n_vocab)
            return SL_FAIL(err, FORMAT, "tokenizer.ggml.eog_token_ids[%llu] is no token id",
                           (unsigned long long)i);
        tok_build_eog(t, id);
    }
    front = t->chars || (t->ignore_merges && t->bos >= 0 && /* Llama 3 without the key */
                         !strcmp(t->v[t->bos].p, "<|begin_of_text|>"));
    SL_TRY(optional(io_meta_bool(m, "tokenizer.ggml.add_bos_token", &front, err)));
    SL_TRY(optional(io_meta_bool(m, "tokenizer.ggml.add_eos_token", &back, err)));
    if (front && t->bos >= 0) SL_TRY(tok_build_around(t, true, t->bos, err));
    if (back && t->eos >= 0) SL_TRY(tok_build_around(t, false, t->eos, err));
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

static bool has_word(const struct io_array *words, const char *z)
{
    for (uint64_t i = 0; i < words->n; i++) {
        uint64_t n = 0;
        const char *p = io_array_str(words, i, &n);
        if (p && n == strlen(z) && memcmp(p, z, n) == 0) return true;
    }
    return false;
}

/* The rule of the model family, where the vocabulary or the architecture shows it, else
 * llama.cpp's. */
static const char *guess_rule(const io_model *m)
{
    struct io_array words = {0};
    const char *arch = NULL;
    uint64_t n = 0;
    if (io_meta_array(m, "tokenizer.ggml.tokens", &words, NULL) != SL_OK || words.type != IO_STR)
        return "default";
    bool bar = has_word(&words, "<|im_start|>") && has_word(&words, "<|endoftext|>");
    if (io_meta_str(m, "general.architecture", &arch, &n, NULL) != SL_OK) n = 0;
    if (has_word(&words, "<|begin_of_text|>") && words.n > 128000) return "llama-bpe";
    if (has_word(&words, "<" WIDE_BAR "begin" SP_MARK "of" SP_MARK "sentence" WIDE_BAR ">")) {
        if (words.n >= 128000) return "deepseek-v3";
        return words.n > 100000 ? "deepseek-llm" : "deepseek-coder";
    }
    if (bar && words.n > 150000) return "qwen2";
    if (n >= 5 && (memcmp(arch, "qwen2", 5) == 0 || memcmp(arch, "qwen3", 5) == 0)) return "qwen2";
    return "default";
}

static sl_status read_pre(const io_model *m, tok *t, sl_err *err)
{
    const char *pre = NULL, *rule;
    uint64_t n = 0;
    sl_status st = io_meta_str(m, "tokenizer.ggml.pre", &pre, &n, err);
    if (st != SL_OK && st != SL_NOTFOUND) return st;
    if (st == SL_OK && !(n == 7 && memcmp(pre, "default", 7) == 0))
        return tok_pre_named(t, pre, n, err);
    rule = guess_rule(m);
    log_msg(LOG_WARN,
            "the file does not say how its tokenizer splits text (tokenizer.ggml.pre%s): it is "
            "split as by \"%s\"",
            st == SL_OK ? " is default" : " is missing", rule);
    return tok_pre_named(t, rule, strlen(rule), err);
}

/* ---- SentencePiece ---- */
static sl_status read_spm(const io_model *m, tok *t, struct arena *a, uint64_t n, sl_err *err)
{
    struct io_array scores = {0};
    void *p = NULL;
    SL_TRY(optional(io_meta_array(m, "tokenizer.ggml.scores", &scores, err)));
    if (scores.n && scores.n != n)
        return SL_FAIL(err, FORMAT, "tokenizer.ggml.scores has %llu items, tokens has %llu",
                       (unsigned long long)scores.n, (unsigned long long)n);
    SL_TRY(mem_arena_array(a, n, sizeof(float), &p, err));
    float *score = p;
    SL_TRY(mem_arena_array(a, n, sizeof(bool), &p, err));
    bool *merged = p;
    for (uint64_t i = 0; i < n; i++) {
        double f = 0;
        if (scores.n && !io_array_f64(&scores, i, &f))
            return SL_FAIL(err, FORMAT, "tokenizer.ggml.scores is no array of numbers");
        score[i] = (float)f;
        merged[i] = (t->v[i].flags & TOK_F_WORD) != 0;
    }
    return tok_spm_merges(t, a, score, merged, err);
}

static sl_status set_spm(const io_model *m, tok *t, sl_err *err)
{
    bool prefix = !tok_lists_merges(m), squeeze = false;
    SL_TRY(optional(io_meta_bool(m, "tokenizer.ggml.add_space_prefix", &prefix, err)));
    SL_TRY(optional(io_meta_bool(m, "tokenizer.ggml.remove_extra_whitespaces", &squeeze, err)));
    t->spm.prefix = prefix ? TOK_PREPEND_ALWAYS : TOK_PREPEND_NEVER;
    t->spm.squeeze = squeeze;
    t->strip = squeeze ? -1 : prefix;
    t->fuse_unk = t->byte_words = t->byte_decode = true;
    SL_TRY(tok_build_mark(t, SP_MARK, err));
    return tok_norm_add(t, TOK_NORM_SPM, NULL, NULL, err);
}

/* Gemma's models end a call of tools with the mark that its answer begins with; folders have it
 * among the ends of generation. */
static void end_at_answers(tok *t)
{
    static const char mark[] = "<|tool_response>";
    for (int i = 0; i < t->n_vocab; i++) {
        size_t n = 0;
        const char *p = tok_valid(t, i) && (t->v[i].flags & TOK_F_ADDED) ? tok_text_of(t, i, &n)
                                                                         : NULL;
        if (p && n == sizeof mark - 1 && memcmp(p, mark, n) == 0) tok_build_eog(t, i);
    }
}

static sl_status open_spm(const io_model *m, tok *t, const struct io_array *words, sl_err *err)
{
    struct io_array merges = {0};
    bool look[BASE_COUNT_OF(control)], gemma = tok_lists_merges(m);
    struct arena a;
    SL_TRY(set_spm(m, t, err));
    if (gemma) SL_TRY(io_meta_array(m, "tokenizer.ggml.merges", &merges, err));
    SL_TRY(tok_build_begin(t, (int)words->n, merges.n, err));
    look_for(m, &merges, look);
    SL_TRY(read_words(m, t, words, look, err));
    SL_TRY(tok_build_index(t, true, err));
    mem_arena_init(&a, MEM_TOK, 0);
    sl_status st = gemma ? read_merges(t, &merges, err) : read_spm(m, t, &a, words->n, err);
    mem_arena_fini(&a);
    SL_TRY(st);
    SL_TRY(read_ids(m, t, err));
    if (gemma) end_at_answers(t);
    t->unk = tok_special_id(t, "unk_token");
    for (int i = 0; i < 256 && t->unk < 0; i++)
        if (t->fallback[i] == TOK_NONE)
            return SL_FAIL(err, UNSUPPORTED,
                           "a SentencePiece vocabulary with neither tokens for all bytes nor an "
                           "unknown token (tokenizer.ggml.unknown_token_id)");
    return SL_OK;
}

static sl_status open_bytes(const io_model *m, tok *t, const struct io_array *words, sl_err *err)
{
    struct io_array merges = {0};
    bool look[BASE_COUNT_OF(control)];
    SL_TRY(io_meta_array(m, "tokenizer.ggml.merges", &merges, err));
    SL_TRY(read_pre(m, t, err));
    SL_TRY(tok_build_begin(t, (int)words->n, merges.n, err));
    look_for(m, &merges, look);
    SL_TRY(read_words(m, t, words, look, err));
    SL_TRY(tok_build_index(t, true, err));
    SL_TRY(read_merges(t, &merges, err));
    return read_ids(m, t, err);
}

/* Tokens that are never drawn. */
static sl_status read_bans(const io_model *m, tok *t, sl_err *err)
{
    struct io_array list = {0};
    SL_TRY(optional(io_meta_array(m, "tokenizer.ggml.suppress_tokens", &list, err)));
    for (uint64_t i = 0; i < list.n; i++) {
        int64_t id = -1;
        if (!io_array_i64(&list, i, &id))
            return SL_FAIL(err, FORMAT, "tokenizer.ggml.suppress_tokens is no array of integers");
        tok_build_ban(t, id);
    }
    return SL_OK;
}

sl_status tok_gguf_open(const io_model *m, tok *t, sl_err *err)
{
    struct io_array words = {0};
    SL_TRY(check_model(m, t, err));
    SL_TRY(io_meta_array(m, "tokenizer.ggml.tokens", &words, err));
    if (words.n < 1 || words.n > TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "tokenizer.ggml.tokens has %llu items",
                       (unsigned long long)words.n);
    if (words.type != IO_STR)
        return SL_FAIL(err, FORMAT, "tokenizer.ggml.tokens is no array of strings");
    SL_TRY(t->chars ? open_spm(m, t, &words, err) : open_bytes(m, t, &words, err));
    SL_TRY(tok_keys_gguf(m, err));
    SL_TRY(read_bans(m, t, err));
    return read_templates(m, t, err);
}
