/* SPDX-License-Identifier: Apache-2.0 */
/* The log: operators append launches and copies; what is equal to a recording is submitted as that,
 * else it is recorded. What varies from step to step lies in memory at fixed addresses, so the logs
 * of two steps of one shape are equal. */
#include <string.h>

#include "base/hash.h"
#include "dev/gpu/gpu.h"

static struct gpu_entry *new_entry(struct gpu *c)
{
    struct gpu_entry *e = &c->log[c->n_log++];
    memset(e, 0, sizeof *e);
    e->barrier = 1;
    return e;
}

/* The next entry of the log, which begins with a stamp where operators are timed; after it there
 * is room for another. */
static struct gpu_entry *append(struct gpu *c)
{
    if (c->why.code) return NULL;
    if (c->n_log == GPU_LOG - 1) dev_gpu_flush(c);
    if (c->why.code) return NULL;
    if (c->n_log == 0 && dev_gpu_times_on(c)) {
        if (c->n_stamp >= GPU_STAMPS - 1) (void)dev_gpu_finish(c, NULL);
        if (c->why.code) return NULL;
        dev_gpu_stamp_first(c, new_entry(c));
    }
    return new_entry(c);
}

void dev_gpu_stamp(struct gpu *c)
{
    if (c->n_stamp == GPU_STAMPS - 1) dev_gpu_flush(c); /* the next log begins anew */
    if (c->n_log) dev_gpu_stamp_first(c, new_entry(c));
}

void dev_gpu_launch(struct gpu *c, enum gpu_kernel id, const uint32_t grid[3], const void *k,
                    size_t n_k)
{
    if (!grid[0] || !grid[1] || !grid[2]) return;
    ASSERT(c->has_kernel[id] && n_k <= sizeof((struct gpu_entry *)0)->u.k);
    ASSERT(BASE_MAX(grid[0], BASE_MAX(grid[1], grid[2])) <= GPU_GRID_MAX);
    struct gpu_entry *e = append(c);
    if (!e) return;
    e->kind = GPU_LAUNCH;
    e->kernel = (uint16_t)id;
    memcpy(e->grid, grid, sizeof e->grid);
    e->n_k = (uint32_t)n_k;
    memcpy(e->u.k, k, n_k);
}

static void move(struct gpu *c, enum gpu_kind kind, uint64_t to, uint64_t from, int64_t n)
{
    struct gpu_entry *e = n ? append(c) : NULL;
    if (!e) return;
    e->kind = (uint16_t)kind;
    e->u.c.to = to;
    e->u.c.from = from;
    e->u.c.n = (uint64_t)n;
}

void dev_gpu_copy(struct gpu *c, uint64_t to, uint64_t from, int64_t n)
{
    move(c, GPU_COPY, to, from, n);
}

void dev_gpu_fill(struct gpu *c, uint64_t to, uint32_t word, int64_t n)
{
    move(c, GPU_FILL, to, word, n);
}

void dev_gpu_beside(struct gpu *c)
{
    if (c->n_log > 1) c->log[c->n_log - 1].barrier = 0;
}

static void failed(struct gpu *c, sl_status st)
{
    if (st == SL_DEVICE) c->lost = true;
    status_prefix(&c->why, "%s", c->name);
    c->n_log = 0;
}

sl_status dev_gpu_wait(struct gpu *c, uint64_t n, sl_err *err)
{
    if (n > c->waited && !c->lost) {
        sl_status st = c->drv->wait(c->g, n, &c->why);
        if (st) {
            c->no_wait = true;
            failed(c, st);
        } else {
            c->waited = n;
        }
    }
    if (!c->why.code) return SL_OK;
    if (err) *err = c->why;
    return c->why.code;
}

/* A place for a recording: a free one, or that which was used longest ago. */
static struct gpu_place *make_room(struct gpu *c)
{
    struct gpu_place *p = &c->place[0];
    for (int i = 1; i < GPU_PLACES; i++)
        if (c->place[i].used < p->used) p = &c->place[i];
    if (p->rec && dev_gpu_wait(c, p->used, NULL)) return NULL;
    if (p->rec) c->drv->forget(c->g, p->rec);
    *p = (struct gpu_place){0};
    return p;
}

/* The recording of a log of that hash, NULL: there is none. */
static struct gpu_place *find(struct gpu *c, const uint64_t hash[2])
{
    for (int k = 0; k < GPU_PLACES; k++) {
        int i = (c->next_place + k) % GPU_PLACES;
        struct gpu_place *p = &c->place[i];
        if (!p->rec || p->n != c->n_log || memcmp(p->hash, hash, sizeof p->hash) != 0) continue;
        c->next_place = i + 1;
        return p;
    }
    return NULL;
}

/* All of them, for their memory. */
static void forget_all(struct gpu *c)
{
    if (dev_gpu_wait(c, c->n_submit, NULL)) return;
    for (int i = 0; i < GPU_PLACES; i++) {
        if (c->place[i].rec) c->drv->forget(c->g, c->place[i].rec);
        c->place[i] = (struct gpu_place){0};
    }
}

static sl_status record(struct gpu *c, struct gpu_place *p)
{
    sl_status st = c->drv->record(c->g, c->log, c->n_log, &p->rec, &c->why);
    if (st != SL_NOMEM) return st;
    c->why = (sl_err){0};
    p->rec = NULL;
    forget_all(c);
    if (c->why.code) return c->why.code;
    return c->drv->record(c->g, c->log, c->n_log, &p->rec, &c->why);
}

static struct gpu_place *recording(struct gpu *c)
{
    size_t n = sizeof *c->log * (size_t)c->n_log;
    uint64_t hash[2];
    hash_wide(c->log, n, hash);
    struct gpu_place *known = find(c, hash);
    if (known) return known;
    struct gpu_place *p = make_room(c);
    if (!p || record(c, p)) return NULL;
    p->n = c->n_log;
    memcpy(p->hash, hash, sizeof hash);
    c->n_record++;
    return p;
}

static sl_status submit(struct gpu *c, struct gpu_place *p)
{
    if (c->n_submit + 1 == c->fault.submit)
        return SL_FAIL(&c->why, DEVICE, "submit %llu fails, as its option says",
                       (unsigned long long)c->fault.submit);
    return c->drv->submit(c->g, p->rec, c->n_send, &c->why);
}

void dev_gpu_flush(struct gpu *c)
{
    if (c->n_log == 0 || c->why.code) return;
    struct gpu_place *p = recording(c);
    sl_status st = p ? submit(c, p) : c->why.code;
    if (st) {
        failed(c, st);
        return;
    }
    p->used = ++c->n_submit;
    c->n_log = 0;
    for (int i = 0; i < c->n_pass; i++)
        if (c->step[i].is_new) {
            c->step[i].used = c->n_submit;
            c->step[i].is_new = false;
        }
}

void dev_gpu_send_one(struct gpu *c, const struct gpu_sending *s)
{
    if (c->why.code) return;
    sl_status st = c->drv->send(c->g, s, &c->why);
    if (st)
        failed(c, st);
    else
        c->n_send++;
}

void dev_gpu_wait_send(struct gpu *c, uint64_t n)
{
    if (!n || c->why.code) return;
    sl_status st = c->drv->wait_send(c->g, n, &c->why);
    if (!st) return;
    c->no_wait = true;
    failed(c, st);
}

void dev_gpu_give(struct gpu *c)
{
    for (int i = 0; i < c->n_out; i++)
        memcpy(c->out[i].host, c->out[i].from, c->out[i].n);
    c->n_out = 0;
}

sl_status dev_gpu_finish(struct gpu *c, sl_err *err)
{
    dev_gpu_flush(c);
    SL_TRY(dev_gpu_wait(c, c->n_submit, err));
    if (c->n_stamp) dev_gpu_times_take(c);
    dev_gpu_give(c);
    c->bounce_used = 0;
    return SL_OK;
}

void dev_gpu_log_free(struct gpu *c)
{
    for (int i = 0; i < GPU_PLACES; i++)
        if (c->place[i].rec) c->drv->forget(c->g, c->place[i].rec);
    mem_free(c->log);
}

sl_status dev_gpu_kernel(struct gpu *c, enum gpu_kernel id, sl_err *err)
{
    if (c->has_kernel[id]) return SL_OK;
    sl_status st = c->drv->kernel(c->g, id, c->fused, err);
    if (st) status_prefix(err, "%s", c->name);
    c->has_kernel[id] = st == SL_OK;
    return st;
}
