/* SPDX-License-Identifier: Apache-2.0 */
/* sluice doctor: what this machine is, what it can do, and one line of advice for whatever is not
 * as it should be. */
#include <string.h>
#include <sys/resource.h>

#include "base/cpu.h"
#include "compute.h"
#include "dev/dev.h"
#include "doctor.h"
#include "engine/find.h"
#include "os/os.h"
#include "place.h"

struct doctor_opts {
    struct opt_common common;
    bool ranks;
};

static const struct opt opts[] = {
    {"threads", 't', OPT_INT, offsetof(struct doctor_opts, common.threads), "N", "0", 0, 1024,
     "worker threads (0: physical cores)"},
    {"model", 'm', OPT_STR, offsetof(struct doctor_opts, common.model), "MODEL", NULL, 0, 0,
     "a model: what of it lies on which device"},
    {"ranks", 0, OPT_FLAG, offsetof(struct doctor_opts, ranks), NULL, NULL, 0, 0,
     "of the processes that mpirun or srun has started: their machines, and joins of rows"},
    OPT_ROWS_PLACE(struct doctor_opts),
    OPT_ROW_UNITS(struct doctor_opts),
    OPT_ROWS_BASIC(struct doctor_opts),
    {0},
};

struct report {
    struct os_topology top;
    struct dev_info dev;
    char name[32], isa[96], units[96]; /* dev's, which ends with the device */
    double read_gbps, int8_gops;
    int64_t memlock, n_file; /* -1 = no limit */
    struct doctor_advice advice;
    bool placed;
    struct place_table place;
    struct dev_desc card[16];
    int n_card; /* -1: none can be asked: */
    sl_err why;
};

static int64_t limit_of(int what)
{
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)what, &l) || l.rlim_cur == RLIM_INFINITY) return -1;
    return (int64_t)l.rlim_cur;
}

void doctor_advise(struct doctor_advice *a, bool when, const char *text)
{
    if (when && a->n < BASE_COUNT_OF(a->text))
        snprintf(a->text[a->n++], sizeof a->text[0], "%s", text);
}

void doctor_print_advice(const struct doctor_advice *a, const char *none)
{
    for (int i = 0; i < a->n; i++)
        printf("advice       %s\n", a->text[i]);
    if (a->n == 0) printf("advice       none: %s\n", none);
}

void doctor_put_advice(const struct doctor_advice *a, struct json_w *w)
{
    text_jw_key(w, "advice");
    text_jw_arr(w);
    for (int i = 0; i < a->n; i++)
        text_jw_strz(w, a->text[i]);
    text_jw_arr_end(w);
}

static void judge(struct report *r)
{
    struct doctor_advice *a = &r->advice;
    uint32_t native = cpu_isa_native(), used = cpu_isa_mask();
    const struct os_topology *t = &r->top;
#if defined(__x86_64__)
    doctor_advise(a, !cpu_has(native, CPU_ISA_avx2),
                  "CPU without AVX2: the reference kernels run, which is slow");
#endif
    doctor_advise(a, native != used, "SL_CPU caps the instruction set: unset it for full speed");
    doctor_advise(a, strcmp(t->thp, "never") == 0,
                  "transparent huge pages are off: echo madvise > "
                  "/sys/kernel/mm/transparent_hugepage/enabled");
    doctor_advise(
        a, t->cgroup_cpus > 0 && t->cgroup_cpus < t->n_core,
        "the container's CPU quota is below its cores: more threads than the quota stall each "
        "other");
    doctor_advise(a, t->mem_available < ((int64_t)2 << 30),
                  "less than 2 GiB of memory are available: only small models fit");
    doctor_advise(a, r->n_file >= 0 && r->n_file < 1024,
                  "fewer than 1024 open files are allowed: ulimit -n 4096 for serving");
    doctor_advise(
        a, r->read_gbps > 0 && r->read_gbps < 5,
        "memory reads below 5 GB/s: the machine is busy or throttled, decoding will be slow");
}

/* What of the model lies where. */
static sl_status gather_place(struct report *r, const struct opt_common *o, struct arena *a,
                              sl_err *err)
{
    const char *path = NULL;
    io_model *io = NULL;
    struct arch_cfg c;
    SL_TRY(engine_find_model(o->model, a, &path, err));
    SL_TRY(io_open(path, false, &io, err));
    sl_status st = arch_cfg_read(io, a, &c, err);
    if (!st) st = place_get(io, &c, o, a, &r->place, err);
    io_close(io);
    r->placed = !st;
    return st;
}

static sl_status gather(struct report *r, const struct doctor_opts *o, struct arena *a, sl_err *err)
{
    dev *d = NULL;
    struct dev_opts dopts = {.n_thread = o->common.threads};
    char first[128];
    memset(r, 0, sizeof *r);
    SL_TRY(place_units(&o->common, &dopts.no_units, err));
    if (o->common.model) SL_TRY(gather_place(r, &o->common, a, err));
    SL_TRY(os_topology_get(&r->top, err));
    SL_TRY(dev_open(place_device(&o->common, first, sizeof first), &dopts, &d, err));
    dev_info_get(d, &r->dev);
    snprintf(r->name, sizeof r->name, "%s", r->dev.name);
    snprintf(r->isa, sizeof r->isa, "%s", r->dev.isa);
    r->dev.name = r->name;
    r->dev.isa = r->isa;
    snprintf(r->units, sizeof r->units, "%s", r->dev.units ? r->dev.units : "");
    r->read_gbps = dev_probe_read_gbps(d, 400);
    r->int8_gops = dev_probe_int8_gops(d, 200);
    dev_close(d);
    r->n_card = dev_list(r->card, BASE_COUNT_OF(r->card), &r->why);
    r->n_card = BASE_MIN(r->n_card, BASE_COUNT_OF(r->card));
    r->memlock = limit_of(RLIMIT_MEMLOCK);
    r->n_file = limit_of(RLIMIT_NOFILE);
    judge(r);
    return SL_OK;
}

static void isa_names(uint32_t mask, char *buf, size_t n)
{
    size_t k = 0;
    buf[0] = 0;
    for (int i = 0; i < CPU_N_ISA; i++)
        if (cpu_has(mask, (enum cpu_isa)i) && k < n)
            k += (size_t)snprintf(buf + k, n - k, "%s%s", k ? " " : "",
                                  cpu_isa_name((enum cpu_isa)i));
}

static void limit_text(int64_t v, int64_t unit, const char *name, char *buf, size_t n)
{
    if (v < 0)
        snprintf(buf, n, "no limit");
    else
        snprintf(buf, n, "%lld%s", (long long)(v / unit), name);
}

/* The device in use is of that kind. */
static bool is_used(const struct report *r, const char *name)
{
    size_t n = strlen(name);
    return strncmp(r->dev.name, name, n) == 0 && (r->dev.name[n] == '\0' || r->dev.name[n] == ':');
}

static void print_cards(const struct report *r)
{
    if (r->n_card < 1)
        printf("gpus         none%s%s\n", r->n_card ? ": " : "", r->n_card ? r->why.text : "");
    for (int i = 0; i < r->n_card; i++) {
        const struct dev_desc *d = &r->card[i];
        printf("gpus         %s %s, %.1f GiB%s%s%s\n", d->name, d->text,
               (double)d->mem / (1 << 30), d->is_cpu ? " (software, for tests)" : "",
               *d->why_not ? ": " : "", d->why_not);
    }
}

static void print_text(const struct report *r)
{
    const struct os_topology *t = &r->top;
    char isa[96], lock[32], files[32];
    isa_names(cpu_isa_native(), isa, sizeof isa);
    limit_text(r->memlock, 1024, " KiB", lock, sizeof lock);
    limit_text(r->n_file, 1, "", files, sizeof files);
    printf("cpu          %s\ncores        %d physical, %d threads, %d NUMA node%s\n", t->cpu,
           t->n_core, t->n_pu, t->n_numa, t->n_numa == 1 ? "" : "s");
    if (t->cgroup_cpus > 0) printf("cpu quota    %.1f\n", t->cgroup_cpus);
    printf("isa          %s (in use: %s)\n", isa, r->dev.isa);
    printf("caches       L1d %lld KiB, L2 %lld KiB, L3 %.1f MiB\n", (long long)(t->l1d >> 10),
           (long long)(t->l2 >> 10), (double)t->l3 / (1 << 20));
    printf("memory       %.1f GiB, %.1f GiB available\n", (double)t->mem_total / (1 << 30),
           (double)t->mem_available / (1 << 30));
    printf("huge pages   %s, %lld KiB\n", t->thp, (long long)(t->hugepage_bytes >> 10));
    printf("read speed   %.1f GB/s with %d threads\nint8 peak    %.0f Gop/s\n", r->read_gbps,
           r->dev.n_thread, r->int8_gops);
    printf("devices     ");
    for (int i = 0; dev_name(i); i++)
        printf(" %s%s", dev_name(i), is_used(r, dev_name(i)) ? " (in use)" : "");
    printf("\n");
    print_cards(r);
    if (*r->units) printf("prompts      products %s\n", r->units);
    printf("limits       memlock %s, open files %s\n", lock, files);
    if (r->placed) {
        printf("placement\n");
        place_print(&r->place);
    }
    doctor_print_advice(&r->advice, "all is as it should be");
}

static void put_cards(const struct report *r, struct json_w *w)
{
    text_jw_arr(w);
    for (int i = 0; i < r->n_card; i++) {
        const struct dev_desc *d = &r->card[i];
        text_jw_obj(w);
        text_jw_key(w, "name");
        text_jw_strz(w, d->name);
        text_jw_key(w, "text");
        text_jw_strz(w, d->text);
        text_jw_key(w, "memory");
        text_jw_int(w, d->mem);
        text_jw_key(w, "software");
        text_jw_bool(w, d->is_cpu);
        text_jw_key(w, "why_not");
        text_jw_strz(w, d->why_not);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}

static sl_status print_json(const struct report *r, sl_err *err)
{
    struct str s;
    struct json_w w;
    const struct os_topology *t = &r->top;
    char isa[96];
    const struct {
        const char *key;
        int64_t v;
    } num[] = {{"cores", t->n_core},
               {"hardware_threads", t->n_pu},
               {"numa_nodes", t->n_numa},
               {"l1d", t->l1d},
               {"l2", t->l2},
               {"l3", t->l3},
               {"mem_total", t->mem_total},
               {"mem_available", t->mem_available},
               {"hugepage_bytes", t->hugepage_bytes},
               {"memlock", r->memlock},
               {"open_files", r->n_file},
               {"threads", r->dev.n_thread}};
    isa_names(cpu_isa_native(), isa, sizeof isa);
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "cpu");
    text_jw_strz(&w, t->cpu);
    text_jw_key(&w, "isa_native");
    text_jw_strz(&w, isa);
    text_jw_key(&w, "isa");
    text_jw_strz(&w, r->dev.isa);
    for (int i = 0; i < BASE_COUNT_OF(num); i++) {
        text_jw_key(&w, num[i].key);
        text_jw_int(&w, num[i].v);
    }
    text_jw_key(&w, "cpu_quota");
    text_jw_real(&w, t->cgroup_cpus, 6);
    text_jw_key(&w, "huge_pages");
    text_jw_strz(&w, t->thp);
    text_jw_key(&w, "read_gbps");
    text_jw_real(&w, r->read_gbps, 6);
    text_jw_key(&w, "int8_gops");
    text_jw_real(&w, r->int8_gops, 6);
    text_jw_key(&w, "device");
    text_jw_strz(&w, r->dev.name);
    text_jw_key(&w, "devices");
    text_jw_arr(&w);
    for (int i = 0; dev_name(i); i++)
        text_jw_strz(&w, dev_name(i));
    text_jw_arr_end(&w);
    if (*r->units) {
        text_jw_key(&w, "products");
        text_jw_strz(&w, r->units);
    }
    if (r->placed) place_json(&r->place, &w);
    text_jw_key(&w, "gpus");
    put_cards(r, &w);
    doctor_put_advice(&r->advice, &w);
    text_jw_obj_end(&w);
    sl_status st = compute_print(&s, err);
    str_fini(&s);
    return st;
}

static int run(struct cmd_ctx *x)
{
    const struct doctor_opts *o = x->opts;
    struct report r;
    sl_err err = {0};
    if (o->ranks) return doctor_ranks(&o->common);
    const char *by = place_asked_by(&o->common);
    if (!by && o->common.gpu_layers) by = "--gpu-layers";
    if (by && !o->common.model)
        return cmd_usage("%s: what lies where depends on the model: -m MODEL is needed", by);
    if (gather(&r, o, &x->arena, &err)) return cmd_fail(&err);
    if (!o->common.json)
        print_text(&r);
    else if (print_json(&r, &err))
        return cmd_fail(&err);
    return CMD_OK;
}

const struct cmd cmd_doctor = {
    .name = "doctor",
    .summary = "this machine: CPU, memory, measured limits, advice",
    .usage = "[-m MODEL [--place PART=NAME;...]] [--ranks] [--json]",
    .example = "sluice doctor",
    .opts = opts,
    .opts_bytes = sizeof(struct doctor_opts),
    .run = run,
};
