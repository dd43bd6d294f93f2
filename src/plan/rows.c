/* SPDX-License-Identifier: Apache-2.0 */
/* Measured rows: reading them, and what a model predicts for them. */
#include "plan/rows.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/csv.h"
#include "plan/plan_internal.h"

/* ---- reading ------------------------------------------------------------------------------------
 */

/* A count of a row: "", "short" and "-" are not stated; "avg 3500 (max 16k)" is 3500. */
static sl_status count_cell(const struct plan_csv *c, const char *col, double *out, sl_err *err)
{
    const char *s = plan_csv_text(c, col);
    *out = NAN;
    if (!*s || !strcasecmp(s, "short") || !strcasecmp(s, "long") || !strcasecmp(s, "multi-node") ||
        !strcasecmp(s, "(not stated)") || !strcmp(s, "-"))
        return SL_OK;
    if (strncasecmp(s, "avg ", 4) == 0) {
        *out = strtod(s + 4, NULL);
        return SL_OK;
    }
    return plan_csv_num(c, col, PLAN_NUM(NAN, 0, 1e9), out, err);
}

static sl_status read_row(const struct plan_csv *c, struct plan_row *r, sl_err *err)
{
    *r = (struct plan_row){.line = c->line};
#define TEXT(f, col)                                                                               \
    snprintf(r->f, sizeof r->f, "%.*s", (int)sizeof r->f - 1, plan_csv_text(c, col))
    TEXT(source, "source_file");
    TEXT(system, "system");
    TEXT(model, "model");
    TEXT(wbits, "weights_bits");
    TEXT(abits, "act_bits");
    TEXT(hardware, "hardware");
    TEXT(layout, "layout");
    TEXT(metric, "metric");
    TEXT(unit, "unit");
    TEXT(note, "note");
#undef TEXT
    SL_TRY(count_cell(c, "cards", &r->cards, err));
    SL_TRY(count_cell(c, "concurrency", &r->conc, err));
    SL_TRY(count_cell(c, "input_len", &r->in, err));
    SL_TRY(count_cell(c, "output_len", &r->out, err));
    r->depth = strstr(r->note, "KV depth") || strcasestr(r->layout, "ub ") || r->in == 0;
    const char *v = plan_csv_text(c, "value");
    r->value = NAN;
    if (*v == '<' || *v == '>' || !*v) return SL_OK;
    SL_TRY(plan_csv_num(c, "value", PLAN_NUM(NAN, -1e15, 1e15), &r->value, err));
    if (!(r->value > 0)) {
        return SL_FAIL(err, FORMAT, "%s line %d column value: %.6g: a measurement is above zero",
                       c->src.name, c->line, r->value);
    }
    return SL_OK;
}

sl_status plan_read_rows(struct arena *a, struct plan_bytes b, struct plan_row **rows, int *n,
                         sl_err *err)
{
    struct plan_csv c;
    bool more;
    size_t lines = 1;
    void *mem;
    *rows = NULL, *n = 0;
    for (size_t i = 0; i < b.n; i++)
        lines += b.p[i] == '\n';
    SL_TRY(plan_csv_open(&c, b, err));
    static const char *need[] = {"model", "hardware", "metric", "value"};
    for (int i = 0; i < 4; i++) {
        bool found = false;
        for (int j = 0; j < c.n_head; j++)
            found = found || !strcasecmp(c.head[j], need[i]);
        if (!found) return SL_FAIL(err, FORMAT, "%s line 1: no column \"%s\"", b.name, need[i]);
    }
    SL_TRY(mem_arena_array(a, lines, sizeof **rows, &mem, err));
    *rows = mem;
    for (;;) {
        SL_TRY(plan_csv_next(&c, &more, err));
        if (!more) return SL_OK;
        SL_TRY(read_row(&c, &(*rows)[*n], err));
        (*n)++;
    }
}

/* ---- words --------------------------------------------------------------------------------------
 */

static const char *find_ci(const char *s, const char *word)
{
    return strcasestr(s, word);
}

/* The number right after a word ("TP8" -> 8), or NAN. Digits may follow one space. */
static double after(const char *s, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = find_ci(s, word); p; p = find_ci(p + 1, word)) {
        if (p > s && isalpha((unsigned char)p[-1]) && strcmp(word, "EP") != 0 &&
            strcmp(word, "DP") != 0 && strcmp(word, "TP") != 0 && strcmp(word, "PP") != 0) {
            continue;
        }
        if (p > s && isalpha((unsigned char)p[-1]) && p[-1] != 'x') { /* "OEP" is no EP */
            if (!(p - s >= 1 && (p[-1] == '-' || isdigit((unsigned char)p[-1])))) continue;
        }
        const char *q = p + n;
        if (*q && strchr(" =:-", *q) && isdigit((unsigned char)q[1])) q++;
        if (!isdigit((unsigned char)*q)) continue;
        char *end;
        double v = strtod(q, &end),
               hi = *end == '-' && isdigit((unsigned char)end[1]) ? strtod(end + 1, NULL) : 0;
        return fmax(v, hi); /* "EP2-4": the larger */
    }
    return NAN;
}

/* The number right after a word spelled just so, anywhere. */
static double after_exact(const char *s, const char *word)
{
    const char *p = strstr(s, word);
    if (!p || !isdigit((unsigned char)p[strlen(word)])) return NAN;
    return strtod(p + strlen(word), NULL);
}

/* The number that ends right before a word ("24 layers fully" -> 24). */
static double before(const char *s, const char *word)
{
    const char *p = find_ci(s, word);
    if (!p || p == s) return NAN;
    const char *q = p;
    while (q > s && (isdigit((unsigned char)q[-1]) || q[-1] == '.'))
        q--;
    return q < p ? strtod(q, NULL) : NAN;
}

static bool has(const struct plan_row *r, const char *word)
{
    return find_ci(r->layout, word) || find_ci(r->note, word) || find_ci(r->system, word);
}

/* ---- parts of a row -----------------------------------------------------------------------------
 */

/* The first number of a cell: "W8A8" 8, "~4" 4, "int4" 4; 0 when there is none. */
static double first_number(const char *s)
{
    while (*s && !isdigit((unsigned char)*s))
        s++;
    return *s ? strtod(s, NULL) : 0;
}

static void row_format(const struct plan_row *r, struct plan_setup *s)
{
    struct plan_format *f = &s->c.fmt;
    enum plan_vendor v = s->c.dev->vendor;
    const char *w = r->wbits;
    bool nv4 = has(r, "NVFP4") || find_ci(r->model, "NVFP4");
    bool mx4 = has(r, "MXFP4") || find_ci(r->model, "gpt-oss") || find_ci(r->wbits, "MXFP4");
    const char *name = v == PLAN_ASCEND ? "int8" : "fp8";
    double cpu = after(w, "CPU"), bits = first_number(w);
    double act = first_number(r->abits);
    if (act == 0) { /* "W4A16" holds both */
        double a = after(w, "A");
        act = isnan(a) ? 0 : a;
    }
    if (!isnan(cpu)) {
        plan_format_find("int8", f);
        f->cpu = mx4 ? 4.25 : cpu;
        return;
    }
    if (bits >= 15.5)
        name = "bf16";
    else if (bits == 8 && act >= 15.5)
        name = "w8a16";
    else if (bits == 8)
        name = v == PLAN_ASCEND ? "int8" : "fp8";
    else if (bits == 4 && nv4)
        name = "nvfp4";
    else if (bits == 4 && mx4)
        name = "mxfp4";
    else if (bits == 4 && (find_ci(r->system, "FP4") || find_ci(r->note, "FP4")))
        name = "nvfp4";
    else if (bits == 4 && act == 8)
        name = "w4a8";
    else if (bits == 4 && act >= 15.5)
        name = "awq";
    else if (bits > 0)
        name = "q4";
    else if (s->c.dev->mem * s->c.lay.ranks < s->c.model->total * 1.1)
        name = "awq";
    plan_format_find(name, f);
    if (bits > 0 && bits != 4 && bits != 8 && bits < 15.5) {
        f->expert = f->attn = f->dense = f->head = bits;
    }
    if (nv4 && act == 8) f->attn = f->dense = 8, f->head = 16;
    if (!strcmp(name, "nvfp4") && act >= 15.5) f->act = PLAN_NUM_BF16;
    if (!strcmp(name, "mxfp4") && act >= 15.5) f->attn = f->dense = 16, f->act = PLAN_NUM_BF16;
    if (find_ci(r->note, "->FP8")) f->act = PLAN_NUM_FP8;
    f->soft_scale = strncasecmp(r->note, "FP8-", 4) == 0;
}

static void row_mtp(const struct plan_row *r, struct plan_layout *l)
{
    static const double usual[] = {0, 0.7, 1.1, 1.44, 1.65, 1.8};
    const char *where[] = {r->note, r->system, r->layout, r->metric};
    int k = 0;
    for (int i = 0; i < 4 && k == 0; i++) {
        const char *p = find_ci(where[i], "MTP");
        if (!p) continue;
        if (p - where[i] >= 3 && strncasecmp(p - 3, "no ", 3) == 0) return;
        const char *d = p + 3 + (p[3] && strchr(" =-", p[3]) && isdigit((unsigned char)p[4]));
        k = isdigit((unsigned char)*d) ? *d - '0' : 1;
        if (find_ci(p, "MTP cost calibration") == p) k = 0;
    }
    if (k == 0 && find_ci(r->note, "measured acceptance"))
        k = 3; /* drafts run, their number is not said */
    if (k > 5) k = 5;
    l->mtp = k;
    l->accept = usual[k];
    double len = after(r->note, "mean accepted length"), a = after(r->note, "accept");
    double pct = before(r->note, "%");
    if (!isnan(len))
        l->accept = fmax(0, len - 1);
    else if (k > 0 && !isnan(a) && a <= k)
        l->accept = a;
    else if (k == 1 && !isnan(pct) && pct <= 100)
        l->accept = pct / 100;
}

/* Cards of the decode pool in "D:144 cards = 128 ..."; NAN when the number counts something else
 * ("D: 1 instance", "D: 4 nodes"). */
static double decode_pool(const char *layout)
{
    static const char *const unit[] = {"card", "npu", "gpu", "accelerator"};
    const char *p = find_ci(layout, "D:");
    double n = after(layout, "D:");
    if (!p || isnan(n)) return NAN;
    p += 2;
    p += strspn(p, " 0123456789");
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++) {
        if (strncasecmp(p, unit[i], strlen(unit[i])) == 0) return n;
    }
    return NAN;
}

/* Cards of the pool that the row measures: "D:144 cards", "48 D", else the column, else what EP
 * says. */
static double pool_cards(const struct plan_row *r, const struct plan_device *d)
{
    bool pre = strncmp(r->metric, "prefill", 7) == 0;
    const char *d_ep = strstr(r->layout, "D EP"), *p_ep = strstr(r->layout, "P EP");
    if (d_ep && p_ep) return after(pre ? p_ep : d_ep, "EP");
    double ep = after(r->layout, "EP");
    double dpool = decode_pool(r->layout);
    if (!pre && !isnan(dpool)) return dpool;
    if (!isnan(r->cards) && r->cards > 0) return r->cards;
    if (!isnan(ep)) return fmax(1, ep / d->dies);
    return NAN;
}

/* Prompt tokens from which an engine streams the experts to the card: as the row says ("prefill
 * from 400"), else kt-kernel's own default (its command line and its table of models). */
static int stream_threshold(const struct plan_row *r)
{
    double said = after(r->layout, "prefill from");
    return isnan(said) ? 4096 : (int)fmin(said, 1e9);
}

static void row_layout(const struct plan_row *r, struct plan_setup *s)
{
    struct plan_layout *l = &s->c.lay;
    const struct plan_device *d = s->c.dev;
    double tp = after(r->layout, "TP"), pp = after(r->layout, "PP"), dp = after(r->layout, "DP");
    bool pre = strncmp(r->metric, "prefill", 7) == 0;
    const char *d_ep = strstr(r->layout, "D EP");
    double ep = after(d_ep && !pre ? d_ep : r->layout, "EP");
    double dep = after_exact(r->layout, "DEP"), tep = after_exact(r->layout, "TEP");
    if (!isnan(dep)) dp = ep = dep; /* data-parallel attention, experts over the same ranks */
    if (!isnan(tep)) tp = tep;
    double node = (double)d->cards_per_node * d->dies;
    l->ranks = (int)fmax(1, l->cards * d->dies);
    l->pp = isnan(pp) ? 1 : (int)pp;
    bool large = (!isnan(ep) && (isnan(tp) || ep > tp)) || !isnan(dp) ||
                 (find_ci(r->layout, "DP") && find_ci(r->layout, "EP"));
    bool word_ep = find_ci(r->layout, "+ EP") || find_ci(r->layout, "DP+EP") ||
                   find_ci(r->layout, ", EP") || find_ci(r->layout, " cards; D");
    bool silent = isnan(tp) && isnan(pp) &&
                  !strstr(r->layout, "TP"); /* beyond a fabric node: experts spread */
    if (silent && d->vendor == PLAN_ASCEND && l->ranks > d->cards_per_node && l->ranks > 8)
        word_ep = true;
    if ((large || word_ep) && s->c.model->experts > 0) {
        l->ep = isnan(ep) ? l->ranks : (int)ep;
        if (l->ep > l->ranks) l->ranks = l->ep, l->cards = (int)ceil((double)l->ep / d->dies);
        l->tp = isnan(tp) ? 1 : (int)tp;
        l->dp = isnan(tp) ? l->ranks : isnan(dp) ? (int)fmax(1, l->ranks / l->tp) : (int)dp;
        if (!isnan(dp) && isnan(tp)) l->dp = (int)fmax(1, fmin(dp, l->ranks));
    } else {
        l->ep = 1, l->dp = 1;
        if (isnan(tp) && isnan(pp)) {
            l->tp = (int)fmin(l->ranks, node);
            if (d->consumer && d->cards_per_node == 1) l->tp = l->ranks;
            l->pp = (int)fmax(1, ceil(l->ranks / (double)l->tp));
        } else {
            l->tp = isnan(tp) ? (int)fmax(1, l->ranks / l->pp) : (int)tp;
            if (isnan(pp) && l->ranks > l->tp && l->ranks % l->tp == 0) l->pp = l->ranks / l->tp;
        }
        if (find_ci(r->layout, "layer split")) l->tp = 1, l->serial = true;
    }
    double red = before(r->layout, " redundant");
    if (!isnan(red)) l->redundant = (int)red;
    l->shared_ranks = find_ci(r->layout, "shared copies") ||
                      find_ci(r->layout, "shared-expert cards") ||
                      (find_ci(r->system, "CloudMatrix") && l->ep >= 320);
    l->micro_batch = (d->vendor == PLAN_NVIDIA && l->ep >= 16) ||
                     find_ci(r->layout, "micro-batch") || find_ci(r->layout, "TBO") ||
                     find_ci(r->system, "CloudMatrix") || find_ci(r->system, "profile");
    l->balanced = has(r, "perfect") || has(r, "forced EPLB") || has(r, "balanced routing") ||
                  find_ci(r->system, "profile");
    if (has(r, "EPLB") && !l->balanced && l->redundant == 0) l->redundant = 0;
    const char *t = r->layout;
    l->cpu_experts = (find_ci(t, "CPU") && !find_ci(t, "CPU only")) ||
                     find_ci(t, "experts on GPU") || find_ci(r->wbits, "CPU") ||
                     find_ci(t, "layerwise") ||
                     (s->c.host && (find_ci(t, "hybrid") || find_ci(t, "GPU experts")));
    l->stream_prefill =
        l->cpu_experts && (find_ci(t, "layerwise") || has(r, "streams all experts"));
    l->stream_from = l->stream_prefill && find_ci(t, "layerwise") ? stream_threshold(r) : 0;
    double layers = before(t, " layers fully"), pct = before(t, "% experts on GPU");
    double hit = before(t, "%"), res = before(t, " GPU experts");
    if (!isnan(layers)) l->hot = layers / s->c.model->layers;
    if (find_ci(t, "hit rate") && !isnan(hit)) l->hot = hit / 100;
    if (!isnan(res)) l->hot = res / fmax(1, s->c.model->experts);
    if (!isnan(pct)) {
        double f = pct / 100;
        l->hot = find_ci(r->system, "frequency") ? (1 - exp(-0.7 * f)) / (1 - exp(-0.7)) : f;
    }
    l->hot = fmin(fmax(l->hot, 0), 1);
}

static bool row_host(const struct plan_tables *t, const struct plan_row *r, struct plan_setup *s)
{
    const struct plan_host *h = plan_find_host(t, r->hardware);
    double used = before(r->hardware, " GB/s used"), read = before(r->hardware, " GB/s");
    if (!h) return false;
    s->host = *h;
    const char *x = strstr(r->hardware, "2x Xeon");
    if (!x) x = strstr(r->hardware, "2x EPYC");
    if (x) s->host.bw *= 2, s->host.ops *= 2, s->host.cores *= 2;
    if (!isnan(used))
        s->host.bw = used * 1e9;
    else if (!isnan(read) && h->bw <= 0)
        s->host.bw = read * 1e9;
    const char *cores = find_ci(r->layout, "threads");
    double n = before(r->layout, " threads");
    if (cores && !isnan(n) && n > 0) s->host.cores = (int)n;
    s->c.host = &s->host;
    return true;
}

static const struct {
    const char *name;
    enum plan_metric m;
    int per; /* 0 all, 1 card, 2 node, 3 stream */
} METRICS[] = {
    {"TTFT", PLAN_M_TTFT, 0},
    {"TPOT", PLAN_M_TPOT, 0},
    {"TPS_per_user", PLAN_M_USER_TPS, 0},
    {"system_output_throughput", PLAN_M_SYS_TPS, 0},
    {"output_throughput_per_card", PLAN_M_SYS_TPS, 1},
    {"TPS_per_card", PLAN_M_USER_TPS, 1},
    {"per_stream_throughput", PLAN_M_STREAM_TPS, 0},
    {"e2e_latency_mean", PLAN_M_E2E, 0},
    {"prefill_throughput", PLAN_M_PREFILL_TPS, 0},
    {"prefill_throughput_system", PLAN_M_PREFILL_TPS, 0},
    {"prefill_throughput_per_card", PLAN_M_PREFILL_TPS, 1},
    {"prefill_throughput_per_node", PLAN_M_PREFILL_TPS, 2},
    {"prefill_latency", PLAN_M_PREFILL_TIME, 0},
    {"decode_tps", PLAN_M_DECODE_TPS, 0},
    {"decode_throughput_per_card", PLAN_M_DECODE_TPS, 1},
    {"decode_throughput_per_node", PLAN_M_DECODE_TPS, 2},
    {"step_latency_main_plus_MTP3", PLAN_M_STEP, 0},
    {"memory_weights", PLAN_M_MEMORY, 0},
    {"TTFT_mean", PLAN_M_TTFT, 0},
    {"TPOT_mean", PLAN_M_TPOT, 0},
    {"ITL", PLAN_M_TPOT, 0},
    {"e2e_latency", PLAN_M_E2E, 0},
    {"output_throughput", PLAN_M_SYS_TPS, 0},
    {"output_throughput_per_node", PLAN_M_SYS_TPS, 2},
    {"system_throughput", PLAN_M_SYS_TPS, 0},
    {"decode_throughput", PLAN_M_DECODE_TPS, 0},
    {"decode_throughput_system", PLAN_M_DECODE_TPS, 0},
    {"prefill_tps", PLAN_M_PREFILL_TPS, 0},
    {"step_latency", PLAN_M_STEP, 0},
};

static const char *row_metric(const struct plan_row *r, struct plan_setup *s)
{
    int per = -1;
    for (size_t i = 0; i < sizeof METRICS / sizeof METRICS[0]; i++) {
        if (strcasecmp(r->metric, METRICS[i].name) == 0)
            s->metric = METRICS[i].m, per = METRICS[i].per;
    }
    if (per < 0 && (strncmp(r->metric, "pp", 2) == 0 || strncmp(r->metric, "tg", 2) == 0) &&
        isdigit((unsigned char)r->metric[2])) {
        s->metric = r->metric[0] == 'p' ? PLAN_M_PREFILL_TPS : PLAN_M_DECODE_TPS;
        s->w.in = r->metric[0] == 'p' ? strtod(r->metric + 2, NULL) : 32;
        per = 0;
    }
    if (per < 0) return "not a speed or size that the model predicts";
    double cards = fmax(1, s->c.lay.cards);
    s->per = per == 1 ? cards : per == 2 ? cards / 8 : 1;
    s->scale = 1;
    if (s->metric == PLAN_M_MEMORY)
        s->scale = 1e-9;
    else if (!strcmp(r->unit, "ms") || s->metric == PLAN_M_TPOT)
        s->scale = strcmp(r->unit, "s") ? 1e3 : 1;
    else if (!strcmp(r->unit, "us"))
        s->scale = 1e6;
    return NULL;
}

/* Seconds of "50 ms", "0.05s" at p; NAN when there is no number with such a unit. */
static double seconds_at(const char *p)
{
    char *end;
    double v = isdigit((unsigned char)*p) ? strtod(p, &end) : NAN;
    if (isnan(v)) return NAN;
    while (*end == ' ')
        end++;
    bool ms = !strncasecmp(end, "ms", 2);
    const char *after_unit = end + (ms ? 2 : 1);
    if ((!ms && *end != 's') || isalpha((unsigned char)*after_unit)) return NAN;
    return ms ? v * 1e-3 : v;
}

/* A limit in words, s: "TPOT<=50 ms", "TPOT limit of 0.1 s", "under 100 ms TPOT"; 0 = none. A
 * figure of the same row counts as the limit that was kept ("TPOT 49.4 ms"). */
static double limit_in(const char *text, const char *name)
{
    static const char *const between[] = {
        "<=",    "\xe2\x89\xa4", "<",      "~",  "=",  ":",  " ",     "limit", "SLO",  "SLA",
        "under", "below",        "within", "of", "at", "is", "about", "kept",  "held", "mean"};
    for (const char *p = find_ci(text, name); p; p = find_ci(p + 1, name)) {
        const char *q = p + strlen(name);
        for (size_t i = 0; i < sizeof between / sizeof between[0]; i++) {
            size_t n = strlen(between[i]);
            if (strncasecmp(q, between[i], n) == 0) q += n, i = (size_t)-1;
        }
        double v = seconds_at(q);
        if (v > 0) return v;
        for (q = p; q > text && strchr("0123456789. ms", q[-1]);) /* the number before the name */
            q--;
        while (*q == ' ' || *q == '.')
            q++;
        v = q < p ? seconds_at(q) : NAN;
        if (v > 0) return v;
    }
    return 0;
}

static double row_limit(const struct plan_row *r, const char *name)
{
    double v = limit_in(r->note, name);
    return v > 0 ? v : limit_in(r->layout, name);
}

static const char *row_load(const struct plan_row *r, struct plan_setup *s)
{
    struct plan_layout *l = &s->c.lay;
    bool pre = s->metric == PLAN_M_PREFILL_TPS || s->metric == PLAN_M_PREFILL_TIME;
    bool dec =
        s->metric == PLAN_M_TPOT || s->metric == PLAN_M_DECODE_TPS || s->metric == PLAN_M_STEP;
    double in = isnan(r->in) ? (s->w.in > 0 ? s->w.in : l->ep > 8 ? 4096 : 512) : r->in;
    double conc = r->conc;
    s->w.in = in;
    s->w.out = isnan(r->out) ? 512 : r->out;
    if (s->metric == PLAN_M_SYS_TPS && isnan(r->out) && l->ep > 1)
        s->metric = PLAN_M_DECODE_TPS, dec = true;
    s->step_only = dec && (isnan(r->out) || r->out < 2 || l->ep > 1 || s->metric != PLAN_M_TPOT);
    if (r->depth) {
        double ub = after(r->layout, "ub");
        s->past = in;
        s->w.in = pre ? (isnan(ub) ? 512 : ub) : in;
    }
    /* llama.cpp and its like compute a prompt in micro-batches of 512 unless told otherwise */
    if (l->cpu_experts && find_ci(r->system, "llama.cpp")) {
        double ub = after(r->layout, "ub");
        l->chunk = isnan(ub) ? 512 : (int)fmax(1, fmin(ub, 1e6));
    }
    struct plan_limits limit = {.ttft = row_limit(r, "TTFT"), .tpot = row_limit(r, "TPOT")};
    if (isnan(conc)) {
        if (!pre && (limit.tpot > 0 || limit.ttft > 0))
            conc = 0, s->limit = limit;
        else if (l->cpu_experts || s->c.k.mode == PLAN_MODE_CPU || l->cards == 1)
            conc = 1;
        else if (s->metric == PLAN_M_MEMORY)
            conc = 1;
        else
            return "concurrency is not stated";
    }
    bool per_card = find_ci(r->note, "per NPU") || find_ci(r->note, "per GPU") ||
                    find_ci(r->note, "per card") || find_ci(r->note, "per device");
    if (pre && conc >= 4096) { /* tokens of one batch on each card */
        s->w.n = fmax(1, conc * l->cards / s->w.in);
        l->chunk = (int)(conc / s->c.dev->dies);
        return NULL;
    }
    if (pre && l->ep > 1) l->chunk = (int)(conc * s->w.in / fmax(1, l->dp));
    if (dec && l->ep > 1 && l->dp > 1 &&
        (per_card || conc < l->ranks ||
         (s->c.dev->vendor == PLAN_NVIDIA && s->metric == PLAN_M_DECODE_TPS))) {
        conc *= l->cards;
    }
    s->w.n = conc;
    return NULL;
}

void plan_setup_fix(struct plan_setup *s)
{
    s->c.dev = &s->dev;
    if (s->c.host) s->c.host = &s->host;
}

const char *plan_row_setup(const struct plan_tables *t, const struct plan_row *r,
                           struct plan_setup *s)
{
    *s = (struct plan_setup){.mult = 1};
    if (isnan(r->value)) return "the value is a bound or a word";
    s->c.model = plan_find_model(t, r->model);
    if (!s->c.model) return "model is not in the table";
    const struct plan_device *d = plan_find_device(t, r->hardware);
    bool host = row_host(t, r, s);
    bool cpu_only = !d && host;
    if (find_ci(r->layout, "CPU only")) cpu_only = host;
    if (!d && !host) return "hardware is not in the table";
    if (d) s->dev = *d;
    if (cpu_only) {
        s->dev = (struct plan_device){.vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1};
        s->dev.bw = s->host.bw;
        s->dev.mem = s->host.mem > 0 ? s->host.mem : 2048 * PLAN_GIB;
        s->dev.peak[PLAN_NUM_BF16] = 1e13;
        snprintf(s->dev.name, sizeof s->dev.name, "%s", s->host.name);
    }
    s->c.dev = &s->dev;
    double cards = pool_cards(r, &s->dev);
    if (cpu_only) cards = 1;
    if (isnan(cards)) return "the number of cards is not stated";
    s->c.lay.cards = (int)fmax(1, cards);
    row_layout(r, s);
    row_mtp(r, &s->c.lay);
    row_format(r, s);
    bool kv8 = (strstr(r->note, "FP8-") || strstr(r->note, "HiF8-")) && !strstr(r->note, "C16");
    s->c.kv_bits = kv8 || strstr(r->note, "C8") ? 8 : 16;
    snprintf(s->engine, sizeof s->engine, "%s", r->system);
    const char *v = *r->system ? find_ci(r->note, r->system)
                               : NULL; /* "chitu 0.3.0 FP8": the note has the version */
    if (v && isdigit((unsigned char)v[strlen(r->system) + (v[strlen(r->system)] == ' ')])) {
        size_t n = strlen(r->system) + 1;
        n += strcspn(v + n, " ");
        snprintf(s->engine, sizeof s->engine, "%.*s", (int)n, v);
    }
    snprintf(s->device, sizeof s->device, "%s", s->dev.name);
    const struct plan_engine *known = plan_find_engine(t, s->engine);
    s->gen = known ? known->gen : 1;
    s->c.lay.pp_batch = known ? known->pp_batch : 1;
    s->c.k.mode = cpu_only               ? PLAN_MODE_CPU
                  : s->c.lay.cpu_experts ? PLAN_MODE_HYBRID
                  : s->c.lay.ep > 1      ? PLAN_MODE_EP
                                         : PLAN_MODE_TP;
    const char *why = row_metric(r, s);
    if (why) return why;
    return row_load(r, s);
}

/* ---- predicting ---------------------------------------------------------------------------------
 */

static double steady_step(const struct plan_setup *s, double n)
{
    struct plan_time t;
    double ctx = s->w.in + (s->step_only && isnan(s->w.out) ? 0 : s->w.out / 2);
    plan_step(&s->c, n, ctx, &t);
    return t.total;
}

static bool step_kept(void *user, double n)
{
    const struct plan_setup *s = user;
    return steady_step(s, n) / (1 + s->c.lay.accept) <= s->limit.tpot;
}

/* Users of a row that states a limit instead: steady decode asks the step alone, the rest what a
 * burst shows. A limit that the model cannot hold is answered for one user. */
double plan_row_users(struct plan_setup *s)
{
    if (s->w.n > 0) return s->w.n;
    if (!s->step_only || s->limit.tpot <= 0)
        return fmax(1, plan_most_users(&s->c, &s->w, &s->limit));
    struct plan_memory m;
    plan_memory(&s->c, 1, s->w.in + s->w.out, &m);
    double most = PLAN_DIE_BATCH * s->c.lay.ranks;
    return fmax(1, plan_most(step_kept, s, m.free_seq >= 1 ? fmin(most, m.free_seq) : most));
}

double plan_row_predict(struct plan_setup *s)
{
    struct plan_result r;
    struct plan_time t;
    const struct plan_layout *l = &s->c.lay;
    struct plan_load w = s->w;
    double n = w.n = plan_row_users(s);
    switch (s->metric) {
    case PLAN_M_MEMORY:
        return plan_weight_bytes(s->c.model, &s->c.fmt, false) * s->scale;
    case PLAN_M_STEP:
        return steady_step(s, n) * s->scale;
    case PLAN_M_DECODE_TPS:
        return n * (1 + l->accept) / steady_step(s, n) / s->per;
    case PLAN_M_PREFILL_TPS:
    case PLAN_M_PREFILL_TIME:
        if (s->past > 0 || s->w.out < 2 || l->ep > 1) {
            plan_prefill(&s->c, n, s->w.in, s->past, &t);
            if (s->metric == PLAN_M_PREFILL_TIME) return t.total * s->scale;
            return n * s->w.in / t.total / s->per;
        }
        plan_eval(&s->c, &w, &r);
        if (s->metric == PLAN_M_PREFILL_TIME) return r.ttft * s->scale;
        return (n > 1 ? r.prefill_tps : s->w.in / r.ttft) / s->per;
    default:
        break;
    }
    if (s->step_only) return steady_step(s, n) / (1 + l->accept) * s->scale;
    plan_eval(&s->c, &w, &r);
    switch (s->metric) {
    case PLAN_M_TTFT:
        return r.ttft * s->scale;
    case PLAN_M_TPOT:
        return r.tpot * s->scale;
    case PLAN_M_USER_TPS:
        return r.user_tps / s->per;
    case PLAN_M_SYS_TPS:
        return r.out_tps / s->per;
    case PLAN_M_STREAM_TPS:
        return r.out_tps / n;
    case PLAN_M_E2E:
        return r.e2e * s->scale;
    default:
        return NAN;
    }
}
