/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are given up while a model is read, and whether the page cache gives them up too. */
#include "io/reading.h"

#include "base/clock.h"
#include "io/io_internal.h"

#define STRETCH_TRY ((int64_t)64 << 20)   /* bytes that a rate is measured over: before it is */
#define STRETCH_KEEP ((int64_t)512 << 20) /* tried, and then */
#define SLOW 1.5e9                        /* bytes/s: memory that is there is packed faster */
#define AHEAD ((int64_t)64 << 20) /* bytes that are asked for before they are read */
#define FOLIO ((uint64_t)2 << 20)         /* the page cache lets go of whole ones only, at most */

void io_reading_begin(struct io_reading *r, const io_model *m, bool may_evict)
{
    *r = (struct io_reading){
        .m = m, .may_evict = may_evict, .t0 = clock_now_ns(), .disk0 = os_disk_read()};
}

void io_reading_parts(struct io_reading *r)
{
    r->parts = true;
    io_parts(r->m, true);
}

static void ask(struct io_reading *r)
{
    for (; r->n_asked < r->n_ahead && r->n_past < AHEAD; r->n_asked++)
        for (int half = 0; half < 2 && r->ahead[half]; half++) {
            const struct weight *w = &r->ahead[half][r->n_asked];
            io_will_need(r->m, w->data, weight_span(w));
            r->n_past += (int64_t)weight_span(w);
        }
}

void io_reading_next(struct io_reading *r, const struct weight *a, const struct weight *b, int n)
{
    if (!r->parts) return;
    r->ahead[0] = a;
    r->ahead[1] = b;
    r->n_ahead = n;
    r->n_asked = 0;
    r->n_past = 0;
    ask(r);
}

void io_reading_end(struct io_reading *r)
{
    if (r->parts) io_parts(r->m, false);
    *r = (struct io_reading){0};
}

/* Decides for the weights that come next. Slow with hardly anything read from a disk: try it, and
 * keep it unless the next stretch is slower still. */
static void measure(struct io_reading *r)
{
    int64_t now = clock_now_ns(), disk = os_disk_read(), n = r->n_done - r->byte0;
    if (r->off || n < (r->on ? STRETCH_KEEP : STRETCH_TRY)) return;
    double rate = (double)n * 1e9 / (double)(now - r->t0 + 1);
    bool cached = disk - r->disk0 < n / 8;
    if (r->slow > 0 && rate < r->slow) {
        r->off = true;
        r->on = false;
    } else if (r->slow > 0) {
        r->slow = 1; /* it pays: no more questions */
    } else if (cached && rate < SLOW) {
        r->on = true;
        r->slow = rate;
    }
    r->t0 = now;
    r->byte0 = r->n_done;
    r->disk0 = disk;
}

/* What a weight shares with the one before it, of a folio, goes with this one. */
static void evict(struct io_reading *r, const uint8_t *p, uint64_t n)
{
    int i = r->run[r->last].end == p ? r->last : !r->last;
    if (r->run[i].end != p) r->run[i].begin = p;
    r->run[i].end = p + n;
    r->last = i;
    uint64_t before = BASE_MIN((uint64_t)(p - r->run[i].begin), FOLIO);
    io_evict(r->m, p - before, n + before);
}

void io_reading_done(struct io_reading *r, const struct weight *w)
{
    uint64_t n = weight_span(w);
    r->n_done += (int64_t)weight_bytes(w);
    r->n_past -= (int64_t)n;
    ask(r);
    if (r->may_evict) measure(r);
    if (r->on)
        evict(r, w->data, n);
    else
        io_drop(r->m, w->data, n);
}
