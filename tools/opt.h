/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options: one table per command gives parsing, --help, the man page, environment
 * variables and config-file keys.
 *
 * Strength: command line, then environment (SLUICE_NAME), then --config FILE, then the row's
 * default. */
#ifndef TOOLS_OPT_H
#define TOOLS_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "sluice.h"

/* X(kind, type of the member) */
#define OPT_KIND_LIST(X)                                                                           \
    X(FLAG, bool)                                                                                  \
    X(INT, int)                                                                                    \
    X(I64, int64_t)                                                                                \
    X(U64, uint64_t)                                                                               \
    X(REAL, double)                                                                                \
    X(STR, const char *)     /* where arg has words, "N|auto|replay:RATE", one of them */          \
    X(LAYOUT, const char *)  /* as dist_layout_parse has it, or "auto" */                          \
    X(STRS, struct opt_strs) /* may be given several times */                                      \
    X(ENUM, int)             /* index into arg's choices, "auto|int8|f32" */                       \
    X(INTS, struct opt_ints) /* "1,2,3" */

enum opt_kind {
#define X(name, type) OPT_##name,
    OPT_KIND_LIST(X)
#undef X
};

struct opt_strs {
    const char **v;
    int n, cap;
};
struct opt_ints {
    int32_t *v;
    int n;
};

/* One option. A table ends with a row whose name is NULL. */
struct opt {
    const char *name; /* long name without dashes */
    char letter;      /* 0 = none */
    enum opt_kind kind;
    size_t at;       /* offsetof its member in the command's struct */
    const char *arg; /* "N", "FILE"; ENUM: the choices; NULL for flags */
    const char *def; /* as text; NULL = zero */
    double min, max; /* of numbers, inclusive; both 0 = the type's */
    const char *help;
};

/* The options that many commands share. A command's struct has a member `common` of this type and
 * takes the rows it needs. */
struct opt_common {
    const char *model, *config, *expert_stats, *chat_template, *device, *record, *draft;
    const char *draft_model;
    const char *place, *experts_device, *split, *gpu_layers, *layout;
    struct opt_strs override_tensor, model_dir;
    double mem_fraction;
    const char *hot_experts, *hot_from, *stream_from;
    int hot_update, fallback;
    bool cpu_moe, exact, no_matrix_units;
    int n_cpu_moe, defer, chunk;
    const char *combine, *dispatch, *place_from;
    int micro;
    int threads, ctx, acts, kv, pack_cache, expert_half_life, draft_max, draft_vocab;
    const char *draft_vocab_from;
    int dist_deadline_ms, redundant, spare, place_mbps, rebalance_s;
    uint64_t seed;
    bool no_hugepages, quiet, verbose, json, mock;
    const char *mock_type;
};

#define OPT_THREADS_MAX 512 /* as par's team */

// clang-format off
#define OPT_ROWS_BASIC(S)                                                                          \
    {"config",  0,  OPT_STR,  offsetof(S, common.config),                                          \
     "FILE", NULL, 0, 0, "options from a JSON file {\"name\": value}"},                            \
    {"quiet",  'q', OPT_FLAG, offsetof(S, common.quiet),                                           \
     NULL, NULL, 0, 0, "no progress, no closing line"},                                            \
    {"verbose",'v', OPT_FLAG, offsetof(S, common.verbose),                                         \
     NULL, NULL, 0, 0, "explain what happens"},                                                    \
    {"json",    0,  OPT_FLAG, offsetof(S, common.json),    NULL, NULL, 0, 0, "stdout is JSON"}
#define OPT_ROWS_MODEL(S)                                                                          \
    {"model",  'm', OPT_STR,  offsetof(S, common.model),                                           \
     "MODEL", "demo", 0, 0, ".gguf file, Hugging Face folder, or a name"}
#define OPT_ROWS_COMPUTE(S)                                                                        \
    OPT_ROWS_MODEL(S),                                                                             \
    {"threads",'t', OPT_INT,  offsetof(S, common.threads),                                         \
     "N", "0", 0, OPT_THREADS_MAX, "worker threads (0: physical cores)"},                          \
    {"ctx",    'c', OPT_INT,  offsetof(S, common.ctx),                                             \
     "N", "0", 0, 1 << 24, "context in tokens (0: the model's)"},                                  \
    OPT_ROWS_ENGINE(S)
#define OPT_ROWS_MOCK(S)                                                                           \
    {"mock",    0,  OPT_FLAG, offsetof(S, common.mock), NULL, NULL, 0, 0,                          \
     "MODEL is a folder's config.json alone: random weights by name, the same on all ranks"},      \
    {"mock-type", 0, OPT_STR, offsetof(S, common.mock_type),                                       \
     "bf16|f16|f32|q8_0|q4_0|q4_1", NULL, 0, 0, "of them (bf16)"}
#define OPT_ROWS_TEMPLATE(S)                                                                       \
    {"chat-template", 0, OPT_STR, offsetof(S, common.chat_template),                               \
     "FILE", NULL, 0, 0, "a chat template (Jinja) instead of the model's"}
#define OPT_ROWS_EXPERTS(S)                                                                        \
    {"expert-stats", 0, OPT_STR, offsetof(S, common.expert_stats), "FILE",                         \
     NULL, 0, 0, "write which experts were chosen (inspect --experts shows it, plan reads it)"},   \
    {"expert-half-life", 0, OPT_INT, offsetof(S, common.expert_half_life), "N",                    \
     "0", 0, 1 << 30, "add to what FILE holds, which counts half after N tokens (0: replace it)"}, \
    {"redundant", 0, OPT_INT, offsetof(S, common.redundant), "N", "0", 0, 1 << 16,                 \
     "with --layout tp=T,ep=T: copies in each layer of the experts that FILE says are busiest"}
#define OPT_ROWS_MOVE(S)                                                                           \
    {"rebalance", 0, OPT_INT, offsetof(S, common.rebalance_s), "S", "0", 0, 86400,                 \
     "with ep: experts change ranks every S seconds, as they are chosen (0: when asked to)"},      \
    {"spare",   0,  OPT_INT,  offsetof(S, common.spare), "N", "0", 0, 16,                          \
     "with ep: room for N experts on each rank, to move them while serving (--rebalance: 2)"},     \
    {"place-mbps", 0, OPT_INT, offsetof(S, common.place_mbps), "N", "200", 1, 1 << 20,             \
     "how fast a rank reads experts that move, in 10^6 bytes a second"},                           \
    {"place-from", 0, OPT_STR, offsetof(S, common.place_from), "disk|peer", NULL, 0, 0,            \
     "where they come from: its own disk, or the memory of a rank that has them (disk)"}
#define OPT_ROWS_DRAFT(S)                                                                          \
    {"draft",   0,  OPT_STR,  offsetof(S, common.draft), "off|auto|ngram|mtp|model", NULL, 0, 0,   \
     "guess tokens ahead, compute them together: the same answers, sooner"},                       \
    {"draft-max", 0, OPT_INT, offsetof(S, common.draft_max), "N", "0", 0, SL_DRAFT_MAX,            \
     "guesses for one sequence in a step at most (0: chosen)"},                                    \
    OPT_ROWS_DRAFTER(S)
#define OPT_ROWS_DRAFTER(S)                                                                        \
    {"draft-model", 0, OPT_STR, offsetof(S, common.draft_model), "MODEL", NULL, 0, 0,              \
     "a small model with the same tokens that guesses (--draft auto)"},                            \
    {"draft-vocab", 0, OPT_INT, offsetof(S, common.draft_vocab), "N", NULL, 1, 1 << 24,            \
     "guesses of the MTP layer among the N first tokens of the vocabulary only (all)"},            \
    {"draft-vocab-from", 0, OPT_STR, offsetof(S, common.draft_vocab_from), "FILE", NULL, 0, 0,     \
     "... among the N that are most frequent in a text"}
#define OPT_ROWS_LAYOUT(S)                                                                         \
    {"layout",  0,  OPT_LAYOUT, offsetof(S, common.layout), "tp=N,dp=N,ep=N,pp=N", NULL, 0, 0,     \
     "share the model among ranks, of this process or of mpirun: its matrices (tp), experts as "   \
     "wholes (ep, as tp) or by groups (a smaller ep), its layers (pp); or experts and sequences "  \
     "(dp, ep); weight=3:2:1 for ranks that are not alike: same answers (one rank; of several "    \
     "memory nodes tp, a rank on each)"},                                                          \
    {"model-dir", 0, OPT_STRS, offsetof(S, common.model_dir), "HOST=PATH", NULL, 0, 0,             \
     "with processes: where MODEL lies on a machine that has it elsewhere (may be repeated)"},     \
    {"dist-deadline-ms", 0, OPT_INT, offsetof(S, common.dist_deadline_ms), "N", "0", 0, 3600000,   \
     "how long a rank may be silent in a step (0: 30 s; 20 steps at least)"}
#define OPT_ROWS_RECORD(S)                                                                         \
    {"record",  0,  OPT_STR,  offsetof(S, common.record),  "FILE", NULL, 0, 0,                     \
     "write every step, for bench --replay (holds all tokens)"}
#define OPT_ROWS_PLACE(S)                                                                          \
    {"device",  0,  OPT_STR,  offsetof(S, common.device),  "NAME[,NAME]", NULL, 0, 0,              \
     "what computes, as doctor lists it (SL_DEVICE, or the CPU); several share layers"},           \
    {"split",   0,  OPT_STR,  offsetof(S, common.split),   "A,B", NULL, 0, 0,                      \
     "by which weights several devices share the layers' blocks (1,1)"},                           \
    {"gpu-layers", 0, OPT_STR, offsetof(S, common.gpu_layers), "N|auto|all", NULL, 0, 0,           \
     "0: all on the CPU; more than there are: all on --device (auto); -ngl is the same"},          \
    {"mem-fraction", 0, OPT_REAL, offsetof(S, common.mem_fraction), "F", "1", 0.05, 1,             \
     "of the memory that is free on a device use so much at most"},                                \
    {"place",   0,  OPT_STR,  offsetof(S, common.place),   "PART=NAME;...", NULL, 0, 0,            \
     "parts on other devices, as in \"experts@0-15=cpu; head=check\" (SL_PLACE)"},                 \
    {"experts-device", 0, OPT_STR, offsetof(S, common.experts_device), "NAME", NULL, 0, 0,         \
     "short for --place experts=NAME, before what --place says"},                                  \
    {"cpu-moe", 0, OPT_FLAG, offsetof(S, common.cpu_moe), NULL, NULL, 0, 0,                        \
     "the same as --experts-device cpu"},                                                          \
    {"n-cpu-moe", 0, OPT_INT, offsetof(S, common.n_cpu_moe), "N", "0", 0, 1 << 20,                 \
     "the same for the experts of the first N layers, or of all"},                                 \
    {"override-tensor", 0, OPT_STRS, offsetof(S, common.override_tensor), "REGEX=DEVICE,...",      \
     NULL, 0, 0, "--place re:REGEX=DEVICE, of which the first that matches counts; -ot"},          \
    {"hot-experts", 0, OPT_STR, offsetof(S, common.hot_experts), "N|auto", NULL, 0, 0,             \
     "of experts on the CPU beside a device N in each layer lie on that device too"},              \
    {"hot-from", 0, OPT_STR, offsetof(S, common.hot_from), "FILE", NULL, 0, 0,                     \
     "those that FILE of --expert-stats says are busiest"},                                        \
    {"stream-from", 0, OPT_STR, offsetof(S, common.stream_from), "N|auto|off", NULL, 0, 0,         \
     "in steps of N tokens experts on the CPU are sent through the device beside it"}
#define OPT_ROW_UNITS(S)                                                                           \
    {"no-matrix-units", 0, OPT_FLAG, offsetof(S, common.no_matrix_units), NULL, NULL, 0, 0,        \
     "cards multiply without their matrix units: the same bits"}
#define OPT_ROWS_ENGINE(S)                                                                         \
    {"acts",    0,  OPT_ENUM, offsetof(S, common.acts),                                            \
     "auto|int8|bf16|f32", "auto", 0, 0, "activation precision (f32: reference mode)"},            \
    {"kv",      0,  OPT_ENUM, offsetof(S, common.kv),                                              \
     "auto|f16|bf16|q8|f32", "auto", 0, 0, "KV cache type"},                                       \
    {"seed",    0,  OPT_U64,  offsetof(S, common.seed),                                            \
     "N", "0", 0, 0, "of the random numbers"},                                                     \
    {"no-hugepages", 0, OPT_FLAG, offsetof(S, common.no_hugepages),                                \
     NULL, NULL, 0, 0, "do not ask for huge pages"},                                               \
    OPT_ROWS_PLACE(S),                                                                             \
    {"defer",   0,  OPT_INT,  offsetof(S, common.defer),   "N", "0", 0, 1024,                      \
     "N experts of a token are added a layer later: other answers, sooner (docs/devices.md)"},     \
    {"chunk",   0,  OPT_INT,  offsetof(S, common.chunk),   "N", "0", 0, 8192,                      \
     "prompt tokens of a step at most (0: 512, with --stream-from 2048)"},                         \
    {"exact",   0,  OPT_FLAG, offsetof(S, common.exact), NULL, NULL, 0, 0,                         \
     "the same bits on every device and CPU (docs/devices.md)"},                                   \
    OPT_ROW_UNITS(S),                                                                              \
    {"fallback", 0, OPT_ENUM, offsetof(S, common.fallback), "none|cpu", "none", 0, 0,              \
     "what computes everything where a device can not be opened"},                                 \
    {"hot-update", 0, OPT_INT, offsetof(S, common.hot_update), "N", "0", 0, 1 << 30,               \
     "when idle choose them again by the last N tokens or more (0: never)"},                       \
    {"combine", 0,  OPT_STR,  offsetof(S, common.combine), "f32|bf16|q8", NULL, 0, 0,              \
     "each expert's output in that form: other answers, less between ranks"},                      \
    {"dispatch", 0, OPT_STR,  offsetof(S, common.dispatch), "auto|gather|swap", NULL, 0, 0,       \
     "rows to experts of --layout dp: gather is all to all"},                                      \
    {"micro",   0,  OPT_INT,  offsetof(S, common.micro), "1|2", "1", 1, 2,                         \
     "2: with --layout dp a step is cut in two, one half computes while rows of the other travel"},\
    {"pack-cache", 0, OPT_ENUM, offsetof(S, common.pack_cache),                                    \
     "off|beside|cache|ignore", "off", 0, 0, "keep the packed weights for later starts"},          \
    OPT_ROWS_BASIC(S)
// clang-format on

/* What stands on the command line besides options. */
struct opt_rest {
    char **v; /* [n] */
    int n;
    bool help;         /* -h or --help is there, and nothing else was checked */
    const bool *given; /* [rows] on the command line or in the config file; in the arena */
};

/* An option that says nothing without another. Tables end with a row whose name is NULL. */
struct opt_pair {
    const char *name, *with; /* with: or one of several, "a|b" */
};

/* Fill dst (opts' struct, zeroed) from defaults, config file, environment and argv, up to its NULL.
 * Texts live in the arena or in argv. Errors: REQUEST for wrong usage: one line that names the
 * option and the nearest valid one; else what reading the config file gives. */
sl_status opt_parse(const struct opt *opts, char **argv, void *dst, struct arena *a,
                    struct opt_rest *rest, sl_err *err) BASE_MUST_USE;

/* Is an option given (not by the environment, which is for all commands) whose companions are not?
 * pairs: those of the command, or NULL; those of rows that commands share are known here. Errors:
 * REQUEST: one line that names both. */
sl_status opt_pairs_check(const struct opt *opts, const struct opt_pair *pairs, const void *dst,
                          const struct opt_rest *rest, sl_err *err) BASE_MUST_USE;

/* Is the option of that name as if nobody had given it? dst: as opt_parse has filled it. */
bool opt_is_default(const struct opt *opts, const char *name, const void *dst);

/* The i-th choice of an ENUM row's arg in buf. */
const char *opt_choice(const struct opt *o, int i, char *buf, size_t n);

/* "1,2,3" to integers in the arena. what: named in the error. */
sl_status opt_ints_parse(const char *what, const char *text, struct arena *a, struct opt_ints *out,
                         sl_err *err) BASE_MUST_USE;

#endif
