/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware threads, their cores and caches: from the kernel's files. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os_internal.h"

/* The CPUs that this process may run on, at most OS_MAX_PU, in order. */
static int allowed_cpus(struct os_pu *pu)
{
    int n = 0;
    cpu_set_t *set = CPU_ALLOC(OS_MAX_PU);
    size_t size = CPU_ALLOC_SIZE(OS_MAX_PU);
    if (set && sched_getaffinity(0, size, set) == 0)
        for (int i = 0; i < OS_MAX_PU; i++)
            if (CPU_ISSET_S((size_t)i, size, set)) pu[n++] = (struct os_pu){.cpu = i, .core = i};
    if (set) CPU_FREE(set);
    if (n == 0) pu[n++] = (struct os_pu){0};
    return n;
}

#define CPU_DIR "/sys/devices/system/cpu/cpu"

/* The first number or word of a kernel file. */
static int read_word(const char *path, char *buf, int cap)
{
    buf[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    char *got = fgets(buf, cap, f);
    fclose(f);
    return got != NULL;
}

static void read_caches(int cpu, struct os_topology *t)
{
    for (int i = 0; i < 10; i++) {
        char path[128], level[16], type[32], size[32];
        snprintf(path, sizeof path, CPU_DIR "%d/cache/index%d/level", cpu, i);
        if (!read_word(path, level, sizeof level)) return;
        snprintf(path, sizeof path, CPU_DIR "%d/cache/index%d/type", cpu, i);
        if (!read_word(path, type, sizeof type) || type[0] == 'I') continue;
        snprintf(path, sizeof path, CPU_DIR "%d/cache/index%d/size", cpu, i);
        if (!read_word(path, size, sizeof size)) continue;
        char *end;
        int64_t n = strtoll(size, &end, 10) * (*end == 'K' ? 1024 : *end == 'M' ? 1 << 20 : 1);
        if (level[0] == '1') t->l1d = n;
        if (level[0] == '2') t->l2 = n;
        if (level[0] == '3') t->l3 = n;
    }
}

void os_pretend_nodes(struct os_pu *pu, int n_pu, int n)
{
    int n_core = 0;
    for (int i = 0; i < n_pu; i++) {
        int before = 0, first = 1;
        for (int k = 0; k < n_pu; k++) {
            int seen = 0;
            for (int j = 0; j < k && !seen; j++)
                seen = pu[j].core == pu[k].core;
            before += !seen && pu[k].core < pu[i].core;
            first &= k >= i || pu[k].core != pu[i].core;
        }
        pu[i].numa = before;
        n_core += first;
    }
    for (int i = 0; i < n_pu; i++)
        pu[i].numa = (int)((int64_t)pu[i].numa * n / n_core);
}

int os_pu_list(struct os_pu *pu, struct os_topology *cache)
{
    const char *nodes = getenv("SL_NODES"); /* to test what several nodes are used for */
    int n = allowed_cpus(pu);
    for (int i = 0; i < n; i++) {
        char path[128], buf[64];
        snprintf(path, sizeof path, CPU_DIR "%d/topology/thread_siblings_list", pu[i].cpu);
        if (read_word(path, buf, sizeof buf))
            pu[i].core = atoi(buf); /* the lowest sibling names the core */
        for (int node = 0; node < 256; node++) {
            snprintf(path, sizeof path, CPU_DIR "%d/node%d", pu[i].cpu, node);
            if (access(path, F_OK) != 0) continue;
            pu[i].numa = node;
            break;
        }
    }
    if (nodes && atoi(nodes) > 0) os_pretend_nodes(pu, n, atoi(nodes));
    if (cache) read_caches(pu[0].cpu, cache);
    return n;
}
