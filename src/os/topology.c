/* SPDX-License-Identifier: Apache-2.0 */
/* What the process may use of this machine: CPU set, quota and memory limits of its control groups,
 * huge pages. */
#include "os/os.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/os_internal.h"

#define PAGE 4096

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

int os_node_cores(const struct os_pu *pu, int n_pu)
{
    int least = n_pu;
    for (int i = 0; i < n_pu; i++) {
        int n = 0;
        for (int k = 0; k < n_pu; k++)
            n += pu[k].numa == pu[i].numa && (k == 0 || pu[k].core != pu[k - 1].core);
        least = BASE_MIN(least, n);
    }
    return least;
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
    out->n_core_node = os_node_cores(pu, out->n_pu);
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

/* n CPUs of those in order: the first hardware thread of each core, then the second ones. */
static int take_cpus(const struct os_pu *pu, int n_pu, int n, int *cpu)
{
    int got = 0;
    for (int thread = 0; got < n && thread < n_pu; thread++) {
        int sibling = 0;
        for (int i = 0; i < n_pu && got < n; i++) {
            sibling = i > 0 && pu[i].core == pu[i - 1].core ? sibling + 1 : 0;
            if (sibling == thread) cpu[got++] = pu[i].cpu;
        }
    }
    return got;
}

/* The CPUs of the i-th memory node, in their order, to the front of pu; how many there are. */
static int keep_node(struct os_pu *pu, int n_pu, int i)
{
    int node = -1, n = 0;
    for (int k = 0; k <= i; k++) { /* nodes need not be numbered from 0 */
        int next = INT_MAX;
        for (int p = 0; p < n_pu; p++)
            if (pu[p].numa > node && pu[p].numa < next) next = pu[p].numa;
        node = next;
    }
    for (int p = 0; p < n_pu; p++)
        if (pu[p].numa == node) pu[n++] = pu[p];
    return n;
}

int os_team_deal(struct os_pu *pu, int n_pu, const struct os_team *t, int *cpu)
{
    int n_numa = count_numa(pu, n_pu), all[OS_MAX_PU], rank = t->rank, n_rank = t->n_rank;
    for (int i = 0; i < t->n; i++)
        cpu[i] = -1;
    qsort(pu, (size_t)n_pu, sizeof *pu, core_order);
    int n_all = take_cpus(pu, n_pu, BASE_MIN(t->n * n_rank, OS_MAX_PU), all);
    if (n_rank > 1 && n_numa > 1 && n_rank >= n_numa) {
        int node = rank * n_numa / n_rank, first = (node * n_rank + n_numa - 1) / n_numa,
            end = ((node + 1) * n_rank + n_numa - 1) / n_numa, here[OS_MAX_PU];
        int n_here = keep_node(pu, n_pu, node), want = t->n * (end - first);
        if (want <= OS_MAX_PU && take_cpus(pu, n_here, want, here) == want) {
            memcpy(cpu, here + t->n * (rank - first), (size_t)t->n * sizeof *cpu);
            return n_all;
        }
    }
    for (int i = 0; i < t->n && t->n * rank + i < n_all; i++)
        cpu[i] = all[t->n * rank + i];
    return n_all;
}

int os_team_cpus(const struct os_team *t, int *cpu)
{
    void *p = NULL;
    if (mem_alloc_array(MEM_MISC, OS_MAX_PU, sizeof(struct os_pu), &p, NULL) != SL_OK) {
        for (int i = 0; i < t->n; i++)
            cpu[i] = -1;
        return 0;
    }
    int n = os_team_deal(p, os_pu_list(p, NULL), t, cpu);
    mem_free(p);
    return n;
}

struct os_pages os_pages_near(const void *p, size_t n, int most)
{
    void *page[64];
    int status[64], n_page = (int)BASE_MIN((size_t)BASE_MIN(most, 64), n / PAGE);
    unsigned cpu, node;
    struct os_pages out = {0};
    for (int i = 0; i < n_page; i++) {
        size_t at = (size_t)i * (n / (size_t)n_page);
        page[i] = (uint8_t *)(((uintptr_t)p + at + PAGE - 1) / PAGE * PAGE);
    }
    if (n_page < 1 || syscall(SYS_getcpu, &cpu, &node, NULL) ||
        syscall(SYS_move_pages, 0, (unsigned long)n_page, page, NULL, status, 0))
        return out;
    for (int i = 0; i < n_page; i++) {
        out.n += status[i] >= 0;
        out.near += status[i] == (int)node;
    }
    return out;
}

int64_t os_rss_now(void)
{
    char buf[4096];
    slurp("/proc/self/status", buf, sizeof buf);
    int64_t n = kb_field(buf, "VmRSS:");
    return n < 0 ? 0 : n;
}
