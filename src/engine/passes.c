/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of the drafter, which is the model's MTP layer (mtp.c) or a small model (small.c). The
 * first goes over tokens that are known and guesses the next one of some sequences. Of a model with
 * several MTP layers each has a pass over the same places: layer j takes what layer j - 1 made of
 * them and the tokens one further on, the last of which may be a guess, and makes guess j. More
 * passes, of one row per sequence, take a guess as the next token and make the one after it, as
 * many as pay. What these store is overwritten by the pass of a later step before anything reads
 * it.
 *
 * Nobody reads what the last layer makes of a token without a row but its entry in the cache. Where
 * there are many, in prompts, they have a pass that ends with it, and the whole layer sees the rows
 * alone: the same bits.
 *
 * Of a request that draws the guess may be drawn too: as if the drafter's logits were the model's,
 * with the noise that the model's row at that place will have. The two agree far more often than
 * two draws of distributions so alike; room spec says when more often than the likeliest token. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine_internal.h"
#include "par/par.h"

/* ---- the guesses of a pass ---- */

/* What of the pass's rows is wanted. */
static void want_rows(sl_engine *e, int n_row, struct dev_step *s)
{
    s->want = DEV_WANT_BEST;
    for (int i = 0; i < n_row; i++) {
        bool logits = engine_draws(e->drafter.row[i].r);
        e->room->row_want[i] = DEV_WANT_BEST | (logits ? DEV_WANT_LOGITS : 0);
        if (logits) s->want |= DEV_WANT_LOGITS;
    }
    if (s->want & DEV_WANT_LOGITS) s->row_want = e->room->row_want;
}

/* Guess number j of n_row rows; of logits the first n_vocab of a row are tokens. */
struct guessing {
    sl_engine *e;
    const struct model_rows *rows;
    int n_row, j, n_vocab;
    int64_t ld;
    const int32_t *ids; /* NULL, or what the logits of a row stand for, in place of the first ids */
    struct par_counter at;
};

/* Row i's logits by id: those without one never change. */
static const float *logits_of(const struct guessing *g, int worker, int i)
{
    const float *x = g->rows->logits + i * g->ld;
    float *all = g->e->sampler[worker].all;
    if (!g->ids) return x;
    for (int k = 0; k < g->ld; k++)
        all[g->ids[k]] = x[k];
    return all;
}

/* Row i's. A guess that can not be drawn is the likeliest token. */
static void guess(const struct guessing *g, int worker, int i)
{
    sl_engine *e = g->e;
    struct engine_drafter_row *row = &e->drafter.row[i];
    struct request *r = row->r;
    sl_err err;
    int best = g->rows->best[i];
    if (g->ids && best >= 0 && best < g->ld) best = g->ids[best];
    row->guess = best < g->n_vocab ? best : -1;
    if (row->guess >= 0 && engine_draws(r)) {
        struct engine_pick k = {
            .r = r, .at = g->j, .logit = logits_of(g, worker, i), .best = best};
        struct spec_pair pair = {{best, best}, 1};
        bool greedy = !(r->g->sampling.temperature > 0),
             drawn = engine_draw_guess(e, worker, &k, g->n_vocab, &pair, &err) == SL_OK;
        if (drawn)
            row->guess = greedy ? pair.id[1]
                                : spec_choose(&r->spec, &e->spec.taught, r->n_ids, g->j, pair);
    }
    /* what comes after it is drawn as after a token */
    if (row->guess >= 0 && r->n_ids + g->j < r->cap) r->ids[r->n_ids + g->j] = row->guess;
}

static void guess_rows(void *arg, int worker, int n_worker)
{
    struct guessing *g = arg;
    int b, end;
    (void)n_worker;
    if (worker >= g->e->n_sampler) return;
    while (par_take(&g->at, g->n_row, 1, &b, &end))
        guess(g, worker, b);
}

static void take_guesses(sl_engine *e, const struct model_rows *rows, int n_row, int j)
{
    const model *net = e->small.on ? e->small.net : e->net;
    const int32_t *ids = e->small.on ? NULL : e->mtp.ids;
    int ld = model_n_logit(net, 1);
    struct guessing g = {.e = e,
                         .rows = rows,
                         .n_row = n_row,
                         .j = j,
                         .n_vocab = ids ? e->n_vocab : BASE_MIN(ld, e->n_vocab),
                         .ld = ld,
                         .ids = ids};
    if (rows->logits && n_row > 1 && n_row * ld > ENGINE_ALONE)
        dev_host_run(e->d, guess_rows, &g);
    else
        guess_rows(&g, 0, 1);
    for (int i = 0; i < n_row; i++) {
        const struct engine_drafter_row *row = &e->drafter.row[i];
        if (row->guess < 0 || row->n_offer != j) continue; /* none after one that is none */
        spec_offer(&row->r->spec, row->r->n_ids, j, row->guess);
        e->drafter.row[i].n_offer++;
    }
}

/* ---- passes ---- */

/* Entries alone are worth a pass of their own where tokens without a row are so many. */
#define ENTRIES_FROM 4

/* Layers that run: no more than there may be drafts in a row. */
static int n_layer_of(const sl_engine *e)
{
    return e->small.on ? 1 : BASE_MIN(model_n_mtp(e->net), e->spec.n_max);
}

/* The pass's sequence i is that of row, of one token, which the row is wanted of; it takes the
 * hidden state hidden_row. */
static void move_row(sl_engine *e, int i, struct engine_drafter_row row, int hidden_row)
{
    struct engine_drafter *d = &e->drafter;
    struct step_room *room = e->room;
    engine_cache_move(e, row.seq, 0, i);
    room->seat[i] = room->seat[row.seq];
    room->n_prompt[i] = room->n_prompt[row.seq];
    room->n_draft[i] = room->n_draft[row.seq] + 1; /* all of its guesses still are */
    room->seq_tok0[i] = i;
    d->hidden_row[i] = hidden_row;
    row.seq = d->row_tok[i] = i;
    d->row[i] = row;
}

/* The last layer's entries of all tokens; then the arrays are those of its rows alone, which need
 * the layer as a whole: prompts have few. */
static sl_status store_entries(sl_engine *e, struct engine_pass *n, int j, sl_err *err)
{
    struct engine_drafter *d = &e->drafter;
    struct model_rows none;
    struct dev_step s = engine_step(e, n->tok, n->seq, 0);
    s.pass = model_entries_pass(e->net, j);
    s.want = 0;
    s.ids = d->ids;
    s.pos = d->pos;
    s.hidden_row = d->hidden_row;
    SL_TRY(engine_run(e, &s, &none, err));
    for (int i = 0; i < n->row; i++) {
        int at = d->row_tok[i];
        d->ids[i] = d->ids[at];
        d->pos[i] = d->pos[at];
        move_row(e, i, d->row[i], d->hidden_row[at]);
    }
    e->room->seq_tok0[n->row] = n->row;
    n->tok = n->seq = n->row;
    return SL_OK;
}

/* Run what is in the arrays; guess number j of the rows, by layer j or, as there are no more of
 * them, the last one. */
static sl_status run_pass(sl_engine *e, struct engine_pass n, int j, struct model_rows *rows,
                          sl_err *err)
{
    const struct engine_drafter *d = &e->drafter;
    int last = n_layer_of(e) - 1;
    if (!e->small.on && j == last && (n.row == 0 || n.tok - n.row >= ENTRIES_FROM))
        SL_TRY(store_entries(e, &n, j, err));
    if (n.tok == 0) return SL_OK;
    struct dev_step s = engine_step(e, n.tok, n.seq, n.row);
    s.pass = 1 + BASE_MIN(j, last);
    s.ids = d->ids;
    s.pos = d->pos;
    s.row_tok = d->row_tok;
    want_rows(e, n.row, &s);
    if (e->small.on) {
        if (e->small.has_state) s.n_draft = e->room->n_draft;
        SL_TRY(engine_small_launch(e, &s, rows, err));
    } else {
        s.hidden_row = d->hidden_row;
        SL_TRY(engine_run(e, &s, rows, err));
    }
    take_guesses(e, rows, n.row, j);
    return SL_OK;
}

/* How many guesses r gets, if all get as many as pay. */
static int depth_of(const sl_engine *e, const struct request *r, int as_pay)
{
    int most = engine_spec_most(e, r);
    return r->g->n_draft > 0 ? most : BASE_MIN(most, as_pay);
}

static int passes_that_pay(sl_engine *e, int n_row)
{
    struct spec_clock clock = engine_spec_clock(e);
    for (int i = 0; i < n_row; i++)
        e->spec.want[i] = (struct spec_want){.s = &e->drafter.row[i].r->spec};
    return spec_plan_passes(&e->spec.plan, e->spec.want, n_row, e->spec.n_max, &clock);
}

/* Make the guesses of a pass the tokens of the next one, as far as guess j is wanted and its place
 * is in a block; returns how many. Entries up to a row's own are free. */
static int next_pass(sl_engine *e, int n_row, int j, int as_pay)
{
    struct engine_drafter *d = &e->drafter;
    struct step_room *room = e->room;
    int n = 0;
    for (int i = 0; i < n_row; i++) {
        struct engine_drafter_row row = d->row[i];
        int at = d->row_tok[i], pos = d->pos[at] + 1;
        if (row.guess < 0 || depth_of(e, row.r, as_pay) <= j || pos >= row.end) continue;
        d->ids[n] = row.guess;
        d->pos[n] = pos;
        move_row(e, n++, row, at);
    }
    room->seq_tok0[n] = n;
    return n;
}

/* Make the arrays those of the next layer, which guesses number j: every place has the token after
 * the one that it had. Where nobody knows the last one and there is no guess it stays. */
static void next_layer(sl_engine *e, struct engine_pass n, int j)
{
    struct engine_drafter *d = &e->drafter;
    const int32_t *tok0 = e->room->seq_tok0;
    for (int i = 0; i < n.seq; i++) {
        int last = tok0[i + 1] - 1;
        for (int t = tok0[i]; t < last; t++)
            d->ids[t] = d->ids[t + 1];
        if (j <= d->n_after[i]) d->ids[last] = d->after[i][j - 1];
    }
    for (int i = 0; i < n.row; i++)
        if (d->row[i].guess >= 0) d->ids[tok0[d->row[i].seq + 1] - 1] = d->row[i].guess;
    for (int t = 0; t < n.tok; t++)
        d->hidden_row[t] = t;
}

sl_status engine_passes(sl_engine *e, struct engine_pass n, int64_t t0, struct spec_passes *t,
                        sl_err *err)
{
    struct model_rows rows;
    int n_layer = n_layer_of(e);
    for (int i = 0; i < n.row; i++)
        e->drafter.row[i].n_offer = 0;
    sl_status st = run_pass(e, n, 0, &rows, err);
    for (int j = 1; j < n_layer && !st; j++) {
        next_layer(e, n, j);
        st = run_pass(e, n, j, &rows, err);
    }
    int64_t t1 = clock_now_ns();
    *t = (struct spec_passes){.ns = (double)(t1 - t0)};
    int n_row = n.row, as_pay = st ? 0 : passes_that_pay(e, n_row);
    while (!st && (n_row = next_pass(e, n_row, n_layer + t->n_more, as_pay)) > 0) {
        n = (struct engine_pass){n_row, n_row, n_row};
        st = run_pass(e, n, n_layer + t->n_more++, &rows, err);
    }
    t->more_ns = (double)(clock_now_ns() - t1);
    return st;
}

sl_status engine_passes_open(sl_engine *e, sl_err *err)
{
    struct engine_drafter *d = &e->drafter;
    size_t n_tok = (size_t)e->n_tok_max;
    SL_TRY(engine_array(5 * n_tok, sizeof *d->ids, &d->ids, err));
    d->pos = d->ids + n_tok;
    d->hidden_row = d->pos + n_tok;
    d->row_tok = d->hidden_row + n_tok;
    SL_TRY(engine_array((size_t)e->n_seq_max, sizeof *d->after, &d->after, err));
    d->n_after = d->row_tok + n_tok;
    return engine_array((size_t)e->n_seq_max, sizeof *d->row, &d->row, err);
}

void engine_passes_close(sl_engine *e)
{
    mem_free(e->drafter.ids);
    mem_free(e->drafter.row);
    mem_free(e->drafter.after);
}
