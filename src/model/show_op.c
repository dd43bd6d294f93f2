/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator of a program is, said once for people and for programs: operands with their
 * widths, matrices, parameters, and a sentence. */
#include "model/show.h"

struct name {
    const void *at;
    const char *text;
};

static const char *name_of(const struct model *m, const void *p)
{
    const struct side *d = model_side(m, MODEL_ATTN); /* the model is on one device */
    const struct name all[] = {{d->x, "x"},
                               {d->r, "r"},
                               {d->stream_y, "stream"},
                               {d->stream_mix, "stream_mix"},
                               {d->q, "q"},
                               {d->k, "k"},
                               {d->v, "v"},
                               {d->y, "y"},
                               {d->qa, "q_latent"},
                               {d->index_q, "index_q"},
                               {d->index_k, "index_k"},
                               {d->index_w, "index_w"},
                               {d->pick, "picked"},
                               {d->heads, "heads"},
                               {d->entry[0], "entry"},
                               {d->entry[1], "entry_gate"},
                               {d->entry[2], "index_entry"},
                               {d->entry[3], "index_gate"},
                               {d->qg, "q_gate"},
                               {d->mix, "mix"},
                               {d->low, "low"},
                               {d->head_gate, "head_gate"},
                               {d->share, "share"},
                               {d->h, "h"},
                               {d->hidden, "hidden"},
                               {d->logits, "logits"},
                               {d->best, "best"},
                               {d->eh_in, "pair"},
                               {d->logit_r, "scores"},
                               {d->id_r, "experts"},
                               {d->shared, "shared"},
                               {d->a_attn, "in_attn"},
                               {d->a_q_a, "in_q_b"},
                               {d->a_o, "in_o"},
                               {d->a_mix, "in_out"},
                               {d->a_a, "in_decays"},
                               {d->a_z, "in_gates"},
                               {d->a_o_win, "in_o_win"},
                               {d->a_router, "in_router"},
                               {d->a_beside, "in_experts"},
                               {d->a_ffn, "in_ffn"},
                               {d->a_h, "in_down"},
                               {d->a_head, "in_head"},
                               {d->a_eh, "in_eh"},
                               {d->a_e, "in_e"},
                               {d->a_streams, "in_h"}};
    const struct name *best = NULL;
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        if (all[i].at && (uintptr_t)all[i].at <= (uintptr_t)p &&
            (!best || (uintptr_t)best->at < (uintptr_t)all[i].at))
            best = &all[i];
    return best ? best->text : "?";
}

static void takes(struct shown *s, const void *p, int64_t cols)
{
    ASSERT(s->n_in < SHOWN_OPERANDS);
    if (p) s->in[s->n_in++] = (struct shown_operand){name_of(s->m, p), cols};
}

static void gives(struct shown *s, const void *p, int64_t cols)
{
    ASSERT(s->n_out < SHOWN_OPERANDS);
    if (p) s->out[s->n_out++] = (struct shown_operand){name_of(s->m, p), cols};
}

static void put(struct shown *s, const char *key, double v, int kind)
{
    ASSERT(s->n_param < SHOWN_PARAMS);
    s->param[s->n_param].key = key;
    s->param[s->n_param].v = v;
    s->param[s->n_param++].kind = kind;
}

static void whole(struct shown *s, const char *key, int v)
{
    put(s, key, v, SHOWN_INT);
}

static void real(struct shown *s, const char *key, float v)
{
    put(s, key, (double)v, SHOWN_REAL);
}

static void yes(struct shown *s, const char *key, bool v)
{
    put(s, key, v, SHOWN_BOOL);
}

#define SAY(s, ...) str_printf(&(s)->text, __VA_ARGS__)
#define NAME(s, p) name_of((s)->m, p)

/* A matrix of the operator: "[576 x 1536] q4_0", "64 of [32 x 128] f32 + bias". */
static void has(struct shown *s, const char *as, const dev_mat *w)
{
    struct dev_dry_mat d = dev_dry_mat(w);
    ASSERT(s->n_weight < SHOWN_WEIGHTS);
    s->weight[s->n_weight].as = as;
    s->weight[s->n_weight++].w = w;
    if (d.n > 1) SAY(s, "%d of ", d.n);
    SAY(s, "[%d x %d] %s%s", d.rows, d.cols, d.type, dev_mat_epilogue(w)->bias ? " + bias" : "");
}

/* ---- operators ---- */

static void show_embed(struct shown *s, const struct dev_embed *p)
{
    gives(s, p->y, dev_mat_cols(p->w));
    SAY(s, "%s = the tokens' rows of ", NAME(s, p->y));
    has(s, NULL, p->w);
    real(s, "scale", p->scale);
}

static void show_norm(struct shown *s, const struct dev_norm *p)
{
    int n_head = BASE_MAX(p->n_head, 1);
    takes(s, p->x, (int64_t)n_head * p->n);
    takes(s, p->r, p->n);
    gives(s, p->act, p->n);
    gives(s, p->y, (int64_t)n_head * p->n);
    SAY(s, "%s = %s(%s", p->act ? NAME(s, p->act) : NAME(s, p->y),
        p->b ? "layernorm" : "rmsnorm", NAME(s, p->x));
    if (p->r) SAY(s, " += %s", NAME(s, p->r));
    SAY(s, ")");
    whole(s, "heads", n_head);
    yes(s, "mean", p->b);
    if (n_head > 1)
        SAY(s, ", %d heads of %d", n_head, p->n);
    else
        SAY(s, " of %d", p->n);
    real(s, "eps", p->eps);
    SAY(s, ", eps %g", (double)p->eps);
    yes(s, "gather", p->gather);
    if (p->gather) SAY(s, ", rows of the pass before");
}

static void show_streams(struct shown *s, const struct dev_streams *p)
{
    if (!p->begin) takes(s, p->x, (int64_t)p->n_stream * p->n);
    takes(s, p->r, p->n);
    if (p->r) gives(s, p->x, (int64_t)p->n_stream * p->n);
    gives(s, p->y, p->n);
    SAY(s, "%s = %s of %d streams %s", NAME(s, p->y), p->fn ? "a sum" : "the mean", p->n_stream,
        NAME(s, p->x));
    if (p->r)
        SAY(s, p->more ? ", all += %s" : p->begin ? ", all %s" : ", mixed with %s", NAME(s, p->r));
    SAY(s, ", of %d", p->n);
    whole(s, "streams", p->n_stream);
    yes(s, "begin", p->begin);
    yes(s, "more", p->more);
    yes(s, "head", p->head);
    real(s, "eps", p->norm_eps);
    real(s, "stream_eps", p->eps);
    whole(s, "rounds", p->rounds);
    if (!p->head) SAY(s, ", %d rounds, eps %g", p->rounds, (double)p->eps);
}

static void show_prep(struct shown *s, const struct dev_prep *p)
{
    takes(s, p->x, p->n);
    gives(s, p->act, p->n);
    SAY(s, "%s = %s of %d", NAME(s, p->act), NAME(s, p->x), p->n);
}

static void show_matmul(struct shown *s, const struct dev_matmul *p)
{
    int n_head = BASE_MAX(p->n_head, 1);
    takes(s, p->act, (int64_t)n_head * dev_mat_cols(p->w[0]));
    for (int i = 0; i < p->n_mat; i++) {
        gives(s, p->y[i], (int64_t)n_head * dev_mat_rows(p->w[i]));
        SAY(s, "%s%s", i ? ", " : "", NAME(s, p->y[i]));
    }
    SAY(s, " = %s by ", NAME(s, p->act));
    for (int i = 0; i < p->n_mat; i++) {
        if (i) SAY(s, ", ");
        has(s, NULL, p->w[i]);
    }
    if (n_head > 1) {
        whole(s, "heads", n_head);
        SAY(s, ", %d rows of a token", n_head);
    }
    s->wanted = p->n_row == DEV_ROWS_WANTED;
}

static void show_rope(struct shown *s, const struct dev_rope *p)
{
    takes(s, p->x, p->n_head * p->ldx_h);
    gives(s, p->x, p->n_head * p->ldx_h);
    whole(s, "heads", p->n_head);
    whole(s, "rotated", p->n_rot);
    yes(s, "pairs", p->style);
    real(s, "times", p->mscale);
    yes(s, "back", p->back);
    SAY(s, "%s: %d head%s, %d values in %s%s", NAME(s, p->x), p->n_head, p->n_head == 1 ? "" : "s",
        p->n_rot, p->style ? "pairs" : "halves", p->back ? ", back" : "");
}

static void show_kv_put(struct shown *s, const struct dev_kv_put *p)
{
    takes(s, p->k, p->ldk);
    takes(s, p->v, p->ldv);
    takes(s, p->i, p->ldi);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    SAY(s, "cache = %s%s%s%s%s", NAME(s, p->k), p->v ? ", " : "", p->v ? NAME(s, p->v) : "",
        p->i ? ", " : "", p->i ? NAME(s, p->i) : "");
}

static void show_attn(struct shown *s, const struct dev_attn *p)
{
    takes(s, p->q, (int64_t)p->n_head * p->d_k);
    gives(s, p->y, (int64_t)p->n_head * p->d_v);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "heads", p->n_head);
    real(s, "scale", p->scale);
    SAY(s, "%s = attention of %s over cache: %d heads, scale %g", NAME(s, p->y), NAME(s, p->q),
        p->n_head, (double)p->scale);
    whole(s, "window", p->n_window);
    if (p->n_window) SAY(s, ", window %d", p->n_window);
    static const char *const word[] = {
#define X(role, gguf, hf, word) word,
        PER_HEAD_LIST(X)
#undef X
    };
    for (int i = 0; i < N_PER_HEAD; i++) {
        yes(s, word[i], p->per_head.of[i]);
        if (p->per_head.of[i]) SAY(s, ", %s", word[i]);
    }
    takes(s, p->some.pick, p->some.n_pick);
    whole(s, "block", p->some.blk);
    whole(s, "picked", p->some.n_pick);
    if (p->some.pick)
        SAY(s, "; from position %d on to blocks of %d at %s", p->some.blk * p->some.n_pick,
            p->some.blk, NAME(s, p->some.pick));
}

static void show_index(struct shown *s, const struct dev_index *p)
{
    takes(s, p->q, (int64_t)p->n_head * p->d);
    takes(s, p->w, p->n_head);
    gives(s, p->pick, (int64_t)p->top * (p->blk ? p->n_head : 1));
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "heads", p->n_head);
    whole(s, "key", p->d);
    whole(s, "top", p->top);
    whole(s, "block", p->blk);
    whole(s, "local", p->n_local);
    if (p->blk) {
        SAY(s, "%s = %d best blocks of %d positions, the last %d among them, by %s over cache: ",
            NAME(s, p->pick), p->top, p->blk, p->n_local, NAME(s, p->q));
        SAY(s, "%d heads of %d, each by itself", p->n_head, p->d);
        return;
    }
    whole(s, "tokens", p->every);
    SAY(s, "%s = %d best %s by %s over cache: %d heads of %d, weighed by %s", NAME(s, p->pick),
        p->top, p->every ? "entries" : "positions", NAME(s, p->q), p->n_head, p->d, NAME(s, p->w));
}

static void show_mla(struct shown *s, const struct dev_attn_mla *p)
{
    takes(s, p->q, (int64_t)p->n_head * (p->nope + p->rope));
    gives(s, p->y, (int64_t)p->n_head * p->v);
    SAY(s, "%s = attention of %s over cache: %d heads of %d + %d, latents of %d, scale %g; keys ",
        NAME(s, p->y), NAME(s, p->q), p->n_head, p->nope, p->rope, p->r, (double)p->scale);
    has(s, "keys", p->w_kb);
    SAY(s, ", values ");
    has(s, "values", p->w_vb);
    takes(s, p->pick, p->n_pick);
    whole(s, "picked", p->n_pick);
    whole(s, "tokens", p->every);
    if (p->pick && p->every)
        SAY(s, "; after %d windows of %d at %s", p->n_pick, p->every, NAME(s, p->pick));
    else if (p->pick)
        SAY(s, "; from position %d on at %s", p->n_pick, NAME(s, p->pick));
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "heads", p->n_head);
    whole(s, "latent", p->r);
    whole(s, "nope", p->nope);
    whole(s, "rope", p->rope);
    whole(s, "value", p->v);
    real(s, "scale", p->scale);
}

static void show_heads(struct shown *s, const struct dev_matmul_heads *p)
{
    takes(s, p->x, p->ldx);
    gives(s, p->y, p->ldy);
    whole(s, "heads", p->n_head);
    SAY(s, "%s = %s by ", NAME(s, p->y), NAME(s, p->x));
    has(s, "matrix", p->w);
    SAY(s, ", each for its part of %lld", (long long)p->ldx_h);
}

static void show_compress(struct shown *s, const struct dev_compress *p)
{
    int n = p->overlap ? 2 * p->d : p->d;
    takes(s, p->c, n);
    takes(s, p->z, n);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "tokens", p->every);
    whole(s, "width", p->d);
    yes(s, "index", p->index);
    yes(s, "overlap", p->overlap);
    SAY(s, "cache = %s of %s, weighed by %s: one of %d tokens%s",
        p->index ? "index keys" : "entries", NAME(s, p->c), NAME(s, p->z), p->every,
        p->overlap ? " and of those before" : "");
}

static void show_ckv(struct shown *s, const struct dev_attn_ckv *p)
{
    takes(s, p->q, (int64_t)p->n_head * p->d);
    gives(s, p->y, (int64_t)p->n_head * p->d);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "heads", p->n_head);
    real(s, "scale", p->scale);
    whole(s, "window", p->n_window);
    whole(s, "tokens", p->every);
    SAY(s, "%s = attention of %s over cache, keys that are values: ", NAME(s, p->y), NAME(s, p->q));
    SAY(s, "%d heads of %d, scale %g, window %d", p->n_head, p->d, (double)p->scale, p->n_window);
    yes(s, "sinks", p->sink);
    if (p->sink) SAY(s, ", sinks");
    if (p->every) SAY(s, ", entries of %d tokens", p->every);
    takes(s, p->pick, p->n_pick);
    whole(s, "picked", p->n_pick);
    if (p->pick) SAY(s, "; of more than %d those at %s", p->n_pick, NAME(s, p->pick));
}

static void show_delta(struct shown *s, const struct dev_delta *p)
{
    takes(s, p->q.p, p->q.ld);
    gives(s, p->y, (int64_t)p->n_v * p->d_v);
    whole(s, "cache_group", p->group);
    whole(s, "cache_layer", p->layer);
    whole(s, "key_heads", p->n_k);
    whole(s, "heads", p->n_v);
    whole(s, "key", p->d_k);
    whole(s, "value", p->d_v);
    whole(s, "taps", p->n_conv);
    yes(s, "tiled", p->tiled);
    yes(s, "each", p->each);
    yes(s, "sigmoid", p->sigmoid);
    put(s, "bound", (double)p->bound, SHOWN_REAL);
    SAY(s, "%s = gated delta rule of %s: %d heads of %d x %d, %d of keys, %d taps%s%s",
        NAME(s, p->y), NAME(s, p->q.p), p->n_v, p->d_k, p->d_v, p->n_k, p->n_conv,
        p->each ? ", a decay for each row" : "", p->sigmoid ? ", sigmoid gate" : "");
    if (p->bound < 0) SAY(s, ", decays above e^%g", (double)p->bound);
}

static void show_gate(struct shown *s, const struct dev_gate *p)
{
    takes(s, p->x, (int64_t)p->n_head * p->n);
    takes(s, p->g, p->ldg);
    gives(s, p->x, (int64_t)p->n_head * p->n);
    whole(s, "heads", p->n_head);
    yes(s, "one", p->one);
    SAY(s, "%s times sigmoid of %s%s", NAME(s, p->x), NAME(s, p->g),
        !p->one ? "" : p->n_head > 1 ? ", one number a head" : ", one number a token");
}

static void show_pair(struct shown *s, const dev_mat *gate_up, const dev_mat *down)
{
    SAY(s, "gate and up ");
    has(s, "gate_up", gate_up);
    SAY(s, ", down ");
    has(s, "down", down);
}

static void show_glu(struct shown *s, const struct glu *g)
{
#define X(member, key, kind, without, text)                                                        \
    put(s, key, g->member != 0 ? (SHOWN_##kind == SHOWN_BOOL ? 1.0 : (double)g->member) : without, \
        SHOWN_##kind);                                                                             \
    if (g->member != 0) SAY(s, text, (double)g->member);
    GLU_LIST(X)
#undef X
}

static void show_ffn(struct shown *s, const struct dev_ffn *p)
{
    takes(s, p->act, dev_mat_cols(p->gate_up));
    gives(s, p->y, dev_mat_rows(p->down));
    SAY(s, "%s = %s by ", NAME(s, p->y), NAME(s, p->act));
    show_pair(s, p->gate_up, p->down);
    show_glu(s, &dev_mat_epilogue(p->gate_up)->glu);
}

static void show_route(struct shown *s, const struct dev_route *p)
{
    takes(s, p->logit, p->n_expert);
    gives(s, p->id, p->k);
    whole(s, "experts", p->n_expert);
    whole(s, "used", p->k);
    yes(s, "sigmoid", p->sigmoid);
    SAY(s, "%s = %d of %d by %s of %s", NAME(s, p->id), p->k, p->n_expert,
        p->root ? "sqrt(softplus)" : p->sigmoid ? "sigmoid" : "softmax", NAME(s, p->logit));
    yes(s, "root", p->root);
    yes(s, "of_id", p->of_id);
    if (p->of_id) SAY(s, ", chosen by the token's id");
    yes(s, "bias", p->bias);
    if (p->bias) SAY(s, " + bias");
    whole(s, "groups", BASE_MAX(p->n_group, 1));
    whole(s, "groups_used", BASE_MAX(p->k_group, 1));
    if (p->n_group > 1) SAY(s, ", from %d of %d groups", p->k_group, p->n_group);
    yes(s, "norm", p->norm);
    if (p->norm) SAY(s, ", weights sum to 1");
    real(s, "scale", p->scale);
    if (p->scale != 1.0f) SAY(s, ", times %g", (double)p->scale);
    yes(s, "gain", p->gain);
    if (p->gain) SAY(s, ", times each expert's factor");
}

static void show_moe(struct shown *s, const struct dev_moe *p)
{
    takes(s, p->act, dev_mat_cols(p->gate_up));
    takes(s, p->id, p->k);
    takes(s, p->add, dev_mat_rows(p->down));
    gives(s, p->y, dev_mat_rows(p->down));
    SAY(s, "%s = %s by %s", NAME(s, p->y), NAME(s, p->act), NAME(s, p->id));
    if (p->add) SAY(s, " + %s", NAME(s, p->add));
    SAY(s, ": ");
    show_pair(s, p->gate_up, p->down);
    whole(s, "experts", p->n_expert);
    whole(s, "used", p->k);
    show_glu(s, &dev_mat_epilogue(p->gate_up)->glu);
}

static void show_add(struct shown *s, const struct dev_add *p)
{
    takes(s, p->x, p->n);
    takes(s, p->y, p->n);
    gives(s, p->x, p->n);
    SAY(s, "%s += %s", NAME(s, p->x), NAME(s, p->y));
    real(s, "scale", p->scale != 0 ? p->scale : 1.0f);
    if (p->scale != 0) SAY(s, ", times %g", (double)p->scale);
}

static void show_cap(struct shown *s, const struct dev_cap *p)
{
    takes(s, p->x, p->n);
    gives(s, p->x, p->n);
    s->wanted = true;
    real(s, "cap", p->cap);
    SAY(s, "%s within +-%g, by tanh", NAME(s, p->x), (double)p->cap);
}

static void show_rows(struct shown *s, const struct dev_rows *p)
{
    takes(s, p->x, p->n);
    gives(s, p->act, p->n);
    s->wanted = true;
    SAY(s, "%s = %s, the rows that are wanted", NAME(s, p->act), NAME(s, p->x));
}

static void show_best(struct shown *s, const struct dev_best *p)
{
    takes(s, p->x, p->n);
    gives(s, p->id, 1);
    s->wanted = true;
    SAY(s, "%s = largest of %s, of %d", NAME(s, p->id), NAME(s, p->x), p->n);
}

void model_op_show(struct shown *s, const struct model *m, const struct dev_op *op)
{
    *s = (struct shown){.m = m};
    str_init(&s->text, MEM_MISC, 0);
    switch (op->kind) {
#define SHOW(name, show)                                                                           \
    case DEV_OP_##name:                                                                            \
        show(s, &op->u.name);                                                                      \
        break;
        SHOW(embed, show_embed)
        SHOW(norm, show_norm)
        SHOW(streams, show_streams)
        SHOW(prep, show_prep)
        SHOW(matmul, show_matmul)
        SHOW(rope, show_rope)
        SHOW(kv_put, show_kv_put)
        SHOW(attn, show_attn)
        SHOW(index, show_index)
        SHOW(attn_mla, show_mla)
        SHOW(matmul_heads, show_heads)
        SHOW(compress, show_compress)
        SHOW(attn_ckv, show_ckv)
        SHOW(delta, show_delta)
        SHOW(gate, show_gate)
        SHOW(ffn, show_ffn)
        SHOW(route, show_route)
        SHOW(moe, show_moe)
        SHOW(add, show_add)
        SHOW(cap, show_cap)
        SHOW(rows, show_rows)
        SHOW(best, show_best)
#undef SHOW
    default: /* in no program of a model on one device without a tap */
        break;
    }
}

void model_op_show_end(struct shown *s)
{
    str_fini(&s->text);
}
