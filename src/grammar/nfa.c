/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions to an automaton, from back to front: an expression is compiled in front of the state
 * that follows it. Then what cannot lead to an end is taken out, so that every state that a run
 * reaches can be completed; rules that can be empty are found; and rules are ranked so that one
 * that may begin with another comes first, which is impossible exactly for left recursion. */
#include <stdlib.h>
#include <string.h>

#include "grammar/nfa_internal.h"

sl_status grammar_grow(void *pp, uint32_t *cap, uint64_t n, size_t size, sl_err *err)
{
    void **p = pp;
    void *q = NULL;
    uint64_t want = *cap ? *cap : 64;
    if (n <= *cap) return SL_OK;
    while (want < n)
        want *= 2;
    if (want > UINT32_MAX) return SL_FAIL(err, NOMEM, "out of memory: grammar");
    SL_TRY(mem_realloc(MEM_REQUEST, *p, want * size, &q, err));
    *p = q;
    *cap = (uint32_t)want;
    return SL_OK;
}

uint32_t grammar_nfa_state(struct nfa *a)
{
    struct build *b = a->b;
    if (b->st) return 0;
    if (a->n_state == GRAMMAR_MAX_STATE)
        grammar_build_fail(b, SL_LIMIT, "grammar: too large: more than %d states",
                           GRAMMAR_MAX_STATE);
    if (!b->st) b->st = grammar_grow(&a->head, &a->cap_state, a->n_state + 1, 4, b->err);
    if (!b->st) b->st = grammar_grow(&a->plain, &a->cap_plain, a->n_state + 1, 1, b->err);
    if (b->st) return 0;
    a->head[a->n_state] = 0;
    a->plain[a->n_state] = 0;
    return a->n_state++;
}

void grammar_nfa_edge(struct nfa *a, uint32_t from, int kind, uint32_t arg, uint32_t to)
{
    struct build *b = a->b;
    if (b->st) return;
    if (a->n_edge >= GRAMMAR_MAX_EDGE)
        grammar_build_fail(b, SL_LIMIT, "grammar: too large: more than %d edges", GRAMMAR_MAX_EDGE);
    if (!b->st)
        b->st = grammar_grow(&a->edge, &a->cap_edge, a->n_edge + 1, sizeof *a->edge, b->err);
    if (b->st) return;
    a->edge[a->n_edge] =
        (struct raw_edge){{to, (uint32_t)kind & 3, arg & 0x3fffffff}, a->head[from]};
    a->head[from] = a->n_edge++;
}

static uint32_t comp(struct nfa *a, const struct ir *e, uint32_t next);

uint32_t grammar_nfa_lit(struct nfa *a, const char *p, size_t n, uint32_t next)
{
    while (n--) {
        uint32_t s = grammar_nfa_state(a);
        grammar_nfa_edge(a, s, EDGE_BYTE, (uint8_t)p[n] * 0x101u, next);
        next = s;
    }
    return next;
}

static int by_bytes(const void *x, const void *y)
{
    const struct ir *a = *(const struct ir *const *)x, *b = *(const struct ir *const *)y;
    int c = memcmp(a->p, b->p, BASE_MIN(a->n, b->n));
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* Alternatives that are all literals: a trie, so that a large enum has few states at a time. */
static uint32_t comp_trie(struct nfa *a, const struct ir *e, uint32_t next)
{
    struct build *b = a->b;
    const struct ir **v = grammar_build_alloc(b, e->n, sizeof *v);
    uint32_t same = 0, max = 0, start = grammar_nfa_state(a);
    if (!v) return start;
    memcpy(v, e->kid, e->n * sizeof *v);
    qsort(v, e->n, sizeof *v, by_bytes);
    for (uint32_t i = 0; i < e->n; i++)
        max = BASE_MAX(max, v[i]->n);
    b->st = grammar_grow(&a->path, &a->cap_path, (uint64_t)max + 1, 4, b->err);
    if (b->st) return start;
    a->path[0] = start;
    for (uint32_t i = 0; i < e->n && !b->st; i++) {
        uint32_t n = v[i]->n;
        for (same = 0; i && same < v[i - 1]->n && same < n && v[i]->p[same] == v[i - 1]->p[same];)
            same++;
        if (i && same == n && v[i - 1]->n == n) continue; /* twice the same */
        for (uint32_t k = same; k < n; k++) {
            a->path[k + 1] = grammar_nfa_state(a);
            grammar_nfa_edge(a, a->path[k], EDGE_BYTE, (uint8_t)v[i]->p[k] * 0x101u,
                             a->path[k + 1]);
        }
        grammar_nfa_edge(a, a->path[n], EDGE_EPS, 0, next);
    }
    return start;
}

static uint32_t comp_alt(struct nfa *a, const struct ir *e, uint32_t next)
{
    bool lits = e->n > 2;
    for (uint32_t i = 0; i < e->n && lits; i++)
        lits = e->kid[i]->kind == IR_LIT;
    if (lits) return comp_trie(a, e, next);
    uint32_t s = grammar_nfa_state(a);
    for (uint32_t i = 0; i < e->n && !a->b->st; i++)
        grammar_nfa_edge(a, s, EDGE_EPS, 0, comp(a, e->kid[i], next));
    return s;
}

static void mark_plain(struct nfa *a, uint32_t s, uint32_t n)
{
    if (!a->b->st && s) a->plain[s] = (uint8_t)BASE_MIN(n, 255u);
}

static uint32_t comp_rep(struct nfa *a, const struct ir *e, uint32_t next)
{
    const struct ir *kid = e->kid[0];
    bool plain = kid->plain;
    uint32_t s = next, left = 0;
    if (e->max == GRAMMAR_INF) {
        s = grammar_nfa_state(a);
        grammar_nfa_edge(a, s, EDGE_EPS, 0, comp(a, kid, s));
        grammar_nfa_edge(a, s, EDGE_EPS, 0, next);
        if (plain) mark_plain(a, s, 255);
        left = 255;
    } else {
        for (uint32_t i = e->min; i < e->max && !a->b->st; i++) {
            uint32_t o = grammar_nfa_state(a);
            grammar_nfa_edge(a, o, EDGE_EPS, 0, comp(a, kid, s));
            grammar_nfa_edge(a, o, EDGE_EPS, 0, next);
            s = o;
            if (plain) mark_plain(a, s, ++left);
        }
    }
    for (uint32_t i = 0; i < e->min && !a->b->st; i++) {
        if (plain) { /* a state of its own to carry the mark */
            uint32_t o = grammar_nfa_state(a);
            grammar_nfa_edge(a, o, EDGE_EPS, 0, comp(a, kid, s));
            s = o;
            left = BASE_MIN(left + 1, 255u);
            mark_plain(a, s, left);
        } else {
            s = comp(a, kid, s);
        }
    }
    return s;
}

/* Parts that may be left out, with separators: one track of states where nothing came yet, one
 * where something did. */
static uint32_t comp_chain(struct nfa *a, const struct ir *e, uint32_t next)
{
    uint32_t some = e->tail ? comp(a, e->tail, next) : next;
    uint32_t none = e->tail0 ? comp(a, e->tail0, next) : next;
    for (uint32_t i = e->n; i-- > 0 && !a->b->st;) {
        uint32_t first = comp(a, e->kid[i], some);
        uint32_t later = comp(a, e->sep, comp(a, e->kid[i], some));
        if (e->must[i]) {
            none = first;
            some = later;
            continue;
        }
        uint32_t s = grammar_nfa_state(a), t = grammar_nfa_state(a);
        grammar_nfa_edge(a, s, EDGE_EPS, 0, first);
        grammar_nfa_edge(a, s, EDGE_EPS, 0, none);
        grammar_nfa_edge(a, t, EDGE_EPS, 0, later);
        grammar_nfa_edge(a, t, EDGE_EPS, 0, some);
        none = s;
        some = t;
    }
    return none;
}

/* A state for each row; neighbouring digits that lead to the same one are one edge. */
static uint32_t comp_digits(struct nfa *a, const struct ir *e, uint32_t next)
{
    uint32_t s = grammar_nfa_state(a), base = a->n_state;
    for (uint32_t i = 0; i < e->n; i++)
        (void)grammar_nfa_state(a);
    for (uint32_t i = 0; i < e->n && !a->b->st; i++) {
        const struct ir_digit *r = &e->row[i];
        for (uint32_t c = 0, z; c < 10; c = z + 1) {
            for (z = c; z < 9 && r->to[z + 1] == r->to[c];)
                z++;
            if (r->to[c] != GRAMMAR_NO_DIGIT)
                grammar_nfa_edge(a, base + i, EDGE_BYTE, ('0' + c) | ('0' + z) << 8,
                                 base + r->to[c]);
        }
        if (r->to[10] != GRAMMAR_NO_DIGIT)
            grammar_nfa_edge(a, base + i, EDGE_BYTE, '.' * 0x101u, base + r->to[10]);
        if (r->end) grammar_nfa_edge(a, base + i, EDGE_EPS, 0, next);
    }
    for (uint32_t i = 0; i < e->min && !a->b->st; i++)
        grammar_nfa_edge(a, s, EDGE_EPS, 0, base + e->start[i]);
    return s;
}

static uint32_t comp_graph(struct nfa *a, const struct ir *e, uint32_t next)
{
    uint32_t base = grammar_nfa_state(a);
    for (uint32_t i = 1; i < e->min; i++)
        (void)grammar_nfa_state(a);
    for (uint32_t i = 0; i < e->n && !a->b->st; i++) {
        const struct ir_arc *r = &e->arc[i];
        uint32_t to = r->to == e->min ? next : base + r->to;
        grammar_nfa_edge(a, base + r->from, EDGE_EPS, 0, comp(a, r->e, to));
    }
    return base;
}

/* The first state of e in front of next. Recursion: as deep as expressions nest, which their
 * parsers limit. */
static uint32_t comp(struct nfa *a, const struct ir *e, uint32_t next)
{
    uint32_t s;
    if (a->b->st) return 0;
    switch (e->kind) {
    case IR_EMPTY:
        return next;
    case IR_NEVER:
        return grammar_nfa_state(a);
    case IR_LIT:
        return grammar_nfa_lit(a, e->p, e->n, next);
    case IR_CLASS:
        return grammar_nfa_class(a, e, next);
    case IR_SEQ:
        for (uint32_t i = e->n; i-- > 0 && !a->b->st;)
            next = comp(a, e->kid[i], next);
        return next;
    case IR_ALT:
        return comp_alt(a, e, next);
    case IR_REP:
        return comp_rep(a, e, next);
    case IR_CHAIN:
        return comp_chain(a, e, next);
    case IR_DIGITS:
        return comp_digits(a, e, next);
    case IR_AUTO:
        return grammar_nfa_auto(a, e, next);
    case IR_GRAPH:
        return comp_graph(a, e, next);
    case IR_CALL:
        s = grammar_nfa_state(a);
        grammar_nfa_edge(a, s, EDGE_CALL, (uint32_t)e->rule, next);
        return s;
    }
    return 0;
}

/* ---- what leads to an end ---- */

struct back { /* edges by their target */
    uint32_t *first, *edge, *from;
};
struct solve {
    struct nfa *a;
    const uint32_t *start;
    struct back back;
    uint32_t *todo, n_todo;
    uint32_t *wait;      /* [n_rule] calls that wait for their rule: edge numbers */
    uint32_t *wait_next; /* [n_edge] */
    uint32_t *rule_at;   /* [n_state] 1 + a rule that begins there */
    uint32_t *rule_next; /* [n_rule] 1 + the next one */
};

static sl_status back_edges(struct solve *v, struct arena *m, sl_err *err)
{
    struct nfa *a = v->a;
    void *p = NULL;
    SL_TRY(mem_arena_array(m, (size_t)a->n_state + 2, 4, &p, err));
    v->back.first = p;
    SL_TRY(mem_arena_array(m, a->n_edge, 4, &p, err));
    v->back.edge = p;
    SL_TRY(mem_arena_array(m, a->n_edge, 4, &p, err));
    v->back.from = p;
    for (uint32_t i = 1; i < a->n_edge; i++)
        v->back.first[a->edge[i].e.to + 2]++;
    for (uint32_t s = 0; s < a->n_state; s++)
        v->back.first[s + 2] += v->back.first[s + 1];
    for (uint32_t s = 0; s < a->n_state; s++)
        for (uint32_t i = a->head[s]; i; i = a->edge[i].next) {
            v->back.edge[v->back.first[a->edge[i].e.to + 1]++] = i;
            v->back.from[i] = s;
        }
    return SL_OK;
}

static void reach(struct solve *v, uint8_t *good, uint32_t s)
{
    if (good[s]) return;
    good[s] = 1;
    v->todo[v->n_todo++] = s;
}

/* good[s]: state 0 can be reached from s. empty: by edges that take no byte. */
static void solve_back(struct solve *v, uint8_t *good, bool empty)
{
    struct nfa *a = v->a;
    v->n_todo = 0;
    memset(v->wait, 0, (size_t)a->b->n_rule * 4);
    reach(v, good, 0);
    while (v->n_todo) {
        uint32_t s = v->todo[--v->n_todo];
        for (uint32_t k = v->back.first[s]; k < v->back.first[s + 1]; k++) {
            uint32_t i = v->back.edge[k];
            const struct edge *e = &a->edge[i].e;
            if (e->kind == EDGE_CALL && !good[v->start[e->arg]]) {
                v->wait_next[i] = v->wait[e->arg];
                v->wait[e->arg] = i;
            } else if (e->kind != EDGE_BYTE || !empty) {
                reach(v, good, v->back.from[i]);
            }
        }
        for (uint32_t r = v->rule_at[s]; r; r = v->rule_next[r - 1]) {
            for (uint32_t i = v->wait[r - 1]; i; i = v->wait_next[i])
                reach(v, good, v->back.from[i]);
            v->wait[r - 1] = 0;
        }
    }
}

static sl_status solve_init(struct solve *v, struct arena *m, sl_err *err)
{
    struct nfa *a = v->a;
    size_t n_rule = (size_t)a->b->n_rule;
    const struct {
        uint32_t **p;
        size_t n;
    } want[] = {{&v->todo, a->n_state},
                {&v->wait, n_rule},
                {&v->wait_next, a->n_edge},
                {&v->rule_at, a->n_state},
                {&v->rule_next, n_rule}};
    SL_TRY(back_edges(v, m, err));
    for (int i = 0; i < BASE_COUNT_OF(want); i++) {
        void *p = NULL;
        SL_TRY(mem_arena_array(m, want[i].n, 4, &p, err));
        *want[i].p = p;
    }
    for (uint32_t r = 0; r < n_rule; r++) {
        v->rule_next[r] = v->rule_at[v->start[r]];
        v->rule_at[v->start[r]] = r + 1;
    }
    return SL_OK;
}

/* ---- ranks ---- */

struct ranker {
    struct nfa *a;
    const uint32_t *start;
    const uint8_t *good, *nullable; /* by state, by rule */
    uint32_t *stamp;                /* [n_state] */
    uint32_t *todo;                 /* [n_state] */
    struct u32_list to;             /* rules that a rule may begin with */
    uint32_t *first;                /* [n_rule + 1] into to */
};

/* The rules that rule r may begin with. */
static sl_status corners(struct ranker *k, uint32_t r, sl_err *err)
{
    struct nfa *a = k->a;
    uint32_t n = 0, mark = r + 1;
    k->todo[n++] = k->start[r];
    k->stamp[k->start[r]] = mark;
    while (n) {
        uint32_t s = k->todo[--n];
        for (uint32_t i = a->head[s]; i; i = a->edge[i].next) {
            const struct edge *e = &a->edge[i].e;
            if (e->kind == EDGE_BYTE || !k->good[e->to]) continue;
            if (e->kind == EDGE_CALL) {
                if (!k->good[k->start[e->arg]]) continue;
                SL_TRY(grammar_grow(&k->to.v, &k->to.cap, (uint64_t)k->to.n + 1, 4, err));
                k->to.v[k->to.n++] = e->arg;
                if (!k->nullable[e->arg]) continue;
            }
            if (k->stamp[e->to] == mark) continue;
            k->stamp[e->to] = mark;
            k->todo[n++] = e->to;
        }
    }
    return SL_OK;
}

static sl_status rank_rules(struct ranker *k, uint32_t n_rule, uint32_t *rank, sl_err *err)
{
    uint32_t done = 0, *n_in = k->a->b->st ? NULL : grammar_build_alloc(k->a->b, n_rule, 4),
             *queue = grammar_build_alloc(k->a->b, n_rule, 4), n_queue = 0;
    k->first = grammar_build_alloc(k->a->b, (size_t)n_rule + 1, 4);
    if (!n_in || !queue || !k->first) return k->a->b->st;
    for (uint32_t r = 0; r < n_rule; r++) {
        k->first[r] = k->to.n;
        if (k->good[k->start[r]]) SL_TRY(corners(k, r, err));
    }
    k->first[n_rule] = k->to.n;
    for (uint32_t i = 0; i < k->to.n; i++)
        n_in[k->to.v[i]]++;
    for (uint32_t r = 0; r < n_rule; r++)
        if (n_in[r] == 0) queue[n_queue++] = r;
    while (done < n_queue) {
        uint32_t r = queue[done];
        rank[r] = done++;
        for (uint32_t i = k->first[r]; i < k->first[r + 1]; i++)
            if (--n_in[k->to.v[i]] == 0) queue[n_queue++] = k->to.v[i];
    }
    if (done == n_rule) return SL_OK;
    uint32_t r = 0; /* each rule left has one left before it: go back until it must be on a cycle */
    for (uint32_t i = 0; i < n_rule; i++)
        for (uint32_t j = k->first[i]; n_in[i] && j < k->first[i + 1]; j++)
            queue[k->to.v[j]] = i;
    for (uint32_t i = 0; i < n_rule; i++)
        if (n_in[i]) r = i;
    for (uint32_t round = 0; round < n_rule; round++)
        r = queue[r];
    return SL_FAIL(err, REQUEST,
                   "%s: left recursion: it can begin with itself without taking a character",
                   k->a->b->rule[r].name);
}

/* ---- together ---- */

static sl_status alloc_tables(grammar *g, uint32_t n_state, uint32_t n_edge, sl_err *err)
{
    const struct {
        void *p;
        size_t n, size;
    } want[] = {{&g->first, (size_t)n_state + 1, 4},
                {&g->edge, n_edge, sizeof *g->edge},
                {&g->plain, n_state, 1},
                {&g->start, (size_t)g->n_rule, 4},
                {&g->rank, (size_t)g->n_rule, 4},
                {&g->nullable, (size_t)g->n_rule, 1}};
    for (int i = 0; i < BASE_COUNT_OF(want); i++) {
        SL_TRY(mem_alloc_array(MEM_REQUEST, want[i].n, want[i].size, want[i].p, err));
        g->bytes += want[i].n * want[i].size;
    }
    g->n_state = n_state;
    g->n_edge = n_edge;
    return SL_OK;
}

/* Is an edge kept? */
static bool kept(const struct solve *v, const uint8_t *good, const struct edge *e)
{
    return good[e->to] && (e->kind != EDGE_CALL || good[v->start[e->arg]]);
}

/* Number the states that lead to an end, and copy their edges. */
static sl_status pack(struct solve *v, const uint8_t *good, const uint8_t *null_state,
                      const uint32_t *rank, grammar *g, sl_err *err)
{
    struct nfa *a = v->a;
    uint32_t n_state = 0, n_edge = 0, *number = v->todo;
    for (uint32_t s = 0; s < a->n_state; s++) {
        number[s] = n_state;
        n_state += good[s];
        for (uint32_t i = good[s] ? a->head[s] : 0; i; i = a->edge[i].next)
            n_edge += kept(v, good, &a->edge[i].e);
    }
    SL_TRY(alloc_tables(g, n_state, n_edge, err));
    n_edge = 0;
    for (uint32_t s = 0; s < a->n_state; s++) {
        if (!good[s]) continue;
        g->first[number[s]] = n_edge;
        g->plain[number[s]] = a->plain[s];
        for (uint32_t i = a->head[s]; i; i = a->edge[i].next) {
            if (!kept(v, good, &a->edge[i].e)) continue;
            g->edge[n_edge] = a->edge[i].e;
            g->edge[n_edge++].to = number[a->edge[i].e.to];
        }
    }
    g->first[n_state] = n_edge;
    for (int r = 0; r < g->n_rule; r++) {
        uint32_t s = v->start[r];
        g->start[r] = good[s] ? number[s] : 0;
        g->nullable[r] = null_state[s];
        g->rank[r] = rank[r];
    }
    return SL_OK;
}

/* Compile the rules; start[r] is where rule r begins. */
static sl_status comp_rules(struct nfa *a, uint32_t *start)
{
    struct build *b = a->b;
    grammar_nfa_state(a); /* 0: the end of every rule */
    a->n_edge = 1;
    if (!b->st) b->st = grammar_grow(&a->edge, &a->cap_edge, 1, sizeof *a->edge, b->err);
    for (int r = 0; r < b->n_rule && !b->st; r++) {
        /* a state of its own, so that no two rules begin in the same one */
        uint32_t s = comp(a, b->rule[r].body, 0);
        start[r] = grammar_nfa_state(a);
        grammar_nfa_edge(a, start[r], EDGE_EPS, 0, s);
    }
    return b->st;
}

static sl_status solve_all(struct nfa *a, const uint32_t *start, grammar *g, struct arena *m,
                           struct ranker *k, sl_err *err)
{
    struct solve v = {.a = a, .start = start};
    uint8_t *good = NULL, *null_state = NULL, *null_rule = NULL;
    uint32_t *rank = NULL, n_rule = (uint32_t)a->b->n_rule;
    SL_TRY(solve_init(&v, m, err));
    SL_TRY(mem_arena_array(m, a->n_state, 1, (void **)&good, err));
    SL_TRY(mem_arena_array(m, a->n_state, 1, (void **)&null_state, err));
    SL_TRY(mem_arena_array(m, n_rule, 1, (void **)&null_rule, err));
    SL_TRY(mem_arena_array(m, n_rule, 4, (void **)&rank, err));
    SL_TRY(mem_arena_array(m, a->n_state, 4, (void **)&k->stamp, err));
    solve_back(&v, good, false);
    for (int i = 0; i < a->b->loose->n; i++) {
        if (good[start[a->b->loose->rule[i]]]) continue;
        a->b->loose->failed = i;
        return SL_FAIL(err, REQUEST, "nothing can match: no answer is possible");
    }
    if (!good[start[0]]) return SL_FAIL(err, REQUEST, "nothing can match: no answer is possible");
    solve_back(&v, null_state, true);
    for (uint32_t r = 0; r < n_rule; r++)
        null_rule[r] = null_state[start[r]];
    k->a = a;
    k->start = start;
    k->good = good;
    k->nullable = null_rule;
    k->todo = v.todo;
    SL_TRY(rank_rules(k, n_rule, rank, err));
    return pack(&v, good, null_state, rank, g, err);
}

sl_status grammar_nfa(struct build *b, grammar *g, sl_err *err)
{
    struct nfa a = {.b = b};
    struct arena m;
    struct ranker k = {0};
    uint32_t *start = grammar_build_alloc(b, (size_t)b->n_rule, 4);
    sl_status st = b->st;
    mem_arena_init(&m, MEM_REQUEST, 0);
    if (!st) st = comp_rules(&a, start);
    g->n_rule = b->n_rule;
    if (!st) st = solve_all(&a, start, g, &m, &k, err);
    mem_free(k.to.v);
    mem_free(a.head);
    mem_free(a.plain);
    mem_free(a.edge);
    mem_free(a.path);
    mem_arena_fini(&m);
    return st;
}
