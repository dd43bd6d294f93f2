/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a tokenizer: words, their index, merges, added tokens. Shared by both sources. */
#include <string.h>

#include "base/hash.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

/* GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes in order for
 * U+0100 and on. -1 = not in it. */
static int byte_of(uint32_t cp)
{
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) || (cp >= 0xae && cp <= 0xff))
        return (int)cp;
    if (cp >= 256 && cp <= 288) return (int)cp - 256;
    if (cp >= 289 && cp <= 322) return (int)cp - 289 + 127;
    return cp == 323 ? 173 : -1;
}

/* Alphabet to bytes; false when p is not wholly in it. out has room for n. */
static bool to_bytes(const char *p, size_t n, char *out, size_t *n_out)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = text_utf8_decode(p + i, n - i, &cp);
        int b = len ? byte_of(cp) : -1;
        if (b < 0) return false;
        out[k++] = (char)b;
        i += (size_t)len;
    }
    *n_out = k;
    return true;
}

sl_status tok_in_file(sl_status st, const char *name, sl_err *err)
{
    if (st != SL_OK && st != SL_NOMEM) status_prefix(err, "%s", name);
    return st;
}

bool tok_valid(const tok *t, int64_t id)
{
    return id >= 0 && id < t->n_vocab && (t->v[id].flags & TOK_F_USED);
}

sl_status tok_build_begin(tok *t, int n_vocab, uint64_t n_merge, sl_err *err)
{
    void *p = NULL;
    if (n_vocab < 1 || n_vocab > TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "vocabulary of %d tokens", n_vocab);
    if (n_merge > TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "vocabulary with %llu merges", (unsigned long long)n_merge);
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)n_vocab, sizeof *t->v, &p, err));
    t->v = p;
    t->n_vocab = t->n_entry = n_vocab;
    t->unk = -1;
    memset(t->fallback, 0xff, sizeof t->fallback);
    size_t cap = 16;
    while (cap < (size_t)n_vocab * 2)
        cap *= 2;
    SL_TRY(mem_alloc_array(MEM_TOK, cap, sizeof *t->slot, &p, err));
    t->slot = p;
    t->slot_mask = (uint32_t)cap - 1;
    memset(t->slot, 0xff, cap * sizeof *t->slot);
    cap = 16;
    while (cap < n_merge * 2)
        cap *= 2;
    SL_TRY(mem_alloc_array(MEM_TOK, cap, sizeof *t->merge, &p, err));
    t->merge = p;
    t->merge_mask = (uint32_t)cap - 1;
    memset(t->merge, 0xff, cap * sizeof *t->merge);
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)n_merge, sizeof *t->rank_id, &p, err));
    t->rank_id = p;
    return SL_OK;
}

/* An entry of n bytes for a new word; *q: room for its bytes, which are p's at first. */
static sl_status new_word(tok *t, int64_t id, const char *p, size_t n, char **q, sl_err *err)
{
    if (id < 0 || id >= t->n_vocab)
        return SL_FAIL(err, FORMAT, "token id %lld is outside 0..%d", (long long)id,
                       t->n_vocab - 1);
    struct tok_entry *e = &t->v[id];
    if (e->flags & TOK_F_USED)
        return SL_FAIL(err, FORMAT, "token id %lld is given twice", (long long)id);
    if (n > UINT16_MAX * 16u)
        return SL_FAIL(err, LIMIT, "token %lld has %zu bytes", (long long)id, n);
    SL_TRY(mem_arena_str(&t->a, p, n, q, err));
    e->p = e->key = *q;
    e->n = e->n_key = (uint32_t)n;
    e->flags |= TOK_F_USED;
    return SL_OK;
}

sl_status tok_build_word(tok *t, int64_t id, const char *p, size_t n, sl_err *err)
{
    char *q = NULL;
    size_t k = n;
    SL_TRY(new_word(t, id, p, n, &q, err));
    struct tok_entry *e = &t->v[id];
    if (n > 0 && to_bytes(p, n, q, &k)) {
        q[k] = 0;
        e->flags |= TOK_F_WORD;
        e->n = e->n_key = (uint32_t)k;
    } else {
        memcpy(q, p, n);
    }
    return SL_OK;
}

sl_status tok_build_bytes(tok *t, int64_t id, const char *p, size_t n, sl_err *err)
{
    char *q = NULL;
    SL_TRY(new_word(t, id, p, n, &q, err));
    if (n > 0) t->v[id].flags |= TOK_F_WORD;
    return SL_OK;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that <0x0A> stands for; -1 = it is no such word. */
static int byte_word(const char *p, size_t n)
{
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>' || hex(p[3]) < 0 || hex(p[4]) < 0)
        return -1;
    return hex(p[3]) * 16 + hex(p[4]);
}

/* A text of a word with something in place of its marks; *out stays as it is where it has none. */
static sl_status replace_marks(tok *t, struct tok_text in, const char *by, struct tok_text *out,
                               sl_err *err)
{
    size_t m = strlen(t->mark), k = 0;
    char *q = NULL;
    if (m == 0 || in.n < m || !memmem(in.p, in.n, t->mark, m)) return SL_OK;
    SL_TRY(mem_arena_str(&t->a, in.p, in.n, &q, err));
    for (size_t i = 0; i < in.n;) {
        bool hit = in.n - i >= m && memcmp(in.p + i, t->mark, m) == 0;
        if (!hit || *by) q[k++] = hit ? *by : in.p[i];
        i += hit ? m : 1;
    }
    q[k] = 0;
    *out = (struct tok_text){q, (uint32_t)k};
    return SL_OK;
}

/* What a text of a word stands for: marks are spaces. */
static sl_status unmarked(tok *t, const char *p, size_t n, struct tok_entry *e, sl_err *err)
{
    struct tok_text out = {e->p, e->n};
    SL_TRY(replace_marks(t, (struct tok_text){p, (uint32_t)n}, " ", &out, err));
    e->p = out.p;
    e->n = out.n;
    return SL_OK;
}

/* Where the decoder leaves every mark of the first token out: all tokens as first ones. */
static sl_status build_first(tok *t, sl_err *err)
{
    void *p = NULL;
    if (!t->strip_first) return SL_OK;
    SL_TRY(mem_arena_array(&t->a, (size_t)t->n_vocab, sizeof *t->first, &p, err));
    t->first = p;
    for (int id = 0; id < t->n_vocab; id++) {
        const struct tok_entry *e = &t->v[id];
        t->first[id] = (struct tok_text){e->p, e->n};
        SL_TRY(replace_marks(t, (struct tok_text){e->key, e->n_key}, "", &t->first[id], err));
    }
    return SL_OK;
}

sl_status tok_build_chars(tok *t, int64_t id, const char *p, size_t n, sl_err *err)
{
    char *q = NULL;
    size_t good = text_utf8_check(p, n);
    if (good < n)
        return SL_FAIL(err, FORMAT, "token %lld is not UTF-8 at byte %zu", (long long)id, good);
    SL_TRY(new_word(t, id, p, n, &q, err));
    struct tok_entry *e = &t->v[id];
    int byte = t->byte_words ? byte_word(p, n) : -1;
    if (n > 0) e->flags |= TOK_F_WORD;
    if (byte < 0 || t->fallback[byte] != TOK_NONE) return unmarked(t, p, n, e, err);
    t->fallback[byte] = (uint32_t)id;
    if (!t->byte_decode) return SL_OK;
    SL_TRY(mem_arena_str(&t->a, (char[]){(char)byte}, 1, &q, err));
    e->p = q;
    e->n = 1;
    return SL_OK;
}

sl_status tok_build_mark(tok *t, const char *mark, sl_err *err)
{
    size_t n = strlen(mark);
    if (n == 0 || n >= sizeof t->mark)
        return SL_FAIL(err, UNSUPPORTED, "\"%.40s\" in place of spaces", mark);
    if (t->mark[0] && strcmp(t->mark, mark) != 0)
        return SL_FAIL(err, UNSUPPORTED, "both \"%s\" and \"%s\" in place of spaces", t->mark,
                       mark);
    memcpy(t->mark, mark, n + 1);
    return SL_OK;
}

static bool bar_form(const char *p, size_t n)
{
    static const char wide[] = "\xef\xbd\x9c"; /* the full-width bar of DeepSeek */
    if (n >= 5 && p[0] == '<' && p[1] == '|' && p[n - 2] == '|' && p[n - 1] == '>') return true;
    return n >= 9 && p[0] == '<' && memcmp(p + 1, wide, 3) == 0 &&
           memcmp(p + n - 4, wide, 3) == 0 && p[n - 1] == '>';
}

sl_status tok_build_added(tok *t, int64_t id, const char *p, size_t n, uint32_t flags, sl_err *err)
{
    if (id < 0 || id >= t->n_vocab)
        return SL_FAIL(err, FORMAT, "added token id %lld is outside 0..%d", (long long)id,
                       t->n_vocab - 1);
    if (n == 0 || n > TOK_MAX_ADDED)
        return SL_FAIL(err, FORMAT, "added token %lld has %zu bytes", (long long)id, n);
    size_t good = text_utf8_check(p, n);
    if (good != n)
        return SL_FAIL(err, FORMAT, "added token %lld is not UTF-8 at byte %zu", (long long)id,
                       good);
    struct tok_entry *e = &t->v[id];
    if (e->flags & TOK_F_ADDED)
        return SL_FAIL(err, FORMAT, "added token id %lld is given twice", (long long)id);
    char *q = NULL;
    SL_TRY(mem_arena_str(&t->a, p, n, &q, err));
    if (!(e->flags & TOK_F_WORD)) {
        e->key = q;
        e->n_key = (uint32_t)n;
    }
    e->p = q;
    e->n = (uint32_t)n;
    if (t->chars) SL_TRY(unmarked(t, q, n, e, err));
    e->flags = (e->flags & (TOK_F_WORD | TOK_F_EOG)) | TOK_F_USED | TOK_F_ADDED | flags;
    if ((flags & TOK_F_SPECIAL) || bar_form(p, n)) e->flags |= TOK_F_CONTROL;
    return SL_OK;
}

static uint64_t hash_word(const char *p, size_t n)
{
    return hash_bytes(p, n, 0);
}

uint32_t tok_word_find(const tok *t, const char *p, size_t n)
{
    for (uint64_t i = hash_word(p, n) & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        uint32_t id = t->slot[i];
        if (id == TOK_NONE || (t->v[id].n_key == n && memcmp(t->v[id].key, p, n) == 0)) return id;
    }
}

sl_status tok_build_index(tok *t, bool dup_ok, sl_err *err)
{
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    for (int id = 0; id < t->n_vocab; id++) {
        struct tok_entry *e = &t->v[id];
        if (!(e->flags & TOK_F_WORD)) continue;
        uint64_t i = hash_word(e->key, e->n_key) & t->slot_mask;
        bool dup = false;
        for (; t->slot[i] != TOK_NONE && !dup; i = (i + 1) & t->slot_mask) {
            const struct tok_entry *o = &t->v[t->slot[i]];
            dup = o->n_key == e->n_key && memcmp(o->key, e->key, e->n_key) == 0;
        }
        if (dup && !dup_ok)
            return SL_FAIL(err, FORMAT, "token %d has the same bytes as another", id);
        if (dup) {
            e->flags &= ~(uint32_t)TOK_F_WORD;
            continue;
        }
        t->slot[i] = (uint32_t)id;
        if (e->n_key == 1) t->byte_id[(unsigned char)e->key[0]] = (uint32_t)id;
    }
    return SL_OK;
}

void tok_build_slot(tok *t, uint32_t id)
{
    uint64_t i = hash_word(t->v[id].key, t->v[id].n_key) & t->slot_mask;
    while (t->slot[i] != TOK_NONE)
        i = (i + 1) & t->slot_mask;
    t->slot[i] = id;
    if (t->v[id].n_key == 1) t->byte_id[(unsigned char)t->v[id].key[0]] = id;
}

static uint32_t hash_pair(uint32_t l, uint32_t r)
{
    uint64_t h = ((uint64_t)l << 32 | r) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 12);
}

const struct tok_merge *tok_merge_find(const tok *t, uint32_t l, uint32_t r)
{
    for (uint32_t i = hash_pair(l, r) & t->merge_mask;; i = (i + 1) & t->merge_mask) {
        const struct tok_merge *m = &t->merge[i];
        if (m->left == TOK_NONE) return NULL;
        if (m->left == l && m->right == r) return m;
    }
}

static void put_merge(tok *t, struct tok_merge m, bool last_wins)
{
    uint32_t s = hash_pair(m.left, m.right) & t->merge_mask;
    for (; t->merge[s].left != TOK_NONE; s = (s + 1) & t->merge_mask)
        if (t->merge[s].left == m.left && t->merge[s].right == m.right) {
            if (last_wins) t->merge[s].rank = m.rank;
            return;
        }
    t->merge[s] = m;
    t->n_merge++;
}

sl_status tok_build_merge(tok *t, uint32_t i, struct tok_halves of, bool last_wins, sl_err *err)
{
    const char *l = of.l, *r = of.r;
    size_t n_l = of.n_l, n_r = of.n_r;
    char small[1024], *both = small;
    void *big = NULL;
    size_t a = 0, b = 0;
    if (n_l + n_r > sizeof small) {
        SL_TRY(mem_alloc(MEM_TOK, n_l + n_r, &big, err));
        both = big;
    }
    uint32_t id_l = TOK_NONE, id_r = TOK_NONE, id = TOK_NONE;
    bool plain = t->chars;
    if (plain) {
        memcpy(both, l, n_l);
        memcpy(both + n_l, r, n_r);
        a = n_l;
        b = n_r;
    }
    if ((plain || (to_bytes(l, n_l, both, &a) && to_bytes(r, n_r, both + a, &b))) && a && b) {
        id_l = tok_word_find(t, both, a);
        id_r = tok_word_find(t, both + a, b);
        id = tok_word_find(t, both, a + b);
    }
    mem_free(big);
    if (id_l == TOK_NONE || id_r == TOK_NONE || id == TOK_NONE)
        return SL_FAIL(err, FORMAT, "merge %u (\"%.*s\" \"%.*s\"): %s is not in the vocabulary", i,
                       (int)BASE_MIN(n_l, 40), l, (int)BASE_MIN(n_r, 40), r,
                       id_l == TOK_NONE   ? "the left half"
                       : id_r == TOK_NONE ? "the right half"
                                          : "the result");
    t->rank_id[i] = id;
    put_merge(t, (struct tok_merge){id_l, id_r, i, id}, last_wins);
    return SL_OK;
}

sl_status tok_build_template(tok *t, const char *name, const char *p, size_t n, sl_err *err)
{
    char *text = NULL, *nm = NULL;
    if (tok_template_find(t, name)) return SL_OK;
    if (t->n_tmpl == TOK_MAX_TEMPLATE)
        return SL_FAIL(err, LIMIT, "more than %d chat templates", TOK_MAX_TEMPLATE);
    SL_TRY(mem_arena_str(&t->a, p, n, &text, err));
    SL_TRY(mem_arena_str(&t->a, name, strlen(name), &nm, err));
    t->tmpl[t->n_tmpl++] = (struct tok_named){nm, text, n};
    return SL_OK;
}

sl_status tok_build_special(tok *t, const char *name, const char *p, size_t n, int32_t id,
                            sl_err *err)
{
    char *nm = NULL, *text = NULL;
    if (t->n_special == TOK_MAX_SPECIAL) return SL_FAIL(err, LIMIT, "%s: too many names", name);
    SL_TRY(mem_arena_str(&t->a, name, strlen(name), &nm, err));
    SL_TRY(mem_arena_str(&t->a, p, n, &text, err));
    t->special[t->n_special++] = (struct tok_special){nm, text, id};
    if (strcmp(name, "bos_token") == 0) t->bos = id;
    if (strcmp(name, "eos_token") == 0) t->eos = id;
    return SL_OK;
}

int32_t tok_special_id(const tok *t, const char *name)
{
    for (int i = 0; i < t->n_special; i++)
        if (strcmp(t->special[i].name, name) == 0) return t->special[i].id;
    return -1;
}

void tok_build_eog(tok *t, int64_t id)
{
    if (id < 0 || id >= t->n_vocab) return;
    struct tok_entry *e = &t->v[id];
    if (!(e->flags & TOK_F_USED)) {
        e->p = "";
        e->n = 0;
        e->flags = TOK_F_USED | TOK_F_SPECIAL;
    }
    e->flags |= TOK_F_EOG | TOK_F_CONTROL;
}

void tok_build_ban(tok *t, int64_t id)
{
    if (tok_valid(t, id)) t->v[id].flags |= TOK_F_BANNED;
}

sl_status tok_build_around(tok *t, bool front, int32_t id, sl_err *err)
{
    int *n = front ? &t->n_front : &t->n_back;
    if (*n == BASE_COUNT_OF(t->front))
        return SL_FAIL(err, LIMIT, "more than %d tokens %s a text", BASE_COUNT_OF(t->front),
                       front ? "before" : "after");
    (front ? t->front : t->back)[(*n)++] = id;
    return SL_OK;
}

#define EOS_DEEPSEEK                                                                               \
    "<\xef\xbd\x9c"                                                                                \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

/* Texts by which model families end an answer; taken only where they are control tokens. */
static const char *const eog_text[] = {"<|endoftext|>", "<|im_end|>",    "<|end_of_text|>",
                                       "<|eot_id|>",    "<|eom_id|>",    "<|end|>",
                                       "<|return|>",    "<|call|>",      "<|EOT|>",
                                       "<EOT>",         "<end_of_turn>", "<|END_OF_TURN_TOKEN|>",
                                       "<|eot|>",       "<|endofturn|>", "</s>",
                                       "<eos>",         EOS_DEEPSEEK};

/* Can every text be told by tokens, and does no step leave bytes out? Then texts have a least
 * number of tokens. */
static size_t longest(const tok *t)
{
    size_t n = 1;
    if (t->spm.squeeze || t->spm.n_unit) return 0;
    for (int i = 0; i < 256; i++)
        if ((t->chars ? t->fallback : t->byte_id)[i] == TOK_NONE) return 0;
    for (int i = 0; i < t->n_step; i++)
        if (t->step[i].kind == TOK_STEP_REMOVED) return 0;
    for (int i = 0; i < t->n_norm; i++)
        if (t->norm_step[i].kind == TOK_NORM_REPLACE && t->norm_step[i].n_b < t->norm_step[i].n_a)
            return 0;
    for (int id = 0; id < t->n_vocab; id++) {
        if (t->v[id].flags & (TOK_F_LSTRIP | TOK_F_RSTRIP)) return 0;
        n = BASE_MAX(n, (size_t)BASE_MAX(t->v[id].n, t->v[id].n_key));
    }
    return n;
}

/* Does no word go on with a mark after something else? */
static bool marks_begin_words(const tok *t)
{
    size_t m = strlen(t->mark);
    if (!t->chars || m == 0 || tok_word_find(t, t->mark, m) == TOK_NONE) return false;
    for (int id = 0; id < t->n_vocab; id++) {
        const struct tok_entry *e = &t->v[id];
        size_t i = 0;
        if (!(e->flags & TOK_F_WORD)) continue;
        while (e->n_key - i >= m && memcmp(e->key + i, t->mark, m) == 0)
            i += m;
        if (memmem(e->key + i, e->n_key - i, t->mark, m)) return false;
    }
    return true;
}

/* A text, normalised, as bytes of answers: those that the decoder makes of it. */
static sl_status read_back(tok *t, uint32_t id, const struct str *s, sl_err *err)
{
    struct tok_entry *e = &t->v[id];
    char *q = NULL;
    SL_TRY(mem_arena_str(&t->a, s->p, s->n, &q, err));
    e->p = q;
    e->n = (uint32_t)s->n;
    const struct tok_text text = {e->p, e->n};
    if (t->first) {
        t->first[id] = text;
        SL_TRY(replace_marks(t, text, "", &t->first[id], err));
    }
    return unmarked(t, q, s->n, e, err);
}

/* Where the text of an added token is looked for: as it is, or normalised like texts; then answers
 * have what was normalised, as in tokenizers since 0.23: a text with it comes back as it was. Among
 * words of bytes the decoder would take such a text for bytes: there it stays as it is. */
static sl_status add_to_trie(tok *t, uint32_t id, sl_err *err)
{
    struct tok_entry *e = &t->v[id];
    struct str s;
    if (t->split_special && (e->flags & TOK_F_SPECIAL)) return SL_OK;
    if (!(e->flags & TOK_F_NORMALIZED)) return tok_trie_add(&t->raw, e->key, e->n_key, id, err);
    str_init(&s, MEM_TOK, 0);
    sl_status st = tok_norm_text(t, e->key, e->n_key, &s, err);
    if (!st && s.n) st = tok_trie_add(&t->norm, str_c(&s), s.n, id, err);
    if (!st && s.n && t->chars) st = read_back(t, id, &s, err);
    str_fini(&s);
    return st;
}

/* In Harmony's vocabularies <|end|> ends a message, of which an answer has several. */
static void messages_are_no_answers(tok *t)
{
    static const char *const text[] = {"<|return|>", "<|call|>", "<|end|>"};
    int id[3] = {-1, -1, -1};
    for (int i = 0; i < t->n_vocab; i++)
        for (int k = 0; k < 3; k++)
            if ((t->v[i].flags & TOK_F_ADDED) && strcmp(tok_text_of(t, i, NULL), text[k]) == 0)
                id[k] = i;
    if (id[0] < 0 || id[1] < 0 || id[2] < 0 || id[2] == t->eos) return;
    t->v[id[2]].flags &= ~(uint32_t)TOK_F_EOG;
}

sl_status tok_build_end(tok *t, sl_err *err)
{
    t->max_piece = longest(t);
    t->by_word = marks_begin_words(t);
    if (t->bos >= 0) t->v[t->bos].flags |= TOK_F_CONTROL;
    if (t->eos >= 0) t->v[t->eos].flags |= TOK_F_EOG;
    SL_TRY(build_first(t, err));
    for (int id = 0; id < t->n_vocab; id++) {
        struct tok_entry *e = &t->v[id];
        if (!(e->flags & TOK_F_ADDED)) continue;
        if (e->flags & TOK_F_CONTROL)
            for (int k = 0; k < BASE_COUNT_OF(eog_text); k++)
                if (strcmp(e->p, eog_text[k]) == 0) e->flags |= TOK_F_EOG;
        if (e->flags & TOK_F_EOG) e->flags |= TOK_F_CONTROL;
        SL_TRY(add_to_trie(t, (uint32_t)id, err));
    }
    messages_are_no_answers(t);
    return SL_OK;
}
