/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several machines: pieces of joins and steps as messages between any two of them. Those
 * of two ranks come in the order in which they were sent; each begins with a head that says what it
 * is, and with the hash of all joins before it. Where a rank fails it says so in place of what the
 * others wait for. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/group.h"

#define MAGIC 0x736c6d67u
#define LAST_NS ((int64_t)1000000000) /* for telling the others of a failure */
#define LOOK_NS 50000000              /* who is waited for so long may be stopped */

enum { SAYS_TELL = 1, SAYS_DONE, SAYS_PIECE, SAYS_ROWS, SAYS_FAILED };
struct head {
    uint32_t magic, kind, n_piece;
    int32_t n_row, n;
    uint32_t pad;
    uint64_t history;
};

struct failure {
    int32_t code;
    char text[sizeof((sl_err *)0)->text];
};

/* Buffers of a piece: messages to all ranks, or one for each; and what comes from each. */
struct boxes {
    uint8_t *out, *in[DIST_RANK_MAX];
};
/* A piece that was begun. */
struct parcel {
    struct boxes box;
    struct dist_way way;
    const float *mine; /* what this rank brings for itself */
    uint64_t from;     /* whom it comes from */
    uint64_t history;  /* of joins, up to it */
    unsigned n_piece;
};

struct mail {
    size_t cap; /* of a buffer */
    uint8_t *told;
    struct boxes box;
    struct parcel away[DIST_AWAY_MAX];
    /* home: what it tells, and what of that is under way */
    uint8_t *tell[DIST_AHEAD_MAX];
    struct dist_way telling[DIST_AHEAD_MAX];
    struct dist_count count[DIST_RANK_MAX]; /* of the others, after their last step */
    bool failed;
    sl_err why;
    uint8_t last[sizeof(struct head) + sizeof(struct failure)];
    void *mem; /* of the buffers */
};

static void mail_fail(dist *d, const sl_err *why);

/* ---- sending and receiving ---- */

static struct head head_of(uint32_t kind)
{
    return (struct head){.magic = MAGIC, .kind = kind};
}

static const struct head *came(const struct boxes *b, int rank)
{
    return (const struct head *)(const void *)b->in[rank];
}

/* p: n bytes that begin with a head. */
static sl_status send_all(dist *d, struct dist_way *w, uint64_t to, const void *p, size_t n,
                          sl_err *err)
{
    for (int r = 0; r < d->n; r++)
        if (to >> r & 1) SL_TRY(dist_group_send(d, w, r, p, n, err));
    return SL_OK;
}

/* n_body bytes after the head are in the box already. */
static sl_status send_out(dist *d, struct dist_way *w, uint64_t to, const struct head *h,
                          size_t n_body, sl_err *err)
{
    struct mail *m = d->group->mail;
    memcpy(m->box.out, h, sizeof *h);
    return send_all(d, w, to, m->box.out, sizeof *h + n_body, err);
}

static sl_status expect_in(dist *d, struct dist_way *w, uint64_t from, const struct boxes *b,
                           sl_err *err)
{
    for (int r = 0; r < d->n; r++)
        if (from >> r & 1) SL_TRY(dist_group_recv(d, w, r, b->in[r], d->group->mail->cap, err));
    return SL_OK;
}

static sl_status expect(dist *d, struct dist_way *w, uint64_t from, sl_err *err)
{
    return expect_in(d, w, from, &d->group->mail->box, err);
}

/* Another rank's failure, in its words. */
static sl_status failed_there(const dist *d, const struct boxes *b, int rank, sl_err *err)
{
    struct failure f = {0};
    struct dist_name name = dist_name_of(d, rank);
    memcpy(&f, b->in[rank] + sizeof(struct head), sizeof f);
    f.text[sizeof f.text - 1] = 0;
    sl_status st = f.code > SL_OK && f.code <= SL_DEVICE ? (sl_status)f.code : SL_INTERNAL;
    if (strncmp(f.text, "rank ", 5) == 0)
        return status_fail(err, st, __FILE__, __LINE__, "%s", f.text);
    return status_fail(err, st, __FILE__, __LINE__, "%s: %.180s", name.text, f.text);
}

/* The boxes that messages on their way come to. */
static const struct boxes *boxes_of(const dist *d, const struct dist_way *w)
{
    const struct mail *m = d->group->mail;
    return w->in ? &m->away[(w->in - GROUP_AWAY) / 2].box : &m->box;
}

/* What has come from a rank must be of this kind. */
static sl_status check(const dist *d, const struct dist_way *w, int rank, uint32_t kind,
                       sl_err *err)
{
    const struct boxes *b = boxes_of(d, w);
    const struct head *h = came(b, rank);
    int n = w->n[rank];
    struct dist_name name = dist_name_of(d, rank);
    if (n < (int)sizeof *h || h->magic != MAGIC)
        return SL_FAIL(err, INTERNAL, "%s sent %d bytes that are no message", name.text, n);
    if (h->kind == SAYS_FAILED && n == (int)(sizeof *h + sizeof(struct failure)))
        return failed_there(d, b, rank, err);
    if (h->kind != kind)
        return SL_FAIL(err, INTERNAL, "%s sent message %u in place of %u", name.text, h->kind,
                       kind);
    return SL_OK;
}

/* Who is waited for; in a step, which nobody leaves, another one that is gone: that it is not heard
 * of this way around first, while the launcher ends all. */
static int one_gone(const dist *d, int rank, uint32_t kind)
{
    for (int r = 0; r < d->n && (kind == SAYS_ROWS || kind == SAYS_DONE); r++)
        if (r != d->rank && dist_gone(d, r)) return r;
    return rank;
}

/* What has come meanwhile is what was waited for. */
static sl_status poll(dist *d, struct dist_way *w, uint32_t kind, sl_err *err)
{
    uint64_t before = w->from;
    SL_TRY(dist_group_poll(d, w, err));
    for (int r = 0; r < d->n; r++)
        if ((before & ~w->from) >> r & 1) SL_TRY(check(d, w, r, kind, err));
    return SL_OK;
}

/* Until all is through that is under way. kind: of what comes. Home's next message has no limit. */
static sl_status through(dist *d, struct dist_way *w, uint32_t kind, sl_err *err)
{
    int64_t t0 = clock_now_ns();
    struct dist_stop stop = {0};
    int64_t most = kind == SAYS_ROWS ? dist_stage_deadline(d, w->to != 0) : dist_deadline(d);
    const char *what = kind == SAYS_DONE   ? "after a step"
                       : kind != SAYS_TELL ? DIST_IN_STEP
                                           : "between steps";
    for (int i = 0;; i++) {
        SL_TRY(poll(d, w, kind, err));
        int rank = dist_group_late(w);
        if (rank < 0) return SL_OK;
        int64_t waited = clock_now_ns() - t0, ns = waited;
        bool look = i % 64 == 63;
        if (look) rank = one_gone(d, rank, kind);
        int64_t stopped = look && ns > LOOK_NS ? dist_stopped_long(d, rank, &stop) : 0;
        if (kind == SAYS_TELL) ns = stopped;
        if (ns > most || stopped || (look && dist_gone(d, rank)))
            return dist_silent(d, rank, ns, what, err);
        if (!d->waiting || !d->waiting(d->waiting_arg)) dist_group_rest(d, waited);
    }
}

static bool good(dist *d, sl_status st, const sl_err *why)
{
    if (st) mail_fail(d, why);
    return st == SL_OK;
}

/* ---- steps ---- */

/* Of n ranks from first on, all but this one. */
static uint64_t others_of(const dist *d, int first, int n)
{
    uint64_t all = n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    return all << first & ~((uint64_t)1 << d->rank);
}

static uint64_t others(const dist *d)
{
    return others_of(d, 0, d->n);
}

static void mail_tell(dist *d, const void *msg, size_t n, const struct dist_some *s)
{
    struct mail *m = d->group->mail;
    int at = (int)(d->n_told % (unsigned)d->n_ahead);
    struct dist_way *w = &m->telling[at];
    struct head h = head_of(SAYS_TELL);
    sl_err why = {0};
    if (m->failed) return; /* they know, or can not hear */
    ASSERT(n <= m->cap - sizeof h);
    sl_status st = through(d, w, 0, &why); /* what was there is long done */
    w->tag = GROUP_TAG_TELL;
    w->place = GROUP_TELL + at;
    memcpy(m->tell[at], &h, sizeof h);
    if (n) memcpy(m->tell[at] + sizeof h, msg, n);
    size_t least = sizeof h + BASE_MIN(s->n_least, n);
    if (!st) st = send_all(d, w, others(d) & s->whole, m->tell[at], sizeof h + n, &why);
    if (!st) st = send_all(d, w, others(d) & ~s->whole, m->tell[at], least, &why);
    if (!st && (d->n_ahead == 1 || !n)) st = through(d, w, 0, &why);
    (void)good(d, st, &why);
}

static const void *mail_hear(dist *d, size_t *n)
{
    struct mail *m = d->group->mail;
    struct dist_way w = {.tag = GROUP_TAG_TELL};
    sl_err why = {0};
    *n = 0;
    if (m->failed) return NULL;
    sl_status st = expect(d, &w, 1, &why);
    if (!st) st = through(d, &w, SAYS_TELL, &why);
    if (!good(d, st, &why)) return NULL;
    *n = (size_t)w.n[0] - sizeof(struct head);
    memcpy(m->told, m->box.in[0] + sizeof(struct head), *n); /* in takes pieces meanwhile */
    return m->told;
}

static void mail_done(dist *d)
{
    struct mail *m = d->group->mail;
    struct dist_way w = {.tag = GROUP_TAG_STEP};
    struct head h = head_of(SAYS_DONE);
    sl_err why = {0};
    if (m->failed) return;
    memcpy(m->box.out + sizeof h, &d->count, sizeof d->count);
    sl_status st = send_out(d, &w, 1, &h, sizeof d->count, &why);
    if (!st) st = through(d, &w, 0, &why);
    (void)good(d, st, &why);
}

static sl_status mail_status(const dist *d, sl_err *err)
{
    const struct mail *m = d->group->mail;
    if (!m->failed) return SL_OK;
    if (err) *err = m->why;
    return m->why.code;
}

static sl_status mail_all_done(dist *d, sl_err *err)
{
    struct mail *m = d->group->mail;
    struct dist_way w = {.tag = GROUP_TAG_STEP};
    sl_err why = {0};
    if (m->failed) return mail_status(d, err);
    sl_status st = expect(d, &w, others(d), &why);
    if (!st) st = through(d, &w, SAYS_DONE, &why);
    for (int r = 1; r < d->n && !st; r++) {
        if (w.n[r] == (int)(sizeof(struct head) + sizeof m->count[r]))
            memcpy(&m->count[r], m->box.in[r] + sizeof(struct head), sizeof m->count[r]);
        else
            st = SL_FAIL(&why, INTERNAL, "rank %d ended a step with %d bytes", r, w.n[r]);
    }
    (void)good(d, st, &why);
    return mail_status(d, err);
}

/* ---- joins ---- */

/* Floats that rank brings to the piece for that other one. */
static size_t floats_of(const struct dist_piece *p, int rank, int for_rank)
{
    size_t n = 0;
    rank -= p->c->first;
    for_rank -= p->c->first;
    if (p->count) return (size_t)dist_range_for(p, rank, for_rank).n * (size_t)p->n;
    if (p->to) return (size_t)p->to[for_rank] * (size_t)p->part[rank];
    if (p->n_of && !p->part) return (size_t)p->n_of[rank] * (size_t)p->n;
    if (p->n_of) return (size_t)p->n_of[rank] * (size_t)p->part[for_rank];
    if (!p->of) return (size_t)p->n_row * (size_t)p->part[rank];
    for (int i = 0; i < p->n_row; i++)
        n += p->of[i] == rank ? (size_t)p->n : 0;
    return n;
}

/* What a rank has sent is its part of p, which came in that parcel. */
static sl_status piece_from(dist *d, const struct dist_piece *p, const struct parcel *a, int rank,
                            sl_err *err)
{
    const struct head *h = came(boxes_of(d, &a->way), rank);
    size_t want = sizeof *h + floats_of(p, rank, d->rank) * sizeof(float);
    size_t n = (size_t)a->way.n[rank];
    if (h->history != a->history)
        return dist_misfit(d, rank, p, (struct dist_size){h->n_row, h->n}, err);
    if (n != want)
        return SL_FAIL(err, INTERNAL, "join %u: %zu bytes of rank %d, not %zu", a->n_piece, n, rank,
                       want);
    d->from[rank] = (const float *)(const void *)(h + 1);
    return SL_OK;
}

/* Give all ranks the same. */
static sl_status give_all(dist *d, struct parcel *a, const struct dist_piece *p,
                          const struct head *h, sl_err *err)
{
    uint8_t *out = boxes_of(d, &a->way)->out;
    uint64_t all = others_of(d, p->c->first, p->c->n), first = (uint64_t)1 << p->c->first;
    uint64_t to = p->home ? all & first : all;
    float *mine = (float *)(void *)(out + sizeof *h);
    dist_pack_piece(d, p, -1, mine);
    a->mine = mine;
    memcpy(out, h, sizeof *h);
    size_t n = sizeof *h + floats_of(p, d->rank, d->rank) * sizeof *mine;
    return send_all(d, &a->way, to, out, n, err);
}

/* Give each rank its columns or rows. */
static sl_status give_each(dist *d, struct parcel *a, const struct dist_piece *p,
                           const struct head *h, sl_err *err)
{
    uint8_t *at = boxes_of(d, &a->way)->out;
    for (int r = p->c->first; r < p->c->first + p->c->n; r++) {
        float *body = (float *)(void *)(at + sizeof *h);
        size_t n = sizeof *h + floats_of(p, d->rank, r) * sizeof *body;
        memcpy(at, h, sizeof *h);
        dist_pack_piece(d, p, r - p->c->first, body);
        if (r == d->rank)
            a->mine = body;
        else
            SL_TRY(dist_group_send(d, &a->way, r, at, n, err));
        at += n;
    }
    return SL_OK;
}

/* The parcel is on its way, both ways. */
static sl_status post(dist *d, const struct dist_piece *p, struct parcel *a, sl_err *err)
{
    struct head h = head_of(SAYS_PIECE);
    a->from = dist_not_mine(d, p) ? 0 : others_of(d, p->c->first, p->c->n);
    a->n_piece = h.n_piece = p->c->n_piece;
    a->history = h.history = p->c->history;
    h.n_row = p->n_row;
    h.n = p->n;
    SL_TRY(expect_in(d, &a->way, a->from, boxes_of(d, &a->way), err));
    bool each = p->to || (p->n_of && (p->part || p->count));
    return each ? give_each(d, a, p, &h, err) : give_all(d, a, p, &h, err);
}

static sl_status collect(dist *d, const struct dist_piece *p, struct parcel *a, sl_err *err)
{
    int64_t t0 = clock_now_ns();
    SL_TRY(through(d, &a->way, SAYS_PIECE, err));
    d->count.wait_ns += clock_now_ns() - t0;
    d->from[d->rank] = a->mine;
    for (int r = 0; r < d->n; r++)
        if (a->from >> r & 1) SL_TRY(piece_from(d, p, a, r, err));
    return SL_OK;
}

static bool mail_exchange(dist *d, const struct dist_piece *p)
{
    struct parcel a = {.way = {.tag = GROUP_TAG_STEP}};
    sl_err why = {0};
    dist_count_piece(d, p);
    sl_status st = post(d, p, &a, &why);
    if (!st) st = collect(d, p, &a, &why);
    return good(d, st, &why);
}

static void mail_begin(dist *d, const struct dist_piece *p, int i)
{
    struct mail *m = d->group->mail;
    struct parcel *a = &m->away[i];
    int place = GROUP_AWAY + 2 * i;
    sl_err why = {0};
    if (m->failed) return;
    dist_count_piece(d, p);
    a->way = (struct dist_way){.tag = GROUP_TAG_STEP, .place = place + 1, .in = place};
    (void)good(d, post(d, p, a, &why), &why);
}

static bool mail_end(dist *d, const struct dist_piece *p, int i)
{
    struct mail *m = d->group->mail;
    sl_err why = {0};
    return !m->failed && good(d, collect(d, p, &m->away[i], &why), &why);
}

/* MPI moves nothing while nobody asks. */
static void mail_look(dist *d)
{
    struct mail *m = d->group->mail;
    sl_err why = {0};
    for (int i = 0; i < d->n_away && !m->failed; i++)
        (void)good(d, poll(d, &m->away[i].way, SAYS_PIECE, &why), &why);
}

/* ---- from stage to stage ---- */

static bool mail_give(dist *d, const struct dist_rows *p)
{
    struct mail *m = d->group->mail;
    struct dist_way w = {.tag = GROUP_TAG_STEP};
    struct head h = head_of(SAYS_ROWS);
    size_t n = (size_t)p->n_row * (size_t)p->n * sizeof *p->x;
    sl_err why = {0};
    int64_t t0 = clock_now_ns();
    h.n_piece = ++d->n_given;
    h.n_row = p->n_row;
    h.n = p->n;
    memcpy(m->box.out + sizeof h, p->x, n);
    sl_status st = send_out(d, &w, (uint64_t)1 << dist_taker(d), &h, n, &why);
    if (!st) st = through(d, &w, SAYS_ROWS, &why);
    d->count.wait_ns += clock_now_ns() - t0;
    return good(d, st, &why);
}

static sl_status take(dist *d, const struct dist_rows *p, sl_err *err)
{
    struct dist_way w = {.tag = GROUP_TAG_STEP};
    int from = dist_giver(d);
    size_t n = (size_t)p->n_row * (size_t)p->n * sizeof *p->x;
    int64_t t0 = clock_now_ns();
    d->n_taken++;
    SL_TRY(expect(d, &w, (uint64_t)1 << from, err));
    SL_TRY(through(d, &w, SAYS_ROWS, err));
    d->count.wait_ns += clock_now_ns() - t0;
    const struct head *h = came(&d->group->mail->box, from);
    if (h->n_piece != d->n_taken || h->n_row != p->n_row || h->n != p->n ||
        (size_t)w.n[from] != sizeof *h + n)
        return dist_misgiven(d, from, (struct dist_size){h->n_row, h->n},
                             (struct dist_size){p->n_row, p->n}, err);
    memcpy(p->x, d->group->mail->box.in[from] + sizeof *h, n);
    return SL_OK;
}

static bool mail_take(dist *d, const struct dist_rows *p)
{
    sl_err why = {0};
    return good(d, take(d, p, &why), &why);
}

static bool mail_given(dist *d)
{
    (void)d; /* what was given is in messages */
    return true;
}

/* ---- failures ---- */

/* Send what is in last; one that does not listen is left, and nobody waits for one that is stopped.
 * Home has to say why before its launcher, which sees a rank that has ended, ends it. */
static void tell_last(dist *d, int tag, int place)
{
    struct mail *m = d->group->mail;
    struct dist_way w = {.tag = tag, .place = place};
    for (int r = 0; r < d->n; r++)
        if (r != d->rank && !dist_gone(d, r) && !dist_stopped(d, r, NULL) &&
            dist_group_send(d, &w, r, m->last, sizeof m->last, NULL))
            return;
    int64_t t0 = clock_now_ns(), most = d->rank ? LAST_NS : LAST_NS / 10, ns = 0;
    while (dist_group_late(&w) >= 0 && ns < most) {
        if (dist_group_poll(d, &w, NULL)) return;
        dist_group_rest(d, ns);
        ns = clock_now_ns() - t0;
    }
}

/* The others hear of it in place of what they wait for. */
static void mail_fail(dist *d, const sl_err *why)
{
    struct mail *m = d->group->mail;
    struct head h = head_of(SAYS_FAILED);
    struct failure f = {.code = (int32_t)why->code};
    if (m->failed) return;
    m->failed = true;
    m->why = *why;
    memcpy(f.text, why->text, sizeof f.text);
    memcpy(m->last, &h, sizeof h);
    memcpy(m->last + sizeof h, &f, sizeof f);
    tell_last(d, GROUP_TAG_STEP, GROUP_LAST);
    if (d->rank == 0) tell_last(d, GROUP_TAG_TELL, GROUP_LAST_TOLD);
}

static struct dist_count mail_counts(const dist *d, int rank)
{
    return rank == d->rank ? d->count : d->group->mail->count[rank];
}

static const struct dist_ops ops = {
    .tell = mail_tell,
    .hear = mail_hear,
    .done = mail_done,
    .all_done = mail_all_done,
    .exchange = mail_exchange,
    .begin = mail_begin,
    .end = mail_end,
    .look = mail_look,
    .give = mail_give,
    .take = mail_take,
    .given = mail_given,
    .fail = mail_fail,
    .status = mail_status,
    .counts = mail_counts,
};

/* ---- opening and closing ---- */

/* One message after another, with a head before each rank's own; and one from each. */
static uint8_t *lay_boxes(const dist *d, struct boxes *b, uint8_t *at, size_t n_out)
{
    b->out = at;
    at += n_out;
    for (int r = 0; r < d->n; r++, at += d->group->mail->cap)
        b->in[r] = at;
    return at;
}

sl_status dist_message_open(dist *d, size_t half, size_t msg_bytes, sl_err *err)
{
    void *p = NULL, *buf = NULL;
    size_t cap = sizeof(struct head) + BASE_MAX(BASE_MAX(half, msg_bytes), sizeof(struct failure));
    cap = size_round(cap, 64);
    size_t n_out = cap + size_round((size_t)d->n * sizeof(struct head), 64);
    size_t n_box = n_out + (size_t)d->n * cap, n_tell = (size_t)(1 + d->n_ahead) * cap;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct mail), &p, err));
    struct mail *m = p;
    sl_status st = mem_alloc(MEM_SCRATCH, n_tell + (size_t)(1 + d->n_away) * n_box, &buf, err);
    if (st) {
        mem_free(m);
        return st;
    }
    m->cap = cap;
    m->mem = buf;
    d->group->mail = m;
    for (int i = 0; i < d->n_ahead; i++)
        m->tell[i] = (uint8_t *)buf + (size_t)i * cap;
    m->told = (uint8_t *)buf + (size_t)d->n_ahead * cap;
    uint8_t *at = lay_boxes(d, &m->box, m->told + cap, n_out);
    for (int i = 0; i < d->n_away; i++)
        at = lay_boxes(d, &m->away[i].box, at, n_out);
    d->half = half;
    d->packed = d->cut = true;
    d->ops = &ops;
    return SL_OK;
}

void dist_message_close(struct mail *m)
{
    if (m) mem_free(m->mem);
    mem_free(m);
}
