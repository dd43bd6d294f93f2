/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids: added tokens first (in the raw text, then after the normaliser), then pre-tokens,
 * then merges. Who wrote a byte only decides which added tokens may be found there; pre-tokens run
 * across the borders, as in the reference. */
#include <string.h>

#include "text/nfc.h"
#include "text/uni.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

struct run {
    const tok *t;
    struct tok_cut cut;
    struct tok_bpe bpe;
    struct tok_ids *out;
    sl_err *err;
};

/* A part of a text with spans: p = text + off. */
struct view {
    const char *p;
    size_t n, off;
    struct text_tmpl_spans spans;
    size_t zero; /* as tok_cut's */
};

/* How many bytes from p + i on are the template's, at most TOK_MAX_ADDED. */
static size_t clean(const struct view *v, size_t i)
{
    size_t at = v->off + i, end = at;
    int lo = 0, hi = v->spans.n;
    while (lo < hi) { /* the first span that ends after at */
        int mid = lo + (hi - lo) / 2;
        if (v->spans.v[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < v->spans.n && !v->spans.v[lo].user && v->spans.v[lo].begin <= end &&
           end - at < TOK_MAX_ADDED;
         lo++)
        end = v->spans.v[lo].end;
    return end - at;
}

static bool word_at(const char *p, size_t n)
{
    uint32_t cp;
    return n > 0 && text_utf8_decode(p, n, &cp) > 0 && text_uni_word(cp);
}

static size_t back(const char *p, size_t i)
{
    do
        i--;
    while (i > 0 && ((unsigned char)p[i] & 0xc0) == 0x80);
    return i;
}

static size_t white_left(const char *p, size_t low, size_t i)
{
    uint32_t cp;
    while (i > low) {
        size_t k = back(p, i);
        if (k < low || text_utf8_decode(p + k, i - k, &cp) == 0 || !text_uni_white(cp)) break;
        i = k;
    }
    return i;
}

static size_t white_right(const char *p, size_t n, size_t i)
{
    uint32_t cp;
    while (i < n) {
        int k = text_utf8_decode(p + i, n - i, &cp);
        if (k == 0 || !text_uni_white(cp)) break;
        i += (size_t)k;
    }
    return i;
}

typedef sl_status plain_fn(struct run *r, const struct view *v);

static struct view cut(const struct view *v, size_t begin, size_t end)
{
    struct view c = *v;
    c.p += begin;
    c.off += begin;
    c.n = end - begin;
    c.zero = v->zero > begin ? v->zero - begin : 0;
    return c;
}

/* Find the added tokens of one trie; what is between goes to plain. White space that one takes on
 * its right may begin the next one too, as in the reference. */
static sl_status scan(struct run *r, const struct tok_trie *tr, const struct view *v,
                      plain_fn *plain)
{
    size_t last = 0;
    for (size_t i = 0; tr->n && i < v->n;) {
        uint32_t id = 0;
        size_t k = tr->first[(unsigned char)v->p[i]]
                       ? tok_trie_match(r->t, tr, v->p + i, v->n - i, clean(v, i), &id)
                       : 0;
        if (k == 0) {
            i++;
            continue;
        }
        uint32_t f = r->t->v[id].flags;
        size_t begin = i, end = i + k;
        i = end;
        if ((f & TOK_F_SINGLE_WORD) &&
            ((begin > 0 && word_at(v->p + back(v->p, begin), begin - back(v->p, begin))) ||
             word_at(v->p + end, v->n - end)))
            continue;
        if (f & TOK_F_LSTRIP) begin = white_left(v->p, last, begin);
        if (f & TOK_F_RSTRIP) end = white_right(v->p, v->n, end);
        if (begin > last) {
            struct view c = cut(v, last, begin);
            SL_TRY(plain(r, &c));
        }
        SL_TRY(tok_ids_put(r->out, (int32_t)id, r->err));
        last = end;
    }
    if (last == v->n) return SL_OK;
    struct view c = cut(v, last, v->n);
    return plain(r, &c);
}

/* Is there room for at least so many more? Known before the work is done. */
static sl_status room_for(const struct run *r, size_t n_word)
{
    const struct tok_ids *o = r->out;
    if (!o->max || !r->t->max_piece || n_word <= (size_t)(o->max - o->n)) return SL_OK;
    return SL_FAIL(r->err, LIMIT, "more than %d tokens", o->max);
}

static sl_status words(struct run *r, const struct view *v)
{
    struct tok_cut *c = &r->cut;
    SL_TRY(room_for(r, v->n / BASE_MAX(r->t->max_piece, 1)));
    c->zero = v->zero;
    SL_TRY(tok_pre_split(r->t, c, v->p, v->n, r->err));
    SL_TRY(room_for(r, c->out->n));
    for (size_t i = 0; i < c->out->n; i++) {
        struct tok_piece w = c->out->v[i];
        SL_TRY(tok_bpe_word(r->t, &r->bpe, c->p + w.begin, w.end - w.begin, r->out, r->err));
    }
    return SL_OK;
}

/* Normalise span by span, so that it stays known who wrote what. Step k and those after it. */
static sl_status normalise(struct run *r, const struct view *v, int k)
{
    struct tok_norm_state state = {.zero = v->zero, .head = v->zero > 0};
    struct str s;
    void *p = NULL;
    int n = 0;
    sl_status st = SL_OK;
    const tok *t = r->t;
    while (k < t->n_norm && t->norm_step[k].kind == TOK_NORM_NFC && text_nfc_quick(v->p, v->n))
        k++;
    if (k == t->n_norm) return scan(r, &t->norm, v, words);
    str_init(&s, MEM_REQUEST, 0);
    SL_TRY_OUT(mem_alloc_array(MEM_REQUEST, (size_t)v->spans.n, sizeof *v->spans.v, &p, r->err));
    struct text_tmpl_span *span = p;
    for (int i = 0; i < v->spans.n; i++) {
        size_t b = BASE_MAX(v->spans.v[i].begin, v->off),
               e = BASE_MIN(v->spans.v[i].end, v->off + v->n);
        if (b >= e) continue;
        span[n].begin = s.n;
        span[n].user = v->spans.v[i].user;
        SL_TRY_OUT(tok_norm_part(
            t, k, &state, (struct tok_text){v->p + (b - v->off), (uint32_t)(e - b)}, &s, r->err));
        span[n++].end = s.n;
    }
    tok_norm_end(t, k, &state, &s);
    for (int i = n - 1; i >= 0 && span[i].end > s.n; i--) {
        span[i].end = s.n;
        span[i].begin = BASE_MIN(span[i].begin, s.n);
    }
    struct view w = {.p = str_c(&s), .n = s.n, .spans = {span, n}, .zero = state.out_zero};
    st = s.n ? normalise(r, &w, k + 1) : SL_OK;
out:
    str_fini(&s);
    mem_free(p);
    return st;
}

static sl_status plain_raw(struct run *r, const struct view *v)
{
    return normalise(r, v, 0);
}

sl_status tok_encode_spans(const tok *t, const char *text, size_t n,
                           const struct text_tmpl_spans *spans, struct tok_ids *out, sl_err *err)
{
    if (n > INT32_MAX) return SL_FAIL(err, LIMIT, "text of %zu bytes is over 2 GiB", n);
    size_t good = text_utf8_check(text, n);
    if (good < n) return SL_FAIL(err, REQUEST, "text is not UTF-8 at byte %zu", good);
    if (n == 0) return SL_OK;
    struct run r = {.t = t, .out = out, .err = err};
    struct view v = {.p = text, .n = n, .spans = *spans};
    uint32_t cp;
    v.zero = (size_t)text_utf8_decode(text, n, &cp);
    text_match *m = NULL;
    sl_status st = text_match_open(MEM_REQUEST, &m, err);
    tok_cut_init(&r.cut, m);
    if (st == SL_OK) st = scan(&r, &t->raw, &v, plain_raw);
    text_match_close(m);
    tok_cut_fini(&r.cut);
    tok_bpe_fini(&r.bpe);
    return st;
}

sl_status tok_encode(const tok *t, const char *text, size_t n, int flags, struct tok_ids *out,
                     sl_err *err)
{
    struct text_tmpl_span all = {.end = n, .user = !(flags & TOK_SPECIAL)};
    const struct text_tmpl_spans spans = {&all, 1};
    if ((flags & TOK_BOS) && !t->n_front && t->bos >= 0) SL_TRY(tok_ids_put(out, t->bos, err));
    for (int i = 0; (flags & TOK_BOS) && i < t->n_front; i++)
        SL_TRY(tok_ids_put(out, t->front[i], err));
    SL_TRY(tok_encode_spans(t, text, n, &spans, out, err));
    for (int i = 0; (flags & TOK_EOS) && i < t->n_back; i++)
        SL_TRY(tok_ids_put(out, t->back[i], err));
    return SL_OK;
}

/* ---- back to text ---- */

static void settle(struct tok_stream *s, struct str *out, bool last)
{
    while (s->n_pend > 0) {
        uint32_t cp;
        int cut = 0, k = text_utf8_decode(s->pend, (size_t)s->n_pend, &cp);
        if (k > 0) {
            str_put(out, s->pend, (size_t)k);
        } else {
            k = text_utf8_bad(s->pend, (size_t)s->n_pend, &cut);
            if (cut && !last) return;
            str_puts(out, "\xef\xbf\xbd");
        }
        s->n_pend -= k;
        memmove(s->pend, s->pend + k, (size_t)s->n_pend);
    }
}

void tok_stream_front(const tok *t, struct tok_stream *s, int32_t id, const char **p, int *n)
{
    if (!s->front || *n == 0) return;
    if (t->first) {
        *p = t->first[id].p;
        *n = (int)t->first[id].n;
        s->front = false;
        return;
    }
    int most = t->strip < 0 ? 1 : t->strip - s->n_space, k = 0;
    while (k < *n && k < most && (*p)[k] == ' ')
        k++;
    *p += k;
    *n -= k;
    s->n_space += k;
    /* where SentencePiece squeezes spaces it takes one from every token before the first text */
    bool more = t->strip < 0 || s->n_space < t->strip;
    if (*n > 0 || !more) s->front = false;
}

sl_status tok_stream_put(const tok *t, struct tok_stream *s, int32_t id, bool special,
                         struct str *out, sl_err *err)
{
    int n = 0;
    if (id < 0 || id >= t->n_vocab)
        return SL_FAIL(err, REQUEST, "token id %d is outside 0..%d", (int)id, t->n_vocab - 1);
    const char *p = tok_bytes(t, id, &n);
    if (!special && tok_is_special(t, id)) return SL_OK;
    tok_stream_front(t, s, id, &p, &n);
    for (int i = 0; i < n; i++) {
        if (s->n_pend == 0) { /* whole runs of ASCII at once */
            int k = i;
            while (k < n && (unsigned char)p[k] < 0x80)
                k++;
            str_put(out, p + i, (size_t)(k - i));
            i = k;
            if (i == n) break;
        }
        s->pend[s->n_pend++] = p[i];
        settle(s, out, false);
    }
    return str_status(out, err);
}

sl_status tok_stream_end(struct tok_stream *s, struct str *out, sl_err *err)
{
    settle(s, out, true);
    return str_status(out, err);
}
