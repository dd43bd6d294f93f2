/* SPDX-License-Identifier: Apache-2.0 */
/* Files: mapping, writing aside and renaming, refusing what is not a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/os.h"
#include "os/os_internal.h"
#include "test.h"

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[256];
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/sluice-test-os-XXXXXX");
        if (!mkdtemp(dir)) abort();
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

__attribute__((destructor)) static void remove_dir(void)
{
    char **names;
    int n;
    if (!dir[0] || os_list(dir, &names, &n, NULL) != SL_OK) return;
    for (int i = 0; i < n; i++)
        if (remove(in_dir(names[i])) != 0) break;
    os_list_free(names, n);
    if (rmdir(dir) != 0) fprintf(stderr, "%s was left behind\n", dir);
}

static void write_text(const char *name, const char *text)
{
    sl_err err;
    ASSERT_OK(os_write_file(in_dir(name), text, strlen(text), &err));
}

TEST(os_map_shows_the_bytes_of_a_file)
{
    sl_err err;
    struct os_map m;
    write_text("a", "hello");
    ASSERT_OK(os_map_open(in_dir("a"), &m, &err));
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    assert_true(m.mtime_ns > 0);
    os_map_will_need(&m, 0, UINT64_MAX);
    os_map_drop(&m, 2, 100);
    os_map_drop(&m, 99, 1);
    assert_memory_equal(m.data, "hello", 5);
    os_map_close(&m);
    os_map_close(&m);
}

TEST(os_map_evict_takes_pages_from_the_cache_and_they_come_back)
{
    enum { N = 8 << 20 };
    sl_err err;
    struct os_map m;
    unsigned char core[N / 4096];
    int n_core = 0;
    char *p = malloc(N);
    assert_non_null(p);
    for (int i = 0; i < N; i++)
        p[i] = (char)(i * 7 + i / 4096);
    ASSERT_OK(
        os_write_file(in_dir("evict"), p, N, &err)); /* on the disk: only clean pages can go */
    ASSERT_OK(os_map_open(in_dir("evict"), &m, &err));
    assert_memory_equal(m.data, p, N);
    os_map_evict(&m, 0, N + 100);
    os_map_evict(&m, UINT64_MAX, 1);
    os_map_evict(&m, 5, 0);
    assert_int_equal(mincore((void *)(uintptr_t)m.data, N, core), 0);
    for (int i = 0; i < N / 4096; i++)
        n_core += core[i] & 1;
    struct statfs fs;
    assert_int_equal(statfs(dir, &fs), 0);
    if (fs.f_type != TMPFS_MAGIC && fs.f_type != OVERLAYFS_SUPER_MAGIC)
        assert_true(n_core < N / 4096 / 2);
    assert_memory_equal(m.data, p, N);
    assert_true(os_disk_read() >= 0);
    os_map_close(&m);
    free(p);
}

TEST(os_map_of_an_empty_file_has_a_pointer)
{
    sl_err err;
    struct os_map m;
    write_text("empty", "");
    ASSERT_OK(os_map_open(in_dir("empty"), &m, &err));
    assert_true(m.size == 0 && m.data != NULL);
    os_map_close(&m);
}

TEST(os_refuses_what_is_not_a_regular_file_at_once)
{
    char fifo[256], link_a[256], link_b[256];
    strcpy(fifo, in_dir("fifo"));
    strcpy(link_a, in_dir("loop_a"));
    strcpy(link_b, in_dir("loop_b"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink(link_a, link_b) | symlink(link_b, link_a), 0);
    const struct {
        const char *path, *text;
        sl_status status;
    } t[] = {
        {fifo, "is a pipe, not a regular file", SL_FORMAT},
        {"/dev/zero", "is a character device", SL_FORMAT},
        {"/tmp", "is a directory", SL_FORMAT},
        {link_a, "symbolic links", SL_IO},
        {in_dir("none"), "No such file", SL_NOTFOUND},
    };
    int64_t start = clock_now_ns();
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        sl_err err;
        struct os_map m;
        char *p;
        uint64_t n;
        ASSERT_STATUS(os_map_open(t[i].path, &m, &err), t[i].status);
        assert_non_null(strstr(err.text, t[i].text));
        assert_non_null(strstr(err.text, t[i].path));
        ASSERT_STATUS(os_read_file(t[i].path, 100, &p, &n, &err), t[i].status);
    }
    assert_true(clock_now_ns() - start < 1000000000);
    assert_true(os_path_kind(fifo) == OS_OTHER && os_path_kind("/tmp") == OS_DIR);
    assert_true(os_path_kind(in_dir("none")) == OS_NONE && os_path_kind(link_a) == OS_OTHER);
    char lost[256];
    strcpy(lost, in_dir("lost"));
    assert_int_equal(symlink("nowhere", lost), 0);
    assert_int_equal(os_path_kind(lost), OS_OTHER);
    struct os_map none;
    sl_err err;
    ASSERT_STATUS(os_map_open(lost, &none, &err), SL_NOTFOUND);
    assert_non_null(strstr(err.text, "a link to a file that is not there"));
}

TEST(os_read_file_keeps_its_limit_and_puts_a_nul)
{
    sl_err err;
    char *p;
    uint64_t n;
    write_text("b", "12345");
    ASSERT_OK(os_read_file(in_dir("b"), 5, &p, &n, &err));
    assert_true(n == 5 && p[5] == 0 && strcmp(p, "12345") == 0);
    mem_free(p);
    ASSERT_STATUS(os_read_file(in_dir("b"), 4, &p, &n, &err), SL_LIMIT);
    assert_non_null(strstr(err.text, "5 bytes, at most 4"));
}

TEST(os_read_once_takes_pipes_to_their_end)
{
    static char big[50000];
    sl_err err;
    char *p, path[32];
    uint64_t n;
    int fd[2];
    memset(big, 'x', sizeof big);
    for (int max = 50000; max > 49998; max--) {
        assert_int_equal(pipe(fd), 0);
        assert_int_equal(write(fd[1], big, sizeof big), sizeof big);
        close(fd[1]);
        snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
        if (max == 50000) {
            ASSERT_OK(os_read_once(path, (uint64_t)max, &p, &n, &err));
            assert_true(n == 50000 && p[n] == 0 && memcmp(p, big, n) == 0);
            mem_free(p);
        } else {
            ASSERT_STATUS(os_read_once(path, (uint64_t)max, &p, &n, &err), SL_LIMIT);
            assert_non_null(strstr(err.text, "at most 49999"));
        }
        close(fd[0]);
    }
    ASSERT_OK(os_read_once("/dev/null", 0, &p, &n, &err));
    assert_true(n == 0 && p[0] == 0);
    mem_free(p);
    ASSERT_STATUS(os_read_once("/tmp", 5, &p, &n, &err), SL_FORMAT);
    ASSERT_STATUS(os_read_once(in_dir("none"), 5, &p, &n, &err), SL_NOTFOUND);
}

/* A writer may be killed while a long file is synced: what it leaves behind has no magic number. */
TEST(os_out_writes_the_first_bytes_of_a_long_file_last)
{
    static char big[3000000];
    memset(big, 7, sizeof big);
    for (int how = 0; how < 3; how++) {
        sl_err err;
        struct os_out out;
        struct os_map m;
        char first[12];
        ASSERT_OK(os_out_open(in_dir("h"), &out, &err));
        if (how == 0) ASSERT_OK(os_out_write(&out, "MAGIC 12 byt", 12, &err));
        if (how == 2)
            ASSERT_OK(os_out_write_at(&out, 12, big, sizeof big, &err));
        else
            ASSERT_OK(os_out_write(&out, big, sizeof big, &err));
        if (how == 2) ASSERT_OK(os_out_write_at(&out, 0, "MAGIC 12 byt", 12, &err));
        assert_int_equal(os_read_start(out.tmp, first, 12), 12);
        assert_memory_equal(first, "\0\0\0\0\0\0\0\0", 8);
        ASSERT_OK(os_out_commit(&out, &err));
        ASSERT_OK(os_map_open(in_dir("h"), &m, &err));
        assert_int_equal(m.size, sizeof big + (how == 1 ? 0 : 12));
        assert_memory_equal(m.data, how == 1 ? big : "MAGIC 12 byt", 12);
        assert_memory_equal(m.data + m.size - 100, big, 100);
        os_map_close(&m);
    }
}

TEST(os_out_shows_the_name_only_when_whole)
{
    sl_err err;
    struct os_out out;
    static char big[3000000];
    memset(big, 7, sizeof big);
    ASSERT_OK(os_out_open(in_dir("c"), &out, &err));
    ASSERT_OK(os_out_write(&out, "x", 1, &err));
    ASSERT_OK(os_out_write(&out, big, sizeof big, &err));
    ASSERT_OK(os_out_write(&out, big, 999999, &err));
    assert_int_equal(os_path_kind(in_dir("c")), OS_NONE);
    ASSERT_OK(os_out_commit(&out, &err));
    struct os_map m;
    ASSERT_OK(os_map_open(in_dir("c"), &m, &err));
    assert_int_equal(m.size, 1 + sizeof big + 999999);
    assert_true(m.data[0] == 'x' && m.data[1] == 7 && m.data[m.size - 1] == 7);
    os_map_close(&m);

    ASSERT_OK(
        os_out_open(in_dir("c"), &out, &err)); /* given up: the old one stays, nothing is left */
    ASSERT_OK(os_out_write(&out, "y", 1, &err));
    os_out_abort(&out);
    ASSERT_OK(os_map_open(in_dir("c"), &m, &err));
    assert_int_equal(m.data[0], 'x');
    os_map_close(&m);
    char **names;
    int n;
    ASSERT_OK(os_out_check(in_dir("c"), &err)); /* as it was, and a new name is not there */
    ASSERT_OK(os_out_check(in_dir("new"), &err));
    assert_true(os_path_kind(in_dir("c")) == OS_FILE && os_path_kind(in_dir("new")) == OS_NONE);
    ASSERT_STATUS(os_out_check(in_dir("no/new"), &err), SL_NOTFOUND);
    assert_non_null(strstr(err.text, "/no/new: No such"));
    ASSERT_STATUS(os_out_check(dir, &err), SL_IO);
    ASSERT_OK(os_out_check("/dev/full", &err));
    ASSERT_OK(os_list(dir, &names, &n, &err));
    for (int i = 0; i < n; i++) {
        assert_null(strstr(names[i], ".tmp"));
        assert_true(i == 0 || strcmp(names[i - 1], names[i]) < 0);
    }
    os_list_free(names, n);
    ASSERT_STATUS(os_out_open("/nonexistent/x", &out, &err), SL_NOTFOUND);
    ASSERT_STATUS(os_write_file("/dev/full/x", "", 0, &err), SL_NOTFOUND);
    ASSERT_STATUS(os_write_file("/tmp", "", 0, &err), SL_IO);
    ASSERT_OK(os_write_file("/dev/null", "abc", 3, &err)); /* written to, not replaced */
    ASSERT_STATUS(os_write_file("/dev/full", "abc", 3, &err), SL_IO);
    assert_non_null(strstr(err.text, "/dev/full: No space"));
    assert_true(os_path_kind("/dev/null") == OS_OTHER && os_path_kind("/dev/full") == OS_OTHER);
}

TEST(os_survives_every_failing_allocation)
{
    for (int k = 1; k < 40; k++) {
        sl_err err;
        char **names = NULL;
        int n = 0;
        int64_t before = mem_used(MEM_MISC);
        mem_fail_at((uint64_t)k, 0);
        sl_status a = os_write_file(in_dir("k"), "abc", 3, &err);
        sl_status b = os_list(dir, &names, &n, &err);
        mem_fail_at(0, 0);
        assert_true(a == SL_OK || a == SL_NOMEM);
        assert_true(b == SL_OK || b == SL_NOMEM);
        if (b == SL_OK) os_list_free(names, n);
        assert_int_equal(mem_used(MEM_MISC), before);
    }
}

/* What a child that touches a cut mapping prints and how it ends (F10). */
TEST(os_guard_turns_a_cut_file_into_a_line_and_exit_1)
{
    static char page[8192];
    sl_err err;
    char path[256];
    strcpy(path, in_dir("cut"));
    ASSERT_OK(os_write_file(path, page, sizeof page, &err));
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct os_map m;
        dup2(fd[1], 2);
        os_map_guard();
        if (os_map_open(path, &m, &err) != SL_OK || truncate(path, 100) != 0) _exit(9);
        volatile uint8_t v = m.data[5000];
        _exit(v ? 8 : 7);
    }
    close(fd[1]);
    char text[600] = {0};
    ssize_t n = read(fd[0], text, sizeof text - 1);
    close(fd[0]);
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(n > 0);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "byte 5000"));
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    sl_err err;
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    ASSERT_OK(os_make_dirs(path, &err));
    snprintf(path, sizeof path, "%s/%s/%s", dir, folder, name);
    ASSERT_OK(os_write_file(path, text, strlen(text), &err));
}

static struct os_topology limits(const char *self)
{
    char text[200];
    struct os_topology t = {.mem_total = 8 << 20, .mem_available = 4 << 20};
    snprintf(text, sizeof text, "%s", self);
    os_cgroup_limits(dir, text, &t);
    return t;
}

TEST(os_cgroups_of_both_versions_limit)
{
    static const char *const made[] = {"cpu/a/b", "cpu/a", "cpu", "memory/m",
                                       "memory",  "two/x", "two"};
    (void)in_dir("");
    put("cpu/a", "cpu.cfs_quota_us", "150000\n");
    put("cpu/a", "cpu.cfs_period_us", "100000\n");
    put("cpu/a/b", "cpu.cfs_quota_us", "-1\n");
    put("cpu/a/b", "cpu.cfs_period_us", "100000\n");
    put("memory", "memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/m", "memory.limit_in_bytes", "2097152\n");
    put("memory/m", "memory.usage_in_bytes", "1048576\n");
    put("two/x", "cpu.max", "max 100000\n");
    put("two", "cpu.max", "50000 100000\n");
    put("two/x", "memory.max", "max\n");
    put("two", "memory.max", "3145728\n");
    struct os_topology t =
        limits("9:name=systemd:/\n4:memory:/m\n3:cpuset:/\n1:cpu,cpuacct:/a/b\n0::/\n");
    assert_true(t.cgroup_cpus == 1.5 && t.mem_total == 2 << 20 && t.mem_available == 1 << 20);
    t = limits("1:cpu:/host/only\n4:memory:/m/gone\n"); /* the folder above one that is not there */
    assert_true(t.cgroup_cpus == 0 && t.mem_total == 2 << 20);
    t = limits("0::/two/x\n");
    assert_true(t.cgroup_cpus == 0.5 && t.mem_total == 3 << 20 && t.mem_available == 3 << 20);
    t = limits("");
    assert_true(t.cgroup_cpus == 0 && t.mem_total == 8 << 20 && t.mem_available == 4 << 20);
    for (int i = 0; i < BASE_COUNT_OF(made); i++)
        os_dir_remove(in_dir(made[i]));
}

TEST(os_pages_are_found)
{
    size_t n = 64 * 4096;
    uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    struct os_topology t;
    sl_err err;
    ASSERT_OK(os_topology_get(&t, &err));
    assert_int_equal(os_pages_near(p, n, 16).n, 0); /* none is there yet */
    memset(p, 1, n);
    struct os_pages all = os_pages_near(p, n, 16), few = os_pages_near(p, 2 * 4096, 64);
    if (all.n) { /* else this kernel does not tell */
        assert_int_equal(all.n, 16);
        assert_true(few.n == 2 && (t.n_numa > 1 || all.near == 16));
    }
    assert_int_equal(os_pages_near(p, 4095, 16).n, 0);
    munmap(p, n);
}

TEST(os_topology_is_sane)
{
    sl_err err;
    struct os_topology t;
    int cpu[3];
    ASSERT_OK(os_topology_get(&t, &err));
    assert_true(t.n_core >= 1 && t.n_pu >= t.n_core && t.n_numa >= 1);
    assert_true(t.mem_total > (64 << 20) && t.mem_available <= t.mem_total);
    assert_true(t.cpu[0] && t.thp[0] && t.cgroup_cpus >= 0);
    int n = os_team_cpus(&(struct os_team){3, 0, 1}, cpu);
    assert_true(n == BASE_MIN(3, t.n_pu));
    for (int i = 0; i < 3; i++)
        assert_true(i < n ? cpu[i] >= 0 : cpu[i] == -1);
    assert_true(n < 2 || cpu[0] != cpu[1]);
    assert_true(os_rss_peak() >= os_rss_now() / 2 && os_rss_now() > 100000);
}

static int by_core(const void *a, const void *b)
{
    const struct os_pu *x = a, *y = b;
    return x->core != y->core ? x->core - y->core : x->cpu - y->cpu;
}

TEST(os_nodes_have_cores)
{
    struct os_pu pu[12];
    for (int c = 0; c < 12; c++) /* second threads of 6 cores follow; nodes of 4 and 2 cores */
        pu[c] = (struct os_pu){c, c % 6, c % 6 < 4 ? 0 : 2};
    qsort(pu, 12, sizeof *pu, by_core);
    assert_int_equal(os_node_cores(pu, 12), 2);
    os_pretend_nodes(pu, 12, 2);
    assert_int_equal(os_node_cores(pu, 12), 3);
    for (int c = 0; c < 12; c++)
        assert_int_equal(pu[c].numa, pu[c].core / 3);
    os_pretend_nodes(pu, 12, 1);
    assert_int_equal(os_node_cores(pu, 12), 6);
    os_pretend_nodes(pu, 12, 4);
    assert_int_equal(os_node_cores(pu, 12), 1);
}

TEST(os_teams_are_dealt_to_memory_nodes)
{
    static const struct {
        bool mixed, smt; /* nodes alternate; the second threads of 8 cores follow */
        struct os_team t;
        int n, cpu[8];
    } all[] = {
        {true, false, {4, 0, 2}, 8, {0, 2, 4, 6}},
        {true, false, {4, 1, 2}, 8, {1, 3, 5, 7}},
        {true, false, {2, 1, 2}, 4, {1, 3}},
        {true, false, {2, 1, 4}, 8, {4, 6}},
        {true, false, {2, 2, 4}, 8, {1, 3}},
        {true, false, {2, 1, 3}, 6, {4, 6}},
        {true, false, {2, 2, 3}, 6, {1, 3}},
        {true, false, {8, 0, 1}, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {true, false, {6, 1, 2}, 8, {6, 7, -1, -1, -1, -1}}, /* more than there are */
        {false, false, {4, 1, 2}, 8, {4, 5, 6, 7}},
        {false, true, {4, 1, 2}, 8, {4, 5, 6, 7}},
        {false, true, {8, 1, 2}, 16, {4, 5, 6, 7, 12, 13, 14, 15}},
        {true, true, {8, 0, 2}, 16, {0, 2, 4, 6, 8, 10, 12, 14}},
    };
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        struct os_pu pu[16];
        int n_pu = all[i].smt ? 16 : 8, cpu[8];
        for (int c = 0; c < n_pu; c++) /* nodes 1 and 3 */
            pu[c] = (struct os_pu){c, c % 8, 1 + 2 * (all[i].mixed ? c % 2 : c % 8 / 4)};
        assert_int_equal(os_team_deal(pu, n_pu, &all[i].t, cpu), all[i].n);
        for (int w = 0; w < all[i].t.n; w++)
            assert_int_equal(cpu[w], all[i].cpu[w]);
    }
}
