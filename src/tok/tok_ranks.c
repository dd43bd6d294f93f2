/* SPDX-License-Identifier: Apache-2.0 */
/* Folders without tokenizer.json whose words are bytes: tiktoken.model (base64 of a word and its
 * rank, a line each), and GPT-2's vocab.json with merges.txt. */
#include <stdio.h>
#include <string.h>

#include "tok/tok_internal.h"

/* ---- tiktoken.model ---- */
static int digit64(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* n characters of base64 to bytes; -1 = they are none. */
static int from64(const char *p, size_t n, char *out)
{
    int k = 0;
    if (n == 0 || n % 4) return -1;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        int pad = 0;
        for (int j = 0; j < 4; j++) {
            bool end = i + 4 == n && p[i + (size_t)j] == '=' && j >= 2;
            int d = end ? 0 : digit64(p[i + (size_t)j]);
            if (d < 0 || (pad && !end)) return -1;
            pad += end;
            v = v << 6 | (uint32_t)d;
        }
        for (int j = 0; j < 3 - pad; j++)
            out[k++] = (char)(v >> (16 - 8 * j));
    }
    return k;
}

struct rank_line {
    const char *p; /* base64 */
    size_t n;
    int64_t rank;
};

/* The line at *at; false at the end. */
static sl_status next_line(const char *p, size_t n, size_t *at, struct rank_line *out, bool *more,
                           sl_err *err)
{
    while (*at < n && (p[*at] == '\n' || p[*at] == '\r'))
        ++*at;
    *more = *at < n;
    if (!*more) return SL_OK;
    size_t begin = *at, i = begin;
    *out = (struct rank_line){.p = p + begin};
    while (i < n && p[i] != ' ' && p[i] != '\n')
        i++;
    out->n = i - begin;
    size_t digits = ++i;
    while (i < n && p[i] >= '0' && p[i] <= '9' && i - digits < 9)
        out->rank = out->rank * 10 + (p[i++] - '0');
    if (digits > n || i == digits || (i < n && p[i] != '\n' && p[i] != '\r') || out->n > 8192 ||
        out->rank >= TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "byte %zu: not a word in base64 and its rank", begin);
    *at = i;
    return SL_OK;
}

static sl_status put_words(const struct tok_src *s, tok *t, uint32_t *rank, sl_err *err)
{
    size_t at = 0;
    struct rank_line w;
    bool more = true;
    char word[8192];
    for (;;) {
        SL_TRY(next_line(s->f->tiktoken_model, s->f->n_tiktoken_model, &at, &w, &more, err));
        if (!more) break;
        int n = from64(w.p, w.n, word);
        if (n <= 0)
            return SL_FAIL(err, FORMAT, "rank %lld: the word is no base64", (long long)w.rank);
        SL_TRY(tok_build_bytes(t, w.rank, word, (size_t)n, err));
        rank[w.rank] = (uint32_t)w.rank;
    }
    SL_TRY(tok_build_index(t, false, err));
    return tok_build_splits(t, rank, err);
}

static sl_status build_ranks(const struct tok_src *s, struct tok_join *join, int64_t n_word,
                             int n_reserved, tok *t, sl_err *err)
{
    int64_t top = -1, last = n_word + n_reserved - 1;
    int n_vocab = 0;
    void *p = NULL;
    tok_join_ids(join, n_word, &top);
    SL_TRY(tok_src_size(s, (size_t)(n_word + n_reserved), BASE_MAX(top, last), &n_vocab, err));
    t->ignore_merges = true;
    SL_TRY(tok_build_begin(t, n_vocab, 0, err));
    SL_TRY(mem_arena_array(s->a, (size_t)n_vocab, sizeof(uint32_t), &p, err));
    memset(p, 0xff, (size_t)n_vocab * sizeof(uint32_t));
    SL_TRY(put_words(s, t, p, err));
    SL_TRY(tok_join_build(join, t, err));
    for (int64_t id = n_word; id <= last; id++) {
        char text[40];
        if (tok_valid(t, id)) continue;
        int n = snprintf(text, sizeof text, "<|reserved_token_%lld|>", (long long)id);
        SL_TRY(tok_build_added(t, id, text, (size_t)n, TOK_F_SPECIAL, err));
    }
    return SL_OK;
}

bool tok_ranks_like(const char *p, size_t n)
{
    size_t at = 0;
    struct rank_line w;
    bool more = false;
    char word[8192];
    return next_line(p, n, &at, &w, &more, NULL) == SL_OK && more && from64(w.p, w.n, word) > 0;
}

sl_status tok_ranks_open(const struct tok_src *s, tok *t, sl_err *err)
{
    static const char name[] = "tiktoken.model";
    struct tok_join join = {
        .a = s->a, .config = s->config, .map = s->map, .added = s->added, .own_ids = true};
    const struct tok_rule *its = NULL;
    size_t at = 0;
    struct rank_line w;
    bool more = true;
    int64_t n_word = 0, n_line = 0;
    SL_TRY(tok_rule_of_class(s, name, true, &its, err));
    while (more) {
        SL_TRY(tok_in_file(
            next_line(s->f->tiktoken_model, s->f->n_tiktoken_model, &at, &w, &more, err), name,
            err));
        if (!more) break;
        n_word = BASE_MAX(n_word, w.rank + 1);
        n_line++;
    }
    if (n_word > n_line * 4 + 65536)
        return SL_FAIL(err, FORMAT, "%s: rank %lld in a vocabulary of %lld words", name,
                       (long long)n_word - 1, (long long)n_line);
    SL_TRY(tok_rule_use(t, its, err));
    SL_TRY(tok_join_read(&join, err));
    return tok_in_file(build_ranks(s, &join, n_word, its->n_reserved, t, err), name, err);
}

/* ---- vocab.json and merges.txt ---- */
static sl_status put_merges(const struct tok_files *f, tok *t, uint64_t *n_merge, sl_err *err)
{
    const char *p = f->merges_txt, *end = p + f->n_merges_txt;
    uint32_t i = 0;
    for (bool first = true; p < end; first = false) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *sp;
        size_t n = (size_t)(stop - p);
        if (n > 0 && p[n - 1] == '\r') n--;
        if (n > 0 && !(first && n > 8 && memcmp(p, "#version", 8) == 0)) {
            sp = memchr(p, ' ', n);
            if (!sp || sp == p || sp + 1 == p + n)
                return SL_FAIL(err, FORMAT, "merges.txt: byte %zu: no pair",
                               (size_t)(p - f->merges_txt));
            if (t)
                SL_TRY(tok_build_merge(
                    t, i,
                    (struct tok_halves){p, (size_t)(sp - p), sp + 1, n - (size_t)(sp - p) - 1},
                    true, err));
            i++;
        }
        p = nl ? nl + 1 : end;
    }
    *n_merge = i;
    return SL_OK;
}

sl_status tok_vocab_open(const struct tok_src *s, tok *t, sl_err *err)
{
    static const char name[] = "vocab.json";
    struct tok_join join = {
        .a = s->a, .config = s->config, .map = s->map, .added = s->added, .own_ids = true};
    const struct json *vocab = NULL;
    const struct tok_rule *its = NULL;
    int64_t top = -1, added = -1;
    uint64_t n_merge = 0;
    int n_vocab = 0;
    bool space = false;
    SL_TRY(tok_rule_of_class(s, name, false, &its, err));
    SL_TRY(text_json_parse(s->a, name, s->f->vocab_json, s->f->n_vocab_json, &vocab, err));
    if (vocab->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s is no object", name);
    SL_TRY(text_json_bool(s->config, "add_prefix_space", false, &space, err));
    if (space) SL_TRY(tok_pre_space(t, err));
    SL_TRY(tok_rule_use(t, its, err));
    SL_TRY(tok_join_read(&join, err));
    SL_TRY(tok_in_file(tok_json_words(vocab, &join, &top, err), name, err));
    tok_join_ids(&join, (int64_t)vocab->n, &added);
    SL_TRY(tok_src_size(s, vocab->n + join.n_name, BASE_MAX(top, added), &n_vocab, err));
    SL_TRY(put_merges(s->f, NULL, &n_merge, err));
    SL_TRY(tok_build_begin(t, n_vocab, n_merge, err));
    for (const struct json *m = vocab->child; m; m = m->next)
        SL_TRY(tok_in_file(tok_build_word(t, m->i, m->key, m->n_key, err), name, err));
    SL_TRY(tok_in_file(tok_build_index(t, false, err), name, err));
    SL_TRY(put_merges(s->f, t, &n_merge, err));
    return tok_in_file(tok_join_build(&join, t, err), name, err);
}
