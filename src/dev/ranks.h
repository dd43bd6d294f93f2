/* SPDX-License-Identifier: Apache-2.0 */
/* What a device asks of the ranks that it shares matrices with, and operators that are nothing
 * else; part of dev.h. */
#ifndef DEV_RANKS_H
#define DEV_RANKS_H

#include <stdbool.h>
#include <stdint.h>

struct dev;
struct dev_act;

/* Where the rows of matrices are shared among ranks, a rank computes some columns of each output:
 * part[0] of them rank 0, then part[1] rank 1 and so on. join makes rows whole: y [n_row, n] from
 * every rank's x [n_row, its part], on the thread that runs the device's operators. */
struct dev_joined {
    struct dev *d;
    const float *x;
    float *y;
    int64_t ldx, ldy; /* of columns: from row to row; 0 = as many as there are columns */
    int n_row, n;
    const int32_t *part;
    const int32_t *of; /* NULL, or [n_row]: row t is that of rank of[t], whose x has n columns */
    /* NULL, or [n_rank]: x are n_of[rank] whole rows, y [n_row, part[rank]] this rank's columns of
     * those of rank 0, then of rank 1 and so on; without part all of their columns */
    const int32_t *n_of;
    /* NULL, or [n_rank, n_rank]: x are rows for rank 0, then for rank 1 and so on, y those for this
     * rank, of rank 0, then of rank 1 and so on; from which to which how many go */
    const int32_t *count;
    bool home; /* of use to rank 0 alone: elsewhere y is not used */
    /* with part and n_of: x [n_row, part[rank]] are this rank's columns, as without n_of, and the
     * rows go to one rank each, n_of[0] to rank 0, then n_of[1] to rank 1 and so on; y are this
     * rank's */
    bool each;
    /* of columns, NULL, or in place of y: called for every row that comes here, by many workers;
     * row 0 is the first of them, cols[r] rank r's columns of it */
    void (*take)(void *arg, int row, int worker, const float *const *cols);
    void *arg;
    /* of whole rows without part, in place of x, y and n: what each has in n_strip places */
    const struct dev_strip *strip;
    int n_strip;
    bool begin; /* of n_of without part, or count: only begun, and over at the end (dev_ranks) */
};
#define DEV_STRIPS 12
struct dev_strip {
    const void *x;
    void *y;
    int n; /* words of 4 bytes */
    int64_t ld;
    int group; /* 0, or words of a group: of a row those matter that the strip before lists */
};
#define DEV_RANK_MAX 64
struct dev_ranks {
    void (*join)(void *user, const struct dev_joined *j);
    /* NULL, or: the first join that was begun and not ended is over; until then its rows, counts
     * and y stay what they are. */
    void (*end)(void *user);
    void *user;
    int rank, n_rank;
    /* Some of them, or parts of theirs, are on devices: what they join is f32 as it was computed,
     * and each computes all of what it has whole. */
    bool plain;
    bool is_etp; /* those that share experts by rows: not all take part in their joins */
    /* Of a device whose memory is not the host's: three times n_room values of the host's (with
     * is_etp twice), for the rows of one join each; else NULL */
    float *room;
    int64_t n_room;
};
struct dev_pages { /* dev_pages_near */
    int64_t n, near;
};
/* Where each expert that is spread is shared by rows, among ranks that follow each other: these
 * give each other hidden values, and of the rows of outputs each gets some, whole; from there they
 * go on as those of experts that are not shared. */
struct dev_etp {
    const struct dev_ranks *ranks;
    const int32_t *h_part, *part; /* [n_rank] of F and D: each rank's columns */
    float *h_all;                 /* room for [all rows of experts, F] */
    float *y;                     /* [its rows of them, D] */
    int32_t *n_of;                /* room for [n_rank], host */
};

/* Where every rank has tokens of its own, and the experts are spread over all of them: ranks give
 * each other the rows, and what experts make of them. A rank's own tokens may be some of those that
 * it has in the step; then y has the rows of these alone. All but x and act is host memory. */
struct dev_spread {
    const struct dev_ranks *ranks;
    const int32_t *n_tok_of; /* [n_rank] host: of the step under way; T is this rank's */
    int tok0;                /* the first of them in this rank's step */
    const float *x;          /* [tokens of its step, D] what act was prepared from */
    bool swap;               /* a row goes to the ranks that have an expert of it; else to all */
    struct dev_act *act;     /* room for the rows of all ranks */
    int n_all;      /* tokens of all ranks, at most: T is that of one, W dev_combine_words of D */
    float *send;    /* [T, max(D + K, min(K etp, n_rank) D)], etp ranks share an expert */
    float *give;    /* [n_all * K, W] apart: others may still read what was sent */
    float *in;      /* [n_all, D + K] */
    float *back;    /* [T * K, W] */
    int32_t *id;    /* [n_all, K] */
    int32_t *list;  /* [n_all * K] */
    int32_t *count; /* [n_rank, n_rank] host */
};
/* The experts' operator in parts, with dev_spread: what one has sent is on its way while others
 * run, until the next part of the same experts. ASK: what was chosen goes to all, without swap with
 * the rows. GIVE: with swap rows go to experts. TERMS: these compute, and what they give goes back.
 * SUM: y. */
enum dev_moe_phase { DEV_MOE_WHOLE, DEV_MOE_ASK, DEV_MOE_GIVE, DEV_MOE_TERMS, DEV_MOE_SUM };

/* Of a step with that many tokens for each rank, or more, every rank has a share of the tokens: it
 * computes for those alone what all ranks would. */
#define DEV_SHARE_ROWS 16
static inline bool dev_is_shared(const struct dev_ranks *r, int n_tok)
{
    return r && !r->plain && n_tok >= DEV_SHARE_ROWS * r->n_rank;
}
/* This rank's share: all of them where they are not shared. */
struct dev_share {
    int begin, n;
};
static inline struct dev_share dev_share_of(const struct dev_ranks *r, int rank, int n_tok)
{
    if (!dev_is_shared(r, n_tok)) return (struct dev_share){0, n_tok};
    int begin = (int)((int64_t)n_tok * rank / r->n_rank);
    return (struct dev_share){begin, (int)((int64_t)n_tok * (rank + 1) / r->n_rank) - begin};
}

/* ---- parameters of operators, as others in dev.h ---- */
/* y [n_row, n]: the columns x of all ranks side by side; or, with n_of, the whole rows x of all
 * ranks after each other, n_of[rank] of this one, its share. home: of use to rank 0 alone. own: of
 * a shared step only this rank's share comes to its place in y. */
struct dev_join {
    const float *x;
    float *y;
    int n, n_row;
    bool home, own;
    const int32_t *part; /* [n_rank] host */
    const int32_t *n_of; /* [n_rank] host, in place of part; or NULL */
    const struct dev_ranks *ranks;
};
/* y [T, n]: x [T, n] of the rank that has the token's row of a table: rows row0[r] to row0[r + 1]
 * are rank r's. of: room for T ranks. */
struct dev_pick {
    const float *x;
    float *y;
    int n;
    const int32_t *row0; /* [n_rank + 1] host */
    int32_t *of;         /* host */
    const struct dev_ranks *ranks;
};

#endif
