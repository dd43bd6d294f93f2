/* SPDX-License-Identifier: Apache-2.0 */
/* What goes over the socket between an engine and a front: frames {u32 bytes of the body, u8 type,
 * u64 id} and a body, little-endian. Nothing that is read is trusted: a frame that says more than
 * it holds, or what cannot be, is FORMAT, and its connection is closed. */
#ifndef GATE_FRAME_H
#define GATE_FRAME_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/rd.h"
#include "base/str.h"
#include "sluice.h"

#define GATE_VERSION 3
#define GATE_HEAD 13
#define GATE_BODY_MAX ((uint32_t)128 << 20)
#define GATE_EVENT_MAX ((uint32_t)1 << 20) /* a body from the engine */
#define GATE_DEVICE_MAX 8
#define GATE_SAMPLE_BITS 7 /* of an id: the first sample that it is of */

/* X(name): an engine says HELLO, ACCEPT or FAIL to a SUBMIT, EVENTS, PAGE, STATS and ROUTED; a
 * front SUBMIT, RESUME, PREFILL, CANCEL and PLACE. */
#define GATE_TYPE_LIST(X)                                                                          \
    X(HELLO)                                                                                       \
    X(SUBMIT)                                                                                      \
    X(RESUME) /* of one sample of an answer, with the tokens that it has */                        \
    X(CANCEL)                                                                                      \
    X(ACCEPT)                                                                                      \
    X(FAIL)                                                                                        \
    X(EVENTS)                                                                                      \
    X(STATS)                                                                                       \
    X(ROUTED)                                                                                      \
    X(PLACE)   /* from a front: sl_rebalance */                                                    \
    X(PREFILL) /* as SUBMIT, with on_kv: events and pages come of it */                            \
    X(PAGE)    /* what is stored of a block in one layer */
enum gate_type {
    GATE_NONE,
#define X(name) GATE_##name,
    GATE_TYPE_LIST(X)
#undef X
        GATE_N_TYPE
};

struct gate_frame {
    enum gate_type type;
    uint64_t id; /* of the request; chosen by the front */
    struct rd body;
};

/* The frame at the front of n bytes. *used: its bytes, 0 = it is not whole yet. max: of a body.
 * Errors: FORMAT. */
sl_status gate_frame_next(const uint8_t *p, size_t n, uint32_t max, struct gate_frame *out,
                          size_t *used, sl_err *err) BASE_MUST_USE;
/* Begin a frame at the end of out, and set its length when its body is there: at: what begin
 * returned. */
size_t gate_frame_begin(struct str *out, enum gate_type type, uint64_t id);
void gate_frame_end(struct str *out, size_t at);

/* ---- HELLO ---- */

/* What an engine is: answers of two that are the same are the same bits. */
struct gate_print {
    char program[64], isa[24], acts[8], kv[8];
    uint64_t model, vocab;
    int32_t n_ctx;
};
/* NULL = the same; else what is not: "program", "model", ... */
const char *gate_print_differs(const struct gate_print *a, const struct gate_print *b);

struct gate_device {
    char name[64], parts[256];
    int64_t weight_bytes, kv_bytes;
};
struct gate_hello {
    struct gate_print print;
    char model[128]; /* its name, for people */
    sl_engine_info info; /* its texts are those of print */
    sl_probe_result probe;
    int n_device;
    struct gate_device device[GATE_DEVICE_MAX];
};
void gate_put_hello(struct str *out, const struct gate_hello *h);
/* Errors: FORMAT; UNSUPPORTED: another version of this. h must not be moved afterwards. */
sl_status gate_read_hello(struct rd *r, struct gate_hello *h, sl_err *err) BASE_MUST_USE;

/* ---- SUBMIT, RESUME, PREFILL ---- */

/* The part of a request that a RESUME has in common with its SUBMIT. */
void gate_put_request(struct str *out, const sl_request *q);
/* And the rest. */
struct gate_tail {
    int n, first;       /* samples */
    int64_t timeout_ms; /* what is left */
    const int32_t *given;
    int n_given;
    int kv_from;
};
void gate_put_tail(struct str *out, const struct gate_tail *t);
struct gate_grammar {
    bool any;
    sl_grammar_kind kind;
    const char *text; /* in place */
    size_t n;
};
/* Arrays and texts lie in the arena. Fields are checked by sl_submit. Errors: FORMAT, NOMEM. */
sl_status gate_read_request(struct rd *r, struct arena *a, sl_request *q, struct gate_grammar *g,
                            sl_err *err) BASE_MUST_USE;

/* ---- EVENTS, FAIL, PAGE, STATS, ROUTED ---- */

/* An event of the request that the frame names, texts and numbers included. */
void gate_put_event(struct str *out, const sl_event *ev);
/* Texts are in place, each followed by a NUL; numbers lie in scratch, which is emptied first.
 * Errors: FORMAT, NOMEM. */
sl_status gate_read_event(struct rd *r, struct arena *scratch, sl_event *ev,
                          sl_err *err) BASE_MUST_USE;
void gate_put_fail(struct str *out, const sl_err *why);
sl_status gate_read_fail(struct rd *r, sl_err *why, sl_err *err) BASE_MUST_USE; /* Errors: FORMAT */
void gate_put_page(struct str *out, const sl_kv_page *page);
/* Its bytes are in place. Errors: FORMAT. */
sl_status gate_read_page(struct rd *r, sl_kv_page *page, sl_err *err) BASE_MUST_USE;
struct gate_state {
    sl_stats stats;
    bool ready; /* it takes requests: its thread lives, it is not going down */
};
void gate_put_state(struct str *out, const struct gate_state *s);
sl_status gate_read_state(struct rd *r, struct gate_state *s,
                          sl_err *err) BASE_MUST_USE; /* Errors: FORMAT */
/* Counts of n_layer layers of n_expert experts each. */
void gate_put_routed(struct str *out, const uint64_t *count, int n_layer, int n_expert);
/* Errors: FORMAT: also where they are not so many. */
sl_status gate_read_routed(struct rd *r, uint64_t *count, int n_layer, int n_expert,
                           sl_err *err) BASE_MUST_USE;

#endif
