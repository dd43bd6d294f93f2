/* SPDX-License-Identifier: Apache-2.0 */
/* One device beside the CPU: which parts of a model lie where, what fits, and how long a step takes
 * (docs/devices.md has the order in which operators run). Pure. */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "plan/plan.h"

/* A device and the CPU beside it. Bytes, bytes/s, operations/s, seconds. */
struct plan_card {
    double mem, bw, ops; /* its memory; reads and products that its kernels reach */
    double bus;          /* to and from the host */
    double lat, hand;    /* of a launch; from host to idle device, or back to a host that waits */
    double host_mem, host_bw, host_ops; /* bw, ops 0: they take no time */
};

/* Which experts lie where: those of the first n_cpu layers that have any on the CPU. */
struct plan_placing {
    int n_cpu, n_late, n_hot; /* late: of a token; hot: of each layer on the CPU, there too */
    /* In steps of so many tokens experts on the CPU come to the device; 0: in none */
    int stream_from;
};
#define PLAN_STREAM_AUTO (-1) /* in those of prompts in which that is faster */

struct plan_placed {
    double dev_weights, dev_hot, dev_kv, dev_acts; /* bytes on the device */
    double host_weights;                           /* on the host */
    double seq;                                    /* bytes of a sequence's cache */
    double free_seq;                               /* sequences that fit beside the rest */
    double over; /* bytes too many on the device, or else on the host; <= 0: it fits */
    bool host_over;
    double stream_buf;                 /* of dev_acts, what streaming takes */
    int stream_from;                   /* the least chunk that is streamed; 0: none is */
    double step, prompt;               /* seconds: a step of decode; a prompt */
    double dev, host, ways, late_wait; /* of the step: busy device, busy CPU, hand-overs and bus */
};

/* What is asked: sequences, context, a prompt's tokens, tokens of a step at most. */
struct plan_asked {
    double batch, ctx, prompt, chunk, kv_bits;
};

/* Time and memory of one placement. How often hot experts are chosen is as was counted, where the
 * model has counts, else as often as others. */
void plan_place(const struct plan_model *m, const struct plan_format *f,
                const struct plan_card *card, const struct plan_placing *p,
                const struct plan_asked *a, struct plan_placed *out);
/* Several such devices. stages: each is of a rank that is a stage, with an even part of the CPU,
 * and sequences go through them in lanes, one in each at a time; else one rank has them all, one
 * after the other. What the CPU has is the first one's. */
#define PLAN_CARDS_MAX 16
struct plan_cards {
    const struct plan_card *card;
    int n;
    bool stages;
};
struct plan_carded {
    struct plan_placed all, of[PLAN_CARDS_MAX]; /* of all together; on each */
    int32_t first[PLAN_CARDS_MAX + 1]; /* layers of each part, in their order */
    double lanes;
    int fullest; /* the device with the least room */
};
/* Of placing, n_cpu is 0 or all. As plan_place; prompts of stages go in pieces. */
void plan_cards(const struct plan_model *m, const struct plan_format *f, const struct plan_cards *c,
                const struct plan_placing *p, const struct plan_asked *a, struct plan_carded *out);
/* The largest n_hot that fits so on each of them. */
int plan_cards_hot(const struct plan_model *m, const struct plan_format *f,
                   const struct plan_cards *c, const struct plan_placing *p,
                   const struct plan_asked *a);
/* The largest n_hot that fits in nine tenths of what is left beside weights and cache. */
int plan_place_hot(const struct plan_model *m, const struct plan_format *f,
                   const struct plan_card *card, const struct plan_placing *p,
                   const struct plan_asked *a);
/* The fewest layers whose experts must lie on the CPU; -1: not even all of them are enough. */
int plan_place_least(const struct plan_model *m, const struct plan_format *f,
                     const struct plan_card *card, const struct plan_asked *a);

#endif
