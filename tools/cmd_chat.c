/* SPDX-License-Identifier: Apache-2.0 */
/* sluice chat: a conversation in the terminal. Each turn renders the whole conversation; the engine
 * finds the KV of what it computed before. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat_input.h"
#include "compute.h"
#include "os/os.h"

struct chat_opts {
    struct opt_common common;
    struct sampling_opts sampling;
    const char *system;
    int n;
    bool ignore_eos;
};

// clang-format off
static const struct opt opts[] = {
    {"system",   0,  OPT_STR,  offsetof(struct chat_opts, system),
     "TEXT", NULL, 0, 0, "system message"},
    {"n",       'n', OPT_INT,  offsetof(struct chat_opts, n),
     "N", "0", 0, 1 << 24, "at most N tokens an answer (0: until the context is full)"},
    {"ignore-eos", 0, OPT_FLAG, offsetof(struct chat_opts, ignore_eos),
     NULL, NULL, 0, 0, "go on after an end-of-sequence token"},
    OPT_ROWS_TEMPLATE(struct chat_opts),
    OPT_ROWS_SAMPLING(struct chat_opts),
    OPT_ROWS_DRAFT(struct chat_opts),
    OPT_ROWS_LAYOUT(struct chat_opts),
    OPT_ROWS_MOCK(struct chat_opts),
    OPT_ROWS_COMPUTE(struct chat_opts),
    {0},
};
// clang-format on

#define TURNS_MAX 4096

/* One message; texts are mem_ memory. */
struct message {
    const char *role;
    char *text;
    size_t n;
};

struct chat {
    struct compute c;
    struct chat_input in;
    const struct chat_opts *o;
    struct message msg[TURNS_MAX];
    int n_msg;
    bool tty;          /* of stdout: colours and prompts */
    uint64_t n_answer; /* for the seed of /regen */
    /* the answer under way */
    struct str text;
    uint64_t id;
    bool dim, cut;
    sl_finish finish;
    char error[240];
    int n_prompt, n_token, n_cached, n_done; /* n_done: of the prompt, so far */
    int64_t ttft_ns, done_ns;
};

static sl_status add(struct chat *x, const char *role, const char *text, size_t n, sl_err *err)
{
    void *p = NULL;
    if (x->n_msg == TURNS_MAX)
        return SL_FAIL(err, LIMIT, "conversation: %d messages: /reset begins a new one", TURNS_MAX);
    SL_TRY(mem_alloc(MEM_REQUEST, n + 1, &p, err));
    memcpy(p, text, n);
    ((char *)p)[n] = 0;
    x->msg[x->n_msg++] = (struct message){role, p, n};
    return SL_OK;
}

static void drop_from(struct chat *x, int i)
{
    while (x->n_msg > i)
        mem_free(x->msg[--x->n_msg].text);
}

static void set_system(struct chat *x, const char *text)
{
    sl_err err;
    drop_from(x, 0);
    if (text && *text && add(x, "system", text, strlen(text), &err))
        fprintf(stderr, "sluice: %s\n", err.text);
}

static void put_messages(struct str *out, const struct chat *x)
{
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_arr(&w);
    for (int i = 0; i < x->n_msg; i++) {
        text_jw_obj(&w);
        text_jw_key(&w, "role");
        text_jw_strz(&w, x->msg[i].role);
        text_jw_key(&w, "content");
        text_jw_str(&w, x->msg[i].text, x->msg[i].n);
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
}

/* ---- answers ---- */

static void set_dim(struct chat *x, bool dim)
{
    if (x->tty && dim != x->dim) fputs(dim ? "\033[2m" : "\033[0m", stdout);
    x->dim = dim;
}

/* Print new text; what lies between <think> and </think> is dim. The marks come as tokens of their
 * own, so a whole mark is in one event. */
static void show(struct chat *x, const char *p, size_t n)
{
    static const char open_mark[] = "<think>", close_mark[] = "</think>";
    while (n) {
        const char *mark = x->dim ? close_mark : open_mark;
        size_t len = strlen(mark);
        const char *at = memmem(p, n, mark, len);
        size_t k = at ? (size_t)(at - p) : n;
        if (at && !x->dim)
            set_dim(x, true);
        else if (at) {
            fwrite(p, 1, k + len, stdout);
            set_dim(x, false);
            p += k + len, n -= k + len;
            continue;
        }
        if (at) k += len;
        fwrite(p, 1, k, stdout);
        p += k, n -= k;
    }
    fflush(stdout);
}

static void on_event(void *user, const sl_event *ev)
{
    struct chat *x = user;
    if (ev->token >= 0) cmd_progress_end(&x->c.progress);
    str_put(&x->text, ev->text, ev->n_text);
    show(x, ev->text, ev->n_text);
    x->n_prompt = ev->n_prompt;
    x->n_token = ev->n_token;
    x->n_cached = ev->n_cached;
    x->n_done = ev->n_done;
    x->finish = ev->finish;
    if (ev->finish == SL_FINISH_NONE) return;
    x->ttft_ns = ev->ttft_ns;
    x->done_ns = ev->done_ns;
    if (ev->error) snprintf(x->error, sizeof x->error, "%s", ev->error);
}

static sl_status decode(struct chat *x, sl_err *err)
{
    sl_status st = SL_OK;
    bool cancelled = false;
    cmd_stop_soft = 1;
    while (!st && sl_pending(x->c.e)) {
        if ((cmd_stop_soft == 2 || cmd_stop) && !cancelled) {
            sl_cancel(x->c.e, x->id);
            cancelled = true;
        }
        st = sl_step(x->c.e, err);
        if (x->n_token == 0)
            cmd_progress_count(&x->c.progress, "prompt", "tok", x->n_done, x->n_prompt);
    }
    cmd_progress_end(&x->c.progress);
    cmd_stop_soft = 0;
    if (cancelled) clearerr(stdout); /* a write that Ctrl-C interrupts is no full disk */
    return st;
}

/* Answer the conversation as it stands and add the answer to it. */
static sl_status answer(struct chat *x, sl_err *err)
{
    struct str json;
    int32_t *ids = NULL;
    int n_ids = 0;
    char *tail = NULL;
    size_t n_tail = 0;
    str_init(&json, MEM_REQUEST, 0);
    put_messages(&json, x);
    sl_status st = str_status(&json, err);
    sl_chat chat = {.messages = str_c(&json)};
    SL_TRY_OUT(st);
    SL_TRY_OUT(sl_chat_render(x->c.m, &chat, NULL, &ids, &n_ids, err));
    SL_TRY_OUT(sl_detokenize(x->c.m, ids + BASE_MAX(0, n_ids - 3), BASE_MIN(n_ids, 3),
                             SL_DETOK_SPECIAL | SL_DETOK_PART, &tail, &n_tail, err));
    sl_request q = {.ids = ids,
                    .n_ids = n_ids,
                    .max_tokens = x->o->n,
                    .ignore_eos = x->o->ignore_eos,
                    .n_logprob = -1,
                    .want_progress = x->c.progress.on,
                    .on_event = on_event,
                    .user = x};
    q.sampling = compute_sampling(&x->o->sampling, x->o->common.seed + x->n_answer++);
    str_clear(&x->text);
    x->n_prompt = n_ids;
    x->n_token = x->n_done = 0;
    SL_TRY_OUT(sl_submit(x->c.e, &q, &x->id, err));
    /* templates of reasoning models open the thought in the prompt */
    const char *open_at = n_tail ? strstr(tail, "<think>") : NULL;
    set_dim(x, open_at && !strstr(open_at, "</think>"));
    SL_TRY_OUT(decode(x, err));
    set_dim(x, false);
    if (x->text.n == 0 || x->text.p[x->text.n - 1] != '\n') putchar('\n');
    fflush(stdout);
    if (x->finish == SL_FINISH_ERROR)
        st = SL_FAIL(err, INTERNAL, "%s", x->error);
    else
        st = add(x, "assistant", str_c(&x->text), x->text.n, err);
out:
    sl_free(ids);
    sl_free(tail);
    str_fini(&json);
    return st;
}

/* ---- commands ---- */

static void say(const struct chat *x, const char *text)
{
    (void)x;
    fprintf(stderr, "%s\n", text);
}

static void stats(const struct chat *x)
{
    sl_stats s;
    sl_stats_get(x->c.e, &s);
    double dec =
        x->n_token > 1 ? (x->n_token - 1) * 1e9 / (double)BASE_MAX(x->done_ns - x->ttft_ns, 1) : 0;
    fprintf(stderr,
            "last answer: prompt %d tok (%d kept from before), first token after %.0f ms, %d tok, "
            "%.1f tok/s\n",
            x->n_prompt, x->n_cached, (double)x->ttft_ns * 1e-6, x->n_token, dec);
    fprintf(stderr,
            "in all: %llu prompt tok, %llu answer tok; kv cache %lld of %lld tok; %d threads, %s, "
            "acts %s, kv %s\n",
            (unsigned long long)s.n_prompt_tok, (unsigned long long)s.n_answer_tok,
            (long long)s.kv_used_tok, (long long)s.kv_total_tok, x->c.ei.n_thread, x->c.ei.isa,
            x->c.ei.acts, x->c.ei.kv);
}

static sl_status save(struct chat *x, const char *path, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    put_messages(&s, x);
    str_putc(&s, '\n');
    sl_status st = str_status(&s, err);
    if (!st) st = os_write_file(path, s.p, s.n, err);
    str_fini(&s);
    return st;
}

static const char *role_of(const struct json *v)
{
    static const char *const role[] = {"system", "user", "assistant"};
    for (int i = 0; i < 3; i++)
        if (text_json_is(text_json_get(v, "role"), role[i])) return role[i];
    return NULL;
}

/* All or nothing: a file with a fault leaves the conversation as it was. */
static sl_status load(struct chat *x, const char *path, sl_err *err)
{
    struct arena a;
    const struct json *root = NULL;
    char *text = NULL;
    uint64_t n = 0;
    SL_TRY(os_read_once(path, 64 << 20, &text, &n, err));
    mem_arena_init(&a, MEM_REQUEST, 0);
    sl_status st = text_json_parse(&a, path, text, n, &root, err);
    if (!st && root->kind != JSON_ARRAY_K)
        st = SL_FAIL(err, FORMAT, "%s: not a list of messages", path);
    for (size_t i = 0; !st && i < root->n; i++) {
        const struct json *c = text_json_get(root->item[i], "content");
        if (!role_of(root->item[i]) || !c || c->kind != JSON_STR_K)
            st = SL_FAIL(err, FORMAT,
                         "%s: message %zu: needs a role (system, user, assistant) and text content",
                         path, i);
    }
    if (!st) drop_from(x, 0);
    for (size_t i = 0; !st && i < root->n; i++) {
        const struct json *c = text_json_get(root->item[i], "content");
        st = add(x, role_of(root->item[i]), c->s, c->n, err);
    }
    mem_arena_fini(&a);
    mem_free(text);
    return st;
}

static sl_status regen(struct chat *x, sl_err *err)
{
    if (x->n_msg && strcmp(x->msg[x->n_msg - 1].role, "assistant") == 0) drop_from(x, x->n_msg - 1);
    if (!x->n_msg || strcmp(x->msg[x->n_msg - 1].role, "user") != 0)
        return SL_FAIL(err, REQUEST, "/regen: there is no question yet");
    return answer(x, err);
}

/* A line that begins with '/'. False: leave. */
static bool command(struct chat *x, char *line)
{
    sl_err err = {0};
    sl_status st = SL_OK;
    char *arg = line + strcspn(line, " ");
    if (*arg) *arg++ = 0;
    arg += strspn(arg, " ");
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) return false;
    if (strcmp(line, "/help") == 0)
        say(x, "/reset  begin anew\n/system TEXT  begin anew with this system message\n/load FILE, "
               "/save FILE  the conversation as JSON\n"
               "/regen  answer the last question again\n/stats  speed and memory\n/quit  leave "
               "(also Ctrl-D)\nCtrl-C stops an answer, twice leaves.\n"
               "Several lines: end each but the last in \\, or put \"\"\" before the first and "
               "after the last; a pasted text is one message.");
    else if (strcmp(line, "/reset") == 0)
        set_system(x, x->o->system);
    else if (strcmp(line, "/system") == 0)
        set_system(x, arg);
    else if (strcmp(line, "/stats") == 0)
        stats(x);
    else if (strcmp(line, "/regen") == 0)
        st = regen(x, &err);
    else if (strcmp(line, "/save") == 0 || strcmp(line, "/load") == 0) {
        if (!*arg)
            st = SL_FAIL(&err, REQUEST, "%s: name a file", line);
        else
            st = line[1] == 's' ? save(x, arg, &err) : load(x, arg, &err);
    } else
        st = SL_FAIL(&err, REQUEST, "unknown command: %.40s: /help lists them", line);
    if (st) fprintf(stderr, "sluice: %s\n", err.text);
    return true;
}

/* "/word", and what follows it on that line; "/etc/hosts ..." is a message. */
static bool is_command(const struct chat_input *in, const char *text)
{
    if (text[0] != '/' || in->quoted || strchr(text, '\n')) return false;
    size_t n = 1;
    while (text[n] >= 'a' && text[n] <= 'z')
        n++;
    return n > 1 && (!text[n] || text[n] == ' ');
}

static void loop(struct chat *x)
{
    bool on = true;
    while (on && !cmd_stop && chat_input_next(&x->in)) {
        sl_err err = {0};
        char *text = x->in.text.p ? x->in.text.p : "";
        size_t n_text = x->in.text.n;
        if (x->in.torn) {
            fputs("sluice: a mark of a paste was changed, so its text is gone: not sent\n", stderr);
        } else if (is_command(&x->in, text)) {
            on = command(x, text);
        } else if (text[strspn(text, " \t\r\n")]) {
            int n = x->n_msg;
            sl_status st = str_status(&x->in.text, &err);
            if (!st) st = add(x, "user", text, n_text, &err);
            if (!st) st = answer(x, &err);
            if (st) {
                fprintf(stderr, "sluice: %s\n", err.text);
                drop_from(x, n); /* the question is not part of the conversation */
            }
        }
    }
}

static int run(struct cmd_ctx *ctx)
{
    const struct chat_opts *o = ctx->opts;
    sl_err err = {0};
    void *p = NULL;
    if (o->common.json)
        return cmd_usage("--json: chat is for people: sluice run --chat --json answers programs");
    if (mem_alloc_array(MEM_REQUEST, 1, sizeof(struct chat), &p, &err)) return cmd_fail(&err);
    struct chat *x = p;
    x->o = o;
    x->tty = isatty(STDOUT_FILENO);
    str_init(&x->text, MEM_REQUEST, 0);
    sl_engine_opts eo = {.n_seq_max = 1, .layout = "auto"};
    sl_status st = compute_open(&x->c, &o->common, &eo, &err);
    if (!st && !x->c.mi.has_tokenizer) { /* the reason that text cannot be used */
        int32_t *ids = NULL;
        int n = 0;
        st = sl_tokenize(x->c.m, "", 0, 0, &ids, &n, &err);
        sl_free(ids);
    }
    if (!st && !x->c.mi.has_template)
        st = SL_FAIL(&err, NOTFOUND,
                     "%s: the model has no chat template: sluice run -p continues plain text",
                     x->c.mi.name);
    if (!st) {
        set_system(x, o->system);
        if (x->tty && !o->common.quiet)
            fprintf(stderr, "%s, context of %d tokens. /help lists commands.\n", x->c.mi.name,
                    x->c.ei.n_ctx);
        chat_input_init(&x->in, x->tty);
        loop(x);
        chat_input_fini(&x->in);
    }
    drop_from(x, 0);
    str_fini(&x->text);
    compute_close(&x->c);
    mem_free(x);
    if (st) return cmd_fail(&err);
    return cmd_stop ? CMD_INTERRUPTED : CMD_OK;
}

const struct cmd cmd_chat = {
    .name = "chat",
    .summary = "a conversation in the terminal",
    .usage = "[-m MODEL] [--system TEXT] [options]",
    .about = "Line editing and history; /help lists what can be typed. The KV cache of earlier "
             "turns is kept.",
    .example = "sluice chat --system \"Answer in one sentence.\"",
    .opts = opts,
    .opts_bytes = sizeof(struct chat_opts),
    .run = run,
};
