/* SPDX-License-Identifier: Apache-2.0 */
/* sluice verify: do two models hold the same tensors, and how far are their values apart? */
#include <string.h>

#include "compute.h"
#include "engine/find.h"
#include "quant/quant.h"

struct verify_opts {
    struct opt_common common;
    double tol;
};

static const struct opt opts[] = {
    {"tol", 0, OPT_REAL, offsetof(struct verify_opts, tol), "X", "0", 0, 1e30,
     "largest relative RMS difference of a tensor that passes"},
    {"threads", 't', OPT_INT, offsetof(struct verify_opts, common.threads), "N", "0", 0,
     OPT_THREADS_MAX, "worker threads (0: physical cores)"},
    OPT_ROWS_BASIC(struct verify_opts),
    {0},
};

struct verify {
    const struct verify_opts *o;
    struct json_w w;
    struct str json;
    struct cmd_progress progress;
    int n_over;
};

static void on_diff(void *user, const struct quant_diff *d)
{
    struct verify *v = user;
    bool over = !(d->rms_rel <= v->o->tol);
    v->n_over += over;
    if (v->o->common.json) {
        text_jw_obj(&v->w);
        text_jw_key(&v->w, "name");
        text_jw_strz(&v->w, d->name);
        text_jw_key(&v->w, "weights");
        text_jw_int(&v->w, d->n_weight);
        text_jw_key(&v->w, "max");
        text_jw_real(&v->w, d->max_abs, 6);
        text_jw_key(&v->w, "rms_rel");
        text_jw_real(&v->w, d->rms_rel, 6);
        text_jw_obj_end(&v->w);
    } else if (over || v->o->common.verbose) {
        cmd_progress_end(&v->progress);
        printf("%-48s max %.3e  rms %.3e%s\n", d->name, d->max_abs, d->rms_rel,
               over ? "  over" : "");
    }
}

static void on_only(void *user, bool in_b, const char *name)
{
    struct verify *v = user;
    v->n_over++;
    if (v->o->common.json) return;
    cmd_progress_end(&v->progress);
    printf("%-48s only in %s\n", name, in_b ? "B" : "A");
}

static int on_progress(void *user, const char *what, int64_t done, int64_t total)
{
    struct verify *v = user;
    cmd_progress_count(&v->progress, what, "tensors", done, total);
    return cmd_stop != 0;
}

static sl_status work(struct cmd_ctx *x, struct quant_verify *q, struct quant_report *text,
                      sl_err *err)
{
    static const char *const name[] = {"A", "B"};
    io_model *m[2] = {NULL, NULL};
    sl_status st = SL_OK;
    for (int i = 0; i < 2 && !st; i++) {
        const char *path = NULL;
        st = engine_find_model(x->rest.v[i], &x->arena, &path, err);
        if (!st) st = io_open(path, false, &m[i], err);
    }
    if (!st) st = quant_compare(m[0], m[1], q, err);
    if (!st) st = quant_compare_text(m[0], m[1], name, text, err);
    io_close(m[0]);
    io_close(m[1]);
    return st;
}

/* What differs besides tensors. */
static void print_text(struct verify *v, const struct quant_report *r)
{
    v->n_over += r->n_note + (r->n_probe_diff > 0);
    if (v->o->common.json) return;
    for (int i = 0; i < r->n_note; i++)
        printf("%s\n", r->note[i]);
    if (r->n_probe_diff)
        printf("%d of %d probe texts get other ids, such as \"%s\"\n", r->n_probe_diff, r->n_probe,
               r->probe);
}

static sl_status print_json(struct verify *v, const struct quant_verify *q,
                            const struct quant_report *r, sl_err *err)
{
    text_jw_arr_end(&v->w);
    text_jw_key(&v->w, "same");
    text_jw_int(&v->w, q->n_same);
    text_jw_key(&v->w, "only_a");
    text_jw_int(&v->w, q->n_only_a);
    text_jw_key(&v->w, "only_b");
    text_jw_int(&v->w, q->n_only_b);
    text_jw_key(&v->w, "max");
    text_jw_real(&v->w, q->max_abs, 6);
    text_jw_key(&v->w, "rms_rel");
    text_jw_real(&v->w, q->rms_rel, 6);
    text_jw_key(&v->w, "notes");
    text_jw_arr(&v->w);
    for (int i = 0; i < r->n_note; i++)
        text_jw_strz(&v->w, r->note[i]);
    text_jw_arr_end(&v->w);
    text_jw_key(&v->w, "probes");
    text_jw_int(&v->w, r->n_probe);
    text_jw_key(&v->w, "probes_differ");
    text_jw_int(&v->w, r->n_probe_diff);
    text_jw_key(&v->w, "ok");
    text_jw_bool(&v->w, v->n_over == 0);
    text_jw_obj_end(&v->w);
    return compute_print(&v->json, err);
}

static int run(struct cmd_ctx *x)
{
    struct verify v = {.o = x->opts};
    struct quant_verify q = {.on_diff = on_diff,
                             .on_only = on_only,
                             .progress = on_progress,
                             .user = &v,
                             .n_thread = v.o->common.threads};
    struct quant_report text = {0};
    sl_err err = {0};
    str_init(&v.json, MEM_MISC, 0);
    text_jw_init(&v.w, &v.json);
    text_jw_obj(&v.w);
    text_jw_key(&v.w, "tensors");
    text_jw_arr(&v.w);
    cmd_progress_init(&v.progress, v.o->common.quiet);
    sl_status st = work(x, &q, &text, &err);
    cmd_progress_end(&v.progress);
    if (!st) print_text(&v, &text);
    if (!st && v.o->common.json) st = print_json(&v, &q, &text, &err);
    str_fini(&v.json);
    if (st) return cmd_fail(&err);
    if (!v.o->common.json)
        printf("%d tensors in both, %d only in A, %d only in B; worst: max %.3e, relative rms "
               "%.3e; %s\n",
               q.n_same, q.n_only_a, q.n_only_b, q.max_abs, q.rms_rel,
               v.n_over       ? "not the same"
               : text.n_probe ? "ok, and the same ids for the probe texts"
                              : "ok");
    return v.n_over ? CMD_FAILED : CMD_OK;
}

const struct cmd cmd_verify = {
    .name = "verify",
    .summary = "compare two models: tensors, tokenizers, templates",
    .usage = "A B [--tol X]",
    .about = "Same tensors? Per tensor the largest and the relative RMS difference of the "
             "dequantised values. Same ids for 1000 texts, end tokens, chat\n"
             "templates? Exit 1 where a tensor is above --tol or anything else differs.",
    .example = "sluice verify demo demo-q8_0.gguf --tol 0.02",
    .opts = opts,
    .opts_bytes = sizeof(struct verify_opts),
    .n_arg_min = 2,
    .n_arg_max = 2,
    .run = run,
};
