/* SPDX-License-Identifier: Apache-2.0 */
/* The added and special tokens of a Hugging Face folder. Five files name them: tokenizer.json
 * (added_tokens), tokenizer_config.json (added_tokens_decoder, bos_token and the like,
 * additional_special_tokens, extra_special_tokens), special_tokens_map.json and added_tokens.json.
 * They are joined as transformers 5 joins them, quirks included, since that is what models were
 * trained with: the last two files count only where tokenizer_config.json has no
 * added_tokens_decoder, and a token that tokenizer.json lacks gets the next free id, whatever id
 * a file gives it. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "tok/tok_internal.h"

static const char *const usual[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

/* ---- values ---- */
struct value {
    const char *text; /* NULL = null */
    size_t n;
    uint32_t flags;
    bool plain; /* a text without flags */
};

/* A token of a file: its text (special), or an object with content and flags. special: what an
 * object is that does not say. */
static sl_status read_value(const struct json *v, const char *what, bool special, struct value *out,
                            sl_err *err)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } bit[] = {{"special", TOK_F_SPECIAL},
               {"normalized", TOK_F_NORMALIZED},
               {"lstrip", TOK_F_LSTRIP},
               {"rstrip", TOK_F_RSTRIP},
               {"single_word", TOK_F_SINGLE_WORD}};
    const struct json *text = v->kind == JSON_OBJECT_K ? text_json_get(v, "content") : v;
    *out = (struct value){0};
    if (v->kind == JSON_NULL_K) return SL_OK;
    if (!text || text->kind != JSON_STR_K)
        return SL_FAIL(err, FORMAT, "%s is neither a text nor an object with content", what);
    *out = (struct value){text->s, text->n, TOK_F_SPECIAL, v->kind == JSON_STR_K};
    if (v->kind == JSON_STR_K) return SL_OK;
    SL_TRY(tok_keys_token(v, what, err));
    out->flags = 0;
    for (int i = 0; i < BASE_COUNT_OF(bit); i++) {
        bool def = i == 0 ? special : i == 1 && !(out->flags & TOK_F_SPECIAL), yes = false;
        sl_status st = text_json_bool(v, bit[i].key, def, &yes, err);
        if (st) status_prefix(err, "%s", what);
        SL_TRY(st);
        if (yes) out->flags |= bit[i].flag;
    }
    return SL_OK;
}

/* ---- texts ---- */
static uint32_t *slot_of(const struct tok_join *j, const char *p, size_t n)
{
    for (uint64_t i = hash_bytes(p, n, 1) & j->slot_mask;; i = (i + 1) & j->slot_mask) {
        uint32_t k = j->slot[i];
        if (k == TOK_NONE || (j->name[k].n == n && memcmp(j->name[k].text, p, n) == 0))
            return &j->slot[i];
    }
}

static uint32_t name_of(struct tok_join *j, const char *p, size_t n)
{
    uint32_t *s = slot_of(j, p, n);
    if (*s == TOK_NONE) {
        *s = j->n_name++;
        j->name[*s] = (struct tok_join_name){.text = p, .n = n, .id = -1, .word = -1};
    }
    return *s;
}

static void add(struct tok_join *j, const struct value *v, uint32_t flags, int64_t id, bool fixed)
{
    if (!v->text || v->n == 0) return;
    uint32_t name = name_of(j, v->text, v->n);
    j->op[j->n_op++] = (struct tok_join_op){.name = name, .flags = flags, .id = id, .fixed = fixed};
}

static size_t items(const struct json *v)
{
    return v && (v->kind == JSON_ARRAY_K || v->kind == JSON_OBJECT_K) ? v->n : 0;
}

static sl_status make_tables(struct tok_join *j, sl_err *err)
{
    static const char *const key[] = {"added_tokens_decoder", "additional_special_tokens",
                                      "extra_special_tokens", "model_specific_special_tokens"};
    size_t n = 2 * items(j->list) + items(j->added) + 2 * TOK_MAX_SPECIAL, cap = 16;
    void *p = NULL;
    for (int i = 0; i < BASE_COUNT_OF(key); i++)
        n += items(text_json_get(j->config, key[i])) + items(text_json_get(j->map, key[i]));
    if (n > TOK_MAX_VOCAB) return SL_FAIL(err, LIMIT, "%zu added tokens", n);
    SL_TRY(mem_arena_array(j->a, n, sizeof *j->name, &p, err));
    j->name = p;
    SL_TRY(mem_arena_array(j->a, n, sizeof *j->op, &p, err));
    j->op = p;
    while (cap < n * 2)
        cap *= 2;
    SL_TRY(mem_arena_array(j->a, cap, sizeof *j->slot, &p, err));
    j->slot = p;
    j->slot_mask = (uint32_t)cap - 1;
    memset(j->slot, 0xff, cap * sizeof *j->slot);
    return SL_OK;
}

/* ---- named tokens ---- */
static struct tok_join_special *special_of(struct tok_join *j, const char *key)
{
    for (int i = 0; i < j->n_special; i++)
        if (strcmp(j->special[i].key, key) == 0) return &j->special[i];
    if (j->n_special == TOK_MAX_SPECIAL) return NULL;
    j->special[j->n_special] = (struct tok_join_special){.key = key};
    return &j->special[j->n_special++];
}

static bool is_usual(const char *key)
{
    for (int i = 0; i < BASE_COUNT_OF(usual); i++)
        if (strcmp(key, usual[i]) == 0) return true;
    return false;
}

static sl_status set_special(struct tok_join *j, const char *key, const struct json *v,
                             const char *what, bool special, sl_err *err)
{
    struct value x;
    SL_TRY(read_value(v, what, special, &x, err));
    struct tok_join_special *s = special_of(j, key);
    if (!s) return SL_FAIL(err, LIMIT, "%s: more than %d named tokens", what, TOK_MAX_SPECIAL);
    s->text = x.text;
    s->n = x.n;
    s->flags = x.flags;
    s->plain = x.plain;
    return SL_OK;
}

/* The names of a model's own: any other KEY_token with a text, and the two objects of names. */
static sl_status own_specials(struct tok_join *j, const struct json *o, bool special, sl_err *err)
{
    static const char *const object[] = {"extra_special_tokens", "model_specific_special_tokens"};
    for (const struct json *m = o ? o->child : NULL; m; m = m->next) {
        size_t n = strlen(m->key);
        bool full = m->kind == JSON_OBJECT_K && text_json_get(m, "content");
        if (n < 7 || strcmp(m->key + n - 6, "_token") != 0 || is_usual(m->key)) continue;
        if (m->kind == JSON_STR_K || full) SL_TRY(set_special(j, m->key, m, m->key, special, err));
    }
    for (int i = 0; i < BASE_COUNT_OF(object); i++) {
        const struct json *v = text_json_get(o, object[i]);
        for (const struct json *m = v && v->kind == JSON_OBJECT_K ? v->child : NULL; m; m = m->next)
            SL_TRY(set_special(j, m->key, m, object[i], special, err));
    }
    return SL_OK;
}

static sl_status usual_specials(struct tok_join *j, const struct json *o, bool special, sl_err *err)
{
    for (int i = 0; i < BASE_COUNT_OF(usual); i++) {
        const struct json *v = text_json_get(o, usual[i]);
        if (v) SL_TRY(set_special(j, usual[i], v, usual[i], special, err));
    }
    return SL_OK;
}

static sl_status read_specials(struct tok_join *j, const struct json *map, sl_err *err)
{
    for (int i = 0; i < BASE_COUNT_OF(usual); i++) /* the order in which tokens are added */
        (void)special_of(j, usual[i]);
    SL_TRY(tok_in_file(usual_specials(j, j->config, false, err), "tokenizer_config.json", err));
    SL_TRY(tok_in_file(usual_specials(j, map, true, err), "special_tokens_map.json", err));
    SL_TRY(tok_in_file(own_specials(j, map, true, err), "special_tokens_map.json", err));
    return tok_in_file(own_specials(j, j->config, false, err), "tokenizer_config.json", err);
}

/* ---- lists ---- */
static const struct json *array_of(const struct json *o, const char *key)
{
    const struct json *v = text_json_get(o, key);
    return v && v->kind == JSON_ARRAY_K ? v : NULL;
}

/* The special tokens without a name: of the two lists of a file the newer one, if it has items;
 * special_tokens_map.json's extra_special_tokens come on top. */
static void extra_lists(const struct tok_join *j, const struct json *map, const struct json *out[2])
{
    const struct json *extra = array_of(j->config, "extra_special_tokens"),
                      *more = array_of(j->config, "additional_special_tokens");
    out[0] = extra && extra->n ? extra : more ? more : extra;
    out[1] = array_of(map, "extra_special_tokens");
    if (!out[0] && !out[1]) out[1] = array_of(map, "additional_special_tokens");
}

static bool in_list(const struct json *list, const char *p, size_t n)
{
    for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
        const struct json *t = m->kind == JSON_OBJECT_K ? text_json_get(m, "content") : m;
        if (t && t->kind == JSON_STR_K && t->n == n && memcmp(t->s, p, n) == 0) return true;
    }
    return false;
}

static bool is_named(const struct tok_join *j, const char *p, size_t n, bool usual_only)
{
    for (int i = 0; i < j->n_special; i++) {
        const struct tok_join_special *s = &j->special[i];
        if (usual_only && !is_usual(s->key)) continue;
        if (s->text && s->n == n && memcmp(s->text, p, n) == 0) return true;
    }
    return false;
}

struct entry {
    int64_t id;
    struct value v;
};

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const struct entry *)a)->id, y = ((const struct entry *)b)->id;
    return (x > y) - (x < y);
}

/* added_tokens of tokenizer.json, by id: *e in the arena. */
static sl_status own_list(struct tok_join *j, struct entry **e, sl_err *err)
{
    void *p = NULL;
    size_t n = 0;
    SL_TRY(mem_arena_array(j->a, items(j->list) + items(j->added) + 1, sizeof **e, &p, err));
    *e = p;
    for (const struct json *m = j->list ? j->list->child : NULL; m; m = m->next, n++) {
        struct entry *x = &(*e)[n];
        const struct json *norm = text_json_get(m, "normalized");
        SL_TRY(text_json_int(m, "id", -1, &x->id, err));
        if (x->id < 0)
            return SL_FAIL(err, FORMAT, "added_tokens: an entry without an id from 0 on");
        if (x->id >= TOK_MAX_VOCAB)
            return SL_FAIL(err, FORMAT, "added_tokens: the id %lld", (long long)x->id);
        SL_TRY(read_value(m, "added_tokens", false, &x->v, err));
        if (x->v.n == 0)
            return SL_FAIL(err, FORMAT, "added_tokens: id %lld has 0 bytes", (long long)x->id);
        if (!norm || norm->kind == JSON_NULL_K) x->v.flags &= ~(uint32_t)TOK_F_NORMALIZED;
        add(j, &x->v, x->v.flags, x->id, true);
    }
    qsort(*e, n, sizeof **e, by_id);
    for (size_t i = 1; i < n; i++)
        if ((*e)[i].id == (*e)[i - 1].id)
            return SL_FAIL(err, FORMAT, "added_tokens: id %lld is given twice",
                           (long long)(*e)[i].id);
    return SL_OK;
}

static void add_entries(struct tok_join *j, const struct entry *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct value *v = &e[i].v;
        bool named = v->text && is_named(j, v->text, v->n, false);
        add(j, v, v->flags | (named ? TOK_F_SPECIAL : 0), e[i].id, false);
    }
}

static sl_status decoder_list(struct tok_join *j, const struct json *decoder, sl_err *err)
{
    void *p = NULL;
    size_t n = 0;
    SL_TRY(mem_arena_array(j->a, decoder->n + 1, sizeof(struct entry), &p, err));
    struct entry *e = p;
    for (const struct json *m = decoder->child; m; m = m->next) {
        char *end = NULL;
        long long id = strtoll(m->key, &end, 10);
        if (end == m->key || *end || id < 0 || id >= TOK_MAX_VOCAB)
            return SL_FAIL(err, FORMAT, "added_tokens_decoder: \"%.40s\" is no token id", m->key);
        if (m->kind != JSON_OBJECT_K)
            return SL_FAIL(err, FORMAT, "added_tokens_decoder: %lld is no object", id);
        SL_TRY(read_value(m, "added_tokens_decoder", false, &e[n].v, err));
        e[n++].id = id;
    }
    qsort(e, n, sizeof *e, by_id);
    add_entries(j, e, n);
    return SL_OK;
}

/* added_tokens.json: texts and ids; then what tokenizer.json has under the same ids is put over
 * it, which leaves those that it has not. */
static sl_status legacy_list(struct tok_join *j, const struct json *const extra[2], struct entry *e,
                             sl_err *err)
{
    size_t n_own = items(j->list), n = n_own;
    for (const struct json *m = j->added ? j->added->child : NULL; m; m = m->next) {
        if (m->kind != JSON_INT_K || m->i < 0 || m->i >= TOK_MAX_VOCAB)
            return SL_FAIL(err, FORMAT,
                           "added_tokens.json: the id of \"%.40s\" is no number from 0 on", m->key);
        struct entry key = {.id = m->i};
        if (bsearch(&key, e, n_own, sizeof *e, by_id)) continue;
        bool special = is_named(j, m->key, m->n_key, true) || in_list(extra[0], m->key, m->n_key) ||
                       in_list(extra[1], m->key, m->n_key);
        e[n++] = (struct entry){
            m->i, {m->key, m->n_key, special ? TOK_F_SPECIAL : TOK_F_NORMALIZED, false}};
    }
    qsort(e, n, sizeof *e, by_id);
    add_entries(j, e, n);
    return SL_OK;
}

/* A special token that the lists of added tokens lack. A plain text counts once; an object with
 * flags counts again. */
static void add_special(struct tok_join *j, const struct value *v, uint32_t n_known)
{
    if (!v->text || v->n == 0) return;
    uint32_t name = *slot_of(j, v->text, v->n);
    if (name != TOK_NONE && (name < n_known || (v->plain && j->name[name].plain))) return;
    add(j, v, v->flags | (is_named(j, v->text, v->n, false) ? TOK_F_SPECIAL : 0), -1, false);
    if (v->plain) j->name[j->op[j->n_op - 1].name].plain = true;
}

static sl_status extra_list(struct tok_join *j, const struct json *list, bool special,
                            uint32_t n_known, sl_err *err)
{
    for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
        struct value v;
        SL_TRY(read_value(m, "a special token of the list", special, &v, err));
        add_special(j, &v, n_known);
    }
    return SL_OK;
}

sl_status tok_join_read(struct tok_join *j, sl_err *err)
{
    const struct json *decoder = text_json_get(j->config, "added_tokens_decoder"), *extra[2];
    if (decoder && decoder->kind != JSON_OBJECT_K) decoder = NULL;
    const struct json *map = decoder ? NULL : j->map;
    SL_TRY(make_tables(j, err));
    SL_TRY(read_specials(j, map, err));
    extra_lists(j, map, extra);
    struct entry *own = NULL;
    SL_TRY(tok_in_file(own_list(j, &own, err), "tokenizer.json", err));
    if (decoder)
        SL_TRY(tok_in_file(decoder_list(j, decoder, err), "tokenizer_config.json", err));
    else
        SL_TRY(legacy_list(j, extra, own, err));
    uint32_t n_known = j->n_name; /* texts that the lists have; the others are added in order */
    for (int i = 0; i < j->n_special; i++) {
        const struct tok_join_special *s = &j->special[i];
        struct value v = {s->text, s->n, s->flags, s->plain};
        add_special(j, &v, n_known);
    }
    SL_TRY(tok_in_file(extra_list(j, extra[0], false, n_known, err), "tokenizer_config.json", err));
    return tok_in_file(extra_list(j, extra[1], true, n_known, err), "special_tokens_map.json", err);
}

/* ---- ids ---- */
void tok_join_word(struct tok_join *j, const char *p, size_t n, int64_t id)
{
    uint32_t k = *slot_of(j, p, n);
    if (k != TOK_NONE) j->name[k].word = id;
}

bool tok_join_has(const struct tok_join *j, const char *p, size_t n)
{
    return *slot_of(j, p, n) != TOK_NONE;
}

void tok_join_ids(struct tok_join *j, int64_t n_word, int64_t *top)
{
    int64_t next = n_word;
    *top = -1;
    for (uint32_t i = 0; i < j->n_op; i++) {
        const struct tok_join_op *o = &j->op[i];
        struct tok_join_name *w = &j->name[o->name];
        w->flags = o->flags | (w->flags & TOK_F_SPECIAL); /* what was special stays so */
        if (w->id < 0) w->id = w->word >= 0 ? w->word : o->id >= 0 && j->own_ids ? o->id : next;
        if (o->id >= 0 && o->id != w->id)
            log_msg(LOG_WARN, "%s gives \"%.40s\" the id %lld: it is %lld here, as in transformers",
                    o->fixed ? "tokenizer.json" : "tokenizer_config.json", w->text,
                    (long long)o->id, (long long)w->id);
        next = BASE_MAX(next, w->id + 1);
        *top = BASE_MAX(*top, w->id);
    }
}

sl_status tok_join_build(const struct tok_join *j, tok *t, sl_err *err)
{
    for (uint32_t i = 0; i < j->n_name; i++) {
        const struct tok_join_name *w = &j->name[i];
        uint32_t flags = w->flags & (j->own_ids ? ~(uint32_t)TOK_F_NORMALIZED : ~0u);
        /* the next free id of a vocabulary with gaps may not be free */
        if (w->id >= 0 && w->id < t->n_vocab && w->word < 0 && !j->own_ids &&
            (t->v[w->id].flags & TOK_F_WORD))
            return SL_FAIL(err, FORMAT,
                           "tokenizer.json: the added token \"%.40s\" gets the id %lld, which the "
                           "vocabulary's \"%.*s\" has",
                           w->text, (long long)w->id, (int)BASE_MIN(t->v[w->id].n_key, 40u),
                           t->v[w->id].key);
        if (w->id >= 0) SL_TRY(tok_build_added(t, w->id, w->text, w->n, flags, err));
    }
    bool split = false;
    SL_TRY(tok_in_file(text_json_bool(j->config, "split_special_tokens", false, &split, err),
                       "tokenizer_config.json", err));
    t->split_special = split;
    for (int i = 0; i < j->n_special; i++) {
        const struct tok_join_special *s = &j->special[i];
        if (!s->text) continue;
        int64_t id = s->n ? j->name[*slot_of(j, s->text, s->n)].id : -1;
        SL_TRY(tok_build_special(t, s->key, s->text, s->n, (int32_t)id, err));
    }
    return SL_OK;
}
