/* SPDX-License-Identifier: Apache-2.0 */
/* The drafts of one sequence: from one source at a time, the surest that has any. */
#include <string.h>

#include "base/rng.h"
#include "spec/spec.h"

#define SEEN_MAX 16  /* a rate is the mean of all that was seen, later of about so many */
#define SEEN_ALL 256 /* the same of all sequences */
#define SEEN_BEGIN 4 /* what others' rates count as in a new sequence */
#define PAIR_GAIN 0.02f

/* Before anything was seen: that the first draft is right, and each after right ones. */
static const float prior[SPEC_N_ROW][2] = {
    [SPEC_FORCED] = {1.0f, 1.0f},
    [SPEC_LITERAL] = {0.8f, 0.9f},
    [SPEC_PREDICTION] = {0.8f, 0.9f},
    [SPEC_NGRAM] = {0.3f, 0.7f}, /* two tokens alike; then three, and more */
    [SPEC_MTP] = {0.8f, 0.6f},
    [SPEC_MODEL] = {0.6f, 0.7f},
    [SPEC_REPLAY] = {0.8f, 0.8f},
    [SPEC_N_SOURCE] = {0.45f, 0.8f},
    [SPEC_N_SOURCE + 1] = {0.6f, 0.85f},
};

static void begin_rates(struct spec_rate *rate)
{
    for (int i = 0; i < SPEC_N_ROW; i++)
        for (int j = 0; j < SPEC_MAX; j++) {
            rate[i].right[j] = prior[i][j > 0];
            rate[i].n[j] = 1;
        }
}

sl_status spec_seq_init(struct spec_seq *s, const struct spec_opts *o, int cap, sl_err *err)
{
    memset(s, 0, sizeof *s);
    s->o = *o;
    s->offer_at = s->pair_at = -1;
    begin_rates(s->rate);
    if (o->ngram) SL_TRY(spec_index_init(&s->own, cap, err));
    if (!o->n_text || o->replay) return SL_OK;
    SL_TRY(spec_index_init(&s->text, o->n_text, err));
    spec_index_add(&s->text, o->text, o->n_text);
    return SL_OK;
}

void spec_seq_fini(struct spec_seq *s)
{
    spec_index_fini(&s->own);
    spec_index_fini(&s->text);
}

/* ---- sources ---- */

/* Move along the expected text with the tokens that came since; where they left it, look for the
 * place at which they came back. */
static void follow(struct spec_seq *s, const int32_t *ids, int n_ids)
{
    int len, n_prompt = s->o.n_prompt;
    for (int i = BASE_MAX(s->n_text_seen, n_prompt); i < n_ids; i++) {
        if (s->at >= 0 && s->at < s->o.n_text && s->o.text[s->at] == ids[i])
            s->at++;
        else
            s->at = -1;
    }
    s->n_text_seen = n_ids;
    if (s->at < 0)
        s->at = spec_index_find(&s->text, s->o.text, ids + n_prompt, n_ids - n_prompt, &len);
}

static int from_prediction(struct spec_seq *s, const int32_t *ids, int n_ids, int n_max,
                           int32_t *out)
{
    if (!s->o.n_text || s->o.replay) return 0;
    follow(s, ids, n_ids);
    if (s->at < 0) return 0;
    int n = BASE_MIN(n_max, s->o.n_text - s->at);
    memcpy(out, s->o.text + s->at, (size_t)n * sizeof *out);
    return n;
}

/* Whether a token of the answer is proposed rightly depends on its place alone. */
static int from_replay(const struct spec_seq *s, int n_ids, int n_max, int32_t *out)
{
    int at = n_ids - s->o.n_prompt, n = BASE_MIN(n_max, s->o.n_text - at);
    if (!s->o.replay || n <= 0) return 0;
    for (int i = 0; i < n; i++) {
        int32_t id = s->o.text[at + i];
        bool right = rng_uniform(s->o.seed, 0, (uint64_t)(at + i)) < s->o.right;
        out[i] = right ? id : id ? id - 1 : 1;
    }
    return n;
}

/* What followed the same tokens before; it may run into itself, as in a text that repeats. */
static int from_ngram(struct spec_seq *s, const int32_t *ids, int n_ids, int n_max, int32_t *out)
{
    int len;
    if (!s->o.ngram) return 0;
    spec_index_add(&s->own, ids, n_ids);
    int at = spec_index_find(&s->own, ids, ids, n_ids, &len);
    if (at < 0) return 0;
    for (int i = 0; i < n_max; i++)
        out[i] = at + i < n_ids ? ids[at + i] : out[at + i - n_ids];
    s->row = len == 2 ? SPEC_NGRAM : len == 3 ? SPEC_N_SOURCE : SPEC_N_SOURCE + 1;
    return n_max;
}

static enum spec_source drafter_of(const struct spec_seq *s)
{
    return s->o.model ? SPEC_MODEL : SPEC_MTP;
}

static int from_offer(const struct spec_seq *s, int n_max, int32_t *out)
{
    int n = BASE_MIN(n_max, s->n_offer);
    memcpy(out, s->offer, (size_t)n * sizeof *out);
    return n;
}

static int fit(const struct spec_given *given, const int32_t *id, int n)
{
    return n > 0 && given->fits ? given->fits(given->user, id, n) : n;
}

/* Of the first source that has some that fit. */
static int from_any(struct spec_seq *s, const int32_t *ids, int n_ids,
                    const struct spec_given *given, int n_max, int32_t *out)
{
    s->source = s->row = SPEC_REPLAY;
    int n = fit(given, out, from_replay(s, n_ids, n_max, out));
    if (n > 0 || s->o.replay) return n;
    s->source = s->row = SPEC_PREDICTION;
    n = fit(given, out, from_prediction(s, ids, n_ids, n_max, out));
    if (n > 0) return n;
    s->source = SPEC_NGRAM;
    n = fit(given, out, from_ngram(s, ids, n_ids, n_max, out));
    if (n > 0 || s->offer_at != n_ids) return n;
    s->source = s->row = drafter_of(s);
    return fit(given, out, from_offer(s, n_max, out));
}

void spec_offer(struct spec_seq *s, int n_ids, int j, int32_t id)
{
    ASSERT(j < SPEC_MAX && (j == 0 || (s->offer_at == n_ids && s->n_offer == j)));
    s->offer_at = n_ids;
    s->offer[j] = id;
    s->n_offer = j + 1;
}

static int level_of(double likely)
{
    return BASE_MIN((int)(likely * SPEC_N_LEVEL), SPEC_N_LEVEL - 1);
}

int32_t spec_choose(struct spec_seq *s, const struct spec_taught *all, int n_ids, int j,
                    struct spec_pair pair)
{
    const float *right = all->right[level_of(pair.likely)];
    if (j == 0) {
        s->pair = pair;
        s->pair_at = n_ids;
    }
    return pair.id[right[1] > right[0]];
}

/* That guesses 0 to j are all right. */
static double chance_of(const struct spec_rate *r, int j)
{
    double p = 1;
    for (int i = 0; i <= j; i++)
        p *= (double)r->right[i];
    return p;
}

/* Tokens to expect of the first n guesses of a row. */
static double worth(const struct spec_seq *s, int row, int n)
{
    double sum = 0;
    for (int j = 0; j < n; j++)
        sum += chance_of(&s->rate[row], j);
    return sum;
}

int spec_propose(struct spec_seq *s, const int32_t *ids, int n_ids, struct spec_given given,
                 int n_max, int32_t *out)
{
    int32_t any[SPEC_MAX];
    bool certain = given.n > 0 && given.certain;
    n_max = BASE_MIN(n_max, SPEC_MAX);
    int n = certain ? 0 : from_any(s, ids, n_ids, &given, n_max, any);
    if (certain || worth(s, SPEC_LITERAL, given.n) > worth(s, s->row, n)) {
        s->source = s->row = certain ? SPEC_FORCED : SPEC_LITERAL;
        n = given.n;
    } else {
        memcpy(out, any, (size_t)n * sizeof *out);
    }
    s->n_prop = n;
    s->prop_pos = n_ids;
    memcpy(s->prop, out, (size_t)n * sizeof *out);
    if (s->n_chain == 0 && n > 1) {
        s->n_chain = n;
        s->chain_at = 0;
        s->chain_row = s->row;
        s->chain_pos = n_ids;
        memcpy(s->chain, out, (size_t)n * sizeof *out);
    }
    return n;
}

/* ---- rates ---- */

static void see(struct spec_rate *r, int j, bool right, int n_max)
{
    r->n[j] = BASE_MIN(r->n[j] + 1, n_max);
    r->right[j] += ((right ? 1.0f : 0.0f) - r->right[j]) / (float)r->n[j];
}

/* Draft j of a proposal of that row. */
static void see_both(struct spec_seq *s, int row, int j, bool right, struct spec_taught *all)
{
    see(&s->rate[row], j, right, SEEN_MAX);
    see(&all->rate[row], j, right, SEEN_ALL);
}

/* What became of the pair of guesses, whether one of them was a draft or not. */
static void see_pair(struct spec_seq *s, const int32_t *ids, int n_ids, struct spec_taught *all)
{
    float *right = all->right[level_of(s->pair.likely)];
    if (s->pair_at < 0 || s->pair_at >= n_ids) return;
    for (int i = 0; i < 2; i++)
        right[i] += PAIR_GAIN * ((ids[s->pair_at] == s->pair.id[i] ? 1.0f : 0.0f) - right[i]);
    s->pair_at = -1;
}

void spec_taught_init(struct spec_taught *all)
{
    begin_rates(all->rate);
    for (int i = 0; i < SPEC_N_LEVEL; i++) {
        float likely = ((float)i + 0.5f) / SPEC_N_LEVEL;
        all->right[i][0] = likely;
        all->right[i][1] = 0.3f + 0.6f * likely;
    }
}

void spec_begin(struct spec_seq *s, const struct spec_taught *all)
{
    for (int i = 0; i < SPEC_N_ROW; i++)
        for (int j = 0; j < SPEC_MAX; j++) {
            s->rate[i].right[j] = all->rate[i].right[j];
            s->rate[i].n[j] = BASE_MIN(all->rate[i].n[j], SEEN_BEGIN);
        }
}

void spec_learn(struct spec_seq *s, const int32_t *ids, int n_ids, struct spec_taught *all)
{
    if (s->n_prop > 0 && n_ids > s->prop_pos)
        see_both(s, s->row, 0, s->prop[0] == ids[s->prop_pos], all);
    s->n_prop = 0;
    see_pair(s, ids, n_ids, all);
    while (s->n_chain > 0 && s->chain_pos < n_ids) {
        bool right = s->chain[s->chain_at] == ids[s->chain_pos++];
        if (s->chain_at > 0) see_both(s, s->chain_row, s->chain_at, right, all);
        if (!right || ++s->chain_at == s->n_chain) s->n_chain = 0;
    }
}

double spec_chance(const struct spec_seq *s, int j)
{
    return chance_of(&s->rate[s->row], j);
}

double spec_drafter_chance(const struct spec_seq *s, int j)
{
    return chance_of(&s->rate[drafter_of(s)], j);
}
