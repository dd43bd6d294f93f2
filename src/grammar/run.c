/* SPDX-License-Identifier: Apache-2.0 */
/* States of sequences. A node is a set of items (automaton state, node that goes on after its
 * rule), sorted and interned, so a node's number stands for the whole situation, stack included.
 * Nodes refer to older nodes only. A node that is stepped from gets a row of 256 transitions at
 * once.
 *
 * Callers of one rule at one place share one stack node, which keeps ambiguous grammars small;
 * rules are called in the order of their ranks, so all callers are known before the rule begins. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/grammar_internal.h"

#define FREE 0x80000000u
#define SEEN (4 * RUN_MAX_ITEM)

static size_t run_bytes(const struct grammar_run *r)
{
    return (size_t)r->n_node * sizeof *r->node + (size_t)r->n_item * sizeof *r->item +
           (size_t)r->n_slot * 4 + (size_t)r->n_row * 1024 + (size_t)r->n_found * sizeof *r->found +
           r->kept.held;
}

size_t grammar_run_bytes(const grammar_run *r)
{
    return sizeof *r + (size_t)r->cap_node * sizeof *r->node +
           (size_t)r->cap_item * sizeof *r->item + (size_t)r->n_slot * 4 +
           (size_t)r->cap_row * 1024 + (size_t)r->cap_found * sizeof *r->found + r->kept.held +
           SEEN * 4 + (size_t)r->g->n_rule * 12;
}

static sl_status too_much(sl_err *err)
{
    return SL_FAIL(err, LIMIT, "grammar: too ambiguous here: over the limit of steps or memory");
}

sl_status grammar_run_spend(struct grammar_run *r, int64_t n, sl_err *err)
{
    r->budget -= n;
    return r->budget < 0 ? too_much(err) : SL_OK;
}

/* ---- interning ---- */

static int by_item(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    if (a->s != b->s) return a->s < b->s ? -1 : 1;
    return a->p < b->p ? -1 : a->p > b->p;
}

static sl_status grow_slots(struct grammar_run *r, sl_err *err)
{
    uint32_t n = 1024;
    while (n <= 4 * r->n_node)
        n *= 2;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, n, 4, &p, err));
    uint32_t *s = p;
    for (uint32_t i = 1; i < r->n_node; i++) {
        uint32_t h = r->node[i].hash & (n - 1);
        while (s[h])
            h = (h + 1) & (n - 1);
        s[h] = i;
    }
    mem_free(r->slot);
    r->slot = s;
    r->n_slot = n;
    return SL_OK;
}

static sl_status find_or_add(struct grammar_run *r, const struct item *it, uint32_t n,
                             uint32_t *out, sl_err *err)
{
    uint64_t h64 = hash_bytes(it, n * sizeof *it, n);
    uint32_t hash = (uint32_t)(h64 ^ h64 >> 32);
    if (2 * r->n_node >= r->n_slot) SL_TRY(grow_slots(r, err));
    uint32_t h = hash & (r->n_slot - 1);
    for (; r->slot[h]; h = (h + 1) & (r->n_slot - 1)) {
        const struct node *d = &r->node[r->slot[h]];
        if (d->hash == hash && d->n_item == n &&
            memcmp(&r->item[d->item], it, n * sizeof *it) == 0) {
            *out = r->slot[h];
            return SL_OK;
        }
    }
    if (run_bytes(r) > GRAMMAR_RUN_BYTES) return too_much(err);
    SL_TRY(grammar_grow(&r->node, &r->cap_node, (uint64_t)r->n_node + 1, sizeof *r->node, err));
    SL_TRY(grammar_grow(&r->item, &r->cap_item, (uint64_t)r->n_item + n, sizeof *r->item, err));
    memcpy(&r->item[r->n_item], it, n * sizeof *it);
    r->node[r->n_node] =
        (struct node){.item = r->n_item, .n_item = n, .hash = hash, .mask = -1, .summary = -1};
    r->n_item += n;
    r->slot[h] = r->n_node;
    *out = r->n_node++;
    return SL_OK;
}

sl_status grammar_run_intern(struct grammar_run *r, struct item *it, uint32_t n, uint32_t *out,
                             sl_err *err)
{
    uint32_t m = 0;
    bool ends = false;
    for (uint32_t i = 0; i < n; i++)
        ends |= it[i].s == 0 && it[i].p;
    if (ends) { /* a rule's end is what follows it */
        for (uint32_t i = 0; i < n; i++)
            m += it[i].s || !it[i].p ? 1 : r->node[it[i].p].n_item;
        if (m > RUN_MAX_ITEM) return too_much(err);
        SL_TRY(grammar_grow(&r->make, &r->cap_make, (uint64_t)m + 1, sizeof *r->make, err));
        m = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct node *d = &r->node[it[i].p];
            if (it[i].s || !it[i].p) {
                r->make[m++] = it[i];
                continue;
            }
            memcpy(&r->make[m], &r->item[d->item], d->n_item * sizeof *it);
            m += d->n_item;
        }
        it = r->make;
        n = m;
    }
    SL_TRY(grammar_run_spend(r, n, err));
    if (n > 1) qsort(it, n, sizeof *it, by_item);
    m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!i || it[i].s != it[i - 1].s || it[i].p != it[i - 1].p) it[m++] = it[i];
    *out = 0;
    return m ? find_or_add(r, it, m, out, err) : SL_OK;
}

/* ---- closures ---- */

void grammar_run_work_begin(struct grammar_run *r)
{
    if (r->n_seen > 64)
        memset(r->seen, 0, SEEN * sizeof *r->seen);
    else
        for (uint32_t i = 0; i < r->n_work; i++) { /* the few that are there */
            uint64_t k = (uint64_t)r->work[i].s << 32 | r->work[i].p;
            uint32_t h = (uint32_t)(k * 0x9e3779b97f4a7c15u >> 40) & (SEEN - 1);
            while (r->seen[h]) {
                r->seen[h] = 0;
                h = (h + 1) & (SEEN - 1);
            }
        }
    r->n_seen = 0;
    r->n_work = 0;
}

sl_status grammar_run_work_put(struct grammar_run *r, uint32_t s, uint32_t p, sl_err *err)
{
    uint64_t k = (uint64_t)s << 32 | p;
    uint32_t h = (uint32_t)(k * 0x9e3779b97f4a7c15u >> 40) & (SEEN - 1);
    for (; r->seen[h]; h = (h + 1) & (SEEN - 1)) {
        const struct item *w = &r->work[r->seen[h] - 1];
        if (w->s == s && w->p == p) return SL_OK;
    }
    if (r->n_work == RUN_MAX_ITEM) return too_much(err);
    SL_TRY(grammar_grow(&r->work, &r->cap_work, (uint64_t)r->n_work + 1, sizeof *r->work, err));
    r->work[r->n_work++] = (struct item){s, p};
    r->seen[h] = r->n_work;
    r->n_seen++;
    return SL_OK;
}

static void heap_push(struct grammar_run *r, uint32_t rank)
{
    uint32_t i = r->n_heap++;
    for (; i && r->heap[(i - 1) / 2] > rank; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = rank;
}

static uint32_t heap_pop(struct grammar_run *r)
{
    uint32_t top = r->heap[0], last = r->heap[--r->n_heap], i = 0;
    for (;;) {
        uint32_t k = 2 * i + 1;
        if (k >= r->n_heap) break;
        if (k + 1 < r->n_heap && r->heap[k + 1] < r->heap[k]) k++;
        if (r->heap[k] >= last) break;
        r->heap[i] = r->heap[k];
        i = k;
    }
    r->heap[i] = last;
    return top;
}

static sl_status put_call(struct grammar_run *r, uint32_t rule, uint32_t ret, uint32_t p,
                          sl_err *err)
{
    SL_TRY(grammar_grow(&r->caller, &r->cap_caller, (uint64_t)r->n_caller + 2, sizeof *r->caller,
                        err));
    if (!r->call_head[rule]) heap_push(r, r->g->rank[rule]);
    r->caller[++r->n_caller] = (struct caller){rule, ret, p, r->call_head[rule]};
    r->call_head[rule] = r->n_caller;
    return SL_OK;
}

/* Follow everything in work from place `from` that takes no byte, but for calls, which are noted.
 */
static sl_status follow(struct grammar_run *r, uint32_t from, struct node *n, sl_err *err)
{
    const grammar *g = r->g;
    for (uint32_t i = from; i < r->n_work; i++) {
        struct item w = r->work[i];
        if (w.s == 0) {
            if (w.p == 0) n->out = 1;
            const struct node *d = &r->node[w.p];
            for (uint32_t k = 0; w.p && k < d->n_item; k++)
                SL_TRY(
                    grammar_run_work_put(r, r->item[d->item + k].s, r->item[d->item + k].p, err));
            continue;
        }
        n->plain = BASE_MAX(n->plain, g->plain[w.s]);
        for (uint32_t e = g->first[w.s]; e < g->first[w.s + 1]; e++) {
            const struct edge *x = &g->edge[e];
            if (x->kind == EDGE_BYTE) {
                SL_TRY(grammar_grow(&r->target, &r->cap_target, (uint64_t)r->n_target + 1,
                                    sizeof *r->target, err));
                r->target[r->n_target++] =
                    (struct target){x->to, w.p, (uint8_t)EDGE_LO(x), (uint8_t)EDGE_HI(x)};
                continue;
            }
            if (x->kind == EDGE_CALL) SL_TRY(put_call(r, x->arg, x->to, w.p, err));
            if (x->kind == EDGE_EPS || g->nullable[x->arg])
                SL_TRY(grammar_run_work_put(r, x->to, w.p, err));
        }
        SL_TRY(grammar_run_spend(r, 1 + g->first[w.s + 1] - g->first[w.s], err));
    }
    return SL_OK;
}

static sl_status call_rules(struct grammar_run *r, struct node *n, sl_err *err)
{
    while (r->n_heap) {
        uint32_t rule = r->by_rank[heap_pop(r)], q = 0, m = 0, from = r->n_work;
        for (uint32_t c = r->call_head[rule]; c; c = r->caller[c].next)
            m++;
        if (m > RUN_MAX_ITEM) return too_much(err);
        struct item few[8], *it = few;
        void *big = NULL;
        if (m > 8) {
            SL_TRY(mem_alloc(MEM_REQUEST, m * sizeof *it, &big, err));
            it = big;
        }
        m = 0;
        for (uint32_t c = r->call_head[rule]; c; c = r->caller[c].next)
            it[m++] = (struct item){r->caller[c].ret, r->caller[c].p};
        r->call_head[rule] = 0;
        /* the only caller has nothing left to do: go on with what follows it */
        sl_status st = SL_OK;
        if (m == 1 && it[0].s == 0)
            q = it[0].p;
        else
            st = grammar_run_intern(r, it, m, &q, err);
        mem_free(big);
        SL_TRY(st);
        SL_TRY(grammar_run_work_put(r, r->g->start[rule], q, err));
        SL_TRY(follow(r, from, n, err));
    }
    return SL_OK;
}

/* ---- rows ---- */

static sl_status new_row(struct grammar_run *r, uint32_t *out, sl_err *err)
{
    if (run_bytes(r) > GRAMMAR_RUN_BYTES) return too_much(err);
    SL_TRY(grammar_grow(&r->row, &r->cap_row, (uint64_t)r->n_row + 1, 1024, err));
    *out = r->n_row++;
    return SL_OK;
}

/* One interval of bytes that all go to the same node. */
static sl_status fill(struct grammar_run *r, uint32_t row, int lo, int hi, uint8_t *live,
                      sl_err *err)
{
    uint32_t n = 0, to = 0;
    for (uint32_t i = 0; i < r->n_target; i++)
        if (r->target[i].lo <= lo && r->target[i].hi >= lo)
            r->work[n++] = (struct item){r->target[i].to, r->target[i].p};
    SL_TRY(grammar_run_spend(r, 1 + r->n_target / 4, err));
    if (n) SL_TRY(grammar_run_intern(r, r->work, n, &to, err));
    *live |= to != 0;
    for (int b = lo; b <= hi; b++)
        r->row[(size_t)row * 256 + (size_t)b] = to;
    return SL_OK;
}

static sl_status fill_all(struct grammar_run *r, uint32_t row, uint8_t *live, sl_err *err)
{
    bool cut[257] = {[0] = true, [256] = true};
    SL_TRY(grammar_grow(&r->work, &r->cap_work, (uint64_t)r->n_target + 1, sizeof *r->work, err));
    for (uint32_t i = 0; i < r->n_target; i++) {
        cut[r->target[i].lo] = true;
        cut[r->target[i].hi + 1] = true;
    }
    for (int lo = 0, b = 1; b <= 256; b++)
        if (cut[b]) {
            SL_TRY(fill(r, row, lo, b - 1, live, err));
            lo = b;
        }
    return SL_OK;
}

static sl_status expand(struct grammar_run *r, uint32_t node, struct node *n, sl_err *err)
{
    grammar_run_work_begin(r);
    r->n_target = r->n_caller = 0;
    for (uint32_t k = 0; k < n->n_item; k++)
        SL_TRY(grammar_run_work_put(r, r->item[n->item + k].s, r->item[n->item + k].p, err));
    SL_TRY(follow(r, 0, n, err));
    SL_TRY(call_rules(r, n, err));
    if (r->n_target > 8 * RUN_MAX_ITEM) return too_much(err);
    grammar_run_work_begin(r);
    SL_TRY(new_row(r, &n->row, err));
    SL_TRY(fill_all(r, n->row, &n->live, err));
    r->node[node].row = n->row;
    r->node[node].out = n->out;
    r->node[node].live = n->live;
    r->node[node].plain = n->plain;
    return SL_OK;
}

sl_status grammar_run_expand(struct grammar_run *r, uint32_t node, sl_err *err)
{
    struct node n = r->node[node];
    if (n.row) return SL_OK;
    sl_status st = expand(r, node, &n, err);
    if (st) { /* leave the workspace empty */
        while (r->n_heap)
            r->call_head[r->by_rank[heap_pop(r)]] = 0;
        for (uint32_t c = 1; c <= r->n_caller; c++)
            r->call_head[r->caller[c].rule] = 0;
        memset(r->seen, 0, SEEN * sizeof *r->seen);
        r->n_work = r->n_seen = 0;
    }
    return st;
}

/* ---- giving back what no sequence needs ---- */

void grammar_run_drop_found(struct grammar_run *r)
{
    mem_arena_fini(&r->kept);
    r->n_found = 0;
    for (uint32_t i = 0; i < r->n_node; i++)
        r->node[i].mask = r->node[i].summary = -1;
}

/* Keep the nodes that states refer to, in their order; drop all rows and masks. */
static sl_status collect(struct grammar_run *r, sl_err *err)
{
    void *p = NULL;
    uint32_t n = 1, n_item = 0;
    SL_TRY(mem_alloc_array(MEM_REQUEST, r->n_node, 4, &p, err));
    uint32_t *to = p;
    grammar_run_drop_found(r);
    for (uint32_t i = 0; i < r->n_state; i++)
        if (!(r->state[i] & FREE)) to[r->state[i]] = 1;
    for (uint32_t i = r->n_node; i-- > 1;)
        for (uint32_t k = 0; to[i] && k < r->node[i].n_item; k++)
            to[r->item[r->node[i].item + k].p] = 1;
    to[0] = 0;
    for (uint32_t i = 1; i < r->n_node; i++) {
        if (!to[i]) continue;
        struct node d = r->node[i];
        for (uint32_t k = 0; k < d.n_item; k++) {
            struct item it = r->item[d.item + k];
            it.p = to[it.p];
            r->item[n_item + k] = it;
        }
        d.item = n_item;
        d.row = 0;
        d.out = d.live = d.plain = 0;
        uint64_t h64 = hash_bytes(&r->item[n_item], d.n_item * sizeof *r->item, d.n_item);
        d.hash = (uint32_t)(h64 ^ h64 >> 32);
        n_item += d.n_item;
        r->node[n] = d;
        to[i] = n++;
    }
    for (uint32_t i = 0; i < r->n_state; i++)
        if (!(r->state[i] & FREE)) r->state[i] = to[r->state[i]];
    mem_free(to);
    r->n_node = n;
    r->n_item = n_item;
    r->n_row = 1;
    mem_free(r->slot);
    r->slot = NULL;
    r->n_slot = 0;
    return grow_slots(r, err);
}

sl_status grammar_run_begin(struct grammar_run *r, sl_err *err)
{
    r->budget = RUN_BUDGET;
    return run_bytes(r) > GRAMMAR_RUN_BYTES / 2 ? collect(r, err) : SL_OK;
}

/* ---- states ---- */

static sl_status new_state(struct grammar_run *r, uint32_t node, int *out, sl_err *err)
{
    uint32_t i = r->free_state;
    if (i != UINT32_MAX) {
        r->free_state = r->state[i] == (FREE | 0x7fffffff) ? UINT32_MAX : r->state[i] & ~FREE;
    } else {
        if (r->n_state >= 1 << 20) return SL_FAIL(err, LIMIT, "grammar: too many sequences");
        SL_TRY(grammar_grow(&r->state, &r->cap_state, (uint64_t)r->n_state + 1, 4, err));
        i = r->n_state++;
    }
    r->state[i] = node;
    *out = (int)i;
    return SL_OK;
}

sl_status grammar_state_open(grammar_run *r, int *out, sl_err *err)
{
    struct item it = {r->g->start[0], 0};
    uint32_t node = 0;
    SL_TRY(grammar_run_begin(r, err));
    SL_TRY(grammar_run_intern(r, &it, 1, &node, err));
    return new_state(r, node, out, err);
}

sl_status grammar_state_copy(grammar_run *r, int state, int *out, sl_err *err)
{
    return new_state(r, r->state[state], out, err);
}

void grammar_state_close(grammar_run *r, int state)
{
    if (state < 0) return;
    r->state[state] = FREE | (r->free_state == UINT32_MAX ? 0x7fffffff : r->free_state);
    r->free_state = (uint32_t)state;
}

static sl_status where_is(struct grammar_run *r, uint32_t node, enum grammar_where *where,
                          sl_err *err)
{
    SL_TRY(grammar_run_expand(r, node, err));
    const struct node *d = &r->node[node];
    *where = !d->out ? GRAMMAR_RUNNING : d->live ? GRAMMAR_CAN_STOP : GRAMMAR_DONE;
    return SL_OK;
}

sl_status grammar_state_where(grammar_run *r, int state, enum grammar_where *where, sl_err *err)
{
    SL_TRY(grammar_run_begin(r, err));
    return where_is(r, r->state[state], where, err);
}

static sl_status push(struct grammar_run *r, int state, const uint8_t *p, size_t n,
                      enum grammar_where *where, sl_err *err)
{
    uint32_t node = r->state[state];
    for (size_t i = 0; i < n; i++) {
        SL_TRY(grammar_run_expand(r, node, err));
        node = r->row[(size_t)r->node[node].row * 256 + p[i]];
        if (!node) {
            *where = GRAMMAR_DEAD;
            return SL_OK;
        }
        if ((i & 1023) == 1023) { /* a long text takes as many budgets as it needs */
            int keep = 0;
            SL_TRY(new_state(r, node, &keep, err));
            sl_status st = grammar_run_begin(r, err);
            node = r->state[keep];
            grammar_state_close(r, keep);
            if (st) return st;
        }
    }
    SL_TRY(where_is(r, node, where, err));
    r->state[state] = node;
    return SL_OK;
}

sl_status grammar_push_bytes(grammar_run *r, int state, const char *p, size_t n,
                             enum grammar_where *where, sl_err *err)
{
    SL_TRY(grammar_run_begin(r, err));
    return push(r, state, (const uint8_t *)p, n, where, err);
}

sl_status grammar_push(grammar_run *r, int state, int32_t token, enum grammar_where *where,
                       sl_err *err)
{
    const grammar_vocab *v = r->v;
    SL_TRY(grammar_run_begin(r, err));
    *where = GRAMMAR_DEAD;
    if (!v || token < 0 || token >= v->n_vocab) return SL_OK;
    if (v->kind[token] == GRAMMAR_TOKEN_END) {
        SL_TRY(where_is(r, r->state[state], where, err));
        *where = *where == GRAMMAR_RUNNING ? GRAMMAR_DEAD : GRAMMAR_DONE;
        return SL_OK;
    }
    if (!v->n_bytes[token]) return SL_OK;
    return push(r, state, v->bytes[token], v->n_bytes[token], where, err);
}

/* The only byte that may follow an expanded node; -1: there are more, or none. */
static int only_byte(const struct grammar_run *r, uint32_t node)
{
    const uint32_t *row = &r->row[(size_t)r->node[node].row * 256];
    int only = -1;
    for (int b = 0; b < 256; b++) {
        if (!row[b]) continue;
        if (only >= 0) return -1;
        only = b;
    }
    return only;
}

sl_status grammar_forced_bytes(grammar_run *r, int state, char *out, size_t max, size_t *n,
                               sl_err *err)
{
    *n = 0;
    SL_TRY(grammar_run_begin(r, err));
    for (uint32_t node = r->state[state]; *n < max;) {
        SL_TRY(grammar_run_expand(r, node, err));
        int b = r->node[node].out ? -1 : only_byte(r, node);
        if (b < 0) break;
        out[(*n)++] = (char)b;
        node = r->row[(size_t)r->node[node].row * 256 + (size_t)b];
    }
    return SL_OK;
}

/* ---- life ---- */

sl_status grammar_run_open(const grammar *g, const grammar_vocab *v, grammar_run **out, sl_err *err)
{
    void *p = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof(grammar_run), &p, err));
    grammar_run *r = p;
    r->g = g;
    r->v = v;
    r->free_state = UINT32_MAX;
    mem_arena_init(&r->kept, MEM_REQUEST, 0);
    const struct {
        void *p;
        size_t n;
    } want[] = {{&r->seen, SEEN},
                {&r->call_head, (size_t)g->n_rule},
                {&r->heap, (size_t)g->n_rule},
                {&r->by_rank, (size_t)g->n_rule},
                {&r->bits, v ? (size_t)v->n_word : 1}};
    for (int i = 0; i < BASE_COUNT_OF(want); i++)
        SL_TRY_OUT(mem_alloc_array(MEM_REQUEST, want[i].n, 4, want[i].p, err));
    for (int i = 0; i < g->n_rule; i++)
        r->by_rank[g->rank[i]] = (uint32_t)i;
    SL_TRY_OUT(grammar_grow(&r->node, &r->cap_node, 1, sizeof *r->node, err));
    SL_TRY_OUT(grammar_grow(&r->item, &r->cap_item, 1, sizeof *r->item, err));
    SL_TRY_OUT(grammar_grow(&r->work, &r->cap_work, 1, sizeof *r->work, err));
    SL_TRY_OUT(grammar_grow(&r->row, &r->cap_row, 1, 1024, err));
    r->node[0] = (struct node){.mask = -1, .summary = -1};
    memset(r->row, 0, 1024);
    r->n_node = r->n_row = 1;
    SL_TRY_OUT(grow_slots(r, err));
    *out = r;
    return SL_OK;
out:
    grammar_run_close(r);
    return st;
}

void grammar_run_close(grammar_run *r)
{
    if (!r) return;
    grammar_run_drop_found(r);
    void *const part[] = {r->node, r->item, r->slot,    r->row,      r->found,   r->state,
                          r->work, r->seen, r->caller,  r->heap,     r->by_rank, r->target,
                          r->make, r->bits, r->leave.v, r->call_head};
    for (int i = 0; i < BASE_COUNT_OF(part); i++)
        mem_free(part[i]);
    mem_free(r);
}
