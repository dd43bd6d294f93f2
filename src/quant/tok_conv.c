/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file's tokenizer, templates and sampling values as a folder's files: tokenizer.json,
 * tokenizer_config.json, generation_config.json. Byte-level BPE, and words of code points whose
 * merges are listed (Gemma 4's). tok_gguf.c is the other way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"
#include "quant/quant_internal.h"
#include "text/keys.h"
#include "tok/tok.h"

static void put_bytelevel(struct json_w *w)
{
    text_jw_obj(w);
    text_jw_key_strz(w, "type", "ByteLevel");
    text_jw_key_bool(w, "add_prefix_space", false);
    text_jw_key_bool(w, "trim_offsets", true);
    text_jw_key_bool(w, "use_regex", false);
    text_jw_obj_end(w);
}

/* ---- words of code points: spaces are marks, and what has no word is bytes ---- */
#define SP_MARK "\xe2\x96\x81"

static void put_replace(struct json_w *w, const char *from, const char *to)
{
    text_jw_obj(w);
    text_jw_key_strz(w, "type", "Replace");
    text_jw_key(w, "pattern");
    text_jw_obj(w);
    text_jw_key_strz(w, "String", from);
    text_jw_obj_end(w);
    text_jw_key_strz(w, "content", to);
    text_jw_obj_end(w);
}

static void put_marked_pre(struct json_w *w)
{
    text_jw_key(w, "pre_tokenizer");
    text_jw_obj(w);
    text_jw_key_strz(w, "type", "Split");
    text_jw_key(w, "pattern");
    text_jw_obj(w);
    text_jw_key_strz(w, "String", " ");
    text_jw_obj_end(w);
    text_jw_key_strz(w, "behavior", "MergedWithPrevious");
    text_jw_key_bool(w, "invert", false);
    text_jw_obj_end(w);
}

static void put_marked_decoder(struct json_w *w)
{
    static const char *const last[] = {"ByteFallback", "Fuse"};
    text_jw_obj(w);
    text_jw_key_strz(w, "type", "Sequence");
    text_jw_key(w, "decoders");
    text_jw_arr(w);
    put_replace(w, SP_MARK, " ");
    for (int i = 0; i < 2; i++) {
        text_jw_obj(w);
        text_jw_key_strz(w, "type", last[i]);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

/* ---- both ---- */

static void put_pre(struct json_w *w, const struct tok_rule *r)
{
    text_jw_key(w, "pre_tokenizer");
    text_jw_obj(w);
    text_jw_key_strz(w, "type", "Sequence");
    text_jw_key(w, "pretokenizers");
    text_jw_arr(w);
    for (int i = 0; i < 7 && r->step[i]; i++) {
        text_jw_obj(w);
        text_jw_key_strz(w, "type", "Split");
        text_jw_key(w, "pattern");
        text_jw_obj(w);
        text_jw_key_strz(w, "Regex", r->step[i]);
        text_jw_obj_end(w);
        text_jw_key_strz(w, "behavior", "Isolated");
        text_jw_key_bool(w, "invert", false);
        text_jw_obj_end(w);
    }
    put_bytelevel(w);
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

static void put_added(struct json_w *w, const struct io_array *words, const tok *t)
{
    text_jw_key(w, "added_tokens");
    text_jw_arr(w);
    for (uint64_t i = 0; i < words->n; i++) {
        enum tok_type type = tok_spell(t, (int32_t)i, NULL);
        uint64_t n = 0;
        bool special = type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN;
        if (!special && type != TOK_TYPE_USER) continue;
        const char *s = io_array_str(words, i, &n);
        text_jw_obj(w);
        text_jw_key(w, "id");
        text_jw_int(w, (int64_t)i);
        text_jw_key(w, "content");
        text_jw_str(w, s, n);
        text_jw_key_bool(w, "single_word", false);
        text_jw_key_bool(w, "lstrip", false);
        text_jw_key_bool(w, "rstrip", false);
        text_jw_key_bool(w, "normalized", false);
        text_jw_key_bool(w, "special", special);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

/* What says how words are put together; unk: NULL, or of words of code points. */
static void put_kind(struct json_w *w, const char *unk, bool ignore_merges)
{
    text_jw_key_strz(w, "type", "BPE");
    text_jw_key_null(w, "dropout");
    if (unk)
        text_jw_key_strz(w, "unk_token", unk);
    else
        text_jw_key_null(w, "unk_token");
    text_jw_key_null(w, "continuing_subword_prefix");
    text_jw_key_null(w, "end_of_word_suffix");
    text_jw_key_bool(w, "fuse_unk", unk != NULL);
    text_jw_key_bool(w, "byte_fallback", unk != NULL);
    text_jw_key_bool(w, "ignore_merges", ignore_merges);
}

static sl_status put_model(struct json_w *w, const struct io_array *words, const tok *t,
                           const struct io_array *merges, sl_err *err)
{
    char key[1024];
    text_jw_key(w, "vocab");
    text_jw_obj(w);
    for (uint64_t i = 0; i < words->n; i++) {
        uint64_t n = 0;
        const char *s = io_array_str(words, i, &n);
        if (tok_spell(t, (int32_t)i, NULL) == TOK_TYPE_UNUSED)
            continue; /* added tokens too: one that is no word gets the next free id from
                         tokenizers, not its own */
        if (n >= sizeof key || memchr(s, 0, n))
            return SL_FAIL(err, UNSUPPORTED, "tokenizer.ggml.tokens[%llu]: %llu bytes: too long",
                           (unsigned long long)i, (unsigned long long)n);
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

static void put_piece(struct json_w *w, const char *kind, const char *id)
{
    text_jw_obj(w);
    text_jw_key(w, kind);
    text_jw_obj(w);
    text_jw_key_strz(w, "id", id);
    text_jw_key(w, "type_id");
    text_jw_int(w, 0);
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

static void put_special(struct json_w *w, const char *text, int32_t id)
{
    text_jw_key(w, text);
    text_jw_obj(w);
    text_jw_key_strz(w, "id", text);
    text_jw_key(w, "ids");
    text_jw_arr(w);
    text_jw_int(w, id);
    text_jw_arr_end(w);
    text_jw_key(w, "tokens");
    text_jw_arr(w);
    text_jw_strz(w, text);
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

/* BOS and EOS around raw text, where the file wishes them. */
static void put_around(struct json_w *w, const tok *t)
{
    const char *bos = tok_add_bos(t) ? tok_bos_text(t) : NULL,
               *eos = tok_add_eos(t) ? tok_eos_text(t) : NULL;
    text_jw_key(w, "post_processor");
    if (!bos && !eos) {
        text_jw_null(w);
        return;
    }
    text_jw_obj(w);
    text_jw_key_strz(w, "type", "TemplateProcessing");
    for (int pair = 0; pair < 2; pair++) {
        text_jw_key(w, pair ? "pair" : "single");
        text_jw_arr(w);
        for (int i = 0; i <= pair; i++) {
            if (bos) put_piece(w, "SpecialToken", bos);
            put_piece(w, "Sequence", i ? "B" : "A");
            if (eos) put_piece(w, "SpecialToken", eos);
        }
        text_jw_arr_end(w);
    }
    text_jw_key(w, "special_tokens");
    text_jw_obj(w);
    if (bos) put_special(w, bos, tok_bos(t));
    if (eos && tok_eos(t) != tok_bos(t)) put_special(w, eos, tok_eos(t));
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

/* The unknown token of words of code points; NULL: they are of bytes. */
static const char *unk_text(const io_model *m, const tok *t)
{
    struct tok_special s;
    for (int i = 0; tok_lists_merges(m) && tok_special_get(t, i, &s); i++)
        if (strcmp(s.name, "unk_token") == 0) return s.text;
    return tok_lists_merges(m) ? "<unk>" : NULL;
}

static sl_status tokenizer_json(const io_model *m, const tok *t, const struct tok_rule *r,
                                struct str *out, sl_err *err)
{
    struct io_array words = {0}, merges = {0};
    struct json_w w;
    SL_TRY(io_meta_array(m, "tokenizer.ggml.tokens", &words, err));
    SL_TRY(io_meta_array(m, "tokenizer.ggml.merges", &merges, err));
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "version", "1.0");
    text_jw_key_null(&w, "truncation");
    text_jw_key_null(&w, "padding");
    put_added(&w, &words, t);
    text_jw_key(&w, "normalizer");
    if (tok_lists_merges(m)) {
        put_replace(&w, " ", SP_MARK);
    } else if (r->nfc) {
        text_jw_obj(&w);
        text_jw_key_strz(&w, "type", "NFC");
        text_jw_obj_end(&w);
    } else {
        text_jw_null(&w);
    }
    if (tok_lists_merges(m))
        put_marked_pre(&w);
    else
        put_pre(&w, r);
    put_around(&w, t);
    text_jw_key(&w, "decoder");
    if (tok_lists_merges(m))
        put_marked_decoder(&w);
    else
        put_bytelevel(&w);
    text_jw_key(&w, "model");
    text_jw_obj(&w);
    put_kind(&w, unk_text(m, t), r->ignore_merges);
    SL_TRY(put_model(&w, &words, t, &merges, err));
    text_jw_obj_end(&w);
    return str_status(out, err);
}

static void put_templates(const tok *t, struct json_w *w)
{
    const struct tok_named *k = tok_template_at(t, 0);
    if (!k) return;
    text_jw_key(w, "chat_template");
    if (!tok_template_at(t, 1) && (!*k->name || strcmp(k->name, "default") == 0)) {
        text_jw_str(w, k->text, k->n);
        return;
    }
    text_jw_arr(w);
    for (int i = 0; (k = tok_template_at(t, i)); i++) {
        text_jw_obj(w);
        text_jw_key_strz(w, "name", *k->name ? k->name : "default");
        text_jw_key(w, "template");
        text_jw_str(w, k->text, k->n);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

/* Would a folder make a special token of an ordinary word by giving it this name? */
static bool is_ordinary(const tok *t, const struct tok_special *s)
{
    bool around = strcmp(s->name, "bos_token") == 0 || strcmp(s->name, "eos_token") == 0;
    return !around && s->id >= 0 && tok_spell(t, s->id, NULL) == TOK_TYPE_NORMAL;
}

static sl_status tokenizer_config(const struct quant_plan *p, const tok *t, struct str *out,
                                  sl_err *err)
{
    struct json_w w;
    struct tok_special s;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    for (int i = 0; tok_special_get(t, i, &s); i++) {
        if (is_ordinary(t, &s))
            quant_note(p->rep, "%.40s is the ordinary word \"%.60s\": a folder can not say that",
                       s.name, s.text);
        else
            text_jw_key_strz(&w, s.name, s.text);
    }
    text_jw_key_bool(&w, "add_bos_token", tok_add_bos(t));
    text_jw_key_bool(&w, "add_eos_token", tok_add_eos(t));
    text_jw_key_bool(&w, "clean_up_tokenization_spaces", false);
    put_templates(t, &w);
    text_jw_obj_end(&w);
    return str_status(out, err);
}

/* Tokens that are never drawn. */
static void put_bans(const tok *t, struct json_w *w)
{
    bool any = false;
    for (int i = 0; i < tok_n_vocab(t); i++) {
        if (!tok_is_banned(t, i)) continue;
        if (!any) text_jw_key(w, "suppress_tokens");
        if (!any) text_jw_arr(w);
        any = true;
        text_jw_int(w, i);
    }
    if (any) text_jw_arr_end(w);
}

/* End tokens, and what general.sampling says: a temperature of 0 is do_sample false. */
static sl_status generation_config(const io_model *m, const tok *t, struct str *out, sl_err *err)
{
    static const char *const row[][2] = {{"temp", "temperature"},
                                         {"top_k", "top_k"},
                                         {"top_p", "top_p"},
                                         {"min_p", "min_p"},
                                         {"penalty_repeat", "repetition_penalty"}};
    struct json_w w;
    bool any = false, greedy = false;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    if (tok_bos(t) >= 0) {
        text_jw_key(&w, "bos_token_id");
        text_jw_int(&w, tok_bos(t));
    }
    text_jw_key(&w, "eos_token_id");
    text_jw_arr(&w);
    if (tok_eos(t) >= 0) text_jw_int(&w, tok_eos(t));
    for (int i = 0; i < tok_n_vocab(t); i++)
        if (i != tok_eos(t) && tok_is_eog(t, i)) text_jw_int(&w, i);
    text_jw_arr_end(&w);
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        char key[64];
        double v = 0;
        snprintf(key, sizeof key, "general.sampling.%s", row[i][0]);
        if (io_meta_f64(m, key, &v, NULL) != SL_OK) continue;
        any = true;
        greedy = greedy || (i == 0 && v == 0);
        if (i == 0 && v == 0) continue;
        text_jw_key(&w, row[i][1]);
        if (i == 1)
            text_jw_int(&w, (int64_t)v);
        else
            text_jw_real(&w, v, 7);
    }
    if (any) text_jw_key_bool(&w, "do_sample", !greedy);
    put_bans(t, &w);
    text_jw_obj_end(&w);
    return str_status(out, err);
}

/* Does a folder have a place for a key of a GGUF file, or does it say how the file is made? */
static bool has_place(const char *key, const char *arch, size_t n_arch)
{
    static const char names[] =
        "general.architecture|general.alignment|general.file_type|general.quantization_version|"
        "general.sampling.temp|general.sampling.top_k|general.sampling.top_p|"
        "general.sampling.min_p|general.sampling.penalty_repeat|split.*|"
        "tokenizer.chat_template*|tokenizer.ggml.model|tokenizer.ggml.pre|tokenizer.ggml.tokens|"
        "tokenizer.ggml.token_type*|tokenizer.ggml.merges|tokenizer.ggml.scores|"
        "tokenizer.ggml.added_tokens|tokenizer.ggml.add_*|tokenizer.ggml.remove_extra_whitespaces|"
        "tokenizer.ggml.bos_token_id|tokenizer.ggml.eos_token_id|tokenizer.ggml.unknown_token_id|"
        "tokenizer.ggml.seperator_token_id|tokenizer.ggml.padding_token_id|"
        "tokenizer.ggml.cls_token_id|tokenizer.ggml.mask_token_id|tokenizer.ggml.eot_token_id|"
        "tokenizer.ggml.eom_token_id|tokenizer.ggml.eog_token_ids|tokenizer.ggml.suppress_tokens";
    return (strncmp(key, arch, n_arch) == 0 && key[n_arch] == '.') || text_key_fits(names, key);
}

/* What of a GGUF file's keys no file of a folder says: those that describe it by their number. */
static sl_status note_keys(const struct quant_plan *p, sl_err *err)
{
    struct quant_names left = {p->rep, "GGUF keys that a folder has no place for: ", "", ""};
    const char *arch = "", *first = NULL;
    uint64_t n_arch = 0;
    int n = 0;
    SL_TRY(io_meta_str(p->src, "general.architecture", &arch, &n_arch, err));
    for (int i = 0; i < io_n_meta(p->src); i++) {
        const char *key = io_meta_key(p->src, i);
        bool tells = strncmp(key, "general.", 8) == 0 && strncmp(key, "general.sampling.", 17) != 0;
        if (has_place(key, arch, (size_t)n_arch)) continue;
        if (!tells) quant_note_name(&left, key);
        if (tells && n++ == 0) first = key;
    }
    quant_note_name(&left, NULL);
    if (n == 1) quant_note(p->rep, "%.100s: a folder has no place for it", first);
    if (n > 1)
        quant_note(p->rep, "%.100s and %d other general keys: a folder has no place for them",
                   first, n - 1);
    return SL_OK;
}

/* The rule by which t splits text, whatever its file calls it. */
static sl_status find_rule(const io_model *m, const tok *t, struct tok_rule *r, sl_err *err)
{
    char name[64], key[72];
    bool scored = false;
    *r = (struct tok_rule){0};
    if (tok_lists_merges(m)) return SL_OK;
    SL_TRY(tok_is_scored(t, &scored, err));
    if (scored)
        return SL_FAIL(err, UNSUPPORTED,
                       "a SentencePiece vocabulary can not be written into a folder: give a name "
                       "that ends in .gguf");
    SL_TRY(tok_rule_name(t, name, sizeof name, err));
    snprintf(key, sizeof key, " %s ", name);
    for (int i = 0; tok_rule_get(i, r); i++)
        if (strstr(r->names, key)) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "the rule %s is not known", name);
}

sl_status quant_tok_to_hf(const struct quant_plan *p, const char *dir, sl_err *err)
{
    static const char *const name[] = {"tokenizer.json", "tokenizer_config.json",
                                       "generation_config.json"};
    struct tok_rule r;
    struct str s;
    tok *t = NULL;
    char path[4400];
    sl_status st = tok_open(p->src, &t, err);
    if (st == SL_NOTFOUND) return SL_OK; /* none there, none here */
    SL_TRY(st);
    str_init(&s, MEM_MISC, 0);
    st = find_rule(p->src, t, &r, err);
    if (st && st != SL_NOMEM) status_prefix(err, "%s", io_path(p->src));
    for (int i = 0; i < 3 && !st; i++) {
        str_clear(&s);
        st = i == 0   ? tokenizer_json(p->src, t, &r, &s, err)
             : i == 1 ? tokenizer_config(p, t, &s, err)
                      : generation_config(p->src, t, &s, err);
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        if (!st) st = os_write_file(path, str_c(&s), s.n, err);
    }
    if (!st) st = note_keys(p, err);
    str_fini(&s);
    tok_close(t);
    return st;
}
