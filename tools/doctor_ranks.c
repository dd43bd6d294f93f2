/* SPDX-License-Identifier: Apache-2.0 */
/* doctor --ranks, under mpirun or srun: each rank's machine, CPUs and memory, and how long ranks
 * take to put rows side by side. */
#include "doctor.h"

#include <string.h>

#include "compute.h"
#include "os/os.h"
#include "os/share.h"
#include "rank_probe.h"

#define SHM_LEAST ((int64_t)4 << 20) /* of a rank */

/* A rank, as all are told. */
struct row {
    char host[48];
    int32_t n_core, n_numa, first_cpu;
    struct rank_speed speed;
    int64_t mem_available, shm_free;
};

struct ranks_report {
    struct row row[DIST_RANK_MAX];
    int n, n_host;
    int n_per_host; /* ranks of each host, one after another; 1 where they differ */
    struct rank_ways way;
    struct doctor_advice advice;
};

/* Where a rank may run. */
struct cpus {
    char host[48];
    int32_t n_core, n_pu, cpu[64]; /* the first of them */
};

/* Which of the ranks of its host each is; of the host with most, how many. */
static struct rank_turn turn_of(const struct cpus *all, int n, int mine)
{
    struct rank_turn t = {0};
    for (int r = 0; r < n; r++) {
        int same = 0, before = 0;
        for (int k = 0; k < n; k++) {
            bool here = strcmp(all[k].host, all[r].host) == 0;
            same += here;
            before += here && k < r;
        }
        t.n = BASE_MAX(t.n, same);
        if (r == mine) t.i = before;
    }
    return t;
}

/* Ranks that may run on the same CPUs share them, as an engine's do. */
static sl_status deal_cpus(dist *d, const struct os_topology *top, struct dev_opts *o,
                           struct rank_turn *turn, sl_err *err)
{
    static struct cpus all[DIST_RANK_MAX];
    struct cpus mine = {.n_core = top->n_core, .n_pu = top->n_pu};
    int cpu[BASE_COUNT_OF(mine.cpu)] = {0}, n_same = 0;
    (void)os_team_cpus(&(struct os_team){BASE_MIN(top->n_pu, BASE_COUNT_OF(cpu)), 0, 1}, cpu);
    for (int i = 0; i < BASE_COUNT_OF(cpu); i++)
        mine.cpu[i] = cpu[i];
    os_host_name(mine.host, sizeof mine.host);
    SL_TRY(dist_all(d, &mine, all, sizeof mine, err));
    for (int r = 0; r < dist_size(d); r++) {
        if (memcmp(&all[r], &mine, sizeof mine) != 0) continue;
        o->rank += r < dist_rank(d);
        n_same++;
    }
    int n = o->n_thread ? o->n_thread : os_within_quota(top, top->n_core);
    o->n_thread = BASE_MAX(n / n_same, 1);
    o->n_rank = n_same > 1 ? n_same : 0;
    dist_set_crowded(d, o->n_thread * n_same > top->n_pu);
    *turn = turn_of(all, dist_size(d), dist_rank(d));
    return SL_OK;
}

/* What a rank has found so far. */
struct look {
    struct row row;
    struct rank_turn turn;
    dev *d;
};

static sl_status look(dist *at, struct look *to, const struct opt_common *o, sl_err *err)
{
    struct row *r = &to->row;
    struct os_topology top;
    int cpu = -1;
    struct dev_opts dopts = {.n_thread = o->threads};
    SL_TRY(os_topology_get(&top, err));
    SL_TRY(deal_cpus(at, &top, &dopts, &to->turn, err));
    (void)os_team_cpus(&(struct os_team){1, 0, 1}, &cpu);
    SL_TRY(dev_open("cpu", &dopts, &to->d, err));
    os_host_name(r->host, sizeof r->host);
    r->n_core = top.n_core;
    r->n_numa = top.n_numa;
    r->first_cpu = cpu;
    r->mem_available = top.mem_available;
    r->shm_free = os_free_bytes("/dev/shm");
    return SL_OK;
}

static void judge(struct ranks_report *r)
{
    bool one_core = false, same = false, other_isa = false;
    int64_t shm = 0;
    for (int i = 0; i < r->n; i++) {
        const struct row *a = &r->row[i];
        bool seen = false;
        one_core |= a->n_core == 1 && r->n > 1;
        other_isa |= strcmp(a->speed.isa, r->row[0].speed.isa) != 0;
        for (int k = 0; k < i; k++) {
            const struct row *b = &r->row[k];
            bool here = strcmp(a->host, b->host) == 0;
            seen |= here;
            same |= here && a->n_numa > 1 && a->first_cpu == b->first_cpu;
        }
        r->n_host += !seen;
        shm = i == 0 ? a->shm_free : BASE_MIN(shm, a->shm_free);
    }
    int k = r->n % r->n_host ? 1 : r->n / r->n_host;
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->row[i].host, r->row[i / k * k].host) != 0) k = 1;
    r->n_per_host = k;
    struct doctor_advice *advice = &r->advice;
    doctor_advise(
        advice, one_core,
        "a rank has a single core: mpirun binds so unless told: --map-by numa --bind-to numa");
    doctor_advise(advice, same && !one_core,
                  "ranks of a machine with several memory nodes are not bound to one each: mpirun "
                  "--map-by numa --bind-to numa");
    doctor_advise(
        advice, other_isa,
        "refused: the ranks' instruction sets differ: SL_CPU limits all to what each has");
    doctor_advise(advice, shm >= 0 && shm < SHM_LEAST * r->n,
                  "refused: /dev/shm is too small: --shm-size=1g of the container");
}

static void print_text(const struct ranks_report *r)
{
    double gib = 1.0 / (1 << 30);
    printf("ranks        %d process%s on %d machine%s\n", r->n, r->n == 1 ? "" : "es", r->n_host,
           r->n_host == 1 ? "" : "s");
    for (int i = 0; i < r->n; i++) {
        const struct row *a = &r->row[i];
        printf("rank %-7d %s: %d cores, %d memory node%s, %s, %.1f GB/s and %.0f Gop/s with %d "
               "threads (alone %.1f and %.0f), %.1f GiB and %.1f GiB of /dev/shm available\n",
               i, a->host, a->n_core, a->n_numa, a->n_numa == 1 ? "" : "s", a->speed.isa,
               a->speed.all.gbps, a->speed.all.gops, a->speed.n_thread, a->speed.alone.gbps,
               a->speed.alone.gops, (double)a->mem_available * gib, (double)a->shm_free * gib);
    }
    printf("a join       %.1f us, %.2f GB/s into each rank\n", r->way.all.us, r->way.all.gbps);
    if (r->n_host > 1 && r->n_per_host > 1)
        printf("of a machine %.1f us, %.2f GB/s\n", r->way.host.us, r->way.host.gbps);
    printf("a step       %.1f us without anything to do\n", r->way.step_us);
    printf("a hand-over  %.1f us, %.2f GB/s from stage to stage\n", r->way.hop.us, r->way.hop.gbps);
    char none[48];
    int n_tp = r->n_per_host; /* a stage is a machine */
    if (r->n_host == 1)
        snprintf(none, sizeof none, "--layout tp=%d", r->n);
    else if (n_tp == 1)
        snprintf(none, sizeof none, "--layout pp=%d", r->n);
    else
        snprintf(none, sizeof none, "--layout tp=%d,pp=%d", n_tp, r->n_host);
    doctor_print_advice(&r->advice, none);
}

static void row_json(const struct row *a, struct json_w *w)
{
    const struct {
        const char *key;
        int64_t v;
    } num[] = {{"cores", a->n_core},
               {"threads", a->speed.n_thread},
               {"numa_nodes", a->n_numa},
               {"mem_available", a->mem_available},
               {"shm_available", a->shm_free}};
    text_jw_obj(w);
    text_jw_key(w, "host");
    text_jw_strz(w, a->host);
    text_jw_key(w, "isa");
    text_jw_strz(w, a->speed.isa);
    for (int i = 0; i < BASE_COUNT_OF(num); i++) {
        text_jw_key(w, num[i].key);
        text_jw_int(w, num[i].v);
    }
    const struct {
        const char *key;
        double v;
    } real[] = {{"read_gbps", a->speed.all.gbps},
                {"int8_gops", a->speed.all.gops},
                {"alone_gbps", a->speed.alone.gbps},
                {"alone_gops", a->speed.alone.gops},
                {"op_us", a->speed.op_us}};
    for (int i = 0; i < BASE_COUNT_OF(real); i++) {
        text_jw_key(w, real[i].key);
        text_jw_real(w, real[i].v, 6);
    }
    text_jw_obj_end(w);
}

static void way_json(struct json_w *w, const char *name, const struct rank_way *v)
{
    char key[32];
    snprintf(key, sizeof key, "%s_us", name);
    text_jw_key(w, key);
    text_jw_real(w, v->us, 6);
    snprintf(key, sizeof key, "%s_gbps", name);
    text_jw_key(w, key);
    text_jw_real(w, v->gbps, 6);
}

static sl_status print_json(const struct ranks_report *r, sl_err *err)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "ranks");
    text_jw_arr(&w);
    for (int i = 0; i < r->n; i++)
        row_json(&r->row[i], &w);
    text_jw_arr_end(&w);
    way_json(&w, "join", &r->way.all);
    way_json(&w, "host_join", &r->way.host);
    way_json(&w, "hop", &r->way.hop);
    text_jw_key(&w, "step_us");
    text_jw_real(&w, r->way.step_us, 6);
    doctor_put_advice(&r->advice, &w);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

static sl_status gather(dist *d, const struct opt_common *o, struct ranks_report *r, sl_err *err)
{
    struct look mine = {0};
    r->n = dist_size(d);
    sl_status st = dist_gate(d, look(d, &mine, o, err), err);
    if (!st) st = dist_room(d, RANK_PROBE_ROW, 64, err);
    if (!st) st = rank_speed_get(d, mine.d, &mine.turn, &mine.row.speed, err);
    dev_close(mine.d);
    SL_TRY(st);
    SL_TRY(dist_all(d, &mine.row, r->row, sizeof mine.row, err));
    judge(r);
    return rank_ways_get(d, r->n_per_host, &r->way, err);
}

int doctor_ranks(const struct opt_common *o)
{
    struct ranks_report r = {0};
    sl_err err = {0};
    dist *d = NULL;
    if (dist_launched().n < 2)
        return cmd_usage("--ranks: no launcher has started several processes: mpirun -n 2 sluice "
                         "doctor --ranks");
    sl_status st = dist_mpi_open(&(struct dist_opts){.crowded = true, .n_join = 1}, &d, &err);
    if (!st) st = gather(d, o, &r, &err);
    int rank = dist_launched().rank;
    if (!st && rank == 0) {
        if (o->json)
            st = print_json(&r, &err);
        else
            print_text(&r);
    }
    dist_close(d);
    if (!st) return CMD_OK;
    return rank ? CMD_FAILED : cmd_fail(&err);
}
