/* SPDX-License-Identifier: Apache-2.0 */
/* How many different experts tokens read that follow each other: what a step of several tokens of
 * one sequence costs a mixture. Tokens are computed one by one, and after each of them the counts
 * of every layer say which experts it chose. */
#include "eval_experts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST EVAL_EXPERTS_MOST

sl_status eval_experts_open(struct eval_experts *x, const struct compute *c, sl_err *err)
{
    void *p = NULL;
    size_t n_layer = (size_t)(c->mi.n_layer), n = (size_t)c->mi.n_expert;
    memset(x, 0, sizeof *x);
    if (!n) return SL_FAIL(err, REQUEST, "--experts: %.100s has no routed experts", c->mi.name);
    x->e = c->e;
    x->n_layer = c->mi.n_layer;
    x->n_expert = c->mi.n_expert;
    x->n_used = c->mi.n_expert_used;
    SL_TRY(mem_alloc_array(MEM_MISC, (n_layer + 1) * n, sizeof *x->count, &p, err));
    x->count = p;
    SL_TRY(mem_alloc_array(MEM_MISC, n_layer * n, sizeof *x->at, &p, err));
    x->at = p;
    return SL_OK;
}

void eval_experts_close(struct eval_experts *x)
{
    mem_free(x->count);
    mem_free(x->at);
}

void eval_experts_begin(struct eval_experts *x)
{
    x->n_tok = -1;
}

/* Which experts of a layer were chosen for the token. */
static sl_status layer(struct eval_experts *x, int il, sl_err *err)
{
    uint64_t *old = x->count + (int64_t)il * x->n_expert;
    uint64_t *new = x->count + (int64_t)x->n_layer * x->n_expert;
    int64_t *at = x->at + (int64_t)il * x->n_expert;
    int n = sl_routed(x->e, il, new, x->n_expert);
    if (n < 0) return SL_FAIL(err, DEVICE, "--experts: the device has lost its counts");
    for (int i = 0; i < n; i++) {
        if (x->n_tok < 0)
            at[i] = -MOST; /* of no token of this window */
        else if (new[i] != old[i])
            at[i] = x->n_tok;
        for (int q = 1; q <= MOST && q <= x->n_tok + 1; q++)
            x->sum[q - 1] += at[i] > x->n_tok - q;
    }
    for (int q = 1; n > 0 && q <= MOST && q <= x->n_tok + 1; q++)
        x->n[q - 1]++;
    memcpy(old, new, (size_t)n * sizeof *old);
    return SL_OK;
}

sl_status eval_experts_token(struct eval_experts *x, sl_err *err)
{
    for (int il = 0; il < x->n_layer; il++)
        SL_TRY(layer(x, il, err));
    x->n_tok++;
    return SL_OK;
}

double eval_experts_mean(const struct eval_experts *x, int q)
{
    return x->n[q - 1] ? x->sum[q - 1] / (double)x->n[q - 1] : NAN;
}

double eval_experts_even(const struct eval_experts *x, int q)
{
    return x->n_expert * (1 - pow(1 - (double)x->n_used / x->n_expert, q));
}

void eval_experts_print(const struct eval_experts *x)
{
    printf("experts read  ");
    for (int q = 1; q <= MOST; q++)
        printf(" %.2f", eval_experts_mean(x, q));
    printf(" of %d by 1 to %d tokens in a row; even ones:", x->n_expert, MOST);
    for (int q = 1; q <= MOST; q++)
        printf(" %.2f", eval_experts_even(x, q));
    putchar('\n');
}

static void put_list(const char *key, const struct eval_experts *x,
                     double (*of)(const struct eval_experts *x, int q))
{
    printf(",\"%s\":[", key);
    for (int q = 1; q <= MOST; q++) {
        double v = of(x, q);
        if (isnan(v))
            printf("%snull", q > 1 ? "," : "");
        else
            printf("%s%.6g", q > 1 ? "," : "", v);
    }
    putchar(']');
}

void eval_experts_json(const struct eval_experts *x)
{
    printf(",\"experts\":%d,\"experts_used\":%d", x->n_expert, x->n_used);
    put_list("distinct_experts", x, eval_experts_mean);
    put_list("distinct_experts_even", x, eval_experts_even);
}
