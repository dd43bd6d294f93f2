/* SPDX-License-Identifier: Apache-2.0 */
/* sluice: the public C API, and the only installed header.
 *
 * A model is what was read from disk: weights, tokenizer, chat template. An engine runs one model:
 * it owns the KV cache and the worker threads. A request is one prompt that an engine continues.
 * Requests are decoded together; what one returns depends on nothing else that runs beside it.
 *
 *     sl_model *m; sl_engine *e; uint64_t id; sl_err err;
 *     sl_model_open("demo", NULL, &m, &err);
 *     sl_engine_open(m, NULL, &e, &err);
 *     sl_request r = {.text = "Once upon", .max_tokens = 32, .on_event = print, .user = stdout};
 *     sl_submit(e, &r, &id, &err);
 *     while (sl_pending(e)) sl_step(e, &err);
 *     sl_engine_close(e); sl_model_close(m);
 *
 * The whole of it is docs/examples/hello.c, which the tests compile and run.
 *
 * Errors: every function that can fail returns an sl_status and fills *err when err is not NULL.
 * Nothing aborts on bad input.
 * Threads: sl_step, sl_wait, sl_warm, sl_score, sl_logits, sl_probe and sl_engine_close belong to
 * one thread at a time, the engine thread; sl_submit, sl_cancel, sl_pending, sl_wake,
 * sl_drop_cache, sl_rebalance, sl_stats_get and sl_engine_info_get may be called by any thread
 * while it works. Events are given by the engine thread, inside sl_step. A model is read-only after
 * it was opened and may be shared.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SL_API __attribute__((visibility("default")))
#define SL_MUST_USE __attribute__((warn_unused_result))
#else
#define SL_API
#define SL_MUST_USE
#endif

#define SL_VERSION_MAJOR 0
#define SL_VERSION_MINOR 1
#define SL_VERSION_PATCH 0

/* The one list of status codes. X(name, HTTP status, text) */
#define SL_STATUS_LIST(X)                                                                          \
    X(OK, 200, "ok")                                                                               \
    X(NOMEM, 503, "out of memory")                                                                 \
    X(IO, 500, "input or output error")                                                            \
    X(FORMAT, 500, "malformed model file")                                                         \
    X(UNSUPPORTED, 501, "not supported")                                                           \
    X(NOTFOUND, 404, "not found")                                                                  \
    X(REQUEST, 400, "invalid request")                                                             \
    X(LIMIT, 413, "over a limit")                                                                  \
    X(BUSY, 429, "no capacity now")                                                                \
    X(CANCELLED, 499, "cancelled")                                                                 \
    X(TIMEOUT, 504, "over its time limit")                                                         \
    X(INTERNAL, 500, "internal error")                                                             \
    X(DEVICE, 503, "the device was lost")

typedef enum sl_status {
#define X(name, http, text) SL_##name,
    SL_STATUS_LIST(X)
#undef X
} sl_status;

/* Why a call failed. Caller owns. */
typedef struct sl_err {
    sl_status code;
    int line;         /* of sluice's source */
    const char *file; /* static */
    char text[240];   /* one line, NUL-terminated, names the file, field or byte */
} sl_err;

typedef struct sl_model sl_model;
typedef struct sl_engine sl_engine;

/* "0.1.0", with the commit where it is known. Static, as the texts below. Threads: any. */
SL_API const char *sl_version(void);
SL_API const char *sl_status_text(sl_status code); /* what it means, in a few words */
SL_API int sl_status_http(sl_status code); /* the status of HTTP that goes with it */

/* ---- models ---- */

/* Packed files: the weights in the layout that the kernels read, to be mapped and run at once
 * (docs/formats.md). One is used when it lies beside the model ("MODEL.packed") or in
 * $XDG_CACHE_HOME/sluice/pack (~/.cache/sluice/pack) and its source's sizes, times and contents are
 * still the same. */
typedef enum sl_pack_cache {
    SL_PACK_USE,      /* use one that fits; keep none */
    SL_PACK_BESIDE,   /* where none fits the first engine writes one beside the model, and runs from
                         it */
    SL_PACK_IN_CACHE, /* the same in the cache folder */
    SL_PACK_IGNORE    /* take the source whatever lies there */
} sl_pack_cache;

typedef struct sl_model_opts {
    int vocab_only; /* 1 = tokenizer and template only: weights are not opened and may be missing */
    /* Called from sl_model_open and sl_engine_open while they work, at most ten times a second;
     * NULL = silent.
     * what: static text; done and total in bytes. Return 1 to stop (SL_CANCELLED). */
    int (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
    sl_pack_cache pack_cache;
    const char *chat_template_file; /* NULL, or a file with a chat template (Jinja) that is taken
                                       instead of all that the model brings */
} sl_model_opts;

/* Open MODEL: a .gguf file (any part of a split one), a packed file, a Hugging Face directory, or a
 * name that is looked up in $SLUICE_MODELS, ~/.local/share/sluice/models and the install's share
 * directory; "demo" or NULL is the model that comes with sluice.
 * Errors: NOTFOUND, IO, FORMAT (names file, field and byte), UNSUPPORTED (names the architecture,
 * type or template line), NOMEM.
 * Memory: files are mapped. Close with sl_model_close after every engine on it was closed. */
SL_API sl_status sl_model_open(const char *model, const sl_model_opts *opts, sl_model **out,
                               sl_err *err) SL_MUST_USE;
SL_API void sl_model_close(sl_model *m); /* NULL is legal */

typedef struct sl_model_info {
    const char *arch;      /* "deepseek_v3", "qwen3_moe", ...; borrowed until close */
    const char *name;      /* from the file, else its base name */
    int64_t params;        /* all parameters */
    int64_t active_params; /* read for one token */
    int64_t bytes;         /* of the weights in the files */
    int n_vocab, n_layer, n_ctx_train;
    int n_expert, n_expert_used; /* 0 in dense models */
    int n_mtp;                   /* multi-token prediction layers */
    int bos, eos;                /* -1 = none */
    int add_bos;                 /* the files wish BOS in front of raw text */
    int has_tokenizer, has_template;
    const char *chat_template;       /* its source, NUL-terminated; NULL = none */
    const char *chat_template_tools; /* that of conversations with tools: the one named tool_use
                                        where there is one, else the same */
    int n_embd;                      /* numbers in the vector of a token; 0 = not known */
    const char *tool_family; /* the form of calls that the architecture's models are trained on:
                                "glm", "hermes", ...; NULL = several, or not known */
    uint64_t vocab_hash; /* of the bytes of every token, and of which end; 0 = no tokenizer */
} sl_model_info;
SL_API void sl_model_info_get(const sl_model *m, sl_model_info *out);

typedef struct sl_pack_opts {
    int n_thread; /* 0 = as in sl_engine_opts */
    int cache;    /* 1 = the cache folder where dst is NULL; else beside the model */
    int force;    /* replace a file that is no packed file */
    /* as in sl_model_opts; CANCELLED when it returns 1 */
    int (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
} sl_pack_opts;
typedef struct sl_pack_info {
    char path[4096];             /* of the packed file */
    int64_t bytes, source_bytes; /* of that file; of the weights in its source */
    int n_matrix;                /* matrices, and stacks of them */
    double ms;                   /* time it took */
} sl_pack_info;
/* Write the packed file of a model. It appears under its name when it is whole. Errors: as
 * sl_model_open and sl_engine_open; IO; REQUEST. */
SL_API sl_status sl_pack(const char *name, const char *dst, const sl_pack_opts *opts,
                         sl_pack_info *out, sl_err *err) SL_MUST_USE;
/* Read a packed file whole and hold every matrix against its checksum. FORMAT names the first that
 * is wrong. */
SL_API sl_status sl_pack_check(const char *path, const sl_pack_opts *opts, sl_pack_info *out,
                               sl_err *err) SL_MUST_USE;

/* ---- text ---- */

enum {
    SL_TOK_SPECIAL = 1, /* recognise special tokens in the text; off: they are plain text */
    SL_TOK_BOS = 2,     /* put the model's BOS in front where it has one */
    SL_TOK_AROUND = 4   /* BOS in front and EOS behind, where the model's files wish them */
};

/* Text to ids. *ids: free with sl_free. Linear in n. Errors: NOTFOUND (the model has no tokenizer),
 * REQUEST (text is not UTF-8: names the byte), NOMEM. Threads: any. */
SL_API sl_status sl_tokenize(const sl_model *m, const char *text, size_t n, int flags,
                             int32_t **ids, int *n_ids, sl_err *err) SL_MUST_USE;

enum {
    SL_DETOK_SPECIAL = 1, /* special tokens as their text, else they are left out */
    SL_DETOK_PART = 2     /* the ids go on with a text: SentencePiece's space in front stays */
};

/* Ids to bytes (special: of the flags above). *text is NUL-terminated; free with sl_free. The bytes
 * may be cut inside a code point when the ids are. Errors: REQUEST (an id that is not in the
 * vocabulary), NOTFOUND, NOMEM. Threads: any. */
SL_API sl_status sl_detokenize(const sl_model *m, const int32_t *ids, int n_ids, int special,
                               char **text, size_t *n, sl_err *err) SL_MUST_USE;

/* Render the model's chat template: with tools the one named tool_use, where the model brings one.
 * messages, tools, kwargs: JSON texts (an array of OpenAI messages; an array of tools or NULL; an
 * object or NULL). Text that a user wrote can not become a control token: *ids (may be NULL)
 * receives the tokenised prompt with only the template's own control tokens recognised. *text (may
 * be NULL) receives the rendered bytes. Free both with sl_free. Errors: NOTFOUND (no template),
 * REQUEST (bad JSON, raise_exception of the template, a NUL where text is asked for), LIMIT (step
 * or output budget). Threads: any. */
typedef struct sl_chat {
    const char *messages, *tools, *kwargs;
    int no_generation_prompt;
    int max_ids;     /* more tokens than this are LIMIT; 0 = no limit */
    const char *cut; /* NULL, or a mark that ends in a space and stands at the end of the last
                        message: the prompt ends before it. Where the template took that space away,
                        white space before it goes too. REQUEST when the rendered text does not
                        hold it */
} sl_chat;
SL_API sl_status sl_chat_render(const sl_model *m, const sl_chat *chat, char **text, int32_t **ids,
                                int *n_ids, sl_err *err) SL_MUST_USE;

/* 1: the template (with tools: that of conversations with tools) reads a variable of this name.
 * Threads: any. */
SL_API int sl_template_reads(const sl_model *m, int tools, const char *name);

SL_API void sl_free(void *p); /* NULL is legal */

/* ---- grammars: what an answer may look like ---- */

typedef struct sl_grammar sl_grammar;
typedef enum sl_grammar_kind {
    SL_GRAMMAR_JSON_SCHEMA,      /* text: a JSON schema */
    SL_GRAMMAR_JSON_OBJECT,      /* any JSON object; text is not read */
    SL_GRAMMAR_REGEX,            /* text: a regular expression that the whole answer matches */
    SL_GRAMMAR_GBNF,             /* text: a grammar, as llama.cpp writes them */
    SL_GRAMMAR_JSON_SCHEMA_LOOSE /* a JSON schema, held as far as it can be: refused is only what is
                                    no schema */
} sl_grammar_kind;

/* Compile a grammar for the vocabulary of m. It is immutable and counted: one reference is the
 * caller's, each request that uses it has its own.
 * Errors: REQUEST (names the keyword and its path, or line and column), LIMIT (size, depth, time),
 * UNSUPPORTED, NOTFOUND (no tokenizer), NOMEM.
 * Threads: any. */
SL_API sl_status sl_grammar_compile(const sl_model *m, sl_grammar_kind kind, const char *text,
                                    size_t n, sl_grammar **out, sl_err *err) SL_MUST_USE;
SL_API sl_grammar *sl_grammar_ref(sl_grammar *g); /* returns g. NULL is legal. Threads: any */
SL_API void sl_grammar_unref(sl_grammar *g); /* NULL is legal. Threads: any */
/* Memory of the grammar and of what its users made it compute so far (at most about 16 MiB more).
 * Threads: any. */
SL_API size_t sl_grammar_bytes(const sl_grammar *g);
/* What a loose schema does not hold, as places in it ("#/properties/a/uniqueItems, #/not"); ""
 * = all is held. Lives as long as g. Threads: any. */
SL_API const char *sl_grammar_relaxed(const sl_grammar *g);
/* What it was compiled from. Lives as long as g. Threads: any. */
SL_API const char *sl_grammar_source(const sl_grammar *g, sl_grammar_kind *kind, size_t *n);

/* Grammars of earlier requests, in at most 32 MiB, least recently used out first: one with the same
 * text is found with the masks that were computed for it. Threads: any. */
typedef struct sl_grammar_cache sl_grammar_cache;
/* Of grammars for m, which outlives it. Errors: NOMEM. */
SL_API sl_status sl_grammar_cache_open(const sl_model *m, sl_grammar_cache **out,
                                       sl_err *err) SL_MUST_USE;
SL_API void sl_grammar_cache_close(sl_grammar_cache *c); /* NULL is legal */
/* As sl_grammar_compile; errors too. */
SL_API sl_status sl_grammar_cache_get(sl_grammar_cache *c, sl_grammar_kind kind, const char *text,
                                      size_t n, sl_grammar **out, sl_err *err) SL_MUST_USE;
typedef struct sl_grammar_cache_info {
    int n; /* that it holds */
    size_t bytes;
    uint64_t n_hit, n_miss; /* of sl_grammar_cache_get */
} sl_grammar_cache_info;
SL_API void sl_grammar_cache_info_get(sl_grammar_cache *c, sl_grammar_cache_info *out);

/* ---- engines ---- */

typedef enum sl_acts { SL_ACTS_AUTO, SL_ACTS_INT8, SL_ACTS_BF16, SL_ACTS_F32 } sl_acts;
typedef enum sl_kv { SL_KV_AUTO, SL_KV_F16, SL_KV_BF16, SL_KV_Q8, SL_KV_F32 } sl_kv;

#define SL_DRAFT_MAX 7 /* guesses in one step for one sequence */
#define SL_HOT_AUTO (-1)
#define SL_STREAM_AUTO (-1) /* sl_engine_opts.stream_from: where it is faster */

/* One step, for traces. */
typedef struct sl_step_record {
    uint64_t n;                             /* number of the step, from 1 */
    int64_t t0_ns;                          /* monotonic clock when it began */
    int64_t plan_ns, compute_ns, sample_ns; /* its parts: schedule, model, tokens and events */
    int n_decode, n_prompt;                 /* tokens: of answers, of prompts */
    int n_draft, n_right; /* of those of answers: guesses, and guesses that were right */
    int n_seq;            /* sequences in the step */
    int n_running, n_waiting; /* requests after the step */
    int n_preempt;            /* that lost their blocks in it */
    int64_t kv_used_tok;      /* tokens of the KV cache that running requests hold */
} sl_step_record;

typedef struct sl_engine_opts {
    int n_thread;      /* 0 = physical cores in the process's CPU set */
    int n_ctx;         /* tokens per sequence; 0 = the model's, cut to what memory allows */
    int n_seq_max;     /* sequences decoded together; 0 = 32, or 8 and more with large states */
    int n_chunk;       /* prompt tokens per step; 0 = 512, or 2048 with stream_from */
    int n_queue_max;   /* requests that wait; 0 = 256 */
    int64_t kv_tokens; /* KV cache in tokens, all sequences; 0 = n_ctx, and more where batches want
                          it and memory allows */
    sl_acts acts; /* precision of the activations of quantised products; F32 is the reference mode,
                     which AUTO takes for small models (512 columns) */
    sl_kv kv;     /* KV cache type; AUTO = bf16 or f16 by the CPU, f32 in the reference mode */
    int no_reuse; /* 1 = no prefix cache: never start from the KV that another request left
                     (measurements) */
    int no_hugepages;
    /* Speculation: what guesses tokens ahead, which are computed together with the known one and
     * kept as long as they are what is drawn anyway: no answer changes by it. "off"; "ngram": the
     * text itself, what a request expects, and what a grammar leaves no choice about; "mtp": the
     * model's MTP layer in place of the text itself (REQUEST where there is none); "auto": all of
     * these, of the layer where the model has one; "model": draft_model in place of the text
     * itself, and "auto" takes it in place of the layer; "replay:RATE": a request's draft_ids are
     * its answer, wrong at 1 - RATE (measurements). NULL = "off", with a draft_model "auto". */
    const char *draft;
    /* A small model with the same tokens, on the same device and threads, whose guesses these are;
     * it stays open as long as the engine. REQUEST: its tokens differ (names the first), draft is
     * another one; UNSUPPORTED: ranks. NULL = none. */
    sl_model *draft_model;
    /* The MTP layer guesses among so many ids only, rounded up to tiles of 16: its head is as much
     * shorter. 0 = all. REQUEST: more than there are, no layer; UNSUPPORTED: ids, packed file. */
    int draft_vocab;
    const int32_t *draft_vocab_ids; /* [draft_vocab] copied; NULL = the first, frequent ones */
    int draft_max; /* guesses in a step for one sequence, at most; 0 = SL_DRAFT_MAX; REQUEST: off */
    int draft_always;   /* 1 = as many as there are, even where fewer are faster (measurements) */
    const char *device; /* what computes, as `sluice doctor` lists it; NULL = SL_DEVICE, or "cpu" */
    /* Which parts of the model lie on other devices: "experts=cpu", "experts@0-15=cpu; head=check"
     * (docs/devices.md); with a layout, of every rank. REQUEST names an item that can not be
     * obeyed. NULL = the environment's SL_PLACE, or all on device. */
    const char *place;
    double mem_fraction; /* of the memory that is free on a device use so much; 0 = all of it */
    /* "cpu": where a device can not be opened, or is too small, the CPU computes everything, with
     * a warning and sl_engine_info.fallback; never of what is not understood. NULL = an error. */
    const char *fallback;
    /* 1: the same bits on every machine: attention in f32, latents in one form, kv AUTO is f16.
     * Slower. 0 = what the CPU does best, which all devices of the machine then do. */
    int exact, no_matrix_units; /* the latter 1: cards do not use theirs; REQUEST: there is none */
    /* Of every generated token so many experts, those of the smallest weights, are added one layer
     * with experts later: so they are computed beside the attention between, where place has them
     * on another device. It changes answers (`sluice eval --defer` says how much); they do not
     * depend on where the experts are. Prompts are computed as always. REQUEST where it can not
     * be. 0 = none. */
    int n_defer;
    /* Hot experts: of every layer whose experts lie on the CPU beside a device (place) so many lie
     * on that device too, and are computed there; SL_HOT_AUTO: as many as its memory holds beside
     * everything else. No answer changes by it. Those that hot_load (as expert_load) says are
     * chosen most; without it they are spread evenly. REQUEST where no experts lie so. 0 = none. */
    int n_hot;
    const uint64_t *hot_load;
    int n_hot_load;
    /* Choose them again by the tokens computed since the last time, when there is nothing to do and
     * there were so many; the prefix cache is dropped with it. 0 = never. */
    int hot_update;
    /* In steps of so many tokens and more, which long prompts have, the experts that lie on the CPU
     * beside a device (place) are sent through that device, which computes with those that have
     * come; SL_STREAM_AUTO: from the number on from which it is faster, found by trying when the
     * engine opens. No answer changes by it. REQUEST where no experts lie so. 0 = never. */
    int stream_from;
    /* "tp=T,pp=P": P stages have some of the layers each, whose matrices T ranks share by rows,
     * each rank with a part of the threads; answers stay the same, bit for bit. NULL = one rank.
     * They are threads, or the processes that a launcher (mpirun, srun) has started: see sl_follow.
     * "tp=T,ep=E": E groups of ranks have some of the experts each, as expert_load says: whole ones
     * with E = T. "dp=N,ep=E": N ranks with all but experts, and the sequences that came to them:
     * n_seq_max, n_chunk and kv_tokens are of all, and become multiples of N; n_ctx is a
     * sequence's. "auto": a rank on each memory node, where model, device and options allow it. */
    const char *layout;
    /* Form in which experts' outputs are taken before they are weighed and added: "f32", as they
     * are, NULL too; "bf16"; "q8", a byte each and a power of two for 32: other answers, whatever
     * the layout, and less between ranks of dp. REQUEST: of a model without experts. */
    const char *combine;
    /* With dp: "gather", tokens' rows go to all ranks; "swap", to those that have an expert of it;
     * NULL, "auto": swap between machines with more ranks than experts of a token. */
    const char *dispatch;
    int micro; /* with dp, 2: half of a step computes while rows of the other half travel */
    /* How often each expert was chosen, by layer, MTP layers after the others: [n_expert_load,
     * n_expert], read while opening; further layers count as even. By it a layout with ep deals
     * experts out, and makes `redundant` more copies in each layer of those with most. NULL = in
     * order, without copies. */
    const uint64_t *expert_load;
    int n_expert_load, redundant;
    /* With ep: room on each rank for n_spare experts (of each size that layers have, 0 to 16), into
     * which they are read while steps go on, so that they may change ranks (sl_rebalance). How fast
     * a rank reads, in 10^6 bytes a second; 0 = 200. Every rebalance_s seconds they are rebalanced
     * unasked; 0 = never. The model then stays open as long as the engine, as always. */
    int n_spare, place_mbps, rebalance_s;
    const char *place_from; /* "disk", NULL; "peer": a rank's memory. REQUEST: of a packed file */
    int dist_deadline_ms; /* a rank's silence in a step; 0 = 30 000, at least 20 longest steps */
    /* as in sl_model_opts; reports the packing of the weights */
    int (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
    /* called by the engine thread after every step; NULL = not. Must not call back into the
     * engine. */
    void (*on_step)(void *step_user, const sl_step_record *step);
    void *step_user;
    /* Called by the engine thread with the bytes of a recording as they come (docs/record.md): from
     * sl_engine_open, and in every step before and after it is computed; NULL = not. They hold the
     * tokens of all requests. Must not call back into the engine. */
    void (*on_record)(void *record_user, const void *p, size_t n);
    void *record_user;
} sl_engine_opts;

/* Pack the weights for this CPU, reserve the KV cache and start the workers. After this returns OK
 * no step allocates.
 * Errors: NOMEM (says what was needed and what there is), UNSUPPORTED, FORMAT (a tensor that is
 * missing or misshapen), CANCELLED. */
SL_API sl_status sl_engine_open(sl_model *m, const sl_engine_opts *opts, sl_engine **out,
                                sl_err *err) SL_MUST_USE;
SL_API void sl_engine_close(sl_engine *e); /* NULL is legal; open requests end: CANCELLED */

typedef struct sl_engine_info {
    int n_thread, n_ctx, n_seq_max;
    int64_t kv_tokens;
    const char *isa;         /* "avx512vnni", "avx2", "neon", "ref", ... */
    const char *acts;        /* "auto" (by format and place), "int8", "bf16", "f32" */
    const char *kv;          /* "bf16", ... */
    int64_t bytes_per_token; /* weight bytes that decoding one token at batch 1 reads */
    int64_t weight_bytes, kv_bytes, act_bytes, scratch_bytes;
    double pack_ms;
    int packed;             /* 1 = the weights are a packed file, mapped */
    int64_t text_bytes_max; /* n_ctx tokens are at most so many bytes of text; 0 = not known */
    int rank;               /* which rank this process is; 0: requests are computed here */
    int fallback; /* 1 = the CPU stands in for a device that could not be opened (opts.fallback) */
    /* with opts.stream_from: the tokens of a step from which on it is, 0 = it never is; bytes that
     * one brings; what was measured on the way to the device and on the CPU, 0 = nothing was */
    int stream_from;
    int64_t stream_bytes;
    double stream_bus_gbps, stream_cpu_gops;
    uint64_t model_hash; /* of the model's file, tensors and small vectors, whatever the layout */
    uint64_t kv_hash; /* what must be the same for sl_prefill_by; 0 = it gives nothing away */
} sl_engine_info;
SL_API void sl_engine_info_get(const sl_engine *e, sl_engine_info *out);

/* The device was lost (sl_step said DEVICE): open the devices again, and load the model again; the
 * prefix cache is empty then, and requests are taken again. Nothing happens where none was lost.
 * Errors: as sl_engine_open: the engine stays lost; UNSUPPORTED: ranks, a draft_model, an engine
 * elsewhere. Threads: the engine's. */
SL_API sl_status sl_reopen(sl_engine *e, sl_err *err) SL_MUST_USE;

/* A device that an engine's model lies on. Texts are borrowed until the engine is closed. */
typedef struct sl_device_info {
    const char *name;  /* as device or place named it */
    const char *parts; /* what lies there: "embed, attn, head, experts@0-15" */
    int64_t weight_bytes, kv_bytes;
} sl_device_info;
/* Returns how many there are and writes at most n. Threads: any. */
SL_API int sl_engine_devices(const sl_engine *e, sl_device_info *out, int n);

typedef struct sl_bias {
    int32_t token;
    float bias; /* added to the logit; -100 and below forbids */
} sl_bias;

typedef struct sl_sampling {
    float temperature;       /* 0 = greedy */
    int top_k;               /* 0 = off */
    float top_p;             /* 1 = off; 0 is read as 1 */
    float min_p;             /* 0 = off */
    float repeat_penalty;    /* 1 = off; 0 is read as 1; over prompt and answer */
    float presence_penalty;  /* 0 = off; over the answer */
    float frequency_penalty; /* 0 = off; over the answer */
    uint64_t seed;           /* token i of sample k depends on (seed, k, i) and the logits only: the
                                winner of a race in which every id has its own noise, the same on
                                all machines */
    const sl_bias *bias;     /* copied */
    int n_bias;
} sl_sampling;

/* What the model's files recommend (generation_config.json, general.sampling.* of a GGUF) over what
 * *s holds: temperature, top_k, top_p, min_p and the penalties. *max_tokens: 0 = nothing. Returns
 * how many values there were; -1 where a file asks for what can not be done, which is logged. What
 * is no such value is logged and left out. Threads: any. */
SL_API int sl_model_sampling(const sl_model *m, sl_sampling *s, int *max_tokens);

typedef enum sl_finish {
    SL_FINISH_NONE,
    SL_FINISH_STOP,        /* an end-of-sequence token */
    SL_FINISH_STOP_STRING, /* a stop string or stop token of the request */
    SL_FINISH_LENGTH,      /* max_tokens or the context is full */
    SL_FINISH_CANCELLED,
    SL_FINISH_ERROR /* status and error say why: TIMEOUT, INTERNAL (the model gave no number),
                       NOMEM, DEVICE */
} sl_finish;
#define SL_N_FINISH 6

typedef struct sl_logprob {
    int32_t token;
    float logprob; /* natural logarithm, <= 0; of the distribution before sampling filters */
} sl_logprob;

typedef struct sl_event {
    uint64_t id;      /* of the request */
    int32_t token;    /* -1 = none in this event; the token that ended the answer is reported too,
                         without text */
    const char *text; /* new text, whole code points only, may be empty; borrowed during the call */
    size_t n_text;
    int index;             /* which sample, from 0 to n - 1 */
    sl_finish finish;      /* != NONE: the last event of this sample */
    sl_status status;      /* with FINISH_ERROR */
    const char *error;     /* with FINISH_ERROR: one line */
    float logprob;         /* of token, when asked for */
    const sl_logprob *top; /* n_top entries, best first */
    int n_top;
    int n_prompt, n_token, n_cached; /* prompt tokens; so far; from the prefix cache */
    int n_done;     /* prompt tokens computed or taken so far (want_progress) */
    int prompt_pos; /* -1; echo_logprob: the event is of prompt token number prompt_pos */
    const float *embedding; /* embed: the vector; NULL otherwise; borrowed during the call */
    int n_embedding;
    int64_t ttft_ns, done_ns; /* since submit; 0 before they are known; without tokens ttft_ns is
                                 when the prompt was computed */
    int64_t queue_ns, prefill_ns; /* submit to first admission; that to the first token */
    int n_preempt;                /* times it lost its KV blocks and was computed again */
    int n_replay;                 /* times it went on in an engine that came back */
    int stop;   /* with FINISH_STOP_STRING: which of the request's stop strings; -1 = a stop token.
                   Else no meaning */
    int is_end; /* 1: token ended the answer and is no part of it: an end of sequence or a stop
                   token */
    int n_draft, n_right;           /* guesses computed for this sample so far; of them right */
    int n_text_draft, n_text_right; /* of those: from the request's draft_ids */
    size_t n_held; /* bytes of text that are held back after this event, because a stop string may
                      begin with them */
} sl_event;

#define SL_MARK 0xff /* keep_special 2 */

/* What is stored of a block (kv_blk_tok) in a layer, MTP after the others; its XXH3. */
typedef struct sl_kv_page {
    int block, layer;
    const void *bytes;
    size_t n_bytes;
    uint64_t sum;
} sl_kv_page;

typedef struct sl_request {
    const char *text; /* prompt, UTF-8 (raw; special tokens recognised when special is 1); or */
    const int32_t *ids; /* prompt ids; when not NULL they are used instead */
    int n_ids;
    int special; /* for text: as SL_TOK_SPECIAL */
    int bos; /* for text: 0 = BOS in front when the model's files wish it for raw text, 1 = always,
                -1 = never */
    int keep_special; /* 0: special tokens have no text in the events; 1: they appear; 2: they
                         appear, each between two bytes SL_MARK, which no other text
                         holds */
    int max_tokens;   /* 0 = until the context is full; -1 = none, with echo_logprob only */
    int min_tokens;   /* no end-of-sequence or stop token before */
    int ignore_eos;
    const char *const *stop; /* up to 16 stop strings of 1 to 1024 bytes, never part of the text;
                                the one that ends first counts */
    int n_stop;
    const int32_t *stop_ids; /* up to 64 */
    int n_stop_ids;
    int n_logprob; /* -1 = none (0 in a zeroed struct also means none: set want_logprob), up to 20
                      alternatives */
    int want_logprob;
    sl_sampling sampling;
    void (*on_event)(void *user, const sl_event *ev); /* called inside sl_step; may call sl_submit
                                                         and sl_cancel. NULL = silent */
    void *user;
    int n; /* samples of one prompt, up to 128; 0 = 1; they share the prompt's KV blocks. Each has
              its own last event */
    int priority; /* -100 to 100, higher first; a request that waits gains on higher ones, so that
                     none starves */
    int64_t timeout_ms; /* since submit; past it every sample ends with FINISH_ERROR, TIMEOUT; 0 =
                           none */
    uint64_t owner; /* whose it is: owners that wait get equal shares of the tokens; 0 = nobody in
                       particular */
    uint64_t cache_salt; /* prefix cache: only requests of the same salt share blocks */
    int no_cache;        /* neither start from the prefix cache nor leave anything there */
    int echo_logprob; /* first one event for every prompt token, of sample 0: token, prompt_pos, and
                         with want_logprob logprob and top (the first token has none: n_top 0,
                         logprob 0). The prefix cache is not read */
    sl_grammar *grammar; /* NULL, or what the answer must match; takes a reference of its own */
    int embed; /* 1 = mean, 2 = last: no answer; one event with the pooled final hidden states (not
                  normalised), finish STOP */
    int want_progress;        /* an event without token after each piece of the prompt */
    const int32_t *draft_ids; /* NULL, or the tokens of a text that the answer is expected to hold
                                 for the most part: makes it faster where it does (see
                                 sl_engine_opts.draft), and changes nothing else. With n 1 only */
    int n_draft_ids;
    int n_draft; /* guesses in a step: 0 = as many as pay; -1 = none; up to SL_DRAFT_MAX: so many
                    where there are, whatever they cost (measurements) */
    /* An answer that another engine began goes on, as one that lost its KV blocks does: its first
     * tokens, fewer than max_tokens. They are told no more, but n_token of events counts them.
     * With n 1, without embed; of echo_logprob nothing is told. */
    const int32_t *given;
    int n_given;
    int first; /* the samples are number first to first + n - 1 */
    /* No answer: what is stored of the prompt but its last token is given away, from kv_from on, a
     * block's layers in order, then event LENGTH. 0: not now. Threads: the engine's. With n 1,
     * without embed, grammar, given and echo_logprob. */
    int (*on_kv)(void *user, const sl_kv_page *page);
    int kv_from;
} sl_request;

/* Queue a request. Everything it points to is copied. Checks and tokenising happen here, on the
 * calling thread. Errors: REQUEST (names the field), LIMIT (the prompt is longer than the context:
 * both numbers), BUSY (the queue is full: found before any text is read), NOTFOUND (text without a
 * tokenizer), NOMEM, DEVICE (see sl_step). Threads: any. */
SL_API sl_status sl_submit(sl_engine *e, const sl_request *req, uint64_t *id,
                           sl_err *err) SL_MUST_USE;
/* End all samples of a request within the next two steps; their last events say CANCELLED. Unknown
 * ids are ignored. Threads: any. */
SL_API void sl_cancel(sl_engine *e, uint64_t id);
/* Requests that have not finished. Threads: any. */
SL_API int sl_pending(const sl_engine *e);
/* One step: admits requests, runs one ragged batch of prompt chunks and single tokens, samples, and
 * calls on_event. Does nothing when nothing is pending. A request that fails ends alone, by its
 * event. A step that the device can not compute ends the requests that were in it, with
 * FINISH_ERROR, and the engine goes on. DEVICE: the device is lost: every request ended with
 * FINISH_ERROR, DEVICE; from now on sl_submit and all that computes say the same, and only closing
 * the engine helps. */
SL_API sl_status sl_step(sl_engine *e, sl_err *err) SL_MUST_USE;

/* `by`, which another thread steps and which is closed after e, computes prompts for e that lack
 * from_tok tokens (0 = 64) or more, once before the first request; the same answers. Errors:
 * UNSUPPORTED: a fixed cache, a recording, e elsewhere; REQUEST: another model or forms; NOMEM. */
SL_API sl_status sl_prefill_by(sl_engine *e, sl_engine *by, int from_tok, sl_err *err) SL_MUST_USE;

/* Sleep until something was submitted or cancelled, sl_wake was called, or timeout_ms are over (-1
 * = no limit). Returns at once while requests are pending. A serving loop:
 * for (;;) { sl_wait(e, 1000); if (stop || sl_step(e, &err)) break; } */
SL_API void sl_wait(sl_engine *e, int timeout_ms);
/* End a sl_wait, or the next one. Threads: any. */
SL_API void sl_wake(sl_engine *e);
/* Run every shape of step once, so that no request pays for first touches, and learn what steps
 * cost. When nothing is pending only. Errors: BUSY (requests are pending), and what sl_step says of
 * steps. */
SL_API sl_status sl_warm(sl_engine *e, sl_err *err) SL_MUST_USE;
/* Forget the prefix cache at the beginning of the next step. Threads: any. */
SL_API void sl_drop_cache(sl_engine *e);

/* Counters since open, and the state after the last step. Samples count as requests here. */
typedef struct sl_stats {
    uint64_t n_step, n_prompt_tok, n_decode_tok;
    int n_running, n_waiting;
    int64_t kv_used_tok, kv_total_tok; /* used: by running requests; shared blocks count once */
    int64_t step_ns, prefill_ns, decode_ns; /* sums; a mixed step counts by its tokens */
    int64_t kv_cached_tok; /* held for reuse only; given up when the blocks are needed */
    int64_t window_total_tok, window_used_tok; /* the cache of layers with a window; 0 = none */
    int64_t kv_blk_tok;        /* tokens of a block */
    uint64_t n_submit, n_busy; /* accepted; refused because the queue was full */
    uint64_t n_finish[SL_N_FINISH]; /* ended, by sl_finish */
    uint64_t n_timeout, n_nan; /* of those with FINISH_ERROR: over their time, no number */
    uint64_t n_preempt; /* times a running request lost its blocks */
    uint64_t cache_query_tok, cache_hit_tok; /* of admitted prompts; of them from the cache */
    uint64_t n_evict;      /* cached blocks given up */
    uint64_t n_mixed_step; /* steps with prompt and answer tokens */
    int64_t last_step_ns, max_step_ns;
    int64_t plan_ns, sample_ns; /* sums: scheduling; choosing tokens and giving events */
    uint64_t n_mask;            /* grammar masks computed, and the time they took */
    int64_t mask_ns;
    uint64_t n_answer_tok; /* of answers; n_decode_tok counts those that were computed further */
    uint64_t n_step_failed; /* steps that the device could not compute */
    /* guesses: rows that had any; [j]: the guess j computed, computed after right ones, right */
    uint64_t n_draft_row, n_draft[SL_DRAFT_MAX], n_judged[SL_DRAFT_MAX], n_right[SL_DRAFT_MAX];
    int64_t draft_ns;      /* sum: making them */
    uint64_t n_draft_stop; /* times they were switched off because they did not pay */
    /* experts that change ranks: passes over all layers; times that ranks began to use others, how
     * many; times that a rank could not read one. After the last pass, of the fullest rank's load
     * over the mean, a mean of the layers, in 10^-6; 0 = not known */
    uint64_t n_spare; /* as of sl_engine_opts */
    uint64_t n_rebalance, n_placement, n_expert_moved, n_move_failed, rank_load_ppm;
    /* engines elsewhere: requests that went on when an engine came back; times that one did */
    uint64_t n_replay, n_restart;
    /* hot experts: terms of them and of others of their layers; weights that the CPU did not read
     * for it; times that they were chosen again and differed */
    uint64_t n_hot_hit, n_hot_miss, hot_saved_bytes, n_hot_update;
    /* steps whose experts were streamed, their tokens, bytes that came */
    uint64_t n_stream_step, n_stream_tok, stream_bytes;
    uint64_t n_reopen; /* times that a device was lost and opened again */
    /* sl_prefill_by: prompts that came whole, or not; bytes; time of pages, and after the prompt */
    uint64_t n_prefill_by, n_prefill_lost, kv_in_bytes, kv_in_ns, kv_wait_ns;
    uint64_t n_kv_out, kv_out_bytes; /* prompts and bytes given away */
} sl_stats;
/* Threads: any. */
SL_API void sl_stats_get(const sl_engine *e, sl_stats *out);

/* Of each rank (sl_engine_opts.layout), since open. */
typedef struct sl_rank_stat {
    int stage;            /* of the pipeline, from 0 on; rank 0 is in the last */
    int64_t weight_bytes; /* that it holds */
    uint64_t n_join;      /* times that columns of all ranks were put side by side */
    uint64_t join_bytes;  /* that it took from other ranks */
    double wait_ms, step_ms; /* for other ranks; of all steps */
    int n_running, n_waiting; /* requests, where ranks have their own (dp); else rank 0's */
    int64_t kv_used_tok, kv_total_tok; /* the same of its cache */
    int n_slot; /* of each layer that it has, where experts are spread: sl_slots; else 0 */
    uint64_t net_bytes; /* of join_bytes from ranks of other machines */
    double link_us, link_gbps; /* rank 0's, at open: a join of few values, of many; 0 = none */
    double near_pages; /* share of its pages on its own memory node, at open; -1 = not known */
} sl_rank_stat;
/* Up to n of them; returns the number of ranks. Nothing is written where there is one. Threads: the
 * engine's. */
SL_API int sl_ranks(const sl_engine *e, sl_rank_stat *out, int n);

/* Where sl_engine_info.rank is not 0: runs the steps that rank 0 tells, until it closes its engine.
 * Such an engine computes no requests of its own: steps, scores and warm-ups are refused. Errors:
 * those by which the ranks failed. Threads: the engine's. */
SL_API sl_status sl_follow(sl_engine *e, sl_err *err) SL_MUST_USE;

/* How often tokens were routed to each expert of a layer since open: up to n counts. Returns the
 * number of experts of that layer; 0 = dense, or no such layer; -1 = the device has lost them, or
 * its last step. Threads: the engine's. */
SL_API int sl_routed(const sl_engine *e, int layer, uint64_t *out, int n);

/* Which expert lies in each slot of a layer that a layout with ep has spread over *n_rank ranks (or
 * groups): up to n; rank 0's, then rank 1's and so on (sl_rank_stat.n_slot). Returns the number of
 * slots; 0 = not spread, a dense layer, an engine elsewhere. Threads: the engine's. */
SL_API int sl_slots(const sl_engine *e, int layer, int32_t *out, int n, int *n_rank);

/* Have experts change ranks until these have about equally much to do, by what was chosen since the
 * last time, layer by layer and while steps go on (sl_stats.n_placement). Answers stay the same.
 * Errors: REQUEST: no layout with ep, or no n_spare; those of an engine elsewhere. Threads: any. */
SL_API sl_status sl_rebalance(sl_engine *e, sl_err *err) SL_MUST_USE;

/* Logits of a token sequence from position 0, for evaluation and tests. on_rows is called with rows
 * [row0, row0 + n_row), rising, for all rows from first_row on; logits [n_row, V] f32 are borrowed
 * during the call; row i predicts token i + 1. It returns 1 to stop (CANCELLED). They are computed
 * as a prompt is; with n_defer, which prompts do not show, as generated tokens are. Uses free KV
 * blocks and leaves running requests alone. Errors: REQUEST (an id, or n over the context), BUSY
 * (no KV blocks), CANCELLED, and those of a step: DEVICE (see sl_step) or another that the next try
 * need not have. */
SL_API sl_status sl_score(sl_engine *e, const int32_t *ids, int n, int first_row,
                          int (*on_rows)(void *user, int row0, int n_row, const float *logits),
                          void *user, sl_err *err) SL_MUST_USE;
/* The same into one array: out [n - first_row, V] f32. Errors: as sl_score. */
SL_API sl_status sl_logits(sl_engine *e, const int32_t *ids, int n, int first_row, float *out,
                           sl_err *err) SL_MUST_USE;

/* ---- recordings: the steps of a run, to be computed again (docs/record.md) ---- */

/* Set in *opts what an engine must have been opened with to replay n bytes: acts, kv, n_ctx,
 * n_seq_max, n_chunk, kv_tokens, draft. Errors: FORMAT (names the byte), UNSUPPORTED (another
 * version). */
SL_API sl_status sl_record_opts(const void *p, size_t n, sl_engine_opts *opts,
                                sl_err *err) SL_MUST_USE;
typedef struct sl_replay_info {
    uint64_t n_step, n_tok, n_row; /* computed again; n_row: rows that were compared */
    uint64_t n_differ;             /* results that are not the same bits */
    uint64_t first_step;           /* of them the first: its step, from 1, */
    int first_row;                 /* and row of the step; -1 = another result than a row's */
    int64_t ns;                    /* time in steps */
    char isa[24], program[40];     /* what made the recording */
} sl_replay_info;
/* Compute the steps of a recording on an engine that ran no requests, and compare every result. A
 * recording that ends between a step and its result is fine: a program that crashed leaves such a
 * one. Errors: REQUEST (the recording is of another model or other options: names what differs),
 * FORMAT (names the byte), UNSUPPORTED, NOMEM, those of steps. Differences are not an error. */
SL_API sl_status sl_replay(sl_engine *e, const void *p, size_t n, sl_replay_info *out,
                           sl_err *err) SL_MUST_USE;

/* What this machine can do with this engine's threads, measured now for about ms milliseconds
 * each. */
typedef struct sl_probe_result {
    double read_gbps; /* reading memory, 1e9 bytes per second */
    double int8_gops; /* 8-bit products and sums, 1e9 per second */
} sl_probe_result;
SL_API void sl_probe(sl_engine *e, int ms, sl_probe_result *out);
/* Likewise products and sums of the floating-point type that attention is in (bf16 or f32), 1e9 per
 * second. */
SL_API double sl_probe_attn(sl_engine *e, int ms);

/* Where steps spend their time: one row per operator of the device, of what ran since the call
 * before (the first: zeros). Returns the number of rows, of which at most n are written. Operators
 * of a card are timed from a call with out until one without: that takes some time itself. */
typedef struct sl_op_stat {
    const char *name;
    uint64_t n_call;
    int64_t ns;
    double bytes; /* read: weights by matrix products (each matrix in use once per call), keys and
                     values by attention (each once per call and layer) */
    double ops;   /* products and sums of matrix products, and of attention on 8-bit codes */
    double flops; /* other products and sums of attention: queries by keys, weights by values */
} sl_op_stat;
SL_API int sl_op_stats(sl_engine *e, sl_op_stat *out, int n);

/* ---- engines elsewhere ---- */

/* What makes an engine of something that computes in another process (room gate: over a socket).
 * The calls are those of this header; those that are not here are refused by such an engine
 * (UNSUPPORTED), or do nothing. Errors: theirs. Threads: as said at the top. */
typedef struct sl_remote {
    void *user;
    /* q was checked, its prompt is ids. */
    sl_status (*submit)(void *user, const sl_request *q, uint64_t *id, sl_err *err);
    void (*cancel)(void *user, uint64_t id);
    int (*pending)(void *user);
    sl_status (*step)(void *user, sl_err *err);
    void (*wait)(void *user, int timeout_ms);
    void (*wake)(void *user);
    int (*ready)(void *user);
    void (*info)(void *user, sl_engine_info *out);
    void (*stats)(void *user, sl_stats *out);
    int (*devices)(void *user, sl_device_info *out, int n);
    int (*routed)(void *user, int layer, uint64_t *out, int n);
    void (*probe)(void *user, sl_probe_result *out);
    sl_status (*rebalance)(void *user, sl_err *err); /* NULL: refused */
    void (*close)(void *user);
} sl_remote;
/* r is copied. m is for the texts of prompts: vocab_only is enough. Errors: NOMEM. */
SL_API sl_status sl_engine_remote(const sl_model *m, const sl_remote *r, sl_engine **out,
                                  sl_err *err) SL_MUST_USE;
/* 1: a request that is submitted now is computed; 0: the device is lost, or the engine is elsewhere
 * and cannot be reached. Threads: any. */
SL_API int sl_ready(const sl_engine *e);

#ifdef __cplusplus
}
#endif
#endif
