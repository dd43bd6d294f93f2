/* SPDX-License-Identifier: Apache-2.0 */
/* Operators with a state against their definitions in double: attention, heads in every order that
 * files have, and the recurrence. Sequences come in pieces of random lengths, drafts at their ends
 * of which some are wrong, and states are copied between places. And gates. */
#include "check.h"

enum { S = 3, PLACES = 7, T_MAX = 40, HEADS = 8, WIDTH = 40 };

/* Inputs of one kind: of token t, key head j, its value head i. */
struct input {
    float *p;
    int64_t ld, key, val;
};

static double of(const struct input *x, int t, int j, int i, int c)
{
    return (double)x->p[t * x->ld + j * x->key + i * x->val + c];
}

struct delta_case {
    struct dev_delta p;
    struct input q, k, v, z, a, b; /* of one sequence after the other, T tokens each */
    int T, n_each, n_a; /* n_a: values of a that a value head has */
    int64_t ld;
    float *rows;
};

static struct input input_at(const struct delta_case *c, int64_t at, int64_t key, int64_t val)
{
    return (struct input){c->rows + at, c->ld, key, val};
}

/* Queries, keys, values, gates, a and b of a token lie in a row: kinds one after another, or those
 * of a key head together. */
static void lay(struct delta_case *c)
{
    const struct dev_delta *p = &c->p;
    int64_t dk = p->d_k, dv = p->d_v, n = p->n_k, m = c->n_each, V = m * dv, na = c->n_a;
    bool grouped = !p->tiled && rand_int(0, 1);
    c->ld = n * (2 * dk + 2 * V + m * (1 + na)) + rand_int(0, 5);
    c->rows = rand_array(S * c->T * c->ld);
    if (grouped) {
        int64_t key = 2 * dk + 2 * V, at = n * key;
        c->q = input_at(c, 0, key, 0);
        c->k = input_at(c, dk, key, 0);
        c->v = input_at(c, 2 * dk, key, dv);
        c->z = input_at(c, 2 * dk + V, key, dv);
        c->b = input_at(c, at, m * (1 + na), 1);
        c->a = input_at(c, at + m, m * (1 + na), na);
        return;
    }
    int64_t key = p->tiled ? 1 : m, val = p->tiled ? n : 1, at = 2 * n * dk;
    c->q = input_at(c, 0, dk, 0);
    c->k = input_at(c, n * dk, dk, 0);
    c->v = input_at(c, at, key * dv, val * dv);
    c->z = input_at(c, at + n * V, key * dv, val * dv);
    c->a = input_at(c, at + 2 * n * V, key * na, val * na);
    c->b = input_at(c, at + 2 * n * V + n * m * na, key, val);
}

static int64_t channels(const struct dev_delta *p)
{
    return 2ll * p->n_k * p->d_k + (int64_t)p->n_v * p->d_v;
}

static int head_of(const struct delta_case *c, int j, int i)
{
    return c->p.tiled ? i * c->p.n_k + j : j * c->n_each + i;
}

/* Channel c of head (j, i) after the convolution, which is channel ch of all. */
static double convolved(const struct delta_case *c, const struct input *x, const int at[4],
                        int64_t ch)
{
    double sum = 0;
    for (int k = 0; k < c->p.n_conv; k++) {
        int t = at[0] - c->p.n_conv + 1 + k;
        if (t >= 0)
            sum += (double)c->p.conv[k * channels(&c->p) + ch] * of(x, t, at[1], at[2], at[3]);
    }
    return sum / (1 + exp(-sum));
}

/* What row n of the state of value head i of key head j is multiplied by at token t. */
static double decay_of(const struct delta_case *c, int t, int j, int i, int n)
{
    int h = head_of(c, j, i), m = c->p.each ? n : 0;
    double x = of(&c->a, t, j, i, m) + (double)c->p.dt[h * c->n_a + m];
    if (c->p.bound < 0) return exp((double)c->p.bound / (1 + exp((double)c->p.decay[h] * x)));
    return exp((double)c->p.decay[h] * log1p(exp(x)));
}

/* Value head i of key head j of one sequence: y [T, d_v]. */
static void by_hand(const struct delta_case *c, int j, int i, double *y)
{
    const struct dev_delta *p = &c->p;
    double s[WIDTH * WIDTH] = {0}, q[WIDTH], k[WIDTH];
    int h = head_of(c, j, i);
    for (int t = 0; t < c->T; t++) {
        double qq = 1e-6, kk = 1e-6, mean = 0;
        for (int n = 0; n < p->d_k; n++) {
            q[n] = convolved(c, &c->q, (const int[]){t, j, 0, n}, (int64_t)j * p->d_k + n);
            k[n] =
                convolved(c, &c->k, (const int[]){t, j, 0, n}, (int64_t)(p->n_k + j) * p->d_k + n);
            qq += q[n] * q[n];
            kk += k[n] * k[n];
        }
        double beta = 1 / (1 + exp(-of(&c->b, t, j, i, 0)));
        for (int m = 0; m < p->d_v; m++) {
            double r = 0, *o = &y[t * p->d_v + m];
            double v = convolved(c, &c->v, (const int[]){t, j, i, m},
                                 2ll * p->n_k * p->d_k + (int64_t)h * p->d_v + m);
            for (int n = 0; n < p->d_k; n++)
                r += (s[n * p->d_v + m] *= decay_of(c, t, j, i, n)) * k[n] / sqrt(kk);
            *o = 0;
            for (int n = 0; n < p->d_k; n++) {
                s[n * p->d_v + m] += k[n] / sqrt(kk) * beta * (v - r);
                *o += s[n * p->d_v + m] * q[n] / sqrt(qq * p->d_k);
            }
            mean += *o * *o / p->d_v;
        }
        for (int m = 0; m < p->d_v; m++) {
            double z = of(&c->z, t, j, i, m);
            y[t * p->d_v + m] *= (double)p->norm[m] / sqrt(mean + (double)p->eps) *
                                 (p->sigmoid ? 1 : z) / (1 + exp(-z));
        }
    }
}

static void compare_seq(struct delta_case *c, int seq, const float *y)
{
    double want[T_MAX * WIDTH], tol[T_MAX * WIDTH];
    float got[T_MAX * WIDTH];
    struct delta_case at = *c;
    struct input *x[] = {&at.q, &at.k, &at.v, &at.z, &at.a, &at.b};
    for (int n = 0; n < 6; n++)
        x[n]->p += seq * c->T * c->ld;
    for (int j = 0; j < c->p.n_k; j++)
        for (int i = 0; i < c->n_each; i++) {
            int h = head_of(c, j, i), n = c->T * c->p.d_v;
            by_hand(&at, j, i, want);
            for (int m = 0; m < n; m++) {
                int t = m / c->p.d_v, e = m % c->p.d_v;
                got[m] = y[((int64_t)t * c->p.n_v + h) * c->p.d_v + e];
                tol[m] = 2e-5 * (1 + fabs(want[m]));
            }
            compare("delta", got, want, tol, n);
        }
}

static struct dev_heads heads(const struct input *x, const struct delta_case *c, const float *rows)
{
    return (struct dev_heads){rows + (x->p - c->rows), x->ld, x->key, x->val};
}

static void point(struct delta_case *c, const float *rows, float *y)
{
    c->p.q = heads(&c->q, c, rows);
    c->p.k = heads(&c->k, c, rows);
    c->p.v = heads(&c->v, c, rows);
    c->p.z = heads(&c->z, c, rows);
    c->p.a = heads(&c->a, c, rows);
    c->p.b = heads(&c->b, c, rows);
    c->p.y = y;
}

static void make(struct delta_case *c)
{
    struct dev_delta *p = &c->p;
    *c = (struct delta_case){.T = rand_int(2, T_MAX), .n_each = rand_int(1, 3)};
    p->group = DEV_KV_STATE;
    p->layer = 1;
    p->n_k = rand_int(1, 3);
    p->n_v = p->n_k * c->n_each;
    p->d_k = 2 * rand_int(1, WIDTH / 2);
    p->d_v = rand_int(1, WIDTH);
    p->n_conv = rand_int(1, 5);
    p->tiled = rand_int(0, 1);
    p->each = rand_int(0, 1);
    p->sigmoid = rand_int(0, 1);
    p->bound = rand_int(0, 1) ? -5.0f : 0;
    c->n_a = p->each ? p->d_k : 1;
    p->eps = 1e-2f; /* the norm of a few small values is no divisor */
    lay(c);
    float *decay = rand_array(p->n_v), *norm = rand_array(p->d_v);
    for (int h = 0; h < p->n_v; h++)
        decay[h] = -fabsf(decay[h]);
    p->decay = decay;
    p->norm = norm;
    p->dt = rand_array(p->n_v * c->n_a);
    p->conv = rand_array(p->n_conv * channels(p));
}

/* Rows of S sequences, T tokens of ld values each, on their way through steps: how far each is, at
 * which position its state, and where that lies. */
struct walk {
    const float *x;
    float *in; /* a step's */
    int64_t ld;
    int T, at[S], state[S], who[S];
    int right[S]; /* of a sequence's tokens in the step those that count */
    int32_t place[S], pos[S * T_MAX], tok0[S + 1], seat[S], draft[S], copy[3 * S];
};

static struct walk walk_of(const float *x, int64_t ld, int T)
{
    return (struct walk){
        .x = x, .in = rand_array(S * T * ld), .ld = ld, .T = T, .place = {4, 0, 2}};
}

/* A cache of states of n values, the second of two layers, that hold no numbers. */
static dev_kv *open_states(dev *d, int64_t n)
{
    const struct dev_kv_group none = {.n_blk = 1, .n_head = 1, .d_k = 8};
    struct dev_kv_shape shape = {
        DEV_KV_F32, 16, 3, {none, none, {DEV_KV_STATE, 2, PLACES, 1, (int)n, 0, 0, {{0}}}}};
    dev_kv *kv = NULL;
    MUST(dev_kv_open(d, &shape, &kv, &err_));
    for (int i = 0; i < PLACES; i++)
        dev_kv_poison(d, kv, DEV_KV_STATE, i);
    return kv;
}

/* The state may move; the old place is lost. */
static void move_state(struct walk *r, struct dev_step *b, int s)
{
    int32_t to = 0;
    if (!r->at[s] || rand_int(0, 1)) return;
    while (to == r->place[0] || to == r->place[1] || to == r->place[2])
        to++;
    memcpy(r->copy + 3 * b->n_copy++, (int32_t[]){DEV_KV_STATE, r->place[s], to},
           3 * sizeof *r->copy);
    r->place[s] = to;
}

/* Some tokens of some sequences. Of the drafts among them the first few are right; some that were
 * right before stay drafts. */
static struct dev_step next_step(struct walk *r)
{
    struct dev_step b = {.pos = r->pos, .seq_tok0 = r->tok0, .seat = r->seat, .copy = r->copy};
    bool drafts = rand_int(0, 2);
    r->tok0[0] = 0;
    for (int s = 0; s < S; s++) {
        int k = rand_int(0, r->T - r->at[s]), q = b.n_seq;
        if (!k) continue;
        int most = BASE_MIN(k + r->at[s] - r->state[s], DEV_STATE_BACK);
        int n = drafts ? rand_int(0, most) : 0;
        move_state(r, &b, s);
        r->draft[q] = n;
        r->right[q] = k - rand_int(0, BASE_MIN(n, k - 1));
        r->state[s] = r->at[s] + k - n;
        for (int i = 0; i < k; i++) {
            const float *x = r->x + (s * r->T + r->at[s] + i) * r->ld;
            for (int c = 0; c < r->ld; c++)
                r->in[b.n_tok * r->ld + c] = i < r->right[q] ? x[c] : 1 - x[c];
            r->pos[b.n_tok++] = r->at[s] + i;
        }
        r->seat[q] = r->place[s];
        r->who[b.n_seq++] = s;
        r->tok0[b.n_seq] = b.n_tok;
    }
    if (drafts) b.n_draft = r->draft;
    return b;
}

/* What counts of a step's rows of n values, to those of all; true: nothing is left. */
static bool take_rows(struct walk *r, const struct dev_step *b, const float *part, int n, float *y)
{
    bool all = true;
    for (int q = 0; q < b->n_seq; q++) {
        int s = r->who[q], k = r->right[q];
        memcpy(y + (s * r->T + r->at[s]) * n, part + r->tok0[q] * n, sizeof *y * (size_t)(k * n));
        r->at[s] += k;
    }
    for (int s = 0; s < S; s++)
        all = all && r->at[s] == r->T;
    return all;
}

/* The first sequence in one piece. */
static struct dev_step in_one_piece(struct walk *r)
{
    r->tok0[1] = r->T;
    for (int t = 0; t < r->T; t++)
        r->pos[t] = t;
    return (struct dev_step){
        .n_tok = r->T, .n_seq = 1, .pos = r->pos, .seq_tok0 = r->tok0, .seat = r->seat};
}

static void check_case(dev *d, struct delta_case *c)
{
    struct dev_delta *p = &c->p;
    int n = p->n_v * p->d_v;
    struct walk r = walk_of(c->rows, c->ld, c->T);
    float *y = rand_array(S * c->T * n), *part = rand_array(S * c->T * n);
    p->kv = open_states(d, dev_delta_state(p->n_k, p->n_v, p->d_k, p->d_v, p->n_conv, p->each));
    point(c, r.in, part);
    for (bool done = false; !done;) {
        struct dev_step b = next_step(&r);
        dev_step_begin(d, p->kv, &b);
        dev_delta(d, &b, p);
        done = take_rows(&r, &b, part, n, y);
    }
    for (int s = 0; s < S; s++)
        compare_seq(c, s, y + s * c->T * n);
    struct dev_step all = in_one_piece(&r);
    point(c, c->rows, part);
    dev_step_begin(d, p->kv, &all);
    dev_delta(d, &all, p);
    same_bits("delta in one piece", part, y, (int64_t)c->T * n);
}

static void compare_scan(const float *x, const float *y, int T, int n)
{
    double want[40], tol[40];
    float got[40];
    for (int i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int t = 0; t < T; t++) {
            sum = 0.75 * sum + x[t * n + i];
            size = 0.75 * size + fabs(x[t * n + i]);
            want[t] = sum;
            tol[t] = 2 * (t + 2) * U * size;
            got[t] = y[t * n + i];
        }
        compare("scan", got, want, tol, T);
    }
}

/* y is the sum with a decay, and has the same bits in one piece. */
static void check_scan(dev *d)
{
    int n = rand_int(1, 150), T = rand_int(2, T_MAX);
    float *x = rand_array(S * T * n), *y = rand_array(S * T * n), *part = rand_array(S * T * n);
    struct walk r = walk_of(x, n, T);
    struct dev_scan p = {open_states(d, dev_scan_state(n)), DEV_KV_STATE, 1, n, 0.75f, r.in, part};
    for (bool done = false; !done;) {
        struct dev_step b = next_step(&r);
        dev_step_begin(d, p.kv, &b);
        dev_scan(d, &b, &p);
        done = take_rows(&r, &b, part, n, y);
    }
    for (int s = 0; s < S; s++)
        compare_scan(x + s * T * n, y + s * T * n, T, n);
    struct dev_step all = in_one_piece(&r);
    p.x = x;
    dev_step_begin(d, p.kv, &all);
    dev_scan(d, &all, &p);
    same_bits("scan in one piece", part, y, (int64_t)T * n);
}

static void check_gate(dev *d)
{
    for (int trial = 0; trial < 8; trial++) {
        int T = rand_int(1, 20), H = rand_int(1, 4), n = rand_int(1, 70);
        bool one = rand_int(0, 1);
        int64_t ldh = (one ? 1 : n) + rand_int(0, 70), ldg = H * ldh + rand_int(0, 3);
        float *x = rand_array((int64_t)T * H * n), *g_ = rand_array(T * ldg);
        double want[20 * 4 * 70], tol[20 * 4 * 70];
        for (int i = 0; i < T * H * n; i++) {
            int t = i / (H * n), h = i / n % H;
            double v = (double)g_[t * ldg + h * ldh + (one ? 0 : i % n)];
            want[i] = x[i] / (1 + exp(-v));
            tol[i] = 20 * U * fabs(want[i]);
        }
        struct dev_step b = {.n_tok = T};
        dev_gate(d, &b,
                 &(struct dev_gate){
                     .x = x, .g = g_, .n = n, .n_head = H, .ldg = ldg, .ldg_h = ldh, .one = one});
        compare("gate", x, want, tol, (int64_t)T * H * n);
    }
}

void check_delta(void)
{
    dev *d = NULL;
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 2, .acts = DEV_ACTS_F32}, &d, &err_));
    const struct dev_op most = {
        .kind = DEV_OP_delta,
        .u.delta = {.n_k = 1, .n_v = 3, .d_k = WIDTH, .d_v = WIDTH, .each = true}};
    reserve(d, S * T_MAX, &most, 1);
    for (int trial = 0; trial < 24; trial++) {
        struct delta_case c;
        make(&c);
        check_case(d, &c);
        check_scan(d);
    }
    check_gate(d);
    dev_close(d);
}
