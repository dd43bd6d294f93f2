/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler, the block tables and the prefix tree under a seeded simulator
 * (docs/reliability.md K1, K2, K4, K6, K7, K8, K10, K15, N1). The device is a list of what each
 * block holds: a value per position that depends on the tokens before it, on the form in which
 * they were computed and on the salt, so that any block that is shared wrongly is found when it is
 * read. A freed block is overwritten at once. Half of the models have a layer with a recurrent
 * state: the same value, updated in place, of which nothing but copies can be had, and what it is
 * after drafts; what is free of states and snapshots is overwritten before every step. Half have
 * layers with a window, whose places are given back after it and overwritten at once; every row
 * finds what it sees. Requests also go back to an earlier position. Tokens are guessed ahead,
 * rightly and wrongly, and computed together with the known ones. Requests arrive with random
 * prompts that begin alike, priorities, owners, deadlines, samples and salts; they are cancelled
 * and fail at any moment; blocks run out; the tree is dropped. After every step: the accounting
 * identity, the tree, sched_check, and that whatever a row would read is what it would have
 * written. Every request ends with the tokens that it has alone, none waits longer than the bound,
 * deadlines are kept to the step, and no block is held at the end.
 *
 * sim_sched FIRST N: seeds FIRST .. FIRST+N-1. Prints the seed of a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sched/sched.h"

#define MAX_REQ 64
#define MAX_RUN 16
#define MAX_CTX 256
#define MAX_BLK 256
#define MAX_SAMPLE 4
#define MAX_SNAP 12
#define STEP_NS 1000000

struct user { /* one sample as the outside sees it */
    uint64_t group, salt;
    int index, leader; /* leader: slot of sample 0 */
    int n_prompt, n_want, n_known, n_left;
    int32_t tok[MAX_CTX + 1], draft[SCHED_DRAFT_MAX]; /* draft: guesses after the known ones */
    uint32_t sum[MAX_CTX + 2];                        /* hash of the first i tokens */
    int64_t deadline;
    uint64_t born;
    bool fails, no_cache, all_rows;
};

/* A state at a position, and those after the drafts that follow. */
struct state {
    int at, n;
    uint32_t of[1 + SCHED_DRAFT_MAX];
};
static const struct state no_state = {.at = -1};

struct sim {
    uint64_t rng, seed, step;
    int64_t now;
    struct kv_pool pool;
    struct sched s;
    struct user *user[MAX_REQ];                 /* by slot */
    bool planning;                              /* a plan's copies may read what it gives away */
    uint64_t next_group, first;                 /* first: in rank, by order */
    uint32_t cell[MAX_BLK][32];                 /* what block b holds at offset o */
    uint32_t seen[MAX_BLK][32];                 /* and place w of layers with a window */
    struct state state[MAX_RUN + 1 + MAX_SNAP]; /* by place, see struct sched_copy */
    int form_from, idle, n_last;
    int32_t last[MAX_CTX + 1]; /* a conversation that ended: next turns begin with it */
    long long n_done, n_cancel, n_late, n_fail, n_copy, n_fork, n_drop, n_mix, n_restore, n_save,
        n_back, n_stuck, n_state_fork, n_draft, n_right, n_slid, n_whit;
};

static void die(const struct sim *m, const char *what)
{
    fprintf(stderr, "sim_sched: seed %llu step %llu: %s\n", (unsigned long long)m->seed,
            (unsigned long long)m->step, what);
    exit(1);
}

static int pick(struct sim *m, int n)
{
    return (int)(rng_next(&m->rng) % (uint64_t)n);
}

static uint32_t mix(uint32_t h, uint32_t v)
{
    h ^= v + 0x9E3779B9u + (h << 6) + (h >> 2);
    return h * 0x85EBCA6Bu;
}

static void push_token(struct user *u, int32_t t)
{
    u->tok[u->n_known] = t;
    u->sum[u->n_known + 1] = mix(u->sum[u->n_known], (uint32_t)t);
    u->n_known++;
}

/* The token that sample u alone would produce after n tokens. */
static int32_t next_token(const struct user *u, int n)
{
    return (int32_t)(mix(u->sum[n], (uint32_t)u->index) & 0x7fffffff);
}

static struct kv_path path_of(const struct sim *m, const struct user *u)
{
    return (struct kv_path){.ids = u->tok,
                            .n = u->n_known,
                            .salt = u->salt,
                            .mark0 = m->form_from,
                            .mark1 = u->n_prompt};
}

static void match(void *user, int slot, struct kv_seq *seq, struct sched_match *out)
{
    struct sim *m = user;
    const struct user *u = m->user[slot];
    if (u->no_cache || u->all_rows) return;
    struct kv_path path = path_of(m, u);
    int have = kv_cache_match(&m->pool, &path, u->n_known - 1, seq);
    if (m->pool.n_win) m->n_whit += have;
    for (int i = 0; i < m->s.n_active && u->n_known == u->n_prompt; i++) {
        int at = m->s.active[i], n = 0, bt = m->pool.blk_tok;
        const struct user *o = m->user[at];
        int most = BASE_MIN(o->n_prompt, u->n_prompt - 1) / bt * bt;
        while (n < most && o->tok[n] == u->tok[n])
            n++;
        n = n / bt * bt;
        if (o->no_cache || o->salt != u->salt || n < have + 2 * bt || m->s.req[at].n_done >= n)
            continue;
        *out = (struct sched_match){.after = at, .after_tok = n};
        return;
    }
}

static void on_free(void *user, int32_t blk)
{
    struct sim *m = user;
    if (!m->planning) memset(m->cell[blk], 0xdb, sizeof m->cell[blk]);
}

static void on_win_free(void *user, int32_t win)
{
    struct sim *m = user;
    m->n_slid++;
    if (!m->planning) memset(m->seen[win], 0xdb, sizeof m->seen[win]);
}

/* ---- coming and going ---- */

static int free_slot(const struct sim *m)
{
    for (int i = 0; i < m->s.opts.n_req_max; i++)
        if (!m->user[i]) return i;
    return -1;
}

static void make_prompt(struct sim *m, struct user *u, int n)
{
    static const int common[] = {0, 20, 70};
    int family = pick(m, 3), begin = common[pick(m, 3)], turn = pick(m, 4) ? 0 : m->n_last;
    u->sum[0] = 1;
    for (int i = 0; i < n; i++)
        push_token(u, i < turn    ? m->last[i]
                      : i < begin ? family * 1000 + i
                                  : (int32_t)(rng_next(&m->rng) & 0x7fffffff));
}

static void arrive(struct sim *m, int n_ctx)
{
    static struct user first;
    int n_sample = pick(m, 5) ? 1 : 1 + pick(m, MAX_SAMPLE), leader = -1;
    memset(&first, 0, sizeof first);
    make_prompt(m, &first, 1 + pick(m, pick(m, 4) ? (n_ctx + 3) / 4 : n_ctx - 1));
    first.n_prompt = first.n_known;
    first.n_want = 1 + pick(m, n_ctx - first.n_prompt + 1);
    first.group = m->next_group++;
    first.salt = (uint64_t)(pick(m, 4) == 0);
    first.deadline = pick(m, 8) ? 0 : m->now + STEP_NS * (int64_t)(1 + pick(m, 100));
    first.no_cache = pick(m, 10) == 0;
    first.all_rows = n_sample == 1 && pick(m, 12) == 0;
    int priority = pick(m, 6) ? 0 : pick(m, 5) - 2;
    uint64_t owner = (uint64_t)pick(m, 4);
    for (int i = 0; i < n_sample; i++) {
        int slot = free_slot(m);
        if (slot < 0) return; /* fewer samples: the engine refuses them all together */
        struct user *u = malloc(sizeof *u);
        if (!u) exit(1);
        *u = first;
        u->index = i;
        u->born = m->step;
        u->fails = pick(m, 40) == 0;
        if (i == 0) leader = slot;
        u->leader = leader;
        struct sched_new q = {.n_prompt = u->n_prompt,
                              .priority = priority,
                              .owner = owner,
                              .now_ns = m->now,
                              .deadline_ns = u->deadline,
                              .fork_of = i ? leader : -1,
                              .all_rows = u->all_rows};
        m->user[slot] = u;
        sched_submit(&m->s, slot, &q);
    }
}

static void leave(struct sim *m, int slot)
{
    sched_finish(&m->s, slot);
    free(m->user[slot]);
    m->user[slot] = NULL;
}

static void cancel_group(struct sim *m, uint64_t group)
{
    for (int i = 0; i < m->s.opts.n_req_max; i++)
        if (m->user[i] && m->user[i]->group == group) {
            leave(m, i);
            m->n_cancel++;
        }
}

/* ---- a step ---- */

/* Position p of block i, in the layers with a window. */
static void compute_window(struct sim *m, const struct sched_item *it, int p, uint32_t h)
{
    const struct kv_seq *seq = &m->s.seat[it->seat].seq;
    const struct kv_pool *k = &m->pool;
    int i = p / k->blk_tok, at = p % k->blk_tok;
    int32_t b = seq->blk[i], w = kv_win_of(k, b);
    if (p + k->n_window <= it->pos0) return; /* out of all windows of the row */
    if (i < seq->win0 || w < 0) die(m, "a position in the window has no place");
    if (p < it->pos0 && m->seen[w][at] != h) die(m, "a place in the window holds something else");
    if (p >= it->pos0 && k->win[w].n_use != 1) die(m, "a shared place is written");
    m->seen[w][at] = h;
}

/* A row goes on after the state, or after the first of the drafts that follow it. */
static void go_on(struct sim *m, struct state *s, int pos, uint32_t h)
{
    int n = pos - s->at;
    if (n < 0 || n > s->n || s->of[n] != h) die(m, "a state is not that of the tokens before");
    *s = (struct state){.at = pos, .of = {h}};
}

static void add_draft(struct state *s, uint32_t tok)
{
    s->of[s->n + 1] = mix(s->of[s->n], tok);
    s->n++;
}

/* Compute a row: write its cells, then check that all positions up to its end hold this request's
 * values. */
static void compute(struct sim *m, const struct sched_item *it)
{
    const struct user *u = m->user[it->req];
    const struct kv_seq *seq = &m->s.seat[it->seat].seq;
    int bt = m->pool.blk_tok;
    if (it->pos0 + it->n_tok > u->n_known + it->n_draft) die(m, "a row past what is known");
    uint32_t h = mix(7, (uint32_t)u->salt);
    struct state *state = &m->state[it->seat];
    if (it->pos0 == 0) *state = (struct state){.of = {h}};
    for (int p = 0; p < it->pos0 + it->n_tok; p++) {
        int32_t b = seq->blk[p / bt];
        bool form = p >= m->form_from && p < u->n_prompt;
        uint32_t tok = (uint32_t)(p < u->n_known ? u->tok[p] : u->draft[p - u->n_known]);
        if (p == it->pos0 && m->pool.has_state) go_on(m, state, p, h);
        h = mix(h, tok * 2 + form);
        if (p >= it->pos0) {
            if (p < it->pos0 + it->n_tok - it->n_draft)
                *state = (struct state){.at = p + 1, .of = {mix(state->of[0], tok * 2 + form)}};
            else
                add_draft(state, tok * 2 + form);
            if (m->pool.ref[b] != 1) die(m, "a shared block is written");
            if (m->pool.node && m->pool.node[b].in_tree) die(m, "a block of the tree is written");
            m->cell[b][p % bt] = h;
        } else if (m->cell[b][p % bt] != h) {
            die(m, "a stored position holds something else");
        }
        if (m->pool.n_win) compute_window(m, it, p, h);
    }
}

/* The step's copies of blocks; then nothing is left in those that are free. */
static void copy_blocks(struct sim *m, const struct sched_plan *p)
{
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        if (it->copy_src < 0) continue;
        memcpy(m->cell[it->copy_dst], m->cell[it->copy_src], sizeof m->cell[0]);
        if (m->pool.n_win) memcpy(m->seen[it->win_dst], m->seen[it->win_src], sizeof m->seen[0]);
        m->n_copy++;
    }
    for (int i = 0; i < m->pool.n_free; i++)
        on_free(m, m->pool.free_blk[i]);
    for (int i = 0; i < m->pool.n_win_free; i++)
        memset(m->seen[m->pool.win_free[i]], 0xdb, sizeof m->seen[0]);
}

/* The step's copies of states; then nothing is left in places that nobody has. */
static void copy_states(struct sim *m, const struct sched_plan *p)
{
    int n_run = m->s.opts.n_run_max;
    if (p->n_copy && !m->pool.has_state) die(m, "a state is copied that is not there");
    for (int i = 0; i < p->n_copy; i++) {
        const struct sched_copy *c = &p->copy[i];
        int n_place = n_run + 1 + m->pool.n_snap;
        if (c->src < 0 || c->src >= n_place || c->dst < 0 || c->dst >= n_place || c->src == n_run ||
            c->dst == n_run)
            die(m, "a place for a state that is not there");
        m->state[c->dst] = m->state[c->src];
        m->n_restore += c->src > n_run;
        m->n_save += c->dst > n_run;
        m->n_state_fork += c->src < n_run && c->dst < n_run;
    }
    for (int i = 0; i < n_run && p->n_item; i++)
        if (m->s.seat[i].req < 0) m->state[i] = no_state;
    for (int k = 0; k < m->pool.n_snap && p->n_item; k++)
        if (m->pool.snap[k].blk < 0) m->state[n_run + 1 + k] = no_state;
}

/* Go back to an earlier position, as after drafts that were wrong. */
static void rewind_one(struct sim *m)
{
    if (m->s.n_active == 0) return;
    int slot = m->s.active[pick(m, m->s.n_active)], had = m->s.req[slot].n_done;
    int n = pick(m, pick(m, 4) ? 6 : had + 1), want = BASE_MAX(had - n, 0);
    int got = sched_rewind(&m->s, slot, want), now = m->s.req[slot].n_done;
    if (got > want || now != (got < 0 ? had : got)) die(m, "went back to another position");
    if (got != want && !m->pool.has_state && !m->pool.n_win) die(m, "did not go back");
    m->n_back += got >= 0 && got < had;
    m->n_stuck += got < 0;
}

static void check(struct sim *m)
{
    const struct kv_seq *seqs[MAX_RUN];
    for (int i = 0; i < m->s.opts.n_run_max; i++)
        seqs[i] = &m->s.seat[i].seq;
    int broken = kv_pool_check(&m->pool, seqs, m->s.opts.n_run_max);
    if (broken) fprintf(stderr, "kv invariant %d\n", broken);
    if (broken) die(m, "block accounting is broken");
    broken = sched_check(&m->s);
    if (broken) fprintf(stderr, "invariant %d\n", broken);
    if (broken) die(m, "scheduler invariant");
}

/* Guesses for the next step, of which some are wrong; some requests never have any. */
static void guess(struct sim *m)
{
    static struct user ahead;
    for (int i = 0; i < m->s.n_active; i++) {
        int slot = m->s.active[i], n = pick(m, SCHED_DRAFT_MAX + 1);
        struct user *u = m->user[slot];
        if (u->group % 3 == 0 || u->n_known + n > MAX_CTX) continue;
        ahead = *u;
        for (int k = 0; k < n; k++) {
            push_token(&ahead, next_token(&ahead, ahead.n_known));
            u->draft[k] = ahead.tok[ahead.n_known - 1] ^ (pick(m, 4) == 0);
        }
        sched_draft(&m->s, slot, n);
    }
}

/* The tokens that a row with n_draft drafts leads to: one, and one more for each that was right. */
static void end_row(struct sim *m, int slot, int n_draft)
{
    struct user *u = m->user[slot];
    for (int k = 0;; k++) {
        int32_t t = next_token(u, u->n_known);
        push_token(u, t);
        if (u->n_known - u->n_prompt >= u->n_want || u->n_known >= m->s.opts.n_ctx) break;
        if (k < n_draft && u->draft[k] == t) continue;
        sched_accept(&m->s, slot, k);
        m->n_draft += n_draft;
        m->n_right += k;
        return;
    }
    m->n_done++;
    m->n_last = u->n_known;
    memcpy(m->last, u->tok, sizeof m->last);
    leave(m, slot);
}

static void after_row(struct sim *m, const struct sched_item *it)
{
    struct user *u = m->user[it->req];
    int n_fork = 0, forked[MAX_SAMPLE];
    if (u->fails && pick(m, 4) == 0) { /* not a number: nothing of it is kept */
        m->n_fail++;
        leave(m, it->req);
        return;
    }
    struct kv_path path = path_of(m, u);
    if (!u->no_cache) sched_put(&m->s, it->req, &path);
    if (!it->sample) return;
    for (int i = 0; i < m->s.opts.n_req_max && u->index == 0 && u->n_known == u->n_prompt; i++) {
        const struct user *o = m->user[i];
        if (!o || o->group != u->group || i == it->req || o->n_known > o->n_prompt) continue;
        const struct sched_req *r = &m->s.req[i];
        if (r->state != SCHED_WAITING || !r->fork || r->after != it->req) continue;
        if (!sched_fork(&m->s, it->req, i)) break;
        forked[n_fork++] = i;
        m->n_fork++;
    }
    end_row(m, it->req, it->n_draft);
    for (int i = 0; i < n_fork; i++)
        end_row(m, forked[i], 0);
}

static void check_rows(struct sim *m, const struct sched_plan *p)
{
    int n_tok = 0, n_row = 0, n_draft = 0;
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        n_tok += it->n_tok;
        n_draft += it->n_draft;
        n_row += it->all_rows ? it->n_tok : it->sample + it->n_draft;
        if (it->n_tok < 1 || (it->answer && it->n_tok != 1 + it->n_draft)) die(m, "a row's length");
        if (it->n_draft && (!it->answer || it->all_rows)) die(m, "drafts of a prompt");
    }
    if (n_tok != p->n_tok || p->n_spent > m->s.opts.n_chunk) die(m, "budget");
    if (n_draft != p->n_draft || n_tok > m->s.opts.n_chunk + m->s.opts.n_run_max)
        die(m, "too many tokens");
    if (n_draft && p->n_preempt) die(m, "drafts beside a preemption");
    if (n_row > m->s.opts.n_row_max) die(m, "rows of logits");
    /* the first in rank advances: it may just have been admitted, and one step may only measure */
    const struct sched_req *f = m->s.n_active ? &m->s.req[m->s.active[0]] : NULL;
    m->idle = !f || f->item >= 0 || f->order != m->first ? 0 : m->idle + 1;
    m->first = f ? f->order : 0;
    if (m->idle > 1) die(m, "the first in rank did not run");
    for (int i = 0; i < m->s.n_active; i++) { /* answers wait for nobody */
        const struct sched_req *r = &m->s.req[m->s.active[i]];
        bool answers = r->n_known - r->n_done == 1 && r->n_done > 0 && r->item < 0;
        if (answers) die(m, "an answer waits");
    }
}

static void one_step(struct sim *m)
{
    int slot;
    while ((slot = sched_expired(&m->s, m->now)) >= 0) {
        if (m->user[slot]->deadline > m->now) die(m, "expired early");
        m->n_late++;
        leave(m, slot);
    }
    for (int i = 0; i < m->s.opts.n_req_max; i++)
        if (m->user[i] && m->user[i]->deadline && m->user[i]->deadline <= m->now)
            die(m, "a deadline was missed");
    guess(m);
    m->planning = true;
    const struct sched_plan *p = sched_step(&m->s);
    m->planning = false;
    check(m);
    check_rows(m, p);
    copy_blocks(m, p);
    copy_states(m, p);
    for (int i = 0; i < p->n_item; i++)
        compute(m, &p->item[i]);
    int n_prompt = p->n_spent, n_decode = p->n_tok - p->n_spent;
    int64_t ns = STEP_NS / 4 + STEP_NS / 40 * n_decode + STEP_NS / 50 * n_prompt;
    m->n_mix += n_prompt && n_decode;
    m->now += ns;
    if (m->seed % 3) sched_observe(&m->s, ns + ns * pick(m, 10) / 100);
    for (int i = 0; i < p->n_item; i++)
        after_row(m, &p->item[i]);
    check(m);
}

static void open_sim(struct sim *m, uint64_t seed, int *n_ctx)
{
    memset(m, 0, sizeof *m);
    m->rng = m->seed = seed;
    int blk_tok = 1 << pick(m, 6);
    *n_ctx = 8 + pick(m, MAX_CTX - 8);
    int least = (*n_ctx + blk_tok - 1) / blk_tok,
        n_blk = least + pick(m, MAX_BLK - least + 1) / (1 + pick(m, 4));
    struct sched_opts o = {.n_run_max = 1 + pick(m, MAX_RUN),
                           .n_chunk = 1 + pick(m, 64),
                           .n_ctx = *n_ctx,
                           .match = match,
                           .user = m};
    o.n_req_max = o.n_run_max + pick(m, 32);
    o.n_row_max = o.n_run_max + 1 + pick(m, 20);
    o.n_snap_tok = pick(m, 2) ? 0 : 1 + pick(m, MAX_CTX / 2);
    m->form_from = pick(m, 2) ? MAX_CTX * 2 : 64;
    if (kv_pool_init(&m->pool, n_blk, blk_tok, NULL)) exit(1);
    if (pick(m, 5) && kv_cache_init(&m->pool, NULL)) exit(1);
    if (pick(m, 3) == 0) m->pool.hash_mask = pick(m, 2) ? 0xff : 0; /* everything collides */
    m->pool.on_free = on_free;
    m->pool.user = m;
    kv_pool_shuffle(&m->pool, seed);
    if (pick(m, 2) && kv_snap_init(&m->pool, pick(m, MAX_SNAP + 1), NULL)) exit(1);
    m->pool.on_win_free = on_win_free;
    int window = 1 + pick(m, pick(m, 3) ? 40 : MAX_CTX), more = pick(m, 3) ? 0 : pick(m, 40);
    int n_win = kv_win_most(window, blk_tok, o.n_run_max, sched_tok_max(&o)) + more;
    if (pick(m, 2) && kv_win_init(&m->pool, window, BASE_MIN(n_win, n_blk), NULL)) exit(1);
    if (sched_init(&m->s, &o, &m->pool, NULL)) exit(1);
}

static void run_seed(uint64_t seed, struct sim *m)
{
    int n_ctx;
    open_sim(m, seed, &n_ctx);
    int n_step = 50 + pick(m, 150), rate = 1 + pick(m, 6), n_req_max = m->s.opts.n_req_max;
    uint64_t bound = (uint64_t)n_step + (uint64_t)n_req_max * (uint64_t)n_ctx * 4 + 1000;
    for (m->step = 0; m->step < bound; m->step++) {
        bool open = m->step < (uint64_t)n_step;
        if (open && pick(m, rate) == 0)
            for (int k = pick(m, 4); k >= 0; k--)
                arrive(m, n_ctx);
        if (open && pick(m, 12) == 0) { /* cancel someone, at any moment */
            int slot = pick(m, n_req_max);
            if (m->user[slot]) cancel_group(m, m->user[slot]->group);
            check(m);
        }
        if (pick(m, 60) == 0) {
            kv_cache_drop(&m->pool);
            m->n_drop++;
            check(m);
        }
        one_step(m);
        if (open && pick(m, 8) == 0) {
            rewind_one(m);
            check(m);
        }
        if (!open && m->s.n_active + m->s.n_wait == 0) break;
    }
    if (m->s.n_active + m->s.n_wait) die(m, "requests starve");
    if (kv_pool_avail(&m->pool) != m->pool.n_blk) die(m, "blocks leaked");
    kv_cache_drop(&m->pool);
    if (m->pool.n_free != m->pool.n_blk) die(m, "the tree leaked");
    if (m->pool.n_win_free != m->pool.n_win) die(m, "places of windows leaked");
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
             n = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    static struct sim m;
    long long restore = 0, save = 0, back = 0, stuck = 0, sfork = 0, sevict = 0, draft = 0,
              right = 0;
    long long done = 0, cancel = 0, preempt = 0, hit = 0, steps = 0, late = 0, fail = 0, copy = 0,
              fork = 0, evict = 0, mixed = 0, alike = 0;
    long long slid = 0, wevict = 0, whit = 0;
    for (uint64_t i = 0; i < n; i++) {
        run_seed(first + i, &m);
        done += m.n_done, cancel += m.n_cancel, late += m.n_late, fail += m.n_fail;
        preempt += (long long)m.s.n_preempt, hit += (long long)m.s.n_hit_tok;
        evict += (long long)m.pool.n_evict, copy += m.n_copy, fork += m.n_fork;
        restore += m.n_restore, save += m.n_save, back += m.n_back, stuck += m.n_stuck;
        draft += m.n_draft, right += m.n_right;
        slid += m.n_slid, wevict += (long long)m.pool.n_win_evict, whit += m.n_whit;
        sfork += m.n_state_fork, sevict += (long long)m.pool.n_snap_evict;
        steps += (long long)m.step, mixed += m.n_mix;
        if (m.pool.hash_mask <= 0xff) alike += m.n_done;
        sched_fini(&m.s);
        kv_pool_fini(&m.pool);
    }
    printf("%llu seeds, %lld steps: %lld requests finished (%lld beside hashes that collide), %lld "
           "cancelled, %lld over time, "
           "%lld failed; %lld preemptions, %lld tokens from the tree, %lld evictions, %lld samples "
           "forked, %lld tails copied, %lld mixed steps\n",
           (unsigned long long)n, steps, done, alike, cancel, late, fail, preempt, hit, evict, fork,
           copy, mixed);
    printf(
        "states: %lld snapshots taken, %lld of them in another's place, %lld restored, %lld forks; "
        "%lld times back to an earlier position, %lld times refused\n",
        save, sevict, restore, sfork, back, stuck);
    printf("windows: %lld places given back, %lld of them taken from the tree, %lld tokens found\n",
           slid, wevict, whit);
    printf("drafts: %lld computed, %lld of them right\n", draft, right);
    bool states = save && sevict && restore && sfork && back && stuck && draft > right && right;
    /* a simulation that reaches none of these is worth nothing */
    bool all = done && preempt && hit && cancel && late && fail && copy && fork && evict && mixed;
    return all && states && slid && wevict && whit ? 0 : 1;
}
