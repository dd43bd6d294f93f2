/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens may come next: walks of the vocabulary's trie.
 *
 * A summary is the walk from a set of states of one rule without what comes after the rule: the
 * tokens that stay inside or end exactly at its end, and the trie nodes where the rule may end with
 * bytes of a token still to come. It holds wherever the rule was called from. A mask is the
 * summaries of the state's stack tops, and from their leaving nodes on the walk of what follows.
 * Both are kept: a list of ids when few, a bitmap when many. */
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_internal.h"

#define FOUND_BYTES ((size_t)4 << 20) /* of kept masks and summaries */

static void set_tokens(const grammar_vocab *v, uint32_t *bits, int32_t id)
{
    for (; id >= 0; id = v->same[id])
        bits[id / 32] |= 1u << id % 32;
}

/* All tokens of at most n plain characters. */
static void set_plain(const grammar_vocab *v, uint32_t *bits, uint32_t n)
{
    uint32_t some = v->plain_n[n], all = v->plain_n[254];
    if (some > all / 2) {
        for (int i = 0; i < v->n_word; i++)
            bits[i] |= v->plain_bits[i];
        for (uint32_t i = some; i < all; i++)
            bits[v->plain_id[i] / 32] &= ~(1u << v->plain_id[i] % 32);
    } else {
        for (uint32_t i = 0; i < some; i++)
            bits[v->plain_id[i] / 32] |= 1u << v->plain_id[i] % 32;
    }
}

/* Walk the subtree below trie node t from node; plain > 0: subtrees of tokens with at most so many
 * plain characters are set already. */
struct walk {
    uint32_t t, node, plain;
    uint32_t *bits;
    bool leaves; /* note leaving nodes */
};

static sl_status walk(struct grammar_run *r, const struct walk *w, sl_err *err)
{
    const grammar_vocab *v = r->v;
    uint32_t row[GRAMMAR_MAX_TOKEN + 1], steps = 0;
    SL_TRY(grammar_run_expand(r, w->node, err));
    row[v->depth[w->t]] = r->node[w->node].row;
    for (uint32_t i = w->t + 1, end = w->t + v->size[w->t]; i < end;) {
        steps++;
        if (v->plain_max[i] <= w->plain) {
            i += v->size[i];
            continue;
        }
        uint32_t to = r->row[(size_t)row[v->depth[i] - 1] * 256 + v->byte[i]];
        if (!to) {
            i += v->size[i];
            continue;
        }
        if (v->token[i] >= 0) set_tokens(v, w->bits, v->token[i]);
        if (v->size[i] > 1) {
            const struct node *d = &r->node[to];
            if (!d->row) {
                SL_TRY(grammar_run_expand(r, to, err));
                d = &r->node[to];
            }
            row[v->depth[i]] = d->row;
            if (d->out && w->leaves) {
                SL_TRY(grammar_grow(&r->leave.v, &r->leave.cap, (uint64_t)r->leave.n + 1, 4, err));
                r->leave.v[r->leave.n++] = i;
            }
            if ((steps & 255) == 0) SL_TRY(grammar_run_spend(r, 256, err));
        }
        i++;
    }
    return grammar_run_spend(r, steps & 255, err);
}

/* ---- kept results ---- */

static sl_status keep_list(struct arena *a, void *dst, const void *src, size_t n, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_alloc(a, n, &p, err));
    memcpy(p, src, n);
    *(void **)dst = p;
    return SL_OK;
}

/* Keep r->bits and r->leave. */
static sl_status keep(struct grammar_run *r, int32_t *place, sl_err *err)
{
    const grammar_vocab *v = r->v;
    struct found f = {.n_leave = r->leave.n};
    uint32_t n = 0;
    for (int i = 0; i < v->n_word; i++)
        n += (uint32_t)__builtin_popcount(r->bits[i]);
    if (n >= (uint32_t)v->n_word) {
        SL_TRY(keep_list(&r->kept, &f.bits, r->bits, (size_t)v->n_word * 4, err));
    } else {
        void *p = NULL;
        SL_TRY(mem_arena_array(&r->kept, BASE_MAX(n, 1u), 4, &p, err));
        f.id = p;
        for (int i = 0; i < v->n_word; i++)
            for (uint32_t b = r->bits[i]; b; b &= b - 1)
                f.id[f.n_id++] = i * 32 + __builtin_ctz(b);
    }
    if (f.n_leave) SL_TRY(keep_list(&r->kept, &f.leave, r->leave.v, (size_t)f.n_leave * 4, err));
    SL_TRY(grammar_grow(&r->found, &r->cap_found, (uint64_t)r->n_found + 1, sizeof f, err));
    r->found[r->n_found] = f;
    *place = (int32_t)r->n_found++;
    return SL_OK;
}

static void set_found(const grammar_vocab *v, uint32_t *bits, const struct found *f)
{
    for (int i = 0; f->bits && i < v->n_word; i++)
        bits[i] |= f->bits[i];
    for (uint32_t i = 0; i < f->n_id; i++)
        bits[f->id[i] / 32] |= 1u << f->id[i] % 32;
}

static sl_status summary(struct grammar_run *r, uint32_t node, sl_err *err)
{
    const grammar_vocab *v = r->v;
    int32_t place = 0;
    if (r->node[node].summary >= 0) return SL_OK;
    memset(r->bits, 0, (size_t)v->n_word * 4);
    r->leave.n = 0;
    SL_TRY(grammar_run_expand(r, node, err));
    /* 254 stands for all: tokens of more characters count as not plain */
    uint32_t plain = BASE_MIN(r->node[node].plain, 254u);
    if (plain) set_plain(v, r->bits, plain);
    struct walk w = {.node = node, .bits = r->bits, .plain = plain, .leaves = true};
    SL_TRY(walk(r, &w, err));
    SL_TRY(keep(r, &place, err));
    r->node[node].summary = place;
    return SL_OK;
}

/* ---- masks ---- */

/* Into tops: the node's items, and where a rule may end at once, those of what follows it. */
static sl_status stack_tops(struct grammar_run *r, uint32_t node, struct item **out,
                            uint32_t *n_out, sl_err *err)
{
    uint32_t cap = r->node[node].n_item, n = cap;
    void *p = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_alloc(MEM_REQUEST, cap * sizeof(struct item), &p, err));
    struct item *it = p;
    memcpy(it, &r->item[r->node[node].item], n * sizeof *it);
    for (uint32_t i = 0; i < n; i++) {
        struct item local = {it[i].s, 0};
        uint32_t l = 0;
        if (!it[i].p) continue;
        SL_TRY_OUT(grammar_run_intern(r, &local, 1, &l, err));
        SL_TRY_OUT(grammar_run_expand(r, l, err));
        if (!r->node[l].out) continue;
        const struct node *d = &r->node[it[i].p];
        for (uint32_t k = 0; k < d->n_item; k++) {
            struct item add = r->item[d->item + k];
            bool there = false;
            for (uint32_t j = 0; j < n && !there; j++)
                there = it[j].s == add.s && it[j].p == add.p;
            if (there) continue;
            SL_TRY_OUT(grammar_run_spend(r, n, err));
            SL_TRY_OUT(grammar_grow(&it, &cap, (uint64_t)n + 1, sizeof *it, err));
            it[n++] = add;
        }
    }
    *out = it;
    *n_out = n;
    return SL_OK;
out:
    mem_free(it);
    return st;
}

static int by_stack(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    if (a->p != b->p) return a->p < b->p ? -1 : 1;
    return a->s < b->s ? -1 : a->s > b->s;
}

/* The part of a mask that comes from the states it[0..n) with the same stack below them. */
static sl_status one_top(struct grammar_run *r, struct item *it, uint32_t n, uint32_t *bits,
                         sl_err *err)
{
    uint32_t p = it[0].p, l = 0;
    for (uint32_t i = 0; i < n; i++)
        it[i].p = 0;
    SL_TRY(grammar_run_intern(r, it, n, &l, err));
    SL_TRY(summary(r, l, err));
    uint32_t at = (uint32_t)r->node[l].summary;
    set_found(r->v, bits, &r->found[at]);
    for (uint32_t i = 0; p && i < r->found[at].n_leave; i++) {
        struct walk w = {.t = r->found[at].leave[i], .node = p, .bits = bits};
        SL_TRY(walk(r, &w, err));
    }
    return SL_OK;
}

static sl_status new_mask(struct grammar_run *r, uint32_t node, uint32_t *bits, sl_err *err)
{
    struct item *it = NULL;
    uint32_t n = 0;
    int32_t place = 0;
    sl_status st = SL_OK;
    memset(bits, 0, (size_t)r->v->n_word * 4);
    SL_TRY(stack_tops(r, node, &it, &n, err));
    qsort(it, n, sizeof *it, by_stack);
    for (uint32_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && it[k].p == it[i].p;)
            k++;
        SL_TRY_OUT(one_top(r, it + i, k - i, bits, err));
    }
    SL_TRY_OUT(grammar_run_expand(r, node, err));
    for (int i = 0; r->node[node].out && i < r->v->n_end; i++)
        bits[r->v->end_id[i] / 32] |= 1u << r->v->end_id[i] % 32;
    bool any = false;
    for (int i = 0; i < r->v->n_word && !any; i++)
        any = bits[i] != 0;
    if (!any) {
        st = SL_FAIL(err, REQUEST, "grammar: no token of this model can come next");
        goto out;
    }
    memcpy(r->bits, bits, (size_t)r->v->n_word * 4);
    r->leave.n = 0;
    SL_TRY_OUT(keep(r, &place, err));
    r->node[node].mask = place;
out:
    mem_free(it);
    return st;
}

sl_status grammar_mask(grammar_run *r, int state, uint32_t *bits, sl_err *err)
{
    if (!r->v) return SL_FAIL(err, INTERNAL, "grammar: no vocabulary");
    SL_TRY(grammar_run_begin(r, err));
    if (r->kept.held > FOUND_BYTES) grammar_run_drop_found(r);
    uint32_t node = r->state[state];
    if (r->node[node].mask < 0) return new_mask(r, node, bits, err);
    memset(bits, 0, (size_t)r->v->n_word * 4);
    set_found(r->v, bits, &r->found[r->node[node].mask]);
    return SL_OK;
}
