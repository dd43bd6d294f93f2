/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the model and engine objects, requests, the sampler, stop
 * strings. */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/ring.h"
#include "base/str.h"
#include "dev/dev.h"
#include "engine/beside.h"
#include "engine/cache.h"
#include "engine/find.h"
#include "engine/room.h"
#include "grammar/grammar.h"
#include "io/io.h"
#include "kv/kv.h"
#include "model/model.h"
#include "os/os.h"
#include "sched/sched.h"
#include "spec/spec.h"
#include "text/tmpl.h"
#include "tok/tok.h"

#define ENGINE_STOP_MAX 16     /* stop strings */
#define ENGINE_STOP_BYTES 1024 /* of one */
#define ENGINE_STOP_IDS 64
#define ENGINE_TOP_MAX 20 /* alternatives with log probabilities */
#define ENGINE_BIAS_MAX 4096
#define ENGINE_SAMPLE_MAX 128 /* samples of one prompt */
#define ENGINE_OWNER_PLACES 256
#define ENGINE_SLOT_BITS 21 /* of a request's id: the slot of its first sample */

struct sl_model {
    /* fixed after open */
    io_model *io;
    io_pack *pack; /* NULL, or a packed file of io that was found */
    sl_pack_cache pack_cache;
    void (*edit)(struct arch_cfg *c); /* tests: of model_opts; they edit cfg as well. NULL */
    tok *tok;                         /* NULL = none; tok_err says why */
    sl_err tok_err;
    struct engine_tmpl {
        text_tmpl *t; /* NULL = none; then why says more where there is more to say */
        char *text;   /* its source */
        sl_err why;
    } tmpl[2]; /* [1]: with tools; its t is NULL where it is the same as [0] */
    struct arena arena;
    struct arch_cfg cfg;
    bool has_cfg;
    char *name;
    int64_t params, active_params, bytes;
    int32_t *hole; /* ids that have no bytes, or that files ban: never sampled */
    int n_hole;
    int32_t *eog; /* ids that end a generation */
    int n_eog;
    int max_piece; /* longest token in bytes */
    uint64_t vocab_hash;
    /* any thread: made by the first sl_grammar_compile */
    _Atomic(grammar_vocab *) gvocab;
};

/* The template for a conversation with or without tools; NULL = none. */
static inline const struct engine_tmpl *engine_tmpl_for(const sl_model *m, bool tools)
{
    return tools && m->tmpl[1].t ? &m->tmpl[1] : &m->tmpl[0];
}

/* ---- sample.c: choosing a token. Pure; scratch is the caller's ---- */
struct engine_cand {
    float v;
    int32_t id;
};
struct engine_sampler {
    int n_vocab;
    float *work;              /* [V] */
    struct engine_cand *cand; /* [V] */
    int32_t *count;           /* [V], all zero between calls */
    float *all;               /* NULL, or [V] logits of some ids, of no other one (passes.c) */
};
sl_status engine_sampler_init(struct engine_sampler *s, int n_vocab, sl_err *err) BASE_MUST_USE;
void engine_sampler_fini(struct engine_sampler *s);

struct engine_draw {
    const float *logit;   /* [V]; NULL where best alone decides: nothing is drawn or forbidden */
    const int *best;      /* NULL, or what dev_best says of them */
    const sl_sampling *p; /* checked */
    const int32_t *known; /* prompt and answer so far */
    int n_prompt, n_known;
    const uint32_t *mask;     /* [V / 32] bits of the ids that can be chosen; NULL = all */
    const int32_t *forbid[3]; /* lists of ids that can not be chosen */
    int n_forbid[3];
    uint64_t stream, index; /* of the sample; of the token in the answer; both below 2^32 */
    double *likely; /* NULL, or out: how likely the likeliest id is before filters; 1: greedy */
};
/* Choose a token: bias, penalties, temperature, then min_p, top_k, top_p over what is left, and a
 * draw with the noise of (seed, stream, index). Greedy takes the largest logit, the lowest id of
 * equals. Errors: INTERNAL when a logit is not a number or nothing can be chosen. Cost: O(V), no
 * allocation. */
sl_status engine_sample(struct engine_sampler *s, const struct engine_draw *d, int32_t *token,
                        sl_err *err) BASE_MUST_USE;
/* Log probabilities of the distribution that the logits give by themselves: of token, and the n_top
 * best, best first (equals: lower id first). Impossible ones are given as -9999. n_top <=
 * ENGINE_TOP_MAX. */
void engine_logprobs(const float *logit, int n_vocab, int32_t token, int n_top, float *logprob,
                     sl_logprob *top);

/* race.c: one draw, with the noise of (d->p->seed, d->stream, d->index, id). Among ids of weights
 * e^z[id], none over 1 and that of first 1; and among n > 0 candidates of weights e^v, whose order
 * does not matter. */
int32_t engine_race_all(const float *z, int n, int32_t first, const struct engine_draw *d);
int32_t engine_race(const struct engine_cand *c, int n, const struct engine_draw *d);

/* ---- stop.c: text on its way out ---- */
/* Holds back what could become a stop string. The first occurrence that is complete ends the text,
 * whatever the pieces in which the bytes came; of several that end at the same byte the longest. */
struct engine_stop {
    int n;
    const char *s[ENGINE_STOP_MAX];
    int len[ENGINE_STOP_MAX];
    struct str held; /* bytes not given out yet */
    size_t n_seen;   /* of held, searched before */
    int which;       /* of s: the one that was found; -1 = none yet */
};
/* Append bytes to held, then call this: *n_out bytes of held may be given out. True: a stop string
 * follows them. */
bool engine_stop_scan(struct engine_stop *s, size_t *n_out);
void engine_stop_drop(struct engine_stop *s, size_t n);

/* ---- grammar.c: the seam to room grammar ---- */
struct engine_grammar_state; /* of one sample; made on the submitting thread, then the engine's */
sl_status engine_grammar_open(sl_grammar *g, struct engine_grammar_state **out,
                              sl_err *err) BASE_MUST_USE;
void engine_grammar_close(struct engine_grammar_state *s); /* NULL is legal */
/* Bit t of bits[(V + 31) / 32]: token t may come next. Errors: LIMIT (the grammar is too ambiguous
 * at this place: the request ends with it), NOMEM. */
sl_status engine_grammar_mask(struct engine_grammar_state *s, uint32_t *bits,
                              sl_err *err) BASE_MUST_USE;
/* *done: the answer is complete, nothing but an end of sequence could follow. Errors: INTERNAL (the
 * token does not fit), LIMIT, NOMEM. */
sl_status engine_grammar_push(struct engine_grammar_state *s, int32_t token, bool *done,
                              sl_err *err) BASE_MUST_USE;

/* How many of up to n_max tokens after the state are certain: the grammar allows no other. Into
 * out. bits: scratch of a mask. */
int engine_grammar_forced(struct engine_grammar_state *s, uint32_t *bits, int n_vocab, int n_max,
                          int32_t *out);
/* After the n tokens in out, those that the text which the grammar forces then is usually made of;
 * how many there are now. */
int engine_grammar_literal(struct engine_grammar_state *s, const tok *t, struct tok_ids *scratch,
                           int n, int n_max, int32_t *out);
/* How many of n tokens the grammar allows one after the other. */
int engine_grammar_fits(struct engine_grammar_state *s, const int32_t *id, int n);

/* ---- requests ---- */
/* What the samples of one request share. It is freed with the last of them. */
struct group {
    /* fixed after submit */
    uint64_t id;
    struct arena arena;
    int n, n_prompt, max_new, min_new;
    int first, n_given; /* as in sl_request */
    int (*on_kv)(void *user, const sl_kv_page *page); /* NULL: nothing is given away */
    int kv_from;
    bool ignore_eos, no_cache, echo, progress;
    int keep_special;
    int embed; /* 0, 1 = mean, 2 = last */
    int n_top; /* -1 = no log probabilities */
    int priority;
    uint64_t owner, salt;
    sl_sampling sampling;
    const int32_t *stop_id;
    int n_stop_id;
    sl_grammar *grammar;
    const int32_t *draft_id;
    int n_draft_id;
    int n_draft; /* as in sl_request */
    void (*on_event)(void *user, const sl_event *ev);
    void *user;
    int64_t t_submit_ns, deadline_ns; /* 0 = none */
    struct request **r;               /* [n] NULL when over */
    /* engine thread */
    int n_left;
};

/* How far a request's pages were given away: blocks before blk0 in all layers, those before blk1
 * in the layers before layer, and of that layer the blocks before blk. */
struct engine_given {
    int blk0, blk1, layer, blk;
};

/* One sample: a sequence. */
struct request {
    /* fixed after submit */
    struct group *g;
    int index, slot, n_prompt; /* slot: of the scheduler; taken at submit */
    /* engine thread */
    int home;     /* whose scheduler and cache has it */
    int32_t *ids; /* [cap] prompt and answer; after them the drafts of the step under way */
    int n_ids, cap;
    int n_cached, n_echo; /* n_echo: prompt tokens that were told */
    double *pool;         /* [D] embed: sum of hidden states */
    int64_t t_admit_ns, t_first_ns;
    struct tok_stream stream;
    struct engine_stop stop;
    struct engine_grammar_state *grammar;
    bool has_spec; /* guesses are made for it: */
    struct spec_seq spec;
    int n_draft, n_right, n_text_draft, n_text_right; /* as in sl_event */
    int mtp_from, mtp_done; /* the MTP layer's entries [from, done) are stored; done -1: none are */
    int mtp_like; /* just forked: 1 + the slot of the sample whose entries it shares; 0 = not */
    /* the small model: its entries [0, done) are stored, and those of its guesses before end; blk:
     * 1 + the block of the last of them, 0 = only blocks that are full count; at: the position
     * after those that were computed when it ran; wants: it gets a guess now */
    int small_done, small_end, small_blk, small_at;
    bool small_wants;
    /* of a small model with states: that of the seat is r's where it was last admitted as start, at
     * position state, and can go on there and after up to back drafts */
    uint64_t small_start;
    int small_state, small_back;
    struct engine_given give; /* with on_kv */
    struct away_call *away;   /* what comes of it from another engine; NULL = nothing */
    bool stays;               /* it is computed here, for it could not be elsewhere */
};

/* Speculation. */
struct engine_spec {
    /* fixed after open */
    const char *name; /* what opts.draft says, or stands for */
    bool on, ngram, replay;
    double right; /* of replay */
    int n_max;    /* drafts of one sequence */
    /* engine thread */
    struct spec_plan plan;
    struct spec_taught taught;
    struct spec_want *want; /* [n_seq_max] */
    int *slot;              /* [n_seq_max] */
    struct tok_ids literal; /* scratch */
};

/* Where the model's parts lie. */
struct engine_place {
    struct model_place p;
    struct arena arena;           /* of its texts and tables */
    char *parts[MODEL_DEV_MAX];   /* what lies on each, for people */
    sl_device_info told[MODEL_DEV_MAX]; /* what sl_engine_devices says */
    struct dev_opts opts;         /* by which they are opened */
    bool fell_back;
    int64_t bytes[MODEL_DEV_MAX]; /* of the source that goes there */
};

/* What the MTP layer makes of one item of a step. */
struct engine_mtp_item {
    bool in;        /* the layer runs over it */
    int n_known;    /* of its tokens, those whose next token was known before the draws */
    int from, done; /* its request's chain, before and after */
};

/* The MTP layer, as the drafter. */
struct engine_mtp {
    bool on, must; /* must: or the engine does not open */
    bool small;    /* its head: model_opts.small_heads */
    int32_t *next; /* [n_tok_max] tokens after those of the step, where they were known before */
    struct engine_mtp_item *item; /* [n_seq_max] of the plan */
    enum dev_kv_kind group; /* of the cache, that has the layer's entries */
    int32_t *from; /* [n_blk] of blocks of it that have all entries: where their chain begins; else
                      -1 */
    int32_t *ids;  /* NULL, or [opts.draft_vocab] rising: what the rows of its logits stand for */
};

/* A small model, as the drafter. */
struct engine_small {
    bool on;
    model *net;
    dev_kv *kv; /* blocks of the same numbers, and after them one of each seat */
    bool has_state;
    bool *full; /* [n_blk] all entries of the block are stored */
    int64_t ns; /* that it ran for the step to come */
};

/* A row of a pass of the drafter. */
struct engine_drafter_row {
    struct request *r;
    int seq;   /* in the pass */
    int end;   /* positions before it have a place; as the pass counts them */
    int guess, n_offer; /* -1 = none; guesses in a row so far */
};
struct engine_drafter {
    int32_t *ids, *pos, *hidden_row, *row_tok, *n_after; /* [n_tok_max] of the pass */
    struct engine_drafter_row *row;                      /* [n_seq_max] */
    const int32_t **after; /* [n_seq_max] the n_after tokens that are known after those of it */
};
/* What is in the arrays for a pass. */
struct engine_pass {
    int tok, seq, row;
};

/* A step from its plan until it is computed, and its room: of a lane, of which there are several
 * where stages compute at the same time (lanes.c). */
struct engine_lane {
    /* fixed after open */
    struct step_room room;
    struct sched_item *item; /* [n_seq_max] of plan */
    int32_t *item_row;       /* [n_seq_max] first wanted row of each */
    struct sched_copy *copy; /* [MODEL_COPIES n_seq_max] of plan */
    /* engine thread */
    struct sched_plan plan; /* of all homes; req -1: of a request that is not there any more */
    struct sched_planned planned;
    struct dev_step step;
    sl_step_record rec;
    bool drafted; /* passes says how long that took */
    struct spec_passes passes;
    bool under_way; /* since t_told; never where there is one lane */
    int64_t t_told;
};

struct engine_ranks;
struct engine_rebalance;
struct engine_away;
struct away_call;

/* Who has sequences: each of several ranks has some of its own, in its own cache. What is planned
 * for all of them is one step, in which the sequences of a home follow those of the one before.
 * Blocks of a home are numbered from 0; in a step, those of all homes, one after another. */
struct engine_home {
    struct kv_pool *pool;
    struct sched *sched;
    struct kv_pool own_pool; /* of those after the first */
    struct sched own_sched;
};

struct sl_engine {
    /* fixed after open */
    sl_model *m;
    struct engine_ranks *ranks; /* NULL: this process computes alone */
    struct engine_rebalance *rebalance; /* NULL: no experts move */
    dev *d;                     /* of attention and the cache */
    struct engine_place place;
    struct engine_hot hot;
    struct engine_stream stream;
    struct engine_counts counts;
    model *net;
    io_pack *pack; /* NULL, or the packed file that this engine made */
    dev_kv *kv;
    struct dev_kv_shape kv_shape;
    struct sl_engine_opts opts;
    struct sl_engine_info info;
    char isa[96]; /* of info: the device may be closed and opened again */
    uint64_t record_model; /* engine_record_model */
    uint64_t files_hash; /* by samples; a packed file has its source's. 0 = the model has none */
    int n_ctx, n_vocab, n_tok_max, n_logit_max, n_seq_max, n_req_max;
    int n_home, n_seat;       /* homes; sequences of each */
    int n_chunk, n_row;       /* prompt tokens and rows of logits of each in a step */
    struct engine_home *home; /* [n_home] */
    enum dev_combine combine; /* of opts */
    char layout[16]; /* in place of "auto" */
    int form_from;      /* model_form_from */
    int64_t keep_bytes; /* of model_opts */
    /* engine thread */
    struct kv_pool pool; /* of the first home, and its scheduler */
    struct sched sched;
    struct engine_lane *lane; /* [n_lane] */
    int n_lane, at_lane;      /* whose room is the engine's now */
    int64_t t_landed;         /* of several: when one's step was computed last */
    bool cold;                /* warm-up: a step that pays for first touches moves no deadline */
    struct request **req; /* [n_req_max] by slot */
    struct kv_seq score;  /* of sl_score */
    struct engine_sampler *sampler; /* [n_sampler] a worker's each; [0] the engine thread's */
    int n_sampler;
    struct engine_pick *pick; /* [n_logit_max] by row from which a token is wanted */
    int n_pick;
    int32_t *item_pick; /* [n_seq_max] first pick of each row of the plan; -1 = none */
    struct engine_spec spec;
    struct engine_drafter drafter;
    struct engine_mtp mtp;
    struct engine_small small;
    struct engine_away *away; /* NULL: all prompts are computed here */
    struct engine_giving {
        int n;                          /* requests with on_kv */
        const struct sched_plan *plan;  /* of the step under way; NULL = none */
        uint8_t *page;                  /* room for one */
    } giving;
    sl_logprob top[ENGINE_TOP_MAX];
    float *row;     /* [D] an embedding */
    uint32_t *mask; /* [V / 32] */
    struct request *forked[ENGINE_SAMPLE_MAX];
    struct sl_stats stats;
    /* any thread */
    struct ring free_slot; /* one per sample that may exist: a request that has one is admitted to
                              the queue */
    atomic_int n_taken, taken_by[ENGINE_OWNER_PLACES]; /* slots; by owner, several may share one */
    atomic_int n_owner, n_owner_live;                  /* ever seen; those that have requests */
    struct ring inbox;        /* groups on their way to the engine thread */
    _Atomic uint64_t *cancel; /* [n_req_max] by a group's first slot: the id to cancel */
    atomic_int any_cancel, drop_cache, n_pending, closing;
    atomic_int lost; /* 1: the device is lost, lost_err says how; set once */
    sl_err lost_err;
    atomic_int signalled; /* the event is set and not yet waited for */
    _Atomic uint64_t n_id, n_submit, n_busy;
    struct os_event event;
    struct ring_snap snap; /* of stats */
    /* engine thread */
    void (*tap)(void *user, const struct request *r,
                const float *logit); /* tests: sees each row before its token is chosen; NULL */
    void *tap_user;
    /* tests: makes the guesses for r in place of everything else: up to n_max into out; NULL */
    int (*guess)(void *user, const struct request *r, int n_max, int32_t *out);
    void *guess_user;
    /* tests: what the step's launch (wait false) and its end (wait true) say instead of OK; NULL */
    sl_status (*fault)(void *user, bool wait, sl_err *err);
    void *fault_user;
    struct engine_record *record; /* NULL: steps are not recorded */
    sl_remote *remote; /* fixed: NULL, or what computes; then only m and n_vocab are set */
    /* the step's batch: of the lane whose turn it is */
    struct step_room *room;
    int32_t *item_row;
    int ld_blk; /* blocks of n_ctx tokens: the width of tables */
};

/* check.c */
sl_status engine_check_request(const sl_engine *e, const sl_request *q, sl_err *err) BASE_MUST_USE;
/* NOTFOUND: there is no tokenizer; says why. */
sl_status engine_need_tok(const sl_model *m, sl_err *err) BASE_MUST_USE;
/* text.c: how far a prompt that is longer than the context is still counted, as of tok_ids.max; and
 * LIMIT, which says of how many tokens it is, or (more) of more than how many. */
int engine_count_max(int n_ctx);
sl_status engine_too_long(int n_ctx, int n, bool more, sl_err *err) BASE_MUST_USE;
sl_status engine_check_ids(const sl_engine *e, const char *name, const int32_t *ids, int n,
                           sl_err *err) BASE_MUST_USE;

/* engine.c: the type of the cache. */
enum dev_kv_type engine_kv_type(const sl_engine *e);
const char *engine_combine_name(enum dev_combine form); /* as opts.combine has it */
/* cache.c: the homes' pools as e->kv_shape says. */
sl_status engine_cache_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
/* The blocks of a home's sequence into the step's tables. */
void engine_cache_table(sl_engine *e, int row, int home, const struct kv_seq *seq);
/* The table of sequence i of the step, [ld_blk]. */
static inline int32_t *engine_table(const sl_engine *e, int group, int i)
{
    return e->room->blk[group] + (int64_t)i * e->ld_blk;
}
/* What the tables of sequence `from` have from block j0 on becomes those of sequence `to`. */
void engine_cache_move(sl_engine *e, int from, int j0, int to);
/* The number in steps of a home's first block of a group. */
static inline int32_t engine_blk0(const sl_engine *e, int home, int group)
{
    return home * e->kv_shape.group[group].n_blk;
}
/* Blocks of so many tokens. */
static inline int engine_blocks(int64_t n_tok)
{
    return (int)((n_tok + ENGINE_BLK_TOK - 1) / ENGINE_BLK_TOK);
}

/* homes.c: how many there are, and what a step of each has at most; then their schedulers. */
void engine_homes_size(sl_engine *e);
sl_status engine_homes_alloc(sl_engine *e, sl_err *err) BASE_MUST_USE;
sl_status engine_homes_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_homes_close(sl_engine *e);
/* What of rank i's stat is its home's. */
void engine_home_stat(const sl_engine *e, int i, sl_rank_stat *s);
/* opts.dispatch, opts.micro: REQUEST, also where n_dp is 1. */
sl_status engine_dispatch_check(const sl_engine *e, int n_dp, sl_err *err) BASE_MUST_USE;
/* Where a new request goes. */
int engine_home_for(const sl_engine *e, const struct group *g);
/* The lane's next step of all of them; an item's seat is numbered among those of all. */
void engine_plan(sl_engine *e, struct engine_lane *l);
/* It took so long. */
void engine_homes_observe(sl_engine *e, const struct engine_lane *l, int64_t ns);
/* A step that was not planned took so long: as of sched_learn. */
void engine_homes_learn(sl_engine *e, int n_decode, int n_prompt, int64_t ns);
/* The slot of the i-th running request of all; -1 = there are no more. */
int engine_running(const sl_engine *e, int i);
static inline struct sched *engine_sched(const sl_engine *e, const struct request *r)
{
    return e->home[r->home].sched;
}
static inline const struct sched_req *engine_sched_req(const sl_engine *e, const struct request *r)
{
    return sched_request(engine_sched(e, r), r->slot);
}
static inline const struct kv_seq *engine_seq(const sl_engine *e, int seat)
{
    return sched_seq(e->home[seat / e->n_seat].sched, seat % e->n_seat);
}
/* Of one that runs. */
static inline const struct kv_seq *engine_req_seq(const sl_engine *e, const struct request *r)
{
    return sched_seq(engine_sched(e, r), engine_sched_req(e, r)->seat);
}
/* NULL: it is not there any more. */
static inline struct request *engine_item_req(const sl_engine *e, const struct sched_item *it)
{
    return it->req < 0 ? NULL : e->req[it->req];
}
/* The copies that the plan needs, into e->room; returns how many there are. */
int engine_cache_copies(sl_engine *e, const struct sched_plan *p);

/* place.c: opens the devices of e->place as opts.device and opts.place say, and e->d. */
sl_status engine_place_open(sl_engine *e, const struct dev_opts *o, sl_err *err) BASE_MUST_USE;
void engine_place_close(sl_engine *e); /* the devices too */
bool engine_has_card(const sl_engine *e); /* on any rank, by its name */
/* Bytes that are free on a device, or that fraction of them. Errors: as dev_memory. */
sl_status engine_free_on(dev *d, double fraction, int64_t *out, sl_err *err) BASE_MUST_USE;
/* The same of another rank, a thread's: place NULL: all is on home. Devices that are open when it
 * fails are closed with the others. Errors: as model_place_parse, dev_open. */
struct engine_stage {
    const char *place, *home;
    const struct arch_cfg *cfg;
    const struct dev_opts *opts;
};
sl_status engine_place_rank(const struct engine_stage *s, struct arena *a, struct model_place *out,
                            sl_err *err) BASE_MUST_USE;
void engine_place_rank_close(struct model_place *p);
/* The devices are closed, and opened again. */
sl_status engine_place_again(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_place_tell(sl_engine *e); /* for sl_engine_devices, when all is open */
/* For want of memory, which why says, the CPU is to compute everything: engine_place_rooms is new.
 * Errors: why's, where that is not asked for; as engine_place_open. */
sl_status engine_place_fall_back(sl_engine *e, const sl_err *why, sl_err *err) BASE_MUST_USE;
/* ranks.c */
/* nodes.c: "auto" in opts.layout becomes what is meant: e->layout, or NULL. Errors: NOMEM. */
sl_status engine_nodes_layout(sl_engine *e, sl_err *err) BASE_MUST_USE;
/* What opts.layout says: *o becomes this process's; other processes are met, and take rank 0's
 * n_ctx, n_seq_max, n_chunk and kv_tokens. Errors: as dist_layout_parse, dist_mpi_open; REQUEST:
 * fewer threads than ranks, another number of processes. */
sl_status engine_ranks_parse(sl_engine *e, struct dev_opts *o, sl_err *err) BASE_MUST_USE;
/* What this process fails with before it has met the others (st, *err) all of them fail with: what
 * they say. */
sl_status engine_ranks_refuse(const sl_engine *e, sl_status st, sl_err *err);
int engine_n_rank(const sl_engine *e);
int engine_n_home(const sl_engine *e); /* ranks with sequences of their own */
/* Bytes of the source that ranks of this machine hold. */
int64_t engine_ranks_source_bytes(const sl_engine *e);
int engine_rank_here(const sl_engine *e);               /* 0 but in processes that follow */
bool engine_rank_is_here(const sl_engine *e, int rank); /* on this machine */
/* The device of this process's own rank, of the list that opts.device may be: cap bytes at most.
 * Errors: REQUEST. Does a rank take its memory from the same device? */
#define ENGINE_DEVICE_NAME 512
sl_status engine_rank_device(const sl_engine *e, char *out, size_t cap, sl_err *err) BASE_MUST_USE;
bool engine_rank_has_ours(const sl_engine *e, int rank);
bool engine_ranks_share_cpus(const sl_engine *e);       /* of all ranks of this machine */
struct model_dims engine_rank_dims(const sl_engine *e, int rank);
/* Opening has come so far, with st: OK where it is on all processes, else the failure of one. */
sl_status engine_ranks_gate(sl_engine *e, sl_status st, sl_err *err) BASE_MUST_USE;
/* Processes have the same program, model and numeric forms (REQUEST says what differs), and take
 * the smallest context and cache of all. */
sl_status engine_ranks_agree(sl_engine *e, int64_t *kv_tokens, sl_err *err) BASE_MUST_USE;
/* *o, of a model that is whole, becomes this process's, and other threads begin to open theirs; kv:
 * caches' shapes, by rank. e->kv_shape is this one's. Errors: NOMEM. */
sl_status engine_ranks_start(sl_engine *e, struct model_opts *o, const struct dev_kv_shape *kv,
                             sl_err *err) BASE_MUST_USE;
/* The other threads are open, or processes get memory in common. Errors: theirs. */
sl_status engine_ranks_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
/* Then: how fast joins are (sl_rank_stat). Errors: as steps. */
sl_status engine_ranks_measure(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_ranks_close(sl_engine *e);
/* Launch a step and wait for it, on every rank. Errors: as model_wait; DEVICE: ranks have
 * failed; REQUEST: this rank is not home. */
sl_status engine_ranks_run(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                           sl_err *err) BASE_MUST_USE;
/* The same in two: the others hear of a step, and begin it; then this rank does its part of the
 * first that is under way, s, and waits for them. */
void engine_ranks_begin(sl_engine *e, const struct dev_step *s);
sl_status engine_ranks_end(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                           sl_err *err) BASE_MUST_USE;
int engine_n_stage(const sl_engine *e);
bool engine_ranks_last_alone(const sl_engine *e); /* has the last stage one rank? */
/* What all ranks hold, and read for a token. */
int64_t engine_ranks_weight_bytes(const sl_engine *e);
int64_t engine_ranks_bytes_per_token(const sl_engine *e);
/* model_routed, of whichever rank has the layer. Errors: its; DEVICE: ranks have failed. */
sl_status engine_ranks_routed(sl_engine *e, int layer, uint64_t *out, int n,
                              sl_err *err) BASE_MUST_USE;
/* Experts that a layout with ep has spread: slot [n_layer, n_slot] which lies where, which home
 * keeps true; n_spare 0: none move. */
struct engine_spread {
    int32_t *slot;
    int n_layer, n_slot, n_rank, n_spare;
    const uint16_t *weight; /* of these ranks (dist_share); NULL: they are alike */
};
struct engine_spread engine_ranks_spread(const sl_engine *e);
/* Home says something of moves (moves.h) or of pages (pages_far.c), which all ranks do. Errors:
 * DEVICE: ranks have failed. */
struct engine_say {
    uint32_t what;
    int layer, n, home;
    const void *body;
    size_t bytes;
    uint64_t is_for; /* bits of ranks: the others get no body; 0 = all */
};
sl_status engine_ranks_say(sl_engine *e, const struct engine_say *s, sl_err *err) BASE_MUST_USE;
struct engine_mover *engine_ranks_mover(const sl_engine *e); /* home's */
/* A rank's cache. False: another process has it. */
bool engine_rank_cache(const sl_engine *e, int rank, dev **d, dev_kv **kv);
/* dev_kv_touch of a home's blocks, on every rank that has them. */
void engine_kv_touch(sl_engine *e, int home, int group, const int32_t *blk, int n);

/* rebalance.c */
sl_status engine_rebalance_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_rebalance_close(sl_engine *e);
/* Between steps: experts go on moving. Errors: DEVICE: ranks have failed. */
sl_status engine_rebalance_step(sl_engine *e, sl_err *err) BASE_MUST_USE;
bool engine_rebalance_busy(const sl_engine *e); /* the next step should come soon */

/* engine.c: the model and the cache, for sl_reopen; kv_tokens as the first time. */
sl_status engine_load(sl_engine *e, int64_t kv_tokens, sl_err *err) BASE_MUST_USE;
/* pack.c */
/* Set m->pack where a packed file fits m->io; says why one does not. */
void engine_pack_find(sl_model *m);
/* The packed file to run from, NULL = the source; makes one where the model's options say so. */
sl_status engine_pack_use(sl_engine *e, const io_pack **out, sl_err *err) BASE_MUST_USE;
/* The packed file that m is, or that was found for it, as far as d can run it; NULL = none. Errors:
 * UNSUPPORTED: m is one that can not be run. */
sl_status engine_pack_of(const sl_model *m, const dev *d, const io_pack **out,
                         sl_err *err) BASE_MUST_USE;

/* request.c */
void engine_group_free(struct group *g);
/* Take what was submitted into the scheduler, end what was cancelled or is over its time. */
void engine_intake(sl_engine *e);
/* Give the last event (ev->finish is set) and free everything of a sample. Its KV may stay for a
 * later one. */
void engine_request_done(sl_engine *e, struct request *r, sl_event *ev);
/* The same without text. why: with FINISH_ERROR. */
void engine_request_end(sl_engine *e, struct request *r, int32_t token, sl_finish finish,
                        const sl_err *why);
void engine_event(sl_engine *e, struct request *r, sl_event *ev);

/* lanes.c */
sl_status engine_lanes_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_lanes_close(sl_engine *e);
/* sl_step of several lanes, once requests were taken in. */
sl_status engine_lanes_step(sl_engine *e, sl_err *err) BASE_MUST_USE;
/* Finish what is under way: before ranks are told of anything but the lanes' steps. */
void engine_lanes_drain(sl_engine *e);

/* step.c */
/* The lane's next step: planned, and its message made; false: there is nothing to do. Then what its
 * rows lead to, when it was computed in ns; or the ends of its requests: OK, or DEVICE: of all. */
bool engine_step_begin(sl_engine *e, struct engine_lane *l);
void engine_step_end(sl_engine *e, struct engine_lane *l, const struct model_rows *rows,
                     int64_t ns);
sl_status engine_step_failed(sl_engine *e, const struct engine_lane *l, const sl_err *why,
                             sl_err *err) BASE_MUST_USE;
struct kv_path engine_path(const sl_engine *e, const struct request *r);
/* sched_opts.match: what the prefix tree has for a request. */
void engine_match(void *user, int slot, struct kv_seq *seq, struct sched_match *m);
/* draw.c: the tokens of a step's rows, on the device's host workers. What is chosen does not depend
 * on how many there are. */
#define ENGINE_SAMPLER_MAX 8
#define ENGINE_ALONE 8192 /* logits from which one worker draws sooner than others wake up */
struct engine_pick {
    struct request *r;
    int at; /* so many drafts of r stand before the token: it is of use when they are right */
    const float *logit; /* NULL = it was not wanted */
    int best;           /* dev_best */
    bool done;          /* what follows is set, else engine_pick_one chooses */
    int32_t token;
    sl_err why;
    sl_status st;
};
sl_status engine_draw_init(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_draw_fini(sl_engine *e);
/* More than the largest logit is needed. */
bool engine_draws(const struct request *r);
/* As pick's row says, of logits of the first n_vocab ids; worker's sampler is used. *likely: as of
 * engine_draw. Errors: as engine_sample. */
sl_status engine_draw_guess(const sl_engine *e, int worker, const struct engine_pick *pick,
                            int n_vocab, struct spec_pair *pair, sl_err *err) BASE_MUST_USE;
/* What of a row is wanted from which r's token after at drafts comes: enum dev_want. */
unsigned engine_row_want(const sl_engine *e, const struct request *r, int at);
/* Into e->pick. Rows under a grammar only as far as best. */
void engine_pick_all(sl_engine *e, const struct sched_plan *p, const struct model_rows *rows);
/* The token for r, which may be another sample than the row's. mask: NULL or a grammar's. */
sl_status engine_pick_one(sl_engine *e, const struct request *r, const struct engine_pick *pick,
                          const uint32_t *mask, int32_t *token, sl_err *err) BASE_MUST_USE;

/* draft.c: guesses at the tokens that follow. What they are, and how many, changes no answer. */
/* What opts.draft says; before the model is opened. Then all that is needed for it. */
sl_status engine_spec_parse(sl_engine *e, sl_err *err) BASE_MUST_USE;
sl_status engine_spec_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_spec_close(sl_engine *e);
/* On the submitting thread, when r has its group and ids. */
sl_status engine_spec_begin(const sl_engine *e, struct request *r, sl_err *err) BASE_MUST_USE;
/* Guesses after r's ids, at most. */
int engine_spec_most(const sl_engine *e, const struct request *r);
/* Before a step is planned: guesses after the ids of running requests, offered to the scheduler.
 * True: a small model ran for it as it always does, *t says how long. */
bool engine_spec_propose(sl_engine *e, struct spec_passes *t);
/* A row of r was computed with n_draft drafts; draft j of it, after right ones, is right or not;
 * all of them were judged, and r goes on. */
void engine_spec_computed(sl_engine *e, struct request *r, int n_draft);
void engine_spec_judge(sl_engine *e, struct request *r, int j, bool right);
void engine_spec_learn(sl_engine *e, struct request *r);
/* A step gave n_new tokens of answers and took ns, and more for the drafter where l is not NULL. */
void engine_spec_observe(sl_engine *e, const struct sched_plan *p, int n_new, int64_t ns,
                         const struct spec_passes *l);
/* How long steps take, for room spec. */
struct spec_clock engine_spec_clock(sl_engine *e);

/* passes.c: run the first pass, which stands in the arrays, and as many more as pay: guesses are
 * offered to the rows' requests. t0: when making it began. Errors: as engine_run. */
sl_status engine_passes_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_passes_close(sl_engine *e);
sl_status engine_passes(sl_engine *e, struct engine_pass n, int64_t t0, struct spec_passes *t,
                        sl_err *err) BASE_MUST_USE;

/* mtp.c. begin: after a step was computed, before anything is drawn; run: after that. False: there
 * was nothing to run; else *t is the time that it took. */
sl_status engine_mtp_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_mtp_close(sl_engine *e);
void engine_mtp_forget(sl_engine *e); /* what it has stored is gone */
void engine_mtp_begin(sl_engine *e, const struct sched_plan *p);
/* r shares its prompt with a sample that got first (-1: it is over), and has its own first token:
 * where they differ it computes the prompt's last position again, for the layer's entry there. */
void engine_mtp_fork(sl_engine *e, struct request *r, int32_t first);
bool engine_mtp_run(sl_engine *e, const struct sched_plan *p, struct spec_passes *t);

/* vocab.c: mtp.ids. Errors: REQUEST, UNSUPPORTED say why opts.draft_vocab_ids can not be used. */
sl_status engine_vocab_open(sl_engine *e, sl_err *err) BASE_MUST_USE;

/* small.c. check: before anything is opened: REQUEST, UNSUPPORTED say why opts.draft_model can not
 * be used. load: before the large model, which is opened beside it. */
sl_status engine_small_check(sl_engine *e, sl_err *err) BASE_MUST_USE;
/* Its cache beside one of n_blk blocks; 0 = there is none. */
int64_t engine_small_kv_bytes(const sl_engine *e, int n_blk);
sl_status engine_small_load(sl_engine *e, int n_blk, sl_err *err) BASE_MUST_USE;
sl_status engine_small_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_small_close(sl_engine *e);
/* After a step was computed, before anything is drawn. */
void engine_small_begin(sl_engine *e, const struct sched_plan *p);
/* Before a step is planned: guesses for the requests that want one. False: nothing ran, or it made
 * up for much; else *t is the time that it took. */
bool engine_small_run(sl_engine *e, struct spec_passes *t);
sl_status engine_small_launch(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                              sl_err *err) BASE_MUST_USE;

/* answer.c: what the rows of a step lead to; and, when r is submitted, the tokens that it is given.
 * Errors: of its grammar; NOMEM. */
sl_status engine_answer_given(sl_engine *e, struct request *r, const int32_t *given,
                              sl_err *err) BASE_MUST_USE;
void engine_rows(sl_engine *e, const struct sched_plan *p, const struct model_rows *rows);

/* threads.c */
sl_status engine_threads_init(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_threads_fini(sl_engine *e);
void engine_publish(sl_engine *e); /* stats, for other threads */
/* DEVICE where the device is lost. Threads: any. */
sl_status engine_lost(const sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_lose(sl_engine *e, const sl_err *why); /* from now on it is */
/* The step that stands in e->room: logits of n_row rows are wanted. */
struct dev_step engine_step(const sl_engine *e, int n_tok, int n_seq, int n_row);
/* Run a step to its end; told: the other ranks know of it. DEVICE: the engine is lost. */
sl_status engine_run(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                     sl_err *err) BASE_MUST_USE;
sl_status engine_run_told(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                          sl_err *err) BASE_MUST_USE;

/* remote.c */
/* UNSUPPORTED where e is elsewhere: names the call, which only an engine of this process knows. */
sl_status engine_need_here(const sl_engine *e, const char *call, sl_err *err) BASE_MUST_USE;

/* record.c. open: after everything else of the engine; writes the header where opts.on_record is
 * set. A step is written before it runs, its result (st, and where that is OK rows) after it. */
sl_status engine_record_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_record_close(sl_engine *e);
void engine_record_step(sl_engine *e, const struct dev_step *s);
void engine_record_result(sl_engine *e, const struct dev_step *s, sl_status st,
                          const struct model_rows *rows);

#endif
