/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of sluice plan as a table and as JSON. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cmd_plan.h"

#define GIB 1073741824.0

const char *plan_trust_name(enum plan_trust t)
{
    return t == PLAN_CALIBRATED      ? "calibrated"
           : t == PLAN_SAME_PLATFORM ? "same platform"
                                     : "uncalibrated";
}

static void bar(const char *name, double v, double all)
{
    char cells[41];
    int n = all > 0 ? (int)(40 * v / all + 0.5) : 0;
    if (v <= 0) return;
    if (n > 40) n = 40;
    memset(cells, '#', (size_t)n);
    cells[n] = '\0';
    printf("      %-16s %9.3f ms  %s\n", name, v * 1e3, cells);
}

static void explain(const struct plan_option *o)
{
    char text[512];
    const struct plan_time *t = &o->r.step, *p = &o->r.pre;
    plan_explain(o, text, sizeof text);
    printf("    %s\n", text);
    bar("weights", t->weights, t->total);
    bar("experts", t->experts, t->total);
    bar("compute", t->compute, t->total);
    bar("attention", t->attn, t->total);
    bar("communication", t->comm, t->total);
    bar("fixed", t->fixed, t->total);
    bar("vector", t->token, t->total);
    bar("experts on CPU", t->cpu, t->total);
    bar("drafts", t->draft, t->total);
    printf("    prefill batch %.1f ms: compute %.1f, attention %.1f, communication %.1f, experts "
           "on CPU %.1f, fixed %.1f\n",
           p->total * 1e3, p->compute * 1e3, p->attn * 1e3, p->comm * 1e3, p->cpu * 1e3,
           p->fixed * 1e3);
    const struct plan_memory *m = &o->r.mem;
    printf("    memory per %s: weights %.1f, KV %.1f, activations %.1f, communication %.1f, graphs "
           "%.1f, MTP %.1f GiB of %.1f\n",
           o->c.dev->dies > 1             ? "die"
           : o->c.k.mode == PLAN_MODE_CPU ? "host"
                                          : "card",
           m->weights / GIB, m->kv / GIB, m->acts / GIB, m->comm / GIB, m->graph / GIB,
           m->mtp / GIB, m->limit / GIB);
    if (m->host > 0) printf("    host memory for experts: %.0f GiB\n", m->host / GIB);
}

static const char *goals(int g, char *buf, size_t n)
{
    snprintf(buf, n, "%s%s%s", g & PLAN_GOAL_RATE ? "tok/s " : "",
             g & PLAN_GOAL_TPOT ? "TPOT " : "", g & PLAN_GOAL_TTFT ? "TTFT " : "");
    return buf;
}

static void print_rejects(const struct plan_found *f, int most)
{
    int n = f->n_reject < most ? f->n_reject : most;
    if (n == 0) return;
    printf("\ndoes not fit (%d layouts; nearest first):\n", f->n_reject);
    for (int i = 0; i < n; i++)
        printf("  %-28s %s\n", f->reject[i].name, f->reject[i].why);
}

void plan_print_found(const struct plan_run *r, const struct plan_found *f)
{
    const struct plan_query *q = &r->q;
    char g[32];
    if (q->cpu_only)
        printf("%s on %s", q->model->name, q->dev->name);
    else
        printf("%s on %d x %s%s%s", q->model->name, q->cards, q->dev->name, q->host ? " + " : "",
               q->host ? q->host->name : "");
    if (q->load.rate > 0)
        printf(", %.3g requests/s", q->load.rate);
    else if (q->load.n > 0)
        printf(", %.0f users", q->load.n);
    else
        printf(", the most users within the limits");
    printf(", %.0f in, %.0f out; %d candidates, %d fit\n", q->load.in, q->load.out, f->n_tried,
           f->n_fit);
    if (f->n_option == 0) {
        printf("nothing fits. %s\n", f->cure);
        print_rejects(f, 16);
        return;
    }
    printf("%-30s %9s %7s %10s %9s %9s %9s %9s %7s %-14s %s\n", "layout", "GiB/rank", "users",
           "TTFT ms", "TPOT ms", "tok/s/usr", "tok/s/crd", "tok/s", "holds", "bound by",
           "confidence");
    for (int i = 0; i < f->n_option; i++) {
        const struct plan_option *o = &f->option[i];
        double hold = fmin(o->r.mem.free_seq, 999999);
        printf("%-30s %9.1f %7.0f %10.1f %9.2f %9.1f %9.1f %9.1f %7.0f %-14s %s "
               "x%.2f..%.2f%s%s%s\n",
               o->name, o->r.mem.total / GIB, o->load.n, o->r.ttft * 1e3, o->r.tpot * 1e3,
               o->r.user_tps, o->card_tps, o->card_tps * q->cards, hold, o->r.bound,
               plan_trust_name(o->c.k.trust), o->r.lo, o->r.hi, o->goals ? "  best: " : "",
               o->goals ? goals(o->goals, g, sizeof g) : "", o->within ? "" : "  (over a limit)");
        if (r->o->explain) explain(o);
    }
    if (r->note) printf("note: %s\n", r->note);
    print_rejects(f, r->o->explain ? 40 : 6);
}

void plan_put(struct json_w *w, const char *key, double v)
{
    text_jw_key_real(w, key, v, 8);
}

static void json_time(struct json_w *w, const char *key, const struct plan_time *t)
{
    text_jw_key(w, key);
    text_jw_obj(w);
    plan_put(w, "weights", t->weights * 1e6);
    plan_put(w, "experts", t->experts * 1e6);
    plan_put(w, "compute", t->compute * 1e6);
    plan_put(w, "attention", t->attn * 1e6);
    plan_put(w, "communication", t->comm * 1e6);
    plan_put(w, "fixed", t->fixed * 1e6);
    plan_put(w, "vector", t->token * 1e6);
    plan_put(w, "cpu", t->cpu * 1e6);
    plan_put(w, "drafts", t->draft * 1e6);
    plan_put(w, "total", t->total * 1e6);
    text_jw_obj_end(w);
}

static void json_memory(struct json_w *w, const struct plan_memory *m)
{
    text_jw_key(w, "memory_gib");
    text_jw_obj(w);
    plan_put(w, "weights", m->weights / GIB);
    plan_put(w, "kv", m->kv / GIB);
    plan_put(w, "activations", m->acts / GIB);
    plan_put(w, "communication", m->comm / GIB);
    plan_put(w, "graphs", m->graph / GIB);
    plan_put(w, "mtp", m->mtp / GIB);
    plan_put(w, "total", m->total / GIB);
    plan_put(w, "usable", m->limit / GIB);
    plan_put(w, "host", m->host / GIB);
    plan_put(w, "per_sequence", m->seq / GIB);
    text_jw_obj_end(w);
}

/* How rows go to experts, and whose share is larger. */
static void put_team(struct json_w *w, const struct plan_layout *l)
{
    char weights[PLAN_LAYOUT_TEXT];
    text_jw_key_strz(w, "dispatch", l->dp < 2 ? "" : l->swap ? "swap" : "gather");
    text_jw_key(w, "micro");
    text_jw_int(w, l->halves ? 2 : 1);
    if (l->n_weight > 0 && plan_layout_weights(l, weights, sizeof weights))
        text_jw_key_strz(w, "weight", weights);
}

static void json_option(struct json_w *w, const struct plan_run *r, const struct plan_option *o)
{
    const struct plan_layout *l = &o->c.lay;
    struct plan_result again;
    double us = 1e9;
    for (int i = 0; i < 16; i++) { /* the quickest: the others were interrupted */
        int64_t t0 = clock_now_ns();
        plan_eval(&o->c, &o->load, &again);
        double now = 1e-3 * (double)(clock_now_ns() - t0);
        if (now < us) us = now;
    }
    text_jw_obj(w);
    text_jw_key_strz(w, "name", o->name);
    text_jw_key_strz(w, "weights", o->c.fmt.name);
    text_jw_key(w, "layout");
    text_jw_obj(w);
    const struct {
        const char *key;
        int v;
    } f[] = {{"tp", l->tp},
             {"pp", l->pp},
             {"dp", l->dp},
             {"ep", l->ep},
             {"prefill_nodes", l->n_p},
             {"decode_nodes", l->n_d},
             {"redundant", l->redundant},
             {"mtp", l->mtp},
             {"chunk", l->chunk}};
    for (int i = 0; i < BASE_COUNT_OF(f); i++) {
        text_jw_key(w, f[i].key);
        text_jw_int(w, f[i].v);
    }
    text_jw_key(w, "experts_on_cpu");
    text_jw_bool(w, l->cpu_experts || o->c.k.mode == PLAN_MODE_CPU);
    plan_put(w, "hot", l->hot);
    if (o->c.team) put_team(w, l);
    text_jw_obj_end(w);
    plan_put(w, "concurrency", o->load.n);
    plan_put(w, "ttft_ms", o->r.ttft * 1e3);
    plan_put(w, "tpot_ms", o->r.tpot * 1e3);
    plan_put(w, "e2e_s", o->r.e2e);
    plan_put(w, "tps_user", o->r.user_tps);
    plan_put(w, "tps_card", o->card_tps);
    plan_put(w, "tps", o->card_tps * r->q.cards);
    plan_put(w, "steady_tps", o->r.steady_tps);
    plan_put(w, "prefill_tps", o->r.prefill_tps);
    plan_put(w, "concurrency_max", o->r.mem.free_seq);
    text_jw_key_strz(w, "bound", o->r.bound);
    text_jw_key_strz(w, "confidence", plan_trust_name(o->c.k.trust));
    text_jw_key(w, "interval");
    text_jw_arr(w);
    text_jw_real(w, o->r.lo, 6);
    text_jw_real(w, o->r.hi, 6);
    text_jw_arr_end(w);
    text_jw_key(w, "interval_ttft");
    text_jw_arr(w);
    text_jw_real(w, o->r.lo_ttft, 6);
    text_jw_real(w, o->r.hi_ttft, 6);
    text_jw_arr_end(w);
    text_jw_key(w, "within_limits");
    text_jw_bool(w, o->within);
    text_jw_key(w, "best");
    text_jw_arr(w);
    if (o->goals & PLAN_GOAL_RATE) text_jw_strz(w, "tps_card");
    if (o->goals & PLAN_GOAL_TPOT) text_jw_strz(w, "tpot");
    if (o->goals & PLAN_GOAL_TTFT) text_jw_strz(w, "ttft");
    text_jw_arr_end(w);
    json_memory(w, &o->r.mem);
    json_time(w, "step_us", &o->r.step);
    json_time(w, "prefill_us", &o->r.pre);
    plan_put(w, "eval_us", us);
    text_jw_obj_end(w);
}

void plan_json_found(struct plan_run *r, const struct plan_found *f, double seconds)
{
    struct str s;
    struct json_w w;
    const struct plan_query *q = &r->q;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "model", q->model->name);
    text_jw_key_strz(&w, "hardware", q->dev->name);
    text_jw_key(&w, "cards");
    text_jw_int(&w, q->cards);
    if (q->host) text_jw_key_strz(&w, "host", q->host->name);
    plan_put(&w, "input", q->load.in);
    plan_put(&w, "output", q->load.out);
    bool searched = q->load.n <= 0; /* each option has its own: as many as hold the limits */
    plan_put(&w, "concurrency", !searched ? q->load.n : f->n_option > 0 ? f->option[0].load.n : 0);
    text_jw_key(&w, "concurrency_searched");
    text_jw_bool(&w, searched);
    plan_put(&w, "rate", q->load.rate);
    plan_put(&w, "params_b", q->model->total * 1e-9);
    plan_put(&w, "active_b", q->model->active * 1e-9);
    plan_put(&w, "kv_bytes_per_token",
             q->model->attn == PLAN_ATTN_V4 ? plan_kv_bytes(q->model, 65536, 16, 1) / 65536
                                            : q->model->kv_token);
    text_jw_key(&w, "weight_gb");
    text_jw_obj(&w);
    for (int i = 0; i < q->n_fmt; i++)
        plan_put(&w, q->fmt[i].name, plan_weight_bytes(q->model, &q->fmt[i], false) * 1e-9);
    text_jw_obj_end(&w);
    text_jw_key(&w, "tried");
    text_jw_int(&w, f->n_tried);
    text_jw_key(&w, "fit");
    text_jw_int(&w, f->n_fit);
    plan_put(&w, "search_s", seconds);
    text_jw_key(&w, "options");
    text_jw_arr(&w);
    for (int i = 0; i < f->n_option; i++)
        json_option(&w, r, &f->option[i]);
    text_jw_arr_end(&w);
    text_jw_key(&w, "rejected");
    text_jw_arr(&w);
    for (int i = 0; i < f->n_reject; i++) {
        text_jw_obj(&w);
        text_jw_key_strz(&w, "name", f->reject[i].name);
        plan_put(&w, "over_gib", f->reject[i].over / GIB);
        text_jw_key_strz(&w, "why", f->reject[i].why);
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    if (f->n_option == 0) text_jw_key_strz(&w, "cure", f->cure);
    sl_err ignored;
    if (r->q.team && f->n_option > 0 && plan_goals(r, &w, &ignored))
        text_jw_key_strz(&w, "note", ignored.text);
    if (plan_is_apart(r) && f->n_option > 0) plan_put_apart(r, &f->option[0], &w);
    if (r->note) text_jw_key_strz(&w, "note", r->note);
    int def = plan_nodes_default(r);
    if (def) {
        char layout[16];
        snprintf(layout, sizeof layout, "tp=%d", def);
        text_jw_key_strz(&w, "default_layout", layout);
    }
    text_jw_obj_end(&w);
    printf("%s\n", str_c(&s));
    str_fini(&s);
}
