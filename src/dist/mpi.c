/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes: the module that speaks MPI is loaded, the ranks find each other by it
 * and agree while they open; in steps those of one machine use the memory that they share. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/group.h"
#include "os/os.h"
#include "os/share.h"

#define OPEN_NS ((int64_t)600 * 1000000000) /* the others may still be reading weights */
#define CLOSE_NS ((int64_t)5 * 1000000000)
#define HALF_BYTES ((size_t)1 << 20)
/* A message is asked for again and again so long, as it takes on a near network; then naps between,
 * a 64th of the time that it was waited for, so that a step is hardly longer for them; at least so
 * long where ranks share CPUs, and at most */
#define ASK_NS 200000
#define NAP_PART 64
#define NAP_LEAST_NS 1000
#define NAP_SHARED_NS 20000
#define NAP_MOST_NS 1000000
#ifndef SL_MODULE_DIR
#define SL_MODULE_DIR "."
#endif

/* ---- the module ---- */

static bool folder_of(const char *file, char *out, size_t n)
{
    char full[PATH_MAX];
    if (!os_path_full(file, full, sizeof full)) return false;
    char *slash = strrchr(full, '/');
    if (!slash || slash == full) return false;
    *slash = 0;
    return (size_t)snprintf(out, n, "%s", full) < n;
}

/* Beside the program or library that this is a part of, or where it is installed. */
bool dist_mpi_module(char *path, size_t n)
{
    Dl_info here;
    char dir[3][PATH_MAX] = {"", "", SL_MODULE_DIR};
    if (dladdr(&DIST_MODULE_FILE, &here) && here.dli_fname)
        (void)folder_of(here.dli_fname, dir[0], sizeof dir[0]);
    (void)folder_of("/proc/self/exe", dir[1], sizeof dir[1]);
    for (int i = 0; i < BASE_COUNT_OF(dir); i++) {
        if (!*dir[i]) continue;
        if ((size_t)snprintf(path, n, "%s/" DIST_MODULE_FILE, dir[i]) < n &&
            os_path_kind(path) == OS_FILE)
            return true;
    }
    return false;
}

static sl_status load_module(const struct dist_module **out, sl_err *err)
{
    char path[PATH_MAX];
    if (!dist_mpi_module(path, sizeof path))
        return SL_FAIL(err, NOTFOUND,
                       "%d processes were started, and " DIST_MODULE_FILE
                       " is not beside the program: sluice was built without MPI "
                       "(Debian: libopenmpi-dev)",
                       dist_launched().n);
    void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI's own modules look for its names */
    if (!lib) return SL_FAIL(err, NOTFOUND, "%s", dlerror());
    const struct dist_module *m = dlsym(lib, DIST_MODULE_SYMBOL);
    if (!m || m->version != DIST_MODULE_VERSION)
        return SL_FAIL(err, UNSUPPORTED, "%.150s: of another sluice", path);
    *out = m;
    return SL_OK;
}

/* Where nothing else was asked for. */
static void prepare_mpi(void)
{
    struct dist_launch l = dist_launched();
    /* copies between processes by the kernel: containers and our own sandbox forbid them */
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    /* we ask whether a message has come, and sleep between (dist_group_rest); with more ranks than
     * CPUs MPI would give its turn away at every question */
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    if (l.n_here != l.n) return;
    /* ranks of one machine need no listener */
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
}

/* ---- names, and who is there ---- */

struct dist_name dist_name_of(const dist *d, int rank)
{
    struct dist_name name;
    const struct dist_about *a = d->group ? &d->group->of[rank] : NULL;
    if (a && a->pid)
        snprintf(name.text, sizeof name.text, "rank %d (%s, process %d)", rank, a->host, a->pid);
    else
        snprintf(name.text, sizeof name.text, "rank %d", rank);
    return name;
}

bool dist_here(const dist *d, int rank)
{
    const struct dist_group *g = d->group;
    return !g || strcmp(g->of[rank].host, g->of[d->rank].host) == 0;
}

bool dist_gone(const dist *d, int rank)
{
    return d->group && os_process_gone(d->group->watch[rank]);
}

static sl_status mpi_failed(dist *d, const char *why, sl_err *err)
{
    d->group->broken = true;
    return SL_FAIL(err, IO, "MPI: %.180s", why);
}

bool dist_stopped(const dist *d, int rank, uint64_t *turns)
{
    return d->group && d->group->watch[rank] >= 0 &&
           os_process_stopped(d->group->of[rank].pid, turns);
}

/* ---- messages ---- */

_Static_assert(GROUP_N_PLACE * DIST_RANK_MAX <= DIST_MODULE_PLACES, "places of messages");

/* Where they are under way in the module. */
static int place_to(const struct dist_way *w, int rank)
{
    return rank + w->place * DIST_RANK_MAX;
}
static int place_from(const struct dist_way *w, int rank)
{
    return rank + (w->in ? w->in : GROUP_IN) * DIST_RANK_MAX;
}

sl_status dist_group_send(dist *d, struct dist_way *w, int rank, const void *p, size_t n,
                          sl_err *err)
{
    if (d->group->broken) return SL_FAIL(err, IO, "MPI has failed");
    const char *why = d->group->m->send(place_to(w, rank), rank, w->tag, p, (int)n);
    if (why) return mpi_failed(d, why, err);
    w->to |= (uint64_t)1 << rank;
    return SL_OK;
}

sl_status dist_group_recv(dist *d, struct dist_way *w, int rank, void *p, size_t n, sl_err *err)
{
    if (d->group->broken) return SL_FAIL(err, IO, "MPI has failed");
    const char *why = d->group->m->recv(place_from(w, rank), rank, w->tag, p, (int)n);
    if (why) return mpi_failed(d, why, err);
    w->from |= (uint64_t)1 << rank;
    return SL_OK;
}

static sl_status poll_one(dist *d, int place, uint64_t *bits, int rank, int *n, sl_err *err)
{
    bool done = false;
    if (!(*bits >> rank & 1)) return SL_OK;
    const char *why = d->group->m->test(place, &done, n);
    if (why) return mpi_failed(d, why, err);
    if (done) *bits &= ~((uint64_t)1 << rank);
    return SL_OK;
}

sl_status dist_group_poll(dist *d, struct dist_way *w, sl_err *err)
{
    for (int r = 0; r < d->n; r++) {
        int none;
        SL_TRY(poll_one(d, place_to(w, r), &w->to, r, &none, err));
        SL_TRY(poll_one(d, place_from(w, r), &w->from, r, &w->n[r], err));
    }
    return SL_OK;
}

/* Where ranks share CPUs, or something else wants them, a rank that waits must sleep: one that only
 * yields is asked again when all others have had their turns, and takes a turn itself each time. */
void dist_group_rest(const dist *d, int64_t waited_ns)
{
    int64_t least = d->spin_ns ? NAP_LEAST_NS : NAP_SHARED_NS;
    if (d->spin_ns && waited_ns < ASK_NS) return;
    os_nap(BASE_MIN(BASE_MAX(waited_ns / NAP_PART, least), NAP_MOST_NS));
}

int dist_group_late(const struct dist_way *w)
{
    uint64_t bits = w->from ? w->from : w->to;
    return bits ? __builtin_ctzll(bits) : -1;
}

/* ---- agreeing ---- */

static sl_status all_within(dist *d, const void *mine, void *all, size_t bytes, int64_t most,
                            sl_err *err)
{
    struct dist_way w = {.tag = GROUP_TAG_OPEN};
    uint8_t *to = all;
    int64_t t0 = clock_now_ns();
    memcpy(to + (size_t)d->rank * bytes, mine, bytes);
    for (int r = 0; r < d->n; r++) {
        if (r == d->rank) continue;
        SL_TRY(dist_group_recv(d, &w, r, to + (size_t)r * bytes, bytes, err));
        SL_TRY(dist_group_send(d, &w, r, mine, bytes, err));
    }
    for (;;) {
        SL_TRY(dist_group_poll(d, &w, err));
        int rank = dist_group_late(&w);
        if (rank < 0) return SL_OK;
        int64_t ns = clock_now_ns() - t0;
        if (ns > most || dist_gone(d, rank)) {
            d->group->broken = true;
            return dist_silent(d, rank, ns, "while opening", err);
        }
        dist_group_rest(d, ns);
    }
}

sl_status dist_all(dist *d, const void *mine, void *all, size_t bytes, sl_err *err)
{
    return all_within(d, mine, all, bytes, OPEN_NS, err);
}

sl_status dist_gate(dist *d, sl_status st, sl_err *err)
{
    struct verdict {
        int32_t st;
        char text[sizeof err->text];
    } mine = {.st = (int32_t)st}, all[DIST_RANK_MAX];
    if (st && err) memcpy(mine.text, err->text, sizeof mine.text);
    SL_TRY(dist_all(d, &mine, all, sizeof mine, err));
    for (int r = 0; r < d->n; r++) {
        if (all[r].st == SL_OK) continue;
        if (all[r].st == (int32_t)st && !strcmp(all[r].text, mine.text)) return st; /* of all */
        struct dist_name name = dist_name_of(d, r);
        all[r].text[sizeof all[r].text - 1] = 0;
        return status_fail(err, (sl_status)all[r].st, __FILE__, __LINE__, "%s: %s", name.text,
                           all[r].text);
    }
    return SL_OK;
}

/* ---- shared memory ---- */

static sl_status share(dist *d, size_t half, size_t msg_bytes, char name[OS_SHARE_NAME],
                       sl_err *err)
{
    struct dist_group *g = d->group;
    size_t n_board = dist_board_bytes(d->n), slots = dist_board_slot(d, half);
    char all[DIST_RANK_MAX][OS_SHARE_NAME] = {{0}}, mine[OS_SHARE_NAME] = {0};
    g->n_share = n_board + dist_board_room(d, half, msg_bytes);
    sl_status st = d->rank ? SL_OK : os_share_make(mine, g->n_share, &g->share, err);
    SL_TRY(dist_gate(d, st, err));
    SL_TRY(dist_all(d, mine, all, sizeof mine, err));
    memcpy(name, all[0], OS_SHARE_NAME);
    if (d->rank) st = os_share_take(name, g->n_share, &g->share, err);
    if (!st && !d->rank) {
        st = os_share_reserve(name, 0, n_board, err);
        size_t at = n_board + (size_t)d->n * slots;
        if (!st) st = os_share_reserve(name, at, g->n_share - at, err);
    }
    /* a rank's slots are near it */
    if (!st) st = os_share_reserve(name, n_board + (size_t)d->rank * slots, slots, err);
    return dist_gate(d, st, err);
}

sl_status dist_room(dist *d, int64_t row_bytes, int64_t msg_bytes, sl_err *err)
{
    char name[OS_SHARE_NAME] = {0};
    if (!d->group) return SL_OK;
    size_t half = BASE_MAX(size_round((size_t)row_bytes, DIST_PAGE), HALF_BYTES);
    if (!d->group->one_host)
        return dist_gate(d, dist_message_open(d, half, (size_t)msg_bytes, err), err);
    sl_status st = share(d, half, (size_t)msg_bytes, name, err);
    if (d->rank == 0 && *name) os_share_unname(name);
    if (st) return st;
    if (d->rank == 0) dist_board_init(d->group->share, d->n, true);
    SL_TRY(dist_gate(d, SL_OK, err));
    dist_board_attach(d, d->group->share, half, (size_t)msg_bytes);
    return SL_OK;
}

/* ---- opening and closing ---- */

static void group_close(dist *d)
{
    struct dist_group *g = d->group;
    struct dist_about all[DIST_RANK_MAX];
    bool failed = g->broken || (d->ops && d->ops->status(d, NULL));
    if (!failed) failed = all_within(d, &g->of[d->rank], all, sizeof *all, CLOSE_NS, NULL) != SL_OK;
    if (!failed) g->m->close(); /* else it would wait for those that are gone */
    os_share_drop(g->share, g->n_share);
    dist_message_close(g->mail);
    for (int r = 0; r < d->n; r++)
        os_process_unwatch(g->watch[r]);
    mem_free(g);
    mem_free(d->room);
    mem_free(d);
}

/* Who the others are. here: ranks on this machine. */
static sl_status meet(dist *d, int n_here, sl_err *err)
{
    struct dist_group *g = d->group;
    const char *how = getenv("SL_DIST");
    bool messages = n_here < d->n || (how && !strcmp(how, "messages"));
    struct dist_about mine = {.pid = os_process_id(), .messages = messages}, all[DIST_RANK_MAX];
    os_host_name(mine.host, sizeof mine.host);
    SL_TRY(dist_all(d, &mine, all, sizeof mine, err));
    memcpy(g->of, all, sizeof all[0] * (size_t)d->n);
    g->one_host = true;
    for (int r = 0; r < d->n; r++) {
        g->of[r].host[sizeof g->of[r].host - 1] = 0;
        g->one_host &= !g->of[r].messages;
        if (r != d->rank && !strcmp(g->of[r].host, mine.host))
            g->watch[r] = os_process_watch(g->of[r].pid);
    }
    return SL_OK;
}

/* MPI trusts whoever it can reach: between machines the network is named. */
static sl_status check_network(const dist *d, int n_here, sl_err *err)
{
    if (n_here == d->n || getenv("OMPI_MCA_btl_tcp_if_include") || getenv("UCX_NET_DEVICES"))
        return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "%d of %d ranks are on other machines, and no network is named for them: mpirun "
                   "--mca btl_tcp_if_include 10.0.0.0/24, or UCX_NET_DEVICES",
                   d->n - n_here, d->n);
}

static sl_status check_networks(const struct dist_launch *l, sl_err *err)
{
    const char *net = getenv("OMPI_MCA_btl_tcp_if_include");
    if (!net || l->n_here == l->n || os_has_network(net)) return SL_OK;
    return SL_FAIL(err, NOTFOUND,
                   "no network of this machine is in btl_tcp_if_include=%.100s: name one that all "
                   "machines have, as ip addr shows it",
                   net);
}

static sl_status join_group(dist *d, const struct dist_opts *o, sl_err *err)
{
    struct dist_launch l = dist_launched();
    int rank = 0, n = 0, n_here = 0;
    prepare_mpi();
    SL_TRY(check_networks(&l, err)); /* MPI would end the process, with a page of text */
    const char *why = d->group->m->open(&rank, &n, &n_here);
    if (why) return mpi_failed(d, why, err);
    if (n != l.n || n > DIST_RANK_MAX || n < 2)
        return SL_FAIL(err, IO,
                       "%d processes were started, and %.60s knows of %d: the launcher is another "
                       "one's (srun: --mpi=pmix), or there are more than %d",
                       l.n, d->group->m->library(), n, DIST_RANK_MAX);
    dist_init(d, rank, n, o);
    SL_TRY(meet(d, n_here, err));
    if (!o->refuses) return dist_gate(d, check_network(d, n_here, err), err);
    o->refuses->told = true;
    return dist_gate(d, o->refuses->st, &o->refuses->err);
}

sl_status dist_mpi_open(const struct dist_opts *o, dist **out, sl_err *err)
{
    const struct dist_module *m = NULL;
    void *p = NULL, *g = NULL;
    *out = NULL;
    SL_TRY(load_module(&m, err));
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct dist_group), &g, err));
    sl_status st = mem_alloc_array(MEM_MISC, 1, sizeof(struct dist), &p, err);
    if (st) {
        mem_free(g);
        return st;
    }
    dist *d = p;
    d->group = g;
    d->group->m = m;
    d->close = group_close;
    for (int r = 0; r < DIST_RANK_MAX; r++)
        d->group->watch[r] = -1;
    os_end_with_parent();
    st = join_group(d, o, err);
    if (st) {
        dist_close(d);
        return st;
    }
    *out = d;
    return SL_OK;
}

bool dist_mpi_refuse(const char *layout, sl_status *st, sl_err *err)
{
    struct dist_layout l;
    struct dist_refusal r = {.st = *st};
    int n = dist_launched().n;
    dist *d = NULL;
    sl_err own;
    if (n < 2 || !layout || dist_layout_parse(layout, &l, NULL) || dist_layout_ranks(&l) != n)
        return false;
    if (err) r.err = *err;
    sl_status all = dist_mpi_open(&(struct dist_opts){.refuses = &r}, &d, &own);
    ASSERT(all && !d);
    if (!r.told) return false;
    *st = all;
    if (err) *err = r.err;
    return true;
}
