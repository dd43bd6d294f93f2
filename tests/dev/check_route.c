/* SPDX-License-Identifier: Apache-2.0 */
/* The router. */
#include "check.h"

/* An independent restatement of the router: sort all experts. */
struct cand {
    double key;
    int id;
};
static int by_key(const void *a, const void *b)
{
    const struct cand *x = a, *y = b;
    return x->key > y->key ? -1 : x->key < y->key ? 1 : x->id - y->id;
}

static void route_want(const struct dev_route *p, int t, struct cand *out, double *score)
{
    double max = -1e300, sum = 0;
    int E = p->n_expert, per = E / p->n_group;
    for (int e = 0; e < E; e++)
        max = BASE_MAX(max, p->logit[t * E + e]);
    for (int e = 0; e < E; e++)
        sum += exp(p->logit[t * E + e] - max);
    struct cand group[64], all[256];
    int n = 0;
    for (int e = 0; e < E; e++) {
        double l = p->logit[t * E + e];
        score[e] = p->root      ? sqrt(log1p(exp(l)))
                   : p->sigmoid ? 1 / (1 + exp(-l))
                                : exp(l - max) / sum;
    }
    for (int gr = 0; gr < p->n_group; gr++) {
        struct cand in[256];
        for (int i = 0; i < per; i++)
            in[i] = (struct cand){score[gr * per + i] + (p->bias ? p->bias[gr * per + i] : 0), i};
        qsort(in, (size_t)per, sizeof *in, by_key);
        group[gr] = (struct cand){p->group_max || per == 1 ? in[0].key : in[0].key + in[1].key, gr};
    }
    qsort(group, (size_t)p->n_group, sizeof *group, by_key);
    for (int gr = 0; gr < p->k_group; gr++)
        for (int i = 0; i < per; i++) {
            int e = group[gr].id * per + i;
            all[n++] = (struct cand){score[e] + (p->bias ? p->bias[e] : 0), e};
        }
    qsort(all, (size_t)n, sizeof *all, by_key);
    for (int k = 0; k < p->k && p->of_id; k++)
        all[k].id = p->of_id[t * p->k + k]; /* token t's id is t */
    memcpy(out, all, sizeof *all * (size_t)p->k);
}

/* Softmax over the chosen K is what softmax over all E with weights that sum to 1 gives, far apart
 * as the logits may be. */
static void check_route_of_chosen(dev *d)
{
    enum { E = 32, K = 4 };
    for (int trial = 0; trial < 20; trial++) {
        float *logit = rand_array(E), weight[K];
        int32_t id[K];
        for (int e = 0; e < E; e++)
            logit[e] *= trial % 2 ? 1 : 30;
        dev_route(d, &(struct dev_step){.n_tok = 1},
                  &(struct dev_route){.logit = logit,
                                      .n_expert = E,
                                      .k = K,
                                      .n_group = 1,
                                      .k_group = 1,
                                      .norm = 1,
                                      .scale = 1,
                                      .id = id,
                                      .weight = weight});
        struct cand all[E];
        double want[K], tol[K], sum = 0;
        for (int e = 0; e < E; e++)
            all[e] = (struct cand){logit[e], e};
        qsort(all, E, sizeof *all, by_key);
        for (int k = 0; k < K; k++)
            sum += exp(all[k].key - all[0].key);
        for (int k = 0; k < K; k++) {
            want[k] = exp(all[k].key - all[0].key) / sum;
            tol[k] = (E + 200) * U * want[k] + 1e-35; /* exp's argument is rounded */
            if (id[k] != all[k].id) FAIL("route: chosen %d is %d, want %d", k, id[k], all[k].id);
        }
        compare("route of the chosen", weight, want, tol, K);
    }
}

void check_route(void)
{
    dev *d = NULL;
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 2, .acts = DEV_ACTS_F32}, &d, &err_));
    for (int trial = 0; trial < 40; trial++) {
        int per = rand_int(2, 16), G = trial % 2 ? rand_int(2, 8) : 1, kg = rand_int(1, G),
            E = per * G;
        int K = rand_int(1, per * kg < 8 ? per * kg : 8), T = rand_int(1, 80);
        float *logit = rand_array((int64_t)T * E), *bias = rand_array(E), weight[80 * 8];
        const float *gain = trial % 4 == 1 ? rand_array(E) : NULL;
        int32_t id[80 * 8], ids[80], of_id[80 * 8], perm[256];
        struct dev_route p = {.logit = logit,
                              .bias = trial % 3 ? bias : NULL,
                              .n_expert = E,
                              .k = K,
                              .sigmoid = trial / 2 % 2,
                              .root = trial % 5 == 2,
                              .of_id = trial % 7 == 3 ? of_id : NULL,
                              .n_group = G,
                              .k_group = kg,
                              .group_max = trial / 4 % 2,
                              .norm = trial / 8 % 2,
                              .scale = 2.5f,
                              .gain = gain,
                              .id = id,
                              .weight = weight};
        struct dev_step b = {.n_tok = T, .ids = ids};
        for (int t = 0; t < T; t++) {
            ids[t] = t;
            shuffled(perm, E);
            memcpy(of_id + t * K, perm, sizeof *perm * (size_t)K);
        }
        dev_route(d, &b, &p);
        for (int t = 0; t < T; t++) {
            struct cand want[8];
            double score[256], sum = 0, w[8], tol[8];
            route_want(&p, t, want, score);
            for (int k = 0; k < K; k++)
                sum += score[want[k].id];
            for (int k = 0; k < K; k++) {
                if (id[t * K + k] != want[k].id)
                    FAIL("route: trial %d token %d: expert %d is %d, want %d", trial, t, k,
                         id[t * K + k], want[k].id);
                w[k] = score[want[k].id] * (p.norm ? 2.5 / sum : 2.5);
                if (gain) w[k] *= gain[want[k].id];
                tol[k] = (E + 20) * U * fabs(w[k]);
            }
            compare("route", weight + t * K, w, tol, K);
        }
    }
    check_route_of_chosen(d);
    /* ties go to the lower number; whole groups too */
    float flat[16] = {0}, weight[3];
    int32_t id[3];
    struct dev_step one = {.n_tok = 1};
    dev_route(d, &one,
              &(struct dev_route){.logit = flat,
                                  .n_expert = 16,
                                  .k = 3,
                                  .sigmoid = 1,
                                  .n_group = 4,
                                  .k_group = 2,
                                  .scale = 1,
                                  .id = id,
                                  .weight = weight});
    if (id[0] != 0 || id[1] != 1 || id[2] != 2) FAIL("route: ties: %d %d %d", id[0], id[1], id[2]);
    g.n_checked++;
    dev_close(d);
}
