/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one rank by purpose, and how many sequences fit beside the weights. */
#include <math.h>

#include "arch/arch.h"
#include "plan/plan_internal.h"

/* EP buffers 645 MB per die for dispatch and combine (published, A3); TP work space and allocator
 * about 1 GB; captured graphs about 1 GB. 0.94 of the memory may be planned. */
#define EP_BUFFER 645e6
#define TP_BUFFER 400e6
#define GRAPH_POOL 1.0e9
#define USABLE 0.94

static double weights_of_rank(const struct plan_case *c, double *mtp)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    const struct plan_format *f = &c->fmt;
    double tp = l->tp, pp = fmax(1, l->pp), ep = l->ep > 1 ? l->ep : tp;
    double stages = ceil(m->layers / pp) / m->layers; /* the fullest stage */
    double attn = m->p_attn / tp + m->p_repl;
    double shared = m->p_shared / tp + m->p_router;
    double experts = l->cpu_experts ? 0 : m->p_expert * (m->experts + l->redundant) / ep;
    double resident = l->cpu_experts ? l->hot * m->p_expert * m->experts / tp : 0;
    double heads = fmax(tp, l->ep > 1 ? fmin(l->ranks, 8) : tp);
    double known = m->layers * (m->p_attn + m->p_repl) + m->dense_layers * m->p_dense +
                   m->moe_layers * (m->p_expert * m->experts + m->p_shared + m->p_router) +
                   m->p_embed + m->p_head;
    double scale = m->total > 0 && known > 0 ? m->total / known : 1;
    double layers = m->layers * attn * f->attn + m->dense_layers * m->p_dense / tp * f->dense +
                    m->moe_layers * (shared * f->dense + experts * f->expert + resident * f->attn);
    double mtp_attn = plan_mtp_attn(m) / tp + plan_mtp_repl(m);
    *mtp = l->mtp > 0
               ? m->mtp_layers *
                     (mtp_attn * f->attn + shared * f->dense + (experts + resident) * f->expert) / 8
               : 0;
    return (layers * stages + (m->p_embed + m->p_head) / heads * f->head) / 8 * scale;
}

void plan_memory(const struct plan_case *c, double batch, double ctx, struct plan_memory *out)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    *out = (struct plan_memory){0};
    double bits = c->fmt.cpu > 0 ? c->fmt.cpu : c->fmt.expert;
    if (c->k.mode == PLAN_MODE_CPU) {
        out->limit = c->host && c->host->mem > 0 ? c->host->mem * USABLE : c->dev->mem * USABLE;
        if (c->team) {
            plan_team_memory(c, batch, ctx, out);
            out->kv = ceil(batch / fmax(1, l->dp)) * out->seq;
            out->total = out->weights + out->mtp + out->kv + out->acts + out->comm;
            out->fits = out->free_seq >= 1;
            return;
        }
        out->weights = plan_weight_bytes(m, &c->fmt, l->mtp > 0);
    } else {
        out->weights = weights_of_rank(c, &out->mtp);
        out->limit = c->dev->mem * USABLE;
        out->comm = l->ep > 1 ? EP_BUFFER : l->tp > 1 ? TP_BUFFER : 0;
        out->graph = c->dev->mem > 20e9 ? GRAPH_POOL : 0.3e9;
    }
    if (l->cpu_experts) {
        out->host = (double)m->moe_layers * m->experts * m->p_expert * bits / 8;
    }
    double chunk = fmin(l->chunk > 0 ? l->chunk : c->k.v[PLAN_CHUNK], 16384);
    out->acts = c->k.mode == PLAN_MODE_CPU
                    ? (double)arch_beside_bytes((int64_t)out->weights)
                    : chunk * m->hidden * 2 * 8 + fmin(chunk, 1024) * (double)m->vocab * 4 / l->tp;
    double pp = fmax(1, l->pp);
    out->seq = plan_kv_bytes(m, ctx, c->kv_bits, l->tp) / pp;
    double per_rank = ceil(batch / l->dp);
    out->kv = per_rank * out->seq;
    double rest = out->limit - out->weights - out->mtp - out->acts - out->comm - out->graph;
    out->free_seq = rest > 0 && out->seq > 0 ? floor(rest / out->seq) * l->dp : 0;
    out->total = out->weights + out->mtp + out->kv + out->acts + out->comm + out->graph;
    bool host_ok =
        !l->cpu_experts || !c->host || c->host->mem <= 0 || out->host <= c->host->mem * USABLE;
    out->fits = out->free_seq >= 1 && host_ok;
}
