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

/* A prompt and its answer. */
struct seq {
    const int32_t *ids;
    int n_ids, n_tok,
        n_first;  /* n_first: tokens of the first answer, those after it are compared */
    int32_t *tok; /* [n] */
    bool differs;
    char error[120]; /* "" = none */
};

/* Steps of one run. */
struct tally {
    int n_step, n_full;
    double ns, draft_ns, tok;
    double *full_ns; /* [n_full] of steps in which every sequence had as many drafts as asked for */
};

struct row {
    bool in; /* there were so many drafts */
    double tps[REPEAT_MAX], ns[REPEAT_MAX], full[REPEAT_MAX], draft[REPEAT_MAX];
    double n_step, tok;
    double hist[BATCH_MAX * (SL_DRAFT_MAX + 1) + 1]; /* steps by tokens */
    sl_stats sum;                                    /* n_draft, n_right of whole runs */
};

struct result {
    double tps, tps_min, tps_max, ms_per_step, cost, draft_cost, gain, predicted;
    struct compute_draft draft;
};

struct bench_d {
    struct compute c;
    const struct opt_common *o;
    const struct bench_draft_opts *d;
    sl_sampling sampling;
    bool replay, ignore_eos;
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

static sl_status timed_step(struct bench_d *b, struct row *row, int batch, int k, sl_err *err)
{
    struct tally *t = &b->t;
    sl_stats st;
    sl_stats_get(b->c.e, &st);
    int64_t draft_ns = st.draft_ns, t0 = clock_now_ns();
    SL_TRY(step(b, err));
    double ns = (double)(clock_now_ns() - t0);
    sl_stats_get(b->c.e, &st);
    if (b->rec.n_seq != batch || b->rec.n_prompt) return SL_OK;
    double drafts = (double)(st.draft_ns - draft_ns);
    t->n_step++;
    t->ns += ns;
    t->draft_ns += drafts;
    t->tok += batch + b->rec.n_right;
    row->hist[b->rec.n_decode]++;
    if (b->rec.n_draft == batch * k) t->full_ns[t->n_full++] = ns - drafts;
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

/* Of those of n values that are numbers; NaN: none is. */
static double median(const double *v, int n)
{
    static double x[REPEAT_MAX];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(v[i])) x[m++] = v[i];
    qsort(x, (size_t)m, sizeof *x, compute_by_value);
    return m ? x[m / 2] : NAN;
}

static sl_status run_row(struct bench_d *b, int batch, int i_row, int repeat, sl_err *err)
{
    struct row *row = &b->row[i_row];
    struct tally *t = &b->t;
    sl_stats s0, s1;
    t->n_step = t->n_full = 0;
    t->ns = t->draft_ns = t->tok = 0;
    sl_stats_get(b->c.e, &s0);
    for (int i = 0; i < b->n_seq; i += batch)
        SL_TRY(run_batch(b, i, batch, i_row, err));
    sl_stats_get(b->c.e, &s1);
    row->in = i_row == 0 || i_row == CHOSEN || s1.n_draft[i_row - 1] > s0.n_draft[i_row - 1];
    if (repeat < 0) {
        memset(row->hist, 0, sizeof row->hist);
        return SL_OK;
    }
    if (!t->n_step) return SL_FAIL(err, REQUEST, "-n %d: no step of the whole batch", b->d->n);
    qsort(t->full_ns, (size_t)t->n_full, sizeof *t->full_ns, compute_by_value);
    row->tps[repeat] = t->tok / t->ns * 1e9;
    row->ns[repeat] = t->ns / t->n_step;
    row->draft[repeat] = t->draft_ns / t->n_step;
    row->full[repeat] = t->n_full ? t->full_ns[t->n_full / 2] : NAN;
    row->n_step += t->n_step;
    row->tok += t->tok;
    for (int j = 0; j < SL_DRAFT_MAX; j++) {
        row->sum.n_draft[j] += s1.n_draft[j] - s0.n_draft[j];
        row->sum.n_judged[j] += s1.n_judged[j] - s0.n_judged[j];
        row->sum.n_right[j] += s1.n_right[j] - s0.n_right[j];
    }
    return SL_OK;
}

/* ---- results ---- */

/* The cost of a step of n_tok tokens, by lines between those of 1, 2, .. tokens a sequence; NaN:
 * not known. */
static double cost_of(const double *cost, int batch, int n_tok)
{
    int lo = n_tok / batch - 1, hi = (n_tok + batch - 1) / batch - 1;
    double part = (double)(n_tok - (lo + 1) * batch) / batch;
    if (hi > SL_DRAFT_MAX) return NAN;
    return lo == hi ? cost[lo] : cost[lo] + part * (cost[hi] - cost[lo]);
}

static double mean_cost(const struct row *row, const double *cost, int batch)
{
    double sum = 0;
    for (int i = batch; i <= batch * (SL_DRAFT_MAX + 1); i++)
        if (row->hist[i] > 0) sum += row->hist[i] * cost_of(cost, batch, i);
    return sum / row->n_step;
}

static double ratio(const double *a, const double *b, int n)
{
    static double v[REPEAT_MAX];
    for (int i = 0; i < n; i++)
        v[i] = a[i] / b[i];
    return median(v, n);
}

static struct result result_of(struct bench_d *b, int i_row, const double *cost, int batch)
{
    struct row *row = &b->row[i_row];
    const struct row *off = &b->row[0];
    int n = b->d->r;
    struct result r = {.draft = compute_draft_of(&row->sum)};
    r.draft.per_step = row->tok / row->n_step / batch;
    r.gain = ratio(row->tps, off->tps, n);
    r.draft_cost = ratio(row->draft, off->full, n);
    r.cost = i_row == CHOSEN ? mean_cost(row, cost, batch) : cost[i_row];
    r.predicted = r.draft.per_step / (mean_cost(row, cost, batch) + r.draft_cost);
    r.ms_per_step = median(row->ns, n) * 1e-6;
    qsort(row->tps, (size_t)n, sizeof *row->tps, compute_by_value);
    r.tps_min = row->tps[0];
    r.tps = row->tps[n / 2];
    r.tps_max = row->tps[n - 1];
    return r;
}

/* NaN: no step had what it is measured by. */
static void print_real(const char *what, double v)
{
    if (isnan(v))
        printf("%s-", what);
    else
        printf("%s%.2f", what, v);
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
        print_real("  cost ", r->cost);
        printf(" + %.3f  gain %.2f", r->draft_cost, r->gain);
        print_real(", predicted ", r->predicted);
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
                {"gain", r->gain},       {"predicted_gain", r->predicted}};
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
    double cost[SL_DRAFT_MAX + 1];
    for (int k = 0; k <= SL_DRAFT_MAX; k++)
        cost[k] = b->row[k].in ? ratio(b->row[k].full, b->row[0].full, b->d->r) : NAN;
    static struct result all[N_ROW];
    for (int i = N_ROW - 1; i >= 0; i--) /* row 0 is what the others are held against */
        if (b->row[i].in) all[i] = result_of(b, i, cost, batch);
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
            void *p = NULL;
            int batch = d->batch.v[j];
            st = make_seqs(b, &l, batch, d->depth.v[i], err);
            if (!st)
                st = mem_alloc_array(MEM_MISC, (size_t)b->n_seq * (size_t)d->n + 1,
                                     sizeof *b->t.full_ns, &p, err);
            b->t.full_ns = p;
            if (!st) st = measure(b, batch, d->depth.v[i], w, err);
            mem_free(p);
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
