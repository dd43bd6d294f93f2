/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: what an engine writes while it runs, and running one again. */
#include "engine/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/engine_internal.h"

static const char magic[8] = {'S', 'L', 'S', 'T', 'E', 'P', 'S', '\n'};

/* ---- writing ---- */

static void put(struct engine_record *r, const void *p, size_t n)
{
    ASSERT(n <= r->cap - r->n);
    if (n) memcpy(r->p + r->n, p, n);
    r->n += n;
}

static void put_i32(struct engine_record *r, int32_t v)
{
    put(r, &v, sizeof v);
}

static void put_u64(struct engine_record *r, uint64_t v)
{
    put(r, &v, sizeof v);
}

static void put_i32s(struct engine_record *r, const int32_t *v, int n)
{
    put(r, v, (size_t)n * sizeof *v);
}

static void begin(struct engine_record *r, uint32_t kind)
{
    r->n = 0;
    put_i32(r, (int32_t)kind);
    put_i32(r, 0); /* its length, known at the end */
}

static void end(struct engine_record *r)
{
    uint32_t n = (uint32_t)(r->n - 8);
    memcpy(r->p + 4, &n, sizeof n);
    put_u64(r, hash_bytes(r->p, r->n, 0));
}

static void give(sl_engine *e)
{
    e->opts.on_record(e->opts.record_user, e->record->p, e->record->n);
}

uint64_t engine_record_model(const sl_engine *e)
{
    const io_model *io = e->m->io;
    uint64_t h = hash_bytes(e->m->cfg.arch, strlen(e->m->cfg.arch), 0);
    h = hash_bytes(&e->m->bytes, sizeof e->m->bytes, h);
    for (int i = 0; i < io_n_tensor(io); i++) {
        const struct tensor *t = io_tensor(io, i);
        h += hash_bytes(t->name, strlen(t->name),
                        hash_bytes(t->shape, sizeof t->shape, (uint64_t)t->n_dim));
        if (t->n_dim == 1 && t->data && !t->row_bytes && !t->col_bytes)
            h += hash_bytes(t->data, t->n_bytes, 1);
    }
    return h;
}

/* All that a step may have, whatever is drafted at most. */
static int n_pass(const sl_engine *e)
{
    return 1 + (e->mtp.on ? e->m->cfg.n_mtp : 0);
}

/* As many whole words of a name as there is room for, without the parenthesis that would be cut. */
static void name_words(char *out, size_t n, const char *name)
{
    snprintf(out, n, "%s", name);
    if (strlen(name) < n) return;
    char *end = name[n - 1] == ' ' ? NULL : strrchr(out, ' '), *open = strrchr(out, '(');
    if (end) *end = '\0';
    if (open && open > out && !strchr(open, ')')) open[-(open[-1] == ' ')] = '\0';
}

static struct record_head head_of(const sl_engine *e)
{
    struct dev_info di;
    dev_info_get(e->d, &di);
    struct record_head h = {.model = e->record_model,
                            .acts = (int32_t)di.acts + (e->opts.exact ? RECORD_EXACT : 0) +
                                    (e->mtp.small ? RECORD_SMALL : 0),
                            .kv = (int32_t)e->kv_shape.type,
                            .n_ctx = e->n_ctx,
                            .n_seq_max = e->n_seq_max,
                            .n_chunk = e->opts.n_chunk,
                            .n_pass = n_pass(e),
                            .n_defer = e->opts.n_defer,
                            .combine = (int32_t)e->combine,
                            .n_draft_vocab = e->opts.draft_vocab,
                            .blk_tok = ENGINE_BLK_TOK,
                            .n_vocab = e->n_vocab};
    for (int g = 0; g < engine_n_table(e); g++)
        h.n_blk[g] = e->n_home * e->kv_shape.group[g].n_blk;
    name_words(h.isa, sizeof h.isa, di.isa);
    snprintf(h.program, sizeof h.program, "%s", sl_version());
    return h;
}

static void write_head(sl_engine *e)
{
    struct engine_record *r = e->record;
    struct record_head h = head_of(e);
    const int32_t number[] = {h.blk_tok,   h.acts,    h.kv,           h.n_ctx,
                              h.n_seq_max, h.n_chunk, h.n_vocab,      h.n_blk[0],
                              h.n_blk[1],  h.n_pass,  h.n_draft_vocab};
    r->n = 0;
    put(r, magic, sizeof magic);
    put_i32(r, RECORD_VERSION);
    put_u64(r, h.model);
    put_i32s(r, number, BASE_COUNT_OF(number));
    put(r, h.isa, sizeof h.isa);
    put(r, h.program, sizeof h.program);
    put_i32(r, h.n_defer);
    put_i32(r, h.combine);
    put_u64(r, hash_bytes(r->p, r->n, 0));
    give(e);
}

size_t engine_record_most(const sl_engine *e)
{
    size_t ld = (size_t)engine_blocks(e->n_ctx);
    return 256 + 28 * (size_t)e->n_tok_max +
           (size_t)e->n_seq_max * (40 + 12 * MODEL_COPIES + 4 * STEP_TABLES * ld);
}

sl_status engine_record_open(sl_engine *e, sl_err *err)
{
    void *p = NULL;
    if (!e->opts.on_record) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 1, sizeof *e->record, &p, err));
    e->record = p;
    e->record->cap = engine_record_most(e);
    SL_TRY(mem_alloc(MEM_SCRATCH, e->record->cap, &p, err));
    e->record->p = p;
    write_head(e);
    return SL_OK;
}

void engine_record_close(sl_engine *e)
{
    if (e->record) mem_free(e->record->p);
    mem_free(e->record);
}

void engine_record_put_step(struct engine_record *r, int n_table, const struct dev_step *s)
{
    const int32_t count[] = {s->pass,
                             (int32_t)s->want,
                             s->n_tok,
                             s->n_seq,
                             s->n_copy,
                             s->n_row,
                             (s->keep ? RECORD_HAS_KEEP : 0) |
                                 (s->hidden_row ? RECORD_HAS_HIDDEN_ROW : 0) |
                                 (s->row_want ? RECORD_HAS_ROW_WANT : 0) |
                                 (s->n_draft ? RECORD_HAS_DRAFT : 0)};
    begin(r, RECORD_STEP);
    put_i32s(r, count, BASE_COUNT_OF(count));
    put_i32s(r, s->ids, s->n_tok);
    put_i32s(r, s->pos, s->n_tok);
    put_i32s(r, s->seq_tok0, s->n_seq + 1);
    put_i32s(r, s->seat, s->n_seq);
    put_i32s(r, s->n_prompt, s->n_seq);
    if (s->n_draft) put_i32s(r, s->n_draft, s->n_seq);
    for (int i = 0; s->keep && i < s->n_seq; i++) {
        put_u64(r, s->keep[i].id);
        put_i32(r, s->keep[i].last);
    }
    put_i32s(r, s->copy, 3 * s->n_copy);
    put_i32s(r, s->row_tok, s->n_row);
    if (s->hidden_row) put_i32s(r, s->hidden_row, s->n_tok);
    for (int i = 0; s->row_want && i < s->n_row; i++)
        put_i32(r, s->row_want[i]);
    for (int i = 0; i < s->n_seq; i++) {
        int last = s->pos[s->seq_tok0[i + 1] - 1];
        for (int g = 0; g < n_table; g++)
            put_i32s(r, s->blk[g] + (int64_t)i * s->ld_blk, last / ENGINE_BLK_TOK + 1);
    }
    end(r);
}

void engine_record_step(sl_engine *e, const struct dev_step *s)
{
    engine_record_put_step(e->record, engine_n_table(e), s);
    give(e);
}

/* What was wanted of it: its logits, the id of the largest. */
static uint64_t hash_row(const sl_engine *e, const struct dev_step *s,
                         const struct model_rows *rows, int i)
{
    size_t n = (size_t)model_n_logit(e->net, s->pass);
    uint64_t h = 0;
    if (dev_row_wants(s, i, DEV_WANT_LOGITS))
        h = hash_bytes(rows->logits + (size_t)i * n, n * sizeof(float), 0);
    if (dev_row_wants(s, i, DEV_WANT_BEST)) h = hash_bytes(&rows->best[i], sizeof *rows->best, h);
    return h;
}

static int n_row_of(const struct dev_step *s, const struct model_rows *rows)
{
    return rows->logits || rows->best ? s->n_row : 0;
}

static uint64_t hash_hidden(const sl_engine *e, const struct dev_step *s,
                            const struct model_rows *rows)
{
    size_t n = (size_t)s->n_tok * (size_t)e->m->cfg.d_model;
    return rows->hidden ? hash_bytes(rows->hidden, n * sizeof(float), 0) : 0;
}

static uint64_t hash_finite(const struct dev_step *s, const struct model_rows *rows)
{
    return rows->finite ? hash_bytes(rows->finite, (size_t)s->n_seq, 0) : 0;
}

void engine_record_result(sl_engine *e, const struct dev_step *s, sl_status st,
                          const struct model_rows *rows)
{
    struct engine_record *r = e->record;
    bool good = st == SL_OK;
    int n_row = good ? n_row_of(s, rows) : 0;
    begin(r, RECORD_RESULT);
    put_i32(r, (int32_t)st);
    put_i32(r, n_row);
    for (int i = 0; i < n_row; i++)
        put_u64(r, hash_row(e, s, rows, i));
    put_u64(r, good ? hash_hidden(e, s, rows) : 0);
    put_u64(r, good ? hash_finite(s, rows) : 0);
    end(r);
    give(e);
}

/* ---- running one again ---- */

sl_status sl_record_opts(const void *p, size_t n, sl_engine_opts *opts, sl_err *err)
{
    static const sl_kv kv[] = {[DEV_KV_BF16] = SL_KV_BF16,
                               [DEV_KV_F16] = SL_KV_F16,
                               [DEV_KV_Q8] = SL_KV_Q8,
                               [DEV_KV_F32] = SL_KV_F32};
    struct rd r = rd_init(p, n);
    struct record_head h;
    SL_TRY(engine_record_read_head(&r, &h, err));
    opts->acts = (sl_acts)(h.acts & (RECORD_EXACT - 1));
    opts->exact = (h.acts & RECORD_EXACT) != 0;
    opts->kv = kv[h.kv];
    opts->n_ctx = h.n_ctx;
    opts->n_seq_max = h.n_seq_max;
    opts->n_chunk = h.n_chunk;
    opts->n_defer = h.n_defer;
    opts->combine = engine_combine_name((enum dev_combine)h.combine);
    opts->draft = h.n_pass > 1 ? "mtp" : NULL;
    opts->draft_vocab = h.n_draft_vocab;
    opts->kv_tokens = (int64_t)h.n_blk[0] * h.blk_tok;
    return SL_OK;
}

static sl_status differs(const char *what, int a, int b, sl_err *err)
{
    if (a == b) return SL_OK;
    return SL_FAIL(err, REQUEST, "the recording's %s is %d, this engine's %d", what, a, b);
}

static sl_status check_head(const sl_engine *e, const struct record_head *h, sl_err *err)
{
    struct record_head own = head_of(e);
    int n = e->n_home; /* of several the first has all of it, so each must have room for that */
    if (h->n_vocab != own.n_vocab || h->model != own.model)
        return SL_FAIL(err, REQUEST, "the recording is of another model than %.100s", e->m->name);
    const int form = RECORD_EXACT - 1;
    SL_TRY(differs("precision of activations (acts)", h->acts & form, own.acts & form, err));
    SL_TRY(differs("form for all devices (exact)", !!(h->acts & RECORD_EXACT),
                   !!(own.acts & RECORD_EXACT), err));
    SL_TRY(differs("type of the KV cache", h->kv, own.kv, err));
    SL_TRY(differs("block of the KV cache in tokens", h->blk_tok, own.blk_tok, err));
    SL_TRY(differs("context", h->n_ctx, own.n_ctx, err));
    SL_TRY(differs("number of sequences", h->n_seq_max, own.n_seq_max / n, err));
    SL_TRY(differs("chunk", h->n_chunk, own.n_chunk / n, err));
    SL_TRY(differs("number of passes of a step", h->n_pass, own.n_pass, err));
    if ((h->acts ^ own.acts) & RECORD_SMALL)
        return SL_FAIL(err, REQUEST, "the recording's MTP layer %s a packed file, this engine's %s",
                       h->acts & RECORD_SMALL ? "is not of" : "is of",
                       own.acts & RECORD_SMALL ? "is not" : "is");
    SL_TRY(differs("number of experts that come late", h->n_defer, own.n_defer, err));
    SL_TRY(differs("form of experts' outputs (combine)", h->combine, own.combine, err));
    SL_TRY(
        differs("vocabulary for drafts (draft_vocab)", h->n_draft_vocab, own.n_draft_vocab, err));
    SL_TRY(differs("number of KV blocks", h->n_blk[0], own.n_blk[0] / n, err));
    if (n > 1 && own.n_blk[1] / n >= h->n_blk[1]) return SL_OK;
    return differs("number of window KV blocks", h->n_blk[1], own.n_blk[1] / n, err);
}

/* Hold a step's results against those of the recording. */
static void compare(const sl_engine *e, const struct dev_step *s, const struct model_rows *rows,
                    const struct record_result *want, sl_replay_info *out)
{
    int n_row = n_row_of(s, rows), n_bad = n_row != want->n_row, first = -1;
    for (int i = 0; i < n_row && i < want->n_row; i++) {
        uint64_t h = hash_row(e, s, rows, i), w;
        memcpy(&w, want->row + 8 * i, sizeof w);
        if (h == w) continue;
        if (first < 0) first = i;
        n_bad++;
    }
    n_bad += hash_hidden(e, s, rows) != want->hidden;
    n_bad += hash_finite(s, rows) != want->finite;
    out->n_row += (uint64_t)n_row;
    if (n_bad && !out->n_differ) {
        out->first_step = out->n_step;
        out->first_row = first;
    }
    out->n_differ += (uint64_t)n_bad;
}

struct replay {
    struct rd r, body; /* the file, the record under way */
    struct record_step step;
    struct record_limits max; /* the engine's */
    int n_hidden;             /* tokens of the pass before, whose hidden states there are */
    sl_replay_info *out;
};

struct record_limits engine_record_limits(const sl_engine *e)
{
    struct record_limits max = {.n_tok = e->n_tok_max,
                                .n_seq = e->n_seq_max,
                                .n_row = e->n_logit_max,
                                .n_copy = MODEL_COPIES * e->n_seq_max,
                                .n_pass = 2 * n_pass(e) - 1, /* entries alone, too */
                                .n_ctx = e->n_ctx,
                                .blk_tok = ENGINE_BLK_TOK,
                                .n_vocab = e->n_vocab};
    for (int g = 0; g < engine_n_table(e); g++)
        max.n_blk[g] = e->n_home * e->kv_shape.group[g].n_blk;
    if (engine_kv_has(&e->m->cfg, DEV_KV_STATE))
        max.n_blk[DEV_KV_STATE] = e->n_home * e->kv_shape.group[DEV_KV_STATE].n_blk;
    return max;
}

/* The hidden states that go into a pass after the first are there. */
static sl_status check_hidden(const struct replay *p, uint64_t at, sl_err *err)
{
    const struct dev_step *s = &p->step.s;
    for (int t = 0; t < s->n_tok && s->pass; t++) {
        int row = s->hidden_row ? s->hidden_row[t] : t;
        if (row >= p->n_hidden)
            return SL_FAIL(err, FORMAT,
                           "step at byte %" PRIu64 ": hidden row: %d: the pass before has %d", at,
                           row, p->n_hidden);
    }
    return SL_OK;
}

/* The step at byte at, and the result that follows it. */
static sl_status replay_step(sl_engine *e, struct replay *p, uint64_t at, sl_err *err)
{
    struct record_step *step = &p->step;
    sl_replay_info *out = p->out;
    struct record_result want;
    struct model_rows rows;
    uint32_t kind;
    SL_TRY(engine_record_read_step(&p->body, at, &p->max, step, err));
    SL_TRY(check_hidden(p, at, err));
    int64_t t0 = clock_now_ns();
    SL_TRY(engine_run(e, &step->s, &rows, err));
    if (step->s.pass <= e->m->cfg.n_mtp) p->n_hidden = step->s.n_tok; /* else they stay */
    out->ns += clock_now_ns() - t0;
    out->n_step++;
    out->n_tok += (uint64_t)step->s.n_tok;
    if (!rd_left(&p->r)) return SL_OK; /* it was written until this step's end */
    SL_TRY(engine_record_next(&p->r, &kind, &p->body, &at, err));
    if (kind != RECORD_RESULT)
        return SL_FAIL(err, FORMAT, "byte %" PRIu64 ": a step without its result", at);
    SL_TRY(engine_record_read_result(&p->body, at, &want, err));
    if (want.status == SL_OK) compare(e, &step->s, &rows, &want, out);
    return SL_OK;
}

sl_status sl_replay(sl_engine *e, const void *p, size_t n, sl_replay_info *out, sl_err *err)
{
    memset(out, 0, sizeof *out);
    SL_TRY(engine_need_here(e, "sl_replay", err));
    struct replay play = {.r = rd_init(p, n), .max = engine_record_limits(e), .out = out};
    struct record_head h;
    sl_status st = SL_OK;
    SL_TRY(engine_record_read_head(&play.r, &h, err));
    SL_TRY(check_head(e, &h, err));
    memcpy(out->isa, h.isa, sizeof out->isa);
    memcpy(out->program, h.program, sizeof h.program);
    if (e->stats.n_step || sl_pending(e))
        return SL_FAIL(err, REQUEST, "a recording is replayed on an engine that ran no requests");
    st = engine_record_step_init(&play.step, &play.max, err);
    while (!st && rd_left(&play.r)) {
        uint32_t kind;
        uint64_t at;
        st = engine_record_next(&play.r, &kind, &play.body, &at, err);
        if (!st && kind != RECORD_STEP)
            st = SL_FAIL(err, FORMAT, "byte %" PRIu64 ": a result without its step", at);
        if (!st) st = replay_step(e, &play, at, err);
    }
    engine_record_step_fini(&play.step);
    return st;
}
