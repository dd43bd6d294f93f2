/* SPDX-License-Identifier: Apache-2.0 */
/* sluice quantize: a model with other weight types, in the other kind of file, or both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "compute.h"
#include "engine/find.h"
#include "engine/tap.h"
#include "os/os.h"
#include "quant/quant.h"

struct quantize_opts {
    struct opt_common common;
    const char *type[QUANT_N_CLASS]; /* as quant_class */
    const char *keep, *calib;
    int calib_tokens, group;
    int64_t memory, shard;
    bool awq, plain, force;
};

#define CALIB_TOKENS 8192 /* defaults: as in the rows below */
#define SHARD 5000000000

// clang-format off
#define AT(m) offsetof(struct quantize_opts, m)
static const struct opt opts[] = {
    {"weights", 'w', OPT_STR,  AT(type[QUANT_CLASS_FFN]),
     "TYPE", NULL, 0, 0, "of all matrices that nothing else is said of"},
    {"experts", 0,   OPT_STR,  AT(type[QUANT_CLASS_EXPERTS]),
     "TYPE", NULL, 0, 0, "of the routed experts"},
    {"attn",    0,   OPT_STR,  AT(type[QUANT_CLASS_ATTN]),    "TYPE", NULL, 0, 0, "of attention"},
    {"head",    0,   OPT_STR,  AT(type[QUANT_CLASS_HEAD]),
     "TYPE", NULL, 0, 0, "of the output head"},
    {"embed",   0,   OPT_STR,  AT(type[QUANT_CLASS_EMBED]),
     "TYPE", NULL, 0, 0, "of the embedding"},
    {"keep",    0,   OPT_STR,  AT(keep),                      "REGEX",
     NULL, 0, 0, "tensors of the target that keep their type"},
    {"calib",   0,   OPT_STR,  AT(calib),                     "TEXT",
     NULL, 0, 0, "a text file: weigh errors by what its inputs are like"},
    {"calib-tokens", 0, OPT_INT, AT(calib_tokens),
     "N", "8192", 16, 1 << 24, "tokens of it that are used"},
    {"awq",     0,   OPT_FLAG, AT(awq),                       NULL,
     NULL, 0, 0, "search per-channel scales and fold them in; needs --calib"},
    {"group",   0,   OPT_INT,  AT(group),                     "N",
     "0", 0, 128, "of awq: 128, 64 or 32 (0: what fits the widths)"},
    {"plain",   0,   OPT_FLAG, AT(plain),                     NULL,
     NULL, 0, 0, "round to nearest, without a search"},
    {"shard",   0,   OPT_I64,  AT(shard),                     "BYTES",
     "5000000000", 0, 1e18, "of a folder: what goes beyond goes to a next file (0: one file)"},
    {"memory",  0,   OPT_I64,  AT(memory),                    "BYTES",
     "0", 0, 1e18, "refuse when buffers would need more (0: no limit)"},
    {"force",   0,   OPT_FLAG, AT(force),                     NULL,
     NULL, 0, 0, "replace what is at DST"},
    {"threads", 't', OPT_INT,  AT(common.threads),
     "N", "0", 0, OPT_THREADS_MAX, "worker threads (0: physical cores)"},
    OPT_ROWS_BASIC(struct quantize_opts),
    {0},
};
// clang-format on

/* ---- calibration ---- */

struct calib {
    quant_stats *stats;
    sl_status st;
    sl_err err;
    struct cmd_progress *progress;
    int64_t n_done, n_total;
};

static void on_input(void *user, const struct model_tap_rows *t)
{
    static const enum quant_input of[] = {[MODEL_TAP_ATTN] = QUANT_IN_ATTN,
                                          [MODEL_TAP_Q_B] = QUANT_IN_Q_B,
                                          [MODEL_TAP_KV_B] = QUANT_IN_KV_B,
                                          [MODEL_TAP_O] = QUANT_IN_O,
                                          [MODEL_TAP_FFN] = QUANT_IN_FFN,
                                          [MODEL_TAP_DOWN] = QUANT_IN_DOWN,
                                          [MODEL_TAP_DOWN_SHEXP] = QUANT_IN_DOWN_SHEXP,
                                          [MODEL_TAP_DOWN_EXPS] = QUANT_IN_DOWN_EXPS,
                                          [MODEL_TAP_HEAD] = QUANT_IN_HEAD};
    struct calib *c = user;
    const struct quant_seen rows = {of[t->in], t->layer, t->expert, t->x,
                                    t->n_row,  t->n_col, t->ldx};
    if (!c->st) c->st = quant_stats_add(c->stats, &rows, &c->err);
}

static int on_rows(void *user, int row0, int n_row, const float *logits)
{
    struct calib *c = user;
    (void)row0;
    (void)logits;
    c->n_done += n_row;
    cmd_progress_count(c->progress, "calibrate", "tok", c->n_done, c->n_total);
    return c->st || cmd_stop;
}

static sl_status windows(struct compute *c, struct calib *k, const int32_t *ids, int n, sl_err *err)
{
    k->n_total = n;
    for (int i = 0; i < n; i += c->ei.n_ctx) {
        sl_status st = sl_score(c->e, ids + i, BASE_MIN(n - i, c->ei.n_ctx), 0, on_rows, k, err);
        if (k->st) {
            *err = k->err;
            return k->st;
        }
        SL_TRY(st);
    }
    return SL_OK;
}

/* Run the source over the text. */
static sl_status calibrate(const struct quantize_opts *o, const char *path, quant_stats **out,
                           sl_err *err)
{
    struct compute c;
    struct calib k = {0};
    struct opt_common common = o->common;
    sl_engine_opts eo = {.n_seq_max = 1, .n_ctx = 512};
    char *text = NULL;
    uint64_t n_text = 0;
    int32_t *ids = NULL;
    int n_ids = 0;
    common.model = path;
    SL_TRY(compute_read(o->calib, &text, &n_text, err));
    sl_status st = compute_open(&c, &common, &eo, err);
    if (st) {
        mem_free(text);
        return st;
    }
    k.progress = &c.progress;
    n_text = BASE_MIN(n_text, (uint64_t)o->calib_tokens * 16 + 4096);
    while (n_text > 0 && ((unsigned char)text[n_text] & 0xc0) == 0x80)
        n_text--; /* no half character */
    st = sl_tokenize(c.m, text, (size_t)n_text, 0, &ids, &n_ids, err);
    if (st) status_prefix(err, "%.80s", o->calib);
    if (st) goto out;
    if (n_ids < 16)
        st = SL_FAIL(err, REQUEST, "%s: %d tokens: too short to calibrate with", o->calib, n_ids);
    if (!st) st = quant_stats_open(c.mi.n_layer, c.mi.n_expert, &k.stats, err);
    if (st) goto out;
    SL_TRY_OUT(engine_tap(c.e, on_input, &k, err));
    st = windows(&c, &k, ids, BASE_MIN(n_ids, o->calib_tokens), err);
out:
    cmd_progress_end(&c.progress);
    sl_free(ids);
    mem_free(text);
    compute_close(&c);
    if (st)
        quant_stats_close(k.stats);
    else
        *out = k.stats;
    return st;
}

/* ---- the table ---- */

static void print_table(const struct quant_report *r)
{
    printf("%-13s %-9s %-7s %7s %12s %12s %10s\n", "class", "from", "to", "tensors", "bytes", "was",
           "error");
    for (int i = 0; i < r->n_row; i++) {
        const struct quant_row *w = &r->row[i];
        printf("%-13s %-9s %-7s %7lld %12lld %12lld", quant_class_text(w->cls), w->from, w->to,
               (long long)w->n_tensor, (long long)w->bytes_to, (long long)w->bytes_from);
        if (w->ref2 > 0)
            printf(" %9.3f%%\n", 100 * sqrt(w->err2 / w->ref2));
        else
            printf(" %10s\n", "-");
    }
    printf("%-13s %-9s %-7s %7s %12lld %12lld\n", "all", "", "", "", (long long)r->bytes_to,
           (long long)r->bytes_from);
    if (r->n_fallback)
        printf("%d matrices got another type: theirs can not hold their width, or has no place in "
               "such a file\n",
               r->n_fallback);
    if (r->n_folded) printf("scales of %d inputs folded\n", r->n_folded);
    for (int i = 0; i < r->n_note; i++)
        printf("note: %s\n", r->note[i]);
    if (r->n_probe && !r->n_probe_diff)
        printf("%d probe texts: the same ids from both tokenizers\n", r->n_probe);
}

static sl_status print_json(const struct quant_report *r, double s, sl_err *err)
{
    struct str out;
    struct json_w w;
    str_init(&out, MEM_MISC, 0);
    text_jw_init(&w, &out);
    text_jw_obj(&w);
    text_jw_key(&w, "classes");
    text_jw_arr(&w);
    for (int i = 0; i < r->n_row; i++) {
        const struct quant_row *q = &r->row[i];
        text_jw_obj(&w);
        text_jw_key(&w, "class");
        text_jw_strz(&w, quant_class_text(q->cls));
        text_jw_key(&w, "from");
        text_jw_strz(&w, q->from);
        text_jw_key(&w, "to");
        text_jw_strz(&w, q->to);
        text_jw_key_int(&w, "tensors", q->n_tensor);
        text_jw_key_int(&w, "weights", q->n_weight);
        text_jw_key_int(&w, "bytes", q->bytes_to);
        text_jw_key_int(&w, "bytes_from", q->bytes_from);
        text_jw_key(&w, "error");
        if (q->ref2 > 0)
            text_jw_real(&w, sqrt(q->err2 / q->ref2), 6);
        else
            text_jw_null(&w);
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    text_jw_key_int(&w, "bytes", r->bytes_to);
    text_jw_key_int(&w, "bytes_from", r->bytes_from);
    text_jw_key_int(&w, "fallbacks", r->n_fallback);
    text_jw_key_int(&w, "folded", r->n_folded);
    text_jw_key_int(&w, "group", r->group);
    text_jw_key_int(&w, "probes", r->n_probe);
    text_jw_key_int(&w, "probes_differ", r->n_probe_diff);
    text_jw_key(&w, "notes");
    text_jw_arr(&w);
    for (int i = 0; i < r->n_note; i++)
        text_jw_strz(&w, r->note[i]);
    text_jw_arr_end(&w);
    text_jw_key(&w, "seconds");
    text_jw_real(&w, s, 4);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&out, err);
    str_fini(&out);
    return st;
}

/* ---- the command ---- */

/* The options' types into o; wrong ones end the command. */
static int read_types(const struct quantize_opts *o, struct quant_opts *q)
{
    static const char *const name[] = {[QUANT_CLASS_ATTN] = "attn",
                                       [QUANT_CLASS_FFN] = "weights",
                                       [QUANT_CLASS_EXPERTS] = "experts",
                                       [QUANT_CLASS_EMBED] = "embed",
                                       [QUANT_CLASS_HEAD] = "head"};
    char gguf[200], hf[200];
    for (int c = 0; c < QUANT_CLASS_OTHER; c++) {
        const char *t = o->type[c];
        bool rest = c == QUANT_CLASS_ATTN || c == QUANT_CLASS_EXPERTS;
        q->type[c] = QUANT_AS_IS;
        if (!t && rest) t = o->type[QUANT_CLASS_FFN];
        if (!t || quant_type_from_text(t, &q->type[c])) continue;
        quant_types_of(IO_GGUF, gguf, sizeof gguf);
        quant_types_of(IO_HF, hf, sizeof hf);
        return cmd_usage("--%s %.20s: no such type: a .gguf file takes %s; a folder takes %s",
                         o->type[c] ? name[c] : "weights", t, gguf, hf);
    }
    q->type[QUANT_CLASS_OTHER] = QUANT_AS_IS;
    return CMD_OK;
}

static bool has_type(const struct quant_opts *q, enum quant_type t)
{
    for (int c = 0; c < QUANT_N_CLASS; c++)
        if (q->type[c] == t) return true;
    return false;
}

static enum io_kind kind_of(const char *dst)
{
    size_t n = strlen(dst);
    return n > 5 && strcmp(dst + n - 5, ".gguf") == 0 ? IO_GGUF : IO_HF;
}

static sl_status work(struct cmd_ctx *x, struct quant_opts *q, struct quant_report *rep,
                      sl_err *err)
{
    const struct quantize_opts *o = x->opts;
    const char *path = NULL;
    io_model *src = NULL;
    quant_stats *stats = NULL;
    sl_status st = engine_find_model(x->rest.v[0], &x->arena, &path, err);
    if (!st) st = quant_check_target(x->rest.v[1], q, err);
    if (!st && o->calib) st = calibrate(o, path, &stats, err);
    q->stats = stats;
    if (!st) st = io_open(path, false, &src, err);
    if (!st) st = quant_convert(src, x->rest.v[1], q, rep, err);
    io_close(src);
    quant_stats_close(stats);
    return st;
}

static int on_progress(void *p, const char *what, int64_t done, int64_t total)
{
    cmd_progress_bytes(p, what, done, total);
    return cmd_stop != 0;
}

static int run(struct cmd_ctx *x)
{
    const struct quantize_opts *o = x->opts;
    struct quant_opts q = {.keep = o->keep,
                           .awq = o->awq,
                           .plain = o->plain,
                           .force = o->force,
                           .group = o->group,
                           .n_thread = o->common.threads,
                           .memory = o->memory,
                           .shard = o->shard};
    struct quant_report rep;
    struct cmd_progress progress;
    sl_err err = {0};
    int64_t t0 = clock_now_ns();
    int rc = read_types(o, &q);
    if (rc) return rc;
    if (!o->type[QUANT_CLASS_FFN] && !o->type[QUANT_CLASS_ATTN] && !o->type[QUANT_CLASS_EXPERTS] &&
        !o->type[QUANT_CLASS_HEAD] && !o->type[QUANT_CLASS_EMBED])
        return cmd_usage("--weights: TYPE is needed: see sluice quantize --help");
    if (o->calib && !*o->calib) return cmd_usage("--calib: an empty name");
    if (o->awq && !o->calib)
        return cmd_usage("--awq: needs a text to calibrate with: --calib TEXT");
    if (o->calib_tokens != CALIB_TOKENS && !o->calib)
        return cmd_usage("--calib-tokens: needs a text to calibrate with: --calib TEXT");
    if (o->group && o->group != 32 && o->group != 64 && o->group != 128)
        return cmd_usage("--group %d: 32, 64 or 128", o->group);
    if (o->group && !has_type(&q, QUANT_AWQ))
        return cmd_usage("--group %d: only with weights of type awq", o->group);
    if (!*x->rest.v[1]) return cmd_usage("DST: an empty name");
    if (o->shard != SHARD && kind_of(x->rest.v[1]) == IO_GGUF)
        return cmd_usage("--shard: only of a folder: %s is one file", x->rest.v[1]);
    q.awq = false; /* the statistics come later */
    if (quant_check(kind_of(x->rest.v[1]), &q, &err)) return cmd_usage("%s", err.text);
    q.awq = o->awq;
    cmd_progress_init(&progress, o->common.quiet);
    q.progress = on_progress;
    q.user = &progress;
    sl_status st = work(x, &q, &rep, &err);
    cmd_progress_end(&progress);
    if (st) return cmd_fail(&err);
    if (rep.n_probe_diff)
        fprintf(stderr,
                "sluice: %d of %d probe texts get other ids from the target's tokenizer, such as "
                "\"%s\"\n",
                rep.n_probe_diff, rep.n_probe, rep.probe);
    if (o->common.json)
        return print_json(&rep, (double)(clock_now_ns() - t0) * 1e-9, &err) ? cmd_fail(&err)
                                                                            : CMD_OK;
    if (!o->common.quiet) print_table(&rep);
    return CMD_OK;
}

const struct cmd cmd_quantize = {
    .name = "quantize",
    .summary = "convert a model to other weight types, GGUF or folder",
    .usage = "SRC DST --weights TYPE [options]",
    .about = "SRC: a model. DST: a name that ends in .gguf, or a folder (safetensors). TYPE for "
             ".gguf: f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1\n"
             "q4_k q5_k q6_k nvfp4 mxfp4; for a folder: f32 f16 bf16 int8 int4 awq fp8 nvfp4 "
             "mxfp4. Nothing is overwritten without --force.",
    .example = "sluice quantize demo demo-q8_0.gguf --weights q8_0",
    .opts = opts,
    .opts_bytes = sizeof(struct quantize_opts),
    .n_arg_min = 2,
    .n_arg_max = 2,
    .run = run,
};
