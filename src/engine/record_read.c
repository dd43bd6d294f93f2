/* SPDX-License-Identifier: Apache-2.0 */
/* Reading recordings: every number is checked before it is used. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/record.h"

#define LIMIT_MAX (1 << 24) /* of a number in the header */

static const char magic[8] = {'S', 'L', 'S', 'T', 'E', 'P', 'S', '\n'};

static sl_status bad(uint64_t at, const char *what, sl_err *err)
{
    return SL_FAIL(err, FORMAT, "byte %" PRIu64 ": %s", at, what);
}

static void text(struct rd *r, char *out, size_t n)
{
    const uint8_t *p = rd_bytes(r, n);
    memset(out, 0, n);
    for (size_t i = 0; p && i + 1 < n && p[i] >= ' ' && p[i] < 0x7f; i++)
        out[i] = (char)p[i];
}

sl_status engine_record_read_head(struct rd *r, struct record_head *h, sl_err *err)
{
    const uint8_t *p = rd_bytes(r, sizeof magic);
    if (!p || memcmp(p, magic, sizeof magic) != 0) return bad(0, "not a recording of steps", err);
    uint32_t version = rd_u32(r);
    if (rd_ok(r) && version != RECORD_VERSION)
        return SL_FAIL(err, UNSUPPORTED, "recording of version %u: this sluice reads version %d",
                       version, RECORD_VERSION);
    int32_t *number[] = {&h->blk_tok,   &h->acts,    &h->kv,           &h->n_ctx,
                         &h->n_seq_max, &h->n_chunk, &h->n_vocab,      &h->n_blk[0],
                         &h->n_blk[1],  &h->n_pass,  &h->n_draft_vocab};
    h->model = rd_u64(r);
    for (int i = 0; i < BASE_COUNT_OF(number); i++)
        *number[i] = (int32_t)rd_u32(r);
    text(r, h->isa, sizeof h->isa);
    text(r, h->program, sizeof h->program);
    h->n_defer = (int32_t)rd_u32(r);
    h->combine = (int32_t)rd_u32(r);
    uint64_t end = r->pos, check = rd_u64(r);
    if (!rd_ok(r)) return bad(r->size, "the recording ends in its header", err);
    if (check != hash_bytes(r->base, end, 0)) return bad(0, "the header is damaged", err);
    for (int i = 3; i < BASE_COUNT_OF(number); i++) {
        bool may_be_0 = number[i] == &h->n_blk[1] || number[i] == &h->n_draft_vocab;
        if (*number[i] < !may_be_0 || *number[i] > LIMIT_MAX)
            return bad(20, "a size in the header is not possible", err);
    }
    if (h->blk_tok < 16 || h->blk_tok > 4096 || h->n_seq_max > 4096 ||
        h->n_pass > RECORD_PASS_MAX || h->acts < 0 ||
        h->acts > RECORD_SMALL + RECORD_EXACT + DEV_ACTS_F32 || h->kv < 0 || h->kv > DEV_KV_F32 ||
        h->n_defer < 0 || h->n_defer > LIMIT_MAX || h->combine < 0 || h->combine > DEV_COMBINE_Q8)
        return bad(20, "a number in the header is not possible", err);
    return SL_OK;
}

sl_status engine_record_next(struct rd *r, uint32_t *kind, struct rd *body, uint64_t *at,
                             sl_err *err)
{
    uint64_t begin = r->pos;
    *kind = rd_u32(r);
    uint64_t n = rd_u32(r);
    const uint8_t *p = rd_bytes(r, n);
    uint64_t end = r->pos, check = rd_u64(r);
    if (!rd_ok(r))
        return SL_FAIL(err, FORMAT,
                       "byte %" PRIu64 ": the recording ends inside of the record at byte %" PRIu64,
                       r->size, begin);
    if (check != hash_bytes(r->base + begin, end - begin, 0))
        return bad(begin, "the record is damaged", err);
    if (*kind != RECORD_STEP && *kind != RECORD_RESULT)
        return bad(begin, "not a record of a step or a result", err);
    *at = begin + 8;
    *body = rd_init(p, n);
    return SL_OK;
}

/* ---- steps ---- */

sl_status engine_record_step_init(struct record_step *s, const struct record_limits *max,
                                  sl_err *err)
{
    struct step_most most = {.n_tok = max->n_tok,
                             .n_seq = max->n_seq,
                             .n_row = max->n_row,
                             .n_copy = max->n_copy,
                             .n_table = STEP_TABLES,
                             .ld_blk = (max->n_ctx + max->blk_tok - 1) / max->blk_tok};
    *s = (struct record_step){.hidden_row = NULL};
    SL_TRY(engine_room_open(&s->room, &most, err));
    return engine_array((size_t)max->n_tok, sizeof *s->hidden_row, &s->hidden_row, err);
}

void engine_record_step_fini(struct record_step *s)
{
    engine_room_close(&s->room);
    mem_free(s->hidden_row);
}

/* Numbers in [lim[0], lim[1]), and their name where one is not. */
struct field {
    const char *what;
    const int *lim;
};

/* n numbers into out. */
static sl_status numbers(struct rd *r, uint64_t at, const struct field *f, int32_t *out, int n,
                         sl_err *err)
{
    for (int i = 0; i < n; i++) {
        uint64_t here = at + r->pos;
        out[i] = (int32_t)rd_u32(r);
        if (!rd_ok(r)) return bad(here, "the step ends too early", err);
        if (out[i] < f->lim[0] || out[i] >= f->lim[1])
            return SL_FAIL(err, FORMAT, "byte %" PRIu64 ": %s: %d: from %d to %d", here, f->what,
                           out[i], f->lim[0], f->lim[1] - 1);
    }
    return SL_OK;
}

static sl_status rising(uint64_t at, const char *what, const int32_t *v, int n, sl_err *err)
{
    for (int i = 1; i < n; i++)
        if (v[i] <= v[i - 1])
            return SL_FAIL(err, FORMAT, "step at byte %" PRIu64 ": %s: %d after %d", at, what, v[i],
                           v[i - 1]);
    return SL_OK;
}

static sl_status read_counts(struct rd *r, uint64_t at, const struct record_limits *max,
                             struct dev_step *s, int32_t *flags, sl_err *err)
{
    int32_t v;
    SL_TRY(numbers(r, at, &(struct field){"pass", (const int[]){0, max->n_pass}}, &v, 1, err));
    s->pass = v;
    SL_TRY(numbers(r, at, &(struct field){"want", (const int[]){0, 16}}, &v, 1, err));
    s->want = (unsigned)v;
    SL_TRY(numbers(r, at, &(struct field){"tokens", (const int[]){1, max->n_tok + 1}}, &v, 1, err));
    s->n_tok = v;
    SL_TRY(
        numbers(r, at, &(struct field){"sequences", (const int[]){1, max->n_seq + 1}}, &v, 1, err));
    s->n_seq = v;
    SL_TRY(
        numbers(r, at, &(struct field){"copies", (const int[]){0, max->n_copy + 1}}, &v, 1, err));
    s->n_copy = v;
    SL_TRY(numbers(r, at, &(struct field){"rows", (const int[]){0, max->n_row + 1}}, &v, 1, err));
    s->n_row = v;
    return numbers(r, at, &(struct field){"flags", (const int[]){0, 16}}, flags, 1, err);
}

/* Fewer than a sequence has tokens. */
static sl_status read_drafts(struct rd *r, uint64_t at, struct record_step *s, sl_err *err)
{
    const struct step_room *m = &s->room;
    for (int q = 0; q < s->s.n_seq; q++) {
        int n_tok = m->seq_tok0[q + 1] - m->seq_tok0[q];
        const int most[] = {0, BASE_MIN(n_tok, DEV_STATE_BACK + 1)};
        SL_TRY(numbers(r, at, &(struct field){"drafts", most}, m->n_draft + q, 1, err));
    }
    return SL_OK;
}

static sl_status read_keep(struct rd *r, uint64_t at, struct record_step *s, sl_err *err)
{
    for (int i = 0; i < s->s.n_seq; i++) {
        uint64_t id = rd_u64(r);
        uint32_t last = rd_u32(r);
        if (!rd_ok(r) || last > 1) return bad(at + r->pos, "keep: the step is damaged", err);
        s->room.keep[i] = (struct dev_keep){id, last == 1};
    }
    return SL_OK;
}

/* What of each row is wanted; the step wants all of it. */
static sl_status read_row_want(struct rd *r, uint64_t at, struct record_step *s, sl_err *err)
{
    for (int i = 0; i < s->s.n_row; i++) {
        uint64_t here = at + r->pos;
        uint32_t v = rd_u32(r);
        if (!rd_ok(r)) return bad(here, "the step ends too early", err);
        if (v & ~((DEV_WANT_LOGITS | DEV_WANT_BEST) & s->s.want))
            return bad(here, "a row wants more than its step", err);
        s->room.row_want[i] = (uint8_t)v;
    }
    return SL_OK;
}

/* Positions go on by one in a sequence; its blocks follow at the end. */
static sl_status read_blocks(struct rd *r, uint64_t at, const struct record_limits *max,
                             struct record_step *s, sl_err *err)
{
    const struct step_room *m = &s->room;
    for (int q = 0; q < s->s.n_seq; q++) {
        int b = m->seq_tok0[q], e = m->seq_tok0[q + 1];
        for (int t = b + 1; t < e; t++)
            if (m->pos[t] != m->pos[t - 1] + 1)
                return SL_FAIL(err, FORMAT, "step at byte %" PRIu64 ": positions: %d after %d", at,
                               m->pos[t], m->pos[t - 1]);
        for (int g = 0; g < STEP_TABLES; g++)
            if (max->n_blk[g])
                SL_TRY(numbers(r, at, &(struct field){"block", (const int[]){0, max->n_blk[g]}},
                               m->blk[g] + (int64_t)q * m->ld_blk, m->pos[e - 1] / max->blk_tok + 1,
                               err));
    }
    return r->pos == r->size ? SL_OK : bad(at + r->pos, "the step is longer than it says", err);
}

/* Groups, and their blocks from and to. */
static sl_status read_copies(struct rd *r, uint64_t at, const struct record_limits *max,
                             struct record_step *s, sl_err *err)
{
    for (int32_t *c = s->room.copy, *end = c + 3 * s->s.n_copy; c < end; c += 3) {
        static const int groups[] = {0, DEV_KV_GROUPS};
        SL_TRY(numbers(r, at, &(struct field){"group of a copied block", groups}, c, 1, err));
        const int blocks[] = {0, max->n_blk[c[0]]};
        SL_TRY(numbers(r, at, &(struct field){"copied block", blocks}, c + 1, 2, err));
    }
    return SL_OK;
}

static sl_status read_arrays(struct rd *r, uint64_t at, const struct record_limits *max,
                             struct record_step *s, int flags, sl_err *err)
{
    const struct dev_step *d = &s->s;
    const struct step_room *m = &s->room;
    const int vocab[] = {0, max->n_vocab}, ctx[] = {0, max->n_ctx}, tok[] = {0, d->n_tok};
    SL_TRY(numbers(r, at, &(struct field){"token", vocab}, m->ids, d->n_tok, err));
    SL_TRY(numbers(r, at, &(struct field){"position", ctx}, m->pos, d->n_tok, err));
    SL_TRY(numbers(r, at, &(struct field){"first token", (const int[]){0, d->n_tok + 1}},
                   m->seq_tok0, d->n_seq + 1, err));
    if (m->seq_tok0[0] != 0 || m->seq_tok0[d->n_seq] != d->n_tok)
        return bad(at, "the step's sequences are not its tokens", err);
    SL_TRY(rising(at, "first tokens", m->seq_tok0, d->n_seq + 1, err));
    SL_TRY(numbers(r, at, &(struct field){"seat", (const int[]){0, max->n_seq + 1}}, m->seat,
                   d->n_seq, err));
    SL_TRY(numbers(r, at, &(struct field){"prompt", (const int[]){0, max->n_ctx + 1}}, m->n_prompt,
                   d->n_seq, err));
    if (flags & RECORD_HAS_DRAFT) SL_TRY(read_drafts(r, at, s, err));
    if (flags & RECORD_HAS_KEEP) SL_TRY(read_keep(r, at, s, err));
    SL_TRY(read_copies(r, at, max, s, err));
    SL_TRY(numbers(r, at, &(struct field){"row", tok}, m->row_tok, d->n_row, err));
    SL_TRY(rising(at, "rows", m->row_tok, d->n_row, err));
    if (flags & RECORD_HAS_HIDDEN_ROW)
        SL_TRY(numbers(r, at, &(struct field){"hidden row", (const int[]){0, max->n_tok}},
                       s->hidden_row, d->n_tok, err));
    if (flags & RECORD_HAS_ROW_WANT) SL_TRY(read_row_want(r, at, s, err));
    return read_blocks(r, at, max, s, err);
}

sl_status engine_record_read_step(struct rd *body, uint64_t at, const struct record_limits *max,
                                  struct record_step *s, sl_err *err)
{
    int32_t flags;
    s->s = engine_room_step(&s->room, 0, 0, 0);
    if (!max->n_blk[DEV_KV_WINDOW]) s->s.blk[DEV_KV_WINDOW] = NULL;
    SL_TRY(read_counts(body, at, max, &s->s, &flags, err));
    SL_TRY(read_arrays(body, at, max, s, flags, err));
    if (flags & RECORD_HAS_DRAFT) s->s.n_draft = s->room.n_draft;
    if (flags & RECORD_HAS_KEEP) s->s.keep = s->room.keep;
    if (flags & RECORD_HAS_HIDDEN_ROW) s->s.hidden_row = s->hidden_row;
    if (flags & RECORD_HAS_ROW_WANT) s->s.row_want = s->room.row_want;
    return SL_OK;
}

sl_status engine_record_read_result(struct rd *body, uint64_t at, struct record_result *out,
                                    sl_err *err)
{
    uint32_t status = rd_u32(body);
    uint64_t n_row = rd_u32(body);
    *out = (struct record_result){.status = (sl_status)status, .n_row = (int)n_row};
    out->row = rd_bytes(body, 8 * n_row);
    out->hidden = rd_u64(body);
    out->finite = rd_u64(body);
    if (!rd_ok(body) || body->pos != body->size || n_row > INT_MAX || status > 255)
        return bad(at, "the result is damaged", err);
    return SL_OK;
}
