/* SPDX-License-Identifier: Apache-2.0 */
/* check_gpu: attention by a state and gates. Sequences come in pieces, some with none in a step;
 * drafts at their ends, of which some are wrong; states are copied between places, and a sequence
 * that is over is followed by another one in its place. */
#include <math.h>
#include <string.h>

#include "check_gpu.h"

enum { S = 3, PLACES = 7, N_STEP = 10, LEAST = 4 };

struct state_case {
    struct dev_delta p; /* its rows begin at word numbers of a token's */
    int n_each, n_a, at[6]; /* q, k, v, z, a, b; n_a: values of a that a value head has */
    int ld;
    struct buf conv, decay, dt, norm;
    dev_kv *kv[2];
    dev_prog *prog[2];
    struct buf x, y;
};

/* How far each sequence is, at which position its state is, and where that lies. */
struct walk {
    int at[S], state[S], place[S];
    int32_t seat[S], draft[S], copy[3 * S];
};

static void lay_heads(struct state_case *c, const int at[6], const int key[4], const int val[4])
{
    struct dev_heads *h[6] = {&c->p.q, &c->p.k, &c->p.v, &c->p.z, &c->p.a, &c->p.b};
    static const int kind[6] = {0, 0, 1, 1, 2, 3};
    memcpy(c->at, at, sizeof c->at);
    for (int i = 0; i < 6; i++)
        *h[i] = (struct dev_heads){NULL, c->ld, key[kind[i]], val[kind[i]]};
}

/* Queries, keys, values, gates, a and b of a token lie in a row: kinds one after another, value
 * heads in one of both orders, or those of a key head together. */
static void lay(struct state_case *c)
{
    struct dev_delta *p = &c->p;
    int dk = p->d_k, dv = p->d_v, n = p->n_k, m = c->n_each, V = m * dv, k = 2 * dk + 2 * V;
    int na = c->n_a;
    c->ld = n * (k + m * (1 + na)) + rand_int(0, 5);
    if (!p->tiled && !p->each && rand_int(0, 1)) {
        lay_heads(c, (const int[]){0, dk, 2 * dk, 2 * dk + V, n * k + m, n * k},
                  (const int[]){k, k, 2 * m, 2 * m}, (const int[]){0, dv, 1, 1});
        return;
    }
    int key = p->tiled ? 1 : m, val = p->tiled ? n : 1, v = 2 * n * dk, a = v + 2 * n * V;
    lay_heads(c, (const int[]){0, n * dk, v, v + n * V, a, a + n * m * na},
              (const int[]){dk, key * dv, key * na, key},
              (const int[]){0, val * dv, val * na, val});
}

static void make_case(struct state_case *c, int trial)
{
    struct dev_delta *p = &c->p;
    *c = (struct state_case){.n_each = rand_int(1, 3)};
    p->group = DEV_KV_STATE;
    p->layer = 1;
    p->n_k = rand_int(1, 3);
    p->n_v = p->n_k * c->n_each;
    p->d_k = trial % 4 ? 2 * rand_int(1, trial % 4 == 3 ? 64 : 20) : 128;
    p->d_v = trial % 4 ? rand_int(1, trial % 4 == 2 ? 256 : 50) : 128;
    p->n_conv = rand_int(1, 5);
    p->tiled = rand_int(0, 1);
    p->each = trial % 2;
    p->sigmoid = rand_int(0, 1);
    p->bound = trial / 2 % 2 ? -5.0f : 0;
    c->n_a = p->each ? p->d_k : 1;
    p->eps = 1e-6f;
    lay(c);
}

static struct buf negative(struct buf b)
{
    for (int64_t i = 0; i < b.n; i++)
        b.x[i] = -fabsf(b.x[i]);
    for (int k = 0; k < 2; k++)
        MUST(dev_put(g.d[k], b.at[k], b.x, 4 * b.n, &err_));
    return b;
}

static void open_case(struct state_case *c)
{
    const struct dev_kv_group none = {.n_blk = 1, .n_head = 1, .d_k = 8};
    struct dev_delta *p = &c->p;
    int64_t channels = 2ll * p->n_k * p->d_k + (int64_t)p->n_v * p->d_v;
    int n = (int)dev_delta_state(p->n_k, p->n_v, p->d_k, p->d_v, p->n_conv, p->each);
    struct dev_kv_shape shape = {DEV_KV_F32, 16, 3, {none, none}};
    shape.group[DEV_KV_STATE] = (struct dev_kv_group){
        .kind = DEV_KV_STATE, .n_layer = 2, .n_blk = PLACES, .n_head = 1, .d_k = n};
    c->conv = make_buf(p->n_conv * channels), c->decay = negative(make_buf(p->n_v));
    c->dt = make_buf(p->n_v * c->n_a), c->norm = make_buf(p->d_v);
    c->x = make_buf((int64_t)T_MAX * c->ld), c->y = make_buf((int64_t)T_MAX * p->n_v * p->d_v);
    for (int k = 0; k < 2; k++) {
        struct dev_op op = {.kind = DEV_OP_delta, .u.delta = *p};
        struct dev_delta *o = &op.u.delta;
        struct dev_heads *h[6] = {&o->q, &o->k, &o->v, &o->z, &o->a, &o->b};
        for (int i = 0; i < 6; i++)
            h[i]->p = c->x.at[k] + c->at[i];
        o->conv = c->conv.at[k], o->decay = c->decay.at[k], o->dt = c->dt.at[k];
        o->norm = c->norm.at[k], o->y = c->y.at[k];
        MUST(dev_kv_open(g.d[k], &shape, &c->kv[k], &err_));
        for (int i = 0; i < PLACES; i++)
            dev_kv_poison(g.d[k], c->kv[k], DEV_KV_STATE, i);
        MUST(dev_prog_open(g.d[k], &op, 1, &c->prog[k], &err_));
    }
}

/* The state may move; the old place is lost. */
static void move_state(struct walk *r, struct dev_step *b, int s)
{
    int to = 0;
    if (!r->at[s] || rand_int(0, 1)) return;
    while (to == r->place[0] || to == r->place[1] || to == r->place[2])
        to++;
    memcpy(r->copy + 3 * b->n_copy++, (int32_t[]){DEV_KV_STATE, r->place[s], to},
           3 * sizeof *r->copy);
    r->place[s] = to;
}

/* Some tokens of each sequence, perhaps none. The next step begins where drafts are wrong: now and
 * then before this step's tokens, for some that were right before stay drafts. */
static struct dev_step next_step(struct walk *r, bool drafts)
{
    struct dev_step b = step_of(0, S);
    for (int s = 0; s < S; s++) {
        int k = rand_int(s > 0 ? 0 : 1, rand_int(0, 2) ? LEAST : T_MAX / S);
        tok0[s] = b.n_tok;
        r->seat[s] = r->place[s];
        r->draft[s] = 0;
        if (!k) continue;
        if (r->at[s] > 60) r->at[s] = r->state[s] = 0; /* another one */
        move_state(r, &b, s);
        int most = BASE_MIN(k + r->at[s] - r->state[s], DEV_STATE_BACK);
        int n = !drafts ? 0 : rand_int(0, 1) ? most : rand_int(0, most), wrong = rand_int(0, n);
        r->state[s] = r->at[s] + k - n;
        for (int i = 0; i < k; i++)
            pos[b.n_tok++] = r->at[s] + i;
        r->at[s] += k - wrong;
        r->seat[s] = r->place[s];
        r->draft[s] = n;
    }
    tok0[S] = b.n_tok;
    b.seat = r->seat;
    b.copy = r->copy;
    if (drafts) b.n_draft = r->draft;
    return b;
}

/* Nothing was read that nobody wrote. */
static void is_finite(const char *what, const struct buf *b)
{
    int64_t n = 0;
    MUST(dev_get(g.d[1], b->x, b->at[1], 4 * b->n, &err_));
    for (int64_t i = 0; i < b->n; i++)
        n += !isfinite(b->x[i]);
    if (n && g.n_fail++ < 30)
        printf("FAIL %s: %lld of %lld are no numbers\n", what, (long long)n, (long long)b->n);
}

static void check_case(struct state_case *c, int trial)
{
    char what[120];
    struct walk r = {.place = {4, 0, 2}};
    const struct dev_delta *p = &c->p;
    for (int step = 0; step < N_STEP; step++) {
        struct dev_step b = next_step(&r, trial % 4 && rand_int(0, 3));
        c->x.n = (int64_t)b.n_tok * c->ld;
        c->y.n = (int64_t)b.n_tok * p->n_v * p->d_v;
        for (int64_t i = 0; i < c->x.n; i++)
            c->x.x[i] = rand_f() * (rand_int(0, 60) ? 1.0f : 20.0f);
        for (int k = 0; k < 2; k++) {
            MUST(dev_put(g.d[k], c->x.at[k], c->x.x, 4 * c->x.n, &err_));
            MUST(dev_prog_run(c->prog[k], c->kv[k], &b, &err_));
        }
        snprintf(what, sizeof what, "delta%s, heads %d of %d, %d and %d, conv %d, T %d, step %d",
                 p->each ? " of rows" : "", p->n_v, p->n_k, p->d_k, p->d_v, p->n_conv, b.n_tok,
                 step);
        same(what, &c->y);
        is_finite(what, &c->y);
    }
}

/* What a card lacks is said when the program is opened. */
static void check_refused(const struct dev_delta *p)
{
    sl_err err = {0};
    dev_prog *prog = NULL;
    struct dev_op op = {.kind = DEV_OP_delta, .u.delta = *p};
    op.u.delta.d_k = 130;
    g.n_checked++;
    if (dev_prog_open(g.d[1], &op, 1, &prog, &err) == SL_UNSUPPORTED &&
        strstr(err.text, "keys wider than 128: --place attn=cpu runs them"))
        return;
    g.n_fail++;
    printf("FAIL keys of 130: %s\n", err.text);
}

void check_states(void)
{
    enum { N = 8 };
    struct state_case all[N];
    struct dev_op op[N];
    open_both(DEV_ACTS_AUTO);
    for (int i = 0; i < N; i++) {
        make_case(&all[i], i);
        op[i] = (struct dev_op){.kind = DEV_OP_delta, .u.delta = all[i].p};
    }
    reserve_both(op, N, NULL);
    check_refused(&all[0].p);
    for (int i = 0; i < N; i++) {
        struct state_case *c = &all[i];
        open_case(c);
        check_case(c, i);
        for (int k = 0; k < 2; k++)
            dev_prog_close(c->prog[k]);
        free(c->conv.x), free(c->decay.x), free(c->dt.x), free(c->norm.x);
        free(c->x.x), free(c->y.x);
    }
    close_both();
}

/* A gate a value, and one for all of a head's, with other values between. */
void check_gates(void)
{
    open_both(DEV_ACTS_AUTO);
    reserve_both(NULL, 0, NULL);
    for (int trial = 0; trial < 16; trial++) {
        int T = tokens[trial % N_TOKENS], H = rand_int(1, 4), n = rand_int(1, 70);
        bool one = trial / N_TOKENS;
        int64_t ldh = (one ? 1 : n) + rand_int(0, 70), ldg = H * ldh + rand_int(0, 3);
        struct dev_step s;
        struct dev_op op[2] = {{.kind = DEV_OP_gate}, {.kind = DEV_OP_gate}};
        dev_prog *prog[2];
        struct buf x = make_buf((int64_t)T * H * n), gate = make_buf(T * ldg);
        for (int k = 0; k < 2; k++)
            op[k].u.gate = (struct dev_gate){.x = x.at[k], .g = gate.at[k], .n = n, .n_head = H,
                                             .ldg = ldg, .ldg_h = ldh, .one = one};
        s = make_step(T);
        for (int k = 0; k < 2; k++) {
            MUST(dev_prog_open(g.d[k], &op[k], 1, &prog[k], &err_));
            MUST(dev_prog_run(prog[k], NULL, &s, &err_));
        }
        same(one ? "gate of a head" : "gate", &x);
        for (int k = 0; k < 2; k++)
            dev_prog_close(prog[k]);
        free(x.x), free(gate.x);
    }
    close_both();
}
