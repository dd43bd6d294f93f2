/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens have log probabilities in an answer: those whose text is part of it, whole or in
 * part. A token whose text may turn out to be a stop string waits until that is known. */
#include <string.h>

#include "api/api_internal.h"

struct api_lp_tok {
    int32_t id, n_top;
    float logprob;
    uint64_t begin, end; /* bytes of the answer's text; equal where it has none */
    sl_logprob top[API_TOP_MAX];
};

void api_lp_fini(struct api_lp *l)
{
    mem_free(l->v);
    *l = (struct api_lp){0};
}

static bool push(struct api_lp *l, const struct api_event *ev, uint64_t begin, uint64_t end)
{
    void *p = NULL;
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 8;
        if (mem_realloc(MEM_REQUEST, l->v, (size_t)cap * sizeof *l->v, &p, NULL)) return false;
        l->v = p;
        l->cap = cap;
    }
    struct api_lp_tok *t = &l->v[l->n++];
    *t = (struct api_lp_tok){.id = ev->token,
                             .n_top = BASE_MIN(ev->n_top, API_TOP_MAX),
                             .logprob = ev->logprob,
                             .begin = begin,
                             .end = end};
    memcpy(t->top, ev->top, (size_t)t->n_top * sizeof *t->top);
    return true;
}

bool api_lp_event(struct api_lp *l, const struct api_event *ev, api_lp_fn *fn, void *user)
{
    uint64_t from = l->out, begin = l->out + l->held, end;
    bool cut = ev->finish == SL_FINISH_STOP_STRING && !ev->is_end;
    int n = 0;
    l->out += (uint64_t)ev->n_text;
    l->held = (uint64_t)ev->n_held;
    /* the token that completes a stop string ends after what is given out */
    end = cut ? UINT64_MAX : l->out + l->held;
    if (ev->token >= 0 && !ev->is_end && !push(l, ev, begin, end)) return false;
    for (; n < l->n; n++) {
        const struct api_lp_tok *t = &l->v[n];
        if (!(t->begin < l->out || t->end <= l->out || (!cut && !l->held))) break;
        struct api_event one = {.token = t->id,
                                .logprob = t->logprob,
                                .n_top = t->n_top,
                                .top = t->top,
                                .prompt_pos = -1};
        fn(user, &one,
           BASE_MIN(t->begin > from ? (size_t)(t->begin - from) : 0, (size_t)ev->n_text));
    }
    l->n -= n;
    if (l->n && n) memmove(l->v, l->v + n, (size_t)l->n * sizeof *l->v);
    return true;
}
