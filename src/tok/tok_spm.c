/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece: tokenizer.model (a protocol buffer), and what it shares with GGUF's "llama"
 * vocabularies: merges by score. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rd.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

/* ---- merges by score ---- */
struct scored {
    float score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

sl_status tok_spm_merges(tok *t, struct arena *a, const float *score, const bool *merged,
                         sl_err *err)
{
    void *p = NULL;
    size_t n = (size_t)t->n_vocab, k = 0;
    SL_TRY(mem_arena_array(a, n, sizeof(uint32_t), &p, err));
    uint32_t *rank = p, r = 0;
    SL_TRY(mem_arena_array(a, n, sizeof(struct scored), &p, err));
    struct scored *v = p;
    for (uint32_t id = 0; id < n; id++) {
        rank[id] = TOK_NONE;
        if (!merged[id]) continue;
        if (isnan(score[id])) return SL_FAIL(err, FORMAT, "the score of token %u is no number", id);
        v[k++] = (struct scored){score[id], id};
    }
    qsort(v, k, sizeof *v, by_score);
    for (size_t i = 0; i < k; i++) {
        if (i > 0 && v[i].score != v[i - 1].score) r++;
        rank[v[i].id] = r;
    }
    return tok_build_splits(t, rank, err);
}

/* ---- the protocol buffer ---- */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { UNIGRAM = 1, BPE };
static const char *const model_name[] = {"?", "unigram", "bpe", "word", "char"};

struct field {
    uint32_t number;
    int wire;
    uint64_t num;    /* of numbers */
    struct rd bytes; /* of strings and messages */
};

static uint64_t varint(struct rd *r)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = rd_u8(r);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return v;
    }
    r->failed = true;
    return 0;
}

/* The next field; false at the end, or where r fails. */
static bool next(struct rd *r, struct field *f)
{
    if (!rd_ok(r) || rd_left(r) == 0) return false;
    uint64_t key = varint(r), n;
    *f = (struct field){.number = (uint32_t)(key >> 3), .wire = (int)(key & 7)};
    const uint8_t *p;
    switch (f->wire) {
    case 0:
        f->num = varint(r);
        break;
    case 1:
        f->num = rd_u64(r);
        break;
    case 2:
        n = varint(r);
        p = rd_bytes(r, n);
        if (p) f->bytes = rd_init(p, n);
        break;
    case 5:
        f->num = rd_u32(r);
        break;
    default:
        r->failed = true;
    }
    if (key >> 3 == 0 || key >> 35) r->failed = true;
    return rd_ok(r);
}

struct piece {
    const char *p;
    size_t n;
    float score;
    int type;
};

struct model {
    struct piece *v;
    size_t n;
    int64_t type, unk, bos, eos;
    bool byte_fallback, suffix, dummy, squeeze, escape;
    struct rd charsmap;
};

static bool read_piece(struct rd r, struct piece *x)
{
    struct field f;
    *x = (struct piece){.p = "", .type = NORMAL};
    while (next(&r, &f)) {
        uint32_t bits = (uint32_t)f.num;
        if (f.number == 1 && f.wire == 2) x->p = (const char *)f.bytes.base, x->n = f.bytes.size;
        if (f.number == 2 && f.wire == 5) memcpy(&x->score, &bits, 4);
        if (f.number == 3 && f.wire == 0) x->type = (int)BASE_MIN(f.num, 100);
    }
    return rd_ok(&r);
}

static bool read_trainer(struct rd r, struct model *m)
{
    struct field f;
    while (next(&r, &f)) {
        if (f.wire != 0) continue;
        int64_t id = (int32_t)f.num;
        if (f.number == 3) m->type = (int64_t)BASE_MIN(f.num, 100);
        if (f.number == 24) m->suffix = f.num != 0;
        if (f.number == 35) m->byte_fallback = f.num != 0;
        if (f.number == 41) m->bos = id;
        if (f.number == 42) m->eos = id;
    }
    return rd_ok(&r);
}

static bool read_normalizer(struct rd r, struct model *m)
{
    struct field f;
    while (next(&r, &f)) {
        if (f.number == 2 && f.wire == 2) m->charsmap = f.bytes;
        if (f.wire != 0) continue;
        if (f.number == 3) m->dummy = f.num != 0;
        if (f.number == 4) m->squeeze = f.num != 0;
        if (f.number == 5) m->escape = f.num != 0;
    }
    return rd_ok(&r);
}

static sl_status read_model(const char *p, size_t n, struct arena *a, struct model *m, sl_err *err)
{
    struct rd r = rd_init(p, n), count = r;
    struct field f;
    void *q = NULL;
    size_t n_piece = 0;
    *m = (struct model){
        .type = UNIGRAM, .bos = 1, .eos = 2, .dummy = true, .squeeze = true, .escape = true};
    while (next(&count, &f))
        n_piece += f.number == 1 && f.wire == 2;
    if (!rd_ok(&count))
        return SL_FAIL(err, FORMAT, "byte %llu: no SentencePiece model",
                       (unsigned long long)count.pos);
    if (n_piece == 0 || n_piece > TOK_MAX_VOCAB)
        return SL_FAIL(err, FORMAT, "no SentencePiece model: %zu pieces", n_piece);
    SL_TRY(mem_arena_array(a, n_piece, sizeof *m->v, &q, err));
    m->v = q;
    while (next(&r, &f)) {
        bool ok = true;
        if (f.wire != 2) continue;
        if (f.number == 1) ok = read_piece(f.bytes, &m->v[m->n++]);
        if (f.number == 2) ok = read_trainer(f.bytes, m);
        if (f.number == 3) ok = read_normalizer(f.bytes, m);
        if (!ok)
            return SL_FAIL(err, FORMAT, "byte %llu: a malformed message of field %u",
                           (unsigned long long)r.pos, f.number);
    }
    return SL_OK;
}

/* ---- building ---- */
static sl_status check(struct model *m, sl_err *err)
{
    if (m->type != BPE)
        return SL_FAIL(err, UNSUPPORTED, "a SentencePiece model of type %s: only bpe is supported",
                       m->type >= 1 && m->type <= 4 ? model_name[m->type] : model_name[0]);
    if (m->suffix)
        return SL_FAIL(err, UNSUPPORTED, "SentencePiece with treat_whitespace_as_suffix");
    m->unk = -1;
    for (size_t i = 0; i < m->n; i++) {
        if (m->v[i].type < NORMAL || m->v[i].type > BYTE)
            return SL_FAIL(err, FORMAT, "piece %zu has the type %d", i, m->v[i].type);
        if (m->v[i].n == 0) return SL_FAIL(err, FORMAT, "piece %zu is empty", i);
        if (m->v[i].type != UNKNOWN) continue;
        if (m->unk >= 0)
            return SL_FAIL(err, FORMAT, "pieces %lld and %zu are both the unknown one",
                           (long long)m->unk, i);
        m->unk = (int64_t)i;
    }
    return m->unk >= 0 ? SL_OK : SL_FAIL(err, FORMAT, "no piece is the unknown one");
}

static sl_status set_normalizer(const struct tok_src *s, const struct model *m, tok *t, sl_err *err)
{
    bool legacy = true, prefix = m->dummy;
    char *copy = NULL;
    SL_TRY(text_json_bool(s->config, "legacy", true, &legacy, err));
    SL_TRY(text_json_bool(s->config, "add_prefix_space", prefix, &prefix, err));
    t->spm.prefix = !prefix ? TOK_PREPEND_NEVER : legacy ? TOK_PREPEND_ALWAYS : TOK_PREPEND_FIRST;
    t->spm.squeeze = m->squeeze;
    t->strip = m->squeeze ? -1 : prefix;
    SL_TRY(mem_arena_str(&t->a, (const char *)m->charsmap.base, m->charsmap.size, &copy, err));
    SL_TRY(tok_norm_charsmap(t, copy, m->charsmap.size, err));
    SL_TRY(tok_build_mark(t, m->escape ? "\xe2\x96\x81" : " ", err));
    return tok_norm_add(t, TOK_NORM_SPM, NULL, NULL, err);
}

static sl_status put_pieces(const struct model *m, const struct tok_join *join, tok *t,
                            struct arena *a, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(a, (size_t)t->n_vocab, sizeof(float), &p, err));
    float *score = p;
    SL_TRY(mem_arena_array(a, (size_t)t->n_vocab, sizeof(bool), &p, err));
    bool *merged = p;
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *x = &m->v[i];
        score[i] = x->score;
        merged[i] = x->type == NORMAL || x->type == USER_DEFINED || x->type == UNUSED;
        if (merged[i] || x->type == BYTE) SL_TRY(tok_build_chars(t, (int64_t)i, x->p, x->n, err));
        if (x->type == UNUSED) t->v[i].flags |= TOK_F_UNUSED;
    }
    SL_TRY(tok_build_index(t, true, err));
    SL_TRY(tok_spm_merges(t, a, score, merged, err));
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *x = &m->v[i];
        uint32_t flags = x->type == USER_DEFINED ? TOK_F_NORMALIZED : TOK_F_SPECIAL;
        if (x->type != USER_DEFINED && x->type != CONTROL && x->type != UNKNOWN) continue;
        if (x->n && !tok_join_has(join, x->p, x->n))
            SL_TRY(tok_build_added(t, (int64_t)i, x->p, x->n, flags, err));
    }
    return SL_OK;
}

/* Named tokens that the configuration leaves to the model. */
static sl_status set_names(const struct model *m, tok *t, sl_err *err)
{
    const struct {
        const char *name;
        int64_t id;
    } row[] = {{"bos_token", m->bos}, {"eos_token", m->eos}, {"unk_token", m->unk}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        int64_t id = row[i].id;
        if (id < 0 || id >= (int64_t)m->n || tok_special_id(t, row[i].name) >= 0) continue;
        SL_TRY(tok_build_special(t, row[i].name, m->v[id].p, m->v[id].n, (int32_t)id, err));
    }
    return SL_OK;
}

static sl_status build(const struct tok_src *s, const struct model *m, struct tok_join *join,
                       tok *t, sl_err *err)
{
    int64_t top = -1;
    int n_vocab = 0;
    bool front = true, back = false;
    for (size_t i = 0; i < m->n; i++)
        tok_join_word(join, m->v[i].p, m->v[i].n, (int64_t)i);
    tok_join_ids(join, (int64_t)m->n, &top);
    SL_TRY(tok_src_size(s, m->n + join->n_name, BASE_MAX(top, (int64_t)m->n - 1), &n_vocab, err));
    t->chars = t->fuse_unk = true;
    t->byte_words = t->byte_decode = m->byte_fallback;
    SL_TRY(set_normalizer(s, m, t, err));
    SL_TRY(tok_build_begin(t, n_vocab, 0, err));
    t->unk = (int32_t)m->unk;
    SL_TRY(put_pieces(m, join, t, s->a, err));
    SL_TRY(tok_join_build(join, t, err));
    if (!tok_valid(t, t->unk))
        return SL_FAIL(err, FORMAT, "two pieces are spelled like the unknown one");
    SL_TRY(set_names(m, t, err));
    SL_TRY(text_json_bool(s->config, "add_bos_token", true, &front, err));
    SL_TRY(text_json_bool(s->config, "add_eos_token", false, &back, err));
    if (front && t->bos >= 0) SL_TRY(tok_build_around(t, true, t->bos, err));
    if (back && t->eos >= 0) SL_TRY(tok_build_around(t, false, t->eos, err));
    return SL_OK;
}

sl_status tok_spm_open(const struct tok_src *s, tok *t, sl_err *err)
{
    static const char name[] = "tokenizer.model";
    struct tok_join join = {
        .a = s->a, .config = s->config, .map = s->map, .added = s->added, .own_ids = true};
    struct model m;
    SL_TRY(tok_in_file(read_model(s->f->tokenizer_model, s->f->n_tokenizer_model, s->a, &m, err),
                       name, err));
    SL_TRY(tok_in_file(check(&m, err), name, err));
    SL_TRY(tok_join_read(&join, err));
    return tok_in_file(build(s, &m, &join, t, err), name, err);
}
