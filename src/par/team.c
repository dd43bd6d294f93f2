/* SPDX-License-Identifier: Apache-2.0 */
/* The team. One way of waiting serves workers (for a region), the caller (for its end) and
 * barriers: a word that rises (os/word.h), a short spin, then sleep.
 *
 * Spinning pays only while every worker has a CPU of its own. A wait inside a region that outlasts
 * LONG_WAIT_NS means that somebody else had our CPU: the spin is cut, and grows back slowly over
 * quiet regions.
 */
#include "par/par.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/os.h"
#include "os/word.h"

#define WORKER_MAX 512
#define SPIN_NS 100000   /* idle workers: covers the caller's own work between two regions */
#define SPIN_MIN_NS 1000 /* after long waits */
#define LONG_WAIT_NS 300000
#define SOLO_WAIT_NS 1000000  /* a time slice of another program, about */
#define SOLO_OWED_NS 40000000 /* waited so much more than half of the time: alone is faster */
#define SOLO_OWED_N 5         /* in so many waits: one of a CPU that its host took is no reason */
#define SOLO_TIMES 16         /* time alone after a long wait, in waits */
#define SOLO_MAX_NS 2000000000ll
#define SOLO_FORGET_NS                                                                             \
    50000000ll          /* together for so long without a long wait: start small again             \
                         */
#define FAULTS_FEW 4    /* page faults of a region that did not come to touch pages */
#define NUDGE_EVERY 256 /* regions between two looks at where the caller runs */

struct worker {
    par_team *team;
    pthread_t thread;
    int id, cpu;
};

struct par_team {
    /* fixed after open */
    int n, n_rank, crowded, pinned, adapt;
    int n_started;
    int (*on_wait)(void *arg, int worker);
    void *on_wait_arg;
    int64_t spin_max_ns;
    struct worker *worker; /* [n]; 0 is the caller */

    /* the caller's, published by region.n */
    void (*fn)(void *arg, int worker, int n_worker);
    void *arg;
    int stop;
    unsigned n_region;
    int n_now;            /* workers in the present region: n or 1 */
    int solo;             /* regions are run alone until solo_until */
    int64_t published_ns; /* when the present region began */
    int64_t waited_ns;    /* the caller's waits in it */
    pthread_t caller;
    int64_t solo_until, solo_ns, together_since;
    int64_t owed_ns; /* twice the waits less the time since, not below 0 */
    int n_owed;      /* waits since it was 0 */

    atomic_llong spin_ns; /* relaxed: a hint */
    struct os_word region;  /* number of the region */
    struct os_word done;    /* number of the last finished region */
    struct os_word barrier; /* arrivals at barriers of the present region, all together */
    atomic_int kept;      /* a worker was kept from running; relaxed, ordered by done */
    _Alignas(64) atomic_int n_done;
};

static _Thread_local int worker_id; /* 0 in the caller */

/* Wait until the word has risen to goal. Returns the nanoseconds waited when that was more than a
 * few polls, else 0. */
static int64_t word_wait(const par_team *team, struct os_word *e, unsigned goal, int64_t spin_ns)
{
    while (team->on_wait && team->on_wait(team->on_wait_arg, worker_id))
        if (os_word_there(e, goal)) return 0;
    if (os_word_poll(e, goal, 64)) return 0;
    int64_t t0 = clock_now_ns(), t;
    if (os_word_spin(e, goal, spin_ns, t0, &t)) return t - t0;
    (void)os_word_sleep(e, goal, -1);
    return clock_now_ns() - t0;
}

static int64_t spin_now(par_team *t)
{
    return atomic_load_explicit(&t->spin_ns, memory_order_relaxed);
}

/* After a long wait: how long to go on alone. The wait itself, doubled for each failed try in a
 * row. */
static void solo_begin(par_team *t, int64_t waited)
{
    int64_t now = clock_now_ns(), ns = SOLO_TIMES * waited;
    if (now - t->together_since < SOLO_FORGET_NS && ns < 2 * t->solo_ns) ns = 2 * t->solo_ns;
    t->solo_ns = ns < SOLO_MAX_NS ? ns : SOLO_MAX_NS;
    t->solo_until = now + t->solo_ns;
    t->solo = 1;
}

static int solo_now(par_team *t)
{
    if (!t->solo) return 0;
    int64_t now = clock_now_ns();
    if (now < t->solo_until) return 1;
    t->solo = 0;
    t->together_since = now;
    return 0;
}

/* Learn from how long a wait inside a region took. A region of milliseconds ends unevenly by
 * itself. */
static void spin_learn(par_team *t, int64_t waited, int kept)
{
    int64_t s = spin_now(t);
    if (waited > LONG_WAIT_NS && (kept || 2 * waited > clock_now_ns() - t->published_ns))
        s = s / 2 > SPIN_MIN_NS ? s / 2 : SPIN_MIN_NS;
    else if (s < t->spin_max_ns)
        s = s + s / 64 + 16 < t->spin_max_ns ? s + s / 64 + 16 : t->spin_max_ns;
    else
        return;
    atomic_store_explicit(&t->spin_ns, s, memory_order_relaxed);
}

static void pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE) return;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* a hint: a refused one costs speed only */
}

/* What getrusage said of a thread when it was last asked. */
struct seen {
    long n_switch, n_fault;
};

/* After a region: was this thread late, or switched out while in it? Not while it touched fresh
 * pages: then it was the kernel that worked for us. */
static int was_kept(const par_team *t, int64_t began, struct seen *s)
{
    struct rusage u;
    if (began - t->published_ns > SOLO_WAIT_NS) return 1;
    if (clock_now_ns() - began < SOLO_WAIT_NS || getrusage(RUSAGE_THREAD, &u) != 0) return 0;
    int kept = u.ru_nivcsw > s->n_switch && u.ru_minflt - s->n_fault <= FAULTS_FEW;
    *s = (struct seen){u.ru_nivcsw, u.ru_minflt};
    return kept;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    par_team *t = w->team;
    unsigned seen = 0;
    struct seen last = {0};
    worker_id = w->id;
    if (t->pinned) pin(w->cpu);
    for (;;) {
        seen++;
        (void)word_wait(t, &t->region, seen, spin_now(t));
        if (t->stop) return NULL;
        int64_t began = clock_now_ns();
        t->fn(t->arg, w->id, t->n);
        if (was_kept(t, began, &last)) atomic_store_explicit(&t->kept, 1, memory_order_relaxed);
        /* release: our results; acquire: the last one passes on everybody's */
        if (atomic_fetch_add_explicit(&t->n_done, 1, memory_order_acq_rel) == t->n - 2) {
            atomic_store_explicit(&t->n_done, 0, memory_order_relaxed);
            os_word_set(&t->done, seen);
        }
    }
}

/* The caller is not pinned for good (its affinity is the application's), but it must not sit on a
 * worker's CPU, nor on another rank's: move it off and give the old mask back. */
static void nudge_caller(par_team *t)
{
    int here = sched_getcpu(), taken = t->n_rank > 1 && here != t->worker[0].cpu;
    for (int i = 1; i < t->n; i++)
        taken |= t->worker[i].cpu == here;
    if (!taken || t->worker[0].cpu < 0) return;
    cpu_set_t old;
    if (sched_getaffinity(0, sizeof old, &old) != 0) return;
    pin(t->worker[0].cpu);
    (void)sched_setaffinity(0, sizeof old, &old);
}

static sl_status start(par_team *t, const struct par_opts *o, sl_err *err)
{
    void *p = NULL, *cpu = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)t->n, sizeof *t->worker, &p, err));
    t->worker = p;
    struct os_team all = {t->n, 0, 1};
    if (o->n_rank > 1) all = (struct os_team){t->n, o->rank, o->n_rank};
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)t->n, sizeof(int), &cpu, err));
    int n_cpu = os_team_cpus(&all, cpu);
    t->n_rank = all.n_rank;
    for (int i = 0; i < t->n; i++)
        t->worker[i] = (struct worker){.team = t, .id = i, .cpu = ((int *)cpu)[i]};
    mem_free(cpu);
    t->crowded = n_cpu < t->n * all.n_rank;
    t->pinned = !t->crowded && !o->no_pin;
    if (t->pinned && all.rank > 0) pin(t->worker[0].cpu); /* the caller is a rank's thread */
    t->adapt = !o->no_solo;
    t->on_wait = o->on_wait;
    t->on_wait_arg = o->on_wait_arg;
    t->spin_max_ns = o->spin_ns > 0 ? o->spin_ns : SPIN_NS;
    if (t->crowded) t->spin_max_ns = 0; /* a spinning worker would keep another from running */
    atomic_store_explicit(&t->spin_ns, t->spin_max_ns, memory_order_relaxed);
    for (int i = 1; i < t->n; i++) {
        int e = pthread_create(&t->worker[i].thread, NULL, worker_main, &t->worker[i]);
        if (e) return SL_FAIL(err, IO, "cannot make worker thread %d: %s", i, strerror(e));
        t->n_started++;
    }
    return SL_OK;
}

sl_status par_open(const struct par_opts *opts, par_team **out, sl_err *err)
{
    struct par_opts o = opts ? *opts : (struct par_opts){0};
    par_team *t = NULL;
    int n = o.n_worker;
    if (n <= 0) {
        struct os_topology topo;
        SL_TRY(os_topology_get(&topo, err));
        n = os_within_quota(&topo, topo.n_core);
    }
    if (n > WORKER_MAX) return SL_FAIL(err, LIMIT, "%d threads: at most %d", n, WORKER_MAX);
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof *t, (void **)&t, err));
    t->n = n;
    sl_status st = start(t, &o, err);
    if (st != SL_OK) {
        par_close(t);
        return st;
    }
    *out = t;
    return SL_OK;
}

void par_close(par_team *t)
{
    if (!t) return;
    if (t->n_started) {
        t->stop = 1;
        os_word_set(&t->region, t->n_region + 1);
        for (int i = 1; i <= t->n_started; i++)
            pthread_join(t->worker[i].thread, NULL);
    }
    mem_free(t->worker);
    mem_free(t);
}

int par_size(const par_team *t)
{
    return t->n;
}

void par_run(par_team *t, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    if (t->n == 1 || solo_now(t)) {
        if (t->n == 1 && t->n_rank > 1 && t->pinned && t->n_region++ % NUDGE_EVERY == 0)
            nudge_caller(t);
        t->n_now = 1;
        fn(arg, 0, 1);
        return;
    }
    t->n_now = t->n;
    if (t->pinned && t->n_region % NUDGE_EVERY == 0) nudge_caller(t);
    t->fn = fn;
    t->arg = arg;
    t->caller = pthread_self();
    t->waited_ns = 0;
    int64_t last = t->published_ns;
    t->published_ns = clock_now_ns();
    t->owed_ns = t->owed_ns > t->published_ns - last ? t->owed_ns - (t->published_ns - last) : 0;
    if (t->owed_ns == 0) t->n_owed = 0;
    atomic_store_explicit(&t->barrier.n, 0, memory_order_relaxed); /* nobody is at one */
    os_word_set(&t->region, ++t->n_region);
    fn(arg, 0, t->n);
    t->waited_ns += word_wait(t, &t->done, t->n_region, spin_now(t));
    int kept = atomic_exchange_explicit(&t->kept, 0, memory_order_relaxed);
    spin_learn(t, t->waited_ns, kept);
    /* Alone would take twice as long as together: a gain only when more than half of the time goes
     * in waits. Single ones, of a server's other threads after each step, are no reason. */
    if (!kept || !t->adapt || t->waited_ns <= SOLO_WAIT_NS) return;
    t->owed_ns += 2 * t->waited_ns;
    if (++t->n_owed < SOLO_OWED_N || t->owed_ns <= SOLO_OWED_NS) return;
    solo_begin(t, t->waited_ns);
    t->owed_ns = t->n_owed = 0;
}

/* One word, so that a barrier costs as few turns of its cache line as can be: a thread that arrives
 * counts, and the others wait for the last one's count. */
void par_barrier(par_team *t)
{
    if (t->n_now == 1) return;
    unsigned n = (unsigned)t->n;
    unsigned before = atomic_fetch_add_explicit(&t->barrier.n, 1, memory_order_seq_cst);
    if (before % n == n - 1) {
        os_word_wake(&t->barrier);
    } else {
        int64_t waited = word_wait(t, &t->barrier, before / n * n + n, spin_now(t));
        if (waited > 0 && pthread_equal(pthread_self(), t->caller)) t->waited_ns += waited;
    }
}
