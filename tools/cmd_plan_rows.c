/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --check, --calibrate and --sweep. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd_plan.h"
#include "os/os.h"

#define MAX_GROUP 512

struct loaded {
    struct plan_row *row;
    int n;
    struct plan_data d;
};

/* Rows of a file or of the table inside, which also has its held-out rules. */
static sl_status load_rows(struct plan_run *r, const char *path, struct loaded *l, sl_err *err)
{
    struct plan_bytes b = plan_embedded(PLAN_FILE_PUBLISHED);
    struct plan_rule *rule = NULL;
    int n_rule = 0;
    bool inside = strcmp(path, "published") == 0;
    if (!inside) SL_TRY(plan_slurp(r, path, &b, err));
    SL_TRY(plan_read_rows(r->a, b, &l->row, &l->n, err));
    if (inside)
        SL_TRY(plan_read_rules(r->a, plan_embedded(PLAN_FILE_HELDOUT), &rule, &n_rule, err));
    for (int i = 0; !inside && i < l->n; i++) { /* a file of one engine need not repeat its names */
        struct plan_row *w = &l->row[i];
        if (r->o->engine) snprintf(w->system, sizeof w->system, "%s", r->o->engine);
        if (r->o->hardware && !*w->hardware)
            snprintf(w->hardware, sizeof w->hardware, "%s", r->o->hardware);
    }
    return plan_data_init(&l->d, r->a, &r->t, &(struct plan_rows){l->row, l->n, rule, n_rule}, err);
}

/* A row that cannot be true: weights that no memory of this size holds. NULL when it can. */
static const char *row_claim(const struct plan_item *it, char *buf, size_t n)
{
    const struct plan_setup *s = &it->s;
    const struct plan_row *w = it->row;
    if (!s->c.model || isnan(w->value)) return NULL;
    double bits = strtod(*w->wbits == '~' ? w->wbits + 1 : w->wbits, NULL);
    if (strcmp(w->metric, "memory") == 0)
        return plan_claim(s->c.model, bits, w->value * 1e9, buf, n);
    if (it->skip && it->role != PLAN_ROLE_SKIP) return NULL;
    if (!s->c.dev || s->c.lay.ranks < 1 || s->c.lay.cpu_experts || s->c.fmt.expert <= 0)
        return NULL;
    double need = plan_weight_bytes(s->c.model, &s->c.fmt, false),
           have = s->dev.mem * s->c.lay.ranks;
    if (need <= have) return NULL;
    snprintf(buf, n, "impossible: %s in %.3g bits is %.0f GB, %d x %s have %.0f GB",
             s->c.model->name, s->c.fmt.expert, need * 1e-9, s->c.lay.cards, s->dev.name,
             have * 1e-9);
    return buf;
}

struct group {
    const char *system, *metric;
    struct plan_score score;
};

static bool in_group(const struct plan_item *it, const void *user)
{
    const struct group *g = user;
    return !strcmp(it->row->system, g->system) && !strcmp(it->row->metric, g->metric);
}

static int make_groups(const struct plan_data *d, struct group *g)
{
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        const struct plan_item *it = &d->item[i];
        int j = 0;
        if (it->skip) continue;
        while (j < n && !in_group(it, &g[j]))
            j++;
        if (j < n || n == MAX_GROUP) continue;
        g[n] = (struct group){.system = it->row->system, .metric = it->row->metric};
        plan_score(d, in_group, &g[n], &g[n].score);
        n++;
    }
    return n;
}

static bool any_item(const struct plan_item *it, const void *user)
{
    (void)it, (void)user;
    return true;
}

static void json_row(struct json_w *w, const struct plan_item *it)
{
    const struct plan_row *x = it->row;
    char buf[256];
    text_jw_obj(w);
    text_jw_key_strz(w, "source_file", x->source);
    text_jw_key_strz(w, "system", x->system);
    text_jw_key_strz(w, "model", x->model);
    text_jw_key_strz(w, "weights_bits", x->wbits);
    text_jw_key_strz(w, "act_bits", x->abits);
    text_jw_key_strz(w, "hardware", x->hardware);
    plan_put(w, "cards", x->cards);
    text_jw_key_strz(w, "layout", x->layout);
    plan_put(w, "concurrency", x->conc);
    plan_put(w, "input_len", x->in);
    plan_put(w, "output_len", x->out);
    text_jw_key_strz(w, "metric", x->metric);
    plan_put(w, "value", x->value);
    text_jw_key_strz(w, "unit", x->unit);
    text_jw_key_strz(w, "note", x->note);
    text_jw_key(w, "line");
    text_jw_int(w, x->line);
    plan_put(w, "predicted", it->skip ? NAN : it->got);
    plan_put(w, "error_pct", it->skip ? NAN : 100 * (it->got / x->value - 1));
    text_jw_key_strz(w, "confidence", it->skip ? "none" : plan_trust_name(it->trust));
    if (it->skip) {
        text_jw_key_strz(w, "skipped", it->skip);
    } else {
        struct plan_setup own = it->s;
        plan_setup_fix(&own);
        plan_put(w, "users", plan_row_users(&own)); /* of a row with a limit: as many as hold it */
        double s = it->prefill ? it->s.c.k.sigma_prefill : it->s.c.k.sigma_decode;
        text_jw_key(w, "interval");
        text_jw_arr(w);
        text_jw_real(w, it->got * exp(-1.2816 * s), 6);
        text_jw_real(w, it->got * exp(1.2816 * s), 6);
        text_jw_arr_end(w);
    }
    const char *flag = row_claim(it, buf, sizeof buf);
    if (flag) text_jw_key_strz(w, "flag", flag);
    text_jw_obj_end(w);
}

static void json_check(const struct plan_data *d, const struct group *g, int n,
                       const struct plan_score *all)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "rows");
    text_jw_arr(&w);
    for (int i = 0; i < d->n; i++)
        json_row(&w, &d->item[i]);
    text_jw_arr_end(&w);
    text_jw_key(&w, "groups");
    text_jw_arr(&w);
    for (int i = 0; i < n; i++) {
        text_jw_obj(&w);
        text_jw_key_strz(&w, "system", g[i].system);
        text_jw_key_strz(&w, "metric", g[i].metric);
        text_jw_key(&w, "n");
        text_jw_int(&w, g[i].score.n);
        plan_put(&w, "mape", g[i].score.mape);
        plan_put(&w, "worst", g[i].score.worst);
        plan_put(&w, "rank", g[i].score.rank);
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    text_jw_key(&w, "n");
    text_jw_int(&w, all->n);
    plan_put(&w, "mape", all->mape);
    plan_put(&w, "median", all->median);
    plan_put(&w, "rank", all->rank);
    text_jw_obj_end(&w);
    printf("%s\n", str_c(&s));
    str_fini(&s);
}

static int by_error(const void *a, const void *b)
{
    const struct plan_item *x = *(const struct plan_item *const *)a,
                           *y = *(const struct plan_item *const *)b;
    return (fabs(x->err) < fabs(y->err)) - (fabs(x->err) > fabs(y->err));
}

static void print_check(struct plan_run *r, const struct plan_data *d, const struct group *g, int n,
                        const struct plan_score *all)
{
    const struct plan_item *order[2048];
    const char *why[32];
    int m = 0, n_why = 0, count[32] = {0};
    char buf[256];
    printf("%-44s %-28s %4s %8s %8s %6s\n", "system", "metric", "n", "mean %", "worst %", "rank");
    for (int i = 0; i < n; i++) {
        printf("%-44.44s %-28.28s %4d %8.1f %8.1f %6.2f\n", g[i].system, g[i].metric, g[i].score.n,
               g[i].score.mape, g[i].score.worst, g[i].score.rank);
    }
    printf("%-44s %-28s %4d %8.1f %8.1f %6.2f   median %.1f\n", "all", "", all->n, all->mape,
           all->worst, all->rank, all->median);
    for (int i = 0; i < d->n; i++) {
        const struct plan_item *it = &d->item[i];
        const char *flag = row_claim(it, buf, sizeof buf);
        if (flag) printf("line %d: %s\n", it->row->line, flag);
        if (!it->skip && m < 2048) order[m++] = it;
        if (!it->skip) continue;
        int j = 0;
        while (j < n_why && strcmp(why[j], it->skip) != 0)
            j++;
        if (j == n_why && n_why < 32) why[n_why++] = it->skip;
        if (j < 32) count[j]++;
    }
    qsort(order, (size_t)m, sizeof *order, by_error);
    printf("worst rows:\n");
    for (int i = 0; i < m && i < r->o->top; i++) {
        const struct plan_row *x = order[i]->row;
        printf("  line %4d %+7.1f %%  %.30s, %.24s, n=%g in=%g: %s %g -> %.4g\n", x->line,
               100 * (order[i]->got / x->value - 1), x->system, x->model, x->conc, x->in, x->metric,
               x->value, order[i]->got);
    }
    for (int i = 0; i < n_why; i++)
        printf("skipped %d rows: %s\n", count[i], why[i]);
}

int plan_cmd_check(struct plan_run *r)
{
    sl_err err;
    struct loaded l;
    static struct group g[MAX_GROUP];
    if (load_rows(r, r->o->check, &l, &err)) return cmd_fail(&err);
    plan_check(&r->book, &l.d);
    int n = make_groups(&l.d, g);
    struct plan_score all;
    plan_score(&l.d, any_item, NULL, &all);
    if (r->o->common.json)
        json_check(&l.d, g, n, &all);
    else
        print_check(r, &l.d, g, n, &all);
    return CMD_OK;
}

static sl_status write_book(const struct plan_run *r, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    plan_book_write(&r->book, &s);
    sl_status st = str_status(&s, err);
    if (st == SL_OK && r->o->constants)
        st = os_write_file(r->o->constants, s.p, s.n, err);
    else if (st == SL_OK)
        fwrite(s.p, 1, s.n, stdout);
    str_fini(&s);
    return st;
}

int plan_cmd_calibrate(struct plan_run *r)
{
    sl_err err;
    struct loaded l;
    bool inside = strcmp(r->o->calibrate, "published") == 0;
    if (load_rows(r, r->o->calibrate, &l, &err)) return cmd_fail(&err);
    int usable = 0, before = r->book.n_set;
    const char *why = "no rows";
    char buf[256];
    for (int i = 0; i < l.d.n; i++) {
        struct plan_item *it = &l.d.item[i];
        if (!it->skip && row_claim(it, buf, sizeof buf)) it->skip = "impossible";
        usable += !it->skip;
        if (it->skip) why = it->skip;
    }
    if (usable < 3) {
        return cmd_usage("%s: %d usable row(s), calibration needs 3 or more (%s)", r->o->calibrate,
                         usable, why);
    }
    time_t now = time(NULL);
    struct tm tm;
    if (inside) {
        plan_book_init(&r->book);
        plan_fit_book(&r->book, &l.d);
        plan_fit_sigma(&r->book, &l.d);
        before = 0;
    } else {
        plan_fit_sets(&r->book, &l.d);
    }
    if (gmtime_r(&now, &tm)) strftime(r->book.date, sizeof r->book.date, "%Y-%m-%d", &tm);
    for (int i = 0; !r->o->common.quiet && i < r->book.n_set; i++) {
        const struct plan_set *s = &r->book.set[i];
        if (!inside && r->o->engine && strcmp(s->k.engine, r->o->engine) != 0) continue;
        fprintf(stderr, "%-40.40s %-30.30s %-14.14s %3d rows, decode %.1f %%, prefill %.1f %%:",
                s->k.engine, s->k.device, s->k.model, s->k.n_rows, s->err_decode, s->err_prefill);
        for (int k = 0; k < PLAN_KEYS; k++) {
            if (s->k.fitted >> k & 1) fprintf(stderr, " %s=%.4g", plan_key_name[k], s->k.v[k]);
        }
        fputc('\n', stderr);
    }
    if (r->book.n_set == before && !inside && !r->o->engine)
        fprintf(stderr, "sluice: no engine had three rows: nothing new\n");
    return write_book(r, &err) ? cmd_fail(&err) : CMD_OK;
}

/* ---- sweep --------------------------------------------------------------------------------------
 */

static double *slot_of(struct plan_query *q, const char *key, size_t n)
{
    const struct {
        const char *name;
        double *v;
    } s[] = {{"concurrency", &q->load.n},
             {"input", &q->load.in},
             {"output", &q->load.out},
             {"rate", &q->load.rate}};
    for (int i = 0; i < BASE_COUNT_OF(s); i++) {
        if (strlen(s[i].name) == n && !strncmp(s[i].name, key, n)) return s[i].v;
    }
    return NULL;
}

int plan_cmd_sweep(struct plan_run *r)
{
    sl_err err;
    struct plan_found f;
    const char *eq = strchr(r->o->sweep, '=');
    sl_status st = plan_run_query(r, &err);
    if (st) return st == SL_REQUEST ? cmd_usage("%s", err.text) : cmd_fail(&err);
    double *slot = eq ? slot_of(&r->q, r->o->sweep, (size_t)(eq - r->o->sweep)) : NULL;
    if (!slot)
        return cmd_usage("bad value: --sweep %.40s: concurrency, input, output or rate = 1,2,4",
                         r->o->sweep);
    if (plan_search(&r->book, &r->q, r->a, 1, &f, &err)) return cmd_fail(&err);
    if (f.n_option == 0) {
        plan_print_found(r, &f);
        return CMD_FAILED;
    }
    struct plan_option *o = &f.option[0];
    bool json = r->o->common.json;
    if (!json)
        printf("%s on %d x %s, layout %s\n%12s %8s %10s %9s %10s %10s %10s  %s\n", r->q.model->name,
               r->q.cards, r->q.dev->name, o->name, "value", "users", "TTFT ms", "TPOT ms",
               "tok/s/usr", "tok/s", "e2e s", "bound by");
    else
        printf("[");
    int count = 0;
    for (const char *p = eq + 1; *p; count++) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || !(v > 0) || v > 1e8 || (*end && *end != ',')) {
            return cmd_usage("bad value: --sweep %.40s: numbers above 0 with commas, at \"%.20s\"",
                             r->o->sweep, p);
        }
        *slot = v;
        struct plan_result x;
        struct plan_load w = plan_query_load(&r->q, &o->c);
        plan_eval(&o->c, &w, &x);
        if (json) {
            printf("%s{\"value\":%.8g,\"concurrency\":%.8g,\"ttft_ms\":%.6g,\"tpot_ms\":%.6g,\"tps_"
                   "user\":%.6g,\"tps\":%"
                   ".6g,\"e2e_s\":%.6g,\"bound\":\"%s\"}",
                   count ? "," : "", v, w.n, x.ttft * 1e3, x.tpot * 1e3, x.user_tps, x.out_tps,
                   x.e2e, x.bound);
        } else {
            printf("%12g %8.0f %10.1f %9.2f %10.1f %10.1f %10.2f  %s%s\n", v, w.n, x.ttft * 1e3,
                   x.tpot * 1e3, x.user_tps, x.out_tps, x.e2e, x.bound,
                   x.stable ? "" : " (not stable)");
        }
        p = end + (*end == ',');
    }
    if (json) printf("]\n");
    return count > 0 ? CMD_OK : cmd_usage("bad value: --sweep %.40s: no numbers", r->o->sweep);
}
