/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of models, devices, hosts and engines, and finding a name in them. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "plan/csv.h"
#include "plan/plan_internal.h"

static void copy_name(char *dst, const char *src)
{
    snprintf(dst, PLAN_NAME, "%s", src);
}

static sl_status grow(struct arena *a, void *old, int n, size_t size, void **out, sl_err *err)
{
    SL_TRY(mem_arena_array(a, (size_t)n + 1, size, out, err));
    if (n > 0) memcpy(*out, old, (size_t)n * size);
    return SL_OK;
}

static int find_slot(const char *names, size_t stride, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcasecmp(names + (size_t)i * stride, name) == 0) return i;
    }
    return n;
}

static sl_status keep_alias(struct arena *a, const struct plan_csv *c, const char **out,
                            sl_err *err)
{
    const char *s = plan_csv_text(c, "alias");
    char *copy;
    if (!*s) s = plan_csv_text(c, "name");
    SL_TRY(mem_arena_str(a, s, strlen(s), &copy, err));
    for (char *p = copy; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    *out = copy;
    return SL_OK;
}

static sl_status model_row(const struct plan_csv *c, struct plan_model *m, sl_err *err)
{
    static const struct {
        const char *col;
        size_t off;
    } INTS[] = {
#define F(x) {#x, offsetof(struct plan_model, x)}
        F(layers),      F(hidden),    F(heads),      F(kv_heads),  F(head_dim),     F(q_lora),
        F(kv_lora),     F(nope),      F(rope),       F(v_dim),     F(dense_layers), F(dense_inter),
        F(experts),     F(topk),      F(shared),     F(moe_inter), F(shared_inter), F(vocab),
        F(mtp_layers),  F(tie_embed), F(max_ctx),    F(lin_k),     F(lin_v),        F(lin_d),
        F(index_heads), F(index_dim), F(index_topk), F(n_c4),      F(n_c128),       F(window),
        F(n_window),
#undef F
    };
    *m = (struct plan_model){0};
    copy_name(m->name, plan_csv_text(c, "name"));
    const char *attn = plan_csv_text(c, "attn");
    m->attn = !strcmp(attn, "mla")   ? PLAN_ATTN_MLA
              : !strcmp(attn, "v4")  ? PLAN_ATTN_V4
              : !strcmp(attn, "hyb") ? PLAN_ATTN_HYB
                                     : PLAN_ATTN_GQA;
    double v;
    for (size_t i = 0; i < sizeof INTS / sizeof INTS[0]; i++) {
        SL_TRY(plan_csv_num(c, INTS[i].col, PLAN_NUM(0, 0, 1e8), &v, err));
        *(int *)((char *)m + INTS[i].off) = (int)v;
    }
    SL_TRY(plan_csv_num(c, "params_total_B", PLAN_NUM(0, 0, 1e6), &v, err));
    m->total = v * 1e9;
    SL_TRY(plan_csv_num(c, "params_active_B", PLAN_NUM(0, 0, 1e6), &v, err));
    m->active = v * 1e9;
    SL_TRY(plan_csv_num(c, "kv_bytes_per_token_bf16", PLAN_NUM(0, 0, 1e9), &m->kv_token, err));
    if (strstr(m->name, "V4-") && m->n_c4 == 0) { /* the shared table has these in prose */
        bool pro = strstr(m->name, "Pro") != NULL;
        m->n_c4 = pro ? 30 : 21, m->n_c128 = pro ? 31 : 20, m->window = 128;
        m->index_heads = 64, m->index_dim = 128, m->index_topk = pro ? 1024 : 512;
    }
    if (m->attn == PLAN_ATTN_MLA && strstr(plan_csv_text(c, "extra"), "DSA") && !m->index_topk) {
        m->index_heads = strstr(plan_csv_text(c, "extra"), "64 heads") ? 64 : 32;
        m->index_dim = 128, m->index_topk = 2048;
    }
    char why[160];
    if (!plan_model_finish(m, why, sizeof why)) {
        return SL_FAIL(err, FORMAT, "%s line %d: %s", c->src.name, c->line, why);
    }
    return SL_OK;
}

static enum plan_vendor vendor_of(const struct plan_csv *c, const char *kind)
{
    const char *v = plan_csv_text(c, "vendor"), *name = plan_csv_text(c, "name");
    if (!strcmp(v, "ascend") || !strcasecmp(kind, "npu")) return PLAN_ASCEND;
    if (!strcmp(v, "apple") || !strncmp(name, "Apple", 5)) return PLAN_APPLE;
    if (!strcmp(v, "other") || !strncmp(name, "AMD", 3) || !strncmp(name, "MI", 2))
        return PLAN_OTHER_GPU;
    return PLAN_NVIDIA;
}

static sl_status device_row(const struct plan_csv *c, struct plan_device *d, sl_err *err)
{
    *d = (struct plan_device){0};
    copy_name(d->name, plan_csv_text(c, "name"));
    d->vendor = vendor_of(c, plan_csv_text(c, "kind"));
    double v;
    bool package = strstr(d->name, "910C package") != NULL;
    SL_TRY(plan_csv_num(c, "dies", PLAN_NUM(package ? 2 : 1, 1, 64), &v, err));
    d->dies = (int)v;
    SL_TRY(plan_csv_num(c, "mem_GiB", PLAN_NUM(0, 0.1, 1e5), &v, err));
    d->mem = v * PLAN_GIB / d->dies;
    SL_TRY(plan_csv_num(c, "mem_bw_GBps", PLAN_NUM(0, 0.1, 1e6), &v, err));
    d->bw = v * 1e9 / d->dies;
    static const char *peak[] = {"tflops_bf16", "tops_int8", "tflops_fp8", "tflops_fp4"};
    for (int i = 0; i < PLAN_NUM_COUNT; i++) {
        SL_TRY(plan_csv_num(c, peak[i], PLAN_NUM(0, 0, 1e6), &v, err));
        d->peak[i] = v * 1e12 / d->dies;
    }
    SL_TRY(plan_csv_num(c, "intra_node_GBps_per_card_unidir", PLAN_NUM(0, 0, 1e5), &v, err));
    d->link = v * 1e9 / d->dies;
    SL_TRY(plan_csv_num(c, "inter_node_GBps_per_card", PLAN_NUM(0, 0, 1e5), &v, err));
    d->net = v * 1e9 / d->dies;
    SL_TRY(plan_csv_num(c, "cards_per_node", PLAN_NUM(8, 1, 4096), &v, err));
    d->cards_per_node = (int)v;
    d->a3 = d->vendor == PLAN_ASCEND && d->net >= 100e9;
    d->consumer = d->link < 100e9;
    if (d->mem <= 0 || d->bw <= 0 || d->peak[PLAN_NUM_BF16] <= 0) {
        return SL_FAIL(err, FORMAT,
                       "%s line %d: %s: mem_GiB, mem_bw_GBps and tflops_bf16 are needed",
                       c->src.name, c->line, d->name);
    }
    return SL_OK;
}

static sl_status host_row(const struct plan_csv *c, struct plan_host *h, sl_err *err)
{
    *h = (struct plan_host){0};
    copy_name(h->name, plan_csv_text(c, "name"));
    double peak, v;
    SL_TRY(plan_csv_num(c, "cpu_dram_GBps_peak", PLAN_NUM(0, 1, 1e5), &peak, err));
    SL_TRY(plan_csv_num(c, "cpu_dram_GBps_measured", PLAN_NUM(0, 1, 1e5), &v, err));
    h->bw = (v > 0 ? v : 0.8 * peak) * 1e9;
    SL_TRY(plan_csv_num(c, "cpu_cores", PLAN_NUM(16, 1, 1e5), &v, err));
    h->cores = (int)v;
    const char *tops = plan_csv_text(c, "cpu_matmul_TOPS_measured");
    v = 0;
    if (isdigit((unsigned char)*tops)) {
        SL_TRY(plan_csv_num(c, "cpu_matmul_TOPS_measured", PLAN_NUM(0, 0, 1e5), &v, err));
    }
    h->ops = v * 1e12;
    SL_TRY(plan_csv_num(c, "host_mem_GiB", PLAN_NUM(0, 0, 1e6), &v, err));
    h->mem = v * PLAN_GIB;
    if (h->bw <= 0) {
        return SL_FAIL(err, FORMAT, "%s line %d: %s: cpu_dram_GBps_peak or _measured is needed",
                       c->src.name, c->line, h->name);
    }
    return SL_OK;
}

/* ---- rows into their lists ---- */

struct named {
    void *v; /* the name is the first member */
    const char **alias;
    int n;
    size_t size;
};

/* In the place of the one with the same name, else at the end. */
static sl_status put(struct arena *a, struct named *l, const void *item, const char *alias,
                     sl_err *err)
{
    int i = find_slot(l->v, l->size, l->n, item);
    if (i == l->n) {
        void *p, *q;
        SL_TRY(grow(a, l->v, l->n, l->size, &p, err));
        SL_TRY(grow(a, (void *)l->alias, l->n, sizeof alias, &q, err));
        l->v = p, l->alias = q;
        l->n++;
    }
    memcpy((char *)l->v + (size_t)i * l->size, item, l->size);
    l->alias[i] = alias;
    return SL_OK;
}

typedef sl_status add_row(struct plan_tables *t, struct arena *a, const struct plan_csv *c,
                          sl_err *err);

static sl_status add_model(struct plan_tables *t, struct arena *a, const struct plan_csv *c,
                           sl_err *err)
{
    struct plan_model m;
    struct named l = {t->model, t->model_alias, t->n_model, sizeof m};
    const char *alias;
    SL_TRY(model_row(c, &m, err));
    SL_TRY(keep_alias(a, c, &alias, err));
    SL_TRY(put(a, &l, &m, alias, err));
    t->model = l.v, t->model_alias = l.alias, t->n_model = l.n;
    return SL_OK;
}

static sl_status add_host(struct plan_tables *t, struct arena *a, const struct plan_csv *c,
                          sl_err *err)
{
    struct plan_host h;
    struct named l = {t->host, t->host_alias, t->n_host, sizeof h};
    const char *alias;
    SL_TRY(host_row(c, &h, err));
    SL_TRY(keep_alias(a, c, &alias, err));
    SL_TRY(put(a, &l, &h, alias, err));
    t->host = l.v, t->host_alias = l.alias, t->n_host = l.n;
    return SL_OK;
}

static sl_status add_hardware(struct plan_tables *t, struct arena *a, const struct plan_csv *c,
                              sl_err *err)
{
    if (strcasecmp(plan_csv_text(c, "kind"), "cpu") == 0) return add_host(t, a, c, err);
    struct plan_device d;
    struct named l = {t->dev, t->dev_alias, t->n_dev, sizeof d};
    const char *alias;
    SL_TRY(device_row(c, &d, err));
    SL_TRY(keep_alias(a, c, &alias, err));
    SL_TRY(put(a, &l, &d, alias, err));
    t->dev = l.v, t->dev_alias = l.alias, t->n_dev = l.n;
    return SL_OK;
}

static sl_status add_engine(struct plan_tables *t, struct arena *a, const struct plan_csv *c,
                            sl_err *err)
{
    struct plan_engine e;
    double v;
    void *p;
    SL_TRY(keep_alias(a, c, &e.alias, err));
    SL_TRY(plan_csv_num(c, "gen", PLAN_NUM(1, 0, 2), &v, err));
    e.gen = (int)v;
    SL_TRY(plan_csv_num(c, "pp_batch", PLAN_NUM(1, 1, 1e6), &e.pp_batch, err));
    SL_TRY(grow(a, t->engine, t->n_engine, sizeof e, &p, err));
    t->engine = p;
    t->engine[t->n_engine++] = e;
    return SL_OK;
}

static sl_status each_row(struct plan_tables *t, struct arena *a, struct plan_bytes b, add_row *add,
                          sl_err *err)
{
    struct plan_csv c;
    bool more;
    SL_TRY(plan_csv_open(&c, b, err));
    for (;;) {
        SL_TRY(plan_csv_next(&c, &more, err));
        if (!more) return SL_OK;
        SL_TRY(add(t, a, &c, err));
    }
}

sl_status plan_read_models(struct plan_tables *t, struct arena *a, struct plan_bytes b, sl_err *err)
{
    return each_row(t, a, b, add_model, err);
}

sl_status plan_read_hardware(struct plan_tables *t, struct arena *a, struct plan_bytes b,
                             sl_err *err)
{
    return each_row(t, a, b, add_hardware, err);
}

sl_status plan_read_engines(struct plan_tables *t, struct arena *a, struct plan_bytes b,
                            sl_err *err)
{
    return each_row(t, a, b, add_engine, err);
}

/* ---- names ---- */

/* Letters and digits of s in lower case, one space for anything else, none at the ends. */
static void plain(const char *s, char *out, size_t size)
{
    size_t n = 0;
    for (; *s && n + 2 < size; s++) {
        unsigned char ch = (unsigned char)*s;
        if (isalnum(ch) || ch == '.')
            out[n++] = (char)tolower(ch);
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

/* Length of the longest alias of a list that stands in text as words; text and alias in plain form.
 * whole: the alias must be all of it. */
static int alias_in(const char *list, const char *text, bool whole)
{
    char one[PLAN_NAME], flat[PLAN_NAME];
    int best = 0;
    while (*list) {
        size_t n = strcspn(list, ";");
        snprintf(one, sizeof one, "%.*s", (int)n, list);
        plain(one, flat, sizeof flat);
        list += n + (list[n] == ';');
        size_t len = strlen(flat);
        if (len == 0) continue;
        if (whole) {
            if (strcmp(flat, text) == 0) return (int)len;
            continue;
        }
        for (const char *p = strstr(text, flat); p; p = strstr(p + 1, flat)) {
            bool left =
                p == text || !isalnum((unsigned char)p[-1]) || isdigit((unsigned char)flat[0]) == 0;
            left = left && (p == text || !isalnum((unsigned char)p[-1]));
            if (p > text && p[-1] == 'x' && p > text + 1 && isdigit((unsigned char)p[-2]))
                left = true;
            bool right = !isalnum((unsigned char)p[len]);
            if (left && right && (int)len > best) best = (int)len;
        }
    }
    return best;
}

/* Index of the best entry, -1 when none. Later entries win ties: a user's own row stands last. */
static int find_name(const char *names, size_t stride, const char **alias, int n, const char *name)
{
    char text[256], flat[256];
    plain(name, text, sizeof text);
    int best = -1, best_len = 0;
    for (int i = 0; i < n; i++) {
        plain(names + (size_t)i * stride, flat, sizeof flat);
        if (strcmp(flat, text) == 0 && *text) return i;
    }
    for (int i = 0; i < n; i++) {
        char list[320], one[256];
        plain(names + (size_t)i * stride, one, sizeof one);
        snprintf(list, sizeof list, "%.200s;%.100s", alias[i], one);
        int len = alias_in(list, text, true) * 1000;
        if (len == 0) len = alias_in(list, text, false);
        if (len > 0 && len >= best_len) best = i, best_len = len;
    }
    if (best >= 0) return best;
    char slug[256] = ""; /* "ascend910b1": without any separator */
    size_t k = 0;
    for (const char *p = text; *p; p++) {
        if (*p != ' ') slug[k++] = *p;
    }
    slug[k] = '\0';
    for (int i = 0; i < n && k >= 4; i++) {
        char join[256];
        plain(names + (size_t)i * stride, flat, sizeof flat);
        size_t j = 0;
        for (const char *p = flat; *p; p++) {
            if (*p != ' ') join[j++] = *p;
        }
        join[j] = '\0';
        if (strncmp(join, slug, k) == 0) return i;
    }
    return -1;
}

const struct plan_model *plan_find_model(const struct plan_tables *t, const char *name)
{
    int i = find_name((char *)t->model, sizeof *t->model, t->model_alias, t->n_model, name);
    return i < 0 ? NULL : &t->model[i];
}

const struct plan_device *plan_find_device(const struct plan_tables *t, const char *name)
{
    int i = find_name((char *)t->dev, sizeof *t->dev, t->dev_alias, t->n_dev, name);
    return i < 0 ? NULL : &t->dev[i];
}

const struct plan_host *plan_find_host(const struct plan_tables *t, const char *name)
{
    int i = find_name((char *)t->host, sizeof *t->host, t->host_alias, t->n_host, name);
    return i < 0 ? NULL : &t->host[i];
}

const struct plan_engine *plan_find_engine(const struct plan_tables *t, const char *system)
{
    char low[256];
    int best = -1, len = 0;
    plain(system, low, sizeof low);
    for (int i = 0; i < t->n_engine; i++) {
        int l = alias_in(t->engine[i].alias, low, false);
        if (l > len) len = l, best = i;
    }
    return best < 0 ? NULL : &t->engine[best];
}

void plan_nearest(const struct plan_tables *t, int kind, const char *name, char *out, size_t size)
{
    const char *best[3] = {0};
    int dist[3] = {1 << 20, 1 << 20, 1 << 20}, n = kind ? t->n_dev + t->n_host : t->n_model;
    char want[64], flat[256];
    snprintf(want, sizeof want, "%.40s", name);
    plain(want, flat, sizeof flat);
    for (int i = 0; i < n; i++) {
        const char *cand = !kind          ? t->model[i].name
                           : i < t->n_dev ? t->dev[i].name
                                          : t->host[i - t->n_dev].name;
        char c[64], cf[256];
        snprintf(c, sizeof c, "%.*s", (int)strcspn(cand, "("), cand);
        plain(c, cf, sizeof cf);
        cf[60] = '\0';
        int d = str_distance(flat, cf) * 2 - (strstr(cf, flat) ? 20 : 0);
        for (int k = 0; k < 3; k++) {
            if (d >= dist[k]) continue;
            for (int j = 2; j > k; j--)
                dist[j] = dist[j - 1], best[j] = best[j - 1];
            dist[k] = d, best[k] = cand;
            break;
        }
    }
    size_t used = 0;
    if (size) out[0] = '\0';
    for (int k = 0; k < 3 && best[k]; k++) {
        int w = snprintf(out + used, size - used, "%s%s", k ? ", " : "", best[k]);
        if (w < 0 || (size_t)w >= size - used) break;
        used += (size_t)w;
    }
}
