/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that come from the CPU, slab by slab, while the device computes: each token's sums, in
 * time and late, are the CPU's, bit for bit. */
#include "check_gpu.h"

#define BUFS 2
#define SLOTS 3

struct sent {
    int E, K, D, F, T, n_late;
    dev_mat *up[2], *down[2], *room_up[BUFS], *room_down[BUFS]; /* stacks; rooms of the device */
    dev_act *a[2];
    struct buf logit, id, w, x, y, late, add, before, terms;
    struct dev_slots slab[16];
    int32_t mem[16][2 * SLOTS + 65];
};

static void make_rooms(struct sent *c)
{
    struct dev_image up, down;
    dev_mat_view(c->up[0], 0, &up);
    dev_mat_view(c->down[0], 0, &down);
    for (int i = 0; i < BUFS; i++) {
        MUST(dev_mat_room(g.d[1], &up, SLOTS, DEV_USE_EXPERTS, &c->room_up[i], &err_));
        MUST(dev_mat_room(g.d[1], &down, SLOTS, DEV_USE_EXPERTS, &c->room_down[i], &err_));
    }
    for (int s = 0; s * SLOTS < c->E; s++) {
        int32_t *m = c->mem[s];
        for (int i = 0; i < SLOTS; i++) /* not in their order */
            m[i] = s * SLOTS + i < c->E ? c->E - 1 - s * SLOTS - i : -1;
        c->slab[s] = (struct dev_slots){
            .n = SLOTS, .expert = m, .first = m + 2 * SLOTS, .list = m + SLOTS};
        dev_slots_init(&c->slab[s], c->E);
    }
}

static struct dev_moe moe_of(const struct sent *c, int k)
{
    return (struct dev_moe){.act = c->a[k],
                            .k = c->K,
                            .n_expert = c->E,
                            .id = (int32_t *)(void *)c->id.at[k],
                            .weight = c->w.at[k],
                            .gate_up = c->up[k],
                            .combine = (enum dev_combine)(c->E % 3),
                            .down = c->down[k]};
}

/* What the CPU computes at once the device does slab by slab, and then adds up. */
static int list_sent(const struct sent *c, int k, struct dev_op *op)
{
    int n = 0;
    op[n].kind = DEV_OP_prep;
    op[n++].u.prep = (struct dev_prep){.x = c->x.at[k], .n = c->D, .act = c->a[k]};
    op[n].kind = DEV_OP_route;
    op[n++].u.route = (struct dev_route){.logit = c->logit.at[k],
                                         .n_expert = c->E,
                                         .k = c->K,
                                         .n_group = 1,
                                         .k_group = 1,
                                         .norm = 1,
                                         .scale = 1.0f,
                                         .id = (int32_t *)(void *)c->id.at[k],
                                         .weight = c->w.at[k]};
    for (int s = 0; k && s * SLOTS < c->E; s++) {
        int b = s % BUFS;
        struct dev_moe p = moe_of(c, k);
        op[n].kind = DEV_OP_send;
        op[n++].u.send = (struct dev_send){.from_gate_up = c->up[0],
                                           .from_down = c->down[0],
                                           .gate_up = c->room_up[b],
                                           .down = c->room_down[b],
                                           .slots = &c->slab[s]};
        p.slots = &c->slab[s];
        p.gate_up = c->room_up[b];
        p.down = c->room_down[b];
        p.terms = c->terms.at[1];
        op[n].kind = DEV_OP_moe;
        op[n++].u.moe = p;
    }
    for (int late = 0; late < 2; late++) {
        struct dev_moe p = moe_of(c, k);
        p.n_late = c->n_late;
        p.late = late;
        p.add = late ? NULL : c->add.at[k];
        p.before = late ? NULL : c->before.at[k];
        p.y = late ? c->late.at[k] : c->y.at[k];
        op[n].kind = k ? DEV_OP_sum : DEV_OP_moe;
        if (k)
            op[n].u.sum = (struct dev_sum){.n = c->D,
                                           .k = c->K,
                                           .id = p.id,
                                           .weight = p.weight,
                                           .here = c->terms.at[1],
                                           .add = p.add,
                                           .before = p.before,
                                           .y = p.y,
                                           .n_late = p.n_late,
                                           .late = p.late};
        else
            op[n].u.moe = p;
        n++;
    }
    return n;
}

static void run_sent(const struct sent *c, const struct dev_step *s)
{
    struct dev_op op[2][48] = {0};
    int n[2] = {list_sent(c, 0, op[0]), list_sent(c, 1, op[1])};
    struct dev_limits max = {.n_tok = T_MAX, .n_seq = 3, .n_ctx = N_BLK * BLK};
    for (int k = 0; k < 2; k++) {
        dev_prog *p = NULL;
        MUST(dev_reserve(g.d[k], op[k], n[k], &max, &err_));
        MUST(dev_prog_open(g.d[k], op[k], n[k], &p, &err_));
        for (int r = 0; r < 2; r++) { /* the first buffer comes while the last one is read */
            MUST(dev_prog_run(p, NULL, s, &err_));
            MUST(dev_sync(g.d[k], &err_));
        }
        dev_prog_close(p);
    }
}

static void check_sent(const struct format *f, int trial)
{
    char what[80];
    struct sent c = {.E = rand_int(4, 14), .K = rand_int(1, 4)};
    int32_t n_prompt[3];
    c.D = 8 * rand_int(2, 12), c.F = 8 * rand_int(2, 9);
    c.T = tokens[trial % N_TOKENS];
    c.n_late = trial % 2 ? rand_int(0, c.K) : 0;
    open_both(DEV_ACTS_AUTO);
    make_mat(f, &(struct dev_image){.n = c.E, .rows = c.F, .cols = c.D, .is_pair = 1},
             DEV_USE_EXPERTS, c.up);
    make_mat(f, &(struct dev_image){.n = c.E, .rows = c.D, .cols = c.F}, DEV_USE_EXPERTS, c.down);
    c.logit = make_buf((int64_t)c.T * c.E), c.id = make_buf((int64_t)c.T * c.K);
    c.w = make_buf((int64_t)c.T * c.K), c.x = make_buf((int64_t)c.T * c.D);
    c.y = make_buf((int64_t)c.T * c.D), c.late = make_buf((int64_t)c.T * c.D);
    c.add = make_buf((int64_t)c.T * c.D), c.before = make_buf((int64_t)c.T * c.D);
    c.terms = make_buf((int64_t)c.T * c.K * c.D);
    end_both(c.up, trial % 3 == 0, c.E, 2 * c.F, (struct glu){.limit = trial % 2 ? 7.0f : 0.0f});
    end_both(c.down, trial % 3 == 0, c.E, c.D, (struct glu){0});
    make_rooms(&c);
    dev_mat *const first[2] = {c.up[0], c.room_up[0]};
    act_for(first, c.D, c.a);
    struct dev_step s = make_step(c.T);
    for (int q = 0; q < s.n_seq; q++)
        n_prompt[q] = pos[tok0[q]] + rand_int(0, tok0[q + 1] - tok0[q]);
    s.n_prompt = n_prompt;
    run_sent(&c, &s);
    snprintf(what, sizeof what, "%d late of %d sent experts of %s, T %d", c.n_late, c.E, f->name,
             c.T);
    same(what, &c.id);
    same(what, &c.y);
    same(what, &c.late);
    free(c.logit.x), free(c.id.x), free(c.w.x), free(c.x.x), free(c.y.x), free(c.late.x);
    free(c.add.x), free(c.before.x), free(c.terms.x);
    close_both();
}

void check_sends(void)
{
    for (int i = 0; i < GPU_N_FMT; i++)
        check_sent(&formats[i], i);
}
