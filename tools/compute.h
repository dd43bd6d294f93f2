/* SPDX-License-Identifier: Apache-2.0 */
/* What run, chat, eval and bench share: opening model and engine from options, sampling options,
 * prompts from files, numbers as people read them. */
#ifndef TOOLS_COMPUTE_H
#define TOOLS_COMPUTE_H

#include "base/str.h"
#include "cmd.h"
#include "record.h"
#include "text/json.h"

struct compute {
    sl_model *m, *draft_m; /* draft_m: of --draft-model; NULL */
    sl_engine *e;
    sl_model_info mi;
    sl_engine_info ei;
    sl_grammar *grammar; /* NULL, or what answers must match: compute_constrain */
    struct cmd_progress progress;
    double load_ms;
    struct record *record; /* of --record; record_check at the end */
    struct expert_old *old; /* what --expert-stats held before; NULL = not read */
    double in_row[5]; /* distinct experts of 1 to 5 tokens in a row, for --expert-stats; 0 = not
                         counted */
};

/* Model and engine with progress lines. base: further engine options, or NULL; where it has draft,
 * o->draft may be "replay:RATE", where it has a layout that is taken unless o has one. On failure
 * everything is closed. */
sl_status compute_open(struct compute *c, const struct opt_common *o, const sl_engine_opts *base,
                       sl_err *err) BASE_MUST_USE;
/* The same, with a look at c->m and c->mi before the weights are read; where fn fails, opening
 * does. */
struct compute_look {
    sl_status (*fn)(const struct compute *c, void *user, sl_err *err);
    void *user;
};
sl_status compute_open_looking(struct compute *c, const struct opt_common *o,
                               const sl_engine_opts *base, const struct compute_look *look,
                               sl_err *err) BASE_MUST_USE;
/* What --model says, or of this machine --model-dir. Errors: REQUEST. */
sl_status compute_model_path(const struct opt_common *o, const char **out,
                             sl_err *err) BASE_MUST_USE;
/* That name as sl_model_open takes it, in buf where --mock is given. Errors: REQUEST. */
sl_status compute_model_name(const struct opt_common *o, char *buf, size_t n, const char **out,
                             sl_err *err) BASE_MUST_USE;
void compute_close(struct compute *c);
/* Is this one of several processes that share the model (--layout under mpirun)? And not rank 0?
 * Then compute_open computes what rank 0 tells, and ends the program with it. */
bool compute_apart(const struct opt_common *o);
bool compute_follows(const struct opt_common *o);

/* What the file of --expert-stats holds, where o's layout deals experts out by it: into eo; *mem
 * is to be freed when the engine is open. Errors: as experts_read; REQUEST: of another model. */
sl_status compute_expert_load(const struct opt_common *o, const sl_model *m, sl_engine_opts *eo,
                              void **mem, sl_err *err) BASE_MUST_USE;
/* What --draft-vocab-from says, into eo; *mem as above. Errors: as compute_read_text, sl_tokenize;
 * REQUEST: without --draft-vocab. */
sl_status compute_draft_vocab(const struct opt_common *o, const sl_model *m, sl_engine_opts *eo,
                              void **mem, sl_err *err) BASE_MUST_USE;
/* Any such file, as sl_engine_opts takes it; *mem as above. Errors: its. */
struct compute_load {
    const uint64_t **count;
    int *n;
};
sl_status compute_load_of(const char *path, const sl_model_info *mi, const struct compute_load *out,
                          void **mem, sl_err *err) BASE_MUST_USE;
/* --expert-stats of a model that has none: REQUEST, before anything is computed. */
sl_status compute_experts_check(const struct compute *c, const struct opt_common *o,
                                sl_err *err) BASE_MUST_USE;
/* The file of --expert-stats, where it is asked for, of all that has run so far; engine thread. */
sl_status compute_experts(struct compute *c, const struct opt_common *o,
                          sl_err *err) BASE_MUST_USE;
void compute_experts_close(struct compute *c);

/* Sampling, as options. */
struct sampling_opts {
    double temp, top_p, min_p, repeat, presence, frequency;
    int top_k;
};
// clang-format off
#define OPT_ROWS_SAMPLING(S)                                                                       \
    {"temp",    0,  OPT_REAL, offsetof(S, sampling.temp),                                          \
     "X", "0", 0, 100, "temperature (0: greedy)"},                                                 \
    {"top-k",   0,  OPT_INT,  offsetof(S, sampling.top_k),                                         \
     "N", "0", 0, 1 << 30, "keep the N best tokens (0: all)"},                                     \
    {"top-p",   0,  OPT_REAL, offsetof(S, sampling.top_p),                                         \
     "X", "1", 0, 1, "keep the best tokens of probability X"},                                     \
    {"min-p",   0,  OPT_REAL, offsetof(S, sampling.min_p),                                         \
     "X", "0", 0, 1, "drop tokens below X times the best"},                                        \
    {"repeat-penalty",    0, OPT_REAL, offsetof(S, sampling.repeat),                               \
     "X", "1", 0.01, 100, "for tokens seen before (1: off)"},                                      \
    {"presence-penalty",  0, OPT_REAL, offsetof(S, sampling.presence),                             \
     "X", "0", -100, 100, "for tokens in the answer"},                                             \
    {"frequency-penalty", 0, OPT_REAL, offsetof(S, sampling.frequency),                            \
     "X", "0", -100, 100, "times their number in the answer"}
// clang-format on
sl_sampling compute_sampling(const struct sampling_opts *s, uint64_t seed);

/* For qsort: doubles, rising. */
int compute_by_value(const void *a, const void *b);

/* A text file, or standard input when path is "-"; mem_free. Errors: as os_read_file, LIMIT over 1
 * GiB. */
sl_status compute_read(const char *path, char **text, uint64_t *n, sl_err *err) BASE_MUST_USE;
/* The same of a text that a person wrote: without a byte order mark in front. Errors: FORMAT where
 * that says UTF-16. */
sl_status compute_read_text(const char *path, char **text, uint64_t *n, sl_err *err) BASE_MUST_USE;

/* What answers must match: c->grammar of a file, a JSON schema or GBNF; both NULL: anything.
 * Errors: as compute_read, sl_grammar_compile. */
sl_status compute_constrain(struct compute *c, const char *schema, const char *grammar,
                            sl_err *err) BASE_MUST_USE;

/* Prompts, a JSON object a line: {"prompt": text}, {"messages": [...]} or {"ids": [...]}. text is
 * changed and, like the arena, must stay. path: for errors. Errors: FORMAT (names file and line),
 * NOMEM. */
struct compute_lines {
    const struct json **v;
    int n;
};
sl_status compute_lines(const char *path, char *text, uint64_t n, struct arena *arena,
                        struct compute_lines *out, sl_err *err) BASE_MUST_USE;
/* The ids of such a list. Errors: REQUEST, NOMEM. */
sl_status compute_line_ids(const struct json *list, struct arena *arena, int32_t **ids,
                           sl_err *err) BASE_MUST_USE;

/* The ids of such messages in m's chat template: *n of them, for sl_free. Errors: those of
 * sl_chat_render. */
sl_status compute_line_chat(const sl_model *m, const struct json *messages, int32_t **ids, int *n,
                            sl_err *err) BASE_MUST_USE;

/* What --draft says, or stands for where it is not given. */
const char *compute_draft_source(const struct opt_common *o);
/* What drafts did since the engine opened. */
struct compute_draft {
    uint64_t n_draft, n_right;  /* computed; of them right */
    double per_step;            /* tokens of a sequence in a step */
    double right[SL_DRAFT_MAX]; /* [n_pos] of those that came after right ones */
    int n_pos;
};
struct compute_draft compute_draft_get(const struct compute *c);
/* The same of counters: n_draft, n_right, n_answer_tok. */
struct compute_draft compute_draft_of(const sl_stats *s);
/* As a line on stderr; as member "draft" of an object. source: what --draft says. */
void compute_draft_line(const struct compute *c, const char *source);
void compute_draft_json(const struct compute_draft *d, const char *source, struct json_w *w);
/* The same of ranks (--layout); nothing where there is one. */
void compute_ranks_line(const struct compute *c);
void compute_ranks_json(const struct compute *c, const char *layout, struct json_w *w);

const char *
compute_finish_text(sl_finish f); /* "stop", "length", "stop_string", "cancelled", "error" */

/* Print a JSON text and a line end on stdout. */
sl_status compute_print(const struct str *s, sl_err *err) BASE_MUST_USE;

#endif
