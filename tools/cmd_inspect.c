/* SPDX-License-Identifier: Apache-2.0 */
/* sluice inspect: what a model's files say, without running it. Works on every well-formed GGUF and
 * safetensors model; what it cannot make out of an unknown architecture it takes from the tensors'
 * shapes and names. */
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "engine/find.h"
#include "inspect.h"
#include "kern/kern.h"
#include "kern/mm.h"
#include "os/os.h"
#include "place.h"

struct inspect_opts {
    struct opt_common common;
    const char *dump;
    struct inspect_spread spread;
    struct opt_ints memory;
    bool tensors, kernels, experts, program;
};

#define AT(m) offsetof(struct inspect_opts, m)
static const struct opt opts[] = {
    OPT_ROWS_MODEL(struct inspect_opts),
    {"tensors", 0, OPT_FLAG, AT(tensors), NULL, NULL, 0, 0,
     "one line per tensor: name, type, shape, bytes, offset"},
    {"dump", 0, OPT_STR, AT(dump), "TENSOR", NULL, 0, 0,
     "write that tensor to FILE as raw f32, row-major"},
    {"memory", 0, OPT_INTS, AT(memory), "CTX[,BATCH]", NULL, 0, 0,
     "bytes by purpose, and whether they fit this machine"},
    {"kernels", 0, OPT_FLAG, AT(kernels), NULL, NULL, 0, 0, "operations, chosen variant, ISA"},
    {"experts", 0, OPT_FLAG, AT(experts), NULL, NULL, 0, 0, "experts per layer"},
    {"program", 0, OPT_FLAG, AT(program), NULL, NULL, 0, 0,
     "what a step computes: one line per operator, layers that are alike told once"},
    {"expert-stats", 0, OPT_STR, AT(spread.file), "FILE", NULL, 0, 0,
     "with --experts: the load that run, eval or bench wrote there"},
    {"ranks", 0, OPT_INT, AT(spread.ranks), "N", "0", 0, 1024,
     "with --expert-stats: what each of N ranks has to do, experts placed by it"},
    {"redundant", 0, OPT_INT, AT(spread.redundant), "N", "0", 0, 65536,
     "with --ranks: extra copies of experts"},
    {"nodes", 0, OPT_INT, AT(spread.nodes), "N", "1", 1, 1024,
     "with --ranks: on so many machines; the router's groups stay together"},
    OPT_ROWS_PLACE(struct inspect_opts),
    {"threads", 't', OPT_INT, AT(common.threads), "N", "0", 0, 1024,
     "worker threads for --memory (0: physical cores)"},
    OPT_ROWS_BASIC(struct inspect_opts),
    {0},
};

static const struct opt_pair pairs[] = {{"threads", "memory"}, {0}};

/* ---- gathering ---- */
static void read_arch(struct inspect *v)
{
    const char *p = NULL;
    uint64_t n = 0;
    const struct json *j = io_config(v->io), *a = text_json_get(j, "architectures");
    if (v->has_cfg)
        p = v->cfg.arch, n = strlen(p);
    else if (io_meta_str(v->io, "general.architecture", &p, &n, NULL) == SL_OK) {
    } else if (text_json_str(j, "model_type", NULL, &p, NULL) == SL_OK && p)
        n = strlen(p);
    else if (a && a->kind == JSON_ARRAY_K && a->n && a->item[0]->kind == JSON_STR_K)
        p = a->item[0]->s, n = a->item[0]->n;
    if (!p || n == 0) p = "unknown", n = 7;
    snprintf(v->arch, sizeof v->arch, "%.*s", (int)BASE_MIN(n, sizeof v->arch - 1), p);
    for (char *c = v->arch; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

/* N of "blk.N." or "layers.N." in a name; -1 = none. */
static int layer_of(const char *name)
{
    static const char *const mark[] = {"blk.", "layers.", "h."};
    for (int i = 0; i < BASE_COUNT_OF(mark); i++) {
        const char *p = strstr(name, mark[i]);
        if (!p || (p > name && p[-1] != '.')) continue;
        char *end;
        long n = strtol(p + strlen(mark[i]), &end, 10);
        if (*end == '.' && n >= 0 && n < 100000) return (int)n;
    }
    return -1;
}

/* A whole number of the configuration: GGUF "<arch>.key", or config.json's name; 0 = not there. */
static int plain_number(const struct inspect *v, const char *gguf, const char *hf)
{
    char key[160];
    uint64_t u = 0;
    int64_t i = 0;
    snprintf(key, sizeof key, "%s.%s", v->arch, gguf);
    if (io_meta_u64(v->io, key, &u, NULL) == SL_OK) return u <= INT32_MAX ? (int)u : 0;
    if (text_json_int(io_config(v->io), hf, 0, &i, NULL) != SL_OK) return 0;
    return i >= 0 && i <= INT32_MAX ? (int)i : 0;
}

static int guess_vocab(const struct inspect *v)
{
    static const char *const name[] = {"token_embd.weight", "model.embed_tokens.weight",
                                       "transformer.wte.weight", "lm_head.weight"};
    for (int i = 0; i < BASE_COUNT_OF(name); i++) {
        const struct tensor *t = io_find(v->io, name[i]);
        if (t && tensor_rows(t) <= INT32_MAX) return (int)tensor_rows(t);
    }
    struct io_array a;
    if (io_meta_array(v->io, "tokenizer.ggml.tokens", &a, NULL) == SL_OK && a.n <= INT32_MAX)
        return (int)a.n;
    return plain_number(v, "vocab_size", "vocab_size");
}

/* Every matrix must have a reader and a run format. Shapes are the model's business, when it is
 * opened. */
static void check_runs(struct inspect *v)
{
    for (int i = 0; i < io_n_tensor(v->io) && !v->why_not.code; i++) {
        const struct tensor *t = io_tensor(v->io, i);
        struct weight w;
        sl_err err = {0};
        int fmt;
        if (!io_tensor_is_matrix(v->io, i)) continue;
        sl_status st = io_weight(v->io, t->name, &w, &err);
        if (st == SL_OK) st = kern_mm_fmt(&w, &fmt, &err);
        if (st != SL_OK) v->why_not = err;
    }
}

static sl_status gather(struct inspect *v, const char *path, struct arena *a, sl_err *err)
{
    SL_TRY(io_open(path, false, &v->io, err));
    sl_status st = arch_cfg_read(v->io, a, &v->cfg, &v->why_not);
    if (st == SL_NOMEM) {
        *err = v->why_not;
        return st;
    }
    v->has_cfg = st == SL_OK;
    if (v->has_cfg) memset(&v->why_not, 0, sizeof v->why_not);
    read_arch(v);
    for (int i = 0; i < io_n_tensor(v->io); i++) {
        const struct tensor *t = io_tensor(v->io, i);
        v->n_of[t->type]++;
        v->bytes_of[t->type] += (int64_t)t->n_bytes;
        v->bytes += (int64_t)t->n_bytes;
        if (tensor_dtype_is_weight(t->type) || tensor_dtype(t->type)->block > 1 ||
            io_quant_method(v->io))
            v->params += io_tensor_params(v->io, i);
        v->n_layer = BASE_MAX(v->n_layer, layer_of(t->name) + 1);
    }
    v->active = v->params;
    v->n_vocab = guess_vocab(v);
    v->n_ctx = plain_number(v, "context_length", "max_position_embeddings");
    if (v->has_cfg) {
        arch_count_params(v->io, &v->cfg, &v->params, &v->active);
        v->n_layer = v->cfg.n_layer;
        v->n_vocab = v->cfg.n_vocab;
        v->n_ctx = v->cfg.n_ctx_train;
        check_runs(v);
    }
    st = tok_open(v->io, &v->tok, &v->tok_err);
    if (st == SL_NOMEM) *err = v->tok_err;
    return st == SL_NOMEM ? st : SL_OK;
}

/* ---- text ---- */
static void shape_text(const struct tensor *t, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "[");
    for (int i = 0; i < t->n_dim && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    if (n < cap) snprintf(buf + n, cap - n, "]");
}

static void print_shape_line(const struct arch_cfg *c)
{
    printf("shape        %d layers, width %d, %d heads", c->n_layer, c->d_model, c->n_head);
    if (c->kv_lora)
        printf(" over a latent of %d + %d", c->kv_lora, c->d_rope);
    else
        printf(" (%d for keys) of %d", c->n_head_kv, c->d_head);
    if (c->d_ff) printf(", feed-forward %d", c->d_ff);
    if (c->n_mtp) printf(", %d MTP layer%s", c->n_mtp, c->n_mtp == 1 ? "" : "s");
    printf("\n");
    if (c->n_index)
        printf("indexer      %d heads of %d, a token sees %d positions", c->n_index, c->d_index,
               c->index_top);
    if (c->index_blk) printf(" in blocks of %d", c->index_blk);
    if (c->n_index) printf("\n");
    if (c->n_expert)
        printf("experts      %d of width %d, %d used per token, %d shared\n", c->n_expert,
               c->d_ff_expert, c->n_expert_used, c->n_shared);
}

/* Matrices by the format that they run in. */
static void print_formats(const struct inspect *v)
{
    int n_of[64] = {0};
    for (int i = 0; i < io_n_tensor(v->io); i++) {
        struct weight w;
        int fmt;
        if (!io_tensor_is_matrix(v->io, i)) continue;
        if (io_weight(v->io, io_tensor(v->io, i)->name, &w, NULL) != SL_OK) continue;
        if (kern_mm_fmt(&w, &fmt, NULL) == SL_OK && fmt < BASE_COUNT_OF(n_of)) n_of[fmt]++;
    }
    printf("run formats ");
    for (int f = 0; f < BASE_COUNT_OF(n_of); f++)
        if (n_of[f]) printf(" %s (%d)", kern_mm_fmt_name(f), n_of[f]);
    printf("\n");
}

static void print_runs(const struct inspect *v)
{
    if (io_quant_method(v->io)) printf("quantised    %s\n", io_quant_method(v->io));
    if (!v->why_not.code && v->has_cfg) print_formats(v);
    if (v->why_not.code) {
        printf("runs         not here: %s\n", v->why_not.text);
        return;
    }
    printf("runs         on the CPU, %s kernels\n", cpu_isa_best(cpu_isa_mask()));
}

/* "template     2507 bytes, tool_use 3101 bytes" */
static void print_templates(const tok *t)
{
    const struct tok_named *k = NULL;
    printf("template     ");
    for (int i = 0; t && (k = tok_template_at(t, i)); i++)
        printf("%s%s%s%zu bytes", i ? ", " : "", k->name, *k->name ? " " : "", k->n);
    printf("%s\n", t && tok_template_at(t, 0) ? "" : "none");
}

static void print_overview(const struct inspect *v)
{
    char a[32], b[32];
    printf("file         %s (%s, %d file%s)\n", io_path(v->io),
           io_model_kind(v->io) == IO_GGUF ? "GGUF" : "safetensors", io_n_file(v->io),
           io_n_file(v->io) == 1 ? "" : "s");
    printf("architecture %s%s\n", v->arch, v->has_cfg ? "" : " (not run by this version)");
    printf("parameters   %s, %s read for a token\n", inspect_count_text(v->params, a, sizeof a),
           inspect_count_text(v->active, b, sizeof b));
    printf("bytes        %s in %d tensors\n", inspect_bytes_text(v->bytes, a, sizeof a),
           io_n_tensor(v->io));
    for (int i = 0; i < TENSOR_N_DTYPE; i++)
        if (v->n_of[i])
            printf("  %-10s %s in %d tensors\n", tensor_dtype((enum tensor_dtype)i)->text,
                   inspect_bytes_text(v->bytes_of[i], a, sizeof a), v->n_of[i]);
    if (v->has_cfg)
        print_shape_line(&v->cfg);
    else if (v->n_layer)
        printf("shape        %d layers\n", v->n_layer);
    if (v->n_ctx) printf("context      %d tokens\n", v->n_ctx);
    if (v->tok)
        printf("tokenizer    %s, %d tokens\n",
               tok_is_chars(v->tok) ? "SentencePiece BPE" : "byte-level BPE", tok_n_vocab(v->tok));
    else
        printf("tokenizer    none: %s\n", v->tok_err.text);
    print_templates(v->tok);
    print_runs(v);
}

static void print_tensors(const struct inspect *v)
{
    for (int i = 0; i < io_n_tensor(v->io); i++) {
        const struct tensor *t = io_tensor(v->io, i);
        char shape[160];
        shape_text(t, shape, sizeof shape);
        printf("%s %s %s %llu %llu", t->name, tensor_dtype(t->type)->text, shape,
               (unsigned long long)t->n_bytes, (unsigned long long)t->offset);
        if (io_n_file(v->io) > 1) printf(" %s", io_file_path(v->io, t->file));
        printf("\n");
    }
}

static void print_meta(const struct inspect *v)
{
    char text[120];
    for (int i = 0; i < io_n_meta(v->io); i++) {
        io_meta_text(v->io, i, text, sizeof text);
        printf("%s = %s\n", io_meta_key(v->io, i), text);
    }
}

static void print_memory(const struct inspect_memory *m)
{
    char buf[32];
    const struct {
        const char *what;
        int64_t n;
    } row[] = {{"weights", m->weights}, {"kv cache", m->kv}, {"activations", m->acts},
               {"scratch", m->scratch}, {"total", m->total}, {"available", m->available}};
    printf("memory for %d sequence%s of %d tokens (activations and scratch estimated)\n", m->n_seq,
           m->n_seq == 1 ? "" : "s", m->n_ctx);
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        printf("  %-11s %s\n", row[i].what, inspect_bytes_text(row[i].n, buf, sizeof buf));
    printf("%s\n", m->total <= m->available ? "fits this machine" : "does not fit this machine");
}

static void print_kernels(void)
{
    uint32_t mask = cpu_isa_mask();
    for (int i = 0; i < KERN_N_OP; i++) {
        const char *op = kern_op_name(i), *isa = kern_op_isa(i, mask);
        printf("%-28s kern_%s_%s  %s\n", op, op, isa, isa);
    }
}

/* ---- JSON ---- */
static void json_tensors(const struct inspect *v, struct json_w *w)
{
    text_jw_key(w, "types");
    text_jw_obj(w);
    for (int i = 0; i < TENSOR_N_DTYPE; i++)
        if (v->n_of[i])
            text_jw_key_int(w, tensor_dtype((enum tensor_dtype)i)->text, v->bytes_of[i]);
    text_jw_obj_end(w);
    text_jw_key(w, "tensors");
    text_jw_arr(w);
    for (int i = 0; i < io_n_tensor(v->io); i++) {
        const struct tensor *t = io_tensor(v->io, i);
        text_jw_obj(w);
        text_jw_key_strz(w, "name", t->name);
        text_jw_key_strz(w, "type", tensor_dtype(t->type)->text);
        text_jw_key(w, "shape");
        text_jw_arr(w);
        for (int k = 0; k < t->n_dim; k++)
            text_jw_int(w, t->shape[k]);
        text_jw_arr_end(w);
        text_jw_key_int(w, "bytes", (int64_t)t->n_bytes);
        text_jw_key_int(w, "offset", (int64_t)t->offset);
        text_jw_key_int(w, "file", t->file);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

static void json_memory(const struct inspect_memory *m, struct json_w *w)
{
    text_jw_key(w, "memory");
    text_jw_obj(w);
    text_jw_key_int(w, "ctx", m->n_ctx);
    text_jw_key_int(w, "batch", m->n_seq);
    text_jw_key_int(w, "weights", m->weights);
    text_jw_key_int(w, "kv", m->kv);
    text_jw_key_int(w, "activations", m->acts);
    text_jw_key_int(w, "scratch", m->scratch);
    text_jw_key_int(w, "total", m->total);
    text_jw_key_int(w, "available", m->available);
    text_jw_key(w, "fits");
    text_jw_bool(w, m->total <= m->available);
    text_jw_obj_end(w);
}

static void json_kernels(struct json_w *w)
{
    text_jw_key(w, "kernels");
    text_jw_obj(w);
    for (int i = 0; i < KERN_N_OP; i++)
        text_jw_key_strz(w, kern_op_name(i), kern_op_isa(i, cpu_isa_mask()));
    text_jw_obj_end(w);
}

static void json_experts(const struct inspect *v, struct json_w *w)
{
    const struct arch_cfg *c = &v->cfg;
    text_jw_key(w, "experts");
    text_jw_arr(w);
    for (int i = 0; v->has_cfg && c->n_expert && i < c->n_layer + c->n_mtp; i++)
        text_jw_int(w, c->layer[i].ffn == ARCH_MOE ? c->n_expert : 0);
    text_jw_arr_end(w);
}

static void json_overview(const struct inspect *v, struct json_w *w)
{
    text_jw_key_strz(w, "arch", v->arch);
    text_jw_key_int(w, "params", v->params);
    text_jw_key_int(w, "active_params", v->active);
    text_jw_key_int(w, "bytes", v->bytes);
    text_jw_key_int(w, "ctx", v->n_ctx);
    text_jw_key_int(w, "vocab", v->n_vocab);
    text_jw_key_int(w, "layers", v->n_layer);
    text_jw_key_strz(w, "format", io_model_kind(v->io) == IO_GGUF ? "gguf" : "safetensors");
    if (io_quant_method(v->io)) text_jw_key_strz(w, "quant", io_quant_method(v->io));
    text_jw_key_int(w, "files", io_n_file(v->io));
    text_jw_key(w, "tokenizer");
    text_jw_bool(w, v->tok != NULL);
    text_jw_key(w, "template");
    text_jw_bool(w, v->tok && tok_template_at(v->tok, 0) != NULL);
    text_jw_key(w, "runs");
    text_jw_bool(w, !v->why_not.code);
    if (v->why_not.code) text_jw_key_strz(w, "why_not", v->why_not.text);
}

/* ---- the command ---- */
static bool asks_place(const struct inspect_opts *o)
{
    return o->common.device || o->common.gpu_layers || place_asked(&o->common);
}

/* What was asked for beside the files' own facts; NULL = not. */
struct shown {
    const struct inspect_memory *memory;
    const struct place_table *place;
};

static sl_status print_json(const struct inspect_opts *o, const struct inspect *v,
                            const struct shown *m, sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    if (v->io) {
        json_overview(v, &w);
        json_tensors(v, &w);
        if (o->experts) json_experts(v, &w);
    }
    sl_status st = SL_OK;
    if (o->program) {
        text_jw_key(&w, "program");
        st = model_show(v->io, NULL, &w, err);
    }
    if (m->memory) json_memory(m->memory, &w);
    if (m->place) place_json(m->place, &w);
    if (o->kernels) json_kernels(&w);
    text_jw_obj_end(&w);
    str_putc(&s, '\n');
    if (st == SL_OK) st = str_status(&s, err);
    if (st == SL_OK) fwrite(s.p, 1, s.n, stdout);
    str_fini(&s);
    return st;
}

static sl_status print_program(const struct inspect *v, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    sl_status st = model_show(v->io, &s, NULL, err);
    if (st == SL_OK) st = str_status(&s, err);
    if (st == SL_OK) fwrite(s.p, 1, s.n, stdout);
    str_fini(&s);
    return st;
}

static void print_text(const struct inspect_opts *o, const struct inspect *v,
                       const struct shown *m)
{
    bool part = o->tensors || m->memory || asks_place(o) || o->kernels || o->experts || o->program;
    if (!part) print_overview(v);
    if (o->common.verbose && !part) print_meta(v);
    if (o->tensors) print_tensors(v);
    if (m->memory) print_memory(m->memory);
    if (m->place) place_print(m->place);
    if (o->kernels) print_kernels();
}

static sl_status work(struct cmd_ctx *x, struct inspect *v, sl_err *err)
{
    const struct inspect_opts *o = x->opts;
    const char *name = x->rest.n ? x->rest.v[0] : o->common.model, *path = NULL;
    struct inspect_memory mem;
    struct place_table place;
    struct shown shown = {0};
    bool kernels_only = o->kernels && !x->rest.n && !o->tensors && !o->experts && !o->program &&
                        !o->memory.n && !asks_place(o);
    bool placed = asks_place(o) || (model_place_or_default(NULL) && !kernels_only);
    if (!kernels_only) {
        SL_TRY(engine_find_model(name, &x->arena, &path, err));
        SL_TRY(gather(v, path, &x->arena, err));
    }
    if (o->dump) return inspect_dump(v, o->dump, x->rest.v[1], err);
    if (o->memory.n)
        SL_TRY(inspect_memory_get(v, o->memory.v[0], o->memory.n > 1 ? o->memory.v[1] : 1,
                                  o->common.threads, &mem, err));
    if (o->memory.n) shown.memory = &mem;
    if (placed) {
        if (v->why_not.code) {
            *err = v->why_not;
            return err->code;
        }
        SL_TRY(place_get(v->io, &v->cfg, &o->common, &x->arena, &place, err));
        shown.place = &place;
    }
    if (o->common.json) return print_json(o, v, &shown, err);
    print_text(o, v, &shown);
    if (o->program) SL_TRY(print_program(v, err));
    return o->experts ? inspect_experts(v, &o->spread, &x->arena, err) : SL_OK;
}

/* On the command line; the environment is for all commands. */
static bool is_model_given(const struct cmd_ctx *x)
{
    for (int i = 0; opts[i].name; i++)
        if (strcmp(opts[i].name, "model") == 0) return x->rest.given[i];
    return false;
}

static int run(struct cmd_ctx *x)
{
    const struct inspect_opts *o = x->opts;
    struct inspect v;
    sl_err err = {0};
    memset(&v, 0, sizeof v);
    if (o->dump && x->rest.n != 2)
        return cmd_usage(
            "--dump: MODEL and FILE are needed: sluice inspect MODEL --dump TENSOR FILE");
    if (!o->dump && x->rest.n > 1)
        return cmd_usage("unexpected argument: %.60s: see sluice inspect --help", x->rest.v[1]);
    if (x->rest.n && is_model_given(x))
        return cmd_usage("--model: %.60s is there already: one model", x->rest.v[0]);
    if (o->spread.file && (!o->experts || o->common.json))
        return cmd_usage(
            "--expert-stats: goes with --experts, without --json (the file is JSON itself)");
    if (!o->spread.file && o->spread.ranks)
        return cmd_usage("--ranks: goes with --experts --expert-stats FILE");
    if (!o->spread.ranks && (o->spread.redundant || o->spread.nodes > 1))
        return cmd_usage("--redundant, --nodes: go with --ranks");
    if (o->memory.n && (asks_place(o) || model_place_or_default(NULL)))
        return cmd_usage("--memory: is of one device: without --place (SL_PLACE) and --device");
    for (int i = 0; i < o->memory.n; i++)
        if (o->memory.n > 2 || o->memory.v[i] < 1 || o->memory.v[i] > (i ? 4096 : 1 << 24))
            return cmd_usage("--memory: CTX in 1 .. 16777216 and BATCH in 1 .. 4096 are taken");
    sl_status st = work(x, &v, &err);
    tok_close(v.tok);
    io_close(v.io);
    return st == SL_OK ? CMD_OK : cmd_fail(&err);
}

const struct cmd cmd_inspect = {
    .name = "inspect",
    .summary = "what a model's files say: shapes, types, memory",
    .usage =
        "[MODEL] [--tensors] [--dump TENSOR FILE] [--memory CTX[,BATCH]] [--kernels] [--experts] "
        "[--place PART=NAME;...]",
    .about = "Works on every well-formed GGUF file and safetensors folder, of unknown "
             "architectures too. -v lists GGUF metadata.",
    .example = "sluice inspect demo --memory 4096,8",
    .opts = opts,
    .pairs = pairs,
    .opts_bytes = sizeof(struct inspect_opts),
    .n_arg_max = 2,
    .run = run,
};
