/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a tokenizer, its added tokens, and looking tokens up. */
#include "tok/tok.h"

#include <stdio.h>
#include <string.h>

#include "tok/tok_internal.h"

static sl_status new_tok(tok **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_TOK, 1, sizeof(tok), &p, err));
    tok *t = p;
    mem_arena_init(&t->a, MEM_TOK, 0);
    t->bos = t->eos = -1;
    *out = t;
    return SL_OK;
}

static sl_status finish(sl_status st, tok *t, tok **out, sl_err *err)
{
    if (st == SL_OK) st = tok_build_end(t, err);
    if (st == SL_OK)
        *out = t;
    else
        tok_close(t);
    return st;
}

sl_status tok_open_files(const struct tok_files *f, tok **out, sl_err *err)
{
    tok *t = NULL;
    SL_TRY(new_tok(&t, err));
    return finish(tok_hf_open(f, t, err), t, out, err);
}

/* additional_chat_templates/NAME.jinja of a folder. */
static sl_status folder_templates(const io_model *m, struct arena *a, struct tok_files *f,
                                  sl_err *err)
{
    static const char dir[] = "additional_chat_templates/";
    void *p = NULL;
    SL_TRY(mem_arena_array(a, TOK_MAX_TEMPLATE, sizeof *f->tmpl, &p, err));
    struct tok_named *v = p;
    const char *name;
    f->tmpl = v;
    for (int i = 0; (name = io_text_name(m, i)) && f->n_tmpl < TOK_MAX_TEMPLATE; i++) {
        size_t k = sizeof dir - 1, len = strlen(name);
        char *bare = NULL;
        uint64_t n = 0;
        if (strncmp(name, dir, k) != 0 || len < k + sizeof ".jinja" - 1) continue;
        SL_TRY(mem_arena_str(a, name + k, len - k - (sizeof ".jinja" - 1), &bare, err));
        const char *text = io_text_file(m, name, &n);
        v[f->n_tmpl++] = (struct tok_named){bare, text, (size_t)n};
    }
    return SL_OK;
}

static sl_status open_folder(const io_model *m, tok **out, sl_err *err)
{
    struct tok_files f = {.config = io_config(m), .generation_config = io_generation_config(m)};
    struct arena a;
    const struct {
        const char *name, **p;
        size_t *n;
    } file[] = {{"tokenizer.json", &f.tokenizer_json, &f.n_tokenizer_json},
                {"tokenizer_config.json", &f.tokenizer_config, &f.n_tokenizer_config},
                {"special_tokens_map.json", &f.special_tokens_map, &f.n_special_tokens_map},
                {"added_tokens.json", &f.added_tokens, &f.n_added_tokens},
                {"tokenizer.model", &f.tokenizer_model, &f.n_tokenizer_model},
                {"tiktoken.model", &f.tiktoken_model, &f.n_tiktoken_model},
                {"vocab.json", &f.vocab_json, &f.n_vocab_json},
                {"merges.txt", &f.merges_txt, &f.n_merges_txt},
                {"chat_template.json", &f.chat_template_json, &f.n_chat_template_json},
                {"chat_template.jinja", &f.chat_template_jinja, &f.n_chat_template_jinja}};
    for (int i = 0; i < BASE_COUNT_OF(file); i++) {
        uint64_t n = 0;
        *file[i].p = io_text_file(m, file[i].name, &n);
        *file[i].n = (size_t)n;
    }
    mem_arena_init(&a, MEM_TOK, 0);
    sl_status st = folder_templates(m, &a, &f, err);
    if (!st) st = tok_open_files(&f, out, err);
    mem_arena_fini(&a);
    return st;
}

sl_status tok_open(const io_model *m, tok **out, sl_err *err)
{
    tok *t = NULL;
    if (io_model_kind(m) == IO_HF) return open_folder(m, out, err);
    SL_TRY(new_tok(&t, err));
    return finish(tok_gguf_open(m, t, err), t, out, err);
}

void tok_close(tok *t)
{
    if (!t) return;
    for (int i = 0; i < t->n_step; i++)
        text_regex_close(t->step[i].re);
    tok_trie_fini(&t->raw);
    tok_trie_fini(&t->norm);
    mem_free(t->v);
    mem_free(t->slot);
    mem_free(t->merge);
    mem_free(t->rank_id);
    mem_arena_fini(&t->a);
    mem_free(t);
}

size_t tok_max_piece(const tok *t)
{
    return t->max_piece;
}

int tok_n_vocab(const tok *t)
{
    return t->n_vocab;
}

const char *tok_bytes(const tok *t, int32_t id, int *n)
{
    *n = tok_valid(t, id) ? (int)t->v[id].n : 0;
    return *n || tok_valid(t, id) ? t->v[id].p : NULL;
}

bool tok_is_special(const tok *t, int32_t id)
{
    return tok_valid(t, id) && (t->v[id].flags & TOK_F_SPECIAL);
}

bool tok_is_chars(const tok *t)
{
    return t->chars;
}

bool tok_is_eog(const tok *t, int32_t id)
{
    return tok_valid(t, id) && (t->v[id].flags & TOK_F_EOG);
}

bool tok_is_banned(const tok *t, int32_t id)
{
    return tok_valid(t, id) && (t->v[id].flags & TOK_F_BANNED);
}

int32_t tok_bos(const tok *t)
{
    return t->bos;
}
int32_t tok_eos(const tok *t)
{
    return t->eos;
}
bool tok_add_bos(const tok *t)
{
    return t->n_front > 0;
}
bool tok_add_eos(const tok *t)
{
    return t->n_back > 0;
}

bool tok_splits_special(const tok *t)
{
    return t->split_special;
}

bool tok_special_get(const tok *t, int i, struct tok_special *out)
{
    if (i < 0 || i >= t->n_special) return false;
    *out = t->special[i];
    return true;
}

static const char *special_text(const tok *t, const char *name)
{
    for (int i = 0; i < t->n_special; i++)
        if (strcmp(t->special[i].name, name) == 0) return t->special[i].text;
    return NULL;
}

const char *tok_text_of(const tok *t, int32_t id, size_t *n)
{
    const struct tok_entry *e = &t->v[id];
    if (n) *n = t->chars ? e->n_key : e->n;
    return t->chars ? e->key : e->p;
}

int32_t tok_find(const tok *t, const char *text)
{
    size_t n = strlen(text), k = 0;
    for (int id = 0; id < t->n_vocab; id++) {
        if (!(t->v[id].flags & TOK_F_ADDED)) continue;
        const char *p = tok_text_of(t, id, &k);
        if (k == n && memcmp(p, text, n) == 0) return id;
    }
    uint32_t id = tok_word_find(t, text, n);
    return id == TOK_NONE ? -1 : (int32_t)id;
}

const struct tok_named *tok_template_find(const tok *t, const char *name)
{
    const char *want = strcmp(name, "default") == 0 ? "" : name;
    for (int i = 0; i < t->n_tmpl; i++) {
        const char *have = strcmp(t->tmpl[i].name, "default") == 0 ? "" : t->tmpl[i].name;
        if (strcmp(have, want) == 0) return &t->tmpl[i];
    }
    return NULL;
}

const struct tok_named *tok_template_at(const tok *t, int i)
{
    return i >= 0 && i < t->n_tmpl ? &t->tmpl[i] : NULL;
}

sl_status tok_template_for(const tok *t, bool tools, const char **text, size_t *n, sl_err *err)
{
    const struct tok_named *hit = tools ? tok_template_find(t, "tool_use") : NULL;
    char names[120] = "";
    if (!hit) hit = tok_template_find(t, "");
    *text = hit ? hit->text : NULL;
    *n = hit ? hit->n : 0;
    if (hit || t->n_tmpl == 0) return SL_OK;
    for (int i = 0; i < t->n_tmpl; i++) {
        size_t k = strlen(names);
        snprintf(names + k, sizeof names - k, "%s%s", i ? ", " : "", t->tmpl[i].name);
    }
    return SL_FAIL(err, NOTFOUND,
                   "the model has several chat templates (%s) and none is the default one", names);
}

const char *tok_bos_text(const tok *t)
{
    return special_text(t, "bos_token");
}
const char *tok_eos_text(const tok *t)
{
    return special_text(t, "eos_token");
}
