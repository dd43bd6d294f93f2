/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values per head, in a fused region. Where a unit of attention is one worker's, so are
 * the norms, the rotation and the storing of its heads; else all of that comes first. */
#include "dev/cpu/region.h"

#define FETCH_BYTES ((size_t)128 << 10) /* of keys and values, by a worker: stay in its cache */

static void rotate_head(const struct mine *m, float *x, const struct dev_norm *n, int t)
{
    const struct region_job *j = m->j;
    const struct dev_rope *p = m->l->p.rope;
    if (n) j->c->k.rmsnorm_f32(x, x, n->w, n->n, n->eps);
    dev_cpu_rotate(&j->c->k, p->style, x, j->cs + (int64_t)t * j->c->n_rot_max, p->n_rot);
}

/* KV head h of token t: its queries and its key are ready after this, key and value stored. */
static void ready(const struct mine *m, int t, int h)
{
    const struct region_job *j = m->j;
    const struct cpu_layer_ops *p = &m->l->p;
    int d = p->d_head, group = j->a.group;
    float *q = p->in->y[0] + ((int64_t)t * p->attn->n_head + (int64_t)h * group) * d;
    int64_t at = ((int64_t)t * p->n_head_kv + h) * d;
    float *k = p->in->y[1] + at;
    for (int i = 0; i < group; i++)
        rotate_head(m, q + i * d, p->q_norm, t);
    rotate_head(m, k, p->k_norm, t);
    dev_cpu_put_head(j->c, j->kv, dev_cpu_place(j->c, j->kv, m->attn.layer, j->b, t), h, k,
                     p->in->y[2] + at);
}

static void begin_unit(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                       float *mem)
{
    const struct mine *m = (const struct mine *)(const void *)j;
    for (int t = u->tok0; t < u->tok0 + u->n_tok; t++)
        ready(m, t, u->head0 / u->n_head);
    m->begin(c, j, u, mem);
}

void dev_cpu_region_gqa(struct mine *m)
{
    struct region_job *j = m->j;
    int n_head = m->l->p.n_head_kv;
    int64_t b, e;
    m->attn = *m->l->p.attn;
    m->a.p = &m->attn;
    m->spans.op = &m->a;
    if (j->whole) {
        m->begin = j->spans.begin;
        m->spans.begin = begin_unit;
    } else {
        par_split((int64_t)j->b->n_tok * n_head, m->worker, m->n_w, &b, &e);
        for (; b < e; b++)
            ready(m, (int)(b / n_head), (int)(b % n_head));
        par_barrier(j->c->team);
    }
    dev_cpu_spans_run(j->c, &m->spans, m->worker, m->n_w);
    par_barrier(j->c->team);
    if (m->worker == 0) dev_cpu_attn_count(j->c, j->kv, j->b, m->attn.n_window, &m->spans.products);
    dev_cpu_region_book(m, DEV_OP_attn, NULL);
}

void dev_cpu_region_gqa_begin(struct region_job *j)
{
    struct cpu *c = j->c;
    j->attn = *j->s->layer[0].p.attn;
    dev_cpu_attn_job(c, j->b, &j->attn, &j->a, &j->spans);
    dev_cpu_spans_begin(c, &j->spans);
    j->whole = !j->spans.window;
    for (int i = 0; i < j->spans.n_unit; i++) {
        const struct cpu_unit *u = &c->span.unit[i];
        if (u->n_tok < j->b->seq_tok0[u->seq + 1] - j->b->seq_tok0[u->seq]) j->whole = 0;
    }
}

static void read_lines(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        (void)*(const volatile uint8_t *)(p + i);
}

/* They come from memory, for the weights of a step push them out of every cache, and attention
 * waits for one after another. */
void dev_cpu_region_fetch(const struct mine *m)
{
    const struct region_job *j = m->j;
    const struct cpu_kv *kv = j->kv;
    int layer = m->l->p.attn->layer, n_window = m->l->p.attn->n_window;
    size_t left = FETCH_BYTES;
    for (int i = m->worker; i < j->spans.n_unit; i += m->n_w) {
        const struct cpu_unit *u = &j->c->span.unit[j->spans.n_unit - 1 - i];
        int h = u->head0 / u->n_head, p = u->span0 * VEC_SPAN,
            end = j->b->pos[u->tok0 + u->n_tok - 1] + 1;
        if (n_window > 0) { /* what none sees may be another sequence's */
            int from = j->b->pos[u->tok0] - n_window + 1;
            p = BASE_MAX(p, from / 16 * 16);
        }
        for (int n; p < end; p += n) {
            n = kv->blk_tok - p % kv->blk_tok;
            if (n > end - p) n = end - p;
            int in = p % kv->blk_tok;
            size_t k = (size_t)(n + 15) / 16 * kv->group_bytes, v = (size_t)n * kv->row_bytes;
            const uint8_t *page = dev_cpu_page_of(kv, layer, j->b, u->seq, p);
            if (k + v > left) return;
            left -= k + v;
            read_lines(page + dev_cpu_key_at(kv, h, in), k);
            read_lines(page + dev_cpu_value_at(kv, h, in), v);
        }
    }
}
