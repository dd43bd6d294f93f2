/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the router: as those of dev/dev.h. */
#ifndef DEV_ROUTE_H
#define DEV_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dev_mat dev_mat;
typedef struct dev_act dev_act;

#define DEV_ALL_MAX 5 /* matrices that take one input, in parts of which others need some alone */

/* Router: which K experts take each token, with what weights. Scores from logits [T, E]. */
struct dev_route {
    const float *logit;
    const float *bias; /* [E] host or NULL: used to choose, never to weigh */
    int n_tok, n_expert, k;
    int sigmoid;          /* 1 sigmoid scores, 0 softmax over all E */
    bool root;            /* in place of both sqrt(log(1 + exp(logit))) */
    int n_group, k_group; /* 1, 1 = none */
    int group_max;        /* group score: 1 = its best, 0 = sum of its two best */
    int norm; /* weights sum to 1 before scale; of a softmax: that of the chosen alone */
    float scale;
    const float *gain; /* NULL, or [E] host: at last a weight is multiplied by its expert's */
    int32_t *id;     /* [T, K] out, host-visible */
    float *weight;   /* [T, K] out */
    /* NULL, or host [V, k]: a token has the experts of the row of its id (dev_step.ids), in that
     * order, whatever its scores */
    const int32_t *of_id;
    uint64_t *count; /* [E] for how many tokens each expert was chosen, counted up; or NULL */
    /* NULL, or those that choose too: of a shared step each for its share, whose logits it has;
     * then it gets the others', and with them their rows of act as of dev_norm */
    const struct dev_ranks *ranks;
    dev_act *act; /* or NULL */
    const dev_mat *all[DEV_ALL_MAX];
};

#endif
