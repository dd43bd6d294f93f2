/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: files, options and printing around the room plan. */
#include "cmd_plan.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "engine/find.h"
#include "os/os.h"

#define S struct plan_opts
#define TEXT(n, m, arg, def, help)                                                                 \
    {                                                                                              \
        n, 0, OPT_STR, offsetof(S, m), arg, def, 0, 0, help                                        \
    }
#define REAL(n, m, def, lo, hi, help)                                                              \
    {                                                                                              \
        n, 0, OPT_REAL, offsetof(S, m), "N", def, lo, hi, help                                     \
    }
#define INT(n, m, def, lo, hi, help)                                                               \
    {                                                                                              \
        n, 0, OPT_INT, offsetof(S, m), "N", def, lo, hi, help                                      \
    }
#define FLAG(n, m, help)                                                                           \
    {                                                                                              \
        n, 0, OPT_FLAG, offsetof(S, m), NULL, NULL, 0, 0, help                                     \
    }
// clang-format off
static const struct opt opts[] = {
    {"model", 'm', OPT_STR, offsetof(S, common.model),
     "MODEL", NULL, 0, 0, "a name of the table, a config.json, a folder, a .gguf or demo"},
    TEXT("hardware", hardware, "NAME", NULL,
         "device, or a host for CPU only; \"910b4 + kunpeng 920 7263z\" for both"),
    INT("cards", cards, "1", 1, 100000, "cards in all"),
    INT("nodes", nodes, "0", 0, 100000, "over how many nodes (0: as the table says)"),
    TEXT("host", host, "NAME", NULL, "host processor for experts on the CPU"),
    REAL("dram", dram, "0", 0, 1e6, "GiB of host memory (0: unknown)"),
    TEXT("weights", weights, "LIST", NULL,
         "awq nvfp4 mxfp4 int8 w4a8 fp8 bf16 w8a16 q4 q8, with commas (all)"),
    TEXT("kv", kv, "TYPE", "bf16", "bf16 or int8"),
    REAL("input", input, NULL, 1, 1e8, "prompt tokens (4096, or what the context has room for)"),
    REAL("output", output, NULL, 1, 1e8, "generated tokens (512, or of a short context an eighth)"),
    REAL("concurrency", concurrency, NULL, 1, 1e7,
         "requests at a time, closed loop (8; with --ttft-ms or --tpot-ms and no --rate: as many "
         "as hold them)"),
    INT("max-batch", max_batch, "0", 0, 1 << 24,
        "... of these at most (0: what memory holds, 1024 a die)"),
    REAL("rate", rate, "0", 0, 1e7, "requests/s instead (Poisson)"),
    FLAG("chunked", chunked, "prompt chunks ride along with decode, as sluice serve does"),
    REAL("ttft-ms", ttft_ms, "0", 0, 1e9, "limit on time to first token"),
    REAL("tpot-ms", tpot_ms, "0", 0, 1e9, "limit on time per output token"),
    TEXT("layout", layout, "L", NULL, "tp8, tp4pp2, dp32ep32, ... (searched)"),
    TEXT("pd", pd, "P", "auto",
         "mixed, 2P:2D (by node) or auto; apart: does an engine of its own for prompts pay?"),
    REAL("pd-gbps", pd_gbps, "10", 0.001, 1e6, "with --pd apart: Gbit/s of the link to it"),
    INT("redundant", redundant, "-1", -1, 100000, "extra copies of experts (-1: searched)"),
    INT("mtp", mtp, "-1", -1, 5, "drafted tokens per step (-1: searched)"),
    REAL("acceptance", acceptance, "0", 0, 0.999, "of one draft (0: usual)"),
    TEXT("drafts", drafts, "FILE", NULL,
         "output of sluice bench --draft --json: how often the model's drafts are right"),
    INT("chunk", chunk, "0", 0, 1 << 24, "prompt tokens per prefill batch (0: searched)"),
    TEXT("experts-on", experts_on, "cpu|card", NULL, "where routed experts live (searched)"),
    REAL("hot-experts", hot, "-1", -1, 1, "share of expert reads on the card (-1: what fits)"),
    {"expert-stats", 0, OPT_STR, offsetof(S, common.expert_stats),
     "FILE", NULL, 0, 0, "of sluice run, bench or eval: which experts the model chose"},
    TEXT("engine", engine, "NAME", NULL, "engine whose constants are used (the best known here)"),
    INT("gen", gen, "1", 0, 2, "maturity of an unknown engine: 0 first release, 1, 2 tuned"),
    INT("top", top, "10", 1, 1000, "rows of the table"),
    FLAG("explain", explain, "the breakdown of each row"),
    TEXT("html", html, "FILE", NULL, "report with charts"),
    TEXT("emit", emit, "FILE", NULL, "config of the first row for sluice serve"),
    TEXT("sweep", sweep, "KEY=A,B,..", NULL, "one curve over concurrency, input, output or rate"),
    TEXT("check", check, "ROWS.csv", NULL, "predict every row; \"published\" is the table inside"),
    TEXT("calibrate", calibrate, "ROWS.csv", NULL,
         "fit constants; \"published\" makes the shipped file"),
    TEXT("constants", constants, "FILE", NULL,
         "constants file to use, or to write with --calibrate"),
    FLAG("acceptance-table", acceptance_table,
         "held-out, leave-one-out and blind errors of the published rows"),
    TEXT("leave-out", leave_out, "model|device", NULL,
         "errors of the published rows of each model or device when it is left out whole"),
    FLAG("this-machine", this_machine, "predict this engine here from three measured points"),
    TEXT("this-cluster", this_cluster, "FILE", NULL,
         "CPU ranks, as mpirun ... sluice doctor --ranks --json wrote them"),
    FLAG("this-box", this_box, "the same of ranks that are parts of a process here, measured now"),
    INT("ranks", box_ranks, "0", 0, 64, "with --this-box: so many (0: one for each memory node)"),
    TEXT("combine", combine, "FORM", "f32",
         "with --this-cluster: experts' outputs between ranks of dp as f32, bf16 or q8"),
    TEXT("device", device, "NAME", NULL,
         "devices as serve takes them, sim:... too, beside the CPU: what lies where, how fast"),
    INT("defer", defer, "0", 0, 1024, "with --device: experts of a token that come late"),
    TEXT("stream-from", common.stream_from, "N|auto|off", NULL,
         "with --device: prompts in steps of N tokens bring experts from the CPU to it"),
    INT("hot", n_hot, "-1", -1, 65536, "with --device: hot experts of a layer (-1: what fits)"),
    {"goal", 0, OPT_ENUM, offsetof(S, goal), "first|tps|tpot|ttft", "first", 0, 0,
     "which row --emit writes: the first, or the best in tok/s, TPOT or TTFT"},
    TEXT("grid", grid, "small|full", NULL,
         "with --this-machine: measure a grid too and print the errors"),
    {"threads", 't', OPT_INT, offsetof(S, common.threads),
     "N", "0", 0, 1024, "with --this-machine: worker threads (0: physical cores)"},
    TEXT("doctor", doctor, "FILE", NULL, "output of sluice doctor --json, instead of probing"),
    TEXT("bench", bench, "FILE", NULL, "output of sluice bench --json, instead of measuring"),
    TEXT("models-file", models_file, "FILE", NULL,
         "further models, columns as data/planner/models.csv; .json: a list of objects"),
    TEXT("hardware-file", hardware_file, "FILE", NULL, "further hardware, the same way"),
    REAL("claim-gb", claim_gb, "0", 0, 1e9,
         "is a claimed memory (GB in all) possible for this model?"),
    FLAG("list", list, "names of models, devices, hosts and formats"),
    OPT_ROWS_BASIC(S),
    {0},
};
// clang-format on
static const struct opt_pair pairs[] = {{"defer", "device"},
                                        {"stream-from", "device"},
                                        {"hot", "device"},
                                        {"ranks", "this-box"},
                                        {"combine", "this-cluster|this-box"},
                                        {"grid", "this-machine"},
                                        {"threads", "this-machine|this-box|device"},
                                        {"doctor", "this-machine|device"},
                                        {"bench", "this-machine|this-cluster|this-box"},
                                        {"goal", "emit"},
                                        {"pd-gbps", "pd"},
                                        {0}};

sl_status plan_slurp(struct plan_run *r, const char *path, struct plan_bytes *out, sl_err *err)
{
    char *p;
    uint64_t n;
    char *keep;
    SL_TRY(os_read_once(path, 64 << 20, &p, &n, err));
    sl_status st = mem_arena_str(r->a, p, n, &keep, err);
    mem_free(p);
    *out = (struct plan_bytes){path, keep, n};
    return st;
}

/* A cell of CSV from a JSON value. */
static void put_cell(struct str *s, const struct json *v)
{
    if (!v || v->kind == JSON_NULL_K) return;
    if (v->kind == JSON_BOOL_K) str_puts(s, v->b ? "1" : "0");
    if (v->kind == JSON_INT_K || v->kind == JSON_REAL_K) str_printf(s, "%.12g", v->f);
    if (v->kind != JSON_STR_K) return;
    str_putc(s, '"');
    for (size_t i = 0; i < v->n; i++) {
        if (v->s[i] == '"') str_putc(s, '"');
        str_putc(s, v->s[i]);
    }
    str_putc(s, '"');
}

/* A user's table as JSON, [{"name": ..., column: value}], becomes the CSV that the room reads; line
 * n + 1 is object n. Its columns are those of the first object. */
static sl_status table_file(struct plan_run *r, const char *path, struct plan_bytes *b, sl_err *err)
{
    const struct json *root;
    struct str s;
    char *keep;
    size_t n = strlen(path);
    SL_TRY(plan_slurp(r, path, b, err));
    if (n < 5 || strcasecmp(path + n - 5, ".json") != 0) return SL_OK;
    SL_TRY(text_json_parse(r->a, path, b->p, b->n, &root, err));
    if (root->kind != JSON_ARRAY_K || root->n == 0 || root->child->kind != JSON_OBJECT_K) {
        return SL_FAIL(err, FORMAT, "%s: a list of objects is needed: [{\"name\": ...}]", path);
    }
    str_init(&s, MEM_MISC, 0);
    for (const struct json *k = root->child->child; k; k = k->next) {
        str_printf(&s, "%s%s", k == root->child->child ? "" : ",", k->key);
    }
    str_putc(&s, '\n');
    for (const struct json *o = root->child; o; o = o->next) {
        for (const struct json *k = root->child->child; k; k = k->next) {
            if (k != root->child->child) str_putc(&s, ',');
            put_cell(&s, text_json_get(o, k->key));
        }
        str_putc(&s, '\n');
    }
    sl_status st = str_status(&s, err);
    if (st == SL_OK) st = mem_arena_str(r->a, s.p, s.n, &keep, err);
    if (st == SL_OK) *b = (struct plan_bytes){path, keep, s.n};
    str_fini(&s);
    return st;
}

sl_status plan_run_open(struct plan_run *r, const struct plan_opts *o, struct arena *a, sl_err *err)
{
    struct plan_bytes b;
    *r = (struct plan_run){.o = o, .a = a};
    SL_TRY(plan_read_models(&r->t, a, plan_embedded(PLAN_FILE_MODELS), err));
    SL_TRY(plan_read_hardware(&r->t, a, plan_embedded(PLAN_FILE_HARDWARE), err));
    SL_TRY(plan_read_engines(&r->t, a, plan_embedded(PLAN_FILE_ENGINES), err));
    if (o->models_file) {
        SL_TRY(table_file(r, o->models_file, &b, err));
        SL_TRY(plan_read_models(&r->t, a, b, err));
    }
    if (o->hardware_file) {
        SL_TRY(table_file(r, o->hardware_file, &b, err));
        SL_TRY(plan_read_hardware(&r->t, a, b, err));
    }
    b = plan_embedded(PLAN_FILE_CONSTANTS);
    if (o->constants && !o->calibrate) SL_TRY(plan_slurp(r, o->constants, &b, err));
    if (o->calibrate && strcmp(o->calibrate, "published") == 0) {
        plan_book_init(&r->book); /* the shipped file is being made: it must not need itself */
        return SL_OK;
    }
    return plan_book_read(&r->book, a, b, err);
}

bool plan_is_path(const char *name)
{
    size_t n = strlen(name);
    bool ends = n > 5 && (!strcasecmp(name + n - 5, ".gguf") || !strcasecmp(name + n - 5, ".json"));
    return strchr(name, '/') || ends;
}

sl_status plan_run_model(struct plan_run *r, const char *name, sl_err *err)
{
    char path[4096], near[320];
    struct plan_bytes b;
    enum os_kind kind = os_path_kind(name);
    size_t n = strlen(name);
    r->q.model = plan_is_path(name) ? NULL : plan_find_model(&r->t, name);
    if (r->q.model) return SL_OK;
    if (kind == OS_DIR)
        snprintf(path, sizeof path, "%s/config.json", name);
    else
        snprintf(path, sizeof path, "%s", name);
    if (kind == OS_DIR || (kind == OS_FILE && n > 5 && !strcasecmp(name + n - 5, ".json"))) {
        SL_TRY(plan_slurp(r, path, &b, err));
        SL_TRY(plan_model_from_config(&r->model, r->a, str_base(name), b, err));
        r->q.model = &r->model;
        sl_err
            ignored; /* a folder with the config alone is enough: the tensors only make it exact */
        if (kind == OS_DIR && plan_model_open(r, name, &ignored) != SL_OK) r->has_real = false;
        return SL_OK;
    }
    if (kind == OS_FILE && n > 5 && !strcasecmp(name + n - 5, ".gguf")) {
        SL_TRY(plan_model_open(r, name, err));
        r->q.model = &r->model;
        return SL_OK;
    }
    const char *found = name; /* one that the library knows, as "demo" */
    sl_err ignored;
    if (*name && !engine_find_model(name, r->a, &found, &ignored) && strcmp(found, name) != 0)
        return plan_run_model(r, found, err);
    plan_nearest(&r->t, 0, name, near, sizeof near);
    return SL_FAIL(err, REQUEST, "unknown model: %.60s: nearest: %s", name, near);
}

/* GiB of "1280GB", "768G", "1.25 TB" in a hardware text; 0 when there is none. */
static double dram_in(const char *s)
{
    const char *at = strcasestr(s, "ddr");
    if (!at) at = strcasestr(s, "dram");
    if (!at) return 0;
    for (const char *p = s; *p; p++) {
        if (!isdigit((unsigned char)*p) ||
            (p > s && (isalnum((unsigned char)p[-1]) || p[-1] == '-' || p[-1] == '.')))
            continue;
        char *end;
        double v = strtod(p, &end);
        while (*end == ' ')
            end++;
        double unit = !strncasecmp(end, "tb", 2) || !strncasecmp(end, "tib", 3) ? 1024
                      : !strncasecmp(end, "g", 1)                               ? 1
                                                                                : 0;
        if (unit > 0 && p + 12 > at - 12 && v * unit >= 16 && (p > at || at - end < 12))
            return v * unit;
    }
    return 0;
}

static sl_status query_hardware(struct plan_run *r, sl_err *err)
{
    const struct plan_opts *o = r->o;
    char near[320];
    if (!o->hardware)
        return SL_FAIL(err, REQUEST, "missing option: --hardware: --list shows the names");
    const struct plan_device *d = plan_find_device(&r->t, o->hardware);
    const struct plan_host *h = plan_find_host(&r->t, o->host ? o->host : o->hardware);
    if (o->host && !h) {
        plan_nearest(&r->t, 1, o->host, near, sizeof near);
        return SL_FAIL(err, REQUEST, "unknown host: %.60s: nearest: %s", o->host, near);
    }
    if (!d && !h) {
        plan_nearest(&r->t, 1, o->hardware, near, sizeof near);
        return SL_FAIL(err, REQUEST, "unknown hardware: %.60s: nearest: %s", o->hardware, near);
    }
    bool want_cpu = o->experts_on && !strcmp(o->experts_on, "cpu");
    double dram = o->dram > 0 ? o->dram : dram_in(o->hardware);
    if (!h && d && (want_cpu || dram > 0)) {
        h = plan_find_host(&r->t, d->vendor == PLAN_ASCEND ? "kunpeng 920 7263z" : "epyc 9654");
        r->note = "host not named: a two-socket Kunpeng 920 7263Z (Ascend) or an EPYC 9654 is "
                  "assumed; --host names it";
    }
    if (h) {
        r->host = *h;
        if (dram > 0) r->host.mem = dram * 1073741824.0;
        r->q.host = &r->host;
    }
    r->q.cpu_only = !d;
    if (d)
        r->dev = *d;
    else {
        r->dev =
            (struct plan_device){.vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1, .bw = h->bw};
        snprintf(r->dev.name, sizeof r->dev.name, "%s", h->name);
        r->dev.mem = r->host.mem > 0 ? r->host.mem : 2048 * 1073741824.0;
        r->dev.peak[PLAN_NUM_BF16] = 1e13;
    }
    if (o->nodes > 0 && d) {
        if (o->cards % o->nodes) {
            return SL_FAIL(err, REQUEST,
                           "contradiction: --cards %d does not divide over --nodes %d", o->cards,
                           o->nodes);
        }
        r->dev.cards_per_node = o->cards / o->nodes;
    } else if (d && o->cards < r->dev.cards_per_node) {
        r->dev.cards_per_node = o->cards;
    }
    r->q.dev = &r->dev;
    return SL_OK;
}

static sl_status query_formats(struct plan_run *r, sl_err *err)
{
    const char *list = r->o->weights;
    struct plan_query *q = &r->q;
    char all[64] = "", one[24];
    if (r->has_real && !list) {
        q->fmt[q->n_fmt++] = r->real;
        return SL_OK;
    }
    if (!list) {
        const double *p = r->dev.peak;
        snprintf(all, sizeof all, q->cpu_only ? "q4,q8,bf16" : "bf16%s%s,w4a8,awq,nvfp4",
                 p[PLAN_NUM_FP8] > 0 ? ",fp8" : "", p[PLAN_NUM_INT8] > 0 ? ",int8" : "");
        list = all;
    }
    while (*list) {
        size_t n = strcspn(list, ",");
        snprintf(one, sizeof one, "%.*s", (int)BASE_MIN(n, sizeof one - 1), list);
        if (q->n_fmt == PLAN_MAX_FORMATS || !plan_format_find(one, &q->fmt[q->n_fmt])) {
            return SL_FAIL(err, REQUEST, "unknown weights: %.20s: one of %s", one,
                           plan_format_names());
        }
        q->n_fmt++;
        list += n + (list[n] == ',');
    }
    return SL_OK;
}

static bool combine_bits(const char *form, double *bits)
{
    bool q8 = !strcmp(form, "q8"), bf16 = !strcmp(form, "bf16");
    *bits = q8 ? 8.25 : bf16 ? 16 : 32; /* a byte each, and one for 32 of them */
    return q8 || bf16 || !strcmp(form, "f32");
}

/* Of CPU ranks: what is not said is 1. */
static sl_status query_team_layout(struct plan_run *r, sl_err *err)
{
    const char *text = r->o->layout;
    struct plan_query *q = &r->q;
    q->pools = 1;
    if (!text) return SL_OK;
    if (!q->tp) q->tp = 1;
    if (!q->pp) q->pp = 1;
    if (!q->dp) q->dp = 1;
    if (!q->ep) q->ep = 1;
    struct plan_layout l = {.tp = q->tp, .pp = q->pp, .dp = q->dp, .ep = q->ep};
    if (l.ep > 1) l.redundant = BASE_MAX(r->o->redundant, 0);
    double n = (double)l.tp * l.pp * l.dp;
    l.n_weight = q->n_weight;
    if (q->n_weight && q->n_weight != l.tp * l.dp)
        return SL_FAIL(err, REQUEST, "layout %.60s: %d weights, a stage has %d ranks", text,
                       q->n_weight, l.tp * l.dp);
    if (n > q->links.n)
        return SL_FAIL(err, REQUEST, "layout %.40s: %.0f ranks, there are 1 to %d", text,
                       n, q->links.n);
    if (plan_team_can(q->model, &l)) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "layout %.40s: %.60s can not be shared so: tp at most as many as heads and "
                   "sixteenths of each width, pp as layers; ep divides tp dp, and deals out "
                   "experts%s evenly; dp is for models that have some",
                   text, q->model->name, l.redundant ? " and copies" : "");
}

bool plan_is_apart(const struct plan_run *r)
{
    return strcmp(r->o->pd, "apart") == 0;
}

static sl_status query_layout(struct plan_run *r, sl_err *err)
{
    const struct plan_opts *o = r->o;
    struct plan_query *q = &r->q;
    char why[160];
    bool pools = strcmp(o->pd, "auto") && strcmp(o->pd, "mixed") && !plan_is_apart(r);
    if (q->team && pools)
        return SL_FAIL(err, REQUEST,
                       "--pd %.20s: of CPU ranks it is apart: an engine of its own for prompts, or "
                       "mixed",
                       o->pd);
    if (o->layout && !plan_layout_parse(o->layout, q, why, sizeof why))
        return SL_FAIL(err, REQUEST, "%s", why);
    if (q->team) return query_team_layout(r, err);
    if (q->n_weight)
        return SL_FAIL(err, REQUEST, "layout %.60s: weights are of CPU ranks (--this-cluster)",
                       o->layout);
    int ranks = o->cards * r->dev.dies, tp = q->tp ? q->tp : 1, pp = q->pp ? q->pp : 1;
    if (o->layout && q->ep > 1 && !q->dp) q->dp = ranks / tp > 0 ? ranks / tp : 1;
    int dp = q->dp ? q->dp : 1;
    if (o->layout && !q->cpu_only && tp * pp * dp != ranks &&
        !(q->dp == 0 && ranks % (tp * pp) == 0)) {
        return SL_FAIL(err, REQUEST,
                       "contradiction: layout %.40s needs %d dies, %d card(s) have %d", o->layout,
                       tp * pp * dp, o->cards, ranks);
    }
    if (q->ep > 1 && q->model->experts == 0) {
        return SL_FAIL(err, REQUEST, "contradiction: layout %.40s has ep, %s has no experts",
                       o->layout, q->model->name);
    }
    if (q->ep > 1 && q->ep != ranks) {
        return SL_FAIL(err, REQUEST,
                       "contradiction: ep%d over %d dies: experts are spread over all of them",
                       q->ep, ranks);
    }
    if (o->layout && q->ep == 0) q->ep = 1;
    if (o->layout && q->pp == 0) q->pp = 1;
    if (!strcmp(o->pd, "mixed") || plan_is_apart(r))
        q->pools = 1;
    else if (strcmp(o->pd, "auto") != 0) {
        int n = 0;
        if (sscanf(o->pd, "%dP:%dD%n", &q->n_p, &q->n_d, &n) != 2 || o->pd[n] || q->n_p < 1 ||
            q->n_d < 1) {
            return SL_FAIL(err, REQUEST, "bad value: --pd %.20s: mixed, auto, apart or 2P:2D",
                           o->pd);
        }
        q->pools = 2;
        int nodes = o->cards / r->dev.cards_per_node;
        if (q->n_p + q->n_d > nodes) {
            return SL_FAIL(err, REQUEST, "contradiction: --pd %s needs %d nodes, there are %d",
                           o->pd, q->n_p + q->n_d, nodes);
        }
    }
    return SL_OK;
}

/* What the engine counted takes the place of the usual unevenness. */
sl_status plan_query_counts(struct plan_run *r, sl_err *err)
{
    struct plan_bytes b;
    const char *path = r->o->common.expert_stats;
    SL_TRY(plan_slurp(r, path, &b, err));
    SL_TRY(plan_read_counts(&r->counts, r->a, b, err));
    if (r->counts.n_expert != r->q.model->experts || r->counts.n_used != r->q.model->topk)
        return SL_FAIL(err, REQUEST,
                       "contradiction: --expert-stats %.100s counts %d experts of which %d are "
                       "used, %s has %d and %d",
                       path, r->counts.n_expert, r->counts.n_used, r->q.model->name,
                       r->q.model->experts, r->q.model->topk);
    if (r->q.model != &r->model) r->model = *r->q.model;
    r->model.counts = &r->counts;
    r->q.model = &r->model;
    return SL_OK;
}

/* Measured drafts take the place of the usual ones. */
static sl_status query_drafts(struct plan_run *r, sl_err *err)
{
    const struct plan_opts *o = r->o;
    struct plan_bytes b;
    if (!o->drafts) return SL_OK;
    if (o->acceptance > 0)
        return SL_FAIL(err, REQUEST, "contradiction: --drafts beside --acceptance");
    if (o->mtp == 0 || r->q.model->mtp_layers == 0)
        return SL_FAIL(err, REQUEST, "contradiction: --drafts, and there are none: %s%s",
                       o->mtp == 0 ? "--mtp 0" : r->q.model->name,
                       o->mtp == 0 ? "" : " has no MTP layer");
    SL_TRY(plan_slurp(r, o->drafts, &b, err));
    SL_TRY(plan_read_drafts(&r->drafts, r->a, b, err));
    r->q.drafts = &r->drafts;
    return SL_OK;
}

void plan_run_lengths(const struct plan_run *r, double *in, double *out)
{
    const struct plan_opts *o = r->o;
    double ctx = r->q.model->max_ctx > 0 ? r->q.model->max_ctx : 1e9;
    double room = o->input > 0 ? ctx - o->input : floor(ctx / 8);
    *out = o->output > 0 ? o->output : fmin(512, fmax(1, room));
    *in = o->input > 0 ? o->input : fmin(4096, fmax(1, ctx - *out));
}

sl_status plan_run_query(struct plan_run *r, sl_err *err)
{
    double in, out;
    const struct plan_opts *o = r->o;
    struct plan_query *q = &r->q;
    if (!o->common.model)
        return SL_FAIL(err, REQUEST, "missing option: --model: --list shows the names");
    SL_TRY(plan_run_model(r, o->common.model, err));
    if (o->common.expert_stats) SL_TRY(plan_query_counts(r, err));
    bool team = o->this_cluster || o->this_box;
    SL_TRY(team ? plan_query_cluster(r, err) : query_hardware(r, err));
    q->cards = q->cpu_only ? 1 : o->cards;
    if (strcmp(o->kv, "bf16") && strcmp(o->kv, "int8") && strcmp(o->kv, "f16")) {
        return SL_FAIL(err, REQUEST, "bad value: --kv %.20s: bf16 or int8", o->kv);
    }
    q->kv_bits = strcmp(o->kv, "int8") ? 16 : 8;
    if (o->experts_on && strcmp(o->experts_on, "cpu") && strcmp(o->experts_on, "card")) {
        return SL_FAIL(err, REQUEST, "bad value: --experts-on %.20s: cpu or card", o->experts_on);
    }
    q->experts_on = !o->experts_on ? 0 : !strcmp(o->experts_on, "cpu") ? 1 : 2;
    if (o->experts_on && !strcmp(o->experts_on, "card") && o->hot >= 0)
        return SL_FAIL(err, REQUEST,
                       "contradiction: --hot-experts %.3g is for experts on the CPU, --experts-on "
                       "card has all of them",
                       o->hot);
    if (q->experts_on == 1 && q->model->experts == 0) {
        return SL_FAIL(err, REQUEST, "contradiction: --experts-on cpu, but %s has no experts",
                       q->model->name);
    }
    if (o->redundant > 0 && q->model->experts == 0) {
        return SL_FAIL(err, REQUEST, "contradiction: --redundant %d, but %s has no experts",
                       o->redundant, q->model->name);
    }
    if (o->mtp > 0 && q->model->mtp_layers == 0) {
        return SL_FAIL(err, REQUEST, "contradiction: --mtp %d, but %s has no MTP module", o->mtp,
                       q->model->name);
    }
    plan_run_lengths(r, &in, &out);
    if (q->model->max_ctx > 0 && in + out > q->model->max_ctx) {
        return SL_FAIL(err, REQUEST,
                       "contradiction: --input %.0f + --output %.0f is over the context of %s, %d",
                       in, out, q->model->name, q->model->max_ctx);
    }
    if (plan_is_apart(r) && o->rate <= 0)
        return SL_FAIL(err, REQUEST,
                       "--pd apart: whether it pays depends on how many requests come: --rate");
    SL_TRY(query_formats(r, err));
    SL_TRY(query_layout(r, err));
    q->load =
        (struct plan_load){.n = o->concurrency, .in = in, .out = out, .rate = o->rate};
    q->load.chunked = o->chunked;
    q->limit = (struct plan_limits){o->ttft_ms * 1e-3, o->tpot_ms * 1e-3, o->max_batch};
    bool limited = o->ttft_ms > 0 || o->tpot_ms > 0;
    if (q->load.n <= 0 && !(limited && q->load.rate <= 0)) q->load.n = 8;
    q->redundant = o->redundant, q->mtp = o->mtp, q->accept = o->acceptance;
    SL_TRY(query_drafts(r, err));
    q->chunk = o->chunk > 0 || !q->team ? o->chunk : 512; /* what the engine takes */
    if (!combine_bits(o->combine, &q->combine_bits))
        return SL_FAIL(err, REQUEST, "bad value: --combine %.20s: f32, bf16 or q8", o->combine);
    q->hot = o->hot, q->gen = o->gen;
    q->engine = o->engine ? o->engine : "";
    return SL_OK;
}

static int list_names(const struct plan_run *r)
{
    for (int i = 0; i < r->t.n_model; i++) {
        const struct plan_model *m = &r->t.model[i];
        printf("model   %-30s %8.1f B, %6.1f B active\n", m->name, m->total * 1e-9,
               m->active * 1e-9);
    }
    for (int i = 0; i < r->t.n_dev; i++) {
        const struct plan_device *d = &r->t.dev[i];
        printf("device  %-46s %5.0f GiB %6.0f GB/s%s\n", d->name, d->mem * d->dies / 1073741824.0,
               d->bw * d->dies * 1e-9, d->dies > 1 ? " (2 dies)" : "");
    }
    for (int i = 0; i < r->t.n_host; i++) {
        printf("host    %-46s %4d cores %6.0f GB/s\n", r->t.host[i].name, r->t.host[i].cores,
               r->t.host[i].bw * 1e-9);
    }
    printf("weights %s\n", plan_format_names());
    for (int i = 0; i < r->book.n_set; i++) {
        printf("engine  %s on %s\n", r->book.set[i].k.engine, r->book.set[i].k.device);
    }
    return CMD_OK;
}

void plan_layout_text(const struct plan_layout *l, char out[PLAN_LAYOUT_TEXT])
{
    const struct {
        const char *key;
        int v;
    } f[] = {{"tp", l->tp}, {"pp", l->pp}, {"dp", l->dp}, {"ep", l->ep}};
    size_t n = 0, size = PLAN_LAYOUT_TEXT;
    char weights[PLAN_LAYOUT_TEXT - 64];
    *out = 0;
    for (int i = 0; i < BASE_COUNT_OF(f); i++)
        if (f[i].v > 1)
            n += (size_t)snprintf(out + n, size - n, "%s%s=%d", n ? "," : "", f[i].key, f[i].v);
    if (l->n_weight > 0 && plan_layout_weights(l, weights, sizeof weights))
        snprintf(out + n, size - n, ",weight=%s", weights);
}

/* How rows go to experts of other ranks, in which form they come back, and which have copies. */
static void put_team(struct json_w *w, const struct plan_run *r, const struct plan_layout *l)
{
    const char *form = r->o->combine, *stats = r->o->common.expert_stats;
    if (!r->q.team || l->ep < 2) return;
    if (l->dp > 1) {
        text_jw_key(w, "dispatch");
        text_jw_strz(w, l->swap ? "swap" : "gather");
    }
    if (l->halves) {
        text_jw_key(w, "micro");
        text_jw_int(w, 2);
    }
    if (strcmp(form, "f32") != 0) {
        text_jw_key(w, "combine");
        text_jw_strz(w, form);
    }
    if (stats) {
        text_jw_key(w, "expert-stats");
        text_jw_strz(w, stats);
    }
    if (stats && l->redundant > 0) {
        text_jw_key(w, "redundant");
        text_jw_int(w, l->redundant);
    }
}

/* The row that --goal means. */
static const struct plan_option *chosen(const struct plan_run *r, const struct plan_found *f)
{
    static const int goal[] = {0, PLAN_GOAL_RATE, PLAN_GOAL_TPOT, PLAN_GOAL_TTFT};
    for (int i = 0; i < f->n_option; i++)
        if (goal[r->o->goal] & f->option[i].goals) return &f->option[i];
    return &f->option[0];
}

static int emit_config(const struct plan_run *r, const struct plan_option *o, sl_err *err)
{
    struct str s;
    struct json_w w;
    const struct plan_layout *l = &o->c.lay;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    char layout[PLAN_LAYOUT_TEXT];
    plan_start_layout(r, l, layout);
    if (*layout) {
        text_jw_key(&w, "layout");
        text_jw_strz(&w, layout);
    }
    if (plan_start_threads(r, l)) {
        text_jw_key(&w, "threads");
        text_jw_int(&w, plan_start_threads(r, l));
    }
    if (l->mtp > 0) {
        text_jw_key(&w, "draft");
        text_jw_strz(&w, "mtp");
        text_jw_key(&w, "draft-max");
        text_jw_int(&w, l->mtp);
    }
    if (r->has_real) { /* a real file: that is what is served, not the default */
        text_jw_key(&w, "model");
        text_jw_strz(&w, r->o->common.model);
    }
    put_team(&w, r, l);
    double hold = fmin(o->r.mem.free_seq, 4096);
    text_jw_key(&w, "chunk");
    text_jw_int(&w, l->chunk > 0 ? l->chunk : (int64_t)o->c.k.v[PLAN_CHUNK]);
    text_jw_key(&w, "max-batch");
    text_jw_int(&w, (int64_t)fmax(1, fmin(hold, o->load.n)));
    text_jw_key(&w, "ctx");
    text_jw_int(&w, (int64_t)(r->q.load.in + r->q.load.out));
    text_jw_obj_end(&w);
    return plan_emit_file(r, &s, err) == SL_OK ? CMD_OK : cmd_fail(err);
}

int plan_cmd_search(struct plan_run *r)
{
    sl_err err;
    struct plan_found f;
    sl_status st = plan_run_query(r, &err);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    int64_t t0 = clock_now_ns();
    if (plan_search(&r->book, &r->q, r->a, r->o->top, &f, &err)) return cmd_fail(&err);
    double seconds = 1e-9 * (double)(clock_now_ns() - t0);
    if (r->o->common.json)
        plan_json_found(r, &f, seconds);
    else
        plan_print_found(r, &f);
    if (r->o->html && (f.n_option > 0 || f.n_reject > 0) &&
        plan_html(r, &f, r->o->html, &err))
        return cmd_fail(&err);
    if (r->o->emit && f.n_option > 0) {
        int rc = emit_config(r, chosen(r, &f), &err);
        if (rc) return rc;
    }
    if (r->q.team && f.n_option > 0 && !r->o->common.json && plan_goals(r, NULL, &err))
        return cmd_fail(&err);
    if (r->q.team && f.n_option > 0 && !r->o->common.json)
        plan_print_start(r, chosen(r, &f), r->o->emit);
    if (plan_is_apart(r) && f.n_option > 0 && !r->o->common.json)
        plan_print_apart(r, chosen(r, &f));
    if (f.n_fit == 0 && f.n_reject == 0) {
        return cmd_usage("no layout to try: the options together leave none for %d card(s)",
                         r->q.cards);
    }
    return f.n_option > 0 ? CMD_OK : CMD_FAILED;
}

static int claim(struct plan_run *r)
{
    sl_err err;
    char text[256];
    struct plan_format f;
    sl_status st = plan_run_model(r, r->o->common.model ? r->o->common.model : "", &err);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    double bits = r->o->weights && plan_format_find(r->o->weights, &f) ? f.expert : 0;
    if (plan_claim(r->q.model, bits, r->o->claim_gb * 1e9, text, sizeof text)) {
        printf("%s\n", text);
        return CMD_FAILED;
    }
    printf("possible: %.0f GB can hold %.1f B parameters\n", r->o->claim_gb,
           r->q.model->total * 1e-9);
    return CMD_OK;
}

static int run(struct cmd_ctx *c)
{
    const struct plan_opts *o = c->opts;
    sl_err err;
    void *mem;
    if (mem_arena_alloc(&c->arena, sizeof(struct plan_run), &mem, &err)) return cmd_fail(&err);
    struct plan_run *r = mem;
    if (plan_run_open(r, o, &c->arena, &err)) return cmd_fail(&err);
    int modes = !!o->check + !!o->calibrate + !!o->sweep + o->this_machine + o->acceptance_table +
                !!o->leave_out + !!o->device;
    if (modes > 1)
        return cmd_usage("contradiction: one of --check, --calibrate, --sweep, --this-machine, "
                         "--device, --acceptance-table, --leave-out");
    if (o->device && (o->this_cluster || o->this_box || o->hardware))
        return cmd_usage("contradiction: --device beside %s", o->this_cluster ? "--this-cluster"
                                                              : o->this_box   ? "--this-box"
                                                                              : "--hardware");
    if (o->common.json &&
        (o->list || o->acceptance_table || o->leave_out || o->calibrate || o->claim_gb > 0))
        return cmd_usage("--json: not with --list, --acceptance-table, --leave-out, --calibrate or "
                         "--claim-gb");
    if (o->drafts && (o->list || modes > (o->sweep != NULL) || o->claim_gb > 0))
        return cmd_usage("--drafts: with a search or --sweep only");
    if (o->list) return list_names(r);
    if (o->acceptance_table) return plan_cmd_acceptance(r);
    if (o->leave_out) return plan_cmd_cross(r);
    if (o->check) return plan_cmd_check(r);
    if (o->calibrate) return plan_cmd_calibrate(r);
    if (o->this_machine) return plan_cmd_machine(r);
    if (o->device) return plan_cmd_device(r);
    if (o->claim_gb > 0) return claim(r);
    if (o->sweep) return plan_cmd_sweep(r);
    return plan_cmd_search(r);
}

const struct cmd cmd_plan = {
    .name = "plan",
    .summary = "which layout fits, how fast it will be, and how sure that is",
    .usage = "--model NAME --hardware NAME --cards N [options]",
    .about = "Searches weight formats and layouts, memory first. Predictions carry an interval: "
             "see docs/planner.md.",
    .example = "sluice plan --model deepseek-r1 --hardware ascend-910b1 --cards 8 --input 4096 "
               "--concurrency 8",
    .opts = opts,
    .pairs = pairs,
    .opts_bytes = sizeof(struct plan_opts),
    .run = run,
};
