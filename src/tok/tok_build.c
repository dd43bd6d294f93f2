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
    t->n_vocab = n_vocab;
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

sl_status tok_build_word(tok *t, int64_t id, const char *p, size_t n, sl_err *err)
{
    if (id < 0 || id >= t->n_vocab)
        return SL_FAIL(err, FORMAT, "token id %lld is outside 0..%d", (long long)id,
                       t->n_vocab - 1);
    struct tok_entry *e = &t->v[id];
    if (e->flags & TOK_F_USED)
        return SL_FAIL(err, FORMAT, "token id %lld is given twice", (long long)id);
    if (n > UINT16_MAX * 16u)
        return SL_FAIL(err, LIMIT, "token %lld has %zu bytes", (long long)id, n);
    char *q = NULL;
    size_t k = n;
    SL_TRY(mem_arena_str(&t->a, p, n, &q, err));
    e->flags = TOK_F_USED;
    if (n > 0 && to_bytes(p, n, q, &k)) {
        q[k] = 0;
        e->flags |= TOK_F_WORD;
    } else {
        memcpy(q, p, n);
    }
    e->p = q;
    e->n = (uint32_t)k;
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
    e->p = q;
    e->n = (uint32_t)n;
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
        if (id == TOK_NONE || (t->v[id].n == n && memcmp(t->v[id].p, p, n) == 0)) return id;
    }
}

sl_status tok_build_index(tok *t, bool dup_ok, sl_err *err)
{
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    for (int id = 0; id < t->n_vocab; id++) {
        struct tok_entry *e = &t->v[id];
        if (!(e->flags & TOK_F_WORD)) continue;
        uint64_t i = hash_word(e->p, e->n) & t->slot_mask;
        bool dup = false;
        for (; t->slot[i] != TOK_NONE && !dup; i = (i + 1) & t->slot_mask) {
            const struct tok_entry *o = &t->v[t->slot[i]];
            dup = o->n == e->n && memcmp(o->p, e->p, e->n) == 0;
        }
        if (dup && !dup_ok)
            return SL_FAIL(err, FORMAT, "token %d has the same bytes as another", id);
        if (dup) {
            e->flags &= ~(uint32_t)TOK_F_WORD;
            continue;
        }
        t->slot[i] = (uint32_t)id;
        if (e->n == 1) t->byte_id[(unsigned char)e->p[0]] = (uint32_t)id;
    }
    return SL_OK;
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

sl_status tok_build_merge(tok *t, uint32_t i, const char *l, size_t n_l, const char *r, size_t n_r,
                          bool last_wins, sl_err *err)
{
    char small[1024], *both = small;
    void *big = NULL;
    size_t a = 0, b = 0;
    sl_status st = SL_OK;
    if (n_l + n_r > sizeof small) {
        SL_TRY(mem_alloc(MEM_TOK, n_l + n_r, &big, err));
        both = big;
    }
    uint32_t id_l = TOK_NONE, id_r = TOK_NONE, id = TOK_NONE;
    if (to_bytes(l, n_l, both, &a) && to_bytes(r, n_r, both + a, &b) && a && b) {
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
    uint32_t s = hash_pair(id_l, id_r) & t->merge_mask;
    for (; t->merge[s].left != TOK_NONE; s = (s + 1) & t->merge_mask)
        if (t->merge[s].left == id_l && t->merge[s].right == id_r) {
            if (last_wins) t->merge[s].rank = i;
            return st;
        }
    t->merge[s] = (struct tok_merge){id_l, id_r, i, id};
    t->n_merge++;
    return st;
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

sl_status tok_build_around(tok *t, bool front, int32_t id, sl_err *err)
{
    int *n = front ? &t->n_front : &t->n_back;
    if (*n == BASE_COUNT_OF(t->front))
        return SL_FAIL(err, LIMIT, "more than %d tokens %s a text", BASE_COUNT_OF(t->front),
                       front ? "in front of" : "behind");
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

/* Where every byte has a token and no step drops any, texts have a least number of tokens. */
static size_t longest(const tok *t)
{
    size_t n = 1;
    for (int i = 0; i < 256; i++)
        if (t->byte_id[i] == TOK_NONE) return 0;
    for (int i = 0; i < t->n_step; i++)
        if (t->step[i].kind == TOK_STEP_REMOVED) return 0;
    for (int id = 0; id < t->n_vocab; id++)
        n = BASE_MAX(n, (size_t)t->v[id].n);
    return n;
}

sl_status tok_build_end(tok *t, sl_err *err)
{
    t->max_piece = longest(t);
    if (t->bos >= 0) t->v[t->bos].flags |= TOK_F_CONTROL;
    if (t->eos >= 0) t->v[t->eos].flags |= TOK_F_EOG;
    for (int id = 0; id < t->n_vocab; id++) {
        struct tok_entry *e = &t->v[id];
        if (!(e->flags & TOK_F_ADDED)) continue;
        if (e->flags & TOK_F_CONTROL)
            for (int k = 0; k < BASE_COUNT_OF(eog_text); k++)
                if (strcmp(e->p, eog_text[k]) == 0) e->flags |= TOK_F_EOG;
        if (e->flags & TOK_F_EOG) e->flags |= TOK_F_CONTROL;
        if (t->split_special && (e->flags & TOK_F_SPECIAL)) continue;
        SL_TRY(tok_trie_add(e->flags & TOK_F_NORMALIZED ? &t->norm : &t->raw, e->p, e->n,
                            (uint32_t)id, err));
    }
    return SL_OK;
}
