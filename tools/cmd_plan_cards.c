/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --device A,B: several devices beside the CPU. One rank has them in turn, or each is a
 * stage's (--layout pp=2): which is faster for so many users, what lies on each, what starts it. */
#include <math.h>
#include <string.h>

#include "cmd_plan.h"
#include "compute.h"
#include "dev/dev.h"

#define GIB 1073741824.0
#define SIMPLER 1.02 /* stages must be so much faster than one rank */

struct row {
    const char *name;
    bool stages;
    struct plan_placing p;
    struct plan_carded got;
    char args[400]; /* after the model */
};

struct cards_plan {
    struct plan_run *r;
    struct plan_card card[PLAN_CARDS_MAX];
    char name[PLAN_CARDS_MAX][64];
    int n;
    struct plan_format fmt;
    struct plan_asked asked;
    struct row row[6];
    int n_row;
    bool told;
};

static sl_status names(struct cards_plan *x, sl_err *err)
{
    for (const char *s = x->r->o->device; *s;) {
        size_t n = dev_name_bytes(s);
        if (x->n == PLAN_CARDS_MAX)
            return SL_FAIL(err, REQUEST, "--device %.60s: more than %d devices", x->r->o->device,
                           PLAN_CARDS_MAX);
        if (!n || n >= sizeof x->name[0])
            return SL_FAIL(err, REQUEST, "--device %.60s: names with commas between",
                           x->r->o->device);
        snprintf(x->name[x->n++], sizeof x->name[0], "%.*s", (int)n, s);
        s += n + (s[n] == ',');
    }
    return SL_OK;
}

static sl_status ask(struct cards_plan *x, sl_err *err)
{
    const struct plan_opts *o = x->r->o;
    int from = 0;
    SL_TRY(names(x, err));
    SL_TRY(plan_card_asked(x->r, &x->fmt, &x->asked, &from, err));
    if (from)
        return SL_FAIL(err, REQUEST, "--stream-from: of one device, not yet of several");
    if (x->n > x->r->q.model->layers)
        return SL_FAIL(err, REQUEST, "--device %.60s: %.60s has %d layers", o->device,
                       x->r->q.model->name, x->r->q.model->layers);
    x->told = true;
    for (int i = 0; i < x->n; i++) {
        bool told = false;
        SL_TRY(plan_card_get(x->r, x->name[i], &x->card[i], &told, err));
        x->told &= told;
    }
    return x->told ? SL_OK : plan_card_beside(x->r, &x->card[0], err);
}

static void arguments(const struct cards_plan *x, struct row *row)
{
    char stages[24] = "";
    if (row->stages) snprintf(stages, sizeof stages, "--layout pp=%d ", x->n);
    snprintf(row->args, sizeof row->args, "%s--device %.200s%s", stages, x->r->o->device,
             row->p.n_cpu ? " --cpu-moe" : "");
    plan_card_args(x->r, &row->p, row->args, sizeof row->args);
}

static struct plan_cards cards_of(const struct cards_plan *x, bool stages)
{
    return (struct plan_cards){.card = x->card, .n = x->n, .stages = stages};
}

static void add(struct cards_plan *x, const char *name, bool stages, struct plan_placing p)
{
    struct row *row = &x->row[x->n_row++];
    *row = (struct row){.name = name, .stages = stages, .p = p};
    struct plan_cards c = cards_of(x, stages);
    plan_cards(x->r->q.model, &x->fmt, &c, &p, &x->asked, &row->got);
    arguments(x, row);
}

static void add_all(struct cards_plan *x)
{
    const struct plan_opts *o = x->r->o;
    struct plan_cards c = cards_of(x, false);
    for (int i = 1; i < x->n; i++) { /* one CPU is beside them all */
        x->card[i].host_bw = x->card[0].host_bw;
        x->card[i].host_ops = x->card[0].host_ops;
        x->card[i].host_mem = x->card[0].host_mem;
    }
    struct plan_placing all = {0}, apart = {.n_cpu = x->r->q.model->moe_layers},
                        late = {.n_cpu = apart.n_cpu, .n_late = o->defer};
    add(x, "all on the devices, in turn", false, all);
    add(x, "all on the devices, stages", true, all);
    if (!apart.n_cpu) return;
    add(x, "experts on the CPU, in turn", false, late);
    if (!late.n_late) add(x, "experts on the CPU, stages", true, apart);
    late.n_hot = o->n_hot >= 0
                     ? o->n_hot
                     : plan_cards_hot(x->r->q.model, &x->fmt, &c, &late, &x->asked);
    if (late.n_hot > 0) add(x, "hot ones on both, in turn", false, late);
    c.stages = true;
    apart.n_hot = o->n_hot >= 0
                      ? o->n_hot
                      : plan_cards_hot(x->r->q.model, &x->fmt, &c, &apart, &x->asked);
    if (apart.n_hot > 0 && !late.n_late) add(x, "hot ones on both, stages", true, apart);
}

static double weighed(const struct row *r)
{
    return r->got.all.step * (r->stages ? SIMPLER : 1);
}

static const struct row *fastest(const struct cards_plan *x)
{
    const struct row *best = NULL;
    for (int i = 0; i < x->n_row; i++) {
        const struct row *r = &x->row[i];
        if (r->got.all.over <= 0 && (!best || weighed(r) < weighed(best))) best = r;
    }
    return best;
}

/* ---- telling ---- */

static double there(const struct plan_placed *g)
{
    return g->dev_weights + g->dev_hot + g->dev_acts + g->dev_kv;
}

static void tell_row(const struct cards_plan *x, const struct row *r, bool is_best)
{
    const struct plan_placed *g = &r->got.all;
    char each[PLAN_CARDS_MAX * 10 + 1] = "";
    for (int i = 0, k = 0; i < x->n; i++)
        k += snprintf(each + k, sizeof each - (size_t)k, "%s%.1f", i ? "+" : "",
                      there(&r->got.of[i]) / GIB);
    printf("%-30s %14s %9.2f %6.0f %9.3f %9.1f %9.3f %9.3f", r->name, each,
           g->host_weights / GIB, g->free_seq, g->step * 1e3, g->prompt * 1e3, g->dev * 1e3,
           g->host * 1e3);
    if (g->over > 0)
        printf("  does not fit: %.2f GiB too many on %s", g->over / GIB,
               g->host_over ? "the host" : x->name[r->got.fullest]);
    printf("%s\n", is_best ? "  best" : "");
}

static void tell(const struct cards_plan *x, const struct row *best)
{
    printf("%s on %d devices beside the CPU: %.0f sequence%s of %.0f tokens\n", x->r->q.model->name,
           x->n, x->asked.batch, x->asked.batch > 1 ? "s" : "", x->asked.ctx);
    for (int i = 0; i < x->n; i++)
        plan_card_tell(x->name[i], &x->card[i], x->told);
    if (x->card[0].host_bw > 0)
        printf("CPU: reads %.3g GB/s, products %.3g Gop/s; of stages each has its part\n",
               x->card[0].host_bw * 1e-9, x->card[0].host_ops * 1e-9);
    printf("%-30s %14s %9s %6s %9s %9s %9s %9s\n", "placement", "GiB there", "GiB here", "holds",
           "ms/token", "prompt ms", "device ms", "CPU ms");
    for (int i = 0; i < x->n_row; i++)
        tell_row(x, &x->row[i], &x->row[i] == best);
}

/* Which layers device i has: those of part n - 1 - i of stages. */
static void layers_json(struct json_w *w, const struct cards_plan *x, const struct row *r, int i)
{
    int part = r->stages ? x->n - 1 - i : i;
    text_jw_key_int(w, "layer_first", r->got.first[part]);
    text_jw_key_int(w, "layers", r->got.first[part + 1] - r->got.first[part]);
}

static void row_json(struct json_w *w, const struct cards_plan *x, const struct row *r)
{
    const struct plan_placed *g = &r->got.all;
    text_jw_obj(w);
    text_jw_key_strz(w, "name", r->name);
    text_jw_key_strz(w, "args", r->args);
    text_jw_key_bool(w, "stages", r->stages);
    text_jw_key_bool(w, "fits", g->over <= 0);
    plan_put(w, "over_gib", fmax(0, g->over) / GIB);
    text_jw_key(w, "devices");
    text_jw_arr(w);
    for (int i = 0; i < x->n; i++) {
        text_jw_obj(w);
        text_jw_key_strz(w, "name", x->name[i]);
        layers_json(w, x, r, i);
        plan_put(w, "weights_gib", r->got.of[i].dev_weights / GIB);
        plan_put(w, "hot_gib", r->got.of[i].dev_hot / GIB);
        plan_put(w, "kv_gib", r->got.of[i].dev_kv / GIB);
        plan_put(w, "acts_gib", r->got.of[i].dev_acts / GIB);
        plan_put(w, "ms", r->got.of[i].step * 1e3);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    plan_put(w, "host_gib", g->host_weights / GIB);
    plan_put(w, "sequences_max", g->free_seq);
    plan_put(w, "ms_per_step", g->step * 1e3);
    plan_put(w, "prompt_ms", g->prompt * 1e3);
    plan_put(w, "lanes", r->got.lanes);
    text_jw_key_int(w, "hot", r->p.n_hot);
    text_jw_key_int(w, "defer", r->p.n_late);
    text_jw_obj_end(w);
}

static sl_status tell_json(const struct cards_plan *x, const struct row *best, sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "model", x->r->q.model->name);
    text_jw_key_strz(&w, "device", x->r->o->device);
    text_jw_key(&w, "placements");
    text_jw_arr(&w);
    for (int i = 0; i < x->n_row; i++)
        row_json(&w, x, &x->row[i]);
    text_jw_arr_end(&w);
    if (best) text_jw_key_strz(&w, "best", best->args);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

/* What serve takes. */
static sl_status emit(const struct cards_plan *x, const struct row *best, sl_err *err)
{
    struct str s;
    struct json_w w;
    char layout[16];
    const struct plan_opts *o = x->r->o;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    snprintf(layout, sizeof layout, "pp=%d", x->n);
    if (best->stages) text_jw_key_strz(&w, "layout", layout);
    text_jw_key_strz(&w, "device", o->device);
    if (x->r->has_real) text_jw_key_strz(&w, "model", o->common.model);
    if (best->p.n_cpu) text_jw_key_bool(&w, "cpu-moe", true);
    plan_card_emit(x->r, &best->p, &x->asked, &w);
    text_jw_obj_end(&w);
    return plan_emit_file(x->r, &s, err);
}

int plan_cmd_cards(struct plan_run *r)
{
    struct cards_plan x = {.r = r};
    sl_err err;
    sl_status st = ask(&x, &err);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    add_all(&x);
    const struct row *best = fastest(&x);
    if (r->o->common.json) {
        if (tell_json(&x, best, &err)) return cmd_fail(&err);
    } else {
        tell(&x, best);
    }
    if (!best) return CMD_FAILED;
    if (r->o->emit && emit(&x, best, &err)) return cmd_fail(&err);
    return plan_card_start(r, best->args);
}
