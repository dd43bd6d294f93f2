/* SPDX-License-Identifier: Apache-2.0 */
/* What the process may use of this machine: CPU set, quota and memory limits of its control groups,
 * huge pages. */
#include "os/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/os_internal.h"

/* The start of a small kernel file as a string; "" when it cannot be read. */
static void slurp(const char *path, char *buf, size_t cap)
{
    size_t n = 0;
    FILE *f = fopen(path, "re");
    if (f) {
        n = fread(buf, 1, cap - 1, f);
        fclose(f);
    }
    buf[n] = 0;
}

/* "Name:   123 kB" in /proc/meminfo and /proc/self/status, in bytes; -1 = not there. */
static int64_t kb_field(const char *text, const char *name)
{
    const char *p = strstr(text, name);
    return p ? strtoll(p + strlen(name), NULL, 10) * 1024 : -1;
}

static void read_cpu_name(struct os_topology *t)
{
    char buf[4096];
    slurp("/proc/cpuinfo", buf, sizeof buf);
    const char *p = strstr(buf, "model name");
    snprintf(t->cpu, sizeof t->cpu, "unknown");
    if (!p || !(p = strchr(p, ':'))) return;
    p += 1 + (p[1] == ' ');
    snprintf(t->cpu, sizeof t->cpu, "%.*s", (int)strcspn(p, "\n"), p);
}

/* The number that DIR/NAME begins with; -1 = none. */
static int64_t number_in(const char *dir, const char *name)
{
    char path[4400], buf[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    slurp(path, buf, sizeof buf);
    return buf[0] >= '0' && buf[0] <= '9' ? strtoll(buf, NULL, 10) : -1;
}

/* Narrow t by one control group's folder, of version 2 or 1. */
static void read_cgroup(const char *dir, struct os_topology *t)
{
    char path[4400], buf[256];
    int64_t max = number_in(dir, "memory.max"), used = number_in(dir, "memory.current");
    if (max < 0) {
        max = number_in(dir, "memory.limit_in_bytes");
        used = number_in(dir, "memory.usage_in_bytes");
    }
    if (max >= 0 && max < t->mem_total) t->mem_total = max;
    used = BASE_MAX(used, 0);
    if (max >= 0 && max - used < t->mem_available) t->mem_available = BASE_MAX(max - used, 0);
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    slurp(path, buf, sizeof buf);
    if (sscanf(buf, "%lf %lf", &quota, &period) != 2) {
        quota = (double)number_in(dir, "cpu.cfs_quota_us");
        period = (double)number_in(dir, "cpu.cfs_period_us");
    }
    if (quota > 0 && period > 0 && (t->cgroup_cpus == 0 || quota / period < t->cgroup_cpus))
        t->cgroup_cpus = quota / period;
}

/* A limit of any ancestor binds. In a container the path may be the host's: its mount is the
 * root. */
static void read_ancestors(const char *mount, char *path, struct os_topology *t)
{
    char dir[4200];
    for (;;) {
        snprintf(dir, sizeof dir, "%.100s%s", mount, strcmp(path, "/") == 0 ? "" : path);
        read_cgroup(dir, t);
        char *slash = strrchr(path, '/');
        if (!slash || path[0] == 0) return;
        *slash = 0;
    }
}

void os_cgroup_limits(const char *root, char *self, struct os_topology *t)
{
    char mount[120], *rest = NULL;
    for (char *line = strtok_r(self, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL, *more = NULL;
        if (!path) continue;
        *path++ = 0;
        if (!*++list) read_ancestors(root, path, t); /* version 2 */
        for (char *c = strtok_r(list, ",", &more); c; c = strtok_r(NULL, ",", &more)) {
            if (strcmp(c, "cpu") != 0 && strcmp(c, "memory") != 0) continue;
            snprintf(mount, sizeof mount, "%.100s/%s", root, c);
            read_ancestors(mount, path, t);
        }
    }
}

static void read_huge(struct os_topology *t)
{
    char buf[256];
    snprintf(t->thp, sizeof t->thp, "never");
    slurp("/sys/kernel/mm/transparent_hugepage/enabled", buf, sizeof buf);
    char *p = strchr(buf, '[');
    if (p) snprintf(t->thp, sizeof t->thp, "%.*s", (int)strcspn(p + 1, "]"), p + 1);
    if (strcmp(t->thp, "never") == 0) return;
    slurp("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", buf, sizeof buf);
    t->hugepage_bytes = strtoll(buf, NULL, 10);
}

/* First hardware threads of every core first, each group in order of cpu number. */
static int core_order(const void *a, const void *b)
{
    const struct os_pu *x = a, *y = b;
    return x->core != y->core ? (x->core < y->core ? -1 : 1) : x->cpu - y->cpu;
}

static int count_cores(struct os_pu *pu, int n)
{
    int n_core = 0;
    qsort(pu, (size_t)n, sizeof *pu, core_order);
    for (int i = 0; i < n; i++)
        n_core += i == 0 || pu[i].core != pu[i - 1].core;
    return n_core;
}

static int count_numa(const struct os_pu *pu, int n)
{
    int n_numa = 0;
    for (int i = 0; i < n; i++) {
        int seen = 0;
        for (int k = 0; k < i && !seen; k++)
            seen = pu[k].numa == pu[i].numa;
        n_numa += !seen;
    }
    return n_numa;
}

int os_within_quota(const struct os_topology *t, int n)
{
    if (t->cgroup_cpus > 0 && t->cgroup_cpus < n) n = (int)t->cgroup_cpus;
    return n < 1 ? 1 : n;
}

sl_status os_topology_get(struct os_topology *out, sl_err *err)
{
    char buf[4096];
    void *p = NULL;
    memset(out, 0, sizeof *out);
    SL_TRY(mem_alloc_array(MEM_MISC, OS_MAX_PU, sizeof(struct os_pu), &p, err));
    struct os_pu *pu = p;
    out->n_pu = os_pu_list(pu, out);
    out->n_core = count_cores(pu, out->n_pu);
    out->n_numa = count_numa(pu, out->n_pu);
    mem_free(p);
    read_cpu_name(out);
    slurp("/proc/meminfo", buf, sizeof buf);
    out->mem_total = kb_field(buf, "MemTotal:");
    out->mem_available = kb_field(buf, "MemAvailable:");
    if (out->mem_total < 0)
        out->mem_total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (out->mem_available < 0) out->mem_available = out->mem_total;
    slurp("/proc/self/cgroup", buf, sizeof buf);
    os_cgroup_limits("/sys/fs/cgroup", buf, out);
    read_huge(out);
    return SL_OK;
}

int os_worker_cpus(int n, int *cpu)
{
    void *p = NULL;
    int got = 0;
    for (int i = 0; i < n; i++)
        cpu[i] = -1;
    if (mem_alloc_array(MEM_MISC, OS_MAX_PU, sizeof(struct os_pu), &p, NULL) != SL_OK) return 0;
    struct os_pu *pu = p;
    int n_pu = os_pu_list(pu, NULL);
    qsort(pu, (size_t)n_pu, sizeof *pu, core_order);
    for (int thread = 0; got < n && thread < n_pu;
         thread++) { /* the thread-th sibling of each core */
        int sibling = 0;
        for (int i = 0; i < n_pu && got < n; i++) {
            sibling = i > 0 && pu[i].core == pu[i - 1].core ? sibling + 1 : 0;
            if (sibling == thread) cpu[got++] = pu[i].cpu;
        }
    }
    mem_free(p);
    return got;
}

int64_t os_rss_now(void)
{
    char buf[4096];
    slurp("/proc/self/status", buf, sizeof buf);
    int64_t n = kb_field(buf, "VmRSS:");
    return n < 0 ? 0 : n;
}
