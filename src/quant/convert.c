/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the target: one GGUF file, or a folder. Nothing that loads exists before everything was
 * written: a file gets its name at the end; a folder is filled under a temporary name, renamed, and
 * config.json, without which it is no model, gets its name last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"
#include "quant/quant_internal.h"

static bool is_gguf_path(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* ---- the table ---- */

static void tally(struct quant_report *rep, const struct quant_item *it,
                  const struct quant_error *e)
{
    const char *to =
        it->type != QUANT_AS_IS ? quant_type_text(it->type) : tensor_dtype(it->store)->text;
    struct quant_row *r = NULL;
    for (int i = 0; i < rep->n_row && !r; i++)
        if (rep->row[i].cls == it->cls && strcmp(rep->row[i].from, it->from_text) == 0 &&
            strcmp(rep->row[i].to, to) == 0)
            r = &rep->row[i];
    if (!r && rep->n_row < QUANT_MAX_ROW) {
        r = &rep->row[rep->n_row++];
        *r = (struct quant_row){.cls = it->cls, .from = it->from_text, .to = to};
    }
    rep->bytes_from += it->bytes_from;
    rep->bytes_to += e->bytes;
    if (!r) return;
    r->n_tensor++;
    r->n_weight += it->rows * it->cols;
    r->bytes_from += it->bytes_from;
    r->bytes_to += e->bytes;
    r->err2 += e->err2;
    r->ref2 += e->ref2;
}

static int by_class(const void *a, const void *b)
{
    const struct quant_row *x = a, *y = b;
    if (x->cls != y->cls) return x->cls < y->cls ? -1 : 1;
    return (y->n_weight > x->n_weight) - (y->n_weight < x->n_weight);
}

/* ---- tensors ---- */

/* In a folder items whose bytes are multiples of 4 (then of 2) come first, so that every tensor is
 * aligned to its type. */
static int align_rank(const struct quant_plan *p, const struct quant_item *it)
{
    uint64_t n = quant_item_bytes(p, it);
    return n % 4 == 0 ? 0 : n % 2 == 0 ? 1 : 2;
}

/* Declare the items of one file, [begin, end) of the plan's. */
static void declare(struct quant_plan *p, int begin, int end, io_out *out)
{
    int n_rank = p->to == IO_HF ? 3 : 1;
    for (int i = begin; i < end; i++)
        quant_declare_first(p, &p->item[i], out);
    for (int r = 0; r < n_rank; r++)
        for (int i = begin; i < end; i++)
            if (n_rank == 1 || align_rank(p, &p->item[i]) == r) quant_declare(p, &p->item[i], out);
}

static sl_status write_tensors(struct quant_plan *p, par_team *team, int begin, int end,
                               io_out *out, sl_err *err)
{
    int n_rank = p->to == IO_HF ? 3 : 1;
    int64_t total = 0;
    for (int i = 0; i < p->n_item; i++)
        total += p->item[i].bytes_from;
    SL_TRY(io_out_begin(out, err));
    for (int i = begin; i < end; i++)
        SL_TRY(quant_write_first(p, &p->item[i], out, err));
    for (int r = 0; r < n_rank; r++)
        for (int i = begin; i < end; i++) {
            struct quant_item *it = &p->item[i];
            struct quant_error e;
            if (n_rank > 1 && align_rank(p, it) != r) continue;
            if (p->o->progress && p->o->progress(p->o->user, "quantizing", p->done_bytes, total))
                return SL_FAIL(err, CANCELLED, "cancelled");
            SL_TRY(quant_encode(p, it, team, out, &e, err));
            tally(p->rep, it, &e);
            p->done_bytes += it->bytes_from;
        }
    return SL_OK;
}

#define UNFINISHED "config.json.tmp" /* in a folder that is whole but for this name */

/* Before the work, and again before the name is taken: the work may have been long. */
static sl_status check_target(const char *dst, const struct quant_opts *o, sl_err *err)
{
    enum os_kind k = os_path_kind(dst);
    if (k == OS_NONE) return SL_OK;
    if (is_gguf_path(dst) && k == OS_DIR) return SL_FAIL(err, REQUEST, "%s: is a folder", dst);
    if (!is_gguf_path(dst) && k != OS_DIR)
        return SL_FAIL(err, REQUEST, "%s: is a file: give a name that ends in .gguf, or a folder",
                       dst);
    if (!o->force) return SL_FAIL(err, REQUEST, "%s: exists already: --force replaces it", dst);
    if (is_gguf_path(dst)) return SL_OK;
    char path[4400], unfinished[4400];
    snprintf(path, sizeof path, "%s/config.json", dst);
    snprintf(unfinished, sizeof unfinished, "%s/" UNFINISHED, dst); /* a killed one of ours */
    if (os_path_kind(path) == OS_NONE && os_path_kind(unfinished) == OS_NONE && !os_dir_empty(dst))
        return SL_FAIL(err, REQUEST,
                       "%s: is no model's folder (no config.json): it is not replaced", dst);
    return SL_OK;
}

static sl_status write_gguf(struct quant_plan *p, par_team *team, const char *dst, sl_err *err)
{
    io_out *out = NULL;
    SL_TRY(io_out_open(dst, IO_GGUF, &out, err));
    sl_status st = quant_head_gguf(p, out, err);
    if (!st) {
        declare(p, 0, p->n_item, out);
        st = write_tensors(p, team, 0, p->n_item, out, err);
    }
    if (!st) st = check_target(dst, p->o, err);
    if (st) {
        io_out_abort(out);
        return st;
    }
    return io_out_commit(out, err);
}

/* ---- folders ---- */

/* A folder of ours: its files, and those of the one folder that it may hold. */
static void remove_folder(const char *dir)
{
    char sub[4400];
    snprintf(sub, sizeof sub, "%s/additional_chat_templates", dir);
    os_dir_remove(sub);
    os_dir_remove(dir);
}

static sl_status put_file(const char *dir, const char *name, const char *p, uint64_t n, sl_err *err)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return os_write_file(path, p, n, err);
}

static sl_status copy_texts(const struct quant_plan *p, const char *dir, sl_err *err)
{
    const char *name;
    bool made = false;
    for (int i = 0; (name = io_text_name(p->src, i)); i++) {
        uint64_t n = 0;
        const char *text = io_text_file(p->src, name, &n);
        if (strchr(name, '/') && !made) {
            char sub[4400];
            snprintf(sub, sizeof sub, "%s/%.*s", dir, (int)strcspn(name, "/"), name);
            SL_TRY(os_dir_make(sub, err));
            made = true;
        }
        SL_TRY(put_file(dir, name, text, n, err));
    }
    const struct json *g = io_generation_config(p->src);
    if (!g) return SL_OK;
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_node(&w, g);
    sl_status st = str_status(&s, err);
    if (!st) st = put_file(dir, "generation_config.json", str_c(&s), s.n, err);
    str_fini(&s);
    return st;
}

/* The end of the shard that begins at an item, and its bytes: at least one item, then as many as
 * fit. */
static int shard_end(const struct quant_plan *p, int begin, uint64_t *n_bytes)
{
    int i = begin;
    for (*n_bytes = 0; i < p->n_item; i++) {
        uint64_t n = quant_item_bytes(p, &p->item[i]);
        if (i > begin && p->o->shard > 0 && *n_bytes + n > (uint64_t)p->o->shard) break;
        *n_bytes += n;
    }
    return i;
}

/* The index of a folder in shards, while it grows. */
struct index {
    const char *dir;
    struct str map;
    char file[64]; /* that is written now */
};

static void put_index(void *user, const char *name)
{
    struct index *x = user;
    struct json_w w;
    if (x->map.n) str_puts(&x->map, ",\n");
    text_jw_init(&w, &x->map);
    text_jw_str(&w, name, strlen(name));
    str_printf(&x->map, ":\"%s\"", x->file);
}

static sl_status write_shard(struct quant_plan *p, par_team *team, int begin, int end,
                             struct index *x, sl_err *err)
{
    char path[4400];
    io_out *out = NULL;
    snprintf(path, sizeof path, "%s/%s", x->dir, x->file);
    SL_TRY(io_out_open(path, IO_HF, &out, err));
    io_out_str(out, "format", "pt", 2);
    declare(p, begin, end, out);
    io_out_each_name(out, put_index, x);
    sl_status st = write_tensors(p, team, begin, end, out, err);
    if (st) {
        io_out_abort(out);
        return st;
    }
    return io_out_commit(out, err);
}

static sl_status write_shards(struct quant_plan *p, par_team *team, struct index *x, sl_err *err)
{
    char head[80];
    uint64_t n_bytes, total = 0;
    int n_shard = 0, end;
    for (int i = 0; i < p->n_item; i = shard_end(p, i, &n_bytes))
        n_shard++;
    snprintf(x->file, sizeof x->file, "model.safetensors");
    for (int i = 0, k = 1; i < p->n_item; i = end, k++) {
        end = shard_end(p, i, &n_bytes);
        total += n_bytes;
        if (n_shard > 1)
            snprintf(x->file, sizeof x->file, "model-%05d-of-%05d.safetensors", k, n_shard);
        SL_TRY(write_shard(p, team, i, end, x, err));
    }
    if (n_shard < 2) return SL_OK;
    struct str text;
    str_init(&text, MEM_MISC, 0);
    snprintf(head, sizeof head, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{\n",
             (unsigned long long)total);
    str_puts(&text, head);
    str_put(&text, str_c(&x->map), x->map.n);
    str_puts(&text, "}}\n");
    sl_status st = str_status(&x->map, err);
    if (!st) st = str_status(&text, err);
    if (!st) st = put_file(x->dir, "model.safetensors.index.json", str_c(&text), text.n, err);
    str_fini(&text);
    return st;
}

static sl_status fill_folder(struct quant_plan *p, par_team *team, const char *dir, sl_err *err)
{
    struct index x = {.dir = dir};
    str_init(&x.map, MEM_MISC, 0);
    sl_status st = write_shards(p, team, &x, err);
    str_fini(&x.map);
    if (st) return st;
    return io_model_kind(p->src) == IO_HF ? copy_texts(p, dir, err) : quant_tok_to_hf(p, dir, err);
}

static sl_status write_folder(struct quant_plan *p, par_team *team, const char *dst, sl_err *err)
{
    char dir[4200], tmp[4300], old[4300], unfinished[4400], whole[4400];
    struct str config;
    size_t n = strlen(dst);
    while (n > 1 && dst[n - 1] == '/')
        n--;
    if (n > 4000) return SL_FAIL(err, REQUEST, "%.60s...: the name is too long", dst);
    snprintf(dir, sizeof dir, "%.*s", (int)n, dst);
    snprintf(tmp, sizeof tmp, "%s.%ld.tmp", dir, (long)getpid());
    snprintf(old, sizeof old, "%s.%ld.old", dir, (long)getpid());
    snprintf(unfinished, sizeof unfinished, "%s/" UNFINISHED, dir);
    snprintf(whole, sizeof whole, "%s/config.json", dir);
    os_out_sweep(dir);
    str_init(&config, MEM_MISC, 0);
    sl_status st = quant_head_hf(p, &config, err);
    if (!st) st = os_dir_make(tmp, err);
    if (!st) {
        bool replaced = false;
        st = fill_folder(p, team, tmp, err);
        if (!st) st = put_file(tmp, UNFINISHED, str_c(&config), config.n, err);
        if (!st) st = check_target(dir, p->o, err);
        if (!st && os_path_kind(dir) != OS_NONE) {
            st = os_rename(dir, old, err);
            replaced = !st;
        }
        if (!st) st = os_rename(tmp, dir, err);
        if (!st) st = os_rename(unfinished, whole, err);
        if (st) {
            remove_folder(tmp);
            if (replaced) { /* what has the name now is ours and not whole: the old one comes back
                             */
                remove_folder(dir);
                if (os_rename(old, dir, NULL))
                    status_prefix(err, "the folder as it was is now %s", old);
            }
        } else if (replaced) {
            remove_folder(old);
        }
    }
    str_fini(&config);
    return st;
}

/* ---- the call ---- */

static sl_status open_keep(struct quant_plan *p, sl_err *err)
{
    const char *re = p->o->keep;
    if (!re || !*re) return SL_OK;
    sl_status st = text_regex_open(MEM_MISC, re, strlen(re), &p->keep, err);
    if (st) status_prefix(err, "--keep");
    return st ? st : text_match_open(MEM_MISC, &p->match, err);
}

static void close_keep(struct quant_plan *p)
{
    text_match_close(p->match);
    text_regex_close(p->keep);
}

sl_status quant_check_target(const char *dst, const struct quant_opts *o, sl_err *err)
{
    struct quant_plan p = {.o = o};
    char name[4200];
    size_t n = strlen(dst);
    while (n > 1 && dst[n - 1] == '/')
        n--;
    snprintf(name, sizeof name, "%.*s", (int)BASE_MIN(n, sizeof name - 1), dst);
    SL_TRY(check_target(dst, o, err));
    if (os_path_kind(name) != OS_DIR) SL_TRY(os_out_check(name, err));
    sl_status st = open_keep(&p, err);
    close_keep(&p);
    return st;
}

/* What was written, read again: does it say the same of text? */
static sl_status compare_target(const io_model *src, const char *dst, struct quant_report *rep,
                                sl_err *err)
{
    static const char *const name[] = {"the source", "the target"};
    io_model *m = NULL;
    SL_TRY(io_open(dst, true, &m, err));
    sl_status st = quant_compare_text(src, m, name, rep, err);
    io_close(m);
    return st;
}

sl_status quant_convert(const io_model *src, const char *dst, const struct quant_opts *o,
                        struct quant_report *rep, sl_err *err)
{
    struct quant_plan p = {
        .src = src, .o = o, .to = is_gguf_path(dst) ? IO_GGUF : IO_HF, .rep = rep};
    par_team *team = NULL;
    sl_status st = SL_OK;
    memset(rep, 0, sizeof *rep);
    mem_arena_init(&p.arena, MEM_MISC, 0);
    SL_TRY_OUT(check_target(dst, o, err));
    SL_TRY_OUT(quant_check(p.to, o, err));
    SL_TRY_OUT(open_keep(&p, err));
    SL_TRY_OUT(par_open(&(struct par_opts){.n_worker = o->n_thread}, &team, err));
    SL_TRY_OUT(quant_plan_make(&p, err));
    SL_TRY_OUT(quant_plan_types(&p, err));
    if (o->awq) SL_TRY_OUT(quant_awq(&p, team, err));
    SL_TRY_OUT(quant_plan_fuse(&p, err));
    SL_TRY_OUT(p.to == IO_GGUF ? write_gguf(&p, team, dst, err) : write_folder(&p, team, dst, err));
    qsort(rep->row, (size_t)rep->n_row, sizeof rep->row[0], by_class);
    SL_TRY_OUT(compare_target(src, dst, rep, err));
out:
    par_close(team);
    close_keep(&p);
    mem_free(p.item);
    mem_arena_fini(&p.arena);
    return st;
}
