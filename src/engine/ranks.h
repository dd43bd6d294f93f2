/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of ranks share: who follows home, and what home tells (ranks.c, follow.c). */
#ifndef ENGINE_RANKS_H
#define ENGINE_RANKS_H

#include "engine/engine_internal.h"
#include "engine/moves.h"
#include "engine/record.h"
#include "os/word.h"
#include "par/par.h"

/* What the others are told: a head, then a record of a step (record.h), numbers of blocks, of
 * SAY_PAGES_SET with their pages (pages_far.c), or moves of experts (moves.h, which has further
 * kinds), n_blk of them. at: a group of the cache, of SAY_STEP: 1 = it is cold (sl_engine.cold),
 * of SAY_COUNT an engine_count, of SAY_STREAM the tokens of a step that is streamed, of all others
 * a layer. */
enum { SAY_STEP = 1, SAY_TOUCH = 2, SAY_ROUTED = 3, SAY_PAGES_SET = 4, SAY_PAGES_GET = 5,
       SAY_MEASURE = 6, SAY_COUNT = 7, SAY_HOT = 8, SAY_STREAM = 9 };
struct say_head {
    uint32_t what, at, n_blk, home; /* home: whose blocks they are */
};

/* Who follows: its parts of the model, and room for the step that it was told. */
struct follower {
    dist *end;
    dev *d;
    model *net;
    dev_kv *kv;
    struct model_dims dims;
    uint64_t *routed; /* [E] */
    struct engine_mover *mover; /* NULL: no experts move */
    struct engine_hot *hot;
    uint64_t *routed_all; /* [ranks, E] */
    struct record_limits max;
    struct record_step step;
    struct engine_far *far; /* NULL: ranks are threads, or show no pages */
};

struct rank { /* a thread's */
    struct engine_ranks *all;
    struct follower f;
    par_side *side;
    struct model_place place;
    struct arena arena; /* of its texts and tables */
    struct model_opts opts;
    struct engine_hot hot;
    struct dev_kv_shape shape;
    sl_status st; /* of opening, and why; published by is_open */
    sl_err err;
    struct os_word is_open;
};

struct engine_ranks {
    struct dev_opts dopts;
    sl_model *m;
    const char *device; /* a list of names; ranks of a machine have one after the other of them */
    const char *place;  /* of every rank, beside its device; NULL: nothing */
    int n, here; /* here: the rank of this process, 0 where they are threads */
    int n_ahead; /* messages that may be under way */
    bool apart;  /* processes */
    bool from_peer; /* experts that move come from the memory of a rank */
    bool met;    /* these have met, or tried to */
    bool fell_back; /* home is on the CPU instead */
    struct model_stages stages;
    uint16_t group_weight[DIST_RANK_MAX]; /* of groups of ranks that share experts */
    struct follower own;  /* of here */
    dist *end;            /* of here */
    int32_t *slot_expert; /* [layers, n_slot] of ep; NULL = every expert is shared by rows */
    int n_slot, n_layer, n_spare, place_mbps;
    struct record_limits max;
    struct engine_record say[DIST_AHEAD_MAX]; /* [n_ahead] room for messages, by their number */
    unsigned n_told, n_done;  /* messages; those that all are done with */
    struct dist_link link;    /* of home's stage */
    int64_t t_from, step_ns;  /* when the first of the others was told, or became that; of all */
    uint64_t near[DIST_RANK_MAX]; /* as of engine_follower_measure */
    struct engine_hot_opts hot;   /* of home */
    double mem_fraction;
    int64_t stream_bytes; /* of a rank that streams, on its device */
    int64_t weight_bytes[DIST_RANK_MAX], bytes_per_token[DIST_RANK_MAX];
    struct rank rank[DIST_RANK_MAX];
};

/* devices.c: the name of rank r's device. Errors: REQUEST: it is too long. What the ranks' devices
 * mean for each: into plain, is_mixed and is_placed of o. */
sl_status engine_rank_name(const struct engine_ranks *k, int r, char *out, size_t cap,
                           sl_err *err) BASE_MUST_USE;
void engine_ranks_find(const struct engine_ranks *k, struct model_opts *o);

/* What its own parts are open for. Errors: NOMEM. */
sl_status engine_follower_init(struct follower *f, const struct engine_ranks *k, int rank,
                               sl_err *err) BASE_MUST_USE;
void engine_follower_fini(struct follower *f);
/* Until home has nothing more, or the ranks have failed. */
void engine_follow(struct follower *f);
/* How fast joins are, into link; and home hears how many of this rank's pages are near, as 1 + the
 * share in millionths, 0 = not known. Errors: as dist_measure. */
sl_status engine_follower_measure(struct follower *f, struct dist_link *link,
                                  sl_err *err) BASE_MUST_USE;
/* Obey SAY_COUNT, SAY_HOT or SAY_STREAM: home hears a number. Errors: as engine_hot_renew. */
sl_status engine_follower_beside(struct follower *f, const struct say_head *h,
                                 sl_err *err) BASE_MUST_USE;
/* All ranks obey such a one, at as of it: what each says, of[rank]. While nothing is under way.
 * Errors: DEVICE. */
sl_status engine_ranks_ask(sl_engine *e, uint32_t what, uint32_t at, uint64_t *of,
                           sl_err *err) BASE_MUST_USE;
bool engine_ranks_busy(const sl_engine *e); /* something is under way */
bool engine_ranks_swap(const sl_engine *e); /* tokens go to ranks that have their experts alone */
/* The counts of a layer's experts go from its stage on to home. Errors: as model_routed. */
sl_status engine_follower_routed(struct follower *f, int layer, sl_err *err) BASE_MUST_USE;

/* pages_far.c: of processes; before dist_room: engine_far_room is what a message may need. Errors:
 * NOMEM. Obey: SAY_PAGES_... Errors: INTERNAL. */
size_t engine_far_room(const sl_engine *e);
sl_status engine_far_open(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_far_close(struct engine_far *w); /* NULL is legal */
sl_status engine_far_hear(struct engine_far *w, const struct say_head *h, struct rd *r,
                          sl_err *err) BASE_MUST_USE;

#endif
