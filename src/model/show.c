/* SPDX-License-Identifier: Apache-2.0 */
/* A model's programs, for people: one line per operator, layers that are alike told once. The model
 * is opened on a device that keeps nothing but shapes (dev_dry_open). */
#include "model/show.h"

#include <string.h>

/* Of the operators of one layer, or of a stretch outside of the layers. */
static void put_lines(struct str *s, const struct model *m, const struct dev_op *op, int n)
{
    for (int i = 0; i < n; i++) {
        struct shown o;
        model_op_show(&o, m, &op[i]);
        str_printf(s, "  %-9s %.*s\n", dev_op_name(op[i].kind), (int)o.text.n, str_c(&o.text));
        model_op_show_end(&o);
    }
}

/* Operators from at on that are of the same layer. */
static int stretch(const struct emit *e, int at)
{
    int n = 1;
    while (at + n < e->n && e->op[at + n].layer == e->op[at].layer)
        n++;
    return n;
}

static bool same(const struct model *m, const struct dev_op *a, int n_a, const struct dev_op *b,
                 int n_b)
{
    struct str s, t;
    if (n_a != n_b) return false;
    str_init(&s, MEM_MISC, 0);
    str_init(&t, MEM_MISC, 0);
    put_lines(&s, m, a, n_a);
    put_lines(&t, m, b, n_b);
    bool is = s.n == t.n && (!s.n || memcmp(s.p, t.p, s.n) == 0);
    str_fini(&s);
    str_fini(&t);
    return is;
}

/* "layers 0, 2-4": the layers from at on that are like the one there; they are marked in done. */
static void put_alike(struct str *s, const struct model *m, const struct emit *e, int at,
                      bool *done)
{
    int n = stretch(e, at), first = e->op[at].layer, last = first, n_alike = 0;
    struct str list;
    str_init(&list, MEM_MISC, 0);
    str_printf(&list, "%d", first);
    int from = first;
    for (int i = at, k; i < e->n; i += k) {
        int il = e->op[i].layer;
        k = stretch(e, i);
        if (il < 0 || done[il] || !same(m, e->op + at, n, e->op + i, k)) continue;
        done[il] = true;
        n_alike++;
        if (il > last + 1) {
            if (last > from) str_printf(&list, "-%d", last);
            str_printf(&list, ", %d", il);
            from = il;
        }
        last = il;
    }
    if (last > from) str_printf(&list, "-%d", last);
    str_printf(s, "layer%s %.*s\n", n_alike == 1 ? "" : "s", (int)list.n, list.p);
    str_fini(&list);
    put_lines(s, m, e->op + at, n);
}

static void put_text(struct str *s, const struct model *m, const struct emit *e, int pass,
                     bool *done)
{
    if (pass) str_printf(s, "\nMTP pass %d\n", pass);
    for (int at = 0, n; at < e->n; at += n) {
        int il = e->op[at].layer;
        n = stretch(e, at);
        if (il < 0) {
            if (at) str_puts(s, "head\n");
            put_lines(s, m, e->op + at, n);
        } else if (!done[il]) {
            put_alike(s, m, e, at, done);
        }
    }
}

static void put_json(struct json_w *w, const struct model *m, const struct emit *e, int pass)
{
    for (int i = 0; i < e->n; i++)
        model_op_json(w, m, &e->op[i], pass);
}

static sl_status show(struct model *m, struct str *s, struct json_w *w, sl_err *err)
{
    void *p = NULL, *done = NULL;
    int n_max = model_op_max(m), n_layer = m->cfg.n_layer + m->n_mtp;
    sl_status st = SL_OK;
    SL_TRY_OUT(mem_alloc_array(MEM_SCRATCH, (size_t)n_max, sizeof(struct dev_op), &p, err));
    SL_TRY_OUT(mem_alloc_array(MEM_SCRATCH, (size_t)n_layer, sizeof(bool), &done, err));
    if (w) text_jw_arr(w);
    for (int pass = 0; pass <= m->n_mtp; pass++) {
        struct emit e = {.op = p, .n_max = n_max};
        model_emit_begin(&e, m);
        model_pass_emit(&e, pass);
        if (w)
            put_json(w, m, &e, pass);
        else
            put_text(s, m, &e, pass, done);
    }
    if (w) text_jw_arr_end(w);
out:
    mem_free(done);
    mem_free(p);
    return st;
}

sl_status model_show(const io_model *io, struct str *s, struct json_w *w, sl_err *err)
{
    struct model *m = NULL;
    dev *d = NULL;
    struct model_opts o = {
        .n_tok_max = 1, .n_seq_max = 1, .n_logit_max = 1, .pack = io_model_pack(io)};
    SL_TRY(dev_dry_open(&d, err));
    sl_status st = model_open_parts(io, d, &o, &m, err);
    if (!st) st = show(m, s, w, err);
    model_close(m);
    dev_close(d);
    return st;
}
