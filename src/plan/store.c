/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file of constants. */
#include "plan/store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const vendors[PLAN_VENDOR_COUNT] = {"ascend", "nvidia", "other", "apple", "cpu"};
static const char *const modes[PLAN_MODE_COUNT] = {"tp", "ep", "hybrid", "cpu"};

static int index_of(const char *const *list, int n, const char *s)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i], s) == 0) return i;
    }
    return -1;
}

static void keys_out(struct json_w *w, const struct plan_consts *k)
{
    text_jw_key(w, "constants");
    text_jw_obj(w);
    for (int i = 0; i < PLAN_KEYS; i++) {
        text_jw_key(w, plan_key_name[i]);
        text_jw_real(w, k->v[i], 9);
    }
    text_jw_obj_end(w);
}

static void real_out(struct json_w *w, const char *key, double v)
{
    text_jw_key(w, key);
    text_jw_real(w, v, 9);
}

static void set_out(struct json_w *w, const struct plan_set *s)
{
    text_jw_obj(w);
    text_jw_key_strz(w, "engine", s->k.engine);
    text_jw_key_strz(w, "device", s->k.device);
    text_jw_key_strz(w, "model", s->k.model);
    text_jw_key_strz(w, "taught_model", s->k.taught);
    text_jw_key_strz(w, "taught_weights", s->k.format);
    text_jw_key_strz(w, "vendor", vendors[s->k.vendor]);
    text_jw_key_strz(w, "mode", modes[s->k.mode]);
    text_jw_key(w, "fitted");
    text_jw_arr(w);
    for (int i = 0; i < PLAN_KEYS; i++) {
        if (s->k.fitted >> i & 1) text_jw_strz(w, plan_key_name[i]);
    }
    text_jw_arr_end(w);
    text_jw_key(w, "n_rows");
    text_jw_int(w, s->k.n_rows);
    text_jw_key_strz(w, "rows", s->rows);
    real_out(w, "error_decode_pct", s->err_decode);
    real_out(w, "error_prefill_pct", s->err_prefill);
    real_out(w, "sigma_decode", s->k.sigma_decode);
    real_out(w, "sigma_prefill", s->k.sigma_prefill);
    keys_out(w, &s->k);
    text_jw_obj_end(w);
    str_putc(w->out, '\n');
}

void plan_book_write(const struct plan_book *b, struct str *out)
{
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key_strz(&w, "date", b->date);
    real_out(&w, "sigma_prior", b->sigma_prior);
    text_jw_key(&w, "priors");
    text_jw_arr(&w);
    str_putc(out, '\n');
    for (int v = 0; v < PLAN_VENDOR_COUNT; v++) {
        for (int m = 0; m < PLAN_MODE_COUNT; m++) {
            text_jw_obj(&w);
            text_jw_key_strz(&w, "vendor", vendors[v]);
            text_jw_key_strz(&w, "mode", modes[m]);
            keys_out(&w, &b->prior[v][m]);
            text_jw_obj_end(&w);
            str_putc(out, '\n');
        }
    }
    text_jw_arr_end(&w);
    text_jw_key(&w, "sets");
    text_jw_arr(&w);
    str_putc(out, '\n');
    for (int i = 0; i < b->n_set; i++)
        set_out(&w, &b->set[i]);
    text_jw_arr_end(&w);
    text_jw_obj_end(&w);
    str_putc(out, '\n');
}

static sl_status keys_in(const struct json *o, const char *file, struct plan_consts *k, sl_err *err)
{
    const struct json *c = text_json_get(o, "constants");
    if (!c || c->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "%s: a set without \"constants\"", file);
    for (const struct json *m = c->child; m; m = m->next) {
        int i = 0;
        while (i < PLAN_KEYS && strcmp(plan_key_name[i], m->key) != 0)
            i++;
        if (i == PLAN_KEYS)
            return SL_FAIL(err, FORMAT, "%s: unknown constant \"%.40s\"", file, m->key);
        bool num = m->kind == JSON_INT_K || m->kind == JSON_REAL_K;
        if (!num || !(m->f >= 0) || m->f > 1e9) {
            return SL_FAIL(err, FORMAT, "%s: constant %s must be a number from 0 to 1e9", file,
                           m->key);
        }
        k->v[i] = m->f;
    }
    if (!text_json_get(c, plan_key_name[PLAN_BUS])) k->v[PLAN_BUS] = 1; /* files before it */
    static const enum plan_key divisor[] = {PLAN_ETA_W,    PLAN_ETA_KV,   PLAN_MFU, PLAN_ETA_A,
                                            PLAN_CPU_GBPS, PLAN_CPU_TOPS, PLAN_BUS};
    for (int i = 0; i < BASE_COUNT_OF(divisor); i++) {
        if (!(k->v[divisor[i]] > 1e-9))
            return SL_FAIL(err, FORMAT, "%s: constant %s must be above zero", file,
                           plan_key_name[divisor[i]]);
    }
    return SL_OK;
}

static sl_status place_in(const struct json *o, const char *file, int *v, int *m, sl_err *err)
{
    const char *vendor, *mode;
    SL_TRY(text_json_str(o, "vendor", "", &vendor, err));
    SL_TRY(text_json_str(o, "mode", "", &mode, err));
    *v = index_of(vendors, PLAN_VENDOR_COUNT, vendor);
    *m = index_of(modes, PLAN_MODE_COUNT, mode);
    if (*v < 0 || *m < 0) {
        return SL_FAIL(err, FORMAT, "%s: no vendor \"%.20s\" or mode \"%.20s\"", file, vendor,
                       mode);
    }
    return SL_OK;
}

static sl_status set_in(struct plan_book *b, const struct json *o, const char *file, sl_err *err)
{
    if (b->n_set == PLAN_MAX_SETS)
        return SL_FAIL(err, LIMIT, "%s: more than %d sets", file, PLAN_MAX_SETS);
    struct plan_set *s = &b->set[b->n_set];
    const char *engine, *device, *model, *rows, *taught, *format;
    int v, m;
    int64_t n;
    SL_TRY(place_in(o, file, &v, &m, err));
    *s = (struct plan_set){.k = b->prior[v][m]};
    SL_TRY(text_json_str(o, "engine", "", &engine, err));
    SL_TRY(text_json_str(o, "device", "", &device, err));
    SL_TRY(text_json_str(o, "model", "", &model, err));
    SL_TRY(text_json_str(o, "rows", "", &rows, err));
    SL_TRY(text_json_str(o, "taught_model", "", &taught, err));
    SL_TRY(text_json_str(o, "taught_weights", "", &format, err));
    SL_TRY(text_json_int(o, "n_rows", 0, &n, err));
    SL_TRY(text_json_real(o, "error_decode_pct", 0, &s->err_decode, err));
    SL_TRY(text_json_real(o, "error_prefill_pct", 0, &s->err_prefill, err));
    SL_TRY(text_json_real(o, "sigma_decode", 0.1, &s->k.sigma_decode, err));
    SL_TRY(text_json_real(o, "sigma_prefill", 0.15, &s->k.sigma_prefill, err));
    snprintf(s->k.engine, sizeof s->k.engine, "%s", engine);
    snprintf(s->k.device, sizeof s->k.device, "%s", device);
    snprintf(s->k.model, sizeof s->k.model, "%s", model);
    snprintf(s->k.taught, sizeof s->k.taught, "%s", taught);
    snprintf(s->k.format, sizeof s->k.format, "%s", format);
    snprintf(s->rows, sizeof s->rows, "%s", rows);
    s->k.n_rows = (int)n;
    s->k.vendor = (enum plan_vendor)v, s->k.mode = (enum plan_mode)m;
    s->k.trust = PLAN_CALIBRATED;
    const struct json *fit = text_json_get(o, "fitted");
    for (const struct json *f = fit ? fit->child : NULL; f; f = f->next) {
        int i = f->kind == JSON_STR_K ? index_of(plan_key_name, PLAN_KEYS, f->s) : -1;
        if (i >= 0) s->k.fitted |= 1u << i;
    }
    SL_TRY(keys_in(o, file, &s->k, err));
    b->n_set++;
    return SL_OK;
}

sl_status plan_book_read(struct plan_book *b, struct arena *a, struct plan_bytes src, sl_err *err)
{
    const struct json *root;
    const char *date;
    plan_book_init(b);
    SL_TRY(text_json_parse(a, src.name, src.p, src.n, &root, err));
    if (root->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s: not a JSON object", src.name);
    SL_TRY(text_json_str(root, "date", "", &date, err));
    snprintf(b->date, sizeof b->date, "%s", date);
    SL_TRY(text_json_real(root, "sigma_prior", b->sigma_prior, &b->sigma_prior, err));
    if (!(b->sigma_prior > 0 && b->sigma_prior < 3)) {
        return SL_FAIL(err, FORMAT, "%s: sigma_prior %g is absurd", src.name, b->sigma_prior);
    }
    const struct json *list = text_json_get(root, "priors");
    if (!list && !text_json_get(root, "sets"))
        return SL_FAIL(err, FORMAT, "%s: no file of --calibrate: neither priors nor sets",
                       src.name);
    for (const struct json *o = list ? list->child : NULL; o; o = o->next) {
        int v, m;
        SL_TRY(place_in(o, src.name, &v, &m, err));
        SL_TRY(keys_in(o, src.name, &b->prior[v][m], err));
    }
    list = text_json_get(root, "sets");
    for (const struct json *o = list ? list->child : NULL; o; o = o->next) {
        SL_TRY(set_in(b, o, src.name, err));
    }
    return SL_OK;
}
