/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --pd apart: whether an engine of its own for prompts pays, for the row that was
 * chosen, and why. */
#include <math.h>

#include "cmd_plan.h"
#include "plan/apart.h"

#define MB 1e-6

static const char *verdict(const struct plan_apart *a)
{
    if (a->load >= 1) return "the link does not carry the prompts of that rate";
    if (!a->apart.stable && !a->two.stable) return "neither serves that rate";
    if (!a->apart.stable) return "an engine for prompts and one for answers do not serve that rate";
    if (!a->two.stable) return "two mixed engines do not serve that rate";
    return NULL;
}

static void print_way(const char *name, const struct plan_way *w)
{
    printf("  %-32s TTFT %8.1f ms, TPOT %7.2f ms, a request %7.2f s, %3.0f %% in prompts%s\n", name,
           w->ttft * 1e3, w->tpot * 1e3, w->e2e, fmin(w->busy, 1) * 100,
           w->stable ? "" : "  NOT SERVED");
}

static void apart_of(const struct plan_run *r, const struct plan_option *o, struct plan_apart *a)
{
    plan_apart(&o->c, &r->q.load, r->o->pd_gbps * 1e9 / 8, a);
}

void plan_print_apart(const struct plan_run *r, const struct plan_option *o)
{
    struct plan_apart a;
    const struct plan_load *w = &r->q.load;
    apart_of(r, o, &a);
    const char *why = verdict(&a);
    printf("\nprompts apart: %s, %.0f in, %.0f out, %.3g requests/s, a link of %.3g Gbit/s\n",
           o->name, w->in, w->out, w->rate, r->o->pd_gbps);
    print_way("one engine", &a.one);
    print_way("two, with half of the requests", &a.two);
    print_way("one for prompts, one for answers", &a.apart);
    printf("  a prompt's keys and values: %.1f MB, %.0f ms of the link, of which %.0f are not "
           "behind the prompt; the link is busy %.0f %%\n",
           a.kv * MB, a.wire * 1e3, a.shown * 1e3, a.load * 100);
    printf("  prompts beside answers cost a request %.2f s, the way and the queue %.2f s\n", a.harm,
           a.cost);
    printf("  %s%s%s\n", a.pays ? "it pays" : "it does not pay", why ? ": " : "", why ? why : "");
    if (a.pays)
        printf("start: sluice engine ... --listen unix:PATH for prompts, and --prefill unix:PATH "
               "for the one that answers\n");
}

static void put_way(struct json_w *w, const char *key, const struct plan_way *v)
{
    text_jw_key(w, key);
    text_jw_obj(w);
    plan_put(w, "ttft_ms", v->ttft * 1e3);
    plan_put(w, "tpot_ms", v->tpot * 1e3);
    plan_put(w, "e2e_ms", v->e2e * 1e3);
    plan_put(w, "busy", v->busy);
    text_jw_key_bool(w, "stable", v->stable);
    text_jw_obj_end(w);
}

void plan_put_apart(const struct plan_run *r, const struct plan_option *o, struct json_w *w)
{
    struct plan_apart a;
    apart_of(r, o, &a);
    text_jw_key(w, "apart");
    text_jw_obj(w);
    text_jw_key_strz(w, "name", o->name);
    text_jw_key_bool(w, "pays", a.pays);
    put_way(w, "one", &a.one);
    put_way(w, "two", &a.two);
    put_way(w, "split", &a.apart);
    plan_put(w, "kv_bytes", a.kv);
    plan_put(w, "wire_ms", a.wire * 1e3);
    plan_put(w, "shown_ms", a.shown * 1e3);
    plan_put(w, "link_busy", a.load);
    plan_put(w, "harm_ms", a.harm * 1e3);
    plan_put(w, "cost_ms", a.cost * 1e3);
    const char *why = verdict(&a);
    if (why) text_jw_key_strz(w, "why", why);
    text_jw_obj_end(w);
}
