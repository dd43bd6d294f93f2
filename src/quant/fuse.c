/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of a folder whose class in transformers reads them in one tensor only (Gemma 4): the
 * matrices that a plan has for each become experts.gate_up_proj [E, 2 F, D] and experts.down_proj
 * [E, D, F], where they are plain. Coded ones stay apart, as tools that make codes write them. */
#include <stdio.h>
#include <string.h>

#include "quant/quant_internal.h"

/* The place of an item among those of a layer's tensor of n a piece; -1: it is none of them. */
static int place_of(const struct quant_item *it, int layer, int n)
{
    bool down = it->id.role == ROLE_DOWN_EXPS, gate = it->id.role == ROLE_GATE_EXPS;
    if (it->id.layer != layer || it->id.expert < 0 || strcmp(it->id.suffix, "weight") != 0)
        return -1;
    if (n == 1) return down ? it->id.expert : -1;
    return gate                             ? 2 * it->id.expert
           : it->id.role == ROLE_UP_EXPS ? 2 * it->id.expert + 1
                                            : -1;
}

static bool is_coded(const struct quant_item *it)
{
    return it->type != QUANT_AS_IS && it->type != QUANT_F32 && it->type != QUANT_F16 &&
           it->type != QUANT_BF16;
}

/* The items that become one, in order: part [n_all]. False: they stay. */
static bool find_parts(const struct quant_plan *p, int layer, int n, const struct quant_item **part)
{
    int n_all = n * p->cfg.n_expert;
    for (int i = 0; i < n_all; i++)
        part[i] = NULL;
    for (int i = 0; i < p->n_item; i++) {
        int at = place_of(&p->item[i], layer, n);
        if (at >= 0 && at < n_all) part[at] = &p->item[i];
    }
    for (int i = 0; i < n_all; i++)
        if (!part[i] || is_coded(part[i]) || part[i]->store != part[0]->store ||
            part[i]->type != part[0]->type || part[i]->rows != part[0]->rows ||
            part[i]->cols != part[0]->cols)
            return false;
    return true;
}

/* They take the place of the first of them. */
static void put_whole(struct quant_plan *p, int layer, int n, struct quant_item *copy)
{
    int n_all = n * p->cfg.n_expert, to = 0;
    struct quant_item all = copy[0];
    const char *cut = strstr(all.name, ".experts.");
    char head[QUANT_MAX_NAME];
    bool done = false;
    snprintf(head, sizeof head, "%.*s", cut ? (int)(cut - all.name) : 0, all.name);
    snprintf(all.name, sizeof all.name, "%.*s.experts.%s", QUANT_MAX_NAME - 40, head,
             n == 2 ? "gate_up_proj" : "down_proj");
    all.id.role = n == 2 ? ROLE_GATE_UP_EXPS : ROLE_DOWN_EXPS;
    all.id.expert = -1;
    all.from = QUANT_FUSED;
    all.sub = -1;
    all.part = copy;
    all.n_part = n_all;
    all.n_dim = 3;
    all.shape[0] = p->cfg.n_expert;
    all.shape[1] = n * copy[0].rows;
    all.shape[2] = copy[0].cols;
    all.rows = n_all * copy[0].rows;
    all.bytes_from = 0;
    for (int i = 0; i < n_all; i++)
        all.bytes_from += copy[i].bytes_from;
    for (int i = 0; i < p->n_item; i++) {
        bool is_part = place_of(&p->item[i], layer, n) >= 0;
        if (is_part && done) continue;
        done = done || is_part;
        p->item[to++] = is_part ? all : p->item[i];
    }
    p->n_item = to;
}

static sl_status fuse(struct quant_plan *p, int layer, int n, sl_err *err)
{
    size_t n_all = (size_t)n * (size_t)p->cfg.n_expert;
    void *list = NULL, *q = NULL;
    SL_TRY(mem_arena_array(&p->arena, n_all, sizeof(struct quant_item *), &list, err));
    const struct quant_item **part = list;
    if (!find_parts(p, layer, n, part)) return SL_OK;
    SL_TRY(mem_arena_array(&p->arena, n_all, sizeof(struct quant_item), &q, err));
    struct quant_item *copy = q;
    for (size_t i = 0; i < n_all; i++)
        copy[i] = *part[i];
    put_whole(p, layer, n, copy);
    return SL_OK;
}

sl_status quant_plan_fuse(struct quant_plan *p, sl_err *err)
{
    if (p->to != IO_HF || !p->has_cfg || !p->cfg.sandwich || !p->cfg.n_expert) return SL_OK;
    for (int il = 0; il < p->cfg.n_layer; il++) {
        SL_TRY(fuse(p, il, 2, err));
        SL_TRY(fuse(p, il, 1, err));
    }
    return SL_OK;
}

sl_status quant_fused_open(struct quant_rows *r, sl_err *err)
{
    const struct quant_item *it = r->it;
    void *q = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)it->n_part, sizeof *r->sub, &q, err));
    r->sub = q;
    for (r->n_fused = 0; r->n_fused < it->n_part; r->n_fused++)
        SL_TRY(quant_rows_open(r->p, &it->part[r->n_fused], &r->sub[r->n_fused], err));
    return SL_OK;
}

void quant_fused_close(struct quant_rows *r)
{
    for (int i = 0; i < r->n_fused; i++)
        quant_rows_close(&r->sub[i]);
    mem_free(r->sub);
}
