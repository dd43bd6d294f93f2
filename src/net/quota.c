/* SPDX-License-Identifier: Apache-2.0 */
/* The file: a head, and a row for each name with a column for each server. Rows are only added, by
 * who has the lock BUSY; everything else is atomic words, so that no server ever waits for another
 * that is stopped or killed. A word of a minute holds when it began and what was used since. */
#include "net/quota.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/share.h"

#define MAGIC 0x31415451736c6bu /* and the layout's number */
#define BUSY NET_QUOTA_SERVERS  /* a lock beside those of the servers */
#define BUSY_NS ((int64_t)2 * 1000000000)
#define MINUTE_MS 60000
#define N_BITS 30 /* of a minute's word; the rest is milliseconds */
#define N_MAX ((UINT64_C(1) << N_BITS) - 1)
#define MS_MASK ((UINT64_C(1) << (64 - N_BITS)) - 1)

struct row {
    uint8_t id[NET_QUOTA_ID];          /* fixed once it is counted in head.n_row */
    _Atomic uint64_t n_request, n_token; /* of a minute */
    atomic_int n_now[];                /* [columns] a server's own, but for one that is dead */
};

struct head {
    uint64_t magic, n_column;
    atomic_int n_row; /* release, by what has BUSY; pairs with acquire in n_row */
};

struct net_quota {
    /* fixed after open */
    struct os_common file; /* fd -1: this server counts alone */
    struct head *head;
    int n_column, mine;
    size_t row_bytes;
};

/* ---- rows ---- */

static struct row *row_at(const net_quota *q, int i)
{
    return (struct row *)(void *)((uint8_t *)q->head + sizeof(struct head) +
                                  (size_t)i * q->row_bytes);
}

static int n_row(const net_quota *q)
{
    int n = atomic_load_explicit(&q->head->n_row, memory_order_acquire);
    return n < 0 ? 0 : BASE_MIN(n, NET_QUOTA_ROWS);
}

static void empty_column(net_quota *q, int column)
{
    for (int i = 0, n = n_row(q); i < n; i++)
        atomic_store(&row_at(q, i)->n_now[column], 0);
}

static bool busy(const net_quota *q)
{
    int64_t end = clock_now_ns() + BUSY_NS;
    while (!os_common_lock(&q->file, BUSY)) {
        if (clock_now_ns() > end) return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static sl_status add_row(net_quota *q, const uint8_t id[NET_QUOTA_ID], int *row, sl_err *err)
{
    int n = n_row(q);
    for (*row = 0; *row < n; ++*row)
        if (memcmp(row_at(q, *row)->id, id, NET_QUOTA_ID) == 0) return SL_OK;
    if (n == NET_QUOTA_ROWS)
        return SL_FAIL(err, LIMIT, "limits: %d keys have been counted since the first server began",
                       n);
    memcpy(row_at(q, n)->id, id, NET_QUOTA_ID);
    atomic_store_explicit(&q->head->n_row, n + 1, memory_order_release);
    return SL_OK;
}

sl_status net_quota_row(net_quota *q, const uint8_t id[NET_QUOTA_ID], int guess, int *row,
                        sl_err *err)
{
    *row = guess;
    if (guess >= 0 && guess < n_row(q) && memcmp(row_at(q, guess)->id, id, NET_QUOTA_ID) == 0)
        return SL_OK;
    bool shared = q->file.fd >= 0;
    if (shared && !busy(q))
        return SL_FAIL(err, TIMEOUT, "limits: a server that is stopped has them");
    sl_status st = add_row(q, id, row, err);
    if (shared) os_common_unlock(&q->file, BUSY);
    return st;
}

/* ---- what runs at once ---- */

static int64_t sum_now(const net_quota *q, const struct row *r)
{
    int64_t sum = 0;
    for (int c = 0; c < q->n_column; c++)
        sum += BASE_MAX(atomic_load(&r->n_now[c]), 0);
    return sum;
}

/* Forget what servers have running that are dead: nobody has their locks. */
static void bury(net_quota *q, const struct row *r)
{
    for (int c = 0; c < q->n_column; c++) {
        if (c == q->mine || !atomic_load(&r->n_now[c]) || !os_common_lock(&q->file, (uint64_t)c))
            continue;
        empty_column(q, c);
        os_common_unlock(&q->file, (uint64_t)c);
    }
}

/* ---- minutes ---- */

static uint64_t ms_of(int64_t now_ns)
{
    return (uint64_t)(now_ns / 1000000) & MS_MASK;
}

/* What was used in the minute that word is of; 0 when it is over. */
static uint64_t used(uint64_t word, uint64_t ms, uint64_t *left_ms)
{
    uint64_t age = (ms - (word >> N_BITS)) & MS_MASK;
    *left_ms = age < MINUTE_MS ? MINUTE_MS - age : 0;
    return *left_ms ? word & N_MAX : 0;
}

/* Adds n unless there are max (0 = no limit). */
static bool add(_Atomic uint64_t *word, uint64_t ms, uint64_t n, uint64_t max)
{
    uint64_t old = atomic_load(word), next, left;
    do {
        uint64_t had = used(old, ms, &left);
        if (max && had >= max) return false;
        next = (had ? old >> N_BITS : ms) << N_BITS | BASE_MIN(had + n, N_MAX);
    } while (!atomic_compare_exchange_weak(word, &old, next));
    return true;
}

static int wait_of(_Atomic uint64_t *word, uint64_t ms)
{
    uint64_t left;
    (void)used(atomic_load(word), ms, &left);
    return (int)BASE_MIN(left / 1000 + 1, 60);
}

enum net_quota_full net_quota_take(net_quota *q, int row, const struct net_quota_limit *l,
                                   int64_t now_ns, int *wait_s)
{
    struct row *r = row_at(q, row);
    uint64_t ms = ms_of(now_ns), left;
    enum net_quota_full full = NET_QUOTA_ROOM;
    *wait_s = 1;
    /* first one's own, then the sum: of two at a time both may be refused, never too many let in */
    atomic_fetch_add(&r->n_now[q->mine], 1);
    if (l->parallel && sum_now(q, r) > l->parallel) {
        bury(q, r);
        if (sum_now(q, r) > l->parallel) full = NET_QUOTA_PARALLEL;
    }
    if (!full && l->token && used(atomic_load(&r->n_token), ms, &left) >= (uint64_t)l->token) {
        full = NET_QUOTA_TOKEN;
        *wait_s = wait_of(&r->n_token, ms);
    }
    if (!full && !add(&r->n_request, ms, 1, (uint64_t)l->request)) {
        full = NET_QUOTA_REQUEST;
        *wait_s = wait_of(&r->n_request, ms);
    }
    if (full) atomic_fetch_sub(&r->n_now[q->mine], 1);
    return full;
}

void net_quota_give(net_quota *q, int row, int64_t n_token, int64_t now_ns)
{
    struct row *r = row_at(q, row);
    atomic_fetch_sub(&r->n_now[q->mine], 1);
    if (n_token > 0) (void)add(&r->n_token, ms_of(now_ns), (uint64_t)n_token, 0);
}

/* ---- opening and closing ---- */

static size_t bytes_of(const net_quota *q)
{
    return sizeof(struct head) + NET_QUOTA_ROWS * q->row_bytes;
}

/* A column that nobody has. */
static sl_status take_column(net_quota *q, const char *path, sl_err *err)
{
    for (q->mine = 0; q->mine < q->n_column; q->mine++) {
        if (!os_common_lock(&q->file, (uint64_t)q->mine)) continue;
        empty_column(q, q->mine);
        return SL_OK;
    }
    return SL_FAIL(err, LIMIT, "%.150s: %d servers count there", path, q->n_column);
}

/* Under BUSY. */
static sl_status join(net_quota *q, const char *path, sl_err *err)
{
    if (!os_common_held(&q->file, 0, NET_QUOTA_SERVERS)) { /* nobody counts there */
        SL_TRY(os_common_clear(&q->file, err));
        q->head->magic = MAGIC;
        q->head->n_column = NET_QUOTA_SERVERS;
    }
    if (q->head->magic != MAGIC || q->head->n_column != NET_QUOTA_SERVERS)
        return SL_FAIL(err, FORMAT, "%.150s: servers of another sluice count there", path);
    return take_column(q, path, err);
}

static sl_status open_shared(net_quota *q, const char *path, sl_err *err)
{
    SL_TRY(os_common_open(path, bytes_of(q), &q->file, err));
    q->head = q->file.p;
    if (!busy(q)) return SL_FAIL(err, TIMEOUT, "%.150s: a server that is stopped has it", path);
    sl_status st = join(q, path, err);
    os_common_unlock(&q->file, BUSY);
    return st;
}

static sl_status open_alone(net_quota *q, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, bytes_of(q), &p, err));
    q->head = p;
    return SL_OK;
}

sl_status net_quota_open(const char *path, net_quota **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    net_quota *q = p;
    q->file.fd = -1;
    q->n_column = path ? NET_QUOTA_SERVERS : 1;
    q->row_bytes = (sizeof(struct row) + (size_t)q->n_column * sizeof(atomic_int) + 7) & ~(size_t)7;
    sl_status st = path ? open_shared(q, path, err) : open_alone(q, err);
    if (st) {
        net_quota_close(q);
        return st;
    }
    *out = q;
    return SL_OK;
}

void net_quota_close(net_quota *q)
{
    if (!q) return;
    if (q->file.fd < 0) mem_free(q->head);
    os_common_close(&q->file);
    mem_free(q);
}
