/* SPDX-License-Identifier: Apache-2.0 */
/* sluice template: the prompt that a chat template makes of messages, byte for byte. Needs the
 * tokenizer's files only, or just a template. */
#include <string.h>
#include <time.h>

#include "compute.h"
#include "text/tmpl.h"

struct template_opts {
    struct opt_common common;
    const char *file, *messages, *tools, *kwargs, *bos, *eos;
    bool no_generation_prompt;
};

#define AT(m) offsetof(struct template_opts, m)
static const struct opt opts[] = {
    OPT_ROWS_MODEL(struct template_opts),
    {"template", 0, OPT_STR, AT(file), "FILE", NULL, 0, 0, "a template, without any model"},
    OPT_ROWS_TEMPLATE(struct template_opts),
    {"messages", 0, OPT_STR, AT(messages), "FILE", NULL, 0, 0,
     "JSON list of OpenAI messages (-: stdin)"},
    {"tools", 0, OPT_STR, AT(tools), "FILE", NULL, 0, 0, "JSON list of OpenAI tools"},
    {"no-generation-prompt", 0, OPT_FLAG, AT(no_generation_prompt), NULL, NULL, 0, 0,
     "end after the last message"},
    {"kwargs", 0, OPT_STR, AT(kwargs), "JSON", NULL, 0, 0,
     "further variables of the template, as a JSON object"},
    {"bos", 0, OPT_STR, AT(bos), "TEXT", NULL, 0, 0, "bos_token for --template"},
    {"eos", 0, OPT_STR, AT(eos), "TEXT", NULL, 0, 0, "eos_token for --template"},
    OPT_ROWS_BASIC(struct template_opts),
    {0},
};

/* What the files hold, as text and parsed. */
struct input {
    char *messages, *tools, *source;
    uint64_t n_messages, n_tools, n_source;
    const struct json *j_messages, *j_tools, *j_kwargs;
};

static sl_status must_be(const char *what, const struct json *v, enum json_kind kind, sl_err *err)
{
    if (v->kind == kind) return SL_OK;
    return SL_FAIL(err, REQUEST, "%s: %s, not %s", what, text_json_kind_text(v->kind),
                   text_json_kind_text(kind));
}

static sl_status parse_array(struct arena *a, const char *what, const char *text, size_t n,
                             const struct json **out, sl_err *err)
{
    SL_TRY(text_json_parse(a, what, text, n, out, err));
    return must_be(what, *out, JSON_ARRAY_K, err);
}

static sl_status read_input(const struct template_opts *o, struct arena *a, struct input *in,
                            sl_err *err)
{
    SL_TRY(compute_read(o->messages, &in->messages, &in->n_messages, err));
    SL_TRY(parse_array(a, o->messages, in->messages, in->n_messages, &in->j_messages, err));
    if (o->tools) {
        SL_TRY(compute_read(o->tools, &in->tools, &in->n_tools, err));
        SL_TRY(parse_array(a, o->tools, in->tools, in->n_tools, &in->j_tools, err));
    }
    if (o->kwargs) {
        size_t n = strlen(o->kwargs);
        SL_TRY(text_json_parse(a, "--kwargs", o->kwargs, n, &in->j_kwargs, err));
        SL_TRY(must_be("--kwargs", in->j_kwargs, JSON_OBJECT_K, err));
    }
    if (o->file) SL_TRY(compute_read(o->file, &in->source, &in->n_source, err));
    return SL_OK;
}

static sl_status with_file(const struct template_opts *o, const struct input *in, struct arena *a,
                           struct str *out, sl_err *err)
{
    struct text_tmpl_vars v = {.messages = in->j_messages,
                               .tools = in->j_tools,
                               .kwargs = in->j_kwargs,
                               .add_generation_prompt = !o->no_generation_prompt,
                               .bos_token = o->bos,
                               .eos_token = o->eos,
                               .now_s = (int64_t)time(NULL)};
    text_tmpl *t = NULL;
    sl_status st = text_tmpl_open(in->source, in->n_source, &t, err);
    if (st == SL_OK) st = text_tmpl_render(t, &v, a, out, NULL, err);
    text_tmpl_close(t);
    if (st != SL_OK && st != SL_NOMEM) status_prefix(err, "%s", o->file);
    return st;
}

static sl_status with_model(const struct template_opts *o, const struct input *in, struct str *out,
                            sl_err *err)
{
    sl_model_opts mo = {.vocab_only = 1, .chat_template_file = o->common.chat_template};
    sl_chat chat = {.messages = in->messages,
                    .tools = in->tools,
                    .kwargs = o->kwargs,
                    .no_generation_prompt = o->no_generation_prompt};
    sl_model *m = NULL;
    char *text = NULL;
    sl_status st = sl_model_open(o->common.model, &mo, &m, err);
    if (st == SL_OK) st = sl_chat_render(m, &chat, &text, NULL, NULL, err);
    if (st == SL_OK) str_puts(out, text);
    sl_free(text);
    sl_model_close(m);
    return st;
}

/* The text, or with --json {"text": ...}. */
static sl_status print(const struct template_opts *o, const struct str *text, sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_REQUEST, 0);
    if (o->common.json) {
        text_jw_init(&w, &s);
        text_jw_obj(&w);
        text_jw_key(&w, "text");
        text_jw_str(&w, str_c(text), text->n);
        text_jw_obj_end(&w);
        str_putc(&s, '\n');
    } else {
        str_put(&s, str_c(text), text->n);
    }
    sl_status st = str_status(&s, err);
    if (st == SL_OK && s.n && fwrite(s.p, 1, s.n, stdout) != s.n)
        st = SL_FAIL(err, IO, "standard output: write failed");
    str_fini(&s);
    return st;
}

static int run(struct cmd_ctx *c)
{
    const struct template_opts *o = c->opts;
    struct input in = {0};
    struct str out;
    sl_err err;
    if (!o->messages) return cmd_usage("--messages FILE is missing");
    if (o->file && o->common.chat_template)
        return cmd_usage("--chat-template goes with a model: give it or --template");
    if (!o->file && (o->bos || o->eos))
        return cmd_usage("--bos and --eos go with --template: a model brings its own");
    str_init(&out, MEM_REQUEST, 0);
    sl_status st = read_input(o, &c->arena, &in, &err);
    if (st == SL_OK)
        st = o->file ? with_file(o, &in, &c->arena, &out, &err) : with_model(o, &in, &out, &err);
    if (st == SL_OK) st = str_status(&out, &err);
    if (st == SL_OK) st = print(o, &out, &err);
    str_fini(&out);
    mem_free(in.messages);
    mem_free(in.tools);
    mem_free(in.source);
    return cmd_flush(st == SL_OK ? CMD_OK : cmd_fail(&err));
}

const struct cmd cmd_template = {
    .name = "template",
    .summary = "the prompt that a chat template makes of messages",
    .usage = "[-m MODEL [--chat-template FILE] | --template FILE] --messages FILE.json [--tools "
             "FILE.json] "
             "[--no-generation-prompt]\n"
             "       [--kwargs JSON] [--bos TEXT --eos TEXT]",
    .about = "Prints the rendered prompt byte for byte, as transformers renders it.",
    .example = "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | sluice template --messages -",
    .opts = opts,
    .opts_bytes = sizeof(struct template_opts),
    .run = run,
};
