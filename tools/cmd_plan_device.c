/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --device: a device of this machine, or a stand-in, beside the CPU: which parts of the
 * model lie where, what fits, how fast each is, and what starts it. */
#include <math.h>
#include <string.h>

#include "cmd_plan.h"
#include "compute.h"
#include "dev/dev.h"
#include "dev/figures.h"
#include "os/os.h"
#include "place.h"
#include "plan/place.h"

#define GIB 1073741824.0
#define PROBE_MS 200
#define CHUNK 512 /* tokens of a step of a prompt, as the engine has them */
#define CHUNK_STREAMED 2048
#define NEAR 1.01 /* fewer late experts are taken where they cost no more than this */

/* One placement, and what it is called by. */
struct row {
    const char *name;
    struct plan_placing p;
    struct plan_placed got;
    bool cpu_only;
    char args[200]; /* after the model */
};

struct device_plan {
    struct plan_run *r;
    struct plan_card card;
    struct plan_format fmt;
    struct plan_asked asked;
    struct row row[8];
    int n;
    int stream_from; /* as of plan_placing */
    bool told;       /* by the device's options, not measured */
};

/* ---- figures ---- */

sl_status plan_card_get(const struct plan_run *r, const char *name, struct plan_card *out,
                        bool *told, sl_err *err)
{
    struct dev_opts o = {.n_thread = r->o->common.threads};
    struct dev_figures f;
    dev *d = NULL;
    int64_t total = 0, left = 0;
    SL_TRY(dev_open(name, &o, &d, err));
    sl_status st = SL_OK;
    if (dev_is_host(d))
        st = SL_FAIL(err, REQUEST,
                     "--device %.60s: it is the CPU, beside which nothing lies: --this-machine, or "
                     "another device",
                     name);
    if (!st) st = dev_memory(d, &left, &total, err);
    if (!st) st = dev_figures_get(d, &f, err);
    dev_close(d);
    SL_TRY(st);
    *told = f.is_told;
    *out = (struct plan_card){.mem = (double)(f.is_told ? total : left),
                              .bw = f.read,
                              .ops = f.ops,
                              .bus = f.bus,
                              .lat = f.lat_s,
                              .hand = f.hand_s,
                              .host_bw = f.host_read,
                              .host_ops = f.host_ops};
    return SL_OK;
}

sl_status plan_card_beside(struct plan_run *r, struct plan_card *card, sl_err *err)
{
    struct dev_opts o = {.n_thread = r->o->common.threads};
    struct os_topology top;
    struct plan_consts k;
    double gbps = 0, gops = 0;
    SL_TRY(os_topology_get(&top, err));
    card->host_mem = (double)top.mem_available;
    SL_TRY(plan_read_doctor(r, &gbps, &gops, err));
    if (!(gbps > 0)) {
        dev *d = NULL;
        SL_TRY(dev_open("cpu", &o, &d, err));
        gbps = dev_probe_read_gbps(d, PROBE_MS);
        gops = dev_probe_int8_gops(d, PROBE_MS);
        dev_close(d);
    }
    SL_TRY(plan_here(r, &(struct plan_speed){gbps, gops}, &k, err));
    card->host_bw = k.v[PLAN_CPU_GBPS] * 1e9;
    card->host_ops = k.v[PLAN_CPU_TOPS] * 1e12;
    return SL_OK;
}

/* ---- placements ---- */

void plan_card_args(const struct plan_run *r, const struct plan_placing *p, char *args, size_t cap)
{
    const char *from = r->o->common.expert_stats;
    size_t n = strlen(args);
    if (p->n_hot) n += (size_t)snprintf(args + n, cap - n, " --hot-experts %d", p->n_hot);
    if (p->n_hot && from) n += (size_t)snprintf(args + n, cap - n, " --hot-from %.60s", from);
    if (p->n_late) snprintf(args + n, cap - n, " --defer %d", p->n_late);
}

static void arguments(const struct device_plan *x, struct row *row)
{
    const struct plan_placing *p = &row->p;
    int all = x->r->q.model->moe_layers, n = 0;
    char *s = row->args;
    size_t cap = sizeof row->args;
    if (row->cpu_only) {
        snprintf(s, cap, "--device cpu");
        return;
    }
    n = snprintf(s, cap, "--device %.90s", x->r->o->device);
    int first = x->r->q.model->layers - all; /* --n-cpu-moe counts layers without experts too */
    if (p->n_cpu && p->n_cpu == all) n += snprintf(s + n, cap - (size_t)n, " --cpu-moe");
    if (p->n_cpu && p->n_cpu < all)
        n += snprintf(s + n, cap - (size_t)n, " --n-cpu-moe %d", first + p->n_cpu);
    plan_card_args(x->r, p, s, cap);
    n = (int)strlen(s);
    if (p->n_cpu && p->stream_from == PLAN_STREAM_AUTO)
        snprintf(s + n, cap - (size_t)n, " --stream-from auto");
    if (p->n_cpu && p->stream_from > 0)
        snprintf(s + n, cap - (size_t)n, " --stream-from %d", p->stream_from);
}

static struct row *add(struct device_plan *x, const char *name, struct plan_placing p)
{
    struct row *row = &x->row[x->n++];
    p.stream_from = x->stream_from;
    *row = (struct row){.name = name, .p = p};
    plan_place(x->r->q.model, &x->fmt, &x->card, &p, &x->asked, &row->got);
    arguments(x, row);
    return row;
}

/* Everything on the CPU, where it is known. */
static void add_cpu(struct device_plan *x)
{
    const struct plan_model *m = x->r->q.model;
    struct row *row = &x->row[x->n++];
    struct plan_time t;
    struct plan_case c = {.model = m, .fmt = x->fmt, .kv_bits = x->asked.kv_bits};
    c.k = x->r->book.prior[PLAN_CPU][PLAN_MODE_CPU];
    c.k.mode = PLAN_MODE_CPU;
    c.k.v[PLAN_CPU_GBPS] = x->card.host_bw * 1e-9;
    c.k.v[PLAN_CPU_TOPS] = (x->card.host_ops > 0 ? x->card.host_ops : 1e15) * 1e-12;
    c.k.v[PLAN_T0] = c.k.v[PLAN_T_REQ] = 0;
    c.lay = (struct plan_layout){.cards = 1, .ranks = 1, .tp = 1, .pp = 1, .dp = 1, .ep = 1};
    struct plan_device cpu = {.vendor = PLAN_CPU, .dies = 1, .cards_per_node = 1};
    c.dev = &cpu;
    *row = (struct row){.name = "CPU alone", .cpu_only = true};
    plan_step(&c, fmax(1, x->asked.batch), x->asked.ctx, &t);
    row->got.step = row->got.host = t.total;
    for (double at = 0; at < x->asked.prompt; at += x->asked.chunk) {
        plan_prefill(&c, 1, fmin(x->asked.chunk, x->asked.prompt - at), at, &t);
        row->got.prompt += t.total;
    }
    row->got.host_weights = plan_weight_bytes(m, &x->fmt, false);
    row->got.seq = plan_kv_bytes(m, x->asked.ctx, x->asked.kv_bits, 1);
    double left = x->card.host_mem - row->got.host_weights;
    row->got.free_seq = x->card.host_mem > 0 ? fmax(0, floor(left / row->got.seq)) : 0;
    row->got.over = x->card.host_mem > 0 ? row->got.seq - left : 0;
    row->got.host_over = true;
    arguments(x, row);
}

static void add_all(struct device_plan *x)
{
    const struct plan_model *m = x->r->q.model;
    const struct plan_opts *o = x->r->o;
    int all = m->moe_layers, least = plan_place_least(m, &x->fmt, &x->card, &x->asked);
    add(x, "all on the device", (struct plan_placing){0});
    if (least > 0 && least < all)
        add(x, "experts of some layers on the CPU", (struct plan_placing){.n_cpu = least});
    if (all > 0) {
        struct plan_placing p = {.n_cpu = all, .n_late = o->defer};
        add(x, "experts on the CPU", p);
        p.stream_from = x->stream_from;
        p.n_hot = o->n_hot >= 0 ? o->n_hot
                                : plan_place_hot(m, &x->fmt, &x->card, &p, &x->asked);
        if (p.n_hot > 0) add(x, "hot ones on both", p);
    }
    if (x->card.host_bw > 0) add_cpu(x);
}

/* The fewest late experts that gain all there is, of the fastest placement with experts apart. */
static int best_late(const struct device_plan *x, const struct row *row, double *step)
{
    const struct plan_model *m = x->r->q.model;
    double ms[64], least = row->got.step;
    int n = (int)fmin(m->topk, 63);
    for (int i = 0; i <= n; i++) {
        struct plan_placing p = row->p;
        struct plan_placed got;
        p.n_late = i;
        plan_place(m, &x->fmt, &x->card, &p, &x->asked, &got);
        ms[i] = got.step;
        least = fmin(least, got.step);
    }
    for (int i = 0; i <= n; i++)
        if (ms[i] <= least * NEAR) {
            *step = ms[i];
            return i;
        }
    return 0;
}

static const struct row *fastest(const struct device_plan *x)
{
    const struct row *best = NULL;
    for (int i = 0; i < x->n; i++)
        if (x->row[i].got.over <= 0 && (!best || x->row[i].got.step < best->got.step))
            best = &x->row[i];
    return best;
}

/* ---- telling ---- */

void plan_card_tell(const char *name, const struct plan_card *c, bool told)
{
    printf("%s: %.1f GiB, reads %.3g GB/s, products %.3g Gop/s, bus %.3g GB/s, launch %.3g us, "
           "hand-over %.3g us (%s)\n",
           name, c->mem / GIB, c->bw * 1e-9, c->ops * 1e-9, c->bus * 1e-9, c->lat * 1e6,
           c->hand * 1e6, told ? "as its options say" : "measured");
}

static void tell(const struct device_plan *x, const struct row *best)
{
    const struct plan_card *c = &x->card;
    const struct plan_model *m = x->r->q.model;
    printf("%s on %s beside the CPU: %.0f sequence%s of %.0f tokens\n", m->name, x->r->o->device,
           x->asked.batch, x->asked.batch > 1 ? "s" : "", x->asked.ctx);
    plan_card_tell("device", c, x->told);
    if (c->host_bw > 0)
        printf("CPU: reads %.3g GB/s, products %.3g Gop/s\n", c->host_bw * 1e-9,
               c->host_ops * 1e-9);
    printf("%-34s %9s %9s %6s %9s %9s %9s %9s\n", "placement", "GiB there", "GiB here", "holds",
           "ms/token", "prompt ms", "device ms", "CPU ms");
    for (int i = 0; i < x->n; i++) {
        const struct row *r = &x->row[i];
        const struct plan_placed *g = &r->got;
        double there = g->dev_weights + g->dev_hot + g->dev_acts + (r->cpu_only ? 0 : g->dev_kv);
        printf("%-34s %9.2f %9.2f %6.0f %9.3f %9.1f %9.3f %9.3f", r->name, there / GIB,
               g->host_weights / GIB, g->free_seq, g->step * 1e3, g->prompt * 1e3, g->dev * 1e3,
               g->host * 1e3);
        if (g->stream_from)
            printf("  streams prompts");
        if (g->over > 0)
            printf("  does not fit: %.2f GiB too many on the %s", g->over / GIB,
                   g->host_over ? "host" : "device");
        printf("%s\n", r == best ? "  best" : "");
    }
}

static void tell_late(const struct device_plan *x, const struct row *best)
{
    double step = 0;
    if (!best || !best->p.n_cpu || best->p.n_late) return;
    int n = best_late(x, best, &step);
    if (n > 0)
        printf("note: --defer %d (other answers: eval --defer %d measures how much) would take "
               "%.3f ms\n",
               n, n, step * 1e3);
    if (best->p.n_hot && !x->r->q.model->counts)
        printf("note: hot experts are taken to be as busy as others: --expert-stats FILE says "
               "which are\n");
}

static void row_json(struct json_w *w, const struct row *r)
{
    const struct plan_placed *g = &r->got;
    text_jw_obj(w);
    text_jw_key_strz(w, "name", r->name);
    text_jw_key_strz(w, "args", r->args);
    text_jw_key_bool(w, "fits", g->over <= 0);
    plan_put(w, "over_gib", fmax(0, g->over) / GIB);
    plan_put(w, "device_gib", (g->dev_weights + g->dev_hot + g->dev_acts) / GIB);
    plan_put(w, "host_gib", g->host_weights / GIB);
    plan_put(w, "sequences_max", g->free_seq);
    plan_put(w, "ms_per_step", g->step * 1e3);
    plan_put(w, "prompt_ms", g->prompt * 1e3);
    plan_put(w, "device_ms", g->dev * 1e3);
    plan_put(w, "cpu_ms", g->host * 1e3);
    text_jw_key_int(w, "cpu_layers", r->p.n_cpu);
    text_jw_key_int(w, "hot", r->p.n_hot);
    text_jw_key_int(w, "defer", r->p.n_late);
    /* the least chunk of the prompt that is; 0: none */
    text_jw_key_int(w, "streamed_from", g->stream_from);
    plan_put(w, "stream_gib", g->stream_buf / GIB);
    text_jw_obj_end(w);
}

static sl_status tell_json(const struct device_plan *x, const struct row *best, sl_err *err)
{
    struct str s;
    struct json_w w;
    const struct plan_card *c = &x->card;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "model", x->r->q.model->name);
    text_jw_key_strz(&w, "device", x->r->o->device);
    text_jw_key(&w, "figures");
    text_jw_obj(&w);
    plan_put(&w, "mem_gib", c->mem / GIB);
    plan_put(&w, "read_gbps", c->bw * 1e-9);
    plan_put(&w, "gops", c->ops * 1e-9);
    plan_put(&w, "bus_gbps", c->bus * 1e-9);
    plan_put(&w, "launch_us", c->lat * 1e6);
    plan_put(&w, "hand_us", c->hand * 1e6);
    plan_put(&w, "host_read_gbps", c->host_bw * 1e-9);
    plan_put(&w, "host_gops", c->host_ops * 1e-9);
    text_jw_obj_end(&w);
    text_jw_key(&w, "placements");
    text_jw_arr(&w);
    for (int i = 0; i < x->n; i++)
        row_json(&w, &x->row[i]);
    text_jw_arr_end(&w);
    if (best) text_jw_key_strz(&w, "best", best->args);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

/* ---- what serve takes ---- */

void plan_card_emit(const struct plan_run *r, const struct plan_placing *p,
                    const struct plan_asked *asked, struct json_w *w)
{
    const struct opt_common *o = &r->o->common;
    char hot[16];
    snprintf(hot, sizeof hot, "%d", p->n_hot);
    if (p->n_hot) text_jw_key_strz(w, "hot-experts", hot);
    if (p->n_hot && o->expert_stats) text_jw_key_strz(w, "hot-from", o->expert_stats);
    if (p->n_late) text_jw_key_int(w, "defer", p->n_late);
    if (p->n_cpu && p->stream_from) text_jw_key_strz(w, "stream-from", o->stream_from);
    text_jw_key_int(w, "chunk", (int64_t)asked->chunk);
    text_jw_key_int(w, "max-batch", (int64_t)fmax(1, asked->batch));
    text_jw_key_int(w, "ctx", (int64_t)asked->ctx);
}

sl_status plan_emit_file(const struct plan_run *r, struct str *s, sl_err *err)
{
    str_putc(s, '\n');
    sl_status st = str_status(s, err);
    if (!st) st = os_write_file(r->o->emit, s->p, s->n, err);
    str_fini(s);
    return st;
}

static sl_status emit(const struct device_plan *x, const struct row *best, sl_err *err)
{
    struct str s;
    struct json_w w;
    const struct plan_opts *o = x->r->o;
    int all = x->r->q.model->moe_layers, first = x->r->q.model->layers - all;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "device", best->cpu_only ? "cpu" : o->device);
    if (x->r->has_real) text_jw_key_strz(&w, "model", o->common.model);
    if (best->p.n_cpu && best->p.n_cpu == all) {
        text_jw_key_bool(&w, "cpu-moe", true);
    } else if (best->p.n_cpu) {
        text_jw_key_int(&w, "n-cpu-moe", first + best->p.n_cpu);
    }
    plan_card_emit(x->r, &best->p, &x->asked, &w);
    text_jw_obj_end(&w);
    return plan_emit_file(x->r, &s, err);
}

sl_status plan_card_asked(struct plan_run *r, struct plan_format *fmt, struct plan_asked *asked,
                          int *stream_from, sl_err *err)
{
    const struct plan_opts *o = r->o;
    if (!o->common.model)
        return SL_FAIL(err, REQUEST, "missing option: --model: --list shows the names");
    SL_TRY(plan_run_model(r, o->common.model, err));
    if (o->common.expert_stats) SL_TRY(plan_query_counts(r, err));
    const struct plan_model *m = r->q.model;
    if (m->attn == PLAN_ATTN_V4)
        return SL_FAIL(err, REQUEST, "--device: %.60s has layers that sluice does not run on one",
                       m->name);
    if (o->defer > m->topk)
        return SL_FAIL(err, REQUEST, "--defer %d: a token has %d experts", o->defer, m->topk);
    if (o->n_hot > m->experts)
        return SL_FAIL(err, REQUEST, "--hot %d: %.60s has %d experts in a layer", o->n_hot,
                       m->name, m->experts);
    SL_TRY(place_stream(&o->common, stream_from, err));
    if (r->has_real)
        *fmt = r->real;
    else if (!plan_format_find(o->weights ? o->weights : "q4", fmt))
        return SL_FAIL(err, REQUEST, "unknown weights: %.20s: one of %s", o->weights,
                       plan_format_names());
    double in, out;
    plan_run_lengths(r, &in, &out);
    *asked = (struct plan_asked){.batch = o->concurrency > 0 ? o->concurrency : 1,
                                 .ctx = in + out,
                                 .prompt = in,
                                 .chunk = o->chunk > 0   ? o->chunk
                                          : *stream_from ? CHUNK_STREAMED
                                                         : CHUNK,
                                 .kv_bits = strcmp(o->kv, "int8") ? 16 : 8};
    return SL_OK;
}

static sl_status ask(struct device_plan *x, sl_err *err)
{
    SL_TRY(plan_card_asked(x->r, &x->fmt, &x->asked, &x->stream_from, err));
    SL_TRY(plan_card_get(x->r, x->r->o->device, &x->card, &x->told, err));
    return x->told ? SL_OK : plan_card_beside(x->r, &x->card, err);
}

int plan_card_start(const struct plan_run *r, const char *args)
{
    const struct opt_common *o = &r->o->common;
    if (o->json) return CMD_OK;
    if (r->o->emit)
        printf("start: sluice serve --config %s\n", r->o->emit);
    else
        printf("start: sluice serve -m %s %s\n", r->has_real ? o->model : "MODEL", args);
    return CMD_OK;
}

int plan_cmd_device(struct plan_run *r)
{
    struct device_plan x = {.r = r};
    sl_err err;
    if (r->o->device[dev_name_bytes(r->o->device)]) return plan_cmd_cards(r);
    sl_status st = ask(&x, &err);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    add_all(&x);
    const struct row *best = fastest(&x);
    if (r->o->common.json) {
        if (tell_json(&x, best, &err)) return cmd_fail(&err);
    } else {
        tell(&x, best);
        tell_late(&x, best);
    }
    if (!best) return CMD_FAILED;
    if (r->o->emit && emit(&x, best, &err)) return cmd_fail(&err);
    return plan_card_start(r, best->args);
}
