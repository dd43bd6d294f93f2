/* SPDX-License-Identifier: Apache-2.0 */
/* doctor --ranks, under mpirun or srun: each rank's machine, CPUs and memory, and how long ranks
 * take to put rows side by side. */
#include "doctor.h"

#include <string.h>

#include "base/clock.h"
#include "compute.h"
#include "dev/dev.h"
#include "dist/dist.h"
#include "os/os.h"
#include "os/share.h"

#define SMALL 16          /* columns of a rank in a join that measures its time */
#define LARGE (256 << 10) /* of one that measures bytes */
#define SMALL_TIMES 2000
#define LARGE_TIMES 50
#define SHM_LEAST ((int64_t)4 << 20) /* of a rank */

/* A rank, as all are told. */
struct row {
    char host[48], isa[24];
    int32_t n_core, n_thread, n_numa, first_cpu;
    double read_gbps, int8_gops;
    int64_t mem_available, shm_free;
};

struct ranks_report {
    struct row row[DIST_RANK_MAX];
    int n, n_host;
    double join_us, join_gbps;
    struct doctor_advice advice;
};

static sl_status look(struct row *r, const struct opt_common *o, sl_err *err)
{
    dev *d = NULL;
    struct os_topology top;
    struct dev_info di;
    int cpu = -1;
    struct dev_opts dopts = {.n_thread = o->threads};
    SL_TRY(os_topology_get(&top, err));
    (void)os_team_cpus(&(struct os_team){1, 0, 1}, &cpu);
    SL_TRY(dev_open(NULL, &dopts, &d, err));
    dev_info_get(d, &di);
    os_host_name(r->host, sizeof r->host);
    snprintf(r->isa, sizeof r->isa, "%s", di.isa);
    r->n_core = top.n_core;
    r->n_thread = di.n_thread;
    r->n_numa = top.n_numa;
    r->first_cpu = cpu;
    r->mem_available = top.mem_available;
    r->shm_free = os_free_bytes("/dev/shm");
    r->read_gbps = dev_probe_read_gbps(d, 200);
    r->int8_gops = dev_probe_int8_gops(d, 200);
    dev_close(d);
    return SL_OK;
}

/* Seconds of a join of so many columns of each rank. */
static sl_status time_joins(dist *d, int n_col, int times, double *s, sl_err *err)
{
    int32_t part[DIST_RANK_MAX];
    void *x = NULL, *y = NULL;
    int n = dist_size(d);
    for (int r = 0; r < n; r++)
        part[r] = n_col;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n_col, sizeof(float), &x, err));
    sl_status st = mem_alloc_array(MEM_SCRATCH, (size_t)n_col * (size_t)n, sizeof(float), &y, err);
    int64_t t0 = 0;
    for (int i = -times / 10; i < times && !st; i++) {
        if (i == 0) t0 = clock_now_ns();
        dist_cols(d, &(struct dist_cols){.x = x, .y = y, .n_row = 1, .n = n_col * n, .part = part});
        st = dist_status(d, err);
    }
    *s = (double)(clock_now_ns() - t0) * 1e-9 / times;
    mem_free(x);
    mem_free(y);
    return st;
}

static void judge(struct ranks_report *r)
{
    bool one_core = false, same = false, other_isa = false;
    int64_t shm = 0;
    for (int i = 0; i < r->n; i++) {
        const struct row *a = &r->row[i];
        bool seen = false;
        one_core |= a->n_core == 1 && r->n > 1;
        other_isa |= strcmp(a->isa, r->row[0].isa) != 0;
        for (int k = 0; k < i; k++) {
            const struct row *b = &r->row[k];
            bool here = strcmp(a->host, b->host) == 0;
            seen |= here;
            same |= here && a->n_numa > 1 && a->first_cpu == b->first_cpu;
        }
        r->n_host += !seen;
        shm = i == 0 ? a->shm_free : BASE_MIN(shm, a->shm_free);
    }
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
               "threads, %.1f GiB and %.1f GiB of /dev/shm available\n",
               i, a->host, a->n_core, a->n_numa, a->n_numa == 1 ? "" : "s", a->isa, a->read_gbps,
               a->int8_gops, a->n_thread, (double)a->mem_available * gib,
               (double)a->shm_free * gib);
    }
    printf("a join       %.1f us, %.2f GB/s into each rank\n", r->join_us, r->join_gbps);
    char none[48];
    int n_tp = r->n % r->n_host ? 1 : r->n / r->n_host; /* a stage is a machine */
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
               {"threads", a->n_thread},
               {"numa_nodes", a->n_numa},
               {"mem_available", a->mem_available},
               {"shm_available", a->shm_free}};
    text_jw_obj(w);
    text_jw_key(w, "host");
    text_jw_strz(w, a->host);
    text_jw_key(w, "isa");
    text_jw_strz(w, a->isa);
    for (int i = 0; i < BASE_COUNT_OF(num); i++) {
        text_jw_key(w, num[i].key);
        text_jw_int(w, num[i].v);
    }
    text_jw_key(w, "read_gbps");
    text_jw_real(w, a->read_gbps, 6);
    text_jw_key(w, "int8_gops");
    text_jw_real(w, a->int8_gops, 6);
    text_jw_obj_end(w);
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
    text_jw_key(&w, "join_us");
    text_jw_real(&w, r->join_us, 6);
    text_jw_key(&w, "join_gbps");
    text_jw_real(&w, r->join_gbps, 6);
    doctor_put_advice(&r->advice, &w);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

static sl_status gather(dist *d, const struct opt_common *o, struct ranks_report *r, sl_err *err)
{
    struct row mine = {0};
    double small = 0, large = 0;
    r->n = dist_size(d);
    SL_TRY(dist_gate(d, look(&mine, o, err), err));
    SL_TRY(dist_all(d, &mine, r->row, sizeof mine, err));
    judge(r);
    SL_TRY(dist_room(d, (int64_t)LARGE * (int64_t)sizeof(float), 64, err));
    SL_TRY(time_joins(d, SMALL, SMALL_TIMES, &small, err));
    SL_TRY(time_joins(d, LARGE, LARGE_TIMES, &large, err));
    r->join_us = small * 1e6;
    r->join_gbps = (double)LARGE * sizeof(float) * (r->n - 1) / large * 1e-9;
    return SL_OK;
}

int doctor_ranks(const struct opt_common *o)
{
    struct ranks_report r = {0};
    sl_err err = {0};
    dist *d = NULL;
    if (dist_launched().n < 2)
        return cmd_usage("--ranks: no launcher has started several processes: mpirun -n 2 sluice "
                         "doctor --ranks");
    sl_status st = dist_mpi_open(&(struct dist_opts){.crowded = true}, &d, &err);
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
