/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler and the block tables under a seeded simulator. The device is a list of what each
 * block holds: a value per position that depends on the request's tokens only. After every step:
 * the accounting identity, sched_check, and that whatever a row would read is what it wrote. At the
 * end of each run: every request finished with the tokens that it has alone, none waited longer
 * than the bound, no block is held.
 *
 * sim_sched FIRST N: seeds FIRST .. FIRST+N-1. Prints the seed of a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sched/sched.h"

#define MAX_REQ 64
#define MAX_CTX 256
#define MAX_BLK 256

struct user { /* one request as the outside sees it */
    uint64_t id;
    int n_prompt, n_want, n_known;
    uint32_t tok[MAX_CTX + 1];
    uint64_t born;
    bool cancel;
};

struct sim {
    uint64_t rng, seed, step, last_progress;
    struct kv_pool pool;
    struct sched s;
    struct user *user[MAX_REQ]; /* by slot */
    uint64_t next_id;
    uint32_t cell[MAX_BLK][64]; /* what block b holds at offset o */
    struct {
        uint64_t id;
        uint32_t tok[MAX_CTX];
        int n;
    } parked[MAX_REQ]; /* by run */
    int n_done, n_cancel, n_preempt, n_reuse, n_copy;
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

/* The token that a request alone would produce after tok[0..n). */
static uint32_t next_token(const uint32_t *tok, int n)
{
    uint32_t h = 1;
    for (int i = 0; i < n; i++)
        h = mix(h, tok[i]);
    return h;
}

static void arrive(struct sim *m, int n_ctx)
{
    int slot;
    int n_prompt = 1 + pick(m, pick(m, 4) ? n_ctx / 4 : n_ctx - 1);
    if (sched_submit(&m->s, n_prompt, &slot, NULL)) return; /* BUSY is an answer */
    struct user *u = calloc(1, sizeof *u);
    if (!u) exit(1);
    *u = (struct user){
        .id = m->next_id++, .n_prompt = n_prompt, .n_known = n_prompt, .born = m->step};
    u->n_want = 1 + pick(m, n_ctx - n_prompt + 1);
    uint32_t family = (uint32_t)pick(m, 3); /* so that prompts share beginnings */
    for (int i = 0; i < n_prompt; i++)
        u->tok[i] = i < 20 ? family * 1000 + (uint32_t)i : (uint32_t)rng_next(&m->rng);
    m->user[slot] = u;
}

static void offer(struct sim *m)
{
    int slot = sched_next_waiting(&m->s);
    if (slot < 0) return;
    const struct user *u = m->user[slot];
    for (int r = 0; r < m->s.opts.n_run_max; r++) {
        if (!m->s.run[r].parked) continue;
        int n = 0, cap = BASE_MIN(m->s.run[r].seq.n_tok, u->n_known - 1);
        while (n < cap && m->parked[r].tok[n] == u->tok[n])
            n++;
        if (n > 0) sched_offer(&m->s, slot, r, n);
    }
}

static void end_request(struct sim *m, int slot, bool park)
{
    struct user *u = m->user[slot];
    int run = m->s.req[slot].run;
    if (run >= 0 && park) {
        m->parked[run].n = u->n_known;
        memcpy(m->parked[run].tok, u->tok,
               (size_t)BASE_MIN(u->n_known, MAX_CTX) * sizeof u->tok[0]);
    }
    m->n_preempt += m->s.req[slot].n_preempt;
    sched_finish(&m->s, slot, park ? m->s.req[slot].n_done : 0);
    free(u);
    m->user[slot] = NULL;
}

/* Compute a row: write its cells, then check that all positions up to its end hold this request's
 * prefix hashes. */
static void compute(struct sim *m, const struct sched_item *it)
{
    const struct user *u = m->user[it->req];
    const struct kv_seq *seq = &m->s.run[it->run].seq;
    int bt = m->pool.blk_tok;
    if (it->copy_src >= 0) {
        memcpy(m->cell[it->copy_dst], m->cell[it->copy_src], sizeof m->cell[0]);
        m->n_copy++;
    }
    if (it->pos0 + it->n_tok > u->n_known) die(m, "a row past the known tokens");
    uint32_t h = 1;
    for (int p = 0; p < it->pos0 + it->n_tok; p++) {
        uint32_t *c = &m->cell[seq->blk[p / bt]][p % bt];
        h = mix(h, u->tok[p]);
        if (p >= it->pos0) {
            if (m->pool.ref[seq->blk[p / bt]] != 1) die(m, "a shared block is written");
            *c = h;
        } else if (*c != h)
            die(m, "a stored position holds something else");
    }
}

static void check(struct sim *m)
{
    const struct kv_seq *seqs[MAX_REQ];
    for (int i = 0; i < m->s.opts.n_run_max; i++)
        seqs[i] = &m->s.run[i].seq;
    if (kv_pool_check(&m->pool, seqs, m->s.opts.n_run_max)) die(m, "block accounting is broken");
    int broken = sched_check(&m->s);
    if (broken) {
        fprintf(stderr, "invariant %d\n", broken);
        die(m, "scheduler invariant");
    }
}

static void one_step(struct sim *m)
{
    uint64_t oldest = UINT64_MAX;
    int oldest_slot = -1;
    for (int i = 0; i < m->s.opts.n_req_max; i++)
        if (m->user[i] && m->user[i]->id < oldest) oldest = m->user[i]->id, oldest_slot = i;
    offer(m);
    const struct sched_plan *p = sched_step(&m->s);
    check(m);
    int n_tok = 0, n_prompt_tok = 0;
    bool oldest_ran = oldest_slot < 0;
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        compute(m, it);
        n_tok += it->n_tok;
        if (it->n_tok > 1) n_prompt_tok += it->n_tok;
        oldest_ran |= it->req == oldest_slot;
        m->n_reuse += it->pos0 > 0 && m->s.req[it->req].n_reused == it->pos0;
    }
    if (n_tok != p->n_tok || n_prompt_tok > m->s.opts.n_chunk) die(m, "budget");
    if (!oldest_ran) die(m, "the oldest request did not run");
    for (int i = 0; i < p->n_item; i++) {
        struct sched_item it = p->item[i];
        struct user *u = m->user[it.req];
        if (!it.sample) continue;
        u->tok[u->n_known] = next_token(u->tok, u->n_known);
        u->n_known++;
        if (u->n_known - u->n_prompt >= u->n_want || u->n_known >= m->s.opts.n_ctx) {
            for (int k = u->n_prompt; k < u->n_known; k++)
                if (u->tok[k] != next_token(u->tok, k)) die(m, "tokens differ from those alone");
            m->n_done++;
            end_request(m, it.req, pick(m, 2));
        } else
            sched_push(&m->s, it.req);
    }
}

static void run_seed(uint64_t seed, struct sim *m)
{
    memset(m, 0, sizeof *m);
    m->rng = m->seed = seed;
    int blk_tok = 1 << pick(m, 5), n_ctx = 8 + pick(m, MAX_CTX - 8);
    int least = (n_ctx + blk_tok - 1) / blk_tok,
        n_blk = least + pick(m, MAX_BLK - least + 1) / (1 + pick(m, 4));
    struct sched_opts o = {
        .n_run_max = 1 + pick(m, 16), .n_chunk = 1 + pick(m, 64), .n_ctx = n_ctx};
    o.n_req_max = o.n_run_max + pick(m, 32);
    if (kv_pool_init(&m->pool, n_blk, blk_tok, NULL) || sched_init(&m->s, &o, &m->pool, NULL))
        exit(1);
    kv_pool_shuffle(&m->pool, seed);
    int n_step = 50 + pick(m, 150), rate = 1 + pick(m, 6);
    uint64_t bound = (uint64_t)n_step + (uint64_t)o.n_req_max * (uint64_t)n_ctx * 4 + 1000;
    for (m->step = 0; m->step < bound; m->step++) {
        bool open = m->step < (uint64_t)n_step;
        if (open && pick(m, rate) == 0)
            for (int k = pick(m, 4); k >= 0; k--)
                arrive(m, n_ctx);
        if (open && pick(m, 12) == 0) { /* cancel someone, at any moment */
            int slot = pick(m, o.n_req_max);
            if (m->user[slot]) {
                m->n_cancel++;
                end_request(m, slot, pick(m, 2));
                check(m);
            }
        }
        one_step(m);
        if (!open && m->s.n_active + m->s.n_wait == 0) break;
    }
    if (m->s.n_active + m->s.n_wait) die(m, "requests starve");
    sched_unpark_all(&m->s);
    if (m->pool.n_free != n_blk) die(m, "blocks leaked");
    sched_fini(&m->s);
    kv_pool_fini(&m->pool);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
             n = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    static struct sim m;
    long long done = 0, cancel = 0, preempt = 0, reuse = 0, steps = 0;
    for (uint64_t i = 0; i < n; i++) {
        run_seed(first + i, &m);
        done += m.n_done, cancel += m.n_cancel, preempt += m.n_preempt, reuse += m.n_reuse,
            steps += (long long)m.step;
    }
    printf("%llu seeds, %lld steps: %lld requests finished, %lld cancelled, %lld preemptions, %lld "
           "reuses\n",
           (unsigned long long)n, steps, done, cancel, preempt, reuse);
    return done && preempt && reuse && cancel
               ? 0
               : 1; /* a simulation that reaches none of these is worth nothing */
}
