/* SPDX-License-Identifier: Apache-2.0 */
/* sluice run: one prompt, one answer; or many from a file, decoded together. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "compute.h"

struct run_opts {
    struct opt_common common;
    struct sampling_opts sampling;
    const char *prompt, *file, *system, *batch_file, *json_schema, *grammar;
    struct opt_ints ids;
    struct opt_strs stop;
    int n;
    bool chat, ignore_eos, special;
};

// clang-format off
static const struct opt opts[] = {
    {"prompt",  'p', OPT_STR,  offsetof(struct run_opts, prompt),
     "TEXT", NULL, 0, 0, "the prompt"},
    {"file",    'f', OPT_STR,  offsetof(struct run_opts, file),
     "FILE", NULL, 0, 0, "the prompt is in FILE (- is standard input)"},
    {"ids",      0,  OPT_INTS, offsetof(struct run_opts, ids),
     "1,2,3", NULL, 0, 0, "the prompt as token ids"},
    {"n",       'n', OPT_INT,  offsetof(struct run_opts, n),
     "N", "512", 0, 1 << 24, "at most N tokens (0: until the context is full)"},
    {"chat",     0,  OPT_FLAG, offsetof(struct run_opts, chat),
     NULL, NULL, 0, 0, "the prompt is a user's message: use the chat template"},
    {"system",   0,  OPT_STR,  offsetof(struct run_opts, system),
     "TEXT", NULL, 0, 0, "system message, with --chat"},
    {"special",  0,  OPT_FLAG, offsetof(struct run_opts, special),
     NULL, NULL, 0, 0, "control tokens spelled in a raw prompt count as such"},
    OPT_ROWS_SAMPLING(struct run_opts),
    {"stop",     0,  OPT_STRS, offsetof(struct run_opts, stop),
     "TEXT", NULL, 0, 0, "end before this text (may be repeated)"},
    {"ignore-eos", 0, OPT_FLAG, offsetof(struct run_opts, ignore_eos),
     NULL, NULL, 0, 0, "go on after an end-of-sequence token"},
    {"batch-file", 0, OPT_STR, offsetof(struct run_opts, batch_file),
     "FILE", NULL, 0, 0,
     "JSON lines {\"prompt\"|\"messages\"|\"ids\", \"n\", \"seed\"}, one answer line each"},
    {"json-schema", 0, OPT_STR, offsetof(struct run_opts, json_schema),
     "FILE", NULL, 0, 0, "the answer is JSON that this JSON schema accepts"},
    {"grammar",  0,  OPT_STR,  offsetof(struct run_opts, grammar),
     "FILE", NULL, 0, 0, "the answer matches this grammar (GBNF)"},
    OPT_ROWS_TEMPLATE(struct run_opts),
    OPT_ROWS_EXPERTS(struct run_opts),
    OPT_ROWS_RECORD(struct run_opts),
    OPT_ROWS_DRAFT(struct run_opts),
    OPT_ROWS_LAYOUT(struct run_opts),
    OPT_ROWS_MOCK(struct run_opts),
    OPT_ROWS_COMPUTE(struct run_opts),
    {0},
};
// clang-format on
static const struct opt_pair pairs[] = {{"chat-template", "chat|batch-file"}, {0}};

/* One answer as it grows. */
struct answer {
    struct compute *c;
    int32_t *tok; /* [cap] */
    int n_tok, cap;
    struct str text;
    bool stream; /* print as it comes */
    int failed_write; /* errno; 0: none did */
    sl_finish finish;
    sl_status status;
    char error[240];
    int n_prompt, n_done; /* tokens of the prompt; of them computed */
    int n_draft, n_right;
    int64_t ttft_ns, done_ns;
};

static bool drafts(const struct opt_common *o)
{
    return strcmp(compute_draft_source(o), "off") != 0;
}

static void on_event(void *user, const sl_event *ev)
{
    struct answer *a = user;
    a->n_prompt = ev->n_prompt;
    a->n_done = ev->n_done;
    a->n_draft = ev->n_draft;
    a->n_right = ev->n_right;
    if (ev->token >= 0 && a->n_tok < a->cap) a->tok[a->n_tok++] = ev->token;
    str_put(&a->text, ev->text, ev->n_text);
    if (ev->token >= 0) cmd_progress_end(&a->c->progress);
    if (a->stream) {
        if (!a->c->mi.has_tokenizer && ev->token >= 0)
            printf("%s%d", a->n_tok > 1 ? " " : "", ev->token);
        fwrite(ev->text, 1, ev->n_text, stdout);
        if (fflush(stdout)) a->failed_write = errno ? errno : EIO;
    }
    if (ev->finish == SL_FINISH_NONE) return;
    a->finish = ev->finish;
    a->status = ev->status;
    a->ttft_ns = ev->ttft_ns;
    a->done_ns = ev->done_ns;
    if (ev->error) snprintf(a->error, sizeof a->error, "%s", ev->error);
}

static sl_status answer_init(struct answer *a, struct compute *c, int n, sl_err *err)
{
    void *p = NULL;
    memset(a, 0, sizeof *a);
    a->c = c;
    a->cap = n > 0 && n < c->ei.n_ctx ? n : c->ei.n_ctx;
    str_init(&a->text, MEM_MISC, 0);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)a->cap, sizeof *a->tok, &p, err));
    a->tok = p;
    return SL_OK;
}

static void answer_fini(struct answer *a)
{
    mem_free(a->tok);
    str_fini(&a->text);
}

struct speed {
    double ttft_ms, tpot_ms, prefill_tps, decode_tps, gbps, probe_gbps, pct;
};

static struct speed speed_of(const struct answer *a)
{
    struct speed s = {.ttft_ms = (double)a->ttft_ns * 1e-6};
    if (a->ttft_ns > 0) s.prefill_tps = a->n_prompt * 1e9 / (double)a->ttft_ns;
    if (a->n_tok > 1 && a->done_ns > a->ttft_ns) {
        s.tpot_ms = (double)(a->done_ns - a->ttft_ns) * 1e-6 / (a->n_tok - 1);
        s.decode_tps = 1e3 / s.tpot_ms;
        s.gbps = (double)a->c->ei.bytes_per_token * s.decode_tps * 1e-9;
    }
    return s;
}

static void probe(struct compute *c, struct speed *s)
{
    sl_probe_result p;
    sl_probe(c->e, 60, &p);
    s->probe_gbps = p.read_gbps;
    if (p.read_gbps > 0) s->pct = 100 * s->gbps / p.read_gbps;
}

static void closing_line(const struct answer *a, const struct speed *s)
{
    if (isatty(STDOUT_FILENO)) fputc('\n', stdout), fflush(stdout);
    fprintf(stderr,
            "prompt %d tok, %.0f tok/s | %d tok, %.1f tok/s, %.1f ms/tok | %.3g GB/tok, %.1f GB/s, "
            "%.0f %% of this machine's %.1f\n",
            a->n_prompt, s->prefill_tps, a->n_tok, s->decode_tps, s->tpot_ms,
            (double)a->c->ei.bytes_per_token * 1e-9, s->gbps, s->pct, s->probe_gbps);
}

static void put_answer(struct json_w *w, const struct answer *a)
{
    char hash[20];
    text_jw_key(w, "prompt_tokens");
    text_jw_int(w, a->n_prompt);
    text_jw_key(w, "tokens");
    text_jw_arr(w);
    for (int i = 0; i < a->n_tok; i++)
        text_jw_int(w, a->tok[i]);
    text_jw_arr_end(w);
    text_jw_key(w, "text");
    text_jw_str(w, str_c(&a->text), a->text.n);
    text_jw_key(w, "finish_reason");
    text_jw_strz(w, compute_finish_text(a->finish));
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)hash_bytes(a->tok, (size_t)a->n_tok * sizeof *a->tok, 0));
    text_jw_key(w, "run_hash");
    text_jw_strz(w, hash);
}

static sl_status print_json(const struct answer *a, const struct speed *s,
                            const struct opt_common *o, sl_err *err)
{
    struct str out;
    struct json_w w;
    const struct compute *c = a->c;
    const struct {
        const char *key;
        double v;
    } num[] = {{"load_ms", c->load_ms},       {"ttft_ms", s->ttft_ms},
               {"tpot_ms", s->tpot_ms},       {"prefill_tps", s->prefill_tps},
               {"decode_tps", s->decode_tps}, {"bytes_per_token", (double)c->ei.bytes_per_token},
               {"bandwidth_gbps", s->gbps},   {"probe_gbps", s->probe_gbps},
               {"roofline_pct", s->pct}};
    str_init(&out, MEM_MISC, 0);
    text_jw_init(&w, &out);
    text_jw_obj(&w);
    text_jw_key(&w, "model");
    text_jw_strz(&w, c->mi.name);
    text_jw_key(&w, "arch");
    text_jw_strz(&w, c->mi.arch);
    put_answer(&w, a);
    for (int i = 0; i < BASE_COUNT_OF(num); i++) {
        text_jw_key(&w, num[i].key);
        text_jw_real(&w, num[i].v, i == 5 ? 15 : 6);
    }
    text_jw_key(&w, "threads");
    text_jw_int(&w, c->ei.n_thread);
    text_jw_key(&w, "isa");
    text_jw_strz(&w, c->ei.isa);
    text_jw_key(&w, "acts");
    text_jw_strz(&w, c->ei.acts);
    text_jw_key(&w, "kv");
    text_jw_strz(&w, c->ei.kv);
    text_jw_key(&w, "seed");
    text_jw_int(&w, (int64_t)o->seed);
    if (drafts(o)) {
        struct compute_draft d = compute_draft_get(c);
        compute_draft_json(&d, compute_draft_source(o), &w);
    }
    compute_ranks_json(c, o->layout, &w);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&out, err);
    str_fini(&out);
    return st;
}

/* ---- prompts ---- */

/* The ids of a chat prompt: rendered, control tokens only from the template. */
struct ids {
    int32_t *v; /* from sl_chat_render */
    int n;
};

static sl_status chat_ids(const struct compute *c, const struct run_opts *o, const char *user,
                          size_t n_user, struct ids *out, sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_arr(&w);
    for (int i = o->system ? 0 : 1; i < 2; i++) {
        text_jw_obj(&w);
        text_jw_key(&w, "role");
        text_jw_strz(&w, i ? "user" : "system");
        text_jw_key(&w, "content");
        text_jw_str(&w, i ? user : o->system, i ? n_user : strlen(o->system));
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    sl_status st = str_status(&s, err);
    sl_chat chat = {.messages = str_c(&s)};
    if (!st) st = sl_chat_render(c->m, &chat, NULL, &out->v, &out->n, err);
    str_fini(&s);
    return st;
}

static sl_request request_of(const struct run_opts *o, struct answer *a)
{
    return (sl_request){.max_tokens = o->n,
                        .ignore_eos = o->ignore_eos,
                        .special = o->special,
                        .stop = o->stop.v,
                        .n_stop = o->stop.n,
                        .n_logprob = -1,
                        .sampling = compute_sampling(&o->sampling, o->common.seed),
                        .grammar = a->c->grammar,
                        .on_event = on_event,
                        .user = a};
}

static sl_status run_steps(struct compute *c, struct answer *a, sl_err *err)
{
    while (sl_pending(c->e)) {
        if (cmd_stop) return SL_FAIL(err, CANCELLED, "cancelled");
        SL_TRY(sl_step(c->e, err));
        if (a->n_tok == 0 && a->n_prompt)
            cmd_progress_count(&c->progress, "prompt", "tok", a->n_done, a->n_prompt);
        if (a->failed_write)
            return SL_FAIL(err, IO, "write failed: standard output: %s",
                           cmd_unwritten(a->failed_write));
    }
    return SL_OK;
}

/* A request's text ends at its first NUL. */
static sl_status whole(const char *text, size_t n, sl_err *err)
{
    if (strlen(text) == n) return SL_OK;
    return SL_FAIL(err, REQUEST, "prompt: byte %zu is NUL: text can not hold it", strlen(text));
}

static sl_status one(struct compute *c, const struct run_opts *o, const char *text, size_t n_text,
                     sl_err *err)
{
    struct answer a;
    struct ids ids = {0};
    sl_status st = SL_OK;
    SL_TRY(answer_init(&a, c, o->n, err));
    a.stream = !o->common.json;
    sl_request q = request_of(o, &a);
    q.want_progress = c->progress.on;
    if (o->ids.n) {
        q.ids = o->ids.v;
        q.n_ids = o->ids.n;
    } else if (o->chat) {
        SL_TRY_OUT(chat_ids(c, o, text, n_text, &ids, err));
        q.ids = ids.v;
        q.n_ids = ids.n;
    } else {
        SL_TRY_OUT(whole(text, n_text, err));
        q.text = text;
    }
    SL_TRY_OUT(sl_submit(c->e, &q, NULL, err));
    SL_TRY_OUT(run_steps(c, &a, err));
    if (a.finish == SL_FINISH_ERROR) {
        st = SL_FAIL(err, INTERNAL, "%s", a.error);
        goto out;
    }
    struct speed s = speed_of(&a);
    if (!o->common.quiet) probe(c, &s);
    if (o->common.json)
        st = print_json(&a, &s, &o->common, err);
    else if (!o->common.quiet)
        closing_line(&a, &s);
    if (!o->common.json && !o->common.quiet && drafts(&o->common))
        compute_draft_line(c, compute_draft_source(&o->common));
    if (!o->common.json && !o->common.quiet) compute_ranks_line(c);
out:
    sl_free(ids.v);
    answer_fini(&a);
    return st;
}

/* ---- many prompts ---- */

struct line {
    const struct json *v;
    struct answer a;
    bool open, done;
};

struct batch {
    struct line *line; /* [n] in the arena */
    int n, n_bad;      /* n_bad: lines that failed */
    struct arena *arena;
};

/* The lines of text[n], from path, into b. */
static sl_status parse_lines(const char *path, char *text, uint64_t n, struct batch *b, sl_err *err)
{
    struct compute_lines lines = {0};
    void *p = NULL;
    SL_TRY(compute_lines(path, text, n, b->arena, &lines, err));
    SL_TRY(mem_arena_array(b->arena, (size_t)lines.n + 1, sizeof *b->line, &p, err));
    b->line = p;
    for (b->n = 0; b->n < lines.n; b->n++)
        b->line[b->n].v = lines.v[b->n];
    return SL_OK;
}

static sl_status submit_line(struct compute *c, const struct run_opts *o, struct line *l,
                             struct arena *arena, sl_err *err)
{
    int64_t n = 0, seed = 0;
    int32_t *ids = NULL;
    const struct json *list = text_json_get(l->v, "ids"), *chat = text_json_get(l->v, "messages"),
                      *prompt = text_json_get(l->v, "prompt");
    SL_TRY(text_json_int(l->v, "n", o->n, &n, err));
    SL_TRY(text_json_int(l->v, "seed", (int64_t)o->common.seed, &seed, err));
    if (n < 0 || n > INT32_MAX)
        return SL_FAIL(err, REQUEST, "n: %lld: not a number of tokens", (long long)n);
    if (!l->open) SL_TRY(answer_init(&l->a, c, (int)n, err));
    l->open = true;
    sl_request q = request_of(o, &l->a);
    q.max_tokens = (int)n;
    q.sampling.seed = (uint64_t)seed;
    if (list) {
        SL_TRY(compute_line_ids(list, arena, &ids, err));
        q.ids = ids;
        q.n_ids = (int)list->n;
        return sl_submit(c->e, &q, NULL, err);
    }
    if (!chat && !o->chat) {
        SL_TRY(whole(prompt->s, prompt->n, err));
        q.text = prompt->s;
        return sl_submit(c->e, &q, NULL, err);
    }
    struct ids own = {0};
    if (chat)
        SL_TRY(compute_line_chat(c->m, chat, &own.v, &own.n, err));
    else
        SL_TRY(chat_ids(c, o, prompt->s, prompt->n, &own, err));
    q.ids = own.v;
    q.n_ids = own.n;
    sl_status st = sl_submit(c->e, &q, NULL, err);
    sl_free(own.v);
    return st;
}

static sl_status print_line(const struct line *l, bool with_drafts, sl_err *err)
{
    struct str out;
    struct json_w w;
    str_init(&out, MEM_MISC, 0);
    text_jw_init(&w, &out);
    text_jw_obj(&w);
    if (l->a.finish == SL_FINISH_ERROR) {
        text_jw_key(&w, "error");
        text_jw_strz(&w, l->a.error);
    } else
        put_answer(&w, &l->a);
    if (with_drafts) {
        text_jw_key(&w, "draft");
        text_jw_obj(&w);
        text_jw_key(&w, "drafted");
        text_jw_int(&w, l->a.n_draft);
        text_jw_key(&w, "accepted");
        text_jw_int(&w, l->a.n_right);
        text_jw_obj_end(&w);
    }
    text_jw_obj_end(&w);
    sl_status st = compute_print(&out, err);
    str_fini(&out);
    return st;
}

static sl_status batch_loop(struct compute *c, const struct run_opts *o, struct batch *b,
                            sl_err *err)
{
    int next = 0, printed = 0;
    while (printed < b->n) {
        while (next < b->n) { /* as many as the queue takes */
            struct line *l = &b->line[next];
            sl_status st = submit_line(c, o, l, b->arena, err);
            if (st == SL_BUSY) break;
            if (st == SL_NOMEM) return st;
            if (st) { /* this line alone fails */
                l->a.finish = SL_FINISH_ERROR;
                snprintf(l->a.error, sizeof l->a.error, "%s", err ? err->text : "failed");
            }
            next++;
        }
        if (cmd_stop) return SL_FAIL(err, CANCELLED, "cancelled");
        SL_TRY(sl_step(c->e, err));
        for (; printed < next && b->line[printed].a.finish != SL_FINISH_NONE; printed++) {
            b->n_bad += b->line[printed].a.finish == SL_FINISH_ERROR;
            SL_TRY(print_line(&b->line[printed], drafts(&o->common), err));
        }
        fflush(stdout);
        cmd_progress_count(&c->progress, "answers", "lines", printed, b->n);
    }
    return SL_OK;
}

static int run_batch(struct cmd_ctx *x, const struct run_opts *o)
{
    struct compute c = {0};
    struct batch b = {.arena = &x->arena};
    char *text = NULL;
    uint64_t n = 0;
    sl_err err = {0};
    sl_status st = compute_read(o->batch_file, &text, &n, &err);
    if (!st) st = parse_lines(o->batch_file, text, n, &b, &err);
    if (!st && (b.n || compute_follows(&o->common))) { /* standard input is rank 0's */
        sl_engine_opts eo = {.n_seq_max = b.n < 32 ? b.n : 32, .layout = "auto"};
        st = compute_open(&c, &o->common, &eo, &err);
        if (!st) st = compute_constrain(&c, o->json_schema, o->grammar, &err);
        if (!st) st = batch_loop(&c, o, &b, &err);
        cmd_progress_end(&c.progress);
        if (!st && !o->common.quiet && drafts(&o->common))
            compute_draft_line(&c, compute_draft_source(&o->common));
        if (!st && !o->common.quiet) compute_ranks_line(&c);
        if (!st) st = compute_experts(&c, &o->common, &err);
        if (!st) st = record_check(c.record, &err);
        compute_close(&c);
    }
    for (int i = 0; i < b.n; i++)
        answer_fini(&b.line[i].a);
    mem_free(text);
    if (st) return cmd_fail(&err);
    if (b.n_bad) {
        fprintf(stderr, "sluice: %d of %d lines failed: %s: see their \"error\"\n", b.n_bad, b.n,
                o->batch_file);
        return CMD_FAILED;
    }
    return CMD_OK;
}

static int run(struct cmd_ctx *x)
{
    const struct run_opts *o = x->opts;
    struct compute c;
    sl_err err = {0};
    char *file_text = NULL;
    const char *text = o->prompt;
    uint64_t n = text ? strlen(text) : 0;
    bool dash = x->rest.n == 1;
    if (o->json_schema && o->grammar)
        return cmd_usage("--grammar does not go with --json-schema: give one of them");
    if (dash && strcmp(x->rest.v[0], "-") != 0)
        return cmd_usage("unexpected argument: %.60s: a prompt is given with -p", x->rest.v[0]);
    int n_src = !!o->prompt + !!o->file + dash + !!o->ids.n + !!o->batch_file;
    if (n_src != 1)
        return cmd_usage("%s: -p TEXT, -f FILE, -, --ids or --batch-file: give exactly one",
                         n_src ? "several prompts" : "no prompt");
    if (o->chat && o->ids.n)
        return cmd_usage("--chat does not go with --ids: ids are the whole prompt");
    if (o->special && (o->chat || o->ids.n))
        return cmd_usage("--special: not with --%s: only of a raw prompt",
                         o->chat ? "chat" : "ids");
    if (o->system && !o->chat)
        return cmd_usage("--system: needs --chat: only a chat template has a system message");
    for (int i = 0; i < o->stop.n; i++)
        if (!*o->stop.v[i]) return cmd_usage("--stop: an empty text");
    if (o->batch_file) return run_batch(x, o);
    if (o->file || dash) {
        if (compute_read_text(dash ? "-" : o->file, &file_text, &n, &err)) return cmd_fail(&err);
        text = file_text;
    }
    sl_engine_opts eo = {.n_seq_max = 1, .layout = "auto"};
    sl_status st = compute_open(&c, &o->common, &eo, &err);
    if (!st) {
        st = compute_constrain(&c, o->json_schema, o->grammar, &err);
        if (!st) st = one(&c, o, text, (size_t)n, &err);
        cmd_progress_end(&c.progress);
        if (!st) st = compute_experts(&c, &o->common, &err);
        if (!st) st = record_check(c.record, &err);
        compute_close(&c);
    }
    mem_free(file_text);
    return st ? cmd_fail(&err) : CMD_OK;
}

const struct cmd cmd_run = {
    .name = "run",
    .summary = "one prompt, one answer",
    .usage = "[-m MODEL] (-p TEXT | -f FILE | - | --ids 1,2,3 | --batch-file FILE) [options]",
    .about = "Continues a prompt. Text goes to stdout as it is made; one closing line with the "
             "speed to stderr.",
    .example = "sluice run --chat -p \"What is the capital of France?\"\nsluice run -m model.gguf "
               "-p \"Once upon a time\" -n 64 --temp 0.8 --seed 7",
    .opts = opts,
    .pairs = pairs,
    .opts_bytes = sizeof(struct run_opts),
    .n_arg_max = 1,
    .run = run,
};
