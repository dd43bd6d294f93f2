/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench --draft: what drafts cost and what they gain. The same prompts are answered without
 * drafts, with 1 to K of them in every step, and with as many as the engine thinks pay, in turn;
 * ratios are of runs of one turn. Every run must make the same tokens. Only steps in which the
 * whole batch decodes are counted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "bench.h"

#define REPEAT_MAX 1000
#define BATCH_MAX 1024
#define PROMPT_TOK 512           /* the longest of a file, where -c does not say */
#define N_ROW (SL_DRAFT_MAX + 2) /* 0 to 7 drafts, and as many as pay */
#define CHOSEN (N_ROW - 1)
#define OP_MAX 32

/* A prompt and its answer. */
struct seq {
    const int32_t *ids;
    int n_ids, n_tok,
        n_first;  /* n_first: tokens of the first answer, those after it are compared */
    int32_t *tok; /* [n] */
    bool differs;
    char error[120]; /* "" = none */
};

/* Steps, and sums of them. */
struct sums {
    double n, ns, n_tok; /* n_tok: computed */
};

/* Steps of one run. */
struct tally {
    struct sums all, full; /* full: every sequence had as many drafts as asked for */
    double draft_ns, tok;  /* tok: made */
    double bytes, n_bytes; /* of full steps of the turn before the first: read, and how many */
};

struct row {
    bool in; /* there were so many drafts */
    double tps[REPEAT_MAX], ns[REPEAT_MAX], draft[REPEAT_MAX];
    /* of a step without the time of making drafts, in the mean: what it takes, and computes */
    double step_ns[REPEAT_MAX], step_tok;
    double n_step, tok;
    double bytes; /* that a step reads, in the mean; 0: not known */
    double hist[BATCH_MAX * (SL_DRAFT_MAX + 1) + 1]; /* steps by tokens */
    sl_stats sum;                                    /* n_draft, n_right of whole runs */
};

struct result {
    double tps, tps_min, tps_max, ms_per_step, cost, draft_cost, gain, predicted;
    double bytes, read; /* of a step; over those of a step without drafts */
    struct compute_draft draft;
};

struct bench_d {
    struct compute c;
    const struct opt_common *o;
    const struct bench_draft_opts *d;
    sl_sampling sampling;
    bool replay, ignore_eos;
    bool counts; /* what is read, in this turn */
    bool passes; /* drafts are made by passes, which read too */
    struct arena arena;
    struct seq *seq; /* [n_seq] */
    int n_seq;
    sl_step_record rec; /* of the last step */
    struct row *row;    /* [N_ROW] */
    struct tally t;
};

/* ---- prompts ---- */

static sl_status prompt_of_line(struct bench_d *b, const struct json *v, struct seq *s, sl_err *err)
{
    const struct json *list = text_json_get(v, "ids"), *chat = text_json_get(v, "messages"),
                      *prompt = text_json_get(v, "prompt");
    int32_t *ids = NULL;
    void *p = NULL;
    if (list) {
        SL_TRY(compute_line_ids(list, &b->arena, &ids, err));
        s->ids = ids;
        s->n_ids = (int)list->n;
        return SL_OK;
    }
    if (chat)
        SL_TRY(compute_line_chat(b->c.m, chat, &ids, &s->n_ids, err));
    else
        SL_TRY(sl_tokenize(b->c.m, prompt->s, prompt->n, SL_TOK_AROUND, &ids, &s->n_ids, err));
    sl_status st = mem_arena_array(&b->arena, (size_t)s->n_ids + 1, sizeof *ids, &p, err);
    if (!st) s->ids = memcpy(p, ids, (size_t)s->n_ids * sizeof *ids);
    sl_free(ids);
    return st;
}

static sl_status read_prompts(struct bench_d *b, char **text, struct compute_lines *l, sl_err *err)
{
    uint64_t n = 0;
    SL_TRY(compute_read(b->d->prompts, text, &n, err));
    SL_TRY(compute_lines(b->d->prompts, *text, n, &b->arena, l, err));
    if (l->n) return SL_OK;
    return SL_FAIL(err, FORMAT, "%.100s: no prompts", b->d->prompts);
}

static sl_status random_prompt(struct bench_d *b, int depth, uint64_t *rng, struct seq *s,
                               sl_err *err)
{
    void *p = NULL;
    s->n_ids = BASE_MAX(depth, 1);
    SL_TRY(mem_arena_array(&b->arena, (size_t)s->n_ids, sizeof *s->ids, &p, err));
    int32_t *ids = p;
    s->ids = ids;
    for (int i = 0; i < s->n_ids; i++)
        ids[i] = (int32_t)(rng_next(rng) % (uint64_t)b->c.mi.n_vocab);
    return SL_OK;
}

/* So many sequences that whole batches answer every prompt, some of them twice. */
static sl_status make_seqs(struct bench_d *b, const struct compute_lines *l, int batch, int depth,
                           sl_err *err)
{
    void *p = NULL;
    uint64_t rng = b->o->seed + 1;
    b->n_seq = (BASE_MAX(l->n, 1) + batch - 1) / batch * batch;
    SL_TRY(mem_arena_array(&b->arena, (size_t)b->n_seq, sizeof *b->seq, &p, err));
    b->seq = p;
    for (int i = 0; i < b->n_seq; i++) {
        struct seq *s = &b->seq[i];
        SL_TRY(mem_arena_array(&b->arena, (size_t)b->d->n, sizeof *s->tok, &p, err));
        *s = (struct seq){.tok = p, .n_first = -1};
        if (l->n)
            SL_TRY(prompt_of_line(b, l->v[i % l->n], s, err));
        else
            SL_TRY(random_prompt(b, depth, &rng, s, err));
        if (s->n_ids + b->d->n > b->c.ei.n_ctx)
            return SL_FAIL(err, LIMIT, "prompt %d: %d tokens and %d more: the context has %d: -c",
                           i % BASE_MAX(l->n, 1) + 1, s->n_ids, b->d->n, b->c.ei.n_ctx);
    }
    return SL_OK;
}

/* ---- a run ---- */

static void on_event(void *user, const sl_event *ev)
{
    struct seq *s = user;
    if (ev->token >= 0) {
        if (s->n_first < 0)
            s->tok[s->n_tok] = ev->token;
        else
            s->differs = s->differs || s->n_tok >= s->n_first || s->tok[s->n_tok] != ev->token;
        s->n_tok++;
    }
    if (ev->finish == SL_FINISH_ERROR) snprintf(s->error, sizeof s->error, "%s", ev->error);
}

static void on_step(void *user, const sl_step_record *rec)
{
    struct bench_d *b = user;
    b->rec = *rec;
}

static sl_status submit(struct bench_d *b, int i, int n_new, int n_draft, sl_err *err)
{
    struct seq *s = &b->seq[i];
    sl_request q = {.ids = s->ids,
                    .n_ids = s->n_ids,
                    .max_tokens = n_new,
                    .n_logprob = -1,
                    .ignore_eos = b->ignore_eos,
                    .sampling = b->sampling,
                    .n_draft = n_draft,
                    .grammar = b->c.grammar,
                    .on_event = on_event,
                    .user = s};
    q.sampling.seed = b->o->seed + (uint64_t)i;
    if (b->replay && s->n_first > 0) {
        q.draft_ids = s->tok;
        q.n_draft_ids = s->n_first;
    }
    s->n_tok = 0;
    return sl_submit(b->c.e, &q, NULL, err);
}

static sl_status step(struct bench_d *b, sl_err *err)
{
    SL_TRY(sl_step(b->c.e, err));
    return cmd_stop ? SL_FAIL(err, CANCELLED, "cancelled") : SL_OK;
}

/* What was read since the call before: weights, keys and values. */
static double bytes_read(struct bench_d *b)
{
    sl_op_stat op[OP_MAX];
    double bytes = 0;
    int n = sl_op_stats(b->c.e, op, OP_MAX);
    for (int i = 0; i < BASE_MIN(n, OP_MAX); i++)
        bytes += op[i].bytes;
    return bytes;
}

static sl_status timed_step(struct bench_d *b, struct row *row, int batch, int k, sl_err *err)
{
    struct tally *t = &b->t;
    sl_stats st;
    sl_stats_get(b->c.e, &st);
    int64_t draft_ns = st.draft_ns, t0 = clock_now_ns();
    SL_TRY(step(b, err));
    double ns = (double)(clock_now_ns() - t0);
    sl_stats_get(b->c.e, &st);
    double bytes = b->counts ? bytes_read(b) : 0;
    if (b->rec.n_seq != batch || b->rec.n_prompt) return SL_OK;
    double drafts = (double)(st.draft_ns - draft_ns);
    struct sums *full = b->rec.n_draft == batch * k ? &t->full : NULL;
    if (full) {
        t->bytes += bytes;
        t->n_bytes++;
    }
    t->draft_ns += drafts;
    t->tok += batch + b->rec.n_right;
    row->hist[b->rec.n_decode]++;
    for (struct sums *s = &t->all; s; s = s == full ? NULL : full) {
        s->n++;
        s->ns += ns - drafts;
        s->n_tok += b->rec.n_decode;
    }
    return SL_OK;
}

/* Sequences i0 to i0 + batch; their prompts come from the prefix tree, so that they begin together.
 */
static sl_status run_batch(struct bench_d *b, int i0, int batch, int i_row, sl_err *err)
{
    int k = i_row == CHOSEN ? 0 : i_row;
    for (int i = i0; i < i0 + batch; i++) {
        struct seq s = b->seq[i];
        SL_TRY(submit(b, i, 1, 1, err)); /* 1: the MTP layer sees the prompt */
        while (sl_pending(b->c.e))
            SL_TRY(step(b, err));
        b->seq[i] = s;
    }
    for (int i = i0; i < i0 + batch; i++)
        SL_TRY(submit(b, i, b->d->n, i_row == 0 ? -1 : k, err));
    while (sl_pending(b->c.e))
        SL_TRY(timed_step(b, &b->row[i_row], batch, k, err));
    for (int i = i0; i < i0 + batch; i++) {
        struct seq *s = &b->seq[i];
        if (s->n_first < 0) s->n_first = s->n_tok;
        if (s->error[0]) return SL_FAIL(err, INTERNAL, "sequence %d: %s", i, s->error);
        if (s->differs || s->n_tok != s->n_first)
            return SL_FAIL(err, INTERNAL, "sequence %d: other tokens with drafts", i);
    }
    return SL_OK;
}

static double median(const double *v, int n)
{
    static double x[REPEAT_MAX];
    memcpy(x, v, (size_t)n * sizeof *x);
    qsort(x, (size_t)n, sizeof *x, compute_by_value);
    return x[n / 2];
}

static sl_status run_row(struct bench_d *b, int batch, int i_row, int repeat, sl_err *err)
{
    struct row *row = &b->row[i_row];
    struct tally *t = &b->t;
    sl_stats s0, s1;
    *t = (struct tally){0};
    b->counts = repeat < 0; /* which takes time with some devices */
    sl_stats_get(b->c.e, &s0);
    for (int i = 0; i < b->n_seq; i += batch)
        SL_TRY(run_batch(b, i, batch, i_row, err));
    sl_stats_get(b->c.e, &s1);
    (void)sl_op_stats(b->c.e, NULL, 0);
    row->in = i_row == 0 || i_row == CHOSEN || s1.n_draft[i_row - 1] > s0.n_draft[i_row - 1];
    if (repeat < 0) {
        memset(row->hist, 0, sizeof row->hist);
        if (i_row != CHOSEN && t->n_bytes > 0 && !b->passes)
            row->bytes = t->bytes / t->n_bytes;
        return SL_OK;
    }
    if (!t->all.n) return SL_FAIL(err, REQUEST, "-n %d: no step of the whole batch", b->d->n);
    const struct sums *like = t->full.n ? &t->full : &t->all; /* had room for fewer: of those */
    row->ns[repeat] = (t->all.ns + t->draft_ns) / t->all.n;
    row->tps[repeat] = t->tok / (t->all.ns + t->draft_ns) * 1e9;
    row->draft[repeat] = t->draft_ns / t->all.n;
    row->step_ns[repeat] = like->ns / like->n;
    row->step_tok = like->n_tok / like->n;
    row->n_step += t->all.n;
    row->tok += t->tok;
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        row->sum.n_draft[j] += s1.n_draft[j] - s0.n_draft[j];
        row->sum.n_judged[j] += s1.n_judged[j] - s0.n_judged[j];
        row->sum.n_right[j] += s1.n_right[j] - s0.n_right[j];
    }
    return SL_OK;
}

/* ---- results ---- */

/* Costs of steps by the tokens that they compute, in rising order. */
struct costs {
    double tok[SL_DRAFT_MAX + 1], cost[SL_DRAFT_MAX + 1];
    int n;
};

/* By lines between those that were measured, the last one of which goes on. */
static double cost_of(const struct costs *c, double n_tok)
{
    int hi = 1;
    if (c->n < 2) return c->cost[0];
    while (hi < c->n - 1 && c->tok[hi] < n_tok)
        hi++;
    double part = (n_tok - c->tok[hi - 1]) / (c->tok[hi] - c->tok[hi - 1]);
    return c->cost[hi - 1] + part * (c->cost[hi] - c->cost[hi - 1]);
}

static double mean_cost(const struct row *row, const struct costs *c, int batch)
{
    double sum = 0;
    for (int i = batch; i <= batch * (SL_DRAFT_MAX + 1); i++)
        if (row->hist[i] > 0) sum += row->hist[i] * cost_of(c, i);
    return sum / row->n_step;
}

static double ratio(const double *a, const double *b, int n)
{
    static double v[REPEAT_MAX];
    for (int i = 0; i < n; i++)
        v[i] = a[i] / b[i];
    return median(v, n);
}

/* Tokens over time are a quotient of means, so costs are those of the mean step. */
static struct costs costs_of(const struct bench_d *b)
{
    struct costs c = {0};
    for (int k = 0; k <= SL_DRAFT_MAX; k++) {
        const struct row *row = &b->row[k];
        if (!row->in || (c.n && row->step_tok <= c.tok[c.n - 1])) continue;
        c.tok[c.n] = row->step_tok;
        c.cost[c.n++] = ratio(row->step_ns, b->row[0].step_ns, b->d->r);
    }
    return c;
}

static struct result result_of(struct bench_d *b, int i_row, const struct costs *c, int batch)
{
    struct row *row = &b->row[i_row];
    const struct row *off = &b->row[0];
    int n = b->d->r;
    struct result r = {.draft = compute_draft_of(&row->sum)};
    r.draft.per_step = row->tok / row->n_step / batch;
    r.gain = ratio(row->tps, off->tps, n);
    r.draft_cost = ratio(row->draft, off->step_ns, n);
    r.cost = i_row == CHOSEN ? mean_cost(row, c, batch) : ratio(row->step_ns, off->step_ns, n);
    r.predicted = r.draft.per_step / (mean_cost(row, c, batch) + r.draft_cost);
    r.ms_per_step = median(row->ns, n) * 1e-6;
    r.bytes = row->bytes;
    r.read = row->bytes > 0 && off->bytes > 0 ? row->bytes / off->bytes : NAN;
    qsort(row->tps, (size_t)n, sizeof *row->tps, compute_by_value);
    r.tps_min = row->tps[0];
    r.tps = row->tps[n / 2];
    r.tps_max = row->tps[n - 1];
    return r;
}

static void print_row(const struct result *r, int i_row, int batch, int depth)
{
    if (i_row == CHOSEN)
        printf("chosen  ");
    else
        printf("draft %d ", i_row);
    printf(" batch %3d depth %6d  %9.1f tok/s (%.1f .. %.1f)  %8.2f ms/step", batch, depth, r->tps,
           r->tps_min, r->tps_max, r->ms_per_step);
    if (i_row) {
        printf("  %.2f tok/step", r->draft.per_step);
        for (int j = 0; j < r->draft.n_pos; j++)
            printf("%s%.2f", j ? " " : ", right ", r->draft.right[j]);
        printf("  cost %.2f + %.3f", r->cost, r->draft_cost);
        if (!isnan(r->read)) printf(" (read %.2f)", r->read);
        printf("  gain %.2f, predicted %.2f", r->gain, r->predicted);
    }
    putchar('\n');
    fflush(stdout);
}

static void put_json(struct json_w *w, const struct bench_d *b, const struct result *r, int i_row)
{
    const struct {
        const char *key;
        double v;
    } real[] = {{"tps", r->tps},         {"tps_min", r->tps_min},
                {"tps_max", r->tps_max}, {"ms_per_step", r->ms_per_step},
                {"cost", r->cost},       {"draft_cost", r->draft_cost},
                {"gain", r->gain},       {"predicted_gain", r->predicted},
                {"read", r->read},       {"bytes_per_step", r->bytes > 0 ? r->bytes : NAN}};
    text_jw_key(w, "drafts");
    if (i_row == CHOSEN)
        text_jw_null(w);
    else
        text_jw_int(w, i_row);
    for (int i = 0; i < BASE_COUNT_OF(real); i++) {
        text_jw_key(w, real[i].key);
        text_jw_real(w, real[i].v, 6);
    }
    compute_draft_json(&r->draft, i_row ? compute_draft_source(b->o) : "off", w);
    text_jw_key(w, "threads");
    text_jw_int(w, b->c.ei.n_thread);
    text_jw_key(w, "model");
    text_jw_strz(w, b->c.mi.name);
}

static void tell(struct bench_d *b, int batch, int depth, struct json_w *w)
{
    const struct costs c = costs_of(b);
    static struct result all[N_ROW];
    for (int i = N_ROW - 1; i >= 0; i--) /* row 0 is what the others are held against */
        if (b->row[i].in) all[i] = result_of(b, i, &c, batch);
    for (int i = 0; i < N_ROW; i++) {
        if (!b->row[i].in) continue;
        if (!b->o->json) {
            print_row(&all[i], i, batch, depth);
            continue;
        }
        text_jw_obj(w);
        text_jw_key(w, "test");
        text_jw_strz(w, "draft");
        text_jw_key(w, "batch");
        text_jw_int(w, batch);
        text_jw_key(w, "depth");
        text_jw_int(w, depth);
        put_json(w, b, &all[i], i);
        text_jw_obj_end(w);
    }
}

static sl_status measure(struct bench_d *b, int batch, int depth, struct json_w *w, sl_err *err)
{
    memset(b->row, 0, N_ROW * sizeof *b->row);
    for (int r = -1; r < b->d->r; r++) {
        for (int i = 0; i < N_ROW; i++)
            if (r < 0 || b->row[i].in) SL_TRY(run_row(b, batch, i, r, err));
        cmd_progress_count(&b->c.progress, "drafts", "repeats", r + 1, b->d->r);
    }
    cmd_progress_end(&b->c.progress);
    tell(b, batch, depth, w);
    return SL_OK;
}

/* ---- all of it ---- */

static sl_status measure_all(struct bench_d *b, struct json_w *w, sl_err *err)
{
    const struct bench_draft_opts *d = b->d;
    struct compute_lines l = {0};
    char *text = NULL;
    sl_status st = d->prompts ? read_prompts(b, &text, &l, err) : SL_OK;
    for (int i = 0; i < d->depth.n && !st; i++)
        for (int j = 0; j < d->batch.n && !st; j++) {
            int batch = d->batch.v[j];
            st = make_seqs(b, &l, batch, d->depth.v[i], err);
            if (!st) st = measure(b, batch, d->depth.v[i], w, err);
        }
    mem_free(text);
    return st;
}

static sl_status run_all(struct bench_d *b, sl_err *err)
{
    struct str json;
    struct json_w w;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, N_ROW, sizeof *b->row, &p, err));
    b->row = p;
    str_init(&json, MEM_MISC, 0);
    text_jw_init(&w, &json);
    text_jw_arr(&w);
    sl_status st = measure_all(b, &w, err);
    text_jw_arr_end(&w);
    if (!st && b->o->json) st = compute_print(&json, err);
    str_fini(&json);
    mem_free(p);
    return st;
}

sl_status bench_draft(const struct opt_common *o, const struct bench_draft_opts *d, sl_err *err)
{
    struct bench_d b = {.o = o, .d = d, .ignore_eos = !d->prompts};
    int batch = 1, longest = o->ctx;
    b.replay = strncmp(compute_draft_source(o), "replay:", 7) == 0;
    b.passes = !b.replay && strcmp(compute_draft_source(o), "ngram") != 0;
    b.sampling.temperature = (float)(d->temp >= 0 ? d->temp : d->prompts ? 0 : 1);
    for (int i = 0; i < d->batch.n; i++)
        batch = BASE_MAX(batch, d->batch.v[i]);
    for (int i = 0; i < d->depth.n; i++)
        longest = BASE_MAX(longest, BASE_MAX(d->depth.v[i], 1) + d->n + 2);
    if (d->prompts) longest = o->ctx ? o->ctx : PROMPT_TOK + d->n;
    sl_engine_opts eo = {.n_seq_max = batch,
                         .n_ctx = longest,
                         .kv_tokens = 2 * (int64_t)batch * (longest + 64),
                         .n_chunk = BASE_MAX(512, 32 * batch),
                         .draft = compute_draft_source(o),
                         .layout = "auto",
                         .on_step = on_step,
                         .step_user = &b};
    SL_TRY(compute_open(&b.c, o, &eo, err));
    mem_arena_init(&b.arena, MEM_MISC, 0);
    sl_status st = compute_constrain(&b.c, d->json_schema, NULL, err);
    if (!st) st = run_all(&b, err);
    mem_arena_fini(&b.arena);
    compute_close(&b.c);
    return st;
}
