/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation: guesses at the next tokens of a sequence (drafts), and how many of them are worth
 * computing. Integers and rates only: no tensors, no clock, no threads. Whoever computes a draft
 * draws every token as if it were not there and keeps drafts as long as they are equal, so nothing
 * here can change an answer, only its speed. See spec/README.md. */
#ifndef SPEC_SPEC_H
#define SPEC_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

#define SPEC_MAX 7 /* drafts of one sequence in one step */

/* Where drafts come from. */
enum spec_source {
    SPEC_FORCED,     /* the grammar allows nothing else */
    SPEC_LITERAL,    /* nor another text; how it is cut into tokens is a guess */
    SPEC_PREDICTION, /* the text that the request expects */
    SPEC_NGRAM,      /* what followed the same tokens before, in prompt or answer */
    SPEC_MTP,        /* the model's MTP layer; whoever runs it offers them */
    SPEC_MODEL,      /* a small model; likewise */
    SPEC_REPLAY,     /* a known answer, made wrong at a rate: for measurements */
    SPEC_N_SOURCE
};

/* ---- index.c: where did these tokens stand before? ---- */
#define SPEC_MATCH_LEAST 2 /* tokens that must be alike */
#define SPEC_MATCH_MOST 8  /* more are not looked at */

/* The places of all pairs of tokens in a text that grows at its end: 8 to 12 bytes per token. */
struct spec_index {
    int32_t *head; /* [mask + 1] newest place of a pair's second token, by hash; -1 = none */
    int32_t *prev; /* [cap] the place before it of the same hash */
    uint32_t mask;
    int n, cap; /* tokens taken in; at most */
};
/* Errors: NOMEM. */
sl_status spec_index_init(struct spec_index *x, int cap, sl_err *err) BASE_MUST_USE;
void spec_index_fini(struct spec_index *x);
/* Take in ids[x->n .. n); n <= cap. */
void spec_index_add(struct spec_index *x, const int32_t *ids, int n);
/* The place after the tokens of text x (ids) that are like the last ones of tail[0 .. n_tail): the
 * newest of the longest matches among the 64 newest candidates; *len: how many are alike. -1 =
 * none, or fewer than SPEC_MATCH_LEAST. tail may be the text itself, whose end is then no match. */
int spec_index_find(const struct spec_index *x, const int32_t *ids, const int32_t *tail, int n_tail,
                    int *len);

/* ---- propose.c: one sequence ---- */

/* How often drafts were right: [j] that draft j was, of those after j right ones. A row of rates
 * for each source, and for n-grams by the length of the match. */
#define SPEC_N_ROW (SPEC_N_SOURCE + 2)
struct spec_rate {
    float right[SPEC_MAX];
    int n[SPEC_MAX]; /* seen, up to 16 */
};

/* A drafter has two guesses at a token: the likeliest one, and the one that the request would draw
 * of the drafter's logits, with the noise of the token's place. Which is right more often depends
 * on how likely the likeliest is, in so many levels. */
#define SPEC_N_LEVEL 8
struct spec_pair {
    int32_t id[2]; /* the likeliest, the drawn one */
    double likely; /* the probability of id[0] */
};

/* What all sequences of an engine taught it. */
struct spec_taught {
    struct spec_rate rate[SPEC_N_ROW];
    float right[SPEC_N_LEVEL][2]; /* how often guesses of a pair were, of late */
};

struct spec_opts {
    int n_prompt;        /* the answer begins here */
    bool ngram;          /* look for n-grams */
    bool model;          /* the drafter is a small model, not the MTP layer */
    bool replay;         /* the expected text is the answer itself, and */
    double right;        /* each token of it is proposed rightly at this rate, */
    uint64_t seed;       /* with these random numbers */
    const int32_t *text; /* expected text: borrowed; NULL = none */
    int n_text;
};

struct spec_seq {
    struct spec_opts o;
    struct spec_index own, text; /* over prompt and answer; over the expected text */
    int at;                      /* place in the expected text; -1 = lost */
    int n_text_seen;             /* tokens of prompt and answer that moved it */
    struct spec_rate rate[SPEC_N_ROW];
    int32_t offer[SPEC_MAX]; /* the drafter's guesses at the tokens from offer_at on */
    int n_offer, offer_at;
    struct spec_pair pair; /* of which the first of them was chosen */
    int pair_at;           /* its place; -1 = none */
    /* the last proposal */
    enum spec_source source;
    int row, n_prop, prop_pos; /* prop_pos: where its first token would stand */
    int32_t prop[SPEC_MAX];
    /* one that is followed to its end, whether it was computed or not */
    int chain_row, chain_at, n_chain, chain_pos; /* chain_pos: where its next token would stand */
    int32_t chain[SPEC_MAX];
};

/* cap: tokens of prompt and answer at most. Errors: NOMEM. Memory: about 10 bytes per token, and
 * 10 more for each token of text. */
sl_status spec_seq_init(struct spec_seq *s, const struct spec_opts *o, int cap,
                        sl_err *err) BASE_MUST_USE;
void spec_seq_fini(struct spec_seq *s);
/* What a grammar leaves no choice about, in the first n of out, and what it allows. */
struct spec_given {
    int n;
    bool certain; /* no other tokens are right; else other ones may be the same text */
    int (*fits)(void *user, const int32_t *id, int n); /* how many of n guesses; NULL = all */
    void *user;
};
/* Up to n_max guesses at what follows ids[0 .. n_ids) into out; they are remembered for spec_learn.
 * Returns how many. What is given comes first, unless it is not certain and another source has
 * more tokens to expect. Guesses that do not fit are as if they were not made, and those that
 * follow them. Linear in the tokens that are new, and cheap. */
int spec_propose(struct spec_seq *s, const int32_t *ids, int n_ids, struct spec_given given,
                 int n_max, int32_t *out);
/* The drafter's guess j at what follows n_ids known tokens, after guesses 0 .. j - 1: taken where
 * no other source has any. */
void spec_offer(struct spec_seq *s, int n_ids, int j, int32_t id);
/* Which of a pair of guesses at token j after n_ids known ones is more often right. */
int32_t spec_choose(struct spec_seq *s, const struct spec_taught *all, int n_ids, int j,
                    struct spec_pair pair);
/* Once per step, when ids[0 .. n_ids) are known: what became of the last proposal, for the sequence
 * and for all. */
void spec_learn(struct spec_seq *s, const int32_t *ids, int n_ids, struct spec_taught *all);
void spec_taught_init(struct spec_taught *all);
/* A new sequence begins with the rates of all before it. */
void spec_begin(struct spec_seq *s, const struct spec_taught *all);
/* The probability that the first j + 1 tokens of the last proposal are all right. */
double spec_chance(const struct spec_seq *s, int j);
/* The same of the drafter's next proposal. */
double spec_drafter_chance(const struct spec_seq *s, int j);

/* ---- plan.c: how many drafts of which sequence ---- */

struct spec_want {
    const struct spec_seq *s;
    int n;       /* drafts that it proposes */
    int k;       /* out: how many are worth computing */
    bool always; /* all of them, whatever that costs */
};

/* Steps without drafts and the drafter, [0], and with, [1], of 1, 2, 3 to 4, 5 to 8, ... sequences.
 */
#define SPEC_WINDOWS 9
struct spec_window {
    int n[2];
    double new_tok[2], ns[2];
    bool drafter; /* it ran in some of [1] */
    uint64_t off_until; /* beside so many there are no drafts before this plan */
};

/* Of steps lately, of one without drafts each: tokens and times, as they were expected. */
struct spec_gain {
    double tok, ns;
};

/* The drafter: the model's MTP layer, or a small model. Its passes take time in every step, whether
 * its drafts are computed or not, so it is on or off for many steps. */
struct spec_drafter {
    bool runs;                /* it did after the last step: some sequence wants its drafts */
    double ns;                /* of all its passes in a step that decodes, lately; 0 = never seen */
    double first_ns, more_ns; /* of the first; of each one more; 0 = never seen */
    int n_seen;               /* steps with passes that were seen; only the first few are counted */
    int n, n_row;             /* steps since it was weighed last, and sequences of all of them */
    double tok[2], time[2];   /* expected of steps lately: without it, with it */
    double prompt_ns;         /* of its passes over prompts, less what steps were charged with */
    uint64_t off_until, off_for; /* it does not run before this plan; how long the next time */
};

/* Passes of the drafter for a step: the first, over tokens that are known, and so many that took
 * its guess as the next token. */
struct spec_passes {
    double ns, more_ns;
    int n_more;
};

struct spec_plan {
    /* fixed after init */
    int n_want_max;
    bool always; /* compute all that is proposed, whatever it costs */
    int *heap;   /* [n_want_max] */
    /* changes */
    bool forced;   /* the step under way has such: it says nothing about what pays */
    bool bare;     /* it has no drafts, to know its time */
    bool no_drafter; /* while numbers are compared: as if the drafter had none */
    int now;         /* the window of the step under way */
    struct spec_window window[SPEC_WINDOWS];
    struct spec_gain gain[SPEC_WINDOWS][2]; /* with the drafter, and without */
    struct spec_drafter drafter;
    uint64_t n_step; /* plans made */
    uint64_t n_off;  /* times that drafts, or those of the drafter, were switched off */
};
/* Errors: NOMEM. */
sl_status spec_plan_init(struct spec_plan *p, int n_want_max, sl_err *err) BASE_MUST_USE;
void spec_plan_fini(struct spec_plan *p);
/* How long steps of n_tok decoding tokens take; 0 = not known. */
struct spec_clock {
    double (*step_ns)(void *user, int n_tok);
    void *user;
};
/* Set w[i].k of n sequences for the next step, in which n_seq sequences decode. */
void spec_plan_step(struct spec_plan *p, struct spec_want *w, int n, int n_seq,
                    const struct spec_clock *c);
/* The drafter does not pay for now: nobody runs it for the sake of later steps. */
bool spec_plan_drafter_is_off(const struct spec_plan *p);
/* How many guesses, at most n_max >= 1, the drafter makes for a step of n sequences, w[i].s,
 * if the next step takes them all: each costs a pass. */
int spec_plan_passes(const struct spec_plan *p, const struct spec_want *w, int n, int n_max,
                     const struct spec_clock *c);
/* The drafter ran for a step with prompts; decodes: and with sequences that decode. */
void spec_plan_observe_prompt(struct spec_plan *p, bool decodes, const struct spec_passes *l);
/* The step of the last plan only decoded: n_seq sequences got n_new tokens in ns; n_draft drafts
 * were computed. l: what the drafter did for it; NULL = nothing. */
void spec_plan_observe(struct spec_plan *p, int n_seq, int n_draft, int n_new, double ns,
                       const struct spec_passes *l);

#endif
