/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of steps (docs/record.md): written by the engine while it runs, read and run again by
 * sl_replay. The reader trusts no byte. */
#ifndef ENGINE_RECORD_H
#define ENGINE_RECORD_H

#include "base/rd.h"
#include "base/status.h"
#include "engine/room.h"

#define RECORD_VERSION 6
#define RECORD_HEAD 132 /* bytes of the header */
#define RECORD_EXACT 4 /* in acts: sl_engine_opts.exact */
#define RECORD_SMALL 8 /* in acts: model_opts.small_heads */
#define RECORD_PASS_MAX 17 /* arch reads 16 MTP layers at most */
#define RECORD_ISA 24
#define RECORD_PROGRAM 28
enum { RECORD_STEP = 1, RECORD_RESULT = 2 };
enum { /* flags of a step */
       RECORD_HAS_KEEP = 1,
       RECORD_HAS_HIDDEN_ROW = 2,
       RECORD_HAS_ROW_WANT = 4,
       RECORD_HAS_DRAFT = 8
};

struct record_head {
    uint64_t model;   /* hash of what the model is */
    int32_t acts, kv; /* enum dev_acts, and RECORD_*; dev_kv_type */
    int32_t n_ctx, n_seq_max, n_chunk, blk_tok, n_vocab;
    int32_t n_blk[STEP_TABLES];                    /* 0 = the cache has no such group */
    int32_t n_pass;                                /* of a step: 1, and one of each MTP layer */
    int32_t n_draft_vocab;                         /* of model_opts */
    char isa[RECORD_ISA], program[RECORD_PROGRAM]; /* to say where it was made; NUL-terminated */
    int32_t n_defer;                               /* as in sl_engine_opts */
    int32_t combine;                               /* enum dev_combine */
};

/* What a step of an engine may be at most. */
struct record_limits {
    int n_tok, n_seq, n_row, n_copy, n_pass, n_ctx, blk_tok, n_vocab;
    int n_blk[DEV_KV_GROUPS]; /* 0 = the cache has no such group */
};

/* A step that was read, and the arrays it points into. */
struct record_step {
    struct dev_step s;
    struct step_room room;
    int32_t *hidden_row; /* [n_tok] */
};

struct record_result {
    sl_status status;
    int n_row;
    const uint8_t *row; /* [n_row] u64 hashes of what was wanted of each row; in place, unaligned */
    uint64_t hidden, finite;
};

/* One record as it grows; the buffer holds the longest. */
struct engine_record {
    uint8_t *p;
    size_t n, cap;
};

/* The longest record of a step, once n_ctx and the most of a step are known. */
size_t engine_record_most(const sl_engine *e);
/* What steps of an engine may be at most, once its cache's shape is known. */
struct record_limits engine_record_limits(const sl_engine *e);
/* What the model is: names and shapes of its tensors, its vectors, and the bytes of its weights as
 * they are said. A packed file says the same as its source. */
uint64_t engine_record_model(const sl_engine *e);
/* The record of a step into r. n_table: groups of the cache that have tables. */
void engine_record_put_step(struct engine_record *r, int n_table, const struct dev_step *s);

/* One record: kind, and its bytes as a reader of their own. r stands after it. Errors: FORMAT
 * (names the byte). */
sl_status engine_record_next(struct rd *r, uint32_t *kind, struct rd *body, uint64_t *at,
                             sl_err *err) BASE_MUST_USE;
/* Errors: FORMAT (no recording, damaged), UNSUPPORTED (another version). */
sl_status engine_record_read_head(struct rd *r, struct record_head *out, sl_err *err) BASE_MUST_USE;
/* Memory for steps within the limits. Errors: NOMEM. */
sl_status engine_record_step_init(struct record_step *s, const struct record_limits *max,
                                  sl_err *err) BASE_MUST_USE;
void engine_record_step_fini(struct record_step *s); /* a zeroed one is legal */
/* The body of a step that began at byte at. Errors: FORMAT (names the byte and what is wrong). */
sl_status engine_record_read_step(struct rd *body, uint64_t at, const struct record_limits *max,
                                  struct record_step *out, sl_err *err) BASE_MUST_USE;
sl_status engine_record_read_result(struct rd *body, uint64_t at, struct record_result *out,
                                    sl_err *err) BASE_MUST_USE;

#endif
