/* SPDX-License-Identifier: Apache-2.0 */
/* Which host has computed how much of a prompt before, for hosts that compute prompts: hashes of
 * what was sent to each, block by block, in a table whose places are overwritten. It is a guess: a
 * host is believed to have what it was sent while fewer tokens than its cache holds were sent to it
 * since. */
#include "base/hash.h"
#include "base/mem.h"
#include "gate/front_internal.h"

#define TOK 32        /* of a block */
#define PLACES 32768u /* a power of two */

struct place {
    uint64_t key;    /* of a beginning, and of the host; 0 = free */
    int64_t sent_at; /* of the host, when this was sent to it */
};

sl_status gate_prefix_open(struct front *f, sl_err *err)
{
    void *p = NULL;
    if (!f->like || f->n_link < 2) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_MISC, PLACES, sizeof *f->place, &p, err));
    f->place = p;
    return SL_OK;
}

void gate_prefix_close(struct front *f)
{
    mem_free(f->place);
}

void gate_prefix_of(const struct front *f, const sl_request *q, struct gate_prefix *out)
{
    *out = (struct gate_prefix){.n_ids = q->n_ids};
    if (!f->place || q->no_cache) return;
    uint64_t h = q->cache_salt;
    for (; out->n < GATE_PREFIX_MAX && (out->n + 1) * TOK <= q->n_ids; out->n++)
        out->hash[out->n] = h = hash_bytes(q->ids + out->n * TOK, TOK * sizeof *q->ids, h);
}

static struct place *place_of(struct front *f, const struct link *l, uint64_t hash, uint64_t *key)
{
    *key = hash_bytes(&hash, sizeof hash, (uint64_t)(l - f->link)) | 1;
    return &f->place[*key >> 32 & (PLACES - 1)];
}

int gate_prefix_hit(struct front *f, const struct link *l, const struct gate_prefix *p)
{
    uint64_t key;
    int n = 0;
    for (; n < p->n; n++) {
        const struct place *at = place_of(f, l, p->hash[n], &key);
        if (at->key != key || l->n_sent - at->sent_at > l->state.stats.kv_total_tok) break;
    }
    return n * TOK;
}

void gate_prefix_sent(struct front *f, struct link *l, const struct gate_prefix *p)
{
    uint64_t key;
    l->n_sent += p->n_ids;
    for (int i = 0; i < p->n; i++) {
        struct place *at = place_of(f, l, p->hash[i], &key);
        *at = (struct place){key, l->n_sent};
    }
}
