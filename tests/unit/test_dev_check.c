/* SPDX-License-Identifier: Apache-2.0 */
/* The devices `check`: that it finds what it is there to find; and `sim`: its time and failures. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev/dev.h"
#include "test.h"

#define D 32
#define V 4
#define T 2

static sl_err err;

/* A table of V rows, row i all i + 1, an output of T rows, and a step of the ids 2, 1. */
struct rig {
    dev *d;
    dev_mat *table;
    float *y, *scale;
    int32_t ids[T], pos[T], seq_tok0[2];
    struct dev_step s;
};

static void *device_memory(dev *d, int64_t n)
{
    void *p = NULL;
    ASSERT_OK(dev_alloc(d, MEM_ACTS, n, &p, &err));
    return p;
}

static void rig_open(struct rig *r, const char *name)
{
    static float w[V * D], one[D];
    for (int i = 0; i < V * D; i++)
        w[i] = (float)(i / D + 1);
    for (int i = 0; i < D; i++)
        one[i] = 1;
    *r = (struct rig){.ids = {2, 1}, .pos = {0, 1}, .seq_tok0 = {0, T}};
    struct weight table = {.name = "table",
                           .type = TENSOR_F32,
                           .rows = V,
                           .cols = D,
                           .data = (const uint8_t *)w,
                           .row_bytes = D * 4,
                           .tensor_scale = 1.0f};
    struct dev_limits max = {.n_tok = T, .n_seq = 1, .n_ctx = 16};
    ASSERT_OK(dev_open(name, &(struct dev_opts){.n_thread = 1}, &r->d, &err));
    ASSERT_OK(dev_mat_load(r->d,
                           &(struct dev_weights){.first = &table, .n = 1, .use = DEV_USE_EMBED},
                           &r->table, &err));
    r->y = device_memory(r->d, T * D * 4);
    r->scale = device_memory(r->d, D * 4);
    ASSERT_OK(dev_put(r->d, r->scale, one, D * 4, &err));
    ASSERT_OK(dev_reserve(r->d, NULL, 0, &max, &err));
    r->s = (struct dev_step){
        .n_tok = T, .n_seq = 1, .ids = r->ids, .pos = r->pos, .seq_tok0 = r->seq_tok0};
}

static void embed(struct rig *r)
{
    dev_embed(r->d, &r->s, &(struct dev_embed){.w = r->table, .y = r->y, .scale = 1});
}

/* The signal that fn dies of in a process of its own; 0 = it lives. */
static int dies_of(void (*fn)(struct rig *r), struct rig *r)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        fn(r);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void read_there(struct rig *r)
{
    volatile const float *y = r->y;
    (void)y[0];
}

static void write_there(struct rig *r)
{
    volatile float *y = r->y;
    y[0] = 1;
}

static void give_host_memory(struct rig *r)
{
    static float here[D];
    dev_step_begin(r->d, NULL, &r->s);
    dev_add(r->d, &r->s, &(struct dev_add){.x = r->y, .y = here, .n = D, .n_row = 1});
}

static void give_another_device(struct rig *r)
{
    struct rig other;
    rig_open(&other, "cpu");
    dev_step_begin(r->d, NULL, &r->s);
    dev_embed(r->d, &r->s, &(struct dev_embed){.w = other.table, .y = r->y, .scale = 1});
}

static void nothing(struct rig *r)
{
    (void)r;
}

TEST(dev_check_memory_is_not_the_hosts)
{
    struct rig r;
    rig_open(&r, "check");
    assert_false(dev_is_host(r.d));
    assert_int_equal(dies_of(nothing, &r), 0);
    assert_int_not_equal(dies_of(read_there, &r), 0);
    assert_int_not_equal(dies_of(write_there, &r), 0);
    assert_int_not_equal(dies_of(give_host_memory, &r), 0);
    assert_int_not_equal(dies_of(give_another_device, &r), 0);
    dev_close(r.d);
    rig_open(&r, "cpu"); /* the same is seen on the CPU */
    assert_int_equal(dies_of(read_there, &r), 0);
    struct rig other;
    rig_open(&other, "cpu");
    dev_close(other.d);
    assert_int_not_equal(dies_of(give_another_device, &r), 0);
    dev_close(r.d);
}

TEST(dev_check_runs_late_on_the_step_as_it_was)
{
    struct rig r;
    float y[T * D];
    rig_open(&r, "check");
    dev_step_begin(r.d, NULL, &r.s);
    embed(&r);
    memset(r.ids, 0, sizeof r.ids); /* the step has begun: these are nobody's */
    dev_add(r.d, &r.s, &(struct dev_add){.x = r.y, .y = r.scale, .n = D, .n_row = 1});
    ASSERT_OK(dev_get(r.d, y, r.y, sizeof y, &err));
    for (int i = 0; i < T * D; i++)
        assert_true(y[i] == (i < D ? 4.0f : 2.0f)); /* rows 2 and 1; 1 added to the first */
    dev_close(r.d);
}

TEST(dev_check_poisons_what_a_step_must_not_read)
{
    struct rig r;
    float y[T * D], scale[D];
    rig_open(&r, "check");
    dev_step_begin(r.d, NULL, &r.s);
    embed(&r);
    ASSERT_OK(dev_get(r.d, y, r.y, sizeof y, &err));
    assert_true(y[0] == 3.0f);
    dev_step_begin(r.d, NULL, &r.s);
    ASSERT_OK(dev_get(r.d, y, r.y, sizeof y, &err));
    ASSERT_OK(dev_get(r.d, scale, r.scale, sizeof scale, &err));
    for (int i = 0; i < T * D; i++)
        assert_true(isnan(y[i]));
    assert_true(scale[0] == 1.0f); /* what the host has put there stays */
    dev_close(r.d);
}

TEST(dev_check_fails_as_told)
{
    struct rig r;
    float y[T * D];
    rig_open(&r, "check:fail=8"); /* 1 to 5 open the rig, a step, an operator */
    dev_step_begin(r.d, NULL, &r.s);
    embed(&r);
    embed(&r);
    ASSERT_STATUS(dev_sync(r.d, &err), SL_INTERNAL);
    assert_non_null(strstr(err.text, "call 8 (embed)"));
    ASSERT_STATUS(dev_get(r.d, y, r.y, sizeof y, &err), SL_INTERNAL); /* until a step begins */
    dev_step_begin(r.d, NULL, &r.s);
    embed(&r);
    ASSERT_OK(dev_get(r.d, y, r.y, sizeof y, &err));
    assert_true(y[0] == 3.0f);
    dev_close(r.d);
    rig_open(&r, "check:lost=8");
    for (int i = 0; i < 3; i++) {
        dev_step_begin(r.d, NULL, &r.s);
        embed(&r);
        embed(&r);
        ASSERT_STATUS(dev_sync(r.d, &err), SL_DEVICE);
        assert_non_null(strstr(err.text, "lost at call 8"));
    }
    dev_close(r.d);
}

TEST(dev_check_options_and_lacking_operators_are_named)
{
    static const char *const bad[] = {"fail", "fail=", "fail=0", "fail=1x", "late=1"};
    struct rig r;
    dev_prog *p = NULL;
    dev *d = NULL;
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        char name[40] = "check:";
        strncat(name, bad[i], 20);
        ASSERT_STATUS(dev_open(name, NULL, &d, &err), SL_REQUEST);
        assert_non_null(strstr(err.text, bad[i]));
    }
    rig_open(&r, "check:lacks=embed,fail=1000");
    struct dev_op op = {.kind = DEV_OP_embed, .layer = 7};
    op.u.embed = (struct dev_embed){.w = r.table, .y = r.y, .scale = 1};
    ASSERT_STATUS(dev_prog_open(r.d, &op, 1, &p, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layer 7"));
    assert_non_null(strstr(err.text, "'check'"));
    assert_non_null(strstr(err.text, "'embed'"));
    dev_close(r.d);
}

/* ---- the device `sim` ---- */

TEST(dev_sim_computes_with_either_clock_in_memory_of_its_own)
{
    static const char *const names[] = {"sim", "sim:clock=real,lat=1us,hand=1us"};
    struct rig r;
    float y[T * D];
    for (int i = 0; i < BASE_COUNT_OF(names); i++) {
        rig_open(&r, names[i]);
        assert_false(dev_is_host(r.d));
        assert_int_not_equal(dies_of(read_there, &r), 0);
        for (int k = 0; k < 3; k++) {
            dev_step_begin(r.d, NULL, &r.s);
            for (int n = 0; n < 5000; n++) /* more than find room at once */
                embed(&r);
            ASSERT_OK(dev_get(r.d, y, r.y, sizeof y, &err));
            assert_true(y[0] == 3.0f && y[D] == 2.0f);
            if (names[i][3]) break;
        }
        dev_close(r.d);
    }
}

TEST(dev_sim_virtual_time_is_exact)
{
    struct dev_op_row row[64];
    struct rig r;
    rig_open(&r, "sim:lat=7us,hand=11us");
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    dev_step_begin(r.d, NULL, &r.s);
    embed(&r);
    embed(&r);
    ASSERT_OK(dev_sync(r.d, &err));
    assert_int_equal(dev_op_times(r.d, row, BASE_COUNT_OF(row)), DEV_N_OP + 3);
    assert_int_equal(row[DEV_OP_embed].n_call, 2);
    assert_int_equal(row[DEV_OP_embed].ns, 14000);
    assert_int_equal(row[DEV_N_OP].ns, 11000); /* idle: until the host was heard */
    assert_int_equal(row[DEV_N_OP + 1].ns, 11000 + 14000 + 11000); /* and the way back */
    assert_int_equal(row[DEV_N_OP + 2].ns, 11000 + 14000);
    assert_int_equal(row[DEV_N_OP + 2].n_call, 1);
    dev_close(r.d);
}

TEST(dev_sim_real_time_is_no_shorter_than_it_says)
{
    struct dev_op_row row[64];
    struct rig r;
    rig_open(&r, "sim:lat=50ms,clock=real");
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    int64_t t0 = clock_now_ns();
    dev_step_begin(r.d, NULL, &r.s);
    embed(&r);
    embed(&r);
    assert_true(clock_now_ns() - t0 < 100000000); /* they are queued */
    ASSERT_OK(dev_sync(r.d, &err));
    assert_true(clock_now_ns() - t0 >= 100000000);
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    assert_true(row[DEV_OP_embed].ns >= 100000000);
    dev_close(r.d);
}

TEST(dev_sim_fails_as_told)
{
    static const char *const clocks[] = {"virtual", "real"};
    char name[60];
    struct rig r;
    void *p;
    for (int i = 0; i < BASE_COUNT_OF(clocks); i++) {
        snprintf(name, sizeof name, "sim:fail=lost:3,clock=%s", clocks[i]); /* a copy, a step */
        rig_open(&r, name);
        for (int k = 0; k < 2; k++) {
            dev_step_begin(r.d, NULL, &r.s);
            embed(&r);
            ASSERT_STATUS(dev_sync(r.d, &err), SL_DEVICE);
            assert_non_null(strstr(err.text, "device 'sim': lost at call 3"));
        }
        dev_close(r.d);
    }
    rig_open(&r, "sim:fail=alloc:5"); /* the rig makes 4 */
    ASSERT_STATUS(dev_alloc(r.d, MEM_ACTS, 8, &p, &err), SL_NOMEM);
    assert_non_null(strstr(err.text, "allocation 5"));
    ASSERT_OK(dev_alloc(r.d, MEM_ACTS, 8, &p, &err));
    dev_close(r.d);
    rig_open(&r, "sim:mem=1M");
    int64_t n_free, total;
    ASSERT_OK(dev_memory(r.d, &n_free, &total, &err));
    assert_int_equal(total, 1 << 20);
    assert_true(n_free < total);
    assert_false(dev_takes_host(r.d));
    ASSERT_STATUS(dev_alloc(r.d, MEM_ACTS, n_free + 1, &p, &err), SL_NOMEM);
    assert_non_null(strstr(err.text, "of 1.00 are free"));
    ASSERT_OK(dev_alloc(r.d, MEM_ACTS, n_free, &p, &err));
    dev_close(r.d);
}

TEST(dev_sim_options_are_named)
{
    static const char *const bad[] = {"bw",     "bw=",     "bw=0",       "bw=1x",       "lat=3",
                                      "mem=1P", "clock=x", "fail=alloc", "fail=lost:0", "lost=3"};
    dev *d = NULL;
    char name[40];
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        snprintf(name, sizeof name, "sim:ops=1T,%s", bad[i]);
        ASSERT_STATUS(dev_open(name, NULL, &d, &err), SL_REQUEST);
        assert_non_null(strstr(err.text, bad[i]));
        assert_non_null(strstr(err.text, "clock=virtual|real"));
    }
    ASSERT_STATUS(dev_open("sim:clock=real,host-bw=1", NULL, &d, &err), SL_REQUEST);
}

/* The host waits for the rows that it is given, not for what the device has to do afterwards. */
TEST(dev_sim_runs_while_the_host_goes_on)
{
    static float here[T * D];
    struct dev_op op[12];
    struct dev_op_row row[64];
    struct rig r, host;
    dev_prog *p = NULL;
    rig_open(&r, "sim:lat=7us,hand=11us,bus=1e9");
    rig_open(&host, "cpu");
    op[0] = (struct dev_op){.kind = DEV_OP_embed, .layer = -1, .d = r.d};
    op[0].u.embed = (struct dev_embed){.w = r.table, .y = r.y, .scale = 1};
    op[1] = (struct dev_op){.kind = DEV_OP_move, .layer = -1, .d = r.d};
    op[1].u.move = (struct dev_move){.at = r.y, .host = here, .out = true, .n = D};
    for (int i = 2; i < 12; i++) {
        op[i] = (struct dev_op){.kind = DEV_OP_add, .layer = -1, .d = i < 11 ? r.d : host.d};
        op[i].u.add = (struct dev_add){.x = r.y, .y = r.y, .n = D};
    }
    op[11].u.add = (struct dev_add){.x = here, .y = here, .n = D};
    ASSERT_OK(dev_prog_open(r.d, op, 12, &p, &err));
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    ASSERT_OK(dev_prog_run(p, NULL, &r.s, &err));
    assert_true(here[0] == 6.0f && here[D] == 4.0f);
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    assert_int_equal(row[DEV_OP_add].n_call, 0); /* virtual: run when they must */
    assert_int_equal(row[DEV_N_OP + 1].ns, 11000 + 2 * 7000 + 11000);
    ASSERT_OK(dev_sync(r.d, &err));
    (void)dev_op_times(r.d, row, BASE_COUNT_OF(row));
    assert_int_equal(row[DEV_OP_add].ns, 9 * 7000);
    dev_prog_close(p);
    dev_close(r.d);
    dev_close(host.d);
}
