/* SPDX-License-Identifier: Apache-2.0 */
/* A folder's tokenizer, templates and sampling values as GGUF's keys: byte-level BPE as gpt2,
 * SentencePiece as llama. What those keys can not say is noted. */
#include <stdio.h>
#include <string.h>

#include "quant/quant_internal.h"
#include "tok/tok.h"

#define GGML "tokenizer.ggml."

static sl_status put_vocab(const tok *t, int n, io_out *out, sl_err *err)
{
    struct str s;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n, sizeof(int32_t), &p, err));
    int32_t *type = p;
    str_init(&s, MEM_MISC, 0);
    io_out_array(out, GGML "tokens", IO_STR, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        str_clear(&s);
        type[i] = tok_spell(t, i, &s);
        if (type[i] == TOK_TYPE_UNUSED) str_printf(&s, "[PAD%d]", i);
        io_out_elem_str(out, str_c(&s), s.n);
    }
    io_out_array(out, GGML "token_type", IO_I32, (uint64_t)n);
    for (int i = 0; i < n; i++)
        io_out_elem_i32(out, type[i]);
    sl_status st = str_status(&s, err);
    str_fini(&s);
    mem_free(type);
    return st;
}

static sl_status put_merges(const tok *t, struct arena *a, io_out *out, sl_err *err)
{
    struct tok_pair *pair = NULL;
    struct str s;
    int n = 0;
    SL_TRY(tok_pairs(t, a, &pair, &n, err));
    str_init(&s, MEM_MISC, 0);
    io_out_array(out, GGML "merges", IO_STR, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        str_clear(&s);
        (void)tok_spell(t, pair[i].left, &s);
        str_putc(&s, ' ');
        (void)tok_spell(t, pair[i].right, &s);
        io_out_elem_str(out, str_c(&s), s.n);
    }
    sl_status st = str_status(&s, err);
    str_fini(&s);
    return st;
}

/* Tokens by name that GGUF has a key for; the others are noted. */
static void put_named(const tok *t, struct quant_report *rep, io_out *out)
{
    static const char *const row[][2] = {
        {"bos_token", GGML "bos_token_id"},     {"eos_token", NULL},
        {"unk_token", GGML "unknown_token_id"}, {"sep_token", GGML "seperator_token_id"},
        {"pad_token", GGML "padding_token_id"}, {"cls_token", GGML "cls_token_id"},
        {"mask_token", GGML "mask_token_id"}};
    struct tok_special s;
    for (int i = 0; tok_special_get(t, i, &s); i++) {
        int k = 0;
        while (k < BASE_COUNT_OF(row) && strcmp(row[k][0], s.name) != 0)
            k++;
        if (k < BASE_COUNT_OF(row) && s.id >= 0) {
            if (row[k][1]) io_out_u32(out, row[k][1], (uint32_t)s.id);
            continue;
        }
        quant_note(rep, "tokenizer_config.json: %.40s \"%.60s\" %s", s.name, s.text,
                   s.id < 0 ? "is no token: GGUF holds ids only"
                            : "has no key in GGUF: a template that asks for it gets nothing");
    }
}

/* End tokens: other readers know three keys; one that this program reads has all of them. */
static sl_status put_ends(const tok *t, struct arena *a, struct quant_report *rep, io_out *out,
                          sl_err *err)
{
    static const char *const key[] = {GGML "eos_token_id", GGML "eot_token_id",
                                      GGML "eom_token_id"};
    void *p = NULL;
    int n = 0;
    SL_TRY(mem_arena_array(a, (size_t)tok_n_vocab(t) + 1, sizeof(int32_t), &p, err));
    int32_t *id = p;
    if (tok_eos(t) >= 0) id[n++] = tok_eos(t);
    for (int i = 0; i < tok_n_vocab(t); i++)
        if (i != tok_eos(t) && tok_is_eog(t, i)) id[n++] = i;
    for (int i = 0; i < BASE_MIN(n, 3); i++)
        io_out_u32(out, key[i], (uint32_t)id[i]);
    io_out_array(out, GGML "eog_token_ids", IO_I32, (uint64_t)n);
    for (int i = 0; i < n; i++)
        io_out_elem_i32(out, id[i]);
    if (n > 3)
        quant_note(rep,
                   "%d end tokens: eos, eot and eom hold three; all are in " GGML
                   "eog_token_ids, which other programs do not read",
                   n);
    return SL_OK;
}

/* Tokens that are never drawn. */
static void put_bans(const tok *t, io_out *out)
{
    int n = 0;
    for (int i = 0; i < tok_n_vocab(t); i++)
        n += tok_is_banned(t, i);
    if (n) io_out_array(out, GGML "suppress_tokens", IO_I32, (uint64_t)n);
    for (int i = 0; i < tok_n_vocab(t); i++)
        if (tok_is_banned(t, i)) io_out_elem_i32(out, i);
}

/* Does text get just this token on one side? */
static sl_status put_around(const tok *t, bool front, struct quant_report *rep, io_out *out,
                            sl_err *err)
{
    struct tok_ids ids = {0};
    int32_t want = front ? tok_bos(t) : tok_eos(t);
    bool has = front ? tok_add_bos(t) : tok_add_eos(t);
    if (has) SL_TRY(tok_encode(t, "", 0, front ? TOK_BOS : TOK_EOS, &ids, err));
    bool one = ids.n == 1 && ids.id[0] == want;
    io_out_bool(out, front ? GGML "add_bos_token" : GGML "add_eos_token", has && one);
    if (has && !one)
        quant_note(rep,
                   "tokenizer: the post-processor puts %d tokens %s text: GGUF can say %s only",
                   ids.n, front ? "before" : "after", front ? "BOS" : "EOS");
    mem_free(ids.id);
    return SL_OK;
}

static void note_rules(const tok *t, struct quant_report *rep)
{
    static const char *const name[] = {"lstrip", "rstrip", "single_word", "normalized"};
    for (int k = 0; k < 4; k++) {
        int n = 0, first = -1, len = 0;
        for (int i = 0; i < tok_n_vocab(t); i++) {
            if (!(tok_rules_of(t, i) >> k & 1)) continue;
            if (n++ == 0) first = i;
        }
        if (n)
            quant_note(rep, "tokenizer: %s of %d added token%s (%.60s): GGUF can not say it",
                       name[k], n, n == 1 ? "" : "s", tok_bytes(t, first, &len));
    }
}

static void put_templates(const tok *t, io_out *out)
{
    const struct tok_named *k = NULL;
    int n = 0;
    for (int i = 0; (k = tok_template_at(t, i)); i++) {
        char key[200];
        bool plain = !*k->name || strcmp(k->name, "default") == 0;
        snprintf(key, sizeof key, "tokenizer.chat_template%s%.150s", plain ? "" : ".",
                 plain ? "" : k->name);
        io_out_str(out, key, k->text, k->n);
        n += !plain;
    }
    if (!n) return;
    io_out_array(out, "tokenizer.chat_templates", IO_STR, (uint64_t)n);
    for (int i = 0; (k = tok_template_at(t, i)); i++)
        if (*k->name && strcmp(k->name, "default") != 0)
            io_out_elem_str(out, k->name, strlen(k->name));
}

/* generation_config.json: what general.sampling has a key for; the rest that is no token id is
 * noted. */
void quant_put_sampling(const struct quant_plan *p, io_out *out)
{
    static const char *const row[][2] = {{"temperature", "temp"},
                                         {"top_k", "top_k"},
                                         {"top_p", "top_p"},
                                         {"min_p", "min_p"},
                                         {"repetition_penalty", "penalty_repeat"}};
    static const char *const silent[] = {
        "transformers_version", "_from_model_config", "bos_token_id",   "eos_token_id",
        "pad_token_id",         "do_sample",          "suppress_tokens"};
    const struct json *g = io_generation_config(p->src), *sample = text_json_get(g, "do_sample");
    bool greedy = sample && sample->kind == JSON_BOOL_K && !sample->b;
    struct quant_names left = {p->rep, "generation_config.json: ", ": no key in GGUF", ""};
    for (const struct json *m = g ? g->child : NULL; m; m = m->next) {
        int k = 0, q = 0;
        char key[64];
        while (k < BASE_COUNT_OF(row) && strcmp(row[k][0], m->key) != 0)
            k++;
        while (q < BASE_COUNT_OF(silent) && strcmp(silent[q], m->key) != 0)
            q++;
        if (m->kind == JSON_NULL_K || q < BASE_COUNT_OF(silent) || (greedy && k == 0)) continue;
        if (k < BASE_COUNT_OF(row) && (m->kind == JSON_INT_K || m->kind == JSON_REAL_K)) {
            snprintf(key, sizeof key, "general.sampling.%s", row[k][1]);
            if (k == 1)
                io_out_u32(out, key,
                           (uint32_t)BASE_MAX(m->kind == JSON_INT_K ? m->i : (int64_t)m->f, 0));
            else
                io_out_f32(out, key, (float)m->f);
            continue;
        }
        quant_note_name(&left, m->key);
    }
    if (greedy) io_out_f32(out, "general.sampling.temp", 0.0f);
    quant_note_name(&left, NULL);
}

/* Does text get a space in front? */
static sl_status puts_space(const tok *t, bool *out, sl_err *err)
{
    struct tok_ids ids = {0};
    int n = 0;
    SL_TRY(tok_encode(t, "a", 1, 0, &ids, err));
    const char *s = ids.n ? tok_bytes(t, ids.id[0], &n) : NULL;
    *out = s && n && *s == ' ';
    mem_free(ids.id);
    return SL_OK;
}

/* Are runs of spaces one for it? */
static sl_status squeezes(const tok *t, bool *out, sl_err *err)
{
    struct tok_ids a = {0}, b = {0};
    sl_status st = tok_encode(t, "a a", 3, 0, &a, err);
    if (!st) st = tok_encode(t, "a   a", 5, 0, &b, err);
    *out = !st && a.n == b.n;
    mem_free(a.id);
    mem_free(b.id);
    return st;
}

/* A SentencePiece vocabulary: scores instead of merges, or beside these, as Gemma 4's files have
 * it. */
static sl_status put_scored(const tok *t, int n, bool gemma, io_out *out, struct arena *a,
                            sl_err *err)
{
    float *score = NULL;
    bool space = false, squeeze = false;
    SL_TRY(puts_space(t, &space, err));
    SL_TRY(squeezes(t, &squeeze, err));
    SL_TRY(tok_scores(t, a, &score, err));
    io_out_str(out, GGML "model", gemma ? "gemma4" : "llama", gemma ? 6 : 5);
    if (!gemma) io_out_str(out, GGML "pre", "default", 7);
    SL_TRY(put_vocab(t, n, out, err));
    io_out_array(out, GGML "scores", IO_F32, (uint64_t)n);
    for (int i = 0; i < n; i++)
        io_out_elem_f32(out, i < tok_n_vocab(t) ? score[i] : -1e9f);
    if (gemma) SL_TRY(put_merges(t, a, out, err));
    io_out_bool(out, GGML "add_space_prefix", space);
    io_out_bool(out, GGML "remove_extra_whitespaces", squeeze);
    return SL_OK;
}

static sl_status put_merged(const tok *t, int n, struct arena *a, io_out *out, sl_err *err)
{
    char pre[64];
    SL_TRY(tok_rule_name(t, pre, sizeof pre, err));
    io_out_str(out, GGML "model", "gpt2", 4);
    io_out_str(out, GGML "pre", pre, strlen(pre));
    SL_TRY(put_vocab(t, n, out, err));
    return put_merges(t, a, out, err);
}

static sl_status to_gguf(const struct quant_plan *p, const tok *t, struct arena *a, io_out *out,
                         sl_err *err)
{
    int n = BASE_MAX(tok_n_vocab(t), p->cfg.n_vocab);
    bool scored = false, gemma = p->has_cfg && p->cfg.sandwich;
    SL_TRY(tok_is_scored(t, &scored, err));
    SL_TRY(scored ? put_scored(t, n, gemma, out, a, err) : put_merged(t, n, a, out, err));
    put_named(t, p->rep, out);
    SL_TRY(put_ends(t, a, p->rep, out, err));
    put_bans(t, out);
    SL_TRY(put_around(t, true, p->rep, out, err));
    SL_TRY(put_around(t, false, p->rep, out, err));
    note_rules(t, p->rep);
    if (tok_splits_special(t))
        quant_note(p->rep, "tokenizer_config.json: split_special_tokens: no key in GGUF");
    put_templates(t, out);
    return SL_OK;
}

sl_status quant_tok_to_gguf(const struct quant_plan *p, io_out *out, sl_err *err)
{
    struct arena a;
    tok *t = NULL;
    sl_status st = tok_open(p->src, &t, err);
    if (st == SL_NOTFOUND) return SL_OK; /* a model without a tokenizer stays one */
    SL_TRY(st);
    mem_arena_init(&a, MEM_MISC, 0);
    st = to_gguf(p, t, &a, out, err);
    tok_close(t);
    mem_arena_fini(&a);
    return st;
}
