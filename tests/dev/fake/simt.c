/* SPDX-License-Identifier: Apache-2.0 */
/* Running a workgroup's lanes as fibers. */
#include "simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define LANES_MAX 256
#define STACK ((size_t)64 << 10)

extern const struct simt_kernel *const simt_kernels[];

unsigned simt_lane, simt_group[3], simt_n_group_x;

struct fiber {
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t at;
#endif
    bool done;
    unsigned n_sync;
};
static struct {
    struct fiber lane[LANES_MAX], host;
    const struct simt_kernel *kernel;
    unsigned n, n_left;
    bool down;
    char *stack;
} g;

const struct simt_kernel *simt_find(const char *name)
{
    for (int i = 0; simt_kernels[i]; i++)
        if (strcmp(simt_kernels[i]->name, name) == 0) return simt_kernels[i];
    return NULL;
}

static void wrong(const char *what)
{
    fprintf(stderr, "simt: %s, group %u %u %u, lane %u: %s\n", g.kernel->name, simt_group[0],
            simt_group[1], simt_group[2], simt_lane, what);
    abort();
}

/* ---- changing from one to another ---- */

static void lane_main(void);

#if defined(__x86_64__)
void simt_switch(void **save, void *to);
__asm__(".text\n"
        "simt_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
        "ret\n");

static void change(struct fiber *from, struct fiber *to)
{
    simt_switch(&from->sp, to->sp);
}

static void prepare(struct fiber *f, char *stack)
{
    void (*entry)(void) = lane_main;
    void **sp = (void **)(void *)(stack + STACK) - 1; /* as if it had been called */
    memcpy(--sp, &entry, sizeof entry);
    f->sp = sp - 6;
}
#else
static void change(struct fiber *from, struct fiber *to)
{
    swapcontext(&from->at, &to->at);
}

static void prepare(struct fiber *f, char *stack)
{
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = stack;
    f->at.uc_stack.ss_size = STACK;
    f->at.uc_link = NULL;
    makecontext(&f->at, lane_main, 0);
}
#endif

/* ---- lanes ---- */

/* The next one that is not done, in the group's direction; its own number if there is no other. */
static unsigned next_lane(unsigned l)
{
    do l = g.down ? (l ? l - 1 : g.n - 1) : (l + 1 == g.n ? 0 : l + 1);
    while (g.lane[l].done);
    return l;
}

static void go_on(struct fiber *self, unsigned next)
{
    simt_lane = next;
    change(self, &g.lane[next]);
}

void simt_sync(void)
{
    unsigned l = simt_lane, next = next_lane(l);
    struct fiber *self = &g.lane[l];
    bool is_round = g.down ? next >= l : next <= l; /* the next has waited for this one */
    self->n_sync++;
    if (g.lane[next].n_sync + !is_round != self->n_sync) wrong("lanes wait at different places");
    if (next == l) return;
    go_on(self, next);
    simt_lane = l;
}

/* ---- matrix units ---- */

static struct {
    unsigned a[4], b[2];
} regs[LANES_MAX];

/* The register of its group's 4 lanes and the byte of it where PTX keeps element k of a row. */
static unsigned byte_of(const unsigned *reg, unsigned k, unsigned step)
{
    return reg[k / 16 * step] >> 8 * (k % 4) & 255u;
}

void simt_mma(unsigned n, const unsigned *a, const unsigned *b, int d[4])
{
    unsigned l = simt_lane, warp = l / 32 * 32;
    memcpy(regs[l].a, a, 8 * n);
    memcpy(regs[l].b, b, 4 * n);
    simt_sync();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = l % 32 / 4 + i / 2 * 8, col = l % 4 * 2 + i % 2;
        d[i] = 0;
        for (unsigned k = 0; k < 16 * n; k++) {
            unsigned of = k % 16 / 4; /* the lane of four that has it */
            const unsigned *ra = regs[warp + row % 8 * 4 + of].a + row / 8;
            const unsigned *rb = regs[warp + col * 4 + of].b;
            d[i] += (int)byte_of(ra, k, 2) * (signed char)byte_of(rb, k, 1);
        }
    }
    simt_sync();
}

static void lane_main(void)
{
    g.kernel->run();
    struct fiber *self = &g.lane[simt_lane];
    self->done = true;
    if (--g.n_left == 0)
        change(self, &g.host);
    else
        go_on(self, next_lane(simt_lane));
    wrong("a lane runs on after its end");
}

static void run_group(unsigned i)
{
    g.down = i & 1;
    g.n_left = g.n;
    for (unsigned l = 0; l < g.n; l++) {
        prepare(&g.lane[l], g.stack + l * STACK);
        g.lane[l].done = false;
        g.lane[l].n_sync = 0;
    }
    simt_lane = g.down ? g.n - 1 : 0;
    change(&g.host, &g.lane[simt_lane]);
}

void simt_launch(const struct simt_kernel *k, const unsigned grid[3], const void *args)
{
    unsigned n = 0;
    if (!g.stack) g.stack = malloc(LANES_MAX * STACK);
    if (!g.stack || k->n_lane > LANES_MAX) abort();
    g.kernel = k;
    g.n = k->n_lane;
    simt_n_group_x = grid[0];
    k->set(args);
    for (simt_group[2] = 0; simt_group[2] < grid[2]; simt_group[2]++)
        for (simt_group[1] = 0; simt_group[1] < grid[1]; simt_group[1]++)
            for (simt_group[0] = 0; simt_group[0] < grid[0]; simt_group[0]++)
                run_group(n++);
}
