/* SPDX-License-Identifier: Apache-2.0 */
/* check_kern [--isa NAME] [--seed N] [--repeat N] [--bench [--threads N]] [filter]: every variant
 * of every kernel against its reference. */
#include "check.h"

#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include "kern/x86/variants.h"
#elif defined(__aarch64__)
#include "kern/arm/variants.h"
#else
#define KERN_VARIANTS(V)
#endif

#define MAX_MAP 4096
static struct {
    void *p;
    size_t n;
} maps[MAX_MAP];
static int n_map;
static sigjmp_buf on_fault;

void *check_alloc(struct check *c, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    uint8_t *p =
        mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || n_map == MAX_MAP || mprotect(p + body, page, PROT_NONE) != 0) {
        fprintf(stderr, "check: no memory for %s\n", c->op);
        exit(2);
    }
    maps[n_map].p = p;
    maps[n_map++].n = body + page;
    memset(p, 0xff, body);
    return p + body - n;
}

void check_free_all(void)
{
    while (n_map > 0) {
        n_map--;
        munmap(maps[n_map].p, maps[n_map].n);
    }
}

void check_fail(struct check *c, const char *fmt, ...)
{
    if (c->n_fail++ > 4) return;
    va_list ap;
    va_start(ap, fmt);
    printf("FAIL %s_%s: ", c->op, c->isa);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

uint32_t check_rand(struct check *c, uint32_t below)
{
    return (uint32_t)((rng_next(&c->rng) >> 32) * (uint64_t)below >> 32);
}

float check_randf(struct check *c)
{
    return (float)((double)(int64_t)(rng_next(&c->rng) >> 11) * 0x1p-52 - 1.0);
}

void check_ref_table(struct kern *k)
{
    kern_select(k, 1u << CPU_ISA_ref);
}

static void fault(int sig)
{
    siglongjmp(on_fault, sig);
}

static int total_fail, total_row;

static void begin(struct check *c, const char *op, const char *isa, uint64_t seed)
{
    memset(c, 0, sizeof(*c));
    c->seed = seed;
    c->rng = seed * 0x9E3779B97F4A7C15ull + 1;
    c->op = op;
    c->isa = isa;
    total_row++;
}

static void end(struct check *c, int sig)
{
    if (sig) check_fail(c, "signal %d (%s)", sig, strsignal(sig));
    printf("%-4s %s_%s: %d cases, seed %llu\n", c->n_fail ? "FAIL" : "ok", c->op, c->isa, c->n_case,
           (unsigned long long)c->seed);
    fflush(stdout);
    total_fail += c->n_fail > 0;
    check_free_all();
}

static int wanted(const char *what, const char *filter)
{
    return !filter || strstr(what, filter) != NULL;
}

#define RUN(op, isa, seed, call)                                                                   \
    do {                                                                                           \
        begin(&c, op, isa, seed);                                                                  \
        int sig_ = sigsetjmp(on_fault, 1);                                                         \
        if (!sig_) call;                                                                           \
        end(&c, sig_);                                                                             \
    } while (0)

static void run_all(const char *isa, const char *filter, uint64_t seed)
{
    static struct check c;
    uint32_t have = cpu_isa_mask();
#ifdef SL_SIMDE
    have |= 1u << CPU_ISA_avx512 | 1u << CPU_ISA_avx512vnni; /* compiled to plain C */
#endif
    (void)have;
#define X(op, ret, params)                                                                         \
    if (wanted(#op, filter) && (!isa || strcmp(isa, "ref") == 0))                                  \
        RUN(#op, "ref", seed, check_##op(&c, kern_##op##_ref));
    KERN_LIST(X)
#undef X
#define V(name, which)                                                                             \
    if (wanted(#name, filter) && (!isa || strcmp(isa, #which) == 0)) {                             \
        if (cpu_has(have, CPU_ISA_##which)) {                                                      \
            RUN(#name, #which, seed, check_##name(&c, kern_##name##_##which));                     \
        } else {                                                                                   \
            printf("skip %s_%s: not this CPU\n", #name, #which);                                   \
        }                                                                                          \
    }
    KERN_VARIANTS(V)
#undef V
    if (isa && strcmp(isa, "ref") != 0) return;
    if (wanted("pack", filter)) RUN("pack", "all", seed, check_pack(&c));
    if (wanted("outliers", filter)) RUN("outliers", cpu_isa_best(have), seed, check_outliers(&c));
    if (wanted("parts", filter))
        RUN("parts", cpu_isa_best(have), seed, check_parts(&c, filter ? 1000000 : 20000));
    if (wanted("alone", filter)) RUN("alone", cpu_isa_best(have), seed, check_alone(&c));
}

int main(int argc, char **argv)
{
    static const struct option opts[] = {{"isa", 1, 0, 'i'},     {"seed", 1, 0, 's'},
                                         {"repeat", 1, 0, 'r'},  {"bench", 0, 0, 'b'},
                                         {"threads", 1, 0, 't'}, {0, 0, 0, 0}};
    const char *isa = NULL, *filter;
    uint64_t seed = 1;
    int repeat = 1, bench = 0, n_thread = 2;
    for (int o; (o = getopt_long(argc, argv, "i:s:r:bt:", opts, NULL)) != -1;) {
        if (o == 'i')
            isa = optarg;
        else if (o == 's')
            seed = strtoull(optarg, NULL, 0);
        else if (o == 'r')
            repeat = atoi(optarg);
        else if (o == 'b')
            bench = 1;
        else if (o == 't')
            n_thread = atoi(optarg);
        else
            return 2;
    }
    filter = optind < argc ? argv[optind] : NULL;
    if (isa && !cpu_isa_cap(isa)) {
        fprintf(stderr, "check: unknown ISA %s\n", isa);
        return 2;
    }
    if (bench) return bench_main(filter, n_thread);
    struct sigaction sa = {.sa_handler = fault};
    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGBUS, &sa, NULL);
    sigaction(SIGILL, &sa, NULL);
    sigaction(SIGFPE, &sa, NULL);
    for (int i = 0; i < repeat; i++)
        run_all(isa, filter, seed + (uint64_t)i);
    printf("%d rows, %d failed, this CPU: %s\n", total_row, total_fail,
           cpu_isa_best(cpu_isa_mask()));
    return total_fail > 0;
}
