/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by a state, and gates. A unit of work is a key head of a sequence with its value heads,
 * or, where workers share these out better, each of them, for which queries and keys are made
 * again: its tokens in their order, so that the sums have one order however a prompt is cut into
 * steps. Of all sequences the same head comes first: a worker has some of each.
 *
 * A state has the value heads of every key head one after another, each as the kernel wants it
 * (kern/vec.h); then the convolution's inputs before it, [n_conv - 1, channels]; those of drafts
 * after it, with their a and b, [DEV_STATE_BACK, channels + n_v (n_a + 1)], of which a value head
 * has n_a and one; and at which position the state of each value head is, and of each key head what
 * is kept of its inputs. Drafts are run on a copy, and those that were right once more when the
 * next step begins: a step reads and writes a state once all the same. */
#include <math.h>
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/rows.h"

#define NORM_EPS 1e-6f /* of the lengths of queries and keys: the published code's */
#define NS_VALUE 0.3   /* of a state's value and a token, about */

struct delta_job {
    const struct dev_delta *p;
    const struct dev_step *b;
    int n_each; /* value heads of a key head */
    int n_part; /* units of a key head */
};

/* A unit under way. */
struct unit {
    const struct delta_job *job;
    const struct vec_kern *kern;
    int seq, j, tok0, n_tok, pos0;
    struct cpu_drafts drafts;
    int i0, i1;           /* value heads of key head j */
    bool fresh;           /* there is nothing before the step */
    float *state, *past;  /* of value head 0; inputs before it, of all channels */
    float *log;           /* of drafts */
    int32_t *at;          /* [n_v + n_k] */
    float *q, *k, *v;     /* [VEC_DELTA_TOK] rows */
    float *decays;        /* so many of n_a */
    float *copy, *none;   /* a head's state; [d_v] */
    float *one_k, *one_q; /* [d_k] what lengths are multiplied by */
};

_Static_assert(DEV_STATE_BACK <= VEC_DELTA_TOK, "a head's drafts are run at once");

size_t dev_cpu_delta_floats(const struct dev_shapes *p)
{
    size_t k = (size_t)p->delta_k, v = (size_t)p->delta_v;
    size_t a = (size_t)p->delta_a;
    return VEC_DELTA_TOK * (2 * k + v + a) + 2 * k + k * ((v + 15) / 16 * 16) + v;
}

static int head_of(const struct delta_job *job, int j, int i)
{
    return job->p->tiled ? i * job->p->n_k + j : j * job->n_each + i;
}

/* Where the unit's rows begin, of its value head i. */
static const float *row_of(const struct unit *u, const struct dev_heads *x, int i, int t)
{
    return x->p + (u->tok0 + t) * x->ld + u->j * x->key + i * x->val;
}

static int64_t channels(const struct dev_delta *p)
{
    return 2ll * p->n_k * p->d_k + (int64_t)p->n_v * p->d_v;
}

/* Values of a that a value head has. */
static int n_a(const struct dev_delta *p)
{
    return p->each ? p->d_k : 1;
}

/* Of a draft's inputs, with a and b. */
static int64_t log_row(const struct dev_delta *p)
{
    return channels(p) + (1ll + n_a(p)) * p->n_v;
}

static float *log_at(const struct unit *u, int t)
{
    return u->log + (t + u->drafts.n_back) * log_row(u->job->p);
}

/* Channels that lie together: of a head's queries, keys or values. */
struct channels {
    const struct dev_heads *x;
    int i; /* value head of the unit */
    int64_t at;
    int n;
};

static struct channels queries(const struct unit *u)
{
    const struct dev_delta *p = u->job->p;
    return (struct channels){&p->q, 0, (int64_t)u->j * p->d_k, p->d_k};
}

static struct channels keys(const struct unit *u)
{
    const struct dev_delta *p = u->job->p;
    return (struct channels){&p->k, 0, (int64_t)(p->n_k + u->j) * p->d_k, p->d_k};
}

static struct channels values(const struct unit *u, int i)
{
    const struct dev_delta *p = u->job->p;
    int64_t at = 2ll * p->n_k * p->d_k + (int64_t)head_of(u->job, u->j, i) * p->d_v;
    return (struct channels){&p->v, i, at, p->d_v};
}

/* The input of token t of the step; before its first one: of a draft, of the past, or zeros. */
static const float *input(const struct unit *u, const struct channels *c, int t)
{
    static const float none[DEV_DELTA_WIDTH];
    const struct dev_delta *p = u->job->p;
    if (t >= 0) return row_of(u, c->x, c->i, t);
    if (t >= -u->drafts.n_back) return log_at(u, t) + c->at;
    return u->fresh ? none : u->past + (t + u->drafts.n_back + p->n_conv - 1) * channels(p) + c->at;
}

/* Tokens [t0, t0 + n). */
static void convolve(const struct unit *u, struct channels c, int t0, int n, float *y)
{
    const struct dev_delta *p = u->job->p;
    const float *row[DEV_DELTA_CONV];
    for (int t = t0; t < t0 + n; t++, y += c.n) {
        for (int k = 0; k < p->n_conv; k++)
            row[k] = input(u, &c, t - p->n_conv + 1 + k);
        u->kern->conv_silu_f32(y, row, p->conv + c.at, channels(p), p->n_conv, c.n);
    }
}

/* The last inputs before drafts become those of the past; and those of drafts. */
static void keep(const struct unit *u, struct channels c)
{
    const struct dev_delta *p = u->job->p;
    size_t n = (size_t)c.n * sizeof(float);
    for (int k = 0; k < p->n_conv - 1; k++)
        memmove(u->past + k * channels(p) + c.at,
                input(u, &c, u->drafts.n_sure - p->n_conv + 1 + k), n);
    for (int t = u->drafts.n_sure; t < u->n_tok; t++)
        memmove(u->log + (t - u->drafts.n_sure) * log_row(p) + c.at, input(u, &c, t), n);
}

static void keep_keys(const struct unit *u)
{
    keep(u, queries(u));
    keep(u, keys(u));
    u->at[u->job->p->n_v + u->j] = u->pos0 + u->drafts.n_sure;
}

/* a and b of value head i; a: n_a values. */
struct ab {
    const float *a;
    float b;
};

static struct ab ab_of(const struct unit *u, int i, int t)
{
    const struct dev_delta *p = u->job->p;
    if (t >= 0) return (struct ab){row_of(u, &p->a, i, t), *row_of(u, &p->b, i, t)};
    const float *ab = log_at(u, t) + channels(p) + (1ll + n_a(p)) * head_of(u->job, u->j, i);
    return (struct ab){ab, ab[n_a(p)]};
}

static void keep_values(const struct unit *u, int i)
{
    const struct dev_delta *p = u->job->p;
    int h = head_of(u->job, u->j, i);
    keep(u, values(u, i));
    for (int t = u->drafts.n_sure; t < u->n_tok; t++) {
        float *to = u->log + (t - u->drafts.n_sure) * log_row(p) + channels(p) + (1ll + n_a(p)) * h;
        struct ab ab = ab_of(u, i, t);
        memmove(to, ab.a, (size_t)n_a(p) * sizeof *to);
        to[n_a(p)] = ab.b;
    }
    u->at[h] = u->pos0 + u->drafts.n_sure;
}

/* Decays of value head i of tokens [t0, t0 + n), n_a of each, and what beta is made of. */
static void decays(const struct unit *u, int i, int t0, int n, float *beta)
{
    const struct dev_delta *p = u->job->p;
    int h = head_of(u->job, u->j, i), na = n_a(p);
    for (int k = 0; k < n; k++) {
        struct ab ab = ab_of(u, i, t0 + k);
        for (int m = 0; m < na; m++)
            u->decays[k * na + m] = ab.a[m] + p->dt[h * na + m];
        beta[k] = ab.b;
    }
    if (p->bound < 0)
        u->kern->decay_in_f32(u->decays, p->decay[h], p->bound, n * na);
    else
        u->kern->decay_f32(u->decays, p->decay[h], n * na);
}

/* Value head i of tokens [t0, t0 + n), whose queries and keys are there: all of them are drafts, or
 * none is. */
static void one_head(const struct unit *u, int i, int t0, int n)
{
    const struct dev_delta *p = u->job->p;
    struct vec_delta t[VEC_DELTA_TOK];
    int h = head_of(u->job, u->j, i);
    size_t size = (size_t)p->d_k * (size_t)dev_cpu_round16(p->d_v);
    float *v = u->v, *state = u->state + (size_t)i * size, beta[VEC_DELTA_TOK];
    convolve(u, values(u, i), t0, n, v);
    decays(u, i, t0, n, beta);
    u->kern->sigmoid_f32(beta, n);
    for (int k = 0; k < n; k++) {
        float *y = p->y + ((int64_t)(u->tok0 + t0 + k) * p->n_v + h) * p->d_v;
        t[k] = (struct vec_delta){.k = u->k + k * p->d_k,
                                  .q = u->q + k * p->d_k,
                                  .v = v + k * p->d_v,
                                  .o = t0 + k < 0 ? u->none : y,
                                  .decays = u->decays + k * n_a(p),
                                  .decay = u->decays[k],
                                  .beta = beta[k]};
    }
    if (t0 >= u->drafts.n_sure) state = memcpy(u->copy, state, size * sizeof *state);
    (p->each ? u->kern->delta_each_f32 : u->kern->delta_f32)(state, p->d_k, p->d_v, t, n);
    for (int k = BASE_MAX(-t0, 0); k < n; k++) {
        const float *z = row_of(u, &p->z, i, t0 + k);
        u->kern->rmsnorm_f32(t[k].o, t[k].o, p->norm, p->d_v, p->eps);
        if (p->sigmoid)
            u->kern->gate_f32(t[k].o, z, p->d_v);
        else
            u->kern->silu_mul_f32(t[k].o, z, t[k].o, p->d_v);
    }
}

static void tokens(const struct unit *u, int t0, int n)
{
    const struct dev_delta *p = u->job->p;
    float eps = NORM_EPS / (float)p->d_k; /* of the mean of squares, where theirs is of the sum */
    convolve(u, queries(u), t0, n, u->q);
    convolve(u, keys(u), t0, n, u->k);
    for (int k = 0; k < n; k++) {
        float *q = u->q + k * p->d_k, *key = u->k + k * p->d_k;
        u->kern->rmsnorm_f32(q, q, u->one_q, p->d_k, eps);
        u->kern->rmsnorm_f32(key, key, u->one_k, p->d_k, eps);
    }
    for (int i = u->i0; i < u->i1; i++)
        one_head(u, i, t0, n);
}

static void carve(struct unit *u, float *mem)
{
    const struct dev_delta *p = u->job->p;
    float root = sqrtf((float)p->d_k);
    u->q = mem;
    u->k = u->q + VEC_DELTA_TOK * p->d_k;
    u->v = u->k + VEC_DELTA_TOK * p->d_k;
    u->decays = u->v + VEC_DELTA_TOK * p->d_v;
    u->one_k = u->decays + VEC_DELTA_TOK * n_a(p);
    u->one_q = u->one_k + p->d_k;
    u->copy = u->one_q + p->d_k;
    u->none = u->copy + p->d_k * dev_cpu_round16(p->d_v);
    for (int i = 0; i < p->d_k; i++) {
        u->one_k[i] = 1.0f / root; /* the mean's root to the sum's */
        u->one_q[i] = 1.0f / (float)p->d_k;
    }
}

/* Key head j of a sequence: at % n_seq, j = at / n_seq. */
static struct unit unit_of(struct cpu *c, const struct delta_job *job, int at)
{
    const struct dev_delta *p = job->p;
    const struct dev_step *b = job->b;
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    struct unit u = {.job = job, .kern = &c->k, .seq = at % b->n_seq, .j = at / b->n_seq};
    float *page = (float *)(void *)dev_cpu_page(kv, p->layer, b->seat[u.seq]);
    int64_t head = (int64_t)p->d_k * dev_cpu_round16(p->d_v);
    u.tok0 = b->seq_tok0[u.seq];
    u.n_tok = b->seq_tok0[u.seq + 1] - u.tok0;
    u.i1 = job->n_each;
    u.pos0 = u.n_tok ? b->pos[u.tok0] : 0;
    u.fresh = u.pos0 == 0;
    u.state = page + u.j * job->n_each * head;
    u.past = page + p->n_v * head;
    u.log = u.past + (p->n_conv - 1) * channels(p);
    u.at = (int32_t *)(void *)(u.log + DEV_STATE_BACK * log_row(p));
    return u;
}

static void all_tokens(const struct unit *u)
{
    for (int t = -u->drafts.n_back, n; t < u->n_tok; t += n) {
        int end = t < u->drafts.n_sure ? u->drafts.n_sure : u->n_tok;
        n = BASE_MIN(VEC_DELTA_TOK, end - t);
        tokens(u, t, n);
    }
}

static void run_unit(struct cpu *c, void *arg, int at, int worker)
{
    const struct delta_job *job = arg;
    const struct dev_delta *p = job->p;
    int n_seq = job->b->n_seq, part = at / n_seq % job->n_part;
    struct unit u = unit_of(c, job, at / n_seq / job->n_part * n_seq + at % n_seq);
    size_t head = (size_t)p->d_k * (size_t)dev_cpu_round16(p->d_v);
    if (!u.n_tok) return;
    u.i0 = job->n_each * part / job->n_part;
    u.i1 = job->n_each * (part + 1) / job->n_part;
    carve(&u, c->scratch[worker].attn);
    u.drafts = dev_cpu_drafts(job->b, u.seq, u.at[head_of(job, u.j, u.i0)]);
    if (u.fresh)
        memset(u.state + (size_t)u.i0 * head, 0, (size_t)(u.i1 - u.i0) * head * sizeof(float));
    all_tokens(&u);
    for (int i = u.i0; i < u.i1; i++)
        keep_values(&u, i);
    if (job->n_part == 1) keep_keys(&u);
}

/* What all units of a key head have read. */
static void keep_key_head(struct cpu *c, void *arg, int at, int worker)
{
    const struct delta_job *job = arg;
    struct unit u = unit_of(c, job, at);
    (void)worker;
    if (!u.n_tok) return;
    u.drafts = dev_cpu_drafts(job->b, u.seq, u.at[job->p->n_v + u.j]);
    keep_keys(&u);
}

/* Units of the worker that has the most of n. */
static int most(int n, int n_worker)
{
    return (n + n_worker - 1) / n_worker;
}

void dev_cpu_delta(dev *d, const struct dev_step *b, const struct dev_delta *p)
{
    struct delta_job job = {p, b, p->n_v / p->n_k, 1};
    struct cpu *c = dev_cpu_of(d);
    int n = b->n_seq * p->n_k;
    double n_tok = (double)b->n_tok / BASE_MAX(b->n_seq, 1);
    ASSERT(b->seat && dev_cpu_kv_of(p->kv, p->group)->s.d_k >=
                          dev_delta_state(p->n_k, p->n_v, p->d_k, p->d_v, p->n_conv, p->each));
    if (d->timing) /* states are read and written */
        d->cost.bytes += 8.0 * b->n_seq * p->n_v * p->d_k * dev_cpu_round16(p->d_v);
    if (most(n, c->n_worker) * job.n_each > most(n * job.n_each, c->n_worker))
        job.n_part = job.n_each;
    dev_cpu_for_rows(c, n * job.n_part,
                     NS_VALUE * n_tok * job.n_each / job.n_part * p->d_k * p->d_v, run_unit, &job);
    if (job.n_part > 1) dev_cpu_for_rows(c, n, 0.5 * p->n_conv * p->d_k, keep_key_head, &job);
}

/* ---- gates ---- */

static void gate_row(struct cpu *c, void *arg, int t, int worker)
{
    const struct dev_gate *p = arg;
    float *x = p->x + (int64_t)t * p->n_head * p->n;
    const float *g = p->g + t * p->ldg;
    (void)worker;
    for (int h = 0; h < p->n_head; h++, x += p->n, g += p->ldg_h) {
        float one = *g;
        if (!p->one) {
            c->k.gate_f32(x, g, p->n);
            continue;
        }
        c->k.sigmoid_f32(&one, 1);
        c->k.scale_f32(x, one, p->n);
    }
}

void dev_cpu_gate(dev *d, const struct dev_step *b, const struct dev_gate *p)
{
    dev_cpu_for_rows(dev_cpu_of(d), b->n_tok, p->n_head * p->n * 0.5, gate_row, (void *)p);
}
