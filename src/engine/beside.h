/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on the CPU beside a device: those that lie on the device too (hot.c), and those that come
 * to it for long prompts (stream.c). Of several stages each has those of its own layers. */
#ifndef ENGINE_BESIDE_H
#define ENGINE_BESIDE_H

#include "base/mem.h"
#include "io/io.h"
#include "model/model.h"
#include "sluice.h"

/* Of a rank's layers, which experts are hot. */
struct engine_hot_opts {
    const struct arch_cfg *c;
    const io_model *io;
    const struct model_place *p; /* whose devices are open */
    struct model_dims dims;      /* what the rank has */
    int n_mtp;                   /* MTP layers that run */
    int n;                       /* asked for in each layer; SL_HOT_AUTO: what room holds */
    bool updates;                /* others may become hot */
    bool tells;                  /* that nothing says which: of several ranks one does */
    const uint64_t *load;        /* NULL, or [n_load, E] how often each was chosen; the caller's */
    int n_load;
};

struct engine_hot {
    /* fixed after open */
    struct engine_hot_opts o;
    bool on, is_chosen;          /* on: the rank has such layers */
    bool any;                    /* one of the ranks has */
    int64_t room[MODEL_DEV_MAX]; /* auto: bytes of each device that nothing else takes */
    int64_t *bytes;              /* [L + MTP] of an expert, of the source */
    int32_t *n, *expert;         /* [L + MTP], and n_max each: as of model_hot */
    struct model_hot of;
    int32_t *order;         /* [E] scratch */
    uint64_t *count, *seen; /* [E] scratch; [L + MTP, E] when they were chosen last */
    uint64_t n_tok;         /* computed by then */
    struct model_hits before, now; /* of models before a device was lost; of this one */
};

/* Steps whose experts were streamed: of models before a device was lost; of this one. */
struct engine_stream {
    bool chunk_asked;     /* opts.n_chunk says it: it is not halved */
    int64_t expert_bytes; /* the largest expert that is streamed; 0: none is */
    int n_ours;           /* ranks that stream through our device */
    uint64_t n_step, n_tok, n_bytes, now_step, now_tok, now_bytes;
};

/* devices.c: of the layers that rank r has (MTP layers follow the others), whose experts lie on the
 * CPU beside its device; [L + MTP], of the arena of e->place. Errors: NOMEM. */
sl_status engine_rank_beside(sl_engine *e, int r, bool **out, sl_err *err) BASE_MUST_USE;

/* hot.c. Tables of the arena. Errors: NOMEM. */
sl_status engine_hot_open(struct engine_hot *h, const struct engine_hot_opts *o, struct arena *a,
                          sl_err *err) BASE_MUST_USE;
/* Which they are, h's; NULL: none. The load is not read after the first time. */
const struct model_hot *engine_hot_choose(struct engine_hot *h);
/* Others become hot in the model net of the rank, by what was counted since the last time; *n: in
 * how many layers. Errors: what a slot holds is not known any more. */
sl_status engine_hot_renew(struct engine_hot *h, model *net, int *n, sl_err *err) BASE_MUST_USE;

/* What the engine's options ask of this rank. */
struct engine_hot_opts engine_hot_asked(const sl_engine *e);
/* bytes: of the source, that hot experts are on e->d (auto: 0), added to e->place. Errors: REQUEST,
 * UNSUPPORTED. */
sl_status engine_hot_bytes(sl_engine *e, sl_err *err) BASE_MUST_USE;
/* Which of e's own are; NULL: none. */
const struct model_hot *engine_hot_own(sl_engine *e);
/* Another model is there, of the hot experts of the first. */
void engine_hot_again(sl_engine *e);
void engine_hot_stats(sl_engine *e);
/* Nothing is to be done: choose again, where there were tokens enough. */
void engine_hot_idle(sl_engine *e);

/* stream.c. bytes: that it takes of e->d, added to e->place. Errors: REQUEST, UNSUPPORTED. */
sl_status engine_stream_bytes(sl_engine *e, sl_err *err) BASE_MUST_USE;
int64_t engine_stream_bytes_of(const sl_engine *e); /* that it takes of a rank's device */
/* e->n_chunk is half, and e->place with it, for want of memory; false: it is not to be. */
bool engine_stream_halve(sl_engine *e);
/* When all ranks are open: from how many tokens on all of them stream. Errors: as DEVICE. */
sl_status engine_stream_agree(sl_engine *e, sl_err *err) BASE_MUST_USE;
void engine_stream_tell(sl_engine *e);  /* what is streamed, when the model is open */
void engine_stream_again(sl_engine *e); /* another model will be there */
void engine_stream_stats(sl_engine *e);

/* rank_stat.c: what ranks count beside their devices. */
enum engine_count {
    ENGINE_HOT_HIT,
    ENGINE_HOT_MISS,
    ENGINE_HOT_SAVED,
    ENGINE_STREAM_STEP,
    ENGINE_STREAM_TOK,
    ENGINE_STREAM_BYTES,
    ENGINE_N_COUNT, /* the others are asked for once, at open */
    ENGINE_STREAM_FROM = ENGINE_N_COUNT, /* 1 + that number; 0: the rank streams nothing */
    ENGINE_STREAM_LAYERS,
    ENGINE_STREAM_PASS,
    ENGINE_STREAM_ROOM
};
struct engine_counts {
    uint64_t v[ENGINE_N_COUNT]; /* of all ranks: steps and their tokens once, all else summed */
    uint64_t n_step;            /* that there had been when they were asked last */
    int64_t ns;                 /* when that was */
};
uint64_t engine_count_of(const model *net, enum engine_count what);
/* e->counts is new. Of several ranks only where nothing is under way: when nothing is to be done,
 * or now and then. */
void engine_counts_take(sl_engine *e);
/* It is time for that. */
bool engine_counts_due(const sl_engine *e);

#endif
