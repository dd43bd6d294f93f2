/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share. */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H

#include "api/api.h"
#include "api/field.h"
#include "net/crypt.h"
#include "net/feed.h"
#include "net/metric.h"
#include "text/json.h"

#define API_STOP_MAX 16
#define API_STOP_IDS 64
#define API_FANOUT_MAX 128 /* prompts times samples of one request */
#define API_BIAS_MAX 1024
#define API_JSON "application/json"

/* The routes, in the order of the log and the metrics. */
enum {
    API_OPEN = 1,     /* no key needed */
    API_HERE = 2,     /* answered on the net thread */
    API_GEN = 4,      /* makes the model compute: counted, limited, refused while draining */
    API_UI = 8,       /* there with --ui on */
    API_METRICS = 16, /* there with --metrics on */
    API_ANY_HOST = 32, /* says nothing that a stranger may not know */
    API_ADMIN = 64     /* for keys that have the right to */
};

struct api_route {
    const char *method, *path;
    int flags;
    size_t body_max; /* 0 = none; see api_body_max */
    sl_status (*handle)(api *a, struct net_req *r, sl_err *err);
    const char *prompt_field; /* the field that holds the prompt, or NULL */
};
const struct api_route *api_route_find(const char *method, const char *path, bool *path_known);
#define API_PATH 512 /* bytes of a path that is looked at */
/* Have r->path be one of the table where it is another name of it. Errors: NOMEM. */
sl_status api_route_path(struct net_req *r, sl_err *err) BASE_MUST_USE;
#define API_ALLOW 64 /* bytes of a list of methods */
/* The methods of a path, as the header Allow names them. */
void api_route_allow(const char *path, char out[static API_ALLOW]);
const struct api_route *api_route_table(int *n);

struct api_metrics {
    struct net_hist ttft, tpot, itl, e2e, queue, prefill, decode, n_prompt, n_answer;
    struct net_hist inference;            /* prefill and decode */
    struct net_hist max_tokens, n_sample; /* what requests asked for */
    struct net_count finish[SL_N_FINISH], n_refused, n_auth_failed, http[6];
};

/* How tokens were spread over the experts; n_expert 0 in dense models. */
#define API_RANK_MAX 64
struct api_routing {
    /* fixed after open */
    int n_expert, n_layer;
    int n_row, n_col; /* of the heat map: layers, experts, in groups of neighbours */
    /* engine thread */
    int64_t when_ns;
    uint64_t *one, *all; /* [n_expert] */
    uint64_t *cell_sum;  /* [n_row, n_col] */
    /* where experts are spread over ranks: which slots there were, and the counts when they came */
    struct api_spread {
        int cap, n_slot, n_rank;
        int32_t *slot, *now; /* [n_layer, cap], [cap] */
        uint64_t *base;      /* [n_layer, n_expert] */
        int32_t *n_copy;     /* [n_expert] */
        double *rank, *sum;  /* [API_RANK_MAX] of a layer, of all */
        int begin[API_RANK_MAX + 1]; /* where each rank's slots begin */
    } spread;
    /* any thread */
    struct net_count *expert; /* [n_expert] */
    struct {
        struct net_count peak, sum, ranks; /* ranks: fullest over mean; 0 = unknown */
    } * layer; /* [n_layer] */
    struct net_count *cell; /* [n_row, n_col] */
    struct net_count n_rank, rank[API_RANK_MAX]; /* each over its share, all layers */
    struct net_count n_stage, idle[API_RANK_MAX]; /* 0 stages: one has all layers */
    /* of each rank, since open; 0 ranks: there is one */
    struct net_count n_part;
    struct api_part {
        struct net_count step_us, wait_us, bytes, net, joins, near; /* near: 1 + in millionths */
    } part[API_RANK_MAX];
    struct net_count link_ns, link_kbps; /* as sl_rank_stat has them; 0 = not measured */
    /* of groups of ranks that have sequences of their own; 0 groups: all are of one */
    struct net_count n_group;
    struct api_group {
        struct net_count rank, running, waiting, used, total; /* rank: its first */
    } group[API_RANK_MAX];
};

/* plain.c */
struct api_template {
    bool tools, calls, results; /* it writes tools; calls and results of a history */
    bool thinking;              /* it reads a switch for thinking */
    bool effort;                /* and reasoning_effort */
    bool always;                /* its prompts end within reasoning */
    const struct api_family *family; /* of calls: api_parse_family */
};

struct api_keys;
struct api_parse;

struct api {
    /* fixed after open */
    struct api_opts o;
    struct arena arena;
    sl_model_info mi;
    sl_engine_info ei;
    const char *name; /* what clients call the model */
    struct api_template tmpl;
    char fingerprint[64];
    int64_t started_s; /* wall clock */
    uint8_t seed[16];  /* of this run, for what needs a secret */
    net_lock *lock;    /* keys, db */
    /* any thread */
    struct net_count n_gen, draining, failed;
    struct net_count body_bytes; /* of all requests that there are */
    struct net_count beat_ns;
    struct net_count busy_ns; /* the most that the engine thread computed between two beats */
    struct api_metrics metrics;
    struct api_routing routing;
    char fail_text[200];       /* set once before failed */
    struct api_db *db;         /* has a lock of its own */
    sl_grammar_cache *gcache;
    int64_t usage_ns, trim_ns; /* watcher thread: when usage was last written, memory given back */
    int64_t beat_cpu_ns;       /* engine thread: what it had computed at the last beat */
    /* under lock */
    struct api_keys *keys;
};

/* ---- key.c ---- */
struct api_usage {
    int64_t n_request, n_prompt, n_answer;
};
sl_status api_key_load(api *a, sl_err *err) BASE_MUST_USE; /* again: the old ones stay on failure */
void api_key_close(api *a);
/* Find the key of r; true without a key file. */
bool api_key_check(api *a, struct net_req *r);
/* May it do what is for administrators? Without a key file everybody may. */
bool api_key_admin(api *a, const struct net_req *r);
/* Count a request against its key's limits: NULL, or why not and when again. After NULL comes
 * exactly one api_key_done. */
const char *api_key_admit(api *a, struct net_req *r, int *wait_s);
void api_key_done(api *a, const struct net_req *r, int64_t n_prompt, int64_t n_answer);
/* Have r counted as over before its last bytes leave: a client that has read them may come again at
 * once. */
void api_settle(api *a, struct net_req *r);
void api_key_name(api *a, int slot_no, char out[64]);
/* Usage since the last call; false when there is no such slot. */
bool api_key_take_usage(api *a, int slot_no, char name[64], struct api_usage *out);

/* ---- error.c ---- */
/* Reply with the four-key error of OpenAI. param: NULL = what stands before the colon of the text
 * when it is a field's name. code: NULL = by the status. */
void api_error(api *a, struct net_req *r, int http, const char *code, const char *param,
               const char *text);
/* The same for a status that a call gave. */
void api_error_of(api *a, struct net_req *r, const sl_err *err);
/* The JSON object alone, onto out: for streams. */
void api_error_json(struct str *out, int http, const char *code, const char *param,
                    const char *text);
int api_error_http(const sl_err *err);
const char *api_error_code(const sl_err *err);
const char *api_error_text(const sl_err *err);
/* The route's prompt where err is about that; NULL: as api_error. */
const char *api_error_field(const struct net_req *r, const sl_err *err);

/* ---- anthropic_out.c: what other routes say to clients of Anthropic's API ---- */
/* r is of that API: /v1/messages, or /v1/models with the header anthropic-version. */
bool api_msg_speaks(const struct net_req *r);
int api_msg_http(int http); /* the status that stands for http there */
/* {"type":"error",...}; code: as in api_error. */
void api_msg_put_error(struct str *out, const struct net_req *r, int http, const char *code,
                       const char *text);
/* The event of a stream for whose rest there is no memory. */
extern const char api_msg_lost[];
/* Reply with the model under this name, or with the list of its names (NULL). */
void api_msg_models(api *a, struct net_req *r, const char *name);

/* ---- gen.c: what all generating routes share ---- */
struct api_gen {
    const struct json *body;
    const char *model;   /* the name by which it was asked for */
    sl_request q;        /* but for the prompt; owned by the request's arena */
    sl_grammar *grammar; /* unref at the end */
    bool stream, include_usage, continuous_usage, return_ids, echo, logprobs;
    int n_top;
    int n; /* samples per prompt */
    int64_t created;
    char id[48];
};
/* From a body whose fields were checked. */
sl_status api_gen_parse(api *a, struct net_req *r, const struct json *body, int route,
                        struct api_gen *g, sl_err *err) BASE_MUST_USE;
/* Into an error about a prompt that is too long: how many tokens were asked for. */
void api_say_asked(const struct api_gen *g, sl_err *err);
/* What decides about the answer's form. */
struct api_form_in {
    const struct json *body;
    int route;
    /* where there is a chat; else NULL */
    const struct api_parse *parse; /* of the answer, nothing fed yet */
    const struct json *chat;       /* the body as chat has it: tools, tool_choice */
    bool thought;                  /* the prompt ends after reasoning */
};
/* The grammar that the body asks for; NULL for none. The caller unrefs it. */
sl_status api_form_parse(api *a, struct net_req *r, const struct api_form_in *in, sl_grammar **out,
                         sl_err *err) BASE_MUST_USE;
struct api_prompt {
    const int32_t *ids; /* or */
    const char *text;
    int n_ids;
};
/* A JSON list of token ids of the vocabulary: ids, in the arena, and n_ids. name: the field. */
sl_status api_ids_parse(const api *a, struct arena *ar, const char *name, const struct json *list,
                        struct api_prompt *out, sl_err *err) BASE_MUST_USE;
/* Several. max: how many there may be, set by the caller. */
struct api_prompts {
    struct api_prompt *v; /* [n] */
    int n, max;
    bool ids_only; /* no texts */
};
/* Text, texts, token ids or lists of token ids: into the arena; the texts are those of v. name: the
 * field. */
sl_status api_prompts_parse(const api *a, struct arena *ar, const char *name, const struct json *v,
                            struct api_prompts *out, sl_err *err) BASE_MUST_USE;
/* Read the body as JSON and check its fields. Errors: REQUEST, with line and column. */
sl_status api_body_parse(const api *a, struct net_req *r, int route, const struct json **out,
                         sl_err *err) BASE_MUST_USE;
#define API_IGNORED "x-sluice-ignored" /* header: what of the request had no effect */
#define API_IGNORED_MAX ((size_t)1000)
void api_say_ignored(struct net_req *r, const char *what);
void api_say_message(struct net_req *r, const char *member); /* of a message */
/* NOTFOUND unless name (NULL or empty: any) is the model's. */
sl_status api_model_named(const api *a, const char *name, sl_err *err) BASE_MUST_USE;
/* The name that an answer to a request for this one gives (NULL: none was said). */
const char *api_model_name(const api *a, const char *asked);
sl_status api_model_check(const api *a, const struct json *body, sl_err *err) BASE_MUST_USE;

/* ---- job.c: from sl_submit to the last event ---- */
/* An event as it left the ring; text, top, embedding and error are borrowed during the call.
 * n_cached and the times are there up to the first token and at the end. */
struct api_event {
    int32_t sub, index, token, n_top, prompt_pos, n_embedding, finish, status;
    int32_t n_prompt, n_token, n_cached, n_done, n_text, n_error;
    int32_t stop;           /* as sl_event has it */
    int32_t is_end, n_held; /* as in sl_event */
    int32_t n_draft, n_right, n_text_draft, n_text_right, n_replay; /* likewise */
    float logprob;
    int64_t ttft_ns, done_ns, queue_ns, prefill_ns;
    const char *text, *error;
    const sl_logprob *top;
    const float *embedding;
};

struct api_job;
struct api_fmt {
    /* One event; out: the stream, NULL when the answer is given whole. Net thread. */
    void (*event)(struct api_job *j, const struct api_event *ev, struct str *out);
    /* All is there: the last bytes of the stream, or the reply (out NULL). */
    void (*end)(struct api_job *j, struct str *out);
    /* The stream broke off with j->err. NULL: an error event and [DONE]. */
    void (*fail)(struct api_job *j, struct str *out);
    /* Free what the request's arena does not hold. May be NULL. */
    void (*fini)(struct api_job *j);
};

struct api_sub;
struct api_job {
    api *a;
    struct net_req *r;
    struct api_gen *g;
    const struct api_fmt *fmt;
    void *user; /* of fmt */
    const struct api_prompt *prompt;
    int n_prompt;
    struct api_sub *sub; /* [n_prompt] */
    struct net_feed feed;
    char *buf; /* payload of the event that is read */
    size_t n_buf;
    /* net and worker threads, never at once */
    int n_submitted, n_over, window;
    bool failed, ended;
    sl_err err; /* of the failure */
    /* sums over prompts and samples */
    int64_t n_prompt_tok, n_answer_tok, n_cached_tok, n_written_tok;
    int64_t n_text_draft, n_text_right; /* tokens of the request's prediction: tried; right */
    int64_t n_reason_tok;              /* of the answers: reasoning; -1 = not told apart */
    int64_t n_seen_prompt, n_seen_tok; /* so far: for the usage of a request that breaks off */
    struct api_event last;             /* of the first sample: its times */
};

/* What a job is to do; all of it lies in the request's arena. */
struct api_ask {
    struct api_gen *g;
    const struct api_prompt *prompt; /* [n_prompt] */
    int n_prompt;
    const struct api_fmt *fmt;
    void *user; /* fmt's */
};
/* Submit the prompts (as many as the window holds now) and make r wait for them. The job is
 * allocated in r's arena. Takes over g->grammar, and calls fmt->fini, also when it fails. Errors:
 * of sl_submit for the first prompt. */
sl_status api_job_start(api *a, struct net_req *r, const struct api_ask *ask,
                        sl_err *err) BASE_MUST_USE;

/* The job of a request, or NULL. Net thread. */
const struct api_job *api_job_of(const struct net_req *r);

/* ---- lp.c: the tokens of an answer that have log probabilities ---- */
#define API_TOP_MAX 20 /* alternatives of one token */
struct api_lp_tok;
struct api_lp {
    struct api_lp_tok *v; /* [n] not known yet to be part of the answer */
    int n, cap;
    uint64_t out, held; /* bytes of text given out; held back after them */
};
/* tok: a token with logprob and top; at: bytes of the event's text that stand before its own. */
typedef void api_lp_fn(void *user, const struct api_event *tok, size_t at);
void api_lp_fini(struct api_lp *l); /* zeroed memory is an empty one */
/* Take in the token of an event of the answer; fn is called for each that is known now to be part
 * of it, in order. Not for the token that ended the answer, nor for those of a stop string. False:
 * no memory. */
bool api_lp_event(struct api_lp *l, const struct api_event *ev, api_lp_fn *fn, void *user);

/* ---- log.c ---- */
void api_log(api *a, const struct net_req *r);

/* ---- out.c: pieces of answers ---- */
/* For want of memory a part is incomplete: then so is the whole, and must not be sent. */
static inline void api_inherit(struct str *whole, const struct str *part)
{
    if (part->failed && !whole->failed) whole->failed = part->failed;
}
/* A text as a value, and a value, or several, that are JSON already; with api_inherit. */
void api_put_text(struct json_w *w, const struct str *s);
/* In the object of a call, a tool or a choice: its type and what opens "function"; the value of
 * "name" comes next. Two ends close both. */
void api_function_begin(struct json_w *w);
void api_put_json(struct json_w *w, const struct str *s);
/* A call's arguments as a value; {} where they were cut off or are no object. With api_inherit. */
void api_put_object(struct json_w *w, const struct str *s);
const char *api_finish_text(int finish); /* "stop", "length" */
/* Tokens of a prompt that it left in the prefix cache: of whole blocks, without those found. */
int64_t api_written(const api *a, int n_prompt, int n_cached);
/* "cached_tokens" and "cache_write_tokens", into an open object. */
void api_put_cached(struct json_w *w, const struct api_job *j);
void api_put_usage(struct json_w *w, const struct api_job *j);
void api_put_timings(struct json_w *w, const struct api_job *j);
void api_put_head(struct json_w *w, const struct api_job *j, const char *object);
void api_sse(struct str *out, const struct str *json);
/* Text of one token, for logprobs: its bytes, which may be a part of a code point. */
void api_token_bytes(const api *a, int32_t id, struct str *out);

void api_put_ids(struct json_w *w, const char *key, const int32_t *ids, int n);
/* An SSE comment: how far the prompt is. */
void api_put_progress(struct str *out, const struct api_event *ev);
/* One entry of chat's logprobs.content. */
void api_put_logprob(const api *a, struct json_w *w, const struct api_event *ev);

/* ---- routes ---- */
#define ROUTE(name) sl_status api_##name(api *a, struct net_req *r, sl_err *err) BASE_MUST_USE
ROUTE(chat);
ROUTE(completions);
ROUTE(embeddings);
ROUTE(responses);
ROUTE(response_get);
ROUTE(response_input);
ROUTE(response_delete);
ROUTE(messages);
ROUTE(count_tokens);
ROUTE(models);
ROUTE(model_get);
ROUTE(health);
ROUTE(ready);
ROUTE(place);
ROUTE(version);
ROUTE(tokenize);
ROUTE(detokenize);
ROUTE(apply_template);
ROUTE(metrics_get);
ROUTE(page);
#undef ROUTE
/* Has an assistant's message calls, in the newer form or the older one? */
bool api_has_calls(const struct json *m);
/* Has a message of the list (NULL is legal) more than one? */
bool api_has_several_calls(const struct json *messages);
/* The template's name of a message's role; NULL: it has none. */
const char *api_role(const struct json *m);
/* A message's content (NULL is legal): a text, or a list of parts that are text. */
sl_status api_content_check(const struct json *c, const char *field, sl_err *err) BASE_MUST_USE;
/* ---- plain.c: what the chat template knows ---- */
/* Forms of messages; a template may bear one and not another. */
struct api_put {
    bool args_text;     /* arguments of calls stay texts, and tools are completed */
    bool no_null;       /* content that is null beside calls is "" */
    bool calls_plain;   /* calls are part of the content */
    bool results_plain; /* results are messages of the user */
    bool each_call;     /* of several calls of a message each is one, with its results after it */
    bool tell_user;     /* tell goes to the first message of the user, not to the system's */
    const char *tell;   /* NULL, or a text */
    const char *mark;   /* NULL, or a text at the end of the last message */
    const struct api_family *family; /* of the model; NULL is legal where calls_plain is not set */
};
/* Fill a->tmpl, and say what is missing. */
sl_status api_template_open(api *a, sl_err *err) BASE_MUST_USE;
/* What a template said of body, with the field that it is about in front. */
void api_template_blame(const struct json *body, sl_err *err);
/* What a model is told of tools; many: it may call several at once. */
void api_plain_tools(struct str *out, const struct api_family *family, const struct json *tools,
                     bool many);
/* The calls of message m (which may have none) after its text. */
void api_plain_calls(struct str *out, const struct api_family *family, const struct json *m);
/* What stands before a result: the line that names its function. */
void api_plain_result(struct str *out, const struct json *list, const struct json *m);
/* think.c: the variables that body gives the template, as a JSON object. */
sl_status api_kwargs_put(const api *a, struct net_req *r, struct str *out, const struct json *body,
                         sl_err *err) BASE_MUST_USE;

/* The texts of a checked content (NULL is legal), joined. */
void api_content_text(struct str *out, const struct json *c);
/* messages as a JSON text for the template. */
sl_status api_messages_put(struct arena *a, struct str *out, const struct json *messages,
                           const struct api_put *how, sl_err *err) BASE_MUST_USE;
/* LIMIT when the texts of messages (a list, or one text) are more than the context's tokens can
 * spell: known without rendering them. */
sl_status api_messages_fit(const api *a, const struct json *list, sl_err *err) BASE_MUST_USE;
/* tools and tool_choice are well-formed. */
sl_status api_tools_check(const struct json *body, sl_err *err) BASE_MUST_USE;
/* Prompt ids of an OpenAI chat body, in r's arena. Errors: REQUEST, and LIMIT when there are more
 * than the context takes; any_length: that is none, because they are only counted. */
sl_status api_chat_prompt(api *a, struct net_req *r, const struct json *body, bool any_length,
                          struct api_prompt *out, sl_err *err) BASE_MUST_USE;
#define API_THINK "<think>"
#define API_THINK_END "</think>"
/* Does the text end with the tag? White space after it does not count. */
bool api_ends_with(const char *text, size_t n, const char *tag);
/* Does the prompt, with <think>, or with </think>? Errors: as sl_detokenize. */
struct api_prompt_end {
    bool thinks, thought;
};
sl_status api_prompt_end(const api *a, const struct api_prompt *p, struct api_prompt_end *out,
                         sl_err *err) BASE_MUST_USE;
/* The rendered text instead; free with sl_free. */
sl_status api_chat_text(api *a, struct net_req *r, const struct json *body, char **out,
                        sl_err *err) BASE_MUST_USE;

void api_metrics_init(api *a);
sl_status api_routing_open(api *a, sl_err *err) BASE_MUST_USE;
void api_routing_put(const api *a, struct str *out, const char *label);
void api_stages_put(const api *a, struct str *out, const char *label);
void api_metrics_done(api *a, const struct api_job *j, const struct api_event *ev);

#endif
